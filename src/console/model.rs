//! What the console knows: plain data. [`mod@super::update`] changes it,
//! [`super::view`] draws it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use super::command::{Command, Context};
use super::filter::{self, Subject};
use super::keymap::Key;
use super::text::{Look, Pane};
use crate::engine::{
    Act, Event, Observation, Outcome, Plan, Protection, Report, Stage as Step, State, UndoMode,
    UndoTarget,
};

/// When something happened: a clock that only moves forward, and the time of
/// day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since the console started.
    pub since: Duration,
    /// Local time.
    pub wall: DateTime<FixedOffset>,
}

/// How many messages are remembered; the ledger has everything that matters.
const MESSAGES: usize = 1000;

/// The size below which nothing sensible can be drawn.
pub const SMALLEST: (u16, u16) = (60, 15);

/// Everything.
#[derive(Clone, Debug)]
pub struct Model {
    /// The fleet's name, its tag, and where its config is.
    pub fleet: Fleet,
    /// Agents in the order of the config.
    pub rows: Vec<Row>,
    /// Names of the agents that are shown, in the order in which they are.
    pub order: Vec<String>,
    /// The agent under the cursor.
    pub cursor: Option<String>,
    /// Whether the operator has moved the cursor; until then it is on the
    /// worst agent.
    pub cursor_moved: bool,
    /// The agent whose details are in the strip; lags behind a held key.
    pub strip: Option<String>,
    /// When the strip follows the cursor.
    pub strip_due: Option<Duration>,
    /// When a key moved the cursor last.
    pub last_move: Option<Duration>,
    /// First visible row of the fleet.
    pub top: usize,
    /// Marked agents, by name.
    pub marks: BTreeSet<String>,
    /// The agent that was marked last: where a range begins.
    pub anchor: Option<String>,
    /// What is shown.
    pub filter: String,
    /// In which order.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// The screen.
    pub screen: Screen,
    /// The screen before, for going back and forth.
    pub previous: Option<Screen>,
    /// One agent's texts.
    pub agent: AgentScreen,
    /// Plan, run, result.
    pub reset: ResetScreen,
    /// The log.
    pub log: LogScreen,
    /// What lies over the screen.
    pub overlay: Option<Overlay>,
    /// A line that is being typed.
    pub prompt: Option<Prompt>,
    /// Keys of a sequence that is not complete.
    pub pending: Vec<Key>,
    /// What was said last; it stays until the next key.
    pub message: Option<Message>,
    /// Whether acts are possible.
    pub read_only: ReadOnly,
    /// Errors of a config that was changed while running; the old one is used.
    pub config_error: Option<String>,
    /// Why the ledger cannot be read.
    pub ledger_error: Option<String>,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Whether something that is drawn has changed.
    pub dirty: bool,
    /// The moment of the last message.
    pub now: Moment,
    /// Whether the theme shows changed words by marks.
    pub word_marks: bool,
    /// Numbers requests, so that late answers can be told.
    pub request: u64,
    /// Whether the answer to the last one is still to come.
    pub waiting: bool,
    /// The ages that are on the screen, to know when one changes.
    pub ages: Vec<String>,
}

/// The fleet as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// `fleet_name`.
    pub name: String,
    /// `fleet_tag`.
    pub tag: Option<String>,
    /// Path of the config, for messages.
    pub config: String,
    /// Days until retention removes entries.
    pub retention_days: u32,
}

/// One agent of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it looks like now, once it was read.
    pub seen: Option<Observation>,
    /// What it looked like when the console was used last.
    pub remembered: Option<Observation>,
}

impl Row {
    /// Its state; LOADING until it was read.
    pub fn state(&self) -> State {
        self.seen.as_ref().map_or(State::Loading, |seen| seen.state)
    }

    /// What it looks like now, else what it did.
    pub fn best(&self) -> Option<&Observation> {
        self.seen.as_ref().or(self.remembered.as_ref())
    }
}

/// The order of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The worst first.
    #[default]
    Severity,
    /// By name.
    Name,
    /// The largest memory first.
    Size,
    /// The most scratch first.
    Scratch,
    /// The youngest change first.
    Changed,
    /// The oldest last run first.
    LastRun,
}

impl Sort {
    /// All orders.
    pub const ALL: [Sort; 6] = [
        Sort::Severity,
        Sort::Name,
        Sort::Size,
        Sort::Scratch,
        Sort::Changed,
        Sort::LastRun,
    ];

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Severity => "severity",
            Sort::Name => "name",
            Sort::Size => "size",
            Sort::Scratch => "scratch",
            Sort::Changed => "changed",
            Sort::LastRun => "last run",
        }
    }
}

