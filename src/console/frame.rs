//! What every screen has around its content: the fleet's name, the last message and the pending
//! questions.

use unicode_width::UnicodeWidthStr;

use super::command::Command;
use super::model::Model;
use super::model::read_only::{is_unlocked, read_only_reason};
use super::model::targets::{check_reset_targets, current_question};
use super::model::trouble::trouble_line;
use super::model::visible_text::{is_side_by_side, is_text_awaited, text_height, text_pane};
use super::screen::Screen;
use super::screens::agent::state::AgentTab;
use super::screens::log::state::MessageLevel;
use super::theme::{Role, role_of_state};
use super::widgets::text_pane;
use crate::base::untrusted;
use crate::console::agent_row::AgentRow;
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, shorten_untrusted, truncate_untrusted,
};
use crate::engine::State;

/// Notice shown while the key guard ignores keys that were typed ahead.
pub const KEYS_IGNORED_NOTICE: &str =
    "Typed-ahead keys ignored: pause for half a second, then continue.";

/// What every screen but the editor shows while the editor has a text that is not saved.
const UNSAVED_WORD: &str = "UNSAVED";

/// Cells that a shortened name of the fleet keeps.
const MIN_FLEET_NAME_CELLS: usize = 6;

/// Blank cells behind the fleet's name, its tag and the rights.
const FLEET_NAME_GAP: u16 = 2;

/// Draws the fleet's name, its tag, whether it is read-only and whether a text is not saved, as on
/// every screen. Returns the column behind them.
pub fn draw_fleet_name(model: &Model, canvas: &mut Canvas<'_>, x: u16, y: u16) -> u16 {
    // The blanks behind it may be cut.
    let room = canvas.width().saturating_sub(x) + FLEET_NAME_GAP;
    draw_short_fleet_name(model, canvas, (x, y), room)
}

/// Draws the same in at most `room` cells with the blanks behind it, for which the name is shortened.
/// Returns the column behind them.
pub fn draw_short_fleet_name(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y): (u16, u16),
    room: u16,
) -> u16 {
    let name = &model.config.name;
    let whole = untrusted::visible_line(name).width();
    let others = fleet_name_width(model).saturating_sub(whole);
    let room = usize::from(room).saturating_sub(others);
    let mut x = if whole <= room {
        canvas.put_untrusted(x, y, name.as_bytes(), Role::Title)
    } else {
        let short = shorten_untrusted(name, room.max(MIN_FLEET_NAME_CELLS));
        canvas.put_text(x, y, &short, Role::Title)
    };
    x += 1;
    if let Some(tag) = &model.config.tag {
        x = canvas.put_untrusted(x, y, format!("[{tag}]").as_bytes(), Role::Tag) + 1;
    }
    let (word, role) = access_label(model);
    x = canvas.put_text(x, y, word, role) + 1;
    if is_text_unsaved(model) {
        x = canvas.put_text(x, y, UNSAVED_WORD, Role::Warn) + 1;
    }
    x + 1
}

/// Returns the cells that [`draw_fleet_name`] takes.
pub fn fleet_name_width(model: &Model) -> usize {
    let visible_width = |text: &str| untrusted::visible_line(text).width();
    let tag = model.config.tag.as_ref();
    let tag = tag.map_or(0, |tag| visible_width(&format!("[{tag}]")) + 1);
    let unsaved = if is_text_unsaved(model) {
        UNSAVED_WORD.len() + 1
    } else {
        0
    };
    visible_width(&model.config.name) + 1 + tag + access_label(model).0.len() + unsaved + 2
}

/// Returns the cells that [`draw_short_fleet_name`] takes at least.
pub fn least_fleet_name_width(model: &Model) -> usize {
    let name = untrusted::visible_line(&model.config.name).width();
    fleet_name_width(model) - name + name.min(MIN_FLEET_NAME_CELLS)
}

