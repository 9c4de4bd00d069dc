//! Retention without a run: deletes what the overview shows, in the same way as a run does.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::deletion::Deletion;
use super::overview::{AssessedOverview, ExpiringEntry, FailedAgents, RetentionOverview};
use super::scope::RetentionScope;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::is_agent_name;
use crate::engine::runs::Retention;
use crate::engine::runs::plan::RetentionPlan;
use crate::store::lease::Lease;
use crate::store::record::new_run_id;
use crate::store::run_log;

/// What a command deleted from the archive.
#[derive(Clone, Debug)]
pub struct PruneReport {
    /// Id of the run in the ledger; `None` if nothing expired.
    pub run: Option<String>,
    /// What was to be deleted, and why the rest stays.
    pub overview: RetentionOverview,
    /// Paths of the deleted entries below `archive_dir`.
    pub deleted_entries: Vec<PathBuf>,
    /// The deleted baseline versions.
    pub deleted_versions: Vec<Digest>,
    /// Expired entries that stay, with the reason.
    pub notes: Vec<String>,
    /// Locked agents, directories that cannot be read, and entries that could not be deleted.
    pub errors: Vec<Error>,
    /// Number and digest of the ledger's last record; `None` if nothing was recorded.
    pub ledger_head: Option<(u64, Digest)>,
}

impl PruneReport {
    /// Returns the most serious problem, if there was one.
    pub fn worst_kind(&self) -> Option<ErrorKind> {
        let kinds = self.errors.iter().map(Error::kind);
        kinds.reduce(ErrorKind::more_serious)
    }

    /// Returns the number of bytes of the deleted entries.
    pub fn deleted_bytes(&self) -> u64 {
        let deleted = |path| self.deleted_entries.binary_search(path).is_ok();
        let entries = self.overview.expiring();
        entries
            .filter(|it| deleted(&it.path))
            .map(|it| it.size)
            .sum()
    }
}

impl Retention {
    /// Deletes what [`Retention::retention_overview`] shows, under the locks of the agents concerned.
    /// The entries of an agent that a run has locked stay.
    ///
    /// # Errors
    /// As [`Retention::retention_overview`]; nothing was deleted.
    pub fn prune_archive(&self, agents: &[String]) -> Result<PruneReport> {
        self.prune(agents, None)
    }

    /// Deletes what an overview of the whole archive has shown, as [`Retention::prune_archive`] does,
    /// and nothing that has expired since.
    ///
    /// # Errors
    /// As [`Retention::retention_overview`]; nothing was deleted.
    pub fn prune_shown(&self, shown: &RetentionOverview) -> Result<PruneReport> {
        self.prune(&[], Some(shown))
    }

    fn prune(&self, agents: &[String], shown: Option<&RetentionOverview>) -> Result<PruneReport> {
        let _root_pin = self.context.archive().pin_root();
        self.context.archive().check_expected_for_write()?;
        let failed = self.failed_agents()?;
        let AssessedOverview { overview, owners } = self.assess_overview(agents, &failed)?;
        let shown_entries: Option<HashSet<&ExpiringEntry>> =
            shown.map(|shown| shown.expiring().collect());
        let shown_versions: Option<HashSet<&Digest>> =
            shown.map(|shown| shown.expiring_versions().iter().collect());
        let is_shown = |entry: &ExpiringEntry| {
            let shown = shown_entries.as_ref();
            shown.is_none_or(|shown| shown.contains(entry))
        };
        let is_shown_version = |digest: &Digest| {
            let shown = shown_versions.as_ref();
            shown.is_none_or(|shown| shown.contains(digest))
        };
        let mut report = PruneReport {
            run: None,
            deleted_entries: Vec::new(),
            deleted_versions: Vec::new(),
            notes: Vec::new(),
            errors: overview.unreadable.clone(),
            ledger_head: None,
            overview,
        };
        let plan = RetentionPlan {
            entries: report
                .overview
                .expiring()
                .filter(|it| is_shown(it))
                .map(|it| it.path.clone())
                .collect(),
            versions: report
                .overview
                .expiring_versions()
                .iter()
                .filter(|it| is_shown_version(it))
                .copied()
                .collect(),
            is_full_check: report.overview.versions.is_some(),
            ..RetentionPlan::default()
        };
        if plan.entries.is_empty() && plan.versions.is_empty() {
            return Ok(report);
        }
        let run = new_run_id();
        let (_locks, locked) = self.lock_owners(&run, owners, &mut report.errors)?;
        // A run may have failed before its agent was locked.
        let mut failed = self.failed_agents()?;
        failed.extend(locked);
        let named = (!agents.is_empty()).then(|| agents.iter().map(String::as_str).collect());
        let failures = failed.keys().map(String::as_str);
        let scope = RetentionScope::from_failures(self.context.config(), failures, named);
        let deletion = self.delete_expired(&run, &plan, &scope)?;
        self.log_pruning(&run, &deletion, &mut report);
        self.context.ledger().renew_reserve();
        let Deletion {
            entries,
            versions,
            errors,
            notes,
        } = deletion;
        report.deleted_entries = entries;
        report.deleted_entries.sort_unstable();
        report.deleted_versions = versions;
        report.notes = notes;
        report.errors.extend(errors);
        report.run = Some(run);
        Ok(report)
    }

    /// Locks the agents whose entries expire. Returns those that a run has locked, with the reason.
    fn lock_owners(
        &self,
        run: &str,
        owners: BTreeSet<String>,
        errors: &mut Vec<Error>,
    ) -> Result<(Vec<Arc<dyn Lease>>, FailedAgents)> {
        let mut locks = Vec::new();
        let mut locked = FailedAgents::new();
        for agent in owners {
            let holder = self.context.locks().new_lock_holder(run);
            // The file of its lock is named after it.
            if !is_agent_name(&agent) {
                locked.insert(agent, "its name is not that of an agent".to_string());
                continue;
            }
            match self.context.leases().acquire(&agent, &holder) {
                Ok(lock) => locks.push(lock),
                Err(error) if error.kind() == ErrorKind::Busy => {
                    locked.insert(agent.clone(), error.message().to_string());
                    errors.push(error.with_context(format!("{agent}: its entries stay")));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((locks, locked))
    }

    /// Writes to `reset.log` what was deleted.
    fn log_pruning(&self, run: &str, deletion: &Deletion, report: &mut PruneReport) {
        report.ledger_head = self.context.ledger().durable_head();
        let problems = report.errors.iter().chain(&deletion.errors);
        let mut lines = deletion.describe(self);
        lines.extend(problems.map(|error| format!("retention: {}", error.message())));
        lines.extend(deletion.notes.iter().cloned());
        let counts = format!(
            "{} entries and {} baseline versions deleted",
            deletion.entries.len(),
            deletion.versions.len()
        );
        lines.push(run_log::format_run_end(run, &counts, report.ledger_head));
        let now = self.context.clock().now();
        let lines: Vec<String> = lines
            .iter()
            .map(|line| run_log::format_line(now, line))
            .collect();
        if let Err(error) = run_log::append_lines(self.context.archive(), &lines)
            && !deletion.errors.contains(&error)
        {
            report.errors.push(error);
        }
    }
}
