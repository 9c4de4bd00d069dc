//! What was done to an agent, and what stood there before and after each of it.

use super::super::world::BASELINE;
use super::super::writers::write_late;
use super::*;
use memory_shepherd::console::text::{self, LineKind};
use memory_shepherd::engine::{HistoryEntry, Operation, Outcome, RunDiffSide, UndoMode};

fn past(world: &World) -> Vec<HistoryEntry> {
    world.engine().agent_history("scout", 1000).unwrap()
}

/// Before and after of the run that is so many before the last one.
fn passed(world: &World, back: usize) -> (RunDiffSide, RunDiffSide) {
    let seq = past(world)[back].record.seq;
    let engine = world.engine();
    let passed = engine
        .run_diff(engine.agent("scout").unwrap(), seq)
        .unwrap();
    (passed.before, passed.after)
}

fn whole(text: &str) -> RunDiffSide {
    RunDiffSide::Text(text.as_bytes().to_vec(), 0)
}

fn with(notes: &str) -> String {
    format!("{BASELINE}{notes}")
}

#[test]
fn every_act_has_what_stood_before_and_after_it() {
    let world = World::new(&["scout"]);
    // A memory that did not exist, scratch, drift, an undo, a redo.
    world.reset().ok();
    world.write_scratch("scout", "- one\n");
    world.reset().ok();
    let drifted = BASELINE.replace("kind", "quick") + "- two\n";
    world.write("scout", &drifted);
    let third = world.reset();
    world.undo("scout", UndoMode::Refuse).ok();
    let redo = world.redo("scout");
    redo.ok();
    let listed = past(&world);
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
    // The undo was taken back, so the reset holds.
    let undone: Vec<Option<&str>> = listed.iter().map(|it| it.undone_by.as_deref()).collect();
    assert_eq!(
        undone,
        [None, Some(redo.report.run.as_str()), None, None, None]
    );
    for (back, before, after) in [
        (0, whole(&drifted), whole(BASELINE)),
        (1, whole(BASELINE), whole(&drifted)),
        (2, whole(&drifted), whole(BASELINE)),
        (3, whole(&with("- one\n")), whole(BASELINE)),
        (4, RunDiffSide::Absent, whole(BASELINE)),
    ] {
        assert_eq!(passed(&world, back), (before, after), "{back} back");
    }
    // Undone for good, it is said of the reset.
    world.undo("scout", UndoMode::Refuse).ok();
    let listed = past(&world);
    let reset = listed
        .iter()
        .find(|it| it.record.event.run == third.report.run);
    let undo = listed[0].record.event.run.clone();
    assert_eq!(reset.unwrap().undone_by, Some(undo));
    assert_eq!(passed(&world, 0), (whole(BASELINE), whole(&drifted)));
}

#[test]
fn an_older_baseline_is_shown_as_it_was_then() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    world.reset().ok();
    world.set_baseline("scout", "# Other rules\n\n---\n");
    world.reset().ok();
    assert_eq!(
        passed(&world, 1),
        (whole(&with("- one\n")), whole(BASELINE))
    );
    let after = whole("# Other rules\n\n---\n");
    assert_eq!(passed(&world, 0), (whole(BASELINE), after));
}

#[test]
fn what_a_late_writer_added_belongs_to_what_stood_before() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- early\n");
    write_late(&world);
    world.reset().ok();
    let before = whole(&with("- early\n- late\n"));
    assert_eq!(passed(&world, 0), (before, whole(BASELINE)));
}

#[test]
fn an_entry_that_is_gone_or_was_changed_is_told_and_the_other_side_shown() {
    let (world, entry, _) = super::retention::aged();
    world.reset().ok();
    let (before, after) = passed(&world, 2);
    assert_eq!(after, whole(BASELINE));
    let RunDiffSide::Unavailable(why) = before else {
        panic!("{before:?}")
    };
    assert!(why.contains("deleted by retention on 2026-04-24"), "{why}");
    assert!(why.contains(&entry.display().to_string()), "{why}");
    let path = world
        .archive()
        .join("scout")
        .join(world.entries("scout").pop().unwrap());
    let changed = fs::read_to_string(&path).unwrap().replace("new", "NEW");
    fs::write(&path, changed).unwrap();
    let (before, _) = passed(&world, 0);
    assert!(
        matches!(&before, RunDiffSide::Unavailable(why) if why.contains("does not match the ledger")),
        "{before:?}"
    );
}

#[test]
fn of_a_run_that_changed_nothing_nothing_is_looked_for() {
    let world = World::new(&["scout"]);
    world.write("scout", BASELINE);
    world.reset().ended(Outcome::Unchanged);
    assert_eq!(
        passed(&world, 0),
        (RunDiffSide::Unchanged, RunDiffSide::Unchanged)
    );
}

#[test]
fn of_a_long_ledger_only_the_last_records_of_the_agent_are_told() {
    let world = World::new(&["scout"]);
    for note in ["- one\n", "- two\n", "- three\n"] {
        world.write_scratch("scout", note);
        world.reset().ok();
        super::long::grow(&world, 400);
    }
    let engine = world.engine();
    let last = engine.agent_history("scout", 2).unwrap();
    assert_eq!(last.len(), 2);
    assert!(last[0].record.seq > last[1].record.seq);
    assert_eq!(engine.agent_history("nobody", 2).unwrap(), []);
    assert_eq!(
        passed(&world, 2),
        (whole(&with("- one\n")), whole(BASELINE))
    );
    let error = engine
        .run_diff(engine.agent("scout").unwrap(), 2)
        .unwrap_err();
    assert_eq!(
        error.kind(),
        memory_shepherd::error::ErrorKind::User,
        "that record is of another agent"
    );
}

#[test]
fn a_reset_of_long_ago_reads_as_a_diff() {
    let world = World::new(&["scout"]);
    world.write("scout", BASELINE.replace("kind", "quick") + "- one\n");
    world.reset().ok();
    world.write_scratch("scout", "- two\n");
    world.reset().ok();
    let engine = world.engine();
    let seq = past(&world)[1].record.seq;
    let passed = engine
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
    // Looking changed nothing.
    assert_eq!(verify(&engine, None).worst_kind(), None);
    assert_eq!(world.read("scout"), BASELINE.as_bytes());
}

#[test]
fn record_counts_scratch_as_the_screen_does() {
    let world = World::new(&["scout"]);
    // Below its separator the baseline has lines of its own, which are no scratch.
    world.set_baseline("scout", format!("{BASELINE}\n## Notes\n"));
    world.reset().ok();
    world.write_scratch("scout", "- one\n- two\n");
    let seen = world.observe("scout").content.unwrap().scratch_lines;
    assert_eq!(seen, 2);
    world.reset().ok();
    let counted = |past: &HistoryEntry| past.record.event.scratch_lines;
    let counted: Vec<_> = past(&world).iter().map(counted).collect();
    assert_eq!(counted, [Some(2), None], "nothing stood there at first");
}
