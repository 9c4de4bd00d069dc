//! Settles what a swap displaced: what late writers added is archived, then it goes.
//!
//! A late write gets an entry of what follows the bytes that are archived already, so
//! an agent that appends pays for each byte once. A file that is changed in every look
//! gets a few entries in each run and [`MAX_LATE_ENTRIES`] in all; from then on it stays
//! beside the memory, with its record, until a run finds it as the one before did.

use std::collections::HashMap;
use std::path::Path;

use super::Run;
use super::recover::{JournalRecord, RecordFile};
use crate::archive::{Base, EntryKind, Written};
use crate::config::Agent;
use crate::digest::{Digest, Hasher};
use crate::engine::ledger::{Event, FileState};
use crate::engine::undo::ContentParts;
use crate::error::{Error, Kind};
use crate::transport::{
    Attributes, Folder, Method, Reader, Settled, SpecialFile, Stamp, TransportError,
};

/// How many late entries a displaced file may make that is changed again and again.
const MAX_LATE_ENTRIES: usize = 16;

/// How many of these in one run.
const MAX_LATE_ENTRIES_PER_RUN: usize = 4;

/// What a swap displaced, until all of it is settled.
pub(super) struct Displaced {
    pub(super) record: RecordFile,
    pub(super) names: Vec<String>,
    /// More names than a run displaces: they are for the contacts after this one.
    pub(super) further: Vec<String>,
    /// Digests of contents that are archived already.
    pub(super) known: Vec<Digest>,
    /// The memory as it was archived, where comparing is worth it.
    pub(super) same: Option<ContentParts>,
    /// What was archived of displaced files since, by their names.
    pub(super) late: HashMap<String, LateWrites>,
    /// A swap of which the record does not tell yet.
    pub(super) unmarked: Option<Method>,
}

impl Displaced {
    /// Whether nothing is left but files that this run does not look at again.
    pub(super) fn is_put_off(&self) -> bool {
        let put_off = |name| self.late.get(name).is_some_and(|late| late.put_off);
        self.names.iter().all(put_off)
    }
}

/// What was archived of a displaced file after it was displaced.
#[derive(Default)]
pub(super) struct LateWrites {
    entries: usize,
    in_this_run: usize,
    /// Digest and size of the content that was archived last.
    last: Option<(Digest, u64)>,
    /// How it was when an earlier run had enough of it.
    stamp: Option<Stamp>,
    /// Whether this run has enough of it.
    put_off: bool,
}

impl LateWrites {
    /// Takes an entry of an earlier run into account.
    pub(super) fn was_archived(&mut self, written: &Written) {
        self.entries += 1;
        self.last = Some(written.whole());
    }

    fn archived(&mut self, written: &Written) {
        self.in_this_run += 1;
        self.was_archived(written);
    }

    /// Notes how an earlier run left the file.
    pub(super) fn put_off_at(&mut self, stamp: Stamp) {
        self.stamp = Some(stamp);
    }

    /// Whether a file that is like this now gets no entry in this run.
    fn is_enough(&self, stamp: &Stamp) -> bool {
        self.in_this_run >= MAX_LATE_ENTRIES_PER_RUN
            || self.entries >= MAX_LATE_ENTRIES && self.stamp != Some(*stamp)
    }
}

/// What inspecting a displaced file came to.
enum Inspected {
    /// Every byte of it is archived.
    Known,
    /// It was archived just now, with these attributes.
    Archived(Written, Attributes),
    /// It has as many entries as it may, and looks like this.
    PutOff(Stamp),
}

