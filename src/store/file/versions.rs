//! Baseline versions as files: `<archive_dir>/.shepherd/baselines/`.
//!
//! A version is stored before the record that names it, so the ledger alone does not show that a
//! process is about to rely on one. The modification time of its file does: it is the time of the
//! last store, to within [`MIN_USE_INTERVAL`]. A process that finds a version stored sets that time
//! under the lock that retention holds while it looks at the times and deletes. So retention either
//! finds the file young and keeps it, or the process finds it gone and stores it again.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::Errno;

use crate::archive::{self, Archive, PROGRAM_DIRECTORY_NAME};
use crate::base::cache_limit::is_full;
use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::base::durable::{self, NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::sys;
use crate::store::file::lock::open_lock_file;
use crate::store::versions::{StoredVersion, VersionDeletion, VersionDraft, Versions};
use crate::transport::Stamp;

/// Directory of the versions, in the program's own directory of the archive.
const VERSION_DIRECTORY_NAME: &str = "baselines";

/// End of the name of a version's file.
const VERSION_EXTENSION: &str = ".md";

/// The lock that is held while versions are deleted, or while their times are set.
const LOCK_FILE_NAME: &str = ".versions.lock";

/// Content of the lock file once retention has checked the versions.
const CHECK_MARK: &[u8] = b"\n";

/// How old the time of a stored version gets before a store sets it. Far less than any age at which
/// retention deletes.
const MIN_USE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The baseline versions of one archive.
#[derive(Clone)]
pub(crate) struct FileVersions {
    archive: Archive,
    clock: Arc<dyn Clock>,
    cached_versions: Arc<Mutex<HashMap<Digest, Arc<Vec<u8>>>>>,
}

/// The lock that keeps other processes from relying on stored versions.
struct Deletion<'v> {
    versions: &'v FileVersions,
    file: File,
}

impl Drop for Deletion<'_> {
    fn drop(&mut self) {
        // A close is not enough: a child process that another thread is just starting has a copy of
        // the descriptor until it executes its program.
        sys::unlock(self.file.as_fd());
    }
}

impl FileVersions {
    /// Creates the store in `archive`.
    pub fn new(archive: &Archive, clock: Arc<dyn Clock>) -> FileVersions {
        FileVersions {
            archive: archive.clone(),
            clock,
            cached_versions: Arc::default(),
        }
    }

    /// Returns whether a version is on the disk byte for byte; then retention keeps it for as long as
    /// a version that is stored now.
    fn claim_stored(&self, digest: Digest, bytes: &[u8]) -> Result<bool> {
        let Some(file) = self.open_equal(digest, bytes) else {
            return Ok(false);
        };
        let path = self.location(digest);
        let now = SystemTime::from(self.clock.now());
        let stored_at = file.metadata().and_then(|meta| meta.modified());
        let stored_at = stored_at.with_path("stat", &path)?;
        if now.duration_since(stored_at).unwrap_or_default() < MIN_USE_INTERVAL {
            return Ok(true);
        }
        let _lock = self.lock_for_deletion()?;
        let is_there = std::fs::symlink_metadata(&path)
            .is_ok_and(|there| file.metadata().is_ok_and(|meta| meta.ino() == there.ino()));
        if is_there && let Err(error) = file.set_modified(now) {
            // A file of another user. Once the record that names it is written, that protects it.
            tracing::debug!("cannot set the time of {}: {error}", path.display());
        }
        Ok(is_there)
    }

    /// Returns whether a version is on the disk byte for byte. Neither its length nor this
    /// process's earlier reads reveal a copy that a power cut or the disk has damaged.
    fn is_stored(&self, digest: Digest, bytes: &[u8]) -> bool {
        self.open_equal(digest, bytes).is_some()
    }

    /// Opens the file of a version if it holds exactly these bytes.
    fn open_equal(&self, digest: Digest, bytes: &[u8]) -> Option<File> {
        let path = self.location(digest);
        let file = durable::open_own_file(&path, OpenOptions::new().read(true)).ok()?;
        let mut kept = Vec::with_capacity(bytes.len() + 1);
        let read = (&file).take(bytes.len() as u64 + 1).read_to_end(&mut kept);
        (read.is_ok() && kept == bytes).then_some(file)
    }

    fn lock_path(&self) -> PathBuf {
        self.archive.program_path("locks").join(LOCK_FILE_NAME)
    }

    fn cache_version(&self, digest: Digest, bytes: Arc<Vec<u8>>) -> Arc<Vec<u8>> {
        let mut known = self
            .cached_versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if is_full(known.values().map(|bytes| bytes.len())) {
            known.clear();
        }
        known.insert(digest, Arc::clone(&bytes));
        bytes
    }
}

