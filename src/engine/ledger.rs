//! The ledger: one line of JSON for every operation on an agent. Each line carries the digest of
//! the line before, which exposes changed, removed and reordered records.
//!
//! `<archive_dir>/.shepherd/ledger.jsonl`. `prev` is the SHA-256 of the line before without its
//! line feed, and 64 zeros in the first line.
//!
//! A crash may leave any part of the append that it interrupted: some of its lines, one without its
//! line feed, zeros or garbage in place of a part. Three conditions distinguish such a torn tail
//! behind the last record from tampering:
//!
//! - Its first line is not a record. A line that is a record and does not continue the line before
//!   was written completely: records were changed, removed or moved.
//! - No record behind that line belongs to another run: one append holds the records of one run,
//!   and the next run truncates a torn tail before it appends.
//! - `reset.log` mentions no record among these bytes: a run logs the ledger's head only after that
//!   head is on the disk.
//!
//! Readers stop before a torn tail; the next append keeps its complete lines in `ledger.torn`,
//! truncates it and records that. Anything else is a broken chain. Two kinds of tampering look like
//! a crash: turning the last run's records into non-records where `reset.log` is gone, which the
//! truncation records, and turning the last record into another record, which only a head that was
//! noted elsewhere exposes.
//!
//! No reader loads the whole ledger. [`Ledger::history`] and [`Ledger::latest_record_time`] read an
//! index and the records behind it; [`ReverseScan`] reads the last records, [`RecordRange`] and
//! [`LedgerScan`] read many, one at a time.

mod index;
mod record_range;
mod reverse_scan;
mod scan;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use crate::archive::Archive;
use crate::clock::Clock;
use crate::digest::Digest;
use crate::durable;
use crate::engine::lock;
use crate::engine::record::{LedgerPosition, LedgerRecord, Operation, RunEvent, Trigger};
use crate::engine::semaphore::Permit;
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::sys::{self, LockConflict};
use index::LedgerIndex;
pub use index::{AgentHistory, FailedAttempt};
pub use record_range::RecordRange;
pub use reverse_scan::ReverseScan;
use scan::MAX_RECORD_BYTES;
pub use scan::{LedgerScan, ScannedLine, read_record_at};

/// Maximum number of late entries that one record names.
const MAX_LATE_ENTRIES_PER_RECORD: usize = 1000;

/// How long a process of an earlier version may keep the ledger locked.
const OLD_VERSION_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Holds the complete lines of the last torn tail.
const TORN_TAIL_FILE_NAME: &str = "ledger.torn";

/// Name of the ledger in the program's own directory.
const LEDGER_FILE_NAME: &str = "ledger.jsonl";

/// The ledger of one archive.
pub struct Ledger {
    archive: Archive,
    path: PathBuf,
    /// Index of what the records say of each agent.
    index: LedgerIndex,
    /// Whether the index on the disk was loaded, or must not be.
    is_index_loaded: bool,
    /// Device and inode of the ledger that was read.
    file_id: Option<(u64, u64)>,
    /// The error of a broken chain, cached for the file with this stamp.
    broken_chain: Option<(LedgerStamp, Error)>,
    /// Number and digest of the last record that this process appended.
    last_appended: Option<(u64, Digest)>,
}

/// Exposes changes of a file: device, inode, size, and change time in seconds and nanoseconds.
type LedgerStamp = (u64, u64, u64, i64, i64);

/// The ledger's file, open for appending and locked until it is dropped.
pub struct LockedLedger {
    file: File,
    directory: OwnedFd,
    _permit: Permit,
}

impl Drop for LockedLedger {
    fn drop(&mut self) {
        // A close alone may leave the lock in place: see `AgentLock`.
        sys::unlock(self.file.as_fd());
    }
}

impl Ledger {
    /// Creates the ledger of `archive`; reads nothing yet.
    pub fn new(archive: &Archive) -> Ledger {
        Ledger {
            archive: archive.clone(),
            path: archive.program_path(LEDGER_FILE_NAME),
            index: LedgerIndex::default(),
            is_index_loaded: false,
            file_id: None,
            broken_chain: None,
            last_appended: None,
        }
    }

    /// Path of the ledger.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what the records say of an agent.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken behind its index.
    pub fn history(&mut self, agent: &str) -> Result<AgentHistory> {
        self.catch_up()?;
        if let Some(history) = self.index.history_mut(agent) {
            return Ok(history.clone());
        }
        self.discard_index();
        self.catch_up()?;
        Ok(self.index.history_mut(agent).cloned().unwrap_or_default())
    }

