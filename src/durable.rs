//! Durable file operations: path walks that follow no symlink, new files, syncs, replacements.
//!
//! The pattern for a new file: write it without a name, sync it, link its name without replacing
//! anything, sync the directory. A failed sync is final and is never retried, because the kernel
//! may have dropped the dirty pages. Callers that work on many files collect their syncs in a
//! [`SyncBatch`], which groups them by file system.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::digest::to_hex;
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::file_systems::{FileSystem, GroupedByFileSystem};
use crate::sys;

/// How [`open_directory`] resolves a path without following symlinks.
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
pub fn open_directory(path: &Path, walk: PathWalk) -> Result<OwnedFd> {
    open_directory_errno(path, walk).map_err(|errno| open_directory_error(errno, path))
}

/// Converts an error number of [`open_directory_errno`] to an error with a message.
pub fn open_directory_error(errno: Errno, path: &Path) -> Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR => symlink_in_path_error(path),
        errno => Error::from_io("open the directory", path, &errno.into()),
    }
}

/// Opens a directory like [`open_directory`], and returns the error number on failure.
pub fn open_directory_errno(path: &Path, walk: PathWalk) -> rustix::io::Result<OwnedFd> {
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
                "{} goes through a symbolic link, which is never followed",
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
    match open_directory_errno(path, PathWalk::Openat2) {
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
    open_directory(path, PathWalk::Openat2)
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
    match open_directory_errno(parent, PathWalk::Openat2) {
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => Ok(()),
        Err(errno) => Err(open_directory_error(errno, parent)),
        Ok(directory) => fs::fsync(directory).with_path("sync", parent),
    }
}

/// An open file or directory with changes that may not be on the disk yet.
#[derive(Clone)]
pub struct UnsyncedObject {
    object: Arc<dyn AsFd + Send + Sync>,
    path: PathBuf,
    /// The file system whose calls may hang; None for a trusted one.
    file_system: Option<Arc<FileSystem>>,
}

impl UnsyncedObject {
    /// Wraps the file or directory that `object` has open; `path` is for messages.
    pub fn new(object: Arc<dyn AsFd + Send + Sync>, path: &Path) -> UnsyncedObject {
        UnsyncedObject {
            object,
            path: path.to_path_buf(),
            file_system: None,
        }
    }

    /// Marks it as being on a file system that may hang; its sync then fails after the time limit.
    #[must_use]
    pub fn with_file_system(self, system: &Arc<FileSystem>) -> UnsyncedObject {
        UnsyncedObject {
            file_system: Some(Arc::clone(system)),
            ..self
        }
    }

    /// Syncs it to the disk.
    pub fn sync(&self) -> Result<()> {
        match &self.file_system {
            None => fs::fsync(&*self.object).with_path("sync", &self.path),
            Some(_) => sync_all([self.clone()]),
        }
    }
}

/// How many files of one file system are synced one by one. Larger groups are synced by one
/// `syncfs` call: it may write data of other processes too, but it commits the journal and flushes
/// the disk's cache once instead of once per file.
const MAX_SINGLE_SYNCS: usize = 8;

/// Whether syncfs(2) is reliable on a file system of this type. FUSE, for instance, may report
/// success without asking its server.
fn is_syncfs_reliable(kind: i64) -> bool {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const F2FS: i64 = 0xf2f5_2010;
    const TMPFS: i64 = 0x0102_1994;
    [EXT4, XFS, BTRFS, F2FS, TMPFS].contains(&kind)
}

/// A change, with the number of the agent that it belongs to.
type OwnedChange = (usize, UnsyncedObject);

/// The changes of many agents that must be on the disk before a run continues.
#[derive(Default)]
pub struct SyncBatch {
    /// Each with the number of its agent.
    changes: Vec<OwnedChange>,
}

impl SyncBatch {
    /// Adds the changes of the agent with the number `owner`.
    pub fn add(&mut self, owner: usize, changed: impl IntoIterator<Item = UnsyncedObject>) {
        let changed = changed.into_iter();
        self.changes
            .extend(changed.map(|unsynced| (owner, unsynced)));
    }

    /// Syncs all changes, and returns the numbers of the agents whose sync failed, with the errors.
    pub fn sync(self) -> Vec<(usize, Error)> {
        let mut groups = GroupedByFileSystem::default();
        for (owner, unsynced) in self.changes {
            groups.add(unsynced.file_system.clone(), (owner, unsynced));
        }
        let mut failed = sync_grouped(groups.trusted);
        for (system, pending) in groups.untrusted {
            let owners: Vec<usize> = pending.iter().map(|(owner, _)| *owner).collect();
            match system.call(move || sync_grouped(pending)) {
                Ok(errors) => failed.extend(errors),
                Err(error) => {
                    failed.extend(owners.into_iter().map(|owner| (owner, error.clone())));
                }
            }
        }
        failed
    }
}

struct PendingSync {
    /// The number of the agent that it belongs to.
    owner: usize,
    /// The device number of its file system.
    device: u64,
    /// A directory has no pages of its own whose writeback could fail: its names are in the
    /// journal, whose errors a sync of any file reports.
    is_directory: bool,
    unsynced: UnsyncedObject,
}

/// Syncs files and directories, many on one file system in one call, and returns the numbers of the
/// agents whose sync failed, with the errors.
fn sync_grouped(all: Vec<OwnedChange>) -> Vec<(usize, Error)> {
    let (mut pending, mut failed) = (Vec::with_capacity(all.len()), Vec::new());
    for (owner, unsynced) in all {
        match fs::fstat(&*unsynced.object).with_path("stat", &unsynced.path) {
            Ok(stat) => pending.push(PendingSync {
                owner,
                device: stat.st_dev,
                is_directory: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
                unsynced,
            }),
            Err(error) => failed.push((owner, error)),
        }
    }
    pending.sort_by_key(|pending| pending.device);
    for group in pending.chunk_by(|a, b| a.device == b.device) {
        let any = &*group[0].unsynced.object;
        let use_syncfs = group.len() > MAX_SINGLE_SYNCS
            && fs::fstatfs(any).is_ok_and(|system| is_syncfs_reliable(system.f_type));
        // Old kernels do not report a failed journal commit from syncfs, but they do from fsync of
        // one file.
        let group_outcome = use_syncfs.then(|| fs::syncfs(any).and_then(|()| fs::fsync(any)));
        for pending in group {
            let UnsyncedObject { object, path, .. } = &pending.unsynced;
            let synced = match group_outcome {
                None => fs::fsync(&**object),
                Some(whole) if pending.is_directory => whole,
                // Before 5.8, syncfs does not report failed writeback of contents either.
                Some(whole) => whole.and_then(|()| sys::wait_for_writeback(object.as_fd())),
            };
            let error = synced.with_path("sync", path).err();
            failed.extend(error.map(|error| (pending.owner, error)));
        }
    }
    failed
}

/// Syncs files and directories.
///
/// # Errors
/// The first error, which is final.
pub fn sync_all(changed: impl IntoIterator<Item = UnsyncedObject>) -> Result<()> {
    let mut flush = SyncBatch::default();
    flush.add(0, changed);
    match flush.sync().into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// A new file without a name in `directory`, or with an unguessable name on file systems that do
/// not support `O_TMPFILE`.
pub struct NewFile {
    directory: Arc<OwnedFd>,
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    /// The length at which writeback was last started.
    writeback_start_length: u64,
    provisional_name: Option<String>,
}

/// The largest file whose writeback is started early.
const MAX_EARLY_WRITEBACK_BYTES: u64 = 1 << 20;

/// How many bytes of a long file are written before their writeback is started.
const WRITEBACK_INTERVAL_BYTES: u64 = 8 << 20;

/// The shortest write of zeros that becomes a hole in a new file. A sparse memory may be far larger
/// than the disk of the archive.
const MIN_HOLE_BYTES: usize = 64 * 1024;

impl NewFile {
    /// Creates a file in `directory`; `path` is the directory's path, for messages.
    pub fn create(directory: &Arc<OwnedFd>, path: &Path, mode: Mode) -> Result<NewFile> {
        NewFile::create_with_options(directory, path, mode, new_random_name, true)
    }

    /// Creates a file that has the name `provisional` until it is linked, if the file system does
    /// not support nameless files or `may_be_nameless` is false.
    pub fn create_with_options(
        directory: &Arc<OwnedFd>,
        path: &Path,
        mode: Mode,
        provisional: impl FnOnce() -> Result<String>,
        may_be_nameless: bool,
    ) -> Result<NewFile> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let open = |name: &str, more| fs::openat(&**directory, name, flags | more, mode);
        let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let nameless = if may_be_nameless {
            open(".", OFlags::TMPFILE)
        } else {
            Err(Errno::OPNOTSUPP)
        };
        let (file, provisional) = match nameless {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let provisional = provisional()?;
                (open(&provisional, exclusive), Some(provisional))
            }
            file => (file, None),
        };
        Ok(NewFile {
            directory: Arc::clone(directory),
            path: path.to_path_buf(),
            file: Arc::new(File::from(file.with_path("create a file in", path)?)),
            length: 0,
            writeback_start_length: 0,
            provisional_name: provisional,
        })
    }

    /// Returns the open file, for changes of owner, mode and attributes.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// For example a full disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.length += bytes.len() as u64;
        let mut file = &*self.file;
        let written = if bytes.len() >= MIN_HOLE_BYTES && is_all_zeros(bytes) {
            file.set_len(self.length)
                .and_then(|()| file.seek(SeekFrom::End(0)).map(drop))
        } else {
            file.write_all(bytes)
        };
        if self.length - self.writeback_start_length >= WRITEBACK_INTERVAL_BYTES {
            self.writeback_start_length = self.length;
            sys::start_writeback(self.file.as_fd());
        }
        written.with_path("write a new file in", &self.path)
    }

    /// Starts the writeback of a short file, so that the disk works while the caller prepares other
    /// files. For a long file the call itself would block.
    pub fn start_writeback(&self) {
        if self.length <= MAX_EARLY_WRITEBACK_BYTES {
            sys::start_writeback(self.file.as_fd());
        }
    }

    /// Returns its content for a sync, which must succeed before the file is linked.
    pub fn unsynced_content(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.file) as _, &self.path)
    }

    /// Returns the path of its directory.
    pub fn directory_path(&self) -> &Path {
        &self.path
    }

    /// Returns the open directory.
    pub fn directory_fd(&self) -> &OwnedFd {
        &self.directory
    }

    /// Returns its directory for a sync, which must follow the link.
    pub fn unsynced_directory(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.directory) as _, &self.path)
    }

    /// Links the file as `name`. Returns false if the name is taken, so that the caller can try
    /// another one.
    pub fn link_as(&mut self, name: &OsStr) -> Result<bool> {
        let path = self.path.join(name);
        let linked = match &self.provisional_name {
            Some(provisional) => fs::linkat(
                &self.directory,
                provisional,
                &self.directory,
                name,
                AtFlags::empty(),
            ),
            None => match fs::linkat(&*self.file, "", &self.directory, name, AtFlags::EMPTY_PATH) {
                // Kernels before 6.10 require a capability for AT_EMPTY_PATH.
                Err(Errno::NOENT | Errno::PERM) => fs::linkat(
                    fs::CWD,
                    format!("/proc/self/fd/{}", self.file.as_raw_fd()),
                    &self.directory,
                    name,
                    AtFlags::SYMLINK_FOLLOW,
                ),
                result => result,
            },
        };
        match linked {
            Ok(()) => {
                if let Some(provisional) = self.provisional_name.take() {
                    fs::unlinkat(&self.directory, &provisional, AtFlags::empty())
                        .with_path("remove", &self.path.join(provisional))?;
                }
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno).with_path("create", &path),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(name) = &self.provisional_name {
            // Best effort, after an error or for a trial file. A file that a killed run leaves in
            // an agent's directory is named by the run's journal; in the program's own directories
            // `remove_stale_files` removes it.
            let _ = fs::unlinkat(&self.directory, name, AtFlags::empty());
        }
    }
}

