//! Watches a fleet and reports what changes. On this machine it watches directories, sweeps slowly
//! for changes that the watcher missed, and reads changed agents with a few workers; a disk that
//! hangs delays no other agent. Hosts are polled without a thread for each (`host_polls`).

mod change_scopes;
mod directory_watches;
mod due_reads;
mod host_polls;
mod observation_stamps;
mod rereads;
mod sweep;

use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher};

use self::change_scopes::{ChangeScopes, ChangeTarget, change_scopes};
use self::directory_watches::{DirectoryInodes, memory_directories};
pub use self::directory_watches::{describe_watch_error, start_directory_watcher};
use self::due_reads::{DueReads, ReadCost};
use self::host_polls::HostPolls;
use self::observation_stamps::ObservationStamps;
use self::rereads::Rereads;
use self::sweep::{EarlierStamps, UnwatchedChanges};
use super::observe::QuickObservation;
use crate::base::error::{Error, Result};
use crate::base::sys;
use crate::config::Agent;
use crate::engine::watch::Watch;
use crate::engine::{HostStatus, Observation};
use crate::store::observations::StateNote;

/// Maximum number of agents that are read at the same time.
const READ_WORKERS: usize = 8;

/// Interval of the sweeps that look for changes which the watcher missed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Interval of the sweeps where directories cannot be watched.
const UNWATCHED_SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// Interval of the sweeps while a directory is missing, or was until the last sweep.
const MISSING_SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Delay between the end of a directory and the reads of its agents, and between that and the first
/// sweep for it: most programs that replace a directory put the new one there at once. Each sweep
/// waits twice as long for the next one, up to [`MISSING_SWEEP_INTERVAL`].
const DIRECTORY_GRACE: Duration = Duration::from_millis(100);

/// Delay between a change of the config and its report: an editor may still be writing it.
const CONFIG_DEBOUNCE: Duration = Duration::from_millis(300);

/// Delay between a change of the ledger and its report: a run appends a record for each agent.
const LEDGER_DEBOUNCE: Duration = Duration::from_millis(300);

/// Delay between an observation and the record of what changed: many agents are read at once.
const STATE_RECORD_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of messages handled per turn, so that agents that write faster than that do not
/// delay the others.
const MAX_MESSAGES_PER_TURN: usize = 1024;

/// Maximum number of directories that are watched before the first read, and not after it: it takes
/// as long as reading the agents in them.
const MAX_WATCHED_FIRST: usize = 1024;

/// What a [`FleetWatcher`] reports.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// New observations of agents.
    Observed(Vec<Observation>),
    /// Agents of a host are still as their last observations say.
    Confirmed {
        /// Their names.
        agents: Vec<String>,
        /// Time of the poll.
        at: DateTime<FixedOffset>,
    },
    /// New status of hosts.
    HostsChanged(Vec<HostStatus>),
    /// The configuration file changed.
    ConfigChanged,
    /// The file of pauses and skips of scheduled resets changed.
    PausesChanged,
    /// The log of state changes has new lines.
    StatesRecorded,
    /// The ledger has new records.
    LedgerChanged,
    /// A warning for the operator.
    Notice(String),
}

enum FleetMessage {
    ReadRequested(Vec<String>),
    PathChanged(PathBuf),
    /// The kernel has dropped changes, because more came than its queue holds.
    ChangesLost,
    /// Observations of the first read of the fleet; with the last ones, the agents of this machine
    /// that it left to the workers.
    AgentsRead {
        observations: Vec<Observation>,
        left: Option<Vec<String>>,
    },
    /// A worker is free again. There is no observation when the read panicked or failed.
    AgentRead(String, Option<Box<Observation>>, ReadCost),
    /// None when the sweep panicked or could not start.
    SweepFinished(Option<UnwatchedChanges>),
    /// The agents about whose health something else is known now.
    HealthChecked(Vec<String>),
    Stop,
}

/// Handle of a running watch. Dropping it stops the watch.
pub struct FleetWatcher {
    messages: Sender<FleetMessage>,
    jobs: Arc<JobCounter>,
    /// Carries nothing: it closes when the watch has ended.
    ended: Receiver<Infallible>,
}

