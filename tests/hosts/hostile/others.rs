//! Two machines whose operators reset the same agent, and neither knows.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use super::scene::{
    AGENT, Act, NOTE, Scene, contains, each, good, judge, requests, run, some, there_is_a_server,
};
use crate::remote::engine;
use crate::servers::{Between, Fate};
use crate::world::{BASELINE, World};

const SECOND: &[u8] = b"another note of the agent\n";

/// Another machine, with an archive of its own, for the same memory.
fn other(scene: &Scene) -> World {
    let mut world = World::new(&[]).general("remote_timeout = 600");
    let memory = scene.world.memory(AGENT);
    let lines = format!("remote_host = box\nremote_memory = {}", memory.display());
    world.add(AGENT, &lines);
    world.set_baseline(AGENT, BASELINE);
    world
}

fn resets(world: &World, said: &str) {
    let by = engine(world, good());
    let plan = by.plan_unobserved(&[AGENT.to_string()], false).unwrap();
    let report = run(&by, &plan);
    assert_eq!(report.worst_kind(), None, "{said}: {report:?}");
}

#[test]
fn resets_of_two_machines_at_the_same_time_lose_nothing() {
    if !there_is_a_server() {
        return;
    }
    let points = (1..requests(Act::Reset).len()).flat_map(|it| [(it, false), (it, true)]);
    let count = each(some(points.collect(), 1), 6, |(point, writes)| {
        let scene = Scene::new(Act::Reset);
        let second = other(&scene);
        let memory = scene.world.memory(AGENT);
        let done = AtomicBool::new(false);
        let said = format!("the other at request {point}, writes {writes}");
        let (there, text) = (std::sync::Arc::new(second), said.clone());
        let by = std::sync::Arc::clone(&there);
        let wrote = std::sync::Arc::new(AtomicBool::new(false));
        let has_written = std::sync::Arc::clone(&wrote);
        let interferes = judge(move |number, _| {
            if number == point && !done.swap(true, Ordering::SeqCst) {
                if writes && let Ok(mut file) = OpenOptions::new().append(true).open(&memory) {
                    file.write_all(SECOND).unwrap();
                    has_written.store(true, Ordering::SeqCst);
                }
                resets(&by, &text);
            }
            Fate::Pass
        });
        let report = scene.run(Between::new(good(), interferes));
        let said = format!("{said}: {report:?}");
        let everywhere = |bytes: &[u8]| {
            contains(&scene.world.folder(AGENT), bytes)
                || contains(&scene.world.archive().join(AGENT), bytes)
                || contains(&there.archive().join(AGENT), bytes)
        };
        assert!(everywhere(NOTE), "the note is lost: {said}");
        assert!(
            !wrote.load(Ordering::SeqCst) || everywhere(SECOND),
            "the second note is lost: {said}"
        );
        for world in [&scene.world, &*there] {
            resets(world, &said);
            assert!(world.pending().is_empty(), "{said}");
        }
        let litter = scene.world.litter(AGENT);
        assert!(litter.is_empty(), "{litter:?}: {said}");
        let memory = scene.memory();
        assert_eq!(memory.as_deref(), Some(BASELINE.as_bytes()), "{said}");
    });
    println!("another machine at {count} points, losses 0");
}

/// The agent by another config: its memory there, on this host.
fn moved(world: World, memory: &std::path::Path, host: &str) -> World {
    let mut world = world.without(AGENT);
    let lines = format!("remote_host = {host}\nremote_memory = {}", memory.display());
    world.add(AGENT, &lines);
    world
}

#[test]
fn what_a_run_left_is_settled_also_after_its_agent_has_moved() {
    if !there_is_a_server() {
        return;
    }
    let points = (1..requests(Act::Reset).len())
        .flat_map(|it| [(it, false, "box"), (it, true, "box"), (it, true, "crate")]);
    let count = each(some(points.collect(), 1), 6, |(point, behind, host)| {
        let scene = Scene::new(Act::Reset);
        scene.run(Between::new(
            good(),
            super::cuts::cut_for_good(point, behind),
        ));
        let said = format!("cut at {point}, behind {behind}, then on {host}");
        scene.holds(&said);
        let folder = scene.world.folder(AGENT);
        let old = scene.world.memory(AGENT);
        let home = folder.with_file_name("moved-to");
        std::fs::create_dir_all(&home).unwrap();
        let new = home.join("MEMORY.md");
        std::fs::write(&new, SECOND).unwrap();
        let before = scene.world.pending();
        let mut world = moved(scene.world, &new, host);
        let run_once = |world: &World| {
            let by = engine(world, good());
            let plan = by.plan_unobserved(&[AGENT.to_string()], false).unwrap();
            run(&by, &plan)
        };
        let report = run_once(&world);
        let said = format!("{said}: {report:?}");
        assert_eq!(std::fs::read(&new).unwrap(), BASELINE.as_bytes(), "{said}");
        if host != "box" {
            // It cannot be known that it is the same.
            assert_eq!(world.pending(), before, "{said}");
            world = moved(world, &new, "box");
            run_once(&world);
        }
        assert!(world.pending().is_empty(), "{said}");
        let archive = world.archive().join(AGENT);
        assert!(
            contains(&folder, NOTE) || contains(&archive, NOTE),
            "the note is lost: {said}"
        );
        assert!(contains(&archive, SECOND), "{said}");
        let left = crate::world::names(&folder);
        assert_eq!(left, ["MEMORY.md"], "{said}");
        assert!(old.exists());
    });
    println!("moved after a cut at {count} points, losses 0");
}
