//! Notices that the operator's preferences were changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::config_reload::wait_for_settled_digest;
use crate::clock::Clock;
use crate::console::preferences::{self, LoadedPreferences};
use crate::console::update::Msg;

/// How often the file is looked at where nothing tells of changes.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the preferences whenever they were changed, for as long as somebody
/// listens. What they said at first is known.
pub(super) fn watch_preferences(
    path: &Path,
    mut last_loaded: LoadedPreferences,
    clock: &dyn Clock,
    messages: &Sender<Msg>,
) {
    let (out, events) = unbounded();
    let told = out.clone();
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading it is no news.
        if event.map_or(true, |event| !event.kind.is_access()) {
            let _ = told.send(());
        }
    });
    let mut watched = WatchedDirectories {
        watcher: watcher.ok(),
        directories: BTreeSet::new(),
    };
    // What changed before anybody watched counts, too.
    let _ = out.send(());
    let mut is_watching = true;
    loop {
        wait_for_change(&events, is_watching);
        wait_for_settled_digest(clock, path);
        // A change is looked at once, however many events it has.
        events.try_iter().for_each(drop);
        // The directory may have come only now. What happens from here on is told.
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

/// Waits for an event, or for a while where none can come.
fn wait_for_change(events: &Receiver<()>, is_watching: bool) {
    let _ = match is_watching {
        true => events.recv().ok(),
        false => events.recv_timeout(POLL_INTERVAL).ok(),
    };
}

/// Directories that are watched: editors put a new file in the place of the old one.
struct WatchedDirectories {
    watcher: Option<RecommendedWatcher>,
    directories: BTreeSet<PathBuf>,
}

impl WatchedDirectories {
    /// Watches the directory of a file, or the one in which that would be made, and the
    /// one of the file that a link leads to. False where that is not possible.
    fn watch_directories_of(&mut self, path: &Path) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        let mut wanted = directories_to_watch(path);
        loop {
            for directory in self.directories.difference(&wanted) {
                // One that has gone is not watched any more.
                let _ = watcher.unwatch(directory);
            }
            // Again for those that are known: another may stand at the name.
            let mut each = wanted.iter();
            let all = each.all(|it| watcher.watch(it, RecursiveMode::NonRecursive).is_ok());
            self.directories = wanted;
            // One that was made meanwhile was told to nobody.
            wanted = directories_to_watch(path);
            if !all || wanted == self.directories {
                return all;
            }
        }
    }
}

/// Where something has to happen for a file to become another.
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
