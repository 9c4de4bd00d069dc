//! What the fleet screen does: filters, sorts and marks agents, and moves its cursor.

use std::time::Duration;

use crate::console::agent_row::AgentRow;
use crate::console::command::Command;
use crate::console::filter::{Filter, FilterSubject};
use crate::console::keys::key::{Key, KeyCode};
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screen::Screen;
use crate::console::screens::agent::update::row_ages;
use crate::console::screens::fleet::columns::FleetColumn;
use crate::console::screens::fleet::order::{FleetOrder, SortKey};
use crate::console::screens::fleet::sort_order::SortOrder;
use crate::console::screens::fleet::state::{OutOfSight, ViewState};
use crate::console::screens::{archives, baselines, log};
use crate::console::update::plan;
use crate::console::widgets::list_pane::step_index;
use crate::console::widgets::prompt::{Prompt, PromptPurpose};
use crate::engine::{FileState, Observation, State};

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
        let filter = Filter::new(&self.fleet.filter);
        let rows = self.rows.iter();
        let keys = rows.map(|row| self.sort_key(row, &filter)).collect();
        let states = self.rows.iter().map(AgentRow::state).collect();
        self.fleet.order = FleetOrder::new(keys, states, self.fleet.is_reversed);
        self.fleet.is_order_outdated = false;
        self.place_fleet_cursor();
    }

    /// Reverses the order of the fleet.
    pub fn reverse_visible_agents(&mut self) {
        self.fleet.is_reversed = !self.fleet.is_reversed;
        if self.fleet.is_order_outdated {
            return self.refresh_visible_agents();
        }
        self.fleet.order.reverse();
        self.place_fleet_cursor();
    }

    /// Filters and sorts the fleet again if agents have changed since.
    pub fn refresh_outdated_order(&mut self) {
        if self.fleet.is_order_outdated {
            self.refresh_visible_agents();
        }
    }

    /// Puts agents that have changed where they belong now, and leaves the others where they are.
    pub fn move_changed_agents(&mut self, places: &[usize]) {
        if self.fleet.is_order_outdated {
            return self.refresh_visible_agents();
        }
        let filter = Filter::new(&self.fleet.filter);
        for place in places {
            if let Some(row) = self.rows.get(*place) {
                let (key, state) = (self.sort_key(row, &filter), row.state());
                self.fleet.order.change(*place, key, state);
            }
        }
        self.place_fleet_cursor();
    }

    /// Returns what an agent is sorted by; none if the filter hides it.
    fn sort_key(&self, row: &AgentRow, filter: &Filter) -> Option<SortKey> {
        let is_shown = self.matches_filter(row, filter);
        is_shown.then(|| SortKey::new(self.fleet.sort_order, row))
    }

    /// Moves the cursor to a shown agent, unless it is on one and pinned.
    fn place_fleet_cursor(&mut self) {
        if self.fleet_cursor_index().is_none() || !self.fleet.is_cursor_pinned {
            let initial = self.fleet.initial_agent.as_deref();
            let shown = initial.filter(|name| self.shows_agent(name));
            let cursor = shown.or_else(|| self.visible_agent(0)).map(str::to_string);
            self.fleet.set_cursor(cursor);
        }
        if self.fleet.last_cursor_move.is_none() {
            // Nothing was scrolled on purpose: the worst rows stay visible if they fit.
            self.fleet.list.top = 0;
        }
        self.keep_fleet_cursor_visible();
    }

    fn matches_filter(&self, row: &AgentRow, filter: &Filter) -> bool {
        let seen = row.latest_observation();
        let hidden = seen.map(Observation::hidden_conditions).unwrap_or_default();
        filter.matches(&FilterSubject {
            name: &row.name,
            host: seen.map_or("", |seen| &seen.host),
            login: row.address.login.as_deref().unwrap_or(""),
            state: row.state().as_str(),
            hidden_conditions: &hidden,
            reason: seen.map_or("", |seen| &seen.reason),
            is_marked: self.fleet.marks.contains(&row.name),
        })
    }

    /// Returns the agent on a row of the fleet.
    pub fn visible_agent(&self, index: usize) -> Option<&str> {
        let row = self.rows.get(self.fleet.order.get(index)?)?;
        Some(&row.name)
    }

    /// Returns the agents of the fleet from a row on, in display order.
    pub fn visible_rows(&self, from: usize) -> impl Iterator<Item = &AgentRow> {
        let places = self.fleet.order.iter_from(from);
        places.filter_map(|place| self.rows.get(place))
    }

    /// Returns the row on which an agent is shown.
    pub fn visible_index(&self, name: &str) -> Option<usize> {
        self.fleet.order.position(self.rows.place(name)?)
    }

    /// Returns whether the filter shows an agent.
    pub fn shows_agent(&self, name: &str) -> bool {
        let place = self.rows.place(name);
        place.is_some_and(|place| self.fleet.order.shows(place))
    }

    /// Returns the row of the cursor.
    pub fn fleet_cursor_index(&self) -> Option<usize> {
        self.visible_index(self.fleet.cursor_agent.as_deref()?)
    }

    /// Returns the marked agents that the filter hides.
    pub fn hidden_marked_agents(&self) -> impl Iterator<Item = &String> {
        // Usually all agents are shown.
        let hides_any = self.fleet.order.len() < self.rows.len();
        let marks = hides_any.then(|| self.fleet.marks.iter());
        let marks = marks.into_iter().flatten();
        marks.filter(|name| !self.shows_agent(name))
    }

    /// Returns how many agents out of sight are in a worse state than the agent under the cursor, one
    /// that needs attention.
    pub fn worse_out_of_sight(&self) -> OutOfSight {
        let Some(current) = self.current_row() else {
            return OutOfSight::default();
        };
        // Among the states that need no attention, none is worse than another.
        let state = current.state().min(State::Busy);
        let worse = State::ALL.into_iter().take_while(|it| *it < state);
        let is_any_worse = worse.map(|it| self.rows.count(it)).any(|count| count > 0);
        if !is_any_worse {
            return OutOfSight::default();
        }
        let (order, top) = (&self.fleet.order, self.fleet.list.top);
        let bottom = order.len().min(top + self.fleet_height());
        OutOfSight {
            above: order.count_worse(0..top, state),
            below: order.count_worse(bottom..order.len(), state),
        }
    }

    /// Scrolls the fleet so that the cursor is visible.
    pub fn keep_fleet_cursor_visible(&mut self) {
        let height = self.fleet_height();
        self.fleet.list.cursor = self.fleet_cursor_index().unwrap_or(0);
        let count = self.fleet.order.len();
        self.fleet.list.fit(count, height);
    }

    /// Computes the trends of the agents, if their column is visible.
    pub fn update_trends(&mut self) {
        self.fleet.trends.clear();
        if !self.preferences.columns.contains(&FleetColumn::Trend) {
            return;
        }
        for event in self.log.runs.iter().flat_map(|run| &run.events) {
            let Some(FileState::File { size, .. }) = event.change.before else {
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
    let index = model.fleet_cursor_index().unwrap_or(0);
    let index = step_index(index, by, model.fleet.order.len());
    let name = model.visible_agent(index).map(str::to_string);
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
    model.keep_fleet_cursor_visible();
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
    } else if is_exit_key && model.is_run_active() {
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
    let rows = model.visible_rows(model.fleet.list.top);
    rows.take(model.fleet_height())
        .filter_map(|row| row_ages(model, row))
        .collect()
}

/// Marks agents, or clears their marks.
pub fn change_marks(model: &mut Model, command: Command) {
    match command {
        Command::MarkRange => mark_range(model),
        Command::MarkAll => {
            let names: Vec<String> = model.visible_rows(0).map(|row| row.name.clone()).collect();
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
    let Some(cursor) = model.fleet_cursor_index() else {
        return;
    };
    let anchor = model.fleet.mark_anchor.as_deref();
    let anchor = anchor.and_then(|name| model.visible_index(name));
    let anchor = anchor.unwrap_or(cursor);
    let (first, last) = (anchor.min(cursor), anchor.max(cursor));
    let rows = model.visible_rows(first).take(last - first + 1);
    let names: Vec<String> = rows.map(|row| row.name.clone()).collect();
    let fleet = &mut model.fleet;
    fleet.marks.extend(names);
    fleet.mark_anchor.clone_from(&fleet.cursor_agent);
}

/// Opens the input line of the filter, which begins empty.
pub fn begin_filter(model: &mut Model) {
    let old = std::mem::take(&mut model.fleet.filter);
    model.input_line = Some(Prompt {
        old: Some(old),
        ..Prompt::new(PromptPurpose::Filter)
    });
    set_filter(model, String::new());
}

/// Shows the agents that match a filter.
pub fn set_filter(model: &mut Model, filter: String) {
    model.fleet.filter = filter;
    model.fleet.is_filter_restored = false;
    model.return_point.filter_before_host = None;
    model.refresh_visible_agents();
    model.is_dirty = true;
}

/// Sorts the fleet.
pub fn set_sort_order(model: &mut Model, sort: SortOrder) {
    model.fleet.sort_order = sort;
    // The order begins in the direction that the list describes.
    model.fleet.is_reversed = false;
    model.refresh_visible_agents();
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
