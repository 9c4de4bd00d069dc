//! Replacement of a file that its operator writes as well: a baseline, a seal. Owner, mode and
//! extended attributes stay as they are, and the caller gets what the new file displaced.

mod attributes;
mod displaced_file;
mod exchange_probe;
mod leftovers;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FileType, Mode, RenameFlags};
use rustix::io::Errno;

use super::{NewFile, new_random_name, open_directory, open_directory_errno};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::invocation::quote_operand;
use crate::base::sys;
pub use attributes::LostAttributes;
use attributes::copy_attributes;
pub use displaced_file::DisplacedFile;
pub use exchange_probe::can_exchange_files;
pub use leftovers::{remove_leftovers_in, remove_replacement_leftovers};

/// Mode of a file that did not exist, less the bits of the umask.
const NEW_FILE_MODE: Mode = Mode::RUSR
    .union(Mode::WUSR)
    .union(Mode::RGRP)
    .union(Mode::ROTH);

/// Maximum number of files beside a new one that decide its mode.
const MAX_SIBLINGS: usize = 1000;

/// How often the file is exchanged that other programs keep removing and creating.
const MAX_INSTALL_ATTEMPTS: usize = 16;

/// The unguessable names that a replacement may use beside its file. A caller that can be killed
/// writes their paths down first, and calls [`ReplacementPaths::recover`] after a kill.
pub struct ReplacementNames([String; 3]);

/// The paths of a replacement, for after a kill.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
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

    /// Returns the names of the new file: the one that it is linked at, and the one that it has while it
    /// is written where files cannot be nameless.
    pub(super) fn into_provisional(self) -> (String, String) {
        let ReplacementNames([provisional, unfinished, _]) = self;
        (provisional, unfinished)
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

    /// Returns the random names beside the file.
    pub fn random_names(&self) -> impl Iterator<Item = String> {
        let paths = [&self.provisional, &self.unfinished, &self.aside];
        let names = paths.into_iter().filter_map(|path| path.file_name());
        names.map(|name| name.display().to_string())
    }

    /// Finds what a killed process has left under its random names. A file that was moved aside
    /// and not replaced yet gets its name back.
    ///
    /// # Errors
    /// The system's error.
    pub fn recover(&self) -> Result<Vec<DisplacedFile>> {
        self.return_aside()?;
        let mut found = Vec::new();
        for path in [&self.provisional, &self.unfinished, &self.aside] {
            found.extend(DisplacedFile::find(path)?);
        }
        Ok(found)
    }

    /// Gives a file that was moved aside its name again, if there is none.
    fn return_aside(&self) -> Result<()> {
        let ((parent, name), (_, aside)) = (split_path(&self.path)?, split_path(&self.aside)?);
        let Ok(directory) = open_directory_errno(parent) else {
            return Ok(());
        };
        // Fails if either is as it should be.
        if fs::linkat(&directory, aside, &directory, name, AtFlags::empty()).is_ok() {
            fs::unlinkat(&directory, aside, AtFlags::empty()).with_path("remove", &self.aside)?;
            fs::fsync(&directory).with_path("sync the directory of", &self.path)?;
        }
        Ok(())
    }
}

/// What has to stand at a path for a new file to replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedFile {
    /// Anything, or nothing.
    Any,
    /// Nothing.
    Absent,
    /// A regular file with this content.
    Content(Digest),
}

impl ExpectedFile {
    /// What was read from a path: nothing, or a file with these bytes.
    pub fn of(bytes: Option<&[u8]>) -> ExpectedFile {
        bytes.map_or(ExpectedFile::Absent, |bytes| {
            ExpectedFile::Content(Digest::of(bytes))
        })
    }
}

/// Attributes that a new file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewFileAttributes {
    /// Owner, mode and extended attributes, as far as this process may set them.
    OfReplaced,
    /// Those of this user, with this mode less the bits of the umask.
    Mode(Mode),
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
    lost: LostAttributes,
}

/// A new file that has the name of the old one.
pub struct InstalledFile {
    directory: Arc<OwnedFd>,
    path: PathBuf,
    name: OsString,
    provisional_name: String,
    identity: FileIdentity,
    displaced: Option<DisplacedFile>,
    lost: LostAttributes,
}

