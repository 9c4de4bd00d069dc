//! Files that are on the disk before anybody relies on them, in directories that
//! were reached without following a link.
//!
//! The pattern: write a file that has no name yet, sync it, give it its name
//! without replacing anything, sync the directory. A failed sync is final: it is
//! never tried again, because the kernel may have dropped the dirty pages.
//!
//! Whoever works on many files gathers what has to be synced in a [`SyncBatch`],
//! which does it for all of them at once.

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

/// How a path is walked without following links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathWalk {
    /// By `openat2`, and component by component where the kernel or a seccomp
    /// filter refuses it.
    #[default]
    Openat2,
    /// Always component by component: the fallback, on its own.
    Components,
}

/// Opens a directory; no component of its path may be a link.
///
/// # Errors
/// A link in the path is an error that names the real path; otherwise what the
/// system answered.
pub fn open_directory(path: &Path, walk: PathWalk) -> Result<OwnedFd> {
    open_directory_errno(path, walk).map_err(|errno| open_directory_error(errno, path))
}

/// Why [`open_directory_errno`] did not open a directory, in words.
pub fn open_directory_error(errno: Errno, path: &Path) -> Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR => symlink_in_path_error(path),
        errno => Error::from_io("open the directory", path, &errno.into()),
    }
}

/// Like [`open_directory`], with the bare error number.
pub fn open_directory_errno(path: &Path, walk: PathWalk) -> rustix::io::Result<OwnedFd> {
    open_no_symlinks(path, walk, OFlags::RDONLY)
}

/// The status of what stands at a path, where no component leads through a link; the
/// last one is not followed. Nothing is opened that a watch of the directory tells of,
/// and no file system is asked that the path itself does not cross.
///
/// # Errors
/// What the system answered; `ELOOP` or `ENOTDIR` for a link.
pub fn stat_no_symlinks(path: &Path) -> rustix::io::Result<Stat> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return fs::lstat(path);
    };
    let parent = open_no_symlinks(parent, PathWalk::Openat2, OFlags::PATH)?;
    fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// The same of what stands at a path, and the status of its directory, which is opened once.
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

/// Whether a directory stands at a path that leads through no link.
pub fn is_directory_no_symlinks(path: &Path) -> bool {
    let stat = stat_no_symlinks(path);
    stat.is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Directory)
}

fn open_no_symlinks(path: &Path, walk: PathWalk, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if walk == PathWalk::Openat2 {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match fs::openat2(fs::CWD, path, flags, Mode::empty(), resolve) {
            // ENOSYS: an old kernel; EPERM: a filter such as systemd's.
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

/// The path without links. What does not exist yet is behind what does.
pub fn resolve_symlinks(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|existing| {
        let missing = path.strip_prefix(existing).ok()?;
        let real = existing.canonicalize().ok()?;
        // To join nothing would end it with a slash.
        Some(real.components().chain(missing.components()).collect())
    })
}

/// Where the first link in a path leads: the same path without that link. None where
/// there is no link. What the link leads to is not looked at: it may be on a file system
/// that hangs, and an agent may have made the link.
pub fn resolve_first_symlink(path: &Path) -> Option<PathBuf> {
    let mut outermost: Vec<&Path> = path.ancestors().collect();
    outermost.reverse();
    for prefix in outermost {
        match fs::lstat(prefix).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Symlink) => {
                let target = std::fs::read_link(prefix).ok()?;
                let rest = path.strip_prefix(prefix).ok()?;
                // No component above it is a link.
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
        Some(real) => Error::new(
            ErrorKind::Host,
            format!(
                "{} goes through a symbolic link, which is never followed",
                path.display()
            ),
        )
        .with_hint(format!(
            "write the real path in the configuration: {}",
            real.display()
        )),
        None => Error::new(
            ErrorKind::Host,
            format!("{} is not a directory", path.display()),
        ),
    }
}

/// Makes a directory with `mode` and its missing parents with that and all rights of
/// their owner, each synced into its parent, and opens it. Existing directories keep
/// their mode.
///
/// # Errors
/// What the system answered, or a link in the path. A directory whose name is not on
/// the disk does not stay: the next run would take it for one that is.
pub fn create_directory(path: &Path, mode: Mode) -> Result<OwnedFd> {
    match open_directory_errno(path, PathWalk::Openat2) {
        Err(Errno::NOENT) => {}
        result => return result.map_err(|errno| open_directory_error(errno, path)),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::new(
            ErrorKind::Host,
            format!("{} is no directory", path.display()),
        ));
    };
    let parent_fd = create_directory(parent, mode | Mode::RWXU)?;
    let made = match fs::mkdirat(&parent_fd, name, mode) {
        Ok(()) => true,
        // Made by somebody else meanwhile: the open below looks at it.
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno).with_path("make the directory", path),
    };
    if let Err(errno) = fs::fsync(&parent_fd) {
        if made {
            // Nobody can have put anything into it that is to last.
            let _ = fs::unlinkat(&parent_fd, name, AtFlags::REMOVEDIR);
        }
        return Err(errno).with_path("sync the directory", parent);
    }
    open_directory(path, PathWalk::Openat2)
}

