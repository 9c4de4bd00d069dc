//! What the console knows: plain data. [`mod@super::update`] changes it,
//! [`super::view`] draws it.

mod agent;
pub(super) mod background_jobs;
pub mod equivalent_command;
mod handoff;
mod hosts;
mod key_guard;
mod log;
mod reset;
mod targets;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

pub use agent::{
    AgentScreen, AgentTab, CONTEXT_LINE_CHOICES, HistoryPane, MIN_SIDE_BY_SIDE_COLUMNS,
    SIDE_GUTTER_CELLS,
};
pub use background_jobs::{BackgroundJob, BackgroundJobs, REFRESH_INTERVAL};
pub use handoff::{
    BaselineEdit, ClipboardText, CopyOutcome, HandoffRequest, PagerText, SealQuestion,
};
pub use hosts::{
    HostProblem, HostsScreen, NextAttempt, next_attempt_text, problem_of, status_label,
};
pub use key_guard::{KEY_GUARD_TIME, KeyGuard};
pub use log::{LogMessage, LogRow, LogScreen, MAX_RUNS, MessageLevel, REDO_VERB, RunSummary};
pub use reset::{
    Confirmation, PlanRequest, PlanView, ResetScreen, ResetStage, ResultLine, ResultView, RunView,
    required_confirmation, summarize_failures,
};

use super::command::{Command, KeyContext};
use super::filter::{self, FilterSubject};
use super::keymap::Key;
use super::preferences::{self, Preferences};
use crate::config::Diagnostic;
use crate::engine::{MemoryAddress, Observation, Reachability, State};
use crate::invocation::Invocation;
use crate::secret::Secret;
use crate::transport::sftp::askpass::Question;

/// When something happened: a clock that only moves forward, and the time of
/// day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Since the console started.
    pub elapsed: Duration,
    /// Local time.
    pub local_time: DateTime<FixedOffset>,
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
    pub visible_agents: Vec<String>,
    /// The agent under the cursor.
    pub cursor_agent: Option<String>,
    /// Whether the cursor is the operator's, who has pressed a key or seen where it
    /// is; until then it is on the worst agent.
    pub is_cursor_pinned: bool,
    /// When it becomes the operator's without a key.
    pub cursor_pin_due: Option<Duration>,
    /// The agent whose details are in the strip; lags behind a held key.
    pub strip_agent: Option<String>,
    /// When the strip follows the cursor.
    pub strip_due: Option<Duration>,
    /// When a key moved the cursor last.
    pub last_cursor_move: Option<Duration>,
    /// First visible row of the fleet.
    pub fleet_top: usize,
    /// Marked agents, by name.
    pub marks: BTreeSet<String>,
    /// The agent that was marked last: where a range begins.
    pub mark_anchor: Option<String>,
    /// What is shown.
    pub filter: String,
    /// Whether the filter is still the one of the last time.
    pub is_filter_restored: bool,
    /// In which order.
    pub sort_order: SortOrder,
    /// The other way round.
    pub is_reversed: bool,
    /// The screen.
    pub screen: Screen,
    /// The screen before, for going back and forth.
    pub previous_screen: Option<Screen>,
    /// Where one is led back to.
    pub return_point: ReturnPoint,
    /// One agent's texts.
    pub agent: AgentScreen,
    /// Plan, run, result.
    pub reset: ResetScreen,
    /// The log.
    pub log: LogScreen,
    /// The hosts.
    pub hosts: HostsScreen,
    /// What is asked for from outside to be handed out or in; a key gives it up.
    pub handoff_request: Option<HandoffRequest>,
    /// What is being done in the background.
    pub background_jobs: BackgroundJobs,
    /// What lies over the screen.
    pub overlay: Option<Overlay>,
    /// What hosts ask, the oldest first.
    pub questions: Vec<Question>,
    /// Ignores keys behind one that gave a question up.
    pub abandoned_question_guard: KeyGuard,
    /// A line that is being typed.
    pub input_line: Option<InputLine>,
    /// Keys of a sequence that is not complete.
    pub pending_keys: PendingKeys,
    /// The operator's keys, columns and filters.
    pub preferences: Preferences,
    /// What is wrong with the file that says them.
    pub preferences_error: Option<String>,
    /// How the fleet was looked at when that was kept last.
    pub saved_view_state: ViewState,
    /// The sizes of agents before their last runs, the oldest first; empty unless
    /// the column is shown.
    pub trends: HashMap<String, Vec<u64>>,
    /// What was said last; it stays until the next key.
    pub last_message: Option<LogMessage>,
    /// Whether acts are possible.
    pub read_only: ReadOnlyState,
    /// Errors of a config that was changed while running; the old one is used.
    pub config_error: Option<String>,
    /// Why the ledger cannot be read.
    pub ledger_error: Option<String>,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Whether something that is drawn has changed.
    pub is_dirty: bool,
    /// The moment of the last message.
    pub now: Moment,
    /// Whether the theme shows changed words by marks.
    pub has_word_marks: bool,
    /// The themes that can be chosen.
    pub theme_names: Vec<String>,
    /// Numbers requests, so that late answers can be told.
    pub last_plan_id: u64,
    /// Whether the answer to the last one is still to come.
    pub is_plan_pending: bool,
    /// The ages that are on the screen, to know when one changes.
    pub visible_ages: Vec<String>,
    /// Whether the demo's host cannot be reached; none outside the demo.
    pub is_demo_host_away: Option<bool>,
}

