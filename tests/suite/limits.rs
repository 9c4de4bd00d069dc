//! The program under limits of its process (`ulimit`): what does not fit is an error
//! that is told, and nothing is lost.

use std::fs;

use assert_cmd::Command;

use super::fixture::{PROGRAM, Ran, Site};

/// How many agents a fleet has that needs more open files than it gets.
const AGENTS: usize = 100;

/// Runs the program with a limit of its process, such as `--nofile=40`; none where
/// there is no `prlimit`.
fn run_limited(site: &Site, limit: &str, arguments: &[&str]) -> Option<Ran> {
    if Command::new("prlimit").arg("--version").ok().is_err() {
        println!("skipped: no prlimit");
        return None;
    }
    let mut command = Command::new("prlimit");
    command
        .args([limit, PROGRAM])
        .args(arguments)
        .env("TZ", "UTC")
        .current_dir(&site.dir);
    Some(site.ran(&mut command))
}

fn memory(agent: usize) -> String {
    format!("agents/a{agent}/MEMORY.md")
}

#[test]
fn few_open_files_make_smaller_batches() {
    let site = Site::new();
    let baseline = Site::baseline("monitor-bot");
    let mut config = "[general]\nbaseline_dir=./baselines\narchive_dir=./archives\n".to_string();
    for agent in 0..AGENTS {
        let memory = memory(agent);
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
        let ran = ran.code(0);
        assert!(!ran.err.contains("open files"), "{}", ran.err);
    }
    for agent in 0..AGENTS {
        assert_eq!(site.read(&memory(agent)), baseline);
    }
    let _ = run_limited(&site, "--nofile=40", &["status"])
        .unwrap()
        .code(0);
}

#[test]
fn file_size_limit_is_told_and_loses_nothing() {
    let site = Site::new();
    let path = "agents/monitor-bot/MEMORY.md";
    site.append(path, "- a note\n".repeat(10_000));
    let before = site.read(path);
    let Some(ran) = run_limited(&site, "--fsize=20000", &["reset", "monitor-bot"]) else {
        return;
    };
    // A signal would have ended it without a word.
    let ran = ran.code(3).warns("file too large");
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    assert_eq!(site.read(path), before);
    let beside = fs::read_dir(site.path("agents/monitor-bot")).unwrap();
    assert_eq!(beside.count(), 1);
    let _ = site.run(["reset", "monitor-bot"]).code(0);
    let _ = site.run(["undo", "monitor-bot"]).code(0);
    assert_eq!(site.read(path), before);
}