/// The screens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// All agents.
    Fleet,
    /// One agent.
    Agent,
    /// A plan, a run or its result.
    Reset,
    /// What happened.
    Log,
}

/// The tabs of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// Baseline against memory.
    #[default]
    Diff,
    /// What is below the boundary.
    Scratch,
}

/// One agent's texts.
#[derive(Clone, Debug, Default)]
pub struct AgentScreen {
    /// Whose.
    pub name: String,
    /// Which one is shown.
    pub tab: Tab,
    /// Baseline against memory.
    pub diff: Pane,
    /// What is below the boundary.
    pub scratch: Pane,
    /// What is remarkable about the file.
    pub findings: String,
    /// Generation of the texts; 0 before they came.
    pub generation: u64,
    /// Wrap long lines.
    pub wrap: bool,
    /// Mark ordinary white space.
    pub reveal: bool,
}

impl AgentScreen {
    /// The pane that is shown.
    pub fn pane(&self) -> &Pane {
        match self.tab {
            Tab::Diff => &self.diff,
            Tab::Scratch => &self.scratch,
        }
    }

    /// The same, to be moved through.
    pub fn pane_mut(&mut self) -> &mut Pane {
        match self.tab {
            Tab::Diff => &mut self.diff,
            Tab::Scratch => &mut self.scratch,
        }
    }
}

/// Plan, run, result.
#[derive(Clone, Debug, Default)]
pub struct ResetScreen {
    /// Where it stands.
    pub stage: Stage,
    /// The row under the cursor.
    pub cursor: usize,
}

/// How far a reset or an undo has come.
#[derive(Clone, Debug, Default)]
pub enum Stage {
    /// Nothing was planned yet.
    #[default]
    Empty,
    /// A plan is being made.
    Planning(Request),
    /// A plan waits for its confirmation.
    Plan(Box<PlanView>),
    /// It is being carried out.
    Run(Box<RunView>),
    /// It ended.
    Result(Box<ResultView>),
}

/// What a plan was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A reset of these agents.
    Reset(Vec<String>),
    /// An undo.
    Undo(UndoTarget, UndoMode),
}

impl Request {
    /// The agents that were asked for by name.
    pub fn names(&self) -> &[String] {
        match self {
            Request::Reset(names)
            | Request::Undo(UndoTarget::Agents(names) | UndoTarget::Redo(names), _) => names,
            Request::Undo(UndoTarget::Run(_), _) => &[],
        }
    }
}

/// A plan on the screen.
#[derive(Clone, Debug)]
pub struct PlanView {
    /// What it was asked for; asked again when it is void.
    pub request: Request,
    /// The plan.
    pub plan: Plan,
    /// When it appeared.
    pub shown: Duration,
    /// What has to happen before it runs.
    pub form: Form,
    /// What was typed so far.
    pub typed: String,
    /// Marked agents that the filter hides, until it is said what with them.
    pub hidden: Vec<String>,
}

/// What confirms a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// There is nothing to run.
    Nothing,
    /// `y`.
    Key,
    /// These words, typed in full, and Enter.
    Typed(String),
    /// First it has to be said what happens to newer notes: `a` or `o`.
    Choice,
}

impl PlanView {
    /// Whether a key of the plan is offered now; if not, why.
    ///
    /// # Errors
    /// The reason, for the operator.
    pub fn offers(&self, command: Command, model: &Model) -> Result<(), String> {
        let why = match (command, &self.form) {
            _ if !self.hidden.is_empty() => "first say what with the hidden ones: h keeps, v drops",
            (_, Form::Nothing) => "there is nothing to run",
            (Command::Confirm, Form::Key) => {
                return match model.why_read_only() {
                    Some(why) => Err(why),
                    None => Ok(()),
                };
            }
            (Command::Confirm, Form::Typed(_)) => "this plan has to be confirmed by typing",
            (Command::Confirm, Form::Choice) => {
                "the agent has written since: a appends, o overwrites"
            }
            (Command::Append | Command::Overwrite, _) if self.has_newer_notes() => return Ok(()),
            _ => "no agent of this plan has written since",
        };
        Err(why.to_string())
    }

    /// Whether an agent wrote after the run that would be undone.
    pub fn has_newer_notes(&self) -> bool {
        self.plan
            .steps
            .iter()
            .any(|step| step.undo.as_ref().is_some_and(|undo| undo.written_since))
    }

