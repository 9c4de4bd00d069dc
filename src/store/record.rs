//! Ledger records: what was done to an agent in a run, with which outcome. Plain types; the ledger
//! itself is [`super::ledger`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::unchanged_agents::UnchangedAgents;
use crate::archive::{EntryKind, WrittenEntry};
use crate::base::clock::BootTime;
use crate::base::diff::count_lines;
use crate::base::diff::drift::DriftCounts;
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::ErrorKind;
use crate::boundary::{Boundary, KeptScratch, MemoryAccumulator};
use crate::lint::ScanSummary;
use crate::store::trigger::Trigger;
use crate::transport::{Attributes, ObjectId, SpecialFile, SwapMethod};

/// Maximum number of entries or versions that one record names. With paths of up to 300 bytes, the
/// record fits into the reserve of the ledger.
pub(crate) const MAX_NAMES_PER_RECORD: usize = 200;

/// The operation that a record describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A reset.
    Reset,
    /// An undo of an earlier run.
    Undo,
    /// A push: the baseline was installed, and scratch kept below it.
    Push,
    /// Recovery from an interrupted run: a torn tail of the ledger, or displaced files. Memories
    /// stay unchanged.
    Repair,
    /// The archive was begun, before anything was recorded in it.
    Begin,
    /// Retention deletes entries or baseline versions. The record precedes the deletion.
    Retire,
    /// Entries were pinned: retention never deletes them.
    Pin,
    /// Entries were unpinned: retention may delete them again.
    Unpin,
    /// The present version of a baseline was sealed, or a baseline was taken out of the seal.
    Seal,
    /// A baseline was saved.
    Save,
    /// An earlier version of a baseline was put back.
    Restore,
    /// The guard put the sealed version of a baseline back, or gave up doing so.
    Guard,
    /// Files of an agent were replaced, created or removed.
    Edit,
    /// An operation of a later version, which this one ignores.
    #[default]
    #[serde(other)]
    Other,
}

impl Operation {
    /// The name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Reset => "reset",
            Operation::Undo => "undo",
            Operation::Push => "push",
            Operation::Repair => "repair",
            Operation::Begin => "begin",
            Operation::Retire => "retire",
            Operation::Pin => "pin",
            Operation::Unpin => "unpin",
            Operation::Seal => "seal",
            Operation::Save => "save",
            Operation::Restore => "restore",
            Operation::Guard => "guard",
            Operation::Edit => "edit",
            Operation::Other => "other",
        }
    }

    /// Returns whether its runs install baselines.
    pub fn installs_baselines(self) -> bool {
        matches!(self, Operation::Reset | Operation::Push)
    }

    /// Returns whether its runs can be undone.
    pub fn is_undoable(self) -> bool {
        self.replaces_memories() || self == Operation::Edit
    }

    /// Returns whether its runs replace memories.
    pub fn replaces_memories(self) -> bool {
        self.installs_baselines() || self == Operation::Undo
    }
}

/// Result of a run for one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done and read back.
    Ok,
    /// The memory already equals the baseline; nothing was written.
    Unchanged,
    /// Tried, and failed; the error says what the memory holds now.
    Failed,
    /// Not tried, for the reason given.
    Refused,
    /// The run was interrupted before this agent's turn.
    #[default]
    NotStarted,
}

impl Outcome {
    /// The name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Unchanged => "unchanged",
            Outcome::Failed => "FAILED",
            Outcome::Refused => "REFUSED",
            Outcome::NotStarted => "not started",
        }
    }

    /// Outcomes that count as failures.
    pub const FAILURES: [Outcome; 3] = [Outcome::Failed, Outcome::Refused, Outcome::NotStarted];

    /// Returns whether the outcome is one of [`Outcome::FAILURES`].
    pub fn is_failure(self) -> bool {
        Outcome::FAILURES.contains(&self)
    }

    /// The noun phrase behind a number of agents.
    pub fn count_label(self) -> &'static str {
        match self {
            Outcome::Refused => "refused",
            outcome => outcome.as_str(),
        }
    }
}

/// State of the path of a memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// There is no file.
    Absent,
    /// A file with this content.
    File {
        /// Digest of the whole file.
        sha256: Digest,
        /// Its size in bytes.
        size: u64,
        /// Its lines.
        lines: u64,
    },
    /// Something other than a plain file, which was not read.
    #[serde(rename = "odd")]
    Special(SpecialFile),
}

