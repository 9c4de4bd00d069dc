//! Agents on a host that write while they are reset from here, again and again. Every note is in
//! the memory, in an entry, or in a displaced file that a later run archives.
//!
//! A note counts as written when the call that saved it has returned: `write` for an appender,
//! `close` for a truncating writer, `rename` for one that saves a whole file. Writers that rewrite
//! have their memory to themselves, and bring old notes back: a note may occur often, and must
//! occur once.
//!
//! Over SFTP the engine cannot see open descriptors. It removes a displaced file after a quarter of
//! a second without a write to it, so an agent may keep the file open, but must not pause longer
//! and then write into it. To ensure that on any machine, time passes here only when every agent
//! has made progress; `HARNESS=full` also tries the machine's own clock.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use memory_shepherd::base::clock::{Clock, SystemClock};
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Engine, Outcome};
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::sftp::PerHostTransports;
use memory_shepherd::transport::sftp::ssh::Connector;

use super::remote::{add_remote_agent, engine_with_connector};
use super::servers::sftp_server;
use super::sshd::Sshd;
use super::world::{BASELINE, TestClock, World};
use crate::full_harness::is_full_harness;
use crate::skip::skip_unsupported;

/// Upper bound of any wait in this file: what takes longer hangs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

/// Size at which rewriting writers wait for a reset.
const MAX_REWRITTEN_BYTES: u64 = 8 * 1024;

/// Bytes after which an appender slows down: a reset may take long on a slow machine.
const MAX_APPENDED_BYTES: u64 = 16 * 1024;

/// How an agent writes.
#[derive(Clone, Copy, Debug)]
enum WriterKind {
    /// Opens for appending, writes some notes, closes.
    Append,
    /// Opens for appending, and writes through that descriptor across several runs.
    HoldOpen,
    /// Reads, opens with truncation, writes the old content and a note.
    Truncate,
    /// Reads, writes a temporary file with one note more, renames it.
    Rename,
}

/// The agents' names, and the writers of each memory.
const WRITERS_BY_AGENT: &[(&str, &[WriterKind])] = &[
    ("appends", &[WriterKind::Append]),
    ("holds", &[WriterKind::HoldOpen]),
    (
        "several",
        &[WriterKind::HoldOpen, WriterKind::Append, WriterKind::Append],
    ),
    ("truncates", &[WriterKind::Truncate]),
    ("renames", &[WriterKind::Rename]),
];

fn note_line(writer: usize, number: u64) -> String {
    format!("- note {number} of {writer}, and no more\n")
}

/// Progress of one writer, visible to all threads.
#[derive(Default)]
struct WriterProgress {
    /// Number of notes written.
    written: AtomicU64,
    /// Number of steps taken, from opening a file to closing it or to writing the next note into
    /// it.
    steps: AtomicU64,
}

/// Progress of all writers, shared with the resetting thread.
#[derive(Default)]
struct SharedProgress {
    stop: AtomicBool,
    runs: AtomicU64,
    ticks: AtomicU64,
    writers: Mutex<Vec<Arc<WriterProgress>>>,
}

impl SharedProgress {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until every writer has taken two more steps: the first ends the step that was under
    /// way, the second is a complete one.
    fn wait_for_all_writers(&self) {
        self.ticks.fetch_add(1, Ordering::AcqRel);
        let writers = self.writers.lock().unwrap().clone();
        let steps = |it: &Arc<WriterProgress>| it.steps.load(Ordering::Acquire);
        let before: Vec<u64> = writers.iter().map(steps).collect();
        let end = Instant::now() + WAIT_TIMEOUT;
        for (writer, before) in writers.iter().zip(before) {
            while !self.is_stopped() && steps(writer) < before + 2 {
                assert!(Instant::now() < end, "a writer makes no progress");
                thread::park_timeout(Duration::from_micros(200));
            }
        }
    }
}

/// A clock that advances when the writers make progress.
struct WriterDrivenClock {
    clock: Arc<TestClock>,
    shared: Arc<SharedProgress>,
}

impl Clock for WriterDrivenClock {
    fn now(&self) -> DateTime<FixedOffset> {
        self.clock.now()
    }

    fn instant(&self) -> Instant {
        self.clock.instant()
    }

    fn sleep(&self, duration: Duration) {
        self.shared.wait_for_all_writers();
        // The run's own threads wait for each other by this clock, too.
        thread::park_timeout(Duration::from_millis(2));
        self.clock.sleep(duration);
    }
}

/// A thread that writes notes until it is stopped.
struct Writer {
    manner: WriterKind,
    memory: PathBuf,
    number: usize,
    progress: Arc<WriterProgress>,
    shared: Arc<SharedProgress>,
}

