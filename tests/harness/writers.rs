//! Agents that write numbered notes, in every way there is, while the real binary resets them
//! thousands of times and is killed in the middle of it.
//!
//! A note counts as written when the call that saved it has returned: `write` or `close` for an
//! appender or truncating writer, `rename` for one that saves a whole file, `munmap` for one that
//! maps. A writer that rewrites what it read before a reset rightly brings old notes back: a note
//! may occur often, and must occur once. Rewriting writers have their memory to themselves, because
//! several of them lose each other's notes even without a reset.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{BASELINE, Fleet, NEW_BASELINE, directory_files};
use crate::full_harness::is_full_harness;
use crate::kernel::SharedMapping;
use crate::processes::{RunningProgram, SeededRandom, processor_lock, test_directory};
use crate::scene::RESET_ALL;

const SEED: u64 = 20_260_314;

/// Size at which rewriting writers wait for a reset.
const MAX_REWRITTEN_BYTES: u64 = 24 * 1024;

/// How an agent writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriterKind {
    /// Opens for appending, writes a few notes, closes.
    Append,
    /// The same with one note at a time and without any pause.
    AppendContinuously,
    /// Reads, opens with truncation, writes the old content and a note.
    Truncate,
    /// Reads, writes a temporary file with one note more, renames it.
    Rename,
    /// Extends the file, maps it, closes it, writes into the mapping.
    Map,
    /// Keeps a descriptor for long, and writes to it at intervals.
    HoldOpen,
}

impl WriterKind {
    /// Returns whether every note is in one piece at any time.
    fn writes_whole_notes(self) -> bool {
        self == WriterKind::Rename
    }

    /// Returns whether a memory of such an agent always begins with the baseline.
    fn keeps_baseline(self) -> bool {
        self != WriterKind::Truncate
    }
}

/// Agents' names, and the writers of each memory.
type AgentWriters = [(&'static str, &'static [WriterKind])];

/// Writers that close the file soon, so that a reset never has to wait for long.
const QUICK_WRITERS: &AgentWriters = &[
    ("append", &[WriterKind::Append]),
    ("truncate", &[WriterKind::Truncate]),
    ("rename", &[WriterKind::Rename]),
    ("map", &[WriterKind::Map]),
    (
        "several",
        &[WriterKind::Append, WriterKind::Append, WriterKind::Append],
    ),
];

/// A writer without pauses, which makes as much work as all others together.
const RESTLESS_WRITERS: &AgentWriters = &[
    ("unresting", &[WriterKind::AppendContinuously]),
    ("rename", &[WriterKind::Rename]),
];

/// Writers that still have the old file open at a reset.
const HOLDING_WRITERS: &AgentWriters = &[
    ("holds", &[WriterKind::HoldOpen]),
    ("both", &[WriterKind::HoldOpen, WriterKind::Append]),
    (
        "holders",
        &[
            WriterKind::HoldOpen,
            WriterKind::HoldOpen,
            WriterKind::HoldOpen,
        ],
    ),
    ("append", &[WriterKind::Append]),
];

/// Returns the text of a note. Its length varies, and no part of it is a note.
fn note_line(writer: usize, number: u64) -> String {
    let filler = &"abcdefghijklmnopqrstuvwxyz0123456789"[..(number * 7 % 36) as usize];
    format!("- {writer}.{number} {filler} .{}\n", number % 97)
}

/// Returns the writer and the number of a line that is a note.
fn parse_note(line: &[u8]) -> Option<(usize, u64)> {
    let text = str::from_utf8(line).ok()?;
    let (id, _) = text.strip_prefix("- ")?.split_once(' ')?;
    let (writer, number) = id.split_once('.')?;
    let (writer, number) = (writer.parse().ok()?, number.parse().ok()?);
    (note_line(writer, number).as_bytes() == line).then_some((writer, number))
}

/// Returns the writer and the number of a note behind the beginning of another one in the same line:
/// a push keeps what it has read of a note that is being written, and the next note follows that.
fn parse_note_behind_cut_note(line: &[u8]) -> Option<(usize, u64)> {
    let text = str::from_utf8(line).ok()?;
    parse_note(&line[text.rfind("- ")?..])
}

