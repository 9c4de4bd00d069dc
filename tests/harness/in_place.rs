//! A memory that is a mount point of its own, as containers make them: nothing
//! can take its place, so it is written where it is.

use std::fs::{self, File};
use std::io::Write;

use super::crash::{is_killed, kill, report};
use super::fixture::{BASELINE, full, is_apart};
use super::mounts::{Mount, may_mount};
use super::scene::{Had, Scene, said};
use super::tools::alone;
use super::trace::{self, Call, Stepper, can_trace, sample};

const RESET: &[&str] = &["reset", "--all"];

/// What an agent writes at a bad moment.
const NOTE: &[u8] = b"- in between\n";

/// Longer than the baseline, so that a memory can be half the one, half the
/// other.
fn notes() -> String {
    "- a note of some length\n".repeat(40)
}

/// An agent whose memory is another file, mounted over it. Unmounted first.
struct Mounted {
    mount: Mount,
    scene: Scene,
}

impl Mounted {
    fn new() -> Mounted {
        let mounted = Mounted::not_accepted();
        let config = mounted.scene.fleet.config();
        let mut config = fs::OpenOptions::new().append(true).open(config).unwrap();
        config.write_all(b"accept_weaker = in-place\n").unwrap();
        mounted
    }

    /// The same without the word of the config that accepts it.
    fn not_accepted() -> Mounted {
        let scene = Scene::new(&[("scout", Had::scratch(&notes()))]);
        let outside = scene.fleet.root.join("outside.md");
        let memory = scene.fleet.memory("scout");
        fs::copy(&memory, &outside).unwrap();
        let outside = outside.to_str().unwrap();
        let mount = Mount::file(&["--bind", outside], &memory).unwrap();
        Mounted { mount, scene }
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.scene.fleet.memory("scout")).unwrap()
    }

    fn is_archived(&self) -> bool {
        let entries = self.scene.fleet.entries("scout");
        let holds = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains(&notes());
        entries.values().any(holds)
    }

    fn is_reset(&self) -> Result<(), String> {
        let fleet = &self.scene.fleet;
        let left = (fleet.litter("scout"), fleet.pending());
        if self.bytes() != BASELINE.as_bytes() || !self.is_archived() {
            return Err("it is not reset".to_string());
        }
        match left.0.is_empty() && left.1.is_empty() {
            true => Ok(()),
            false => Err(format!("it left {left:?}")),
        }
    }
}