    /// Returns number and time of the record with the latest time.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn latest_record_time(&mut self) -> Result<Option<(u64, DateTime<FixedOffset>)>> {
        self.catch_up()?;
        Ok(self.index.latest_record())
    }

    /// Returns the latest record time that is not after `time`, among the records of the last days.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn last_record_time_before(
        &mut self,
        time: DateTime<FixedOffset>,
    ) -> Result<Option<DateTime<FixedOffset>>> {
        self.catch_up()?;
        Ok(self.index.last_record_time_before(time))
    }

    /// Returns number and digest of the last record.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn head(&mut self) -> Result<(u64, Digest)> {
        self.catch_up()?;
        let end = self.index.position();
        Ok((end.seq, end.line_digest))
    }

    /// Returns the head after this process's last append, otherwise the ledger's. Records that
    /// other processes have appended since may not be on the disk yet.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn durable_head(&mut self) -> Result<(u64, Digest)> {
        let head = self.head()?;
        Ok(self.last_appended.unwrap_or(head))
    }

    /// Returns the records, last one first, and the position of the last one.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn scan_backwards(&mut self) -> Result<(ReverseScan, LedgerPosition)> {
        let file = self.catch_up()?;
        let end = self.index.position();
        Ok((ReverseScan::new(file, &self.path, end), end))
    }

    /// Indexes what was appended since the last call; none where there is no ledger.
    fn catch_up(&mut self) -> Result<Option<File>> {
        match durable::open_own_file(&self.path, OpenOptions::new().read(true)) {
            Ok(file) => {
                self.read_appended(&file)?;
                Ok(Some(file))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.clear_cache();
                Ok(None)
            }
            Err(error) => Err(Error::from_io("read the ledger", &self.path, &error)),
        }
    }

    /// Discards everything that was read.
    fn clear_cache(&mut self) {
        self.index = LedgerIndex::default();
        self.is_index_loaded = false;
        self.file_id = None;
        self.broken_chain = None;
        self.last_appended = None;
    }

    /// Discards everything that was read, and keeps the index on the disk from being loaded.
    fn discard_index(&mut self) {
        self.clear_cache();
        self.is_index_loaded = true;
    }

    fn read_appended(&mut self, file: &File) -> Result<()> {
        let meta = file.metadata().with_path("stat", &self.path)?;
        let id = (meta.dev(), meta.ino());
        let stamp = (id.0, id.1, meta.len(), meta.ctime(), meta.ctime_nsec());
        match &self.broken_chain {
            Some((of, error)) if *of == stamp => return Err(error.clone()),
            Some(_) => self.clear_cache(),
            None => {}
        }
        if meta.len() < self.index.position().offset || self.file_id.is_some_and(|read| read != id)
        {
            // A shorter file or another inode is another ledger.
            self.clear_cache();
        }
        self.file_id = Some(id);
        if !self.is_index_loaded {
            self.is_index_loaded = true;
            self.index = LedgerIndex::read(&self.archive, file).unwrap_or_default();
        }
        let began = self.index.position();
        let mut result = self.index_appended(file);
        // It may be another ledger all the same, because inodes are reused.
        if began.offset > 0 && is_broken_chain(&result) {
            self.discard_index();
            self.file_id = Some(id);
            result = self.index_appended(file);
        }
        if let Err(error) = &result
            && is_broken_chain(&result)
        {
            self.broken_chain = Some((stamp, error.clone()));
        }
        result
    }

    fn index_appended(&mut self, file: &File) -> Result<()> {
        let file = file.try_clone().with_path("read", &self.path)?;
        let mut scan = LedgerScan::new(file, &self.path, self.index.position())?;
        while let Some(record) = scan.next_record()? {
            if !self.index.add_record(&record, scan.position()) {
                // The index has an unknown format.
                self.discard_index();
                return self.catch_up().map(drop);
            }
        }
        Ok(())
    }

    /// Opens and locks the ledger of `archive` for an append. It waits for other processes and
    /// threads, so the caller should hold no lock that others wait for.
    ///
    /// # Errors
    /// The system's error, or other runs that keep the ledger locked for longer than a minute.
    pub fn lock_for_append(archive: &Archive, clock: &dyn Clock) -> Result<LockedLedger> {
        let directory =
            archive.open_or_create_directory(Path::new(crate::archive::PROGRAM_DIRECTORY_NAME))?;
        let permit = lock::lock_ledger(archive, clock)?;
        let file = Ledger::open_for_append(archive)?;
        lock_out_old_versions(&file, &archive.program_path(LEDGER_FILE_NAME), clock)?;
        Ok(LockedLedger {
            file,
            directory,
            _permit: permit,
        })
    }

    /// Opens the ledger of `archive` for an append: success means that a record can most likely be
    /// written.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_for_append(archive: &Archive) -> Result<File> {
        archive.open_or_create_directory(Path::new(crate::archive::PROGRAM_DIRECTORY_NAME))?;
        let path = archive.program_path(LEDGER_FILE_NAME);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        options.mode(archive.file_mode().as_raw_mode());
        let file =
            durable::open_own_file(&path, &mut options).with_path("open the ledger", &path)?;
        archive.repair_program_file(&file, &path)?;
        Ok(file)
    }

    /// Replaces long attributes by the position of an earlier record that has the same.
    fn deduplicate_attributes(&mut self, event: &mut RunEvent) {
        let Some(digest) = event
            .attributes
            .as_ref()
            .and_then(index::long_attributes_digest)
        else {
            return;
        };
        let history = self.index.history_mut(&event.agent);
        let known = history.and_then(|history| history.long_attributes);
        if let Some((_, place)) = known.filter(|(known, _)| *known == digest) {
            event.attributes = None;
            event.attributes_position = Some(place);
        }
    }

    /// Truncates a torn tail and returns the note for the record of that.
    fn truncate_torn_tail(&self, file: &File, offset: u64, length: u64) -> Result<String> {
        let mut tail = vec![0; length.min(MAX_RECORD_BYTES) as usize];
        file.read_exact_at(&mut tail, offset)
            .with_path("read", &self.path)?;
        let note = if tail.contains(&b'\n') {
            self.archive
                .replace_program_file(&self.archive.program_path(TORN_TAIL_FILE_NAME), &tail)?;
            format!("cut {length} bytes of unfinished records, kept as {TORN_TAIL_FILE_NAME}")
        } else {
            format!("cut {length} bytes of an unfinished record")
        };
        file.set_len(offset).with_path("truncate", &self.path)?;
        Ok(note)
    }

    /// Appends records and syncs them to the disk before it returns.
    ///
    /// # Errors
    /// The system's error, or a broken chain.
    pub fn append(
        &mut self,
        locked: LockedLedger,
        events: Vec<RunEvent>,
        clock: &dyn Clock,
    ) -> Result<()> {
        let mut file = &locked.file;
        self.read_appended(file)?;
        let mut text = Vec::new();
        let length = file.metadata().with_path("stat", &self.path)?.len();
        let begin = self.index.position();
        let mut events = events;
        if length > begin.offset {
            let note = self.truncate_torn_tail(file, begin.offset, length - begin.offset)?;
            events.insert(0, repair_event(note, &events));
        }
        let mut at = begin;
        let mut records = Vec::new();
        for mut what in events {
            // A record with more names would be too long to be read again; the entries stay in the
            // archive without a record.
            what.late_entries.truncate(MAX_LATE_ENTRIES_PER_RECORD);
            self.deduplicate_attributes(&mut what);
            let record = LedgerRecord {
                seq: at.seq + 1,
                previous_digest: at.line_digest,
                time: clock.now(),
                event: what,
            };
            let line = serde_json::to_vec(&record).map_err(|error| {
                Error::new(
                    ErrorKind::Internal,
                    format!("cannot write a record: {error}"),
                )
            })?;
            text.extend_from_slice(&line);
            text.push(b'\n');
            at = LedgerPosition {
                seq: record.seq,
                line_start: at.offset,
                offset: begin.offset + text.len() as u64,
                line_digest: Digest::of(&line),
            };
            records.push((record, at));
        }
        let written = file.write_all(&text).with_path("append to", &self.path);
        let synced = written.and_then(|()| file.sync_data().with_path("sync", &self.path));
        if let Err(error) = synced {
            // None of it counts as recorded. The next append truncates what cannot be undone now.
            let _ = file.set_len(begin.offset);
            return Err(error);
        }
        if begin.offset == 0 {
            // The first record of a new file: sync its name, too.
            rustix::fs::fsync(&locked.directory).with_path("sync the directory of", &self.path)?;
        }
        if records
            .iter()
            .all(|(record, at)| self.index.add_record(record, *at))
        {
            self.index.write_if_outdated(&self.archive);
        } else {
            // The index has an unknown format: the next read rebuilds it.
            self.discard_index();
        }
        self.last_appended = Some((at.seq, at.line_digest));
        Ok(())
    }
}

