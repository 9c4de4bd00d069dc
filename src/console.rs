//! The console: start-up, event loop and shutdown. The main thread owns the terminal and the
//! model and runs [`mod@update`] and [`view`]; other threads read input, watch the fleet and
//! execute effects. Only the main thread writes to the terminal, and it never waits for a
//! file or a host.

pub mod age;
pub mod availability;
mod canvas;
pub mod chooser;
pub mod columns;
pub mod command;
mod effect;
pub mod external_tools;
pub mod filter;
mod frame;
pub mod handoff;
mod input;
pub mod key;
pub mod key_guard;
pub mod keymap;
pub mod markdown;
pub mod message;
pub mod model;
pub mod overlay;
pub mod preferences;
pub mod screens;
pub mod setting_error;
pub mod terminal;
pub mod text;
pub mod theme;
mod toml_source;
pub mod update;
pub mod view;
pub mod view_state;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, never, select, unbounded};
use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use signal_hook::consts::{SIGCONT, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};

use crate::clock::Clock;
use crate::config::{Config, ConfigEnvironment, ProtectLevel};
use crate::engine::{Engine, MemoryAddress};
use crate::error::{Error, ErrorKind, Result};
use crate::transport::sftp::askpass::{self, PromptBroker};
use command::CommandSpec;
use effect::{EffectRunner, Loaded, LoadedTheme, RunHandle, UserFiles, fleet_event_message};
pub use effect::{EngineFactory, load_runs, summarize_findings};
use external_tools::{ChildChange, ExternalTools, ForegroundChild, InputPause};
use handoff::{BaselineEdit, ClipboardText, CopyOutcome};
use input::InputEvent;
use message::{Effect, Msg};
use model::{AgentRow, BackgroundJobs, Model, Moment, ReadOnlyState, Screen};
use overlay::PendingKeys;
use preferences::Preferences;
use screens::agent::state::AgentScreen;
use screens::fleet::state::FleetScreen;
use screens::hosts::state::HostsScreen;
use screens::log::state::{LogScreen, MessageLevel};
use screens::reset::state::ResetScreen;
use tempfile::NamedTempFile;
use terminal::{FramePacer, TerminalFeatures};
use theme::{Theme, Themes};
use update::handoff::error_with_hint;
use update::{next_wake, update};

/// Time budget for background messages before the loop checks for keys again.
const MAX_BACKGROUND_TIME: Duration = Duration::from_millis(4);

/// Time that the input thread has to pause.
const READER_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Options for starting the console.
pub struct ConsoleOptions {
    /// The engine of the fleet.
    pub engine: Arc<Engine>,
    /// `--read-only` is set.
    pub is_read_only: bool,
    /// `--theme`; else the theme of the preferences, else of the config.
    pub theme: Option<String>,
    /// `NO_COLOR` is set.
    pub is_color_disabled: bool,
    /// Whether the console runs over SSH.
    pub is_over_ssh: bool,
    /// Capabilities of the terminal.
    pub terminal_features: TerminalFeatures,
    /// For reading a changed config.
    pub env: ConfigEnvironment,
    /// Path of the preferences; `None` without a config directory.
    pub preferences_path: Option<PathBuf>,
    /// Location of the saved view; `None` for a temporary fleet.
    pub view_state_file: Option<view_state::ViewStateFile>,
    /// The editor, the pager and the clipboard.
    pub external_tools: ExternalTools,
    /// First message.
    pub startup_message: Option<String>,
    /// Broker for questions of hosts, and its events.
    pub prompt_broker: (PromptBroker, Receiver<askpass::PromptEvent>),
    /// Makes an engine for a changed config.
    pub engine_factory: EngineFactory,
    /// Agent under the cursor at first; `None` for the first one shown.
    pub initial_agent: Option<String>,
    /// A command in addition to those of the table.
    pub extra_command: Option<ExtraCommand>,
}

/// A command that the caller of the console adds.
pub struct ExtraCommand {
    /// Its row; the command is [`command::Command::Extra`].
    pub spec: &'static CommandSpec,
    /// Runs it, on the screen's thread; all agents are read again afterwards.
    pub run: RunExtraCommand,
}

