//! The clock, passed in: only [`SystemClock`] reads the time of the machine, so tests use clocks of
//! their own.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, FixedOffset, Local, Offset, TimeZone, Utc};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::base::moment::Zone;

/// Source of the times that the engine uses.
pub trait Clock: Send + Sync {
    /// Returns the local time with its UTC offset.
    fn now(&self) -> DateTime<FixedOffset>;
    /// Returns the zone of the operator, with the offset of each instant; by default, the present
    /// offset is that of all instants.
    fn zone(&self) -> Zone {
        Zone::Fixed(*self.now().offset())
    }
    /// Returns a monotonic time, for durations and deadlines.
    fn instant(&self) -> Instant;
    /// Returns the time since the machine started, also while it was suspended, which setting the
    /// clock does not change; `None` where that is unknown.
    fn boot_time(&self) -> Option<BootTime> {
        None
    }
    /// Returns the processor time that this thread has used; zero where that is unknown.
    fn thread_time(&self) -> Duration {
        Duration::ZERO
    }
    /// Waits for `duration`, for instance for a late writer to finish.
    fn sleep(&self, duration: Duration);
}

/// A time since the start of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootTime {
    /// Identifies the start: the first 16 digits of the kernel's random id.
    pub id: String,
    /// Seconds since then.
    pub seconds: u64,
}

/// The file with the id of the present boot.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Number of digits of a boot's id that are kept.
const BOOT_ID_DIGITS: usize = 16;

/// Returns the id of the present boot; none where the kernel does not tell it.
fn boot_id() -> Option<String> {
    static BOOT_ID: OnceLock<Option<String>> = OnceLock::new();
    let id = BOOT_ID.get_or_init(|| {
        let text = std::fs::read_to_string(BOOT_ID_PATH).ok()?;
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        digits.get(..BOOT_ID_DIGITS).map(str::to_string)
    });
    id.clone()
}

/// How far another clock may be ahead, of this machine or one with the same archive, and still count
/// as right.
pub const MAX_CLOCK_LEAD: chrono::Duration = chrono::Duration::minutes(1);

/// The last second since 1970 that is in the year 9999 in every time zone: names of entries and RFC
/// 3339 have four digits for the year.
const MAX_UNIX_SECONDS: u64 = 253_402_300_799 - 86_400;

/// Converts a duration since 1970 to a time. Times outside the years 1970 to 9999 become the
/// nearest one inside; `None` means a clock before 1970.
fn clamp_to_utc(since_epoch: Option<Duration>) -> DateTime<Utc> {
    let since = since_epoch
        .unwrap_or_default()
        .min(Duration::from_secs(MAX_UNIX_SECONDS));
    let time = DateTime::from_timestamp(since.as_secs() as i64, since.subsec_nanos());
    time.unwrap_or_default()
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<FixedOffset> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        self.zone().at(clamp_to_utc(since))
    }

    fn zone(&self) -> Zone {
        Zone::Changing(|utc| Local.offset_from_utc_datetime(&utc).fix())
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn boot_time(&self) -> Option<BootTime> {
        let since = clock_gettime(ClockId::Boottime);
        Some(BootTime {
            id: boot_id()?,
            seconds: u64::try_from(since.tv_sec).ok()?,
        })
    }

    fn thread_time(&self) -> Duration {
        Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_clock_is_clamped_to_valid_year() {
        let shown = |seconds: Option<u64>| {
            let time = clamp_to_utc(seconds.map(Duration::from_secs));
            time.format("%Y-%m-%d").to_string()
        };
        assert_eq!(shown(None), "1970-01-01");
        assert_eq!(shown(Some(1_800_000_000)), "2027-01-15");
        for far in [MAX_UNIX_SECONDS + 1, 8_210_266_876_800, u64::MAX] {
            assert_eq!(shown(Some(far)), "9999-12-30");
        }
    }
}
