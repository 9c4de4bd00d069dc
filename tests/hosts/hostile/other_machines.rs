//! Two machines whose operators reset the same agent without knowledge of each other.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::scenario::{
    AGENT, HostOperation, HostScenario, NOTE, any_file_contains, has_sftp_server, request_filter,
    request_names, run, sample_points, sftp_server_program, try_each,
};
use crate::remote::engine_with_connector;
use crate::servers::{FilteredServer, RequestFate};
use crate::world::{BASELINE, World};

const SECOND_NOTE: &[u8] = b"another note of the agent\n";

/// Returns another machine, with its own archive, for the same memory.
fn other_machine(scene: &HostScenario) -> World {
    let mut world = World::new(&[]).with_general("remote_timeout = 600");
    let memory = scene.world.memory_path(AGENT);
    let lines = format!("remote_host = box\nremote_memory = {}", memory.display());
    world.add_agent(AGENT, &lines);
    world.set_baseline(AGENT, BASELINE);
    world
}

fn assert_resets(world: &World, said: &str) {
    let by = engine_with_connector(world, sftp_server_program());
    let plan = by
        .planner()
        .plan_unobserved(&[AGENT.to_string()], false)
        .unwrap();
    let report = run(&by, &plan);
    assert_eq!(report.worst_kind(), None, "{said}: {report:?}");
}

#[test]
fn concurrent_resets_of_two_machines_lose_nothing() {
    if !has_sftp_server() {
        return;
    }
    let points =
        (1..request_names(HostOperation::Reset).len()).flat_map(|it| [(it, false), (it, true)]);
    let count = try_each(sample_points(points.collect(), 1), 6, |(point, writes)| {
        let scene = HostScenario::new(HostOperation::Reset);
        let second = other_machine(&scene);
        let memory = scene.world.memory_path(AGENT);
        let begun = std::sync::Arc::new(AtomicBool::new(false));
        let ended = std::sync::Arc::new(AtomicBool::new(false));
        let flags = [&begun, &ended].map(std::sync::Arc::clone);
        let said = format!("other machine at request {point}, writes {writes}");
        let (there, text) = (std::sync::Arc::new(second), said.clone());
        let by = std::sync::Arc::clone(&there);
        let wrote = std::sync::Arc::new(AtomicBool::new(false));
        let has_written = std::sync::Arc::clone(&wrote);
        let interferes = request_filter(move |number, _| {
            let [begun, ended] = &flags;
            if number == point && !begun.swap(true, Ordering::SeqCst) {
                if writes && let Ok(mut file) = OpenOptions::new().append(true).open(&memory) {
                    file.write_all(SECOND_NOTE).unwrap();
                    has_written.store(true, Ordering::SeqCst);
                }
                assert_resets(&by, &text);
                ended.store(true, Ordering::SeqCst);
            }
            RequestFate::Pass
        });
        let report = scene.run(FilteredServer::new(sftp_server_program(), interferes));
        // No run waits for the reply to its last request: the other machine may be at it, or not
        // have begun, and then it does not begin any more.
        if begun.swap(true, Ordering::SeqCst) {
            let end = Instant::now() + Duration::from_secs(60);
            while !ended.load(Ordering::SeqCst) {
                assert!(
                    Instant::now() < end,
                    "the other machine does not end: {said}"
                );
                std::thread::yield_now();
            }
        }
        let said = format!("{said}: {report:?}");
        let everywhere = |bytes: &[u8]| {
            any_file_contains(&scene.world.agent_directory(AGENT), bytes)
                || any_file_contains(&scene.world.archive_directory().join(AGENT), bytes)
                || any_file_contains(&there.archive_directory().join(AGENT), bytes)
        };
        assert!(everywhere(NOTE), "the note is lost: {said}");
        assert!(
            !wrote.load(Ordering::SeqCst) || everywhere(SECOND_NOTE),
            "the second note is lost: {said}"
        );
        for world in [&scene.world, &*there] {
            assert_resets(world, &said);
            assert!(world.pending_journals().is_empty(), "{said}");
        }
        let litter = scene.world.leftovers(AGENT);
        assert!(litter.is_empty(), "{litter:?}: {said}");
        let memory = scene.memory();
        assert_eq!(memory.as_deref(), Some(BASELINE.as_bytes()), "{said}");
    });
    println!("other machine at {count} points, losses 0");
}

/// Moves the agent to another config: its memory at this path, on this host.
fn move_agent(world: World, memory: &std::path::Path, host: &str) -> World {
    let mut world = world.without_agent(AGENT);
    let lines = format!("remote_host = {host}\nremote_memory = {}", memory.display());
    world.add_agent(AGENT, &lines);
    world
}

#[test]
fn leftover_is_settled_after_agent_moved() {
    if !has_sftp_server() {
        return;
    }
    let points = (1..request_names(HostOperation::Reset).len())
        .flat_map(|it| [(it, false, "box"), (it, true, "box"), (it, true, "crate")]);
    let count = try_each(
        sample_points(points.collect(), 1),
        6,
        |(point, behind, host)| {
            let scene = HostScenario::new(HostOperation::Reset);
            scene.run(FilteredServer::new(
                sftp_server_program(),
                super::disconnects::disconnect_for_good(point, behind),
            ));
            let said = format!("cut at {point}, delivered {behind}, then on {host}");
            scene.assert_invariants(&said);
            let directory = scene.world.agent_directory(AGENT);
            let old = scene.world.memory_path(AGENT);
            let home = directory.with_file_name("moved-to");
            std::fs::create_dir_all(&home).unwrap();
            let new = home.join("MEMORY.md");
            std::fs::write(&new, SECOND_NOTE).unwrap();
            let before = scene.world.pending_journals();
            let mut world = move_agent(scene.world, &new, host);
            let run_once = |world: &World| {
                let by = engine_with_connector(world, sftp_server_program());
                let plan = by
                    .planner()
                    .plan_unobserved(&[AGENT.to_string()], false)
                    .unwrap();
                run(&by, &plan)
            };
            let report = run_once(&world);
            let said = format!("{said}: {report:?}");
            assert_eq!(std::fs::read(&new).unwrap(), BASELINE.as_bytes(), "{said}");
            if host != "box" {
                // No check can prove that the memory is the same.
                assert_eq!(world.pending_journals(), before, "{said}");
                world = move_agent(world, &new, "box");
                run_once(&world);
            }
            assert!(world.pending_journals().is_empty(), "{said}");
            let archive = world.archive_directory().join(AGENT);
            assert!(
                any_file_contains(&directory, NOTE) || any_file_contains(&archive, NOTE),
                "the note is lost: {said}"
            );
            assert!(any_file_contains(&archive, SECOND_NOTE), "{said}");
            let left = crate::world::sorted_names(&directory);
            assert_eq!(left, ["MEMORY.md"], "{said}");
            assert!(old.exists());
        },
    );
    println!("moved after a cut at {count} points, losses 0");
}
