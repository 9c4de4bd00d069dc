//! What lies over a screen: help, the palette, a question.

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::{Canvas, IGNORES_KEYS, cut, message, question};
use crate::console::chooser::{self, Choice, choices};
use crate::console::command::{self, Command};
use crate::console::keymap::written;
use crate::console::model::{Chooser, Model, Overlay, SealQuestion};
use crate::console::theme::{Role, of_state};
use crate::engine::State;
use crate::untrusted;

pub(super) fn draw(model: &Model, overlay: &Overlay, canvas: &mut Canvas<'_>) {
    let (width, height) = model.size;
    match overlay {
        Overlay::Unlock => {
            let y = height - 2;
            canvas.clear(Rect::new(0, y, width, 2));
            let what = "Switch read-only off for 30 minutes, for protected agents, too?  ";
            let x = canvas.put(1, y, what, Role::Warn);
            let x = canvas.put(x, y, "y", Role::Key);
            canvas.put(x, y, " does", Role::Text);
        }
        Overlay::Seal(asked) => seal(model, canvas, asked),
        Overlay::Question(answering) => question::draw(model, answering, canvas),
        Overlay::Help(chooser) => {
            let key = |command| model.key(command);
            let title = format!(
                "Keys of this screen   {} {} move, Enter runs, {} searches, Esc leaves",
                key(Command::Down),
                key(Command::Up),
                key(Command::Search)
            );
            let shown = List {
                title: &title,
                chooser,
                choices: &choices(model, overlay),
                legend: Some(chooser::legend(model, chooser)),
            };
            list(model, canvas, &shown);
        }
        Overlay::Palette(chooser) => {
            let title = "Commands   type a few letters, Enter runs, Esc leaves";
            let shown = List {
                title,
                chooser,
                choices: &choices(model, overlay),
                legend: None,
            };
            list(model, canvas, &shown);
        }
    }
}

/// What can follow the keys that were pressed, over the lower part of a screen.
pub(super) fn which_key(model: &Model, canvas: &mut Canvas<'_>) {
    let keys = &model.pending.keys;
    let following = model.preferences.keymap.following(model.context(), keys);
    let offered = |command| command::offered(model).any(|spec| spec.command == command);
    let following = following
        .into_iter()
        .filter(|(_, command)| offered(*command));
    // The header stays in sight.
    let room = usize::from(canvas.area.height) - 6;
    let following: Vec<(String, Command)> = following.take(room).collect();
    let top = canvas.area.height - 2 - following.len() as u16;
    let area = Rect::new(0, top, canvas.area.width, following.len() as u16 + 1);
    canvas.clear(area);
    canvas.rule(top);
    canvas.put(1, top, &format!(" {} ", written(keys)), Role::Key);
    let widest = following.iter().map(|(rest, _)| rest.width()).max();
    let titles = 3 + widest.unwrap_or(0) as u16 + 2;
    for ((rest, command), y) in following.iter().zip(top + 1..) {
        let why = command::enabled(*command, model).err();
        let (role, key) = match why {
            Some(_) => (Role::Disabled, Role::Disabled),
            None => (Role::Text, Role::Key),
        };
        canvas.put(3, y, rest, key);
        let title = command::spec(*command).title;
        let text = why.map_or(title.to_string(), |why| format!("({why}) {title}"));
        let room = usize::from(canvas.width().saturating_sub(titles + 1));
        canvas.put(titles, y, &cut(&text, room), role);
    }
}

/// Whether a sealed baseline is to be edited: what stands against it, and what comes
/// of it.
fn seal(model: &Model, canvas: &mut Canvas<'_>, asked: &SealQuestion) {
    let (width, height) = (canvas.area.width, canvas.area.height);
    let y = height - 4;
    canvas.clear(Rect::new(0, y, width, 4));
    canvas.rule(y);
    let edit = &asked.edit;
    let name = edit.before.path.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let first = match &edit.before.tampered {
        Some(how) => how.clone(),
        None => format!("{name} is sealed by .checksums, and an edit breaks the seal."),
    };
    let users = edit.users.join(", ");
    let second = format!("This BLOCKS resets of {users} until .checksums has its new sha256sum.");
    let room = usize::from(width) - 2;
    canvas.put(1, y + 1, &cut(&first, room), Role::Warn);
    canvas.put(1, y + 2, &cut(&second, room), Role::Text);
    if model.ignores_keys_until().is_some() {
        canvas.put(1, y + 3, IGNORES_KEYS, Role::Warn);
        return;
    }
    let x = canvas.put(1, y + 3, "y", Role::Key);
    canvas.put(
        x,
        y + 3,
        " edits it all the same, any other key leaves it",
        Role::Text,
    );
}

/// A list to choose from.
struct List<'a> {
    title: &'a str,
    chooser: &'a Chooser,
    choices: &'a [Choice],
    /// The states that help explains first. The palette has none, and no headings.
    legend: Option<Vec<State>>,
}

