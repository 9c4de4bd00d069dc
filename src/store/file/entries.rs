//! Entries as files: `<archive_dir>/<archive_subdir>/`, each with its name in the directory of its
//! agent.
//!
//! Where entries with findings are kept in quarantine, an entry begins there before its content is
//! scanned. One without findings is released: it gets its usual mode and a name among the other
//! entries, and loses the one in the quarantine once the ledger has recorded the new one.

mod directories;
mod draft;
mod names;
mod pin_changes;
mod pins;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::archive::{
    Archive, ArchiveEntry, EntryDirectory, EntryName, EntryNames, QUARANTINED_ENTRY_MODE,
    WrittenEntry, agent_directory_of, format_entry_name, is_below_archive, is_quarantine_directory,
    parse_entry_name, quarantine_of,
};
use crate::base::durable::{self, NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::moment::Zone;
use crate::store::controller::Controller;
use crate::store::entries::{
    Entries, EntryDeletion, EntryDraft, EntryObject, EntryReader, Pins, RetiredEntries,
    not_an_entry_error,
};
use crate::store::file::lock::ArchiveLock;
use crate::store::file::semaphore::Permit;
use crate::store::ledger::Ledger;
use crate::store::record::RunEvent;
use draft::FileDraft;
use pins::FilePins;

/// How an entry is opened: an agent may have put a symlink or a FIFO in its place.
const ENTRY_OPEN_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// The entries of one archive.
#[derive(Clone)]
pub(crate) struct FileEntries {
    pub(super) controller: Arc<Controller>,
    pub(super) ledger: Arc<dyn Ledger>,
}

/// The lock that keeps other processes from pinning and deleting entries.
struct Deletion<'e> {
    entries: &'e FileEntries,
    _permit: Permit,
}

impl FileEntries {
    /// Creates the entries; reads and writes nothing yet.
    pub(crate) fn new(controller: &Arc<Controller>, ledger: &Arc<dyn Ledger>) -> FileEntries {
        FileEntries {
            controller: Arc::clone(controller),
            ledger: Arc::clone(ledger),
        }
    }

    pub(super) fn archive(&self) -> &Archive {
        self.controller.archive()
    }
}

impl Entries for FileEntries {
    fn controller(&self) -> &Controller {
        &self.controller
    }

    fn start(&self, directory: &Path) -> Result<Box<dyn EntryDraft>> {
        let permissions = self.archive().permissions();
        let path = self.location(directory);
        let mode = if is_quarantine_directory(directory) {
            QUARANTINED_ENTRY_MODE
        } else {
            permissions.entry_mode()
        };
        let opened = Arc::new(self.archive().open_or_create_directory(directory)?);
        let file = NewFile::create(&opened, &path, mode)?;
        permissions.apply(file.file(), mode, &path)?;
        Ok(Box::new(FileDraft::new(directory, file)))
    }

    fn open_unsynced(&self, entry: &Path) -> Result<Vec<UnsyncedObject>> {
        self.archive().open_unsynced(entry)
    }

    fn open(&self, entry: &Path) -> Result<Box<dyn EntryReader>> {
        let path = self.location(entry);
        let (subdir, name) = split_entry_path(entry)?;
        let root = self.archive().root();
        let Some(directory) = EntryDirectory::open(root, subdir, &[Errno::NOENT])? else {
            return Err(entry_gone_error(&path));
        };
        match fs::openat(&directory.fd, name, ENTRY_OPEN_FLAGS, Mode::empty()) {
            Err(Errno::NOENT) => Err(entry_gone_error(&path)),
            file => Ok(Box::new(File::from(file.with_path("read", &path)?))),
        }
    }

    fn find(&self, entry: &Path) -> Result<Option<ArchiveEntry>> {
        let Some((subdir, name)) = parse_entry_path(entry) else {
            return Ok(None);
        };
        self.archive().check_expected()?;
        let absent = &[Errno::NOENT, Errno::NOTDIR];
        let Some(directory) = EntryDirectory::open(self.archive().root(), subdir, absent)? else {
            return Ok(None);
        };
        Ok(directory.stat(&name)?.map(|(entry, _)| entry))
    }

