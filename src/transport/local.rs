//! The transport to memories on this machine, through directory descriptors and without following
//! links. Owns probing and reading; submodules own installing (`install`, `in_place` for mount
//! points), settling (`settle`), recovery, leases, attributes and names.

mod aside_names;
mod attributes;
mod errors;
mod in_place;
mod install;
mod leases;
mod listing;
mod recovery;
mod settle;
mod swap_forecast;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File as StdFile;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use self::attributes::{XattrAccess, read_xattrs};
use self::errors::{leased_error, refused_error, replaced_error};
use self::listing::LocalListing;
use self::settle::QUIET_PERIOD;
use super::{
    Attributes, ByteSink, DirectoryListing, DirectoryProperties, FailureCause, FileMetadata,
    Inspector, InterruptedRun, MAX_SEARCHED_NAMES, MemoryDirectory, MemoryObject, NewMemory,
    ObjectId, RecoveredRun, SettleOutcome, SpecialFile, StagedAttributes, Stamp, SwapOutcome,
    Transport, TransportError, UnsyncedObject, similar_names,
};
use crate::base::clock::Clock;
use crate::base::durable::{self, NewFile, PathWalk};
use crate::base::error::{Error, ErrorKind, PathContext};
use crate::base::sys::{self, LeaseOutcome};
use crate::config::SftpExtension;

/// Attempts to move a memory aside that the agent keeps re-creating.
const MAX_TAKE_AWAY_ATTEMPTS: usize = 16;

/// Size limit of a file that is read: a sparse file can claim more than any disk holds, and reading
/// it delays the other agents.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 30;

/// Growth limit of a file during a read, unless its size is larger.
const MAX_GROWTH_BYTES: u64 = 64 << 20;

/// Number of checks that a foreign file has no other name before the file counts as having one.
const FOREIGN_LINK_CHECKS: usize = 16;

/// Bytes per read call.
const READ_CHUNK_BYTES: usize = 128 * 1024;

/// The transport to the local disk.
pub struct LocalTransport {
    clock: Arc<dyn Clock>,
    has_kernel_features: bool,
    has_leases: bool,
    link_hook: Option<LinkHook>,
}

/// Runs between the link of a staged file and the swap; an error ends the commit.
pub type LinkHook = Arc<dyn Fn() -> Result<(), TransportError> + Send + Sync>;

impl LocalTransport {
    /// Creates the transport with the features of this kernel.
    pub fn new(clock: Arc<dyn Clock>) -> LocalTransport {
        LocalTransport {
            clock,
            has_kernel_features: true,
            has_leases: true,
            link_hook: None,
        }
    }

    /// Creates it without `openat2`, `O_TMPFILE` and the flags of `renameat2`, as on old kernels
    /// and limited file systems, to test the fallbacks.
    pub fn without_kernel_features(clock: Arc<dyn Clock>) -> LocalTransport {
        LocalTransport {
            has_kernel_features: false,
            ..LocalTransport::new(clock)
        }
    }

    /// Creates it without file leases, as for users without the right to take them and on network
    /// file systems.
    pub fn without_leases(clock: Arc<dyn Clock>) -> LocalTransport {
        LocalTransport {
            has_leases: false,
            ..LocalTransport::new(clock)
        }
    }

    /// Adds a hook, to test what agents and crashes can do at that moment.
    #[must_use]
    pub fn with_link_hook(self, hook: LinkHook) -> LocalTransport {
        LocalTransport {
            link_hook: Some(hook),
            ..self
        }
    }

    fn open_local_directory(&self, memory: &Path) -> Result<LocalDirectory, TransportError> {
        let (Some(parent), Some(name)) = (memory.parent(), memory.file_name()) else {
            let message = format!("{} is not a file path", memory.display());
            return Err(refused_error(Error::new(ErrorKind::Config, message)));
        };
        // A bare file name refers to the current directory.
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        self.open_parent(parent, name)
    }

