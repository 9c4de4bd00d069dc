//! The console: wiring. One thread owns the terminal and the model and runs
//! [`mod@update`] and the view; others read keys and signals, watch the fleet and
//! carry effects out. Nobody but that thread touches the screen, and it touches
//! nothing else.

pub mod chooser;
pub mod columns;
pub mod command;
mod effect;
pub mod external_tools;
pub mod filter;
mod input;
pub mod keymap;
pub mod markdown;
pub mod model;
pub mod preferences;
pub mod terminal;
pub mod text;
pub mod theme;
mod toml_source;
pub mod update;
pub mod view;
pub mod view_state;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, after, never, select, unbounded};
use crossterm::event::{Event as TerminalEvent, KeyEventKind};
use signal_hook::consts::{SIGCONT, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};

use crate::clock::Clock;
use crate::config::{Config, ConfigEnvironment, ProtectLevel};
use crate::demo::host::DemoHost;
use crate::engine::{Engine, MemoryAddress};
use crate::error::{Error, ErrorKind, Result};
use crate::transport::sftp::askpass::{self, PromptBroker};
use effect::{EffectRunner, Loaded, LoadedTheme, RunHandle, UserFiles, fleet_event_message};
pub use effect::{EngineFactory, load_runs, summarize_findings};
use external_tools::{ChildChange, ExternalTools, ForegroundChild, InputPause};
use input::InputEvent;
use model::{
    AgentRow, AgentScreen, BackgroundJobs, BaselineEdit, ClipboardText, CopyOutcome, HostsScreen,
    LogScreen, MessageLevel, Model, Moment, PendingKeys, ReadOnlyState, ResetScreen, Screen,
    SortOrder, ViewState,
};
use preferences::Preferences;
use tempfile::NamedTempFile;
use terminal::{FramePacer, TerminalFeatures};
use theme::{Theme, Themes};
use update::handoff::error_with_hint;
use update::{Effect, Msg, next_wake, update};

/// How long background messages are taken in before the next look at the keys.
const MAX_BACKGROUND_TIME: Duration = Duration::from_millis(4);

/// How long who reads keys may take to stop.
const READER_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How the console is started.
pub struct ConsoleOptions {
    /// The engine of the fleet.
    pub engine: Arc<Engine>,
    /// By `--read-only`.
    pub is_read_only: bool,
    /// By `--theme`; else the operator's or the config's.
    pub theme: Option<String>,
    /// `NO_COLOR` is set.
    pub is_color_disabled: bool,
    /// Started over SSH.
    pub is_over_ssh: bool,
    /// What the terminal can do.
    pub terminal_features: TerminalFeatures,
    /// For reading a changed config.
    pub env: ConfigEnvironment,
    /// The operator's preferences, if there is a place for them.
    pub preferences_path: Option<PathBuf>,
    /// Where it is kept how the fleet is looked at; nowhere for one that is gone
    /// tomorrow.
    pub view_state_file: Option<view_state::ViewStateFile>,
    /// The editor, the pager and the clipboard.
    pub external_tools: ExternalTools,
    /// Something to say first.
    pub startup_message: Option<String>,
    /// Where hosts ask, and what happens there.
    pub prompt_broker: (PromptBroker, Receiver<askpass::PromptEvent>),
    /// Makes an engine for a changed config.
    pub engine_factory: EngineFactory,
    /// The demo's host, which a key makes go away and come back.
    pub demo_host: Option<Arc<DemoHost>>,
}

