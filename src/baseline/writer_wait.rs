//! The wait for a process of this program that is changing baselines and their seal, which are several
//! files: while it does, they do not fit together.
//!
//! Such a process holds the lock of the seal, which the kernel releases however it ends. A lock hides
//! a change only for a bounded time, and only a lock counts that no other user can hold.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::seal::SEAL_LOCK_FILE_NAME;
use crate::archive::Archive;
use crate::base::clock::Clock;
use crate::base::durable;
use crate::base::sys::{self, LockConflict};

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

/// Whether a process is changing baselines and seal.
enum Writer {
    Absent,
    Present,
    /// This user may not know.
    Unknown,
}

impl WriterWait {
    /// Waits while a process is changing baselines and seal; false if it still is when the time is
    /// over.
    pub(super) fn wait_for_writer(&mut self, archive: &Archive, clock: &dyn Clock) -> bool {
        let path = archive.program_path("locks").join(SEAL_LOCK_FILE_NAME);
        let lock = durable::open_own_file(&path, OpenOptions::new().read(true));
        loop {
            let timeout = match find_writer(&lock) {
                Writer::Absent => {
                    self.end = None;
                    return true;
                }
                Writer::Present => WRITER_TIMEOUT,
                Writer::Unknown => UNKNOWN_WRITER_TIMEOUT,
            };
            let now = clock.instant();
            if now >= *self.end.get_or_insert(now + timeout) {
                return lock.is_err();
            }
            clock.sleep(POLL_INTERVAL);
        }
    }
}

/// Finds the holder of a lock without taking it. A lock that other users may open says nothing: one
/// of them could hold it for ever.
fn find_writer(lock: &io::Result<File>) -> Writer {
    let file = match lock {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Writer::Unknown,
        Err(_) => return Writer::Absent,
        Ok(file) => file,
    };
    let is_private = file.metadata().is_ok_and(|it| it.mode() & 0o077 == 0);
    match sys::lock_conflict(file.as_fd()) {
        Ok(Some(LockConflict::Exclusive)) if is_private => Writer::Present,
        _ => Writer::Absent,
    }
}
