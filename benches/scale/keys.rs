//! Delays from keys to their frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench_fleet::{Fleet, millis};
use crate::bench_terminal::{Terminal, cursor};
use crate::table::Table;
use crate::{is_live, local_fleet, new_directory, search_path, shows_agents, start_console};

/// Number of keys of a series, and the time after which it ends early.
const KEYS: usize = 100;
const SERIES_TIME: Duration = Duration::from_secs(8);

/// A key whose effect has not come by then has none.
const KEY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause behind a frame: that of a key repeat.
const KEY_PAUSE: Duration = Duration::from_millis(25);

/// Budgets of the median and the 99th percentile, in milliseconds.
const BUDGETS: [f64; 2] = [3.0, 16.0];

/// The sort orders.
const ORDERS: [&str; 6] = ["severity", "name", "size", "scratch", "changed", "last run"];

/// Pause between two notes of 500 a second.
const NOTE_INTERVAL: Duration = Duration::from_millis(2);

pub fn measure(table: &mut Table, size: usize) -> Option<()> {
    let directory = new_directory();
    let fleet = local_fleet(&directory, size);
    let mut console = start_console(&fleet, &search_path());
    console.until("agents", shows_agents);
    let delays = cursor_keys(&mut console, |screen| !is_live(screen));
    table.add_delays("first sweep", size, delays, BUDGETS);
    wait_until_live(&mut console);
    settle(&mut console);
    let delays = cursor_keys(&mut console, |_| true);
    table.add_delays("at rest", size, delays, BUDGETS);
    let delays = with_notes(&fleet, || cursor_keys(&mut console, |_| true));
    table.add_delays("500 notes/s", size, delays, BUDGETS);
    settle(&mut console);
    for order in ORDERS {
        sort_by(&mut console, order);
        let delays = cursor_keys(&mut console, |_| true);
        table.add_delays(&format!("by {order}"), size, delays, BUDGETS);
        let delays = reversals(&mut console);
        table.add_delays(&format!("by {order}, reversed"), size, delays, BUDGETS);
    }
    sort_by(&mut console, "changed");
    let delays = with_notes(&fleet, || cursor_keys(&mut console, |_| true));
    table.add_delays("by changed, 500 notes/s", size, delays, BUDGETS);
    settle(&mut console);
    sort_by(&mut console, "severity");
    let delays = typing(&mut console);
    table.add_delays("filter typed", size, delays, [16.0, 16.0]);
    for key in [&b"/"[..], b"agent", b"\r"] {
        console.key(key);
    }
    settle(&mut console);
    let delays = cursor_keys(&mut console, |_| true);
    table.add_delays("with a filter", size, delays, BUDGETS);
    let delays = with_notes(&fleet, || cursor_keys(&mut console, |_| true));
    table.add_delays("with a filter, 500 notes/s", size, delays, BUDGETS);
    console.key(b"\x1b");
    console.quit(b"q");
    Some(())
}

pub fn wait_until_live(console: &mut Terminal) -> Instant {
    let end = Instant::now() + Duration::from_secs(600);
    let mut last = Instant::now();
    while Instant::now() < end {
        if is_live(console.screen.screen()) {
            return last;
        }
        if let Some((at, _)) = console.take(Duration::from_millis(100)) {
            last = at;
        }
    }
    panic!("not live:\n{}", console.screen.screen().contents());
}

/// Waits until the console has drawn nothing for a while.
fn settle(console: &mut Terminal) {
    console.drain(Duration::from_millis(700));
}

/// Returns the name under the cursor: that only changes with a key.
fn cursor_agent(screen: &vt100::Screen) -> Option<String> {
    let row = screen.rows(0, 120).nth(cursor(screen)?.into())?;
    let mut words = row.split_whitespace();
    words.find(|word| word.contains("-0")).map(str::to_string)
}

/// Sends a key and waits for its effect; None when there is none.
fn delay(
    console: &mut Terminal,
    key: &[u8],
    has_effect: impl Fn(&vt100::Screen) -> bool,
) -> Option<f64> {
    let pressed = Instant::now();
    console.send(key);
    while pressed.elapsed() < KEY_TIMEOUT {
        if let Some((at, _)) = console.take(Duration::from_millis(50))
            && has_effect(console.screen.screen())
        {
            // Under load there is always a frame to come.
            let pause_end = Instant::now() + KEY_PAUSE;
            while let Some(left) = pause_end.checked_duration_since(Instant::now()) {
                console.take(left);
            }
            return Some(millis(at - pressed));
        }
    }
    None
}

/// Moves the cursor down and up.
fn cursor_keys(console: &mut Terminal, goes_on: impl Fn(&vt100::Screen) -> bool) -> Vec<f64> {
    let mut delays = Vec::new();
    let end = Instant::now() + SERIES_TIME;
    let mut is_down = true;
    while delays.len() < KEYS && Instant::now() < end && goes_on(console.screen.screen()) {
        let before = cursor_agent(console.screen.screen());
        let key: &[u8] = if is_down { b"j" } else { b"k" };
        let moved = delay(console, key, |screen| cursor_agent(screen) != before);
        delays.extend(moved);
        // At the end of the list a key has no effect.
        is_down ^= moved.is_none() || delays.len().is_multiple_of(20);
    }
    delays
}

/// Reverses the order again and again, which sorts all agents.
fn reversals(console: &mut Terminal) -> Vec<f64> {
    let is_reversed = |screen: &vt100::Screen| screen.contents().contains(", reversed");
    let mut delays = Vec::new();
    let end = Instant::now() + SERIES_TIME / 3;
    while delays.len() < KEYS / 4 && Instant::now() < end {
        let before = is_reversed(console.screen.screen());
        delays.extend(delay(console, b"S", |screen| is_reversed(screen) != before));
    }
    delays
}

fn sort_by(console: &mut Terminal, order: &str) {
    console.key(b"s");
    for key in order.bytes() {
        console.key(&[key]);
    }
    console.key(b"\r");
    settle(console);
}

/// Types a filter and cancels it, several times.
fn typing(console: &mut Terminal) -> Vec<f64> {
    let mut delays = Vec::new();
    let end = Instant::now() + SERIES_TIME;
    while delays.len() < KEYS && Instant::now() < end {
        delay(console, b"/", |screen| {
            prompt(screen).starts_with("filter:")
        });
        let text = "agent-00";
        for count in 1..=text.len() {
            let typed = format!("filter: {}", &text[..count]);
            let shown = |screen: &vt100::Screen| prompt(screen).starts_with(&typed);
            delays.extend(delay(console, &text.as_bytes()[count - 1..count], shown));
        }
        delay(console, b"\x1b", |screen| {
            !prompt(screen).starts_with("filter:")
        });
    }
    delays
}

fn prompt(screen: &vt100::Screen) -> String {
    let text = screen.contents();
    text.lines()
        .next_back()
        .unwrap_or_default()
        .trim()
        .to_string()
}

/// Runs something while agents write 500 notes a second, each to the memory of another agent.
fn with_notes<T>(fleet: &Fleet, work: impl FnOnce() -> T) -> T {
    let enough = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let stop = Arc::clone(&enough);
        scope.spawn(move || {
            let began = Instant::now();
            for (number, agent) in fleet.agents.iter().cycle().enumerate() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                fleet.note(agent);
                let due = NOTE_INTERVAL * u32::try_from(number).unwrap_or(u32::MAX);
                thread::sleep(due.saturating_sub(began.elapsed()));
            }
        });
        let result = work();
        enough.store(true, Ordering::Relaxed);
        result
    })
}
