//! A memory that is a mount point of its own, as containers make them: no rename can replace it, so
//! a reset writes it in place.

use std::fs::{self, File};
use std::io::Write;
use std::thread;

use super::crash::{assert_no_failures, is_killed, kill};
use super::fixture::BASELINE;
use super::mounts::{Mount, may_mount};
use super::scene::{InitialMemory, Scene, output_text};
use super::strace::{self, SteppedProgram, SystemCall, can_trace, sample_if_quick};

const RESET: &[&str] = &["reset", "--all"];

/// Note that an agent writes in the middle of a reset.
const LATE_NOTE: &str = "- in between\n";

/// Returns notes longer than the baseline, so that a partly written memory can be told from a whole
/// one.
fn long_notes() -> String {
    "- a note of some length\n".repeat(40)
}

/// An agent whose memory is another file, mounted over it. The mount is dropped first.
struct MountedMemory {
    mount: Mount,
    scene: Scene,
}

impl MountedMemory {
    fn new() -> MountedMemory {
        let mounted = MountedMemory::not_accepted();
        let path = mounted.scene.fleet.config_path();
        let mut config = fs::OpenOptions::new().append(true).open(path).unwrap();
        config.write_all(b"accept_degraded = in-place\n").unwrap();
        mounted
    }

    /// Mounts a memory without the config key that accepts it.
    fn not_accepted() -> MountedMemory {
        let scene = Scene::new(&[("scout", InitialMemory::scratch(&long_notes()))]);
        let outside = scene.fleet.root.join("outside.md");
        let memory = scene.fleet.memory_path("scout");
        fs::copy(&memory, &outside).unwrap();
        let words = ["--bind", outside.to_str().unwrap()];
        let mount = Mount::mount_over_file(&words, &memory).unwrap();
        MountedMemory { mount, scene }
    }

    fn read_memory(&self) -> Vec<u8> {
        fs::read(self.scene.fleet.memory_path("scout")).unwrap()
    }

    fn is_archived(&self) -> bool {
        let entries = self.scene.fleet.entries("scout");
        let holds = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains(&long_notes());
        entries.values().any(holds)
    }

    fn check_reset(&self) -> Result<(), String> {
        let fleet = &self.scene.fleet;
        let left = (fleet.leftovers("scout"), fleet.pending_journals());
        if self.read_memory() != BASELINE.as_bytes() || !self.is_archived() {
            return Err("the memory is not reset".to_string());
        }
        if left.0.is_empty() && left.1.is_empty() {
            Ok(())
        } else {
            Err(format!("left behind: {left:?}"))
        }
    }

    /// Runs a reset, which must succeed and leave nothing behind.
    fn check_next_reset(&self) -> Result<(), String> {
        let output = self.scene.fleet.run(RESET);
        if output.status.success() {
            self.check_reset()
        } else {
            Err(output_text(&output))
        }
    }
}

#[test]
fn mount_point_memory_is_written_in_place_and_undone() {
    if !may_mount("in_place::mount_point_memory_is_written_in_place_and_undone") {
        return;
    }
    let mounted = MountedMemory::new();
    let fleet = &mounted.scene.fleet;
    let before = mounted.read_memory();
    // The plan and `doctor` report it, whatever the last reset was like.
    for words in [&["reset", "scout", "--dry-run"][..], &["doctor"]] {
        let output = fleet.run(words);
        assert!(output.status.success(), "{}", output_text(&output));
        let foreseen = output_text(&output).contains("written in place");
        assert!(foreseen, "{words:?}: {}", output_text(&output));
    }
    let output = fleet.run(RESET);
    assert!(output.status.success(), "{}", output_text(&output));
    assert!(
        output_text(&output).contains("written in place"),
        "{}",
        output_text(&output)
    );
    mounted.check_reset().unwrap();
    assert_eq!(mounted.scene.records()[0]["method"], "in-place");
    let output = fleet.run(&["undo", "scout"]);
    assert!(output.status.success(), "{}", output_text(&output));
    assert_eq!(mounted.read_memory(), before);
    assert!(fleet.leftovers("scout").is_empty());
    drop(mounted.mount);
}

#[test]
fn mount_point_is_refused_unless_accepted() {
    if !may_mount("in_place::mount_point_is_refused_unless_accepted") {
        return;
    }
    let mounted = MountedMemory::not_accepted();
    let fleet = &mounted.scene.fleet;
    let before = mounted.read_memory();
    for words in [&["status"], RESET, &["reset", "scout", "--dry-run"]] {
        let output = fleet.run(words);
        assert_eq!(
            output.status.code(),
            Some(6),
            "{words:?}: {}",
            output_text(&output)
        );
        let hint = "`accept_degraded = in-place` in [scout]";
        assert!(
            output_text(&output).contains(hint),
            "{}",
            output_text(&output)
        );
    }
    for words in [&["doctor"][..], &["config", "check"]] {
        let output = fleet.run(words);
        assert!(
            !output.status.success(),
            "{words:?}: {}",
            output_text(&output)
        );
        assert!(
            output_text(&output).contains("accept_degraded"),
            "{}",
            output_text(&output)
        );
    }
    assert_eq!(mounted.read_memory(), before);
    assert!(fleet.entries("scout").is_empty());
    assert!(fleet.leftovers("scout").is_empty());
    assert!(fleet.pending_journals().is_empty());
    drop(mounted.mount);
}

