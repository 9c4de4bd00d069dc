//! What retention may delete at the end of a run, and the reasons why other old entries stay.

use std::collections::BTreeMap;

use super::assessment::{Assessment, Depth, KeepReason, Verdict};
use super::dates::{RetentionDates, describe_days};
use super::scope::RetentionScope;
use super::unused_versions::{UnusedVersions, VersionCandidates, describe_unused_versions};
use crate::archive::ArchiveEntry;
use crate::base::error::Result;
use crate::engine::runs::Retention;
use crate::store::versions::StoredVersion;

/// What retention may delete now, and why other things stay.
#[derive(Default)]
pub(super) struct Expired {
    pub entries: Vec<ArchiveEntry>,
    pub versions: Vec<StoredVersion>,
    pub notes: Vec<String>,
    /// Whether the versions were checked, and the directories of no agent.
    pub is_full_check: bool,
}

/// Returns, for example, "12 entries older than 30 days".
pub(super) fn describe_older_entries(entries: usize, days: u32) -> String {
    let plural = if entries == 1 { "y" } else { "ies" };
    format!("{entries} entr{plural} older than {}", describe_days(days))
}

impl Retention {
    /// Finds the expired entries that may be deleted after a run, and the reasons why others stay; if
    /// that check is due, also the entries of no agent, and unused versions.
    pub(super) fn find_expired(&self, scope: &RetentionScope<'_>) -> Result<Expired> {
        let dates = self.retention_dates()?;
        let is_full_check = self.is_full_check_due(&dates);
        self.find_expired_at(scope, &dates, is_full_check)
    }

    pub(super) fn find_expired_at(
        &self,
        scope: &RetentionScope<'_>,
        dates: &RetentionDates,
        is_full_check: bool,
    ) -> Result<Expired> {
        let candidates = if is_full_check {
            self.find_version_candidates(dates)?
        } else {
            VersionCandidates::default()
        };
        let directories = self.scope_directories(scope, is_full_check)?;
        let assessment =
            self.assess_entries(scope, dates, Depth::Old, &directories, &candidates)?;
        let unused = self.select_unused_versions(&candidates, &assessment.facts, dates);
        let mut notes = self.describe_kept(scope, &assessment, dates)?;
        notes.extend(unused.kept.iter().map(|(count, why)| {
            format!(
                "retention keeps {}: {why}",
                describe_unused_versions(*count)
            )
        }));
        let UnusedVersions { versions, .. } = unused;
        Ok(Expired {
            entries: assessment.expired().map(|it| it.entry.clone()).collect(),
            versions,
            notes,
            is_full_check,
        })
    }

    /// Describes what keeps entries that are older than the retention time, except for pins, undos
    /// and newest entries, which are not a fault.
    fn describe_kept(
        &self,
        scope: &RetentionScope<'_>,
        assessment: &Assessment,
        dates: &RetentionDates,
    ) -> Result<Vec<String>> {
        let days = dates.days;
        let mut of_failed: BTreeMap<&str, usize> = BTreeMap::new();
        for it in &assessment.entries {
            if it.verdict == Verdict::Kept(KeepReason::RunFailed)
                && let Some(agent) = it.owners.iter().find(|agent| scope.has_failed(agent))
            {
                *of_failed.entry(agent).or_default() += 1;
            }
        }
        let failed_notes = of_failed.iter().map(|(agent, count)| {
            format!(
                "retention keeps {} of {agent}, whose run failed",
                describe_older_entries(*count, days)
            )
        });
        let unread = assessment.unreadable.iter().map(|error| {
            let message = error.message();
            format!("retention keeps all entries of an unreadable directory: {message}")
        });
        let pin_faults = assessment.pin_faults.iter().filter(|(_, count)| *count > 0);
        let pin_notes = pin_faults.map(|(fault, count)| {
            let what = describe_older_entries(*count, days);
            format!("retention keeps {what}: {fault}; correct or remove the line")
        });
        let mut notes: Vec<String> = failed_notes.chain(unread).chain(pin_notes).collect();
        let unconfirmed = assessment.count_kept(KeepReason::Unconfirmed);
        if unconfirmed > 0 && dates.is_confirmation_late() {
            notes.push(format!(
                "retention keeps {} for now: {}",
                describe_older_entries(unconfirmed, days),
                self.describe_unconfirmed_date(dates)?
            ));
        }
        Ok(notes)
    }
}
