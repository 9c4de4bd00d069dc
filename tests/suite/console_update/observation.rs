//! What was seen of agents, and what the configuration became.

use memory_shepherd::console::model::{Fleet, Screen, Stage};
use memory_shepherd::console::update::Msg;
use memory_shepherd::engine::State;

use super::{MINUTE, SECOND, cursor, dirties, marks, order, running};
use crate::console_fleet::{four, plan, seen, unread};

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
