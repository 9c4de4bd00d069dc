//! The command line as scripts and timers use it: exit codes, output, JSON. Other
//! modules test the engine; these tests check that each command calls it correctly.

mod alerts;
mod archive;
mod archive_id;
mod baseline_edit;
mod debug_log;
mod doctor;
mod doctor_page;
mod doctor_units;
mod exit_code;
mod exit_code_table;
mod follow;
mod goldens;
mod habits;
mod hints;
mod hostile;
mod hosts;
mod keys;
mod live_schedule;
mod manual;
mod metrics;
mod operator_paths;
mod packaged_units;
mod prune;
mod repeated;
mod running_program;
mod schedule;
mod schedule_control;
mod schedule_run;
mod status;
mod unit_files;
mod unit_sandbox;
mod unread_output;
mod write_restriction;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use memory_shepherd::base::clock::SystemClock;
use memory_shepherd::config;
use memory_shepherd::engine::Engine;
use memory_shepherd::transport::SingleTransport;
use memory_shepherd::transport::local::LocalTransport;

use crate::fixture::{PROGRAM_PATH, Site};
use crate::world::{bare_environment, engine_with};

const REVIEWER_MEMORY: &str = "agents/code-reviewer/MEMORY.md";
const MONITOR_MEMORY: &str = "agents/monitor-bot/MEMORY.md";

/// A fleet in which one agent wrote notes and the other changed its rules.
fn site_with_notes_and_drift() -> Site {
    let site = Site::new();
    site.append(
        REVIEWER_MEMORY,
        "\n- LH-12 waits for CI\n\n## Found\n- a flaky test\n",
    );
    let edited = Site::read_baseline("monitor-bot").replacen("1. ", "1. Perhaps: ", 1);
    site.write(MONITOR_MEMORY, edited + "- quiet night");
    site
}

/// Opens the engine of a site's fleet.
pub(crate) fn site_engine(site: &Site) -> Engine {
    let env = bare_environment(&site.dir);
    let transports = Arc::new(SingleTransport(Arc::new(LocalTransport::new(Arc::new(
        SystemClock,
    )))));
    let config = config::load(&site.path("memory-shepherd.conf"), &env).unwrap();
    engine_with(config, Arc::new(SystemClock), transports, None)
}