impl Run<'_> {
    /// Tries to settle each displaced file, and gives what is worth knowing.
    /// Those that a writer still has open, and those that failed, are what
    /// `displaced` names afterwards.
    pub(super) fn settle_displaced(
        &self,
        agent: &Agent,
        folder: &dyn Folder,
        event: &mut Event,
        displaced: &mut Displaced,
    ) -> (Vec<String>, Result<(), Error>) {
        let mut notes = Vec::new();
        let mut result = Ok(());
        // Once a displaced file is gone, only the record can tell of the swap.
        if let Some(method) = displaced.unmarked
            && !displaced.names.is_empty()
        {
            let names = displaced.names.iter().chain(&displaced.further);
            let mark = JournalRecord::Swapped(method, names.cloned().collect());
            match displaced.record.mark(&mark) {
                Ok(()) => displaced.unmarked = None,
                Err(error) => return (notes, Err(error)),
            }
        }
        for name in std::mem::take(&mut displaced.names) {
            if displaced.late.get(&name).is_some_and(|late| late.put_off) {
                displaced.names.push(name);
                continue;
            }
            let settled = self.settle_file(agent, folder, event, &name, displaced, &mut notes);
            match settled {
                Ok(Settled::Removed { watched: true }) => {}
                Ok(Settled::Removed { watched: false }) => {
                    let why = folder.unwatched();
                    let why = why.as_deref().unwrap_or("no right to take file leases");
                    let note = format!("late writers cannot be detected here: {why}");
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                Ok(Settled::Open) => displaced.names.push(name),
                // It is gone, so nothing is left to settle; but it must be said.
                Ok(Settled::Lost(error)) => result = Err(error),
                Ok(Settled::Odd(odd)) => {
                    let described = self.describe_displaced(agent, &odd, event);
                    match described.and_then(|()| Ok(folder.remove_odd(&name, &odd)?)) {
                        Ok(true) => {}
                        Ok(false) => displaced.names.push(name),
                        Err(error) => {
                            displaced.names.push(name);
                            result = Err(error);
                        }
                    }
                }
                Ok(Settled::Kept(odd)) => {
                    let shown = folder.shown(&name);
                    if !event.kept.contains(&shown) {
                        notes.push(kept_note(agent, &odd, &shown));
                        match folder.object_id(&name) {
                            Ok(id) => event.kept_ids.extend(id.map(|id| (shown.clone(), id))),
                            Err(error) => result = Err(error.into()),
                        }
                        event.kept.push(shown);
                        if let Err(error) = self.describe_displaced(agent, &odd, event) {
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
    fn describe_displaced(
        &self,
        agent: &Agent,
        odd: &SpecialFile,
        event: &mut Event,
    ) -> Result<(), Error> {
        if event.before != Some(FileState::Odd(odd.clone())) {
            let now = self.engine.clock().now();
            let draft = self.describe(agent, odd, now)?;
            event.late.push(draft.finish(EntryKind::Odd, now)?);
        }
        Ok(())
    }

    /// Settles one displaced file; contents that are not known get an entry,
    /// which the record names before the file goes.
    fn settle_file(
        &self,
        agent: &Agent,
        folder: &dyn Folder,
        event: &mut Event,
        name: &str,
        displaced: &mut Displaced,
        notes: &mut Vec<String>,
    ) -> Result<Settled, Error> {
        let mut late = displaced.late.remove(name).unwrap_or_default();
        let mut looks = 0;
        let mut put_off = None;
        let settled = folder.settle(name, &mut |read| {
            looks += 1;
            // The second call inspects a file that has no name any more.
            let bounded = looks == 1;
            match self.inspect(agent, event, displaced, &late, bounded, read)? {
                Inspected::Known => {}
                Inspected::Archived(written, attributes) => {
                    late.archived(&written);
                    displaced.known.push(written.whole().0);
                    let path = written.path.display();
                    notes.push(format!("a late write was archived as {path}"));
                    event.late.push(written.clone());
                    event.attributes = Some(attributes.clone());
                    displaced.record.mark(&JournalRecord::Archived {
                        name: name.to_string(),
                        written,
                        attributes,
                    })?;
                }
                Inspected::PutOff(stamp) => {
                    put_off = Some(stamp);
                    let message = "it is changed again and again";
                    return Err(Error::new(Kind::Partial, message));
                }
            }
            Ok(())
        });
        late.put_off = put_off.is_some();
        displaced.late.insert(name.to_string(), late);
        match put_off {
            Some(stamp) => {
                let name = name.to_string();
                displaced
                    .record
                    .mark(&JournalRecord::PutOff { name, stamp })?;
                Ok(Settled::Open)
            }
            None => Ok(settled?),
        }
    }

    /// Inspects a displaced file and archives what no entry holds yet; with `bounded`
    /// only if it may have another entry.
    fn inspect(
        &self,
        agent: &Agent,
        event: &Event,
        displaced: &Displaced,
        late: &LateWrites,
        bounded: bool,
        read: Reader<'_>,
    ) -> Result<Inspected, Error> {
        if let Some(parts) = &displaced.same
            && self.is_same(parts, read)?
        {
            return Ok(Inspected::Known);
        }
        let mut hasher = Hasher::default();
        let seen = read(&mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        if displaced.known.contains(&hasher.finish()) {
            return Ok(Inspected::Known);
        }
        if bounded && late.is_enough(&seen.stamp) {
            return Ok(Inspected::PutOff(seen.stamp));
        }
        let base = late.last.or(match event.before {
            Some(FileState::File { sha256, size, .. }) => Some((sha256, size)),
            _ => None,
        });
        let base = base.filter(|(_, size)| *size > 0);
        if let Some(base) = base
            && let Some(archived) = self.archive_behind(agent, base, read)?
        {
            return Ok(archived);
        }
        let now = self.engine.clock().now();
        let mut draft = self
            .engine
            .archive()
            .begin(Path::new(&agent.archive_subdir))?;
        let file = read(&mut |bytes| draft.write(bytes))?;
        let written = draft.finish(EntryKind::Late, now)?;
        Ok(Inspected::Archived(written, file.attributes))
    }

    /// Archives what follows a content that is archived already; none where the file
    /// does not begin with it.
    fn archive_behind(
        &self,
        agent: &Agent,
        (sha256, size): (Digest, u64),
        read: Reader<'_>,
    ) -> Result<Option<Inspected>, Error> {
        let mut draft = self
            .engine
            .archive()
            .begin(Path::new(&agent.archive_subdir))?;
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
            return Ok(Some(Inspected::Known));
        }
        let base = Base {
            sha256,
            size,
            whole: whole.finish(),
        };
        let now = self.engine.clock().now();
        let written = draft.finish(EntryKind::Appended, now)?.behind(base);
        Ok(Some(Inspected::Archived(written, file.attributes)))
    }

    /// Whether a file is, byte for byte, what was archived of it. Where that cannot
    /// be read the answer is no.
    fn is_same(&self, parts: &ContentParts, read: Reader<'_>) -> Result<bool, TransportError> {
        let Ok(mut archived) = parts.reader(self.engine) else {
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
fn kept_note(agent: &Agent, odd: &SpecialFile, name: &str) -> String {
    let path = agent.place.memory().with_file_name(name);
    let host = agent.place.host().map(|host| format!("{}:", host.name));
    format!(
        "{odd} stood there, which no entry holds; it is kept as {}{}",
        host.unwrap_or_default(),
        path.display()
    )
}
