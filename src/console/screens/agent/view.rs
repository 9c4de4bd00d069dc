//! Draws one agent: its live diff, its scratch, its facts, its baseline and its history.

mod health;
pub mod history;
mod memory;

use unicode_width::UnicodeWidthStr;

use crate::base::quantity::{format_count, format_size};
use crate::base::untrusted;
use crate::console::age::{format_age, format_modification_age};
use crate::console::agent_row::known_scratch_lines;
use crate::console::command::Command;
use crate::console::frame::{
    blocked_step, draw_compared_texts, draw_fleet_name, draw_message, draw_pending_question,
    draw_short_fleet_name, draw_text_pane, draw_trouble, fleet_name_width, least_fleet_name_width,
};
use crate::console::model::Model;
use crate::console::model::host_problems::host_problem;
use crate::console::model::trouble::trouble_line;
use crate::console::model::visible_text::text_height;
use crate::console::screens::agent::state::{AgentTab, MIN_SIDE_BY_SIDE_COLUMNS};
use crate::console::screens::fleet::visible_agents::visible_index;
use crate::console::screens::hosts::state::HostProblem;
use crate::console::theme::{Role, role_of_state};
use crate::console::widgets::canvas::{
    Canvas, fit_end_of_sentence, fit_start_of_sentence, limit_usage, search_note,
    shorten_untrusted, truncate_untrusted,
};
use crate::engine::{Observation, State};

/// Tabs whose titles also fit on a narrow screen.
const MAX_NARROW_TABS: usize = 4;

/// Cells below which the findings are not worth showing.
const MIN_FINDINGS_CELLS: usize = 12;

pub fn draw(model: &Model, canvas: &mut Canvas<'_>) {
    let agent = &model.agent;
    let observation = model
        .find_row(&agent.agent)
        .and_then(|row| row.latest_observation());
    if agent.is_full_screen && !agent.is_list() {
        draw_text_pane(model, canvas, 0);
        return draw_full_screen_footer(model, canvas);
    }
    draw_header(model, canvas, observation);
    draw_tabs(model, canvas, observation);
    canvas.draw_rule(2);
    if agent.is_list() {
        return draw_list_tab(model, canvas);
    } else {
        let titles = match agent.tab {
            AgentTab::History => history::run_diff_titles(model),
            AgentTab::Baseline => agent.baseline_titles.clone(),
            _ => agent.diff_titles.clone(),
        };
        draw_compared_texts(model, canvas, 3, &titles);
    }
    // Below the text: the findings, the message, the hints.
    let bottom = canvas.area.height - 4;
    canvas.draw_rule(bottom);
    let mut x = 1;
    if model.text_options.is_whitespace_ignored
        && agent.has_diff_options()
        && model.size.0 < MIN_SIDE_BY_SIDE_COLUMNS
    {
        x = canvas.put_text(x, bottom + 1, "ws: ignored", Role::Warn) + 2;
    }
    let x = match agent.current_pane().lines_added_above {
        0 => x,
        grown => canvas.put_text(
            x,
            bottom + 1,
            &format!("▲ {} added above  ", format_count(grown as u64, "line")),
            Role::Warn,
        ),
    };
    match agent.tab {
        AgentTab::History => history::draw_details(model, canvas, bottom + 1),
        AgentTab::Memory => memory::draw_details(model, canvas, bottom + 1),
        _ => {
            let x = draw_blocker(model, canvas, (x, bottom + 1), observation);
            let room = canvas.room(x + 1);
            let findings = &agent.findings;
            if room < MIN_FINDINGS_CELLS {
                return;
            }
            if untrusted::visible_line(findings).width() > room {
                let text = fit_end_of_sentence(findings, room);
                canvas.put_text(x, bottom + 1, &text, Role::Text)
            } else {
                canvas.put_untrusted(x, bottom + 1, findings.as_bytes(), Role::Text)
            };
        }
    }
}

/// Draws a tab that is a list, and what is known of the row under its cursor.
fn draw_list_tab(model: &Model, canvas: &mut Canvas<'_>) {
    match model.agent.tab {
        AgentTab::Memory => memory::draw(model, canvas),
        AgentTab::Health => health::draw(model, canvas),
        _ => {
            history::draw(model, canvas);
            let bottom = canvas.area.height - 4;
            canvas.draw_rule(bottom);
            history::draw_details(model, canvas, bottom + 1);
        }
    }
}

