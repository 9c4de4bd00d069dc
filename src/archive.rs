//! The archive: every byte that an agent wrote and that was removed from its memory, one file per
//! entry. Entries are created, never replaced.
//!
//! Names: `YYYY-MM-DD_HHMM[-KIND][-N].md`, local time, below `<archive_dir>/<archive_subdir>/`, and
//! below the directory `quarantine` in it. The program's own files are in `<archive_dir>/.shepherd/`.

mod entry;
mod entry_directory;
mod entry_draft;
mod expected;
mod file_system;
pub mod index;
mod permissions;
mod pins;
mod quarantine;
mod root_pin;
pub mod search;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use rustix::fs::{self, AtFlags, DirEntry, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::base::digest::{Digest, Hasher};
use crate::base::durable::{self, NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::moment::Zone;
use entry::EntryName;
pub use entry::{
    ArchiveEntry, BaseContent, EntryKind, WrittenEntry, format_entry_name, format_scratch_header,
    format_stamp, has_scratch_header, parse_entry_name, strip_scratch_header,
};
use entry_directory::{EntryDirectory, EntryNames};
pub use entry_draft::EntryDraft;
pub use expected::{ArchiveIdReader, ExpectedArchive};
pub use file_system::{DiskSpace, free_inodes, read_only_error};
pub use permissions::Permissions;
pub use pins::{PinFault, Pins};
pub use quarantine::{
    QUARANTINE_DIRECTORY_NAME, agent_directory_of, is_quarantine_directory, is_quarantined,
};
pub use root_pin::RootPin;
use root_pin::RootPins;

/// Directory of the program's own files, below `archive_dir`.
pub const PROGRAM_DIRECTORY_NAME: &str = ".shepherd";

/// Mode of a directory of the archive until its name is on the disk: a process that finds a
/// directory without the other bits syncs it again.
const UNSYNCED_DIRECTORY_MODE: Mode = Mode::RUSR.union(Mode::XUSR);

/// How an entry is opened: an agent may have put a symlink or a FIFO in its place.
const ENTRY_OPEN_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// Maximum depth of the search for directories of agents that left the config.
const MAX_SEARCH_DEPTH: usize = 32;

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
    /// [`ErrorKind::Host`] where it is not there.
    pub fn check_expected(&self) -> Result<()> {
        let expected = self.expected.as_ref();
        expected.map_or(Ok(()), |expected| expected.check_for_read(&self.root))
    }

    /// Checks as [`Archive::check_expected`] does, before a write.
    ///
    /// # Errors
    /// [`ErrorKind::Host`] where it is not there; or its ledger cannot be read.
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
    /// [`ErrorKind::Host`] if one has, or there is none any more; otherwise the system's error.
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

    /// Starts an entry in the directory `subdir`: an agent's, or its quarantine.
    ///
    /// # Errors
    /// The system's error; nothing was archived.
    pub fn start_entry(&self, subdir: &Path) -> Result<EntryDraft> {
        let path = self.root.join(subdir);
        let mode = if is_quarantine_directory(subdir) {
            quarantine::ENTRY_MODE
        } else {
            self.permissions.entry_mode()
        };
        let directory = Arc::new(self.open_or_create_directory(subdir)?);
        let file = NewFile::create(&directory, &path, mode)?;
        self.permissions.apply(file.file(), mode, &path)?;
        Ok(EntryDraft::new(subdir, file))
    }

    /// Lists the entries of one agent, oldest first, with those in its quarantine. Skips other names,
    /// and everything but regular files.
    ///
    /// # Errors
    /// The system's error. A directory that does not exist has no entries, and neither has a
    /// quarantine that this process may not read.
    pub fn list_entries(&self, subdir: &Path) -> Result<Vec<ArchiveEntry>> {
        let entries = self.list_entries_with_usage(subdir)?.into_iter();
        Ok(entries.map(|(entry, _)| entry).collect())
    }

    /// Lists the entries of one agent as [`Archive::list_entries`] does, each with the number of
    /// bytes that it takes on the disk.
    ///
    /// # Errors
    /// As [`Archive::list_entries`].
    pub fn list_entries_with_usage(&self, subdir: &Path) -> Result<Vec<(ArchiveEntry, u64)>> {
        let listed = self.list_entry_names(subdir)?;
        let entries = listed.iter().map(|(directory, name)| directory.stat(name));
        entries.filter_map(Result::transpose).collect()
    }

    /// Lists the entries of a directory and its quarantine whose name *and* modification time are
    /// before `limit`, with the local times in names in `zone`, oldest first; with `keep_newest` without
    /// the newest entry of all.
    ///
    /// # Errors
    /// The system's error. A directory that does not exist has no entries.
    pub fn expired_entries(
        &self,
        subdir: &Path,
        limit: DateTime<FixedOffset>,
        zone: Zone,
        keep_newest: bool,
    ) -> Result<Vec<ArchiveEntry>> {
        let listed = self.list_entry_names(subdir)?;
        let mut kept = !keep_newest;
        let mut expired = Vec::new();
        for (directory, name) in listed.iter().rev() {
            let old = zone.resolve(name.stamp) < limit;
            // Most entries are new; the stat of those is not needed.
            if kept && !old {
                continue;
            }
            let Some((entry, _)) = directory.stat(name)? else {
                continue;
            };
            if kept && old && entry.modified < limit.timestamp() {
                expired.push(entry);
            }
            kept = true;
        }
        expired.reverse();
        Ok(expired)
    }

    /// Resolves a typed path, relative to `archive_dir` or absolute, through symlinks, bind mounts
    /// and any spelling, to a path below `archive_dir`; none for paths elsewhere. Does not check
    /// that the path is an entry: see [`Archive::find_entry`].
    pub fn resolve_typed_path(&self, typed: &Path) -> Option<PathBuf> {
        let identity = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.dev(), meta.ino()))
        };
        let root = identity(&self.root)?;
        let real = durable::resolve_symlinks(&self.root.join(typed))?;
        let above = real
            .ancestors()
            .find(|above| identity(above) == Some(root))?;
        real.strip_prefix(above).ok().map(Path::to_path_buf)
    }

    /// Lists the directories below `archive_dir` that are neither claimed nor the program's own,
    /// also those below claimed ones, without their quarantines. Does not follow symlinks.
    ///
    /// # Errors
    /// The system's error.
    pub fn unclaimed_directories(
        &self,
        is_claimed: &dyn Fn(&Path) -> bool,
    ) -> Result<BTreeSet<PathBuf>> {
        self.check_expected()?;
        let mut found = BTreeSet::new();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            let path = self.root.join(&directory);
            let opened = match durable::open_directory_errno(&path) {
                // Removed since it was listed, or of another user.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
                opened => opened.map_err(|errno| durable::open_directory_error(errno, &path))?,
            };
            if has_no_subdirectory(&opened) {
                continue;
            }
            for item in fs::Dir::read_from(&opened).with_path("list", &path)? {
                let item = item.with_path("list", &path)?;
                if !is_subdirectory(&opened, &item) {
                    continue;
                }
                let name = OsStr::from_bytes(item.file_name().to_bytes());
                let below = directory.join(name);
                let is_own = below == Path::new(PROGRAM_DIRECTORY_NAME);
                let is_quarantine = is_quarantine_directory(&below);
                if is_own || is_quarantine || below.components().count() > MAX_SEARCH_DEPTH {
                    continue;
                }
                if !is_claimed(&below) {
                    found.insert(below.clone());
                }
                open.push(below);
            }
        }
        Ok(found)
    }

    /// Finds the entry at a path below `archive_dir`.
    ///
    /// # Errors
    /// The system's error.
    pub fn find_entry(&self, path: &Path) -> Result<Option<ArchiveEntry>> {
        let Ok((subdir, name)) = split_entry_path(path) else {
            return Ok(None);
        };
        let Some(name) = name.to_str().and_then(EntryName::parse) else {
            return Ok(None);
        };
        self.check_expected()?;
        let absent = &[Errno::NOENT, Errno::NOTDIR];
        let Some(directory) = EntryDirectory::open(&self.root, subdir, absent)? else {
            return Ok(None);
        };
        Ok(directory.stat(&name)?.map(|(entry, _)| entry))
    }

    /// Lists the names in a directory and its quarantine, as [`EntryNames::list`] does.
    fn list_entry_names(&self, subdir: &Path) -> Result<EntryNames> {
        self.check_expected()?;
        EntryNames::list(&self.root, subdir)
    }

    /// Opens an entry for reading, without following symlinks.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_entry(&self, entry: &Path) -> Result<File> {
        let path = self.root.join(entry);
        let (subdir, name) = split_entry_path(entry)?;
        let Some(directory) = EntryDirectory::open(&self.root, subdir, &[Errno::NOENT])? else {
            return Err(entry_gone_error(&path));
        };
        match fs::openat(&directory.fd, name, ENTRY_OPEN_FLAGS, Mode::empty()) {
            Err(Errno::NOENT) => Err(entry_gone_error(&path)),
            file => Ok(File::from(file.with_path("read", &path)?)),
        }
    }

    /// Opens a file of the archive that another run created, and its directory: that run may not
    /// have synced them.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_unsynced(&self, file: &Path) -> Result<[UnsyncedObject; 2]> {
        let path = self.root.join(file);
        let parent = path.parent().unwrap_or(&self.root);
        let directory = durable::open_directory(parent)?;
        let opened = durable::open_own_file(&path, OpenOptions::new().read(true))
            .with_path("open", &path)?;
        Ok([
            UnsyncedObject::new(Arc::new(opened), &path),
            UnsyncedObject::new(Arc::new(directory), parent),
        ])
    }

    /// Returns the digest of an entry on the disk.
    ///
    /// # Errors
    /// The system's error.
    pub fn digest_entry(&self, entry: &Path) -> Result<Digest> {
        digest_file(self.open_entry(entry)?, &self.root.join(entry))
    }

    /// Deletes a listed entry; follows no symlink, and deletes no other file at its path. Returns
    /// whether there was one.
    ///
    /// # Errors
    /// The system's error, another file at its path, or another directory in the place of a pinned
    /// `archive_dir`.
    pub fn delete_entry(&self, entry: &ArchiveEntry) -> Result<bool> {
        let path = self.root.join(&entry.path);
        let (subdir, name) = split_entry_path(&entry.path)?;
        let Some(name) = name.to_str().and_then(EntryName::parse) else {
            return Err(not_an_entry_error(&entry.path));
        };
        let opened = EntryDirectory::open(&self.root, subdir, &[Errno::NOENT]);
        // Behind the open: what is opened now is in the directory that this finds.
        self.check_root()?;
        let Some(directory) = opened? else {
            return Ok(false);
        };
        match directory.stat(&name)? {
            None => return Ok(false),
            Some((now, _)) if now == *entry => {}
            Some(_) => {
                let path = entry.path.display();
                let message = format!("{path} was replaced since it was listed");
                return Err(Error::new(ErrorKind::Conflict, message));
            }
        }
        match fs::unlinkat(&directory.fd, &name.text, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(false),
            deleted => deleted.with_path("delete", &path).map(|()| true),
        }
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

/// File systems on which a directory has a link for its name, one for `.`, and one for each
/// subdirectory: ext2 to ext4, XFS and tmpfs (`EXT4_SUPER_MAGIC` and others in linux/magic.h).
const COUNTING_FILE_SYSTEMS: [i64; 3] = [0xEF53, 0x5846_5342, 0x0102_1994];

/// Whether it is known, without a list of its names, that a directory has no subdirectory: a list of
/// thousands of entries takes long.
fn has_no_subdirectory(directory: &OwnedFd) -> bool {
    let is_alone = fs::fstat(directory).is_ok_and(|stat| stat.st_nlink == 2);
    let is_counted = |it: fs::StatFs| COUNTING_FILE_SYSTEMS.contains(&it.f_type);
    is_alone && fs::fstatfs(directory).is_ok_and(is_counted)
}

/// Returns whether an item of a directory is a directory, and not the item of itself or its parent.
fn is_subdirectory(directory: &OwnedFd, item: &DirEntry) -> bool {
    let name = item.file_name();
    let kind = match item.file_type() {
        // Some file systems list no types. An entry's name need not be looked up.
        FileType::Unknown if name.to_str().is_ok_and(|it| parse_entry_name(it).is_some()) => {
            FileType::RegularFile
        }
        FileType::Unknown => fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |it| FileType::from_raw_mode(it.st_mode)),
        kind => kind,
    };
    kind == FileType::Directory && !matches!(name.to_bytes(), b"." | b"..")
}

/// Returns the digest of a file that was opened at `path`, read in pieces.
///
/// # Errors
/// The system's error.
pub fn digest_file(mut file: File, path: &Path) -> Result<Digest> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer).with_path("read", path)? {
            0 => return Ok(hasher.finish()),
            count => hasher.update(&buffer[..count]),
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

/// Splits the path of an entry into its directory, below `archive_dir`, and its name.
fn split_entry_path(entry: &Path) -> Result<(&Path, &OsStr)> {
    let parts = entry.parent().zip(entry.file_name());
    let parts = parts.filter(|_| is_below_archive(entry));
    parts.ok_or_else(|| not_an_entry_error(entry))
}

fn not_an_entry_error(entry: &Path) -> Error {
    Error::new(
        ErrorKind::Host,
        format!("{} is not an entry", entry.display()),
    )
}

/// The message includes the hint, because a plan keeps no hints.
fn entry_gone_error(path: &Path) -> Error {
    let path = path.display();
    let message = format!(
        "cannot read {path}: no such file or directory; restore the entry from a backup of \
         the archive"
    );
    Error::new(ErrorKind::Host, message)
}

#[cfg(test)]
mod tests;
