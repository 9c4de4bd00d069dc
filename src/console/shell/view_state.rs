//! Saved view of the fleet (sort order and filter) in `view.toml` of the user's state
//! directory, one section per fleet. Reads it at start and writes it in a thread of its own.
//! The file is a convenience: an error is reported once and fails nothing.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::fs::Mode;
use toml::{Table, Value};

use crate::console::screens::fleet::sort_order::SortOrder;
use crate::console::screens::fleet::state::ViewState;

use crate::base::clock::Clock;
use crate::base::durable::{self, OperatorDirectory, ReplacedFile};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::config::ConfigEnvironment;
use crate::console::message::Msg;
use crate::console::screens::log::state::MessageLevel;

/// Delay before a change is written, so that a burst of changes is written once.
const SAVE_DELAY: Duration = Duration::from_secs(1);

/// The file, and the section of one fleet in it.
#[derive(Clone, Debug)]
pub struct ViewStateFile {
    path: PathBuf,
    fleet_key: String,
}

impl ViewStateFile {
    /// Returns the location of a fleet's view, keyed by the path of its config; `None` without
    /// a state directory.
    pub fn new(env: &ConfigEnvironment, config: &Path) -> Option<ViewStateFile> {
        Some(ViewStateFile {
            path: env.state_directory()?.join("view.toml"),
            fleet_key: config.display().to_string(),
        })
    }

    /// Reads the saved view, if any.
    ///
    /// # Errors
    /// The file cannot be read or is not valid TOML.
    pub fn read(&self) -> Result<Option<ViewState>> {
        let all = self.read_table()?;
        let Some(view) = all.get(&self.fleet_key) else {
            return Ok(None);
        };
        let text = |name| view.get(name).and_then(Value::as_str).unwrap_or_default();
        let sort = SortOrder::ALL
            .into_iter()
            .find(|it| it.label() == text("sort"));
        Ok(Some(ViewState {
            sort_order: sort.unwrap_or_default(),
            is_reversed: view.get("reverse").and_then(Value::as_bool) == Some(true),
            filter: text("filter").chars().filter(|c| !c.is_control()).collect(),
        }))
    }

    /// Replaces the saved view of this fleet and preserves those of other fleets.
    fn write(&self, view: &ViewState, clock: &dyn Clock) -> Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let directory = OperatorDirectory::open_or_create(directory, Mode::RWXU)?;
        let name = self.path.file_name().unwrap_or_default();
        // Another console may write the view of its fleet at the same time.
        let path = self.path.with_extension("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600);
        let lock = durable::open_own_file(&path, &mut options).with_path("open", &path)?;
        durable::wait_for_lock(&lock, &path, clock)?;
        let mut all = match self.read_table() {
            // A broken file has no views to preserve.
            Err(error) if error.kind() == ErrorKind::Config => Table::new(),
            all => all?,
        };
        let mut own = Table::new();
        own.insert("sort".to_string(), view.sort_order.label().into());
        own.insert("reverse".to_string(), view.is_reversed.into());
        own.insert("filter".to_string(), view.filter.as_str().into());
        all.insert(self.fleet_key.clone(), own.into());
        let (text, mode) = (all.to_string(), Mode::RUSR | Mode::WUSR);
        directory.replace_file(name, ReplacedFile::Any, text.as_bytes(), mode)?;
        directory.remove_leftovers([name]);
        Ok(())
    }

    fn read_table(&self) -> Result<Table> {
        let bytes = match durable::read_own_file(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Table::new()),
            Err(error) => return Err(Error::from_io("read", &self.path, &error)),
        };
        let text = String::from_utf8_lossy(&bytes);
        text.parse().map_err(|error: toml::de::Error| {
            let (file, why) = (self.path.display(), error.message());
            Error::new(ErrorKind::Config, format!("cannot parse {file}: {why}"))
        })
    }
}

/// Thread that writes the latest view after `SAVE_DELAY` without another change.
pub struct ViewStateWriter {
    view_states: Sender<ViewState>,
    thread: JoinHandle<()>,
}

impl ViewStateWriter {
    /// Starts the thread; it reports its first error to `messages`.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub fn start(
        file: ViewStateFile,
        clock: Arc<dyn Clock>,
        messages: Sender<Msg>,
    ) -> Result<ViewStateWriter> {
        let (sender, view_states) = unbounded();
        let write = move || write_view_states(&file, &*clock, &view_states, &messages);
        let thread = thread::Builder::new().spawn(write);
        Ok(ViewStateWriter {
            view_states: sender,
            thread: thread.map_err(|error| Error::from_thread_start(&error))?,
        })
    }

    /// Queues a view to be written.
    pub fn save(&self, view: ViewState) {
        drop(self.view_states.send(view));
    }

    /// Writes the pending view and ends the thread.
    pub fn shut_down(self) {
        drop(self.view_states);
        // The thread reports its own errors.
        let _ = self.thread.join();
    }
}