/// Draws a command line at a column and a line; where it does not fit, also the key that copies it.
pub fn draw_equivalent_command(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y): (u16, u16),
    command: &str,
    copy: Command,
) {
    let end = canvas.width().saturating_sub(x + 1);
    let room = |label: &str| usize::from(end).saturating_sub(label.len());
    let mut label = "same as:  ".to_string();
    if untrusted::visible_line(command).width() > room(&label) {
        label = format!("same as ({} copies):  ", model.key_hint(copy));
    }
    let text = truncate_untrusted(command, room(&label));
    let x = canvas.put_text(x, y, &label, Role::Dim);
    canvas.put_text(x, y, &text, Role::Text);
}

/// Whether the editor has a text that is not saved, and does not say so itself.
fn is_text_unsaved(model: &Model) -> bool {
    let editor = model.editor.as_ref();
    model.screen != Screen::Editor && editor.is_some_and(|it| it.is_modified)
}

/// Returns whether the fleet is read-only, in a word.
fn access_label(model: &Model) -> (&'static str, Role) {
    match (read_only_reason(model).is_some(), is_unlocked(model)) {
        (true, _) => ("RO", Role::Tag),
        (false, true) => ("RW unlocked", Role::Warn),
        (false, false) => ("RW", Role::Text),
    }
}

/// Returns the key that shows the remedies of an agent whose resets are blocked.
pub fn blocked_step(model: &Model, agent: &str) -> Option<String> {
    let state = model.find_row(agent).map(AgentRow::state);
    let opens_baseline = model.screen == Screen::Fleet || model.agent.tab == AgentTab::Baseline;
    if state == Some(State::Tampered) && opens_baseline {
        let open = model.key_hint(Command::OpenSelected);
        return Some(format!("{open} shows the change"));
    }
    let can_plan = check_reset_targets(model).is_ok();
    can_plan.then(|| format!("{} says what to do", model.key_hint(Command::PlanReset)))
}

/// Cells of the name of a host that asks.
const MAX_ASKING_HOST_CELLS: usize = 16;

/// Draws which host asks the question that the answer key opens, and how many more wait, in the last
/// line before column `end`; they stay until they are answered. Returns the column at which they begin.
pub fn draw_pending_question(model: &Model, canvas: &mut Canvas<'_>, end: u16) -> u16 {
    let Some(current) = current_question(model) else {
        return end;
    };
    // The keys need the room; the message and the dialog say what is asked.
    let host = shorten_untrusted(&current.host, MAX_ASKING_HOST_CELLS);
    let mut text = format!("{host} asks");
    match model.questions.len() {
        1 => {}
        many => text.push_str(&format!(", {} more", many - 1)),
    }
    let key = model.key_hint(Command::AnswerQuestion);
    let length = text.width() + key.width() + 3;
    let x = end.saturating_sub(length as u16);
    let y = model.size.1 - 1;
    let after = canvas.put_text(x, y, &key, Role::Key);
    canvas.put_text(after + 1, y, &text, Role::Warn);
    x
}

/// Cells of a rule that stay behind the words in it.
const RULE_MARGIN: u16 = 2;

/// Draws how many agents need attention into the rule below the header, the worst state first. The
/// header of the fleet has all counts.
pub fn draw_state_counts(model: &Model, canvas: &mut Canvas<'_>) {
    let Some(y) = canvas.header_rule.filter(|_| model.screen != Screen::Fleet) else {
        return;
    };
    let room = canvas.room(2 * RULE_MARGIN);
    let counts = model.rows.state_counts().into_iter();
    let mut left: Vec<(State, usize)> = counts.filter(|(it, _)| it.needs_attention()).collect();
    let mut words: Vec<(String, Role)> = Vec::new();
    let mut used = 0;
    while let Some((state, agents)) = left.first().copied() {
        let word = format!("{agents} {state}");
        let others: usize = left[1..].iter().map(|(_, agents)| agents).sum();
        let reserve = if others > 0 {
            more_agents(others).width() + 1
        } else {
            0
        };
        if used + word.width() + reserve > room {
            words.push((more_agents(others + agents), Role::Text));
            break;
        }
        used += word.width() + 1;
        words.push((word, role_of_state(state)));
        left.remove(0);
    }
    draw_in_rule(canvas, y, &words);
}

