//! Documented exit codes, each with the conditions that lead to it.

use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use super::running_program::RunningProgram;
use super::*;
use crate::terminal::wait_timeout;
use crate::world::World;

#[test]
fn success_exits_0() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["status"]).assert_code(0);
    let _ = site.run([]).assert_code(0).assert_stdout_has("SCRATCH");
    let _ = site.run(["diff", "monitor-bot"]).assert_code(0);
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let _ = site
        .run(["diff", "monitor-bot", "--exit-code"])
        .assert_code(0);
    let _ = site
        .run(["--version"])
        .assert_code(0)
        .assert_stdout_has("memory-shepherd 0.");
    let _ = site
        .run(["help", "reset"])
        .assert_code(0)
        .assert_stdout_has("Exit codes:");
}

#[test]
fn differences_and_findings_exit_1() {
    let site = site_with_notes_and_drift();
    let _ = site
        .run(["diff", "monitor-bot", "--exit-code"])
        .assert_code(1);
    let _ = site
        .run(["diff", "monitor-bot", "--exit-code", "--stat"])
        .assert_code(1);
    fs::remove_dir_all(site.path("agents/monitor-bot")).unwrap();
    let _ = site
        .run(["doctor"])
        .assert_code(1)
        .assert_stdout_has("FAIL  the directory of monitor-bot");
}

#[test]
fn usage_and_config_errors_exit_2() {
    let site = site_with_notes_and_drift();
    for arguments in [
        &["reset"][..],
        &["reset", "--all", "monitor-bot"],
        &["reset", "monitor-bot", "--plan", "abc"],
        &["undo"],
        &["undo", "--append", "--overwrite", "monitor-bot"],
        &["undo", "--run", "00000000"],
        &["--nonsense"],
        &["nobody"],
        &["status", "nobody"],
        &["diff", "nobody"],
        &["log", "nobody"],
        &["--read-only", "status"],
        &["monitor-bot", "status"],
        &["diff", "monitor-bot", "--against-archive", "nothing"],
        &["--config", "missing.conf", "status"],
        &["--config", "missing.conf", "doctor"],
        &["--config", "agents", "status"],
    ] {
        let ran = site
            .run_command(site.command().args(arguments))
            .assert_code(2);
        assert!(
            !ran.stderr.is_empty() || !ran.stdout.is_empty(),
            "{arguments:?}"
        );
    }
    site.append("memory-shepherd.conf", "archive_groop=x\n[general]\n");
    for verb in ["status", "doctor", "log"] {
        let _ = site.run([verb]).assert_code(2);
    }
    let _ = site
        .run(["reset", "--all"])
        .assert_code(2)
        .assert_stderr_has("no command runs with it");
    assert!(!site.path("archives").exists());
}

#[test]
fn unreadable_memory_exits_3() {
    let site = site_with_notes_and_drift();
    site.append(
        "memory-shepherd.conf",
        "[far]\nremote_host=127.0.0.1\nremote_port=1\nremote_memory=/x/MEMORY.md\n\
         baseline=monitor-bot-MEMORY.md\n",
    );
    let _ = site
        .run(["status"])
        .assert_code(3)
        .assert_stderr_has("cannot read the memory of far: ")
        .assert_stdout_has("3 agents");
}

#[test]
fn integrity_breach_exits_4() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["code-reviewer"]).assert_code(0);
    let sums = "0".repeat(64) + "  monitor-bot-MEMORY.md\n";
    site.write("baselines/.checksums", sums);
    let _ = site
        .run(["reset", "monitor-bot"])
        .assert_code(4)
        .assert_stderr_has("monitor-bot");
    let _ = site.run(["reset", "--all", "--dry-run"]).assert_code(4);
    let _ = site
        .run(["status"])
        .assert_code(4)
        .assert_stdout_has("TAMPERED");
    let _ = site.run(["doctor"]).assert_code(4);
    fs::remove_file(site.path("baselines/.checksums")).unwrap();
    let ledger = site.read("archives/.shepherd/ledger.jsonl");
    site.write(
        "archives/.shepherd/ledger.jsonl",
        ledger.replace("cli", "cly"),
    );
    let _ = site
        .run(["log"])
        .assert_code(4)
        .assert_stderr_has("broken at line 1");
    let _ = site.run(["doctor"]).assert_code(4);
    let _ = site
        .run(["status"])
        .assert_code(4)
        .assert_stderr_has("cannot read the last runs");
}

