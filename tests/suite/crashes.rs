//! Runs that end at any point, as by a power cut, and the next run's recovery: no byte
//! is lost, no record claims something false, and no leftover remains.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{
    Engine, InterruptedTurn, LedgerRecord, Operation, Outcome, UndoMode, UndoTarget,
};
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
pub fn crash_at_call(transport: LocalTransport, point: usize) -> Arc<dyn Transport> {
    let passed = AtomicUsize::new(0);
    InterposingTransport::new(transport, move |_| {
        if passed.fetch_add(1, Ordering::Relaxed) == point {
            resume_unwind(Box::new("crash"));
        }
        Ok(())
    })
}

/// Ends the run at this moment.
pub fn crash_on_call(transport: LocalTransport, when: TransportCall) -> Arc<dyn Transport> {
    InterposingTransport::new(transport, move |moment| {
        if moment == when {
            resume_unwind(Box::new("crash"));
        }
        Ok(())
    })
}

/// Returns whether the run completed.
pub fn runs_to_end(run: impl FnOnce() -> RunOutput) -> bool {
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
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
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

/// Recovers the interrupted runs of scout, and returns the turns that had replaced its memory.
fn recover_interrupted_turns(world: &World) -> Vec<InterruptedTurn> {
    let names = ["scout".to_string()];
    let cancel = AtomicBool::new(false);
    let engine = world.engine();
    let recovered = engine
        .runs()
        .recover_interrupted_turns(&names, &cancel, &mut |_| {});
    recovered.unwrap().into_result().unwrap()
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
                let ran = world.reset_with_engine(
                    &world.engine_with_transport(Arc::new(local_transport(&world, exchanges))),
                );
                assert_eq!(ran.report.worst_kind(), None, "{:?}", ran.lines);
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
        world.replace_recorded_file("scout", |path| symlink("/etc/passwd", path).unwrap());
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
fn crashed_undo_of_a_link_is_recovered() {
    for exchanges in [true, false] {
        for point in 0.. {
            let world = World::new(&["scout"]);
            world.replace_recorded_file("scout", |path| symlink("AGENTS.md", path).unwrap());
            world.reset().assert_ok();
            let transport = crash_at_call(local_transport(&world, exchanges), point);
            let engine = world.engine_with_transport(transport);
            if runs_to_end(|| undo_scout(&world, &engine)) {
                assert!(point > 5);
                break;
            }
            // The next run recovers it, whatever it does then.
            world.reset();
            assert_eq!(world.read_memory("scout"), BASELINE.as_bytes(), "{point}");
            assert_no_leftovers(&world);
        }
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
    assert_eq!(records[0].event.change.after, None);
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
fn journal_of_missing_directory_waits_for_it() {
    let world = World::new(&["scout", "other"]);
    world.write_scratch("scout", "- note\n");
    let engine =
        world.engine_with_transport(crash_on_call(world.disk(), TransportCall::After("swap")));
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    assert!(!runs_to_end(|| apply_plan(&engine, &plan)));
    let away = world.root.join("away");
    fs::rename(world.agent_directory("scout"), &away).unwrap();
    world.write_scratch("other", "- other\n");
    let ran = world.reset();
    let result = ran.result_of("scout");
    assert_eq!(result.outcome, Outcome::Failed);
    let note = result.note.as_ref().unwrap();
    assert!(note.contains("cannot open the directory"), "{note}");
    assert_eq!(ran.result_of("other").outcome, Outcome::Ok);
    let says = |text: &str| ran.lines.iter().any(|line| line.contains(text));
    assert!(
        says("stays until that directory is back"),
        "{:?}",
        ran.lines
    );
    assert_eq!(world.pending_journals().len(), 1);
    fs::rename(&away, world.agent_directory("scout")).unwrap();
    assert_eq!(world.reset().report.worst_kind(), None);
    assert_no_leftovers(&world);
    assert!(world.preserves("scout", b"- note\n"));
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
}

#[test]
fn journal_of_replaced_directory_is_not_applied() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    crash_reset(&world, TransportCall::After("swap"));
    let away = world.root.join("away");
    fs::rename(world.agent_directory("scout"), &away).unwrap();
    fs::create_dir(world.agent_directory("scout")).unwrap();
    world.write_scratch("scout", "- elsewhere\n");
    let ran = world.reset();
    assert_eq!(ran.assert_outcome(Outcome::Ok).kind, None);
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Partial));
    let [trouble] = ran.report.errors.as_slice() else {
        panic!("{:?}", ran.report.errors)
    };
    assert!(trouble.message().contains("another directory"), "{trouble}");
    assert_eq!(world.pending_journals().len(), 1);
    fs::remove_dir_all(world.agent_directory("scout")).unwrap();
    fs::rename(&away, world.agent_directory("scout")).unwrap();
    assert_eq!(world.reset().report.worst_kind(), None);
    assert_no_leftovers(&world);
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
        assert_eq!(world.read_records()[0].event.change.late_entries.len(), 1);
        world.undo("scout", UndoMode::Refuse).assert_ok();
        assert!(
            world
                .read_memory("scout")
                .ends_with(b"---\n- note\n- late\n")
        );
    }
}