/// Names the number of agents that are left out.
pub fn more_agents(agents: usize) -> String {
    format!("{agents} more")
}

/// Draws words at the end of a rule.
pub fn draw_in_rule(canvas: &mut Canvas<'_>, y: u16, words: &[(String, Role)]) {
    let width: usize = words.iter().map(|(word, _)| word.width() + 1).sum();
    if words.is_empty() {
        return;
    }
    let end = canvas.width().saturating_sub(RULE_MARGIN);
    let mut x = end.saturating_sub(width as u16 + 1);
    x = canvas.put_text(x, y, " ", Role::Text);
    for (word, role) in words {
        x = canvas.put_text(x, y, word, *role);
        x = canvas.put_text(x, y, " ", Role::Text);
    }
}

/// Draws the line about new trouble at the end of the row of messages, as short as the message needs
/// it. Returns the cells that are left of `room`.
pub fn draw_trouble(model: &Model, canvas: &mut Canvas<'_>, (x, y): (u16, u16), room: u16) -> u16 {
    let Some(line) = trouble_line(model) else {
        return room;
    };
    let message = model.last_message.as_ref();
    let message = message.map_or(0, |it| untrusted::visible_line(&it.text).width() + 2);
    let fitted = line.fit(usize::from(room), message);
    let width = fitted.width() as u16;
    let x = x + room.saturating_sub(width);
    let after = canvas.put_text(x, y, &fitted.text, role_of_state(line.state));
    if !fitted.key.is_empty() {
        let after = canvas.put_text(after + 2, y, &fitted.key, Role::Key);
        canvas.put_text(after, y, fitted.act, role_of_state(line.state));
    }
    room.saturating_sub(width + 2)
}

/// Draws the last message, in a row of its own. Returns the column behind it.
pub fn draw_message(model: &Model, canvas: &mut Canvas<'_>, (x, y): (u16, u16), room: u16) -> u16 {
    let Some(message) = &model.last_message else {
        return x;
    };
    let role = match message.level {
        MessageLevel::Info => Role::Text,
        MessageLevel::Warn => Role::Warn,
        MessageLevel::Error => Role::Bad,
    };
    let times = match message.repeat_count {
        1 => String::new(),
        count => format!(" x{count}"),
    };
    let room = usize::from(room).saturating_sub(times.width());
    let x = if untrusted::visible_line(&message.text).width() > room {
        canvas.put_text(x, y, &fit_end_of_sentence(&message.text, room), role)
    } else {
        canvas.put_untrusted(x, y, message.text.as_bytes(), role)
    };
    canvas.put_text(x, y, &times, Role::Dim)
}

/// Draws how many rows of a list have each label, in the first row of the screen: equal labels are
/// behind each other.
pub fn draw_counts_in_row(
    canvas: &mut Canvas<'_>,
    mut x: u16,
    labels: impl Iterator<Item = (&'static str, Role)>,
) {
    let labels: Vec<(&str, Role)> = labels.collect();
    for same in labels.chunk_by(|a, b| a.0 == b.0) {
        let (label, role) = same[0];
        let text = format!("{} {label}", same.len());
        if canvas.room(x) < text.width() {
            break;
        }
        x = canvas.put_text(x, 0, &text, role) + 1;
    }
}

/// Draws the text of the screen from a row on.
pub fn draw_text_pane(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    if is_text_awaited(model) {
        canvas.put_text(1, y, "reading …", Role::Dim);
        return;
    }
    let area = canvas.rows(y, text_height(model) as u16);
    text_pane(model).draw(canvas, area);
    if model.screen == Screen::Agent && model.agent.is_cached() {
        canvas.dim(area);
    }
}

/// Draws the two compared texts of the screen from a row on; it has their titles where they are side
/// by side.
pub fn draw_compared_texts(model: &Model, canvas: &mut Canvas<'_>, y: u16, titles: &[String; 2]) {
    let is_two_sided = is_side_by_side(model);
    if is_two_sided {
        text_pane::draw_side_titles(canvas, y, titles);
    }
    draw_text_pane(model, canvas, y + u16::from(is_two_sided));
}
