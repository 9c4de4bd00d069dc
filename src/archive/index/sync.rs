//! Brings the index up to date with the archive: entries that were added, changed or removed since,
//! by whatever program.
//!
//! A directory whose modification time is the one that was seen has the same names, so it is not
//! listed again. Once in [`SWEEP_INTERVAL`] an update looks at every entry, and finds those that
//! were changed in place.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Duration, FixedOffset, NaiveDateTime};
use crossbeam_channel::Sender;
use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::{ArchiveIndex, ENTRY_SOURCE, WordCollector, first_place, index_error, minute_of};
use crate::archive::entry::EntryName;
use crate::archive::entry_directory::EntryDirectory;
use crate::archive::{Archive, EntryKind};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};

/// Maximum number of bytes of text in one transaction, apart from its last entry.
const MAX_BATCH_BYTES: u64 = 128 << 20;

/// Bytes of words that are read ahead at least, apart from a second such group.
const GROUP_BYTES: usize = 256 << 10;

/// Larger entries are not indexed, and scanned by each search.
pub const MAX_INDEXED_BYTES: u64 = 16 << 20;

/// A directory that changed within this time before it was listed is listed again the next time: its
/// modification time may stay the same. In nanoseconds.
const SETTLE_NS: i64 = 2_000_000_000;

/// Maximum number of directories that are open at once.
const MAX_OPEN_DIRECTORIES: usize = 128;

/// Time between two updates that look at every entry.
const SWEEP_INTERVAL: Duration = Duration::minutes(10);

/// How far an update is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexProgress {
    /// Number of entries that were indexed.
    pub entries: u64,
    /// Number of their bytes.
    pub bytes: u64,
}

/// What an update did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncReport {
    /// Entries that are new or changed.
    pub indexed: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Entries that are gone.
    pub removed: u64,
    /// Entries that could not be read, and are not in the index; the next update tries again.
    pub unread: Vec<PathBuf>,
    /// Whether the update was stopped before its end.
    pub is_stopped: bool,
}

/// What an update looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Directories whose names changed.
    ChangedDirectories,
    /// Every entry of every directory.
    EveryEntry,
}

/// What the index knows of a document.
#[derive(Clone, Copy)]
pub(super) struct KnownDocument {
    pub place: i64,
    id: i64,
    pub size: i64,
    pub modified_ns: i64,
    pub inode: i64,
}

impl ArchiveIndex {
    /// Brings the index up to date with these directories of the archive; all others are forgotten.
    /// `goes_on` gets the progress, and stops the update when it returns false; what was indexed
    /// stays.
    ///
    /// # Errors
    /// The archive cannot be read, or the index cannot be written. [`ErrorKind::Busy`] if another
    /// process is updating it.
    ///
    /// [`ErrorKind::Busy`]: crate::base::error::ErrorKind::Busy
    pub fn update<'d>(
        &mut self,
        archive: &Archive,
        directories: impl Iterator<Item = &'d Path>,
        now: DateTime<FixedOffset>,
        goes_on: &mut dyn FnMut(IndexProgress) -> bool,
    ) -> Result<SyncReport> {
        let path = self.path.clone();
        let now_ns = now.timestamp_nanos_opt().unwrap_or_default();
        let scope = self
            .scope(now_ns)
            .map_err(|error| index_error(&path, &error))?;
        let mut update = Update {
            archive,
            scope,
            goes_on,
            report: SyncReport::default(),
            added: Vec::new(),
            seen: Vec::new(),
        };
        let mut names = HashSet::new();
        for directory in directories {
            let Some(name) = directory.to_str() else {
                continue;
            };
            names.insert(name.to_string());
            if !update.goes_on() {
                return Ok(update.report);
            }
            update.compare_directory(&mut self.connection, &path, name)?;
        }
        let failed = |error: rusqlite::Error| index_error(&path, &error);
        // FTS5 takes them quickest in this order.
        update
            .added
            .sort_by(|one, other| one.place_key().cmp(&other.place_key()));
        update.index_added(&mut self.connection, &path)?;
        if update.report.is_stopped {
            return Ok(update.report);
        }
        update
            .finish(&mut self.connection, &names, now_ns)
            .map_err(failed)?;
        Ok(update.report)
    }

    /// Chooses what an update at this time looks at.
    fn scope(&self, now_ns: i64) -> rusqlite::Result<Scope> {
        let last: Option<i64> =
            self.connection
                .query_row("SELECT max(time_ns) FROM sweep", [], |row| row.get(0))?;
        let interval = SWEEP_INTERVAL.num_nanoseconds().unwrap_or(i64::MAX);
        // A clock that was ahead must not keep sweeps away.
        let is_recent =
            last.is_some_and(|last| (0..interval).contains(&now_ns.saturating_sub(last)));
        Ok(if is_recent {
            Scope::ChangedDirectories
        } else {
            Scope::EveryEntry
        })
    }
}

