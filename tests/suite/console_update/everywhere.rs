//! Every command and every key, everywhere.

use std::time::Duration;

use memory_shepherd::console::command::{self, COMMAND_TABLE, Command};
use memory_shepherd::console::keymap::{Key, KeyCode};
use memory_shepherd::console::model::{KEY_GUARD_TIME, Model};
use memory_shepherd::console::update::{Effect, Msg, perform_command};
use memory_shepherd::engine::{Outcome, Plan, State, UndoMode};
use proptest::prelude::*;

use super::{reading, running};
use crate::console_fleet::{
    Console, agents, four, host_key, passphrase, plan, report, seen, undo, unread,
};

/// Consoles in every place that there is.
fn places() -> Vec<(&'static str, Console)> {
    let at = |keys: &str| {
        let mut console = four();
        if !keys.is_empty() {
            console.press(keys);
        }
        console
    };
    let planned = |keys: &str, plan: Plan| {
        let mut console = four();
        console.plan(keys, plan);
        console
    };
    let mut result = running();
    let failed = report(&[("bravo", Outcome::Failed, Some("why"))]);
    result.send(Msg::RunEnded(Box::new(failed)));
    let mut hidden = at("a / z z z Enter");
    hidden.press("X");
    hidden.answer(plan(&[
        ("bravo", State::Scratch),
        ("delta", State::Scratch),
    ]));
    hidden.pass(KEY_GUARD_TIME);
    let mut locked = at("");
    locked.model.read_only.is_on = true;
    let mut forced = at("");
    forced.model.read_only.is_forced = true;
    let asked = |keys: &str| {
        let mut console = four();
        console.asked(passphrase(1, "harbour"));
        console.asked(host_key(2, "cliff"));
        if !keys.is_empty() {
            console.press(keys);
        }
        console
    };
    let mut small = reading();
    small.send(Msg::Resized(1, 1));
    vec![
        ("fleet", at("")),
        ("no agents", unread(&[], (120, 36))),
        ("unread", unread(&["alpha", "bravo"], (80, 24))),
        ("marked", at("Space Space")),
        ("filtered to nothing", at("/ z z z Enter")),
        ("filter prompt", at("/ a")),
        ("agent without texts", at("d")),
        ("agent", reading()),
        ("agent in a cell", small),
        ("search prompt", {
            let mut console = reading();
            console.press("/ o");
            console
        }),
        ("planning", at("X")),
        (
            "plan: y",
            planned("j X", plan(&[("bravo", State::Scratch)])),
        ),
        (
            "plan: typed",
            planned("X", plan(&[("charlie", State::Drifted)])),
        ),
        ("plan: nothing", planned("X", plan(&[]))),
        (
            "plan: choice",
            planned("z", undo(&["charlie"], true, UndoMode::Refuse)),
        ),
        ("plan: hidden", hidden),
        ("run", running()),
        ("result", result),
        ("log", at("7")),
        ("help", at("?")),
        ("palette", at(":")),
        ("unlock", {
            locked.press("!");
            locked
        }),
        ("forced read-only", forced),
        ("asked", asked("")),
        ("answering", asked("@ Space")),
        ("answering a key", asked("@ Esc @ y")),
    ]
}

/// What holds of every model.
pub fn check(model: &Model, what: &str) {
    match &model.cursor_agent {
        Some(name) => assert!(
            model.visible_agents.contains(name),
            "{what}: cursor on {name}"
        ),
        None => assert!(model.visible_agents.is_empty(), "{what}: no cursor"),
    }
    assert!(
        model.fleet_top <= model.visible_agents.len(),
        "{what}: top {}",
        model.fleet_top
    );
    if let Some(index) = model.fleet_cursor_index() {
        let rows = model.fleet_top..model.fleet_top + model.fleet_height();
        assert!(rows.contains(&index), "{what}: {index} is not in {rows:?}");
    }
    for name in &model.marks {
        assert!(model.find_row(name).is_some(), "{what}: mark on {name}");
    }
    let pane = model.agent.current_pane();
    assert!(
        pane.top.0 <= pane.lines.len(),
        "{what}: pane at {:?}",
        pane.top
    );
    assert!(
        pane.current_hit == 0 || pane.current_hit < pane.hits.len(),
        "{what}: hit"
    );
}

