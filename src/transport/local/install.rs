//! Installs a new file: stages it, gives it a name, and exchanges it with the memory.

use std::ffi::OsStr;
use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::aside_names::{new_aside_name, unfinished_name};
use super::attributes::{XattrAccess, apply_attributes, read_xattrs};
use super::errors::{exists_error, refused_error, replaced_error};
use super::{FileIdentity, LocalDirectory, MAX_TAKE_AWAY_ATTEMPTS};
use crate::base::durable::NewFile;
use crate::base::error::{Error, ErrorKind, PathContext};
use crate::transport::{
    Attributes, ByteSink, FailureCause, MemoryDirectory, MemoryObject, ObjectId, SpecialFile,
    StagedAttributes, SwapMethod, SwapOutcome, TransportError, new_memory_mode,
};

impl LocalDirectory {
    /// Creates the new file of a run, without a name where the system has unnamed files.
    pub(super) fn stage_file(
        &self,
        run: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: StagedAttributes,
    ) -> Result<(), TransportError> {
        let attributes = attributes.resolve(|| self.inherited_attributes(run))?;
        let mut file = self
            .create_file(run, Mode::RUSR | Mode::WUSR)
            .map_err(|error| self.explain_swap_error(error))?;
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
        if self.exists(run)? {
            return Err(exists_error(&self.path_of(run)));
        }
        self.unsynced_content.replace(Some(file.unsynced_content()));
        self.staged_file.replace(Some(file));
        Ok(())
    }

    /// Creates a file without a name, or with a name that recovery of the run knows.
    pub(super) fn create_file(&self, run: &str, mode: Mode) -> Result<NewFile, Error> {
        let name = || Ok(unfinished_name(run));
        let (fd, path) = (&self.directory_fd, &self.directory_path);
        NewFile::create_with_options(fd, path, mode, name, self.has_kernel_features)
    }

