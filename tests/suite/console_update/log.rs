//! The log and the messages.

use memory_shepherd::console::screens::log::state::{LogRow, MessageLevel, RunSummary};

use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::engine::{FleetEvent, Outcome, State};

use super::{MINUTE, console_with_run, makes_dirty};
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{observation_of, run_report, run_summary};
use crate::report_samples::fleet_report;

#[test]
fn interrupted_last_run_is_reported_once() {
    let stopped = || {
        let left = [("alpha", Outcome::Ok), ("bravo", Outcome::NotStarted)];
        vec![
            run_summary("aaaa", 10, &left),
            run_summary("bbbb", 20, &[("alpha", Outcome::Ok)]),
        ]
    };
    let mut console = fleet_of_four();
    console.send(Msg::LogLoaded(Ok(stopped())));
    assert!(
        console.message_text().contains("aaaa, was interrupted"),
        "{}",
        console.message_text()
    );
    console.press("j");
    console.send(Msg::LogLoaded(Ok(stopped())));
    assert_eq!(console.message_text(), "", "once");
    let mut console = fleet_of_four();
    console.send(Msg::LogLoaded(Ok(stopped().split_off(1))));
    console.send(Msg::LogLoaded(Ok(stopped())));
    assert_eq!(console.message_text(), "", "this one was cut in sight");
}

#[test]
fn log_loads_the_report_only_while_it_is_open() {
    let mut console = fleet_of_four();
    let loaded = || Msg::LogLoaded(Ok(vec![run_summary("aaaa", 10, &[("alpha", Outcome::Ok)])]));
    assert!(!console.send(loaded()).contains(&Effect::LoadReport));
    assert_eq!(console.send(Msg::Fleet(FleetEvent::StatesRecorded)), []);
    console.press("7");
    assert!(console.send(loaded()).contains(&Effect::LoadReport));
    // A seal ends a state that the report read with the ledger shows as going on.
    assert_eq!(
        console.send(Msg::Fleet(FleetEvent::StatesRecorded)),
        [Effect::LoadReport]
    );
    let report = || Msg::ReportLoaded(Ok((&fleet_report("alpha", "a reason")).into()));
    console.send(report());
    assert!(!makes_dirty(&mut console, |console| drop(
        console.send(report())
    )));
    assert!(
        console
            .screen_text()
            .contains("3 times; reset FAILED: a reason")
    );
    console.press("f");
    assert!(!console.screen_text().contains("a reason"));
    assert!(console.screen_text().contains("f shows 10 items"));
    console.press("f");
    assert!(console.screen_text().contains("a reason"));
}

#[test]
fn page_below_the_report_skips_no_row() {
    let mut console = fleet_of_four();
    console.send(Msg::Resized(80, 24));
    console.press("7");
    let runs: Vec<_> = (0..60)
        .map(|number| run_summary(&format!("{number:04}"), number, &[("alpha", Outcome::Ok)]))
        .collect();
    console.send(Msg::LogLoaded(Ok(runs)));
    console.send(Msg::ReportLoaded(Ok(
        (&fleet_report("alpha", "a reason")).into()
    )));
    // All rows up to the cursor were on the screen once.
    let mut seen = String::new();
    for _ in 0..4 {
        seen += &console.screen_text();
        console.press("PgDn");
    }
    let last = console.model.log.list.cursor;
    seen += &console.screen_text();
    assert!(last > 10);
    for number in 0..=last {
        assert!(seen.contains(&format!("{number:04}")), "{number}: {seen}");
    }
}

#[test]
fn log_is_searchable_and_opens_run_result() {
    let mut console = fleet_of_four();
    let runs = vec![
        run_summary("bbbb", 10, &[("delta", Outcome::Ok)]),
        run_summary(
            "aaaa",
            190,
            &[("alpha", Outcome::Ok), ("bravo", Outcome::Failed)],
        ),
    ];
    console.send(Msg::LogLoaded(Ok(runs.clone())));
    assert!(!makes_dirty(&mut console, |console| drop(
        console.send(Msg::LogLoaded(Ok(runs)))
    )));
    assert_eq!(console.press("7"), [Effect::LoadLog]);
    console.press("/");
    console.type_line("AAAA");
    console.press("Enter");
    assert_eq!(console.message_text(), "1 hit");
    console.press("Enter");
    let Some(view) = console.model.reset.result() else {
        panic!("{:?}", console.model.reset.plan.stage);
    };
    assert_eq!(
        (view.run_id.as_str(), view.failed_agents()),
        ("aaaa", vec!["bravo".to_string()])
    );
    console.send(Msg::LogLoaded(Err("the chain is broken".to_string())));
    assert_eq!(
        console.model.errors.ledger.as_deref(),
        Some("the chain is broken")
    );
}

