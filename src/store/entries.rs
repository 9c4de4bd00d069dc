//! Entries: every byte that an agent wrote and that was removed from its memory, by name. An entry is
//! never replaced; retention deletes entries, each deletion behind its record.
//!
//! An entry is named by its path, such as `scout/2026-03-14_0900.md`: the directory is that of its
//! agent, or the `quarantine` in it, which only the owner of the store can read.

pub(crate) mod directories;
pub(crate) mod export;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset, NaiveDateTime};

use crate::archive::{
    self, ArchiveEntry, EntryKind, WrittenEntry, agent_directory_of, parse_entry_name,
};
use crate::base::digest::Digest;
use crate::base::durable::UnsyncedObject;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::moment::Zone;
use crate::store::controller::Controller;
use crate::store::record::RunEvent;

/// The entries of a store.
pub trait Entries: Send + Sync {
    /// The controller, whose config says which agent has which directory.
    fn controller(&self) -> &Controller;

    /// Starts an entry in a directory: an agent's, or its quarantine.
    ///
    /// # Errors
    /// The store cannot be written; nothing was archived.
    fn start(&self, directory: &Path) -> Result<Box<dyn EntryDraft>>;

    /// Opens what has to be synced before a record relies on an entry of another run, which may not
    /// have synced it.
    ///
    /// # Errors
    /// There is no such entry, or it cannot be read.
    fn open_unsynced(&self, entry: &Path) -> Result<Vec<UnsyncedObject>>;

    /// Opens an entry.
    ///
    /// # Errors
    /// There is no such entry, which the message says, or it cannot be read.
    fn open(&self, entry: &Path) -> Result<Box<dyn EntryReader>>;

    /// Reads an entry, and returns the digest of its content.
    ///
    /// # Errors
    /// There is no such entry, or it cannot be read.
    fn digest(&self, entry: &Path) -> Result<Digest> {
        archive::digest_reader(self.open(entry)?, &self.location(entry))
    }

    /// Finds an entry; none at a path that is not one of an entry.
    ///
    /// # Errors
    /// The store cannot be read.
    fn find(&self, entry: &Path) -> Result<Option<ArchiveEntry>>;

    /// Looks at what is at a path that a record names as one of an entry.
    ///
    /// # Errors
    /// The store cannot be read.
    fn probe(&self, entry: &Path) -> Result<EntryObject>;

    /// Lists the entries in a directory and its quarantine, oldest first, each with the number of bytes
    /// that it takes on the disk. A directory that does not exist has none, and neither has a
    /// quarantine that this process may not read.
    ///
    /// # Errors
    /// The store cannot be read.
    fn list_with_usage(&self, directory: &Path) -> Result<Vec<(ArchiveEntry, u64)>>;

    /// Lists the entries in a directory as [`Entries::list_with_usage`].
    ///
    /// # Errors
    /// The store cannot be read.
    fn list(&self, directory: &Path) -> Result<Vec<ArchiveEntry>> {
        let entries = self.list_with_usage(directory)?.into_iter();
        Ok(entries.map(|(entry, _)| entry).collect())
    }

    /// Lists as [`Entries::list_with_usage`] the entries whose name *and* modification time are before
    /// `limit`, with the local times in names in `zone`; with `keep_newest` without the newest entry of
    /// all.
    ///
    /// # Errors
    /// The store cannot be read.
    fn list_expired(
        &self,
        directory: &Path,
        limit: DateTime<FixedOffset>,
        zone: Zone,
        keep_newest: bool,
    ) -> Result<Vec<ArchiveEntry>>;

    /// Lists the directories that are not claimed, also those below claimed ones, without their
    /// quarantines.
    ///
    /// # Errors
    /// The store cannot be read.
    fn unclaimed_directories(
        &self,
        is_claimed: &dyn Fn(&Path) -> bool,
    ) -> Result<BTreeSet<PathBuf>>;

    /// Returns the number of entries in the quarantine of a directory, as far as this process may list
    /// it.
    fn count_quarantined(&self, directory: &Path) -> usize;

    /// Returns whether a directory has a quarantine that this process may not list.
    fn has_hidden_quarantine(&self, directory: &Path) -> bool;

    /// Gives an entry in quarantine, which has no findings, a name among the other entries. It keeps
    /// the name in the quarantine until [`Entries::end_release`]. A release that was interrupted gives
    /// the same name again.
    ///
    /// # Errors
    /// The store cannot be written; the entry is then in quarantine alone.
    fn release(&self, written: &WrittenEntry) -> Result<WrittenEntry>;

    /// Removes the name in the quarantine of an entry that was released and recorded; that of another
    /// entry stays.
    ///
    /// # Errors
    /// The store cannot be written.
    fn end_release(&self, quarantined: &Path, released: &Path) -> Result<()>;

    /// Writes a copy of an entry in quarantine, without its secrets, among the other entries. It has
    /// the time of the entry in its name.
    ///
    /// # Errors
    /// The store cannot be written; there is then no copy.
    fn write_redacted_copy(&self, entry: &Path, content: &[u8]) -> Result<WrittenEntry> {
        let name = entry.file_name().and_then(|name| name.to_str());
        let Some((stamp, ..)) = name.and_then(parse_entry_name) else {
            return Err(not_an_entry_error(entry));
        };
        let mut draft = self.start(agent_directory_of(entry))?;
        draft.write(content)?;
        draft.finish(EntryKind::Redacted, stamp)
    }