impl Versions for FileVersions {
    fn start_version(&self, digest: Digest, bytes: &[u8]) -> Result<Option<Box<dyn VersionDraft>>> {
        if self.claim_stored(digest, bytes)? {
            return Ok(None);
        }
        let path = self.archive.program_path(VERSION_DIRECTORY_NAME);
        let directory = Path::new(PROGRAM_DIRECTORY_NAME).join(VERSION_DIRECTORY_NAME);
        let directory = Arc::new(self.archive.open_or_create_directory(&directory)?);
        let permissions = self.archive.permissions();
        let mut file = permissions.create_own_file(&directory, &path)?;
        file.write(bytes)?;
        let bytes = Arc::new(bytes.to_vec());
        Ok(Some(Box::new(Draft {
            versions: self.clone(),
            digest,
            bytes,
            file,
        })))
    }

    fn open_unsynced(&self, version: Digest) -> Result<Vec<UnsyncedObject>> {
        let directory = Path::new(PROGRAM_DIRECTORY_NAME).join(VERSION_DIRECTORY_NAME);
        let name = format!("{version}{VERSION_EXTENSION}");
        self.archive.open_unsynced(&directory.join(name))
    }

    fn read_version(&self, digest: Digest) -> Result<Arc<Vec<u8>>> {
        let known = self
            .cached_versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&digest) {
            return Ok(Arc::clone(bytes));
        }
        drop(known);
        let path = self.location(digest);
        let bytes = durable::read_own_file(&path).with_path("read the baseline version", &path)?;
        if Digest::of(&bytes) != digest {
            let message = format!("the baseline version {} is damaged", path.display());
            return Err(Error::new(ErrorKind::Integrity, message));
        }
        Ok(self.cache_version(digest, Arc::new(bytes)))
    }

    fn digest_version(&self, digest: Digest) -> Result<Option<Digest>> {
        let path = self.location(digest);
        let file = match durable::open_own_file(&path, OpenOptions::new().read(true)) {
            Err(error) if durable::is_absent(&error) => return Ok(None),
            file => file.with_path("read the baseline version", &path)?,
        };
        archive::digest_reader(file, &path).map(Some)
    }

    fn digests(&self) -> Result<Vec<Digest>> {
        let path = self.archive.program_path(VERSION_DIRECTORY_NAME);
        let directory = match durable::open_directory_errno(&path) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(|errno| durable::open_directory_error(errno, &path))?,
        };
        let mut digests = Vec::new();
        for item in fs::Dir::read_from(&directory).with_path("list", &path)? {
            let item = item.with_path("list", &path)?;
            let name = str::from_utf8(item.file_name().to_bytes()).ok();
            let stem = name.and_then(|name| name.strip_suffix(VERSION_EXTENSION));
            digests.extend(stem.and_then(|stem| stem.parse::<Digest>().ok()));
        }
        Ok(digests)
    }

    fn list(&self) -> Result<Vec<StoredVersion>> {
        let mut versions = Vec::new();
        for digest in self.digests()? {
            let path = self.location(digest);
            match fs::lstat(&path) {
                Err(Errno::NOENT) => {}
                stat => versions.extend(stored_version(digest, &stat.with_path("stat", &path)?)),
            }
        }
        Ok(versions)
    }

    fn location(&self, digest: Digest) -> PathBuf {
        self.archive
            .program_path(VERSION_DIRECTORY_NAME)
            .join(format!("{digest}{VERSION_EXTENSION}"))
    }

    fn note_check(&self) {
        let now = SystemTime::from(self.clock.now());
        let noted = open_lock_file(&self.archive, &self.lock_path()).and_then(|file| {
            let noted = file.write_all_at(CHECK_MARK, 0);
            noted
                .and_then(|()| file.set_modified(now))
                .with_path("write to", &self.lock_path())
        });
        if let Err(error) = noted {
            tracing::debug!("cannot note the check of the baseline versions: {error}");
        }
    }

    fn last_check(&self) -> Option<i64> {
        let lock = std::fs::symlink_metadata(self.lock_path()).ok()?;
        (lock.len() > 0).then(|| lock.mtime())
    }

    fn lock_for_deletion(&self) -> Result<Box<dyn VersionDeletion + '_>> {
        let file = open_lock_file(&self.archive, &self.lock_path())?;
        durable::wait_for_lock(&file, &self.lock_path(), self.clock.as_ref())?;
        Ok(Box::new(Deletion {
            versions: self,
            file,
        }))
    }
}

impl VersionDeletion for Deletion<'_> {
    fn delete(&self, version: &StoredVersion) -> Result<bool> {
        let path = self.versions.archive.program_path(VERSION_DIRECTORY_NAME);
        let directory = durable::open_directory(&path);
        // Behind the open: what is opened now is in the directory that this finds.
        self.versions.archive.check_root()?;
        let directory = directory?;
        let name = format!("{}{VERSION_EXTENSION}", version.digest);
        let stat = match fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(true),
            stat => stat.with_path("stat", &path.join(&name))?,
        };
        let now = stored_version(version.digest, &stat);
        if now.is_none_or(|now| now.stamp != version.stamp) {
            return Ok(false);
        }
        fs::unlinkat(&directory, &name, AtFlags::empty()).with_path("delete", &path.join(&name))?;
        let mut known = self
            .versions
            .cached_versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.remove(&version.digest);
        Ok(true)
    }
}

