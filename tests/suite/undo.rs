//! Undo: exact bytes, owner and mode, or a clear refusal.

mod runs;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::engine::{
    FileState, Operation, Outcome, State, StepAction, UndoMode, UndoTarget,
};
use memory_shepherd::transport::local::LocalTransport;
use memory_shepherd::transport::{FailureCause, SpecialFile, TransportError};
use proptest::prelude::*;

use super::engine::make_fifo;
use super::world::{BASELINE, InterposingTransport, TransportCall, World, apply_plan};
use crate::skip::skip_unsupported;

/// Resets a memory with these bytes, and undoes the reset.
fn assert_reset_and_undo(bytes: &[u8]) {
    let world = World::new(&["scout"]);
    world.write_memory("scout", bytes);
    fs::set_permissions(
        world.memory_path("scout"),
        fs::Permissions::from_mode(0o604),
    )
    .unwrap();
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        chown(world.memory_path("scout"), Some(1234), Some(4321)).unwrap();
    }
    let before = fs::metadata(world.memory_path("scout")).unwrap();
    world.reset().assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), bytes);
    let after = fs::metadata(world.memory_path("scout")).unwrap();
    assert_eq!(before.mode(), after.mode());
    assert_eq!((before.uid(), before.gid()), (after.uid(), after.gid()));
    assert!(world.leftovers("scout").is_empty());
    assert!(world.pending_journals().is_empty());
}

#[test]
fn scratch_drift_and_missing_boundary_are_restored() {
    assert_reset_and_undo(format!("{BASELINE}\n\n- a\r\n\0\n---\nno newline").as_bytes());
    assert_reset_and_undo(BASELINE.replace("kind", "cruel").as_bytes());
    assert_reset_and_undo(b"nothing of the baseline \xff");
    assert_reset_and_undo(b"");
    // The separator line in the form that an editor left.
    assert_reset_and_undo(BASELINE.trim_end().as_bytes());
    assert_reset_and_undo(format!("{}  \r\n- note", BASELINE.trim_end()).as_bytes());
}

#[test]
fn refused_repeated_undo_names_the_undone_run() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let earlier = world.reset().report.run;
    world.write_scratch("scout", "- two\n");
    let last = world.reset().report.run;
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let again = world.undo("scout", UndoMode::Refuse);
    let note = again.assert_outcome(Outcome::Refused).note.clone().unwrap();
    assert!(
        note.starts_with(&format!("run {last} is already undone")),
        "{note}"
    );
    assert!(
        note.ends_with(&format!("written since run {earlier}")),
        "{note}"
    );
    let by_name = world.undo_target(&UndoTarget::Run(earlier), UndoMode::Refuse);
    let note = by_name
        .assert_outcome(Outcome::Refused)
        .note
        .clone()
        .unwrap();
    assert!(!note.contains("already undone"), "{note}");
}

#[test]
fn undo_past_the_last_run_says_so() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let first = world.reset();
    first.assert_ok();
    let noted = |target: UndoTarget| {
        let plan = world
            .engine()
            .planner()
            .plan_undo(&target, UndoMode::Overwrite, false);
        let notes = plan.unwrap().steps[0].notes.join("; ");
        let earlier = &first.report.run;
        notes.contains(&format!("is already undone; this undoes run {earlier}"))
    };
    let undo = || UndoTarget::Agents(vec!["scout".to_string()]);
    world.write_scratch("scout", "- two\n");
    world.reset().assert_ok();
    assert!(!noted(undo()), "the last run");
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(noted(undo()), "the one before it");
    assert!(
        !noted(UndoTarget::Run(first.report.run.clone())),
        "by its name"
    );
    world.redo("scout").assert_ok();
    assert!(!noted(undo()), "the last run, after its redo");
}

