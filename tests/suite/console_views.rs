//! Text snapshots of every screen in every state, at the two most important sizes.
//!
//! `INSTA_UPDATE=always cargo test console_views` updates them, and `UPDATE_DOCS=1
//! cargo test console_page` writes keys and states into docs/console.md.

mod agent;
mod archives;
mod baseline_plan;
mod baselines;
pub mod editor;
mod fleet;
mod hosts;
mod memory;
mod overlays;
mod plan;
mod question;
mod run;
mod schedule;
mod tables;
mod verify;

use std::path::Path;

use memory_shepherd::console::message::Msg;
use memory_shepherd::console::preferences;
use memory_shepherd::console::theme::{MONOCHROME_THEME, Theme};
use memory_shepherd::console::view;
use memory_shepherd::engine::{Outcome, State};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::console_fixture::{self, TestConsole};
use crate::engine_samples::run_summary;

const TERMINAL_SIZES: [(u16, u16); 2] = [(120, 36), (80, 24)];

/// Returns what a terminal of this size shows.
fn rendered_text(console: &TestConsole, theme: &str) -> String {
    let (columns, rows) = console.model.size;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let theme = Theme::built_in(theme).unwrap();
    terminal
        .draw(|frame| view::draw(&console.model, &theme, frame.buffer_mut()))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in 0..rows {
        let mut skip = 0;
        let mut line = String::new();
        for column in 0..columns {
            let symbol = buffer[(column, row)].symbol();
            if skip == 0 {
                line.push_str(symbol);
                skip = unicode_width::UnicodeWidthStr::width(symbol).max(1);
            }
            skip -= 1;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Takes snapshots of a state at both sizes, and checks for panics at sizes that are
/// too small.
fn assert_view(name: &str, make: impl Fn(&mut TestConsole)) {
    assert_view_from(name, fleet_of_every_state, make);
}

fn assert_view_from(name: &str, first: impl Fn() -> TestConsole, make: impl Fn(&mut TestConsole)) {
    for (columns, rows) in TERMINAL_SIZES {
        let mut console = first();
        console.send(Msg::Resized(columns, rows));
        make(&mut console);
        let name = format!("{name}_{columns}x{rows}");
        insta::assert_snapshot!(name, rendered_text(&console, "terminal"));
    }
    for (columns, rows) in [(160, 50), (60, 15), (59, 15), (60, 14), (20, 5), (1, 1)] {
        let mut console = first();
        // Keys have no effect where the screen is too small to draw.
        let (width, height) = (columns.max(60), rows.max(15));
        console.send(Msg::Resized(width, height));
        make(&mut console);
        console.send(Msg::Resized(columns, rows));
        rendered_text(&console, "terminal");
        rendered_text(&console, MONOCHROME_THEME);
        // The same after a later resize.
        console.send(Msg::Resized(rows, columns));
        rendered_text(&console, "terminal");
    }
}

/// A fleet with an agent in every state.
fn fleet_of_every_state() -> TestConsole {
    let mut console = console_fixture::fleet_of(&[
        ("android-17", State::Clean),
        ("billing-bot", State::Tampered),
        ("code-reviewer", State::Drifted),
        ("docs-writer", State::Scratch),
        ("inbox-scout", State::Error),
        ("log-digger", State::NoSep),
        ("monitor-bot", State::Scratch),
        ("release-captain", State::Busy),
        ("researcher", State::Oversize),
        ("test-runner", State::Missing),
        (
            "an-agent-with-a-name-that-is-very-long-indeed",
            State::Clean,
        ),
    ]);
    let failed = [
        ("code-reviewer", Outcome::Ok),
        ("monitor-bot", Outcome::Ok),
        ("inbox-scout", Outcome::Failed),
    ];
    let mut first = run_summary("1f00d5ee", 1630, &[("researcher", Outcome::Ok)]);
    first.undone_agents = vec!["researcher".to_string()];
    console.send(Msg::LogLoaded(Ok(vec![
        run_summary("5a10c3d2", 190, &failed),
        first,
    ])));
    console
}

/// Applies the text of a preferences file.
pub fn apply_preferences(console: &mut TestConsole, text: &str) {
    let (preferences, found) = preferences::parse(text, Path::new("console.toml"));
    assert_eq!(found, []);
    console.send(Msg::PreferencesLoaded(Box::new(preferences)));
    console.press("j k");
}