/// Device and inode of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileIdentity(u64, u64);

/// Returns the mode of a file that does not exist: what the files beside it with the same extension
/// have in common. One that was removed must not come back with more readers.
fn mode_of_siblings(directory: &OwnedFd, name: &OsStr) -> Mode {
    let extension = Path::new(name).extension();
    let files = fs::Dir::read_from(directory).into_iter().flatten();
    let modes = files.take(MAX_SIBLINGS).filter_map(|item| {
        let item = item.ok()?;
        let name = OsStr::from_bytes(item.file_name().to_bytes());
        let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_sibling = is_file && extension.is_some() && Path::new(name).extension() == extension;
        is_sibling.then(|| Mode::from_raw_mode(stat.st_mode))
    });
    let owner = Mode::RUSR | Mode::WUSR;
    modes.fold(NEW_FILE_MODE, |common, mode| common & mode) | owner
}

impl Replacement {
    /// Writes `bytes` to a new file in the directory of `path` and syncs it. The file gets owner,
    /// mode and extended attributes of the regular file at `path`, if there is one, as far as this
    /// process may set them ([`InstalledFile::lost`]).
    ///
    /// # Errors
    /// The system's error; nothing has changed.
    pub fn prepare(path: &Path, bytes: &[u8], names: ReplacementNames) -> Result<Replacement> {
        let (parent, _) = split_path(path)?;
        let directory = Arc::new(open_directory(parent)?);
        let attributes = NewFileAttributes::OfReplaced;
        Replacement::prepare_in(&directory, path, bytes, names, attributes)
    }

