//! The model: state of the console as plain data. [`mod@super::update`] changes it and
//! [`super::view`] draws it. Does no input or output and reads no clock.

mod agent_rows;
pub(super) mod background_jobs;
pub mod copied_text;
pub mod equivalent_command;
pub mod host_problems;
pub mod plans;
pub mod read_only;
pub mod targets;
pub mod trouble;
pub mod undo_offers;
pub mod visible_text;

use std::time::Duration;

use chrono::{DateTime, FixedOffset};

pub use agent_rows::{AgentRows, RunSign};
pub use background_jobs::{BackgroundJob, BackgroundJobs, REFRESH_INTERVAL};
pub use plans::PlanKind;
pub use read_only::ReadOnlyState;
pub use targets::NEVER_RESET_REASON;
pub use trouble::{FittedTrouble, TroubleLine, TroubleOrigin, TroubleVisit, TroubleWatch};
pub use undo_offers::{OfferedPlan, UndoOffer, UndoOffers};

use super::agent_row::AgentRow;
use super::command::{Command, CommandSpec, KeyContext};
use super::handoff::HandoffRequest;
use super::overlay::{Overlay, PendingKeys};
use super::preferences::{self, Preferences};
use super::screen::Screen;
use super::screens::agent::state::{AgentScreen, AgentTab};
use super::screens::archives::state::{ArchivesPage, ArchivesScreen};
use super::screens::baseline_plan::state::BaselinePlanScreen;
use super::screens::baselines::state::{BaselinesPage, BaselinesScreen};
use super::screens::editor::state::EditorScreen;
use super::screens::fleet::state::{FleetConfig, FleetScreen};
use super::screens::hosts::state::HostsScreen;
use super::screens::log::state::{LogMessage, LogScreen, MAX_MESSAGES, MessageLevel};
use super::screens::reset::state::ResetScreen;
use super::screens::verify::state::VerifyScreen;
use super::text::TextOptions;
use super::widgets::plan_pane::PlanStage;
use super::widgets::prompt::Prompt;
use crate::config::Diagnostic;
use crate::console::keys::key_guard::KeyGuard;
use crate::engine::Observation;
use crate::transport::sftp::askpass::Question;
use plans::has_plan;

/// Point in time, on the monotonic clock and on the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Time since the console started.
    pub elapsed: Duration,
    /// Local time.
    pub local_time: DateTime<FixedOffset>,
}

/// Smallest terminal on which screens are drawn, in columns and rows.
pub const MIN_TERMINAL_SIZE: (u16, u16) = (60, 15);

/// State of the console.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Name, tag and paths of the fleet.
    pub config: FleetConfig,
    /// Agents in the order of the config.
    pub rows: AgentRows,
    /// Current screen.
    pub screen: Screen,
    /// Previous screen, to toggle between the two.
    pub previous_screen: Option<Screen>,
    /// Screens that the agent screen and the editor go back to.
    pub return_point: ReturnPoint,
    /// Fleet screen.
    pub fleet: FleetScreen,
    /// Agent screen.
    pub agent: AgentScreen,
    /// Reset screen: plan, run or result.
    pub reset: ResetScreen,
    /// Log screen.
    pub log: LogScreen,
    /// Hosts screen.
    pub hosts: HostsScreen,
    /// Baselines screen.
    pub baselines: BaselinesScreen,
    /// Plan over baselines.
    pub baseline_plan: BaselinePlanScreen,
    /// Verify screen.
    pub verify: VerifyScreen,
    /// Archives screen.
    pub archives: ArchivesScreen,
    /// Agents that became worse and were not looked at since.
    pub trouble: TroubleWatch,
    /// What the undo key offers, while its plan is on the screen.
    pub undo_offers: UndoOffers,
    /// The baseline that is open in the editor.
    pub editor: Option<Box<EditorScreen>>,
    /// Overlay on top of the screen.
    pub overlay: Option<Overlay>,
    /// Input line that is open.
    pub input_line: Option<Prompt>,
    /// Keys of an incomplete sequence.
    pub pending_keys: PendingKeys,
    /// Unanswered questions of hosts, oldest first.
    pub questions: Vec<Question>,
    /// What ignores keys that were typed ahead.
    pub key_guards: KeyGuards,
    /// Pending request for the editor or the pager; any key cancels it.
    pub handoff_request: Option<HandoffRequest>,
    /// Background jobs.
    pub background_jobs: BackgroundJobs,
    /// The operator's keys, columns and filters.
    pub preferences: Preferences,
    /// Available themes.
    pub theme_names: Vec<String>,
    /// How texts are shown.
    pub text_options: TextOptions,
    /// Whether the theme marks changed words with signs.
    pub has_word_marks: bool,
    /// Message line; it stays until the next key.
    pub last_message: Option<LogMessage>,
    /// Errors of files, until these are valid again.
    pub errors: FileErrors,
    /// Whether changes are allowed.
    pub read_only: ReadOnlyState,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Time of the last message to the model.
    pub now: Moment,
    /// Whether the screen must be redrawn.
    pub is_dirty: bool,
    /// Whether the states of the last session were loaded.
    pub are_saved_states_known: bool,
    /// Ages on the screen; a change makes the screen dirty.
    pub visible_ages: Vec<String>,
    /// Command that the caller of the console added.
    pub extra_command: Option<&'static CommandSpec>,
}

