//! Durable file operations: path walks that follow no symlink, new files, syncs, replacements.
//!
//! The pattern for a new file: write it without a name, sync it, link its name without replacing
//! anything, sync the directory. A failed sync is final and is never retried, because the kernel
//! may have dropped the dirty pages. Callers that work on many files collect their syncs in a
//! [`SyncBatch`], which groups them by file system.

mod immutable;
mod new_file;
mod operator_directory;
mod path_walk;
mod random_names;
mod replacement;
mod sync_batch;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, Mode};

use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::sys;
pub use immutable::{ClearedFlag, clear_immutable, flag_commands, is_immutable};
pub use new_file::NewFile;
pub use operator_directory::{OperatorDirectory, ReplacedFile, component_names};
pub use path_walk::{
    PathWalk, create_directory, is_directory_no_symlinks, open_directory, open_directory_by,
    open_directory_errno, open_directory_error, resolve_first_symlink, resolve_symlinks,
    stat_no_symlinks, stat_no_symlinks_with_directory, sync_directory_name,
};
pub use random_names::{find_random_names, is_random_name, new_random_name, remove_stale_files};
use replacement::remove_replacement_leftovers;
pub use replacement::{
    DisplacedFile, ExpectedFile, InstalledFile, LostAttributes, Replacement, ReplacementNames,
    ReplacementPaths, can_exchange_files, remove_leftovers_in,
};
pub use sync_batch::{SyncBatch, UnsyncedObject, sync_all};

/// Returns whether an error says that nothing is at a path.
pub fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Names a type of object that is not the file that a path should hold.
pub fn describe_file_type(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "a symlink",
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "not a regular file",
    }
}

/// Opens an object of any type but a symlink, which is not followed; the open of a FIFO does not
/// block.
pub fn open_nofollow_nonblocking(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    options.custom_flags(flags).open(path)
}

/// Opens a file that only this program writes, as [`open_nofollow_nonblocking`] does.
///
/// # Errors
/// What the system answered, or that it is not a regular file.
pub fn open_own_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    const NOT_REGULAR_MESSAGE: &str = "it is not a regular file; move it away";
    let file = open_nofollow_nonblocking(path, options).map_err(|error| {
        // A symlink, or a socket.
        if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) {
            io::Error::new(io::ErrorKind::InvalidInput, NOT_REGULAR_MESSAGE)
        } else {
            error
        }
    })?;
    check_regular_file(&file, NOT_REGULAR_MESSAGE)?;
    Ok(file)
}

