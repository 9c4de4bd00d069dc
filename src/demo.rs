//! The example fleet: fifteen agents of an invented service, one in every state that a local agent
//! can have and two on a host, with two days of history and three agents that keep writing.
//! `memory-shepherd demo`, the screenshots, and tests of whole fleets use it.
//!
//! States are real, not simulated: the history consists of runs of the engine with a clock that is
//! set back, a changed file breaks the seal, and a held lock makes the busy agent busy.

pub mod host;
mod sample_agents;
mod sample_entries;
mod writers;

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use chrono::{DateTime, FixedOffset, Timelike};
use rustix::fs::Mode;

use crate::base::clock::{self, Clock};
use crate::base::digest::Digest;
use crate::base::durable::OperatorDirectory;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::temporary::{PrivateDirectory, TemporaryRoot};
use crate::baseline::seal;
use crate::config::{self, Agent, ConfigEnvironment};
use crate::engine::{Engine, EngineSetup, Lease, Trigger, UndoMode, UndoTarget};
use crate::layouts::Layouts;
use crate::transport::local::LocalTransport;
use crate::transport::sftp::PerHostTransports;
use host::{DemoHost, SupportedExtensions};
use sample_agents::{AGENT_ROLES, AgentRole, BASELINES, DEMO_CONFIG, REMOTE_AGENTS, agent_notes};
use sample_entries::{ENTRIES, LAYOUT_AGENT};
pub use writers::NoteWriters;

/// Maximum number of agents of a demo.
pub const MAX_DEMO_AGENTS: usize = 1000;

/// Pause of the writing agents between two notes.
const WRITE_PAUSE: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(5);

/// Number of agents without clones.
const AGENT_COUNT: usize = AGENT_ROLES.len() + 1;

/// A drifted agent that no blocker protects: what a newcomer tries with it has an effect.
pub const INITIAL_AGENT: &str = "code-reviewer";

/// Name of the host, and of its directory.
const DEMO_HOST_NAME: &str = "harbour";

/// Age of the fleet in minutes.
const FLEET_AGE_MINUTES: i64 = 52 * 60;

/// An example fleet on the disk. Dropping it releases the lock that makes one of its agents BUSY,
/// and removes its directory if that is temporary.
pub struct Demo {
    // Drop order: the lock is a file in the directory, and so are the files of the host.
    _busy_lock: Option<Arc<dyn Lease>>,
    host: Arc<DemoHost>,
    directory: PathBuf,
    config_file: DetachableConfig,
    _temporary_directory: Option<TemporaryDirectory>,
}

/// A directory that is removed on drop. Threads of the console may still write into it then, so it
/// is tried for half a second.
struct TemporaryDirectory(PrivateDirectory);

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        for _ in 0..20 {
            match fs::remove_dir_all(self.0.path()) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    thread::sleep(Duration::from_millis(25));
                }
                _ => return, // A drop cannot report an error.
            }
        }
    }
}

/// The config, which outlasts the host: on drop, it is rewritten so that all agents are on this
/// machine.
struct DetachableConfig(PathBuf);

impl Drop for DetachableConfig {
    fn drop(&mut self) {
        let Ok(mut text) = fs::read_to_string(&self.0) else {
            return;
        };
        for name in REMOTE_AGENTS {
            let remote =
                format!("remote_host={DEMO_HOST_NAME}\nremote_memory=~/{name}/MEMORY.md\n");
            let local = format!("memory_file=./{DEMO_HOST_NAME}/{name}/MEMORY.md\n");
            text = text.replace(&remote, &local);
        }
        // A drop cannot report an error.
        let _ = write_file(&self.0, text.as_bytes());
    }
}

/// Writes a file that other users can neither read nor change. None of them can write the directory.
fn write_file(path: &Path, bytes: &[u8]) -> Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .with_path("write", path)?;
    file.write_all(bytes).with_path("write", path)?;
    Ok(file)
}

/// Creates a directory for this user alone, and its missing parents.
fn create_directory(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(path);
    made.with_path("create the directory", path)
}

