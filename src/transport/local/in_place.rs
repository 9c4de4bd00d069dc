//! Writes a memory that is a mount point, as containers make them, in place: no other file can take
//! its place, so its content is overwritten while no other process has it open, and restored if
//! writing fails. A crash, or a disk that refuses both, leaves the memory half written; the copy
//! and the staged file beside it tell the next run to write it again.
//!
//! A write lease keeps other processes out until the kernel revokes it, some time after another
//! open asked for it, even while this process is stopped. So each step, and the end, checks whether
//! that can have happened since the last check. If so, this module writes nothing more, and the
//! error says which writes may have been overwritten.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::LocalDirectory;
use super::aside_names::{is_copy_name, new_copy_name};
use super::errors::{RefusalContext, exists_error, refused_error, replaced_error};
use super::leases::lease_obstacle;
use super::open_directory::OpenDirectory;
use super::open_file::{FileIdentity, fstat, identify, read_content};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, PathContext};
use crate::base::sys::{self, LeaseOutcome};
use crate::transport::{FailureCause, MemoryObject, SwapMethod, SwapOutcome, TransportError};

/// Size limit of a memory that is written in place: a page-cache write of this size takes well
/// under a second.
const MAX_IN_PLACE_BYTES: u64 = 64 << 20;

/// Limit of the time in which other processes are kept out, far below the 45 seconds that the
/// kernel usually grants the holder of a lease.
const MAX_EXCLUSIVE_TIME: Duration = Duration::from_secs(10);

/// Kernel setting of that time, in seconds; 0 means no limit.
const LEASE_BREAK_TIME_FILE: &str = "/proc/sys/fs/lease-break-time";

/// Attempts to get a lease while another process has the memory open.
const MAX_LEASE_ATTEMPTS: usize = 200;

impl LocalDirectory {
    /// Copies the memory aside and writes the staged file's content into it. Processes that open
    /// the memory in between block until the write ends. If writing fails, restores the content
    /// from the copy.
    pub(super) fn overwrite_memory(
        &self,
        staged: &str,
        new: FileIdentity,
    ) -> Result<SwapOutcome, TransportError> {
        let write = InPlaceWrite::prepare(&self.directory, &self.memory_name, staged, new)?;
        // From here on nothing may wait for the disk: the kernel revokes a contended lease after a
        // limited time.
        let exclusive = write.lock_known_memory()?;
        let written = write.write_or_put_back(&exclusive);
        // No process, including this one, may have it open for writing when it is settled.
        self.last_identified_file.replace(None);
        written?;
        // The staged file stays until the journal records the write: staged file and copy together
        // mark a run that was cut short.
        Ok(SwapOutcome {
            method: SwapMethod::InPlace,
            displaced: vec![write.copy_name, staged.to_string()],
        })
    }
}

/// The writing of a memory in place.
struct InPlaceWrite<'d> {
    directory: &'d OpenDirectory,
    /// The memory's path.
    path: PathBuf,
    memory: StdFile,
    /// The staged file.
    source: StdFile,
    /// A file beside the memory with its earlier content.
    copy: StdFile,
    copy_name: String,
    /// Whether the copy is of this write, and not of an earlier one that was cut short.
    is_new_copy: bool,
}

