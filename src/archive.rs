//! The archive: every byte that an agent ever wrote and that was taken out of
//! its memory, one file an entry. Entries are created, never replaced.
//!
//! Names: `YYYY-MM-DD_HHMM[-KIND][-N].md`, local time, below
//! `<archive_dir>/<archive_subdir>/`. The program's own files are in
//! `<archive_dir>/.shepherd/`.

mod ownership;
mod pins;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset, NaiveDateTime, TimeZone};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Hasher};
use crate::durable::{self, NewFile, PathWalk, UnsyncedObject};
use crate::error::{Error, ErrorKind, PathContext, Result};
use ownership::{check_directory_owner, may_change_owner_and_mode};
pub use pins::{PinFault, Pins};

/// The directory of the program's own files below `archive_dir`.
pub const PROGRAM_DIRECTORY_NAME: &str = ".shepherd";

/// The mode of a directory of the archive until its name is on the disk: whoever
/// finds one that lacks bits syncs it again.
const UNSYNCED_DIRECTORY_MODE: Mode = Mode::RUSR.union(Mode::XUSR);

/// How deep directories of agents are looked for that left the config.
const MAX_SEARCH_DEPTH: usize = 8;

/// How often a name that was free is taken by another run before this one gives
/// up.
const MAX_NAME_ATTEMPTS: usize = 64;

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryKind {
    /// A header line, an empty line, and the scratch verbatim.
    Scratch,
    /// The exact bytes of the whole memory.
    FullBackup,
    /// The whole displaced file, which a late writer had changed.
    Late,
    /// What a late writer had added to the displaced file, of which other entries hold
    /// the beginning: see [`WrittenEntry::base`].
    Appended,
    /// A description of something that was not a readable file.
    #[serde(rename = "Odd")]
    Special,
}

impl EntryKind {
    /// Every kind.
    pub const ALL: [EntryKind; 5] = [
        EntryKind::Scratch,
        EntryKind::FullBackup,
        EntryKind::Late,
        EntryKind::Appended,
        EntryKind::Special,
    ];

    fn name_suffix(self) -> &'static str {
        match self {
            EntryKind::Scratch => "",
            EntryKind::FullBackup => "-full-backup",
            EntryKind::Late => "-late",
            EntryKind::Appended => "-appended",
            EntryKind::Special => "-odd",
        }
    }
}

/// What is known of an entry from its name and its inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchiveEntry {
    /// Path below `archive_dir`.
    pub path: PathBuf,
    /// What it holds, by its name.
    pub kind: EntryKind,
    /// The local time in its name.
    pub stamp: NaiveDateTime,
    /// The number that tells entries of one minute apart; 0 for the first.
    pub number: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last modification, in seconds since 1970.
    pub modified: i64,
}

/// An entry that was just written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenEntry {
    /// Path below `archive_dir`.
    pub path: PathBuf,
    /// What it holds.
    pub kind: EntryKind,
    /// Digest of the whole entry.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Of an [`EntryKind::Appended`]: what stood before it in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseContent>,
}

/// A content that an entry is the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseContent {
    /// Digest of the beginning, which other entries hold.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Digest of both together.
    #[serde(rename = "whole")]
    pub whole_digest: Digest,
}

impl WrittenEntry {
    /// The same as the end of a content.
    #[must_use]
    pub fn with_base(self, base: BaseContent) -> WrittenEntry {
        WrittenEntry {
            base: Some(base),
            ..self
        }
    }

    /// Digest and size of the content that it is, or is the end of.
    pub fn whole_content(&self) -> (Digest, u64) {
        match self.base {
            Some(base) => (base.whole_digest, base.size + self.size),
            None => (self.digest, self.size),
        }
    }
}

/// Where entries are kept.
#[derive(Clone, Debug)]
pub struct Archive {
    root: PathBuf,
    directory_mode: Mode,
    entry_mode: Mode,
    group: Option<u32>,
}

impl Archive {
    /// The archive at `root`. Nothing is made or looked at yet.
    ///
    /// With a group, its members can read directories and entries (2750 and 0640);
    /// else `entry_mode` is the mode of entries and directories are 0700.
    pub fn new(root: &Path, entry_mode: u32, group: Option<u32>) -> Archive {
        Archive {
            root: root.to_path_buf(),
            directory_mode: Mode::from_raw_mode(if group.is_some() { 0o2750 } else { 0o700 }),
            entry_mode: Mode::from_raw_mode(if group.is_some() { 0o640 } else { entry_mode }),
            group,
        }
    }

