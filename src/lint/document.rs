//! A text as the rules see it: lines with their blocks, headings, sections, list items, zones and
//! language, computed once in one pass.
//!
//! The kinds of lines and the separators come from [`crate::boundary`], so that a rule and a reset
//! never disagree about what a line is.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use super::secret_ranges::{self, SecretRanges};
use super::words::{WordLanguage, Words};
use crate::boundary::{LineKind, ScannedLine, SeparatorLines, scan_lines, unclosed_fence_line};

/// What a text is, which decides the rules that judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRole {
    /// A baseline file, with its tail below the separator.
    Baseline,
    /// A live memory, whose scratch begins at this offset.
    Memory {
        /// Offset of the first byte of scratch; the length of the text without a boundary.
        scratch_start: usize,
        /// Whether the part above is exactly a version that was pushed: it is judged as a baseline,
        /// and not again here.
        is_intact: bool,
    },
    /// Notes alone, without a baseline part.
    Scratch,
}

/// The side of the boundary that a place lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Zone {
    /// In the baseline part.
    Baseline,
    /// In the scratch.
    Scratch,
    /// On both sides, or about the whole file.
    Whole,
    /// About the fleet: the config, the seal, metadata.
    Fleet,
}

/// The language of a text, as far as rules need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextLanguage {
    /// Mostly English words.
    English,
    /// Mostly words of other languages.
    Other,
    /// Too few words to tell.
    TooShort,
}

/// A heading, of either Markdown form.
#[derive(Clone, Debug)]
pub(super) struct Heading {
    /// Index of its line in [`Document::lines`].
    pub line: usize,
    /// 1 to 6.
    pub level: usize,
    /// Its text, without marks.
    pub text: Range<usize>,
    /// Index of the first line behind it.
    pub body_start: usize,
}

/// An item of a list, with the lines that continue its first paragraph.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Index of its first line.
    pub line: usize,
    /// Its text, behind the marker.
    pub text: Range<usize>,
    /// Whether it is not nested in another item.
    pub is_top_level: bool,
}

/// A parsed text.
pub(super) struct Document<'t> {
    pub text: &'t [u8],
    pub role: TextRole,
    pub words: &'t Words,
    pub lines: Vec<ScannedLine>,
    /// Offset of each line's trailing whitespace.
    content_ends: Vec<usize>,
    pub headings: Vec<Heading>,
    pub items: Vec<Item>,
    /// The lines that equal the separator.
    pub separators: SeparatorLines,
    /// The line of a fence that is open at the end.
    pub open_fence_line: Option<usize>,
    /// Rules that read English words apply to English text alone.
    pub language: TextLanguage,
    /// Values that look like secrets, which are never shown.
    pub secrets: SecretRanges,
    /// Whether each line is new since the earlier version of a baseline; empty if there is none.
    new_lines: Vec<bool>,
}

