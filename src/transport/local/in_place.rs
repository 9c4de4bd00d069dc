//! A memory that is a mount point of its own, as containers make them: no other
//! file can take its place, so it is written where it is, while nobody else has
//! it open. What cannot be written is put back. A crash in the middle leaves it
//! half written, and so does a disk that takes neither; the copy and the staged
//! file that stand beside it then tell the next run to do it again.
//!
//! A write lease keeps other processes out until the kernel revokes it, some time after
//! another open asked for it, also while this process is stopped. So each step, and the
//! end, checks whether that can have happened since the last check. If so, nothing more
//! is written, and the error says which writes may have been overwritten.

use std::cell::Cell;
use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::{LocalFolder, exists, identify, leases, moved, refused, unfinished};
use crate::clock::Clock;
use crate::durable::{self, NewFile};
use crate::error::{Error, Kind, PathContext};
use crate::sys::{self, Lease};
use crate::transport::{Cause, Folder, Identity, MemoryObject, Method, Swapped, TransportError};

/// The largest memory that is written in place: so much is written, but not
/// synced, in a moment.
const LARGEST: u64 = 64 << 20;

/// How long others are kept from a memory, far below the 45 seconds that the
/// kernel usually gives who holds a lease.
const LONGEST: Duration = Duration::from_secs(10);

