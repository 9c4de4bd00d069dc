//! Steps of clocks, as the records of a ledger show them.
//!
//! A record has the boot in which it was written, and the time since that boot, which no one sets.
//! Where the time of day moves by over an hour against it within a boot, the clock was set: the
//! records of that boot before the step have another time of day than they say, by the size of the
//! step. A board without a battery writes such records until it has asked for the time.
//!
//! A record of another boot may be of the same wrong clock. What is known of it is its order: it is
//! not newer than the first record behind it whose time a step corrects or confirms.

use chrono::{DateTime, Duration, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::clock::BootTime;
use crate::engine::record::LedgerRecord;

/// By how much the time of day moves within a boot where the clock was set. Less is a drift that
/// matters to nothing that is counted in days.
const MIN_STEP_SECONDS: i64 = 3600;

/// The most boots with a step, and the most steps of each. Older ones are about records far beyond
/// any retention time.
const MAX_STEPPED_BOOTS: usize = 64;
const MAX_STEPS: usize = 16;

/// The most boots without a step: those of the machines that write now.
const MAX_STEADY_BOOTS: usize = 16;

/// Number of a record that is behind every other: the present time.
const PRESENT_SEQ: u64 = u64::MAX;

/// The clocks of the boots in which records were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSteps(Vec<BootClock>);

/// The clock of a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BootClock {
    boot: String,
    /// Number and time of the first record.
    first: (u64, DateTime<FixedOffset>),
    /// The time of day when the machine started, in seconds since 1970, by the clock as it is after
    /// the last step.
    started: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    steps: Vec<ClockStep>,
}

/// A step of a clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClockStep {
    /// Number and time of the first record behind it.
    seq: u64,
    time: DateTime<FixedOffset>,
    /// How far the time of day moved.
    seconds: i64,
}

impl BootClock {
    /// Returns how far the clock was moved since a record of this boot, after each step.
    fn moves_since(&self, seq: u64) -> impl Iterator<Item = i64> {
        let later = self.steps.iter().filter(move |step| step.seq > seq);
        later.scan(0_i64, |sum, step| {
            *sum = sum.saturating_add(step.seconds);
            Some(*sum)
        })
    }

    /// Returns the latest time that is not in the future of a record of this boot.
    fn date(
        &self,
        seq: u64,
        time: DateTime<FixedOffset>,
        now: DateTime<FixedOffset>,
    ) -> DateTime<FixedOffset> {
        let moved = self.moves_since(seq).filter_map(|it| moved_by(time, it));
        moved
            .filter(|it| *it <= now)
            .fold(time, |latest, it| latest.max(it))
    }

    /// Returns the numbers and times of the records whose time a step corrects or confirms.
    fn known_records(
        &self,
        now: DateTime<FixedOffset>,
    ) -> impl Iterator<Item = (u64, DateTime<FixedOffset>)> {
        let (seq, time) = self.first;
        let first = (seq, self.date(seq, time, now));
        let steps = self.steps.iter().map(|step| (step.seq, step.time));
        let is_stepped = !self.steps.is_empty();
        std::iter::once(first)
            .chain(steps)
            .filter(move |_| is_stepped)
    }

    fn add_step(&mut self, step: ClockStep) {
        self.started = self.started.saturating_add(step.seconds);
        self.steps.push(step);
        if self.steps.len() > MAX_STEPS {
            let oldest = self.steps.remove(0);
            let merged = &mut self.steps[0].seconds;
            *merged = merged.saturating_add(oldest.seconds);
        }
    }
}

impl ClockSteps {
    /// Adds the next record.
    pub fn add(&mut self, seq: u64, time: DateTime<FixedOffset>, boot: &BootTime) {
        let since = i64::try_from(boot.seconds).unwrap_or(i64::MAX);
        let started = time.timestamp().saturating_sub(since);
        match self.0.iter_mut().find(|it| it.boot == boot.id) {
            Some(clock) => {
                let seconds = started.saturating_sub(clock.started);
                if seconds.saturating_abs() > MIN_STEP_SECONDS {
                    clock.add_step(ClockStep { seq, time, seconds });
                }
            }
            None => {
                self.0.push(BootClock {
                    boot: boot.id.clone(),
                    first: (seq, time),
                    started,
                    steps: Vec::new(),
                });
                self.drop_oldest(|clock| clock.steps.is_empty(), MAX_STEADY_BOOTS);
                self.drop_oldest(|clock| !clock.steps.is_empty(), MAX_STEPPED_BOOTS);
            }
        }
    }

    /// Returns the steps with that which the present time shows, if it shows one.
    #[must_use]
    pub fn with_present(
        mut self,
        now: DateTime<FixedOffset>,
        boot: Option<&BootTime>,
    ) -> ClockSteps {
        if let Some(boot) = boot {
            self.add(PRESENT_SEQ, now, boot);
        }
        self
    }

    /// Returns the latest time at which a record may have been written, and never an earlier one
    /// than it says.
    pub fn date_record(
        &self,
        record: &LedgerRecord,
        now: DateTime<FixedOffset>,
    ) -> DateTime<FixedOffset> {
        let (seq, time) = (record.seq, record.time);
        let boot = record.boot.as_ref();
        let own = boot.and_then(|boot| self.0.iter().find(|clock| clock.boot == boot.id));
        if let Some(clock) = own.filter(|clock| !clock.steps.is_empty()) {
            return clock.date(seq, time, now);
        }
        let known = self.0.iter().flat_map(|clock| clock.known_records(now));
        let next = known
            .filter(|(known, _)| *known > seq)
            .min_by_key(|(known, _)| *known);
        match next {
            Some((_, limit)) if limit <= now => time.max(limit),
            _ => time,
        }
    }

