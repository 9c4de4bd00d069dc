//! Step 2 of a reset: reads a memory and writes its archive entry in one pass, and determines the
//! content to install. The entry gets its name in step 3, after its content was synced.

use std::sync::Arc;

use chrono::{DateTime, FixedOffset};

mod planned_file;

use super::Run;
use super::early_end::EarlyEnd;
use super::entry_writer::{EntryWriter, PendingEntry, References};
use super::queued_turn::QueuedTurn;
use crate::archive::{self, EntryKind, WrittenEntry, is_quarantined};
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::as_operand;
use crate::base::untrusted;
use crate::boundary::{Baseline, Classification, DividedMemory, MemoryAccumulator};
use crate::config::Agent;
use crate::engine::runs::content::{ContentPart, ContentParts, Replacement};
use crate::engine::runs::plan::{BoundMemory, PlanBinding, PlanStep};
use crate::engine::runs::undo::InstallSource;
use crate::engine::watch::classified_content::{count_drift, describe_oversize};
use crate::store::file::ledger::AgentHistory;
use crate::store::record::{FileChange, FileState, RunEvent};
use crate::store::versions::VersionDraft;
use crate::transport::{
    Attributes, ByteSink, FailureCause, FileMetadata, MemoryDirectory, MemoryObject, SpecialFile,
    UnsyncedObject,
};

/// The size above which a displaced memory is compared with its entry before it is hashed, because
/// hashing takes much longer.
const LARGE_MEMORY_BYTES: u64 = 4 << 20;

/// Captures memories: reads them, and archives what a run takes out of them.
pub(super) struct MemoryCapture<'r, 'a> {
    pub(super) run: &'r Run<'a>,
}

