//! The console: its options and its start. The main thread owns the terminal and the model and
//! runs [`mod@update`] and [`view`]; other threads read input, watch the fleet and execute
//! effects. Only the main thread writes to the terminal, and it never waits for a file or a host.

pub mod age;
pub mod agent_row;
pub mod chooser;
pub mod command;
mod confirmation_line;
pub mod dispatch;
pub mod filter;
mod frame;
pub mod handoff;
pub mod keys;
pub mod markdown;
pub mod message;
pub mod model;
pub mod overlay;
pub mod preferences;
pub mod requests;
pub mod screen;
pub mod screens;
pub mod shell;
pub mod text;
pub mod theme;
pub mod update;
pub mod view;
pub mod widgets;

use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, unbounded};

use crate::base::error::Result;
use crate::base::temporary::TemporaryRoot;
use crate::config::{Config, ConfigEnvironment, Protection};
use crate::console::screens::fleet::visible_agents::{refresh_visible_agents, restore_view_state};
use crate::engine::Engine;
use crate::transport::sftp::askpass::{self, PromptBroker};
use crate::unattended::schedule::ManagerAccess;
use agent_row::AgentRow;
use command::CommandSpec;
use model::{Model, Moment, ReadOnlyState};
use screens::log::state::MessageLevel;
use shell::effect::{EffectRunner, ObservationLoader, ScheduleAccess, UserFiles};
pub use shell::effect::{EngineFactory, load_runs, summarize_findings};
use shell::event_loop::{Console, ConsoleClock, FIRST_FRAME_WAIT, ThemeSources};
use shell::external_tools::ExternalTools;
use shell::terminal::{FramePacer, TerminalFeatures, TerminalScreen};
use text::TextOptions;
use theme::Themes;

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
    pub view_state_file: Option<shell::view_state::ViewStateFile>,
    /// The editor, the pager and the clipboard.
    pub external_tools: ExternalTools,
    /// Parent of the directories with the texts for editor and pager.
    pub temporary_root: TemporaryRoot,
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
    /// The service managers, which are asked for timers.
    pub managers: ManagerAccess,
    /// Path of this program, for lines of a crontab.
    pub program_path: PathBuf,
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
    let by_config = config.general.protect == Protection::ReadOnly;
    let mut model = Model {
        config: shell::effect::fleet_model(config),
        rows: config.agents.iter().map(AgentRow::unread).collect(),
        theme_names: Themes::default().names(),
        text_options: TextOptions {
            is_wrapping: true,
            context_lines: Some(3),
            ..TextOptions::default()
        },
        read_only: ReadOnlyState {
            is_on: by_config,
            is_set_by_config: by_config,
            ..ReadOnlyState::default()
        },
        size,
        now: moment,
        is_dirty: true,
        ..Model::default()
    };
    let names: Vec<String> = model.rows.iter().map(|row| row.name.clone()).collect();
    model.background_jobs.begin_reads(&names, moment);
    refresh_visible_agents(&mut model);
    model
}

/// Runs the console until the operator quits. Returns whether a signal or the loss of the
/// terminal ended it.
///
/// # Errors
/// The theme does not exist, the terminal is unusable, or the system refuses a thread.
pub fn run(options: ConsoleOptions) -> Result<bool> {
    let config = options.engine.config();
    let (preferences, problems) = match &options.preferences_path {
        Some(path) => preferences::load(path),
        None => Default::default(),
    };
    let themes = Themes::of_user(&options.env, options.terminal_features.colour_depth);
    let theme_sources = ThemeSources {
        flag_theme: options.theme.clone(),
        is_color_disabled: options.is_color_disabled,
        config_theme: config.general.theme.clone(),
    };
    let theme = themes.load(theme_sources.theme_name(&preferences));
    let theme = theme.map_err(
        |error| match (&theme_sources.flag_theme, &preferences.theme) {
            (None, None) => error.with_context(config.path.display()),
            _ => error,
        },
    )?;
    let theme_names = themes.names();
    let saved_view = options.view_state_file.as_ref().map(|file| file.read());
    let clock = ConsoleClock::new(options.engine.context().clock_handle());
    let saved_observations = ObservationLoader::start_loading(&options.engine);
    // Signals no longer end the program from here on, so everything slow is done before.
    let (input_sender, input) = unbounded();
    shell::input::spawn_signal_reader(&input_sender)?;
    let screen = TerminalScreen::enter(options.terminal_features)?;
    let mut model = initial_model(config, clock.now(), screen.size());
    model.has_word_marks = theme.has_word_marks();
    model.theme_names = theme_names;
    apply_options(&mut model, &options);
    model.report_preference_problems(&problems);
    model.adopt_preferences(preferences.clone());
    match saved_view {
        Some(Ok(Some(view))) => restore_view_state(&mut model, view),
        Some(Err(error)) => model.report(
            MessageLevel::Warn,
            shell::view_state::not_saved_message(&error),
        ),
        Some(Ok(None)) | None => {}
    }
    let input_pause = shell::input::spawn_terminal_reader(input_sender)?;
    let user_files = UserFiles {
        preferences: options
            .preferences_path
            .map(|path| (path, (preferences, problems))),
        view_state_file: options.view_state_file,
    };
    let (runner, inbox) = EffectRunner::start(
        (options.engine, saved_observations),
        options.prompt_broker,
        options.env,
        options.engine_factory,
        options.extra_command.map(|extra| extra.run),
        user_files,
        ScheduleAccess {
            managers: options.managers,
            program: options.program_path,
        },
    )?;
    let first_frame_due = clock.now().elapsed + FIRST_FRAME_WAIT;
    let console = Console {
        clock,
        model,
        theme,
        themes,
        theme_sources,
        runner,
        frame_pacer: FramePacer::new(options.is_over_ssh),
        is_frame_awaited: false,
        first_frame_due: Some(first_frame_due),
        requests: Default::default(),
        is_interrupted: false,
        external_tools: options.external_tools,
        temporary_root: options.temporary_root,
        input_pause,
        pending_handoff: None,
        foreground_program: None,
        is_return_awaited: false,
    };
    console.run(screen, &input, inbox)
}

/// Applies the options that the model knows, and reports what the operator should see first.
fn apply_options(model: &mut Model, options: &ConsoleOptions) {
    // Side by side costs twice the bytes per scrolled line.
    model.text_options.is_unified = options.is_over_ssh;
    model.read_only.is_forced = options.is_read_only;
    model.fleet.initial_agent.clone_from(&options.initial_agent);
    model.extra_command = options.extra_command.as_ref().map(|extra| extra.spec);
    if let Some(note) = &options.startup_message {
        model.report(MessageLevel::Info, note.clone());
    }
    for warning in &options.engine.config().warnings {
        model.report(MessageLevel::Warn, warning.to_string().replace('\n', " "));
    }
}
