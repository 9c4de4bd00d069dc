//! Text from agents never reaches a terminal unescaped.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;

const HOSTILE_TEXT: &str = "\x1b]0;owned\x07 \x1b[2J \u{9b}31m \u{202E}txt \u{200B}\u{E0041}";

/// A fleet whose memories, directory names and archive are full of hostile text.
fn hostile_site() -> Site {
    let site = site_with_notes_and_drift();
    site.append(REVIEWER_MEMORY, format!("- {HOSTILE_TEXT}\n"));
    let edited =
        Site::read_baseline("monitor-bot").replacen("1. ", &format!("1. {HOSTILE_TEXT}"), 1);
    site.write(MONITOR_MEMORY, edited);
    let config = site.read("memory-shepherd.conf");
    let directory = "agents/\x1b[31m\u{202E}";
    site.write(
        &format!("{directory}/MEMORY.md/x"),
        "a directory in its place",
    );
    let agent = format!(
        "[odd]\nmemory_file=./{directory}/MEMORY.md\nbaseline=\u{202E}x.md\n[gone]\nmemory_file=./{directory}/none/MEMORY.md\nbaseline=monitor-bot-MEMORY.md\n"
    );
    site.write("memory-shepherd.conf", config + &agent);
    site.write(
        "archives/\x1b[31m\u{202E}/2026-01-01_0900.md",
        "of another program",
    );
    site
}

#[test]
fn hostile_text_is_never_printed_raw() {
    let site = hostile_site();
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["diff", "odd"],
        &["diff", "gone"],
        &["diff", "monitor-bot", "--stat"],
        &["doctor"],
        &["config", "check"],
        &["config", "show"],
        &["reset", "--all", "--dry-run"],
        &["reset", "--all"],
        &["log"],
        &["report"],
        &["report", "--since", "\x1b[31mx"],
        &["archive", "list"],
        &["seal", "--dry-run"],
        &["seal", "--all"],
        &["baseline", "list"],
        &["baseline", "history", "odd"],
        &["baseline", "restore", "odd"],
        &["guard", "--once"],
        &["log"],
        &["archive", "prune", "--dry-run"],
        &["archive", "prune", "-v"],
        &["archive", "prune", "--json"],
        &["archive", "prune", "\x1b[31mx"],
        &["verify"],
        &["seal", "\x1b[31mx"],
        &["seal", "--all", "--sign", "\x1b[31mx"],
        &["reset", "\x1b[31mx"],
        &["\x1b[31mx"],
        &["--\x1b[31mx"],
        &["--config", "\x1b[31mx", "status"],
        &["undo", "--run", "\x1b[31mx"],
    ] {
        // As on a terminal; a pipe without colours gets exact bytes.
        let ran = site.run_command(site.command().arg("--color=always").args(arguments));
        assert_no_escape(&without_styles(&ran.stderr));
        // JSON to a pipe may hold any character that JSON allows; it escapes control
        // characters as well.
        match arguments.contains(&"--json") {
            true => assert!(!ran.stdout.contains('\x1b'), "{arguments:?}"),
            false => assert_no_escape(&without_styles(&ran.stdout)),
        }
        // Standard error is for people, wherever it goes.
        let ran = site.run_command(site.command().args(arguments));
        assert_no_escape(&ran.stderr);
    }
}

#[test]
fn listed_path_in_a_pipe_is_shown_by_archive_show() {
    let site = hostile_site();
    let listed = site.run(["archive", "list"]).assert_code(0).stdout;
    let path = "\x1b[31m\u{202E}/2026-01-01_0900.md";
    assert!(listed.contains(&format!(" {path} ")), "{listed:?}");
    let ran = site.run(["archive", "show", path]).assert_code(0);
    assert_eq!(ran.stdout, "of another program");
    let pinned = site.run(["archive", "pin", path]).assert_code(0).stdout;
    assert_eq!(pinned, format!("pinned {path}\n"));
    let shown = run_in_terminal(&site, &["archive", "list"], ("NO_COLOR", "1"));
    assert_no_escape(&shown);
}

