//! Concurrent runs: on one agent exactly one works and the others name it; on one archive many
//! work, and the ledger stays complete.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use memory_shepherd::base::digest::Digest;
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{BASELINE, Fleet, directory_files};
use crate::full_harness::is_full_harness;
use crate::processes::{
    EndedRun, RUN_TIMEOUT, RunningProgram, SeededRandom, processor_lock, test_directory, wait_for,
};
use crate::strace::can_trace;
use crate::terminal::{Terminal, isolated_command};

const SEED: u64 = 5_031_417;

/// A fleet for concurrent runs.
struct ConcurrencyScene {
    _temporary: tempfile::TempDir,
    fleet: Fleet,
}

impl ConcurrencyScene {
    fn new(agents: &[&str]) -> ConcurrencyScene {
        let (temporary, root) = test_directory(true);
        let fleet = Fleet::new(&root, &root.join("archives"), agents);
        for agent in agents {
            fs::write(fleet.memory_path(agent), BASELINE).unwrap();
        }
        ConcurrencyScene {
            _temporary: temporary,
            fleet,
        }
    }

    fn append_note(&self, agent: &str, text: &str) -> File {
        let mut file = File::options()
            .append(true)
            .open(self.fleet.memory_path(agent))
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn start(&self, arguments: &[&str]) -> RunningProgram {
        RunningProgram::start_on(&self.fleet, arguments)
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> EndedRun {
        self.start(arguments).wait()
    }

    /// Starts a run that has displaced the memory while a writer still has it open; the run holds
    /// the lock and is stopped before its wait is over.
    fn start_stopped_run(&self, agent: &str) -> (RunningProgram, File) {
        // An earlier reset that an undo could revert.
        drop(self.append_note(agent, "- first\n"));
        assert_ok(&self.run(&["reset", agent]));
        let writer = self.append_note(agent, "- early\n");
        let run = self.start(&["reset", agent]);
        self.wait_until_displaced(agent);
        send_signal(&run, Signal::STOP);
        (run, writer)
    }

    fn wait_until_displaced(&self, agent: &str) {
        let baseline = BASELINE.as_bytes();
        wait_for("a displaced file", || {
            !self.fleet.leftovers(agent).is_empty()
                && fs::read(self.fleet.memory_path(agent)).unwrap() == baseline
        });
    }

    fn lock_path(&self, agent: &str) -> PathBuf {
        let name = format!(".shepherd/locks/{agent}.lock");
        self.fleet.archive.join(name)
    }

    /// Asserts that everything is settled and that the ledger has no gap.
    #[track_caller]
    fn assert_sound(&self) -> usize {
        assert_eq!(self.fleet.pending_journals(), [""; 0]);
        for agent in self.fleet.agents() {
            assert_eq!(self.fleet.leftovers(agent), [""; 0]);
        }
        count_records(&self.fleet.archive)
    }
}

/// Returns the number of ledger records; asserts that each continues the one before.
#[track_caller]
pub fn count_records(archive: &Path) -> usize {
    let ledger = fs::read(archive.join(".shepherd/ledger.jsonl")).unwrap();
    assert_eq!(ledger.last(), Some(&b'\n'), "the last line is torn");
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

fn send_signal(run: &RunningProgram, signal: Signal) {
    let pid = Pid::from_raw(run.pid().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Asserts that the run was refused because this process holds the lock.
#[track_caller]
fn assert_busy(ended: &EndedRun, holder: u32) {
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let named = format!("process {holder}, since ");
    assert!(ended.err.contains(&named), "{named}: {ended:?}");
    assert!(ended.err.contains("locked ") && ended.err.contains(" by run "));
}

#[track_caller]
fn assert_ok(ended: &EndedRun) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn second_run_is_refused_and_names_the_holder() {
    let scene = ConcurrencyScene::new(&["scout"]);
    let (first, writer) = scene.start_stopped_run("scout");
    let user = "of root@";
    for arguments in [
        &["reset", "scout"][..],
        &["reset", "--all"],
        &["undo", "scout", "--overwrite"],
        &["scout"],
        &["all"],
    ] {
        let second = scene.run(arguments);
        assert_busy(&second, first.pid());
        if crate::fixture::is_root() {
            assert!(second.err.contains(user), "{second:?}");
        }
    }
    drop(writer);
    send_signal(&first, Signal::CONT);
    assert_ok(&first.wait());
    // The run that the others named is the recorded one.
    let ledger = fs::read_to_string(scene.fleet.archive.join(".shepherd/ledger.jsonl")).unwrap();
    assert!(ledger.contains(" by run "), "{ledger}");
    assert_ok(&scene.run(&["reset", "scout"]));
    assert!(scene.assert_sound() >= 6);
}

#[test]
fn concurrent_runs_on_one_agent_work_one_at_a_time() {
    let _alone = processor_lock();
    let rounds = if is_full_harness() { 60 } else { 3 };
    let (mut worked, mut refused, mut unnamed) = (0, 0, 0);
    for round in 0..rounds {
        let scene = ConcurrencyScene::new(&["scout"]);
        let note = format!("- round {round}\n");
        let writer = scene.append_note("scout", &note);
        let runs: Vec<RunningProgram> = (0..8).map(|_| scene.start(&["reset", "scout"])).collect();
        scene.wait_until_displaced("scout");
        drop(writer);
        for ended in runs.into_iter().map(RunningProgram::wait) {
            match ended.code {
                Some(0) => worked += 1,
                Some(5) => refused += 1,
                _ => panic!("{ended:?}"),
            }
            let named = ended.err.contains("process ");
            unnamed += i32::from(ended.code == Some(5) && !named);
        }
        assert_ok(&scene.run(&["reset", "scout"]));
        scene.assert_sound();
        let entries = scene.fleet.entries("scout");
        assert_eq!(
            entries.len(),
            1,
            "more than one run archived it: {entries:?}"
        );
    }
    println!(
        "{rounds} rounds of 8 runs: {worked} reset, {refused} refused, {unnamed} without holder"
    );
    assert!(worked >= rounds && refused > 0);
    assert_eq!(unnamed, 0, "a live holder is not named");
}

#[test]
fn killed_or_stopped_holder_does_not_block() {
    for stopped in [false, true] {
        let scene = ConcurrencyScene::new(&["scout"]);
        let (mut first, writer) = scene.start_stopped_run("scout");
        // The stopped process lives and holds the lock, however long it does nothing.
        assert_busy(&scene.run(&["reset", "scout"]), first.pid());
        if !stopped {
            send_signal(&first, Signal::CONT);
        }
        first.kill();
        assert_eq!(first.wait().signal, Some(9));
        drop(writer);
        drop(scene.append_note("scout", "- later\n"));
        assert_ok(&scene.run(&["reset", "scout"]));
        scene.assert_sound();
        let entries = scene.fleet.entries("scout");
        let bytes: Vec<u8> = entries.into_values().flatten().collect();
        let all = String::from_utf8(bytes).unwrap();
        assert!(
            all.contains("- early\n") && all.contains("- later\n"),
            "{all}"
        );
    }
}

/// Runs the program repeatedly, as a timer does that knows of no other run.
fn run_repeatedly(scene: &ConcurrencyScene, arguments: &[&str], times: usize) -> Vec<EndedRun> {
    (0..times).map(|_| scene.run(arguments)).collect()
}

#[test]
fn concurrent_timers_reset_fleet_or_find_it_busy() {
    let _alone = processor_lock();
    let scene = ConcurrencyScene::new(&["a", "b", "c"]);
    let times = if is_full_harness() { 150 } else { 8 };
    let all: &[&[&str]] = &[
        &["reset", "--all"],
        &["reset", "c", "b", "a"],
        &["reset", "b"],
        &["undo", "a", "--append"],
    ];
    let mut notes = 0;
    let ends: Vec<EndedRun> = thread::scope(|scope| {
        let timers: Vec<_> = all
            .iter()
            .map(|arguments| scope.spawn(|| run_repeatedly(&scene, arguments, times)))
            .collect();
        let mut random = SeededRandom::new(SEED);
        while timers.iter().any(|timer| !timer.is_finished()) {
            let agent = *random.pick(&["a", "b", "c"]);
            drop(scene.append_note(agent, &format!("- {notes}\n")));
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
            // Nothing to undo, or no longer.
            Some(code @ (0 | 5 | 6)) => counts[code as usize] += 1,
            _ => panic!("{ended:?}"),
        }
    }
    assert_ok(&scene.run(&["reset", "--all"]));
    let records = scene.assert_sound();
    let mut archived = String::new();
    for agent in scene.fleet.agents() {
        for entry in scene.fleet.entries(agent).values() {
            archived.push_str(str::from_utf8(entry).unwrap());
        }
    }
    let found: std::collections::HashSet<&str> = archived.lines().collect();
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
fn eight_concurrent_runs_keep_the_ledger_sound() {
    let _alone = processor_lock();
    let agents = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let scene = ConcurrencyScene::new(&agents);
    let times = if is_full_harness() { 60 } else { 4 };
    thread::scope(|scope| {
        for agent in agents {
            let scene = &scene;
            scope.spawn(move || {
                for number in 0..times {
                    drop(scene.append_note(agent, &format!("- {number}\n")));
                    assert_ok(&scene.run(&["reset", agent]));
                }
            });
        }
    });
    let records = scene.assert_sound();
    assert_eq!(records, agents.len() * times);
    for agent in agents {
        assert_eq!(scene.fleet.entries(agent).len(), times);
    }
    println!("8 processes: {records} records in one chain");
}

/// On a slow disk each run holds the ledger lock for a while.
#[test]
fn concurrent_processes_all_record_their_runs() {
    if !can_trace() {
        return;
    }
    let _alone = processor_lock();
    let (number, delay) = if is_full_harness() {
        (100, 300_000)
    } else {
        (8, 30_000)
    };
    let names: Vec<String> = (0..number).map(|it| format!("agent-{it}")).collect();
    let agents: Vec<&str> = names.iter().map(String::as_str).collect();
    let scene = ConcurrencyScene::new(&agents);
    let syncs = "fsync,fdatasync,syncfs";
    let inject = format!("--inject={syncs}:delay_exit={delay}");
    let trace = format!("--trace={syncs}");
    let wrapper = ["strace", "-f", "-o", "/dev/null", &trace, &inject];
    let runs: Vec<RunningProgram> = agents
        .iter()
        .map(|agent| {
            drop(scene.append_note(agent, "- note\n"));
            RunningProgram::start(scene.fleet.command(&wrapper, &["reset", agent]))
        })
        .collect();
    let ends: Vec<EndedRun> = runs
        .into_iter()
        .map(|run| run.end_within(RUN_TIMEOUT * 5))
        .collect();
    for ended in &ends {
        assert_ok(ended);
    }
    assert_eq!(scene.assert_sound(), number);
    let longest = ends.iter().map(|ended| ended.duration).max();
    println!("{number} runs, {delay} us per sync: all recorded, the last after {longest:?}");
}

#[test]
fn runs_killed_together_leave_a_sound_ledger() {
    let _alone = processor_lock();
    let agents = ["a", "b", "c", "d"];
    let scene = ConcurrencyScene::new(&agents);
    let mut random = SeededRandom::new(SEED + 1);
    let rounds = if is_full_harness() { 80 } else { 4 };
    for round in 0..rounds {
        let mut runs: Vec<RunningProgram> = agents
            .iter()
            .map(|agent| {
                drop(scene.append_note(agent, &format!("- {round}\n")));
                scene.start(&["reset", agent])
            })
            .collect();
        for run in &mut runs {
            run.run_until(Duration::from_micros(random.below(30_000)));
            run.kill();
        }
        for run in runs {
            let ended = run.wait();
            assert!(
                ended.signal == Some(9) || ended.code == Some(0),
                "{ended:?}"
            );
        }
    }
    assert_ok(&scene.run(&["reset", "--all"]));
    let records = scene.assert_sound();
    for agent in agents {
        let bytes = scene.fleet.entries(agent).into_values().flatten().collect();
        let entries = String::from_utf8(bytes).unwrap();
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
fn waiting_run_works_after_the_other_ends() {
    let scene = ConcurrencyScene::new(&["scout", "other"]);
    let (first, writer) = scene.start_stopped_run("scout");
    drop(scene.append_note("scout", "- second\n"));
    let waiting = [
        scene.start(&["reset", "scout", "--wait", "50"]),
        scene.start(&["reset", "--all", "--wait", "50"]),
        scene.start(&["reset", "other", "scout", "--wait", "50"]),
        scene.start(&["undo", "scout", "--append", "--wait", "50"]),
    ];
    // A run without --wait is refused while the others wait.
    assert_busy(&scene.run(&["reset", "scout"]), first.pid());
    drop(writer);
    send_signal(&first, Signal::CONT);
    assert_ok(&first.wait());
    for run in waiting {
        assert_ok(&run.wait());
    }
    assert_ok(&scene.run(&["reset", "--all", "--wait", "5"]));
    scene.assert_sound();
}

#[test]
fn waiting_run_is_not_refused_by_a_later_one() {
    let scene = ConcurrencyScene::new(&["scout"]);
    for round in 0..15 {
        drop(scene.append_note("scout", &format!("- {round}\n")));
        let hasty = scene.start(&["reset", "scout"]);
        let waiting = [
            scene.start(&["reset", "scout", "--wait", "50"]),
            scene.start(&["undo", "scout", "--overwrite", "--wait", "50"]),
        ];
        hasty.wait();
        for run in waiting {
            let ended = run.wait();
            assert_ne!(ended.code, Some(5), "{ended:?}");
        }
    }
    scene.assert_sound();
}

#[test]
fn wait_timeout_is_kept_and_names_the_holder() {
    let scene = ConcurrencyScene::new(&["scout"]);
    let (mut first, writer) = scene.start_stopped_run("scout");
    for verb in [&["reset", "scout"][..], &["undo", "scout"]] {
        let began = Instant::now();
        let ended = scene.run(&[verb, &["--wait", "1"]].concat());
        assert_busy(&ended, first.pid());
        assert!(began.elapsed() >= Duration::from_secs(1), "{ended:?}");
    }
    // A dry run does not wait for the lock.
    let ended = scene.run(&["reset", "scout", "--wait", "3600", "--dry-run"]);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    first.kill();
    first.wait();
    drop(writer);
    assert_ok(&scene.run(&["reset", "scout", "--wait", "1"]));
    scene.assert_sound();
}

/// Starts a program that INT and TERM end, whatever the tests' parent ignores: a process inherits
/// ignored signals, as the background jobs of a shell without job control do.
const DEFAULT_SIGNALS_WRAPPER: [&str; 2] = ["env", "--default-signal=INT,TERM"];

#[test]
fn interrupted_wait_ends_at_once_without_changes() {
    let scene = ConcurrencyScene::new(&["scout"]);
    let (mut first, writer) = scene.start_stopped_run("scout");
    let before = ledger_bytes(&scene);
    for end in [Signal::INT, Signal::TERM] {
        let queue = scene.fleet.archive.join(".shepherd/locks/scout.queue");
        let _ = fs::remove_file(&queue);
        let words = ["reset", "scout", "--wait", "3600"];
        let waiting = RunningProgram::start(scene.fleet.command(&DEFAULT_SIGNALS_WRAPPER, &words));
        wait_for("a place in the queue", || queue.exists());
        send_signal(&waiting, end);
        assert_ne!(waiting.wait().code, Some(0));
    }
    assert_eq!(ledger_bytes(&scene), before);
    first.kill();
    first.wait();
    drop(writer);
    assert_ok(&scene.run(&["reset", "scout"]));
}

fn ledger_bytes(scene: &ConcurrencyScene) -> Vec<u8> {
    fs::read(scene.fleet.archive.join(".shepherd/ledger.jsonl")).unwrap_or_default()
}

/// Starts the console on the scene's fleet.
fn start_console(scene: &ConcurrencyScene) -> Terminal {
    let mut command = isolated_command(Path::new(Fleet::program()), &scene.fleet.root);
    command.args(["--config", scene.fleet.config_path().to_str().unwrap()]);
    let mut terminal = Terminal::start(command, (120, 36));
    terminal.wait_for("live");
    terminal
}

#[test]
fn run_during_console_reset_is_refused_and_names_it() {
    let scene = ConcurrencyScene::new(&["scout"]);
    let writer = scene.append_note("scout", "- early\n");
    let mut terminal = start_console(&scene);
    terminal.wait_for("SCRATCH  ");
    terminal.send("X");
    terminal.wait_for("RESET PLAN");
    terminal.send_until("y", "the reset", |terminal| {
        !terminal.text().contains("RESET PLAN")
    });
    scene.wait_until_displaced("scout");
    terminal.signal(Signal::STOP);
    let ended = scene.run(&["reset", "scout"]);
    assert_busy(&ended, terminal.pid());
    drop(writer);
    terminal.signal(Signal::CONT);
    terminal.wait_for("1 ok");
    assert_ok(&scene.run(&["reset", "scout"]));
    quit_console(terminal);
    scene.assert_sound();
}

/// Quits the console from any screen.
fn quit_console(mut terminal: Terminal) {
    terminal.send_until("q", "the end", |terminal| {
        !terminal.screen().alternate_screen()
    });
    assert!(terminal.wait_for_exit().success());
}

#[test]
fn console_during_run_shows_busy_and_does_nothing() {
    let scene = ConcurrencyScene::new(&["scout"]);
    let (mut first, writer) = scene.start_stopped_run("scout");
    let mut terminal = start_console(&scene);
    terminal.wait_for("BUSY");
    terminal.wait_for(&format!("process {}", first.pid()));
    drop(scene.append_note("scout", "- not yet\n"));
    terminal.send("X");
    terminal.wait_for_quiet();
    let mut pressed = 0;
    terminal.send_until("y", "accepted keys", |_| {
        pressed += 1;
        pressed > 3
    });
    let memory = fs::read(scene.fleet.memory_path("scout")).unwrap();
    assert!(
        memory.ends_with(b"- not yet\n"),
        "the console reset the agent"
    );
    first.kill();
    first.wait();
    drop(writer);
    quit_console(terminal);
    assert_ok(&scene.run(&["reset", "scout"]));
    scene.assert_sound();
}

/// Creates an object at the path of a lock, as a user with write access there could have done.
fn plant_lock(scene: &ConcurrencyScene, lock: &Path, what: &str) {
    let secret = scene.fleet.root.join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    match what {
        "garbage" => fs::write(lock, [0xff; 9000]).unwrap(),
        "a made-up holder" => fs::write(
            lock,
            r#"{"pid":1,"user":"\u001b[2Jmallory","since":"2999-01-01T00:00:00Z","run":"x"}"#,
        )
        .unwrap(),
        "a modification time in the future" => {
            let file = File::create(lock).unwrap();
            let future = SystemTime::now() + Duration::from_secs(1 << 32);
            file.set_modified(future).unwrap();
        }
        "a link" => symlink(&secret, lock).unwrap(),
        "a dangling link" => symlink(scene.fleet.root.join("nowhere"), lock).unwrap(),
        "a directory" => fs::create_dir(lock).unwrap(),
        "a FIFO" => {
            let made = Command::new("mkfifo").arg(lock).status().unwrap();
            assert!(made.success());
        }
        other => panic!("{other}"),
    }
}

/// Asserts that an object at a lock's path does no harm and blocks no run: the reset succeeds, or
/// names the obstacle immediately.
#[track_caller]
fn assert_planted_lock(what: &str, works: bool) {
    let scene = ConcurrencyScene::new(&["scout"]);
    plant_lock(&scene, &scene.lock_path("scout"), what);
    drop(scene.append_note("scout", "- note\n"));
    let bound = Duration::from_secs(8);
    for arguments in [&["status"][..], &["reset", "--all"], &["reset", "scout"]] {
        let ended = scene.start(arguments).end_within(bound);
        if works {
            assert_ok(&ended);
        } else if arguments[0] == "reset" {
            assert_ne!(ended.code, Some(0), "{ended:?}");
            assert!(ended.err.contains("scout.lock"), "{ended:?}");
        }
        assert!(!ended.out.contains('\x1b') && !ended.err.contains('\x1b'));
    }
    let memory = fs::read(scene.fleet.memory_path("scout")).unwrap();
    assert_eq!(memory == BASELINE.as_bytes(), works);
    assert_eq!(
        fs::read(scene.fleet.root.join("secret")).unwrap(),
        b"secret"
    );
    assert!(!scene.fleet.root.join("nowhere").exists());
    let names: Vec<String> = directory_files(&scene.fleet.root).into_keys().collect();
    assert!(!names.contains(&"nowhere".to_string()));
}

#[test]
fn planted_lock_file_does_not_block() {
    for what in [
        "garbage",
        "a made-up holder",
        "a modification time in the future",
    ] {
        assert_planted_lock(what, true);
    }
}

#[test]
fn symlink_or_directory_as_lock_file_is_an_error() {
    for what in ["a link", "a dangling link", "a directory"] {
        assert_planted_lock(what, false);
    }
}

#[test]
fn fifo_as_lock_file_does_not_block() {
    assert_planted_lock("a FIFO", true);
}
