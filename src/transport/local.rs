//! The transport to memories on this machine, through directory descriptors and without following
//! links. Owns the directory of a memory: probing, reading and staging. Submodules own what knows no
//! memory (`open_directory`, `open_file`), installing (`install`, `in_place` for mount points),
//! settling (`settle`), recovery, leases, attributes and names.

mod aside_names;
mod attributes;
mod errors;
mod in_place;
mod install;
mod leases;
mod listing;
mod open_directory;
mod open_file;
mod recovery;
mod settle;
mod swap_forecast;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File as StdFile;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use self::attributes::{XattrAccess, apply_attributes, read_xattrs};
use self::errors::{RefusalContext, exists_error, refused_error, replaced_error};
use self::leases::lease_obstacle;
use self::listing::LocalListing;
use self::open_directory::OpenDirectory;
use self::open_file::{FileIdentity, fstat, identify, metadata_from_stat, read_with_xattrs};
use self::recovery::Recovery;
use self::settle::{QUIET_PERIOD, Settlement};
use super::{
    ByteSink, DirectoryListing, DirectoryObstacles, DirectoryProperties, FileMetadata, Inspector,
    InterruptedRun, MAX_SEARCHED_NAMES, MemoryDirectory, MemoryObject, NewMemory, ObjectId,
    RecoveredRun, SettleOutcome, StagedAttributes, Stamp, SwapOutcome, Transport, TransportError,
    UnsyncedObject, similar_names,
};
use crate::base::clock::Clock;
use crate::base::durable::{self, NewFile};
use crate::base::error::{Error, ErrorKind};
use crate::config::SftpExtension;

/// Attempts to move a memory aside that the agent keeps re-creating.
const MAX_TAKE_AWAY_ATTEMPTS: usize = 16;

/// Size limit of a file that is read: a sparse file can claim more than any disk holds, and reading
/// it delays the other agents.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 30;

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
        Ok(LocalDirectory {
            directory: OpenDirectory::open(self, parent)?,
            link_hook: self.link_hook.clone(),
            memory_name: name.to_os_string(),
            last_identified_file: RefCell::default(),
            unwatched_displaced: RefCell::default(),
            staged_file: RefCell::default(),
            named_staged: Cell::default(),
            unsynced_content: RefCell::default(),
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
        let directory = OpenDirectory::open(self, directory)?;
        Ok(Box::new(LocalListing::new(directory)?))
    }
}

/// The directory of one memory.
struct LocalDirectory {
    directory: OpenDirectory,
    link_hook: Option<LinkHook>,
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
}

impl LocalDirectory {
    fn memory_path(&self) -> PathBuf {
        self.directory.path_of(&self.memory_name)
    }

    /// Returns the identity of an open file, and keeps the file open so that the identity stays
    /// unique.
    fn identify_open_file(
        &self,
        file: Arc<StdFile>,
        path: &Path,
    ) -> Result<FileIdentity, TransportError> {
        let stat = fstat(&file, path)?;
        self.last_identified_file.replace(Some(file));
        Ok(identify(&stat))
    }
}

