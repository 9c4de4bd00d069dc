//! Push: new rules above the separator, and the agent's notes kept below it, byte for byte.

use std::fs;
use std::io::Write;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{
    ChosenLines, Engine, FileState, Operation, Outcome, Plan, RunDiffSide, ScratchSelection, State,
    StepAction, UndoMode,
};
use proptest::prelude::*;

use super::world::{BASELINE, InterposingTransport, RunOutput, TransportCall, World, apply_plan};

const NEW_BASELINE: &str = "# Rules\n\n- be kind\n- be exact\n- ask first\n\n---\n";

/// A world whose agent was reset once and wrote these notes; its baseline has changed since.
fn behind_world(notes: impl AsRef<[u8]>) -> World {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.write_scratch("scout", notes);
    world.set_baseline("scout", NEW_BASELINE);
    world
}

fn plan_push(engine: &Engine, selection: &str) -> Plan {
    let selection: ScratchSelection = selection.parse().unwrap();
    let names = ["scout".to_string()];
    engine
        .planner()
        .plan_push(&names, &selection, false)
        .unwrap()
}

fn push(world: &World, selection: &str) -> RunOutput {
    let engine = world.engine();
    apply_plan(&engine, &plan_push(&engine, selection))
}

/// Returns why a push with this selection is refused.
#[track_caller]
fn refusal(world: &World, selection: &str) -> String {
    let before = fs::read(world.memory_path("scout")).ok();
    let plan = plan_push(&world.engine(), selection);
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    assert_eq!(plan.skipped[0].kind, Some(ErrorKind::Conflict));
    apply_plan(&world.engine(), &plan).assert_outcome(Outcome::Refused);
    assert_eq!(fs::read(world.memory_path("scout")).ok(), before);
    plan.skipped[0].reason.clone()
}

/// Returns lines that an operator chose, with the numbers and texts that they had.
fn chosen_lines<const COUNT: usize>(lines: [(usize, &str); COUNT]) -> ChosenLines {
    ChosenLines(lines.map(|(number, text)| (number, text.into())).into())
}

fn append(world: &World, text: &str) {
    let path = world.memory_path("scout");
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn push_installs_rules_and_keeps_notes() {
    let notes = b"- one\r\n\n\xff\0---\n- no newline";
    let world = behind_world(notes);
    let before = world.read_memory("scout");
    let ran = push(&world, "all");
    let entry = &ran.assert_ok().entries[0];
    assert_eq!(entry.kind, EntryKind::Scratch);
    assert!(world.read_entry(entry).ends_with(notes));
    let after = [NEW_BASELINE.as_bytes(), notes].concat();
    assert_eq!(world.read_memory("scout"), after);
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Scratch);
    assert_eq!(seen.last_run.unwrap().operation, Operation::Push);
    let event = world.read_records().pop().unwrap().event;
    assert_eq!(event.operation, Operation::Push);
    let kept = event.kept_scratch.unwrap();
    assert_eq!(kept.selection, ScratchSelection::All);
    assert_eq!((kept.lines, kept.bytes), (4, notes.len() as u64));
    push(&world, "all").assert_outcome(Outcome::Unchanged);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), before);
    assert_eq!(world.observe("scout").state, State::Behind);
    world.redo("scout").assert_ok();
    assert_eq!(world.read_memory("scout"), after);
    assert!(world.leftovers("scout").is_empty());
    assert!(world.pending_journals().is_empty());
}

#[test]
fn chosen_lines_are_kept_and_all_are_archived() {
    let world = behind_world("- one\n- two\n- three\n- four\n");
    let ran = push(&world, "7,9-10");
    let entry = world.read_entry(&ran.assert_ok().entries[0]);
    assert!(entry.ends_with(b"\n- one\n- two\n- three\n- four\n"));
    let expected = format!("{NEW_BASELINE}- one\n- three\n- four\n");
    assert_eq!(world.read_memory("scout"), expected.as_bytes());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(
        world
            .read_memory("scout")
            .ends_with(b"- two\n- three\n- four\n")
    );
    assert!(refusal(&world, "6").contains("begins at line 7"));
    assert!(refusal(&world, "7-11").contains("the memory has 10 lines"));
}

