//! Observation of many agents: what they have in common is read once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::known_fleet::KnownFleet;
use super::observe::QuickObservation;
use super::parallel;
use crate::base::threads::map_chunks_on_processors;
use crate::config::Agent;
use crate::engine::Observation;
use crate::engine::watch::Observer;

/// Fewer agents than this are observed one by one as fast.
const MIN_QUICK_AGENTS: usize = 64;

/// Splits agents into those with a property and the others.
fn split_agents<'c>(
    agents: impl IntoIterator<Item = (&'c Agent, bool)>,
) -> (Vec<&'c Agent>, Vec<&'c Agent>) {
    let (some, others): (Vec<_>, Vec<_>) = agents.into_iter().partition(|(_, has_it)| *has_it);
    let agents = |some: Vec<(&'c Agent, bool)>| some.into_iter().map(|(agent, _)| agent).collect();
    (agents(some), agents(others))
}

impl Observer {
    /// Observes many agents, on several hosts and by several processors at the same time. The
    /// results are in the order of `agents`.
    pub fn observe_all<'c>(&'c self, agents: &[&'c Agent]) -> Vec<Observation> {
        let known = self.read_known_fleet();
        let mut seen = self.observe_with(agents, &known);
        self.observe_run_agents(&known, seen.iter_mut());
        seen
    }

    /// Observes agents of this machine whose memories are files that are read in no time, many of
    /// them together: none of a small fleet, and none on a file system that may hang. Calls `prepare` right
    /// before it observes an agent, and `report` with the results of some of them, until that returns
    /// false. Returns the agents that it did not observe.
    pub(in crate::engine) fn observe_quick_agents<'c, P>(
        &'c self,
        agents: &[&'c Agent],
        prepare: impl Fn(&'c Agent) -> P + Sync,
        report: impl Fn(Vec<(P, QuickObservation)>) -> bool + Sync,
    ) -> Vec<&'c Agent> {
        let memories = agents.iter().map(|agent| agent.observed_path());
        let systems = self.context.file_systems().find_untrusted_all(memories);
        let systems = agents.iter().copied().zip(systems);
        let (trusted, mut others) = split_agents(systems.map(|(agent, it)| (agent, it.is_none())));
        if trusted.len() < MIN_QUICK_AGENTS {
            others.extend(trusted);
            return others;
        }
        let known = self.read_known_fleet();
        let is_ended = AtomicBool::new(false);
        let start = || {
            let baselines = Mutex::new(self.baselines.baseline_cache());
            let (known, is_ended, prepare, report) = (&known, &is_ended, &prepare, &report);
            move |agents: &[&'c Agent]| {
                let mut seen = Vec::with_capacity(agents.len());
                let mut others = Vec::new();
                if is_ended.load(Ordering::Relaxed) {
                    return others;
                }
                for agent in agents {
                    let prepared = prepare(agent);
                    match self.observe_if_quick(agent, &baselines, known) {
                        Some(quick) => seen.push((prepared, quick)),
                        None => others.push(*agent),
                    }
                }
                self.observe_run_agents(known, seen.iter_mut().map(|(_, it)| &mut it.observation));
                if !report(seen) {
                    is_ended.store(true, Ordering::Relaxed);
                }
                others
            }
        };
        let left = map_chunks_on_processors(&trusted, start);
        others.extend(left.into_iter().flatten());
        others
    }

    fn read_known_fleet(&self) -> KnownFleet {
        self.shared_memories.refresh_shared_memories();
        KnownFleet {
            journaled: self.context.journals().agents(),
            leases: self.context.leases().survey(),
            ledger_head: self.context.ledger().head(),
        }
    }

    fn observe_with<'c>(&'c self, agents: &[&'c Agent], known: &KnownFleet) -> Vec<Observation> {
        let start_local = || {
            let baselines = Mutex::new(self.baselines.baseline_cache());
            move |agent| self.observe_as_one_of_many(agent, &baselines, known)
        };
        parallel::read_agents_by_site(&self.hosts, agents, start_local, |agents, _| {
            self.observe_host_agents(agents)
        })
    }

    /// Observes the agents of this machine again that runs have changed since the ledger was read.
    fn observe_run_agents<'o>(
        &self,
        known: &KnownFleet,
        seen: impl Iterator<Item = &'o mut Observation>,
    ) {
        if self.context.ledger().head() == known.ledger_head {
            return;
        }
        for seen in seen {
            let Ok(agent) = self.context.agent(&seen.agent) else {
                continue;
            };
            let history = self.context.ledger().known_history(&agent.name);
            let is_known = history.is_ok_and(|history| history.last_run == seen.last_run);
            if !is_known && agent.host().is_none() {
                *seen = self.observe(agent);
            }
        }
    }
}
