//! Files at paths that the operator gave: on a command line, or in a variable.
//!
//! Another user may own a directory of the path, and swap its files at any moment. So the path is
//! resolved once, by directory handles, and follows only symlinks of root and of this user. Every write
//! then goes through the last handle, to a free name or as the replacement of a whole file.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::replacement::{NewFileAttributes, remove_replacement_leftovers};
use super::{ExpectedFile, NewFile, Replacement, ReplacementNames, read_at_most};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, PathContext, Result};

/// Maximum number of symlinks that a path may lead through, as in the kernel.
const MAX_SYMLINKS: usize = 40;

/// Maximum size of a file that is replaced where its content is known.
pub const MAX_REPLACED_BYTES: u64 = 64 << 20;

/// Why files in a directory that every user can write cannot be trusted.
const PUBLIC_DIRECTORY: &str =
    "is writable by every user, who could replace the files written there";

/// The expected state of a name before a file is written there.
#[derive(Clone, Copy, Debug)]
pub enum ReplacedFile<'a> {
    /// Anything but a directory, or nothing.
    Any,
    /// Nothing, or a regular file with these bytes.
    Known(Option<&'a [u8]>),
}

/// A directory that the operator named, open.
#[derive(Clone, Debug)]
pub struct OperatorDirectory {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

impl OperatorDirectory {
    /// Opens the directory at an absolute path.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for a symlink of another user on the way.
    pub fn open(path: &Path) -> Result<OperatorDirectory> {
        PathResolution::new(path).open_last(None)
    }

    /// Opens the directory at an absolute path. Creates it with `mode` if it does not exist, and its
    /// missing parents with `mode` plus all rights of their owner.
    ///
    /// # Errors
    /// As [`OperatorDirectory::open`].
    pub fn open_or_create(path: &Path, mode: Mode) -> Result<OperatorDirectory> {
        PathResolution::new(path).open_last(Some(mode))
    }