/// A thread that writes notes until it is stopped, and its progress.
struct Writer {
    manner: WriterKind,
    memory: PathBuf,
    number: usize,
    random: SeededRandom,
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl Writer {
    fn start(self) -> JoinHandle<()> {
        thread::spawn(move || self.write())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn write(mut self) {
        while !self.is_stopped() {
            match self.manner {
                WriterKind::Append => {
                    let notes = 1 + self.random.below(6);
                    self.append(notes);
                    self.pause(800);
                }
                WriterKind::AppendContinuously => self.append(1),
                WriterKind::Truncate => self.truncate(),
                WriterKind::Rename => self.rename(),
                WriterKind::Map => self.map(),
                WriterKind::HoldOpen => self.hold_open(),
            }
        }
    }

    /// Pauses between two steps, without waiting for anything.
    fn pause(&mut self, microseconds: u64) {
        thread::sleep(Duration::from_micros(self.random.below(microseconds)));
    }

    fn next_note(&self) -> String {
        note_line(self.number, self.written.load(Ordering::Relaxed))
    }

    fn count_written(&self) {
        self.written.fetch_add(1, Ordering::Release);
    }

    /// Opens the memory, which must never be absent.
    fn open(&self, options: &mut fs::OpenOptions) -> File {
        match options.open(&self.memory) {
            Ok(file) => file,
            Err(error) => panic!("{}: {error}", self.memory.display()),
        }
    }

    fn append(&self, notes: u64) {
        let mut file = self.open(File::options().append(true));
        for _ in 0..notes {
            file.write_all(self.next_note().as_bytes()).unwrap();
            self.count_written();
        }
    }

    /// Waits while the memory is larger than a writer rewrites.
    fn wait_for_a_reset(&self) {
        while !self.is_stopped()
            && fs::metadata(&self.memory).is_ok_and(|it| it.len() > MAX_REWRITTEN_BYTES)
        {
            thread::park_timeout(Duration::from_micros(200));
        }
    }

    fn truncate(&mut self) {
        self.wait_for_a_reset();
        let mut text = fs::read(&self.memory).unwrap();
        text.extend_from_slice(self.next_note().as_bytes());
        let mut file = self.open(File::options().write(true).truncate(true));
        // Some libraries write their buffers in pieces.
        let cut = self.random.below(text.len() as u64) as usize;
        file.write_all(&text[..cut]).unwrap();
        file.write_all(&text[cut..]).unwrap();
        drop(file);
        self.count_written();
        self.pause(800);
    }

    fn rename(&mut self) {
        self.wait_for_a_reset();
        let mut text = fs::read(&self.memory).unwrap();
        text.extend_from_slice(self.next_note().as_bytes());
        let temporary = self.memory.with_extension("saving");
        fs::write(&temporary, text).unwrap();
        fs::rename(&temporary, &self.memory).unwrap();
        self.count_written();
        self.pause(800);
    }

    fn map(&mut self) {
        self.wait_for_a_reset();
        let file = self.open(File::options().read(true).write(true));
        let length = file.metadata().unwrap().len();
        let note = self.next_note();
        file.set_len(length + note.len() as u64).unwrap();
        let mut mapping = SharedMapping::new(&file).unwrap();
        drop(file);
        self.pause(60);
        mapping.write(length as usize, note.as_bytes());
        drop(mapping);
        self.count_written();
        self.pause(800);
    }

    /// Keeps the file open across several resets, at times: an eighth of a second, or two seconds.
    fn hold_open(&mut self) {
        let longest = if self.random.below(4) == 0 { 2600 } else { 200 };
        let end = Instant::now() + Duration::from_millis(20 + self.random.below(longest));
        let mut file = self.open(File::options().append(true));
        while Instant::now() < end && !self.is_stopped() {
            file.write_all(self.next_note().as_bytes()).unwrap();
            self.count_written();
            self.pause(3000);
        }
    }
}

/// All writers of a fleet.
struct WriterThreads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Number of written notes of each writer, by agent.
    written: BTreeMap<&'static str, Vec<Arc<AtomicU64>>>,
    /// Violations that an observer has seen.
    seen: Arc<Mutex<Vec<String>>>,
}

impl WriterThreads {
    fn start(fleet: &Fleet, cast: &AgentWriters, random: &mut SeededRandom) -> WriterThreads {
        let mut crowd = WriterThreads {
            stop: Arc::default(),
            threads: Vec::new(),
            written: BTreeMap::new(),
            seen: Arc::default(),
        };
        for (agent, manners) in cast {
            for (number, manner) in manners.iter().enumerate() {
                let written: Arc<AtomicU64> = Arc::default();
                crowd
                    .written
                    .entry(agent)
                    .or_default()
                    .push(Arc::clone(&written));
                let writer = Writer {
                    manner: *manner,
                    memory: fleet.memory_path(agent),
                    number,
                    random: SeededRandom::new(random.next()),
                    stop: Arc::clone(&crowd.stop),
                    written,
                };
                crowd.threads.push(writer.start());
            }
        }
        crowd.threads.push(crowd.start_observer(fleet, cast));
        crowd
    }