#[test]
fn empty_scratch_without_entry_is_restored() {
    let world = World::new(&["scout"]);
    let old = format!("{BASELINE}\n## Scratch Notes\n");
    world.set_baseline("scout", &old);
    // The baseline is pushed once, then the operator changes it.
    world.reset().assert_ok();
    world.set_baseline("scout", BASELINE.replace("kind", "kinder"));
    let ran = world.reset();
    assert!(
        ran.assert_ok().entries.is_empty(),
        "an entry without bytes of the agent's"
    );
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), old.as_bytes());
    // The same where the agent has removed the tail.
    world.write_memory("scout", BASELINE);
    let ran = world.reset();
    assert!(ran.assert_ok().entries.is_empty());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

#[test]
fn undo_of_creation_archives_and_removes() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    let engine = world.engine();
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    assert_eq!(plan.steps[0].action, StepAction::Remove);
    apply_plan(&engine, &plan).assert_ok();
    assert_eq!(world.observe("scout").state, State::Missing);
    assert!(world.leftovers("scout").is_empty());
    let last = world.read_records().pop().unwrap().event;
    assert_eq!(
        (last.operation, last.change.after),
        (Operation::Undo, Some(FileState::Absent))
    );
    // After a redo it is present again.
    world.redo("scout").assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

#[test]
fn undo_of_creation_without_file_is_unchanged() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    let engine = world.engine();
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = || {
        engine
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false)
            .unwrap()
    };
    let with_file = plan();
    fs::remove_file(world.memory_path("scout")).unwrap();
    let reason = format!(
        "no file, as before run {}",
        with_file.steps[0].undone_run.as_ref().unwrap().run
    );
    let without_file = plan();
    assert!(without_file.steps.is_empty());
    let skipped = &without_file.skipped[0];
    assert_eq!((&skipped.reason, skipped.kind), (&reason, None));
    let ran = apply_plan(&engine, &without_file);
    ran.assert_outcome(Outcome::Unchanged);
    assert_eq!(ran.note(), reason);
    // The file may also go between the plan and the run.
    let report = engine
        .runs()
        .apply_plan(&with_file, false, &AtomicBool::new(false), &mut |_| ());
    assert_eq!(report.results[0].outcome, Outcome::Unchanged);
    assert_eq!(report.results[0].note.as_ref(), Some(&reason));
}

#[test]
fn plan_says_that_the_baseline_changed_since_its_push() {
    let world = World::new(&["scout"]);
    world.set_baseline("scout", BASELINE);
    let engine = world.engine();
    let names = ["scout".to_string()];
    let notes = || {
        engine.planner().plan_reset(&names, false).unwrap().steps[0]
            .notes
            .join("; ")
    };
    world.write_scratch("scout", "- one\n");
    assert!(
        !notes().contains("baseline changed"),
        "nothing was pushed yet"
    );
    world.reset().assert_ok();
    world.write_scratch("scout", "- two\n");
    assert!(!notes().contains("baseline changed"));
    world.set_baseline("scout", format!("# One more line\n{BASELINE}"));
    let changed = "baseline changed: +1 -0 lines since it was pushed last";
    assert!(notes().starts_with(changed), "{}", notes());
}

#[test]
fn undo_of_creation_keeps_agent_notes() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.write_scratch("scout", "- mine\n");
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(world.read_memory("scout").ends_with(b"- mine\n"));
    // There is no file to append them to.
    let ran = world.undo("scout", UndoMode::Append);
    let kind = ran.assert_outcome(Outcome::Refused).kind;
    assert_eq!(kind, Some(ErrorKind::Conflict));
    assert!(ran.note().contains("no file before run"), "{}", ran.note());
    assert!(ran.report.results[0].hints[0].starts_with("--overwrite"));
    assert!(world.read_memory("scout").ends_with(b"- mine\n"));
    world.undo("scout", UndoMode::Overwrite).assert_ok();
    assert_eq!(world.observe("scout").state, State::Missing);
    assert!(world.preserves("scout", b"- mine\n"));
}

