//! When the agents of a host are polled.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{EndedPoll, HostPoll, PollRequest};
use crate::engine::HostStatus;
use crate::engine::watch::Watch;

/// The shortest time between two polls of a host that local changes cause: of a baseline, a lock,
/// the ledger.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The agents of one host, and when each is due for a poll.
pub(super) struct PollSchedule {
    poll_intervals: Vec<(String, Duration)>,
    due_polls: HashMap<String, Instant>,
    /// The earliest time of a poll that a local change causes.
    not_before: Option<Instant>,
    /// Whether the operator requested the poll.
    is_forced: bool,
    /// Whether a poll is running, or about to.
    pub(super) is_running: bool,
    /// The time for which the scheduler has noted the next poll.
    pub(super) scheduled: Option<Instant>,
    /// The part of its interval after which an agent is polled for the second time, so that the polls
    /// of the hosts of a fleet are spread over it.
    first_share: Option<(u32, u32)>,
}

impl PollSchedule {
    /// Creates a schedule without due polls. `share` is the host's number, from 1 on, and that of all
    /// hosts.
    pub(super) fn new(watch: &Watch, host: &HostStatus, share: (u32, u32)) -> PollSchedule {
        let poll = |name: &String| {
            let agent = watch.context.config().agent(name);
            let remote = agent.and_then(|agent| agent.remote.as_ref());
            remote.map_or(Duration::MAX, |it| {
                Duration::from_secs(it.poll_seconds.max(1).into())
            })
        };
        let polls = host.agents.iter().map(|name| (name.clone(), poll(name)));
        PollSchedule {
            poll_intervals: polls.collect(),
            due_polls: HashMap::new(),
            not_before: None,
            is_forced: false,
            is_running: false,
            scheduled: None,
            first_share: Some(share),
        }
    }

