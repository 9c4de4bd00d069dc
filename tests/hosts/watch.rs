//! The watch of hosts, over sessions with OpenSSH's own server.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use memory_shepherd::clock::{Clock, SystemClock};
use memory_shepherd::config::{Config, SshHost};
use memory_shepherd::engine::{
    Engine, EngineSetup, FleetEvent, FleetWatcher, HostStatus, Observation, Reachability, State,
    Trigger,
};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::sftp::ssh::{Connector, SftpStream};
use memory_shepherd::transport::sftp::{PerHostTransports, SftpTransport};
use memory_shepherd::transport::{
    FailureCause, MemoryObject, Transport, TransportError, Transports,
};

use super::remote::{add_remote, engine};
use super::servers::{
    Between, Fate, Judge, Program, Way, carried, host, mute, read_frame, sftp_server, write_frame,
};
use super::world::{TestClock, World};

/// For what comes at once unless the machine has other things to do.
const LIMIT: Duration = Duration::from_secs(60);

/// The wire between here and a server: it counts, holds back and is cut.
#[derive(Default)]
struct Wire {
    down: AtomicBool,
    dials: AtomicUsize,
    state: Mutex<Traffic>,
    changed: Condvar,
}

#[derive(Default)]
struct Traffic {
    /// The types of the requests since they were taken last.
    requests: Vec<u8>,
    /// No reply passes before so many requests have come.
    hold: usize,
    /// One end of each connection.
    open: Vec<UnixStream>,
}

