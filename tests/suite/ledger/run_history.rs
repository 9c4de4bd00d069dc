//! The history of an agent, with its memory before and after each run.

use super::super::world::BASELINE;
use super::super::writers::append_while_settling;
use super::*;
use memory_shepherd::console::text::{self, LineKind};
use memory_shepherd::engine::{HistoryEntry, Operation, Outcome, RunDiffSide, UndoMode};

fn scout_history(world: &World) -> Vec<HistoryEntry> {
    let page = world
        .engine()
        .history()
        .agent_history("scout", 1000)
        .unwrap();
    page.entries
}

/// Returns before and after of the run `back` runs before the last one.
fn run_diff_sides(world: &World, back: usize) -> (RunDiffSide, RunDiffSide) {
    let seq = scout_history(world)[back].record.seq;
    let engine = world.engine();
    let passed = engine
        .history()
        .run_diff(engine.agent("scout").unwrap(), seq)
        .unwrap();
    (passed.before, passed.after)
}

fn whole_text(text: &str) -> RunDiffSide {
    RunDiffSide::Text(text.as_bytes().to_vec(), 0)
}

fn memory_with_notes(notes: &str) -> String {
    format!("{BASELINE}{notes}")
}

#[test]
fn every_operation_has_before_and_after() {
    let world = World::new(&["scout"]);
    // An absent memory, scratch, drift, an undo, a redo.
    world.reset().assert_ok();
    world.write_scratch("scout", "- one\n");
    world.reset().assert_ok();
    let drifted = BASELINE.replace("kind", "quick") + "- two\n";
    world.write_memory("scout", &drifted);
    let third = world.reset();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let redo = world.redo("scout");
    redo.assert_ok();
    let listed = scout_history(&world);
    let acts: Vec<(Operation, bool)> = listed
        .iter()
        .map(|it| (it.record.event.operation, it.is_redo))
        .collect();
    assert_eq!(
        acts,
        [
            (Operation::Undo, true),
            (Operation::Undo, false),
            (Operation::Reset, false),
            (Operation::Reset, false),
            (Operation::Reset, false)
        ]
    );
    // The undo was reverted, so the reset is in force.
    let undone: Vec<Option<&str>> = listed.iter().map(|it| it.undone_by.as_deref()).collect();
    assert_eq!(
        undone,
        [None, Some(redo.report.run.as_str()), None, None, None]
    );
    for (back, before, after) in [
        (0, whole_text(&drifted), whole_text(BASELINE)),
        (1, whole_text(BASELINE), whole_text(&drifted)),
        (2, whole_text(&drifted), whole_text(BASELINE)),
        (
            3,
            whole_text(&memory_with_notes("- one\n")),
            whole_text(BASELINE),
        ),
        (4, RunDiffSide::Absent, whole_text(BASELINE)),
    ] {
        assert_eq!(run_diff_sides(&world, back), (before, after), "{back} back");
    }
    // After the final undo the history marks the reset as undone.
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let listed = scout_history(&world);
    let reset = listed
        .iter()
        .find(|it| it.record.event.run == third.report.run);
    let undo = listed[0].record.event.run.clone();
    assert_eq!(reset.unwrap().undone_by, Some(undo));
    assert_eq!(
        run_diff_sides(&world, 0),
        (whole_text(BASELINE), whole_text(&drifted))
    );
}

#[test]
fn older_baseline_is_shown_as_of_its_run() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().assert_ok();
    world.set_baseline("scout", "# Other rules\n\n---\n");
    world.reset().assert_ok();
    assert_eq!(
        run_diff_sides(&world, 1),
        (
            whole_text(&memory_with_notes("- one\n")),
            whole_text(BASELINE)
        )
    );
    let after = whole_text("# Other rules\n\n---\n");
    assert_eq!(run_diff_sides(&world, 0), (whole_text(BASELINE), after));
}

#[test]
fn late_write_belongs_to_before_side() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    append_while_settling(&world);
    world.reset().assert_ok();
    let before = whole_text(&memory_with_notes("- early\n- late\n"));
    assert_eq!(run_diff_sides(&world, 0), (before, whole_text(BASELINE)));
}

