//! The observation of hosts. Each host has a lane, a thread that connects to it, waits for it and
//! retries, so that a slow host delays no other. A poll of a host is one batch over all its due
//! agents.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::{FleetEvent, JobCounter};
use crate::config::{MemoryLocation, SshHost};
use crate::engine::{Engine, HostStatus, Observation};
use crate::error::Error;
use crate::transport::{ConnectionStatus, Reachability, Transport};

/// The most lanes; with more hosts some share a lane.
const MAX_HOST_LANES: usize = 128;

/// From how many hosts memories are read at the same time. Probing for changes does not count as
/// reading.
const MAX_PARALLEL_HOST_READS: usize = 16;

/// The shortest time between two polls of a host that local changes cause: of a baseline, a lock,
/// the ledger.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A request to poll agents, sent to a lane.
struct PollRequest {
    agents: Vec<String>,
    /// Requested by the operator: the lane connects even during a retry delay.
    is_forced: bool,
}

/// The lanes of all hosts. Dropping this ends them.
pub(super) struct HostLanes {
    lanes: Vec<Sender<PollRequest>>,
    /// The lane of each agent's host.
    lane_by_agent: HashMap<String, usize>,
    jobs: Arc<JobCounter>,
}

impl HostLanes {
    /// Starts the lanes. No agent is polled before a request.
    pub(super) fn start(
        engine: &Arc<Engine>,
        events: &Sender<FleetEvent>,
        jobs: &Arc<JobCounter>,
    ) -> HostLanes {
        let hosts = engine.host_statuses();
        let count = hosts.len().min(MAX_HOST_LANES);
        let mut lanes: Vec<Vec<PollSchedule>> = (0..count).map(|_| Vec::new()).collect();
        let mut lane_by_agent = HashMap::new();
        for (number, status) in hosts.into_iter().enumerate() {
            let lane = number % count;
            lane_by_agent.extend(status.agents.iter().map(|name| (name.clone(), lane)));
            lanes[lane].push(PollSchedule::new(engine, status));
        }
        let (permit_sender, permit_receiver) = bounded(MAX_PARALLEL_HOST_READS);
        for _ in 0..MAX_PARALLEL_HOST_READS {
            // The channel has room for exactly these.
            let _ = permit_sender.send(());
        }
        let start = |schedules: Vec<PollSchedule>| {
            let (sender, inbox) = unbounded();
            let hosts: Vec<String> = schedules.iter().map(|it| it.host.name.clone()).collect();
            let lane = HostLane {
                engine: Arc::clone(engine),
                events: events.clone(),
                jobs: Arc::clone(jobs),
                read_permits: (permit_sender.clone(), permit_receiver.clone()),
                schedules,
            };
            if let Err(error) = thread::Builder::new().spawn(move || lane.run(&inbox)) {
                let (hosts, error) = (hosts.join(", "), Error::from_thread_start(&error));
                let note = format!("not polled until a restart: {hosts}: {error}");
                // If the receiver is gone, the watch ends by itself.
                let _ = events.send(FleetEvent::Notice(note));
            }
            sender
        };
        HostLanes {
            lanes: lanes.into_iter().map(start).collect(),
            lane_by_agent,
            jobs: Arc::clone(jobs),
        }
    }

    /// Whether an agent is on a host.
    pub(super) fn has_agent(&self, agent: &str) -> bool {
        self.lane_by_agent.contains_key(agent)
    }

    /// Requests a poll of these agents soon; local agents among them are ignored.
    pub(super) fn request_poll(&self, agents: Vec<String>, is_forced: bool) {
        let mut requests: HashMap<usize, Vec<String>> = HashMap::new();
        for agent in agents {
            if let Some(lane) = self.lane_by_agent.get(&agent) {
                requests.entry(*lane).or_default().push(agent);
            }
        }
        for (lane, agents) in requests {
            self.jobs.add(1);
            if self.lanes[lane]
                .send(PollRequest { agents, is_forced })
                .is_err()
            {
                self.jobs.add(-1);
            }
        }
    }
}

/// The agents of one host, and when each is due for a poll.
struct PollSchedule {
    host: SshHost,
    poll_intervals: Vec<(String, Duration)>,
    due_polls: HashMap<String, Instant>,
    /// The earliest time of a poll that a local change causes.
    not_before: Option<Instant>,
    /// Whether the operator requested the poll.
    is_forced: bool,
    /// The status that was last reported.
    reported_status: HostStatus,
}

impl PollSchedule {
    fn new(engine: &Engine, reported: HostStatus) -> PollSchedule {
        let poll = |name: &String| match engine.config().agent(name).map(|agent| &agent.location) {
            Some(MemoryLocation::Remote {
                poll_seconds: poll, ..
            }) => Duration::from_secs((*poll).max(1).into()),
            _ => Duration::MAX,
        };
        let polls = reported
            .agents
            .iter()
            .map(|name| (name.clone(), poll(name)));
        PollSchedule {
            host: reported.host.clone(),
            poll_intervals: polls.collect(),
            due_polls: HashMap::new(),
            not_before: None,
            is_forced: false,
            reported_status: reported,
        }
    }

