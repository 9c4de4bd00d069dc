//! Effects of messages on the model: tables on `update`, without terminal, engine or
//! clock.

mod agent;
mod archives;
mod baseline_plan;
mod baselines;
mod editor;
mod fleet;
mod handoff;
mod hosts;
pub mod invariants;
mod keys;
mod log;
mod marked_lines;
mod memory;
mod observation;
mod plan;
mod preferences;
mod promotion;
mod protection;
mod push;
mod question;
mod run;
mod schedule;
mod trouble;
mod undo;
mod verify;

use std::time::Duration;

use memory_shepherd::console::message::Msg;
use memory_shepherd::console::model::Model;
use memory_shepherd::console::screens::fleet::visible_agents::visible_rows;
use memory_shepherd::engine::State;

use crate::console_fixture::{TestConsole, fleet_of_four};
use crate::engine_samples::plan;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn agent_order(model: &Model) -> Vec<&str> {
    visible_rows(model, 0)
        .map(|row| row.name.as_str())
        .collect()
}

fn cursor_agent(console: &TestConsole) -> &str {
    console.model.fleet.cursor_agent.as_deref().unwrap_or("")
}

fn marked_agents(console: &TestConsole) -> Vec<&str> {
    console
        .model
        .fleet
        .marks
        .iter()
        .map(String::as_str)
        .collect()
}

/// Clears the dirty flag, runs an action, and returns whether it set the flag again.
fn makes_dirty(console: &mut TestConsole, act: impl FnOnce(&mut TestConsole)) -> bool {
    console.model.is_dirty = false;
    act(console);
    console.model.is_dirty
}

/// A console with a run in progress.
fn console_with_run() -> TestConsole {
    let mut console = fleet_of_four();
    console.press_and_plan("j X", plan(&[("bravo", State::Scratch)]));
    console.press("y");
    assert!(console.model.reset.is_running());
    console
}

const BASELINE: &[u8] =
    b"# Rules\none\ntwo\nthree\nfour\nfive\nsix\n.\n.\n- seven\neight\nnine\n---\n";
const MEMORY: &[u8] =
    b"# Rules\none\nTWO\nthree\nfour\nfive\nsix\n.\n.\n- seven\neight\nNINE\n---\nnote one\nnote two\n";

/// A console that shows the texts of an agent.
fn console_with_texts() -> TestConsole {
    let mut console = fleet_of_four();
    console.send(Msg::Resized(80, 15));
    console.press("d");
    console.load_texts("charlie", MEMORY, Some(BASELINE));
    console
}
