//! Keeping watch over a fleet: local folders are watched, a slow sweep behind
//! the watcher catches what it missed, and whatever changed is observed by a
//! few workers. Nobody waits for anybody else's disk. Hosts are asked instead,
//! each in a lane of its own.

mod lanes;
mod sweep;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use self::lanes::HostLanes;
use self::sweep::{Sweep, UnwatchedChanges};
use super::{Engine, HostStatus, Observation, lock};
use crate::baseline::seal;
use crate::config::MemoryLocation;
use crate::durable;
use crate::error::Kind;

/// How many agents are read at the same time.
const READ_WORKERS: usize = 8;

/// An agent that writes all the time is read this often at most.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(200);

/// A file that takes long to read may cost at most this part of the time.
const MAX_READ_SHARE: u32 = 20;

/// How often it is asked what changed, whatever the watcher says.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The same where folders cannot be watched.
const UNWATCHED_SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// The same while a folder is missing, or was a moment ago.
const MISSING_SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// How long a config is left alone after a change: whoever saves it may not be
/// done yet.
const CONFIG_DEBOUNCE: Duration = Duration::from_millis(300);

/// How many messages are taken in before anything else is done. Agents that
/// write faster than that cost nobody else anything.
const MAX_MESSAGES_PER_TURN: usize = 1024;

/// What a fleet reports.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// Agents as they look now.
    Observed(Vec<Observation>),
    /// How some hosts stand now.
    Hosts(Vec<HostStatus>),
    /// The configuration file changed.
    ConfigChanged,
    /// Something the operator should know.
    Note(String),
}

enum FleetMessage {
    Read(Vec<String>),
    Touched(PathBuf),
    /// A worker is free again. There is no observation when looking at the
    /// agent failed for a fault in this program.
    Done(String, Option<Box<Observation>>, Duration),
    /// Nothing when the sweep came to nothing.
    Swept(Option<UnwatchedChanges>),
    Stop,
}

/// A fleet that is being watched. Dropping it stops the watch.
pub struct Fleet {
    messages: Sender<FleetMessage>,
    jobs: Arc<JobCounter>,
}

/// Counts what is queued or running, so that tests can wait until nothing is.
#[derive(Default)]
struct JobCounter {
    count: Mutex<usize>,
    idle: Condvar,
}

impl JobCounter {
    fn change(&self, by: isize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            self.idle.notify_all();
        }
    }
}

impl Fleet {
    /// Starts watching, and reads every agent once. Events go to `events`; when
    /// that is full, the watch waits.
    pub fn start(engine: Arc<Engine>, events: Sender<FleetEvent>) -> Fleet {
        let (messages, inbox) = unbounded();
        let jobs = Arc::new(JobCounter::default());
        let fleet = Fleet {
            messages: messages.clone(),
            jobs: Arc::clone(&jobs),
        };
        let names = engine
            .config()
            .agents
            .iter()
            .map(|agent| agent.name.clone())
            .collect();
        fleet.read(names);
        thread::spawn(move || {
            engine.look_for_sharing();
            // Who is there is known before anything is known of them.
            let hosts = engine.hosts();
            if hosts.is_empty() || events.send(FleetEvent::Hosts(hosts)).is_ok() {
                Watch::new(engine, messages, events, jobs).run(&inbox);
            }
        });
        fleet
    }

    /// Reads these agents soon, before others that wait; also those on hosts that
    /// are left alone for a while because they did not answer.
    pub fn read(&self, agents: Vec<String>) {
        self.jobs.change(1);
        if self.messages.send(FleetMessage::Read(agents)).is_err() {
            self.jobs.change(-1);
        }
    }

    /// Waits until nothing is queued or running, or the time is over; says
    /// which.
    pub fn wait_idle(&self, limit: Duration) -> bool {
        let count = self
            .jobs
            .count
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (count, _) = self
            .jobs
            .idle
            .wait_timeout_while(count, limit, |count| *count > 0)
            .unwrap_or_else(PoisonError::into_inner);
        *count == 0
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The watch may have ended by itself.
        let _ = self.messages.send(FleetMessage::Stop);
    }
}

