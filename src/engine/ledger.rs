//! The ledger: one line of JSON for everything that was done to an agent, each
//! carrying the digest of the line before, so that a changed, removed or
//! reordered record shows.
//!
//! `<archive_dir>/.shepherd/ledger.jsonl`. `prev` is the SHA-256 of the line
//! before without its line feed, and 64 zeros in the first line.
//!
//! A crash may leave anything of the append that it interrupted: some of its lines, one
//! without its line feed, zeros or garbage in place of a part. Behind the last record
//! it is told from what somebody changed by three things:
//!
//! - Its first line is no record. A line that is one and does not continue the line
//!   before was written whole: records were changed, removed or moved.
//! - No record behind that line is of another run, for an append is one run's, and the
//!   next run cuts off what it finds before it appends.
//! - `reset.log` tells of no record among these bytes: a run tells of the ledger's head
//!   when that is on the disk.
//!
//! Readers end before what a crash left; the next append keeps whole lines of it in
//! `ledger.torn`, cuts all of it off and records that. Anything else is a broken chain.
//! Two changes look like a crash: that of the last run's records into no records where
//! `reset.log` is gone, which is recorded when they are cut off, and that of the last
//! record into another record, which only a head that was noted shows.
//!
//! Nobody holds all of it. [`Ledger::history`] and [`Ledger::latest`] read an index
//! and what came after it; [`ReverseScan`] is for those who need the last records,
//! [`RecordRange`] and [`Scan`] for those who need many, one at a time.

mod backwards;
mod index;
mod range;
mod scan;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::archive::{Archive, Written};
use crate::clock::Clock;
use crate::digest::Digest;
use crate::durable;
use crate::engine::lock;
use crate::engine::memory::Boundary;
use crate::engine::semaphore::Permit;
use crate::error::{Error, Kind, PathContext, Result};
use crate::sys::{self, Conflict};
use crate::transport::{Attributes, Method, ObjectId, SpecialFile};
pub use backwards::ReverseScan;
pub use index::AgentHistory;
use index::LedgerIndex;
pub use range::RecordRange;
use scan::MAX_RECORD_BYTES;
pub use scan::{LedgerPosition, Scan, ScannedLine, record_at};

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A reset.
    Reset,
    /// An undo of an earlier run.
    Undo,
    /// What an interrupted run left was put right: an unfinished last line of the
    /// ledger, or files that it had displaced. No memory was changed.
    Repair,
    /// Retention deletes entries. The record comes first.
    Retire,
    /// Entries were pinned: retention never deletes them.
    Pin,
    /// Entries were left to retention again.
    Unpin,
    /// What a later version did and this one does not know: it counts for nothing.
    #[serde(other)]
    Other,
}

impl Operation {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Reset => "reset",
            Operation::Undo => "undo",
            Operation::Repair => "repair",
            Operation::Retire => "retire",
            Operation::Pin => "pin",
            Operation::Unpin => "unpin",
            Operation::Other => "other",
        }
    }
}

/// Who or what started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// An operator in the console.
    Console,
    /// A command.
    Cli,
    /// A timer.
    Timer,
}

impl Trigger {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Trigger::Console => "console",
            Trigger::Cli => "cli",
            Trigger::Timer => "timer",
        }
    }
}

/// How it ended for one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done and read back.
    Ok,
    /// Already equal to the baseline; nothing was written.
    Unchanged,
    /// Tried, and failed; the error says what stands there now.
    Failed,
    /// Not tried, for the reason given.
    Refused,
    /// The run was interrupted before this agent's turn.
    NotStarted,
}

impl Outcome {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Unchanged => "unchanged",
            Outcome::Failed => "FAILED",
            Outcome::Refused => "REFUSED",
            Outcome::NotStarted => "not started",
        }
    }

    /// Those that are no good end.
    pub const BAD: [Outcome; 3] = [Outcome::Failed, Outcome::Refused, Outcome::NotStarted];

    /// Whether it is no good end.
    pub fn is_bad(self) -> bool {
        Outcome::BAD.contains(&self)
    }

    /// The word behind a number of agents.
    pub fn counted(self) -> &'static str {
        match self {
            Outcome::Refused => "refused",
            outcome => outcome.word(),
        }
    }
}

