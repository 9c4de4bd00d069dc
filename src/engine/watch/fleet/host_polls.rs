//! The polls of all hosts. One thread schedules them and a few others carry them out. Those that
//! connect and probe wait for no host; only memories that changed are read by threads that wait. So a
//! host that is slow or dead delays no other. A poll of a host is one batch over all its due agents.

mod poll_schedule;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use self::poll_schedule::PollSchedule;
use super::observation_stamps::{AgentStamps, MemoryStamps, ObservationStamps};
use super::{FleetEvent, JobCounter};
use crate::base::error::Error;
use crate::engine::watch::Watch;
use crate::engine::{HostStatus, Observation};
use crate::store::observations::StateNote;
use crate::transport::{
    ConnectionStatus, MemoryObject, ProbeOutcome, Reachability, Transport, TransportError,
};

/// Threads that connect to hosts and evaluate probes.
const PROBE_THREADS: usize = 4;

/// Threads that read memories, and so from how many hosts they are read at the same time.
const READ_THREADS: usize = 16;

/// The most hosts that connect or reply to a probe at the same time.
const MAX_PROBED_HOSTS: usize = 128;

/// The polls of all hosts. Dropping this ends them.
pub(super) struct HostPolls {
    messages: Sender<PollMessage>,
    /// The number of each agent's host.
    host_by_agent: HashMap<String, usize>,
    jobs: Arc<JobCounter>,
}

/// What the scheduling thread learns. Hosts go by their number.
enum PollMessage {
    Requested {
        host: usize,
        request: PollRequest,
    },
    /// The host has replied to a probe, and its poll has not ended: memories have to be read.
    ProbeEnded,
    PollEnded(Box<EndedPoll>),
    Stop,
}

/// A request to poll agents of a host.
struct PollRequest {
    agents: Vec<String>,
    /// Requested by the operator: the host is connected to even during a retry delay.
    is_forced: bool,
}

/// A poll of a host.
struct HostPoll {
    host: usize,
    agents: Vec<String>,
    is_forced: bool,
    /// Counts among the hosts that are probed at the same time.
    is_probing: bool,
    began: Instant,
}

/// A poll that has ended.
struct EndedPoll {
    poll: HostPoll,
    connection: ConnectionStatus,
    at: Instant,
}

/// What a poll has found.
#[derive(Default)]
struct PollResult {
    observations: Vec<Observation>,
    /// The agents that are as they were observed last.
    confirmed: Vec<String>,
}

/// The agents of a poll whose memories have to be read.
struct UnreadAgents {
    agents: Vec<String>,
    /// The others, which are as they were observed last.
    confirmed: Vec<String>,
}

/// The next step of a poll.
enum PollStep {
    Connect(HostPoll),
    Probe(HostPoll),
    Evaluate {
        poll: HostPoll,
        generation: u64,
        outcome: ProbeOutcome,
    },
    /// Probes, and waits for replies.
    ProbeAgain(HostPoll),
    /// Reads memories that have changed.
    Read {
        poll: HostPoll,
        unread: UnreadAgents,
    },
    Record(Vec<StateNote>),
    /// Ends the thread that takes it.
    Stop,
}

impl Drop for HostPolls {
    fn drop(&mut self) {
        // The thread may have ended.
        let _ = self.messages.send(PollMessage::Stop);
    }
}

impl HostPolls {
    /// Starts the threads. No agent is polled before a request.
    pub(super) fn start(
        watch: &Arc<Watch>,
        events: &Sender<FleetEvent>,
        jobs: &Arc<JobCounter>,
        stamps: &Arc<ObservationStamps>,
    ) -> HostPolls {
        let hosts = watch.hosts.host_statuses();
        let (messages, inbox) = unbounded();
        let agents_of = |(number, status): (usize, &HostStatus)| {
            let agents = status.agents.iter();
            agents
                .map(move |name| (name.clone(), number))
                .collect::<Vec<_>>()
        };
        let host_by_agent = hosts.iter().enumerate().flat_map(agents_of).collect();
        let polls = HostPolls {
            messages: messages.clone(),
            host_by_agent,
            jobs: Arc::clone(jobs),
        };
        let started = start_threads(watch, events, jobs, stamps, hosts, messages, inbox);
        if let Err(error) = started {
            let error = Error::from_thread_start(&error);
            let note = format!("hosts are not polled until a restart: {error}");
            // If the receiver is gone, the watch ends by itself.
            let _ = events.send(FleetEvent::Notice(note));
        }
        polls
    }

