//! The states in which a run finds agents, for the log of state changes. What the run makes of them
//! is in the ledger; the log only learns with what to compare the next observation.

use std::sync::{Mutex, PoisonError};

use crate::baseline::BaselineRefusal;
use crate::boundary::Classification;
use crate::config::Agent;
use crate::engine::runs::Runs;
use crate::engine::runs::run_report::AgentResult;
use crate::engine::watch::classified_content::{
    NO_MEMORY_REASON, describe_drift, describe_oversize, state_of,
};
use crate::store::observations::{SeenState, StateNote, StateObserver};
use crate::store::record::{Operation, Outcome};
use crate::store::state::State;
use crate::transport::{FailureCause, MemoryObject};

/// The states in which a run found agents.
pub(super) struct FoundStates<'a> {
    pub(super) runs: &'a Runs,
    /// In the order of their notes.
    pub(super) found: Mutex<Vec<SeenState>>,
}

impl FoundStates<'_> {
    /// Notes the state of a memory that was read.
    pub(super) fn note_memory(
        &self,
        agent: &Agent,
        object: &MemoryObject,
        classification: &Classification,
        size: u64,
    ) {
        let (state, reason) = match object {
            MemoryObject::Absent => (State::Missing, NO_MEMORY_REASON.to_string()),
            MemoryObject::Special(special) => (
                State::Error,
                self.runs.scanner.describe_special(agent, special),
            ),
            MemoryObject::File(_) => {
                let state = state_of(classification);
                let oversize = describe_oversize(size, agent.max_memory_size());
                match oversize.filter(|_| State::Oversize < state) {
                    Some(reason) => (State::Oversize, reason),
                    None => (state, describe_drift(classification).unwrap_or_default()),
                }
            }
        };
        self.note(agent, state, reason);
    }

    /// Notes that the baseline of an agent cannot be installed.
    pub(super) fn note_refused_baseline(&self, agent: &Agent, refusal: &BaselineRefusal) {
        let state = match refusal {
            BaselineRefusal::Tampered(_) => State::Tampered,
            BaselineRefusal::Unusable(_) => State::Error,
        };
        self.note(agent, state, refusal.error().to_string());
    }

    /// Notes that the host of an agent cannot be reached, if that is the cause.
    pub(super) fn note_unreachable(
        &self,
        agent: &Agent,
        cause: FailureCause,
        error: &impl ToString,
    ) {
        let state = match cause {
            FailureCause::Unreachable => State::Unreach,
            FailureCause::HostKeyMismatch => State::HostKey,
            _ => return,
        };
        self.note(agent, state, error.to_string());
    }

    fn note(&self, agent: &Agent, state: State, reason: String) {
        let seen = SeenState {
            agent: agent.name.clone(),
            state,
            reason,
            time: self.runs.context.clock().now(),
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.push(seen);
    }

    /// Records the states in which the run found its agents, and those in which it left them.
    pub(super) fn record(&self, operation: Operation, results: &[AgentResult]) {
        let observer = StateObserver::from(self.runs.context.trigger());
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        // Most agents have notes that the run takes away; it does not matter since when.
        found.retain(|seen| seen.state != State::Scratch);
        let found = std::mem::take(&mut *found).into_iter();
        let found = found.map(|seen| StateNote::Seen { seen, observer });
        let time = self.runs.context.clock().now();
        // What the checks of a memory of several files found holds after a run as before.
        let has_layout = |name: &str| {
            let agent = self.runs.context.agent(name);
            agent.is_ok_and(|agent| agent.layout.is_some())
        };
        let known = results.iter().filter(|result| !has_layout(&result.agent));
        let left = known.filter_map(|result| {
            let agent = result.agent.clone();
            match (operation, result.outcome) {
                (Operation::Reset, Outcome::Ok | Outcome::Unchanged) => {
                    Some(StateNote::LeftByRun(SeenState {
                        agent,
                        state: State::Clean,
                        reason: String::new(),
                        time,
                    }))
                }
                // What is in the memory now depends on what was kept or restored.
                (_, Outcome::Ok) => Some(StateNote::Forgotten(agent)),
                _ => None,
            }
        });
        let notes: Vec<StateNote> = found.chain(left).collect();
        self.runs.context.observations().note(&notes);
    }
}
