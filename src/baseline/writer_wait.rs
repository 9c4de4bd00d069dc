//! The wait for a process of this program that is changing baselines and their seal, which are several
//! files: while it does, they do not fit together.
//!
//! Such a process holds the lock of the seal, which the kernel releases however it ends. A lock hides
//! a change only for a bounded time, and only a lock counts that no other user can hold.

use std::time::{Duration, Instant};

use crate::archive::Archive;
use crate::base::clock::Clock;
use crate::store::file::lock::{self, LockUse};

/// How often files are read again that keep changing.
pub(super) const MAX_SETTLED_READS: usize = 5;

/// How long a process that changes baselines and seal is waited for.
const WRITER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a change may take that cannot be waited for, because this user may not open the lock.
const UNKNOWN_WRITER_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval at which the wait looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time that several reads together may wait for changes.
#[derive(Debug, Default)]
pub struct WriterWait {
    /// Set at the first need; none again once no process is changing anything.
    end: Option<Instant>,
}

impl WriterWait {
    /// Waits while a process is changing baselines and seal; false if it still is when the time is
    /// over.
    pub(super) fn wait_for_writer(&mut self, archive: &Archive, clock: &dyn Clock) -> bool {
        loop {
            let writer = lock::find_seal_writer(archive);
            let timeout = match writer {
                LockUse::Free => {
                    self.end = None;
                    return true;
                }
                LockUse::Held => WRITER_TIMEOUT,
                LockUse::Unknown => UNKNOWN_WRITER_TIMEOUT,
            };
            let now = clock.instant();
            if now >= *self.end.get_or_insert(now + timeout) {
                return writer == LockUse::Unknown;
            }
            clock.sleep(POLL_INTERVAL);
        }
    }
}