/// Draws why resets of the agent are blocked: what to do comes before the details. Returns the column
/// behind it.
fn draw_blocker(
    model: &Model,
    canvas: &mut Canvas<'_>,
    (x, y): (u16, u16),
    observation: Option<&Observation>,
) -> u16 {
    // The header tells of a lost host.
    let is_host_lost = host_problem(model, &model.agent.agent).is_some();
    let blocker = observation.and_then(|seen| seen.blocker.as_ref());
    let Some(blocker) = blocker.filter(|_| !is_host_lost) else {
        return x;
    };
    let x = canvas.put_text(x, y, "BLOCKED", Role::Bad);
    let step = blocked_step(model, &model.agent.agent);
    let step = step.map(|step| format!("; {step}")).unwrap_or_default();
    let x = canvas.put_text(x, y, &step, Role::Text);
    let reason = format!(": {}", blocker.reason);
    let text = fit_start_of_sentence(&reason, canvas.room(x + 1));
    canvas.put_text(x, y, &text, Role::Text) + 3
}

/// Draws the only line below a full-screen text.
fn draw_full_screen_footer(model: &Model, canvas: &mut Canvas<'_>) {
    if model.input_line.is_some() {
        return;
    }
    let y = canvas.area.height - 1;
    let agent = &model.agent;
    // New trouble needs the room of the names.
    let (name_cells, fleet_cells) = match trouble_line(model) {
        Some(_) => (
            usize::from(canvas.width() / 6),
            least_fleet_name_width(model) as u16,
        ),
        None => (usize::from(canvas.width() / 4), canvas.width() / 2),
    };
    let name = shorten_untrusted(&agent.agent, name_cells);
    let x = canvas.put_text(1, y, &name, Role::Title) + 1;
    let x = draw_state(model, canvas, x, y) + 1;
    let mut x = draw_short_fleet_name(model, canvas, (x, y), fleet_cells);
    if agent.is_cached() {
        x = canvas.put_text(x, y, "CACHED", Role::Warn) + 2;
    }
    if model.text_options.is_whitespace_ignored && agent.has_diff_options() {
        x = canvas.put_text(x, y, "ws: ignored", Role::Warn) + 2;
    }
    let end = canvas.width().saturating_sub(1);
    let end = draw_pending_question(model, canvas, end);
    let mut position = tab_title(agent.tab).to_string();
    if let Some(hunk) = agent.current_pane().describe_hunk(text_height(model)) {
        position.push_str(hunk.trim_start_matches("hunk"));
    }
    let exit = format!("{} exit", model.key_hint(Command::ToggleFullScreen));
    let help = format!("{} help", model.key_hint(Command::Help));
    let end = x + draw_trouble(model, canvas, (x, y), end.saturating_sub(x));
    for text in [&exit, &help] {
        if usize::from(end.saturating_sub(x)) > text.width() {
            x = canvas.put_text(x, y, text, Role::Dim) + 2;
        }
    }
    let room = end.saturating_sub(x);
    if model.last_message.is_some() {
        draw_message(model, canvas, (x, y), room);
    } else if usize::from(room) > position.width() {
        canvas.put_text(x, y, &position, Role::Dim);
    }
}

fn tab_title(tab: AgentTab) -> &'static str {
    match tab {
        AgentTab::Diff => "Diff",
        AgentTab::Scratch => "Scratch",
        AgentTab::Memory => "Memory",
        AgentTab::Health => "Health",
        AgentTab::Facts => "Facts",
        AgentTab::Baseline => "Baseline",
        AgentTab::Rules => "Rules",
        AgentTab::History => "History",
    }
}