/// A model of a fleet nothing of which was read yet.
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
        fleet: effect::fleet_model(config),
        rows: config.agents.iter().map(row).collect(),
        visible_agents: Vec::new(),
        cursor_agent: None,
        is_cursor_pinned: false,
        cursor_pin_due: None,
        strip_agent: None,
        strip_due: None,
        last_cursor_move: None,
        fleet_top: 0,
        marks: BTreeSet::new(),
        mark_anchor: None,
        filter: String::new(),
        is_filter_restored: false,
        sort_order: SortOrder::default(),
        is_reversed: false,
        screen: Screen::Fleet,
        previous_screen: None,
        return_point: Default::default(),
        agent: AgentScreen {
            is_wrapping: true,
            context_lines: Some(3),
            ..AgentScreen::default()
        },
        reset: ResetScreen::default(),
        log: LogScreen {
            messages: VecDeque::new(),
            ..LogScreen::default()
        },
        hosts: HostsScreen::default(),
        handoff_request: None,
        background_jobs: BackgroundJobs::default(),
        overlay: None,
        questions: Vec::new(),
        abandoned_question_guard: Default::default(),
        input_line: None,
        pending_keys: PendingKeys::default(),
        preferences: Preferences::default(),
        preferences_error: None,
        saved_view_state: ViewState::default(),
        trends: HashMap::new(),
        last_message: None,
        read_only: ReadOnlyState {
            is_on: by_config,
            is_set_by_config: by_config,
            ..ReadOnlyState::default()
        },
        config_error: None,
        ledger_error: None,
        size,
        is_dirty: true,
        now: moment,
        has_word_marks: false,
        theme_names: Themes::default().names(),
        last_plan_id: 0,
        is_plan_pending: false,
        visible_ages: Vec::new(),
        is_demo_host_away: None,
    };
    let names: Vec<String> = model.rows.iter().map(|row| row.name.clone()).collect();
    model.background_jobs.begin_reads(&names, moment);
    model.refresh_visible_agents();
    model
}

/// Opens the console and returns when it is left. Answers whether a signal or the
/// end of the terminal ended it.
///
/// # Errors
/// A theme that does not exist, or a terminal that cannot be used.
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
    // From here on nothing ends this before the terminal is given back, so all that
    // may take a while is done.
    let (input_sender, input) = unbounded();
    input::spawn_signal_reader(&input_sender)?;
    let mut screen = terminal::TerminalScreen::enter(options.terminal_features)?;
    let mut model = initial_model(config, clock.now(), screen.size());
    model.has_word_marks = theme.has_word_marks();
    // Two sides cost twice the bytes for each line that is moved by.
    model.agent.is_unified = options.is_over_ssh;
    model.theme_names = names;
    model.read_only.is_forced = options.is_read_only;
    model.is_demo_host_away = options.demo_host.as_ref().map(|host| host.is_offline());
    if let Some(note) = &options.startup_message {
        model.report(MessageLevel::Info, note.clone());
    }
    for warning in &config.warnings {
        model.report(MessageLevel::Warn, warning.to_string().replace('\n', " "));
    }
    model.report_preference_problems(&problems);
    model.preferences = preferences.clone();
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
        options.demo_host,
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
    // The terminal goes back first: a run may still have an agent in hand.
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

/// What decides the theme, beside the preferences.
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

/// The time, and when the console began.
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
    /// A key waits for its frame.
    is_key_pending: bool,
    /// How many texts were asked for, to tell one from another.
    page_count: u64,
    /// The one that is on its way to the pager; any key stops it.
    pending_page: Option<u64>,
    /// Whether it was not the operator's key that ended it.
    is_interrupted: bool,
    external_tools: ExternalTools,
    input_pause: InputPause,
    /// What the terminal is about to be given away for, and how long it is waited
    /// for who reads keys.
    pending_handoff: Option<(ProgramPurpose, Duration)>,
    /// Who has the terminal meanwhile. Everything but the screen goes on.
    foreground_program: Option<ForegroundProgram>,
}

/// A program that has the terminal, and what for.
struct ForegroundProgram {
    child: ForegroundChild,
    purpose: ProgramPurpose,
}

enum ProgramPurpose {
    EditBaseline(Box<BaselineEdit>),
    /// The text is removed with this.
    ReadText(NamedTempFile),
}

impl ProgramPurpose {
    /// The noun for the program.
    fn program_noun(&self) -> &'static str {
        match self {
            ProgramPurpose::EditBaseline(_) => "editor",
            ProgramPurpose::ReadText(_) => "pager",
        }
    }
}

impl Console {
    /// The loop: keys first, then a little of what happened in the background,
    /// then a frame if something changed.
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
            // All input is taken in before anything is drawn, so that a held
            // key stops when it is let go.
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

