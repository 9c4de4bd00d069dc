//! Memories that hold an earlier version of the baseline, and baselines without a separator.

use std::fs;
use std::time::Duration;

use memory_shepherd::archive::EntryKind;
use memory_shepherd::base::diff::drift::LineChange;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::engine::{Outcome, SealScope, State, TextOrigin, Trigger, UndoMode};

use super::world::{BASELINE, World, apply_plan};

#[test]
fn untouched_memory_of_old_version_is_behind() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Behind);
    assert_eq!(seen.content.unwrap().scratch_lines, 0);
    // The rules are the same, the text below them is not.
    world.set_baseline("scout", format!("{BASELINE}## Notes\n"));
    assert_eq!(world.observe("scout").state, State::Behind);
    // A version that was never pushed to this agent is its own work.
    world.set_baseline("scout", "# Rules\n\n- be kind\n\n---\n");
    world.write_memory("scout", BASELINE.replace("brief", "exact"));
    assert_eq!(world.observe("scout").state, State::Drifted);
}

#[test]
fn unreset_memory_of_sealed_version_is_behind() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", format!("{BASELINE}- note\n"));
    let seal = || {
        let engine = world.engine();
        let plan = engine.seals().plan_seal(&SealScope::All, false).unwrap();
        engine.seals().apply_seal(&plan, None).unwrap();
    };
    seal();
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    seal();
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Behind, "{}", seen.reason);
    assert_eq!(seen.content.as_ref().unwrap().scratch_lines, 1);
    let listed_behind = || {
        let list = world.engine().baseline_catalog().list_baselines();
        list.baselines[0].behind.clone()
    };
    assert!(listed_behind().is_empty(), "not seen yet");
    let seen = std::slice::from_ref(&seen);
    world.engine().observations().record(seen, Trigger::Cli);
    assert_eq!(listed_behind(), ["scout"]);
    // An edit of the agent is measured against what the baseline is now.
    world.write_memory("scout", BASELINE.replace("brief", "rude"));
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Drifted);
    assert_eq!(seen.reason, "rules edited: L4");
    world.write_memory("scout", format!("{BASELINE}- note\n"));
    world.reset().assert_ok();
    let recorded = world.read_records().pop().unwrap().event;
    assert_eq!(recorded.change.entry.unwrap().kind, EntryKind::Scratch);
}

#[test]
fn unreset_memory_of_saved_version_is_behind() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    let engine = world.engine();
    let newer = BASELINE.replace("brief", "exact");
    let writer = engine.baseline_files().begin_baseline_change().unwrap();
    let expected = Some(Digest::of(BASELINE.as_bytes()));
    writer
        .save("scout.md", newer.as_bytes(), expected, TextOrigin::Operator)
        .unwrap();
    drop(writer);
    assert_eq!(world.observe("scout").state, State::Behind);
    let agent = engine.agent("scout").unwrap();
    let compared = engine.history().compare_rules(agent).unwrap();
    assert_eq!(compared.rules.agent_changes().count(), 0);
}

#[test]
fn version_saved_after_other_runs_is_known() {
    let world = World::new(&["ranger", "scout"]);
    let versions = ["exact", "fast"].map(|word| BASELINE.replace("brief", word));
    world.write_memory("scout", &versions[0]);
    let engine = world.engine();
    let state = || {
        let agent = engine.agent("scout").unwrap();
        engine.observer().observe(agent).state
    };
    assert_eq!(state(), State::Drifted, "not saved yet");
    world.write_scratch("ranger", "- note\n");
    let ranger = ["ranger".to_string()];
    apply_plan(
        &engine,
        &engine.planner().plan_reset(&ranger, false).unwrap(),
    )
    .assert_ok();
    assert_eq!(state(), State::Drifted, "the run saved no version");
    let writer = engine.baseline_files().begin_baseline_change().unwrap();
    let mut expected = Digest::of(BASELINE.as_bytes());
    for version in &versions {
        let saved = version.as_bytes();
        writer
            .save("scout.md", saved, Some(expected), TextOrigin::Operator)
            .unwrap();
        expected = Digest::of(saved);
    }
    drop(writer);
    assert_eq!(state(), State::Behind);
}

#[test]
fn version_that_can_be_read_again_is_used() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    // Long after the last write.
    world.clock.advance(Duration::from_secs(100 * 365 * 86_400));
    let engine = world.engine();
    let agent = engine.agent("scout").unwrap();
    let name = format!("{}.md", Digest::of(BASELINE.as_bytes()));
    let version = world
        .archive_directory()
        .join(".shepherd/baselines")
        .join(name);
    let elsewhere = world.root.join("version");
    fs::rename(&version, &elsewhere).unwrap();
    assert_eq!(engine.observer().observe(agent).state, State::Drifted);
    fs::rename(&elsewhere, &version).unwrap();
    assert_eq!(engine.observer().observe(agent).state, State::Behind);
}

