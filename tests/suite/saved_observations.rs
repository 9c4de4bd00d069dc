//! The observations that a session saves for the first screen of the next one.

use std::fs;
use std::path::PathBuf;

use memory_shepherd::config::Agent;
use memory_shepherd::engine::{Engine, Observation};

use super::world::World;

fn saved_path(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd/fleet.jsonl")
}

fn observe(engine: &Engine) -> Vec<Observation> {
    let agents: Vec<&Agent> = engine.config().agents.iter().collect();
    engine.observe_all(&agents)
}

/// A fleet whose observations are saved, and these.
fn saved_world() -> (World, Vec<Observation>) {
    let world = World::new(&["a", "b", "c"]);
    world.write_scratch("a", "");
    world.write_scratch("b", "- a note\n");
    let engine = world.engine();
    let seen = observe(&engine);
    engine.save_observations(&seen).unwrap();
    (world, seen)
}

fn names(seen: &[Observation]) -> Vec<&str> {
    seen.iter().map(|seen| seen.agent.as_str()).collect()
}

#[test]
fn saved_observations_are_loaded_as_they_were() {
    let (world, seen) = saved_world();
    assert_eq!(world.engine().load_observations(), seen);
    // A later session replaces them.
    let engine = world.engine();
    engine.save_observations(&seen[..1]).unwrap();
    assert_eq!(world.engine().load_observations(), seen[..1]);
}

#[test]
fn damaged_line_costs_only_its_agent() {
    let (world, seen) = saved_world();
    let text = fs::read_to_string(saved_path(&world)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    let damaged = format!("{}\n{{\"agent\":\n{}", lines[0], lines[2]);
    fs::write(saved_path(&world), damaged).unwrap();
    let loaded = world.engine().load_observations();
    assert_eq!(names(&loaded), ["a", "c"]);
    assert_eq!(loaded[0], seen[0]);
    for garbage in [&b""[..], b"\n\n", b"\xff\xfe\n[]\n{}\n", b"null"] {
        fs::write(saved_path(&world), garbage).unwrap();
        assert_eq!(world.engine().load_observations(), []);
    }
    fs::remove_file(saved_path(&world)).unwrap();
    assert_eq!(world.engine().load_observations(), []);
}

#[test]
fn file_of_earlier_versions_is_removed() {
    let (world, seen) = saved_world();
    let old = world.archive_directory().join(".shepherd/fleet.json");
    fs::write(&old, "[]").unwrap();
    world.engine().save_observations(&seen).unwrap();
    assert!(!old.exists());
    assert_eq!(world.engine().load_observations(), seen);
}
