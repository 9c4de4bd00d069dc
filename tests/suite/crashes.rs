//! Runs that end at any point, as by a power cut, and the next run's recovery: no byte
//! is lost, no record claims something false, and no leftover remains.

mod failures;
mod journals;

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory_shepherd::engine::{Engine, LedgerRecord, Operation, Outcome, UndoMode, UndoTarget};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{FailureCause, Transport, TransportError};

use super::engine::make_fifo;
use super::world::{
    BASELINE, InterposingTransport, RunOutput, TransportCall, World, apply_plan, sorted_names,
};

fn local_transport(world: &World, exchanges: bool) -> LocalTransport {
    match exchanges {
        true => LocalTransport::new(world.clock.clone()),
        false => LocalTransport::without_kernel_features(world.clock.clone()),
    }
}

/// Ends the run at its `point`th moment. Only destructors run after that, and they only
/// close file descriptors.
fn crash_at_call(transport: LocalTransport, point: usize) -> Arc<dyn Transport> {
    let passed = AtomicUsize::new(0);
    InterposingTransport::new(transport, move |_| {
        if passed.fetch_add(1, Ordering::Relaxed) == point {
            resume_unwind(Box::new("crash"));
        }
        Ok(())
    })
}

/// Ends the run at this moment.
fn crash_on_call(transport: LocalTransport, when: TransportCall) -> Arc<dyn Transport> {
    InterposingTransport::new(transport, move |moment| {
        if moment == when {
            resume_unwind(Box::new("crash"));
        }
        Ok(())
    })
}

/// Returns whether the run completed.
fn runs_to_end(run: impl FnOnce() -> RunOutput) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_ok()
}

/// Crashes a reset at this call.
fn crash_reset(world: &World, call: TransportCall) {
    let engine = world.engine_with_transport(crash_on_call(world.disk(), call));
    assert!(!runs_to_end(|| world.reset_with_engine(&engine)));
}

/// Returns a world after a crash between the halves of a swap without exchange: the memory is moved
/// away and its path is empty.
fn world_with_half_swap() -> World {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let transport = local_transport(&world, false);
    let engine =
        world.engine_with_transport(crash_on_call(transport, TransportCall::Before("swap")));
    assert!(!runs_to_end(|| world.reset_with_engine(&engine)));
    let [staged] = world.leftovers("scout").try_into().unwrap();
    let aside = world
        .agent_directory("scout")
        .join(format!("{staged}{staged}"));
    fs::rename(world.memory_path("scout"), aside).unwrap();
    world
}

/// Returns the path of the only pending journal.
fn only_journal(world: &World) -> PathBuf {
    let [journal] = world.pending_journals().try_into().unwrap();
    world.archive_directory().join(".shepherd/tx").join(journal)
}

fn undo_scout(world: &World, engine: &Engine) -> RunOutput {
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    assert!(world.pending_journals().is_empty());
    apply_plan(engine, &plan)
}

#[track_caller]
fn assert_no_leftovers(world: &World) {
    assert!(
        world.leftovers("scout").is_empty(),
        "{:?}",
        world.leftovers("scout")
    );
    assert!(
        world.pending_journals().is_empty(),
        "{:?}",
        world.pending_journals()
    );
}

fn changing_operations(world: &World) -> Vec<Operation> {
    let records = world.read_records().into_iter();
    records
        .filter(|r| r.event.has_changed_memory())
        .map(|r| r.event.operation)
        .collect()
}

/// Returns the content of the path, `None` where it is absent.
fn read_memory_if_any(world: &World) -> Option<Vec<u8>> {
    fs::read(world.memory_path("scout")).ok()
}

/// Crashes a reset at every moment in turn; returns the number of moments.
fn crash_at_every_call(exchanges: bool, text: Option<&str>, writes_on: bool) -> usize {
    for point in 0.. {
        let world = World::new(&["scout"]);
        if let Some(text) = text {
            world.write_memory("scout", text);
        }
        let engine =
            world.engine_with_transport(crash_at_call(local_transport(&world, exchanges), point));
        if runs_to_end(|| world.reset_with_engine(&engine)) {
            return point;
        }
        let stands = read_memory_if_any(&world);
        let old = text.map(|text| text.as_bytes().to_vec());
        let new = Some(BASELINE.as_bytes().to_vec());
        assert!(
            stands == old || stands == new,
            "wholly old or new at {point}"
        );
        if writes_on && stands.is_some() {
            let mut file = fs::File::options()
                .append(true)
                .open(world.memory_path("scout"));
            file.as_mut()
                .unwrap()
                .write_all(b"- after the crash\n")
                .unwrap();
        }
        let ran = world.reset_with_engine(
            &world.engine_with_transport(Arc::new(local_transport(&world, exchanges))),
        );
        assert_eq!(ran.report.worst_kind(), None, "{:?}", ran.lines);
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
        assert_no_leftovers(&world);
        if writes_on && stands.is_some() {
            assert!(world.preserves("scout", b"- after the crash\n"));
        }
        if let Some(text) = text {
            let below = text.strip_prefix(BASELINE).unwrap_or(text);
            assert!(
                world.preserves("scout", below.as_bytes()),
                "lost at {point}"
            );
        }
        if !writes_on {
            // In every case it was one reset, and it can be undone.
            assert_eq!(
                changing_operations(&world),
                [Operation::Reset],
                "at {point}"
            );
            world.undo("scout", UndoMode::Refuse).assert_ok();
            assert_eq!(read_memory_if_any(&world), old);
            assert_no_leftovers(&world);
        }
    }
    unreachable!()
}

