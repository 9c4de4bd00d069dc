//! Short forms of times and ages for the cells of the console.

use chrono::{DateTime, FixedOffset};

use crate::base::quantity;

/// Formats the age of `then`: `<1m`, `1m`, `5m`, `10m`, `2h`, `3d`. Minutes are in steps of five,
/// so that an idle screen is seldom redrawn.
pub fn format_age(now: DateTime<FixedOffset>, then: DateTime<FixedOffset>) -> String {
    quantity::format_age((now - then).num_seconds(), 5)
}

/// Formats the age of a modification time, in nanoseconds since the epoch.
pub fn format_modification_age(now: DateTime<FixedOffset>, nanoseconds: i64) -> String {
    format_age(
        now,
        DateTime::from_timestamp_nanos(nanoseconds).fixed_offset(),
    )
}

/// Formats a time of today as `09:00`, one of another day as month and day, `11-20`.
pub fn format_time(now: DateTime<FixedOffset>, time: DateTime<FixedOffset>) -> String {
    if time.date_naive() == now.date_naive() {
        time.format("%H:%M").to_string()
    } else {
        time.format("%m-%d").to_string()
    }
}
