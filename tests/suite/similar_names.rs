//! Missing memories beside a file of nearly the same name.

use std::fs;
use std::path::PathBuf;

use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Outcome, State, UndoMode};

use super::world::{BASELINE, World};

fn path_beside(world: &World, name: &str) -> PathBuf {
    world.agent_directory("scout").join(name)
}

fn scout_name() -> [String; 1] {
    ["scout".to_string()]
}

/// A world whose memory has another name than the config says.
fn world_with_lower_case_memory() -> World {
    let world = World::new(&["scout"]);
    let notes = format!("{BASELINE}- note\n");
    fs::write(path_beside(&world, "memory.md"), notes).unwrap();
    world
}

#[test]
fn memory_in_other_case_is_refused() {
    let world = world_with_lower_case_memory();
    let seen = world.observe("scout");
    assert_eq!(seen.state, State::Missing);
    assert!(
        seen.reason.contains("memory.md is there"),
        "{}",
        seen.reason
    );
    assert_eq!(seen.blocker.unwrap().kind, ErrorKind::Conflict);
    world.reset().assert_outcome(Outcome::Refused);
    // As a timer does, without a plan.
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_unobserved(&scout_name(), false)
        .unwrap();
    let report = engine
        .runs()
        .apply_plan(&plan, false, &false.into(), &mut |_| ());
    assert_eq!(report.worst_kind(), Some(ErrorKind::Conflict));
    assert!(!world.memory_path("scout").exists());
    let [(agent, error)] = engine
        .memory_checks()
        .misplaced_memories()
        .try_into()
        .unwrap();
    assert_eq!(agent.name, "scout");
    assert!(error.message().contains("memory.md"), "{error}");
}

#[test]
fn agent_cannot_avoid_reset_by_renaming_its_memory() {
    let world = World::new(&["scout"]);
    world.write_scratch("scout", "- note\n");
    world.reset().assert_ok();
    fs::rename(world.memory_path("scout"), path_beside(&world, "memory.md")).unwrap();
    let seen = world.observe("scout");
    assert_eq!((seen.state, seen.blocker), (State::Missing, None));
    assert!(
        seen.reason.contains("memory.md is there"),
        "{}",
        seen.reason
    );
    let plan = world
        .engine()
        .planner()
        .plan_reset(&scout_name(), false)
        .unwrap();
    let notes = plan.steps[0].notes.join("; ");
    assert!(notes.contains("a reset leaves it unread"), "{notes}");
    let ran = world.reset();
    ran.assert_ok();
    assert!(ran.note().contains("memory.md"), "{}", ran.note());
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    // An undo takes the memory away that the reset has created, and a redo creates it.
    world.undo("scout", UndoMode::Refuse).assert_ok();
    world.redo("scout").assert_ok();
}

#[test]
fn other_objects_do_not_refuse_a_missing_memory() {
    let world = World::new(&["scout"]);
    fs::create_dir(path_beside(&world, "memory.md")).unwrap();
    for name in ["MEMORY.md.bak", "memory.txt", "MEMORY2.md"] {
        fs::write(path_beside(&world, name), "other").unwrap();
    }
    let seen = world.observe("scout");
    assert_eq!(seen.reason, "no memory file");
    assert_eq!(seen.blocker, None);
    world.reset().assert_ok();
}
