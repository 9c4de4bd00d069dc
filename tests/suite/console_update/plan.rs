//! Plans: confirmations, and the changes that invalidate a plan.

use std::time::Duration;

use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;

use memory_shepherd::console::screen::Screen;

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::model::read_only::read_only_reason;
use memory_shepherd::console::widgets::plan_pane::{Confirmation, PLAN_LIFETIME};
use memory_shepherd::engine::{Plan, Protection, READ_ONLY_REASON, State, UndoMode};

use super::{MINUTE, makes_dirty, marked_agents};
use crate::console_fixture::{fleet_of, fleet_of_four, keys_message};
use crate::engine_samples::{
    observation_of, plan, reset_request, skipped_agent, undo_plan, undo_request,
};

/// Every key that must never confirm.
const NON_CONFIRMING_KEYS: &[&str] = &["Enter", "Space", "X", "z", "j", "G", "Tab", "x", "r", "l"];

#[test]
fn held_plan_key_does_nothing() {
    let mut console = fleet_of_four();
    let effects = console.press("X");
    let request = reset_request(&["charlie"]);
    assert_eq!(effects, [Effect::MakePlan(1, request, false)]);
    assert!(console.model.reset.plan.is_planning());
    for _ in 0..50 {
        console.now += Duration::from_millis(30);
        assert_eq!(
            console.send(keys_message("X")),
            [],
            "while it is being made"
        );
    }
    console.answer_plan(plan(&[("charlie", State::Drifted)]));
    for _ in 0..50 {
        console.now += Duration::from_millis(30);
        assert_eq!(console.send(keys_message("X")), [], "when it is there");
        assert_eq!(console.typed_confirmation(), "");
    }
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
}

#[test]
fn plan_of_one_intact_agent_needs_y() {
    for never in NON_CONFIRMING_KEYS {
        let mut console = fleet_of_four();
        console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
        assert_eq!(*console.confirmation(), Confirmation::SingleKey);
        console.press(never);
        assert_eq!(console.applied_agents(), [] as [&str; 0], "{never}");
    }
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("y");
    assert_eq!(console.applied_agents(), ["bravo"]);
    assert!(console.model.reset.is_running());
    console.press("y");
    assert_eq!(console.applied_agents(), ["bravo"], "once");
}

#[test]
fn plan_of_missing_agent_needs_y() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Missing)]));
    assert_eq!(*console.confirmation(), Confirmation::SingleKey);
}

#[test]
fn confirmation_word_depends_on_plan_risk() {
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
        let mut console = fleet_of_four();
        console.press_and_plan("X", plan.clone());
        assert_eq!(
            *console.confirmation(),
            Confirmation::TypedText(word.to_string()),
            "{what}"
        );
        for never in NON_CONFIRMING_KEYS {
            console.press(never);
            console.press("Backspace");
            assert_eq!(console.applied_agents(), [] as [&str; 0], "{what}: {never}");
        }
        console.press("Backspace Backspace Backspace y");
        assert_eq!(console.applied_agents(), [] as [&str; 0], "{what}: y");
        // Typed without Enter, or Enter before the text is complete.
        let mut console = fleet_of_four();
        console.press_and_plan("X", plan.clone());
        let (most, last) = word.split_at(word.len() - 1);
        console.type_line(most);
        console.press("Enter");
        assert!(
            console.message_text().contains(word),
            "{what}: {}",
            console.message_text()
        );
        assert_eq!(console.applied_agents(), [] as [&str; 0], "{what}: {most}");
        console.type_line(last);
        assert_eq!(
            console.applied_agents(),
            [] as [&str; 0],
            "{what}: no Enter"
        );
        console.press("Space");
        console.press("Enter");
        assert_eq!(console.applied_agents().len(), plan.steps.len(), "{what}");
    }
}

#[test]
fn typed_count_is_of_planned_agents() {
    let mut console = fleet_of_four();
    console.press_and_plan("a X", {
        let mut plan = plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]);
        plan.skipped = vec![skipped_agent("charlie", State::Tampered, "blocked")];
        plan
    });
    console.type_line("reset 3");
    console.press("Enter");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    console.press("Backspace 2 Enter");
    assert_eq!(console.applied_agents(), ["bravo", "delta"]);
}

