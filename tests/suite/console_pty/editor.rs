//! The editor in a real terminal: a save, and a terminal that is lost while text is typed.

use std::fs;

use rustix::process::Signal;

use super::{quit_console, start_fleet, two_agent_site};
use crate::fixture::Site;

const BASELINE: &str = "baselines/code-reviewer-MEMORY.md";

#[test]
fn typed_rule_is_shown_confirmed_and_saved() {
    let site = two_agent_site();
    let old = Site::read_baseline("code-reviewer");
    let mut terminal = start_fleet(&site);
    terminal.send("e");
    terminal.wait_for("NORMAL");
    terminal.send("o");
    terminal.wait_for("INSERT");
    terminal.send("- Be on time.");
    terminal.wait_for("- Be on time.");
    terminal.send("\x1b");
    terminal.wait_for("NORMAL");
    terminal.send(":w\r");
    terminal.wait_for("Save +1 -0 lines");
    assert_eq!(site.read(BASELINE), old, "saved before the confirmation");
    terminal.send_until("y", "the save", |terminal| {
        terminal.text().contains("saved: +1 -0")
    });
    let new = site.read(BASELINE);
    assert_eq!(new.replacen("- Be on time.\n", "", 1), old);
    terminal.send("q");
    terminal.wait_for("WHY");
    quit_console(terminal);
}

#[test]
fn lost_terminal_loses_no_typing() {
    for signal in [Signal::HUP, Signal::TERM] {
        let site = two_agent_site();
        let old = Site::read_baseline("code-reviewer");
        let mut terminal = start_fleet(&site);
        terminal.send("e");
        terminal.wait_for("NORMAL");
        terminal.send("i");
        terminal.wait_for("INSERT");
        terminal.send("typed and not saved ");
        terminal.wait_for("typed and not saved");
        terminal.signal(signal);
        terminal.wait_for_exit();
        terminal.assert_restored();
        assert_eq!(site.read(BASELINE), old);
        let mut terminal = start_fleet(&site);
        terminal.send("e");
        terminal.wait_for("was not saved");
        terminal.send("r");
        terminal.wait_for("MODIFIED");
        assert!(
            terminal.text().contains("typed and not saved"),
            "{}",
            terminal.text()
        );
        // Dropped on purpose, it is not offered again.
        terminal.send(":q!\r");
        terminal.wait_for("WHY");
        quit_console(terminal);
        let drafts = fs::read_dir(site.path("archives/.shepherd/drafts")).unwrap();
        assert_eq!(drafts.count(), 0);
    }
}