impl<'t> Document<'t> {
    /// Parses a text. Takes linear time.
    pub fn parse(
        text: &'t [u8],
        role: TextRole,
        separator: &[u8],
        words: &'t Words,
    ) -> Document<'t> {
        let lines: Vec<ScannedLine> = scan_lines(text).collect();
        let content_end =
            |line: &ScannedLine| line.start + text[line.start..line.end].trim_ascii_end().len();
        let content_ends: Vec<usize> = lines.iter().map(content_end).collect();
        let separators = SeparatorLines::among(lines.iter().copied(), text, separator);
        let mut document = Document {
            text,
            role,
            words,
            lines,
            content_ends,
            headings: Vec::new(),
            items: Vec::new(),
            separators,
            open_fence_line: unclosed_fence_line(text),
            language: TextLanguage::TooShort,
            secrets: SecretRanges::default(),
            new_lines: Vec::new(),
        };
        document.find_headings();
        document.find_items();
        document.language = WordCounts::of(&document).language();
        document
    }

    /// Sets the earlier version that tells which lines are new.
    pub fn compare_with(&mut self, earlier: &[u8]) {
        let lines = earlier.split(|byte| *byte == b'\n');
        let lines: HashSet<&[u8]> = lines.map(<[u8]>::trim_ascii).collect();
        let is_new = |index| !lines.contains(self.line_text(index).trim_ascii());
        self.new_lines = (0..self.lines.len()).map(is_new).collect();
    }

    /// Whether a range begins on a line that the earlier version does not have.
    pub fn is_on_new_line(&self, range: &Range<usize>) -> bool {
        let is_new = self.new_lines.get(self.line_at(range.start));
        is_new.is_some_and(|is_new| *is_new)
    }

    fn find_headings(&mut self) {
        for (index, line) in self.lines.iter().enumerate() {
            let (at, level) = match line.kind {
                LineKind::Heading => {
                    let text = self.line_text(index).trim_ascii_start();
                    (index, text.iter().take_while(|byte| **byte == b'#').count())
                }
                LineKind::SetextUnderline if index > 0 => {
                    let is_first_level = self.line_text(index).trim_ascii().starts_with(b"=");
                    (index - 1, if is_first_level { 1 } else { 2 })
                }
                _ => continue,
            };
            let line = &self.lines[at];
            let is_mark = |byte: &u8| *byte == b'#' || byte.is_ascii_whitespace();
            let bytes = &self.text[line.start..line.end];
            let start = bytes.iter().take_while(|byte| is_mark(byte)).count();
            let kept = bytes[start..].iter().rposition(|byte| !is_mark(byte));
            let first = line.start + start;
            self.headings.push(Heading {
                line: at,
                level,
                text: first..first + kept.map_or(0, |last| last + 1),
                body_start: index + 1,
            });
        }
    }

    fn find_items(&mut self) {
        let mut open: Option<Item> = None;
        for (index, line) in self.lines.iter().enumerate() {
            match line.kind {
                LineKind::ListItem => {
                    self.items.extend(open.take());
                    let bytes = &self.text[line.start..line.end];
                    let indent = bytes.len() - bytes.trim_ascii_start().len();
                    let marker = list_marker_length(bytes.trim_ascii_start());
                    let text = line.start + indent + marker..line.end;
                    open = Some(Item {
                        line: index,
                        text: trim_range(self.text, text),
                        is_top_level: indent < 2,
                    });
                }
                LineKind::Text => {
                    if let Some(item) = &mut open {
                        let text = item.text.start..line.end;
                        item.text = trim_range(self.text, text);
                    }
                }
                _ => self.items.extend(open.take()),
            }
        }
        self.items.extend(open);
    }

    /// Returns the offset of the separator that ends the rules; the end of a text without one.
    pub fn end_of_rules(&self) -> usize {
        let separator = self.separators.boundary();
        separator.map_or(self.text.len(), |line| line.start)
    }

    /// Returns a line without its line end and trailing whitespace.
    pub fn line_text(&self, index: usize) -> &'t [u8] {
        &self.text[self.line_range(index)]
    }

    /// Returns the range of a line without its line end and trailing whitespace.
    pub fn line_range(&self, index: usize) -> Range<usize> {
        self.lines[index].start..self.content_ends[index]
    }

    /// Returns the index of the line that contains an offset.
    pub fn line_at(&self, offset: usize) -> usize {
        let behind = self.lines.partition_point(|line| line.start <= offset);
        behind.saturating_sub(1)
    }

    /// Returns the bytes of a range.
    pub fn bytes(&self, range: &Range<usize>) -> &'t [u8] {
        &self.text[range.clone()]
    }

    /// Returns the part that the rules about phrases and characters judge: all of it, or the scratch
    /// alone below an intact baseline part.
    pub fn judged_range(&self) -> Range<usize> {
        match self.role {
            TextRole::Memory {
                scratch_start,
                is_intact: true,
            } => scratch_start.min(self.text.len())..self.text.len(),
            _ => 0..self.text.len(),
        }
    }

    /// Returns the part that the agent wrote, or may have written.
    pub fn scratch_range(&self) -> Range<usize> {
        let end = self.text.len();
        match self.role {
            TextRole::Baseline => end..end,
            TextRole::Memory { scratch_start, .. } => scratch_start.min(end)..end,
            TextRole::Scratch => 0..end,
        }
    }

    /// Returns the zone of a range.
    pub fn zone_of(&self, range: &Range<usize>) -> Zone {
        let scratch = self.scratch_range();
        if scratch.is_empty() || range.end <= scratch.start {
            Zone::Baseline
        } else if range.start >= scratch.start {
            Zone::Scratch
        } else {
            Zone::Whole
        }
    }

    /// Whether the text is a baseline file.
    pub fn is_baseline(&self) -> bool {
        self.role == TextRole::Baseline
    }

    /// Whether the line is part of a fenced code block.
    pub fn is_fenced(&self, index: usize) -> bool {
        matches!(
            self.lines[index].kind,
            LineKind::Fenced | LineKind::FenceStart
        )
    }

    /// Whether the line is prose: not code, front matter or an HTML comment.
    pub fn is_prose(&self, index: usize) -> bool {
        !matches!(
            self.lines[index].kind,
            LineKind::Fenced
                | LineKind::FenceStart
                | LineKind::FrontMatter
                | LineKind::Comment
                | LineKind::IndentedCode
        )
    }

    /// Returns the indexes of the lines from a heading's body up to the next heading of its level or
    /// above.
    pub fn section_lines(&self, heading: usize) -> Range<usize> {
        let level = self.headings[heading].level;
        let mut later = self.headings[heading + 1..].iter();
        let end = later
            .find(|it| it.level <= level)
            .map_or(self.lines.len(), |it| it.line);
        self.headings[heading].body_start..end
    }

    /// Returns the paragraphs of a range of lines: runs of plain text, items and quotations, each as
    /// a range of bytes with the index of its first line.
    pub fn paragraphs(&self) -> Vec<(usize, Range<usize>)> {
        let mut found: Vec<(usize, Range<usize>)> = Vec::new();
        let mut is_open = false;
        for (index, line) in self.lines.iter().enumerate() {
            match line.kind {
                LineKind::Text if is_open => {
                    if let Some(last) = found.last_mut() {
                        last.1.end = self.line_range(index).end;
                    }
                }
                LineKind::Quote
                    if is_open && index > 0 && self.lines[index - 1].kind == LineKind::Quote =>
                {
                    if let Some(last) = found.last_mut() {
                        last.1.end = self.line_range(index).end;
                    }
                }
                LineKind::Text | LineKind::ListItem | LineKind::Quote => {
                    found.push((index, self.line_range(index)));
                    is_open = true;
                }
                _ => is_open = false,
            }
        }
        found
    }

    /// Returns the part of a line before an offset; of a long line, the end of that part.
    pub fn line_before(&self, offset: usize) -> &'t [u8] {
        let line = &self.lines[self.line_at(offset)];
        &self.text[line.start.max(offset.saturating_sub(MAX_CONTEXT_BYTES))..offset]
    }

    /// Returns the part of a line from an offset on; of a long line, the beginning of that part.
    pub fn line_after(&self, offset: usize) -> &'t [u8] {
        let line = &self.lines[self.line_at(offset)];
        &self.text[offset..line.end.min(offset + MAX_CONTEXT_BYTES)]
    }

    /// Returns the text of a range.
    pub fn lossy(&self, range: &Range<usize>) -> Cow<'t, str> {
        String::from_utf8_lossy(self.bytes(range))
    }

    /// Returns the text of a range for a message or a fingerprint: secrets are masked.
    pub fn masked(&self, range: &Range<usize>) -> Vec<u8> {
        self.secrets.mask(self.text, range)
    }

    /// Quotes a range in a message, cut where it is long.
    pub fn quote(&self, range: &Range<usize>) -> String {
        secret_ranges::quote(&self.masked(range))
    }
}