/// Screens to go back to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReturnPoint {
    /// From the agent screen.
    pub from_agent: Screen,
    /// From the editor.
    pub from_editor: Screen,
    /// The agent that was on the agent screen when the reset screen was opened there: a plan opens
    /// others.
    pub agent_before_reset: Option<AgentView>,
    /// The fleet's filter before the hosts screen showed the agents of a host there. Until it changes
    /// again, the fleet leads back to the hosts.
    pub filter_before_host: Option<String>,
}

/// What ignores keys that were typed ahead.
#[derive(Clone, Debug, Default)]
pub struct KeyGuards {
    /// From the request of a plan on, and again whenever one becomes visible.
    pub plan: KeyGuard,
    /// The screen of the visible plan, and when that plan was made; `None` if no plan is visible.
    pub visible_plan: Option<(Screen, Duration)>,
    /// After the key that cancelled a question, and after the end of a plan that a changed config
    /// closed: the rest of a confirmation is not a command.
    pub typed_ahead: KeyGuard,
}

/// Errors of files, until these are valid again.
#[derive(Clone, Debug, Default)]
pub struct FileErrors {
    /// Summary of the errors in the preferences.
    pub preferences: Option<String>,
    /// Summary of the errors in a changed config; the previous one stays in force.
    pub config: Option<String>,
    /// Why the ledger cannot be read.
    pub ledger: Option<String>,
}

/// What the agent screen showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentView {
    /// The agent.
    pub agent: String,
    /// Its tab.
    pub tab: AgentTab,
    /// Where the agent screen goes back to.
    pub from_agent: Screen,
}

impl Model {
    /// Returns the observations for the next session; none as long as those of the last one may say
    /// more.
    pub fn observations_to_save(&self) -> Option<Vec<&Observation>> {
        let rows = self.rows.iter();
        let seen: Vec<_> = rows.filter_map(AgentRow::observation_to_save).collect();
        (self.are_saved_states_known || seen.len() == self.rows.len()).then_some(seen)
    }

    /// Returns the row of an agent.
    pub fn find_row(&self, name: &str) -> Option<&AgentRow> {
        self.rows.find(name)
    }

    /// Returns the row under the cursor.
    pub fn current_row(&self) -> Option<&AgentRow> {
        self.fleet
            .cursor_agent
            .as_deref()
            .and_then(|name| self.find_row(name))
    }

    /// Returns the current key context.
    pub fn key_context(&self) -> KeyContext {
        match (self.screen, self.reset.result()) {
            (Screen::Fleet, _) => KeyContext::Fleet,
            (Screen::Agent, _) => KeyContext::Agent,
            (Screen::Log, _) if self.log.schedule.is_focused => KeyContext::Schedule,
            (Screen::Log, _) => KeyContext::Log,
            (Screen::Hosts, _) => KeyContext::Hosts,
            (Screen::BaselinePlan, _) => KeyContext::BaselinePlan,
            (Screen::Verify, _) => KeyContext::Verify,
            (Screen::Archives, _) => match self.archives.page {
                ArchivesPage::List => KeyContext::Archives,
                ArchivesPage::Text => KeyContext::ArchiveText,
                ArchivesPage::Comparison => KeyContext::EntryDiff,
                ArchivesPage::Timeline => KeyContext::Timeline,
                _ if self.archives.has_prune_plan() => KeyContext::PrunePlan,
                ArchivesPage::Retention | ArchivesPage::RetentionAgent => KeyContext::Retention,
            },
            (Screen::Baselines, _) => match self.baselines.page {
                BaselinesPage::List => KeyContext::Baselines,
                BaselinesPage::Versions => KeyContext::Versions,
                BaselinesPage::Comparison => KeyContext::Comparison,
            },
            (Screen::Editor, _) => {
                let editor = self.editor.as_ref();
                editor.map_or(KeyContext::Editor, |editor| editor.key_context())
            }
            (Screen::Reset, _) if self.reset.is_running() => KeyContext::Run,
            (Screen::Reset, Some(_)) => KeyContext::Result,
            (Screen::Reset, _) => KeyContext::Plan,
        }
    }

