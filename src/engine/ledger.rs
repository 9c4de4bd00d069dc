//! The ledger: one line of JSON for everything that was done to an agent, each
//! carrying the digest of the line before, so that a changed, removed or
//! reordered record shows.
//!
//! `<archive_dir>/.shepherd/ledger.jsonl`. `prev` is the SHA-256 of the line
//! before without its line feed, and 64 zeros in the first line. A line that a
//! crash left unfinished is cut off by the next append, and that is recorded.

mod scan;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::archive::{Archive, Written};
use crate::clock::Clock;
use crate::digest::Digest;
use crate::engine::lock;
use crate::engine::memory::Boundary;
use crate::error::{Error, Kind, PathContext, Result};
use crate::transport::{Attributes, Method, Odd};
pub use scan::{Line, Place, Scan};

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// A reset.
    Reset,
    /// An undo of an earlier run.
    Undo,
    /// What an interrupted run left was put right: an unfinished last line of the
    /// ledger, or files that it had displaced. No memory was changed.
    Repair,
    /// Retention deletes entries. The record comes first.
    Retire,
}

impl Act {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Act::Reset => "reset",
            Act::Undo => "undo",
            Act::Repair => "repair",
            Act::Retire => "retire",
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
}

/// What stood at a memory's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
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
    Odd(Odd),
}

impl Standing {
    /// The digest, if it was a file.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Standing::File { sha256, .. } => Some(*sha256),
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
    pub act: Act,
    /// Who started it.
    pub trigger: Trigger,
    /// The operator's user name.
    pub user: String,
    /// The agent; empty when the ledger itself was repaired, and for retention.
    pub agent: String,
    /// The memory's host.
    pub host: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, when it did not end well; or what else is worth knowing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What stood there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Standing>,
    /// What was put there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Standing>,
    /// The baseline version that was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Digest>,
    /// The entry that holds what stood there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Written>,
    /// Entries with what late writers added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<Written>,
    /// Where the boundary was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<Boundary>,
    /// The version whose operator part stood above the scratch in the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Digest>,
    /// How the memory was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Owner, mode and attributes of the memory before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Attributes>,
    /// How long it took, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// The run that this one undid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
    /// Entries that retention was about to delete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<PathBuf>,
}

impl Event {
    /// The event of a run that is about to act on an agent; how it ends is
    /// filled in by whoever acts.
    pub(super) fn new(run: &str, act: Act, trigger: Trigger, user: &str, agent: &str) -> Event {
        Event {
            run: run.to_string(),
            act,
            trigger,
            user: user.to_string(),
            agent: agent.to_string(),
            host: "local".to_string(),
            outcome: Outcome::Ok,
            note: None,
            before: None,
            after: None,
            baseline: None,
            entry: None,
            late: Vec::new(),
            boundary: None,
            split: None,
            method: None,
            attributes: None,
            duration_ms: 0,
            undoes: None,
            retired: Vec::new(),
        }
    }

    /// Whether the memory was changed.
    pub fn changed(&self) -> bool {
        self.outcome == Outcome::Ok && matches!(self.act, Act::Reset | Act::Undo)
    }

    /// The entries that were written.
    pub fn written(&self) -> impl Iterator<Item = &Written> {
        self.entry.iter().chain(&self.late)
    }
}

/// The file among the program's own.
const NAME: &str = "ledger.jsonl";

/// The ledger of one archive.
pub struct Ledger {
    path: PathBuf,
    records: Arc<Vec<Record>>,
    read: u64,
    head: Digest,
    /// Device and inode of the file that was read.
    file: Option<(u64, u64)>,
    /// How often it was read from the start.
    readings: u64,
}

/// The ledger's file, open for appending and locked until it is dropped.
pub struct Locked {
    file: File,
    folder: OwnedFd,
}