fn is_all_zeros(bytes: &[u8]) -> bool {
    // Comparing slices is many times faster than a loop over bytes.
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut pieces = bytes.chunks(ZEROS.len());
    pieces.all(|piece| *piece == ZEROS[..piece.len()])
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
    let file = open_nofollow_nonblocking(path, options)?;
    check_regular_file(&file, "it is not a regular file; move it away")?;
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
            let message = format!("{} is locked by another process", path.display());
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
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_large_error(max_bytes));
    }
    Ok(bytes)
}

/// Returns the error for a file of more than `max_bytes` bytes.
pub fn too_large_error(max_bytes: u64) -> io::Error {
    let text = format!("it is larger than {max_bytes} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

fn check_regular_file(file: &File, message: &str) -> io::Result<()> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Replaces `path` atomically: writes a new file beside it, syncs it, renames it over `path` and
/// syncs the directory. For files that only this program writes.
///
/// # Errors
/// On failure before the last sync the old file is unchanged.
pub fn replace_file(path: &Path, bytes: &[u8], mode: Mode) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::new(
            ErrorKind::Host,
            format!("{} is not a file path", path.display()),
        ));
    };
    let directory = Arc::new(open_directory(parent, PathWalk::Openat2)?);
    let mut file = NewFile::create(&directory, parent, mode)?;
    file.write(bytes)?;
    file.unsynced_content().sync()?;
    let provisional = new_random_name()?;
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
    file.unsynced_directory().sync()
}

