//! Syncs of files and directories to the disk, grouped by file system.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, FileType};

use crate::base::error::{Error, PathContext, Result};
use crate::base::file_systems::{FileSystem, GroupedByFileSystem};
use crate::base::sys;

/// An open file or directory with changes that may not be on the disk yet.
#[derive(Clone)]
pub struct UnsyncedObject {
    object: Arc<dyn AsFd + Send + Sync>,
    path: PathBuf,
    /// The file system whose calls may hang; None for a trusted one.
    file_system: Option<Arc<FileSystem>>,
}

impl UnsyncedObject {
    /// Wraps the file or directory that `object` has open; `path` is for messages.
    pub fn new(object: Arc<dyn AsFd + Send + Sync>, path: &Path) -> UnsyncedObject {
        UnsyncedObject {
            object,
            path: path.to_path_buf(),
            file_system: None,
        }
    }

    /// Marks it as being on a file system that may hang; its sync then fails after the time limit.
    #[must_use]
    pub fn with_file_system(self, system: &Arc<FileSystem>) -> UnsyncedObject {
        UnsyncedObject {
            file_system: Some(Arc::clone(system)),
            ..self
        }
    }

    /// Syncs it to the disk.
    pub fn sync(&self) -> Result<()> {
        match &self.file_system {
            None => fs::fsync(&*self.object).with_path("sync", &self.path),
            Some(_) => sync_all([self.clone()]),
        }
    }
}

/// How many files of one file system are synced one by one. Larger groups are synced by one
/// `syncfs` call: it may write data of other processes too, but it commits the journal and flushes
/// the disk's cache once instead of once per file.
const MAX_SINGLE_SYNCS: usize = 8;

/// Whether syncfs(2) is reliable on a file system of this type. FUSE, for instance, may report
/// success without asking its server.
fn is_syncfs_reliable(kind: i64) -> bool {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    const F2FS: i64 = 0xf2f5_2010;
    const TMPFS: i64 = 0x0102_1994;
    [EXT4, XFS, BTRFS, F2FS, TMPFS].contains(&kind)
}

/// A change, with the number of the agent that it belongs to.
type OwnedChange = (usize, UnsyncedObject);

/// The changes of many agents that must be on the disk before a run continues.
#[derive(Default)]
pub struct SyncBatch {
    /// Each with the number of its agent.
    changes: Vec<OwnedChange>,
}

impl SyncBatch {
    /// Adds the changes of the agent with the number `owner`.
    pub fn add(&mut self, owner: usize, changed: impl IntoIterator<Item = UnsyncedObject>) {
        let changed = changed.into_iter();
        self.changes
            .extend(changed.map(|unsynced| (owner, unsynced)));
    }

    /// Syncs all changes, and returns the numbers of the agents whose sync failed, with the errors.
    pub fn sync(self) -> Vec<(usize, Error)> {
        let mut groups = GroupedByFileSystem::default();
        for (owner, unsynced) in self.changes {
            groups.add(unsynced.file_system.clone(), (owner, unsynced));
        }
        let mut failed = sync_grouped(groups.trusted);
        for (system, pending) in groups.untrusted {
            let owners: Vec<usize> = pending.iter().map(|(owner, _)| *owner).collect();
            match system.call(move || sync_grouped(pending)) {
                Ok(errors) => failed.extend(errors),
                Err(error) => {
                    failed.extend(owners.into_iter().map(|owner| (owner, error.clone())));
                }
            }
        }
        failed
    }
}

struct PendingSync {
    /// The number of the agent that it belongs to.
    owner: usize,
    /// The device number of its file system.
    device: u64,
    /// A directory has no pages of its own whose writeback could fail: its names are in the
    /// journal, whose errors a sync of any file reports.
    is_directory: bool,
    unsynced: UnsyncedObject,
}

/// Syncs files and directories, many on one file system in one call, and returns the numbers of the
/// agents whose sync failed, with the errors.
fn sync_grouped(all: Vec<OwnedChange>) -> Vec<(usize, Error)> {
    let (mut pending, mut failed) = (Vec::with_capacity(all.len()), Vec::new());
    for (owner, unsynced) in all {
        match fs::fstat(&*unsynced.object).with_path("stat", &unsynced.path) {
            Ok(stat) => pending.push(PendingSync {
                owner,
                device: stat.st_dev,
                is_directory: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
                unsynced,
            }),
            Err(error) => failed.push((owner, error)),
        }
    }
    pending.sort_by_key(|pending| pending.device);
    for group in pending.chunk_by(|a, b| a.device == b.device) {
        let any = &*group[0].unsynced.object;
        let use_syncfs = group.len() > MAX_SINGLE_SYNCS
            && fs::fstatfs(any).is_ok_and(|system| is_syncfs_reliable(system.f_type));
        // Old kernels do not report a failed journal commit from syncfs, but they do from fsync of
        // one file.
        let group_outcome = use_syncfs.then(|| fs::syncfs(any).and_then(|()| fs::fsync(any)));
        for pending in group {
            let UnsyncedObject { object, path, .. } = &pending.unsynced;
            let synced = match group_outcome {
                None => fs::fsync(&**object),
                Some(whole) if pending.is_directory => whole,
                // Before 5.8, syncfs does not report failed writeback of contents either.
                Some(whole) => whole.and_then(|()| sys::wait_for_writeback(object.as_fd())),
            };
            let error = synced.with_path("sync", path).err();
            failed.extend(error.map(|error| (pending.owner, error)));
        }
    }
    failed
}

/// Syncs files and directories.
///
/// # Errors
/// The first error, which is final.
pub fn sync_all(changed: impl IntoIterator<Item = UnsyncedObject>) -> Result<()> {
    let mut flush = SyncBatch::default();
    flush.add(0, changed);
    match flush.sync().into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
