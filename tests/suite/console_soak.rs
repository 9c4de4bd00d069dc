//! Long use in a short time: keys, pastes, resizes and events in an order that the seed
//! determines. The console never panics, and the final screen equals that of a console
//! just started.
//!
//! `SOAK_SECONDS=600 cargo test --test suite soak` runs for that many seconds, and
//! `SOAK_SEED` sets the first seed.

mod program;

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::config::AgentLayout;
use memory_shepherd::console::agent_row::AgentRow;
use memory_shepherd::console::command::COMMAND_TABLE;
use memory_shepherd::console::keys::key::{self, Key};
use memory_shepherd::console::message::{Effect, Msg};
use memory_shepherd::console::screens::agent::state::memory::{
    ItemPage, ItemsRequest, OpenedMemory,
};
use memory_shepherd::console::screens::fleet::visible_agents::refresh_visible_agents;
use memory_shepherd::console::screens::log::state::MessageLevel;
use memory_shepherd::console::screens::reset::state::PlanRequest;
use memory_shepherd::console::shell::terminal::{Painter, TerminalFeatures};
use memory_shepherd::console::text;
use memory_shepherd::console::theme::Theme;
use memory_shepherd::engine::{
    FleetEvent, Outcome, Reachability, RunDiff, RunDiffSide, RunProgress, RunStage as Step,
    ScratchRequest, State, UndoMode,
};
use memory_shepherd::layouts::{Collection, HealthFinding, HealthSeverity, ItemContent};
use memory_shepherd::transport::sftp::askpass;

use crate::console_fixture::{
    OPERATIONS, TestConsole, edit_of_keeper, edit_plan, fleet_of, memory_item,
};
use crate::console_update::invariants::assert_model_invariants;
use crate::engine_samples::{
    config_error_of, configured_agents, host_key_question, host_status, observation_of,
    passphrase_question, plan, push_plan, run_report, run_summary, sample_history, undo_plan,
};
use crate::fuzz::SeededNumbers;
use crate::output_checker::{all_payloads, excerpt};
use crate::report_samples::fleet_report;
use crate::terminal::{VisibleCell, assert_same_cells, visible_cells};

const AGENT_NAMES: [&str; 7] = [
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf",
];
const HOSTS: [&str; 3] = ["harbour", "cliff", "dune:2222"];
const BASELINE: &str = include_str!("../../baselines/code-reviewer-MEMORY.md");

/// Text that arrives in one paste.
const TYPED_LINES: &[&str] = &[
    "reset 1\r",
    "reset 2\r",
    "undo 1\r",
    "prod-west\r",
    "/is:drifted\r",
    "/!alpha ~bo\r",
    "/the\r",
    ":agent bravo\r",
    ":memory of alpha\r",
    ":memory of bravo\r",
    ":health of alpha\r",
    ":operation keep\r",
    "O\r",
    ":sort changed\r",
    ":theme dark\r",
    ":theme mono\r",
    ":help\r",
    "?wrap\r",
];

/// The number of steps per seed.
const STEPS_PER_SEED: usize = 1_000;

/// Prints seed and step when a test panics.
struct StepReporter {
    seed: u64,
    step: usize,
    last_action: String,
}

impl Drop for StepReporter {
    fn drop(&mut self) {
        if thread::panicking() {
            println!(
                "SOAK_SEED={} at step {}: {}",
                self.seed, self.step, self.last_action
            );
        }
    }
}

struct ConsoleSoak {
    console: TestConsole,
    theme: Theme,
    painter: Painter<Vec<u8>>,
    emulator: vt100::Parser,
    numbers: SeededNumbers,
    /// Requests without an answer so far.
    unanswered_effects: VecDeque<Effect>,
    keys: Vec<Key>,
    payloads: Vec<String>,
    reporter: StepReporter,
}