#[test]
fn control_u_clears_typed_confirmation() {
    let mut console = fleet_of_four();
    console.press_and_plan(
        "a X",
        plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]),
    );
    console.type_line("reset 3");
    console.press("^u");
    assert_eq!(console.typed_confirmation(), "");
    console.type_line("reset 2");
    console.press("Enter");
    assert_eq!(console.applied_agents(), ["bravo", "delta"]);
}

#[test]
fn fleet_of_one_needs_only_y() {
    for state in [State::Scratch, State::Drifted, State::NoSep] {
        let mut console = fleet_of(&[("solo", state)]);
        console.press_and_plan("X", plan(&[("solo", state)]));
        assert_eq!(*console.confirmation(), Confirmation::SingleKey, "{state}");
    }
}

#[test]
fn keep_key_never_leaves_a_plan() {
    let mut console = fleet_of_four();
    console.press("X");
    console.advance(KEY_GUARD_TIME);
    console.press("h");
    assert_eq!(console.message_text(), "the plan is not ready yet");
    console.answer_plan(plan(&[("charlie", State::Drifted)]));
    console.advance(KEY_GUARD_TIME);
    console.press("h");
    assert_eq!(console.message_text(), "the filter hides no marked agent");
    assert_eq!(console.model.screen, Screen::Reset);
}

#[test]
fn hidden_marks_are_asked_about_first() {
    let asked = |keys: &str, answer: &dyn Fn(&[&str]) -> Plan| {
        let mut console = fleet_of_four();
        console.press("a / ! c h a r l i e Enter");
        console.press_and_plan(keys, answer(&["alpha", "bravo", "charlie", "delta"]));
        assert_eq!(console.model.reset.hidden_agents, ["charlie"], "{keys}");
        console
    };
    let reset = |names: &[&str]| {
        let steps: Vec<(&str, State)> = names.iter().map(|name| (*name, State::Scratch)).collect();
        plan(&steps)
    };
    let back = |names: &[&str]| undo_plan(names, false, UndoMode::Refuse);
    for (keys, answer) in [("X", &reset as &dyn Fn(&[&str]) -> Plan), ("z", &back)] {
        let mut console = asked(keys, answer);
        let word = if keys == "X" { "reset 4" } else { "undo 4" };
        console.type_line(word);
        console.press("Enter y");
        assert_eq!(
            (console.applied_agents(), console.typed_confirmation()),
            (vec![], ""),
            "{keys}"
        );
        let mut console = asked(keys, answer);
        console.press("h");
        assert_eq!(
            console.model.screen,
            Screen::Reset,
            "h keeps and does not go back"
        );
        console.type_line(word);
        console.press("Enter");
        assert_eq!(console.applied_agents().len(), 4, "{keys}");
        let mut console = asked(keys, answer);
        let effects = console.press("v");
        let left = ["alpha", "bravo", "delta"];
        let request = match keys {
            "X" => reset_request(&left),
            _ => undo_request(&left, UndoMode::Refuse),
        };
        assert_eq!(effects, [Effect::MakePlan(2, request, false)]);
        assert_eq!(marked_agents(&console), left);
        let said = "unmarked charlie, which the filter hides";
        assert_eq!(console.message_text(), said);
    }
}

#[test]
fn dropping_all_hidden_marks_leaves_no_plan() {
    let mut console = fleet_of_four();
    console.press("Space / b r a v o Enter");
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    assert_eq!(console.press("v"), []);
    assert_eq!(console.model.screen, Screen::Fleet);
    let said = "unmarked charlie, which the filter hides; no agent is left to plan for";
    assert_eq!(console.message_text(), said);
}

#[test]
fn unrelated_hidden_marks_are_not_asked_about() {
    let mut console = fleet_of_four();
    console.press("a / ! c h a r l i e Enter d");
    console.press_and_plan("X", plan(&[("bravo", State::Scratch)]));
    assert_eq!(
        console.model.reset.hidden_agents,
        [] as [&str; 0],
        "bravo alone was asked for"
    );
}

#[test]
fn plan_ignores_keys_for_400_ms() {
    let mut console = fleet_of_four();
    console.press("j X");
    console.answer_plan(plan(&[("bravo", State::Scratch)]));
    let shown = console.now;
    for after in [0, 100, 399, 798] {
        console.now = shown + Duration::from_millis(after);
        console.send(keys_message("y"));
        assert_eq!(console.applied_agents(), [] as [&str; 0], "{after} ms");
    }
    console.now += KEY_GUARD_TIME;
    console.send(keys_message("y"));
    assert_eq!(console.applied_agents(), ["bravo"]);
}

