//! The model: state of the console as plain data. [`mod@super::update`] changes it and
//! [`super::view`] draws it. Does no input or output and reads no clock.

pub(super) mod background_jobs;
pub mod equivalent_command;
mod handoff;
mod targets;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

pub use super::key_guard::{KEY_GUARD_TIME, KeyGuard};
pub use super::screens::agent::state::{
    AgentScreen, AgentTab, CONTEXT_LINE_CHOICES, HistoryPane, MIN_SIDE_BY_SIDE_COLUMNS,
    SIDE_GUTTER_CELLS,
};
pub use super::screens::hosts::state::{
    HostProblem, HostsScreen, NextAttempt, next_attempt_text, problem_of, status_label,
};
pub use super::screens::log::state::{
    LogMessage, LogRow, LogScreen, MAX_RUNS, MessageLevel, REDO_VERB, RunSummary,
};
pub use super::screens::reset::state::{
    Confirmation, PlanRequest, PlanView, ResetScreen, ResetStage, ResultLine, ResultView, RunView,
    required_confirmation, summarize_failures,
};
pub use background_jobs::{BackgroundJob, BackgroundJobs, REFRESH_INTERVAL};
pub use handoff::{
    BaselineEdit, ClipboardText, CopyOutcome, HandoffRequest, PagerText, SealQuestion,
};

use super::command::{Command, CommandSpec, KeyContext};
use super::filter::{self, FilterSubject};
use super::keymap::Key;
use super::preferences::{self, Preferences};
use crate::config::Diagnostic;
use crate::engine::{MemoryAddress, Observation, Reachability, State};
use crate::invocation::Invocation;
use crate::secret::Secret;
use crate::transport::sftp::askpass::Question;

/// Point in time, on the monotonic clock and on the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time since the console started.
    pub elapsed: Duration,
    /// Local time.
    pub local_time: DateTime<FixedOffset>,
}

/// Maximum number of messages in the log; the ledger keeps everything that matters.
const MAX_MESSAGES: usize = 1000;

/// Smallest terminal on which screens are drawn, in columns and rows.
pub const MIN_TERMINAL_SIZE: (u16, u16) = (60, 15);

/// State of the console.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name, tag and config of the fleet.
    pub fleet: FleetModel,
    /// Agents in the order of the config.
    pub rows: Vec<AgentRow>,
    /// Names of the visible agents, in display order.
    pub visible_agents: Vec<String>,
    /// The agent under the cursor.
    pub cursor_agent: Option<String>,
    /// Whether the cursor keeps its agent, because the operator pressed a key or had time to
    /// see it; until then it follows the worst agent.
    pub is_cursor_pinned: bool,
    /// When the cursor is pinned without a key.
    pub cursor_pin_due: Option<Duration>,
    /// Agent whose details are in the strip; lags behind the cursor while a key is held.
    pub strip_agent: Option<String>,
    /// When the strip follows the cursor.
    pub strip_due: Option<Duration>,
    /// When a key last moved the cursor.
    pub last_cursor_move: Option<Duration>,
    /// First visible row of the fleet.
    pub fleet_top: usize,
    /// Marked agents, by name.
    pub marks: BTreeSet<String>,
    /// Agent marked last: start of a range.
    pub mark_anchor: Option<String>,
    /// Filter of the fleet.
    pub filter: String,
    /// Whether the filter is the one restored from the previous session.
    pub is_filter_restored: bool,
    /// Sort order of the fleet.
    pub sort_order: SortOrder,
    /// Whether the sort order is reversed.
    pub is_reversed: bool,
    /// Current screen.
    pub screen: Screen,
    /// Previous screen, to toggle between the two.
    pub previous_screen: Option<Screen>,
    /// Screens that the agent and reset screens go back to.
    pub return_point: ReturnPoint,
    /// Agent screen.
    pub agent: AgentScreen,
    /// Reset screen: plan, run or result.
    pub reset: ResetScreen,
    /// Log screen.
    pub log: LogScreen,
    /// Hosts screen.
    pub hosts: HostsScreen,
    /// Pending request for the editor or the pager; any key cancels it.
    pub handoff_request: Option<HandoffRequest>,
    /// Background jobs.
    pub background_jobs: BackgroundJobs,
    /// Overlay on top of the screen.
    pub overlay: Option<Overlay>,
    /// Unanswered questions of hosts, oldest first.
    pub questions: Vec<Question>,
    /// Ignores the keys that follow the one that cancelled a question.
    pub abandoned_question_guard: KeyGuard,
    /// Input line that is open.
    pub input_line: Option<InputLine>,
    /// Keys of an incomplete sequence.
    pub pending_keys: PendingKeys,
    /// The operator's keys, columns and filters.
    pub preferences: Preferences,
    /// Summary of the errors in the preferences file.
    pub preferences_error: Option<String>,
    /// View state that was saved last.
    pub saved_view_state: ViewState,
    /// Sizes of agents before their last runs, in bytes, oldest first; empty unless the
    /// column is visible.
    pub trends: HashMap<String, Vec<u64>>,
    /// Message line; it stays until the next key.
    pub last_message: Option<LogMessage>,
    /// Whether changes are allowed.
    pub read_only: ReadOnlyState,
    /// Errors of a config changed while running; the previous config stays in force.
    pub config_error: Option<String>,
    /// Why the ledger cannot be read.
    pub ledger_error: Option<String>,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Whether the screen must be redrawn.
    pub is_dirty: bool,
    /// Time of the last message to the model.
    pub now: Moment,
    /// Whether the theme marks changed words with signs.
    pub has_word_marks: bool,
    /// Available themes.
    pub theme_names: Vec<String>,
    /// Number of the last plan request; a reply with a lower number is late.
    pub last_plan_id: u64,
    /// Whether the last plan request is unanswered.
    pub is_plan_pending: bool,
    /// Ages on the screen; a change makes the screen dirty.
    pub visible_ages: Vec<String>,
    /// Agent under the cursor until a key moves it, if it is shown; otherwise the first one.
    pub initial_agent: Option<String>,
    /// Command that the caller of the console added.
    pub extra_command: Option<&'static CommandSpec>,
}

