//! The operator's keys, columns and filters, and the saved view state.

use std::path::Path;
use std::time::Duration;

use memory_shepherd::config::Diagnostic;
use memory_shepherd::console::command::{COMMAND_TABLE, Command};
use memory_shepherd::console::keys::key::{self, Key, KeyCode};
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::overlay::Overlay;
use memory_shepherd::console::preferences::{self, Preferences};
use memory_shepherd::console::screen::Screen;
use memory_shepherd::console::screens::fleet::sort_order::SortOrder;
use memory_shepherd::console::screens::fleet::state::ViewState;
use memory_shepherd::console::screens::fleet::visible_agents::restore_view_state;
use memory_shepherd::engine::State;
use proptest::prelude::*;

use super::{agent_order, cursor_agent, makes_dirty, marked_agents};
use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::plan;

#[test]
fn filter_typo_suggests_correction() {
    let mut console = fleet_of_four();
    console.press("/ i s : d r i f e d");
    let screen = console.screen_text();
    assert!(screen.contains("did you mean `is:drifted`?"), "{screen}");
}

fn parse_preferences(text: &str) -> (Preferences, Vec<Diagnostic>) {
    preferences::parse(text, Path::new("/home/op/console.toml"))
}

/// Returns a console with these preferences.
fn console_with_preferences(text: &str) -> TestConsole {
    let (preferences, found) = parse_preferences(text);
    assert_eq!(found, [], "{text}");
    let mut console = fleet_of_four();
    console.send(Msg::PreferencesLoaded(Box::new(preferences)));
    console
}

#[test]
fn remapped_keys_replace_defaults() {
    let mut console =
        console_with_preferences("[keys]\nmark = \"Space m\"\ndown = [\"J\"]\nback = [\"b\"]\n");
    assert_eq!(cursor_agent(&console), "charlie");
    console.press("j");
    assert_eq!(cursor_agent(&console), "charlie");
    console.press("J");
    assert_eq!(cursor_agent(&console), "bravo");
    console.press("Space");
    assert!(marked_agents(&console).is_empty());
    console.press("m");
    assert_eq!(marked_agents(&console), ["bravo"]);
    console.press("Space J");
    assert_eq!(cursor_agent(&console), "delta", "no such sequence");
    assert_eq!(console.press("q"), []);
    assert_eq!(console.press("b"), [Effect::CancelRun, Effect::Quit]);
}

#[test]
fn escape_always_goes_back_and_never_quits() {
    let mut console = console_with_preferences("[keys]\nback = []\n");
    console.press("7");
    console.press("Esc");
    assert_eq!(console.model.screen, Screen::Fleet);
    assert_eq!(console.press("Esc"), []);
    assert_eq!(console.message_text(), "^c quits");
}

#[test]
fn quit_letter_can_be_typed_in_prompts() {
    let mut console = console_with_preferences("[keys]\nquit = \"Q\"\n");
    console.press("/");
    console.type_line("Quiet");
    assert_eq!(console.model.fleet.filter, "Quiet");
    console.press("Esc");
    assert_eq!(console.press("Q"), [Effect::CancelRun, Effect::Quit]);
    assert_eq!(console.press("^c"), []);
}

#[test]
fn help_is_navigated_by_list_keys() {
    let mut console = console_with_preferences(
        "[keys]\ndown = \"n\"\nnext-hit = \"F6\"\nsearch = \"m\"\nhelp = \"H\"\n",
    );
    console.press("H n n");
    let cursor = |console: &TestConsole| match &console.model.overlay {
        Some(Overlay::Help(chooser)) => Some((chooser.cursor_row, chooser.is_typing)),
        _ => None,
    };
    assert_eq!(cursor(&console), Some((Some(2), false)));
    console.press("j m");
    assert_eq!(cursor(&console), Some((Some(2), true)));
    console.press("Esc H");
    assert_eq!(cursor(&console), None);
    console.press(": Left F1");
    assert!(console.model.overlay.is_some(), "they are no letters");
}

