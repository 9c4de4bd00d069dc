//! Semaphores shared by processes: permits are locks on the first bytes of a file, granted in the
//! order of arrival.
//!
//! A waiter locks one of the bytes behind the permits, the one of the microsecond of its arrival,
//! and acquires a permit when no waiter is ahead of it. The kernel releases the locks of a process
//! however it ends. Where the clock is set back, or where a stopped waiter leaves a permit free,
//! later waiters overtake earlier ones; the number of permits holds in any case.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::{PathContext, Result};
use crate::base::sys;

/// Interval at which the first waiter tries to acquire a permit.
const FIRST_WAITER_INTERVAL: Duration = Duration::from_millis(1);

/// Interval at which the other waiters check whether they are the first.
const QUEUED_WAITER_INTERVAL: Duration = Duration::from_millis(10);

/// How long a permit may be free before a waiter overtakes those ahead of it.
const STOPPED_WAITER_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of waiters that arrive in the same microsecond.
const MAX_TICKETS: u64 = 10_000;

/// End of the range of bytes that are ever locked.
const TICKET_RANGE_END: u64 = i64::MAX as u64;

/// A permit of the semaphore; dropping it releases the permit.
#[derive(Debug)]
pub struct Permit {
    file: File,
}

impl Drop for Permit {
    fn drop(&mut self) {
        // A close is not enough: a child process that another thread is just starting has a copy of
        // the descriptor until it executes its program.
        sys::unlock(self.file.as_fd());
    }
}

/// Bounds of the wait for a permit.
pub struct WaitLimit<'a> {
    /// Source of all times.
    pub clock: &'a dyn Clock,
    /// Maximum wait.
    pub timeout: Duration,
    /// Ends the wait when it returns true.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

/// Waits for one of the permits of the semaphore in `file`; none when the wait ends without one.
/// `path` is for messages.
///
/// # Errors
/// The system's error.
pub fn acquire(
    file: File,
    path: &Path,
    permits: u64,
    wait: &WaitLimit<'_>,
) -> Result<Option<Permit>> {
    // Dropped early, it releases every lock of the file.
    let held = Permit { file };
    let file = held.file.as_fd();
    let end = wait.clock.instant() + wait.timeout;
    let mut ticket = None;
    let mut free_since = None;
    loop {
        let before = permits..ticket.unwrap_or(TICKET_RANGE_END);
        let is_first = sys::byte_lock_conflict(file, before)
            .with_path("lock", path)?
            .is_none();
        let now = wait.clock.instant();
        if is_first || !has_free_permit(&held.file, permits).with_path("lock", path)? {
            free_since = None;
        }
        let passes = !is_first && now >= *free_since.get_or_insert(now) + STOPPED_WAITER_TIMEOUT;
        if is_first || passes {
            for permit in 0..permits {
                if sys::try_lock_bytes(file, permit..permit + 1).with_path("lock", path)? {
                    if let Some(ticket) = ticket {
                        sys::unlock_bytes(file, ticket..ticket + 1);
                    }
                    return Ok(Some(held));
                }
            }
        }
        if ticket.is_none() {
            let now = wait.clock.now().timestamp_micros();
            let first = u64::try_from(now).unwrap_or_default().max(permits + 1);
            for free in first..first.saturating_add(MAX_TICKETS) {
                if sys::try_lock_bytes(file, free..free + 1).with_path("lock", path)? {
                    ticket = Some(free);
                    break;
                }
            }
        }
        if now >= end || (wait.is_cancelled)() {
            return Ok(None);
        }
        wait.clock.sleep(if is_first {
            FIRST_WAITER_INTERVAL
        } else {
            QUEUED_WAITER_INTERVAL
        });
    }
}

/// Takes all permits at once, without waiting; none if another process has one or waits for one.
///
/// # Errors
/// The system's error.
pub fn try_acquire_all(file: File, path: &Path) -> Result<Option<Permit>> {
    let is_free = sys::try_lock(file.as_fd()).with_path("lock", path)?;
    Ok(is_free.then(|| Permit { file }))
}

