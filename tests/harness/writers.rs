//! Agents that write numbered notes, in every way there is, while the real
//! program resets them thousands of times and is killed in the midst of it.
//!
//! A note counts as written when the call that saved it has returned: `write`
//! or `close` of one that appends or truncates, `rename` of one that saves a
//! whole file, `munmap` of one that maps. Whoever rewrites what was read before
//! a reset brings old notes back, rightly: a note may be there often, and must
//! be there once. Those who rewrite are alone on their memory, because among
//! themselves they lose each other's notes without any help of ours.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{BASELINE, Fleet, files, full};
use crate::kernel::Mapping;
use crate::scene::RESET;
use crate::tools::{Random, Running, alone, ground};

const SEED: u64 = 20_260_314;

/// How large a memory may grow before those who rewrite it wait for a reset.
const ENOUGH: u64 = 24 * 1024;

/// How an agent writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Opens for appending, writes a few notes, closes.
    Append,
    /// The same with one note at a time and without any pause.
    Unresting,
    /// Reads, opens with truncation, writes what it read and a note.
    Truncate,
    /// Reads, writes a temporary file with a note more, renames it.
    Rename,
    /// Makes room in the file, maps it, closes it, writes into the mapping.
    Map,
    /// Keeps a descriptor for long, and writes into it every now and then.
    Hold,
}

impl Manner {
    /// Whether every note is in one piece whenever somebody looks.
    fn is_whole(self) -> bool {
        self == Manner::Rename
    }

    /// Whether a memory of such an agent always begins with the baseline.
    fn keeps_its_beginning(self) -> bool {
        self != Manner::Truncate
    }
}

/// What an agent is called, and who writes into its memory.
type Cast = [(&'static str, &'static [Manner])];

/// Those who are done soon, so that a reset never has to wait for long.
const QUICK: &Cast = &[
    ("append", &[Manner::Append]),
    ("truncate", &[Manner::Truncate]),
    ("rename", &[Manner::Rename]),
    ("map", &[Manner::Map]),
    ("several", &[Manner::Append, Manner::Append, Manner::Append]),
];

/// One who never rests is as much work as all others together.
const RESTLESS: &Cast = &[
    ("unresting", &[Manner::Unresting]),
    ("rename", &[Manner::Rename]),
];

/// Those whom a reset finds with the old file still open.
const HOLDING: &Cast = &[
    ("holds", &[Manner::Hold]),
    ("both", &[Manner::Hold, Manner::Append]),
    ("holders", &[Manner::Hold, Manner::Hold, Manner::Hold]),
    ("append", &[Manner::Append]),
];

/// The text of a note. Its length varies, and no part of it is a note.
fn note(writer: usize, number: u64) -> String {
    let filler = &"abcdefghijklmnopqrstuvwxyz0123456789"[..(number * 7 % 36) as usize];
    format!("- {writer}.{number} {filler} .{}\n", number % 97)
}

/// The writer and the number of a line that is a note.
fn parse(line: &[u8]) -> Option<(usize, u64)> {
    let text = str::from_utf8(line).ok()?;
    let (id, _) = text.strip_prefix("- ")?.split_once(' ')?;
    let (writer, number) = id.split_once('.')?;
    let (writer, number) = (writer.parse().ok()?, number.parse().ok()?);
    (note(writer, number).as_bytes() == line).then_some((writer, number))
}

