//! Two and more at once: on one agent exactly one works, and who works is
//! named; on one archive many work, and the account stays whole.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use memory_shepherd::digest::Digest;
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{BASELINE, Fleet, files, full};
use crate::terminal::{Terminal, command};
use crate::tools::{BOUND, Ended, Random, Running, alone, ground, wait_for};
use crate::trace::can_trace;

const SEED: u64 = 5_031_417;

/// A fleet on which something is to be done.
struct Scene {
    _temporary: tempfile::TempDir,
    fleet: Fleet,
}

impl Scene {
    fn new(agents: &[&str]) -> Scene {
        let (temporary, root) = ground(true);
        let fleet = Fleet::new(&root, &root.join("archives"), agents);
        for agent in agents {
            fs::write(fleet.memory(agent), BASELINE).unwrap();
        }
        Scene {
            _temporary: temporary,
            fleet,
        }
    }

    fn note(&self, agent: &str, text: &str) -> File {
        let mut file = File::options()
            .append(true)
            .open(self.fleet.memory(agent))
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn start(&self, arguments: &[&str]) -> Running {
        Running::on(&self.fleet, arguments)
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end()
    }

    /// A run that has displaced the memory, which a writer still has open: it
    /// has the lock, and is stopped before its patience is over.
    fn working(&self, agent: &str) -> (Running, File) {
        // Something that could be undone.
        drop(self.note(agent, "- first\n"));
        is_ok(&self.run(&["reset", agent]));
        let writer = self.note(agent, "- early\n");
        let run = self.start(&["reset", agent]);
        self.wait_until_displaced(agent);
        signal(&run, Signal::STOP);
        (run, writer)
    }

    fn wait_until_displaced(&self, agent: &str) {
        let baseline = BASELINE.as_bytes();
        wait_for("a displaced file", || {
            !self.fleet.litter(agent).is_empty()
                && fs::read(self.fleet.memory(agent)).unwrap() == baseline
        });
    }

    fn lock(&self, agent: &str) -> PathBuf {
        let name = format!(".shepherd/locks/{agent}.lock");
        self.fleet.archive.join(name)
    }

    /// All is settled, and the account tells of it without a gap.
    #[track_caller]
    fn is_whole(&self) -> usize {
        assert_eq!(self.fleet.pending(), [""; 0]);
        for agent in self.fleet.agents() {
            assert_eq!(self.fleet.litter(agent), [""; 0]);
        }
        records(&self.fleet.archive)
    }
}

/// How many records the ledger has, each of which must continue the one before.
#[track_caller]
pub fn records(archive: &Path) -> usize {
    let ledger = fs::read(archive.join(".shepherd/ledger.jsonl")).unwrap();
    assert_eq!(ledger.last(), Some(&b'\n'), "its last line is torn");
    let mut before = Digest::ZERO;
    let mut count = 0;
    for line in ledger.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        count += 1;
        let record: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert_eq!(record["seq"], count, "record {count}");
        assert_eq!(record["prev"], before.to_string(), "record {count}");
        before = Digest::of(line);
    }
    count
}

