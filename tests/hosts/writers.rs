//! Agents on a host that write while they are reset from here, again and again.
//! What they wrote is in the memory, in an entry, or in a displaced file that a
//! later run archives.
//!
//! A note counts as written when the call that saved it has returned: `write` of
//! one that appends, `close` of one that truncates, `rename` of one that saves a
//! whole file. Those who rewrite are alone on their memory, and bring old notes
//! back: a note may be there often, and must be there once.
//!
//! Over SFTP nobody sees who has a file open. A displaced file goes when nothing
//! was written to it for a quarter of a second, so an agent may keep it open for
//! as long as it likes, but not be silent for longer and write into it then. To
//! be sure of that on any machine, time only passes here when every agent has got
//! on with its work; by the machine's own clock it is tried with `HARNESS=full`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use memory_shepherd::clock::{Clock, SystemClock};
use memory_shepherd::engine::{Engine, Outcome};
use memory_shepherd::error::ErrorKind;
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::sftp::PerHostTransports;
use memory_shepherd::transport::sftp::ssh::Connector;

use super::remote::{add_remote, engine};
use super::servers::sftp_server;
use super::sshd::Sshd;
use super::world::{BASELINE, TestClock, World};

/// Nothing here takes as long as this: whoever does hangs.
const BOUND: Duration = Duration::from_secs(120);

/// How large a memory may grow before those who rewrite it wait for a reset.
const ENOUGH: u64 = 8 * 1024;

/// How much one may append before it slows down: a reset may take long on a slow
/// machine.
const PLENTY: u64 = 16 * 1024;

/// How an agent writes.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Opens for appending, writes some notes, closes.
    Append,
    /// Opens for appending, and writes through that across several runs.
    Hold,
    /// Reads, opens with truncation, writes what it read and a note.
    Truncate,
    /// Reads, writes a temporary file with a note more, renames it.
    Rename,
}

/// What the agents are called, and who writes into the memory of each.
const CAST: &[(&str, &[Manner])] = &[
    ("appends", &[Manner::Append]),
    ("holds", &[Manner::Hold]),
    ("several", &[Manner::Hold, Manner::Append, Manner::Append]),
    ("truncates", &[Manner::Truncate]),
    ("renames", &[Manner::Rename]),
];

fn note(writer: usize, number: u64) -> String {
    format!("- note {number} of {writer}, and no more\n")
}

/// What everybody knows of a writer.
#[derive(Default)]
struct Progress {
    /// Notes that were written.
    written: AtomicU64,
    /// Things that it has done, from opening a file to closing it or to writing
    /// the next note into it.
    steps: AtomicU64,
}

/// All writers, and who resets them.
#[derive(Default)]
struct Stage {
    stop: AtomicBool,
    runs: AtomicU64,
    ticks: AtomicU64,
    everybody: Mutex<Vec<Arc<Progress>>>,
}

impl Stage {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until every writer has done two things more: then it has ended what
    /// it was doing at the beginning, and done one thing since.
    fn everybody_gets_on(&self) {
        self.ticks.fetch_add(1, Ordering::AcqRel);
        let everybody = self.everybody.lock().unwrap().clone();
        let steps = |it: &Arc<Progress>| it.steps.load(Ordering::Acquire);
        let before: Vec<u64> = everybody.iter().map(steps).collect();
        let end = Instant::now() + BOUND;
        for (writer, before) in everybody.iter().zip(before) {
            while !self.is_over() && steps(writer) < before + 2 {
                assert!(Instant::now() < end, "a writer is stuck");
                thread::park_timeout(Duration::from_micros(200));
            }
        }
    }
}

/// Time that passes when the writers get on.
struct Together {
    clock: Arc<TestClock>,
    stage: Arc<Stage>,
}

impl Clock for Together {
    fn now(&self) -> DateTime<FixedOffset> {
        self.clock.now()
    }

    fn instant(&self) -> Instant {
        self.clock.instant()
    }

    fn sleep(&self, duration: Duration) {
        self.stage.everybody_gets_on();
        // The run's own threads wait for each other by this clock, too.
        thread::park_timeout(Duration::from_millis(2));
        self.clock.sleep(duration);
    }
}

/// One who writes until it is told to stop.
struct Writer {
    manner: Manner,
    memory: PathBuf,
    number: usize,
    progress: Arc<Progress>,
    stage: Arc<Stage>,
}

impl Writer {
    fn write(&self) {
        for round in 0.. {
            if self.stage.is_over() {
                return;
            }
            match self.manner {
                Manner::Append => self.append(1 + round % 5),
                Manner::Hold => self.hold(round % 3),
                Manner::Truncate => self.rewrite(|text| self.truncate(text)),
                Manner::Rename => self.rewrite(|text| self.rename(text)),
            }
            self.gets_on();
        }
    }