#[test]
fn interrupted_turn_is_reported_once() {
    let names = ["scout".to_string()];
    for (call, is_replaced) in [
        (TransportCall::Before("swap"), false),
        (TransportCall::After("swap"), true),
        (TransportCall::After("settle"), true),
    ] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        crash_reset(&world, call);
        let unrecorded = world.engine().runs().unrecorded_turns(&names).unwrap();
        assert_eq!(unrecorded.len(), 1);
        let found = recover_interrupted_turns(&world);
        assert_eq!(found.len(), usize::from(is_replaced));
        for turn in found {
            assert_eq!(turn, unrecorded[0]);
            assert_eq!(turn.operation, Operation::Reset);
        }
        assert_no_leftovers(&world);
        assert!(
            world
                .engine()
                .runs()
                .unrecorded_turns(&names)
                .unwrap()
                .is_empty()
        );
        assert!(recover_interrupted_turns(&world).is_empty());
    }
}

/// The journal of a run that a writer outlasted is no sign of a kill.
#[test]
fn settled_late_file_is_no_interrupted_turn() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory_path("scout");
    let writer = fs::File::options().append(true).open(memory).unwrap();
    world.reset().assert_ok();
    assert_eq!(world.pending_journals().len(), 1);
    drop(writer);
    assert!(recover_interrupted_turns(&world).is_empty());
    assert_no_leftovers(&world);
}

#[test]
fn recovery_journals_its_observations() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    crash_reset(&world, TransportCall::After("swap"));
    // A kill right after the swap: the record does not mention the swap.
    let journal = only_journal(&world);
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.lines().next().unwrap()).unwrap();
    crash_reset(&world, TransportCall::After("settle"));
    world.write_memory("scout", "mine");
    world.reset().assert_ok();
    assert_eq!(
        changing_operations(&world),
        [Operation::Reset, Operation::Reset]
    );
}

#[test]
fn damaged_journal_is_integrity_error() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    crash_reset(&world, TransportCall::After("stage"));
    let journal = only_journal(&world);
    fs::write(&journal, "no rec\nord").unwrap();
    let litter = world.leftovers("scout");
    let ran = world.reset();
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Integrity)
    );
    assert_eq!(world.leftovers("scout"), litter);
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
    assert!(journal.exists());
}

/// No operation in an agent's directory precedes the complete record on the disk.
#[test]
fn truncated_journal_is_ignored() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    crash_reset(&world, TransportCall::Before("stage"));
    let journal = only_journal(&world);
    let whole = fs::read(&journal).unwrap();
    for length in [0, 1, whole.len() / 2, whole.len() - 2] {
        fs::write(&journal, &whole[..length]).unwrap();
        world.write_scratch("scout", "- note\n");
        world.reset().assert_ok();
        assert_no_leftovers(&world);
    }
}

