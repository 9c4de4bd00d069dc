//! The boundary: where in a memory the baseline part ends. Pure and byte-wise.
//!
//! The rules, in this order:
//!
//! 1. An *eligible separator line* equals the separator literally, trailing
//!    whitespace aside, and is not inside a code fence, a front matter
//!    delimiter, a setext heading underline or a row of a table.
//! 2. The *operator part* of a baseline ends with its last eligible separator
//!    line; where there is none, with the last line that equals the separator
//!    literally. What follows in the baseline is its *tail*.
//! 3. A memory that starts with the operator part of the current baseline is
//!    *intact*. Without a separator line, the operator part is the whole
//!    baseline, and what follows it is scratch all the same.
//! 4. One that starts with the operator part of an earlier version that a run
//!    pushed to this agent, or found in its memory, is intact against that one,
//!    and *behind*. If several versions fit, the one with the longest operator
//!    part counts: rules that the operator removed from the end are no notes of
//!    the agent's. Other stored versions do not count: they may be another
//!    agent's, or a damaged baseline that was replaced.
//! 5. Else its lines are *aligned* with the baseline that was pushed last: of
//!    all separator lines, the one above which the fewest lines differ.
//!    Everything above it that differs is drift.
//! 6. Else there is no boundary.
//!
//! A wrong boundary from 5 or 6 cannot lose anything, because a reset then archives the whole file.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Maximum number of line comparisons in rule 5. It keeps the search linear in the memory:
/// separators past it are not considered.
const MAX_ALIGN_COMPARISONS: usize = 64 << 20;

/// A line that equals the separator, trailing whitespace aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeparatorLine {
    /// Offset of the line's first byte.
    pub start: usize,
    /// Offset behind the line, its line feed included.
    pub end: usize,
    /// The line's number, from 1.
    pub line: usize,
    /// Whether it may be a boundary by rule 1.
    pub is_eligible: bool,
}

/// A version of a baseline, cut at its last separator line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    bytes: Vec<u8>,
    digest: Digest,
    separator: Vec<u8>,
    separator_line: Option<SeparatorLine>,
}

impl Baseline {
    /// Cuts `bytes` at the last separator line (rule 2).
    pub fn new(bytes: Vec<u8>, separator: &str) -> Baseline {
        let lines = separator_lines(&bytes, separator.as_bytes());
        let cut = lines.iter().rev().find(|line| line.is_eligible);
        Baseline {
            digest: Digest::of(&bytes),
            separator: separator.as_bytes().to_vec(),
            separator_line: cut.or(lines.last()).copied(),
            bytes,
        }
    }

    /// Content of the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Digest of the whole file.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The separator line that ends the operator part, if there is one.
    pub fn separator_line(&self) -> Option<SeparatorLine> {
        self.separator_line
    }

    /// The bytes up to and including the last separator line; the whole file where there is none.
    pub fn operator_part(&self) -> &[u8] {
        &self.bytes[..self.separator_line.map_or(self.bytes.len(), |cut| cut.end)]
    }

    /// The bytes behind the operator part.
    pub fn tail(&self) -> &[u8] {
        &self.bytes[self.operator_part().len()..]
    }

    /// The bytes above the separator line.
    fn above_separator(&self) -> &[u8] {
        &self.bytes[..self
            .separator_line
            .map_or(self.bytes.len(), |cut| cut.start)]
    }