#[test]
fn repeated_undo_goes_back_and_redo_returns() {
    let world = World::new(&["scout"]);
    let memory = |text: &str| format!("{BASELINE}{text}").into_bytes();
    for note in ["- one\n", "- two\n"] {
        world.write_scratch("scout", note);
        world.reset().assert_ok();
    }
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), memory("- two\n"));
    // The memory holds what the agent wrote after the earlier run.
    assert_asks(&world, &UndoTarget::Agents(vec!["scout".to_string()]));
    world.undo("scout", UndoMode::Overwrite).assert_ok();
    assert_eq!(world.read_memory("scout"), memory("- one\n"));
    // The history has no run before that.
    let ran = world.undo("scout", UndoMode::Refuse);
    ran.assert_outcome(Outcome::Refused);
    let records = world.read_records();
    let undone = format!(
        "nothing to undo: its last reset {} is already undone by run {}",
        records[1].event.run, records[2].event.run
    );
    assert_eq!(ran.note(), undone);
    world.redo("scout").assert_ok();
    assert_eq!(world.read_memory("scout"), memory("- two\n"));
    world.redo("scout").assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    world.redo("scout").assert_outcome(Outcome::Refused);
    // And redone once more.
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), memory("- two\n"));
}

#[test]
fn undo_refuses_appends_or_archives_new_notes() {
    let world = World::new(&["scout"]);
    let old = format!("{BASELINE}- old, no newline");
    let start = || {
        world.write_memory("scout", &old);
        world.reset().assert_ok();
        world.write_scratch("scout", "- new\n");
    };
    start();
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(
        ran.note().starts_with("the agent has written since run "),
        "{}",
        ran.note()
    );
    assert!(world.read_memory("scout").ends_with(b"- new\n"));
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Append, false)
        .unwrap();
    let new_size = format!("{old}\n- new\n").len() as u64;
    assert_eq!(plan.steps[0].new_size, new_size);
    world.undo("scout", UndoMode::Append).assert_ok();
    assert_eq!(
        String::from_utf8(world.read_memory("scout")).unwrap(),
        format!("{old}\n- new\n")
    );
    start();
    let ran = world.undo("scout", UndoMode::Overwrite);
    assert_eq!(world.read_memory("scout"), old.as_bytes());
    assert!(
        world
            .read_entry(&ran.assert_ok().entries[0])
            .ends_with(b"\n\n- new\n")
    );
    // A removed memory holds nothing new.
    fs::remove_file(world.memory_path("scout")).unwrap();
    let ran = world.redo("scout");
    assert!(
        ran.note().starts_with("its memory was removed since run "),
        "{}",
        ran.note()
    );
    world.write_memory("scout", &old);
    // That undo can be undone, too.
    world.redo("scout").assert_ok();
    assert_eq!(
        world.read_memory("scout"),
        format!("{BASELINE}- new\n").as_bytes()
    );
}

/// Asserts that an undo is refused because the agent has written since, and says so in its plan.
fn assert_asks(world: &World, target: &UndoTarget) {
    let before = world.read_memory("scout");
    let plan = world
        .engine()
        .planner()
        .plan_undo(target, UndoMode::Refuse, false);
    let step = plan.unwrap().steps.remove(0);
    assert!(step.undone_run.unwrap().has_written_since);
    let ran = world.undo_target(target, UndoMode::Refuse);
    let kind = ran.assert_outcome(Outcome::Refused).kind;
    assert_eq!(kind, Some(ErrorKind::Conflict), "{}", ran.note());
    assert_eq!(world.read_memory("scout"), before);
}

