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
    terminal.send_until("y", "the answer", |terminal| {
        !terminal.text().contains("Save +1 -0 lines")
    });
    terminal.wait_for("saved: +1 -0");
    let new = site.read(BASELINE);
    assert_eq!(new.replacen("- Be on time.\n", "", 1), old);
    terminal.send("q");
    terminal.wait_for("WHY");
    quit_console(terminal);
}

#[test]
fn open_editor_follows_its_file() {
    let site = two_agent_site();
    let _ = site.run(["seal", "--all"]).assert_code(0);
    let mut terminal = start_fleet(&site);
    terminal.send("e");
    terminal.wait_for("NORMAL");
    site.append(BASELINE, "- one more\n");
    terminal.wait_for("FILE CHANGED");
    terminal.send("qe");
    terminal.wait_for("READ-ONLY");
    assert!(terminal.text().contains("TAMPERED"), "{}", terminal.text());
    // Another process seals it.
    let _ = site.run(["seal", "code-reviewer-MEMORY.md"]).assert_code(0);
    terminal.wait_for("NORMAL");
    // Each header counts the agents that are TAMPERED.
    terminal.wait("no TAMPERED", |terminal| {
        !terminal.text().contains("TAMPERED")
    });
    fs::remove_file(site.path(BASELINE)).unwrap();
    terminal.wait_for("FILE GONE");
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
        terminal.wait_for("an unsaved text of code-reviewer-MEMORY.md is kept");
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

#[test]
fn two_consoles_keep_a_draft_each() {
    let site = two_agent_site();
    let start = |typed: &str| {
        let mut terminal = start_fleet(&site);
        terminal.send("e");
        terminal.wait_for("NORMAL");
        terminal.send("i");
        terminal.wait_for("INSERT");
        terminal.send(typed);
        terminal.wait_for(typed);
        terminal
    };
    let drafts = || fs::read_dir(site.path("archives/.shepherd/drafts")).map_or(0, Iterator::count);
    let mut first = start("typed in the first");
    first.wait("the first draft", |_| drafts() == 1);
    let mut second = start("typed in the second");
    // The message is older than the typing.
    second.wait("the second draft", |_| drafts() == 2);
    second.send("\x1b");
    second.wait_for("NORMAL");
    second.send(":q!\r");
    second.wait_for("WHY");
    second.wait("the first console's draft alone", |_| drafts() == 1);
    second.send("e");
    second.wait_for("have to merge");
    second.send("q");
    second.wait_for("WHY");
    first.signal(Signal::HUP);
    first.wait_for_exit();
    second.send("e");
    second.wait_for("was not saved");
    second.send("r");
    second.wait_for("typed in the first");
    second.send(":q!\r");
    second.wait_for("WHY");
    quit_console(second);
    assert_eq!(drafts(), 0);
}

#[test]
fn text_without_a_draft_is_kept_elsewhere() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    terminal.send("e");
    terminal.wait_for("NORMAL");
    // Nothing can be created in its place.
    let drafts = site.path("archives/.shepherd/drafts");
    fs::create_dir_all(drafts.parent().unwrap()).unwrap();
    fs::write(drafts, "").unwrap();
    terminal.send("i");
    terminal.wait_for("INSERT");
    terminal.send("typed");
    terminal.wait_for("is only in this console");
    terminal.send("\x1b");
    terminal.wait_for("NORMAL");
    terminal.send("\x03");
    terminal.wait_for("AND LOSES ITS TEXT");
    terminal.signal(Signal::TERM);
    terminal.wait_for("the text of code-reviewer-MEMORY.md is in /");
    terminal.wait_for_exit();
    terminal.assert_restored();
}