impl Writer {
    fn write(&self) {
        for round in 0.. {
            if self.shared.is_stopped() {
                return;
            }
            match self.manner {
                WriterKind::Append => self.append(1 + round % 5),
                WriterKind::HoldOpen => self.hold_open(round % 3),
                WriterKind::Truncate => self.rewrite(|text| self.truncate(text)),
                WriterKind::Rename => self.rewrite(|text| self.rename(text)),
            }
            self.pause();
        }
    }

    /// Pauses between two steps, without waiting for anything.
    fn pause(&self) {
        self.progress.steps.fetch_add(1, Ordering::Release);
        thread::park_timeout(Duration::from_micros(500));
    }

    fn next_note(&self) -> String {
        note_line(self.number, self.progress.written.load(Ordering::Relaxed))
    }

    fn count_written(&self) {
        self.progress.written.fetch_add(1, Ordering::Release);
    }

    /// Retries an open or a read until the file exists: over SFTP a memory is absent for a moment.
    fn retry_until_present<T>(&self, open: impl Fn(&Path) -> std::io::Result<T>) -> T {
        let end = Instant::now() + WAIT_TIMEOUT;
        loop {
            match open(&self.memory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    assert!(Instant::now() < end, "the memory stays absent");
                    thread::park_timeout(Duration::from_micros(50));
                }
                opened => return opened.unwrap(),
            }
        }
    }

    fn open_for_append(&self) -> File {
        self.retry_until_present(|memory| File::options().append(true).open(memory))
    }

    fn append(&self, notes: u64) {
        let mut file = self.open_for_append();
        if file.metadata().unwrap().len() > MAX_APPENDED_BYTES {
            return;
        }
        for _ in 0..notes {
            file.write_all(self.next_note().as_bytes()).unwrap();
            self.count_written();
        }
    }

    /// Keeps the file open across `runs` runs, without a long pause between writes.
    fn hold_open(&self, runs: u64) {
        let until = self.shared.runs.load(Ordering::Relaxed) + runs;
        let mut file = self.open_for_append();
        let mut last = None;
        let mut spoke = Instant::now();
        while self.shared.runs.load(Ordering::Relaxed) <= until && !self.shared.is_stopped() {
            let tick = Some(self.shared.ticks.load(Ordering::Acquire));
            let silent = last != tick || spoke.elapsed() > Duration::from_millis(20);
            if silent || file.metadata().unwrap().len() < MAX_APPENDED_BYTES {
                file.write_all(self.next_note().as_bytes()).unwrap();
                self.count_written();
                (last, spoke) = (tick, Instant::now());
            }
            self.pause();
        }
    }

    fn rewrite(&self, save: impl Fn(&[u8]) -> std::io::Result<()>) {
        let mut text = self.retry_until_present(|memory| fs::read(memory));
        if text.len() as u64 > MAX_REWRITTEN_BYTES {
            return;
        }
        text.extend_from_slice(self.next_note().as_bytes());
        match save(&text) {
            // The memory was just displaced: start over.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            saved => {
                saved.unwrap();
                self.count_written();
            }
        }
    }

    fn truncate(&self, text: &[u8]) -> std::io::Result<()> {
        let options = File::options().write(true).truncate(true).clone();
        let mut file = options.open(&self.memory)?;
        // Some libraries write their buffers in pieces.
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

/// The writers of a fleet; dropping it stops them.
struct WriterThreads {
    shared: Arc<SharedProgress>,
    threads: Vec<JoinHandle<()>>,
}

impl WriterThreads {
    fn start(world: &World, stage: &Arc<SharedProgress>) -> WriterThreads {
        let mut threads = Vec::new();
        for (agent, manners) in WRITERS_BY_AGENT {
            for manner in *manners {
                let progress: Arc<WriterProgress> = Arc::default();
                stage.writers.lock().unwrap().push(Arc::clone(&progress));
                let writer = Writer {
                    manner: *manner,
                    memory: world.memory_path(agent),
                    number: threads.len(),
                    progress,
                    shared: Arc::clone(stage),
                };
                threads.push(thread::spawn(move || writer.write()));
            }
        }
        WriterThreads {
            shared: Arc::clone(stage),
            threads,
        }
    }

    fn stop(mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for writer in self.threads.drain(..) {
            writer.join().unwrap();
        }
    }
}

impl Drop for WriterThreads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct RunTally {
    runs: usize,
    resets: usize,
    refusals: usize,
    silences: usize,
    late: usize,
    notes: u64,
    lost: usize,
}

/// A fleet with writers, reset through the connector of a host.
struct WrittenFleet {
    world: World,
    engine: Engine,
    names: Vec<String>,
    tally: RunTally,
}

impl WrittenFleet {
    fn new(clock: impl FnOnce(&World) -> Arc<dyn Clock>, dial: Arc<dyn Connector>) -> WrittenFleet {
        // The host's own clock, which hardly advances here, has enough time.
        let mut world = World::new(&[]).with_general("remote_timeout = 3600");
        for (agent, _) in WRITERS_BY_AGENT {
            add_remote_agent(&mut world, agent, super::sshd::HOST_NAME);
            world.write_memory(agent, BASELINE);
        }
        let clock = clock(&world);
        let here = Arc::new(LocalTransport::new(clock.clone()));
        let everywhere = PerHostTransports::new(here, dial, clock.clone());
        let engine = world.engine_with_transports(clock, Arc::new(everywhere), None);
        WrittenFleet {
            world,
            engine,
            names: WRITERS_BY_AGENT
                .iter()
                .map(|(agent, _)| agent.to_string())
                .collect(),
            tally: RunTally::default(),
        }
    }

    /// Resets as a timer does; returns whether the host answered.
    fn reset(&mut self) -> bool {
        let plan = self
            .engine
            .planner()
            .plan_unobserved(&self.names, false)
            .unwrap();
        let none = AtomicBool::new(false);
        let report = self
            .engine
            .runs()
            .apply_plan(&plan, false, &none, &mut |_| {});
        self.tally.runs += 1;
        self.tally.resets += report.count(Outcome::Ok);
        let mut silent = 0;
        for result in &report.results {
            let note = result.note.as_deref().unwrap_or("");
            match result.kind {
                None => {}
                // A run gives up with an error when an agent replaces the file again and again.
                Some(ErrorKind::Conflict) => self.tally.refusals += 1,
                // The machine is overloaded; that loses nothing either.
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
    fn count_notes(&mut self, stage: &SharedProgress, when: &str) {
        let writers = stage.writers.lock().unwrap().clone();
        let mut number = 0;
        (self.tally.notes, self.tally.late) = (0, 0);
        for (agent, manners) in WRITERS_BY_AGENT {
            let mut text = self.world.all_entry_bytes(agent);
            text.extend(self.world.read_memory(agent));
            for name in self.world.leftovers(agent) {
                text.extend(fs::read(self.world.agent_directory(agent).join(name)).unwrap());
            }
            let found: HashSet<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
            for manner in *manners {
                let written = writers[number].written.load(Ordering::Acquire);
                let lost: Vec<u64> = (0..written)
                    .filter(|it| !found.contains(note_line(number, *it).as_bytes()))
                    .collect();
                if !lost.is_empty() {
                    let (count, first) = (lost.len(), &lost[..lost.len().min(5)]);
                    println!(
                        "{agent}, {manner:?}: {count} of {written} notes lost {when}, first: {first:?}"
                    );
                }
                self.tally.lost += lost.len();
                self.tally.notes += written;
                number += 1;
            }
            let late = |name: &String| name.contains("-late") || name.contains("-appended");
            self.tally.late += self
                .world
                .entry_names(agent)
                .iter()
                .filter(|it| late(it))
                .count();
        }
    }

    /// Asserts that the next run after the last write leaves nothing behind.
    fn assert_no_leftovers(&self) {
        for name in &self.names {
            assert_eq!(self.world.read_memory(name), BASELINE.as_bytes(), "{name}");
            assert_eq!(self.world.leftovers(name), [""; 0], "{name}");
        }
        assert_eq!(self.world.pending_journals(), [""; 0]);
        let all = self.engine.ledger().records(None, None).unwrap();
        all.for_each(&mut |_| Ok(())).unwrap();
    }
}

/// Resets repeatedly while all agents write, and asserts that no note is lost.
#[track_caller]
fn assert_no_note_is_lost(
    what: &str,
    runs: usize,
    mut fleet: WrittenFleet,
    stage: &Arc<SharedProgress>,
) {
    let began = Instant::now();
    let crowd = WriterThreads::start(&fleet.world, stage);
    for _ in 0..runs {
        fleet.reset();
        stage.runs.fetch_add(1, Ordering::Relaxed);
        stage.wait_for_all_writers();
    }
    crowd.stop();
    fleet.count_notes(stage, "while they wrote");
    let answered = (0..10).any(|_| fleet.reset());
    assert!(answered, "{:?}", fleet.tally);
    fleet.count_notes(stage, "after the last run");
    println!("{what}: {:?} in {:.1?}", fleet.tally, began.elapsed());
    assert_eq!(fleet.tally.lost, 0, "{:?}", fleet.tally);
    assert!(fleet.tally.resets > 0, "{:?}", fleet.tally);
    fleet.assert_no_leftovers();
}

fn assert_no_note_is_lost_in_writer_time(what: &str, runs: usize, dial: Arc<dyn Connector>) {
    let stage: Arc<SharedProgress> = Arc::default();
    let clock = |world: &World| -> Arc<dyn Clock> {
        Arc::new(WriterDrivenClock {
            clock: Arc::clone(&world.clock),
            shared: Arc::clone(&stage),
        })
    };
    assert_no_note_is_lost(what, runs, WrittenFleet::new(clock, dial), &stage);
}

#[test]
fn remote_writers_lose_no_note() {
    let Some(server) = sftp_server() else { return };
    let runs = if is_full_harness() { 400 } else { 12 };
    assert_no_note_is_lost_in_writer_time("sftp-server", runs, Arc::new(server));
}

#[test]
fn ssh_writers_lose_no_note() {
    let Some(server) = Sshd::start() else { return };
    let runs = if is_full_harness() { 300 } else { 8 };
    assert_no_note_is_lost_in_writer_time("sshd", runs, Arc::new(server.connector()));
}

#[test]
fn real_time_ssh_writers_lose_no_note() {
    if !is_full_harness() {
        skip_unsupported("only with HARNESS=full");
        return;
    }
    let Some(server) = Sshd::start() else { return };
    let fleet = WrittenFleet::new(|_| Arc::new(SystemClock), Arc::new(server.connector()));
    assert_no_note_is_lost("sshd, real time", 80, fleet, &Arc::default());
}

/// Returns a world with an agent on a host that has written `- early`, and its open memory.
fn world_with_open_memory() -> (World, File) {
    let mut world = World::new(&[]).with_general("remote_timeout = 3600");
    add_remote_agent(&mut world, "holds", "box");
    world.write_scratch("holds", "- early\n");
    let memory = world.memory_path("holds");
    let file = File::options().append(true).open(memory).unwrap();
    (world, file)
}

/// Returns `- early`, and as many numbered notes below it.
fn early_and_numbered_notes(written: &AtomicU64) -> String {
    let numbers = 0..written.load(Ordering::Relaxed);
    let notes = numbers.map(|number| note_line(0, number));
    "- early\n".to_string() + &notes.collect::<String>()
}

/// A run does not wait for a busy writer for ever: the displaced file stays, and receives its
/// writes until the next run.
#[test]
fn file_written_past_the_timeout_is_kept() {
    let Some(server) = sftp_server() else { return };
    let (world, mut file) = world_with_open_memory();
    let mut writes = {
        let mut number = 0;
        let mut file = file.try_clone().unwrap();
        move || {
            file.write_all(note_line(0, number).as_bytes()).unwrap();
            number += 1;
        }
    };
    let written = Arc::new(AtomicU64::new(0));
    world.clock.on_sleep({
        let written = Arc::clone(&written);
        move || {
            writes();
            written.fetch_add(1, Ordering::Relaxed);
        }
    });
    let engine = engine_with_connector(&world, server);
    let ran = world.reset_with_engine(&engine);
    ran.assert_ok();
    assert!(ran.note().contains("it stays as"), "{}", ran.note());
    assert_eq!(world.read_memory("holds"), BASELINE.as_bytes());
    let [left] = world.leftovers("holds").try_into().unwrap();
    assert_eq!(world.pending_journals().len(), 1);
    // The last write, long after the run.
    world.clock.on_sleep(|| {});
    file.write_all(b"- late\n").unwrap();
    drop(file);
    let ran = world.reset_with_engine(&engine);
    ran.assert_outcome(Outcome::Unchanged);
    assert_eq!(world.leftovers("holds"), [""; 0], "{left} is settled");
    assert!(world.pending_journals().is_empty());
    let all = early_and_numbered_notes(&written) + "- late\n";
    assert!(world.preserves("holds", all.as_bytes()));
}

#[test]
fn recovery_ends_while_a_writer_continues() {
    let Some(server) = sftp_server() else { return };
    let (world, mut file) = world_with_open_memory();
    let written = Arc::new(AtomicU64::new(0));
    world.clock.on_sleep({
        let written = Arc::clone(&written);
        move || {
            let number = written.fetch_add(1, Ordering::Relaxed);
            if number > 10_000 {
                eprintln!("recovery waits for a time in the past");
                std::process::abort();
            }
            file.write_all(note_line(0, number).as_bytes()).unwrap();
        }
    });
    let engine = engine_with_connector(&world, server);
    for _ in 0..3 {
        world.reset_with_engine(&engine).assert_ok();
        assert_eq!(world.read_memory("holds"), BASELINE.as_bytes());
        world.write_scratch("holds", "- early\n");
    }
    assert_eq!(world.pending_journals().len(), 1);
    world.clock.on_sleep(|| {});
    for _ in 0..3 {
        world.reset_with_engine(&engine);
    }
    assert_eq!(world.leftovers("holds"), [""; 0]);
    assert!(world.pending_journals().is_empty());
    let all = early_and_numbered_notes(&written);
    assert!(world.preserves("holds", all.as_bytes()));
}
