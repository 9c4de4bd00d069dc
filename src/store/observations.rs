//! Observations: the last known states of agents, the changes of these states, and what the console
//! showed last. The changes are history: they say when an agent's state was first seen.

use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::base::error::Result;
use crate::store::observation::Observation;
use crate::store::state::State;
use crate::store::trigger::Trigger;

/// Maximum length of a reason, in characters.
const MAX_REASON_CHARS: usize = 200;

/// Cuts a reason that is too long, and marks the cut.
fn cut_reason(reason: &str) -> String {
    match reason.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_string(),
    }
}

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
    #[serde(default, skip_serializing_if = "String::is_empty", rename = "why")]
    pub reason: String,
    /// What observed it.
    #[serde(rename = "by")]
    pub observer: StateObserver,
}

/// A state of an agent that was seen.
#[derive(Clone, Debug)]
pub struct SeenState {
    /// The agent.
    pub agent: String,
    /// The state.
    pub state: State,
    /// Why it is in this state.
    pub reason: String,
    /// When it was seen.
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

/// A fact about the state of an agent, to be recorded if it is new.
#[derive(Clone, Debug)]
pub enum StateNote {
    /// An observer saw this state.
    Seen {
        /// The state.
        seen: SeenState,
        /// Who saw it.
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
pub struct KnownState {
    /// The state.
    pub state: State,
    /// When it was first seen.
    pub since: DateTime<FixedOffset>,
}

/// Observations of the last session. Each is in a box: those of a large fleet are moved several times.
pub type SavedObservations = Vec<Box<Observation>>;

/// The observations of the last session, as they were loaded.
#[derive(Default)]
pub struct SavedFleet {
    /// One for each agent.
    pub observations: SavedObservations,
    /// Whether this user alone can have written them.
    pub is_own: bool,
}

/// The observations of a store. An observer that may not write records nothing, and neither does one
/// that finds no archive.
pub trait Observations: Send + Sync {
    /// Returns the last known state of each of these agents; none for an agent whose state is not
    /// known.
    fn known_states(&self, agents: &[&str]) -> Vec<Option<KnownState>>;

    /// Records what changes with these notes. A change is recorded once, by the process that notes it
    /// first.
    fn note(&self, notes: &[StateNote]);

    /// Returns the recorded changes, oldest first, without those that cannot be read.
    ///
    /// # Errors
    /// The store cannot be read.
    fn changes(&self) -> Result<Vec<StateChange>>;

    /// Saves the observations of a fleet for the first screen of the next session.
    ///
    /// # Errors
    /// The store cannot be written.
    fn save_fleet(&self, seen: &mut dyn Iterator<Item = &Observation>) -> Result<()>;

    /// Loads the observations of the last session, without those that cannot be read.
    fn load_fleet(&self) -> SavedFleet;

    /// A path that changes with the recorded changes, for watches.
    fn watched_path(&self) -> PathBuf;
}

impl dyn Observations + '_ {
    /// Whether [`Observations::note`] has changes to record.
    pub(crate) fn has_news(&self, notes: &[StateNote]) -> bool {
        let agents: Vec<&str> = notes.iter().map(StateNote::agent).collect();
        let known = self.known_states(&agents);
        // The first note that changes anything does so to the states as they are.
        let mut notes = notes.iter().zip(known);
        notes.any(|(note, known)| note.effect_on(known).is_some())
    }

    /// Returns the last known state of an agent.
    pub fn known_state(&self, agent: &str) -> Option<KnownState> {
        self.known_states(&[agent]).into_iter().next().flatten()
    }

    /// Records what changed since the last observations, by any process.
    pub fn record(&self, observations: &[Observation], trigger: Trigger) {
        self.note(&StateNote::of_observations(observations, trigger));
    }

    /// Returns since when an agent is known to be in a state; none if another one was seen last.
    pub fn state_since(&self, agent: &str, state: State) -> Option<DateTime<FixedOffset>> {
        let known = self.known_state(agent)?;
        (known.state == state).then_some(known.since)
    }

    /// Returns since when each agent is known to be in the state of its observation; none if another
    /// one was seen last.
    pub fn states_since(&self, observations: &[Observation]) -> Vec<Option<DateTime<FixedOffset>>> {
        let agents: Vec<&str> = observations.iter().map(|it| it.agent.as_str()).collect();
        let known = self.known_states(&agents).into_iter();
        let since = known.zip(observations).map(|(known, seen)| {
            let known = known.filter(|known| known.state == seen.state)?;
            Some(known.since)
        });
        since.collect()
    }
}

/// What a note changes.
pub(crate) struct NoteEffect {
    /// The agent's last known state afterwards.
    pub known: Option<KnownState>,
    /// The change to record.
    pub change: Option<StateChange>,
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
    /// Returns the notes of observations.
    pub(crate) fn of_observations(
        observations: &[Observation],
        trigger: Trigger,
    ) -> Vec<StateNote> {
        let observer = StateObserver::from(trigger);
        let seen = observations.iter().map(SeenState::from);
        seen.map(|seen| StateNote::Seen { seen, observer })
            .collect()
    }

    /// The agent.
    pub(crate) fn agent(&self) -> &str {
        match self {
            StateNote::Seen { seen, .. }
            | StateNote::EndedByGuard(seen)
            | StateNote::LeftByRun(seen) => &seen.agent,
            StateNote::Forgotten(agent) => agent,
        }
    }

    /// Returns what the note changes about an agent with this last known state; none if it changes
    /// nothing.
    pub(crate) fn effect_on(&self, known: Option<KnownState>) -> Option<NoteEffect> {
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
                reason: cut_reason(&seen.reason),
                observer,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_of_a_long_reason_is_marked() {
        assert_eq!(cut_reason("ä short one"), "ä short one");
        let longest = "ä".repeat(MAX_REASON_CHARS);
        assert_eq!(cut_reason(&longest), longest);
        assert_eq!(cut_reason(&format!("{longest}!")), format!("{longest}…"));
    }
}
