//! The observations that a session saves for the first screen of the next one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use memory_shepherd::config::Agent;
use memory_shepherd::engine::{Engine, Observation};

use super::world::{BASELINE, World};

fn saved_path(world: &World) -> PathBuf {
    world.archive_directory().join(".shepherd/fleet.jsonl")
}

fn observe(engine: &Engine) -> Vec<Observation> {
    let agents: Vec<&Agent> = engine.config().agents.iter().collect();
    engine.observer().observe_all(&agents)
}

/// A fleet whose observations are saved, and these.
fn saved_world() -> (World, Vec<Observation>) {
    let world = World::new(&["a", "b", "c"]);
    world.write_scratch("a", "");
    world.write_scratch("b", "- a note\n");
    let engine = world.engine();
    let seen = observe(&engine);
    engine.observer().save_observations(&seen).unwrap();
    (world, seen)
}

/// Observes `b` after a session whose findings in its memory were others than those of a scan.
fn secrets_after_restart(world: &World) -> u64 {
    let engine = world.engine();
    engine.observer().load_observations();
    let seen = engine.observer().observe(engine.agent("b").unwrap());
    seen.content.unwrap().findings.secrets
}

#[test]
fn findings_are_kept_for_the_same_text_alone() {
    const MARK: u64 = 41;
    let (world, mut seen) = saved_world();
    let allowed = world.root.join("allow.toml");
    fs::write(&allowed, "").unwrap();
    let mut world = world.with_general("[lint]\nallow = allow.toml");
    let engine = world.engine();
    seen[1] = engine.observer().observe(engine.agent("b").unwrap());
    seen[1].content.as_mut().unwrap().findings.secrets = MARK;
    engine.observer().save_observations(&seen).unwrap();
    assert_eq!(secrets_after_restart(&world), MARK);
    // A new stamp alone changes nothing.
    let engine = world.engine();
    engine.observer().load_observations();
    let agent = engine.agent("b").unwrap();
    engine.observer().observe(agent);
    fs::write(world.memory_path("b"), world.read_memory("b")).unwrap();
    assert_eq!(
        engine
            .observer()
            .observe(agent)
            .content
            .unwrap()
            .findings
            .secrets,
        MARK
    );
    // Another user may have written it.
    for (mode, found) in [(0o662, 0), (0o620, 0), (0o640, MARK)] {
        fs::set_permissions(saved_path(&world), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(secrets_after_restart(&world), found, "{mode:o}");
    }
    // What a scan depends on.
    fs::write(&allowed, "# other decisions\n").unwrap();
    assert_eq!(secrets_after_restart(&world), 0);
    fs::write(&allowed, "").unwrap();
    assert_eq!(secrets_after_restart(&world), MARK);
    world.set_baseline("b", format!("{BASELINE}- a note\n"));
    assert_eq!(secrets_after_restart(&world), 0);
    world.set_baseline("b", BASELINE);
    world.write_scratch("b", "- b note\n");
    assert_eq!(secrets_after_restart(&world), 0);
    world.write_scratch("b", "- a note\n");
    assert_eq!(secrets_after_restart(&world), MARK);
    world.add_agent("d", "");
    assert_eq!(secrets_after_restart(&world), 0);
}

fn load(world: &World) -> Vec<Observation> {
    let loaded = world.engine().observer().load_observations().into_iter();
    loaded.map(|seen| *seen).collect()
}

fn names(seen: &[Observation]) -> Vec<&str> {
    seen.iter().map(|seen| seen.agent.as_str()).collect()
}

#[test]
fn saved_observations_are_loaded_as_they_were() {
    let (world, seen) = saved_world();
    assert_eq!(load(&world), seen);
    // A later session replaces them.
    let engine = world.engine();
    engine.observer().save_observations(&seen[..1]).unwrap();
    assert_eq!(load(&world), seen[..1]);
}

#[test]
fn damaged_line_costs_only_its_agent() {
    let (world, seen) = saved_world();
    let text = fs::read_to_string(saved_path(&world)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    let damaged = format!("{}\n{{\"agent\":\n{}", lines[0], lines[2]);
    fs::write(saved_path(&world), damaged).unwrap();
    let loaded = load(&world);
    assert_eq!(names(&loaded), ["a", "c"]);
    assert_eq!(loaded[0], seen[0]);
    for garbage in [&b""[..], b"\n\n", b"\xff\xfe\n[]\n{}\n", b"null"] {
        fs::write(saved_path(&world), garbage).unwrap();
        assert_eq!(load(&world), []);
    }
    fs::remove_file(saved_path(&world)).unwrap();
    assert_eq!(load(&world), []);
}