    /// An agent's own pause after what it has done: nothing is waited for.
    fn gets_on(&self) {
        self.progress.steps.fetch_add(1, Ordering::Release);
        thread::park_timeout(Duration::from_micros(500));
    }

    fn next(&self) -> String {
        note(self.number, self.progress.written.load(Ordering::Relaxed))
    }

    fn has_written(&self) {
        self.progress.written.fetch_add(1, Ordering::Release);
    }

    /// What can be opened or read, once it is there: over SFTP a memory is absent
    /// for a moment.
    fn there<T>(&self, open: impl Fn(&Path) -> std::io::Result<T>) -> T {
        let end = Instant::now() + BOUND;
        loop {
            match open(&self.memory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    assert!(Instant::now() < end, "it stays away");
                    thread::park_timeout(Duration::from_micros(50));
                }
                opened => return opened.unwrap(),
            }
        }
    }

    fn opened(&self) -> File {
        self.there(|memory| File::options().append(true).open(memory))
    }

    fn append(&self, notes: u64) {
        let mut file = self.opened();
        if file.metadata().unwrap().len() > PLENTY {
            return;
        }
        for _ in 0..notes {
            file.write_all(self.next().as_bytes()).unwrap();
            self.has_written();
        }
    }

    /// It is never silent for long.
    fn hold(&self, runs: u64) {
        let until = self.stage.runs.load(Ordering::Relaxed) + runs;
        let mut file = self.opened();
        let mut last = None;
        let mut spoke = Instant::now();
        while self.stage.runs.load(Ordering::Relaxed) <= until && !self.stage.is_over() {
            let tick = Some(self.stage.ticks.load(Ordering::Acquire));
            let silent = last != tick || spoke.elapsed() > Duration::from_millis(20);
            if silent || file.metadata().unwrap().len() < PLENTY {
                file.write_all(self.next().as_bytes()).unwrap();
                self.has_written();
                (last, spoke) = (tick, Instant::now());
            }
            self.gets_on();
        }
    }

    fn rewrite(&self, save: impl Fn(&[u8]) -> std::io::Result<()>) {
        let mut text = self.there(|memory| fs::read(memory));
        if text.len() as u64 > ENOUGH {
            return;
        }
        text.extend_from_slice(self.next().as_bytes());
        match save(&text) {
            // It has just been taken away: all over again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            saved => {
                saved.unwrap();
                self.has_written();
            }
        }
    }

    fn truncate(&self, text: &[u8]) -> std::io::Result<()> {
        let options = File::options().write(true).truncate(true).clone();
        let mut file = options.open(&self.memory)?;
        // Some libraries write what they have in pieces.
        let (head, tail) = text.split_at(text.len() / 2);
        file.write_all(head)?;
        file.write_all(tail)
    }

    fn rename(&self, text: &[u8]) -> std::io::Result<()> {
        let temporary = self.memory.with_extension("saving");
        fs::write(&temporary, text)?;
        fs::rename(&temporary, &self.memory)
    }
}

/// The writers of a fleet; dropped, they stop.
struct Crowd {
    stage: Arc<Stage>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn start(world: &World, stage: &Arc<Stage>) -> Crowd {
        let mut threads = Vec::new();
        for (agent, manners) in CAST {
            for manner in *manners {
                let progress: Arc<Progress> = Arc::default();
                stage.everybody.lock().unwrap().push(Arc::clone(&progress));
                let writer = Writer {
                    manner: *manner,
                    memory: world.memory(agent),
                    number: threads.len(),
                    progress,
                    stage: Arc::clone(stage),
                };
                threads.push(thread::spawn(move || writer.write()));
            }
        }
        Crowd {
            stage: Arc::clone(stage),
            threads,
        }
    }

    fn stop(mut self) {
        self.stage.stop.store(true, Ordering::Relaxed);
        for writer in self.threads.drain(..) {
            writer.join().unwrap();
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stage.stop.store(true, Ordering::Relaxed);
    }
}

fn full() -> bool {
    std::env::var_os("HARNESS").is_some_and(|value| value == "full")
}

#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    resets: usize,
    refusals: usize,
    silences: usize,
    late: usize,
    notes: u64,
    lost: usize,
}

/// The fleet, reset by the dial of a host.
struct Fleet {
    world: World,
    engine: Engine,
    names: Vec<String>,
    tally: Tally,
}