#[test]
fn chosen_lines_are_found_again_by_their_bytes() {
    let world = behind_world("- one\n- two\n- three\n");
    let chosen = chosen_lines([(7, "- one"), (9, "- three")]);
    let write = |notes: &str| world.write_memory("scout", format!("{BASELINE}{notes}"));
    write("- evil\n- evil too\n- one\n- more\n- three\n");
    let engine = world.engine();
    let plan_chosen = || {
        let names = ["scout".to_string()];
        engine
            .planner()
            .plan_push_of_chosen(&names, &chosen, false)
            .unwrap()
    };
    let plan = plan_chosen();
    let kept = plan.steps[0].kept_scratch.as_ref().unwrap();
    assert_eq!(kept.selection.to_string(), "9,11");
    // The lines move between plan and run, too.
    write("- one\n- evil\n- evil too\n- three\n");
    apply_plan(&engine, &plan).assert_outcome(Outcome::Refused);
    apply_plan(&engine, &plan_chosen()).assert_ok();
    let expected = format!("{NEW_BASELINE}- one\n- three\n");
    assert_eq!(world.read_memory("scout"), expected.as_bytes());
    write("- one\n- changed\n");
    let plan = plan_chosen();
    assert!(plan.steps.is_empty());
    let reason = &plan.skipped[0].reason;
    assert!(
        reason.contains("no longer in the scratch: 1 of 2"),
        "{reason}"
    );
}

#[test]
fn empty_memory_gets_the_baseline() {
    let world = behind_world("");
    world.write_memory("scout", "");
    push(&world, "all").assert_ok();
    assert_eq!(world.read_memory("scout"), NEW_BASELINE.as_bytes());
}

#[test]
fn undo_of_a_push_appends_only_newer_notes() {
    for (kept, written, expected) in [
        ("- one\n- two\n", "- new\n", "- one\n- two\n- new\n"),
        // The last line has no end yet.
        ("- one\n- two", "\n- new\n", "- one\n- two\n- new\n"),
        (
            "- one\n- two",
            " goes on\n",
            "- one\n- two\n- two goes on\n",
        ),
    ] {
        let world = behind_world(kept);
        push(&world, "all").assert_ok();
        append(&world, written);
        world.undo("scout", UndoMode::Append).assert_ok();
        let memory = String::from_utf8(world.read_memory("scout")).unwrap();
        assert_eq!(memory, format!("{BASELINE}{expected}"));
        assert!(world.preserves("scout", written.trim().as_bytes()));
    }
}

#[test]
fn undo_of_a_push_appends_all_notes_if_kept_ones_changed() {
    let world = behind_world("- one\n- two\n");
    push(&world, "all").assert_ok();
    world.write_scratch("scout", "- two\n- new\n");
    world.undo("scout", UndoMode::Append).assert_ok();
    let memory = String::from_utf8(world.read_memory("scout")).unwrap();
    assert_eq!(memory, format!("{BASELINE}- one\n- two\n- two\n- new\n"));
}

#[test]
fn push_that_keeps_nothing_equals_a_reset() {
    let world = behind_world("- one\n");
    let plan = plan_push(&world.engine(), "none");
    let notes = &plan.steps[0].notes;
    assert!(notes.iter().any(|it| it == "keeps no scratch"), "{notes:?}");
    push(&world, "none").assert_ok();
    assert_eq!(world.read_memory("scout"), NEW_BASELINE.as_bytes());
    assert_eq!(world.observe("scout").state, State::Clean);
    push(&world, "all").assert_outcome(Outcome::Unchanged);
}

#[test]
fn notes_written_after_the_plan_are_kept() {
    let world = behind_world("- one\n");
    let engine = world.engine();
    let all = plan_push(&engine, "all");
    let line = plan_push(&engine, "7");
    append(&world, "- two\n");
    assert_eq!(plan_push(&engine, "all").hash, all.hash);
    apply_plan(&engine, &all).assert_ok();
    let expected = format!("{NEW_BASELINE}- one\n- two\n");
    assert_eq!(world.read_memory("scout"), expected.as_bytes());
    // A chosen line is still the same line when the agent has added others below it.
    world.undo("scout", UndoMode::Refuse).assert_ok();
    let ran = apply_plan(&engine, &line);
    assert!(
        world
            .read_entry(&ran.assert_ok().entries[0])
            .ends_with(b"- two\n")
    );
    assert_eq!(
        world.read_memory("scout"),
        format!("{NEW_BASELINE}- one\n").as_bytes()
    );
}

#[test]
fn changed_chosen_line_voids_the_plan() {
    for changed in ["- ONE\n- two\n", "- zero\n- one\n- two\n", "- one"] {
        let world = behind_world("- one\n- two\n");
        let engine = world.engine();
        let plan = plan_push(&engine, "8");
        world.write_memory("scout", format!("{BASELINE}{changed}"));
        let ran = apply_plan(&engine, &plan);
        assert_eq!(
            ran.assert_outcome(Outcome::Refused).kind,
            Some(ErrorKind::Conflict)
        );
        assert!(
            ran.note().contains("has changed since the plan"),
            "{}",
            ran.note()
        );
        assert_eq!(
            world.read_memory("scout"),
            format!("{BASELINE}{changed}").as_bytes()
        );
        assert!(world.entry_names("scout").is_empty());
    }
}

