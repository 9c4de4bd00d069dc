//! Undo of a run by its id, for all agents that it changed or for some of them.

use super::*;

#[test]
fn run_is_undone_for_the_agents_that_are_named() {
    let world = World::new(&["scout", "triage"]);
    for agent in ["scout", "triage"] {
        world.write_scratch(agent, "- a note\n");
    }
    let before = world.read_memory("scout");
    let run = world.reset().report.run;
    let after = world.read_memory("triage");
    // Another run in between is skipped by naming the first one.
    world.write_scratch("scout", "- another note\n");
    world.reset();
    let target = UndoTarget::RunAgents(run.clone(), vec!["scout".to_string()]);
    world.undo_target(&target, UndoMode::Overwrite).assert_ok();
    assert_eq!(world.read_memory("scout"), before);
    assert_eq!(world.read_memory("triage"), after);
    let target = UndoTarget::RunAgents("ffffffff".to_string(), vec!["scout".to_string()]);
    let plan = world
        .engine()
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false)
        .unwrap();
    assert!(plan.steps.is_empty());
    assert!(
        plan.skipped[0]
            .reason
            .contains("run ffffffff did not change")
    );
}

#[test]
fn run_is_undone_for_all_agents_and_can_be_redone() {
    let world = World::new(&["a", "b", "c"]);
    world.write_scratch("a", "- one\n");
    world.write_scratch("b", "- two\n");
    world.write_scratch("c", "");
    let run = world.reset().report.run;
    let undone = world.undo_target(&UndoTarget::Run(run.clone()), UndoMode::Refuse);
    assert_eq!(undone.report.results.len(), 2, "c was unchanged");
    assert_eq!(undone.report.worst_kind(), None);
    assert!(world.read_memory("a").ends_with(b"- one\n"));
    assert!(world.read_memory("b").ends_with(b"- two\n"));
    let target = UndoTarget::Run(undone.report.run);
    assert_eq!(
        world
            .undo_target(&target, UndoMode::Refuse)
            .report
            .worst_kind(),
        None
    );
    assert_eq!(world.read_memory("a"), BASELINE.as_bytes());
    let unknown = world.engine().planner().plan_undo(
        &UndoTarget::Run("ffffffff".to_string()),
        UndoMode::Refuse,
        false,
    );
    let unknown = unknown.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::User);
    assert_eq!(unknown.message(), "no run ffffffff in the ledger");
}

#[test]
fn run_without_change_is_not_unknown() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    let entry = world.reset().assert_ok().entries[0].path.clone();
    world.engine().entries().set_pinned(&[entry], true).unwrap();
    let run = world.read_records().pop().unwrap().event.run;
    let target = UndoTarget::Run(run.clone());
    let plan = world
        .engine()
        .planner()
        .plan_undo(&target, UndoMode::Refuse, false);
    let error = plan.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    let expected = format!("run {run} changed no memory; there is nothing to undo");
    assert_eq!(error.message(), expected);
}

#[test]
fn undone_run_is_not_undone_again() {
    let world = World::new(&["a", "b"]);
    world.write_scratch("a", "- one\n");
    world.write_scratch("b", "- two\n");
    let run = UndoTarget::Run(world.reset().report.run);
    let undo = world.undo("a", UndoMode::Refuse).report.run;
    world.write_scratch("a", "- one\n- new\n");
    let reasons = |target: &UndoTarget| {
        let plan = world
            .engine()
            .planner()
            .plan_undo(target, UndoMode::Refuse, false);
        let skipped = plan.unwrap().skipped.into_iter();
        let skipped = skipped.map(|it| (it.agent, it.kind, it.reason));
        skipped.collect::<Vec<_>>()
    };
    let redoable = format!("already undone by run {undo}; `undo --redo` takes that back");
    assert_eq!(reasons(&run), [("a".to_string(), None, redoable)]);
    let ran = world.undo_target(&run, UndoMode::Append);
    assert_eq!(ran.report.worst_kind(), None);
    assert_eq!(ran.report.count(Outcome::Ok), 1, "b");
    assert!(world.read_memory("a").ends_with(b"---\n- one\n- new\n"));
    assert!(world.read_memory("b").ends_with(b"---\n- two\n"));
    // A later reset stands, so no redo applies to the undo.
    world.reset();
    let undone = (
        "a".to_string(),
        None,
        format!("already undone by run {undo}"),
    );
    assert!(reasons(&run).contains(&undone), "{:?}", reasons(&run));
}

#[test]
fn redone_run_can_be_undone_again() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let run = UndoTarget::Run(world.reset().report.run);
    for _ in 0..2 {
        world.undo_target(&run, UndoMode::Refuse).assert_ok();
        assert!(world.read_memory("scout").ends_with(b"---\n- one\n"));
        world.redo("scout").assert_ok();
        assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    }
}

#[test]
fn removed_agent_does_not_stop_undo_of_run() {
    let world = World::new(&["a", "b"]);
    world.write_scratch("a", "- one\n");
    world.write_scratch("b", "- two\n");
    let run = UndoTarget::Run(world.reset().report.run);
    let world = world.without_agent("b");
    let ran = world.undo_target(&run, UndoMode::Refuse);
    assert!(world.read_memory("a").ends_with(b"---\n- one\n"));
    assert_eq!(ran.report.worst_kind(), Some(ErrorKind::Conflict));
    let skipped = &ran.report.results[1];
    assert_eq!((&*skipped.agent, skipped.outcome), ("b", Outcome::Refused));
    assert_eq!(skipped.note.as_deref(), Some("no longer in the config"));
    assert_eq!(world.read_memory("b"), BASELINE.as_bytes());
}
