//! Invariants that hold for every command and key on every screen.

use std::path::Path;
use std::time::Duration;

use memory_shepherd::console::command::{COMMAND_TABLE, Command};
use memory_shepherd::console::dispatch;
use memory_shepherd::console::keys::key::{Key, KeyCode};
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::model::Model;
use memory_shepherd::console::preferences::{self, Preferences};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::fleet::visible_agents::{
    fleet_cursor_index, fleet_height, shows_agent,
};
use memory_shepherd::console::update::perform_command;
use memory_shepherd::engine::{FleetEvent, Outcome, Plan, Reachability, State, UndoMode};
use proptest::prelude::*;

use super::{console_with_run, console_with_texts};
use crate::console_fixture::{TestConsole, fleet_of_four, fleet_with_layouts, unread_fleet};
use crate::engine_samples::{
    configured_agents, host_key_question, host_status, observation_of, passphrase_question, plan,
    run_report, undo_plan,
};

fn console_after(mut console: TestConsole, keys: &str) -> TestConsole {
    if !keys.is_empty() {
        console.press(keys);
    }
    console
}

fn fleet_after(keys: &str) -> TestConsole {
    console_after(fleet_of_four(), keys)
}

fn console_with_plan(keys: &str, plan: Plan) -> TestConsole {
    let mut console = fleet_of_four();
    console.press_and_plan(keys, plan);
    console
}

/// Returns a console whose filter hides the agents of its plan.
fn console_with_hidden_plan() -> TestConsole {
    let mut console = fleet_after("a / z z z Enter");
    console.press("X");
    console.answer_plan(plan(&[
        ("bravo", State::Scratch),
        ("delta", State::Scratch),
    ]));
    console.advance(KEY_GUARD_TIME);
    console
}

fn console_with_result() -> TestConsole {
    let mut console = console_with_run();
    let failed = run_report(&[("bravo", Outcome::Failed, Some("why"))]);
    console.send(Msg::RunEnded(Box::new(failed)));
    console
}

/// Returns a console with two questions of hosts, after `keys`.
fn console_with_questions(keys: &str) -> TestConsole {
    let mut console = fleet_of_four();
    console.ask(passphrase_question(1, "harbour"));
    console.ask(host_key_question(2, "cliff"));
    console_after(console, keys)
}

/// Returns a console that shows the items of a memory with a layout, after `keys`.
fn console_with_items(keys: &str) -> TestConsole {
    let mut console = fleet_with_layouts();
    console.select_agent("keeper");
    let number = console.open_memory().number;
    console.deliver_items(number, &["a.md", "b.md", "c.md"], false);
    console_after(console, keys)
}

/// Returns consoles on every screen and stage.
fn consoles_in_every_place() -> Vec<(&'static str, TestConsole)> {
    let mut locked = fleet_of_four();
    locked.model.read_only.is_on = true;
    let mut forced = fleet_of_four();
    forced.model.read_only.is_forced = true;
    let mut small = console_with_texts();
    small.send(Msg::Resized(1, 1));
    let drifted = plan(&[("charlie", State::Drifted)]);
    let choice = undo_plan(&["charlie"], true, UndoMode::Refuse);
    vec![
        ("fleet", fleet_of_four()),
        ("no agents", unread_fleet(&[], (120, 36))),
        ("unread", unread_fleet(&["alpha", "bravo"], (80, 24))),
        ("marked", fleet_after("Space Space")),
        ("filtered to nothing", fleet_after("/ z z z Enter")),
        ("filter prompt", fleet_after("/ a")),
        ("agent without texts", fleet_after("d")),
        ("agent", console_with_texts()),
        ("agent in a cell", small),
        ("items", console_with_items("j")),
        ("item", console_with_items("j Enter")),
        ("item filter", console_with_items("/ a")),
        ("collections", console_with_items("Left")),
        ("argument prompt", console_with_items("O k e e p Enter")),
        ("findings", console_with_items("Tab")),
        ("search prompt", console_after(console_with_texts(), "/ o")),
        ("planning", fleet_after("X")),
        (
            "plan: y",
            console_with_plan("j X", plan(&[("bravo", State::Scratch)])),
        ),
        ("plan: typed", console_with_plan("X", drifted)),
        ("plan: nothing", console_with_plan("X", plan(&[]))),
        ("plan: choice", console_with_plan("z", choice)),
        ("plan: hidden", console_with_hidden_plan()),
        ("run", console_with_run()),
        ("result", console_with_result()),
        ("log", fleet_after("7")),
        ("help", fleet_after("?")),
        ("palette", fleet_after(":")),
        ("unlock", console_after(locked, "!")),
        ("forced read-only", forced),
        ("asked", console_with_questions("")),
        ("answering", console_with_questions("@ Space")),
        ("answering a key", console_with_questions("@ Esc @ y")),
    ]
}