#[test]
fn held_lock_exits_5() {
    let site = site_with_notes_and_drift();
    let held = site_engine(&site)
        .locks()
        .hold_agent_lock("monitor-bot")
        .unwrap();
    let _ = site
        .run(["reset", "monitor-bot"])
        .assert_code(5)
        .assert_stderr_has(" of tester@")
        .assert_stderr_has("process ");
    let _ = site.run(["reset", "--all", "--dry-run"]).assert_code(5);
    let _ = site
        .run(["status"])
        .assert_code(0)
        .assert_stdout_has("DRIFTED");
    drop(held);
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
}

#[test]
fn refusal_exits_6() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    site.append(MONITOR_MEMORY, "- more\n");
    let _ = site
        .run(["undo", "monitor-bot", "--dry-run"])
        .assert_code(6)
        .assert_stderr_has("--append");
    let _ = site
        .run(["undo", "monitor-bot"])
        .assert_code(6)
        .assert_stderr_has("hint: --append")
        .assert_stderr_has("--overwrite");
    let _ = site
        .run(["undo", "code-reviewer"])
        .assert_code(6)
        .assert_stderr_has("nothing to undo");
    site.append("memory-shepherd.conf", "protect=readonly\n");
    let _ = site
        .run(["reset", "monitor-bot"])
        .assert_code(6)
        .assert_stderr_has("read-only");
    site.write("baselines/code-reviewer-MEMORY.md", "# small\n\n---\n");
    let _ = site
        .run(["reset", "code-reviewer"])
        .assert_code(6)
        .assert_stderr_has("has only 13 bytes");
    fs::remove_file(site.path("baselines/code-reviewer-MEMORY.md")).unwrap();
    let _ = site
        .run(["reset", "code-reviewer"])
        .assert_code(6)
        .assert_stderr_has("is missing");
}

#[test]
fn clean_protected_agent_exits_0() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    site.append("memory-shepherd.conf", "protect=readonly\n");
    for arguments in [
        &["reset", "monitor-bot", "--dry-run"][..],
        &["reset", "monitor-bot"],
    ] {
        let _ = site
            .run_command(site.command().args(arguments))
            .assert_code(0)
            .assert_stdout_has("already equal to its baseline");
    }
}

/// A typo in `memory_file` displaces no workspace directory.
#[test]
fn directory_as_memory_exits_6() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let path = "agents/code-reviewer/MEMORY.md";
    site.write(
        "memory-shepherd.conf",
        config.replace(path, "agents/code-reviewer"),
    );
    let before = site.read(REVIEWER_MEMORY);
    for arguments in [
        &["reset", "code-reviewer"][..],
        &["reset", "--all"],
        &["reset", "--all", "--dry-run"],
    ] {
        let ran = site
            .run_command(site.command().args(arguments))
            .assert_code(6);
        let said = "agents/code-reviewer is a directory, and the ledger has no record";
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(text.contains(said), "{text}");
        let _ = ran.assert_stderr_has("hint: add the name of the file");
    }
    assert_eq!(site.read(REVIEWER_MEMORY), before);
    assert_eq!(
        site.read(MONITOR_MEMORY),
        Site::read_baseline("monitor-bot")
    );
    let check = site.run(["config", "check"]).assert_code(2);
    let _ = check.assert_stdout_has("memory-shepherd.conf:8: error: code-reviewer: ");
    let _ = site
        .run(["doctor"])
        .assert_code(1)
        .assert_stdout_has("FAIL  code-reviewer: ");
    let _ = site.run(["status"]).assert_code(6);
}

