//! Draws the overlays of a screen: help, the palette, the questions of the console and of hosts.

use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::{question, timer_dialog};
use crate::base::untrusted;
use crate::console::chooser::{self, ChooserChoice, LegendEntry, list_choices};
use crate::console::command::Command;
use crate::console::dispatch::{check_enabled, offered_commands};
use crate::console::frame::draw_message;
use crate::console::keys::key::format_sequence;
use crate::console::keys::keymap::CONFIRM_KEY;
use crate::console::model::Model;
use crate::console::overlay::{Chooser, Overlay};
use crate::console::theme::{Role, role_of_state};
use crate::console::widgets::canvas::{Canvas, truncate_untrusted};
use crate::console::widgets::list_pane::ListPane;

pub(super) fn draw(model: &Model, overlay: &Overlay, canvas: &mut Canvas<'_>) {
    let (width, height) = model.size;
    match overlay {
        Overlay::UnlockReadOnly => {
            let y = height - 2;
            canvas.clear(Rect::new(0, y, width, 2));
            let whole = if model.read_only.is_set_by_config {
                "Turn off read-only for 30 minutes, protected agents included?  "
            } else {
                "Turn off read-only, and unlock protected agents for 30 minutes?  "
            };
            let short = "Unlock all agents for 30 minutes?  ";
            let confirms = " confirms";
            let others = 3 + confirms.len();
            let is_whole = whole.len() + others <= usize::from(width);
            let what = if is_whole { whole } else { short };
            let x = canvas.put_text(1, y, what, Role::Warn);
            let x = canvas.put_text(x, y, &CONFIRM_KEY.to_string(), Role::Key);
            canvas.put_text(x, y, confirms, Role::Text);
        }
        Overlay::AnswerQuestion(dialog) => question::draw(model, dialog, canvas),
        Overlay::Timer(dialog) => timer_dialog::draw(model, dialog, canvas),
        Overlay::Help(chooser) => {
            let key = |command| model.key_hint(command);
            let title = format!(
                "Keys of this screen   {} {} move, Enter run, {} search, Esc close",
                key(Command::Down),
                key(Command::Up),
                key(Command::Search)
            );
            let shown = ChoiceList {
                title: &title,
                chooser,
                choices: &list_choices(model, overlay),
                legend: Some(chooser::legend_entries(model, chooser)),
            };
            draw_list(model, canvas, &shown);
        }
        Overlay::Palette(chooser) => {
            let title = "Commands   type a few letters, Enter run, Esc close";
            let shown = ChoiceList {
                title,
                chooser,
                choices: &list_choices(model, overlay),
                legend: None,
            };
            draw_list(model, canvas, &shown);
        }
    }
}

/// Draws the possible continuations of the pressed keys over the lower part of a screen.
pub(super) fn draw_continuations(model: &Model, canvas: &mut Canvas<'_>) {
    let keys = &model.pending_keys.keys;
    let following = model
        .preferences
        .keymap
        .continuations(model.key_context(), keys);
    let offered = |command| offered_commands(model).any(|spec| spec.command == command);
    let following = following
        .into_iter()
        .filter(|(_, command)| offered(*command));
    // The header stays visible.
    let room = usize::from(canvas.area.height) - 6;
    let following: Vec<(String, Command)> = following.take(room).collect();
    let top = canvas.area.height - 2 - following.len() as u16;
    let area = Rect::new(0, top, canvas.area.width, following.len() as u16 + 1);
    canvas.clear(area);
    canvas.draw_rule(top);
    canvas.put_text(1, top, &format!(" {} ", format_sequence(keys)), Role::Key);
    let widest = following.iter().map(|(rest, _)| rest.width()).max();
    let titles = 3 + widest.unwrap_or(0) as u16 + 2;
    for ((rest, command), y) in following.iter().zip(top + 1..) {
        let reason = check_enabled(*command, model).err();
        let (role, key) = match reason {
            Some(_) => (Role::Disabled, Role::Disabled),
            None => (Role::Text, Role::Key),
        };
        canvas.put_text(3, y, rest, key);
        let title = model.preferences.keymap.spec_of(*command).title;
        let text = reason.map_or(title.to_string(), |reason| format!("{title} ({reason})"));
        let text = truncate_untrusted(&text, canvas.room(titles + 1));
        canvas.put_text(titles, y, &text, role);
    }
}

/// A list to choose from.
struct ChoiceList<'a> {
    title: &'a str,
    chooser: &'a Chooser,
    choices: &'a [ChooserChoice],
    /// The signs that help explains first; `None` for the palette, which has no headings.
    legend: Option<Vec<LegendEntry>>,
}

