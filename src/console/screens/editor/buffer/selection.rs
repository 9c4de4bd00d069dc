//! The selected text of the editor.

use std::ops::Range;

use super::register::{cut_range, select};
use super::{TextBuffer, byte_of};

/// Selects whole lines; the cursor is at the end of the last one.
pub fn select_lines(buffer: &mut TextBuffer, row: usize, count: usize) {
    let last = row + count.saturating_sub(1);
    buffer.anchor = Some((row, 0));
    buffer.go_to(last, buffer.line_length(last));
}

/// Ends the selection. Returns false if there was none.
pub fn end_selection(buffer: &mut TextBuffer) -> bool {
    buffer.anchor.take().is_some()
}

/// Begins or ends a selection.
pub fn toggle_selection(buffer: &mut TextBuffer) {
    if !end_selection(buffer) {
        buffer.anchor = Some(buffer.cursor());
    }
}

/// Returns whether text is selected.
pub fn is_selecting(buffer: &TextBuffer) -> bool {
    buffer.anchor.is_some()
}

/// Returns begin and end of the selection, each a line and a column in characters.
fn selection(buffer: &TextBuffer) -> Option<((usize, usize), (usize, usize))> {
    let anchor = buffer.anchor?;
    let cursor = buffer.cursor();
    let (begin, (row, column)) = (anchor.min(cursor), anchor.max(cursor));
    // The line's end is a character, too.
    let end = if column < buffer.line_length(row) || row + 1 == buffer.lines().len() {
        (row, buffer.glyph_columns(row, column).end)
    } else {
        (row + 1, 0)
    };
    Some((begin, end))
}

/// Returns the selected bytes of a line.
pub fn selected_range(buffer: &TextBuffer, row: usize) -> Option<Range<usize>> {
    let (begin, end) = selection(buffer)?;
    if !(begin.0..=end.0).contains(&row) {
        return None;
    }
    let line = buffer.line(row);
    let from = if row == begin.0 {
        byte_of(line, begin.1)
    } else {
        0
    };
    let to = if row == end.0 {
        byte_of(line, end.1)
    } else {
        line.len()
    };
    Some(from..to)
}

/// Cuts the selected text and ends the selection.
pub fn cut_selection(buffer: &mut TextBuffer) {
    if let Some((begin, end)) = selection(buffer) {
        buffer.anchor = None;
        buffer.go_to(begin.0, begin.1);
        cut_range(buffer, begin, end);
        keep_lines_whole(buffer, begin, end);
    }
}

/// Pastes what was cut or copied as lines, if it is whole lines.
fn keep_lines_whole(buffer: &mut TextBuffer, begin: (usize, usize), end: (usize, usize)) {
    if begin.1 == 0 && end.1 == 0 && begin.0 < end.0 {
        let (text, is_line) = &mut buffer.register;
        *is_line = text.ends_with('\n') && text.pop().is_some();
    }
}

/// Copies the selected text and ends the selection.
pub fn copy_selection(buffer: &mut TextBuffer) {
    if let Some((begin, end)) = selection(buffer) {
        buffer.anchor = None;
        select(buffer, begin, end);
        buffer.area.copy();
        buffer.register = (buffer.area.yank_text(), false);
        keep_lines_whole(buffer, begin, end);
        buffer.go_to(begin.0, begin.1);
    }
}
