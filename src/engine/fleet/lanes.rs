//! The watch of hosts. Each has a lane of its own, in which it is connected to,
//! waited for and tried again: whatever a host does or does not do, it keeps no
//! other waiting. A look at a host is one batch over all its agents.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::{FleetEvent, JobCounter};
use crate::config::{Host, MemoryLocation};
use crate::engine::{Engine, HostStatus, Observation};
use crate::transport::{ConnectionStatus, Reachability, Transport};

/// How many lanes there are; with more hosts than that some share one.
const MAX_HOST_LANES: usize = 128;

/// From how many hosts memories are read at the same time. Asking what changed is
/// no reading.
const MIN_HOSTS_TO_LIMIT_READS: usize = 16;

/// How often a host is looked at, at most, because something changed here: a
/// baseline, a lock, the ledger.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What a lane is asked for.
struct PollRequest {
    agents: Vec<String>,
    /// By the operator: also a host that is left alone for a while is tried.
    at_once: bool,
}

/// The lanes of all hosts. They end when this is dropped.
pub(super) struct HostLanes {
    lanes: Vec<Sender<PollRequest>>,
    /// Which lane an agent's host has.
    of: HashMap<String, usize>,
    jobs: Arc<JobCounter>,
}

impl HostLanes {
    /// Starts a lane for each host. Nobody is looked at before it is asked for.
    pub(super) fn start(
        engine: &Arc<Engine>,
        events: &Sender<FleetEvent>,
        jobs: &Arc<JobCounter>,
    ) -> HostLanes {
        let hosts = engine.hosts();
        let count = hosts.len().min(MAX_HOST_LANES);
        let mut lanes: Vec<Vec<PollSchedule>> = (0..count).map(|_| Vec::new()).collect();
        let mut of = HashMap::new();
        for (number, status) in hosts.into_iter().enumerate() {
            let lane = number % count;
            of.extend(status.agents.iter().map(|name| (name.clone(), lane)));
            lanes[lane].push(PollSchedule::new(engine, status));
        }
        let (give, take) = bounded(MIN_HOSTS_TO_LIMIT_READS);
        for _ in 0..MIN_HOSTS_TO_LIMIT_READS {
            // There is room for exactly these.
            let _ = give.send(());
        }
        let start = |rounds| {
            let (sender, inbox) = unbounded();
            let lane = HostLane {
                engine: Arc::clone(engine),
                events: events.clone(),
                jobs: Arc::clone(jobs),
                permits: (give.clone(), take.clone()),
                rounds,
            };
            thread::spawn(move || lane.run(&inbox));
            sender
        };
        HostLanes {
            lanes: lanes.into_iter().map(start).collect(),
            of,
            jobs: Arc::clone(jobs),
        }
    }

    /// Whether an agent is on a host.
    pub(super) fn have(&self, agent: &str) -> bool {
        self.of.contains_key(agent)
    }

    /// These agents should be looked at soon; others than those on hosts are left
    /// out.
    pub(super) fn ask(&self, agents: Vec<String>, at_once: bool) {
        let mut asks: HashMap<usize, Vec<String>> = HashMap::new();
        for agent in agents {
            if let Some(lane) = self.of.get(&agent) {
                asks.entry(*lane).or_default().push(agent);
            }
        }
        for (lane, agents) in asks {
            self.jobs.change(1);
            if self.lanes[lane]
                .send(PollRequest { agents, at_once })
                .is_err()
            {
                self.jobs.change(-1);
            }
        }
    }
}

/// The agents of one host, and when each should be looked at again.
struct PollSchedule {
    host: Host,
    polls: Vec<(String, Duration)>,
    due: HashMap<String, Instant>,
    /// It is not looked at earlier because something changed here.
    rested: Option<Instant>,
    /// The operator asked for it.
    hurry: bool,
    /// What was told of the host last.
    told: HostStatus,
}

impl PollSchedule {
    fn new(engine: &Engine, told: HostStatus) -> PollSchedule {
        let poll = |name: &String| match engine.config().agent(name).map(|agent| &agent.place) {
            Some(MemoryLocation::Remote { poll, .. }) => Duration::from_secs((*poll).max(1).into()),
            _ => Duration::MAX,
        };
        let polls = told.agents.iter().map(|name| (name.clone(), poll(name)));
        PollSchedule {
            host: told.host.clone(),
            polls: polls.collect(),
            due: HashMap::new(),
            rested: None,
            hurry: false,
            told,
        }
    }