#[test]
fn messages_name_keys_in_force() {
    let mut console = console_with_preferences(
        "[keys]\nread-only = \"F2\"\nplan = []\nreset = \"F5\"\nnext-hit = \"F6\"\nquit = \"F12\"\n\
         keep-hidden = \"K\"\ndrop-hidden = \"D d\"\n",
    );
    for (keys, said) in [
        (": p l a n Enter", "no plan yet; F5 makes one"),
        (
            "F2",
            "read-only; F2 again turns it off and unlocks protected agents",
        ),
        ("E", "read-only; F2 switches it off"),
        ("F2 y Esc", "q quits"),
    ] {
        console.press(keys);
        assert_eq!(console.message_text(), said, "{keys}");
    }
    console.press("Space / z z z Enter F5");
    console.answer_plan(plan(&[("charlie", State::Drifted)]));
    console.advance(Duration::from_secs(1));
    console.press("y");
    let what = "the filter hides marked agents: K keeps them, Dd drops them";
    assert_eq!(console.message_text(), what);
    console.press("K");
    console.type_line("reset 1");
    console.press("Enter F5");
    console.press("q F5");
    assert_eq!(
        console.message_text(),
        "a run is in progress; :plan shows it"
    );
    console.press("F12");
    assert!(
        console.message_text().ends_with("F12 again quits"),
        "{}",
        console.message_text()
    );
}

#[test]
fn continuations_show_after_pause_and_escape_cancels() {
    let mut console = fleet_of_four();
    console.press("G");
    assert!(!makes_dirty(&mut console, |console| drop(
        console.press("g")
    )));
    assert!(!console.model.pending_keys.is_hint_shown);
    assert!(makes_dirty(&mut console, |console| {
        console.advance(Duration::from_millis(400));
    }));
    assert!(console.model.pending_keys.is_hint_shown);
    assert!(!makes_dirty(&mut console, |console| {
        console.advance(Duration::from_secs(5));
    }));
    console.press("Esc / x Enter");
    console.press("g Esc");
    assert!(console.model.pending_keys.keys.is_empty());
    assert_eq!(console.model.fleet.filter, "x", "it was not for the filter");
    console.press("Esc");
    assert_eq!(console.model.fleet.filter, "");
    console.press("g g");
    assert_eq!(cursor_agent(&console), "charlie");
}

#[test]
fn overlay_drops_incomplete_key_sequence() {
    let mut console = fleet_of_four();
    console.press("g ? Esc g");
    assert_eq!(console.model.pending_keys.keys.len(), 1);
    console.press("2");
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(console.model.pending_keys.keys.is_empty());
}

#[test]
fn invalid_preferences_keep_previous_ones() {
    let mut console = console_with_preferences("[keys]\nlog = \"L\"\n");
    let (_, found) = parse_preferences("[keys]\nlgo = \"7\"\nrset = \"X\"\n");
    console.send(Msg::PreferencesInvalid(found));
    assert!(
        console
            .message_text()
            .contains("previous preferences stay in force: console.toml: 2 mistakes; line 2: "),
        "{}",
        console.message_text()
    );
    let error = console.model.errors.preferences.clone().unwrap();
    assert!(
        error.starts_with("console.toml: 2 mistakes; line 2: "),
        "{error}"
    );
    let logged = |text: &str| {
        let messages = console.model.log.messages.iter();
        messages.filter(|it| it.text.contains(text)).count()
    };
    assert_eq!(
        (logged("console.toml:2: "), logged("console.toml:3: ")),
        (1, 1)
    );
    console.press("L");
    assert_eq!(console.model.screen, Screen::Log);
    console.send(Msg::PreferencesLoaded(Box::default()));
    assert_eq!(console.model.errors.preferences, None);
}

#[test]
fn named_filters_are_in_palette() {
    let mut console =
        console_with_preferences("[filters]\nnight = \"is:drifted !test\"\nday = \"bravo\"\n");
    console.press("7 :");
    console.type_line("filter day");
    let kept = ViewState {
        filter: "bravo".to_string(),
        ..ViewState::default()
    };
    assert_eq!(console.press("Enter"), [Effect::SaveViewState(kept)]);
    assert_eq!(
        (console.model.screen, agent_order(&console.model)),
        (Screen::Fleet, vec!["bravo"])
    );
}

#[test]
fn order_and_filter_are_saved_when_final() {
    let mut console = fleet_of_four();
    let kept = |effects: &[Effect]| {
        let views = effects.iter().filter_map(|effect| match effect {
            Effect::SaveViewState(view) => Some(view.clone()),
            _ => None,
        });
        views.collect::<Vec<_>>()
    };
    let effects = console.press("/ a l");
    assert_eq!(kept(&effects), [], "it is still being typed");
    let effects = console.press("Enter");
    assert_eq!(kept(&effects)[0].filter, "al");
    let effects = console.press("S");
    assert_eq!(
        kept(&effects),
        [ViewState {
            is_reversed: true,
            filter: "al".to_string(),
            ..ViewState::default()
        }]
    );
    assert_eq!(kept(&console.press("j k 7 1")), []);
    let effects = console.press("Esc");
    assert_eq!(kept(&effects)[0].filter, "");
    // Marks are not restored, so neither is a filter that depends on them.
    console.press("/");
    console.type_line("is:marked");
    assert_eq!(kept(&console.press("Enter")), []);
}