    /// Offset of the boundary in a memory that starts with the operator part.
    ///
    /// The separator line itself is compared without trailing whitespace (rule 1), so an editor
    /// that changes the file's last line end causes no drift. Without a separator line, the last
    /// line of the baseline must be a whole line of the memory: text that continues it is drift.
    fn intact_boundary_in(&self, memory: &[u8]) -> Option<usize> {
        let Some(cut) = self.separator_line else {
            let rest = memory.strip_prefix(self.bytes.as_slice())?;
            let line_end = match rest {
                [] => 0,
                _ if self.bytes.ends_with(b"\n") => 0,
                _ if self.bytes.is_empty() => return None,
                [b'\n', ..] => 1,
                [b'\r', b'\n', ..] => 2,
                _ => return None,
            };
            return Some(self.bytes.len() + line_end);
        };
        if !memory.starts_with(&self.bytes[..cut.start]) {
            return None;
        }
        let end = line_end(memory, cut.start);
        is_separator(&memory[cut.start..end], &self.separator).then_some(end)
    }
}

/// How a boundary was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule", content = "version")]
pub enum BoundaryRule {
    /// The memory starts with the current baseline's operator part.
    Intact,
    /// The memory starts with the operator part of the earlier version with this digest.
    Behind(Digest),
    /// The memory was aligned with the version of this digest.
    Aligned(Digest),
}

/// Where the baseline part of a memory ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// Offset of the first byte of scratch.
    pub offset: usize,
    /// The separator's line number, from 1; 0 when the baseline has no separator.
    pub line: usize,
    /// The separator is line `separator_number` of `separator_count` separator lines.
    #[serde(rename = "nth")]
    pub separator_number: usize,
    /// See `separator_number`.
    #[serde(rename = "of")]
    pub separator_count: usize,
    /// Which rule found it.
    pub rule: BoundaryRule,
    /// Lines above the boundary that the agent added.
    #[serde(rename = "added")]
    pub added_lines: usize,
    /// Lines above the boundary that the agent removed.
    #[serde(rename = "removed")]
    pub removed_lines: usize,
}

impl Boundary {
    /// Returns whether the agent changed anything above the boundary.
    pub fn is_drifted(&self) -> bool {
        matches!(self.rule, BoundaryRule::Aligned(_))
    }
}

/// Finds the boundary in `memory` (rules 3 to 6).
///
/// `earlier` are the other versions that were pushed to this agent, newest first. `memory` may be
/// the beginning of a longer file if it holds several times the length of the baseline.
pub fn find_boundary(
    memory: &[u8],
    current: &Baseline,
    earlier: &[Arc<Baseline>],
) -> Option<Boundary> {
    let intact = std::iter::once(current)
        .chain(earlier.iter().map(Arc::as_ref))
        .filter_map(|version| Some((version, version.intact_boundary_in(memory)?)))
        .reduce(|best, other| {
            // A memory that is a version, byte for byte, is that one, whatever its tail.
            let rank = |(version, offset): &(&Baseline, usize)| (*offset, memory == version.bytes);
            if rank(&other) > rank(&best) {
                other
            } else {
                best
            }
        });
    if let Some((version, offset)) = intact {
        let rule = if version.digest == current.digest {
            BoundaryRule::Intact
        } else {
            BoundaryRule::Behind(version.digest)
        };
        let line = version.separator_line.map_or(0, |cut| cut.line);
        return Some(Boundary {
            offset,
            rule,
            added_lines: 0,
            removed_lines: 0,
            ..boundary_at_line(memory, &version.separator, line)
        });
    }
    let version = earlier.first().map_or(current, Arc::as_ref);
    let Some(cut) = version.separator_line else {
        // The baseline has no separator, so the whole memory is above the boundary.
        let (added, removed) = count_changed_lines(version.above_separator(), memory);
        return Some(Boundary {
            offset: memory.len(),
            line: 0,
            separator_number: 0,
            separator_count: 0,
            rule: BoundaryRule::Aligned(version.digest),
            added_lines: added,
            removed_lines: removed,
        });
    };
    let candidates = separator_lines(memory, &version.separator);
    let chosen = align_separator(
        version.above_separator(),
        memory,
        &candidates,
        cut.is_eligible,
    )?;
    let (added, removed) = count_changed_lines(version.above_separator(), &memory[..chosen.start]);
    Some(Boundary {
        offset: chosen.end,
        rule: BoundaryRule::Aligned(version.digest),
        added_lines: added,
        removed_lines: removed,
        ..boundary_at_line(memory, &version.separator, chosen.line)
    })
}

