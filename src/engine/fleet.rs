//! Keeping watch over a fleet: local directories are watched, a slow sweep behind
//! the watcher catches what it missed, and whatever changed is observed by a
//! few workers. Nobody waits for anybody else's disk. Hosts are asked instead,
//! each in a lane of its own.

mod host_lanes;
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

use self::host_lanes::HostLanes;
use self::sweep::{Sweep, UnwatchedChanges};
use super::{Engine, HostStatus, Observation, lock};
use crate::baseline::seal;
use crate::config::MemoryLocation;
use crate::durable;
use crate::error::ErrorKind;

/// How many agents are read at the same time.
const READ_WORKERS: usize = 8;

/// An agent that writes all the time is read this often at most.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(200);

/// A file that takes long to read may cost at most this part of the time.
const MAX_READ_SHARE: u32 = 20;

/// How often it is asked what changed, whatever the watcher says.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The same where directories cannot be watched.
const UNWATCHED_SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// The same while a directory is missing, or was a moment ago.
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
    HostsChanged(Vec<HostStatus>),
    /// The configuration file changed.
    ConfigChanged,
    /// Something the operator should know.
    Notice(String),
}

enum FleetMessage {
    ReadRequested(Vec<String>),
    PathChanged(PathBuf),
    /// A worker is free again. There is no observation when looking at the
    /// agent failed for a fault in this program.
    AgentRead(String, Option<Box<Observation>>, Duration),
    /// Nothing when the sweep came to nothing.
    SweepFinished(Option<UnwatchedChanges>),
    Stop,
}

/// A fleet that is being watched. Dropping it stops the watch.
pub struct FleetWatcher {
    messages: Sender<FleetMessage>,
    jobs: Arc<JobCounter>,
}

/// Counts what is queued or running, so that tests can wait until nothing is.
#[derive(Default)]
struct JobCounter {
    count: Mutex<usize>,
    became_idle: Condvar,
}

impl JobCounter {
    fn add(&self, difference: isize) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_add_signed(difference);
        if *count == 0 {
            self.became_idle.notify_all();
        }
    }
}

impl FleetWatcher {
    /// Starts watching, and reads every agent once. Events go to `events`; when
    /// that is full, the watch waits.
    pub fn start(engine: Arc<Engine>, events: Sender<FleetEvent>) -> FleetWatcher {
        let (messages, inbox) = unbounded();
        let jobs = Arc::new(JobCounter::default());
        let fleet = FleetWatcher {
            messages: messages.clone(),
            jobs: Arc::clone(&jobs),
        };
        let names = engine
            .config()
            .agents
            .iter()
            .map(|agent| agent.name.clone())
            .collect();
        fleet.request_read(names);
        thread::spawn(move || {
            engine.refresh_shared_memories();
            // Who is there is known before anything is known of them.
            let hosts = engine.host_statuses();
            if hosts.is_empty() || events.send(FleetEvent::HostsChanged(hosts)).is_ok() {
                WatchLoop::new(engine, messages, events, jobs).run(&inbox);
            }
        });
        fleet
    }

