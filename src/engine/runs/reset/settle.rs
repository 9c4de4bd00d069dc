//! Step 4 of a reset: settles the files that a swap displaced, that is, archives late writes to
//! them and removes them.
//!
//! The entry of a late write holds the bytes that follow the archived ones, so an agent that
//! appends is charged for each byte once. A file that has changed at every inspection gets at most
//! [`MAX_LATE_ENTRIES_PER_RUN`] entries per run and [`MAX_LATE_ENTRIES`] in all. From then on it
//! stays beside the memory, with its journal, until a run finds it unchanged since the previous
//! run.

use std::collections::HashMap;
use std::path::Path;

use super::Run;
use crate::archive::{BaseContent, EntryKind, WrittenEntry};
use crate::base::digest::{Digest, Hasher};
use crate::base::error::{Error, ErrorKind};
use crate::config::Agent;
use crate::engine::runs::content::ContentParts;
use crate::engine::watch::degraded;
use crate::store::journal::{Journal, JournalRecord};
use crate::store::record::{FileChange, FileState};
use crate::transport::{
    Attributes, DisplacedObject, FileReader, MemoryDirectory, SettleOutcome, SpecialFile, Stamp,
    SwapMethod, TransportError,
};

/// The most late entries of one displaced file that keeps changing.
const MAX_LATE_ENTRIES: usize = 16;

/// The most of them in one run.
const MAX_LATE_ENTRIES_PER_RUN: usize = 4;

/// The files that the swap of one file displaced and that are not settled.
pub(super) struct DisplacedFiles {
    /// Index of the file in the transaction.
    pub(super) file: usize,
    pub(super) names: Vec<String>,
    /// Names beyond those that one recovery settles; they are left to later runs.
    pub(super) remaining_names: Vec<String>,
    /// Digests of contents that are archived already.
    pub(super) known_digests: Vec<Digest>,
    /// The memory as it was archived, where a comparison saves time.
    pub(super) archived_content: Option<ContentParts>,
    /// The late writes of displaced files, by their names.
    pub(super) late_writes: HashMap<String, LateWrites>,
    /// The method of a swap that is not in the journal yet.
    pub(super) unmarked_swap: Option<SwapMethod>,
}

impl DisplacedFiles {
    /// Whether this run has deferred all files that are left.
    pub(super) fn is_deferred(&self) -> bool {
        self.names.iter().all(|name| {
            self.late_writes
                .get(name)
                .is_some_and(|late| late.is_deferred)
        })
    }
}

/// The late writes of one displaced file.
#[derive(Default)]
pub(super) struct LateWrites {
    entry_count: usize,
    entries_in_run: usize,
    /// Digest and size of the content that was last archived.
    last_content: Option<(Digest, u64)>,
    /// The stamp of the file when an earlier run deferred it.
    deferred_stamp: Option<Stamp>,
    /// Whether this run has deferred it.
    is_deferred: bool,
}

impl LateWrites {
    /// Adds an entry of an earlier run.
    pub(super) fn add_earlier_entry(&mut self, written: &WrittenEntry) {
        self.entry_count += 1;
        self.last_content = Some(written.whole_content());
    }

    fn add_entry(&mut self, written: &WrittenEntry) {
        self.entries_in_run += 1;
        self.add_earlier_entry(written);
    }

    /// Sets the stamp with which an earlier run deferred the file.
    pub(super) fn set_deferred_stamp(&mut self, stamp: Stamp) {
        self.deferred_stamp = Some(stamp);
    }

    /// Whether the file, with this stamp now, may have no more entries in this run.
    fn has_reached_limit(&self, stamp: &Stamp) -> bool {
        self.entries_in_run >= MAX_LATE_ENTRIES_PER_RUN
            || self.entry_count >= MAX_LATE_ENTRIES && self.deferred_stamp != Some(*stamp)
    }
}

/// The result of inspecting a displaced file.
enum Inspection {
    /// Every byte of it is archived.
    Known,
    /// Its new bytes were archived, with these attributes.
    Archived(Box<WrittenEntry>, Attributes),
    /// It has reached the limit of entries, and has this stamp.
    Deferred(Stamp),
}

/// Settles the displaced files of one file of a turn.
pub(super) struct Settlement<'s, 'a> {
    pub(super) run: &'s Run<'a>,
    pub(super) agent: &'s Agent,
    pub(super) path: &'s Path,
    pub(super) directory: &'s dyn MemoryDirectory,
    pub(super) journal: &'s dyn Journal,
}