/// The fleet as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetModel {
    /// `fleet_name`.
    pub name: String,
    /// `fleet_tag`.
    pub tag: Option<String>,
    /// Path of the config, for messages.
    pub config_path: String,
    /// How command lines that do the same invoke this program on it.
    pub invocation: Invocation,
    /// Days until retention removes entries.
    pub retention_days: u32,
    /// Where the memory of each agent is; `host:path` on a host.
    pub memory_locations: BTreeMap<String, String>,
}

/// One agent of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRow {
    /// Its name.
    pub name: String,
    /// Where its memory is.
    pub address: MemoryAddress,
    /// What it looks like now, once it was read.
    pub observation: Option<Observation>,
    /// What it looked like when its memory was read last.
    pub last_readable: Option<Observation>,
    /// What it looked like when the console was used last.
    pub saved_observation: Option<Observation>,
}

impl AgentRow {
    /// Its state; LOADING until it was read.
    pub fn state(&self) -> State {
        self.observation
            .as_ref()
            .map_or(State::Loading, |seen| seen.state)
    }

    /// What it looks like now, else what it did.
    pub fn latest_observation(&self) -> Option<&Observation> {
        self.observation
            .as_ref()
            .or(self.saved_observation.as_ref())
    }

    /// What its memory held when it was read last, as far as that is known.
    pub fn last_readable_observation(&self) -> Option<&Observation> {
        let current = self
            .observation
            .as_ref()
            .filter(|seen| seen.is_content_known());
        let remembered = self
            .saved_observation
            .as_ref()
            .filter(|seen| seen.is_content_known());
        current.or(self.last_readable.as_ref()).or(remembered)
    }
}

/// The order of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
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

impl SortOrder {
    /// All orders.
    pub const ALL: [SortOrder; 6] = [
        SortOrder::Severity,
        SortOrder::Name,
        SortOrder::Size,
        SortOrder::Scratch,
        SortOrder::Changed,
        SortOrder::LastRun,
    ];

    /// The word for people.
    pub fn label(self) -> &'static str {
        match self {
            SortOrder::Severity => "severity",
            SortOrder::Name => "name",
            SortOrder::Size => "size",
            SortOrder::Scratch => "scratch",
            SortOrder::Changed => "changed",
            SortOrder::LastRun => "last run",
        }
    }

    /// What comes first.
    pub fn description(self) -> &'static str {
        match self {
            SortOrder::Severity => "the worst first",
            SortOrder::Name => "by name",
            SortOrder::Size => "the largest memory first",
            SortOrder::Scratch => "the most scratch first",
            SortOrder::Changed => "by the age of the last change, the youngest first",
            SortOrder::LastRun => "by the age of the last run, the oldest first",
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
    pub from_agent: Screen,
    /// From a plan or a result.
    pub from_reset: Screen,
}

