//! Moments as operators type them: an age, a day, a month, or a minute. The time zone in which
//! operators type and read them.

use std::ops::Range;

use chrono::{
    DateTime, Datelike, Days, Duration, FixedOffset, Months, NaiveDate, NaiveDateTime, NaiveTime,
    Offset, TimeZone, Utc,
};

/// The time zone of the operator. Each instant has the offset that applied or will apply then, not
/// that of today or of the process that recorded it: what reads a stored instant passes it through
/// [`Zone::at`], and what lists instants shows them with [`Zone::format_second`] or
/// [`Zone::format_minute`].
#[derive(Clone, Copy, Debug)]
pub enum Zone {
    /// A zone without summer time.
    Fixed(FixedOffset),
    /// A zone whose offset depends on the instant, in UTC.
    Changing(fn(NaiveDateTime) -> FixedOffset),
}

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Zone = Zone::Changing(|_| Utc.fix());

    fn offset_at(self, utc: NaiveDateTime) -> FixedOffset {
        match self {
            Zone::Fixed(offset) => offset,
            Zone::Changing(offset_at) => offset_at(utc),
        }
    }

    /// Returns the local time of an instant.
    pub fn at<Tz: TimeZone>(self, time: DateTime<Tz>) -> DateTime<FixedOffset> {
        let utc = time.naive_utc();
        DateTime::from_naive_utc_and_offset(utc, self.offset_at(utc))
    }

    /// Formats an instant as local time to the second, such as `2026-03-14 09:00:00`; with its offset where
    /// that local time occurs twice.
    pub fn format_second<Tz: TimeZone>(self, time: DateTime<Tz>) -> String {
        self.format(time, "%Y-%m-%d %H:%M:%S")
    }

    /// Formats an instant as [`Zone::format_second`] does, to the minute.
    pub fn format_minute<Tz: TimeZone>(self, time: DateTime<Tz>) -> String {
        self.format(time, "%Y-%m-%d %H:%M")
    }

    fn format<Tz: TimeZone>(self, time: DateTime<Tz>, form: &str) -> String {
        let utc = time.naive_utc();
        let local = self.at(time);
        if self.is_repeated(utc) {
            local.format(&format!("{form} %:z")).to_string()
        } else {
            local.format(form).to_string()
        }
    }

    /// Returns whether another instant, at the end of summer time, has the same local time.
    fn is_repeated(self, utc: NaiveDateTime) -> bool {
        let (offset, day) = (self.offset_at(utc), Duration::days(1));
        let days = [utc.checked_sub_signed(day), utc.checked_add_signed(day)];
        let offsets = days.into_iter().flatten().map(|it| self.offset_at(it));
        let mut others = offsets.filter(|it| *it != offset);
        others.any(|other| {
            let local = utc.checked_add_offset(offset);
            let instant = local.and_then(|local| local.checked_sub_offset(other));
            instant.is_some_and(|utc| self.offset_at(utc) == other)
        })
    }

    /// Returns the instant of a local time; the first one of two, and that of the offset before the
    /// gap for a time that is skipped.
    pub fn resolve(self, local: NaiveDateTime) -> DateTime<FixedOffset> {
        let day = Duration::days(1);
        let near = |time: Option<NaiveDateTime>| self.offset_at(time.unwrap_or(local));
        let before = near(local.checked_sub_signed(day));
        let after = near(local.checked_add_signed(day));
        let fits = |offset: &FixedOffset| self.offset_at(local - *offset) == *offset;
        let offset = [before, after].into_iter().find(fits).unwrap_or(before);
        DateTime::from_naive_utc_and_offset(local - offset, offset)
    }
}

/// What [`parse_moment`] accepts, for messages.
pub const MOMENT_HINT: &str = "write an age such as 12h, 7d or 2w; today, yesterday; a date such as \
                               2026-03-14, 2026-03 or 2026; or a time such as 2026-03-14T09:00";

