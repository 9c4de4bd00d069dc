//! Plans: what has to be typed, and when they are void.

use std::time::Duration;

use memory_shepherd::console::model::{Confirmation, KEY_GUARD_TIME, ResetStage, Screen};
use memory_shepherd::console::update::{Effect, Msg, PLAN_LIFETIME};
use memory_shepherd::engine::{Plan, Protection, State, UndoMode};
use memory_shepherd::error::{Error, ErrorKind};

use super::{MINUTE, dirties, marks};
use crate::console_fleet::{fleet, four, keys, plan, reset_of, seen, skipped, undo, undo_of};

/// Everything that the grammar calls a key that never confirms.
const NEVER: &[&str] = &["Enter", "Space", "X", "z", "j", "G", "Tab", "x", "r", "l"];

#[test]
fn a_plan_changes_nothing_and_its_key_held_does_nothing() {
    let mut console = four();
    let effects = console.press("X");
    let request = reset_of(&["charlie"]);
    assert_eq!(effects, [Effect::MakePlan(1, request, false)]);
    assert!(matches!(console.model.reset.stage, ResetStage::Planning(_)));
    for _ in 0..50 {
        console.now += Duration::from_millis(30);
        assert_eq!(console.send(keys("X")), [], "while it is being made");
    }
    console.answer(plan(&[("charlie", State::Drifted)]));
    for _ in 0..50 {
        console.now += Duration::from_millis(30);
        assert_eq!(console.send(keys("X")), [], "when it is there");
        assert_eq!(console.typed(), "");
    }
    assert_eq!(console.applied(), [] as [&str; 0]);
}

#[test]
fn one_intact_agent_takes_y_and_nothing_else() {
    for never in NEVER {
        let mut console = four();
        console.plan("j X", plan(&[("bravo", State::Scratch)]));
        assert_eq!(*console.form(), Confirmation::SingleKey);
        console.press(never);
        assert_eq!(console.applied(), [] as [&str; 0], "{never}");
    }
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("y");
    assert_eq!(console.applied(), ["bravo"]);
    assert!(console.model.is_running());
    console.press("y");
    assert_eq!(console.applied(), ["bravo"], "once");
}

#[test]
fn a_missing_agent_is_created_on_y() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Missing)]));
    assert_eq!(*console.form(), Confirmation::SingleKey);
}

#[test]
fn what_has_to_be_typed_goes_by_the_weight_of_the_plan() {
    let whole = Plan {
        is_whole_fleet: true,
        ..plan(&[("bravo", State::Scratch), ("delta", State::Scratch)])
    };
    let table = [
        ("drifted", plan(&[("charlie", State::Drifted)]), "reset 1"),
        ("no boundary", plan(&[("charlie", State::NoSep)]), "reset 1"),
        (
            "two",
            plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]),
            "reset 2",
        ),
        ("the fleet", whole, "prod-west"),
    ];
    for (what, plan, word) in table {
        let mut console = four();
        console.plan("X", plan.clone());
        assert_eq!(
            *console.form(),
            Confirmation::TypedText(word.to_string()),
            "{what}"
        );
        for never in NEVER {
            console.press(never);
            console.press("Backspace");
            assert_eq!(console.applied(), [] as [&str; 0], "{what}: {never}");
        }
        console.press("Backspace Backspace Backspace y");
        assert_eq!(console.applied(), [] as [&str; 0], "{what}: y");
        // Typed but not closed by Enter, or closed before it is whole.
        let mut console = four();
        console.plan("X", plan.clone());
        let (most, last) = word.split_at(word.len() - 1);
        console.type_line(most);
        console.press("Enter");
        assert!(console.said().contains(word), "{what}: {}", console.said());
        assert_eq!(console.applied(), [] as [&str; 0], "{what}: {most}");
        console.type_line(last);
        assert_eq!(console.applied(), [] as [&str; 0], "{what}: no Enter");
        console.press("Space");
        console.press("Enter");
        assert_eq!(console.applied().len(), plan.steps.len(), "{what}");
    }
}

#[test]
fn the_number_that_is_typed_is_the_number_of_agents_in_the_plan() {
    let mut console = four();
    console.plan("a X", {
        let mut plan = plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]);
        plan.skipped = vec![skipped("charlie", State::Tampered, "blocked")];
        plan
    });
    console.type_line("reset 3");
    console.press("Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
    console.press("Backspace 2 Enter");
    assert_eq!(console.applied(), ["bravo", "delta"]);
}

