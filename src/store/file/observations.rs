//! Observations in files.
//!
//! `<archive_dir>/.shepherd/states.jsonl` has one change a line. `states.known` has the last known
//! state of each agent, and how much of the log it covers: a change is recorded once, by the process
//! that sees it first. Changes that a run makes are in the ledger; here they only become the state
//! that later observations are compared with. Nor does the log have a line when a healthy agent
//! writes its first note: between CLEAN and SCRATCH only the last known state changes.

mod known_states;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::geteuid;

use super::lock::ArchiveLock;
use super::semaphore::Permit;
use crate::archive::PROGRAM_DIRECTORY_NAME;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::threads::map_chunks_on_processors;
use crate::config::is_agent_name;
use crate::store::controller::Controller;
use crate::store::observation::Observation;
use crate::store::observations::{
    KnownState, Observations, SavedFleet, SavedObservations, StateChange, StateNote,
};
use known_states::{ChangedStates, KnownStates};

/// The log, and the one before it.
const LOG_FILE_NAME: &str = "states.jsonl";
const OLD_LOG_FILE_NAME: &str = "states.jsonl.old";

/// What the console showed last: one line of JSON for each agent, so that several processors parse
/// them.
const FLEET_FILE_NAME: &str = "fleet.jsonl";

/// The last known states.
const STATES_FILE_NAME: &str = "states.known";

/// Size in bytes from which the log becomes the old one, if its first line is old enough.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// The age of the first line from which it does: at least this many days are kept.
const MIN_KEPT_DAYS: i64 = 30;

/// Size from which it does in any case, however fast states change.
const MAX_FLAPPING_LOG_BYTES: u64 = 8 * MAX_LOG_BYTES;

/// Maximum number of bytes of a log that are read: its end.
const MAX_READ_LOG_BYTES: u64 = 2 * MAX_FLAPPING_LOG_BYTES;

/// How often an observer tries to take the lock, and how long it waits in between. The next
/// observation sees the change again.
const LOCK_ATTEMPTS: usize = 20;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// The size of the fleet's file that is loaded: ten times that of a fleet of 10,000 agents.
const MAX_FLEET_BYTES: u64 = 64 << 20;

/// The observations in `<archive_dir>/.shepherd/`.
pub(crate) struct FileObservations {
    controller: Arc<Controller>,
    /// The last known states, as they were last read.
    known_states: Mutex<KnownStates>,
}

/// Returns the changes in the part of the log that the last known states do not cover: a process was
/// killed between the two. A log that is shorter than what they cover is a new one, or lost its end in
/// a power cut; it is read from its beginning. None if they cover all of it.
fn read_uncovered(
    log: &File,
    covered_bytes: u64,
    length: u64,
) -> io::Result<Option<Vec<StateChange>>> {
    if covered_bytes == length {
        return Ok(None);
    }
    let start = if covered_bytes > length {
        0
    } else {
        covered_bytes
    };
    let mut changes = Vec::new();
    if length - start <= MAX_FLAPPING_LOG_BYTES {
        let mut log = log;
        log.seek(SeekFrom::Start(start))?;
        for line in BufReader::new(log.take(length - start)).split(b'\n') {
            let change = serde_json::from_slice::<StateChange>(&line?).ok();
            changes.extend(change.filter(|change| is_agent_name(&change.agent)));
        }
    }
    Ok(Some(changes))
}

impl FileObservations {
    /// Creates the observations; reads and writes nothing yet.
    pub fn new(controller: &Arc<Controller>) -> FileObservations {
        FileObservations {
            controller: Arc::clone(controller),
            known_states: Mutex::default(),
        }
    }

