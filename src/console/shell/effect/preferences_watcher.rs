//! Watches the operator's preferences and loads them again when they change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::config_reload::wait_for_settled_digest;
use crate::base::clock::Clock;
use crate::console::message::Msg;
use crate::console::preferences::{self, LoadedPreferences};
use crate::engine::start_directory_watcher;

/// Time between two reads of the file where its directory cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Loads the preferences after each change and sends them if they differ from the last ones,
/// `last_loaded` at first. Returns when the main thread has ended.
pub(super) fn watch_preferences(
    path: &Path,
    mut last_loaded: LoadedPreferences,
    clock: &dyn Clock,
    messages: &Sender<Msg>,
) {
    let (event_sender, events) = unbounded();
    let watcher_sender = event_sender.clone();
    let watcher = start_directory_watcher(move |event: notify::Result<notify::Event>| {
        // Loading the file causes access events.
        if event.map_or(true, |event| !event.kind.is_access()) {
            let _ = watcher_sender.send(());
        }
    });
    let mut watched = WatchedDirectories {
        watcher: watcher.ok(),
        directories: BTreeSet::new(),
    };
    // The file may have changed before the watch.
    let _ = event_sender.send(());
    let mut is_watching = true;
    loop {
        wait_for_change(&events, is_watching);
        wait_for_settled_digest(clock, path);
        // One load serves all events so far.
        events.try_iter().for_each(drop);
        // The directory may be new. Events from here on are queued for the next turn.
        is_watching = watched.watch_directories_of(path);
        let loaded = preferences::load(path);
        if loaded == last_loaded {
            continue;
        }
        last_loaded = loaded.clone();
        let message = match loaded {
            (preferences, problems) if problems.is_empty() => {
                Msg::PreferencesLoaded(Box::new(preferences))
            }
            (_, problems) => Msg::PreferencesInvalid(problems),
        };
        if messages.send(message).is_err() {
            return;
        }
    }
}

/// Waits for an event, or for [`POLL_INTERVAL`] where there are none.
fn wait_for_change(events: &Receiver<()>, is_watching: bool) {
    let _ = if is_watching {
        events.recv().ok()
    } else {
        events.recv_timeout(POLL_INTERVAL).ok()
    };
}

/// The watched directories. Editors replace a file, so its directory is watched instead.
struct WatchedDirectories {
    watcher: Option<RecommendedWatcher>,
    directories: BTreeSet<PathBuf>,
}

impl WatchedDirectories {
    /// Watches the directories of a file; returns false if that is not possible.
    fn watch_directories_of(&mut self, path: &Path) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        let mut wanted = directories_to_watch(path);
        loop {
            for directory in self.directories.difference(&wanted) {
                // Fails for a removed directory, whose watch has ended.
                let _ = watcher.unwatch(directory);
            }
            // Watched ones too: another directory may have the name now.
            let mut each = wanted.iter();
            let all = each.all(|it| watcher.watch(it, RecursiveMode::NonRecursive).is_ok());
            self.directories = wanted;
            // A directory created before its parent was watched has caused no event.
            wanted = directories_to_watch(path);
            if !all || wanted == self.directories {
                return all;
            }
        }
    }
}

/// Returns the nearest existing directory above a file, and above the target of its symlink.
fn directories_to_watch(path: &Path) -> BTreeSet<PathBuf> {
    let nearest_directory = |path: &Path| {
        let mut above = path.ancestors().skip(1);
        above
            .find(|directory| directory.is_dir())
            .map(Path::to_path_buf)
    };
    let real = path.canonicalize().ok();
    let paths = [Some(path), real.as_deref()].into_iter().flatten();
    paths.filter_map(nearest_directory).collect()
}