/// Puts the name of a directory on the disk, for one that made it may have been
/// killed before. A directory above that may not be read is not ours to have made
/// anything in.
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

/// A file or directory that was changed and is perhaps not on the disk yet.
#[derive(Clone)]
pub struct UnsyncedObject {
    object: Arc<dyn AsFd + Send + Sync>,
    path: PathBuf,
    /// What it may wait for, where that is bounded.
    file_system: Option<Arc<FileSystem>>,
}

impl UnsyncedObject {
    /// The file or directory that `object` has open; `path` is for messages.
    pub fn new(object: Arc<dyn AsFd + Send + Sync>, path: &Path) -> UnsyncedObject {
        UnsyncedObject {
            object,
            path: path.to_path_buf(),
            file_system: None,
        }
    }

    /// The same on a file system that may hang: syncing it fails then.
    #[must_use]
    pub fn with_file_system(self, system: &Arc<FileSystem>) -> UnsyncedObject {
        UnsyncedObject {
            file_system: Some(Arc::clone(system)),
            ..self
        }
    }

    /// Puts it on the disk.
    ///
    /// # Errors
    /// What the system answered, which is final.
    pub fn sync(&self) -> Result<()> {
        match &self.file_system {
            None => fs::fsync(&*self.object).with_path("sync", &self.path),
            Some(_) => sync_all([self.clone()]),
        }
    }
}

/// How many files of one file system are synced one by one. From there on the
/// whole file system is synced in one call instead: it may have more to write
/// than what is ours, but writes its journal and empties the disk's cache once
/// and not once for each file.
const MAX_SINGLE_SYNCS: usize = 8;

/// Whether syncfs(2) keeps its promise there. FUSE, for instance, may answer
/// that all is well without having asked anybody.
fn is_syncfs_reliable(kind: i64) -> bool {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const F2FS: i64 = 0xf2f5_2010;
    const TMPFS: i64 = 0x0102_1994;
    [EXT4, XFS, BTRFS, F2FS, TMPFS].contains(&kind)
}

/// What an agent of this number changed.
type OwnedChange = (usize, UnsyncedObject);

/// What has to be on the disk before a run goes on, of many agents at once.
#[derive(Default)]
pub struct SyncBatch {
    /// Each with the number of the agent whose it is.
    changes: Vec<OwnedChange>,
}

impl SyncBatch {
    /// Adds what `owner` changed.
    pub fn add(&mut self, owner: usize, changed: impl IntoIterator<Item = UnsyncedObject>) {
        let changed = changed.into_iter();
        self.changes
            .extend(changed.map(|unsynced| (owner, unsynced)));
    }

    /// Puts everything on the disk. Answers whose is not, and why.
    pub fn sync(self) -> Vec<(usize, Error)> {
        let mut groups = GroupedByFileSystem::default();
        for (owner, unsynced) in self.changes {
            groups.add(unsynced.file_system.clone(), (owner, unsynced));
        }
        let mut failed = sync_grouped(groups.trusted);
        for (system, wanted) in groups.untrusted {
            let owners: Vec<usize> = wanted.iter().map(|(owner, _)| *owner).collect();
            match system.call(move || sync_grouped(wanted)) {
                Ok(some) => failed.extend(some),
                Err(error) => {
                    failed.extend(owners.into_iter().map(|owner| (owner, error.clone())));
                }
            }
        }
        failed
    }
}

struct PendingSync {
    /// The number of the agent whose it is.
    owner: usize,
    /// Its file system.
    device: u64,
    /// A directory has no pages of its own that could fail to be written: what it
    /// names is in the journal, of which a sync of any file tells.
    is_directory: bool,
    unsynced: UnsyncedObject,
}

