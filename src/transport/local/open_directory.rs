//! An open directory of this machine, and the objects in it by name: what they are, how they are
//! opened, renamed and removed. Every call acts on this directory, even when another one is at its
//! path, and follows no links. Knows nothing of memories.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::{self, Errno};

use super::aside_names::unfinished_name;
use super::errors::{RefusalContext, leased_error, refused_error, replaced_error};
use super::leases::lease_obstacle;
use super::open_file::{FileIdentity, fstat, identify, metadata_from_stat};
use super::{LocalTransport, MAX_TAKE_AWAY_ATTEMPTS};
use crate::base::clock::Clock;
use crate::base::durable::{self, NewFile, PathWalk};
use crate::base::error::Error;
use crate::base::sys::{self, LeaseOutcome};
use crate::transport::{FailureCause, MemoryObject, SpecialFile, TransportError};

/// Number of checks that a foreign file has no other name before the file counts as having one.
const FOREIGN_LINK_CHECKS: usize = 16;

/// The result of opening a name.
pub(super) enum OpenOutcome {
    /// A regular file that may be read.
    File(StdFile),
    /// Not opened; this object was at the name right afterwards.
    NotOpened(MemoryObject),
    /// Another process's lease keeps it from being opened until the kernel revokes that lease.
    Leased,
}

/// An open directory.
pub(super) struct OpenDirectory {
    pub(super) clock: Arc<dyn Clock>,
    has_kernel_features: bool,
    has_leases: bool,
    pub(super) fd: Arc<OwnedFd>,
    pub(super) path: PathBuf,
    /// Whether a name in the directory was created, moved or removed and may not be on the disk.
    /// True at the start, since earlier changes are unknown.
    pub(super) has_unsynced_names: Cell<bool>,
}