/// Counts queued and running jobs, so that tests can wait for idle.
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
    /// Starts watching, and reads every agent once. Events go to `events`; when that is full, the
    /// watch waits.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub fn start(watch: Arc<Watch>, events: Sender<FleetEvent>) -> Result<FleetWatcher> {
        FleetWatcher::start_after(|| (), watch, events)
    }

    /// As [`FleetWatcher::start`], after `first`, which the reads would delay.
    ///
    /// # Errors
    /// As [`FleetWatcher::start`].
    pub fn start_after(
        first: impl FnOnce() + Send + 'static,
        watch: Arc<Watch>,
        events: Sender<FleetEvent>,
    ) -> Result<FleetWatcher> {
        let (messages, inbox) = unbounded();
        let (running, ended) = bounded(0);
        let jobs = Arc::new(JobCounter::default());
        // The first read.
        jobs.add(1);
        let fleet = FleetWatcher {
            messages: messages.clone(),
            jobs: Arc::clone(&jobs),
            ended,
        };
        let agents = watch.context.config().agents.iter();
        let remote = agents.filter(|agent| agent.host().is_some());
        fleet.request_read(remote.map(|agent| agent.name.clone()).collect());
        let watch = move || {
            let _running = running;
            watch.shared_memories.refresh_shared_memories();
            // From here on it is known which agents runs have changed.
            let _ = watch.context.ledger().take_recorded_agents();
            // The list of hosts arrives before the first status of any.
            let hosts = watch.hosts.host_statuses();
            if hosts.is_empty() || events.send(FleetEvent::HostsChanged(hosts)).is_ok() {
                WatchLoop::start(first, watch, messages, events, jobs).run(&inbox);
            }
        };
        match thread::Builder::new().spawn(watch) {
            Ok(_) => Ok(fleet),
            Err(error) => Err(Error::from_thread_start(&error)),
        }
    }

    /// Reads these agents soon, ahead of the queue and whatever their stamps, including those on hosts
    /// that are backing off.
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

    /// Stops the watch, and waits at most `limit` until the states that it saw last are recorded.
    /// A watch that reports to a full channel ends only when its receiver is dropped.
    pub fn stop(self, limit: Duration) {
        // The watch may have ended by itself.
        let _ = self.messages.send(FleetMessage::Stop);
        let _ = self.ended.recv_timeout(limit);
    }

    /// Waits until no job is queued or running; false when `limit` passes first.
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
    watch: Arc<Watch>,
    events: Sender<FleetEvent>,
    jobs: Arc<JobCounter>,
    read_queue: Sender<String>,
    worker_count: usize,
    host_polls: HostPolls,
    watcher: Option<RecommendedWatcher>,
    watched_directories: DirectoryInodes,
    /// Directories that are watched after the first read.
    directories_to_watch: Vec<PathBuf>,
    /// Whether the first read has ended.
    is_fleet_read: bool,
    /// Directories of memories, whose content agents control.
    memory_directories: HashSet<PathBuf>,
    /// Directories that should be watched, and what a changed name in them affects; empty until the
    /// first read has ended if they are watched after it.
    change_scopes: ChangeScopes,
    due_reads: DueReads,
    rereads: Rereads,
    stamps: Arc<ObservationStamps>,
    /// Start of the next sweep; none while one is running, and before the first one.
    next_sweep: Option<Instant>,
    /// Interval of the sweeps while a directory is missing.
    missing_sweep_interval: Duration,
    /// Where a sweep sends its result.
    messages: Sender<FleetMessage>,
    /// When to report a changed config.
    config_due: Option<Instant>,
    /// When to report new records.
    ledger_due: Option<Instant>,
    /// The states of observations that are not recorded yet, and when they are to be.
    unrecorded: Vec<StateNote>,
    record_due: Option<Instant>,
    is_unwatched: bool,
    is_checking_health: bool,
    /// Changes that wait in the inbox, and whether some were dropped.
    backlog: Arc<ChangeBacklog>,
}

/// Bounds the inbox: changes past the limit are not queued but set a flag, after which all agents
/// are read.
#[derive(Default)]
struct ChangeBacklog {
    queued_changes: AtomicUsize,
    has_overflowed: AtomicBool,
}

