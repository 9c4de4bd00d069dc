//! The lines of a memory, and which of them can be separators: rule 1 of the boundary.

use std::fmt;

/// An eligible separator line (rule 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeparatorLine {
    /// Offset of the line's first byte.
    pub start: usize,
    /// Offset behind the line, its line feed included.
    pub end: usize,
    /// The line's number, from 1.
    pub line: usize,
}

/// A line that equals the separator, trailing whitespace aside, but is excluded by rule 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExcludedLine {
    /// The line's number, from 1.
    pub line: usize,
    /// Why it is excluded.
    pub exclusion: SeparatorExclusion,
}

impl fmt::Display for ExcludedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.exclusion {
            SeparatorExclusion::FrontMatter => "delimits front matter",
            SeparatorExclusion::CodeFence => "is in a code fence",
            SeparatorExclusion::Comment => "is in an HTML comment",
            SeparatorExclusion::TableRow => "is a row of a table",
            SeparatorExclusion::SetextUnderline => {
                "underlines the text above it, which makes that a heading"
            }
            SeparatorExclusion::NothingAbove => "has no text above it",
        };
        write!(f, "line {} {what}", self.line)
    }
}

/// Why a line that equals the separator is excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeparatorExclusion {
    /// It opens or closes YAML front matter.
    FrontMatter,
    /// It is inside a code fence.
    CodeFence,
    /// It is inside an HTML comment that began on an earlier line.
    Comment,
    /// It is a row of a table.
    TableRow,
    /// It makes the paragraph above it a heading.
    SetextUnderline,
    /// No line with text stands above it, so it would protect nothing.
    NothingAbove,
}

/// The lines of a text that equal the separator, trailing whitespace aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeparatorLines {
    /// The separators, in the order of their lines.
    pub eligible: Vec<SeparatorLine>,
    /// The other ones.
    pub excluded: Vec<ExcludedLine>,
}

impl SeparatorLines {
    /// Finds the lines of `text` that equal the separator. Linear in the text.
    pub fn find(text: &[u8], separator: &[u8]) -> SeparatorLines {
        let Some(last) = literal_separators(text, separator).last() else {
            return SeparatorLines::default();
        };
        // Lines after the last one decide nothing about the ones before.
        let lines = scan_lines(text).take_while(|line| line.start <= last);
        SeparatorLines::among(lines, text, separator)
    }

    /// The separator that ends the operator part of a baseline: the last one.
    pub fn boundary(&self) -> Option<SeparatorLine> {
        self.eligible.last().copied()
    }

    /// Finds them among the lines of `text`, which are in their order.
    pub fn among(
        lines: impl Iterator<Item = ScannedLine>,
        text: &[u8],
        separator: &[u8],
    ) -> SeparatorLines {
        let mut found = SeparatorLines::default();
        let mut has_text_above = false;
        for line in lines {
            if !is_separator(&text[line.start..line.end], separator) {
                has_text_above |= line.kind != LineKind::Blank;
                continue;
            }
            let nothing_above = (!has_text_above).then_some(SeparatorExclusion::NothingAbove);
            match line.kind.separator_exclusion().or(nothing_above) {
                Some(exclusion) => found.excluded.push(ExcludedLine {
                    line: line.number,
                    exclusion,
                }),
                None => found.eligible.push(SeparatorLine {
                    start: line.start,
                    end: line.end,
                    line: line.number,
                }),
            }
        }
        found
    }
}

/// Returns whether a line equals the separator, trailing whitespace aside.
pub fn is_separator(line: &[u8], separator: &[u8]) -> bool {
    line.trim_ascii_end() == separator
}

/// Returns whether exactly one line of `text` equals the separator.
pub(super) fn has_one_separator(text: &[u8], separator: &[u8]) -> bool {
    literal_separators(text, separator).take(2).count() == 1
}

/// Returns the offsets of the lines that equal the separator, whether they are eligible or not.
fn literal_separators<'t>(text: &'t [u8], separator: &[u8]) -> impl Iterator<Item = usize> + 't {
    let found = memchr::memmem::Finder::new(separator).into_owned();
    let mut next = 0;
    std::iter::from_fn(move || {
        while next < text.len() {
            let at = next + found.find(&text[next..])?;
            let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length);
            next = end + 1;
            let starts_line = at == 0 || text[at - 1] == b'\n';
            if starts_line && is_separator(&text[at..end], found.needle()) {
                return Some(at);
            }
        }
        None
    })
}

