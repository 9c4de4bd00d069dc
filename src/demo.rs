//! The example fleet: fourteen agents of an invented service, one in every state
//! that a local agent can be in and two on a host, with two days of history behind
//! them and three agents that keep writing. What `memory-shepherd demo` shows, what the
//! screenshots are made of, and what tests of whole fleets run on.
//!
//! Nothing is staged where the real thing can be had: the history is made of
//! runs of the engine with a clock that is set back, the seal is broken by
//! changing a file, the busy agent's lock is a lock.

pub mod host;
mod people;
mod writers;

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, FixedOffset, Timelike};
use tempfile::TempDir;

use crate::baseline::seal;
use crate::clock::{self, Clock};
use crate::config::{self, Env};
use crate::digest::Digest;
use crate::engine::{Engine, Held, Setup, Trigger, UndoMode, UndoTarget};
use crate::error::{Error, Kind, PathContext, Result};
use crate::transport::local::Local;
use crate::transport::sftp::Everywhere;
use host::{Abilities, Host};
use people::{BASELINES, CONFIG, PARTS, Part, REMOTE, notes};
pub use writers::Writers;

/// The most agents that a demo is made with.
pub const MOST: usize = 1000;

/// How long the writing agents pause between two notes.
const PAUSE: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(5);

/// The host's folder.
const HOST: &str = "harbour";

/// Minutes since the fleet was set up.
const SET_UP: i64 = 52 * 60;

/// An example fleet on the disk. Its folder goes with it if it is a temporary
/// one, and so does the lock that makes one of its agents BUSY.
pub struct Demo {
    // In this order: the lock is a file in the folder, and so is what the host has.
    _busy: Option<Held>,
    host: Arc<Host>,
    folder: PathBuf,
    config: Lasting,
    _temporary: Option<TempDir>,
}

/// The config, which outlasts the host: when this is dropped, it becomes one whose
/// agents are all on this machine.
struct Lasting(PathBuf);

impl Drop for Lasting {
    fn drop(&mut self) {
        let Ok(mut text) = fs::read_to_string(&self.0) else {
            return;
        };
        for name in REMOTE {
            let remote = format!("remote_host={HOST}\nremote_memory=~/{name}/MEMORY.md\n");
            let local = format!("memory_file=./{HOST}/{name}/MEMORY.md\n");
            text = text.replace(&remote, &local);
        }
        // Nobody is left to be told.
        let _ = fs::write(&self.0, text);
    }
}

/// Makes the example fleet in `dir`, which must be empty or not exist, with
/// `agents` of them instead of fourteen. Its history ends at the time of `clock`.
///
/// # Errors
/// A folder that is not empty, or what the system answered.
pub fn build(dir: &Path, agents: Option<usize>, clock: &dyn Clock) -> Result<Demo> {
    fs::create_dir_all(dir).path("make the directory", dir)?;
    // The engine follows no links, so the folder has to have its real name.
    let dir = fs::canonicalize(dir).path("find", dir)?;
    if fs::read_dir(&dir).path("list", &dir)?.next().is_some() {
        let message = format!("the directory {} is not empty", dir.display());
        return Err(Error::new(Kind::User, message)
            .hint("name one that is empty or does not exist yet; nothing was changed"));
    }
    let home = dir.join(HOST);
    fs::create_dir(&home).path("make the directory", &home)?;
    let site = Site {
        now: clock.now(),
        host: Arc::new(Host::start(&home, Abilities::ALL)?),
        dir,
    };
    site.lay_out(agents.unwrap_or(PARTS.len()))?;
    site.live_through_two_days()?;
    site.come_to_today()?;
    let busy = PARTS.iter().find(|(_, part)| *part == Part::Busy);
    let engine = site.engine(clock.now(), Trigger::Timer, "timer")?.1;
    let busy = busy.map(|(name, _)| engine.hold(name)).transpose()?;
    Ok(Demo {
        _busy: busy,
        config: Lasting(site.config()),
        host: site.host,
        folder: site.dir,
        _temporary: None,
    })
}

/// The same in a new folder below `place`, which goes when the demo is dropped.
///
/// # Errors
/// What the system answered.
pub fn build_temporary(place: &Path, agents: Option<usize>, clock: &dyn Clock) -> Result<Demo> {
    let mut builder = tempfile::Builder::new();
    builder.permissions(fs::Permissions::from_mode(0o700));
    let temporary = builder.prefix("memory-shepherd-demo-").tempdir_in(place);
    let temporary = temporary.path("make a directory in", place)?;
    let demo = build(temporary.path(), agents, clock)?;
    Ok(Demo {
        _temporary: Some(temporary),
        ..demo
    })
}

impl Demo {
    /// Where everything of it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its config.
    pub fn config(&self) -> &Path {
        &self.config.0
    }