    /// Opens a directory for the object at `name` in it.
    fn open_parent(&self, parent: &Path, name: &OsStr) -> Result<LocalDirectory, TransportError> {
        let walk = if self.has_kernel_features {
            PathWalk::Openat2
        } else {
            PathWalk::Components
        };
        let fd = match durable::open_directory_by(parent, walk) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => {
                let error = Error::from_io("open the directory", parent, &Errno::NOENT.into())
                    .with_hint("create it, or correct its path in the config");
                return Err(TransportError::new(FailureCause::NoDirectory, error));
            }
            Err(errno) => return Err(refused_error(durable::open_directory_error(errno, parent))),
        };
        Ok(LocalDirectory {
            clock: Arc::clone(&self.clock),
            has_kernel_features: self.has_kernel_features,
            has_leases: self.has_leases,
            link_hook: self.link_hook.clone(),
            directory_fd: Arc::new(fd),
            directory_path: parent.to_path_buf(),
            memory_name: name.to_os_string(),
            last_identified_file: RefCell::default(),
            unwatched_displaced: RefCell::default(),
            staged_file: RefCell::default(),
            named_staged: Cell::default(),
            unsynced_content: RefCell::default(),
            has_unsynced_names: Cell::new(true),
        })
    }
}

impl Transport for LocalTransport {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        memories
            .iter()
            .map(|memory| self.open_local_directory(memory)?.stat_memory())
            .collect()
    }

    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        Ok(Box::new(self.open_local_directory(memory)?))
    }

    fn list_directory(
        &self,
        directory: &Path,
    ) -> Result<Box<dyn DirectoryListing>, TransportError> {
        let directory = self.open_parent(directory, OsStr::new("."))?;
        Ok(Box::new(LocalListing::new(directory)?))
    }
}

/// The result of opening a name.
enum OpenOutcome {
    /// A regular file that may be read.
    File(StdFile),
    /// Not opened; this object was at the name right afterwards.
    NotOpened(MemoryObject),
    /// Another process's lease keeps it from being opened until the kernel revokes that lease.
    Leased,
}

struct LocalDirectory {
    clock: Arc<dyn Clock>,
    has_kernel_features: bool,
    has_leases: bool,
    link_hook: Option<LinkHook>,
    directory_fd: Arc<OwnedFd>,
    directory_path: PathBuf,
    memory_name: OsString,
    /// The file that was identified last. While it is open, no other file
    /// gets its inode number, even if an agent removes it.
    last_identified_file: RefCell<Option<Arc<StdFile>>>,
    /// Displaced files whose writers cannot be detected, with metadata and time of the first
    /// inspection.
    unwatched_displaced: RefCell<HashMap<String, (FileMetadata, Instant)>>,
    /// The staged file that has no name yet.
    staged_file: RefCell<Option<NewFile>>,
    /// The staged file that has its name already.
    named_staged: Cell<Option<FileIdentity>>,
    /// The content of a staged file that may not be on the disk yet.
    unsynced_content: RefCell<Option<UnsyncedObject>>,
    /// Whether a name in the directory was created, moved or removed and may not be on the disk.
    /// True at the start, since earlier changes are unknown.
    has_unsynced_names: Cell<bool>,
}

impl LocalDirectory {
    fn memory_path(&self) -> PathBuf {
        self.directory_path.join(&self.memory_name)
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.directory_path.join(name)
    }

    /// Returns the object at `name`, and its raw stat result.
    fn stat_object(&self, name: &OsStr) -> rustix::io::Result<(MemoryObject, Option<Stat>)> {
        for _ in 0..MAX_TAKE_AWAY_ATTEMPTS {
            let stat = match fs::statat(&*self.directory_fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok((MemoryObject::Absent, None)),
                stat => stat?,
            };
            match self.classify_object(name, &stat) {
                // The link disappeared or was replaced before its target could be read: try again.
                Err(Errno::INVAL | Errno::NOENT) => {}
                object => return Ok((object?, Some(stat))),
            }
        }
        Err(Errno::AGAIN)
    }