/// A line of Markdown, and the kind of block that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScannedLine {
    /// Offset of the line's first byte.
    pub start: usize,
    /// Offset behind the line, its line feed included.
    pub end: usize,
    /// The line's number, from 1.
    pub number: usize,
    /// What the line is.
    pub kind: LineKind,
}

/// What a line of Markdown is, as far as the scanner that finds separators tells lines apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// In the YAML front matter, or one of its delimiters.
    FrontMatter,
    /// Opens a code fence.
    FenceStart,
    /// Inside a code fence, or its end.
    Fenced,
    /// In an HTML comment that began on an earlier line.
    Comment,
    /// In a block of HTML, or an HTML comment.
    Html,
    /// Without text.
    Blank,
    /// A row of a table.
    TableRow,
    /// Indented code at the margin.
    IndentedCode,
    /// Makes the paragraph above it a heading.
    SetextUnderline,
    /// A line such as `---` or `***`.
    ThematicBreak,
    /// A heading that begins with `#`.
    Heading,
    /// Begins an item of a list.
    ListItem,
    /// In a quotation.
    Quote,
    /// Any other text.
    Text,
}

impl LineKind {
    /// Returns why rule 1 excludes a line of this kind; `None` if the line may be a separator.
    fn separator_exclusion(self) -> Option<SeparatorExclusion> {
        match self {
            LineKind::FrontMatter => Some(SeparatorExclusion::FrontMatter),
            LineKind::Fenced => Some(SeparatorExclusion::CodeFence),
            LineKind::Comment => Some(SeparatorExclusion::Comment),
            LineKind::TableRow => Some(SeparatorExclusion::TableRow),
            LineKind::SetextUnderline => Some(SeparatorExclusion::SetextUnderline),
            LineKind::FenceStart
            | LineKind::Html
            | LineKind::Blank
            | LineKind::IndentedCode
            | LineKind::ThematicBreak
            | LineKind::Heading
            | LineKind::ListItem
            | LineKind::Quote
            | LineKind::Text => None,
        }
    }
}

/// Tells the kinds of the lines of a text. Linear in the text.
pub fn scan_lines(text: &[u8]) -> impl Iterator<Item = ScannedLine> {
    let mut blocks = MarkdownBlocks::new(text);
    let mut start = 0;
    let lines = text.split_inclusive(|byte| *byte == b'\n').enumerate();
    lines.map(move |(index, line)| {
        let scanned = ScannedLine {
            start,
            end: start + line.len(),
            number: index + 1,
            kind: blocks.push_line(line.trim_ascii_end(), index),
        };
        start = scanned.end;
        scanned
    })
}

/// Returns the number of the line whose code fence is still open at the end of a text.
pub fn unclosed_fence_line(text: &[u8]) -> Option<usize> {
    let mut blocks = MarkdownBlocks::new(text);
    let mut opened_at = None;
    for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if blocks.push_line(line.trim_ascii_end(), index) != LineKind::Fenced {
            opened_at = Some(index + 1);
        }
    }
    blocks.fence.and(opened_at)
}

/// The block structure of Markdown, as far as it decides the meaning of a line of dashes
/// (`docs/decisions/boundary-scanner.md` says why it is ours):
/// CommonMark 0.31.2, sections 4 and 5, one line at a time.
struct MarkdownBlocks {
    /// Number of lines that the front matter takes, delimiters included.
    front_matter_lines: usize,
    fence: Option<CodeFence>,
    paragraph: ParagraphState,
    /// Indentation that keeps a line inside the outermost open list item; 0 outside lists.
    list_indent: usize,
    html_block: HtmlBlock,
    is_in_table: bool,
    has_pipes_above: bool,
}

