//! Agents on other hosts, through the whole engine. The host is this machine's
//! disk behind OpenSSH's SFTP server.

use std::fs;
use std::sync::Arc;

use memory_shepherd::engine::{Outcome, State, UndoMode, UndoTarget};

use super::servers::sftp_server;
use super::world::{BASELINE, World, apply};

/// An agent on a host, and one on this machine.
fn world() -> World {
    let mut world = World::new(&["scout"]);
    world.add_remote("ranger", "box", "");
    world
}

#[test]
fn a_remote_agent_is_seen_reset_undone_and_redone_like_a_local_one() {
    let Some(server) = sftp_server() else { return };
    let world = world();
    for agent in ["scout", "ranger"] {
        world.write_scratch(agent, "a note\n");
    }
    let before = world.read("ranger");
    let engine = world.engine_dialling(Arc::new(server));
    let seen = engine.observe(engine.agent("ranger").unwrap());
    assert_eq!((seen.state, seen.host.as_str()), (State::Scratch, "box"));
    let ran = world.reset_by(&engine);
    for result in &ran.report.results {
        assert_eq!(result.outcome, Outcome::Ok, "{:?}", ran.report);
        assert_eq!(result.note, None);
    }
    assert_eq!(world.read("ranger"), BASELINE.as_bytes());
    assert!(
        world.litter("ranger").is_empty(),
        "{:?}",
        world.litter("ranger")
    );
    assert!(world.pending().is_empty());
    assert!(world.archived("ranger").ends_with(b"a note\n"));
    let undo = |target| {
        let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
        apply(&engine, &plan)
    };
    let ran = undo(UndoTarget::Agents(vec!["ranger".to_string()]));
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert_eq!(world.read("ranger"), before);
    let ran = undo(UndoTarget::Redo(vec!["ranger".to_string()]));
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert_eq!(world.read("ranger"), BASELINE.as_bytes());
}

#[test]
fn a_missing_remote_memory_is_made_and_its_making_undone() {
    let Some(server) = sftp_server() else { return };
    let world = world().without("scout");
    let engine = world.engine_dialling(Arc::new(server));
    let seen = engine.observe(engine.agent("ranger").unwrap());
    assert_eq!(seen.state, State::Missing);
    let ran = world.reset_by(&engine);
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert_eq!(world.read("ranger"), BASELINE.as_bytes());
    let target = UndoTarget::Agents(vec!["ranger".to_string()]);
    let plan = engine.plan_undo(&target, UndoMode::Refuse, false).unwrap();
    let ran = apply(&engine, &plan);
    assert_eq!(
        ran.report.results[0].outcome,
        Outcome::Ok,
        "{:?}",
        ran.report
    );
    assert!(!fs::exists(world.memory("ranger")).unwrap());
    assert!(world.litter("ranger").is_empty());
}

#[test]
fn seventy_agents_of_a_host_are_done_in_two_batches() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&[]);
    let names: Vec<String> = (0..70).map(|number| format!("agent-{number:02}")).collect();
    for name in &names {
        world.add_remote(name, "box", "");
        world.write_scratch(name, format!("a note of {name}\n"));
    }
    let engine = world.engine_dialling(Arc::new(server));
    let ran = world.reset_by(&engine);
    assert_eq!(ran.report.count(Outcome::Ok), 70, "{:?}", ran.report);
    for name in &names {
        assert_eq!(world.read(name), BASELINE.as_bytes());
        assert!(world.litter(name).is_empty());
        let archived = world.archived(name);
        assert!(archived.ends_with(format!("a note of {name}\n").as_bytes()));
    }
}
