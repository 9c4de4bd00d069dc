//! A time zone with summer time, for tests.

use chrono::{Duration, FixedOffset, LocalResult, NaiveDate, NaiveDateTime, TimeZone};

/// A time zone that changes from UTC+1 to UTC+2 at 2026-03-29 01:00 UTC, and back at
/// 2026-10-25 01:00 UTC.
#[derive(Clone, Copy, Debug)]
pub struct SummerTime;

impl SummerTime {
    fn hours_at(utc: &NaiveDateTime) -> i32 {
        let at = |month, day| {
            let date = NaiveDate::from_ymd_opt(2026, month, day).unwrap();
            date.and_hms_opt(1, 0, 0).unwrap()
        };
        if (at(3, 29)..at(10, 25)).contains(utc) {
            2
        } else {
            1
        }
    }
}

impl TimeZone for SummerTime {
    type Offset = FixedOffset;

    fn from_offset(_: &FixedOffset) -> SummerTime {
        SummerTime
    }

    fn offset_from_local_date(&self, _: &NaiveDate) -> LocalResult<FixedOffset> {
        LocalResult::None
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> LocalResult<FixedOffset> {
        let fits = |hours: &i32| {
            SummerTime::hours_at(&(*local - Duration::hours(i64::from(*hours)))) == *hours
        };
        let offset = |hours: i32| FixedOffset::east_opt(hours * 3600).unwrap();
        match [2, 1].into_iter().filter(fits).collect::<Vec<_>>()[..] {
            [first, second] => LocalResult::Ambiguous(offset(first), offset(second)),
            [only] => LocalResult::Single(offset(only)),
            _ => LocalResult::None,
        }
    }

    fn offset_from_utc_date(&self, _: &NaiveDate) -> FixedOffset {
        FixedOffset::east_opt(3600).unwrap()
    }

    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> FixedOffset {
        FixedOffset::east_opt(SummerTime::hours_at(utc) * 3600).unwrap()
    }
}
