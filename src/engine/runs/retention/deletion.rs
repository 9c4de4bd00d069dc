//! The deletion of entries and versions that were planned and have expired.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::expired::{Expired, describe_older_entries};
use super::scope::RetentionScope;
use super::unused_versions::describe_unused_versions;
use crate::archive::ArchiveEntry;
use crate::base::digest::Digest;
use crate::base::error::{Error, Result};
use crate::engine::runs::Retention;
use crate::engine::runs::plan::RetentionPlan;
use crate::store::entries::EntryDeletion;
use crate::store::record::{MAX_NAMES_PER_RECORD, Operation, RunEvent};
use crate::store::versions::StoredVersion;

/// The entries or versions that one record of a deletion names.
enum ExpiredPart<'e> {
    Entries(&'e [ArchiveEntry]),
    Versions(&'e [StoredVersion]),
}

impl Expired {
    /// Splits it into what a record each can name.
    fn split(&self) -> impl Iterator<Item = ExpiredPart<'_>> {
        let entries = self.entries.chunks(MAX_NAMES_PER_RECORD);
        let versions = self.versions.chunks(MAX_NAMES_PER_RECORD);
        let versions = versions.map(ExpiredPart::Versions);
        entries.map(ExpiredPart::Entries).chain(versions)
    }
}

/// What retention deleted.
#[derive(Debug, Default)]
pub(in crate::engine) struct Deletion {
    /// Paths of the entries below `archive_dir`.
    pub entries: Vec<PathBuf>,
    /// The baseline versions.
    pub versions: Vec<Digest>,
    /// Why some could not be deleted.
    pub errors: Vec<Error>,
    /// Why others stay, by the second check, which precedes the deletion.
    pub notes: Vec<String>,
}

impl Deletion {
    /// Creates the result of a deletion that did not begin.
    pub fn from_error(error: Error) -> Deletion {
        Deletion {
            errors: vec![error],
            ..Deletion::default()
        }
    }

    /// Returns the lines about it for `reset.log`.
    pub fn describe(&self, retention: &Retention) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.entries.is_empty() {
            let days = retention.context.config().general.archive_retention_days;
            let entries = describe_older_entries(self.entries.len(), days);
            lines.push(format!("Deleted {entries}"));
        }
        if !self.versions.is_empty() {
            let versions = describe_unused_versions(self.versions.len());
            lines.push(format!("Deleted {versions}"));
        }
        lines
    }
}

impl Retention {
    /// Deletes what was planned and what retention would still delete now. The record precedes the
    /// deletion, so a crash in between does not look like a loss.
    ///
    /// # Errors
    /// Nothing was deleted.
    pub(in crate::engine) fn delete_expired(
        &self,
        run: &str,
        shown_plan: &RetentionPlan,
        scope: &RetentionScope<'_>,
    ) -> Result<Deletion> {
        if let Some(block) = &shown_plan.blocker {
            return Err(block.to_error(&block.reason));
        }
        let deletion = if shown_plan.entries.is_empty() && shown_plan.versions.is_empty() {
            Deletion::default()
        } else {
            self.delete_planned(run, shown_plan, scope)?
        };
        if shown_plan.is_full_check {
            self.context.baseline_versions().note_check();
        }
        Ok(deletion)
    }

    fn delete_planned(
        &self,
        run: &str,
        shown_plan: &RetentionPlan,
        scope: &RetentionScope<'_>,
    ) -> Result<Deletion> {
        // A process that pins an entry now waits, and then finds it deleted.
        let deletable = self.context.entries().lock_for_deletion()?;
        let dates = self.retention_dates()?;
        let mut expired = self.find_expired_at(scope, &dates, shown_plan.is_full_check)?;
        let paths: HashSet<&Path> = shown_plan.entries.iter().map(PathBuf::as_path).collect();
        expired
            .entries
            .retain(|entry| paths.contains(entry.path.as_path()));
        let digests: HashSet<&Digest> = shown_plan.versions.iter().collect();
        expired.versions.retain(|it| digests.contains(&it.digest));
        let mut deletion = Deletion {
            notes: std::mem::take(&mut expired.notes),
            ..Deletion::default()
        };
        let mut has_recorded = false;
        // On a full disk, what one record names has to be gone before there is space for the next.
        for part in expired.split() {
            match self.delete_part(run, &part, &*deletable, &mut deletion) {
                Ok(()) => has_recorded = true,
                Err(error) if has_recorded => {
                    deletion.errors.push(error);
                    break;
                }
                Err(error) => return Err(error),
            }
            if let Err(moved) = self.context.archive().check_root() {
                deletion.errors.push(moved);
                break;
            }
        }
        Ok(deletion)
    }

    /// Records that entries or versions are about to be deleted, and deletes them.
    ///
    /// # Errors
    /// They cannot be recorded; none of them was deleted.
    fn delete_part(
        &self,
        run: &str,
        part: &ExpiredPart<'_>,
        deletable: &dyn EntryDeletion,
        deletion: &mut Deletion,
    ) -> Result<()> {
        let (trigger, user) = (self.context.trigger(), self.context.user());
        let mut event = RunEvent::for_archive(run, Operation::Retire, trigger, user);
        let recorded = match part {
            ExpiredPart::Entries(entries) => {
                let days = self.context.config().general.archive_retention_days;
                event.retired_entries = entries.iter().map(|entry| entry.path.clone()).collect();
                event.note = Some(describe_older_entries(entries.len(), days));
                deletable.retire(event, entries).map(|retired| {
                    deletion.entries.extend(retired.deleted);
                    deletion.errors.extend(retired.errors);
                })
            }
            ExpiredPart::Versions(versions) => {
                event.retired_versions = versions.iter().map(|version| version.digest).collect();
                event.note = Some(describe_unused_versions(versions.len()));
                let recorded = self.context.ledger().append(vec![event]);
                recorded.map(|()| match self.delete_versions(versions, deletion) {
                    Err(error) if self.context.archive().check_root().is_ok() => {
                        deletion.errors.push(error);
                    }
                    _ => {}
                })
            }
        };
        recorded.map_err(|error| self.context.explain_unrecorded_deletion(error))
    }

    /// Deletes recorded versions, except those that another process has begun to rely on since.
    fn delete_versions(&self, versions: &[StoredVersion], deletion: &mut Deletion) -> Result<()> {
        let deletable = self.context.baseline_versions().lock_for_deletion()?;
        for version in versions {
            match deletable.delete(version) {
                Ok(true) => deletion.versions.push(version.digest),
                Ok(false) => {}
                Err(_) if self.context.archive().check_root().is_err() => return Ok(()),
                Err(error) => deletion.errors.push(error),
            }
        }
        Ok(())
    }
}
