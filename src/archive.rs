//! The archive: every byte that an agent ever wrote and that was taken out of
//! its memory, one file an entry. Entries are created, never replaced.
//!
//! Names: `YYYY-MM-DD_HHMM[-KIND][-N].md`, local time, below
//! `<archive_dir>/<archive_subdir>/`. The program's own files are in
//! `<archive_dir>/.shepherd/`.

mod pins;
mod trust;

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
use crate::durable::{self, NewFile, Unsynced, Walk};
use crate::error::{Error, Kind, PathContext, Result};
pub use pins::{PinFault, Pins};
use trust::{is_ours, refuse_foreign};

/// The folder of the program's own files below `archive_dir`.
pub const OWN: &str = ".shepherd";

/// The mode of a folder of the archive until its name is on the disk: whoever
/// finds one that lacks bits syncs it again.
const UNSYNCED: Mode = Mode::RUSR.union(Mode::XUSR);

/// How deep directories of agents are looked for that left the config.
const DEPTH: usize = 8;

/// How often a name that was free is taken by another run before this one gives
/// up.
const ATTEMPTS: usize = 64;

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
    /// the beginning: see [`Written::base`].
    Appended,
    /// A description of something that was not a readable file.
    Odd,
}

impl EntryKind {
    /// Every kind.
    pub const ALL: [EntryKind; 5] = [
        EntryKind::Scratch,
        EntryKind::FullBackup,
        EntryKind::Late,
        EntryKind::Appended,
        EntryKind::Odd,
    ];

    fn suffix(self) -> &'static str {
        match self {
            EntryKind::Scratch => "",
            EntryKind::FullBackup => "-full-backup",
            EntryKind::Late => "-late",
            EntryKind::Appended => "-appended",
            EntryKind::Odd => "-odd",
        }
    }
}

/// What is known of an entry from its name and its inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
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
pub struct Written {
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
    pub base: Option<Base>,
}

/// A content that an entry is the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Digest of the beginning, which other entries hold.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Digest of both together.
    pub whole: Digest,
}

impl Written {
    /// The same as the end of a content.
    #[must_use]
    pub fn behind(self, base: Base) -> Written {
        Written {
            base: Some(base),
            ..self
        }
    }

    /// Digest and size of the content that it is, or is the end of.
    pub fn whole(&self) -> (Digest, u64) {
        match self.base {
            Some(base) => (base.whole, base.size + self.size),
            None => (self.digest, self.size),
        }
    }
}

/// Where entries are kept.
#[derive(Clone, Debug)]
pub struct Archive {
    root: PathBuf,
    folder_mode: Mode,
    entry_mode: Mode,
    group: Option<u32>,
}

impl Archive {
    /// The archive at `root`. Nothing is made or looked at yet.
    ///
    /// With a group, its members can read folders and entries (2750 and 0640);
    /// else `entry_mode` is the mode of entries and folders are 0700.
    pub fn new(root: &Path, entry_mode: u32, group: Option<u32>) -> Archive {
        Archive {
            root: root.to_path_buf(),
            folder_mode: Mode::from_raw_mode(if group.is_some() { 0o2750 } else { 0o700 }),
            entry_mode: Mode::from_raw_mode(if group.is_some() { 0o640 } else { entry_mode }),
            group,
        }
    }

    /// `archive_dir`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path among the program's own files.
    pub fn own(&self, name: &str) -> PathBuf {
        self.root.join(OWN).join(name)
    }

    /// Whether the members of a group can read what is in it.
    pub fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// The mode of files in the archive.
    pub fn file_mode(&self) -> Mode {
        self.entry_mode
    }

    /// Opens a folder below `archive_dir`, making it if need be.
    ///
    /// # Errors
    /// What the system answered, or a link in the path.
    pub fn folder(&self, path: &Path) -> Result<OwnedFd> {
        for above in path.ancestors().skip(1) {
            self.check_owner(above)?;
        }
        let mut at = self.root.clone();
        if self.group.is_none() {
            let whole = self.root.join(path);
            if let Ok(folder) = durable::open_folder_raw(&whole, Walk::Kernel) {
                self.mend_folder(&folder, &whole)?;
                return Ok(folder);
            }
        }
        // Each level in turn: the group needs to pass through all of them.
        let mut folder = self.one_folder(&at)?;
        for component in path.components() {
            at.push(component);
            folder = self.one_folder(&at)?;
        }
        Ok(folder)
    }