    /// Returns the latest time at which a file may have been written that no record names and that
    /// says `time`: before each step, a clock said such times.
    pub fn date_unrecorded(
        &self,
        time: DateTime<FixedOffset>,
        now: DateTime<FixedOffset>,
    ) -> DateTime<FixedOffset> {
        let said = |clock: &BootClock| {
            let moves = clock.steps.iter().map(|step| step.seconds);
            let mut started = moves.fold(clock.started, i64::saturating_sub);
            let mut latest = time;
            for step in &clock.steps {
                let end = step.time.timestamp().saturating_sub(step.seconds);
                // Names of entries have no seconds.
                let said = started.saturating_sub(60)..=end.saturating_add(60);
                if said.contains(&time.timestamp()) {
                    latest = latest.max(clock.date(step.seq.saturating_sub(1), time, now));
                }
                started = started.saturating_add(step.seconds);
            }
            latest
        };
        self.0
            .iter()
            .map(said)
            .fold(time, |latest, it| latest.max(it))
    }

    /// Drops the oldest clocks of a kind beyond a number.
    fn drop_oldest(&mut self, is_of_kind: impl Fn(&BootClock) -> bool, most: usize) {
        let count = self.0.iter().filter(|it| is_of_kind(it)).count();
        let mut excess = count.saturating_sub(most);
        self.0.retain(|clock| {
            let is_dropped = excess > 0 && is_of_kind(clock);
            excess -= usize::from(is_dropped);
            !is_dropped
        });
    }
}

/// Returns a time that many seconds later; none beyond all times.
fn moved_by(time: DateTime<FixedOffset>, seconds: i64) -> Option<DateTime<FixedOffset>> {
    time.checked_add_signed(Duration::try_seconds(seconds)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn time(seconds: i64) -> DateTime<FixedOffset> {
        let time = DateTime::from_timestamp(2_000_000_000 + seconds, 0).unwrap();
        time.fixed_offset()
    }

    /// Adds a record of a boot, with its time of day and its time since the boot.
    fn add(steps: &mut ClockSteps, seq: u64, id: &str, said: i64, since: u64) {
        let boot = BootTime {
            id: id.to_string(),
            seconds: since,
        };
        steps.add(seq, time(said), &boot);
    }

    #[test]
    fn drift_of_less_than_an_hour_is_no_step() {
        let mut steps = ClockSteps::default();
        add(&mut steps, 1, "a", 0, 0);
        add(&mut steps, 2, "a", 3600 + 10, 10);
        assert!(steps.0[0].steps.is_empty());
        // Several small ones add up.
        add(&mut steps, 3, "a", 3600 + 30, 20);
        assert_eq!(steps.0[0].steps.len(), 1);
    }

    #[test]
    fn clock_that_was_ahead_for_a_while_dates_nothing_later() {
        let mut steps = ClockSteps::default();
        add(&mut steps, 1, "a", 0, 0);
        add(&mut steps, 2, "a", 4000 * DAY, 60);
        add(&mut steps, 3, "a", 120, 120);
        let clock = &steps.0[0];
        assert_eq!(clock.steps.len(), 2);
        assert_eq!(clock.date(1, time(0), time(DAY)), time(0));
    }

    #[test]
    fn present_time_shows_a_step_before_a_record_does() {
        let mut steps = ClockSteps::default();
        add(&mut steps, 1, "a", 0, 0);
        let now = time(40 * DAY);
        let boot = BootTime {
            id: "a".to_string(),
            seconds: 60,
        };
        assert_eq!(steps.0[0].date(1, time(0), now), time(0));
        let steps = steps.with_present(now, Some(&boot));
        assert_eq!(steps.0[0].date(1, time(0), now), time(40 * DAY - 60));
    }

    #[test]
    fn number_of_remembered_clocks_is_bounded() {
        let mut steps = ClockSteps::default();
        for boot in 0..200 {
            let id = format!("{boot:016x}");
            add(&mut steps, 3 * boot + 1, &id, 0, 0);
            if boot % 2 == 0 {
                for step in 0..30 {
                    add(&mut steps, 3 * boot + 2, &id, step * DAY, 60);
                }
            }
        }
        assert!(steps.0.len() <= MAX_STEADY_BOOTS + MAX_STEPPED_BOOTS);
        let stepped = steps.0.iter().find(|it| !it.steps.is_empty()).unwrap();
        assert_eq!(stepped.steps.len(), MAX_STEPS);
        let all: i64 = stepped.steps.iter().map(|it| it.seconds).sum();
        assert_eq!(all, 29 * DAY - 60);
    }

    #[test]
    fn extreme_numbers_of_a_ledger_do_not_overflow() {
        let mut steps = ClockSteps::default();
        let far = DateTime::<chrono::Utc>::MAX_UTC.fixed_offset();
        for (seq, since) in [(1, u64::MAX), (2, 0), (3, u64::MAX), (4, 1)] {
            let id = "a".to_string();
            steps.add(seq, far, &BootTime { id, seconds: since });
        }
        assert_eq!(steps.0[0].date(1, time(0), far), time(0));
        assert_eq!(steps.date_unrecorded(time(0), far), time(0));
    }
}