/// A request, and a word typed right behind it.
fn plans_with_typed_words() -> [(&'static str, &'static str, Plan); 3] {
    let four = ["alpha", "bravo", "charlie", "delta"];
    let all = Plan {
        is_whole_fleet: true,
        ..plan(&four.map(|name| (name, State::Scratch)))
    };
    [
        ("X", "reset 1", plan(&[("charlie", State::Drifted)])),
        ("a X", "prod-west", all),
        ("a z", "undo 4", undo_plan(&four, false, UndoMode::Refuse)),
    ]
}

#[test]
fn escape_leaves_plan_that_ignores_keys() {
    for (ask, word, plan) in plans_with_typed_words() {
        let mut console = fleet_of_four();
        console.press(ask);
        console.answer_plan(plan);
        console.type_line(word);
        console.send(keys_message("Esc"));
        assert_eq!(console.model.screen, Screen::Fleet, "{ask}");
        assert_eq!(console.applied_agents(), [] as [&str; 0], "{ask}");
    }
}

#[test]
fn word_typed_right_after_plan_key_is_ignored() {
    for (ask, word, plan) in plans_with_typed_words() {
        // The plan arrives after none, some or all of the letters.
        for letters in [0, 3, word.len()] {
            let what = format!("{ask} {word}, {letters} letters before the plan");
            let mut console = fleet_of_four();
            console.press(ask);
            console.effects.clear();
            console.type_line(&word[..letters]);
            console.answer_plan(plan.clone());
            console.type_line(&word[letters..]);
            console.send(keys_message("Enter"));
            assert_eq!(
                (console.typed_confirmation(), &console.effects[..]),
                ("", &[][..]),
                "{what}"
            );
            assert_eq!(console.model.screen, Screen::Reset, "{what}");
            assert!(console.model.key_guard_notice_until().is_some(), "{what}");
            let dirty = makes_dirty(&mut console, |console| {
                drop(console.advance(KEY_GUARD_TIME))
            });
            assert!(
                dirty && console.model.key_guard_notice_until().is_none(),
                "{what}"
            );
            console.type_line(word);
            console.press("Enter");
            assert_eq!(console.applied_agents().len(), plan.steps.len(), "{what}");
        }
    }
}

#[test]
fn word_typed_during_slow_plan_is_ignored() {
    for (ask, word, plan) in plans_with_typed_words() {
        let mut console = fleet_of_four();
        // Its first letter goes back to another screen.
        console.model.config.name = "harbour".to_string();
        let word = if word == "prod-west" { "harbour" } else { word };
        console.press(ask);
        console.effects.clear();
        console.advance(5 * KEY_GUARD_TIME);
        console.type_line(word);
        assert_eq!(console.effects, [], "{ask} {word}");
        assert_eq!(console.model.screen, Screen::Reset, "{ask} {word}");
        console.answer_plan(plan);
        console.type_line(word);
        assert_eq!(console.typed_confirmation(), "", "{ask} {word}");
    }
}

#[test]
fn wrong_word_at_one_key_plan_is_ignored() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.type_line("reset 1y");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    assert_eq!(*console.confirmation(), Confirmation::SingleKey);
    console.press("y");
    assert_eq!(console.applied_agents(), ["bravo"]);
}

#[test]
fn reshown_plan_ignores_keys_briefly() {
    let lay_over = ["7", "?", ":", "1"];
    for over in lay_over {
        let back = if matches!(over, "7" | "1") {
            "5"
        } else {
            "Esc"
        };
        let mut console = fleet_of_four();
        console.press("j X");
        console.press(over);
        console.answer_plan(plan(&[("bravo", State::Scratch)]));
        console.advance(2 * KEY_GUARD_TIME);
        // In one read, as over a slow line.
        let both = [keys_message(back), keys_message("y")].map(|msg| match msg {
            Msg::KeysPressed(keys) => keys,
            other => panic!("{other:?}"),
        });
        console.send(Msg::KeysPressed(both.concat()));
        console.advance(KEY_GUARD_TIME / 2);
        console.send(keys_message("y"));
        assert_eq!(console.applied_agents(), [] as [&str; 0], "{over}");
        console.advance(KEY_GUARD_TIME);
        console.send(keys_message("y"));
        assert_eq!(console.applied_agents(), ["bravo"], "{over}");
    }
}

