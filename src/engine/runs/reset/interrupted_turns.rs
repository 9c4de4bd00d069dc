//! The recovery of interrupted runs before a command decides what it is about: a target such as "the
//! last run" depends on what recovery appends to the ledger.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{ProgressCallback, Run};
use crate::base::error::{Error, Result};
use crate::config::Agent;
use crate::engine::runs::Runs;
use crate::engine::runs::plan::Plan;
use crate::engine::runs::undo::UndoRecords;
use crate::engine::watch::parallel::map_agents_by_site;
use crate::store::journal::Transaction;
use crate::store::record::{Operation, RunEvent};

/// An agent's turn of a run that ended within it, as by a kill or a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptedTurn {
    /// The agent.
    pub agent: String,
    /// The run.
    pub run: String,
    /// Where the memory of the agent was at that time.
    pub memory: Option<PathBuf>,
    /// What the run did.
    pub operation: Operation,
    /// The run that it undid.
    pub undone_run: Option<String>,
}

impl InterruptedTurn {
    pub(super) fn from_event(event: &RunEvent) -> InterruptedTurn {
        InterruptedTurn {
            agent: event.agent.clone(),
            run: event.run.clone(),
            memory: event.memory.clone(),
            operation: event.operation,
            undone_run: event.undone_run.clone(),
        }
    }
}

/// What the recovery of interrupted runs came to.
#[derive(Debug, Default)]
pub struct RecoveredTurns {
    /// The turns that had replaced a memory: the ledger has them as finished now.
    pub turns: Vec<InterruptedTurn>,
    /// Why turns that the ledger lacks could not be recovered, as on a host that does not answer; each
    /// names its agent.
    pub failures: Vec<Error>,
}

impl RecoveredTurns {
    /// Returns the turns that were recovered.
    ///
    /// # Errors
    /// The first failure.
    pub fn into_result(self) -> Result<Vec<InterruptedTurn>> {
        match self.failures.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(self.turns),
        }
    }
}

impl Runs {
    /// Recovers the interrupted runs of these agents. Agents that another run has locked are left to it.
    ///
    /// # Errors
    /// Another archive than the one that the config names is at `archive_dir`.
    pub fn recover_interrupted_turns(
        &self,
        names: &[String],
        cancel: &AtomicBool,
        progress: ProgressCallback<'_>,
    ) -> Result<RecoveredTurns> {
        let agents = self.idle_agents_with_journals(names);
        if agents.is_empty() {
            return Ok(RecoveredTurns::default());
        }
        self.context.archive().check_expected()?;
        let _root_pin = self.context.archive().pin_root();
        let plan = Plan::new(
            Operation::Undo,
            self.context.clock().now(),
            Vec::new(),
            Vec::new(),
        );
        let run = Run::new(self, &plan, false, cancel, progress);
        let recover = |agent| run.recover_alone(agent);
        let recovered = map_agents_by_site(&self.hosts, &agents, &recover);
        run.write_log_lines();
        Ok(RecoveredTurns {
            turns: std::mem::take(&mut run.shared().recovered_turns),
            failures: recovered.into_iter().filter_map(Result::err).collect(),
        })
    }

    /// Returns the agents with an interrupted run that a run is about, by its records or because it was
    /// the one that was interrupted. What cannot be read is no error here: the plan of an undo says so.
    pub fn interrupted_agents_of(&self, run: &str) -> Vec<String> {
        let journals = self.context.journals().list().unwrap_or_default();
        if journals.is_empty() {
            return Vec::new();
        }
        let records = UndoRecords::from_run(&self.context, run).ok();
        let is_recorded = |agent: &str| records.as_ref().is_some_and(|it| it.get(agent).is_some());
        let is_interrupted = |journal: &Path| {
            let read = self.context.journals().read(journal).ok().flatten();
            read.is_some_and(|(transaction, _)| transaction.event.run == run)
        };
        journals
            .into_iter()
            .filter(|(agent, journal)| is_recorded(agent) || is_interrupted(journal))
            .map(|(agent, _)| agent)
            .collect()
    }

    /// Whether a turn of an agent goes on, was interrupted, or has left something to be settled.
    pub fn has_open_turn(&self, agent: &str) -> bool {
        self.context.journals().can_have_journal(agent)
    }

    /// Returns the interrupted turns of these agents that the ledger lacks, and recovers none.
    ///
    /// # Errors
    /// A journal or the ledger cannot be read.
    pub fn unrecorded_turns(&self, names: &[String]) -> Result<Vec<InterruptedTurn>> {
        let mut turns = Vec::new();
        for agent in self.idle_agents_with_journals(names) {
            for transaction in self.unrecorded_transactions(&agent.name)? {
                turns.push(InterruptedTurn::from_event(&transaction.event));
            }
        }
        Ok(turns)
    }

    /// Returns those of these agents that have a journal and are not locked by a run.
    pub(super) fn idle_agents_with_journals(&self, names: &[String]) -> Vec<&Agent> {
        let left = self.context.journals().agents();
        let mut agents: Vec<&Agent> = Vec::new();
        for agent in names
            .iter()
            .filter_map(|name| self.context.agent(name).ok())
        {
            let is_listed = agents.iter().any(|it| it.name == agent.name);
            let is_idle = || !self.context.leases().is_held(&agent.name);
            if !is_listed && left.contains(&agent.name) && is_idle() {
                agents.push(agent);
            }
        }
        agents
    }

    fn unrecorded_transactions(&self, agent: &str) -> Result<Vec<Transaction>> {
        let mut found = Vec::new();
        for (_, journal) in self
            .context
            .journals()
            .list()?
            .iter()
            .filter(|(name, _)| name == agent)
        {
            if let Some((transaction, _)) = self.context.journals().read(journal)?
                && !transaction.is_recorded_by(
                    &self.ledger_events_after(&transaction.event, transaction.ledger_seq)?,
                )
            {
                found.push(transaction);
            }
        }
        Ok(found)
    }
}

impl Run<'_> {
    /// Recovers the interrupted runs of an agent whose turn this is not. What cannot be settled and is
    /// in the ledger stays for the agent's next turn.
    pub(super) fn recover_alone(&self, agent: &Agent) -> Result<(), Error> {
        let lock = Arc::new(self.lock_agent(agent)?);
        self.lock_layout_memory(agent)?;
        match self.recoverer().recover(agent, Some(&lock)) {
            Ok(_) => Ok(()),
            Err(error) => match self.runs.unrecorded_transactions(&agent.name) {
                Ok(left) if left.is_empty() => Ok(()),
                _ => Err(error.with_context(&agent.name)),
            },
        }
    }
}