    /// The host that some of its agents are on.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Three agents begin to append a note every few seconds, until the result is
    /// dropped.
    pub fn start_writers(&self) -> Writers {
        self.start_writers_every(PAUSE)
    }

    /// The same with other pauses.
    pub fn start_writers_every(&self, pause: Range<Duration>) -> Writers {
        let writing = PARTS.iter().filter(|(_, part)| *part == Part::Writes);
        let agents = writing.map(|(name, _)| (memory(&self.folder, name), notes(name)));
        Writers::start(agents.collect(), pause)
    }
}

/// Where an agent's memory is on this machine's disk, which the host serves, too.
fn memory(dir: &Path, agent: &str) -> PathBuf {
    let place = match REMOTE.contains(&agent) {
        true => HOST,
        false => "agents",
    };
    dir.join(place).join(agent).join("MEMORY.md")
}

/// A clock that stands still until it is set, so that the past can be lived
/// through.
struct Past(Mutex<DateTime<FixedOffset>>);

impl Past {
    fn set(&self, time: DateTime<FixedOffset>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }
}

impl Clock for Past {
    fn now(&self) -> DateTime<FixedOffset> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instant(&self) -> Instant {
        clock::System.instant()
    }

    fn sleep(&self, duration: Duration) {
        clock::System.sleep(duration);
    }
}

/// The fleet while it is made.
struct Site {
    dir: PathBuf,
    host: Arc<Host>,
    now: DateTime<FixedOffset>,
}

impl Site {
    fn config(&self) -> PathBuf {
        self.dir.join("memory-shepherd.conf")
    }

    /// Writes a file that was last changed so many minutes ago.
    fn write(&self, path: &Path, bytes: &[u8], minutes_ago: i64) -> Result<()> {
        fs::write(path, bytes).path("write", path)?;
        let time = self.now - chrono::Duration::minutes(minutes_ago);
        let file = File::options().write(true).open(path);
        file.and_then(|file| file.set_modified(SystemTime::from(time)))
            .path("set the time of", path)
    }

    /// Config, baselines, seal, and the agents' folders.
    fn lay_out(&self, agents: usize) -> Result<()> {
        let mut config = CONFIG.to_string();
        let mut clones = Vec::new();
        for number in PARTS.len() + 1..=agents.min(MOST) {
            let name = format!("android-{number}");
            // Clones do without the baseline that is going to be tampered with.
            let models = PARTS.iter().filter(|(_, part)| *part != Part::Tampered);
            let Some((model, _)) = models.cycle().nth(number) else {
                continue;
            };
            config.push_str(&format!(
                "\n[{name}]\nmemory_file=./agents/{name}/MEMORY.md\nbaseline={model}-MEMORY.md\n"
            ));
            clones.push((number, name, *model));
        }
        self.write(&self.config(), config.as_bytes(), SET_UP)?;
        let baselines = self.dir.join("baselines");
        fs::create_dir(&baselines).path("make the directory", &baselines)?;
        let mut sealed = String::new();
        for (name, text) in BASELINES {
            let file = format!("{name}-MEMORY.md");
            self.write(&baselines.join(&file), text.as_bytes(), SET_UP)?;
            sealed.push_str(&format!("{}  {file}\n", Digest::of(text.as_bytes())));
        }
        self.write(&baselines.join(seal::FILE), sealed.as_bytes(), SET_UP)?;
        let clone_names = clones.iter().map(|(_, name, _)| name.as_str());
        for name in PARTS.iter().map(|(name, _)| *name).chain(clone_names) {
            let memory = memory(&self.dir, name);
            let folder = memory.parent().unwrap_or(&self.dir);
            fs::create_dir_all(folder).path("make the directory", folder)?;
        }
        for (number, name, model) in clones {
            let mut text = people::baseline(model).to_string();
            if number % 5 > 0 {
                text.push_str(&people::scratch(&notes(model), number, number % 7 + 1));
            }
            let minutes_ago = 1 + (number * 37 % 2400) as i64;
            self.write(&memory(&self.dir, &name), text.as_bytes(), minutes_ago)?;
        }
        Ok(())
    }

    /// An engine at some time of the past.
    fn engine(
        &self,
        time: DateTime<FixedOffset>,
        trigger: Trigger,
        user: &str,
    ) -> Result<(Arc<Past>, Engine)> {
        let env = Env {
            cwd: self.dir.clone(),
            home: None,
            xdg_config_home: None,
            xdg_state_home: None,
            config_variable: None,
            uid: 0,
        };
        let clock = Arc::new(Past(Mutex::new(time)));
        let config = config::load(&self.config(), &env)?;
        let here = Arc::new(Local::new(clock.clone()));
        let engine = Engine::new(Setup {
            config,
            transports: Arc::new(Everywhere::new(here, self.host.clone(), clock.clone())),
            clock: clock.clone(),
            user: user.to_string(),
            trigger,
            archive_group: None,
        });
        Ok((clock, engine))
    }