    /// Returns the attributes that a new file here inherits. Creates one to determine them.
    fn inherited_attributes(&self, run: &str) -> Result<Attributes, TransportError> {
        let stat = fs::fstat(&*self.directory_fd)
            .with_path("stat", &self.directory_path)
            .map_err(refused_error)?;
        // The directory's default access control list appears on a new file. Users and groups that
        // it names may write; all others may not, whatever it says.
        let new = self
            .create_file(run, Mode::from_raw_mode(0o664))
            .map_err(|error| self.explain_swap_error(error))?;
        Ok(Attributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: new_memory_mode(stat.st_mode),
            xattrs: read_xattrs(&XattrAccess::File(new.file()))
                .with_path("read the attributes of a new file in", &self.directory_path)
                .map_err(refused_error)?
                .0,
        })
    }

    /// Gives the staged file its name, and exchanges it with the memory.
    pub(super) fn install_staged(
        &self,
        staged: &str,
        accepts_in_place: bool,
    ) -> Result<SwapOutcome, TransportError> {
        let new = match self.named_staged.take() {
            Some(new) => new,
            None => self.link_staged(staged)?,
        };
        if let Some(hook) = &self.link_hook {
            hook()?;
        }
        match self.swap(staged, new) {
            Err(error) if error.cause == FailureCause::MountPoint && accepts_in_place => {
                self.overwrite_memory(staged, new)
            }
            swapped => swapped,
        }
    }

    /// Gives the staged file its name. Agents see it from then on.
    pub(super) fn link_staged(&self, staged: &str) -> Result<FileIdentity, TransportError> {
        let Some(mut file) = self.staged_file.take() else {
            let error = Error::new(ErrorKind::Internal, "no file is staged");
            return Err(refused_error(error));
        };
        self.has_unsynced_names.set(true);
        if file.link_as(OsStr::new(staged)).map_err(refused_error)? {
            self.identify_open_file(Arc::clone(file.file()), &self.path_of(staged))
        } else {
            Err(exists_error(&self.path_of(staged)))
        }
    }

    /// Creates a directory at the memory's name.
    pub(super) fn make_directory(&self) -> Result<bool, TransportError> {
        let path = self.memory_path();
        let parent = fs::fstat(&*self.directory_fd)
            .with_path("stat", &self.directory_path)
            .map_err(refused_error)?;
        let mode = Mode::from_raw_mode(parent.st_mode & 0o2777);
        match fs::mkdirat(&*self.directory_fd, &self.memory_name, mode) {
            Ok(()) => self.has_unsynced_names.set(true),
            Err(Errno::EXIST)
                if self.stat_memory()? == MemoryObject::Special(SpecialFile::Directory) =>
            {
                return Ok(false);
            }
            Err(errno) => {
                let error = Error::from_io("create the directory", &path, &errno.into());
                return Err(self.explain_swap_error(error));
            }
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let created = match fs::openat(&*self.directory_fd, &self.memory_name, flags, Mode::empty())
        {
            Ok(created) if is_own_empty_directory(&created).unwrap_or(false) => created,
            // Whoever may write the directory above has put something else there.
            _ => return Err(replaced_error(&path)),
        };
        let given = fs::fstat(&created)
            .and_then(|found| {
                if (found.st_uid, found.st_gid) != (parent.st_uid, parent.st_gid) {
                    let owner = fs::Uid::from_raw(parent.st_uid);
                    let group = fs::Gid::from_raw(parent.st_gid);
                    fs::fchown(&created, Some(owner), Some(group))?;
                }
                // Last: the mode may have been limited by the umask, and a new owner clears bits.
                fs::fchmod(&created, mode)
            })
            .with_path("set the owner and the mode of", &path);
        if let Err(error) = given {
            self.unlink_directory()?;
            return Err(refused_error(error));
        }
        Ok(true)
    }

    /// Removes the directory at the memory's name, if it is an empty one.
    pub(super) fn unlink_directory(&self) -> Result<bool, TransportError> {
        match fs::unlinkat(&*self.directory_fd, &self.memory_name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.has_unsynced_names.set(true);
                Ok(true)
            }
            Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno)
                .with_path("remove the directory", &self.memory_path())
                .map_err(refused_error),
        }
    }

    /// Exchanges the file at a name with the memory. Succeeds if the memory then is the file `new`.
    pub(super) fn swap(
        &self,
        staged: &str,
        new: FileIdentity,
    ) -> Result<SwapOutcome, TransportError> {
        self.has_unsynced_names.set(true);
        let mut displaced = Vec::new();
        let mut method = None;
        for _ in 0..MAX_TAKE_AWAY_ATTEMPTS {
            let free = new_aside_name(staged)?;
            match self.try_swap(OsStr::new(staged), &free, &mut displaced) {
                Ok(Some(done)) => {
                    method = Some(done);
                    break;
                }
                Ok(None) => {}
                Err(errno) => return Err(self.swap_error(errno)),
            }
        }
        let found = self.identity_of(&self.memory_name)?;
        self.last_identified_file.replace(None);
        match method {
            // The agent may have put a file of its own at either name.
            Some(method) if found == Some(new) => Ok(SwapOutcome { method, displaced }),
            _ => Err(replaced_error(&self.memory_path())),
        }
    }

    /// Calls `renameat2`. Where flags are unsupported, the error is EINVAL, ENOSYS or EOPNOTSUPP.
    fn rename_with_flags(
        &self,
        from: &OsStr,
        to: &OsStr,
        flags: RenameFlags,
    ) -> rustix::io::Result<()> {
        if self.has_kernel_features {
            fs::renameat_with(&*self.directory_fd, from, &*self.directory_fd, to, flags)
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Renames the memory to one of our own names, which must be free.
    fn rename_aside(&self, aside: &OsStr) -> rustix::io::Result<()> {
        match self.rename_with_flags(&self.memory_name, aside, RenameFlags::NOREPLACE) {
            // No other process can know the random name before it exists.
            Err(errno) if is_rename_flag_unsupported(errno) => match self.stat_object(aside)? {
                (MemoryObject::Absent, _) => fs::renameat(
                    &*self.directory_fd,
                    &self.memory_name,
                    &*self.directory_fd,
                    aside,
                ),
                _ => Err(Errno::EXIST),
            },
            result => result,
        }
    }

    /// Gives the staged file the memory's name, if that name is free.
    fn rename_into_place(&self, staged: &OsStr) -> rustix::io::Result<()> {
        match self.rename_with_flags(staged, &self.memory_name, RenameFlags::NOREPLACE) {
            Err(errno) if is_rename_flag_unsupported(errno) => {
                let none = AtFlags::empty();
                fs::linkat(
                    &*self.directory_fd,
                    staged,
                    &*self.directory_fd,
                    &self.memory_name,
                    none,
                )?;
                fs::unlinkat(&*self.directory_fd, staged, none)
            }
            result => result,
        }
    }

    /// Tries once to put `staged` in place. Where the file system cannot exchange, moves the old
    /// file to `free_name` first. Returns `None` if the agent created a file in between.
    fn try_swap(
        &self,
        staged: &OsStr,
        free_name: &str,
        displaced: &mut Vec<String>,
    ) -> rustix::io::Result<Option<SwapMethod>> {
        let aside = match self.rename_with_flags(staged, &self.memory_name, RenameFlags::EXCHANGE) {
            Ok(()) => {
                displaced.push(staged.to_string_lossy().into_owned());
                return Ok(Some(SwapMethod::Exchange));
            }
            Err(Errno::NOENT) => None,
            Err(errno) if is_rename_flag_unsupported(errno) => Some(free_name),
            Err(errno) => return Err(errno),
        };
        let mut taken = None;
        if let Some(aside) = aside {
            match self.rename_aside(OsStr::new(aside)) {
                Ok(()) => {
                    displaced.push(aside.to_string());
                    taken = Some(aside);
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        let moved_in = self.rename_into_place(staged);
        // Without the new file the old one is better than none, unless the agent has created
        // another. If this fails, too, the old one stays aside under the name that the record
        // holds.
        if moved_in.is_err()
            && let Some(aside) = taken
            && self.rename_into_place(OsStr::new(aside)).is_ok()
        {
            displaced.pop();
        }
        match moved_in {
            Ok(()) if displaced.is_empty() => Ok(Some(SwapMethod::Create)),
            Ok(()) => Ok(Some(SwapMethod::TakeAway)),
            // The agent has created another file in between; the next attempt displaces that one,
            // too.
            Err(Errno::EXIST) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn swap_error(&self, errno: Errno) -> TransportError {
        let path = self.memory_path();
        let error = Error::from_io("replace", &path, &errno.into());
        match errno {
            Errno::PERM | Errno::ACCESS => self.explain_swap_error(error.with_hint(format!(
                "if it or its directory is immutable or append-only: chattr -ia {}",
                path.display()
            ))),
            Errno::BUSY => TransportError::new(
                FailureCause::MountPoint,
                error.with_hint("it is a mount point; mount its directory instead"),
            ),
            _ => refused_error(error),
        }
    }

    /// Exchanges a kept object with the memory.
    pub(super) fn restore_object(
        &self,
        kept: &str,
        id: Option<ObjectId>,
    ) -> Result<SwapOutcome, TransportError> {
        let object = self.identity_of(OsStr::new(kept))?;
        let object = object.ok_or_else(|| replaced_error(&self.path_of(kept)))?;
        // The exchange verifies that it moves this very object.
        if id.is_some_and(|id| id.inode != object.inode)
            || id.is_some() && self.object_id(kept)? != id
        {
            return Err(replaced_error(&self.path_of(kept)));
        }
        let mut swapped = self.swap(kept, object)?;
        // Records keep naming `kept`, so no other object may be found there.
        for name in swapped.displaced.iter_mut().filter(|name| *name == kept) {
            let free = new_aside_name(kept)?;
            let renamed =
                self.rename_with_flags(OsStr::new(kept), OsStr::new(&free), RenameFlags::NOREPLACE);
            if renamed.is_ok() {
                *name = free;
            }
        }
        Ok(swapped)
    }

    /// Creates a symlink at the run's name, and exchanges it with the memory.
    pub(super) fn install_symlink(
        &self,
        staged: &str,
        target: &[u8],
    ) -> Result<SwapOutcome, TransportError> {
        self.has_unsynced_names.set(true);
        match fs::symlinkat(target, &*self.directory_fd, staged) {
            Err(Errno::EXIST) => return Err(exists_error(&self.path_of(staged))),
            Err(errno @ (Errno::PERM | Errno::ACCESS)) => return Err(self.swap_error(errno)),
            created => created
                .with_path("create the symlink", &self.path_of(staged))
                .map_err(refused_error)?,
        }
        if let Some(hook) = &self.link_hook {
            hook()?;
        }
        let path = self.path_of(staged);
        let link = self.open_symlink(staged, target)?;
        let link = link.ok_or_else(|| replaced_error(&path))?;
        self.give_to_directory_owner(&link)
            .with_path("set the owner of", &path)
            .map_err(refused_error)?;
        let link = self.identify_open_file(Arc::new(link), &path)?;
        self.swap(staged, link)
    }

    /// Gives a new symlink to the owner of the directory: programs trust a symlink by its owner, and
    /// the target is the agent's. Without the right to do so, it stays this user's.
    fn give_to_directory_owner(&self, link: &StdFile) -> rustix::io::Result<()> {
        let (directory, found) = (fs::fstat(&*self.directory_fd)?, fs::fstat(link)?);
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

    /// Returns the identity of the symlink at `name`, if there is one with this target.
    pub(super) fn find_symlink(
        &self,
        name: &str,
        target: &[u8],
    ) -> Result<Option<FileIdentity>, TransportError> {
        let link = self.open_symlink(name, target)?;
        link.map(|link| self.identify_open_file(Arc::new(link), &self.path_of(name)))
            .transpose()
    }

    /// Opens the symlink at `name` itself, if there is one with this target.
    fn open_symlink(&self, name: &str, target: &[u8]) -> Result<Option<StdFile>, TransportError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = match fs::openat(&*self.directory_fd, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => StdFile::from(
                opened
                    .with_path("stat", &self.path_of(name))
                    .map_err(refused_error)?,
            ),
        };
        // The empty path refers to the link that is open; other objects have no target.
        let found = fs::readlinkat(&link, "", Vec::new());
        Ok(found
            .is_ok_and(|found| found.as_bytes() == target)
            .then_some(link))
    }

    /// Renames the memory to a name that must be free.
    pub(super) fn move_memory_aside(&self, aside: &str) -> Result<SwapOutcome, TransportError> {
        match self.rename_aside(OsStr::new(aside)) {
            Ok(()) => {
                self.has_unsynced_names.set(true);
                Ok(SwapOutcome {
                    method: SwapMethod::Remove,
                    displaced: vec![aside.to_string()],
                })
            }
            Err(Errno::NOENT) => Err(replaced_error(&self.memory_path())),
            Err(errno) => Err(self.swap_error(errno)),
        }
    }
}

/// Returns whether this error means that the system does not support the flags of a rename.
fn is_rename_flag_unsupported(errno: Errno) -> bool {
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