impl Wire {
    /// Takes the types of all requests until now.
    fn requests(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Holds replies back until so many further requests have come.
    fn hold(&self, count: usize) {
        let mut state = self.state.lock().unwrap();
        state.requests.clear();
        state.hold = count;
    }

    fn cut(&self) {
        self.down.store(true, Ordering::SeqCst);
        for end in self.state.lock().unwrap().open.drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.down.store(false, Ordering::SeqCst);
    }

    fn dials(&self) -> usize {
        self.dials.load(Ordering::SeqCst)
    }

    fn came(&self, kind: u8) {
        self.state.lock().unwrap().requests.push(kind);
        self.changed.notify_all();
    }

    fn may_pass(&self) {
        let state = self.state.lock().unwrap();
        let held = |state: &mut Traffic| state.requests.len() < state.hold;
        let waited = self.changed.wait_timeout_while(state, LIMIT, held);
        drop(waited.unwrap());
    }
}

/// A server at the end of a wire.
struct Wired {
    server: Program,
    wire: Arc<Wire>,
}

impl Connector for Wired {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        self.wire.dials.fetch_add(1, Ordering::SeqCst);
        if self.wire.down.load(Ordering::SeqCst) {
            let message = format!("{} cannot be reached: the wire is cut", host.name);
            let error = Error::new(ErrorKind::Host, message);
            return Err(TransportError::new(FailureCause::Unreachable, error));
        }
        let SftpStream { pipes: link, child } = self.server.connect(host)?;
        let mut way = Way::cut(link);
        let mut state = self.wire.state.lock().unwrap();
        state.open.push(way.client.try_clone().unwrap());
        drop(state);
        let mut requests = way.client.try_clone().unwrap();
        let wire = Arc::clone(&self.wire);
        thread::spawn(move || {
            while let Some(frame) = read_frame(&mut requests) {
                wire.came(frame[0]);
                if write_frame(&mut way.to_server, &frame).is_none() {
                    break;
                }
            }
        });
        let wire = Arc::clone(&self.wire);
        thread::spawn(move || {
            while let Some(frame) = read_frame(&mut way.from_server) {
                wire.may_pass();
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

fn wired() -> Option<(Arc<Wire>, Wired)> {
    let wire = Arc::<Wire>::default();
    let server = sftp_server()?;
    let end = Wired {
        server,
        wire: Arc::clone(&wire),
    };
    Some((wire, end))
}

/// Agents `agent-0` and so on of a host, each with a note.
fn herd(count: usize) -> World {
    let mut world = World::new(&[]).general("remote_poll = 1");
    for number in 0..count {
        let name = format!("agent-{number}");
        add_remote(&mut world, &name, "box");
        world.write_scratch(&name, format!("a note of {name}\n"));
    }
    world
}

fn look(engine: &Engine) -> Vec<State> {
    let agents: Vec<_> = engine.config().agents.iter().collect();
    let seen = engine.observe_all(&agents);
    seen.into_iter().map(|seen| seen.state).collect()
}

const OPEN: u8 = 3;
const LSTAT: u8 = 7;
const CLOSE: u8 = 4;
const READ: u8 = 5;
const FSTAT: u8 = 8;

#[test]
fn agents_of_a_host_are_looked_at_in_one_round_trip_and_read_in_two_more() {
    const COUNT: usize = 20;
    let Some((wire, end)) = wired() else { return };
    let world = herd(COUNT);
    let engine = engine(&world, end);
    engine.connect_all_hosts();
    let count = |requests: &[u8], kind: u8| requests.iter().filter(|it| **it == kind).count();
    // No reply comes before all of them were asked for: who asked for one after
    // the other would not get any.
    wire.hold(4 * COUNT);
    assert_eq!(look(&engine), [State::Scratch; COUNT]);
    let requests = wire.requests();
    assert_eq!(count(&requests[..4 * COUNT], OPEN), 0, "{requests:?}");
    let rest = &requests[4 * COUNT..];
    assert_eq!(rest[..COUNT], [OPEN; COUNT]);
    let (reads, closes) = rest[COUNT..].split_at(3 * COUNT);
    assert_eq!(count(reads, READ), 2 * COUNT);
    assert_eq!(count(reads, FSTAT), COUNT);
    assert!(closes.iter().all(|it| *it == CLOSE));
    // What changed within the second of its stamp is read once more.
    world.clock.advance(Duration::from_secs(3));
    assert_eq!(look(&engine), [State::Scratch; COUNT]);
    assert_eq!(count(&wire.requests(), OPEN), COUNT);
    // From then on nothing is but the stamps, in one go.
    for _ in 0..3 {
        wire.hold(4 * COUNT);
        assert_eq!(look(&engine), [State::Scratch; COUNT]);
        let requests = wire.requests();
        assert_eq!(count(&requests, OPEN), 0);
        let asked = requests.iter().filter(|it| **it != CLOSE);
        assert_eq!(asked.count(), 4 * COUNT);
    }
    // And of what changes, that alone.
    world.write("agent-7", "something else altogether");
    wire.requests();
    let states = look(&engine);
    assert_eq!(states.iter().filter(|it| **it == State::NoSep).count(), 1);
    assert_eq!(count(&wire.requests(), OPEN), 1);
    engine.close_all_hosts();
}

#[test]
fn trouble_with_one_memory_is_none_of_the_others() {
    let Some((_, end)) = wired() else { return };
    let world = herd(5);
    std::fs::remove_file(world.memory("agent-1")).unwrap();
    std::fs::remove_file(world.memory("agent-2")).unwrap();
    std::fs::create_dir(world.memory("agent-2")).unwrap();
    std::fs::remove_file(world.memory("agent-3")).unwrap();
    std::fs::remove_dir(world.folder("agent-3")).unwrap();
    let large = File::create(world.memory("agent-4")).unwrap();
    large.set_len((16 << 20) + 1).unwrap();
    let engine = engine(&world, end);
    let states = look(&engine);
    let expected = [
        State::Scratch,
        State::Missing,
        State::Error,
        State::Error,
        State::Error,
    ];
    assert_eq!(states, expected);
    // Several that are long come in more than one piece, whole.
    let long = "- a line of a long memory\n".repeat(60_000);
    for agent in ["agent-0", "agent-4"] {
        world.write_scratch(agent, &long);
    }
    let agents: Vec<_> = engine.config().agents.iter().collect();
    let seen = engine.observe_all(&agents);
    for place in [0, 4] {
        let content = seen[place].content.as_ref().unwrap();
        assert_eq!(content.scratch_bytes, long.len() as u64);
        assert_eq!(content.scratch_lines, 60_000);
    }
    engine.close_all_hosts();
}

/// A fleet that is watched, and what was seen of it.
struct Watched {
    engine: Arc<Engine>,
    fleet: FleetWatcher,
    events: Receiver<FleetEvent>,
    seen: BTreeMap<String, Observation>,
    hosts: BTreeMap<String, HostStatus>,
}

impl Watched {
    fn new(engine: Engine) -> Watched {
        let engine = Arc::new(engine);
        let (sender, events) = unbounded();
        Watched {
            fleet: FleetWatcher::start(Arc::clone(&engine), sender),
            engine,
            events,
            seen: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// Takes in what happens until that is so.
    #[track_caller]
    fn until(&mut self, what: &str, holds: impl Fn(&Watched) -> bool) {
        let end = Instant::now() + LIMIT;
        while !holds(self) {
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(FleetEvent::Observed(seen)) => {
                    let seen = seen.into_iter().map(|seen| (seen.agent.clone(), seen));
                    self.seen.extend(seen);
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

    fn all(&self, state: State) -> bool {
        let count = self.engine.config().agents.len();
        self.seen.len() == count && self.seen.values().all(|seen| seen.state == state)
    }

    fn reach(&self, host: &str) -> Option<Reachability> {
        self.hosts
            .get(host)
            .map(|status| status.connection.reachability)
    }
}

/// An engine whose time passes by itself.
fn living(world: &World, dial: impl Connector + 'static) -> Engine {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let everywhere = PerHostTransports::new(world.local(), Arc::new(dial), Arc::clone(&clock));
    world.engine_through(clock, Arc::new(everywhere), None)
}

#[test]
fn a_host_that_goes_away_and_comes_back_is_seen_to() {
    let Some((wire, end)) = wired() else { return };
    let world = herd(3);
    wire.cut();
    let mut watched = Watched::new(living(&world, end));
    watched.until("away", |it| {
        it.all(State::Unreach) && it.reach("box") == Some(Reachability::Unreachable)
    });
    let contact = watched.hosts["box"].connection.clone();
    assert_eq!(contact.short_reason().as_deref(), Some("the wire is cut"));
    assert!(contact.failures >= 1);
    // It is tried again by itself, and all of its agents are seen then.
    wire.mend();
    watched.until("up", |it| {
        it.all(State::Scratch) && it.reach("box") == Some(Reachability::Connected)
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
    // What an agent writes is seen at one of the next looks.
    world.write("agent-1", "something else altogether");
    watched.until("changed", |it| it.seen["agent-1"].state == State::NoSep);
    wire.cut();
    watched.until("lost", |it| {
        it.all(State::Unreach) && it.reach("box") == Some(Reachability::Unreachable)
    });
    wire.mend();
    watched.until("up again", |it| {
        it.reach("box") == Some(Reachability::Connected)
            && it.seen["agent-0"].state == State::Scratch
    });
    watched.engine.close_all_hosts();
}

#[test]
fn the_operator_need_not_wait_for_the_next_try() {
    let Some((wire, end)) = wired() else { return };
    let world = herd(3);
    wire.cut();
    // This clock stands still: no pause ever ends by itself.
    let mut watched = Watched::new(engine(&world, end));
    watched.until("away", |it| {
        it.all(State::Unreach) && it.reach("box") == Some(Reachability::Unreachable)
    });
    wire.mend();
    let dials = wire.dials();
    watched.fleet.request_read(vec!["agent-1".to_string()]);
    watched.until("up", |it| {
        it.all(State::Scratch) && it.reach("box") == Some(Reachability::Connected)
    });
    assert_eq!(wire.dials(), dials + 1);
    assert!(watched.fleet.wait_idle(LIMIT));
    watched.engine.close_all_hosts();
}

#[test]
fn pauses_double_and_nobody_but_the_watch_tries_a_host_that_is_away() {
    let Some((wire, end)) = wired() else { return };
    wire.cut();
    let clock = TestClock::new();
    let sftp = SftpTransport::new(host("box"), Arc::new(end), clock.clone());
    let memory = Path::new("/tmp/MEMORY.md");
    let mut expected = 2.0_f64;
    for failures in 1..12 {
        assert_eq!(
            sftp.ensure_connected().unwrap_err().cause,
            FailureCause::Unreachable
        );
        let contact = sftp.connection_status().unwrap();
        assert_eq!(
            (contact.reachability, contact.failures),
            (Reachability::Unreachable, failures)
        );
        assert_eq!(wire.dials(), failures as usize);
        let pause = contact.next_attempt_instant.unwrap() - clock.instant();
        let share = pause.as_secs_f64() / expected;
        assert!((0.74..=1.26).contains(&share), "{pause:?} of {expected}");
        // Meanwhile nobody tries, and when it is over only the watch does.
        assert!(sftp.ensure_connected().is_err());
        clock.advance(pause);
        assert!(sftp.probe(&[memory])[0].is_err());
        assert!(sftp.open_directory(memory).is_err());
        assert_eq!(wire.dials(), failures as usize);
        expected = (expected * 2.0).min(120.0);
    }
    wire.mend();
    sftp.retry_now();
    assert!(sftp.probe(&[memory])[0].is_err(), "that is for the watch");
    sftp.ensure_connected().unwrap();
    assert_eq!(sftp.connection_status().unwrap().failures, 0);
    assert!(matches!(sftp.probe(&[memory])[0], Ok(MemoryObject::Absent)));
}

/// Begins to connect in a thread of its own, and has begun; how it failed.
fn connecting(host: &Arc<dyn Transport>) -> JoinHandle<TransportError> {
    let waiting = {
        let host = Arc::clone(host);
        thread::spawn(move || host.ensure_connected().unwrap_err())
    };
    let end = Instant::now() + LIMIT;
    while !host.connection_status().unwrap().is_connecting {
        assert!(Instant::now() < end, "it begins to connect");
        thread::yield_now();
    }
    waiting
}

#[test]
fn leaving_ends_whoever_is_still_connecting() {
    let world = World::new(&[]);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let everywhere = PerHostTransports::new(world.local(), Arc::new(mute()), clock);
    let slow = SshHost {
        timeout_seconds: 3600,
        ..host("mute")
    };
    let mute = everywhere.transport_for(Some(&slow));
    let waiting = connecting(&mute);
    everywhere.close_all();
    // An hour would not be enough otherwise.
    let error = waiting.join().unwrap();
    assert_eq!(error.cause, FailureCause::Unreachable);
    assert!(mute.ensure_connected().is_err());
    assert!(!mute.connection_status().unwrap().is_connecting);
}

/// A server that hangs up on whoever asks it for more than a session.
struct Flapping {
    server: Program,
    dials: Arc<AtomicUsize>,
}

impl Connector for Flapping {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        let judge: Judge = Arc::new(|_, frame| match frame[0] {
            LSTAT => Fate::Cut,
            _ => Fate::Pass,
        });
        Between::new(self.server.clone(), judge).connect(host)
    }
}

#[test]
fn a_host_that_hangs_up_on_each_session_is_not_dialled_all_the_time() {
    let Some(server) = sftp_server() else { return };
    let world = herd(1);
    let dials = Arc::<AtomicUsize>::default();
    let end = Flapping {
        server,
        dials: Arc::clone(&dials),
    };
    let mut watched = Watched::new(living(&world, end));
    watched.until("lost", |it| it.all(State::Unreach));
    thread::sleep(Duration::from_secs(4));
    watched.engine.close_all_hosts();
    let dials = dials.load(Ordering::SeqCst);
    assert!(dials < 6, "{dials} sessions in 4 s");
}

/// A host that wants something of the operator first.
struct Barred(Arc<AtomicUsize>);

impl Connector for Barred {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let message = format!("{} wants a passphrase and got no answer", host.name);
        let error = Error::new(ErrorKind::Host, message);
        Err(TransportError::new(FailureCause::Unreachable, error))
    }

    fn is_blocked(&self, _: &SshHost) -> bool {
        true
    }
}

#[test]
fn a_host_that_waits_for_the_operator_is_not_asked_all_the_time() {
    let world = herd(1);
    let dials = Arc::<AtomicUsize>::default();
    let mut watched = Watched::new(living(&world, Barred(Arc::clone(&dials))));
    watched.until("barred", |it| {
        it.all(State::Unreach) && it.reach("box") == Some(Reachability::Unreachable)
    });
    assert_eq!(watched.hosts["box"].connection.next_attempt, None);
    thread::sleep(Duration::from_secs(2));
    watched.engine.close_all_hosts();
    let dials = dials.load(Ordering::SeqCst);
    assert!(dials < 6, "{dials} tries in 2 s");
}

/// A program that takes a moment to start, and never says a word.
struct Slow(Arc<Mutex<Option<u32>>>);

impl Connector for Slow {
    fn connect(&self, _: &SshHost) -> Result<SftpStream, TransportError> {
        thread::sleep(Duration::from_millis(300));
        let (child, link) = mute().start();
        *self.0.lock().unwrap() = Some(child.id());
        Ok(carried(child, link))
    }
}

#[test]
fn leaving_waits_for_a_process_that_is_just_being_started() {
    let world = World::new(&[]);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let pid = Arc::<Mutex<Option<u32>>>::default();
    let everywhere = PerHostTransports::new(world.local(), Arc::new(Slow(Arc::clone(&pid))), clock);
    let slow = everywhere.transport_for(Some(&host("slow")));
    let waiting = connecting(&slow);
    everywhere.close_all();
    // The program ends now; whatever is started later is left behind.
    let pid = *pid.lock().unwrap();
    let runs = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    assert!(pid.is_some_and(|pid| !runs(pid)), "{pid:?}");
    waiting.join().unwrap();
}

#[test]
fn a_host_is_connected_to_once_whatever_times_its_agents_have() {
    let Some((wire, end)) = wired() else { return };
    let mut world = herd(1);
    let memory = world.folder("patient").join("MEMORY.md");
    let lines = format!(
        "remote_host = box\nremote_memory = {}\nremote_timeout = 20",
        memory.display()
    );
    world.add("patient", &lines);
    world.set_baseline("patient", super::world::BASELINE);
    let engine = engine(&world, end);
    look(&engine);
    assert_eq!((wire.dials(), engine.host_statuses().len()), (1, 1));
    engine.close_all_hosts();
}

#[test]
fn a_changed_config_keeps_the_connections_to_hosts_that_it_still_names() {
    let Some((wire, end)) = wired() else { return };
    let mut world = herd(1);
    let alone = world.config();
    add_remote(&mut world, "elsewhere", "other");
    world.write_scratch("elsewhere", "a note\n");
    let both = world.config();
    let clock = world.clock.clone();
    let everywhere = PerHostTransports::new(world.local(), Arc::new(end), clock.clone());
    let everywhere: Arc<dyn Transports> = Arc::new(everywhere);
    let engine = |config: &Config| {
        Engine::new(EngineSetup {
            config: config.clone(),
            clock: clock.clone(),
            transports: Arc::clone(&everywhere),
            user: "tester".to_string(),
            trigger: Trigger::Console,
            archive_group: None,
        })
    };
    let first = engine(&both);
    assert_eq!(look(&first), [State::Scratch; 2]);
    assert_eq!(wire.dials(), 2);
    let second = engine(&alone);
    second.close_other_hosts();
    assert_eq!(look(&second), [State::Scratch]);
    assert_eq!(wire.dials(), 2, "the connection is the same");
    // Whoever still looks for the former engine does not connect again.
    let elsewhere = first.observe(first.agent("elsewhere").unwrap());
    assert_eq!((elsewhere.state, wire.dials()), (State::Unreach, 2));
    let third = engine(&both);
    third.close_other_hosts();
    assert_eq!(look(&third), [State::Scratch; 2]);
    assert_eq!(wire.dials(), 3);
    third.close_all_hosts();
}