impl WatchLoop {
    /// Starts to watch, and after `first` the reads: that of this machine not before the watch, unless
    /// there are many directories.
    fn start(
        first: impl FnOnce(),
        watch: Arc<Watch>,
        messages: Sender<FleetMessage>,
        events: Sender<FleetEvent>,
        jobs: Arc<JobCounter>,
    ) -> WatchLoop {
        let stamps = Arc::new(ObservationStamps::new(&watch));
        let workers = READ_WORKERS.min(watch.context.local_agents().len());
        let (work, queue) = bounded::<String>(workers);
        let memory_directories = memory_directories(&watch);
        let is_read_first = memory_directories.len() > MAX_WATCHED_FIRST;
        let backlog = Arc::new(ChangeBacklog::default());
        let watcher = start_change_watcher(messages.clone(), Arc::clone(&backlog));
        // From its stamp on, a sweep notices changes of the config; this, those before.
        let has_config_changed = watch.context.config().has_changed_since_read();
        // A fault there must not end the watch.
        let _ = catch_unwind(AssertUnwindSafe(first));
        let host_polls = HostPolls::start(&watch, &events, &jobs, &stamps);
        if is_read_first {
            start_first_read(&watch, &stamps, &messages);
        }
        let worker_count = start_workers(workers, &events, || {
            let (watch, stamps) = (Arc::clone(&watch), Arc::clone(&stamps));
            let (queue, messages) = (queue.clone(), messages.clone());
            let work = move || run_read_worker(&watch, &stamps, &queue, &messages);
            thread::Builder::new().spawn(work).map(drop)
        });
        let now = watch.context.clock().instant();
        let mut watch = WatchLoop {
            memory_directories,
            change_scopes: ChangeScopes::new(),
            watch,
            events,
            jobs,
            read_queue: work,
            worker_count,
            host_polls,
            watcher: None,
            watched_directories: DirectoryInodes::new(),
            directories_to_watch: Vec::new(),
            is_fleet_read: false,
            due_reads: DueReads::default(),
            rereads: Rereads::new(now),
            stamps,
            next_sweep: None,
            missing_sweep_interval: MISSING_SWEEP_INTERVAL,
            messages,
            config_due: has_config_changed.then_some(now),
            ledger_due: None,
            unrecorded: Vec::new(),
            record_due: None,
            is_unwatched: false,
            is_checking_health: false,
            backlog,
        };
        match watcher {
            Ok(watcher) => watch.watcher = Some(watcher),
            Err(error) => watch.stop_watching(&error),
        }
        if !is_read_first {
            watch.watch_trusted_directories();
            start_first_read(&watch.watch, &watch.stamps, &watch.messages);
        }
        watch
    }

    /// Watches what is on file systems that do not hang, and schedules the sweep that finds out which
    /// of the other directories exist.
    fn watch_trusted_directories(&mut self) {
        self.change_scopes = change_scopes(&self.watch.context);
        let trusted = self.trusted_directories();
        let has_others = trusted.len() < self.change_scopes.len();
        let inode_of = |path: PathBuf| self.directory_inode(&path).map(|inode| (path, inode));
        let existing: DirectoryInodes = trusted.into_iter().filter_map(inode_of).collect();
        self.watch_existing_directories(&existing);
        let interval = match (has_others, self.is_unwatched) {
            (true, _) => Duration::ZERO,
            (false, true) => UNWATCHED_SWEEP_INTERVAL,
            (false, false) => SWEEP_INTERVAL,
        };
        self.next_sweep = Some(self.watch.context.clock().instant() + interval);
    }

