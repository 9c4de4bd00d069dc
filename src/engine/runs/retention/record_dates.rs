//! The latest dates at which records of a ledger may have been written, and files without a record.
//!
//! The clock of a machine may be behind until it is set right, and its records are then dated too
//! early. Of two records of one boot, their times since that boot say how much time passed between
//! them. Where the time of day moves forward by more than is known to have passed, the clock may have
//! been set: every earlier record may be newer than it says by as much as the time of day moved too
//! far, and no record by more than the largest such jump behind it. Between two boots nothing is known
//! to have passed: the machine may have been off, or its clock behind, and both look the same.
//!
//! Each jump is at its record, so a date is the same in every later run. Times in the future count for
//! nothing.

use chrono::{DateTime, FixedOffset, TimeDelta};

use crate::base::clock::BootTime;

/// A smaller jump is a drift that matters to nothing that is counted in days.
const MIN_JUMP: TimeDelta = TimeDelta::hours(1);

/// Precision of the name of an entry, whose time has no seconds.
const NAME_PRECISION: TimeDelta = TimeDelta::minutes(1);

/// Number of a record that is behind every other: the present time.
const PRESENT_SEQ: u64 = u64::MAX;

/// The dates of the records of a ledger.
#[derive(Debug, Default)]
pub(super) struct RecordDates {
    now: DateTime<FixedOffset>,
    /// The latest time of a record that is not in the future.
    latest: Option<DateTime<FixedOffset>>,
    /// The last such record with a boot.
    last: Option<DatedRecord>,
    /// Jumps of the clock, in the order of the ledger; each is larger than all behind it.
    jumps: Vec<ClockJump>,
    /// Times that a clock said after it had been behind later ones.
    past_times: Vec<PastTimes>,
}

/// The place of a record in the ledger, and the latest time that it or a record before says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordPlace {
    /// The time, without jumps of the clock behind the record.
    pub time: DateTime<FixedOffset>,
    seq: u64,
}

/// A record whose time is not in the future.
#[derive(Clone, Debug)]
struct DatedRecord {
    time: DateTime<FixedOffset>,
    boot: BootTime,
    place: RecordPlace,
}

/// A time of day that moved by more than is known to have passed.
#[derive(Clone, Copy, Debug)]
struct ClockJump {
    /// Number of the first record behind it.
    seq: u64,
    /// What that record says.
    end: DateTime<FixedOffset>,
    /// How far the time moved too far.
    size: TimeDelta,
}

/// Times between which a clock was at a record that is dated later.
#[derive(Clone, Debug)]
struct PastTimes {
    start: DateTime<FixedOffset>,
    end: DateTime<FixedOffset>,
    record: DatedRecord,
}

impl RecordDates {
    /// Creates the dates of no record, at the present time.
    pub fn new(now: DateTime<FixedOffset>) -> RecordDates {
        RecordDates {
            now,
            ..RecordDates::default()
        }
    }

    /// Adds the next record. Its date is known once all are added.
    pub fn add(
        &mut self,
        seq: u64,
        time: DateTime<FixedOffset>,
        boot: Option<&BootTime>,
    ) -> RecordPlace {
        let latest = self.latest.unwrap_or(time);
        let place = RecordPlace {
            time: latest.max(time),
            seq,
        };
        if time > self.now {
            return place;
        }
        self.latest = Some(place.time);
        // Without a boot, a record is taken at its word.
        let Some(boot) = boot.cloned() else {
            return place;
        };
        if let Some(last) = self.last.take() {
            let passed = last.passed_until(&boot);
            let size = (time - latest).checked_sub(&passed.unwrap_or_default());
            self.add_jump(ClockJump {
                seq,
                end: time,
                size: size.unwrap_or_default(),
            });
            if last.place.time - last.time > MIN_JUMP {
                let passed = passed.unwrap_or(time - latest).max(TimeDelta::zero());
                self.past_times.push(PastTimes::around(last, passed));
            }
        }
        self.last = Some(DatedRecord { time, boot, place });
        place
    }