#[test]
fn control_u_clears_what_was_typed_at_a_plan() {
    let mut console = four();
    console.plan(
        "a X",
        plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]),
    );
    console.type_line("reset 3");
    console.press("^u");
    assert_eq!(console.typed(), "");
    console.type_line("reset 2");
    console.press("Enter");
    assert_eq!(console.applied(), ["bravo", "delta"]);
}

#[test]
fn in_a_fleet_of_one_y_suffices() {
    for state in [State::Scratch, State::Drifted, State::NoSep] {
        let mut console = fleet(&[("solo", state)]);
        console.plan("X", plan(&[("solo", state)]));
        assert_eq!(*console.form(), Confirmation::SingleKey, "{state}");
    }
}

#[test]
fn marks_that_the_filter_hides_are_asked_about_before_anything_else() {
    let asked = |keys: &str, answer: &dyn Fn(&[&str]) -> Plan| {
        let mut console = four();
        console.press("a / ! c h a r l i e Enter");
        console.plan(keys, answer(&["alpha", "bravo", "charlie", "delta"]));
        let ResetStage::Plan(view) = &console.model.reset.stage else {
            panic!("no plan");
        };
        assert_eq!(view.hidden_agents, ["charlie"], "{keys}");
        console
    };
    let reset = |names: &[&str]| {
        let steps: Vec<(&str, State)> = names.iter().map(|name| (*name, State::Scratch)).collect();
        plan(&steps)
    };
    let back = |names: &[&str]| undo(names, false, UndoMode::Refuse);
    for (keys, answer) in [("X", &reset as &dyn Fn(&[&str]) -> Plan), ("z", &back)] {
        let mut console = asked(keys, answer);
        let word = if keys == "X" { "reset 4" } else { "undo 4" };
        console.type_line(word);
        console.press("Enter y");
        assert_eq!((console.applied(), console.typed()), (vec![], ""), "{keys}");
        let mut console = asked(keys, answer);
        console.press("h");
        assert_eq!(
            console.model.screen,
            Screen::Reset,
            "h keeps and does not go back"
        );
        console.type_line(word);
        console.press("Enter");
        assert_eq!(console.applied().len(), 4, "{keys}");
        let mut console = asked(keys, answer);
        let effects = console.press("v");
        let left = ["alpha", "bravo", "delta"];
        let request = match keys {
            "X" => reset_of(&left),
            _ => undo_of(&left, UndoMode::Refuse),
        };
        assert_eq!(effects, [Effect::MakePlan(2, request, false)]);
        assert_eq!(marks(&console), left);
    }
}

#[test]
fn hidden_marks_are_no_matter_of_a_plan_without_them() {
    let mut console = four();
    console.press("a / ! c h a r l i e Enter d");
    console.plan("X", plan(&[("bravo", State::Scratch)]));
    let ResetStage::Plan(view) = &console.model.reset.stage else {
        panic!("no plan");
    };
    assert_eq!(
        view.hidden_agents,
        [] as [&str; 0],
        "bravo alone was asked for"
    );
}

#[test]
fn a_plan_hears_nothing_for_400_milliseconds() {
    let mut console = four();
    console.press("j X");
    console.answer(plan(&[("bravo", State::Scratch)]));
    let shown = console.now;
    for after in [0, 100, 399, 798] {
        console.now = shown + Duration::from_millis(after);
        console.send(keys("y"));
        assert_eq!(console.applied(), [] as [&str; 0], "{after} ms");
    }
    console.now += KEY_GUARD_TIME;
    console.send(keys("y"));
    assert_eq!(console.applied(), ["bravo"]);
}

/// What was asked for, and a word that somebody types right behind it.
fn typed_ahead() -> [(&'static str, &'static str, Plan); 3] {
    let four = ["alpha", "bravo", "charlie", "delta"];
    let all = Plan {
        is_whole_fleet: true,
        ..plan(&four.map(|name| (name, State::Scratch)))
    };
    [
        ("X", "reset 1", plan(&[("charlie", State::Drifted)])),
        ("a X", "prod-west", all),
        ("a z", "undo 4", undo(&four, false, UndoMode::Refuse)),
    ]
}

#[test]
fn escape_leaves_a_plan_that_ignores_keys() {
    for (ask, word, plan) in typed_ahead() {
        let mut console = four();
        console.press(ask);
        console.answer(plan);
        console.type_line(word);
        console.send(keys("Esc"));
        assert_eq!(console.model.screen, Screen::Fleet, "{ask}");
        assert_eq!(console.applied(), [] as [&str; 0], "{ask}");
    }
}