    fn one_folder(&self, path: &Path) -> Result<OwnedFd> {
        match durable::open_folder_raw(path, Walk::Kernel) {
            Ok(folder) => {
                self.mend_folder(&folder, path)?;
                return Ok(folder);
            }
            // What is made above the archive must let its group pass, too.
            Err(Errno::NOENT) => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() && !parent.exists() => {
                    self.one_folder(parent)?;
                }
                _ => {}
            },
            // Said of this path, not of a folder above it that is looked at below.
            Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => {
                return Err(durable::not_opened(errno, path));
            }
            Err(_) => {}
        }
        let unsynced = match path.starts_with(&self.root) {
            true => UNSYNCED,
            false => self.folder_mode,
        };
        if let (true, Some(parent)) = (path == self.root, path.parent()) {
            durable::sync_name(parent)
                .map_err(|error| error.context(format!("cannot make {}", path.display())))?;
        }
        let folder = durable::make_folder(path, unsynced)?;
        self.dress(&folder, self.folder_mode, path)?;
        Ok(folder)
    }

    /// A run that was killed between making a folder and giving it its mode left
    /// one that lacks bits of it, and perhaps of whose name the disk does not
    /// know. What the operator allows beyond is theirs, but in the program's own
    /// folders, which have exactly their mode.
    fn mend_folder(&self, folder: &OwnedFd, path: &Path) -> Result<()> {
        let Ok(below) = path.strip_prefix(&self.root) else {
            return Ok(());
        };
        let stat = fs::fstat(folder).path("look at", path)?;
        refuse_foreign(&stat, path)?;
        let (mode, want) = (stat.st_mode & 0o7777, self.folder_mode.as_raw_mode());
        let lacks = mode & want != want || self.group.is_some_and(|group| group != stat.st_gid);
        if is_ours(&stat) && (lacks || below.starts_with(OWN) && mode != want) {
            let mode = match below.starts_with(OWN) {
                true => want,
                false => mode | want,
            };
            if lacks {
                durable::sync_name(path)?;
            }
            self.dress(folder, Mode::from_raw_mode(mode), path)?;
        }
        Ok(())
    }

    /// Gives a file or folder of the archive its group and mode, of which the
    /// process's umask took bits away. Giving it away clears the set-group bit,
    /// so the mode comes second.
    fn dress(&self, file: impl AsFd, mode: Mode, path: &Path) -> Result<()> {
        self.give_to_group(&file, path)?;
        fs::fchmod(file, mode).path("set the mode of", path)
    }

    /// Gives a file of the program's own its group and mode if it lacks them,
    /// which it does when it was just made, or when a run was killed before.
    ///
    /// # Errors
    /// What the system answered.
    pub fn dress_own(&self, file: impl AsFd, path: &Path) -> Result<()> {
        let stat = fs::fstat(&file).path("look at", path)?;
        let right = stat.st_mode & 0o7777 == self.entry_mode.as_raw_mode()
            && self.group.is_none_or(|group| group == stat.st_gid);
        match right || !is_ours(&stat) {
            true => Ok(()),
            false => self.dress(file, self.entry_mode, path),
        }
    }

    /// Whether nobody but its owner may open a file, or none of it is for this process
    /// to change.
    ///
    /// # Errors
    /// What the system answered.
    pub fn is_private(&self, file: impl AsFd, path: &Path) -> Result<bool> {
        let stat = fs::fstat(&file).path("look at", path)?;
        Ok(stat.st_mode & 0o077 == 0 || !is_ours(&stat))
    }

    /// Replaces a file of the program's own as a whole.
    ///
    /// # Errors
    /// What the system answered; the old file is untouched then.
    pub fn replace_own(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        durable::replace(path, bytes, self.entry_mode)?;
        self.dress_own(File::open(path).path("open", path)?, path)
    }

    fn give_to_group(&self, file: impl AsFd, path: &Path) -> Result<()> {
        match self.group {
            Some(group) => fs::fchown(file, None, Some(fs::Gid::from_raw(group)))
                .path("give to archive_group", path),
            None => Ok(()),
        }
    }

    /// Starts an entry of the agent whose folder is `subdir`.
    ///
    /// # Errors
    /// What the system answered: then nothing was archived.
    pub fn begin(&self, subdir: &Path) -> Result<Draft> {
        let path = self.root.join(subdir);
        let folder = Arc::new(self.folder(subdir)?);
        let file = NewFile::create(&folder, &path, self.entry_mode)?;
        self.dress(file.file(), self.entry_mode, &path)?;
        Ok(Draft {
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
    /// What the system answered. A folder that does not exist has no entries.
    pub fn list(&self, subdir: &Path) -> Result<Vec<Entry>> {
        let Some((folder, names)) = self.names(subdir)? else {
            return Ok(Vec::new());
        };
        let entries = names.iter().map(|name| self.look(&folder, subdir, name));
        entries.filter_map(Result::transpose).collect()
    }

    /// The entries of a folder whose name *and* modification time are before
    /// `limit`, oldest first; with `keep_newest` not the newest of them all.
    ///
    /// # Errors
    /// What the system answered. A folder that does not exist has no entries.
    pub fn expired(
        &self,
        subdir: &Path,
        limit: DateTime<FixedOffset>,
        keep_newest: bool,
    ) -> Result<Vec<Entry>> {
        let Some((folder, names)) = self.names(subdir)? else {
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
            let Some(entry) = self.look(&folder, subdir, name)? else {
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
    /// what lies elsewhere. What stands there is for [`Archive::entry`] to say.
    pub fn path_of(&self, typed: &Path) -> Option<PathBuf> {
        let identity = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.dev(), meta.ino()))
        };
        let root = identity(&self.root)?;
        let real = durable::real_path(&self.root.join(typed))?;
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
    pub fn other_folders(&self, is_claimed: &dyn Fn(&Path) -> bool) -> Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let path = self.root.join(&folder);
            let opened = match durable::open_folder_raw(&path, Walk::Kernel) {
                // Gone meanwhile, or not ours.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
                opened => opened.map_err(|errno| durable::not_opened(errno, &path))?,
            };
            for item in fs::Dir::read_from(&opened).path("list", &path)? {
                let item = item.path("list", &path)?;
                let name = item.file_name();
                let below = folder.join(OsStr::from_bytes(name.to_bytes()));
                let kind = match item.file_type() {
                    FileType::Unknown => fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)
                        .map_or(FileType::Unknown, |it| FileType::from_raw_mode(it.st_mode)),
                    kind => kind,
                };
                let is_other = kind == FileType::Directory
                    && !matches!(name.to_bytes(), b"." | b"..")
                    && below != Path::new(OWN)
                    && !is_claimed(&below);
                if is_other && below.components().count() <= DEPTH {
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
    pub fn entry(&self, path: &Path) -> Result<Option<Entry>> {
        let (Some(subdir), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        if !stays_below(path) {
            return Ok(None);
        }
        let Some(name) = name.to_str().and_then(Name::parse) else {
            return Ok(None);
        };
        let folder = self.root.join(subdir);
        match durable::open_folder_raw(&folder, Walk::Kernel) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(durable::not_opened(errno, &folder)),
            Ok(folder) => self.look(&folder, subdir, &name),
        }
    }

    /// The names of entries in a folder, oldest first; none where there is no
    /// folder.
    fn names(&self, subdir: &Path) -> Result<Option<(OwnedFd, Vec<Name>)>> {
        let path = self.root.join(subdir);
        let folder = match durable::open_folder_raw(&path, Walk::Kernel) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.map_err(|errno| durable::not_opened(errno, &path))?,
        };
        let mut names = Vec::new();
        for item in fs::Dir::read_from(&folder).path("list", &path)? {
            let item = item.path("list", &path)?;
            names.extend(item.file_name().to_str().ok().and_then(Name::parse));
        }
        names.sort_by_key(|name| (name.stamp, name.number, name.kind));
        Ok(Some((folder, names)))
    }

    /// The entry of a name; none when it is gone or no regular file.
    fn look(&self, folder: &OwnedFd, subdir: &Path, name: &Name) -> Result<Option<Entry>> {
        let stat = match fs::statat(folder, &name.text, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.path("look at an entry in", &self.root.join(subdir))?,
        };
        let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(file.then(|| Entry {
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
    pub fn open(&self, entry: &Path) -> Result<File> {
        let path = self.root.join(entry);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(not_an_entry(entry));
        };
        if !stays_below(entry) {
            return Err(not_an_entry(entry));
        }
        let folder = match durable::open_folder_raw(parent, Walk::Kernel) {
            Err(Errno::NOENT) => return Err(gone(&path)),
            folder => folder.map_err(|errno| durable::not_opened(errno, parent))?,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(&folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Err(gone(&path)),
            file => Ok(File::from(file.path("read", &path)?)),
        }
    }

    /// A file of the archive that another run made, and its folder: nobody knows
    /// whether that run came to sync them.
    ///
    /// # Errors
    /// What the system answered.
    pub fn unsynced(&self, file: &Path) -> Result<[Unsynced; 2]> {
        let path = self.root.join(file);
        let parent = path.parent().unwrap_or(&self.root);
        let folder = durable::open_folder(parent, Walk::Kernel)?;
        let opened = durable::open_own(&path, OpenOptions::new().read(true)).path("open", &path)?;
        Ok([
            Unsynced::new(Arc::new(opened), &path),
            Unsynced::new(Arc::new(folder), parent),
        ])
    }

    /// Digest of an entry as it is on the disk.
    ///
    /// # Errors
    /// What the system answered.
    pub fn digest(&self, entry: &Path) -> Result<Digest> {
        digest_of(self.open(entry)?, &self.root.join(entry))
    }

    /// Deletes an entry that was listed, never following a link, and nothing
    /// that stands there since.
    ///
    /// # Errors
    /// What the system answered, or another file at its name. An entry that is
    /// gone is fine.
    pub fn delete(&self, entry: &Entry) -> Result<()> {
        match self.entry(&entry.path)? {
            None => Ok(()),
            Some(now) if now == *entry => {
                let path = self.root.join(&entry.path);
                let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                    return Err(not_an_entry(&entry.path));
                };
                let folder = durable::open_folder(parent, Walk::Kernel)?;
                match fs::unlinkat(&folder, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => Ok(()),
                    Err(errno) => Err(errno).path("delete", &path),
                }
            }
            Some(_) => Err(Error::new(
                Kind::Conflict,
                format!("{} is not the entry that was listed", entry.path.display()),
            )),
        }
    }
}

/// Digest of a file that was opened at `path`, read in pieces.
///
/// # Errors
/// What the system answered.
pub fn digest_of(mut file: File, path: &Path) -> Result<Digest> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer).path("read", path)? {
            0 => return Ok(hasher.finish()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Whether a path that somebody else wrote down leads to nothing but a place of
/// entries.
pub fn stays_below(entry: &Path) -> bool {
    let mut parts = entry.components().peekable();
    parts.peek().is_some_and(|first| first.as_os_str() != OWN)
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn not_an_entry(entry: &Path) -> Error {
    Error::new(Kind::Host, format!("{} is no entry", entry.display()))
}

/// What to do stands in the sentence: a plan keeps no hints.
fn gone(path: &Path) -> Error {
    let path = path.display();
    let message = format!(
        "cannot read {path}: no such file or directory; put the entry back from a backup of \
         the archive"
    );
    Error::new(Kind::Host, message)
}

/// Whether this process may set the owner and mode of a file.
/// An entry that is being written. Dropped before [`Draft::finish`], it leaves
/// nothing behind.
pub struct Draft {
    subdir: PathBuf,
    file: NewFile,
    hasher: Hasher,
    size: u64,
}

impl Draft {
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
    pub fn begin_writing(&self) {
        self.file.begin_writing();
    }

    /// How long it is by now, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The content, which has to be on the disk before the entry gets its name.
    pub fn content(&self) -> Unsynced {
        self.file.content()
    }

    /// The folder, which has to be synced after the entry got its name.
    pub fn folder(&self) -> Unsynced {
        self.file.folder()
    }

    /// Gives the entry a free name of this minute, behind those that are taken.
    ///
    /// # Errors
    /// What the system answered: then there is no entry.
    pub fn name(&mut self, kind: EntryKind, at: DateTime<FixedOffset>) -> Result<Written> {
        let mut number = 0;
        for _ in 0..ATTEMPTS {
            let name = entry_name(at, kind, number);
            if self.file.link(OsStr::new(&name))? {
                return Ok(Written {
                    path: self.subdir.join(name),
                    kind,
                    digest: std::mem::take(&mut self.hasher).finish(),
                    size: self.size,
                    base: None,
                });
            }
            let next = behind(number, |number| self.stands(&entry_name(at, kind, number)))?;
            let Some(next) = next else { break };
            number = next;
        }
        let folder = self.file.path().display();
        let message = format!("no name of this minute is free in {folder}");
        Err(Error::new(Kind::Host, message).hint("run it again in a minute"))
    }

    fn stands(&self, name: &str) -> Result<bool> {
        let path = self.file.path();
        match fs::statat(self.file.open_folder(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno).path("look at", &path.join(name)),
        }
    }

    /// Puts this one entry on the disk, with its name.
    ///
    /// # Errors
    /// What the system answered: then there is no entry.
    pub fn finish(mut self, kind: EntryKind, at: DateTime<FixedOffset>) -> Result<Written> {
        self.content().sync()?;
        let written = self.name(kind, at)?;
        self.folder().sync()?;
        Ok(written)
    }
}

/// A number behind `taken` that is free. Those of a minute follow each other, so
/// that few have to be looked at, however many there are.
fn behind(mut taken: u32, stands: impl Fn(u32) -> Result<bool>) -> Result<Option<u32>> {
    let mut step = 1;
    let mut free = loop {
        let Some(next) = taken.checked_add(step) else {
            return Ok(None);
        };
        match stands(next)? {
            true => (taken, step) = (next, step.saturating_mul(2)),
            false => break next,
        }
    };
    while free - taken > 1 {
        let middle = taken + (free - taken) / 2;
        match stands(middle)? {
            true => taken = middle,
            false => free = middle,
        }
    }
    Ok(Some(free))
}

/// The stamp in names and headers: local time to the minute.
pub fn stamp(at: DateTime<FixedOffset>) -> String {
    at.format("%Y-%m-%d_%H%M").to_string()
}

/// The first two lines of a scratch entry, in the original's form.
pub fn scratch_header(agent: &str, at: DateTime<FixedOffset>) -> String {
    format!("# {agent} scratch notes — archived {}\n\n", stamp(at))
}

/// The scratch in a scratch entry: what follows the two header lines.
pub fn scratch_of(entry: &[u8]) -> Option<&[u8]> {
    let end = entry.windows(2).position(|pair| pair == b"\n\n")?;
    entry.starts_with(b"# ").then(|| &entry[end + 2..])
}

/// The name of an entry.
pub fn entry_name(at: DateTime<FixedOffset>, kind: EntryKind, number: u32) -> String {
    let number = match number {
        0 => String::new(),
        n => format!("-{n}"),
    };
    format!("{}{}{number}.md", stamp(at), kind.suffix())
}

/// The name of an entry, read.
struct Name {
    text: String,
    stamp: NaiveDateTime,
    kind: EntryKind,
    number: u32,
}

impl Name {
    fn parse(text: &str) -> Option<Name> {
        let (stamp, kind, number) = parse_name(text)?;
        Some(Name {
            text: text.to_string(),
            stamp,
            kind,
            number,
        })
    }
}

/// Reads `YYYY-MM-DD_HHMM[-KIND][-N].md`, the name of an entry and of nothing else.
pub fn parse_name(name: &str) -> Option<(NaiveDateTime, EntryKind, u32)> {
    const STAMP: usize = "2026-03-14_0900".len();
    let stem = name.strip_suffix(".md")?;
    let (stamp, rest) = (stem.get(..STAMP)?, stem.get(STAMP..)?);
    let shaped = stamp
        .bytes()
        .zip(*b"0000-00-00_0000")
        .all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            _ => byte == form,
        });
    if !shaped {
        return None;
    }
    let stamp = NaiveDateTime::parse_from_str(stamp, "%Y-%m-%d_%H%M").ok()?;
    EntryKind::ALL.iter().rev().find_map(|kind| {
        let number = match rest.strip_prefix(kind.suffix())? {
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