#[test]
fn notes_that_redo_put_back_are_new_notes() {
    for mode in [UndoMode::Append, UndoMode::Overwrite] {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- old\n");
        let run = UndoTarget::Run(world.reset().report.run);
        let last = UndoTarget::Agents(vec!["scout".to_string()]);
        world.write_scratch("scout", "- new\n");
        assert_asks(&world, &run);
        world.undo_target(&run, mode).assert_ok();
        world.redo("scout").assert_ok();
        assert!(world.read_memory("scout").ends_with(b"---\n- new\n"));
        assert_asks(&world, &run);
        assert_asks(&world, &last);
        world.undo_target(&run, UndoMode::Append).assert_ok();
        let both = b"---\n- old\n- new\n";
        assert!(world.read_memory("scout").ends_with(both));
    }
}

#[test]
fn notes_of_undone_later_reset_are_new_notes() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let first = UndoTarget::Run(world.reset().report.run);
    world.write_scratch("scout", "- two\n");
    let second = UndoTarget::Run(world.reset().report.run);
    world.undo_target(&second, UndoMode::Refuse).assert_ok();
    assert_asks(&world, &first);
    // The redo archives the notes again.
    world.redo("scout").assert_ok();
    world.undo_target(&first, UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- one\n"));
    // These are older than the second run.
    world.undo_target(&second, UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- two\n"));
}

#[test]
fn late_write_to_undone_later_reset_is_new_notes() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let first = UndoTarget::Run(world.reset().report.run);
    world.set_baseline("scout", BASELINE.replace("kind", "kinder"));
    let memory = world.memory_path("scout");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("swap") {
            fs::write(&memory, format!("{BASELINE}- late\n")).unwrap();
        }
        Ok(())
    });
    world
        .reset_with_engine(&world.engine_with_transport(transport))
        .assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- late\n"));
    assert_asks(&world, &first);
}

#[test]
fn overwritten_notes_are_no_new_notes() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- older\n");
    let before = UndoTarget::Run(world.reset().report.run);
    world.write_scratch("scout", "- old\n");
    let run = UndoTarget::Run(world.reset().report.run);
    world.write_scratch("scout", "- new\n");
    world.undo_target(&run, UndoMode::Overwrite).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- old\n"));
    let earlier = world
        .engine()
        .planner()
        .plan_undo(&before, UndoMode::Refuse, false);
    let step = earlier.unwrap().steps.remove(0);
    // The memory holds nothing but the notes from before the run, which are new to the earlier one.
    assert!(step.undone_run.unwrap().has_written_since);
}

#[test]
fn append_keeps_notes_of_undone_later_resets() {
    let world = World::new(&["scout"]);
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("scout", note);
        world.reset().assert_ok();
    }
    world.undo("scout", UndoMode::Refuse).assert_ok();
    for restored in ["- two\n- three\n", "- one\n- two\n- three\n"] {
        world
            .undo("scout", UndoMode::Refuse)
            .assert_outcome(Outcome::Refused);
        world.undo("scout", UndoMode::Append).assert_ok();
        let expected = format!("{BASELINE}{restored}");
        assert_eq!(world.read_memory("scout"), expected.as_bytes());
    }
}

#[test]
fn append_without_new_notes_is_plain_undo() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Append).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- old\n"));
    let target = UndoTarget::Redo(vec!["scout".to_string()]);
    world.undo_target(&target, UndoMode::Append).assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

#[test]
fn file_in_place_of_removed_one_is_new_notes() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    // After the removal the agent puts an object there that has no digest.
    symlink("/etc/passwd", world.memory_path("scout")).unwrap();
    let ran = world.redo("scout");
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(world.memory_path("scout").is_symlink());
}

