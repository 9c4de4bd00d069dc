//! Intervals between resets, and the times of the day at which they are due.
//!
//! Only intervals that a calendar repeats every day or week exist: such a time is the same on every
//! day, whenever the machine was started, and a timer of systemd or cron can express it.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Duration, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeZone};
use serde::{Serialize, Serializer};

/// An interval that divides an hour or a day, or a day or a week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResetInterval {
    minutes: u32,
}

const MINUTES_PER_HOUR: u32 = 60;
const MINUTES_PER_DAY: u32 = 24 * MINUTES_PER_HOUR;
const MINUTES_PER_WEEK: u32 = 7 * MINUTES_PER_DAY;

/// All intervals in minutes, shortest first.
const INTERVAL_MINUTES: &[u32] = &[
    5,
    6,
    10,
    12,
    15,
    20,
    30,
    MINUTES_PER_HOUR,
    2 * MINUTES_PER_HOUR,
    3 * MINUTES_PER_HOUR,
    4 * MINUTES_PER_HOUR,
    6 * MINUTES_PER_HOUR,
    8 * MINUTES_PER_HOUR,
    12 * MINUTES_PER_HOUR,
    MINUTES_PER_DAY,
    MINUTES_PER_WEEK,
];

/// Names of the units, with their length in minutes.
const UNITS: &[(&[&str], u32)] = &[
    (&["m", "min", "minute", "minutes"], 1),
    (&["h", "hour", "hours"], MINUTES_PER_HOUR),
    (&["d", "day", "days"], MINUTES_PER_DAY),
    (&["w", "week", "weeks"], MINUTES_PER_WEEK),
];

/// Why a text is not an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalFault {
    /// The fault, to be read after the name of the value.
    pub fault: String,
    /// What to write instead.
    pub hint: String,
}

impl fmt::Display for IntervalFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.fault, self.hint)
    }
}

impl std::error::Error for IntervalFault {}

impl FromStr for ResetInterval {
    type Err = IntervalFault;

    fn from_str(text: &str) -> Result<ResetInterval, IntervalFault> {
        let Some(minutes) = parse_minutes(text) else {
            return Err(IntervalFault {
                fault: format!("must be an interval, not `{text}`"),
                hint: "write a number with m, h or d, such as 30m, 3h or 1d".to_string(),
            });
        };
        if INTERVAL_MINUTES.contains(&minutes) {
            return Ok(ResetInterval { minutes });
        }
        let shorter = INTERVAL_MINUTES.iter().rev().find(|it| **it < minutes);
        let longer = INTERVAL_MINUTES.iter().find(|it| **it > minutes);
        let nearest: Vec<String> = [shorter, longer]
            .into_iter()
            .flatten()
            .map(|minutes| ResetInterval { minutes: *minutes }.to_string())
            .collect();
        Err(IntervalFault {
            fault: format!(
                "must be an interval that divides an hour (from 5m) or a day, or 1d or 7d, not \
                 `{text}`"
            ),
            hint: format!("write {}", nearest.join(" or ")),
        })
    }
}

/// Returns the length of `3h`, `90 minutes` or `1w` in minutes.
fn parse_minutes(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim_start().to_ascii_lowercase();
    let (_, factor) = UNITS
        .iter()
        .find(|(names, _)| names.contains(&unit.as_str()))?;
    digits.parse::<u32>().ok()?.checked_mul(*factor)
}

impl fmt::Display for ResetInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = self.minutes;
        if minutes >= MINUTES_PER_DAY {
            write!(f, "{}d", minutes / MINUTES_PER_DAY)
        } else if minutes >= MINUTES_PER_HOUR {
            write!(f, "{}h", minutes / MINUTES_PER_HOUR)
        } else {
            write!(f, "{minutes}m")
        }
    }
}

impl Serialize for ResetInterval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Default for ResetInterval {
    /// Three hours, as the original tool's timers.
    fn default() -> ResetInterval {
        ResetInterval {
            minutes: 3 * MINUTES_PER_HOUR,
        }
    }
}