/// What stood at a memory's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// Nothing.
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
    /// Something that was not read.
    Odd(SpecialFile),
}

impl FileState {
    /// The digest, if it was a file.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            FileState::File { sha256, .. } => Some(*sha256),
            _ => None,
        }
    }
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The line's number, from 1.
    pub seq: u64,
    /// Digest of the line before.
    pub prev: Digest,
    /// When it ended, with the offset of local time.
    pub time: DateTime<FixedOffset>,
    /// What follows.
    #[serde(flatten)]
    pub what: Event,
}

/// What happened to one agent in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The run; all agents of one run share it.
    pub run: String,
    /// What was done.
    pub act: Operation,
    /// Who started it.
    pub trigger: Trigger,
    /// The operator's user name.
    pub user: String,
    /// The agent; empty when the ledger itself was repaired, for retention and for pins.
    pub agent: String,
    /// The memory's host.
    pub host: String,
    /// The host with user and port; none for this machine, and in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// The path of the memory there. Earlier versions left it out for this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<PathBuf>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, when it did not end well; or what else is worth knowing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What stood there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FileState>,
    /// What was put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<FileState>,
    /// The baseline version that was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Digest>,
    /// The entry that holds what stood there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Written>,
    /// Entries with what late writers added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<Written>,
    /// Names beside the memory under which displaced objects stay that no entry
    /// holds: a directory, or what may not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// Which objects these are, where that is known: agents can rename them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_ids: BTreeMap<String, ObjectId>,
    /// Where the boundary was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    /// Lines of scratch that stood there; none in records of earlier versions of this
    /// program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_lines: Option<u64>,
    /// The version whose operator part stood above the scratch in the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Digest>,
    /// How the memory was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Owner, mode and attributes of the memory before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Attributes>,
    /// Where the agent's earlier record stands that has the same attributes: long ones
    /// are written down once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes_at: Option<LedgerPosition>,
    /// How long it took, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// The run that this one undid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// Entries that retention was about to delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<PathBuf>,
    /// Entries that were pinned or unpinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<PathBuf>,
}

impl Event {
    /// The event of a run that is about to act on an agent; how it ends is
    /// filled in by whoever acts.
    pub(super) fn new(
        run: &str,
        act: Operation,
        trigger: Trigger,
        user: &str,
        agent: &str,
    ) -> Event {
        Event {
            run: run.to_string(),
            act,
            trigger,
            user: user.to_string(),
            agent: agent.to_string(),
            host: "local".to_string(),
            login: None,
            memory: None,
            outcome: Outcome::Ok,
            note: None,
            before: None,
            after: None,
            baseline: None,
            entry: None,
            late: Vec::new(),
            kept: Vec::new(),
            kept_ids: BTreeMap::new(),
            boundary: None,
            scratch_lines: None,
            split: None,
            method: None,
            attributes: None,
            attributes_at: None,
            duration_ms: 0,
            undoes: None,
            retired: Vec::new(),
            pins: Vec::new(),
        }
    }

    /// The event of a run that concerns the archive and no agent.
    pub(super) fn of_archive(run: &str, act: Operation, trigger: Trigger, user: &str) -> Event {
        Event {
            host: String::new(),
            ..Event::new(run, act, trigger, user, "")
        }
    }

    /// Whether the memory was changed.
    pub fn changed(&self) -> bool {
        self.outcome == Outcome::Ok && matches!(self.act, Operation::Reset | Operation::Undo)
    }

    /// The entries that were written.
    pub fn written(&self) -> impl Iterator<Item = &Written> {
        self.entry.iter().chain(&self.late)
    }
}