    /// The history: the fleet is set up, a timer resets it, an operator takes
    /// one reset back, and so on until three hours ago.
    fn live_through_two_days(&self) -> Result<()> {
        let hour = self.now.with_minute(0).and_then(|now| now.with_second(0));
        let hour = hour
            .and_then(|now| now.with_nanosecond(0))
            .unwrap_or(self.now);
        let ago = |hours, seconds| {
            hour - chrono::Duration::hours(hours) + chrono::Duration::seconds(seconds)
        };
        let everybody: Vec<String> = PARTS.iter().map(|(name, _)| name.to_string()).collect();
        // A timer has no right to unlock the one that is read-only.
        let unlocked = PARTS.iter().filter(|(_, part)| *part != Part::Clean);
        let fleet: Vec<String> = unlocked.map(|(name, _)| name.to_string()).collect();
        let (console_clock, console) = self.engine(ago(51, 754), Trigger::Console, "ops")?;
        let (timer_clock, timer) = self.engine(ago(50, 6), Trigger::Timer, "timer")?;

        let plan = console.plan_reset(&everybody, true)?;
        went_well(&console, &plan)?;

        self.notes_of(&fleet, 1)?;
        timer_clock.set(ago(27, 6));
        went_well(&timer, &timer.plan_reset(&fleet, false)?)?;

        // "I still needed that", says the researcher's operator.
        console_clock.set(ago(26, 1290));
        let target = UndoTarget::Agents(vec!["researcher".to_string()]);
        went_well(
            &console,
            &console.plan_undo(&target, UndoMode::Refuse, false)?,
        )?;

        let (night, day) = fleet.split_at(fleet.len() / 2);
        self.notes_of(day, 2)?;
        timer_clock.set(ago(3, 6));
        went_well(&timer, &timer.plan_reset(day, false)?)?;
        self.notes_of(night, 3)?;
        timer_clock.set(ago(2, 6));
        went_well(&timer, &timer.plan_reset(night, false)?)
    }

    /// These agents write what they write in a day.
    fn notes_of(&self, agents: &[String], day: usize) -> Result<()> {
        for (number, agent) in agents.iter().enumerate() {
            let path = memory(&self.dir, agent);
            let mut text = fs::read(&path).path("read", &path)?;
            let some = people::scratch(&notes(agent), number + 3 * day, 2 + (number + day) % 4);
            text.extend_from_slice(some.as_bytes());
            fs::write(&path, text).path("write", &path)?;
        }
        Ok(())
    }

    /// Every agent takes the state that it is there for.
    fn come_to_today(&self) -> Result<()> {
        for (number, (name, part)) in PARTS.iter().enumerate() {
            let path = memory(&self.dir, name);
            let pristine = people::baseline(name);
            let notes = notes(name);
            let some = people::scratch(&notes, number, 3 + number % 3);
            let text = match part {
                Part::Clean => pristine.to_string(),
                Part::Missing => {
                    fs::remove_file(&path).path("remove", &path)?;
                    continue;
                }
                Part::Folder => {
                    fs::remove_file(&path).path("remove", &path)?;
                    fs::create_dir(&path).path("make the directory", &path)?;
                    continue;
                }
                Part::Drifted => people::with_edited_rules(pristine) + &some,
                Part::Hidden => people::with_hidden_characters(pristine) + &some,
                Part::NoBoundary => people::session_log(&notes),
                Part::Oversize => {
                    let mut text = pristine.to_string();
                    for round in 0.. {
                        if text.len() > 40_000 {
                            break;
                        }
                        text.push_str(&people::scratch(&notes, round, notes.len()));
                    }
                    text
                }
                Part::Tampered | Part::Busy | Part::Scratch | Part::Writes => {
                    pristine.to_string() + &some
                }
            };
            self.write(&path, text.as_bytes(), 4 + 7 * number as i64)?;
        }
        for (name, _) in PARTS.iter().filter(|(_, part)| *part == Part::Tampered) {
            let path = self.dir.join("baselines").join(format!("{name}-MEMORY.md"));
            let text = people::with_edited_rules(people::baseline(name));
            self.write(&path, text.as_bytes(), 65)?;
        }
        Ok(())
    }
}

/// Applies a plan of the history, in which nothing may fail.
fn went_well(engine: &Engine, plan: &crate::engine::Plan) -> Result<()> {
    let report = engine.apply(plan, false, &AtomicBool::new(false), &mut |_| {});
    match report.results.iter().find(|result| result.kind.is_some()) {
        None => Ok(()),
        Some(result) => {
            let why = result.note.as_deref().unwrap_or("for a reason unknown");
            let message = format!(
                "the example fleet could not be made: {}: {why}",
                result.agent
            );
            Err(Error::new(Kind::Internal, message))
        }
    }
}
