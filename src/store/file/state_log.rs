//! The state changes of agents, as the console, runs and the guard observe them: when an agent's
//! state was first seen.
//!
//! `<archive_dir>/.shepherd/states.jsonl` has one change a line. `states.known` has the last known
//! state of each agent, and how much of the log it covers: a change is recorded once, by the process
//! that sees it first. Changes that a run makes are in the ledger; here they only become the state
//! that later observations are compared with. Nor does the log have a line when a healthy agent
//! writes its first note: between CLEAN and SCRATCH only the last known state changes.
//!
//! An observer that may not write records nothing, and neither does one that finds no archive.

mod known_states;

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::lock;
use super::semaphore::Permit;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::config::is_agent_name;
use crate::store::StateLog;
use crate::store::observation::Observation;
use crate::store::state::State;
use crate::store::trigger::Trigger;
use known_states::{ChangedStates, KnownState, KnownStates};

/// The log, and the one before it.
const LOG_FILE_NAME: &str = "states.jsonl";
const OLD_LOG_FILE_NAME: &str = "states.jsonl.old";

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
pub(crate) struct SeenState {
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
pub(crate) enum StateNote {
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

/// The last known states, as they were last read.
#[derive(Default)]
pub(crate) struct StateCache(Mutex<KnownStates>);

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

    /// Returns what the note changes about an agent with this last known state; none if it changes
    /// nothing.
    fn effect_on(&self, known: Option<KnownState>) -> Option<NoteEffect> {
        let forgotten = NoteEffect {
            known: None,
            change: None,
        };
        let (seen, observer) = match self {
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
            known: match self {
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

impl StateLog {
    /// Records what changed since the last observations, by any process. Best effort: an observer
    /// that may not write the archive records nothing.
    pub fn record_observations(&self, observations: &[Observation]) {
        self.note_states(&self.notes_of(observations));
    }

    /// Returns what is to be noted about observations of this process.
    pub(crate) fn notes_of(&self, observations: &[Observation]) -> Vec<StateNote> {
        let observer = StateObserver::from(self.controller.trigger());
        let seen = observations.iter().map(SeenState::from);
        seen.map(|seen| StateNote::Seen { seen, observer })
            .collect()
    }

    /// Path of the log of state changes.
    pub(crate) fn state_log_path(&self) -> PathBuf {
        self.controller.archive().program_path(LOG_FILE_NAME)
    }

    /// Whether [`StateLog::note_states`] has changes to record.
    pub(crate) fn changes_states(&self, notes: &[StateNote]) -> bool {
        if notes.is_empty() {
            return false;
        }
        let mut states = self.known_states();
        // The first note that changes anything does so to the states as they are.
        let mut has_effect = |note: &StateNote| {
            let known = states.get(note.agent(), self.controller.clock());
            note.effect_on(known).is_some()
        };
        notes.iter().any(&mut has_effect)
    }

    /// Records the changes in notes. Best effort, as [`StateLog::record_observations`].
    pub(crate) fn note_states(&self, notes: &[StateNote]) {
        if !self.changes_states(notes) || !self.controller.archive().program_path("").is_dir() {
            return;
        }
        if let Err(error) = self.write_states(notes) {
            tracing::debug!(%error, "state changes are not recorded");
        }
    }

    /// Returns since when an agent is known to be in a state; none if another one was seen last.
    pub fn state_since(&self, agent: &str, state: State) -> Option<DateTime<FixedOffset>> {
        let known = self.known_states().get(agent, self.controller.clock())?;
        (known.state == state).then_some(known.since)
    }

    /// As [`StateLog::state_since`], for the state of each observation.
    pub fn states_since(&self, observations: &[Observation]) -> Vec<Option<DateTime<FixedOffset>>> {
        let mut states = self.known_states();
        let since = |seen: &Observation| {
            let known = states.get(&seen.agent, self.controller.clock())?;
            (known.state == seen.state).then_some(known.since)
        };
        observations.iter().map(since).collect()
    }

    /// Returns the last known state of an agent, and since when it is known.
    pub fn last_known_state(&self, agent: &str) -> Option<(State, DateTime<FixedOffset>)> {
        let known = self.known_states().get(agent, self.controller.clock())?;
        Some((known.state, known.since))
    }

    /// Returns the changes, oldest first. A line that cannot be read is left out.
    ///
    /// # Errors
    /// The system's error. Without a log there are no changes.
    pub fn state_changes(&self) -> Result<Vec<StateChange>> {
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

    /// Returns the last known states, opened again if their file has changed.
    fn known_states(&self) -> MutexGuard<'_, KnownStates> {
        let states = self.state_cache.0.lock();
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
        let log_path = self.state_log_path();
        let mut length = log.metadata().with_path("stat", &log_path)?.len();
        let covered_bytes = self.known_states().log_bytes();
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
        let mut states = self.known_states();
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
        let mut states = self.known_states();
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
        let file = durable::open_own_file(&path, OpenOptions::new().append(true))
            .with_path("open", &path)?;
        self.controller
            .archive()
            .repair_program_file(&file, &path)?;
        (&file).write_all(&lines).with_path("append to", &path)?;
        file.sync_data().with_path("sync", &path)
    }

    fn lock_states(&self) -> Result<Permit> {
        for _ in 0..LOCK_ATTEMPTS {
            if let Some(permit) = lock::try_lock_states(self.controller.archive())? {
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
        options.mode(self.controller.archive().file_mode().as_raw_mode());
        let file = durable::open_own_file(&path, &mut options).with_path("open", &path)?;
        self.controller
            .archive()
            .repair_program_file(&file, &path)?;
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
        let limit = self.controller.clock().now() - chrono::Duration::days(MIN_KEPT_DAYS);
        length > MAX_FLAPPING_LOG_BYTES || first.is_none_or(|first| first.time < limit)
    }
}

fn serialization_error(error: serde_json::Error) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("cannot serialize the states: {error}"),
    )
}
