//! The state changes of agents, as the console, runs and the guard observe them: when an agent's
//! state was first seen.
//!
//! `<archive_dir>/.shepherd/states.jsonl` has one change a line. `states.json` has the last known
//! state of each agent, and how much of the log it covers: a change is recorded once, by the process
//! that sees it first. Changes that a run makes are in the ledger; here they only become the state
//! that later observations are compared with. Nor does the log have a line when a healthy agent
//! writes its first note: between CLEAN and SCRATCH only the last known state changes.
//!
//! An observer that may not write records nothing, and neither does one that finds no archive.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::Engine;
use super::lock;
use super::observation::Observation;
use super::record::Trigger;
use super::semaphore::Permit;
use super::state::State;
use crate::clock::MAX_CLOCK_LEAD;
use crate::durable;
use crate::error::{Error, ErrorKind, PathContext, Result};

/// The log, and the one before it.
const LOG_FILE_NAME: &str = "states.jsonl";
const OLD_LOG_FILE_NAME: &str = "states.jsonl.old";

/// The last known states.
const STATES_FILE_NAME: &str = "states.json";

/// Size in bytes from which the log becomes the old one, if its first line is old enough.
const MAX_LOG_BYTES: u64 = 1 << 20;

/// The age of the first line from which it does: at least this many days are kept.
const MIN_KEPT_DAYS: i64 = 30;

/// Size from which it does in any case, however fast states change.
const MAX_FLAPPING_LOG_BYTES: u64 = 8 * MAX_LOG_BYTES;

/// Maximum number of bytes of a log that are read: its end.
const MAX_READ_LOG_BYTES: u64 = 2 * MAX_FLAPPING_LOG_BYTES;

/// Maximum size of the last known states: those of a hundred thousand agents.
const MAX_STATES_BYTES: u64 = 16 << 20;

/// Maximum length of a reason, in characters.
const MAX_REASON_CHARS: usize = 200;

/// How often an observer tries to take the lock, and how long it waits in between. The next
/// observation sees the change again.
const LOCK_ATTEMPTS: usize = 20;
const LOCK_INTERVAL: Duration = Duration::from_millis(10);

/// What observed a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateObserver {
    /// The console.
    Console,
    /// A command.
    Cli,
    /// A timer.
    Timer,
    /// The guard.
    Guard,
}

impl From<Trigger> for StateObserver {
    fn from(trigger: Trigger) -> StateObserver {
        match trigger {
            Trigger::Console => StateObserver::Console,
            Trigger::Cli => StateObserver::Cli,
            Trigger::Timer => StateObserver::Timer,
        }
    }
}

/// A change of an agent's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateChange {
    /// When the new state was first seen.
    pub time: DateTime<FixedOffset>,
    /// The agent.
    pub agent: String,
    /// The state before; none if it is not known.
    pub from: Option<State>,
    /// The new state.
    pub to: State,
    /// Why, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[serde(rename = "why")]
    pub reason: String,
    /// What observed it.
    #[serde(rename = "by")]
    pub observer: StateObserver,
}

/// A state of an agent that was seen.
#[derive(Clone, Debug)]
pub(super) struct SeenState {
    pub agent: String,
    pub state: State,
    pub reason: String,
    pub time: DateTime<FixedOffset>,
}

impl From<&Observation> for SeenState {
    fn from(observation: &Observation) -> SeenState {
        SeenState {
            agent: observation.agent.clone(),
            state: observation.state,
            reason: observation.reason.clone(),
            time: observation.read_at,
        }
    }
}

/// What is to be noted about an agent.
#[derive(Clone, Debug)]
pub(super) enum StateNote {
    /// An observer saw this state.
    Seen {
        seen: SeenState,
        observer: StateObserver,
    },
    /// The guard saw this state, and ended it.
    EndedByGuard(SeenState),
    /// A run left the agent in this state, which the ledger records.
    LeftByRun(SeenState),
    /// The agent's state is not known any more: a run or the guard changed it.
    Forgotten(String),
}