#[test]
fn run_of_this_session_is_logged_once() {
    let mut console = console_with_run();
    console.send(Msg::RunEnded(Box::new(run_report(&[(
        "bravo",
        Outcome::Ok,
        None,
    )]))));
    let rows = |console: &TestConsole| -> Vec<String> {
        let rows = console.model.log.rows();
        rows.iter().map(LogRow::text).collect()
    };
    // Until the ledger is read, or if it is unreadable, the message reports the run.
    assert_eq!(rows(&console), ["run 7f3c0a11: 1 ok, 0 failed"]);
    let recorded = vec![run_summary("7f3c0a11", 0, &[("bravo", Outcome::Ok)])];
    console.send(Msg::LogLoaded(Ok(recorded)));
    assert_eq!(rows(&console), ["reset bravo  run 7f3c0a11: 1 ok"]);
}

#[test]
fn log_search_adds_no_row() {
    let mut console = fleet_of_four();
    for text in ["one note", "another note"] {
        console.send(Msg::Reported(MessageLevel::Warn, text.to_string()));
    }
    console.press("7 / n o t e Enter");
    assert!(
        console.message_text().starts_with("2 hits"),
        "{}",
        console.message_text()
    );
    console.press("/ x x Enter n");
    assert_eq!(console.model.log.messages.len(), 2);
    console.press("d");
    assert_eq!(
        console.message_text(),
        "the row is a note, not a run of an agent"
    );
}

#[test]
fn log_keeps_its_run_row_when_messages_arrive() {
    let mut console = fleet_of_four();
    let mut runs = vec![run_summary("aaaa", 190, &[("alpha", Outcome::Ok)])];
    console.send(Msg::LogLoaded(Ok(runs.clone())));
    console.press("7 G");
    let opens = |console: &mut TestConsole| {
        console.press("Enter");
        console.model.reset.result().unwrap().run_id.clone()
    };
    console.send(Msg::Reported(MessageLevel::Warn, "something".to_string()));
    console.send(Msg::Reported(
        MessageLevel::Warn,
        "something else".to_string(),
    ));
    assert_eq!(opens(&mut console), "aaaa");
    console.press("7");
    runs.insert(0, run_summary("bbbb", 10, &[("delta", Outcome::Ok)]));
    console.send(Msg::LogLoaded(Ok(runs)));
    assert_eq!(opens(&mut console), "aaaa");
}

#[test]
fn log_that_was_not_moved_stays_at_the_newest_row() {
    let mut console = fleet_of_four();
    let runs = vec![run_summary("aaaa", 190, &[("alpha", Outcome::Ok)])];
    console.send(Msg::LogLoaded(Ok(runs)));
    console.observe(vec![observation_of("bravo", State::Drifted)]);
    let warn = |text: &str| Msg::Reported(MessageLevel::Warn, text.to_string());
    console.send(warn("something"));
    console.advance(MINUTE);
    console.send(warn("something else"));
    console.press("7");
    assert_eq!(console.model.log.list.cursor, 0);
    console.press("j");
    console.send(warn("more"));
    assert_eq!(console.model.log.list.cursor, 2);
    console.press("g g");
    console.send(warn("the end"));
    assert_eq!(console.model.log.list.cursor, 0);
}

#[test]
fn log_keeps_its_message_row_when_more_arrive() {
    let mut console = fleet_of_four();
    let texts = ["one", "two", "three"];
    for text in texts {
        console.send(Msg::Reported(MessageLevel::Warn, text.to_string()));
    }
    console.press("7 j");
    for more in ["four", "five", "five"] {
        console.send(Msg::Reported(MessageLevel::Warn, more.to_string()));
        let rows = console.model.log.rows();
        assert_eq!(rows[console.model.log.list.cursor].text(), "two");
    }
}