impl InPlaceWrite<'_> {
    /// Opens the memory, and the staged file if it is the file `new`, and copies the memory aside.
    /// Uses the copy of an earlier write that was cut short, if the memory holds only bytes of that
    /// copy or of the staged file: what an agent has added since needs a copy of its own.
    fn prepare<'d>(
        directory: &'d OpenDirectory,
        memory: &OsStr,
        staged: &str,
        new: FileIdentity,
    ) -> Result<InPlaceWrite<'d>, TransportError> {
        let path = directory.path_of(memory);
        let source = directory
            .open_regular(staged.as_ref())?
            .ok_or_else(|| replaced_error(&path))?;
        let stat = fstat(&source, &directory.path_of(staged))?;
        if identify(&stat) != new {
            return Err(replaced_error(&path));
        }
        let memory = open_for_writing(directory, memory, &path)?;
        if stat.st_size.max(fstat(&memory, &path)?.st_size) as u64 > MAX_IN_PLACE_BYTES {
            let why = "and larger than the 64 MiB that can be written in place";
            return Err(in_use_error(&path, why));
        }
        let mut earlier_copy = None;
        for name in directory.displaced_names(staged)? {
            if is_copy_name(staged, &name)
                && let Some(copy) = directory.open_regular(name.as_ref())?
                && is_half_written_mix(&memory, &source, &copy, &path)?
            {
                earlier_copy = Some((name, copy));
                break;
            }
        }
        let is_new_copy = earlier_copy.is_none();
        let new_copy = || copy_aside(directory, &memory, &path, staged);
        let (copy_name, copy) = earlier_copy.map_or_else(new_copy, Ok)?;
        Ok(InPlaceWrite {
            directory,
            path,
            memory,
            source,
            copy,
            copy_name,
            is_new_copy,
        })
    }

    /// Keeps other processes out of the memory, whose content must still be in the copy.
    fn lock_known_memory(&self) -> Result<ExclusiveAccess<'_>, TransportError> {
        let known = self.acquire_exclusive().and_then(|exclusive| {
            let known = is_half_written_mix(&self.memory, &self.source, &self.copy, &self.path)?;
            Ok((exclusive, known))
        });
        match known {
            // A write in between went to the memory itself, which is untouched so far.
            Ok((exclusive, true)) if exclusive.is_still_exclusive() => Ok(exclusive),
            known => {
                // Nothing was written, so a new copy is redundant. An earlier copy belongs to a
                // half-written memory and stays.
                if self.is_new_copy {
                    self.directory.remove_name(&self.copy_name)?;
                }
                Err(known.err().unwrap_or_else(|| replaced_error(&self.path)))
            }
        }
    }

    /// Waits until no other process has the memory open, and takes a lease that keeps others out.
    fn acquire_exclusive(&self) -> Result<ExclusiveAccess<'_>, TransportError> {
        let in_use = |why: &str| Err(in_use_error(&self.path, why));
        if let Some(why) = lease_obstacle(&self.memory) {
            return in_use(&format!("and other writers cannot be kept out: {why}"));
        }
        let clock = &*self.directory.clock;
        for _ in 0..MAX_LEASE_ATTEMPTS {
            let before = (clock.instant(), clock.now());
            match self.directory.take_write_lease(&self.memory) {
                LeaseOutcome::Granted => {
                    return Ok(ExclusiveAccess::new(&self.memory, clock, before));
                }
                LeaseOutcome::OpenElsewhere => clock.sleep(Duration::from_millis(10)),
                LeaseOutcome::Unavailable => {
                    return in_use("and this process has no right to take a lease on it");
                }
            }
        }
        in_use("and another process has it open")
    }

    /// Writes the staged file's content over the memory and syncs it; if writing fails, writes the
    /// copy back.
    fn write_or_put_back(&self, exclusive: &ExclusiveAccess<'_>) -> Result<(), TransportError> {
        let end = Some(exclusive.last_confirmed.get() + MAX_EXCLUSIVE_TIME);
        let written = self.copy_content(exclusive, &self.source, end);
        let put_back = match &written {
            Err(OverwriteError::Failed(_)) => self.copy_content(exclusive, &self.copy, None),
            _ => Ok(()),
        };
        sys::release_lease(self.memory.as_fd());
        let synced = fs::fsync(&self.memory).with_path("sync", &self.path);
        let copy_name = &self.copy_name;
        match (written, put_back, synced) {
            (Ok(()), _, Ok(())) => Ok(()),
            (Err(OverwriteError::Failed(error)), Ok(()), Ok(())) => {
                self.directory.remove_name(copy_name)?;
                Err(refused_error(error.with_hint("the memory is unchanged")))
            }
            (Err(OverwriteError::LeaseRevoked(frozen)), _, _)
            | (_, Err(OverwriteError::LeaseRevoked(frozen)), _) => Err(self.half_written_error(
                &format!(
                    "was written in place while another process may have had it open: writes \
                         between {frozen} may be overwritten; its earlier content is in \
                         {copy_name} beside it"
                ),
                "this process was stopped for longer than the kernel keeps a lease",
            )),
            // A failed sync is final, so the earlier content is not restored after it.
            (Ok(()), _, Err(error)) => Err(self.half_written_error(
                "was written in place, but may not be on the disk",
                error.message(),
            )),
            (Err(OverwriteError::Failed(error)), _, _) => Err(self.half_written_error(
                &format!("may be half written; its earlier content is in {copy_name} beside it"),
                error.message(),
            )),
        }
    }

    /// Writes one file's content over the memory before `end`.
    fn copy_content(
        &self,
        exclusive: &ExclusiveAccess<'_>,
        source: &StdFile,
        end: Option<Instant>,
    ) -> Result<(), OverwriteError> {
        let path = &self.path;
        let step = || {
            exclusive.check()?;
            if end.is_some_and(|end| exclusive.clock.instant() >= end) {
                let error = in_use_error(path, "and writing it took too long");
                return Err(OverwriteError::Failed(error.into()));
            }
            Ok(())
        };
        let mut offset = 0;
        let mut failed = None;
        let read = read_content(source, path, &mut |bytes| {
            let written = step().and_then(|()| {
                let written = self.memory.write_all_at(bytes, offset);
                written
                    .with_path("write", path)
                    .map_err(OverwriteError::Failed)
            });
            offset += bytes.len() as u64;
            written.map_err(|why| {
                failed = Some(why);
                Error::new(ErrorKind::Internal, "the memory was not written")
            })
        });
        match (failed, read) {
            (Some(why), _) => return Err(why),
            (None, Err(error)) => return Err(OverwriteError::Failed(error.into())),
            (None, Ok(_)) => {}
        }
        step()?;
        let truncated = fs::ftruncate(&self.memory, offset).with_path("truncate", path);
        truncated.map_err(OverwriteError::Failed)?;
        exclusive.check()
    }

    fn half_written_error(&self, what: &str, why: &str) -> TransportError {
        let message = format!("{} {what}: {why}", self.path.display());
        let error = Error::new(ErrorKind::Host, message).with_hint("the next run writes it again");
        TransportError::new(FailureCause::HalfWritten, error)
    }
}