fn write_view_states(
    file: &ViewStateFile,
    clock: &dyn Clock,
    view_states: &Receiver<ViewState>,
    messages: &Sender<Msg>,
) {
    let mut is_error_reported = false;
    for first in view_states {
        let mut view = first;
        while let Ok(newer) = view_states.recv_timeout(SAVE_DELAY) {
            view = newer;
        }
        if let Err(error) = file.write(&view, clock)
            && !is_error_reported
        {
            is_error_reported = true;
            // The console may be gone or its queue full; the view is only a convenience.
            let _ = messages.try_send(Msg::Reported(MessageLevel::Warn, not_saved_message(&error)));
        }
    }
}

/// Returns the message that the view is not saved, and why.
pub fn not_saved_message(error: &Error) -> String {
    format!("sort order and filter are not saved: {error}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::base::clock::SystemClock;

    fn place(directory: &Path, config: &str) -> ViewStateFile {
        ViewStateFile {
            path: directory.join("state/memory-shepherd/view.toml"),
            fleet_key: config.to_string(),
        }
    }

    fn view_with_filter(filter: &str) -> ViewState {
        ViewState {
            sort_order: SortOrder::LastRun,
            is_reversed: true,
            filter: filter.to_string(),
        }
    }

    #[test]
    fn each_fleet_has_its_own_saved_view() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (
            place(directory.path(), "/a.conf"),
            place(directory.path(), "/b \"c\".conf"),
        );
        assert_eq!(one.read().unwrap(), None);
        one.write(&view_with_filter("is:drifted !\"test\""), &SystemClock)
            .unwrap();
        two.write(&ViewState::default(), &SystemClock).unwrap();
        assert_eq!(
            one.read().unwrap(),
            Some(view_with_filter("is:drifted !\"test\""))
        );
        assert_eq!(two.read().unwrap(), Some(ViewState::default()));
        let mode = std::fs::metadata(&one.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn concurrent_writers_lose_no_view() {
        let directory = tempfile::tempdir().unwrap();
        let places: Vec<ViewStateFile> = (0..8)
            .map(|number| place(directory.path(), &format!("/{number}.conf")))
            .collect();
        thread::scope(|scope| {
            for place in &places {
                scope.spawn(|| {
                    for _ in 0..8 {
                        place
                            .write(&view_with_filter(&place.fleet_key), &SystemClock)
                            .unwrap();
                        // No other writer restored the content from before this write.
                        assert_eq!(
                            place.read().unwrap(),
                            Some(view_with_filter(&place.fleet_key))
                        );
                    }
                });
            }
        });
        for place in &places {
            assert_eq!(
                place.read().unwrap(),
                Some(view_with_filter(&place.fleet_key))
            );
        }
    }

    #[test]
    fn broken_view_file_is_reported_and_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path(), "/a.conf");
        place.write(&view_with_filter("x"), &SystemClock).unwrap();
        for broken in [
            "[",
            "\"/a.conf\" = 7",
            "[\"/a.conf\"]\nsort = \"no\"\nfilter = 3\nreverse = 1",
        ] {
            std::fs::write(&place.path, broken).unwrap();
            let read = place.read();
            assert!(matches!(&read, Err(_) | Ok(Some(_))), "{read:?}");
            if let Ok(Some(read)) = read {
                assert_eq!(read, ViewState::default());
            }
            place.write(&view_with_filter("y"), &SystemClock).unwrap();
            assert_eq!(place.read().unwrap(), Some(view_with_filter("y")));
        }
    }

    #[test]
    fn last_view_is_written_before_end_returns() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path(), "/a.conf");
        let (messages, told) = unbounded();
        let start =
            |file| ViewStateWriter::start(file, Arc::new(SystemClock), messages.clone()).unwrap();
        let keeper = start(place.clone());
        for filter in ["a", "ab", "abc"] {
            keeper.save(view_with_filter(filter));
        }
        keeper.shut_down();
        assert_eq!(place.read().unwrap(), Some(view_with_filter("abc")));
        // A directory that cannot be created is reported.
        std::fs::write(directory.path().join("file"), "").unwrap();
        let bad = ViewStateFile {
            path: directory.path().join("file/view.toml"),
            ..place
        };
        let keeper = start(bad);
        keeper.save(view_with_filter("a"));
        keeper.shut_down();
        assert!(
            matches!(told.try_recv(), Ok(Msg::Reported(MessageLevel::Warn, text)) if text.contains("not saved"))
        );
    }
}