/// Runs an added command; returns the text to report.
pub type RunExtraCommand = Box<dyn Fn() -> Result<String>>;

/// Creates the model of a fleet before anything is read.
pub fn initial_model(config: &Config, moment: Moment, size: (u16, u16)) -> Model {
    let by_config = config.general.protect == ProtectLevel::ReadOnly;
    let row = |agent: &crate::config::Agent| AgentRow {
        name: agent.name.clone(),
        address: MemoryAddress::from_location(&agent.location),
        observation: None,
        last_readable: None,
        saved_observation: None,
    };
    let mut model = Model {
        config: effect::fleet_model(config),
        rows: config.agents.iter().map(row).collect(),
        screen: Screen::Fleet,
        previous_screen: None,
        return_point: Default::default(),
        fleet: FleetScreen::default(),
        agent: AgentScreen {
            is_wrapping: true,
            context_lines: Some(3),
            ..AgentScreen::default()
        },
        reset: ResetScreen::default(),
        log: LogScreen::default(),
        hosts: HostsScreen::default(),
        overlay: None,
        input_line: None,
        pending_keys: PendingKeys::default(),
        questions: Vec::new(),
        abandoned_question_guard: Default::default(),
        handoff_request: None,
        background_jobs: BackgroundJobs::default(),
        preferences: Preferences::default(),
        theme_names: Themes::default().names(),
        has_word_marks: false,
        last_message: None,
        preferences_error: None,
        config_error: None,
        ledger_error: None,
        read_only: ReadOnlyState {
            is_on: by_config,
            is_set_by_config: by_config,
            ..ReadOnlyState::default()
        },
        size,
        now: moment,
        is_dirty: true,
        visible_ages: Vec::new(),
        extra_command: None,
    };
    let names: Vec<String> = model.rows.iter().map(|row| row.name.clone()).collect();
    model.background_jobs.begin_reads(&names, moment);
    model.refresh_visible_agents();
    model
}

/// Runs the console until the operator quits. Returns whether a signal or the loss of the
/// terminal ended it.
///
/// # Errors
/// The theme does not exist, or the terminal is unusable.
pub fn run(options: ConsoleOptions) -> Result<bool> {
    let config = options.engine.config();
    let (preferences, problems) = match &options.preferences_path {
        Some(path) => preferences::load(path),
        None => Default::default(),
    };
    let directory = options.env.config_directory();
    let directory = directory.map(|directory| directory.join(theme::THEMES_DIRECTORY));
    let themes = Themes::new(directory, options.terminal_features.colour_depth);
    let theme_choice = ThemeChoice {
        flag_theme: options.theme,
        is_color_disabled: options.is_color_disabled,
        config_theme: config.general.theme.clone(),
    };
    let theme = themes.load(theme_choice.theme_name(&preferences))?;
    let names = themes.names();
    let saved_view = options.view_state_file.map(|place| (place.read(), place));
    let clock = ConsoleClock::new(options.engine.clock_handle());
    // Signals no longer end the program from here on, so everything slow is done before.
    let (input_sender, input) = unbounded();
    input::spawn_signal_reader(&input_sender)?;
    let mut screen = terminal::TerminalScreen::enter(options.terminal_features)?;
    let mut model = initial_model(config, clock.now(), screen.size());
    model.has_word_marks = theme.has_word_marks();
    // Side by side costs twice the bytes per scrolled line.
    model.agent.is_unified = options.is_over_ssh;
    model.theme_names = names;
    model.read_only.is_forced = options.is_read_only;
    model.fleet.initial_agent = options.initial_agent;
    model.extra_command = options.extra_command.as_ref().map(|extra| extra.spec);
    if let Some(note) = &options.startup_message {
        model.report(MessageLevel::Info, note.clone());
    }
    for warning in &config.warnings {
        model.report(MessageLevel::Warn, warning.to_string().replace('\n', " "));
    }
    model.report_preference_problems(&problems);
    model.adopt_preferences(preferences.clone());
    let loaded_preferences = (preferences, problems);
    match saved_view.as_ref().map(|(view, _)| view) {
        Some(Ok(Some(view))) => model.restore_view_state(view.clone()),
        Some(Err(error)) => model.report(MessageLevel::Warn, view_state::not_saved_message(error)),
        Some(Ok(None)) | None => {}
    }
    let input_pause = input::spawn_terminal_reader(input_sender);
    let (runner, inbox) = EffectRunner::start(
        options.engine,
        options.prompt_broker,
        options.env,
        options.engine_factory,
        options.extra_command.map(|extra| extra.run),
        UserFiles {
            preferences: options
                .preferences_path
                .map(|path| (path, loaded_preferences)),
            view_state_file: saved_view.map(|(_, place)| place),
        },
    );
    let mut console = Console {
        clock,
        model,
        theme,
        themes,
        theme_choice,
        runner,
        frame_rate: FramePacer::new(options.is_over_ssh),
        is_key_pending: false,
        page_count: 0,
        pending_page: None,
        is_interrupted: false,
        external_tools: options.external_tools,
        input_pause,
        pending_handoff: None,
        foreground_program: None,
    };
    console
        .handle_effects(vec![Effect::LoadLog], &mut screen)
        .map_err(|error| terminal_lost_error(&error))?;
    let result = console.event_loop(&mut screen, &input, &inbox);
    // The terminal is restored first: a run may still finish its current agent.
    drop(console.foreground_program.take());
    drop(screen);
    let last_observations: Vec<_> = console
        .model
        .rows
        .into_iter()
        .filter_map(|row| {
            row.last_readable_observation()
                .or(row.observation.as_ref())
                .cloned()
        })
        .collect();
    let wait = |run: &RunHandle| wait_for_run(run, &input, &mut io::stderr());
    let has_run_ended = console.runner.shut_down(inbox, &last_observations, wait);
    result.map_err(|error| terminal_lost_error(&error))?;
    Ok(console.is_interrupted || !has_run_ended)
}