/// Parses a moment or a span of time. The range begins with its first moment and ends behind its
/// last one; an age is a moment alone.
pub fn parse_moment(text: &str, now: DateTime<FixedOffset>) -> Option<Range<NaiveDateTime>> {
    let today = now.date_naive();
    let day =
        |date: NaiveDate| Some(midnight(date)..midnight(date.checked_add_days(Days::new(1))?));
    match text {
        "today" => return day(today),
        "yesterday" => return day(today.checked_sub_days(Days::new(1))?),
        "now" => return Some(now.naive_local()..now.naive_local()),
        _ => {}
    }
    if let Some(age) = parse_age(text) {
        let moment = now.naive_local().checked_sub_signed(age)?;
        return has_plain_year(moment).then_some(moment..moment);
    }
    for format in ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d_%H%M"] {
        if let Ok(minute) = NaiveDateTime::parse_from_str(text, format) {
            let end = minute.checked_add_signed(Duration::minutes(1))?;
            return has_plain_year(minute).then_some(minute..end);
        }
    }
    if has_shape(text, "0000-00-00") {
        return day(NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?);
    }
    if has_shape(text, "0000-00") {
        let first = NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d").ok()?;
        return Some(midnight(first)..midnight(first.checked_add_months(Months::new(1))?));
    }
    if has_shape(text, "0000") {
        let first = NaiveDate::from_ymd_opt(text.parse().ok()?, 1, 1)?;
        return Some(midnight(first)..midnight(first.checked_add_months(Months::new(12))?));
    }
    None
}

/// Whether a text has the length of a shape, digits where that has zeros, and its other characters.
fn has_shape(text: &str, shape: &str) -> bool {
    let mut pairs = text.bytes().zip(shape.bytes());
    text.len() == shape.len()
        && pairs.all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            form => byte == form,
        })
}

/// Whether a time is in a year of four digits, so that no offset or interval overflows it.
fn has_plain_year(time: NaiveDateTime) -> bool {
    (0..=9999).contains(&time.year())
}

/// Returns 18:00 of yesterday: what happened since is what happened overnight.
pub fn last_evening(now: DateTime<FixedOffset>, zone: Zone) -> DateTime<FixedOffset> {
    let yesterday = now.date_naive().checked_sub_days(Days::new(1));
    let evening = yesterday.and_then(|date| date.and_hms_opt(18, 0, 0));
    evening.map_or(now, |evening| zone.resolve(evening))
}

/// Parses an age such as `90m`, `24h`, `7d`, `2w`.
fn parse_age(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let number = &text[..text.len() - unit.len_utf8()];
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = number.parse().ok().filter(|_| is_number)?;
    match unit {
        'm' => Duration::try_minutes(number),
        'h' => Duration::try_hours(number),
        'd' => Duration::try_days(number),
        'w' => Duration::try_weeks(number),
        _ => None,
    }
}

