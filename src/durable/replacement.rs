//! Replacement of a file that its operator writes as well: a baseline, a seal. Owner, mode and
//! extended attributes stay as they are, and the caller gets what the new file displaced.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use super::{NewFile, new_random_name, open_directory, read_at_most};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::sys::{self, LeaseOutcome};

/// Mode of a file that did not exist, less the bits of the umask.
const NEW_FILE_MODE: Mode = Mode::RUSR
    .union(Mode::WUSR)
    .union(Mode::RGRP)
    .union(Mode::ROTH);

/// The access control list, which is an extended attribute.
const ACL_NAME: &[u8] = b"system.posix_acl_access";

/// How long a writer may keep a displaced file open.
const WRITER_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which the wait for it looks again.
const WRITER_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Size limit of the kernel for a value and for the list of names, in bytes.
const MAX_XATTR_BYTES: usize = 64 * 1024;

/// How often the file is exchanged that other programs keep removing and creating.
const MAX_INSTALL_ATTEMPTS: usize = 16;

/// The unguessable names that a replacement may use beside its file. A caller that can be killed
/// writes their paths down first, and calls [`ReplacementPaths::recover`] after a kill.
pub struct ReplacementNames([String; 3]);

/// The paths of a replacement, for after a kill.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct ReplacementPaths {
    path: PathBuf,
    /// The new file, or what it displaced.
    provisional: PathBuf,
    /// The new file while it is written.
    unfinished: PathBuf,
    /// What it displaces on a file system that cannot exchange two names.
    aside: PathBuf,
}

impl ReplacementNames {
    /// Creates new names.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> Result<ReplacementNames> {
        let new = new_random_name;
        Ok(ReplacementNames([new()?, new()?, new()?]))
    }

    /// Returns the paths of these names beside `path`.
    pub fn paths_beside(&self, path: &Path) -> ReplacementPaths {
        let [provisional, unfinished, aside] =
            self.0.each_ref().map(|name| path.with_file_name(name));
        ReplacementPaths {
            path: path.to_path_buf(),
            provisional,
            unfinished,
            aside,
        }
    }
}

impl ReplacementPaths {
    /// Path of the file that was being replaced.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finds what a killed process has left under its random names. A file that was moved aside
    /// and not replaced yet gets its name back.
    ///
    /// # Errors
    /// The system's error.
    pub fn recover(&self) -> Result<Vec<DisplacedFile>> {
        // Fails if either is as it should be.
        if std::fs::hard_link(&self.aside, &self.path).is_ok() {
            std::fs::remove_file(&self.aside).with_path("remove", &self.aside)?;
        }
        let mut found = Vec::new();
        for path in [&self.provisional, &self.unfinished, &self.aside] {
            found.extend(DisplacedFile::find(path)?);
        }
        Ok(found)
    }
}

/// A new file that is on the disk and has not replaced the old one yet.
pub struct Replacement {
    directory: Arc<OwnedFd>,
    path: PathBuf,
    name: OsString,
    provisional_name: String,
    aside_name: String,
    file: NewFile,
    replaces: bool,
    lost_owner: Option<u32>,
}

/// What stood at the path, under a random name in the same directory.
pub struct DisplacedFile {
    directory: Arc<OwnedFd>,
    path: PathBuf,
    name: OsString,
    /// Holds the lease on it.
    leased: Option<File>,
}