/// Sources of the theme other than the preferences.
struct ThemeChoice {
    flag_theme: Option<String>,
    is_color_disabled: bool,
    config_theme: String,
}

impl ThemeChoice {
    fn theme_name<'a>(&'a self, preferences: &'a Preferences) -> &'a str {
        let own = preferences.theme.as_ref();
        match (&self.flag_theme, self.is_color_disabled) {
            (Some(name), _) => name,
            (None, true) => theme::MONOCHROME_THEME,
            (None, false) => own.unwrap_or(&self.config_theme),
        }
    }
}

fn terminal_lost_error(error: &io::Error) -> Error {
    let message = format!(
        "the terminal is gone: {}",
        crate::error::describe_io_error(error)
    );
    Error::new(ErrorKind::Interrupted, message)
}

/// Clock, and the start of the console.
struct ConsoleClock(Arc<dyn Clock>, Instant);

impl ConsoleClock {
    fn new(clock: Arc<dyn Clock>) -> ConsoleClock {
        let began = clock.instant();
        ConsoleClock(clock, began)
    }

    fn now(&self) -> Moment {
        Moment {
            elapsed: self.0.instant().duration_since(self.1),
            local_time: self.0.now(),
        }
    }
}

struct Console {
    clock: ConsoleClock,
    model: Model,
    theme: Theme,
    themes: Themes,
    theme_choice: ThemeChoice,
    runner: EffectRunner,
    frame_rate: FramePacer,
    /// Whether a key awaits its frame.
    is_key_pending: bool,
    /// Number of pager texts requested so far; identifies each one.
    page_count: u64,
    /// Pager text being written; any key cancels it.
    pending_page: Option<u64>,
    /// Whether a signal or the loss of the terminal ended the console.
    is_interrupted: bool,
    external_tools: ExternalTools,
    input_pause: InputPause,
    /// Program that is about to get the terminal, and the deadline for the input thread to
    /// pause.
    pending_handoff: Option<(ProgramPurpose, Duration)>,
    /// Program that has the terminal. Everything but drawing continues.
    foreground_program: Option<ForegroundProgram>,
}

/// Program that has the terminal, and its purpose.
struct ForegroundProgram {
    child: ForegroundChild,
    purpose: ProgramPurpose,
}