struct Watch {
    engine: Arc<Engine>,
    events: Sender<FleetEvent>,
    jobs: Arc<JobCounter>,
    work: Sender<String>,
    workers: usize,
    lanes: HostLanes,
    watcher: Option<RecommendedWatcher>,
    watched: HashSet<PathBuf>,
    /// Directories of memories, in which agents plant what they like.
    memory_directories: HashSet<PathBuf>,
    /// Folders that should be watched, and what a touched name in them means.
    meaning: HashMap<PathBuf, Vec<ChangeScope>>,
    /// When an agent should be read next.
    due: HashMap<String, Instant>,
    running: HashSet<String>,
    /// When an agent may be read again.
    not_before: HashMap<String, Instant>,
    sweep: Arc<Sweep>,
    /// When the next one begins; none while one is under way.
    next_sweep: Option<Instant>,
    /// Where a sweep says what it found.
    messages: Sender<FleetMessage>,
    /// When a changed config should be read.
    config_due: Option<Instant>,
    blind: bool,
    /// Touches that wait in the inbox, and whether some were left out.
    backlog: Arc<Backlog>,
}

/// Keeps the inbox short: past a limit touches are not queued but remembered as
/// one, which then means everybody.
#[derive(Default)]
struct Backlog {
    queued: AtomicUsize,
    overrun: AtomicBool,
}

struct ChangeScope {
    /// The name in the folder; any name when there is none.
    name: Option<OsString>,
    what: Touched,
}

#[derive(Clone)]
enum Touched {
    Agent(String),
    Everybody,
    Config,
}