/// The displaced file may have notes that the journal no longer names.
#[test]
fn truncated_journal_of_swapped_run_is_an_error() {
    for length in [0, 1] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        crash_reset(&world, TransportCall::After("swap"));
        let leftovers = world.leftovers("scout");
        let journal = only_journal(&world);
        let whole = fs::read(&journal).unwrap();
        fs::write(&journal, &whole[..length]).unwrap();
        let ran = world.reset();
        assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Integrity));
        assert_eq!(world.leftovers("scout"), leftovers);
        assert!(journal.exists());
    }
}

#[test]
fn journal_that_is_no_file_is_an_integrity_error() {
    for kind in ["directory", "symlink", "socket", "FIFO"] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        crash_reset(&world, TransportCall::Before("stage"));
        let journal = only_journal(&world);
        fs::remove_file(&journal).unwrap();
        match kind {
            "directory" => fs::create_dir(&journal).unwrap(),
            "symlink" => symlink("/etc/passwd", &journal).unwrap(),
            "socket" => drop(UnixListener::bind(&journal).unwrap()),
            _ => make_fifo(&journal),
        }
        let ran = world.reset();
        let refused = &ran.report.results[0];
        assert_eq!(refused.kind, Some(ErrorKind::Integrity), "{kind}");
        let note = refused.note.as_deref().unwrap();
        assert!(note.contains("not a regular file; move it away"), "{note}");
    }
}

#[test]
fn journal_of_other_agent_is_not_claimed() {
    let world = World::new(&["scout", "scout-2"]);
    world.write_scratch("scout-2", "- note\n");
    world.write_scratch("scout", "");
    let engine =
        world.engine_with_transport(crash_on_call(world.disk(), TransportCall::After("stage")));
    let names = ["scout-2".to_string()];
    let plan = engine.planner().plan_reset(&names, false).unwrap();
    assert!(!runs_to_end(|| apply_plan(&engine, &plan)));
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    apply_plan(&engine, &plan);
    assert_eq!(world.pending_journals().len(), 1);
    world.reset();
    assert!(world.pending_journals().is_empty());
}

/// Failures, other than crashes, at each operation: the memory is wholly old or wholly
/// new, and the result says which.
#[test]
fn failed_operation_is_reported_and_loses_nothing() {
    for name in ["look", "read", "stage", "swap", "settle"] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let mut failed = false;
        let transport = InterposingTransport::new(world.disk(), move |moment| {
            if moment == TransportCall::Before(name) && !std::mem::replace(&mut failed, true) {
                let error = Error::new(ErrorKind::Host, "no space left on device");
                return Err(TransportError::new(FailureCause::Refused, error));
            }
            Ok(())
        });
        let ran = world.reset_with_engine(&world.engine_with_transport(transport));
        assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host), "{name}");
        assert!(
            ran.note().contains("no space left on device"),
            "{name}: {}",
            ran.note()
        );
        let done = ran.report.results[0].outcome == Outcome::Ok;
        assert_eq!(done, name == "settle");
        assert_eq!(
            done,
            world.read_memory("scout") == BASELINE.as_bytes(),
            "{name}"
        );
        world.reset();
        assert!(world.preserves("scout", b"- note\n"));
        assert_eq!(changing_operations(&world), [Operation::Reset], "{name}");
        assert_no_leftovers(&world);
    }
}

/// Fails each stage for which the space of another agent's displaced file is not free yet.
fn disk_with_space_for_one(world: &World) -> Arc<InterposingTransport> {
    let mut is_occupied = false;
    InterposingTransport::new(world.disk(), move |moment| {
        match moment {
            TransportCall::Before("stage") if is_occupied => {
                let error = Error::new(ErrorKind::Host, "no space left on device");
                let error = error.with_full_disk(true);
                return Err(TransportError::new(FailureCause::Refused, error));
            }
            TransportCall::After("stage") => is_occupied = true,
            TransportCall::After("settle") => is_occupied = false,
            _ => {}
        }
        Ok(())
    })
}

