//! The watches on the directories of a fleet.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::change_scopes::{ChangeTarget, change_scopes};
use super::{FleetEvent, UNWATCHED_SWEEP_INTERVAL, WatchLoop};
use crate::base::durable;
use crate::base::error::ErrorKind;
use crate::engine::Observation;
use crate::engine::watch::Watch;

/// Maximum number of directories that are watched per turn after the first read.
const MAX_WATCHES_PER_TURN: usize = 256;

/// Directories with their inode numbers: where another directory took the place of one, it has another
/// number.
pub(super) type DirectoryInodes = HashMap<PathBuf, u64>;

/// Starts a watcher of directories that calls `handler`. The notify crate panics later if the
/// system refuses its thread, so this tries one first.
pub fn start_directory_watcher(
    handler: impl notify::EventHandler,
) -> notify::Result<RecommendedWatcher> {
    thread::Builder::new()
        .spawn(|| {})
        .map_err(notify::Error::io)?;
    notify::recommended_watcher(handler)
}

/// Describes an error of a watcher: for a limit of the kernel, its name and the command that raises it.
/// The system's own texts name a full disk, or the open files of the process.
pub fn describe_watch_error(error: &notify::Error) -> String {
    let limit = match &error.kind {
        notify::ErrorKind::MaxFilesWatch => Some("fs.inotify.max_user_watches"),
        // The files of the process may be the limit as well.
        notify::ErrorKind::Io(error)
            if error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
                && File::open("/dev/null").is_ok() =>
        {
            Some("fs.inotify.max_user_instances")
        }
        _ => None,
    };
    match limit {
        Some(limit) => format!(
            "{limit} is reached by the programs of this user; `sysctl {limit}` shows it, and \
             `sysctl -w {limit}=NUMBER` as root raises it"
        ),
        None => error.to_string(),
    }
}

/// Returns the directories of the memories of this machine.
pub(super) fn memory_directories(watch: &Watch) -> HashSet<PathBuf> {
    let agents = watch.context.local_agents().into_iter();
    let directories = agents.filter_map(|agent| agent.observed_path().parent());
    directories.map(Path::to_path_buf).collect()
}

/// Returns the inode number of a directory, with symlinks followed; none if the path is not one.
pub(super) fn target_directory_inode(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    metadata.is_dir().then(|| metadata.ino())
}

/// The same of a directory without symlinks in its path.
fn directory_inode_no_symlinks(path: &Path) -> Option<u64> {
    let stat = durable::stat_no_symlinks(path).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::Directory).then_some(stat.st_ino)
}

impl WatchLoop {
    /// Watches exactly those of the directories that exist. Returns those that were not watched before.
    pub(super) fn watch_existing_directories(
        &mut self,
        existing: &DirectoryInodes,
    ) -> Vec<PathBuf> {
        self.forget_replaced_directories(existing);
        let mut new: Vec<PathBuf> = Vec::new();
        for (path, inode) in existing {
            if !self.watched_directories.contains_key(path) && self.watch_directory(path, *inode) {
                new.push(path.clone());
            }
        }
        new
    }

    /// Ends the watches on directories that are no longer at their paths. The kernel reports only a
    /// move of the watched directory itself, not that of one above it.
    fn forget_replaced_directories(&mut self, existing: &DirectoryInodes) {
        let watcher = &mut self.watcher;
        self.watched_directories.retain(|path, watched| {
            let found = existing.get(path);
            if found.is_some_and(|inode| inode != watched)
                && let Some(watcher) = watcher
            {
                // The watch may have ended by itself.
                let _ = watcher.unwatch(path);
            }
            found == Some(watched)
        });
    }

    /// Watches a directory that may be new; returns whether it was not watched before. A directory
    /// on a file system that may hang waits for the next sweep: nothing probes it here.
    pub(super) fn rewatch_directory(&mut self, path: &Path) -> bool {
        let is_trusted = self
            .watch
            .context
            .file_systems()
            .find_untrusted(path)
            .is_none();
        if self.watched_directories.contains_key(path) || !is_trusted {
            return false;
        }
        let inode = self.directory_inode(path);
        inode.is_some_and(|inode| self.watch_directory(path, inode))
    }