fn has_free_permit(file: &File, permits: u64) -> std::io::Result<bool> {
    for permit in 0..permits {
        if sys::byte_lock_conflict(file.as_fd(), permit..permit + 1)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Instant;

    use chrono::{DateTime, FixedOffset};

    use super::*;
    use crate::base::clock::SystemClock;

    fn open(path: &Path) -> File {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.open(path).unwrap()
    }

    fn acquire_with_timeout(path: &Path, permits: u64, patience: u64) -> Option<Permit> {
        let wait = WaitLimit {
            clock: &SystemClock,
            timeout: Duration::from_secs(patience),
            is_cancelled: &|| false,
        };
        acquire(open(path), path, permits, &wait).unwrap()
    }

    /// Number of waiters.
    fn waiter_count(path: &Path, permits: u64) -> usize {
        fn within(file: &File, bytes: Range<u64>) -> usize {
            if bytes.is_empty() {
                return 0;
            }
            match sys::first_conflict_offset(file.as_fd(), bytes.clone()).unwrap() {
                None => 0,
                Some(at) => 1 + within(file, bytes.start..at) + within(file, at + 1..bytes.end),
            }
        }
        within(&open(path), permits..TICKET_RANGE_END)
    }

    #[test]
    fn permits_are_granted_in_order_of_arrival() {
        let directory = tempfile::tempdir().unwrap();
        let path = Arc::new(directory.path().join("lock"));
        let held = acquire_with_timeout(&path, 1, 0).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        for number in 0..12 {
            let (path, order) = (Arc::clone(&path), Arc::clone(&order));
            let waits = {
                let path = Arc::clone(&path);
                move || waiter_count(&path, 1) > number
            };
            threads.push(thread::spawn(move || {
                let permit = acquire_with_timeout(&path, 1, 60).unwrap();
                order.lock().unwrap().push(number);
                drop(permit);
            }));
            while !waits() {
                thread::yield_now();
            }
        }
        drop(held);
        threads.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(*order.lock().unwrap(), (0..12).collect::<Vec<usize>>());
    }

    /// A clock that only `sleep` advances.
    struct SleepingClock(Mutex<Instant>);

    impl Clock for SleepingClock {
        fn now(&self) -> DateTime<FixedOffset> {
            SystemClock.now()
        }

        fn instant(&self) -> Instant {
            *self.0.lock().unwrap()
        }

        fn sleep(&self, duration: Duration) {
            *self.0.lock().unwrap() += duration;
        }
    }

    #[test]
    fn stopped_waiter_delays_others_only_briefly() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        // A waiter that never acquires a permit.
        let stopped = open(&path);
        assert!(sys::try_lock_bytes(stopped.as_fd(), 7..8).unwrap());
        let clock = SleepingClock(Mutex::new(Instant::now()));
        let wait = |seconds| WaitLimit {
            clock: &clock,
            timeout: Duration::from_secs(seconds),
            is_cancelled: &|| false,
        };
        let permit = acquire(open(&path), &path, 1, &wait(60)).unwrap().unwrap();
        // A held permit is not overtaken.
        assert!(acquire(open(&path), &path, 1, &wait(60)).unwrap().is_none());
        drop(permit);
        assert!(acquire(open(&path), &path, 1, &wait(60)).unwrap().is_some());
    }

    #[test]
    fn held_permits_never_exceed_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let permit = acquire_with_timeout(&path, 3, 60).unwrap();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
    }

    #[test]
    fn canceled_wait_takes_no_permit_or_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = acquire_with_timeout(&path, 1, 0).unwrap();
        assert!(acquire_with_timeout(&path, 1, 0).is_none());
        assert_eq!(waiter_count(&path, 1), 0);
        let wait = WaitLimit {
            clock: &SystemClock,
            timeout: Duration::from_secs(3600),
            is_cancelled: &|| true,
        };
        assert!(acquire(open(&path), &path, 1, &wait).unwrap().is_none());
        drop(held);
        assert!(acquire_with_timeout(&path, 1, 0).is_some());
    }
}