/// Waits for versions that have no lock file for the ledger and lock the ledger itself, and locks
/// them out. No version takes a shared lock, but every reader of the ledger can: a shared lock is
/// not waited for.
fn lock_out_old_versions(file: &File, path: &Path, clock: &dyn Clock) -> Result<()> {
    let end = clock.instant() + OLD_VERSION_LOCK_TIMEOUT;
    while !sys::try_lock(file.as_fd()).with_path("lock", path)? {
        if sys::lock_conflict(file.as_fd()).with_path("lock", path)? == Some(LockConflict::Shared) {
            return Ok(());
        }
        if clock.instant() >= end {
            let message = format!("{} stays locked by another process", path.display());
            return Err(Error::new(ErrorKind::Busy, message));
        }
        clock.sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn is_broken_chain(result: &Result<()>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::Integrity)
}

/// The record of a repair, under the id of the run that found the damage.
fn repair_event(note: String, events: &[RunEvent]) -> RunEvent {
    let (run, trigger, user) = match events.first() {
        Some(event) => (event.run.clone(), event.trigger, event.user.clone()),
        None => (String::new(), Trigger::Cli, String::new()),
    };
    RunEvent {
        note: Some(note),
        ..RunEvent::for_archive(&run, Operation::Repair, trigger, &user)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;
    use crate::clock::SystemClock;

    fn event_with_note(note: &str) -> RunEvent {
        RunEvent {
            note: Some(note.to_string()),
            ..RunEvent::new("5a10c3d2", Operation::Reset, Trigger::Cli, "ops", "scout")
        }
    }

    fn append(archive: &Archive, notes: &[&str]) -> Result<()> {
        let locked = Ledger::lock_for_append(archive, &SystemClock)?;
        let events = notes.iter().map(|note| event_with_note(note)).collect();
        Ledger::new(archive).append(locked, events, &SystemClock)
    }

    fn record_notes(archive: &Archive) -> Vec<String> {
        let mut notes = Vec::new();
        let mut scan = LedgerScan::open(&archive.program_path(LEDGER_FILE_NAME))
            .unwrap()
            .unwrap();
        while let Some(record) = scan.next_record().unwrap() {
            notes.push(record.event.note.unwrap_or_default());
        }
        notes
    }

    /// The numbers of an agent's records, last one first.
    fn newest_first_seqs(ledger: &mut Ledger, agent: &str) -> Vec<u64> {
        let (mut back, _) = ledger.scan_backwards().unwrap();
        let mut seqs = Vec::new();
        while let Some((place, record)) = back.next_matching(|it| it.agent == agent).unwrap() {
            assert_eq!(place.seq, record.seq);
            seqs.push(record.seq);
        }
        seqs
    }

    #[test]
    fn last_line_cut_at_any_byte_is_repaired() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        append(&archive, &["first", "größer — 日本 🐑"]).unwrap();
        let path = archive.program_path(LEDGER_FILE_NAME);
        let text = std::fs::read(&path).unwrap();
        let begin = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert!(
            text[begin..].iter().any(|byte| *byte >= 0x80),
            "as it is said"
        );
        for cut in begin..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            assert_eq!(record_notes(&archive), ["first"], "cut at {cut}");
            append(&archive, &["next", "last"]).unwrap();
            let repair = format!("cut {} bytes of an unfinished record", cut - begin);
            let mut expected = vec!["first", &repair, "next", "last"];
            expected.retain(|note| cut > begin || *note != repair);
            assert_eq!(record_notes(&archive), expected, "cut at {cut}");
        }
    }

    /// A clock that advances by the time slept, and calls a hook at each sleep.
    struct HookedClock {
        began: Instant,
        slept: Mutex<Duration>,
        act: Box<dyn Fn(Duration) + Send + Sync>,
    }

    impl Clock for HookedClock {
        fn now(&self) -> DateTime<FixedOffset> {
            SystemClock.now()
        }

        fn instant(&self) -> Instant {
            self.began + *self.slept.lock().unwrap()
        }

        fn sleep(&self, duration: Duration) {
            let mut slept = self.slept.lock().unwrap();
            *slept += duration;
            (self.act)(*slept);
        }
    }

    #[test]
    fn append_waits_a_minute_for_ledger_lock() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        let append_while_held = |seconds: u64| {
            let held = Mutex::new(Some(
                Ledger::lock_for_append(&archive, &SystemClock).unwrap(),
            ));
            let release = move |slept: Duration| {
                if slept >= Duration::from_secs(seconds) {
                    drop(held.lock().unwrap().take());
                }
            };
            let clock = HookedClock {
                began: SystemClock.instant(),
                slept: Mutex::default(),
                act: Box::new(release),
            };
            let locked = Ledger::lock_for_append(&archive, &clock)?;
            Ledger::new(&archive).append(locked, vec![event_with_note("note")], &clock)
        };
        append_while_held(50).unwrap();
        assert_eq!(append_while_held(70).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(record_notes(&archive), ["note"]);
    }

    #[test]
    fn open_ledger_sees_records_of_other_processes() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        let mut reader = Ledger::new(&archive);
        assert_eq!(reader.history("scout").unwrap(), AgentHistory::default());
        for number in 1..=3 {
            append(&archive, &["one", "two"]).unwrap();
            assert_eq!(
                reader.history("scout").unwrap().last_run.unwrap().run,
                "5a10c3d2"
            );
            assert_eq!(reader.head().unwrap().0, 2 * number);
            assert_eq!(
                newest_first_seqs(&mut reader, "scout"),
                (1..=2 * number).rev().collect::<Vec<u64>>()
            );
            assert_eq!(newest_first_seqs(&mut reader, "unknown"), [0; 0]);
        }
    }
}
