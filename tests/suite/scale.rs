//! Growth of the console's work with the number of agents: processor time of the same step on a fleet
//! and on one eight times as large. Ratios hold on any machine, so no time is asserted;
//! `cargo bench --bench scale` prints times.

use std::time::Duration;

use memory_shepherd::console::message::Msg;
use memory_shepherd::console::theme::Theme;
use memory_shepherd::console::view;
use memory_shepherd::engine::State;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::console_fixture::{TestConsole, fleet_of, keys_message, unread_fleet};
use crate::engine_samples::observation_of;
use crate::thread_time::thread_time;

/// Number of agents of the smaller fleet, and how many times as many the larger one has.
const AGENTS: usize = 250;
const GROWTH: usize = 8;

/// Bound of the growth of a step that may look at each agent once, and of one that may not.
const LINEAR: f64 = 16.0;
const CONSTANT: f64 = 3.0;

/// Rounds of each step; the least time counts.
const ROUNDS: usize = 9;

/// Returns the states of a fleet at work.
fn agents(count: usize) -> Vec<(String, State)> {
    let state = |number: usize| match number % 50 {
        0..30 => State::Clean,
        30 => State::Drifted,
        _ => State::Scratch,
    };
    (0..count)
        .map(|number| (format!("agent-{number:05}"), state(number)))
        .collect()
}

fn fleet(count: usize) -> TestConsole {
    let agents = agents(count);
    let agents: Vec<(&str, State)> = agents
        .iter()
        .map(|(name, it)| (name.as_str(), *it))
        .collect();
    let mut console = fleet_of(&agents);
    console.press("j");
    console
}

fn draw(console: &TestConsole) {
    let (columns, rows) = console.model.size;
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    view::draw(
        &console.model,
        &Theme::built_in("mono").unwrap(),
        &mut buffer,
    );
}

/// Asserts how many times as long a step takes on the larger fleet.
#[track_caller]
fn assert_growth<T>(most: f64, prepare: impl Fn(usize) -> T, step: impl Fn(&mut T, usize)) {
    let mut fleets = [AGENTS, AGENTS * GROWTH].map(prepare);
    let mut least = [Duration::MAX; 2];
    for round in 0..ROUNDS {
        for (fleet, least) in fleets.iter_mut().zip(&mut least) {
            let began = thread_time();
            step(fleet, round);
            *least = (*least).min(thread_time() - began);
        }
    }
    let growth = least[1].as_secs_f64() / least[0].as_secs_f64();
    println!("{growth:.1} times the work for {GROWTH} times the agents: {least:?}");
    assert!(
        growth <= most,
        "{growth:.1} times the work for {GROWTH} times the agents"
    );
}

#[test]
fn cursor_key_costs_the_same_in_a_large_fleet() {
    assert_growth(CONSTANT, fleet, |console, round| {
        let key = if round % 2 == 0 { "j" } else { "k" };
        for _ in 0..20 {
            console.send(keys_message(key));
        }
    });
}

#[test]
fn frame_costs_the_same_in_a_large_fleet() {
    assert_growth(CONSTANT, fleet, |console, _| {
        for _ in 0..5 {
            draw(console);
        }
    });
}

#[test]
fn observation_costs_the_same_in_a_large_fleet() {
    assert_growth(CONSTANT, fleet, |console, round| {
        let state = [State::Scratch, State::Drifted][round % 2];
        for number in 0..5 {
            console.observe(vec![observation_of(&format!("agent-{number:05}"), state)]);
        }
    });
}

#[test]
fn typed_filter_cost_grows_at_most_linearly() {
    assert_growth(LINEAR, fleet, |console, _| {
        console.send(keys_message("/"));
        for letter in ["a", "g", "e", "n", "t"] {
            console.send(keys_message(letter));
        }
        console.send(keys_message("Esc"));
    });
}

#[test]
fn every_sort_costs_at_most_linearly() {
    assert_growth(LINEAR, fleet, |console, _| {
        console.send(keys_message("S"));
    });
}

#[test]
fn first_sweep_cost_grows_at_most_linearly() {
    let names = |count| {
        agents(count)
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    let unread = |count| {
        let names = names(count);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        unread_fleet(&names, (120, 36))
    };
    assert_growth(LINEAR, unread, |console, _| {
        let rows = console.model.rows.iter();
        let seen = rows.map(|row| observation_of(&row.name, State::Scratch));
        console.observe(seen.collect());
    });
}

#[test]
fn saved_observations_cost_grows_at_most_linearly() {
    assert_growth(LINEAR, fleet, |console, _| {
        let rows = console.model.rows.iter();
        let seen = rows.filter_map(|row| row.observation.clone()).collect();
        console.send(Msg::SavedObservationsLoaded(seen));
    });
}

#[test]
fn frame_of_marked_agents_costs_the_same() {
    let marked = |count| {
        let mut console = fleet(count);
        console.press("a");
        assert_eq!(console.model.fleet.marks.len(), count);
        console
    };
    assert_growth(CONSTANT, marked, |console, _| {
        for _ in 0..5 {
            draw(console);
        }
    });
}
