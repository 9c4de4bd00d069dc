//! Commands and keys that change, copy or search the text of the editor, and the numbers typed before
//! them: how often a command is performed.

use super::{change_text, jump_after, jump_in_text, keep_cursor_visible, move_cursor, move_page};
use crate::console::command::{Command, KeyContext};
use crate::console::handoff::ClipboardText;
use crate::console::keys::key::{Key, KeyCode};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screens::editor::buffer::TextBuffer;
use crate::console::screens::editor::buffer::register::{
    copy_lines, cut_chars, cut_lines, delete_after, delete_before, delete_line_before,
    delete_word_before, register_text,
};
use crate::console::screens::editor::buffer::search::{count_hits, go_to_hit, search_for};

/// Handles a key while text is typed; `None` if it is not part of that.
pub fn handle_typed_key(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let edit: fn(&mut TextBuffer) = match (key.code, key.has_ctrl) {
        (KeyCode::Char(c), false) => return Some(change_text(model, |text| text.insert_char(c))),
        (KeyCode::Enter, _) => |text| {
            text.insert_line_end();
            // Undo takes typed lines back one by one.
            text.begin_step();
        },
        (KeyCode::Tab, _) => TextBuffer::insert_tab,
        (KeyCode::Backspace, _) | (KeyCode::Char('h'), true) => delete_before,
        (KeyCode::Delete, _) => delete_after,
        (KeyCode::Char('w'), true) => delete_word_before,
        (KeyCode::Char('u'), true) => delete_line_before,
        (KeyCode::Left, _) => |text| text.move_glyph(false),
        (KeyCode::Right, _) => |text| text.move_glyph(true),
        (KeyCode::Up, _) => |text| text.move_lines(-1),
        (KeyCode::Down, _) => |text| text.move_lines(1),
        (KeyCode::Home, _) => |text| text.move_to_line_end(false),
        (KeyCode::End, _) => |text| text.move_to_line_end(true),
        (KeyCode::PageUp, _) => return Some(move_page(model, -1)),
        (KeyCode::PageDown, _) => return Some(move_page(model, 1)),
        _ => return None,
    };
    Some(change_text(model, edit))
}

/// Inserts pasted text, if keys type text.
pub fn paste(model: &mut Model, pasted: &str) -> Vec<Effect> {
    change_text(model, |text| {
        text.begin_step();
        text.insert_pasted(pasted);
        text.begin_step();
    })
}

/// Begins to type text, after a change of the text or the cursor.
pub fn begin_typing(model: &mut Model, prepare: impl FnOnce(&mut TextBuffer)) -> Vec<Effect> {
    let effects = change_text(model, |text| {
        text.begin_step();
        prepare(text);
    });
    if let Some(editor) = &mut model.editor {
        editor.is_typing = editor.read_only.is_none();
    }
    effects
}

/// Changes the text; the cursor then rests on a character.
pub fn change_at_rest(model: &mut Model, change: impl FnOnce(&mut TextBuffer)) -> Vec<Effect> {
    change_text(model, |text| {
        change(text);
        text.rest_on_character();
    })
}