/// The program is stopped behind a call that it makes while it has the lease, and an agent writes
/// in that time: either no byte of that is lost, or the run reports it.
#[test]
fn write_into_frozen_reset_is_kept_or_reported() {
    if !may_mount("in_place::write_into_frozen_reset_is_kept_or_reported") || !can_trace() {
        return;
    }
    let calls = {
        let mounted = MountedMemory::new();
        let scene = &mounted.scene;
        strace::record_calls(&scene.fleet, &scene.trace_log, RESET).1
    };
    let at = |what: &str| calls.iter().position(|call| call.text.contains(what));
    let from = at("F_SETLEASE, F_WRLCK").unwrap();
    let to = at("F_SETLEASE, F_UNLCK").unwrap();
    let mut stopped = Vec::new();
    for call in &calls[from..to] {
        let mounted = MountedMemory::new();
        let options = strace::injection_options(&call.name, "signal=STOP", call.occurrence, false);
        let mut run = SteppedProgram::start(&mounted.scene.fleet, &options, RESET);
        if run.wait_for_stop().is_some() {
            stopped.push((call, mounted, run));
        }
    }
    // A writer waits until the kernel ends the lease, by default for 45 seconds; all at once.
    thread::scope(|scope| {
        for (_, mounted, _) in &stopped {
            let fleet = &mounted.scene.fleet;
            scope.spawn(|| fleet.append_note("scout", LATE_NOTE));
        }
    });
    let (mut kept, mut told) = (0, 0);
    for (call, mounted, mut run) in stopped {
        let fleet = &mounted.scene.fleet;
        run.resume();
        assert_eq!(run.wait_for_stop(), None);
        let record = mounted.scene.records().pop().unwrap();
        let is_told = record["note"]
            .as_str()
            .unwrap_or("")
            .contains("may be overwritten");
        told += usize::from(is_told);
        if is_told {
            assert_eq!(record["outcome"], "failed", "{record}");
        }
        // The next run recovers in any case.
        let output = fleet.run(RESET);
        assert!(
            output.status.success(),
            "{}: {}",
            call.text,
            output_text(&output)
        );
        assert_eq!(mounted.read_memory(), BASELINE.as_bytes(), "{}", call.text);
        assert!(mounted.is_archived(), "{}", call.text);
        assert!(fleet.leftovers("scout").is_empty(), "{}", call.text);
        let entries = fleet.entries("scout");
        let is_kept = entries
            .values()
            .any(|entry| entry.ends_with(LATE_NOTE.as_bytes()));
        kept += usize::from(is_kept);
        assert!(is_kept || is_told, "{}: {record}", call.text);
        drop(mounted.mount);
    }
    println!("stopped in place: note kept {kept} times, loss reported {told} times");
    assert!(kept > 0 && told > 0);
}

#[test]
fn open_mount_point_memory_is_left_alone() {
    if !may_mount("in_place::open_mount_point_memory_is_left_alone") {
        return;
    }
    let mounted = MountedMemory::new();
    let fleet = &mounted.scene.fleet;
    let before = mounted.read_memory();
    let reader = File::open(fleet.memory_path("scout")).unwrap();
    let output = fleet.run(RESET);
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    assert!(
        output_text(&output).contains("another process has it open"),
        "{}",
        output_text(&output)
    );
    assert_eq!(mounted.read_memory(), before);
    assert!(fleet.leftovers("scout").is_empty());
    drop(reader);
    mounted.check_next_reset().unwrap();
    drop(mounted.mount);
}

#[test]
fn kill_at_any_call_of_in_place_write_is_recovered() {
    if !may_mount("in_place::kill_at_any_call_of_in_place_write_is_recovered") || !can_trace() {
        return;
    }
    let points = changing_calls();
    let chosen = sample_if_quick(&points, 20);
    let (mut killed, mut failures) = (0, Vec::new());
    for point in &chosen {
        let mounted = MountedMemory::new();
        if !is_killed(&kill(&mounted.scene, point, RESET)) {
            continue;
        }
        killed += 1;
        if let Err(why) = mounted.check_next_reset() {
            failures.push(format!("killed at {}: {why}", point.text));
        }
        drop(mounted.mount);
    }
    println!("in place: killed at {killed} of {} points", points.len());
    assert_no_failures("in place", &failures);
    assert!(killed * 10 >= chosen.len() * 8);
}

fn changing_calls() -> Vec<SystemCall> {
    let mounted = MountedMemory::new();
    let scene = &mounted.scene;
    let (output, mut calls) = strace::record_calls(&scene.fleet, &scene.trace_log, RESET);
    assert!(output.status.success(), "{}", output_text(&output));
    calls.retain(SystemCall::changes);
    calls
}

