//! Settles what a swap displaced: what late writers added is archived, then it goes.
//!
//! A late write gets an entry of what follows the bytes that are archived already, so
//! an agent that appends pays for each byte once. A file that is changed in every look
//! gets a few entries in each run and [`MAX_LATE_ENTRIES`] in all; from then on it stays
//! beside the memory, with its record, until a run finds it as the one before did.

use std::collections::HashMap;
use std::path::Path;

use super::Run;
use super::recovery::{Journal, JournalRecord};
use crate::archive::{BaseContent, EntryKind, WrittenEntry};
use crate::config::Agent;
use crate::digest::{Digest, Hasher};
use crate::engine::ledger::{FileState, RunEvent};
use crate::engine::undo::ContentParts;
use crate::error::{Error, ErrorKind};
use crate::transport::{
    Attributes, FileReader, MemoryDirectory, SettleOutcome, SpecialFile, Stamp, SwapMethod,
    TransportError,
};

/// How many late entries a displaced file may make that is changed again and again.
const MAX_LATE_ENTRIES: usize = 16;

/// How many of these in one run.
const MAX_LATE_ENTRIES_PER_RUN: usize = 4;

/// What a swap displaced, until all of it is settled.
pub(super) struct DisplacedFiles {
    pub(super) journal: Journal,
    pub(super) names: Vec<String>,
    /// More names than a run displaces: they are for the contacts after this one.
    pub(super) remaining_names: Vec<String>,
    /// Digests of contents that are archived already.
    pub(super) known_digests: Vec<Digest>,
    /// The memory as it was archived, where comparing is worth it.
    pub(super) archived_content: Option<ContentParts>,
    /// What was archived of displaced files since, by their names.
    pub(super) late_writes: HashMap<String, LateWrites>,
    /// A swap of which the record does not tell yet.
    pub(super) unmarked_swap: Option<SwapMethod>,
}

impl DisplacedFiles {
    /// Whether nothing is left but files that this run does not look at again.
    pub(super) fn is_deferred(&self) -> bool {
        let put_off = |name| {
            self.late_writes
                .get(name)
                .is_some_and(|late| late.is_deferred)
        };
        self.names.iter().all(put_off)
    }
}

/// What was archived of a displaced file after it was displaced.
#[derive(Default)]
pub(super) struct LateWrites {
    entry_count: usize,
    entries_in_run: usize,
    /// Digest and size of the content that was archived last.
    last_content: Option<(Digest, u64)>,
    /// How it was when an earlier run had enough of it.
    deferred_stamp: Option<Stamp>,
    /// Whether this run has enough of it.
    is_deferred: bool,
}

impl LateWrites {
    /// Takes an entry of an earlier run into account.
    pub(super) fn add_earlier_entry(&mut self, written: &WrittenEntry) {
        self.entry_count += 1;
        self.last_content = Some(written.whole_content());
    }

    fn add_entry(&mut self, written: &WrittenEntry) {
        self.entries_in_run += 1;
        self.add_earlier_entry(written);
    }

    /// Notes how an earlier run left the file.
    pub(super) fn set_deferred_stamp(&mut self, stamp: Stamp) {
        self.deferred_stamp = Some(stamp);
    }

    /// Whether a file that is like this now gets no entry in this run.
    fn has_reached_limit(&self, stamp: &Stamp) -> bool {
        self.entries_in_run >= MAX_LATE_ENTRIES_PER_RUN
            || self.entry_count >= MAX_LATE_ENTRIES && self.deferred_stamp != Some(*stamp)
    }
}

/// What inspecting a displaced file came to.
enum Inspection {
    /// Every byte of it is archived.
    Known,
    /// It was archived just now, with these attributes.
    Archived(WrittenEntry, Attributes),
    /// It has as many entries as it may, and looks like this.
    Deferred(Stamp),
}

