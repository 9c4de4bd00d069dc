//! Plans of a push, and what they keep of the scratch.

use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screens::reset::state::{Confirmation, PlanRequest};
use memory_shepherd::engine::{ChosenLines, Outcome, ScratchRequest, ScratchSelection, State};

use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{observation_of, push_plan, run_report};

const BASELINE: &[u8] = b"# Rules\n---\n";
const MEMORY: &[u8] = b"# Rules\n---\none\ntwo\nthree\nfour\n";

fn lines(text: &str) -> ScratchSelection {
    text.parse().unwrap()
}

/// The request of the plan that these effects make.
fn requested(effects: &[Effect]) -> &PlanRequest {
    match effects {
        [Effect::MakePlan(_, request, _)] => request,
        _ => panic!("{effects:?}"),
    }
}

fn push_request(agents: &[&str], request: impl Into<ScratchRequest>) -> PlanRequest {
    let agents = agents.iter().map(|agent| agent.to_string()).collect();
    PlanRequest::Push(agents, request.into())
}

/// The request for the lines that [`console_with_marked_lines`] marks.
fn marked_request() -> PlanRequest {
    let lines = [(3, "one"), (5, "three")].map(|(number, text)| (number, text.into()));
    push_request(
        &["charlie"],
        ScratchRequest::Chosen(ChosenLines(lines.into())),
    )
}

/// A console with lines 3 and 5 of the scratch of `charlie` marked.
fn console_with_marked_lines() -> TestConsole {
    let mut console = fleet_of_four();
    console.send(Msg::Resized(80, 24));
    console.press("d");
    console.load_texts("charlie", MEMORY, Some(BASELINE));
    console.press("Tab Space j Space");
    console
}

#[test]
fn push_keeps_all_scratch_of_marked_agents() {
    let mut console = fleet_of_four();
    let effects = console.press("Space Space P");
    let both = push_request(&["bravo", "charlie"], ScratchSelection::All);
    assert_eq!(*requested(&effects), both);
    console.answer_plan(push_plan(
        &[("charlie", State::Drifted), ("bravo", State::Behind)],
        &ScratchSelection::All,
        3,
    ));
    let word = Confirmation::TypedText("push 2".to_string());
    assert_eq!(*console.confirmation(), word);
    let screen = console.screen_text();
    assert!(screen.contains("PUSH PLAN"), "{screen}");
    assert!(
        screen.contains("keeps all scratch (6 lines)   s keeps none"),
        "{screen}"
    );
    assert!(screen.contains("keeps 3 lines"), "{screen}");
    assert!(screen.contains("push bravo charlie --plan"), "{screen}");
}

#[test]
fn key_changes_what_push_keeps() {
    let mut console = console_with_marked_lines();
    let effects = console.press("P");
    assert_eq!(*requested(&effects), marked_request());
    let drifted = [("charlie", State::Drifted)];
    console.answer_plan(push_plan(&drifted, &lines("3,5"), 2));
    let screen = console.screen_text();
    assert!(
        screen.contains("keeps marked scratch (2 lines)   s keeps none"),
        "{screen}"
    );
    assert!(
        screen.contains("push charlie --keep 3,5 --plan"),
        "{screen}"
    );
    let unmarked = |selection: &ScratchSelection| push_request(&["charlie"], selection.clone());
    for (next, kept, expected) in [
        (
            ScratchSelection::Nothing,
            0,
            unmarked(&ScratchSelection::Nothing),
        ),
        (ScratchSelection::All, 4, unmarked(&ScratchSelection::All)),
        (lines("3,5"), 2, marked_request()),
    ] {
        let effects = console.press("s");
        assert_eq!(*requested(&effects), expected);
        console.answer_plan(push_plan(&drifted, &next, kept));
    }
}

#[test]
fn other_plans_do_not_offer_kept_scratch() {
    let mut console = fleet_of_four();
    console.press_and_plan(
        "X",
        push_plan(&[("charlie", State::Drifted)], &lines("3"), 1),
    );
    assert_eq!(console.press("s"), []);
    assert!(!console.screen_text().contains("change kept scratch"));
}

#[test]
fn started_push_clears_its_marked_lines() {
    let mut console = console_with_marked_lines();
    console.press_and_plan(
        "P",
        push_plan(&[("charlie", State::Behind)], &lines("3,5"), 2),
    );
    console.press("y");
    assert_eq!(console.applied_agents(), ["charlie"]);
    assert!(console.model.agent.marked_lines_of("charlie").is_none());
}

#[test]
fn retried_push_keeps_same_marked_lines() {
    let all = push_request(&["charlie"], ScratchSelection::All);
    for (selection, expected) in [
        (ScratchSelection::All, all),
        (lines("3,5"), marked_request()),
    ] {
        let mut console = console_with_marked_lines();
        if selection == ScratchSelection::All {
            console.press("A");
        }
        console.press_and_plan("P", push_plan(&[("charlie", State::Behind)], &selection, 2));
        console.press("y");
        let mut report = run_report(&[("charlie", Outcome::Failed, Some("disk full"))]);
        report.operation = memory_shepherd::engine::Operation::Push;
        console.send(Msg::RunEnded(Box::new(report)));
        let effects = console.press("r");
        assert_eq!(*requested(&effects), expected);
    }
}

#[test]
fn marked_lines_of_other_screens_are_pushed_by_bytes() {
    let mut console = console_with_marked_lines();
    // The agent changes lines above while another agent is on the screen.
    console.press("]");
    console.press("Esc k k k");
    console.press("/ c h a r l i e Enter");
    let effects = console.press("P");
    assert_eq!(*requested(&effects), marked_request());
}

#[test]
fn fleet_says_that_a_push_keeps_marked_lines_only() {
    let mut console = console_with_marked_lines();
    console.observe(vec![observation_of("charlie", State::Behind)]);
    console.press("Esc / c h a r l i e Enter");
    let screen = console.screen_text();
    let hint = "P plans a push that keeps 2 marked lines";
    assert!(screen.contains(hint), "{screen}");
}