    /// Makes sure that the release of a lock is reported: the directory of the locks may be as new as
    /// the lock, and not watched yet.
    pub(super) fn watch_lock(&mut self, observation: &Observation, now: Instant) {
        let block = observation.blocker.as_ref();
        // Where directories are not watched yet, a sweep follows.
        if block.is_none_or(|block| block.kind != ErrorKind::Busy) || self.change_scopes.is_empty()
        {
            return;
        }
        let lock = self.watch.context.leases().watched_path(&observation.agent);
        let locks = lock.parent();
        if locks.is_some_and(|locks| self.rewatch_directory(locks)) {
            self.schedule_read(observation.agent.clone(), now);
        }
    }

    /// Schedules reads of the agents whose memories are in a directory.
    pub(super) fn schedule_reads_of_directory(&mut self, path: &Path, now: Instant) {
        let names = self.change_scopes.get(path).into_iter();
        let targets = names.flat_map(|names| names.values().flatten());
        let agents = targets.filter_map(|target| match target {
            ChangeTarget::Agent(name) => Some(name.clone()),
            _ => None,
        });
        self.schedule_reads(agents.collect(), now);
    }

    /// Watches a directory that had this inode number before; returns whether it was not watched.
    fn watch_directory(&mut self, path: &Path, inode: u64) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        match watcher.watch(path, RecursiveMode::NonRecursive) {
            Ok(()) => {
                let before = self.watched_directories.insert(path.to_path_buf(), inode);
                before.is_none()
            }
            Err(error) => {
                if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) {
                    self.stop_watching(&error);
                }
                false
            }
        }
    }

    /// Returns the inode number of a directory; none if there is none. A symlink in an agent's
    /// directory may lead to a file system that hangs.
    pub(super) fn directory_inode(&self, path: &Path) -> Option<u64> {
        if self.memory_directories.contains(path) {
            directory_inode_no_symlinks(path)
        } else {
            target_directory_inode(path)
        }
    }

    /// The directories on file systems that never hang.
    pub(super) fn trusted_directories(&self) -> Vec<PathBuf> {
        let systems = self
            .watch
            .context
            .file_systems()
            .find_untrusted_all(self.change_scopes.keys());
        let directories = self.change_scopes.keys().zip(systems);
        let trusted = directories.filter(|(_, system)| system.is_none());
        trusted.map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn has_directories_to_watch(&self) -> bool {
        let is_unknown = self.change_scopes.is_empty();
        self.is_fleet_read && (is_unknown || !self.directories_to_watch.is_empty())
    }

    /// Watches more of the directories after the first read, whose job ends with the last of them. The
    /// sweep that follows also finds out which of the others exist.
    pub(super) fn watch_some_directories(&mut self) {
        if self.change_scopes.is_empty() {
            self.change_scopes = change_scopes(&self.watch.context);
            self.directories_to_watch = self.trusted_directories();
        }
        let rest = self.directories_to_watch.len();
        let some = rest.saturating_sub(MAX_WATCHES_PER_TURN);
        for path in self.directories_to_watch.split_off(some) {
            if !self.watched_directories.contains_key(&path)
                && let Some(inode) = self.directory_inode(&path)
            {
                self.watch_directory(&path, inode);
            }
        }
        if self.directories_to_watch.is_empty() {
            self.start_sweep();
            self.jobs.add(-1);
        }
    }

    pub(super) fn stop_watching(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.is_unwatched, true) {
            let soon = self.watch.context.clock().instant() + UNWATCHED_SWEEP_INTERVAL;
            self.next_sweep = self.next_sweep.map(|next| next.min(soon));
            let seconds = UNWATCHED_SWEEP_INTERVAL.as_secs();
            let error = describe_watch_error(error);
            let note =
                format!("cannot watch directories ({error}); checking every {seconds} s instead");
            // If the receiver is gone, the loop ends by itself.
            let _ = self.events.send(FleetEvent::Notice(note));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn watch_error_names_the_limit_of_the_kernel() {
        let io_error = |errno: Errno| notify::Error::io(io::Error::from(errno));
        let watches = notify::Error::new(notify::ErrorKind::MaxFilesWatch);
        for (error, limit) in [
            (watches, "fs.inotify.max_user_watches"),
            (io_error(Errno::MFILE), "fs.inotify.max_user_instances"),
        ] {
            let text = describe_watch_error(&error);
            assert!(text.contains(&format!("sysctl -w {limit}=")), "{text}");
        }
        let text = describe_watch_error(&io_error(Errno::NFILE));
        assert!(!text.contains("inotify"), "{text}");
    }
}