#[test]
fn word_typed_right_behind_a_plan_key_is_ignored() {
    for (ask, word, plan) in typed_ahead() {
        // The plan comes after none of its letters, after some, after all.
        for letters in [0, 3, word.len()] {
            let what = format!("{ask} {word}, {letters} letters before the plan");
            let mut console = four();
            console.press(ask);
            console.effects.clear();
            console.type_line(&word[..letters]);
            console.answer(plan.clone());
            console.type_line(&word[letters..]);
            console.send(keys("Enter"));
            assert_eq!(
                (console.typed(), &console.effects[..]),
                ("", &[][..]),
                "{what}"
            );
            assert_eq!(console.model.screen, Screen::Reset, "{what}");
            assert!(console.model.key_guard_notice_until().is_some(), "{what}");
            let dirty = dirties(&mut console, |console| drop(console.pass(KEY_GUARD_TIME)));
            assert!(
                dirty && console.model.key_guard_notice_until().is_none(),
                "{what}"
            );
            console.type_line(word);
            console.press("Enter");
            assert_eq!(console.applied().len(), plan.steps.len(), "{what}");
        }
    }
}

#[test]
fn word_typed_while_a_slow_plan_is_made_is_ignored() {
    for (ask, word, plan) in typed_ahead() {
        let mut console = four();
        // Its first letter leads back elsewhere.
        console.model.fleet.name = "harbour".to_string();
        let word = if word == "prod-west" { "harbour" } else { word };
        console.press(ask);
        console.effects.clear();
        console.pass(5 * KEY_GUARD_TIME);
        console.type_line(word);
        assert_eq!(console.effects, [], "{ask} {word}");
        assert_eq!(console.model.screen, Screen::Reset, "{ask} {word}");
        console.answer(plan);
        console.type_line(word);
        assert_eq!(console.typed(), "", "{ask} {word}");
    }
}

#[test]
fn wrong_word_at_a_plan_of_one_key_is_ignored() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.type_line("reset 1y");
    assert_eq!(console.applied(), [] as [&str; 0]);
    assert_eq!(*console.form(), Confirmation::SingleKey);
    console.press("y");
    assert_eq!(console.applied(), ["bravo"]);
}

#[test]
fn a_plan_hears_nothing_for_a_moment_whenever_it_comes_in_sight() {
    let lay_over = ["7", "?", ":", "1"];
    for over in lay_over {
        let back = if matches!(over, "7" | "1") {
            "5"
        } else {
            "Esc"
        };
        let mut console = four();
        console.press("j X");
        console.press(over);
        console.answer(plan(&[("bravo", State::Scratch)]));
        console.pass(2 * KEY_GUARD_TIME);
        // In one read, as from a slow line.
        let both = [keys(back), keys("y")].map(|msg| match msg {
            Msg::KeysPressed(keys) => keys,
            other => panic!("{other:?}"),
        });
        console.send(Msg::KeysPressed(both.concat()));
        console.pass(KEY_GUARD_TIME / 2);
        console.send(keys("y"));
        assert_eq!(console.applied(), [] as [&str; 0], "{over}");
        console.pass(KEY_GUARD_TIME);
        console.send(keys("y"));
        assert_eq!(console.applied(), ["bravo"], "{over}");
    }
}

#[test]
fn nothing_is_confirmed_where_nothing_can_be_seen() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.send(Msg::Resized(59, 24));
    console.press("y Enter Esc X");
    assert_eq!(console.applied(), [] as [&str; 0]);
    console.send(Msg::Resized(80, 24));
    console.send(keys("y"));
    assert_eq!(
        console.applied(),
        [] as [&str; 0],
        "it has just come in sight"
    );
    console.pass(KEY_GUARD_TIME);
    console.send(keys("y"));
    assert_eq!(console.applied(), ["bravo"]);
    console.send(Msg::Resized(80, 14));
    assert_eq!(console.press("q"), [], "it stops no run");
    assert_eq!(console.press("^c"), [Effect::CancelRun]);
    assert!(console.press("q").contains(&Effect::Quit));
}

#[test]
fn the_key_that_unlocks_goes_on_to_confirm_nothing_while_it_is_held() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("! !");
    console.send(keys("y"));
    assert!(console.model.read_only_reason().is_none(), "it is unlocked");
    for _ in 0..100 {
        console.now += Duration::from_millis(500);
        console.send(keys("y"));
    }
    assert_eq!(console.applied(), [] as [&str; 0], "held");
    // The plan has been made anew meanwhile.
    console.answer(plan(&[("bravo", State::Scratch)]));
    console.pass(Duration::from_secs(1));
    console.send(keys("y"));
    assert_eq!(console.applied(), ["bravo"], "let go and pressed");
}