#[test]
fn reset_crash_at_any_point_is_recovered() {
    let scratch = format!("{BASELINE}- note\n");
    let drift = scratch.replace("kind", "cruel");
    let mut points = 0;
    for exchanges in [true, false] {
        for writes_on in [false, true] {
            for text in [
                Some(scratch.as_str()),
                Some(&drift),
                Some("nothing"),
                Some(""),
                None,
            ] {
                points += crash_at_every_call(exchanges, text, writes_on);
            }
        }
    }
    println!("{points} points");
    assert!(points > 150, "{points}");
}

#[test]
fn recovery_crash_at_any_point_is_recovered() {
    let text = format!("{BASELINE}- note\n");
    let mut tried = 0;
    for exchanges in [true, false] {
        for first in 0.. {
            let mut more = false;
            // Every third moment, offset each time: all pairs take too long.
            for second in (first % 3..).step_by(3) {
                let world = World::new(&["scout"]);
                world.write_memory("scout", &text);
                let run = |point| {
                    let engine = world.engine_with_transport(crash_at_call(
                        local_transport(&world, exchanges),
                        point,
                    ));
                    runs_to_end(|| world.reset_with_engine(&engine))
                };
                if run(first) {
                    break;
                }
                more = true;
                if run(second) {
                    break;
                }
                tried += 1;
                world.reset_with_engine(
                    &world.engine_with_transport(Arc::new(local_transport(&world, exchanges))),
                );
                assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
                assert_no_leftovers(&world);
                assert_eq!(
                    changing_operations(&world),
                    [Operation::Reset],
                    "at {first}, {second}"
                );
                world.undo("scout", UndoMode::Refuse).assert_ok();
                assert_eq!(world.read_memory("scout"), text.as_bytes());
            }
            if !more {
                break;
            }
        }
    }
    println!("{tried} pairs of points");
    assert!(tried > 100, "{tried}");
}

#[test]
fn undo_crash_at_any_point_is_recovered() {
    let text = format!("{BASELINE}- note\n");
    for existed in [true, false] {
        for exchanges in [true, false] {
            for point in 0.. {
                let world = World::new(&["scout"]);
                if existed {
                    world.write_memory("scout", &text);
                }
                world.reset().assert_ok();
                let engine = world.engine_with_transport(crash_at_call(
                    local_transport(&world, exchanges),
                    point,
                ));
                if runs_to_end(|| undo_scout(&world, &engine)) {
                    assert!(point > 5);
                    break;
                }
                let stands = read_memory_if_any(&world);
                let old = existed.then(|| text.as_bytes().to_vec());
                let new = Some(BASELINE.as_bytes().to_vec());
                assert!(
                    stands == old || stands == new,
                    "wholly old or new at {point}"
                );
                world.reset();
                assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
                assert_no_leftovers(&world);
                assert!(!existed || world.preserves("scout", b"- note\n"));
            }
        }
    }
}

#[test]
fn special_file_reset_crash_leaves_nothing_behind() {
    for point in 0.. {
        let world = World::new(&["scout"]);
        symlink("/etc/passwd", world.memory_path("scout")).unwrap();
        let engine = world.engine_with_transport(crash_at_call(world.disk(), point));
        if runs_to_end(|| world.reset_with_engine(&engine)) {
            assert!(point > 5);
            break;
        }
        world.reset();
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
        assert_no_leftovers(&world);
    }
}

#[test]
fn unlinked_swap_is_finished_by_recovery() {
    let world = world_with_half_swap();
    let ran = world.reset();
    ran.assert_outcome(Outcome::Unchanged);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert_no_leftovers(&world);
    let records = world.read_records();
    assert_eq!(changing_operations(&world), [Operation::Reset]);
    assert!(
        records[0]
            .event
            .note
            .as_ref()
            .unwrap()
            .contains("finished since")
    );
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
}