/// Asserts that the escape byte never reaches output that a person may read.
#[track_caller]
fn assert_no_escape(text: &str) {
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(!text.contains('\u{202E}'), "{text:?}");
    assert!(!text.contains('\u{9b}'), "{text:?}");
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

#[test]
fn every_verb_prints_one_json_document() {
    let site = site_with_notes_and_drift();
    for arguments in [
        &["--json"][..],
        &["status", "--json"],
        &["--json", "status", "monitor-bot"],
        &["diff", "monitor-bot", "--json"],
        &["reset", "--all", "--dry-run", "--json"],
        &["push", "code-reviewer", "--dry-run", "--json"],
        &["push", "code-reviewer", "--keep", "none", "--json"],
        &["reset", "--all", "--json"],
        &["undo", "--json", "code-reviewer", "--dry-run"],
        &["log", "--json"],
        &["verify", "--json"],
        &["archive", "list", "--json"],
        &["archive", "pin", "--json", "nothing"],
        &["alerts", "test", "--json"],
        &["alerts", "send", "--json"],
        &["doctor", "--json"],
        &["keys", "--json"],
        &["config", "check", "--json"],
        &["config", "show", "--json"],
        &["schedule", "install", "--prefix", "units", "--json"],
        &["schedule", "install", "--crontab", "--json"],
        &["schedule", "status", "--prefix", "units", "--json"],
        &["schedule", "uninstall", "--prefix", "units", "--json"],
        &["schedule", "--json"],
        &["demo", "--json"],
        &["log", "--json", "nobody"],
        &["nonsense", "--json"],
        &["--nonsense", "--json"],
    ] {
        let _ = site.run_command(site.command().args(arguments)).json();
    }
}

mod original {
    use super::*;

    #[test]
    fn all_resets_every_agent_into_its_archive() {
        let site = site_with_notes_and_drift();
        let ran = site
            .run(["all"])
            .assert_code(0)
            .assert_stdout_has("] [memory-shepherd] Reset code-reviewer (");
        assert_eq!(ran.stderr, "");
        let scratch = site.entry_names("code-reviewer");
        let whole = site.entry_names("monitor");
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
        assert_eq!(
            site.read(REVIEWER_MEMORY),
            Site::read_baseline("code-reviewer")
        );
        let log = site.read("archives/reset.log");
        for line in log.lines() {
            assert!(
                line.starts_with("[20") && line.contains("] [memory-shepherd] "),
                "{line}"
            );
        }
    }

    #[test]
    fn agent_name_resets_only_that_agent() {
        let site = site_with_notes_and_drift();
        let before = site.read(MONITOR_MEMORY);
        let _ = site.run(["code-reviewer"]).assert_code(0);
        assert_eq!(
            site.read(REVIEWER_MEMORY),
            Site::read_baseline("code-reviewer")
        );
        assert_eq!(site.read(MONITOR_MEMORY), before);
        let _ = site
            .run(["code-reviewre"])
            .assert_code(2)
            .assert_stderr_has("did you mean code-reviewer?");
    }

    #[test]
    fn config_variable_has_no_fallback() {
        let site = site_with_notes_and_drift();
        let run = |name: &str, arguments: &[&str]| {
            let mut command = site.command();
            command.env("MEMORY_SHEPHERD_CONF", name);
            site.run_command(command.current_dir("/").args(arguments))
        };
        let config = site.path("memory-shepherd.conf");
        let _ = run(config.to_str().unwrap(), &["all"]).assert_code(0);
        let _ = run("/nowhere/x.conf", &["all"])
            .assert_code(2)
            .assert_stderr_has("$MEMORY_SHEPHERD_CONF");
        // The current directory's config is not used either.
        let mut command = site.command();
        command.env("MEMORY_SHEPHERD_CONF", "nowhere.conf");
        let _ = site.run_command(command.arg("status")).assert_code(2);
    }

    #[test]
    fn verb_wins_over_agent_of_same_name() {
        let site = site_with_notes_and_drift();
        let config = site.read("memory-shepherd.conf");
        site.write(
            "memory-shepherd.conf",
            config.replace("[monitor-bot]", "[status]"),
        );
        let _ = site
            .run(["status"])
            .assert_code(0)
            .assert_stdout_has("DRIFTED");
        let _ = site
            .run(["doctor"])
            .assert_stdout_has("agent status has the name of a command");
        let _ = site.run(["reset", "status"]).assert_code(0);
        assert_eq!(
            site.read(MONITOR_MEMORY),
            Site::read_baseline("monitor-bot")
        );
    }
}

mod plan {
    use super::*;

    fn plan_hash(site: &Site) -> String {
        let plan = site
            .run(["reset", "--all", "--dry-run", "--json"])
            .assert_code(0)
            .json();
        plan["plan"]["hash"].as_str().unwrap().to_string()
    }

    #[test]
    fn memory_without_boundary_has_no_line_counts() {
        let site = Site::new();
        site.write(MONITOR_MEMORY, "nothing of the baseline\n");
        let ran = site.run(["reset", "--all", "--dry-run"]).assert_code(0);
        assert!(
            ran.stdout.contains("archives the whole file, 24 bytes  "),
            "{}",
            ran.stdout
        );
        assert!(!ran.stdout.contains("+0 -0"), "{}", ran.stdout);
    }

    #[test]
    fn dry_run_counts_one_byte_in_the_singular() {
        let site = Site::new();
        site.append(MONITOR_MEMORY, "x");
        let table = site.run(["reset", "monitor-bot", "--dry-run"]).stdout;
        assert!(table.contains("archives 1 line, 1 byte "), "{table}");
    }

    #[test]
    fn dry_run_changes_nothing() {
        let site = site_with_notes_and_drift();
        let before = site.snapshot_files();
        let _ = site.run(["reset", "--all", "--dry-run"]).assert_code(0);
        assert_eq!(site.snapshot_files(), before);
        let _ = site.run(["reset", "--all"]).assert_code(0);
        let before = site.snapshot_files();
        let _ = site.run(["reset", "--all", "--dry-run"]).assert_code(0);
        let _ = site
            .run(["undo", "monitor-bot", "--dry-run"])
            .assert_code(0);
        assert_eq!(site.snapshot_files(), before);
    }

    #[test]
    fn reading_verbs_change_nothing() {
        let site = site_with_notes_and_drift();
        let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
        let before = site.snapshot_files();
        let _ = site.run(["status"]);
        let _ = site.run(["report"]);
        let _ = site.run(["diff", "monitor-bot"]);
        let _ = site.run(["log"]);
        let _ = site.run(["config", "check"]);
        let _ = site.run(["config", "show"]);
        assert_eq!(site.snapshot_files(), before);
        // `doctor` probes in a directory that it removes afterwards.
        let _ = site.run(["doctor"]).assert_code(0);
        assert!(site.snapshot_files().keys().eq(before.keys()));
    }

    #[test]
    fn plan_applies_after_scratch_grew() {
        let site = site_with_notes_and_drift();
        let hash = plan_hash(&site);
        site.append(REVIEWER_MEMORY, "- and one more\n");
        let _ = site
            .run(["reset", "--all", "--plan", &hash[..8]])
            .assert_code(0);
        assert_eq!(
            site.read(REVIEWER_MEMORY),
            Site::read_baseline("code-reviewer")
        );
    }

    #[test]
    fn plan_with_changed_baseline_is_refused() {
        let site = site_with_notes_and_drift();
        let hash = plan_hash(&site);
        site.append("baselines/code-reviewer-MEMORY.md", "\n");
        let before = site.snapshot_files();
        let ran = site.run(["reset", "--all", "--plan", &hash]).assert_code(6);
        let _ = ran
            .assert_stderr_has("is out of date")
            .assert_stderr_has("--dry-run");
        assert_eq!(site.snapshot_files(), before);
    }

    #[test]
    fn plan_for_other_memory_is_refused() {
        let site = site_with_notes_and_drift();
        let old = plan_hash(&site);
        // The same bytes in another file.
        site.write("agents/other/MEMORY.md", site.read(REVIEWER_MEMORY));
        let config = site.read("memory-shepherd.conf");
        let moved = config.replace("agents/code-reviewer/", "agents/other/");
        site.write("memory-shepherd.conf", moved);
        let _ = site.run(["reset", "--all", "--plan", &old]).assert_code(6);
        assert_ne!(plan_hash(&site), old);
        site.write("memory-shepherd.conf", config);
        let _ = site.run(["reset", "--all", "--plan", &old]).assert_code(0);
        let undo = || site.run(["undo", "code-reviewer", "--dry-run", "--json"]);
        let _ = undo().assert_code(0);
        let config = site.read("memory-shepherd.conf");
        let moved = config.replace("agents/code-reviewer/", "agents/other/");
        site.write("agents/other/MEMORY.md", site.read(REVIEWER_MEMORY));
        site.write("memory-shepherd.conf", moved);
        let plan = undo().assert_code(6).json()["plan"].take();
        assert_eq!(plan["steps"].as_array().unwrap().len(), 0);
    }

    #[test]
    fn plan_with_changed_rules_is_refused() {
        let site = site_with_notes_and_drift();
        let hash = plan_hash(&site);
        let text = site.read(MONITOR_MEMORY).replacen("2. ", "2. Or not: ", 1);
        site.write(MONITOR_MEMORY, text);
        let _ = site.run(["reset", "--all", "--plan", &hash]).assert_code(6);
    }
}

mod undo {
    use super::*;

    #[test]
    fn undo_restores_exact_bytes() {
        let site = site_with_notes_and_drift();
        let before = site.read(MONITOR_MEMORY);
        let _ = site.run(["reset", "--all"]).assert_code(0);
        let _ = site.run(["undo", "monitor-bot"]).assert_code(0);
        assert_eq!(site.read(MONITOR_MEMORY), before);
    }

    #[test]
    fn undo_of_run_restores_all_its_agents() {
        let site = site_with_notes_and_drift();
        let before = (site.read(REVIEWER_MEMORY), site.read(MONITOR_MEMORY));
        let report = site.run(["reset", "--all", "--json"]).assert_code(0).json();
        let run = report["run"].as_str().unwrap();
        let _ = site.run(["undo", "--run", run]).assert_code(0);
        assert_eq!(
            (site.read(REVIEWER_MEMORY), site.read(MONITOR_MEMORY)),
            before
        );
    }

    #[test]
    fn undo_appends_or_overwrites_as_requested() {
        for (mode, more) in [("--append", true), ("--overwrite", false)] {
            let site = site_with_notes_and_drift();
            let before = site.read(REVIEWER_MEMORY);
            let _ = site.run(["reset", "--all"]).assert_code(0);
            site.append(REVIEWER_MEMORY, "- written since\n");
            let _ = site.run(["undo", "code-reviewer", mode]).assert_code(0);
            let after = site.read(REVIEWER_MEMORY);
            assert!(after.starts_with(&before));
            assert_eq!(after.ends_with("- written since\n"), more, "{mode}");
            assert_eq!(site.entry_names("code-reviewer").len(), 2, "{mode}");
        }
    }
}

#[test]
fn plan_of_an_append_confirms_no_overwrite() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    site.append(REVIEWER_MEMORY, "- written since\n");
    let before = site.read(REVIEWER_MEMORY);
    let dry = site.run(["undo", "code-reviewer", "--append", "--dry-run", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&dry.stdout).unwrap();
    let hash = document["plan"]["hash"].as_str().unwrap();
    let undo = |mode| site.run(["undo", "code-reviewer", mode, "--plan", hash]);
    let _ = undo("--overwrite").assert_code(6);
    assert_eq!(site.read(REVIEWER_MEMORY), before);
    let _ = undo("--append").assert_code(0);
}

#[test]
fn appending_undo_names_rules_that_it_leaves_out() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    let memory = site.read(REVIEWER_MEMORY);
    site.write(
        REVIEWER_MEMORY,
        format!("- a rule of its own\n{memory}- a note\n"),
    );
    let why = "lines that changed above the separator since are in the archive alone";
    let ran = site
        .run(["undo", "code-reviewer", "--append"])
        .assert_code(0);
    let _ = ran.assert_stdout_has(why);
    let after = site.read(REVIEWER_MEMORY);
    assert!(after.ends_with("- a note\n") && !after.contains("a rule of its own"));
    let (archived, note) = (site.entry_names("code-reviewer"), "- a rule of its own");
    let has_rule = |name: &String| {
        site.read(&format!("archives/code-reviewer/{name}"))
            .contains(note)
    };
    assert!(archived.iter().any(has_rule), "{archived:?}");
}