#[test]
fn missing_or_changed_entry_shows_other_side() {
    let (world, entry, _) = super::retention::world_with_expired_entry();
    world.reset().assert_ok();
    let (before, after) = run_diff_sides(&world, 2);
    assert_eq!(after, whole_text(BASELINE));
    let RunDiffSide::Unavailable(why) = before else {
        panic!("{before:?}")
    };
    assert!(why.contains("deleted by retention on 2026-04-24"), "{why}");
    assert!(why.contains(&entry.display().to_string()), "{why}");
    let path = world
        .archive_directory()
        .join("scout")
        .join(world.entry_names("scout").pop().unwrap());
    let changed = fs::read_to_string(&path).unwrap().replace("new", "NEW");
    fs::write(&path, changed).unwrap();
    let (before, _) = run_diff_sides(&world, 0);
    assert!(
        matches!(&before, RunDiffSide::Unavailable(why) if why.contains("does not match the ledger")),
        "{before:?}"
    );
}

#[test]
fn unchanged_run_has_untouched_sides() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    world.reset().assert_outcome(Outcome::Unchanged);
    assert_eq!(
        run_diff_sides(&world, 0),
        (RunDiffSide::Unchanged, RunDiffSide::Unchanged)
    );
}

#[test]
fn long_ledger_lists_last_records_of_agent() {
    let world = World::new(&["scout"]);
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("scout", note);
        world.reset().assert_ok();
        super::long_ledger::append_records(&world, 400);
    }
    let engine = world.engine();
    let last = engine.history().agent_history("scout", 2).unwrap().entries;
    assert_eq!(last.len(), 2);
    assert!(last[0].record.seq > last[1].record.seq);
    assert_eq!(
        engine.history().agent_history("nobody", 2).unwrap().entries,
        []
    );
    assert_eq!(
        run_diff_sides(&world, 2),
        (
            whole_text(&memory_with_notes("- one\n")),
            whole_text(BASELINE)
        )
    );
    let error = engine
        .history()
        .run_diff(engine.agent("scout").unwrap(), 2)
        .unwrap_err();
    assert_eq!(
        error.kind(),
        memory_shepherd::base::error::ErrorKind::User,
        "the record belongs to another agent"
    );
}

#[test]
fn old_reset_is_shown_as_diff() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE.replace("kind", "quick") + "- one\n");
    world.reset().assert_ok();
    world.write_scratch("scout", "- two\n");
    world.reset().assert_ok();
    let engine = world.engine();
    let seq = scout_history(&world)[1].record.seq;
    let passed = engine
        .history()
        .run_diff(engine.agent("scout").unwrap(), seq)
        .unwrap();
    let lines = text::prepare_run_diff(&passed, None).lines;
    let changed = lines.iter().filter(|line| line.kind.is_changed());
    let shown: Vec<(LineKind, &str)> = changed
        .map(|line| (line.kind, str::from_utf8(&line.bytes).unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            (LineKind::Removed, "- be quick"),
            (LineKind::Added, "- be kind"),
            (LineKind::Removed, "- one")
        ]
    );
    // Reading changed nothing.
    assert_eq!(verify(&engine, None).worst_kind(), None);
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

#[test]
fn record_counts_scratch_like_the_screen() {
    let world = World::new(&["scout"]);
    // The baseline has lines of its own below its separator; they do not count as
    // scratch.
    world.set_baseline("scout", format!("{BASELINE}\n## Notes\n"));
    world.reset().assert_ok();
    world.write_scratch("scout", "- one\n- two\n");
    let seen = world.observe("scout").content.unwrap().scratch_lines;
    assert_eq!(seen, 2);
    world.reset().assert_ok();
    let counted = |past: &HistoryEntry| past.record.event.scratch_lines;
    let counted: Vec<_> = scout_history(&world).iter().map(counted).collect();
    assert_eq!(
        counted,
        [Some(2), None],
        "the memory was not absent at first"
    );
}
