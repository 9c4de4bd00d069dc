//! Baseline versions: the bytes of every baseline that was pushed, sealed or replaced, by digest, in
//! `<archive_dir>/.shepherd/baselines/`. Retention deletes those that no undo needs any more.
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
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{self, AtFlags, FileType};
use rustix::io::Errno;

use super::cache_limit::is_full;
use crate::archive::{Archive, PROGRAM_DIRECTORY_NAME};
use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::base::durable::{self, NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::sys;

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
pub struct BaselineVersions {
    archive: Archive,
    clock: Arc<dyn Clock>,
    cached_versions: Mutex<HashMap<Digest, Arc<Vec<u8>>>>,
}

/// A version on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// Digest of its bytes, by its name.
    pub digest: Digest,
    /// Size in bytes.
    pub size: u64,
    /// Bytes that it takes on the disk.
    pub disk_bytes: u64,
    /// Time of the last store, in seconds since 1970.
    pub stored_at: i64,
    inode: u64,
}

/// Keeps other processes from relying on stored versions, until it is dropped.
pub struct DeletionLock {
    file: File,
}

impl Drop for DeletionLock {
    fn drop(&mut self) {
        // A close is not enough: a child process that another thread is just starting has a copy of
        // the descriptor until it executes its program.
        sys::unlock(self.file.as_fd());
    }
}

impl BaselineVersions {
    /// Creates the store in `archive`.
    pub fn new(archive: &Archive, clock: Arc<dyn Clock>) -> BaselineVersions {
        BaselineVersions {
            archive: archive.clone(),
            clock,
            cached_versions: Mutex::default(),
        }
    }

    /// Path of a version, whether or not it is stored.
    pub fn version_path(&self, digest: Digest) -> PathBuf {
        self.archive
            .program_path(VERSION_DIRECTORY_NAME)
            .join(format!("{digest}{VERSION_EXTENSION}"))
    }

    /// Starts to store a version; none when it is already stored.
    ///
    /// # Errors
    /// The system's error.
    pub fn start_version(&self, digest: Digest, bytes: &[u8]) -> Result<Option<VersionDraft>> {
        if self.claim_stored(digest, bytes)? {
            return Ok(None);
        }
        let path = self.archive.program_path(VERSION_DIRECTORY_NAME);
        let directory = Path::new(PROGRAM_DIRECTORY_NAME).join(VERSION_DIRECTORY_NAME);
        let directory = Arc::new(self.archive.open_or_create_directory(&directory)?);
        let mut file = NewFile::create(&directory, &path, self.archive.file_mode())?;
        self.archive.repair_program_file(file.file(), &path)?;
        file.write(bytes)?;
        let bytes = Arc::new(bytes.to_vec());
        Ok(Some(VersionDraft {
            digest,
            bytes,
            file,
        }))
    }

    /// Stores a version, unless it is stored, and returns its digest. It is on the disk when this
    /// returns.
    ///
    /// # Errors
    /// The system's error.
    pub fn store(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        if let Some(draft) = self.start_version(digest, bytes)? {
            draft.unsynced_content().sync()?;
            self.assign_name(draft)?;
        }
        durable::sync_all(self.open_unsynced(digest)?)?;
        Ok(digest)
    }

    /// Returns whether a version is on the disk byte for byte; then retention keeps it for as long as
    /// a version that is stored now.
    fn claim_stored(&self, digest: Digest, bytes: &[u8]) -> Result<bool> {
        let Some(file) = self.open_equal(digest, bytes) else {
            return Ok(false);
        };
        let path = self.version_path(digest);
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
        let path = self.version_path(digest);
        let file = durable::open_own_file(&path, OpenOptions::new().read(true)).ok()?;
        let mut kept = Vec::with_capacity(bytes.len() + 1);
        let read = (&file).take(bytes.len() as u64 + 1).read_to_end(&mut kept);
        (read.is_ok() && kept == bytes).then_some(file)
    }

    /// Gives a version its name; its content must be on the disk. The name is on the disk once
    /// [`BaselineVersions::open_unsynced`] is synced.
    ///
    /// # Errors
    /// The system's error.
    pub fn assign_name(&self, mut draft: VersionDraft) -> Result<()> {
        let path = self.version_path(draft.digest);
        if draft.file.link_as(path.file_name().unwrap_or_default())? {
            self.cache_version(draft.digest, draft.bytes);
        } else if !self.is_stored(draft.digest, &draft.bytes) {
            // The stored one is damaged; otherwise another run has stored the same bytes.
            self.archive.replace_program_file(&path, &draft.bytes)?;
        }
        Ok(())
    }

