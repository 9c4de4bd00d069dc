//! Undo: exact bytes, owner and mode, or a clear refusal.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::engine::{
    FileState, Operation, Outcome, State, StepAction, UndoMode, UndoTarget,
};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::{FailureCause, TransportError};
use proptest::prelude::*;

use super::world::{BASELINE, Interposer, Moment, World, apply};

/// Resets a memory with these bytes, and undoes it.
fn round_trip(bytes: &[u8]) {
    let world = World::new(&["scout"]);
    world.write("scout", bytes);
    fs::set_permissions(world.memory("scout"), fs::Permissions::from_mode(0o604)).unwrap();
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        chown(world.memory("scout"), Some(1234), Some(4321)).unwrap();
    }
    let before = fs::metadata(world.memory("scout")).unwrap();
    world.reset().ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), bytes);
    let after = fs::metadata(world.memory("scout")).unwrap();
    assert_eq!(before.mode(), after.mode());
    assert_eq!((before.uid(), before.gid()), (after.uid(), after.gid()));
    assert!(world.litter("scout").is_empty());
    assert!(world.pending().is_empty());
}

#[test]
fn scratch_drift_and_a_missing_boundary_come_back_exactly() {
    round_trip(format!("{BASELINE}\n\n- a\r\n\0\n---\nno newline").as_bytes());
    round_trip(BASELINE.replace("kind", "cruel").as_bytes());
    round_trip(b"nothing of the baseline \xff");
    round_trip(b"");
    // The separator line as an editor left it.
    round_trip(BASELINE.trim_end().as_bytes());
    round_trip(format!("{}  \r\n- note", BASELINE.trim_end()).as_bytes());
}

#[test]
fn an_undo_that_goes_further_back_than_the_last_run_says_so() {
    let world = World::new(&["scout"]);
    let noted = |target: UndoTarget| {
        let plan = world
            .engine()
            .plan_undo(&target, UndoMode::Overwrite, false);
        let notes = plan.unwrap().steps[0].notes.join("; ");
        notes.contains("was undone already; this goes further back")
    };
    let undo = || UndoTarget::Agents(vec!["scout".to_string()]);
    world.write_scratch("scout", "- one\n");
    let first = world.reset();
    first.ok();
    world.write_scratch("scout", "- two\n");
    world.reset().ok();
    assert!(!noted(undo()), "the last run");
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(noted(undo()), "the one before it");
    assert!(
        !noted(UndoTarget::Run(first.report.run.clone())),
        "by its name"
    );
    world.redo("scout").ok();
    assert!(!noted(undo()), "the last one, which was taken back");
}

#[test]
fn an_empty_scratch_without_an_entry_comes_back_exactly() {
    let world = World::new(&["scout"]);
    let old = format!("{BASELINE}\n## Scratch Notes\n");
    world.set_baseline("scout", &old);
    // Pushed once, then the operator changes the baseline.
    world.reset().ok();
    world.set_baseline("scout", BASELINE.replace("kind", "kinder"));
    let ran = world.reset();
    assert!(ran.ok().entries.is_empty(), "nothing of the agent's");
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), old.as_bytes());
    // The same where the agent has removed the tail.
    world.write("scout", BASELINE);
    let ran = world.reset();
    assert!(ran.ok().entries.is_empty());
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
}

#[test]
fn the_undo_of_a_creation_archives_and_removes() {
    let world = World::new(&["scout"]);
    world.reset().ok();
    let engine = world.engine();
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    assert_eq!(plan.steps[0].action, StepAction::Remove);
    apply(&engine, &plan).ok();
    assert_eq!(world.observe("scout").state, State::Missing);
    assert!(world.litter("scout").is_empty());
    let last = world.records().pop().unwrap().event;
    assert_eq!(
        (last.operation, last.after),
        (Operation::Undo, Some(FileState::Absent))
    );
    // Taken back, it is there again.
    world.redo("scout").ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
}

