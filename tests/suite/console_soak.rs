//! Long use in a short time: keys, pastes, sizes and events in any order, the same
//! ones for the same seed. Nothing panics, and what the terminal shows in the end
//! is what it would show had the console just begun.
//!
//! `SOAK_SECONDS=600 cargo test --test suite soak` goes on for that long, and
//! `SOAK_SEED` begins with another seed.

mod program;

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use memory_shepherd::console::command::COMMAND_TABLE;
use memory_shepherd::console::keymap::{self, Key};
use memory_shepherd::console::model::{MessageLevel, PlanRequest};
use memory_shepherd::console::term::{Painter, TerminalFeatures};
use memory_shepherd::console::text;
use memory_shepherd::console::theme::Theme;
use memory_shepherd::console::update::{Effect, Msg};
use memory_shepherd::engine::{
    Outcome, Reachability, RunDiff, RunDiffSide, RunProgress, RunStage as Step, State, UndoMode,
};
use memory_shepherd::error::{Error, ErrorKind};
use memory_shepherd::transport::sftp::askpass;

use crate::console_fleet::{
    Console, agents, fleet, history, host, host_key, passphrase, plan, report, run, seen, undo,
    wrong,
};
use crate::console_update::everywhere::check;
use crate::fuzz::Numbers;
use crate::reader::{brief, payloads};
use crate::terminal::{Seen, assert_same_grid, grid};

const NAMES: [&str; 7] = [
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf",
];
const HOSTS: [&str; 3] = ["harbour", "cliff", "dune:2222"];
const BASELINE: &str = include_str!("../../baselines/code-reviewer-MEMORY.md");

/// What is typed in one go.
const LINES: &[&str] = &[
    "reset 1\r",
    "reset 2\r",
    "undo 1\r",
    "prod-west\r",
    "/is:drifted\r",
    "/!alpha ~bo\r",
    "/the\r",
    ":agent bravo\r",
    ":sort changed\r",
    ":theme dark\r",
    ":theme mono\r",
    ":help\r",
    "?wrap\r",
];

/// How many steps a seed is good for.
const STEPS: usize = 1_000;

/// Says where it was when something panics.
struct Place {
    seed: u64,
    step: usize,
    did: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        if thread::panicking() {
            println!(
                "SOAK_SEED={} at step {}: {}",
                self.seed, self.step, self.did
            );
        }
    }
}

struct Soak {
    console: Console,
    theme: Theme,
    painter: Painter<Vec<u8>>,
    emulator: vt100::Parser,
    numbers: Numbers,
    /// What was asked for and was not answered yet.
    due: VecDeque<Effect>,
    keys: Vec<Key>,
    payloads: Vec<String>,
    place: Place,
}

