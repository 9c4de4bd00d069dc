//! Bytes that the console writes to the terminal: an emulator that reads them shows the
//! drawn frame, their number stays within budgets, and text from agents is never
//! anything but text.

mod memory;

use std::io::{self, Write};
use std::time::Duration;

use memory_shepherd::archive::{EntryKind, WrittenEntry};
use memory_shepherd::base::digest::Digest;
use memory_shepherd::console::keys::key_guard::KEY_GUARD_TIME;
use memory_shepherd::console::message::Msg;
use memory_shepherd::console::screens::fleet::visible_agents::{
    refresh_visible_agents, visible_rows,
};
use memory_shepherd::console::screens::log::state::MessageLevel;
use memory_shepherd::console::shell::terminal::{FramePacer, Painter, TerminalFeatures};
use memory_shepherd::console::theme::{BUILT_IN_THEMES, Theme};
use memory_shepherd::console::view;
use memory_shepherd::engine::{
    BaselineList, BaselineState, FindingSubject, Outcome, RunProgress, RunStage as Step, State,
    UndoMode,
};
use proptest::prelude::*;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

use crate::console_fixture::{TestConsole, fleet_of, keys_message, opened_baseline};
use crate::engine_samples::{
    baseline_list, baseline_plan, baseline_summary, baseline_texts, baseline_versions,
    config_error_of, finding, observation_of, plan, run_report, run_summary, sample_history,
    skipped_agent, undo_plan, verification,
};
use crate::output_checker::{
    StreamKind, all_payloads, arbitrary_payload, excerpt, unexpected_output,
};
use crate::report_samples::fleet_report;
use crate::terminal::{VisibleCell, assert_same_cells, visible_cells};

const SCREEN_SIZE: (u16, u16) = (120, 36);
const BEGIN_SYNC: &[u8] = b"\x1b[?2026h";
const END_SYNC: &[u8] = b"\x1b[?2026l";

/// A terminal that records each write separately.
#[derive(Default)]
struct RecordedWrites(Vec<Vec<u8>>);

impl Write for RecordedWrites {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A console whose frames pass through the real backend into an emulator.
struct EmulatedConsole {
    /// Whether the emulator and the program agree on the width of every drawn
    /// character.
    has_exact_widths: bool,
    console: TestConsole,
    theme: Theme,
    painter: Painter<RecordedWrites>,
    emulator: vt100::Parser,
}

impl EmulatedConsole {
    fn new(console: TestConsole) -> EmulatedConsole {
        EmulatedConsole::with_theme(console, "terminal")
    }

    fn with_theme(console: TestConsole, theme: &str) -> EmulatedConsole {
        let (columns, rows) = SCREEN_SIZE;
        EmulatedConsole {
            has_exact_widths: true,
            console,
            theme: Theme::built_in(theme).unwrap(),
            painter: Painter::new(
                RecordedWrites::default(),
                TerminalFeatures::from_term("xterm-256color", "truecolor"),
            ),
            emulator: vt100::Parser::new(rows, columns, 0),
        }
    }

    /// Draws if something changed; returns the number of bytes written.
    fn draw_frame(&mut self, what: &str) -> usize {
        if !self.console.model.is_dirty {
            return 0;
        }
        self.painter.draw(&self.console.model, &self.theme).unwrap();
        self.console.model.is_dirty = false;
        let writes = std::mem::take(&mut self.painter.out().0);
        if writes.is_empty() {
            self.assert_emulator_matches(what);
            return 0;
        }
        assert_eq!(writes.len(), 1, "{what}: not one write per frame");
        let bytes = &writes[0];
        assert!(
            bytes.starts_with(BEGIN_SYNC) && bytes.ends_with(END_SYNC),
            "{what}: not synchronized"
        );
        let inside = &bytes[BEGIN_SYNC.len()..bytes.len() - END_SYNC.len()];
        let nested = inside.windows(7).any(|bytes| bytes == &BEGIN_SYNC[..7]);
        assert!(!nested, "{what}: not one synchronized update");
        self.emulator.process(bytes);
        let mut found = unexpected_output(StreamKind::Screen, bytes);
        if !self.has_exact_widths {
            found.retain(|found| found != "U+200D" && found != "U+FE0F");
        }
        let text = String::from_utf8_lossy(inside);
        assert_eq!(found, Vec::<String>::new(), "{what}: {text:?}");
        let count = bytes.len();
        self.assert_emulator_matches(what);
        count
    }

