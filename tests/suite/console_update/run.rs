//! Runs and their results.

use memory_shepherd::console::model::Screen;

use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screens::reset::state::{PlanRequest, ResetStage};
use memory_shepherd::engine::{
    Outcome, RunProgress, RunStage as Step, State, UndoMode, UndoTarget,
};

use super::{console_with_run, marked_agents};
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{plan, reset_request, run_report};

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
    assert!(console.model.is_running());
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
    assert!(matches!(console.model.reset.stage, ResetStage::Result(_)));
}

#[test]
fn repeated_q_does_not_stop_run() {
    let mut console = console_with_run();
    assert_eq!(console.press("q q q"), []);
    assert!(console.message_text().contains("a run is in progress"));
    assert!(console.model.is_running());
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
            && matches!(&console.model.reset.stage, ResetStage::Result(view) if view.run_id == "7f3c0a11")
    };
    console.press("5");
    for plan_and_back in ["z q", "r Esc", "q 5", "q X q 5"] {
        console.press(plan_and_back);
        assert!(is_there(&console), "{plan_and_back}");
    }
    assert_eq!(
        console.press("z"),
        [Effect::MakePlan(
            console.model.reset.last_plan_id,
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
