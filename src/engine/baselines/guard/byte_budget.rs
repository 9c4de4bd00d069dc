//! A number of bytes that may be written within a time.

use std::time::{Duration, Instant};

/// A number of bytes that may be written within a time, which begins with the first of them.
#[derive(Debug)]
pub(in crate::engine) struct ByteBudget {
    max_bytes: u64,
    time: Duration,
    taken: u64,
    begin: Option<Instant>,
}

impl ByteBudget {
    pub(in crate::engine) fn new(max_bytes: u64, time: Duration) -> ByteBudget {
        ByteBudget {
            max_bytes,
            time,
            taken: 0,
            begin: None,
        }
    }

    /// Takes bytes of the budget; nothing, and `false`, if they exceed it.
    pub(super) fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let is_over = |begin| now.saturating_duration_since(begin) >= self.time;
        if self.begin.is_none_or(is_over) {
            self.begin = Some(now);
            self.taken = 0;
        }
        let taken = self.taken.saturating_add(bytes);
        let fits = taken <= self.max_bytes;
        if fits {
            self.taken = taken;
        }
        fits
    }
}