    fn assert_emulator_matches(&self, what: &str) {
        let (mut shown, mut drawn) = (visible_cells(self.emulator.screen()), self.rendered_cells());
        for (shown, drawn) in shown.iter_mut().flatten().zip(drawn.iter_mut().flatten()) {
            // The emulator cannot represent text that is both bold and dim.
            if drawn.attributes[..2] == [true, true] {
                drawn.attributes[..2].fill(false);
                shown.attributes[..2].fill(false);
            }
        }
        if self.has_exact_widths {
            return assert_same_cells(&shown, &drawn, what);
        }
        for (row, cells) in drawn.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                if cell.text.is_ascii() && cell.text != " " {
                    assert_eq!(shown[row][column], *cell, "{what}: {row}, {column}");
                }
            }
        }
    }

    /// Returns the drawn frame, before the backend encodes it.
    fn rendered_cells(&self) -> Vec<Vec<VisibleCell>> {
        let mut terminal =
            ratatui::Terminal::new(TestBackend::new(SCREEN_SIZE.0, SCREEN_SIZE.1)).unwrap();
        let draw = |frame: &mut ratatui::Frame<'_>| {
            view::draw(&self.console.model, &self.theme, frame.buffer_mut());
        };
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |row| {
            let cell = |column| visible_cell(&buffer[(column, row)]);
            (0..SCREEN_SIZE.0).map(cell).collect()
        };
        (0..SCREEN_SIZE.1).map(row).collect()
    }

    fn emulator_row(&self, row: u16) -> String {
        let mut rows = self.emulator.screen().rows(0, SCREEN_SIZE.0);
        rows.nth(row.into()).unwrap_or_default()
    }
}

fn visible_cell(cell: &Cell) -> VisibleCell {
    let colour = |colour: Color| match colour {
        Color::Reset => vt100::Color::Default,
        Color::Indexed(index) => vt100::Color::Idx(index),
        Color::Rgb(r, g, b) => vt100::Color::Rgb(r, g, b),
        named => {
            let all = [
                Color::Black,
                Color::Red,
                Color::Green,
                Color::Yellow,
                Color::Blue,
                Color::Magenta,
                Color::Cyan,
                Color::Gray,
                Color::DarkGray,
                Color::LightRed,
                Color::LightGreen,
                Color::LightYellow,
                Color::LightBlue,
                Color::LightMagenta,
                Color::LightCyan,
                Color::White,
            ];
            let index = all.iter().position(|other| *other == named);
            vt100::Color::Idx(index.unwrap() as u8)
        }
    };
    let attributes = [
        Modifier::BOLD,
        Modifier::DIM,
        Modifier::ITALIC,
        Modifier::UNDERLINED,
        Modifier::REVERSED,
    ];
    let attributes = attributes.map(|attribute| cell.modifier.contains(attribute));
    VisibleCell::new(cell.symbol(), colour(cell.fg), colour(cell.bg), attributes)
}

/// A fleet of this many agents in a mix of states.
fn fleet_of_size(count: usize) -> TestConsole {
    let names: Vec<String> = (0..count)
        .map(|number| format!("agent-{number:02}"))
        .collect();
    let state = |number: usize| match number {
        3 => State::Tampered,
        7 | 11 => State::Drifted,
        5 => State::Error,
        13 => State::Oversize,
        number if number % 3 == 0 => State::Clean,
        _ => State::Scratch,
    };
    let agents: Vec<(&str, State)> = (0..count)
        .map(|number| (names[number].as_str(), state(number)))
        .collect();
    let mut console = fleet_of(&agents);
    let everybody: Vec<(&str, Outcome)> = names
        .iter()
        .map(|name| (name.as_str(), Outcome::Ok))
        .collect();
    console.send(Msg::LogLoaded(Ok(vec![run_summary(
        "5a10c3d2", 190, &everybody,
    )])));
    console.advance(Duration::from_secs(30));
    console
}

const BASELINE: &[u8] = include_bytes!("../../baselines/code-reviewer-MEMORY.md");

/// A memory that has drifted in three places, with notes below.
fn drifted_memory() -> Vec<u8> {
    let text = String::from_utf8(BASELINE.to_vec()).unwrap();
    let text = text
        .replacen("1. ", "1. Perhaps: ", 1)
        .replacen("4. ", "4. Never mind: ", 1)
        .replace("\n- ", "\n- And ")
        .replace("\n\n## ", "\n\nMore.\n\n## ");
    let notes = "- LH-12 waits for CI\n".repeat(60);
    (text + &notes).into_bytes()
}

/// Presses keys and returns the size in bytes of the frame that follows.
fn frame_bytes_after(wire: &mut EmulatedConsole, pressed: &str) -> usize {
    wire.console.advance(Duration::from_secs(1));
    wire.draw_frame("before");
    wire.console.send(keys_message(pressed));
    wire.draw_frame(pressed)
}

/// A baseline of 24 KB and a memory that drifted from it in many places.
fn large_drifted_pair() -> (Vec<u8>, Vec<u8>) {
    let text = String::from_utf8(BASELINE.to_vec()).unwrap();
    let (operator, _) = text.split_once("\n---\n").unwrap();
    let mut parts = Vec::new();
    while parts.iter().map(String::len).sum::<usize>() < 14_000 {
        parts.push(operator.replace("# ", &format!("# {}. ", parts.len() + 1)));
    }
    let baseline = parts.join("\n") + "\n---\n";
    let memory = baseline
        .replace("\n- ", "\n- And ")
        .replacen("\n- And ", "\n- ", 30)
        .replace("\n\n## ", "\n\nMore.\n\n## ");
    (baseline.into_bytes(), memory.into_bytes())
}

/// Frame sizes in bytes: each stays within its budget, a hard limit, and is compared
/// with its figure in `console_bytes.txt`, which shows slow growth before the limit.
struct FrameCosts {
    lines: Vec<(String, usize)>,
    over_budget: Vec<String>,
}

impl FrameCosts {
    /// Path of the figures in the repository.
    const FILE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/console_bytes.txt");