#[test]
fn a_memory_that_is_a_mount_point_is_written_in_place_and_put_back() {
    if !may_mount("in_place::a_memory_that_is_a_mount_point_is_written_in_place_and_put_back") {
        return;
    }
    let mounted = Mounted::new();
    let fleet = &mounted.scene.fleet;
    let before = mounted.bytes();
    // Foreseen, whatever the last reset was like.
    for words in [&["reset", "scout", "--dry-run"][..], &["doctor"]] {
        let output = fleet.run(words);
        assert!(output.status.success(), "{}", said(&output));
        let foreseen = said(&output).contains("written in place");
        assert!(foreseen, "{words:?}: {}", said(&output));
    }
    let output = fleet.run(RESET);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("written in place"),
        "{}",
        said(&output)
    );
    mounted.is_reset().unwrap();
    assert_eq!(mounted.scene.records()[0]["method"], "in-place");
    let output = fleet.run(&["undo", "scout"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(mounted.bytes(), before);
    assert!(fleet.litter("scout").is_empty());
    drop(mounted.mount);
}

#[test]
fn mount_point_is_refused_unless_accepted() {
    if !may_mount("in_place::mount_point_is_refused_unless_accepted") {
        return;
    }
    let mounted = Mounted::not_accepted();
    let fleet = &mounted.scene.fleet;
    let before = mounted.bytes();
    for words in [&["status"], RESET, &["reset", "scout", "--dry-run"]] {
        let output = fleet.run(words);
        assert_eq!(
            output.status.code(),
            Some(6),
            "{words:?}: {}",
            said(&output)
        );
        let hint = "`accept_weaker = in-place` in [scout]";
        assert!(said(&output).contains(hint), "{}", said(&output));
    }
    for words in [&["doctor"][..], &["config", "check"]] {
        let output = fleet.run(words);
        assert!(!output.status.success(), "{words:?}: {}", said(&output));
        assert!(said(&output).contains("accept_weaker"), "{}", said(&output));
    }
    assert_eq!(mounted.bytes(), before);
    assert!(fleet.entries("scout").is_empty());
    assert!(fleet.litter("scout").is_empty());
    assert!(fleet.pending().is_empty());
    drop(mounted.mount);
}

/// How long the kernel lets a lease last that somebody waits for: of the whole
/// machine, until this is dropped.
struct LeaseBreakTime(String);

const LEASE_BREAK_TIME: &str = "/proc/sys/fs/lease-break-time";

impl LeaseBreakTime {
    /// None where that may not be changed.
    fn set(seconds: &str) -> Option<LeaseBreakTime> {
        let before = fs::read_to_string(LEASE_BREAK_TIME).ok()?;
        match fs::write(LEASE_BREAK_TIME, seconds) {
            Ok(()) => Some(LeaseBreakTime(before)),
            Err(error) => {
                println!("skipped: the time of leases cannot be changed: {error}");
                None
            }
        }
    }
}

impl Drop for LeaseBreakTime {
    fn drop(&mut self) {
        let _ = fs::write(LEASE_BREAK_TIME, &self.0);
    }
}

/// The program stands still behind a call that it makes while it has the lease, and
/// an agent writes meanwhile: either nothing of that is lost, or the run says so.
#[test]
fn write_into_a_frozen_reset_is_kept_or_told() {
    // Others rely on leases that last.
    let _alone = (!is_apart()).then(alone);
    if !may_mount("in_place::write_into_a_frozen_reset_is_kept_or_told") || !can_trace() {
        return;
    }
    let calls = || {
        let mounted = Mounted::new();
        let scene = &mounted.scene;
        trace::record(&scene.fleet, &scene.log, RESET).1
    };
    let calls = calls();
    let at = |what: &str| calls.iter().position(|call| call.text.contains(what));
    let from = at("F_SETLEASE, F_WRLCK").unwrap();
    let to = at("F_SETLEASE, F_UNLCK").unwrap();
    let Some(time) = LeaseBreakTime::set("1") else {
        return;
    };
    let (mut kept, mut told) = (0, 0);
    for call in &calls[from..to] {
        let mounted = Mounted::new();
        let fleet = &mounted.scene.fleet;
        let options = trace::inject(&call.name, "signal=STOP", call.nth, false);
        let mut run = Stepper::start(fleet, &options, RESET);
        if run.stop().is_none() {
            continue;
        }
        // It waits for a second, and is let in.
        let memory = fs::OpenOptions::new()
            .append(true)
            .open(fleet.memory("scout"));
        memory.unwrap().write_all(NOTE).unwrap();
        run.go_on();
        assert_eq!(run.stop(), None);
        let record = mounted.scene.records().pop().unwrap();
        let is_told = record["note"]
            .as_str()
            .unwrap_or("")
            .contains("may be overwritten");
        told += usize::from(is_told);
        if is_told {
            assert_eq!(record["outcome"], "failed", "{record}");
        }
        // The next run puts it right in any case.
        let output = fleet.run(RESET);
        assert!(output.status.success(), "{}: {}", call.text, said(&output));
        assert_eq!(mounted.bytes(), BASELINE.as_bytes(), "{}", call.text);
        assert!(mounted.is_archived(), "{}", call.text);
        assert!(fleet.litter("scout").is_empty(), "{}", call.text);
        let entries = fleet.entries("scout");
        let is_kept = entries.values().any(|entry| entry.ends_with(NOTE));
        kept += usize::from(is_kept);
        assert!(is_kept || is_told, "{}: {record}", call.text);
        drop(mounted.mount);
    }
    drop(time);
    println!("frozen in place: {kept} times kept, {told} times told");
    assert!(kept > 0 && told > 0);
}

#[test]
fn a_mount_point_that_somebody_has_open_is_left_alone() {
    if !may_mount("in_place::a_mount_point_that_somebody_has_open_is_left_alone") {
        return;
    }
    let mounted = Mounted::new();
    let fleet = &mounted.scene.fleet;
    let before = mounted.bytes();
    let reader = File::open(fleet.memory("scout")).unwrap();
    let output = fleet.run(RESET);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(
        said(&output).contains("somebody has it open"),
        "{}",
        said(&output)
    );
    assert_eq!(mounted.bytes(), before);
    assert!(fleet.litter("scout").is_empty());
    drop(reader);
    fleet.run(RESET);
    mounted.is_reset().unwrap();
    drop(mounted.mount);
}

#[test]
fn a_kill_at_any_call_of_a_write_in_place_is_put_right() {
    if !may_mount("in_place::a_kill_at_any_call_of_a_write_in_place_is_put_right") || !can_trace() {
        return;
    }
    let points = points();
    let chosen = match full() {
        true => points.clone(),
        false => sample(&points, 20),
    };
    let (mut killed, mut failures) = (0, Vec::new());
    for point in &chosen {
        let mounted = Mounted::new();
        if !is_killed(&kill(&mounted.scene, point, RESET)) {
            continue;
        }
        killed += 1;
        let output = mounted.scene.fleet.run(RESET);
        let ended = match output.status.success() {
            true => mounted.is_reset(),
            false => Err(said(&output)),
        };
        if let Err(why) = ended {
            failures.push(format!("killed at {}: {why}", point.text));
        }
        drop(mounted.mount);
    }
    println!("in place: killed at {killed} of {} points", points.len());
    report("in place", &failures);
    assert!(killed * 10 >= chosen.len() * 8);
}

fn points() -> Vec<Call> {
    let mounted = Mounted::new();
    let scene = &mounted.scene;
    let (output, mut calls) = trace::record(&scene.fleet, &scene.log, RESET);
    assert!(output.status.success(), "{}", said(&output));
    calls.retain(Call::changes);
    calls
}

impl Mounted {
    /// Runs a reset in which the calls of this name fail from the `nth` on, or
    /// the `nth` alone; answers what was said, and how many failed.
    fn fails(&self, name: &str, nth: usize, on: bool) -> (String, usize) {
        let options = trace::inject(name, "error=EIO", nth, on);
        let output = trace::run(&self.scene.fleet, &self.scene.log, &options, RESET);
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        let log = fs::read_to_string(&self.scene.log).unwrap();
        (said(&output), log.matches("(INJECTED)").count())
    }

    /// What is left are the memory's copy, the new file, and their record; the
    /// next run puts it right and finds nothing that was not archived.
    fn is_left_to_the_next_run(&self) {
        let fleet = &self.scene.fleet;
        let litter = fleet.litter("scout");
        assert_eq!(litter.len(), 2, "{litter:?}");
        let copies = litter.iter().filter(|name| name.contains("-copy"));
        assert_eq!(copies.count(), 1, "{litter:?}");
        assert_eq!(fleet.pending().len(), 1);
        let output = fleet.run(RESET);
        assert!(output.status.success(), "{}", said(&output));
        self.is_reset().unwrap();
        let entries = fleet.entries("scout");
        assert_eq!(entries.len(), 1, "{:?}", entries.keys());
    }
}

#[test]
fn what_cannot_be_written_in_place_is_put_back() {
    if !may_mount("in_place::what_cannot_be_written_in_place_is_put_back") || !can_trace() {
        return;
    }
    let mounted = Mounted::new();
    let fleet = &mounted.scene.fleet;
    let before = mounted.bytes();
    let (said, failed) = mounted.fails("ftruncate", 1, false);
    assert_eq!(failed, 1);
    assert!(
        said.contains("cannot cut") && said.contains("it is as it was"),
        "{said}"
    );
    assert_eq!(mounted.bytes(), before);
    assert!(mounted.is_archived());
    assert!(
        fleet.litter("scout").is_empty(),
        "{:?}",
        fleet.litter("scout")
    );
    assert!(fleet.pending().is_empty());
    assert!(fleet.run(RESET).status.success());
    mounted.is_reset().unwrap();
    drop(mounted.mount);
}

#[test]
fn what_can_be_neither_written_nor_put_back_is_left_to_the_next_run() {
    let name = "in_place::what_can_be_neither_written_nor_put_back_is_left_to_the_next_run";
    if !may_mount(name) || !can_trace() {
        return;
    }
    let mounted = Mounted::new();
    let (said, failed) = mounted.fails("ftruncate", 1, true);
    assert_eq!(failed, 2, "once to write it, once to put it back");
    assert!(said.contains("half written"), "{said}");
    mounted.is_left_to_the_next_run();
    drop(mounted.mount);
}

#[test]
fn what_was_written_in_place_and_not_synced_is_left_to_the_next_run() {
    let name = "in_place::what_was_written_in_place_and_not_synced_is_left_to_the_next_run";
    if !may_mount(name) || !can_trace() {
        return;
    }
    let points = points();
    let cut = points.iter().position(|call| call.name == "ftruncate");
    let mut behind = points[cut.unwrap()..].iter();
    let sync = behind.find(|call| call.name == "fsync").unwrap();
    let mounted = Mounted::new();
    let (said, _) = mounted.fails("fsync", sync.nth, false);
    assert!(said.contains("perhaps not on the disk"), "{said}");
    assert_eq!(mounted.bytes(), BASELINE.as_bytes());
    mounted.is_left_to_the_next_run();
    drop(mounted.mount);
}

#[test]
fn what_an_agent_writes_into_a_half_written_memory_is_archived() {
    let name = "in_place::what_an_agent_writes_into_a_half_written_memory_is_archived";
    if !may_mount(name) || !can_trace() {
        return;
    }
    let mounted = Mounted::new();
    let fleet = &mounted.scene.fleet;
    mounted.fails("ftruncate", 1, true);
    let memory = fs::OpenOptions::new()
        .append(true)
        .open(fleet.memory("scout"));
    memory.unwrap().write_all(b"- since then\n").unwrap();
    let output = fleet.run(RESET);
    assert!(output.status.success(), "{}", said(&output));
    mounted.is_reset().unwrap();
    let entries = fleet.entries("scout");
    let late = entries
        .values()
        .any(|bytes| bytes.ends_with(b"- since then\n"));
    assert!(late, "{:?}", entries.keys());
    drop(mounted.mount);
}

#[test]
fn a_kill_while_a_half_written_memory_is_put_right_is_put_right_itself() {
    let name = "in_place::a_kill_while_a_half_written_memory_is_put_right_is_put_right_itself";
    if !may_mount(name) || !can_trace() {
        return;
    }
    let half_written = || {
        let mounted = Mounted::new();
        mounted.fails("ftruncate", 1, true);
        mounted
    };
    let mounted = half_written();
    let (_, mut points) = trace::record(&mounted.scene.fleet, &mounted.scene.log, RESET);
    points.retain(Call::changes);
    let chosen = match full() {
        true => points.clone(),
        false => sample(&points, 15),
    };
    let mut failures = Vec::new();
    for point in &chosen {
        let mounted = half_written();
        kill(&mounted.scene, point, RESET);
        let output = mounted.scene.fleet.run(RESET);
        let ended = match output.status.success() {
            true => mounted.is_reset(),
            false => Err(said(&output)),
        };
        if let Err(why) = ended {
            failures.push(format!("killed at {}: {why}", point.text));
        }
    }
    println!(
        "in place, half written: killed at {} of {} points",
        chosen.len(),
        points.len()
    );
    report("in place, half written", &failures);
}