    /// When it should be looked at next.
    fn next(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    /// Some of its agents are wanted.
    fn want(&mut self, ask: &PollRequest, now: Instant) {
        let at = match (ask.at_once, self.rested) {
            (false, Some(rested)) => rested.max(now),
            _ => now,
        };
        for name in &ask.agents {
            if self.polls.iter().any(|(own, _)| own == name) {
                let due = self.due.entry(name.clone()).or_insert(at);
                *due = (*due).min(at);
                self.hurry |= ask.at_once;
            }
        }
    }

    fn all(&self) -> Vec<String> {
        self.polls.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Those whose time has come.
    fn ready(&self, now: Instant) -> Vec<String> {
        let ready = |name: &&(String, Duration)| self.due.get(&name.0).is_some_and(|at| *at <= now);
        let ready = self.polls.iter().filter(ready);
        ready.map(|(name, _)| name.clone()).collect()
    }

    /// These were looked at, from `began` to `now`.
    fn looked(
        &mut self,
        names: &[String],
        contact: &ConnectionStatus,
        began: Instant,
        now: Instant,
    ) {
        self.rested = Some(now + MIN_POLL_INTERVAL);
        if contact.barred {
            // Until the operator wants it.
            self.due.clear();
            return;
        }
        // What comes of a question is told; till then there is nothing to be seen.
        if contact.reach.is_trouble() && contact.asks.is_none() {
            // Nobody on it can be looked at before it is tried again; then all are.
            // One that is not left alone, because it waits for the operator or was
            // just lost, is not tried all the time, either.
            let next = contact.until.unwrap_or(now).max(now + MIN_POLL_INTERVAL);
            self.due = self.all().into_iter().map(|name| (name, next)).collect();
            return;
        }
        for (name, poll) in &self.polls {
            if names.contains(name) {
                // Whoever takes longer than that to look at is not looked at all
                // the time.
                let next = began
                    .checked_add(*poll)
                    .map(|next| next.max(now + MIN_POLL_INTERVAL));
                match next {
                    Some(next) => self.due.insert(name.clone(), next),
                    None => self.due.remove(name),
                };
            }
        }
    }
}

struct HostLane {
    engine: Arc<Engine>,
    events: Sender<FleetEvent>,
    jobs: Arc<JobCounter>,
    /// Where permits to read are given back, and where they are had.
    permits: (Sender<()>, Receiver<()>),
    rounds: Vec<PollSchedule>,
}

impl HostLane {
    /// Goes on until nobody asks or listens any more.
    fn run(mut self, inbox: &Receiver<PollRequest>) {
        loop {
            let next = self.rounds.iter().filter_map(PollSchedule::next).min();
            let now = self.engine.clock().instant();
            let first = match next {
                Some(next) => inbox.recv_timeout(next.saturating_duration_since(now)),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if matches!(first, Err(RecvTimeoutError::Disconnected)) {
                return;
            }
            self.jobs.change(1);
            let mut asked = 1;
            let now = self.engine.clock().instant();
            for ask in first.into_iter().chain(inbox.try_iter()) {
                asked += 1;
                self.rounds.iter_mut().for_each(|it| it.want(&ask, now));
            }
            let listened = (0..self.rounds.len()).all(|number| self.look(number));
            self.jobs.change(-asked);
            if !listened {
                return;
            }
        }
    }

    /// Looks at a host if it is time to; whether somebody listens.
    fn look(&mut self, number: usize) -> bool {
        let began = self.engine.clock().instant();
        let mut names = self.rounds[number].ready(began);
        if names.is_empty() {
            return true;
        }
        let host = self.rounds[number].host.clone();
        let transport = self.engine.setup.transports.to(Some(&host));
        if std::mem::take(&mut self.rounds[number].hurry) {
            transport.retry_now();
        }
        if !self.approach(number, &*transport) {
            return false;
        }
        let contact = transport.contact().unwrap_or_default();
        let before = self.rounds[number].told.contact.reach;
        if contact.reach.is_trouble() || before.is_trouble() {
            // What holds for one of them holds for all.
            names = self.rounds[number].all();
        }
        let seen = self.observe(&names);
        let contact = transport.contact().unwrap_or_default();
        let now = self.engine.clock().instant();
        self.rounds[number].looked(&names, &contact, began, now);
        self.tell(number, contact) && self.events.send(FleetEvent::Observed(seen)).is_ok()
    }

    /// Connects, if that is not done; whether somebody listens.
    fn approach(&mut self, number: usize, transport: &dyn Transport) -> bool {
        let before = transport.contact().unwrap_or_default();
        let paused = before
            .until
            .is_some_and(|until| self.engine.clock().instant() < until);
        let waits = paused || before.barred || before.asks.is_some();
        if before.reach != Reachability::Up && !waits && transport.contact().is_some() {
            let trying = ConnectionStatus {
                trying: true,
                ..before
            };
            if !self.tell(number, trying) {
                return false;
            }
        }
        // What came of it is asked of the transport.
        drop(transport.ensure_connected());
        true
    }

    fn observe(&self, names: &[String]) -> Vec<Observation> {
        let (give, take) = &self.permits;
        let permit = || {
            // Both ends are held by every lane.
            let _ = take.recv();
            ReadPermit(give)
        };
        let agents = self.engine.agents_of(names);
        let look = || self.engine.observe_together(&agents, permit);
        // A fault of this program in one look is not the end of the watch.
        catch_unwind(AssertUnwindSafe(look)).unwrap_or_default()
    }

    /// Says how a host stands, if that is news; whether somebody listens.
    fn tell(&mut self, number: usize, contact: ConnectionStatus) -> bool {
        let told = &mut self.rounds[number].told;
        let status = HostStatus {
            contact,
            ..told.clone()
        };
        if status.is_told_by(told) {
            return true;
        }
        *told = status.clone();
        self.events.send(FleetEvent::Hosts(vec![status])).is_ok()
    }
}

/// Leave to read memories, given back in the end.
struct ReadPermit<'s>(&'s Sender<()>);

impl Drop for ReadPermit<'_> {
    fn drop(&mut self) {
        // There is room for it: it was taken from there.
        let _ = self.0.send(());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::{Clock, System};
    use crate::config::{self, Env};
    use crate::engine::{Setup, Trigger};
    use crate::transport::SingleTransport;
    use crate::transport::local::Local;

    fn round(polls: &[(&str, u64)]) -> PollSchedule {
        let host = Host {
            name: "box".to_string(),
            user: None,
            port: None,
            identity_file: None,
            timeout: 15,
        };
        let polls = polls.iter();
        let polls = polls.map(|(name, poll)| ((*name).to_string(), Duration::from_secs(*poll)));
        PollSchedule {
            told: HostStatus {
                host: host.clone(),
                agents: Vec::new(),
                contact: ConnectionStatus::default(),
            },
            host,
            polls: polls.collect(),
            due: HashMap::new(),
            rested: None,
            hurry: false,
        }
    }

    fn ask(agents: &[&str], at_once: bool) -> PollRequest {
        let agents = agents.iter().map(|name| (*name).to_string());
        PollRequest {
            agents: agents.collect(),
            at_once,
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn up() -> ConnectionStatus {
        ConnectionStatus {
            reach: Reachability::Up,
            ..ConnectionStatus::default()
        }
    }

    #[test]
    fn each_agent_is_looked_at_as_often_as_it_asks_for_together_with_the_others() {
        let mut round = round(&[("slow", 30), ("quick", 10), ("quick-too", 10)]);
        let start = System.instant();
        assert_eq!(round.next(), None);
        round.want(
            &ask(&["slow", "quick", "quick-too", "no such one"], true),
            start,
        );
        assert_eq!(round.ready(start), ["slow", "quick", "quick-too"]);
        round.looked(&round.all(), &up(), start, start + seconds(1));
        assert_eq!(round.next(), Some(start + seconds(10)));
        assert!(round.ready(start + seconds(9)).is_empty());
        let later = start + seconds(10);
        assert_eq!(round.ready(later), ["quick", "quick-too"]);
        round.looked(&round.ready(later), &up(), later, later);
        assert_eq!(round.next(), Some(start + seconds(20)));
        assert_eq!(round.ready(start + seconds(30)).len(), 3);
    }

    #[test]
    fn the_config_says_for_each_agent_how_often_that_is() {
        let agent = |name: &str, lines: &str| {
            format!("[{name}]\nremote_host=box\nremote_memory=M.md\nbaseline=b.md\n{lines}\n")
        };
        let text = [
            "[general]\nremote_poll=30\n".to_string(),
            agent("slow", ""),
            agent("quick", "remote_poll=5"),
            agent("slowest", "remote_poll=3600"),
        ];
        let env = Env {
            cwd: "/".into(),
            home: None,
            xdg_config_home: None,
            xdg_state_home: None,
            config_variable: None,
            uid: 0,
        };
        let config = config::parse(text.concat().as_bytes(), Path::new("/a.conf"), &env);
        let engine = Engine::new(Setup {
            config: config.unwrap(),
            clock: Arc::new(System),
            transports: Arc::new(SingleTransport(Arc::new(Local::new(Arc::new(System))))),
            user: "tester".to_string(),
            trigger: Trigger::Console,
            archive_group: None,
        });
        let hosts = engine.hosts();
        assert_eq!(hosts.len(), 1, "they share a session");
        let mut round = PollSchedule::new(&engine, hosts[0].clone());
        let start = System.instant();
        round.want(&ask(&["slow", "quick", "slowest"], true), start);
        round.looked(&round.ready(start), &up(), start, start);
        assert!(round.ready(start + seconds(4)).is_empty());
        assert_eq!(round.ready(start + seconds(5)), ["quick"]);
        assert_eq!(round.ready(start + seconds(30)), ["slow", "quick"]);
        let all = ["slow", "quick", "slowest"];
        assert_eq!(round.ready(start + seconds(3600)), all);
    }

    #[test]
    fn what_changes_here_does_not_make_it_restless_and_the_operator_need_not_wait() {
        let mut round = round(&[("a", 10)]);
        let start = System.instant();
        round.looked(&round.all(), &up(), start, start);
        round.want(&ask(&["a"], false), start);
        assert_eq!(round.next(), Some(start + MIN_POLL_INTERVAL));
        assert!(!round.hurry);
        round.want(&ask(&["a"], true), start);
        assert_eq!(round.next(), Some(start));
        assert!(round.hurry);
    }

    #[test]
    fn a_host_that_takes_long_is_not_looked_at_all_the_time() {
        let mut round = round(&[("a", 1)]);
        let start = System.instant();
        round.looked(&round.all(), &up(), start, start + seconds(5));
        assert_eq!(round.next(), Some(start + seconds(5) + MIN_POLL_INTERVAL));
    }

    #[test]
    fn a_host_that_waits_for_the_operator_is_not_looked_at_all_the_time() {
        let mut round = round(&[("a", 10), ("b", 60)]);
        let start = System.instant();
        let asks = ConnectionStatus {
            reach: Reachability::Away,
            asks: Some("a password"),
            ..ConnectionStatus::default()
        };
        round.looked(&round.all(), &asks, start, start);
        assert_eq!(round.next(), Some(start + seconds(10)));
        let barred = ConnectionStatus {
            asks: None,
            barred: true,
            ..asks
        };
        round.looked(&round.all(), &barred, start, start);
        assert_eq!(round.next(), None);
        round.want(&ask(&["b"], true), start);
        assert_eq!(round.ready(start), ["b"]);
    }

    #[test]
    fn nobody_on_a_host_that_does_not_answer_is_looked_at_before_its_next_try() {
        let mut round = round(&[("a", 1), ("b", 60)]);
        let start = System.instant();
        round.looked(&round.all(), &up(), start, start);
        let away = ConnectionStatus {
            reach: Reachability::Away,
            until: Some(start + seconds(40)),
            ..ConnectionStatus::default()
        };
        round.looked(&["a".to_string()], &away, start, start);
        assert!(round.ready(start + seconds(39)).is_empty());
        assert_eq!(round.ready(start + seconds(40)), ["a", "b"]);
        // A session that was just lost may be had again in a moment.
        let lost = ConnectionStatus {
            until: None,
            ..away
        };
        round.looked(&round.all(), &lost, start, start);
        assert!(round.ready(start).is_empty());
        assert_eq!(round.ready(start + MIN_POLL_INTERVAL), ["a", "b"]);
    }
}
