//! Checks of runs in progress: one that holds the locks of its agents for long may hang.

use std::collections::BTreeMap;

use super::DoctorReport;
use crate::engine::{Engine, LockHolder};
use crate::quantity::{describe_duration, format_count};

/// Time from which on a run is suspected to hang.
const LONG_RUN_TIME: chrono::Duration = chrono::Duration::hours(1);

/// Names each run that holds locks of agents, and warns of one that has held them for long.
pub(super) fn check_runs(report: &mut DoctorReport, engine: &Engine) {
    let mut runs: BTreeMap<String, (LockHolder, Vec<String>)> = BTreeMap::new();
    for held in engine.held_locks() {
        // A run that has not written its name yet has just begun.
        if let Some(holder) = held.holder {
            let (_, agents) = runs
                .entry(holder.run.clone())
                .or_insert_with(|| (holder, Vec::new()));
            agents.push(held.agent);
        }
    }
    for (holder, agents) in runs.into_values() {
        let held_for = engine.clock().now() - holder.since;
        let agents = match agents.as_slice() {
            [one] => one.clone(),
            several => format_count(several.len() as u64, "agent"),
        };
        let seconds = held_for.num_seconds().max(0).unsigned_abs();
        let text = format!(
            "{} has been at work on {agents} for {}",
            holder.describe(),
            describe_duration(seconds)
        );
        if held_for < LONG_RUN_TIME {
            report.add_ok(text);
        } else {
            let hint = format!(
                "see what process {} waits for; its lock is never broken, and is free once the process has ended",
                holder.pid
            );
            report.add_warning(text, &hint);
        }
    }
}