impl Run<'_> {
    /// Tries to settle each displaced file, and gives what is worth knowing.
    /// Those that a writer still has open, and those that failed, are what
    /// `displaced` names afterwards.
    pub(super) fn settle_displaced(
        &self,
        agent: &Agent,
        directory: &dyn MemoryDirectory,
        event: &mut RunEvent,
        displaced: &mut DisplacedFiles,
    ) -> (Vec<String>, Result<(), Error>) {
        let mut notes = Vec::new();
        let mut result = Ok(());
        // Once a displaced file is gone, only the record can tell of the swap.
        if let Some(method) = displaced.unmarked_swap
            && !displaced.names.is_empty()
        {
            let names = displaced.names.iter().chain(&displaced.remaining_names);
            let mark = JournalRecord::Swapped(method, names.cloned().collect());
            match displaced.journal.append_durably(&mark) {
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
            let settled = self.settle_file(agent, directory, event, &name, displaced, &mut notes);
            match settled {
                Ok(SettleOutcome::Removed { was_watched: true }) => {}
                Ok(SettleOutcome::Removed { was_watched: false }) => {
                    let why = directory.undetectable_writers_reason();
                    let why = why.as_deref().unwrap_or("no right to take file leases");
                    let note = format!("late writers cannot be detected here: {why}");
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                Ok(SettleOutcome::StillOpen) => displaced.names.push(name),
                // It is gone, so nothing is left to settle; but it must be said.
                Ok(SettleOutcome::Lost(error)) => result = Err(error),
                Ok(SettleOutcome::Special(odd)) => {
                    let described = self.archive_description(agent, &odd, event);
                    match described.and_then(|()| Ok(directory.remove_special_file(&name, &odd)?)) {
                        Ok(true) => {}
                        Ok(false) => displaced.names.push(name),
                        Err(error) => {
                            displaced.names.push(name);
                            result = Err(error);
                        }
                    }
                }
                Ok(SettleOutcome::Kept(odd)) => {
                    let shown = directory.display_name(&name);
                    if !event.kept_names.contains(&shown) {
                        notes.push(kept_object_note(agent, &odd, &shown));
                        match directory.object_id(&name) {
                            Ok(id) => event.kept_ids.extend(id.map(|id| (shown.clone(), id))),
                            Err(error) => result = Err(error.into()),
                        }
                        event.kept_names.push(shown);
                        if let Err(error) = self.archive_description(agent, &odd, event) {
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

    /// Describes something that was displaced unread, unless the entry of the run does.
    fn archive_description(
        &self,
        agent: &Agent,
        odd: &SpecialFile,
        event: &mut RunEvent,
    ) -> Result<(), Error> {
        if event.before != Some(FileState::Special(odd.clone())) {
            let now = self.engine.clock().now();
            let draft = self.draft_description(agent, odd, now)?;
            event
                .late_entries
                .push(draft.finish(EntryKind::Special, now)?);
        }
        Ok(())
    }

    /// Settles one displaced file; contents that are not known get an entry,
    /// which the record names before the file goes.
    fn settle_file(
        &self,
        agent: &Agent,
        directory: &dyn MemoryDirectory,
        event: &mut RunEvent,
        name: &str,
        displaced: &mut DisplacedFiles,
        notes: &mut Vec<String>,
    ) -> Result<SettleOutcome, Error> {
        let mut late = displaced.late_writes.remove(name).unwrap_or_default();
        let mut inspections = 0;
        let mut put_off = None;
        let settled = directory.settle(name, &mut |read| {
            inspections += 1;
            // The second call inspects a file that has no name any more.
            let bounded = inspections == 1;
            match self.inspect_displaced(agent, event, displaced, &late, bounded, read)? {
                Inspection::Known => {}
                Inspection::Archived(written, attributes) => {
                    late.add_entry(&written);
                    displaced.known_digests.push(written.whole_content().0);
                    let path = written.path.display();
                    notes.push(format!("a late write was archived as {path}"));
                    event.late_entries.push(written.clone());
                    event.attributes = Some(attributes.clone());
                    displaced
                        .journal
                        .append_durably(&JournalRecord::LateEntry {
                            name: name.to_string(),
                            written,
                            attributes,
                        })?;
                }
                Inspection::Deferred(stamp) => {
                    put_off = Some(stamp);
                    let message = "it is changed again and again";
                    return Err(Error::new(ErrorKind::Partial, message));
                }
            }
            Ok(())
        });
        late.is_deferred = put_off.is_some();
        displaced.late_writes.insert(name.to_string(), late);
        match put_off {
            Some(stamp) => {
                let name = name.to_string();
                displaced
                    .journal
                    .append_durably(&JournalRecord::Deferred { name, stamp })?;
                Ok(SettleOutcome::StillOpen)
            }
            None => Ok(settled?),
        }
    }

    /// Inspects a displaced file and archives what no entry holds yet; with `bounded`
    /// only if it may have another entry.
    fn inspect_displaced(
        &self,
        agent: &Agent,
        event: &RunEvent,
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
        let seen = read(&mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        if displaced.known_digests.contains(&hasher.finish()) {
            return Ok(Inspection::Known);
        }
        if is_limited && late.has_reached_limit(&seen.stamp) {
            return Ok(Inspection::Deferred(seen.stamp));
        }
        let base = late.last_content.or(match event.before {
            Some(FileState::File { sha256, size, .. }) => Some((sha256, size)),
            _ => None,
        });
        let base = base.filter(|(_, size)| *size > 0);
        if let Some(base) = base
            && let Some(archived) = self.archive_appended(agent, base, read)?
        {
            return Ok(archived);
        }
        let now = self.engine.clock().now();
        let mut draft = self
            .engine
            .archive()
            .start_entry(Path::new(&agent.archive_subdir))?;
        let file = read(&mut |bytes| draft.write(bytes))?;
        let written = draft.finish(EntryKind::Late, now)?;
        Ok(Inspection::Archived(written, file.attributes))
    }

    /// Archives what follows a content that is archived already; none where the file
    /// does not begin with it.
    fn archive_appended(
        &self,
        agent: &Agent,
        (sha256, size): (Digest, u64),
        read: FileReader<'_>,
    ) -> Result<Option<Inspection>, Error> {
        let mut draft = self
            .engine
            .archive()
            .start_entry(Path::new(&agent.archive_subdir))?;
        let (mut beginning, mut whole) = (Hasher::default(), Hasher::default());
        let mut left = size;
        let file = read(&mut |bytes| {
            let count = left.min(bytes.len() as u64);
            left -= count;
            let (before, behind) = bytes.split_at(count as usize);
            beginning.update(before);
            whole.update(bytes);
            draft.write(behind)
        })?;
        if left > 0 || beginning.finish() != sha256 {
            return Ok(None);
        }
        if draft.size() == 0 {
            // The agent has cut it back to the beginning in between.
            return Ok(Some(Inspection::Known));
        }
        let base = BaseContent {
            sha256,
            size,
            whole_digest: whole.finish(),
        };
        let now = self.engine.clock().now();
        let written = draft.finish(EntryKind::Appended, now)?.with_base(base);
        Ok(Some(Inspection::Archived(written, file.attributes)))
    }

    /// Whether a file is, byte for byte, what was archived of it. Where that cannot
    /// be read the answer is no.
    fn has_archived_content(
        &self,
        parts: &ContentParts,
        read: FileReader<'_>,
    ) -> Result<bool, TransportError> {
        let Ok(mut archived) = parts.open_reader(self.engine) else {
            return Ok(false);
        };
        let mut same = true;
        let mut piece = Vec::new();
        read(&mut |bytes| {
            if same {
                piece.resize(bytes.len(), 0);
                same = archived.read_exact(&mut piece).is_ok() && piece == bytes;
            }
            Ok(())
        })?;
        Ok(same && matches!(archived.read(&mut [0]), Ok(0)))
    }
}

/// The note about a displaced object that no entry holds.
fn kept_object_note(agent: &Agent, odd: &SpecialFile, name: &str) -> String {
    let path = agent.location.memory().with_file_name(name);
    let host = agent.location.host().map(|host| format!("{}:", host.name));
    format!(
        "{odd} stood there, which no entry holds; it is kept as {}{}",
        host.unwrap_or_default(),
        path.display()
    )
}
