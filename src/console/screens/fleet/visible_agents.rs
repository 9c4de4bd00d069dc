//! The agents that the fleet screen shows: their filter and order, and the cursor on them.

use super::order::{FleetOrder, SortKey};
use super::state::{OutOfSight, ViewState};
use crate::console::agent_row::AgentRow;
use crate::console::filter::{Filter, FilterSubject};
use crate::console::model::Model;
use crate::engine::{Observation, State};

/// Restores the saved view of the fleet.
pub fn restore_view_state(model: &mut Model, view: ViewState) {
    model.fleet.is_filter_restored = !view.filter.is_empty();
    model.fleet.sort_order = view.sort_order;
    model.fleet.is_reversed = view.is_reversed;
    model.fleet.filter.clone_from(&view.filter);
    model.fleet.saved_view_state = view;
    refresh_visible_agents(model);
    model.is_dirty = true;
}

/// Filters and sorts the fleet again. The cursor stays on its agent, or on the worst
/// agent until it is pinned.
pub fn refresh_visible_agents(model: &mut Model) {
    let filter = Filter::new(&model.fleet.filter);
    let rows = model.rows.iter();
    let keys = rows.map(|row| sort_key(model, row, &filter)).collect();
    let states = model.rows.iter().map(AgentRow::state).collect();
    model.fleet.order = FleetOrder::new(keys, states, model.fleet.is_reversed);
    model.fleet.is_order_outdated = false;
    place_fleet_cursor(model);
}

/// Reverses the order of the fleet.
pub fn reverse_visible_agents(model: &mut Model) {
    model.fleet.is_reversed = !model.fleet.is_reversed;
    if model.fleet.is_order_outdated {
        return refresh_visible_agents(model);
    }
    model.fleet.order.reverse();
    place_fleet_cursor(model);
}

/// Filters and sorts the fleet again if agents have changed since.
pub fn refresh_outdated_order(model: &mut Model) {
    if model.fleet.is_order_outdated {
        refresh_visible_agents(model);
    }
}

/// Puts agents that have changed where they belong now, and leaves the others where they are.
pub fn move_changed_agents(model: &mut Model, places: &[usize]) {
    if model.fleet.is_order_outdated {
        return refresh_visible_agents(model);
    }
    let filter = Filter::new(&model.fleet.filter);
    for place in places {
        if let Some(row) = model.rows.get(*place) {
            let (key, state) = (sort_key(model, row, &filter), row.state());
            model.fleet.order.change(*place, key, state);
        }
    }
    place_fleet_cursor(model);
}

/// Returns what an agent is sorted by; none if the filter hides it.
fn sort_key(model: &Model, row: &AgentRow, filter: &Filter) -> Option<SortKey> {
    let is_shown = matches_filter(model, row, filter);
    is_shown.then(|| SortKey::new(model.fleet.sort_order, row))
}

/// Moves the cursor to a shown agent, unless it is on one and pinned.
fn place_fleet_cursor(model: &mut Model) {
    if fleet_cursor_index(model).is_none() || !model.fleet.is_cursor_pinned {
        let initial = model.fleet.initial_agent.as_deref();
        let shown = initial.filter(|name| shows_agent(model, name));
        let cursor = shown
            .or_else(|| visible_agent(model, 0))
            .map(str::to_string);
        model.fleet.set_cursor(cursor);
    }
    if model.fleet.last_cursor_move.is_none() {
        // Nothing was scrolled on purpose: the worst rows stay visible if they fit.
        model.fleet.list.top = 0;
    }
    keep_fleet_cursor_visible(model);
}

fn matches_filter(model: &Model, row: &AgentRow, filter: &Filter) -> bool {
    let seen = row.latest_observation();
    let hidden = seen.map(Observation::hidden_conditions).unwrap_or_default();
    let content = seen.and_then(|seen| seen.content.as_ref());
    let findings = content.map_or_else(String::new, |content| content.findings.describe());
    filter.matches(&FilterSubject {
        name: &row.name,
        host: seen.map_or("", |seen| &seen.host),
        login: row.address.login.as_deref().unwrap_or(""),
        state: row.state().as_str(),
        hidden_conditions: &hidden,
        reason: seen.map_or("", |seen| &seen.reason),
        findings: &findings,
        is_marked: model.fleet.marks.contains(&row.name),
    })
}

/// Returns the agent on a row of the fleet.
pub fn visible_agent(model: &Model, index: usize) -> Option<&str> {
    let row = model.rows.get(model.fleet.order.get(index)?)?;
    Some(&row.name)
}

/// Returns the agents of the fleet from a row on, in display order.
pub fn visible_rows(model: &Model, from: usize) -> impl Iterator<Item = &AgentRow> {
    let places = model.fleet.order.iter_from(from);
    places.filter_map(|place| model.rows.get(place))
}

/// Returns the row on which an agent is shown.
pub fn visible_index(model: &Model, name: &str) -> Option<usize> {
    model.fleet.order.position(model.rows.place(name)?)
}

/// Returns whether the filter shows an agent.
pub fn shows_agent(model: &Model, name: &str) -> bool {
    let place = model.rows.place(name);
    place.is_some_and(|place| model.fleet.order.shows(place))
}

/// Returns the row of the cursor.
pub fn fleet_cursor_index(model: &Model) -> Option<usize> {
    visible_index(model, model.fleet.cursor_agent.as_deref()?)
}

/// Returns the marked agents that the filter hides.
pub fn hidden_marked_agents(model: &Model) -> impl Iterator<Item = &String> {
    // Usually all agents are shown.
    let hides_any = model.fleet.order.len() < model.rows.len();
    let marks = hides_any.then(|| model.fleet.marks.iter());
    let marks = marks.into_iter().flatten();
    marks.filter(|name| !shows_agent(model, name))
}

/// Returns how many agents out of sight are in a worse state than the agent under the cursor, one
/// that needs attention.
pub fn worse_out_of_sight(model: &Model) -> OutOfSight {
    let Some(current) = model.current_row() else {
        return OutOfSight::default();
    };
    // Among the states that need no attention, none is worse than another.
    let state = current.state().min(State::Busy);
    let worse = State::ALL.into_iter().take_while(|it| *it < state);
    let is_any_worse = worse.map(|it| model.rows.count(it)).any(|count| count > 0);
    if !is_any_worse {
        return OutOfSight::default();
    }
    let (order, top) = (&model.fleet.order, model.fleet.list.top);
    let bottom = order.len().min(top + fleet_height(model));
    OutOfSight {
        above: order.count_worse(0..top, state),
        below: order.count_worse(bottom..order.len(), state),
    }
}

/// Scrolls the fleet so that the cursor is visible.
pub fn keep_fleet_cursor_visible(model: &mut Model) {
    let height = fleet_height(model);
    let cursor = fleet_cursor_index(model).unwrap_or(0);
    let count = model.fleet.order.len();
    model.fleet.list = model.fleet.list.scrolled_to(cursor, count, height);
}

/// Returns the number of fleet rows that fit.
pub fn fleet_height(model: &Model) -> usize {
    // Two lines of header, a rule, the column heads; a rule, the strip, the
    // message, the hints.
    let errors = [&model.errors.config, &model.errors.preferences];
    let errors = errors.iter().filter(|it| it.is_some()).count();
    let fixed = 7 + strip_height(model) + errors;
    model.rows_beside(fixed)
}

/// Returns the height of the strip below the fleet, in lines.
pub fn strip_height(model: &Model) -> usize {
    if model.size.1 >= 24 { 2 } else { 1 }
}