#[test]
fn found_version_is_behind_once_baseline_changes() {
    let names = ["scout".to_string()];
    for is_observed in [true, false] {
        let world = World::new(&["scout"]);
        world.write_memory("scout", BASELINE);
        let engine = world.engine();
        let plan = match is_observed {
            true => engine.planner().plan_reset(&names, false),
            false => engine.planner().plan_unobserved(&names, false),
        };
        let report =
            engine
                .runs()
                .apply_plan(&plan.unwrap(), is_observed, &false.into(), &mut |_| ());
        assert_eq!(report.results[0].outcome, Outcome::Unchanged);
        let recorded = || world.read_records().pop().unwrap().event.baseline;
        assert_eq!(recorded(), Some(Digest::of(BASELINE.as_bytes())));
        // Once is enough.
        world.reset().assert_outcome(Outcome::Unchanged);
        assert_eq!(recorded(), None);
        world.write_scratch("scout", "- note\n");
        world.set_baseline("scout", BASELINE.replace("brief", "exact"));
        assert_eq!(world.observe("scout").state, State::Behind);
    }
}

#[test]
fn version_changed_after_the_plan_is_not_recorded() {
    let world = World::new(&["scout"]);
    world.write_memory("scout", BASELINE);
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    apply_plan(&engine, &plan).assert_outcome(Outcome::Unchanged);
    assert_eq!(world.read_records().pop().unwrap().event.baseline, None);
}

#[test]
fn behind_agent_compares_old_rules_with_new() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.write_scratch("scout", "- note\n");
    let new = BASELINE.replace("brief", "exact");
    world.set_baseline("scout", &new);
    let engine = world.engine();
    let agent = engine.agent("scout").unwrap();
    let detail = engine.observer().read_detail(agent);
    let (old, next) = detail.compared_parts().unwrap();
    assert_eq!((&*old, next), (BASELINE.as_bytes(), new.as_bytes()));
    world.reset().assert_ok();
    let detail = engine.observer().read_detail(agent);
    assert_eq!(detail.next_operator_part, None);
}

#[test]
fn scratch_without_separator_is_archived_with_all() {
    let world = World::new(&["scout"]);
    let baseline = "# Tools\n\n- use the sandbox\n";
    world.set_baseline("scout", baseline);
    world.write_scratch("scout", "- a note\n---\n- another\n");
    let seen = world.observe("scout");
    assert_eq!((seen.state, seen.reason.as_str()), (State::Scratch, ""));
    assert_eq!(seen.content.unwrap().scratch_lines, 3);
    let plan = world
        .engine()
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    assert_eq!(plan.steps[0].entry_kind, Some(EntryKind::FullBackup));
    assert!(!plan.steps[0].is_confirmation_typed);
    let memory = world.read_memory("scout");
    assert_eq!(plan.steps[0].archive_bytes, memory.len() as u64);
    let ran = world.reset();
    let entry = &ran.assert_ok().entries[0];
    assert_eq!(entry.kind, EntryKind::FullBackup);
    assert_eq!(world.read_entry(entry), memory);
    assert_eq!(world.read_memory("scout"), baseline.as_bytes());
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), memory);
    // A changed rule is drift, as before.
    world.write_memory("scout", "# Tools\n\n- use production\n- a note\n");
    assert_eq!(world.observe("scout").state, State::Drifted);
}

#[test]
fn notes_without_separator_are_appended_by_undo() {
    let world = World::new(&["scout"]);
    world.set_baseline("scout", "# Tools\n\n- use the sandbox\n");
    world.write_scratch("scout", "- old\n");
    world.reset().assert_ok();
    world.write_scratch("scout", "- new\n");
    world.undo("scout", UndoMode::Append).assert_ok();
    let expected = b"# Tools\n\n- use the sandbox\n- old\n- new\n";
    assert_eq!(world.read_memory("scout"), expected);
}

#[test]
fn rules_are_compared_with_those_pushed_last() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    world.write_memory("scout", BASELINE.replace("kind", "cruel"));
    let engine = world.engine();
    let compared = engine
        .history()
        .compare_rules(engine.agent("scout").unwrap())
        .unwrap();
    assert_eq!(compared.pushed, Some(Digest::of(BASELINE.as_bytes())));
    let new_text = |change: &LineChange| change.new.clone().map(|(_, text)| text);
    let operator = compared.rules.operator_changes().map(new_text);
    assert!(operator.eq([Some(b"- be exact".to_vec())]));
    let agent = compared.rules.agent_changes().map(new_text);
    assert!(agent.eq([Some(b"- be cruel".to_vec())]));
    world.reset().assert_ok();
    let history = engine.history().drift_history("scout", 10).unwrap();
    let drift: Vec<_> = history.iter().map(|it| (it.added, it.removed)).collect();
    assert_eq!(drift, [(1, 1)]);
}

#[test]
fn condition_behind_a_worse_state_is_known() {
    let world = World::new(&["scout"]).with_general("max_memory_size = 2000");
    world.reset().assert_ok();
    world.write_scratch("scout", "- a note of some length\n".repeat(200));
    world.set_baseline("scout", BASELINE.replace("brief", "exact"));
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Oversize);
    assert_eq!(seen.hidden_conditions(), [State::Behind]);
}

#[test]
fn record_counts_drift_by_kind() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    let edited = BASELINE
        .replace("brief", "exact")
        .replacen("---\n", "- one more\n\n---\n", 1);
    world.write_memory("scout", edited);
    world.reset().assert_ok();
    let drift = world.read_records().pop().unwrap().event.drift.unwrap();
    assert_eq!((drift.added, drift.edited), (1, 1));
    assert_eq!((drift.removed, drift.moved), (0, 0));
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    assert_eq!(world.read_records().pop().unwrap().event.drift, None);
}
