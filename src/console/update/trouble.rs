//! The trouble key, which opens the agents with new trouble one by one, and then the screen from before.
//! Trouble is new until a key shows its agent to the operator.

use crate::console::message::Effect;
use crate::console::model::trouble::{agent_on_screen, announced_trouble, is_at_visited_trouble};
use crate::console::model::{Model, TroubleOrigin, TroubleVisit};
use crate::console::screen::Screen;
use crate::console::screens::fleet::visible_agents::{keep_fleet_cursor_visible, shows_agent};
use crate::console::screens::{self, agent};

/// Opens the agent with the worst new trouble; from there the next one, and from the last one the
/// screen on which the key was pressed first.
pub fn go_to_trouble(model: &mut Model) -> Vec<Effect> {
    let is_at_visited = is_at_visited_trouble(model);
    let visit = model.trouble.visit.take().filter(|_| is_at_visited);
    let origin = visit.map(|visit| visit.origin);
    let Some(agent) = announced_trouble(model).map(str::to_string) else {
        return origin.map_or_else(Vec::new, |origin| go_back(model, origin));
    };
    let origin = origin.unwrap_or_else(|| TroubleOrigin {
        screen: model.screen,
        agent: model.agent_view(),
        cursor_agent: model.fleet.cursor_agent.clone(),
    });
    model.trouble.remove(&agent);
    model.trouble.visit = Some(TroubleVisit {
        agent: agent.clone(),
        origin,
    });
    agent::update::open_at_trouble(model, agent)
}

fn go_back(model: &mut Model, origin: TroubleOrigin) -> Vec<Effect> {
    if let Some(cursor) = origin.cursor_agent.filter(|name| shows_agent(model, name)) {
        model.fleet.set_cursor(Some(cursor));
        keep_fleet_cursor_visible(model);
    }
    if let Some(before) = origin.agent {
        agent::update::show_again(model, before);
        return Vec::new();
    }
    let screen = model.reopenable_screen(origin.screen);
    screens::return_to(model, screen)
}

/// Ends the trouble of the agent on the agent screen: an operator who presses keys there sees it.
pub(super) fn end_trouble_on_screen(model: &mut Model) {
    if let Some(agent) = agent_on_screen(model).map(str::to_string) {
        model.is_dirty |= model.trouble.remove(&agent);
    }
}

/// Ends the trouble of the agents that keys have shown to the operator: the one on the agent screen,
/// and the one that the cursor of the fleet has moved to.
pub(super) fn end_shown_trouble(model: &mut Model, cursor_before: Option<&str>) {
    end_trouble_on_screen(model);
    let cursor = model.fleet.cursor_agent.as_deref();
    let is_fleet = model.screen == Screen::Fleet;
    let moved_to = cursor.filter(|_| is_fleet && cursor != cursor_before);
    if let Some(agent) = moved_to.map(str::to_string) {
        model.is_dirty |= model.trouble.remove(&agent);
    }
    if has_left_visit(model) {
        model.trouble.visit = None;
    }
}

/// Whether the operator has gone on from the agent that the trouble key opened, other than to a screen
/// that leads back to it.
fn has_left_visit(model: &Model) -> bool {
    let Some(visit) = &model.trouble.visit else {
        return false;
    };
    let is_elsewhere = matches!(model.screen, Screen::Fleet | Screen::Agent);
    let has_returned = is_elsewhere || model.screen == visit.origin.screen;
    has_returned && !is_at_visited_trouble(model)
}