    fn record(&mut self, what: &str, bytes: usize, budget: usize) {
        self.lines.push((what.to_string(), bytes));
        if bytes > budget {
            self.over_budget
                .push(format!("{what}: {bytes} B, budget {budget} B"));
        }
    }

    /// Records the frame that follows a key.
    fn record_key(&mut self, what: &str, wire: &mut EmulatedConsole, key: &str, budget: usize) {
        self.record(what, frame_bytes_after(wire, key), budget);
    }

    /// Records the median frame of a key that is pressed so many times.
    fn record_median(
        &mut self,
        what: &str,
        wire: &mut EmulatedConsole,
        (key, times): (&str, usize),
        budget: usize,
    ) {
        let mut all: Vec<usize> = (0..times).map(|_| frame_bytes_after(wire, key)).collect();
        all.sort_unstable();
        self.record(what, all[times / 2], budget);
    }

    fn assert_within_budgets(mut self) {
        let line = |(what, bytes): &(String, usize)| format!("{what:<34}{bytes:>6}\n");
        let text: String = self.lines.iter().map(line).collect();
        println!("{text}");
        if std::env::var_os("UPDATE_BYTES").is_some() {
            std::fs::write(FrameCosts::FILE_PATH, &text).unwrap();
        }
        let known = std::fs::read_to_string(FrameCosts::FILE_PATH).unwrap_or_default();
        for (what, bytes) in &self.lines {
            let known = known.lines().find_map(|line| {
                let (name, bytes) = line.rsplit_once(' ')?;
                (name.trim_end() == what).then(|| bytes.parse::<usize>().unwrap())
            });
            match known {
                Some(known) if *bytes <= known + known / 10 => {}
                Some(known) => self
                    .over_budget
                    .push(format!("{what}: {bytes} B, it was {known} B")),
                None => self
                    .over_budget
                    .push(format!("{what}: {bytes} B, and there is no figure")),
            }
        }
        assert!(
            self.over_budget.is_empty(),
            "{}\n\n{text}\nto accept the figures: UPDATE_BYTES=1 cargo test console_bytes",
            self.over_budget.join("\n")
        );
    }
}

#[test]
fn frames_stay_within_byte_budgets() {
    let mut costs = FrameCosts {
        lines: Vec::new(),
        over_budget: Vec::new(),
    };
    let mut wire = EmulatedConsole::new(fleet_of_size(24));
    measure_cursor(&mut costs, &mut wire);
    measure_prompts(&mut costs, &mut wire);
    measure_observations(&mut costs, &mut wire);
    measure_trouble(&mut costs, &mut wire);
    measure_agent(&mut costs, &mut wire);
    measure_baselines(&mut costs);
    measure_editor(&mut costs);
    measure_dark_theme(&mut costs);
    costs.assert_within_budgets();
}

fn measure_cursor(costs: &mut FrameCosts, wire: &mut EmulatedConsole) {
    costs.record("first paint", wire.draw_frame("first paint"), 12_000);
    costs.record_key("cursor down", wire, "j", 600);
    let held = (0..10).map(|_| {
        wire.console.now += Duration::from_millis(33);
        wire.console.send(keys_message("j"));
        wire.draw_frame("held")
    });
    costs.record("cursor down, held", held.max().unwrap(), 300);
    let mut many = EmulatedConsole::new(fleet_of_size(200));
    many.draw_frame("first paint");
    costs.record_key("page of the fleet", &mut many, "PgDn", 3_500);
    costs.record_median("fleet, one line", &mut many, ("j", 20), 600);
}

fn measure_prompts(costs: &mut FrameCosts, wire: &mut EmulatedConsole) {
    costs.record_key("open help", wire, "?", 3_000);
    costs.record_key("close help", wire, "Esc", 6_000);
    costs.record_key("open palette", wire, ":", 4_000);
    frame_bytes_after(wire, "Esc");
    costs.record_key("filter prompt", wire, "/", 600);
    costs.record_key("filter character, all stay", wire, "a", 1_500);
    costs.record_key("filter character, 10 stay", wire, "-", 1_500);
    costs.record_key("filter character, to one", wire, "7", 1_500);
    frame_bytes_after(wire, "Esc");
}

fn measure_observations(costs: &mut FrameCosts, wire: &mut EmulatedConsole) {
    wire.draw_frame("before");
    let mut changed = observation_of("agent-01", State::Scratch);
    changed.content.as_mut().unwrap().scratch_lines = 41;
    changed.content.as_mut().unwrap().size += 40;
    wire.console.observe(vec![changed]);
    costs.record("one changed row", wire.draw_frame("changed"), 250);
    wire.console
        .observe(vec![observation_of("agent-02", State::Scratch)]);
    costs.record("nothing new was seen", wire.draw_frame("nothing"), 0);
    let mut idle = 0;
    for _ in 0..60 {
        wire.console.advance(Duration::from_secs(1));
        idle += wire.draw_frame("idle");
    }
    costs.record("an idle minute", idle, 0);
}

