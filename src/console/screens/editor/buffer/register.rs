//! Takes text out of the editor, and puts it back: the register has what was cut or copied.

use std::ops::Range;

use super::TextBuffer;

/// Cuts glyphs from the cursor on; never the end of the line.
pub fn cut_chars(buffer: &mut TextBuffer, count: usize) {
    let (row, column) = buffer.cursor();
    let length = buffer.line_length(row);
    let mut end = column;
    for _ in 0..count {
        if end >= length {
            break;
        }
        end = buffer.glyph_columns(row, end).end;
    }
    if end > column {
        cut_range(buffer, (row, column), (row, end));
    }
}

/// Returns the rows of lines from the cursor on. Of several, none is the empty one behind the
/// last line end.
fn rows_from_cursor(buffer: &TextBuffer, count: usize) -> Range<usize> {
    let row = buffer.cursor().0;
    let mut rows = buffer.lines().len();
    if row + 1 < rows && buffer.line(rows - 1).is_empty() {
        rows -= 1;
    }
    row..row.saturating_add(count.max(1)).min(rows)
}

/// Cuts lines from that of the cursor on.
pub fn cut_lines(buffer: &mut TextBuffer, count: usize) {
    let rows = rows_from_cursor(buffer, count);
    let (row, last) = (rows.start, rows.end - 1);
    let text = buffer.lines()[rows].join("\n");
    let end = (last, buffer.line_length(last));
    if last + 1 < buffer.lines().len() {
        cut_range(buffer, (row, 0), (last + 1, 0));
    } else if row > 0 {
        cut_range(buffer, (row - 1, buffer.line_length(row - 1)), end);
        buffer.go_to(row - 1, 0);
    } else {
        cut_range(buffer, (0, 0), end);
    }
    buffer.register = (text, true);
}

/// Copies lines from that of the cursor on.
pub fn copy_lines(buffer: &mut TextBuffer, count: usize) {
    buffer.register = (
        buffer.lines()[rows_from_cursor(buffer, count)].join("\n"),
        true,
    );
}

/// Inserts what was cut or copied: lines below that of the cursor, other text behind it.
pub fn paste_register(buffer: &mut TextBuffer) {
    let (text, is_line) = buffer.register.clone();
    let (row, column) = buffer.cursor();
    buffer.begin_step();
    if is_line {
        buffer.move_to_line_end(true);
        buffer.insert_exact(&format!("\n{text}"));
        buffer.go_to(row + 1, 0);
    } else if !text.is_empty() {
        buffer.go_to(row, buffer.glyph_columns(row, column).end);
        buffer.insert_exact(&text);
    }
    buffer.end_step();
}

/// Returns the text that was cut or copied last.
pub fn register_text(buffer: &TextBuffer) -> &str {
    &buffer.register.0
}

pub(super) fn select(buffer: &mut TextBuffer, begin: (usize, usize), end: (usize, usize)) {
    buffer.jump(begin.0, begin.1);
    buffer.area.start_selection();
    buffer.jump(end.0, end.1);
}

pub(super) fn cut_range(buffer: &mut TextBuffer, begin: (usize, usize), end: (usize, usize)) {
    let cursor = buffer.cursor();
    select(buffer, begin, end);
    let has_changed = buffer.area.cut();
    buffer.area.cancel_selection();
    if has_changed {
        buffer.register = (buffer.area.yank_text(), false);
    }
    buffer.count_edit(has_changed, cursor);
}

/// Deletes the glyph before the cursor, or joins the line with the one above.
pub fn delete_before(buffer: &mut TextBuffer) {
    let (row, column) = buffer.cursor();
    let count = match column {
        0 => 1,
        _ => column - buffer.glyph_columns(row, column - 1).start,
    };
    for _ in 0..count {
        buffer.edit(|area| area.delete_char());
    }
}

/// Deletes the glyph at the cursor, or joins the line with the one below.
pub fn delete_after(buffer: &mut TextBuffer) {
    let (row, column) = buffer.cursor();
    let count = buffer.glyph_columns(row, column).end - column;
    for _ in 0..count.max(1) {
        buffer.edit(|area| area.delete_next_char());
    }
}

/// Deletes the word before the cursor.
pub fn delete_word_before(buffer: &mut TextBuffer) {
    buffer.edit(|area| area.delete_word());
}

/// Deletes from the beginning of the line to the cursor.
pub fn delete_line_before(buffer: &mut TextBuffer) {
    if buffer.cursor().1 > 0 {
        buffer.edit(|area| area.delete_line_by_head());
    }
}