/// Takes changes back, or makes them again.
pub fn undo_typing(
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
pub fn copy(model: &mut Model, copy: impl FnOnce(&mut TextBuffer)) -> Vec<Effect> {
    let Some(editor) = &mut model.editor else {
        return Vec::new();
    };
    copy(&mut editor.buffer);
    editor.buffer.rest_on_character();
    let text = register_text(&editor.buffer);
    let what = match text.lines().count() {
        0 | 1 => "the text".to_string(),
        lines => format!("{lines} lines"),
    };
    let clip = ClipboardText::new(what, text.as_bytes());
    keep_cursor_visible(model);
    vec![Effect::CopyToClipboard(clip)]
}

/// Largest number that counts; more digits do not raise it.
const MAX_COUNT: usize = 60_000;

/// Most repetitions of a command that takes its time in a large text.
const MAX_REPEATS: usize = 1000;

/// Takes a digit of a number. Returns false if the key is none. In the editor a digit never leaves
/// the screen: the keys behind it are meant for the text.
pub fn take_digit(model: &mut Model, key: Key) -> bool {
    let is_in_editor = model.key_context().takes_counts();
    let digit = key.printable_char().and_then(|c| c.to_digit(10));
    let Some(editor) = model.editor.as_mut().filter(|_| is_in_editor) else {
        return false;
    };
    match (digit, editor.count) {
        // Alone, it goes to the beginning of the line.
        (None, _) | (Some(0), None) => false,
        (Some(digit), count) => {
            let count = count.unwrap_or(0) * 10 + digit as usize;
            editor.count = Some(count.min(MAX_COUNT));
            true
        }
    }
}

/// Performs a command as often as the number before it says, by `perform` where it is the same for one
/// and for many; `None` without a number, and for a command that is performed once.
pub fn perform_counted(
    model: &mut Model,
    command: Command,
    mut perform: impl FnMut(&mut Model) -> Vec<Effect>,
) -> Option<Vec<Effect>> {
    let count = model.editor.as_mut()?.count.take()?;
    match command {
        Command::Down | Command::Up => {
            let by = count as isize;
            move_cursor(model, if command == Command::Down { by } else { -by });
            model.is_dirty = true;
            Some(Vec::new())
        }
        Command::Top | Command::Bottom if model.key_context() != KeyContext::EditorDialog => {
            Some(jump_in_text(model, |text| {
                text.go_to_line(count.saturating_sub(1))
            }))
        }
        Command::CutLine => Some(change_at_rest(model, |text| cut_lines(text, count))),
        Command::CutChar => Some(change_at_rest(model, |text| cut_chars(text, count))),
        Command::CopyTextLine => Some(copy(model, |text| copy_lines(text, count))),
        Command::CursorLeft
        | Command::CursorRight
        | Command::NextWord
        | Command::PreviousWord
        | Command::PasteText
        | Command::UndoTyping
        | Command::RedoTyping
        | Command::NextHit
        | Command::PreviousHit
        | Command::NextFinding
        | Command::PreviousFinding => Some(repeat(count, || perform(model))),
        _ => None,
    }
}

/// Repeats a step. Returns the effects of the last one, which replace those of the earlier ones.
fn repeat(count: usize, mut step: impl FnMut() -> Vec<Effect>) -> Vec<Effect> {
    (0..count.min(MAX_REPEATS)).fold(Vec::new(), |_, _| step())
}

/// Checks that the text can be changed.
pub fn check_editable(model: &Model) -> Result<(), String> {
    let editor = model.editor.as_ref();
    match editor.and_then(|editor| editor.read_only.as_ref()) {
        Some(why) => Err(format!("read-only: {why}")),
        None => Ok(()),
    }
}

/// Starts a search. Returns the previous query.
pub fn begin_search(model: &mut Model) -> String {
    let editor = model.editor.as_mut();
    editor.map_or_else(String::new, |editor| std::mem::take(&mut editor.query))
}

/// Edits the query of the search.
pub fn set_query(model: &mut Model, query: String) {
    if let Some(editor) = &mut model.editor {
        search_for(&mut editor.buffer, &query);
        editor.query = query;
        editor.hit_count = count_hits(&editor.buffer);
    }
}

/// Goes to the first hit from the cursor on. Returns the number of hits.
pub fn finish_search(model: &mut Model) -> usize {
    jump_in_text(model, |text| {
        go_to_hit(text, true, true);
    });
    model.editor.as_ref().map_or(0, |editor| editor.hit_count)
}

/// Goes to the next or previous hit; without a search, shows the key that searches.
pub fn go_to_next_hit(model: &mut Model, is_forward: bool) {
    let Some(editor) = &model.editor else {
        return;
    };
    if editor.query.is_empty() {
        let key = model.key_hint(Command::Search);
        model.show_hint(&format!("{key} searches"));
        return;
    }
    let mut is_found = false;
    jump_in_text(model, |text| is_found = go_to_hit(text, is_forward, false));
    if !is_found {
        model.show_hint("no hit");
    }
}