    /// The word that is typed before the number.
    pub fn verb(&self) -> &'static str {
        match self.plan.act {
            Act::Undo => "undo",
            _ => "reset",
        }
    }
}

/// What confirms this plan (the confirmation grammar): one intact agent takes a
/// key, more of them or a drifted one take typing, the whole fleet its name.
pub fn form(plan: &Plan, model: &Model) -> Form {
    let count = plan.steps.len();
    let protected = |name: &str| {
        let row = model.row(name).and_then(Row::best);
        row.is_some_and(|seen| seen.protect == Protection::Typed)
    };
    let undo_without_choice = plan.steps.iter().any(|step| {
        step.undo
            .as_ref()
            .is_some_and(|undo| undo.written_since && undo.mode == UndoMode::Refuse)
    });
    let verb = match plan.act {
        Act::Undo => "undo",
        _ => "reset",
    };
    let typed = Form::Typed(format!("{verb} {count}"));
    if count == 0 {
        Form::Nothing
    } else if undo_without_choice {
        Form::Choice
    } else if plan.steps.iter().any(|step| protected(&step.agent)) {
        match plan.whole_fleet {
            true => Form::Typed(model.fleet.name.clone()),
            false => typed,
        }
    } else if model.rows.len() == 1 && plan.act == Act::Reset {
        Form::Key
    } else if plan.whole_fleet {
        Form::Typed(model.fleet.name.clone())
    } else if count > 1 || plan.steps.iter().any(|step| step.typed) {
        typed
    } else {
        Form::Key
    }
}

/// A run on the screen.
#[derive(Clone, Debug)]
pub struct RunView {
    /// What is being carried out.
    pub plan: Plan,
    /// When it began.
    pub began: Duration,
    /// How far each agent has come.
    pub stages: BTreeMap<String, Step>,
    /// How it ended for those that are done.
    pub outcomes: BTreeMap<String, (Outcome, Option<String>)>,
    /// Whether the rest was cancelled.
    pub cancelled: bool,
}

/// A result on the screen.
#[derive(Clone, Debug)]
pub struct ResultView {
    /// The run.
    pub run: String,
    /// What it did.
    pub act: Act,
    /// When it ended.
    pub time: DateTime<FixedOffset>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How it ended for each agent.
    pub lines: Vec<ResultLine>,
    /// How many entries retention deleted.
    pub retired: usize,
}

/// One agent of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultLine {
    /// The agent.
    pub agent: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What was archived where.
    pub entry: Option<String>,
    /// Why, or what else is worth knowing.
    pub note: Option<String>,
}

impl ResultView {
    /// The result of a run that has just ended.
    pub fn of_report(report: &Report, time: DateTime<FixedOffset>) -> ResultView {
        let line = |result: &crate::engine::AgentResult| ResultLine {
            agent: result.agent.clone(),
            outcome: result.outcome,
            entry: result
                .entries
                .first()
                .map(|entry| entry.path.display().to_string()),
            note: result.note.clone(),
        };
        ResultView {
            run: report.run.clone(),
            act: report.act,
            time,
            duration_ms: report.duration_ms,
            lines: report.results.iter().map(line).collect(),
            retired: report.retired.len(),
        }
    }

    /// Agents that were changed, and can be changed back.
    pub fn changed(&self) -> Vec<String> {
        let done = self.lines.iter().filter(|line| line.outcome == Outcome::Ok);
        done.map(|line| line.agent.clone()).collect()
    }

    /// Agents that failed.
    pub fn failed(&self) -> Vec<String> {
        let bad = |line: &&ResultLine| !matches!(line.outcome, Outcome::Ok | Outcome::Unchanged);
        self.lines
            .iter()
            .filter(bad)
            .map(|line| line.agent.clone())
            .collect()
    }
}

/// The log.
#[derive(Clone, Debug, Default)]
pub struct LogScreen {
    /// Runs of the ledger, the youngest first.
    pub runs: Vec<RunSummary>,
    /// What was said in this session, the youngest first.
    pub messages: VecDeque<Message>,
    /// The row under the cursor.
    pub cursor: usize,
    /// First visible row.
    pub top: usize,
    /// What is searched for, lower case.
    pub query: String,
}

/// One run of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Its id.
    pub run: String,
    /// When it ended.
    pub time: DateTime<FixedOffset>,
    /// Its records.
    pub events: Vec<Event>,
    /// Agents for which it was undone.
    pub undone: Vec<String>,
}