    /// Prepares a replacement in an open directory, the last one of `path`. The new file is locked until
    /// it is dropped, so that [`remove_replacement_leftovers`] of another process spares it.
    ///
    /// # Errors
    /// As [`Replacement::prepare`].
    pub fn prepare_in(
        directory: &Arc<OwnedFd>,
        path: &Path,
        bytes: &[u8],
        names: ReplacementNames,
        attributes: NewFileAttributes,
    ) -> Result<Replacement> {
        let (parent, name) = split_path(path)?;
        let replaces = match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => false,
            stat => stat.with_path("stat", path).map(|_| true)?,
        };
        let ReplacementNames([provisional_name, unfinished_name, aside_name]) = names;
        let unfinished = || Ok(unfinished_name);
        let mode = match attributes {
            NewFileAttributes::Mode(mode) => mode,
            NewFileAttributes::OfReplaced if replaces => NEW_FILE_MODE,
            NewFileAttributes::OfReplaced => mode_of_siblings(directory, name),
        };
        let mut file = NewFile::create_with_options(directory, parent, mode, unfinished, true)?;
        // A file system without locks has no leftovers that are removed.
        let _ = sys::try_lock(file.file().as_fd());
        file.write(bytes)?;
        let lost = if replaces && attributes == NewFileAttributes::OfReplaced {
            copy_attributes(directory, name, path, file.file())?
        } else {
            LostAttributes::default()
        };
        file.unsynced_content().sync()?;
        Ok(Replacement {
            directory: Arc::clone(directory),
            path: path.to_path_buf(),
            name: name.to_os_string(),
            provisional_name,
            aside_name,
            file,
            replaces,
            lost,
        })
    }

    /// Installs the new file and syncs the directory: atomically, where the file system can exchange
    /// two names. What does not match `expected`, of at most `max_bytes` bytes, stays at the path.
    ///
    /// # Errors
    /// The system's error. [`ErrorKind::Conflict`] if there is not what is expected, a file has
    /// appeared where there was none, or other programs keep replacing it.
    pub fn install(mut self, expected: ExpectedFile, max_bytes: u64) -> Result<InstalledFile> {
        match (self.replaces, expected) {
            (false, ExpectedFile::Content(_)) => return Err(self.changed_meanwhile()),
            (true, ExpectedFile::Absent) => return Err(self.created_meanwhile()),
            _ => {}
        }
        if !self.replaces {
            if !self.file.link_as(&self.name)? {
                return Err(self.created_meanwhile());
            }
            self.file.unsynced_directory().sync()?;
            return self.installed(None);
        }
        let provisional = self.provisional_name.clone();
        self.link_provisionally()?;
        for _ in 0..MAX_INSTALL_ATTEMPTS {
            match self.exchange() {
                Ok(()) => {
                    let displaced = self.displaced(&provisional);
                    if !matches(&displaced, expected, max_bytes) {
                        self.exchange_back()?;
                        return Err(self.changed_meanwhile());
                    }
                    self.file.unsynced_directory().sync()?;
                    return self.installed(Some(displaced));
                }
                Err(Errno::NOENT) if matches!(expected, ExpectedFile::Content(_)) => {
                    self.remove_provisional();
                    return Err(self.changed_meanwhile());
                }
                Err(Errno::NOENT) if self.place_if_absent()? => return self.installed(None),
                // Another file has appeared since.
                Err(Errno::NOENT) => {}
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    return self.install_without_exchange(expected, max_bytes);
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

    /// Renames the new file over whatever is at the path, and syncs the directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn rename_over(mut self) -> Result<()> {
        self.link_provisionally()?;
        let directory = &self.directory;
        let renamed = fs::renameat(directory, &self.provisional_name, directory, &self.name);
        if renamed.is_err() {
            self.remove_provisional();
        }
        renamed.with_path("replace", &self.path)?;
        self.file.unsynced_directory().sync()
    }

    /// Gives the new file its random name.
    fn link_provisionally(&mut self) -> Result<()> {
        if self.file.link_as(OsStr::new(&self.provisional_name))? {
            return Ok(());
        }
        let taken = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(Error::from_io("write", &self.path, &taken))
    }

    fn exchange(&self) -> rustix::io::Result<()> {
        let (directory, flags) = (&self.directory, RenameFlags::EXCHANGE);
        fs::renameat_with(
            directory,
            &self.provisional_name,
            directory,
            &self.name,
            flags,
        )
    }

    /// Gives the displaced file its name again, and removes the new one.
    fn exchange_back(&self) -> Result<()> {
        let provisional = OsStr::new(&self.provisional_name);
        exchange_back(&self.directory, provisional, &self.name, self.identity()?)
            .with_path("put back", &self.path)
    }

    /// Installs the new file on a file system that cannot exchange two names: moves the old one
    /// aside first, so that no save of another program is lost.
    fn install_without_exchange(
        mut self,
        expected: ExpectedFile,
        max_bytes: u64,
    ) -> Result<InstalledFile> {
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
        let aside = self.aside_name.clone();
        let displaced = moved.then(|| self.displaced(&aside));
        let is_expected = displaced
            .as_ref()
            .map_or(!matches!(expected, ExpectedFile::Content(_)), |displaced| {
                matches(displaced, expected, max_bytes)
            });
        if !is_expected {
            let linked = fs::linkat(&directory, &aside, &directory, &self.name, AtFlags::empty());
            if linked.is_ok() {
                let _ = fs::unlinkat(&directory, &aside, AtFlags::empty());
            }
            self.remove_provisional();
            return Err(self.changed_meanwhile());
        }
        // After an error the journal of the caller leads to the old file.
        if !self.place_if_absent()? {
            self.remove_provisional();
            return Err(replaced_meanwhile(&self.path));
        }
        self.installed(displaced)
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
        let path = self.path.with_file_name(name);
        DisplacedFile::new(Arc::clone(&self.directory), &path, OsStr::new(name))
    }

    fn identity(&self) -> Result<FileIdentity> {
        let stat = fs::fstat(&**self.file.file()).with_path("stat", &self.path)?;
        Ok(FileIdentity(stat.st_dev, stat.st_ino))
    }

    fn installed(&self, displaced: Option<DisplacedFile>) -> Result<InstalledFile> {
        Ok(InstalledFile {
            directory: Arc::clone(&self.directory),
            path: self.path.clone(),
            name: self.name.clone(),
            provisional_name: self.provisional_name.clone(),
            identity: self.identity()?,
            displaced,
            lost: self.lost,
        })
    }

    fn created_meanwhile(&self) -> Error {
        let message = format!("{} was created by another program", self.path.display());
        Error::new(ErrorKind::Conflict, message)
    }

    fn changed_meanwhile(&self) -> Error {
        let message = format!("{} was changed by another program", self.path.display());
        Error::new(ErrorKind::Conflict, message).with_hint("look at it, and run the command again")
    }
}

impl InstalledFile {
    /// What the new file does not have of the old one.
    pub fn lost(&self) -> LostAttributes {
        self.lost
    }

    /// Returns what the new file displaced; none where nothing was.
    pub fn into_displaced(self) -> Option<DisplacedFile> {
        self.displaced
    }

    /// Puts what the new file displaced back, unless another program has replaced the new file.
    ///
    /// # Errors
    /// The system's error.
    pub fn put_back(self) -> Result<()> {
        let (directory, name) = (&self.directory, &self.name);
        if identity_at(directory, name) != Some(self.identity) {
            return Ok(());
        }
        let displaced = self.displaced.as_ref().map(DisplacedFile::path);
        match displaced.and_then(Path::file_name) {
            Some(displaced) => exchange_back(directory, displaced, name, self.identity),
            None => {
                let provisional = OsStr::new(&self.provisional_name);
                move_back(directory, name, provisional, self.identity)
            }
        }
        .with_path("put back", &self.path)
    }
}

/// Gives a displaced file its name again, removes the new one, and syncs the directory. A file that
/// another program has saved there since keeps the name; the displaced one then stays under its
/// random name, where the journal of the caller leads to it.
fn exchange_back(
    directory: &OwnedFd,
    displaced: &OsStr,
    name: &OsStr,
    new: FileIdentity,
) -> rustix::io::Result<()> {
    let exchange =
        || fs::renameat_with(directory, displaced, directory, name, RenameFlags::EXCHANGE);
    match exchange() {
        Err(Errno::NOENT) => {
            let flags = RenameFlags::NOREPLACE;
            fs::renameat_with(directory, displaced, directory, name, flags)?;
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if identity_at(directory, name) == Some(new) {
                fs::renameat(directory, displaced, directory, name)?;
            }
        }
        exchanged => {
            exchanged?;
            if identity_at(directory, displaced) == Some(new) {
                fs::unlinkat(directory, displaced, AtFlags::empty())?;
            } else {
                exchange()?;
            }
        }
    }
    fs::fsync(directory)
}

/// Removes a new file from where nothing was, and syncs the directory. Another program's file that
/// has replaced it keeps the name.
fn move_back(
    directory: &OwnedFd,
    name: &OsStr,
    provisional: &OsStr,
    new: FileIdentity,
) -> rustix::io::Result<()> {
    fs::renameat(directory, name, directory, provisional)?;
    if identity_at(directory, provisional) == Some(new) {
        fs::unlinkat(directory, provisional, AtFlags::empty())?;
    } else {
        fs::linkat(directory, provisional, directory, name, AtFlags::empty())?;
        fs::unlinkat(directory, provisional, AtFlags::empty())?;
    }
    fs::fsync(directory)
}

/// Returns whether what a new file displaced is what was expected.
fn matches(displaced: &DisplacedFile, expected: ExpectedFile, max_bytes: u64) -> bool {
    match expected {
        ExpectedFile::Any => true,
        ExpectedFile::Absent => false,
        ExpectedFile::Content(digest) => displaced
            .read_now(max_bytes)
            .is_some_and(|bytes| Digest::of(&bytes) == digest),
    }
}

fn identity_at(directory: &OwnedFd, name: &OsStr) -> Option<FileIdentity> {
    let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileIdentity(stat.st_dev, stat.st_ino))
}

