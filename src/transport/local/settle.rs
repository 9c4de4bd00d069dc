//! Settles displaced files: hands every byte to the caller's inspection, then removes the file.

use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use super::{LocalDirectory, OpenOutcome, identify, metadata_from_stat};
use crate::error::{Error, ErrorKind};
use crate::sys::{self, LeaseOutcome};
use crate::transport::{
    ByteSink, FileReader, MemoryDirectory, MemoryObject, SettleOutcome, SpecialFile, TransportError,
};

/// Time for which a file must keep its size and times where writers cannot be detected.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// Time to wait for a process that opened a file during its removal.
const OPENER_TIMEOUT: Duration = Duration::from_secs(2);

impl LocalDirectory {
    pub(super) fn settle_file(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(FileReader<'_>) -> Result<(), Error>,
    ) -> Result<SettleOutcome, TransportError> {
        let path = self.path_of(displaced);
        let name = OsStr::new(displaced);
        let first_seen = self.unwatched_displaced.borrow_mut().remove(displaced);
        let file = match self.open_any(name)? {
            OpenOutcome::File(file) => file,
            // A second name of the memory itself, left by a crash between link and unlink.
            OpenOutcome::NotOpened(MemoryObject::Special(SpecialFile::ForeignHardLink(_)))
                if self.identity_of(name)? == self.identity_of(&self.memory_name)? =>
            {
                self.remove_name(displaced)?;
                return Ok(SettleOutcome::Removed { was_watched: true });
            }
            // No archive entry holds their content.
            OpenOutcome::NotOpened(MemoryObject::Special(
                odd @ (SpecialFile::Directory | SpecialFile::ForeignHardLink(_)),
            )) => {
                return Ok(SettleOutcome::Kept(odd));
            }
            OpenOutcome::NotOpened(MemoryObject::Special(odd)) => {
                return Ok(SettleOutcome::Special(odd));
            }
            OpenOutcome::NotOpened(MemoryObject::Absent) => {
                return Ok(SettleOutcome::Removed { was_watched: true });
            }
            // It appeared after the check that found another object.
            OpenOutcome::NotOpened(MemoryObject::File(_)) | OpenOutcome::Leased => {
                return Ok(SettleOutcome::StillOpen);
            }
        };
        let before = self.fstat(&file, &path)?;
        let watched = match self.take_lease(&file) {
            LeaseOutcome::OpenElsewhere => return Ok(SettleOutcome::StillOpen),
            LeaseOutcome::Granted => true,
            LeaseOutcome::Unavailable => {
                let now = self.clock.instant();
                let (file, since) = first_seen
                    .filter(|(file, _)| *file == metadata_from_stat(&before))
                    .unwrap_or_else(|| (metadata_from_stat(&before), now));
                if now < since + QUIET_PERIOD {
                    let mut unwatched = self.unwatched_displaced.borrow_mut();
                    unwatched.insert(displaced.to_string(), (file, since));
                    return Ok(SettleOutcome::StillOpen);
                }
                false
            }
        };
        let quiet = || -> Result<bool, TransportError> {
            let same =
                metadata_from_stat(&self.fstat(&file, &path)?) == metadata_from_stat(&before);
            Ok(same && (!watched || sys::is_read_lease_unbroken(file.as_fd())))
        };
        if !quiet()? {
            return Ok(SettleOutcome::StillOpen);
        }
        inspect(&|sink: ByteSink<'_>| self.read_with_xattrs(&file, &path, sink))?;
        // Last check, as close to the removal as possible: the name still refers to this file, and
        // no process has touched it.
        if self.identity_of(name)? != Some(identify(&before)) || !quiet()? {
            // Closing the file releases the lease, so a waiting writer proceeds.
            return Ok(SettleOutcome::StillOpen);
        }
        self.remove_name(displaced)?;
        let was_touched = match watched {
            true => !sys::is_read_lease_unbroken(file.as_fd()),
            // The removal itself changes the inode's change time.
            false => {
                let after = self.fstat(&file, &path)?;
                (after.st_size, after.st_mtime, after.st_mtime_nsec)
                    != (before.st_size, before.st_mtime, before.st_mtime_nsec)
            }
        };
        if was_touched {
            return Ok(match self.inspect_after_removal(&file, &path, inspect) {
                SettleOutcome::Removed { .. } => SettleOutcome::Removed {
                    was_watched: watched,
                },
                lost => lost,
            });
        }
        Ok(SettleOutcome::Removed {
            was_watched: watched,
        })
    }

    /// Inspects a removed file once more if a process may have opened it in the instant before:
    /// `file` still refers to it.
    pub(super) fn inspect_after_removal(
        &self,
        file: &StdFile,
        path: &Path,
        inspect: &mut dyn FnMut(FileReader<'_>) -> Result<(), Error>,
    ) -> SettleOutcome {
        let lost = |why: Error| {
            let message = format!(
                "{} was removed; bytes written to it in that instant may be lost: {}",
                path.display(),
                why.message()
            );
            SettleOutcome::Lost(Error::new(
                ErrorKind::Partial.more_serious(why.kind()),
                message,
            ))
        };
        // Lets a waiting process open it, and waits until that process closes it.
        sys::release_lease(file.as_fd());
        let end = self.clock.instant() + OPENER_TIMEOUT;
        let mut lease = self.take_lease(file);
        while lease == LeaseOutcome::OpenElsewhere && self.clock.instant() < end {
            self.clock.sleep(Duration::from_millis(5));
            lease = self.take_lease(file);
        }
        let inspection = inspect(&|sink: ByteSink<'_>| self.read_with_xattrs(file, path, sink));
        match (inspection, lease) {
            (Err(error), _) => lost(error),
            (Ok(()), LeaseOutcome::OpenElsewhere) => {
                lost(Error::new(ErrorKind::Partial, "a writer still has it open"))
            }
            (Ok(()), lease) => SettleOutcome::Removed {
                was_watched: lease == LeaseOutcome::Granted,
            },
        }
    }
}
