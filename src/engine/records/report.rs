//! The report: what happened to the agents of the config since a moment, from the ledger and the log
//! of state changes. Plain owned data for the command line and the console.

mod collector;
mod growth;
mod rows;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use crate::base::error::Result;
use crate::engine::records::Reports;
use crate::lint::ScanSummary;
use crate::store::observations::StateObserver;
use crate::store::record::{Operation, Outcome};
use crate::store::state::State;
use collector::ReportCollector;
pub use rows::{ReportLevel, ReportRow};

/// What happened since a moment. The lists have the most recent or the worst item first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetReport {
    /// The moment.
    pub since: DateTime<FixedOffset>,
    /// The time of the report.
    pub until: DateTime<FixedOffset>,
    /// Resets, pushes and undos, by what started them.
    pub runs: Vec<RunTotals>,
    /// Number of agents that were reset.
    pub reset_agents: usize,
    /// Baselines that did not match their seal.
    pub seals: Vec<BrokenSealReport>,
    /// Restores by the guard, and those that it gave up.
    pub guard: Vec<GuardReport>,
    /// Agents whose turn failed or was refused.
    pub failures: Vec<FailureReport>,
    /// Hosts that could not be reached.
    pub hosts: Vec<HostReport>,
    /// Agents that changed their rules or lost their separator.
    pub drift: Vec<DriftReport>,
    /// Secrets and injections in what was archived.
    pub findings: Vec<FindingsReport>,
    /// Other states that ask for an operator.
    pub states: Vec<StateReport>,
    /// Agents that wrote while their memory was replaced.
    pub late_writers: Vec<LateWriterReport>,
    /// Agents that write much more than they used to.
    pub growth: Vec<GrowthReport>,
    /// Number of entries that retention deleted.
    pub retired_entries: usize,
    /// Why a part of the report is missing.
    pub notes: Vec<String>,
}

/// Runs of one trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunTotals {
    /// What started them.
    pub trigger: crate::engine::Trigger,
    /// Their number.
    pub runs: usize,
    /// Runs in which no agent failed.
    pub ok: usize,
    /// The others.
    pub failed: usize,
}

/// A baseline that did not match its seal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BrokenSealReport {
    /// The baseline, or the agent where it is never reset any more.
    pub baseline: String,
    /// The agents that use it.
    pub agents: Vec<String>,
    /// When it was first seen.
    pub first_seen: DateTime<FixedOffset>,
    /// What saw it.
    pub observer: StateObserver,
    /// When it had ended; none if it has not.
    pub ended: Option<DateTime<FixedOffset>>,
    /// Since when it lasts; none if it has ended.
    pub open_since: Option<DateTime<FixedOffset>>,
    /// Number of periods.
    pub times: usize,
    /// Why.
    #[serde(rename = "why")]
    pub reason: String,
}

/// What the guard did about a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuardReport {
    /// The file in `baseline_dir`.
    pub file: String,
    /// When, the last time.
    pub time: DateTime<FixedOffset>,
    /// How often it was restored.
    pub restores: usize,
    /// Whether the guard gave up on it.
    pub gave_up: bool,
}

/// An agent whose turn failed or was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureReport {
    /// The agent; empty for an error of a run that concerns no single agent.
    pub agent: String,
    /// What was tried, the last time.
    #[serde(rename = "act")]
    pub operation: Operation,
    /// How it ended.
    pub outcome: Outcome,
    /// The last time.
    pub time: DateTime<FixedOffset>,
    /// How often it failed.
    pub times: usize,
    /// Why: up to three causes, the newest first.
    #[serde(rename = "why")]
    pub reason: String,
    /// When it succeeded afterwards; none if it has not.
    pub recovered: Option<DateTime<FixedOffset>>,
}

/// A host that could not be reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostReport {
    /// The host, or the agent where it is on this machine now.
    pub host: String,
    /// Its agents that were lost.
    pub agents: Vec<String>,
    /// HOSTKEY or UNREACH.
    pub state: State,
    /// When it was lost, the first time.
    pub lost: DateTime<FixedOffset>,
    /// When it was back, the last time; none if it is not.
    pub back: Option<DateTime<FixedOffset>>,
    /// Since when it is lost; none if it is back.
    pub open_since: Option<DateTime<FixedOffset>>,
    /// How often it was lost.
    pub times: usize,
    /// Why: up to three causes, the newest first.
    #[serde(rename = "why")]
    pub reason: String,
}

/// A change of an agent's rules.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriftReport {
    /// The agent.
    pub agent: String,
    /// DRIFTED or NOSEP.
    pub state: State,
    /// When it was first seen; none if only the reset saw it.
    pub first_seen: Option<DateTime<FixedOffset>>,
    /// When it was archived and reset; none if it was not.
    pub reset: Option<DateTime<FixedOffset>>,
    /// The entry that holds it.
    pub entry: Option<String>,
    /// How often it was seen: periods without a reset are one item.
    pub times: usize,
    /// Whether the agent is still in this state: it was not reset, or that was undone.
    pub is_open: bool,
    /// Lines that were added above the boundary.
    pub added: Option<usize>,
    /// Lines that were removed there.
    pub removed: Option<usize>,
}

/// Secrets and injections in the entries of an agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FindingsReport {
    /// The agent.
    pub agent: String,
    /// What was found.
    #[serde(flatten)]
    pub summary: ScanSummary,
    /// The entries with findings, newest first.
    pub entries: Vec<String>,
    /// How many of them are in quarantine.
    pub quarantined: usize,
}

/// A state that asks for an operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateReport {
    /// The agent.
    pub agent: String,
    /// The state.
    pub state: State,
    /// When it was first seen.
    pub first_seen: DateTime<FixedOffset>,
    /// When it had ended; none if it has not.
    pub ended: Option<DateTime<FixedOffset>>,
    /// Since when it lasts; none if it has ended.
    pub open_since: Option<DateTime<FixedOffset>>,
    /// The operation of the run that ended it, the last time; none if it has not ended, or did so
    /// without a run.
    pub ended_by: Option<Operation>,
    /// Number of periods.
    pub times: usize,
    /// Why: up to three causes, the newest first.
    #[serde(rename = "why")]
    pub reason: String,
}

/// An agent that wrote while its memory was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LateWriterReport {
    /// The agent.
    pub agent: String,
    /// Number of entries of late writes.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// An agent that writes much more than it used to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GrowthReport {
    /// The agent.
    pub agent: String,
    /// Bytes archived a day since the moment.
    pub bytes_per_day: u64,
    /// The median of the days before.
    pub usual_bytes_per_day: u64,
}

impl Reports {
    /// Reports what happened since a moment.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn report(&self, since: DateTime<FixedOffset>) -> Result<FleetReport> {
        let now = self.context.clock().now();
        let mut collector = ReportCollector::new(&self.context, since, now);
        // The clock may have been set back in between.
        let limit = collector.first_needed_time() - chrono::Duration::days(1);
        let unread = self.context.ledger().for_each_record_backwards(|record| {
            let is_needed = record.time >= limit;
            if is_needed {
                collector.add_record(record);
            }
            is_needed
        })?;
        if let Some(error) = unread {
            collector.add_note(format!("older records are not reported: {error}"));
        }
        match self.context.observations().changes() {
            Ok(changes) => collector.add_changes(changes),
            Err(error) => {
                let note = format!("state changes are unknown: {error}");
                collector.add_note(note);
            }
        }
        Ok(collector.finish())
    }
}