impl FileState {
    /// Returns the state of a file with these bytes.
    pub fn of(bytes: &[u8]) -> FileState {
        FileState::File {
            sha256: Digest::of(bytes),
            size: bytes.len() as u64,
            lines: count_lines(bytes) as u64,
        }
    }

    /// Returns the state of a file that was read to its end.
    pub(crate) fn from_reading(reading: &mut MemoryAccumulator) -> FileState {
        FileState::File {
            sha256: reading.digest(),
            size: reading.size(),
            lines: reading.line_count(),
        }
    }

    /// Digest of the content, if it is a file.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            FileState::File { sha256, .. } => Some(*sha256),
            _ => None,
        }
    }
}

/// A position between two lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerPosition {
    /// Number of the record that ends at this position; 0 at the beginning.
    pub seq: u64,
    /// Bytes before this position.
    pub offset: u64,
    /// Bytes before the line that ends at this position; as [`LedgerPosition::offset`] where that is
    /// not known.
    #[serde(rename = "from")]
    pub line_start: u64,
    /// Digest of that line.
    #[serde(rename = "head")]
    pub line_digest: Digest,
}

impl LedgerPosition {
    /// Returns the position before the line that ends here; `previous_digest` is the digest of the line that
    /// it continues.
    pub fn before_last_line(self, previous_digest: Digest) -> LedgerPosition {
        LedgerPosition {
            seq: self.seq - 1,
            offset: self.line_start,
            line_start: self.line_start,
            line_digest: previous_digest,
        }
    }
}

/// One line of the ledger. [`LedgerRecord::parse`] in `ledger/record_line.rs` reads it: a field that
/// is not part of the event is also in its `RecordHeader`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LedgerRecord {
    /// The line's number, from 1.
    pub seq: u64,
    /// Digest of the line before, without its line feed.
    #[serde(rename = "prev")]
    pub previous_digest: Digest,
    /// End of the operation, with the offset of local time.
    pub time: DateTime<FixedOffset>,
    /// The time since the machine started; none where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootTime>,
    /// The fields of the event, flattened into the record.
    #[serde(flatten)]
    pub event: RunEvent,
}

/// What a run did to one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileChange {
    /// The file's path; none for the memory and for a baseline, which the record names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// State of the file before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FileState>,
    /// State of the file after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FileState>,
    /// The entry that holds the state before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<WrittenEntry>,
    /// Entries with what late writers added.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "late")]
    pub late_entries: Vec<WrittenEntry>,
    /// Copies of these entries without their secrets, where the entries are in quarantine.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "redacted")]
    pub redacted_entries: Vec<WrittenEntry>,
    /// Names beside the file of displaced objects that no entry holds: a directory, or a file
    /// that could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "kept")]
    pub kept_names: Vec<String>,
    /// Identities of these objects, where known: agents can rename them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_ids: BTreeMap<String, ObjectId>,
    /// How the file was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<SwapMethod>,
    /// Owner, mode and attributes of the file before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Attributes>,
    /// Position of the agent's earlier record with the same attributes: long attributes are written
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "attributes_at")]
    pub attributes_position: Option<LedgerPosition>,
}

