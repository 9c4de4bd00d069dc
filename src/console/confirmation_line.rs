//! The line with the keys or the word that confirm a plan. Keys and their labels are whole on every
//! screen: the words beside them are cut first, and only the end of the typed text is shown.

use unicode_width::UnicodeWidthStr;

use super::command::Command;
use super::frame::KEYS_IGNORED_NOTICE;
use super::model::Model;
use super::theme::Role;
use super::widgets::plan_pane::{Confirmation, PlanPrompt};
use crate::base::untrusted;
use crate::console::keys::keymap::CONFIRM_KEY;
use crate::console::widgets::canvas::{Canvas, end_of_untrusted, shorten_untrusted};
use crate::engine::{StepAction, UndoMode};

/// Cells of the typed text that are visible at least.
const MIN_TYPED_CELLS: usize = 8;

/// Cells that the word to type keeps at least.
const MIN_WORD_CELLS: usize = 12;

/// A part of the line, with its role.
type Part = (String, Role);

/// What the line says about a plan.
pub struct PlanWords<'a> {
    /// What the key that confirms it does.
    pub verb: &'a str,
    /// What the typed words do.
    pub act: &'a str,
    /// What is said of a plan that changes nothing.
    pub nothing: &'a str,
    /// What the program was started without.
    pub forbidden: &'a str,
}

/// Draws the line that says what confirms the plan on the screen, or why nothing does.
pub fn draw_confirmation(
    model: &Model,
    canvas: &mut Canvas<'_>,
    y: u16,
    prompt: &PlanPrompt,
    words: &PlanWords<'_>,
) {
    if draw_keys_ignored(model, canvas, y) || prompt.refusal.is_some() {
        return;
    }
    match &prompt.confirmation {
        Confirmation::NothingToRun => {
            let text = format!("{}. Esc to go back.", words.nothing);
            canvas.put_text(1, y, &text, Role::Text);
        }
        _ if model.read_only.is_forced => {
            let why = format!(
                "Started with --read-only: {}. Esc to go back.",
                words.forbidden
            );
            canvas.put_text(1, y, &why, Role::Warn);
        }
        Confirmation::SingleKey => draw_key_confirmation(model, canvas, y, words.verb),
        Confirmation::NewerNotes => draw_notes_choice(model, canvas, y),
        Confirmation::TypedText(word) => {
            draw_typed_confirmation(model, canvas, (y, words.act), word, &prompt.typed_text);
        }
    }
}

/// Draws the notice about ignored keys in place of a confirmation. Returns whether there is one.
pub fn draw_keys_ignored(model: &Model, canvas: &mut Canvas<'_>, y: u16) -> bool {
    let ignores = model.key_guard_notice_until().is_some();
    if ignores {
        canvas.put_text(1, y, KEYS_IGNORED_NOTICE, Role::Warn);
    }
    ignores
}

/// Draws that one key confirms.
fn draw_key_confirmation(model: &Model, canvas: &mut Canvas<'_>, y: u16, verb: &str) {
    let press = |rest: &str| {
        vec![
            text("Press "),
            (CONFIRM_KEY.to_string(), Role::Key),
            text(&format!(" to {verb}, {rest}")),
        ]
    };
    let forms = [
        press("Esc to cancel.   (Enter alone does nothing)"),
        press("Esc to cancel."),
        press("Esc cancels"),
    ];
    draw_first_fitting(model, canvas, y, &forms);
}

/// Draws which keys answer the question about newer notes.
fn draw_notes_choice(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let Some(view) = model.reset.plan.shown() else {
        return;
    };
    let plan = &view.plan;
    let removes_all = plan
        .steps
        .iter()
        .all(|step| step.action == StepAction::Remove);
    let choice = |mode: &UndoMode| match mode {
        UndoMode::Append => (Command::UndoAppend, [" append them below,  ", " append,  "]),
        _ if removes_all => (
            Command::UndoOverwrite,
            [" archive them, remove the file", " remove the file"],
        ),
        _ => (
            Command::UndoOverwrite,
            [" archive them, overwrite", " overwrite"],
        ),
    };
    let choices: Vec<_> = plan.undo_choices().iter().map(choice).collect();
    let form = |why: &str, length: usize| -> Vec<Part> {
        let mut parts = vec![(why.to_string(), Role::Warn)];
        for (command, texts) in &choices {
            parts.push((model.key_hint(*command), Role::Key));
            parts.push(text(texts[length]));
        }
        parts
    };
    let why = "New notes since:  ";
    draw_first_fitting(model, canvas, y, &[form(why, 0), form(why, 1), form("", 1)]);
}

