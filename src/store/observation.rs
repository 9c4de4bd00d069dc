//! Observations: the state of an agent at one moment, and what keeps it from being reset. Plain
//! types, which are saved for the first screen of the next session.

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::address::MemoryAddress;
use super::known_health::KnownHealth;
use super::record::LastRun;
use super::scan_basis::ScanBasis;
use super::state::State;
use crate::archive::EntryKind;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::base::untrusted::HiddenCounts;
use crate::boundary::{Boundary, BoundaryRule};
use crate::config::Protection;
use crate::lint::ScanSummary;
use crate::store::lease::LockHolder;

/// State of an agent at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The agent's name.
    pub agent: String,
    /// Its host, or `local`.
    pub host: String,
    /// Location of its memory, where known.
    #[serde(default)]
    pub address: Option<MemoryAddress>,
    /// Its state: the worst of the conditions that hold.
    pub state: State,
    /// Why it is in this state; empty when the state's name suffices.
    #[serde(rename = "why", default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why a reset is not possible, if it is not.
    #[serde(rename = "block", skip_serializing_if = "Option::is_none")]
    pub blocker: Option<Blocker>,
    /// What to do about its state, besides the blocker's hints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// Its protection against resets, from the config.
    #[serde(rename = "protect")]
    pub protection: Protection,
    /// Time of the read.
    #[serde(rename = "read")]
    pub read_at: DateTime<FixedOffset>,
    /// Increases with every observation; the higher one is the newer.
    pub generation: u64,
    /// Size limit of the memory, in bytes.
    #[serde(rename = "limit")]
    pub max_size: u64,
    /// The content, if the memory was read.
    pub content: Option<MemoryContent>,
    /// Whether the memory is provably absent.
    #[serde(default, rename = "absent")]
    pub is_absent: bool,
    /// Whether the memory is one of several files, and its directory exists.
    #[serde(rename = "directory")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_directory: bool,
    /// What the last check of its memory of several files found; none where there is none, or before
    /// the first check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<KnownHealth>,
    /// Digest of the baseline that a reset would install.
    pub baseline: Option<Digest>,
    /// The last run on it.
    #[serde(rename = "last")]
    pub last_run: Option<LastRun>,
    /// Why the ledger could not be read, if it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_error: Option<String>,
    /// The run that holds its lock, if it has written who it is; also where a worse condition is the
    /// state.
    #[serde(skip)]
    pub lock_holder: Option<LockHolder>,
}

impl Observation {
    /// Returns whether all is known that an observation is about: the memory was read, or is
    /// provably absent, or is one of several files, which are read when they are looked at.
    pub fn is_content_known(&self) -> bool {
        self.content.is_some() || self.is_absent || self.is_directory
    }

    /// Returns whether the scratch is known: without a boundary and a baseline, no line of the
    /// memory is known to be scratch.
    pub fn is_scratch_known(&self) -> bool {
        let content = self.content.as_ref();
        content.is_some_and(|content| content.boundary.is_some() || self.baseline.is_some())
    }

    /// Returns the conditions that need an operator and hold although a worse one is the state.
    pub fn hidden_conditions(&self) -> Vec<State> {
        let is_ill = self.health.as_ref().is_some_and(KnownHealth::is_ill);
        let ill = (is_ill && self.state != State::Ill).then_some(State::Ill);
        let Some(content) = &self.content else {
            return ill.into_iter().collect();
        };
        let rule = content.boundary.map(|boundary| boundary.rule);
        let is_behind = match rule {
            Some(BoundaryRule::Behind(_)) => true,
            Some(BoundaryRule::Aligned(version)) => self.baseline.is_some_and(|it| it != version),
            Some(BoundaryRule::Intact) | None => false,
        };
        let is_drifted = content
            .boundary
            .is_some_and(|boundary| boundary.is_drifted());
        let conditions = [
            (State::Drifted, is_drifted),
            (State::Oversize, content.size > self.max_size),
            (State::Behind, is_behind),
        ];
        let hidden = conditions
            .into_iter()
            .filter(|(state, holds)| *holds && *state != self.state);
        hidden.map(|(state, _)| state).chain(ill).collect()
    }

    /// Returns whether a reset displaces scratch alone, or nothing. Plans of all other steps need a
    /// typed confirmation.
    pub fn is_intact(&self) -> bool {
        let boundary = self.content.as_ref().and_then(|content| content.boundary);
        self.is_absent || boundary.is_some_and(|boundary| !boundary.is_drifted())
    }
}

/// Result of reading a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryContent {
    /// Size in bytes.
    pub size: u64,
    /// Number of lines; an unfinished last line counts.
    pub lines: u64,
    /// Digest of the whole file.
    pub sha256: Digest,
    /// Last modification, in nanoseconds since 1970.
    #[serde(rename = "modified")]
    pub modified_ns: i64,
    /// The boundary, if there is one.
    pub boundary: Option<Boundary>,
    /// Lines below the boundary, without the baseline's own unchanged tail; all lines where there
    /// is no boundary.
    pub scratch_lines: u64,
    /// Bytes of these lines.
    pub scratch_bytes: u64,
    /// The entry that a reset writes of the memory, if any.
    pub entry_kind: Option<EntryKind>,
    /// Hidden characters in the part of the memory that was kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hidden: HiddenCounts,
    /// What the scan found in what the agent wrote.
    #[serde(default, skip_serializing_if = "is_default")]
    pub findings: ScanSummary,
    /// What they depend on besides.
    #[serde(rename = "scan")]
    pub scan_basis: ScanBasis,
}

/// Why an agent cannot be reset now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Decides the exit code.
    pub kind: ErrorKind,
    /// One sentence for people.
    #[serde(rename = "why")]
    pub reason: String,
    /// What the operator can do about it.
    #[serde(default)]
    pub hints: Vec<String>,
}

impl Blocker {
    /// Converts an error that keeps an agent from being reset.
    pub(crate) fn from_error(error: &Error) -> Blocker {
        Blocker {
            kind: error.kind(),
            reason: error.to_string(),
            hints: error.hints().to_vec(),
        }
    }

    /// Returns the error kind, and so the exit code, of a command for which a memory was not read:
    /// that of the blocker, if there is one.
    pub fn kind_of_unread(block: Option<&Blocker>) -> ErrorKind {
        match block.map(|block| block.kind) {
            Some(ErrorKind::Integrity) => ErrorKind::Integrity,
            _ => ErrorKind::Host,
        }
    }

    /// Converts the blocker into an error with another message.
    pub fn to_error(&self, message: impl Into<String>) -> Error {
        let error = Error::new(self.kind, message);
        self.hints
            .iter()
            .fold(error, |error, hint| error.with_hint(hint))
    }
}

/// Most memories have nothing hidden and no findings.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