/// The boundary below a separator line; the caller fills in how it was found.
fn boundary_at_line(memory: &[u8], separator: &[u8], line: usize) -> Boundary {
    let lines = match line {
        // The baseline has no separator, so those of the agent mean nothing.
        0 => Vec::new(),
        _ => separator_lines(memory, separator),
    };
    let eligible = |candidate: &&SeparatorLine| candidate.is_eligible || candidate.line == line;
    Boundary {
        offset: 0,
        line,
        separator_number: lines
            .iter()
            .filter(eligible)
            .take_while(|candidate| candidate.line <= line)
            .count(),
        separator_count: lines.iter().filter(eligible).count(),
        rule: BoundaryRule::Intact,
        added_lines: 0,
        removed_lines: 0,
    }
}

/// Applies rule 5: finds the separator line above which `memory` differs least from `above`.
///
/// Blank lines do not count: they match anywhere. A separator needs at least one line of the
/// baseline above it.
fn align_separator(
    above: &[u8],
    memory: &[u8],
    candidates: &[SeparatorLine],
    eligible_only: bool,
) -> Option<SeparatorLine> {
    let baseline: Vec<&[u8]> = split_lines(above).filter(|line| !is_blank(line)).collect();
    let mut common = CommonSubsequence::new(&baseline);
    let mut rest = memory;
    let mut best: Option<(usize, SeparatorLine)> = None;
    let (mut at, mut seen) = (0, 0);
    for candidate in candidates
        .iter()
        .filter(|c| c.is_eligible || !eligible_only)
    {
        let (above, below) = rest.split_at(candidate.start - at);
        for line in split_lines(above).filter(|line| !is_blank(line)) {
            common.push(line);
            seen += 1;
        }
        (rest, at) = (below, candidate.start);
        let length = common.length();
        let cost = baseline.len() + seen - 2 * length;
        if (length > 0 || baseline.is_empty()) && best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, *candidate));
        }
        if common.is_exhausted() {
            break;
        }
    }
    best.map(|(_, line)| line)
}

/// Counts the lines that were added and removed between two texts.
fn count_changed_lines(old: &[u8], new: &[u8]) -> (usize, usize) {
    let (old, new): (Vec<_>, Vec<_>) = (split_lines(old).collect(), split_lines(new).collect());
    let pairs = old.iter().rev().zip(new.iter().rev());
    let equal_at_end = pairs.take_while(|(old, new)| old == new).count();
    let (old, new) = (
        &old[..old.len() - equal_at_end],
        &new[..new.len() - equal_at_end],
    );
    let mut common = CommonSubsequence::new(old);
    for line in new {
        common.push(line);
    }
    (new.len() - common.length(), old.len() - common.length())
}

/// Length of the longest common subsequence of a fixed text and a growing one, updated with every
/// line: the usual table, of which only one row is kept. Lines that the fixed text does not have
/// cost nothing, and nor do those with which both texts begin.
struct CommonSubsequence<'a> {
    ids: HashMap<&'a [u8], u32>,
    fixed_lines: Vec<u32>,
    /// Number of lines with which both texts begin; the table covers those behind.
    prefix_length: usize,
    /// Whether all lines so far are in the prefix.
    is_prefix: bool,
    row: Vec<u32>,
    comparisons_left: usize,
}