#[test]
fn repeated_message_is_counted() {
    let mut console = fleet_of_four();
    for _ in 0..3 {
        console.send(Msg::Reported(MessageLevel::Warn, "again".to_string()));
    }
    assert_eq!(console.model.last_message.as_ref().unwrap().repeat_count, 3);
    assert_eq!(console.model.log.messages[0].repeat_count, 3);
}

#[test]
fn refused_agents_are_not_counted_as_failed() {
    let ends = [
        ("alpha", Outcome::Ok),
        ("bravo", Outcome::Failed),
        ("charlie", Outcome::Refused),
        ("delta", Outcome::Refused),
        ("echo", Outcome::NotStarted),
    ];
    let mut summary = run_summary("1f00d5ee", 5, &ends);
    let text = |run: &RunSummary| LogRow::Run(run).text();
    assert_eq!(
        text(&summary),
        "reset 5 agents  run 1f00d5ee: 1 ok, 1 FAILED bravo, 2 refused charlie delta, 1 not started echo"
    );
    // All undoable agents of the run were undone.
    summary.undone_agents = vec!["alpha".to_string()];
    assert!(text(&summary).ends_with("(undone)"));
    let mut console = console_with_run();
    let ends = [
        ("alpha", Outcome::Ok, None),
        ("bravo", Outcome::Refused, Some("why")),
    ];
    console.send(Msg::RunEnded(Box::new(run_report(&ends))));
    assert_eq!(console.message_text(), "run 7f3c0a11: 1 ok, 1 refused");
}

#[test]
fn log_opens_at_its_newest_row() {
    let mut console = fleet_of_four();
    console.send(Msg::Reported(MessageLevel::Warn, "an old note".to_string()));
    let mut runs = vec![run_summary("aaaa", 0, &[("alpha", Outcome::Ok)])];
    console.send(Msg::LogLoaded(Ok(runs.clone())));
    runs.insert(0, run_summary("bbbb", -10, &[("delta", Outcome::Ok)]));
    console.send(Msg::LogLoaded(Ok(runs)));
    console.press("7");
    assert_eq!(console.model.log.list.cursor, 0);
}

#[test]
fn cursor_stays_at_the_newest_row_until_it_is_moved() {
    let mut console = fleet_of_four();
    console.press("7");
    let mut runs = vec![
        run_summary("bbbb", -5, &[("alpha", Outcome::Ok)]),
        run_summary("aaaa", 0, &[("alpha", Outcome::Ok)]),
    ];
    console.send(Msg::LogLoaded(Ok(runs.clone())));
    let mut add_run = |console: &mut TestConsole, run: &str, minute: i64| {
        runs.insert(0, run_summary(run, minute, &[("delta", Outcome::Ok)]));
        console.send(Msg::LogLoaded(Ok(runs.clone())));
        console.model.log.list.cursor
    };
    assert_eq!(add_run(&mut console, "cccc", -10), 0);
    // A row that was chosen stays chosen.
    console.press("j");
    assert_eq!(add_run(&mut console, "dddd", -15), 2);
}

#[test]
fn undo_key_of_a_run_names_the_keys_that_undo_it() {
    let mut console = fleet_of_four();
    let runs = vec![run_summary("bbbb", 10, &[("delta", Outcome::Ok)])];
    console.send(Msg::LogLoaded(Ok(runs)));
    console.press("7 j");
    assert!(!console.screen_text().contains("undo save"));
    assert_eq!(console.press("gg z"), []);
    assert_eq!(
        console.message_text(),
        "no save of a baseline: Enter opens the run, z there undoes it"
    );
}

#[test]
fn note_of_what_is_in_force_already_is_said_once() {
    let mut console = fleet_of_four();
    for _ in 0..2 {
        console.model.report_once("theme light");
        assert_eq!(console.message_text(), "theme light");
        let screen = console.screen_text();
        assert!(!screen.contains("x2"), "{screen}");
    }
    assert_eq!(console.model.log.messages.len(), 1);
}

#[test]
fn log_has_one_count_of_runs() {
    let mut console = fleet_of_four();
    console.press("7");
    let runs = (0..3).map(|id| run_summary(&format!("aaa{id}"), 10, &[("alpha", Outcome::Ok)]));
    console.send(Msg::LogLoaded(Ok(runs.collect())));
    let report = fleet_report("alpha", "a reason");
    console.send(Msg::ReportLoaded(Ok((&report).into())));
    let screen = console.screen_text();
    assert_eq!(screen.matches(" runs").count(), 1, "{screen}");
}