/// One who writes until it is told to stop; what it has written so far.
struct Writer {
    manner: Manner,
    memory: PathBuf,
    number: usize,
    random: Random,
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl Writer {
    fn start(self) -> JoinHandle<()> {
        thread::spawn(move || self.write())
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn write(mut self) {
        while !self.stops() {
            match self.manner {
                Manner::Append => {
                    let notes = 1 + self.random.below(6);
                    self.append(notes);
                    self.rest(800);
                }
                Manner::Unresting => self.append(1),
                Manner::Truncate => self.truncate(),
                Manner::Rename => self.rename(),
                Manner::Map => self.map(),
                Manner::Hold => self.hold(),
            }
        }
    }

    /// An agent's own pause: nothing is waited for.
    fn rest(&mut self, microseconds: u64) {
        thread::sleep(Duration::from_micros(self.random.below(microseconds)));
    }

    fn next(&self) -> String {
        note(self.number, self.written.load(Ordering::Relaxed))
    }

    fn has_written(&self) {
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
            file.write_all(self.next().as_bytes()).unwrap();
            self.has_written();
        }
    }

    /// Waits while there is more in the memory than anybody wants to rewrite.
    fn wait_for_a_reset(&self) {
        while !self.stops() && fs::metadata(&self.memory).is_ok_and(|it| it.len() > ENOUGH) {
            thread::park_timeout(Duration::from_micros(200));
        }
    }

    fn truncate(&mut self) {
        self.wait_for_a_reset();
        let mut text = fs::read(&self.memory).unwrap();
        text.extend_from_slice(self.next().as_bytes());
        let mut file = self.open(File::options().write(true).truncate(true));
        // Some libraries write what they have in pieces.
        let cut = self.random.below(text.len() as u64) as usize;
        file.write_all(&text[..cut]).unwrap();
        file.write_all(&text[cut..]).unwrap();
        drop(file);
        self.has_written();
        self.rest(800);
    }

    fn rename(&mut self) {
        self.wait_for_a_reset();
        let mut text = fs::read(&self.memory).unwrap();
        text.extend_from_slice(self.next().as_bytes());
        let temporary = self.memory.with_extension("saving");
        fs::write(&temporary, text).unwrap();
        fs::rename(&temporary, &self.memory).unwrap();
        self.has_written();
        self.rest(800);
    }

    fn map(&mut self) {
        self.wait_for_a_reset();
        let file = self.open(File::options().read(true).write(true));
        let length = file.metadata().unwrap().len();
        let note = self.next();
        file.set_len(length + note.len() as u64).unwrap();
        let mut mapping = Mapping::new(&file).unwrap();
        drop(file);
        self.rest(60);
        mapping.write(length as usize, note.as_bytes());
        drop(mapping);
        self.has_written();
        self.rest(800);
    }

    /// Across several resets, at times: an eighth of a second, or two.
    fn hold(&mut self) {
        let longest = if self.random.below(4) == 0 { 2600 } else { 200 };
        let end = Instant::now() + Duration::from_millis(20 + self.random.below(longest));
        let mut file = self.open(File::options().append(true));
        while Instant::now() < end && !self.stops() {
            file.write_all(self.next().as_bytes()).unwrap();
            self.has_written();
            self.rest(3000);
        }
    }
}

/// All writers of a fleet.
struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// For each agent and each of its writers, how much was written.
    written: BTreeMap<&'static str, Vec<Arc<AtomicU64>>>,
    /// What a reader has seen that must never be.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Crowd {
    fn start(fleet: &Fleet, cast: &Cast, random: &mut Random) -> Crowd {
        let mut crowd = Crowd {
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
                    memory: fleet.memory(agent),
                    number,
                    random: Random::new(random.next()),
                    stop: Arc::clone(&crowd.stop),
                    written,
                };
                crowd.threads.push(writer.start());
            }
        }
        crowd.threads.push(crowd.reader(fleet, cast));
        crowd
    }

    /// Somebody who looks: every memory is there, and begins as it should.
    fn reader(&self, fleet: &Fleet, cast: &Cast) -> JoinHandle<()> {
        let keeps = |manners: &[Manner]| manners.iter().all(|it| it.keeps_its_beginning());
        let memories: Vec<PathBuf> = cast
            .iter()
            .filter(|(_, manners)| keeps(manners))
            .map(|(agent, _)| fleet.memory(agent))
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

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn begins_with_baseline(memory: &Path) -> Result<(), String> {
    use std::io::Read;
    let mut head = vec![0; BASELINE.len()];
    let read = File::open(memory).and_then(|mut file| file.read_exact(&mut head));
    match read {
        Ok(()) if head == BASELINE.as_bytes() => Ok(()),
        Ok(()) => Err(format!("{}: {head:?}", memory.display())),
        Err(error) => Err(format!("{}: {error}", memory.display())),
    }
}

/// What was found of an agent's notes.
#[derive(Default)]
struct Found {
    notes: Vec<Vec<bool>>,
    /// Lines that are no notes, with the files they are in.
    fragments: Vec<String>,
}

impl Found {
    fn look(&mut self, agent: &str, name: &str, bytes: &[u8]) {
        let header = format!("# {agent} scratch notes ");
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match parse(line) {
                Some((writer, number)) => self.mark(writer, number),
                None if line.starts_with(header.as_bytes()) => {}
                None if is_of_the_baseline(line) => {}
                None => {
                    let text = String::from_utf8_lossy(line).into_owned();
                    self.fragments.push(format!("{name}: {text:?}"));
                }
            }
        }
    }

    fn mark(&mut self, writer: usize, number: u64) {
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

    /// The first notes that are nowhere, and how many there are.
    fn missing(&self, writer: usize, written: u64) -> (Vec<u64>, u64) {
        let none = Vec::new();
        let notes = self.notes.get(writer).unwrap_or(&none);
        let is_missing = |number: &u64| notes.get(*number as usize) != Some(&true);
        let all: Vec<u64> = (0..written).filter(is_missing).collect();
        (all.iter().take(5).copied().collect(), all.len() as u64)
    }
}

fn is_of_the_baseline(line: &[u8]) -> bool {
    BASELINE
        .split_inclusive('\n')
        .any(|of_baseline| of_baseline.as_bytes() == line)
}

/// Everything that is left of an agent: memory, entries, displaced files.
fn find(fleet: &Fleet, agent: &str) -> Found {
    let mut found = Found::default();
    let entries = files(&fleet.archive.join(agent));
    for (name, bytes) in &entries {
        found.look(agent, name, bytes);
    }
    for (name, bytes) in files(&fleet.folder(agent)) {
        found.look(agent, &name, &bytes);
    }
    for (name, bytes) in with_what_was_appended(fleet, agent, &entries) {
        found.look(agent, &name, &bytes);
    }
    found
}

/// Entries with what later entries append to them: a note that a writer saves in pieces
/// may begin in one entry and end in another.
fn with_what_was_appended(
    fleet: &Fleet,
    agent: &str,
    entries: &BTreeMap<String, Vec<u8>>,
) -> Vec<(String, Vec<u8>)> {
    let bytes_of = |written: &Value| {
        let path = written["path"].as_str()?;
        let name = path.strip_prefix(agent)?.strip_prefix('/')?;
        Some((name.to_string(), entries.get(name)?))
    };
    // What is archived of each content, by the digest of all of it.
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
            let base = late["base"]["sha256"].as_str();
            let whole = late["base"]["whole"].as_str().or(late["digest"].as_str());
            let base = base.and_then(|sha256| known.get(sha256));
            let bytes = [base.map_or(&[][..], Vec::as_slice), bytes].concat();
            known.insert(whole.unwrap_or_default().to_string(), bytes.clone());
            joined.push((name, bytes));
        }
    }
    joined
}

