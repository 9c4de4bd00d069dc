//! The observations that a session saves for the first screen of the next one.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use memory_shepherd::config::Agent;
use memory_shepherd::engine::{Engine, Observation, State};

use super::world::{BASELINE, World};

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
    assert_eq!(lines.len(), 4);
    let damaged = format!("{}\n{}\n{{\"seen\":\n{}", lines[0], lines[1], lines[3]);
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

/// Replaces words in the saved file.
fn edit_saved(world: &World, from: &str, to: &str) {
    let text = fs::read_to_string(saved_path(world)).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(saved_path(world), text.replace(from, to)).unwrap();
}

/// A fleet as in [`saved_world`], long after the last write, whose saved classification says that the
/// memory of `b` has drifted.
fn world_with_edited_state() -> World {
    let world = World::new(&["a", "b", "c"]);
    world.write_scratch("b", "- a note\n");
    world.clock.advance(Duration::from_secs(100 * 365 * 86_400));
    let engine = world.engine();
    let seen = observe(&engine);
    assert_eq!(seen[1].state, State::Scratch);
    engine.save_observations(&seen).unwrap();
    edit_saved(&world, "SCRATCH", "DRIFTED");
    world
}

fn state_after_load(engine: &Engine) -> State {
    engine.load_observations();
    observe(engine)[1].state
}

#[test]
fn unchanged_memory_is_not_read_by_a_later_session() {
    let world = world_with_edited_state();
    assert_eq!(observe(&world.engine())[1].state, State::Scratch);
    assert_eq!(state_after_load(&world.engine()), State::Drifted);
    // Not even by the one after it.
    let engine = world.engine();
    engine.load_observations();
    let seen = observe(&engine);
    engine.save_observations(&seen).unwrap();
    assert_eq!(state_after_load(&world.engine()), State::Drifted);
}

#[test]
fn changed_memory_is_read_by_a_later_session() {
    let world = world_with_edited_state();
    world.write_scratch("b", "- a nite\n");
    assert_eq!(state_after_load(&world.engine()), State::Scratch);
    // A file with the same size and time of change in its place.
    let world = world_with_edited_state();
    let memory = world.memory_path("b");
    let copy = memory.with_extension("copy");
    let times = fs::metadata(&memory).unwrap().modified().unwrap();
    fs::copy(&memory, &copy).unwrap();
    fs::File::open(&copy).unwrap().set_modified(times).unwrap();
    fs::rename(&copy, &memory).unwrap();
    assert_eq!(state_after_load(&world.engine()), State::Scratch);
}

#[test]
fn other_program_config_or_baseline_reads_again() {
    let world = world_with_edited_state();
    edit_saved(&world, env!("CARGO_PKG_VERSION"), "0.0.0");
    assert_eq!(state_after_load(&world.engine()), State::Scratch);
    let world = world_with_edited_state().with_general("min_baseline_size = 2");
    assert_eq!(state_after_load(&world.engine()), State::Scratch);
    let world = world_with_edited_state();
    world.set_baseline("b", BASELINE.replace("\n---", "\n- be fast\n---"));
    let state = state_after_load(&world.engine());
    assert_eq!(state, observe(&world.engine())[1].state);
}

#[test]
fn decisions_of_the_lint_keep_classifications_from_later_use() {
    let world = World::new(&["a", "b"]).with_general("[lint]\nallow = allow.toml");
    world.write_scratch("b", "- a note\n");
    world.clock.advance(Duration::from_secs(100 * 365 * 86_400));
    let engine = world.engine();
    engine.save_observations(&observe(&engine)).unwrap();
    let text = fs::read_to_string(saved_path(&world)).unwrap();
    assert!(
        text.contains("SCRATCH") && !text.contains("classified"),
        "{text}"
    );
}