fn draw_header(model: &Model, canvas: &mut Canvas<'_>, observation: Option<&Observation>) {
    let width = canvas.width();
    let name = shorten_untrusted(&model.agent.agent, usize::from(width / 4));
    let mut x = canvas.put_text(0, 0, &name, Role::Title) + 1;
    x = draw_state(model, canvas, x, 0) + 1;
    if let Some(seen) = observation {
        x = canvas.put_text(x, 0, &truncate_untrusted(&seen.host, 12), Role::Text) + 1;
        if let Some(trouble) = host_problem(model, &model.agent.agent) {
            x = draw_cached_notice(model, canvas, x, &trouble);
        } else if let Some(content) = &seen.content {
            let share = limit_usage(content.size, seen.max_size);
            let text = format!(
                "{}/{} {share}",
                format_size(content.size),
                format_size(seen.max_size)
            );
            x = canvas.put_text(x, 0, &text, Role::Text) + 2;
            let when = format_modification_age(model.now.local_time, content.modified_ns);
            x = canvas.put_text(x, 0, &format!("changed {when} ago"), Role::Text) + 2;
        }
    }
    draw_position(model, canvas, x);
}

/// Draws the agent's state and returns the column behind it.
fn draw_state(model: &Model, canvas: &mut Canvas<'_>, x: u16, y: u16) -> u16 {
    let row = model.find_row(&model.agent.agent);
    let state = row.map_or(State::Loading, |row| row.state());
    let read_state = row.map_or(State::Loading, |row| row.read_state());
    let text = format!("{} {state}", read_state.glyph().trim_end());
    canvas.put_text(x, y, &text, role_of_state(read_state))
}

/// Whether a later read of the memory has found other content than a copy of it.
fn has_changed_since(model: &Model, copied: &Observation) -> bool {
    let digest = |seen: &Observation| seen.content.as_ref().map(|content| content.sha256);
    let row = model.find_row(&copied.agent);
    let known = row.and_then(|row| row.last_readable_observation());
    known.is_some_and(|known| known.read_at > copied.read_at && digest(known) != digest(copied))
}

/// Draws the notice that a copy is shown: its age, and why. Returns the column behind it.
fn draw_cached_notice(
    model: &Model,
    canvas: &mut Canvas<'_>,
    x: u16,
    problem: &HostProblem,
) -> u16 {
    let text = match &model.agent.cached_observation {
        Some(copied) => format!(
            "CACHED {} old{} - {problem}",
            format_age(model.now.local_time, copied.read_at),
            if has_changed_since(model, copied) {
                ", changed since"
            } else {
                ""
            }
        ),
        None => format!("no cached copy - {problem}"),
    };
    // On a narrow screen this matters more than the position.
    let reserve = if canvas.width() < 110 { 1 } else { 22 };
    let text = fit_end_of_sentence(&text, canvas.room(x + reserve));
    canvas.put_text(x, 0, &text, Role::Warn) + 2
}

/// Draws which of the visible agents this is, and the current hunk of its diff.
fn draw_position(model: &Model, canvas: &mut Canvas<'_>, x: u16) {
    let width = canvas.width();
    let pane = model.agent.current_pane();
    let index = visible_index(model, &model.agent.agent);
    let place = index.map(|index| (index + 1, model.fleet.order.len()));
    let hunk = pane.describe_hunk(text_height(model));
    let hunk = hunk.filter(|_| model.agent.is_comparison());
    let join = |place: Option<String>| {
        let parts: Vec<String> = place.into_iter().chain(hunk.clone()).collect();
        parts.join("  ")
    };
    // On a narrow screen the number of the agent yields to that of the hunk.
    let texts = [
        join(place.map(|(index, count)| format!("[{index} of {count}]"))),
        join(place.map(|(index, count)| format!("[{index}/{count}]"))),
        join(None),
    ];
    let room = usize::from(width.saturating_sub(x));
    if let Some(text) = texts.iter().find(|text| text.width() <= room) {
        canvas.put_right(width, 0, text, Role::Text);
    }
}