impl MountedMemory {
    /// Runs a reset in which the calls of this name fail, from the `nth` on or the `nth` alone;
    /// returns the output and the number of failed calls.
    fn reset_with_failing_call(&self, name: &str, nth: usize, on: bool) -> (String, usize) {
        let options = strace::injection_options(name, "error=EIO", nth, on);
        let output = strace::run_traced(&self.scene.fleet, &self.scene.trace_log, &options, RESET);
        assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
        let log = fs::read_to_string(&self.scene.trace_log).unwrap();
        (output_text(&output), log.matches("(INJECTED)").count())
    }

    /// Asserts that the memory's copy, the new file and their record are left; and that the next
    /// run recovers and archives nothing new.
    fn assert_left_to_next_run(&self) {
        let fleet = &self.scene.fleet;
        let litter = fleet.leftovers("scout");
        assert_eq!(litter.len(), 2, "{litter:?}");
        let copies = litter.iter().filter(|name| name.contains("-copy"));
        assert_eq!(copies.count(), 1, "{litter:?}");
        assert_eq!(fleet.pending_journals().len(), 1);
        self.check_next_reset().unwrap();
        let entries = fleet.entries("scout");
        assert_eq!(entries.len(), 1, "{:?}", entries.keys());
    }
}

#[test]
fn failed_in_place_write_is_rolled_back() {
    if !may_mount("in_place::failed_in_place_write_is_rolled_back") || !can_trace() {
        return;
    }
    let mounted = MountedMemory::new();
    let fleet = &mounted.scene.fleet;
    let before = mounted.read_memory();
    let (said, failed) = mounted.reset_with_failing_call("ftruncate", 1, false);
    assert_eq!(failed, 1);
    assert!(
        said.contains("cannot truncate") && said.contains("the memory is unchanged"),
        "{said}"
    );
    assert_eq!(mounted.read_memory(), before);
    assert!(mounted.is_archived());
    assert!(
        fleet.leftovers("scout").is_empty(),
        "{:?}",
        fleet.leftovers("scout")
    );
    assert!(fleet.pending_journals().is_empty());
    mounted.check_next_reset().unwrap();
    drop(mounted.mount);
}

#[test]
fn failed_rollback_is_left_to_the_next_run() {
    let name = "in_place::failed_rollback_is_left_to_the_next_run";
    if !may_mount(name) || !can_trace() {
        return;
    }
    let mounted = MountedMemory::new();
    let (said, failed) = mounted.reset_with_failing_call("ftruncate", 1, true);
    assert_eq!(failed, 2, "one write, one restore");
    assert!(said.contains("half written"), "{said}");
    mounted.assert_left_to_next_run();
    drop(mounted.mount);
}

#[test]
fn unsynced_in_place_write_is_left_to_the_next_run() {
    let name = "in_place::unsynced_in_place_write_is_left_to_the_next_run";
    if !may_mount(name) || !can_trace() {
        return;
    }
    let points = changing_calls();
    let cut = points.iter().position(|call| call.name == "ftruncate");
    let mut behind = points[cut.unwrap()..].iter();
    let sync = behind.find(|call| call.name == "fsync").unwrap();
    let mounted = MountedMemory::new();
    let (said, _) = mounted.reset_with_failing_call("fsync", sync.occurrence, false);
    assert!(said.contains("may not be on the disk"), "{said}");
    assert_eq!(mounted.read_memory(), BASELINE.as_bytes());
    mounted.assert_left_to_next_run();
    drop(mounted.mount);
}

#[test]
fn note_in_half_written_memory_is_archived() {
    let name = "in_place::note_in_half_written_memory_is_archived";
    if !may_mount(name) || !can_trace() {
        return;
    }
    let mounted = MountedMemory::new();
    let fleet = &mounted.scene.fleet;
    mounted.reset_with_failing_call("ftruncate", 1, true);
    fleet.append_note("scout", "- since then\n");
    mounted.check_next_reset().unwrap();
    let entries = fleet.entries("scout");
    let late = entries
        .values()
        .any(|bytes| bytes.ends_with(b"- since then\n"));
    assert!(late, "{:?}", entries.keys());
    drop(mounted.mount);
}

#[test]
fn kill_of_in_place_recovery_is_recovered() {
    let name = "in_place::kill_of_in_place_recovery_is_recovered";
    if !may_mount(name) || !can_trace() {
        return;
    }
    let half_written = || {
        let mounted = MountedMemory::new();
        mounted.reset_with_failing_call("ftruncate", 1, true);
        mounted
    };
    let mounted = half_written();
    let (_, mut points) =
        strace::record_calls(&mounted.scene.fleet, &mounted.scene.trace_log, RESET);
    points.retain(SystemCall::changes);
    let chosen = sample_if_quick(&points, 15);
    let mut failures = Vec::new();
    for point in &chosen {
        let mounted = half_written();
        kill(&mounted.scene, point, RESET);
        if let Err(why) = mounted.check_next_reset() {
            failures.push(format!("killed at {}: {why}", point.text));
        }
    }
    println!(
        "in place, half written: killed at {} of {} points",
        chosen.len(),
        points.len()
    );
    assert_no_failures("in place, half written", &failures);
}
