//! Probes of the kernel and of the archive's file system: tries operations that resets rely on, on
//! files that are removed at once.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Mode, OFlags};

use crate::base::durable;
use crate::base::error::{Error, Result};
use crate::base::sys::{self, LeaseOutcome};
use crate::engine::context::Context;

/// What the archive's file system supports for new files.
pub struct FileSupport {
    /// Files can be created without a name.
    pub has_unnamed_files: bool,
    /// A lease on a file is granted.
    pub has_leases: bool,
}

impl Context {
    /// Tries to create an unnamed file in the archive and to take a lease on it.
    ///
    /// # Errors
    /// No file can be created there.
    pub fn probe_new_file(&self) -> Result<FileSupport> {
        let directory = self.archive().root();
        let to_error = |error: std::io::Error| Error::from_io("try a file in", directory, &error);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let unnamed_file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR);
        let has_unnamed_files = unnamed_file.is_ok();
        // A file that needed a name is deleted already.
        let writable_file = match unnamed_file {
            Ok(file) => File::from(file),
            Err(_) => tempfile::tempfile_in(directory).map_err(to_error)?,
        };
        // A read lease requires that no descriptor is open for writing, including ours.
        let reopened_path = format!("/proc/self/fd/{}", writable_file.as_raw_fd());
        let read_only_file = File::open(reopened_path).map_err(to_error)?;
        drop(writable_file);
        let has_leases = sys::take_read_lease(read_only_file.as_fd()) == LeaseOutcome::Granted;
        if has_leases {
            sys::release_lease(read_only_file.as_fd());
        }
        Ok(FileSupport {
            has_unnamed_files,
            has_leases,
        })
    }

    /// Returns whether two files of the archive can be exchanged.
    ///
    /// # Errors
    /// The files cannot be created.
    pub fn probe_exchange(&self) -> Result<bool> {
        durable::can_exchange_files(self.archive().root())
    }
}