    /// Returns the time of the next poll.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due_polls.values().min().copied()
    }

    /// Adds the host's agents of a request to the due polls.
    pub(super) fn apply_request(&mut self, request: &PollRequest, now: Instant) {
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

    /// Begins a poll of the agents that are due at `now`.
    pub(super) fn begin_poll(&mut self, host: usize, now: Instant) -> HostPoll {
        let agents = self.due_agents(now);
        // What is requested from here on is about a later state than the poll may see.
        for name in &agents {
            self.due_polls.remove(name);
        }
        HostPoll {
            host,
            agents,
            is_forced: std::mem::take(&mut self.is_forced),
            is_probing: true,
            began: now,
        }
    }

    /// Returns the agents that are due at `now`.
    fn due_agents(&self, now: Instant) -> Vec<String> {
        self.poll_intervals
            .iter()
            .filter(|(name, _)| self.due_polls.get(name).is_some_and(|at| *at <= now))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Schedules the next polls after one that ended.
    pub(super) fn record_poll(&mut self, ended: &EndedPoll) {
        let EndedPoll {
            poll,
            connection,
            at: now,
        } = ended;
        self.is_running = false;
        self.not_before = Some(*now + MIN_POLL_INTERVAL);
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
                .unwrap_or(*now)
                .max(*now + MIN_POLL_INTERVAL);
            self.due_polls = self
                .agent_names()
                .into_iter()
                .map(|name| (name, next))
                .collect();
            return;
        }
        let share = self.first_share.take();
        for (name, interval) in &self.poll_intervals {
            if poll.agents.contains(name) {
                let pause = match share {
                    Some((number, count)) => *interval / count * number,
                    None => *interval,
                };
                // A poll that takes longer than its interval is not repeated without a pause.
                let next = poll
                    .began
                    .checked_add(pause)
                    .map(|next| next.max(*now + MIN_POLL_INTERVAL));
                let requested = self.due_polls.remove(name);
                let earliest = if self.is_forced {
                    *now
                } else {
                    *now + MIN_POLL_INTERVAL
                };
                let requested = requested.map(|due| due.max(earliest));
                let next = next.into_iter().chain(requested).min();
                self.due_polls.extend(next.map(|next| (name.clone(), next)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::base::clock::{Clock, SystemClock};
    use crate::config::{self, ConfigEnvironment};
    use crate::engine::{Engine, EngineSetup, Trigger};
    use crate::transport::local::LocalTransport;
    use crate::transport::{ConnectionStatus, Reachability, SingleTransport};

    fn poll_schedule(polls: &[(&str, u64)]) -> PollSchedule {
        let polls = polls.iter();
        let polls = polls.map(|(name, poll)| ((*name).to_string(), Duration::from_secs(*poll)));
        PollSchedule {
            poll_intervals: polls.collect(),
            due_polls: HashMap::new(),
            not_before: None,
            is_forced: false,
            is_running: false,
            scheduled: None,
            first_share: None,
        }
    }

    fn ended_poll(
        agents: &[String],
        connection: &ConnectionStatus,
        began: Instant,
        at: Instant,
    ) -> EndedPoll {
        EndedPoll {
            poll: HostPoll {
                host: 0,
                agents: agents.to_vec(),
                is_forced: false,
                is_probing: false,
                began,
            },
            connection: connection.clone(),
            at,
        }
    }

    /// Polls the agents that are due.
    fn poll_due(schedule: &mut PollSchedule, began: Instant, at: Instant) {
        let poll = schedule.begin_poll(0, began);
        schedule.record_poll(&ended_poll(&poll.agents, &connected_status(), began, at));
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
        poll_due(&mut schedule, start, start + seconds(1));
        assert_eq!(schedule.next_due(), Some(start + seconds(10)));
        assert!(schedule.due_agents(start + seconds(9)).is_empty());
        let later = start + seconds(10);
        assert_eq!(schedule.due_agents(later), ["quick", "quick-too"]);
        poll_due(&mut schedule, later, later);
        assert_eq!(schedule.next_due(), Some(start + seconds(20)));
        assert_eq!(schedule.due_agents(start + seconds(30)).len(), 3);
    }

    #[test]
    fn request_during_a_poll_is_polled_again() {
        let start = SystemClock.instant();
        let ended = |schedule: &mut PollSchedule, agents: &[String]| {
            let at = start + seconds(2);
            schedule.record_poll(&ended_poll(agents, &connected_status(), start, at));
            schedule.next_due().unwrap() - at
        };
        let mut schedule = poll_schedule(&[("a", 30)]);
        for (is_forced, pause) in [(None, 28), (Some(false), 1), (Some(true), 0)] {
            schedule.apply_request(&poll_request(&["a"], true), start);
            let poll = schedule.begin_poll(0, start);
            assert_eq!(poll.agents, ["a"]);
            if let Some(is_forced) = is_forced {
                schedule.apply_request(&poll_request(&["a"], is_forced), start + seconds(1));
            }
            assert_eq!(ended(&mut schedule, &poll.agents), seconds(pause));
            schedule = poll_schedule(&[("a", 30)]);
        }
    }

    #[test]
    fn second_polls_of_a_fleet_are_spread() {
        let start = SystemClock.instant();
        let next = [1, 2, 3].map(|number| {
            let mut schedule = poll_schedule(&[("a", 30)]);
            schedule.first_share = Some((number, 3));
            schedule.record_poll(&ended_poll(
                &schedule.agent_names(),
                &connected_status(),
                start,
                start,
            ));
            let second = schedule.next_due().unwrap();
            poll_due(&mut schedule, second, second);
            (second, schedule.next_due().unwrap() - second)
        });
        let spread = [10, 20, 30].map(|it| (start + seconds(it), seconds(30)));
        assert_eq!(next, spread);
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
            layouts: Default::default(),
        });
        let hosts = engine.hosts().host_statuses();
        assert_eq!(hosts.len(), 1, "they share a session");
        let mut schedule = PollSchedule::new(engine.watch(), &hosts[0], (1, 1));
        let start = SystemClock.instant();
        schedule.apply_request(&poll_request(&["slow", "quick", "slowest"], true), start);
        poll_due(&mut schedule, start, start);
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
        schedule.record_poll(&ended_poll(
            &schedule.agent_names(),
            &connected_status(),
            start,
            start,
        ));
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
        schedule.record_poll(&ended_poll(
            &schedule.agent_names(),
            &connected_status(),
            start,
            start + seconds(5),
        ));
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
        schedule.record_poll(&ended_poll(
            &schedule.agent_names(),
            &prompting,
            start,
            start,
        ));
        assert_eq!(schedule.next_due(), Some(start + seconds(10)));
        let blocked = ConnectionStatus {
            pending_prompt: None,
            is_blocked: true,
            ..prompting
        };
        schedule.record_poll(&ended_poll(&schedule.agent_names(), &blocked, start, start));
        assert_eq!(schedule.next_due(), None);
        schedule.apply_request(&poll_request(&["b"], true), start);
        assert_eq!(schedule.due_agents(start), ["b"]);
    }

    #[test]
    fn unreachable_host_is_not_polled_before_retry() {
        let mut schedule = poll_schedule(&[("a", 1), ("b", 60)]);
        let start = SystemClock.instant();
        schedule.record_poll(&ended_poll(
            &schedule.agent_names(),
            &connected_status(),
            start,
            start,
        ));
        let away = ConnectionStatus {
            reachability: Reachability::Unreachable,
            next_attempt_instant: Some(start + seconds(40)),
            ..ConnectionStatus::default()
        };
        schedule.record_poll(&ended_poll(&["a".to_string()], &away, start, start));
        assert!(schedule.due_agents(start + seconds(39)).is_empty());
        assert_eq!(schedule.due_agents(start + seconds(40)), ["a", "b"]);
        // A session that was just lost can often be reopened soon.
        let lost = ConnectionStatus {
            next_attempt_instant: None,
            ..away
        };
        schedule.record_poll(&ended_poll(&schedule.agent_names(), &lost, start, start));
        assert!(schedule.due_agents(start).is_empty());
        assert_eq!(schedule.due_agents(start + MIN_POLL_INTERVAL), ["a", "b"]);
    }
}
