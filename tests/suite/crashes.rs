//! Runs that end at any point, as by a power cut, and what the next run makes
//! of what they left: nothing is lost, nothing is claimed that is not so, no
//! litter stays.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memory_shepherd::engine::{Engine, Operation, Outcome, UndoMode, UndoTarget};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{FailureCause, Transport, TransportError};

use super::world::{BASELINE, Interposer, Moment, Ran, World, apply};

fn disk(world: &World, exchanges: bool) -> Arc<dyn Transport> {
    match exchanges {
        true => Arc::new(LocalTransport::new(world.clock.clone())),
        false => Arc::new(LocalTransport::without_kernel_features(world.clock.clone())),
    }
}

/// Ends the run at the `point`th moment, without running any of its code but
/// destructors, which only close descriptors.
fn crash_at(transport: Arc<dyn Transport>, point: usize) -> Arc<dyn Transport> {
    let passed = AtomicUsize::new(0);
    Interposer::new(transport, move |_| {
        if passed.fetch_add(1, Ordering::Relaxed) == point {
            resume_unwind(Box::new("crash"));
        }
        Ok(())
    })
}

/// Ends the run at this moment.
fn crash_on(transport: Arc<dyn Transport>, when: Moment) -> Arc<dyn Transport> {
    Interposer::new(transport, move |moment| {
        if moment == when {
            resume_unwind(Box::new("crash"));
        }
        Ok(())
    })
}

/// Whether the run came to its end.
fn survives(run: impl FnOnce() -> Ran) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_ok()
}

fn undo(world: &World, engine: &Engine) -> Ran {
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    assert!(world.pending().is_empty());
    apply(engine, &plan)
}

#[track_caller]
fn is_tidy(world: &World) {
    assert!(
        world.litter("scout").is_empty(),
        "{:?}",
        world.litter("scout")
    );
    assert!(world.pending().is_empty(), "{:?}", world.pending());
}

fn changes(world: &World) -> Vec<Operation> {
    let records = world.records().into_iter();
    records
        .filter(|r| r.event.has_changed_memory())
        .map(|r| r.event.operation)
        .collect()
}

/// What stands there, if anything does.
fn memory(world: &World) -> Option<Vec<u8>> {
    fs::read(world.memory("scout")).ok()
}

/// Crashes a reset at every moment in turn; gives the number of moments.
fn sweep(exchanges: bool, text: Option<&str>, writes_on: bool) -> usize {
    for point in 0.. {
        let world = World::new(&["scout"]);
        if let Some(text) = text {
            world.write("scout", text);
        }
        let engine = world.engine_on(crash_at(disk(&world, exchanges), point));
        if survives(|| world.reset_by(&engine)) {
            return point;
        }
        let stands = memory(&world);
        let old = text.map(|text| text.as_bytes().to_vec());
        let new = Some(BASELINE.as_bytes().to_vec());
        assert!(
            stands == old || stands == new,
            "wholly old or new at {point}"
        );
        if writes_on && stands.is_some() {
            let mut file = fs::File::options().append(true).open(world.memory("scout"));
            file.as_mut()
                .unwrap()
                .write_all(b"- after the crash\n")
                .unwrap();
        }
        let ran = world.reset_by(&world.engine_on(disk(&world, exchanges)));
        assert_eq!(ran.report.worst_kind(), None, "{:?}", ran.lines);
        assert_eq!(world.read("scout"), BASELINE.as_bytes());
        is_tidy(&world);
        if writes_on && stands.is_some() {
            assert!(world.holds("scout", b"- after the crash\n"));
        }
        if let Some(text) = text {
            let below = text.strip_prefix(BASELINE).unwrap_or(text);
            assert!(world.holds("scout", below.as_bytes()), "lost at {point}");
        }
        if !writes_on {
            // However it went, it was one reset, and it can be undone.
            assert_eq!(changes(&world), [Operation::Reset], "at {point}");
            world.undo("scout", UndoMode::Refuse).ok();
            assert_eq!(memory(&world), old);
            is_tidy(&world);
        }
    }
    unreachable!()
}

#[test]
fn a_reset_that_crashes_anywhere_is_put_right_by_the_next() {
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
                points += sweep(exchanges, text, writes_on);
            }
        }
    }
    println!("{points} points");
    assert!(points > 150, "{points}");
}