impl Default for ReturnPoint {
    fn default() -> ReturnPoint {
        ReturnPoint {
            from_agent: Screen::Fleet,
            from_reset: Screen::Fleet,
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
    UnlockReadOnly,
    /// A question of a host's.
    AnswerQuestion(QuestionDialog),
    /// The question before a sealed baseline is edited.
    EditSealed(Box<SealQuestion>),
}

/// A question that is being answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionDialog {
    /// Which one.
    pub question: Question,
    /// Ignores what was typed before it can have been read.
    pub guard: KeyGuard,
    /// What was typed so far.
    pub answer: Secret,
    /// Whether nobody waits for the answer any more. It stays on the screen all the
    /// same: what is being typed must not come to mean anything else.
    pub is_withdrawn: bool,
}

/// A list to choose from by a few letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chooser {
    /// What was typed.
    pub query: String,
    /// Whether typing goes into the query.
    pub is_typing: bool,
    /// The row under the cursor. There is none while a query fits several items and no
    /// key has chosen one of them.
    pub cursor_row: Option<usize>,
    /// The item that was there when the cursor came: what a key acts on, whatever
    /// has moved since.
    pub selected: Option<ChooserItem>,
}

impl Chooser {
    /// A list to move through; its cursor is on the first item.
    pub fn for_browsing() -> Chooser {
        Chooser {
            query: String::new(),
            is_typing: false,
            cursor_row: Some(0),
            selected: None,
        }
    }

    /// A list to search, with the beginning of a query.
    pub fn with_query(query: &str) -> Chooser {
        Chooser {
            query: query.to_string(),
            is_typing: true,
            cursor_row: None,
            selected: None,
        }
    }
}

/// An item of a chooser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChooserItem {
    /// Run a command.
    Command(Command),
    /// Order the fleet.
    Sort(SortOrder),
    /// Wear a theme.
    Theme(String),
    /// Show what a filter lets through: its name, and the filter.
    Filter(String, String),
    /// Open an agent.
    Agent(String),
    /// Show a tab of an agent.
    Tab(AgentTab, String),
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputLine {
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
    pub hint_due: Duration,
    /// Whether it is.
    pub is_hint_shown: bool,
}

/// How the fleet is looked at: what is kept for the next time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewState {
    /// In which order.
    pub sort_order: SortOrder,
    /// The other way round.
    pub is_reversed: bool,
    /// What is shown.
    pub filter: String,
}

/// Whether acts are possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOnlyState {
    /// By `--read-only`: cannot be switched off.
    pub is_forced: bool,
    /// By the operator, or by the fleet's `protect = readonly`.
    pub is_on: bool,
    /// Whether the fleet's `protect = readonly` switches it on again.
    pub is_set_by_config: bool,
    /// Until when agents that are protected as read-only are unlocked.
    pub unlocked_until: Option<Duration>,
}

impl Model {
    /// The agent of this name.
    pub fn find_row(&self, name: &str) -> Option<&AgentRow> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The row under the cursor.
    pub fn current_row(&self) -> Option<&AgentRow> {
        self.cursor_agent
            .as_deref()
            .and_then(|name| self.find_row(name))
    }

    /// What the keys mean now.
    pub fn key_context(&self) -> KeyContext {
        match (self.screen, &self.reset.stage) {
            (Screen::Fleet, _) => KeyContext::Fleet,
            (Screen::Agent, _) => KeyContext::Agent,
            (Screen::Log, _) => KeyContext::Log,
            (Screen::Hosts, _) => KeyContext::Hosts,
            (Screen::Reset, ResetStage::Run(_)) => KeyContext::Run,
            (Screen::Reset, ResetStage::Result(_)) => KeyContext::Result,
            (Screen::Reset, _) => KeyContext::Plan,
        }
    }

    /// What to press for a command, in a sentence.
    pub fn key_hint(&self, command: Command) -> String {
        self.preferences.keymap.key_hint(command)
    }

    /// How the fleet is looked at.
    pub fn view_state(&self) -> ViewState {
        // Marks do not outlive the console, so asking for them makes no sense then.
        let is_filter_kept = !self.filter.to_lowercase().contains("is:marked");
        ViewState {
            sort_order: self.sort_order,
            is_reversed: self.is_reversed,
            filter: if is_filter_kept {
                self.filter.clone()
            } else {
                String::new()
            },
        }
    }

    /// Looks at the fleet as it was looked at the last time.
    pub fn restore_view_state(&mut self, view: ViewState) {
        self.is_filter_restored = !view.filter.is_empty();
        self.sort_order = view.sort_order;
        self.is_reversed = view.is_reversed;
        self.filter.clone_from(&view.filter);
        self.saved_view_state = view;
        self.refresh_visible_agents();
        self.is_dirty = true;
    }