/// Measures what new trouble costs on another screen, where the console stays idle then.
fn measure_trouble(costs: &mut FrameCosts, wire: &mut EmulatedConsole) {
    frame_bytes_after(wire, "8");
    wire.console
        .observe(vec![observation_of("agent-03", State::Drifted)]);
    costs.record("new trouble", wire.draw_frame("trouble"), 250);
    let mut idle = 0;
    for _ in 0..60 {
        wire.console.advance(Duration::from_secs(1));
        idle += wire.draw_frame("idle");
    }
    costs.record("new trouble, idle minute", idle, 0);
    wire.console
        .observe(vec![observation_of("agent-03", State::Scratch)]);
    wire.draw_frame("well again");
    frame_bytes_after(wire, "1");
}

fn measure_agent(costs: &mut FrameCosts, wire: &mut EmulatedConsole) {
    costs.record_key("mark", wire, "Space", 600);
    costs.record_key("open an agent", wire, "d", 3_500);
    let name = wire.console.model.agent.agent.clone();
    let (baseline, memory) = large_drifted_pair();
    wire.console.load_texts(&name, &memory, Some(&baseline));
    costs.record("its text", wire.draw_frame("text"), 3_500);
    costs.record_median("diff, one line", wire, ("j", 40), 150);
    costs.record_median("diff, one line back", wire, ("k", 40), 150);
    costs.record_key("diff, half a page", wire, "^d", 3_500);
    costs.record_key("diff, a page", wire, "PgDn", 3_500);
    costs.record_key("next hunk", wire, "n", 3_500);
    wire.console
        .load_texts(&name, &drifted_memory(), Some(BASELINE));
    wire.draw_frame("text");
    costs.record_key("its scratch", wire, "Tab", 3_500);
    costs.record_median("scratch, one line", wire, ("j", 20), 150);
    costs.record_key("back to the fleet", wire, "q", 6_000);
}

/// Returns a list of as many baselines as the fleet has agents.
fn large_baseline_list() -> BaselineList {
    let of = |number: usize| {
        let state = match number {
            0 => BaselineState::Changed,
            1..3 => BaselineState::Behind,
            _ => BaselineState::Ok,
        };
        baseline_summary(&format!("agent-{number:02}"), state)
    };
    baseline_list((0..24).map(of).collect())
}

fn measure_baselines(costs: &mut FrameCosts) {
    let mut wire = EmulatedConsole::new(fleet_of_size(24));
    wire.draw_frame("first paint");
    wire.console.press("3");
    wire.console.load_baselines(large_baseline_list());
    costs.record("baselines", wire.draw_frame("baselines"), 6_000);
    wire.console.press("gg");
    wire.draw_frame("their first");
    costs.record_key("baselines, cursor down", &mut wire, "j", 600);
    costs.record_key("baselines, mark", &mut wire, "Space", 600);
    costs.record_key("open a comparison", &mut wire, "Enter", 3_500);
    let (old, new) = large_drifted_pair();
    let [old, new] = [old, new].map(|text| String::from_utf8(text).unwrap());
    wire.console.load_comparison(&old, &new);
    costs.record("its text", wire.draw_frame("comparison"), 3_500);
    costs.record_median("comparison, one line", &mut wire, ("j", 40), 150);
    costs.record_key("comparison, a page", &mut wire, "PgDn", 3_500);
    frame_bytes_after(&mut wire, "S");
    let request = wire.console.model.baseline_plan.plan.requests.last_id;
    let prepared = baseline_plan(&["agent-00"], true);
    wire.console
        .send(Msg::BaselinePlanMade(request, Ok(Box::new(prepared))));
    costs.record("seal plan", wire.draw_frame("seal plan"), 3_500);
    wire.console.advance(KEY_GUARD_TIME);
    wire.draw_frame("its guard");
    costs.record_key("seal plan, typed letter", &mut wire, "s", 150);
    frame_bytes_after(&mut wire, "Esc");
    frame_bytes_after(&mut wire, "6");
    wire.console
        .send(Msg::Verified(Ok(Box::new(verification(Vec::new())))));
    costs.record("verification", wire.draw_frame("verification"), 3_500);
    costs.record_key("verification, cursor down", &mut wire, "j", 600);
    wire.console.send(Msg::Tick);
    costs.record("verification, idle", wire.draw_frame("idle"), 0);
}

/// Measures a theme with a background and 24-bit colors, which may need more bytes.
fn measure_editor(costs: &mut FrameCosts) {
    let mut wire = EmulatedConsole::new(fleet_of_size(24));
    wire.draw_frame("fleet");
    let rule = "- Ask before running any command that deletes, and say what it deletes and why.\n";
    let text = format!("# Rules\n\n{}", rule.repeat(400));
    let agent = wire.console.model.fleet.cursor_agent.clone().unwrap();
    wire.console
        .open_editor(opened_baseline(&[&agent], text.as_bytes()));
    let bytes = wire.draw_frame("editor");
    costs.record("open the editor", bytes, 5000);
    costs.record_key("editor, cursor down", &mut wire, "j", 150);
    wire.console.press("i");
    wire.draw_frame("typing");
    wire.console.press("a");
    wire.draw_frame("typed");
    costs.record_key("editor, typed character", &mut wire, "b", 150);
    wire.console.press("Esc");
    wire.console.press("gg");
    for _ in 0..26 {
        wire.console.press("j");
    }
    wire.draw_frame("scrolled");
    costs.record_median("editor, scrolled line", &mut wire, ("j", 9), 300);
}

