//! Loads the operator's preferences again when they change.

use std::path::Path;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::config_reload::wait_for_settled_digest;
use crate::base::clock::Clock;
use crate::console::message::Msg;
use crate::console::preferences::{self, LoadedPreferences};

/// Time between two reads of the file. It is small, and its directory need not exist, so that reading
/// it costs less than a watch.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Sends the preferences whenever they change from `last_loaded`. Returns when they change after the
/// receiver was dropped.
pub(super) fn watch_preferences(
    path: &Path,
    mut last_loaded: LoadedPreferences,
    clock: &dyn Clock,
    messages: &Sender<Msg>,
) {
    loop {
        if preferences::load(path) != last_loaded {
            wait_for_settled_digest(clock, path);
            last_loaded = preferences::load(path);
            let message = match last_loaded.clone() {
                (preferences, problems) if problems.is_empty() => {
                    Msg::PreferencesLoaded(Box::new(preferences))
                }
                (_, problems) => Msg::PreferencesInvalid(problems),
            };
            if messages.send(message).is_err() {
                return;
            }
        }
        clock.sleep(POLL_INTERVAL);
    }
}