/// A list over the whole screen but its first line, so that the fleet's name
/// stays in sight.
fn list(model: &Model, canvas: &mut Canvas<'_>, shown: &List<'_>) {
    let List {
        title,
        chooser,
        choices,
        legend,
    } = shown;
    let area = Rect::new(0, 1, canvas.area.width, canvas.area.height - 1);
    canvas.clear(area);
    canvas.rule(1);
    let here = chooser::place(chooser, choices);
    let x = canvas.put(1, 2, &cut(title, usize::from(area.width) - 2), Role::Title);
    // The command line that does the same as what is under the cursor.
    if let Some(twin) = here.and_then(|at| choices[at].twin.as_ref()) {
        let twin = format!("$ {}", untrusted::line(twin));
        if usize::from(area.width) > usize::from(x) + twin.width() + 2 {
            canvas.put_right(area.width, 2, &twin, Role::Dim);
        }
    }
    let rows = rows(choices, legend.as_deref());
    let height = usize::from(area.height).saturating_sub(3);
    let is_here = |row: &Row<'_>| matches!(row, Row::Choice(at, _) if Some(*at) == here);
    let cursor = rows.iter().position(is_here).unwrap_or(0);
    let from = (cursor + 1).saturating_sub(height);
    query(
        model,
        canvas,
        shown,
        rows.len().saturating_sub(from + height),
    );
    if rows.is_empty() {
        canvas.put(3, 4, "nothing matches", Role::Dim);
    }
    for (line, row) in rows.iter().skip(from).take(height).enumerate() {
        let y = 4 + line as u16;
        match row {
            Row::Head(title) => {
                canvas.put(1, y, title, Role::Heading);
            }
            Row::State(state) => {
                canvas.put(3, y, state.glyph().trim_end(), of_state(*state));
                let x = canvas.put(6, y, state.word(), of_state(*state)).max(18);
                let room = usize::from(area.width.saturating_sub(x + 2));
                canvas.put(x + 1, y, &cut(state.meaning(), room), Role::Text);
            }
            Row::Choice(_, choice) => {
                choice_row(canvas, y, choice, is_here(row), legend.is_some());
            }
        }
    }
}

/// What is searched for, what was said about it, and how many rows follow below.
fn query(model: &Model, canvas: &mut Canvas<'_>, shown: &List<'_>, below: usize) {
    let chooser = shown.chooser;
    let mut end = canvas.width();
    if below > 0 {
        let text = format!("{below} more below");
        end = end.saturating_sub(text.width() as u16);
        canvas.put(end, 3, &text, Role::Dim);
    }
    let mut x = 1;
    if chooser.typing || !chooser.query.is_empty() {
        let prompt = if shown.legend.is_some() { "/ " } else { ": " };
        x = canvas.put(x, 3, prompt, Role::Key);
        x = canvas.foreign(x, 3, chooser.query.as_bytes(), Role::Prompt);
        if chooser.typing {
            canvas.put(x, 3, "_", Role::Prompt);
        }
        x += 4;
    }
    message(model, canvas, (x, 3), end.saturating_sub(x + 2));
}

/// Rows with their headings, so that scrolling counts both.
fn rows<'a>(choices: &'a [Choice], legend: Option<&[State]>) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    let states = legend.unwrap_or_default();
    rows.extend((!states.is_empty()).then_some(Row::Head("States")));
    rows.extend(states.iter().map(|state| Row::State(*state)));
    let mut category = None;
    for (index, choice) in choices.iter().enumerate() {
        if legend.is_some() && choice.category != category {
            category = choice.category;
            rows.extend(category.map(|category| Row::Head(category.title())));
        }
        rows.push(Row::Choice(index, choice));
    }
    rows
}

enum Row<'a> {
    Head(&'static str),
    State(State),
    Choice(usize, &'a Choice),
}

fn choice_row(canvas: &mut Canvas<'_>, y: u16, choice: &Choice, here: bool, headed: bool) {
    let (role, key) = match choice.disabled {
        Some(_) => (Role::Disabled, Role::Disabled),
        None => (Role::Text, Role::Key),
    };
    if here {
        canvas.put(1, y, ">", Role::Text);
    }
    canvas.put(3, y, &cut(&choice.keys, 15), key);
    let mut x = 19;
    if !headed {
        canvas.put(x, y, &cut(&choice.id, 21), role);
        x += 22;
    }
    let text = match &choice.disabled {
        Some(why) => format!("({why}) {}", choice.title),
        None => choice.title.clone(),
    };
    let room = usize::from(canvas.width().saturating_sub(x + 1));
    canvas.put(x, y, &cut(&text, room), role);
    if here {
        canvas.highlight(3, y, 15);
    }
}