    /// Whether an agent is on a host.
    pub(super) fn has_agent(&self, agent: &str) -> bool {
        self.host_by_agent.contains_key(agent)
    }

    /// Requests a poll of these agents soon; local agents among them are ignored.
    pub(super) fn request_poll(&self, agents: Vec<String>, is_forced: bool) {
        let mut requests: HashMap<usize, Vec<String>> = HashMap::new();
        for agent in agents {
            if let Some(host) = self.host_by_agent.get(&agent) {
                requests.entry(*host).or_default().push(agent);
            }
        }
        for (host, agents) in requests {
            self.jobs.add(1);
            let request = PollRequest { agents, is_forced };
            let message = PollMessage::Requested { host, request };
            if self.messages.send(message).is_err() {
                self.jobs.add(-1);
            }
        }
    }
}

fn start_threads(
    watch: &Arc<Watch>,
    events: &Sender<FleetEvent>,
    jobs: &Arc<JobCounter>,
    stamps: &Arc<ObservationStamps>,
    hosts: Vec<HostStatus>,
    messages: Sender<PollMessage>,
    inbox: Receiver<PollMessage>,
) -> std::io::Result<()> {
    if hosts.is_empty() {
        return Ok(());
    }
    let (probe_steps, probe_queue) = unbounded();
    let (read_steps, read_queue) = unbounded();
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let schedules = hosts.iter().zip(1..=count);
    let schedules =
        schedules.map(|(status, number)| PollSchedule::new(watch, status, (number, count)));
    let schedules = schedules.collect();
    let scheduler = PollScheduler {
        watch: Arc::clone(watch),
        jobs: Arc::clone(jobs),
        schedules,
        probe_steps: probe_steps.clone(),
        read_steps: read_steps.clone(),
        due_hosts: BTreeSet::new(),
        waiting_hosts: VecDeque::new(),
        probed_count: 0,
    };
    let worker = Arc::new(PollWorker {
        watch: Arc::clone(watch),
        events: events.clone(),
        jobs: Arc::clone(jobs),
        stamps: Arc::clone(stamps),
        messages,
        probe_steps,
        read_steps,
        reported: hosts.into_iter().map(Mutex::new).collect(),
    });
    for (queue, threads) in [(probe_queue, PROBE_THREADS), (read_queue, READ_THREADS)] {
        for _ in 0..threads.min(worker.reported.len()) {
            let (worker, queue) = (Arc::clone(&worker), queue.clone());
            let builder = thread::Builder::new().name("poll".into());
            builder.spawn(move || worker.run(&queue))?;
        }
    }
    let builder = thread::Builder::new().name("polls".into());
    builder.spawn(move || scheduler.run(&inbox)).map(drop)
}

/// The thread that decides which host is polled when.
struct PollScheduler {
    watch: Arc<Watch>,
    jobs: Arc<JobCounter>,
    schedules: Vec<PollSchedule>,
    probe_steps: Sender<PollStep>,
    read_steps: Sender<PollStep>,
    /// The hosts that are not being polled, by the time of their next poll.
    due_hosts: BTreeSet<(Instant, usize)>,
    /// Hosts whose time has come, and that wait because too many others are probed.
    waiting_hosts: VecDeque<usize>,
    probed_count: usize,
}

impl Drop for PollScheduler {
    fn drop(&mut self) {
        // Enough for all threads, however many have started.
        let queues = [
            (&self.probe_steps, PROBE_THREADS),
            (&self.read_steps, READ_THREADS),
        ];
        for (steps, threads) in queues {
            for _ in 0..threads {
                let _ = steps.send(PollStep::Stop);
            }
        }
    }
}

