//! Protected agents and read-only fleets.

use std::time::Duration;

use memory_shepherd::console::screen::Screen;

use memory_shepherd::console::overlay::Overlay;

use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::model::read_only::{is_unlocked, read_only_reason, unlock_hint};
use memory_shepherd::console::widgets::plan_pane::Confirmation;
use memory_shepherd::engine::{Plan, Protection, READ_ONLY_REASON, State, UndoMode};

use super::MINUTE;
use crate::console_fixture::{TestConsole, fleet_of, fleet_of_four};
use crate::console_views::apply_preferences;
use crate::engine_samples::{observation_of, plan, reset_request, skipped_agent, undo_plan};

fn fleet_with_protected_agent(protect: Protection) -> TestConsole {
    let mut console = fleet_of_four();
    let mut bravo = observation_of("bravo", State::Scratch);
    bravo.protection = protect;
    console.observe(vec![bravo]);
    console
}

#[test]
fn protected_agent_always_needs_typing() {
    let typed = |mut plan: Plan| {
        plan.steps[0].protection = Protection::Typed;
        plan
    };
    let mut console = fleet_of_four();
    console.press_and_plan("j X", typed(plan(&[("bravo", State::Scratch)])));
    assert_eq!(
        *console.confirmation(),
        Confirmation::TypedText("reset 1".to_string())
    );
    let mut console = fleet_of_four();
    console.press_and_plan("j z", typed(undo_plan(&["bravo"], false, UndoMode::Refuse)));
    assert_eq!(
        *console.confirmation(),
        Confirmation::TypedText("undo 1".to_string())
    );
    let mut solo = fleet_of(&[("solo", State::Scratch)]);
    solo.press_and_plan("X", typed(plan(&[("solo", State::Scratch)])));
    assert_eq!(
        *solo.confirmation(),
        Confirmation::TypedText("reset 1".to_string()),
        "also alone"
    );
}

#[test]
fn keys_after_closing_a_question_are_ignored() {
    let mut console = fleet_of_four();
    console.press("! !");
    assert_eq!(console.model.overlay, Some(Overlay::UnlockReadOnly));
    console.type_line("z");
    assert_eq!(console.message_text(), "read-only stays on");
    console.type_line("aX");
    assert!(console.model.fleet.marks.is_empty());
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(
        console.message_text().contains("ignored"),
        "{}",
        console.message_text()
    );
    console.press("a");
    assert_eq!(
        console.model.fleet.marks.len(),
        4,
        "after a pause they count"
    );
    // Esc and n decline.
    for answer in ["Esc", "n"] {
        console.press("A !");
        console.press(answer);
        assert_eq!(console.message_text(), "read-only stays on");
        console.type_line("a");
        assert_eq!(console.model.fleet.marks.len(), 4, "{answer}");
    }
}

#[test]
fn read_only_agent_unlocks_for_30_minutes() {
    let mut console = fleet_with_protected_agent(Protection::ReadOnly);
    assert_eq!(
        console.press("j X"),
        [Effect::MakePlan(1, reset_request(&["bravo"]), false)]
    );
    console.press("Esc !");
    assert!(
        read_only_reason(&console.model).is_some(),
        "first it is all of it"
    );
    console.press("!");
    assert_eq!(console.model.overlay, Some(Overlay::UnlockReadOnly));
    console.press("Enter");
    assert!(!is_unlocked(&console.model), "only y does");
    console.press("! y");
    assert!(is_unlocked(&console.model));
    assert_eq!(
        console.press("X"),
        [Effect::MakePlan(2, reset_request(&["bravo"]), true)]
    );
    console.press("Esc");
    console.advance(29 * MINUTE);
    assert!(is_unlocked(&console.model));
    console.advance(2 * MINUTE);
    assert!(!is_unlocked(&console.model));
    assert!(
        console.message_text().contains("read-only again"),
        "{}",
        console.message_text()
    );
}

#[test]
fn expired_unlock_voids_the_open_plan() {
    let unlocked_plan = || plan(&[("bravo", State::Scratch)]);
    let mut console = fleet_with_protected_agent(Protection::ReadOnly);
    console.press("! ! y");
    console.advance(30 * MINUTE - Duration::from_secs(20));
    console.press_and_plan("j X", unlocked_plan());
    let request = reset_request(&["bravo"]);
    let effects = console.advance(Duration::from_secs(20));
    assert_eq!(effects, [Effect::MakePlan(2, request.clone(), false)]);
    let said = console.message_text();
    assert!(said.contains("read-only again"), "{said}");
    console.press("y");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    let mut locked = plan(&[]);
    locked.skipped = vec![skipped_agent("bravo", State::Scratch, READ_ONLY_REASON)];
    console.answer_plan(locked);
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    // A plan that is being made, or that another screen covers, is made again as well.
    for keys in ["X", "X 1"] {
        let mut console = fleet_with_protected_agent(Protection::ReadOnly);
        console.press("! ! y j");
        console.advance(30 * MINUTE - Duration::from_secs(20));
        console.press(keys);
        let effects = console.advance(Duration::from_secs(20));
        assert_eq!(effects, [Effect::MakePlan(2, request.clone(), false)]);
        console.send(Msg::PlanMade(1, Ok(Box::new(unlocked_plan()))));
        assert!(console.model.reset.plan.shown().is_none(), "{keys}");
    }
}

