//! The lock under which a process appends to a ledger or replaces its active file.
//!
//! The lock is on a file of its own, `.ledger.lock`, because the active file may be replaced.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::archive::{Archive, PROGRAM_DIRECTORY_NAME};
use crate::base::clock::Clock;
use crate::base::durable;
use crate::base::error::{PathContext, Result};
use crate::store::file::lock::ArchiveLock;
use crate::store::file::semaphore::Permit;

/// Name of the active file in the program's own directory.
pub(super) const LEDGER_FILE_NAME: &str = "ledger.jsonl";

/// The active file, open for appending, while no other process appends to it or replaces it. Dropping
/// it ends that.
pub struct LockedLedger {
    file: Arc<File>,
    directory: Arc<OwnedFd>,
    _permit: Permit,
}

impl LockedLedger {
    /// Opens and locks the ledger of `archive`. It waits for other processes and threads, so the
    /// caller should hold no lock that others wait for.
    ///
    /// # Errors
    /// The system's error, or other runs that keep the ledger locked for longer than a minute.
    pub fn lock(archive: &Archive, clock: &dyn Clock) -> Result<LockedLedger> {
        let directory = open_program_directory(archive)?;
        let permit = ArchiveLock::Ledger.acquire(archive, clock)?;
        LockedLedger::new(archive, directory, permit)
    }

    /// Locks the ledger as [`LockedLedger::lock`] does; none if another process has the lock or
    /// waits for it.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_lock(archive: &Archive, clock: &dyn Clock) -> Result<Option<LockedLedger>> {
        let directory = open_program_directory(archive)?;
        let permit = ArchiveLock::Ledger.try_acquire(archive, clock)?;
        let locked = permit.map(|permit| LockedLedger::new(archive, directory, permit));
        locked.transpose()
    }

    fn new(archive: &Archive, directory: Arc<OwnedFd>, permit: Permit) -> Result<LockedLedger> {
        // Every process that replaces the file has the permit.
        Ok(LockedLedger {
            file: Arc::new(open_for_append(archive)?),
            directory,
            _permit: permit,
        })
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
    options.mode(archive.permissions().file_mode().as_raw_mode());
    let file = durable::open_own_file(&path, &mut options).with_path("open the ledger", &path)?;
    archive.permissions().repair_own_file(&file, &path)?;
    Ok(file)
}
