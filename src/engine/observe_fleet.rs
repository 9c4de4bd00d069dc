//! Observation of many agents: what they have in common is read once.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use super::classify::MAX_WINDOW_BYTES;
use super::content_index::{ProbedFiles, SharedIndex};
use super::{AgentHistory, Engine, Observation, parallel};
use crate::config::Agent;
use crate::digest::Digest;
use crate::error::Result;

/// Number of agents whose observations are reported together.
const BATCH_AGENTS: usize = 512;

/// Maximum wait for a file system to return the stamps of memories; its agents are then observed one
/// by one, which reports the problem.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The same at the end of a session, which no file system may delay.
const LAST_PROBE_TIMEOUT: Duration = Duration::from_millis(200);

/// What is known of the whole fleet before its agents are observed.
pub(super) struct KnownFleet<'a> {
    /// The agents that had journals.
    pub journaled: HashSet<String>,
    /// The last record of the ledger, up to which histories are known.
    ledger_head: Result<(u64, Digest)>,
    /// The files of memories of this machine.
    pub probed: ProbedFiles<'a>,
}

impl KnownFleet<'_> {
    pub fn history(&self, engine: &Engine, agent: &Agent) -> Result<AgentHistory> {
        self.ledger_head.clone()?;
        engine.ledger().indexed_history(&agent.name)
    }
}

impl Engine {
    /// Observes many agents, on several hosts and by several processors at the same time. The
    /// results are in the order of `agents`.
    pub fn observe_all<'c>(&'c self, agents: &[&'c Agent]) -> Vec<Observation> {
        let known = self.read_known_fleet(agents, &SharedIndex::default());
        let mut seen = self.observe_with(agents, &known);
        self.observe_run_agents(agents, &known, &mut seen);
        self.write_content_index(&known.probed);
        seen
    }

    /// Observes agents of this machine whose memories are files that are read in no time, many of
    /// them together: none of a small fleet, and none on a file system that may hang. Calls `prepare`
    /// before it observes some of them, and `report` with their observations, until that returns
    /// false. Returns the agents that it did not observe.
    pub(super) fn observe_quick_agents<'c>(
        &'c self,
        agents: &[&'c Agent],
        prepare: impl Fn(&[&'c Agent]),
        mut report: impl FnMut(Vec<Observation>) -> bool,
    ) -> Vec<&'c Agent> {
        let index = SharedIndex::default();
        let memories = agents.iter().map(|agent| agent.location.memory());
        let systems = self.file_systems().find_untrusted_all(memories);
        let (trusted, others): (Vec<_>, Vec<_>) = agents
            .iter()
            .copied()
            .zip(systems)
            .partition(|(_, system)| system.is_none());
        let agents = |some: Vec<(&'c Agent, _)>| some.into_iter().map(|(agent, _)| agent).collect();
        let (trusted, mut others): (Vec<&Agent>, Vec<&Agent>) = (agents(trusted), agents(others));
        for agents in trusted.chunks(BATCH_AGENTS) {
            prepare(agents);
            let known = self.read_known_fleet(agents, &index);
            let is_quick = |agent: &&&Agent| {
                let file = known.probed.get(&agent.name);
                file.is_some_and(|file| file.stamp.size <= MAX_WINDOW_BYTES as u64)
            };
            let (quick, slow): (Vec<&Agent>, Vec<&Agent>) = agents.iter().partition(is_quick);
            others.extend(slow);
            let mut seen = self.observe_with(&quick, &known);
            self.observe_run_agents(&quick, &known, &mut seen);
            if !report(seen) {
                break;
            }
        }
        others
    }

    /// Adds the contents that this process has read to the index of contents, for the next one.
    pub(super) fn save_contents(&self) {
        let agents: Vec<&Agent> = self.config().agents.iter().collect();
        let index = SharedIndex::default();
        self.write_content_index(&self.probe_indexed_files(&agents, &index, LAST_PROBE_TIMEOUT));
    }

    fn read_known_fleet<'c>(&self, agents: &[&'c Agent], index: &SharedIndex) -> KnownFleet<'c> {
        self.refresh_shared_memories();
        KnownFleet {
            journaled: self.agents_with_journals(),
            ledger_head: self.ledger().head(),
            probed: self.probe_indexed_files(agents, index, PROBE_TIMEOUT),
        }
    }

    fn observe_with<'c>(
        &'c self,
        agents: &[&'c Agent],
        known: &KnownFleet<'c>,
    ) -> Vec<Observation> {
        let start_local = || {
            let baselines = Mutex::new(self.baseline_cache());
            move |agent| self.observe_as_one_of_many(agent, &baselines, known)
        };
        parallel::read_agents_by_site(self, agents, start_local, |agents| {
            self.observe_host_agents(agents)
        })
    }

    /// Observes the agents of this machine again that runs have changed since the ledger was read.
    fn observe_run_agents(
        &self,
        agents: &[&Agent],
        known: &KnownFleet<'_>,
        seen: &mut [Observation],
    ) {
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
