//! Plans of a push, and what they keep of the scratch.

use memory_shepherd::base::digest::Digest;
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::text;
use memory_shepherd::console::widgets::plan_pane::Confirmation;
use memory_shepherd::engine::{
    ChosenLines, KeptScratch, Outcome, Plan, ScratchRequest, ScratchSelection, State, UndoMode,
};

use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::{observation_of, push_plan, run_report, undo_plan};

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

/// A push to two agents that are behind on the same version, and one that is not.
fn behind_plan() -> Plan {
    let agents = [
        ("bravo", State::Behind),
        ("charlie", State::Drifted),
        ("delta", State::Behind),
    ];
    let mut plan = push_plan(&agents, &ScratchSelection::All, 3);
    for step in plan.steps.iter_mut().filter(|it| it.state == State::Behind) {
        step.behind_version = Some(Digest::of(b"old"));
    }
    plan
}

#[test]
fn plan_of_agent_behind_shows_changed_rules() {
    let mut console = fleet_of_four();
    console.press("Space Space P");
    let effects = console.answer_plan(behind_plan());
    let [Effect::CompareNewRules(request)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!(request.agent, "bravo");
    assert_eq!(request.old, Digest::of(b"old"));
    let screen = console.screen_text();
    assert!(screen.contains("for bravo, delta"), "{screen}");
    assert!(screen.contains("reading …"), "{screen}");
    let old: String = (0..40).map(|line| format!("rule {line}\n")).collect();
    let new = old.replace("rule", "changed");
    let text = text::prepare_comparison([old.as_bytes(), new.as_bytes()], None);
    console.send(Msg::NewRulesCompared(request.clone(), text));
    let screen = console.screen_text();
    assert!(screen.contains("changed 0"), "{screen}");
    // The other agents of the plan have this change, too, or none.
    console.advance(KEY_GUARD_TIME);
    assert_eq!(console.press("j j"), []);
    assert_eq!(console.model.reset.list.cursor, 2);
    console.send(Msg::Resized(80, 24));
    assert!(!console.screen_text().contains("changed 39"));
    console.press("G");
    let screen = console.screen_text();
    assert!(screen.contains("changed 39"), "{screen}");
    assert_eq!(console.model.reset.list.cursor, 2);
}

#[test]
fn checks_of_push_do_not_repeat_what_is_kept() {
    let mut console = fleet_of_four();
    let mut plan = push_plan(&[("charlie", State::Drifted)], &ScratchSelection::All, 6);
    let step = &mut plan.steps[0];
    let kept = step.kept_scratch.as_ref().map(KeptScratch::describe);
    step.notes = kept
        .into_iter()
        .chain(["edited rules".to_string()])
        .collect();
    console.press_and_plan("P", plan);
    let screen = console.screen_text();
    let row = screen.find("edited rules").expect("the check is shown");
    assert_eq!(screen[..row].matches("of scratch").count(), 0, "{screen}");
}

#[test]
fn undo_plan_of_agent_behind_shows_no_rules() {
    let mut console = fleet_of_four();
    console.press("z");
    let mut plan = undo_plan(&["charlie"], false, UndoMode::Refuse);
    plan.steps[0].behind_version = Some(Digest::of(b"old"));
    assert_eq!(console.answer_plan(plan), []);
}

#[test]
fn push_without_scratch_says_that_there_is_none() {
    let mut console = fleet_of_four();
    let drifted = [("charlie", State::Drifted)];
    console.press_and_plan("P", push_plan(&drifted, &ScratchSelection::All, 0));
    let screen = console.screen_text();
    assert!(
        screen.contains("keeps all scratch (there is none)"),
        "{screen}"
    );
}

#[test]
fn push_with_nothing_to_run_offers_other_scratch() {
    let mut console = fleet_of_four();
    let mut plan = push_plan(&[("charlie", State::Drifted)], &lines("3"), 1);
    plan.steps.clear();
    console.press_and_plan("P", plan);
    let screen = console.screen_text();
    assert!(
        screen.contains("keeps all scratch   s keeps none"),
        "{screen}"
    );
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