    /// Reads these agents soon, before others that wait; also those on hosts that
    /// are left alone for a while because they did not answer.
    pub fn request_read(&self, agents: Vec<String>) {
        self.jobs.add(1);
        if self
            .messages
            .send(FleetMessage::ReadRequested(agents))
            .is_err()
        {
            self.jobs.add(-1);
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
            .became_idle
            .wait_timeout_while(count, limit, |count| *count > 0)
            .unwrap_or_else(PoisonError::into_inner);
        *count == 0
    }
}

impl Drop for FleetWatcher {
    fn drop(&mut self) {
        // The watch may have ended by itself.
        let _ = self.messages.send(FleetMessage::Stop);
    }
}

struct WatchLoop {
    engine: Arc<Engine>,
    events: Sender<FleetEvent>,
    jobs: Arc<JobCounter>,
    read_queue: Sender<String>,
    worker_count: usize,
    host_lanes: HostLanes,
    watcher: Option<RecommendedWatcher>,
    watched_directories: HashSet<PathBuf>,
    /// Directories of memories, in which agents plant what they like.
    memory_directories: HashSet<PathBuf>,
    /// Directories that should be watched, and what a touched name in them means.
    change_scopes: HashMap<PathBuf, Vec<ChangeScope>>,
    /// When an agent should be read next.
    due_reads: HashMap<String, Instant>,
    running_reads: HashSet<String>,
    /// When an agent may be read again.
    not_before: HashMap<String, Instant>,
    sweep: Arc<Sweep>,
    /// When the next one begins; none while one is under way.
    next_sweep: Option<Instant>,
    /// Where a sweep says what it found.
    messages: Sender<FleetMessage>,
    /// When a changed config should be read.
    config_due: Option<Instant>,
    is_unwatched: bool,
    /// Touches that wait in the inbox, and whether some were left out.
    backlog: Arc<ChangeBacklog>,
}

/// Keeps the inbox short: past a limit touches are not queued but remembered as
/// one, which then means everybody.
#[derive(Default)]
struct ChangeBacklog {
    queued_changes: AtomicUsize,
    has_overflowed: AtomicBool,
}

struct ChangeScope {
    /// The name in the directory; any name when there is none.
    file_name: Option<OsString>,
    target: ChangeTarget,
}

#[derive(Clone)]
enum ChangeTarget {
    Agent(String),
    AllAgents,
    Config,
}

impl WatchLoop {
    fn new(
        engine: Arc<Engine>,
        messages: Sender<FleetMessage>,
        events: Sender<FleetEvent>,
        jobs: Arc<JobCounter>,
    ) -> WatchLoop {
        let lanes = HostLanes::start(&engine, &events, &jobs);
        let here = engine.config().agents.iter();
        let here = here.filter(|agent| agent.location.host().is_none());
        let workers = READ_WORKERS.min(here.count());
        let (work, queue) = bounded::<String>(workers);
        let sweep = Arc::new(Sweep::new(&engine));
        for _ in 0..workers {
            let (engine, sweep) = (Arc::clone(&engine), Arc::clone(&sweep));
            let (queue, messages) = (queue.clone(), messages.clone());
            thread::spawn(move || run_read_worker(&engine, &sweep, &queue, &messages));
        }
        let touched = messages.clone();
        let backlog = Arc::new(ChangeBacklog::default());
        let queue = Arc::clone(&backlog);
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let matters = match event.kind {
                EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
                _ => true,
            };
            if matters {
                for path in event.paths {
                    if queue.queued_changes.fetch_add(1, Ordering::Relaxed)
                        >= 4 * MAX_MESSAGES_PER_TURN
                    {
                        queue.queued_changes.fetch_sub(1, Ordering::Relaxed);
                        queue.has_overflowed.store(true, Ordering::Relaxed);
                        continue;
                    }
                    // The watch may be stopping.
                    let _ = touched.send(FleetMessage::PathChanged(path));
                }
            }
        });
        let now = engine.clock().instant();
        let here = engine.config().agents.iter();
        let here = here.filter(|agent| agent.location.host().is_none());
        let directories = here.filter_map(|agent| agent.location.memory().parent());
        let memory_directories = directories.map(Path::to_path_buf).collect();
        let mut watch = WatchLoop {
            change_scopes: change_scopes(&engine),
            engine,
            events,
            jobs,
            read_queue: work,
            worker_count: workers,
            host_lanes: lanes,
            watcher: None,
            watched_directories: HashSet::new(),
            memory_directories,
            due_reads: HashMap::new(),
            running_reads: HashSet::new(),
            not_before: HashMap::new(),
            sweep,
            next_sweep: Some(now + SWEEP_INTERVAL),
            messages,
            config_due: None,
            is_unwatched: false,
            backlog,
        };
        match watcher {
            Ok(watcher) => watch.watcher = Some(watcher),
            Err(error) => watch.stop_watching(&error),
        }
        let (trusted, others) = watch.trusted_directories();
        let there = trusted.into_iter().filter(|path| watch.is_directory(path));
        watch.watch_existing_directories(&there.collect());
        if others {
            // A sweep finds out which of them are there.
            watch.next_sweep = Some(now);
        }
        watch
    }

    fn run(mut self, inbox: &Receiver<FleetMessage>) {
        loop {
            self.dispatch_due_reads();
            let times = [self.next_sweep, self.next_dispatch(), self.config_due];
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
                    FleetMessage::AgentRead(..) | FleetMessage::SweepFinished(_)
                ));
                if !self.handle_message(message, &mut observed) {
                    return;
                }
            }
            if !observed.is_empty() && self.events.send(FleetEvent::Observed(observed)).is_err() {
                return; // Nobody listens any more.
            }
            self.jobs.add(-ended);
            let now = self.engine.clock().instant();
            if self.backlog.has_overflowed.swap(false, Ordering::Relaxed) {
                self.schedule_all_reads(now);
            }
            if self.config_due.take_if(|due| *due <= now).is_some()
                && self.events.send(FleetEvent::ConfigChanged).is_err()
            {
                return;
            }
            if self.next_sweep.take_if(|next| *next <= now).is_some() {
                self.start_sweep();
            }
        }
    }

    /// Asks what changed, in a thread of its own: while a disk does not answer, the
    /// watcher and the workers go on.
    fn start_sweep(&mut self) {
        self.jobs.add(1);
        let (sweep, messages) = (Arc::clone(&self.sweep), self.messages.clone());
        let watched = self.change_scopes.keys();
        let others = watched.filter(|path| !self.memory_directories.contains(*path));
        let others = others.cloned().collect();
        let look = move || {
            let missed = catch_unwind(AssertUnwindSafe(|| sweep.find_changes(others)));
            // The watch may have ended.
            let _ = messages.send(FleetMessage::SweepFinished(missed.ok()));
        };
        if thread::Builder::new().spawn(look).is_err() {
            // No thread to be had: there may be one the next time.
            let _ = self.messages.send(FleetMessage::SweepFinished(None));
        }
    }

    /// Acts on a message; false when it is time to stop.
    fn handle_message(&mut self, message: FleetMessage, observed: &mut Vec<Observation>) -> bool {
        let now = self.engine.clock().instant();
        match message {
            FleetMessage::Stop => return false,
            FleetMessage::ReadRequested(names) => {
                for name in &names {
                    self.not_before.remove(name);
                    self.schedule_read(name.clone(), now);
                }
                self.host_lanes.request_poll(names, true);
                self.jobs.add(-1);
            }
            FleetMessage::AgentRead(name, observation, took) => {
                self.running_reads.remove(&name);
                let rested = now + MIN_READ_INTERVAL.max(took * MAX_READ_SHARE);
                // It may have been touched again while it was read.
                if let Some(due) = self.due_reads.get_mut(&name) {
                    *due = (*due).max(rested);
                }
                self.not_before.insert(name, rested);
                let Some(observation) = observation else {
                    return true;
                };
                // The directory of the locks may be as new as this lock: unwatched,
                // nobody would say when it is let go.
                let block = observation.blocker.as_ref();
                if block.is_some_and(|block| block.kind == ErrorKind::Busy) {
                    let lock = lock::holder_path(self.engine.archive(), &observation.agent);
                    if lock
                        .parent()
                        .is_some_and(|locks| self.rewatch_directory(locks))
                    {
                        self.schedule_read(observation.agent.clone(), now);
                    }
                }
                observed.push(*observation);
            }
            FleetMessage::SweepFinished(missed) => {
                if let Some(missed) = missed {
                    self.apply_sweep(missed, now);
                }
                let every = match self.watched_directories.len() == self.change_scopes.len() {
                    _ if self.is_unwatched => UNWATCHED_SWEEP_INTERVAL,
                    true => SWEEP_INTERVAL,
                    false => MISSING_SWEEP_INTERVAL,
                };
                self.next_sweep = Some(now + every);
            }
            FleetMessage::PathChanged(path) => {
                self.backlog.queued_changes.fetch_sub(1, Ordering::Relaxed);
                self.handle_path_change(&path, now);
            }
        }
        true
    }

    fn apply_sweep(&mut self, missed: UnwatchedChanges, now: Instant) {
        self.watch_existing_directories(&missed.existing_directories);
        for name in missed.agents {
            self.schedule_read(name, now);
        }
        if missed.has_config_changed {
            self.config_due = Some(now + CONFIG_DEBOUNCE);
        }
    }

    fn handle_path_change(&mut self, path: &Path, now: Instant) {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        if self.change_scopes.contains_key(path) {
            // The directory itself: when it went, so did the watch on it.
            self.watched_directories.remove(path);
            self.rewatch_directory(path);
            self.next_sweep = self
                .next_sweep
                .map(|next| next.min(now + MISSING_SWEEP_INTERVAL));
        }
        // An event about the directory itself may mean anything in it.
        let whole = self.change_scopes.get(path).into_iter().flatten();
        let named = self.change_scopes.get(directory).into_iter().flatten();
        let named =
            named.filter(|meaning| meaning.file_name.as_deref().is_none_or(|own| own == name));
        let wanted: Vec<ChangeTarget> = whole.chain(named).map(|m| m.target.clone()).collect();
        for touched in wanted {
            match touched {
                ChangeTarget::Agent(name) if self.host_lanes.has_agent(&name) => {
                    self.host_lanes.request_poll(vec![name], false);
                }
                ChangeTarget::Agent(name) => self.schedule_read(name, now),
                ChangeTarget::AllAgents => self.schedule_all_reads(now),
                ChangeTarget::Config => self.config_due = Some(now + CONFIG_DEBOUNCE),
            }
        }
    }

    fn schedule_all_reads(&mut self, now: Instant) {
        let agents = self.engine.config().agents.iter();
        let names: Vec<String> = agents.map(|agent| agent.name.clone()).collect();
        for name in &names {
            self.schedule_read(name.clone(), now);
        }
        self.host_lanes.request_poll(names, false);
    }

    /// An agent of this machine should be read, as soon as it may be. A name that
    /// is not of this config is of the one before.
    fn schedule_read(&mut self, name: String, now: Instant) {
        if self.host_lanes.has_agent(&name) || self.engine.config().agent(&name).is_none() {
            return;
        }
        let due = self.not_before.get(&name).copied().unwrap_or(now).max(now);
        if self.due_reads.insert(name, due).is_none() {
            self.jobs.add(1);
        }
    }

    /// When a worker has something to do next, if one is free.
    fn next_dispatch(&self) -> Option<Instant> {
        let waiting = self
            .due_reads
            .iter()
            .filter(|(name, _)| !self.running_reads.contains(*name));
        let next = waiting.map(|(_, due)| *due).min();
        next.filter(|_| self.running_reads.len() < self.worker_count)
    }

    /// Gives what is due to workers that are free. Order: the longest due.
    fn dispatch_due_reads(&mut self) {
        let now = self.engine.clock().instant();
        let mut ready: Vec<(Instant, String)> = self
            .due_reads
            .iter()
            .filter(|(name, due)| **due <= now && !self.running_reads.contains(*name))
            .map(|(name, due)| (*due, name.clone()))
            .collect();
        ready.sort();
        let free = self.worker_count.saturating_sub(self.running_reads.len());
        for (_, name) in ready.into_iter().take(free) {
            if self.read_queue.send(name.clone()).is_err() {
                return; // The workers have ended, so nobody listens any more.
            }
            self.due_reads.remove(&name);
            self.running_reads.insert(name);
        }
    }

    /// Watches exactly those of the directories that are there.
    fn watch_existing_directories(&mut self, existing: &HashSet<PathBuf>) {
        self.watched_directories
            .retain(|path| existing.contains(path));
        let new = existing
            .iter()
            .filter(|path| !self.watched_directories.contains(*path));
        for path in new.cloned().collect::<Vec<_>>() {
            self.watch_directory(&path);
        }
    }

    /// Watches a directory that may be new; whether it was not watched before. One on a
    /// file system that may hang waits for the next sweep: nothing is asked of it here.
    fn rewatch_directory(&mut self, path: &Path) -> bool {
        let is_trusted = self.engine.file_systems().find_untrusted(path).is_none();
        !self.watched_directories.contains(path)
            && is_trusted
            && self.is_directory(path)
            && self.watch_directory(path)
    }

    fn watch_directory(&mut self, path: &Path) -> bool {
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

    /// What a link of an agent's leads to may be on a file system that hangs.
    fn is_directory(&self, path: &Path) -> bool {
        match self.memory_directories.contains(path) {
            true => durable::is_directory_no_symlinks(path),
            false => path.is_dir(),
        }
    }

    /// The directories on file systems that never hang, and whether there are others.
    fn trusted_directories(&self) -> (Vec<PathBuf>, bool) {
        let systems = self
            .engine
            .file_systems()
            .find_untrusted_all(self.change_scopes.keys());
        let directories = self.change_scopes.keys().zip(systems);
        let trusted = directories.filter(|(_, system)| system.is_none());
        let trusted: Vec<PathBuf> = trusted.map(|(path, _)| path.clone()).collect();
        let others = trusted.len() < self.change_scopes.len();
        (trusted, others)
    }

    fn stop_watching(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.is_unwatched, true) {
            let seconds = UNWATCHED_SWEEP_INTERVAL.as_secs();
            let note = format!(
                "directories cannot be watched ({error}); looking every {seconds} s instead"
            );
            // Nobody may listen any more; then the loop ends by itself.
            let _ = self.events.send(FleetEvent::Notice(note));
        }
    }
}