    /// Returns the last known states, opened again if their file has changed.
    fn open_known_states(&self) -> MutexGuard<'_, KnownStates> {
        let states = self.known_states.lock();
        let mut states = states.unwrap_or_else(PoisonError::into_inner);
        if self.controller.archive().check_expected().is_ok() {
            states.refresh(&self.controller.archive().program_path(STATES_FILE_NAME));
        } else {
            *states = KnownStates::default();
        }
        states
    }

    /// Appends the changes in notes to the log, and records the last known states.
    fn write_states(&self, notes: &[StateNote]) -> Result<()> {
        let _lock = self.lock_states()?;
        let mut log = self.open_state_log()?;
        let log_path = self.watched_path();
        let mut length = log.metadata().with_path("stat", &log_path)?.len();
        let covered_bytes = self.open_known_states().log_bytes();
        let uncovered = read_uncovered(&log, covered_bytes, length).with_path("read", &log_path)?;
        let has_caught_up = uncovered.is_some();
        let (changed, changes) = self.apply_notes(&uncovered.unwrap_or_default(), notes);
        if !has_caught_up && changed.is_empty() && changes.is_empty() {
            // Another process has recorded the same.
            return Ok(());
        }
        if self.is_state_log_full(&log, length) {
            let old = self.controller.archive().program_path(OLD_LOG_FILE_NAME);
            std::fs::rename(&log_path, old).with_path("move", &log_path)?;
            log = self.open_state_log()?;
            length = 0;
        }
        let mut text = Vec::new();
        let mut last = [b'\n'];
        if length > 0 && log.read_exact_at(&mut last, length - 1).is_ok() && last != *b"\n" {
            // A process was killed within a line.
            text.push(b'\n');
        }
        for change in &changes {
            serde_json::to_writer(&mut text, change).map_err(serialization_error)?;
            text.push(b'\n');
        }
        // The last known states must not cover lines that a power cut takes from the log.
        if has_caught_up || !text.is_empty() {
            (&log).write_all(&text).with_path("append to", &log_path)?;
            log.sync_data().with_path("sync", &log_path)?;
        }
        if length == 0 && !text.is_empty() {
            // Its name may be new, too.
            let directory = self.controller.archive().program_path("");
            rustix::fs::fsync(durable::open_directory(&directory)?)
                .with_path("sync", &directory)?;
        }
        self.save_known_states(&changed, length + text.len() as u64)
    }

    /// Returns the last known states that differ after the changes that another process has logged
    /// and after the notes, and the changes to log. A logged change older than the known state changes
    /// nothing.
    fn apply_notes(
        &self,
        logged: &[StateChange],
        notes: &[StateNote],
    ) -> (ChangedStates, Vec<StateChange>) {
        let mut states = self.open_known_states();
        let mut changed = ChangedStates::new();
        for change in logged {
            let known = changed.get(&change.agent).copied();
            let known = known.unwrap_or_else(|| states.get(&change.agent, self.controller.clock()));
            if known.is_none_or(|known| known.since <= change.time) {
                let known = KnownState {
                    state: change.to,
                    since: change.time,
                };
                changed.insert(change.agent.clone(), Some(known));
            }
        }
        let mut changes = Vec::new();
        for note in notes {
            let known = changed.get(note.agent()).copied();
            let known = known.unwrap_or_else(|| states.get(note.agent(), self.controller.clock()));
            if let Some(effect) = note.effect_on(known) {
                changed.insert(note.agent().to_string(), effect.known);
                changes.extend(effect.change);
            }
        }
        changed.retain(|agent, known| *known != states.get(agent, self.controller.clock()));
        (changed, changes)
    }

    /// Records changed states, and that the last known states cover this number of bytes of the log.
    fn save_known_states(&self, changed: &ChangedStates, log_bytes: u64) -> Result<()> {
        let path = self.controller.archive().program_path(STATES_FILE_NAME);
        let mut states = self.open_known_states();
        let lines = states.lines_to_append(changed, log_bytes);
        let Some(lines) = lines.map_err(serialization_error)? else {
            let text = states.sorted_text(changed, log_bytes, self.controller.clock());
            drop(states);
            return self
                .controller
                .archive()
                .replace_program_file(&path, &text.map_err(serialization_error)?);
        };
        // Other threads need not wait for the disk.
        drop(states);
        let permissions = self.controller.archive().permissions();
        let file = permissions.open_own_file(&path, OpenOptions::new().append(true))?;
        (&file).write_all(&lines).with_path("append to", &path)?;
        file.sync_data().with_path("sync", &path)
    }

    fn lock_states(&self) -> Result<Permit> {
        for _ in 0..LOCK_ATTEMPTS {
            if let Some(permit) = ArchiveLock::States.try_acquire_all(self.controller.archive())? {
                return Ok(permit);
            }
            self.controller.clock().sleep(LOCK_INTERVAL);
        }
        let message = "the states are locked by another process";
        Err(Error::new(ErrorKind::Busy, message))
    }

    fn open_state_log(&self) -> Result<File> {
        let path = self.controller.archive().program_path(LOG_FILE_NAME);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let permissions = self.controller.archive().permissions();
        permissions.open_own_file(&path, &mut options)
    }

    /// Whether the log has the size and the age to become the old one.
    fn is_state_log_full(&self, log: &File, length: u64) -> bool {
        if length <= MAX_LOG_BYTES {
            return false;
        }
        let mut log = log;
        let mut line = Vec::new();
        let read = log
            .seek(SeekFrom::Start(0))
            .and_then(|_| BufReader::new(log.take(64 * 1024)).read_until(b'\n', &mut line));
        let first = read
            .ok()
            .and_then(|_| serde_json::from_slice::<StateChange>(&line).ok());
        let limit = self.controller.clock().now() - chrono::Duration::days(MIN_KEPT_DAYS);
        length > MAX_FLAPPING_LOG_BYTES || first.is_none_or(|first| first.time < limit)
    }
}