/// Puts files and directories on the disk, many on one file system in one call. Answers
/// whose is not, and why.
fn sync_grouped(all: Vec<OwnedChange>) -> Vec<(usize, Error)> {
    let (mut wanted, mut failed) = (Vec::with_capacity(all.len()), Vec::new());
    for (owner, unsynced) in all {
        match fs::fstat(&*unsynced.object).with_path("look at", &unsynced.path) {
            Ok(stat) => wanted.push(PendingSync {
                owner,
                device: stat.st_dev,
                is_directory: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
                unsynced,
            }),
            Err(error) => failed.push((owner, error)),
        }
    }
    wanted.sort_by_key(|wanted| wanted.device);
    for group in wanted.chunk_by(|a, b| a.device == b.device) {
        let any = &*group[0].unsynced.object;
        let use_syncfs = group.len() > MAX_SINGLE_SYNCS
            && fs::fstatfs(any).is_ok_and(|system| is_syncfs_reliable(system.f_type));
        // Old kernels do not tell there that a journal could not be written,
        // but where one file is concerned they do.
        let group_outcome = use_syncfs.then(|| fs::syncfs(any).and_then(|()| fs::fsync(any)));
        for wanted in group {
            let UnsyncedObject { object, path, .. } = &wanted.unsynced;
            let synced = match group_outcome {
                None => fs::fsync(&**object),
                Some(whole) if wanted.is_directory => whole,
                // Nor, before 5.8, that content could not be.
                Some(whole) => whole.and_then(|()| sys::wait_for_writeback(object.as_fd())),
            };
            let error = synced.with_path("sync", path).err();
            failed.extend(error.map(|error| (wanted.owner, error)));
        }
    }
    failed
}

/// Puts some files and directories on the disk.
///
/// # Errors
/// What the system answered first, which is final.
pub fn sync_all(changed: impl IntoIterator<Item = UnsyncedObject>) -> Result<()> {
    let mut flush = SyncBatch::default();
    flush.add(0, changed);
    match flush.sync().into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// A new file without a name in `directory`, or, on file systems that have no
/// nameless files, one with a name nobody guesses.
pub struct NewFile {
    directory: Arc<OwnedFd>,
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    /// How long it was when the disk was last told to begin.
    writeback_start_length: u64,
    provisional_name: Option<String>,
}

/// Up to how many bytes the disk is told to begin with a file.
const MAX_EARLY_WRITEBACK_BYTES: u64 = 1 << 20;

/// After how many bytes of a long file the disk is told to begin with them.
const WRITEBACK_INTERVAL_BYTES: u64 = 8 << 20;

/// The least number of zeros that become a hole in a new file. A sparse memory
/// may claim far more than the disk of the archive holds.
const MIN_HOLE_BYTES: usize = 64 * 1024;

impl NewFile {
    /// Starts a file in `directory`, whose path is only used in messages.
    ///
    /// # Errors
    /// What the system answered.
    pub fn create(directory: &Arc<OwnedFd>, path: &Path, mode: Mode) -> Result<NewFile> {
        NewFile::create_with_options(directory, path, mode, new_random_name, true)
    }

    /// The same, with the name that the file has until it is linked where it
    /// cannot or, by `nameless`, must not be without one.
    ///
    /// # Errors
    /// What the system answered.
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
        let nameless = match may_be_nameless {
            true => open(".", OFlags::TMPFILE),
            false => Err(Errno::OPNOTSUPP),
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

    /// The file itself, for owner, mode and attributes.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// What the system answered, a full disk for example.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.length += bytes.len() as u64;
        let mut file = &*self.file;
        let written = match bytes.len() >= MIN_HOLE_BYTES && is_all_zeros(bytes) {
            true => file
                .set_len(self.length)
                .and_then(|()| file.seek(SeekFrom::End(0)).map(drop)),
            false => file.write_all(bytes),
        };
        if self.length - self.writeback_start_length >= WRITEBACK_INTERVAL_BYTES {
            self.writeback_start_length = self.length;
            sys::start_writeback(self.file.as_fd());
        }
        written.with_path("write a new file in", &self.path)
    }

    /// Lets the disk begin with what was written, while there is other work to do.
    /// With a long file that would be waiting, not working.
    pub fn start_writeback(&self) {
        if self.length <= MAX_EARLY_WRITEBACK_BYTES {
            sys::start_writeback(self.file.as_fd());
        }
    }

    /// Its content, which has to be on the disk before it gets its name.
    pub fn unsynced_content(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.file) as _, &self.path)
    }

    /// The path of its directory.
    pub fn directory_path(&self) -> &Path {
        &self.path
    }

    /// The directory itself.
    pub fn directory_fd(&self) -> &OwnedFd {
        &self.directory
    }

    /// Its directory, which has to be synced after it got its name.
    pub fn unsynced_directory(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.directory) as _, &self.path)
    }

    /// Gives the file its name, unless something stands there: then it answers
    /// false, and another name can be tried.
    ///
    /// # Errors
    /// What the system answered.
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
                // Kernels before 6.10 want a capability for that way.
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
            // Best effort, after an error or where the file was only looked at.
            // What a kill leaves in an agent's directory is named by the record of
            // the run, and in directories of ours it is swept.
            let _ = fs::unlinkat(&self.directory, name, AtFlags::empty());
        }
    }
}

