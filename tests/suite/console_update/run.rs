//! Runs and their results.

use memory_shepherd::console::screen::Screen;

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::engine::{
    Operation, Outcome, RunProgress, RunStage as Step, State, UndoMode, UndoTarget,
};

use super::{console_with_run, marked_agents};
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{plan, reset_request, run_report, run_summary};

#[test]
fn control_c_cancels_run_and_then_quits() {
    let mut console = console_with_run();
    assert_eq!(console.press("^c"), [Effect::CancelRun]);
    assert_eq!(console.press("^c"), [Effect::CancelRun, Effect::Quit]);
    for screen in ["1", "7"] {
        let mut console = console_with_run();
        console.press(screen);
        assert_eq!(
            console.press("^c"),
            [Effect::CancelRun],
            "also from another screen"
        );
    }
    assert_eq!(
        fleet_of_four().press("^c"),
        [Effect::CancelRun, Effect::Quit]
    );
}

#[test]
fn running_run_can_be_left_and_blocks_plans() {
    let mut console = console_with_run();
    console.send(Msg::RunProgressed(RunProgress::Stage(
        "bravo".to_string(),
        Step::Swap,
    )));
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(console.model.reset.is_running());
    assert_eq!(console.press("X z"), []);
    assert!(
        console.message_text().contains("in progress"),
        "{}",
        console.message_text()
    );
    console.press("5");
    assert_eq!(console.model.screen, Screen::Reset);
    let effects = console.send(Msg::RunEnded(Box::new(run_report(&[(
        "bravo",
        Outcome::Ok,
        None,
    )]))));
    assert_eq!(
        effects,
        [
            Effect::ReadAgents(vec!["bravo".to_string()]),
            Effect::LoadLog
        ]
    );
    assert!(console.model.reset.result().is_some());
}

#[test]
fn repeated_q_does_not_stop_run() {
    let mut console = console_with_run();
    assert_eq!(console.press("q q q"), []);
    assert!(console.message_text().contains("a run is in progress"));
    assert!(console.model.reset.is_running());
    console.press("^c");
    assert!(console.press("q").contains(&Effect::Quit));
}

#[test]
fn result_stays_until_next_run() {
    let mut console = console_with_run();
    console.send(Msg::RunEnded(Box::new(run_report(&[
        ("bravo", Outcome::Ok, None),
        ("delta", Outcome::Refused, Some("moved")),
    ]))));
    let is_there = |console: &TestConsole| {
        console.model.screen == Screen::Reset
            && console
                .model
                .reset
                .result()
                .is_some_and(|view| view.run_id == "7f3c0a11")
    };
    console.press("5");
    for plan_and_back in ["z q", "r Esc", "q 5", "q X q 5"] {
        console.press(plan_and_back);
        assert!(is_there(&console), "{plan_and_back}");
    }
    assert_eq!(
        console.press("z"),
        [Effect::MakePlan(
            console.model.reset.plan.requests.last_id,
            PlanRequest::Undo(UndoTarget::Run("7f3c0a11".to_string()), UndoMode::Refuse),
            false
        )]
    );
}

#[test]
fn run_clears_marks_and_failures_can_be_retried() {
    let mut console = fleet_of_four();
    console.press("a");
    console.press_and_plan(
        "X",
        plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]),
    );
    console.type_line("reset 2");
    console.press("Enter");
    let failed = Some("archive disk full");
    let ended = run_report(&[
        ("bravo", Outcome::Ok, None),
        ("delta", Outcome::Failed, failed),
    ]);
    console.send(Msg::RunEnded(Box::new(ended)));
    assert_eq!(
        marked_agents(&console),
        ["alpha", "charlie"],
        "those it was not about"
    );
    let text = console.screen_text();
    assert!(text.find("delta") < text.find("bravo"), "{text}");
    assert!(
        console.message_text().contains("1 failed"),
        "{}",
        console.message_text()
    );
    assert_eq!(
        console.press("z"),
        [Effect::MakePlan(
            2,
            PlanRequest::Undo(UndoTarget::Run("7f3c0a11".to_string()), UndoMode::Refuse),
            false
        )],
        "of this very run"
    );
    let mut console = console_with_run();
    let ended = run_report(&[("bravo", Outcome::Failed, failed)]);
    console.send(Msg::RunEnded(Box::new(ended)));
    assert_eq!(
        console.press("r"),
        [Effect::MakePlan(2, reset_request(&["bravo"]), false)]
    );
}