impl Watch {
    fn new(
        engine: Arc<Engine>,
        messages: Sender<FleetMessage>,
        events: Sender<FleetEvent>,
        jobs: Arc<JobCounter>,
    ) -> Watch {
        let lanes = HostLanes::start(&engine, &events, &jobs);
        let here = engine.config().agents.iter();
        let here = here.filter(|agent| agent.place.host().is_none());
        let workers = READ_WORKERS.min(here.count());
        let (work, queue) = bounded::<String>(workers);
        let sweep = Arc::new(Sweep::new(&engine));
        for _ in 0..workers {
            let (engine, sweep) = (Arc::clone(&engine), Arc::clone(&sweep));
            let (queue, messages) = (queue.clone(), messages.clone());
            thread::spawn(move || worker(&engine, &sweep, &queue, &messages));
        }
        let touched = messages.clone();
        let backlog = Arc::new(Backlog::default());
        let queue = Arc::clone(&backlog);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let matters = match event.kind {
                EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
                _ => true,
            };
            if matters {
                for path in event.paths {
                    if queue.queued.fetch_add(1, Ordering::Relaxed) >= 4 * MAX_MESSAGES_PER_TURN {
                        queue.queued.fetch_sub(1, Ordering::Relaxed);
                        queue.overrun.store(true, Ordering::Relaxed);
                        continue;
                    }
                    // The watch may be stopping.
                    let _ = touched.send(FleetMessage::Touched(path));
                }
            }
        });
        let now = engine.clock().instant();
        let here = engine.config().agents.iter();
        let here = here.filter(|agent| agent.place.host().is_none());
        let directories = here.filter_map(|agent| agent.place.memory().parent());
        let memory_directories = directories.map(Path::to_path_buf).collect();
        let mut watch = Watch {
            meaning: meanings(&engine),
            engine,
            events,
            jobs,
            work,
            workers,
            lanes,
            watcher: None,
            watched: HashSet::new(),
            memory_directories,
            due: HashMap::new(),
            running: HashSet::new(),
            not_before: HashMap::new(),
            sweep,
            next_sweep: Some(now + SWEEP_INTERVAL),
            messages,
            config_due: None,
            blind: false,
            backlog,
        };
        match watcher {
            Ok(watcher) => watch.watcher = Some(watcher),
            Err(error) => watch.stop_watching(&error),
        }
        let (trusted, others) = watch.by_trust();
        let there = trusted.into_iter().filter(|path| watch.is_directory(path));
        watch.watch_what_is_there(&there.collect());
        if others {
            // A sweep finds out which of them are there.
            watch.next_sweep = Some(now);
        }
        watch
    }

    fn run(mut self, inbox: &Receiver<FleetMessage>) {
        loop {
            self.hand_out();
            let times = [self.next_sweep, self.next_due(), self.config_due];
            let now = self.engine.clock().instant();
            let first = match times.into_iter().flatten().min() {
                Some(wake) => inbox.recv_timeout(wake.saturating_duration_since(now)).ok(),
                None => inbox.recv().ok(),
            };
            let mut observed = Vec::new();
            let mut ended = 0;
            for message in first
                .into_iter()
                .chain(inbox.try_iter().take(MAX_MESSAGES_PER_TURN))
            {
                ended += isize::from(matches!(
                    message,
                    FleetMessage::Done(..) | FleetMessage::Swept(_)
                ));
                if !self.take(message, &mut observed) {
                    return;
                }
            }
            if !observed.is_empty() && self.events.send(FleetEvent::Observed(observed)).is_err() {
                return; // Nobody listens any more.
            }
            self.jobs.change(-ended);
            let now = self.engine.clock().instant();
            if self.backlog.overrun.swap(false, Ordering::Relaxed) {
                self.want_everybody(now);
            }
            if self.config_due.take_if(|due| *due <= now).is_some()
                && self.events.send(FleetEvent::ConfigChanged).is_err()
            {
                return;
            }
            if self.next_sweep.take_if(|next| *next <= now).is_some() {
                self.begin_sweep();
            }
        }
    }

    /// Asks what changed, in a thread of its own: while a disk does not answer, the
    /// watcher and the workers go on.
    fn begin_sweep(&mut self) {
        self.jobs.change(1);
        let (sweep, messages) = (Arc::clone(&self.sweep), self.messages.clone());
        let watched = self.meaning.keys();
        let others = watched.filter(|path| !self.memory_directories.contains(*path));
        let others = others.cloned().collect();
        let look = move || {
            let missed = catch_unwind(AssertUnwindSafe(|| sweep.look(others)));
            // The watch may have ended.
            let _ = messages.send(FleetMessage::Swept(missed.ok()));
        };
        if thread::Builder::new().spawn(look).is_err() {
            // No thread to be had: there may be one the next time.
            let _ = self.messages.send(FleetMessage::Swept(None));
        }
    }

    /// Acts on a message; false when it is time to stop.
    fn take(&mut self, message: FleetMessage, observed: &mut Vec<Observation>) -> bool {
        let now = self.engine.clock().instant();
        match message {
            FleetMessage::Stop => return false,
            FleetMessage::Read(names) => {
                for name in &names {
                    self.not_before.remove(name);
                    self.want(name.clone(), now);
                }
                self.lanes.ask(names, true);
                self.jobs.change(-1);
            }
            FleetMessage::Done(name, observation, took) => {
                self.running.remove(&name);
                let rested = now + MIN_READ_INTERVAL.max(took * MAX_READ_SHARE);
                // It may have been touched again while it was read.
                if let Some(due) = self.due.get_mut(&name) {
                    *due = (*due).max(rested);
                }
                self.not_before.insert(name, rested);
                let Some(observation) = observation else {
                    return true;
                };
                // The folder of the locks may be as new as this lock: unwatched,
                // nobody would say when it is let go.
                let block = observation.block.as_ref();
                if block.is_some_and(|block| block.kind == Kind::Busy) {
                    let lock = lock::holder_path(self.engine.archive(), &observation.agent);
                    if lock.parent().is_some_and(|locks| self.watch_again(locks)) {
                        self.want(observation.agent.clone(), now);
                    }
                }
                observed.push(*observation);
            }
            FleetMessage::Swept(missed) => {
                if let Some(missed) = missed {
                    self.act_on(missed, now);
                }
                let every = match self.watched.len() == self.meaning.len() {
                    _ if self.blind => UNWATCHED_SWEEP_INTERVAL,
                    true => SWEEP_INTERVAL,
                    false => MISSING_SWEEP_INTERVAL,
                };
                self.next_sweep = Some(now + every);
            }
            FleetMessage::Touched(path) => {
                self.backlog.queued.fetch_sub(1, Ordering::Relaxed);
                self.touched(&path, now);
            }
        }
        true
    }

    fn act_on(&mut self, missed: UnwatchedChanges, now: Instant) {
        self.watch_what_is_there(&missed.directories);
        for name in missed.agents {
            self.want(name, now);
        }
        if missed.config {
            self.config_due = Some(now + CONFIG_DEBOUNCE);
        }
    }

    fn touched(&mut self, path: &Path, now: Instant) {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        if self.meaning.contains_key(path) {
            // The folder itself: when it went, so did the watch on it.
            self.watched.remove(path);
            self.watch_again(path);
            self.next_sweep = self
                .next_sweep
                .map(|next| next.min(now + MISSING_SWEEP_INTERVAL));
        }
        // An event about the folder itself may mean anything in it.
        let whole = self.meaning.get(path).into_iter().flatten();
        let named = self.meaning.get(folder).into_iter().flatten();
        let named = named.filter(|meaning| meaning.name.as_deref().is_none_or(|own| own == name));
        let wanted: Vec<Touched> = whole.chain(named).map(|m| m.what.clone()).collect();
        for touched in wanted {
            match touched {
                Touched::Agent(name) if self.lanes.have(&name) => {
                    self.lanes.ask(vec![name], false);
                }
                Touched::Agent(name) => self.want(name, now),
                Touched::Everybody => self.want_everybody(now),
                Touched::Config => self.config_due = Some(now + CONFIG_DEBOUNCE),
            }
        }
    }

    fn want_everybody(&mut self, now: Instant) {
        let agents = self.engine.config().agents.iter();
        let names: Vec<String> = agents.map(|agent| agent.name.clone()).collect();
        for name in &names {
            self.want(name.clone(), now);
        }
        self.lanes.ask(names, false);
    }

    /// An agent of this machine should be read, as soon as it may be. A name that
    /// is not of this config is of the one before.
    fn want(&mut self, name: String, now: Instant) {
        if self.lanes.have(&name) || self.engine.config().agent(&name).is_none() {
            return;
        }
        let due = self.not_before.get(&name).copied().unwrap_or(now).max(now);
        if self.due.insert(name, due).is_none() {
            self.jobs.change(1);
        }
    }

    /// When a worker has something to do next, if one is free.
    fn next_due(&self) -> Option<Instant> {
        let waiting = self
            .due
            .iter()
            .filter(|(name, _)| !self.running.contains(*name));
        let next = waiting.map(|(_, due)| *due).min();
        next.filter(|_| self.running.len() < self.workers)
    }

    /// Gives what is due to workers that are free. Order: the longest due.
    fn hand_out(&mut self) {
        let now = self.engine.clock().instant();
        let mut ready: Vec<(Instant, String)> = self
            .due
            .iter()
            .filter(|(name, due)| **due <= now && !self.running.contains(*name))
            .map(|(name, due)| (*due, name.clone()))
            .collect();
        ready.sort();
        let free = self.workers.saturating_sub(self.running.len());
        for (_, name) in ready.into_iter().take(free) {
            if self.work.send(name.clone()).is_err() {
                return; // The workers have ended, so nobody listens any more.
            }
            self.due.remove(&name);
            self.running.insert(name);
        }
    }

    /// Watches exactly those of the directories that are there.
    fn watch_what_is_there(&mut self, there: &HashSet<PathBuf>) {
        self.watched.retain(|path| there.contains(path));
        let new = there.iter().filter(|path| !self.watched.contains(*path));
        for path in new.cloned().collect::<Vec<_>>() {
            self.watch(&path);
        }
    }

    /// Watches a directory that may be new; whether it was not watched before. One on a
    /// file system that may hang waits for the next sweep: nothing is asked of it here.
    fn watch_again(&mut self, path: &Path) -> bool {
        let is_trusted = self.engine.file_systems().of(path).is_none();
        !self.watched.contains(path) && is_trusted && self.is_directory(path) && self.watch(path)
    }

    fn watch(&mut self, path: &Path) -> bool {
        let Some(watcher) = &mut self.watcher else {
            return false;
        };
        match watcher.watch(path, RecursiveMode::NonRecursive) {
            Ok(()) => self.watched.insert(path.to_path_buf()),
            Err(error) => {
                if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) {
                    self.stop_watching(&error);
                }
                false
            }
        }
    }

    /// What a link of an agent's leads to may be on a file system that hangs.
    fn is_directory(&self, path: &Path) -> bool {
        match self.memory_directories.contains(path) {
            true => durable::is_unlinked_directory(path),
            false => path.is_dir(),
        }
    }

    /// The directories on file systems that never hang, and whether there are others.
    fn by_trust(&self) -> (Vec<PathBuf>, bool) {
        let systems = self.engine.file_systems().of_all(self.meaning.keys());
        let directories = self.meaning.keys().zip(systems);
        let trusted = directories.filter(|(_, system)| system.is_none());
        let trusted: Vec<PathBuf> = trusted.map(|(path, _)| path.clone()).collect();
        let others = trusted.len() < self.meaning.len();
        (trusted, others)
    }

    fn stop_watching(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.blind, true) {
            let seconds = UNWATCHED_SWEEP_INTERVAL.as_secs();
            let note = format!(
                "directories cannot be watched ({error}); looking every {seconds} s instead"
            );
            // Nobody may listen any more; then the loop ends by itself.
            let _ = self.events.send(FleetEvent::Note(note));
        }
    }
}