    /// Returns what the agent screen shows, if it is the current screen.
    pub fn agent_view(&self) -> Option<AgentView> {
        (self.screen == Screen::Agent).then(|| AgentView {
            agent: self.agent.agent.clone(),
            tab: self.agent.tab,
            from_agent: self.return_point.from_agent,
        })
    }

    /// Returns what to press for a command, for use in a message.
    pub fn key_hint(&self, command: Command) -> String {
        self.preferences.keymap.key_hint(command)
    }

    /// Uses these preferences from now on.
    pub fn adopt_preferences(&mut self, preferences: Preferences) {
        self.preferences = preferences;
        if let Some(spec) = self.extra_command {
            self.preferences.keymap.add_command(spec);
        }
    }

    /// Whether an overlay or an input line is open, so that rows must not move below it.
    pub fn is_screen_covered(&self) -> bool {
        self.overlay.is_some() || self.input_line.is_some()
    }

    /// Returns a screen to go back to; the fleet, if what it showed has been closed.
    pub fn reopenable_screen(&self, screen: Screen) -> Screen {
        let is_closed = match screen {
            Screen::Editor => self.editor.is_none(),
            Screen::BaselinePlan => matches!(self.baseline_plan.plan.stage, PlanStage::Empty),
            Screen::Reset => self.reset.is_empty(),
            _ => false,
        };
        if is_closed { Screen::Fleet } else { screen }
    }

    /// Returns until when the screen shows that keys are ignored, if it does now.
    pub fn key_guard_notice_until(&self) -> Option<Duration> {
        let guard = match &self.overlay {
            Some(Overlay::AnswerQuestion(dialog)) => &dialog.guard,
            Some(Overlay::Timer(dialog)) => &dialog.guard,
            Some(_) => return None,
            None if has_plan(self) => &self.key_guards.plan,
            None if self.screen == Screen::Editor => self.editor.as_ref()?.key_guard()?,
            None => return None,
        };
        guard.notice_until(self.now.elapsed)
    }

    /// Returns the rows of the screen beside a number of others, at least one.
    pub fn rows_beside(&self, others: usize) -> usize {
        usize::from(self.size.1).saturating_sub(others).max(1)
    }

    /// Returns the rows of the details of an entry or a run: the last message is shown in the second one.
    pub fn details_height(&self) -> usize {
        if self.last_message.is_some() { 1 } else { 2 }
    }

    /// Whether the terminal is smaller than [`MIN_TERMINAL_SIZE`].
    pub fn is_too_small(&self) -> bool {
        self.size.0 < MIN_TERMINAL_SIZE.0 || self.size.1 < MIN_TERMINAL_SIZE.1
    }

    /// Reports errors in the preferences: all of them in the log, and the first one above the
    /// fleet until the file is valid again.
    pub fn report_preference_problems(&mut self, problems: &[Diagnostic]) {
        for problem in problems {
            self.report_error(preferences::format_problem(problem));
        }
        // `keys` reads no config, so its command line needs no `--config`.
        self.errors.preferences = preferences::summarize_problems(problems, "memory-shepherd keys");
    }

    /// Goes to a screen and drops an incomplete key sequence.
    pub fn go_to_screen(&mut self, screen: Screen) {
        if self.screen != screen {
            self.previous_screen = Some(self.screen);
            self.screen = screen;
        }
        self.pending_keys = PendingKeys::default();
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

    /// Shows a note, and adds it to the log unless the last message of the log has the same text.
    pub fn report_once(&mut self, text: &str) {
        let last = self.log.messages.front();
        if last.is_some_and(|last| last.text == text) {
            self.show_hint(text);
        } else {
            self.report_info(text);
        }
    }

    /// Shows a note and adds it to the log.
    pub fn report_info(&mut self, text: impl Into<String>) {
        self.report(MessageLevel::Info, text);
    }

    /// Shows a warning and adds it to the log.
    pub fn report_warning(&mut self, text: impl Into<String>) {
        self.report(MessageLevel::Warn, text);
    }

    /// Shows an error and adds it to the log.
    pub fn report_error(&mut self, text: impl Into<String>) {
        self.report(MessageLevel::Error, text);
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
        let messages = &mut self.log.messages;
        match messages.front_mut() {
            Some(last) if last.text == message.text => {
                last.repeat_count += 1;
                last.time = message.time;
                message.repeat_count = last.repeat_count;
            }
            _ => {
                messages.push_front(message.clone());
                messages.truncate(MAX_MESSAGES);
            }
        }
        self.last_message = Some(message);
        self.is_dirty = true;
    }
}
