//! Scrolls the editor by rows of the wrapped text: the cursor stays visible, and only lines near the
//! screen are laid out.

use super::panel::move_panel_cursor;
use super::{EditorScreen, move_in_text};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screens::editor::buffer::TextBuffer;
use crate::console::screens::editor::layout::text_width;
use crate::console::screens::editor::view::{editor_diff_style, editor_height};
use crate::console::widgets::text_pane::Gutter;

/// Rows of a page that stay on the screen.
const PAGE_OVERLAP: usize = 2;

/// Moves the cursor by lines: in the text, in the panel, or in the diff of a question.
pub fn move_cursor(model: &mut Model, by: isize) {
    let (height, width) = (editor_height(model), usize::from(model.size.0));
    let style = editor_diff_style(model);
    let Some(editor) = &mut model.editor else {
        return;
    };
    if editor.dialog.is_some() {
        let width = width.saturating_sub(Gutter::Diff.width());
        if let Some(pane) = editor.diff_mut() {
            pane.scroll(by, width, height, style);
        }
    } else if editor.is_panel_focused {
        move_panel_cursor(editor, by);
    } else {
        move_in_text(model, |text| text.move_lines(by));
    }
}

/// Goes to the first line or the last one of the text, of the panel, or of the diff of a question.
pub fn go_to_end(model: &mut Model, is_last: bool) -> Vec<Effect> {
    let Some(editor) = &model.editor else {
        return Vec::new();
    };
    if editor.dialog.is_none() && !editor.is_panel_focused {
        let last = editor.buffer.lines().len() - 1;
        let line = if is_last { last } else { 0 };
        return jump_in_text(model, |text| text.go_to_line(line));
    }
    move_cursor(
        model,
        if is_last {
            isize::MAX / 2
        } else {
            isize::MIN / 2
        },
    );
    Vec::new()
}

/// Moves by pages of rows, as they are on the screen: a paragraph that wraps counts as often as it has
/// rows. In the panel and in the diff of a question, rows are lines.
pub fn move_page(model: &mut Model, by: isize) -> Vec<Effect> {
    let height = editor_height(model);
    let page = if is_in_text(model) {
        height.saturating_sub(PAGE_OVERLAP).max(1)
    } else {
        height
    };
    move_rows(model, by * page as isize)
}

/// Moves by half pages of rows, as [`move_page`] does.
pub fn move_half_page(model: &mut Model, by: isize) -> Vec<Effect> {
    let half = (editor_height(model) / 2).max(1);
    move_rows(model, by * half as isize)
}

fn move_rows(model: &mut Model, by: isize) -> Vec<Effect> {
    if is_in_text(model) {
        scroll_rows(model, by);
    } else {
        move_cursor(model, by);
    }
    Vec::new()
}

/// Whether keys move in the text, and neither in the panel nor in the diff of a question.
fn is_in_text(model: &Model) -> bool {
    let editor = model.editor.as_ref();
    editor.is_some_and(|it| it.dialog.is_none() && !it.is_panel_focused)
}

/// Scrolls the text by rows. The cursor keeps its row of the screen, and its column as far as there is
/// one; where the text cannot scroll that far, only the cursor moves on.
pub(super) fn scroll_rows(model: &mut Model, by: isize) {
    let (width, height) = (text_width(model.size.0), editor_height(model));
    let Some(editor) = &mut model.editor else {
        return;
    };
    let (line, byte) = editor.buffer.cursor_byte();
    let (row, column) = editor.layout(line, width).place_of(byte);
    let (line, row) = move_by_rows(editor, (line, row), by, width);
    let top = move_by_rows(editor, editor.top, by, width);
    editor.top = top.min(lowest_top(editor, height, width));
    let layout = editor.layout(line, width);
    let before = editor.buffer.line(line).get(..layout.byte_at(row, column));
    let column = before.map_or(0, |it| it.chars().count());
    move_in_text(model, |text| text.go_to(line, column));
}

