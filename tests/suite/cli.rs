//! The command line as scripts and timers see it: exit codes, output, JSON.
//! What the engine does with agents is tested elsewhere; here it is only that
//! the wires lead where they should.

mod advice;
mod doctor;
mod exit_code;
mod goldens;
mod hostile;
mod hosts;
mod keys;
mod status;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use memory_shepherd::clock::SystemClock;
use memory_shepherd::config::{self, ConfigEnvironment};
use memory_shepherd::engine::{Engine, EngineSetup, Trigger};
use memory_shepherd::transport::SingleTransport;
use memory_shepherd::transport::local::LocalTransport;

use crate::fixture::{PROGRAM, Site};

const REVIEWER: &str = "agents/code-reviewer/MEMORY.md";
const MONITOR: &str = "agents/monitor-bot/MEMORY.md";

/// A fleet in which one agent wrote notes and the other changed its rules.
fn busy() -> Site {
    let site = Site::new();
    site.append(
        REVIEWER,
        "\n- LH-12 waits for CI\n\n## Found\n- a flaky test\n",
    );
    let edited = Site::baseline("monitor-bot").replacen("1. ", "1. Perhaps: ", 1);
    site.write(MONITOR, edited + "- quiet night");
    site
}

fn engine(site: &Site) -> Engine {
    let env = ConfigEnvironment {
        cwd: site.dir.clone(),
        home: None,
        xdg_config_home: None,
        xdg_state_home: None,
        config_path_variable: None,
        uid: 0,
    };
    Engine::new(EngineSetup {
        config: config::load(&site.path("memory-shepherd.conf"), &env).unwrap(),
        clock: Arc::new(SystemClock),
        transports: Arc::new(SingleTransport(Arc::new(LocalTransport::new(Arc::new(
            SystemClock,
        ))))),
        user: "tester".to_string(),
        trigger: Trigger::Cli,
        archive_group: None,
    })
}

/// The escape byte never gets out where somebody may look.
#[track_caller]
fn no_escape(text: &str) {
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(!text.contains('\u{202E}'), "{text:?}");
    assert!(!text.contains('\u{9b}'), "{text:?}");
}

#[test]
fn every_verb_prints_one_json_document_with_its_schema() {
    let site = busy();
    for arguments in [
        &["--json"][..],
        &["status", "--json"],
        &["--json", "status", "monitor-bot"],
        &["diff", "monitor-bot", "--json"],
        &["reset", "--all", "--dry-run", "--json"],
        &["reset", "--all", "--json"],
        &["undo", "--json", "code-reviewer", "--dry-run"],
        &["log", "--json"],
        &["verify", "--json"],
        &["archive", "list", "--json"],
        &["archive", "pin", "--json", "nothing"],
        &["doctor", "--json"],
        &["keys", "--json"],
        &["config", "check", "--json"],
        &["config", "show", "--json"],
        &["demo", "--json"],
        &["log", "--json", "nobody"],
        &["nonsense", "--json"],
        &["--nonsense", "--json"],
    ] {
        let _ = site.ran(site.command().args(arguments)).json();
    }
}

mod original {
    use super::*;

    #[test]
    fn all_resets_everybody_and_archives_in_the_same_places() {
        let site = busy();
        let ran = site
            .run(["all"])
            .code(0)
            .says("] [memory-shepherd] Reset code-reviewer (");
        assert_eq!(ran.err, "");
        let scratch = site.entries("code-reviewer");
        let whole = site.entries("monitor");
        assert_eq!((scratch.len(), whole.len()), (1, 1));
        assert!(whole[0].ends_with("-full-backup.md"), "{whole:?}");
        let stamp = scratch[0].strip_suffix(".md").unwrap();
        assert_eq!(stamp.len(), "2026-03-14_0900".len());
        let entry = site.read(&format!("archives/code-reviewer/{}", scratch[0]));
        let header = format!("# code-reviewer scratch notes — archived {stamp}\n\n");
        let notes = entry.strip_prefix(&header).unwrap();
        assert!(
            notes.ends_with("\n- LH-12 waits for CI\n\n## Found\n- a flaky test\n"),
            "{notes}"
        );
        assert_eq!(site.read(REVIEWER), Site::baseline("code-reviewer"));
        let log = site.read("archives/reset.log");
        for line in log.lines() {
            assert!(
                line.starts_with("[20") && line.contains("] [memory-shepherd] "),
                "{line}"
            );
        }
    }