#[test]
fn deleted_or_changed_entry_refuses_undo() {
    let spoilt = |spoil: &dyn Fn(&std::path::Path)| {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- old\n");
        let ran = world.reset();
        spoil(
            &world
                .archive_directory()
                .join(&ran.assert_ok().entries[0].path),
        );
        let undone = world.undo("scout", UndoMode::Refuse);
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
        assert!(
            undone
                .note()
                .starts_with(&format!("run {} cannot be undone: ", ran.report.run))
        );
        (
            undone.report.worst_kind().unwrap(),
            undone.note().to_string(),
        )
    };
    let (kind, note) = spoilt(&|entry| fs::remove_file(entry).unwrap());
    assert_eq!(kind, ErrorKind::Host);
    assert!(note.contains("2026-03-14_0900.md: no such file"), "{note}");
    let (kind, note) = spoilt(&|entry| {
        let text = fs::read_to_string(entry).unwrap();
        fs::write(entry, text.replace("old", "odd")).unwrap();
    });
    assert_eq!(kind, ErrorKind::Integrity);
    assert!(note.contains("does not match the ledger"), "{note}");
    let (kind, note) = spoilt(&|entry| fs::write(entry, "no header").unwrap());
    assert_eq!(kind, ErrorKind::Integrity);
    assert!(note.contains("has no header line"), "{note}");
    let (kind, _) = spoilt(&|entry| {
        fs::remove_file(entry).unwrap();
        symlink("/etc/passwd", entry).unwrap();
    });
    assert_eq!(kind, ErrorKind::Host);
}

#[test]
fn special_file_cannot_be_restored() {
    let world = World::new(&["scout"]);
    world.replace_recorded_file("scout", make_fifo);
    let names = ["scout".to_string()];
    let plan = world.engine().planner().plan_reset(&names, false).unwrap();
    let notes = plan.steps[0].notes.join("; ");
    assert!(notes.contains("which cannot be undone"), "{notes}");
    assert!(world.reset().assert_ok().is_irreversible);
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
    assert!(ran.note().contains("not kept"), "{}", ran.note());
}

#[test]
fn undo_puts_a_link_back_with_its_target() {
    let world = World::new(&["scout"]);
    let memory = world.memory_path("scout");
    let target = OsStr::from_bytes(b"../\xFF \x1b[2J'\n/AGENTS.md");
    world.replace_recorded_file("scout", |path| symlink(target, path).unwrap());
    assert!(!world.reset().assert_ok().is_irreversible);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    for _ in 0..2 {
        let engine = world.engine();
        let target_of_undo = UndoTarget::Agents(vec!["scout".to_string()]);
        let plan = engine
            .planner()
            .plan_undo(&target_of_undo, UndoMode::Refuse, false);
        let plan = plan.unwrap();
        assert_eq!(plan.steps[0].action, StepAction::PutBack);
        apply_plan(&engine, &plan).assert_ok();
        assert_eq!(fs::read_link(&memory).unwrap(), target);
        assert_eq!(world.leftovers("scout"), [""; 0]);
        let last = world.read_records().pop().unwrap().event;
        let link = SpecialFile::Symlink(target.as_bytes().to_vec());
        assert_eq!(last.change.after, Some(FileState::Special(link)));
        world.redo("scout").assert_outcome(Outcome::Ok);
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    }
    // A file that the agent writes over the link is no reason to lose either.
    world.undo("scout", UndoMode::Refuse).assert_ok();
    fs::remove_file(&memory).unwrap();
    world.write_scratch("scout", "- since\n");
    world.reset().assert_ok();
    assert!(world.preserves("scout", b"- since\n"));
}

#[test]
fn link_that_is_put_back_belongs_to_the_agent() {
    let world = World::new(&["scout"]);
    world.replace_recorded_file("scout", |path| symlink("AGENTS.md", path).unwrap());
    world.reset().assert_ok();
    if chown(world.agent_directory("scout"), Some(4711), Some(4712)).is_err() {
        skip_unsupported("only root can give directories away");
        return;
    }
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let link = fs::symlink_metadata(world.memory_path("scout")).unwrap();
    assert_eq!((link.uid(), link.gid()), (4711, 4712));
}