/// Opens the memory at `name` for reading and writing.
fn open_for_writing(
    directory: &OpenDirectory,
    name: &OsStr,
    path: &Path,
) -> Result<StdFile, TransportError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = directory
        .open_with_flags(name, flags)
        .map_err(|errno| match errno {
            Errno::AGAIN => in_use_error(path, "and another process holds a lease on it"),
            errno => {
                directory.explain_swap_error(name, Error::from_io("write", path, &errno.into()))
            }
        })?;
    let object = directory.classify_object(name, &fstat(&file, path)?);
    match object.or_refused("stat", path)? {
        MemoryObject::File(_) => Ok(file),
        _ => Err(replaced_error(path)),
    }
}

/// Copies the memory to a file beside it and syncs that file.
fn copy_aside(
    directory: &OpenDirectory,
    memory: &StdFile,
    path: &Path,
    staged: &str,
) -> Result<(String, StdFile), TransportError> {
    let name = new_copy_name(staged)?;
    let copy_path = directory.path_of(&name);
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = directory.create_file(staged, mode).map_err(refused_error)?;
    read_content(memory, path, &mut |bytes| file.write(bytes))?;
    file.unsynced_content().sync().map_err(refused_error)?;
    if !file.link_as(name.as_ref()).map_err(refused_error)? {
        return Err(exists_error(&copy_path));
    }
    file.unsynced_directory().sync().map_err(refused_error)?;
    let copy = file.file().try_clone().or_refused("open", &copy_path)?;
    Ok((name, copy))
}