#[test]
fn full_disk_beside_other_agents_is_tried_again() {
    let agents = ["scout", "ranger", "writer"];
    let world = World::new(&agents);
    for agent in agents {
        world.write_scratch(agent, format!("- note of {agent}\n"));
    }
    let transport = disk_with_space_for_one(&world);
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert_eq!(ran.report.worst_kind(), None, "{:?}", ran.lines);
    assert_eq!(ran.report.count(Outcome::Ok), 3);
    let is_retry = |line: &&String| line.contains("it is tried again alone");
    assert_eq!(
        ran.lines.iter().filter(is_retry).count(),
        2,
        "{:?}",
        ran.lines
    );
    for agent in agents {
        assert_eq!(world.read_memory(agent), BASELINE.as_bytes());
        // The second attempt has not archived it again.
        assert_eq!(world.entry_names(agent).len(), 1);
        assert!(world.preserves(agent, format!("- note of {agent}\n").as_bytes()));
        assert!(world.leftovers(agent).is_empty());
    }
    assert_eq!(changing_operations(&world), [Operation::Reset; 3]);
    assert_no_leftovers(&world);
}

/// Fails the first call at `moment`, after `act`.
fn fail_once_at(
    world: &World,
    moment: TransportCall,
    cause: FailureCause,
    mut act: impl FnMut() + Send + 'static,
) -> Engine {
    let mut has_failed = false;
    world.engine_with_transport(InterposingTransport::new(world.disk(), move |call| {
        if call == moment && !std::mem::replace(&mut has_failed, true) {
            act();
            let error = Error::new(ErrorKind::Host, "the step failed");
            return Err(TransportError::new(cause, error));
        }
        Ok(())
    }))
}

#[test]
fn turn_finished_by_own_recovery_is_ok() {
    for cause in [FailureCause::Refused, FailureCause::Unreachable] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- first note\n");
        world.reset().assert_ok();
        world.write_scratch("scout", "- second note\n");
        let second = world.read_memory("scout");
        world.reset().assert_ok();
        let engine = fail_once_at(&world, TransportCall::After("swap"), cause, || {});
        let ran = undo_scout(&world, &engine);
        ran.assert_ok();
        assert!(ran.note().contains("the step failed"), "{}", ran.note());
        assert!(ran.note().contains("finished since"), "{}", ran.note());
        assert!(ran.report.errors.is_empty(), "{:?}", ran.report.errors);
        assert_eq!(world.read_memory("scout"), second);
        assert_no_leftovers(&world);
        let records = world.read_records();
        let recorded = |record: &&LedgerRecord| record.event.run == ran.report.run;
        assert_eq!(records.iter().filter(recorded).count(), 1, "{records:?}");
        world.redo("scout").assert_ok();
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    }
}

#[test]
fn finished_turn_with_other_memory_is_partial() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let memory = world.memory_path("scout");
    let moment = TransportCall::After("swap");
    let engine = fail_once_at(&world, moment, FailureCause::Unreachable, move || {
        fs::write(&memory, "re-seeded").unwrap();
    });
    let ran = world.reset_with_engine(&engine);
    let result = ran.assert_outcome(Outcome::Ok);
    assert_eq!(result.kind, Some(ErrorKind::Partial));
    assert!(ran.note().contains("has changed the memory since"));
    assert_eq!(world.read_memory("scout"), b"re-seeded");
    assert_eq!(changing_operations(&world), [Operation::Reset]);
    assert!(world.preserves("scout", b"- note\n"));
}

