//! Open directories of entries, and the names of the entries in them.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::Errno;

use super::entry::{ArchiveEntry, EntryName};
use super::quarantine;
use crate::base::durable;
use crate::base::error::{PathContext, Result};

/// Unit of the number of blocks in the status of a file.
const STAT_BLOCK_BYTES: u64 = 512;

/// An open directory with entries.
pub(crate) struct EntryDirectory {
    pub(crate) fd: OwnedFd,
    path: PathBuf,
    /// Its path below `archive_dir`.
    subdir: PathBuf,
}

impl EntryDirectory {
    /// Opens the directory `subdir` below the archive's `root`; none if that fails with one of the
    /// errors in `absent`.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn open(
        root: &Path,
        subdir: &Path,
        absent: &[Errno],
    ) -> Result<Option<EntryDirectory>> {
        let path = root.join(subdir);
        match durable::open_directory_errno(&path) {
            Err(errno) if absent.contains(&errno) => Ok(None),
            Err(errno) => Err(durable::open_directory_error(errno, &path)),
            Ok(fd) => {
                let subdir = subdir.to_path_buf();
                Ok(Some(EntryDirectory { fd, path, subdir }))
            }
        }
    }

    /// Returns the entry of a name and the number of bytes that it takes on the disk; none when it
    /// is gone or not a regular file.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn stat(&self, name: &EntryName) -> Result<Option<(ArchiveEntry, u64)>> {
        let stat = match fs::statat(&self.fd, &name.text, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.with_path("stat an entry in", &self.path)?,
        };
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let entry = || ArchiveEntry {
            path: self.subdir.join(&name.text),
            kind: name.kind,
            stamp: name.stamp,
            number: name.number,
            size: stat.st_size as u64,
            modified: stat.st_mtime,
        };
        Ok(file.then(|| (entry(), stat.st_blocks as u64 * STAT_BLOCK_BYTES)))
    }
}

/// The names of entries in a directory and its quarantine.
#[derive(Default)]
pub(crate) struct EntryNames {
    /// The directory itself, and its quarantine.
    directories: Vec<EntryDirectory>,
    /// Each with the index of its directory.
    names: Vec<(usize, EntryName)>,
}

impl EntryNames {
    /// Lists the names in the directory `subdir` below the archive's `root` and its quarantine, oldest
    /// first; none where the directory does not exist.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn list(root: &Path, subdir: &Path) -> Result<EntryNames> {
        let mut listed = EntryNames::default();
        let Some(directory) = EntryDirectory::open(root, subdir, &[Errno::NOENT])? else {
            return Ok(listed);
        };
        listed.add_directory(directory)?;
        listed.add_quarantine(root, subdir)?;
        listed
            .names
            .sort_by_key(|(directory, name)| (name.stamp, name.number, name.kind, *directory));
        Ok(listed)
    }

    /// Adds the names in the quarantine of a directory; none where it has no quarantine that this
    /// process may list.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn add_quarantine(&mut self, root: &Path, subdir: &Path) -> Result<()> {
        // The quarantine is absent, is another object, or may not be read.
        let absent = &[Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ACCESS];
        let Some(quarantine) = quarantine::quarantine_of(subdir) else {
            return Ok(());
        };
        EntryDirectory::open(root, &quarantine, absent)?
            .map_or(Ok(()), |directory| self.add_directory(directory))
    }

    fn add_directory(&mut self, directory: EntryDirectory) -> Result<()> {
        for item in fs::Dir::read_from(&directory.fd).with_path("list", &directory.path)? {
            let item = item.with_path("list", &directory.path)?;
            let name = item.file_name().to_str().ok().and_then(EntryName::parse);
            self.names
                .extend(name.map(|name| (self.directories.len(), name)));
        }
        self.directories.push(directory);
        Ok(())
    }

    /// Returns the directory itself with the names in it, without its quarantine; none where it does
    /// not exist.
    pub(crate) fn into_own(mut self) -> Option<(EntryDirectory, Vec<EntryName>)> {
        self.directories.truncate(1);
        let own = self
            .names
            .into_iter()
            .filter(|(directory, _)| *directory == 0);
        Some((self.directories.pop()?, own.map(|(_, name)| name).collect()))
    }

    /// The names, each with its directory.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&EntryDirectory, &EntryName)> {
        let names = self.names.iter();
        names.map(|(directory, name)| (&self.directories[*directory], name))
    }
}