/// Properties of the fleet, from its config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetModel {
    /// `fleet_name`.
    pub name: String,
    /// `fleet_tag`.
    pub tag: Option<String>,
    /// Path of the config, for messages.
    pub config_path: String,
    /// Invocation for equivalent command lines.
    pub invocation: Invocation,
    /// Days until retention removes entries.
    pub retention_days: u32,
    /// Location of the memory of each agent; `host:path` on a host.
    pub memory_locations: BTreeMap<String, String>,
}

/// One agent of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRow {
    /// Its name.
    pub name: String,
    /// Location of its memory.
    pub address: MemoryAddress,
    /// Current observation; `None` until it is read.
    pub observation: Option<Observation>,
    /// Last observation with a readable memory.
    pub last_readable: Option<Observation>,
    /// Observation saved by the previous session.
    pub saved_observation: Option<Observation>,
}

impl AgentRow {
    /// Returns its state; LOADING until it is read.
    pub fn state(&self) -> State {
        self.observation
            .as_ref()
            .map_or(State::Loading, |seen| seen.state)
    }

    /// Returns the current observation, else the saved one.
    pub fn latest_observation(&self) -> Option<&Observation> {
        self.observation
            .as_ref()
            .or(self.saved_observation.as_ref())
    }

    /// Returns the latest observation whose content is known.
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

/// Sort order of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    /// Worst state first.
    #[default]
    Severity,
    /// By name.
    Name,
    /// Largest memory first.
    Size,
    /// Most scratch first.
    Scratch,
    /// Most recent change first.
    Changed,
    /// Oldest last run first.
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

    /// Returns the display name.
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

    /// Returns which agents come first.
    pub fn description(self) -> &'static str {
        match self {
            SortOrder::Severity => "worst state first",
            SortOrder::Name => "by name",
            SortOrder::Size => "largest memory first",
            SortOrder::Scratch => "most scratch first",
            SortOrder::Changed => "by last change, newest first",
            SortOrder::LastRun => "by last run, oldest first",
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
    /// Runs and messages.
    Log,
    /// Hosts and their connections.
    Hosts,
}

/// Screens to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnPoint {
    /// From the agent screen.
    pub from_agent: Screen,
    /// From the reset screen.
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

/// Overlay on top of a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// Keys of the current screen.
    Help(Chooser),
    /// Commands, sort orders, themes, filters and agents.
    Palette(Chooser),
    /// Confirmation before read-only is switched off.
    UnlockReadOnly,
    /// Question of a host.
    AnswerQuestion(QuestionDialog),
    /// Confirmation before a sealed baseline is edited.
    EditSealed(Box<SealQuestion>),
}

