//! A file that a new one has displaced, under its random name: read once no program writes to it,
//! then removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::split_path;
use crate::base::clock::Clock;
use crate::base::durable::{open_directory_errno, read_at_most};
use crate::base::error::{PathContext, Result};
use crate::base::sys::{self, LeaseOutcome};

/// How long a writer may keep a displaced file open.
const WRITER_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which the wait for it looks again.
const WRITER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a file has to keep its size and times where writers cannot be noticed.
const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// What stood at the path, under a random name in the same directory.
pub struct DisplacedFile {
    directory: Arc<OwnedFd>,
    path: PathBuf,
    name: OsString,
    /// Holds the lease on it, if one was granted.
    leased: Option<File>,
}

impl DisplacedFile {
    /// Finds what a killed process has left at a path; none if there is nothing.
    ///
    /// # Errors
    /// The system's error.
    pub fn find(path: &Path) -> Result<Option<DisplacedFile>> {
        let (parent, name) = split_path(path)?;
        let directory = match open_directory_errno(parent) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(None),
            directory => directory.with_path("open the directory", parent)?,
        };
        match fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => stat
                .with_path("stat", path)
                .map(|_| Some(DisplacedFile::new(Arc::new(directory), path, name))),
        }
    }

    /// `name` is the last component of `path`, in `directory`.
    pub(super) fn new(directory: Arc<OwnedFd>, path: &Path, name: &OsStr) -> DisplacedFile {
        DisplacedFile {
            directory,
            path: path.to_path_buf(),
            name: name.to_os_string(),
            leased: None,
        }
    }

    /// Path of its random name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it as it is now; none if it is not a regular file of at most `max_bytes` bytes that this
    /// process may read.
    pub fn read_now(&self, max_bytes: u64) -> Option<Vec<u8>> {
        read_at_most(self.open().ok()??, max_bytes).ok()
    }

    /// Reads it once no process has it open for writing; from then on, none can open it so until it is
    /// removed. None if it is not a regular file of at most `max_bytes` bytes that this process may
    /// read, or if a writer keeps it open for two seconds or has a lease on it. Where this process
    /// may not take leases, it has to stay unchanged for a moment.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_settled(&mut self, max_bytes: u64, clock: &dyn Clock) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open().with_path("read", &self.path)? else {
            return Ok(None);
        };
        let read = read_without_writers(&file, max_bytes, clock);
        let Some(settled) = read.with_path("read", &self.path)? else {
            return Ok(None);
        };
        self.leased = settled.is_leased.then_some(file);
        Ok(Some(settled.bytes))
    }

    /// Removes it and syncs the directory, so that the caller can forget its name. The caller keeps
    /// its bytes elsewhere. Returns the content that a program has written since it was read, if one
    /// opened the file in the instant of its removal.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(self, max_bytes: u64, clock: &dyn Clock) -> Result<Option<Vec<u8>>> {
        fs::unlinkat(&self.directory, &self.name, AtFlags::empty())
            .with_path("remove", &self.path)?;
        fs::fsync(&self.directory).with_path("sync the directory of", &self.path)?;
        match self.leased {
            Some(file) if !sys::is_read_lease_unbroken(file.as_fd()) => {
                sys::release_lease(file.as_fd());
                let late = read_without_writers(&file, max_bytes, clock);
                let late = late.with_path("read", &self.path)?;
                Ok(late.map(|settled| settled.bytes))
            }
            _ => Ok(None),
        }
    }

    /// Removes it and syncs the directory; the caller needs no bytes of it. Another process may have
    /// removed it as a leftover.
    ///
    /// # Errors
    /// The system's error.
    pub fn discard(self) -> Result<()> {
        match fs::unlinkat(&self.directory, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).with_path("remove", &self.path),
        }
        fs::fsync(&self.directory).with_path("sync the directory of", &self.path)
    }

    /// Opens it for reading; none if that is not possible or it is not a regular file.
    fn open(&self) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&self.directory, &self.name, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NXIO | Errno::AGAIN | Errno::ACCESS | Errno::PERM) => {
                return Ok(None);
            }
            file => File::from(file?),
        };
        let is_file = file.metadata()?.is_file();
        Ok(is_file.then_some(file))
    }
}

/// The content of a file that no process writes to.
struct SettledContent {
    bytes: Vec<u8>,
    /// Whether a lease keeps writers away from now on.
    is_leased: bool,
}

/// Reads a file from its beginning while no process has it open for writing. None if it is too large,
/// or if writers do not leave it in time.
fn read_without_writers(
    file: &File,
    max_bytes: u64,
    clock: &dyn Clock,
) -> io::Result<Option<SettledContent>> {
    let end = clock.instant() + WRITER_TIMEOUT;
    let mut quiet_since = clock.instant();
    let mut seen = None;
    loop {
        let lease = sys::take_read_lease(file.as_fd());
        if lease == LeaseOutcome::Unavailable {
            let metadata = file.metadata()?;
            let state = Some((metadata.len(), metadata.modified()?));
            if state != seen {
                seen = state;
                quiet_since = clock.instant();
            }
        }
        let is_leased = lease == LeaseOutcome::Granted;
        let quiet_time = clock.instant().saturating_duration_since(quiet_since);
        let is_quiet = seen.is_some() && quiet_time >= QUIET_PERIOD;
        if is_leased || is_quiet {
            let mut copy = file.try_clone()?;
            copy.rewind()?;
            let bytes = match read_at_most(copy, max_bytes) {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(None),
                bytes => bytes?,
            };
            if !is_leased || sys::is_read_lease_unbroken(file.as_fd()) {
                return Ok(Some(SettledContent { bytes, is_leased }));
            }
            // The writer that waits for the lease goes first.
            sys::release_lease(file.as_fd());
        }
        if clock.instant() >= end {
            return Ok(None);
        }
        clock.sleep(WRITER_POLL_INTERVAL);
    }
}