#[test]
fn path_with_line_feed_stays_on_its_line() {
    let site = site_with_notes_and_drift();
    site.write("archives/x\n2026/2026-01-01_0900.md", "odd");
    let ran = site.run(["archive", "list"]).assert_code(0);
    assert!(
        ran.stdout.contains(" x␊2026/2026-01-01_0900.md "),
        "{}",
        ran.stdout
    );
    let _ = ran.assert_stderr_has("1 path with line feeds");
}

#[test]
fn crontab_in_a_pipe_names_the_config() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let name = "\u{202E}fleet \u{9d}.conf";
    site.write(name, config.clone());
    let arguments = ["schedule", "install", "--crontab", "--config", name];
    // A C1 control character is none that cron or a unit can carry.
    let _ = site
        .run(arguments)
        .assert_code(2)
        .assert_stderr_has("control characters");
    let name = "\u{202E}fleet.conf";
    site.write(name, config);
    let arguments = ["schedule", "install", "--crontab", "--config", name];
    let lines = site.run(arguments).assert_code(0).stdout;
    let path = site.path(name).display().to_string();
    assert!(lines.contains(&format!(" --config {path}\n")), "{lines:?}");
    let shown = run_in_terminal(&site, &arguments, ("NO_COLOR", "1"));
    assert!(shown.contains("marks stand for characters"), "{shown}");
    assert_no_escape(&shown);
}

#[test]
fn diff_is_exact_in_pipe_and_marked_on_terminal() {
    let site = hostile_site();
    let ran = site.run(["diff", "code-reviewer"]).assert_code(0);
    assert!(ran.stdout.contains(&format!("+- {HOSTILE_TEXT}\n")));
    for colored in [
        site.run(["diff", "code-reviewer", "--color=always"]).stdout,
        run_in_terminal(&site, &["diff", "code-reviewer"], ("TERM", "xterm")),
        run_in_terminal(&site, &["diff", "monitor-bot"], ("NO_COLOR", "1")),
    ] {
        assert!(colored.contains("‹U+202E›"), "{colored:?}");
        assert_no_escape(&without_styles(&colored));
    }
}

#[test]
fn json_on_a_terminal_is_printable_ascii() {
    let site = hostile_site();
    let text = run_in_terminal(&site, &["diff", "monitor-bot", "--json"], ("TERM", "xterm"));
    let printable = |c: char| matches!(c, ' '..='~' | '\r' | '\n');
    assert!(
        text.contains("\\u202e") && text.chars().all(printable),
        "{text:?}"
    );
}

#[test]
fn init_names_what_it_leaves_out() {
    let site = Site::new();
    let home = site.path("home/.openclaw");
    let odd = home.join(OsStr::from_bytes(b"workspace-\xff"));
    let linked = home.join("workspace-linked");
    for directory in [&odd, &linked] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(odd.join("MEMORY.md"), "x").unwrap();
    symlink("/nonexistent/MEMORY.md", linked.join("MEMORY.md")).unwrap();
    let _ = site
        .run(["init", "--discover", "--config", "new/fleet.conf"])
        .assert_code(2)
        .assert_stderr_has("workspace-linked/MEMORY.md is a symlink to /nonexistent/MEMORY.md")
        .assert_stderr_has("a config cannot name it");
}

/// An agent that can create a directory cannot write the config of the operator.
#[test]
fn init_takes_no_keys_from_directory_names() {
    for name in [
        "workspace-x\n[alerts]\ncommand=sh -c id\n[zz]\nmemory_file=q",
        "workspace-x\nbaseline=other.md",
        "workspace-x #y",
    ] {
        let site = Site::new();
        let directory = site.path("home/.openclaw").join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("MEMORY.md"), "x").unwrap();
        let ran = site.run(["init", "--discover", "--config", "new/fleet.conf"]);
        let ran = ran.assert_code(2).assert_stderr_has("nothing was written");
        assert_no_escape(&ran.stderr);
        assert!(!site.path("new").exists(), "{name}");
    }
}
