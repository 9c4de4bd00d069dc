//! The journals of interrupted runs: damaged, replaced, or of another agent or directory.

use super::*;

#[test]
fn journal_of_missing_directory_waits_for_it() {
    let world = World::new(&["scout", "other"]);
    world.write_scratch("scout", "- note\n");
    let engine =
        world.engine_with_transport(crash_on_call(world.disk(), TransportCall::After("swap")));
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
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
    let plan = engine.plan_reset(&names, false).unwrap();
    assert!(!runs_to_end(|| apply_plan(&engine, &plan)));
    let engine = world.engine();
    let plan = engine.plan_reset(&["scout".to_string()], false).unwrap();
    apply_plan(&engine, &plan);
    assert_eq!(world.pending_journals().len(), 1);
    world.reset();
    assert!(world.pending_journals().is_empty());
}