/// Counts of one or several rounds.
#[derive(Debug, Default)]
struct Tally {
    notes: u64,
    resets: u64,
    agents_reset: u64,
    kills: u64,
    refusals: u64,
    late: u64,
    fragments: u64,
    losses: u64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
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
struct Round {
    fleet: Fleet,
    cast: &'static Cast,
    random: Random,
    tally: Tally,
    /// How long a run that was not killed takes, about.
    usual: Duration,
}

impl Round {
    fn new(root: &Path, cast: &'static Cast, seed: u64) -> Round {
        let names: Vec<&str> = cast.iter().map(|(name, _)| *name).collect();
        let fleet = Fleet::new(root, &root.join("archives"), &names);
        for name in names {
            fs::write(fleet.memory(name), BASELINE).unwrap();
        }
        Round {
            fleet,
            cast,
            random: Random::new(seed),
            tally: Tally::default(),
            usual: Duration::from_millis(30),
        }
    }

    /// One run: of all or of one, to its end or not.
    fn reset(&mut self) {
        let name = self.random.pick(self.cast).0;
        let arguments = match self.random.below(10) {
            0..4 => ["reset", name],
            _ => ["reset", "--all"],
        };
        let mut run = Running::on(&self.fleet, &arguments);
        self.tally.resets += 1;
        if self.random.below(10) < 4 {
            let limit = self.usual.as_micros() as u64 * 5 / 4;
            run.run_until(Duration::from_micros(self.random.below(limit)));
            run.kill();
        }
        let ended = run.end();
        match (ended.signal, ended.code) {
            (Some(9), _) => self.tally.kills += 1,
            (None, Some(0)) => self.usual = (self.usual * 7 + ended.took) / 8,
            // It gives up, loudly, on who replaces the file again and again.
            (None, Some(6)) if ended.err.contains("was replaced by somebody else") => {
                self.tally.refusals += 1;
            }
            _ => panic!("{ended:?}"),
        }
    }

    /// Resets until the time is over, and looks at what is there then.
    fn run(mut self, time: Duration, runs: u64) -> Tally {
        let mut crowd = Crowd::start(&self.fleet, self.cast, &mut self.random);
        let end = Instant::now() + time;
        while Instant::now() < end && self.tally.resets < runs {
            self.reset();
        }
        crowd.stop();
        self.tally.notes = crowd.notes();
        self.check(&crowd, "when the writers had stopped");
        self.settle();
        self.check(&crowd, "after the last reset");
        self.is_tidy();
        self.tally
    }