    fn probe(&self, entry: &Path) -> Result<EntryObject> {
        if !is_below_archive(entry) {
            return Ok(EntryObject::Absent);
        }
        let path = self.location(entry);
        match std::fs::symlink_metadata(&path) {
            Err(error) if durable::is_absent(&error) => Ok(EntryObject::Absent),
            Err(error) => Err(Error::from_io("stat the entry", &path, &error)),
            Ok(meta) if meta.is_file() => Ok(EntryObject::Entry(meta.len())),
            Ok(_) => Ok(EntryObject::Other),
        }
    }

    fn list_with_usage(&self, directory: &Path) -> Result<Vec<(ArchiveEntry, u64)>> {
        let listed = self.archive().list_entry_names(directory)?;
        let entries = listed.iter().map(|(directory, name)| directory.stat(name));
        entries.filter_map(Result::transpose).collect()
    }

    fn list_expired(
        &self,
        directory: &Path,
        limit: DateTime<FixedOffset>,
        zone: Zone,
        keep_newest: bool,
    ) -> Result<Vec<ArchiveEntry>> {
        let listed = self.archive().list_entry_names(directory)?;
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

    fn unclaimed_directories(
        &self,
        is_claimed: &dyn Fn(&Path) -> bool,
    ) -> Result<BTreeSet<PathBuf>> {
        self.archive().check_expected()?;
        directories::find_unclaimed(self.archive().root(), is_claimed)
    }

    fn count_quarantined(&self, directory: &Path) -> usize {
        let mut listed = EntryNames::default();
        // One that cannot be listed is reported where its entries are.
        let _ = listed.add_quarantine(self.archive().root(), directory);
        listed.iter().count()
    }

    fn has_hidden_quarantine(&self, directory: &Path) -> bool {
        let path = quarantine_of(directory).map(|quarantine| self.location(&quarantine));
        let opened = path.map(|path| durable::open_directory_errno(&path));
        matches!(opened, Some(Err(Errno::ACCESS)))
    }

    fn release(&self, written: &WrittenEntry) -> Result<WrittenEntry> {
        let entry = &written.path;
        let name = entry.file_name().and_then(|name| name.to_str());
        let stamp = name.and_then(parse_entry_name);
        let (Some(name), Some((stamp, ..))) = (name, stamp) else {
            return Err(not_an_entry_error(entry));
        };
        let subdir = agent_directory_of(entry);
        let source_path = self.location(entry.parent().unwrap_or(subdir));
        let source = durable::open_directory(&source_path)?;
        let target_path = self.location(subdir);
        let target = self.archive().open_or_create_directory(subdir)?;
        let path = source_path.join(name);
        let file = fs::openat(&source, name, ENTRY_OPEN_FLAGS, Mode::empty());
        let file = file.with_path("open", &path)?;
        let stat = fs::fstat(&file).with_path("stat", &path)?;
        let id = (stat.st_dev, stat.st_ino);
        // The directory keeps others out until the entry has its other name.
        let permissions = self.archive().permissions();
        permissions.apply(&file, permissions.entry_mode(), &target_path)?;
        fs::fsync(&file).with_path("sync", &path)?;
        let find_id = |name: &str| names::file_id_at(&target, &target_path, name);
        let released = names::take_free_name(
            |number| format_entry_name(stamp, written.kind, number),
            |new_name| match fs::linkat(&source, name, &target, new_name, AtFlags::empty()) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(find_id(new_name)? == Some(id)),
                Err(errno) => Err(errno).with_path("create", &target_path.join(new_name)),
            },
            |name| Ok(find_id(name)?.is_some_and(|found| found != id)),
        )?;
        let Some(released) = released else {
            let message = format!("no free entry name in {}", target_path.display());
            return Err(Error::new(ErrorKind::Host, message));
        };
        fs::fsync(&target).with_path("sync", &target_path)?;
        Ok(WrittenEntry {
            path: subdir.join(released),
            ..written.clone()
        })
    }