    fn run(mut self, inbox: &Receiver<FleetMessage>) {
        loop {
            self.dispatch_due_reads();
            let now = self.watch.context.clock().instant();
            let times = [
                self.next_sweep,
                self.next_dispatch(),
                self.config_due,
                self.ledger_due,
                self.record_due,
                self.has_directories_to_watch().then_some(now),
            ];
            let first = match times.into_iter().flatten().min() {
                Some(wake) => inbox.recv_timeout(wake.saturating_duration_since(now)).ok(),
                None => inbox.recv().ok(),
            };
            let mut observed = Vec::new();
            let mut ended = 0;
            let mut is_stopped = false;
            for message in first
                .into_iter()
                .chain(inbox.try_iter().take(MAX_MESSAGES_PER_TURN))
            {
                ended += isize::from(matches!(
                    message,
                    FleetMessage::AgentRead(..)
                        | FleetMessage::SweepFinished(_)
                        | FleetMessage::HealthChecked(_)
                        | FleetMessage::ReadRequested(_)
                ));
                if !self.handle_message(message, &mut observed) {
                    is_stopped = true;
                    break;
                }
            }
            if !observed.is_empty() {
                self.unrecorded.extend(StateNote::of_observations(
                    &observed,
                    self.watch.context.trigger(),
                ));
                let due = self.watch.context.clock().instant() + STATE_RECORD_DELAY;
                self.record_due.get_or_insert(due);
            }
            if is_stopped
                || !observed.is_empty() && self.events.send(FleetEvent::Observed(observed)).is_err()
            {
                break; // The watch is dropped, or the receiver is gone.
            }
            let now = self.watch.context.clock().instant();
            if self.backlog.has_overflowed.swap(false, Ordering::Relaxed) {
                self.handle_lost_changes(now);
            }
            if self.config_due.take_if(|due| *due <= now).is_some()
                && self.events.send(FleetEvent::ConfigChanged).is_err()
            {
                break;
            }
            if self.ledger_due.take_if(|due| *due <= now).is_some()
                && self.events.send(FleetEvent::LedgerChanged).is_err()
            {
                break;
            }
            if self.record_due.is_some_and(|due| due <= now) {
                self.record_states();
            }
            if self.has_directories_to_watch() {
                self.watch_some_directories();
            }
            if self.next_sweep.take_if(|next| *next <= now).is_some() {
                self.start_sweep();
            }
            // What this turn has started counts already.
            self.jobs.add(-ended);
        }
        self.record_states();
    }

    fn sweep_interval(&mut self) -> Duration {
        if self.is_unwatched {
            UNWATCHED_SWEEP_INTERVAL
        } else if self.watched_directories.len() == self.change_scopes.len() {
            SWEEP_INTERVAL
        } else {
            let interval = self.missing_sweep_interval;
            self.missing_sweep_interval = MISSING_SWEEP_INTERVAL.min(interval * 2);
            interval
        }
    }

    /// Records the states of the last observations.
    fn record_states(&mut self) {
        self.record_due = None;
        self.watch
            .context
            .observations()
            .note(&std::mem::take(&mut self.unrecorded));
    }

    /// Looks for missed changes, in a thread of its own: while a disk does not answer, watcher and
    /// workers continue.
    fn start_sweep(&mut self) {
        self.jobs.add(1);
        let (stamps, messages) = (Arc::clone(&self.stamps), self.messages.clone());
        let watched = self.change_scopes.keys();
        let others = watched
            .filter(|path| !self.memory_directories.contains(*path))
            .cloned()
            .collect();
        let is_rare = !self.is_unwatched;
        let look = move || {
            let missed = catch_unwind(AssertUnwindSafe(|| stamps.find_changes(others)));
            if is_rare {
                sys::return_freed_memory();
            }
            // The watch may have ended.
            let _ = messages.send(FleetMessage::SweepFinished(missed.ok()));
        };
        if thread::Builder::new().spawn(look).is_err() {
            // The system may have a thread to spare at the next sweep.
            let _ = self.messages.send(FleetMessage::SweepFinished(None));
        }
    }