/// How many late entries one record names.
const MAX_LATE_ENTRIES_PER_RECORD: usize = 1000;

/// How long an earlier version may keep the ledger locked.
const OLD_VERSION_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// What a crash left of several records, the last time.
const TORN_TAIL_NOTE: &str = "ledger.torn";

/// The file among the program's own.
const LEDGER_FILE_NAME: &str = "ledger.jsonl";

/// The ledger of one archive.
pub struct Ledger {
    archive: Archive,
    path: PathBuf,
    /// What was gathered of agents.
    index: LedgerIndex,
    /// An index on the disk was tried, or is not to be.
    indexed: bool,
    /// Device and inode of the file that was read.
    file: Option<(u64, u64)>,
    /// A broken chain is found once, however often the same file is asked about.
    broken: Option<(Stamp, Error)>,
    /// The last record that was appended here, with its digest.
    appended: Option<(u64, Digest)>,
}

/// What tells a file that was changed: device, inode, size, time of change.
type Stamp = (u64, u64, u64, i64, i64);

/// The ledger's file, open for appending and locked until it is dropped.
pub struct Locked {
    file: File,
    folder: OwnedFd,
    _permit: Permit,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing it is not enough, as with any lock of ours.
        sys::unlock(self.file.as_fd());
    }
}

impl Ledger {
    /// The ledger of `archive`; nothing is read yet.
    pub fn new(archive: &Archive) -> Ledger {
        Ledger {
            archive: archive.clone(),
            path: archive.own(LEDGER_FILE_NAME),
            index: LedgerIndex::default(),
            indexed: false,
            file: None,
            broken: None,
            appended: None,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says of an agent.
    ///
    /// # Errors
    /// A ledger that cannot be read, or whose chain is broken behind its index.
    pub fn history(&mut self, agent: &str) -> Result<AgentHistory> {
        self.catch_up()?;
        if let Some(history) = self.index.of(agent) {
            return Ok(history.clone());
        }
        self.distrust();
        self.catch_up()?;
        Ok(self.index.of(agent).cloned().unwrap_or_default())
    }

    /// Number and time of the record with the latest time.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn latest(&mut self) -> Result<Option<(u64, DateTime<FixedOffset>)>> {
        self.catch_up()?;
        Ok(self.index.latest())
    }

    /// The latest time of a record that is not behind this time, among those of the last
    /// days.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn last_before(
        &mut self,
        time: DateTime<FixedOffset>,
    ) -> Result<Option<DateTime<FixedOffset>>> {
        self.catch_up()?;
        Ok(self.index.last_before(time))
    }