enum ProgramPurpose {
    EditBaseline(Box<BaselineEdit>),
    /// The file is removed when this is dropped.
    ReadText(NamedTempFile),
}

impl ProgramPurpose {
    /// Returns the noun for messages.
    fn program_noun(&self) -> &'static str {
        match self {
            ProgramPurpose::EditBaseline(_) => "editor",
            ProgramPurpose::ReadText(_) => "pager",
        }
    }
}

impl Console {
    /// Runs until quit: handles input first, then background messages within their time
    /// budget, then draws a frame if the model is dirty.
    fn event_loop(
        &mut self,
        screen: &mut terminal::TerminalScreen,
        input: &Receiver<InputEvent>,
        inbox: &Receiver<Msg>,
    ) -> io::Result<()> {
        self.draw(screen)?;
        loop {
            let now = self.moment().elapsed;
            let mut wait = next_wake(&self.model).saturating_sub(now);
            if self.model.is_dirty && self.foreground_program.is_none() {
                wait = wait.min(self.time_until_frame());
            }
            let mut first = None;
            let lent = self.foreground_program.as_ref();
            let child_changes = lent.map_or_else(never, |lent| lent.child.changes().clone());
            let closed = self.pending_handoff.as_ref();
            let closed = closed.map_or_else(never, |(_, end)| {
                wait = wait.min(end.saturating_sub(now));
                self.input_pause.reader_paused().clone()
            });
            let (fleet_events, brought) = (
                self.runner.fleet_events().clone(),
                self.runner.loaded().clone(),
            );
            select! {
                recv(child_changes) -> change => self.handle_child_change(change.ok(), screen)?,
                recv(input) -> event => first = Some(event.unwrap_or(InputEvent::TerminalLost)),
                recv(closed) -> _ => self.hand_over_terminal(screen)?,
                recv(brought) -> brought => {
                    if let Ok(brought) = brought {
                        self.apply_loaded(brought, screen);
                    }
                },
                recv(fleet_events) -> event => {
                    let msg = event.ok().map(fleet_event_message);
                    if !self.apply_background_messages(msg, inbox, screen)? {
                        return Ok(());
                    }
                },
                recv(inbox) -> msg => {
                    if !self.apply_background_messages(msg.ok(), inbox, screen)? {
                        return Ok(());
                    }
                },
                recv(after(wait)) -> _ => {
                    if !self.apply_message(Msg::Tick, screen)? {
                        return Ok(());
                    }
                }
            }
            self.cancel_late_handoff();
            // All pending input is handled before a frame is drawn, so that scrolling stops
            // when a held key is released.
            let events: Vec<InputEvent> = first.into_iter().chain(input.try_iter()).collect();
            if !events.is_empty() {
                self.is_key_pending = true;
                if !self.apply_input(events, screen)? {
                    return Ok(());
                }
            }
            if !self.model.is_dirty {
                self.is_key_pending = false;
            } else if self.foreground_program.is_none() && self.time_until_frame() == Duration::ZERO
            {
                self.draw(screen)?;
            }
        }
    }

    /// Applies a message, and those that follow it within [`MAX_BACKGROUND_TIME`].
    fn apply_background_messages(
        &mut self,
        first: Option<Msg>,
        inbox: &Receiver<Msg>,
        screen: &mut terminal::TerminalScreen,
    ) -> io::Result<bool> {
        let end = self.moment().elapsed + MAX_BACKGROUND_TIME;
        let mut next = first;
        while let Some(msg) = next {
            if !self.apply_message(msg, screen)? {
                return Ok(false);
            }
            next = if self.moment().elapsed < end {
                self.next_message(inbox)
            } else {
                None
            };
        }
        Ok(true)
    }

    fn next_message(&self, inbox: &Receiver<Msg>) -> Option<Msg> {
        let news = || {
            self.runner
                .fleet_events()
                .try_recv()
                .ok()
                .map(fleet_event_message)
        };
        inbox.try_recv().ok().or_else(news)
    }

