//! Growth of the system calls of a command with the number of agents, and of the threads of a console
//! with the number of hosts.

use std::fs;
use std::path::Path;

use super::processes::test_directory;
use super::scene::{InitialMemory, Scene, assert_ok};
use super::sftp_hosts::write_ssh;
use super::strace::{can_trace, record_calls};
use super::terminal::{Terminal, isolated_command};

/// Numbers of agents of two fleets.
const FEW: usize = 80;
const MANY: usize = 160;

/// Returns the log of the system calls of a command on a fleet that was reset before.
fn trace_calls(agents: usize, arguments: &[&str]) -> String {
    let names: Vec<String> = (0..agents)
        .map(|number| format!("agent-{number:03}"))
        .collect();
    let memory = || InitialMemory::scratch("- a note\n");
    let agents: Vec<(&str, InitialMemory)> =
        names.iter().map(|name| (name.as_str(), memory())).collect();
    let scene = Scene::new(&agents);
    assert_ok(&scene.fleet.run(&["reset", "--all"]));
    scene.fleet.append_note("agent-000", "- another note\n");
    let (output, _) = record_calls(&scene.fleet, &scene.trace_log, arguments);
    // Status reports agents with notes by its exit code.
    assert!(output.status.code().is_some_and(|code| code <= 1));
    fs::read_to_string(&scene.trace_log).unwrap()
}

/// Returns how much more of something each further agent costs.
fn cost_per_agent(arguments: &[&str], cost: impl Fn(&str) -> usize) -> f64 {
    let [few, many] = [FEW, MANY].map(|agents| cost(&trace_calls(agents, arguments)));
    println!("{arguments:?}: {few} with {FEW} agents, {many} with {MANY}");
    many.saturating_sub(few) as f64 / (MANY - FEW) as f64
}

/// Returns how many calls each further agent costs.
fn calls_per_agent(arguments: &[&str]) -> f64 {
    let is_begun = |line: &&str| !line.contains(" resumed>");
    cost_per_agent(arguments, |log| log.lines().filter(is_begun).count())
}

/// Returns the number of bytes that a run has read from files.
fn count_read_bytes(log: &str) -> usize {
    let is_read = |line: &&str| {
        ["read(", "read64(", "read resumed>", "pread64 resumed>"]
            .iter()
            .any(|call| line.contains(call))
    };
    let result = |line: &str| line.rsplit_once(" = ")?.1.parse::<usize>().ok();
    log.lines().filter(is_read).filter_map(result).sum()
}

#[test]
fn status_takes_a_few_calls_for_each_agent() {
    if can_trace() {
        let more = calls_per_agent(&["status"]);
        assert!(more <= 36.0, "{more} calls for each agent");
    }
}

#[test]
fn reset_of_one_agent_lists_no_other_directory() {
    if can_trace() {
        let more = calls_per_agent(&["reset", "agent-000"]);
        assert!(more <= 8.0, "{more} calls for each agent");
    }
}

#[test]
fn reset_of_one_agent_reads_little_of_others() {
    if can_trace() {
        // Their sections of the config, and what the archive has in short form.
        let more = cost_per_agent(&["reset", "agent-000"], count_read_bytes);
        assert!(more <= 320.0, "{more} bytes for each agent");
    }
}

#[test]
fn config_check_takes_a_few_calls_for_each_agent() {
    if can_trace() {
        // Its memory and its baseline.
        let more = calls_per_agent(&["config", "check"]);
        assert!(more <= 40.0, "{more} calls for each agent");
    }
}

/// Returns the number of threads of a console that watches so many hosts.
fn count_console_threads(hosts: usize) -> Option<usize> {
    let (_temporary, root) = test_directory(true);
    let path = write_ssh(&root.join("bin"))?;
    let baselines = root.join("baselines");
    fs::create_dir(&baselines).unwrap();
    fs::write(baselines.join("b.md"), "# Rules\n- stay\n\n---\n").unwrap();
    let mut config = "[general]\nbaseline_dir=baselines\nmin_baseline_size=1\n".to_string();
    for number in 0..hosts {
        let memory = root.join(format!("agent-{number}/MEMORY.md"));
        fs::create_dir(memory.parent().unwrap()).unwrap();
        fs::write(&memory, "# Rules\n- stay\n\n---\n").unwrap();
        config.push_str(&format!(
            "[agent-{number}]\nremote_host=host-{number}\nremote_memory={}\nbaseline=b.md\n",
            memory.display()
        ));
    }
    let config_path = root.join("fleet.conf");
    fs::write(&config_path, config).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_memory-shepherd"));
    let mut command = isolated_command(program, &root);
    command.env("PATH", path);
    command.args(["--config", config_path.to_str().unwrap()]);
    let mut terminal = Terminal::start(command, (120, 36));
    terminal.wait_for("live");
    let tasks = format!("/proc/{}/task", terminal.pid());
    Some(fs::read_dir(tasks).unwrap().count())
}

#[test]
fn hosts_need_no_thread_each() {
    let (few, many) = (24, 72);
    if let (Some(few), Some(many)) = (count_console_threads(few), count_console_threads(many)) {
        println!("{few} and {many} threads");
        assert!(many <= few, "{few} threads, with more hosts {many}");
        assert!(many <= 64);
    }
}