impl Replacement {
    /// Writes `bytes` to a new file in the directory of `path` and syncs it. The file gets owner,
    /// mode and extended attributes of the regular file at `path`, if there is one. It gets those of
    /// any new file of this process if that file has an owner whose files this process cannot make.
    ///
    /// # Errors
    /// The system's error; nothing has changed.
    pub fn prepare(path: &Path, bytes: &[u8], names: ReplacementNames) -> Result<Replacement> {
        let (parent, name) = split_path(path)?;
        let directory = Arc::new(open_directory(parent)?);
        let old = match fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            stat => Some(stat.with_path("stat", path)?),
        };
        let ReplacementNames([provisional_name, unfinished_name, aside_name]) = names;
        let unfinished = || Ok(unfinished_name);
        let mut file =
            NewFile::create_with_options(&directory, parent, NEW_FILE_MODE, unfinished, true)?;
        file.write(bytes)?;
        let mut lost_owner = None;
        if let Some(stat) = &old
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && !copy_attributes(&directory, name, path, stat, file.file())?
        {
            lost_owner = Some(stat.st_uid);
        }
        file.unsynced_content().sync()?;
        Ok(Replacement {
            directory,
            path: path.to_path_buf(),
            name: name.to_os_string(),
            provisional_name,
            aside_name,
            file,
            replaces: old.is_some(),
            lost_owner,
        })
    }

    /// The owner of the old file, if the new one cannot have it.
    pub fn lost_owner(&self) -> Option<u32> {
        self.lost_owner
    }

    /// Installs the new file and syncs the directory: atomically, where the file system can exchange
    /// two names. Returns what it displaced; none where nothing was.
    ///
    /// # Errors
    /// The system's error. [`ErrorKind::Conflict`] if a file has appeared where there was none, or if
    /// other programs keep replacing it.
    pub fn install(mut self) -> Result<Option<DisplacedFile>> {
        if !self.replaces {
            if !self.file.link_as(&self.name)? {
                let message = format!("{} was created by another program", self.path.display());
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            self.file.unsynced_directory().sync()?;
            return Ok(None);
        }
        let provisional = self.provisional_name.clone();
        if !self.file.link_as(OsStr::new(&provisional))? {
            let taken = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(Error::from_io("write", &self.path, &taken));
        }
        for _ in 0..MAX_INSTALL_ATTEMPTS {
            let directory = &self.directory;
            let flags = RenameFlags::EXCHANGE;
            match fs::renameat_with(directory, &provisional, directory, &self.name, flags) {
                Ok(()) => {
                    self.file.unsynced_directory().sync()?;
                    return Ok(Some(self.displaced(&provisional)));
                }
                Err(Errno::NOENT) if self.place_if_absent()? => return Ok(None),
                // Another file has appeared since.
                Err(Errno::NOENT) => {}
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    return self.install_without_exchange();
                }
                Err(errno) => {
                    self.remove_provisional();
                    let error = Err(errno).with_path("replace", &self.path);
                    return error.map_err(|error| add_immutable_hint(error, errno, &self.path));
                }
            }
        }
        self.remove_provisional();
        Err(replaced_meanwhile(&self.path))
    }

    /// Installs the new file on a file system that cannot exchange two names: moves the old one
    /// aside first, so that no save of another program is lost.
    fn install_without_exchange(mut self) -> Result<Option<DisplacedFile>> {
        let directory = Arc::clone(&self.directory);
        let moved = match fs::renameat(&directory, &self.name, &directory, &self.aside_name) {
            Ok(()) => true,
            Err(Errno::NOENT) => false,
            Err(errno) => {
                self.remove_provisional();
                let error = Err(errno).with_path("replace", &self.path);
                return error.map_err(|error| add_immutable_hint(error, errno, &self.path));
            }
        };
        // After an error the journal of the caller leads to the old file.
        if !self.place_if_absent()? {
            self.remove_provisional();
            return Err(replaced_meanwhile(&self.path));
        }
        let aside = self.aside_name.clone();
        Ok(moved.then(|| self.displaced(&aside)))
    }

    /// Gives the new file its name unless a file has it, and syncs the directory.
    fn place_if_absent(&mut self) -> Result<bool> {
        let is_placed = self.file.link_as(&self.name)?;
        if is_placed {
            self.remove_provisional();
            self.file.unsynced_directory().sync()?;
        }
        Ok(is_placed)
    }

    fn remove_provisional(&self) {
        let _ = fs::unlinkat(&self.directory, &self.provisional_name, AtFlags::empty());
    }

    fn displaced(&self, name: &str) -> DisplacedFile {
        DisplacedFile {
            directory: Arc::clone(&self.directory),
            path: self.path.with_file_name(name),
            name: name.into(),
            leased: None,
        }
    }
}

fn replaced_meanwhile(path: &Path) -> Error {
    let message = format!("{} is being replaced by another program", path.display());
    Error::new(ErrorKind::Conflict, message).with_hint("run the command again once it is done")
}

