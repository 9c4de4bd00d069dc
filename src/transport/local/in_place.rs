//! A memory that is a mount point of its own, as containers make them: no other
//! file can take its place, so it is written where it is, while nobody else has
//! it open. A crash in the middle leaves it half written; the copy and the staged
//! file that stand beside it then tell the next run to do it again.

use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{self, Mode, OFlags};

use super::{LocalFolder, exists, identify, moved, refused, unfinished};
use crate::digest::{Digest, Hasher};
use crate::durable::{self, NewFile};
use crate::error::{Error, Kind, PathContext};
use crate::sys::{self, Lease};
use crate::transport::{Folder, Identity, Method, Object, Swapped, TransportError};

/// The largest memory that is written in place: so much is written, but not
/// synced, in a moment.
const LARGEST: u64 = 64 << 20;

/// How long others are kept from a memory, far below the 45 seconds that the
/// kernel gives who holds a lease (`/proc/sys/fs/lease-break-time`).
const LONGEST: Duration = Duration::from_secs(10);

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
    /// Copies the memory aside and writes the staged file's content into it.
    /// Whoever opens the memory while it is written waits.
    pub(super) fn write_in_place(
        &self,
        staged: &str,
        new: Identity,
    ) -> Result<Swapped, TransportError> {
        let path = self.memory();
        let source = self.open(staged.as_ref())?.ok_or_else(|| moved(&path))?;
        if identify(&self.stat(&source, &self.at(staged))?) != new {
            return Err(moved(&path));
        }
        let length = self.stat(&source, &self.at(staged))?.st_size as u64;
        let memory = self.open_it()?;
        if length.max(self.stat(&memory, &path)?.st_size as u64) > LARGEST {
            return Err(self.stuck("and too large to be written while everybody else waits"));
        }
        let random = durable::random_name().map_err(refused)?;
        let copy = format!("{staged}{COPY}{random}");
        let copied = self.copy_aside(&memory, staged, &copy)?;
        // From here on nothing waits for the disk: the kernel lets a lease that
        // somebody waits for last only so long.
        let alone = self.keep_alone(&memory);
        let began = self.clock.instant();
        let same = alone.and_then(|()| Ok(self.digest(&memory, &path)? == copied));
        if !matches!(same, Ok(true)) {
            // Nothing was written: the memory itself is all there is.
            self.remove(&copy)?;
            return Err(same.err().unwrap_or_else(|| moved(&path)));
        }
        let in_time = || match self.clock.instant().duration_since(began) < LONGEST {
            true => Ok(()),
            false => Err(self.stuck("and writing it takes too long")),
        };
        let mut offset = 0;
        let written = self.read_all(&source, &self.at(staged), &mut |bytes| {
            in_time()?;
            memory.write_all_at(bytes, offset).path("write", &path)?;
            offset += bytes.len() as u64;
            Ok(())
        });
        written?;
        in_time()?;
        fs::ftruncate(&memory, offset)
            .path("cut", &path)
            .map_err(refused)?;
        sys::release_lease(memory.as_fd());
        fs::fsync(&memory).path("sync", &path).map_err(refused)?;
        // Nobody may have it open for writing when it is settled, nor we.
        self.identified.replace(None);
        // The staged file stays until it is marked that it was written: the two
        // beside each other tell a run that was cut short.
        Ok(Swapped {
            method: Method::InPlace,
            displaced: vec![copy, staged.to_string()],
        })
    }

    fn digest(&self, file: &StdFile, path: &Path) -> Result<Digest, TransportError> {
        let mut hasher = Hasher::default();
        self.read_all(file, path, &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        Ok(hasher.finish())
    }

    /// Opens the memory for reading and writing.
    fn open_it(&self) -> Result<StdFile, TransportError> {
        let path = self.memory();
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::openat(&*self.fd, &self.name, flags, Mode::empty())
            .path("write", &path)
            .map_err(refused)?;
        let file = StdFile::from(file);
        let stat = self.stat(&file, &path)?;
        let object = self.classify(&self.name, &stat).path("look at", &path);
        match object.map_err(refused)? {
            Object::File(_) => Ok(file),
            _ => Err(moved(&path)),
        }
    }

    /// Waits until nobody else has the memory open, and keeps it so.
    fn keep_alone(&self, memory: &StdFile) -> Result<(), TransportError> {
        for _ in 0..LOOKS {
            let lease = match self.leases {
                true => sys::take_write_lease(memory.as_fd()),
                false => Lease::Unavailable,
            };
            match lease {
                Lease::Granted => return Ok(()),
                Lease::Held => self.clock.sleep(Duration::from_millis(10)),
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

    /// Puts a copy of the memory on the disk, under a name beside it, and says
    /// what is in it.
    fn copy_aside(
        &self,
        memory: &StdFile,
        staged: &str,
        copy: &str,
    ) -> Result<Digest, TransportError> {
        let mode = Mode::RUSR | Mode::WUSR;
        let name = || Ok(unfinished(staged));
        let mut file =
            NewFile::create_as(&self.fd, &self.path, mode, name, self.help).map_err(refused)?;
        let mut hasher = Hasher::default();
        self.read_all(memory, &self.memory(), &mut |bytes| {
            hasher.update(bytes);
            file.write(bytes)
        })?;
        file.content().sync().map_err(refused)?;
        if !file.link(copy.as_ref()).map_err(refused)? {
            return Err(exists(&self.at(copy)));
        }
        file.folder().sync().map_err(refused)?;
        Ok(hasher.finish())
    }
}