impl Fleet {
    fn new(clock: impl FnOnce(&World) -> Arc<dyn Clock>, dial: Arc<dyn Connector>) -> Fleet {
        // Of the host's own time, which hardly passes here, there is enough.
        let world = match full() {
            // It becomes too much for some memories.
            true => World::new(&[]),
            false => World::new(&[]),
        };
        let mut world = world.general("remote_timeout = 3600");
        for (agent, _) in CAST {
            add_remote(&mut world, agent, super::sshd::HOST);
            world.write(agent, BASELINE);
        }
        let clock = clock(&world);
        let here = Arc::new(LocalTransport::new(clock.clone()));
        let everywhere = PerHostTransports::new(here, dial, clock.clone());
        let engine = world.engine_through(clock, Arc::new(everywhere), None);
        Fleet {
            world,
            engine,
            names: CAST.iter().map(|(agent, _)| agent.to_string()).collect(),
            tally: Tally::default(),
        }
    }

    /// As a timer does; whether the host answered.
    fn reset(&mut self) -> bool {
        let plan = self.engine.plan_unobserved(&self.names, false).unwrap();
        let none = AtomicBool::new(false);
        let report = self.engine.apply_plan(&plan, false, &none, &mut |_| {});
        self.tally.runs += 1;
        self.tally.resets += report.count(Outcome::Ok);
        let mut silent = 0;
        for result in &report.results {
            let note = result.note.as_deref().unwrap_or("");
            match result.kind {
                None => {}
                // It gives up, loudly, on who replaces the file again and again.
                Some(ErrorKind::Conflict) => self.tally.refusals += 1,
                // A machine with too much to do; nothing is lost by that, either.
                Some(ErrorKind::Host) if note.contains("no answer") => silent += 1,
                _ => panic!("{report:?}"),
            }
        }
        for trouble in &report.errors {
            assert!(trouble.message().contains("no answer"), "{report:?}");
            silent += 1;
        }
        if silent > 0 {
            self.tally.silences += 1;
            self.world.clock.advance(Duration::from_secs(600));
        }
        silent == 0
    }

    /// Looks for every note.
    fn count(&mut self, stage: &Stage, when: &str) {
        let everybody = stage.everybody.lock().unwrap().clone();
        let mut number = 0;
        (self.tally.notes, self.tally.late) = (0, 0);
        for (agent, manners) in CAST {
            let mut text = self.world.archived(agent);
            text.extend(self.world.read(agent));
            for name in self.world.litter(agent) {
                text.extend(fs::read(self.world.folder(agent).join(name)).unwrap());
            }
            let found: HashSet<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
            for manner in *manners {
                let written = everybody[number].written.load(Ordering::Acquire);
                let lost: Vec<u64> = (0..written)
                    .filter(|it| !found.contains(note(number, *it).as_bytes()))
                    .collect();
                if !lost.is_empty() {
                    let (count, first) = (lost.len(), &lost[..lost.len().min(5)]);
                    println!(
                        "{agent}, {manner:?}: {count} of {written} lost {when}, such as {first:?}"
                    );
                }
                self.tally.lost += lost.len();
                self.tally.notes += written;
                number += 1;
            }
            let late = |name: &String| name.contains("-late") || name.contains("-appended");
            self.tally.late += self
                .world
                .entries(agent)
                .iter()
                .filter(|it| late(it))
                .count();
        }
    }

    /// When nobody writes any more, the next run leaves nothing behind.
    fn is_tidy(&self) {
        for name in &self.names {
            assert_eq!(self.world.read(name), BASELINE.as_bytes(), "{name}");
            assert_eq!(self.world.litter(name), [""; 0], "{name}");
        }
        assert_eq!(self.world.pending(), [""; 0]);
        let all = self.engine.records(None, None).unwrap();
        all.for_each(&mut |_| Ok(())).unwrap();
    }
}

/// Resets so often while everybody writes, and loses nothing.
#[track_caller]
fn nothing_is_lost(what: &str, runs: usize, mut fleet: Fleet, stage: &Arc<Stage>) {
    let began = Instant::now();
    let crowd = Crowd::start(&fleet.world, stage);
    for _ in 0..runs {
        fleet.reset();
        stage.runs.fetch_add(1, Ordering::Relaxed);
        stage.everybody_gets_on();
    }
    crowd.stop();
    fleet.count(stage, "while they wrote");
    let answered = (0..10).any(|_| fleet.reset());
    assert!(answered, "{:?}", fleet.tally);
    fleet.count(stage, "in the end");
    println!("{what}: {:?} in {:.1?}", fleet.tally, began.elapsed());
    assert_eq!(fleet.tally.lost, 0, "{:?}", fleet.tally);
    assert!(fleet.tally.resets > 0, "{:?}", fleet.tally);
    fleet.is_tidy();
}

