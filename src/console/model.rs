//! What the console knows: plain data. [`mod@super::update`] changes it,
//! [`super::view`] draws it.

mod agent;
mod guard;
mod hand;
mod hosts;
pub(super) mod jobs;
mod log;
mod reset;
mod targets;
pub mod twin;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

pub use agent::{AgentScreen, CONTEXTS, GUTTER_SIDE, HistoryPane, SIDES, Tab};
pub use guard::{GUARD_TIME, KeyGuard};
pub use hand::{ClipboardText, CopyOutcome, Edit, HandoffRequest, PagerText, SealQuestion};
pub use hosts::{HostProblem, HostsScreen, NextAttempt, next_try, trouble, word};
pub use jobs::{BackgroundJob, BackgroundJobs, REFRESH_INTERVAL};
pub use log::{LogMessage, LogRow, LogScreen, MAX_RUNS, MessageLevel, REDO, RunSummary};
pub use reset::{
    Confirmation, PlanRequest, PlanView, ResetScreen, ResetStage, ResultLine, ResultView, RunView,
    count_bad, form,
};

use super::command::{Command, Context};
use super::filter::{self, FilterSubject};
use super::keymap::Key;
use super::preferences::{self, Preferences};
use crate::config::Diagnostic;
use crate::engine::{Address, Observation, Reachability, State};
use crate::invocation::Invocation;
use crate::secret::Secret;
use crate::transport::sftp::askpass::Question;

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
const MAX_MESSAGES: usize = 1000;

/// The size below which nothing sensible can be drawn.
pub const MIN_TERMINAL_SIZE: (u16, u16) = (60, 15);

/// Everything.
#[derive(Clone, Debug)]
pub struct Model {
    /// The fleet's name, its tag, and where its config is.
    pub fleet: FleetModel,
    /// Agents in the order of the config.
    pub rows: Vec<AgentRow>,
    /// Names of the agents that are shown, in the order in which they are.
    pub order: Vec<String>,
    /// The agent under the cursor.
    pub cursor: Option<String>,
    /// Whether the cursor is the operator's, who has pressed a key or seen where it
    /// is; until then it is on the worst agent.
    pub cursor_moved: bool,
    /// When it becomes the operator's without a key.
    pub cursor_due: Option<Duration>,
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
    /// Whether the filter is still the one of the last time.
    pub filter_kept: bool,
    /// In which order.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// The screen.
    pub screen: Screen,
    /// The screen before, for going back and forth.
    pub previous: Option<Screen>,
    /// Where one is led back to.
    pub back: ReturnPoint,
    /// One agent's texts.
    pub agent: AgentScreen,
    /// Plan, run, result.
    pub reset: ResetScreen,
    /// The log.
    pub log: LogScreen,
    /// The hosts.
    pub hosts: HostsScreen,
    /// What is asked for from outside to be handed out or in; a key gives it up.
    pub wanted: Option<HandoffRequest>,
    /// What is being done in the background.
    pub jobs: BackgroundJobs,
    /// What lies over the screen.
    pub overlay: Option<Overlay>,
    /// What hosts ask, the oldest first.
    pub questions: Vec<Question>,
    /// Ignores keys behind one that gave a question up.
    pub given_up: KeyGuard,
    /// A line that is being typed.
    pub prompt: Option<Prompt>,
    /// Keys of a sequence that is not complete.
    pub pending: PendingKeys,
    /// The operator's keys, columns and filters.
    pub preferences: Preferences,
    /// What is wrong with the file that says them.
    pub preferences_error: Option<String>,
    /// How the fleet was looked at when that was kept last.
    pub kept: FleetView,
    /// The sizes of agents before their last runs, the oldest first; empty unless
    /// the column is shown.
    pub trends: HashMap<String, Vec<u64>>,
    /// What was said last; it stays until the next key.
    pub message: Option<LogMessage>,
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
    /// The themes that can be chosen.
    pub themes: Vec<String>,
    /// Numbers requests, so that late answers can be told.
    pub request: u64,
    /// Whether the answer to the last one is still to come.
    pub waiting: bool,
    /// The ages that are on the screen, to know when one changes.
    pub ages: Vec<String>,
    /// Whether the demo's host cannot be reached; none outside the demo.
    pub host_away: Option<bool>,
}