fn draw_tabs(model: &Model, canvas: &mut Canvas<'_>, observation: Option<&Observation>) {
    let row = model.find_row(&model.agent.agent);
    // A copy's counts come from the observation that it was taken with.
    let shown = model.agent.cached_observation.as_deref().or(observation);
    let content = shown.and_then(|shown| shown.content.as_ref());
    let mut scratch = match shown.and_then(known_scratch_lines) {
        Some(lines) if canvas.width() < MIN_SIDE_BY_SIDE_COLUMNS => format!("Scratch {lines}"),
        Some(lines) => format!("Scratch {}", format_count(lines, "line")),
        None => "Scratch".to_string(),
    };
    if let Some(marked) = model.agent.marked_lines_of(&model.agent.agent) {
        scratch.push_str(&format!(", {} marked", marked.len()));
    }
    // The opened run of the history is not the present state.
    let drift = content
        .and_then(|content| content.boundary)
        .filter(|b| b.is_drifted() && model.agent.history.open_seq.is_none())
        .map(|boundary| format!("+{} -{}", boundary.added_lines, boundary.removed_lines));
    let drift_cells = drift.as_ref().map_or(0, |drift| drift.width() + 2);
    let search = |room: usize| {
        let pane = model.agent.current_pane();
        let hit = (!pane.hits.is_empty()).then_some(pane.current_hit + 1);
        search_note(
            &pane.query,
            hit,
            pane.hits.len(),
            room.saturating_sub(drift_cells),
        )
    };
    let offered = AgentTab::offered_for(row);
    // Of more tabs, two begin with the same letter.
    let short_length = if offered.contains(&AgentTab::Health) {
        3
    } else {
        1
    };
    let titles = |is_short: bool| -> Vec<&str> {
        let title = |tab: &AgentTab| match *tab {
            tab if is_short && tab != model.agent.tab => &tab_title(tab)[..short_length],
            AgentTab::Scratch => scratch.as_str(),
            tab => tab_title(tab),
        };
        offered.iter().map(title).collect()
    };
    let room_beside = |titles: &[&str]| {
        let cells: usize = titles.iter().map(|title| title.width() + 3).sum();
        let room = canvas.room(0).checked_sub(cells + fleet_name_width(model));
        room.map(|room| room.saturating_sub(2))
    };
    // The fleet's name and tag need the room, and so do the hit of a search and the drift.
    let note_cells = search(0).width() + drift_cells;
    let has_room = room_beside(&titles(false)).is_some_and(|room| note_cells <= room);
    let is_narrow = canvas.width() < 80 && offered.len() > MAX_NARROW_TABS;
    let titles = titles(is_narrow || !has_room);
    let room = room_beside(&titles).unwrap_or(0);
    let mut x = 0;
    for (tab, title) in offered.iter().copied().zip(titles) {
        x = if tab == model.agent.tab {
            canvas.put_text(x, 1, &format!("[{title}]"), Role::Heading)
        } else {
            canvas.put_text(x, 1, &format!(" {title} "), Role::Dim)
        } + 1;
    }
    draw_fleet_name(model, canvas, x + 2, 1);
    let mut notes = vec![search(room)];
    notes.extend(drift);
    notes.retain(|note| !note.is_empty());
    notes.extend(display_options(model));
    // The first parts matter most, so the last are dropped.
    while notes.join("  ").width() > room && notes.pop().is_some() {}
    canvas.put_right(canvas.width(), 1, &notes.join("  "), Role::Dim);
}

/// Returns the display options of the text; those that hide something come first.
fn display_options(model: &Model) -> Vec<String> {
    let agent = &model.agent;
    let on = |on: bool| if on { "on" } else { "off" };
    let mut how = Vec::new();
    if agent.is_list() {
        return how;
    }
    if agent.has_diff_options() {
        // On a narrow screen this is shown with the findings.
        if model.size.0 >= MIN_SIDE_BY_SIDE_COLUMNS {
            let ws = if model.text_options.is_whitespace_ignored {
                "ignored"
            } else {
                "exact"
            };
            how.push(format!("ws: {ws}"));
        }
        how.push(match model.text_options.context_lines {
            Some(lines) => format!("context: {lines}"),
            None => "context: all".to_string(),
        });
    }
    how.push(format!("wrap: {}", on(model.text_options.is_wrapping)));
    if model.text_options.is_whitespace_marked && agent.is_file_text() {
        how.push("invisibles: on".to_string());
    }
    how
}

/// Returns the rows of the list on the agent screen that fit.
pub fn agent_list_height(model: &Model) -> usize {
    match model.agent.tab {
        AgentTab::Memory => model.rows_beside(memory::FRAME_ROWS),
        AgentTab::Health => model.rows_beside(health::FRAME_ROWS),
        _ => history::history_height(model),
    }
}
