//! Racing attacks: during a reset by the real binary, an agent of another user replaces its memory,
//! the files staged and displaced beside it, and its directory by links, FIFOs, directories and
//! other files.
//!
//! One racer keeps root's rights, for the links that `fs.protected_hardlinks` keeps other users
//! from making: not every system sets it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags};

use crate::fixture::BASELINE;
use crate::full_harness::is_full_harness;
use crate::hostile::{AGENT_UID, CanaryScene, assert_no_raw_output};
use crate::kernel::become_user;
use crate::processes::{RUN_TIMEOUT, RunningProgram, SeededRandom, processor_lock};

const SEED: u64 = 909_091;

/// Configuration of a racer, and its count of hits.
#[derive(Clone)]
struct RacingAgent {
    directory: PathBuf,
    vault: PathBuf,
    secret: PathBuf,
    stop: Arc<AtomicBool>,
    hits: Arc<AtomicU64>,
    /// Whether it may link to files that it could not even read.
    privileged: bool,
}

impl RacingAgent {
    fn new(scene: &CanaryScene) -> RacingAgent {
        RacingAgent {
            directory: scene.directory(),
            vault: scene.path("vault"),
            secret: scene.secret(),
            stop: Arc::default(),
            hits: Arc::default(),
            privileged: false,
        }
    }

    /// Runs `round` repeatedly as the agent's user, each time with a free name.
    fn start(
        &self,
        seed: u64,
        round: fn(&RacingAgent, &mut SeededRandom, &Path),
    ) -> JoinHandle<()> {
        let racer = self.clone();
        thread::spawn(move || {
            if !racer.privileged {
                become_user(AGENT_UID);
            }
            let mut random = SeededRandom::new(seed);
            let free = racer.directory.join(format!("mine-{seed}"));
            while !racer.stop.load(Ordering::Relaxed) {
                round(&racer, &mut random, &free);
            }
            remove_object(&free);
        })
    }

    fn count_hit(&self, done: bool) {
        self.hits.fetch_add(u64::from(done), Ordering::Relaxed);
    }

    fn memory(&self) -> PathBuf {
        self.directory.join("MEMORY.md")
    }

    /// Creates an object at a free name.
    fn make_object(&self, random: &mut SeededRandom, at: &Path) -> bool {
        remove_object(at);
        let made = match random.below(if self.privileged { 3 } else { 10 }) {
            // Links come first: a privileged racer makes nothing else.
            0 if self.privileged => fs::hard_link(&self.secret, at).is_ok(),
            1 if self.privileged => fs::hard_link(self.vault.join("MEMORY.md"), at).is_ok(),
            0 | 1 => symlink(&self.secret, at).is_ok(),
            2 => symlink(self.vault.join("MEMORY.md"), at).is_ok(),
            3 => symlink(&self.vault, at).is_ok(),
            4 => {
                let mode = Mode::from_raw_mode(0o666);
                rustix::fs::mknodat(CWD, at, FileType::Fifo, mode, 0).is_ok()
            }
            5 => UnixListener::bind(at).is_ok(),
            6 => fs::create_dir(at).is_ok() && random.below(2) == 0 && fill_directory(at),
            7 => fs::hard_link(self.memory(), at).is_ok(),
            _ => fs::write(at, format!("{BASELINE}- note {}\n", random.next())).is_ok(),
        };
        made || fs::symlink_metadata(at).is_ok()
    }
}

fn fill_directory(at: &Path) -> bool {
    fs::write(at.join("inside"), "of the agent").is_ok()
}

/// Removes an object of the racers.
fn remove_object(at: &Path) {
    if fs::remove_file(at).is_err() && at.is_dir() {
        let _ = fs::remove_dir_all(at);
    }
}