/// Scrolls as little as possible so that the cursor is visible; after a jump, it is a third from the
/// top.
pub fn keep_cursor_visible(model: &mut Model) {
    let (width, height) = (text_width(model.size.0), editor_height(model));
    let Some(editor) = &mut model.editor else {
        return;
    };
    let cursor = cursor_row(editor, width);
    let last = editor.buffer.lines().len() - 1;
    editor.top.0 = editor.top.0.min(last);
    let is_far = cursor.0 + height < editor.top.0 || cursor.0 > editor.top.0 + 2 * height;
    if is_far {
        editor.top = top_of_jump(editor, height, width);
        return;
    }
    if cursor < editor.top {
        editor.top = cursor;
        return;
    }
    // The first row of the text from which the cursor is visible in the last row of the screen.
    let lowest = rows_above(editor, cursor, height - 1, width);
    if editor.top < lowest {
        editor.top = lowest;
    }
}

/// Moves the cursor of the text to a place that may be far away. A place that is not on the screen is
/// then a third from the top, with rows before and behind it.
pub(super) fn jump_in_text(model: &mut Model, step: impl FnOnce(&mut TextBuffer)) -> Vec<Effect> {
    jump_after(model, |model| move_in_text(model, step))
}

/// Performs what moves the cursor to a place that may be far away, as [`jump_in_text`] does.
pub(super) fn jump_after(
    model: &mut Model,
    perform: impl FnOnce(&mut Model) -> Vec<Effect>,
) -> Vec<Effect> {
    let old_top = model.editor.as_ref().map(|it| it.top);
    let effects = perform(model);
    let (width, height) = (text_width(model.size.0), editor_height(model));
    if let Some(editor) = &mut model.editor
        && Some(editor.top) != old_top
    {
        editor.top = top_of_jump(editor, height, width);
    }
    effects
}

/// Returns the top of the screen at which the cursor is a third from it, or nearer to its end where
/// the text ends.
fn top_of_jump(editor: &EditorScreen, height: usize, width: usize) -> (usize, usize) {
    let top = rows_above(editor, cursor_row(editor, width), height / 3, width);
    top.min(lowest_top(editor, height, width))
}

/// Returns the line of the cursor, and its row in that line.
fn cursor_row(editor: &EditorScreen, width: usize) -> (usize, usize) {
    let (line, byte) = editor.buffer.cursor_byte();
    (line, editor.layout(line, width).place_of(byte).0)
}

/// Returns the top of the screen at which the last row of the text is at its bottom.
fn lowest_top(editor: &EditorScreen, height: usize, width: usize) -> (usize, usize) {
    let last = editor.buffer.lines().len() - 1;
    let row = editor.layout(last, width).rows.len() - 1;
    rows_above(editor, (last, row), height - 1, width)
}

/// Returns the row that is `by` rows below or above another, or the last or first row of the text.
fn move_by_rows(
    editor: &EditorScreen,
    from: (usize, usize),
    by: isize,
    width: usize,
) -> (usize, usize) {
    match usize::try_from(by) {
        Ok(count) => rows_below(editor, from, count, width),
        Err(_) => rows_above(editor, from, by.unsigned_abs(), width),
    }
}

/// Returns the row that is `count` rows below another, or the last row of the text.
fn rows_below(
    editor: &EditorScreen,
    (mut line, mut row): (usize, usize),
    mut count: usize,
    width: usize,
) -> (usize, usize) {
    let last = editor.buffer.lines().len() - 1;
    loop {
        let rows = editor.layout(line, width).rows.len();
        if row + count < rows {
            return (line, row + count);
        }
        if line == last {
            return (last, rows - 1);
        }
        count -= rows - row.min(rows);
        line += 1;
        row = 0;
    }
}

/// Returns the row that is `count` rows above another, or the first row of the text.
fn rows_above(
    editor: &EditorScreen,
    (mut line, mut row): (usize, usize),
    mut count: usize,
    width: usize,
) -> (usize, usize) {
    loop {
        if row >= count {
            return (line, row - count);
        }
        if line == 0 {
            return (0, 0);
        }
        count -= row + 1;
        line -= 1;
        row = editor.layout(line, width).rows.len() - 1;
    }
}