/// Returns whether the memory begins as `source` does and continues as `copy` does: the state
/// after writing all, a part or nothing of the one over the other.
fn is_half_written_mix(
    memory: &StdFile,
    source: &StdFile,
    copy: &StdFile,
    path: &Path,
) -> Result<bool, TransportError> {
    let (mut offset, mut new, mut known) = (0, true, true);
    read_content(memory, path, &mut |bytes| {
        let mut from = 0;
        if new {
            from = common_prefix_length(source, offset, bytes).with_path("compare", path)?;
            new = from == bytes.len();
        }
        let rest = &bytes[from..];
        let same =
            common_prefix_length(copy, offset + from as u64, rest).with_path("compare", path)?;
        known &= same == rest.len();
        offset += bytes.len() as u64;
        Ok(())
    })?;
    Ok(known)
}

fn in_use_error(path: &Path, why: &str) -> TransportError {
    let message = format!(
        "cannot replace {}: it is a mount point {why}",
        path.display()
    );
    let hint = "mount its directory instead of the file";
    refused_error(Error::new(ErrorKind::Host, message).with_hint(hint))
}

/// The reason why a memory was not written.
enum OverwriteError {
    /// The system refused the write, or it took too long. No other process had the memory open.
    Failed(Error),
    /// Another process may have written to it in this period.
    LeaseRevoked(String),
}

/// Exclusive access to a memory, by a write lease that may be revoked.
struct ExclusiveAccess<'m> {
    memory: &'m StdFile,
    clock: &'m dyn Clock,
    /// Minimum time for which another open waits before the kernel lets it in.
    lease_break_delay: Duration,
    /// The last time at which no other open was waiting.
    last_confirmed: Cell<Instant>,
    last_confirmed_time: Cell<DateTime<FixedOffset>>,
}

impl<'m> ExclusiveAccess<'m> {
    /// Creates the access from a write lease granted after this time.
    fn new(
        memory: &'m StdFile,
        clock: &'m dyn Clock,
        (since, time): (Instant, DateTime<FixedOffset>),
    ) -> ExclusiveAccess<'m> {
        let seconds = std::fs::read_to_string(LEASE_BREAK_TIME_FILE);
        let seconds: Option<u64> = seconds.ok().and_then(|it| it.trim().parse().ok());
        ExclusiveAccess {
            memory,
            clock,
            lease_break_delay: match seconds {
                Some(0) => Duration::MAX,
                // Half of it, since the kernel counts in ticks of its own.
                Some(seconds) => Duration::from_secs(seconds) / 2,
                None => Duration::ZERO,
            },
            last_confirmed: Cell::new(since),
            last_confirmed_time: Cell::new(time),
        }
    }

    /// Returns whether no other process can have had the memory open until now.
    fn is_still_exclusive(&self) -> bool {
        let (now, time) = (self.clock.instant(), self.clock.now());
        if sys::is_write_lease_unbroken(self.memory.as_fd()) {
            self.last_confirmed.set(now);
            self.last_confirmed_time.set(time);
            return true;
        }
        // Another open has asked for the lease since, and is still waiting.
        now.duration_since(self.last_confirmed.get()) < self.lease_break_delay
    }

    /// Fails with the period in which another process may have had the memory open, if one may.
    fn check(&self) -> Result<(), OverwriteError> {
        if self.is_still_exclusive() {
            return Ok(());
        }
        let (from, to) = (self.last_confirmed_time.get(), self.clock.now());
        let period = format!("{} and {}", from.format("%H:%M:%S"), to.format("%H:%M:%S"));
        Err(OverwriteError::LeaseRevoked(period))
    }
}

/// Returns how many of these bytes the file has at this offset.
fn common_prefix_length(file: &StdFile, offset: u64, bytes: &[u8]) -> std::io::Result<usize> {
    let mut file_bytes = vec![0; bytes.len()];
    let mut filled = 0;
    while filled < file_bytes.len() {
        match file.read_at(&mut file_bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let pairs = file_bytes[..filled].iter().zip(bytes);
    Ok(pairs.take_while(|(a, b)| a == b).count())
}
