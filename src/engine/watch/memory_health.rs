//! Health of memories of several files: checks them when it is due, and keeps the results for
//! observations of all processes. A check reads all files of a memory, so an observation only takes the
//! last result.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Duration, FixedOffset};

use super::{Hosts, parallel};
use crate::base::clock::MAX_CLOCK_LEAD;
use crate::base::error::{Error, Result};
use crate::config::Agent;
use crate::engine::context::Context;
use crate::layouts::HealthFinding;
use crate::store::holds::Hold;
use crate::store::known_health::{KnownHealth, KnownHealthByMemory, parse_known_health};
use crate::transport::Reachability;

/// How long the result of a check is used.
const CHECK_INTERVAL: Duration = Duration::minutes(10);

/// How long a check is not repeated that could not read the memory.
const FAILED_CHECK_INTERVAL: Duration = Duration::minutes(1);

/// Age of results that are removed: no process has checked the memory for so long.
const MAX_RESULT_AGE: Duration = Duration::days(30);

/// Checks memories of several files.
pub struct MemoryHealth {
    context: Arc<Context>,
    hosts: Arc<Hosts>,
    results: Mutex<CheckResults>,
}

/// What this process knows of checks.
#[derive(Default)]
struct CheckResults {
    /// Whether the kept results were read.
    is_loaded: bool,
    known: KnownHealthByMemory,
    /// The checks that failed after the last result, with their times.
    failed: HashMap<String, (DateTime<FixedOffset>, String)>,
    /// The memories whose results an operator does not trust any more.
    expired: HashSet<String>,
}

/// What is known of the health of a memory.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct MemoryHealthFacts {
    /// The result of the last check.
    pub known: Option<KnownHealth>,
    /// Why a later check failed.
    pub failure: Option<String>,
}

impl MemoryHealth {
    pub(super) fn new(context: &Arc<Context>, hosts: &Arc<Hosts>) -> MemoryHealth {
        MemoryHealth {
            context: Arc::clone(context),
            hosts: Arc::clone(hosts),
            results: Mutex::default(),
        }
    }

    /// Checks the memory of an agent now.
    ///
    /// # Errors
    /// The agent has no memory of several files, or it cannot be read.
    pub fn check(&self, agent: &Agent) -> Result<Vec<HealthFinding>> {
        let now = self.context.clock().now();
        let found = self.find(agent, now);
        self.keep([(agent, found.as_ref())], now);
        found
    }

    /// Checks the memories whose last check is too old, or from before the last operation; on hosts only
    /// where there is a session. Returns the agents about whom something else is known now.
    pub fn check_due(&self, agents: &[&Agent]) -> Vec<String> {
        let is_reachable = |agent: &Agent| {
            agent.host().is_none_or(|host| {
                let status = self.hosts.connection_status(host);
                status.reachability == Reachability::Connected
            })
        };
        let agents = agents.iter().copied();
        let with_layout = agents.filter(|agent| agent.layout.is_some() && is_reachable(agent));
        let with_layout: Vec<&Agent> = with_layout.collect();
        if with_layout.is_empty() {
            return Vec::new();
        }
        self.load(&mut self.results());
        let now = self.context.clock().now();
        let due = with_layout.iter().filter(|agent| self.is_due(agent, now));
        let due: Vec<&Agent> = due.copied().collect();
        let check = |agent: &Agent| self.find(agent, now);
        let found = parallel::map_agents_by_site(&self.hosts, &due, &check);
        self.keep(due.into_iter().zip(found.iter().map(Result::as_ref)), now)
    }

    /// Makes checks of these agents due.
    pub(in crate::engine) fn expire(&self, agents: &[String]) {
        let config = self.context.config();
        let agents = agents.iter().filter_map(|name| config.agent(name));
        let mut results = self.results();
        results
            .expired
            .extend(agents.filter_map(Agent::layout_memory_id));
    }

