//! Edits: steps of several files, their undo, and recovery after a crash.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::atomic::AtomicBool;

use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{
    Engine, LedgerRecord, Operation, Outcome, Plan, RecoveredTurns, StepAction, UndoMode,
    UndoTarget,
};
use memory_shepherd::layouts::FileEdit;
use memory_shepherd::transport::local::LocalTransport;

use super::crashes::{crash_at_call, runs_to_end};
use super::edited_files::{Tree, edit, edited, edits, read_tree, write_notes};
use super::world::{InterposingTransport, RunOutput, TransportCall, World, apply_plan};

/// A world whose agent has three files beside its memory.
fn world_with_files() -> World {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    write_notes(&world.agent_directory("scout"));
    world
}

fn plan_edits(world: &World, engine: &Engine, edits: &[FileEdit]) -> Plan {
    let root = world.agent_directory("scout");
    engine
        .planner()
        .plan_edit("scout", &root, edits, None, false)
        .unwrap()
}

fn apply_edits(world: &World, engine: &Engine, edits: &[FileEdit]) -> RunOutput {
    apply_plan(engine, &plan_edits(world, engine, edits))
}

fn edit_records(world: &World) -> Vec<LedgerRecord> {
    let records = world.read_records().into_iter();
    records
        .filter(|record| record.event.operation == Operation::Edit)
        .collect()
}

#[test]
fn edit_and_its_undo_and_redo_are_exact() {
    for count in [1, 2, 5] {
        let world = world_with_files();
        let root = world.agent_directory("scout");
        let before = read_tree(&root);
        let plan = plan_edits(&world, &world.engine(), &edits(count));
        assert_eq!(plan.steps[0].action, StepAction::Edit);
        assert_eq!(read_tree(&root), before, "a plan changes nothing");
        apply_plan(&world.engine(), &plan).assert_ok();
        let after = edited(before.clone(), &edits(count));
        assert_eq!(read_tree(&root), after);
        let log = fs::read_to_string(world.archive_directory().join("reset.log")).unwrap();
        let plural = if count == 1 { "" } else { "s" };
        let a_md = root.join("notes/a.md");
        for line in [
            format!("Changed {count} file{plural} of scout"),
            format!("Archived {} of scout as scout/", a_md.display()),
        ] {
            assert!(log.contains(&line), "{line}: {log}");
        }
        let [record] = edit_records(&world).try_into().unwrap();
        assert_eq!(record.event.files.len(), count);
        let line = serde_json::to_vec(&record).unwrap();
        assert_eq!(LedgerRecord::parse(&line).unwrap(), record);
        world.undo("scout", UndoMode::Refuse).assert_ok();
        assert_eq!(read_tree(&root), before);
        world.redo("scout").assert_ok();
        assert_eq!(read_tree(&root), after);
        world.undo("scout", UndoMode::Refuse).assert_ok();
        assert_eq!(read_tree(&root), before);
        assert!(world.pending_journals().is_empty());
    }
}

#[test]
fn edit_keeps_the_mode_of_each_file() {
    use std::os::unix::fs::PermissionsExt;
    let world = world_with_files();
    let root = world.agent_directory("scout");
    let mode_of = |path: &str| super::world::permission_bits(&root.join(path));
    let modes = [("notes/a.md", 0o640), ("notes/b.md", 0o604)];
    for (path, mode) in modes {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    apply_edits(&world, &world.engine(), &edits(3)).assert_ok();
    assert_eq!(mode_of("notes/a.md"), 0o640);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(modes.map(|(path, _)| mode_of(path)), [0o640, 0o604]);
}

#[test]
fn created_directory_has_group_and_mode_of_its_parent() {
    use std::os::unix::fs::PermissionsExt;
    let world = world_with_files();
    let root = world.agent_directory("scout");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o2775)).unwrap();
    let new = edit("fresh/deep/x.md", None, Some("x\n"));
    apply_edits(&world, &world.engine(), &[new]).assert_ok();
    let mode_of = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["fresh", "fresh/deep"].map(mode_of), [0o2775, 0o2775]);
}