#[test]
fn undo_of_a_link_without_exchange_leaves_nothing() {
    let world = World::new(&["scout"]);
    world.replace_recorded_file("scout", |path| symlink("AGENTS.md", path).unwrap());
    let transport = LocalTransport::without_kernel_features(world.clock.clone());
    let engine = world.engine_with_transport(Arc::new(transport));
    world.reset_with_engine(&engine).assert_ok();
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    apply_plan(&engine, &plan).assert_ok();
    let link = fs::read_link(world.memory_path("scout")).unwrap();
    assert_eq!(link, Path::new("AGENTS.md"));
    assert_eq!(world.leftovers("scout"), [""; 0]);
}

#[test]
fn redo_without_undo_is_skipped_with_reason() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    world.reset().assert_ok();
    let why = |target| {
        let plan = world
            .engine()
            .planner()
            .plan_undo(&target, UndoMode::Refuse, false);
        plan.unwrap().skipped.pop().map(|skipped| skipped.reason)
    };
    let names = || vec!["scout".to_string()];
    let none = "no undo to redo";
    assert_eq!(why(UndoTarget::Redo(names())).as_deref(), Some(none));
    assert_eq!(why(UndoTarget::Agents(names())), None);
}

#[test]
fn undo_works_without_baseline() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    world.reset().assert_ok();
    fs::remove_file(world.baseline_path("scout")).unwrap();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(
        world.read_memory("scout"),
        format!("{BASELINE}- old\n").as_bytes()
    );
}

#[test]
fn undo_restores_late_write() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let memory = world.memory_path("scout");
    let late = format!("{BASELINE}- old\n- late\n");
    let text = late.clone();
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("swap") {
            fs::write(&memory, &text).unwrap();
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    let kinds: Vec<EntryKind> = ran
        .assert_ok()
        .entries
        .iter()
        .map(|entry| entry.kind)
        .collect();
    assert_eq!(kinds, [EntryKind::Scratch, EntryKind::Appended]);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), late.as_bytes());
}

#[test]
fn changed_separator_does_not_block_undo() {
    for scratch in ["- old\n", ""] {
        let mut world = World::new(&["scout"]);
        // Also a version without an entry, which is not the pushed one.
        world.write_scratch("scout", scratch);
        world.reset();
        world.set_baseline("scout", format!("{BASELINE}## More\n\n***\n"));
        world.reset();
        world.add_agent("scout", "separator = ***");
        if !scratch.is_empty() {
            world.undo("scout", UndoMode::Refuse);
        }
        world.undo("scout", UndoMode::Refuse);
        let expected = format!("{BASELINE}{scratch}");
        assert_eq!(
            world.read_memory("scout"),
            expected.as_bytes(),
            "{scratch:?}"
        );
    }
}

#[test]
fn failed_read_back_is_an_error_but_undoable() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let mut settled = false;
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        settled |= moment == TransportCall::After("settle");
        if settled && moment == TransportCall::Before("look") {
            let error = Error::new(ErrorKind::Host, "input/output error");
            return Err(TransportError::new(FailureCause::Refused, error));
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert_eq!(ran.assert_outcome(Outcome::Ok).kind, Some(ErrorKind::Host));
    assert!(ran.note().contains("not verified"), "{}", ran.note());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout").ends_with(b"---\n- old\n"));
}

#[test]
fn abandoned_attempt_is_not_in_next_record() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let memory = world.memory_path("scout");
    let mut moved = false;
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("stage") && !std::mem::replace(&mut moved, true) {
            fs::remove_file(&memory).unwrap();
            let error = Error::new(ErrorKind::Conflict, "replaced during the undo");
            return Err(TransportError::new(FailureCause::Replaced, error));
        }
        Ok(())
    });
    let engine = world.engine_with_transport(transport);
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    let report = engine
        .runs()
        .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    assert_eq!(report.worst_kind(), None, "{report:?}");
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    let event = world.read_records().pop().unwrap().event;
    assert_eq!(event.change.before, Some(FileState::Absent));
    assert_eq!((event.change.entry, event.boundary), (None, None));
    assert_eq!((event.change.attributes, event.split_version), (None, None));
    assert!(world.preserves("scout", b"- old\n"));
}