/// The fleet as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetModel {
    /// `fleet_name`.
    pub name: String,
    /// `fleet_tag`.
    pub tag: Option<String>,
    /// Path of the config, for messages.
    pub config: String,
    /// How command lines that do the same invoke this program on it.
    pub invocation: Invocation,
    /// Days until retention removes entries.
    pub retention_days: u32,
    /// Where the memory of each agent is; `host:path` on a host.
    pub memories: BTreeMap<String, String>,
}

/// One agent of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRow {
    /// Its name.
    pub name: String,
    /// Where its memory is.
    pub address: Address,
    /// What it looks like now, once it was read.
    pub seen: Option<Observation>,
    /// What it looked like when its memory was read last.
    pub known: Option<Observation>,
    /// What it looked like when the console was used last.
    pub remembered: Option<Observation>,
}

impl AgentRow {
    /// Its state; LOADING until it was read.
    pub fn state(&self) -> State {
        self.seen.as_ref().map_or(State::Loading, |seen| seen.state)
    }

    /// What it looks like now, else what it did.
    pub fn best(&self) -> Option<&Observation> {
        self.seen.as_ref().or(self.remembered.as_ref())
    }

    /// What its memory held when it was read last, as far as that is known.
    pub fn last_read(&self) -> Option<&Observation> {
        let current = self.seen.as_ref().filter(|seen| seen.was_read());
        let remembered = self.remembered.as_ref().filter(|seen| seen.was_read());
        current.or(self.known.as_ref()).or(remembered)
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

    /// What comes first.
    pub fn title(self) -> &'static str {
        match self {
            Sort::Severity => "the worst first",
            Sort::Name => "by name",
            Sort::Size => "the largest memory first",
            Sort::Scratch => "the most scratch first",
            Sort::Changed => "by the age of the last change, the youngest first",
            Sort::LastRun => "by the age of the last run, the oldest first",
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
    /// The hosts, and how they stand.
    Hosts,
}

/// Where one is led back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnPoint {
    /// From an agent.
    pub agent: Screen,
    /// From a plan or a result.
    pub reset: Screen,
}

impl Default for ReturnPoint {
    fn default() -> ReturnPoint {
        ReturnPoint {
            agent: Screen::Fleet,
            reset: Screen::Fleet,
        }
    }
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
    /// A question of a host's.
    Question(Answering),
    /// The question before a sealed baseline is edited.
    Seal(Box<SealQuestion>),
}

/// A question that is being answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answering {
    /// Which one.
    pub question: Question,
    /// Ignores what was typed before it can have been read.
    pub guard: KeyGuard,
    /// What was typed so far.
    pub typed: Secret,
    /// Whether nobody waits for the answer any more. It stays on the screen all the
    /// same: what is being typed must not come to mean anything else.
    pub gone: bool,
}

/// A list to choose from by a few letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chooser {
    /// What was typed.
    pub query: String,
    /// Whether typing goes into the query.
    pub typing: bool,
    /// The row under the cursor. There is none while a query fits several items and no
    /// key has chosen one of them.
    pub cursor: Option<usize>,
    /// The item that was there when the cursor came: what a key acts on, whatever
    /// has moved since.
    pub on: Option<ChooserItem>,
}

impl Chooser {
    /// A list to move through; its cursor is on the first item.
    pub fn browsing() -> Chooser {
        Chooser {
            query: String::new(),
            typing: false,
            cursor: Some(0),
            on: None,
        }
    }

    /// A list to search, with the beginning of a query.
    pub fn searching(query: &str) -> Chooser {
        Chooser {
            query: query.to_string(),
            typing: true,
            cursor: None,
            on: None,
        }
    }
}