impl ConsoleSoak {
    fn new(seed: u64) -> ConsoleSoak {
        let states = AGENT_NAMES.iter().zip(State::ALL);
        let mut console = fleet_of(
            &states
                .map(|(name, state)| (*name, state))
                .collect::<Vec<_>>(),
        );
        let rows = std::mem::take(&mut console.model.rows).into_rows();
        console.model.rows = with_layouts(rows, "/agents/notes").into_iter().collect();
        refresh_visible_agents(&mut console.model);
        let sequences = COMMAND_TABLE.iter().flat_map(|spec| spec.keys);
        let others = ["Enter", "Esc", "Backspace", "Space", "a", "1"];
        let keys = sequences.chain(&others);
        let payloads = all_payloads().into_iter();
        // The emulator drops the replacement character.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\u{fffd}', "");
        ConsoleSoak {
            console,
            theme: Theme::built_in("terminal").unwrap(),
            painter: fresh_painter(),
            emulator: vt100::Parser::new(36, 120, 0),
            numbers: SeededNumbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            unanswered_effects: VecDeque::new(),
            keys: keys
                .flat_map(|key| key::parse_sequence(key).unwrap())
                .collect(),
            payloads: payloads
                .map(text)
                .filter(|text| text.len() < 1_000)
                .collect(),
            reporter: StepReporter {
                seed,
                step: 0,
                last_action: String::new(),
            },
        }
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.numbers.below(all.len())].clone()
    }

    fn pick_agent(&mut self) -> &'static str {
        self.pick(&AGENT_NAMES)
    }

    fn pick_payload(&mut self) -> String {
        let at = self.numbers.below(self.payloads.len());
        self.payloads[at].clone()
    }

    fn note_action(&mut self, what: impl Into<String>) {
        self.reporter.last_action = what.into();
    }

    fn take_step(&mut self) {
        self.reporter.step += 1;
        match self.numbers.below(100) {
            0..45 => {
                let count = 1 + self.numbers.below(4);
                let keys: Vec<Key> = (0..count).map(|_| self.pick(&self.keys.clone())).collect();
                self.note_action(format!("{keys:?}"));
                self.console.send(Msg::KeysPressed(keys));
            }
            45..52 => {
                let line = self.pick(TYPED_LINES);
                self.note_action(line);
                for c in line.chars() {
                    let key = match c {
                        '\r' => key::parse_sequence("Enter").unwrap(),
                        c => vec![Key::from_code(key::KeyCode::Char(c))],
                    };
                    self.console.send(Msg::KeysPressed(key));
                }
            }
            52..55 => {
                let text = self.pick_payload();
                self.note_action(format!("paste {}", excerpt(text.as_bytes())));
                self.console.send(Msg::TextPasted(text));
            }
            55..60 => {
                let size = match self.numbers.below(3) {
                    0 => self.pick(&[(80, 24), (120, 36), (60, 15), (1, 1), (300, 100)]),
                    _ => {
                        let columns = 1 + self.numbers.below(300) as u16;
                        (columns, 1 + self.numbers.below(100) as u16)
                    }
                };
                self.note_action(format!("{size:?}"));
                self.emulator.screen_mut().set_size(size.1, size.0);
                self.painter.invalidate();
                self.console.send(Msg::Resized(size.0, size.1));
            }
            60..72 => {
                let most = self.pick(&[100, 1_000, 70_000, 1_200_000]);
                let time = Duration::from_millis(self.numbers.below(most) as u64);
                self.note_action(format!("{time:?} pass"));
                self.console.advance(time);
            }
            72..84 => self.change_fleet(),
            _ => self.answer_oldest_effect(),
        }
        self.collect_effects();
        self.draw_frame();
    }

    /// Delivers a random event of the fleet.
    fn change_fleet(&mut self) {
        let evil = self.pick_payload();
        let name = self.pick_agent();
        let msg = match self.numbers.below(13) {
            0..4 => {
                let state = self.pick(&State::ALL);
                let mut seen = observation_of(name, state);
                self.note_action(format!("{name} is {state:?}"));
                if self.numbers.below(2) == 0 {
                    seen.reason = evil.clone();
                    seen.host = evil;
                }
                self.console.observe(vec![seen]);
                return;
            }
            4 => Msg::SavedObservationsLoaded(vec![Box::new(observation_of(name, State::Scratch))]),
            5 => {
                let mut names = AGENT_NAMES.to_vec();
                names.truncate(self.numbers.below(AGENT_NAMES.len() + 1));
                let mut info = self.console.model.config.clone();
                info.tag = [None, Some(evil)][self.numbers.below(2)].clone();
                let directory = self.pick(&["/agents/notes", "/agents/others"]);
                let rows = with_layouts(configured_agents(&names), directory);
                Msg::ConfigAdopted(info, rows, self.numbers.below(8) == 0)
            }
            6 => Msg::ConfigInvalid(vec![config_error_of(&evil)]),
            7 => {
                let reach = [
                    Reachability::Unknown,
                    Reachability::Connected,
                    Reachability::Unreachable,
                    Reachability::Refused,
                    Reachability::HostKeyMismatch,
                ];
                let reach = self.pick(&reach);
                Msg::Fleet(FleetEvent::HostsChanged(vec![host_status(
                    self.pick(&HOSTS),
                    reach,
                    &[name],
                )]))
            }
            8 => {
                let id = self.numbers.below(4) as u64;
                let on = self.pick(&HOSTS);
                Msg::PromptEvent(match self.numbers.below(5) {
                    0 => askpass::PromptEvent::Asked(passphrase_question(id, on)),
                    1 => askpass::PromptEvent::Asked(host_key_question(id, on)),
                    2 => askpass::PromptEvent::Withdrawn(id),
                    3 => askpass::PromptEvent::AnswerTooLate(on.to_string()),
                    _ => askpass::PromptEvent::Unavailable(evil),
                })
            }
            9 => Msg::Reported(MessageLevel::Error, evil),
            10 => Msg::LogLoaded(Err(evil)),
            11 => Msg::ReportLoaded(Ok((&fleet_report(&evil, &evil)).into())),
            _ => self.log(),
        };
        self.note_action(format!("{msg:.80?}"));
        self.console.send(msg);
    }

    fn log(&mut self) -> Msg {
        let outcomes = [Outcome::Ok, Outcome::Failed, Outcome::Refused];
        let count = self.numbers.below(30);
        let runs = (0..count).map(|number| {
            let agents = [(self.pick_agent(), self.pick(&outcomes))];
            run_summary(&format!("{number:08x}"), number as i64 * 37, &agents)
        });
        Msg::LogLoaded(Ok(runs.collect()))
    }

    /// Answers the oldest request.
    fn answer_oldest_effect(&mut self) {
        let Some(effect) = self.unanswered_effects.pop_front() else {
            return;
        };
        self.note_action(format!("answer {effect:.80?}"));
        let fails = self.numbers.below(8) == 0;
        let why = self.pick_payload();
        let msg = match effect {
            Effect::PrepareTexts(name) => {
                let row = self.console.model.find_row(&name);
                if name != self.console.model.agent.agent
                    || row.is_none_or(|row| row.latest_observation().is_none())
                {
                    return;
                }
                let notes = self.pick_payload().repeat(1 + self.numbers.below(20));
                let memory = match self.numbers.below(4) {
                    0 => BASELINE.to_string() + &notes,
                    1 => BASELINE.replace("\n- ", &format!("\n- {notes}")) + &notes,
                    2 => BASELINE.replace("\n---\n", "\n") + &notes,
                    _ => notes,
                };
                let baseline = (!fails).then_some(BASELINE.as_bytes());
                return self.console.load_texts(&name, memory.as_bytes(), baseline);
            }
            Effect::LoadHistory(name) if fails => Msg::HistoryLoaded(name, Err(why)),
            Effect::LoadHistory(name) => Msg::HistoryLoaded(name, Ok(sample_history())),
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
                let state = self.pick(&State::ALL);
                let names: Vec<&str> = of.agent_names().iter().map(String::as_str).collect();
                let steps: Vec<_> = names.iter().map(|name| (*name, state)).collect();
                let made = match &of {
                    PlanRequest::Reset(_) => plan(&steps),
                    PlanRequest::Push(_, ScratchRequest::Selection(selection)) => {
                        push_plan(&steps, selection, 2)
                    }
                    PlanRequest::Push(..) => push_plan(&steps, &"3,5".parse().unwrap(), 2),
                    PlanRequest::Edit { agent, .. } => {
                        let mut plan = edit_plan();
                        plan.steps[0].agent.clone_from(agent);
                        plan
                    }
                    _ => undo_plan(&names, self.numbers.below(2) == 0, UndoMode::Refuse),
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
                let report = run_report(&results.collect::<Vec<_>>());
                for result in &report.results {
                    let began = RunProgress::Stage(result.agent.clone(), Step::Swap);
                    self.console.send(Msg::RunProgressed(began));
                    self.draw_frame();
                    self.console
                        .send(Msg::RunProgressed(RunProgress::AgentDone(result.clone())));
                }
                Msg::RunEnded(Box::new(report))
            }
            Effect::ReadItems(request) => return self.answer_items(&request, fails, why),
            Effect::ReadItemContent(request) if fails => Msg::ItemContentRead(request, Err(why)),
            Effect::ReadItemContent(request) => {
                let content = ItemContent {
                    path: "note.md".into(),
                    bytes: format!("# {}\n{why}\n", request.item).into_bytes(),
                    given: Some(why.into_bytes()),
                };
                Msg::ItemContentRead(request, Ok(text::prepare_item(&content)))
            }
            Effect::CheckMemory(number, _) if fails => Msg::MemoryChecked(number, Err(why)),
            Effect::CheckMemory(number, _) => {
                let count = self.numbers.below(60);
                let findings = (0..count).map(|line| hostile_finding(&why, line as u64));
                Msg::MemoryChecked(number, Ok(findings.collect()))
            }
            Effect::CompareFileChanges(changes) => {
                let compared = text::prepare_file_changes(&changes, &edit_of_keeper().1, None);
                Msg::FileChangesCompared(changes, compared)
            }
            Effect::LoadLog => self.log(),
            Effect::LoadReport => {
                let name = self.pick_agent().to_string();
                Msg::ReportLoaded(Ok((&fleet_report(&name, "a reason")).into()))
            }
            Effect::ReadAgents(names) => {
                let state = self.pick(&State::ALL);
                let seen = names
                    .iter()
                    .map(|name| observation_of(name, state))
                    .collect();
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

    /// Answers a request for items of a memory with a layout.
    fn answer_items(&mut self, request: &ItemsRequest, fails: bool, evil: String) {
        let number = request.number;
        if fails {
            let failed = match self.numbers.below(3) {
                0 => Msg::MemoryOpened(number, Err(evil)),
                1 => Msg::ItemsPaused(number),
                _ => Msg::ItemsRead(number, Err(evil)),
            };
            self.console.send(failed);
            return;
        }
        let collection = |id: &str| Collection {
            id: id.to_string(),
            name: format!("{id} {evil}"),
        };
        let opened = OpenedMemory {
            layout: "notes",
            collections: vec![collection("new"), collection("kept")],
            collection: request.collection.clone().or(Some("new".to_string())),
            operations: &OPERATIONS,
        };
        self.console
            .send(Msg::MemoryOpened(number, Ok(Box::new(opened))));
        let (mut read, page_items) = (request.loaded, 1 + self.numbers.below(150));
        let count = self.numbers.below(600);
        while read < request.wanted && read < count {
            let end = count.min(read + page_items);
            let ids = (read..end).map(|id| match id % 7 {
                0 => memory_item(&format!("{id}{evil}")),
                id_in_week => memory_item(&format!("{id}-{id_in_week}.md")),
            });
            let page = ItemPage {
                items: ids.collect(),
                is_last: false,
            };
            self.console.send(Msg::ItemsRead(number, Ok(page)));
            read = end;
        }
        if read >= count {
            self.console.deliver_items(number, &[], true);
        }
    }

    /// Handles the effects of the console's own loop at once; queues the rest.
    fn collect_effects(&mut self) {
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
                effect => self.unanswered_effects.push_back(effect),
            }
        }
        if self.unanswered_effects.len() > 30 {
            self.answer_oldest_effect();
        }
    }

    fn draw_frame(&mut self) {
        if self.console.model.is_dirty {
            self.painter.draw(&self.console.model, &self.theme).unwrap();
            self.console.model.is_dirty = false;
            let bytes = std::mem::take(self.painter.out());
            self.emulator.process(&bytes);
        }
    }

    /// Asserts that the terminal shows what a fresh one would.
    fn assert_same_as_fresh(&mut self) {
        self.console.send(Msg::Tick);
        self.collect_effects();
        self.draw_frame();
        let model = &self.console.model;
        let mut painter = fresh_painter();
        painter.draw(model, &self.theme).unwrap();
        let mut emulator = vt100::Parser::new(model.size.1, model.size.0, 0);
        emulator.process(painter.out());
        let what = format!(
            "seed {}, step {}: {}",
            self.reporter.seed, self.reporter.step, self.reporter.last_action
        );
        let shown = cells_without_weight(self.emulator.screen());
        assert_same_cells(&shown, &cells_without_weight(emulator.screen()), &what);
        assert_model_invariants(model, &what);
    }
}