fn replaced_meanwhile(path: &Path) -> Error {
    let message = format!("{} is being replaced by another program", path.display());
    Error::new(ErrorKind::Conflict, message).with_hint("run the command again once it is done")
}

fn split_path(path: &Path) -> Result<(&Path, &OsStr)> {
    path.parent().zip(path.file_name()).ok_or_else(|| {
        let message = format!("{} is not a file path", path.display());
        Error::new(ErrorKind::Host, message)
    })
}

fn add_immutable_hint(error: Error, errno: Errno, path: &Path) -> Error {
    if errno != Errno::PERM {
        return error;
    }
    let path = quote_operand(path);
    error.with_hint(format!(
        "if it or its directory is immutable: chattr -ia {path}"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::XattrFlags;

    use super::*;
    use crate::base::clock::SystemClock;

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
        let displaced = prepare(&path)
            .unwrap()
            .install(ExpectedFile::Any, 100)
            .unwrap()
            .into_displaced();
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
        assert_eq!(displaced.remove(100, &SystemClock).unwrap(), None);
        assert!(DisplacedFile::find(found.path()).unwrap().is_none());
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn file_that_appears_is_not_replaced() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        let new = prepare(&path).unwrap();
        std::fs::write(&path, "of another program").unwrap();
        let error = new.install(ExpectedFile::Any, 100).err().unwrap();
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
        let displaced = new
            .install(ExpectedFile::Any, 100)
            .unwrap()
            .into_displaced();
        assert_eq!(read(&mut displaced.unwrap(), 100).unwrap(), b"of an editor");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "old").unwrap();
        let new = prepare(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(
            new.install(ExpectedFile::Any, 100)
                .unwrap()
                .into_displaced()
                .is_none()
        );
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
        let displaced = new
            .install_without_exchange(ExpectedFile::Any, 100)
            .unwrap()
            .into_displaced();
        assert_eq!(read(&mut displaced.unwrap(), 100).unwrap(), b"old");
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(!root.join(provisional).exists());
    }

    #[test]
    fn unexpected_file_keeps_its_place() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        std::fs::write(&path, "old").unwrap();
        let expected = ExpectedFile::of(Some(b"old"));
        let unexpected = |expected| {
            let error = prepare(&path).unwrap().install(expected, 100).err();
            assert_eq!(error.unwrap().kind(), ErrorKind::Conflict);
            let new = prepare(&path).unwrap();
            let provisional = OsStr::new("provisional");
            let mut new = new;
            new.provisional_name = "provisional".to_string();
            assert!(new.file.link_as(provisional).unwrap());
            let error = new.install_without_exchange(expected, 100).err();
            assert_eq!(error.unwrap().kind(), ErrorKind::Conflict);
        };
        std::fs::write(&path, "of an editor").unwrap();
        unexpected(expected);
        unexpected(ExpectedFile::Absent);
        assert_eq!(std::fs::read(&path).unwrap(), b"of an editor");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
        std::fs::write(&path, "old").unwrap();
        assert!(prepare(&path).unwrap().install(expected, 100).is_ok());
        std::fs::remove_file(&path).unwrap();
        let error = prepare(&path).unwrap().install(expected, 100).err();
        assert_eq!(error.unwrap().kind(), ErrorKind::Conflict);
        assert!(!path.exists());
    }

    #[test]
    fn installed_file_gives_way_to_what_it_displaced() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        let install = || prepare(&path).unwrap().install(ExpectedFile::Any, 100);
        install().unwrap().put_back().unwrap();
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
        std::fs::write(&path, "old").unwrap();
        install().unwrap().put_back().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1);
        // Another program is faster.
        let installed = install().unwrap();
        std::fs::write(root.join("other"), "of an editor").unwrap();
        std::fs::rename(root.join("other"), &path).unwrap();
        installed.put_back().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"of an editor");
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
        let displaced = prepare(&path)
            .unwrap()
            .install(ExpectedFile::Any, 100)
            .unwrap()
            .into_displaced();
        assert_eq!(read(&mut displaced.unwrap(), 100), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn displaced_symlink_is_not_followed() {
        let (_directory, root) = temporary_directory();
        let path = root.join("rules.md");
        std::fs::write(root.join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("secret", &path).unwrap();
        let displaced = prepare(&path)
            .unwrap()
            .install(ExpectedFile::Any, 100)
            .unwrap()
            .into_displaced();
        assert_eq!(read(&mut displaced.unwrap(), 100), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read(root.join("secret")).unwrap(), b"secret");
    }
}