#[test]
fn a_recovery_that_crashes_anywhere_is_put_right_by_the_next() {
    let text = format!("{BASELINE}- note\n");
    let mut tried = 0;
    for exchanges in [true, false] {
        for first in 0.. {
            let mut more = false;
            // Every third, each time another one: all pairs take long.
            for second in (first % 3..).step_by(3) {
                let world = World::new(&["scout"]);
                world.write("scout", &text);
                let run = |point| {
                    let engine = world.engine_on(crash_at(disk(&world, exchanges), point));
                    survives(|| world.reset_by(&engine))
                };
                if run(first) {
                    break;
                }
                more = true;
                if run(second) {
                    break;
                }
                tried += 1;
                world.reset_by(&world.engine_on(disk(&world, exchanges)));
                assert_eq!(world.read("scout"), BASELINE.as_bytes());
                is_tidy(&world);
                assert_eq!(changes(&world), [Operation::Reset], "at {first}, {second}");
                world.undo("scout", UndoMode::Refuse).ok();
                assert_eq!(world.read("scout"), text.as_bytes());
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
fn an_undo_that_crashes_anywhere_is_put_right_by_the_next_run() {
    let text = format!("{BASELINE}- note\n");
    for existed in [true, false] {
        for exchanges in [true, false] {
            for point in 0.. {
                let world = World::new(&["scout"]);
                if existed {
                    world.write("scout", &text);
                }
                world.reset().ok();
                let engine = world.engine_on(crash_at(disk(&world, exchanges), point));
                if survives(|| undo(&world, &engine)) {
                    assert!(point > 5);
                    break;
                }
                let stands = memory(&world);
                let old = existed.then(|| text.as_bytes().to_vec());
                let new = Some(BASELINE.as_bytes().to_vec());
                assert!(
                    stands == old || stands == new,
                    "wholly old or new at {point}"
                );
                world.reset();
                assert_eq!(world.read("scout"), BASELINE.as_bytes());
                is_tidy(&world);
                assert!(!existed || world.holds("scout", b"- note\n"));
            }
        }
    }
}

#[test]
fn an_odd_object_and_a_crash_leave_nothing_behind() {
    for point in 0.. {
        let world = World::new(&["scout"]);
        symlink("/etc/passwd", world.memory("scout")).unwrap();
        let engine = world.engine_on(crash_at(world.local(), point));
        if survives(|| world.reset_by(&engine)) {
            assert!(point > 5);
            break;
        }
        world.reset();
        assert_eq!(world.read("scout"), BASELINE.as_bytes());
        is_tidy(&world);
    }
}

#[test]
fn taken_away_and_not_linked_is_finished() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let transport = disk(&world, false);
    let engine = world.engine_on(crash_on(transport, Moment::Before("swap")));
    assert!(!survives(|| world.reset_by(&engine)));
    // What the first half of a swap without exchange does.
    let [staged] = world.litter("scout").try_into().unwrap();
    let aside = world.folder("scout").join(format!("{staged}{staged}"));
    fs::rename(world.memory("scout"), aside).unwrap();
    let ran = world.reset();
    ran.ended(Outcome::Unchanged);
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    is_tidy(&world);
    let records = world.records();
    assert_eq!(changes(&world), [Operation::Reset]);
    assert!(
        records[0]
            .event
            .note
            .as_ref()
            .unwrap()
            .contains("finished since")
    );
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(world.read("scout").ends_with(b"- note\n"));
}

#[test]
fn what_the_agent_put_in_a_place_left_empty_is_kept() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let transport = disk(&world, false);
    let engine = world.engine_on(crash_on(transport, Moment::Before("swap")));
    assert!(!survives(|| world.reset_by(&engine)));
    let [staged] = world.litter("scout").try_into().unwrap();
    let aside = world.folder("scout").join(format!("{staged}{staged}"));
    fs::rename(world.memory("scout"), aside).unwrap();
    world.write("scout", "re-seeded");
    world.reset().ok();
    is_tidy(&world);
    assert!(world.holds("scout", b"re-seeded"));
    assert!(world.holds("scout", b"- note\n"));
}

#[test]
fn notes_below_the_baseline_are_no_proof_of_a_swap() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::Before("stage")));
    assert!(!survives(|| world.reset_by(&engine)));
    world.reset().ok();
    let records = world.records();
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
fn a_blocked_agent_is_still_put_right() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::After("swap")));
    assert!(!survives(|| world.reset_by(&engine)));
    fs::remove_file(world.baseline("scout")).unwrap();
    let ran = world.reset();
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
    is_tidy(&world);
    assert_eq!(changes(&world), [Operation::Reset]);
}

