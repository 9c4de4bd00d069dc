//! The fleet: sort order, cursor, marks, filter and navigation.

use std::time::Duration;

use memory_shepherd::console::screen::Screen;

use memory_shepherd::console::message::Effect;
use memory_shepherd::console::screens::fleet::sort_order::SortOrder;
use memory_shepherd::console::screens::fleet::visible_agents::{
    fleet_cursor_index, fleet_height, hidden_marked_agents, visible_agent,
};
use memory_shepherd::console::update::CURSOR_SETTLE_TIME;
use memory_shepherd::console::widgets::prompt::PromptPurpose;
use memory_shepherd::engine::State;

use super::{agent_order, cursor_agent, marked_agents};
use crate::console_fixture::{fleet_of, fleet_of_four, keys_message, unread_fleet};
use crate::engine_samples::observation_of;

#[test]
fn cursor_follows_worst_agent_until_moved() {
    let mut console = fleet_of_four();
    assert_eq!(
        agent_order(&console.model),
        ["charlie", "bravo", "delta", "alpha"]
    );
    assert_eq!(cursor_agent(&console), "charlie");
    console.observe(vec![observation_of("delta", State::Tampered)]);
    assert_eq!(cursor_agent(&console), "delta", "it is the worst now");
    console.press("j");
    assert_eq!(cursor_agent(&console), "charlie");
    console.observe(vec![observation_of("alpha", State::Tampered)]);
    assert_eq!(cursor_agent(&console), "charlie", "it was moved");
    assert_eq!(
        agent_order(&console.model),
        ["alpha", "delta", "charlie", "bravo"]
    );
}

/// Keys act on the agent that the operator saw under the cursor.
#[test]
fn any_key_or_pause_fixes_the_cursor() {
    for key in ["r", "d 1", "X q", "7 1"] {
        let mut console = fleet_of_four();
        console.press(key);
        console.observe(vec![observation_of("alpha", State::Tampered)]);
        assert_eq!(cursor_agent(&console), "charlie", "{key}");
    }
    let mut console = fleet_of_four();
    console.advance(CURSOR_SETTLE_TIME);
    console.observe(vec![observation_of("alpha", State::Tampered)]);
    assert_eq!(cursor_agent(&console), "charlie");
    // While agents are still loading, the worst is unknown.
    let mut console = unread_fleet(&["alpha", "bravo"], (120, 36));
    console.observe(vec![observation_of("alpha", State::Scratch)]);
    console.advance(CURSOR_SETTLE_TIME * 60);
    console.observe(vec![observation_of("bravo", State::Drifted)]);
    assert_eq!(cursor_agent(&console), "bravo");
}

#[test]
fn cursor_starts_on_the_initial_agent() {
    let agents = [
        ("alpha", State::Clean),
        ("bravo", State::Drifted),
        ("charlie", State::Tampered),
    ];
    let first = |initial: Option<&str>, filter: &str| {
        let mut console = unread_fleet(&agents.map(|(name, _)| name), (80, 24));
        console.model.fleet.initial_agent = initial.map(str::to_string);
        console.observe(
            agents
                .map(|(name, state)| observation_of(name, state))
                .to_vec(),
        );
        if !filter.is_empty() {
            console.press("/");
            console.type_line(filter);
        }
        cursor_agent(&console).to_string()
    };
    assert_eq!(first(Some("bravo"), ""), "bravo");
    assert_eq!(first(None, ""), "charlie");
    // A filter that hides it leaves the first agent shown.
    assert_eq!(first(Some("bravo"), "alpha"), "alpha");
}

#[test]
fn cursor_and_marks_follow_agent_names() {
    let mut console = fleet_of_four();
    console.press("j Space");
    assert_eq!(
        (marked_agents(&console), cursor_agent(&console)),
        (vec!["bravo"], "delta")
    );
    for keys in ["S", "S", "s n a m e Enter"] {
        console.press(keys);
        assert_eq!(
            (marked_agents(&console), cursor_agent(&console)),
            (vec!["bravo"], "delta")
        );
    }
    assert_eq!(console.model.fleet.sort_order, SortOrder::Name);
    assert_eq!(
        agent_order(&console.model),
        ["alpha", "bravo", "charlie", "delta"]
    );
    console.observe(vec![
        observation_of("delta", State::Tampered),
        observation_of("bravo", State::Clean),
    ]);
    assert_eq!(
        (marked_agents(&console), cursor_agent(&console)),
        (vec!["bravo"], "delta")
    );
    console.press("/ l t Enter");
    assert_eq!(agent_order(&console.model), ["delta"]);
    assert_eq!(
        (marked_agents(&console), cursor_agent(&console)),
        (vec!["bravo"], "delta")
    );
    let hidden: Vec<&String> = hidden_marked_agents(&console.model).collect();
    assert_eq!(hidden, ["bravo"]);
}

#[test]
fn marks_toggle_singly_by_range_and_all() {
    let mut console = fleet_of_four();
    console.press("Space j v");
    assert_eq!(
        marked_agents(&console),
        ["bravo", "charlie", "delta"],
        "from charlie down"
    );
    console.press("A");
    assert_eq!(marked_agents(&console), [] as [&str; 0]);
    console.press("/ b Enter a Esc");
    assert_eq!(marked_agents(&console), ["bravo"], "only what is shown");
    console.press("gg j Space");
    assert_eq!(
        marked_agents(&console),
        [] as [&str; 0],
        "the second time unmarks"
    );
}

