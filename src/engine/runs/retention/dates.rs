//! The dates that retention goes by: the present one, and the one that an earlier run confirms.

use chrono::{DateTime, Duration, FixedOffset};

use crate::base::error::Result;
use crate::base::moment::Zone;
use crate::engine::runs::Retention;

/// Minimum age of the run that confirms the current date.
const MIN_CONFIRMATION_AGE: Duration = Duration::days(1);

/// Time without a run after which retention says that it waits for another run.
const LONG_RUN_GAP: Duration = Duration::days(3);

/// The dates that retention goes by.
#[derive(Clone, Copy)]
pub(super) struct RetentionDates {
    /// The present time, by this process's clock.
    pub now: DateTime<FixedOffset>,
    /// The zone of the local times in the names of entries.
    pub zone: Zone,
    /// Time of the last run that was a day ago or earlier; `None` if there is none.
    pub confirmed: Option<DateTime<FixedOffset>>,
    /// `archive_retention_days`.
    pub days: u32,
}

impl RetentionDates {
    /// Returns the time before which entries expire; `None` without a confirmed date.
    pub fn expiry_limit(&self) -> Option<DateTime<FixedOffset>> {
        self.confirmed.map(|time| time - days(self.days))
    }

    /// Returns the time before which entries are older than the retention time, by the present
    /// time.
    pub fn age_limit(&self) -> DateTime<FixedOffset> {
        self.now - days(self.days)
    }

    /// Returns whether so long passed without a run that entries may wait for one that confirms the
    /// present date.
    pub fn is_confirmation_late(&self) -> bool {
        let late = |confirmed| self.now - confirmed >= LONG_RUN_GAP;
        self.confirmed.is_none_or(late)
    }

    /// Returns the time before which an entry would expire with another retention time, as far as
    /// dates are known.
    pub fn limit_for(&self, other_days: u32) -> DateTime<FixedOffset> {
        self.confirmed.unwrap_or(self.now) - days(other_days)
    }
}

/// Returns a number of days.
pub(super) fn days(number: u32) -> Duration {
    Duration::days(number.into())
}

/// Returns, for example, "30 days".
pub(super) fn describe_days(number: u32) -> String {
    match number {
        1 => "1 day".to_string(),
        number => format!("{number} days"),
    }
}

impl Retention {
    /// Reads the dates that retention goes by.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(super) fn retention_dates(&self) -> Result<RetentionDates> {
        let now = self.context.clock().now();
        let times = self.context.ledger().record_times()?.recent.into_iter();
        let confirmed = times.filter(|it| *it <= now - MIN_CONFIRMATION_AGE).max();
        Ok(RetentionDates {
            now,
            zone: self.context.clock().zone(),
            confirmed,
            days: self.context.config().general.archive_retention_days,
        })
    }

    /// Returns why no run confirms the current date yet, and which one will.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub(super) fn describe_unconfirmed_date(&self, dates: &RetentionDates) -> Result<String> {
        let latest = self.context.ledger().record_times()?.latest;
        let since = match dates.confirmed {
            None if latest.is_some() => {
                return Ok(
                    "all recorded runs are less than a day old; a run a day after the first \
                     confirms the date"
                        .to_string(),
                );
            }
            None => "no earlier run is known".to_string(),
            Some(time) => format!("the last run before was on {}", time.format("%Y-%m-%d")),
        };
        Ok(format!(
            "{since}, so only a run a day from now confirms the date"
        ))
    }
}