/// Where the kernel says how long that is, in seconds; 0 is for ever.
const LEASE_BREAK_TIME: &str = "/proc/sys/fs/lease-break-time";

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
    /// Whoever opens the memory while it is written waits. What cannot be written
    /// is put back from the copy.
    pub(super) fn overwrite(&self, staged: &str, new: Identity) -> Result<Swapped, TransportError> {
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
        let earlier = self.copy_of_half(&memory, &source, staged)?;
        let is_new = earlier.is_none();
        let (copy_name, copy) = match earlier {
            Some(earlier) => earlier,
            None => self.copy_aside(&memory, staged)?,
        };
        // From here on nothing waits for the disk: the kernel lets a lease that
        // somebody waits for last only so long.
        let alone = self.keep_alone(&memory);
        let same = alone.and_then(|alone| {
            let same = self.is_known(&memory, &source, &copy)?;
            Ok((alone, same))
        });
        let alone = match same {
            // A write in between went to the memory itself, which was not touched yet.
            Ok((alone, true)) if alone.is_certain() => alone,
            same => {
                // Nothing was written: the memory itself is all there is. But one that
                // is half written already needs its copy.
                if is_new {
                    self.remove(&copy_name)?;
                }
                return Err(same.err().unwrap_or_else(|| moved(&path)));
            }
        };
        let end = Some(alone.since.get() + LONGEST);
        let written = self.fill(&alone, &source, end);
        let put_back = match &written {
            Err(Unwritten::Failed(_)) => self.fill(&alone, &copy, None),
            _ => Ok(()),
        };
        sys::release_lease(memory.as_fd());
        let synced = fs::fsync(&memory).path("sync", &path);
        // Nobody may have it open for writing when it is settled, nor we.
        self.identified.replace(None);
        match (written, put_back, synced) {
            // The staged file stays until it is marked that it was written: the
            // two beside each other tell a run that was cut short.
            (Ok(()), _, Ok(())) => Ok(Swapped {
                method: Method::InPlace,
                displaced: vec![copy_name, staged.to_string()],
            }),
            (Err(Unwritten::Failed(error)), Ok(()), Ok(())) => {
                self.remove(&copy_name)?;
                Err(refused(error.hint("it is as it was")))
            }
            (Err(Unwritten::Frozen(frozen)), _, _) | (_, Err(Unwritten::Frozen(frozen)), _) => {
                Err(self.half(
                    &format!(
                        "was written in place while others may have opened it: what they wrote \
                         between {frozen} may be overwritten, what it held before is in \
                         {copy_name} beside it"
                    ),
                    "this process was stopped for longer than a lease lasts",
                ))
            }
            // A failed sync is final, so nothing is put back after it.
            (Ok(()), _, Err(error)) => Err(self.half(
                "was written in place, but is perhaps not on the disk",
                error.message(),
            )),
            (Err(Unwritten::Failed(error)), _, _) => Err(self.half(
                &format!("is perhaps half written, and what it held is in {copy_name} beside it"),
                error.message(),
            )),
        }
    }

    /// Writes one file's content over the memory, in time.
    fn fill(
        &self,
        alone: &Alone<'_>,
        from: &StdFile,
        end: Option<Instant>,
    ) -> Result<(), Unwritten> {
        let path = self.memory();
        let step = || match (alone.is_certain(), end) {
            (false, _) => Err(Unwritten::Frozen(alone.frozen())),
            (true, Some(end)) if self.clock.instant() >= end => Err(Unwritten::Failed(
                self.stuck("and writing it takes too long").into(),
            )),
            (true, _) => Ok(()),
        };
        let mut offset = 0;
        let mut failed = None;
        let read = self.read_all(from, &path, &mut |bytes| {
            let written = step().and_then(|()| {
                let written = alone.memory.write_all_at(bytes, offset);
                written.path("write", &path).map_err(Unwritten::Failed)
            });
            offset += bytes.len() as u64;
            written.map_err(|why| {
                failed = Some(why);
                Error::new(Kind::Internal, "the memory was not written")
            })
        });
        match (failed, read) {
            (Some(why), _) => return Err(why),
            (None, Err(error)) => return Err(Unwritten::Failed(error.into())),
            (None, Ok(_)) => {}
        }
        step()?;
        let cut = fs::ftruncate(alone.memory, offset).path("cut", &path);
        cut.map_err(Unwritten::Failed)?;
        match alone.is_certain() {
            true => Ok(()),
            false => Err(Unwritten::Frozen(alone.frozen())),
        }
    }

    /// The copy that a swap made which was cut short, if there is nothing in the
    /// memory by now that is in neither that nor the staged file: what an agent
    /// added since needs a copy of its own.
    fn copy_of_half(
        &self,
        memory: &StdFile,
        source: &StdFile,
        staged: &str,
    ) -> Result<Option<(String, StdFile)>, TransportError> {
        for name in self.displaced_names(staged)? {
            if is_copy(staged, &name)
                && let Some(copy) = self.open(name.as_ref())?
                && self.is_known(memory, source, &copy)?
            {
                return Ok(Some((name, copy)));
            }
        }
        Ok(None)
    }

    /// Whether the memory begins as `source` does and goes on as `copy` does, as it
    /// is after the one was written over the other, or a part of it, or nothing.
    fn is_known(
        &self,
        memory: &StdFile,
        source: &StdFile,
        copy: &StdFile,
    ) -> Result<bool, TransportError> {
        let path = self.memory();
        let (mut offset, mut new, mut known) = (0, true, true);
        self.read_all(memory, &path, &mut |bytes| {
            let mut from = 0;
            if new {
                from = common(source, offset, bytes).path("compare", &path)?;
                new = from == bytes.len();
            }
            let rest = &bytes[from..];
            let same = common(copy, offset + from as u64, rest).path("compare", &path)?;
            known &= same == rest.len();
            offset += bytes.len() as u64;
            Ok(())
        })?;
        Ok(known)
    }

    fn half(&self, what: &str, why: &str) -> TransportError {
        let message = format!("{} {what}: {why}", self.memory().display());
        let error = Error::new(Kind::Host, message).hint("the next run writes it again");
        TransportError::new(Cause::HalfWritten, error)
    }

    /// Opens the memory for reading and writing.
    fn open_it(&self) -> Result<StdFile, TransportError> {
        let path = self.memory();
        let flags =
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file =
            fs::openat(&*self.fd, &self.name, flags, Mode::empty()).map_err(
                |errno| match errno {
                    Errno::AGAIN => self.stuck("and somebody has a lease on it"),
                    errno => self.explained(Error::io("write", &path, &errno.into())),
                },
            )?;
        let file = StdFile::from(file);
        let stat = self.stat(&file, &path)?;
        let object = self.classify(&self.name, &stat).path("look at", &path);
        match object.map_err(refused)? {
            MemoryObject::File(_) => Ok(file),
            _ => Err(moved(&path)),
        }
    }

    /// Waits until nobody else has the memory open, and keeps it so.
    fn keep_alone<'m>(&'m self, memory: &'m StdFile) -> Result<Alone<'m>, TransportError> {
        if let Some(why) = leases::obstacle(memory) {
            return Err(self.stuck(&format!("and other writers cannot be kept out: {why}")));
        }
        for _ in 0..LOOKS {
            let before = (self.clock.instant(), self.clock.now());
            let lease = match self.leases {
                true => sys::take_write_lease(memory.as_fd()),
                false => Lease::Unavailable,
            };
            match lease {
                Lease::Granted => return Ok(Alone::new(memory, self.clock.as_ref(), before)),
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
        let hint = "mount the directory it lies in instead of the file";
        refused(Error::new(Kind::Host, message).hint(hint))
    }

    /// Puts a copy of the memory on the disk, under a name beside it.
    fn copy_aside(
        &self,
        memory: &StdFile,
        staged: &str,
    ) -> Result<(String, StdFile), TransportError> {
        let random = durable::random_name().map_err(refused)?;
        let name = format!("{staged}{COPY}{random}");
        let mode = Mode::RUSR | Mode::WUSR;
        let unfinished = || Ok(unfinished(staged));
        let mut file = NewFile::create_as(&self.fd, &self.path, mode, unfinished, self.help)
            .map_err(refused)?;
        self.read_all(memory, &self.memory(), &mut |bytes| file.write(bytes))?;
        file.content().sync().map_err(refused)?;
        if !file.link(name.as_ref()).map_err(refused)? {
            return Err(exists(&self.at(&name)));
        }
        file.folder().sync().map_err(refused)?;
        let copy = file.file().try_clone().path("open", &self.at(&name));
        Ok((name, copy.map_err(refused)?))
    }
}

/// Why a memory was not written.
enum Unwritten {
    /// The system refused, or it took too long. No other process had it open.
    Failed(Error),
    /// Another process may have written to it in this time.
    Frozen(String),
}

/// A memory that no other process has open, while that is certain.
struct Alone<'m> {
    memory: &'m StdFile,
    clock: &'m dyn Clock,
    /// How long another open waits at least before the kernel lets it in.
    held: Duration,
    /// The last time at which no other open waited.
    since: Cell<Instant>,
    time: Cell<DateTime<FixedOffset>>,
}

