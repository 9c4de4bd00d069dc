//! Other texts in place of that of the editor, and lines put into it.

use super::{TextBuffer, new_area};

/// Replaces the whole text in one step. The cursor stays at its text, where that is not changed,
/// else in its line as far as possible.
pub fn replace_all(buffer: &mut TextBuffer, text: &str) {
    let (row, column) = buffer.cursor();
    buffer.end_step();
    if !TextBuffer::can_hold(text) {
        buffer.is_refused = true;
        return;
    }
    if buffer.has_cr_lf && text.matches("\r\n").count() != text.matches('\n').count() {
        keep_cr_in_lines(buffer);
    }
    let separator = if buffer.has_cr_lf { "\r\n" } else { "\n" };
    let lines: Vec<&str> = text.split(separator).collect();
    let row = row_after_replacement(buffer, row, &lines);
    buffer.begin_step();
    buffer.edit(|area| {
        area.select_all();
        area.cut()
    });
    buffer.insert_exact(&lines.join("\n"));
    buffer.end_step();
    buffer.go_to(row, column);
}

/// Returns where a line is once other lines stand in place of all: lines behind the last change
/// move with it.
fn row_after_replacement(buffer: &TextBuffer, row: usize, new: &[&str]) -> usize {
    let old = buffer.lines();
    let pairs = old.iter().zip(new);
    let before = pairs.take_while(|(old, new)| old == *new).count();
    let pairs = old.iter().rev().zip(new.iter().rev());
    let behind = pairs.take_while(|(old, new)| old == *new).count();
    if row >= before && row + behind >= old.len() {
        (row + new.len()).saturating_sub(old.len())
    } else {
        row
    }
}

/// Makes the CR of each line's end part of its line, since a text with other line ends follows.
/// Undo does not reach beyond that.
fn keep_cr_in_lines(buffer: &mut TextBuffer) {
    let (generation, cursor) = (buffer.generation, buffer.cursor());
    let text = String::from_utf8(buffer.to_bytes()).unwrap_or_default();
    let lines = text.split('\n').map(str::to_string).collect();
    let register = std::mem::take(&mut buffer.register);
    *buffer = TextBuffer::new("", 0);
    buffer.area = new_area(lines);
    buffer.register = register;
    buffer.generation = generation;
    buffer.go_to(cursor.0, cursor.1);
}

/// Inserts lines before the line `row`, or behind the last one, in one step.
pub fn insert_lines(buffer: &mut TextBuffer, row: usize, lines: &[String]) {
    let text = lines.join("\n");
    buffer.begin_step();
    if row < buffer.lines().len() {
        buffer.go_to(row, 0);
        buffer.insert_exact(&format!("{text}\n"));
    } else {
        buffer.go_to(row - 1, buffer.line_length(row - 1));
        buffer.insert_exact(&format!("\n{text}"));
    }
    buffer.end_step();
}