fn signal(run: &Running, signal: Signal) {
    let pid = Pid::from_raw(run.pid().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// That it was refused because this process holds the lock.
#[track_caller]
fn is_busy(ended: &Ended, holder: u32) {
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let named = format!("(process {holder}, since ");
    assert!(ended.err.contains(&named), "{named}: {ended:?}");
    assert!(ended.err.contains(" is locked by run ") || ended.err.contains("locked by run "));
}

#[track_caller]
fn is_ok(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_second_run_is_told_who_works_and_takes_nothing_away() {
    let scene = Scene::new(&["scout"]);
    let (first, writer) = scene.working("scout");
    let user = "of root ";
    for arguments in [
        &["reset", "scout"][..],
        &["reset", "--all"],
        &["undo", "scout", "--overwrite"],
        &["scout"],
        &["all"],
    ] {
        let second = scene.run(arguments);
        is_busy(&second, first.pid());
        if crate::fixture::is_root() {
            assert!(second.err.contains(user), "{second:?}");
        }
    }
    drop(writer);
    signal(&first, Signal::CONT);
    is_ok(&first.end());
    // The run that the others named is the one that was recorded.
    let ledger = fs::read_to_string(scene.fleet.archive.join(".shepherd/ledger.jsonl")).unwrap();
    assert!(ledger.contains("locked by run "), "{ledger}");
    is_ok(&scene.run(&["reset", "scout"]));
    assert!(scene.is_whole() >= 6);
}

#[test]
fn of_many_that_start_at_once_on_one_agent_one_works_at_a_time() {
    let _alone = alone();
    let rounds = if full() { 60 } else { 3 };
    let (mut worked, mut refused, mut unnamed) = (0, 0, 0);
    for round in 0..rounds {
        let scene = Scene::new(&["scout"]);
        let note = format!("- round {round}\n");
        let writer = scene.note("scout", &note);
        let runs: Vec<Running> = (0..8).map(|_| scene.start(&["reset", "scout"])).collect();
        scene.wait_until_displaced("scout");
        drop(writer);
        for ended in runs.into_iter().map(Running::end) {
            match ended.code {
                Some(0) => worked += 1,
                Some(5) => refused += 1,
                _ => panic!("{ended:?}"),
            }
            let named = ended.err.contains("(process ");
            unnamed += i32::from(ended.code == Some(5) && !named);
        }
        is_ok(&scene.run(&["reset", "scout"]));
        scene.is_whole();
        let entries = scene.fleet.entries("scout");
        assert_eq!(entries.len(), 1, "one archived it: {entries:?}");
    }
    println!("{rounds} times 8 at once: {worked} worked, {refused} refused, {unnamed} not named");
    assert!(worked >= rounds && refused > 0);
    assert_eq!(unnamed, 0, "a holder that lives is named");
}

#[test]
fn a_killed_or_stopped_and_killed_holder_never_blocks_the_next() {
    for stopped in [false, true] {
        let scene = Scene::new(&["scout"]);
        let (mut first, writer) = scene.working("scout");
        // It lives, and has the lock, however long it does nothing.
        is_busy(&scene.run(&["reset", "scout"]), first.pid());
        if !stopped {
            signal(&first, Signal::CONT);
        }
        first.kill();
        assert_eq!(first.end().signal, Some(9));
        drop(writer);
        drop(scene.note("scout", "- later\n"));
        is_ok(&scene.run(&["reset", "scout"]));
        scene.is_whole();
        let entries = scene.fleet.entries("scout");
        let all: Vec<u8> = entries.into_values().flatten().collect();
        let all = String::from_utf8(all).unwrap();
        assert!(
            all.contains("- early\n") && all.contains("- later\n"),
            "{all}"
        );
    }
}

/// Runs the program again and again, as a timer does that knows of no other.
fn timer(scene: &Scene, arguments: &[&str], times: usize) -> Vec<Ended> {
    (0..times).map(|_| scene.run(arguments)).collect()
}

#[test]
fn timers_on_one_fleet_reset_it_or_find_it_busy() {
    let _alone = alone();
    let scene = Scene::new(&["a", "b", "c"]);
    let times = if full() { 150 } else { 8 };
    let all: &[&[&str]] = &[
        &["reset", "--all"],
        &["reset", "c", "b", "a"],
        &["reset", "b"],
        &["undo", "a", "--append"],
    ];
    let mut notes = 0;
    let ends: Vec<Ended> = thread::scope(|scope| {
        let timers: Vec<_> = all
            .iter()
            .map(|arguments| scope.spawn(|| timer(&scene, arguments, times)))
            .collect();
        let mut random = Random::new(SEED);
        while timers.iter().any(|timer| !timer.is_finished()) {
            let agent = *random.pick(&["a", "b", "c"]);
            drop(scene.note(agent, &format!("- {notes}\n")));
            notes += 1;
            thread::park_timeout(Duration::from_millis(3));
        }
        timers
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    let mut counts = [0; 7];
    for ended in &ends {
        match ended.code {
            // Nothing to undo, or not any more.
            Some(code @ (0 | 5 | 6)) => counts[code as usize] += 1,
            _ => panic!("{ended:?}"),
        }
    }
    is_ok(&scene.run(&["reset", "--all"]));
    let records = scene.is_whole();
    let mut found = String::new();
    for agent in scene.fleet.agents() {
        for entry in scene.fleet.entries(agent).values() {
            found.push_str(str::from_utf8(entry).unwrap());
        }
    }
    let found: std::collections::HashSet<&str> = found.lines().collect();
    for note in 0..notes {
        assert!(
            found.contains(format!("- {note}").as_str()),
            "{note} is lost"
        );
    }
    println!(
        "seed {SEED}: {} runs of 4 timers: {} ok, {} busy, {} refused; {records} records, {notes} notes",
        ends.len(),
        counts[0],
        counts[5],
        counts[6]
    );
}

#[test]
fn eight_at_once_on_one_archive_keep_its_account_whole() {
    let _alone = alone();
    let agents = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let scene = Scene::new(&agents);
    let times = if full() { 60 } else { 4 };
    thread::scope(|scope| {
        for agent in agents {
            let scene = &scene;
            scope.spawn(move || {
                for number in 0..times {
                    drop(scene.note(agent, &format!("- {number}\n")));
                    is_ok(&scene.run(&["reset", agent]));
                }
            });
        }
    });
    let records = scene.is_whole();
    assert_eq!(records, agents.len() * times);
    for agent in agents {
        assert_eq!(scene.fleet.entries(agent).len(), times);
    }
    println!("8 processes: {records} records in one chain");
}

/// On a slow disk each of them has the ledger for a while.
#[test]
fn many_processes_at_once_all_record_what_they_did() {
    if !can_trace() {
        return;
    }
    let _alone = alone();
    let (number, delay) = if full() { (100, 300_000) } else { (8, 30_000) };
    let agents: Vec<String> = (0..number).map(|it| format!("agent-{it}")).collect();
    let agents: Vec<&str> = agents.iter().map(String::as_str).collect();
    let scene = Scene::new(&agents);
    let syncs = "fsync,fdatasync,syncfs";
    let inject = format!("--inject={syncs}:delay_exit={delay}");
    let trace = format!("--trace={syncs}");
    let wrapper = ["strace", "-f", "-o", "/dev/null", &trace, &inject];
    let runs: Vec<Running> = agents
        .iter()
        .map(|agent| {
            drop(scene.note(agent, "- note\n"));
            Running::start(scene.fleet.command(&wrapper, &["reset", agent]))
        })
        .collect();
    let ends = runs.into_iter().map(|run| run.end_within(BOUND * 5));
    let ends: Vec<Ended> = ends.collect();
    for ended in &ends {
        is_ok(ended);
    }
    assert_eq!(scene.is_whole(), number);
    let longest = ends.iter().map(|ended| ended.took).max();
    println!("{number} at once, {delay} us a sync: all recorded, the last after {longest:?}");
}

#[test]
fn killed_at_once_they_leave_an_account_that_goes_on() {
    let _alone = alone();
    let agents = ["a", "b", "c", "d"];
    let scene = Scene::new(&agents);
    let mut random = Random::new(SEED + 1);
    let rounds = if full() { 80 } else { 4 };
    for round in 0..rounds {
        let mut runs: Vec<Running> = agents
            .iter()
            .map(|agent| {
                drop(scene.note(agent, &format!("- {round}\n")));
                scene.start(&["reset", agent])
            })
            .collect();
        for run in &mut runs {
            run.run_until(Duration::from_micros(random.below(30_000)));
            run.kill();
        }
        for run in runs {
            let ended = run.end();
            assert!(
                ended.signal == Some(9) || ended.code == Some(0),
                "{ended:?}"
            );
        }
    }
    is_ok(&scene.run(&["reset", "--all"]));
    let records = scene.is_whole();
    for agent in agents {
        let entries = scene.fleet.entries(agent).into_values().flatten().collect();
        let entries = String::from_utf8(entries).unwrap();
        for round in 0..rounds {
            assert!(entries.contains(&format!("- {round}\n")), "{agent} {round}");
        }
    }
    println!(
        "seed {}: {rounds} times 4 killed: {records} records",
        SEED + 1
    );
}

#[test]
fn one_that_is_told_to_wait_works_when_the_other_has_ended() {
    let scene = Scene::new(&["scout", "other"]);
    let (first, writer) = scene.working("scout");
    drop(scene.note("scout", "- second\n"));
    let waiting = [
        scene.start(&["reset", "scout", "--wait", "50"]),
        scene.start(&["reset", "--all", "--wait", "50"]),
        scene.start(&["reset", "other", "scout", "--wait", "50"]),
        scene.start(&["undo", "scout", "--append", "--wait", "50"]),
    ];
    // One that does not wait is refused while they do.
    is_busy(&scene.run(&["reset", "scout"]), first.pid());
    drop(writer);
    signal(&first, Signal::CONT);
    is_ok(&first.end());
    for run in waiting {
        is_ok(&run.end());
    }
    is_ok(&scene.run(&["reset", "--all", "--wait", "5"]));
    scene.is_whole();
}

#[test]
fn one_that_waits_is_never_refused_by_one_that_starts_with_it() {
    let scene = Scene::new(&["scout"]);
    for round in 0..15 {
        drop(scene.note("scout", &format!("- {round}\n")));
        let hasty = scene.start(&["reset", "scout"]);
        let waiting = [
            scene.start(&["reset", "scout", "--wait", "50"]),
            scene.start(&["undo", "scout", "--overwrite", "--wait", "50"]),
        ];
        hasty.end();
        for run in waiting {
            let ended = run.end();
            assert_ne!(ended.code, Some(5), "{ended:?}");
        }
    }
    scene.is_whole();
}

#[test]
fn one_that_waits_in_vain_gives_up_in_time_and_names_the_holder() {
    let scene = Scene::new(&["scout"]);
    let (mut first, writer) = scene.working("scout");
    for verb in [&["reset", "scout"][..], &["undo", "scout"]] {
        let began = Instant::now();
        let ended = scene.run(&[verb, &["--wait", "1"]].concat());
        is_busy(&ended, first.pid());
        assert!(began.elapsed() >= Duration::from_secs(1), "{ended:?}");
    }
    // A look at the plan waits for nobody.
    let ended = scene.run(&["reset", "scout", "--wait", "3600", "--dry-run"]);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    first.kill();
    first.end();
    drop(writer);
    is_ok(&scene.run(&["reset", "scout", "--wait", "1"]));
    scene.is_whole();
}

/// Starts a program that INT and TERM end, whoever started the tests: what ignores them
/// hands that down, as a shell without job control does to its jobs in the background.
const HEEDING: [&str; 2] = ["env", "--default-signal=INT,TERM"];

#[test]
fn one_that_waits_and_is_interrupted_ends_at_once_and_has_done_nothing() {
    let scene = Scene::new(&["scout"]);
    let (mut first, writer) = scene.working("scout");
    let before = records_so_far(&scene);
    for end in [Signal::INT, Signal::TERM] {
        let queue = scene.fleet.archive.join(".shepherd/locks/scout.queue");
        let _ = fs::remove_file(&queue);
        let words = ["reset", "scout", "--wait", "3600"];
        let waiting = Running::start(scene.fleet.command(&HEEDING, &words));
        wait_for("its place in the queue", || queue.exists());
        signal(&waiting, end);
        assert_ne!(waiting.end().code, Some(0));
    }
    assert_eq!(records_so_far(&scene), before);
    first.kill();
    first.end();
    drop(writer);
    is_ok(&scene.run(&["reset", "scout"]));
}

fn records_so_far(scene: &Scene) -> Vec<u8> {
    fs::read(scene.fleet.archive.join(".shepherd/ledger.jsonl")).unwrap_or_default()
}

/// The console on the scene's fleet.
fn console(scene: &Scene) -> Terminal {
    let mut command = command(Path::new(Fleet::program()), &scene.fleet.root);
    command.args(["--config", scene.fleet.config().to_str().unwrap()]);
    let mut terminal = Terminal::start(command, (120, 36));
    terminal.wait_for("live");
    terminal
}

#[test]
fn while_the_console_works_a_run_is_refused_and_names_it() {
    let scene = Scene::new(&["scout"]);
    let writer = scene.note("scout", "- early\n");
    let mut terminal = console(&scene);
    terminal.wait_for("SCRATCH  ");
    terminal.send("X");
    terminal.wait_for("RESET PLAN");
    terminal.send_until("y", "the reset", |terminal| {
        !terminal.text().contains("RESET PLAN")
    });
    scene.wait_until_displaced("scout");
    terminal.signal(Signal::STOP);
    let ended = scene.run(&["reset", "scout"]);
    is_busy(&ended, terminal.pid());
    drop(writer);
    terminal.signal(Signal::CONT);
    terminal.wait_for("1 ok");
    is_ok(&scene.run(&["reset", "scout"]));
    leaves(terminal);
    scene.is_whole();
}

/// Out of whatever screen it is in.
fn leaves(mut terminal: Terminal) {
    terminal.send_until("q", "the end", |terminal| {
        !terminal.screen().alternate_screen()
    });
    assert!(terminal.wait_for_exit().success());
}

#[test]
fn while_a_run_works_the_console_says_so_and_does_nothing() {
    let scene = Scene::new(&["scout"]);
    let (mut first, writer) = scene.working("scout");
    let mut terminal = console(&scene);
    terminal.wait_for("BUSY");
    terminal.wait_for(&format!("process {}", first.pid()));
    drop(scene.note("scout", "- not yet\n"));
    terminal.send("X");
    terminal.wait_for_quiet();
    let mut pressed = 0;
    terminal.send_until("y", "keys that count", |_| {
        pressed += 1;
        pressed > 3
    });
    let memory = fs::read(scene.fleet.memory("scout")).unwrap();
    assert!(
        memory.ends_with(b"- not yet\n"),
        "the console did it all the same"
    );
    first.kill();
    first.end();
    drop(writer);
    leaves(terminal);
    is_ok(&scene.run(&["reset", "scout"]));
    scene.is_whole();
}

/// What may stand at the name of a lock, from those who could write there once.
fn plant_lock(scene: &Scene, lock: &Path, what: &str) {
    let secret = scene.fleet.root.join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    match what {
        "garbage" => fs::write(lock, [0xff; 9000]).unwrap(),
        "a holder that never was" => fs::write(
            lock,
            r#"{"pid":1,"user":"\u001b[2Jmallory","since":"2999-01-01T00:00:00Z","run":"x"}"#,
        )
        .unwrap(),
        "the future" => {
            let file = File::create(lock).unwrap();
            let future = SystemTime::now() + Duration::from_secs(1 << 32);
            file.set_modified(future).unwrap();
        }
        "a link" => symlink(&secret, lock).unwrap(),
        "a link to nowhere" => symlink(scene.fleet.root.join("nowhere"), lock).unwrap(),
        "a folder" => fs::create_dir(lock).unwrap(),
        "a FIFO" => {
            let made = Command::new("mkfifo").arg(lock).status().unwrap();
            assert!(made.success());
        }
        other => panic!("{other}"),
    }
}

/// What is planted at a lock's name does no harm and holds nobody up: the reset
/// is done, or says at once what is in its way.
#[track_caller]
fn planted(what: &str, works: bool) {
    let scene = Scene::new(&["scout"]);
    plant_lock(&scene, &scene.lock("scout"), what);
    drop(scene.note("scout", "- note\n"));
    let bound = Duration::from_secs(8);
    for arguments in [&["status"][..], &["reset", "--all"], &["reset", "scout"]] {
        let ended = scene.start(arguments).end_within(bound);
        if works {
            is_ok(&ended);
        } else if arguments[0] == "reset" {
            assert_ne!(ended.code, Some(0), "{ended:?}");
            assert!(ended.err.contains("scout.lock"), "{ended:?}");
        }
        assert!(!ended.out.contains('\x1b') && !ended.err.contains('\x1b'));
    }
    let memory = fs::read(scene.fleet.memory("scout")).unwrap();
    assert_eq!(memory == BASELINE.as_bytes(), works);
    assert_eq!(
        fs::read(scene.fleet.root.join("secret")).unwrap(),
        b"secret"
    );
    assert!(!scene.fleet.root.join("nowhere").exists());
    let names: Vec<String> = files(&scene.fleet.root).into_keys().collect();
    assert!(!names.contains(&"nowhere".to_string()));
}

#[test]
fn a_planted_lock_file_blocks_nobody_whatever_is_in_it() {
    for what in ["garbage", "a holder that never was", "the future"] {
        planted(what, true);
    }
}

#[test]
fn a_link_or_a_folder_at_the_locks_name_is_an_error_and_not_followed() {
    for what in ["a link", "a link to nowhere", "a folder"] {
        planted(what, false);
    }
}

#[test]
fn a_fifo_at_the_locks_name_holds_nobody_up() {
    planted("a FIFO", true);
}
