//! The archive: every byte that an agent wrote and that was removed from its memory, one file per
//! entry. Entries are created, never replaced.
//!
//! Names: `YYYY-MM-DD_HHMM[-KIND][-N].md`, local time, below `<archive_dir>/<archive_subdir>/`, and
//! below the directory `quarantine` in it. The program's own files are in `<archive_dir>/.shepherd/`.

mod entry;
mod entry_directory;
mod expected;
mod file_system;
pub mod index;
mod permissions;
mod quarantine;
mod root_pin;
pub mod search;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::base::digest::{Digest, Hasher};
use crate::base::durable::{self, UnsyncedObject};
use crate::base::error::{Error, PathContext, Result};
pub(crate) use entry::EntryName;
pub use entry::{
    ArchiveEntry, BaseContent, EntryKind, WrittenEntry, format_entry_name, format_scratch_header,
    format_stamp, has_scratch_header, parse_entry_name, strip_scratch_header,
};
pub(crate) use entry_directory::{EntryDirectory, EntryNames};
pub use expected::{ArchiveIdReader, ExpectedArchive};
pub use file_system::{DiskSpace, free_inodes, read_only_error};
pub use permissions::Permissions;
pub use quarantine::{
    QUARANTINE_DIRECTORY_NAME, agent_directory_of, is_quarantine_directory, is_quarantined,
};
pub(crate) use quarantine::{QUARANTINED_ENTRY_MODE, quarantine_of};
pub use root_pin::RootPin;
use root_pin::RootPins;

/// Directory of the program's own files, below `archive_dir`.
pub const PROGRAM_DIRECTORY_NAME: &str = ".shepherd";

/// Mode of a directory of the archive until its name is on the disk: a process that finds a
/// directory without the other bits syncs it again.
const UNSYNCED_DIRECTORY_MODE: Mode = Mode::RUSR.union(Mode::XUSR);

/// The archive at a directory.
#[derive(Clone, Debug)]
pub struct Archive {
    root: PathBuf,
    permissions: Permissions,
    root_pins: RootPins,
    /// The archive that the config names, if it names one.
    expected: Option<ExpectedArchive>,
}

impl Archive {
    /// Creates the archive at `root`; reads and writes nothing yet.
    ///
    /// `entry_mode` is the mode of entries. With a group, its members can read directories (2750) and the
    /// program's own files (0640); otherwise directories have 0700, and these files the mode of entries.
    pub fn new(root: &Path, entry_mode: u32, group: Option<u32>) -> Archive {
        Archive {
            root: root.to_path_buf(),
            permissions: Permissions::new(root, entry_mode, group),
            root_pins: RootPins::default(),
            expected: None,
        }
    }

    /// Makes reads and writes fail where another archive than the one that the config names, or none,
    /// is at `archive_dir`.
    #[must_use]
    pub fn with_expected(self, expected: Option<ExpectedArchive>) -> Archive {
        Archive { expected, ..self }
    }

    /// Checks that the archive that the config names is at `archive_dir`, if it names one: what another
    /// one says, or none, would be untrue. A ledger that cannot be read is no error here.
    ///
    /// # Errors
    /// `ErrorKind::Host` where it is not there.
    pub fn check_expected(&self) -> Result<()> {
        let expected = self.expected.as_ref();
        expected.map_or(Ok(()), |expected| expected.check_for_read(&self.root))
    }

    /// Checks as [`Archive::check_expected`] does, before a write.
    ///
    /// # Errors
    /// `ErrorKind::Host` where it is not there; or its ledger cannot be read.
    pub fn check_expected_for_write(&self) -> Result<()> {
        let expected = self.expected.as_ref();
        expected.map_or(Ok(()), |expected| expected.check_for_write(&self.root))
    }

    /// Makes every write fail from now on if another directory takes the place of `archive_dir`,
    /// until the pin is dropped.
    pub fn pin_root(&self) -> RootPin {
        self.root_pins.pin()
    }

    /// Checks that no other directory has taken the place of a pinned `archive_dir`.
    ///
    /// # Errors
    /// `ErrorKind::Host` if one has, or there is none any more; otherwise the system's error.
    pub fn check_root(&self) -> Result<()> {
        self.root_pins.check(&self.root)
    }

    /// `archive_dir`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns whether there is an archive, to which a run has written.
    pub fn is_begun(&self) -> bool {
        self.program_path("").is_dir()
    }

    /// Path of one of the program's own files.
    pub fn program_path(&self, name: &str) -> PathBuf {
        self.root.join(PROGRAM_DIRECTORY_NAME).join(name)
    }