/// Creates the example fleet in `dir`, which must not exist or be an empty directory that other users
/// cannot write, with `agents` of them instead of fifteen. Its history ends at the time of `clock`.
///
/// # Errors
/// The directory is another user's or not empty, or the system reports an error.
pub fn build_in(dir: &Path, agents: Option<usize>, clock: &dyn Clock) -> Result<Demo> {
    let directory = OperatorDirectory::open_or_create(dir, Mode::RWXU)?;
    directory.check_own_and_empty()?;
    // The engine follows no symlinks, so the path must be the real one.
    let dir = directory.path().to_path_buf();
    let home = dir.join(DEMO_HOST_NAME);
    create_directory(&home)?;
    let builder = DemoBuilder {
        now: clock.now(),
        host: Arc::new(DemoHost::start(&home, SupportedExtensions::ALL)?),
        dir,
    };
    builder.write_fleet_files(agents.unwrap_or(AGENT_COUNT))?;
    builder.write_entries()?;
    builder.run_history()?;
    builder.set_current_states()?;
    let busy_agent = AGENT_ROLES
        .iter()
        .find(|(_, part)| *part == AgentRole::Busy);
    let engine = builder.engine(clock.now(), Trigger::Timer, "timer")?.1;
    // What is known before the console starts is no news.
    let agents: Vec<&Agent> = engine.config().agents.iter().collect();
    engine.health().check_due(&agents);
    let busy = busy_agent
        .map(|(name, _)| engine.locks().hold_agent_lock(name))
        .transpose()?;
    Ok(Demo {
        _busy_lock: busy,
        config_file: DetachableConfig(builder.config_path()),
        host: builder.host,
        directory: builder.dir,
        _temporary_directory: None,
    })
}

/// Creates the example fleet in a new directory below `root`, which is removed when the demo is
/// dropped.
///
/// # Errors
/// As [`TemporaryRoot::create_directory`], or the system reports an error.
pub fn build_temporary(
    root: &TemporaryRoot,
    agents: Option<usize>,
    clock: &dyn Clock,
) -> Result<Demo> {
    let temporary = root.create_directory("memory-shepherd-demo-")?;
    let demo = build_in(temporary.path(), agents, clock)?;
    Ok(Demo {
        _temporary_directory: Some(TemporaryDirectory(temporary)),
        ..demo
    })
}

impl Demo {
    /// Returns the directory of the fleet.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of the config.
    pub fn config_path(&self) -> &Path {
        &self.config_file.0
    }

    /// Returns the host of its remote agents.
    pub fn host(&self) -> &Arc<DemoHost> {
        &self.host
    }

    /// Starts three agents that append a note every few seconds, until the result is dropped.
    pub fn start_writers(&self) -> NoteWriters {
        self.start_writers_with_pause(WRITE_PAUSE)
    }

    /// Starts the writing agents with other pauses.
    pub fn start_writers_with_pause(&self, pause: Range<Duration>) -> NoteWriters {
        let writing = AGENT_ROLES
            .iter()
            .filter(|(_, part)| *part == AgentRole::KeepsWriting);
        let agents =
            writing.map(|(name, _)| (memory_path(&self.directory, name), agent_notes(name)));
        NoteWriters::start(agents.collect(), pause)
    }
}

/// Returns the path of a memory on the disk of this machine, which the host serves too.
fn memory_path(dir: &Path, agent: &str) -> PathBuf {
    let parent = if REMOTE_AGENTS.contains(&agent) {
        DEMO_HOST_NAME
    } else {
        "agents"
    };
    dir.join(parent).join(agent).join("MEMORY.md")
}

/// A clock that shows a fixed time until it is set, for runs in the past.
struct SettableClock(Mutex<DateTime<FixedOffset>>);

impl SettableClock {
    fn set(&self, time: DateTime<FixedOffset>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }
}

impl Clock for SettableClock {
    fn now(&self) -> DateTime<FixedOffset> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instant(&self) -> Instant {
        clock::SystemClock.instant()
    }

    fn sleep(&self, duration: Duration) {
        clock::SystemClock.sleep(duration);
    }
}

/// Builder of the fleet.
struct DemoBuilder {
    dir: PathBuf,
    host: Arc<DemoHost>,
    now: DateTime<FixedOffset>,
}

impl DemoBuilder {
    fn config_path(&self) -> PathBuf {
        self.dir.join("memory-shepherd.conf")
    }

    /// Writes a file with a modification time `minutes_ago` minutes in the past.
    fn write_file_aged(&self, path: &Path, bytes: &[u8], minutes_ago: i64) -> Result<()> {
        let time = self.now - chrono::Duration::minutes(minutes_ago);
        write_file(path, bytes)?
            .set_modified(SystemTime::from(time))
            .with_path("set the modification time of", path)
    }