    /// Handles a message; false when the watch should stop.
    fn handle_message(&mut self, message: FleetMessage, observed: &mut Vec<Observation>) -> bool {
        let now = self.watch.context.clock().instant();
        match message {
            FleetMessage::Stop => return false,
            FleetMessage::ReadRequested(names) => {
                self.watch.health.expire(&names);
                self.read_now(names, now);
                self.start_health_checks();
            }
            FleetMessage::HealthChecked(changed) => {
                self.is_checking_health = false;
                if !changed.is_empty() {
                    self.read_now(changed, now);
                }
            }
            FleetMessage::AgentsRead { observations, left } => {
                for observation in &observations {
                    self.watch_lock(observation, now);
                }
                observed.extend(observations);
                if let Some(left) = left {
                    for name in left {
                        self.schedule_read(name, now);
                    }
                    self.is_fleet_read = true;
                    self.start_health_checks();
                    if !self.has_directories_to_watch() {
                        self.jobs.add(-1);
                    }
                }
            }
            FleetMessage::AgentRead(name, observation, cost) => {
                // The file may have changed again during the read.
                self.due_reads.end(&name, now + cost.pause());
                let Some(observation) = observation else {
                    return true;
                };
                self.watch_lock(&observation, now);
                observed.push(*observation);
            }
            FleetMessage::SweepFinished(missed) => {
                if let Some(missed) = missed {
                    self.apply_sweep(missed, now);
                }
                self.schedule_rereads(now);
                self.start_health_checks();
                self.next_sweep = Some(now + self.sweep_interval());
            }
            FleetMessage::PathChanged(path) => {
                self.backlog.queued_changes.fetch_sub(1, Ordering::Relaxed);
                self.handle_path_change(&path, now);
            }
            FleetMessage::ChangesLost => self.handle_lost_changes(now),
        }
        true
    }

    /// Reads agents ahead of the queue, whatever their stamps.
    fn read_now(&mut self, names: Vec<String>, now: Instant) {
        self.watch.observer.forget_contents(&names);
        for name in &names {
            if self.is_read_here(name) && self.due_reads.request(name.clone(), now) {
                self.jobs.add(1);
            }
        }
        self.host_polls.request_poll(names, true);
    }

    /// Checks the memories of several files that are due, in a thread of its own: each is read whole.
    fn start_health_checks(&mut self) {
        let mut agents = self.watch.context.config().agents.iter();
        if self.is_checking_health || !agents.any(|agent| agent.layout.is_some()) {
            return;
        }
        let (watch, messages) = (Arc::clone(&self.watch), self.messages.clone());
        let check = move || {
            let agents: Vec<&Agent> = watch.context.config().agents.iter().collect();
            let changed = catch_unwind(AssertUnwindSafe(|| watch.health.check_due(&agents)));
            // The watch may have ended.
            let _ = messages.send(FleetMessage::HealthChecked(changed.unwrap_or_default()));
        };
        // Without a thread, the next sweep tries again.
        if thread::Builder::new().spawn(check).is_ok() {
            self.is_checking_health = true;
            self.jobs.add(1);
        }
    }

    fn apply_sweep(&mut self, missed: UnwatchedChanges, now: Instant) {
        let new = self.watch_existing_directories(&missed.existing_directories);
        self.schedule_reads(missed.agents, now);
        // Files may have changed between the sweep and the watch.
        for path in new {
            if self.memory_directories.contains(&path) {
                self.schedule_reads_of_directory(&path, now);
            }
            let mut targets = self.targets_in(&path);
            targets.retain(ChangeTarget::is_report);
            self.handle_targets(targets, now, now);
        }
        if missed.has_config_changed {
            self.config_due = Some(now + CONFIG_DEBOUNCE);
        }
    }

    fn handle_path_change(&mut self, path: &Path, now: Instant) {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        let mut read_at = now;
        if self.change_scopes.contains_key(path) {
            // The watch on a directory ends when the directory is removed.
            self.watched_directories.remove(path);
            let mut sweep_at = now + MISSING_SWEEP_INTERVAL;
            if !self.rewatch_directory(path) {
                read_at = now + DIRECTORY_GRACE;
                sweep_at = read_at;
                self.missing_sweep_interval = DIRECTORY_GRACE;
            }
            self.next_sweep = self.next_sweep.map(|next| next.min(sweep_at));
        }
        // An event about the directory itself may concern any name in it.
        let mut targets = self.targets_in(path);
        let named = self.change_scopes.get(directory);
        let named = named.and_then(|names| names.get(name));
        targets.extend(named.into_iter().flatten().cloned());
        self.handle_targets(targets, read_at, now);
    }

    /// Returns what changes in a directory affect.
    fn targets_in(&self, directory: &Path) -> Vec<ChangeTarget> {
        let names = self.change_scopes.get(directory).into_iter();
        let targets = names.flat_map(|names| names.values().flatten());
        targets.cloned().collect()
    }