    /// Whether this is the example fleet.
    pub fn is_demo(&self) -> bool {
        self.is_demo_host_away.is_some()
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
    pub fn is_run_active(&self) -> bool {
        matches!(&self.reset.stage, ResetStage::Run(view) if !view.is_cancelled)
    }

    /// Whether agents that are protected as read-only may be changed.
    pub fn is_unlocked(&self) -> bool {
        self.read_only
            .unlocked_until
            .is_some_and(|until| self.now.elapsed < until)
    }

    /// Why nothing can be changed, if nothing can.
    pub fn read_only_reason(&self) -> Option<String> {
        match self.read_only {
            ReadOnlyState {
                is_forced: true, ..
            } => Some("started with --read-only".to_string()),
            ReadOnlyState { is_on: true, .. } => {
                let key = self.key_hint(Command::ToggleReadOnly);
                Some(format!("read-only; {key} switches it off"))
            }
            _ => None,
        }
    }

    /// Why an agent cannot be reached; none when it can, as far as is known.
    pub fn host_problem(&self, name: &str) -> Option<HostProblem> {
        let row = self.find_row(name);
        if let Some(status) = self.hosts.status_of_agent(name)
            && (status.connection.reachability != Reachability::Unknown
                || status.connection.pending_prompt.is_some())
        {
            return problem_of(status, self.now.local_time, &self.preferences.keymap);
        }
        let seen = row.and_then(|row| row.observation.as_ref())?;
        let trouble = HostProblem {
            reason: seen.reason.clone(),
            next_attempt: None,
        };
        matches!(seen.state, State::Unreach | State::HostKey).then_some(trouble)
    }

    /// Filters and orders the fleet anew. The cursor stays on its agent, or,
    /// until it is moved, on the worst.
    pub fn refresh_visible_agents(&mut self) {
        let mut rows: Vec<&AgentRow> = self
            .rows
            .iter()
            .filter(|row| self.matches_filter(row))
            .collect();
        let memory_size = |row: &AgentRow| {
            row.last_readable_observation()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.size)
        };
        let scratch_size = |row: &AgentRow| {
            row.last_readable_observation()
                .and_then(known_scratch_lines)
                .unwrap_or(0)
        };
        let modified_at = |row: &AgentRow| {
            row.last_readable_observation()
                .and_then(|seen| seen.content.as_ref())
                .map_or(0, |c| c.modified_ns)
        };
        let last_run_time = |row: &AgentRow| {
            row.latest_observation()
                .and_then(|seen| seen.last_run.as_ref())
                .map(|last| last.time)
        };
        match self.sort_order {
            SortOrder::Severity => rows.sort_by_key(|row| row.state()),
            SortOrder::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
            SortOrder::Size => rows.sort_by_key(|row| std::cmp::Reverse(memory_size(row))),
            SortOrder::Scratch => rows.sort_by_key(|row| std::cmp::Reverse(scratch_size(row))),
            SortOrder::Changed => rows.sort_by_key(|row| std::cmp::Reverse(modified_at(row))),
            SortOrder::LastRun => rows.sort_by_key(|row| last_run_time(row)),
        }
        if self.is_reversed {
            rows.reverse();
        }
        self.visible_agents = rows.into_iter().map(|row| row.name.clone()).collect();
        let is_cursor_hidden = self
            .cursor_agent
            .as_ref()
            .is_none_or(|name| !self.visible_agents.contains(name));
        if is_cursor_hidden || !self.is_cursor_pinned {
            self.cursor_agent = self.initial_cursor_agent().cloned();
            self.strip_agent.clone_from(&self.cursor_agent);
        }
        self.keep_fleet_cursor_visible();
    }

    /// The agent that the cursor begins on: the first of the order. In the demo, where
    /// somebody tries out keys, the first that these do something to.
    fn initial_cursor_agent(&self) -> Option<&String> {
        let is_blocked = |name: &&String| {
            let seen = self.find_row(name).and_then(|row| row.observation.as_ref());
            seen.is_some_and(|seen| seen.blocker.is_some())
        };
        let first = self.visible_agents.first();
        match self.is_demo() {
            true => self
                .visible_agents
                .iter()
                .find(|name| !is_blocked(name))
                .or(first),
            false => first,
        }
    }

    fn matches_filter(&self, row: &AgentRow) -> bool {
        let seen = row.latest_observation();
        filter::matches_filter(
            &self.filter,
            &FilterSubject {
                name: &row.name,
                host: seen.map_or("", |seen| &seen.host),
                login: row.address.login.as_deref().unwrap_or(""),
                state: row.state().as_str(),
                reason: seen.map_or("", |seen| &seen.reason),
                is_marked: self.marks.contains(&row.name),
            },
        )
    }

