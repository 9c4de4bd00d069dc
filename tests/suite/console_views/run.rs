//! Views of a run in progress and of its result.

use std::time::Duration;

use memory_shepherd::console::message::Msg;
use memory_shepherd::console::screens::log::state::RunSummary;
use memory_shepherd::engine::{FileState, Operation, Outcome, RunProgress, RunStage, State};
use memory_shepherd::transport::SpecialFile;

use super::plan::show_plan;
use super::{TERMINAL_SIZES, TestConsole, assert_view, fleet_of_every_state, rendered_text};
use crate::engine_samples::{plan, run_report, run_summary};

const THREE_AGENTS: [(&str, State); 3] = [
    ("code-reviewer", State::Drifted),
    ("docs-writer", State::Scratch),
    ("monitor-bot", State::Scratch),
];

fn start_run(console: &mut TestConsole) {
    show_plan(console, "X", plan(&THREE_AGENTS));
    console.type_line("reset 3");
    console.press("Enter");
    let done = run_report(&[("code-reviewer", Outcome::Ok, None)])
        .results
        .remove(0);
    console.send(Msg::RunProgressed(RunProgress::AgentDone(done)));
    console.send(Msg::RunProgressed(RunProgress::Stage(
        "docs-writer".to_string(),
        RunStage::Swap,
    )));
    console.advance(Duration::from_secs(2));
}

fn finish_run(console: &mut TestConsole) {
    start_run(console);
    let results = [
        ("code-reviewer", Outcome::Ok, None),
        (
            "docs-writer",
            Outcome::Failed,
            Some("archive disk full (needs 41K, 12K free); memory untouched"),
        ),
        ("monitor-bot", Outcome::NotStarted, Some("cancelled")),
    ];
    let mut ended = run_report(&results);
    ended.retired_entries = vec!["code-reviewer/2026-02-12_0100.md".into()];
    console.send(Msg::RunEnded(Box::new(ended)));
}

#[test]
fn running_run_matches_snapshot() {
    assert_view("run", start_run);
    assert_view("run_cancelled", |console| {
        start_run(console);
        console.press("^c");
    });
}

#[test]
fn run_counts_refused_apart_from_failed() {
    let mut console = fleet_of_every_state();
    console.send(Msg::Resized(80, 24));
    start_run(&mut console);
    let ended = run_report(&[
        ("docs-writer", Outcome::Failed, None),
        ("monitor-bot", Outcome::Refused, None),
    ]);
    for done in ended.results {
        console.send(Msg::RunProgressed(RunProgress::AgentDone(done)));
    }
    let shown = rendered_text(&console, "terminal");
    let header = shown.lines().next().unwrap();
    assert!(
        header.ends_with("3/3  1 ok  1 failed, 1 refused  2s"),
        "{header}"
    );
}

#[test]
fn run_result_matches_snapshot() {
    assert_view("result", finish_run);
}

#[test]
fn result_hints_depend_on_outcomes() {
    let hints = |outcomes: [Outcome; 2]| {
        let mut console = fleet_of_every_state();
        start_run(&mut console);
        let [first, second] = outcomes;
        let results = [
            ("code-reviewer", first, None),
            ("docs-writer", second, None),
        ];
        console.send(Msg::RunEnded(Box::new(run_report(&results))));
        rendered_text(&console, "terminal")
            .lines()
            .last()
            .unwrap()
            .to_string()
    };
    for (outcomes, retry, undo) in [
        ([Outcome::Ok, Outcome::Ok], false, true),
        ([Outcome::Ok, Outcome::Failed], true, true),
        ([Outcome::Failed, Outcome::Refused], true, false),
        ([Outcome::Unchanged, Outcome::Unchanged], false, false),
    ] {
        let hints = hints(outcomes);
        assert_eq!(hints.contains("r retry "), retry, "{outcomes:?}: {hints}");
        assert_eq!(hints.contains("z undo"), undo, "{outcomes:?}: {hints}");
    }
}

#[test]
fn result_shows_whole_error_of_selected_row() {
    let why = "box:/srv/agents/".to_string() + &"deep/".repeat(30) + "MEMORY.md: Permission denied";
    for size in TERMINAL_SIZES {
        let mut console = fleet_of_every_state();
        console.send(Msg::Resized(size.0, size.1));
        start_run(&mut console);
        let mut report = run_report(&[("docs-writer", Outcome::Failed, Some(&why))]);
        report.results[0].hints = vec!["chmod u+r MEMORY.md".to_string()];
        console.send(Msg::RunEnded(Box::new(report)));
        let shown = rendered_text(&console, "terminal");
        assert!(shown.contains("hint: chmod u+r MEMORY.md"), "{shown}");
        assert!(shown.matches("Permission denied").count() >= 2, "{shown}");
        assert!(shown.contains("nothing to undo"));
    }
}

/// Returns the screen with the result of the newest of these runs, opened from the log.
fn shown_result(runs: &[RunSummary]) -> String {
    let mut console = fleet_of_every_state();
    console.send(Msg::LogLoaded(Ok(runs.to_vec())));
    console.press("7 G Enter");
    rendered_text(&console, "terminal")
}

#[test]
fn result_of_undone_run_names_the_undo() {
    let agents = [("docs-writer", Outcome::Ok), ("monitor-bot", Outcome::Ok)];
    let mut reset = run_summary("aaaa", 20, &agents);
    let mut undo = run_summary("bbbb", 10, &agents);
    for event in &mut undo.events {
        event.operation = Operation::Undo;
        event.undone_run = Some("aaaa".to_string());
    }
    let shown = shown_result(&[reset.clone()]);
    assert!(shown.contains("z undoes this run"), "{shown}");
    reset.undone_agents = vec!["docs-writer".to_string()];
    let shown = shown_result(&[undo.clone(), reset.clone()]);
    assert!(shown.contains("z undoes this run"), "{shown}");
    assert!(shown.contains("undone for 1 agent by run bbbb"), "{shown}");
    reset.undone_agents.push("monitor-bot".to_string());
    let shown = shown_result(&[undo.clone(), reset.clone()]);
    assert!(shown.contains("undone by run bbbb"), "{shown}");
    assert!(!shown.contains("z undo"), "{shown}");
}

#[test]
fn result_without_undoable_agents_offers_no_undo() {
    let mut pin = run_summary("aaaa", 20, &[("", Outcome::Ok)]);
    pin.events[0].operation = Operation::Pin;
    let shown = shown_result(&[pin]);
    assert!(shown.contains("nothing to undo"), "{shown}");
    assert!(!shown.contains("z undo"), "{shown}");
    let mut displaced = run_summary("aaaa", 20, &[("docs-writer", Outcome::Ok)]);
    displaced.events[0].change.before = Some(FileState::Special(SpecialFile::Fifo));
    let shown = shown_result(&[displaced.clone()]);
    assert!(shown.contains("cannot be undone"), "{shown}");
    assert!(!shown.contains("z undo"), "{shown}");
    // An object that was kept can be put back.
    displaced.events[0].change.before = Some(FileState::Special(SpecialFile::Directory));
    let shown = shown_result(&[displaced]);
    assert!(shown.contains("z undoes this run"), "{shown}");
}