#[test]
fn a_plan_that_comes_back_with_the_terminal_is_read_first() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("^z");
    console.pass(KEY_GUARD_TIME);
    console.send(Msg::Resized(120, 36));
    console.send(keys("y"));
    assert_eq!(console.applied(), [] as [&str; 0]);
}

#[test]
fn what_changes_while_a_first_plan_is_made_makes_another() {
    let mut console = four();
    console.press("j X");
    console.observe(vec![seen("bravo", State::Drifted)]);
    let effects = console.answer(plan(&[("bravo", State::Scratch)]));
    assert!(
        matches!(effects.as_slice(), [Effect::MakePlan(..)]),
        "{effects:?}"
    );
}

#[test]
fn a_plan_that_is_protected_meanwhile_has_to_be_typed() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    assert_eq!(*console.form(), Confirmation::SingleKey);
    // Of the same agents, by the same hash.
    let mut protected = plan(&[("bravo", State::Scratch)]);
    protected.steps[0].protection = Protection::Typed;
    console.observe(vec![seen("bravo", State::Drifted)]);
    console.answer(protected);
    assert_eq!(
        *console.form(),
        Confirmation::TypedText("reset 1".to_string())
    );
    console.pass(KEY_GUARD_TIME);
    console.press("y");
    assert_eq!(console.applied(), [] as [&str; 0]);
}

#[test]
fn what_changes_while_a_plan_is_made_anew_makes_another() {
    let mut console = four();
    let grown = |minutes: i64| {
        let mut grown = seen("bravo", State::Scratch);
        let content = grown.content.as_mut().unwrap();
        content.scratch_lines += minutes as u64;
        grown
    };
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    let asked = |effects: Vec<Effect>| {
        let plans = effects
            .iter()
            .filter(|it| matches!(it, Effect::MakePlan(..)));
        plans.count()
    };
    assert_eq!(asked(console.observe(vec![grown(1)])), 1);
    assert_eq!(asked(console.observe(vec![grown(2)])), 0, "one at a time");
    assert_eq!(asked(console.answer(plan(&[("bravo", State::Scratch)]))), 1);
    assert_eq!(asked(console.answer(plan(&[("bravo", State::Scratch)]))), 0);
}

#[test]
fn a_plan_leads_back_to_where_it_was_asked_for() {
    let mut console = four();
    console.press("j d X");
    console.answer(plan(&[("bravo", State::Scratch)]));
    console.pass(KEY_GUARD_TIME);
    // What would be lost can be looked at first.
    assert!(
        console
            .press("d")
            .contains(&Effect::PrepareTexts("bravo".to_string()))
    );
    assert_eq!(console.model.screen, Screen::Agent);
    console.press("q");
    assert_eq!(
        console.model.screen,
        Screen::Reset,
        "the plan is still there"
    );
    assert_eq!(*console.form(), Confirmation::SingleKey);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
    console.press("d X q");
    assert_eq!(console.model.screen, Screen::Agent);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn a_plan_that_is_slow_is_given_up_before_anything_is_left() {
    let mut console = four();
    console.press("X");
    assert_eq!(console.press("^c"), []);
    assert_eq!(console.model.screen, Screen::Fleet);
    assert_eq!(console.answer(plan(&[("charlie", State::Drifted)])), []);
    assert!(matches!(console.model.reset.stage, ResetStage::Empty));
    assert!(console.press("^c").contains(&Effect::Quit));
}

#[test]
fn what_was_typed_ahead_of_a_plan_is_lost() {
    let mut console = four();
    console.press("j X y y y");
    assert_eq!(console.answer(plan(&[("bravo", State::Scratch)])), []);
    assert_eq!(console.applied(), [] as [&str; 0]);
}

#[test]
fn control_c_quits_also_while_a_plan_does_not_listen() {
    let mut console = four();
    console.press("X");
    console.answer(plan(&[("charlie", State::Drifted)]));
    assert_eq!(console.send(keys("^c")), [Effect::CancelRun, Effect::Quit]);
}

#[test]
fn a_plan_is_void_after_a_minute() {
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset 1");
    let effects = console.pass(PLAN_LIFETIME);
    assert_eq!(
        effects,
        [Effect::MakePlan(2, reset_of(&["charlie"]), false)],
        "asked for once"
    );
    assert_eq!(console.typed(), "");
    // Enter comes before the new plan does.
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
    console.answer(plan(&[("charlie", State::Drifted)]));
    assert_eq!(console.typed(), "");
    console.pass(KEY_GUARD_TIME);
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied(), ["charlie"]);
}