#[test]
fn description_is_never_restored_as_memory() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let memory = world.memory_path("scout");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::Before("swap") {
            fs::remove_file(&memory).unwrap();
            symlink("/etc/passwd", &memory).unwrap();
        }
        Ok(())
    });
    let ran = world.reset_with_engine(&world.engine_with_transport(transport));
    assert_eq!(ran.assert_ok().entries[1].kind, EntryKind::Special);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(
        world.read_memory("scout"),
        format!("{BASELINE}- old\n").as_bytes()
    );
}

#[test]
fn undo_without_history_is_refused() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "");
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(
        ran.assert_outcome(Outcome::Refused).kind,
        Some(ErrorKind::Conflict)
    );
}

#[test]
fn undo_restores_xattrs() {
    let world = World::new(&["scout"]);
    let fake = crate::fake_transport::FakeTransport::new(world.clock.clone());
    let memory = world.memory_path("scout");
    fake.make_directory(world.agent_directory("scout"), 1000, 100, 0o755);
    fake.write_file(&memory, format!("{BASELINE}- old\n").as_bytes());
    let attributes = memory_shepherd::transport::Attributes {
        uid: 1000,
        gid: 8,
        mode: 0o600,
        xattrs: vec![(b"user.colour".to_vec(), b"blue".to_vec())],
    };
    fake.set_attributes(&memory, attributes.clone());
    let engine = world.engine_with_transport(Arc::new(fake.clone()));
    world.reset_with_engine(&engine).assert_ok();
    assert_eq!(fake.attributes(&memory).unwrap(), attributes);
    // The agent starts over with a file of its own.
    fake.replace_file(&memory, BASELINE.as_bytes());
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    apply_plan(&engine, &plan).assert_ok();
    assert_eq!(fake.attributes(&memory).unwrap(), attributes);
}

/// Text that often contains the lines that decide boundaries.
fn boundary_text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just(b"---\n".to_vec()),
        Just(b"---".to_vec()),
        Just(b"--- \r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\n\n".to_vec()),
        Just(b"```\n".to_vec()),
        Just(b"Title\n".to_vec()),
        Just(b"# scout scratch notes\n\n".to_vec()),
        Just(b"## Scratch Notes\n".to_vec()),
        Just(b"| a | b |\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

/// How a memory derives from its baseline.
#[derive(Clone, Debug)]
enum MemoryEdit {
    Append,
    CutAndAppend(usize),
    Unrelated,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn reset_then_undo_restores_exact_bytes(
        baseline in boundary_text(),
        scratch in boundary_text(),
        change in prop_oneof![
            4 => Just(MemoryEdit::Append),
            2 => (0usize..64).prop_map(MemoryEdit::CutAndAppend),
            1 => Just(MemoryEdit::Unrelated),
        ],
    ) {
        let world = World::new(&["scout"]).with_general("min_baseline_size = 1");
        let baseline = [b"# B\n", baseline.as_slice()].concat();
        world.set_baseline("scout", &baseline);
        let memory = match change {
            MemoryEdit::Append => [baseline.as_slice(), &scratch].concat(),
            MemoryEdit::CutAndAppend(at) => [&baseline[..at.min(baseline.len())], &scratch].concat(),
            MemoryEdit::Unrelated => scratch.clone(),
        };
        world.write_memory("scout", &memory);
        let ran = world.reset();
        if ran.report.results[0].outcome == Outcome::Unchanged {
            prop_assert_eq!(memory, baseline);
            return Ok(());
        }
        ran.assert_ok();
        prop_assert_eq!(world.read_memory("scout"), baseline.clone());
        world.undo("scout", UndoMode::Refuse).assert_ok();
        prop_assert_eq!(world.read_memory("scout"), memory);
        world.redo("scout").assert_ok();
        prop_assert_eq!(world.read_memory("scout"), baseline);
        prop_assert!(world.leftovers("scout").is_empty());
    }
}