    fn end_release(&self, quarantined: &Path, released: &Path) -> Result<()> {
        let (subdir, name) = split_entry_path(quarantined)?;
        if !is_quarantine_directory(subdir) {
            return Err(not_an_entry_error(quarantined));
        }
        let file_id = |entry: &Path| {
            let stat = durable::stat_no_symlinks(&self.location(entry));
            stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
        };
        let id = file_id(quarantined);
        if id.is_none() || id != file_id(released) {
            return Ok(());
        }
        let directory = durable::open_directory(&self.location(subdir))?;
        match fs::unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno).with_path("remove", &self.location(quarantined)),
        }
    }

    fn pins(&self) -> Result<Box<dyn Pins>> {
        Ok(Box::new(FilePins::read(self)?))
    }

    fn set_pinned(&self, typed: &[PathBuf], is_pinned: bool) -> Result<Vec<PathBuf>> {
        self.change_pins(typed, is_pinned)
    }

    fn lock_for_deletion(&self) -> Result<Box<dyn EntryDeletion + '_>> {
        let permit = ArchiveLock::Pins.acquire(self.archive(), self.controller.clock())?;
        Ok(Box::new(Deletion {
            entries: self,
            _permit: permit,
        }))
    }

    fn resolve_typed(&self, typed: &Path) -> Option<PathBuf> {
        let identity = |path: &Path| {
            let meta = std::fs::metadata(path).ok()?;
            Some((meta.dev(), meta.ino()))
        };
        let root = identity(self.archive().root())?;
        let real = durable::resolve_symlinks(&self.location(typed))?;
        let above = real
            .ancestors()
            .find(|above| identity(above) == Some(root))?;
        real.strip_prefix(above).ok().map(Path::to_path_buf)
    }

    fn location(&self, path: &Path) -> PathBuf {
        self.archive().root().join(path)
    }
}

impl EntryDeletion for Deletion<'_> {
    fn retire(&self, record: RunEvent, entries: &[ArchiveEntry]) -> Result<RetiredEntries> {
        self.entries.ledger.append(vec![record])?;
        let mut retired = RetiredEntries::default();
        for entry in entries {
            match self.entries.delete(entry) {
                Ok(true) => retired.deleted.push(entry.path.clone()),
                Ok(false) => {}
                // One error about the archive stands for all entries that stay.
                Err(_) if self.entries.archive().check_root().is_err() => break,
                Err(error) => retired.errors.push(error),
            }
        }
        Ok(retired)
    }
}

impl FileEntries {
    /// Deletes a listed entry; follows no symlink, and deletes no other file at its path. Returns
    /// whether there was one.
    ///
    /// # Errors
    /// The system's error, another file at its path, or another directory in the place of a pinned
    /// `archive_dir`.
    fn delete(&self, entry: &ArchiveEntry) -> Result<bool> {
        let path = self.location(&entry.path);
        let (subdir, name) =
            parse_entry_path(&entry.path).ok_or_else(|| not_an_entry_error(&entry.path))?;
        let opened = EntryDirectory::open(self.archive().root(), subdir, &[Errno::NOENT]);
        // Behind the open: what is opened now is in the directory that this finds.
        self.archive().check_root()?;
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

/// Splits the path of an entry into its directory, below `archive_dir`, and its name.
fn split_entry_path(entry: &Path) -> Result<(&Path, &OsStr)> {
    let parts = entry.parent().zip(entry.file_name());
    let parts = parts.filter(|_| is_below_archive(entry));
    parts.ok_or_else(|| not_an_entry_error(entry))
}

/// Splits the path of an entry as [`split_entry_path`]; none where its name is not one of an entry.
fn parse_entry_path(entry: &Path) -> Option<(&Path, EntryName)> {
    let (subdir, name) = split_entry_path(entry).ok()?;
    Some((subdir, EntryName::parse(name.to_str()?)?))
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