/// A version that has no name yet.
struct Draft {
    versions: FileVersions,
    digest: Digest,
    bytes: Arc<Vec<u8>>,
    file: NewFile,
}

impl VersionDraft for Draft {
    fn unsynced_content(&self) -> Option<UnsyncedObject> {
        Some(self.file.unsynced_content())
    }

    fn assign_name(mut self: Box<Self>) -> Result<()> {
        let versions = &self.versions;
        let path = versions.location(self.digest);
        if self.file.link_as(path.file_name().unwrap_or_default())? {
            versions.cache_version(self.digest, self.bytes);
        } else if !versions.is_stored(self.digest, &self.bytes) {
            // The stored one is damaged; otherwise another run has stored the same bytes.
            versions.archive.replace_program_file(&path, &self.bytes)?;
        }
        Ok(())
    }
}

/// Returns the version that a file is; none if it is not a regular file.
fn stored_version(digest: Digest, stat: &fs::Stat) -> Option<StoredVersion> {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then(|| StoredVersion {
        digest,
        size: stat.st_size as u64,
        disk_bytes: stat.st_blocks as u64 * 512,
        stored_at: stat.st_mtime,
        stamp: Stamp::from_stat(stat),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    /// A store with one version of ten days ago.
    fn store_with_old_version(bytes: &[u8]) -> (tempfile::TempDir, FileVersions) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        let versions = FileVersions::new(&archive, Arc::new(SystemClock));
        let digest = (&versions as &dyn Versions).store(bytes).unwrap();
        let file = File::options().write(true).open(versions.location(digest));
        let past = SystemTime::from(SystemClock.now()) - MIN_USE_INTERVAL * 10;
        file.unwrap().set_modified(past).unwrap();
        (directory, versions)
    }

    #[test]
    fn version_stored_again_since_listing_is_not_deleted() {
        let (_directory, versions) = store_with_old_version(b"# Rules\n");
        let listed = versions.list().unwrap();
        let digest = (&versions as &dyn Versions).store(b"# Rules\n").unwrap();
        let deletion = versions.lock_for_deletion().unwrap();
        assert!(!deletion.delete(&listed[0]).unwrap());
        assert!(versions.location(digest).exists());
        let now = SystemClock.now().timestamp();
        let stored_at = versions.list().unwrap()[0].stored_at;
        assert!((now - 60..=now).contains(&stored_at), "{stored_at}");
    }

    #[test]
    fn version_deleted_before_a_store_is_written_again() {
        let (_directory, versions) = store_with_old_version(b"# Rules\n");
        let listed = versions.list().unwrap();
        let deletion = versions.lock_for_deletion().unwrap();
        assert!(deletion.delete(&listed[0]).unwrap());
        // Another process may have deleted it, too.
        assert!(deletion.delete(&listed[0]).unwrap());
        drop(deletion);
        let digest = (&versions as &dyn Versions).store(b"# Rules\n").unwrap();
        assert_eq!(*versions.read_version(digest).unwrap(), b"# Rules\n");
    }

    #[test]
    fn store_waits_for_a_deletion_of_old_versions() {
        let (_directory, versions) = store_with_old_version(b"# Rules\n");
        let listed = versions.list().unwrap();
        let deletion = versions.lock_for_deletion().unwrap();
        std::thread::scope(|scope| {
            let store = scope.spawn(|| (&versions as &dyn Versions).store(b"# Rules\n"));
            // The store has found the version, or finds it gone.
            while !store.is_finished() && !is_waiting(&versions) {
                std::thread::yield_now();
            }
            assert!(deletion.delete(&listed[0]).unwrap());
            drop(deletion);
            let digest = store.join().unwrap().unwrap();
            assert!(versions.location(digest).exists());
        });
    }

    /// Whether this process has opened the lock file twice: a store waits for it.
    fn is_waiting(versions: &FileVersions) -> bool {
        let path = versions.lock_path();
        let files = std::fs::read_dir("/proc/self/fd").unwrap();
        let paths = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        paths.filter(|it| *it == path).count() == 2
    }

    #[test]
    fn other_files_are_no_versions() {
        let (_directory, versions) = store_with_old_version(b"# Rules\n");
        let directory = versions.archive.program_path(VERSION_DIRECTORY_NAME);
        std::fs::write(directory.join("notes.md"), "x").unwrap();
        let other = Digest::of(b"other");
        std::os::unix::fs::symlink("notes.md", versions.location(other)).unwrap();
        let listed: Vec<Digest> = versions
            .list()
            .unwrap()
            .into_iter()
            .map(|it| it.digest)
            .collect();
        assert_eq!(listed, [Digest::of(b"# Rules\n")]);
    }
}