/// A link from the memory to another file of the agent is common.
#[test]
fn link_as_memory_exits_6_and_names_its_target() {
    let site = site_with_notes_and_drift();
    fs::rename(
        site.path(REVIEWER_MEMORY),
        site.path("agents/code-reviewer/AGENTS.md"),
    )
    .unwrap();
    symlink("AGENTS.md", site.path(REVIEWER_MEMORY)).unwrap();
    let before = site.read("agents/code-reviewer/AGENTS.md");
    for arguments in [
        &["reset", "code-reviewer"][..],
        &["reset", "code-reviewer", "--dry-run"],
        &["push", "code-reviewer"],
    ] {
        let ran = site
            .run_command(site.command().args(arguments))
            .assert_code(6);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        let said = "is a symlink to AGENTS.md, and the ledger has no record of a file there";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("agents/code-reviewer/AGENTS.md;"), "{text}");
    }
    let link = fs::read_link(site.path(REVIEWER_MEMORY)).unwrap();
    assert_eq!(link.to_str(), Some("AGENTS.md"));
    assert_eq!(site.read("agents/code-reviewer/AGENTS.md"), before);
    let check = site.run(["config", "check"]).assert_code(2);
    let _ = check.assert_stdout_has("is a symlink to AGENTS.md");
    let doctor = site.run(["doctor"]).assert_code(1);
    let _ = doctor.assert_stdout_has("is a symlink to AGENTS.md");
}

/// A file that was copied from macOS has decomposed characters.
#[test]
fn memory_in_other_characters_exits_6_with_bytes() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let (composed, decomposed) = ("M\u{e9}moire.md", "Me\u{301}moire.md");
    let path = |name: &str| format!("agents/code-reviewer/{name}");
    site.write(
        "memory-shepherd.conf",
        config.replace(REVIEWER_MEMORY, &path(composed)),
    );
    fs::rename(site.path(REVIEWER_MEMORY), site.path(&path(decomposed))).unwrap();
    let before = site.read(&path(decomposed));
    let bytes = r"Me\xcc\x81moire.md";
    for arguments in [
        &["reset", "code-reviewer"][..],
        &["reset", "--all"],
        &["reset", "code-reviewer", "--dry-run"],
        &["push", "code-reviewer"],
    ] {
        let ran = site
            .run_command(site.command().args(arguments))
            .assert_code(6);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            text.contains("a reset would create a second memory"),
            "{text}"
        );
        assert!(text.contains(bytes), "{text}");
    }
    assert!(!site.path(&path(composed)).exists());
    assert_eq!(site.read(&path(decomposed)), before);
    let status = site.run(["status"]).assert_code(6);
    let _ = status.assert_stdout_has(bytes);
    let check = site.run(["config", "check"]).assert_code(2);
    let _ = check.assert_stdout_has(bytes);
    let doctor = site.run(["doctor"]).assert_code(1);
    let _ = doctor.assert_stdout_has(bytes);
}

#[test]
fn most_serious_exit_code_wins() {
    let site = site_with_notes_and_drift();
    site.append("memory-shepherd.conf", "protect=readonly\n");
    let _held = site_engine(&site)
        .locks()
        .hold_agent_lock("code-reviewer")
        .unwrap();
    let _ = site
        .run(["reset", "code-reviewer", "monitor-bot"])
        .assert_code(6);
}