    /// Handles changes that the watcher dropped: every watched file may have changed.
    fn handle_lost_changes(&mut self, now: Instant) {
        let targets = [
            ChangeTarget::AllAgents,
            ChangeTarget::Ledger,
            ChangeTarget::Pauses,
            ChangeTarget::StateLog,
        ];
        self.handle_targets(targets.to_vec(), now, now);
        // A sweep looks at directories and at the config. Decisions about findings are read again at
        // the next scan that is due: to scan all memories for each loss would cause further ones.
        self.next_sweep = self.next_sweep.map(|_| now);
    }

    /// Reports changes, or schedules reads of the agents that they affect, for `read_at`.
    fn handle_targets(&mut self, targets: Vec<ChangeTarget>, read_at: Instant, now: Instant) {
        for target in targets {
            match target {
                ChangeTarget::Agent(name) => self.schedule_reads(vec![name], read_at),
                ChangeTarget::AllAgents => self.schedule_all_reads(read_at),
                ChangeTarget::Ledger => {
                    self.schedule_reads(self.stamps.forget_recorded(), now);
                    self.ledger_due.get_or_insert(now + LEDGER_DEBOUNCE);
                    self.start_health_checks();
                }
                ChangeTarget::Config => self.config_due = Some(now + CONFIG_DEBOUNCE),
                ChangeTarget::LintFiles => self.reread(self.agent_names(), now),
                // The loop notices a receiver that is gone.
                ChangeTarget::Pauses => drop(self.events.send(FleetEvent::PausesChanged)),
                ChangeTarget::StateLog => drop(self.events.send(FleetEvent::StatesRecorded)),
            }
        }
    }

    /// Schedules reads of agents whose memories have not been read for long.
    fn schedule_rereads(&mut self, now: Instant) {
        let names = self
            .rereads
            .take_due(&self.watch.context.config().agents, now);
        self.reread(names, now);
    }

    /// Schedules reads of agents whatever their stamps.
    fn reread(&mut self, names: Vec<String>, now: Instant) {
        self.watch.observer.forget_contents(&names);
        for name in &names {
            self.stamps.forget(name);
        }
        self.schedule_reads(names, now);
    }

    fn agent_names(&self) -> Vec<String> {
        let agents = self.watch.context.config().agents.iter();
        agents.map(|agent| agent.name.clone()).collect()
    }

    fn schedule_all_reads(&mut self, now: Instant) {
        self.schedule_reads(self.agent_names(), now);
    }

    /// Schedules reads of agents of this machine, and polls of those on hosts.
    fn schedule_reads(&mut self, names: Vec<String>, now: Instant) {
        let is_on_host = |name: &String| self.host_polls.has_agent(name);
        let (on_hosts, local): (Vec<_>, Vec<_>) = names.into_iter().partition(is_on_host);
        for name in local {
            self.schedule_read(name, now);
        }
        if !on_hosts.is_empty() {
            self.host_polls.request_poll(on_hosts, false);
        }
    }

    /// Whether an agent is one of this machine. A name that this config does not have came from an
    /// earlier one.
    fn is_read_here(&self, name: &str) -> bool {
        !self.host_polls.has_agent(name) && self.watch.context.config().agent(name).is_some()
    }

    /// Schedules a read of an agent of this machine, as soon as its limits allow.
    fn schedule_read(&mut self, name: String, now: Instant) {
        if !self.is_read_here(&name) {
            return;
        }
        if self.due_reads.schedule(name, now) {
            self.jobs.add(1);
        }
    }

    /// When a worker next has something to do, if one is free.
    fn next_dispatch(&self) -> Option<Instant> {
        let is_free = self.due_reads.running_count() < self.worker_count;
        self.due_reads.next_due().filter(|_| is_free)
    }

    /// Gives due reads to free workers, the longest due first.
    fn dispatch_due_reads(&mut self) {
        let now = self.watch.context.clock().instant();
        while self.due_reads.running_count() < self.worker_count
            && let Some(name) = self.due_reads.start_next(now)
        {
            if self.read_queue.send(name).is_err() {
                return; // The workers have ended.
            }
        }
    }
}