impl DisplacedFile {
    /// Finds what a killed process has left at a path; none if there is nothing.
    ///
    /// # Errors
    /// The system's error.
    pub fn find(path: &Path) -> Result<Option<DisplacedFile>> {
        let (parent, name) = split_path(path)?;
        let directory = match super::open_directory_errno(parent) {
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Ok(None),
            directory => directory.with_path("open the directory", parent)?,
        };
        match fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => stat.with_path("stat", path).map(|_| {
                Some(DisplacedFile {
                    directory: Arc::new(directory),
                    path: path.to_path_buf(),
                    name: name.to_os_string(),
                    leased: None,
                })
            }),
        }
    }

    /// Path of its random name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it once no process has it open for writing; from then on, none can open it so until it is
    /// removed. None if it is not a regular file of at most `max_bytes` bytes that this process may
    /// read, or if a writer keeps it open for two seconds or has a lease on it. Where this process
    /// may not take leases, writers are not noticed.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_settled(&mut self, max_bytes: u64, clock: &dyn Clock) -> Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&self.directory, &self.name, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::NXIO | Errno::AGAIN | Errno::ACCESS | Errno::PERM) => {
                return Ok(None);
            }
            file => File::from(file.with_path("read", &self.path)?),
        };
        if !file.metadata().with_path("stat", &self.path)?.is_file() {
            return Ok(None);
        }
        let end = clock.instant() + WRITER_TIMEOUT;
        while sys::take_read_lease(file.as_fd()) == LeaseOutcome::OpenElsewhere {
            if clock.instant() >= end {
                return Ok(None);
            }
            clock.sleep(WRITER_POLL_INTERVAL);
        }
        let copy = file.try_clone().with_path("read", &self.path)?;
        self.leased = Some(file);
        match read_at_most(copy, max_bytes) {
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(None),
            bytes => bytes.with_path("read", &self.path).map(Some),
        }
    }

    /// Removes it and syncs the directory, so that the caller can forget its name. The caller keeps
    /// its bytes elsewhere.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(self) -> Result<()> {
        fs::unlinkat(&self.directory, &self.name, AtFlags::empty())
            .with_path("remove", &self.path)?;
        fs::fsync(&self.directory).with_path("sync the directory of", &self.path)
    }
}

fn split_path(path: &Path) -> Result<(&Path, &OsStr)> {
    path.parent().zip(path.file_name()).ok_or_else(|| {
        let message = format!("{} is not a file path", path.display());
        Error::new(ErrorKind::Host, message)
    })
}

/// Gives a new file owner, mode and extended attributes of an old one. False, with nothing changed,
/// if this process cannot make files of that owner.
fn copy_attributes(
    directory: &OwnedFd,
    name: &OsStr,
    path: &Path,
    old: &Stat,
    new: &File,
) -> Result<bool> {
    let stat = fs::fstat(new).with_path("stat", path)?;
    let uid = (stat.st_uid != old.st_uid).then(|| Uid::from_raw(old.st_uid));
    let gid = (stat.st_gid != old.st_gid).then(|| Gid::from_raw(old.st_gid));
    if uid.is_some() || gid.is_some() {
        match fs::fchown(new, uid, gid) {
            Err(Errno::PERM) => return Ok(false),
            changed => changed.with_path("keep the owner of", path)?,
        }
    }
    // Without read permission there is nothing to copy; the mode is set all the same.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    if let Ok(file) = fs::openat(directory, name, flags, Mode::empty()) {
        copy_xattrs(&file, new).with_path("keep the extended attributes of", path)?;
    }
    let mode = Mode::from_raw_mode(old.st_mode & 0o777);
    fs::fchmod(new, mode).with_path("keep the mode of", path)?;
    Ok(true)
}