fn by_their_own_time(what: &str, runs: usize, dial: Arc<dyn Connector>) {
    let stage: Arc<Stage> = Arc::default();
    let clock = |world: &World| -> Arc<dyn Clock> {
        Arc::new(Together {
            clock: Arc::clone(&world.clock),
            stage: Arc::clone(&stage),
        })
    };
    nothing_is_lost(what, runs, Fleet::new(clock, dial), &stage);
}

#[test]
fn no_note_is_lost_however_agents_on_a_host_write() {
    let Some(server) = sftp_server() else { return };
    let runs = if full() { 400 } else { 12 };
    by_their_own_time("sftp-server", runs, Arc::new(server));
}

#[test]
fn no_note_is_lost_behind_ssh() {
    let Some(server) = Sshd::start() else { return };
    let runs = if full() { 300 } else { 8 };
    by_their_own_time("sshd", runs, Arc::new(server.dial()));
}

#[test]
fn no_note_is_lost_by_the_clock_of_the_machine() {
    if !full() {
        println!("skipped: only with HARNESS=full");
        return;
    }
    let Some(server) = Sshd::start() else { return };
    let fleet = Fleet::new(|_| Arc::new(SystemClock), Arc::new(server.dial()));
    nothing_is_lost("sshd, real time", 80, fleet, &Arc::default());
}

/// One who writes all the time is not waited for for ever: what was displaced
/// stays, and takes what is written to it until the next run.
#[test]
fn what_is_written_for_longer_than_anybody_waits_is_kept() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&[]).general("remote_timeout = 3600");
    add_remote(&mut world, "holds", "box");
    world.write_scratch("holds", "- early\n");
    let mut file = File::options()
        .append(true)
        .open(world.memory("holds"))
        .unwrap();
    let mut writes = {
        let mut number = 0;
        let mut file = file.try_clone().unwrap();
        move || {
            file.write_all(note(0, number).as_bytes()).unwrap();
            number += 1;
        }
    };
    let written = Arc::new(AtomicU64::new(0));
    world.clock.meanwhile({
        let written = Arc::clone(&written);
        move || {
            writes();
            written.fetch_add(1, Ordering::Relaxed);
        }
    });
    let engine = engine(&world, server);
    let ran = world.reset_by(&engine);
    ran.ok();
    assert!(ran.note().contains("it stays as"), "{}", ran.note());
    assert_eq!(world.read("holds"), BASELINE.as_bytes());
    let [left] = world.litter("holds").try_into().unwrap();
    assert_eq!(world.pending().len(), 1);
    // Long after the run, and for the last time.
    world.clock.meanwhile(|| {});
    file.write_all(b"- late\n").unwrap();
    drop(file);
    let ran = world.reset_by(&engine);
    ran.ended(Outcome::Unchanged);
    assert_eq!(world.litter("holds"), [""; 0], "{left} is settled");
    assert!(world.pending().is_empty());
    let mut all = "- early\n".to_string();
    for number in 0..written.load(Ordering::Relaxed) {
        all.push_str(&note(0, number));
    }
    all.push_str("- late\n");
    assert!(world.holds("holds", all.as_bytes()));
}

#[test]
fn recovery_ends_while_a_writer_goes_on() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&[]).general("remote_timeout = 3600");
    add_remote(&mut world, "holds", "box");
    world.write_scratch("holds", "- early\n");
    let mut file = File::options()
        .append(true)
        .open(world.memory("holds"))
        .unwrap();
    let written = Arc::new(AtomicU64::new(0));
    world.clock.meanwhile({
        let written = Arc::clone(&written);
        move || {
            let number = written.fetch_add(1, Ordering::Relaxed);
            if number > 10_000 {
                eprintln!("recovery waits for a time that has passed");
                std::process::abort();
            }
            file.write_all(note(0, number).as_bytes()).unwrap();
        }
    });
    let engine = engine(&world, server);
    for _ in 0..3 {
        world.reset_by(&engine).ok();
        assert_eq!(world.read("holds"), BASELINE.as_bytes());
        world.write_scratch("holds", "- early\n");
    }
    assert_eq!(world.pending().len(), 1);
    world.clock.meanwhile(|| {});
    for _ in 0..3 {
        world.reset_by(&engine);
    }
    assert_eq!(world.litter("holds"), [""; 0]);
    assert!(world.pending().is_empty());
    let mut all = "- early\n".to_string();
    for number in 0..written.load(Ordering::Relaxed) {
        all.push_str(&note(0, number));
    }
    assert!(world.holds("holds", all.as_bytes()));
}
