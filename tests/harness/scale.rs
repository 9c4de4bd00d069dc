//! Growth of the system calls of a command with the number of agents.

use std::fs;

use super::scene::{InitialMemory, Scene, assert_ok};
use super::strace::{can_trace, record_calls};

/// Numbers of agents of two fleets.
const FEW: usize = 10;
const MANY: usize = 80;

/// Returns the number of system calls of a command on a fleet that was reset before.
fn count_calls(agents: usize, arguments: &[&str]) -> usize {
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
    let log = fs::read_to_string(&scene.trace_log).unwrap();
    log.lines()
        .filter(|line| !line.contains(" resumed>"))
        .count()
}

/// Returns how many calls each further agent costs.
fn calls_per_agent(arguments: &[&str]) -> f64 {
    let [few, many] = [FEW, MANY].map(|agents| count_calls(agents, arguments));
    println!("{arguments:?}: {few} calls with {FEW} agents, {many} with {MANY}");
    many.saturating_sub(few) as f64 / (MANY - FEW) as f64
}

#[test]
fn status_takes_a_few_calls_for_each_agent() {
    if can_trace() {
        let more = calls_per_agent(&["status"]);
        assert!(more <= 48.0, "{more} calls for each agent");
    }
}

#[test]
fn config_check_takes_a_few_calls_for_each_agent() {
    if can_trace() {
        let more = calls_per_agent(&["config", "check"]);
        assert!(more <= 28.0, "{more} calls for each agent");
    }
}
