//! What the fleet screen does: filters, sorts and marks agents, and moves its cursor.

use std::time::Duration;

use super::visible_agents::{
    fleet_cursor_index, fleet_height, keep_fleet_cursor_visible, refresh_visible_agents,
    visible_agent, visible_index, visible_rows,
};
use crate::console::command::{Command, require};
use crate::console::keys::key::{Key, KeyCode};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::agent::update::row_ages;
use crate::console::screens::fleet::columns::FleetColumn;
use crate::console::screens::fleet::sort_order::SortOrder;
use crate::console::screens::{archives, baselines, log};
use crate::console::update::plan;
use crate::console::widgets::list_pane::step_index;
use crate::engine::FileState;

/// Time after a cursor key in which the next one counts as held; the strip then waits.
const STRIP_DELAY: Duration = Duration::from_millis(80);

/// Maximum number of runs in a trend.
const TREND_RUNS: usize = 8;

/// Computes the trends of the agents, if their column is visible.
pub fn update_trends(model: &mut Model) {
    model.fleet.trends.clear();
    if !model.preferences.columns.contains(&FleetColumn::Trend) {
        return;
    }
    for event in model.log.runs.iter().flat_map(|run| &run.events) {
        let Some(FileState::File { size, .. }) = event.change.before else {
            continue;
        };
        let sizes = model.fleet.trends.entry(event.agent.clone()).or_default();
        if sizes.len() < TREND_RUNS {
            sizes.push(size);
        }
    }
    // The runs are newest first.
    model
        .fleet
        .trends
        .values_mut()
        .for_each(|sizes| sizes.reverse());
}

/// Moves the cursor by rows.
pub fn move_cursor(model: &mut Model, by: isize) {
    let index = fleet_cursor_index(model).unwrap_or(0);
    let index = step_index(index, by, model.fleet.order.len());
    let name = visible_agent(model, index).map(str::to_string);
    let fleet = &mut model.fleet;
    fleet.cursor_agent = name;
    fleet.is_cursor_pinned = true;
    // The strip is two lines: under a held key it would cost more than the cursor itself.
    let is_key_held = fleet
        .last_cursor_move
        .is_some_and(|last| model.now.elapsed < last + STRIP_DELAY);
    fleet.last_cursor_move = Some(model.now.elapsed);
    if is_key_held {
        fleet.strip_due = Some(model.now.elapsed + STRIP_DELAY);
    } else {
        fleet.strip_agent.clone_from(&fleet.cursor_agent);
        fleet.strip_due = None;
    }
    keep_fleet_cursor_visible(model);
}

/// Goes to the fleet, from which nothing leads back to another screen.
pub fn open(model: &mut Model) {
    model.return_point.filter_before_host = None;
    model.go_to_screen(Screen::Fleet);
}

/// Goes back one level: to the hosts if the agents of one are shown; else Esc clears the filter, and the
/// exit key quits.
pub fn go_back(model: &mut Model, key: Key) -> Vec<Effect> {
    if let Some(filter) = model.return_point.filter_before_host.take() {
        set_filter(model, filter);
        model.go_to_screen(Screen::Hosts);
        return Vec::new();
    }
    let keymap = &model.preferences.keymap;
    let is_exit_key = keymap.is_exit_key(key);
    if key.code == KeyCode::Esc {
        if model.fleet.filter.is_empty() {
            let key = keymap.exit_key_text();
            model.show_hint(&format!("{key} quits"));
        } else {
            set_filter(model, String::new());
        }
    } else if is_exit_key && model.reset.is_run_active() {
        // One exit key too many must not stop the run.
        let show = model.key_hint(Command::GoReset);
        let stop = model.key_hint(Command::Quit);
        model.show_hint(&format!(
            "a run is in progress; {show} shows it, {stop} stops it after the agents in progress"
        ));
    } else if is_exit_key {
        return plan::quit(model);
    }
    Vec::new()
}

/// Returns the ages on the screen.
pub fn visible_ages(model: &Model) -> Vec<String> {
    let rows = visible_rows(model, model.fleet.list.top);
    rows.take(fleet_height(model))
        .filter_map(|row| row_ages(model, row))
        .collect()
}

/// Marks agents, or clears their marks.
pub fn change_marks(model: &mut Model, command: Command) {
    match command {
        Command::MarkRange => mark_range(model),
        Command::MarkAll => {
            let names: Vec<String> = visible_rows(model, 0).map(|row| row.name.clone()).collect();
            model.fleet.marks.extend(names);
        }
        Command::ClearMarks => model.fleet.marks.clear(),
        _ => toggle_mark(model),
    }
    model.fleet.note_changed_marks();
}

/// Marks or unmarks the agent under the cursor, and moves on.
fn toggle_mark(model: &mut Model) {
    let Some(name) = model.fleet.cursor_agent.clone() else {
        return;
    };
    if !model.fleet.marks.remove(&name) {
        model.fleet.marks.insert(name.clone());
        model.fleet.mark_anchor = Some(name);
    }
    move_cursor(model, 1);
}

/// Marks the agents from the last marked one to the cursor.
fn mark_range(model: &mut Model) {
    let Some(cursor) = fleet_cursor_index(model) else {
        return;
    };
    let anchor = model.fleet.mark_anchor.as_deref();
    let anchor = anchor.and_then(|name| visible_index(model, name));
    let anchor = anchor.unwrap_or(cursor);
    let (first, last) = (anchor.min(cursor), anchor.max(cursor));
    let rows = visible_rows(model, first).take(last - first + 1);
    let names: Vec<String> = rows.map(|row| row.name.clone()).collect();
    let fleet = &mut model.fleet;
    fleet.marks.extend(names);
    fleet.mark_anchor.clone_from(&fleet.cursor_agent);
}

/// Shows the agents that match a filter.
pub fn set_filter(model: &mut Model, filter: String) {
    model.fleet.filter = filter;
    model.fleet.is_filter_restored = false;
    model.return_point.filter_before_host = None;
    refresh_visible_agents(model);
    model.is_dirty = true;
}

/// Sorts the fleet.
pub fn set_sort_order(model: &mut Model, sort: SortOrder) {
    model.fleet.sort_order = sort;
    // The order begins in the direction that the list describes.
    model.fleet.is_reversed = false;
    refresh_visible_agents(model);
    model.report_info(format!("sorted by {}", sort.label()));
}

/// Reads all agents and what the screen shows again.
pub fn read_all(model: &mut Model) -> Vec<Effect> {
    model.report_info("reading all agents again");
    let names: Vec<String> = model.rows.iter().map(|row| row.name.clone()).collect();
    let ask = Effect::AllowQuestions(names.clone());
    let mut effects = vec![ask, Effect::ReadAgents(names), Effect::LoadLog];
    if model.screen == Screen::Baselines {
        effects.extend(baselines::update::reload(model));
    }
    archives::update::reload(model);
    effects.extend(log::update::schedule::refresh(model));
    effects
}

/// Checks that the cursor of the fleet is on an agent.
pub fn check_cursor(model: &Model) -> Result<(), String> {
    require(
        model.fleet.cursor_agent.is_some(),
        "no agent under the cursor",
    )
}