#[test]
fn the_undo_of_a_creation_keeps_what_the_agent_wrote() {
    let world = World::new(&["scout"]);
    world.reset().ok();
    world.write_scratch("scout", "- mine\n");
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
    assert!(world.read("scout").ends_with(b"- mine\n"));
    world.undo("scout", UndoMode::Overwrite).ok();
    assert_eq!(world.observe("scout").state, State::Missing);
    assert!(world.holds("scout", b"- mine\n"));
}

#[test]
fn undoing_again_goes_further_back_and_redo_returns() {
    let world = World::new(&["scout"]);
    let memory = |text: &str| format!("{BASELINE}{text}").into_bytes();
    for note in ["- one\n", "- two\n"] {
        world.write_scratch("scout", note);
        world.reset().ok();
    }
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), memory("- two\n"));
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), memory("- one\n"));
    // There is nothing before that.
    let ran = world.undo("scout", UndoMode::Refuse);
    ran.ended(Outcome::Refused);
    assert!(ran.note().contains("nothing to undo"), "{}", ran.note());
    world.redo("scout").ok();
    assert_eq!(world.read("scout"), memory("- two\n"));
    world.redo("scout").ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    world.redo("scout").ended(Outcome::Refused);
    // And back once more.
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), memory("- two\n"));
}

#[test]
fn a_run_is_undone_for_all_its_agents_and_an_undo_can_be_undone() {
    let world = World::new(&["a", "b", "c"]);
    world.write_scratch("a", "- one\n");
    world.write_scratch("b", "- two\n");
    world.write_scratch("c", "");
    let run = world.reset().report.run;
    let undone = world.undo_of(&UndoTarget::Run(run.clone()), UndoMode::Refuse);
    assert_eq!(undone.report.results.len(), 2, "c was unchanged");
    assert_eq!(undone.report.worst_kind(), None);
    assert!(world.read("a").ends_with(b"- one\n"));
    assert!(world.read("b").ends_with(b"- two\n"));
    let target = UndoTarget::Run(undone.report.run);
    assert_eq!(
        world.undo_of(&target, UndoMode::Refuse).report.worst_kind(),
        None
    );
    assert_eq!(world.read("a"), BASELINE.as_bytes());
    let unknown = world.engine().plan_undo(
        &UndoTarget::Run("ffffffff".to_string()),
        UndoMode::Refuse,
        false,
    );
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::User);
}

#[test]
fn what_the_agent_wrote_since_is_refused_appended_or_archived() {
    let world = World::new(&["scout"]);
    let old = format!("{BASELINE}- old, no newline");
    let start = || {
        world.write("scout", &old);
        world.reset().ok();
        world.write_scratch("scout", "- new\n");
    };
    start();
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
    assert!(ran.note().contains("has written since"), "{}", ran.note());
    assert!(world.read("scout").ends_with(b"- new\n"));
    world.undo("scout", UndoMode::Append).ok();
    assert_eq!(
        String::from_utf8(world.read("scout")).unwrap(),
        format!("{old}\n- new\n")
    );
    start();
    let ran = world.undo("scout", UndoMode::Overwrite);
    assert_eq!(world.read("scout"), old.as_bytes());
    assert!(world.entry(&ran.ok().entries[0]).ends_with(b"\n\n- new\n"));
    // And that can be undone, too.
    world.redo("scout").ok();
    assert_eq!(world.read("scout"), format!("{BASELINE}- new\n").as_bytes());
}

#[test]
fn appending_when_nothing_was_written_since_is_a_plain_undo() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    world.reset().ok();
    world.undo("scout", UndoMode::Append).ok();
    assert!(world.read("scout").ends_with(b"---\n- old\n"));
    let target = UndoTarget::Redo(vec!["scout".to_string()]);
    world.undo_of(&target, UndoMode::Append).ok();
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
}

#[test]
fn a_file_where_a_removed_one_was_counts_as_written_since() {
    let world = World::new(&["scout"]);
    world.reset().ok();
    world.undo("scout", UndoMode::Refuse).ok();
    // After the removal the agent puts something there that has no digest.
    symlink("/etc/passwd", world.memory("scout")).unwrap();
    let ran = world.redo("scout");
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
    assert!(world.memory("scout").is_symlink());
}

