//! Checks of runs in progress: one that holds the locks of its agents for long may hang.

use std::collections::BTreeMap;

use super::{DoctorReport, FleetSubject};
use crate::base::quantity::format_count;
use crate::engine::{LockHolder, describe_lock};

/// Time from which on a run is suspected to hang, in seconds.
const LONG_RUN_SECONDS: u64 = 3600;

/// Names each run that holds locks of agents, and warns of one that has held them for long.
pub(super) fn check_runs(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let now = engine.clock().now();
    let mut runs: BTreeMap<String, (LockHolder, Vec<String>)> = BTreeMap::new();
    for held in engine.locks().held_locks() {
        // A run that has not written its name yet has just begun.
        if let Some(holder) = held.holder {
            let (_, agents) = runs
                .entry(holder.run.clone())
                .or_insert_with(|| (holder, Vec::new()));
            agents.push(held.agent);
        }
    }
    for (holder, agents) in runs.into_values() {
        let agents = match agents.as_slice() {
            [one] => one.clone(),
            several => format_count(several.len() as u64, "agent"),
        };
        let text = format!(
            "{agents}: {}",
            describe_lock(Some(&holder), now, fleet.engine.clock().zone())
        );
        if holder.held_seconds(now) < LONG_RUN_SECONDS {
            report.add_ok(text);
        } else {
            let hint = format!(
                "see what process {} on {} waits for; its lock is never broken, and is free once the \
                 process has ended",
                holder.pid, holder.host
            );
            report.add_warning(text, &hint);
        }
    }
    report.add_ok_if_silent("no run holds the lock of an agent");
}
