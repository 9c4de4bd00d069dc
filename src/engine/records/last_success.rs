//! When agents were last reset, by the ledger: for alerts and metrics.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, FixedOffset};

use crate::base::error::Result;
use crate::engine::records::RunHistory;
use crate::store::record::{LastRun, Operation, Outcome};
use crate::store::trigger::Trigger;

/// Numbers of runs by their result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs in which no agent failed.
    pub ok: usize,
    /// The others.
    pub failed: usize,
}

/// What the last run that a timer or the scheduler started did to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedReset {
    /// The run.
    pub run: String,
    /// When it was recorded.
    pub time: DateTime<FixedOffset>,
    /// How it ended.
    pub outcome: Outcome,
}

impl RunHistory {
    /// Returns the last reset, push or undo of an agent, with any outcome.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn last_run(&self, agent: &str) -> Result<Option<LastRun>> {
        Ok(self.context.history(agent)?.last_run)
    }

    /// Returns when each agent was last reset or pushed to with success. An agent that was found
    /// unchanged counts. Of an agent whose last run failed, records before `limit` are not
    /// read.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn last_successes(
        &self,
        limit: DateTime<FixedOffset>,
    ) -> Result<BTreeMap<String, DateTime<FixedOffset>>> {
        self.last_times(Some(limit), |operation, outcome| {
            operation.installs_baselines() && !outcome.is_failure()
        })
    }

    /// Returns when each agent was last reset or pushed to, with any outcome. Undos since do not
    /// count.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn last_installs(&self) -> Result<BTreeMap<String, DateTime<FixedOffset>>> {
        self.last_times(None, |operation, _| operation.installs_baselines())
    }

    /// Returns when each agent last had a turn that counts, by operation and outcome. Of an agent whose
    /// last turn does not count, records before `limit` are not read.
    fn last_times(
        &self,
        limit: Option<DateTime<FixedOffset>>,
        counts: impl Fn(Operation, Outcome) -> bool,
    ) -> Result<BTreeMap<String, DateTime<FixedOffset>>> {
        let is_recent = |time| limit.is_none_or(|limit| time >= limit);
        let mut times = BTreeMap::new();
        let mut missing = BTreeSet::new();
        for agent in &self.context.config().agents {
            match self.last_run(&agent.name)? {
                Some(last) if counts(last.operation, last.outcome) => {
                    times.insert(agent.name.clone(), last.time);
                }
                Some(last) if is_recent(last.time) => {
                    missing.insert(agent.name.clone());
                }
                _ => {}
            }
        }
        if missing.is_empty() {
            return Ok(times);
        }
        self.context.ledger().for_each_record_backwards(|record| {
            let time = record.time;
            for event in record.event.into_views() {
                if counts(event.operation, event.outcome) && missing.remove(&event.agent) {
                    times.insert(event.agent, time);
                }
            }
            !missing.is_empty() && is_recent(time)
        })?;
        Ok(times)
    }

    /// Returns whether a timer or the scheduler started a run that ended at `limit` or later.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn has_timed_run(&self, limit: DateTime<FixedOffset>) -> Result<bool> {
        let mut is_found = false;
        self.context.ledger().for_each_record_backwards(|record| {
            let is_recent = record.time >= limit;
            is_found |= is_recent && record.event.trigger == Trigger::Timer;
            is_recent && !is_found
        })?;
        Ok(is_found)
    }

    /// Returns for each agent the last reset that a timer or the scheduler started, and that ended at
    /// `limit` or later.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn last_timed_resets(
        &self,
        limit: DateTime<FixedOffset>,
    ) -> Result<HashMap<String, TimedReset>> {
        let mut resets = HashMap::new();
        self.context.ledger().for_each_record_backwards(|record| {
            let time = record.time;
            let is_timed = record.event.trigger == Trigger::Timer;
            if time < limit || !is_timed {
                return time >= limit;
            }
            for event in record.event.into_views() {
                if event.operation.installs_baselines() {
                    resets.entry(event.agent).or_insert(TimedReset {
                        run: event.run,
                        time,
                        outcome: event.outcome,
                    });
                }
            }
            resets.len() < self.context.config().reset_agents().count()
        })?;
        Ok(resets)
    }

    /// Counts the runs that replaced memories and ended at `begin` or later.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn count_runs(&self, begin: DateTime<FixedOffset>) -> Result<RunCounts> {
        let mut failures: HashMap<String, bool> = HashMap::new();
        self.context.ledger().for_each_record_backwards(|record| {
            let is_recent = record.time >= begin;
            let event = record.event;
            if is_recent && event.operation.replaces_memories() {
                *failures.entry(event.run).or_default() |= event.outcome.is_failure();
            }
            is_recent
        })?;
        let failed = failures.values().filter(|has_failed| **has_failed).count();
        Ok(RunCounts {
            ok: failures.len() - failed,
            failed,
        })
    }
}