/// The last known state of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KnownState {
    state: State,
    since: DateTime<FixedOffset>,
}

/// The file of the last known states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct KnownStates {
    /// Number of bytes of the log that are taken into account.
    #[serde(rename = "log")]
    log_bytes: u64,
    agents: BTreeMap<String, KnownState>,
}

/// Exposes changes of the file: device, inode, size, and change time in seconds and nanoseconds.
type FileStamp = (u64, u64, u64, i64, i64);

/// The last known states, as they were last read.
#[derive(Default)]
pub(super) struct StateCache(Mutex<CachedStates>);

#[derive(Default)]
struct CachedStates {
    /// That of the file; none without one.
    stamp: Option<FileStamp>,
    known: KnownStates,
}

/// What a note changes.
struct NoteEffect {
    /// The agent's last known state afterwards.
    known: Option<KnownState>,
    /// The change to record.
    change: Option<StateChange>,
}

/// Whether a state is recorded: not one that only says that the agent was not read.
fn is_recorded(state: State) -> bool {
    !matches!(state, State::Busy | State::Loading)
}

impl From<&SeenState> for KnownState {
    fn from(seen: &SeenState) -> KnownState {
        KnownState {
            state: seen.state,
            since: seen.time,
        }
    }
}

impl StateNote {
    fn agent(&self) -> &str {
        match self {
            StateNote::Seen { seen, .. }
            | StateNote::EndedByGuard(seen)
            | StateNote::LeftByRun(seen) => &seen.agent,
            StateNote::Forgotten(agent) => agent,
        }
    }
}

impl KnownStates {
    /// Returns what a note changes; none if it changes nothing.
    fn effect_of(&self, note: &StateNote) -> Option<NoteEffect> {
        let known = self.agents.get(note.agent()).copied();
        let forgotten = NoteEffect {
            known: None,
            change: None,
        };
        let (seen, observer) = match note {
            StateNote::Seen { seen, observer } => (seen, *observer),
            StateNote::EndedByGuard(seen) => {
                if known.is_some_and(|known| known.state == seen.state) {
                    // What it was before is not known any more.
                    return Some(forgotten);
                }
                (seen, StateObserver::Guard)
            }
            StateNote::LeftByRun(seen) => {
                let is_other = known.is_none_or(|known| known.state != seen.state);
                return is_other.then(|| NoteEffect {
                    known: Some(seen.into()),
                    change: None,
                });
            }
            StateNote::Forgotten(_) => return known.map(|_| forgotten),
        };
        // An observation may be older than what another process has noted since.
        let is_news = known.is_none_or(|it| it.state != seen.state && it.since <= seen.time);
        if !is_news || !is_recorded(seen.state) {
            return None;
        }
        // A healthy agent writes notes and is reset all the time.
        let is_known_bad = known.is_some_and(|known| known.state.needs_attention());
        let is_change = is_known_bad || seen.state.needs_attention();
        Some(NoteEffect {
            known: match note {
                StateNote::EndedByGuard(_) => known,
                _ => Some(seen.into()),
            },
            change: is_change.then(|| StateChange {
                time: seen.time,
                agent: seen.agent.clone(),
                from: known.map(|known| known.state),
                to: seen.state,
                reason: seen.reason.chars().take(MAX_REASON_CHARS).collect(),
                observer,
            }),
        })
    }

    /// Applies a note. Returns whether it changed anything, and adds the change to record.
    fn apply(&mut self, note: &StateNote, changes: &mut Vec<StateChange>) -> bool {
        let Some(effect) = self.effect_of(note) else {
            return false;
        };
        match effect.known {
            Some(known) => drop(self.agents.insert(note.agent().to_string(), known)),
            None => drop(self.agents.remove(note.agent())),
        }
        changes.extend(effect.change);
        true
    }

