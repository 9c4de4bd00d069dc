//! Calendar expressions of systemd.time(7) for intervals and offsets.

use crate::base::reset_interval::ResetInterval;

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// An offset, in parts.
pub(super) struct OffsetParts {
    pub(super) days: u32,
    pub(super) hours: u32,
    pub(super) minutes: u32,
    pub(super) seconds: u32,
}

impl OffsetParts {
    pub(super) fn new(offset: u32) -> OffsetParts {
        OffsetParts {
            days: offset / 86_400,
            hours: offset / 3_600 % 24,
            minutes: offset / 60 % 60,
            seconds: offset % 60,
        }
    }

    /// Returns the name of the weekday, counted from Monday.
    pub(super) fn weekday(&self) -> &'static str {
        WEEKDAYS[self.days as usize % WEEKDAYS.len()]
    }
}

/// Returns the calendar expression of an interval that begins `offset` seconds after midnight, or
/// after midnight of Monday.
pub(super) fn calendar_expression(interval: ResetInterval, offset: u32) -> String {
    let at = OffsetParts::new(offset % interval.seconds());
    let OffsetParts {
        hours,
        minutes,
        seconds,
        ..
    } = at;
    match interval.minutes() {
        every @ ..60 => format!("*-*-* *:{minutes:02}/{every}:{seconds:02}"),
        60 => format!("*-*-* *:{minutes:02}:{seconds:02}"),
        every @ ..1440 => {
            format!("*-*-* {hours:02}/{}:{minutes:02}:{seconds:02}", every / 60)
        }
        1440 => format!("*-*-* {hours:02}:{minutes:02}:{seconds:02}"),
        _ => format!(
            "{} *-*-* {hours:02}:{minutes:02}:{seconds:02}",
            at.weekday()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_interval_and_offset() {
        for (every, offset, expression) in [
            ("3h", 0, "*-*-* 00/3:00:00"),
            ("3h", 3 * 3600 - 1, "*-*-* 02/3:59:59"),
            ("15m", 61, "*-*-* *:01/15:01"),
            ("1h", 754, "*-*-* *:12:34"),
            ("1d", 86_399, "*-*-* 23:59:59"),
            ("7d", 86_400 + 3600, "Tue *-*-* 01:00:00"),
        ] {
            assert_eq!(
                calendar_expression(every.parse().unwrap(), offset),
                expression
            );
        }
    }
}