impl Soak {
    fn new(seed: u64) -> Soak {
        let states = NAMES.iter().zip(State::ALL);
        let console = fleet(
            &states
                .map(|(name, state)| (*name, state))
                .collect::<Vec<_>>(),
        );
        let sequences = COMMAND_TABLE.iter().flat_map(|spec| spec.keys);
        let others = ["Enter", "Esc", "Backspace", "Space", "a", "1"];
        let keys = sequences.chain(&others);
        let payloads = payloads().into_iter();
        // The emulator drops the replacement character.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\u{fffd}', "");
        Soak {
            console,
            theme: Theme::built_in("terminal").unwrap(),
            painter: fresh_painter(),
            emulator: vt100::Parser::new(36, 120, 0),
            numbers: Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            due: VecDeque::new(),
            keys: keys
                .flat_map(|key| keymap::parse_sequence(key).unwrap())
                .collect(),
            payloads: payloads
                .map(text)
                .filter(|text| text.len() < 1_000)
                .collect(),
            place: Place {
                seed,
                step: 0,
                did: String::new(),
            },
        }
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.numbers.below(all.len())].clone()
    }

    fn name(&mut self) -> &'static str {
        self.one_of(&NAMES)
    }

    fn evil(&mut self) -> String {
        let at = self.numbers.below(self.payloads.len());
        self.payloads[at].clone()
    }

    fn did(&mut self, what: impl Into<String>) {
        self.place.did = what.into();
    }

    fn step(&mut self) {
        self.place.step += 1;
        match self.numbers.below(100) {
            0..45 => {
                let count = 1 + self.numbers.below(4);
                let keys: Vec<Key> = (0..count)
                    .map(|_| self.one_of(&self.keys.clone()))
                    .collect();
                self.did(format!("{keys:?}"));
                self.console.send(Msg::KeysPressed(keys));
            }
            45..52 => {
                let line = self.one_of(LINES);
                self.did(line);
                for c in line.chars() {
                    let key = match c {
                        '\r' => keymap::parse_sequence("Enter").unwrap(),
                        c => vec![Key::from_code(keymap::KeyCode::Char(c))],
                    };
                    self.console.send(Msg::KeysPressed(key));
                }
            }
            52..55 => {
                let text = self.evil();
                self.did(format!("paste {}", brief(text.as_bytes())));
                self.console.send(Msg::TextPasted(text));
            }
            55..60 => {
                let size = match self.numbers.below(3) {
                    0 => self.one_of(&[(80, 24), (120, 36), (60, 15), (1, 1), (300, 100)]),
                    _ => {
                        let columns = 1 + self.numbers.below(300) as u16;
                        (columns, 1 + self.numbers.below(100) as u16)
                    }
                };
                self.did(format!("{size:?}"));
                self.emulator.screen_mut().set_size(size.1, size.0);
                self.painter.invalidate();
                self.console.send(Msg::Resized(size.0, size.1));
            }
            60..72 => {
                let most = self.one_of(&[100, 1_000, 70_000, 1_200_000]);
                let time = Duration::from_millis(self.numbers.below(most) as u64);
                self.did(format!("{time:?} pass"));
                self.console.pass(time);
            }
            72..84 => self.happens(),
            _ => self.answer(),
        }
        self.take_effects();
        self.frame();
    }

    /// Something happens to the fleet.
    fn happens(&mut self) {
        let evil = self.evil();
        let name = self.name();
        let msg = match self.numbers.below(12) {
            0..4 => {
                let state = self.one_of(&State::ALL);
                let mut seen = seen(name, state);
                self.did(format!("{name} is {state:?}"));
                if self.numbers.below(2) == 0 {
                    seen.reason = evil.clone();
                    seen.host = evil;
                }
                self.console.observe(vec![seen]);
                return;
            }
            4 => Msg::SavedObservationsLoaded(vec![seen(name, State::Scratch)]),
            5 => {
                let mut names = NAMES.to_vec();
                names.truncate(self.numbers.below(NAMES.len() + 1));
                let mut info = self.console.model.fleet.clone();
                info.tag = [None, Some(evil)][self.numbers.below(2)].clone();
                Msg::ConfigAdopted(info, agents(&names), self.numbers.below(8) == 0)
            }
            6 => Msg::ConfigInvalid(vec![wrong(&evil)]),
            7 => {
                let reach = [
                    Reachability::Unknown,
                    Reachability::Connected,
                    Reachability::Unreachable,
                    Reachability::Refused,
                    Reachability::HostKeyMismatch,
                ];
                let reach = self.one_of(&reach);
                Msg::HostsChanged(vec![host(self.one_of(&HOSTS), reach, &[name])])
            }
            8 => {
                let id = self.numbers.below(4) as u64;
                let on = self.one_of(&HOSTS);
                Msg::PromptEvent(match self.numbers.below(5) {
                    0 => askpass::PromptEvent::Asked(passphrase(id, on)),
                    1 => askpass::PromptEvent::Asked(host_key(id, on)),
                    2 => askpass::PromptEvent::Withdrawn(id),
                    3 => askpass::PromptEvent::AnswerTooLate(on.to_string()),
                    _ => askpass::PromptEvent::Unavailable(evil),
                })
            }
            9 => Msg::Reported(MessageLevel::Error, evil),
            10 => Msg::LogLoaded(Err(evil)),
            _ => self.log(),
        };
        self.did(format!("{msg:.80?}"));
        self.console.send(msg);
    }

    fn log(&mut self) -> Msg {
        let outcomes = [Outcome::Ok, Outcome::Failed, Outcome::Refused];
        let count = self.numbers.below(30);
        let runs = (0..count).map(|number| {
            let agents = [(self.name(), self.one_of(&outcomes))];
            run(&format!("{number:08x}"), number as i64 * 37, &agents)
        });
        Msg::LogLoaded(Ok(runs.collect()))
    }

    /// What was asked for longest is answered.
    fn answer(&mut self) {
        let Some(effect) = self.due.pop_front() else {
            return;
        };
        self.did(format!("answer {effect:.80?}"));
        let fails = self.numbers.below(8) == 0;
        let why = self.evil();
        let msg = match effect {
            Effect::PrepareTexts(name) => {
                let row = self.console.model.find_row(&name);
                if name != self.console.model.agent.agent
                    || row.is_none_or(|row| row.latest_observation().is_none())
                {
                    return;
                }
                let notes = self.evil().repeat(1 + self.numbers.below(20));
                let memory = match self.numbers.below(4) {
                    0 => BASELINE.to_string() + &notes,
                    1 => BASELINE.replace("\n- ", &format!("\n- {notes}")) + &notes,
                    2 => BASELINE.replace("\n---\n", "\n") + &notes,
                    _ => notes,
                };
                let baseline = (!fails).then_some(BASELINE.as_bytes());
                return self.console.texts(&name, memory.as_bytes(), baseline);
            }
            Effect::LoadHistory(name) if fails => Msg::HistoryLoaded(name, Err(why)),
            Effect::LoadHistory(name) => Msg::HistoryLoaded(name, Ok(history())),
            Effect::PrepareRunDiff(name, seq) if fails => Msg::RunDiffPrepared(name, seq, Err(why)),
            Effect::PrepareRunDiff(name, seq) => {
                let before = RunDiffSide::Text(BASELINE.replace("\n- ", &why).into_bytes(), 0);
                let after = RunDiffSide::Text(BASELINE.as_bytes().to_vec(), 0);
                Msg::RunDiffPrepared(
                    name,
                    seq,
                    Ok(text::prepare_run_diff(&RunDiff { before, after }, None)),
                )
            }
            Effect::MakePlan(request, of, _) => {
                let state = self.one_of(&State::ALL);
                let names: Vec<&str> = of.agent_names().iter().map(String::as_str).collect();
                let steps: Vec<_> = names.iter().map(|name| (*name, state)).collect();
                let made = match &of {
                    PlanRequest::Reset(_) => plan(&steps),
                    _ => undo(&names, self.numbers.below(2) == 0, UndoMode::Refuse),
                };
                Msg::PlanMade(
                    request,
                    match fails {
                        true => Err(Error::new(ErrorKind::Conflict, why)),
                        false => Ok(Box::new(made)),
                    },
                )
            }
            Effect::ApplyPlan(plan) => {
                let outcome = if fails { Outcome::Failed } else { Outcome::Ok };
                let results = plan
                    .steps
                    .iter()
                    .map(|step| (step.agent.as_str(), outcome, fails.then_some(why.as_str())));
                let report = report(&results.collect::<Vec<_>>());
                for result in &report.results {
                    let began = RunProgress::Stage(result.agent.clone(), Step::Swap);
                    self.console.send(Msg::RunProgressed(began));
                    self.frame();
                    self.console
                        .send(Msg::RunProgressed(RunProgress::AgentDone(result.clone())));
                }
                Msg::RunEnded(Box::new(report))
            }
            Effect::LoadLog => self.log(),
            Effect::ReadAgents(names) => {
                let state = self.one_of(&State::ALL);
                let seen = names.iter().map(|name| seen(name, state)).collect();
                self.console.observe(seen);
                return;
            }
            Effect::LoadHostSettings(host) => Msg::HostSettingsLoaded(host, Ok(Vec::new())),
            Effect::AnswerQuestion(id, _) | Effect::RefuseQuestion(id) => {
                Msg::PromptEvent(askpass::PromptEvent::Withdrawn(id))
            }
            _ => return,
        };
        self.console.send(msg);
    }

    /// What the console's loop does by itself is done, the rest waits.
    fn take_effects(&mut self) {
        for effect in std::mem::take(&mut self.console.effects) {
            match effect {
                Effect::LoadTheme(name) => {
                    self.theme = Theme::built_in(&name).unwrap();
                    self.console.model.has_word_marks = self.theme.has_word_marks();
                    self.painter.invalidate();
                    self.console.model.is_dirty = true;
                }
                Effect::Redraw | Effect::Suspend => {
                    self.painter.invalidate();
                    self.console.model.is_dirty = true;
                }
                effect => self.due.push_back(effect),
            }
        }
        if self.due.len() > 30 {
            self.answer();
        }
    }

    fn frame(&mut self) {
        if self.console.model.is_dirty {
            self.painter.draw(&self.console.model, &self.theme).unwrap();
            self.console.model.is_dirty = false;
            let bytes = std::mem::take(self.painter.out());
            self.emulator.process(&bytes);
        }
    }

    /// That the terminal shows what a fresh one would.
    fn compare(&mut self) {
        self.console.send(Msg::Tick);
        self.take_effects();
        self.frame();
        let model = &self.console.model;
        let mut painter = fresh_painter();
        painter.draw(model, &self.theme).unwrap();
        let mut emulator = vt100::Parser::new(model.size.1, model.size.0, 0);
        emulator.process(painter.out());
        let what = format!(
            "seed {}, step {}: {}",
            self.place.seed, self.place.step, self.place.did
        );
        let shown = weightless(self.emulator.screen());
        assert_same_grid(&shown, &weightless(emulator.screen()), &what);
        check(model, &what);
    }
}

