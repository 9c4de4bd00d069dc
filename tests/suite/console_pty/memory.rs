//! A memory with a layout in a real terminal, through the example program that has one.

use std::fs;

use super::*;
use crate::edited_files::read_tree;
use crate::layouts::{notes_program, world_with_layout_agent};

#[test]
fn note_is_kept_and_put_back() {
    let Some(program) = notes_program() else {
        return;
    };
    for size in [TERMINAL_SIZE, (80, 24)] {
        let world = world_with_layout_agent();
        world.config();
        let root = world.agent_directory("keeper");
        let before = read_tree(&root);
        let home = world.root.join("home");
        fs::create_dir_all(&home).unwrap();
        let mut command = isolated_command(&program, &home);
        let config = world.root.join("memory-shepherd.conf");
        command.args(["--config", config.to_str().unwrap()]);
        let mut terminal = Terminal::start(command, size);
        terminal.wait_for("LAYOUT  ");
        terminal.wait_for("live");
        terminal.send(":");
        terminal.send("agent keeper");
        terminal.wait_for("Open keeper");
        terminal.send("\r");
        terminal.wait_for("[Memory]");
        terminal.wait_for("green tea");
        terminal.send("\t");
        terminal.wait_for("No findings.");
        terminal.send("\x1b[Z");
        terminal.wait_for("COLLECTION");
        terminal.send("O");
        terminal.wait_for("Plan to keep a note");
        terminal.send("keep");
        terminal.wait_for_quiet();
        terminal.send("\r");
        terminal.wait_for("keep: note");
        terminal.wait_for("tea.md_");
        terminal.send("\r");
        terminal.wait_for("EDIT PLAN");
        terminal.wait_for("1 created, 1 removed");
        terminal.wait_for("Press y to edit");
        terminal.wait_for_quiet();
        assert_eq!(read_tree(&root), before, "a plan changes nothing");
        terminal.send_until("y", "the run", |terminal| {
            !terminal.text().contains("EDIT PLAN")
        });
        terminal.wait_for("z undoes this run");
        assert!(root.join("kept/tea.md").exists() && !root.join("tea.md").exists());
        terminal.send("u");
        terminal.wait_for("UNDO PLAN");
        terminal.wait_for("Press y to undo");
        terminal.wait_for_quiet();
        terminal.send_until("y", "the undo", |terminal| {
            !terminal.text().contains("UNDO PLAN")
        });
        // Only a result says so.
        terminal.wait_for("undoes this run");
        terminal.wait_for("1 ok, 0 failed");
        assert_eq!(read_tree(&root), before);
        // The tab is read again.
        terminal.send("q");
        terminal.wait_for("[Memory]");
        terminal.wait_for("green tea");
        terminal.send("q");
        terminal.wait_for("AGENT ");
        quit_console(terminal);
    }
}