    /// Applies the lines of the log that the file does not cover: a process was killed between the
    /// two. A log that is shorter than what the file covers is a new one, or lost its end in a power
    /// cut; it is read from its beginning. A line older than the known state changes nothing.
    ///
    /// Returns whether there were such lines.
    fn catch_up(&mut self, log: &File, length: u64) -> io::Result<bool> {
        if self.log_bytes == length {
            return Ok(false);
        }
        if self.log_bytes > length {
            self.log_bytes = 0;
        }
        if length - self.log_bytes > MAX_FLAPPING_LOG_BYTES {
            self.log_bytes = length;
        }
        let mut log = log;
        log.seek(SeekFrom::Start(self.log_bytes))?;
        for line in BufReader::new(log.take(length - self.log_bytes)).split(b'\n') {
            let Ok(change) = serde_json::from_slice::<StateChange>(&line?) else {
                continue;
            };
            let known = self.agents.get(&change.agent);
            if known.is_none_or(|known| known.since <= change.time) {
                let known = KnownState {
                    state: change.to,
                    since: change.time,
                };
                self.agents.insert(change.agent, known);
            }
        }
        self.log_bytes = length;
        Ok(true)
    }
}

impl Engine {
    /// Records what changed since the last observations, by any process. Best effort: an observer
    /// that may not write the archive records nothing.
    pub fn record_observations(&self, observations: &[Observation]) {
        self.note_states(&self.notes_of(observations));
    }

    /// Returns what is to be noted about observations of this process.
    pub(super) fn notes_of(&self, observations: &[Observation]) -> Vec<StateNote> {
        let observer = StateObserver::from(self.setup.trigger);
        let seen = observations.iter().map(SeenState::from);
        seen.map(|seen| StateNote::Seen { seen, observer })
            .collect()
    }

    /// Path of the log of state changes.
    pub(super) fn state_log_path(&self) -> PathBuf {
        self.archive.program_path(LOG_FILE_NAME)
    }

    /// Whether [`Engine::note_states`] has changes to record.
    pub(super) fn changes_states(&self, notes: &[StateNote]) -> bool {
        if notes.is_empty() {
            return false;
        }
        let cached = self.known_states();
        // The first note that changes anything does so to the states as they are.
        let has_effect = |note| cached.known.effect_of(note).is_some();
        notes.iter().any(has_effect)
    }

    /// Records the changes in notes. Best effort, as [`Engine::record_observations`].
    pub(super) fn note_states(&self, notes: &[StateNote]) {
        if !self.changes_states(notes) || !self.archive.program_path("").is_dir() {
            return;
        }
        if let Err(error) = self.write_states(notes) {
            tracing::debug!(%error, "state changes are not recorded");
        }
    }

    /// Returns since when an agent is known to be in a state; none if another one was seen last.
    pub fn state_since(&self, agent: &str, state: State) -> Option<DateTime<FixedOffset>> {
        let cached = self.known_states();
        let known = cached.known.agents.get(agent)?;
        (known.state == state).then_some(known.since)
    }

    /// As [`Engine::state_since`], for the state of each observation.
    pub fn states_since(&self, observations: &[Observation]) -> Vec<Option<DateTime<FixedOffset>>> {
        let cached = self.known_states();
        let since = |seen: &Observation| {
            let known = cached.known.agents.get(&seen.agent)?;
            (known.state == seen.state).then_some(known.since)
        };
        observations.iter().map(since).collect()
    }

    /// Returns the last known state of an agent, and since when it is known.
    pub fn last_known_state(&self, agent: &str) -> Option<(State, DateTime<FixedOffset>)> {
        let cached = self.known_states();
        let known = cached.known.agents.get(agent)?;
        Some((known.state, known.since))
    }

