//! The bytes that go to the terminal: an emulator that reads them shows what
//! was drawn, there are few of them, and nothing that an agent writes is among
//! them as anything but text.

use std::io::{self, Write};
use std::time::Duration;

use memory_shepherd::console::model::{KEY_GUARD_TIME, MessageLevel, ResetStage};
use memory_shepherd::console::term::{FramePacer, Painter, TerminalFeatures};
use memory_shepherd::console::theme::{BUILT_IN_THEMES, Theme};
use memory_shepherd::console::update::Msg;
use memory_shepherd::console::view;
use memory_shepherd::engine::{Outcome, RunProgress, RunStage as Step, State, UndoMode};
use proptest::prelude::*;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

use crate::console_fleet::{
    Console, fleet, history, keys, plan, report, run, seen, skipped, undo, wrong,
};
use crate::reader::{Stream, brief, foreign, payload, payloads};
use crate::terminal::{Seen, assert_same_grid, grid};

const SIZE: (u16, u16) = (120, 36);
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

/// A terminal that keeps every write by itself.
#[derive(Default)]
struct Writes(Vec<Vec<u8>>);

impl Write for Writes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A console whose frames go through the real backend into an emulator.
struct Wire {
    /// Whether the emulator and we agree on the width of everything drawn.
    agreed: bool,
    console: Console,
    theme: Theme,
    painter: Painter<Writes>,
    emulator: vt100::Parser,
}

impl Wire {
    fn new(console: Console) -> Wire {
        Wire::with_theme(console, "terminal")
    }

    fn with_theme(console: Console, theme: &str) -> Wire {
        let (columns, rows) = SIZE;
        Wire {
            agreed: true,
            console,
            theme: Theme::built_in(theme).unwrap(),
            painter: Painter::new(
                Writes::default(),
                TerminalFeatures::from_term("xterm-256color", "truecolor"),
            ),
            emulator: vt100::Parser::new(rows, columns, 0),
        }
    }

    /// Draws if something changed; how many bytes that took.
    fn frame(&mut self, what: &str) -> usize {
        if !self.console.model.is_dirty {
            return 0;
        }
        self.painter.draw(&self.console.model, &self.theme).unwrap();
        self.console.model.is_dirty = false;
        let writes = std::mem::take(&mut self.painter.out().0);
        if writes.is_empty() {
            self.compare(what);
            return 0;
        }
        assert_eq!(writes.len(), 1, "{what}: one write for a frame");
        let bytes = &writes[0];
        assert!(
            bytes.starts_with(BEGIN) && bytes.ends_with(END),
            "{what}: synchronized"
        );
        let inside = &bytes[BEGIN.len()..bytes.len() - END.len()];
        let nested = inside.windows(7).any(|bytes| bytes == &BEGIN[..7]);
        assert!(!nested, "{what}: one synchronized update");
        self.emulator.process(bytes);
        let mut found = foreign(Stream::Screen, bytes);
        if !self.agreed {
            found.retain(|found| found != "U+200D" && found != "U+FE0F");
        }
        let text = String::from_utf8_lossy(inside);
        assert_eq!(found, Vec::<String>::new(), "{what}: {text:?}");
        let count = bytes.len();
        self.compare(what);
        count
    }

    fn compare(&self, what: &str) {
        let (mut shown, mut drawn) = (grid(self.emulator.screen()), self.drawn());
        for (shown, drawn) in shown.iter_mut().flatten().zip(drawn.iter_mut().flatten()) {
            // The emulator knows no text that is bold and dim.
            if drawn.attributes[..2] == [true, true] {
                drawn.attributes[..2].fill(false);
                shown.attributes[..2].fill(false);
            }
        }
        if self.agreed {
            return assert_same_grid(&shown, &drawn, what);
        }
        for (row, cells) in drawn.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                if cell.text.is_ascii() && cell.text != " " {
                    assert_eq!(shown[row][column], *cell, "{what}: {row}, {column}");
                }
            }
        }
    }

    /// What was drawn, without the wire between.
    fn drawn(&self) -> Vec<Vec<Seen>> {
        let mut terminal = ratatui::Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).unwrap();
        let draw = |frame: &mut ratatui::Frame<'_>| {
            view::draw(&self.console.model, &self.theme, frame.buffer_mut());
        };
        terminal.draw(draw).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |row| {
            let cell = |column| seen_cell(&buffer[(column, row)]);
            (0..SIZE.0).map(cell).collect()
        };
        (0..SIZE.1).map(row).collect()
    }

    fn row(&self, row: u16) -> String {
        let mut rows = self.emulator.screen().rows(0, SIZE.0);
        rows.nth(row.into()).unwrap_or_default()
    }
}

