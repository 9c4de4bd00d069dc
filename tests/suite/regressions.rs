//! Bugs that were found, each a test.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, FixedOffset};
use memory_shepherd::clock::Clock;
use memory_shepherd::engine::{Outcome, UndoMode};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::{FailureCause, TransportError};

use super::contract::{Ground, NEW, OnDisk};
use super::world::{BASELINE, Interposer, Moment, World};

/// An agent that puts a file of its own where the new one was built must not
/// have it taken for the new one.
#[test]
fn a_file_put_over_the_staged_one_is_not_taken_for_it() {
    for exchanges in [true, false] {
        let ground = OnDisk::new(exchanges);
        ground.write("MEMORY.md", b"old");
        let folder = ground.open();
        let attributes = folder.inherited_attributes(NEW).unwrap();
        let staged = folder.stage(NEW, &mut |sink| sink(b"new"), &attributes);
        let new = staged.unwrap();
        folder.link_staged(NEW).unwrap();
        ground.write("theirs", b"evil rules");
        let path = |name| ground.folder().join(name);
        fs::rename(path("theirs"), path(NEW)).unwrap();
        let error = folder.swap(NEW, new).unwrap_err();
        assert_eq!(error.cause, FailureCause::Replaced, "{error}");
    }
}

#[test]
fn undo_goes_by_the_separator_of_that_time() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let before = world.read("scout");
    world.reset().ended(Outcome::Ok);
    let world = world.general("separator = ===");
    world.undo("scout", UndoMode::Refuse).ended(Outcome::Ok);
    assert_eq!(world.read("scout"), before);
}

#[test]
fn a_run_whose_clock_is_behind_the_ledger_deletes_nothing() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let old = world.reset().ok().entries[0].path.clone();
    world.clock.advance(Duration::from_secs(86400 * 365));
    world.write_scratch("scout", "- newer\n");
    world.reset().ended(Outcome::Ok);
    let behind = world.with_clock_at_start();
    world.write_scratch("scout", "- newest\n");
    let ran = world.reset_by(&behind);
    assert!(ran.report.retired_entries.is_empty(), "{:?}", ran.lines);
    assert!(world.archive().join(old).exists());
    // It says so, and is no failure: nobody can see to it before the time has come.
    assert_eq!(ran.report.worst_kind(), None);
    let told = |line: &String| line.contains("which has not come yet");
    assert!(ran.lines.iter().any(told), "{:?}", ran.lines);
}

#[test]
fn what_cannot_be_recorded_is_no_success_even_when_nothing_was_to_be_done() {
    let world = World::new(&["scout"]);
    world.write("scout", BASELINE);
    world.reset().ended(Outcome::Unchanged);
    let ledger = world.archive().join(".shepherd/ledger.jsonl");
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
fn agents_on_other_hosts_do_not_keep_retention_from_its_work() {
    let mut world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let old = world.reset().ok().entries[0].path.clone();
    world.add(
        "far",
        "memory_file =\nremote_host = far.example\nremote_memory = /m/MEMORY.md",
    );
    world.set_baseline("far", BASELINE);
    world.clock.advance(Duration::from_secs(86400 * 363));
    world.reset();
    world.clock.advance(Duration::from_secs(86400 * 2));
    let entry = fs::File::options()
        .write(true)
        .open(world.archive().join(&old))
        .unwrap();
    entry.set_modified(std::time::UNIX_EPOCH).unwrap();
    world.write_scratch("scout", "- newer\n");
    let ran = world.reset();
    assert_eq!(ran.report.retired_entries, [old], "{:?}", ran.lines);
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host));
}

#[test]
fn a_seal_that_is_a_link_to_nowhere_is_not_no_seal() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    symlink("nowhere", world.root.join("baselines/.checksums")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Integrity));
}

/// A memory that can be read and not be replaced fails at every run; one entry of
/// it is enough.
#[test]
fn a_reset_that_keeps_failing_archives_once() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let fails = || {
        let immutable = |moment| match moment {
            Moment::Before("swap") => Err(TransportError::new(
                FailureCause::Refused,
                Error::new(ErrorKind::Host, "operation not permitted"),
            )),
            _ => Ok(()),
        };
        world.engine_on(Interposer::new(world.local(), immutable))
    };
    world.reset_by(&fails()).ended(Outcome::Failed);
    world.clock.advance(Duration::from_secs(3 * 3600));
    world.reset_by(&fails()).ended(Outcome::Failed);
    assert_eq!(world.entries("scout").len(), 1);
    // Other notes are other bytes.
    world.write_scratch("scout", "- note\n- another\n");
    world.reset_by(&fails()).ended(Outcome::Failed);
    assert_eq!(world.entries("scout").len(), 2);
    world.reset().ended(Outcome::Ok);
    world.undo("scout", UndoMode::Refuse).ended(Outcome::Ok);
    assert!(world.read("scout").ends_with(b"- another\n"));
}

/// A process that is being started has copies of all descriptors until it
/// becomes another program; a lock must not live on in them.
#[test]
fn a_lock_that_is_given_back_is_free_although_processes_are_started() {
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
            .filter(|_| engine.hold_agent_lock("scout").is_err())
            .count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(busy, 0, "the lock outlived its holder");
    });
}

/// Another run may record something between the look at the clock and the look
/// at the ledger.
#[test]
fn what_another_run_records_meanwhile_is_no_clock_that_is_behind() {
    let world = Arc::new(World::new(&["scout"]));
    let clock = Arc::new(Meddling {
        world: Arc::clone(&world),
        armed: AtomicBool::new(false),
    });
    let engine = world.engine_of(clock.clone(), world.local());
    world.write_scratch("scout", "- note\n");
    world.reset().ok();
    clock.armed.store(true, Ordering::SeqCst);
    engine.expired_entries().unwrap();
    assert!(
        !clock.armed.load(Ordering::SeqCst),
        "nobody asked for the time"
    );
}

/// A clock behind whose back, once, another run records something.
struct Meddling {
    world: Arc<World>,
    armed: AtomicBool,
}

impl Clock for Meddling {
    fn now(&self) -> DateTime<FixedOffset> {
        let now = self.world.clock.now();
        if self.armed.swap(false, Ordering::SeqCst) {
            self.world.clock.advance(Duration::from_millis(1));
            self.world.write_scratch("scout", "- more\n");
            self.world.reset().ok();
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
