//! The program under process limits (`ulimit`): a limit that it hits is a reported
//! error, and no byte is lost.

use std::fs;

use assert_cmd::Command;

use super::fixture::{CommandOutput, PROGRAM_PATH, Site};
use crate::skip::skip_missing_tool;

/// The number of agents of a fleet that needs more open files than the limit allows.
const AGENT_COUNT: usize = 100;

/// Runs the program with a process limit such as `--nofile=40`; `None` where the
/// machine has no `prlimit`.
fn run_limited(site: &Site, limit: &str, arguments: &[&str]) -> Option<CommandOutput> {
    if Command::new("prlimit").arg("--version").ok().is_err() {
        skip_missing_tool("prlimit");
        return None;
    }
    let mut command = Command::new("prlimit");
    command
        .args([limit, PROGRAM_PATH])
        .args(arguments)
        .env("TZ", "UTC")
        .current_dir(&site.dir);
    Some(site.run_command(&mut command))
}

fn memory_name(agent: usize) -> String {
    format!("agents/a{agent}/MEMORY.md")
}

#[test]
fn few_open_files_make_smaller_batches() {
    let site = Site::new();
    let baseline = Site::read_baseline("monitor-bot");
    let mut config = "[general]\nbaseline_dir=./baselines\narchive_dir=./archives\n".to_string();
    for agent in 0..AGENT_COUNT {
        let memory = memory_name(agent);
        site.write(&memory, format!("{baseline}- note {agent}\n"));
        let path = site.path(&memory);
        config.push_str(&format!(
            "[a{agent}]\nmemory_file={}\nbaseline=monitor-bot-MEMORY.md\n",
            path.display()
        ));
    }
    site.write("memory-shepherd.conf", config);
    for arguments in [&["reset", "--all", "--dry-run"][..], &["reset", "--all"]] {
        let Some(ran) = run_limited(&site, "--nofile=40", arguments) else {
            return;
        };
        let ran = ran.assert_code(0);
        assert!(!ran.stderr.contains("open files"), "{}", ran.stderr);
    }
    for agent in 0..AGENT_COUNT {
        assert_eq!(site.read(&memory_name(agent)), baseline);
    }
    let _ = run_limited(&site, "--nofile=40", &["status"])
        .unwrap()
        .assert_code(0);
}

#[test]
fn file_size_limit_is_reported_and_loses_nothing() {
    let site = Site::new();
    let path = "agents/monitor-bot/MEMORY.md";
    site.append(path, "- a note\n".repeat(10_000));
    let before = site.read(path);
    let Some(ran) = run_limited(&site, "--fsize=20000", &["reset", "monitor-bot"]) else {
        return;
    };
    // A signal would have ended it without a message.
    let ran = ran.assert_code(3).assert_stderr_has("file too large");
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    assert_eq!(site.read(path), before);
    let beside = fs::read_dir(site.path("agents/monitor-bot")).unwrap();
    assert_eq!(beside.count(), 1);
    let _ = site.run(["reset", "monitor-bot"]).assert_code(0);
    let _ = site.run(["undo", "monitor-bot"]).assert_code(0);
    assert_eq!(site.read(path), before);
}