    /// Owner, modes and group of its directories and files.
    pub fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    /// Opens a directory below `archive_dir`, and creates it if necessary.
    ///
    /// # Errors
    /// The system's error, a symlink in the path, another directory in the place of a pinned
    /// `archive_dir`, or another archive than the one that the config names.
    pub fn open_or_create_directory(&self, path: &Path) -> Result<OwnedFd> {
        self.check_root()?;
        self.check_expected_for_write()?;
        for above in path.ancestors().skip(1) {
            self.permissions.check_owner(above)?;
        }
        let mut at = self.root.clone();
        if !self.permissions.has_group() {
            let directory_path = self.root.join(path);
            if let Ok(directory) = durable::open_directory_errno(&directory_path) {
                self.permissions
                    .repair_directory(&directory, &directory_path)?;
                return Ok(directory);
            }
        }
        // Create each level: the group needs access to all of them.
        let mut directory = self.open_or_create_one_directory(&at)?;
        for component in path.components() {
            at.push(component);
            directory = self.open_or_create_one_directory(&at)?;
        }
        Ok(directory)
    }

    fn open_or_create_one_directory(&self, path: &Path) -> Result<OwnedFd> {
        match durable::open_directory_errno(path) {
            Ok(directory) => {
                self.permissions.repair_directory(&directory, path)?;
                return Ok(directory);
            }
            // The group needs access to new directories above the archive, too.
            Err(Errno::NOENT) => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => {
                    self.open_or_create_one_directory(parent)?;
                }
                _ => {}
            },
            // Report this path, not a directory above it, which is checked below.
            Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => {
                return Err(open_directory_error(&self.root, errno, path));
            }
            Err(_) => {}
        }
        let mode = self.permissions.mode_of_directory(path);
        let unsynced = if path.starts_with(&self.root) {
            UNSYNCED_DIRECTORY_MODE
        } else {
            mode
        };
        if let (true, Some(parent)) = (path == self.root, path.parent()) {
            durable::sync_directory_name(parent)
                .map_err(|error| error.with_context(format!("cannot create {}", path.display())))?;
        }
        let directory = durable::create_directory(path, unsynced)?;
        self.permissions.apply(&directory, mode, path)?;
        Ok(directory)
    }

    /// Replaces one of the program's own files as a whole.
    ///
    /// # Errors
    /// The system's error, or another archive than the one that the config names; the old file is
    /// then unchanged.
    pub fn replace_program_file(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.check_root()?;
        self.check_expected_for_write()?;
        durable::replace_file(path, bytes, self.permissions.file_mode())?;
        self.permissions
            .repair_own_file(File::open(path).with_path("open", path)?, path)
    }

    /// Removes what killed processes have left of replacements of the program's own files, and of
    /// `missing` ones, which are not always there.
    pub fn remove_leftovers(&self, missing: &[&str]) {
        durable::remove_leftovers_in(&self.root.join(PROGRAM_DIRECTORY_NAME), missing);
    }

    /// Removes one of the program's own files. A missing one is not an error.
    ///
    /// # Errors
    /// As [`Archive::replace_program_file`].
    pub fn remove_program_file(&self, path: &Path) -> Result<()> {
        self.check_root()?;
        self.check_expected_for_write()?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_path("remove", path)
            }
            _ => Ok(()),
        }
    }

    /// Lists the names in a directory and its quarantine, as [`EntryNames::list`] does.
    pub(crate) fn list_entry_names(&self, subdir: &Path) -> Result<EntryNames> {
        self.check_expected()?;
        EntryNames::list(&self.root, subdir)
    }

    /// Opens a file of the archive that another run created, and its directory: that run may not
    /// have synced them.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_unsynced(&self, file: &Path) -> Result<Vec<UnsyncedObject>> {
        let path = self.root.join(file);
        let parent = path.parent().unwrap_or(&self.root);
        let directory = durable::open_directory(parent)?;
        let opened = durable::open_own_file(&path, OpenOptions::new().read(true))
            .with_path("open", &path)?;
        Ok(vec![
            UnsyncedObject::new(Arc::new(opened), &path),
            UnsyncedObject::new(Arc::new(directory), parent),
        ])
    }
}

/// Converts the error of opening a directory; `path` is whole. A symlink in place of a directory
/// that no key of the config names has a hint of its own.
fn open_directory_error(root: &Path, errno: Errno, path: &Path) -> Error {
    let error = durable::open_directory_error(errno, path);
    let is_fixed = path.strip_prefix(root).is_ok_and(|below| {
        is_quarantine_directory(below) || below.starts_with(PROGRAM_DIRECTORY_NAME)
    });
    let is_symlink = is_fixed && std::fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
    if !is_symlink {
        return error;
    }
    let message = format!("{} is a symlink, which is never followed", path.display());
    Error::new(error.kind(), message).with_hint(
        "remove the symlink: a run creates the directory again; move the files of the old one \
         there, if they belong to it",
    )
}

/// Returns the digest of what a reader of the file at `path` has left, read in pieces.
///
/// # Errors
/// The system's error.
pub fn digest_reader(mut reader: impl Read, path: &Path) -> Result<Digest> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match reader.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => match read.with_path("read", path)? {
                0 => return Ok(hasher.finish()),
                count => hasher.update(&buffer[..count]),
            },
        }
    }
}

/// Returns whether a path from a record can only lead to an entry's place in the archive.
pub fn is_below_archive(entry: &Path) -> bool {
    let mut parts = entry.components().peekable();
    parts
        .peek()
        .is_some_and(|first| first.as_os_str() != PROGRAM_DIRECTORY_NAME)
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests;