#[test]
fn the_record_of_a_folder_that_is_gone_waits_for_it() {
    let world = World::new(&["scout", "other"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::After("swap")));
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
    assert!(!survives(|| apply(&engine, &plan)));
    let away = world.root.join("away");
    fs::rename(world.folder("scout"), &away).unwrap();
    world.write_scratch("other", "- other\n");
    let ran = world.reset();
    let result = ran.of("scout");
    assert_eq!(result.outcome, Outcome::Failed);
    let note = result.note.as_ref().unwrap();
    assert!(note.contains("cannot open the directory"), "{note}");
    assert_eq!(ran.of("other").outcome, Outcome::Ok);
    let says = |text: &str| ran.lines.iter().any(|line| line.contains(text));
    assert!(
        says("stays until that directory is back"),
        "{:?}",
        ran.lines
    );
    assert_eq!(world.pending().len(), 1);
    fs::rename(&away, world.folder("scout")).unwrap();
    assert_eq!(world.reset().report.worst_kind(), None);
    is_tidy(&world);
    assert!(world.holds("scout", b"- note\n"));
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(world.read("scout").ends_with(b"- note\n"));
}

#[test]
fn another_folder_at_the_path_is_not_taken_for_the_one_of_the_record() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::After("swap")));
    assert!(!survives(|| world.reset_by(&engine)));
    let away = world.root.join("away");
    fs::rename(world.folder("scout"), &away).unwrap();
    fs::create_dir(world.folder("scout")).unwrap();
    world.write_scratch("scout", "- elsewhere\n");
    let ran = world.reset();
    assert_eq!(ran.ended(Outcome::Ok).kind, None);
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Partial));
    let [trouble] = ran.report.errors.as_slice() else {
        panic!("{:?}", ran.report.errors)
    };
    assert!(trouble.message().contains("another directory"), "{trouble}");
    assert_eq!(world.pending().len(), 1);
    fs::remove_dir_all(world.folder("scout")).unwrap();
    fs::rename(&away, world.folder("scout")).unwrap();
    assert_eq!(world.reset().report.worst_kind(), None);
    is_tidy(&world);
}

#[test]
fn a_save_by_rename_is_no_proof_of_a_swap() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::Before("stage")));
    assert!(!survives(|| world.reset_by(&engine)));
    let saved = world.root.join("saved");
    fs::write(&saved, format!("{BASELINE}- note\n- more\n")).unwrap();
    fs::rename(&saved, world.memory("scout")).unwrap();
    world.reset().ok();
    let records = world.records();
    assert_eq!(records[0].event.outcome, Outcome::Failed);
    assert_eq!(changes(&world), [Operation::Reset]);
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(world.read("scout").ends_with(b"- note\n- more\n"));
}

#[test]
fn a_reset_whose_displaced_file_is_settled_counts_whatever_the_agent_does() {
    for torn in [false, true] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let engine = world.engine_on(crash_on(world.local(), Moment::After("settle")));
        assert!(!survives(|| world.reset_by(&engine)));
        if torn {
            let [record] = world.pending().try_into().unwrap();
            let record = world.archive().join(".shepherd/tx").join(record);
            let mut file = fs::File::options().append(true).open(record).unwrap();
            file.write_all(b"\n{\"late\":{\"pa").unwrap();
        }
        world.write("scout", BASELINE.replace("kind", "cruel"));
        world.reset().ok();
        assert_eq!(changes(&world), [Operation::Reset, Operation::Reset]);
        is_tidy(&world);
        world.undo("scout", UndoMode::Refuse).ok();
        assert!(world.read("scout").starts_with(b"# Rules\n\n- be cruel"));
        world.undo("scout", UndoMode::Refuse).ok();
        assert!(world.read("scout").ends_with(b"---\n- note\n"));
    }
}

#[test]
fn a_late_write_that_was_archived_before_the_crash_is_what_undo_restores() {
    for point in [Moment::After("settle"), Moment::After("swap")] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let memory = world.memory("scout");
        let late = Interposer::new(world.local(), move |moment| {
            if moment == Moment::Before("swap") {
                let mut file = fs::File::options().append(true).open(&memory).unwrap();
                file.write_all(b"- late\n").unwrap();
            }
            Ok(())
        });
        let engine = world.engine_on(crash_on(late, point));
        assert!(!survives(|| world.reset_by(&engine)));
        world.reset().ended(Outcome::Unchanged);
        is_tidy(&world);
        assert_eq!(world.entries("scout").len(), 2);
        assert_eq!(world.records()[0].event.late_entries.len(), 1);
        world.undo("scout", UndoMode::Refuse).ok();
        assert!(world.read("scout").ends_with(b"---\n- note\n- late\n"));
    }
}