/// Returns the length of a list marker and the whitespace behind it.
fn list_marker_length(text: &[u8]) -> usize {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let marker = (digits + 1).min(text.len());
    let rest = &text[marker..];
    marker + (rest.len() - rest.trim_ascii_start().len())
}

fn trim_range(text: &[u8], range: Range<usize>) -> Range<usize> {
    let length = text[range.clone()].trim_ascii_end().len();
    range.start..range.start + length
}

/// Maximum number of bytes around a place that decide what it means. It keeps rules linear in long
/// lines.
const MAX_CONTEXT_BYTES: usize = 1000;

/// Share of letters that are not Latin, in percent, from which a text counts as foreign.
const MAX_FOREIGN_LETTER_PERCENT: usize = 20;
/// Least share of English function words among the Latin words, in tenths of a percent.
const MIN_FUNCTION_WORD_PERMILLE: usize = 45;
/// How many English function words outweigh a frequent word of another language: related languages
/// share some of the former.
const FOREIGN_WORD_WEIGHT: usize = 2;
/// Number of words below which the language of a text is unknown.
const MIN_WORDS: usize = 40;

/// The letters and words of a text's prose, as far as they tell its language. Code and addresses do
/// not count.
#[derive(Default)]
struct WordCounts {
    latin_letters: usize,
    foreign_letters: usize,
    words: usize,
    english_words: usize,
    foreign_words: usize,
}