    /// Adds the present time, which may show a jump before a record does.
    pub fn add_present(&mut self, boot: Option<&BootTime>) {
        self.add(PRESENT_SEQ, self.now, boot);
    }

    fn add_jump(&mut self, jump: ClockJump) {
        if jump.size > MIN_JUMP {
            while self.jumps.pop_if(|it| it.size <= jump.size).is_some() {}
            self.jumps.push(jump);
        }
    }

    /// Returns the latest time at which a record may have been written, once all are added.
    pub fn date(&self, place: RecordPlace) -> DateTime<FixedOffset> {
        let next = self.jumps.partition_point(|jump| jump.seq <= place.seq);
        match self.jumps.get(next) {
            Some(jump) if place.time <= self.now => add_time(place.time, jump.size),
            _ => place.time,
        }
    }

    /// Returns the latest time at which a file may have been written that no record names and that
    /// says `time`.
    pub fn date_unrecorded(&self, time: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
        let jumps = self.jumps.iter().filter(|jump| jump.end > time);
        let moved = jumps.map(|jump| add_time(time, jump.size).min(jump.end));
        let said = self.past_times.iter().filter(|it| it.contains(time));
        let dated = said.map(|it| {
            let since = (time - it.record.time).max(TimeDelta::zero());
            add_time(self.date(it.record.place), since).min(self.now)
        });
        moved.chain(dated).fold(time, DateTime::max)
    }
}

impl DatedRecord {
    /// Returns how much time passed until a later record; none if that is not known.
    fn passed_until(&self, boot: &BootTime) -> Option<TimeDelta> {
        let seconds = boot.seconds.saturating_sub(self.boot.seconds);
        to_time_delta(seconds).filter(|_| boot.id == self.boot.id)
    }
}

impl PastTimes {
    /// The clock went from the start of the machine until the next record, which came after `passed`.
    fn around(record: DatedRecord, passed: TimeDelta) -> PastTimes {
        let since = to_time_delta(record.boot.seconds);
        let start = since.and_then(|since| record.time.checked_sub_signed(since));
        PastTimes {
            start: start.unwrap_or(record.time),
            end: add_time(record.time, passed),
            record,
        }
    }

    fn contains(&self, time: DateTime<FixedOffset>) -> bool {
        add_time(time, NAME_PRECISION) >= self.start && time <= add_time(self.end, NAME_PRECISION)
    }
}

fn to_time_delta(seconds: u64) -> Option<TimeDelta> {
    TimeDelta::try_seconds(i64::try_from(seconds).ok()?)
}