/// Replaces the memory by something else.
fn replace_memory(racer: &RacingAgent, random: &mut SeededRandom, free: &Path) {
    if !racer.make_object(random, free) {
        return;
    }
    let memory = racer.memory();
    let flags = match random.below(3) {
        0 => RenameFlags::EXCHANGE,
        _ => RenameFlags::empty(),
    };
    let done = rustix::fs::renameat_with(CWD, free, CWD, &memory, flags).is_ok();
    racer.count_hit(done);
    // A displaced directory would only block a rename.
    if !done {
        remove_object(&memory);
    }
    // Not every time: some runs have to get beyond the first check.
    if random.below(4) == 0 {
        thread::park_timeout(Duration::from_micros(random.below(3000)));
    }
}

/// Finds names that the racers did not create, and attacks them immediately.
fn attack_staged_files(racer: &RacingAgent, random: &mut SeededRandom, free: &Path) {
    for item in fs::read_dir(&racer.directory)
        .into_iter()
        .flatten()
        .flatten()
    {
        if item
            .file_name()
            .as_encoded_bytes()
            .starts_with(b".shepherd-")
        {
            attack_file(racer, random, &item.path(), free);
        }
    }
}

fn attack_file(racer: &RacingAgent, random: &mut SeededRandom, staged: &Path, free: &Path) {
    let memory = racer.memory();
    let rename = |from: &Path, to: &Path, flags| {
        rustix::fs::renameat_with(CWD, from, CWD, to, flags).is_ok()
    };
    let over = RenameFlags::empty();
    let done = match random.below(12) {
        0 => fs::remove_file(staged).is_ok(),
        1 => {
            remove_object(free);
            rename(staged, free, over)
        }
        2..=5 => racer.make_object(random, free) && rename(free, staged, over),
        6 => racer.make_object(random, free) && rename(free, staged, RenameFlags::EXCHANGE),
        7 => rename(staged, &memory, over),
        8 => rename(&memory, staged, over),
        9 => rename(staged, &memory, RenameFlags::EXCHANGE),
        10 => {
            remove_object(free);
            fs::hard_link(staged, free).is_ok()
        }
        // Root would write into the files that the others have linked there.
        _ => !racer.privileged && scribble(staged).is_ok(),
    };
    racer.count_hit(done);
}

/// Replaces the staged file by one with the agent's rules, and leaves the memory itself alone.
fn replace_staged_file(racer: &RacingAgent, random: &mut SeededRandom, free: &Path) {
    for item in fs::read_dir(&racer.directory)
        .into_iter()
        .flatten()
        .flatten()
    {
        if !item
            .file_name()
            .as_encoded_bytes()
            .starts_with(b".shepherd-")
        {
            continue;
        }
        // One success per file is enough.
        let evil = "# Rules\n\n- be evil\n";
        let done = |it: fs::Metadata| !it.is_file() || it.len() == evil.len() as u64;
        if item.metadata().is_ok_and(done) {
            continue;
        }
        remove_object(free);
        let _ = match random.below(3) {
            0 => symlink(&racer.secret, free),
            _ => fs::write(free, evil),
        };
        racer.count_hit(fs::rename(free, item.path()).is_ok());
    }
}

/// Keeps the memory from being clean, so that a reset has work to do.
fn append_notes(racer: &RacingAgent, random: &mut SeededRandom, free: &Path) {
    remove_object(free);
    let _ = fs::write(free, format!("{BASELINE}- note {}\n", random.next()));
    let memory = racer.memory();
    if fs::symlink_metadata(&memory).is_ok_and(|it| it.is_file()) {
        let _ = fs::rename(free, memory);
    }
    thread::park_timeout(Duration::from_micros(random.below(8000)));
}

