//! The lock under which a process appends to a ledger or replaces its active file.
//!
//! The lock is on a file of its own, `.ledger.lock`, because the active file may be replaced. Versions
//! without that file lock the active file itself, and so does this one, beside its own lock: a
//! process of such a version waits, and then finds a chain that it cannot continue.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::archive::{Archive, PROGRAM_DIRECTORY_NAME};
use crate::base::clock::Clock;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::sys::{self, LockConflict};
use crate::store::lock;
use crate::store::semaphore::Permit;

/// Name of the active file in the program's own directory.
pub(super) const LEDGER_FILE_NAME: &str = "ledger.jsonl";

/// How long a process of an earlier version may keep the ledger locked.
const OLD_VERSION_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How many times the active file is opened because it was replaced before it was locked.
const MAX_OPEN_ATTEMPTS: usize = 16;

/// The active file, open for appending, while no other process appends to it or replaces it. Dropping
/// it ends that.
pub struct LockedLedger {
    file: Arc<File>,
    directory: Arc<OwnedFd>,
    _permit: Permit,
}

impl Drop for LockedLedger {
    fn drop(&mut self) {
        // A close alone may leave the lock in place: see `AgentLock`.
        sys::unlock(self.file.as_fd());
    }
}

impl LockedLedger {
    /// Opens and locks the ledger of `archive`. It waits for other processes and threads, so the
    /// caller should hold no lock that others wait for.
    ///
    /// # Errors
    /// The system's error, or other runs that keep the ledger locked for longer than a minute.
    pub fn lock(archive: &Archive, clock: &dyn Clock) -> Result<LockedLedger> {
        let directory = open_program_directory(archive)?;
        let permit = lock::lock_ledger(archive, clock)?;
        LockedLedger::new(archive, directory, permit, clock)
    }

    /// Locks the ledger as [`LockedLedger::lock`] does; none if another process has the lock or
    /// waits for it.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_lock(archive: &Archive, clock: &dyn Clock) -> Result<Option<LockedLedger>> {
        let directory = open_program_directory(archive)?;
        let permit = lock::try_lock_ledger(archive, clock)?;
        let locked = permit.map(|permit| LockedLedger::new(archive, directory, permit, clock));
        locked.transpose()
    }

    fn new(
        archive: &Archive,
        directory: Arc<OwnedFd>,
        permit: Permit,
        clock: &dyn Clock,
    ) -> Result<LockedLedger> {
        let path = archive.program_path(LEDGER_FILE_NAME);
        let mut locked = LockedLedger {
            file: Arc::new(open_for_append(archive)?),
            directory,
            _permit: permit,
        };
        // Every process that replaces the file has the permit. A file that was replaced all the same
        // would lose the record.
        for _ in 0..MAX_OPEN_ATTEMPTS {
            lock_out_old_versions(&locked.file, &path, clock)?;
            if lock::is_still_at(&locked.file, &path) {
                return Ok(locked);
            }
            sys::unlock(locked.file.as_fd());
            locked.file = Arc::new(open_for_append(archive)?);
        }
        let message = format!(
            "{} was replaced {MAX_OPEN_ATTEMPTS} times before it could be locked",
            path.display()
        );
        Err(Error::new(ErrorKind::Busy, message))
    }

    /// The active file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// The directory of the ledger's files.
    pub fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }
}

fn open_program_directory(archive: &Archive) -> Result<Arc<OwnedFd>> {
    let directory = archive.open_or_create_directory(Path::new(PROGRAM_DIRECTORY_NAME))?;
    Ok(Arc::new(directory))
}

/// Opens the active file of `archive` for an append: success means that a record can most likely be
/// written.
///
/// # Errors
/// The system's error.
pub fn open_for_append(archive: &Archive) -> Result<File> {
    archive.open_or_create_directory(Path::new(PROGRAM_DIRECTORY_NAME))?;
    let path = archive.program_path(LEDGER_FILE_NAME);
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    options.mode(archive.file_mode().as_raw_mode());
    let file = durable::open_own_file(&path, &mut options).with_path("open the ledger", &path)?;
    archive.repair_program_file(&file, &path)?;
    Ok(file)
}

/// Waits for versions that have no lock file for the ledger and lock the ledger itself, and locks
/// them out. No version takes a shared lock, but every reader of the ledger can: a shared lock is
/// not waited for.
fn lock_out_old_versions(file: &File, path: &Path, clock: &dyn Clock) -> Result<()> {
    let end = clock.instant() + OLD_VERSION_LOCK_TIMEOUT;
    while !sys::try_lock(file.as_fd()).with_path("lock", path)? {
        if sys::lock_conflict(file.as_fd()).with_path("lock", path)? == Some(LockConflict::Shared) {
            return Ok(());
        }
        if clock.instant() >= end {
            let message = format!("{} stays locked by another process", path.display());
            return Err(Error::new(ErrorKind::Busy, message));
        }
        clock.sleep(Duration::from_millis(2));
    }
    Ok(())
}
