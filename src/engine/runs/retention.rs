//! Retention, pins and the list of entries: which entries and baseline versions stay in the archive.
//!
//! Retention runs after every run: for agents that the run finished without a failure, or that the full
//! disk of the archive kept it from resetting, and, once a day, for agents that left the config and
//! have no record within the retention time.
//! [`Retention::prune_archive`] applies it without a run, and [`Retention::retention_overview`] shows what
//! it would delete and why the rest stays. An entry expires when its name, its file's time and its
//! record are older than the retention time, unless it is pinned, the newest of its agent, or of
//! unknown owner.
//!
//! The age of an entry never depends on a single run's clock:
//!
//! - The last run that was a day ago or earlier, by this run's clock, decides the current date. Two
//!   runs a day apart must see an entry expire: a clock that is ahead for one run deletes nothing,
//!   and after a long break the second run deletes.
//! - An entry is at least as new as every record before its own. So an entry by a run whose clock
//!   was behind has their time, whatever its name says.
//! - A record before a jump of the clock counts as newer by its size; see
//!   [`RecordDates`](record_dates::RecordDates).
//! - Records with a time in the future count for nothing.

mod assessment;
mod dates;
mod deletion;
mod entry_list;
mod expired;
mod ledger_facts;
mod overview;
mod prune;
mod record_dates;
mod scope;
mod unused_versions;

use chrono::{DateTime, FixedOffset};

use super::plan::RetentionPlan;
use crate::archive::ArchiveEntry;
use crate::base::clock::MAX_CLOCK_LEAD;
use crate::base::error::Result;
use crate::engine::runs::Retention;
use crate::store::observation::Blocker;
pub use assessment::KeepReason;
pub(in crate::engine) use deletion::Deletion;
pub use entry_list::{EntryList, EntryStatus};
pub use overview::{
    AgentRetention, ExpiringEntry, KeptEntries, RetentionOverview, ShorterRetention,
    VersionRetention,
};
pub use prune::PruneReport;
pub(in crate::engine) use scope::RetentionScope;

impl Retention {
    /// Returns the entries that retention would delete after a run in which every agent succeeds.
    ///
    /// # Errors
    /// The archive or ledger cannot be read.
    pub fn expired_entries(&self) -> Result<Vec<ArchiveEntry>> {
        let scope = RetentionScope::from_failures(self.context.config(), std::iter::empty(), None);
        let dates = self.retention_dates()?;
        Ok(self.find_expired_at(&scope, &dates, false)?.entries)
    }

    /// Plans what retention would delete at the end of a run.
    pub(in crate::engine) fn plan_retention(&self, scope: &RetentionScope<'_>) -> RetentionPlan {
        match self.find_expired(scope) {
            Ok(expired) => RetentionPlan {
                entries: expired.entries.into_iter().map(|it| it.path).collect(),
                versions: expired.versions.iter().map(|it| it.digest).collect(),
                blocker: None,
                notes: expired.notes,
                is_full_check: expired.is_full_check,
            },
            Err(error) => RetentionPlan {
                blocker: Some(Blocker::from_error(&error)),
                ..RetentionPlan::default()
            },
        }
    }

    /// Returns number and time of a record with a time in the future, if there is one.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn future_record(&self) -> Result<Option<(u64, DateTime<FixedOffset>)>> {
        let latest = self.context.ledger().record_times()?.latest;
        // Read the clock last: other runs may append records in between.
        let now = self.context.clock().now();
        Ok(latest.filter(|(_, time)| *time > now + MAX_CLOCK_LEAD))
    }
}