/// Writes into a staged or displaced file.
fn scribble(staged: &Path) -> std::io::Result<()> {
    // Opening a FIFO must not block the racer.
    let mut file = File::options()
        .append(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(staged)?;
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    file.write_all(b"- evil\n")
}

/// Swaps the memory's directory for a link to the vault, and back.
fn swap_directory(racer: &RacingAgent, random: &mut SeededRandom, _: &Path) {
    let real = racer.directory.with_extension("real");
    let link = racer.directory.with_extension("link");
    let _ = symlink(&racer.vault, &link);
    let exchange = random.below(2) == 0;
    if exchange {
        let flags = RenameFlags::EXCHANGE;
        let swap = || rustix::fs::renameat_with(CWD, &racer.directory, CWD, &link, flags).is_ok();
        racer.count_hit(swap());
        // Either as fast as possible, or slowly enough for a run to meet it.
        random_pause(random);
        while !swap() {}
    } else {
        let away = fs::rename(&racer.directory, &real).is_ok();
        let linked = symlink(&racer.vault, &racer.directory).is_ok();
        racer.count_hit(away && linked);
        random_pause(random);
        let _ = fs::remove_file(&racer.directory);
        fs::rename(&real, &racer.directory).unwrap();
    }
    // A run must get far often enough, too.
    let note = format!("{BASELINE}- note {}\n", random.next());
    if random.below(8) == 0 {
        let _ = fs::write(racer.memory(), note);
    }
    random_pause(random);
}

fn random_pause(random: &mut SeededRandom) {
    match random.below(3) {
        0 => {}
        1 => thread::yield_now(),
        _ => thread::park_timeout(Duration::from_micros(random.below(2500))),
    }
}

/// Returns whether the memory begins with the baseline, whatever notes follow it.
fn begins_with_rules(scene: &CanaryScene) -> bool {
    let memory = scene.memory();
    let is_file = fs::symlink_metadata(&memory).is_ok_and(|it| it.is_file());
    is_file && fs::read(memory).is_ok_and(|it| it.starts_with(BASELINE.as_bytes()))
}

/// Counts of the outcomes of a race's runs.
#[derive(Debug, Default)]
struct RunCounts {
    runs: u64,
    ok: u64,
    refused: u64,
    killed: u64,
}

impl RunCounts {
    /// Runs the program once during a race; asserts that it ends, and that a failure has a reason.
    fn run_once(
        &mut self,
        scene: &CanaryScene,
        random: &mut SeededRandom,
        usual: &mut Duration,
    ) -> bool {
        let mut run = RunningProgram::start_on(&scene.fleet, &["reset", "scout"]);
        self.runs += 1;
        if random.below(8) == 0 {
            let limit = usual.as_micros() as u64;
            run.run_until(Duration::from_micros(random.below(limit)));
            run.kill();
        }
        let ended = run.end_within(RUN_TIMEOUT);
        assert_no_raw_output(&ended);
        match (ended.signal, ended.code) {
            (Some(9), _) => self.killed += 1,
            (None, Some(0)) => {
                *usual = (*usual * 7 + ended.duration) / 8;
                self.ok += 1;
                return true;
            }
            (None, Some(1 | 3 | 6)) => {
                assert!(ended.err.contains("scout"), "{ended:?}");
                self.refused += 1;
            }
            _ => panic!("{ended:?}"),
        }
        false
    }
}

/// A racer: whether it is privileged, and its attack.
type RaceRole = (bool, fn(&RacingAgent, &mut SeededRandom, &Path));

/// Resets while these racers attack, and once more when they have stopped. Half of the time in
/// memory, where everything is quick, and half on a disk, where staged files exist for longer.
fn assert_race_is_harmless(name: &str, parts: &[RaceRole], after: fn(&CanaryScene) -> bool) {
    let _alone = processor_lock();
    let seconds = if is_full_harness() { 12 } else { 1 };
    let time = Duration::from_secs(seconds);
    let (mut ends, mut hits) = (RunCounts::default(), 0);
    for in_memory in [true, false] {
        let Some(scene) = CanaryScene::new(in_memory) else {
            return;
        };
        hits += run_race(&scene, parts, time, after, &mut ends);
        assert_next_reset_works(&scene);
    }
    println!("{name}, seed {SEED}: {ends:?}, {hits} hits by the racers");
    assert!(hits > ends.runs / 8, "too few hits by the racers");
}

/// Runs one race; returns the racers' total of hits.
fn run_race(
    scene: &CanaryScene,
    parts: &[RaceRole],
    time: Duration,
    after: fn(&CanaryScene) -> bool,
    ends: &mut RunCounts,
) -> u64 {
    let mut racer = RacingAgent::new(scene);
    let racers: Vec<JoinHandle<()>> = (1..)
        .zip(parts)
        .map(|(number, (privileged, part))| {
            racer.privileged = *privileged;
            racer.start(SEED + number, *part)
        })
        .collect();
    let guard = StopOnDrop(Arc::clone(&racer.stop));
    let mut random = SeededRandom::new(SEED);
    let mut usual = Duration::from_millis(20);
    let end = Instant::now() + time;
    while Instant::now() < end {
        // The size of the ledger is not part of this test.
        if ends.runs % 400 == 399 {
            scene.assert_canaries_unchanged();
            let _ = fs::remove_dir_all(scene.fleet.archive.join("scout"));
            let _ = fs::remove_file(scene.fleet.archive.join(".shepherd/ledger.jsonl"));
        }
        if ends.run_once(scene, &mut random, &mut usual) {
            assert!(after(scene), "false success: {ends:?}");
        }
    }
    drop(guard);
    for racer in racers {
        racer.join().unwrap();
    }
    scene.assert_canaries_unchanged();
    racer.hits.load(Ordering::Relaxed)
}

/// Accepts any memory: where the racers attack the memory itself, it may change at any time.
fn any_memory(_: &CanaryScene) -> bool {
    true
}

/// Stops the racers also when a run has failed the test.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asserts that the reset after the race succeeds: no racer interferes any more.
fn assert_next_reset_works(scene: &CanaryScene) {
    let mut ended = scene.reset();
    // No run may have recorded a file there before a racer put another object in its place.
    if ended.code == Some(6) && ended.err.contains("no record of a file there") {
        let moved = scene.memory().with_file_name("moved");
        fs::rename(scene.memory(), moved).unwrap();
        ended = scene.reset();
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    scene.assert_canaries_unchanged();
    let meta = fs::symlink_metadata(scene.memory()).unwrap();
    assert!(meta.is_file(), "{meta:?}");
    assert_eq!(fs::read(scene.memory()).unwrap(), BASELINE.as_bytes());
    assert_eq!(scene.fleet.pending_journals(), [""; 0]);
}

#[test]
fn swapping_the_memory_touches_nothing_foreign() {
    let parts: [RaceRole; 2] = [(false, replace_memory), (true, replace_memory)];
    assert_race_is_harmless("at the memory's name", &parts, any_memory);
}

#[test]
fn swapping_staged_files_touches_nothing_foreign() {
    let parts: [RaceRole; 3] = [
        (false, attack_staged_files),
        (true, attack_staged_files),
        (false, append_notes),
    ];
    assert_race_is_harmless("at staged and displaced names", &parts, any_memory);
}

#[test]
fn swapping_the_directory_touches_nothing_foreign() {
    let parts: [RaceRole; 2] = [(false, swap_directory), (false, append_notes)];
    assert_race_is_harmless("at the directory", &parts, any_memory);
}

#[test]
fn swapping_all_names_touches_nothing_foreign() {
    let parts: [RaceRole; 3] = [
        (false, replace_memory),
        (false, attack_staged_files),
        (true, attack_staged_files),
    ];
    assert_race_is_harmless("at all names", &parts, any_memory);
}

#[test]
fn swapping_the_new_file_never_fakes_success() {
    let parts: [RaceRole; 3] = [
        (false, replace_staged_file),
        (false, replace_staged_file),
        (false, append_notes),
    ];
    assert_race_is_harmless("at the new file", &parts, begins_with_rules);
}