    /// Returns what is known without a check.
    pub(in crate::engine) fn facts(&self, agent: &Agent) -> MemoryHealthFacts {
        let id = agent.layout_memory_id().unwrap_or_default();
        let mut results = self.results();
        if !results.is_loaded {
            self.load(&mut results);
        }
        MemoryHealthFacts {
            known: results.known.get(&id).cloned(),
            failure: results.failed.get(&id).map(|(_, why)| why.clone()),
        }
    }

    fn find(&self, agent: &Agent, now: DateTime<FixedOffset>) -> Result<Vec<HealthFinding>> {
        self.context.open_layout_memory(agent)?.health(now)
    }

    fn is_due(&self, agent: &Agent, now: DateTime<FixedOffset>) -> bool {
        let id = agent.layout_memory_id().unwrap_or_default();
        let results = self.results();
        let is_old = |time: DateTime<FixedOffset>, interval| {
            now - time >= interval || time > now + MAX_CLOCK_LEAD
        };
        if results.expired.contains(&id) {
            return true;
        }
        if let Some((failed_at, _)) = results.failed.get(&id) {
            return is_old(*failed_at, FAILED_CHECK_INTERVAL);
        }
        let Some(known) = results.known.get(&id) else {
            return true;
        };
        let checked_at = known.checked_at;
        drop(results);
        let history = self.context.history(&agent.name);
        let last_edit = history.ok().and_then(|history| history.last_edit);
        is_old(checked_at, CHECK_INTERVAL) || last_edit.is_some_and(|time| time > checked_at)
    }

    /// Reads the results that other processes have kept; the newer ones count.
    fn load(&self, results: &mut CheckResults) {
        results.is_loaded = true;
        let text = self.context.holds().read(Hold::Health);
        // Without the kept results, all checks are due.
        let text = text.ok().flatten().unwrap_or_default();
        let limit = self.context.clock().now() + MAX_CLOCK_LEAD;
        for (id, health) in parse_known_health(&text) {
            let known = results.known.get(&id);
            let is_newer = known.is_none_or(|known| known.checked_at < health.checked_at);
            // A clock that was ahead must not hide later checks.
            if is_newer && health.checked_at <= limit {
                results.known.insert(id, health);
            }
        }
    }

    /// Keeps the results of checks. Returns the agents about whom something else is known now. A lost
    /// host says nothing about a memory.
    fn keep<'c>(
        &self,
        checked: impl IntoIterator<Item = (&'c Agent, Result<&'c Vec<HealthFinding>, &'c Error>)>,
        now: DateTime<FixedOffset>,
    ) -> Vec<String> {
        let mut changed = Vec::new();
        let mut new = KnownHealthByMemory::new();
        let mut results = self.results();
        for (agent, found) in checked {
            let id = agent.layout_memory_id().unwrap_or_default();
            results.expired.remove(&id);
            match found {
                Ok(findings) => {
                    let health = KnownHealth::of_findings(findings, now);
                    let had_failed = results.failed.remove(&id).is_some();
                    let known = results.known.get(&id);
                    if had_failed || known.is_none_or(|it| !it.has_same_result(&health)) {
                        changed.push(agent.name.clone());
                    }
                    new.insert(id, health);
                }
                Err(error) if error.is_host_lost() => {}
                Err(error) => {
                    let failed = (now, error.to_line());
                    let known = results.failed.insert(id, failed);
                    if known.is_none() {
                        changed.push(agent.name.clone());
                    }
                }
            }
        }
        results.known.extend(new.clone());
        drop(results);
        if !new.is_empty() && self.context.archive().is_begun() {
            // The next check keeps its result again.
            let _ = self.write(new, now);
        }
        changed
    }

    fn write(&self, new: KnownHealthByMemory, now: DateTime<FixedOffset>) -> Result<()> {
        let mut lock = self.context.holds().lock(Hold::Health)?;
        let mut all = parse_known_health(&lock.read()?.unwrap_or_default());
        all.extend(new);
        // Of memories that no config names any more.
        all.retain(|_, health| now - health.checked_at < MAX_RESULT_AGE);
        let text = serde_json::to_vec(&all).unwrap_or_default();
        lock.replace(Some(&text))
    }

    fn results(&self) -> MutexGuard<'_, CheckResults> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