/// Asserts the invariants of a model.
pub fn assert_model_invariants(model: &Model, what: &str) {
    match &model.fleet.cursor_agent {
        Some(name) => assert!(shows_agent(model, name), "{what}: cursor on {name}"),
        None => assert!(model.fleet.order.is_empty(), "{what}: no cursor"),
    }
    assert!(
        model.fleet.list.top <= model.fleet.order.len(),
        "{what}: top {}",
        model.fleet.list.top
    );
    if let Some(index) = fleet_cursor_index(model) {
        let rows = model.fleet.list.top..model.fleet.list.top + fleet_height(model);
        assert!(rows.contains(&index), "{what}: {index} is not in {rows:?}");
    }
    for name in &model.fleet.marks {
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
    let items = &model.agent.memory.items;
    let is_loaded = |index: &usize| *index < items.loaded.len();
    assert!(items.shown.iter().all(is_loaded), "{what}: items");
    let (cursor, rows) = (items.list.cursor, items.shown.len());
    // The cursor follows the items when their screen is drawn.
    let is_drawn = model.screen == Screen::Agent;
    assert!(
        !is_drawn || cursor < rows.max(1),
        "{what}: item {cursor} of {rows}"
    );
}

#[test]
fn every_command_is_safe_in_every_place() {
    let enter = Key::from_code(KeyCode::Enter);
    for spec in COMMAND_TABLE {
        for (place, mut console) in consoles_in_every_place() {
            let what = format!("{} at {place}", spec.id);
            let refusal = dispatch::check_enabled(spec.command, &console.model).err();
            let effects = perform_command(&mut console.model, spec.command, enter);
            let acts = effects
                .iter()
                .any(|effect| matches!(effect, Effect::ApplyPlan(_)));
            assert!(!acts || spec.command == Command::ConfirmPlan, "{what} acts");
            if let Some(reason) = refusal {
                assert_eq!(effects, [], "{what} does something though it may not");
                assert_eq!(console.message_text(), reason, "{what}");
            }
            assert_model_invariants(&console.model, &what);
        }
    }
}

/// Returns preferences in which every command but the confirmation has a letter that is no default
/// key and occurs in no message.
fn preferences_with_all_keys_rebound() -> Preferences {
    let letters = ('\u{410}'..='\u{44f}')
        .chain('\u{3b1}'..='\u{3c9}')
        .chain('\u{561}'..='\u{586}')
        .chain('\u{10d0}'..='\u{10f0}');
    let commands = COMMAND_TABLE
        .iter()
        .filter(|spec| !matches!(spec.command, Command::ConfirmPlan | Command::ConfirmSave));
    let lines: Vec<String> = commands
        .zip(letters)
        .map(|(spec, letter)| format!("{} = \"{letter}\"\n", spec.id))
        .collect();
    assert_eq!(lines.len() + 2, COMMAND_TABLE.len(), "too few letters");
    let text = format!("[keys]\n{}", lines.concat());
    let (preferences, problems) = preferences::parse(&text, Path::new("console.toml"));
    assert_eq!(problems, []);
    preferences
}

/// Asserts that no word of a text is a default key. Esc, Enter and y cannot be rebound; digits and
/// `a` are words of their own.
fn assert_names_no_default_key(text: &str, what: &str) {
    let is_ordinary =
        |key: &str| matches!(key, "Esc" | "Enter" | "y" | "a") || key.parse::<u32>().is_ok();
    let keys = COMMAND_TABLE.iter().flat_map(|spec| spec.keys);
    let keys: Vec<&str> = keys.copied().filter(|key| !is_ordinary(key)).collect();
    for word in text.split_whitespace() {
        let trimmed = word.trim_matches(|c: char| c.is_ascii_punctuation());
        let named = keys.iter().find(|key| **key == word || **key == trimmed);
        assert_eq!(named, None, "{what}: {text}");
    }
}

#[test]
fn rebound_keys_leave_no_default_key_in_messages() {
    let preferences = preferences_with_all_keys_rebound();
    let enter = Key::from_code(KeyCode::Enter);
    let mut texts = Vec::new();
    for spec in COMMAND_TABLE {
        for (place, mut console) in consoles_in_every_place() {
            let what = format!("{} at {place}", spec.id);
            console.model.preferences = preferences.clone();
            console.model.last_message = None;
            let why = dispatch::check_enabled(spec.command, &console.model).err();
            perform_command(&mut console.model, spec.command, enter);
            let message = console.model.last_message.take().map(|it| it.text);
            texts.extend(
                why.into_iter()
                    .chain(message)
                    .map(|text| (what.clone(), text)),
            );
        }
    }
    let mut console = fleet_of_four();
    console.model.preferences = preferences;
    let changed_key = host_status("harbour", Reachability::HostKeyMismatch, &["alpha"]);
    console.send(Msg::Fleet(FleetEvent::HostsChanged(vec![changed_key])));
    texts.push(("host key".to_string(), console.message_text().to_string()));
    console.ask(passphrase_question(1, "harbour"));
    texts.push(("question".to_string(), console.message_text().to_string()));
    for (what, text) in &texts {
        assert_names_no_default_key(text, what);
    }
    let is_rebound = |text: &str| text.chars().any(|c| matches!(c, '\u{3b1}'..='\u{586}'));
    let naming = texts.iter().filter(|(_, text)| is_rebound(text)).count();
    assert!(naming > 50, "only {naming} messages name a key");
}

#[test]
fn every_key_is_safe_in_every_place() {
    for spec in COMMAND_TABLE {
        for text in spec.keys {
            for (place, mut console) in consoles_in_every_place() {
                console.press(text);
                assert_model_invariants(&console.model, &format!("{text} at {place}"));
            }
        }
    }
}

/// Keys, some more likely than others, and events between them.
#[derive(Clone, Debug)]
enum RandomStep {
    Key(&'static str),
    Letter(char),
    Wait(u64),
    Observe(usize, usize),
    Answer(usize),
    EndRun,
    Resize(u16, u16),
    ReloadConfig(usize),
}

const NAMES: [&str; 4] = ["alpha", "bravo", "charlie", "delta"];

fn random_steps() -> impl Strategy<Value = RandomStep> {
    let keys: Vec<&'static str> = COMMAND_TABLE
        .iter()
        .flat_map(|spec| spec.keys.iter().copied())
        // Left out: keys that quit or suspend the program at once.
        .filter(|key| !matches!(*key, "^c" | "^z"))
        .chain(["Enter", "Esc", "Backspace", "Space", "y"])
        .collect();
    prop_oneof![
        12 => proptest::sample::select(keys).prop_map(RandomStep::Key),
        3 => proptest::char::range('a', 'z').prop_map(RandomStep::Letter),
        2 => (0u64..70_000).prop_map(RandomStep::Wait),
        2 => (0..4usize, 0..State::ALL.len()).prop_map(|(name, state)| RandomStep::Observe(name, state)),
        2 => (0..6usize).prop_map(RandomStep::Answer),
        1 => Just(RandomStep::EndRun),
        1 => (1u16..160, 1u16..60).prop_map(|(columns, rows)| RandomStep::Resize(columns, rows)),
        1 => (0..5usize).prop_map(RandomStep::ReloadConfig),
    ]
}

fn apply_step(console: &mut TestConsole, step: &RandomStep) {
    match step {
        RandomStep::Key(key) => drop(console.press(key)),
        RandomStep::Letter(letter) => drop(console.type_line(&letter.to_string())),
        RandomStep::Wait(millis) => drop(console.advance(Duration::from_millis(*millis))),
        RandomStep::Observe(name, state) => {
            drop(console.observe(vec![observation_of(NAMES[*name], State::ALL[*state])]));
        }
        RandomStep::Answer(which) => {
            let made = match which {
                0 => plan(&[]),
                1 => plan(&[("bravo", State::Scratch)]),
                2 => plan(&[("charlie", State::Drifted), ("alpha", State::Missing)]),
                3 => undo_plan(&["delta"], true, UndoMode::Refuse),
                4 => undo_plan(&["delta"], true, UndoMode::Append),
                _ => undo_plan(&["alpha", "delta"], false, UndoMode::Refuse),
            };
            console.answer_plan(made);
        }
        RandomStep::EndRun if console.model.reset.is_running() => {
            let failed = Some("why");
            let results = [
                ("bravo", Outcome::Ok, None),
                ("delta", Outcome::Failed, failed),
            ];
            console.send(Msg::RunEnded(Box::new(run_report(&results))));
        }
        RandomStep::EndRun => {}
        RandomStep::Resize(columns, rows) => drop(console.send(Msg::Resized(*columns, *rows))),
        RandomStep::ReloadConfig(count) => {
            let names = configured_agents(&NAMES[..*count]);
            let info = console.model.config.clone();
            console.send(Msg::ConfigAdopted(info, names, false));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_keys_confirm_nothing_unintended(steps in proptest::collection::vec(random_steps(), 2000)) {
        let mut console = fleet_of_four();
        for (number, step) in steps.iter().enumerate() {
            let applied = console.applied_agents().len();
            apply_step(&mut console, step);
            assert_model_invariants(&console.model, &format!("{number}: {step:?}"));
            if console.applied_agents().len() > applied {
                // Only these two keys confirm; the first one also begins sequences.
                let confirms = match step {
                    RandomStep::Key(key) => key.starts_with('y') || *key == "Enter",
                    step => matches!(step, RandomStep::Letter('y')),
                };
                assert!(confirms, "{step:?}");
            }
        }
    }
}
