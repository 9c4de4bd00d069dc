//! The quarantine of an agent's entries: `<archive_subdir>/quarantine/`, which only the archive's
//! owner can read; `archive_mode` and `archive_group` do not apply to it.
//!
//! An entry begins there before its content is scanned. One without findings is released: it gets
//! its usual mode and a name among the other entries, and loses the one in the quarantine once the
//! ledger has recorded the new one.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

use super::entry::{EntryKind, WrittenEntry, format_stamped_name, stamp_of_name};
use super::entry_draft::next_free_number;
use super::{Archive, ENTRY_OPEN_FLAGS, EntryNames, not_an_entry_error, split_entry_path};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, PathContext, Result};

/// Name of the directory, below that of an agent's entries.
pub const QUARANTINE_DIRECTORY_NAME: &str = "quarantine";

/// Its mode.
pub(super) const DIRECTORY_MODE: Mode = Mode::RWXU;

/// The mode of entries in it.
pub(super) const ENTRY_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Maximum number of names that a release tries.
const MAX_RELEASE_ATTEMPTS: usize = 64;

/// Returns whether a directory below `archive_dir` is a quarantine. A directory of that name right
/// below `archive_dir` is one of an agent's entries.
pub fn is_quarantine_directory(directory: &Path) -> bool {
    let mut names = directory.components().rev();
    let is_named = names
        .next()
        .is_some_and(|name| name.as_os_str() == QUARANTINE_DIRECTORY_NAME);
    is_named && names.next().is_some()
}

/// Returns the quarantine of the entries in a directory; none for a quarantine and for `archive_dir`
/// itself.
pub(super) fn quarantine_of(subdir: &Path) -> Option<PathBuf> {
    let has_one = !is_quarantine_directory(subdir) && !subdir.as_os_str().is_empty();
    has_one.then(|| subdir.join(QUARANTINE_DIRECTORY_NAME))
}

/// Returns whether an entry, a path below `archive_dir`, is in quarantine.
pub fn is_quarantined(entry: &Path) -> bool {
    entry.parent().is_some_and(is_quarantine_directory)
}

/// Returns the directory of the agent that an entry belongs to: of one in quarantine, the
/// directory above.
pub fn agent_directory_of(entry: &Path) -> &Path {
    let directory = entry.parent().unwrap_or(Path::new(""));
    if is_quarantine_directory(directory) {
        directory.parent().unwrap_or(directory)
    } else {
        directory
    }
}

impl Archive {
    /// Returns the number of entries in the quarantine of the directory `subdir`, as far as this
    /// process may list it.
    pub fn count_quarantined(&self, subdir: &Path) -> usize {
        let mut listed = EntryNames::default();
        // One that cannot be listed is reported where its entries are.
        let _ = listed.add_quarantine(&self.root, subdir);
        listed.iter().count()
    }

    /// Returns whether the directory `subdir` has a quarantine that this process may not list.
    pub fn has_hidden_quarantine(&self, subdir: &Path) -> bool {
        let path = quarantine_of(subdir).map(|quarantine| self.root.join(quarantine));
        let opened = path.map(|path| durable::open_directory_errno(&path));
        matches!(opened, Some(Err(Errno::ACCESS)))
    }

    /// Gives an entry in quarantine, which has no findings, its usual mode and a name among the
    /// other entries. It keeps the name in the quarantine until [`Archive::end_release`]. A release
    /// that was interrupted gives the same name again.
    ///
    /// # Errors
    /// The system's error; the entry is then in quarantine alone.
    pub fn release_entry(&self, written: &WrittenEntry) -> Result<WrittenEntry> {
        let entry = &written.path;
        let name = entry.file_name().and_then(|name| name.to_str());
        let stamp = name.and_then(stamp_of_name);
        let (Some(name), Some(stamp)) = (name, stamp) else {
            return Err(not_an_entry_error(entry));
        };
        let subdir = agent_directory_of(entry);
        let source_path = self.root.join(entry.parent().unwrap_or(subdir));
        let source = durable::open_directory(&source_path)?;
        let target_path = self.root.join(subdir);
        let target = self.open_or_create_directory(subdir)?;
        let path = source_path.join(name);
        let file = fs::openat(&source, name, ENTRY_OPEN_FLAGS, Mode::empty());
        let file = file.with_path("open", &path)?;
        let stat = fs::fstat(&file).with_path("stat", &path)?;
        let id = (stat.st_dev, stat.st_ino);
        // The directory keeps others out until the entry has its other name.
        let mode = self.permissions.entry_mode();
        self.permissions.apply(&file, mode, &target_path)?;
        fs::fsync(&file).with_path("sync", &path)?;
        let mut number = 0;
        for _ in 0..MAX_RELEASE_ATTEMPTS {
            let new_name = format_stamped_name(stamp, written.kind, number);
            match fs::linkat(&source, name, &target, &new_name, AtFlags::empty()) {
                Ok(()) => {}
                Err(Errno::EXIST) if file_id_at(&target, &target_path, &new_name)? == Some(id) => {}
                Err(Errno::EXIST) => {
                    let next = next_free_number(number, |number| {
                        let name = format_stamped_name(stamp, written.kind, number);
                        let found = file_id_at(&target, &target_path, &name)?;
                        Ok(found.is_some_and(|found| found != id))
                    })?;
                    match next {
                        Some(next) => number = next,
                        None => break,
                    }
                    continue;
                }
                Err(errno) => {
                    return Err(errno).with_path("create", &target_path.join(new_name));
                }
            }
            fs::fsync(&target).with_path("sync", &target_path)?;
            return Ok(WrittenEntry {
                path: subdir.join(new_name),
                ..written.clone()
            });
        }
        let message = format!("no free entry name in {}", target_path.display());
        Err(Error::new(ErrorKind::Host, message))
    }

    /// Removes the name in the quarantine of an entry that was released and recorded. Another file
    /// of that name stays.
    ///
    /// # Errors
    /// The system's error.
    pub fn end_release(&self, quarantined: &Path, released: &Path) -> Result<()> {
        let (subdir, name) = split_entry_path(quarantined)?;
        if !is_quarantine_directory(subdir) {
            return Err(not_an_entry_error(quarantined));
        }
        let file_id = |entry: &Path| {
            let stat = durable::stat_no_symlinks(&self.root.join(entry));
            stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
        };
        let id = file_id(quarantined);
        if id.is_none() || id != file_id(released) {
            return Ok(());
        }
        let directory = durable::open_directory(&self.root.join(subdir))?;
        match fs::unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno).with_path("remove", &self.root.join(quarantined)),
        }
    }

    /// Writes a copy of an entry in quarantine, without its secrets, among the other entries. It has
    /// the time of the entry in its name.
    ///
    /// # Errors
    /// The system's error; there is then no copy.
    pub fn write_redacted_copy(&self, entry: &Path, content: &[u8]) -> Result<WrittenEntry> {
        let name = entry.file_name().and_then(|name| name.to_str());
        let Some(stamp) = name.and_then(stamp_of_name) else {
            return Err(not_an_entry_error(entry));
        };
        let mut draft = self.start_entry(agent_directory_of(entry))?;
        draft.write(content)?;
        draft.finish_stamped(EntryKind::Redacted, stamp)
    }
}

/// Returns device and inode of a name in a directory, whose whole path is for errors; none without
/// such a name.
fn file_id_at(directory: impl AsFd, path: &Path, name: &str) -> Result<Option<(u64, u64)>> {
    match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((stat.st_dev, stat.st_ino))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno).with_path("stat", &path.join(name)),
    }
}
