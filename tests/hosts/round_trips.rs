//! Round trips that an operation needs on a host. The tests do not depend on time: they count the
//! requests about an agent that follow after all earlier requests about it were answered. On a slow
//! link that count times the latency is the duration of a sweep or a reset; `benches/hosts.rs`
//! measures it.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;

use memory_shepherd::config::SshHost;
use memory_shepherd::engine::{Engine, Outcome, State};
use memory_shepherd::transport::TransportError;
use memory_shepherd::transport::sftp::ssh::{Connector, SftpStream};

use super::remote::{add_remote_agent, engine_with_connector};
use super::servers::{InterceptedLink, ServerProgram, read_frame, sftp_server, write_frame};
use super::world::{BASELINE, World};

/// Round trips that an observation of one agent may take, without connecting.
const MAX_SWEEP_ROUND_TRIPS: usize = 4;

/// Round trips that a reset of one agent may take, without connecting.
const MAX_RESET_ROUND_TRIPS: usize = 11;

const AGENT_COUNT: usize = 8;

// Types of frames (draft-ietf-secsh-filexfer-02, section 3).
const INIT: u8 = 1;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const HANDLE: u8 = 102;
const EXTENDED: u8 = 200;

/// Flags that open for writing a file that must not exist yet.
const CREATE_EXCLUSIVE: u32 = 0x8 | 0x20;

/// Traffic seen between a client and a server.
#[derive(Default)]
struct RoundTripCounter {
    /// Round trips by agent.
    round_trips: HashMap<String, usize>,
    /// Opens without an answer yet, with their agents.
    pending_opens: HashMap<u32, String>,
    /// The agent of each file handle.
    handles: HashMap<Vec<u8>, String>,
    /// Creates without an answer yet, and the answers held back for the others' creates.
    pending_creates: HashSet<u32>,
    held_replies: Vec<Vec<u8>>,
    /// Number of creates after which the held answers are released.
    release_at: usize,
}

impl RoundTripCounter {
    /// Records requests that were sent together.
    fn record_requests(&mut self, frames: &[Vec<u8>]) {
        let mut asked = Vec::new();
        for frame in frames {
            // The client does not wait for a close.
            if matches!(frame[0], INIT | CLOSE) {
                continue;
            }
            let id = read_u32(&frame[1..]);
            let whom = self.agent_of_request(frame);
            if !self.pending_opens.values().any(|it| *it == whom) && !asked.contains(&whom) {
                *self.round_trips.entry(whom.clone()).or_default() += 1;
                asked.push(whom.clone());
            }
            if frame[0] == OPEN {
                let flags = read_u32(&frame[9 + read_string(&frame[5..]).len()..]);
                if flags & CREATE_EXCLUSIVE == CREATE_EXCLUSIVE {
                    self.pending_creates.insert(id);
                }
            }
            self.pending_opens.insert(id, whom);
        }
    }

    /// Records an answer; returns the answers that may be passed on now.
    fn record_reply(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        let id = read_u32(&frame[1..]);
        if self.pending_creates.contains(&id) && frame[0] == HANDLE {
            self.held_replies.push(frame);
            if self.pending_creates.len() < self.release_at {
                return Vec::new();
            }
            let held = std::mem::take(&mut self.held_replies);
            return held
                .into_iter()
                .map(|frame| self.pass_reply(frame))
                .collect();
        }
        vec![self.pass_reply(frame)]
    }

    fn pass_reply(&mut self, frame: Vec<u8>) -> Vec<u8> {
        if let Some(whom) = self.pending_opens.remove(&read_u32(&frame[1..]))
            && frame[0] == HANDLE
        {
            self.handles.insert(read_string(&frame[5..]).to_vec(), whom);
        }
        frame
    }

    /// Returns the agent that a request is about, by its path or handle.
    fn agent_of_request(&self, frame: &[u8]) -> String {
        let mut rest = &frame[5..];
        if frame[0] == EXTENDED {
            rest = &rest[4 + read_string(rest).len()..];
        }
        if rest.is_empty() {
            return String::new();
        }
        let subject = read_string(rest);
        if let Some(whom) = self.handles.get(subject) {
            return whom.clone();
        }
        let path = String::from_utf8_lossy(subject);
        let inside = path.split_once("/agents/").map_or("", |(_, rest)| rest);
        inside.split('/').next().unwrap_or("").to_string()
    }
}

fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

fn read_string(bytes: &[u8]) -> &[u8] {
    &bytes[4..][..read_u32(bytes) as usize]
}

/// Removes whole frames from the front of `bytes`.
fn take_frames(bytes: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while bytes.len() >= 4 && bytes.len() >= 4 + read_u32(bytes) as usize {
        let rest = bytes.split_off(4 + read_u32(bytes) as usize);
        found.push(bytes[4..].to_vec());
        *bytes = rest;
    }
    found
}