pub(super) fn begin(connection: &mut rusqlite::Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

struct Update<'u> {
    archive: &'u Archive,
    scope: Scope,
    goes_on: &'u mut dyn FnMut(IndexProgress) -> bool,
    report: SyncReport,
    /// Entries to index.
    added: Vec<AddedEntry>,
    /// Directories that were listed, with their modification times.
    seen: Vec<(i64, i64)>,
}

/// An entry to index.
struct AddedEntry {
    directory_id: i64,
    /// Path of the directory below `archive_dir`.
    directory: Arc<str>,
    entry: EntryName,
    /// What the index knows of it; none if it is new.
    known: Option<KnownDocument>,
}

impl AddedEntry {
    /// The order of places: those of a minute that are taken come before those of new entries.
    fn place_key(&self) -> (NaiveDateTime, i64, u32, &str, &str) {
        let place = self.known.map_or(i64::MAX, |known| known.place);
        let entry = &self.entry;
        (
            entry.stamp,
            place,
            entry.number,
            &self.directory,
            &entry.text,
        )
    }
}

impl Update<'_> {
    /// Reports the progress, and notes in the report whether the update is stopped.
    fn goes_on(&mut self) -> bool {
        let progress = IndexProgress {
            entries: self.report.indexed,
            bytes: self.report.bytes,
        };
        self.report.is_stopped = !(self.goes_on)(progress);
        !self.report.is_stopped
    }

    /// Compares a directory with the index: removes what is gone, and notes what is new or changed.
    fn compare_directory(
        &mut self,
        connection: &mut rusqlite::Connection,
        index_path: &Path,
        name: &str,
    ) -> Result<()> {
        let failed = |error: rusqlite::Error| index_error(index_path, &error);
        let path = self.archive.root().join(name);
        let known: Option<(i64, i64)> = connection
            .query_row(
                "SELECT id, modified_ns FROM container WHERE source = ?1 AND path = ?2",
                params![ENTRY_SOURCE, name],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
            .map_err(failed)?;
        let directory = match durable::open_directory_errno(&path) {
            // Gone, or of another user: its entries cannot be read either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {
                if known.is_some() {
                    let transaction = begin(connection).map_err(failed)?;
                    self.report.removed += forget_directory(&transaction, name).map_err(failed)?;
                    transaction.commit().map_err(failed)?;
                }
                return Ok(());
            }
            opened => opened.map_err(|errno| durable::open_directory_error(errno, &path))?,
        };
        let stat = fstat(&directory).with_path("stat", &path)?;
        let is_unchanged = known.is_some_and(|(_, seen)| seen == modified_ns(&stat));
        if is_unchanged && self.scope == Scope::ChangedDirectories {
            return Ok(());
        }
        let listed = self.archive.list_entry_names(Path::new(name))?;
        let Some((directory, names)) = listed.into_own() else {
            return Ok(());
        };
        let transaction = begin(connection).map_err(failed)?;
        let directory_id = match known {
            Some((id, _)) => id,
            None => {
                let sql = "INSERT INTO container (source, path, modified_ns) VALUES (?1, ?2, 0)";
                transaction
                    .execute(sql, params![ENTRY_SOURCE, name])
                    .map_err(failed)?;
                transaction.last_insert_rowid()
            }
        };
        self.compare_entries(&transaction, &directory, (directory_id, name), names)
            .map_err(failed)?;
        self.seen.push((directory_id, modified_ns(&stat)));
        transaction.commit().map_err(failed)
    }

    fn compare_entries(
        &mut self,
        transaction: &Transaction<'_>,
        directory: &EntryDirectory,
        (directory_id, path): (i64, &str),
        names: Vec<EntryName>,
    ) -> rusqlite::Result<()> {
        let path: Arc<str> = path.into();
        let mut gone = known_documents(transaction, directory_id)?;
        for entry in names {
            let known = gone.remove(&entry.text);
            if let Some(known) = &known {
                if self.scope == Scope::ChangedDirectories {
                    continue;
                }
                let stat = statat(&directory.fd, &entry.text, AtFlags::SYMLINK_NOFOLLOW);
                if stat.is_ok_and(|stat| known.is_same(&stat)) {
                    continue;
                }
            }
            self.added.push(AddedEntry {
                directory_id,
                directory: Arc::clone(&path),
                entry,
                known,
            });
        }
        for known in gone.into_values() {
            remove_document(transaction, known.place)?;
            self.report.removed += 1;
        }
        Ok(())
    }

    /// Indexes the entries that were noted. Another thread reads them and splits their texts.
    fn index_added(
        &mut self,
        connection: &mut rusqlite::Connection,
        index_path: &Path,
    ) -> Result<()> {
        let added = std::mem::take(&mut self.added);
        if added.is_empty() {
            return Ok(());
        }
        let archive = self.archive;
        let (sender, groups) = crossbeam_channel::bounded(1);
        std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("index reader".to_string());
            let entries = added.as_slice();
            let read = move || EntryReader::new(archive).read(entries, &sender);
            reader.spawn_scoped(scope, read).map_err(|error| {
                let message = format!("cannot start a thread to read entries: {error}");
                Error::new(ErrorKind::Host, message)
            })?;
            let mut entries = groups.into_iter().flatten().peekable();
            while entries.peek().is_some() && !self.report.is_stopped {
                self.index_batch(connection, &mut entries)
                    .map_err(|error| index_error(index_path, &error))?;
            }
            Ok(())
        })
    }

    /// Indexes as many entries as one transaction takes.
    fn index_batch<'e>(
        &mut self,
        connection: &mut rusqlite::Connection,
        entries: &mut impl Iterator<Item = ReadEntry<'e>>,
    ) -> rusqlite::Result<()> {
        let transaction = begin(connection)?;
        let end = self.report.bytes + MAX_BATCH_BYTES;
        while self.report.bytes < end && self.goes_on() {
            let Some(entry) = entries.next() else { break };
            if let Some(known) = entry.added.known {
                remove_document(&transaction, known.place)?;
            }
            self.index_entry(&transaction, &entry)?;
        }
        transaction.commit()
    }

    fn index_entry(
        &mut self,
        transaction: &Transaction<'_>,
        read: &ReadEntry<'_>,
    ) -> rusqlite::Result<()> {
        let (entry, directory_id) = (&read.added.entry, read.added.directory_id);
        let stat = match &read.stat {
            Ok(Some(stat)) => stat,
            Ok(None) => return Ok(()),
            Err(_) => {
                let directory = Path::new(&*read.added.directory);
                self.report.unread.push(directory.join(&entry.text));
                // As one that changes now, the next update lists the directory again.
                let seen = self.seen.iter_mut();
                for (_, modified_ns) in seen.filter(|(id, _)| *id == directory_id) {
                    *modified_ns = i64::MAX;
                }
                return Ok(());
            }
        };
        let known = read.added.known;
        let place = match known {
            Some(known) => known.place,
            None => free_place(transaction, minute_of(entry.stamp))?,
        };
        transaction
            .prepare_cached(
                "INSERT INTO document (place, id, container, key, kind, size, modified_ns, inode)
                 SELECT ?1, coalesce(?2, last_id + 1), ?3, ?4, ?5, ?6, ?7, ?8 FROM counter",
            )?
            .execute(params![
                place,
                known.map(|known| known.id),
                directory_id,
                entry.text,
                kind_number(entry.kind),
                stat.st_size,
                modified_ns(stat),
                stat.st_ino as i64,
            ])?;
        transaction
            .prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?
            .execute(params![place, read.words])?;
        for word in &read.new_words {
            transaction
                .prepare_cached("INSERT OR IGNORE INTO vocabulary (word) VALUES (?1)")?
                .execute([&**word])?;
        }
        self.report.indexed += 1;
        self.report.bytes += stat.st_size as u64;
        Ok(())
    }

    /// Records what was seen, and forgets all directories but these.
    fn finish(
        &mut self,
        connection: &mut rusqlite::Connection,
        names: &HashSet<String>,
        now_ns: i64,
    ) -> rusqlite::Result<()> {
        let mut known: Vec<String> = {
            let sql = "SELECT path FROM container WHERE source = ?1";
            let mut statement = connection.prepare(sql)?;
            let paths = statement.query_map([ENTRY_SOURCE], |row| row.get(0))?;
            paths.collect::<rusqlite::Result<_>>()?
        };
        known.retain(|path| !names.contains(path));
        let is_sweep = self.scope == Scope::EveryEntry;
        // Without a change, nothing is locked.
        if self.seen.is_empty() && known.is_empty() && !is_sweep {
            return Ok(());
        }
        let transaction = begin(connection)?;
        for (directory_id, modified_ns) in &self.seen {
            // Another entry may come within the same tick of the clock.
            let is_settled = now_ns.saturating_sub(*modified_ns) > SETTLE_NS;
            let seen = if is_settled { *modified_ns } else { 0 };
            transaction.execute(
                "UPDATE container SET modified_ns = ?2 WHERE id = ?1",
                [directory_id, &seen],
            )?;
        }
        for path in &known {
            self.report.removed += forget_directory(&transaction, path)?;
        }
        if is_sweep {
            transaction.execute("DELETE FROM sweep", [])?;
            transaction.execute("INSERT INTO sweep VALUES (?1)", [now_ns])?;
        }
        transaction.commit()
    }
}