    /// The place of the cursor in the order.
    pub fn fleet_cursor_index(&self) -> Option<usize> {
        let name = self.cursor_agent.as_ref()?;
        self.visible_agents.iter().position(|other| other == name)
    }

    /// Scrolls the fleet so that the cursor can be seen.
    pub fn keep_fleet_cursor_visible(&mut self) {
        let height = self.fleet_height();
        let index = self.fleet_cursor_index().unwrap_or(0);
        self.fleet_top = self
            .fleet_top
            .clamp((index + 1).saturating_sub(height), index);
        self.fleet_top = self
            .fleet_top
            .min(self.visible_agents.len().saturating_sub(height));
    }

    /// Rows of the fleet that fit.
    pub fn fleet_height(&self) -> usize {
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
    pub fn host_details_height(&self) -> usize {
        self.hosts_area_height()
            .saturating_sub(self.hosts_list_height())
    }

    /// Hosts that fit.
    pub fn hosts_list_height(&self) -> usize {
        let room = self.hosts_area_height();
        // What is told of one must not be lost behind many.
        let details = match self.size.1 {
            30.. => 14,
            24.. => 8,
            _ => room / 2,
        };
        let count = self.hosts.sorted_statuses().len();
        count.clamp(1, room.saturating_sub(details).max(1))
    }

    fn hosts_area_height(&self) -> usize {
        // Two lines of header, a rule, the column heads; a rule before the details;
        // the message, the hints.
        usize::from(self.size.1).saturating_sub(7)
    }

    /// Counts by state, the worst first; states that nobody is in left out.
    pub fn state_counts(&self) -> Vec<(State, usize)> {
        let count = |state: State| self.rows.iter().filter(|row| row.state() == state).count();
        State::ALL
            .into_iter()
            .map(|state| (state, count(state)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Says what is wrong with the preferences: all of it in the log, the first of it
    /// above the fleet until it is mended.
    pub fn report_preference_problems(&mut self, problems: &[Diagnostic]) {
        for problem in problems {
            self.report(
                MessageLevel::Error,
                preferences::format_problem(problem, ""),
            );
        }
        // That verb reads no config.
        self.preferences_error = preferences::summarize_problems(problems, "memory-shepherd keys");
    }

    /// Says something that is not worth keeping.
    pub fn show_hint(&mut self, text: &str) {
        self.last_message = Some(LogMessage {
            level: MessageLevel::Info,
            text: text.to_string(),
            time: self.now.local_time,
            repeat_count: 1,
            sequence: 0,
            run_id: None,
        });
        self.is_dirty = true;
    }

    /// Says something: it is shown, and kept in the log.
    pub fn report(&mut self, level: MessageLevel, text: impl Into<String>) {
        let last = self.log.messages.front().map_or(0, |last| last.sequence);
        let mut message = LogMessage {
            level,
            text: text.into(),
            time: self.now.local_time,
            repeat_count: 1,
            sequence: last + 1,
            run_id: None,
        };
        let mut count = 1;
        let mut add_to_log = |log: &mut LogScreen| match log.messages.front_mut() {
            Some(last) if last.text == message.text => {
                last.repeat_count += 1;
                last.time = message.time;
                count = last.repeat_count;
            }
            _ => {
                log.messages.push_front(message.clone());
                log.messages.truncate(MAX_MESSAGES);
            }
        };
        match self.screen {
            Screen::Log => self.log.change_keeping_cursor(add_to_log),
            _ => add_to_log(&mut self.log),
        }
        message.repeat_count = count;
        self.last_message = Some(message);
        self.is_dirty = true;
    }
}

/// How long ago something was, in steps so coarse that an idle screen stays
/// idle.
pub fn format_age(now: DateTime<FixedOffset>, then: DateTime<FixedOffset>) -> String {
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
pub fn modified_time(nanoseconds: i64, like: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
    DateTime::from_timestamp_nanos(nanoseconds).with_timezone(like.offset())
}

/// Lines of scratch of a memory, if it was read and it is known where they begin: without
/// a baseline that can be read it may not be.
pub fn known_scratch_lines(observation: &Observation) -> Option<u64> {
    let content = observation.content.as_ref()?;
    let is_measured = content.boundary.is_some() || observation.baseline.is_some();
    is_measured.then_some(content.scratch_lines)
}
