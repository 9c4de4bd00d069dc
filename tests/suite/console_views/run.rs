//! A run while it goes on, and its result.

use std::time::Duration;

use memory_shepherd::console::update::Msg;
use memory_shepherd::engine::{Outcome, RunProgress, RunStage, State};

use super::plan::planned;
use super::{Console, SIZES, drawn, herd, picture};
use crate::console_fleet::{plan, report};

const THREE: [(&str, State); 3] = [
    ("code-reviewer", State::Drifted),
    ("docs-writer", State::Scratch),
    ("monitor-bot", State::Scratch),
];

fn running(console: &mut Console) {
    planned(console, "X", plan(&THREE));
    console.type_line("reset 3");
    console.press("Enter");
    let done = report(&[("code-reviewer", Outcome::Ok, None)])
        .results
        .remove(0);
    console.send(Msg::RunProgressed(RunProgress::AgentDone(done)));
    console.send(Msg::RunProgressed(RunProgress::Stage(
        "docs-writer".to_string(),
        RunStage::Swap,
    )));
    console.pass(Duration::from_secs(2));
}

fn ended(console: &mut Console) {
    running(console);
    let results = [
        ("code-reviewer", Outcome::Ok, None),
        (
            "docs-writer",
            Outcome::Failed,
            Some("archive disk full (needs 41K, 12K free); memory untouched"),
        ),
        ("monitor-bot", Outcome::NotStarted, Some("cancelled")),
    ];
    let mut ended = report(&results);
    ended.retired_entries = vec!["code-reviewer/2026-02-12_0100.md".into()];
    console.send(Msg::RunEnded(Box::new(ended)));
}

#[test]
fn run_in_progress() {
    picture("run", running);
    picture("run_cancelled", |console| {
        running(console);
        console.press("^c");
    });
}

#[test]
fn run_counts_refused_agents_apart_from_failed() {
    let mut console = herd();
    console.send(Msg::Resized(80, 24));
    running(&mut console);
    let ended = report(&[
        ("docs-writer", Outcome::Failed, None),
        ("monitor-bot", Outcome::Refused, None),
    ]);
    for done in ended.results {
        console.send(Msg::RunProgressed(RunProgress::AgentDone(done)));
    }
    let shown = drawn(&console, "terminal");
    let header = shown.lines().next().unwrap();
    assert!(
        header.ends_with("3/3  1 ok  1 failed, 1 refused  2s"),
        "{header}"
    );
}

#[test]
fn result_of_a_run() {
    picture("result", |console| {
        ended(console);
        console.press("j");
    });
}

#[test]
fn result_hints_at_what_can_be_done_about_it() {
    let hints = |outcomes: [Outcome; 2]| {
        let mut console = herd();
        running(&mut console);
        let [first, second] = outcomes;
        let results = [
            ("code-reviewer", first, None),
            ("docs-writer", second, None),
        ];
        console.send(Msg::RunEnded(Box::new(report(&results))));
        drawn(&console, "terminal")
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
fn an_error_is_told_whole_below_its_result() {
    let why = "box:/srv/agents/".to_string() + &"deep/".repeat(30) + "MEMORY.md: Permission denied";
    for size in SIZES {
        let mut console = herd();
        console.send(Msg::Resized(size.0, size.1));
        running(&mut console);
        let mut report = report(&[("docs-writer", Outcome::Failed, Some(&why))]);
        report.results[0].hints = vec!["chmod u+r MEMORY.md".to_string()];
        console.send(Msg::RunEnded(Box::new(report)));
        let shown = drawn(&console, "terminal");
        assert!(shown.contains("hint: chmod u+r MEMORY.md"), "{shown}");
        assert!(shown.matches("Permission denied").count() >= 2, "{shown}");
        assert!(shown.contains("nothing was changed that could be undone"));
    }
}