    fn apply_input(
        &mut self,
        events: Vec<InputEvent>,
        screen: &mut terminal::TerminalScreen,
    ) -> io::Result<bool> {
        let mut keys = Vec::new();
        for event in events {
            let msg = match event {
                // Input typed before the handoff is meant for the other program.
                InputEvent::Terminal(_) if self.is_terminal_lent() => continue,
                InputEvent::Terminal(TerminalEvent::Key(key))
                    if key.kind != KeyEventKind::Release =>
                {
                    self.pending_page = None;
                    keys.extend(terminal::keys_from_event(key));
                    continue;
                }
                InputEvent::Terminal(TerminalEvent::Paste(text)) => Msg::TextPasted(text),
                // crossterm loses a resize that arrives together with a key, so the signal
                // counts instead, with the current size. Even an unchanged size needs a
                // repaint: a smaller one in between may have cut the screen.
                InputEvent::Signal(SIGWINCH) => {
                    screen.invalidate();
                    Msg::Resized(screen.size().0, screen.size().1)
                }
                // The other program has the terminal.
                InputEvent::Signal(SIGTSTP | SIGCONT) if self.foreground_program.is_some() => {
                    continue;
                }
                InputEvent::Signal(SIGTSTP) => {
                    screen.suspend()?;
                    Msg::Resized(screen.size().0, screen.size().1)
                }
                InputEvent::Signal(SIGCONT) => {
                    screen.resume()?;
                    Msg::Resized(screen.size().0, screen.size().1)
                }
                InputEvent::Signal(_) | InputEvent::TerminalLost => {
                    self.is_interrupted = true;
                    Msg::Quit
                }
                InputEvent::Terminal(_) => continue,
            };
            if !keys.is_empty()
                && !self.apply_message(Msg::KeysPressed(std::mem::take(&mut keys)), screen)?
            {
                return Ok(false);
            }
            if !self.apply_message(msg, screen)? {
                return Ok(false);
            }
        }
        if keys.is_empty() {
            return Ok(true);
        }
        self.apply_message(Msg::KeysPressed(keys), screen)
    }

    /// Applies one message; returns false to quit.
    fn apply_message(
        &mut self,
        msg: Msg,
        screen: &mut terminal::TerminalScreen,
    ) -> io::Result<bool> {
        if let Some(msg) = self.runner.intercept(msg) {
            // A theme in valid preferences exists. A change of another setting keeps the
            // theme that the operator has chosen since.
            if let Msg::PreferencesLoaded(preferences) = &msg
                && preferences.theme != self.model.preferences.theme
            {
                let name = self.theme_choice.theme_name(preferences);
                self.runner.load_theme(&self.themes, name, false);
            }
            let effects = update(&mut self.model, self.clock.now(), msg);
            if !self.handle_effects(effects, screen)? {
                return Ok(false);
            }
        }
        // A run in progress keeps its config.
        let is_running = self.model.is_running();
        let Some(msg) = (!is_running).then(|| self.runner.adopt_config()).flatten() else {
            return Ok(true);
        };
        let current = self
            .theme_choice
            .theme_name(&self.model.preferences)
            .to_string();
        self.theme_choice.config_theme = self.runner.config_theme().to_string();
        let name = self.theme_choice.theme_name(&self.model.preferences);
        if name != current {
            self.runner.load_theme(&self.themes, name, false);
        }
        let effects = update(&mut self.model, self.clock.now(), msg);
        self.handle_effects(effects, screen)
    }

    fn handle_effects(
        &mut self,
        effects: Vec<Effect>,
        screen: &mut terminal::TerminalScreen,
    ) -> io::Result<bool> {
        let mut keeps_running = true;
        for effect in effects {
            match effect {
                Effect::Quit => keeps_running = false,
                Effect::Suspend => {
                    screen.suspend()?;
                    let (columns, rows) = screen.size();
                    self.update_model(Msg::Resized(columns, rows));
                }
                Effect::LoadTheme(name) => self.runner.load_theme(&self.themes, &name, true),
                Effect::Redraw => {
                    screen.invalidate();
                    self.model.is_dirty = true;
                }
                Effect::CopyToClipboard(clip) => match self.external_tools.clipboard_commands() {
                    copiers if copiers.is_empty() => self.copy_through_terminal(clip, screen)?,
                    copiers => self.runner.copy_to_clipboard(copiers, clip),
                },
                Effect::CopyThroughTerminal(clip) => self.copy_through_terminal(clip, screen)?,
                Effect::OpenEditor(edit) => {
                    self.request_handoff(Ok(ProgramPurpose::EditBaseline(edit)))
                }
                Effect::OpenPager(page) => {
                    self.page_count += 1;
                    self.pending_page = Some(self.page_count);
                    self.runner.write_page(
                        self.page_count,
                        &self.external_tools.temp_directory,
                        page,
                    );
                }
                effect => self.runner.execute(effect),
            }
        }
        Ok(keeps_running)
    }