#[test]
fn undo_of_creation_hints_at_overwrite_alone() {
    let site = site_with_notes_and_drift();
    fs::remove_file(site.path(MONITOR_MEMORY)).unwrap();
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    site.append(MONITOR_MEMORY, "- written since\n");
    let ran = site.run(["undo", "--last", "--dry-run"]).assert_code(6);
    assert!(
        ran.stderr.contains("--overwrite archives"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("--append"), "{}", ran.stderr);
    let _ = site.run(["undo", "--last", "--overwrite"]).assert_code(0);
    assert!(!site.path(MONITOR_MEMORY).exists());
    // A restored file takes both.
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    site.append(REVIEWER_MEMORY, "- written since\n");
    let ran = site.run(["undo", "--last", "--dry-run"]).assert_code(6);
    for mode in ["use --append", "use --overwrite"] {
        assert!(ran.stderr.contains(mode), "{}", ran.stderr);
    }
}

#[test]
fn diff_compares_entry_with_current_memory() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "code-reviewer"]).assert_code(0);
    site.append(REVIEWER_MEMORY, "\n- LH-12 waits for CI\n- new\n");
    let name = site.entry_names("code-reviewer").remove(0);
    let name = name.as_str();
    let ran = site
        .run(["diff", "code-reviewer", "--against-archive", name])
        .assert_code(0);
    let _ = ran
        .assert_stdout_has("\n-- a flaky test\n")
        .assert_stdout_has("\n+- new\n");
    let path = format!("code-reviewer/{name}");
    let _ = site
        .run(["diff", "code-reviewer", "--against-archive", &path])
        .assert_code(0);
    let ran = site.run(["diff", "code-reviewer", "--stat", "--against-archive", name]);
    assert!(
        !ran.stdout.contains("above the separator"),
        "{}",
        ran.stdout
    );
    let outside = [
        "diff",
        "code-reviewer",
        "--against-archive",
        "../memory-shepherd.conf",
    ];
    let _ = site.run(outside).assert_code(2).assert_stderr_has(name);
}

