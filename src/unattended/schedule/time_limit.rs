//! How long a scheduled run may take before the service manager stops it.

use std::collections::BTreeMap;

use crate::base::reset_interval::ResetInterval;
use crate::config::{Agent, Config};

/// How long a scheduled run waits for agents that another run has locked, in seconds.
const LOCK_WAIT_SECONDS: u32 = 120;

/// Returns the arguments of a scheduled reset in front of those that name the config.
pub fn reset_arguments() -> [String; 4] {
    [
        "reset",
        "--scheduled",
        "--wait",
        &LOCK_WAIT_SECONDS.to_string(),
    ]
    .map(str::to_string)
}

/// Returns the arguments behind those that name the config: the agent, if it is about one.
pub fn agent_arguments(agent: Option<&str>) -> impl Iterator<Item = &str> {
    // The name of an agent may begin with a dash.
    agent.into_iter().flat_map(|agent| ["--", agent])
}

/// Time that a run needs apart from its agents, in seconds: locks, ledger, retention.
const BASE_SECONDS: u64 = 180;

/// Time for the agents on one file system that answers, in seconds each.
const SECONDS_PER_AGENT: u64 = 5;

/// A reset of a remote agent takes at most this many replies that each need the host's timeout,
/// before the host counts as lost.
const TIMEOUTS_PER_REMOTE_AGENT: u64 = 4;

/// Returns the time limit of a run of these agents, in seconds: enough for slow hosts, and at most
/// the interval, because the next run is due then.
pub(super) fn start_limit_seconds<'a>(
    config: &Config,
    agents: impl Iterator<Item = &'a Agent>,
    interval: ResetInterval,
) -> u64 {
    let mut seconds = BASE_SECONDS + u64::from(LOCK_WAIT_SECONDS);
    // Agents of one host share its connection and come one after the other; hosts do not.
    let mut by_host: BTreeMap<_, u64> = BTreeMap::new();
    let mut has_local = false;
    for agent in agents {
        seconds += SECONDS_PER_AGENT;
        match agent.host() {
            Some(host) => {
                *by_host.entry(host).or_default() +=
                    u64::from(host.timeout_seconds) * TIMEOUTS_PER_REMOTE_AGENT;
            }
            None => has_local = true,
        }
    }
    seconds += by_host.into_values().max().unwrap_or_default();
    if has_local {
        seconds += u64::from(config.general.local_timeout);
    }
    seconds.min(u64::from(interval.seconds()))
}
