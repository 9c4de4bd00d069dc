//! The watch of hosts, over sessions with OpenSSH's own server.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use memory_shepherd::base::clock::{Clock, SystemClock};
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::config::{Config, SshHost};
use memory_shepherd::engine::{
    Engine, EngineSetup, FleetEvent, FleetWatcher, HostStatus, Observation, Reachability, State,
    Trigger,
};
use memory_shepherd::transport::sftp::ssh::{Connector, SftpStream};
use memory_shepherd::transport::sftp::{PerHostTransports, SftpTransport};
use memory_shepherd::transport::{
    Connection, FailureCause, MemoryObject, Transport, TransportError, Transports,
};

use super::remote::{add_remote_agent, engine_with_connector};
use super::servers::{
    FilteredServer, InterceptedLink, RequestFate, RequestFilter, ServerProgram, host_named,
    read_frame, sftp_server, silent_program, stream_of_child, stubborn_program, write_frame,
};
use super::world::{TestClock, World};

/// Upper bound of a wait; without other load the event comes immediately.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A link to a server: it counts requests, holds replies back, and can be cut.
#[derive(Default)]
struct ControlledLink {
    down: AtomicBool,
    connect_count: AtomicUsize,
    state: Mutex<LinkTraffic>,
    changed: Condvar,
}

#[derive(Default)]
struct LinkTraffic {
    /// Types of the requests since the last call of `take_requests`.
    requests: Vec<u8>,
    /// Number of requests before which no reply passes.
    hold_until: usize,
    /// One end of each connection.
    open: Vec<UnixStream>,
}

