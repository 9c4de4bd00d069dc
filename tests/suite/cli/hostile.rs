//! Text from agents never reaches a terminal unescaped.

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
        let ran = site.run_command(site.command().args(arguments));
        assert_no_escape(&ran.stderr);
        // JSON to a pipe may hold any character that JSON allows; it escapes control
        // characters as well.
        match arguments.contains(&"--json") {
            true => assert!(!ran.stdout.contains('\x1b'), "{arguments:?}"),
            false => assert_no_escape(&ran.stdout),
        }
    }
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

/// Removes the sequences that the program itself may write: colors and attributes.
fn without_styles(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(before);
        let end = after
            .find(|c: char| !c.is_ascii_digit() && c != ';')
            .unwrap();
        assert_eq!(&after[end..=end], "m", "{text:?}");
        rest = &after[end + 1..];
    }
    out + rest
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
