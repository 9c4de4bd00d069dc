//! Agents and fleets that are not to be changed.

use std::time::Duration;

use memory_shepherd::console::model::{Confirmation, Overlay, Screen};
use memory_shepherd::console::update::Effect;
use memory_shepherd::engine::{Plan, Protection, State, UndoMode};

use super::MINUTE;
use crate::console_fleet::{Console, fleet, four, plan, reset_of, seen, undo};
use crate::console_views::prefer;

fn protected(protect: Protection) -> Console {
    let mut console = four();
    let mut bravo = seen("bravo", State::Scratch);
    bravo.protection = protect;
    console.observe(vec![bravo]);
    console
}

#[test]
fn a_protected_agent_needs_typing_whatever_it_is_in() {
    let typed = |mut plan: Plan| {
        plan.steps[0].protection = Protection::Typed;
        plan
    };
    let mut console = four();
    console.plan("j X", typed(plan(&[("bravo", State::Scratch)])));
    assert_eq!(
        *console.form(),
        Confirmation::TypedText("reset 1".to_string())
    );
    let mut console = four();
    console.plan("j z", typed(undo(&["bravo"], false, UndoMode::Refuse)));
    assert_eq!(
        *console.form(),
        Confirmation::TypedText("undo 1".to_string())
    );
    let mut solo = fleet(&[("solo", State::Scratch)]);
    solo.plan("X", typed(plan(&[("solo", State::Scratch)])));
    assert_eq!(
        *solo.form(),
        Confirmation::TypedText("reset 1".to_string()),
        "also alone"
    );
}

#[test]
fn keys_behind_one_that_leaves_a_question_do_nothing() {
    let mut console = four();
    console.press("! !");
    assert_eq!(console.model.overlay, Some(Overlay::UnlockReadOnly));
    console.type_line("z");
    assert_eq!(console.said(), "read-only stays on");
    console.type_line("aX");
    assert!(console.model.marks.is_empty());
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(console.said().contains("ignored"), "{}", console.said());
    console.press("a");
    assert_eq!(console.model.marks.len(), 4, "after a pause they count");
    // Esc and n are answers.
    for answer in ["Esc", "n"] {
        console.press("A !");
        console.press(answer);
        assert_eq!(console.said(), "read-only stays on");
        console.type_line("a");
        assert_eq!(console.model.marks.len(), 4, "{answer}");
    }
}

#[test]
fn a_read_only_agent_is_unlocked_for_half_an_hour_by_y() {
    let mut console = protected(Protection::ReadOnly);
    assert_eq!(
        console.press("j X"),
        [Effect::MakePlan(1, reset_of(&["bravo"]), false)]
    );
    console.press("Esc !");
    assert!(
        console.model.read_only_reason().is_some(),
        "first it is all of it"
    );
    console.press("!");
    assert_eq!(console.model.overlay, Some(Overlay::UnlockReadOnly));
    console.press("Enter");
    assert!(!console.model.is_unlocked(), "only y does");
    console.press("! y");
    assert!(console.model.is_unlocked());
    assert_eq!(
        console.press("X"),
        [Effect::MakePlan(2, reset_of(&["bravo"]), true)]
    );
    console.press("Esc");
    console.pass(29 * MINUTE);
    assert!(console.model.is_unlocked());
    console.pass(2 * MINUTE);
    assert!(!console.model.is_unlocked());
    assert!(
        console.said().contains("read-only again"),
        "{}",
        console.said()
    );
}

#[test]
fn read_only_shows_plans_and_blocks_their_runs() {
    for keys in ["X", "z", "Z", "u"] {
        let mut console = four();
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
        let mut console = four();
        console.model.read_only.is_on = true;
        console.model.read_only.is_set_by_config = true;
        prefer(&mut console, "[keys]\nread-only = \"F9\"\n");
        console.plan("j X", made.clone());
        console.press(confirm);
        assert_eq!(console.applied(), [] as [&str; 0], "{confirm}");
        let said = console.said();
        assert!(said.contains("read-only; F9 switches it off"), "{said}");
        // The key unlocks it also behind a word that was typed; the plan is made again.
        console.press("F9");
        let effects = console.press("y");
        assert!(
            matches!(effects[..], [Effect::MakePlan(_, _, true)]),
            "{effects:?}"
        );
        console.answer(made);
        console.pass(Duration::from_secs(1));
        console.press(if confirm == "y" { "y" } else { "Enter" });
        assert_eq!(console.applied(), ["bravo"], "{confirm}");
        console.pass(31 * MINUTE);
        assert!(
            console.model.read_only_reason().is_some(),
            "it is read-only again"
        );
    }
}

#[test]
fn a_plan_made_before_it_was_read_only_does_not_run() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.model.read_only.is_on = true;
    console.press("y");
    assert_eq!(console.applied(), [] as [&str; 0]);
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.model.read_only.is_on = true;
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
}

#[test]
fn nothing_unlocks_what_was_started_read_only() {
    let mut console = protected(Protection::ReadOnly);
    console.model.read_only.is_forced = true;
    for keys in ["!", "! y"] {
        assert_eq!(console.press(keys), [], "{keys}");
        assert_eq!(console.model.overlay, None, "{keys}");
        assert!(console.model.read_only_reason().is_some(), "{keys}");
    }
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset 1");
    console.press("Enter");
    console.press("y");
    assert_eq!(console.applied(), [] as [&str; 0]);
    assert_eq!(console.model.screen, Screen::Reset, "no letter acts");
    console.plan("Esc j X", plan(&[("bravo", State::Scratch)]));
    console.press("y");
    assert_eq!(console.applied(), [] as [&str; 0]);
    assert!(console.said().contains("--read-only"), "{}", console.said());
}
