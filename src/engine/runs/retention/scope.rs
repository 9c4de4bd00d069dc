//! The scope of retention: the agents whose entries it may delete at the end of a run, or in a
//! command of its own.

use std::collections::HashSet;
use std::path::Path;

use crate::config::Config;
use crate::engine::runs::plan::Plan;
use crate::engine::runs::run_report::AgentResult;
use crate::store::record::Outcome;

/// The agents whose entries retention may delete: those of a run that ended without a failure, and
/// those that left the config. A reset that the full disk of the archive prevented does not count as a
/// failure: it left the memory as it was, and only deletions end that state.
pub(in crate::engine) struct RetentionScope<'a> {
    config: &'a Config,
    /// Agents of the config that the run finished, or would finish, without a failure that keeps
    /// their entries.
    succeeded: HashSet<&'a str>,
    /// Agents of the config whose run failed: their entries stay.
    failed: HashSet<&'a str>,
    /// Agents that get a newer entry.
    gaining_entries: HashSet<&'a str>,
    /// The only agents that count, if a command names them.
    named: Option<HashSet<&'a str>>,
    /// Whether it is that of a run, not of a command of its own.
    is_of_run: bool,
}

impl<'a> RetentionScope<'a> {
    /// Takes the outcomes that a plan expects.
    pub fn from_plan(config: &'a Config, plan: &'a Plan) -> RetentionScope<'a> {
        let idle = plan.skipped.iter().filter(|it| it.kind.is_none());
        let refused = plan.skipped.iter().filter(|it| it.kind.is_some());
        let steps = plan.steps.iter();
        let ended = steps.clone().map(|it| it.agent.as_str());
        RetentionScope {
            succeeded: ended.chain(idle.map(|it| it.agent.as_str())).collect(),
            failed: refused.map(|it| it.agent.as_str()).collect(),
            gaining_entries: steps
                .filter(|step| step.entry_kind.is_some())
                .map(|step| step.agent.as_str())
                .collect(),
            is_of_run: true,
            ..RetentionScope::of_nothing(config)
        }
    }

    /// Takes the outcomes of a run.
    pub fn from_results(config: &'a Config, results: &'a [AgentResult]) -> RetentionScope<'a> {
        let mut scope = RetentionScope {
            is_of_run: true,
            ..RetentionScope::of_nothing(config)
        };
        for result in results {
            let names = match result.outcome {
                Outcome::Ok | Outcome::Unchanged => &mut scope.succeeded,
                _ if result.is_archive_full => &mut scope.succeeded,
                _ => &mut scope.failed,
            };
            names.insert(&result.agent);
        }
        scope
    }

    /// Takes all agents of a config, of which some count as failed. With `named`, only these agents
    /// count, also if they left the config.
    pub fn from_failures(
        config: &'a Config,
        failed: impl Iterator<Item = &'a str>,
        named: Option<HashSet<&'a str>>,
    ) -> RetentionScope<'a> {
        let failed: HashSet<&str> = failed.collect();
        let agents = config.agents.iter().map(|it| it.name.as_str());
        RetentionScope {
            succeeded: agents.filter(|it| !failed.contains(it)).collect(),
            failed,
            named,
            ..RetentionScope::of_nothing(config)
        }
    }

    fn of_nothing(config: &'a Config) -> RetentionScope<'a> {
        RetentionScope {
            config,
            succeeded: HashSet::new(),
            failed: HashSet::new(),
            gaining_entries: HashSet::new(),
            named: None,
            is_of_run: false,
        }
    }

    /// Returns the agents of the run.
    pub fn agents(&self) -> impl Iterator<Item = &'a str> {
        self.succeeded.iter().chain(&self.failed).copied()
    }

    /// Returns whether the directories of no agent are searched, too. A run does that only as part of a
    /// full check, because it lists the directories of all agents.
    pub fn includes_unclaimed(&self, is_full_check: bool) -> bool {
        is_full_check || !self.is_of_run
    }

    /// Returns whether an agent's entries may be deleted, or stay because its run failed.
    pub fn includes(&self, agent: &str) -> bool {
        let is_named = self.named.as_ref().is_none_or(|it| it.contains(agent));
        // The entries of other agents of the config are not the run's.
        let is_of_run = self.succeeded.contains(agent) || self.failed.contains(agent);
        is_named && (is_of_run || self.config.agent_index(agent).is_none())
    }

    /// Returns whether entries of unknown owner are of interest: they always stay.
    pub fn includes_unowned(&self) -> bool {
        self.named.is_none()
    }

    /// Returns whether the run of an agent failed.
    pub fn has_failed(&self, agent: &str) -> bool {
        self.failed.contains(agent)
    }

    /// Returns whether the run writes an entry of an agent, so that its newest one may expire.
    pub fn is_growing(&self, agent: &str) -> bool {
        self.gaining_entries.contains(agent)
    }

    /// Returns the directories in which the run writes entries.
    pub fn growing_directories(&self) -> HashSet<&'a Path> {
        self.gaining_entries
            .iter()
            .filter_map(|name| self.config.agent(name))
            .map(|it| Path::new(&it.archive_subdir))
            .collect()
    }
}