impl<'a> MemoryCapture<'_, 'a> {
    /// Reads the memory and writes its entry in one pass; `None` if the memory already has the
    /// content to install. A memory under a lease ends the turn early, to be retried later. If
    /// `may_wait_for_lease` is false, it is displaced unread, and its content is archived when the
    /// displaced file is settled.
    pub(super) fn capture_memory(
        &self,
        agent: &'a Agent,
        queued: &QueuedTurn<'_>,
        directory: &dyn MemoryDirectory,
        event: &mut RunEvent,
        may_wait_for_lease: bool,
    ) -> Result<Option<Captured>, EarlyEnd> {
        let (runs, step) = (self.run.runs, queued.step);
        let history = runs.context.ledger().known_history(&agent.name)?;
        let references = self.load_references(agent, step, &history)?;
        let now = runs.context.clock().now();
        let mut reading = MemoryAccumulator::for_baseline(&references.current);
        let mut entry_writer = EntryWriter::new(&runs.scanner, agent, &references, now);
        let (object, attributes) = read_object(directory, may_wait_for_lease, &mut |bytes| {
            entry_writer.write(&mut reading, bytes)
        })?;
        self.check_object(agent, &history, directory, &object, event)?;
        let change = &mut event.change;
        let note = set_state_before(change, &object, attributes.as_ref(), &mut reading);
        note.into_iter().for_each(|note| event.add_note(&note));
        let classification = self.classify_found(agent, &object, &references, &reading);
        let mut source = self.run.content_source(agent, step, &references.current)?;
        let divided = DividedMemory::new(&reading, &classification);
        let push = self
            .run
            .push_content(agent, step, &object, &divided, &references.current)?;
        let memory = BoundMemory::new(&object, classification.boundary, reading.prefix());
        let is_installed = match &push {
            Some(push) => push.equals(&divided),
            None => matches!(object, MemoryObject::File(_)) && classification.is_clean,
        };
        let binding = PlanBinding::new(agent, source.digest(), &memory).with_push(push.as_ref());
        if self.run.is_up_to_date(step, &binding, is_installed)? {
            event.baseline = Some(references.current.digest());
            return Ok(None);
        }
        // There was no file before the undone run, and there is none now, or the same link.
        if source.is_in_place(event.change.before.as_ref()) {
            return Ok(None);
        }
        let appended_to = self.run.check_undo(agent, step, &source, event)?;
        event.kept_scratch = push.as_ref().map(|push| push.summary.clone());
        let kept_offset = push
            .map(|push| source.apply_push(self.run.context(), push))
            .transpose()?;
        event.change.after = Some(source.state.clone());
        let is_absent = object == MemoryObject::Absent;
        event.baseline = match step.undone_run {
            Some(_) => source.baseline,
            None => Some(references.current.digest()),
        };
        let versions =
            self.prepare_versions(step, &references, &classification, is_absent, &history)?;
        if !is_absent {
            self.set_classification(event, agent, &object, &classification, &reading);
        }
        let finish = || entry_writer.finish(&reading, &classification);
        let entry = self.pending_entry(queued, agent, &object, event, now, finish)?;
        let remainder = (reading.size() > LARGE_MEMORY_BYTES)
            .then(|| entry.archived_remainder(&reading, &classification));
        let append_offset = match kept_offset.flatten() {
            Some(offset) => Some(offset_of_kept_scratch(&entry, &reading, offset)?),
            None => appended_to
                .and_then(|left| entry.new_notes_offset(&reading, &classification, &left)),
        };
        if append_offset.is_some() && step.undone_run.is_some() {
            note_drift_left_out(event, &classification);
        }
        Ok(Some(Captured {
            source,
            attributes,
            inode: inode_of(&object),
            scratch_lines: classification.scratch_lines,
            entry,
            versions,
            append_offset,
            archived_remainder: remainder.flatten(),
            captured_at: now,
        }))
    }

    /// Checks by the object at the memory's path that the path is that of a memory.
    fn check_object(
        &self,
        agent: &Agent,
        history: &AgentHistory,
        directory: &dyn MemoryDirectory,
        object: &MemoryObject,
        event: &mut RunEvent,
    ) -> Result<(), Error> {
        match object {
            MemoryObject::Special(special) => self
                .run
                .runs
                .checks
                .misplacement_error(agent, history, special)
                .map_or(Ok(()), Err),
            // An undo restores what was at the memory's own path.
            MemoryObject::Absent if event.undone_run.is_none() => {
                let similar = self
                    .run
                    .runs
                    .checks
                    .find_similar_file(agent, history, directory);
                if let Some(similar) = similar {
                    let note = similar.note();
                    similar.refusal.map_or(Ok(()), Err)?;
                    event.add_note(&note);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Classifies the memory, and notes its state.
    fn classify_found(
        &self,
        agent: &Agent,
        object: &MemoryObject,
        references: &References,
        reading: &MemoryAccumulator,
    ) -> Classification {
        let classification = references.classify(reading);
        self.run
            .states
            .note_memory(agent, object, &classification, reading.size());
        classification
    }

    /// Sets the event's part of the memory that is the agent's.
    fn set_classification(
        &self,
        event: &mut RunEvent,
        agent: &Agent,
        object: &MemoryObject,
        classification: &Classification,
        reading: &MemoryAccumulator,
    ) {
        event.boundary = classification.boundary;
        event.drift = count_drift(classification, reading.prefix(), self.run.context().clock());
        if let MemoryObject::File(_) = object {
            event.scratch_lines = Some(classification.scratch_lines);
            if let Some(reason) = describe_oversize(reading.size(), agent.max_memory_size()) {
                event.add_note(&format!("OVERSIZE: {} bytes, {reason}", reading.size()));
            }
        }
        if let Some(version) = &classification.version {
            event.split_version = classification.is_exact.then(|| version.digest());
        }
    }

    /// Loads the baselines that the memory is classified against.
    fn load_references(
        &self,
        agent: &'a Agent,
        step: &PlanStep,
        history: &AgentHistory,
    ) -> Result<References, Error> {
        let loaded = self.run.shared().baselines.load(agent);
        match (loaded, &step.undone_run) {
            (Ok(current), _) => {
                let earlier =
                    self.run
                        .runs
                        .baselines
                        .earlier_versions(agent, history, Some(&current));
                Ok(References { current, earlier })
            }
            (Err(refusal), None) => {
                self.run.states.note_refused_baseline(agent, &refusal);
                Err(refusal.error().clone())
            }
            // An undo restores old bytes, so a damaged baseline does not stop it; the
            // memory is then classified against the last baseline that was pushed.
            (Err(_), Some(_)) => {
                let earlier = self
                    .run
                    .runs
                    .baselines
                    .earlier_versions(agent, history, None);
                let none = || Arc::new(agent.cut_baseline(Vec::new()));
                let current = earlier.first().cloned().unwrap_or_else(none);
                Ok(References { current, earlier })
            }
        }
    }

    /// Returns the entry of what was read; `finish` ends the one that the reading wrote.
    fn pending_entry(
        &self,
        queued: &QueuedTurn<'_>,
        agent: &Agent,
        object: &MemoryObject,
        event: &RunEvent,
        now: DateTime<FixedOffset>,
        finish: impl FnOnce() -> Result<PendingEntry>,
    ) -> Result<PendingEntry> {
        Ok(match object {
            MemoryObject::Absent => PendingEntry::None,
            MemoryObject::Special(special) => PendingEntry::Draft(
                Box::new(self.draft_description(agent, special, now)?),
                EntryKind::Special,
            ),
            MemoryObject::File(_) => match self.find_reusable_entry(agent, queued, event)? {
                Some(written) => PendingEntry::Reused(written),
                None => finish()?,
            },
        })
    }

    /// Prepares the baseline versions that the memory's record names.
    fn prepare_versions(
        &self,
        step: &PlanStep,
        references: &References,
        classification: &Classification,
        is_absent: bool,
        history: &AgentHistory,
    ) -> Result<Vec<PendingVersion>, Error> {
        let current = &references.current;
        let is_reset = step.undone_run.is_none();
        let pushed = is_reset.then_some(current);
        let split = classification
            .version
            .as_ref()
            .filter(|version| !is_absent && (!is_reset || version.digest() != current.digest()));
        let versions = pushed.into_iter().chain(split);
        versions
            .map(|version| self.prepare_version(version, history))
            .collect()
    }

    /// Names the entry and the baseline versions that belong to it. The caller must sync the
    /// returned directories.
    pub(super) fn name_entry(
        &self,
        agent: &Agent,
        captured: &mut Captured,
        change: &mut FileChange,
    ) -> Result<Vec<UnsyncedObject>, Error> {
        let runs = self.run.runs;
        let mut unsynced = Vec::new();
        for version in captured.versions.drain(..) {
            let mut is_on_disk = version.was_pushed;
            if let Some(draft) = version.draft {
                is_on_disk = false;
                draft.assign_name()?;
            } else if !version.is_checked
                && let Some(draft) = runs
                    .context
                    .baseline_versions()
                    .start_version(version.baseline.digest(), version.baseline.bytes())?
            {
                // The agent that should have written it has failed.
                is_on_disk = false;
                durable::sync_all(draft.unsynced_content())?;
                draft.assign_name()?;
            }
            // Every agent that needs the version syncs it, also one that did not write it.
            if !is_on_disk {
                unsynced.extend(
                    runs.context
                        .baseline_versions()
                        .open_unsynced(version.baseline.digest())?,
                );
            }
        }
        change.entry = match std::mem::replace(&mut captured.entry, PendingEntry::None) {
            PendingEntry::None => None,
            PendingEntry::Reused(written) => {
                unsynced.extend(runs.context.archive().open_unsynced(&written.path)?);
                Some(written)
            }
            PendingEntry::Draft(mut draft, kind) => {
                let written = draft.assign_name(kind, captured.captured_at)?;
                unsynced.push(draft.unsynced_directory());
                Some(written)
            }
        };
        let Some(written) = &change.entry else {
            return Ok(unsynced);
        };
        self.log_archived(agent, change, written, captured.scratch_lines);
        if let (Some(skip), Replacement::File(parts)) =
            (captured.append_offset, &mut captured.source.replacement)
        {
            let (_, whole_lines) = parts.measure(&runs.context)?;
            if !whole_lines {
                parts.0.push(ContentPart::Bytes(Arc::new(b"\n".to_vec())));
            }
            parts.0.push(ContentPart::Entry(written.path.clone(), skip));
            (captured.source.state, _) = parts.measure(&runs.context)?;
            change.after = Some(captured.source.state.clone());
        }
        Ok(unsynced)
    }

    fn prepare_version(
        &self,
        version: &Arc<Baseline>,
        history: &AgentHistory,
    ) -> Result<PendingVersion, Error> {
        let checked = self.run.shared().drafted_versions.insert(version.digest());
        let draft = checked.then(|| {
            self.run
                .context()
                .baseline_versions()
                .start_version(version.digest(), version.bytes())
        });
        Ok(PendingVersion {
            baseline: Arc::clone(version),
            draft: draft.transpose()?.flatten(),
            is_checked: checked,
            was_pushed: history.pushed_versions.contains(&version.digest()),
        })
    }

    /// Stores the version that a memory was found with, unless the ledger already names it as the
    /// agent's last one. Returns whether the run's record is to name it.
    ///
    /// # Errors
    /// The ledger cannot be read, or the archive cannot be written.
    pub(super) fn store_found_version(&self, agent: &str, version: Digest) -> Result<bool> {
        let history = self.run.context().history(agent)?;
        if history.pushed_versions.first() == Some(&version) {
            return Ok(false);
        }
        let loaded = self
            .run
            .shared()
            .baselines
            .load(self.run.context().agent(agent)?);
        // The file may have changed since the plan.
        let Some(baseline) = loaded.ok().filter(|it| it.digest() == version) else {
            return Ok(false);
        };
        self.run
            .context()
            .baseline_versions()
            .store(baseline.bytes())?;
        Ok(true)
    }

    /// Returns the entry of a failed attempt that archived the same memory, in this run or in the
    /// last one: a reset that fails every three hours must not fill the archive.
    fn find_reusable_entry(
        &self,
        agent: &Agent,
        queued: &QueuedTurn<'_>,
        event: &RunEvent,
    ) -> Result<Option<WrittenEntry>, Error> {
        let failed_attempt = match &queued.failed_attempt {
            Some(attempt) => Some(attempt.clone()),
            None => {
                let history = self.run.context().ledger().known_history(&agent.name)?;
                history.failed_attempt.map(|attempt| *attempt)
            }
        };
        let same = failed_attempt.filter(|past| {
            past.before == event.change.before && past.split_version == event.split_version
        });
        let entry = same.map(|past| past.entry);
        Ok(entry.filter(|entry| {
            let found = self.run.context().archive().digest_entry(&entry.path);
            let is_allowed_place =
                !agent.archive_findings.has_quarantine() || is_quarantined(&entry.path);
            let is_clean = || {
                self.run
                    .runs
                    .scanner
                    .scan_entry(agent, event, entry)
                    .summary
                    .is_clean()
            };
            found.is_ok_and(|digest| digest == entry.digest) && (is_allowed_place || is_clean())
        }))
    }

    /// Starts the entry that describes an object that is not read.
    pub(super) fn draft_description(
        &self,
        agent: &Agent,
        special: &SpecialFile,
        now: DateTime<FixedOffset>,
    ) -> Result<archive::EntryDraft, Error> {
        let mut draft = self.run.runs.scanner.start_entry(agent)?;
        let after = match special {
            SpecialFile::Leased => {
                " Its content follows in an entry of its own when the lease is released."
            }
            _ => "",
        };
        draft.write(
            format!(
                "# {} — {}\n\nThe object at the memory's path was {}. It was displaced \
                 unread.{after}\n",
                agent.name,
                archive::format_stamp(now.naive_local()),
                untrusted::visible_line(special.to_string())
            )
            .as_bytes(),
        )?;
        Ok(draft)
    }

    fn log_archived(&self, agent: &Agent, change: &FileChange, written: &WrittenEntry, lines: u64) {
        let what = match (&change.path, written.kind) {
            (Some(path), _) => format!("Archived {} of {}", path.display(), agent.name),
            (None, EntryKind::Scratch) => {
                let plural = if lines == 1 { "" } else { "s" };
                format!("Archived {lines} scratch line{plural} of {}", agent.name)
            }
            (None, EntryKind::Special) => {
                format!(
                    "Described the object at the memory's path of {}",
                    agent.name
                )
            }
            (None, _) => format!("Archived the whole memory of {}", agent.name),
        };
        let path = as_operand(&written.path);
        self.run.log_line(&format!("{what} as {}", path.display()));
    }
}

/// What a turn has read and archived, and what it is going to install.
pub(super) struct Captured {
    pub(super) source: InstallSource,
    pub(super) attributes: Option<Attributes>,
    pub(super) inode: u64,
    pub(super) scratch_lines: u64,
    entry: PendingEntry,
    versions: Vec<PendingVersion>,
    /// The offset in the entry of the notes that an undo appends, or that a push keeps.
    append_offset: Option<u64>,
    /// For a large memory: the bytes above the part that is in the entry, and the offset in the
    /// entry of that part.
    archived_remainder: Option<(Vec<u8>, u64)>,
    captured_at: DateTime<FixedOffset>,
}

/// A baseline version to store.
struct PendingVersion {
    baseline: Arc<Baseline>,
    /// Its file, if this agent is the one of those that share the version that writes it.
    draft: Option<Box<dyn VersionDraft>>,
    /// Whether this agent's turn has compared the copy on the disk; only the first agent that
    /// shares the version does.
    is_checked: bool,
    /// Whether it was pushed to this agent before, so that it is on the disk already.
    was_pushed: bool,
}

/// Notes that an undo which appends what was written since leaves out what changed above it.
fn note_drift_left_out(event: &mut RunEvent, classification: &Classification) {
    if classification.boundary.is_some_and(|it| it.is_drifted()) {
        event.add_note("lines that changed above the separator since are in the archive alone");
    }
}

impl Captured {
    /// Whether the memory's notes are appended to the bytes to install.
    pub(super) fn has_appended_notes(&self) -> bool {
        self.append_offset.is_some()
    }

    /// Returns the parts that make up the memory that was read, for a comparison; only for a large
    /// memory.
    pub(super) fn take_archived_content(
        &mut self,
        entry: Option<&WrittenEntry>,
    ) -> Option<ContentParts> {
        let (above, skip) = self.archived_remainder.take()?;
        let entry = ContentPart::Entry(entry?.path.clone(), skip);
        Some(ContentParts(vec![
            ContentPart::Bytes(Arc::new(above)),
            entry,
        ]))
    }

    /// Returns the contents to sync before entry and versions get their names.
    pub(super) fn unsynced_contents(&self) -> impl Iterator<Item = UnsyncedObject> {
        let entry = match &self.entry {
            PendingEntry::Draft(draft, _) => Some(draft.unsynced_content()),
            _ => None,
        };
        let drafts = self.versions.iter();
        let versions = drafts.filter_map(|version| version.draft.as_ref());
        entry
            .into_iter()
            .chain(versions.filter_map(|draft| draft.unsynced_content()))
    }
}

/// Reads the memory. Returns the object there, and the attributes of a file.
fn read_object(
    directory: &dyn MemoryDirectory,
    may_wait_for_lease: bool,
    sink: ByteSink<'_>,
) -> Result<(MemoryObject, Option<Attributes>), EarlyEnd> {
    let object = directory.stat_memory()?;
    if !matches!(object, MemoryObject::File(_)) {
        return Ok((object, None));
    }
    match directory.read_memory(sink) {
        Ok(file) => {
            let attributes = file.attributes.clone();
            Ok((MemoryObject::File(file), Some(attributes)))
        }
        Err(error) if error.cause != FailureCause::Leased => Err(error.into()),
        Err(error) if may_wait_for_lease => Err(EarlyEnd::Leased(error.into())),
        // Its owner is read without opening it.
        Err(_) => {
            let attributes = directory.stat_leased_memory()?.attributes;
            let object = MemoryObject::Special(SpecialFile::Leased);
            Ok((object, Some(attributes)))
        }
    }
}

/// Returns the inode number of a file; 0 for another object, whose identity does not matter.
fn inode_of(object: &MemoryObject) -> u64 {
    match object {
        MemoryObject::File(file) => file.stamp.inode,
        _ => 0,
    }
}

/// Returns where in the entry the kept scratch begins, which is at `offset` in the memory.
fn offset_of_kept_scratch(
    entry: &PendingEntry,
    reading: &MemoryAccumulator,
    offset: u64,
) -> Result<u64> {
    entry.offset_in_entry(reading, offset).ok_or_else(|| {
        let message = "the kept scratch is not in the archive entry";
        Error::new(ErrorKind::Internal, message)
    })
}

/// Sets the state of a file before the run. Returns a note on what the run cannot keep of it.
fn set_state_before(
    change: &mut FileChange,
    object: &MemoryObject,
    attributes: Option<&Attributes>,
    reading: &mut MemoryAccumulator,
) -> Option<String> {
    change.attributes = attributes.cloned();
    let (state, note) = match object {
        MemoryObject::Absent => (FileState::Absent, None),
        MemoryObject::Special(special) => (FileState::Special(special.clone()), None),
        MemoryObject::File(file) => (FileState::from_reading(reading), lost_attributes_note(file)),
    };
    change.before = Some(state);
    note
}

/// Returns a note on the attributes of a memory that a reset cannot keep.
fn lost_attributes_note(file: &FileMetadata) -> Option<String> {
    let dropped_xattrs = (file.dropped_xattrs > 0).then(|| {
        format!(
            "{} or more extended attributes of the memory are not kept: together they exceed \
             64 KiB",
            file.dropped_xattrs
        )
    });
    let dropped_rights = (file.attributes.for_new_file() != file.attributes).then(|| {
        format!(
            "set-user, set-group and sticky bits and file capabilities of the memory (mode \
             {:04o}) are not kept",
            file.attributes.mode
        )
    });
    let notes: Vec<String> = dropped_xattrs.into_iter().chain(dropped_rights).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}