impl<'a> CommonSubsequence<'a> {
    fn new(fixed: &[&'a [u8]]) -> CommonSubsequence<'a> {
        let mut ids = HashMap::new();
        let fixed: Vec<u32> = fixed
            .iter()
            .map(|line| {
                let next = ids.len() as u32;
                *ids.entry(*line).or_insert(next)
            })
            .collect();
        CommonSubsequence {
            ids,
            row: vec![0; fixed.len() + 1],
            fixed_lines: fixed,
            prefix_length: 0,
            is_prefix: true,
            comparisons_left: MAX_ALIGN_COMPARISONS,
        }
    }

    fn push(&mut self, line: &[u8]) {
        let id = self.ids.get(line);
        self.is_prefix &= id.is_some() && self.fixed_lines.get(self.prefix_length) == id;
        if self.is_prefix {
            self.prefix_length += 1;
            return;
        }
        let Some(&id) = id.filter(|_| !self.is_exhausted()) else {
            return;
        };
        let remaining = self.fixed_lines.len() - self.prefix_length;
        self.comparisons_left = self.comparisons_left.saturating_sub(remaining);
        let mut diagonal = 0;
        for (i, &fixed) in self.fixed_lines.iter().enumerate().skip(self.prefix_length) {
            let above = self.row[i + 1];
            self.row[i + 1] = if fixed == id {
                diagonal + 1
            } else {
                above.max(self.row[i])
            };
            diagonal = above;
        }
    }

    fn length(&self) -> usize {
        self.prefix_length + self.row[self.fixed_lines.len()] as usize
    }

    fn is_exhausted(&self) -> bool {
        self.comparisons_left == 0
    }
}

/// Splits a text into lines, without their line feeds.
fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Returns the offset behind the line that starts at `start`.
fn line_end(text: &[u8], start: usize) -> usize {
    text[start..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(text.len(), |length| start + length + 1)
}

/// Returns whether a separator line of `memory` ends with CR LF where that of the baseline does
/// not. The lines above it then end with CR LF, too, and none equals a line of the baseline.
pub fn has_cr_lf_separator(memory: &[u8], baseline: &Baseline) -> bool {
    let lines = |text| <[u8]>::split_inclusive(text, |byte| *byte == b'\n');
    let own = lines(baseline.operator_part()).next_back();
    let Some(own) = own.filter(|_| baseline.separator_line().is_some()) else {
        return false;
    };
    let ends = |line: &[u8]| line.ends_with(b"\r\n");
    let separator = own.trim_ascii_end();
    !ends(own) && lines(memory).any(|line| ends(line) && is_separator(line, separator))
}

fn is_separator(line: &[u8], separator: &[u8]) -> bool {
    line.trim_ascii_end() == separator
}

/// Finds all lines of `text` that equal the separator, with their eligibility (rule 1). Linear in
/// the text.
pub fn separator_lines(text: &[u8], separator: &[u8]) -> Vec<SeparatorLine> {
    scan_lines(text)
        .filter(|line| is_separator(&text[line.start..line.end], separator))
        .map(|line| line.to_separator_line())
        .collect()
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

impl ScannedLine {
    /// Treats the line, which equals the separator, as a separator line.
    pub fn to_separator_line(self) -> SeparatorLine {
        SeparatorLine {
            start: self.start,
            end: self.end,
            line: self.number,
            is_eligible: self.kind.can_be_separator(),
        }
    }
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
    /// Returns whether a line of this kind may be a boundary (rule 1).
    pub fn can_be_separator(self) -> bool {
        !matches!(
            self,
            LineKind::FrontMatter
                | LineKind::Fenced
                | LineKind::TableRow
                | LineKind::SetextUnderline
        )
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
            if contains_bytes(text, b"-->") {
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
        let lazy = self.paragraph == ParagraphState::Nested && !heading && !quote;
        if !lazy {
            self.close_list_if_outdented(indent);
        }
        if heading {
            self.paragraph = ParagraphState::None;
            return LineKind::Heading;
        } else if quote {
            self.paragraph = ParagraphState::Nested;
            return LineKind::Quote;
        } else if text.starts_with(b"<!--") {
            self.paragraph = ParagraphState::None;
            if !contains_bytes(&text[4..], b"-->") {
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

fn contains_bytes(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests;
