//! Observation of many agents: what they have in common is read once.

use std::collections::HashSet;
use std::sync::Mutex;

use rustix::fs::{FileType, Stat};

use super::classify::MAX_WINDOW_BYTES;
use super::lock::LockDirectory;
use super::{AgentHistory, Engine, Observation, parallel};
use crate::config::Agent;
use crate::digest::Digest;
use crate::error::Result;

/// Number of agents whose observations are reported together.
const BATCH_AGENTS: usize = 2048;

/// Fewer agents than this are observed one by one as fast.
const MIN_QUICK_AGENTS: usize = 64;

/// What is known of the whole fleet before its agents are observed.
pub(super) struct KnownFleet {
    /// The agents that had journals.
    pub journaled: HashSet<String>,
    /// The directory of the locks.
    pub locks: LockDirectory,
    /// The last record of the ledger, up to which histories are known.
    ledger_head: Result<(u64, Digest)>,
}

impl KnownFleet {
    pub fn history(&self, engine: &Engine, agent: &Agent) -> Result<AgentHistory> {
        self.ledger_head.clone()?;
        engine.ledger().indexed_history(&agent.name)
    }
}

/// Returns whether this is a file that is read in no time.
pub(super) fn is_small_file(stat: &Stat) -> bool {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file && stat.st_size as u64 <= MAX_WINDOW_BYTES as u64
}

/// Splits agents into those with a property and the others.
fn split_agents<'c>(
    agents: impl IntoIterator<Item = (&'c Agent, bool)>,
) -> (Vec<&'c Agent>, Vec<&'c Agent>) {
    let (some, others): (Vec<_>, Vec<_>) = agents.into_iter().partition(|(_, has_it)| *has_it);
    let agents = |some: Vec<(&'c Agent, bool)>| some.into_iter().map(|(agent, _)| agent).collect();
    (agents(some), agents(others))
}

impl Engine {
    /// Observes many agents, on several hosts and by several processors at the same time. The
    /// results are in the order of `agents`.
    pub fn observe_all<'c>(&'c self, agents: &[&'c Agent]) -> Vec<Observation> {
        let known = self.read_known_fleet();
        let mut seen = self.observe_with(agents, &known);
        self.observe_run_agents(agents, &known, &mut seen);
        seen
    }

    /// Observes agents of this machine whose memories are files that are read in no time, many of
    /// them together: none of a small fleet, and none on a file system that may hang. Before it observes
    /// some of them, `prepare` returns which memories are such files; calls `report` with their
    /// observations, until that returns false. Returns the agents that it did not observe.
    pub(super) fn observe_quick_agents<'c>(
        &'c self,
        agents: &[&'c Agent],
        prepare: impl Fn(&[&'c Agent]) -> Vec<bool>,
        mut report: impl FnMut(Vec<Observation>) -> bool,
    ) -> Vec<&'c Agent> {
        let memories = agents.iter().map(|agent| agent.location.memory());
        let systems = self.file_systems().find_untrusted_all(memories);
        let systems = agents.iter().copied().zip(systems);
        let (trusted, mut others) = split_agents(systems.map(|(agent, it)| (agent, it.is_none())));
        if trusted.len() < MIN_QUICK_AGENTS {
            others.extend(trusted);
            return others;
        }
        for agents in trusted.chunks(BATCH_AGENTS) {
            let are_small = prepare(agents);
            let known = self.read_known_fleet();
            let (quick, slow) = split_agents(agents.iter().copied().zip(are_small));
            others.extend(slow);
            let mut seen = self.observe_with(&quick, &known);
            self.observe_run_agents(&quick, &known, &mut seen);
            if !report(seen) {
                break;
            }
        }
        others
    }

    fn read_known_fleet(&self) -> KnownFleet {
        self.refresh_shared_memories();
        KnownFleet {
            journaled: self.agents_with_journals(),
            locks: LockDirectory::open(self.archive()),
            ledger_head: self.ledger().head(),
        }
    }

    fn observe_with<'c>(&'c self, agents: &[&'c Agent], known: &KnownFleet) -> Vec<Observation> {
        let start_local = || {
            let baselines = Mutex::new(self.baseline_cache());
            move |agent| self.observe_as_one_of_many(agent, &baselines, known)
        };
        parallel::read_agents_by_site(self, agents, start_local, |agents| {
            self.observe_host_agents(agents)
        })
    }

    /// Observes the agents of this machine again that runs have changed since the ledger was read.
    fn observe_run_agents(&self, agents: &[&Agent], known: &KnownFleet, seen: &mut [Observation]) {
        if self.ledger().head() == known.ledger_head {
            return;
        }
        for (agent, seen) in agents.iter().zip(seen) {
            let history = self.ledger().indexed_history(&agent.name);
            let is_known = history.is_ok_and(|history| history.last_run == seen.last_run);
            if !is_known && agent.location.host().is_none() {
                *seen = self.observe(agent);
            }
        }
    }
}