#[test]
fn write_between_capture_and_swap_is_archived() {
    for selection in ["all", "7"] {
        let world = behind_world("- early\n");
        let memory = world.memory_path("scout");
        let transport = InterposingTransport::new(world.disk(), move |moment| {
            if moment == TransportCall::Before("swap") {
                let mut file = fs::OpenOptions::new().append(true).open(&memory).unwrap();
                file.write_all(b"- late\n").unwrap();
            }
            Ok(())
        });
        let engine = world.engine_with_transport(transport);
        let ran = apply_plan(&engine, &plan_push(&engine, selection));
        let entries = &ran.assert_ok().entries;
        assert_eq!(entries[1].kind, EntryKind::Appended);
        assert_eq!(world.read_entry(&entries[1]), b"- late\n");
        // The kept lines are those archived first.
        let expected = format!("{NEW_BASELINE}- early\n");
        assert_eq!(world.read_memory("scout"), expected.as_bytes());
        world.undo("scout", UndoMode::Refuse).assert_ok();
        let expected = format!("{BASELINE}- early\n- late\n");
        assert_eq!(world.read_memory("scout"), expected.as_bytes());
    }
}

#[test]
fn push_without_boundary_is_refused() {
    let world = behind_world("- one\n");
    world.write_memory("scout", "nothing of the baseline\n- one\n");
    assert!(refusal(&world, "all").contains("no separator"));
    assert!(refusal(&world, "2").contains("no separator"));
    let ran = push(&world, "none");
    assert_eq!(ran.assert_ok().entries[0].kind, EntryKind::FullBackup);
    assert_eq!(world.read_memory("scout"), NEW_BASELINE.as_bytes());
    // Drift without a separator leaves no scratch to tell from it.
    world.set_baseline("scout", "# Tools\n- use the sandbox\n");
    world.write_memory("scout", "# Tools\n- use production\n- mine\n");
    assert!(refusal(&world, "all").contains("no separator"));
}

#[test]
fn notes_below_edited_rules_are_kept() {
    let world = behind_world("- one\n");
    let drifted = BASELINE.replace("kind", "cruel") + "- one\n";
    world.write_memory("scout", &drifted);
    let plan = plan_push(&world.engine(), "all");
    assert!(plan.steps[0].is_confirmation_typed);
    assert_eq!(plan.steps[0].entry_kind, Some(EntryKind::FullBackup));
    let ran = push(&world, "all");
    assert_eq!(
        world.read_entry(&ran.assert_ok().entries[0]),
        drifted.as_bytes()
    );
    assert_eq!(
        world.read_memory("scout"),
        format!("{NEW_BASELINE}- one\n").as_bytes()
    );
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), drifted.as_bytes());
}

#[test]
fn push_without_separator_keeps_what_was_added() {
    let world = World::new(&["scout"]);
    world.set_baseline("scout", "# Tools\n- use the sandbox");
    world.reset().assert_ok();
    world.write_scratch("scout", "\n- one\n");
    let before = world.read_memory("scout");
    world.set_baseline("scout", "# Tools\n- use the sandbox\n- ask first");
    let ran = push(&world, "all");
    let entry = &ran.assert_ok().entries[0];
    assert_eq!(world.read_entry(entry), before);
    let expected = b"# Tools\n- use the sandbox\n- ask first\n- one\n";
    assert_eq!(world.read_memory("scout"), expected);
    assert_eq!(world.observe("scout").state, State::Scratch);
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), before);
}

#[test]
fn current_baseline_leaves_nothing_to_push() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- one\n");
    let inode = || fs::metadata(world.memory_path("scout")).unwrap();
    let before = std::os::unix::fs::MetadataExt::ino(&inode());
    let plan = plan_push(&world.engine(), "all");
    assert_eq!((plan.steps.len(), plan.skipped[0].kind), (0, None));
    push(&world, "all").assert_outcome(Outcome::Unchanged);
    assert_eq!(std::os::unix::fs::MetadataExt::ino(&inode()), before);
    assert!(world.entry_names("scout").is_empty());
    // A line less is a change.
    append(&world, "- two\n");
    push(&world, "8").assert_ok();
    assert_eq!(
        world.read_memory("scout"),
        format!("{BASELINE}- two\n").as_bytes()
    );
}