    /// Starts an observer, which checks that every memory exists and begins correctly.
    fn start_observer(&self, fleet: &Fleet, cast: &AgentWriters) -> JoinHandle<()> {
        let keeps = |manners: &[WriterKind]| manners.iter().all(|it| it.keeps_baseline());
        let memories: Vec<PathBuf> = cast
            .iter()
            .filter(|(_, manners)| keeps(manners))
            .map(|(agent, _)| fleet.memory_path(agent))
            .collect();
        let (stop, seen) = (Arc::clone(&self.stop), Arc::clone(&self.seen));
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for memory in &memories {
                    if let Err(what) = begins_with_baseline(memory) {
                        seen.lock().unwrap().push(what);
                    }
                }
                thread::park_timeout(Duration::from_micros(500));
            }
        })
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.threads.drain(..) {
            writer.join().unwrap();
        }
        assert_eq!(*self.seen.lock().unwrap(), [""; 0]);
    }

    fn notes(&self) -> u64 {
        let all = self.written.values().flatten();
        all.map(|written| written.load(Ordering::Acquire)).sum()
    }
}

impl Drop for WriterThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn begins_with_baseline(memory: &Path) -> Result<(), String> {
    use std::io::Read;
    let mut head = vec![0; BASELINE.len()];
    let read = File::open(memory).and_then(|mut file| file.read_exact(&mut head));
    let is_baseline = |text: &str| text.as_bytes().starts_with(&head);
    match read {
        Ok(()) if is_baseline(BASELINE) || is_baseline(NEW_BASELINE) => Ok(()),
        Ok(()) => Err(format!("{}: {head:?}", memory.display())),
        Err(error) => Err(format!("{}: {error}", memory.display())),
    }
}

/// Notes found for one agent.
#[derive(Default)]
struct FoundNotes {
    notes: Vec<Vec<bool>>,
    /// Lines that are not notes, with the files they are in.
    fragments: Vec<String>,
}

impl FoundNotes {
    fn collect_notes(&mut self, agent: &str, name: &str, bytes: &[u8]) {
        let header = format!("# {agent} scratch notes ");
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // What a mapping has not written yet is NUL, and stands before the next note.
            let holes = line.iter().take_while(|byte| **byte == 0).count();
            let line = &line[holes..];
            match parse_note(line) {
                Some((writer, number)) => self.mark_found(writer, number),
                None if line.starts_with(header.as_bytes()) => {}
                None if is_baseline_line(line) => {}
                None => {
                    if let Some((writer, number)) = parse_note_behind_cut_note(line) {
                        self.mark_found(writer, number);
                    }
                    let text = String::from_utf8_lossy(line).into_owned();
                    self.fragments.push(format!("{name}: {text:?}"));
                }
            }
        }
    }

    fn mark_found(&mut self, writer: usize, number: u64) {
        if self.notes.len() <= writer {
            self.notes.resize(writer + 1, Vec::new());
        }
        let notes = &mut self.notes[writer];
        let number = number as usize;
        if notes.len() <= number {
            notes.resize(number + 1, false);
        }
        notes[number] = true;
    }

    /// Returns the first missing notes, and the number of all missing ones.
    fn missing(&self, writer: usize, written: u64) -> (Vec<u64>, u64) {
        let none = Vec::new();
        let notes = self.notes.get(writer).unwrap_or(&none);
        let is_missing = |number: &u64| notes.get(*number as usize) != Some(&true);
        let all: Vec<u64> = (0..written).filter(is_missing).collect();
        (all.iter().take(5).copied().collect(), all.len() as u64)
    }
}

