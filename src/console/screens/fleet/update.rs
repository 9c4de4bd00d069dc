//! What the fleet screen does: filters, sorts and marks agents, and moves its cursor.

use std::time::Duration;

use crate::console::columns::FleetColumn;
use crate::console::command::Command;
use crate::console::filter::{self, FilterSubject};
use crate::console::key::{Key, KeyCode};
use crate::console::message::Effect;
use crate::console::model::{AgentRow, Model, known_scratch_lines, step_index};
use crate::console::screens::agent::update::row_ages;
use crate::console::screens::baseline_plan;
use crate::console::screens::fleet::state::{SortOrder, ViewState};
use crate::console::screens::log::state::MessageLevel;
use crate::engine::{FileState, Observation};

/// Time after a cursor key in which the next one counts as held; the strip then waits.
const STRIP_DELAY: Duration = Duration::from_millis(80);

/// Maximum number of runs in a trend.
const TREND_RUNS: usize = 8;

impl Model {
    /// Restores the saved view of the fleet.
    pub fn restore_view_state(&mut self, view: ViewState) {
        self.fleet.is_filter_restored = !view.filter.is_empty();
        self.fleet.sort_order = view.sort_order;
        self.fleet.is_reversed = view.is_reversed;
        self.fleet.filter.clone_from(&view.filter);
        self.fleet.saved_view_state = view;
        self.refresh_visible_agents();
        self.is_dirty = true;
    }

    /// Filters and sorts the fleet again. The cursor stays on its agent, or on the worst
    /// agent until it is pinned.
    pub fn refresh_visible_agents(&mut self) {
        let mut rows: Vec<&AgentRow> = self
            .rows
            .iter()
            .filter(|row| self.matches_filter(row))
            .collect();
        let memory_size = |row: &AgentRow| {
            row.last_readable_observation()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.size)
        };
        let scratch_size = |row: &AgentRow| {
            row.last_readable_observation()
                .and_then(known_scratch_lines)
                .unwrap_or(0)
        };
        let modified_at = |row: &AgentRow| {
            row.last_readable_observation()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.modified_ns)
        };
        let last_run_time = |row: &AgentRow| {
            row.latest_observation()
                .and_then(|seen| seen.last_run.as_ref())
                .map(|last| last.time)
        };
        match self.fleet.sort_order {
            SortOrder::Severity => rows.sort_by_key(|row| row.state()),
            SortOrder::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
            SortOrder::Size => rows.sort_by_key(|row| std::cmp::Reverse(memory_size(row))),
            SortOrder::Scratch => rows.sort_by_key(|row| std::cmp::Reverse(scratch_size(row))),
            SortOrder::Changed => rows.sort_by_key(|row| std::cmp::Reverse(modified_at(row))),
            SortOrder::LastRun => rows.sort_by_key(|row| last_run_time(row)),
        }
        if self.fleet.is_reversed {
            rows.reverse();
        }
        self.fleet.visible_agents = rows.into_iter().map(|row| row.name.clone()).collect();
        let is_cursor_hidden = self
            .fleet
            .cursor_agent
            .as_ref()
            .is_none_or(|name| !self.fleet.visible_agents.contains(name));
        if is_cursor_hidden || !self.fleet.is_cursor_pinned {
            let fleet = &mut self.fleet;
            let initial = fleet.initial_agent.as_ref();
            let shown = initial.filter(|name| fleet.visible_agents.contains(name));
            fleet.cursor_agent = shown.or(fleet.visible_agents.first()).cloned();
            self.fleet.strip_agent.clone_from(&self.fleet.cursor_agent);
        }
        if self.fleet.last_cursor_move.is_none() {
            // Nothing was scrolled on purpose: the worst rows stay visible if they fit.
            self.fleet.top = 0;
        }
        self.keep_fleet_cursor_visible();
    }

    fn matches_filter(&self, row: &AgentRow) -> bool {
        let seen = row.latest_observation();
        let hidden = seen.map(Observation::hidden_conditions).unwrap_or_default();
        filter::matches_filter(
            &self.fleet.filter,
            &FilterSubject {
                name: &row.name,
                host: seen.map_or("", |seen| &seen.host),
                login: row.address.login.as_deref().unwrap_or(""),
                state: row.state().as_str(),
                hidden_conditions: &hidden,
                reason: seen.map_or("", |seen| &seen.reason),
                is_marked: self.fleet.marks.contains(&row.name),
            },
        )
    }

    /// Scrolls the fleet so that the cursor is visible.
    pub fn keep_fleet_cursor_visible(&mut self) {
        let height = self.fleet_height();
        let index = self.fleet.cursor_index().unwrap_or(0);
        self.fleet.top = self
            .fleet
            .top
            .clamp((index + 1).saturating_sub(height), index);
        self.fleet.top = self
            .fleet
            .top
            .min(self.fleet.visible_agents.len().saturating_sub(height));
    }

    /// Computes the trends of the agents, if their column is visible.
    pub fn update_trends(&mut self) {
        self.fleet.trends.clear();
        if !self.preferences.columns.contains(&FleetColumn::Trend) {
            return;
        }
        for event in self.log.runs.iter().flat_map(|run| &run.events) {
            let Some(FileState::File { size, .. }) = event.before else {
                continue;
            };
            let sizes = self.fleet.trends.entry(event.agent.clone()).or_default();
            if sizes.len() < TREND_RUNS {
                sizes.push(size);
            }
        }
        // The runs are newest first.
        self.fleet
            .trends
            .values_mut()
            .for_each(|sizes| sizes.reverse());
    }
}