#[test]
fn quiet_prints_only_errors() {
    let site = site_with_notes_and_drift();
    site.append("memory-shepherd.conf", "every=3h # or so\n");
    let ran = site.run(["-q", "reset", "--all"]).assert_code(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    let _ = site
        .run(["-q", "reset", "nobody"])
        .assert_code(2)
        .assert_stderr_has("error: ");
}

#[test]
fn colors_need_option_or_terminal() {
    let site = site_with_notes_and_drift();
    assert_no_escape(&site.run(["status"]).stdout);
    assert_no_escape(&site.run(["status", "--color", "never"]).stdout);
    let ran = site.run(["status", "--color=always"]).assert_code(0);
    assert!(
        ran.stdout.contains("\x1b[1;31mDRIFTED\x1b[0m"),
        "{:?}",
        ran.stdout
    );
    let on_screen =
        |site: &Site, variable: (&str, &str)| run_in_terminal(site, &["status"], variable);
    assert!(on_screen(&site, ("TERM", "xterm")).contains("\x1b[1;31mDRIFTED\x1b[0m"));
    assert_no_escape(&on_screen(&site, ("NO_COLOR", "1")));
    assert_no_escape(&on_screen(&site, ("TERM", "dumb")));
}

/// Returns what the program prints on a terminal, with LF for CR LF.
fn run_in_terminal(site: &Site, arguments: &[&str], (name, value): (&str, &str)) -> String {
    use portable_pty::{CommandBuilder, PtySize, native_pty_system};
    let size = PtySize {
        rows: 50,
        cols: 200,
        ..PtySize::default()
    };
    let pty = native_pty_system().openpty(size).unwrap();
    let mut command = CommandBuilder::new(PROGRAM_PATH);
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
    // The terminal reports an error when the program ends.
    while let Ok(count @ 1..) = reader.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
    }
    child.wait().unwrap();
    String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
}