    fn classify_object(&self, name: &OsStr, stat: &Stat) -> rustix::io::Result<MemoryObject> {
        let special = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                // A further name of another user's file must not be archived.
                if stat.st_nlink <= 1 || !self.is_foreign_hard_link(stat)? {
                    return Ok(MemoryObject::File(metadata_from_stat(stat)));
                }
                SpecialFile::ForeignHardLink(stat.st_uid)
            }
            FileType::Symlink => {
                let target = fs::readlinkat(&*self.directory_fd, name, Vec::new())?;
                SpecialFile::Symlink(target.into_bytes())
            }
            FileType::Directory => SpecialFile::Directory,
            FileType::Fifo => SpecialFile::Fifo,
            FileType::Socket => SpecialFile::Socket,
            _ => SpecialFile::Device,
        };
        Ok(MemoryObject::Special(special))
    }

    /// Returns whether another user than the file's owner may have created its name here: every
    /// user who can write to the directory, where the kernel allows links to any file
    /// (`fs.protected_hardlinks=0`). Users who can write to the file itself gain nothing by a link.
    fn is_foreign_hard_link(&self, stat: &Stat) -> rustix::io::Result<bool> {
        let directory = fs::fstat(&*self.directory_fd)?;
        if stat.st_uid != directory.st_uid {
            return Ok(true);
        }
        let shared = directory.st_mode & 0o002 == 0
            && stat.st_gid == directory.st_gid
            && stat.st_mode & 0o020 != 0;
        Ok(directory.st_mode & 0o022 != 0 && !shared)
    }

    /// Returns what keeps an open file with this stat result from being read, if anything does. If
    /// the agent has removed a foreign file's second name in between, the name here would seem to
    /// be its only one. So every check has to find this name, and a link count of one: while a name
    /// is being removed, a single check may still find the name and not count it.
    fn read_obstacle(
        &self,
        name: &OsStr,
        mut stat: Stat,
    ) -> Result<Option<MemoryObject>, TransportError> {
        let path = self.directory_path.join(name);
        let foreign_check = self.is_foreign_hard_link(&stat).with_path("stat", &path);
        if foreign_check.map_err(refused_error)? {
            for _ in 0..FOREIGN_LINK_CHECKS {
                let (object, named) = self
                    .stat_object(name)
                    .with_path("stat", &path)
                    .map_err(refused_error)?;
                match named {
                    Some(named) if identify(&named) == identify(&stat) => stat = named,
                    _ => return Ok(Some(object)),
                }
                if stat.st_nlink > 1 {
                    break;
                }
                self.clock.sleep(Duration::from_millis(1));
            }
        }
        let object = self.classify_object(name, &stat).with_path("stat", &path);
        Ok(match object.map_err(refused_error)? {
            MemoryObject::File(_) => None,
            special => Some(special),
        })
    }

    fn fstat(&self, file: &StdFile, path: &Path) -> Result<Stat, TransportError> {
        fs::fstat(file)
            .with_path("stat", path)
            .map_err(refused_error)
    }

    /// Opens `name` for reading if it is a regular file that may be read.
    fn open_regular(&self, name: &OsStr) -> Result<Option<StdFile>, TransportError> {
        match self.open_any(name)? {
            OpenOutcome::File(file) => Ok(Some(file)),
            OpenOutcome::Leased => Err(leased_error(&self.directory_path.join(name))),
            _ => Ok(None),
        }
    }

    fn open_any(&self, name: &OsStr) -> Result<OpenOutcome, TransportError> {
        let path = self.directory_path.join(name);
        // Without O_NONBLOCK, opening a FIFO would block until a writer opens it.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match fs::openat(&*self.directory_fd, name, flags, Mode::empty()) {
            Ok(file) => StdFile::from(file),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV) => {
                let object = self.stat_object(name).with_path("stat", &path);
                return Ok(OpenOutcome::NotOpened(object.map_err(refused_error)?.0));
            }
            // Another process holds a lease, which this open has begun to break.
            Err(Errno::AGAIN) => return Ok(OpenOutcome::Leased),
            Err(errno) => return Err(errno).with_path("read", &path).map_err(refused_error),
        };
        let stat = self.fstat(&file, &path)?;
        Ok(match self.read_obstacle(name, stat)? {
            None => OpenOutcome::File(file),
            Some(other) => OpenOutcome::NotOpened(other),
        })
    }

    fn take_lease(&self, file: &StdFile) -> LeaseOutcome {
        if self.has_leases && leases::lease_obstacle(file).is_none() {
            sys::take_read_lease(file.as_fd())
        } else {
            LeaseOutcome::Unavailable
        }
    }

    /// Reads an open file from beginning to end, including what is appended during the read, up to
    /// the growth limit.
    fn read_content(
        &self,
        file: &StdFile,
        path: &Path,
        sink: ByteSink<'_>,
    ) -> Result<FileMetadata, TransportError> {
        let size = self.fstat(file, path)?.st_size as u64;
        if size > MAX_FILE_BYTES {
            let message = format!(
                "cannot read {}: its size, {size} bytes, is more than 16 GiB",
                path.display()
            );
            return Err(refused_error(
                Error::new(ErrorKind::Host, message).with_hint(format!(
                    "inspect it, then shorten it: truncate --size=1M {}",
                    path.display()
                )),
            ));
        }
        let limit = (size + MAX_GROWTH_BYTES).max(2 * size);
        let mut offset = 0;
        let mut buffer = vec![
            0;
            (size as usize)
                .saturating_add(1)
                .clamp(4096, READ_CHUNK_BYTES)
        ];
        loop {
            let count = match rustix::io::pread(file, &mut buffer, offset) {
                Err(Errno::INTR) => continue,
                result => result.with_path("read", path).map_err(refused_error)?,
            };
            if count > 0 {
                sink(&buffer[..count])?;
                offset += count as u64;
            }
            // A short read up to the size is the end, unless the file has grown since.
            let is_at_end = count == 0 || offset == size && count < buffer.len();
            if offset < limit && !is_at_end {
                continue;
            }
            let metadata = metadata_from_stat(&self.fstat(file, path)?);
            if count == 0 || offset >= limit || metadata.stamp.size == offset {
                return Ok(metadata);
            }
        }
    }

    /// Reads an open file, then its extended attributes.
    fn read_with_xattrs(
        &self,
        file: &StdFile,
        path: &Path,
        sink: ByteSink<'_>,
    ) -> Result<FileMetadata, TransportError> {
        let mut read = self.read_content(file, path, sink)?;
        (read.attributes.xattrs, read.dropped_xattrs) = read_xattrs(&XattrAccess::File(file))
            .with_path("read the attributes of", path)
            .map_err(refused_error)?;
        Ok(read)
    }

    /// Returns the identity of an open file, and keeps the file open so that the identity stays
    /// unique.
    fn identify_open_file(
        &self,
        file: Arc<StdFile>,
        path: &Path,
    ) -> Result<FileIdentity, TransportError> {
        let stat = fs::fstat(&file)
            .with_path("stat", path)
            .map_err(refused_error)?;
        self.last_identified_file.replace(Some(file));
        Ok(identify(&stat))
    }

    /// Returns the identity of the object at `name`, if there is one.
    fn identity_of(&self, name: &OsStr) -> Result<Option<FileIdentity>, TransportError> {
        let (_, stat) = self
            .stat_object(name)
            .with_path("stat", &self.directory_path.join(name))
            .map_err(refused_error)?;
        Ok(stat.as_ref().map(identify))
    }

    /// Returns the inode number of the directory.
    fn inode(&self) -> Result<u64, TransportError> {
        let stat = fs::fstat(&*self.directory_fd)
            .with_path("stat", &self.directory_path)
            .map_err(refused_error)?;
        Ok(stat.st_ino)
    }

    /// Returns whether any object is at `name`.
    fn exists(&self, name: &str) -> Result<bool, TransportError> {
        Ok(self.identity_of(OsStr::new(name))?.is_some())
    }

    /// Removes one of our own names. Succeeds if it is absent.
    fn remove_name(&self, name: &str) -> Result<(), TransportError> {
        match fs::unlinkat(&*self.directory_fd, name, AtFlags::empty()) {
            Ok(()) => {
                self.has_unsynced_names.set(true);
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            // Linux checks this before it looks for the name.
            Err(Errno::ROFS) if !self.exists(name)? => Ok(()),
            Err(errno) => Err(errno)
                .with_path("remove", &self.path_of(name))
                .map_err(refused_error),
        }
    }
}

