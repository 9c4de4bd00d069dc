//! Scheduled resets that are overdue, by the ledger, which timer or scheduler was to start them.

use std::fs;
use std::path::Path;

use chrono::{DateTime, FixedOffset, Utc};

use super::ScheduleControls;
use crate::base::error::Result;
use crate::base::reset_interval::ResetInterval;
use crate::config::{Agent, Protection};
use crate::engine::Engine;

/// A fleet that timers reset has a run of one within this time.
const TIMED_RUN_PERIOD: chrono::Duration = chrono::Duration::days(30);

/// An agent that was not reset within two of its intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedReset {
    /// The agent.
    pub agent: String,
    /// Its interval.
    pub interval: ResetInterval,
    /// When it was reset last; none if it was not within two of the longest intervals.
    pub last_success: Option<DateTime<FixedOffset>>,
    /// From when the time is counted: the last reset, when the agent was first seen, or the end of a
    /// pause or skip.
    pub since: DateTime<FixedOffset>,
}

impl MissedReset {
    /// Describes it as a sentence that begins with the agent.
    pub fn describe(&self) -> String {
        let (agent, interval) = (&self.agent, self.interval);
        match self.last_success {
            Some(time) => format!(
                "{agent} was last reset on {}, and is due every {interval}",
                time.format("%Y-%m-%d at %H:%M")
            ),
            None => format!("{agent} was not reset within two of its intervals of {interval}"),
        }
    }
}

/// Returns whether a timer or the scheduler started a run within 30 days.
///
/// # Errors
/// The ledger cannot be read.
pub fn has_recent_timed_run(engine: &Engine, now: DateTime<FixedOffset>) -> Result<bool> {
    match now.checked_sub_signed(TIMED_RUN_PERIOD) {
        Some(limit) => engine.history().has_timed_run(limit),
        None => Ok(false),
    }
}

/// Finds the agents whose scheduled reset is overdue. `first_seen` says since when an agent is known:
/// one that is new in the config had no chance yet. Where that is not known, an agent is as old as the
/// config's last change. Where no timer ever started a run, the interval of
/// the fleet says nothing.
///
/// # Errors
/// The ledger cannot be read.
pub fn find_missed_resets(
    engine: &Engine,
    controls: &ScheduleControls,
    first_seen: impl Fn(&str) -> Option<DateTime<FixedOffset>>,
    now: DateTime<FixedOffset>,
) -> Result<Vec<MissedReset>> {
    let config = engine.config();
    let of_fleet = has_recent_timed_run(engine, now)?.then_some(config.general.every);
    let limit_of =
        |interval: ResetInterval| chrono::Duration::seconds(2 * i64::from(interval.seconds()));
    let interval_of = |agent: &Agent| agent.own_interval().or(of_fleet);
    let intervals = config.reset_agents().filter_map(interval_of);
    let begin = intervals
        .map(limit_of)
        .max()
        .and_then(|longest| now.checked_sub_signed(longest));
    let Some(begin) = begin else {
        return Ok(Vec::new());
    };
    let successes = engine.history().last_successes(begin)?;
    let changed = changed_at(&config.path);
    // Timers leave out agents that are protected as read-only.
    let is_timed = |agent: &&Agent| agent.protect != Protection::ReadOnly;
    let missed = config.reset_agents().filter(is_timed).filter_map(|agent| {
        let interval = interval_of(agent)?;
        let last_success = successes.get(&agent.name).copied();
        let known = || first_seen(&agent.name).or(changed);
        let since = last_success.or_else(known).unwrap_or(now);
        // One whose reset was skipped, or whose pause has just ended, had no chance either.
        let released = controls.last_release(agent, now);
        let counted = released.map_or(since, |it| it.max(since));
        (now - counted > limit_of(interval)).then(|| MissedReset {
            agent: agent.name.clone(),
            interval,
            last_success,
            since: counted,
        })
    });
    Ok(missed.collect())
}

/// Returns when a file was changed last, as far as it is known.
fn changed_at(path: &Path) -> Option<DateTime<FixedOffset>> {
    let modified = fs::metadata(path).and_then(|meta| meta.modified()).ok()?;
    Some(DateTime::<Utc>::from(modified).fixed_offset())
}
