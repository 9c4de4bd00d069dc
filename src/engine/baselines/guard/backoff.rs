//! Pauses between the failed attempts of the guard at the same file, each twice as long as the one
//! before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::base::error::Error;

/// Pauses by the names of files.
#[derive(Debug)]
pub(in crate::engine) struct Backoff {
    first: Duration,
    longest: Duration,
    pauses: HashMap<String, Pause>,
}

/// The pause after a failed attempt, and its error.
#[derive(Debug)]
struct Pause {
    end: Instant,
    length: Duration,
    error: Error,
}

impl Backoff {
    pub(in crate::engine) fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff {
            first,
            longest,
            pauses: HashMap::new(),
        }
    }

    /// Returns the error of the last attempt while the pause after it lasts.
    pub(super) fn paused_after(&self, name: &str, now: Instant) -> Option<&Error> {
        let pause = self.pauses.get(name)?;
        (now < pause.end).then_some(&pause.error)
    }

    /// Begins the pause after a failed attempt, and returns its error, which `describe` makes from the
    /// length of the pause.
    pub(super) fn pause_after(
        &mut self,
        name: &str,
        now: Instant,
        describe: impl FnOnce(Duration) -> Error,
    ) -> &Error {
        let last = self.pauses.get(name);
        let length = last.map_or(self.first, |last| (last.length * 2).min(self.longest));
        let end = now + length;
        let pause = Pause {
            end,
            length,
            error: describe(length),
        };
        let paused = self.pauses.entry(name.to_string()).insert_entry(pause);
        &paused.into_mut().error
    }

    /// Makes the next pause a short one.
    pub(super) fn forget(&mut self, name: &str) {
        self.pauses.remove(name);
    }
}
