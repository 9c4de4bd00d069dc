//! How often a host has to be waited for. Nothing here depends on time: what is
//! counted is how often an agent is asked about anew after everything that was
//! asked about it has been answered. On a long line that is what a sweep or a
//! reset takes; `benches/hosts.rs` measures it there.

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

/// What a look at an agent may take, connecting aside.
const MAX_SWEEP_ROUND_TRIPS: usize = 4;

/// What a reset may take, connecting aside.
const MAX_RESET_ROUND_TRIPS: usize = 10;

const AGENT_COUNT: usize = 8;

// Types of frames (draft-ietf-secsh-filexfer-02, section 3).
const INIT: u8 = 1;
const OPEN: u8 = 3;
const CLOSE: u8 = 4;
const HANDLE: u8 = 102;
const EXTENDED: u8 = 200;

/// Open for writing what must not exist yet.
const CREATE_EXCLUSIVE: u32 = 0x8 | 0x20;

/// What was seen on the way between a client and a server.
#[derive(Default)]
struct RoundTripCounter {
    /// Of each agent, how often it was asked about anew.
    round_trips: HashMap<String, usize>,
    /// Requests that have no answer yet, and whom they are about.
    pending_opens: HashMap<u32, String>,
    /// Whose files handles are.
    handles: HashMap<Vec<u8>, String>,
    /// New files that are being made, and the answers that wait for the others'.
    pending_creates: HashSet<u32>,
    held_replies: Vec<Vec<u8>>,
    /// How many new files must have been asked for before one is answered.
    release_at: usize,
}

impl RoundTripCounter {
    /// Takes note of requests that were sent together.
    fn record_requests(&mut self, frames: &[Vec<u8>]) {
        let mut asked = Vec::new();
        for frame in frames {
            // Nobody waits for a file to be closed.
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

    /// Takes note of an answer; what may be passed on now.
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

    /// The agent that a request is about, by its path or handle.
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

/// Cuts whole frames from the beginning.
fn take_frames(bytes: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while bytes.len() >= 4 && bytes.len() >= 4 + read_u32(bytes) as usize {
        let rest = bytes.split_off(4 + read_u32(bytes) as usize);
        found.push(bytes[4..].to_vec());
        *bytes = rest;
    }
    found
}

/// A server with somebody in between who counts.
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
            // What was sent in one piece is read in one piece.
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
                // Noted before it is passed on: what is asked then comes later.
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

/// A fleet on one host, and what was seen on the way to it.
struct CountedFleet {
    world: World,
    engine: Engine,
    counter: Arc<Mutex<RoundTripCounter>>,
    names: Vec<String>,
}

impl CountedFleet {
    /// Connected, and everything was looked at once.
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
        for seen in self.engine.observe_all(&agents) {
            assert_eq!(seen.state, State::Scratch, "{seen:?}");
        }
    }

    /// The most turns of any agent; all of them had some.
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
    // No new file is made before all have asked for theirs, so if one agent
    // came after the other, it would come to no end.
    line.counter.lock().unwrap().release_at = AGENT_COUNT;
    let plan = line.engine.plan_unobserved(&line.names, false).unwrap();
    let report = line
        .engine
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    assert_eq!(report.count(Outcome::Ok), AGENT_COUNT, "{report:?}");
    for name in &line.names {
        assert_eq!(line.world.read_memory(name), BASELINE.as_bytes());
    }
    let most = line.max_round_trips("reset");
    assert!(most <= MAX_RESET_ROUND_TRIPS, "{most} turns");
}
