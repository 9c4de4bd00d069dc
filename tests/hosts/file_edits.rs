//! Edits of several files on a host, and the loss of the connection within them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memory_shepherd::engine::{Engine, Operation, Plan, RecoveredTurns, UndoMode, UndoTarget};

use super::edited_files::{edited, edits, read_tree, write_notes};
use super::remote::engine_with_connector;
use super::servers::{FilteredServer, RequestFate, RequestFilter, sftp_server};
use super::world::{World, apply_plan};

/// A world whose only agent is on a host, with three files beside its memory.
fn world_with_remote_files() -> World {
    let mut world = World::new(&["ranger"]);
    let lines = format!(
        "remote_host = box\nremote_memory = {}",
        world.memory_path("ranger").display()
    );
    world.add_agent("ranger", &lines);
    world.write_scratch("ranger", "- note\n");
    write_notes(&world.agent_directory("ranger"));
    world
}

fn plan_edits(world: &World, engine: &Engine, count: usize) -> Plan {
    let root = world.agent_directory("ranger");
    let plan = engine
        .planner()
        .plan_edit("ranger", &root, &edits(count), None, false)
        .unwrap();
    assert_eq!(plan.steps.len(), 1, "{plan:?}");
    plan
}

fn undo(engine: &Engine) -> Plan {
    let target = UndoTarget::Agents(vec!["ranger".to_string()]);
    let planned = engine.planner().plan_undo(&target, UndoMode::Refuse, false);
    planned.unwrap()
}

#[test]
fn edit_on_a_host_and_its_undo_are_exact() {
    for count in [1, 2, 5] {
        let Some(server) = sftp_server() else { return };
        let world = world_with_remote_files();
        let root = world.agent_directory("ranger");
        let before = read_tree(&root);
        let engine = engine_with_connector(&world, server);
        let plan = plan_edits(&world, &engine, count);
        assert_eq!(read_tree(&root), before, "a plan changes nothing");
        apply_plan(&engine, &plan).assert_ok();
        assert_eq!(read_tree(&root), edited(before.clone(), &edits(count)));
        apply_plan(&engine, &undo(&engine)).assert_ok();
        assert_eq!(read_tree(&root), before);
        assert!(world.pending_journals().is_empty());
    }
}

/// Loses the connection for good at one request of an edit, before or after the host executes it, and
/// asserts that recovery finishes the edit or takes it back. Returns whether it finished the edit; none
/// if the edit ended before that request.
fn lose_connection_at(count: usize, point: usize, is_executed: bool) -> Option<bool> {
    let (server, good) = (sftp_server()?, sftp_server()?);
    let world = world_with_remote_files();
    let root = world.agent_directory("ranger");
    let before = read_tree(&root);
    let after = edited(before.clone(), &edits(count));
    let (passed, is_counting) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let counting = Arc::clone(&is_counting);
    let judge: RequestFilter = Arc::new(move |_, _| {
        if !counting.load(Ordering::SeqCst) {
            return RequestFate::Pass;
        }
        match passed.fetch_add(1, Ordering::SeqCst) {
            number if number < point => RequestFate::Pass,
            number if number == point && is_executed => RequestFate::DisconnectAfter,
            _ => RequestFate::Disconnect,
        }
    });
    let engine = engine_with_connector(&world, FilteredServer::new(server, judge));
    let plan = plan_edits(&world, &engine, count);
    is_counting.store(true, Ordering::SeqCst);
    let ran = apply_plan(&engine, &plan);
    drop(engine);
    let context = format!("{count} files, request {point}, executed: {is_executed}");
    let engine = engine_with_connector(&world, good);
    let names = ["ranger".to_string()];
    engine
        .runs()
        .recover_interrupted_turns(&names, &AtomicBool::new(false), &mut |_| {})
        .and_then(RecoveredTurns::into_result)
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    let left = read_tree(&root);
    let is_finished = left == after;
    assert!(
        is_finished || left == before,
        "{context}: {left:#?}\n{:?}",
        ran.lines
    );
    assert!(world.pending_journals().is_empty(), "{context}");
    let changes = world
        .read_records()
        .into_iter()
        .filter(|it| it.event.operation == Operation::Edit && it.event.has_changed_files())
        .count();
    assert_eq!(changes, usize::from(is_finished), "{context}");
    if is_finished {
        apply_plan(&engine, &undo(&engine)).assert_ok();
        assert_eq!(read_tree(&root), before, "{context}");
    }
    let is_whole = ran.report.worst_kind().is_none();
    (!is_whole).then_some(is_finished)
}

#[test]
fn connection_lost_in_an_edit_leaves_all_or_nothing() {
    if sftp_server().is_none() {
        return;
    }
    for count in [1, 2, 5] {
        for is_executed in [false, true] {
            let mut ends = [0, 0];
            for point in 0..1000 {
                match lose_connection_at(count, point, is_executed) {
                    Some(is_finished) => ends[usize::from(!is_finished)] += 1,
                    None => break,
                }
            }
            let [finished, given_up] = ends;
            println!(
                "{count} files: finished after {finished} requests, given up after {given_up}"
            );
            assert!(finished > count && given_up > count);
        }
    }
}