    /// `archive_dir`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path among the program's own files.
    pub fn program_path(&self, name: &str) -> PathBuf {
        self.root.join(PROGRAM_DIRECTORY_NAME).join(name)
    }

    /// Whether the members of a group can read what is in it.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// The mode of files in the archive.
    pub fn file_mode(&self) -> Mode {
        self.entry_mode
    }

    /// Opens a directory below `archive_dir`, making it if need be.
    ///
    /// # Errors
    /// What the system answered, or a link in the path.
    pub fn open_or_create_directory(&self, path: &Path) -> Result<OwnedFd> {
        for above in path.ancestors().skip(1) {
            self.check_owner(above)?;
        }
        let mut at = self.root.clone();
        if self.group.is_none() {
            let directory_path = self.root.join(path);
            if let Ok(directory) = durable::open_directory_errno(&directory_path, PathWalk::Openat2)
            {
                self.repair_mode(&directory, &directory_path)?;
                return Ok(directory);
            }
        }
        // Each level in turn: the group needs to pass through all of them.
        let mut directory = self.open_or_create_one_directory(&at)?;
        for component in path.components() {
            at.push(component);
            directory = self.open_or_create_one_directory(&at)?;
        }
        Ok(directory)
    }

    fn open_or_create_one_directory(&self, path: &Path) -> Result<OwnedFd> {
        match durable::open_directory_errno(path, PathWalk::Openat2) {
            Ok(directory) => {
                self.repair_mode(&directory, path)?;
                return Ok(directory);
            }
            // What is made above the archive must let its group pass, too.
            Err(Errno::NOENT) => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => {
                    self.open_or_create_one_directory(parent)?;
                }
                _ => {}
            },
            // Said of this path, not of a directory above it that is looked at below.
            Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => {
                return Err(durable::open_directory_error(errno, path));
            }
            Err(_) => {}
        }
        let unsynced = match path.starts_with(&self.root) {
            true => UNSYNCED_DIRECTORY_MODE,
            false => self.directory_mode,
        };
        if let (true, Some(parent)) = (path == self.root, path.parent()) {
            durable::sync_directory_name(parent)
                .map_err(|error| error.with_context(format!("cannot make {}", path.display())))?;
        }
        let directory = durable::create_directory(path, unsynced)?;
        self.apply_attributes(&directory, self.directory_mode, path)?;
        Ok(directory)
    }

    /// A run that was killed between making a directory and giving it its mode left
    /// one that lacks bits of it, and perhaps of whose name the disk does not
    /// know. What the operator allows beyond is theirs, but in the program's own
    /// directories, which have exactly their mode.
    fn repair_mode(&self, directory: &OwnedFd, path: &Path) -> Result<()> {
        let Ok(relative_path) = path.strip_prefix(&self.root) else {
            return Ok(());
        };
        let stat = fs::fstat(directory).with_path("look at", path)?;
        check_directory_owner(&stat, path)?;
        let (mode, wanted_mode) = (stat.st_mode & 0o7777, self.directory_mode.as_raw_mode());
        let is_lacking = mode & wanted_mode != wanted_mode
            || self.group.is_some_and(|group| group != stat.st_gid);
        if may_change_owner_and_mode(&stat)
            && (is_lacking
                || relative_path.starts_with(PROGRAM_DIRECTORY_NAME) && mode != wanted_mode)
        {
            let mode = match relative_path.starts_with(PROGRAM_DIRECTORY_NAME) {
                true => wanted_mode,
                false => mode | wanted_mode,
            };
            if is_lacking {
                durable::sync_directory_name(path)?;
            }
            self.apply_attributes(directory, Mode::from_raw_mode(mode), path)?;
        }
        Ok(())
    }

    /// Gives a file or directory of the archive its group and mode, of which the
    /// process's umask took bits away. Giving it away clears the set-group bit,
    /// so the mode comes second.
    fn apply_attributes(&self, file: impl AsFd, mode: Mode, path: &Path) -> Result<()> {
        self.set_group(&file, path)?;
        fs::fchmod(file, mode).with_path("set the mode of", path)
    }

    /// Gives a file of the program's own its group and mode if it lacks them,
    /// which it does when it was just made, or when a run was killed before.
    ///
    /// # Errors
    /// What the system answered.
    pub fn repair_program_file(&self, file: impl AsFd, path: &Path) -> Result<()> {
        let stat = fs::fstat(&file).with_path("look at", path)?;
        let right = stat.st_mode & 0o7777 == self.entry_mode.as_raw_mode()
            && self.group.is_none_or(|group| group == stat.st_gid);
        match right || !may_change_owner_and_mode(&stat) {
            true => Ok(()),
            false => self.apply_attributes(file, self.entry_mode, path),
        }
    }

    /// Whether nobody but its owner may open a file, or none of it is for this process
    /// to change.
    ///
    /// # Errors
    /// What the system answered.
    pub fn is_private(&self, file: impl AsFd, path: &Path) -> Result<bool> {
        let stat = fs::fstat(&file).with_path("look at", path)?;
        Ok(stat.st_mode & 0o077 == 0 || !may_change_owner_and_mode(&stat))
    }

    /// Replaces a file of the program's own as a whole.
    ///
    /// # Errors
    /// What the system answered; the old file is untouched then.
    pub fn replace_program_file(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        durable::replace_file(path, bytes, self.entry_mode)?;
        self.repair_program_file(File::open(path).with_path("open", path)?, path)
    }

    fn set_group(&self, file: impl AsFd, path: &Path) -> Result<()> {
        match self.group {
            Some(group) => fs::fchown(file, None, Some(fs::Gid::from_raw(group)))
                .with_path("give to archive_group", path),
            None => Ok(()),
        }
    }

    /// Starts an entry of the agent whose directory is `subdir`.
    ///
    /// # Errors
    /// What the system answered: then nothing was archived.
    pub fn start_entry(&self, subdir: &Path) -> Result<EntryDraft> {
        let path = self.root.join(subdir);
        let directory = Arc::new(self.open_or_create_directory(subdir)?);
        let file = NewFile::create(&directory, &path, self.entry_mode)?;
        self.apply_attributes(file.file(), self.entry_mode, &path)?;
        Ok(EntryDraft {
            subdir: subdir.to_path_buf(),
            file,
            hasher: Hasher::default(),
            size: 0,
        })
    }

    /// The entries of one agent, oldest first. Names of other forms are left
    /// out, and so is whatever is not a regular file.
    ///
    /// # Errors
    /// What the system answered. A directory that does not exist has no entries.
    pub fn list_entries(&self, subdir: &Path) -> Result<Vec<ArchiveEntry>> {
        let Some((directory, names)) = self.list_entry_names(subdir)? else {
            return Ok(Vec::new());
        };
        let entries = names
            .iter()
            .map(|name| self.stat_entry(&directory, subdir, name));
        entries.filter_map(Result::transpose).collect()
    }

    /// The entries of a directory whose name *and* modification time are before
    /// `limit`, oldest first; with `keep_newest` not the newest of them all.
    ///
    /// # Errors
    /// What the system answered. A directory that does not exist has no entries.
    pub fn expired_entries(
        &self,
        subdir: &Path,
        limit: DateTime<FixedOffset>,
        keep_newest: bool,
    ) -> Result<Vec<ArchiveEntry>> {
        let Some((directory, names)) = self.list_entry_names(subdir)? else {
            return Ok(Vec::new());
        };
        let mut kept = !keep_newest;
        let mut expired = Vec::new();
        for name in names.iter().rev() {
            let named = limit.timezone().from_local_datetime(&name.stamp).earliest();
            let old = named.is_some_and(|named| named < limit);
            // Most are young, and nothing more need be known of them.
            if kept && !old {
                continue;
            }
            let Some(entry) = self.stat_entry(&directory, subdir, name)? else {
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

    /// The path below `archive_dir` of what a typed path leads to: relative to
    /// `archive_dir` or absolute, through links, bind mounts and any spelling. None for
    /// what lies elsewhere. What stands there is for [`Archive::find_entry`] to say.
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

    /// The directories below `archive_dir` that are neither claimed nor the program's
    /// own, nor inside such a one. Links are not followed.
    ///
    /// # Errors
    /// What the system answered.
    pub fn unclaimed_directories(
        &self,
        is_claimed: &dyn Fn(&Path) -> bool,
    ) -> Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            let path = self.root.join(&directory);
            let opened = match durable::open_directory_errno(&path, PathWalk::Openat2) {
                // Gone meanwhile, or not ours.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
                opened => opened.map_err(|errno| durable::open_directory_error(errno, &path))?,
            };
            for item in fs::Dir::read_from(&opened).with_path("list", &path)? {
                let item = item.with_path("list", &path)?;
                let name = item.file_name();
                let below = directory.join(OsStr::from_bytes(name.to_bytes()));
                let kind = match item.file_type() {
                    FileType::Unknown => fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)
                        .map_or(FileType::Unknown, |it| FileType::from_raw_mode(it.st_mode)),
                    kind => kind,
                };
                let is_other = kind == FileType::Directory
                    && !matches!(name.to_bytes(), b"." | b"..")
                    && below != Path::new(PROGRAM_DIRECTORY_NAME)
                    && !is_claimed(&below);
                if is_other && below.components().count() <= MAX_SEARCH_DEPTH {
                    open.push(below.clone());
                    found.insert(below);
                }
            }
        }
        Ok(found)
    }

    /// The entry at a path below `archive_dir`, if one is there.
    ///
    /// # Errors
    /// What the system answered.
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
        let directory = self.root.join(subdir);
        match durable::open_directory_errno(&directory, PathWalk::Openat2) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(durable::open_directory_error(errno, &directory)),
            Ok(directory) => self.stat_entry(&directory, subdir, &name),
        }
    }

    /// The names of entries in a directory, oldest first; none where there is no
    /// directory.
    fn list_entry_names(&self, subdir: &Path) -> Result<Option<(OwnedFd, Vec<EntryName>)>> {
        let path = self.root.join(subdir);
        let directory = match durable::open_directory_errno(&path, PathWalk::Openat2) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.map_err(|errno| durable::open_directory_error(errno, &path))?,
        };
        let mut names = Vec::new();
        for item in fs::Dir::read_from(&directory).with_path("list", &path)? {
            let item = item.with_path("list", &path)?;
            names.extend(item.file_name().to_str().ok().and_then(EntryName::parse));
        }
        names.sort_by_key(|name| (name.stamp, name.number, name.kind));
        Ok(Some((directory, names)))
    }

    /// The entry of a name; none when it is gone or no regular file.
    fn stat_entry(
        &self,
        directory: &OwnedFd,
        subdir: &Path,
        name: &EntryName,
    ) -> Result<Option<ArchiveEntry>> {
        let stat = match fs::statat(directory, &name.text, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.with_path("look at an entry in", &self.root.join(subdir))?,
        };
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(file.then(|| ArchiveEntry {
            path: subdir.join(&name.text),
            kind: name.kind,
            stamp: name.stamp,
            number: name.number,
            size: stat.st_size as u64,
            modified: stat.st_mtime,
        }))
    }

    /// Opens an entry for reading, following no link.
    ///
    /// # Errors
    /// What the system answered.
    pub fn open_entry(&self, entry: &Path) -> Result<File> {
        let path = self.root.join(entry);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(not_an_entry_error(entry));
        };
        if !is_below_archive(entry) {
            return Err(not_an_entry_error(entry));
        }
        let directory = match durable::open_directory_errno(parent, PathWalk::Openat2) {
            Err(Errno::NOENT) => return Err(entry_gone_error(&path)),
            directory => directory.map_err(|errno| durable::open_directory_error(errno, parent))?,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(&directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Err(entry_gone_error(&path)),
            file => Ok(File::from(file.with_path("read", &path)?)),
        }
    }

    /// A file of the archive that another run made, and its directory: nobody knows
    /// whether that run came to sync them.
    ///
    /// # Errors
    /// What the system answered.
    pub fn open_unsynced(&self, file: &Path) -> Result<[UnsyncedObject; 2]> {
        let path = self.root.join(file);
        let parent = path.parent().unwrap_or(&self.root);
        let directory = durable::open_directory(parent, PathWalk::Openat2)?;
        let opened = durable::open_own_file(&path, OpenOptions::new().read(true))
            .with_path("open", &path)?;
        Ok([
            UnsyncedObject::new(Arc::new(opened), &path),
            UnsyncedObject::new(Arc::new(directory), parent),
        ])
    }

    /// Digest of an entry as it is on the disk.
    ///
    /// # Errors
    /// What the system answered.
    pub fn digest_entry(&self, entry: &Path) -> Result<Digest> {
        digest_file(self.open_entry(entry)?, &self.root.join(entry))
    }

    /// Deletes an entry that was listed, never following a link, and nothing
    /// that stands there since.
    ///
    /// # Errors
    /// What the system answered, or another file at its name. An entry that is
    /// gone is fine.
    pub fn delete_entry(&self, entry: &ArchiveEntry) -> Result<()> {
        match self.find_entry(&entry.path)? {
            None => Ok(()),
            Some(now) if now == *entry => {
                let path = self.root.join(&entry.path);
                let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(not_an_entry_error(&entry.path));
                };
                let directory = durable::open_directory(parent, PathWalk::Openat2)?;
                match fs::unlinkat(&directory, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(errno) => Err(errno).with_path("delete", &path),
                }
            }
            Some(_) => Err(Error::new(
                ErrorKind::Conflict,
                format!("{} is not the entry that was listed", entry.path.display()),
            )),
        }
    }
}