/// Returns a later time, or the same one beyond all times.
fn add_time(time: DateTime<FixedOffset>, later: TimeDelta) -> DateTime<FixedOffset> {
    time.checked_add_signed(later).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;

    fn time(seconds: i64) -> DateTime<FixedOffset> {
        let time = DateTime::from_timestamp(2_000_000_000 + seconds, 0).unwrap();
        time.fixed_offset()
    }

    fn boot(id: &str, seconds: i64) -> BootTime {
        BootTime {
            id: id.to_string(),
            seconds: seconds.try_into().unwrap(),
        }
    }

    /// Adds records of these boots, times since the boot and times of day; returns the dates at the
    /// end, and the places of the records.
    fn dates_of(now: i64, records: &[(&str, i64, i64)]) -> (RecordDates, Vec<RecordPlace>) {
        let mut dates = RecordDates::new(time(now));
        let places = (1..).zip(records).map(|(seq, (id, since, said))| {
            let boot = (!id.is_empty()).then(|| boot(id, *since));
            dates.add(seq, time(*said), boot.as_ref())
        });
        let places = places.collect();
        (dates, places)
    }

    /// Returns when these records may have been written at the latest, in seconds.
    fn dated(now: i64, records: &[(&str, i64, i64)]) -> Vec<i64> {
        let (dates, places) = dates_of(now, records);
        let places = places.into_iter();
        let seconds = places.map(|place| (dates.date(place) - time(0)).num_seconds());
        seconds.collect()
    }

    #[test]
    fn record_before_a_step_is_dated_by_it() {
        let records = [("a", 0, 0), ("a", HOUR, 40 * DAY + HOUR)];
        assert_eq!(dated(50 * DAY, &records), [40 * DAY, 40 * DAY + HOUR]);
        // A drift is none.
        let records = [("a", 0, 0), ("a", DAY, DAY + HOUR)];
        assert_eq!(dated(50 * DAY, &records), [0, DAY + HOUR]);
    }

    #[test]
    fn record_of_a_boot_before_is_dated_by_the_next() {
        let records = [("a", 0, 0), ("b", 0, 40 * DAY), ("b", DAY, 41 * DAY)];
        assert_eq!(dated(50 * DAY, &records)[0], 40 * DAY);
        // As late as the last of its boot allows, and over boots without a jump.
        let records = [
            ("a", 0, 0),
            ("a", 9 * DAY, 9 * DAY),
            ("b", 0, 9 * DAY + HOUR),
            ("c", MINUTE, 50 * DAY),
        ];
        let jump = 50 * DAY - (9 * DAY + HOUR);
        let expected = [jump, 9 * DAY + jump, 50 * DAY, 50 * DAY];
        assert_eq!(dated(60 * DAY, &records), expected);
    }

    #[test]
    fn nightly_boots_date_records_a_night_later() {
        let nights: Vec<String> = (0..200).map(|day| day.to_string()).collect();
        let records = (0..).zip(&nights).flat_map(|(day, id)| {
            let begin = DAY * day;
            [(id.as_str(), 0, begin), (id.as_str(), HOUR, begin + HOUR)]
        });
        let records: Vec<_> = records.collect();
        let dates = dated(300 * DAY, &records);
        // The last night has no end yet.
        for ((_, _, said), date) in records.iter().zip(&dates).take(398) {
            assert_eq!(date - said, 23 * HOUR);
        }
        let (_, places) = dates_of(300 * DAY, &records);
        assert!(places.is_sorted(), "a later record is not dated earlier");
    }

    #[test]
    fn record_without_a_boot_is_taken_at_its_word() {
        let records = [
            ("", 0, 0),
            ("", 0, 40 * DAY),
            ("a", 0, 41 * DAY),
            ("", 0, 0),
        ];
        let expected = [0, 40 * DAY, 41 * DAY, 41 * DAY];
        assert_eq!(dated(50 * DAY, &records), expected);
    }

    #[test]
    fn steps_of_later_boots_date_nothing_again() {
        let mut records = vec![("a", 0, 0), ("a", HOUR, 40 * DAY)];
        for (day, id) in (41..).zip(["b", "c", "d", "e"]) {
            records.push((id, 0, 0));
            records.push((id, HOUR, day * DAY));
        }
        let dates = dated(60 * DAY, &records);
        assert_eq!(dates[0], 40 * DAY - HOUR);
        // A record of a slow clock is as new as those before, and at most as the next.
        assert_eq!(dates[4], 42 * DAY - HOUR);
    }

    #[test]
    fn clock_ahead_for_a_while_dates_nothing_later() {
        let records = [
            ("a", 0, 0),
            ("a", MINUTE, 4000 * DAY),
            ("a", 2 * MINUTE, 2 * MINUTE),
            ("b", 0, 41 * DAY),
        ];
        let dates = dated(50 * DAY, &records);
        assert_eq!(
            dates[2],
            41 * DAY,
            "behind it, a slow clock shows all the same"
        );
        assert_eq!(dates[1], 4000 * DAY);
        assert_eq!(dated(DAY, &records[..3])[0], 0);
    }

    #[test]
    fn present_time_shows_a_jump_before_a_record_does() {
        let (mut dates, places) = dates_of(40 * DAY, &[("a", 0, 0)]);
        assert_eq!(dates.date(places[0]), time(0));
        dates.add_present(Some(&boot("a", MINUTE)));
        assert_eq!(dates.date(places[0]), time(40 * DAY - MINUTE));
    }

    #[test]
    fn unrecorded_file_of_a_slow_clock_is_dated() {
        // A machine that starts at 0 each time.
        let records = [
            ("a", 0, 100 * DAY),
            ("b", HOUR, HOUR),
            ("b", 3 * HOUR, 110 * DAY),
        ];
        let (dates, _) = dates_of(200 * DAY, &records);
        let date = |said| (dates.date_unrecorded(time(said)) - time(0)).num_seconds();
        // Before, at and behind the record.
        assert_eq!(date(0), 110 * DAY - 2 * HOUR);
        assert_eq!(date(HOUR), 110 * DAY - 2 * HOUR);
        assert_eq!(date(2 * HOUR), 110 * DAY - HOUR);
        // Of no boot that is known: as a record of that time.
        assert_eq!(date(2 * DAY), 12 * DAY - 2 * HOUR);
        assert_eq!(date(99 * DAY), 109 * DAY - 2 * HOUR);
        assert_eq!(date(105 * DAY), 110 * DAY);
        assert_eq!(date(120 * DAY), 120 * DAY);
        assert_eq!(date(300 * DAY), 300 * DAY);
    }

    #[test]
    fn extreme_numbers_of_a_ledger_do_not_overflow() {
        let far = DateTime::<chrono::Utc>::MAX_UTC.fixed_offset();
        let early = DateTime::<chrono::Utc>::MIN_UTC.fixed_offset();
        let mut dates = RecordDates::new(far);
        let mut places = Vec::new();
        for (seq, time) in [(1, early), (2, far), (3, early), (4, far), (5, early)] {
            for seconds in [u64::MAX, 0, i64::MAX as u64 / 1000] {
                let id = "a".to_string();
                places.push(dates.add(seq, time, Some(&BootTime { id, seconds })));
            }
        }
        for place in places {
            let _ = dates.date(place);
        }
        for time in [early, time(0), far] {
            let _ = dates.date_unrecorded(time);
        }
    }

    /// What happens to a machine whose clock is never ahead.
    #[derive(Clone, Debug)]
    enum Event {
        /// A run, after so long.
        Run(i64),
        /// The clock is set right, after so long.
        Set(i64),
        /// The machine starts after so long without power, and its clock with the last time of day
        /// that it had, or with the right one.
        Start { off: i64, is_right: bool },
    }

    fn event() -> impl Strategy<Value = Event> {
        let pause = || prop_oneof![0..DAY, 0..(60 * DAY)];
        prop_oneof![
            4 => pause().prop_map(Event::Run),
            1 => pause().prop_map(Event::Set),
            2 => (pause(), any::<bool>()).prop_map(|(off, is_right)| Event::Start { off, is_right }),
        ]
    }

    proptest! {
        #[test]
        fn no_record_is_taken_for_older_than_it_is(
            lag in 0..(400 * DAY),
            events in prop::collection::vec(event(), 1..40),
        ) {
            let (mut now, mut lag, mut started, mut boots) = (lag, lag, 0, 0);
            let mut records: Vec<(String, i64, i64)> = Vec::new();
            let mut written = Vec::new();
            for event in events {
                match event {
                    Event::Run(after) => {
                        now += after;
                        records.push((boots.to_string(), now - started, now - lag));
                        written.push(now);
                    }
                    Event::Set(after) => {
                        now += after;
                        lag = 0;
                    }
                    Event::Start { off, is_right } => {
                        lag = if is_right { 0 } else { lag + off };
                        now += off;
                        started = now;
                        boots += 1;
                    }
                }
                let said: Vec<_> = records
                    .iter()
                    .map(|(id, since, said)| (id.as_str(), *since, *said))
                    .collect();
                let (mut dates, places) = dates_of(now - lag, &said);
                let present = boot(&boots.to_string(), now - started);
                dates.add_present(Some(&present));
                for (place, written) in places.iter().zip(&written) {
                    let age = time(now - lag) - dates.date(*place);
                    prop_assert!(age.num_seconds() <= now - written + HOUR);
                }
            }
        }
    }
}
