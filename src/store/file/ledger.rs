//! The ledger: one line of JSON for every operation on an agent. Each line carries the digest of
//! the line before, which exposes changed, removed and reordered records.
//!
//! `<archive_dir>/.shepherd/ledger.jsonl` is the active file, to which records are appended. `prev`
//! is the SHA-256 of the line before without its line feed, and 64 zeros in the first line. Runs
//! move older records to compressed segments ([`compaction`]); the chain leads through all files.
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
//! That concerns the active file only: a segment is complete before it has its name.
//!
//! Readers stop before a torn tail; the next append keeps its complete lines in `ledger.torn`,
//! truncates it and records that. Anything else is a broken chain. Two kinds of tampering look like
//! a crash: turning the last run's records into non-records where `reset.log` is gone, which the
//! truncation records, and turning the last record into another record, which only a head that was
//! noted elsewhere exposes.
//!
//! No reader loads the whole ledger. Histories and times come from an index and the records behind it;
//! [`FileReverseScan`] reads the last records, [`FileLedgerScan`] reads many, one at a time. A position
//! is a record's number and digest, which find it in whichever file it is; its offsets in the active
//! file are a hint.

mod access;
mod active_lines;
mod archive_id;
mod compaction;
#[cfg(test)]
mod compaction_tests;
mod files;
mod index;
mod locked;
mod reserve;
mod reverse_scan;
mod scan;
mod segment;
mod segment_check;
mod stored_histories;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::archive::Archive;
use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::moment::Zone;
use crate::store::agent_history::{AgentHistory, long_attributes_digest};
use crate::store::ledger::LedgerScan;
use crate::store::record::{LedgerPosition, LedgerRecord, Operation, RunEvent};
use crate::store::record_line::MAX_RECORD_BYTES;
use crate::store::trigger::Trigger;
pub(in crate::store) use access::FileLedger;
pub(in crate::store) use archive_id::read_archive_id;
use compaction::MovedRecords;
use files::{FileStamp, LedgerFiles};
use index::LedgerIndex;
use locked::{LEDGER_FILE_NAME, LockedLedger};
use reserve::release_reserve;
use reverse_scan::FileReverseScan;
use scan::FileLedgerScan;

/// Maximum number of late entries that one record names.
const MAX_LATE_ENTRIES_PER_RECORD: usize = 1000;

/// Holds the complete lines of the last torn tail.
const TORN_TAIL_FILE_NAME: &str = "ledger.torn";

/// What a process knows of the ledger of one archive.
struct ArchiveLedger {
    archive: Archive,
    path: PathBuf,
    /// The zone of the times that it returns.
    zone: Zone,
    /// Index of what the records say of each agent.
    index: LedgerIndex,
    /// Whether the index on the disk was loaded, or must not be.
    is_index_loaded: bool,
    /// The error of a broken chain, cached for the active file with this stamp.
    broken_chain: Option<(FileStamp, Error)>,
    /// The stamp of the active file, once all of its records are in the index.
    indexed_stamp: Option<FileStamp>,
    /// Number and digest of the last record that this process appended.
    last_appended: Option<(u64, Digest)>,
}

impl ArchiveLedger {
    /// Creates the ledger of `archive`, which returns times of `zone`; reads nothing yet.
    fn new(archive: &Archive, zone: Zone) -> ArchiveLedger {
        ArchiveLedger {
            zone,
            archive: archive.clone(),
            path: archive.program_path(LEDGER_FILE_NAME),
            index: LedgerIndex::default(),
            is_index_loaded: false,
            broken_chain: None,
            indexed_stamp: None,
            last_appended: None,
        }
    }

    /// As [`Ledger::known_history`](crate::store::ledger::Ledger::known_history).
    fn known_history(&mut self, agent: &str) -> Result<AgentHistory> {
        if let Some((_, error)) = &self.broken_chain {
            return Err(error.clone());
        }
        let mut history = match self.index.history(agent) {
            Some(history) => history,
            None => {
                self.discard_index();
                self.catch_up()?;
                self.index.history(agent).unwrap_or_default()
            }
        };
        if let Some(last) = &mut history.last_run {
            last.time = self.zone.at(last.time);
        }
        Ok(history)
    }