impl Observations for FileObservations {
    fn known_states(&self, agents: &[&str]) -> Vec<Option<KnownState>> {
        if agents.is_empty() {
            return Vec::new();
        }
        let mut states = self.open_known_states();
        let clock = self.controller.clock();
        agents
            .iter()
            .map(|agent| states.get(agent, clock))
            .collect()
    }

    fn note(&self, notes: &[StateNote]) {
        let has_news = (self as &dyn Observations).has_news(notes);
        if !has_news || !self.controller.archive().is_begun() {
            return;
        }
        if let Err(error) = self.write_states(notes) {
            tracing::debug!(%error, "state changes are not recorded");
        }
    }

    fn changes(&self) -> Result<Vec<StateChange>> {
        self.controller.archive().check_expected()?;
        let (mut changes, zone) = (Vec::new(), self.controller.clock().zone());
        for name in [OLD_LOG_FILE_NAME, LOG_FILE_NAME] {
            let path = self.controller.archive().program_path(name);
            let file = match durable::open_own_file(&path, OpenOptions::new().read(true)) {
                Err(error) if durable::is_absent(&error) => continue,
                file => file.with_path("read", &path)?,
            };
            let length = file.metadata().with_path("stat", &path)?.len();
            let mut file = file;
            // No version lets a log grow longer.
            file.seek(SeekFrom::Start(length.saturating_sub(MAX_READ_LOG_BYTES)))
                .with_path("read", &path)?;
            for line in BufReader::new(file.take(MAX_READ_LOG_BYTES)).split(b'\n') {
                let line = line.with_path("read", &path)?;
                if let Ok(mut change) = serde_json::from_slice::<StateChange>(&line) {
                    change.time = zone.at(change.time);
                    changes.push(change);
                }
            }
        }
        Ok(changes)
    }

    fn save_fleet(&self, seen: &mut dyn Iterator<Item = &Observation>) -> Result<()> {
        let archive = self.controller.archive();
        archive.open_or_create_directory(PROGRAM_DIRECTORY_NAME.as_ref())?;
        let mut text = Vec::new();
        for seen in seen {
            serde_json::to_writer(&mut text, seen).map_err(serialization_error)?;
            text.push(b'\n');
        }
        archive.replace_program_file(&archive.program_path(FLEET_FILE_NAME), &text)
    }

    fn load_fleet(&self) -> SavedFleet {
        if self.controller.archive().check_expected().is_err() {
            return SavedFleet::default();
        }
        let path = self.controller.archive().program_path(FLEET_FILE_NAME);
        let Ok(file) = durable::open_own_file(&path, OpenOptions::new().read(true)) else {
            return SavedFleet::default();
        };
        let is_own = file.metadata().is_ok_and(|meta| is_written_here(&meta));
        let text = durable::read_at_most(file, MAX_FLEET_BYTES).unwrap_or_default();
        let ends = memchr::memchr_iter(b'\n', &text).chain([text.len()]);
        let begins = [0].into_iter().chain(ends.clone().map(|end| end + 1));
        let lines = begins.zip(ends).map(|(begin, end)| &text[begin..end]);
        let lines: Vec<&[u8]> = lines.collect();
        let zone = self.controller.clock().zone();
        let parse = |lines: &[&[u8]]| -> SavedObservations {
            let seen = lines.iter().filter_map(|line| {
                let mut seen: Box<Observation> = serde_json::from_slice(line).ok()?;
                seen.read_at = zone.at(seen.read_at);
                if let Some(last) = &mut seen.last_run {
                    last.time = zone.at(last.time);
                }
                Some(seen)
            });
            seen.collect()
        };
        let parts = map_chunks_on_processors(&lines, || parse);
        SavedFleet {
            observations: parts.into_iter().flatten().collect(),
            is_own,
        }
    }

    fn watched_path(&self) -> PathBuf {
        self.controller.archive().program_path(LOG_FILE_NAME)
    }
}

/// Returns whether this user alone can have written a file.
fn is_written_here(meta: &Metadata) -> bool {
    meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0
}

fn serialization_error(error: serde_json::Error) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("cannot serialize the states: {error}"),
    )
}