fn measure_dark_theme(costs: &mut FrameCosts) {
    let mut wire = EmulatedConsole::with_theme(fleet_of_size(24), "dark");
    costs.record("dark: first paint", wire.draw_frame("first paint"), 12_000);
    costs.record_key("dark: cursor down", &mut wire, "j", 600);
    frame_bytes_after(&mut wire, "d");
    let name = wire.console.model.agent.agent.clone();
    let (baseline, memory) = large_drifted_pair();
    wire.console.load_texts(&name, &memory, Some(&baseline));
    costs.record("dark: its text", wire.draw_frame("text"), 6_000);
    costs.record_median("dark: diff, one line", &mut wire, ("j", 40), 300);
    costs.record_key("dark: diff, a page", &mut wire, "PgDn", 6_000);
}

/// A key held over SSH and released: the bytes still in transit on a slow line arrive
/// soon. The test counts the line's bytes against the model's clock.
#[test]
fn released_held_key_stops_within_300_ms() {
    let repeat = Duration::from_millis(33);
    let (baseline, memory) = large_drifted_pair();
    for (theme, place) in [
        ("terminal", "fleet"),
        ("dark", "fleet"),
        ("terminal", "diff"),
        ("dark", "diff"),
        ("terminal", "scratch"),
    ] {
        let mut wire = EmulatedConsole::with_theme(fleet_of_size(200), theme);
        wire.draw_frame("first paint");
        if place != "fleet" {
            // The state at the start of a session over SSH.
            wire.console.model.text_options.is_unified = true;
            frame_bytes_after(&mut wire, "d");
            let name = wire.console.model.agent.agent.clone();
            let notes = [
                &memory[..],
                &"- LH-12 waits for CI, again\n".repeat(200).into_bytes(),
            ];
            wire.console
                .load_texts(&name, &notes.concat(), Some(&baseline));
            wire.draw_frame("text");
        }
        if place == "scratch" {
            frame_bytes_after(&mut wire, "Tab");
        }
        wire.console.advance(Duration::from_secs(5));
        wire.draw_frame("rest");
        let mut pace = FramePacer::new(true);
        let (began, mut sent, mut frames) = (wire.console.now, 0, 0);
        // The time at which the last byte of the frame arrives.
        let mut there = began;
        while wire.console.now < began + Duration::from_secs(3) {
            wire.console.send(keys_message("j"));
            let next = wire.console.now + repeat;
            // The remaining wait may end before the next key arrives.
            let wait = pace.delay_until_frame(wire.console.now, true);
            if wait < repeat {
                wire.console.now += wait;
                let bytes = wire.draw_frame("held");
                if bytes > 0 {
                    pace.record_frame(wire.console.now, bytes);
                    let takes = Duration::from_micros(
                        bytes as u64 * 1_000_000 / FramePacer::MIN_LINE_BYTES_PER_SECOND,
                    );
                    there = there.max(wire.console.now) + takes;
                    (sent, frames) = (sent + bytes, frames + 1);
                }
            }
            wire.console.now = next;
        }
        let late = there.saturating_sub(wire.console.now);
        println!("{theme}, {place}: {frames} frames, {sent} B, {late:?} late");
        assert!(
            frames >= 20,
            "{theme}, {place}: {frames} frames in three seconds"
        );
        assert!(
            late <= Duration::from_millis(300),
            "{theme}, {place}: {late:?}"
        );
    }
}

/// Visits every screen and state, and draws a frame after each step.
fn visit_every_screen(wire: &mut EmulatedConsole) {
    let mut number = 0;
    let mut go = |wire: &mut EmulatedConsole, pressed: &str| {
        for key in pressed.split(' ') {
            number += 1;
            wire.console.press(key);
            wire.draw_frame(&format!("{number}: {key} of {pressed}"));
        }
    };
    go(
        wire,
        "j j G gg Space j Space S S w ? j j / m a r k Esc Esc : s o r t Enter",
    );
    go(wire, "/ a g e n t Enter / 0 1 Enter Esc ! ! y");
    let name = wire.console.model.fleet.cursor_agent.clone().unwrap();
    go(wire, "d");
    wire.console
        .load_texts(&name, &drifted_memory(), Some(BASELINE));
    go(
        wire,
        "j j ^d w . n N t j t _ _ = = = i i f j f q Tab j G / L H Enter n Esc f j q",
    );
    go(wire, "Tab j G S-Tab Tab Tab");
    wire.console
        .send(Msg::HistoryLoaded(name.clone(), Ok(sample_history())));
    go(wire, "j G gg Enter q S-Tab S-Tab S-Tab ] [ X");
    let mut made = plan(&[
        (name.as_str(), State::Drifted),
        ("agent-01", State::Scratch),
    ]);
    made.skipped = vec![skipped_agent(
        "agent-03",
        State::Tampered,
        "blocked since 02:11",
    )];
    wire.console.answer_plan(made);
    wire.draw_frame("plan");
    wire.console.advance(KEY_GUARD_TIME);
    go(wire, "j j k r e s e t Space 1 Enter Backspace 2 Enter");
    wire.console.send(Msg::RunProgressed(RunProgress::Stage(
        name.clone(),
        Step::Swap,
    )));
    wire.draw_frame("progress");
    wire.console.advance(Duration::from_secs(2));
    let results = [
        (name.as_str(), Outcome::Ok, None),
        (
            "agent-01",
            Outcome::Failed,
            Some("archive disk full (needs 41K, 12K free)"),
        ),
    ];
    wire.console
        .send(Msg::RunEnded(Box::new(run_report(&results))));
    wire.draw_frame("result");
    go(wire, "j k z");
    wire.console
        .answer_plan(undo_plan(&[name.as_str()], true, UndoMode::Refuse));
    wire.draw_frame("undo");
    wire.console.advance(KEY_GUARD_TIME);
    go(wire, "j Esc 7 j G gg / 5 a Enter n Enter q 1 A");
    visit_baselines(wire);
    wire.console.send(Msg::Reported(
        MessageLevel::Error,
        "something is wrong".to_string(),
    ));
    wire.draw_frame("note");
    wire.console
        .send(Msg::ConfigInvalid(vec![config_error_of("what is this?")]));
    wire.draw_frame("config error");
    wire.console.send(Msg::LogLoaded(Err(
        "the ledger's chain is broken at 7".to_string()
    )));
    wire.draw_frame("ledger error");
}