#[test]
fn too_small_terminal_confirms_nothing() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.send(Msg::Resized(59, 24));
    console.press("y Enter Esc X");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    console.send(Msg::Resized(80, 24));
    console.send(keys_message("y"));
    assert_eq!(
        console.applied_agents(),
        [] as [&str; 0],
        "it has just come in sight"
    );
    console.advance(KEY_GUARD_TIME);
    console.send(keys_message("y"));
    assert_eq!(console.applied_agents(), ["bravo"]);
    console.send(Msg::Resized(80, 14));
    assert_eq!(console.press("q"), [], "it stops no run");
    assert_eq!(console.press("^c"), [Effect::CancelRun]);
    assert!(console.press("q").contains(&Effect::Quit));
}

#[test]
fn held_unlock_key_confirms_nothing() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("! !");
    console.send(keys_message("y"));
    assert!(read_only_reason(&console.model).is_none(), "it is unlocked");
    for _ in 0..100 {
        console.now += Duration::from_millis(500);
        console.send(keys_message("y"));
    }
    assert_eq!(console.applied_agents(), [] as [&str; 0], "held");
    // The plan was made again in between.
    console.answer_plan(plan(&[("bravo", State::Scratch)]));
    console.advance(Duration::from_secs(1));
    console.send(keys_message("y"));
    assert_eq!(console.applied_agents(), ["bravo"], "let go and pressed");
}

#[test]
fn plan_after_suspend_ignores_keys_briefly() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("^z");
    console.advance(KEY_GUARD_TIME);
    console.send(Msg::Resized(120, 36));
    console.send(keys_message("y"));
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
}

#[test]
fn change_during_first_plan_replans() {
    let mut console = fleet_of_four();
    console.press("j X");
    console.observe(vec![observation_of("bravo", State::Drifted)]);
    let effects = console.answer_plan(plan(&[("bravo", State::Scratch)]));
    assert!(
        matches!(effects.as_slice(), [Effect::MakePlan(..)]),
        "{effects:?}"
    );
}

#[test]
fn newly_protected_plan_must_be_typed() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    assert_eq!(*console.confirmation(), Confirmation::SingleKey);
    // For the same agents, with the same hash.
    let mut protected = plan(&[("bravo", State::Scratch)]);
    protected.steps[0].protection = Protection::Typed;
    console.observe(vec![observation_of("bravo", State::Drifted)]);
    console.answer_plan(protected);
    assert_eq!(
        *console.confirmation(),
        Confirmation::TypedText("reset 1".to_string())
    );
    console.advance(KEY_GUARD_TIME);
    console.press("y");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
}

#[test]
fn change_during_replan_replans_once() {
    let mut console = fleet_of_four();
    let grown = |minutes: i64| {
        let mut grown = observation_of("bravo", State::Scratch);
        let content = grown.content.as_mut().unwrap();
        content.scratch_lines += minutes as u64;
        grown
    };
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    let asked = |effects: Vec<Effect>| {
        let plans = effects
            .iter()
            .filter(|it| matches!(it, Effect::MakePlan(..)));
        plans.count()
    };
    assert_eq!(asked(console.observe(vec![grown(1)])), 1);
    assert_eq!(asked(console.observe(vec![grown(2)])), 0, "one at a time");
    assert_eq!(
        asked(console.answer_plan(plan(&[("bravo", State::Scratch)]))),
        1
    );
    assert_eq!(
        asked(console.answer_plan(plan(&[("bravo", State::Scratch)]))),
        0
    );
}