#[test]
fn protected_agent_is_skipped_unless_it_is_named() {
    let site = site_with_notes_and_drift();
    // The section of monitor-bot is the last one.
    site.append("memory-shepherd.conf", "protect=readonly\n");
    let before = site.read(MONITOR_MEMORY);
    let note = "monitor-bot is not reset: protect=readonly";
    let ran = site.run(["reset", "--all", "--dry-run"]);
    let ran = ran.assert_code(0).assert_stderr_has(note);
    let hash = ran.stdout.lines().last().unwrap();
    let hash = hash.strip_prefix("plan ").unwrap();
    let ran = site.run(["reset", "--all", "--plan", hash]);
    let _ = ran.assert_code(0).assert_stderr_has(note);
    assert_eq!(
        site.read(REVIEWER_MEMORY),
        Site::read_baseline("code-reviewer")
    );
    assert_eq!(site.read(MONITOR_MEMORY), before);
    // The original's words, and a timer.
    let _ = site.run(["all"]).assert_code(0).assert_stderr_has(note);
    let ran = site.run(["reset", "--all", "--scheduled"]);
    let _ = ran.assert_code(0).assert_stderr_has(note);
    // The timer of an agent with an interval of its own names it.
    for arguments in [
        &["reset", "--scheduled", "--", "monitor-bot"][..],
        &["reset", "--scheduled", "--dry-run", "monitor-bot"],
    ] {
        let ran = site.run_command(site.command().args(arguments));
        let _ = ran
            .assert_code(0)
            .assert_stdout_has("monitor-bot: not reset: protect=readonly");
    }
    let _ = site.run(["reset", "monitor-bot"]).assert_code(6);
    let ran = site.run(["reset", "code-reviewer", "monitor-bot"]);
    let _ = ran.assert_code(6);
    assert_eq!(site.read(MONITOR_MEMORY), before);
}

#[test]
fn config_check_names_refused_baselines() {
    let site = Site::new();
    let _ = site.run(["config", "check"]).assert_code(0);
    site.write("baselines/monitor-bot-MEMORY.md", "# Rules\n\n---\n");
    fs::remove_file(site.path("baselines/code-reviewer-MEMORY.md")).unwrap();
    let check = site.run(["config", "check"]).assert_code(2);
    for said in [
        "has only 13 bytes; min_baseline_size is 1000",
        "the baseline is missing",
        "2 agents, 2 errors",
    ] {
        assert!(check.stdout.contains(said), "{said}: {}", check.stdout);
    }
    let document = site.run(["config", "check", "--json"]).json();
    let diagnostic = &document["diagnostics"][1];
    assert_eq!(diagnostic["text"], "baseline=monitor-bot-MEMORY.md");
    assert!(diagnostic["line"].is_u64());
    let hints = diagnostic["hints"].as_array().unwrap();
    assert!(
        hints
            .iter()
            .any(|it| it.as_str().unwrap().contains("min_baseline_size"))
    );
}

#[test]
fn config_check_prints_all_hints() {
    let site = Site::new();
    // A memory of nearly the same name, which two hints are about.
    fs::rename(
        site.path(MONITOR_MEMORY),
        site.path("agents/monitor-bot/memory.md"),
    )
    .unwrap();
    let engine = site_engine(&site);
    let faults = engine.memory_checks().irreplaceable_memories();
    let hints = faults[0].2.hints();
    assert!(hints.len() > 1, "{hints:?}");
    let check = site.run(["config", "check"]).assert_code(2);
    for hint in hints {
        let line = format!("    hint: {hint}\n");
        assert!(check.stdout.contains(&line), "{line}: {}", check.stdout);
    }
}

#[test]
fn fleet_of_protected_agents_has_nothing_to_reset() {
    let site = site_with_notes_and_drift();
    let config = site.read("memory-shepherd.conf");
    let general = "[general]\nprotect=readonly\n";
    site.write(
        "memory-shepherd.conf",
        config.replacen("[general]\n", general, 1),
    );
    let ran = site.run(["reset", "--all"]).assert_code(0);
    let ran = ran.assert_stdout_has("code-reviewer: not reset: protect=readonly");
    let _ = ran.assert_stdout_has("monitor-bot: not reset: protect=readonly");
}