#[test]
fn a_deleted_or_changed_entry_refuses_with_a_clear_sentence() {
    let spoilt = |spoil: &dyn Fn(&std::path::Path)| {
        let world = World::new(&["scout"]);
        world.write_scratch("scout", "- old\n");
        let ran = world.reset();
        spoil(&world.archive().join(&ran.ok().entries[0].path));
        let undone = world.undo("scout", UndoMode::Refuse);
        assert_eq!(world.read("scout"), BASELINE.as_bytes());
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
fn what_was_odd_cannot_come_back_and_says_so() {
    let world = World::new(&["scout"]);
    symlink("/etc/passwd", world.memory("scout")).unwrap();
    world.reset().ok();
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
    assert!(ran.note().contains("not kept"), "{}", ran.note());
}

#[test]
fn redo_without_an_undo_says_that_there_is_none() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    world.reset().ok();
    let why = |target| {
        let plan = world.engine().plan_undo(&target, UndoMode::Refuse, false);
        plan.unwrap().skipped.pop().map(|skipped| skipped.reason)
    };
    let names = || vec!["scout".to_string()];
    let none = "there is no undo to take back";
    assert_eq!(why(UndoTarget::Redo(names())).as_deref(), Some(none));
    assert_eq!(why(UndoTarget::Agents(names())), None);
}

#[test]
fn an_undo_needs_no_good_baseline() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    world.reset().ok();
    fs::remove_file(world.baseline("scout")).unwrap();
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), format!("{BASELINE}- old\n").as_bytes());
}

#[test]
fn an_undo_after_a_late_write_restores_the_late_file() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let memory = world.memory("scout");
    let late = format!("{BASELINE}- old\n- late\n");
    let text = late.clone();
    let transport = Interposer::new(world.local(), move |moment| {
        if moment == Moment::Before("swap") {
            fs::write(&memory, &text).unwrap();
        }
        Ok(())
    });
    let ran = world.reset_by(&world.engine_on(transport));
    let kinds: Vec<EntryKind> = ran.ok().entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [EntryKind::Scratch, EntryKind::Appended]);
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), late.as_bytes());
}

#[test]
fn a_separator_that_was_changed_since_is_no_obstacle() {
    for scratch in ["- old\n", ""] {
        let mut world = World::new(&["scout"]);
        // Also a version without an entry, which is not the one that is pushed.
        world.write_scratch("scout", scratch);
        world.reset();
        world.set_baseline("scout", format!("{BASELINE}## More\n\n***\n"));
        world.reset();
        world.add("scout", "separator = ***");
        if !scratch.is_empty() {
            world.undo("scout", UndoMode::Refuse);
        }
        world.undo("scout", UndoMode::Refuse);
        let expected = format!("{BASELINE}{scratch}");
        assert_eq!(world.read("scout"), expected.as_bytes(), "{scratch:?}");
    }
}

#[test]
fn a_reset_that_cannot_be_read_back_is_no_success_but_can_be_undone() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let mut settled = false;
    let transport = Interposer::new(world.local(), move |moment| {
        settled |= moment == Moment::After("settle");
        if settled && moment == Moment::Before("look") {
            let error = Error::new(ErrorKind::Host, "input/output error");
            return Err(TransportError::new(FailureCause::Refused, error));
        }
        Ok(())
    });
    let ran = world.reset_by(&world.engine_on(transport));
    assert_eq!(ran.ended(Outcome::Ok).kind, Some(ErrorKind::Host));
    assert!(ran.note().contains("reading back failed"), "{}", ran.note());
    world.undo("scout", UndoMode::Refuse).ok();
    assert!(world.read("scout").ends_with(b"---\n- old\n"));
}