    /// Writes config, baselines, seal, and the directories of the agents.
    fn write_fleet_files(&self, agents: usize) -> Result<()> {
        let mut config = DEMO_CONFIG.to_string();
        let mut clones = Vec::new();
        for number in AGENT_COUNT + 1..=agents.min(MAX_DEMO_AGENTS) {
            let name = format!("android-{number}");
            // Clones do not use the baselines that are changed later.
            let models = AGENT_ROLES
                .iter()
                .filter(|(_, part)| !matches!(part, AgentRole::Tampered | AgentRole::Behind));
            let Some((model, _)) = models.cycle().nth(number) else {
                continue;
            };
            config.push_str(&format!(
                "\n[{name}]\nmemory_file=./agents/{name}/MEMORY.md\nbaseline={model}-MEMORY.md\n"
            ));
            clones.push((number, name, *model));
        }
        self.write_file_aged(&self.config_path(), config.as_bytes(), FLEET_AGE_MINUTES)?;
        let baselines = self.dir.join("baselines");
        create_directory(&baselines)?;
        let mut seal_text = String::new();
        for (name, text) in BASELINES {
            let file = format!("{name}-MEMORY.md");
            self.write_file_aged(&baselines.join(&file), text.as_bytes(), FLEET_AGE_MINUTES)?;
            seal_text.push_str(&format!("{}  {file}\n", Digest::of(text.as_bytes())));
        }
        self.write_file_aged(
            &baselines.join(seal::SEAL_FILE_NAME),
            seal_text.as_bytes(),
            FLEET_AGE_MINUTES,
        )?;
        let clone_names = clones.iter().map(|(_, name, _)| name.as_str());
        for name in AGENT_ROLES.iter().map(|(name, _)| *name).chain(clone_names) {
            let memory = memory_path(&self.dir, name);
            let directory = memory.parent().unwrap_or(&self.dir);
            create_directory(directory)?;
        }
        for (number, name, model) in clones {
            let mut text = sample_agents::agent_baseline(model).to_string();
            if number % 5 > 0 {
                text.push_str(&sample_agents::scratch_text(
                    &agent_notes(model),
                    number,
                    number % 7 + 1,
                ));
            }
            let minutes_ago = 1 + (number * 37 % 2400) as i64;
            self.write_file_aged(&memory_path(&self.dir, &name), text.as_bytes(), minutes_ago)?;
        }
        Ok(())
    }

    /// Writes the memory of several files.
    fn write_entries(&self) -> Result<()> {
        let root = self.dir.join("agents").join(LAYOUT_AGENT).join("memory");
        for (number, (path, text)) in ENTRIES.iter().enumerate() {
            let path = root.join(path);
            create_directory(path.parent().unwrap_or(&root))?;
            self.write_file_aged(&path, text.as_bytes(), 30 + 95 * number as i64)?;
        }
        Ok(())
    }

    /// Returns an engine at a time in the past, with its clock.
    fn engine(
        &self,
        time: DateTime<FixedOffset>,
        trigger: Trigger,
        user: &str,
    ) -> Result<(Arc<SettableClock>, Engine)> {
        let env = ConfigEnvironment {
            layouts: Layouts::BUILT_IN.config_keys(),
            ..ConfigEnvironment::bare(&self.dir)
        };
        let clock = Arc::new(SettableClock(Mutex::new(time)));
        let config = config::load(&self.config_path(), &env)?;
        let here = Arc::new(LocalTransport::new(clock.clone()));
        let engine = Engine::new(EngineSetup {
            config,
            transports: Arc::new(PerHostTransports::new(
                here,
                self.host.clone(),
                clock.clone(),
            )),
            clock: clock.clone(),
            user: user.to_string(),
            trigger,
            archive_group: None,
            layouts: Layouts::BUILT_IN,
        });
        Ok((clock, engine))
    }

    /// Runs the history: an operator sets up the fleet, a timer resets it, the operator undoes one
    /// reset, and so on until three hours ago.
    fn run_history(&self) -> Result<()> {
        let hour = self.now.with_minute(0).and_then(|now| now.with_second(0));
        let hour = hour
            .and_then(|now| now.with_nanosecond(0))
            .unwrap_or(self.now);
        let time_ago = |hours, seconds| {
            hour - chrono::Duration::hours(hours) + chrono::Duration::seconds(seconds)
        };
        let all_agents: Vec<String> = AGENT_ROLES
            .iter()
            .map(|(name, _)| name.to_string())
            .collect();
        // The read-only agent is excluded: a timer cannot unlock it.
        let unlocked = AGENT_ROLES
            .iter()
            .filter(|(_, part)| *part != AgentRole::Clean);
        let unlocked_agents: Vec<String> = unlocked.map(|(name, _)| name.to_string()).collect();
        let (console_clock, console) = self.engine(time_ago(51, 754), Trigger::Console, "ops")?;
        let (timer_clock, timer) = self.engine(time_ago(50, 6), Trigger::Timer, "timer")?;

        let plan = console.planner().plan_reset(&all_agents, true)?;
        apply_history_plan(&console, &plan)?;

        self.append_notes(&unlocked_agents, 1)?;
        timer_clock.set(time_ago(27, 6));
        apply_history_plan(
            &timer,
            &timer.planner().plan_reset(&unlocked_agents, false)?,
        )?;

        // The operator of the researcher needs its notes again.
        console_clock.set(time_ago(26, 1290));
        let target = UndoTarget::Agents(vec!["researcher".to_string()]);
        apply_history_plan(
            &console,
            &console
                .planner()
                .plan_undo(&target, UndoMode::Refuse, false)?,
        )?;

        let (night, day) = unlocked_agents.split_at(unlocked_agents.len() / 2);
        self.append_notes(day, 2)?;
        timer_clock.set(time_ago(3, 6));
        apply_history_plan(&timer, &timer.planner().plan_reset(day, false)?)?;
        self.append_notes(night, 3)?;
        timer_clock.set(time_ago(2, 6));
        apply_history_plan(&timer, &timer.planner().plan_reset(night, false)?)
    }