fn is_baseline_line(line: &[u8]) -> bool {
    [BASELINE, NEW_BASELINE]
        .into_iter()
        .flat_map(|text| text.split_inclusive('\n'))
        .any(|of_baseline| of_baseline.as_bytes() == line)
}

/// Finds the notes in all of an agent's files: memory, entries, displaced files.
fn find_notes(fleet: &Fleet, agent: &str) -> FoundNotes {
    let mut found = FoundNotes::default();
    let entries = directory_files(&fleet.archive.join(agent));
    for (name, bytes) in &entries {
        found.collect_notes(agent, name, bytes);
    }
    for (name, bytes) in directory_files(&fleet.agent_directory(agent)) {
        found.collect_notes(agent, &name, &bytes);
    }
    for (name, bytes) in with_appended_entries(fleet, agent, &entries) {
        found.collect_notes(agent, &name, &bytes);
    }
    found
}

/// Returns entries joined with those that later entries append to them: a note saved in pieces may
/// begin in one entry and end in another.
fn with_appended_entries(
    fleet: &Fleet,
    agent: &str,
    entries: &BTreeMap<String, Vec<u8>>,
) -> Vec<(String, Vec<u8>)> {
    let bytes_of = |written: &Value| {
        let path = written["path"].as_str()?;
        let name = path.strip_prefix(agent)?.strip_prefix('/')?;
        Some((name.to_string(), entries.get(name)?))
    };
    // Archived bytes of each content, by the digest of all of it.
    let mut known: HashMap<String, Vec<u8>> = HashMap::new();
    let mut joined = Vec::new();
    for record in fleet.records() {
        if record["agent"] != agent {
            continue;
        }
        let before = record["before"]["file"]["sha256"].as_str();
        if let (Some(sha256), Some((_, bytes))) = (before, bytes_of(&record["entry"])) {
            known.insert(sha256.to_string(), bytes.clone());
        }
        for late in record["late"].as_array().into_iter().flatten() {
            let Some((name, bytes)) = bytes_of(late) else {
                continue;
            };
            let base_digest = late["base"]["sha256"].as_str();
            let whole = late["base"]["whole"].as_str().or(late["digest"].as_str());
            let base = base_digest.and_then(|sha256| known.get(sha256));
            let bytes = [base.map_or(&[][..], Vec::as_slice), bytes].concat();
            known.insert(whole.unwrap_or_default().to_string(), bytes.clone());
            joined.push((name, bytes));
        }
    }
    joined
}

/// Counts of one or several rounds.
#[derive(Debug, Default)]
struct RoundTally {
    notes: u64,
    resets: u64,
    agents_reset: u64,
    kills: u64,
    refusals: u64,
    late: u64,
    fragments: u64,
    losses: u64,
}

/// Lines of a memory that a push keeps: the first below the separator of either baseline.
const CHOSEN_LINES: &str = "8-9";

impl RoundTally {
    fn add(&mut self, other: &RoundTally) {
        self.notes += other.notes;
        self.resets += other.resets;
        self.agents_reset += other.agents_reset;
        self.kills += other.kills;
        self.refusals += other.refusals;
        self.late += other.late;
        self.fragments += other.fragments;
        self.losses += other.losses;
    }
}

/// One fleet, from its first note to its last reset.
struct WriterRound {
    fleet: Fleet,
    cast: &'static AgentWriters,
    random: SeededRandom,
    tally: RoundTally,
    /// Approximate duration of a run that was not killed.
    usual: Duration,
}

impl WriterRound {
    fn new(root: &Path, cast: &'static AgentWriters, seed: u64) -> WriterRound {
        let names: Vec<&str> = cast.iter().map(|(name, _)| *name).collect();
        let fleet = Fleet::new(root, &root.join("archives"), &names);
        for name in names {
            fs::write(fleet.memory_path(name), BASELINE).unwrap();
        }
        WriterRound {
            fleet,
            cast,
            random: SeededRandom::new(seed),
            tally: RoundTally::default(),
            usual: Duration::from_millis(30),
        }
    }