/// Removes files with random names that runs killed long before `now` have left in a directory that
/// only this program writes, and returns how many. It spares the names that `find_named` returns.
/// `find_named` is called after the listing: a file that is named later is not in the listing, and
/// a file that is named already is among those names.
///
/// # Errors
/// A directory that cannot be listed. A directory that does not exist, or that only a symlink leads
/// to, holds no such files, because no run ever wrote there.
pub fn remove_stale_files(
    path: &Path,
    now: SystemTime,
    find_named: impl FnOnce() -> Result<HashSet<String>>,
) -> Result<usize> {
    let directory = match open_directory_errno(path, PathWalk::Openat2) {
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(0),
        directory => directory.with_path("open the directory", path)?,
    };
    let mut stale = list_stale_files(&directory, path, now)?;
    if stale.is_empty() {
        return Ok(0);
    }
    let named = find_named()?;
    stale.retain(|name| !named.contains(name));
    let mut removed = 0;
    for name in stale {
        match fs::unlinkat(&directory, &name, AtFlags::empty()) {
            Ok(()) => removed += 1,
            // Another run has removed it.
            Err(Errno::NOENT) => {}
            Err(errno) => Err(errno).with_path("remove", &path.join(name))?,
        }
    }
    Ok(removed)
}

/// Lists the regular files with random names that were last modified before `now` minus
/// [`STALE_AGE`].
fn list_stale_files(directory: &OwnedFd, path: &Path, now: SystemTime) -> Result<Vec<String>> {
    let limit = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| {
        now.saturating_sub(STALE_AGE).as_secs().min(i64::MAX as u64) as i64
    });
    let mut stale = Vec::new();
    for entry in fs::Dir::read_from(directory).with_path("list", path)? {
        let entry = entry.with_path("list", path)?;
        let name = str::from_utf8(entry.file_name().to_bytes());
        let Some(name) = name.ok().filter(|name| is_random_name(name)) else {
            continue;
        };
        let stat = match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat.with_path("stat", &path.join(name))?,
        };
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if file && stat.st_mtime < limit {
            stale.push(name.to_string());
        }
    }
    Ok(stale)
}