impl Settlement<'_, '_> {
    /// Tries to settle each displaced file, and returns notes for the user. Afterwards `displaced`
    /// names the files that a writer still has open and those that failed.
    pub(super) fn settle(
        &self,
        change: &mut FileChange,
        displaced: &mut DisplacedFiles,
    ) -> (Vec<String>, Result<(), Error>) {
        let directory = self.directory;
        let mut notes = Vec::new();
        let mut result = Ok(());
        // Once a displaced file is removed, only the journal can prove the swap.
        if let Some(method) = displaced.unmarked_swap
            && !displaced.names.is_empty()
        {
            let names = displaced.names.iter().chain(&displaced.remaining_names);
            let mark = JournalRecord::Swapped {
                file: displaced.file,
                method,
                displaced: names.cloned().collect(),
            };
            match self.journal.append_durably(&mark) {
                Ok(()) => displaced.unmarked_swap = None,
                Err(error) => return (notes, Err(error)),
            }
        }
        for name in std::mem::take(&mut displaced.names) {
            if displaced
                .late_writes
                .get(&name)
                .is_some_and(|late| late.is_deferred)
            {
                displaced.names.push(name);
                continue;
            }
            let settled = self.settle_file(change, &name, displaced, &mut notes);
            match settled {
                Ok(SettleOutcome::Removed { was_watched: true }) => {}
                Ok(SettleOutcome::Removed { was_watched: false }) => {
                    let why = degraded::undetectable_writers_reason(directory);
                    let why = why.as_deref().unwrap_or("no right to take file leases");
                    let note = format!("late writers cannot be detected here: {why}");
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                Ok(SettleOutcome::StillOpen) => displaced.names.push(name),
                // The file is gone, so it needs no settling, but the loss must be reported.
                Ok(SettleOutcome::Lost(error)) => result = Err(error),
                Ok(SettleOutcome::Kept(special)) => {
                    let display_name = directory.display_name(&name);
                    if !change.kept_names.contains(&display_name) {
                        notes.push(self.kept_object_note(change, &special, &display_name));
                        match directory.object_id(&name) {
                            Ok(id) => change
                                .kept_ids
                                .extend(id.map(|id| (display_name.clone(), id))),
                            Err(error) => result = Err(error.into()),
                        }
                        change.kept_names.push(display_name);
                        if let Err(error) = self.archive_description(&special, change) {
                            result = Err(error);
                        }
                    }
                }
                Err(error) => {
                    displaced.names.push(name);
                    result = Err(error);
                }
            }
        }
        (notes, result)
    }

    /// Archives a description of an object that was displaced unread, unless the run's entry has
    /// it.
    fn archive_description(
        &self,
        special: &SpecialFile,
        change: &mut FileChange,
    ) -> Result<(), Error> {
        if change.before != Some(FileState::Special(special.clone())) {
            let now = self.run.context().clock().now();
            let draft = self
                .run
                .memory_capture()
                .draft_description(self.agent, special, now)?;
            change
                .late_entries
                .push(draft.finish(EntryKind::Special, now.naive_local())?);
        }
        Ok(())
    }

    /// Settles one displaced file. Contents that are not archived get an entry, which the journal
    /// names before the file is removed.
    fn settle_file(
        &self,
        change: &mut FileChange,
        name: &str,
        displaced: &mut DisplacedFiles,
        notes: &mut Vec<String>,
    ) -> Result<SettleOutcome, Error> {
        let mut late = displaced.late_writes.remove(name).unwrap_or_default();
        let mut inspections = 0;
        let mut deferred_stamp = None;
        let settled = self.directory.settle(name, &mut |object| {
            let read = match object {
                DisplacedObject::File(read) => read,
                DisplacedObject::Special(special) => {
                    return self.archive_description(special, change);
                }
            };
            inspections += 1;
            // The second call inspects a file that has no name any more.
            let bounded = inspections == 1;
            match self.inspect_displaced(change, displaced, &late, bounded, read)? {
                Inspection::Known => {}
                Inspection::Archived(written, attributes) => {
                    let written = *written;
                    late.add_entry(&written);
                    displaced.known_digests.push(written.whole_content().0);
                    let path = written.path.display();
                    notes.push(format!("a late write was archived as {path}"));
                    change.late_entries.push(written.clone());
                    change.attributes = Some(attributes.clone());
                    self.journal.append_durably(&JournalRecord::LateEntry {
                        file: displaced.file,
                        name: name.to_string(),
                        written,
                        attributes,
                    })?;
                }
                Inspection::Deferred(stamp) => {
                    deferred_stamp = Some(stamp);
                    let message = "it keeps changing";
                    return Err(Error::new(ErrorKind::Partial, message));
                }
            }
            Ok(())
        });
        late.is_deferred = deferred_stamp.is_some();
        displaced.late_writes.insert(name.to_string(), late);
        match deferred_stamp {
            Some(stamp) => {
                self.journal.append_durably(&JournalRecord::Deferred {
                    file: displaced.file,
                    name: name.to_string(),
                    stamp,
                })?;
                Ok(SettleOutcome::StillOpen)
            }
            None => Ok(settled?),
        }
    }

    /// Inspects a displaced file and archives contents that no entry holds; with `is_limited` only
    /// if it may have another entry.
    fn inspect_displaced(
        &self,
        change: &FileChange,
        displaced: &DisplacedFiles,
        late: &LateWrites,
        is_limited: bool,
        read: FileReader<'_>,
    ) -> Result<Inspection, Error> {
        if let Some(parts) = &displaced.archived_content
            && self.has_archived_content(parts, read)?
        {
            return Ok(Inspection::Known);
        }
        let mut hasher = Hasher::default();
        let metadata = read(&mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        if displaced.known_digests.contains(&hasher.finish()) {
            return Ok(Inspection::Known);
        }
        if is_limited && late.has_reached_limit(&metadata.stamp) {
            return Ok(Inspection::Deferred(metadata.stamp));
        }
        let base = late.last_content.or(match change.before {
            Some(FileState::File { sha256, size, .. }) => Some((sha256, size)),
            _ => None,
        });
        let base = base.filter(|(_, size)| *size > 0);
        if let Some(base) = base
            && let Some(archived) = self.archive_appended(base, read)?
        {
            return Ok(archived);
        }
        let now = self.run.context().clock().now();
        let mut draft = self.run.runs.scanner.start_entry(self.agent)?;
        let file = read(&mut |bytes| draft.write(bytes))?;
        let written = draft.finish(EntryKind::Late, now.naive_local())?;
        Ok(Inspection::Archived(Box::new(written), file.attributes))
    }

    /// Archives the bytes that follow an archived content; None if the file does not begin with
    /// that content.
    fn archive_appended(
        &self,
        (sha256, size): (Digest, u64),
        read: FileReader<'_>,
    ) -> Result<Option<Inspection>, Error> {
        let mut draft = self.run.runs.scanner.start_entry(self.agent)?;
        let (mut beginning, mut whole) = (Hasher::default(), Hasher::default());
        let mut left = size;
        let file = read(&mut |bytes| {
            let count = left.min(bytes.len() as u64);
            left -= count;
            let (before, appended) = bytes.split_at(count as usize);
            beginning.update(before);
            whole.update(bytes);
            draft.write(appended)
        })?;
        if left > 0 || beginning.finish() != sha256 {
            return Ok(None);
        }
        if draft.size() == 0 {
            // The agent has truncated the file to the archived content during the inspection.
            return Ok(Some(Inspection::Known));
        }
        let base = BaseContent {
            sha256,
            size,
            whole_digest: whole.finish(),
        };
        let now = self.run.context().clock().now().naive_local();
        let written = draft.finish(EntryKind::Appended, now)?.with_base(base);
        Ok(Some(Inspection::Archived(
            Box::new(written),
            file.attributes,
        )))
    }

    /// Whether a file equals its archived content byte for byte; false if the archive cannot be
    /// read.
    fn has_archived_content(
        &self,
        parts: &ContentParts,
        read: FileReader<'_>,
    ) -> Result<bool, TransportError> {
        let Ok(mut archived) = parts.open_reader(self.run.context()) else {
            return Ok(false);
        };
        let mut same = true;
        let mut chunk = Vec::new();
        read(&mut |bytes| {
            if same {
                chunk.resize(bytes.len(), 0);
                same = archived.read_exact(&mut chunk).is_ok() && chunk == bytes;
            }
            Ok(())
        })?;
        Ok(same && matches!(archived.read(&mut [0]), Ok(0)))
    }

    /// Returns the note about a displaced object that no entry holds.
    fn kept_object_note(&self, change: &FileChange, special: &SpecialFile, name: &str) -> String {
        let what = change.path.as_ref();
        let what = what.map_or("the memory".to_string(), |it| it.display().to_string());
        let path = self.path.with_file_name(name);
        let host = self.agent.host();
        let host = host.map(|host| format!("{}:", host.name));
        format!(
            "{what} was {special}, which no entry can hold; it is kept as {}{}",
            host.unwrap_or_default(),
            path.display()
        )
    }
}