    /// Returns the time of the next poll.
    fn next_due(&self) -> Option<Instant> {
        self.due_polls.values().min().copied()
    }

    /// Adds the host's agents of a request to the due polls.
    fn apply_request(&mut self, request: &PollRequest, now: Instant) {
        let at = match (request.is_forced, self.not_before) {
            (false, Some(not_before)) => not_before.max(now),
            _ => now,
        };
        for name in &request.agents {
            if self.poll_intervals.iter().any(|(own, _)| own == name) {
                let due = self.due_polls.entry(name.clone()).or_insert(at);
                *due = (*due).min(at);
                self.is_forced |= request.is_forced;
            }
        }
    }

    fn agent_names(&self) -> Vec<String> {
        self.poll_intervals
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Returns the agents that are due at `now`.
    fn due_agents(&self, now: Instant) -> Vec<String> {
        self.poll_intervals
            .iter()
            .filter(|(name, _)| self.due_polls.get(name).is_some_and(|at| *at <= now))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Schedules the next polls after a poll of `names` from `began` to `now`.
    fn record_poll(
        &mut self,
        names: &[String],
        connection: &ConnectionStatus,
        began: Instant,
        now: Instant,
    ) {
        self.not_before = Some(now + MIN_POLL_INTERVAL);
        if connection.is_blocked {
            // Blocked until the operator requests a poll.
            self.due_polls.clear();
            return;
        }
        // The answer to a prompt causes a poll; until then polling is useless.
        if connection.reachability.is_failure() && connection.pending_prompt.is_none() {
            // No agent can be observed before the next attempt to connect; then all are. A host
            // without a retry delay, because it waits for the operator or was just lost, is not
            // retried constantly either.
            let next = connection
                .next_attempt_instant
                .unwrap_or(now)
                .max(now + MIN_POLL_INTERVAL);
            self.due_polls = self
                .agent_names()
                .into_iter()
                .map(|name| (name, next))
                .collect();
            return;
        }
        for (name, poll) in &self.poll_intervals {
            if names.contains(name) {
                // A poll that takes longer than its interval is not repeated without a pause.
                let next = began
                    .checked_add(*poll)
                    .map(|next| next.max(now + MIN_POLL_INTERVAL));
                match next {
                    Some(next) => self.due_polls.insert(name.clone(), next),
                    None => self.due_polls.remove(name),
                };
            }
        }
    }
}

struct HostLane {
    engine: Arc<Engine>,
    events: Sender<FleetEvent>,
    jobs: Arc<JobCounter>,
    /// The channel of read permits: returned to the sender, taken from the receiver.
    read_permits: (Sender<()>, Receiver<()>),
    schedules: Vec<PollSchedule>,
}

impl HostLane {
    /// Runs until the request channel or the event channel is closed.
    fn run(mut self, inbox: &Receiver<PollRequest>) {
        loop {
            let next = self
                .schedules
                .iter()
                .filter_map(PollSchedule::next_due)
                .min();
            let now = self.engine.clock().instant();
            let first = match next {
                Some(next) => inbox.recv_timeout(next.saturating_duration_since(now)),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if matches!(first, Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            self.jobs.add(1);
            let mut job_count = 1;
            let now = self.engine.clock().instant();
            for request in first.into_iter().chain(inbox.try_iter()) {
                job_count += 1;
                self.schedules
                    .iter_mut()
                    .for_each(|it| it.apply_request(&request, now));
            }
            let is_open = (0..self.schedules.len()).all(|number| self.poll_host(number));
            self.jobs.add(-job_count);
            if !is_open {
                return;
            }
        }
    }

    /// Polls a host if agents are due. Returns false if the event channel is closed.
    fn poll_host(&mut self, number: usize) -> bool {
        let began = self.engine.clock().instant();
        let mut names = self.schedules[number].due_agents(began);
        if names.is_empty() {
            return true;
        }
        let host = self.schedules[number].host.clone();
        let transport = self.engine.setup.transports.transport_for(Some(&host));
        if std::mem::take(&mut self.schedules[number].is_forced) {
            transport.retry_now();
        }
        if !self.connect_if_needed(number, &*transport) {
            return false;
        }
        let connection = transport.connection_status().unwrap_or_default();
        let before = self.schedules[number]
            .reported_status
            .connection
            .reachability;
        if connection.reachability.is_failure() || before.is_failure() {
            // A connection failure, or its end, concerns all agents of the host.
            names = self.schedules[number].agent_names();
        }
        let observations = self.observe_agents(&names);
        let connection = transport.connection_status().unwrap_or_default();
        let now = self.engine.clock().instant();
        self.schedules[number].record_poll(&names, &connection, began, now);
        let notes = self.engine.notes_of(&observations);
        let is_open = self.report_status(number, connection)
            && self.events.send(FleetEvent::Observed(observations)).is_ok();
        // Last, because it may wait for a lock.
        self.engine.note_states(&notes);
        is_open
    }

    /// Connects if not connected. Returns false if the event channel is closed.
    fn connect_if_needed(&mut self, number: usize, transport: &dyn Transport) -> bool {
        let before = transport.connection_status().unwrap_or_default();
        let paused = before
            .next_attempt_instant
            .is_some_and(|until| self.engine.clock().instant() < until);
        let waits = paused || before.is_blocked || before.pending_prompt.is_some();
        if before.reachability != Reachability::Connected
            && !waits
            && transport.connection_status().is_some()
        {
            let trying = ConnectionStatus {
                is_connecting: true,
                ..before
            };
            if !self.report_status(number, trying) {
                return false;
            }
        }
        // The result is read from the transport's connection status.
        drop(transport.ensure_connected());
        true
    }

    fn observe_agents(&self, names: &[String]) -> Vec<Observation> {
        let (permit_sender, permit_receiver) = &self.read_permits;
        let permit = || {
            // Cannot fail: every lane holds both ends.
            let _ = permit_receiver.recv();
            ReadPermit(permit_sender)
        };
        let agents = self.engine.agents_named(names);
        let look = || self.engine.observe_host_agents(&agents, permit);
        // A panic in one poll must not end the lane.
        catch_unwind(AssertUnwindSafe(look)).unwrap_or_default()
    }

    /// Reports a changed connection status. Returns false if the event channel is closed.
    fn report_status(&mut self, number: usize, connection: ConnectionStatus) -> bool {
        let reported = &mut self.schedules[number].reported_status;
        let status = HostStatus {
            connection,
            ..reported.clone()
        };
        if status.is_similar_to(reported) {
            return true;
        }
        *reported = status.clone();
        self.events
            .send(FleetEvent::HostsChanged(vec![status]))
            .is_ok()
    }
}

/// A permit to read memories, returned when dropped.
struct ReadPermit<'s>(&'s Sender<()>);

impl Drop for ReadPermit<'_> {
    fn drop(&mut self) {
        // Cannot block: the permit was taken from this channel.
        let _ = self.0.send(());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::config::{self, ConfigEnvironment};
    use crate::engine::{EngineSetup, Trigger};
    use crate::transport::SingleTransport;
    use crate::transport::local::LocalTransport;

    fn poll_schedule(polls: &[(&str, u64)]) -> PollSchedule {
        let host = SshHost {
            name: "box".to_string(),
            user: None,
            port: None,
            identity_file: None,
            timeout_seconds: 15,
        };
        let polls = polls.iter();
        let polls = polls.map(|(name, poll)| ((*name).to_string(), Duration::from_secs(*poll)));
        PollSchedule {
            reported_status: HostStatus {
                host: host.clone(),
                agents: Vec::new(),
                connection: ConnectionStatus::default(),
            },
            host,
            poll_intervals: polls.collect(),
            due_polls: HashMap::new(),
            not_before: None,
            is_forced: false,
        }
    }

    fn poll_request(agents: &[&str], is_forced: bool) -> PollRequest {
        let agents = agents.iter().map(|name| (*name).to_string());
        PollRequest {
            agents: agents.collect(),
            is_forced,
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn connected_status() -> ConnectionStatus {
        ConnectionStatus {
            reachability: Reachability::Connected,
            ..ConnectionStatus::default()
        }
    }

    #[test]
    fn agents_are_polled_at_their_intervals_together() {
        let mut schedule = poll_schedule(&[("slow", 30), ("quick", 10), ("quick-too", 10)]);
        let start = SystemClock.instant();
        assert_eq!(schedule.next_due(), None);
        schedule.apply_request(
            &poll_request(&["slow", "quick", "quick-too", "no such one"], true),
            start,
        );
        assert_eq!(schedule.due_agents(start), ["slow", "quick", "quick-too"]);
        schedule.record_poll(
            &schedule.agent_names(),
            &connected_status(),
            start,
            start + seconds(1),
        );
        assert_eq!(schedule.next_due(), Some(start + seconds(10)));
        assert!(schedule.due_agents(start + seconds(9)).is_empty());
        let later = start + seconds(10);
        assert_eq!(schedule.due_agents(later), ["quick", "quick-too"]);
        schedule.record_poll(
            &schedule.due_agents(later),
            &connected_status(),
            later,
            later,
        );
        assert_eq!(schedule.next_due(), Some(start + seconds(20)));
        assert_eq!(schedule.due_agents(start + seconds(30)).len(), 3);
    }

    #[test]
    fn remote_poll_sets_interval_per_agent() {
        let agent = |name: &str, lines: &str| {
            format!("[{name}]\nremote_host=box\nremote_memory=M.md\nbaseline=b.md\n{lines}\n")
        };
        let text = [
            "[general]\nremote_poll=30\n".to_string(),
            agent("slow", ""),
            agent("quick", "remote_poll=5"),
            agent("slowest", "remote_poll=3600"),
        ];
        let env = ConfigEnvironment::bare("/");
        let config = config::parse(text.concat().as_bytes(), Path::new("/a.conf"), &env);
        let engine = Engine::new(EngineSetup {
            config: config.unwrap(),
            clock: Arc::new(SystemClock),
            transports: Arc::new(SingleTransport(Arc::new(LocalTransport::new(Arc::new(
                SystemClock,
            ))))),
            user: "tester".to_string(),
            trigger: Trigger::Console,
            archive_group: None,
        });
        let hosts = engine.host_statuses();
        assert_eq!(hosts.len(), 1, "they share a session");
        let mut schedule = PollSchedule::new(&engine, hosts[0].clone());
        let start = SystemClock.instant();
        schedule.apply_request(&poll_request(&["slow", "quick", "slowest"], true), start);
        schedule.record_poll(
            &schedule.due_agents(start),
            &connected_status(),
            start,
            start,
        );
        assert!(schedule.due_agents(start + seconds(4)).is_empty());
        assert_eq!(schedule.due_agents(start + seconds(5)), ["quick"]);
        assert_eq!(schedule.due_agents(start + seconds(30)), ["slow", "quick"]);
        let all = ["slow", "quick", "slowest"];
        assert_eq!(schedule.due_agents(start + seconds(3600)), all);
    }

    #[test]
    fn only_operator_request_polls_at_once() {
        let mut schedule = poll_schedule(&[("a", 10)]);
        let start = SystemClock.instant();
        schedule.record_poll(&schedule.agent_names(), &connected_status(), start, start);
        schedule.apply_request(&poll_request(&["a"], false), start);
        assert_eq!(schedule.next_due(), Some(start + MIN_POLL_INTERVAL));
        assert!(!schedule.is_forced);
        schedule.apply_request(&poll_request(&["a"], true), start);
        assert_eq!(schedule.next_due(), Some(start));
        assert!(schedule.is_forced);
    }

    #[test]
    fn slow_host_is_polled_after_a_rest() {
        let mut schedule = poll_schedule(&[("a", 1)]);
        let start = SystemClock.instant();
        schedule.record_poll(
            &schedule.agent_names(),
            &connected_status(),
            start,
            start + seconds(5),
        );
        assert_eq!(
            schedule.next_due(),
            Some(start + seconds(5) + MIN_POLL_INTERVAL)
        );
    }

    #[test]
    fn host_waiting_for_operator_is_not_polled_constantly() {
        let mut schedule = poll_schedule(&[("a", 10), ("b", 60)]);
        let start = SystemClock.instant();
        let prompting = ConnectionStatus {
            reachability: Reachability::Unreachable,
            pending_prompt: Some("a password"),
            ..ConnectionStatus::default()
        };
        schedule.record_poll(&schedule.agent_names(), &prompting, start, start);
        assert_eq!(schedule.next_due(), Some(start + seconds(10)));
        let blocked = ConnectionStatus {
            pending_prompt: None,
            is_blocked: true,
            ..prompting
        };
        schedule.record_poll(&schedule.agent_names(), &blocked, start, start);
        assert_eq!(schedule.next_due(), None);
        schedule.apply_request(&poll_request(&["b"], true), start);
        assert_eq!(schedule.due_agents(start), ["b"]);
    }

    #[test]
    fn unreachable_host_is_not_polled_before_retry() {
        let mut schedule = poll_schedule(&[("a", 1), ("b", 60)]);
        let start = SystemClock.instant();
        schedule.record_poll(&schedule.agent_names(), &connected_status(), start, start);
        let away = ConnectionStatus {
            reachability: Reachability::Unreachable,
            next_attempt_instant: Some(start + seconds(40)),
            ..ConnectionStatus::default()
        };
        schedule.record_poll(&["a".to_string()], &away, start, start);
        assert!(schedule.due_agents(start + seconds(39)).is_empty());
        assert_eq!(schedule.due_agents(start + seconds(40)), ["a", "b"]);
        // A session that was just lost can often be reopened soon.
        let lost = ConnectionStatus {
            next_attempt_instant: None,
            ..away
        };
        schedule.record_poll(&schedule.agent_names(), &lost, start, start);
        assert!(schedule.due_agents(start).is_empty());
        assert_eq!(schedule.due_agents(start + MIN_POLL_INTERVAL), ["a", "b"]);
    }
}