#[test]
fn readers_of_the_ledger_know_edits() {
    let world = world_with_files();
    let engine = world.engine();
    apply_edits(&world, &engine, &edits(2)).assert_ok();
    let [record] = edit_records(&world).try_into().unwrap();
    for change in &record.event.files {
        let Some(entry) = &change.entry else {
            continue;
        };
        let found = engine.search().record_of_entry(&entry.path).unwrap();
        assert_eq!(found.seq, record.seq);
    }
    let last = engine.history().last_run_of_user().unwrap().unwrap();
    assert_eq!(last.run, record.event.run);
    // Neither it nor its undo says anything about resets.
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let engine = world.engine();
    assert_eq!(engine.history().last_run("scout").unwrap(), None);
    assert_eq!(engine.history().last_run_of_user().unwrap(), None);
}

#[test]
fn reset_and_edit_are_undone_newest_first() {
    let world = world_with_files();
    let root = world.agent_directory("scout");
    let before = read_tree(&root);
    apply_edits(&world, &world.engine(), &edits(2)).assert_ok();
    let between = read_tree(&root);
    world.reset().assert_ok();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(read_tree(&root), between);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(read_tree(&root), before);
    // The memory can still be reset.
    world.reset().assert_ok();
}

#[test]
fn changed_file_refuses_the_whole_edit() {
    let world = world_with_files();
    let root = world.agent_directory("scout");
    let plan = plan_edits(&world, &world.engine(), &edits(5));
    fs::write(root.join("notes/empty.md"), "the agent's\n").unwrap();
    let before = read_tree(&root);
    let ran = apply_plan(&world.engine(), &plan);
    let refused = ran.assert_outcome(Outcome::Refused);
    assert_eq!(refused.kind, Some(ErrorKind::Conflict));
    assert!(ran.note().contains("notes/empty.md"), "{}", ran.note());
    assert_eq!(read_tree(&root), before);
    // A plan based on outdated content is refused, too.
    let plan = plan_edits(&world, &world.engine(), &edits(5));
    assert_eq!(plan.skipped[0].kind, Some(ErrorKind::Conflict));
}

#[test]
fn late_write_to_a_file_is_archived_and_named() {
    let world = world_with_files();
    let root = world.agent_directory("scout");
    let file = root.join("notes/a.md");
    let writes_late = move |call| {
        if call == TransportCall::Before("swap") {
            let mut file = fs::File::options().append(true).open(&file).unwrap();
            file.write_all(b"- late\n").unwrap();
        }
        Ok(())
    };
    let transport = InterposingTransport::new(world.disk(), writes_late);
    // The first swap displaces the file.
    let engine = world.engine_with_transport(transport);
    let ran = apply_edits(&world, &engine, &edits(1));
    ran.assert_outcome(Outcome::Ok);
    assert!(ran.note().contains("late write"), "{}", ran.note());
    let [record] = edit_records(&world).try_into().unwrap();
    let [late] = record.event.files[0].late_entries.as_slice() else {
        panic!("{record:?}")
    };
    assert_eq!(world.read_entry(late), b"- late\n");
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(
        fs::read_to_string(root.join("notes/a.md")).unwrap(),
        "alpha\n- late\n"
    );
}

#[test]
fn undo_of_files_that_changed_since_requires_a_choice() {
    let world = world_with_files();
    let root = world.agent_directory("scout");
    let before = read_tree(&root);
    apply_edits(&world, &world.engine(), &edits(3)).assert_ok();
    fs::write(root.join("notes/a.md"), "written since\n").unwrap();
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let plan = world
        .engine()
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    assert!(plan.steps[0].lacks_undo_mode());
    assert_eq!(plan.undo_choices(), [UndoMode::Overwrite]);
    let now = read_tree(&root);
    apply_plan(&world.engine(), &plan).assert_outcome(Outcome::Refused);
    assert_eq!(read_tree(&root), now);
    world.undo("scout", UndoMode::Overwrite).assert_ok();
    assert_eq!(read_tree(&root), before);
    assert!(world.preserves("scout", b"written since\n"));
}