impl ResetInterval {
    /// Returns all intervals, shortest first.
    pub fn all() -> impl Iterator<Item = ResetInterval> {
        INTERVAL_MINUTES
            .iter()
            .map(|minutes| ResetInterval { minutes: *minutes })
    }

    /// Returns the length in minutes.
    pub fn minutes(self) -> u32 {
        self.minutes
    }

    /// Returns the length in seconds.
    pub fn seconds(self) -> u32 {
        self.minutes * 60
    }

    /// Returns the offset, in seconds, of one of `count` agents that share an interval, so that
    /// their resets are evenly apart.
    pub fn staggered_offset(self, index: usize, count: usize) -> u32 {
        let (index, count) = (index as u64, count.max(1) as u64);
        let offset = u64::from(self.seconds()) * (index % count) / count;
        // Less than the interval.
        offset as u32
    }

    /// Returns the first time after `after` at which a reset is due, in the time zone of `after`:
    /// the interval counts from midnight, seven days from Monday, plus `offset` seconds.
    ///
    /// A time that a change of the clock skips is due right after the change. Of a time that occurs
    /// twice, only the first is due, unless the interval divides an hour.
    pub fn next_after<Tz: TimeZone>(self, offset: u32, after: &DateTime<Tz>) -> DateTime<Tz> {
        let zone = after.timezone();
        let step = i64::from(self.seconds());
        let offset = i64::from(offset) % step;
        // A change of the clock moves local time by at most a day (when a country changes sides of
        // the date line), and the grid is one interval wide.
        let first = after.naive_local() - Duration::days(1) - Duration::seconds(step);
        let last = after.naive_local() + Duration::days(1) + Duration::seconds(step);
        let grid_start = grid_origin();
        let elapsed = (first - grid_start).num_seconds() - offset;
        let mut due = grid_start + Duration::seconds(elapsed.div_euclid(step) * step + offset);
        let mut next: Option<DateTime<Tz>> = None;
        while due <= last {
            for time in self.local_times(&zone, due).into_iter().flatten() {
                let is_earlier = next.as_ref().is_none_or(|next| time < *next);
                if time > *after && is_earlier {
                    next = Some(time);
                }
            }
            due += Duration::seconds(step);
        }
        // The loop covers more than an interval after `after`, so it always finds one.
        next.unwrap_or_else(|| after.clone() + Duration::seconds(step))
    }

    /// Returns the moments that a local time stands for.
    fn local_times<Tz: TimeZone>(
        self,
        zone: &Tz,
        local: NaiveDateTime,
    ) -> [Option<DateTime<Tz>>; 2] {
        match zone.from_local_datetime(&local) {
            LocalResult::Single(time) => [Some(time), None],
            LocalResult::Ambiguous(first, second) => {
                let is_hourly = self.minutes <= MINUTES_PER_HOUR;
                [Some(first), is_hourly.then_some(second)]
            }
            LocalResult::None => [time_after_gap(zone, local), None],
        }
    }
}

/// A midnight of a Monday, long before any reset.
fn grid_origin() -> NaiveDateTime {
    let monday = NaiveDate::from_ymd_opt(1969, 12, 29).unwrap_or_default();
    NaiveDateTime::new(monday, NaiveTime::MIN)
}

/// Returns the first moment after a change of the clock that skips a local time.
fn time_after_gap<Tz: TimeZone>(zone: &Tz, skipped: NaiveDateTime) -> Option<DateTime<Tz>> {
    let whole_minute = skipped - Duration::seconds(skipped.and_utc().timestamp().rem_euclid(60));
    (1..=i64::from(MINUTES_PER_DAY) + 1)
        .map(|minutes| whole_minute + Duration::minutes(minutes))
        .find_map(|local| zone.from_local_datetime(&local).earliest())
}