fn visit_baselines(wire: &mut EmulatedConsole) {
    let go = |wire: &mut EmulatedConsole, pressed: &str| {
        for key in pressed.split(' ') {
            wire.console.press(key);
            wire.draw_frame(&format!("{key} of {pressed}"));
        }
    };
    go(wire, "3");
    wire.console.load_baselines(large_baseline_list());
    go(wire, "gg j Space a A G gg v");
    let name = wire.console.model.baselines.versions.name.clone();
    let records = baseline_versions("agent-00");
    wire.console
        .send(Msg::BaselineVersionsLoaded(name, Ok(records)));
    go(wire, "j G q Enter");
    let [old, new] = baseline_texts(BaselineState::Changed);
    wire.console.load_comparison(&old, &new);
    go(wire, "j t w . = _ i } { n / m e r g e Enter Esc < Esc S");
    let plan = baseline_plan(&["agent-00", "agent-01"], true);
    wire.console.answer_baseline_plan(plan);
    go(
        wire,
        "j k t j K x Esc Esc q s x Tab Enter y Esc N Tab Esc 6",
    );
    let found = vec![finding(
        FindingSubject::Ledger,
        "line 7 was changed",
        "look",
    )];
    wire.console
        .send(Msg::Verified(Ok(Box::new(verification(found)))));
    go(wire, "j G gg V ^c q 1");
}

#[test]
fn emulator_matches_every_drawn_screen() {
    for (theme, _) in BUILT_IN_THEMES {
        let mut wire = EmulatedConsole::with_theme(fleet_of_size(24), theme);
        wire.draw_frame("first paint");
        visit_every_screen(&mut wire);
    }
}

#[test]
fn forgotten_screen_is_repainted_in_one_frame() {
    let mut wire = EmulatedConsole::new(fleet_of_size(24));
    wire.draw_frame("first paint");
    wire.emulator.process(b"\x1b[H\x1b[2Jnoise from elsewhere");
    wire.painter.invalidate();
    wire.console.model.is_dirty = true;
    wire.draw_frame("again");
}

// ---- Hostile text ----------------------------------------------------------

fn chrome_rows(wire: &EmulatedConsole) -> Vec<String> {
    let (_, rows) = SCREEN_SIZE;
    [0, 1, 2, rows - 3, rows - 1]
        .map(|row| wire.emulator_row(row))
        .to_vec()
}

#[test]
fn hostile_memories_do_not_alter_other_rows() {
    let with = |memory: &[u8]| {
        let mut wire = EmulatedConsole::new(fleet_of_size(24));
        let name = wire.console.model.fleet.cursor_agent.clone().unwrap();
        wire.draw_frame("fleet");
        wire.console.press("d");
        wire.console.load_texts(&name, memory, Some(BASELINE));
        wire
    };
    let mut plain = BASELINE.to_vec();
    plain.extend(b"- a note\n");
    for payload in all_payloads() {
        // Above the boundary, in a changed line, and below it.
        let mut above = BASELINE.to_vec();
        let at = above.windows(3).position(|bytes| bytes == b"\n1.").unwrap() + 4;
        above.splice(at..at, payload.iter().copied());
        let mut memory = above;
        memory.extend(&payload);
        let what = excerpt(&payload);
        {
            let mut wire = with(&memory);
            let mut other = with(&plain);
            for keys in ["w", "w", ".", "Tab", "w", ".", "G", "j", "k"] {
                wire.draw_frame(&what);
                wire.console.press(keys);
                other.console.press(keys);
            }
            wire.draw_frame(&what);
            other.draw_frame("plain");
            // The header shows sizes and counts, which differ.
            let (mine, theirs) = (chrome_rows(&wire), chrome_rows(&other));
            assert_eq!(mine[2..], theirs[2..], "{what}");
            assert!(
                mine[0].starts_with("agent-03 !! TAMPERED local"),
                "{what}: {}",
                mine[0]
            );
            assert!(
                mine[1].trim_start().starts_with("Diff"),
                "{what}: {}",
                mine[1]
            );
            assert!(
                mine[1].contains("prod-west [PROD] RW"),
                "{what}: {}",
                mine[1]
            );
        }
    }
}

