//! Lint, boundary, plan, push, entry and undo read the separator of a baseline in the same way,
//! whatever stands around it.

#[path = "../support/odd_baselines.rs"]
pub mod samples;

use memory_shepherd::archive::{EntryKind, strip_scratch_header};
use memory_shepherd::boundary::Baseline;
use memory_shepherd::engine::{Outcome, ScratchSelection, State, UndoMode, lint_text};
use memory_shepherd::lint::{LintSettings, RuleId, TextRole};
use proptest::prelude::*;
use samples::ODD_BASELINES;

use crate::world::{World, apply_plan};

const NOTE: &str = "- a note\n";

/// A world whose agent has a baseline and a memory that a reset made.
fn world_with(baseline: &str) -> World {
    let world = World::new(&["scout"]);
    world.set_baseline("scout", baseline);
    world.reset().assert_ok();
    world
}

/// Pushes the baseline to the agent, with all of its notes.
fn push_with_notes(world: &World) {
    let engine = world.engine();
    let names = ["scout".to_string()];
    let plan = engine
        .planner()
        .plan_push(&names, &ScratchSelection::All, false);
    let plan = plan.unwrap();
    assert_eq!(plan.steps.len(), 1, "{:?}", plan.skipped);
    apply_plan(&engine, &plan).assert_ok();
}

/// Undoes the last run, which had found this memory.
fn assert_undo_restores(world: &World, memory: &str) {
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(String::from_utf8_lossy(&world.read_memory("scout")), memory);
}

/// Asserts that status takes the memory for one whose rules the agent has changed.
fn assert_rules_differ(world: &World, baseline: &str) {
    let state = world.observe("scout").state;
    assert!(
        matches!(state, State::Drifted | State::NoSep),
        "{baseline:?}: {state:?}"
    );
}

fn separator_line(text: &str) -> Option<usize> {
    let baseline = Baseline::new(text.as_bytes().to_vec(), "---");
    baseline.separator_line().map(|cut| cut.line)
}

/// Returns a memory of this baseline with a note below it.
fn with_note(baseline: &str) -> String {
    let line_end = if baseline.ends_with('\n') { "" } else { "\n" };
    format!("{baseline}{line_end}{NOTE}")
}

/// Asserts that status, plan, entry and undo agree about a memory with notes.
fn assert_notes_are_archived(world: &World, baseline: &str, memory: &str) {
    world.write_memory("scout", memory);
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Scratch, "{baseline:?}: {}", seen.reason);
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    let step = &plan.steps[0];
    apply_plan(&engine, &plan).assert_ok();
    assert_eq!(world.read_memory("scout"), baseline.as_bytes());
    let written = world
        .read_records()
        .pop()
        .unwrap()
        .event
        .change
        .entry
        .unwrap();
    assert_eq!(Some(written.kind), step.entry_kind, "{baseline:?}");
    let entry = world.read_entry(&written);
    let archived = strip_scratch_header(&entry)
        .filter(|_| written.kind == EntryKind::Scratch)
        .unwrap_or(&entry);
    let tail = Baseline::new(baseline.into(), "---").tail().len();
    let own = match written.kind {
        EntryKind::Scratch => archived.len() - tail,
        _ => archived.len(),
    };
    assert_eq!(own as u64, step.archive_bytes, "{baseline:?}");
    assert!(memory.as_bytes().ends_with(archived));
    assert_eq!(
        written.kind == EntryKind::FullBackup,
        archived.len() == memory.len()
    );
    assert_undo_restores(world, memory);
}

/// Asserts that a rule which an agent removes is drift, also after the baseline has got a separator.
fn assert_removed_rule_is_drift(world: &World, baseline: &str) {
    let without_rule = with_note(baseline).replace("- RULE", "");
    world.write_memory("scout", &without_rule);
    assert_rules_differ(world, baseline);
    world.set_baseline("scout", format!("{baseline}\n\n---\n"));
    assert_rules_differ(world, baseline);
}

