//! The facts about one agent in the ledger, which observations and resets need.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::archive::WrittenEntry;
use crate::base::digest::Digest;
use crate::store::address::RecordedAddress;
use crate::store::record::{FileChange, FileState, LastRun, LedgerPosition, Outcome, RunEvent};
use crate::transport::ObjectId;

/// Maximum number of earlier versions of its baseline that are tried on a memory.
pub(crate) const MAX_EARLIER_VERSIONS: usize = 8;

/// Attributes with more bytes of extended attributes than this are long.
const LONG_ATTRIBUTES_BYTES: usize = 1024;

/// How many names of kept objects are stored per agent.
const MAX_KEPT_NAMES: usize = 8;

/// The facts about one agent in the ledger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentHistory {
    /// Baseline versions that runs installed or found in the memory, newest first, without repeats.
    #[serde(rename = "pushed")]
    pub pushed_versions: Vec<Digest>,
    /// The last reset, push or undo, with any outcome.
    #[serde(rename = "last")]
    pub last_run: Option<LastRun>,
    /// When an operation changed its memory of several files last, or an undo of one.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "edited")]
    pub last_edit: Option<DateTime<FixedOffset>>,
    /// Runs that undid another; the undo of one of them is a redo.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty", rename = "undos")]
    pub undo_runs: BTreeSet<String>,
    /// The last record, if it archived an entry and did not change the memory. Boxed, because it is
    /// rare and large.
    #[serde(rename = "tried")]
    pub failed_attempt: Option<Box<FailedAttempt>>,
    /// The address of the memory in the last record that found or left it as a file.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "file")]
    pub file_address: Option<Box<RecordedAddress>>,
    /// Names of objects that runs kept beside the memory, newest first; some may have been removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "kept")]
    pub kept_names: Vec<String>,
    /// The identities of these objects, where known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_ids: BTreeMap<String, ObjectId>,
    /// The digest of the last long attributes, and the position of the record that holds them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "attributes")]
    pub long_attributes: Option<(Digest, LedgerPosition)>,
}

/// An attempt that archived a memory and then failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// The state that it found.
    pub before: Option<FileState>,
    /// The version at which its entry is split.
    #[serde(rename = "split")]
    pub split_version: Option<Digest>,
    /// Its entry.
    pub entry: WrittenEntry,
}

impl FailedAttempt {
    /// Creates it from the event of a run that failed; none if the event names no entry.
    pub fn from_event(event: &RunEvent) -> Option<FailedAttempt> {
        Some(FailedAttempt {
            before: event.change.before.clone(),
            split_version: event.split_version,
            entry: event.change.entry.clone()?,
        })
    }
}

impl AgentHistory {
    /// Adds the event of a record that ends at a position.
    pub(in crate::store) fn add_event(
        &mut self,
        event: &RunEvent,
        time: DateTime<FixedOffset>,
        at: LedgerPosition,
    ) {
        if let Some(digest) = long_attributes_digest(&event.change) {
            self.long_attributes = Some((digest, at));
        }
        // A memory that equals its baseline is a file as well.
        let is_equal = event.operation.installs_baselines() && event.outcome == Outcome::Unchanged;
        if (event.has_changed_memory() || is_equal)
            && let Some(pushed) = event.baseline
        {
            self.pushed_versions.retain(|digest| *digest != pushed);
            self.pushed_versions.insert(0, pushed);
            self.pushed_versions.truncate(MAX_EARLIER_VERSIONS);
        }
        let states = event.change.before.iter().chain(&event.change.after);
        if is_equal || states.into_iter().any(|it| it.digest().is_some()) {
            self.file_address = Some(Box::new(RecordedAddress::from_event(event)));
        }
        let undone_run = event.undone_run.as_ref();
        let is_redo = undone_run.is_some_and(|run| self.undo_runs.contains(run));
        if undone_run.is_some() {
            self.undo_runs.insert(event.run.clone());
        }
        if event.operation.replaces_memories() && !event.is_about_files() {
            self.last_run = Some(LastRun {
                run: event.run.clone(),
                time,
                operation: event.operation,
                outcome: event.outcome,
                kind: event.kind,
                is_host_lost: event.is_host_lost,
                is_archive_full: event.is_archive_full,
                is_redo,
            });
        }
        if event.is_about_files() {
            self.last_edit = Some(time);
        }
        for name in &event.change.kept_names {
            self.kept_names.retain(|it| it != name);
            self.kept_names.insert(0, name.clone());
        }
        self.kept_names.truncate(MAX_KEPT_NAMES);
        self.kept_ids.extend(event.change.kept_ids.clone());
        let kept = &self.kept_names;
        self.kept_ids.retain(|name, _| kept.contains(name));
        self.failed_attempt = if event.has_changed_memory() {
            None
        } else {
            FailedAttempt::from_event(event).map(Box::new)
        };
    }

    /// Adds what the record of several unchanged agents says of this one.
    pub(in crate::store) fn add_unchanged(
        &mut self,
        view: &RunEvent,
        time: DateTime<FixedOffset>,
        at: LedgerPosition,
    ) {
        let known = self.file_address.take();
        self.add_event(view, time, at);
        // The record repeats no address that an earlier record has.
        if view.memory.is_none() || self.file_address.is_none() {
            self.file_address = known.or(self.file_address.take());
        }
    }
}

/// Returns the digest of the attributes of a file before its change, if they are long.
pub fn long_attributes_digest(change: &FileChange) -> Option<Digest> {
    let attributes = change.attributes.as_ref()?;
    let xattrs = attributes.xattrs.iter();
    let size: usize = xattrs.map(|(name, value)| name.len() + value.len()).sum();
    let json = (size > LONG_ATTRIBUTES_BYTES).then(|| serde_json::to_vec(attributes))?;
    json.ok().map(|json| Digest::of(&json))
}
