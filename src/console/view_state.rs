//! How the fleet was looked at, kept for the next time: a file of the user's, one
//! section for each fleet. It is only a convenience, so nothing fails because of it.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::fs::Mode;
use toml::{Table, Value};

use super::model::{MessageLevel, SortOrder, ViewState};
use super::update::Msg;
use crate::clock::Clock;
use crate::config::ConfigEnvironment;
use crate::durable;
use crate::error::{Error, ErrorKind, PathContext, Result};

/// How long a change waits for the next one.
const SAVE_DELAY: Duration = Duration::from_secs(1);

/// The file, and the fleet whose section it is about.
#[derive(Clone, Debug)]
pub struct ViewStateFile {
    path: PathBuf,
    fleet_key: String,
}

impl ViewStateFile {
    /// Where the view of a fleet is kept; a fleet is known by its config.
    pub fn new(env: &ConfigEnvironment, config: &Path) -> Option<ViewStateFile> {
        Some(ViewStateFile {
            path: env.state_directory()?.join("view.toml"),
            fleet_key: config.display().to_string(),
        })
    }

    /// What was kept; none if nothing was.
    ///
    /// # Errors
    /// A file that cannot be read or is broken.
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

    /// Keeps a view in place of the one before. Those of other fleets stay.
    fn write(&self, view: &ViewState, clock: &dyn Clock) -> Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(directory).with_path("make", directory)?;
        // Another console may be about to write the view of its fleet.
        let path = self.path.with_extension("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600);
        let lock = durable::open_own_file(&path, &mut options).with_path("open", &path)?;
        durable::wait_for_lock(&lock, &path, clock)?;
        let mut all = match self.read_table() {
            // A broken file has nothing that could be lost.
            Err(error) if error.kind() == ErrorKind::Config => Table::new(),
            all => all?,
        };
        let mut own = Table::new();
        own.insert("sort".to_string(), view.sort_order.label().into());
        own.insert("reverse".to_string(), view.is_reversed.into());
        own.insert("filter".to_string(), view.filter.as_str().into());
        all.insert(self.fleet_key.clone(), own.into());
        durable::replace_file(
            &self.path,
            all.to_string().as_bytes(),
            Mode::RUSR | Mode::WUSR,
        )
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
            Error::new(ErrorKind::Config, format!("{file} is broken: {why}"))
        })
    }
}

/// Keeps views in a thread of its own: the last one, once it has settled.
pub struct ViewStateWriter {
    view_states: Sender<ViewState>,
    thread: JoinHandle<()>,
}

impl ViewStateWriter {
    /// Starts it.
    pub fn start(
        place: ViewStateFile,
        clock: Arc<dyn Clock>,
        messages: Sender<Msg>,
    ) -> ViewStateWriter {
        let (views, wanted) = unbounded();
        ViewStateWriter {
            view_states: views,
            thread: thread::spawn(move || keep(&place, &*clock, &wanted, &messages)),
        }
    }

    /// Keeps this one.
    pub fn save(&self, view: ViewState) {
        drop(self.view_states.send(view));
    }

    /// Keeps what is still to be kept, and ends.
    pub fn shut_down(self) {
        drop(self.view_states);
        // It has nothing to say any more.
        let _ = self.thread.join();
    }
}

fn keep(
    file: &ViewStateFile,
    clock: &dyn Clock,
    view_states: &Receiver<ViewState>,
    messages: &Sender<Msg>,
) {
    let mut told = false;
    for first in view_states {
        let mut view = first;
        while let Ok(newer) = view_states.recv_timeout(SAVE_DELAY) {
            view = newer;
        }
        if let Err(error) = file.write(&view, clock)
            && !told
        {
            told = true;
            // The screen may be gone, or have no time: it is only a convenience.
            let _ = messages.try_send(Msg::Reported(MessageLevel::Warn, not_saved_message(&error)));
        }
    }
}

/// That it is not kept how the fleet is looked at, and why.
pub fn not_saved_message(error: &Error) -> String {
    format!("order and filter are not kept for the next time: {error}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::clock::SystemClock;

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
                        // Nobody wrote what was there before this back.
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
        let keeper = ViewStateWriter::start(place.clone(), Arc::new(SystemClock), messages.clone());
        for filter in ["a", "ab", "abc"] {
            keeper.save(view_with_filter(filter));
        }
        keeper.shut_down();
        assert_eq!(place.read().unwrap(), Some(view_with_filter("abc")));
        // A directory that cannot be made: that is told once.
        std::fs::write(directory.path().join("file"), "").unwrap();
        let bad = ViewStateFile {
            path: directory.path().join("file/view.toml"),
            ..place
        };
        let keeper = ViewStateWriter::start(bad, Arc::new(SystemClock), messages);
        keeper.save(view_with_filter("a"));
        keeper.shut_down();
        assert!(
            matches!(told.try_recv(), Ok(Msg::Reported(MessageLevel::Warn, text)) if text.contains("not kept"))
        );
    }
}