impl MemoryDirectory for LocalDirectory {
    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        let directory = self.has_unsynced_names.take();
        let directory = directory.then(|| {
            UnsyncedObject::new(Arc::clone(&self.directory_fd) as _, &self.directory_path)
        });
        self.unsynced_content
            .take()
            .into_iter()
            .chain(directory)
            .collect()
    }

    fn properties(&self) -> Result<DirectoryProperties, TransportError> {
        Ok(DirectoryProperties {
            id: Some(self.inode()?),
            missing_extensions: Vec::new(),
            swap_forecast: self.forecast_from_flags(),
            undetectable_writers_reason: leases::lease_obstacle(&*self.directory_fd),
        })
    }

    fn stamp(&self) -> Option<Stamp> {
        let stat = fs::fstat(&*self.directory_fd).ok()?;
        Some(Stamp::from_stat(&stat))
    }

    fn is_at_its_path(&self) -> Result<bool, TransportError> {
        let path = &self.directory_path;
        let there = match durable::open_directory_errno(path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            opened => opened.with_path("open", path).map_err(refused_error)?,
        };
        let [own, there] = [&*self.directory_fd, &there].map(fs::fstat);
        let own = own.with_path("stat", path).map_err(refused_error)?;
        let there = there.with_path("stat", path).map_err(refused_error)?;
        Ok((own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
    }

    fn stat_memory(&self) -> Result<MemoryObject, TransportError> {
        let (object, _) = self
            .stat_object(&self.memory_name)
            .with_path("stat", &self.memory_path())
            .map_err(refused_error)?;
        Ok(object)
    }

    fn find_similar_name(&self) -> Option<OsString> {
        let items = fs::Dir::read_from(&*self.directory_fd).ok()?;
        let mut names = Vec::new();
        for item in items {
            if names.len() == MAX_SEARCHED_NAMES {
                return None;
            }
            names.push(OsStr::from_bytes(item.ok()?.file_name().to_bytes()).to_os_string());
        }
        let is_file =
            |name: &OsString| matches!(self.stat_object(name), Ok((MemoryObject::File(_), _)));
        similar_names(&self.memory_name, names.into_iter())
            .into_iter()
            .find(is_file)
    }

    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        let path = self.memory_path();
        let file = self
            .open_regular(&self.memory_name)?
            .ok_or_else(|| replaced_error(&path))?;
        self.read_with_xattrs(&file, &path, sink)
    }

    fn stat_leased_memory(&self) -> Result<FileMetadata, TransportError> {
        let path = self.memory_path();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match fs::openat(&*self.directory_fd, &self.memory_name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(replaced_error(&path)),
            file => StdFile::from(file.with_path("stat", &path).map_err(refused_error)?),
        };
        // The same check as for reading: the new memory gets this file's owner and mode.
        let stat = self.fstat(&file, &path)?;
        if self.read_obstacle(&self.memory_name, stat)?.is_some() {
            return Err(replaced_error(&path));
        }
        let mut found = metadata_from_stat(&stat);
        let fd_path = format!("/proc/self/fd/{}", file.as_raw_fd());
        (found.attributes.xattrs, found.dropped_xattrs) = read_xattrs(&XattrAccess::Path(&fd_path))
            .with_path("read the attributes of", &path)
            .map_err(refused_error)?;
        Ok(found)
    }

    fn object_id(&self, name: &str) -> Result<Option<ObjectId>, TransportError> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = match fs::statx(&*self.directory_fd, name, flags, wanted) {
            Err(Errno::NOENT) => return Ok(None),
            found => found
                .with_path("stat", &self.path_of(name))
                .map_err(refused_error)?,
        };
        // A mounted object does not belong to this file system.
        let mounted = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let is_creation_time_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let created = is_creation_time_known.then(|| {
            let seconds = found.stx_btime.tv_sec.saturating_mul(1_000_000_000);
            seconds.saturating_add(found.stx_btime.tv_nsec.into())
        });
        Ok((!mounted).then_some(ObjectId {
            inode: found.stx_ino,
            created,
        }))
    }

    fn stage(
        &self,
        run: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: StagedAttributes,
    ) -> Result<Vec<SftpExtension>, TransportError> {
        self.stage_file(run, content, attributes)?;
        Ok(Vec::new())
    }

    fn name_staged(&self, run: &str) -> Result<(), TransportError> {
        self.named_staged.set(Some(self.link_staged(run)?));
        Ok(())
    }

    fn create_directory(&self) -> Result<bool, TransportError> {
        self.make_directory()
    }

    fn remove_directory(&self) -> Result<bool, TransportError> {
        self.unlink_directory()
    }

    fn commit(&self, run: &str, new: NewMemory) -> Result<SwapOutcome, TransportError> {
        match new {
            NewMemory::StagedFile { accepts_in_place } => {
                self.install_staged(run, accepts_in_place)
            }
            NewMemory::KeptObject(id) => self.restore_object(run, id),
            NewMemory::Symlink(target) => self.install_symlink(run, &target),
            NewMemory::Nothing => self.move_memory_aside(run),
        }
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        self.settle_object(displaced, inspect)
    }

    fn next_settle_time(&self) -> Option<Instant> {
        let unwatched = self.unwatched_displaced.borrow();
        unwatched.values().map(|(_, at)| *at + QUIET_PERIOD).max()
    }

    fn recover(&self, run: &InterruptedRun) -> Result<Option<RecoveredRun>, TransportError> {
        self.recover_run(run)
    }

    fn has_files_of_run(&self, run: &str) -> Result<bool, TransportError> {
        Ok(!self.displaced_names(run)?.is_empty())
    }
}

/// Identifies a file independently of its names, as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

fn identify(stat: &Stat) -> FileIdentity {
    FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
    }
}

fn metadata_from_stat(stat: &Stat) -> FileMetadata {
    FileMetadata {
        stamp: Stamp::from_stat(stat),
        attributes: Attributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            xattrs: Vec::new(),
        },
        dropped_xattrs: 0,
    }
}

#[cfg(test)]
mod tests;
