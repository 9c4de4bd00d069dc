//! Installs a new file: creates it, gives it a name, and exchanges it with the memory.

use std::sync::Arc;

use rustix::fs::{self, Mode, RenameFlags};
use rustix::io::Errno;

use super::aside_names::new_aside_name;
use super::attributes::{XattrAccess, read_xattrs};
use super::errors::{RefusalContext, exists_error, refused_error, replaced_error};
use super::open_directory::is_rename_flag_unsupported;
use super::open_file::{FileIdentity, fstat};
use super::{LocalDirectory, MAX_TAKE_AWAY_ATTEMPTS};
use crate::base::durable::NewFile;
use crate::base::error::{Error, ErrorKind};
use crate::base::invocation::quote_operand;
use crate::base::process_rights::describe_refused_owner;
use crate::transport::{
    Attributes, FailureCause, MemoryDirectory, ObjectId, SwapMethod, SwapOutcome, TransportError,
    new_memory_mode,
};

impl LocalDirectory {
    /// Creates a file without a name, or with a name that recovery of the run knows.
    pub(super) fn create_run_file(&self, run: &str, mode: Mode) -> Result<NewFile, TransportError> {
        self.directory
            .create_file(run, mode)
            .map_err(|error| self.directory.explain_swap_error(&self.memory_name, error))
    }

    /// Returns the attributes that a new file here inherits. Creates one to determine them.
    pub(super) fn inherited_attributes(&self, run: &str) -> Result<Attributes, TransportError> {
        let stat = fstat(&self.directory.fd, &self.directory.path)?;
        // The directory's default access control list appears on a new file. Users and groups that
        // it names may write; all others may not, whatever it says.
        let new = self.create_run_file(run, Mode::from_raw_mode(0o664))?;
        let created = fstat(new.file(), &self.directory.path)?;
        let may_give_group = describe_refused_owner(created.st_uid, Some(stat.st_gid)).is_none();
        Ok(Attributes {
            uid: stat.st_uid,
            // A user may own a directory of a group that it is not in.
            gid: if may_give_group {
                stat.st_gid
            } else {
                created.st_gid
            },
            mode: new_memory_mode(stat.st_mode),
            xattrs: read_xattrs(&XattrAccess::File(new.file()))
                .or_refused("read the attributes of a new file in", &self.directory.path)?
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
        self.directory.has_unsynced_names.set(true);
        let path = self.directory.path_of(staged);
        if file.link_as(staged.as_ref()).map_err(refused_error)? {
            self.identify_open_file(Arc::clone(file.file()), &path)
        } else {
            Err(exists_error(&path))
        }
    }

    /// Exchanges the file at a name with the memory. Succeeds if the memory then is the file `new`.
    pub(super) fn swap(
        &self,
        staged: &str,
        new: FileIdentity,
    ) -> Result<SwapOutcome, TransportError> {
        self.directory.has_unsynced_names.set(true);
        let mut displaced = Vec::new();
        let mut method = None;
        for _ in 0..MAX_TAKE_AWAY_ATTEMPTS {
            let free = new_aside_name(staged)?;
            let tried = self.try_swap(staged, &free, &mut displaced);
            method = tried.map_err(|errno| self.swap_error(errno))?;
            if method.is_some() {
                break;
            }
        }
        let found = self.directory.identity_of(&self.memory_name)?;
        self.last_identified_file.replace(None);
        match method {
            // The agent may have put a file of its own at either name.
            Some(method) if found == Some(new) => Ok(SwapOutcome { method, displaced }),
            _ => Err(replaced_error(&self.memory_path())),
        }
    }

    /// Tries once to put `staged` in place. Where the file system cannot exchange, moves the old
    /// file to `free_name` first. Returns `None` if the agent created a file in between.
    fn try_swap(
        &self,
        staged: &str,
        free_name: &str,
        displaced: &mut Vec<String>,
    ) -> rustix::io::Result<Option<SwapMethod>> {
        let (directory, memory) = (&self.directory, &*self.memory_name);
        let exchange = RenameFlags::EXCHANGE;
        let is_moved_aside = match directory.rename_with_flags(staged.as_ref(), memory, exchange) {
            Ok(()) => {
                displaced.push(staged.to_string());
                return Ok(Some(SwapMethod::Exchange));
            }
            Err(Errno::NOENT) => false,
            Err(errno) if is_rename_flag_unsupported(errno) => {
                match directory.rename_aside(memory, free_name) {
                    Err(Errno::NOENT) => false,
                    renamed => renamed.map(|()| true)?,
                }
            }
            Err(errno) => return Err(errno),
        };
        if is_moved_aside {
            displaced.push(free_name.to_string());
        }
        let moved_in = directory.rename_into_place(staged, memory);
        // Without the new file the old one is better than none, unless the agent has created
        // another. If this fails, too, the old one stays aside under the name that the record
        // holds.
        if moved_in.is_err()
            && is_moved_aside
            && directory.rename_into_place(free_name, memory).is_ok()
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
            Errno::PERM | Errno::ACCESS => {
                let hint = "if it or its directory is immutable or append-only: chattr -ia";
                let error = error.with_hint(format!("{hint} {}", quote_operand(&path)));
                self.directory.explain_swap_error(&self.memory_name, error)
            }
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
        let replaced = || replaced_error(&self.directory.path_of(kept));
        let object = self
            .directory
            .identity_of(kept.as_ref())?
            .ok_or_else(replaced)?;
        // The exchange verifies that it moves this very object.
        if id.is_some_and(|id| id.inode != object.inode)
            || id.is_some() && self.object_id(kept)? != id
        {
            return Err(replaced());
        }
        let mut swapped = self.swap(kept, object)?;
        // Records keep naming `kept`, so no other object may be found there.
        for name in swapped.displaced.iter_mut().filter(|name| *name == kept) {
            let free = new_aside_name(kept)?;
            let (from, to, flags) = (kept.as_ref(), free.as_ref(), RenameFlags::NOREPLACE);
            if self.directory.rename_with_flags(from, to, flags).is_ok() {
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
        let path = self.directory.path_of(staged);
        self.directory.has_unsynced_names.set(true);
        match fs::symlinkat(target, &self.directory.fd, staged) {
            Err(Errno::EXIST) => return Err(exists_error(&path)),
            Err(errno @ (Errno::PERM | Errno::ACCESS)) => return Err(self.swap_error(errno)),
            created => created.or_refused("create the symlink", &path)?,
        }
        if let Some(hook) = &self.link_hook {
            hook()?;
        }
        let link = self.directory.open_symlink(staged, target)?;
        let link = link.ok_or_else(|| replaced_error(&path))?;
        self.directory
            .give_to_directory_owner(&link)
            .or_refused("set the owner of", &path)?;
        let link = self.identify_open_file(Arc::new(link), &path)?;
        self.swap(staged, link)
    }

    /// Renames the memory to a name that must be free.
    pub(super) fn move_memory_aside(&self, aside: &str) -> Result<SwapOutcome, TransportError> {
        match self.directory.rename_aside(&self.memory_name, aside) {
            Ok(()) => {
                self.directory.has_unsynced_names.set(true);
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