#[test]
fn every_command_can_be_performed_everywhere() {
    let enter = Key::from_code(KeyCode::Enter);
    for spec in COMMAND_TABLE {
        for (place, mut console) in places() {
            let what = format!("{} at {place}", spec.id);
            let allowed = command::check_enabled(spec.command, &console.model).is_ok();
            let effects = perform_command(&mut console.model, spec.command, enter);
            let acts = effects
                .iter()
                .any(|effect| matches!(effect, Effect::ApplyPlan(_)));
            assert!(!acts || spec.command == Command::ConfirmPlan, "{what} acts");
            if !allowed {
                assert_eq!(effects, [], "{what} does something though it may not");
                assert!(
                    console.said().starts_with(spec.id),
                    "{what}: {}",
                    console.said()
                );
            }
            check(&console.model, &what);
        }
    }
}

#[test]
fn every_key_of_every_command_can_be_pressed_everywhere() {
    for spec in COMMAND_TABLE {
        for text in spec.keys {
            for (place, mut console) in places() {
                console.press(text);
                check(&console.model, &format!("{text} at {place}"));
            }
        }
    }
}

/// Keys, some of them likelier than others, and things that happen between
/// them.
#[derive(Clone, Debug)]
enum Move {
    Key(&'static str),
    Letter(char),
    Wait(u64),
    See(usize, usize),
    Answer(usize),
    End,
    Size(u16, u16),
    Config(usize),
}

const NAMES: [&str; 4] = ["alpha", "bravo", "charlie", "delta"];

fn moves() -> impl Strategy<Value = Move> {
    let keys: Vec<&'static str> = COMMAND_TABLE
        .iter()
        .flat_map(|spec| spec.keys.iter().copied())
        // Quitting ends it, in all ways but the one that may not.
        .filter(|key| !matches!(*key, "^c" | "^z"))
        .chain(["Enter", "Esc", "Backspace", "Space", "y"])
        .collect();
    prop_oneof![
        12 => proptest::sample::select(keys).prop_map(Move::Key),
        3 => proptest::char::range('a', 'z').prop_map(Move::Letter),
        2 => (0u64..70_000).prop_map(Move::Wait),
        2 => (0..4usize, 0..State::ALL.len()).prop_map(|(name, state)| Move::See(name, state)),
        2 => (0..6usize).prop_map(Move::Answer),
        1 => Just(Move::End),
        1 => (1u16..160, 1u16..60).prop_map(|(columns, rows)| Move::Size(columns, rows)),
        1 => (0..5usize).prop_map(Move::Config),
    ]
}

fn make(console: &mut Console, step: &Move) {
    match step {
        Move::Key(key) => drop(console.press(key)),
        Move::Letter(letter) => drop(console.type_line(&letter.to_string())),
        Move::Wait(millis) => drop(console.pass(Duration::from_millis(*millis))),
        Move::See(name, state) => {
            drop(console.observe(vec![seen(NAMES[*name], State::ALL[*state])]));
        }
        Move::Answer(which) => {
            let made = match which {
                0 => plan(&[]),
                1 => plan(&[("bravo", State::Scratch)]),
                2 => plan(&[("charlie", State::Drifted), ("alpha", State::Missing)]),
                3 => undo(&["delta"], true, UndoMode::Refuse),
                4 => undo(&["delta"], true, UndoMode::Append),
                _ => undo(&["alpha", "delta"], false, UndoMode::Refuse),
            };
            console.answer(made);
        }
        Move::End if console.model.is_running() => {
            let failed = Some("why");
            let results = [
                ("bravo", Outcome::Ok, None),
                ("delta", Outcome::Failed, failed),
            ];
            console.send(Msg::RunEnded(Box::new(report(&results))));
        }
        Move::End => {}
        Move::Size(columns, rows) => drop(console.send(Msg::Resized(*columns, *rows))),
        Move::Config(count) => {
            let names = agents(&NAMES[..*count]);
            let info = console.model.fleet.clone();
            console.send(Msg::ConfigAdopted(info, names, false));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_keys_break_nothing(steps in proptest::collection::vec(moves(), 2000)) {
        let mut console = four();
        for (number, step) in steps.iter().enumerate() {
            let applied = console.applied().len();
            make(&mut console, step);
            check(&console.model, &format!("{number}: {step:?}"));
            if console.applied().len() > applied {
                // Only these two keys confirm; the first one begins sequences, too.
                let confirms = match step {
                    Move::Key(key) => key.starts_with('y') || *key == "Enter",
                    step => matches!(step, Move::Letter('y')),
                };
                assert!(confirms, "{step:?}");
            }
        }
    }
}