impl ControlledLink {
    /// Takes the types of all requests until now.
    fn take_requests(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Holds replies back until `count` further requests have come.
    fn hold_replies_until(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        state.requests.clear();
        state.hold_until = count;
    }

    fn disconnect(&self) {
        self.down.store(true, Ordering::SeqCst);
        for end in self.state.lock().unwrap().open.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn reconnect(&self) {
        self.down.store(false, Ordering::SeqCst);
    }

    fn connect_count(&self) -> usize {
        self.connect_count.load(Ordering::SeqCst)
    }

    fn record_request(&self, kind: u8) {
        self.state.lock().unwrap().requests.push(kind);
        self.changed.notify_all();
    }

    fn wait_while_held(&self) {
        let state = self.state.lock().unwrap();
        let held = |state: &mut LinkTraffic| state.requests.len() < state.hold_until;
        let waited = self.changed.wait_timeout_while(state, WAIT_TIMEOUT, held);
        drop(waited.unwrap());
    }
}

/// A server behind a controlled link.
struct LinkedServer {
    server: ServerProgram,
    link: Arc<ControlledLink>,
}

impl Connector for LinkedServer {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        self.link.connect_count.fetch_add(1, Ordering::SeqCst);
        if self.link.down.load(Ordering::SeqCst) {
            let message = format!("{} cannot be reached: the wire is cut", host.name);
            let error = Error::new(ErrorKind::Host, message);
            return Err(TransportError::new(FailureCause::Unreachable, error));
        }
        let SftpStream { pipes: link, child } = self.server.connect(host)?;
        let mut way = InterceptedLink::intercept(link);
        let mut state = self.link.state.lock().unwrap();
        state.open.push(way.client.try_clone().unwrap());
        drop(state);
        let mut requests = way.client.try_clone().unwrap();
        let wire = Arc::clone(&self.link);
        thread::spawn(move || {
            while let Some(frame) = read_frame(&mut requests) {
                wire.record_request(frame[0]);
                if write_frame(&mut way.to_server, &frame).is_none() {
                    break;
                }
            }
        });
        let wire = Arc::clone(&self.link);
        thread::spawn(move || {
            while let Some(frame) = read_frame(&mut way.from_server) {
                wire.wait_while_held();
                if write_frame(&mut way.client, &frame).is_none() {
                    break;
                }
            }
            let _ = way.client.shutdown(Shutdown::Both);
        });
        let link = way.link;
        Ok(SftpStream { pipes: link, child })
    }
}

fn linked_server() -> Option<(Arc<ControlledLink>, LinkedServer)> {
    let wire = Arc::<ControlledLink>::default();
    let server = sftp_server()?;
    let end = LinkedServer {
        server,
        link: Arc::clone(&wire),
    };
    Some((wire, end))
}

/// Returns agents `agent-0` and so on of a host, each with a note.
fn remote_agents(count: usize) -> World {
    let mut world = World::new(&[]).with_general("remote_poll = 1");
    for number in 0..count {
        let name = format!("agent-{number}");
        add_remote_agent(&mut world, &name, "box");
        world.write_scratch(&name, format!("a note of {name}\n"));
    }
    world
}

fn observed_states(engine: &Engine) -> Vec<State> {
    let agents: Vec<_> = engine.config().agents.iter().collect();
    let seen = engine.observer().observe_all(&agents);
    seen.into_iter().map(|seen| seen.state).collect()
}

const OPEN: u8 = 3;
const LSTAT: u8 = 7;
const CLOSE: u8 = 4;
const READ: u8 = 5;
const FSTAT: u8 = 8;

#[test]
fn host_agents_are_probed_in_one_round_trip() {
    const COUNT: usize = 20;
    let Some((wire, end)) = linked_server() else {
        return;
    };
    let world = remote_agents(COUNT);
    let engine = engine_with_connector(&world, end);
    engine.hosts().connect_all_hosts();
    let count = |requests: &[u8], kind: u8| requests.iter().filter(|it| **it == kind).count();
    // The link passes no reply before all agents were asked for, so a sequential sweep would get
    // none.
    wire.hold_replies_until(4 * COUNT);
    assert_eq!(observed_states(&engine), [State::Scratch; COUNT]);
    let requests = wire.take_requests();
    assert_eq!(count(&requests[..4 * COUNT], OPEN), 0, "{requests:?}");
    let rest = &requests[4 * COUNT..];
    assert_eq!(rest[..COUNT], [OPEN; COUNT]);
    let (reads, closes) = rest[COUNT..].split_at(3 * COUNT);
    assert_eq!(count(reads, READ), 2 * COUNT);
    assert_eq!(count(reads, FSTAT), COUNT);
    assert!(closes.iter().all(|it| *it == CLOSE));
    // A file that changed within the second of its stamp is read once more.
    world.clock.advance(Duration::from_secs(3));
    assert_eq!(observed_states(&engine), [State::Scratch; COUNT]);
    assert_eq!(count(&wire.take_requests(), OPEN), COUNT);
    // From then on a sweep reads only the stamps, in one batch.
    for _ in 0..3 {
        wire.hold_replies_until(4 * COUNT);
        assert_eq!(observed_states(&engine), [State::Scratch; COUNT]);
        let requests = wire.take_requests();
        assert_eq!(count(&requests, OPEN), 0);
        let asked = requests.iter().filter(|it| **it != CLOSE);
        assert_eq!(asked.count(), 4 * COUNT);
    }
    // Only the changed memory is read.
    world.write_memory("agent-7", "something else altogether");
    wire.take_requests();
    let states = observed_states(&engine);
    assert_eq!(states.iter().filter(|it| **it == State::NoSep).count(), 1);
    assert_eq!(count(&wire.take_requests(), OPEN), 1);
    engine.hosts().close_all_hosts();
}

#[test]
fn failed_memory_does_not_affect_the_others() {
    let Some((_, end)) = linked_server() else {
        return;
    };
    let world = remote_agents(5);
    std::fs::remove_file(world.memory_path("agent-1")).unwrap();
    std::fs::remove_file(world.memory_path("agent-2")).unwrap();
    std::fs::create_dir(world.memory_path("agent-2")).unwrap();
    std::fs::remove_file(world.memory_path("agent-3")).unwrap();
    std::fs::remove_dir(world.agent_directory("agent-3")).unwrap();
    let large = File::create(world.memory_path("agent-4")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    let engine = engine_with_connector(&world, end);
    let states = observed_states(&engine);
    let expected = [
        State::Scratch,
        State::Missing,
        State::Error,
        State::Error,
        State::Error,
    ];
    assert_eq!(states, expected);
    // Several long memories arrive in more than one piece, complete.
    let long = "- a line of a long memory\n".repeat(60_000);
    for agent in ["agent-0", "agent-4"] {
        world.write_scratch(agent, &long);
    }
    let agents: Vec<_> = engine.config().agents.iter().collect();
    let seen = engine.observer().observe_all(&agents);
    for place in [0, 4] {
        let content = seen[place].content.as_ref().unwrap();
        assert_eq!(content.scratch_bytes, long.len() as u64);
        assert_eq!(content.scratch_lines, 60_000);
    }
    engine.hosts().close_all_hosts();
}

/// A watched fleet, and the observations of it.
struct WatchedFleet {
    engine: Arc<Engine>,
    fleet: FleetWatcher,
    events: Receiver<FleetEvent>,
    seen: BTreeMap<String, Observation>,
    /// Number of observations of each agent.
    counts: BTreeMap<String, usize>,
    /// Number of confirmations of each agent since its last observation.
    confirmed: BTreeMap<String, usize>,
    hosts: BTreeMap<String, HostStatus>,
}

impl WatchedFleet {
    fn new(engine: Engine) -> WatchedFleet {
        let engine = Arc::new(engine);
        let (sender, events) = unbounded();
        WatchedFleet {
            fleet: FleetWatcher::start(Arc::clone(engine.watch()), sender).unwrap(),
            engine,
            events,
            seen: BTreeMap::new(),
            counts: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// Consumes events until the condition holds.
    #[track_caller]
    fn wait_until(&mut self, what: &str, holds: impl Fn(&WatchedFleet) -> bool) {
        let end = Instant::now() + WAIT_TIMEOUT;
        while !holds(self) {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(FleetEvent::Observed(seen)) => {
                    for seen in seen {
                        *self.counts.entry(seen.agent.clone()).or_default() += 1;
                        self.confirmed.remove(&seen.agent);
                        self.seen.insert(seen.agent.clone(), seen);
                    }
                }
                Ok(FleetEvent::Confirmed { agents, .. }) => {
                    for agent in agents {
                        *self.confirmed.entry(agent).or_default() += 1;
                    }
                }
                Ok(FleetEvent::HostsChanged(hosts)) => {
                    let hosts = hosts.into_iter().map(|it| (it.host.name.clone(), it));
                    self.hosts.extend(hosts);
                }
                Ok(_) => {}
                Err(_) => panic!("not {what}: {:?} {:?}", self.seen, self.hosts),
            }
        }
    }

    fn all_are(&self, state: State) -> bool {
        let count = self.engine.config().agents.len();
        self.seen.len() == count && self.seen.values().all(|seen| seen.state == state)
    }

    fn reachability_of(&self, host: &str) -> Option<Reachability> {
        self.hosts
            .get(host)
            .map(|status| status.connection.reachability)
    }
}

/// Returns an engine on the real clock.
fn real_time_engine(world: &World, dial: impl Connector + 'static) -> Engine {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let everywhere =
        PerHostTransports::new(world.local_transport(), Arc::new(dial), Arc::clone(&clock));
    world.engine_with_transports(clock, Arc::new(everywhere), None)
}

#[test]
fn host_loss_and_return_are_observed() {
    let Some((wire, end)) = linked_server() else {
        return;
    };
    let world = remote_agents(3);
    wire.disconnect();
    let mut watched = WatchedFleet::new(real_time_engine(&world, end));
    watched.wait_until("away", |it| {
        it.all_are(State::Unreach) && it.reachability_of("box") == Some(Reachability::Unreachable)
    });
    let contact = watched.hosts["box"].connection.clone();
    assert_eq!(contact.short_reason().as_deref(), Some("the wire is cut"));
    assert!(contact.failures >= 1);
    // The watch retries by itself and then observes all of its agents.
    wire.reconnect();
    watched.wait_until("up", |it| {
        it.all_are(State::Scratch) && it.reachability_of("box") == Some(Reachability::Connected)
    });
    let contact = watched.hosts["box"].connection.clone();
    assert_eq!((contact.failures, &contact.error), (0, &None));
    assert!(
        contact.server_features.iter().all(|it| it.is_available),
        "{contact:?}"
    );
    assert!(
        contact
            .server_limits
            .iter()
            .any(|(name, _)| *name == "read")
    );
    // The watch sees an agent's change at one of the next probes.
    world.write_memory("agent-1", "something else altogether");
    watched.wait_until("changed", |it| it.seen["agent-1"].state == State::NoSep);
    wire.disconnect();
    watched.wait_until("lost", |it| {
        it.all_are(State::Unreach) && it.reachability_of("box") == Some(Reachability::Unreachable)
    });
    wire.reconnect();
    watched.wait_until("up again", |it| {
        it.reachability_of("box") == Some(Reachability::Connected)
            && it.seen["agent-0"].state == State::Scratch
    });
    watched.engine.hosts().close_all_hosts();
}

#[test]
fn only_changed_agents_of_a_host_are_observed() {
    let Some(server) = sftp_server() else {
        return;
    };
    let world = remote_agents(3);
    let mut watched = WatchedFleet::new(real_time_engine(&world, server));
    // A stamp of whole seconds is trusted once it is older than that.
    let settled = |it: &WatchedFleet| {
        let confirmed = it.confirmed.values().filter(|count| **count >= 2);
        it.all_are(State::Scratch) && confirmed.count() == 3
    };
    watched.wait_until("settled", settled);
    let counts = watched.counts.clone();
    let others_unchanged = |it: &WatchedFleet| {
        ["agent-0", "agent-2"]
            .iter()
            .all(|agent| it.counts[*agent] == counts[*agent])
    };
    // What an observation depends on: the memory, which may be gone, and the baseline.
    world.write_memory("agent-1", "something else altogether");
    watched.wait_until("changed", |it| it.seen["agent-1"].state == State::NoSep);
    std::fs::remove_file(world.memory_path("agent-1")).unwrap();
    watched.wait_until("gone", |it| it.seen["agent-1"].state == State::Missing);
    world.write_scratch("agent-1", "- a note\n");
    watched.wait_until("back", |it| it.seen["agent-1"].state == State::Scratch);
    assert!(others_unchanged(&watched));
    watched.wait_until("settled again", settled);
    world.set_baseline("agent-1", "# Other rules\n\n---\n");
    watched.wait_until("other rules", |it| it.seen["agent-1"].state == State::NoSep);
    assert!(others_unchanged(&watched));
    // Another process records a run, which concerns all.
    let before = watched.counts.clone();
    world.reset_with_engine(&watched.engine);
    watched.wait_until("reset", |it| it.all_are(State::Clean));
    assert!(
        before
            .iter()
            .all(|(agent, count)| watched.counts[agent] > *count)
    );
    // The operator's request counts more than stamps.
    watched.wait_until("clean", |it| {
        it.confirmed.values().filter(|count| **count >= 1).count() == 3
    });
    let before = watched.counts.clone();
    watched.fleet.request_read(vec!["agent-0".to_string()]);
    watched.wait_until("read", |it| it.counts["agent-0"] > before["agent-0"]);
    // A memory whose content alone has changed.
    let memory = world.memory_path("agent-0");
    let time = std::fs::metadata(&memory).unwrap().modified().unwrap();
    let text = std::fs::read_to_string(&memory).unwrap();
    std::fs::write(&memory, text.replacen("s", "z", 1)).unwrap();
    let file = std::fs::File::options().write(true).open(&memory).unwrap();
    file.set_modified(time).unwrap();
    watched.fleet.request_read(vec!["agent-0".to_string()]);
    watched.wait_until("drifted", |it| it.seen["agent-0"].state == State::Drifted);
    watched.engine.hosts().close_all_hosts();
}

#[test]
fn manual_read_retries_host_at_once() {
    let Some((wire, end)) = linked_server() else {
        return;
    };
    let world = remote_agents(3);
    wire.disconnect();
    // This clock does not advance: no pause ever ends by itself.
    let mut watched = WatchedFleet::new(engine_with_connector(&world, end));
    watched.wait_until("away", |it| {
        it.all_are(State::Unreach) && it.reachability_of("box") == Some(Reachability::Unreachable)
    });
    wire.reconnect();
    let dials = wire.connect_count();
    watched.fleet.request_read(vec!["agent-1".to_string()]);
    watched.wait_until("up", |it| {
        it.all_are(State::Scratch) && it.reachability_of("box") == Some(Reachability::Connected)
    });
    assert_eq!(wire.connect_count(), dials + 1);
    assert!(watched.fleet.wait_idle(WAIT_TIMEOUT));
    watched.engine.hosts().close_all_hosts();
}

/// Connects and waits for the result.
fn connect(transport: &dyn Transport) -> Result<(), TransportError> {
    let (sender, result) = unbounded();
    let connection = transport.connection().unwrap();
    connection.start_connecting(Box::new(move || sender.send(()).unwrap()));
    result.recv().unwrap();
    match connection.status().reachability {
        Reachability::Connected => Ok(()),
        // After a failure, or on a closed connection, this does not connect.
        _ => Err(transport.probe(&[Path::new("M.md")]).remove(0).unwrap_err()),
    }
}

#[test]
fn retry_pauses_double_and_only_fleet_retries() {
    let Some((wire, end)) = linked_server() else {
        return;
    };
    wire.disconnect();
    let clock = TestClock::new();
    let sftp = SftpTransport::new(host_named("box"), Arc::new(end), clock.clone());
    sftp.retry_in_background();
    let memory = Path::new("/tmp/MEMORY.md");
    let mut expected = 2.0_f64;
    for failures in 1..12 {
        assert_eq!(connect(&sftp).unwrap_err().cause, FailureCause::Unreachable);
        let contact = sftp.status();
        assert_eq!(
            (contact.reachability, contact.failures),
            (Reachability::Unreachable, failures)
        );
        assert_eq!(wire.connect_count(), failures as usize);
        let pause = contact.next_attempt_instant.unwrap() - clock.instant();
        let share = pause.as_secs_f64() / expected;
        assert!((0.74..=1.26).contains(&share), "{pause:?} of {expected}");
        // During the pause no caller connects, and after it only the watch does.
        assert!(connect(&sftp).is_err());
        clock.advance(pause);
        assert!(sftp.probe(&[memory])[0].is_err());
        assert!(sftp.open_directory(memory).is_err());
        assert_eq!(wire.connect_count(), failures as usize);
        expected = (expected * 2.0).min(120.0);
    }
    wire.reconnect();
    sftp.retry_now();
    assert!(sftp.probe(&[memory])[0].is_err(), "only the watch connects");
    connect(&sftp).unwrap();
    assert_eq!(sftp.status().failures, 0);
    assert!(matches!(sftp.probe(&[memory])[0], Ok(MemoryObject::Absent)));
}

/// Connects in a separate thread, returns once it has begun, and yields the error.
fn connect_in_thread(host: &Arc<dyn Transport>) -> JoinHandle<TransportError> {
    let waiting = {
        let host = Arc::clone(host);
        thread::spawn(move || connect(&*host).unwrap_err())
    };
    let end = Instant::now() + WAIT_TIMEOUT;
    while !host.connection().unwrap().status().is_connecting {
        assert!(Instant::now() < end, "no connection attempt");
        thread::yield_now();
    }
    waiting
}

#[test]
fn leave_ends_pending_connects() {
    let world = World::new(&[]);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let everywhere =
        PerHostTransports::new(world.local_transport(), Arc::new(silent_program()), clock);
    let slow = SshHost {
        timeout_seconds: 3600,
        ..host_named("mute")
    };
    let mute = everywhere.transport_for(Some(&slow));
    let waiting = connect_in_thread(&mute);
    everywhere.close_all();
    // Without the early end an hour would not be enough.
    let error = waiting.join().unwrap();
    assert_eq!(error.cause, FailureCause::Unreachable);
    assert!(connect(&*mute).is_err());
    assert!(!mute.connection().unwrap().status().is_connecting);
}

/// A program that says nothing and ignores requests to exit.
struct StubbornConnector {
    last_process: Arc<AtomicU32>,
}

impl Connector for StubbornConnector {
    fn connect(&self, _: &SshHost) -> Result<SftpStream, TransportError> {
        let (child, pipes) = stubborn_program().start();
        self.last_process.store(child.id(), Ordering::SeqCst);
        Ok(stream_of_child(child, pipes))
    }
}

/// Fails to connect to a host whose program does not exit. Returns its transports, and the path of
/// the process while it exists.
fn failed_connect_of_stubborn_program() -> (PerHostTransports, PathBuf) {
    let world = World::new(&[]);
    let last_process = Arc::new(AtomicU32::new(0));
    let connector = StubbornConnector {
        last_process: Arc::clone(&last_process),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let everywhere = PerHostTransports::new(world.local_transport(), Arc::new(connector), clock);
    let host = SshHost {
        timeout_seconds: 1,
        ..host_named("mute")
    };
    let transport = everywhere.transport_for(Some(&host));
    assert!(connect(&*transport).is_err());
    let process = format!("/proc/{}", last_process.load(Ordering::SeqCst));
    (everywhere, process.into())
}

#[test]
fn leave_kills_process_of_failed_connect() {
    let (everywhere, process) = failed_connect_of_stubborn_program();
    everywhere.close_all();
    assert!(!process.exists());
}

#[test]
fn process_of_failed_connect_is_killed() {
    let (_everywhere, process) = failed_connect_of_stubborn_program();
    let end = Instant::now() + WAIT_TIMEOUT;
    while process.exists() {
        assert!(Instant::now() < end, "it still runs");
        thread::yield_now();
    }
}

/// A server that disconnects every client that asks for more than a session.
struct FlappingConnector {
    server: ServerProgram,
    dials: Arc<AtomicUsize>,
}

impl Connector for FlappingConnector {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        let judge: RequestFilter = Arc::new(|_, frame| match frame[0] {
            LSTAT => RequestFate::Disconnect,
            _ => RequestFate::Pass,
        });
        FilteredServer::new(self.server.clone(), judge).connect(host)
    }
}

#[test]
fn flapping_host_is_not_redialed_constantly() {
    let Some(server) = sftp_server() else { return };
    let world = remote_agents(1);
    let dials = Arc::<AtomicUsize>::default();
    let end = FlappingConnector {
        server,
        dials: Arc::clone(&dials),
    };
    let mut watched = WatchedFleet::new(real_time_engine(&world, end));
    watched.wait_until("lost", |it| it.all_are(State::Unreach));
    thread::sleep(Duration::from_secs(4));
    watched.engine.hosts().close_all_hosts();
    let dials = dials.load(Ordering::SeqCst);
    assert!(dials < 6, "{dials} sessions in 4 s");
}

/// A host that needs an action of the operator first.
struct BarredConnector(Arc<AtomicUsize>);

impl Connector for BarredConnector {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let message = format!(
            "{} wants a passphrase; the question was not answered",
            host.name
        );
        let error = Error::new(ErrorKind::Host, message);
        Err(TransportError::new(FailureCause::Unreachable, error))
    }

    fn is_blocked(&self, _: &SshHost) -> bool {
        true
    }
}

#[test]
fn barred_host_is_not_dialed_constantly() {
    let world = remote_agents(1);
    let dials = Arc::<AtomicUsize>::default();
    let mut watched = WatchedFleet::new(real_time_engine(
        &world,
        BarredConnector(Arc::clone(&dials)),
    ));
    watched.wait_until("barred", |it| {
        it.all_are(State::Unreach) && it.reachability_of("box") == Some(Reachability::Unreachable)
    });
    assert_eq!(watched.hosts["box"].connection.next_attempt, None);
    thread::sleep(Duration::from_secs(2));
    watched.engine.hosts().close_all_hosts();
    let dials = dials.load(Ordering::SeqCst);
    assert!(dials < 6, "{dials} tries in 2 s");
}

/// A program that takes a moment to start and never sends a byte.
struct SlowConnector(Arc<Mutex<Option<u32>>>);

impl Connector for SlowConnector {
    fn connect(&self, _: &SshHost) -> Result<SftpStream, TransportError> {
        thread::sleep(Duration::from_millis(300));
        let (child, link) = silent_program().start();
        *self.0.lock().unwrap() = Some(child.id());
        Ok(stream_of_child(child, link))
    }
}

#[test]
fn leave_waits_for_starting_process() {
    let world = World::new(&[]);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let pid = Arc::<Mutex<Option<u32>>>::default();
    let everywhere = PerHostTransports::new(
        world.local_transport(),
        Arc::new(SlowConnector(Arc::clone(&pid))),
        clock,
    );
    let slow = everywhere.transport_for(Some(&host_named("slow")));
    let waiting = connect_in_thread(&slow);
    everywhere.close_all();
    // The program ends now; one that started later would be left behind.
    let pid = *pid.lock().unwrap();
    let runs = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    assert!(pid.is_some_and(|pid| !runs(pid)), "{pid:?}");
    waiting.join().unwrap();
}

#[test]
fn host_has_one_connection_for_different_timeouts() {
    let Some((wire, end)) = linked_server() else {
        return;
    };
    let mut world = remote_agents(1);
    let memory = world.agent_directory("patient").join("MEMORY.md");
    let lines = format!(
        "remote_host = box\nremote_memory = {}\nremote_timeout = 20",
        memory.display()
    );
    world.add_agent("patient", &lines);
    world.set_baseline("patient", super::world::BASELINE);
    let engine = engine_with_connector(&world, end);
    observed_states(&engine);
    assert_eq!(
        (wire.connect_count(), engine.hosts().host_statuses().len()),
        (1, 1)
    );
    engine.hosts().close_all_hosts();
}

#[test]
fn changed_config_keeps_connections_to_kept_hosts() {
    let Some((wire, end)) = linked_server() else {
        return;
    };
    let mut world = remote_agents(1);
    let alone = world.config();
    add_remote_agent(&mut world, "elsewhere", "other");
    world.write_scratch("elsewhere", "a note\n");
    let both = world.config();
    let clock = world.clock.clone();
    let transports = PerHostTransports::new(world.local_transport(), Arc::new(end), clock.clone());
    let everywhere: Arc<dyn Transports> = Arc::new(transports);
    let engine = |config: &Config| {
        Engine::new(EngineSetup {
            config: config.clone(),
            clock: clock.clone(),
            transports: Arc::clone(&everywhere),
            user: "tester".to_string(),
            trigger: Trigger::Console,
            archive_group: None,
            layouts: Default::default(),
        })
    };
    let first = engine(&both);
    assert_eq!(observed_states(&first), [State::Scratch; 2]);
    assert_eq!(wire.connect_count(), 2);
    let second = engine(&alone);
    second.hosts().close_other_hosts();
    assert_eq!(observed_states(&second), [State::Scratch]);
    assert_eq!(wire.connect_count(), 2, "the connection is the same");
    // Callers that still hold the former engine do not connect again.
    let elsewhere = first.observer().observe(first.agent("elsewhere").unwrap());
    assert_eq!((elsewhere.state, wire.connect_count()), (State::Unreach, 2));
    let third = engine(&both);
    third.hosts().close_other_hosts();
    assert_eq!(observed_states(&third), [State::Scratch; 2]);
    assert_eq!(wire.connect_count(), 3);
    third.hosts().close_all_hosts();
}
