//! The fleet: order, cursor, marks, filter, and ways to and fro.

use std::time::Duration;

use memory_shepherd::console::model::{InputLine, Screen, SortOrder};
use memory_shepherd::console::update::{CURSOR_SETTLE_TIME, Effect};
use memory_shepherd::engine::State;

use super::{cursor, marks, order};
use crate::console_fleet::{fleet, four, keys, seen, unread};

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

/// A key is aimed at what the operator saw.
#[test]
fn any_key_makes_the_cursor_the_operators_and_so_does_a_moment_of_rest() {
    for key in ["r", "d 1", "X q", "7 1"] {
        let mut console = four();
        console.press(key);
        console.observe(vec![seen("alpha", State::Tampered)]);
        assert_eq!(cursor(&console), "charlie", "{key}");
    }
    let mut console = four();
    console.pass(CURSOR_SETTLE_TIME);
    console.observe(vec![seen("alpha", State::Tampered)]);
    assert_eq!(cursor(&console), "charlie");
    // While some are still being read the worst is not known.
    let mut console = unread(&["alpha", "bravo"], (120, 36));
    console.observe(vec![seen("alpha", State::Scratch)]);
    console.pass(CURSOR_SETTLE_TIME * 60);
    console.observe(vec![seen("bravo", State::Drifted)]);
    assert_eq!(cursor(&console), "bravo");
}

#[test]
fn demo_cursor_begins_where_its_keys_lead_somewhere() {
    let agents = [
        ("alpha", State::Clean),
        ("bravo", State::Busy),
        ("charlie", State::Drifted),
        ("delta", State::Tampered),
    ];
    let first = |is_demo: bool| {
        let mut console = unread(&agents.map(|(name, _)| name), (80, 24));
        console.model.is_demo_host_away = is_demo.then_some(false);
        console.observe(agents.map(|(name, state)| seen(name, state)).to_vec());
        cursor(&console).to_string()
    };
    assert_eq!([first(true), first(false)], ["charlie", "delta"]);
    // Where all are blocked it is the worst.
    let mut console = unread(&["alpha", "bravo"], (80, 24));
    console.model.is_demo_host_away = Some(false);
    console.observe(vec![
        seen("alpha", State::Busy),
        seen("bravo", State::Tampered),
    ]);
    assert_eq!(cursor(&console), "bravo");
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
    assert_eq!(console.model.sort_order, SortOrder::Name);
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
    assert_eq!(console.model.hidden_marked_agents(), ["bravo"]);
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
        assert_eq!(console.model.input_line, None);
        assert_eq!(
            console.model.cursor_agent.as_deref(),
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
    // A new one begins empty, and the one before can be recalled.
    console.press("/ d");
    assert_eq!(console.model.filter, "d");
    console.press("Up Backspace");
    assert_eq!(console.model.filter, "brav");
    console.press("^u");
    assert_eq!(console.model.filter, "");
}

#[test]
fn escape_goes_down_its_ladder_and_never_clears_marks() {
    let mut console = four();
    console.press("Space / a");
    assert!(matches!(
        console.model.input_line,
        Some(InputLine::Filter(_))
    ));
    console.press("Esc");
    assert_eq!(
        (
            console.model.input_line.is_none(),
            console.model.filter.as_str()
        ),
        (true, "")
    );
    console.press("/ a Enter");
    console.press("d");
    console.texts("charlie", b"one\ntwo\n---\n", Some(b"one\n---\n"));
    console.press("/ t w o Enter");
    assert_eq!(console.model.agent.current_pane().query, "two");
    console.press("Esc");
    assert_eq!(
        (
            console.model.screen,
            console.model.agent.current_pane().query.as_str()
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
        (console.model.screen, console.model.agent.agent.as_str()),
        (Screen::Agent, "charlie")
    );
    assert_eq!(
        console.press("]"),
        [Effect::PrepareTexts("bravo".to_string())]
    );
    assert_eq!(
        (console.model.screen, cursor(&console)),
        (Screen::Agent, "bravo")
    );
    assert_eq!(
        console.press("["),
        [Effect::PrepareTexts("charlie".to_string())]
    );
    assert_eq!(console.press("["), [], "there is none before the first");
    assert_eq!(console.model.agent.agent, "charlie");
}

#[test]
fn movement_keys_move_and_stop_at_both_ends() {
    let names: Vec<String> = (0..100).map(|n| format!("agent-{n:02}")).collect();
    let agents: Vec<(&str, State)> = names.iter().map(|n| (n.as_str(), State::Scratch)).collect();
    let mut console = fleet(&agents);
    let page = console.model.fleet_height();
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
        assert_eq!(console.model.fleet_cursor_index(), Some(place), "{keys}");
        let top = console.model.fleet_top;
        assert!((top..top + page).contains(&place), "{keys}: {top}");
    }
}

#[test]
fn the_strip_follows_a_held_key_only_when_it_is_let_go() {
    let mut console = four();
    console.press("j");
    assert_eq!(console.model.strip_agent.as_deref(), Some("bravo"));
    for _ in 0..2 {
        console.now += Duration::from_millis(30);
        console.send(keys("j"));
    }
    assert_eq!(
        (cursor(&console), console.model.strip_agent.as_deref()),
        ("alpha", Some("bravo"))
    );
    console.pass(Duration::from_millis(80));
    assert_eq!(console.model.strip_agent.as_deref(), Some("alpha"));
}

#[test]
fn rows_do_not_move_under_a_prompt_or_an_overlay_but_do_when_it_is_gone() {
    for (open, close) in [("/", "Esc"), ("/", "Enter"), ("?", "Esc"), (":", "Esc")] {
        let mut console = four();
        console.press(open);
        console.observe(vec![seen("alpha", State::Tampered)]);
        assert_eq!(order(&console.model)[0], "charlie", "{open}");
        console.press(close);
        let first = console.model.visible_agents[0].as_str();
        assert_eq!(first, "alpha", "{open} {close}");
    }
}
