//! Which agents are unreachable, and why.

use std::collections::HashMap;

use super::Model;
use crate::console::screens::hosts::state::{HostProblem, problem_of};
use crate::engine::{HostStatus, Reachability};

/// Returns why an agent is unreachable; `None` if no problem is known.
pub fn host_problem(model: &Model, name: &str) -> Option<HostProblem> {
    if let Some(status) = model.hosts.status_of_agent(name)
        && is_status_known(status)
    {
        return problem_of(status, model.now.local_time, &model.preferences.keymap);
    }
    let row = model.find_row(name).filter(|row| row.is_host_lost())?;
    Some(HostProblem {
        reason: row.observation.as_ref()?.reason.clone(),
        next_attempt: None,
    })
}

/// Returns how many agents have such a problem.
pub fn count_unreachable(model: &Model) -> usize {
    let (now, keymap) = (model.now.local_time, &model.preferences.keymap);
    let known = model.hosts.statuses().filter(|it| is_status_known(it));
    let known: HashMap<String, bool> = known
        .map(|it| (it.host.authority(), problem_of(it, now, keymap).is_some()))
        .collect();
    let hosts = model.rows.hosts();
    let counts = hosts.map(|(login, rows)| match login.and_then(|it| known.get(it)) {
        Some(true) => rows.agents,
        Some(false) => 0,
        None => rows.lost,
    });
    counts.sum()
}

/// Returns whether the connection tells more of a host than the observations of its agents.
fn is_status_known(status: &HostStatus) -> bool {
    let connection = &status.connection;
    connection.reachability != Reachability::Unknown || connection.pending_prompt.is_some()
}