/// Runs `reset --all` on 1000 agents, sends a signal in the middle, and asserts that no agent is
/// left half way. Returns the output behind the signal and standard error, with the exit code.
/// The reader of a pipe controls when the run continues, so the signal arrives in the middle.
fn signal_during_reset(env_option: &str, signal: Signal) -> (Option<i32>, String, String) {
    let site = Site::new();
    let demo = site.path("demo");
    let arguments = ["demo", "--agents", "1000", "--dir", "demo"];
    let _ = site.run(arguments).assert_code(0);
    let mut child = Command::new("/usr/bin/env")
        .args([env_option, PROGRAM_PATH, "reset", "--all"])
        .env_clear()
        .current_dir(&demo)
        .env("MEMORY_SHEPHERD_CONF", demo.join("memory-shepherd.conf"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("] Reset ") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0);
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, signal).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let left = fs::read_dir(demo.join("archives/.shepherd/tx"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "{err}");
    (output.status.code(), rest, err)
}

#[test]
fn interrupted_run_exits_130_and_skips_the_rest() {
    for signal in [Signal::TERM, Signal::HUP] {
        let (code, rest, err) = signal_during_reset("--default-signal=TERM,HUP", signal);
        assert_eq!(code, Some(130), "{signal:?}: {err}");
        assert!(err.contains("interrupted: "), "{err}");
        assert!(!rest.contains("Reset android-999"), "{rest}");
    }
}

#[test]
fn interrupted_wait_for_a_lock_exits_130() {
    let commands: [&[&str]; 3] = [&["reset"], &["push"], &["undo"]];
    for (command, signal) in commands
        .into_iter()
        .zip([Signal::INT, Signal::TERM, Signal::HUP])
    {
        let world = World::new(&["scout"]);
        world.reset();
        world.write_scratch("scout", "- note\n");
        let records = world.read_records();
        let engine = world.engine();
        let held = engine.locks().hold_agent_lock("scout").unwrap();
        // The tests may run where HUP is ignored.
        let child = Command::new("env")
            .arg("--default-signal=INT,TERM,HUP")
            .arg(PROGRAM_PATH)
            .args(command)
            .args(["scout", "--wait", "600", "--config"])
            .arg(world.config().path)
            .current_dir(&world.root)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut waiting = RunningProgram(child);
        let queue = world
            .archive_directory()
            .join(".shepherd/locks/scout.queue");
        let end = Instant::now() + wait_timeout();
        while !queue.exists() {
            assert!(Instant::now() < end, "{command:?} does not wait");
            thread::yield_now();
        }
        waiting.signal(signal);
        let code = waiting.0.wait().unwrap().code();
        assert_eq!(code, Some(130), "{command:?}");
        let mut said = String::new();
        let mut errors = waiting.0.stderr.take().unwrap();
        errors.read_to_string(&mut said).unwrap();
        assert!(said.contains("interrupted: 1 agent not started"), "{said}");
        drop(held);
        assert_eq!(world.read_records(), records, "{command:?}");
        assert!(world.pending_journals().is_empty(), "{command:?}");
        // Its place in the queue is free again.
        world.reset().assert_ok();
    }
}

#[test]
fn hangup_ignored_at_start_does_not_stop_run() {
    let (code, rest, err) = signal_during_reset("--ignore-signal=HUP", Signal::HUP);
    assert_ne!(code, Some(130), "{err}");
    assert!(rest.contains("Reset android-999"), "{rest}");
    assert!(!err.contains("interrupted: "), "{err}");
}

#[test]
fn dry_run_counts_refused_undos_apart() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    site.append("agents/monitor-bot/MEMORY.md", "- newer\n");
    let dry = |agents: &[&str]| {
        let arguments = [&["undo", "--dry-run"], agents].concat();
        site.run_command(site.command().args(arguments))
            .assert_code(6)
    };
    let _ = dry(&["monitor-bot", "code-reviewer"])
        .assert_stdout_has("1 agent would be restored, 1 refused; nothing was changed");
    let _ = dry(&["monitor-bot"])
        .assert_stdout_has("nothing to restore, 1 refused; nothing was changed");
}