#[cfg(test)]
pub(crate) mod summer_time;

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::summer_time::SummerTime;
    use super::*;

    fn interval(text: &str) -> ResetInterval {
        text.parse().unwrap()
    }

    #[test]
    fn every_interval_reads_back_from_its_text() {
        for interval in ResetInterval::all() {
            assert_eq!(interval.to_string().parse(), Ok(interval));
        }
        for (text, same) in [
            ("180m", "3h"),
            ("60 min", "1h"),
            ("24h", "1d"),
            ("1 week", "7d"),
            ("2 Hours", "2h"),
        ] {
            assert_eq!(interval(text), interval(same), "{text}");
        }
    }

    #[test]
    fn other_interval_names_nearest_ones() {
        for (text, hint) in [
            ("7m", "write 6m or 10m"),
            ("90m", "write 1h or 2h"),
            ("5h", "write 4h or 6h"),
            ("2d", "write 1d or 7d"),
            ("0m", "write 5m"),
            ("30d", "write 7d"),
        ] {
            let fault = text.parse::<ResetInterval>().unwrap_err();
            assert_eq!(fault.hint, hint, "{text}");
        }
        for text in ["", "3", "h", "3 x", "-3h", "1.5h", "٣h", "99999999999h"] {
            let fault = text.parse::<ResetInterval>().unwrap_err();
            assert!(fault.hint.contains("30m, 3h or 1d"), "{text}");
        }
    }

    #[test]
    fn staggered_offsets_of_200_agents_differ() {
        for interval in ResetInterval::all() {
            let offsets: Vec<u32> = (0..200)
                .map(|index| interval.staggered_offset(index, 200))
                .collect();
            assert!(offsets.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(offsets.iter().all(|it| *it < interval.seconds()));
        }
    }

    #[test]
    fn next_time_is_on_the_grid_of_the_day() {
        for (every, offset, after, next) in [
            ("3h", 0, "2026-03-14T00:00:00Z", "2026-03-14T03:00:00Z"),
            ("3h", 0, "2026-03-14T02:59:59Z", "2026-03-14T03:00:00Z"),
            ("3h", 90, "2026-03-14T21:01:30Z", "2026-03-15T00:01:30Z"),
            ("15m", 61, "2026-03-14T10:00:00Z", "2026-03-14T10:01:01Z"),
            ("1d", 3600, "2026-03-14T02:00:00Z", "2026-03-15T01:00:00Z"),
            // 2026-03-14 is a Saturday.
            ("7d", 0, "2026-03-14T02:00:00Z", "2026-03-16T00:00:00Z"),
            ("7d", 86_400, "2026-03-16T00:00:00Z", "2026-03-17T00:00:00Z"),
        ] {
            let after: DateTime<Utc> = after.parse().unwrap();
            let found = interval(every).next_after(offset, &after);
            assert_eq!(found, next.parse::<DateTime<Utc>>().unwrap(), "{every}");
        }
    }

    /// Returns the next `count` times after a moment.
    fn next_times(every: &str, offset: u32, after: &str, count: usize) -> Vec<String> {
        let mut time = DateTime::parse_from_rfc3339(after)
            .unwrap()
            .with_timezone(&SummerTime);
        (0..count)
            .map(|_| {
                time = interval(every).next_after(offset, &time);
                time.format("%dT%H:%M%:z").to_string()
            })
            .collect()
    }

    #[test]
    fn skipped_hour_does_not_lose_a_reset() {
        let times = next_times("1d", 9000, "2026-03-28T03:00:00+01:00", 2);
        assert_eq!(times, ["29T03:00+02:00", "30T02:30+02:00"]);
        let times = next_times("1h", 0, "2026-03-29T00:30:00+01:00", 3);
        assert_eq!(
            times,
            ["29T01:00+01:00", "29T03:00+02:00", "29T04:00+02:00"]
        );
    }

    #[test]
    fn repeated_hour_has_one_reset_a_day() {
        let times = next_times("1d", 9000, "2026-10-24T03:00:00+02:00", 2);
        assert_eq!(times, ["25T02:30+02:00", "26T02:30+01:00"]);
        let times = next_times("30m", 0, "2026-10-25T01:59:00+02:00", 5);
        assert_eq!(
            times,
            [
                "25T02:00+02:00",
                "25T02:30+02:00",
                "25T02:00+01:00",
                "25T02:30+01:00",
                "25T03:00+01:00"
            ]
        );
    }
}