impl RunSummary {
    /// How many agents ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.events
            .iter()
            .filter(|event| event.outcome == outcome)
            .count()
    }

    /// Agents that were not brought to a good end.
    pub fn failed(&self) -> Vec<&str> {
        let bad = |event: &&Event| !matches!(event.outcome, Outcome::Ok | Outcome::Unchanged);
        self.events
            .iter()
            .filter(bad)
            .map(|event| event.agent.as_str())
            .collect()
    }

    /// The run as a result.
    pub fn result(&self) -> ResultView {
        let line = |event: &Event| ResultLine {
            agent: event.agent.clone(),
            outcome: event.outcome,
            entry: event
                .entry
                .as_ref()
                .map(|entry| entry.path.display().to_string()),
            note: event.note.clone(),
        };
        ResultView {
            run: self.run.clone(),
            act: self.events.first().map_or(Act::Reset, |event| event.act),
            time: self.time,
            duration_ms: self.events.iter().map(|event| event.duration_ms).sum(),
            lines: self.events.iter().map(line).collect(),
            retired: 0,
        }
    }
}

/// One row of the log.
#[derive(Clone, Copy, Debug)]
pub enum LogRow<'a> {
    /// A run.
    Run(&'a RunSummary),
    /// Something that was said.
    Message(&'a Message),
}

impl LogScreen {
    /// Runs and messages together, the youngest first.
    pub fn rows(&self) -> Vec<LogRow<'_>> {
        let runs = self.runs.iter().map(LogRow::Run);
        let messages = self.messages.iter().map(LogRow::Message);
        let mut rows: Vec<LogRow<'_>> = runs.chain(messages).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time()));
        rows
    }

    /// Changes what is in it. The cursor stays on its row, wherever that goes.
    pub fn change(&mut self, change: impl FnOnce(&mut LogScreen)) {
        let here = self.rows().get(self.cursor).map(|row| self.place(row));
        change(self);
        let rows = self.rows();
        let found = rows.iter().position(|row| Some(self.place(row)) == here);
        self.cursor = found.unwrap_or(self.cursor);
    }

    /// What a row is, however many come above it: a run, or the message that so
    /// many are older than.
    fn place(&self, row: &LogRow<'_>) -> std::result::Result<String, usize> {
        match row {
            LogRow::Run(run) => Ok(run.run.clone()),
            LogRow::Message(message) => {
                let mut messages = self.messages.iter().rev();
                Err(messages
                    .position(|other| std::ptr::eq(other, *message))
                    .unwrap_or(0))
            }
        }
    }
}

impl LogRow<'_> {
    /// When it happened.
    pub fn time(&self) -> DateTime<FixedOffset> {
        match self {
            LogRow::Run(run) => run.time,
            LogRow::Message(message) => message.time,
        }
    }

    /// What is written in its row, and searched.
    pub fn text(&self) -> String {
        match self {
            LogRow::Message(message) => match message.count {
                1 => message.text.clone(),
                count => format!("{}  x{count}", message.text),
            },
            LogRow::Run(run) => {
                let event = run.events.first();
                let act = match event.map(|event| event.act) {
                    Some(Act::Undo) => "undo",
                    Some(Act::Repair) => "repair",
                    _ => "reset",
                };
                let who = match run.events.as_slice() {
                    [one] => one.agent.clone(),
                    many => format!("{} agents", many.len()),
                };
                let mut text = format!(
                    "{act} {who}  run {}: {} ok",
                    run.run,
                    run.count(Outcome::Ok)
                );
                match run.count(Outcome::Unchanged) {
                    0 => {}
                    count => text.push_str(&format!(", {count} unchanged")),
                }
                let failed = run.failed();
                if !failed.is_empty() {
                    text.push_str(&format!(", {} FAILED {}", failed.len(), failed.join(" ")));
                }
                if let [one] = run.events.as_slice()
                    && let Some(note) = &one.note
                {
                    text.push_str(&format!("  {note}"));
                }
                match run.undone.len() {
                    0 => {}
                    count if count == run.events.len() => text.push_str("  (undone)"),
                    _ => text.push_str(&format!("  (undone: {})", run.undone.join(" "))),
                }
                text
            }
        }
    }
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Good to know.
    Info,
    /// Something is in the way.
    Warn,
    /// Something went wrong.
    Error,
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// How much it matters.
    pub level: Level,
    /// A sentence.
    pub text: String,
    /// When.
    pub time: DateTime<FixedOffset>,
    /// How often it was said in a row.
    pub count: usize,
}