/// Reads the fleet in a thread of its own, as far as that takes no time: while it does, watcher and
/// workers continue. The directories of a large fleet are watched afterwards, and a sweep then finds
/// what has changed between.
fn start_first_read(
    watch: &Arc<Watch>,
    stamps: &Arc<ObservationStamps>,
    messages: &Sender<FleetMessage>,
) {
    let end = |messages: &Sender<FleetMessage>, left: &[&Agent]| {
        let left = left.iter().map(|agent| agent.name.clone());
        // The watch may have ended.
        let _ = messages.send(FleetMessage::AgentsRead {
            observations: Vec::new(),
            left: Some(left.collect()),
        });
    };
    let read = {
        let (watch, stamps, messages) = (Arc::clone(watch), Arc::clone(stamps), messages.clone());
        move || {
            let local = watch.context.local_agents();
            let report = |seen: Vec<(EarlierStamps, QuickObservation)>| {
                let record = |(earlier, quick): (_, QuickObservation)| {
                    stamps.record_quick(earlier, &quick);
                    quick.observation
                };
                let observations = seen.into_iter().map(record).collect();
                let left = None;
                let read = FleetMessage::AgentsRead { observations, left };
                messages.send(read).is_ok()
            };
            let observe = || {
                let prepare = stamps.read_earlier_stamps();
                watch.observer.observe_quick_agents(&local, prepare, report)
            };
            let left = catch_unwind(AssertUnwindSafe(observe));
            end(&messages, left.as_ref().unwrap_or(&local));
        }
    };
    if thread::Builder::new().spawn(read).is_err() {
        end(messages, &watch.context.local_agents());
    }
}

/// Starts the watcher, which sends what changes in the directories that it watches.
fn start_change_watcher(
    messages: Sender<FleetMessage>,
    backlog: Arc<ChangeBacklog>,
) -> notify::Result<RecommendedWatcher> {
    start_directory_watcher(move |event: notify::Result<notify::Event>| {
        if let Ok(event) = event {
            forward_changes(event, &messages, &backlog);
        }
    })
}

/// Queues the changes that an event of the watcher reports.
fn forward_changes(event: notify::Event, messages: &Sender<FleetMessage>, backlog: &ChangeBacklog) {
    // The watch may be stopping: then no message is received.
    if event.need_rescan() {
        let _ = messages.send(FleetMessage::ChangesLost);
        return;
    }
    let matters = match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    };
    for path in event.paths.into_iter().filter(|_| matters) {
        if backlog.queued_changes.fetch_add(1, Ordering::Relaxed) >= 4 * MAX_MESSAGES_PER_TURN {
            backlog.queued_changes.fetch_sub(1, Ordering::Relaxed);
            backlog.has_overflowed.store(true, Ordering::Relaxed);
            continue;
        }
        let _ = messages.send(FleetMessage::PathChanged(path));
    }
}

/// Starts up to `count` workers and returns their number. One suffices; if the system refuses all,
/// sends a notice.
fn start_workers(
    count: usize,
    events: &Sender<FleetEvent>,
    start: impl Fn() -> io::Result<()>,
) -> usize {
    for started in 0..count {
        if let Err(error) = start() {
            if started == 0 {
                let error = Error::from_thread_start(&error);
                let note = format!("agents of this machine are not read until a restart: {error}");
                // If the receiver is gone, the loop ends by itself.
                let _ = events.send(FleetEvent::Notice(note));
            }
            return started;
        }
    }
    count
}

fn run_read_worker(
    watch: &Watch,
    stamps: &ObservationStamps,
    queue: &Receiver<String>,
    messages: &Sender<FleetMessage>,
) {
    for name in queue {
        let clock = watch.context.clock();
        let (began, used) = (clock.instant(), clock.thread_time());
        let observe = || {
            watch.context.agent(&name).map(|agent| {
                stamps.record_stamps(agent);
                Box::new(watch.observer.observe(agent))
            })
        };
        let observation = catch_unwind(AssertUnwindSafe(observe))
            .ok()
            .and_then(Result::ok);
        stamps.record_outcome(&name, observation.as_deref());
        let cost = ReadCost {
            elapsed: clock.instant().duration_since(began),
            processor: clock.thread_time().saturating_sub(used),
        };
        if messages
            .send(FleetMessage::AgentRead(name, observation, cost))
            .is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