fn fresh_painter() -> Painter<Vec<u8>> {
    Painter::new(
        Vec::new(),
        TerminalFeatures::from_term("xterm-256color", "truecolor"),
    )
}

/// What is on a screen but for bold and dim: the emulator knows no text that is
/// both, and takes what came last.
fn weightless(screen: &vt100::Screen) -> Vec<Vec<Seen>> {
    let mut grid = grid(screen);
    let cells = grid.iter_mut().flatten();
    cells.for_each(|cell| cell.attributes[..2].fill(false));
    grid
}

/// A number from the environment.
fn given(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_soaked_console_shows_what_a_fresh_one_does() {
    let seconds = given("SOAK_SECONDS");
    let began = Instant::now();
    let first = given("SOAK_SEED").unwrap_or(1);
    let (mut seed, mut steps) = (first, 0);
    loop {
        let mut soak = Soak::new(seed);
        for step in 0..STEPS {
            soak.step();
            if step % 40 == 0 {
                soak.compare();
            }
        }
        soak.compare();
        (seed, steps) = (seed + 1, steps + STEPS);
        let enough = match seconds {
            Some(seconds) => began.elapsed() > Duration::from_secs(seconds),
            None => true,
        };
        if enough {
            break;
        }
    }
    println!("{steps} steps of {} seeds", seed - first);
}