#[test]
fn filter_applies_while_typed() {
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
        let mut console = fleet_of_four();
        console.press("/");
        console.type_line(typed);
        assert_eq!(agent_order(&console.model), shown, "{typed:?}");
        console.press("Enter");
        assert_eq!(agent_order(&console.model), shown, "{typed:?}");
        assert_eq!(console.model.fleet.filter, typed);
        assert_eq!(console.model.input_line, None);
        assert_eq!(
            console.model.fleet.cursor_agent.as_deref(),
            shown.first().copied(),
            "{typed:?}"
        );
    }
}

#[test]
fn canceled_filter_restores_previous_filter() {
    let mut console = fleet_of_four();
    console.press("/ b r a v o Enter / x Esc");
    assert_eq!(
        (
            console.model.fleet.filter.as_str(),
            agent_order(&console.model)
        ),
        ("bravo", vec!["bravo"])
    );
    // A new filter begins empty, and the previous one can be recalled.
    console.press("/ d");
    assert_eq!(console.model.fleet.filter, "d");
    console.press("Up Backspace");
    assert_eq!(console.model.fleet.filter, "brav");
    console.press("^u");
    assert_eq!(console.model.fleet.filter, "");
}

#[test]
fn escape_steps_back_and_keeps_marks() {
    let mut console = fleet_of_four();
    console.press("Space / a");
    let prompt = console.model.input_line.as_ref();
    assert_eq!(
        prompt.unwrap().purpose,
        PromptPurpose::Filter(Screen::Fleet)
    );
    console.press("Esc");
    assert_eq!(
        (
            console.model.input_line.is_none(),
            console.model.fleet.filter.as_str()
        ),
        (true, "")
    );
    console.press("/ a Enter");
    console.press("d");
    console.load_texts("charlie", b"one\ntwo\n---\n", Some(b"one\n---\n"));
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
        (console.model.screen, console.model.fleet.filter.as_str()),
        (Screen::Fleet, "a")
    );
    console.press("Esc");
    assert_eq!(console.model.fleet.filter, "");
    assert_eq!(console.press("Esc"), [], "it does not quit");
    assert_eq!(
        (console.message_text(), marked_agents(&console)),
        ("q quits", vec!["charlie"])
    );
}

#[test]
fn back_goes_one_level_and_only_q_quits() {
    for key in ["q", "Esc", "h", "Left"] {
        for open in ["d", "Enter", "l", "2", "7"] {
            let mut console = fleet_of_four();
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
fn minus_toggles_screens_and_brackets_step_agents() {
    let mut console = fleet_of_four();
    assert_eq!(console.press("-"), []);
    assert!(
        console.message_text().contains("no previous screen"),
        "{}",
        console.message_text()
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
        (console.model.screen, cursor_agent(&console)),
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
fn movement_keys_stop_at_both_ends() {
    let names: Vec<String> = (0..100).map(|n| format!("agent-{n:02}")).collect();
    let agents: Vec<(&str, State)> = names.iter().map(|n| (n.as_str(), State::Scratch)).collect();
    let mut console = fleet_of(&agents);
    let page = fleet_height(&console.model);
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
        assert_eq!(fleet_cursor_index(&console.model), Some(place), "{keys}");
        let top = console.model.fleet.list.top;
        assert!((top..top + page).contains(&place), "{keys}: {top}");
    }
}

#[test]
fn strip_waits_for_held_key_release() {
    let mut console = fleet_of_four();
    console.press("j");
    assert_eq!(console.model.fleet.strip_agent.as_deref(), Some("bravo"));
    for _ in 0..2 {
        console.now += Duration::from_millis(30);
        console.send(keys_message("j"));
    }
    assert_eq!(
        (
            cursor_agent(&console),
            console.model.fleet.strip_agent.as_deref()
        ),
        ("alpha", Some("bravo"))
    );
    console.advance(Duration::from_millis(80));
    assert_eq!(console.model.fleet.strip_agent.as_deref(), Some("alpha"));
}

#[test]
fn rows_stay_in_place_under_prompt_or_overlay() {
    for (open, close) in [("/", "Esc"), ("/", "Enter"), ("?", "Esc"), (":", "Esc")] {
        let mut console = fleet_of_four();
        console.press(open);
        console.observe(vec![observation_of("alpha", State::Tampered)]);
        assert_eq!(agent_order(&console.model)[0], "charlie", "{open}");
        console.press(close);
        let first = visible_agent(&console.model, 0);
        assert_eq!(first, Some("alpha"), "{open} {close}");
    }
}

#[test]
fn another_order_begins_in_its_own_direction() {
    let mut console = fleet_of_four();
    console.press("S s Down Enter");
    assert!(!console.model.fleet.is_reversed);
}

#[test]
fn message_begins_with_no_internal_name() {
    let mut console = fleet_of_four();
    console.press("A");
    assert_eq!(console.message_text(), "no agents marked");
}
