//! Observations of the fleet, for commands.

use crate::base::error::Result;
use crate::config::Agent;
use crate::engine::{Engine, Observation};

/// Observes all agents of the config.
pub(super) fn observe_fleet(engine: &Engine) -> Vec<Observation> {
    let agents: Vec<_> = engine.config().agents.iter().collect();
    observe(engine, &agents)
}

/// Observes agents, and again those whose memories of several files a check that was due finds otherwise
/// than known.
fn observe(engine: &Engine, agents: &[&Agent]) -> Vec<Observation> {
    let mut seen = engine.observer().observe_all(agents);
    let changed = engine.health().check_due(agents);
    if changed.is_empty() {
        return seen;
    }
    let positions = (0..agents.len()).filter(|position| changed.contains(&agents[*position].name));
    let positions: Vec<usize> = positions.collect();
    let changed_agents: Vec<&Agent> = positions.iter().map(|it| agents[*it]).collect();
    let observations = engine.observer().observe_all(&changed_agents);
    for (position, observation) in positions.into_iter().zip(observations) {
        seen[position] = observation;
    }
    seen
}

/// Observes the agents with a memory of several files, and records what changed: no run does so.
pub(super) fn record_layouts(engine: &Engine) {
    let agents = engine.config().agents.iter();
    let agents: Vec<&Agent> = agents.filter(|agent| agent.layout.is_some()).collect();
    let seen = observe(engine, &agents);
    engine
        .observations()
        .record(&seen, engine.context().trigger());
}

/// Observes the named agents, or all where none is named: the worst first.
///
/// # Errors
/// An unknown agent.
pub(super) fn observe_worst_first(engine: &Engine, names: &[String]) -> Result<Vec<Observation>> {
    for name in names {
        engine.agent(name)?;
    }
    let agents = engine.config().agents.iter();
    let agents = agents.filter(|agent| names.is_empty() || names.contains(&agent.name));
    let mut observations = observe(engine, &agents.collect::<Vec<_>>());
    observations.sort_by_cached_key(|seen| seen.state);
    Ok(observations)
}