#[test]
fn missing_memory_is_created_by_push() {
    let world = World::new(&["scout"]);
    assert!(refusal(&world, "8").contains("no memory file"));
    let plan = plan_push(&world.engine(), "all");
    assert_eq!(plan.steps[0].action, StepAction::Create);
    push(&world, "all").assert_ok();
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.observe("scout").state, State::Missing);
}

#[test]
fn object_in_place_of_memory_keeps_nothing() {
    let world = behind_world("- one\n");
    fs::remove_file(world.memory_path("scout")).unwrap();
    super::engine::make_fifo(&world.memory_path("scout"));
    let plan = plan_push(&world.engine(), "all");
    assert!(
        plan.skipped[0].reason.contains("a FIFO"),
        "{:?}",
        plan.skipped
    );
    push(&world, "none").assert_ok();
    assert_eq!(world.read_memory("scout"), NEW_BASELINE.as_bytes());
}

/// More notes than a run holds in memory.
#[test]
fn long_scratch_is_kept_whole() {
    let notes = "- a line of an agent's\n".repeat(150_000) + "- no newline";
    let world = behind_world(&notes);
    let before = world.read_memory("scout");
    let plan = plan_push(&world.engine(), "all");
    let oversize = plan.steps[0]
        .notes
        .iter()
        .any(|it| it.starts_with("OVERSIZE afterwards"));
    assert!(oversize, "{:?}", plan.steps[0].notes);
    push(&world, "all").assert_ok();
    assert!(world.read_memory("scout") == [NEW_BASELINE, &notes].concat().as_bytes());
    push(&world, "all").assert_outcome(Outcome::Unchanged);
    assert!(refusal(&world, "140000").contains("where lines can be chosen"));
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert!(world.read_memory("scout") == before);
}

#[test]
fn line_numbers_for_several_agents_are_refused() {
    let world = World::new(&["ranger", "scout"]);
    let names = ["ranger".to_string(), "scout".to_string()];
    let error = world
        .engine()
        .planner()
        .plan_push(&names, &"8".parse().unwrap(), false)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::User);
    let all = world
        .engine()
        .planner()
        .plan_push(&names, &ScratchSelection::All, false);
    assert!(all.unwrap().is_whole_fleet);
}

#[test]
fn plans_of_different_selections_differ() {
    let world = behind_world("- one\n- two\n");
    let hash = |selection| plan_push(&world.engine(), selection).hash;
    let reset = world
        .engine()
        .planner()
        .plan_reset(&["scout".to_string()], false);
    let hashes = [
        hash("all"),
        hash("none"),
        hash("7"),
        hash("8"),
        reset.unwrap().hash,
    ];
    let distinct: std::collections::BTreeSet<&String> = hashes.iter().collect();
    assert_eq!(distinct.len(), hashes.len());
}

#[test]
fn history_shows_what_a_push_installed() {
    for selection in ["all", "7", "none"] {
        let world = behind_world("- one\n- two\n");
        push(&world, selection).assert_ok();
        let pushed = world.read_memory("scout");
        // Later runs hold no copy of it.
        world.write_memory("scout", "other\n");
        let engine = world.engine();
        let agent = engine.agent("scout").unwrap();
        let seq = world.read_records().last().unwrap().seq;
        let diff = engine.history().run_diff(agent, seq).unwrap();
        assert_eq!(diff.after, RunDiffSide::Text(pushed, 0), "{selection}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever an agent wrote: a push keeps it below the new rules, and undo restores all of it.
    #[test]
    fn push_and_undo_lose_nothing(
        notes in prop::collection::vec(any::<u8>(), 0..200),
        selection in "all|none|7|7-8",
    ) {
        let world = behind_world(&notes);
        let before = world.read_memory("scout");
        let plan = plan_push(&world.engine(), &selection);
        let ran = apply_plan(&world.engine(), &plan);
        if ran.report.results[0].outcome == Outcome::Ok {
            let after = world.read_memory("scout");
            prop_assert!(after.starts_with(NEW_BASELINE.as_bytes()));
            if selection == "all" {
                prop_assert_eq!(&after[NEW_BASELINE.len()..], notes.as_slice());
            }
            prop_assert!(world.preserves("scout", &notes));
            let last = world.read_records().pop().unwrap().event;
            let is_file = matches!(last.change.after, Some(FileState::File { .. }));
            prop_assert!(is_file);
            world.undo("scout", UndoMode::Refuse).assert_ok();
        }
        prop_assert_eq!(world.read_memory("scout"), before);
    }
}
