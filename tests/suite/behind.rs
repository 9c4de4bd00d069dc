//! Memories that hold an earlier version of the baseline, and baselines without a separator.

use memory_shepherd::archive::EntryKind;
use memory_shepherd::engine::{AgentDetail, State, UndoMode};

use super::world::{BASELINE, World};

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
fn behind_agent_compares_old_rules_with_new() {
    let world = World::new(&["scout"]);
    world.reset().assert_ok();
    world.write_scratch("scout", "- note\n");
    let new = BASELINE.replace("brief", "exact");
    world.set_baseline("scout", &new);
    let engine = world.engine();
    let agent = engine.agent("scout").unwrap();
    let parts = |detail: &AgentDetail| detail.compared_parts().map(|it| it.map(<[u8]>::to_vec));
    let detail = engine.read_detail(agent);
    let [old, next] = parts(&detail).unwrap();
    assert_eq!(
        (old.as_slice(), next.as_slice()),
        (BASELINE.as_bytes(), new.as_bytes())
    );
    world.reset().assert_ok();
    let detail = engine.read_detail(agent);
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