struct CodeFence {
    marker: u8,
    length: usize,
    /// The list that contains the fence, as in `MarkdownBlocks::list_indent`: a line further left
    /// ends both.
    list_indent: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParagraphState {
    None,
    /// Text at the margin: a line of dashes below it makes it a heading.
    TopLevel,
    /// Text in a list item or a quotation: a line of dashes ends it.
    Nested,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HtmlBlock {
    None,
    Block,
    Comment,
}

impl MarkdownBlocks {
    fn new(text: &[u8]) -> MarkdownBlocks {
        MarkdownBlocks {
            front_matter_lines: count_front_matter_lines(text),
            fence: None,
            paragraph: ParagraphState::None,
            list_indent: 0,
            html_block: HtmlBlock::None,
            is_in_table: false,
            has_pipes_above: false,
        }
    }

    /// Adds the next line, without trailing whitespace, and returns its kind.
    fn push_line(&mut self, line: &[u8], number: usize) -> LineKind {
        if number < self.front_matter_lines {
            return LineKind::FrontMatter;
        }
        let text = line.trim_ascii_start();
        let indent = indent_width(line);
        if let Some(fence) = &self.fence {
            if !text.is_empty() && indent < fence.list_indent {
                self.fence = None;
            } else {
                if indent < 4 || fence.list_indent > 0 {
                    let run = text.iter().take_while(|b| **b == fence.marker).count();
                    if run >= fence.length && run == text.len() {
                        self.fence = None;
                    }
                }
                return LineKind::Fenced;
            }
        }
        if self.html_block == HtmlBlock::Comment {
            if memchr::memmem::find(text, b"-->").is_some() {
                self.html_block = HtmlBlock::None;
            }
            return LineKind::Comment;
        }
        if text.is_empty() {
            self.paragraph = ParagraphState::None;
            self.is_in_table = false;
            self.html_block = HtmlBlock::None;
            return LineKind::Blank;
        }
        if self.html_block == HtmlBlock::Block {
            return LineKind::Html;
        }
        let pipes = text.contains(&b'|');
        self.is_in_table |= self.has_pipes_above && is_delimiter_row(text);
        self.has_pipes_above = pipes && !self.is_in_table;
        if self.is_in_table {
            self.paragraph = ParagraphState::None;
            if !is_thematic_break(text) {
                return if pipes {
                    LineKind::TableRow
                } else {
                    LineKind::Text
                };
            }
            self.is_in_table = false;
        }
        self.push_block_line(line, text, indent)
    }

    /// Adds a line outside fences, HTML and tables that is not blank, and returns its kind.
    fn push_block_line(&mut self, line: &[u8], text: &[u8], indent: usize) -> LineKind {
        if indent >= 4 && self.paragraph == ParagraphState::None && self.list_indent == 0 {
            return LineKind::IndentedCode;
        }
        if indent < 4 && self.paragraph == ParagraphState::TopLevel && is_setext_underline(text) {
            self.paragraph = ParagraphState::None;
            return LineKind::SetextUnderline;
        }
        if (indent < 4 || self.list_indent > 0) && self.open_fence_if_any(text, indent) {
            return LineKind::FenceStart;
        }
        if indent < 4 && is_thematic_break(text) {
            self.paragraph = ParagraphState::None;
            self.close_list_if_outdented(indent);
            return LineKind::ThematicBreak;
        }
        if let Some(item) = list_item_text(text, self.paragraph == ParagraphState::TopLevel) {
            self.close_list_if_outdented(indent);
            if self.list_indent == 0 {
                let marker = text.len() - item.len();
                self.list_indent = indent + if item.is_empty() { marker + 1 } else { marker };
            }
            self.paragraph = match item {
                [] => ParagraphState::None,
                _ => ParagraphState::Nested,
            };
            self.open_fence_if_any(item, self.list_indent);
            return LineKind::ListItem;
        }
        let (heading, quote) = (is_heading(text), text.starts_with(b">"));
        let comment = text.starts_with(b"<!--");
        let interrupts = heading || quote || comment;
        let lazy = self.paragraph == ParagraphState::Nested && !interrupts;
        if !lazy {
            self.close_list_if_outdented(indent);
        }
        if heading {
            self.paragraph = ParagraphState::None;
            return LineKind::Heading;
        } else if quote {
            self.paragraph = ParagraphState::Nested;
            return LineKind::Quote;
        } else if comment {
            self.paragraph = ParagraphState::None;
            if memchr::memmem::find(&text[4..], b"-->").is_none() {
                self.html_block = HtmlBlock::Comment;
            }
            return LineKind::Html;
        } else if self.paragraph == ParagraphState::None && is_html(text) {
            self.html_block = HtmlBlock::Block;
            return LineKind::Html;
        } else if self.paragraph == ParagraphState::None && is_link_definition(line) {
            // A link definition does not begin a paragraph.
        } else if self.paragraph == ParagraphState::None {
            self.paragraph = if self.list_indent > 0 {
                ParagraphState::Nested
            } else {
                ParagraphState::TopLevel
            };
        }
        LineKind::Text
    }

    fn open_fence_if_any(&mut self, text: &[u8], indent: usize) -> bool {
        let Some(mark @ (b'`' | b'~')) = text.first().copied() else {
            return false;
        };
        let length = text.iter().take_while(|byte| **byte == mark).count();
        if length < 3 || (mark == b'`' && text[length..].contains(&b'`')) {
            return false;
        }
        self.paragraph = ParagraphState::None;
        self.close_list_if_outdented(indent);
        self.fence = Some(CodeFence {
            marker: mark,
            length,
            list_indent: self.list_indent,
        });
        true
    }

    /// Ends the list at a line that starts further left than the item's text.
    fn close_list_if_outdented(&mut self, indent: usize) {
        if indent < self.list_indent {
            self.list_indent = 0;
        }
    }
}

/// Number of lines of YAML front matter: a `---` on the first line, with text right below it, up to
/// the next `---` or `...`.
fn count_front_matter_lines(text: &[u8]) -> usize {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut lines = text
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end);
    if lines.next() != Some(b"---") {
        return 0;
    }
    let mut lines = lines.enumerate();
    match lines.next() {
        None | Some((_, b"" | b"---" | b"...")) => 0,
        Some(_) => lines
            .find(|(_, line)| matches!(*line, b"---" | b"..."))
            .map_or(0, |(number, _)| number + 2),
    }
}

/// Width of a line's leading whitespace, with tab stops of four.
fn indent_width(line: &[u8]) -> usize {
    let mut width = 0;
    for byte in line {
        match byte {
            b' ' => width += 1,
            b'\t' => width += 4 - width % 4,
            _ => break,
        }
    }
    width
}

fn is_setext_underline(text: &[u8]) -> bool {
    text.iter().all(|byte| *byte == b'-') || text.iter().all(|byte| *byte == b'=')
}

fn is_thematic_break(text: &[u8]) -> bool {
    let Some(mark @ (b'-' | b'*' | b'_')) = text.first().copied() else {
        return false;
    };
    // Most lines with such a mark are list items, for which this stops early.
    text.iter().all(|b| *b == mark || b.is_ascii_whitespace())
        && text.iter().filter(|byte| **byte == mark).count() >= 3
}

fn is_heading(text: &[u8]) -> bool {
    let level = text.iter().take_while(|byte| **byte == b'#').count();
    (1..=6).contains(&level) && text.get(level).is_none_or(u8::is_ascii_whitespace)
}

/// Returns the text behind a list marker. An item can interrupt a paragraph only if it has text
/// and, when numbered, begins with 1.
fn list_item_text(text: &[u8], interrupts: bool) -> Option<&[u8]> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let marker = match text.get(digits)? {
        b'-' | b'+' | b'*' if digits == 0 => 1,
        b'.' | b')' if (1..=9).contains(&digits) => digits + 1,
        _ => return None,
    };
    let rest = &text[marker..];
    if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
        return None;
    }
    let item = rest.trim_ascii_start();
    let numbered_late = digits > 0 && text[..digits] != *b"1";
    (!interrupts || (!item.is_empty() && !numbered_late)).then_some(item)
}

fn is_html(text: &[u8]) -> bool {
    let name = text
        .strip_prefix(b"<")
        .map(|rest| rest.strip_prefix(b"/").unwrap_or(rest));
    name.is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_alphabetic))
        && text.ends_with(b">")
}

/// `[label]: target`
fn is_link_definition(line: &[u8]) -> bool {
    line.trim_ascii_start()
        .strip_prefix(b"[")
        .is_some_and(|rest| {
            rest.iter()
                .position(|byte| *byte == b']')
                .is_some_and(|end| {
                    end > 0 && rest[end + 1..].first() == Some(&b':') && rest.len() > end + 2
                })
        })
}

fn is_delimiter_row(text: &[u8]) -> bool {
    text.contains(&b'-')
        && text
            .iter()
            .all(|byte| matches!(byte, b'|' | b'-' | b':' | b' ' | b'\t'))
}
