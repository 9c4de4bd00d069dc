//! What a run says while it goes on and when it has ended.

use std::path::PathBuf;

use serde::Serialize;

use crate::archive::WrittenEntry;
use crate::digest::Digest;
use crate::engine::ledger::{Operation, Outcome};
use crate::error::{Error, ErrorKind};

/// The stages that a person sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunStage {
    /// Taking the lock, settling an interrupted run.
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
    /// All stages in order.
    pub const ALL: [RunStage; 5] = [
        RunStage::Lock,
        RunStage::Archive,
        RunStage::Swap,
        RunStage::Settle,
        RunStage::Verify,
    ];

    /// The word for people.
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

/// What a run says while it goes on.
#[derive(Clone, Debug)]
pub enum RunProgress {
    /// An agent has reached a stage.
    Stage(String, RunStage),
    /// An agent is done.
    AgentDone(AgentResult),
    /// A line for `reset.log` and for people.
    LogLine(String),
}

/// How it ended for one agent.
#[derive(Clone, Debug, Serialize)]
pub struct AgentResult {
    /// The agent's name.
    pub agent: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What decides the exit code, when it did not end well.
    pub kind: Option<ErrorKind>,
    /// Why, or what else is worth knowing.
    pub note: Option<String>,
    /// What can be done about it.
    pub hints: Vec<String>,
    /// What was archived.
    pub entries: Vec<WrittenEntry>,
    /// Lines of scratch that were archived.
    pub scratch_lines: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// How a run ended.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The run's id.
    pub run: String,
    /// Reset or undo.
    #[serde(rename = "act")]
    pub operation: Operation,
    /// One result for each agent that was asked for, in the plan's order.
    pub results: Vec<AgentResult>,
    /// What went wrong beside the agents: retention, records that nobody
    /// settles.
    #[serde(skip)]
    pub errors: Vec<Error>,
    /// Entries that retention deleted.
    #[serde(rename = "retired")]
    pub retired_entries: Vec<PathBuf>,
    /// What of the archive has expired and stays, and why; what else is worth knowing.
    pub notes: Vec<String>,
    /// Number and digest of the ledger's last record afterwards; none where the
    /// ledger cannot be read.
    #[serde(rename = "head")]
    pub ledger_head: Option<(u64, Digest)>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

impl RunReport {
    /// The most serious thing that happened, if anything did.
    pub fn worst_kind(&self) -> Option<ErrorKind> {
        self.results
            .iter()
            .filter_map(|result| result.kind)
            .chain(self.errors.iter().map(Error::kind))
            .reduce(ErrorKind::more_serious)
    }

    /// How many agents ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.results
            .iter()
            .filter(|result| result.outcome == outcome)
            .count()
    }
}
