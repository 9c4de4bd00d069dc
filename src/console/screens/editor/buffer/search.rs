//! The search in the text of the editor.

use std::ops::Range;

use super::TextBuffer;

/// Sets the text to search for, in any case; empty for none.
pub fn search_for(buffer: &mut TextBuffer, query: &str) {
    let mut pattern = String::new();
    for c in query.chars() {
        if c.is_ascii_punctuation() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    let pattern = if pattern.is_empty() {
        pattern
    } else {
        format!("(?i){pattern}")
    };
    // Every character that has a meaning is escaped, so only a buffer that is too long fails.
    if buffer.area.set_search_pattern(pattern).is_err() {
        let _ = buffer.area.set_search_pattern("");
    }
}

/// Moves the cursor to the next or previous hit, around the ends of the text. Returns false if
/// there is none.
pub fn go_to_hit(buffer: &mut TextBuffer, is_forward: bool, includes_cursor: bool) -> bool {
    buffer.wanted_column = None;
    if is_forward {
        buffer.area.search_forward(includes_cursor)
    } else {
        buffer.area.search_back(includes_cursor)
    }
}

/// Returns the hits of the search in a line, in bytes.
pub fn hits(buffer: &TextBuffer, row: usize) -> Vec<Range<usize>> {
    let Some(pattern) = buffer.area.search_pattern() else {
        return Vec::new();
    };
    let found = pattern.find_iter(buffer.line(row));
    found.map(|hit| hit.range()).collect()
}

/// Returns the number of hits in the text.
pub fn count_hits(buffer: &TextBuffer) -> usize {
    let Some(pattern) = buffer.area.search_pattern() else {
        return 0;
    };
    let lines = buffer.lines().iter();
    lines.map(|line| pattern.find_iter(line).count()).sum()
}