/// A server behind a link that counts round trips.
struct CountingConnector {
    server: ServerProgram,
    counter: Arc<Mutex<RoundTripCounter>>,
}

impl Connector for CountingConnector {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        let SftpStream { pipes: link, child } = self.server.connect(host)?;
        let mut way = InterceptedLink::intercept(link);
        let (asks, answers) = (Arc::clone(&self.counter), Arc::clone(&self.counter));
        let mut requests = way.client.try_clone().unwrap();
        thread::spawn(move || {
            // Bytes sent in one piece are read in one piece.
            let mut piece = vec![0; 1 << 20];
            let mut waiting = Vec::new();
            while let Ok(length @ 1..) = requests.read(&mut piece) {
                waiting.extend_from_slice(&piece[..length]);
                let mut whole = waiting.clone();
                let asked = take_frames(&mut whole);
                if !whole.is_empty() {
                    continue;
                }
                asks.lock().unwrap().record_requests(&asked);
                if way.to_server.write_all(&waiting).is_err() {
                    break;
                }
                waiting.clear();
            }
        });
        thread::spawn(move || {
            while let Some(frame) = read_frame(&mut way.from_server) {
                // Recorded before it is passed on, so that a request caused by it counts as later.
                let passed = answers.lock().unwrap().record_reply(frame);
                let mut written = passed
                    .iter()
                    .map(|frame| write_frame(&mut way.client, frame));
                if !written.all(|it| it.is_some()) {
                    break;
                }
            }
            let _ = way.client.shutdown(Shutdown::Both);
        });
        let link = way.link;
        Ok(SftpStream { pipes: link, child })
    }
}

/// A fleet on one host, and the counter of its link.
struct CountedFleet {
    world: World,
    engine: Engine,
    counter: Arc<Mutex<RoundTripCounter>>,
    names: Vec<String>,
}

impl CountedFleet {
    /// Connects and observes everything once.
    fn new() -> Option<CountedFleet> {
        let server = sftp_server()?;
        let mut world = World::new(&[]).with_general("remote_timeout = 120");
        let names: Vec<String> = (0..AGENT_COUNT)
            .map(|number| format!("agent-{number}"))
            .collect();
        for name in &names {
            add_remote_agent(&mut world, name, "box");
            world.write_scratch(name, "- early\n");
        }
        let seen: Arc<Mutex<RoundTripCounter>> = Arc::default();
        let counted = CountingConnector {
            server,
            counter: Arc::clone(&seen),
        };
        let engine = engine_with_connector(&world, counted);
        let line = CountedFleet {
            world,
            engine,
            counter: seen,
            names,
        };
        line.sweep();
        line.counter.lock().unwrap().round_trips.clear();
        Some(line)
    }

    fn sweep(&self) {
        let agents: Vec<_> = self
            .names
            .iter()
            .map(|name| self.engine.agent(name).unwrap())
            .collect();
        for seen in self.engine.observer().observe_all(&agents) {
            assert_eq!(seen.state, State::Scratch, "{seen:?}");
        }
    }

    /// Returns the largest number of round trips of any agent; asserts that every agent had some.
    #[track_caller]
    fn max_round_trips(&self, what: &str) -> usize {
        let turns = std::mem::take(&mut self.counter.lock().unwrap().round_trips);
        println!("{what}: {turns:?}");
        for name in &self.names {
            assert!(turns.contains_key(name), "{name}: {turns:?}");
        }
        turns.values().copied().max().unwrap()
    }
}

#[test]
fn sweep_takes_few_round_trips() {
    let Some(line) = CountedFleet::new() else {
        return;
    };
    for name in &line.names {
        line.world.write_scratch(name, "- early\n- and later\n");
    }
    line.sweep();
    let most = line.max_round_trips("sweep");
    assert!(most <= MAX_SWEEP_ROUND_TRIPS, "{most} turns");
}

#[test]
fn reset_takes_few_round_trips() {
    let Some(line) = CountedFleet::new() else {
        return;
    };
    // The counter answers no create before all agents have sent theirs, so a sequential run would
    // not finish.
    line.counter.lock().unwrap().release_at = AGENT_COUNT;
    let plan = line
        .engine
        .planner()
        .plan_unobserved(&line.names, false)
        .unwrap();
    let report = line
        .engine
        .runs()
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    assert_eq!(report.count(Outcome::Ok), AGENT_COUNT, "{report:?}");
    for name in &line.names {
        assert_eq!(line.world.read_memory(name), BASELINE.as_bytes());
    }
    let most = line.max_round_trips("reset");
    assert!(most <= MAX_RESET_ROUND_TRIPS, "{most} turns");
}
