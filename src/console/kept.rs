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

use super::model::{FleetView, MessageLevel, Sort};
use super::update::Msg;
use crate::clock::Clock;
use crate::config::Env;
use crate::durable;
use crate::error::{Error, Kind, PathContext, Result};

/// How long a change waits for the next one.
const SAVE_DELAY: Duration = Duration::from_secs(1);

/// The file, and the fleet whose section it is about.
#[derive(Clone, Debug)]
pub struct ViewStateFile {
    file: PathBuf,
    fleet: String,
}

impl ViewStateFile {
    /// Where the view of a fleet is kept; a fleet is known by its config.
    pub fn new(env: &Env, config: &Path) -> Option<ViewStateFile> {
        Some(ViewStateFile {
            file: env.state_folder()?.join("view.toml"),
            fleet: config.display().to_string(),
        })
    }

    /// What was kept; none if nothing was.
    ///
    /// # Errors
    /// A file that cannot be read or is broken.
    pub fn read(&self) -> Result<Option<FleetView>> {
        let all = self.all()?;
        let Some(view) = all.get(&self.fleet) else {
            return Ok(None);
        };
        let text = |name| view.get(name).and_then(Value::as_str).unwrap_or_default();
        let sort = Sort::ALL.into_iter().find(|it| it.word() == text("sort"));
        Ok(Some(FleetView {
            sort: sort.unwrap_or_default(),
            reverse: view.get("reverse").and_then(Value::as_bool) == Some(true),
            filter: text("filter").chars().filter(|c| !c.is_control()).collect(),
        }))
    }

    /// Keeps a view in place of the one before. Those of other fleets stay.
    fn write(&self, view: &FleetView, clock: &dyn Clock) -> Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).path("make", folder)?;
        // Another console may be about to write the view of its fleet.
        let path = self.file.with_extension("lock");
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600);
        let lock = durable::open_own(&path, &mut options).path("open", &path)?;
        durable::lock(&lock, &path, clock)?;
        let mut all = match self.all() {
            // A broken file has nothing that could be lost.
            Err(error) if error.kind() == Kind::Config => Table::new(),
            all => all?,
        };
        let mut own = Table::new();
        own.insert("sort".to_string(), view.sort.word().into());
        own.insert("reverse".to_string(), view.reverse.into());
        own.insert("filter".to_string(), view.filter.as_str().into());
        all.insert(self.fleet.clone(), own.into());
        durable::replace(
            &self.file,
            all.to_string().as_bytes(),
            Mode::RUSR | Mode::WUSR,
        )
    }

    fn all(&self) -> Result<Table> {
        let bytes = match durable::read_own(&self.file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Table::new()),
            Err(error) => return Err(Error::io("read", &self.file, &error)),
        };
        let text = String::from_utf8_lossy(&bytes);
        text.parse().map_err(|error: toml::de::Error| {
            let (file, why) = (self.file.display(), error.message());
            Error::new(Kind::Config, format!("{file} is broken: {why}"))
        })
    }
}

/// Keeps views in a thread of its own: the last one, once it has settled.
pub struct ViewStateWriter {
    views: Sender<FleetView>,
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
            views,
            thread: thread::spawn(move || keep(&place, &*clock, &wanted, &messages)),
        }
    }

    /// Keeps this one.
    pub fn keep(&self, view: FleetView) {
        drop(self.views.send(view));
    }

    /// Keeps what is still to be kept, and ends.
    pub fn end(self) {
        drop(self.views);
        // It has nothing to say any more.
        let _ = self.thread.join();
    }
}

fn keep(
    place: &ViewStateFile,
    clock: &dyn Clock,
    wanted: &Receiver<FleetView>,
    messages: &Sender<Msg>,
) {
    let mut told = false;
    for first in wanted {
        let mut view = first;
        while let Ok(newer) = wanted.recv_timeout(SAVE_DELAY) {
            view = newer;
        }
        if let Err(error) = place.write(&view, clock)
            && !told
        {
            told = true;
            // The screen may be gone, or have no time: it is only a convenience.
            let _ = messages.try_send(Msg::Note(MessageLevel::Warn, forgotten(&error)));
        }
    }
}

/// That it is not kept how the fleet is looked at, and why.
pub fn forgotten(error: &Error) -> String {
    format!("order and filter are not kept for the next time: {error}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::clock::System;

    fn place(folder: &Path, config: &str) -> ViewStateFile {
        ViewStateFile {
            file: folder.join("state/memory-shepherd/view.toml"),
            fleet: config.to_string(),
        }
    }

    fn view(filter: &str) -> FleetView {
        FleetView {
            sort: Sort::LastRun,
            reverse: true,
            filter: filter.to_string(),
        }
    }

    #[test]
    fn each_fleet_has_a_view_of_its_own_that_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (
            place(folder.path(), "/a.conf"),
            place(folder.path(), "/b \"c\".conf"),
        );
        assert_eq!(one.read().unwrap(), None);
        one.write(&view("is:drifted !\"test\""), &System).unwrap();
        two.write(&FleetView::default(), &System).unwrap();
        assert_eq!(one.read().unwrap(), Some(view("is:drifted !\"test\"")));
        assert_eq!(two.read().unwrap(), Some(FleetView::default()));
        let mode = std::fs::metadata(&one.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn many_who_write_at_once_lose_no_view() {
        let folder = tempfile::tempdir().unwrap();
        let places: Vec<ViewStateFile> = (0..8)
            .map(|number| place(folder.path(), &format!("/{number}.conf")))
            .collect();
        thread::scope(|scope| {
            for place in &places {
                scope.spawn(|| {
                    for _ in 0..8 {
                        place.write(&view(&place.fleet), &System).unwrap();
                        // Nobody wrote what was there before this back.
                        assert_eq!(place.read().unwrap(), Some(view(&place.fleet)));
                    }
                });
            }
        });
        for place in &places {
            assert_eq!(place.read().unwrap(), Some(view(&place.fleet)));
        }
    }

    #[test]
    fn a_broken_file_is_told_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "/a.conf");
        place.write(&view("x"), &System).unwrap();
        for broken in [
            "[",
            "\"/a.conf\" = 7",
            "[\"/a.conf\"]\nsort = \"no\"\nfilter = 3\nreverse = 1",
        ] {
            std::fs::write(&place.file, broken).unwrap();
            let read = place.read();
            assert!(matches!(&read, Err(_) | Ok(Some(_))), "{read:?}");
            if let Ok(Some(read)) = read {
                assert_eq!(read, FleetView::default());
            }
            place.write(&view("y"), &System).unwrap();
            assert_eq!(place.read().unwrap(), Some(view("y")));
        }
    }

    #[test]
    fn the_last_of_several_is_kept_and_the_end_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = place(folder.path(), "/a.conf");
        let (messages, told) = unbounded();
        let keeper = ViewStateWriter::start(place.clone(), Arc::new(System), messages.clone());
        for filter in ["a", "ab", "abc"] {
            keeper.keep(view(filter));
        }
        keeper.end();
        assert_eq!(place.read().unwrap(), Some(view("abc")));
        // A folder that cannot be made: that is told once.
        std::fs::write(folder.path().join("file"), "").unwrap();
        let bad = ViewStateFile {
            file: folder.path().join("file/view.toml"),
            ..place
        };
        let keeper = ViewStateWriter::start(bad, Arc::new(System), messages);
        keeper.keep(view("a"));
        keeper.end();
        assert!(
            matches!(told.try_recv(), Ok(Msg::Note(MessageLevel::Warn, text)) if text.contains("not kept"))
        );
    }
}