/// An item of a chooser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChooserItem {
    /// Run a command.
    Command(Command),
    /// Order the fleet.
    Sort(Sort),
    /// Wear a theme.
    Theme(String),
    /// Show what a filter lets through: its name, and the filter.
    Filter(String, String),
    /// Open an agent.
    Agent(String),
    /// Show a tab of an agent.
    Tab(Tab, String),
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// The filter of the fleet, and what it was before.
    Filter(String),
    /// A search, and what was searched for before.
    Search(String),
}

/// Keys of a sequence that is not complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingKeys {
    /// The keys so far.
    pub keys: Vec<Key>,
    /// When what can follow is shown.
    pub due: Duration,
    /// Whether it is.
    pub shown: bool,
}

/// How the fleet is looked at: what is kept for the next time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetView {
    /// In which order.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// What is shown.
    pub filter: String,
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
    pub fn row(&self, name: &str) -> Option<&AgentRow> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The row under the cursor.
    pub fn current(&self) -> Option<&AgentRow> {
        self.cursor.as_deref().and_then(|name| self.row(name))
    }

    /// What the keys mean now.
    pub fn context(&self) -> Context {
        match (self.screen, &self.reset.stage) {
            (Screen::Fleet, _) => Context::Fleet,
            (Screen::Agent, _) => Context::Agent,
            (Screen::Log, _) => Context::Log,
            (Screen::Hosts, _) => Context::Hosts,
            (Screen::Reset, ResetStage::Run(_)) => Context::Run,
            (Screen::Reset, ResetStage::Result(_)) => Context::Result,
            (Screen::Reset, _) => Context::Plan,
        }
    }

    /// What to press for a command, in a sentence.
    pub fn key(&self, command: Command) -> String {
        self.preferences.keymap.key(command)
    }

    /// How the fleet is looked at.
    pub fn fleet_view(&self) -> FleetView {
        // Marks do not outlive the console, so asking for them makes no sense then.
        let lasting = !self.filter.to_lowercase().contains("is:marked");
        FleetView {
            sort: self.sort,
            reverse: self.reverse,
            filter: if lasting {
                self.filter.clone()
            } else {
                String::new()
            },
        }
    }

    /// Looks at the fleet as it was looked at the last time.
    pub fn look_again(&mut self, view: FleetView) {
        self.filter_kept = !view.filter.is_empty();
        self.sort = view.sort;
        self.reverse = view.reverse;
        self.filter.clone_from(&view.filter);
        self.kept = view;
        self.arrange();
        self.dirty = true;
    }

    /// Whether this is the example fleet.
    pub fn is_demo(&self) -> bool {
        self.host_away.is_some()
    }

    /// Whether the terminal has no room for any screen.
    pub fn is_too_small(&self) -> bool {
        self.size.0 < MIN_TERMINAL_SIZE.0 || self.size.1 < MIN_TERMINAL_SIZE.1
    }

    /// Whether a run is in progress.
    pub fn is_running(&self) -> bool {
        matches!(self.reset.stage, ResetStage::Run(_))
    }

    /// Whether a run is in progress that nobody has stopped.
    pub fn is_going_on(&self) -> bool {
        matches!(&self.reset.stage, ResetStage::Run(view) if !view.cancelled)
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
            ReadOnly { on: true, .. } => {
                let key = self.key(Command::ReadOnly);
                Some(format!("read-only; {key} switches it off"))
            }
            _ => None,
        }
    }

    /// Why an agent cannot be reached; none when it can, as far as is known.
    pub fn cut_off(&self, name: &str) -> Option<HostProblem> {
        let row = self.row(name);
        if let Some(status) = self.hosts.of(name)
            && (status.contact.reach != Reachability::Unknown || status.contact.asks.is_some())
        {
            return trouble(status, self.now.wall, &self.preferences.keymap);
        }
        let seen = row.and_then(|row| row.seen.as_ref())?;
        let trouble = HostProblem {
            reason: seen.why.clone(),
            next: None,
        };
        matches!(seen.state, State::Unreach | State::HostKey).then_some(trouble)
    }

    /// Filters and orders the fleet anew. The cursor stays on its agent, or,
    /// until it is moved, on the worst.
    pub fn arrange(&mut self) {
        let mut rows: Vec<&AgentRow> = self.rows.iter().filter(|row| self.shows(row)).collect();
        let size = |row: &AgentRow| {
            row.last_read()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.size)
        };
        let scratch = |row: &AgentRow| row.last_read().and_then(scratch_lines).unwrap_or(0);
        let changed = |row: &AgentRow| {
            row.last_read()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.modified)
        };
        let last = |row: &AgentRow| {
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
            self.cursor = self.first_agent().cloned();
            self.strip.clone_from(&self.cursor);
        }
        self.keep_cursor_visible();
    }

    /// The agent that the cursor begins on: the first of the order. In the demo, where
    /// somebody tries out keys, the first that these do something to.
    fn first_agent(&self) -> Option<&String> {
        let is_blocked = |name: &&String| {
            let seen = self.row(name).and_then(|row| row.seen.as_ref());
            seen.is_some_and(|seen| seen.block.is_some())
        };
        let first = self.order.first();
        match self.is_demo() {
            true => self.order.iter().find(|name| !is_blocked(name)).or(first),
            false => first,
        }
    }

    fn shows(&self, row: &AgentRow) -> bool {
        let seen = row.best();
        filter::shows(
            &self.filter,
            &FilterSubject {
                name: &row.name,
                host: seen.map_or("", |seen| &seen.host),
                login: row.address.login.as_deref().unwrap_or(""),
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
        // message, the hints.
        let errors = [&self.config_error, &self.preferences_error];
        let errors = errors.iter().filter(|it| it.is_some()).count();
        let fixed = 7 + self.strip_height() + errors;
        usize::from(self.size.1).saturating_sub(fixed).max(1)
    }

    /// Lines of the strip below the fleet.
    pub fn strip_height(&self) -> usize {
        if self.size.1 >= 24 { 2 } else { 1 }
    }

    /// Lines about the host under the cursor: all that the list leaves.
    pub fn host_height(&self) -> usize {
        self.hosts_room().saturating_sub(self.hosts_height())
    }

    /// Hosts that fit.
    pub fn hosts_height(&self) -> usize {
        let room = self.hosts_room();
        // What is told of one must not be lost behind many.
        let details = match self.size.1 {
            30.. => 14,
            24.. => 8,
            _ => room / 2,
        };
        let count = self.hosts.order().len();
        count.clamp(1, room.saturating_sub(details).max(1))
    }

    fn hosts_room(&self) -> usize {
        // Two lines of header, a rule, the column heads; a rule before the details;
        // the message, the hints.
        usize::from(self.size.1).saturating_sub(7)
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

    /// Says what is wrong with the preferences: all of it in the log, the first of it
    /// above the fleet until it is mended.
    pub fn complain(&mut self, problems: &[Diagnostic]) {
        for problem in problems {
            self.say(MessageLevel::Error, preferences::line(problem, ""));
        }
        // That verb reads no config.
        self.preferences_error = preferences::summary(problems, "memory-shepherd keys");
    }

    /// Says something that is not worth keeping.
    pub fn hint(&mut self, text: &str) {
        self.message = Some(LogMessage {
            level: MessageLevel::Info,
            text: text.to_string(),
            time: self.now.wall,
            count: 1,
            number: 0,
            run: None,
        });
        self.dirty = true;
    }

    /// Says something: it is shown, and kept in the log.
    pub fn say(&mut self, level: MessageLevel, text: impl Into<String>) {
        let last = self.log.messages.front().map_or(0, |last| last.number);
        let mut message = LogMessage {
            level,
            text: text.into(),
            time: self.now.wall,
            count: 1,
            number: last + 1,
            run: None,
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
                log.messages.truncate(MAX_MESSAGES);
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

/// Lines of scratch of a memory, if it was read and it is known where they begin: without
/// a baseline that can be read it may not be.
pub fn scratch_lines(seen: &Observation) -> Option<u64> {
    let content = seen.content.as_ref()?;
    let is_measured = content.boundary.is_some() || seen.baseline.is_some();
    is_measured.then_some(content.scratch_lines)
}