/// Reads a file that only this program writes, opened by [`open_own_file`].
///
/// # Errors
/// What the system answered, or that it is not a regular file.
pub fn read_own_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_own_file(path, OpenOptions::new().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How long [`wait_for_lock`] waits for a lock that is only held briefly.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Takes a lock that is only held briefly, waiting up to ten seconds. Closing the file releases it.
///
/// # Errors
/// [`ErrorKind::Busy`] if another process holds it for ten seconds.
pub fn wait_for_lock(file: &File, path: &Path, clock: &dyn Clock) -> Result<()> {
    let end = clock.instant() + LOCK_TIMEOUT;
    while !sys::try_lock(file.as_fd()).with_path("lock", path)? {
        if clock.instant() >= end {
            let (path, limit) = (path.display(), LOCK_TIMEOUT.as_secs());
            let message = format!("{path} has been locked by another process for {limit} s");
            return Err(Error::new(ErrorKind::Busy, message));
        }
        clock.sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Reads a file of the operator of at most `max_bytes` bytes, following symlinks. It never waits
/// for a FIFO or a device.
///
/// # Errors
/// A file that is not regular, or [`io::ErrorKind::FileTooLarge`].
pub fn read_regular_file(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    check_regular_file(&file, "it is not a regular file")?;
    read_at_most(file, max_bytes)
}

/// Reads like [`read_regular_file`], but also a pipe or a device, to its end.
///
/// # Errors
/// A FIFO that no program opens for writing within `timeout`, or [`io::ErrorKind::FileTooLarge`].
pub fn read_file_or_pipe(path: &Path, max_bytes: u64, timeout: Duration) -> io::Result<Vec<u8>> {
    let file = if std::fs::metadata(path)?.file_type().is_fifo() {
        open_fifo(path, timeout)?
    } else {
        File::open(path)?
    };
    read_at_most(file, max_bytes)
}

/// Opens a FIFO for reading. The open waits for a writer and cannot be cancelled, so it runs on a
/// thread, which is abandoned after `timeout`.
fn open_fifo(path: &Path, timeout: Duration) -> io::Result<File> {
    let (sender, opened) = crossbeam_channel::bounded(1);
    let own_path = path.to_path_buf();
    thread::Builder::new().spawn(move || {
        // The receiver of an abandoned open is gone.
        let _ = sender.send(File::open(own_path));
    })?;
    opened.recv_timeout(timeout).unwrap_or_else(|_| {
        let seconds = timeout.as_secs();
        let text = format!(
            "it is a FIFO, and no program opened it for writing within {seconds} s; give the path \
             of a file, or start the program that writes"
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    })
}

/// Reads a file of at most `max_bytes` bytes.
///
/// # Errors
/// What the system answered, or [`io::ErrorKind::FileTooLarge`].
pub fn read_at_most(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let text = format!("it is larger than {max_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

fn check_regular_file(file: &File, message: &str) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Replaces `path` atomically: writes a new file beside it, syncs it, renames it over `path` and
/// syncs the directory. For files that only this program writes. What an earlier replacement of it has
/// left that was killed is removed.
///
/// # Errors
/// On failure before the last sync the old file is unchanged.
pub fn replace_file(path: &Path, bytes: &[u8], mode: Mode) -> Result<()> {
    replace_prepared_file(path, bytes, mode, |_| Ok(())).map(drop)
}

/// Replaces `path` as [`replace_file`] does, with a file that is locked before it has that name. The
/// lock ends when the result is dropped, or with the process.
///
/// # Errors
/// As [`replace_file`], or the file system has no locks.
pub fn replace_locked_file(path: &Path, bytes: &[u8], mode: Mode) -> Result<Arc<File>> {
    replace_prepared_file(path, bytes, mode, |file| {
        // No other process can have a file that has no name yet.
        sys::try_lock(file.as_fd())
            .with_path("lock", path)
            .map(drop)
    })
}

/// Replaces `path` as [`replace_file`] does, with a file that `prepare` has changed before it is
/// synced and has that name.
///
/// # Errors
/// As [`replace_file`], and those of `prepare`.
pub fn replace_prepared_file(
    path: &Path,
    bytes: &[u8],
    mode: Mode,
    prepare: impl FnOnce(&File) -> Result<()>,
) -> Result<Arc<File>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::new(
            ErrorKind::Host,
            format!("{} is not a file path", path.display()),
        ));
    };
    let directory = Arc::new(open_directory(parent)?);
    let names = ReplacementNames::describing(name, None, Digest::of(bytes))?;
    let (provisional, unfinished) = names.into_provisional();
    let unfinished = || Ok(unfinished);
    let mut file = NewFile::create_with_options(&directory, parent, mode, unfinished, true)?;
    // Until it has its name, another process spares it. A file system without locks has no leftovers
    // that are removed.
    let _ = sys::try_lock(file.file().as_fd());
    file.write(bytes)?;
    prepare(file.file())?;
    file.unsynced_content().sync()?;
    if !file.link_as(OsStr::new(&provisional))? {
        return Err(Error::from_io(
            "write",
            path,
            &io::Error::from(io::ErrorKind::AlreadyExists),
        ));
    }
    if let Err(errno) = fs::renameat(&directory, &provisional, &directory, name) {
        let _ = fs::unlinkat(&directory, &provisional, AtFlags::empty());
        return Err(errno).with_path("replace", path);
    }
    file.unsynced_directory().sync()?;
    remove_replacement_leftovers(&directory, [name]);
    Ok(Arc::clone(file.file()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use rustix::fs::FileType;

    use super::*;

    #[test]
    fn read_regular_reads_only_bounded_regular_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (fifo, mode) = (FileType::Fifo, Mode::RUSR | Mode::WUSR);
        fs::mknodat(fs::CWD, path("fifo"), fifo, mode, 0).unwrap();
        std::fs::write(path("file"), "0123456789").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
        assert_eq!(read_regular_file(&path("link"), 10).unwrap(), b"0123456789");
        let kind = |name: &str, most| read_regular_file(&path(name), most).unwrap_err().kind();
        assert_eq!(kind("link", 9), io::ErrorKind::FileTooLarge);
        for name in ["fifo", "zero"] {
            assert_eq!(kind(name, 10), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(kind("none", 10), io::ErrorKind::NotFound);
    }

    #[test]
    fn fifo_without_writer_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        fs::mknodat(fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let error = read_file_or_pipe(&fifo, 10, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn closed_pipe_and_device_are_read_to_their_end() {
        let timeout = Duration::from_secs(60);
        for written in ["", "0123456789"] {
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(written.as_bytes()).unwrap();
            drop(writer);
            let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
            let read = read_file_or_pipe(Path::new(&path), 10, timeout).unwrap();
            assert_eq!(read, written.as_bytes());
        }
        let null = read_file_or_pipe(Path::new("/dev/null"), 10, timeout);
        assert_eq!(null.unwrap(), b"");
        let zero = read_file_or_pipe(Path::new("/dev/zero"), 10, timeout);
        assert_eq!(zero.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
}