fn seen_cell(cell: &Cell) -> Seen {
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
    Seen::new(cell.symbol(), colour(cell.fg), colour(cell.bg), attributes)
}

/// A fleet of this many agents in states as they are found.
fn herd(count: usize) -> Console {
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
    let mut console = fleet(&agents);
    let everybody: Vec<(&str, Outcome)> = names
        .iter()
        .map(|name| (name.as_str(), Outcome::Ok))
        .collect();
    console.send(Msg::LogLoaded(Ok(vec![run("5a10c3d2", 190, &everybody)])));
    console.pass(Duration::from_secs(30));
    console
}

const BASELINE: &[u8] = include_bytes!("../../baselines/code-reviewer-MEMORY.md");

/// A memory that has drifted in three places, with notes below.
fn drifted() -> Vec<u8> {
    let text = String::from_utf8(BASELINE.to_vec()).unwrap();
    let text = text
        .replacen("1. ", "1. Perhaps: ", 1)
        .replacen("4. ", "4. Never mind: ", 1)
        .replace("\n- ", "\n- And ")
        .replace("\n\n## ", "\n\nMore.\n\n## ");
    let notes = "- LH-12 waits for CI\n".repeat(60);
    (text + &notes).into_bytes()
}

/// Presses keys and says how many bytes the frame after them took.
fn cost(wire: &mut Wire, pressed: &str) -> usize {
    wire.console.pass(Duration::from_secs(1));
    wire.frame("before");
    wire.console.send(keys(pressed));
    wire.frame(pressed)
}