impl PollScheduler {
    /// Runs until it is stopped.
    fn run(mut self, inbox: &Receiver<PollMessage>) {
        loop {
            let first = match self.due_hosts.first() {
                Some((next, _)) => {
                    let now = self.watch.context.clock().instant();
                    inbox.recv_timeout(next.saturating_duration_since(now))
                }
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if matches!(first, Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            for message in first.into_iter().chain(inbox.try_iter()) {
                match message {
                    PollMessage::Requested { host, request } => {
                        let now = self.watch.context.clock().instant();
                        self.schedules[host].apply_request(&request, now);
                        self.reschedule(host);
                        self.jobs.add(-1);
                    }
                    PollMessage::ProbeEnded => self.probed_count -= 1,
                    PollMessage::PollEnded(ended) => {
                        self.probed_count -= usize::from(ended.poll.is_probing);
                        self.schedules[ended.poll.host].record_poll(&ended);
                        self.reschedule(ended.poll.host);
                    }
                    PollMessage::Stop => return,
                }
            }
            self.start_due_polls();
        }
    }

    /// Takes note of a changed schedule.
    fn reschedule(&mut self, host: usize) {
        let schedule = &mut self.schedules[host];
        let next = schedule.next_due().filter(|_| !schedule.is_running);
        let last = std::mem::replace(&mut schedule.scheduled, next);
        if last != next {
            if let Some(last) = last {
                self.due_hosts.remove(&(last, host));
            }
            self.due_hosts.extend(next.map(|next| (next, host)));
        }
    }

    fn start_due_polls(&mut self) {
        let now = self.watch.context.clock().instant();
        while let Some((_, host)) = self.due_hosts.first().filter(|(next, _)| *next <= now) {
            self.waiting_hosts.push_back(*host);
            self.schedules[*host].is_running = true;
            self.reschedule(*host);
        }
        while self.probed_count < MAX_PROBED_HOSTS
            && let Some(host) = self.waiting_hosts.pop_front()
        {
            self.probed_count += 1;
            self.jobs.add(1);
            let poll = self.schedules[host].begin_poll(host, now);
            // A worker holds the other end.
            let _ = self.probe_steps.send(PollStep::Connect(poll));
        }
    }
}

/// Carries out the steps of polls, on several threads.
struct PollWorker {
    watch: Arc<Watch>,
    events: Sender<FleetEvent>,
    jobs: Arc<JobCounter>,
    stamps: Arc<ObservationStamps>,
    messages: Sender<PollMessage>,
    probe_steps: Sender<PollStep>,
    read_steps: Sender<PollStep>,
    /// The status of each host that was last reported.
    reported: Vec<Mutex<HostStatus>>,
}

impl PollWorker {
    fn run(&self, queue: &Receiver<PollStep>) {
        let steps = queue.iter();
        steps
            .take_while(|step| !matches!(step, PollStep::Stop))
            .for_each(|step| self.take_step(step));
    }

    fn take_step(&self, step: PollStep) {
        match step {
            PollStep::Connect(poll) => self.connect(poll),
            PollStep::Probe(poll) => {
                let status = self.connection_status_of(poll.host);
                self.probe(poll, &status);
            }
            PollStep::Evaluate {
                poll,
                generation,
                outcome,
            } => match catch_unwind(AssertUnwindSafe(outcome)) {
                Ok(Some(objects)) => self.evaluate(poll, generation, objects),
                _ => {
                    let poll = self.end_probe(poll);
                    // The watch may have ended.
                    let _ = self.read_steps.send(PollStep::ProbeAgain(poll));
                }
            },
            PollStep::ProbeAgain(poll) => {
                let generation = self.watch.observer.next_generation();
                let transport = self.transport_of(poll.host);
                let agents = self.watch.hosts.agents_named(&poll.agents);
                let memories = agents.iter().map(|agent| agent.observed_path());
                let memories: Vec<&Path> = memories.collect();
                let probe = || transport.probe(&memories);
                let objects = catch_unwind(AssertUnwindSafe(probe)).unwrap_or_default();
                self.evaluate(poll, generation, objects);
            }
            PollStep::Read { poll, unread } => {
                let agents = self.watch.hosts.agents_named(&unread.agents);
                let read = || self.watch.observer.observe_host_agents(&agents);
                // A panic in one poll must not end the thread.
                let result = PollResult {
                    observations: catch_unwind(AssertUnwindSafe(read)).unwrap_or_default(),
                    confirmed: unread.confirmed,
                };
                let notes = self.report_poll(poll, result);
                self.record(&notes);
            }
            PollStep::Record(notes) => self.record(&notes),
            PollStep::Stop => {}
        }
    }

    fn transport_of(&self, host: usize) -> Arc<dyn Transport> {
        let host = self.reported(host).host.clone();
        self.watch.context.transports().transport_for(Some(&host))
    }

    fn connection_status_of(&self, host: usize) -> ConnectionStatus {
        let host = self.reported(host).host.clone();
        self.watch.hosts.connection_status(&host)
    }

    fn reported(&self, host: usize) -> MutexGuard<'_, HostStatus> {
        let status = self.reported[host].lock();
        status.unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, poll: HostPoll) {
        let transport = self.transport_of(poll.host);
        let Some(connection) = transport.connection() else {
            return self.probe(poll, &ConnectionStatus::default());
        };
        connection.retry_in_background();
        if poll.is_forced {
            connection.retry_now();
        }
        let before = connection.status();
        if before.reachability == Reachability::Connected {
            return self.probe(poll, &before);
        }
        let now = self.watch.context.clock().instant();
        let is_paused = before.next_attempt_instant.is_some_and(|until| now < until);
        if !(is_paused || before.is_blocked || before.pending_prompt.is_some()) {
            let trying = ConnectionStatus {
                is_connecting: true,
                ..before
            };
            self.report_status(poll.host, &trying);
        }
        let next_steps = self.probe_steps.clone();
        connection.start_connecting(Box::new(move || {
            // The watch may have ended.
            let _ = next_steps.send(PollStep::Probe(poll));
        }));
    }

    fn probe(&self, mut poll: HostPoll, connection: &ConnectionStatus) {
        let transport = self.transport_of(poll.host);
        let reported = self.reported(poll.host);
        if connection.reachability.is_failure() || reported.connection.reachability.is_failure() {
            // A connection failure, or its end, concerns all agents of the host.
            poll.agents = reported.agents.clone();
        }
        drop(reported);
        // Before the probe: what is seen later has a later one.
        let generation = self.watch.observer.next_generation();
        let agents = self.watch.hosts.agents_named(&poll.agents);
        let memories = agents.iter().map(|agent| agent.observed_path());
        let memories: Vec<&Path> = memories.collect();
        let next_steps = self.probe_steps.clone();
        let when_done = move |outcome| {
            // The watch may have ended.
            let _ = next_steps.send(PollStep::Evaluate {
                poll,
                generation,
                outcome,
            });
        };
        transport.start_probe(&memories, Box::new(when_done));
    }

    fn evaluate(
        &self,
        poll: HostPoll,
        generation: u64,
        objects: Vec<Result<MemoryObject, TransportError>>,
    ) {
        // A panic in one poll must not end the thread.
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.evaluate_probe(&poll, generation, objects)
        }));
        let without_result = |_| {
            for agent in &poll.agents {
                self.stamps.forget(agent);
            }
            Ok(PollResult::default())
        };
        let result = match result.unwrap_or_else(without_result) {
            Ok(result) => result,
            Err(unread) => {
                let poll = self.end_probe(poll);
                // The watch may have ended.
                let _ = self.read_steps.send(PollStep::Read { poll, unread });
                return;
            }
        };
        let notes = self.report_poll(poll, result);
        if self.watch.context.observations().has_news(&notes) {
            // That may wait for a lock.
            let _ = self.read_steps.send(PollStep::Record(notes));
        } else {
            self.jobs.add(-1);
        }
    }

    /// Lets the scheduler probe another host while this one is read.
    fn end_probe(&self, poll: HostPoll) -> HostPoll {
        if poll.is_probing {
            let _ = self.messages.send(PollMessage::ProbeEnded);
        }
        HostPoll {
            is_probing: false,
            ..poll
        }
    }

    /// Returns what a probe shows, or which memories have to be read. Agents whose stamps are known
    /// are not observed, unless the operator requested the poll.
    fn evaluate_probe(
        &self,
        poll: &HostPoll,
        generation: u64,
        objects: Vec<Result<MemoryObject, TransportError>>,
    ) -> Result<PollResult, UnreadAgents> {
        let mut confirmed = Vec::new();
        let (mut agents, mut probed) = (Vec::new(), Vec::new());
        let began = self.watch.context.clock().now();
        let reader = self.stamps.read();
        for (agent, object) in self
            .watch
            .hosts
            .agents_named(&poll.agents)
            .into_iter()
            .zip(objects)
        {
            let memory = MemoryStamps::of_probed(&object);
            let stamps = memory.map(|memory| AgentStamps {
                memory,
                other: reader.other_stamps(agent),
            });
            let is_known = |stamps| self.stamps.are_known(&agent.name, stamps);
            if !poll.is_forced && stamps.as_ref().is_some_and(is_known) {
                confirmed.push(agent.name.clone());
                continue;
            }
            match stamps {
                Some(stamps) => self.stamps.record(&agent.name, stamps, began),
                None => self.stamps.forget(&agent.name),
            }
            agents.push(agent);
            probed.push(object);
        }
        let observations = if agents.is_empty() {
            Some(Vec::new())
        } else {
            self.watch
                .observer
                .observe_probed_agents(&agents, generation, probed)
        };
        for (index, agent) in agents.iter().enumerate() {
            let seen = observations.as_ref().and_then(|seen| seen.get(index));
            self.stamps.record_outcome(&agent.name, seen);
        }
        match observations {
            Some(observations) => Ok(PollResult {
                observations,
                confirmed,
            }),
            None => Err(UnreadAgents {
                agents: agents.into_iter().map(|agent| agent.name.clone()).collect(),
                confirmed,
            }),
        }
    }

    /// Reports the result of a poll; returns what is to be recorded.
    fn report_poll(&self, poll: HostPoll, result: PollResult) -> Vec<StateNote> {
        let connection = self.connection_status_of(poll.host);
        let notes = StateNote::of_observations(&result.observations, self.watch.context.trigger());
        self.report_status(poll.host, &connection);
        let ended = EndedPoll {
            poll,
            connection,
            at: self.watch.context.clock().instant(),
        };
        if !result.observations.is_empty() {
            self.report(FleetEvent::Observed(result.observations));
        }
        if !result.confirmed.is_empty() {
            let (agents, at) = (result.confirmed, self.watch.context.clock().now());
            let texts = self.watch.observer.remote_texts();
            agents.iter().for_each(|agent| texts.confirm(agent, at));
            self.report(FleetEvent::Confirmed { agents, at });
        }
        let _ = self.messages.send(PollMessage::PollEnded(Box::new(ended)));
        notes
    }

    fn record(&self, notes: &[StateNote]) {
        self.watch.context.observations().note(notes);
        self.jobs.add(-1);
    }

    /// Reports a changed connection status.
    fn report_status(&self, host: usize, connection: &ConnectionStatus) {
        let mut reported = self.reported(host);
        if !reported.is_similar_to(connection) {
            reported.connection = connection.clone();
            let status = reported.clone();
            drop(reported);
            self.report(FleetEvent::HostsChanged(vec![status]));
        }
    }

    fn report(&self, event: FleetEvent) {
        if self.events.send(event).is_err() {
            // Without a receiver there is nothing to watch for.
            let _ = self.messages.send(PollMessage::Stop);
        }
    }
}