/// Draws a list over the whole screen except its first line, which shows the fleet's name.
fn draw_list(model: &Model, canvas: &mut Canvas<'_>, choice_list: &ChoiceList<'_>) {
    let ChoiceList {
        title,
        chooser,
        choices,
        legend,
    } = choice_list;
    let area = Rect::new(0, 1, canvas.area.width, canvas.area.height - 1);
    canvas.clear(area);
    canvas.draw_rule(1);
    let current = chooser::cursor_row(chooser, choices);
    let text = truncate_untrusted(title, usize::from(area.width) - 2);
    let x = canvas.put_text(1, 2, &text, Role::Title);
    // The command line equivalent to the choice under the cursor.
    if let Some(command) = current.and_then(|at| choices[at].equivalent_command.as_ref()) {
        let command = format!("$ {}", untrusted::visible_line(command));
        if usize::from(area.width) > usize::from(x) + command.width() + 2 {
            canvas.put_right(area.width, 2, &command, Role::Dim);
        }
    }
    let rows = list_rows(choices, legend.as_deref());
    let height = usize::from(area.height).saturating_sub(3);
    let is_here = |row: &ListRow<'_>| matches!(row, ListRow::Choice(at, _) if Some(*at) == current);
    let cursor = rows.iter().position(is_here).unwrap_or(0);
    let visible = ListPane::<()>::at(cursor).visible(rows.len(), height);
    draw_query(model, canvas, choice_list, rows.len() - visible.end);
    if rows.is_empty() {
        canvas.put_text(3, 4, "no match", Role::Dim);
    }
    for (index, y) in visible.zip(4..) {
        let row = &rows[index];
        match row {
            ListRow::Heading(title) => {
                canvas.put_text(1, y, title, Role::Heading);
            }
            ListRow::Legend(entry) => {
                let [sign, word, meaning] = entry.texts();
                let role = match entry {
                    LegendEntry::State(state) => role_of_state(*state),
                    LegendEntry::Protection(_) => Role::Tag,
                    LegendEntry::LastRun(_) => Role::Text,
                };
                canvas.put_text(3, y, sign, role);
                let x = canvas.put_text(6, y, word, role).max(18);
                let room = usize::from(area.width.saturating_sub(x + 2));
                canvas.put_text(x + 1, y, &truncate_untrusted(meaning, room), Role::Text);
            }
            ListRow::Choice(_, choice) => {
                draw_choice(canvas, y, choice, is_here(row), legend.is_some());
            }
        }
    }
}

/// Draws the query, the last message and the number of rows below the visible ones.
fn draw_query(
    model: &Model,
    canvas: &mut Canvas<'_>,
    choice_list: &ChoiceList<'_>,
    rows_below: usize,
) {
    let chooser = choice_list.chooser;
    let mut end = canvas.width();
    if rows_below > 0 {
        let text = format!("{rows_below} more below");
        end = end.saturating_sub(text.width() as u16);
        canvas.put_text(end, 3, &text, Role::Dim);
    }
    let mut x = 1;
    if chooser.is_typing || !chooser.query.is_empty() {
        let prompt = if choice_list.legend.is_some() {
            "/ "
        } else {
            ": "
        };
        x = canvas.put_text(x, 3, prompt, Role::Key);
        x = canvas.put_untrusted(x, 3, chooser.query.as_bytes(), Role::Prompt);
        if chooser.is_typing {
            canvas.put_text(x, 3, "_", Role::Prompt);
        }
        x += 4;
    }
    draw_message(model, canvas, (x, 3), end.saturating_sub(x + 2));
}

/// Returns the choices with their headings as rows, so that scrolling counts both.
fn list_rows<'a>(choices: &'a [ChooserChoice], legend: Option<&[LegendEntry]>) -> Vec<ListRow<'a>> {
    let mut rows = Vec::new();
    let entries = legend.unwrap_or_default();
    let mut heading = "";
    for entry in entries {
        if entry.heading() != heading {
            heading = entry.heading();
            rows.push(ListRow::Heading(heading));
        }
        rows.push(ListRow::Legend(*entry));
    }
    let mut category = None;
    for (index, choice) in choices.iter().enumerate() {
        if legend.is_some() && choice.category != category {
            category = choice.category;
            rows.extend(category.map(|category| ListRow::Heading(category.heading())));
        }
        rows.push(ListRow::Choice(index, choice));
    }
    rows
}

enum ListRow<'a> {
    Heading(&'static str),
    Legend(LegendEntry),
    Choice(usize, &'a ChooserChoice),
}

fn draw_choice(
    canvas: &mut Canvas<'_>,
    y: u16,
    choice: &ChooserChoice,
    is_at_cursor: bool,
    has_heading: bool,
) {
    let (role, key) = match choice.disabled_reason {
        Some(_) => (Role::Disabled, Role::Disabled),
        None => (Role::Text, Role::Key),
    };
    if is_at_cursor {
        canvas.put_text(1, y, ">", Role::Text);
    }
    canvas.put_text(3, y, &truncate_untrusted(&choice.keys, 15), key);
    let mut x = 19;
    if !has_heading {
        // What has no key may have a long name: an agent, a file.
        let id_x = if choice.keys.is_empty() { 3 } else { x };
        x += 22;
        let room = usize::from(x - id_x) - 1;
        canvas.put_text(id_x, y, &truncate_untrusted(&choice.id, room), role);
    }
    let text = match &choice.disabled_reason {
        Some(reason) => format!("{} ({reason})", choice.title),
        None => choice.title.clone(),
    };
    canvas.put_text(x, y, &truncate_untrusted(&text, canvas.room(x + 1)), role);
    if is_at_cursor {
        canvas.highlight_cursor(3..18, y);
    }
}
