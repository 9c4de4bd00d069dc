//! Observations of agents, and config reloads.

use memory_shepherd::console::screen::Screen;

use memory_shepherd::console::screens::fleet::state::FleetConfig;

use memory_shepherd::base::digest::Digest;
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::engine::{FleetEvent, MemoryAddress, Observation, State};

use super::{
    BASELINE, MEMORY, MINUTE, SECOND, agent_order, console_with_run, cursor_agent, makes_dirty,
    marked_agents,
};
use crate::console_fixture::{TestConsole, fleet_of_four, keys_message, unread_fleet};
use crate::engine_samples::{
    config_error_of, configured_agents, local_address, observation_of, plan,
};

#[test]
fn unchanged_observation_is_not_redrawn() {
    let mut console = fleet_of_four();
    assert!(!makes_dirty(&mut console, |console| {
        console.now += SECOND;
        console.observe(vec![observation_of("bravo", State::Scratch)]);
    }));
    assert!(makes_dirty(&mut console, |console| {
        console.observe(vec![observation_of("bravo", State::Oversize)]);
    }));
}

#[test]
fn run_of_other_process_reloads_log() {
    let mut console = fleet_of_four();
    let mut after = observation_of("bravo", State::Clean);
    if let Some(last) = &mut after.last_run {
        last.run = "0a0961c0".to_string();
    }
    assert_eq!(console.observe(vec![after.clone()]), [Effect::LoadLog]);
    assert_eq!(console.observe(vec![after]), [], "it is known already");
}

#[test]
fn changed_baseline_reloads_log() {
    let mut console = fleet_of_four();
    let mut after = observation_of("bravo", State::Behind);
    after.baseline = Some(Digest::of(b"edited elsewhere"));
    // An undo key has to know who saved it.
    assert_eq!(console.observe(vec![after]), [Effect::LoadLog]);
}

#[test]
fn stale_or_unknown_observation_is_ignored() {
    let mut console = fleet_of_four();
    let mut old = observation_of("alpha", State::Tampered);
    old.generation = 0;
    assert!(!makes_dirty(&mut console, |console| {
        console.send(Msg::Fleet(FleetEvent::Observed(vec![
            old,
            observation_of("nobody", State::Tampered),
        ])));
    }));
    assert_eq!(
        console.model.find_row("alpha").unwrap().state(),
        State::Clean
    );
    assert!(console.model.find_row("nobody").is_none());
}

#[test]
fn remembered_agents_show_as_loading() {
    let mut console = unread_fleet(&["alpha", "bravo"], (120, 36));
    let old = |address| Observation {
        address,
        ..observation_of("bravo", State::Drifted)
    };
    let elsewhere = MemoryAddress {
        login: Some("ops@box".to_string()),
        ..local_address("bravo")
    };
    for unknown in [None, Some(elsewhere)] {
        console.send(Msg::SavedObservationsLoaded(vec![Box::new(old(unknown))]));
        assert!(
            console
                .model
                .find_row("bravo")
                .unwrap()
                .latest_observation()
                .is_none()
        );
    }
    console.send(Msg::SavedObservationsLoaded(vec![Box::new(old(Some(
        local_address("bravo"),
    )))]));
    let row = console.model.find_row("bravo").unwrap();
    assert_eq!(
        (row.read_state(), row.state()),
        (State::Loading, State::Drifted)
    );
    console.observe(vec![observation_of("bravo", State::Clean)]);
    assert_eq!(
        console.model.find_row("bravo").unwrap().state(),
        State::Clean
    );
}

#[test]
fn states_that_were_not_loaded_are_not_replaced() {
    let known = |console: &TestConsole| console.model.observations_to_save().map(|seen| seen.len());
    let mut console = unread_fleet(&["alpha", "bravo"], (120, 36));
    // The file of the last session may still be read.
    assert_eq!(known(&console), None);
    console.observe(vec![observation_of("alpha", State::Clean)]);
    assert_eq!(known(&console), None);
    console.send(Msg::SavedObservationsLoaded(Vec::new()));
    assert_eq!(known(&console), Some(1));
    let mut console = unread_fleet(&["alpha", "bravo"], (120, 36));
    let names = ["alpha", "bravo"];
    console.observe(
        names
            .map(|name| observation_of(name, State::Clean))
            .to_vec(),
    );
    assert_eq!(known(&console), Some(2));
}

