//! The health of memories of several files as the fleet knows it: a state or a reason, kept for other
//! processes, and checked again when it is due.

use std::fs;
use std::time::Duration;

use memory_shepherd::engine::{Engine, Observation, State};
use memory_shepherd::layouts::OperationRequest;

use super::drover_entries::{entry_with_body, write_entry};
use super::layouts::world_with_layout_agent;
use super::world::{BASELINE, World, apply_plan};

const MINUTE: Duration = Duration::from_secs(60);

/// Checks what is due, and observes an agent.
fn observe(engine: &Engine, agent: &str) -> Observation {
    let agent = engine.agent(agent).unwrap();
    engine.health().check_due(&[agent]);
    engine.observer().observe(agent)
}

fn write_note(world: &World, name: &str, text: &str) {
    fs::write(world.agent_directory("keeper").join(name), text).unwrap();
}

#[test]
fn worst_finding_is_a_reason_and_an_error_is_ill() {
    let world = world_with_layout_agent();
    let cases = [
        ("one line\n", State::Layout, "notes: healthy"),
        (
            "a\nb\nc\n",
            State::Layout,
            "notes: 1 warning: long oolong.md",
        ),
        ("", State::Ill, "notes: 1 error: empty oolong.md"),
    ];
    for (text, state, reason) in cases {
        write_note(&world, "oolong.md", text);
        world.clock.advance(11 * MINUTE);
        let seen = observe(&world.engine(), "keeper");
        assert_eq!((seen.state, seen.reason.as_str()), (state, reason));
        assert_eq!(
            seen.health.unwrap().worst.is_none(),
            reason.ends_with("healthy")
        );
    }
}

#[test]
fn health_of_a_reset_agent_hides_behind_worse_states() {
    let mut world = World::new(&["scout"]);
    let notes = world.root.join("notes");
    world.add_agent(
        "scout",
        &format!("layout = notes\nmemory_dir = {}", notes.display()),
    );
    world.write_memory("scout", BASELINE);
    let seen = observe(&world.engine(), "scout");
    assert_eq!(seen.state, State::Error);
    assert!(
        seen.reason
            .contains("cannot check its health: memory_dir does not exist"),
        "{}",
        seen.reason
    );
    fs::create_dir(&notes).unwrap();
    let seen = observe(&world.engine(), "scout");
    assert_eq!((seen.state, seen.reason.as_str()), (State::Clean, ""));
    fs::write(notes.join("empty.md"), "").unwrap();
    world.clock.advance(11 * MINUTE);
    let seen = observe(&world.engine(), "scout");
    assert_eq!(seen.state, State::Ill);
    assert!(seen.hidden_conditions().is_empty());
    world.write_memory("scout", BASELINE.replace("kind", "cruel"));
    let seen = observe(&world.engine(), "scout");
    assert_eq!(seen.state, State::Drifted);
    assert_eq!(seen.hidden_conditions(), [State::Ill]);
}

#[test]
fn check_is_kept_until_it_is_due() {
    let world = world_with_layout_agent();
    world.reset();
    assert_eq!(observe(&world.engine(), "keeper").state, State::Layout);
    write_note(&world, "empty.md", "");
    world.clock.advance(9 * MINUTE);
    let engine = world.engine();
    let agent = engine.agent("keeper").unwrap();
    // Another process has checked it.
    assert!(engine.health().check_due(&[agent]).is_empty());
    assert_eq!(engine.observer().observe(agent).state, State::Layout);
    world.clock.advance(2 * MINUTE);
    assert_eq!(engine.health().check_due(&[agent]), ["keeper"]);
    assert_eq!(engine.observer().observe(agent).state, State::Ill);
    assert!(engine.health().check_due(&[agent]).is_empty());
    // A check that an operator asks for counts for all.
    write_note(&world, "empty.md", "full\n");
    world.clock.advance(MINUTE);
    engine.health().check(agent).unwrap();
    assert_eq!(world.observe("keeper").state, State::Layout);
}

#[test]
fn operation_makes_a_check_due() {
    let mut world = World::new(&["scout"]);
    let directory = world.agent_directory("web");
    let lines = format!("layout = drover\nmemory_dir = {}", directory.display());
    world.add_agent("web", &lines);
    let id = "01HF7YAT00AAAAAAAAAAAAAAAA";
    let lines = "kind: user\nsummary: a: b\ncreatedAt: 1700000000000\n";
    write_entry(&directory, "global", id, entry_with_body(id, lines, "x"));
    world.reset();
    let engine = world.engine();
    assert_eq!(observe(&engine, "web").state, State::Ill);
    world.clock.advance(MINUTE);
    let request = OperationRequest {
        operation: "repair".to_string(),
        arguments: [("file".to_string(), vec![id.to_string()])].into(),
        now: engine.clock().now(),
    };
    let planned = engine.layouts().plan("web", &request, false).unwrap();
    apply_plan(&engine, &planned.plan);
    assert_eq!(observe(&engine, "web").state, State::Layout);
}

#[test]
fn result_of_another_time_or_place_does_not_count() {
    let mut world = world_with_layout_agent();
    write_note(&world, "empty.md", "");
    world.reset();
    assert_eq!(observe(&world.engine(), "keeper").state, State::Ill);
    // The clock was ahead at that check.
    write_note(&world, "empty.md", "full\n");
    world.clock.set_back(60 * MINUTE);
    assert_eq!(observe(&world.engine(), "keeper").state, State::Layout);
    assert_eq!(observe(&world.engine(), "keeper").state, State::Layout);
    let other = world.root.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("empty.md"), "").unwrap();
    world.add_agent(
        "keeper",
        &format!("layout = notes\nmemory_dir = {}", other.display()),
    );
    assert_eq!(observe(&world.engine(), "keeper").state, State::Ill);
}