#[test]
fn hostile_names_hosts_and_notes_are_shown_as_text() {
    for payload in all_payloads() {
        let what = excerpt(&payload);
        let mut hostile = HostileConsole::new(&payload, &what);
        hostile.show_fleet();
        hostile.show_agent();
        hostile.show_plan();
        hostile.show_run();
        hostile.show_log();
        hostile.show_problems();
        hostile.show_names();
        hostile.show_editor();
    }
}

/// A console that shows a hostile text wherever foreign text can appear.
struct HostileConsole<'a> {
    wire: EmulatedConsole,
    evil: String,
    what: &'a str,
    victim: String,
}

impl HostileConsole<'_> {
    fn new<'a>(payload: &[u8], what: &'a str) -> HostileConsole<'a> {
        let wire = EmulatedConsole::new(fleet_of_size(24));
        HostileConsole {
            // The emulator drops the replacement character.
            evil: String::from_utf8_lossy(payload).replace('\u{fffd}', ""),
            what,
            victim: wire.console.model.fleet.cursor_agent.clone().unwrap(),
            wire,
        }
    }

    fn draw_frame(&mut self) {
        self.wire.draw_frame(self.what);
    }

    fn press_and_draw(&mut self, keys: &str) {
        self.wire.console.press(keys);
        self.draw_frame();
    }

    fn show_fleet(&mut self) {
        let mut observation = observation_of(&self.victim, State::Tampered);
        observation.host = self.evil.clone();
        observation.reason = self.evil.clone();
        observation.blocker.as_mut().unwrap().reason = self.evil.clone();
        observation.last_run.as_mut().unwrap().run = self.evil.clone();
        self.wire.console.model.config.config_path = self.evil.clone();
        self.wire.console.observe(vec![observation]);
        self.draw_frame();
        let header = self.wire.emulator_row(0);
        let footer = self.wire.emulator_row(SCREEN_SIZE.1 - 1);
        assert!(header.contains("prod-west [PROD] RW"), "{}", self.what);
        assert!(footer.trim_start().starts_with("d diff"), "{}", self.what);
        assert!(footer.ends_with("? help"), "{}", self.what);
    }

    fn show_agent(&mut self) {
        let console = &mut self.wire.console;
        console.press("d");
        console.load_texts(&self.victim, BASELINE, None);
        console.model.agent.findings = self.evil.clone();
        console.model.is_dirty = true;
        self.draw_frame();
        // In a prompt, and as a search.
        let console = &mut self.wire.console;
        console.press("/");
        console.send(Msg::TextPasted(self.evil.clone()));
        self.draw_frame();
        self.press_and_draw("Enter");
    }

    fn show_editor(&mut self) {
        self.wire.console.press("1 gg");
        let text = format!("# {}\n\n- rule\n", self.evil);
        let agent = self.wire.console.model.fleet.cursor_agent.clone().unwrap();
        let opened = opened_baseline(&[&agent], text.as_bytes());
        self.wire.console.open_editor(opened);
        self.draw_frame();
        for keys in ["l", "v $", "y", "G"] {
            self.press_and_draw(keys);
        }
    }

    fn show_plan(&mut self) {
        let mut made = plan(&[(self.victim.as_str(), State::Drifted)]);
        made.steps[0].notes = vec![self.evil.clone(), self.evil.clone()];
        made.steps[0].host = self.evil.clone();
        made.skipped = vec![skipped_agent("agent-01", State::Tampered, &self.evil)];
        self.wire.console.press("Esc X");
        self.wire.console.answer_plan(made);
        self.draw_frame();
    }

    fn show_run(&mut self) {
        let console = &mut self.wire.console;
        console.advance(KEY_GUARD_TIME);
        console.type_line("reset 1");
        console.press("Enter");
        let is_running = console.model.reset.is_running();
        assert!(is_running, "{}", self.what);
        self.draw_frame();
        let failed = (self.victim.as_str(), Outcome::Failed, Some(&*self.evil));
        let report = Box::new(run_report(&[failed]));
        let done = RunProgress::AgentDone(report.results[0].clone());
        self.wire.console.send(Msg::RunProgressed(done));
        self.draw_frame();
        self.wire.console.send(Msg::RunEnded(report));
        if let Some(view) = &mut self.wire.console.model.reset.last_result {
            view.lines[0].entry = Some(WrittenEntry {
                path: self.evil.clone().into(),
                kind: EntryKind::Scratch,
                digest: Digest::of(b""),
                size: 0,
                base: None,
                findings: None,
            });
        }
        self.draw_frame();
    }

    fn show_log(&mut self) {
        let failed = [(self.victim.as_str(), Outcome::Failed)];
        let mut run = run_summary("5a10c3d2", 10, &failed);
        run.events[0].note = Some(self.evil.clone());
        run.events[0].user = self.evil.clone();
        run.run_id = self.evil.clone();
        run.undone_agents = vec![self.evil.clone()];
        self.wire.console.send(Msg::LogLoaded(Ok(vec![run])));
        self.press_and_draw("7 G");
        let report = fleet_report(&self.evil, &self.evil);
        let loaded = Msg::ReportLoaded(Ok((&report).into()));
        self.wire.console.send(loaded);
        self.draw_frame();
        let failed = Msg::ReportLoaded(Err(self.evil.clone()));
        self.wire.console.send(failed);
        self.draw_frame();
        self.press_and_draw("Enter");
    }

    fn show_problems(&mut self) {
        let reported = Msg::Reported(MessageLevel::Error, self.evil.clone());
        self.wire.console.send(reported);
        self.draw_frame();
        let console = &mut self.wire.console;
        console.press("1");
        console.send(Msg::ConfigInvalid(vec![config_error_of(&self.evil)]));
        console.send(Msg::LogLoaded(Err(self.evil.clone())));
        self.draw_frame();
    }

    /// Shows names, which come from the config and may be hostile as well.
    fn show_names(&mut self) {
        let model = &mut self.wire.console.model;
        let mut rows = std::mem::take(&mut model.rows).into_rows();
        for row in rows.iter_mut().take(2) {
            row.name = format!("{}{}", self.evil, row.name);
        }
        model.rows = rows.into_iter().collect();
        model.config.name = self.evil.clone();
        model.config.tag = Some(self.evil.clone());
        refresh_visible_agents(model);
        let visible: Vec<String> = visible_rows(model, 0).map(|row| row.name.clone()).collect();
        model.fleet.marks.extend(visible);
        model.is_dirty = true;
        self.draw_frame();
        self.wire.console.press("gg :");
        self.wire.console.type_line("agent");
        self.draw_frame();
        self.press_and_draw("Enter");
    }
}