/// Moves the cursor by rows.
pub fn move_cursor(model: &mut Model, by: isize) {
    let fleet = &mut model.fleet;
    let index = fleet.cursor_index().unwrap_or(0);
    let index = step_index(index, by, fleet.visible_agents.len());
    fleet.cursor_agent = fleet.visible_agents.get(index).cloned();
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
    model.keep_fleet_cursor_visible();
}

/// Goes back one level: Esc clears the filter, the exit key quits.
pub fn go_back(model: &mut Model, key: Key) -> Vec<Effect> {
    let keymap = &model.preferences.keymap;
    let is_exit_key = keymap.is_exit_key(key);
    if key.code == KeyCode::Esc {
        if model.fleet.filter.is_empty() {
            let key = keymap.exit_key_text();
            model.show_hint(&format!("{key} quits"));
        } else {
            set_filter(model, String::new());
        }
    } else if is_exit_key && model.is_run_active() {
        // One exit key too many must not stop the run.
        let show = model.key_hint(Command::GoReset);
        let stop = model.key_hint(Command::Quit);
        model.show_hint(&format!(
            "a run is in progress; {show} shows it, {stop} stops it after the agents in progress"
        ));
    } else if is_exit_key {
        return baseline_plan::update::quit(model);
    }
    Vec::new()
}

/// Returns the ages on the screen.
pub fn visible_ages(model: &Model) -> Vec<String> {
    let names = model.fleet.visible_agents.iter().skip(model.fleet.top);
    names
        .take(model.fleet_height())
        .filter_map(|name| model.find_row(name))
        .filter_map(|row| row_ages(model, row))
        .collect()
}

/// Marks agents, or clears their marks.
pub fn change_marks(model: &mut Model, command: Command) {
    let fleet = &mut model.fleet;
    match command {
        Command::MarkRange => mark_range(model),
        Command::MarkAll => fleet.marks.extend(fleet.visible_agents.iter().cloned()),
        Command::ClearMarks => fleet.marks.clear(),
        _ => toggle_mark(model),
    }
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
    let fleet = &mut model.fleet;
    let Some(cursor) = fleet.cursor_index() else {
        return;
    };
    let anchor = fleet
        .visible_agents
        .iter()
        .position(|name| Some(name) == fleet.mark_anchor.as_ref())
        .unwrap_or(cursor);
    let range = anchor.min(cursor)..=anchor.max(cursor);
    fleet
        .marks
        .extend(fleet.visible_agents[range].iter().cloned());
    fleet.mark_anchor.clone_from(&fleet.cursor_agent);
}

/// Shows the agents that match a filter.
pub fn set_filter(model: &mut Model, filter: String) {
    model.fleet.filter = filter;
    model.fleet.is_filter_restored = false;
    model.refresh_visible_agents();
    model.is_dirty = true;
}

/// Sorts the fleet.
pub fn set_sort_order(model: &mut Model, sort: SortOrder) {
    model.fleet.sort_order = sort;
    // The order begins in the direction that the list describes.
    model.fleet.is_reversed = false;
    model.refresh_visible_agents();
    model.report(MessageLevel::Info, format!("sorted by {}", sort.label()));
}
