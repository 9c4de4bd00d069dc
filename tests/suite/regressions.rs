//! Regression tests, one per bug.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{Outcome, UndoMode};
use memory_shepherd::transport::{FailureCause, TransportError};

use super::contract::{DiskFixture, TransportFixture, commit_staged, stage_file};
use super::world::{BASELINE, InterposingTransport, TransportCall, World};

/// A file that an agent puts in place of the staged one does not pass for it.
#[test]
fn file_replacing_staged_one_is_not_swapped_in() {
    for exchanges in [true, false] {
        let fixture = DiskFixture::new(exchanges);
        fixture.write("MEMORY.md", b"old");
        let directory = fixture.open_directory();
        stage_file(directory.as_ref(), b"new");
        fixture.replace_staged_before_swap(Some(b"evil rules"));
        let error = commit_staged(directory.as_ref()).unwrap_err();
        assert_eq!(error.cause, FailureCause::Replaced, "{error}");
    }
}

#[test]
fn undo_uses_separator_of_its_run() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let before = world.read_memory("scout");
    world.reset().assert_outcome(Outcome::Ok);
    let world = world.with_general("separator = ===");
    world
        .undo("scout", UndoMode::Refuse)
        .assert_outcome(Outcome::Ok);
    assert_eq!(world.read_memory("scout"), before);
}

#[test]
fn clock_behind_ledger_deletes_nothing() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let old = world.reset().assert_ok().entries[0].path.clone();
    world.clock.advance(Duration::from_secs(86400 * 365));
    world.write_scratch("scout", "- newer\n");
    world.reset().assert_outcome(Outcome::Ok);
    let behind = world.engine_with_start_clock();
    world.write_scratch("scout", "- newest\n");
    let ran = world.reset_with_engine(&behind);
    assert!(ran.report.retired_entries.is_empty(), "{:?}", ran.lines);
    assert!(world.archive_directory().join(old).exists());
    // The run notes it without a failure: the operator cannot act before that time.
    assert_eq!(ran.report.worst_kind(), None);
    let told = |line: &String| line.contains("which has not come yet");
    assert!(ran.lines.iter().any(told), "{:?}", ran.lines);
}

#[test]
fn unrecorded_unchanged_run_fails_with_integrity() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    world.reset().assert_outcome(Outcome::Unchanged);
    let ledger = world.archive_directory().join(".shepherd/ledger.jsonl");
    let record = fs::read(&ledger).unwrap();
    fs::write(&ledger, record.repeat(2)).unwrap();
    let ran = world.reset();
    assert_eq!(
        ran.report.worst_kind(),
        Some(ErrorKind::Integrity),
        "{:?}",
        ran.lines
    );
}

#[test]
fn failed_remote_agents_do_not_stop_retention() {
    let mut world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let old = world.reset().assert_ok().entries[0].path.clone();
    world.add_agent(
        "far",
        "memory_file =\nremote_host = far.example\nremote_memory = /m/MEMORY.md",
    );
    world.set_baseline("far", BASELINE);
    world.clock.advance(Duration::from_secs(86400 * 363));
    world.reset();
    world.clock.advance(Duration::from_secs(86400 * 2));
    let entry = fs::File::options()
        .write(true)
        .open(world.archive_directory().join(&old))
        .unwrap();
    entry.set_modified(std::time::UNIX_EPOCH).unwrap();
    world.write_scratch("scout", "- newer\n");
    let ran = world.reset();
    assert_eq!(ran.report.retired_entries, [old], "{:?}", ran.lines);
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host));
}

#[test]
fn dangling_seal_symlink_is_integrity_error() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    symlink("nowhere", world.root.join("baselines/.checksums")).unwrap();
    let ran = world.reset();
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Integrity)
    );
}

/// A memory that is readable but not replaceable fails in every run; one entry of it is
/// enough.
#[test]
fn repeatedly_failing_reset_archives_once() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let fails = || {
        let immutable = |moment| match moment {
            TransportCall::Before("swap") => Err(TransportError::new(
                FailureCause::Refused,
                Error::new(ErrorKind::Host, "operation not permitted"),
            )),
            _ => Ok(()),
        };
        world.engine_with_transport(InterposingTransport::new(world.disk(), immutable))
    };
    world
        .reset_with_engine(&fails())
        .assert_outcome(Outcome::Failed);
    world.clock.advance(Duration::from_secs(3 * 3600));
    world
        .reset_with_engine(&fails())
        .assert_outcome(Outcome::Failed);
    assert_eq!(world.entry_names("scout").len(), 1);
    // Other notes are other bytes.
    world.write_scratch("scout", "- note\n- another\n");
    world
        .reset_with_engine(&fails())
        .assert_outcome(Outcome::Failed);
    assert_eq!(world.entry_names("scout").len(), 2);
    world.reset().assert_outcome(Outcome::Ok);
    world
        .undo("scout", UndoMode::Refuse)
        .assert_outcome(Outcome::Ok);
    assert!(world.read_memory("scout").ends_with(b"- another\n"));
}

/// A process inherits copies of all descriptors until it executes its program; a lock
/// must not survive in them.
#[test]
fn released_lock_is_free_while_processes_start() {
    let world = World::new(&["scout"]);
    let engine = world.engine();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = std::process::Command::new("true").status();
            }
        });
        let busy = (0..2000)
            .filter(|_| engine.locks().hold_agent_lock("scout").is_err())
            .count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(busy, 0, "the lock outlived its holder");
    });
}

/// Another run may append a record between the reads of clock and ledger.
#[test]
fn record_written_meanwhile_is_not_a_slow_clock() {
    let world = Arc::new(World::new(&["scout"]));
    let clock = Arc::new(RecordingClock {
        world: Arc::clone(&world),
        armed: AtomicBool::new(false),
    });
    let engine = world.engine_with_clock(clock.clone(), world.local_transport());
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    clock.armed.store(true, Ordering::SeqCst);
    engine.retention().expired_entries().unwrap();
    assert!(
        !clock.armed.load(Ordering::SeqCst),
        "the clock was not read"
    );
}

/// A clock during whose first call another run appends a record.
struct RecordingClock {
    world: Arc<World>,
    armed: AtomicBool,
}

impl Clock for RecordingClock {
    fn now(&self) -> DateTime<FixedOffset> {
        let now = self.world.clock.now();
        if self.armed.swap(false, Ordering::SeqCst) {
            self.world.clock.advance(Duration::from_millis(1));
            self.world.write_scratch("scout", "- more\n");
            self.world.reset().assert_ok();
        }
        now
    }

    fn instant(&self) -> Instant {
        self.world.clock.instant()
    }

    fn sleep(&self, duration: Duration) {
        self.world.clock.sleep(duration);
    }
}
