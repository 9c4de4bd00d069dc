//! Agents that share one memory file by any paths: none of them is reset.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};

use memory_shepherd::base::error::ErrorKind;
use memory_shepherd::engine::{Outcome, UndoMode};

use super::world::{BASELINE, InterposingTransport, TransportCall, World, apply_plan};
use crate::skip::skip_unsupported;

/// An agent, and a twin whose memory is at this path.
fn world_with_twin(memory: &str) -> World {
    let mut world = World::new(&["scout", "other"]);
    world.add_agent("twin", &format!("memory_file = {memory}\n"));
    world.set_baseline("twin", BASELINE.replace("kind", "rude"));
    world
}

/// Resets each agent alone, as timers do, and all together.
#[track_caller]
fn assert_refused(world: &World) {
    let before = fs::read(world.memory_path("scout")).ok();
    for names in [&["scout"][..], &["twin"], &["scout", "twin", "other"]] {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        for unseen in [false, true] {
            let engine = world.engine();
            let plan = match unseen {
                true => engine.planner().plan_unobserved(&names, false).unwrap(),
                false => engine.planner().plan_reset(&names, false).unwrap(),
            };
            let report = engine
                .runs()
                .apply_plan(&plan, !unseen, &false.into(), &mut |_| ());
            for result in &report.results {
                let refused = result.kind == Some(ErrorKind::Conflict);
                assert_eq!(refused, result.agent != "other", "{result:?}");
            }
            assert_eq!(report.results.len(), names.len());
        }
    }
    assert_eq!(fs::read(world.memory_path("scout")).ok(), before);
    let engine = world.engine();
    assert_eq!(
        engine.shared_memories().agents_sharing_memories(),
        [["scout", "twin"]]
    );
}

#[test]
fn memory_by_another_path_is_refused() {
    let world = world_with_twin("agents/other/../scout/MEMORY.md");
    world.write_scratch("scout", "- note\n");
    assert_refused(&world);
}

#[test]
fn missing_memory_by_another_path_is_refused() {
    assert_refused(&world_with_twin("agents/other/../scout/MEMORY.md"));
}

/// This agent is never reset, so the other one is.
#[test]
fn memory_behind_symlink_does_not_block_others() {
    let world = world_with_twin("alias/MEMORY.md");
    symlink("agents/scout", world.root.join("alias")).unwrap();
    world.write_scratch("scout", "- note\n");
    let ran = world.reset();
    assert_eq!(ran.result_of("twin").kind, Some(ErrorKind::Host));
    assert_eq!(ran.result_of("scout").outcome, Outcome::Ok);
    assert!(
        world
            .engine()
            .shared_memories()
            .agents_sharing_memories()
            .is_empty()
    );
}

#[test]
fn two_hard_links_of_one_file_are_both_reset() {
    let world = world_with_twin("agents/twin/MEMORY.md");
    world.write_scratch("scout", "- note\n");
    fs::hard_link(world.memory_path("scout"), world.memory_path("twin")).unwrap();
    assert!(
        world
            .engine()
            .shared_memories()
            .agents_sharing_memories()
            .is_empty()
    );
    let ran = world.reset();
    for agent in ["scout", "twin"] {
        assert_eq!(ran.result_of(agent).outcome, Outcome::Ok, "{agent}");
    }
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
    assert!(world.preserves("scout", b"- note\n"));
    let inode = |agent: &str| fs::metadata(world.memory_path(agent)).unwrap().ino();
    assert_ne!(inode("scout"), inode("twin"));
}

/// One agent must not block the reset of another.
#[test]
fn foreign_hard_link_does_not_block_its_owner() {
    let world = world_with_twin("agents/twin/MEMORY.md");
    world.write_scratch("scout", "- note\n");
    fs::hard_link(world.memory_path("scout"), world.memory_path("twin")).unwrap();
    if chown(world.agent_directory("twin"), Some(4_000_000), None).is_err() {
        return skip_unsupported("only root can give directories away");
    }
    let engine = world.engine();
    assert!(
        engine
            .shared_memories()
            .agents_sharing_memories()
            .is_empty()
    );
    assert_eq!(world.reset().result_of("scout").outcome, Outcome::Ok);
}

/// The path of one agent leads nowhere when the run begins.
#[test]
fn memory_shared_during_run_is_refused() {
    let world = world_with_twin("agents/later/../scout/MEMORY.md");
    world.write_scratch("scout", "- note\n");
    let later = world.root.join("agents/later");
    let transport = InterposingTransport::new(world.disk(), move |moment| {
        if moment == TransportCall::After("read") {
            // One message is enough.
            let _ = fs::create_dir(&later);
        }
        Ok(())
    });
    let engine = world.engine_with_transport(transport);
    let names = ["scout", "twin"].map(str::to_string);
    let plan = engine.planner().plan_unobserved(&names, false).unwrap();
    let report = engine
        .runs()
        .apply_plan(&plan, false, &false.into(), &mut |_| ());
    let result = |name: &str| {
        let mut results = report.results.iter();
        results.find(|it| it.agent == name).unwrap()
    };
    assert_eq!(result("scout").outcome, Outcome::Ok);
    assert_eq!(result("twin").kind, Some(ErrorKind::Conflict));
    assert_eq!(world.read_memory("scout"), BASELINE.as_bytes());
}

#[test]
fn undo_works_after_memory_became_shared() {
    let world = world_with_twin("agents/twin/MEMORY.md");
    world.write_scratch("scout", "- note\n");
    let before = world.read_memory("scout");
    let engine = world.engine();
    let plan = engine
        .planner()
        .plan_reset(&["scout".to_string()], false)
        .unwrap();
    apply_plan(&engine, &plan).assert_ok();
    fs::hard_link(world.memory_path("scout"), world.memory_path("twin")).unwrap();
    world.undo("scout", UndoMode::Refuse).assert_ok();
    assert_eq!(world.read_memory("scout"), before);
}