#[test]
fn retry_of_refused_undo_plans_that_undo() {
    let undo = |results: &[(&str, Outcome)]| {
        let mut run = run_summary("undo", 10, results);
        for event in &mut run.events {
            event.operation = Operation::Undo;
            let is_done = event.outcome == Outcome::Ok;
            event.undone_run = is_done.then(|| "first".to_string());
        }
        run
    };
    let both = [("alpha", Outcome::Ok), ("bravo", Outcome::Ok)];
    let first = run_summary("first", 60, &both);
    let second = run_summary("second", 30, &[("bravo", Outcome::Ok)]);
    let mut all_refused = undo(&[("alpha", Outcome::Refused), ("bravo", Outcome::Refused)]);
    for event in &mut all_refused.events {
        event.undone_run = Some("first".to_string());
    }
    let part = undo(&[("alpha", Outcome::Ok), ("bravo", Outcome::Refused)]);
    let of_agents =
        |names: &[&str]| UndoTarget::Agents(names.iter().map(|name| name.to_string()).collect());
    let whole_run = UndoTarget::Run("first".to_string());
    let part_of_run = UndoTarget::RunAgents("first".to_string(), vec!["bravo".to_string()]);
    for (runs, target) in [
        (
            vec![part.clone(), first.clone()],
            Some(of_agents(&["bravo"])),
        ),
        // The last reset of bravo is another one.
        (vec![part, second.clone(), first.clone()], Some(part_of_run)),
        (vec![all_refused, second, first.clone()], Some(whole_run)),
        (vec![undo(&[("bravo", Outcome::Refused)]), first], None),
    ] {
        let mut console = fleet_of_four();
        console.send(Msg::LogLoaded(Ok(runs)));
        console.press("7 gg Enter");
        let effects = console.press("r");
        let request = target.map(|target| PlanRequest::Undo(target, UndoMode::Refuse));
        let expected = request.map(|it| Effect::MakePlan(1, it, false));
        assert_eq!(effects, Vec::from_iter(expected));
    }
}

#[test]
fn result_shows_errors_that_concern_no_agent() {
    let mut console = console_with_run();
    let mut ended = run_report(&[("bravo", Outcome::Ok, None)]);
    let error = Error::new(ErrorKind::Host, "cannot remove a1.json: busy");
    ended.errors.push(error);
    console.send(Msg::RunEnded(Box::new(ended)));
    let message = console.message_text();
    assert!(
        message.contains("1 error: cannot remove a1.json"),
        "{message}"
    );
    let screen = console.screen_text();
    assert!(screen.contains("0 FAILED, 1 error"), "{screen}");
    assert!(
        screen.contains("error: cannot remove a1.json: busy"),
        "{screen}"
    );
    let mut run = run_summary("other", 10, &[("alpha", Outcome::Ok)]);
    run.problem = Some("cannot sync the archive".to_string());
    console.send(Msg::LogLoaded(Ok(vec![run])));
    console.press("7 gg /");
    console.type_line("sync");
    console.press("Enter Enter");
    let screen = console.screen_text();
    assert!(
        screen.contains("error: cannot sync the archive"),
        "{screen}"
    );
}

#[test]
fn every_stage_of_a_reset_shows_fleet_and_tag() {
    let mut console = fleet_of_four();
    let shows_fleet = |console: &TestConsole, stage: &str| {
        let screen: String = console.screen_text().chars().take(120).collect();
        assert!(screen.contains("prod-west [PROD]"), "{stage}: {screen}");
    };
    console.press("X");
    shows_fleet(&console, "reading");
    console.answer_plan(plan(&[("charlie", State::Drifted)]));
    shows_fleet(&console, "plan");
    let mut console = console_with_run();
    shows_fleet(&console, "run");
    console.press("^c");
    let screen = console.screen_text();
    let wordings = screen.matches("finish, no others start").count();
    assert_eq!(wordings, 1, "{screen}");
    assert!(screen.contains("^c again quits"), "{screen}");
    console.send(Msg::RunEnded(Box::new(run_report(&[(
        "bravo",
        Outcome::Ok,
        None,
    )]))));
    shows_fleet(&console, "result");
}