/// An entry as it was read.
struct ReadEntry<'e> {
    added: &'e AddedEntry,
    /// Its attributes; none if it is gone, or no regular file.
    stat: Result<Option<Stat>, Errno>,
    /// Its words, with a blank between two; none of an entry that is too large.
    words: String,
    /// Words of the vocabulary that were first seen in it.
    new_words: Vec<Box<str>>,
}

/// Reads entries and splits them into words.
struct EntryReader<'a> {
    archive: &'a Archive,
    /// Directories that are open, by id: entries of all agents come in turn.
    open_directories: HashMap<i64, OwnedFd>,
    text: Vec<u8>,
    words: WordCollector,
}

impl<'a> EntryReader<'a> {
    fn new(archive: &'a Archive) -> EntryReader<'a> {
        EntryReader {
            archive,
            open_directories: HashMap::new(),
            text: Vec::new(),
            words: WordCollector::default(),
        }
    }

    /// Reads entries and sends them in groups, until the receiver is gone.
    fn read<'e>(mut self, added: &'e [AddedEntry], groups: &Sender<Vec<ReadEntry<'e>>>) {
        let mut group = Vec::new();
        let mut bytes = 0;
        for added in added {
            let read = self.read_entry(added);
            bytes += read.words.len();
            group.push(read);
            if bytes >= GROUP_BYTES {
                bytes = 0;
                if groups.send(std::mem::take(&mut group)).is_err() {
                    return;
                }
            }
        }
        let _ = groups.send(group);
    }

