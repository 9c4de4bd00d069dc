//! Numbers typed before a command of the editor: how often it is performed.

use super::typing::{self, change_at_rest, copy};
use super::{go_to_finding, go_to_next_hit, jump_in_text, move_cursor};
use crate::console::command::{Command, KeyContext};
use crate::console::key::Key;
use crate::console::message::Effect;
use crate::console::model::Model;

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

/// Performs a command as often as the number before it says; `None` without one, and for a command
/// that is performed once.
pub fn perform_counted(model: &mut Model, command: Command) -> Option<Vec<Effect>> {
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
        Command::CutLine => Some(change_at_rest(model, |text| text.cut_lines(count))),
        Command::CutChar => Some(change_at_rest(model, |text| text.cut_chars(count))),
        Command::CopyTextLine => Some(copy(model, |text| text.copy_lines(count))),
        Command::CursorLeft
        | Command::CursorRight
        | Command::NextWord
        | Command::PreviousWord
        | Command::PasteText
        | Command::UndoTyping
        | Command::RedoTyping => Some(repeat(count, || typing::perform(model, command))),
        Command::NextHit | Command::PreviousHit => Some(repeat(count, || {
            go_to_next_hit(model, command == Command::NextHit);
            Vec::new()
        })),
        Command::NextFinding | Command::PreviousFinding => Some(repeat(count, || {
            go_to_finding(model, command == Command::NextFinding)
        })),
        _ => None,
    }
}

/// Repeats a step. Returns the effects of the last one, which replace those of the earlier ones.
fn repeat(count: usize, mut step: impl FnMut() -> Vec<Effect>) -> Vec<Effect> {
    (0..count.min(MAX_REPEATS)).fold(Vec::new(), |_, _| step())
}
