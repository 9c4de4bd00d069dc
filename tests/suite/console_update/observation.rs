//! What was seen of agents, and what the configuration became.

use memory_shepherd::console::model::{FleetModel, ResetStage, Screen};
use memory_shepherd::console::update::{Effect, Msg};
use memory_shepherd::engine::{MemoryAddress, Observation, State};

use super::{BASELINE, MEMORY, MINUTE, SECOND, cursor, dirties, marks, order, running};
use crate::console_fleet::{Console, address, agents, four, plan, seen, unread, wrong};

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
fn run_of_another_process_reads_the_log_again() {
    let mut console = four();
    let mut after = seen("bravo", State::Clean);
    if let Some(last) = &mut after.last_run {
        last.run = "0a0961c0".to_string();
    }
    assert_eq!(console.observe(vec![after.clone()]), [Effect::LoadLog]);
    assert_eq!(console.observe(vec![after]), [], "it is known already");
}

#[test]
fn an_older_generation_and_a_stranger_are_ignored() {
    let mut console = four();
    let mut old = seen("alpha", State::Tampered);
    old.generation = 0;
    assert!(!dirties(&mut console, |console| {
        console.send(Msg::AgentsObserved(vec![
            old,
            seen("nobody", State::Tampered),
        ]));
    }));
    assert_eq!(
        console.model.find_row("alpha").unwrap().state(),
        State::Clean
    );
    assert!(console.model.find_row("nobody").is_none());
}

#[test]
fn remembered_agents_show_at_once_and_are_loading_still() {
    let mut console = unread(&["alpha", "bravo"], (120, 36));
    let old = |address| Observation {
        address,
        ..seen("bravo", State::Drifted)
    };
    let elsewhere = MemoryAddress {
        login: Some("ops@box".to_string()),
        ..address("bravo")
    };
    for unknown in [None, Some(elsewhere)] {
        console.send(Msg::SavedObservationsLoaded(vec![old(unknown)]));
        assert!(
            console
                .model
                .find_row("bravo")
                .unwrap()
                .latest_observation()
                .is_none()
        );
    }
    console.send(Msg::SavedObservationsLoaded(vec![old(Some(address(
        "bravo",
    )))]));
    let row = console.model.find_row("bravo").unwrap();
    assert_eq!(
        (row.state(), row.latest_observation().unwrap().state),
        (State::Loading, State::Drifted)
    );
    console.observe(vec![seen("bravo", State::Clean)]);
    assert_eq!(
        console.model.find_row("bravo").unwrap().state(),
        State::Clean
    );
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
fn an_agent_that_left_the_config_is_left_too() {
    let mut console = four();
    console.press("d");
    let info = console.model.fleet.clone();
    console.send(Msg::ConfigAdopted(info, agents(&["alpha"]), false));
    assert_eq!(console.model.screen, Screen::Fleet);
    // Nor is one led back to it from a plan.
    let mut planning = four();
    planning.press("d X");
    let info = planning.model.fleet.clone();
    planning.send(Msg::ConfigAdopted(info, agents(&["alpha"]), false));
    assert_eq!(planning.model.screen, Screen::Fleet);
    assert!(
        console.said().starts_with("charlie is no longer"),
        "{}",
        console.said()
    );
}

#[test]
fn a_config_error_and_a_mended_config_show() {
    let mut console = four();
    console.press("j Space");
    console.send(Msg::ConfigInvalid(vec![wrong("what?"), wrong("and that?")]));
    assert_eq!(
        console.model.config_error.as_deref(),
        Some("memory-shepherd.conf:7 and 1 more: what? (`memory-shepherd config check` tells all)")
    );
    let said: Vec<&str> = console
        .model
        .log
        .messages
        .iter()
        .map(|it| it.text.as_str())
        .collect();
    assert_eq!(
        said[1..3],
        [
            "memory-shepherd.conf:7: and that?",
            "memory-shepherd.conf:7: what?"
        ]
    );
    assert_eq!(console.model.rows.len(), 4, "the old one stays");
    let info = FleetModel {
        name: "prod-east".to_string(),
        ..console.model.fleet.clone()
    };
    let names = agents(&["echo", "delta", "bravo"]);
    console.send(Msg::ConfigAdopted(info, names, false));
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
    assert_eq!(
        console.model.find_row("bravo").unwrap().state(),
        State::Loading
    );
    assert!(
        console
            .model
            .find_row("bravo")
            .unwrap()
            .latest_observation()
            .is_some()
    );
}

#[test]
fn a_config_that_changes_takes_a_plan_with_it_but_not_a_run() {
    let mut console = four();
    console.plan("X", plan(&[("charlie", State::Drifted)]));
    let (info, names) = (console.model.fleet.clone(), agents(&["charlie"]));
    console.send(Msg::ConfigAdopted(info.clone(), names.clone(), true));
    assert!(matches!(console.model.reset.stage, ResetStage::Empty));
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(
        console.model.read_only.is_on,
        "the new one protects the fleet"
    );
    let mut console = running();
    console.send(Msg::ConfigAdopted(info, names, false));
    assert!(console.model.is_running());
}

#[test]
fn an_agent_that_moves_takes_nothing_of_what_was_seen_elsewhere_with_it() {
    let mut console = four();
    console.open("bravo", MEMORY, Some(BASELINE));
    let mut moved = agents(&["alpha", "bravo", "charlie"]);
    moved[1].1.login = Some("ops@box".to_string());
    let info = console.model.fleet.clone();
    let effects = console.send(Msg::ConfigAdopted(info, moved.clone(), false));
    assert_eq!(
        effects,
        [Effect::LoadLog, Effect::PrepareTexts("bravo".to_string())]
    );
    let row = |console: &Console| console.model.find_row("bravo").unwrap().clone();
    assert!(
        row(&console).latest_observation().is_none()
            && row(&console).last_readable_observation().is_none()
    );
    assert!(
        console
            .model
            .find_row("alpha")
            .unwrap()
            .latest_observation()
            .is_some()
    );
    assert_eq!(console.model.agent.generation, 0);
    assert!(console.model.agent.diff.lines.is_empty());
    // What was still on its way from there comes to nothing.
    let mut late = seen("bravo", State::Drifted);
    late.address = Some(address("bravo"));
    console.observe(vec![late.clone()]);
    assert!(row(&console).observation.is_none());
    late.address = Some(moved[1].1.clone());
    console.observe(vec![late]);
    assert_eq!(row(&console).state(), State::Drifted);
    // Another path, user or port is another memory, too.
    moved[1].1.memory = "/elsewhere".to_string();
    let info = console.model.fleet.clone();
    console.send(Msg::ConfigAdopted(info, moved, false));
    assert!(row(&console).latest_observation().is_none());
}

#[test]
fn an_agent_that_was_never_read_has_no_age_after_the_config_changes() {
    let mut console = unread(&["alpha"], (120, 36));
    console.observe(vec![seen("alpha", State::Unreach)]);
    let info = console.model.fleet.clone();
    console.send(Msg::ConfigAdopted(info, agents(&["alpha"]), false));
    let row = console.model.find_row("alpha").unwrap();
    assert!(row.latest_observation().is_some() && row.last_readable_observation().is_none());
}

#[test]
fn what_an_older_version_wrote_down_has_no_address() {
    let mut old = serde_json::to_value(seen("alpha", State::Clean)).unwrap();
    assert!(old.as_object_mut().unwrap().remove("address").is_some());
    let old: Observation = serde_json::from_value(old).unwrap();
    assert_eq!(old.address, None);
}
