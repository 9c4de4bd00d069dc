//! The progress and the result of a run, as callers receive them.

use std::path::PathBuf;

use serde::Serialize;

use crate::archive::WrittenEntry;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::lint::ScanSummary;
use crate::store::record::{Operation, Outcome, new_run_id};

/// The stages of an agent's turn, as the user sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunStage {
    /// Taking the lock, recovering interrupted runs.
    Lock,
    /// Reading the memory and archiving it.
    Archive,
    /// Putting the new file in place.
    Swap,
    /// Settling the displaced file.
    Settle,
    /// Reading back and recording.
    Verify,
}

impl RunStage {
    /// All stages, in order.
    pub const ALL: [RunStage; 5] = [
        RunStage::Lock,
        RunStage::Archive,
        RunStage::Swap,
        RunStage::Settle,
        RunStage::Verify,
    ];

    /// Returns the stage's name, for display.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStage::Lock => "lock",
            RunStage::Archive => "archive",
            RunStage::Swap => "swap",
            RunStage::Settle => "settle",
            RunStage::Verify => "verify",
        }
    }
}

/// Progress of a run.
#[derive(Clone, Debug)]
pub enum RunProgress {
    /// An agent has reached a stage.
    Stage(String, RunStage),
    /// An agent's turn has ended.
    AgentDone(AgentResult),
    /// A line for `reset.log` and the terminal.
    LogLine(String),
}

/// The result of a run for one agent.
#[derive(Clone, Debug, Serialize)]
pub struct AgentResult {
    /// The agent's name.
    pub agent: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The kind of the problem, which determines the exit code; None if there was none.
    pub kind: Option<ErrorKind>,
    /// The reason of the outcome, and other notes.
    pub note: Option<String>,
    /// Hints what to do next.
    pub hints: Vec<String>,
    /// Whether it displaced an object that no undo can put back.
    #[serde(skip)]
    pub is_irreversible: bool,
    /// Whether it failed because the host, or the file system, did not answer or has another key.
    #[serde(skip)]
    pub is_host_lost: bool,
    /// Whether it failed because the disk of the archive is full, and left the memory as it was.
    #[serde(skip)]
    pub is_archive_full: bool,
    /// What the scan found in these entries; none if nothing was found.
    pub findings: Option<ScanSummary>,
    /// The archived entries, redacted copies included.
    pub entries: Vec<WrittenEntry>,
    /// Lines of scratch that were archived.
    pub scratch_lines: u64,
    /// The duration, in milliseconds.
    pub duration_ms: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The run's id.
    pub run: String,
    /// Reset or undo.
    #[serde(rename = "act")]
    pub operation: Operation,
    /// One result for each agent that was asked for, in the plan's order.
    pub results: Vec<AgentResult>,
    /// Errors that belong to no agent's result, as of retention and of recovery.
    #[serde(skip)]
    pub errors: Vec<Error>,
    /// Entries that retention deleted.
    #[serde(rename = "retired")]
    pub retired_entries: Vec<PathBuf>,
    /// Baseline versions that retention deleted.
    pub retired_versions: Vec<Digest>,
    /// Expired entries that retention keeps, with the reason, and other notes.
    pub notes: Vec<String>,
    /// Number and digest of the ledger's last record after the run; None if the ledger cannot be
    /// read.
    #[serde(rename = "head")]
    pub ledger_head: Option<(u64, Digest)>,
    /// Wall time from its start to the end of its last agent, in milliseconds; retention follows.
    pub duration_ms: u64,
}

impl RunReport {
    /// Creates the report of a run that failed before it got to any agent.
    pub fn of_failed_start(operation: Operation, error: &Error) -> RunReport {
        RunReport {
            run: new_run_id(),
            operation,
            results: Vec::new(),
            errors: vec![error.clone()],
            retired_entries: Vec::new(),
            retired_versions: Vec::new(),
            notes: Vec::new(),
            ledger_head: None,
            duration_ms: 0,
        }
    }

    /// Returns the most serious problem, if there was one.
    pub fn worst_kind(&self) -> Option<ErrorKind> {
        self.results
            .iter()
            .filter_map(|result| result.kind)
            .chain(self.errors.iter().map(Error::kind))
            .reduce(ErrorKind::more_serious)
    }

    /// Returns how many agents have this outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.results
            .iter()
            .filter(|result| result.outcome == outcome)
            .count()
    }
}
