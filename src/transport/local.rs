//! Memories on this machine, through file descriptors that never follow a
//! link.

use std::ffi::{OsStr, OsString};
use std::fs::File as StdFile;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, XattrFlags};
use rustix::io::Errno;

use super::{
    Attributes, Cause, File, Folder, Method, Object, Odd, Reader, Settled, Sink, Stamp, Swapped,
    Transport, TransportError, Xattr,
};
use crate::clock::Clock;
use crate::digest::{Digest, Hasher};
use crate::durable::{self, NewFile, Walk};
use crate::error::{Error, Kind, PathContext};
use crate::sys::{self, Lease};

/// How often a memory that the agent keeps re-creating is taken away again.
const ATTEMPTS: usize = 16;

/// How long a file must keep its size and times where writers cannot be seen.
const QUIET: Duration = Duration::from_millis(250);

/// How long to wait for an opener that came while a file was being removed.
const OPENER: Duration = Duration::from_secs(2);

/// The local disk.
pub struct Local {
    clock: Arc<dyn Clock>,
    help: bool,
}

impl Local {
    /// The local disk, with what the kernel offers.
    pub fn new(clock: Arc<dyn Clock>) -> Local {
        Local { clock, help: true }
    }

    /// The same without `openat2`, nameless files and the flags of `renameat2`,
    /// as on old kernels and poor file systems: the fallbacks, made testable.
    pub fn without_kernel_help(clock: Arc<dyn Clock>) -> Local {
        Local { clock, help: false }
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
                let error = Error::io("open the folder", parent, &Errno::NOENT.into())
                    .hint("create it, or correct memory_file in the configuration");
                return Err(TransportError::new(Cause::NoFolder, error));
            }
            Err(_) => durable::open_folder(parent, walk).map_err(refused)?,
        };
        Ok(LocalFolder {
            clock: Arc::clone(&self.clock),
            help: self.help,
            fd: Arc::new(fd),
            path: parent.to_path_buf(),
            name: name.to_os_string(),
        })
    }
}

impl Transport for Local {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<Object, TransportError>> {
        memories
            .iter()
            .map(|memory| self.folder(memory)?.look())
            .collect()
    }

    fn open(&self, memory: &Path) -> Result<Box<dyn Folder>, TransportError> {
        Ok(Box::new(self.folder(memory)?))
    }
}

struct LocalFolder {
    clock: Arc<dyn Clock>,
    help: bool,
    fd: Arc<OwnedFd>,
    path: PathBuf,
    name: OsString,
}