impl MemoryDirectory for LocalDirectory {
    fn try_lock(&self) -> Result<bool, TransportError> {
        let fd = &self.directory.fd;
        match fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            // A network file system may lock files only, and those that are open for writing.
            Ok(())
            | Err(Errno::BADF | Errno::INVAL | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP) => {
                Ok(true)
            }
            locked => locked
                .or_refused("lock", &self.directory.path)
                .map(|()| true),
        }
    }

    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        let directory = &self.directory;
        let directory = directory
            .has_unsynced_names
            .take()
            .then(|| UnsyncedObject::new(Arc::clone(&directory.fd) as _, &directory.path));
        self.unsynced_content
            .take()
            .into_iter()
            .chain(directory)
            .collect()
    }

    fn properties(&self) -> Result<DirectoryProperties, TransportError> {
        let (directory, name) = (&self.directory, &self.memory_name);
        Ok(DirectoryProperties {
            id: Some(directory.inode()?),
            missing_extensions: Vec::new(),
            swap_forecast: directory.forecast_from_flags(name, directory.statx(name).as_ref()),
        })
    }

    fn obstacles(&self) -> Result<DirectoryObstacles, TransportError> {
        let (directory, name) = (&self.directory, &self.memory_name);
        let memory = directory.statx(name);
        let memory = memory.as_ref();
        Ok(DirectoryObstacles {
            write_refusal: directory.find_write_refusal(name, memory),
            ownership_refusal: directory.find_ownership_refusal(name, memory),
            undetectable_writers_reason: lease_obstacle(&directory.fd),
        })
    }

    fn stamp(&self) -> Option<Stamp> {
        let stat = fs::fstat(&self.directory.fd).ok()?;
        Some(Stamp::from_stat(&stat))
    }

    fn is_at_its_path(&self) -> Result<bool, TransportError> {
        let path = &self.directory.path;
        let there = match durable::open_directory_errno(path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
            opened => opened.or_refused("open", path)?,
        };
        let (own, there) = (fstat(&self.directory.fd, path)?, fstat(&there, path)?);
        Ok((own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
    }

    fn stat_memory(&self) -> Result<MemoryObject, TransportError> {
        self.directory.object_at(&self.memory_name)
    }

    fn find_similar_name(&self) -> Option<OsString> {
        let items = fs::Dir::read_from(&self.directory.fd).ok()?;
        let mut names = Vec::new();
        for item in items {
            if names.len() == MAX_SEARCHED_NAMES {
                return None;
            }
            names.push(OsStr::from_bytes(item.ok()?.file_name().to_bytes()).to_os_string());
        }
        let is_file =
            |name: &OsString| matches!(self.directory.object_at(name), Ok(MemoryObject::File(_)));
        similar_names(&self.memory_name, names.into_iter())
            .into_iter()
            .find(is_file)
    }

    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        let path = self.memory_path();
        let file = self
            .directory
            .open_regular(&self.memory_name)?
            .ok_or_else(|| replaced_error(&path))?;
        read_with_xattrs(&file, &path, sink)
    }

    fn stat_leased_memory(&self) -> Result<FileMetadata, TransportError> {
        let path = self.memory_path();
        let (directory, name) = (&self.directory, &self.memory_name);
        let file = match directory.open_with_flags(name, OFlags::PATH) {
            Err(Errno::NOENT) => return Err(replaced_error(&path)),
            file => file.or_refused("stat", &path)?,
        };
        // The same check as for reading: the new memory gets this file's owner and mode.
        let stat = fstat(&file, &path)?;
        if directory.read_obstacle(name, stat)?.is_some() {
            return Err(replaced_error(&path));
        }
        let mut found = metadata_from_stat(&stat);
        let fd_path = format!("/proc/self/fd/{}", file.as_raw_fd());
        (found.attributes.xattrs, found.dropped_xattrs) = read_xattrs(&XattrAccess::Path(&fd_path))
            .or_refused("read the attributes of", &path)?;
        Ok(found)
    }

    fn object_id(&self, name: &str) -> Result<Option<ObjectId>, TransportError> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = match fs::statx(&self.directory.fd, name, flags, wanted) {
            Err(Errno::NOENT) => return Ok(None),
            found => found.or_refused("stat", &self.directory.path_of(name))?,
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
        let attributes = attributes.resolve(|| self.inherited_attributes(run))?;
        let mut file = self.create_run_file(run, Mode::RUSR | Mode::WUSR)?;
        let mut failure = None;
        let write_outcome = content(&mut |bytes| {
            file.write(bytes)
                .inspect_err(|error| failure = Some(error.clone()))
        });
        if let Some(error) = failure {
            return Err(refused_error(error));
        }
        write_outcome?;
        file.start_writeback();
        apply_attributes(file.file(), &attributes, &self.memory_path()).map_err(refused_error)?;
        if self.directory.exists(run)? {
            return Err(exists_error(&self.directory.path_of(run)));
        }
        self.unsynced_content.replace(Some(file.unsynced_content()));
        self.staged_file.replace(Some(file));
        Ok(Vec::new())
    }

    fn name_staged(&self, run: &str) -> Result<(), TransportError> {
        self.named_staged.set(Some(self.link_staged(run)?));
        Ok(())
    }

    fn create_directory(&self) -> Result<bool, TransportError> {
        self.directory.create_directory(&self.memory_name)
    }

    fn remove_directory(&self) -> Result<bool, TransportError> {
        self.directory.remove_directory(&self.memory_name)
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
        Settlement::new(self, displaced).settle(inspect)
    }

    fn next_settle_time(&self) -> Option<Instant> {
        let unwatched = self.unwatched_displaced.borrow();
        unwatched.values().map(|(_, at)| *at + QUIET_PERIOD).max()
    }

    fn recover(&self, run: &InterruptedRun) -> Result<Option<RecoveredRun>, TransportError> {
        Recovery { memory: self, run }.recover()
    }

    fn has_files_of_run(&self, run: &str) -> Result<bool, TransportError> {
        Ok(!self.directory.displaced_names(run)?.is_empty())
    }
}

#[cfg(test)]
mod tests;