    /// Number and digest of the last record.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn head(&mut self) -> Result<(u64, Digest)> {
        self.catch_up()?;
        let end = self.index.place();
        Ok((end.seq, end.head))
    }

    /// The head after the last append of this process, else the ledger's. What others
    /// have appended since is perhaps not on the disk.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn durable_head(&mut self) -> Result<(u64, Digest)> {
        let head = self.head()?;
        Ok(self.appended.unwrap_or(head))
    }

    /// The records from the last one back, and where that ends.
    ///
    /// # Errors
    /// As [`Ledger::history`].
    pub fn backwards(&mut self) -> Result<(ReverseScan, LedgerPosition)> {
        let file = self.catch_up()?;
        let end = self.index.place();
        Ok((ReverseScan::new(file, &self.path, end), end))
    }

    /// Reads what was appended since the last time; none where there is no ledger.
    fn catch_up(&mut self) -> Result<Option<File>> {
        match durable::open_own(&self.path, OpenOptions::new().read(true)) {
            Ok(file) => {
                self.read_on(&file)?;
                Ok(Some(file))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.forget();
                Ok(None)
            }
            Err(error) => Err(Error::io("read the ledger", &self.path, &error)),
        }
    }

    /// Nothing that was read is true any more.
    fn forget(&mut self) {
        self.index = LedgerIndex::default();
        self.indexed = false;
        self.file = None;
        self.broken = None;
        self.appended = None;
    }

    /// The same, and the index on the disk is not to be used.
    fn distrust(&mut self) {
        self.forget();
        self.indexed = true;
    }

    fn read_on(&mut self, file: &File) -> Result<()> {
        let meta = file.metadata().path("look at", &self.path)?;
        let id = (meta.dev(), meta.ino());
        let stamp = (id.0, id.1, meta.len(), meta.ctime(), meta.ctime_nsec());
        match &self.broken {
            Some((of, error)) if *of == stamp => return Err(error.clone()),
            Some(_) => self.forget(),
            None => {}
        }
        if meta.len() < self.index.place().offset || self.file.is_some_and(|read| read != id) {
            // Another ledger stands there: nothing read before is true of it.
            self.forget();
        }
        self.file = Some(id);
        if !self.indexed {
            self.indexed = true;
            self.index = LedgerIndex::read(&self.archive, file).unwrap_or_default();
        }
        let began = self.index.place();
        let mut result = self.read_rest(file);
        // The same file perhaps, for inodes are used again.
        if began.offset > 0 && is_broken_chain(&result) {
            self.distrust();
            self.file = Some(id);
            result = self.read_rest(file);
        }
        if let Err(error) = &result
            && is_broken_chain(&result)
        {
            self.broken = Some((stamp, error.clone()));
        }
        result
    }

    fn read_rest(&mut self, file: &File) -> Result<()> {
        let file = file.try_clone().path("read", &self.path)?;
        let mut scan = Scan::new(file, &self.path, self.index.place())?;
        while let Some(record) = scan.record()? {
            if !self.index.take(&record, scan.place()) {
                // Its index is of no known form.
                self.distrust();
                return self.catch_up().map(drop);
            }
        }
        Ok(())
    }

    /// Opens and locks the ledger of `archive` for an append. It waits for other
    /// processes and threads, so nobody should be waiting for the caller.
    ///
    /// # Errors
    /// What the system answered, or other runs that keep the ledger locked for longer
    /// than a minute.
    pub fn lock(archive: &Archive, clock: &dyn Clock) -> Result<Locked> {
        let folder = archive.folder(Path::new(crate::archive::OWN))?;
        let permit = lock::ledger(archive, clock)?;
        let file = Ledger::open(archive)?;
        exclude_earlier_versions(&file, &archive.own(LEDGER_FILE_NAME), clock)?;
        Ok(Locked {
            file,
            folder,
            _permit: permit,
        })
    }

    /// Opens the ledger of `archive` for an append: whoever can do that can most
    /// likely record something.
    ///
    /// # Errors
    /// What the system answered.
    pub fn open(archive: &Archive) -> Result<File> {
        archive.folder(Path::new(crate::archive::OWN))?;
        let path = archive.own(LEDGER_FILE_NAME);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        options.mode(archive.file_mode().as_raw_mode());
        let file = durable::open_own(&path, &mut options).path("open the ledger", &path)?;
        archive.dress_own(&file, &path)?;
        Ok(file)
    }

    /// Has a record name an earlier one instead of long attributes that are the same.
    fn refer_to_attributes(&mut self, event: &mut Event) {
        let Some(digest) = event.attributes.as_ref().and_then(index::digest_if_long) else {
            return;
        };
        let history = self.index.of(&event.agent);
        let known = history.and_then(|history| history.attributes);
        if let Some((_, place)) = known.filter(|(known, _)| *known == digest) {
            event.attributes = None;
            event.attributes_at = Some(place);
        }
    }

    /// Cuts off what a crash left behind the last record, and says so.
    fn cut(&self, file: &File, offset: u64, length: u64) -> Result<String> {
        let mut tail = vec![0; length.min(MAX_RECORD_BYTES) as usize];
        file.read_exact_at(&mut tail, offset)
            .path("read", &self.path)?;
        let has_lines = tail.contains(&b'\n');
        if has_lines {
            self.archive
                .replace_own(&self.archive.own(TORN_TAIL_NOTE), &tail)?;
        }
        file.set_len(offset).path("cut", &self.path)?;
        Ok(match has_lines {
            true => format!("cut {length} bytes of unfinished records, kept as {TORN_TAIL_NOTE}"),
            false => format!("cut {length} bytes of an unfinished record"),
        })
    }

    /// Appends records and puts them on the disk before it returns.
    ///
    /// # Errors
    /// What the system answered, or a broken chain.
    pub fn append(&mut self, locked: Locked, events: Vec<Event>, clock: &dyn Clock) -> Result<()> {
        let mut file = &locked.file;
        self.read_on(file)?;
        let mut text = Vec::new();
        let length = file.metadata().path("look at", &self.path)?.len();
        let begin = self.index.place();
        let mut events = events;
        if length > begin.offset {
            let note = self.cut(file, begin.offset, length - begin.offset)?;
            events.insert(0, repair(note, &events));
        }
        let mut at = begin;
        let mut records = Vec::new();
        for mut what in events {
            // What would make a line too long to be read again stays in the
            // archive, unnamed.
            what.late.truncate(MAX_LATE_ENTRIES_PER_RECORD);
            self.refer_to_attributes(&mut what);
            let record = Record {
                seq: at.seq + 1,
                prev: at.head,
                time: clock.now(),
                what,
            };
            let line = serde_json::to_vec(&record).map_err(|error| {
                Error::new(Kind::Internal, format!("cannot write a record: {error}"))
            })?;
            text.extend_from_slice(&line);
            text.push(b'\n');
            at = LedgerPosition {
                seq: record.seq,
                from: at.offset,
                offset: begin.offset + text.len() as u64,
                head: Digest::of(&line),
            };
            records.push((record, at));
        }
        let written = file.write_all(&text).path("append to", &self.path);
        let synced = written.and_then(|()| file.sync_data().path("sync", &self.path));
        if let Err(error) = synced {
            // None of it is recorded. What cannot be taken back now is cut off by
            // the next append.
            let _ = file.set_len(begin.offset);
            return Err(error);
        }
        if begin.offset == 0 {
            // The first record of a new file: its name, too.
            rustix::fs::fsync(&locked.folder).path("sync the directory of", &self.path)?;
        }
        match records
            .iter()
            .all(|(record, at)| self.index.take(record, *at))
        {
            true => self.index.keep(&self.archive),
            // Its index is of no known form: the next time all is read anew.
            false => self.distrust(),
        }
        self.appended = Some((at.seq, at.head));
        Ok(())
    }
}