#[test]
fn directory_with_new_files_outlives_the_undo() {
    let world = world_with_files();
    let root = world.agent_directory("scout");
    apply_edits(&world, &world.engine(), &edits(2)).assert_ok();
    fs::write(root.join("new/own.md"), "the agent's\n").unwrap();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(root.join("new/own.md").exists());
    assert!(!root.join("new/deep").exists());
}

#[test]
fn edit_out_of_root_or_of_no_file_is_refused() {
    let world = world_with_files();
    let root = world.agent_directory("scout");
    let engine = world.engine();
    for path in ["../x.md", "/etc/x.md", "", "notes/../../x.md"] {
        let edits = [edit(path, None, Some("x"))];
        let refused = engine
            .planner()
            .plan_edit("scout", &root, &edits, None, false);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::User, "{path}");
    }
    symlink("a.md", root.join("notes/link.md")).unwrap();
    symlink("notes", root.join("linked")).unwrap();
    for path in ["notes/link.md", "linked/z.md", "notes"] {
        let plan = plan_edits(&world, &engine, &[edit(path, None, Some("x"))]);
        assert!(
            plan.steps.is_empty() && plan.skipped[0].kind.is_some(),
            "{path}"
        );
    }
    let twice = [edit("z.md", None, Some("x")), edit("z.md", None, Some("y"))];
    assert!(
        engine
            .planner()
            .plan_edit("scout", &root, &twice, None, false)
            .is_err()
    );
}

/// Plans an edit of `count` files in a new world, or the undo of one. Returns the plan with the trees
/// before and after it.
fn planned_world(count: usize, operation: Operation) -> (World, Plan, [Tree; 2]) {
    let world = world_with_files();
    let original = read_tree(&world.agent_directory("scout"));
    let changed = edited(original.clone(), &edits(count));
    let plan = plan_edits(&world, &world.engine(), &edits(count));
    if operation == Operation::Edit {
        return (world, plan, [original, changed]);
    }
    apply_plan(&world.engine(), &plan).assert_ok();
    let target = UndoTarget::Agents(vec!["scout".to_string()]);
    let undo = world
        .engine()
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false);
    (world, undo.unwrap(), [changed, original])
}

/// Crashes an edit of `count` files, or its undo, at each call in turn, and asserts that recovery
/// finishes it or takes it back. Returns how often each happened.
fn crash_at_every_call(count: usize, operation: Operation, has_exchange: bool) -> [usize; 2] {
    let transport = |world: &World| {
        if has_exchange {
            LocalTransport::new(world.clock.clone())
        } else {
            LocalTransport::without_kernel_features(world.clock.clone())
        }
    };
    let mut ends = [0, 0];
    for point in 0.. {
        let (world, plan, [before, after]) = planned_world(count, operation);
        let root = world.agent_directory("scout");
        let engine = world.engine_with_transport(crash_at_call(transport(&world), point));
        if runs_to_end(|| apply_plan(&engine, &plan)) {
            assert_eq!(read_tree(&root), after);
            break;
        }
        let names = ["scout".to_string()];
        let (cancel, engine) = (AtomicBool::new(false), world.engine());
        let mut lines = Vec::new();
        let recovered = engine
            .runs()
            .recover_interrupted_turns(&names, &cancel, &mut |it| lines.push(format!("{it:?}")))
            .and_then(RecoveredTurns::into_result)
            .unwrap();
        let left = read_tree(&root);
        let is_finished = left == after;
        assert!(
            is_finished || left == before,
            "{count} files, point {point}: {left:#?}\n{lines:#?}"
        );
        assert!(world.pending_journals().is_empty(), "point {point}");
        assert_eq!(recovered.len(), usize::from(is_finished), "point {point}");
        ends[usize::from(!is_finished)] += 1;
        let is_of_plan = |record: &&LedgerRecord| {
            record.event.operation == operation && record.event.has_changed_files()
        };
        let records = world.read_records();
        let changes = records.iter().filter(is_of_plan).count();
        assert_eq!(changes, usize::from(is_finished), "point {point}");
        if is_finished && operation == Operation::Edit {
            world.undo("scout", UndoMode::Refuse).assert_ok();
        } else if is_finished {
            world.redo("scout").assert_ok();
        }
        assert_eq!(read_tree(&root), before, "point {point}");
    }
    ends
}