#[test]
fn read_only_shows_plans_and_blocks_runs() {
    for keys in ["X", "z", "Z", "u"] {
        let mut console = fleet_of_four();
        console.model.read_only.is_on = true;
        assert!(
            matches!(console.press(keys)[..], [Effect::MakePlan(..)]),
            "{keys}"
        );
    }
    for (made, confirm) in [
        (plan(&[("bravo", State::Scratch)]), "y"),
        (
            plan(&[("bravo", State::Drifted)]),
            "r e s e t Space 1 Enter",
        ),
    ] {
        let mut console = fleet_of_four();
        console.model.read_only.is_on = true;
        console.model.read_only.is_set_by_config = true;
        apply_preferences(&mut console, "[keys]\nread-only = \"F9\"\n");
        console.press_and_plan("j X", made.clone());
        console.press(confirm);
        assert_eq!(console.applied_agents(), [] as [&str; 0], "{confirm}");
        let said = console.message_text();
        assert!(said.contains("read-only; F9 switches it off"), "{said}");
        // The key unlocks after a typed word as well; the plan is made again.
        console.press("F9");
        let effects = console.press("y");
        assert!(
            matches!(effects[..], [Effect::MakePlan(_, _, true)]),
            "{effects:?}"
        );
        console.answer_plan(made);
        console.advance(Duration::from_secs(1));
        console.press(if confirm == "y" { "y" } else { "Enter" });
        assert_eq!(console.applied_agents(), ["bravo"], "{confirm}");
        console.advance(31 * MINUTE);
        assert!(
            read_only_reason(&console.model).is_some(),
            "it is read-only again"
        );
    }
}

#[test]
fn plan_made_before_read_only_does_not_run() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.model.read_only.is_on = true;
    console.press("y");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    let mut console = fleet_of_four();
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    console.model.read_only.is_on = true;
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
}

#[test]
fn forced_read_only_cannot_be_unlocked() {
    let mut console = fleet_with_protected_agent(Protection::ReadOnly);
    console.model.read_only.is_forced = true;
    for keys in ["!", "! y"] {
        assert_eq!(console.press(keys), [], "{keys}");
        assert_eq!(console.model.overlay, None, "{keys}");
        assert!(read_only_reason(&console.model).is_some(), "{keys}");
    }
    console.press_and_plan("Esc X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset 1");
    console.press("Enter");
    console.press("y");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    assert_eq!(console.model.screen, Screen::Reset, "no letter acts");
    console.press_and_plan("Esc j X", plan(&[("bravo", State::Scratch)]));
    console.press("y");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    assert!(
        console.message_text().contains("--read-only"),
        "{}",
        console.message_text()
    );
}

#[test]
fn forced_read_only_console_offers_only_what_runs() {
    let mut console = fleet_of_four();
    let last_line = |console: &TestConsole| {
        let cells: Vec<char> = console.screen_text().chars().collect();
        cells[cells.len() - 120..].iter().collect::<String>()
    };
    let before = last_line(&console);
    assert!(before.contains("X plan reset"), "{before}");
    console.model.read_only.is_forced = true;
    let after = last_line(&console);
    assert!(
        !after.contains("X plan reset") && !after.contains("z undo"),
        "{after}"
    );
    console.press("E");
    assert!(
        console
            .message_text()
            .starts_with("started with --read-only")
    );
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    console.press("y");
    assert!(
        console
            .message_text()
            .starts_with("started with --read-only")
    );
}

#[test]
fn hint_names_the_keys_that_unlock_a_protected_agent() {
    let mut console = fleet_of_four();
    assert_eq!(
        unlock_hint(&console.model),
        "! ! y unlocks it for 30 minutes"
    );
    console.press("! !");
    assert!(
        console
            .screen_text()
            .contains("Turn off read-only, and unlock protected agents for 30 minutes?")
    );
    console.press("y");
    assert!(is_unlocked(&console.model));
    // No key unlocks a console that was started read-only.
    let mut console = fleet_of_four();
    console.model.read_only.is_forced = true;
    let mut protected = observation_of("charlie", State::Drifted);
    protected.protection = Protection::ReadOnly;
    console.observe(vec![protected]);
    console.press("E");
    assert_eq!(
        console.message_text(),
        "agent is protected as read-only; quit and start without --read-only"
    );
}
