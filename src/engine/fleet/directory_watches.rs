//! The watches on the directories of a fleet.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::thread;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::change_scopes::change_scopes;
use super::{FleetEvent, UNWATCHED_SWEEP_INTERVAL, WatchLoop};
use crate::durable;
use crate::engine::Engine;

/// Maximum number of directories that are watched per turn after the first read.
const MAX_WATCHES_PER_TURN: usize = 256;

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

/// Returns the directories of the memories of this machine.
pub(super) fn memory_directories(engine: &Engine) -> HashSet<PathBuf> {
    let agents = engine.local_agents().into_iter();
    let directories = agents.filter_map(|agent| agent.location.memory().parent());
    directories.map(Path::to_path_buf).collect()
}

impl WatchLoop {
    /// Watches exactly those of the directories that exist.
    pub(super) fn watch_existing_directories(&mut self, existing: &HashSet<PathBuf>) {
        self.watched_directories
            .retain(|path| existing.contains(path));
        let new = existing
            .iter()
            .filter(|path| !self.watched_directories.contains(*path));
        for path in new.cloned().collect::<Vec<_>>() {
            self.watch_directory(&path);
        }
    }

    /// Watches a directory that may be new; returns whether it was not watched before. A directory
    /// on a file system that may hang waits for the next sweep: nothing probes it here.
    pub(super) fn rewatch_directory(&mut self, path: &Path) -> bool {
        let is_trusted = self.engine.file_systems().find_untrusted(path).is_none();
        !self.watched_directories.contains(path)
            && is_trusted
            && self.is_directory(path)
            && self.watch_directory(path)
    }

    pub(super) fn watch_directory(&mut self, path: &Path) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        match watcher.watch(path, RecursiveMode::NonRecursive) {
            Ok(()) => self.watched_directories.insert(path.to_path_buf()),
            Err(error) => {
                if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) {
                    self.stop_watching(&error);
                }
                false
            }
        }
    }

    /// A symlink in an agent's directory may lead to a file system that hangs.
    pub(super) fn is_directory(&self, path: &Path) -> bool {
        if self.memory_directories.contains(path) {
            durable::is_directory_no_symlinks(path)
        } else {
            path.is_dir()
        }
    }

    /// The directories on file systems that never hang.
    pub(super) fn trusted_directories(&self) -> Vec<PathBuf> {
        let systems = self
            .engine
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
            self.change_scopes = change_scopes(&self.engine);
            self.directories_to_watch = self.trusted_directories();
        }
        let rest = self.directories_to_watch.len();
        let some = rest.saturating_sub(MAX_WATCHES_PER_TURN);
        for path in self.directories_to_watch.split_off(some) {
            if !self.watched_directories.contains(&path) && self.is_directory(&path) {
                self.watch_directory(&path);
            }
        }
        if self.directories_to_watch.is_empty() {
            self.start_sweep();
            self.jobs.add(-1);
        }
    }

    pub(super) fn stop_watching(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.is_unwatched, true) {
            let soon = self.engine.clock().instant() + UNWATCHED_SWEEP_INTERVAL;
            self.next_sweep = self.next_sweep.map(|next| next.min(soon));
            let seconds = UNWATCHED_SWEEP_INTERVAL.as_secs();
            let note =
                format!("cannot watch directories ({error}); checking every {seconds} s instead");
            // If the receiver is gone, the loop ends by itself.
            let _ = self.events.send(FleetEvent::Notice(note));
        }
    }
}
