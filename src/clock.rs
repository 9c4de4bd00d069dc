//! Time, passed in: nothing but [`System`] reads the machine's clock, so that
//! tests own theirs.

use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset, Local};

/// Where the engine gets its times from.
pub trait Clock: Send + Sync {
    /// The local time, with its offset.
    fn now(&self) -> DateTime<FixedOffset>;
    /// A time that only moves forward, for durations and deadlines.
    fn instant(&self) -> Instant;
    /// Waits, for instance for a late writer to finish.
    fn sleep(&self, duration: Duration);
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Clock for System {
    fn now(&self) -> DateTime<FixedOffset> {
        Local::now().fixed_offset()
    }

    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}