#[test]
fn plan_returns_to_where_it_was_requested() {
    let mut console = fleet_of_four();
    console.press("j d X");
    console.answer_plan(plan(&[("bravo", State::Scratch)]));
    console.advance(KEY_GUARD_TIME);
    // The text that would be lost can be viewed first.
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
    assert_eq!(*console.confirmation(), Confirmation::SingleKey);
    console.press("q");
    assert_eq!(
        console.model.screen,
        Screen::Agent,
        "it was asked for there"
    );
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
    console.press("d X q");
    assert_eq!(console.model.screen, Screen::Agent);
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn control_c_cancels_slow_plan_before_quitting() {
    let mut console = fleet_of_four();
    console.press("X");
    assert_eq!(console.press("^c"), []);
    assert_eq!(console.model.screen, Screen::Fleet);
    assert_eq!(
        console.answer_plan(plan(&[("charlie", State::Drifted)])),
        []
    );
    assert!(console.model.reset.is_empty());
    assert!(console.press("^c").contains(&Effect::Quit));
}

#[test]
fn keys_typed_ahead_of_plan_are_dropped() {
    let mut console = fleet_of_four();
    console.press("j X y y y");
    assert_eq!(console.answer_plan(plan(&[("bravo", State::Scratch)])), []);
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
}

#[test]
fn control_c_quits_while_plan_ignores_keys() {
    let mut console = fleet_of_four();
    console.press("X");
    console.answer_plan(plan(&[("charlie", State::Drifted)]));
    assert_eq!(
        console.send(keys_message("^c")),
        [Effect::CancelRun, Effect::Quit]
    );
}

#[test]
fn plan_expires_after_a_minute() {
    let mut console = fleet_of_four();
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset 1");
    let effects = console.advance(PLAN_LIFETIME);
    assert_eq!(
        effects,
        [Effect::MakePlan(2, reset_request(&["charlie"]), false)],
        "asked for once"
    );
    assert_eq!(console.typed_confirmation(), "");
    // Enter arrives before the new plan.
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
    console.answer_plan(plan(&[("charlie", State::Drifted)]));
    assert_eq!(console.typed_confirmation(), "");
    console.advance(KEY_GUARD_TIME);
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied_agents(), ["charlie"]);
}

#[test]
fn expired_plan_does_not_run_without_tick() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.now += PLAN_LIFETIME;
    let effects = console.send(keys_message("y"));
    assert_eq!(
        effects,
        [Effect::MakePlan(2, reset_request(&["bravo"]), false)]
    );
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
}

#[test]
fn unseen_expired_plan_is_renewed_when_shown() {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("1");
    assert_eq!(console.advance(10 * MINUTE), []);
    console.press("5");
    let effects = console.advance(Duration::ZERO);
    assert_eq!(
        effects,
        [Effect::MakePlan(2, reset_request(&["bravo"]), false)]
    );
}

#[test]
fn changed_plan_clears_typed_confirmation() {
    let mut console = fleet_of_four();
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset");
    let mut drifted = observation_of("charlie", State::Drifted);
    drifted.reason = "rules edited: L7".to_string();
    let effects = console.observe(vec![drifted]);
    assert_eq!(
        effects,
        [Effect::MakePlan(2, reset_request(&["charlie"]), false)]
    );
    assert_eq!(
        console.typed_confirmation(),
        "reset",
        "not before it is known"
    );
    let mut other = plan(&[("charlie", State::Drifted)]);
    other.hash = "another".to_string();
    console.answer_plan(other);
    assert_eq!(console.typed_confirmation(), "");
    assert!(
        console.message_text().contains("changed"),
        "{}",
        console.message_text()
    );
    console.send(keys_message("r"));
    assert_eq!(
        console.typed_confirmation(),
        "",
        "and it does not listen for a moment"
    );
}

