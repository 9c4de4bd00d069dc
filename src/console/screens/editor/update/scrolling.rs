//! Scrolls the editor: the cursor stays visible, and only lines near the screen are laid out.

use super::move_in_text;
use super::panel::move_panel_cursor;
use crate::console::model::Model;
use crate::console::text::PaneStyle;

/// Moves the cursor by lines: in the text, in the panel, or in the diff of a question.
pub fn move_cursor(model: &mut Model, by: isize) {
    let (height, width) = (model.editor_height(), usize::from(model.size.0));
    let style = model.editor_diff_style();
    let Some(editor) = &mut model.editor else {
        return;
    };
    if editor.dialog.is_some() {
        let width = width.saturating_sub(super::super::view::DIFF_GUTTER_CELLS);
        if let Some(pane) = editor.diff_mut() {
            scroll_diff(pane, by, width, height, style);
        }
    } else if editor.is_panel_focused {
        move_panel_cursor(editor, by);
    } else {
        move_in_text(model, |text| text.move_lines(by));
    }
}

fn scroll_diff(
    pane: &mut crate::console::text::Pane,
    by: isize,
    width: usize,
    height: usize,
    style: PaneStyle,
) {
    // The ends are requested by steps that no text has.
    if by <= isize::MIN / 2 {
        pane.scroll_to_start();
    } else if by >= isize::MAX / 2 {
        pane.scroll_to_end(width, height, style);
    } else {
        pane.scroll(by, width, height, style);
    }
}

/// Scrolls as little as possible so that the cursor is visible; after a jump, it is in the middle.
pub fn keep_cursor_visible(model: &mut Model) {
    let (width, height) = (model.editor_text_width(), model.editor_height());
    let Some(editor) = &mut model.editor else {
        return;
    };
    let (line, byte) = editor.buffer.cursor_byte();
    let row = editor.layout(line, width).place_of(byte).0;
    let cursor = (line, row);
    let last = editor.buffer.lines().len() - 1;
    editor.top.0 = editor.top.0.min(last);
    let is_far = line + height < editor.top.0 || line > editor.top.0 + 2 * height;
    if is_far {
        editor.top = rows_above(editor, cursor, height / 2, width);
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

/// Returns the row that is `count` rows above another, or the first row of the text.
fn rows_above(
    editor: &super::EditorScreen,
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