    /// One undisturbed reset settles all there is.
    fn settle(&self) {
        let ended = Running::on(&self.fleet, RESET).end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    fn check(&mut self, crowd: &Crowd, when: &str) {
        let mut losses = Vec::new();
        self.tally.fragments = 0;
        for (agent, manners) in self.cast {
            let found = find(&self.fleet, agent);
            for (writer, written) in crowd.written[agent].iter().enumerate() {
                let written = written.load(Ordering::Acquire);
                let (first, count) = found.missing(writer, written);
                if count > 0 {
                    losses.push(format!(
                        "{agent}, writer {writer}: {count}, such as {first:?}"
                    ));
                    self.tally.losses += count;
                }
            }
            if manners.iter().all(|manner| manner.is_whole()) {
                assert_eq!(found.fragments, [""; 0], "{when}");
            }
            self.tally.fragments += found.fragments.len() as u64;
        }
        if !losses.is_empty() {
            self.keep();
        }
        assert!(losses.is_empty(), "lost {when}: {losses:#?}");
    }

    /// Leaves what there is for whoever looks into it.
    fn keep(&self) {
        let to = std::env::temp_dir().join(format!("lost-notes-{}", std::process::id()));
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .arg(&self.fleet.root)
            .arg(&to)
            .status();
        println!("the fleet is kept in {}: {copied:?}", to.display());
    }

    /// Nothing is left but memories, entries and the account.
    fn is_tidy(&mut self) {
        for agent in self.fleet.agents() {
            assert_eq!(
                fs::read(self.fleet.memory(agent)).unwrap(),
                BASELINE.as_bytes()
            );
            assert_eq!(self.fleet.litter(agent), [""; 0], "{agent}");
            for name in self.fleet.entries(agent).keys() {
                assert!(name.ends_with(".md") && !name.starts_with('.'), "{name}");
                let late = name.contains("-late") || name.contains("-appended");
                self.tally.late += u64::from(late);
                self.tally.agents_reset += u64::from(!late);
            }
        }
        assert_eq!(self.fleet.pending(), [""; 0]);
        // The account of it all can be read.
        let log = self.fleet.run(&["log", "-n", "1"]);
        assert!(log.status.success(), "{log:?}");
        let own = self.fleet.archive.join(".shepherd");
        let mut own: Vec<String> = files(&own).into_keys().collect();
        own.retain(|name| name.starts_with(".shepherd-"));
        assert_eq!(own, [""; 0]);
    }
}

/// Rounds of these casts in turn, in memory and on the disk, until the time is
/// over. A round ends while the ledger is short: reading it is not what is
/// tried here.
fn rounds(casts: &[&'static Cast], seed: u64, time: Duration, runs: u64) {
    let _alone = alone();
    let began = Instant::now();
    let mut all = Tally::default();
    let mut number = 0;
    while began.elapsed() < time || number < 2 {
        // Both grounds for each cast: the disk is slower, and that is a race of
        // another kind.
        let (_temporary, root) = ground(number % 4 < 2);
        let cast = casts[number as usize % casts.len()];
        let round = Round::new(&root, cast, seed + number);
        let share = if full() { time / 8 } else { time / 2 };
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
fn no_note_is_lost_however_agents_write_and_whenever_a_reset_is_killed() {
    let seconds = if full() { 140 } else { 2 };
    rounds(&[QUICK, RESTLESS], SEED, Duration::from_secs(seconds), 250);
}

#[test]
fn no_note_is_lost_by_agents_that_keep_the_file_open_across_resets() {
    let seconds = if full() { 60 } else { 2 };
    rounds(&[HOLDING], SEED + 1000, Duration::from_secs(seconds), 60);
}

#[test]
fn a_memory_that_is_gone_is_noticed_by_the_one_who_looks() {
    let (_temporary, root) = ground(true);
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
fn a_note_that_is_nowhere_and_a_note_in_two_pieces_are_noticed() {
    let text: String = (0..50).map(|number| note(3, number)).collect();
    let mut found = Found::default();
    found.look("scout", "entry", text.as_bytes());
    assert_eq!(found.missing(3, 50), (vec![], 0));
    assert_eq!(found.fragments, [""; 0]);
    let cut = text.len() - 4;
    let mut found = Found::default();
    found.look("scout", "entry", &text.as_bytes()[..cut]);
    assert_eq!(found.missing(3, 50), (vec![49], 1));
    assert_eq!(found.fragments.len(), 1);
}