#[test]
fn texts_show_the_state_that_they_were_read_in() {
    let mut console = fleet_of_four();
    let known = console.model.find_row("alpha").unwrap().state();
    assert_ne!(known, State::Drifted);
    console.open_agent("alpha", b"notes\n", None);
    let mut read_texts = |generation| {
        let mut texts = console.agent_texts("alpha", Default::default(), Default::default());
        texts.observation = Some(Box::new(Observation {
            generation,
            ..observation_of("alpha", State::Drifted)
        }));
        let effects = console.send(Msg::TextsPrepared(Box::new(texts)));
        // These are the texts of that state.
        let is_request = |effect: &Effect| matches!(effect, Effect::PrepareTexts(_));
        assert!(!effects.iter().any(is_request), "{effects:?}");
        console.model.find_row("alpha").unwrap().state()
    };
    // The watch has seen a newer state.
    assert_eq!(read_texts(0), known);
    assert_eq!(read_texts(u64::MAX), State::Drifted);
}

#[test]
fn idle_console_ticks_rarely_and_draws_nothing() {
    let mut console = fleet_of_four();
    console.advance(MINUTE);
    let mut ticks = 0;
    let end = console.now + 4 * MINUTE;
    let mut drawn = 0;
    while console.now < end {
        console.now = memory_shepherd::console::update::next_wake(&console.model);
        ticks += 1;
        drawn += usize::from(makes_dirty(&mut console, |console| {
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
fn agent_removed_from_config_leaves_its_screen() {
    let mut console = fleet_of_four();
    console.press("d");
    let info = console.model.config.clone();
    console.send(Msg::ConfigAdopted(
        info,
        configured_agents(&["alpha"]),
        false,
    ));
    assert_eq!(console.model.screen, Screen::Fleet);
    // Going back from a plan does not lead there either.
    let mut planning = fleet_of_four();
    planning.press("d X");
    let info = planning.model.config.clone();
    planning.send(Msg::ConfigAdopted(
        info,
        configured_agents(&["alpha"]),
        false,
    ));
    assert_eq!(planning.model.screen, Screen::Fleet);
    assert!(
        console.message_text().starts_with("charlie is no longer"),
        "{}",
        console.message_text()
    );
}

#[test]
fn typed_rest_after_config_change_is_ignored() {
    let mut console = fleet_of_four();
    let steps = [("bravo", State::Scratch), ("delta", State::Scratch)];
    console.press_and_plan("a X", plan(&steps));
    console.type_line("res");
    let info = console.model.config.clone();
    let names = configured_agents(&["alpha", "bravo", "charlie", "delta"]);
    console.send(Msg::ConfigAdopted(info, names, false));
    assert!(console.message_text().contains("closed the plan"));
    console.send(keys_message("e t Space 2"));
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(console.model.overlay.is_none());
    assert_eq!(marked_agents(&console).len(), 4, "Space marks nothing");
    console.advance(SECOND);
    console.send(keys_message("?"));
    assert!(console.model.overlay.is_some());
}

#[test]
fn worst_rows_are_visible_after_reading() {
    let names: Vec<String> = (0..60).map(|number| format!("agent-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut console = unread_fleet(&names, (80, 24));
    // A key pins the cursor to the first agent, which the others push down while they are read.
    console.press("Esc");
    let drifted = names
        .iter()
        .skip(2)
        .map(|name| observation_of(name, State::Drifted));
    console.observe(drifted.collect());
    assert!(console.model.fleet.list.top > 0);
    let clean = names
        .iter()
        .skip(2)
        .map(|name| observation_of(name, State::Clean));
    let mut all: Vec<Observation> = clean.collect();
    all.push(observation_of("agent-00", State::Drifted));
    all.push(observation_of("agent-01", State::Tampered));
    console.observe(all);
    assert_eq!(cursor_agent(&console), "agent-00");
    assert_eq!(console.model.fleet.list.top, 0);
}

#[test]
fn config_error_and_repair_are_shown() {
    let mut console = fleet_of_four();
    console.press("j Space");
    console.send(Msg::ConfigInvalid(vec![
        config_error_of("what?"),
        config_error_of("and that?"),
    ]));
    assert_eq!(
        console.model.errors.config.as_deref(),
        Some(
            "previous config in force; memory-shepherd.conf: 2 mistakes; line 7: what? (`memory-shepherd config check` lists all)"
        )
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
    let info = FleetConfig {
        name: "prod-east".to_string(),
        ..console.model.config.clone()
    };
    let names = configured_agents(&["echo", "delta", "bravo"]);
    console.send(Msg::ConfigAdopted(info, names, false));
    assert_eq!(console.model.errors.config, None);
    assert_eq!(console.model.config.name, "prod-east");
    assert_eq!(
        agent_order(&console.model),
        ["delta", "bravo", "echo"],
        "none is read yet: by the states before"
    );
    assert_eq!(
        (marked_agents(&console), cursor_agent(&console)),
        (vec!["bravo"], "delta")
    );
    assert_eq!(
        console.model.find_row("bravo").unwrap().read_state(),
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
fn config_change_discards_plan_but_not_run() {
    let mut console = fleet_of_four();
    console.press_and_plan("X", plan(&[("charlie", State::Drifted)]));
    let (info, names) = (
        console.model.config.clone(),
        configured_agents(&["charlie"]),
    );
    console.send(Msg::ConfigAdopted(info.clone(), names.clone(), true));
    assert!(console.model.reset.is_empty());
    assert_eq!(console.model.screen, Screen::Fleet);
    assert!(
        console.model.read_only.is_on,
        "the new one protects the fleet"
    );
    let mut console = console_with_run();
    console.send(Msg::ConfigAdopted(info, names, false));
    assert!(console.model.reset.is_running());
}

#[test]
fn moved_agent_discards_its_observations() {
    let mut console = fleet_of_four();
    console.open_agent("bravo", MEMORY, Some(BASELINE));
    let mut moved = configured_agents(&["alpha", "bravo", "charlie"]);
    moved[1].address.login = Some("ops@box".to_string());
    let info = console.model.config.clone();
    let effects = console.send(Msg::ConfigAdopted(info, moved.clone(), false));
    assert_eq!(
        effects,
        [Effect::LoadLog, Effect::PrepareTexts("bravo".to_string())]
    );
    let row = |console: &TestConsole| console.model.find_row("bravo").unwrap().clone();
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
    // Pending observations of the old location are ignored.
    let mut late = observation_of("bravo", State::Drifted);
    late.address = Some(local_address("bravo"));
    console.observe(vec![late.clone()]);
    assert!(row(&console).observation.is_none());
    late.address = Some(moved[1].address.clone());
    console.observe(vec![late]);
    assert_eq!(row(&console).state(), State::Drifted);
    // A different path, user or port is a different memory.
    moved[1].address.memory = "/elsewhere".to_string();
    let info = console.model.config.clone();
    console.send(Msg::ConfigAdopted(info, moved, false));
    assert!(row(&console).latest_observation().is_none());
}

#[test]
fn never_read_agent_has_no_age_after_config_change() {
    let mut console = unread_fleet(&["alpha"], (120, 36));
    console.observe(vec![observation_of("alpha", State::Unreach)]);
    let info = console.model.config.clone();
    console.send(Msg::ConfigAdopted(
        info,
        configured_agents(&["alpha"]),
        false,
    ));
    let row = console.model.find_row("alpha").unwrap();
    assert!(row.latest_observation().is_some() && row.last_readable_observation().is_none());
}

#[test]
fn observation_of_older_version_has_no_address() {
    let mut old = serde_json::to_value(observation_of("alpha", State::Clean)).unwrap();
    assert!(old.as_object_mut().unwrap().remove("address").is_some());
    let old: Observation = serde_json::from_value(old).unwrap();
    assert_eq!(old.address, None);
}
