//! Pauses between the attempts of the guard at the same file, each twice as long as the one before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Pauses by the names of files.
#[derive(Debug)]
pub(in crate::engine) struct Backoff<T> {
    first: Duration,
    longest: Duration,
    pauses: HashMap<String, Pause<T>>,
}

/// The pause after an attempt, and what came of that.
#[derive(Debug)]
struct Pause<T> {
    end: Instant,
    length: Duration,
    outcome: T,
}

impl<T> Backoff<T> {
    pub(in crate::engine) fn new(first: Duration, longest: Duration) -> Backoff<T> {
        Backoff {
            first,
            longest,
            pauses: HashMap::new(),
        }
    }

    /// Returns the outcome of the last attempt while the pause after it lasts.
    pub(super) fn paused_after(&self, name: &str, now: Instant) -> Option<&T> {
        let pause = self.pauses.get(name)?;
        (now < pause.end).then_some(&pause.outcome)
    }

    /// Begins the pause after an attempt, and returns its outcome, which is given the length of the
    /// pause.
    pub(super) fn pause_after(
        &mut self,
        name: &str,
        now: Instant,
        outcome: impl FnOnce(Duration) -> T,
    ) -> &T {
        let last = self.pauses.get(name);
        let length = last.map_or(self.first, |last| (last.length * 2).min(self.longest));
        let end = now + length;
        let pause = Pause {
            end,
            length,
            outcome: outcome(length),
        };
        let paused = self.pauses.entry(name.to_string()).insert_entry(pause);
        &paused.into_mut().outcome
    }

    /// Makes the next pause a short one.
    pub(super) fn forget(&mut self, name: &str) {
        self.pauses.remove(name);
    }
}