impl Ledger {
    /// The ledger of `archive`; nothing is read yet.
    pub fn new(archive: &Archive) -> Ledger {
        Ledger {
            path: archive.own(NAME),
            records: Arc::default(),
            read: 0,
            head: Digest::ZERO,
            file: None,
            readings: 0,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All records, oldest first, after reading what was appended since the
    /// last call.
    ///
    /// # Errors
    /// A ledger that cannot be read, or whose chain is broken.
    pub fn records(&mut self) -> Result<Arc<Vec<Record>>> {
        match File::open(&self.path) {
            Ok(file) => self.read_on(&file)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.forget(),
            Err(error) => return Err(Error::io("read the ledger", &self.path, &error)),
        }
        Ok(Arc::clone(&self.records))
    }

    /// Number and digest of the last record.
    pub fn head(&self) -> (u64, Digest) {
        (self.records.len() as u64, self.head)
    }

    /// Number and time of the record with the latest time.
    ///
    /// # Errors
    /// As [`Ledger::records`].
    pub fn latest(&mut self) -> Result<Option<(u64, DateTime<FixedOffset>)>> {
        let records = self.records()?;
        let latest = records.iter().max_by_key(|record| record.time);
        Ok(latest.map(|record| (record.seq, record.time)))
    }

    /// Changes whenever what was read before is no longer true.
    pub fn readings(&self) -> u64 {
        self.readings
    }

    fn forget(&mut self) {
        self.records = Arc::default();
        self.read = 0;
        self.head = Digest::ZERO;
        self.file = None;
        self.readings += 1;
    }

    fn read_on(&mut self, file: &File) -> Result<()> {
        let meta = file.metadata().path("look at", &self.path)?;
        let id = (meta.dev(), meta.ino());
        if meta.len() < self.read || self.file.is_some_and(|read| read != id) {
            // Another ledger stands there: nothing read before is true of it.
            self.forget();
        }
        self.file = Some(id);
        let began = self.read;
        match self.read_rest(file) {
            // The same perhaps, for inodes are used again.
            Err(error) if error.kind() == Kind::Integrity && began > 0 => {
                self.forget();
                self.file = Some(id);
                self.read_rest(file)
            }
            result => result,
        }
    }

    fn read_rest(&mut self, file: &File) -> Result<()> {
        let file = file.try_clone().path("read", &self.path)?;
        let place = Place {
            seq: self.records.len() as u64,
            offset: self.read,
            from: 0,
            head: self.head,
        };
        let mut scan = Scan::new(file, &self.path, place)?;
        loop {
            let next = scan.record();
            self.head = scan.place().head;
            self.read = scan.place().offset;
            match next? {
                Some(record) => Arc::make_mut(&mut self.records).push(record),
                None => return Ok(()),
            }
        }
    }

    /// Opens and locks the ledger of `archive` for an append. It waits for other
    /// processes and threads, so nobody should be waiting for the caller.
    ///
    /// # Errors
    /// What the system answered, or another run that keeps the ledger locked for
    /// longer than ten seconds.
    pub fn lock(archive: &Archive, clock: &dyn Clock) -> Result<Locked> {
        let folder = archive.folder(Path::new(crate::archive::OWN))?;
        let path = archive.own(NAME);
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(archive.file_mode().as_raw_mode())
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .path("open the ledger", &path)?;
        archive.dress_own(&file, &path)?;
        lock::wait(&file, &path, clock)?;
        Ok(Locked { file, folder })
    }

    /// Appends records and puts them on the disk before it returns.
    ///
    /// # Errors
    /// What the system answered, or a broken chain.
    pub fn append(&mut self, locked: Locked, events: Vec<Event>, clock: &dyn Clock) -> Result<()> {
        let Locked { mut file, folder } = locked;
        self.read_on(&file)?;
        let mut text = Vec::new();
        let length = file.metadata().path("look at", &self.path)?.len();
        let mut events = events;
        if length > self.read {
            file.set_len(self.read).path("cut", &self.path)?;
            let note = format!("cut {} bytes of an unfinished record", length - self.read);
            events.insert(0, repair(note, &events));
        }
        let mut head = self.head;
        let mut records = Vec::new();
        for what in events {
            let record = Record {
                seq: (self.records.len() + records.len()) as u64 + 1,
                prev: head,
                time: clock.now(),
                what,
            };
            let line = serde_json::to_vec(&record).map_err(|error| {
                Error::new(Kind::Internal, format!("cannot write a record: {error}"))
            })?;
            head = Digest::of(&line);
            text.extend_from_slice(&line);
            text.push(b'\n');
            records.push(record);
        }
        file.write_all(&text).path("append to", &self.path)?;
        file.sync_data().path("sync", &self.path)?;
        if self.read == 0 {
            // The first record of a new file: its name, too.
            rustix::fs::fsync(&folder).path("sync the folder of", &self.path)?;
        }
        self.read += text.len() as u64;
        self.head = head;
        Arc::make_mut(&mut self.records).append(&mut records);
        Ok(())
    }
}

/// The record of a repair, in the name of the run that found the damage.
fn repair(note: String, events: &[Event]) -> Event {
    let (run, trigger, user) = match events.first() {
        Some(event) => (event.run.clone(), event.trigger, event.user.clone()),
        None => (String::new(), Trigger::Cli, String::new()),
    };
    Event {
        note: Some(note),
        host: String::new(),
        ..Event::new(&run, Act::Repair, trigger, &user, "")
    }
}