    /// Runs one reset of all agents or of one, or a push of a changed baseline to all of them, to
    /// its end or killed.
    fn reset(&mut self) {
        let name = self.random.pick(self.cast).0;
        let arguments: &[&str] = match self.random.below(10) {
            0..3 => &["reset", name],
            3 => {
                let baseline = *self.random.pick(&[BASELINE, NEW_BASELINE]);
                self.set_baselines(baseline);
                &["push", name, "--keep", CHOSEN_LINES]
            }
            4..6 => {
                let baseline = *self.random.pick(&[BASELINE, NEW_BASELINE]);
                self.set_baselines(baseline);
                &["reset", "--all", "--keep-scratch"]
            }
            _ => &["reset", "--all"],
        };
        let mut run = RunningProgram::start_on(&self.fleet, arguments);
        self.tally.resets += 1;
        if self.random.below(10) < 4 {
            let limit = self.usual.as_micros() as u64 * 5 / 4;
            run.run_until(Duration::from_micros(self.random.below(limit)));
            run.kill();
        }
        let ended = run.wait();
        match (ended.signal, ended.code) {
            (Some(9), _) => self.tally.kills += 1,
            (None, Some(0)) => self.usual = (self.usual * 7 + ended.duration) / 8,
            // A run gives up with an error when an agent replaces the file again and again.
            (None, Some(6)) if ended.err.contains("was replaced by another process") => {
                self.tally.refusals += 1;
            }
            // An agent that rewrites its file has no separator in it for a moment.
            (None, Some(6)) if ended.err.contains("no separator tells") => {
                self.tally.refusals += 1;
            }
            // The chosen lines are gone, or are no scratch.
            (None, Some(_)) if arguments.contains(&CHOSEN_LINES) => self.tally.refusals += 1,
            _ => panic!("{ended:?}"),
        }
    }