#[test]
fn undone_undo_is_redone_in_status() {
    let site = site_with_notes_and_drift();
    let _ = site.run(["reset", "--all"]).assert_code(0);
    let _ = site.run(["undo", "monitor-bot"]).assert_code(0);
    let status = || site.run(["status", "monitor-bot"]).assert_code(0);
    let _ = status().assert_stdout_has(" undone");
    let _ = site.run(["undo", "monitor-bot", "--redo"]).assert_code(0);
    let _ = status().assert_stdout_has(" redone");
    let operations = || {
        let ran = site.run(["log", "monitor-bot"]).assert_code(0);
        let words = ran.stdout.lines().skip(1);
        let words = words.map(|line| line.split_whitespace().nth(3).unwrap().to_string());
        words.collect::<Vec<_>>()
    };
    assert_eq!(operations(), ["reset", "undo", "redo"]);
    // The undone undo need not be in the range.
    let _ = site
        .run(["log", "-n", "1", "monitor-bot"])
        .assert_stdout_has("  redo  ");
}

#[test]
fn usage_errors_name_the_alternatives() {
    let site = Site::new();
    for (arguments, said) in [
        (&["reset"][..], "<AGENT|--all|--scheduled>"),
        (&["undo"], "is left to undo"),
        (
            &["reset", "--all", "monitor-bot"],
            "<AGENT|--all|--scheduled>",
        ),
        (
            &["undo", "monitor-bot", "--append", "--overwrite"],
            "<AGENT|--run <RUN>>",
        ),
        (
            &["reset", "--all", "--wait", "x"],
            "expected a whole number",
        ),
        (&["log", "-n", "x"], "expected a whole number"),
        (&["demo", "--agents", "x"], "a whole number from 15 to 1000"),
        (
            &["demo", "--agents", "13"],
            "a whole number from 15 to 1000",
        ),
        (&["log", "-n", "0"], "expected a number of at least 1"),
    ] {
        let _ = site
            .run_command(site.command().args(arguments))
            .assert_code(2)
            .assert_stderr_has(said);
    }
}

/// `doctor` says it once, and the other commands name the line that `config check` names.
#[test]
fn shared_memory_is_reported_once_with_its_line() {
    let site = Site::new();
    let config = site.read("memory-shepherd.conf");
    let line = config.lines().count() + 3;
    let memory = site.path("agents/code-reviewer/MEMORY.md");
    site.append(
        "memory-shepherd.conf",
        format!(
            "[same]\nbaseline=code-reviewer-MEMORY.md\nmemory_file={}\n",
            memory.display()
        ),
    );
    let said = "agents `code-reviewer` and `same` have the same memory";
    let place = format!("memory-shepherd.conf:{line}: ");
    for command in [&["config", "check"][..], &["status"]] {
        let ran = site.run_command(site.command().args(command));
        let all = format!("{}{}", ran.stdout, ran.stderr);
        let reported = all.lines().find(|it| it.contains(said));
        assert!(reported.is_some_and(|it| it.contains(&place)), "{all}");
    }
    let ran = site.run(["doctor"]);
    assert!(!ran.stdout.contains(said), "{}", ran.stdout);
    let _ = ran.assert_stdout_has("code-reviewer and same share one memory file");
}

