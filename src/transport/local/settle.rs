//! Settles displaced files: no byte of one is lost, then it goes.

use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use super::{LocalFolder, Opened, describe, identify};
use crate::error::{Error, Kind};
use crate::sys::{self, Lease};
use crate::transport::{Folder, MemoryObject, Reader, Settled, Sink, SpecialFile, TransportError};

/// How long a file must keep its size and times where writers cannot be seen.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// How long to wait for an opener that came while a file was being removed.
const OPENER_TIMEOUT: Duration = Duration::from_secs(2);

impl LocalFolder {
    pub(super) fn settle_file(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        let path = self.at(displaced);
        let name = OsStr::new(displaced);
        let seen = self.unwatched.borrow_mut().remove(displaced);
        let file = match self.open_any(name)? {
            Opened::File(file) => file,
            // A second name of the memory itself, left by a crash between link and unlink.
            Opened::Other(MemoryObject::Odd(SpecialFile::ForeignLink(_)))
                if self.identity(name)? == self.identity(&self.name)? =>
            {
                self.remove(displaced)?;
                return Ok(Settled::Removed { watched: true });
            }
            // No entry holds their content.
            Opened::Other(MemoryObject::Odd(
                odd @ (SpecialFile::Directory | SpecialFile::ForeignLink(_)),
            )) => {
                return Ok(Settled::Kept(odd));
            }
            Opened::Other(MemoryObject::Odd(odd)) => return Ok(Settled::Odd(odd)),
            Opened::Other(MemoryObject::Absent) => return Ok(Settled::Removed { watched: true }),
            // It was put there after the look that found something else.
            Opened::Other(MemoryObject::File(_)) | Opened::Leased => return Ok(Settled::Open),
        };
        let before = self.stat(&file, &path)?;
        let watched = match self.take_lease(&file) {
            Lease::Held => return Ok(Settled::Open),
            Lease::Granted => true,
            Lease::Unavailable => {
                let now = self.clock.instant();
                let (file, since) = seen
                    .filter(|(file, _)| *file == describe(&before))
                    .unwrap_or_else(|| (describe(&before), now));
                if now < since + QUIET_PERIOD {
                    let mut unwatched = self.unwatched.borrow_mut();
                    unwatched.insert(displaced.to_string(), (file, since));
                    return Ok(Settled::Open);
                }
                false
            }
        };
        let quiet = || -> Result<bool, TransportError> {
            let same = describe(&self.stat(&file, &path)?) == describe(&before);
            Ok(same && (!watched || sys::lease_is_whole(file.as_fd())))
        };
        if !quiet()? {
            return Ok(Settled::Open);
        }
        inspect(&|sink: Sink<'_>| self.read_whole(&file, &path, sink))?;
        // The last looks, as close to the removal as can be: is it this file
        // that stands there, and has nobody touched it?
        if self.identity(name)? != Some(identify(&before)) || !quiet()? {
            // Closing the file gives the lease back: whoever waits may write.
            return Ok(Settled::Open);
        }
        self.remove(displaced)?;
        let touched = match watched {
            true => !sys::lease_is_whole(file.as_fd()),
            // Removing it has changed the time of its inode.
            false => {
                let after = self.stat(&file, &path)?;
                (after.st_size, after.st_mtime, after.st_mtime_nsec)
                    != (before.st_size, before.st_mtime, before.st_mtime_nsec)
            }
        };
        if touched {
            return Ok(match self.last_look(&file, &path, inspect) {
                Settled::Removed { .. } => Settled::Removed { watched },
                lost => lost,
            });
        }
        Ok(Settled::Removed { watched })
    }

    /// Looks once more at a file that has no name any more and that somebody
    /// may have opened in the instant before: it is still here, behind `file`.
    pub(super) fn last_look(
        &self,
        file: &StdFile,
        path: &Path,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Settled {
        let lost = |why: Error| {
            let message = format!(
                "{} was removed, and what was written to it in that instant may be lost: {}",
                path.display(),
                why.message()
            );
            Settled::Lost(Error::new(Kind::Partial.worst(why.kind()), message))
        };
        // Lets whoever waits open it, and waits until it is closed again.
        sys::release_lease(file.as_fd());
        let end = self.clock.instant() + OPENER_TIMEOUT;
        let mut lease = self.take_lease(file);
        while lease == Lease::Held && self.clock.instant() < end {
            self.clock.sleep(Duration::from_millis(5));
            lease = self.take_lease(file);
        }
        let seen = inspect(&|sink: Sink<'_>| self.read_whole(file, path, sink));
        match (seen, lease) {
            (Err(error), _) => lost(error),
            (Ok(()), Lease::Held) => lost(Error::new(Kind::Partial, "a writer has it open still")),
            (Ok(()), lease) => Settled::Removed {
                watched: lease == Lease::Granted,
            },
        }
    }
}
