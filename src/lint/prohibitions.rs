//! Whether a baseline forbids a command that it names: by a word of the same sentence, by the line that
//! introduces a list, or by a heading. In what agents wrote, such a context lowers nothing: an agent
//! could write it around an attack.

use std::ops::Range;

use super::document::{Document, Heading};
use super::words::{WordList, pattern, patterns};
use crate::boundary::LineKind;

/// How many lines above an item are searched for what introduces its list.
const MAX_LIST_LINES: usize = 200;

/// How many headings above a line are looked at.
const MAX_HEADINGS: usize = 64;

patterns! {
    SENTENCE_END = pattern(r"[.!?][ \t]|。|！|？");
}

/// Returns whether a baseline forbids what it names on a line, at a range of the line.
pub(super) fn is_prohibited(document: &Document<'_>, line: usize, named: &Range<usize>) -> bool {
    document.is_baseline()
        && (is_denied_in_sentence(document, line, named)
            || is_below_prohibition(document, line)
            || is_in_prohibited_list(document, line))
}

/// Returns the part of a sentence of a line that is in front of an offset.
pub(super) fn sentence_before(line: &[u8], at: usize) -> &[u8] {
    let before = &line[..at.min(line.len())];
    let end = SENTENCE_END.find_iter(before).last();
    &before[end.map_or(0, |it| it.end())..]
}

/// Whether a word of the sentence forbids what it names.
fn is_denied_in_sentence(document: &Document<'_>, line: usize, named: &Range<usize>) -> bool {
    let text = document.line_text(line);
    let before = sentence_before(text, named.start);
    let behind = &text[named.end.min(text.len())..];
    let end = SENTENCE_END.find(behind);
    let behind = &behind[..end.map_or(behind.len(), |it| it.start())];
    let words = document.words;
    words.pattern(WordList::Prohibitions).is_match(before)
        || words.pattern(WordList::ProhibitionsBehind).is_match(behind)
}

/// Whether a heading above, of the section or one that it is part of, says that what follows is
/// forbidden.
fn is_below_prohibition(document: &Document<'_>, line: usize) -> bool {
    let headings = &document.headings;
    let above = headings.partition_point(|heading| heading.line < line);
    let mut level = usize::MAX;
    let mut enclosing = headings[..above].iter().rev().take(MAX_HEADINGS);
    let is_prohibition = |heading: &Heading| {
        let text = document.bytes(&heading.text);
        document
            .words
            .pattern(WordList::ProhibitionHeadings)
            .is_match(text)
    };
    enclosing.any(|heading| {
        let is_enclosing = heading.level < level;
        level = level.min(heading.level);
        is_enclosing && is_prohibition(heading)
    })
}

/// Whether the line that introduces the list of an item, or an item above that it is part of, forbids
/// what follows: `Never run:`.
fn is_in_prohibited_list(document: &Document<'_>, line: usize) -> bool {
    let is_item_text = |index: usize| {
        let start = document.lines[index].start;
        let at = document.items.partition_point(|item| item.line <= index);
        let item = at.checked_sub(1).and_then(|at| document.items.get(at));
        item.is_some_and(|item| item.line == index || item.text.contains(&start))
    };
    if !is_item_text(line) {
        return false;
    }
    let indent = |index: usize| {
        let text = document.line_text(index);
        text.len() - text.trim_ascii_start().len()
    };
    let introduces = |index: usize| {
        let text = document.line_text(index).trim_ascii_end();
        let text = text.strip_suffix(b"**").unwrap_or(text);
        let is_open = text.ends_with(b":") || text.ends_with("：".as_bytes());
        let words = document.words.pattern(WordList::Prohibitions);
        is_open && words.is_match(text)
    };
    let mut inner = indent(line);
    for index in (line.saturating_sub(MAX_LIST_LINES)..line).rev() {
        match document.lines[index].kind {
            LineKind::Blank => {}
            LineKind::ListItem => {
                if indent(index) < inner && introduces(index) {
                    return true;
                }
                inner = inner.min(indent(index));
            }
            LineKind::Text if is_item_text(index) => {}
            LineKind::Text => return introduces(index),
            _ => return false,
        }
    }
    false
}