impl OpenDirectory {
    /// Opens the directory at `path`, with what the transport knows of this kernel.
    pub(super) fn open(
        transport: &LocalTransport,
        path: &Path,
    ) -> Result<OpenDirectory, TransportError> {
        let walk = if transport.has_kernel_features {
            PathWalk::Openat2
        } else {
            PathWalk::Components
        };
        let fd = match durable::open_directory_by(path, walk) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => {
                let error = Error::from_io("open the directory", path, &Errno::NOENT.into())
                    .with_hint("create it, or correct its path in the config");
                return Err(TransportError::new(FailureCause::NoDirectory, error));
            }
            Err(errno) => return Err(refused_error(durable::open_directory_error(errno, path))),
        };
        Ok(OpenDirectory {
            clock: Arc::clone(&transport.clock),
            has_kernel_features: transport.has_kernel_features,
            has_leases: transport.has_leases,
            fd: Arc::new(fd),
            path: path.to_path_buf(),
            has_unsynced_names: Cell::new(true),
        })
    }

    pub(super) fn path_of(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the inode number of the directory.
    pub(super) fn inode(&self) -> Result<u64, TransportError> {
        Ok(fstat(&self.fd, &self.path)?.st_ino)
    }

    /// Returns the object at `name`.
    pub(super) fn object_at(&self, name: &OsStr) -> Result<MemoryObject, TransportError> {
        let (object, _) = self
            .stat_object(name)
            .or_refused("stat", &self.path_of(name))?;
        Ok(object)
    }

    /// Returns the object at `name`, and its raw stat result.
    fn stat_object(&self, name: &OsStr) -> io::Result<(MemoryObject, Option<Stat>)> {
        for _ in 0..MAX_TAKE_AWAY_ATTEMPTS {
            let stat = match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
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

    pub(super) fn classify_object(&self, name: &OsStr, stat: &Stat) -> io::Result<MemoryObject> {
        let special = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                // A further name of another user's file must not be archived.
                if stat.st_nlink <= 1 || !self.is_foreign_hard_link(stat)? {
                    return Ok(MemoryObject::File(metadata_from_stat(stat)));
                }
                SpecialFile::ForeignHardLink(stat.st_uid)
            }
            FileType::Symlink => {
                let target = fs::readlinkat(&self.fd, name, Vec::new())?;
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
    fn is_foreign_hard_link(&self, stat: &Stat) -> io::Result<bool> {
        let directory = fs::fstat(&self.fd)?;
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
    pub(super) fn read_obstacle(
        &self,
        name: &OsStr,
        mut stat: Stat,
    ) -> Result<Option<MemoryObject>, TransportError> {
        let path = self.path_of(name);
        if self.is_foreign_hard_link(&stat).or_refused("stat", &path)? {
            for _ in 0..FOREIGN_LINK_CHECKS {
                let (object, named) = self.stat_object(name).or_refused("stat", &path)?;
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
        let object = self
            .classify_object(name, &stat)
            .or_refused("stat", &path)?;
        Ok((!matches!(object, MemoryObject::File(_))).then_some(object))
    }

    /// Opens `name` with these flags, and without following a link.
    pub(super) fn open_with_flags(&self, name: &OsStr, flags: OFlags) -> io::Result<StdFile> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.fd, name, flags, Mode::empty()).map(StdFile::from)
    }

    /// Opens `name` for reading if it is a regular file that may be read.
    pub(super) fn open_regular(&self, name: &OsStr) -> Result<Option<StdFile>, TransportError> {
        match self.open_any(name)? {
            OpenOutcome::File(file) => Ok(Some(file)),
            OpenOutcome::Leased => Err(leased_error(&self.path_of(name))),
            OpenOutcome::NotOpened(_) => Ok(None),
        }
    }

    pub(super) fn open_any(&self, name: &OsStr) -> Result<OpenOutcome, TransportError> {
        let path = self.path_of(name);
        // Without O_NONBLOCK, opening a FIFO would block until a writer opens it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match self.open_with_flags(name, flags) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV) => {
                return Ok(OpenOutcome::NotOpened(self.object_at(name)?));
            }
            // Another process holds a lease, which this open has begun to break.
            Err(Errno::AGAIN) => return Ok(OpenOutcome::Leased),
            file => file.or_refused("read", &path)?,
        };
        let stat = fstat(&file, &path)?;
        Ok(match self.read_obstacle(name, stat)? {
            None => OpenOutcome::File(file),
            Some(other) => OpenOutcome::NotOpened(other),
        })
    }

    /// Opens the symlink at `name` itself, if there is one with this target.
    pub(super) fn open_symlink(
        &self,
        name: &str,
        target: &[u8],
    ) -> Result<Option<StdFile>, TransportError> {
        let link = match self.open_with_flags(name.as_ref(), OFlags::PATH) {
            Err(Errno::NOENT) => return Ok(None),
            link => link.or_refused("stat", &self.path_of(name))?,
        };
        // The empty path refers to the link that is open; other objects have no target.
        let found = fs::readlinkat(&link, "", Vec::new());
        Ok(found
            .is_ok_and(|found| found.as_bytes() == target)
            .then_some(link))
    }

    /// Gives a new symlink to the owner of the directory: programs trust a symlink by its owner, and
    /// the target is the agent's. Without the right to do so, it stays this user's.
    pub(super) fn give_to_directory_owner(&self, link: &StdFile) -> io::Result<()> {
        let (directory, found) = (fs::fstat(&self.fd)?, fs::fstat(link)?);
        if directory.st_uid == found.st_uid || found.st_nlink != 1 {
            return Ok(());
        }
        let owner = fs::Uid::from_raw(directory.st_uid);
        let group = fs::Gid::from_raw(directory.st_gid);
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        match fs::chownat(link, "", Some(owner), Some(group), flags) {
            Err(Errno::PERM) => Ok(()),
            changed => changed,
        }
    }

    /// Takes a read lease, where it proves that no writer has the file open.
    pub(super) fn take_read_lease(&self, file: &StdFile) -> LeaseOutcome {
        if self.has_leases && lease_obstacle(file).is_none() {
            sys::take_read_lease(file.as_fd())
        } else {
            LeaseOutcome::Unavailable
        }
    }

    pub(super) fn take_write_lease(&self, file: &StdFile) -> LeaseOutcome {
        if self.has_leases {
            sys::take_write_lease(file.as_fd())
        } else {
            LeaseOutcome::Unavailable
        }
    }

    /// Returns the identity of the object at `name`, if there is one.
    pub(super) fn identity_of(&self, name: &OsStr) -> Result<Option<FileIdentity>, TransportError> {
        let (_, stat) = self
            .stat_object(name)
            .or_refused("stat", &self.path_of(name))?;
        Ok(stat.as_ref().map(identify))
    }

    /// Returns whether any object is at `name`.
    pub(super) fn exists(&self, name: &str) -> Result<bool, TransportError> {
        Ok(self.identity_of(name.as_ref())?.is_some())
    }

    /// Creates a file without a name, or with a name that recovery of the run knows.
    pub(super) fn create_file(&self, run: &str, mode: Mode) -> Result<NewFile, Error> {
        let name = || Ok(unfinished_name(run));
        NewFile::create_with_options(&self.fd, &self.path, mode, name, self.has_kernel_features)
    }

    /// Creates a directory at `name`, with owner and rights of this one. Returns false where one is
    /// there already.
    pub(super) fn create_directory(&self, name: &OsStr) -> Result<bool, TransportError> {
        let path = self.path_of(name);
        let parent = fstat(&self.fd, &self.path)?;
        let mode = Mode::from_raw_mode(parent.st_mode & 0o2777);
        match fs::mkdirat(&self.fd, name, mode) {
            Ok(()) => self.has_unsynced_names.set(true),
            Err(Errno::EXIST)
                if self.object_at(name)? == MemoryObject::Special(SpecialFile::Directory) =>
            {
                return Ok(false);
            }
            Err(errno) => {
                let error = Error::from_io("create the directory", &path, &errno.into());
                return Err(self.explain_swap_error(name, error));
            }
        }
        let created = match self.open_with_flags(name, OFlags::DIRECTORY) {
            Ok(created) if is_own_empty_directory(&created).unwrap_or(false) => created,
            // Another user of the directory above has put something else there.
            _ => return Err(replaced_error(&path)),
        };
        let given = fs::fstat(&created).and_then(|found| {
            if (found.st_uid, found.st_gid) != (parent.st_uid, parent.st_gid) {
                let owner = fs::Uid::from_raw(parent.st_uid);
                let group = fs::Gid::from_raw(parent.st_gid);
                fs::fchown(&created, Some(owner), Some(group))?;
            }
            // Last: the mode may have been limited by the umask, and a new owner clears bits.
            fs::fchmod(&created, mode)
        });
        if given.is_err() {
            self.remove_directory(name)?;
        }
        given.or_refused("set the owner and the mode of", &path)?;
        Ok(true)
    }

    /// Removes the directory at `name`, if it is an empty one. Returns whether it is gone.
    pub(super) fn remove_directory(&self, name: &OsStr) -> Result<bool, TransportError> {
        match fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.has_unsynced_names.set(true);
                Ok(true)
            }
            Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno).or_refused("remove the directory", &self.path_of(name)),
        }
    }

    /// Removes one of our own names. Succeeds if it is absent.
    pub(super) fn remove_name(&self, name: &str) -> Result<(), TransportError> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => {
                self.has_unsynced_names.set(true);
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            // Linux checks this before it looks for the name.
            Err(Errno::ROFS) if !self.exists(name)? => Ok(()),
            removed => removed.or_refused("remove", &self.path_of(name)),
        }
    }

    /// Calls `renameat2`. Where flags are unsupported, the error is EINVAL, ENOSYS or EOPNOTSUPP.
    pub(super) fn rename_with_flags(
        &self,
        from: &OsStr,
        to: &OsStr,
        flags: RenameFlags,
    ) -> io::Result<()> {
        if self.has_kernel_features {
            fs::renameat_with(&self.fd, from, &self.fd, to, flags)
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Renames an object to one of our own names, which must be free.
    pub(super) fn rename_aside(&self, name: &OsStr, aside: &str) -> io::Result<()> {
        match self.rename_with_flags(name, aside.as_ref(), RenameFlags::NOREPLACE) {
            // No other process can know the random name before it exists.
            Err(errno) if is_rename_flag_unsupported(errno) => {
                match self.stat_object(aside.as_ref())? {
                    (MemoryObject::Absent, _) => fs::renameat(&self.fd, name, &self.fd, aside),
                    _ => Err(Errno::EXIST),
                }
            }
            result => result,
        }
    }

    /// Gives the object at one of our own names another name, if that name is free.
    pub(super) fn rename_into_place(&self, own: &str, name: &OsStr) -> io::Result<()> {
        match self.rename_with_flags(own.as_ref(), name, RenameFlags::NOREPLACE) {
            Err(errno) if is_rename_flag_unsupported(errno) => {
                let none = AtFlags::empty();
                fs::linkat(&self.fd, own, &self.fd, name, none)?;
                fs::unlinkat(&self.fd, own, none)
            }
            result => result,
        }
    }
}

/// Returns whether this error means that the system does not support the flags of a rename.
pub(super) fn is_rename_flag_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Returns whether a directory belongs to the user of this process and has no names.
fn is_own_empty_directory(directory: impl AsFd) -> Result<bool, Errno> {
    if fs::fstat(&directory)?.st_uid != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    for name in fs::Dir::read_from(directory)? {
        if !matches!(name?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