/// What lies over the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys of a screen.
    Help(Chooser),
    /// Every command, order, agent.
    Palette(Chooser),
    /// The question before read-only is switched off.
    Unlock,
}

/// A list to choose from by a few letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chooser {
    /// What was typed.
    pub query: String,
    /// Whether typing goes into the query.
    pub typing: bool,
    /// The item under the cursor.
    pub cursor: usize,
}

/// An item of a chooser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Run a command.
    Command(Command),
    /// Order the fleet.
    Sort(Sort),
    /// Open an agent.
    Agent(String),
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// The filter of the fleet, and what it was before.
    Filter(String),
    /// A search, and what was searched for before.
    Search(String),
}

/// Whether acts are possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOnly {
    /// By `--read-only`: cannot be switched off.
    pub forced: bool,
    /// By the operator, or by the fleet's `protect = readonly`.
    pub on: bool,
    /// Whether the fleet's `protect = readonly` switches it on again.
    pub by_config: bool,
    /// Until when agents that are protected as read-only are unlocked.
    pub unlocked_until: Option<Duration>,
}

impl Model {
    /// The agent of this name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The row under the cursor.
    pub fn current(&self) -> Option<&Row> {
        self.cursor.as_deref().and_then(|name| self.row(name))
    }

    /// What the keys mean now.
    pub fn context(&self) -> Context {
        match (self.screen, &self.reset.stage) {
            (Screen::Fleet, _) => Context::Fleet,
            (Screen::Agent, _) => Context::Agent,
            (Screen::Log, _) => Context::Log,
            (Screen::Reset, Stage::Run(_)) => Context::Run,
            (Screen::Reset, Stage::Result(_)) => Context::Result,
            (Screen::Reset, _) => Context::Plan,
        }
    }

    /// Whether a run is in progress.
    pub fn is_running(&self) -> bool {
        matches!(self.reset.stage, Stage::Run(_))
    }

    /// Whether agents that are protected as read-only may be changed.
    pub fn unlocked(&self) -> bool {
        self.read_only
            .unlocked_until
            .is_some_and(|until| self.now.since < until)
    }

    /// Why nothing can be changed, if nothing can.
    pub fn why_read_only(&self) -> Option<String> {
        match self.read_only {
            ReadOnly { forced: true, .. } => Some("started with --read-only".to_string()),
            ReadOnly { on: true, .. } => Some("read-only; ! switches it off".to_string()),
            _ => None,
        }
    }

    /// The agents that an act would be about: the marked ones, else the one
    /// under the cursor or on the screen.
    pub fn targets(&self, command: Command) -> Vec<String> {
        match (self.screen, &self.reset.stage) {
            (Screen::Agent, _) => vec![self.agent.name.clone()],
            (Screen::Reset, Stage::Result(result)) if command == Command::Retry => result.failed(),
            (Screen::Reset, Stage::Result(result)) => result.changed(),
            _ if !self.marks.is_empty() => {
                let marked = self
                    .rows
                    .iter()
                    .filter(|row| self.marks.contains(&row.name));
                marked.map(|row| row.name.clone()).collect()
            }
            _ => self.cursor.clone().into_iter().collect(),
        }
    }

    /// Marked agents that the filter hides.
    pub fn hidden_marks(&self) -> Vec<String> {
        self.marks
            .iter()
            .filter(|name| !self.order.contains(name))
            .cloned()
            .collect()
    }

