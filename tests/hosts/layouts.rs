//! A memory of several files on a host.

use std::fs;

use memory_shepherd::engine::{UndoMode, UndoTarget};
use memory_shepherd::layouts::OperationRequest;

use super::edited_files::read_tree;
use super::remote::engine_with_connector;
use super::servers::sftp_server;
use super::world::{World, apply_plan};

#[test]
fn layout_is_read_and_edited_on_a_host() {
    let Some(server) = sftp_server() else { return };
    let mut world = World::new(&["ranger"]);
    let root = world.agent_directory("ranger");
    let lines = format!(
        "remote_host = box\nremote_memory = {}\nlayout = notes\nmemory_dir = {}",
        world.memory_path("ranger").display(),
        root.display()
    );
    world.add_agent("ranger", &lines);
    world.write_scratch("ranger", "- note\n");
    fs::write(root.join("tea.md"), "green tea is good\n").unwrap();
    let before = read_tree(&root);
    let engine = engine_with_connector(&world, server);
    let memory = engine.layouts().open("ranger").unwrap();
    assert_eq!(
        memory.search("tea").unwrap().results[0].snippet,
        "green tea is good"
    );
    assert!(memory.health(engine.clock().now()).unwrap().is_empty());
    let request = OperationRequest {
        operation: "keep".to_string(),
        arguments: [("note".to_string(), vec!["tea.md".to_string()])].into(),
        now: engine.clock().now(),
    };
    let planned = engine.layouts().plan("ranger", &request, false);
    let plan = planned.unwrap().plan;
    assert_eq!(read_tree(&root), before);
    apply_plan(&engine, &plan).assert_ok();
    assert!(root.join("kept/tea.md").exists() && !root.join("tea.md").exists());
    let target = UndoTarget::Agents(vec!["ranger".to_string()]);
    let undo = engine.planner().plan_undo(&target, UndoMode::Refuse, false);
    apply_plan(&engine, &undo.unwrap()).assert_ok();
    assert_eq!(read_tree(&root), before);
}