    /// Returns number and digest of the last record.
    fn head(&mut self) -> Result<(u64, Digest)> {
        self.catch_up()?;
        Ok(self.known_head())
    }

    /// Returns number and digest of the last record that is indexed.
    fn known_head(&self) -> (u64, Digest) {
        self.index.header.position.head()
    }

    /// Returns the records after the one with this number, last one first.
    fn scan_back_to(&mut self, seq: u64) -> Result<FileReverseScan> {
        let files = self.catch_up()?;
        let end = self.index.header.position;
        Ok(FileReverseScan::new(files, end, seq, self.zone))
    }

    /// Indexes what was appended since the last call.
    fn catch_up(&mut self) -> Result<LedgerFiles> {
        self.archive.check_expected()?;
        let files = LedgerFiles::open(&self.path)?;
        if files.has_records()? {
            self.read_appended(&files)?;
        } else if self.index.header.position.seq > 0 || self.broken_chain.is_some() {
            self.clear_cache();
        }
        Ok(files)
    }

    /// Discards everything that was read.
    fn clear_cache(&mut self) {
        self.index = LedgerIndex::default();
        self.is_index_loaded = false;
        self.broken_chain = None;
        self.indexed_stamp = None;
        self.last_appended = None;
    }

    /// Discards everything that was read, and keeps the index on the disk from being loaded.
    fn discard_index(&mut self) {
        self.clear_cache();
        self.is_index_loaded = true;
    }

    fn read_appended(&mut self, files: &LedgerFiles) -> Result<()> {
        let stamp = files.stamp()?;
        if files.active().is_some() && self.indexed_stamp == Some(stamp) {
            return Ok(());
        }
        match &self.broken_chain {
            Some((of, error)) if *of == stamp => return Err(error.clone()),
            Some(_) => self.clear_cache(),
            None => {}
        }
        let mut result = Ok(());
        // The records that were read may be of another ledger, and so may the index on the disk.
        for _ in 0..3 {
            if !self.is_index_loaded {
                self.is_index_loaded = true;
                if let Some(index) = LedgerIndex::read(&self.archive, files) {
                    self.index = index;
                }
            }
            let began = self.index.header.position.seq;
            let is_from_disk = self.index.is_on_disk();
            result = self.index_appended(files);
            match &result {
                Err(error) if error.kind() == ErrorKind::Integrity && began > 0 => {
                    if is_from_disk {
                        self.discard_index();
                    } else {
                        self.clear_cache();
                    }
                }
                Err(error) if error.kind() == ErrorKind::Integrity => {
                    self.broken_chain = Some((stamp, error.clone()));
                    break;
                }
                _ => break,
            }
        }
        self.indexed_stamp = result.is_ok().then_some(stamp);
        result
    }

