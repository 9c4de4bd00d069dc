//! Baseline versions that no undo needs any more.
//!
//! A version stays while it is
//!
//! - the baseline of an agent, in a seal, or the beginning of a draft;
//! - one of the two that were pushed to an agent last, or part of its last change: memories are
//!   measured against them;
//! - in the last record of a save, restore, seal or guard of a baseline file;
//! - named by a record within the retention time, or by one whose entry still exists;
//! - named by the journal of a run that was interrupted or is in progress;
//! - stored within the retention time.
//!
//! All versions stay while another config may use the archive, and while one of these sources
//! cannot be read.

use std::collections::HashSet;

use super::dates::RetentionDates;
use super::ledger_facts::{KEPT_PUSHED_VERSIONS, LedgerFacts};
use crate::base::digest::Digest;
use crate::base::error::Result;
use crate::baseline;
use crate::engine::runs::Retention;
use crate::store::versions::StoredVersion;

/// Seconds between two full checks by runs: each reads the whole ledger and lists the whole archive.
const CHECK_INTERVAL_SECONDS: i64 = 24 * 60 * 60;

/// Maximum number of agents that a message names.
const MAX_NAMED_AGENTS: usize = 3;

/// Versions that are old, and that nothing but the ledger may need.
#[derive(Debug, Default)]
pub(super) struct VersionCandidates {
    versions: Vec<StoredVersion>,
    /// Why all versions stay, if they do.
    blocker: Option<String>,
    /// Number of all stored versions.
    pub stored_count: usize,
    /// Bytes that they take on the disk.
    pub stored_disk_bytes: u64,
}

/// The result of a check of the baseline versions.
#[derive(Debug, Default)]
pub(super) struct UnusedVersions {
    /// Those that may be deleted, ordered by digest.
    pub versions: Vec<StoredVersion>,
    /// Number of unused versions that stay all the same, and why.
    pub kept: Option<(usize, String)>,
}

impl VersionCandidates {
    /// Returns whether the ledger need not be asked.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Returns the digests of the candidates.
    pub fn digests(&self) -> HashSet<Digest> {
        self.versions.iter().map(|it| it.digest).collect()
    }
}

impl Retention {
    /// Returns whether a run has to check the versions and the directories of no agent: the last such
    /// check was a day ago.
    pub(super) fn is_full_check_due(&self, dates: &RetentionDates) -> bool {
        let since = |check: i64| dates.now.timestamp().saturating_sub(check);
        let last = self.context.baseline_versions().last_check();
        // A check in the future is one by a wrong clock.
        last.is_none_or(|check| !(0..CHECK_INTERVAL_SECONDS).contains(&since(check)))
    }

    /// Finds the versions that are old and not known to be in use.
    ///
    /// # Errors
    /// The versions cannot be listed.
    pub(super) fn find_version_candidates(
        &self,
        dates: &RetentionDates,
    ) -> Result<VersionCandidates> {
        let mut versions = self.context.baseline_versions().list()?;
        let mut candidates = VersionCandidates {
            stored_count: versions.len(),
            stored_disk_bytes: versions.iter().map(|it| it.disk_bytes).sum(),
            ..VersionCandidates::default()
        };
        let Some(limit) = dates.expiry_limit() else {
            return Ok(candidates);
        };
        versions.retain(|it| it.stored_at < limit.timestamp());
        if versions.is_empty() {
            return Ok(candidates);
        }
        match self.versions_in_use() {
            Ok(used) => versions.retain(|it| !used.contains(&it.digest)),
            Err(error) => candidates.blocker = Some(error.message().to_string()),
        }
        versions.sort_by_key(|it| it.digest);
        candidates.versions = versions;
        Ok(candidates)
    }

    /// Returns the versions that are in use by what is not in the ledger, and those that its index
    /// names.
    ///
    /// # Errors
    /// One of the sources cannot be read.
    fn versions_in_use(&self) -> Result<HashSet<Digest>> {
        // Before the ledger is read: a journal goes after its record was written.
        let mut used = self.context.journals().digests()?;
        used.extend(self.edits.draft_bases()?);
        used.extend(self.baselines.sealed_digests()?);
        let mut files = HashSet::new();
        for agent in &self.context.config().agents {
            let history = self.context.history(&agent.name)?;
            let earlier = self.baselines.earlier_digests(agent, &history);
            used.extend(earlier.into_iter().take(KEPT_PUSHED_VERSIONS));
            // No reset pushes a file that cannot be read.
            if let Some(name) = agent.baseline()
                && files.insert(name)
                && let path = self.context.config().general.baseline_dir.join(name)
                && let Ok(bytes) = baseline::read_file(&path)
            {
                used.insert(Digest::of(&bytes));
            }
        }
        Ok(used)
    }

    /// Selects the candidates that no record needs.
    pub(super) fn select_unused_versions(
        &self,
        candidates: &VersionCandidates,
        facts: &LedgerFacts,
        dates: &RetentionDates,
    ) -> UnusedVersions {
        let is_unused = |it: &&StoredVersion| !facts.needed_versions.contains(&it.digest);
        let unused: Vec<StoredVersion> = candidates
            .versions
            .iter()
            .filter(is_unused)
            .copied()
            .collect();
        if unused.is_empty() {
            return UnusedVersions::default();
        }
        let blocker = candidates.blocker.clone();
        match blocker.or_else(|| self.describe_foreign_agents(facts, dates)) {
            Some(why) => UnusedVersions {
                versions: Vec::new(),
                kept: Some((unused.len(), why)),
            },
            None => UnusedVersions {
                versions: unused,
                kept: None,
            },
        }
    }

    /// Names agents that are not in the config and have a record within the retention time: their
    /// config may rely on other versions.
    fn describe_foreign_agents(
        &self,
        facts: &LedgerFacts,
        dates: &RetentionDates,
    ) -> Option<String> {
        let limit = dates.expiry_limit()?;
        let foreign = facts.agents.iter().filter(|agent| {
            agent.last_at >= limit && self.context.config().agent(&agent.name).is_none()
        });
        let mut names: Vec<&str> = foreign.map(|agent| agent.name.as_str()).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(MAX_NAMED_AGENTS);
        let shown = names.get(..names.len() - more)?.join(", ");
        match (shown.as_str(), more) {
            ("", _) => None,
            (shown, 0) => Some(format!(
                "another config may use this archive: it has runs of {shown}"
            )),
            (shown, more) => Some(format!(
                "another config may use this archive: it has runs of {shown} and {more} more agents"
            )),
        }
    }
}

/// Returns, for example, "3 baseline versions that no undo needs".
pub(super) fn describe_unused_versions(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} baseline version{plural} that no undo needs")
}