    /// Filters and orders the fleet anew. The cursor stays on its agent, or,
    /// until it is moved, on the worst.
    pub fn arrange(&mut self) {
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| self.shows(row)).collect();
        let size = |row: &Row| {
            row.best()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.size)
        };
        let scratch = |row: &Row| {
            row.best()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.scratch_lines)
        };
        let changed = |row: &Row| {
            row.best()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.modified)
        };
        let last = |row: &Row| {
            row.best()
                .and_then(|seen| seen.last.as_ref())
                .map(|last| last.time)
        };
        match self.sort {
            Sort::Severity => rows.sort_by_key(|row| row.state()),
            Sort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
            Sort::Size => rows.sort_by_key(|row| std::cmp::Reverse(size(row))),
            Sort::Scratch => rows.sort_by_key(|row| std::cmp::Reverse(scratch(row))),
            Sort::Changed => rows.sort_by_key(|row| std::cmp::Reverse(changed(row))),
            Sort::LastRun => rows.sort_by_key(|row| last(row)),
        }
        if self.reverse {
            rows.reverse();
        }
        self.order = rows.into_iter().map(|row| row.name.clone()).collect();
        let gone = self
            .cursor
            .as_ref()
            .is_none_or(|name| !self.order.contains(name));
        if gone || !self.cursor_moved {
            self.cursor = self.order.first().cloned();
            self.strip.clone_from(&self.cursor);
        }
        self.keep_cursor_visible();
    }

    fn shows(&self, row: &Row) -> bool {
        let seen = row.best();
        filter::shows(
            &self.filter,
            &Subject {
                name: &row.name,
                host: seen.map_or("", |seen| &seen.host),
                state: row.state().word(),
                why: seen.map_or("", |seen| &seen.why),
                marked: self.marks.contains(&row.name),
            },
        )
    }

    /// The place of the cursor in the order.
    pub fn cursor_index(&self) -> Option<usize> {
        let name = self.cursor.as_ref()?;
        self.order.iter().position(|other| other == name)
    }

    /// Scrolls the fleet so that the cursor can be seen.
    pub fn keep_cursor_visible(&mut self) {
        let height = self.list_height();
        let index = self.cursor_index().unwrap_or(0);
        self.top = self.top.clamp((index + 1).saturating_sub(height), index);
        self.top = self.top.min(self.order.len().saturating_sub(height));
    }

    /// Rows of the fleet that fit.
    pub fn list_height(&self) -> usize {
        // Two lines of header, a rule, the column heads; a rule, the strip, the
        // hints.
        let fixed = 6 + self.strip_height() + usize::from(self.config_error.is_some());
        usize::from(self.size.1).saturating_sub(fixed).max(1)
    }

    /// Lines of the strip below the fleet.
    pub fn strip_height(&self) -> usize {
        if self.size.1 >= 30 { 2 } else { 1 }
    }

    /// Rows of a text that fit.
    pub fn text_height(&self) -> usize {
        usize::from(self.size.1).saturating_sub(6).max(1)
    }

    /// Cells of a text that fit, without its gutter.
    pub fn text_width(&self) -> usize {
        let gutter = match self.agent.tab {
            Tab::Diff => GUTTER_DIFF,
            Tab::Scratch => GUTTER_TEXT,
        };
        usize::from(self.size.0).saturating_sub(gutter).max(1)
    }

    /// How texts look.
    pub fn look(&self) -> Look {
        Look {
            wrap: self.agent.wrap,
            reveal: self.agent.reveal,
            prose: self.agent.tab == Tab::Scratch,
            word_marks: self.word_marks,
        }
    }

    /// Counts by state, the worst first; states that nobody is in left out.
    pub fn counts(&self) -> Vec<(State, usize)> {
        let count = |state: State| self.rows.iter().filter(|row| row.state() == state).count();
        State::ALL
            .into_iter()
            .map(|state| (state, count(state)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Says something: it is shown, and kept in the log.
    pub fn say(&mut self, level: Level, text: impl Into<String>) {
        let mut message = Message {
            level,
            text: text.into(),
            time: self.now.wall,
            count: 1,
        };
        let mut count = 1;
        let mut add = |log: &mut LogScreen| match log.messages.front_mut() {
            Some(last) if last.text == message.text => {
                last.count += 1;
                last.time = message.time;
                count = last.count;
            }
            _ => {
                log.messages.push_front(message.clone());
                log.messages.truncate(MESSAGES);
            }
        };
        match self.screen {
            Screen::Log => self.log.change(add),
            _ => add(&mut self.log),
        }
        message.count = count;
        self.message = Some(message);
        self.dirty = true;
    }
}

/// Cells left of a diff: a sign and two numbers.
pub const GUTTER_DIFF: usize = 14;

/// Cells left of a plain text: one number.
pub const GUTTER_TEXT: usize = 8;

/// How long ago something was, in steps so coarse that an idle screen stays
/// idle.
pub fn age(now: DateTime<FixedOffset>, then: DateTime<FixedOffset>) -> String {
    let seconds = (now - then).num_seconds();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (minutes, hours) {
        (..1, _) => "<1m".to_string(),
        (1..5, _) => "1m".to_string(),
        (_, 0) => format!("{}m", minutes / 5 * 5),
        (_, 1..24) => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

/// The time of a file's last modification.
pub fn modified(nanoseconds: i64, like: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
    DateTime::from_timestamp_nanos(nanoseconds).with_timezone(like.offset())
}