    /// Opens the directory of the file at an absolute path, and returns the name of the file.
    ///
    /// # Errors
    /// As [`OperatorDirectory::open`], or the path names no file.
    pub fn open_parent(path: &Path) -> Result<(OperatorDirectory, &OsStr)> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok((OperatorDirectory::open(parent)?, name)),
            _ => {
                let message = format!("{} is not a file path", path.display());
                Err(Error::new(ErrorKind::User, message))
            }
        }
    }

    /// Returns its path, without the symlinks that led to it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that only this user and root can change what it contains, and that it is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`].
    pub fn check_own_and_empty(&self) -> Result<()> {
        let stat = fs::fstat(&self.fd).with_path("stat", &self.path)?;
        let why = if !is_own(&stat) {
            "belongs to another user, who could replace the files written there"
        } else if stat.st_mode & 0o022 != 0 {
            "can be written by other users, who could replace the files written there"
        } else if !self.names()?.is_empty() {
            "is not empty"
        } else {
            return Ok(());
        };
        let message = format!("{} {why}", self.path.display());
        Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("name a directory that does not exist yet"))
    }

    /// Checks that it belongs to this user or root, and that not every user can create or replace files
    /// in it. A group may.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`].
    pub fn check_owner(&self) -> Result<()> {
        let stat = fs::fstat(&self.fd).with_path("stat", &self.path)?;
        if !is_own(&stat) && stat.st_uid != 0 {
            let why = "belongs to another user, who could replace the files written there";
            return Err(self.untrusted_error(why));
        }
        if stat.st_mode & 0o002 != 0 {
            return Err(self.untrusted_error(PUBLIC_DIRECTORY));
        }
        Ok(())
    }

    /// Checks that not every user can replace what it contains; in a sticky directory, only owners can.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`].
    pub fn check_not_public(&self) -> Result<()> {
        let stat = fs::fstat(&self.fd).with_path("stat", &self.path)?;
        if stat.st_mode & 0o1002 == 0o002 {
            return Err(self.untrusted_error(PUBLIC_DIRECTORY));
        }
        Ok(())
    }

    fn untrusted_error(&self, why: &str) -> Error {
        let message = format!("{} {why}", self.path.display());
        let hint = "change its owner and mode, or name a config in another directory";
        Error::new(ErrorKind::Conflict, message).with_hint(hint)
    }

    /// Returns the names in it.
    ///
    /// # Errors
    /// The system's error.
    pub fn names(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).with_path("list", &self.path)? {
            let entry = entry.with_path("list", &self.path)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }

    /// Opens a directory below it, by a path that only descends; creates missing ones with `mode`.
    /// No symlink is followed.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_or_create_below(&self, path: &Path, mode: Mode) -> Result<OperatorDirectory> {
        let mut directory = self.clone();
        for name in path {
            let path = directory.path.join(name);
            match fs::mkdirat(&directory.fd, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno).with_path("create the directory", &path),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = fs::openat(&directory.fd, name, flags, Mode::empty());
            let fd = Arc::new(fd.with_path("open the directory", &path)?);
            fs::fsync(&directory.fd).with_path("sync the directory", &directory.path)?;
            directory = OperatorDirectory { fd, path };
        }
        Ok(directory)
    }

    /// Opens a directory in it; none if there is none, also for a symlink.
    pub fn open_below(&self, name: &str) -> Option<OperatorDirectory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = Arc::new(fs::openat(&self.fd, name, flags, Mode::empty()).ok()?);
        let path = self.path.join(name);
        Some(OperatorDirectory { fd, path })
    }

    /// Returns where a symlink in it leads; none for anything else.
    pub fn read_symlink(&self, name: &OsStr) -> Option<PathBuf> {
        let target = fs::readlinkat(&self.fd, name, Vec::new()).ok()?;
        Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    /// Begins a new file, which has no name until it is linked.
    ///
    /// # Errors
    /// The system's error.
    pub fn new_file(&self, mode: Mode) -> Result<NewFile> {
        NewFile::create(&self.fd, &self.path, mode)
    }

    /// Gives a complete new file a name that is free, durably.
    ///
    /// # Errors
    /// Something has that name.
    pub fn link_new_file(&self, mut file: NewFile, name: &OsStr) -> Result<()> {
        file.unsynced_content().sync()?;
        if !file.link_as(name)? {
            let exists = io::Error::from(io::ErrorKind::AlreadyExists);
            let error = Error::from_io("create", &self.path.join(name), &exists);
            return Err(error.with_hint("choose another name, or move that file away"));
        }
        file.unsynced_directory().sync()
    }

    /// Creates a file with a name that is free.
    ///
    /// # Errors
    /// As [`OperatorDirectory::link_new_file`].
    pub fn create_file(&self, name: &OsStr, bytes: &[u8], mode: Mode) -> Result<()> {
        let mut file = self.new_file(mode)?;
        file.write(bytes)?;
        self.link_new_file(file, name)
    }

    /// Replaces a file as a whole. A killed process may leave a file with a random name, which
    /// [`OperatorDirectory::remove_leftovers`] removes.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if something else has the name; it stays.
    pub fn replace_file(
        &self,
        name: &OsStr,
        replaced: ReplacedFile<'_>,
        bytes: &[u8],
        mode: Mode,
    ) -> Result<()> {
        let path = self.path.join(name);
        let old = match replaced {
            ReplacedFile::Any => None,
            ReplacedFile::Known(old) => old.map(Digest::of),
        };
        let names = ReplacementNames::describing(name, old, Digest::of(bytes))?;
        let attributes = NewFileAttributes::Mode(mode);
        let new = Replacement::prepare_in(&self.fd, &path, bytes, names, attributes)?;
        match replaced {
            ReplacedFile::Any => new.rename_over()?,
            ReplacedFile::Known(old) => {
                let installed = new.install(ExpectedFile::of(old), MAX_REPLACED_BYTES)?;
                if let Some(displaced) = installed.into_displaced() {
                    displaced.discard()?;
                }
            }
        }
        Ok(())
    }

    /// Removes what killed processes have left of replacements of files that are there. What it cannot
    /// remove, it leaves.
    pub fn remove_leftovers<'n>(&self, names: impl IntoIterator<Item = &'n OsStr>) {
        remove_replacement_leftovers(&self.fd, names);
    }

    /// Removes a file or a symlink, if it exists.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove_file(&self, name: &OsStr) -> Result<()> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno).with_path("remove", &self.path.join(name)),
        }
    }

    /// Reads a regular file of at most [`MAX_REPLACED_BYTES`]; none if nothing has the name.
    ///
    /// # Errors
    /// The system's error, or [`ErrorKind::User`] for anything but a regular file.
    pub fn read_file(&self, name: &OsStr) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = fs::openat(&self.fd, name, flags | OFlags::CLOEXEC, Mode::empty());
        let file = match opened {
            Err(Errno::NOENT) => return Ok(None),
            // A symlink, or a socket.
            Err(Errno::LOOP | Errno::NXIO) => return Err(not_a_regular_file(&path)),
            file => File::from(file.with_path("read", &path)?),
        };
        if !file.metadata().with_path("stat", &path)?.is_file() {
            return Err(not_a_regular_file(&path));
        }
        let bytes = read_at_most(file, MAX_REPLACED_BYTES);
        bytes.with_path("read", &path).map(Some)
    }

    /// Reads a regular file of this user or root, of at most `max_bytes` bytes.
    ///
    /// # Errors
    /// The system's error, [`io::ErrorKind::FileTooLarge`], or that it is another object.
    pub fn read_own_file(&self, name: &OsStr, max_bytes: u64) -> io::Result<Vec<u8>> {
        const NOT_REGULAR_MESSAGE: &str = "it is not a regular file";
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match fs::openat(&self.fd, name, flags | OFlags::CLOEXEC, Mode::empty()) {
            // A symlink, or a socket.
            Err(Errno::LOOP | Errno::NXIO) => return Err(io::Error::other(NOT_REGULAR_MESSAGE)),
            file => File::from(file?),
        };
        let stat = fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other(NOT_REGULAR_MESSAGE));
        }
        if !is_own(&stat) && stat.st_uid != 0 {
            return Err(io::Error::other(format!("uid {} owns it", stat.st_uid)));
        }
        read_at_most(file, max_bytes)
    }

    /// Opens a file for appending, and creates it with `mode` if it does not exist. Anything but a
    /// character device has to be root's or this user's, and a regular file must have no other name.
    ///
    /// # Errors
    /// The system's error, which is `ELOOP` for a symlink.
    pub fn open_for_append(&self, name: &OsStr, mode: Mode) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
        let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = fs::openat(&self.fd, name, flags | careful, mode)?;
        let stat = fs::fstat(&file)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        // A terminal may be another user's; a FIFO has a reader of its own.
        if kind != FileType::CharacterDevice && !is_own(&stat) && stat.st_uid != 0 {
            return Err(io::Error::other(format!("uid {} owns it", stat.st_uid)));
        }
        if kind == FileType::RegularFile && stat.st_nlink > 1 {
            return Err(io::Error::other("it has another name (a hard link)"));
        }
        Ok(File::from(file))
    }
}