#[test]
fn file_written_into_emptied_path_is_archived() {
    let world = world_with_half_swap();
    world.write_memory("scout", "re-seeded");
    world.reset().assert_ok();
    assert_no_leftovers(&world);
    assert!(world.preserves("scout", b"re-seeded"));
    assert!(world.preserves("scout", b"- note\n"));
}

#[test]
fn untouched_memory_is_not_counted_as_swapped() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    crash_reset(&world, TransportCall::Before("stage"));
    world.reset().assert_ok();
    let records = world.read_records();
    assert_eq!(records[0].event.outcome, Outcome::Failed);
    assert_eq!(records[0].event.after, None);
    assert!(
        records[0]
            .event
            .note
            .as_ref()
            .unwrap()
            .contains("before the memory was replaced")
    );
}

#[test]
fn blocked_agent_is_still_recovered() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    crash_reset(&world, TransportCall::After("swap"));
    fs::remove_file(world.baseline_path("scout")).unwrap();
    let ran = world.reset();
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert_no_leftovers(&world);
    assert_eq!(changing_operations(&world), [Operation::Reset]);
}

#[test]
fn save_by_rename_is_not_counted_as_swap() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    crash_reset(&world, TransportCall::Before("stage"));
    let saved = world.root.join("saved");
    fs::write(&saved, format!("{BASELINE}- note\n- more\n")).unwrap();
    fs::rename(&saved, world.memory_path("scout")).unwrap();
    world.reset().assert_ok();
    let records = world.read_records();
    assert_eq!(records[0].event.outcome, Outcome::Failed);
    assert_eq!(changing_operations(&world), [Operation::Reset]);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"- note\n- more\n"));
}

#[test]
fn settled_reset_counts_despite_later_edits() {
    for torn in [false, true] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        crash_reset(&world, TransportCall::After("settle"));
        if torn {
            let journal = only_journal(&world);
            let mut file = fs::File::options().append(true).open(journal).unwrap();
            file.write_all(b"\n{\"late\":{\"pa").unwrap();
        }
        world.write_memory("scout", BASELINE.replace("kind", "cruel"));
        world.reset().assert_ok();
        assert_eq!(
            changing_operations(&world),
            [Operation::Reset, Operation::Reset]
        );
        assert_no_leftovers(&world);
        world.undo("scout", UndoMode::Refuse).assert_ok();
        assert!(
            world
                .read_memory("scout")
                .starts_with(b"# Rules\n\n- be cruel")
        );
        // The memory holds the edit that the agent made after the first run.
        world.undo("scout", UndoMode::Overwrite).assert_ok();
        assert!(world.read_memory("scout").ends_with(b"---\n- note\n"));
    }
}

#[test]
fn undo_restores_late_write_archived_before_crash() {
    for point in [TransportCall::After("settle"), TransportCall::After("swap")] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let memory = world.memory_path("scout");
        let transport = InterposingTransport::new(world.disk(), move |moment| {
            if moment == TransportCall::Before("swap") {
                let mut file = fs::File::options().append(true).open(&memory).unwrap();
                file.write_all(b"- late\n").unwrap();
            }
            if moment == point {
                resume_unwind(Box::new("crash"));
            }
            Ok(())
        });
        let engine = world.engine_with_transport(transport);
        assert!(!runs_to_end(|| world.reset_with_engine(&engine)));
        world.reset().assert_outcome(Outcome::Unchanged);
        assert_no_leftovers(&world);
        assert_eq!(world.entry_names("scout").len(), 2);
        assert_eq!(world.read_records()[0].event.late_entries.len(), 1);
        world.undo("scout", UndoMode::Refuse).assert_ok();
        assert!(
            world
                .read_memory("scout")
                .ends_with(b"---\n- note\n- late\n")
        );
    }
}

#[test]
fn unfinished_staged_file_is_removed_not_archived() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    crash_reset(&world, TransportCall::Before("stage"));
    // The leftover of a crash where the file system has no nameless files.
    let [record] = world.pending_journals().try_into().unwrap();
    let staged = record
        .strip_prefix("scout")
        .unwrap()
        .strip_suffix(".json")
        .unwrap();
    let unfinished = world.agent_directory("scout").join(format!("{staged}-new"));
    fs::write(unfinished, "# Rul").unwrap();
    world.reset().assert_ok();
    assert_no_leftovers(&world);
    assert_eq!(
        world.entry_names("scout").len(),
        1,
        "the same memory was archived twice"
    );
}
