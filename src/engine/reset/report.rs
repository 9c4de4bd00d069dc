//! What a run says while it goes on and when it has ended.

use std::path::PathBuf;

use serde::Serialize;

use crate::archive::Written;
use crate::digest::Digest;
use crate::engine::ledger::{Operation, Outcome};
use crate::error::{Error, Kind};

/// The stages that a person sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
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

impl Stage {
    /// All stages in order.
    pub const ALL: [Stage; 5] = [
        Stage::Lock,
        Stage::Archive,
        Stage::Swap,
        Stage::Settle,
        Stage::Verify,
    ];

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Stage::Lock => "lock",
            Stage::Archive => "archive",
            Stage::Swap => "swap",
            Stage::Settle => "settle",
            Stage::Verify => "verify",
        }
    }
}

/// What a run says while it goes on.
#[derive(Clone, Debug)]
pub enum Progress {
    /// An agent has reached a stage.
    Stage(String, Stage),
    /// An agent is done.
    Done(AgentResult),
    /// A line for `reset.log` and for people.
    Line(String),
}

/// How it ended for one agent.
#[derive(Clone, Debug, Serialize)]
pub struct AgentResult {
    /// The agent's name.
    pub agent: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What decides the exit code, when it did not end well.
    pub kind: Option<Kind>,
    /// Why, or what else is worth knowing.
    pub note: Option<String>,
    /// What can be done about it.
    pub hints: Vec<String>,
    /// What was archived.
    pub entries: Vec<Written>,
    /// Lines of scratch that were archived.
    pub scratch_lines: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// How a run ended.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The run's id.
    pub run: String,
    /// Reset or undo.
    pub act: Operation,
    /// One result for each agent that was asked for, in the plan's order.
    pub results: Vec<AgentResult>,
    /// What went wrong beside the agents: retention, records that nobody
    /// settles.
    #[serde(skip)]
    pub trouble: Vec<Error>,
    /// Entries that retention deleted.
    pub retired: Vec<PathBuf>,
    /// What of the archive has expired and stays, and why; what else is worth knowing.
    pub notes: Vec<String>,
    /// Number and digest of the ledger's last record afterwards; none where the
    /// ledger cannot be read.
    pub head: Option<(u64, Digest)>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

impl Report {
    /// The most serious thing that happened, if anything did.
    pub fn kind(&self) -> Option<Kind> {
        self.results
            .iter()
            .filter_map(|result| result.kind)
            .chain(self.trouble.iter().map(Error::kind))
            .reduce(Kind::worst)
    }

    /// How many agents ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.results
            .iter()
            .filter(|result| result.outcome == outcome)
            .count()
    }
}