/// A path that is being resolved, from the root on.
struct PathResolution {
    /// The path of the directory that is reached, without symlinks.
    place: PathBuf,
    rest: VecDeque<OsString>,
    full_path: PathBuf,
    symlinks: usize,
}

impl PathResolution {
    fn new(path: &Path) -> PathResolution {
        PathResolution {
            place: PathBuf::from("/"),
            rest: component_names(path),
            full_path: path.to_path_buf(),
            symlinks: 0,
        }
    }

    /// Walks to the end, and opens the directory there for reading and syncing.
    fn open_last(mut self, missing_mode: Option<Mode>) -> Result<OperatorDirectory> {
        let mut directory = open_root()?;
        while let Some(name) = self.rest.pop_front() {
            let path = self.place.join(&name);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = || fs::openat(&directory, &name, flags, Mode::empty());
            let found = match (open(), missing_mode) {
                (Err(Errno::NOENT), Some(mode)) => {
                    let is_last = self.rest.is_empty();
                    let mode = if is_last { mode } else { mode | Mode::RWXU };
                    make_directory(&directory, &name, mode).with_path("create", &path)?;
                    open()
                }
                (found, _) => found,
            };
            let found = found.with_path("open the directory", &path)?;
            let stat = fs::fstat(&found).with_path("stat", &path)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    directory = found;
                    if name == ".." {
                        self.place.pop();
                    } else {
                        self.place.push(&name);
                    }
                }
                FileType::Symlink => {
                    self.check_symlink(&path, &stat, &directory)?;
                    let target = fs::readlinkat(&found, "", Vec::new());
                    let target = target.with_path("read the symlink", &path)?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        directory = open_root()?;
                        self.place = PathBuf::from("/");
                    }
                    let mut further = component_names(&target);
                    further.append(&mut self.rest);
                    self.rest = further;
                }
                _ => Err(Errno::NOTDIR).with_path("open the directory", &path)?,
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = fs::openat(&directory, ".", flags, Mode::empty());
        Ok(OperatorDirectory {
            fd: Arc::new(fd.with_path("open the directory", &self.place)?),
            path: self.place,
        })
    }

    /// Refuses a symlink that another user can lead elsewhere at any moment: it may be theirs, or they
    /// may put another one in its place.
    fn check_symlink(&mut self, link: &Path, stat: &Stat, directory: &OwnedFd) -> Result<()> {
        self.symlinks += 1;
        if self.symlinks > MAX_SYMLINKS {
            return Err(Errno::LOOP).with_path("open the directory", &self.full_path);
        }
        let is_trusted = |stat: &Stat| stat.st_uid == 0 || is_own(stat);
        let above = fs::fstat(directory).with_path("stat the directory of", link)?;
        let why = if !is_trusted(stat) {
            format!("uid {} owns it, and can lead it elsewhere", stat.st_uid)
        } else if !is_trusted(&above) {
            format!(
                "uid {} owns its directory, and can replace it",
                above.st_uid
            )
        } else if above.st_mode & 0o022 != 0 {
            "other users can write its directory, and replace it".to_string()
        } else {
            return Ok(());
        };
        let message = format!("cannot follow the symlink {}: {why}", link.display());
        Err(Error::new(ErrorKind::Conflict, message)
            .with_hint("name the path without the symlink, if you trust where it leads"))
    }
}

/// Creates a directory, unless another process has created it, and syncs its name.
fn make_directory(parent: &OwnedFd, name: &OsStr, mode: Mode) -> rustix::io::Result<()> {
    match fs::mkdirat(parent, name, mode) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    // The handle of the walk cannot be synced.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match fs::openat(parent, ".", flags, Mode::empty()) {
        Ok(parent) => fs::fsync(parent),
        // A directory that this user may only write has names that it cannot sync.
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Opens the root by a handle that can only be walked.
fn open_root() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::open("/", flags, Mode::empty()).with_path("open", Path::new("/"))
}

/// Returns the components of a path behind its root.
pub fn component_names(path: &Path) -> VecDeque<OsString> {
    let components = path.components();
    let names = components.filter(|it| !matches!(it, Component::RootDir | Component::CurDir));
    names.map(|it| it.as_os_str().to_os_string()).collect()
}

/// Whether this user owns a file.
fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

fn not_a_regular_file(path: &Path) -> Error {
    let message = format!(
        "cannot replace {}: it is not a regular file",
        path.display()
    );
    Error::new(ErrorKind::User, message)
}
