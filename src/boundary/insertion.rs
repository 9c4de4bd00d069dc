//! Lines that are added to the rules of a baseline: where they go, and whether each separator is still
//! where it was below them.

use super::lines::SeparatorLines;

/// The place for lines at the end of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertionPoint {
    /// Line of the text before which they go, from 0.
    pub row: usize,
    /// Whether a blank line has to follow: right below a paragraph, dashes are not a separator.
    pub is_padded: bool,
}

impl InsertionPoint {
    /// Finds the end of the part that is above the separator for each of these separators; that of the
    /// text where it has none of them.
    pub fn find(text: &[u8], separators: &[&str]) -> InsertionPoint {
        let rows = separators.iter().filter_map(|it| separator_row(text, it));
        let separator = rows.min();
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let above = &lines[..separator.unwrap_or(lines.len())];
        let has_text = |line: &&[u8]| !String::from_utf8_lossy(line).trim().is_empty();
        let row = above.iter().rposition(has_text).map_or(0, |last| last + 1);
        InsertionPoint {
            row,
            is_padded: separator == Some(row),
        }
    }
}

/// Returns a separator that `after` does not have `added` lines below its place in `before`: the lines
/// that were inserted above it hide it, or are one.
pub fn displaced_separator<'s>(
    before: &[u8],
    after: &[u8],
    added: usize,
    separators: &[&'s str],
) -> Option<&'s str> {
    let is_displaced = |separator: &&str| {
        let shifted = separator_row(before, separator).map(|row| row + added);
        separator_row(after, separator) != shifted
    };
    separators.iter().copied().find(is_displaced)
}

/// Returns the row of the separator line that ends the operator part.
fn separator_row(text: &[u8], separator: &str) -> Option<usize> {
    let found = SeparatorLines::find(text, separator.as_bytes()).boundary()?;
    Some(found.line - 1)
}