/// Digest of a file that was opened at `path`, read in pieces.
///
/// # Errors
/// What the system answered.
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

/// Whether a path that somebody else wrote down leads to nothing but a place of
/// entries.
pub fn is_below_archive(entry: &Path) -> bool {
    let mut parts = entry.components().peekable();
    parts
        .peek()
        .is_some_and(|first| first.as_os_str() != PROGRAM_DIRECTORY_NAME)
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn not_an_entry_error(entry: &Path) -> Error {
    Error::new(ErrorKind::Host, format!("{} is no entry", entry.display()))
}

/// What to do stands in the sentence: a plan keeps no hints.
fn entry_gone_error(path: &Path) -> Error {
    let path = path.display();
    let message = format!(
        "cannot read {path}: no such file or directory; put the entry back from a backup of \
         the archive"
    );
    Error::new(ErrorKind::Host, message)
}

/// Whether this process may set the owner and mode of a file.
/// An entry that is being written. Dropped before [`EntryDraft::finish`], it leaves
/// nothing behind.
pub struct EntryDraft {
    subdir: PathBuf,
    file: NewFile,
    hasher: Hasher,
    size: u64,
}

impl EntryDraft {
    /// Appends bytes.
    ///
    /// # Errors
    /// What the system answered, a full disk for example.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        self.file.write(bytes)
    }

    /// Lets the disk begin with what was written so far.
    pub fn start_writeback(&self) {
        self.file.start_writeback();
    }

    /// How long it is by now, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The content, which has to be on the disk before the entry gets its name.
    pub fn unsynced_content(&self) -> UnsyncedObject {
        self.file.unsynced_content()
    }

    /// The directory, which has to be synced after the entry got its name.
    pub fn unsynced_directory(&self) -> UnsyncedObject {
        self.file.unsynced_directory()
    }

    /// Gives the entry a free name of this minute, behind those that are taken.
    ///
    /// # Errors
    /// What the system answered: then there is no entry.
    pub fn assign_name(
        &mut self,
        kind: EntryKind,
        at: DateTime<FixedOffset>,
    ) -> Result<WrittenEntry> {
        let mut number = 0;
        for _ in 0..MAX_NAME_ATTEMPTS {
            let name = format_entry_name(at, kind, number);
            if self.file.link_as(OsStr::new(&name))? {
                return Ok(WrittenEntry {
                    path: self.subdir.join(name),
                    kind,
                    digest: std::mem::take(&mut self.hasher).finish(),
                    size: self.size,
                    base: None,
                });
            }
            let next = behind(number, |number| {
                self.name_exists(&format_entry_name(at, kind, number))
            })?;
            let Some(next) = next else { break };
            number = next;
        }
        let directory = self.file.directory_path().display();
        let message = format!("no name of this minute is free in {directory}");
        Err(Error::new(ErrorKind::Host, message).with_hint("run it again in a minute"))
    }

    fn name_exists(&self, name: &str) -> Result<bool> {
        let path = self.file.directory_path();
        match fs::statat(self.file.directory_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno).with_path("look at", &path.join(name)),
        }
    }

    /// Puts this one entry on the disk, with its name.
    ///
    /// # Errors
    /// What the system answered: then there is no entry.
    pub fn finish(mut self, kind: EntryKind, at: DateTime<FixedOffset>) -> Result<WrittenEntry> {
        self.unsynced_content().sync()?;
        let written = self.assign_name(kind, at)?;
        self.unsynced_directory().sync()?;
        Ok(written)
    }
}