    fn set_baselines(&self, text: &str) {
        for agent in self.fleet.agents() {
            let path = self.fleet.baseline_path(agent);
            let new = path.with_extension("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, &path).unwrap();
        }
    }

    /// Resets until the time is over, then checks the result.
    fn run(mut self, time: Duration, runs: u64) -> RoundTally {
        let mut crowd = WriterThreads::start(&self.fleet, self.cast, &mut self.random);
        let end = Instant::now() + time;
        while Instant::now() < end && self.tally.resets < runs {
            self.reset();
        }
        crowd.stop();
        self.tally.notes = crowd.notes();
        self.check(&crowd, "after the writers stopped");
        self.settle();
        self.check(&crowd, "after the last reset");
        self.assert_no_leftovers();
        self.tally
    }

    /// Runs one undisturbed reset, which settles everything.
    fn settle(&self) {
        self.set_baselines(BASELINE);
        let ended = RunningProgram::start_on(&self.fleet, RESET_ALL).wait();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    fn check(&mut self, crowd: &WriterThreads, when: &str) {
        let mut losses = Vec::new();
        self.tally.fragments = 0;
        for (agent, manners) in self.cast {
            let found = find_notes(&self.fleet, agent);
            for (writer, written) in crowd.written[agent].iter().enumerate() {
                let written = written.load(Ordering::Acquire);
                let (first, count) = found.missing(writer, written);
                if count > 0 {
                    losses.push(format!(
                        "{agent}, writer {writer}: {count}, first: {first:?}"
                    ));
                    self.tally.losses += count;
                }
            }
            if manners.iter().all(|manner| manner.writes_whole_notes()) {
                assert_eq!(found.fragments, [""; 0], "{when}");
            }
            self.tally.fragments += found.fragments.len() as u64;
        }
        if !losses.is_empty() {
            self.keep_fleet();
        }
        assert!(losses.is_empty(), "lost {when}: {losses:#?}");
    }

    /// Keeps the fleet's files for an investigation.
    fn keep_fleet(&self) {
        let to = std::env::temp_dir().join(format!("lost-notes-{}", std::process::id()));
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .arg(&self.fleet.root)
            .arg(&to)
            .status();
        println!("fleet kept in {}: {copied:?}", to.display());
    }

    /// Asserts that only memories, entries and the ledger are left.
    fn assert_no_leftovers(&mut self) {
        for agent in self.fleet.agents() {
            assert_eq!(
                fs::read(self.fleet.memory_path(agent)).unwrap(),
                BASELINE.as_bytes()
            );
            assert_eq!(self.fleet.leftovers(agent), [""; 0], "{agent}");
            for name in self.fleet.entries(agent).keys() {
                assert!(name.ends_with(".md") && !name.starts_with('.'), "{name}");
                let late = name.contains("-late") || name.contains("-appended");
                self.tally.late += u64::from(late);
                self.tally.agents_reset += u64::from(!late);
            }
        }
        assert_eq!(self.fleet.pending_journals(), [""; 0]);
        // The ledger can be read.
        let log = self.fleet.run(&["log", "-n", "1"]);
        assert!(log.status.success(), "{log:?}");
        let directory = self.fleet.archive.join(".shepherd");
        let mut own: Vec<String> = directory_files(&directory).into_keys().collect();
        own.retain(|name| name.starts_with(".shepherd-"));
        assert_eq!(own, [""; 0]);
    }
}

/// Runs rounds of these casts in turn, in memory and on the disk, until the time is over. A round
/// ends while the ledger is short: reading it is not what is tested here.
fn run_rounds(casts: &[&'static AgentWriters], seed: u64, time: Duration, runs: u64) {
    let _alone = processor_lock();
    let began = Instant::now();
    let mut all = RoundTally::default();
    let mut number = 0;
    while began.elapsed() < time || number < 2 {
        // Both grounds for each cast: the slower disk makes other races.
        let (_temporary, root) = test_directory(number % 4 < 2);
        let cast = casts[number as usize % casts.len()];
        let round = WriterRound::new(&root, cast, seed + number);
        let share = if is_full_harness() {
            time / 8
        } else {
            time / 2
        };
        all.add(&round.run(share, runs));
        number += 1;
    }
    println!(
        "seed {seed}, {number} rounds in {:.1?}: {all:?}",
        began.elapsed()
    );
    assert_eq!(all.losses, 0);
}

#[test]
fn writers_and_killed_resets_lose_no_note() {
    let seconds = if is_full_harness() { 140 } else { 2 };
    run_rounds(
        &[QUICK_WRITERS, RESTLESS_WRITERS],
        SEED,
        Duration::from_secs(seconds),
        250,
    );
}

#[test]
fn writers_holding_the_file_open_lose_no_note() {
    let seconds = if is_full_harness() { 60 } else { 2 };
    run_rounds(
        &[HOLDING_WRITERS],
        SEED + 1000,
        Duration::from_secs(seconds),
        60,
    );
}

#[test]
fn missing_memory_is_noticed_by_the_observer() {
    let (_temporary, root) = test_directory(true);
    let memory = root.join("MEMORY.md");
    let error = begins_with_baseline(&memory).unwrap_err();
    assert!(error.contains("No such file"), "{error}");
    fs::write(&memory, &BASELINE[..9]).unwrap();
    assert!(begins_with_baseline(&memory).is_err());
    assert_eq!(
        fs::read(root.join("no")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn missing_and_split_notes_are_detected() {
    let text: String = (0..50).map(|number| note_line(3, number)).collect();
    let mut found = FoundNotes::default();
    found.collect_notes("scout", "entry", text.as_bytes());
    assert_eq!(found.missing(3, 50), (vec![], 0));
    assert_eq!(found.fragments, [""; 0]);
    let cut = text.len() - 4;
    let mut found = FoundNotes::default();
    found.collect_notes("scout", "entry", &text.as_bytes()[..cut]);
    assert_eq!(found.missing(3, 50), (vec![49], 1));
    assert_eq!(found.fragments.len(), 1);
    for cut in 1..note_line(3, 7).len() {
        let glued = format!("{}{}", &note_line(3, 7)[..cut], note_line(3, 8));
        let mut found = FoundNotes::default();
        found.collect_notes("scout", "MEMORY.md", glued.as_bytes());
        assert_eq!(found.missing(3, 9).1, 8, "{glued}");
        assert!(!found.notes[3][7], "{glued}");
    }
}