    /// Indexes the records behind those that are indexed. Segments that cannot be read are left out:
    /// no run needs their records to reset an agent. The index goes to the disk only if they are
    /// damaged: another error may pass, and the file would keep the gap.
    fn index_appended(&mut self, files: &LedgerFiles) -> Result<()> {
        let mut scan = FileLedgerScan::new(files.clone(), self.index.header.position);
        let mut last_gap = None;
        loop {
            match scan.next_record() {
                Ok(Some(record)) => {
                    self.index.read_records += 1;
                    if !self.index.add_record(&record, scan.position()) {
                        // The index has an unknown format.
                        self.discard_index();
                        return self.catch_up().map(drop);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    if !scan.skip_unreadable() {
                        return Err(error);
                    }
                    last_gap = Some(scan.position().seq);
                    if error.kind() != ErrorKind::Integrity {
                        self.index.is_incomplete = true;
                    }
                }
            }
        }
        self.index.header.position = scan.position();
        if let Some(last) = last_gap {
            self.index.header.gap = Some((last, files.digest_of_segments(last)?));
        }
        Ok(())
    }

    /// Replaces long attributes by the position of an earlier record that has the same.
    fn deduplicate_attributes(&mut self, event: &mut RunEvent) {
        let Some(digest) = long_attributes_digest(&event.change) else {
            return;
        };
        let history = self.index.history(&event.agent);
        let known = history.and_then(|history| history.long_attributes);
        if let Some((_, place)) = known.filter(|(known, _)| *known == digest) {
            event.change.attributes = None;
            event.change.attributes_position = Some(place);
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

    /// Appends records and syncs them to the disk before it returns. On a full disk, the record of a
    /// deletion takes the space of the reserve.
    ///
    /// # Errors
    /// The system's error, or a broken chain.
    fn append(
        &mut self,
        locked: LockedLedger,
        events: Vec<RunEvent>,
        clock: &dyn Clock,
    ) -> Result<()> {
        let file = &**locked.file();
        let files = LedgerFiles::with_active(&self.path, Some(Arc::clone(locked.file())));
        self.read_appended(&files)?;
        let mut text = Vec::new();
        let length = file.metadata().with_path("stat", &self.path)?.len();
        let begin = self.index.header.position;
        let mut events = events;
        let frees_space = events.iter().any(|it| it.operation == Operation::Retire);
        if length > begin.offset {
            let note = self.truncate_torn_tail(file, begin.offset, length - begin.offset)?;
            events.insert(0, repair_event(note, &events));
        }
        let boot = clock.boot_time();
        let mut at = begin;
        let mut records = Vec::new();
        for mut what in events {
            // A record with more names would be too long to be read again; the entries stay in the
            // archive without a record.
            let mut left = MAX_LATE_ENTRIES_PER_RECORD;
            for change in what.changes_mut() {
                change.late_entries.truncate(left);
                left -= change.late_entries.len();
            }
            self.deduplicate_attributes(&mut what);
            let (record, line) = LedgerRecord::new(what, at, clock.now(), boot.clone())?;
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
        let mut written = self.write_text(file, &text, begin.offset);
        if written.as_ref().is_err_and(Error::may_be_full_disk)
            && frees_space
            && release_reserve(&self.archive, &locked)
        {
            written = self.write_text(file, &text, begin.offset);
        }
        written?;
        self.sync_name(&locked, &files, begin)?;
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

    /// Appends text to the active file, which ends at `end`, and syncs it.
    fn write_text(&self, mut file: &File, text: &[u8], end: u64) -> Result<()> {
        let written = file.write_all(text).with_path("append to", &self.path);
        let synced = written.and_then(|()| file.sync_data().with_path("sync", &self.path));
        if synced.is_err() {
            // None of it counts as recorded. The next append truncates what cannot be undone now.
            let _ = file.set_len(end);
        }
        synced
    }

    /// Syncs the name of the active file with the first record of a new file, and where compaction
    /// was killed before it could sync the name of the one that replaced it.
    fn sync_name(
        &mut self,
        locked: &LockedLedger,
        files: &LedgerFiles,
        begin: LedgerPosition,
    ) -> Result<()> {
        let first = files.first_seq()?;
        let is_synced =
            first.is_none_or(|it| it <= 1) || first == self.index.header.synced_first_seq;
        if begin.offset == 0 || !is_synced {
            rustix::fs::fsync(locked.directory()).with_path("sync the directory of", &self.path)?;
            self.index.header.synced_first_seq = first;
        }
        Ok(())
    }

    /// Adopts the active file that compaction has put in place, whose first record this is, and
    /// writes the index of it. The caller holds the lock of the ledger.
    fn adopt_replaced(&mut self, first: u64) {
        // A failure shows with the next read.
        if self.catch_up().is_ok() {
            self.index.header.synced_first_seq = Some(first);
            self.index.write_now(&self.archive);
        }
    }
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
    use std::time::{Duration, Instant};

    use chrono::{DateTime, FixedOffset};

    use super::*;
    use crate::base::clock::SystemClock;
    use crate::store::ledger::ReverseScan;

    pub fn open_ledger(archive: &Archive) -> ArchiveLedger {
        ArchiveLedger::new(archive, Zone::UTC)
    }

    pub fn read_history(ledger: &mut ArchiveLedger, agent: &str) -> AgentHistory {
        ledger.head().unwrap();
        ledger.known_history(agent).unwrap()
    }

    fn event_with_note(note: &str) -> RunEvent {
        RunEvent {
            note: Some(note.to_string()),
            ..RunEvent::new("5a10c3d2", Operation::Reset, Trigger::Cli, "ops", "scout")
        }
    }

    fn append(archive: &Archive, notes: &[&str]) -> Result<()> {
        let locked = LockedLedger::lock(archive, &SystemClock)?;
        let events = notes.iter().map(|note| event_with_note(note)).collect();
        open_ledger(archive).append(locked, events, &SystemClock)
    }

    fn record_notes(archive: &Archive) -> Vec<String> {
        let mut notes = Vec::new();
        let mut scan = FileLedgerScan::open_at(
            &archive.program_path(LEDGER_FILE_NAME),
            LedgerPosition::default(),
        )
        .unwrap()
        .unwrap();
        while let Some(record) = scan.next_record().unwrap() {
            notes.push(record.event.note.unwrap_or_default());
        }
        notes
    }

    /// The bytes that this thread has read from files; none where the kernel does not count them.
    fn read_bytes_of_thread() -> Option<u64> {
        let counters = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        let count = counters.lines().find_map(|it| it.strip_prefix("rchar: "))?;
        count.parse().ok()
    }

    #[test]
    fn unchanged_ledger_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        let long = "x".repeat(100_000);
        append(&archive, &[&long, "last"]).unwrap();
        let mut ledger = open_ledger(&archive);
        read_history(&mut ledger, "scout");
        let Some(before) = read_bytes_of_thread() else {
            return crate::skip::skip_unsupported("no counter of the bytes that a thread reads");
        };
        for _ in 0..50 {
            read_history(&mut ledger, "scout");
            ledger.scan_back_to(0).unwrap();
            assert_eq!(ledger.head().unwrap().0, 2);
        }
        let count = read_bytes_of_thread().unwrap() - before;
        assert!(count < 10_000, "{count} bytes were read again");
        // A process that has read the index reads the last record alone.
        let end = ledger.index.header.position;
        let files = LedgerFiles::open(&ledger.path).unwrap();
        let before = read_bytes_of_thread().unwrap();
        FileLedgerScan::new(files, end).next_record().unwrap();
        let count = read_bytes_of_thread().unwrap() - before;
        assert!(
            count < 10_000,
            "{count} bytes were read for the last record"
        );
    }

    /// The numbers of an agent's records, last one first.
    fn newest_first_seqs(ledger: &mut ArchiveLedger, agent: &str) -> Vec<u64> {
        let mut back = ledger.scan_back_to(0).unwrap();
        let mut seqs = Vec::new();
        while let Some((place, record)) = back.next_matching(&mut |it| it.agent == agent).unwrap() {
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
            let held = Mutex::new(Some(LockedLedger::lock(&archive, &SystemClock).unwrap()));
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
            let locked = LockedLedger::lock(&archive, &clock)?;
            open_ledger(&archive).append(locked, vec![event_with_note("note")], &clock)
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
        let mut reader = open_ledger(&archive);
        assert_eq!(read_history(&mut reader, "scout"), AgentHistory::default());
        for number in 1..=3 {
            append(&archive, &["one", "two"]).unwrap();
            assert_eq!(
                read_history(&mut reader, "scout").last_run.unwrap().run,
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
