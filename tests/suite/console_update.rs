//! What messages do to the model: tables on `update`, without terminal, engine
//! or clock.

use std::time::Duration;

use memory_shepherd::console::command::{self, Command, TABLE};
use memory_shepherd::console::keymap::{self, Code, Key};
use memory_shepherd::console::model::{
    Fleet, Form, Level, Model, Overlay, Prompt, Request, Screen, Sort, Stage, Tab,
};
use memory_shepherd::console::update::{DEAF, Effect, Msg, VALID, perform};
use memory_shepherd::engine::{
    Act, Outcome, Plan, Progress, Protection, Stage as Step, State, UndoMode, UndoTarget,
};
use memory_shepherd::error::{Error, Kind};
use proptest::prelude::*;

use crate::console_fleet::{
    Console, fleet, four, keys, plan, report, reset_of, run, seen, skipped, undo, undo_of, unread,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn order(model: &Model) -> Vec<&str> {
    model.order.iter().map(String::as_str).collect()
}

fn cursor(console: &Console) -> &str {
    console.model.cursor.as_deref().unwrap_or("")
}

fn marks(console: &Console) -> Vec<&str> {
    console.model.marks.iter().map(String::as_str).collect()
}

/// Forgets that something changed, does something, and says whether anything
/// that is drawn has changed since.
fn dirties(console: &mut Console, act: impl FnOnce(&mut Console)) -> bool {
    console.model.dirty = false;
    act(console);
    console.model.dirty
}

// ---- The fleet: order, cursor, marks -------------------------------------

#[test]
fn the_worst_comes_first_and_has_the_cursor_until_it_is_moved() {
    let mut console = four();
    assert_eq!(
        order(&console.model),
        ["charlie", "bravo", "delta", "alpha"]
    );
    assert_eq!(cursor(&console), "charlie");
    console.observe(vec![seen("delta", State::Tampered)]);
    assert_eq!(cursor(&console), "delta", "it is the worst now");
    console.press("j");
    assert_eq!(cursor(&console), "charlie");
    console.observe(vec![seen("alpha", State::Tampered)]);
    assert_eq!(cursor(&console), "charlie", "it was moved");
    assert_eq!(
        order(&console.model),
        ["alpha", "delta", "charlie", "bravo"]
    );
}

#[test]
fn cursor_and_marks_follow_names_through_refresh_sort_and_filter() {
    let mut console = four();
    console.press("j Space");
    assert_eq!(
        (marks(&console), cursor(&console)),
        (vec!["bravo"], "delta")
    );
    for keys in ["S", "S", "s n a m e Enter"] {
        console.press(keys);
        assert_eq!(
            (marks(&console), cursor(&console)),
            (vec!["bravo"], "delta")
        );
    }
    assert_eq!(console.model.sort, Sort::Name);
    assert_eq!(
        order(&console.model),
        ["alpha", "bravo", "charlie", "delta"]
    );
    console.observe(vec![
        seen("delta", State::Tampered),
        seen("bravo", State::Clean),
    ]);
    assert_eq!(
        (marks(&console), cursor(&console)),
        (vec!["bravo"], "delta")
    );
    console.press("/ l t Enter");
    assert_eq!(order(&console.model), ["delta"]);
    assert_eq!(
        (marks(&console), cursor(&console)),
        (vec!["bravo"], "delta")
    );
    assert_eq!(console.model.hidden_marks(), ["bravo"]);
}

#[test]
fn marks_can_be_set_taken_back_by_range_and_all_at_once() {
    let mut console = four();
    console.press("Space j v");
    assert_eq!(
        marks(&console),
        ["bravo", "charlie", "delta"],
        "from charlie down"
    );
    console.press("A");
    assert_eq!(marks(&console), [] as [&str; 0]);
    console.press("/ b Enter a Esc");
    assert_eq!(marks(&console), ["bravo"], "only what is shown");
    console.press("gg j Space");
    assert_eq!(marks(&console), [] as [&str; 0], "the second time unmarks");
}

#[test]
fn the_filter_speaks_its_language_while_it_is_typed() {
    for (typed, shown) in [
        ("", vec!["charlie", "bravo", "delta", "alpha"]),
        ("l", vec!["charlie", "bravo", "delta", "alpha"]), // the host: local
        ("ALPHA", vec!["alpha"]),
        ("!charlie !alpha", vec!["bravo", "delta"]),
        ("is:scratch", vec!["bravo", "delta"]),
        ("is:scratch b", vec!["bravo"]),
        ("!is:clean !is:scratch", vec!["charlie"]),
        ("~dlt", vec!["delta"]),
        ("l31", vec!["charlie"]),
        ("is:marked", vec![]),
        ("nothing", vec![]),
    ] {
        let mut console = four();
        console.press("/");
        console.type_line(typed);
        assert_eq!(order(&console.model), shown, "{typed:?}");
        console.press("Enter");
        assert_eq!(order(&console.model), shown, "{typed:?}");
        assert_eq!(console.model.filter, typed);
        assert_eq!(console.model.prompt, None);
        assert_eq!(
            console.model.cursor.as_deref(),
            shown.first().copied(),
            "{typed:?}"
        );
    }
}

#[test]
fn a_filter_that_is_taken_back_is_the_one_before() {
    let mut console = four();
    console.press("/ b r a v o Enter / x Esc");
    assert_eq!(
        (console.model.filter.as_str(), order(&console.model)),
        ("bravo", vec!["bravo"])
    );
    console.press("/ x Backspace Backspace");
    assert_eq!(console.model.filter, "brav");
    console.press("^u");
    assert_eq!(console.model.filter, "");
}

#[test]
fn escape_goes_down_its_ladder_and_never_clears_marks() {
    let mut console = four();
    console.press("Space / a");
    assert!(matches!(console.model.prompt, Some(Prompt::Filter(_))));
    console.press("Esc");
    assert_eq!(
        (
            console.model.prompt.is_none(),
            console.model.filter.as_str()
        ),
        (true, "")
    );
    console.press("/ a Enter");
    console.press("d");
    console.texts("charlie", b"one\ntwo\n---\n", Some(b"one\n---\n"));
    console.press("/ t w o Enter");
    assert_eq!(console.model.agent.pane().query, "two");
    console.press("Esc");
    assert_eq!(
        (
            console.model.screen,
            console.model.agent.pane().query.as_str()
        ),
        (Screen::Agent, "")
    );
    console.press("Esc");
    assert_eq!(
        (console.model.screen, console.model.filter.as_str()),
        (Screen::Fleet, "a")
    );
    console.press("Esc");
    assert_eq!(console.model.filter, "");
    assert_eq!(console.press("Esc"), [], "it does not quit");
    assert_eq!(
        (console.said(), marks(&console)),
        ("q quits", vec!["charlie"])
    );
}

#[test]
fn back_goes_one_level_and_only_q_quits_and_only_at_the_fleet() {
    for key in ["q", "Esc", "h", "Left"] {
        for open in ["d", "Enter", "l", "2", "7"] {
            let mut console = four();
            console.press(open);
            assert_ne!(console.model.screen, Screen::Fleet, "{open}");
            assert_eq!(console.press(key), [], "{open} {key}");
            assert_eq!(console.model.screen, Screen::Fleet, "{open} {key}");
            let quits = console.press(key).contains(&Effect::Quit);
            assert_eq!(quits, key == "q", "{key} at the fleet");
        }
    }
}

#[test]
fn minus_goes_to_and_fro_and_brackets_to_the_next_agent() {
    let mut console = four();
    assert_eq!(console.press("-"), []);
    assert!(
        console.said().contains("no other screen"),
        "{}",
        console.said()
    );
    console.press("d");
    console.press("-");
    assert_eq!(console.model.screen, Screen::Fleet);
    console.press("-");
    assert_eq!(
        (console.model.screen, console.model.agent.name.as_str()),
        (Screen::Agent, "charlie")
    );
    assert_eq!(console.press("]"), [Effect::Texts("bravo".to_string())]);
    assert_eq!(
        (console.model.screen, cursor(&console)),
        (Screen::Agent, "bravo")
    );
    assert_eq!(console.press("["), [Effect::Texts("charlie".to_string())]);
    assert_eq!(console.press("["), [], "there is none before the first");
    assert_eq!(console.model.agent.name, "charlie");
}

#[test]
fn a_key_of_two_waits_for_the_second_and_a_wrong_second_counts_alone() {
    let mut console = four();
    console.press("G");
    assert_eq!(cursor(&console), "alpha");
    assert!(!dirties(&mut console, |console| drop(console.press("g"))));
    console.press("g");
    assert_eq!(cursor(&console), "charlie");
    console.press("g j");
    assert_eq!(cursor(&console), "bravo", "gj is no key, j is");
    console.press("g x");
    assert!(console.model.pending.is_empty());
}

#[test]
fn movement_keys_move_and_stop_at_both_ends() {
    let names: Vec<String> = (0..100).map(|n| format!("agent-{n:02}")).collect();
    let agents: Vec<(&str, State)> = names.iter().map(|n| (n.as_str(), State::Scratch)).collect();
    let mut console = fleet(&agents);
    let page = console.model.list_height();
    for (keys, place) in [
        ("j", 1),
        ("Down", 2),
        ("k Up", 0),
        ("k", 0),
        ("PgDn", page),
        ("^f", 2 * page),
        ("PgUp ^b", 0),
        ("^d", page / 2),
        ("^u", 0),
        ("G", 99),
        ("End PgDn j", 99),
        ("gg", 0),
        ("End Home", 0),
    ] {
        console.press(keys);
        assert_eq!(console.model.cursor_index(), Some(place), "{keys}");
        let top = console.model.top;
        assert!((top..top + page).contains(&place), "{keys}: {top}");
    }
}

#[test]
fn the_strip_follows_a_held_key_only_when_it_is_let_go() {
    let mut console = four();
    console.press("j");
    assert_eq!(console.model.strip.as_deref(), Some("bravo"));
    for _ in 0..2 {
        console.now += Duration::from_millis(30);
        console.send(keys("j"));
    }
    assert_eq!(
        (cursor(&console), console.model.strip.as_deref()),
        ("alpha", Some("bravo"))
    );
    console.pass(Duration::from_millis(80));
    assert_eq!(console.model.strip.as_deref(), Some("alpha"));
}

#[test]
fn rows_do_not_move_under_a_prompt_or_an_overlay_but_do_when_it_is_gone() {
    for (open, close) in [
        ("/", "Esc"),
        ("/", "Enter"),
        ("?", "Esc"),
        (":", "Esc"),
        (":", "Enter"),
    ] {
        let mut console = four();
        console.press(open);
        console.observe(vec![seen("alpha", State::Tampered)]);
        assert_eq!(order(&console.model)[0], "charlie", "{open}");
        console.press(close);
        let first = console.model.order[0].as_str();
        assert_eq!(first, "alpha", "{open} {close}");
    }
}

// ---- What was seen ---------------------------------------------------------

#[test]
fn an_observation_that_tells_nothing_new_is_not_drawn() {
    let mut console = four();
    assert!(!dirties(&mut console, |console| {
        console.now += SECOND;
        console.observe(vec![seen("bravo", State::Scratch)]);
    }));
    assert!(dirties(&mut console, |console| {
        console.observe(vec![seen("bravo", State::Oversize)]);
    }));
}

#[test]
fn an_older_generation_and_a_stranger_are_ignored() {
    let mut console = four();
    let mut old = seen("alpha", State::Tampered);
    old.generation = 0;
    assert!(!dirties(&mut console, |console| {
        console.send(Msg::Observed(vec![old, seen("nobody", State::Tampered)]));
    }));
    assert_eq!(console.model.row("alpha").unwrap().state(), State::Clean);
    assert!(console.model.row("nobody").is_none());
}

#[test]
fn remembered_agents_show_at_once_and_are_loading_still() {
    let mut console = unread(&["alpha", "bravo"], (120, 36));
    console.send(Msg::Remembered(vec![seen("bravo", State::Drifted)]));
    let row = console.model.row("bravo").unwrap();
    assert_eq!(
        (row.state(), row.best().unwrap().state),
        (State::Loading, State::Drifted)
    );
    console.observe(vec![seen("bravo", State::Clean)]);
    assert_eq!(console.model.row("bravo").unwrap().state(), State::Clean);
}

#[test]
fn texts_are_asked_for_again_when_the_open_agent_changes() {
    let mut console = four();
    console.press("d");
    assert_eq!(console.observe(vec![seen("alpha", State::Drifted)]), []);
    let mut other = seen("charlie", State::Drifted);
    other.why = "rules edited: L7".to_string();
    assert_eq!(
        console.observe(vec![other]),
        [Effect::Texts("charlie".to_string())]
    );
}

#[test]
fn unknown_keys_do_nothing() {
    let mut console = four();
    for key in ["x", "Q", "F5", "^e", "Tab", "Backspace", "%", "5"] {
        console.press("j k");
        let known = matches!(key, "5");
        let mut effects = Vec::new();
        let changed = dirties(&mut console, |console| effects = console.press(key));
        assert_eq!((changed, effects), (known, vec![]), "{key}");
    }
}

#[test]
fn an_idle_console_asks_for_few_ticks_and_draws_nothing() {
    let mut console = four();
    console.pass(MINUTE);
    let mut ticks = 0;
    let end = console.now + 4 * MINUTE;
    let mut drawn = 0;
    while console.now < end {
        console.now = memory_shepherd::console::update::next_wake(&console.model);
        ticks += 1;
        drawn += usize::from(dirties(&mut console, |console| {
            drop(console.send(Msg::Tick))
        }));
    }
    assert!(ticks <= 13, "{ticks} ticks in four minutes");
    assert!(
        drawn <= 1,
        "an age of 12 minutes changes once in four, {drawn} frames"
    );
}

#[test]
fn a_config_error_and_a_mended_config_show() {
    let mut console = four();
    console.press("j Space");
    console.send(Msg::ConfigBroken("line 3: what?".to_string()));
    assert_eq!(console.model.config_error.as_deref(), Some("line 3: what?"));
    assert_eq!(console.model.rows.len(), 4, "the old one stays");
    let info = Fleet {
        name: "prod-east".to_string(),
        ..console.model.fleet.clone()
    };
    let names = ["echo", "delta", "bravo"].map(str::to_string).to_vec();
    console.send(Msg::ConfigLoaded(info, names, false));
    assert_eq!(console.model.config_error, None);
    assert_eq!(console.model.fleet.name, "prod-east");
    assert_eq!(
        order(&console.model),
        ["echo", "delta", "bravo"],
        "none is read yet"
    );
    assert_eq!(
        (marks(&console), cursor(&console)),
        (vec!["bravo"], "delta")
    );
    assert_eq!(console.model.row("bravo").unwrap().state(), State::Loading);
    assert!(console.model.row("bravo").unwrap().best().is_some());
}

#[test]
fn a_config_that_changes_takes_a_plan_with_it_but_not_a_run() {
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    let (info, names) = (console.model.fleet.clone(), vec!["charlie".to_string()]);
    console.send(Msg::ConfigLoaded(info.clone(), names.clone(), true));
    assert!(matches!(console.model.reset.stage, Stage::Empty));
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(console.model.read_only.on, "the new one protects the fleet");
    let mut console = running();
    console.send(Msg::ConfigLoaded(info, names, false));
    assert!(console.model.is_running());
}

// ---- Plans and their confirmation ----------------------------------------

/// Everything that the grammar calls a key that never confirms.
const NEVER: &[&str] = &["Enter", "Space", "X", "z", "j", "G", "Tab", "x", "r", "l"];

#[test]
fn a_plan_changes_nothing_and_its_key_held_does_nothing() {
    let mut console = four();
    let effects = console.press("X");
    let request = reset_of(&["charlie"]);
    assert_eq!(effects, [Effect::Plan(1, request, false)]);
    assert!(matches!(console.model.reset.stage, Stage::Planning(_)));
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
        assert_eq!(*console.form(), Form::Key);
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
    assert_eq!(*console.form(), Form::Key);
}

#[test]
fn what_has_to_be_typed_goes_by_the_weight_of_the_plan() {
    let whole = Plan {
        whole_fleet: true,
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
        assert_eq!(*console.form(), Form::Typed(word.to_string()), "{what}");
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
fn in_a_fleet_of_one_y_suffices() {
    for state in [State::Scratch, State::Drifted, State::NoSep] {
        let mut console = fleet(&[("solo", state)]);
        console.plan("X", plan(&[("solo", state)]));
        assert_eq!(*console.form(), Form::Key, "{state}");
    }
}

fn protected(protect: Protection) -> Console {
    let mut console = four();
    let mut bravo = seen("bravo", State::Scratch);
    bravo.protect = protect;
    console.observe(vec![bravo]);
    console
}

#[test]
fn a_protected_agent_needs_typing_whatever_it_is_in() {
    let mut console = protected(Protection::Typed);
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    assert_eq!(*console.form(), Form::Typed("reset 1".to_string()));
    let mut console = protected(Protection::Typed);
    console.plan("j z", undo(&["bravo"], false, UndoMode::Refuse));
    assert_eq!(*console.form(), Form::Typed("undo 1".to_string()));
    let mut solo = fleet(&[("solo", State::Scratch)]);
    let mut observation = seen("solo", State::Scratch);
    observation.protect = Protection::Typed;
    solo.observe(vec![observation]);
    solo.plan("X", plan(&[("solo", State::Scratch)]));
    assert_eq!(
        *solo.form(),
        Form::Typed("reset 1".to_string()),
        "also alone"
    );
}

#[test]
fn a_read_only_agent_is_unlocked_for_half_an_hour_by_y() {
    let mut console = protected(Protection::ReadOnly);
    assert_eq!(
        console.press("j X"),
        [Effect::Plan(1, reset_of(&["bravo"]), false)]
    );
    console.press("Esc !");
    assert!(
        console.model.why_read_only().is_some(),
        "first it is all of it"
    );
    console.press("!");
    assert_eq!(console.model.overlay, Some(Overlay::Unlock));
    console.press("Enter");
    assert!(!console.model.unlocked(), "only y does");
    console.press("! y");
    assert!(console.model.unlocked());
    assert_eq!(
        console.press("X"),
        [Effect::Plan(2, reset_of(&["bravo"]), true)]
    );
    console.press("Esc");
    console.pass(29 * MINUTE);
    assert!(console.model.unlocked());
    console.pass(2 * MINUTE);
    assert!(!console.model.unlocked());
    assert!(
        console.said().contains("read-only again"),
        "{}",
        console.said()
    );
}

#[test]
fn a_read_only_fleet_plans_nothing_until_it_is_unlocked() {
    let mut console = four();
    console.model.read_only.on = true;
    console.model.read_only.by_config = true;
    for keys in ["X", "z", "Z", "u"] {
        assert_eq!(console.press(keys), [], "{keys}");
        assert!(console.said().contains("read-only"), "{}", console.said());
    }
    console.press("! y");
    assert!(matches!(console.press("X")[..], [Effect::Plan(..)]));
    console.press("Esc");
    console.pass(31 * MINUTE);
    assert_eq!(console.press("X"), [], "it is read-only again");
    console.press("! y !");
    assert_eq!(console.press("X"), [], "and by hand");
}

#[test]
fn a_plan_made_before_it_was_read_only_does_not_run() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.model.read_only.on = true;
    console.press("y");
    assert_eq!(console.applied(), [] as [&str; 0]);
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.model.read_only.on = true;
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
}

#[test]
fn nothing_unlocks_what_was_started_read_only() {
    let mut console = protected(Protection::ReadOnly);
    console.model.read_only.forced = true;
    for keys in ["!", "! y", "X", "z"] {
        assert_eq!(console.press(keys), [], "{keys}");
        assert_eq!(console.model.overlay, None, "{keys}");
        assert!(console.model.why_read_only().is_some(), "{keys}");
    }
}

#[test]
fn an_undo_takes_y_for_one_and_typing_for_more() {
    let mut console = four();
    assert_eq!(
        console.press("z"),
        [Effect::Plan(
            1,
            undo_of(&["charlie"], UndoMode::Refuse),
            false
        )]
    );
    console.answer(undo(&["charlie"], false, UndoMode::Refuse));
    assert_eq!(*console.form(), Form::Key);
    console.pass(DEAF);
    console.press("y");
    assert_eq!(console.applied(), ["charlie"]);
    let mut console = four();
    console.plan("a u", undo(&["charlie", "bravo"], false, UndoMode::Refuse));
    assert_eq!(*console.form(), Form::Typed("undo 2".to_string()));
    console.type_line("undo 3");
    console.press("Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
    console.press("Backspace 2");
    console.press("Enter");
    assert_eq!(console.applied(), ["charlie", "bravo"]);
}

#[test]
fn a_redo_asks_for_the_last_undo() {
    let mut console = four();
    let target = UndoTarget::Redo(vec!["charlie".to_string()]);
    let request = Request::Undo(target, UndoMode::Refuse);
    assert_eq!(console.press("Z"), [Effect::Plan(1, request, false)]);
}

#[test]
fn an_undo_of_an_agent_that_has_written_since_asks_what_to_do_with_it() {
    let mut console = four();
    console.plan("z", undo(&["charlie"], true, UndoMode::Refuse));
    assert_eq!(*console.form(), Form::Choice);
    for never in ["y", "Enter", "Space"] {
        console.press(never);
        assert_eq!(console.applied(), [] as [&str; 0], "{never}");
    }
    let asked = console.press("a");
    assert_eq!(
        asked,
        [Effect::Plan(
            2,
            undo_of(&["charlie"], UndoMode::Append),
            false
        )]
    );
    console.answer(undo(&["charlie"], true, UndoMode::Append));
    assert_eq!(*console.form(), Form::Key, "appending loses nothing");
    console.pass(DEAF);
    let asked = console.press("o");
    assert_eq!(
        asked,
        [Effect::Plan(
            3,
            undo_of(&["charlie"], UndoMode::Overwrite),
            false
        )]
    );
    console.answer(undo(&["charlie"], true, UndoMode::Overwrite));
    console.pass(DEAF);
    assert_eq!(*console.form(), Form::Typed("undo 1".to_string()));
    console.press("y");
    assert_eq!(console.applied(), [] as [&str; 0]);
    console.press("Backspace");
    console.type_line("undo 1");
    console.press("Enter");
    assert_eq!(console.applied(), ["charlie"]);
}

#[test]
fn append_and_overwrite_are_for_agents_that_have_written_since() {
    let mut console = four();
    console.plan("z", undo(&["charlie"], false, UndoMode::Refuse));
    for key in ["a", "o"] {
        assert_eq!(console.press(key), [], "{key}");
        assert!(
            console.said().contains("written since"),
            "{}",
            console.said()
        );
    }
}

#[test]
fn marks_that_the_filter_hides_are_asked_about_before_anything_else() {
    let asked = |keys: &str, answer: &dyn Fn(&[&str]) -> Plan| {
        let mut console = four();
        console.press("a / ! c h a r l i e Enter");
        console.plan(keys, answer(&["alpha", "bravo", "charlie", "delta"]));
        let Stage::Plan(view) = &console.model.reset.stage else {
            panic!("no plan");
        };
        assert_eq!(view.hidden, ["charlie"], "{keys}");
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
        assert_eq!(effects, [Effect::Plan(2, request, false)]);
        assert_eq!(marks(&console), left);
    }
}

#[test]
fn hidden_marks_are_no_matter_of_a_plan_without_them() {
    let mut console = four();
    console.press("a / ! c h a r l i e Enter d");
    console.plan("X", plan(&[("bravo", State::Scratch)]));
    let Stage::Plan(view) = &console.model.reset.stage else {
        panic!("no plan");
    };
    assert_eq!(view.hidden, [] as [&str; 0], "bravo alone was asked for");
}

#[test]
fn a_plan_hears_nothing_for_400_milliseconds() {
    let mut console = four();
    console.press("j X");
    console.answer(plan(&[("bravo", State::Scratch)]));
    let shown = console.now;
    for after in [0, 100, 399] {
        console.now = shown + Duration::from_millis(after);
        console.send(keys("y"));
        assert_eq!(console.applied(), [] as [&str; 0], "{after} ms");
    }
    console.now = shown + DEAF;
    console.send(keys("y"));
    assert_eq!(console.applied(), ["bravo"]);
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
    assert_eq!(console.send(keys("^c")), [Effect::Cancel, Effect::Quit]);
}

#[test]
fn a_plan_is_void_after_a_minute() {
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset 1");
    let effects = console.pass(VALID);
    assert_eq!(
        effects,
        [Effect::Plan(2, reset_of(&["charlie"]), false)],
        "asked for once"
    );
    assert_eq!(console.typed(), "");
    // Enter comes before the new plan does.
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
    console.answer(plan(&[("charlie", State::Drifted)]));
    assert_eq!(console.typed(), "");
    console.pass(DEAF);
    console.type_line("reset 1");
    console.press("Enter");
    assert_eq!(console.applied(), ["charlie"]);
}

#[test]
fn a_plan_whose_minute_has_passed_without_a_tick_does_not_run() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.now += VALID;
    let effects = console.send(keys("y"));
    assert_eq!(effects, [Effect::Plan(2, reset_of(&["bravo"]), false)]);
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
    assert_eq!(effects, [Effect::Plan(2, reset_of(&["bravo"]), false)]);
}

#[test]
fn a_plan_that_has_changed_clears_what_was_typed_and_says_so() {
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    console.type_line("reset");
    let mut drifted = seen("charlie", State::Drifted);
    drifted.why = "rules edited: L7".to_string();
    let effects = console.observe(vec![drifted]);
    assert_eq!(effects, [Effect::Plan(2, reset_of(&["charlie"]), false)]);
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
    let Some(Effect::Apply(applied)) = console.effects.last() else {
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
    console.send(Msg::Planned(
        1,
        Ok(Box::new(plan(&[("charlie", State::Drifted)]))),
    ));
    assert!(matches!(console.model.reset.stage, Stage::Planning(_)));
    console.send(Msg::Planned(
        2,
        Ok(Box::new(plan(&[("bravo", State::Scratch)]))),
    ));
    assert_eq!(*console.form(), Form::Key);
    console.press("Esc");
    console.send(Msg::Planned(
        2,
        Ok(Box::new(plan(&[("bravo", State::Scratch)]))),
    ));
    assert!(
        matches!(console.model.reset.stage, Stage::Empty),
        "it was left"
    );
}

#[test]
fn a_plan_that_cannot_be_made_says_why() {
    let mut console = four();
    console.press("X");
    let error = Error::new(Kind::User, "there is no agent called charlie");
    console.send(Msg::Planned(1, Err(error)));
    assert_eq!(console.model.screen, Screen::Fleet);
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
    assert_eq!(*console.form(), Form::Nothing);
    console.press("y Enter");
    assert_eq!(console.applied(), [] as [&str; 0]);
}

// ---- Input that no hand typed --------------------------------------------

#[test]
fn pasted_text_is_never_a_key() {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    assert_eq!(console.send(Msg::Paste("y".to_string())), []);
    let mut typed = four();
    typed.plan("X", plan(&[("charlie", State::Drifted)]));
    assert_eq!(typed.send(Msg::Paste("reset 1\n".to_string())), []);
    assert_eq!((typed.typed(), console.applied()), ("", vec![]));
    let mut fleet = four();
    assert_eq!(fleet.send(Msg::Paste("aXq".to_string())), []);
    assert_eq!(
        (fleet.model.screen, fleet.model.marks.len()),
        (Screen::Fleet, 0)
    );
    fleet.press("?");
    fleet.send(Msg::Paste("q".to_string()));
    assert!(fleet.model.overlay.is_some());
    fleet.press("Esc /");
    fleet.send(Msg::Paste("bra\u{1b}vo\nX".to_string()));
    assert_eq!(fleet.model.filter, "bravo", "a prompt takes one clean line");
}

#[test]
fn many_printable_keys_at_once_only_move() {
    let mut console = four();
    let burst = |text: &str| Msg::Keys(text.chars().map(|c| Key::plain(Code::Char(c))).collect());
    console.send(burst("jjjjjjjjj"));
    assert_eq!(cursor(&console), "alpha", "a held key over a slow line");
    console.send(burst("kkaXyAqq!z"));
    assert_eq!(
        cursor(&console),
        "bravo",
        "k moves, the rest does not count"
    );
    assert_eq!(
        (console.model.screen, console.model.marks.len()),
        (Screen::Fleet, 0)
    );
    assert!(console.said().contains("pasted"), "{}", console.said());
    assert_eq!(console.effects, []);
    // Eight are a quick hand's.
    console.send(burst("kkkkkkka"));
    assert_eq!(console.model.marks.len(), 4);
    console.plan("gg A X", plan(&[("charlie", State::Drifted)]));
    console.send(burst("reset 1  "));
    assert_eq!(console.typed(), "");
}

// ---- A run and its result --------------------------------------------------

fn running() -> Console {
    let mut console = four();
    console.plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("y");
    assert!(console.model.is_running());
    console
}

#[test]
fn control_c_cancels_a_run_and_then_quits() {
    let mut console = running();
    assert_eq!(console.press("^c"), [Effect::Cancel]);
    assert_eq!(console.press("^c"), [Effect::Cancel, Effect::Quit]);
    for screen in ["1", "7"] {
        let mut console = running();
        console.press(screen);
        assert_eq!(
            console.press("^c"),
            [Effect::Cancel],
            "also from another screen"
        );
    }
    assert_eq!(four().press("^c"), [Effect::Cancel, Effect::Quit]);
}

#[test]
fn a_run_can_be_left_and_comes_back_and_nothing_else_is_planned_meanwhile() {
    let mut console = running();
    console.send(Msg::Progress(Progress::Stage(
        "bravo".to_string(),
        Step::Swap,
    )));
    console.press("q");
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(console.model.is_running());
    assert_eq!(console.press("X z"), []);
    assert!(console.said().contains("in progress"), "{}", console.said());
    console.press("5");
    assert_eq!(console.model.screen, Screen::Reset);
    let effects = console.send(Msg::Ended(Box::new(report(&[(
        "bravo",
        Outcome::Ok,
        None,
    )]))));
    assert_eq!(
        effects,
        [Effect::Read(vec!["bravo".to_string()]), Effect::LoadLog]
    );
    assert!(matches!(console.model.reset.stage, Stage::Result(_)));
}

#[test]
fn marks_of_what_went_well_are_cleared_and_the_rest_can_be_tried_again() {
    let mut console = four();
    console.press("a");
    console.plan(
        "X",
        plan(&[("bravo", State::Scratch), ("delta", State::Scratch)]),
    );
    console.type_line("reset 2");
    console.press("Enter");
    let failed = Some("archive disk full");
    let ended = report(&[
        ("bravo", Outcome::Ok, None),
        ("delta", Outcome::Failed, failed),
    ]);
    console.send(Msg::Ended(Box::new(ended)));
    assert_eq!(marks(&console), ["alpha", "charlie", "delta"]);
    assert!(console.said().contains("1 failed"), "{}", console.said());
    assert_eq!(
        console.press("z"),
        [Effect::Plan(
            2,
            Request::Undo(UndoTarget::Run("7f3c0a11".to_string()), UndoMode::Refuse),
            false
        )],
        "of this very run"
    );
    let mut console = running();
    let ended = report(&[("bravo", Outcome::Failed, failed)]);
    console.send(Msg::Ended(Box::new(ended)));
    assert_eq!(
        console.press("r"),
        [Effect::Plan(2, reset_of(&["bravo"]), false)]
    );
}

// ---- Texts and the log -----------------------------------------------------

const BASELINE: &[u8] =
    b"# Rules\none\ntwo\nthree\nfour\nfive\nsix\n.\n.\nseven\neight\nnine\n---\n";
const MEMORY: &[u8] =
    b"# Rules\none\nTWO\nthree\nfour\nfive\nsix\n.\n.\nseven\neight\nNINE\n---\nnote one\nnote two\n";

fn reading() -> Console {
    let mut console = four();
    console.send(Msg::Resize(80, 15));
    console.press("d");
    console.texts("charlie", MEMORY, Some(BASELINE));
    console
}

#[test]
fn n_goes_to_hunks_until_something_is_searched_for() {
    let mut console = reading();
    assert_eq!(
        console.model.agent.diff.hunks.len(),
        2,
        "{:?}",
        console.model.agent.diff
    );
    let hunk = |console: &Console| {
        let pane = console.model.agent.pane();
        pane.current_hunk(console.model.text_height())
    };
    console.press("gg");
    assert_eq!(hunk(&console), Some(0), "it is in sight");
    for (key, expected) in [
        ("}", Some(1)),
        ("{", Some(0)),
        ("n", Some(1)),
        ("n", Some(1)),
        ("N", Some(0)),
    ] {
        console.press(key);
        assert_eq!(hunk(&console), expected, "{key}");
    }
    console.press("/");
    console.type_line("NE");
    console.press("Enter");
    let hits = console.model.agent.pane().hits.len();
    assert!(
        hits >= 3 && console.said().contains(&format!("{hits} hits")),
        "{}",
        console.said()
    );
    let at = |console: &Console| console.model.agent.pane().hit;
    let before = at(&console);
    console.press("n");
    assert_eq!(at(&console), (before + 1) % hits);
    console.press("N");
    assert_eq!(at(&console), before);
    console.press("Esc n");
    assert_eq!(console.model.agent.pane().query, "", "hunks again");
}

#[test]
fn tabs_wrap_and_reveal_are_switches() {
    let mut console = reading();
    console.press("Tab");
    assert_eq!(console.model.agent.tab, Tab::Scratch);
    assert_eq!(console.press("}"), []);
    assert!(console.said().contains("no hunk"), "{}", console.said());
    console.press("S-Tab w .");
    let agent = &console.model.agent;
    assert_eq!(
        (agent.tab, agent.wrap, agent.reveal),
        (Tab::Diff, false, true)
    );
}

#[test]
fn texts_of_another_agent_or_an_older_generation_are_ignored() {
    let mut console = reading();
    let lines = console.model.agent.diff.lines.clone();
    console.give("alpha", (Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    assert_eq!(console.model.agent.diff.lines, lines);
    console.model.agent.generation += 100;
    console.give(
        "charlie",
        (Vec::new(), Vec::new()),
        (Vec::new(), Vec::new()),
    );
    assert_eq!(console.model.agent.diff.lines, lines);
}

#[test]
fn the_log_is_searched_and_a_run_of_it_opens_as_a_result() {
    let mut console = four();
    let runs = vec![
        run("bbbb", 10, &[("delta", Outcome::Ok)]),
        run(
            "aaaa",
            190,
            &[("alpha", Outcome::Ok), ("bravo", Outcome::Failed)],
        ),
    ];
    console.send(Msg::Log(Ok(runs.clone())));
    assert!(!dirties(&mut console, |console| drop(
        console.send(Msg::Log(Ok(runs)))
    )));
    assert_eq!(console.press("7"), [Effect::LoadLog]);
    console.press("/");
    console.type_line("AAAA");
    console.press("Enter");
    assert_eq!(console.said(), "1 hit");
    console.press("Enter");
    let Stage::Result(view) = &console.model.reset.stage else {
        panic!("{:?}", console.model.reset.stage);
    };
    assert_eq!(
        (view.run.as_str(), view.failed()),
        ("aaaa", vec!["bravo".to_string()])
    );
    console.send(Msg::Log(Err("the chain is broken".to_string())));
    assert_eq!(
        console.model.ledger_error.as_deref(),
        Some("the chain is broken")
    );
}

#[test]
fn the_log_keeps_its_row_when_something_is_said() {
    let mut console = four();
    let mut runs = vec![run("aaaa", 190, &[("alpha", Outcome::Ok)])];
    console.send(Msg::Log(Ok(runs.clone())));
    console.press("7 G");
    let opens = |console: &mut Console| {
        console.press("Enter");
        match &console.model.reset.stage {
            Stage::Result(view) => view.run.clone(),
            stage => panic!("{stage:?}"),
        }
    };
    console.send(Msg::Note(Level::Warn, "something".to_string()));
    console.send(Msg::Note(Level::Warn, "something else".to_string()));
    assert_eq!(opens(&mut console), "aaaa");
    console.press("7");
    runs.insert(0, run("bbbb", 10, &[("delta", Outcome::Ok)]));
    console.send(Msg::Log(Ok(runs)));
    assert_eq!(opens(&mut console), "aaaa");
}

#[test]
fn what_is_said_twice_is_counted() {
    let mut console = four();
    for _ in 0..3 {
        console.send(Msg::Note(Level::Warn, "again".to_string()));
    }
    assert_eq!(console.model.message.as_ref().unwrap().count, 3);
    assert_eq!(console.model.log.messages[0].count, 3);
}

#[test]
fn help_and_palette_run_what_is_chosen_and_say_why_not() {
    let mut console = four();
    console.press("? /");
    console.type_line("clear all marks");
    console.press("Enter");
    assert!(
        console.said().contains("nothing is marked"),
        "{}",
        console.said()
    );
    assert_eq!(console.model.overlay, None);
    console.press(":");
    console.type_line("agent delta");
    assert_eq!(console.press("Enter"), [Effect::Texts("delta".to_string())]);
    console.press("q :");
    console.type_line("sort size");
    console.press("Enter");
    assert_eq!(console.model.sort, Sort::Size);
    console.press(":");
    console.type_line("q");
    assert_eq!(console.press("Enter"), [Effect::Cancel, Effect::Quit]);
    let mut console = four();
    assert_eq!(console.press(": x Backspace Backspace"), []);
    assert_eq!(console.model.overlay, None, "one Backspace more closes it");
}

// ---- Everything everywhere -------------------------------------------------

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
    result.send(Msg::Ended(Box::new(failed)));
    let mut hidden = at("a / z z z Enter");
    hidden.press("X");
    hidden.answer(plan(&[
        ("bravo", State::Scratch),
        ("delta", State::Scratch),
    ]));
    hidden.pass(DEAF);
    let mut locked = at("");
    locked.model.read_only.on = true;
    let mut forced = at("");
    forced.model.read_only.forced = true;
    let mut small = reading();
    small.send(Msg::Resize(1, 1));
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
    ]
}

fn check(model: &Model, what: &str) {
    match &model.cursor {
        Some(name) => assert!(model.order.contains(name), "{what}: cursor on {name}"),
        None => assert!(model.order.is_empty(), "{what}: no cursor"),
    }
    assert!(model.top <= model.order.len(), "{what}: top {}", model.top);
    if let Some(index) = model.cursor_index() {
        let rows = model.top..model.top + model.list_height();
        assert!(rows.contains(&index), "{what}: {index} is not in {rows:?}");
    }
    for name in &model.marks {
        assert!(model.row(name).is_some(), "{what}: mark on {name}");
    }
    let pane = model.agent.pane();
    assert!(
        pane.top.0 <= pane.lines.len(),
        "{what}: pane at {:?}",
        pane.top
    );
    assert!(pane.hit == 0 || pane.hit < pane.hits.len(), "{what}: hit");
}

#[test]
fn every_command_can_be_performed_everywhere() {
    let enter = Key::plain(Code::Enter);
    for spec in TABLE {
        for (place, mut console) in places() {
            let what = format!("{} at {place}", spec.id);
            let allowed = command::enabled(spec.command, &console.model).is_ok();
            let effects = perform(&mut console.model, spec.command, enter);
            let acts = effects
                .iter()
                .any(|effect| matches!(effect, Effect::Apply(_)));
            assert!(!acts || spec.command == Command::Confirm, "{what} acts");
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
    for spec in TABLE {
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
    let keys: Vec<&'static str> = TABLE
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
            console.send(Msg::Ended(Box::new(report(&results))));
        }
        Move::End => {}
        Move::Size(columns, rows) => drop(console.send(Msg::Resize(*columns, *rows))),
        Move::Config(count) => {
            let names = NAMES[..*count]
                .iter()
                .map(|name| name.to_string())
                .collect();
            let info = console.model.fleet.clone();
            console.send(Msg::ConfigLoaded(info, names, false));
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
                // Only these two keys confirm.
                assert!(matches!(step, Move::Key("y" | "Enter") | Move::Letter('y')), "{step:?}");
            }
        }
    }
}

#[test]
fn every_prefix_of_a_key_sequence_is_known_as_one() {
    for spec in TABLE {
        for text in spec.keys {
            let sequence = keymap::parse(text).unwrap();
            for length in 1..sequence.len() {
                for context in spec.contexts {
                    let meaning = keymap::meaning(*context, &sequence[..length]);
                    assert_eq!(meaning, keymap::Meaning::Prefix, "{text}");
                }
            }
        }
    }
}

#[test]
fn an_undo_is_no_reset_of_the_whole_fleet() {
    let mut console = fleet(&[("solo", State::Scratch)]);
    console.plan("z", undo(&["solo"], false, UndoMode::Refuse));
    assert_eq!(*console.form(), Form::Key);
    assert_eq!(console.model.reset.cursor, 0);
    let Stage::Plan(view) = &console.model.reset.stage else {
        panic!("no plan");
    };
    assert_eq!((view.verb(), view.plan.act), ("undo", Act::Undo));
}