    /// Opens the file of a stored version and its directory, to be synced before a record relies on
    /// them.
    ///
    /// # Errors
    /// The system's error.
    pub fn open_unsynced(&self, version: Digest) -> Result<[UnsyncedObject; 2]> {
        let directory = Path::new(PROGRAM_DIRECTORY_NAME).join(VERSION_DIRECTORY_NAME);
        let name = format!("{version}{VERSION_EXTENSION}");
        self.archive.open_unsynced(&directory.join(name))
    }

    /// Lists the stored versions. Skips other names, and everything but regular files.
    ///
    /// # Errors
    /// The system's error. A directory that does not exist holds none.
    pub fn list(&self) -> Result<Vec<StoredVersion>> {
        let path = self.archive.program_path(VERSION_DIRECTORY_NAME);
        let directory = match durable::open_directory_errno(&path) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(|errno| durable::open_directory_error(errno, &path))?,
        };
        let mut versions = Vec::new();
        for item in fs::Dir::read_from(&directory).with_path("list", &path)? {
            let item = item.with_path("list", &path)?;
            let name = item.file_name();
            let digest = str::from_utf8(name.to_bytes()).ok();
            let digest = digest.and_then(|name| name.strip_suffix(VERSION_EXTENSION)?.parse().ok());
            let Some(digest) = digest else {
                continue;
            };
            match fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                stat => versions.extend(stored_version(digest, &stat.with_path("stat", &path)?)),
            }
        }
        Ok(versions)
    }

    /// Notes that retention has checked the versions now. A failure only costs another check.
    pub fn note_check(&self) {
        let now = SystemTime::from(self.clock.now());
        let noted = self.open_lock_file().and_then(|file| {
            let noted = file.write_all_at(CHECK_MARK, 0);
            noted
                .and_then(|()| file.set_modified(now))
                .with_path("write to", &self.lock_path())
        });
        if let Err(error) = noted {
            tracing::debug!("cannot note the check of the baseline versions: {error}");
        }
    }

    /// Returns the time of the last check by retention, in seconds since 1970; `None` if there was
    /// none. It is the time of the lock file, unless that is empty.
    pub fn last_check(&self) -> Option<i64> {
        let lock = std::fs::symlink_metadata(self.lock_path()).ok()?;
        (lock.len() > 0).then(|| lock.mtime())
    }

    /// Keeps other processes from relying on stored versions.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when another process holds the lock for ten seconds, otherwise the
    /// system's error.
    pub fn lock_for_deletion(&self) -> Result<DeletionLock> {
        let file = self.open_lock_file()?;
        durable::wait_for_lock(&file, &self.lock_path(), self.clock.as_ref())?;
        Ok(DeletionLock { file })
    }

    fn open_lock_file(&self) -> Result<File> {
        let directory = Path::new(PROGRAM_DIRECTORY_NAME).join("locks");
        self.archive.open_or_create_directory(&directory)?;
        let path = self.lock_path();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        durable::open_own_file(&path, options.mode(0o600)).with_path("open the lock", &path)
    }

    fn lock_path(&self) -> PathBuf {
        self.archive.program_path("locks").join(LOCK_FILE_NAME)
    }

    /// Deletes a listed version, unless it was stored again since it was listed. Returns whether it
    /// is gone.
    ///
    /// # Errors
    /// The system's error.
    pub fn delete(&self, version: &StoredVersion, _lock: &DeletionLock) -> Result<bool> {
        let path = self.archive.program_path(VERSION_DIRECTORY_NAME);
        let directory = durable::open_directory(&path);
        // Behind the open: what is opened now is in the directory that this finds.
        self.archive.check_root()?;
        let directory = directory?;
        let name = format!("{}{VERSION_EXTENSION}", version.digest);
        let stat = match fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(true),
            stat => stat.with_path("stat", &path.join(&name))?,
        };
        let now = stored_version(version.digest, &stat);
        if now.is_none_or(|now| (now.inode, now.stored_at) != (version.inode, version.stored_at)) {
            return Ok(false);
        }
        fs::unlinkat(&directory, &name, AtFlags::empty()).with_path("delete", &path.join(&name))?;
        let mut known = self
            .cached_versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.remove(&version.digest);
        Ok(true)
    }

    /// Reads the bytes of a version.
    ///
    /// # Errors
    /// It is not stored, cannot be read, or does not match its digest.
    pub fn read_version(&self, digest: Digest) -> Result<Arc<Vec<u8>>> {
        let known = self
            .cached_versions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&digest) {
            return Ok(Arc::clone(bytes));
        }
        drop(known);
        let path = self.version_path(digest);
        let bytes = durable::read_own_file(&path).with_path("read the baseline version", &path)?;
        if Digest::of(&bytes) != digest {
            let message = format!("the baseline version {} is damaged", path.display());
            return Err(Error::new(ErrorKind::Integrity, message));
        }
        Ok(self.cache_version(digest, Arc::new(bytes)))
    }

    /// Returns an error if a version is stored, or may be, and cannot be read.
    ///
    /// # Errors
    /// The system's error; not that the version is not stored.
    pub fn check_unread_version(&self, digest: Digest) -> Result<()> {
        let path = self.version_path(digest);
        match durable::read_own_file(&path) {
            Err(error) if durable::is_absent(&error) => Ok(()),
            read => read.with_path("read the baseline version", &path).map(drop),
        }
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

/// Returns the version that a file is; none if it is not a regular file.
fn stored_version(digest: Digest, stat: &fs::Stat) -> Option<StoredVersion> {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then(|| StoredVersion {
        digest,
        size: stat.st_size as u64,
        disk_bytes: stat.st_blocks as u64 * 512,
        stored_at: stat.st_mtime,
        inode: stat.st_ino,
    })
}

/// A version that has no name yet.
pub struct VersionDraft {
    digest: Digest,
    bytes: Arc<Vec<u8>>,
    file: NewFile,
}

impl VersionDraft {
    /// The content, to be synced before it gets its name.
    pub fn unsynced_content(&self) -> UnsyncedObject {
        self.file.unsynced_content()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    /// A store with one version of ten days ago.
    fn store_with_old_version(bytes: &[u8]) -> (tempfile::TempDir, BaselineVersions) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let archive = Archive::new(&root, 0o600, None);
        let versions = BaselineVersions::new(&archive, Arc::new(SystemClock));
        let digest = versions.store(bytes).unwrap();
        let file = File::options()
            .write(true)
            .open(versions.version_path(digest));
        let past = SystemTime::from(SystemClock.now()) - MIN_USE_INTERVAL * 10;
        file.unwrap().set_modified(past).unwrap();
        (directory, versions)
    }

    #[test]
    fn version_stored_again_since_listing_is_not_deleted() {
        let (_directory, versions) = store_with_old_version(b"# Rules\n");
        let listed = versions.list().unwrap();
        let digest = versions.store(b"# Rules\n").unwrap();
        let lock = versions.lock_for_deletion().unwrap();
        assert!(!versions.delete(&listed[0], &lock).unwrap());
        assert!(versions.version_path(digest).exists());
        let now = SystemClock.now().timestamp();
        let stored_at = versions.list().unwrap()[0].stored_at;
        assert!((now - 60..=now).contains(&stored_at), "{stored_at}");
    }

    #[test]
    fn version_deleted_before_a_store_is_written_again() {
        let (_directory, versions) = store_with_old_version(b"# Rules\n");
        let listed = versions.list().unwrap();
        let lock = versions.lock_for_deletion().unwrap();
        assert!(versions.delete(&listed[0], &lock).unwrap());
        // Another process may have deleted it, too.
        assert!(versions.delete(&listed[0], &lock).unwrap());
        drop(lock);
        let digest = versions.store(b"# Rules\n").unwrap();
        assert_eq!(*versions.read_version(digest).unwrap(), b"# Rules\n");
    }

    #[test]
    fn store_waits_for_a_deletion_of_old_versions() {
        let (_directory, versions) = store_with_old_version(b"# Rules\n");
        let listed = versions.list().unwrap();
        let lock = versions.lock_for_deletion().unwrap();
        std::thread::scope(|scope| {
            let store = scope.spawn(|| versions.store(b"# Rules\n"));
            // The store has found the version, or finds it gone.
            while !store.is_finished() && !is_waiting(&versions) {
                std::thread::yield_now();
            }
            assert!(versions.delete(&listed[0], &lock).unwrap());
            drop(lock);
            let digest = store.join().unwrap().unwrap();
            assert!(versions.version_path(digest).exists());
        });
    }

    /// Whether this process has opened the lock file twice: a store waits for it.
    fn is_waiting(versions: &BaselineVersions) -> bool {
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
        std::os::unix::fs::symlink("notes.md", versions.version_path(other)).unwrap();
        let listed: Vec<Digest> = versions
            .list()
            .unwrap()
            .into_iter()
            .map(|it| it.digest)
            .collect();
        assert_eq!(listed, [Digest::of(b"# Rules\n")]);
    }
}