/// One operation on one agent in one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Id of the run; all agents of one run share it.
    pub run: String,
    /// What was done.
    #[serde(rename = "act")]
    pub operation: Operation,
    /// What started the run.
    pub trigger: Trigger,
    /// The operator's user name.
    pub user: String,
    /// The agent; empty when the ledger itself was repaired, for retention, pins and baselines, and
    /// where `unchanged` names several.
    pub agent: String,
    /// The memory's host.
    pub host: String,
    /// The host with user and port; none for this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// The path of the memory there; none without a memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<PathBuf>,
    /// How the run ended for this agent.
    pub outcome: Outcome,
    /// The agents that the run found unchanged, if they are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchanged: Option<Box<UnchangedAgents>>,
    /// Why it failed, or other information for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The kind of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ErrorKind>,
    /// Whether it failed because the host, or the file system, did not answer or has another key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "host_lost")]
    pub is_host_lost: bool,
    /// Whether it failed because the disk of the archive is full, and left the memory as it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "archive_full")]
    pub is_archive_full: bool,
    /// The baseline file, relative to `baseline_dir`, that was sealed, saved or restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The change of the memory or, where a baseline was saved or restored, of its file. Readers
    /// parse it as a part of its own, which is much faster than a flattened field.
    #[serde(flatten, skip_deserializing)]
    pub change: FileChange,
    /// The changes of the files of an edit, each with its path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChange>,
    /// The directories that the run created for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<PathBuf>,
    /// The baseline version that was pushed, sealed, saved or restored; of an unchanged memory, the
    /// version that it was found with, where no earlier record names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Digest>,
    /// The version that the accepted seal listed when a baseline was saved: another program may have made
    /// that seal.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "sealed")]
    pub sealed_version: Option<Digest>,
    /// The boundary in the memory before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    /// Lines above that boundary that the agent changed, by kind; none without drift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftCounts>,
    /// Lines of scratch before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_lines: Option<u64>,
    /// What a push kept of that scratch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_scratch: Option<KeptScratch>,
    /// The version whose operator part was above the scratch in the entry.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "split")]
    pub split_version: Option<Digest>,
    /// Duration in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// The run that this one undid.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "undoes")]
    pub undone_run: Option<String>,
    /// Entries that retention was about to delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "retired")]
    pub retired_entries: Vec<PathBuf>,
    /// Baseline versions that retention was about to delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired_versions: Vec<Digest>,
    /// Entries that were pinned or unpinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "pins")]
    pub pinned_entries: Vec<PathBuf>,
}

impl FileChange {
    /// The entries of what was written to the displaced file after it was captured.
    pub fn late_writes(&self) -> impl Iterator<Item = &WrittenEntry> {
        let late = self.late_entries.iter();
        late.filter(|written| matches!(written.kind, EntryKind::Late | EntryKind::Appended))
    }

    /// All entries that the run wrote for this file, redacted copies included.
    pub fn entries(&self) -> impl Iterator<Item = &WrittenEntry> {
        self.entry
            .iter()
            .chain(&self.late_entries)
            .chain(&self.redacted_entries)
    }
}

impl RunEvent {
    /// Creates the event of a run that is about to act on an agent; the caller fills in the
    /// outcome.
    pub(crate) fn new(
        run: &str,
        act: Operation,
        trigger: Trigger,
        user: &str,
        agent: &str,
    ) -> RunEvent {
        RunEvent {
            run: run.to_string(),
            operation: act,
            trigger,
            user: user.to_string(),
            agent: agent.to_string(),
            host: "local".to_string(),
            outcome: Outcome::Ok,
            ..RunEvent::default()
        }
    }

    /// Creates the event of a run that concerns the archive and no agent.
    pub(crate) fn for_archive(run: &str, act: Operation, trigger: Trigger, user: &str) -> RunEvent {
        RunEvent {
            host: String::new(),
            ..RunEvent::new(run, act, trigger, user, "")
        }
    }

    /// All changes of files, that of the memory or the baseline first.
    pub fn changes(&self) -> impl Iterator<Item = &FileChange> {
        std::iter::once(&self.change).chain(&self.files)
    }

    /// Mutable variant of [`RunEvent::changes`].
    pub(crate) fn changes_mut(&mut self) -> impl Iterator<Item = &mut FileChange> {
        std::iter::once(&mut self.change).chain(&mut self.files)
    }

    /// The changes of the files of a step: that of the memory, or those of its several files.
    pub(crate) fn file_changes(&self) -> &[FileChange] {
        if self.files.is_empty() {
            std::slice::from_ref(&self.change)
        } else {
            &self.files
        }
    }

    /// Mutable variant of [`RunEvent::file_changes`].
    pub(crate) fn file_changes_mut(&mut self) -> &mut [FileChange] {
        if self.files.is_empty() {
            std::slice::from_mut(&mut self.change)
        } else {
            &mut self.files
        }
    }

    /// Whether another event has the same files with the same states before and after. Of an edit, a
    /// recovery may leave some of the files as they were; their state after is unknown then.
    pub(crate) fn has_same_states(&self, other: &RunEvent) -> bool {
        let is_edit = !self.files.is_empty();
        let is_same = |(one, two): (&FileChange, &FileChange)| {
            let is_left = is_edit && (one.after.is_none() || two.after.is_none());
            (&one.path, &one.before) == (&two.path, &two.before)
                && (one.after == two.after || is_left)
        };
        let has_common_result = || {
            let mut pairs = self.files.iter().zip(&other.files);
            pairs.any(|(one, two)| one.after.is_some() && one.after == two.after)
        };
        self.files.len() == other.files.len()
            && self.changes().zip(other.changes()).all(is_same)
            && (!is_edit || has_common_result())
    }