    fn read_entry<'e>(&mut self, added: &'e AddedEntry) -> ReadEntry<'e> {
        self.text.clear();
        let stat = self.read_text(added);
        let (words, new_words) = self.words.collect(&self.text);
        ReadEntry {
            added,
            stat,
            words,
            new_words,
        }
    }

    /// Reads the text of an entry, unless it is too large, and returns its attributes.
    fn read_text(&mut self, added: &AddedEntry) -> Result<Option<Stat>, Errno> {
        let file = match self.open_entry(added) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
            file => file?,
        };
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        if stat.st_size as u64 <= MAX_INDEXED_BYTES {
            let file = std::fs::File::from(file);
            let read = file.take(MAX_INDEXED_BYTES).read_to_end(&mut self.text);
            read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        Ok(Some(stat))
    }

    fn open_entry(&mut self, added: &AddedEntry) -> Result<OwnedFd, Errno> {
        let open = &mut self.open_directories;
        if open.len() >= MAX_OPEN_DIRECTORIES {
            open.clear();
        }
        let directory = match open.entry(added.directory_id) {
            Entry::Occupied(directory) => directory.into_mut(),
            Entry::Vacant(place) => {
                let path = self.archive.root().join(&*added.directory);
                place.insert(durable::open_directory_errno(&path)?)
            }
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&*directory, &added.entry.text, flags, Mode::empty())
    }
}