/// Waits for versions that have no lock file for the ledger and lock the ledger itself,
/// and keeps them out. A shared lock is no version's: whoever may read the ledger can
/// take one, and nobody waits for that.
fn exclude_earlier_versions(file: &File, path: &Path, clock: &dyn Clock) -> Result<()> {
    let end = clock.instant() + OLD_VERSION_LOCK_TIMEOUT;
    while !sys::try_lock(file.as_fd()).path("lock", path)? {
        if sys::lock_conflict(file.as_fd()).path("lock", path)? == Some(Conflict::Shared) {
            return Ok(());
        }
        if clock.instant() >= end {
            let message = format!("{} stays locked by another process", path.display());
            return Err(Error::new(Kind::Busy, message));
        }
        clock.sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn is_broken_chain(result: &Result<()>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.kind() == Kind::Integrity)
}

/// The record of a repair, in the name of the run that found the damage.
fn repair(note: String, events: &[Event]) -> Event {
    let (run, trigger, user) = match events.first() {
        Some(event) => (event.run.clone(), event.trigger, event.user.clone()),
        None => (String::new(), Trigger::Cli, String::new()),
    };
    Event {
        note: Some(note),
        ..Event::of_archive(&run, Operation::Repair, trigger, &user)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;
    use crate::clock::System;

    fn event(note: &str) -> Event {
        Event {
            note: Some(note.to_string()),
            ..Event::new("5a10c3d2", Operation::Reset, Trigger::Cli, "ops", "scout")
        }
    }

    fn append(archive: &Archive, notes: &[&str]) -> Result<()> {
        let locked = Ledger::lock(archive, &System)?;
        let events = notes.iter().map(|note| event(note)).collect();
        Ledger::new(archive).append(locked, events, &System)
    }

    fn notes(archive: &Archive) -> Vec<String> {
        let mut notes = Vec::new();
        let mut scan = Scan::open(&archive.own(LEDGER_FILE_NAME)).unwrap().unwrap();
        while let Some(record) = scan.record().unwrap() {
            notes.push(record.what.note.unwrap_or_default());
        }
        notes
    }

    /// The numbers of an agent's records, from the last one back.
    fn seqs_back(ledger: &mut Ledger, agent: &str) -> Vec<u64> {
        let (mut back, _) = ledger.backwards().unwrap();
        let mut seqs = Vec::new();
        while let Some((place, record)) = back.next(|it| it.agent == agent).unwrap() {
            assert_eq!(place.seq, record.seq);
            seqs.push(record.seq);
        }
        seqs
    }

    #[test]
    fn a_last_line_is_repaired_wherever_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        append(&archive, &["first", "größer — 日本 🐑"]).unwrap();
        let path = archive.own(LEDGER_FILE_NAME);
        let text = std::fs::read(&path).unwrap();
        let begin = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert!(
            text[begin..].iter().any(|byte| *byte >= 0x80),
            "as it is said"
        );
        for cut in begin..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            assert_eq!(notes(&archive), ["first"], "cut at {cut}");
            append(&archive, &["next", "last"]).unwrap();
            let repair = format!("cut {} bytes of an unfinished record", cut - begin);
            let mut expected = vec!["first", &repair, "next", "last"];
            expected.retain(|note| cut > begin || *note != repair);
            assert_eq!(notes(&archive), expected, "cut at {cut}");
        }
    }

    /// A clock that moves by what is slept, and does something at each sleep.
    struct Sleeper {
        began: Instant,
        slept: Mutex<Duration>,
        act: Box<dyn Fn(Duration) + Send + Sync>,
    }

    impl Clock for Sleeper {
        fn now(&self) -> DateTime<FixedOffset> {
            System.now()
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
    fn append_waits_for_the_ledger_for_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        let append_while_held = |seconds: u64| {
            let held = Mutex::new(Some(Ledger::lock(&archive, &System).unwrap()));
            let release = move |slept: Duration| {
                if slept >= Duration::from_secs(seconds) {
                    drop(held.lock().unwrap().take());
                }
            };
            let clock = Sleeper {
                began: System.instant(),
                slept: Mutex::default(),
                act: Box::new(release),
            };
            let locked = Ledger::lock(&archive, &clock)?;
            Ledger::new(&archive).append(locked, vec![event("note")], &clock)
        };
        append_while_held(50).unwrap();
        assert_eq!(append_while_held(70).unwrap_err().kind(), Kind::Busy);
        assert_eq!(notes(&archive), ["note"]);
    }

    #[test]
    fn one_that_reads_all_the_time_sees_what_others_append() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        let mut reader = Ledger::new(&archive);
        assert_eq!(reader.history("scout").unwrap(), AgentHistory::default());
        for number in 1..=3 {
            append(&archive, &["one", "two"]).unwrap();
            assert_eq!(
                reader.history("scout").unwrap().last.unwrap().run,
                "5a10c3d2"
            );
            assert_eq!(reader.head().unwrap().0, 2 * number);
            assert_eq!(
                seqs_back(&mut reader, "scout"),
                (1..=2 * number).rev().collect::<Vec<u64>>()
            );
            assert_eq!(seqs_back(&mut reader, "nobody"), [0; 0]);
        }
    }
}