fn midnight(date: NaiveDate) -> NaiveDateTime {
    date.and_time(NaiveTime::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::reset_interval::summer_time::SummerTime;

    const SUMMER_TIME: Zone = Zone::Changing(|utc| SummerTime.offset_from_utc_datetime(&utc));

    fn parse(text: &str) -> Option<(String, String)> {
        let now = DateTime::parse_from_rfc3339("2026-03-14T09:30:15+01:00").unwrap();
        let range = parse_moment(text, now)?;
        let format = |time: NaiveDateTime| time.format("%Y-%m-%d %H:%M:%S").to_string();
        Some((format(range.start), format(range.end)))
    }

    #[test]
    fn ages_days_and_minutes_are_ranges_of_local_time() {
        for (text, start, end) in [
            ("90m", "2026-03-14 08:00:15", "2026-03-14 08:00:15"),
            ("24h", "2026-03-13 09:30:15", "2026-03-13 09:30:15"),
            ("7d", "2026-03-07 09:30:15", "2026-03-07 09:30:15"),
            ("2w", "2026-02-28 09:30:15", "2026-02-28 09:30:15"),
            ("now", "2026-03-14 09:30:15", "2026-03-14 09:30:15"),
            ("today", "2026-03-14 00:00:00", "2026-03-15 00:00:00"),
            ("yesterday", "2026-03-13 00:00:00", "2026-03-14 00:00:00"),
            ("2026-03-01", "2026-03-01 00:00:00", "2026-03-02 00:00:00"),
            ("2026-02", "2026-02-01 00:00:00", "2026-03-01 00:00:00"),
            ("2025", "2025-01-01 00:00:00", "2026-01-01 00:00:00"),
            (
                "2026-03-14 09:00",
                "2026-03-14 09:00:00",
                "2026-03-14 09:01:00",
            ),
            (
                "2026-03-14T09:00",
                "2026-03-14 09:00:00",
                "2026-03-14 09:01:00",
            ),
            (
                "2026-03-14_0900",
                "2026-03-14 09:00:00",
                "2026-03-14 09:01:00",
            ),
        ] {
            assert_eq!(
                parse(text),
                Some((start.to_string(), end.to_string())),
                "{text}"
            );
        }
    }

    #[test]
    fn evening_is_that_of_yesterday() {
        for (now, evening) in [
            ("2026-03-14T09:30:15+01:00", "2026-03-13T18:00:00+01:00"),
            ("2026-03-14T23:59:59-08:00", "2026-03-13T18:00:00-08:00"),
            ("2026-01-01T00:00:00+14:00", "2025-12-31T18:00:00+14:00"),
        ] {
            let now = DateTime::parse_from_rfc3339(now).unwrap();
            assert_eq!(
                last_evening(now, Zone::Fixed(*now.offset())).to_rfc3339(),
                evening
            );
        }
    }

    fn rfc3339(text: &str) -> DateTime<FixedOffset> {
        DateTime::parse_from_rfc3339(text).unwrap()
    }

    #[test]
    fn instant_has_the_offset_of_its_own_time() {
        for (recorded, shown) in [
            ("2026-07-01T10:00:00+02:00", "2026-07-01T10:00:00+02:00"),
            ("2026-07-01T08:00:00Z", "2026-07-01T10:00:00+02:00"),
            ("2026-11-28T09:00:00+02:00", "2026-11-28T08:00:00+01:00"),
            ("2026-10-25T00:59:59Z", "2026-10-25T02:59:59+02:00"),
            ("2026-10-25T01:00:00Z", "2026-10-25T02:00:00+01:00"),
        ] {
            assert_eq!(SUMMER_TIME.at(rfc3339(recorded)).to_rfc3339(), shown);
        }
    }

    #[test]
    fn repeated_local_time_is_shown_with_its_offset() {
        for (instant, shown) in [
            ("2026-10-24T23:59:59Z", "2026-10-25 01:59:59"),
            ("2026-10-25T00:30:00Z", "2026-10-25 02:30:00 +02:00"),
            ("2026-10-25T01:30:00Z", "2026-10-25 02:30:00 +01:00"),
            ("2026-10-25T02:00:00Z", "2026-10-25 03:00:00"),
            // An hour that is skipped repeats none.
            ("2026-03-29T00:59:59Z", "2026-03-29 01:59:59"),
            ("2026-03-29T01:00:00Z", "2026-03-29 03:00:00"),
        ] {
            assert_eq!(SUMMER_TIME.format_second(rfc3339(instant)), shown);
        }
        let instant = rfc3339("2026-10-25T01:30:00Z");
        assert_eq!(
            SUMMER_TIME.format_minute(instant),
            "2026-10-25 02:30 +01:00"
        );
        assert_eq!(Zone::UTC.format_minute(instant), "2026-10-25 01:30");
        let end = DateTime::<Utc>::MAX_UTC;
        assert!(!SUMMER_TIME.format_second(end).is_empty());
    }

    #[test]
    fn local_time_has_the_offset_of_its_own_day() {
        for (local, instant) in [
            ("2026-07-01 10:00", "2026-07-01T10:00:00+02:00"),
            ("2026-11-28 09:00", "2026-11-28T09:00:00+01:00"),
            // Twice, and never.
            ("2026-10-25 02:30", "2026-10-25T02:30:00+02:00"),
            ("2026-03-29 02:30", "2026-03-29T02:30:00+01:00"),
        ] {
            let local = NaiveDateTime::parse_from_str(local, "%Y-%m-%d %H:%M").unwrap();
            assert_eq!(SUMMER_TIME.resolve(local).to_rfc3339(), instant);
        }
        let end = SUMMER_TIME.resolve(NaiveDateTime::MAX);
        assert_eq!(end.naive_local(), NaiveDateTime::MAX);
    }

    #[test]
    fn other_text_is_no_moment() {
        for text in [
            "",
            "d",
            "-1d",
            "+1d",
            "1y",
            "1.5h",
            "9999999999999999999d",
            "999999999w",
            "tomorrow",
            "2026-13-01",
            "2026-02-30",
            "2026-00",
            "2026-3-1",
            "14.03.2026",
            "09:00",
            "é",
            "7é",
            "2026-03-14 25:00",
            "262142-12",
            "+262142-12-31T23:59",
            "-262143-01-01T00:00",
            "96480000d",
            "２０２６",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