/// What a change in which folder means.
fn meanings(engine: &Engine) -> HashMap<PathBuf, Vec<ChangeScope>> {
    let config = engine.config();
    let mut meanings: HashMap<PathBuf, Vec<ChangeScope>> = HashMap::new();
    let mut add = |path: &Path, what: Touched| {
        if let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
            meanings
                .entry(folder.to_path_buf())
                .or_default()
                .push(ChangeScope {
                    name: Some(name.to_os_string()),
                    what,
                });
        }
    };
    for agent in &config.agents {
        if let MemoryLocation::Local { memory, .. } = &agent.place {
            add(memory, Touched::Agent(agent.name.clone()));
        }
        let baseline = config.general.baseline_dir.join(&agent.baseline);
        add(&baseline, Touched::Agent(agent.name.clone()));
        let lock = lock::holder_path(engine.archive(), &agent.name);
        add(&lock, Touched::Agent(agent.name.clone()));
    }
    add(
        &config.general.baseline_dir.join(seal::FILE),
        Touched::Everybody,
    );
    add(&engine.ledger_path(), Touched::Everybody);
    add(&config.path, Touched::Config);
    meanings
}

fn worker(
    engine: &Engine,
    sweep: &Sweep,
    queue: &Receiver<String>,
    messages: &Sender<FleetMessage>,
) {
    for name in queue {
        let began = engine.clock().instant();
        let look = || {
            engine.agent(&name).map(|agent| {
                sweep.note(agent);
                Box::new(engine.observe(agent))
            })
        };
        let observation = catch_unwind(AssertUnwindSafe(look));
        let observation = observation.ok().and_then(crate::error::Result::ok);
        sweep.looked(&name, observation.as_deref());
        let took = engine.clock().instant().duration_since(began);
        if messages
            .send(FleetMessage::Done(name, observation, took))
            .is_err()
        {
            return;
        }
    }
}