/// Asserts that a push installs a new rule and keeps the notes.
fn assert_push_keeps_notes(world: &World, baseline: &str) {
    world.set_baseline("scout", baseline);
    world.reset().assert_outcome(Outcome::Ok);
    world.write_memory("scout", with_note(baseline));
    let new = baseline.replace("- RULE", "- NEW\n- RULE");
    world.set_baseline("scout", &new);
    assert_eq!(world.observe("scout").state, State::Behind, "{baseline:?}");
    push_with_notes(world);
    assert_eq!(
        String::from_utf8(world.read_memory("scout")).unwrap(),
        with_note(&new)
    );
}

/// Asserts that every part of the program reads a baseline in the same way.
fn assert_readings_agree(baseline: &str) {
    let line = separator_line(baseline);
    let report = lint_text(
        "scout.md".as_ref(),
        baseline.into(),
        TextRole::Baseline,
        "---",
        &LintSettings::default(),
    );
    let findings = report.report.findings.iter();
    let is_missing = findings
        .clone()
        .any(|it| it.rule == RuleId::SeparatorMissing);
    assert_eq!(is_missing, line.is_none(), "{baseline:?}");
    let world = world_with(baseline);
    let untouched = world.observe("scout");
    assert_eq!(untouched.state, State::Clean, "{baseline:?}");
    assert_eq!(untouched.content.unwrap().findings.injections, 0);
    assert_notes_are_archived(&world, baseline, &with_note(baseline));
    assert_removed_rule_is_drift(&world, baseline);
    assert_push_keeps_notes(&world, baseline);
}

#[test]
fn odd_baselines_have_their_separator() {
    for odd in ODD_BASELINES {
        assert_eq!(separator_line(odd.text), odd.separator_line, "{}", odd.name);
    }
}

#[test]
fn readings_of_odd_baselines_agree() {
    for odd in ODD_BASELINES {
        assert_readings_agree(odd.text);
    }
}

/// Replaces LF by CR LF, or the other way round.
fn with_other_line_ends(text: &str) -> String {
    if text.contains("\r\n") {
        text.replace("\r\n", "\n")
    } else {
        text.replace('\n', "\r\n")
    }
}

#[test]
fn other_line_ends_of_odd_baselines_are_clean() {
    for odd in ODD_BASELINES.iter().filter(|it| it.text.contains('\n')) {
        let world = world_with(odd.text);
        let memory = with_other_line_ends(odd.text);
        world.write_memory("scout", &memory);
        let seen = world.observe("scout");
        assert_eq!(seen.state, State::Clean, "{}: {}", odd.name, seen.reason);
        assert!(
            seen.reason.contains("line ends"),
            "{}: {}",
            odd.name,
            seen.reason
        );
        world.reset().assert_outcome(Outcome::Unchanged);
        assert_eq!(
            world.read_memory("scout"),
            memory.as_bytes(),
            "{}",
            odd.name
        );
        let noted = format!("{memory}\r\n{NOTE}");
        assert_notes_are_archived(&world, odd.text, &noted);
        push_with_notes(&world);
        let pushed = world.read_memory("scout");
        assert!(pushed.starts_with(odd.text.as_bytes()), "{}", odd.name);
        assert!(pushed.ends_with(NOTE.as_bytes()), "{}", odd.name);
        assert_undo_restores(&world, &noted);
    }
}

#[test]
fn push_installs_line_ends_of_the_baseline() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    let baseline = String::from_utf8(world.read_memory("scout")).unwrap();
    let memory = with_other_line_ends(&baseline);
    world.write_memory("scout", &memory);
    push_with_notes(&world);
    assert_eq!(world.read_memory("scout"), baseline.as_bytes());
    assert!(world.preserves("scout", memory.as_bytes()));
    assert_undo_restores(&world, &memory);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn readings_of_any_baseline_agree(
        above in "(---\n|a: b\n|\n|text\n|# head\n|- item\n|  more\n|> q\n|```\n|~~~\n|<!--\n|-->\n|\\|a\\|\n|\\|---\\|\n){0,9}",
        below in "(---\n|\n|text\n|# head\n|- item\n|```\n|<!--\n|-->\n|===\n){0,6}",
    ) {
        let baseline = format!("{above}- RULE of mine\n{below}");
        // A rule below the separator is not protected.
        let cut = Baseline::new(baseline.clone().into_bytes(), "---");
        prop_assume!(cut.operator_part().windows(6).any(|it| it == b"- RULE"));
        assert_readings_agree(&baseline);
    }
}