/// A baseline of 14 KB and a memory that drifted from it in many places.
fn large() -> (Vec<u8>, Vec<u8>) {
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

/// What frames cost: each figure has its budget, the most it may ever be, and is
/// compared with the one in `console_bytes.txt`, so that none creeps up to it.
struct Figures {
    lines: Vec<(String, usize)>,
    over: Vec<String>,
}

impl Figures {
    /// The figures that the repository holds.
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/console_bytes.txt");

    fn check(&mut self, what: &str, bytes: usize, budget: usize) {
        self.lines.push((what.to_string(), bytes));
        if bytes > budget {
            self.over
                .push(format!("{what}: {bytes} B, budget {budget} B"));
        }
    }

    fn end(mut self) {
        let line = |(what, bytes): &(String, usize)| format!("{what:<34}{bytes:>6}\n");
        let text: String = self.lines.iter().map(line).collect();
        println!("{text}");
        if std::env::var_os("UPDATE_BYTES").is_some() {
            std::fs::write(Figures::FILE, &text).unwrap();
        }
        let known = std::fs::read_to_string(Figures::FILE).unwrap_or_default();
        for (what, bytes) in &self.lines {
            let known = known.lines().find_map(|line| {
                let (name, bytes) = line.rsplit_once(' ')?;
                (name.trim_end() == what).then(|| bytes.parse::<usize>().unwrap())
            });
            match known {
                Some(known) if *bytes <= known + known / 10 => {}
                Some(known) => self
                    .over
                    .push(format!("{what}: {bytes} B, it was {known} B")),
                None => self
                    .over
                    .push(format!("{what}: {bytes} B, and there is no figure")),
            }
        }
        assert!(
            self.over.is_empty(),
            "{}\n\n{text}\nif it has to be: UPDATE_BYTES=1 cargo test console_bytes",
            self.over.join("\n")
        );
    }
}

fn median(mut all: Vec<usize>) -> usize {
    all.sort_unstable();
    all[all.len() / 2]
}

#[test]
fn frames_cost_no_more_than_their_budgets() {
    let mut figures = Figures {
        lines: Vec::new(),
        over: Vec::new(),
    };
    let mut budget = |what: &str, bytes: usize, most: usize| figures.check(what, bytes, most);
    let mut wire = Wire::new(herd(24));
    budget("first paint", wire.frame("first paint"), 12_000);
    budget("cursor down", cost(&mut wire, "j"), 600);
    let held = (0..10).map(|_| {
        wire.console.now += Duration::from_millis(33);
        wire.console.send(keys("j"));
        wire.frame("held")
    });
    budget("cursor down, held", held.max().unwrap(), 300);
    let mut many = Wire::new(herd(200));
    many.frame("first paint");
    budget("page of the fleet", cost(&mut many, "PgDn"), 3_500);
    let lines = (0..20).map(|_| cost(&mut many, "j")).collect();
    budget("fleet, one line", median(lines), 600);
    budget("open help", cost(&mut wire, "?"), 3_000);
    budget("close help", cost(&mut wire, "Esc"), 6_000);
    budget("open palette", cost(&mut wire, ":"), 4_000);
    cost(&mut wire, "Esc");
    budget("filter prompt", cost(&mut wire, "/"), 600);
    budget("filter character, all stay", cost(&mut wire, "a"), 1_500);
    budget("filter character, 10 stay", cost(&mut wire, "-"), 1_500);
    budget("filter character, to one", cost(&mut wire, "7"), 1_500);
    cost(&mut wire, "Esc");
    wire.frame("before");
    let mut changed = seen("agent-01", State::Scratch);
    changed.content.as_mut().unwrap().scratch_lines = 41;
    changed.content.as_mut().unwrap().size += 40;
    wire.console.observe(vec![changed]);
    budget("one changed row", wire.frame("changed"), 250);
    wire.console.observe(vec![seen("agent-02", State::Scratch)]);
    budget("nothing new was seen", wire.frame("nothing"), 0);
    let mut idle = 0;
    for _ in 0..60 {
        wire.console.pass(Duration::from_secs(1));
        idle += wire.frame("idle");
    }
    budget("an idle minute", idle, 0);
    budget("mark", cost(&mut wire, "Space"), 600);
    budget("open an agent", cost(&mut wire, "d"), 3_500);
    let name = wire.console.model.agent.agent.clone();
    let (baseline, memory) = large();
    wire.console.texts(&name, &memory, Some(&baseline));
    budget("its text", wire.frame("text"), 3_500);
    let mut lines = |key: &str| (0..40).map(|_| cost(&mut wire, key)).collect();
    budget("diff, one line", median(lines("j")), 150);
    budget("diff, one line back", median(lines("k")), 150);
    budget("diff, half a page", cost(&mut wire, "^d"), 3_500);
    budget("diff, a page", cost(&mut wire, "PgDn"), 3_500);
    budget("next hunk", cost(&mut wire, "n"), 3_500);
    wire.console.texts(&name, &drifted(), Some(BASELINE));
    wire.frame("text");
    budget("its scratch", cost(&mut wire, "Tab"), 3_500);
    let lines = (0..20).map(|_| cost(&mut wire, "j")).collect();
    budget("scratch, one line", median(lines), 150);
    budget("back to the fleet", cost(&mut wire, "q"), 6_000);
    // With a ground of its own, in all colours, a theme may cost more.
    let mut wire = Wire::with_theme(herd(24), "dark");
    budget("dark: first paint", wire.frame("first paint"), 12_000);
    budget("dark: cursor down", cost(&mut wire, "j"), 600);
    cost(&mut wire, "d");
    let name = wire.console.model.agent.agent.clone();
    wire.console.texts(&name, &memory, Some(&baseline));
    budget("dark: its text", wire.frame("text"), 6_000);
    let lines = (0..40).map(|_| cost(&mut wire, "j")).collect();
    budget("dark: diff, one line", median(lines), 300);
    budget("dark: diff, a page", cost(&mut wire, "PgDn"), 6_000);
    figures.end();
}

/// A key that is held over SSH and let go: what is still on its way over a slow
/// line is soon there. The line is counted in bytes, its time is the model's.
#[test]
fn what_a_held_key_moves_over_a_slow_line_stops_when_it_is_let_go() {
    let repeat = Duration::from_millis(33);
    let (baseline, memory) = large();
    for (theme, place) in [
        ("terminal", "fleet"),
        ("dark", "fleet"),
        ("terminal", "diff"),
        ("dark", "diff"),
        ("terminal", "scratch"),
    ] {
        let mut wire = Wire::with_theme(herd(200), theme);
        wire.frame("first paint");
        if place != "fleet" {
            // As it begins over SSH.
            wire.console.model.agent.is_unified = true;
            cost(&mut wire, "d");
            let name = wire.console.model.agent.agent.clone();
            let notes = [
                &memory[..],
                &"- LH-12 waits for CI, again\n".repeat(200).into_bytes(),
            ];
            wire.console.texts(&name, &notes.concat(), Some(&baseline));
            wire.frame("text");
        }
        if place == "scratch" {
            cost(&mut wire, "Tab");
        }
        wire.console.pass(Duration::from_secs(5));
        wire.frame("rest");
        let mut pace = FramePacer::new(true);
        let (began, mut sent, mut frames) = (wire.console.now, 0, 0);
        // When the last byte of what was drawn is there.
        let mut there = began;
        while wire.console.now < began + Duration::from_secs(3) {
            wire.console.send(keys("j"));
            let next = wire.console.now + repeat;
            // The wait that is left may end before the next key comes.
            let wait = pace.delay_until_frame(wire.console.now, true);
            if wait < repeat {
                wire.console.now += wait;
                let bytes = wire.frame("held");
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

/// Goes through every screen and state, with a frame after each step.
fn journey(wire: &mut Wire) {
    let mut number = 0;
    let mut go = |wire: &mut Wire, pressed: &str| {
        for key in pressed.split(' ') {
            number += 1;
            wire.console.press(key);
            wire.frame(&format!("{number}: {key} of {pressed}"));
        }
    };
    go(
        wire,
        "j j G gg Space j Space S S w ? j j / m a r k Esc Esc : s o r t Enter",
    );
    go(wire, "/ a g e n t Enter / 0 1 Enter Esc ! ! y");
    let name = wire.console.model.cursor_agent.clone().unwrap();
    go(wire, "d");
    wire.console.texts(&name, &drifted(), Some(BASELINE));
    go(
        wire,
        "j j ^d w . n N t j t _ _ = = = i i f j f q Tab j G / L H Enter n Esc f j q",
    );
    go(wire, "Tab j G S-Tab Tab Tab");
    wire.console
        .send(Msg::HistoryLoaded(name.clone(), Ok(history())));
    go(wire, "j G gg Enter q S-Tab S-Tab S-Tab ] [ X");
    let mut made = plan(&[
        (name.as_str(), State::Drifted),
        ("agent-01", State::Scratch),
    ]);
    made.skipped = vec![skipped("agent-03", State::Tampered, "blocked since 02:11")];
    wire.console.answer(made);
    wire.frame("plan");
    wire.console.pass(KEY_GUARD_TIME);
    go(wire, "j j k r e s e t Space 1 Enter Backspace 2 Enter");
    wire.console.send(Msg::RunProgressed(RunProgress::Stage(
        name.clone(),
        Step::Swap,
    )));
    wire.frame("progress");
    wire.console.pass(Duration::from_secs(2));
    let results = [
        (name.as_str(), Outcome::Ok, None),
        (
            "agent-01",
            Outcome::Failed,
            Some("archive disk full (needs 41K, 12K free)"),
        ),
    ];
    wire.console.send(Msg::RunEnded(Box::new(report(&results))));
    wire.frame("result");
    go(wire, "j k z");
    wire.console
        .answer(undo(&[name.as_str()], true, UndoMode::Refuse));
    wire.frame("undo");
    wire.console.pass(KEY_GUARD_TIME);
    go(wire, "j Esc 7 j G gg / 5 a Enter n Enter q 1 A");
    wire.console.send(Msg::Reported(
        MessageLevel::Error,
        "something is wrong".to_string(),
    ));
    wire.frame("note");
    wire.console
        .send(Msg::ConfigInvalid(vec![wrong("what is this?")]));
    wire.frame("config error");
    wire.console.send(Msg::LogLoaded(Err(
        "the ledger's chain is broken at 7".to_string()
    )));
    wire.frame("ledger error");
}

#[test]
fn the_emulator_shows_what_was_drawn_on_every_screen() {
    for (theme, _) in BUILT_IN_THEMES {
        let mut wire = Wire::with_theme(herd(24), theme);
        wire.frame("first paint");
        journey(&mut wire);
    }
}

#[test]
fn a_screen_that_is_forgotten_is_drawn_whole_in_one_frame() {
    let mut wire = Wire::new(herd(24));
    wire.frame("first paint");
    wire.emulator.process(b"\x1b[H\x1b[2Jnoise from elsewhere");
    wire.painter.invalidate();
    wire.console.model.is_dirty = true;
    wire.frame("again");
}

// ---- Hostile text ----------------------------------------------------------

fn chrome(wire: &Wire) -> Vec<String> {
    let (_, rows) = SIZE;
    [0, 1, 2, rows - 3, rows - 1]
        .map(|row| wire.row(row))
        .to_vec()
}

#[test]
fn hostile_memories_are_text_and_leave_the_rest_of_the_screen_alone() {
    let with = |memory: &[u8]| {
        let mut wire = Wire::new(herd(24));
        let name = wire.console.model.cursor_agent.clone().unwrap();
        wire.frame("fleet");
        wire.console.press("d");
        wire.console.texts(&name, memory, Some(BASELINE));
        wire
    };
    let mut plain = BASELINE.to_vec();
    plain.extend(b"- a note\n");
    for payload in payloads() {
        // Above the boundary, in a changed line, and below it.
        let mut above = BASELINE.to_vec();
        let at = above.windows(3).position(|bytes| bytes == b"\n1.").unwrap() + 4;
        above.splice(at..at, payload.iter().copied());
        let mut memory = above;
        memory.extend(&payload);
        let what = brief(&payload);
        {
            let mut wire = with(&memory);
            let mut other = with(&plain);
            for keys in ["w", "w", ".", "Tab", "w", ".", "G", "j", "k"] {
                wire.frame(&what);
                wire.console.press(keys);
                other.console.press(keys);
            }
            wire.frame(&what);
            other.frame("plain");
            // The header tells sizes and counts, which differ.
            let (mine, theirs) = (chrome(&wire), chrome(&other));
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
fn hostile_names_hosts_reasons_and_notes_are_text() {
    for payload in payloads() {
        // The emulator drops the replacement character.
        let evil = String::from_utf8_lossy(&payload).replace('\u{fffd}', "");
        let what = brief(&payload);
        let mut wire = Wire::new(herd(24));
        let model = &mut wire.console.model;
        model.fleet.config_path = evil.clone();
        let victim = model.cursor_agent.clone().unwrap();
        let mut observation = seen(&victim, State::Tampered);
        observation.host = evil.clone();
        observation.reason = evil.clone();
        observation.blocker.as_mut().unwrap().reason = evil.clone();
        observation.last_run.as_mut().unwrap().run = evil.clone();
        wire.console.observe(vec![observation]);
        wire.frame(&what);
        let (_, rows) = SIZE;
        assert!(wire.row(0).contains("prod-west [PROD] RW"), "{what}");
        assert!(
            wire.row(rows - 1).trim_start().starts_with("d diff"),
            "{what}"
        );
        assert!(wire.row(rows - 1).ends_with("? help"), "{what}");
        wire.console.press("d");
        wire.console.texts(&victim, BASELINE, None);
        wire.console.model.agent.findings = evil.clone();
        wire.console.model.is_dirty = true;
        wire.frame(&what);
        // In a prompt, and as a search.
        wire.console.press("/");
        wire.console.send(Msg::TextPasted(evil.clone()));
        wire.frame(&what);
        wire.console.press("Enter");
        wire.frame(&what);
        wire.console.press("Esc X");
        let mut made = plan(&[(victim.as_str(), State::Drifted)]);
        made.steps[0].notes = vec![evil.clone(), evil.clone()];
        made.steps[0].host = evil.clone();
        made.skipped = vec![skipped("agent-01", State::Tampered, &evil)];
        wire.console.answer(made);
        wire.frame(&what);
        wire.console.pass(KEY_GUARD_TIME);
        wire.console.type_line("reset 1");
        wire.console.press("Enter");
        assert!(
            matches!(wire.console.model.reset.stage, ResetStage::Run(_)),
            "{what}"
        );
        wire.frame(&what);
        let results = [(victim.as_str(), Outcome::Failed, Some(evil.as_str()))];
        let report = Box::new(report(&results));
        wire.console.send(Msg::RunProgressed(RunProgress::AgentDone(
            report.results[0].clone(),
        )));
        wire.frame(&what);
        wire.console.send(Msg::RunEnded(report));
        if let ResetStage::Result(view) = &mut wire.console.model.reset.stage {
            view.lines[0].entry = Some(memory_shepherd::archive::WrittenEntry {
                path: evil.clone().into(),
                kind: memory_shepherd::archive::EntryKind::Scratch,
                digest: memory_shepherd::digest::Digest::of(b""),
                size: 0,
                base: None,
            });
        }
        wire.frame(&what);
        let mut runs = vec![run("5a10c3d2", 10, &[(victim.as_str(), Outcome::Failed)])];
        runs[0].events[0].note = Some(evil.clone());
        runs[0].events[0].user = evil.clone();
        runs[0].run_id = evil.clone();
        runs[0].undone_agents = vec![evil.clone()];
        wire.console.send(Msg::LogLoaded(Ok(runs)));
        wire.console.press("7 G");
        wire.frame(&what);
        wire.console.press("Enter");
        wire.frame(&what);
        wire.console
            .send(Msg::Reported(MessageLevel::Error, evil.clone()));
        wire.frame(&what);
        wire.console.press("1");
        wire.console.send(Msg::ConfigInvalid(vec![wrong(&evil)]));
        wire.console.send(Msg::LogLoaded(Err(evil.clone())));
        wire.frame(&what);
        // Names come from the config; if one gets through, it is text as well.
        for row in wire.console.model.rows.iter_mut().take(2) {
            row.name = format!("{evil}{}", row.name);
        }
        wire.console.model.fleet.name = evil.clone();
        wire.console.model.fleet.tag = Some(evil.clone());
        wire.console.model.refresh_visible_agents();
        wire.console
            .model
            .marks
            .extend(wire.console.model.visible_agents.clone());
        wire.console.model.is_dirty = true;
        wire.frame(&what);
        wire.console.press("gg :");
        wire.console.type_line("agent");
        wire.frame(&what);
        wire.console.press("Enter");
        wire.frame(&what);
    }
}

/// Terminals draw a cluster of several characters as one sign or as many. What
/// stands behind it is where it belongs all the same.
#[test]
fn clusters_of_disputed_width_do_not_move_their_neighbours() {
    let text = String::from_utf8(BASELINE.to_vec()).unwrap();
    let signs =
        "👨‍👩‍👧‍👦 family 👍🏽 thumb 🇩🇪 flag ☔️ rain 1️⃣ one a\u{301}\u{302} accents กำ thai நி tamil\n";
    let memory = text.replacen("1. ", &format!("1. {signs}2. "), 1) + signs;
    let mut wire = Wire::new(herd(24));
    wire.agreed = false;
    let name = wire.console.model.cursor_agent.clone().unwrap();
    wire.frame("fleet");
    wire.console.press("d");
    wire.console.texts(&name, memory.as_bytes(), Some(BASELINE));
    for key in ["w", "Tab", "G", "k", "S-Tab", "w", "j"] {
        wire.frame(key);
        wire.console.press(key);
    }
    wire.frame("last");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// What nobody has thought of is text as well: in a diff and in notes, in words
    /// of hosts and of records, and in a line that is typed.
    #[test]
    fn hostile_text_of_any_kind_is_text(payload in payload()) {
        let what = brief(&payload);
        // The emulator drops the replacement character.
        let evil = String::from_utf8_lossy(&payload).replace('\u{fffd}', "");
        let mut wire = Wire::new(herd(6));
        wire.agreed = false;
        let name = wire.console.model.cursor_agent.clone().unwrap();
        let mut observation = seen(&name, State::Drifted);
        observation.host = evil.clone();
        observation.reason = evil.clone();
        wire.console.observe(vec![observation]);
        wire.frame(&what);
        wire.console.press("d");
        let text = String::from_utf8(BASELINE.to_vec()).unwrap();
        let (first, rest) = text.split_once("\n1. ").unwrap();
        let memory = [first.as_bytes(), b"\n1. ", &payload, rest.as_bytes(), &payload].concat();
        wire.console.texts(&name, &memory, Some(BASELINE));
        for key in ["w", ".", "t", "f", "f", "Tab", "w", "G", "/"] {
            wire.frame(&what);
            wire.console.press(key);
        }
        wire.console.send(Msg::TextPasted(evil.clone()));
        wire.frame(&what);
        wire.console.press("Enter Esc 7");
        let mut runs = vec![run("5a10c3d2", 10, &[(name.as_str(), Outcome::Failed)])];
        runs[0].events[0].note = Some(evil.clone());
        runs[0].events[0].user = evil;
        wire.console.send(Msg::LogLoaded(Ok(runs)));
        wire.frame(&what);
        wire.console.press("G Enter");
        wire.frame(&what);
    }
}