/// A number behind `taken` that is free. Those of a minute follow each other, so
/// that few have to be looked at, however many there are.
fn behind(mut last_taken: u32, is_taken: impl Fn(u32) -> Result<bool>) -> Result<Option<u32>> {
    let mut step = 1;
    let mut free = loop {
        let Some(next) = last_taken.checked_add(step) else {
            return Ok(None);
        };
        match is_taken(next)? {
            true => (last_taken, step) = (next, step.saturating_mul(2)),
            false => break next,
        }
    };
    while free - last_taken > 1 {
        let middle = last_taken + (free - last_taken) / 2;
        match is_taken(middle)? {
            true => last_taken = middle,
            false => free = middle,
        }
    }
    Ok(Some(free))
}

/// The stamp in names and headers: local time to the minute.
pub fn format_stamp(at: DateTime<FixedOffset>) -> String {
    at.format("%Y-%m-%d_%H%M").to_string()
}

/// The first two lines of a scratch entry, in the original's form.
pub fn format_scratch_header(agent: &str, at: DateTime<FixedOffset>) -> String {
    format!(
        "# {agent} scratch notes — archived {}\n\n",
        format_stamp(at)
    )
}

/// The scratch in a scratch entry: what follows the two header lines.
pub fn strip_scratch_header(entry: &[u8]) -> Option<&[u8]> {
    let end = entry.windows(2).position(|pair| pair == b"\n\n")?;
    entry.starts_with(b"# ").then(|| &entry[end + 2..])
}

