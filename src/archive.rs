//! The archive: every byte that an agent wrote and that was removed from its memory, one file per
//! entry. Entries are created, never replaced.
//!
//! Names: `YYYY-MM-DD_HHMM[-KIND][-N].md`, local time, below `<archive_dir>/<archive_subdir>/`, and
//! below the directory `quarantine` in it. The program's own files are in `<archive_dir>/.shepherd/`.

mod entry;
mod entry_draft;
mod expected;
pub mod index;
mod ownership;
mod pins;
mod quarantine;
mod root_pin;
pub mod search;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use rustix::fs::{self, AtFlags, DirEntry, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::base::digest::{Digest, Hasher};
use crate::base::durable::{self, NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::moment::Zone;
use entry::EntryName;
pub use entry::{
    ArchiveEntry, BaseContent, EntryKind, WrittenEntry, format_entry_name, format_scratch_header,
    format_stamp, has_scratch_header, parse_entry_name, strip_scratch_header,
};
pub use entry_draft::EntryDraft;
pub use expected::{ArchiveIdReader, ExpectedArchive};
use ownership::{check_directory_owner, may_change_owner_and_mode};
pub use pins::{PinFault, Pins};
pub use quarantine::{QUARANTINE_DIRECTORY_NAME, is_quarantine_directory};
pub use root_pin::RootPin;
use root_pin::RootPins;

/// Directory of the program's own files, below `archive_dir`.
pub const PROGRAM_DIRECTORY_NAME: &str = ".shepherd";

/// Mode of a directory of the archive until its name is on the disk: a process that finds a
/// directory without the other bits syncs it again.
const UNSYNCED_DIRECTORY_MODE: Mode = Mode::RUSR.union(Mode::XUSR);

/// Maximum depth of the search for directories of agents that left the config.
const MAX_SEARCH_DEPTH: usize = 32;

/// Unit of the number of blocks in the status of a file.
const STAT_BLOCK_BYTES: u64 = 512;

/// Space on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DiskSpace {
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Bytes that are in use or that this user may still write: as in the percentage of `df`,
    /// without those that are reserved for root.
    pub total_bytes: u64,
}

/// Location, modes and group of the archive.
#[derive(Clone, Debug)]
pub struct Archive {
    root: PathBuf,
    directory_mode: Mode,
    entry_mode: Mode,
    /// Mode of the program's own files, apart from those with words of entries.
    file_mode: Mode,
    group: Option<u32>,
    root_pins: RootPins,
    /// The archive that the config names, if it names one.
    expected: Option<ExpectedArchive>,
}

/// An open directory with entries.
struct OpenDirectory {
    fd: OwnedFd,
    /// Its path below `archive_dir`.
    subdir: PathBuf,
}

/// The names of entries in a directory and its quarantine.
#[derive(Default)]
struct EntryNames {
    directories: Vec<OpenDirectory>,
    /// Each with the index of its directory.
    names: Vec<(usize, EntryName)>,
}

impl EntryNames {
    fn add_directory(&mut self, fd: OwnedFd, subdir: &Path, path: &Path) -> Result<()> {
        for item in fs::Dir::read_from(&fd).with_path("list", path)? {
            let item = item.with_path("list", path)?;
            let name = item.file_name().to_str().ok().and_then(EntryName::parse);
            self.names
                .extend(name.map(|name| (self.directories.len(), name)));
        }
        let subdir = subdir.to_path_buf();
        self.directories.push(OpenDirectory { fd, subdir });
        Ok(())
    }
}

impl Archive {
    /// Creates the archive at `root`; reads and writes nothing yet.
    ///
    /// `entry_mode` is the mode of entries. With a group, its members can read directories (2750) and the
    /// program's own files (0640); otherwise directories have 0700, and these files the mode of entries.
    pub fn new(root: &Path, entry_mode: u32, group: Option<u32>) -> Archive {
        Archive {
            root: root.to_path_buf(),
            directory_mode: Mode::from_raw_mode(if group.is_some() { 0o2750 } else { 0o700 }),
            entry_mode: Mode::from_raw_mode(entry_mode),
            file_mode: Mode::from_raw_mode(if group.is_some() { 0o640 } else { entry_mode }),
            group,
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

    /// Returns whether the members of a group can read the archive.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Mode of the program's own files in the archive.
    pub fn file_mode(&self) -> Mode {
        self.file_mode
    }

    /// Mode of entries, and of the program's own files with words of entries.
    pub fn entry_mode(&self) -> Mode {
        self.entry_mode
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
            self.check_owner(above)?;
        }
        let mut at = self.root.clone();
        if self.group.is_none() {
            let directory_path = self.root.join(path);
            if let Ok(directory) = durable::open_directory_errno(&directory_path) {
                self.repair_mode(&directory, &directory_path)?;
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
                self.repair_mode(&directory, path)?;
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
                return Err(self.open_directory_error(errno, path));
            }
            Err(_) => {}
        }
        let unsynced = if path.starts_with(&self.root) {
            UNSYNCED_DIRECTORY_MODE
        } else {
            self.directory_mode
        };
        if let (true, Some(parent)) = (path == self.root, path.parent()) {
            durable::sync_directory_name(parent)
                .map_err(|error| error.with_context(format!("cannot create {}", path.display())))?;
        }
        let directory = durable::create_directory(path, unsynced)?;
        self.apply_attributes(&directory, self.mode_of_directory(path), path)?;
        Ok(directory)
    }

    /// Converts the error of opening a directory; `path` is whole. A symlink in place of a directory
    /// that no key of the config names has a hint of its own.
    fn open_directory_error(&self, errno: Errno, path: &Path) -> Error {
        let error = durable::open_directory_error(errno, path);
        let is_fixed = self.is_quarantine(path)
            || path
                .strip_prefix(&self.root)
                .is_ok_and(|below| below.starts_with(PROGRAM_DIRECTORY_NAME));
        let is_symlink =
            is_fixed && std::fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink());
        if !is_symlink {
            return error;
        }
        let message = format!("{} is a symlink, which is never followed", path.display());
        Error::new(error.kind(), message).with_hint(
            "remove the symlink: a run creates the directory again; move the files of the old one \
             there, if they belong to it",
        )
    }