    /// Returns the changes, oldest first. A line that cannot be read is left out.
    ///
    /// # Errors
    /// The system's error. Without a log there are no changes.
    pub fn state_changes(&self) -> Result<Vec<StateChange>> {
        let mut changes = Vec::new();
        for name in [OLD_LOG_FILE_NAME, LOG_FILE_NAME] {
            let path = self.archive.program_path(name);
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
                changes.extend(serde_json::from_slice::<StateChange>(&line).ok());
            }
        }
        Ok(changes)
    }

    /// Returns the last known states, read again if their file has changed.
    fn known_states(&self) -> MutexGuard<'_, CachedStates> {
        let mut cache = self
            .state_cache
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let path = self.archive.program_path(STATES_FILE_NAME);
        let stamp = std::fs::symlink_metadata(&path).ok().map(|meta| {
            (
                meta.dev(),
                meta.ino(),
                meta.len(),
                meta.ctime(),
                meta.ctime_nsec(),
            )
        });
        if cache.stamp != stamp || stamp.is_none() {
            let known = self.read_states(&path);
            *cache = CachedStates { stamp, known };
        }
        cache
    }

    /// Reads the last known states. One that is known since a time in the future, which a clock ahead
    /// has written, gets a time that has passed: no observation would be newer until then.
    fn read_states(&self, path: &Path) -> KnownStates {
        let mut text = Vec::new();
        let read = durable::open_own_file(path, OpenOptions::new().read(true))
            .and_then(|file| file.take(MAX_STATES_BYTES).read_to_end(&mut text));
        let mut known: KnownStates = match read {
            Ok(_) => serde_json::from_slice(&text).unwrap_or_default(),
            Err(_) => KnownStates::default(),
        };
        let now = self.clock().now();
        for known in known.agents.values_mut() {
            if known.since > now + MAX_CLOCK_LEAD {
                // Observations of the last moments count as newer.
                known.since = now - MAX_CLOCK_LEAD;
            }
        }
        known
    }

    /// Appends the changes in notes to the log, and writes the last known states.
    fn write_states(&self, notes: &[StateNote]) -> Result<()> {
        let _lock = self.lock_states()?;
        let path = self.archive.program_path(STATES_FILE_NAME);
        let mut known = self.read_states(&path);
        let mut log = self.open_state_log()?;
        let log_path = self.state_log_path();
        let mut length = log.metadata().with_path("stat", &log_path)?.len();
        let has_caught_up = known.catch_up(&log, length).with_path("read", &log_path)?;
        let mut has_news = has_caught_up;
        let mut changes = Vec::new();
        for note in notes {
            has_news |= known.apply(note, &mut changes);
        }
        if !has_news {
            // Another process has recorded the same.
            return Ok(());
        }
        if self.is_state_log_full(&log, length) {
            let old = self.archive.program_path(OLD_LOG_FILE_NAME);
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
        // The file must not cover lines that a power cut takes from the log.
        if has_caught_up || !text.is_empty() {
            (&log).write_all(&text).with_path("append to", &log_path)?;
            log.sync_data().with_path("sync", &log_path)?;
        }
        known.log_bytes = length + text.len() as u64;
        let text = serde_json::to_vec(&known).map_err(serialization_error)?;
        self.archive.replace_program_file(&path, &text)
    }

    fn lock_states(&self) -> Result<Permit> {
        for _ in 0..LOCK_ATTEMPTS {
            if let Some(permit) = lock::try_lock_states(&self.archive)? {
                return Ok(permit);
            }
            self.clock().sleep(LOCK_INTERVAL);
        }
        let message = "the states are locked by another process";
        Err(Error::new(ErrorKind::Busy, message))
    }

    fn open_state_log(&self) -> Result<File> {
        let path = self.archive.program_path(LOG_FILE_NAME);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        options.mode(self.archive.file_mode().as_raw_mode());
        let file = durable::open_own_file(&path, &mut options).with_path("open", &path)?;
        self.archive.repair_program_file(&file, &path)?;
        Ok(file)
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
        let limit = self.clock().now() - chrono::Duration::days(MIN_KEPT_DAYS);
        length > MAX_FLAPPING_LOG_BYTES || first.is_none_or(|first| first.time < limit)
    }
}

fn serialization_error(error: serde_json::Error) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("cannot serialize the states: {error}"),
    )
}
