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

use super::remote::{add_remote, engine};
use super::servers::{Program, Way, read_frame, sftp_server, write_frame};
use super::world::{BASELINE, World};

/// What a look at an agent may take, connecting aside.
const SWEEP: usize = 4;

/// What a reset may take, connecting aside.
const RESET: usize = 10;

const AGENTS: usize = 8;

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
struct Seen {
    /// Of each agent, how often it was asked about anew.
    turns: HashMap<String, usize>,
    /// Requests that have no answer yet, and whom they are about.
    open: HashMap<u32, String>,
    /// Whose files handles are.
    handles: HashMap<Vec<u8>, String>,
    /// New files that are being made, and the answers that wait for the others'.
    made: HashSet<u32>,
    held: Vec<Vec<u8>>,
    /// How many new files must have been asked for before one is answered.
    together: usize,
}

impl Seen {
    /// Takes note of requests that were sent together.
    fn asks(&mut self, frames: &[Vec<u8>]) {
        let mut asked = Vec::new();
        for frame in frames {
            // Nobody waits for a file to be closed.
            if matches!(frame[0], INIT | CLOSE) {
                continue;
            }
            let id = number(&frame[1..]);
            let whom = self.whom(frame);
            if !self.open.values().any(|it| *it == whom) && !asked.contains(&whom) {
                *self.turns.entry(whom.clone()).or_default() += 1;
                asked.push(whom.clone());
            }
            if frame[0] == OPEN {
                let flags = number(&frame[9 + string(&frame[5..]).len()..]);
                if flags & CREATE_EXCLUSIVE == CREATE_EXCLUSIVE {
                    self.made.insert(id);
                }
            }
            self.open.insert(id, whom);
        }
    }

    /// Takes note of an answer; what may be passed on now.
    fn answers(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        let id = number(&frame[1..]);
        if self.made.contains(&id) && frame[0] == HANDLE {
            self.held.push(frame);
            if self.made.len() < self.together {
                return Vec::new();
            }
            let held = std::mem::take(&mut self.held);
            return held.into_iter().map(|frame| self.passes(frame)).collect();
        }
        vec![self.passes(frame)]
    }

    fn passes(&mut self, frame: Vec<u8>) -> Vec<u8> {
        if let Some(whom) = self.open.remove(&number(&frame[1..]))
            && frame[0] == HANDLE
        {
            self.handles.insert(string(&frame[5..]).to_vec(), whom);
        }
        frame
    }

    /// The agent that a request is about, by its path or handle.
    fn whom(&self, frame: &[u8]) -> String {
        let mut rest = &frame[5..];
        if frame[0] == EXTENDED {
            rest = &rest[4 + string(rest).len()..];
        }
        if rest.is_empty() {
            return String::new();
        }
        let subject = string(rest);
        if let Some(whom) = self.handles.get(subject) {
            return whom.clone();
        }
        let path = String::from_utf8_lossy(subject);
        let inside = path.split_once("/agents/").map_or("", |(_, rest)| rest);
        inside.split('/').next().unwrap_or("").to_string()
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

fn string(bytes: &[u8]) -> &[u8] {
    &bytes[4..][..number(bytes) as usize]
}

/// Cuts whole frames from the beginning.
fn frames(bytes: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while bytes.len() >= 4 && bytes.len() >= 4 + number(bytes) as usize {
        let rest = bytes.split_off(4 + number(bytes) as usize);
        found.push(bytes[4..].to_vec());
        *bytes = rest;
    }
    found
}

/// A server with somebody in between who counts.
struct Counted {
    server: Program,
    seen: Arc<Mutex<Seen>>,
}

impl Connector for Counted {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        let SftpStream { pipes: link, child } = self.server.connect(host)?;
        let mut way = Way::cut(link);
        let (asks, answers) = (Arc::clone(&self.seen), Arc::clone(&self.seen));
        let mut requests = way.client.try_clone().unwrap();
        thread::spawn(move || {
            // What was sent in one piece is read in one piece.
            let mut piece = vec![0; 1 << 20];
            let mut waiting = Vec::new();
            while let Ok(length @ 1..) = requests.read(&mut piece) {
                waiting.extend_from_slice(&piece[..length]);
                let mut whole = waiting.clone();
                let asked = frames(&mut whole);
                if !whole.is_empty() {
                    continue;
                }
                asks.lock().unwrap().asks(&asked);
                if way.to_server.write_all(&waiting).is_err() {
                    break;
                }
                waiting.clear();
            }
        });
        thread::spawn(move || {
            while let Some(frame) = read_frame(&mut way.from_server) {
                // Noted before it is passed on: what is asked then comes later.
                let passed = answers.lock().unwrap().answers(frame);
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
struct Line {
    world: World,
    engine: Engine,
    seen: Arc<Mutex<Seen>>,
    names: Vec<String>,
}

impl Line {
    /// Connected, and everything was looked at once.
    fn new() -> Option<Line> {
        let server = sftp_server()?;
        let mut world = World::new(&[]).general("remote_timeout = 120");
        let names: Vec<String> = (0..AGENTS)
            .map(|number| format!("agent-{number}"))
            .collect();
        for name in &names {
            add_remote(&mut world, name, "box");
            world.write_scratch(name, "- early\n");
        }
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let counted = Counted {
            server,
            seen: Arc::clone(&seen),
        };
        let engine = engine(&world, counted);
        let line = Line {
            world,
            engine,
            seen,
            names,
        };
        line.sweep();
        line.seen.lock().unwrap().turns.clear();
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
    fn most(&self, what: &str) -> usize {
        let turns = std::mem::take(&mut self.seen.lock().unwrap().turns);
        println!("{what}: {turns:?}");
        for name in &self.names {
            assert!(turns.contains_key(name), "{name}: {turns:?}");
        }
        turns.values().copied().max().unwrap()
    }
}

#[test]
fn a_sweep_asks_and_waits_a_few_times() {
    let Some(line) = Line::new() else { return };
    for name in &line.names {
        line.world.write_scratch(name, "- early\n- and later\n");
    }
    line.sweep();
    let most = line.most("sweep");
    assert!(most <= SWEEP, "{most} turns");
}

#[test]
fn a_reset_asks_and_waits_a_few_times() {
    let Some(line) = Line::new() else { return };
    // No new file is made before all have asked for theirs, so if one agent
    // came after the other, it would come to no end.
    line.seen.lock().unwrap().together = AGENTS;
    let plan = line.engine.plan_unobserved(&line.names, false).unwrap();
    let report = line
        .engine
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    assert_eq!(report.count(Outcome::Ok), AGENTS, "{report:?}");
    for name in &line.names {
        assert_eq!(line.world.read(name), BASELINE.as_bytes());
    }
    let most = line.most("reset");
    assert!(most <= RESET, "{most} turns");
}
