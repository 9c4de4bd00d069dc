//! Hostile text in every input that an untrusted party controls: memories, a baseline,
//! names of files and directories, replies of a host, archive entries, records,
//! arguments and a broken config. [`crate::output_checker`] checks all output of the
//! program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::fixture::{PROGRAM_PATH, Site};
use crate::output_checker::{StreamKind, all_payloads, unexpected_output};
use crate::terminal::{Terminal, isolated_command};

const CONFIG_NAME: &str = "memory-shepherd.conf";
const REVIEWER_MEMORY: &str = "agents/code-reviewer/MEMORY.md";

/// A payload in a form that a file name allows.
const HOSTILE_NAME: &str = "\x1b]0;owned\x07\x1b[31m\u{9b}2J\u{202e}\u{200b}\u{e0041}";

/// All payloads, one per line.
fn all_payload_lines() -> Vec<u8> {
    let lines = all_payloads().into_iter();
    lines
        .flat_map(|payload| [&b"- "[..], &payload, b"\n"].concat())
        .collect()
}

/// A fleet with hostile text in every possible place.
fn hostile_site() -> Site {
    let site = Site::new();
    let all = all_payload_lines();
    let hostile = |text: &str| {
        let (first, rest) = text.split_once("\n1. ").unwrap();
        [first.as_bytes(), b"\n", &all, b"1. ", rest.as_bytes()].concat()
    };
    let reviewer = Site::read_baseline("code-reviewer");
    site.write(REVIEWER_MEMORY, [&hostile(&reviewer)[..], &all].concat());
    site.append("agents/monitor-bot/MEMORY.md", "- quiet night\n");
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    // An agent with such a name, and an entry archived by one.
    let ledger = "archives/.shepherd/ledger.jsonl";
    let records = site.read(ledger);
    let mut last: serde_json::Value =
        serde_json::from_str(records.lines().last().unwrap()).unwrap();
    let evil = String::from_utf8_lossy(&all).into_owned();
    for field in ["user", "host"] {
        last[field] = evil.clone().into();
    }
    last["seq"] = (last["seq"].as_u64().unwrap() + 1).into();
    last["prev"] = hex(&Sha256::digest(records.lines().last().unwrap())).into();
    last["note"] = evil.into();
    site.append(ledger, format!("{last}\n"));
    site.write(format!("archives/monitor/{HOSTILE_NAME}.md").as_str(), &all);
    site.write("archives/monitor/2026-03-14_0900.md", &all);
    // Its baseline, its directory, and a directory in place of a file.
    site.write(
        format!("baselines/{HOSTILE_NAME}.md").as_str(),
        hostile(&reviewer),
    );
    site.write(
        format!("agents/{HOSTILE_NAME}/MEMORY.md").as_str(),
        &reviewer,
    );
    site.write(
        format!("agents/{HOSTILE_NAME}/taken/MEMORY.md/x").as_str(),
        "",
    );
    let ours = format!(
        "memory_file=./agents/{HOSTILE_NAME}/MEMORY.md\nbaseline={HOSTILE_NAME}.md\narchive_subdir={HOSTILE_NAME}\n"
    );
    let more = format!(
        "[ours]\n{ours}[taken]\nmemory_file=./agents/{HOSTILE_NAME}/taken/MEMORY.md\nbaseline={HOSTILE_NAME}.md\n\
         [gone]\nmemory_file=./{HOSTILE_NAME}/MEMORY.md\nbaseline=no {HOSTILE_NAME}.md\n\
         [far]\nremote_host=box\nremote_memory=/{HOSTILE_NAME}/MEMORY.md\nbaseline=monitor-bot-MEMORY.md\n"
    );
    let config = site.read(CONFIG_NAME);
    let named =
        format!("[general]\nfleet_name=west {HOSTILE_NAME}\nfleet_tag=PROD {HOSTILE_NAME}\n");
    site.write(
        CONFIG_NAME,
        config.replacen("[general]\n", &named, 1) + &more,
    );
    site.write("said", &all);
    let said = site.path("said");
    site.write(
        "bin/ssh",
        format!("#!/bin/sh\ncat {} >&2\nexit 255\n", said.display()),
    );
    fs::set_permissions(site.path("bin/ssh"), PermissionsExt::from_mode(0o755)).unwrap();
    site
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The program in a terminal, with a script as ssh.
fn start_in_terminal(site: &Site, arguments: &[&str]) -> Terminal {
    let mut command = isolated_command(Path::new(PROGRAM_PATH), &site.path("home"));
    let path = format!("{}:/usr/bin:/bin", site.path("bin").display());
    command.env("PATH", path);
    command.cwd(&site.dir);
    command.args(arguments);
    Terminal::start(command, (120, 36))
}

/// Commands that the test runs, including invalid ones.
const COMMANDS: &[&[&str]] = &[
    &["status"],
    &["status", HOSTILE_NAME],
    &["status", "-v"],
    &["diff", "code-reviewer", "--stat"],
    &["diff", "code-reviewer", "--three-way"],
    &["diff", "taken"],
    &["diff", "gone"],
    &["diff", "far"],
    &["log"],
    &["log", HOSTILE_NAME],
    &["verify"],
    &["archive", "list"],
    &["archive", "list", "monitor-bot"],
    &["archive", "pin", HOSTILE_NAME],
    &["doctor"],
    &["config", "check"],
    &["config", "show"],
    &["reset", "--all", "--dry-run"],
    &["undo", "monitor-bot", "--dry-run"],
    &["undo", "--run", HOSTILE_NAME],
    &[HOSTILE_NAME],
    &["--theme", HOSTILE_NAME],
    &["--config", HOSTILE_NAME, "status"],
    &["--nonsense", HOSTILE_NAME],
    &["push", "code-reviewer", "--keep", HOSTILE_NAME],
    &["push", "code-reviewer", "taken", "--dry-run"],
    &["push", "code-reviewer"],
    &["reset", "--all"],
];

#[test]
fn commands_never_print_hostile_bytes_raw() {
    let site = hostile_site();
    let check = |asked: &[&str]| {
        // A broken theme is reported before the console opens.
        let mut command = site.command();
        command.env("PATH", site.path("bin"));
        // A pipe gets exact bytes on standard output, unless they are coloured for a terminal.
        let ran = site.run_command(command.args(asked));
        let colored = site.run_command(command.arg("--color=always"));
        for (stream, text) in [
            (StreamKind::Plain, &ran.stderr),
            (StreamKind::Colours, &colored.stdout),
            (StreamKind::Colours, &colored.stderr),
        ] {
            let found = unexpected_output(stream, text.as_bytes());
            assert!(found.is_empty(), "{asked:?}: {found:?}:\n{text:?}");
        }
        let mut terminal = start_in_terminal(&site, asked);
        terminal.wait_for_exit();
        let found = unexpected_output(StreamKind::Colours, &terminal.bytes);
        let text = String::from_utf8_lossy(&terminal.bytes);
        assert!(found.is_empty(), "{asked:?}: {found:?}:\n{text:?}");
        let mut terminal = start_in_terminal(&site, &[&["--json"], asked].concat());
        terminal.wait_for_exit();
        let found = unexpected_output(StreamKind::Colours, &terminal.bytes);
        let text = String::from_utf8_lossy(&terminal.bytes);
        assert!(found.is_empty(), "JSON of {asked:?}: {found:?}:\n{text:?}");
    };
    // A diff on a terminal is escaped; a pipe receives the bytes that `patch` needs.
    let mut terminal = start_in_terminal(&site, &["diff", "code-reviewer"]);
    terminal.wait_for_exit();
    assert!(terminal.bytes.len() > 10_000, "{}", terminal.text());
    assert_eq!(
        unexpected_output(StreamKind::Colours, &terminal.bytes),
        [""; 0]
    );
    for asked in COMMANDS {
        check(asked);
    }
    // Every kind of mistake in one config.
    let mut config = site.read(CONFIG_NAME).into_bytes();
    config.extend(format!("[{HOSTILE_NAME}]\n{HOSTILE_NAME} = {HOSTILE_NAME}\n{HOSTILE_NAME}\n[x]\nbaseline=../{HOSTILE_NAME}\n").bytes());
    config.extend(all_payload_lines());
    site.write(CONFIG_NAME, config);
    for asked in [&["status"][..], &["config", "check"], &["doctor"], &["all"]] {
        check(asked);
    }
}

#[test]
fn screens_never_print_hostile_bytes_raw() {
    let site = hostile_site();
    let mut terminal = start_in_terminal(&site, &["--config", CONFIG_NAME]);
    let press = |terminal: &mut Terminal, keys: &str| {
        for key in keys.split(' ') {
            terminal.send(match key {
                "Enter" => "\r",
                "Esc" => "\x1b",
                "Tab" => "\t",
                key => key,
            });
            match key {
                // Alone it is a key; with what follows it could be the begin of a code.
                "Esc" => terminal.wait_for_quiet(),
                _ => terminal.wait_for_reaction(),
            }
        }
    };
    // The console's own rows keep their places.
    let chrome = |terminal: &Terminal, first: &str| {
        let text = terminal.text();
        assert!(terminal.row(0).starts_with(first), "{first}:\n{text}");
        assert!(
            terminal.row(35).trim_end().ends_with("? help"),
            "{first}:\n{text}"
        );
    };
    terminal.wait_for("DRIFTED  ");
    terminal.wait_for("UNREACH  ");
    terminal.wait("everybody", |terminal| !terminal.text().contains("LOADING"));
    chrome(&terminal, "west ␛]0;owned␇");
    for agent in [
        "code-reviewer",
        "monitor-bot",
        "ours",
        "taken",
        "gone",
        "far",
    ] {
        press(&mut terminal, ":");
        terminal.wait_for(": _");
        terminal.send(&format!("agent {agent}\r"));
        terminal.wait(agent, |terminal| terminal.row(0).starts_with(agent));
        if agent == "code-reviewer" {
            terminal.wait_for("‹U+202E›");
        }
        press(
            &mut terminal,
            "w . t \x06 \x06 G f \x02 f Tab \x06 G Tab G Tab",
        );
        chrome(&terminal, agent);
        press(&mut terminal, "j Enter q 2");
        press(&mut terminal, "X");
        terminal.wait("an answer", |terminal| !terminal.text().contains("making"));
        press(&mut terminal, "j G");
        terminal.send_until("1", "the fleet", |terminal| {
            terminal.text().contains("LAST RUN")
        });
    }
    press(&mut terminal, "7");
    terminal.wait_for("LOG  ");
    press(&mut terminal, "G k Enter j j q 8 j Enter Esc 1 ? G Esc");
    // A paste into an input line.
    press(&mut terminal, "/");
    terminal.send("\x1b[200~");
    terminal.send("\u{9b}31m \u{202e}\x07\x1b]0;owned\x07 \x1b[2J");
    terminal.send("\x1b[201~");
    press(&mut terminal, "Esc Esc");
    // The config breaks while the console runs.
    let mut config = site.read(CONFIG_NAME).into_bytes();
    config.extend(format!("[{HOSTILE_NAME}]\n{HOSTILE_NAME} = {HOSTILE_NAME}\n").bytes());
    config.extend(all_payload_lines());
    site.write(CONFIG_NAME, config);
    terminal.wait_for("memory-shepherd.conf:");
    press(&mut terminal, "7 1");
    terminal.send("q");
    assert!(terminal.wait_for_exit().success());
    terminal.assert_restored();
    let found = unexpected_output(StreamKind::Screen, &terminal.bytes);
    assert_eq!(found, [""; 0]);
}