/// Copies the access control list and the attributes of users; a security module labels the new
/// file by itself.
fn copy_xattrs(old: &OwnedFd, new: &File) -> rustix::io::Result<()> {
    let mut list = vec![0; MAX_XATTR_BYTES];
    let length = match fs::flistxattr(old, &mut list) {
        Err(Errno::NOTSUP) => return Ok(()),
        length => length?,
    };
    let names = list[..length].split(|byte| *byte == 0);
    let mut has_acl = false;
    for name in names.filter(|name| name.starts_with(b"user.") || *name == ACL_NAME) {
        has_acl |= name == ACL_NAME;
        let mut value = vec![0; MAX_XATTR_BYTES];
        let length = fs::fgetxattr(old, name, &mut value[..])?;
        fs::fsetxattr(new, name, &value[..length], XattrFlags::empty())?;
    }
    if !has_acl {
        // The directory's default list may have added one.
        match fs::fremovexattr(new, ACL_NAME) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn add_immutable_hint(error: Error, errno: Errno, path: &Path) -> Error {
    if errno != Errno::PERM {
        return error;
    }
    let path = path.display();
    error.with_hint(format!(
        "if it or its directory is immutable: chattr -ia {path}"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::clock::SystemClock;

    fn temporary_directory() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        (directory, path)
    }

    fn prepare(path: &Path) -> Result<Replacement> {
        Replacement::prepare(path, b"new", ReplacementNames::new()?)
    }

    fn read(file: &mut DisplacedFile, max_bytes: u64) -> Option<Vec<u8>> {
        file.read_settled(max_bytes, &SystemClock).unwrap()
    }

    #[test]
    fn replacement_keeps_mode_and_returns_old_bytes() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let has_xattrs = fs::setxattr(&path, "user.note", b"kept", XattrFlags::empty()).is_ok();
        let displaced = prepare(&path).unwrap().install().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        if has_xattrs {
            let mut value = [0; 8];
            let length = fs::getxattr(&path, "user.note", &mut value[..]).unwrap();
            assert_eq!(&value[..length], b"kept");
        }
        let mut displaced = displaced.unwrap();
        assert_eq!(read(&mut displaced, 10).unwrap(), b"old");
        assert_eq!(read(&mut displaced, 2), None, "larger than the limit");
        let mut found = DisplacedFile::find(displaced.path()).unwrap().unwrap();
        assert_eq!(read(&mut found, 10).unwrap(), b"old");
        displaced.remove().unwrap();
        assert!(DisplacedFile::find(found.path()).unwrap().is_none());
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn file_that_appears_is_not_replaced() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        let new = prepare(&path).unwrap();
        std::fs::write(&path, "of another program").unwrap();
        let error = new.install().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(std::fs::read(&path).unwrap(), b"of another program");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn file_saved_over_a_removed_one_is_displaced() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        std::fs::write(&path, "old").unwrap();
        let mut new = prepare(&path).unwrap();
        // What the exchange would meet: the file is gone, and then there is another one.
        std::fs::write(&path, "of an editor").unwrap();
        assert!(!new.place_if_absent().unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"of an editor");
        let displaced = new.install().unwrap();
        assert_eq!(read(&mut displaced.unwrap(), 100).unwrap(), b"of an editor");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "old").unwrap();
        let new = prepare(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(new.install().unwrap().is_none());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn replacement_without_exchange_loses_nothing() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        std::fs::write(&path, "old").unwrap();
        let mut new = prepare(&path).unwrap();
        let provisional = new.provisional_name.clone();
        assert!(new.file.link_as(OsStr::new(&provisional)).unwrap());
        let displaced = new.install_without_exchange().unwrap();
        assert_eq!(read(&mut displaced.unwrap(), 100).unwrap(), b"old");
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(!root.join(provisional).exists());
    }

    #[test]
    fn file_moved_aside_by_a_killed_process_returns() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        let paths = ReplacementNames::new().unwrap().paths_beside(&path);
        std::fs::write(&paths.aside, "old").unwrap();
        std::fs::write(&paths.provisional, "new").unwrap();
        let found = paths.recover().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        let found: Vec<&Path> = found.iter().map(DisplacedFile::path).collect();
        assert_eq!(found, [&paths.provisional]);
    }

    #[test]
    fn unreadable_displaced_object_is_left_aside() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        let displaced = prepare(&path).unwrap().install().unwrap();
        assert_eq!(read(&mut displaced.unwrap(), 100), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn displaced_symlink_is_not_followed() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        std::fs::write(root.join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("secret", &path).unwrap();
        let displaced = prepare(&path).unwrap().install().unwrap();
        assert_eq!(read(&mut displaced.unwrap(), 100), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read(root.join("secret")).unwrap(), b"secret");
    }
}
