//! Paths that are resolved without following symlinks: open, stat and creation of directories.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::base::error::{Error, ErrorKind, PathContext, Result};

/// How [`open_directory_by`] resolves a path without following symlinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathWalk {
    /// By `openat2`; component by component where the kernel or a seccomp filter refuses it.
    #[default]
    Openat2,
    /// Always component by component: the fallback, for tests of it.
    Components,
}

/// Opens a directory; no component of its path may be a symlink.
///
/// # Errors
/// A symlink in the path is an error whose hint names the real path.
pub fn open_directory(path: &Path) -> Result<OwnedFd> {
    open_directory_errno(path).map_err(|errno| open_directory_error(errno, path))
}

/// Converts an error number of [`open_directory_errno`] to an error with a message.
pub fn open_directory_error(errno: Errno, path: &Path) -> Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR => symlink_in_path_error(path),
        errno => Error::from_io("open the directory", path, &errno.into()),
    }
}

/// Opens a directory like [`open_directory`], and returns the error number on failure.
pub fn open_directory_errno(path: &Path) -> rustix::io::Result<OwnedFd> {
    open_directory_by(path, PathWalk::default())
}

/// Opens a directory like [`open_directory_errno`], by this walk.
pub fn open_directory_by(path: &Path, walk: PathWalk) -> rustix::io::Result<OwnedFd> {
    open_no_symlinks(path, walk, OFlags::RDONLY)
}

/// Returns the status of the object at a path whose directory has no symlink; a symlink in the last
/// component is not followed. It opens nothing that a watch of the directory would report, and
/// calls no file system that the path itself does not cross.
///
/// # Errors
/// `ELOOP` or `ENOTDIR` for a symlink in the path.
pub fn stat_no_symlinks(path: &Path) -> rustix::io::Result<Stat> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return fs::lstat(path);
    };
    let parent = open_no_symlinks(parent, PathWalk::Openat2, OFlags::PATH)?;
    fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns the status of the object at a path, as [`stat_no_symlinks`] does, and of its directory,
/// which is opened once.
///
/// # Errors
/// As [`stat_no_symlinks`], of the directory.
pub fn stat_no_symlinks_with_directory(
    path: &Path,
) -> rustix::io::Result<(rustix::io::Result<Stat>, Stat)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = open_no_symlinks(parent, PathWalk::Openat2, OFlags::PATH)?;
    let file = fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
    Ok((file, fs::fstat(&parent)?))
}

/// Whether the path is a directory and has no symlink in it.
pub fn is_directory_no_symlinks(path: &Path) -> bool {
    let stat = stat_no_symlinks(path);
    stat.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Directory)
}

fn open_no_symlinks(path: &Path, walk: PathWalk, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if walk == PathWalk::Openat2 {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match fs::openat2(fs::CWD, path, flags, Mode::empty(), resolve) {
            // ENOSYS: an old kernel; EPERM: a seccomp filter such as systemd's.
            Err(Errno::NOSYS | Errno::PERM) => {}
            result => return result,
        }
    }
    let mut directory: Option<OwnedFd> = None;
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let name: &OsStr = match component {
            Component::RootDir => OsStr::new("/"),
            Component::CurDir => continue,
            other => other.as_os_str(),
        };
        let at = directory.as_ref().map_or(fs::CWD, AsFd::as_fd);
        let access = match components.peek() {
            None => access,
            Some(_) => OFlags::PATH,
        };
        let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        directory = Some(fs::openat(at, name, flags, Mode::empty())?);
    }
    match directory {
        Some(directory) => Ok(directory),
        None => fs::open(".", flags, Mode::empty()),
    }
}

/// Returns the path with its symlinks resolved; components that do not exist yet are appended
/// unchanged.
pub fn resolve_symlinks(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|existing| {
        let missing = path.strip_prefix(existing).ok()?;
        let resolved = existing.canonicalize().ok()?;
        // Joining an empty path would end the result with a slash.
        Some(resolved.components().chain(missing.components()).collect())
    })
}

/// Returns the path with its first symlink replaced by that link's target, or None if it has no
/// symlink. The target itself is not accessed: it may be on a file system that hangs, and an agent
/// may have created the link.
pub fn resolve_first_symlink(path: &Path) -> Option<PathBuf> {
    let mut outermost: Vec<&Path> = path.ancestors().collect();
    outermost.reverse();
    for prefix in outermost {
        match fs::lstat(prefix).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Symlink) => {
                let target = std::fs::read_link(prefix).ok()?;
                let rest = path.strip_prefix(prefix).ok()?;
                // No component above it is a symlink.
                let mut resolved = prefix.parent()?.to_path_buf();
                let mut target = target.components().peekable();
                while target.next_if_eq(&Component::ParentDir).is_some() {
                    resolved.pop();
                }
                resolved.extend(target.chain(rest.components()));
                return Some(resolved);
            }
            Ok(FileType::Directory) => {}
            _ => return None,
        }
    }
    None
}

fn symlink_in_path_error(path: &Path) -> Error {
    match resolve_first_symlink(path) {
        Some(resolved) => Error::new(
            ErrorKind::Host,
            format!(
                "{} goes through a symlink, which is never followed",
                path.display()
            ),
        )
        .with_hint(format!(
            "write the real path in the configuration: {}",
            resolved.display()
        )),
        None => Error::new(
            ErrorKind::Host,
            format!("{} is not a directory", path.display()),
        ),
    }
}

/// Creates a directory with `mode` and its missing parents with `mode` plus all rights of their
/// owner, syncs each into its parent, and opens it. Existing directories keep their mode.
///
/// # Errors
/// A symlink in the path, or a failed sync. A directory whose name could not be synced is removed
/// again: the next run would take it for a durable one.
pub fn create_directory(path: &Path, mode: Mode) -> Result<OwnedFd> {
    match open_directory_errno(path) {
        Err(Errno::NOENT) => {}
        result => return result.map_err(|errno| open_directory_error(errno, path)),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::new(
            ErrorKind::Host,
            format!("{} is not a directory", path.display()),
        ));
    };
    let parent_fd = create_directory(parent, mode | Mode::RWXU)?;
    let was_created = match fs::mkdirat(&parent_fd, name, mode) {
        Ok(()) => true,
        // Another process has created it: the open below checks it.
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno).with_path("make the directory", path),
    };
    if let Err(errno) = fs::fsync(&parent_fd) {
        if was_created {
            // It is new, so it holds nothing that must last.
            let _ = fs::unlinkat(&parent_fd, name, AtFlags::REMOVEDIR);
        }
        return Err(errno).with_path("sync the directory", parent);
    }
    open_directory(path)
}

/// Syncs the name of a directory into its parent: the process that created it may have been killed
/// before its own sync. A parent that this process may not read is skipped, because this program
/// cannot have created anything in it.
///
/// # Errors
/// What the system answered, or a link in the path.
pub fn sync_directory_name(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    match open_directory_errno(parent) {
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => Ok(()),
        Err(errno) => Err(open_directory_error(errno, parent)),
        Ok(directory) => fs::fsync(directory).with_path("sync", parent),
    }
}
