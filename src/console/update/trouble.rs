//! What the trouble key does: it opens the agent with new trouble, and goes back from there. Keys that
//! bring an agent before the operator end its trouble.

use crate::console::message::Effect;
use crate::console::model::{Model, TroubleOrigin};
use crate::console::screen::Screen;
use crate::console::screens::{self, agent};

/// Opens the agent with the worst new trouble, and from there the next one; from the last one, goes
/// back to where the key was pressed first. Without new trouble, goes to the agent that it opened last.
pub(super) fn go_there_or_back(model: &mut Model) -> Vec<Effect> {
    let shown = model.trouble.shown().map(str::to_string);
    let origin = match model.is_at_visited_trouble() {
        true => model.trouble.origin.take(),
        false => None,
    };
    if let (None, Some(origin)) = (&shown, &origin) {
        return go_back(model, origin.clone());
    }
    let Some(name) = shown.or_else(|| model.trouble.visited.clone()) else {
        return Vec::new();
    };
    if model.find_row(&name).is_none() {
        model.trouble.visited = None;
        model.show_hint(&format!("{name} is no longer in the config"));
        return Vec::new();
    }
    model.trouble.origin = origin.or_else(|| {
        Some(TroubleOrigin {
            screen: model.screen,
            agent: model.agent_view(),
            cursor_agent: model.fleet.cursor_agent.clone(),
        })
    });
    model.trouble.visited = Some(name.clone());
    model.trouble.remove(&name);
    agent::update::open_at_finding(model, name)
}

fn go_back(model: &mut Model, origin: TroubleOrigin) -> Vec<Effect> {
    if let Some(cursor) = origin.cursor_agent.filter(|name| model.shows_agent(name)) {
        model.fleet.cursor_agent = Some(cursor);
        model
            .fleet
            .strip_agent
            .clone_from(&model.fleet.cursor_agent);
        model.keep_fleet_cursor_visible();
    }
    if let Some(before) = origin.agent {
        agent::update::show_again(model, before);
        return Vec::new();
    }
    let screen = model.reopenable_screen(origin.screen);
    screens::return_to(model, screen)
}

/// Ends the trouble of the agent that keys have brought before the operator: the one on the agent
/// screen, and the one that the cursor of the fleet has moved to.
pub(super) fn note_looked_at(model: &mut Model, cursor_before: Option<&str>) {
    let cursor = model.fleet.cursor_agent.as_deref();
    let agent = match model.screen {
        Screen::Agent => Some(model.agent.agent.as_str()),
        Screen::Fleet => cursor.filter(|_| cursor != cursor_before),
        _ => None,
    };
    if let Some(agent) = agent.map(str::to_string) {
        model.is_dirty |= model.trouble.remove(&agent);
    }
}