/// Draws the word that confirms the plan, and the text typed so far.
fn draw_typed_confirmation(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (y, act): (u16, &str),
    word: &str,
    typed: &str,
) {
    let width = canvas.room(0);
    let visible = untrusted::visible_line(word);
    let form = |unlock: Vec<Part>, word: &str, rest: String| {
        let word = (word.to_string(), Role::Key);
        let mut parts = unlock;
        parts.extend([text("Type  "), word, text(&rest)]);
        parts
    };
    let whole = format!("  and Enter to {act}, Esc to cancel:  ");
    let short = format!("  Enter to {act}, Esc cancels:  ");
    let [long_unlock, short_unlock] = unlock_forms(model);
    let mut forms = vec![
        form(long_unlock.clone(), &visible, whole),
        form(long_unlock, &visible, short.clone()),
        form(short_unlock.clone(), &visible, short.clone()),
    ];
    let others = parts_width(&form(short_unlock.clone(), "", short.clone()));
    let room = width.saturating_sub(others + MIN_TYPED_CELLS + 2);
    let shortened = shorten_untrusted(word, room.max(MIN_WORD_CELLS));
    forms.push(form(short_unlock, &shortened, short));
    // One cell for the cursor, one on each side.
    let fits = |parts: &&Vec<Part>| parts_width(parts) + MIN_TYPED_CELLS + 3 <= width;
    if let Some(parts) = forms.iter().find(fits).or(forms.last()) {
        let x = draw_parts(canvas, 1, y, parts);
        let room = width.saturating_sub(usize::from(x) + 2);
        let x = canvas.put_text(x, y, &end_of_untrusted(typed, room), Role::Prompt);
        canvas.put_text(x, y, "_", Role::Prompt);
    }
}

/// Returns the key that unlocks a read-only fleet, and its short form; nothing if it is not read-only.
fn unlock_forms(model: &Model) -> [Vec<Part>; 2] {
    if !model.read_only.is_on {
        return [Vec::new(), Vec::new()];
    }
    let key = (model.key_hint(Command::ToggleReadOnly), Role::Key);
    let warn = |text: &str| (text.to_string(), Role::Warn);
    [
        vec![warn("Read-only: "), key.clone(), warn(" unlocks.  ")],
        vec![key, warn(" unlocks.  ")],
    ]
}

/// Draws the first form that fits behind the key that unlocks a read-only fleet.
fn draw_first_fitting(model: &Model, canvas: &mut Canvas<'_>, y: u16, forms: &[Vec<Part>]) {
    let width = canvas.room(0);
    let unlocks = unlock_forms(model);
    let all = unlocks.iter().flat_map(|unlock| {
        let with_unlock = |form: &Vec<Part>| unlock.iter().chain(form).cloned().collect();
        forms.iter().map(with_unlock)
    });
    let all: Vec<Vec<Part>> = all.collect();
    let fits = |parts: &&Vec<Part>| parts_width(parts) < width;
    if let Some(parts) = all.iter().find(fits).or(all.last()) {
        draw_parts(canvas, 1, y, parts);
    }
}

fn text(text: &str) -> Part {
    (text.to_string(), Role::Text)
}

fn parts_width(parts: &[Part]) -> usize {
    parts.iter().map(|(text, _)| text.width()).sum()
}

fn draw_parts(canvas: &mut Canvas<'_>, mut x: u16, y: u16, parts: &[Part]) -> u16 {
    for (text, role) in parts {
        x = canvas.put_text(x, y, text, *role);
    }
    x
}