/// The name of an entry.
pub fn format_entry_name(at: DateTime<FixedOffset>, kind: EntryKind, number: u32) -> String {
    let number = match number {
        0 => String::new(),
        n => format!("-{n}"),
    };
    format!("{}{}{number}.md", format_stamp(at), kind.name_suffix())
}

/// The name of an entry, read.
struct EntryName {
    text: String,
    stamp: NaiveDateTime,
    kind: EntryKind,
    number: u32,
}

impl EntryName {
    fn parse(text: &str) -> Option<EntryName> {
        let (stamp, kind, number) = parse_entry_name(text)?;
        Some(EntryName {
            text: text.to_string(),
            stamp,
            kind,
            number,
        })
    }
}

/// Reads `YYYY-MM-DD_HHMM[-KIND][-N].md`, the name of an entry and of nothing else.
pub fn parse_entry_name(name: &str) -> Option<(NaiveDateTime, EntryKind, u32)> {
    const STAMP_LENGTH: usize = "2026-03-14_0900".len();
    let stem = name.strip_suffix(".md")?;
    let (stamp, rest) = (stem.get(..STAMP_LENGTH)?, stem.get(STAMP_LENGTH..)?);
    let has_stamp_shape = stamp
        .bytes()
        .zip(*b"0000-00-00_0000")
        .all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            _ => byte == form,
        });
    if !has_stamp_shape {
        return None;
    }
    let stamp = NaiveDateTime::parse_from_str(stamp, "%Y-%m-%d_%H%M").ok()?;
    EntryKind::ALL.iter().rev().find_map(|kind| {
        let number = match rest.strip_prefix(kind.name_suffix())? {
            "" => 0,
            number => {
                let digits = number.strip_prefix('-')?;
                let ours = digits.bytes().all(|byte| byte.is_ascii_digit());
                // Numbers begin with 1 and have no zeros in front.
                if !ours || digits.starts_with('0') {
                    return None;
                }
                digits.parse().ok()?
            }
        };
        Some((stamp, *kind, number))
    })
}

#[cfg(test)]
mod tests;