/// Dialog that answers a question of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionDialog {
    /// The question.
    pub question: Question,
    /// Ignores keys typed before the operator can have read the question.
    pub guard: KeyGuard,
    /// Answer typed so far.
    pub answer: Secret,
    /// Whether the host no longer waits for the answer. The dialog stays open: the rest of
    /// a passphrase must not run as commands.
    pub is_withdrawn: bool,
}

/// Searchable list with a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chooser {
    /// Query typed so far.
    pub query: String,
    /// Whether keys edit the query.
    pub is_typing: bool,
    /// Row under the cursor; `None` while the query matches several items and no key has
    /// chosen one.
    pub cursor_row: Option<usize>,
    /// Item that the cursor selected. Keys act on it, even if the rows have moved since.
    pub selected: Option<ChooserItem>,
}

impl Chooser {
    /// Creates a list for browsing, with the cursor on the first item.
    pub fn for_browsing() -> Chooser {
        Chooser {
            query: String::new(),
            is_typing: false,
            cursor_row: Some(0),
            selected: None,
        }
    }

    /// Creates a list for searching, with an initial query.
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
    /// Sort the fleet.
    Sort(SortOrder),
    /// Switch to a theme.
    Theme(String),
    /// Apply a named filter: its name, and the filter.
    Filter(String, String),
    /// Open an agent.
    Agent(String),
    /// Show a tab of an agent.
    Tab(AgentTab, String),
}

/// Input line, with the value to restore on Esc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputLine {
    /// Filter of the fleet, with the previous filter.
    Filter(String),
    /// Search, with the previous query.
    Search(String),
}

/// Keys of an incomplete sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingKeys {
    /// The keys so far.
    pub keys: Vec<Key>,
    /// When the list of continuations appears.
    pub hint_due: Duration,
    /// Whether the list of continuations is visible.
    pub is_hint_shown: bool,
}

/// View of the fleet that is saved between sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewState {
    /// Sort order of the fleet.
    pub sort_order: SortOrder,
    /// Whether the sort order is reversed.
    pub is_reversed: bool,
    /// Filter.
    pub filter: String,
}

/// Whether changes are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOnlyState {
    /// `--read-only` is set; it cannot be switched off.
    pub is_forced: bool,
    /// Switched on by the operator or by `protect = readonly` of the fleet.
    pub is_on: bool,
    /// Whether `protect = readonly` of the fleet switches it on again.
    pub is_set_by_config: bool,
    /// When the unlock of agents protected as read-only expires.
    pub unlocked_until: Option<Duration>,
}

impl Model {
    /// Returns the row of an agent.
    pub fn find_row(&self, name: &str) -> Option<&AgentRow> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Returns the row under the cursor.
    pub fn current_row(&self) -> Option<&AgentRow> {
        self.cursor_agent
            .as_deref()
            .and_then(|name| self.find_row(name))
    }

    /// Returns the current key context.
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

    /// Returns what to press for a command, for use in a message.
    pub fn key_hint(&self, command: Command) -> String {
        self.preferences.keymap.key_hint(command)
    }

    /// Returns the view of the fleet to save.
    pub fn view_state(&self) -> ViewState {
        // Marks are not saved, so a filter by marks would match no agent in the next session.
        let is_filter_saved = !self.filter.to_lowercase().contains("is:marked");
        ViewState {
            sort_order: self.sort_order,
            is_reversed: self.is_reversed,
            filter: if is_filter_saved {
                self.filter.clone()
            } else {
                String::new()
            },
        }
    }

    /// Restores the saved view of the fleet.
    pub fn restore_view_state(&mut self, view: ViewState) {
        self.is_filter_restored = !view.filter.is_empty();
        self.sort_order = view.sort_order;
        self.is_reversed = view.is_reversed;
        self.filter.clone_from(&view.filter);
        self.saved_view_state = view;
        self.refresh_visible_agents();
        self.is_dirty = true;
    }

    /// Uses these preferences from now on.
    pub fn adopt_preferences(&mut self, preferences: Preferences) {
        self.preferences = preferences;
        if let Some(spec) = self.extra_command {
            self.preferences.keymap.add_command(spec);
        }
    }