    fn copy_through_terminal(
        &mut self,
        clip: ClipboardText,
        screen: &mut terminal::TerminalScreen,
    ) -> io::Result<()> {
        let outcome = match screen.copy_to_clipboard(&clip.text, self.external_tools.multiplexer)? {
            true => CopyOutcome::SentToTerminal,
            false => CopyOutcome::TooLong(terminal::MAX_CLIPBOARD_BYTES),
        };
        self.update_model(Msg::ClipboardCopied(clip, outcome));
        Ok(())
    }

    /// Applies a message that has no effects.
    fn update_model(&mut self, msg: Msg) {
        let moment = self.moment();
        update(&mut self.model, moment, msg);
    }

    /// Applies a loaded theme, or opens a loaded text in the pager.
    fn apply_loaded(&mut self, loaded: Loaded, screen: &mut terminal::TerminalScreen) {
        match loaded {
            Loaded::Theme(loaded) => {
                self.apply_theme(loaded);
                // The background may differ.
                screen.invalidate();
                self.model.is_dirty = true;
            }
            Loaded::Page(number, file) if self.pending_page == Some(number) => {
                self.request_handoff(file.map(ProgramPurpose::ReadText));
            }
            Loaded::Page(..) => {}
        }
    }

    /// Requests the terminal for the editor or the pager; the handoff follows once the input
    /// thread has paused.
    fn request_handoff(&mut self, purpose: Result<ProgramPurpose>) {
        match purpose {
            Ok(_) if self.is_terminal_lent() => {}
            Ok(purpose) => {
                self.input_pause.request();
                self.pending_handoff = Some((purpose, self.moment().elapsed + READER_STOP_TIMEOUT));
            }
            Err(error) => {
                self.update_model(Msg::Reported(MessageLevel::Error, error_with_hint(&error)))
            }
        }
    }

    /// Whether another program has the terminal or is about to get it.
    fn is_terminal_lent(&self) -> bool {
        self.foreground_program.is_some() || self.pending_handoff.is_some()
    }

    /// Starts the requested program; the input thread has paused.
    fn hand_over_terminal(&mut self, screen: &mut terminal::TerminalScreen) -> io::Result<()> {
        let Some((purpose, _)) = self.pending_handoff.take() else {
            return Ok(());
        };
        screen.release();
        match self.start_program(&purpose) {
            Ok(guest) => {
                self.foreground_program = Some(ForegroundProgram {
                    child: guest,
                    purpose,
                })
            }
            Err(error) => {
                self.reclaim_terminal(screen)?;
                self.update_model(Msg::Reported(MessageLevel::Error, error_with_hint(&error)));
            }
        }
        Ok(())
    }

    /// Cancels the handoff if the input thread did not pause in time, because it waits for the
    /// rest of a key sequence.
    fn cancel_late_handoff(&mut self) {
        let now = self.moment().elapsed;
        if self
            .pending_handoff
            .take_if(|(_, end)| *end <= now)
            .is_some()
        {
            self.input_pause.resume();
            let text = "incomplete key sequence: press the next key, or Esc";
            self.update_model(Msg::Reported(MessageLevel::Warn, text.to_string()));
        }
    }