impl WordCounts {
    fn of(document: &Document<'_>) -> WordCounts {
        let mut counts = WordCounts::default();
        for index in 0..document.lines.len() {
            if document.is_fenced(index) {
                continue;
            }
            let line = String::from_utf8_lossy(document.line_text(index));
            let mut in_code = false;
            for (number, part) in line.split('`').enumerate() {
                in_code = number > 0 && !in_code;
                if in_code {
                    continue;
                }
                let tokens = part.split_whitespace().filter(|it| !it.contains("://"));
                tokens
                    .flat_map(|it| it.split(|c: char| !c.is_alphabetic() && c != '\''))
                    .for_each(|word| counts.add_word(word, document.words));
            }
        }
        counts
    }

    fn add_word(&mut self, word: &str, words: &Words) {
        let mut is_latin_word = !word.is_empty();
        for c in word.chars().filter(|c| c.is_alphabetic()) {
            let is_latin = c.is_ascii() || matches!(c, 'À'..='ɏ' | 'Ḁ'..='ỿ');
            self.latin_letters += usize::from(is_latin);
            self.foreign_letters += usize::from(!is_latin);
            is_latin_word &= is_latin;
        }
        if !is_latin_word {
            return;
        }
        self.words += 1;
        match words.language_of_word(word) {
            Some(WordLanguage::English) => self.english_words += 1,
            Some(WordLanguage::Foreign) => self.foreign_words += 1,
            None => {}
        }
    }

    fn language(&self) -> TextLanguage {
        if self.words < MIN_WORDS {
            return TextLanguage::TooShort;
        }
        let letters = self.latin_letters + self.foreign_letters;
        let is_english = self.foreign_letters * 100 < letters * MAX_FOREIGN_LETTER_PERCENT
            && self.english_words * 1000 >= self.words * MIN_FUNCTION_WORD_PERMILLE
            && self.foreign_words * FOREIGN_WORD_WEIGHT <= self.english_words;
        if is_english {
            TextLanguage::English
        } else {
            TextLanguage::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use super::*;

    fn parse(text: &str) -> Document<'_> {
        parse_as(text, TextRole::Baseline)
    }

    fn parse_as(text: &str, role: TextRole) -> Document<'_> {
        static WORDS: LazyLock<Arc<Words>> = LazyLock::new(Words::built_in);
        Document::parse(text.as_bytes(), role, b"---", &WORDS)
    }

    #[test]
    fn headings_of_both_forms_are_found() {
        let document = parse("# One ##\n\nTwo\n---\ntext\n```\n# no\n```\n### Three\n");
        let found: Vec<_> = document
            .headings
            .iter()
            .map(|it| (it.line, it.level, document.lossy(&it.text)))
            .collect();
        assert_eq!(
            found,
            [
                (0, 1, "One".into()),
                (2, 2, "Two".into()),
                (8, 3, "Three".into())
            ]
        );
        assert_eq!(document.section_lines(0), 1..9);
        assert_eq!(document.section_lines(1), 4..9);
    }

    #[test]
    fn items_include_their_continued_lines() {
        let document = parse("1. first\n   goes on\n   - nested\n\ntext\n- last\n");
        let found: Vec<_> = document
            .items
            .iter()
            .map(|it| (document.lossy(&it.text), it.is_top_level))
            .collect();
        assert_eq!(
            found,
            [
                ("first\n   goes on".into(), true),
                ("nested".into(), false),
                ("last".into(), true)
            ]
        );
    }

    #[test]
    fn short_or_foreign_text_is_not_english() {
        let english = "You are the agent that reads a request before it is merged. ".repeat(5);
        assert_eq!(parse(&english).language, TextLanguage::English);
        assert_eq!(parse(&english[..60]).language, TextLanguage::TooShort);
        let german = "Der Agent liest jede Anfrage und gibt dem Team eine Antwort dazu. ".repeat(5);
        assert_eq!(parse(&german).language, TextLanguage::Other);
        let mixed = format!("{english}{}", "代理读取请求并回答团队的问题".repeat(8));
        assert_eq!(parse(&mixed).language, TextLanguage::Other);
    }

    #[test]
    fn ranges_have_the_zone_of_their_side() {
        let role = TextRole::Memory {
            scratch_start: 10,
            is_intact: true,
        };
        let document = parse_as("# A\ntext\n\nnotes\n", role);
        assert_eq!(document.zone_of(&(0..3)), Zone::Baseline);
        assert_eq!(document.zone_of(&(4..12)), Zone::Whole);
        assert_eq!(document.zone_of(&(10..12)), Zone::Scratch);
        assert_eq!(document.judged_range(), 10..16);
    }
}
