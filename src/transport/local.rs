//! Memories on this machine, through file descriptors that never follow a
//! link.

mod attributes;
mod errors;
mod in_place;
mod leases;
mod names;
mod outlook;
mod settle;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File as StdFile;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{
    self, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;

use self::attributes::{XattrAccess, apply_attributes, xattrs};
use self::errors::{exists, leased, moved, refused};
use self::names::{aside, is_aside, unfinished};
use self::settle::QUIET_PERIOD;
use super::{
    Attributes, Cause, File, Folder, Identity, MemoryObject, Method, ObjectId, Reader, Settled,
    Sink, SpecialFile, Stamp, SwapForecast, Swapped, Transport, TransportError, Unsynced,
    created_mode,
};
use crate::clock::Clock;
use crate::digest::{Digest, Hasher};
use crate::durable::{self, NewFile, Walk};
use crate::error::{Error, Kind, PathContext};
use crate::sys::{self, Lease};

/// How often a memory that the agent keeps re-creating is taken away again.
const MAX_TAKE_AWAY_ATTEMPTS: usize = 16;

/// The largest file that is read: a sparse one can claim far more than any disk
/// holds, and while it is read others wait.
const MAX_FILE_BYTES: u64 = 16 << 30;

/// How much a file may grow while it is read, if that is more than its size.
const MAX_GROWTH_BYTES: u64 = 64 << 20;

/// How often the name of somebody else's file is looked at before it is taken for
/// its only one.
const FOREIGN_LINK_CHECKS: usize = 16;

/// How much of a file is read at once.
const READ_CHUNK_BYTES: usize = 128 * 1024;

/// The local disk.
pub struct Local {
    clock: Arc<dyn Clock>,
    help: bool,
    leases: bool,
}

impl Local {
    /// The local disk, with what the kernel offers.
    pub fn new(clock: Arc<dyn Clock>) -> Local {
        Local {
            clock,
            help: true,
            leases: true,
        }
    }

    /// The same without `openat2`, nameless files and the flags of `renameat2`,
    /// as on old kernels and poor file systems: the fallbacks, made testable.
    pub fn without_kernel_help(clock: Arc<dyn Clock>) -> Local {
        Local {
            help: false,
            ..Local::new(clock)
        }
    }

    /// The same without file leases, as for users without the right to take
    /// them and on network file systems.
    pub fn without_leases(clock: Arc<dyn Clock>) -> Local {
        Local {
            leases: false,
            ..Local::new(clock)
        }
    }

    fn folder(&self, memory: &Path) -> Result<LocalFolder, TransportError> {
        let (Some(parent), Some(name)) = (memory.parent(), memory.file_name()) else {
            let message = format!("{} is not the path of a file", memory.display());
            return Err(refused(Error::new(Kind::Config, message)));
        };
        // A bare name lies in the current folder.
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let walk = match self.help {
            true => Walk::Kernel,
            false => Walk::Components,
        };
        let fd = match durable::open_folder_raw(parent, walk) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => {
                let error = Error::io("open the directory", parent, &Errno::NOENT.into())
                    .hint("create it, or correct memory_file in the configuration");
                return Err(TransportError::new(Cause::NoFolder, error));
            }
            Err(_) => durable::open_folder(parent, walk).map_err(refused)?,
        };
        Ok(LocalFolder {
            clock: Arc::clone(&self.clock),
            help: self.help,
            leases: self.leases,
            fd: Arc::new(fd),
            path: parent.to_path_buf(),
            name: name.to_os_string(),
            identified: RefCell::default(),
            unwatched: RefCell::default(),
            staged: RefCell::default(),
            content: RefCell::default(),
            changed: Cell::new(true),
        })
    }
}

impl Transport for Local {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        memories
            .iter()
            .map(|memory| self.folder(memory)?.look())
            .collect()
    }

    fn open(&self, memory: &Path) -> Result<Box<dyn Folder>, TransportError> {
        Ok(Box::new(self.folder(memory)?))
    }
}

/// What opening a name came to.
enum Opened {
    /// A regular file that may be read.
    File(StdFile),
    /// Nothing that was opened: this stood there right afterwards.
    Other(MemoryObject),
    /// Somebody keeps everybody else from opening it, until the kernel ends that.
    Leased,
}