    /// Returns whether the run is an edit, or undoes one.
    pub fn is_about_files(&self) -> bool {
        self.operation == Operation::Edit || !self.files.is_empty()
    }

    /// Says what the run did, for messages about how it ended.
    pub(crate) fn describe_change(&self) -> &'static str {
        if self.is_about_files() {
            "the files were changed"
        } else {
            "the memory was replaced"
        }
    }

    /// Returns whether the run changed the memory.
    pub fn has_changed_memory(&self) -> bool {
        self.outcome == Outcome::Ok && self.operation.replaces_memories() && !self.is_about_files()
    }

    /// Returns whether the run changed the memory or other files, so that it can be undone.
    pub fn has_changed_files(&self) -> bool {
        self.outcome == Outcome::Ok && self.operation.is_undoable()
    }

    /// Whether the run displaced an object that no undo can put back.
    pub fn is_irreversible(&self) -> bool {
        let is_removed = matches!(
            &self.change.before,
            Some(FileState::Special(special)) if special.is_removed_by_reset()
        );
        is_removed
            && self.removed_link_target().is_none()
            && self.change.kept_names.is_empty()
            && self.late_writes().next().is_none()
    }

    /// Returns the target of the symlink that the run removed from a memory's place on this machine;
    /// none if it removed another object.
    pub fn removed_link_target(&self) -> Option<&[u8]> {
        let Some(FileState::Special(SpecialFile::Symlink(target))) = &self.change.before else {
            return None;
        };
        // An object other than the captured one has a description of its own.
        let is_other =
            self.change.method == Some(SwapMethod::Create) || self.describes_other_object();
        (self.login.is_none() && !is_other).then_some(target)
    }

    /// Whether an entry describes an object that took the place of the one that was captured.
    pub fn describes_other_object(&self) -> bool {
        let mut late = self.change.late_entries.iter();
        late.any(|written| written.kind == EntryKind::Special)
    }

    /// Adds a note behind those that it has.
    pub fn add_note(&mut self, note: &str) {
        self.note = Some(match self.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note.to_string(),
        });
    }

    /// All entries that the run wrote for this agent, redacted copies included.
    pub fn entries(&self) -> impl Iterator<Item = &WrittenEntry> {
        self.changes().flat_map(FileChange::entries)
    }

    /// What the scan found in these entries.
    pub fn findings(&self) -> ScanSummary {
        let mut sum = ScanSummary::default();
        let found = self.entries().filter_map(|entry| entry.findings.as_ref());
        found.for_each(|findings| sum.add(findings));
        sum
    }

    /// The entries of what was written to the displaced file after the memory was captured.
    pub fn late_writes(&self) -> impl Iterator<Item = &WrittenEntry> {
        self.changes().flat_map(FileChange::late_writes)
    }
}

/// The last run of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    /// Id of the run.
    pub run: String,
    /// End of the run.
    pub time: DateTime<FixedOffset>,
    /// What it did.
    #[serde(rename = "act")]
    pub operation: Operation,
    /// How it ended.
    pub outcome: Outcome,
    /// The kind of the failure, as in the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ErrorKind>,
    /// Whether it failed because the host was lost, as in the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "host_lost")]
    pub is_host_lost: bool,
    /// Whether it failed because the disk of the archive is full, as in the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "archive_full")]
    pub is_archive_full: bool,
    /// Whether it was the undo of an undo.
    #[serde(default, rename = "redo")]
    pub is_redo: bool,
}

impl LastRun {
    /// The outcome in one word; an undo that succeeded is "undone" or "redone", not "ok".
    pub fn outcome_label(&self) -> &'static str {
        match (self.operation, self.outcome) {
            (Operation::Undo, Outcome::Ok) if self.is_redo => "redone",
            (Operation::Undo, Outcome::Ok) => "undone",
            (_, outcome) => outcome.as_str(),
        }
    }
}

/// Returns a random id for a run.
pub(crate) fn new_run_id() -> String {
    // The random name has 32 digits behind its prefix; eight are enough here.
    durable::new_random_name()
        .map_or_else(|_| "00000000".to_string(), |name| name[10..18].to_string())
}