    /// Appends a day of notes to the memories of `agents`.
    fn append_notes(&self, agents: &[String], day: usize) -> Result<()> {
        for (number, agent) in agents.iter().enumerate() {
            let path = memory_path(&self.dir, agent);
            let mut text = fs::read(&path).with_path("read", &path)?;
            let scratch = sample_agents::scratch_text(
                &agent_notes(agent),
                number + 3 * day,
                2 + (number + day) % 4,
            );
            text.extend_from_slice(scratch.as_bytes());
            write_file(&path, &text)?;
        }
        Ok(())
    }

    /// Puts every agent into the state of its role.
    fn set_current_states(&self) -> Result<()> {
        for (number, (name, part)) in AGENT_ROLES.iter().enumerate() {
            let path = memory_path(&self.dir, name);
            let pristine = sample_agents::agent_baseline(name);
            let notes = agent_notes(name);
            let scratch = sample_agents::scratch_text(&notes, number, 3 + number % 3);
            let text = match part {
                AgentRole::Clean => pristine.to_string(),
                AgentRole::Missing => {
                    fs::remove_file(&path).with_path("remove", &path)?;
                    continue;
                }
                AgentRole::DirectoryInPlace => {
                    fs::remove_file(&path).with_path("remove", &path)?;
                    create_directory(&path)?;
                    continue;
                }
                AgentRole::Drifted => sample_agents::with_edited_rules(pristine) + &scratch,
                AgentRole::HiddenCharacters => {
                    sample_agents::with_hidden_characters(pristine) + &scratch
                }
                AgentRole::NoBoundary => sample_agents::session_log(&notes),
                AgentRole::Oversize => {
                    let mut text = pristine.to_string();
                    for round in 0.. {
                        if text.len() > 40_000 {
                            break;
                        }
                        text.push_str(&sample_agents::scratch_text(&notes, round, notes.len()));
                    }
                    text
                }
                AgentRole::Tampered
                | AgentRole::Busy
                | AgentRole::Behind
                | AgentRole::KeepsWriting => pristine.to_string() + &scratch,
            };
            self.write_file_aged(&path, text.as_bytes(), 4 + 7 * number as i64)?;
        }
        for (name, part) in AGENT_ROLES {
            let text = sample_agents::agent_baseline(name);
            match part {
                AgentRole::Tampered => {
                    let text = sample_agents::with_edited_rules(text);
                    self.write_baseline(name, &text)?;
                }
                AgentRole::Behind => {
                    let new = sample_agents::with_new_rules(text);
                    self.write_baseline(name, &new)?;
                    self.update_seal(text, &new)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Replaces the baseline of an agent, as of an hour ago.
    fn write_baseline(&self, agent: &str, text: &str) -> Result<()> {
        let baselines = self.dir.join("baselines");
        self.write_file_aged(
            &baselines.join(format!("{agent}-MEMORY.md")),
            text.as_bytes(),
            65,
        )
    }

    /// Seals the new text of a baseline in place of the old one.
    fn update_seal(&self, old: &str, new: &str) -> Result<()> {
        let path = self.dir.join("baselines").join(seal::SEAL_FILE_NAME);
        let seal = fs::read_to_string(&path).with_path("read", &path)?;
        let [old, new] = [old, new].map(|text| Digest::of(text.as_bytes()).to_string());
        self.write_file_aged(&path, seal.replace(&old, &new).as_bytes(), 60)
    }
}

/// Applies a plan of the history, in which no agent may fail.
fn apply_history_plan(engine: &Engine, plan: &crate::engine::Plan) -> Result<()> {
    let report = engine
        .runs()
        .apply_plan(plan, false, &AtomicBool::new(false), &mut |_| {});
    match report.results.iter().find(|result| result.kind.is_some()) {
        None => Ok(()),
        Some(result) => {
            let why = result.note.as_deref().unwrap_or("unknown error");
            let message = format!("cannot create the example fleet: {}: {why}", result.agent);
            Err(Error::new(ErrorKind::Internal, message))
        }
    }
}