impl<'m> Alone<'m> {
    /// Takes a memory on which a write lease was granted after this time.
    fn new(
        memory: &'m StdFile,
        clock: &'m dyn Clock,
        (since, time): (Instant, DateTime<FixedOffset>),
    ) -> Alone<'m> {
        let seconds = std::fs::read_to_string(LEASE_BREAK_TIME);
        let seconds: Option<u64> = seconds.ok().and_then(|it| it.trim().parse().ok());
        Alone {
            memory,
            clock,
            held: match seconds {
                Some(0) => Duration::MAX,
                // Half of it, for the kernel counts in ticks of its own.
                Some(seconds) => Duration::from_secs(seconds) / 2,
                None => Duration::ZERO,
            },
            since: Cell::new(since),
            time: Cell::new(time),
        }
    }

    /// Whether no other process can have had it open until now.
    fn is_certain(&self) -> bool {
        let (now, time) = (self.clock.instant(), self.clock.now());
        if sys::write_lease_is_whole(self.memory.as_fd()) {
            self.since.set(now);
            self.time.set(time);
            return true;
        }
        // Another open has asked for the lease since, and still waits.
        now.duration_since(self.since.get()) < self.held
    }

    /// Returns the time in which another process may have had it open.
    fn frozen(&self) -> String {
        let (from, to) = (self.time.get(), self.clock.now());
        format!("{} and {}", from.format("%H:%M:%S"), to.format("%H:%M:%S"))
    }
}

/// How many of these bytes stand at this place of a file.
fn common(file: &StdFile, offset: u64, bytes: &[u8]) -> std::io::Result<usize> {
    let mut there = vec![0; bytes.len()];
    let mut filled = 0;
    while filled < there.len() {
        match file.read_at(&mut there[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let pairs = there[..filled].iter().zip(bytes);
    Ok(pairs.take_while(|(a, b)| a == b).count())
}