fn crash_edits_and_undos(has_exchange: bool) {
    for count in [1, 2, 5] {
        for operation in [Operation::Edit, Operation::Undo] {
            let [finished, given_up] = crash_at_every_call(count, operation, has_exchange);
            let operation = operation.as_str();
            println!("{operation} of {count}: {finished} times finished, {given_up} given up");
            assert!(finished > count && given_up > count);
        }
    }
}

#[test]
fn crash_at_any_call_of_an_edit_leaves_all_or_nothing() {
    crash_edits_and_undos(true);
}

#[test]
fn crash_without_exchange_leaves_all_or_nothing() {
    crash_edits_and_undos(false);
}

#[test]
fn edit_that_recovery_finishes_is_reported_as_done() {
    let world = world_with_files();
    let root = world.agent_directory("scout");
    let removed = root.join("notes/b.md");
    // The agent removes a file that the edit removes, after the decision.
    let removes = move |call| {
        if call == TransportCall::Before("swap") {
            let _ = fs::remove_file(&removed);
        }
        Ok(())
    };
    let after = edited(read_tree(&root), &edits(3));
    let engine = world.engine_with_transport(InterposingTransport::new(world.disk(), removes));
    let ran = apply_edits(&world, &engine, &edits(3));
    ran.assert_outcome(Outcome::Ok);
    assert_eq!(read_tree(&root), after);
    let [record] = edit_records(&world).try_into().unwrap();
    assert_eq!(record.event.outcome, Outcome::Ok);
    assert!(world.pending_journals().is_empty());
}

#[test]
fn write_between_decision_and_recovery_is_archived() {
    for point in 0.. {
        let world = world_with_files();
        let root = world.agent_directory("scout");
        let plan = plan_edits(&world, &world.engine(), &edits(3));
        let transport = LocalTransport::new(world.clock.clone());
        let engine = world.engine_with_transport(crash_at_call(transport, point));
        if runs_to_end(|| apply_plan(&engine, &plan)) {
            assert!(point > 0);
            break;
        }
        let file = root.join("notes/a.md");
        let mut text = fs::read(&file).unwrap();
        text.extend_from_slice(b"- while it was down\n");
        fs::write(&file, &text).unwrap();
        world.reset();
        let is_kept = fs::read(&file).unwrap() == text;
        assert!(
            is_kept || world.preserves("scout", b"- while it was down\n"),
            "point {point}"
        );
    }
}

#[test]
fn paths_that_exclude_each_other_are_refused() {
    let world = world_with_files();
    let root = world.agent_directory("scout");
    let plan = |edits: &[FileEdit]| {
        let engine = world.engine();
        let planned = engine
            .planner()
            .plan_edit("scout", &root, edits, None, false);
        planned.unwrap_err().kind()
    };
    let nested = [edit("x", None, Some("a")), edit("x/y.md", None, Some("b"))];
    assert_eq!(plan(&nested), ErrorKind::User);
    let many: Vec<FileEdit> = (0..1001)
        .map(|number| edit(&format!("many/{number}.md"), None, Some("x")))
        .collect();
    assert_eq!(plan(&many), ErrorKind::User);
}