#[test]
fn a_recovery_that_looked_remembers_what_it_saw() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::After("swap")));
    assert!(!survives(|| world.reset_by(&engine)));
    // A kill right behind the swap: the record does not say that it was made.
    let [record] = world.pending().try_into().unwrap();
    let record = world.archive().join(".shepherd/tx").join(record);
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.lines().next().unwrap()).unwrap();
    let engine = world.engine_on(crash_on(world.local(), Moment::After("settle")));
    assert!(!survives(|| world.reset_by(&engine)));
    world.write("scout", "mine");
    world.reset().ok();
    assert_eq!(changes(&world), [Operation::Reset, Operation::Reset]);
}

#[test]
fn a_damaged_transaction_record_is_an_integrity_error_and_touches_nothing() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::After("stage")));
    assert!(!survives(|| world.reset_by(&engine)));
    let [record] = world.pending().try_into().unwrap();
    let record = world.archive().join(".shepherd/tx").join(record);
    fs::write(&record, "no rec\nord").unwrap();
    let litter = world.litter("scout");
    let ran = world.reset();
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Integrity));
    assert_eq!(world.litter("scout"), litter);
    assert!(world.read("scout").ends_with(b"- note\n"));
    assert!(record.exists());
}

/// Nothing is done in an agent's folder before the record is whole on the disk.
#[test]
fn a_record_that_a_power_cut_left_unfinished_is_of_no_account() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::Before("stage")));
    assert!(!survives(|| world.reset_by(&engine)));
    let [record] = world.pending().try_into().unwrap();
    let record = world.archive().join(".shepherd/tx").join(record);
    let whole = fs::read(&record).unwrap();
    for length in [0, 1, whole.len() / 2, whole.len() - 2] {
        fs::write(&record, &whole[..length]).unwrap();
        world.write_scratch("scout", "- note\n");
        world.reset().ok();
        is_tidy(&world);
    }
}

#[test]
fn a_record_of_another_agent_is_not_taken_for_ones_own() {
    let world = World::new(&["scout", "scout-2"]);
    world.write_scratch("scout-2", "- note\n");
    world.write_scratch("scout", "");
    let engine = world.engine_on(crash_on(world.local(), Moment::After("stage")));
    let names = ["scout-2".to_string()];
    let plan = engine.plan_reset(&names, false).unwrap();
    assert!(!survives(|| apply(&engine, &plan)));
    let engine = world.engine();
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
    apply(&engine, &plan);
    assert_eq!(world.pending().len(), 1);
    world.reset();
    assert!(world.pending().is_empty());
}

/// Failures, other than crashes, at each operation: the memory is wholly old or
/// new, and said to be.
#[test]
fn a_failing_operation_is_reported_and_loses_nothing() {
    for name in ["look", "read", "stage", "swap", "settle"] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- note\n");
        let mut failed = false;
        let transport = Interposer::new(world.local(), move |moment| {
            if moment == Moment::Before(name) && !std::mem::replace(&mut failed, true) {
                let error = Error::new(ErrorKind::Host, "no space left on device");
                return Err(TransportError::new(FailureCause::Refused, error));
            }
            Ok(())
        });
        let ran = world.reset_by(&world.engine_on(transport));
        assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Host), "{name}");
        assert!(
            ran.note().contains("no space left on device"),
            "{name}: {}",
            ran.note()
        );
        let done = ran.report.results[0].outcome == Outcome::Ok;
        assert_eq!(done, name == "settle");
        assert_eq!(done, world.read("scout") == BASELINE.as_bytes(), "{name}");
        world.reset();
        assert!(world.holds("scout", b"- note\n"));
        assert_eq!(changes(&world), [Operation::Reset], "{name}");
        is_tidy(&world);
    }
}

#[test]
fn an_unfinished_file_is_removed_and_not_archived() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let engine = world.engine_on(crash_on(world.local(), Moment::Before("stage")));
    assert!(!survives(|| world.reset_by(&engine)));
    // What a crash leaves where there are no nameless files.
    let [record] = world.pending().try_into().unwrap();
    let staged = record
        .strip_prefix("scout")
        .unwrap()
        .strip_suffix(".json")
        .unwrap();
    let unfinished = world.folder("scout").join(format!("{staged}-new"));
    fs::write(unfinished, "# Rul").unwrap();
    world.reset().ok();
    is_tidy(&world);
    assert_eq!(world.entries("scout").len(), 1, "it is the same memory");
}