    #[test]
    fn an_agents_name_resets_it_alone() {
        let site = busy();
        let before = site.read(MONITOR);
        let _ = site.run(["code-reviewer"]).code(0);
        assert_eq!(site.read(REVIEWER), Site::baseline("code-reviewer"));
        assert_eq!(site.read(MONITOR), before);
        let _ = site
            .run(["code-reviewre"])
            .code(2)
            .warns("did you mean code-reviewer?");
    }

    #[test]
    fn the_variable_names_the_config_and_is_no_first_try() {
        let site = busy();
        let run = |name: &str, arguments: &[&str]| {
            let mut command = site.command();
            command.env("MEMORY_SHEPHERD_CONF", name);
            site.ran(command.current_dir("/").args(arguments))
        };
        let config = site.path("memory-shepherd.conf");
        let _ = run(config.to_str().unwrap(), &["all"]).code(0);
        let _ = run("/nowhere/x.conf", &["all"])
            .code(2)
            .warns("$MEMORY_SHEPHERD_CONF");
        // Also where the current folder has one.
        let mut command = site.command();
        command.env("MEMORY_SHEPHERD_CONF", "nowhere.conf");
        let _ = site.ran(command.arg("status")).code(2);
    }

    #[test]
    fn a_verb_wins_over_an_agent_of_the_same_name() {
        let site = busy();
        let config = site.read("memory-shepherd.conf");
        site.write(
            "memory-shepherd.conf",
            config.replace("[monitor-bot]", "[status]"),
        );
        let _ = site.run(["status"]).code(0).says("DRIFTED");
        let _ = site
            .run(["doctor"])
            .says("the agent status has the name of a command");
        let _ = site.run(["reset", "status"]).code(0);
        assert_eq!(site.read(MONITOR), Site::baseline("monitor-bot"));
    }
}

mod plan {
    use super::*;

    fn hash(site: &Site) -> String {
        let plan = site
            .run(["reset", "--all", "--dry-run", "--json"])
            .code(0)
            .json();
        plan["plan"]["hash"].as_str().unwrap().to_string()
    }

    #[test]
    fn memory_without_boundary_has_no_line_counts() {
        let site = Site::new();
        site.write(MONITOR, "nothing of the baseline\n");
        let ran = site.run(["reset", "--all", "--dry-run"]).code(0);
        assert!(
            ran.out.contains("archives the whole file, 24 bytes  "),
            "{}",
            ran.out
        );
        assert!(!ran.out.contains("+0 -0"), "{}", ran.out);
    }

    #[test]
    fn a_dry_run_changes_nothing() {
        let site = busy();
        let before = site.tree();
        let _ = site.run(["reset", "--all", "--dry-run"]).code(0);
        assert_eq!(site.tree(), before);
        let _ = site.run(["reset", "--all"]).code(0);
        let before = site.tree();
        let _ = site.run(["reset", "--all", "--dry-run"]).code(0);
        let _ = site.run(["undo", "monitor-bot", "--dry-run"]).code(0);
        assert_eq!(site.tree(), before);
    }

    #[test]
    fn reading_verbs_change_nothing() {
        let site = busy();
        let _ = site.run(["reset", "code-reviewer"]).code(0);
        let before = site.tree();
        let _ = site.run(["status"]);
        let _ = site.run(["diff", "monitor-bot"]);
        let _ = site.run(["log"]);
        let _ = site.run(["config", "check"]);
        let _ = site.run(["config", "show"]);
        assert_eq!(site.tree(), before);
        // What doctor tries out, it tries in a folder that it removes.
        let _ = site.run(["doctor"]).code(0);
        assert!(site.tree().keys().eq(before.keys()));
    }

    #[test]
    fn one_that_holds_is_applied_also_when_scratch_grew() {
        let site = busy();
        let hash = hash(&site);
        site.append(REVIEWER, "- and one more\n");
        let _ = site.run(["reset", "--all", "--plan", &hash[..8]]).code(0);
        assert_eq!(site.read(REVIEWER), Site::baseline("code-reviewer"));
    }

