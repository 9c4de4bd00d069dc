//! Observations of the fleet, for commands.

use crate::base::error::Result;
use crate::engine::{Engine, Observation};

/// Observes all agents of the config.
pub(super) fn observe_fleet(engine: &Engine) -> Vec<Observation> {
    let agents: Vec<_> = engine.config().agents.iter().collect();
    engine.observer().observe_all(&agents)
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
    let mut observations = engine.observer().observe_all(&agents.collect::<Vec<_>>());
    observations.sort_by_cached_key(|seen| seen.state);
    Ok(observations)
}