    /// Returns the mode of a directory; `path` is whole.
    fn mode_of_directory(&self, path: &Path) -> Mode {
        if self.is_quarantine(path) {
            quarantine::DIRECTORY_MODE
        } else {
            self.directory_mode
        }
    }

    /// Returns whether a directory is a quarantine; `path` is whole.
    fn is_quarantine(&self, path: &Path) -> bool {
        path.strip_prefix(&self.root)
            .is_ok_and(is_quarantine_directory)
    }

    /// Restores the mode of a directory. A run that was killed between creating the directory and
    /// setting its mode leaves one that lacks bits, and whose name may not be on the disk. Further
    /// bits are the operator's choice, except in the program's own directories and in quarantines,
    /// which have exactly their mode.
    fn repair_mode(&self, directory: &OwnedFd, path: &Path) -> Result<()> {
        let Ok(relative_path) = path.strip_prefix(&self.root) else {
            return Ok(());
        };
        let stat = fs::fstat(directory).with_path("stat", path)?;
        check_directory_owner(&stat, path)?;
        let is_quarantine = is_quarantine_directory(relative_path);
        let (mode, wanted_mode) = (
            stat.st_mode & 0o7777,
            self.mode_of_directory(path).as_raw_mode(),
        );
        let is_lacking = mode & wanted_mode != wanted_mode
            || !is_quarantine && self.group.is_some_and(|group| group != stat.st_gid);
        let is_own = is_quarantine || relative_path.starts_with(PROGRAM_DIRECTORY_NAME);
        let repaired_mode = if is_own {
            wanted_mode
        } else {
            mode | wanted_mode
        };
        if may_change_owner_and_mode(&stat) && (is_lacking || mode != repaired_mode) {
            if is_lacking {
                durable::sync_directory_name(path)?;
            }
            self.apply_attributes(directory, Mode::from_raw_mode(repaired_mode), path)?;
        }
        Ok(())
    }

    /// Gives a directory of the archive, or a file of the program, its group and mode, because the
    /// umask may have cleared bits. A change of owner clears the set-group bit, so the mode follows
    /// it. A quarantine has no group.
    fn apply_attributes(&self, file: impl AsFd, mode: Mode, path: &Path) -> Result<()> {
        if !self.is_quarantine(path) {
            self.set_group(&file, path)?;
        }
        fs::fchmod(file, mode).with_path("set the mode of", path)
    }

