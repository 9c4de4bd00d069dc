//! How fast the archive grows: what runs archived within the last month.

use std::collections::HashSet;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};

use crate::base::error::Result;
use crate::engine::records::RunHistory;

/// Number of days that the growth is taken from.
pub const GROWTH_DAYS: i64 = 30;

/// What was archived within the last days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveGrowth {
    /// Bytes of all entries, also of those that retention has deleted since.
    pub bytes: u64,
    /// Number of these entries.
    pub entries: u64,
    /// Number of days: fewer than 30 in a younger archive, and at least 1.
    pub days: u64,
}

impl ArchiveGrowth {
    /// Returns in how many days this much is archived at that rate: 0 if there is nothing left; none
    /// if nothing was archived.
    pub fn days_until(amount: u64, archived: u64, days: u64) -> Option<u64> {
        if amount == 0 {
            return Some(0);
        }
        let scaled = u128::from(amount) * u128::from(days);
        let left = scaled.checked_div(u128::from(archived))?;
        Some(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

impl RunHistory {
    /// Returns what runs archived within the last 30 days, by the ledger.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn archive_growth(&self) -> Result<ArchiveGrowth> {
        let now = self.context.clock().now();
        let begin = now - chrono::Duration::days(GROWTH_DAYS);
        let mut oldest: DateTime<FixedOffset> = now;
        // A later record of a run names its entry once more.
        let mut counted: HashSet<PathBuf> = HashSet::new();
        let mut bytes = 0_u64;
        self.context.ledger().for_each_record_backwards(|record| {
            let is_recent = record.time >= begin;
            oldest = oldest.min(record.time.max(begin));
            if is_recent {
                for entry in record.event.entries() {
                    if counted.insert(entry.path.clone()) {
                        bytes = bytes.saturating_add(entry.size);
                    }
                }
            }
            is_recent
        })?;
        let hours = (now - oldest).num_hours().max(1).unsigned_abs();
        Ok(ArchiveGrowth {
            bytes,
            entries: counted.len() as u64,
            days: hours.div_ceil(24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ArchiveGrowth;

    #[test]
    fn free_space_lasts_by_the_rate_of_the_month() {
        assert_eq!(ArchiveGrowth::days_until(600, 30, 30), Some(600));
        assert_eq!(ArchiveGrowth::days_until(600, 0, 30), None);
        assert_eq!(ArchiveGrowth::days_until(0, 0, 30), Some(0));
        let days = ArchiveGrowth::days_until(u64::MAX, 1, 30);
        assert_eq!(days, Some(u64::MAX));
    }
}
