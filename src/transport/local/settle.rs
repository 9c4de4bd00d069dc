//! Settles displaced files: hands every byte to the caller's inspection, then removes the file.

use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::LocalDirectory;
use super::open_directory::{OpenDirectory, OpenOutcome};
use super::open_file::{fstat, identify, metadata_from_stat, read_with_xattrs};
use crate::base::error::{Error, ErrorKind};
use crate::base::sys::{self, LeaseOutcome};
use crate::transport::{
    ByteSink, DisplacedObject, FileMetadata, Inspector, MemoryObject, SettleOutcome, SpecialFile,
    TransportError,
};

/// Time for which a file must keep its size and times where writers cannot be detected.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// Time to wait for a process that opened a file during its removal.
const OPENER_TIMEOUT: Duration = Duration::from_secs(2);

/// The settling of one displaced object.
pub(super) struct Settlement<'d> {
    memory: &'d LocalDirectory,
    directory: &'d OpenDirectory,
    name: &'d str,
    path: PathBuf,
}

impl<'d> Settlement<'d> {
    /// Creates the settling of the object that was displaced to `name`; opens nothing yet.
    pub(super) fn new(memory: &'d LocalDirectory, name: &'d str) -> Settlement<'d> {
        Settlement {
            memory,
            directory: &memory.directory,
            name,
            path: memory.directory.path_of(name),
        }
    }

    /// Inspects the object, and removes it if no process has touched it.
    pub(super) fn settle(&self, inspect: Inspector<'_>) -> Result<SettleOutcome, TransportError> {
        let path = &self.path;
        let unwatched = &self.memory.unwatched_displaced;
        let first_seen = unwatched.borrow_mut().remove(self.name);
        let file = match self.directory.open_any(self.name.as_ref())? {
            OpenOutcome::File(file) => file,
            OpenOutcome::NotOpened(object) => return self.settle_unreadable(object, inspect),
            OpenOutcome::Leased => return Ok(SettleOutcome::StillOpen),
        };
        let before = fstat(&file, path)?;
        let was_watched = match self.directory.take_read_lease(&file) {
            LeaseOutcome::OpenElsewhere => return Ok(SettleOutcome::StillOpen),
            LeaseOutcome::Granted => true,
            LeaseOutcome::Unavailable => {
                if !self.has_been_quiet(metadata_from_stat(&before), first_seen) {
                    return Ok(SettleOutcome::StillOpen);
                }
                false
            }
        };
        let is_untouched = || -> Result<bool, TransportError> {
            let same = metadata_from_stat(&fstat(&file, path)?) == metadata_from_stat(&before);
            Ok(same && (!was_watched || sys::is_read_lease_unbroken(file.as_fd())))
        };
        if !is_untouched()? {
            return Ok(SettleOutcome::StillOpen);
        }
        let read = |sink: ByteSink<'_>| read_with_xattrs(&file, path, sink);
        inspect(DisplacedObject::File(&read))?;
        // Last check, as close to the removal as possible: the name still refers to this file, and
        // no process has touched it.
        let is_named = self.directory.identity_of(self.name.as_ref())? == Some(identify(&before));
        if !is_named || !is_untouched()? {
            // Closing the file releases the lease, so a waiting writer proceeds.
            return Ok(SettleOutcome::StillOpen);
        }
        self.directory.remove_name(self.name)?;
        let was_touched = if was_watched {
            !sys::is_read_lease_unbroken(file.as_fd())
        } else {
            // The removal itself changes the inode's change time.
            let after = fstat(&file, path)?;
            (after.st_size, after.st_mtime, after.st_mtime_nsec)
                != (before.st_size, before.st_mtime, before.st_mtime_nsec)
        };
        if !was_touched {
            return Ok(SettleOutcome::Removed { was_watched });
        }
        Ok(match self.inspect_after_removal(&file, inspect) {
            SettleOutcome::Removed { was_watched: after } => SettleOutcome::Removed {
                was_watched: was_watched && after,
            },
            lost => lost,
        })
    }

    /// Settles an object that could not be opened for reading.
    fn settle_unreadable(
        &self,
        object: MemoryObject,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        let (directory, name) = (self.directory, OsStr::new(self.name));
        match object {
            // A second name of the memory itself, left by a crash between link and unlink.
            MemoryObject::Special(SpecialFile::ForeignHardLink(_))
                if directory.identity_of(name)?
                    == directory.identity_of(&self.memory.memory_name)? =>
            {
                directory.remove_name(self.name)?;
            }
            // No archive entry holds their content.
            MemoryObject::Special(
                special @ (SpecialFile::Directory | SpecialFile::ForeignHardLink(_)),
            ) => return Ok(SettleOutcome::Kept(special)),
            MemoryObject::Special(special) => {
                inspect(DisplacedObject::Special(&special))?;
                match directory.object_at(name)? {
                    MemoryObject::Special(found) if found == special => {
                        directory.remove_name(self.name)?;
                    }
                    MemoryObject::Absent => {}
                    _ => return Ok(SettleOutcome::StillOpen),
                }
            }
            MemoryObject::Absent => {}
            // It appeared after the check that found another object.
            MemoryObject::File(_) => return Ok(SettleOutcome::StillOpen),
        }
        Ok(SettleOutcome::Removed { was_watched: true })
    }

    /// Returns whether a file without a lease has had this metadata for long enough; otherwise
    /// keeps it for the next check.
    fn has_been_quiet(
        &self,
        now: FileMetadata,
        first_seen: Option<(FileMetadata, Instant)>,
    ) -> bool {
        let time = self.directory.clock.instant();
        let (_, since) = first_seen
            .filter(|(then, _)| *then == now)
            .unwrap_or_else(|| (now.clone(), time));
        if time >= since + QUIET_PERIOD {
            return true;
        }
        let mut unwatched = self.memory.unwatched_displaced.borrow_mut();
        unwatched.insert(self.name.to_string(), (now, since));
        false
    }

    /// Inspects a removed file once more if a process may have opened it in the instant before:
    /// `file` still refers to it.
    pub(super) fn inspect_after_removal(
        &self,
        file: &StdFile,
        inspect: Inspector<'_>,
    ) -> SettleOutcome {
        let lost = |why: Error| {
            let message = format!(
                "{} was removed; bytes written to it in that instant may be lost: {}",
                self.path.display(),
                why.message()
            );
            let kind = ErrorKind::Partial.more_serious(why.kind());
            SettleOutcome::Lost(Error::new(kind, message))
        };
        // Lets a waiting process open it, and waits until that process closes it.
        sys::release_lease(file.as_fd());
        let clock = &self.directory.clock;
        let end = clock.instant() + OPENER_TIMEOUT;
        let mut lease = self.directory.take_read_lease(file);
        while lease == LeaseOutcome::OpenElsewhere && clock.instant() < end {
            clock.sleep(Duration::from_millis(5));
            lease = self.directory.take_read_lease(file);
        }
        let read = |sink: ByteSink<'_>| read_with_xattrs(file, &self.path, sink);
        let inspection = inspect(DisplacedObject::File(&read));
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