impl LocalFolder {
    fn memory(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What stands at `name`, and its raw status.
    fn object(&self, name: &OsStr) -> rustix::io::Result<(Object, Option<Stat>)> {
        match fs::statat(&*self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok((self.classify(name, &stat)?, Some(stat))),
            Err(Errno::NOENT) => Ok((Object::Absent, None)),
            Err(errno) => Err(errno),
        }
    }

    fn classify(&self, name: &OsStr, stat: &Stat) -> rustix::io::Result<Object> {
        let odd = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                // A further name of somebody else's file must not be archived.
                let ours = rustix::process::geteuid().as_raw();
                let foreign = stat.st_nlink > 1
                    && stat.st_uid != ours
                    && stat.st_uid != fs::fstat(&*self.fd)?.st_uid;
                if !foreign {
                    return Ok(Object::File(describe(stat)));
                }
                Odd::ForeignLink(stat.st_uid)
            }
            FileType::Symlink => {
                let target = fs::readlinkat(&*self.fd, name, Vec::new())?;
                Odd::Symlink(target.into_bytes())
            }
            FileType::Directory => Odd::Directory,
            FileType::Fifo => Odd::Fifo,
            FileType::Socket => Odd::Socket,
            _ => Odd::Device,
        };
        Ok(Object::Odd(odd))
    }

    /// Opens `name` for reading if it is a regular file that may be read.
    fn open(&self, name: &OsStr) -> Result<Result<StdFile, Object>, TransportError> {
        let path = self.path.join(name);
        let look = || -> Result<Object, TransportError> {
            let (object, _) = self.object(name).path("look at", &path).map_err(refused)?;
            Ok(object)
        };
        // Without O_NONBLOCK a FIFO would hold us until somebody writes to it.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match fs::openat(&*self.fd, name, flags, Mode::empty()) {
            Ok(file) => StdFile::from(file),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NODEV) => return look().map(Err),
            Err(errno) => return Err(errno).path("read", &path).map_err(refused),
        };
        let stat = fs::fstat(&file).path("look at", &path).map_err(refused)?;
        match self
            .classify(name, &stat)
            .path("look at", &path)
            .map_err(refused)?
        {
            Object::File(_) => Ok(Ok(file)),
            other => Ok(Err(other)),
        }
    }

    /// Reads an open file from its beginning to its end.
    fn read_all(
        &self,
        file: &StdFile,
        path: &Path,
        sink: Sink<'_>,
    ) -> Result<File, TransportError> {
        let mut offset = 0;
        let mut buffer = vec![0; 128 * 1024];
        loop {
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

    fn sync(&self) -> Result<(), TransportError> {
        fs::fsync(&*self.fd)
            .path("sync the folder", &self.path)
            .map_err(refused)
    }

    fn inode(&self, name: &OsStr) -> Result<Option<(u64, u64)>, TransportError> {
        let (_, stat) = self
            .object(name)
            .path("look at", &self.path.join(name))
            .map_err(refused)?;
        Ok(stat.map(|stat| (stat.st_dev, stat.st_ino)))
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
                (Object::Absent, _) => fs::renameat(&*self.fd, &self.name, &*self.fd, aside),
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

    /// One attempt to put `staged` in place; none when the agent put something
    /// there meanwhile.
    fn swap_once(
        &self,
        staged: &OsStr,
        displaced: &mut Vec<String>,
    ) -> rustix::io::Result<Option<Method>> {
        let aside = match self.rename(staged, &self.name, RenameFlags::EXCHANGE) {
            Ok(()) => {
                displaced.push(staged.to_string_lossy().into_owned());
                return Ok(Some(Method::Exchange));
            }
            Err(Errno::NOENT) => None,
            Err(errno) if unsupported(errno) => {
                Some(aside(&staged.to_string_lossy(), displaced.len()))
            }
            Err(errno) => return Err(errno),
        };
        if let Some(aside) = aside {
            match self.move_aside(OsStr::new(&aside)) {
                Ok(()) => displaced.push(aside),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        match self.move_in(staged) {
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
        refused(match errno {
            Errno::PERM | Errno::ACCESS => error.hint(format!(
                "if it is immutable or append-only: sudo chattr -ia {}",
                path.display()
            )),
            Errno::BUSY => error.hint(
                "it is a mount point of its own; mount the folder it lies in instead of the file",
            ),
            _ => error,
        })
    }
}

impl Folder for LocalFolder {
    fn identity(&self) -> Result<Option<(u64, u64)>, TransportError> {
        let stat = fs::fstat(&*self.fd)
            .path("look at", &self.path)
            .map_err(refused)?;
        Ok(Some((stat.st_dev, stat.st_ino)))
    }

    fn look(&self) -> Result<Object, TransportError> {
        let (object, _) = self
            .object(&self.name)
            .path("look at", &self.memory())
            .map_err(refused)?;
        Ok(object)
    }

    fn read(&self, sink: Sink<'_>) -> Result<File, TransportError> {
        let path = self.memory();
        match self.open(&self.name)? {
            Ok(file) => self.read_all(&file, &path, sink),
            Err(_) => Err(moved(&path)),
        }
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, TransportError> {
        let path = self.memory();
        match self.open(&self.name)? {
            Ok(file) => xattrs(&file)
                .path("read the attributes of", &path)
                .map_err(refused),
            Err(_) => Err(moved(&path)),
        }
    }

    fn inherited(&self) -> Result<Attributes, TransportError> {
        let stat = fs::fstat(&*self.fd)
            .path("look at", &self.path)
            .map_err(refused)?;
        // A default access control list of the folder is seen on a new file.
        let mode = Mode::from_raw_mode(0o666);
        let name = durable::random_name().map_err(refused)?;
        let new = NewFile::create_as(&self.fd, &self.path, mode, name, self.help);
        let new = new.map_err(refused)?;
        Ok(Attributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o666 | 0o600,
            xattrs: xattrs(new.file())
                .path("read the attributes of a new file in", &self.path)
                .map_err(refused)?,
        })
    }

    fn stage(
        &self,
        name: &str,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<(), TransportError> {
        let mode = Mode::RUSR | Mode::WUSR;
        let unfinished = unfinished(name);
        let mut file = NewFile::create_as(&self.fd, &self.path, mode, unfinished, self.help)
            .map_err(refused)?;
        let mut failure = None;
        let fed = content(&mut |bytes| {
            file.write(bytes)
                .inspect_err(|error| failure = Some(error.clone()))
        });
        if let Some(error) = failure {
            return Err(refused(error));
        }
        fed?;
        dress(file.file(), attributes, &self.memory()).map_err(refused)?;
        if !file.link(OsStr::new(name)).map_err(refused)? {
            let message = format!("{} already exists", self.at(name).display());
            return Err(refused(Error::new(Kind::Internal, message)));
        }
        self.sync()
    }

    fn remove_unfinished(&self, staged: &str) -> Result<(), TransportError> {
        self.remove(&unfinished(staged))
    }

    fn swap(&self, staged: &str) -> Result<Swapped, TransportError> {
        let inode = self.inode(OsStr::new(staged))?;
        let mut displaced = Vec::new();
        let mut method = None;
        for _ in 0..ATTEMPTS {
            match self.swap_once(OsStr::new(staged), &mut displaced) {
                Ok(Some(done)) => {
                    method = Some(done);
                    break;
                }
                Ok(None) => {}
                Err(errno) => return Err(self.replace_error(errno)),
            }
        }
        self.sync()?;
        match method {
            Some(method) if self.inode(&self.name)? == inode => Ok(Swapped { method, displaced }),
            _ => Err(moved(&self.memory())),
        }
    }

    fn take_away(&self, aside: &str) -> Result<(), TransportError> {
        match self.move_aside(OsStr::new(aside)) {
            Ok(()) => self.sync(),
            Err(Errno::NOENT) => Err(moved(&self.memory())),
            Err(errno) => Err(self.replace_error(errno)),
        }
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        let path = self.at(displaced);
        let name = OsStr::new(displaced);
        let file = match self.open(name)? {
            Ok(file) => file,
            Err(Object::Odd(Odd::Directory)) => return Ok(Settled::Kept),
            Err(Object::Odd(odd)) => {
                self.remove(displaced)?;
                return Ok(Settled::Odd(odd));
            }
            Err(_) => return Ok(Settled::Removed { watched: true }),
        };
        let watched = match sys::take_lease(file.as_fd()) {
            Lease::Held => return Ok(Settled::Open),
            Lease::Granted => true,
            Lease::Unavailable => {
                let before = fs::fstat(&file).path("look at", &path).map_err(refused)?;
                self.clock.sleep(QUIET);
                let after = fs::fstat(&file).path("look at", &path).map_err(refused)?;
                if describe(&before).stamp != describe(&after).stamp {
                    return Ok(Settled::Open);
                }
                false
            }
        };
        let reader = |sink: Sink<'_>| self.read_all(&file, &path, sink);
        inspect(&reader)?;
        if watched && !sys::lease_is_whole(file.as_fd()) {
            // Somebody waits to write: leave the file to them for now.
            sys::release_lease(file.as_fd());
            return Ok(Settled::Open);
        }
        self.remove(displaced)?;
        if !watched {
            return Ok(Settled::Removed { watched });
        }
        let opened = !sys::lease_is_whole(file.as_fd());
        sys::release_lease(file.as_fd());
        if opened {
            // They opened it between the two looks, and will write to a file
            // that has no name any more: it is still here, behind `file`.
            let end = self.clock.instant() + OPENER;
            while sys::take_lease(file.as_fd()) == Lease::Held && self.clock.instant() < end {
                self.clock.sleep(Duration::from_millis(5));
            }
            inspect(&reader)?;
        }
        Ok(Settled::Removed { watched })
    }

    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let aside = (0..ATTEMPTS).map(|number| aside(staged, number));
        let mut names = Vec::new();
        for name in std::iter::once(staged.to_string()).chain(aside) {
            if self.stands(&name)? {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn stands(&self, name: &str) -> Result<bool, TransportError> {
        Ok(self.inode(OsStr::new(name))?.is_some())
    }

    fn holds(&self, name: &str, content: Digest) -> Result<bool, TransportError> {
        let Ok(file) = self.open(OsStr::new(name))? else {
            return Ok(false);
        };
        let mut hasher = Hasher::default();
        self.read_all(&file, &self.at(name), &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        Ok(hasher.finish() == content)
    }

    fn remove(&self, name: &str) -> Result<(), TransportError> {
        match fs::unlinkat(&*self.fd, name, AtFlags::empty()) {
            Ok(()) => self.sync(),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno).path("remove", &self.at(name)).map_err(refused),
        }
    }
}

/// Where the `number`th file goes that is taken away for `staged`.
fn aside(staged: &str, number: usize) -> String {
    format!("{staged}-{number}")
}

/// The name of a file that is being staged where there are no nameless ones.
fn unfinished(staged: &str) -> String {
    format!("{staged}-new")
}

/// Whether a system answers so that does not know the flags of a rename.
fn unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

fn refused(error: Error) -> TransportError {
    TransportError::new(Cause::Refused, error)
}

fn moved(path: &Path) -> TransportError {
    let message = format!("{} was replaced by somebody else meanwhile", path.display());
    TransportError::new(
        Cause::Moved,
        Error::new(Kind::Conflict, message).hint("nothing was lost; run it again"),
    )
}

fn describe(stat: &Stat) -> File {
    let nanoseconds = |seconds: i64, rest: u64| {
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(rest as i64)
    };
    File {
        stamp: Stamp {
            size: stat.st_size as u64,
            modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        },
        attributes: Attributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            xattrs: Vec::new(),
        },
    }
}

/// All extended attributes that this process may see.
fn xattrs(file: &StdFile) -> rustix::io::Result<Vec<Xattr>> {
    let mut names = vec![0; 64 * 1024];
    let length = match fs::flistxattr(file, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => 0,
        Err(errno) => return Err(errno),
    };
    let mut found = Vec::new();
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 64 * 1024];
        match fs::fgetxattr(file, name, &mut value) {
            Ok(length) => {
                value.truncate(length);
                found.push((name.to_vec(), value));
            }
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}

/// Gives a new file its owner, mode and extended attributes.
fn dress(file: &StdFile, attributes: &Attributes, memory: &Path) -> Result<(), Error> {
    let stat = fs::fstat(file).path("look at", memory)?;
    if (stat.st_uid, stat.st_gid) != (attributes.uid, attributes.gid) {
        let uid = (stat.st_uid != attributes.uid).then(|| fs::Uid::from_raw(attributes.uid));
        let gid = (stat.st_gid != attributes.gid).then(|| fs::Gid::from_raw(attributes.gid));
        fs::fchown(file, uid, gid)
            .path("keep the owner of", memory)
            .map_err(|error| {
                error.hint(format!(
                    "run as root or as the user with id {}, whose file it is",
                    attributes.uid
                ))
            })?;
    }
    fs::fchmod(file, Mode::from_raw_mode(attributes.mode)).path("keep the mode of", memory)?;
    // The label that a security module gave the new file may be right already.
    let have = xattrs(file).path("read the attributes of", memory)?;
    // The folder's default access control list is not the old file's; what
    // security modules add is theirs.
    let wanted = |name: &[u8]| attributes.xattrs.iter().any(|(wanted, _)| wanted == name);
    for (name, _) in have.iter().filter(|(name, _)| !wanted(name)) {
        if !name.starts_with(b"security.") {
            fs::fremovexattr(file, name.as_slice())
                .path("keep the extended attributes of", memory)?;
        }
    }
    for (name, value) in attributes
        .xattrs
        .iter()
        .filter(|xattr| !have.contains(xattr))
    {
        fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())
            .path("keep the extended attributes of", memory)
            .map_err(|error| {
                error.hint(format!(
                    "the attribute is {}",
                    String::from_utf8_lossy(name)
                ))
            })?;
    }
    Ok(())
}