#[test]
fn an_attempt_that_was_given_up_is_not_part_of_the_next_ones_record() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let memory = world.memory("scout");
    let mut moved = false;
    let transport = Interposer::new(world.local(), move |moment| {
        if moment == Moment::Before("stage") && !std::mem::replace(&mut moved, true) {
            fs::remove_file(&memory).unwrap();
            let error = Error::new(ErrorKind::Conflict, "replaced meanwhile");
            return Err(TransportError::new(FailureCause::Replaced, error));
        }
        Ok(())
    });
    let engine = world.engine_on(transport);
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
    let report = engine.apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
    assert_eq!(report.worst_kind(), None, "{report:?}");
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
    let event = world.records().pop().unwrap().event;
    assert_eq!(event.before, Some(FileState::Absent));
    assert_eq!((event.entry, event.boundary), (None, None));
    assert_eq!((event.attributes, event.split_version), (None, None));
    assert!(world.holds("scout", b"- old\n"));
}

#[test]
fn a_description_is_never_restored_as_a_memory() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- old\n");
    let memory = world.memory("scout");
    let transport = Interposer::new(world.local(), move |moment| {
        if moment == Moment::Before("swap") {
            fs::remove_file(&memory).unwrap();
            symlink("/etc/passwd", &memory).unwrap();
        }
        Ok(())
    });
    let ran = world.reset_by(&world.engine_on(transport));
    assert_eq!(ran.ok().entries[1].kind, EntryKind::Special);
    world.undo("scout", UndoMode::Refuse).ok();
    assert_eq!(world.read("scout"), format!("{BASELINE}- old\n").as_bytes());
}

#[test]
fn an_undo_of_an_agent_without_history_is_refused() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "");
    let ran = world.undo("scout", UndoMode::Refuse);
    assert_eq!(ran.ended(Outcome::Refused).kind, Some(ErrorKind::Conflict));
}

#[test]
fn an_undo_restores_extended_attributes() {
    let world = World::new(&["scout"]);
    let fake = memory_shepherd::transport::fake::FakeTransport::new(world.clock.clone());
    let memory = world.memory("scout");
    fake.make_folder(world.folder("scout"), 1000, 100, 0o755);
    fake.write_file(&memory, format!("{BASELINE}- old\n").as_bytes());
    let attributes = memory_shepherd::transport::Attributes {
        uid: 1000,
        gid: 8,
        mode: 0o600,
        xattrs: vec![(b"user.colour".to_vec(), b"blue".to_vec())],
    };
    fake.set_attributes(&memory, attributes.clone());
    let engine = world.engine_on(Arc::new(fake.clone()));
    world.reset_by(&engine).ok();
    assert_eq!(fake.attributes(&memory).unwrap(), attributes);
    // The agent starts afresh, with a file of its own.
    fake.replace_file(&memory, BASELINE.as_bytes());
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    apply(&engine, &plan).ok();
    assert_eq!(fake.attributes(&memory).unwrap(), attributes);
}

/// Text in which the lines that decide boundaries are likely.
fn text() -> impl Strategy<Value = Vec<u8>> {
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

/// How a memory comes from its baseline.
#[derive(Clone, Debug)]
enum Change {
    Append,
    CutAndAppend(usize),
    Unrelated,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn reset_then_undo_gives_back_the_exact_bytes(
        baseline in text(),
        scratch in text(),
        change in prop_oneof![
            4 => Just(Change::Append),
            2 => (0usize..64).prop_map(Change::CutAndAppend),
            1 => Just(Change::Unrelated),
        ],
    ) {
        let world = World::new(&["scout"]).general("min_baseline_size = 1");
        let baseline = [b"# B\n", baseline.as_slice()].concat();
        world.set_baseline("scout", &baseline);
        let memory = match change {
            Change::Append => [baseline.as_slice(), &scratch].concat(),
            Change::CutAndAppend(at) => [&baseline[..at.min(baseline.len())], &scratch].concat(),
            Change::Unrelated => scratch.clone(),
        };
        world.write("scout", &memory);
        let ran = world.reset();
        if ran.report.results[0].outcome == Outcome::Unchanged {
            prop_assert_eq!(memory, baseline);
            return Ok(());
        }
        ran.ok();
        prop_assert_eq!(world.read("scout"), baseline.clone());
        world.undo("scout", UndoMode::Refuse).ok();
        prop_assert_eq!(world.read("scout"), memory);
        world.redo("scout").ok();
        prop_assert_eq!(world.read("scout"), baseline);
        prop_assert!(world.litter("scout").is_empty());
    }
}