    #[test]
    fn one_whose_baseline_changed_is_refused_and_nothing_is_touched() {
        let site = busy();
        let hash = hash(&site);
        site.append("baselines/code-reviewer-MEMORY.md", "\n");
        let before = site.tree();
        let ran = site.run(["reset", "--all", "--plan", &hash]).code(6);
        let _ = ran.warns("no longer holds").warns("--dry-run");
        assert_eq!(site.tree(), before);
    }

    #[test]
    fn one_for_another_memory_is_refused() {
        let site = busy();
        let old = hash(&site);
        // The same bytes in another place.
        site.write("agents/other/MEMORY.md", site.read(REVIEWER));
        let config = site.read("memory-shepherd.conf");
        let moved = config.replace("agents/code-reviewer/", "agents/other/");
        site.write("memory-shepherd.conf", moved);
        let _ = site.run(["reset", "--all", "--plan", &old]).code(6);
        assert_ne!(hash(&site), old);
        site.write("memory-shepherd.conf", config);
        let _ = site.run(["reset", "--all", "--plan", &old]).code(0);
        let undo = || site.run(["undo", "code-reviewer", "--dry-run", "--json"]);
        let _ = undo().code(0);
        let config = site.read("memory-shepherd.conf");
        let moved = config.replace("agents/code-reviewer/", "agents/other/");
        site.write("agents/other/MEMORY.md", site.read(REVIEWER));
        site.write("memory-shepherd.conf", moved);
        let plan = undo().code(6).json()["plan"].take();
        assert_eq!(plan["steps"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn one_whose_rules_changed_is_refused() {
        let site = busy();
        let hash = hash(&site);
        let text = site.read(MONITOR).replacen("2. ", "2. Or not: ", 1);
        site.write(MONITOR, text);
        let _ = site.run(["reset", "--all", "--plan", &hash]).code(6);
    }
}

mod undo {
    use super::*;

    #[test]
    fn puts_back_the_exact_bytes() {
        let site = busy();
        let before = site.read(MONITOR);
        let _ = site.run(["reset", "--all"]).code(0);
        let _ = site.run(["undo", "monitor-bot"]).code(0);
        assert_eq!(site.read(MONITOR), before);
    }

    #[test]
    fn of_a_run_is_for_everybody_that_it_changed() {
        let site = busy();
        let before = (site.read(REVIEWER), site.read(MONITOR));
        let report = site.run(["reset", "--all", "--json"]).code(0).json();
        let run = report["run"].as_str().unwrap();
        let _ = site.run(["undo", "--run", run]).code(0);
        assert_eq!((site.read(REVIEWER), site.read(MONITOR)), before);
    }

    #[test]
    fn appends_or_overwrites_when_it_is_told_to() {
        for (mode, more) in [("--append", true), ("--overwrite", false)] {
            let site = busy();
            let before = site.read(REVIEWER);
            let _ = site.run(["reset", "--all"]).code(0);
            site.append(REVIEWER, "- written since\n");
            let _ = site.run(["undo", "code-reviewer", mode]).code(0);
            let after = site.read(REVIEWER);
            assert!(after.starts_with(&before));
            assert_eq!(after.ends_with("- written since\n"), more, "{mode}");
            assert_eq!(site.entries("code-reviewer").len(), 2, "{mode}");
        }
    }
}

#[test]
fn an_entry_is_compared_with_what_the_memory_holds_now() {
    let site = busy();
    let _ = site.run(["reset", "code-reviewer"]).code(0);
    site.append(REVIEWER, "\n- LH-12 waits for CI\n- new\n");
    let name = site.entries("code-reviewer").remove(0);
    let name = name.as_str();
    let ran = site
        .run(["diff", "code-reviewer", "--against-archive", name])
        .code(0);
    let _ = ran.says("\n-- a flaky test\n").says("\n+- new\n");
    let path = format!("code-reviewer/{name}");
    let _ = site
        .run(["diff", "code-reviewer", "--against-archive", &path])
        .code(0);
    let outside = [
        "diff",
        "code-reviewer",
        "--against-archive",
        "../memory-shepherd.conf",
    ];
    let _ = site.run(outside).code(2).warns(name);
}

#[test]
fn quiet_leaves_only_what_went_wrong() {
    let site = busy();
    site.append("memory-shepherd.conf", "every=3h # or so\n");
    let ran = site.run(["-q", "reset", "--all"]).code(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
    let _ = site.run(["-q", "reset", "nobody"]).code(2).warns("error: ");
}

#[test]
fn colours_come_only_when_asked_for_or_on_a_terminal() {
    let site = busy();
    no_escape(&site.run(["status"]).out);
    no_escape(&site.run(["status", "--color", "never"]).out);
    let ran = site.run(["status", "--color=always"]).code(0);
    assert!(
        ran.out.contains("\x1b[1;31mDRIFTED\x1b[0m"),
        "{:?}",
        ran.out
    );
    let on_screen = |site: &Site, variable: (&str, &str)| terminal(site, &["status"], variable);
    assert!(on_screen(&site, ("TERM", "xterm")).contains("\x1b[1;31mDRIFTED\x1b[0m"));
    no_escape(&on_screen(&site, ("NO_COLOR", "1")));
    no_escape(&on_screen(&site, ("TERM", "dumb")));
}

/// What the program prints on a terminal, with CR LF as LF.
fn terminal(site: &Site, arguments: &[&str], (name, value): (&str, &str)) -> String {
    use portable_pty::{CommandBuilder, PtySize, native_pty_system};
    let size = PtySize {
        rows: 50,
        cols: 200,
        ..PtySize::default()
    };
    let pty = native_pty_system().openpty(size).unwrap();
    let mut command = CommandBuilder::new(PROGRAM);
    command.env_clear();
    command.env("HOME", site.path("home"));
    command.env(name, value);
    command.cwd(&site.dir);
    command.args(arguments);
    let mut child = pty.slave.spawn_command(command).unwrap();
    drop(pty.slave);
    let mut bytes = Vec::new();
    let mut reader = pty.master.try_clone_reader().unwrap();
    let mut buffer = [0; 4096];
    // At the end of the program the terminal answers with an error.
    while let Ok(count @ 1..) = reader.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
    }
    child.wait().unwrap();
    String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let site = Site::new();
    let _ = site
        .run(["demo", "--agents", "1000", "--dir", "demo"])
        .code(0);
    for arguments in [
        &["status"][..],
        &["log"],
        &["config", "show"],
        &["reset", "--all"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(PROGRAM);
        let config = site.path("demo/memory-shepherd.conf");
        command
            .env_clear()
            .arg("--config")
            .arg(config)
            .args(arguments);
        let output = command
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(
            !err.contains("ipe") && !err.contains("panic"),
            "{arguments:?}: {err}"
        );
        let expected = match arguments {
            // What was found out stands, whoever listens.
            ["status"] | ["reset", ..] => 4,
            _ => 0,
        };
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {err}");
    }
    let help = Command::new("/bin/sh")
        .args(["-c", r#""$0" --help | true"#, PROGRAM])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&help.stderr), "");
}

#[test]
fn an_output_that_is_full_is_an_error() {
    let site = busy();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(PROGRAM);
    command.env_clear().current_dir(&site.dir).arg("status");
    let output = command
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.contains("cannot write the answer: no space left"),
        "{err}"
    );
}

#[test]
fn a_group_that_does_not_exist_is_an_error_of_the_config() {
    let site = busy();
    let config = site.read("memory-shepherd.conf");
    let config = config.replace("[general]", "[general]\narchive_group=no-such-group-here");
    site.write("memory-shepherd.conf", config);
    let _ = site
        .run(["reset", "--all"])
        .code(2)
        .warns("no group called");
}

#[test]
fn nothing_is_read_from_standard_input() {
    let site = busy();
    let mut child = Command::new(PROGRAM)
        .env_clear()
        .current_dir(&site.dir)
        .args(["reset", "--all"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Kept open: whoever waited for input would wait for ever.
    let mut input = child.stdin.take().unwrap();
    assert!(child.wait().unwrap().success());
    let _ = input.write_all(b"n\n");
}