/// What a change in which directory means.
fn change_scopes(engine: &Engine) -> HashMap<PathBuf, Vec<ChangeScope>> {
    let config = engine.config();
    let mut meanings: HashMap<PathBuf, Vec<ChangeScope>> = HashMap::new();
    let mut add = |path: &Path, what: ChangeTarget| {
        if let (Some(directory), Some(name)) = (path.parent(), path.file_name()) {
            meanings
                .entry(directory.to_path_buf())
                .or_default()
                .push(ChangeScope {
                    file_name: Some(name.to_os_string()),
                    target: what,
                });
        }
    };
    for agent in &config.agents {
        if let MemoryLocation::Local { memory, .. } = &agent.location {
            add(memory, ChangeTarget::Agent(agent.name.clone()));
        }
        let baseline = config.general.baseline_dir.join(&agent.baseline);
        add(&baseline, ChangeTarget::Agent(agent.name.clone()));
        let lock = lock::holder_path(engine.archive(), &agent.name);
        add(&lock, ChangeTarget::Agent(agent.name.clone()));
    }
    add(
        &config.general.baseline_dir.join(seal::MANIFEST_FILE_NAME),
        ChangeTarget::AllAgents,
    );
    add(&engine.ledger_path(), ChangeTarget::AllAgents);
    add(&config.path, ChangeTarget::Config);
    meanings
}

fn run_read_worker(
    engine: &Engine,
    sweep: &Sweep,
    queue: &Receiver<String>,
    messages: &Sender<FleetMessage>,
) {
    for name in queue {
        let began = engine.clock().instant();
        let look = || {
            engine.agent(&name).map(|agent| {
                sweep.record_stamps(agent);
                Box::new(engine.observe(agent))
            })
        };
        let observation = catch_unwind(AssertUnwindSafe(look));
        let observation = observation.ok().and_then(crate::error::Result::ok);
        sweep.record_outcome(&name, observation.as_deref());
        let took = engine.clock().instant().duration_since(began);
        if messages
            .send(FleetMessage::AgentRead(name, observation, took))
            .is_err()
        {
            return;
        }
    }
}