/// Returns every random name that occurs in a text.
pub fn find_random_names(text: &[u8]) -> HashSet<String> {
    text.windows(RANDOM_NAME_PREFIX.len() + RANDOM_NAME_DIGITS)
        .filter(|window| window.starts_with(RANDOM_NAME_PREFIX.as_bytes()))
        .filter_map(|window| str::from_utf8(window).ok())
        .filter(|name| is_random_name(name))
        .map(str::to_string)
        .collect()
}

/// Whether a name has the form of those that [`new_random_name`] returns.
pub fn is_random_name(name: &str) -> bool {
    let digits = name.strip_prefix(RANDOM_NAME_PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == RANDOM_NAME_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// The age from which a file with a random name is stale: no run works on one for that long.
const STALE_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The prefix of random names, and how many hexadecimal digits follow it.
const RANDOM_NAME_PREFIX: &str = ".shepherd-";
const RANDOM_NAME_DIGITS: usize = 32;

/// Returns an unguessable dot name. It does not end in `.md`, because agents watch and index such
/// files.
///
/// # Errors
/// The kernel returns no random bytes.
pub fn new_random_name() -> Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .with_path("read random bytes from", Path::new("the kernel"))?;
    Ok(format!("{RANDOM_NAME_PREFIX}{}", to_hex(&bytes)))
}

#[cfg(test)]
mod tests {
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
    fn random_names_are_found_in_any_text() {
        let (one, two) = (new_random_name().unwrap(), new_random_name().unwrap());
        let text = format!("{one}{two}-copy {{\"staged\":\"{one}\"}} .shepherd-12 \u{e9}");
        assert_eq!(
            find_random_names(text.as_bytes()),
            HashSet::from([one, two])
        );
        assert_eq!(find_random_names(b".shepherd-"), HashSet::new());
    }

    #[test]
    fn one_nonzero_byte_is_not_all_zeros() {
        for length in [1, 4095, 4096, 4097, 128 * 1024] {
            let mut bytes = vec![0; length];
            assert!(is_all_zeros(&bytes));
            bytes[length - 1] = 1;
            assert!(!is_all_zeros(&bytes));
        }
    }
}