#[test]
fn restored_filter_is_marked_until_edited() {
    let mut console = fleet_of_four();
    let view = ViewState {
        sort_order: SortOrder::Name,
        is_reversed: true,
        filter: "!charlie".to_string(),
    };
    restore_view_state(&mut console.model, view);
    assert_eq!(agent_order(&console.model), ["delta", "bravo", "alpha"]);
    assert!(console.model.fleet.is_filter_restored);
    assert_eq!(console.send(Msg::Tick), [], "it is not kept again");
    console.press("j /");
    assert_eq!(
        (
            console.model.fleet.is_filter_restored,
            console.model.fleet.filter.as_str()
        ),
        (false, "")
    );
    console.press("x Esc");
    assert_eq!(
        (
            console.model.fleet.is_filter_restored,
            console.model.fleet.filter.as_str()
        ),
        (false, "!charlie")
    );
}

#[test]
fn enter_in_help_and_palette_never_confirms() {
    for keys in ["? Enter", ": c o n f i r m Enter"] {
        let mut console = fleet_of_four();
        console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
        console.press(keys);
        assert_eq!(
            console.message_text(),
            "y confirms a plan; Enter never does",
            "{keys}"
        );
        assert_eq!(console.applied_agents(), [""; 0]);
        console.press("y");
        assert_eq!(console.applied_agents(), ["bravo"]);
    }
}

#[test]
fn console_page_example_is_valid() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/console.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    let (preferences, found) = parse_preferences(example.split("```").next().unwrap());
    assert_eq!(found, []);
    assert_eq!(
        preferences.keymap.sequence_texts(Command::PlanReset),
        ["F5", "Space r"]
    );
    assert_eq!(preferences.named_filters.len(), 1);
}

/// Preferences that bind keys of some commands; many of them are invalid.
fn preference_texts() -> impl Strategy<Value = String> {
    let ids: Vec<&'static str> = COMMAND_TABLE.iter().map(|spec| spec.id).collect();
    let keys = [
        "Enter", "Space", "y", "Esc", "X", "d", "F5", "Space y", "gy", "Q", "^e", "^c", "Enter y",
        "a",
    ];
    let entry = (
        proptest::sample::select(ids),
        proptest::collection::vec(proptest::sample::select(keys.to_vec()), 0..3),
    );
    proptest::collection::hash_map(
        entry.clone().prop_map(|it| it.0),
        entry.prop_map(|it| it.1),
        0..12,
    )
    .prop_map(|all| {
        let lines = all.iter().map(|(id, keys)| format!("{id} = {keys:?}\n"));
        format!("[keys]\n{}", lines.collect::<String>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// With any configuration, only y confirms single-key plans, only the typed text confirms the
    /// others, and no key that opens a plan is y.
    #[test]
    fn only_y_confirms_under_any_keymap(text in preference_texts()) {
        let (preferences, _) = parse_preferences(&text);
        let keymap = preferences.keymap.clone();
        for spec in COMMAND_TABLE {
            if memory_shepherd::console::command::requests_plan(spec.command) {
                for keys in keymap.sequences(spec.command) {
                    prop_assert_ne!(keys.last().and_then(|key| key.printable_char()), Some('y'));
                }
            }
        }
        prop_assert!(!keymap.sequences(Command::Quit).is_empty() && !keymap.sequences(Command::Help).is_empty());
        for state in [State::Scratch, State::Drifted] {
            let mut console = fleet_of_four();
            console.model.preferences = preferences.clone();
            let effects = memory_shepherd::console::update::perform_command(&mut console.model, Command::PlanReset, Key::from_code(KeyCode::F(1)));
            prop_assert!(matches!(effects.last(), Some(Effect::MakePlan(..))));
            console.answer_plan(plan(&[("charlie", state)]));
            console.advance(Duration::from_secs(1));
            for key in ["Enter", "Space", "F5", "X", "a", "d", "Q", "Enter", "Space"] {
                let key = key::parse_sequence(key).unwrap();
                for key in key {
                    let effects = console.send(Msg::KeysPressed(vec![key]));
                    prop_assert!(!effects.iter().any(|effect| matches!(effect, Effect::ApplyPlan(_))), "{}", text);
                }
            }
        }
    }
}