#[test]
fn unrecovered_turn_says_memory_may_be_absent() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let mut is_lost = false;
    let transport = InterposingTransport::new(world.disk(), move |call| {
        is_lost |= call == TransportCall::Before("swap");
        if is_lost {
            let error = Error::new(ErrorKind::Host, "the connection was lost");
            return Err(TransportError::new(FailureCause::Unreachable, error));
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    let hints = &ran.assert_outcome(Outcome::Failed).hints;
    let expected = "the memory may be absent until the next run, which recovers it";
    assert_eq!(*hints, [expected]);
    world.reset().assert_ok();
    assert_no_leftovers(&world);
}

#[test]
fn unlockable_ledger_leaves_memories_unchanged() {
    let world = World::new(&["scout"]);
    world.reset().assert_outcome(Outcome::Ok);
    world.write_scratch("scout", "- note\n");
    let lock = world
        .archive_directory()
        .join(".shepherd/locks/.ledger.lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    let ran = world.reset();
    assert!(ran.report.worst_kind().is_some());
    assert!(world.read_memory("scout").ends_with(b"- note\n"));
    assert_eq!(world.leftovers("scout"), [""; 0]);
    fs::remove_dir(&lock).unwrap();
    world.reset().assert_ok();
}

#[test]
fn run_whose_lock_was_removed_replaces_nothing() {
    let world = World::new(&["a", "b"]);
    world.reset().assert_outcome(Outcome::Ok);
    for agent in ["a", "b"] {
        world.write_scratch(agent, "- note\n");
    }
    let lock = world.archive_directory().join(".shepherd/locks/a.lock");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("claim") {
            let _ = fs::remove_file(&lock);
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert_eq!(ran.result_of("b").outcome, Outcome::Ok);
    let refused = ran.result_of("a");
    assert_eq!(refused.kind, Some(ErrorKind::Busy));
    assert!(
        refused
            .note
            .as_ref()
            .unwrap()
            .contains("a.lock was removed or replaced")
    );
    assert!(world.read_memory("a").ends_with(b"- note\n"));
    assert_no_leftovers(&world);
    world.reset().assert_ok();
    assert!(world.preserves("a", b"- note\n"));
}

/// Resets two agents; at this moment another directory takes the place of the archive, or none.
fn reset_with_moved_archive(at: TransportCall, is_replaced: bool) {
    let world = World::new(&["a", "b"]);
    world.reset().assert_outcome(Outcome::Ok);
    for agent in ["a", "b"] {
        world.write_scratch(agent, "- note\n");
    }
    let archive = world.archive_directory();
    let moved = archive.with_file_name("moved");
    let (from, to) = (archive.clone(), moved.clone());
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == at && !to.exists() {
            fs::rename(&from, &to).unwrap();
            if is_replaced {
                fs::create_dir(&from).unwrap();
            }
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert_eq!(ran.report.count(Outcome::Ok), 0, "{at:?}");
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host), "{at:?}");
    assert_eq!(ran.report.ledger_head, None, "{at:?}");
    assert_eq!(archive.exists(), is_replaced, "{at:?}");
    if is_replaced {
        assert_eq!(sorted_names(&archive), [""; 0], "{at:?}");
        fs::remove_dir(&archive).unwrap();
    }
    fs::rename(&moved, &archive).unwrap();
    world.reset();
    for agent in ["a", "b"] {
        assert_eq!(world.read_memory(agent), BASELINE.as_bytes(), "{at:?}");
        assert!(world.preserves(agent, b"- note\n"), "{at:?}");
        assert_eq!(world.leftovers(agent), [""; 0], "{at:?}");
        assert_eq!(world.pending_journals(), [""; 0], "{at:?}");
        let target = UndoTarget::Agents(vec![agent.to_string()]);
        world
            .undo_target(&target, UndoMode::Refuse)
            .assert_outcome(Outcome::Ok);
        assert!(world.read_memory(agent).ends_with(b"- note\n"), "{at:?}");
    }
}

#[test]
fn archive_moved_during_a_run_fails_the_run() {
    let moments = [
        TransportCall::After("stage"),
        TransportCall::Before("link"),
        TransportCall::After("swap"),
        TransportCall::After("settle"),
    ];
    for moment in moments {
        reset_with_moved_archive(moment, false);
        reset_with_moved_archive(moment, true);
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