/// Gives the first two agents a memory with a layout; the first one is not reset.
fn with_layouts(mut rows: Vec<AgentRow>, directory: &str) -> Vec<AgentRow> {
    for row in rows.iter_mut().take(2) {
        row.layout = Some(AgentLayout {
            name: "notes".to_string(),
            directory: directory.into(),
            reference: None,
            state_directory: None,
        });
    }
    if let Some(first) = rows.first_mut() {
        first.baseline = None;
    }
    rows
}

fn hostile_finding(evil: &str, line: u64) -> HealthFinding {
    HealthFinding {
        check: "long",
        severity: HealthSeverity::Warning,
        path: Some(evil.into()),
        line: Some(line),
        id: None,
        measured: Some(evil.to_string()),
        reported: None,
        why: "a note has one line",
        remedy: "rewrite it",
    }
}

fn fresh_painter() -> Painter<Vec<u8>> {
    Painter::new(
        Vec::new(),
        TerminalFeatures::from_term("xterm-256color", "truecolor"),
    )
}

/// The screen without bold and dim: the emulator cannot represent both at once and
/// keeps the later one.
fn cells_without_weight(screen: &vt100::Screen) -> Vec<Vec<VisibleCell>> {
    let mut grid = visible_cells(screen);
    let cells = grid.iter_mut().flatten();
    cells.for_each(|cell| cell.attributes[..2].fill(false));
    grid
}

/// Reads a number from the environment.
fn number_from_environment(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn soaked_console_matches_fresh_console() {
    let seconds = number_from_environment("SOAK_SECONDS");
    let began = Instant::now();
    let first = number_from_environment("SOAK_SEED").unwrap_or(1);
    let (mut seed, mut steps) = (first, 0);
    loop {
        let mut soak = ConsoleSoak::new(seed);
        for step in 0..STEPS_PER_SEED {
            soak.take_step();
            if step % 40 == 0 {
                soak.assert_same_as_fresh();
            }
        }
        soak.assert_same_as_fresh();
        (seed, steps) = (seed + 1, steps + STEPS_PER_SEED);
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