#[test]
fn grown_scratch_updates_only_plan_figures() {
    let mut console = fleet_of_four();
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset 1");
    let mut grown = observation_of("charlie", State::Drifted);
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
    console.answer_plan(figures);
    assert_eq!(console.typed_confirmation(), "reset 1");
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
fn protected_agent_is_left_out_of_a_run_of_several() {
    let protected = || vec![skipped_agent("bravo", State::Scratch, READ_ONLY_REASON)];
    let mut console = fleet_of_four();
    let mut made = plan(&[("charlie", State::Drifted)]);
    made.skipped = protected();
    console.press_and_plan("X", made);
    console.type_line("reset 1");
    console.press("Enter");
    let Some(Effect::ApplyPlan(applied)) = console.effects.last() else {
        panic!("{:?}", console.effects);
    };
    assert_eq!(applied.agents().collect::<Vec<_>>(), ["charlie"]);
    assert!(console.message_text().contains("bravo"));
    // A run of it alone refuses it.
    let mut alone = plan(&[]);
    alone.skipped = protected();
    assert_eq!(alone.leave_out_protected(), Vec::<String>::new());
    assert_eq!(alone.skipped, protected());
}

#[test]
fn answers_to_older_plan_requests_are_ignored() {
    let mut console = fleet_of_four();
    console.press("X Esc j X");
    console.send(Msg::PlanMade(
        1,
        Ok(Box::new(plan(&[("charlie", State::Drifted)]))),
    ));
    assert!(console.model.reset.plan.is_planning());
    console.send(Msg::PlanMade(
        2,
        Ok(Box::new(plan(&[("bravo", State::Scratch)]))),
    ));
    assert_eq!(*console.confirmation(), Confirmation::SingleKey);
    console.press("Esc");
    console.send(Msg::PlanMade(
        2,
        Ok(Box::new(plan(&[("bravo", State::Scratch)]))),
    ));
    assert!(console.model.reset.is_empty(), "it was left");
}

#[test]
fn failed_plan_says_why() {
    let mut console = fleet_of_four();
    console.press("X");
    let error = Error::new(ErrorKind::User, "no agent named charlie");
    console.send(Msg::PlanMade(1, Err(error)));
    assert_eq!(console.model.screen, Screen::Fleet);
    let mut elsewhere = fleet_of_four();
    elsewhere.press("X 7");
    let gone = Error::new(ErrorKind::User, "no agent named charlie");
    elsewhere.send(Msg::PlanMade(1, Err(gone)));
    assert_eq!(elsewhere.model.screen, Screen::Log);
    assert!(
        console.message_text().contains("no agent named"),
        "{}",
        console.message_text()
    );
}

#[test]
fn plan_without_steps_cannot_run() {
    let mut console = fleet_of_four();
    let mut empty = plan(&[]);
    empty.skipped = vec![skipped_agent("charlie", State::Tampered, "blocked")];
    console.press_and_plan("X", empty);
    assert_eq!(*console.confirmation(), Confirmation::NothingToRun);
    console.press("y Enter");
    assert_eq!(console.applied_agents(), [] as [&str; 0]);
}

#[test]
fn plan_follows_agents_that_it_skips() {
    let mut console = fleet_of_four();
    let mut planned = plan(&[("bravo", State::Scratch)]);
    planned.skipped = vec![skipped_agent("charlie", State::Busy, "locked")];
    console.press_and_plan("X", planned);
    let effects = console.observe(vec![observation_of("charlie", State::Scratch)]);
    assert!(
        matches!(effects.as_slice(), [Effect::MakePlan(..)]),
        "{effects:?}"
    );
}

#[test]
fn plan_leads_back_to_where_it_was_opened() {
    let screens = [
        ("1", Screen::Fleet),
        ("3", Screen::Baselines),
        ("4", Screen::Archives),
        ("6", Screen::Verify),
        ("7", Screen::Log),
        ("8", Screen::Hosts),
    ];
    for (keys, screen) in screens {
        let mut console = fleet_of_four();
        console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
        console.press(keys);
        console.press("5 Esc");
        assert_eq!(console.model.screen, screen, "{keys}");
    }
}

#[test]
fn plan_leads_back_to_its_agent_and_tab() {
    let mut console = fleet_of_four();
    console.open_agent("charlie", b"", None);
    console.press("Tab Tab");
    let tab = console.model.agent.tab;
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    // The plan opens other agents.
    console.press(":");
    console.type_line("agent delta");
    console.press("Enter");
    assert_eq!(console.model.agent.agent, "delta");
    console.press("Esc");
    assert_eq!(console.model.screen, Screen::Reset);
    let effects = console.press("Esc");
    assert_eq!(console.model.screen, Screen::Agent);
    assert_eq!(console.model.agent.agent, "charlie");
    assert_eq!(console.model.agent.tab, tab);
    assert!(effects.contains(&Effect::PrepareTexts("charlie".to_string())));
    console.press("Esc");
    assert_eq!(console.model.screen, Screen::Fleet);
}

#[test]
fn undo_names_its_command_once_a_mode_is_chosen() {
    let mut console = fleet_of_four();
    let undo = |mode| undo_plan(&["bravo"], true, mode);
    console.press_and_plan("j z", undo(UndoMode::Refuse));
    let screen = console.screen_text();
    assert!(!screen.contains("memory-shepherd undo"), "{screen}");
    console.press_and_plan("a", undo(UndoMode::Append));
    let screen = console.screen_text();
    assert!(
        screen.contains("memory-shepherd undo bravo --append"),
        "{screen}"
    );
}

#[test]
fn host_of_a_skipped_agent_is_not_cut() {
    let mut console = fleet_of_four();
    let mut delta = observation_of("delta", State::Unreach);
    delta.host = "harbour".to_string();
    console.observe(vec![delta]);
    let mut plan = plan(&[("bravo", State::Scratch)]);
    plan.skipped = vec![skipped_agent("delta", State::Unreach, "host lost")];
    console.press_and_plan("a X", plan);
    let screen = console.screen_text();
    assert!(screen.contains("harbour"), "{screen}");
}