    /// Whether the terminal is smaller than [`MIN_TERMINAL_SIZE`].
    pub fn is_too_small(&self) -> bool {
        self.size.0 < MIN_TERMINAL_SIZE.0 || self.size.1 < MIN_TERMINAL_SIZE.1
    }

    /// Whether a run is in progress.
    pub fn is_running(&self) -> bool {
        matches!(self.reset.stage, ResetStage::Run(_))
    }

    /// Whether a run is in progress and not cancelled.
    pub fn is_run_active(&self) -> bool {
        matches!(&self.reset.stage, ResetStage::Run(view) if !view.is_cancelled)
    }

    /// Whether agents protected as read-only are unlocked.
    pub fn is_unlocked(&self) -> bool {
        self.read_only
            .unlocked_until
            .is_some_and(|until| self.now.elapsed < until)
    }

    /// Returns the reason why changes are refused, if they are.
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

    /// Returns why an agent is unreachable; `None` if no problem is known.
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

    /// Filters and sorts the fleet again. The cursor stays on its agent, or on the worst
    /// agent until it is pinned.
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
            let initial = self.initial_agent.as_ref();
            let shown = initial.filter(|name| self.visible_agents.contains(name));
            self.cursor_agent = shown.or(self.visible_agents.first()).cloned();
            self.strip_agent.clone_from(&self.cursor_agent);
        }
        self.keep_fleet_cursor_visible();
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

    /// Returns the row index of the cursor.
    pub fn fleet_cursor_index(&self) -> Option<usize> {
        let name = self.cursor_agent.as_ref()?;
        self.visible_agents.iter().position(|other| other == name)
    }

    /// Scrolls the fleet so that the cursor is visible.
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

    /// Returns the number of fleet rows that fit.
    pub fn fleet_height(&self) -> usize {
        // Two lines of header, a rule, the column heads; a rule, the strip, the
        // message, the hints.
        let errors = [&self.config_error, &self.preferences_error];
        let errors = errors.iter().filter(|it| it.is_some()).count();
        let fixed = 7 + self.strip_height() + errors;
        usize::from(self.size.1).saturating_sub(fixed).max(1)
    }

    /// Returns the height of the strip below the fleet, in lines.
    pub fn strip_height(&self) -> usize {
        if self.size.1 >= 24 { 2 } else { 1 }
    }

    /// Returns the height of the host details: all lines that the list leaves.
    pub fn host_details_height(&self) -> usize {
        self.hosts_area_height()
            .saturating_sub(self.hosts_list_height())
    }

    /// Returns the number of host rows that fit.
    pub fn hosts_list_height(&self) -> usize {
        let room = self.hosts_area_height();
        // A long list must leave room for the details of one host.
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

    /// Returns the number of agents per state, worst first, without empty states.
    pub fn state_counts(&self) -> Vec<(State, usize)> {
        let count = |state: State| self.rows.iter().filter(|row| row.state() == state).count();
        State::ALL
            .into_iter()
            .map(|state| (state, count(state)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }

    /// Reports errors in the preferences: all of them in the log, and the first one above the
    /// fleet until the file is valid again.
    pub fn report_preference_problems(&mut self, problems: &[Diagnostic]) {
        for problem in problems {
            self.report(
                MessageLevel::Error,
                preferences::format_problem(problem, ""),
            );
        }
        // `keys` reads no config, so its command line needs no `--config`.
        self.preferences_error = preferences::summarize_problems(problems, "memory-shepherd keys");
    }

    /// Shows a message without adding it to the log.
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

    /// Shows a message and adds it to the log; repeats of the last one are counted.
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

/// Formats an age in steps so coarse that an idle screen is seldom redrawn.
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

/// Converts a modification time, in nanoseconds since the epoch, to the time zone of `like`.
pub fn modified_time(nanoseconds: i64, like: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
    DateTime::from_timestamp_nanos(nanoseconds).with_timezone(like.offset())
}

/// Returns the number of scratch lines, if the memory was read and its boundary is known:
/// without a readable baseline it may be unknown.
pub fn known_scratch_lines(observation: &Observation) -> Option<u64> {
    let content = observation.content.as_ref()?;
    let is_measured = content.boundary.is_some() || observation.baseline.is_some();
    is_measured.then_some(content.scratch_lines)
}