    /// Takes in what came, and for a moment what comes behind it.
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
            next = match self.moment().elapsed < end {
                true => self.next_message(inbox),
                false => None,
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
                // It was typed before the guest came, and meant for it.
                InputEvent::Terminal(_) if self.is_terminal_lent() => continue,
                InputEvent::Terminal(TerminalEvent::Key(key))
                    if key.kind != KeyEventKind::Release =>
                {
                    self.pending_page = None;
                    keys.extend(terminal::keys_from_event(key));
                    continue;
                }
                InputEvent::Terminal(TerminalEvent::Paste(text)) => Msg::TextPasted(text),
                // The library loses a change of size that comes together with a
                // key, so the signal is listened to instead; what counts is the
                // size now. It may be the one before, with another in between that
                // cut what was shown.
                InputEvent::Signal(SIGWINCH) => {
                    screen.invalidate();
                    Msg::Resized(screen.size().0, screen.size().1)
                }
                // There is nothing to give and to take.
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
        match keys.is_empty() {
            true => Ok(true),
            false => self.apply_message(Msg::KeysPressed(keys), screen),
        }
    }

    /// Takes one message in; false when it is time to leave.
    fn apply_message(
        &mut self,
        msg: Msg,
        screen: &mut terminal::TerminalScreen,
    ) -> io::Result<bool> {
        if let Some(msg) = self.runner.intercept(msg) {
            // A theme in them is one that there is. Another key takes nobody's
            // chosen theme off.
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
        // A run in progress keeps the config that it began with.
        let is_running = self.model.is_running();
        let Some(msg) = (!is_running).then(|| self.runner.adopt_config()).flatten() else {
            return Ok(true);
        };
        let worn = self
            .theme_choice
            .theme_name(&self.model.preferences)
            .to_string();
        self.theme_choice.config_theme = self.runner.config_theme().to_string();
        let name = self.theme_choice.theme_name(&self.model.preferences);
        if name != worn {
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

    /// Tells the model of something that asks for nothing.
    fn update_model(&mut self, msg: Msg) {
        let moment = self.moment();
        update(&mut self.model, moment, msg);
    }

    /// A theme or a text that was asked for.
    fn apply_loaded(&mut self, loaded: Loaded, screen: &mut terminal::TerminalScreen) {
        match loaded {
            Loaded::Theme(worn) => {
                self.apply_theme(worn);
                // Its ground may be another.
                screen.invalidate();
                self.model.is_dirty = true;
            }
            Loaded::Page(number, file) if self.pending_page == Some(number) => {
                self.request_handoff(file.map(ProgramPurpose::ReadText));
            }
            Loaded::Page(..) => {}
        }
    }

    /// Gives the terminal to the editor or the pager, once nobody reads keys.
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

    /// Whether keys are another program's, or soon.
    fn is_terminal_lent(&self) -> bool {
        self.foreground_program.is_some() || self.pending_handoff.is_some()
    }

    /// Nobody reads keys now.
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

    /// Gives the terminal to nobody, when who reads keys is in the middle of one.
    fn cancel_late_handoff(&mut self) {
        let now = self.moment().elapsed;
        if self
            .pending_handoff
            .take_if(|(_, end)| *end <= now)
            .is_some()
        {
            self.input_pause.resume();
            let text = "half a key has come and is waited for: press it again";
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
                // Neither another program nor another file is opened from there,
                // and a short text does not vanish at once.
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

    /// The program that has the terminal was stopped, or has ended.
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

    /// Takes the terminal, and reads keys again.
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

    /// Wears another theme, read anew: who writes one wants to see what it became.
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
            Err(told) if loaded.is_requested => {
                // The first is said last, and so stays on the screen.
                for line in told.into_iter().rev() {
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

/// Waits for the end of a run, and says so where the screen was. False when the
/// operator ends the wait.
fn wait_for_run(run: &RunHandle, input: &Receiver<InputEvent>, out: &mut dyn Write) -> bool {
    let text = "a run finishes the agents that it has in hand; ^C leaves it at once, and \
                the next run mends what it leaves half done";
    // The terminal may be gone; the run goes on all the same.
    let _ = writeln!(out, "{text}");
    loop {
        select! {
            // Nothing comes of it but its end.
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