struct LocalFolder {
    clock: Arc<dyn Clock>,
    help: bool,
    leases: bool,
    fd: Arc<OwnedFd>,
    path: PathBuf,
    name: OsString,
    /// The file whose [`Identity`] was told last. While it is open no other
    /// file can get its inode number, also when an agent removes it.
    identified: RefCell<Option<Arc<StdFile>>>,
    /// Displaced files whose writers cannot be detected: status and time of the first
    /// look.
    unwatched: RefCell<HashMap<String, (File, Instant)>>,
    /// The file that was staged and has no name yet.
    staged: RefCell<Option<NewFile>>,
    /// The content of a staged file that is perhaps not on the disk.
    content: RefCell<Option<Unsynced>>,
    /// Whether a name in the folder was made, moved or removed; nobody knows
    /// what was before it was opened.
    changed: Cell<bool>,
}

impl LocalFolder {
    fn memory(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What stands at `name`, and its raw status.
    fn object(&self, name: &OsStr) -> rustix::io::Result<(MemoryObject, Option<Stat>)> {
        for _ in 0..MAX_TAKE_AWAY_ATTEMPTS {
            let stat = match fs::statat(&*self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok((MemoryObject::Absent, None)),
                stat => stat?,
            };
            match self.classify(name, &stat) {
                // A link that has gone, or is none any more, before its target
                // could be read: look again.
                Err(Errno::INVAL | Errno::NOENT) => {}
                object => return Ok((object?, Some(stat))),
            }
        }
        Err(Errno::AGAIN)
    }

    fn classify(&self, name: &OsStr, stat: &Stat) -> rustix::io::Result<MemoryObject> {
        let odd = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                // A further name of somebody else's file must not be archived.
                if stat.st_nlink <= 1 || !self.is_foreign(stat)? {
                    return Ok(MemoryObject::File(describe(stat)));
                }
                SpecialFile::ForeignLink(stat.st_uid)
            }
            FileType::Symlink => {
                let target = fs::readlinkat(&*self.fd, name, Vec::new())?;
                SpecialFile::Symlink(target.into_bytes())
            }
            FileType::Directory => SpecialFile::Directory,
            FileType::Fifo => SpecialFile::Fifo,
            FileType::Socket => SpecialFile::Socket,
            _ => SpecialFile::Device,
        };
        Ok(MemoryObject::Odd(odd))
    }

    /// Whether another user than a file's owner may have created its name here: every
    /// user who can write to the directory, where the kernel allows links to any file
    /// (`fs.protected_hardlinks=0`). Users who can write to the file itself gain nothing
    /// by a link.
    fn is_foreign(&self, stat: &Stat) -> rustix::io::Result<bool> {
        let folder = fs::fstat(&*self.fd)?;
        if stat.st_uid != folder.st_uid {
            return Ok(true);
        }
        let shared = folder.st_mode & 0o002 == 0
            && stat.st_gid == folder.st_gid
            && stat.st_mode & 0o020 != 0;
        Ok(folder.st_mode & 0o022 != 0 && !shared)
    }

    /// Returns what keeps an open file with this status from being read, if anything
    /// does. A second name of a foreign file, which the agent has removed since, would
    /// look like the only one. So every look has to find this name, and count no other:
    /// while a name is being removed, one look may still find it and not count it.
    fn obstacle(
        &self,
        name: &OsStr,
        mut stat: Stat,
    ) -> Result<Option<MemoryObject>, TransportError> {
        let path = self.path.join(name);
        let foreign = self.is_foreign(&stat).path("look at", &path);
        if foreign.map_err(refused)? {
            for _ in 0..FOREIGN_LINK_CHECKS {
                let (object, named) = self.object(name).path("look at", &path).map_err(refused)?;
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
        let object = self.classify(name, &stat).path("look at", &path);
        Ok(match object.map_err(refused)? {
            MemoryObject::File(_) => None,
            odd => Some(odd),
        })
    }

    fn stat(&self, file: &StdFile, path: &Path) -> Result<Stat, TransportError> {
        fs::fstat(file).path("look at", path).map_err(refused)
    }

    /// Opens `name` for reading if it is a regular file that may be read.
    fn open(&self, name: &OsStr) -> Result<Option<StdFile>, TransportError> {
        match self.open_any(name)? {
            Opened::File(file) => Ok(Some(file)),
            Opened::Leased => Err(leased(&self.path.join(name))),
            _ => Ok(None),
        }
    }

    fn open_any(&self, name: &OsStr) -> Result<Opened, TransportError> {
        let path = self.path.join(name);
        // Without O_NONBLOCK a FIFO would hold us until somebody writes to it.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match fs::openat(&*self.fd, name, flags, Mode::empty()) {
            Ok(file) => StdFile::from(file),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV) => {
                let object = self.object(name).path("look at", &path);
                return Ok(Opened::Other(object.map_err(refused)?.0));
            }
            // Somebody has a lease on it, which this open has begun to break.
            Err(Errno::AGAIN) => return Ok(Opened::Leased),
            Err(errno) => return Err(errno).path("read", &path).map_err(refused),
        };
        let stat = self.stat(&file, &path)?;
        Ok(match self.obstacle(name, stat)? {
            None => Opened::File(file),
            Some(other) => Opened::Other(other),
        })
    }

    fn take_lease(&self, file: &StdFile) -> Lease {
        match self.leases && leases::obstacle(file).is_none() {
            true => sys::take_lease(file.as_fd()),
            false => Lease::Unavailable,
        }
    }

    /// Reads an open file from its beginning to its end, which may move on, but
    /// not for ever.
    fn read_all(
        &self,
        file: &StdFile,
        path: &Path,
        sink: Sink<'_>,
    ) -> Result<File, TransportError> {
        let size = self.stat(file, path)?.st_size as u64;
        if size > MAX_FILE_BYTES {
            let message = format!(
                "{} claims {size} bytes, more than 16 GiB, which is not read",
                path.display()
            );
            return Err(refused(Error::new(Kind::Host, message).hint(format!(
                "it is hardly notes: see what is in it, then cut it short: truncate --size=1M {}",
                path.display()
            ))));
        }
        let limit = (size + MAX_GROWTH_BYTES).max(2 * size);
        let mut offset = 0;
        let mut buffer = vec![
            0;
            (size as usize)
                .saturating_add(1)
                .clamp(4096, READ_CHUNK_BYTES)
        ];
        while offset < limit {
            let count = match rustix::io::pread(file, &mut buffer, offset) {
                Err(Errno::INTR) => continue,
                result => result.path("read", path).map_err(refused)?,
            };
            if count == 0 {
                break;
            }
            sink(&buffer[..count])?;
            offset += count as u64;
        }
        let stat = fs::fstat(file).path("look at", path).map_err(refused)?;
        Ok(describe(&stat))
    }

    /// The same, and its extended attributes afterwards.
    fn read_whole(
        &self,
        file: &StdFile,
        path: &Path,
        sink: Sink<'_>,
    ) -> Result<File, TransportError> {
        let mut read = self.read_all(file, path, sink)?;
        (read.attributes.xattrs, read.dropped) = xattrs(&XattrAccess::File(file))
            .path("read the attributes of", path)
            .map_err(refused)?;
        Ok(read)
    }

    /// Tells an open file from all others, and keeps it open for that.
    fn identify(&self, file: Arc<StdFile>, path: &Path) -> Result<Identity, TransportError> {
        let stat = fs::fstat(&file).path("look at", path).map_err(refused)?;
        self.identified.replace(Some(file));
        Ok(identify(&stat))
    }

    /// Which file stands at `name`, if anything does.
    fn identity(&self, name: &OsStr) -> Result<Option<Identity>, TransportError> {
        let (_, stat) = self
            .object(name)
            .path("look at", &self.path.join(name))
            .map_err(refused)?;
        Ok(stat.as_ref().map(identify))
    }

    /// `renameat2`, which knows flags; where it does not, the answer is EINVAL,
    /// ENOSYS or EOPNOTSUPP.
    fn rename(&self, from: &OsStr, to: &OsStr, flags: RenameFlags) -> rustix::io::Result<()> {
        match self.help {
            true => fs::renameat_with(&*self.fd, from, &*self.fd, to, flags),
            false => Err(Errno::INVAL),
        }
    }

    /// Renames the memory to a name of ours that is free.
    fn move_aside(&self, aside: &OsStr) -> rustix::io::Result<()> {
        match self.rename(&self.name, aside, RenameFlags::NOREPLACE) {
            // Nobody but us can know the random name before it stands there.
            Err(errno) if unsupported(errno) => match self.object(aside)? {
                (MemoryObject::Absent, _) => fs::renameat(&*self.fd, &self.name, &*self.fd, aside),
                _ => Err(Errno::EXIST),
            },
            result => result,
        }
    }

    /// Gives the staged file the memory's name, unless something stands there.
    fn move_in(&self, staged: &OsStr) -> rustix::io::Result<()> {
        match self.rename(staged, &self.name, RenameFlags::NOREPLACE) {
            Err(errno) if unsupported(errno) => {
                let none = AtFlags::empty();
                fs::linkat(&*self.fd, staged, &*self.fd, &self.name, none)?;
                fs::unlinkat(&*self.fd, staged, none)
            }
            result => result,
        }
    }

    /// One attempt to put `staged` in place; what cannot be exchanged is taken
    /// to the name `free`. None when the agent put something
    /// there meanwhile.
    fn swap_once(
        &self,
        staged: &OsStr,
        free: &str,
        displaced: &mut Vec<String>,
    ) -> rustix::io::Result<Option<Method>> {
        let aside = match self.rename(staged, &self.name, RenameFlags::EXCHANGE) {
            Ok(()) => {
                displaced.push(staged.to_string_lossy().into_owned());
                return Ok(Some(Method::Exchange));
            }
            Err(Errno::NOENT) => None,
            Err(errno) if unsupported(errno) => Some(free),
            Err(errno) => return Err(errno),
        };
        let mut taken = None;
        if let Some(aside) = aside {
            match self.move_aside(OsStr::new(aside)) {
                Ok(()) => {
                    displaced.push(aside.to_string());
                    taken = Some(aside);
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        let moved_in = self.move_in(staged);
        // Without the new file the old one is better than none, unless the
        // agent made one itself. Where even that fails it stays aside, and is
        // named by the record.
        if moved_in.is_err()
            && let Some(aside) = taken
            && self.move_in(OsStr::new(aside)).is_ok()
        {
            displaced.pop();
        }
        match moved_in {
            Ok(()) if displaced.is_empty() => Ok(Some(Method::Create)),
            Ok(()) => Ok(Some(Method::TakeAway)),
            // The agent was quicker and made a new one: that one, too.
            Err(Errno::EXIST) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn replace_error(&self, errno: Errno) -> TransportError {
        let path = self.memory();
        let error = Error::io("replace", &path, &errno.into());
        match errno {
            Errno::PERM | Errno::ACCESS => self.explained(error.hint(format!(
                "if it or its directory is immutable or append-only: chattr -ia {}",
                path.display()
            ))),
            Errno::BUSY => TransportError::new(
                Cause::MountPoint,
                error.hint("it is a mount point of its own; mount its directory instead"),
            ),
            _ => refused(error),
        }
    }
}

impl Folder for LocalFolder {
    fn unsynced(&self) -> Vec<Unsynced> {
        let folder = self.changed.take();
        let folder = folder.then(|| Unsynced::new(Arc::clone(&self.fd) as _, &self.path));
        self.content.take().into_iter().chain(folder).collect()
    }

    fn identity(&self) -> Result<Option<u64>, TransportError> {
        let stat = fs::fstat(&*self.fd)
            .path("look at", &self.path)
            .map_err(refused)?;
        Ok(Some(stat.st_ino))
    }

    fn look(&self) -> Result<MemoryObject, TransportError> {
        let (object, _) = self
            .object(&self.name)
            .path("look at", &self.memory())
            .map_err(refused)?;
        Ok(object)
    }

    fn read(&self, sink: Sink<'_>) -> Result<File, TransportError> {
        let path = self.memory();
        let file = self.open(&self.name)?.ok_or_else(|| moved(&path))?;
        self.read_whole(&file, &path, sink)
    }

    fn unread(&self) -> Result<File, TransportError> {
        let path = self.memory();
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match fs::openat(&*self.fd, &self.name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Err(moved(&path)),
            file => StdFile::from(file.path("look at", &path).map_err(refused)?),
        };
        // The same check as for reading: the new memory gets its owner and mode.
        let stat = self.stat(&file, &path)?;
        if self.obstacle(&self.name, stat)?.is_some() {
            return Err(moved(&path));
        }
        let mut found = describe(&stat);
        let way = format!("/proc/self/fd/{}", file.as_raw_fd());
        (found.attributes.xattrs, found.dropped) = xattrs(&XattrAccess::Path(&way))
            .path("read the attributes of", &path)
            .map_err(refused)?;
        Ok(found)
    }

    fn outlook(&self) -> SwapForecast {
        self.look_ahead()
    }

    fn inherited(&self, staged: &str) -> Result<Attributes, TransportError> {
        let stat = fs::fstat(&*self.fd)
            .path("look at", &self.path)
            .map_err(refused)?;
        // A default access control list of the directory shows on a new file. Users and
        // groups that it names may write; all others may not, whatever it says.
        let mode = Mode::from_raw_mode(0o664);
        let name = || Ok(unfinished(staged));
        let new = NewFile::create_as(&self.fd, &self.path, mode, name, self.help);
        let new = new.map_err(|error| self.explained(error))?;
        Ok(Attributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: created_mode(stat.st_mode),
            xattrs: xattrs(&XattrAccess::File(new.file()))
                .path("read the attributes of a new file in", &self.path)
                .map_err(refused)?
                .0,
        })
    }

    fn stage(
        &self,
        name: &str,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<Identity, TransportError> {
        let mode = Mode::RUSR | Mode::WUSR;
        let unfinished = || Ok(unfinished(name));
        let mut file = NewFile::create_as(&self.fd, &self.path, mode, unfinished, self.help)
            .map_err(|error| self.explained(error))?;
        let mut failure = None;
        let fed = content(&mut |bytes| {
            file.write(bytes)
                .inspect_err(|error| failure = Some(error.clone()))
        });
        if let Some(error) = failure {
            return Err(refused(error));
        }
        fed?;
        file.begin_writing();
        apply_attributes(file.file(), attributes, &self.memory()).map_err(refused)?;
        let path = self.at(name);
        if self.stands(name)? {
            return Err(exists(&path));
        }
        let identity = self.identify(Arc::clone(file.file()), &path)?;
        self.content.replace(Some(file.content()));
        self.staged.replace(Some(file));
        Ok(identity)
    }

    fn link(&self, staged: &str) -> Result<(), TransportError> {
        let Some(mut file) = self.staged.take() else {
            return Ok(());
        };
        self.changed.set(true);
        match file.link(OsStr::new(staged)).map_err(refused)? {
            true => Ok(()),
            false => Err(exists(&self.at(staged))),
        }
    }

    fn remove_unfinished(&self, staged: &str) -> Result<(), TransportError> {
        self.remove(&unfinished(staged))
    }

    fn swap(&self, staged: &str, new: Identity) -> Result<Swapped, TransportError> {
        self.changed.set(true);
        let mut displaced = Vec::new();
        let mut method = None;
        for _ in 0..MAX_TAKE_AWAY_ATTEMPTS {
            let free = aside(staged)?;
            match self.swap_once(OsStr::new(staged), &free, &mut displaced) {
                Ok(Some(done)) => {
                    method = Some(done);
                    break;
                }
                Ok(None) => {}
                Err(errno) => return Err(self.replace_error(errno)),
            }
        }
        let found = self.identity(&self.name)?;
        self.identified.replace(None);
        match method {
            // The agent may have put a file of its own at either name.
            Some(method) if found == Some(new) => Ok(Swapped { method, displaced }),
            _ => Err(moved(&self.memory())),
        }
    }

    fn write_in_place(&self, staged: &str, new: Identity) -> Result<Swapped, TransportError> {
        self.changed.set(true);
        self.overwrite(staged, new)
    }

    fn object_id(&self, name: &str) -> Result<Option<ObjectId>, TransportError> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = match fs::statx(&*self.fd, name, flags, wanted) {
            Err(Errno::NOENT) => return Ok(None),
            found => found.path("look at", &self.at(name)).map_err(refused)?,
        };
        // What is mounted there is none of this file system's objects.
        let mounted = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        let is_told = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let created = is_told.then(|| {
            let seconds = found.stx_btime.tv_sec.saturating_mul(1_000_000_000);
            seconds.saturating_add(found.stx_btime.tv_nsec.into())
        });
        Ok((!mounted).then_some(ObjectId {
            inode: found.stx_ino,
            created,
        }))
    }

    fn put_back(&self, kept: &str, id: Option<ObjectId>) -> Result<Swapped, TransportError> {
        let object = self.identity(OsStr::new(kept))?;
        let object = object.ok_or_else(|| moved(&self.at(kept)))?;
        // The exchange makes sure that it is this object which it puts there.
        if id.is_some_and(|id| id.inode != object.inode)
            || id.is_some() && self.object_id(kept)? != id
        {
            return Err(moved(&self.at(kept)));
        }
        let mut swapped = self.swap(kept, object)?;
        // Records go on naming `kept`: nothing else is to be found there.
        for name in swapped.displaced.iter_mut().filter(|name| *name == kept) {
            let free = aside(kept)?;
            let renamed = self.rename(OsStr::new(kept), OsStr::new(&free), RenameFlags::NOREPLACE);
            if renamed.is_ok() {
                *name = free;
            }
        }
        Ok(swapped)
    }

    fn take_away(&self, aside: &str) -> Result<(), TransportError> {
        match self.move_aside(OsStr::new(aside)) {
            Ok(()) => {
                self.changed.set(true);
                Ok(())
            }
            Err(Errno::NOENT) => Err(moved(&self.memory())),
            Err(errno) => Err(self.replace_error(errno)),
        }
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        self.settle_file(displaced, inspect)
    }

    fn unwatched(&self) -> Option<String> {
        leases::obstacle(&*self.fd)
    }

    fn due(&self) -> Option<Instant> {
        let unwatched = self.unwatched.borrow();
        unwatched.values().map(|(_, at)| *at + QUIET_PERIOD).max()
    }

    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let list = || -> rustix::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::Dir::read_from(&*self.fd)? {
                // Ours are ASCII.
                if let Ok(name) = str::from_utf8(entry?.file_name().to_bytes())
                    && (is_aside(staged, name) || in_place::is_copy(staged, name))
                {
                    names.push(name.to_string());
                }
            }
            names.sort();
            Ok(names)
        };
        let mut names = list().path("list", &self.path).map_err(refused)?;
        if self.stands(staged)? {
            names.insert(0, staged.to_string());
        }
        Ok(names)
    }

    fn half_written(&self, staged: &str) -> Result<bool, TransportError> {
        let names = self.displaced_names(staged)?;
        let copied = names.iter().any(|name| in_place::is_copy(staged, name));
        Ok(copied && names.iter().any(|name| name == staged))
    }

    fn stands(&self, name: &str) -> Result<bool, TransportError> {
        Ok(self.identity(OsStr::new(name))?.is_some())
    }

    fn holds(&self, name: &str, content: Digest) -> Result<Option<Identity>, TransportError> {
        let opened = self.open_any(OsStr::new(name))?;
        // Not to be told, of a file that is leased; who asks finds out otherwise.
        let Opened::File(file) = opened else {
            return Ok(None);
        };
        let mut hasher = Hasher::default();
        self.read_all(&file, &self.at(name), &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        match hasher.finish() == content {
            true => self.identify(Arc::new(file), &self.at(name)).map(Some),
            false => Ok(None),
        }
    }

    fn remove_odd(&self, name: &str, odd: &SpecialFile) -> Result<bool, TransportError> {
        let found = self
            .object(OsStr::new(name))
            .path("look at", &self.at(name));
        match found.map_err(refused)?.0 {
            MemoryObject::Odd(found) if found == *odd => self.remove(name).map(|()| true),
            found => Ok(found == MemoryObject::Absent),
        }
    }

    fn remove(&self, name: &str) -> Result<(), TransportError> {
        match fs::unlinkat(&*self.fd, name, AtFlags::empty()) {
            Ok(()) => {
                self.changed.set(true);
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno).path("remove", &self.at(name)).map_err(refused),
        }
    }
}

/// Whether a system answers so that does not know the flags of a rename.
fn unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

fn identify(stat: &Stat) -> Identity {
    Identity {
        device: stat.st_dev,
        inode: stat.st_ino,
    }
}

fn describe(stat: &Stat) -> File {
    File {
        stamp: Stamp::of(stat),
        attributes: Attributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            xattrs: Vec::new(),
        },
        dropped: 0,
    }
}

#[cfg(test)]
mod tests;