#[test]
fn closed_reader_is_not_an_error() {
    let site = Site::new();
    let _ = site
        .run(["demo", "--agents", "1000", "--dir", "demo"])
        .assert_code(0);
    for arguments in [
        &["status"][..],
        &["log"],
        &["config", "show"],
        &["reset", "--all"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(PROGRAM_PATH);
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
            // A closed reader does not change the exit code.
            ["status"] | ["reset", ..] => 4,
            _ => 0,
        };
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {err}");
    }
    let help = Command::new("/bin/sh")
        .args(["-c", r#""$0" --help | true"#, PROGRAM_PATH])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&help.stderr), "");
}

#[test]
fn run_whose_lines_cannot_be_written_says_so() {
    let open = |path: &str, is_written: bool| {
        let mut options = fs::File::options();
        options.write(is_written).read(!is_written);
        options.open(path).unwrap()
    };
    for (path, is_written, why) in [
        ("/dev/full", true, "no space left"),
        ("/dev/null", false, "bad file descriptor"),
    ] {
        let site = site_with_notes_and_drift();
        site.append(MONITOR_MEMORY, "- more\n");
        for words in [
            "reset monitor-bot",
            "reset code-reviewer --json",
            "undo monitor-bot",
        ] {
            let mut command = Command::new(PROGRAM_PATH);
            command.env_clear().current_dir(&site.dir);
            let output = command
                .args(words.split(' '))
                .stdout(open(path, is_written))
                .stderr(Stdio::piped())
                .output()
                .unwrap();
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{words}: {err}");
            assert!(
                err.contains(&format!("cannot write the answer: {why}")),
                "{err}"
            );
            assert!(err.contains("the run itself stands"), "{words}: {err}");
        }
        let log = site.run(["log"]).assert_code(0);
        let _ = log.assert_stdout_has("undo");
    }
}

#[test]
fn full_output_is_an_error() {
    let site = site_with_notes_and_drift();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(PROGRAM_PATH);
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
fn unknown_archive_group_is_a_config_error() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let config = config.replace("[general]", "[general]\narchive_group=no-such-group-here");
    site.write("memory-shepherd.conf", config);
    let _ = site
        .run(["reset", "--all"])
        .assert_code(2)
        .assert_stderr_has(
            "memory-shepherd.conf:2: error: archive_group: no group no-such-group-here",
        );
    let _ = site
        .run(["config", "check"])
        .assert_code(2)
        .assert_stdout_has("memory-shepherd.conf:2: error: archive_group: no group");
    let _ = site
        .run(["doctor"])
        .assert_code(2)
        .assert_stdout_has("FAIL  config line 2: archive_group: no group");
}

#[test]
fn standard_input_is_not_read() {
    let site = site_with_notes_and_drift();
    let mut child = Command::new(PROGRAM_PATH)
        .env_clear()
        .current_dir(&site.dir)
        .args(["reset", "--all"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Standard input stays open: a command that read it would block.
    let mut input = child.stdin.take().unwrap();
    assert!(child.wait().unwrap().success());
    let _ = input.write_all(b"n\n");
}

/// Runs the program while a directory is on a read-only file system, in a mount namespace that
/// ends with the program; `None` where the kernel does not allow such a mount.
fn run_on_read_only_disk(
    site: &Site,
    directory: &str,
    arguments: &[&str],
) -> Option<crate::fixture::CommandOutput> {
    let script = "mount --bind \"$1\" \"$1\" && cd \"$PWD\" && \
                  mount -o remount,bind,ro \"$1\" || exit 99; shift; exec \"$0\" \"$@\"";
    let private = ["--mount", "--propagation", "private", "sh", "-c", script];
    let mut command = assert_cmd::Command::new("unshare");
    command
        .args(private)
        .arg(PROGRAM_PATH)
        .arg(directory)
        .args(arguments)
        .current_dir(&site.dir);
    let made = command.output().is_ok_and(|it| {
        let code = it.status.code();
        code != Some(99) && !it.stdout.is_empty()
    });
    made.then(|| site.run_command(&mut command))
}

/// The record of the first run names a file that was never created under that name.
#[test]
fn recovery_on_read_only_disk_blames_no_absent_file() {
    let site = site_with_notes_and_drift();
    let mut writer = fs::OpenOptions::new();
    let _writer = writer.append(true).open(site.path(MONITOR_MEMORY)).unwrap();
    let _ = site.run(["reset", "monitor-bot"]);
    let records = fs::read_dir(site.path("archives/.shepherd/tx")).unwrap();
    assert_eq!(records.count(), 1, "the displaced file is open");
    site.append(MONITOR_MEMORY, "- more\n");
    let Some(ran) = run_on_read_only_disk(&site, "agents", &["reset", "monitor-bot"]) else {
        return crate::skip::skip_unsupported("only root can mount");
    };
    let ran = ran.assert_stderr_has("read-only file system");
    assert!(!ran.stderr.contains("cannot remove"), "{}", ran.stderr);
}