    /// Reads which entries are pinned: retention never deletes these.
    ///
    /// # Errors
    /// The store cannot be read.
    fn pins(&self) -> Result<Box<dyn Pins>>;

    /// Pins or unpins entries, all of them or none, and records that; also what an earlier call did and
    /// could not record. A path may be typed in any form that leads to the entry; the pin has the
    /// entry's own name. Returns the entries that were changed.
    ///
    /// # Errors
    /// A path that leads to no entry, or the store cannot be written.
    fn set_pinned(&self, typed: &[PathBuf], is_pinned: bool) -> Result<Vec<PathBuf>>;

    /// Keeps other processes from pinning and deleting entries, until the result is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when another process does so for a minute; otherwise the store cannot be
    /// written.
    fn lock_for_deletion(&self) -> Result<Box<dyn EntryDeletion + '_>>;

    /// Resolves a typed path to the one that an entry there has, whether or not there is one; none for
    /// a path that leads out of the archive.
    fn resolve_typed(&self, typed: &Path) -> Option<PathBuf>;

    /// Where an entry or a directory of entries is, whether or not it exists; for people.
    fn location(&self, path: &Path) -> PathBuf;
}

/// An entry during its write. Dropped before it has its name, it leaves nothing behind.
pub trait EntryDraft: Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// The store cannot be written, for example a full disk.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Starts to make the content so far durable, without waiting.
    fn start_writeback(&self);

    /// Size so far, in bytes.
    fn size(&self) -> u64;

    /// What has to be synced before it gets its name.
    fn unsynced_content(&self) -> Option<UnsyncedObject>;

    /// Gives it a free name of this local minute, behind those that are taken. The name is durable once
    /// the returned object is synced.
    ///
    /// # Errors
    /// The store cannot be written; there is then no entry.
    fn assign_name(
        self: Box<Self>,
        kind: EntryKind,
        local: NaiveDateTime,
    ) -> Result<(WrittenEntry, Option<UnsyncedObject>)>;
}

impl dyn EntryDraft + '_ {
    /// Gives the entry its name. It is durable when this returns.
    ///
    /// # Errors
    /// The store cannot be written; there is then no entry.
    pub(crate) fn finish(
        self: Box<Self>,
        kind: EntryKind,
        local: NaiveDateTime,
    ) -> Result<WrittenEntry> {
        let sync = |unsynced: Option<UnsyncedObject>| unsynced.map_or(Ok(()), |it| it.sync());
        sync(self.unsynced_content())?;
        let (written, unsynced) = self.assign_name(kind, local)?;
        sync(unsynced)?;
        Ok(written)
    }
}

/// An open entry.
pub trait EntryReader: Read + Seek {
    /// Its size in bytes.
    ///
    /// # Errors
    /// The store cannot be read.
    fn size(&self) -> io::Result<u64>;
}

impl EntryReader for File {
    fn size(&self) -> io::Result<u64> {
        self.metadata().map(|it| it.len())
    }
}

/// The pins of a store as they were read.
pub trait Pins {
    /// The paths of the pinned entries.
    fn entries(&self) -> &HashSet<PathBuf>;

    /// Looks for pins that name no entry: the entry that one was meant for must not be deleted.
    fn find_faults(&self) -> Vec<PinFault>;
}

/// The deletion of entries, while no other process pins one.
pub trait EntryDeletion {
    /// Records the deletion of listed entries and then deletes them, except those that were replaced
    /// since. Ends early, without an error of its own, where another archive has taken the place of this
    /// one: the caller checks that.
    ///
    /// # Errors
    /// The record cannot be written; nothing was deleted.
    fn retire(&self, record: RunEvent, entries: &[ArchiveEntry]) -> Result<RetiredEntries>;
}

/// What became of entries that were recorded as deleted.
#[derive(Debug, Default)]
pub struct RetiredEntries {
    /// Those that were deleted now.
    pub deleted: Vec<PathBuf>,
    /// Why others could not be deleted.
    pub errors: Vec<Error>,
}

/// What is at the path of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryObject {
    /// Nothing.
    Absent,
    /// An entry of this size in bytes.
    Entry(u64),
    /// Something that has taken the place of an entry.
    Other,
}

/// A pin that names no entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinFault {
    /// The pins file.
    pub pins_path: PathBuf,
    /// The line's number, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// The directory of entries that it may concern; none where that is unknown, so that it may concern
    /// any.
    pub directory: Option<PathBuf>,
    /// Why the entry could not be checked, if that is the reason.
    pub error: Option<Error>,
}

impl PinFault {
    /// Returns whether the line may have been meant for this entry.
    pub fn may_concern(&self, entry: &Path) -> bool {
        let directory = self.directory.as_deref();
        directory.is_none_or(|directory| agent_directory_of(entry) == directory)
    }
}

impl fmt::Display for PinFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, line, text) = (self.pins_path.display(), self.line, &self.text);
        write!(f, "line {line} of {path} names no entry: {text}")?;
        match &self.error {
            Some(error) => write!(f, " ({error})"),
            None => Ok(()),
        }
    }
}

/// The error for a path from a record or a list that is not one of an entry.
pub(crate) fn not_an_entry_error(entry: &Path) -> Error {
    let message = format!("{} is not an entry", entry.display());
    Error::new(ErrorKind::Host, message)
}
