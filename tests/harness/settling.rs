//! The instant between the last check of a displaced file and its removal: bytes written to it then
//! exist only behind an open descriptor, and the run archives them from there. The tests stop the
//! program in that instant, so they do not depend on timing.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use memory_shepherd::base::clock::{Clock, SystemClock};

use super::earlier::insert_earlier_run;
use super::fixture::{BASELINE, is_root};
use super::processes::wait_for;
use super::scene::{InitialMemory, RESET_ALL, Scene};
use super::strace::{self, SteppedProgram, SystemCall, can_trace};
use crate::skip::skip_unsupported;

const LATE_LINE: &[u8] = b"- late\n";

fn scene_with_note() -> Scene {
    Scene::new(&[("scout", InitialMemory::scratch("- note\n"))])
}

/// Stops a reset behind its last call before it removes the displaced file, and returns that file's
/// path. `options` apply to the run.
fn stop_before_removal(
    scene: &Scene,
    again: &Scene,
    options: &[String],
) -> (SteppedProgram, PathBuf) {
    let calls = strace::record_calls_with(&again.fleet, &again.trace_log, options, RESET_ALL).1;
    let removes = |call: &SystemCall| call.name == "unlinkat" && call.text.contains(".shepherd-");
    let removal = calls.iter().position(removes).unwrap();
    let last = &calls[removal - 1];
    let stop = format!(
        "--inject={}:signal=STOP:when={}",
        last.name, last.occurrence
    );
    let stop_options = [options, &[stop]].concat();
    let mut run = SteppedProgram::start(&scene.fleet, &stop_options, RESET_ALL);
    run.wait_for_stop().expect("the program stops there");
    let displaced = scene.fleet.leftovers("scout");
    assert_eq!(displaced.len(), 1, "{displaced:?}");
    (
        run,
        scene.fleet.agent_directory("scout").join(&displaced[0]),
    )
}

#[track_caller]
fn run_to_end(mut run: SteppedProgram) {
    run.resume();
    assert_eq!(run.wait_for_stop(), None);
}

fn append_late(displaced: &Path) {
    let mut file = File::options().append(true).open(displaced).unwrap();
    file.write_all(LATE_LINE).unwrap();
}

/// Asserts that the late bytes have an entry of their own.
#[track_caller]
fn assert_late_line_archived(scene: &mut Scene) {
    scene.record_late_write("scout", LATE_LINE);
    scene.check_settled().unwrap();
    let records = scene.records();
    let late = records[0]["late"].as_array().unwrap();
    assert_eq!(late.len(), 1, "{records:#?}");
    scene.check_undo().unwrap();
}

/// Returns whether a process waits for the end of a lease on this file. Such a process counts as
/// one that has the file open already.
fn is_lease_awaited(inode: u64) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let file = format!(":{inode} ");
    locks
        .lines()
        .any(|lock| lock.contains("BREAKING") && lock.contains(&file))
}

#[test]
fn write_by_opener_during_removal_is_archived() {
    if !can_trace() {
        return;
    }
    let mut scene = scene_with_note();
    let (run, displaced) = stop_before_removal(&scene, &scene_with_note(), &[]);
    let inode = fs::metadata(&displaced).unwrap().ino();
    let writer = thread::spawn(move || append_late(&displaced));
    wait_for("the writer to wait", || is_lease_awaited(inode));
    run_to_end(run);
    writer.join().unwrap();
    assert_late_line_archived(&mut scene);
}

#[test]
fn write_without_leases_during_removal_is_archived() {
    if !can_trace() {
        return;
    }
    // Both requests for a lease fail, as where the program may not take leases.
    let lease = |options: &[String], number: usize| {
        let again = scene_with_note();
        let calls = strace::record_calls_with(&again.fleet, &again.trace_log, options, RESET_ALL).1;
        let mut leases = calls.iter().filter(|it| it.text.contains("F_SETLEASE"));
        leases.nth(number).unwrap().occurrence
    };
    let refuse = |when: String| format!("--inject=fcntl:error=EINVAL:when={when}");
    let first = lease(&[], 0);
    let second = lease(&[refuse(first.to_string())], 1);
    let refused = refuse(format!("{first}..{second}+{}", second - first));
    let mut scene = scene_with_note();
    let (run, displaced) = stop_before_removal(&scene, &scene_with_note(), &[refused]);
    append_late(&displaced);
    run_to_end(run);
    assert_late_line_archived(&mut scene);
}

/// A second name of another user's file is neither read nor removed: when its other name is
/// deleted, it is the last one.
#[test]
fn last_name_of_foreign_file_is_not_removed() {
    if !is_root() {
        skip_unsupported("needs root, for files of another user");
        return;
    }
    let scene = Scene::new(&[("scout", InitialMemory::Missing)]);
    let other = scene.fleet.root.join("other");
    fs::write(&other, LATE_LINE).unwrap();
    fs::hard_link(&other, scene.fleet.memory_path("scout")).unwrap();
    let ended = scene.fleet.run(RESET_ALL);
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(scene.read_memory("scout").unwrap(), BASELINE.as_bytes());
    let [kept] = scene.fleet.leftovers("scout").try_into().unwrap();
    fs::remove_file(other).unwrap();
    scene.fleet.run(RESET_ALL);
    let kept = scene.fleet.agent_directory("scout").join(kept);
    assert_eq!(fs::read(&kept).unwrap(), LATE_LINE);
    let status = scene.fleet.run(&["status", "scout", "--json"]);
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(said.contains(kept.to_str().unwrap()), "{said}");
}

#[test]
fn unreadable_displaced_file_does_not_block_resets() {
    let scene = scene_with_note();
    let memory = scene.fleet.memory_path("scout");
    let writer = File::options().append(true).open(&memory).unwrap();
    scene.run_ok(RESET_ALL);
    let displaced = scene.fleet.leftovers("scout");
    assert_eq!(displaced.len(), 1, "a writer has it open");
    // The run does not read that much.
    writer.set_len(17 << 30).unwrap();
    drop(writer);
    let old = scene.fleet.root.join("archives/scout/2020-01-01_0000.md");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
    let entry = File::create(&old).unwrap();
    entry.set_modified(long_ago).unwrap();
    insert_earlier_run(&scene.fleet.archive, "scout", SystemClock.now(), 2);
    for round in 0..2 {
        fs::write(&memory, format!("{BASELINE}- later {round}\n")).unwrap();
        let ended = scene.fleet.run(RESET_ALL);
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(said.contains("cannot settle"), "{said}");
        assert_eq!(fs::read_to_string(&memory).unwrap(), BASELINE, "{said}");
        assert_eq!(scene.fleet.leftovers("scout"), displaced);
    }
    assert!(!old.exists(), "retention deletes the old entry");
    let entries = scene.fleet.entries("scout");
    let later = |entry: &[u8]| entry.windows(7).any(|it| it == b"later 1");
    assert!(entries.values().any(|entry| later(entry)));
}