#[test]
fn a_plan_whose_minute_has_passed_without_a_tick_does_not_run() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.now += PLAN_LIFETIME;
    let effects = console.send(keys("y"));
    assert_eq!(effects, [Effect::MakePlan(2, reset_of(&["bravo"]), false)]);
    assert_eq!(console.applied(), [] as [&str; 0]);
}

#[test]
fn a_plan_that_nobody_looks_at_is_left_alone_until_somebody_does() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("1");
    assert_eq!(console.pass(10 * MINUTE), []);
    console.press("5");
    let effects = console.pass(Duration::ZERO);
    assert_eq!(effects, [Effect::MakePlan(2, reset_of(&["bravo"]), false)]);
}

#[test]
fn a_plan_that_has_changed_clears_what_was_typed_and_says_so() {
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset");
    let mut drifted = seen("charlie", State::Drifted);
    drifted.reason = "rules edited: L7".to_string();
    let effects = console.observe(vec![drifted]);
    assert_eq!(
        effects,
        [Effect::MakePlan(2, reset_of(&["charlie"]), false)]
    );
    assert_eq!(console.typed(), "reset", "not before it is known");
    let mut other = plan(&[("charlie", State::Drifted)]);
    other.hash = "another".to_string();
    console.answer(other);
    assert_eq!(console.typed(), "");
    assert!(console.said().contains("changed"), "{}", console.said());
    console.send(keys("r"));
    assert_eq!(console.typed(), "", "and it does not listen for a moment");
}

#[test]
fn scratch_that_grows_refreshes_the_figures_and_nothing_else() {
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset 1");
    let mut grown = seen("charlie", State::Drifted);
    grown.content.as_mut().unwrap().scratch_lines = 41;
    assert_eq!(
        console.observe(vec![grown.clone()]).len(),
        1,
        "it is planned again"
    );
    grown.content.as_mut().unwrap().scratch_lines = 42;
    assert_eq!(
        console.observe(vec![grown]),
        [],
        "one answer is awaited already"
    );
    let mut figures = plan(&[("charlie", State::Drifted)]);
    figures.steps[0].scratch_lines = 41;
    console.answer(figures);
    assert_eq!(console.typed(), "reset 1");
    console.press("Enter");
    let Some(Effect::ApplyPlan(applied)) = console.effects.last() else {
        panic!("{:?}", console.effects);
    };
    assert_eq!(
        applied.steps[0].scratch_lines, 41,
        "the plan that was shown"
    );
}

#[test]
fn answers_to_an_older_request_are_ignored() {
    let mut console = four();
    console.press("X Esc j X");
    console.send(Msg::PlanMade(
        1,
        Ok(Box::new(plan(&[("charlie", State::Drifted)]))),
    ));
    assert!(matches!(console.model.reset.stage, ResetStage::Planning(_)));
    console.send(Msg::PlanMade(
        2,
        Ok(Box::new(plan(&[("bravo", State::Scratch)]))),
    ));
    assert_eq!(*console.form(), Confirmation::SingleKey);
    console.press("Esc");
    console.send(Msg::PlanMade(
        2,
        Ok(Box::new(plan(&[("bravo", State::Scratch)]))),
    ));
    assert!(
        matches!(console.model.reset.stage, ResetStage::Empty),
        "it was left"
    );
}

#[test]
fn a_plan_that_cannot_be_made_says_why() {
    let mut console = four();
    console.press("X");
    let error = Error::new(ErrorKind::User, "there is no agent called charlie");
    console.send(Msg::PlanMade(1, Err(error)));
    assert_eq!(console.model.screen, Screen::Fleet);
    let mut elsewhere = four();
    elsewhere.press("X 7");
    let gone = Error::new(ErrorKind::User, "there is no agent called charlie");
    elsewhere.send(Msg::PlanMade(1, Err(gone)));
    assert_eq!(elsewhere.model.screen, Screen::Log);
    assert!(
        console.said().contains("no agent called"),
        "{}",
        console.said()
    );
}

#[test]
fn a_plan_without_steps_has_nothing_to_run() {
    let mut console = four();
    let mut empty = plan(&[]);
    empty.skipped = vec![skipped("charlie", State::Tampered, "blocked")];
    console.plan("X", empty);
    assert_eq!(*console.form(), Confirmation::NothingToRun);
    console.press("y Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
}