/// Terminals draw a grapheme cluster of several characters with different widths. The
/// text after it keeps its column in every case.
#[test]
fn disputed_cluster_widths_keep_neighbors_in_place() {
    let text = String::from_utf8(BASELINE.to_vec()).unwrap();
    let signs =
        "👨‍👩‍👧‍👦 family 👍🏽 thumb 🇩🇪 flag ☔️ rain 1️⃣ one a\u{301}\u{302} accents กำ thai நி tamil\n";
    let memory = text.replacen("1. ", &format!("1. {signs}2. "), 1) + signs;
    let mut wire = EmulatedConsole::new(fleet_of_size(24));
    wire.has_exact_widths = false;
    let name = wire.console.model.fleet.cursor_agent.clone().unwrap();
    wire.draw_frame("fleet");
    wire.console.press("d");
    wire.console
        .load_texts(&name, memory.as_bytes(), Some(BASELINE));
    for key in ["w", "Tab", "G", "k", "S-Tab", "w", "j"] {
        wire.draw_frame(key);
        wire.console.press(key);
    }
    wire.draw_frame("last");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Generated hostile text is drawn as text: in a diff, notes, messages of hosts,
    /// records, and a typed line.
    #[test]
    fn arbitrary_hostile_text_is_shown_as_text(payload in arbitrary_payload()) {
        let what = excerpt(&payload);
        // The emulator drops the replacement character.
        let evil = String::from_utf8_lossy(&payload).replace('\u{fffd}', "");
        let mut wire = EmulatedConsole::new(fleet_of_size(6));
        wire.has_exact_widths = false;
        let name = wire.console.model.fleet.cursor_agent.clone().unwrap();
        let mut observation = observation_of(&name, State::Drifted);
        observation.host = evil.clone();
        observation.reason = evil.clone();
        wire.console.observe(vec![observation]);
        wire.draw_frame(&what);
        wire.console.press("d");
        let text = String::from_utf8(BASELINE.to_vec()).unwrap();
        let (first, rest) = text.split_once("\n1. ").unwrap();
        let memory = [first.as_bytes(), b"\n1. ", &payload, rest.as_bytes(), &payload].concat();
        wire.console.load_texts(&name, &memory, Some(BASELINE));
        for key in ["w", ".", "t", "f", "f", "Tab", "w", "G", "/"] {
            wire.draw_frame(&what);
            wire.console.press(key);
        }
        wire.console.send(Msg::TextPasted(evil.clone()));
        wire.draw_frame(&what);
        wire.console.press("Enter Esc 7");
        let mut runs = vec![run_summary("5a10c3d2", 10, &[(name.as_str(), Outcome::Failed)])];
        runs[0].events[0].note = Some(evil.clone());
        runs[0].events[0].user = evil;
        wire.console.send(Msg::LogLoaded(Ok(runs)));
        wire.draw_frame(&what);
        wire.console.press("G Enter");
        wire.draw_frame(&what);
        // In the editor: text, cursor on each part of it, outline, typed and pasted text.
        wire.console.press("1 gg");
        let text = [b"# ", &payload[..], b"\nend\n"].concat();
        let agent = wire.console.model.fleet.cursor_agent.clone().unwrap();
        wire.console.open_editor(opened_baseline(&[&agent], &text));
        wire.draw_frame(&what);
        for key in ["l", "v", "$", "y", "j", "G", "i"] {
            wire.console.press(key);
            wire.draw_frame(&what);
        }
        wire.console.send(Msg::TextPasted(String::from_utf8_lossy(&payload).replace('\u{fffd}', "")));
        wire.draw_frame(&what);
    }
}