    fn start_program(&self, purpose: &ProgramPurpose) -> Result<ForegroundChild> {
        let noun = purpose.program_noun();
        match purpose {
            ProgramPurpose::EditBaseline(edit) => ForegroundChild::start(
                noun,
                &self.external_tools.editor_commands()?,
                &edit.original.path,
                &[],
            ),
            ProgramPurpose::ReadText(file) => {
                // LESSSECURE keeps less from opening other programs and files; an empty LESS
                // keeps a short text from vanishing at once (option -F).
                let variables = [("LESSSECURE", "1"), ("LESS", "")];
                ForegroundChild::start(
                    noun,
                    &self.external_tools.pager_commands()?,
                    file.path(),
                    &variables,
                )
            }
        }
    }

    /// Handles a stop or the end of the program that has the terminal.
    fn handle_child_change(
        &mut self,
        change: Option<ChildChange>,
        screen: &mut terminal::TerminalScreen,
    ) -> io::Result<()> {
        let Some(ForegroundProgram {
            child: guest,
            purpose,
        }) = self.foreground_program.take()
        else {
            return Ok(());
        };
        if change == Some(ChildChange::Stopped) {
            guest.stop_with_child()?;
            self.foreground_program = Some(ForegroundProgram {
                child: guest,
                purpose,
            });
            return Ok(());
        }
        let exit_status = guest.wait();
        self.reclaim_terminal(screen)?;
        let reason = match exit_status {
            Ok(status) if status.success() => None,
            Ok(status) => Some(external_tools::describe_exit(status)),
            Err(error) => Some(crate::error::describe_io_error(&error)),
        };
        if let Some(why) = reason {
            let text = format!("the {}: {why}", purpose.program_noun());
            self.update_model(Msg::Reported(MessageLevel::Warn, text));
        }
        if let ProgramPurpose::EditBaseline(edit) = purpose {
            self.runner.inspect_edited(edit);
        }
        Ok(())
    }

    /// Takes the terminal back and resumes input.
    fn reclaim_terminal(&mut self, screen: &mut terminal::TerminalScreen) -> io::Result<()> {
        screen.resume()?;
        self.input_pause.resume();
        let (columns, rows) = screen.size();
        self.update_model(Msg::Resized(columns, rows));
        Ok(())
    }

    fn draw(&mut self, screen: &mut terminal::TerminalScreen) -> io::Result<()> {
        let bytes = screen.draw(&self.model, &self.theme)?;
        self.model.is_dirty = false;
        self.is_key_pending = false;
        self.frame_rate.record_frame(self.moment().elapsed, bytes);
        Ok(())
    }

    fn time_until_frame(&self) -> Duration {
        self.frame_rate
            .delay_until_frame(self.moment().elapsed, self.is_key_pending)
    }

    /// Applies a loaded theme; reports its errors if the operator requested it.
    fn apply_theme(&mut self, loaded: LoadedTheme) {
        match loaded.theme {
            Ok(theme) => {
                self.model.has_word_marks = theme.has_word_marks();
                self.theme = theme;
                if loaded.is_requested {
                    self.model
                        .report(MessageLevel::Info, format!("theme {}", loaded.name));
                }
            }
            Err(lines) if loaded.is_requested => {
                // The first error is reported last, so that it stays on the screen.
                for line in lines.into_iter().rev() {
                    self.model.report(MessageLevel::Error, line);
                }
            }
            Err(_) => {}
        }
        self.model.theme_names = loaded.theme_names;
    }

    fn moment(&self) -> Moment {
        self.clock.now()
    }
}

/// Waits for the end of a run and says so on `out`. Returns false if the operator ends the
/// wait.
fn wait_for_run(run: &RunHandle, input: &Receiver<InputEvent>, out: &mut dyn Write) -> bool {
    let text = "finishing the agents in progress; ^C quits at once, and the next run recovers \
                unfinished agents";
    // The terminal may be gone; the run continues.
    let _ = writeln!(out, "{text}");
    loop {
        select! {
            // The channel carries nothing: it closes when the run ends.
            recv(run) -> _ => return true,
            recv(input) -> input => match input {
                Ok(InputEvent::Signal(SIGINT | SIGTERM | SIGQUIT)) => return false,
                Ok(InputEvent::Signal(SIGTSTP)) => {
                    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
                }
                Ok(_) => {}
                Err(_) => return run.recv().is_err(),
            },
        }
    }
}

#[cfg(test)]
mod tests;
