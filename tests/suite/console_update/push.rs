//! Plans of a push, and what they keep of the scratch.

use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screens::reset::state::{Confirmation, PlanRequest};
use memory_shepherd::engine::{Outcome, ScratchSelection, State};

use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{push_plan, run_report};

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

fn push_request(agents: &[&str], selection: ScratchSelection) -> PlanRequest {
    let agents = agents.iter().map(|agent| agent.to_string()).collect();
    PlanRequest::Push(agents, selection)
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
    let marked = push_request(&["charlie"], lines("3,5"));
    assert_eq!(*requested(&effects), marked);
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
    for (next, kept) in [
        (ScratchSelection::Nothing, 0),
        (ScratchSelection::All, 4),
        (lines("3,5"), 2),
    ] {
        let effects = console.press("s");
        let expected = push_request(&["charlie"], next.clone());
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
fn retried_push_never_reuses_line_numbers() {
    for (selection, expected) in [
        (ScratchSelection::All, Some(ScratchSelection::All)),
        (lines("3,5"), None),
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
        match expected {
            Some(selection) => {
                let again = push_request(&["charlie"], selection);
                assert_eq!(*requested(&effects), again);
            }
            None => {
                assert_eq!(effects, []);
                assert_eq!(
                    console.message_text(),
                    "the numbers of its lines may have changed: mark them again, then P"
                );
            }
        }
    }
}