/// Reports mistakes in the text and in the paths that it names together.
#[test]
fn config_check_reports_all_mistakes() {
    let site = Site::new();
    let config = site.read("memory-shepherd.conf");
    let dir = site.dir.display();
    symlink("agents", site.path("alias")).unwrap();
    let more = format!(
        "[same]\nmemory_file={dir}/agents/monitor-bot/../code-reviewer/MEMORY.md\nbaseline=a.md\n\
         [text]\nmemory_file={dir}/agents/code-reviewer/MEMORY.md\nbaseline=a.md\n\
         [linked]\nmemory_file={dir}/alias/code-reviewer/MEMORY.md\nbaseline=a.md\n\
         [directory]\nmemory_file={dir}/agents/code-reviewer\nbaselin=a.md\n\
         [broken]\nmax_memory_size=many\nmemory_file={dir}/agents/broken/MEMORY.md\n"
    );
    site.write("baselines/a.md", Site::read_baseline("monitor-bot"));
    let all = [
        "agents `code-reviewer` and `same` have the same memory",
        "agents `code-reviewer` and `text` have the same memory",
        "linked: ",
        "is reached through a symlink",
        "is a directory, and the ledger has no record",
    ];
    let broken = [
        "`baselin` is not a key",
        "`max_memory_size`",
        "lacks `baseline`",
    ];
    site.write("memory-shepherd.conf", format!("{config}{more}"));
    let ran = site.run(["config", "check"]).assert_code(2);
    for said in all.iter().chain(&broken) {
        assert!(ran.stdout.contains(said), "{said}: {}", ran.stdout);
    }
    assert!(
        !ran.stdout.contains("warning: the agents"),
        "{}",
        ran.stdout
    );
    // The text alone has no mistake.
    let more = more.replace("baselin=", "baseline=");
    let more = more.split("[broken]").next().unwrap();
    site.write("memory-shepherd.conf", format!("{config}{more}"));
    let ran = site.run(["config", "check"]).assert_code(2);
    for said in all {
        assert!(ran.stdout.contains(said), "{said}: {}", ran.stdout);
    }
    assert!(ran.stdout.contains("6 agents, 4 errors"), "{}", ran.stdout);
    // Other commands continue with the remaining agents.
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
}

#[test]
fn deleted_current_directory_has_no_config() {
    let site = site_with_notes_and_drift();
    let directory = site.path("deleted");
    let (program, path) = (site.command().get_program().to_owned(), directory.display());
    let script = format!("mkdir {path} && cd {path} && rmdir {path} && exec \"$0\" \"$@\"");
    let run = |arguments: &[&str]| {
        let mut shell = assert_cmd::Command::new("sh");
        shell.args(["-c", &script]).arg(&program).args(arguments);
        site.run_command(&mut shell)
    };
    let named = ["--config", "etc/hostname", "status"];
    for arguments in [&["status"][..], &named] {
        let _ = run(arguments)
            .assert_code(2)
            .assert_stderr_has("/proc/self/cwd (deleted)/");
    }
    // Nor is another directory created in its place.
    let _ = run(&["demo", "--dir", "fleet"]).assert_code(3);
    assert!(!site.path("deleted (deleted)").exists() && !directory.exists());
}

/// A pipe that takes no more bytes.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

#[test]
fn run_with_blocked_output_holds_no_locks() {
    let site = site_with_notes_and_drift();
    let (_reader, writer) = full_pipe();
    let mut run = std::process::Command::new(PROGRAM_PATH)
        .args(["reset", "--all"])
        .current_dir(&site.dir)
        .stdout(writer)
        .spawn()
        .unwrap();
    let is_over = || {
        let log = fs::read_to_string(site.path("archives/reset.log"));
        log.is_ok_and(|log| log.contains(" ended: "))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_over() {
        assert!(Instant::now() < deadline, "the run waits for its output");
        thread::yield_now();
    }
    site.append(MONITOR_MEMORY, "- more\n");
    let _ = site.run(["reset", "--all"]).assert_code(0);
    assert_eq!(run.try_wait().unwrap(), None);
    // The signal may arrive before the run is over, and then only stops it.
    let pid = Pid::from_child(&run);
    while run.try_wait().unwrap().is_none() {
        assert!(
            Instant::now() < deadline,
            "a signal does not end the program"
        );
        kill_process(pid, Signal::TERM).unwrap();
        thread::yield_now();
    }
    assert_eq!(run.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
}