fn is_all_zeros(bytes: &[u8]) -> bool {
    // To compare slices is many times faster than to look at each byte.
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut pieces = bytes.chunks(ZEROS.len());
    pieces.all(|piece| *piece == ZEROS[..piece.len()])
}

/// Opens whatever stands there but a link, which is not followed; a FIFO holds
/// nobody up.
///
/// # Errors
/// What the system answered.
pub fn open_nofollow_nonblocking(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    options.custom_flags(flags).open(path)
}

/// Opens a file of our own, as by [`open_nofollow_nonblocking`].
///
/// # Errors
/// What the system answered, or that it is not a regular file.
pub fn open_own_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = open_nofollow_nonblocking(path, options)?;
    check_regular_file(&file, "it is not a regular file; move it away")?;
    Ok(file)
}

/// Reads a file of our own, opened as by [`open_own_file`].
///
/// # Errors
/// What the system answered, or that it is not a regular file.
pub fn read_own_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_own_file(path, OpenOptions::new().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How long one waits for a lock that is only ever held for moments.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until a lock that is only ever held for moments is ours. It goes when the
/// file is closed.
///
/// # Errors
/// [`ErrorKind::Busy`] when it stays another's for ten seconds, else what the system
/// answered.
pub fn wait_for_lock(file: &File, path: &Path, clock: &dyn Clock) -> Result<()> {
    let end = clock.instant() + LOCK_TIMEOUT;
    while !sys::try_lock(file.as_fd()).with_path("lock", path)? {
        if clock.instant() >= end {
            let message = format!("{} stays locked by another process", path.display());
            return Err(Error::new(ErrorKind::Busy, message));
        }
        clock.sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Reads a file of the operator's, of `most` bytes at the most, wherever links lead.
/// What is no regular file is never waited for.
///
/// # Errors
/// What the system answered, that it is not a regular file, or
/// [`io::ErrorKind::FileTooLarge`].
pub fn read_regular_file(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    check_regular_file(&file, "it is not a regular file")?;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(too_large_error(max_bytes)),
        false => Ok(bytes),
    }
}

/// That a file has more than `most` bytes.
pub fn too_large_error(max_bytes: u64) -> io::Error {
    let text = format!("it is larger than {max_bytes} bytes");
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

fn check_regular_file(file: &File, otherwise: &str) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, otherwise)),
    }
}

/// Replaces `path` as a whole: new file beside it, synced, renamed over it,
/// directory synced. For files that only we write.
///
/// # Errors
/// What the system answered; the old file is untouched then.
pub fn replace_file(path: &Path, bytes: &[u8], mode: Mode) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::new(
            ErrorKind::Host,
            format!("{} is no file", path.display()),
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

/// Removes files without a name of their own that runs killed long before `now` left
/// in a directory that only we write. Spares the names that `named` returns, which is
/// called after the directory was listed: a file that gets its name from then on is
/// not removed, and one that has it already is named. Returns how many were removed.
///
/// # Errors
/// What the system answered. A directory that does not exist has none, nor has one
/// that only a link leads to: no run of ours ever got there.
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
            // Another run was quicker.
            Err(Errno::NOENT) => {}
            Err(errno) => Err(errno).with_path("remove", &path.join(name))?,
        }
    }
    Ok(removed)
}

/// The regular files under random names that were last changed long before `now`.
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
            stat => stat.with_path("look at", &path.join(name))?,
        };
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if file && stat.st_mtime < limit {
            stale.push(name.to_string());
        }
    }
    Ok(stale)
}

/// Every random name that occurs in a text.
pub fn find_random_names(text: &[u8]) -> HashSet<String> {
    let windows = text.windows(RANDOM_NAME_PREFIX.len() + RANDOM_NAME_DIGITS);
    let names = windows.filter(|window| window.starts_with(RANDOM_NAME_PREFIX.as_bytes()));
    let names = names.filter_map(|window| str::from_utf8(window).ok());
    let names = names.filter(|name| is_random_name(name));
    names.map(str::to_string).collect()
}

/// Whether [`new_random_name`] makes such names.
pub fn is_random_name(name: &str) -> bool {
    let digits = name.strip_prefix(RANDOM_NAME_PREFIX);
    digits.is_some_and(|digits| {
        digits.len() == RANDOM_NAME_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// How old a file without a name of its own is when no run can be at work on it
/// any more.
const STALE_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// What names begin with that nobody can guess, and how many digits follow.
const RANDOM_NAME_PREFIX: &str = ".shepherd-";
const RANDOM_NAME_DIGITS: usize = 32;

/// A dot name that nobody can guess and that does not end in `.md`, because
/// agents watch and index such files.
///
/// # Errors
/// When the kernel has no random bytes.
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
