//! A memory that is a mount point of its own, as containers make them: no other
//! file can take its place, so it is written where it is, while nobody else has
//! it open. A crash in the middle leaves it half written; the copy and the staged
//! file that stand beside it then tell the next run to do it again.

use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{self, Mode, OFlags};

use super::{LocalFolder, exists, moved, refused, unfinished};
use crate::durable::{self, NewFile, Unsynced};
use crate::error::{Error, Kind, PathContext};
use crate::sys::{self, Lease};
use crate::transport::{Method, Object, Swapped, TransportError};

/// How often is looked whether nobody has the memory open any more.
const LOOKS: usize = 200;

/// Between the staged name and the random one of a copy.
const COPY: &str = "-copy";

/// Whether `name` is that of the copy of a memory that `staged` was written into.
pub(super) fn is_copy(staged: &str, name: &str) -> bool {
    let rest = name.strip_prefix(staged);
    rest.and_then(|rest| rest.strip_prefix(COPY))
        .is_some_and(durable::is_random_name)
}

impl LocalFolder {
    /// Copies the memory aside, writes the staged file's content into it, and
    /// removes the staged file. Whoever opens the memory meanwhile waits.
    pub(super) fn write_in_place(&self, staged: &str) -> Result<Swapped, TransportError> {
        let path = self.memory();
        let new = self.open(staged.as_ref())?.ok_or_else(|| moved(&path))?;
        let memory = self.open_alone()?;
        let random = durable::random_name().map_err(refused)?;
        let copy = format!("{staged}{COPY}{random}");
        self.copy_aside(&memory, staged, &copy)?;
        let mut length = 0;
        self.read_all(&new, &self.at(staged), &mut |bytes| {
            memory.write_all_at(bytes, length).path("write", &path)?;
            length += bytes.len() as u64;
            Ok(())
        })?;
        fs::ftruncate(&memory, length)
            .path("cut", &path)
            .map_err(refused)?;
        fs::fsync(&memory).path("sync", &path).map_err(refused)?;
        sys::release_lease(memory.as_fd());
        fs::unlinkat(&*self.fd, staged, fs::AtFlags::empty())
            .path("remove", &self.at(staged))
            .map_err(refused)?;
        Ok(Swapped {
            method: Method::InPlace,
            displaced: vec![copy],
        })
    }

    /// Opens the memory for writing while nobody else has it open, and keeps it
    /// so.
    fn open_alone(&self) -> Result<StdFile, TransportError> {
        let path = self.memory();
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::openat(&*self.fd, &self.name, flags, Mode::empty())
            .path("write", &path)
            .map_err(refused)?;
        let file = StdFile::from(file);
        let stat = self.stat(&file, &path)?;
        let object = self.classify(&self.name, &stat).path("look at", &path);
        if !matches!(object.map_err(refused)?, Object::File(_)) {
            return Err(moved(&path));
        }
        for _ in 0..LOOKS {
            let lease = match self.leases {
                true => sys::take_write_lease(file.as_fd()),
                false => Lease::Unavailable,
            };
            match lease {
                Lease::Granted => return Ok(file),
                Lease::Held => self.clock.sleep(std::time::Duration::from_millis(10)),
                Lease::Unavailable => {
                    return Err(self.stuck("and there is no right to keep others from writing it"));
                }
            }
        }
        Err(self.stuck("and somebody has it open"))
    }

    fn stuck(&self, why: &str) -> TransportError {
        let message = format!(
            "cannot replace {}: it is a mount point of its own, {why}",
            self.memory().display()
        );
        let hint = "mount the folder it lies in instead of the file; nothing was changed";
        refused(Error::new(Kind::Host, message).hint(hint))
    }

    /// Puts a copy of the memory on the disk, under a name beside it.
    fn copy_aside(&self, memory: &StdFile, staged: &str, copy: &str) -> Result<(), TransportError> {
        let mode = Mode::RUSR | Mode::WUSR;
        let name = unfinished(staged);
        let mut file =
            NewFile::create_as(&self.fd, &self.path, mode, name, self.help).map_err(refused)?;
        self.read_all(memory, &self.memory(), &mut |bytes| file.write(bytes))?;
        file.content().sync().map_err(refused)?;
        if !file.link(copy.as_ref()).map_err(refused)? {
            return Err(exists(&self.at(copy)));
        }
        let folder = Unsynced::new(std::sync::Arc::clone(&self.fd) as _, &self.path);
        folder.sync().map_err(refused)
    }
}