    /// Gives one of the program's own files its group and mode if it lacks them: it is new, or a
    /// run was killed before it set them.
    ///
    /// # Errors
    /// The system's error.
    pub fn repair_program_file(&self, file: impl AsFd, path: &Path) -> Result<()> {
        self.repair_file(file, self.file_mode, path)
    }

    /// Gives a file its group and a mode, if it lacks them.
    ///
    /// # Errors
    /// The system's error.
    fn repair_file(&self, file: impl AsFd, mode: Mode, path: &Path) -> Result<()> {
        let stat = fs::fstat(&file).with_path("stat", path)?;
        let is_right = stat.st_mode & 0o7777 == mode.as_raw_mode()
            && self.group.is_none_or(|group| group == stat.st_gid);
        if is_right || !may_change_owner_and_mode(&stat) {
            return Ok(());
        }
        self.apply_attributes(file, mode, path)
    }

    /// Returns whether only its owner may open a file, or this process may not change its mode.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_private(&self, file: impl AsFd, path: &Path) -> Result<bool> {
        let stat = fs::fstat(&file).with_path("stat", path)?;
        Ok(stat.st_mode & 0o077 == 0 || !may_change_owner_and_mode(&stat))
    }

    /// Replaces one of the program's own files as a whole.
    ///
    /// # Errors
    /// The system's error, or another archive than the one that the config names; the old file is
    /// then unchanged.
    pub fn replace_program_file(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.check_root()?;
        self.check_expected_for_write()?;
        durable::replace_file(path, bytes, self.file_mode)?;
        self.repair_program_file(File::open(path).with_path("open", path)?, path)
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

    fn set_group(&self, file: impl AsFd, path: &Path) -> Result<()> {
        match self.group {
            Some(group) => fs::fchown(file, None, Some(fs::Gid::from_raw(group)))
                .with_path("give to archive_group", path),
            None => Ok(()),
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
            self.entry_mode
        };
        let directory = Arc::new(self.open_or_create_directory(subdir)?);
        let file = NewFile::create(&directory, &path, mode)?;
        self.apply_attributes(file.file(), mode, &path)?;
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
        let entries = listed.names.iter().map(|(directory, name)| {
            self.stat_entry_with_usage(&listed.directories[*directory], name)
        });
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
        for (directory, name) in listed.names.iter().rev() {
            let old = zone.resolve(name.stamp) < limit;
            // Most entries are new; the stat of those is not needed.
            if kept && !old {
                continue;
            }
            let directory = &listed.directories[*directory];
            let Some(entry) = self.stat_entry(directory, name)? else {
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
        let (Some(subdir), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        if !is_below_archive(path) {
            return Ok(None);
        }
        let Some(name) = name.to_str().and_then(EntryName::parse) else {
            return Ok(None);
        };
        self.check_expected()?;
        let directory = self.root.join(subdir);
        match durable::open_directory_errno(&directory) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(durable::open_directory_error(errno, &directory)),
            Ok(fd) => {
                let subdir = subdir.to_path_buf();
                self.stat_entry(&OpenDirectory { fd, subdir }, &name)
            }
        }
    }

    /// Lists the names of entries in a directory and its quarantine, oldest first; none where the
    /// directory does not exist.
    fn list_entry_names(&self, subdir: &Path) -> Result<EntryNames> {
        self.check_expected()?;
        let path = self.root.join(subdir);
        let mut listed = EntryNames::default();
        match durable::open_directory_errno(&path) {
            Err(Errno::NOENT) => return Ok(listed),
            Err(errno) => return Err(durable::open_directory_error(errno, &path)),
            Ok(fd) => listed.add_directory(fd, subdir, &path)?,
        }
        self.add_quarantine(subdir, &mut listed)?;
        listed
            .names
            .sort_by_key(|(directory, name)| (name.stamp, name.number, name.kind, *directory));
        Ok(listed)
    }

    /// Adds the names in the quarantine of a directory; none where it has no quarantine that this
    /// process may list.
    fn add_quarantine(&self, subdir: &Path, listed: &mut EntryNames) -> Result<()> {
        let Some(quarantine) = quarantine::quarantine_of(subdir) else {
            return Ok(());
        };
        let path = self.root.join(&quarantine);
        match durable::open_directory_errno(&path) {
            // The quarantine is absent, is another object, or may not be read.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(()),
            Err(errno) => Err(durable::open_directory_error(errno, &path)),
            Ok(fd) => listed.add_directory(fd, &quarantine, &path),
        }
    }

    /// Returns the entry of a name; none when it is gone or not a regular file.
    fn stat_entry(
        &self,
        directory: &OpenDirectory,
        name: &EntryName,
    ) -> Result<Option<ArchiveEntry>> {
        let found = self.stat_entry_with_usage(directory, name)?;
        Ok(found.map(|(entry, _)| entry))
    }

    /// Returns the entry of a name and the number of bytes that it takes on the disk; none when it
    /// is gone or not a regular file.
    fn stat_entry_with_usage(
        &self,
        directory: &OpenDirectory,
        name: &EntryName,
    ) -> Result<Option<(ArchiveEntry, u64)>> {
        let subdir = &directory.subdir;
        let stat = match fs::statat(&directory.fd, &name.text, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.with_path("stat an entry in", &self.root.join(subdir))?,
        };
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let entry = || ArchiveEntry {
            path: subdir.join(&name.text),
            kind: name.kind,
            stamp: name.stamp,
            number: name.number,
            size: stat.st_size as u64,
            modified: stat.st_mtime,
        };
        Ok(file.then(|| (entry(), stat.st_blocks as u64 * STAT_BLOCK_BYTES)))
    }

    /// Returns how much of the archive's file system is free; `None` if it does not say.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        // The directory may not exist yet.
        let statvfs = self.root.ancestors().find_map(|it| fs::statvfs(it).ok())?;
        let used_blocks = statvfs.f_blocks.saturating_sub(statvfs.f_bfree);
        let total_blocks = used_blocks.saturating_add(statvfs.f_bavail);
        Some(DiskSpace {
            free_bytes: statvfs.f_bavail.saturating_mul(statvfs.f_frsize),
            total_bytes: total_blocks.saturating_mul(statvfs.f_frsize),
        })
    }

    /// Returns why no run can write the archive, if its file system is read-only.
    pub fn read_only_error(&self) -> Option<Error> {
        let statvfs = self.root.ancestors().find_map(|it| fs::statvfs(it).ok())?;
        if !statvfs.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return None;
        }
        let message = format!("{} is on a read-only file system", self.root.display());
        Some(Error::new(ErrorKind::Host, message).with_hint(
            "remount it for writing; the kernel may have made it read-only after an error: see dmesg",
        ))
    }

    /// Returns how many more files this user can create on the archive's file system; none if it
    /// has no fixed number.
    pub fn free_inodes(&self) -> Option<u64> {
        let statvfs = self.root.ancestors().find_map(|it| fs::statvfs(it).ok())?;
        (statvfs.f_files > 0).then_some(statvfs.f_favail)
    }

    /// Opens an entry for reading, without following symlinks.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_entry(&self, entry: &Path) -> Result<File> {
        let path = self.root.join(entry);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(not_an_entry_error(entry));
        };
        if !is_below_archive(entry) {
            return Err(not_an_entry_error(entry));
        }
        let directory = match durable::open_directory_errno(parent) {
            Err(Errno::NOENT) => return Err(entry_gone_error(&path)),
            directory => directory.map_err(|errno| durable::open_directory_error(errno, parent))?,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(&directory, name, flags, Mode::empty()) {
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
        let name = entry.path.file_name().and_then(OsStr::to_str);
        let (Some(subdir), Some(name)) = (entry.path.parent(), name.and_then(EntryName::parse))
        else {
            return Err(not_an_entry_error(&entry.path));
        };
        if !is_below_archive(&entry.path) {
            return Err(not_an_entry_error(&entry.path));
        }
        let opened = durable::open_directory_errno(&self.root.join(subdir));
        // Behind the open: what is opened now is in the directory that this finds.
        self.check_root()?;
        let fd = match opened {
            Err(Errno::NOENT) => return Ok(false),
            opened => opened
                .map_err(|errno| durable::open_directory_error(errno, &self.root.join(subdir)))?,
        };
        let subdir = subdir.to_path_buf();
        let directory = OpenDirectory { fd, subdir };
        match self.stat_entry(&directory, &name)? {
            None => return Ok(false),
            Some(now) if now == *entry => {}
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
