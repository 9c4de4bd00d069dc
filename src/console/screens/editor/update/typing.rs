//! Commands and keys that change or copy the text of the editor.

use super::{change_text, jump_after, keep_cursor_visible, move_in_text, move_page};
use crate::console::command::Command;
use crate::console::handoff::ClipboardText;
use crate::console::key::{Key, KeyCode};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screens::editor::buffer::TextBuffer;

/// Handles a key while text is typed; `None` if it is not part of that.
pub fn handle_typed_key(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let edit: fn(&mut TextBuffer) = match (key.code, key.has_ctrl) {
        (KeyCode::Char(c), false) => return Some(change_text(model, |text| text.insert_char(c))),
        (KeyCode::Enter, _) => |text| {
            text.insert_line_end();
            // Undo takes typed lines back one by one.
            text.end_step();
            text.begin_step();
        },
        (KeyCode::Tab, _) => TextBuffer::insert_tab,
        (KeyCode::Backspace, _) | (KeyCode::Char('h'), true) => TextBuffer::delete_before,
        (KeyCode::Delete, _) => TextBuffer::delete_after,
        (KeyCode::Char('w'), true) => TextBuffer::delete_word_before,
        (KeyCode::Char('u'), true) => TextBuffer::delete_line_before,
        (KeyCode::Left, _) => |text| text.move_glyph(false),
        (KeyCode::Right, _) => |text| text.move_glyph(true),
        (KeyCode::Up, _) => |text| text.move_lines(-1),
        (KeyCode::Down, _) => |text| text.move_lines(1),
        (KeyCode::Home, _) => |text| text.move_to_line_end(false),
        (KeyCode::End, _) => |text| text.move_to_line_end(true),
        (KeyCode::PageUp, _) => return Some(move_page(model, Command::PageUp)),
        (KeyCode::PageDown, _) => return Some(move_page(model, Command::PageDown)),
        _ => return None,
    };
    Some(change_text(model, edit))
}

/// Inserts pasted text, if keys type text.
pub fn paste(model: &mut Model, pasted: &str) -> Vec<Effect> {
    change_text(model, |text| {
        text.end_step();
        text.begin_step();
        text.insert_pasted(pasted);
        text.end_step();
        text.begin_step();
    })
}

/// Begins to type text, after a change of the text or the cursor.
fn begin_typing(model: &mut Model, prepare: impl FnOnce(&mut TextBuffer)) -> Vec<Effect> {
    let effects = change_text(model, |text| {
        text.begin_step();
        prepare(text);
    });
    if let Some(editor) = &mut model.editor {
        editor.is_typing = editor.read_only.is_none();
    }
    effects
}

/// Performs a command of the editor's text.
pub fn perform(model: &mut Model, command: Command) -> Vec<Effect> {
    match command {
        Command::InsertText => begin_typing(model, |_| {}),
        Command::AppendText => begin_typing(model, |text| text.move_glyph(true)),
        Command::AppendToLine => begin_typing(model, |text| text.move_to_line_end(true)),
        Command::OpenLineBelow => begin_typing(model, |text| {
            text.move_to_line_end(true);
            text.insert_line_end();
        }),
        Command::OpenLineAbove => begin_typing(model, |text| {
            text.move_to_line_end(false);
            text.insert_line_end();
            text.move_lines(-1);
        }),
        Command::UndoTyping => undo_typing(model, TextBuffer::undo, "nothing to undo"),
        Command::RedoTyping => undo_typing(model, TextBuffer::redo, "nothing to redo"),
        Command::CutChar => change_at_rest(model, |text| text.cut_chars(1)),
        Command::CutLine => change_at_rest(model, |text| text.cut_lines(1)),
        Command::PasteText => change_at_rest(model, TextBuffer::paste_register),
        Command::CutSelection => change_at_rest(model, TextBuffer::cut_selection),
        Command::CopySelection => copy(model, TextBuffer::copy_selection),
        Command::CopyTextLine => copy(model, |text| text.copy_lines(1)),
        Command::SelectText => move_in_text(model, |text| {
            if !text.end_selection() {
                text.begin_selection();
            }
        }),
        Command::CursorLeft => move_in_text(model, |text| text.move_glyph(false)),
        Command::CursorRight => move_in_text(model, |text| text.move_glyph(true)),
        Command::NextWord => move_in_text(model, |text| text.move_word(true)),
        Command::PreviousWord => move_in_text(model, |text| text.move_word(false)),
        Command::LineStart => move_in_text(model, |text| text.move_to_line_end(false)),
        Command::LineEnd => move_in_text(model, |text| text.move_to_line_end(true)),
        _ => Vec::new(),
    }
}

/// Changes the text; the cursor then rests on a character.
pub(super) fn change_at_rest(
    model: &mut Model,
    change: impl FnOnce(&mut TextBuffer),
) -> Vec<Effect> {
    change_text(model, |text| {
        change(text);
        text.rest_on_character();
    })
}

fn undo_typing(
    model: &mut Model,
    undo: impl FnOnce(&mut TextBuffer) -> bool,
    refusal: &str,
) -> Vec<Effect> {
    let mut has_changed = false;
    let effects = jump_after(model, |model| {
        change_at_rest(model, |text| has_changed = undo(text))
    });
    if !has_changed && model.last_message.is_none() {
        model.show_hint(refusal);
    }
    let open = model.editor.as_mut();
    if has_changed && open.is_some_and(|it| it.restore_base()) {
        model.show_hint("the file's change is out of the text again; a save asks about it");
    }
    effects
}

/// Copies text, also to the clipboard.
pub(super) fn copy(model: &mut Model, copy: impl FnOnce(&mut TextBuffer)) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    copy(&mut editor.buffer);
    editor.buffer.rest_on_character();
    let text = editor.buffer.register_text();
    let what = match text.lines().count() {
        0 | 1 => "the text".to_string(),
        lines => format!("{lines} lines"),
    };
    let clip = ClipboardText::new(what, text.as_bytes());
    keep_cursor_visible(model);
    vec![Effect::CopyToClipboard(clip)]
}