impl KnownDocument {
    /// Whether a file is the one that was indexed.
    fn is_same(&self, stat: &Stat) -> bool {
        self.size == stat.st_size
            && self.modified_ns == modified_ns(stat)
            && self.inode == stat.st_ino as i64
    }
}

/// Returns the place of another document of a minute, behind those that it has.
pub(super) fn free_place(transaction: &Transaction<'_>, minute: i64) -> rusqlite::Result<i64> {
    let (first, end) = (first_place(minute), first_place(minute + 1));
    let last: Option<i64> = transaction
        .prepare_cached("SELECT max(place) FROM document WHERE place >= ?1 AND place < ?2")?
        .query_row([first, end], |row| row.get(0))?;
    Ok(last.map_or(first, |last| last + 1))
}

/// Returns the documents of a container, by their keys.
pub(super) fn known_documents(
    connection: &rusqlite::Connection,
    container: i64,
) -> rusqlite::Result<HashMap<String, KnownDocument>> {
    let mut statement = connection.prepare_cached(
        "SELECT key, place, id, size, modified_ns, inode FROM document WHERE container = ?1",
    )?;
    let rows = statement.query_map([container], |row| {
        let entry = KnownDocument {
            place: row.get(1)?,
            id: row.get(2)?,
            size: row.get(3)?,
            modified_ns: row.get(4)?,
            inode: row.get(5)?,
        };
        Ok((row.get(0)?, entry))
    })?;
    rows.collect()
}

pub(super) fn remove_document(transaction: &Transaction<'_>, place: i64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM words WHERE rowid = ?1")?
        .execute([place])?;
    transaction
        .prepare_cached("DELETE FROM document WHERE place = ?1")?
        .execute([place])?;
    Ok(())
}

/// Removes a directory of entries with its documents; returns their number.
fn forget_directory(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<u64> {
    let sql = "SELECT id FROM container WHERE source = ?1 AND path = ?2";
    let id: Option<i64> = transaction
        .query_row(sql, params![ENTRY_SOURCE, name], |row| row.get(0))
        .optional()?;
    id.map_or(Ok(0), |id| forget_container(transaction, id))
}

/// Removes a container with its documents; returns their number.
pub(super) fn forget_container(transaction: &Transaction<'_>, id: i64) -> rusqlite::Result<u64> {
    let words = "DELETE FROM words
         WHERE rowid IN (SELECT place FROM document WHERE container = ?1)";
    transaction.execute(words, [id])?;
    let removed = transaction.execute("DELETE FROM document WHERE container = ?1", [id])?;
    transaction.execute("DELETE FROM container WHERE id = ?1", [id])?;
    Ok(removed as u64)
}

pub(super) fn kind_number(kind: EntryKind) -> i64 {
    let place = EntryKind::ALL.iter().position(|it| *it == kind);
    place.unwrap_or_default() as i64
}

fn modified_ns(stat: &Stat) -> i64 {
    stat.st_mtime
        .saturating_mul(1_000_000_000)
        .saturating_add(stat.st_mtime_nsec as i64)
}
