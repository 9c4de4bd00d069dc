//! The command line: its definition, and a verb for each action of the console. Verbs call the same
//! methods of the [`Engine`] as the console and print through [`output`].
//!
//! The process environment comes in as an [`Environment`]; nothing here reads it. A failure goes
//! out as an [`ErrorKind`], which alone decides the exit code.

mod alerts;
mod archive;
mod arguments;
mod baseline;
mod config_verbs;
#[cfg(feature = "demo")]
mod demo;
mod diff;
mod direct_write;
pub mod doctor;
mod drover;
mod guard;
mod init;
mod keys;
mod lint;
mod log;
mod memory;
mod metrics_file;
mod observation;
mod operation_arguments;
pub mod output;
mod report;
mod runs;
mod schedule;
mod seal;
mod signals;
mod status;
mod verify;
mod write_restriction;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::FromArgMatches;
use crossbeam_channel::unbounded;

use crate::base::clock;
use crate::base::debug_log;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::temporary::TemporaryRoot;
use crate::config::{self, Config, ConfigEnvironment, ConfigErrors};
use crate::console::shell::terminal::TerminalFeatures;
use crate::console::shell::view_state;
use crate::console::{self, preferences};
use crate::engine::{Engine, EngineSetup, Trigger};
use crate::layouts::Layouts;
use crate::transport::Transports;
use crate::transport::local::LocalTransport;
use crate::transport::sftp::PerHostTransports;
use crate::transport::sftp::askpass::PromptBroker;
use crate::transport::sftp::ssh::{Connector, SshConnector};
use crate::unattended::alerts::AlertEnvironment;
use crate::unattended::schedule::ManagerAccess;
use arguments::console_flags::ConsoleFlags;
use arguments::usage::{closest_command, command_words, missing_verb_error, print_clap_error};
use arguments::{Cli, Verb};
use output::{CommandError, Document, Output, OutputSettings};
use runs::arguments::ResetArgs;
use status::StatusArgs;

/// The process environment, as `main` resolved it.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The directories, variables and user id that decide which config is used.
    pub env: ConfigEnvironment,
    /// The operator's user name, for the ledger.
    pub user: String,
    /// Path of the debug log; the flag `--debug-log` takes precedence.
    pub debug_log: Option<PathBuf>,
    /// Parent of temporary directories.
    pub temporary_root: TemporaryRoot,
    /// Command lines of the editor, the pager and the clipboard.
    pub external_tools: console::shell::external_tools::ExternalTools,
    /// `$XDG_RUNTIME_DIR`, if it is an absolute path; holds sockets.
    pub runtime_directory: Option<PathBuf>,
    /// Path of this program, which ssh starts as its askpass helper.
    pub program_path: PathBuf,
    /// The layouts that agents can have.
    pub layouts: Layouts,
    /// What alerts use of the environment.
    pub alerts: AlertEnvironment,
    /// NO_COLOR is set and not empty.
    pub is_no_color_set: bool,
    /// `$TERM`; empty if unset.
    pub term: String,
    /// `$COLORTERM`; empty if unset.
    pub colorterm: String,
    /// The first of LC_ALL, LC_CTYPE and LANG that is set and not empty.
    pub locale: Option<String>,
    /// The session runs over SSH.
    pub is_over_ssh: bool,
    /// Standard input is a terminal.
    pub is_stdin_terminal: bool,
    /// Standard output is a terminal.
    pub is_stdout_terminal: bool,
    /// Standard error is a terminal.
    pub is_stderr_terminal: bool,
    /// Width of the terminal of standard output in columns, if known.
    pub terminal_columns: Option<usize>,
    /// Looks up the id of a group by name.
    pub find_group: fn(&str) -> Option<u32>,
    /// Looks up a user by id.
    pub find_account: fn(u32) -> Option<UserAccount>,
}

impl Environment {
    /// Creates the environment of a program in a directory that reads no variable and has no
    /// terminal, for programs that add layouts of their own.
    pub fn bare(directory: &Path, layouts: Layouts) -> Environment {
        let env = ConfigEnvironment {
            layouts: layouts.config_keys(),
            ..ConfigEnvironment::bare(directory)
        };
        Environment {
            temporary_root: TemporaryRoot::new("TMPDIR", PathBuf::from("/tmp"), env.trusted_user()),
            env,
            user: "root".to_string(),
            debug_log: None,
            external_tools: console::shell::external_tools::ExternalTools::from_variables(|_| None),
            runtime_directory: None,
            program_path: PathBuf::from("memory-shepherd"),
            layouts,
            alerts: AlertEnvironment {
                certificate_file: None,
                search_path: Vec::new(),
                home: None,
                is_root: true,
            },
            is_no_color_set: false,
            term: String::new(),
            colorterm: String::new(),
            locale: None,
            is_over_ssh: false,
            is_stdin_terminal: false,
            is_stdout_terminal: false,
            is_stderr_terminal: false,
            terminal_columns: None,
            find_group: |_| None,
            find_account: |_| None,
        }
    }

    /// Whether TERM is empty or names a terminal without cursor positioning.
    fn has_dumb_terminal(&self) -> bool {
        self.term.is_empty() || self.term == "dumb"
    }
}

/// A user of this machine.
#[derive(Clone, Debug)]
pub struct UserAccount {
    /// User name.
    pub name: String,
    /// Ids of all groups that the user is a member of.
    pub groups: Vec<u32>,
}

/// Everything that a verb works with.
struct CommandContext<'a> {
    environment: &'a Environment,
    config_flag: Option<PathBuf>,
    /// Opens connections to hosts.
    connector: Arc<dyn Connector>,
    output: &'a mut Output,
}

/// How a verb opens the console.
#[derive(Default)]
struct ConsoleSetup {
    /// First message.
    startup_message: Option<String>,
    /// Opens connections to hosts; `None` for ssh.
    connector: Option<Arc<dyn Connector>>,
    /// Whether the view of the fleet is saved for the next start.
    is_view_saved: bool,
    /// Agent under the cursor at first; `None` for the first one shown.
    initial_agent: Option<String>,
    /// A command in addition to those of the table.
    extra_command: Option<console::ExtraCommand>,
}

/// Result of a verb: the error kind that its answer stands for, if any.
type CommandResult = Result<Option<ErrorKind>, CommandError>;

/// Parses the command line. Its help lists the commands about layouts only where an agent has one.
fn parse_arguments(arguments: &[OsString], environment: &Environment) -> Result<Cli, clap::Error> {
    let mut definition = arguments::examples::command_line(environment.layouts);
    let mut parsed = definition.try_get_matches_from_mut(arguments);
    if let Err(error) = &parsed
        && error.kind() == clap::error::ErrorKind::DisplayHelp
        && command_words(arguments).iter().all(|word| word == "help")
    {
        for verb in configured_layout_verbs(arguments, environment) {
            if definition.find_subcommand(&verb).is_some() {
                definition = definition.mut_subcommand(verb, |it| it.hide(false));
            }
        }
        parsed = definition.try_get_matches_from_mut(arguments);
    }
    Cli::from_arg_matches_mut(&mut parsed?).map_err(|error| error.format(&mut definition))
}

/// Returns the commands about the layouts that agents of the config have; none without a valid config.
fn configured_layout_verbs(arguments: &[OsString], environment: &Environment) -> Vec<String> {
    let config_flag = arguments.iter().enumerate().find_map(|(place, argument)| {
        if argument == "--config" {
            return arguments.get(place + 1).map(PathBuf::from);
        }
        let value = argument.to_str()?.strip_prefix("--config=")?;
        Some(PathBuf::from(value))
    });
    let located = config::locate(config_flag.as_deref(), &environment.env).ok();
    let config = located.and_then(|located| located.load(&environment.env).ok());
    let agents = config.iter().flat_map(|config| &config.agents);
    let mut verbs: Vec<String> = agents
        .filter_map(|agent| Some(agent.layout.as_ref()?.name.clone()))
        .collect();
    if !verbs.is_empty() {
        verbs.push("memory".to_string());
    }
    verbs.sort();
    verbs.dedup();
    verbs
}

/// Runs the command line. Returns the most serious error kind that occurred, or `None` on success.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Option<ErrorKind> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut settings = OutputSettings {
        is_color_unwanted: environment.is_no_color_set || environment.has_dumb_terminal(),
        is_stdout_terminal: environment.is_stdout_terminal,
        is_stderr_terminal: environment.is_stderr_terminal,
        terminal_columns: environment.terminal_columns,
        ..OutputSettings::default()
    };
    let cli = match parse_arguments(&arguments, environment) {
        Ok(cli) => cli,
        Err(error) => {
            settings.is_json = arguments.iter().any(|argument| argument == "--json");
            return match missing_verb_error(&error, &arguments) {
                Some(error) if settings.is_json => {
                    Output::new(settings).print_command_error(&error.into());
                    Some(ErrorKind::User)
                }
                _ => print_clap_error(error, &arguments, settings),
            };
        }
    };
    settings.is_json = cli.global.json;
    settings.is_quiet = cli.global.quiet;
    settings.color_choice = cli.global.color;
    let mut output = Output::new(settings);
    let debug_log = cli
        .global
        .debug_log
        .as_ref()
        .or(environment.debug_log.as_ref());
    if let Some(path) = debug_log
        && let Err(error) = debug_log::start(&environment.env.cwd.join(path))
    {
        let kind = error.kind();
        output.print_command_error(&error.into());
        return Some(kind);
    }
    let mut context = CommandContext {
        environment,
        config_flag: cli.global.config,
        connector: Arc::new(SshConnector::new(Arc::new(clock::SystemClock))),
        output: &mut output,
    };
    let words = command_words(&arguments);
    match context.run_command_line(cli.verb, cli.agent, &words, &cli.console) {
        Ok(kind) => kind,
        Err(failure) => {
            output.print_command_error(&failure);
            Some(failure.error.kind())
        }
    }
}

impl CommandContext<'_> {
    fn run_command_line(
        &mut self,
        verb: Option<Verb>,
        agent: Option<String>,
        words: &[String],
        flags: &ConsoleFlags,
    ) -> CommandResult {
        if (verb.is_some() || agent.is_some()) && (flags.read_only || flags.theme.is_some()) {
            let message = "--read-only and --theme apply to the console only";
            let error = Error::new(ErrorKind::User, message);
            return Err(error
                .with_hint("remove them, or put them after `demo`")
                .into());
        }
        match (verb, agent) {
            (Some(_), Some(agent)) => {
                let message = format!("unexpected argument {agent} before a command");
                Err(suggest_command(Error::new(ErrorKind::User, message), words).into())
            }
            (Some(verb), None) => self.run_verb(verb),
            (None, Some(agent)) => self.run_original_form(agent),
            (None, None) if self.can_open_console() => self.run_console(flags),
            (None, None) => status::run(self, &StatusArgs::default()),
        }
    }

    /// Prints the answer of a command.
    fn print_document(&mut self, document: &impl Document) -> Result<()> {
        self.output.print_document(document)
    }

    /// Prints the answer of a command that has succeeded, whatever it says.
    fn print_answer(&mut self, document: &impl Document) -> CommandResult {
        self.output.print_document(document)?;
        Ok(None)
    }

    /// Refuses `--json` for a command that does not end by itself.
    fn refuse_json(&self, command: &str) -> Result<()> {
        if !self.output.is_json() {
            return Ok(());
        }
        let message = format!("--json prints one document, and `{command}` does not end by itself");
        Err(Error::new(ErrorKind::User, message))
    }

    fn print_note(&mut self, text: impl AsRef<str>) {
        self.output.print_note(text.as_ref());
    }

    fn print_warning(&mut self, text: impl AsRef<str>) {
        self.output.print_warning(text.as_ref());
    }

    fn print_error(&mut self, text: impl AsRef<str>) {
        self.output.print_error(text.as_ref());
    }

    fn print_hint(&mut self, text: impl AsRef<str>) {
        self.output.print_hint(text.as_ref());
    }

    fn print_hints<'h>(&mut self, hints: impl IntoIterator<Item = &'h String>) {
        self.output.print_hints(hints);
    }

    /// Prints an error, and its hints, while the command goes on.
    fn print_failure(&mut self, error: &Error) {
        self.output.print_failure(error);
    }

    fn run_verb(&mut self, verb: Verb) -> CommandResult {
        match verb {
            Verb::Init(args) => init::run(self, &args),
            Verb::Status(args) => status::run(self, &args),
            Verb::Diff(args) => diff::run(self, &args),
            Verb::Reset(args) => runs::run_reset(self, &args),
            Verb::Push(args) => runs::run_push(self, &args),
            Verb::Undo(args) => runs::run_undo(self, &args),
            Verb::Report { since } => report::run(self, since.as_deref()),
            Verb::Log(args) => log::run(self, &args),
            Verb::Drover(args) => drover::run(self, &args),
            Verb::Memory(args) => memory::run(self, &args),
            Verb::Archive { what } => archive::run(self, &what),
            Verb::Baseline { what } => baseline::run(self, &what),
            Verb::Seal(args) => seal::run(self, &args),
            Verb::Guard(args) => guard::run(self, &args),
            Verb::Schedule { what } => schedule::run(self, &what),
            Verb::Alerts { what } => alerts::run(self, &what),
            Verb::Verify { anchor } => verify::run(self, anchor),
            Verb::Lint(args) => lint::run(self, &args),
            Verb::Doctor => doctor::run(self),
            Verb::Keys => keys::run(self),
            Verb::Completions { shell } => arguments::manual::print_completions(self, shell),
            Verb::Man => arguments::manual::print_manual(self),
            Verb::Config { what } => config_verbs::run(self, what),
            #[cfg(feature = "demo")]
            Verb::Demo(args) => demo::run(self, &args),
        }
    }

    /// Resets as `memory-shepherd all` and `memory-shepherd AGENT` do: timers of the original tool
    /// call the program in this form.
    fn run_original_form(&mut self, agent: String) -> CommandResult {
        let all = agent == "all";
        let result = runs::run_reset(
            self,
            &ResetArgs {
                agents: if all { Vec::new() } else { vec![agent.clone()] },
                all,
                ..ResetArgs::default()
            },
        );
        // A mistyped verb is parsed as an agent name.
        result.map_err(|mut failure| {
            if failure.error.kind() == ErrorKind::User {
                failure.error = suggest_command(failure.error, &[agent]);
            }
            failure
        })
    }

    /// Whether a call without arguments opens the console.
    fn can_open_console(&self) -> bool {
        let terminal = self.environment.is_stdin_terminal && self.environment.is_stdout_terminal;
        terminal && !self.environment.has_dumb_terminal() && !self.output.is_json()
    }

    fn run_console(&mut self, flags: &ConsoleFlags) -> CommandResult {
        let config = self.load_config()?;
        let setup = ConsoleSetup {
            is_view_saved: true,
            ..ConsoleSetup::default()
        };
        self.open_console(config, flags, setup)
    }

    fn open_console(
        &mut self,
        config: Config,
        flags: &ConsoleFlags,
        setup: ConsoleSetup,
    ) -> CommandResult {
        let environment = self.environment.clone();
        let (prompt_sender, prompt_events) = unbounded();
        let user = environment.env.trusted_user();
        let runtime_root = environment.runtime_directory.clone();
        let runtime_root =
            runtime_root.map(|path| TemporaryRoot::new("XDG_RUNTIME_DIR", path, user));
        let socket_roots = runtime_root
            .into_iter()
            .chain([environment.temporary_root.clone()]);
        let prompt_broker = PromptBroker::new(
            environment.program_path.clone(),
            socket_roots.collect(),
            prompt_sender,
        );
        let group = resolve_archive_group(&config, environment.find_group)
            .map_err(|errors| config_failure(&config.path, errors))?;
        let connector = setup.connector.unwrap_or_else(|| {
            let ssh = SshConnector::new(Arc::new(clock::SystemClock));
            Arc::new(ssh.with_prompts(prompt_broker.clone()))
        });
        // Rebuilt engines share the transports, so a changed config keeps the connections to hosts
        // that it still names.
        let transports = build_transports(connector);
        let user = environment.user.clone();
        let layouts = environment.layouts;
        let make_engine = move |config: Config, group: Option<u32>| {
            let transports = Arc::clone(&transports);
            new_engine(config, Trigger::Console, &user, group, transports, layouts)
        };
        let engine = make_engine(config, group);
        let rebuild = move |config: Config| {
            let group = resolve_archive_group(&config, environment.find_group)?;
            Ok(make_engine(config, group))
        };
        let view_state_file = if setup.is_view_saved {
            view_state::ViewStateFile::new(&environment.env, &engine.config().path)
        } else {
            None
        };
        let interrupted = console::run(console::ConsoleOptions {
            engine: Arc::new(engine),
            prompt_broker: (prompt_broker, prompt_events),
            is_read_only: flags.read_only,
            theme: flags.theme.clone(),
            terminal_features: TerminalFeatures::from_term(
                &self.environment.term,
                &self.environment.colorterm,
            )
            .with_locale(self.environment.locale.as_deref(), &self.environment.term),
            is_color_disabled: self.output.is_color_disabled(),
            is_over_ssh: self.environment.is_over_ssh,
            preferences_path: preferences::default_path(&self.environment.env),
            view_state_file,
            env: self.environment.env.clone(),
            external_tools: self.environment.external_tools.clone(),
            temporary_root: self.environment.temporary_root.clone(),
            startup_message: setup.startup_message,
            engine_factory: Arc::new(rebuild),
            initial_agent: setup.initial_agent,
            extra_command: setup.extra_command,
            managers: ManagerAccess::new(
                &self.environment.env,
                self.environment.runtime_directory.clone(),
            ),
            program_path: self.environment.program_path.clone(),
        })?;
        Ok(interrupted.then_some(ErrorKind::Interrupted))
    }

    /// Finds and reads the config, and prints its warnings to standard error.
    fn load_config(&mut self) -> Result<Config, CommandError> {
        let located = config::locate(self.config_flag.as_deref(), &self.environment.env)?;
        match located.load(&self.environment.env) {
            Ok(config) => {
                self.output.print_diagnostics(&config.warnings);
                Ok(config)
            }
            Err(errors) => Err(config_failure(&located.path, errors)),
        }
    }

    /// Loads the config and builds its engine, which never asks for a password or passphrase.
    fn open_engine(&mut self) -> Result<Engine, CommandError> {
        self.open_engine_for(Trigger::Cli)
    }

    /// Loads the config as [`CommandContext::open_engine`] does, for runs that `trigger` started.
    fn open_engine_for(&mut self, trigger: Trigger) -> Result<Engine, CommandError> {
        let config = self.load_config()?;
        let group = resolve_archive_group(&config, self.environment.find_group)
            .map_err(|errors| config_failure(&config.path, errors))?;
        Ok(self.new_engine_for(trigger, config, group))
    }

    fn new_cli_engine(&self, config: Config, archive_group: Option<u32>) -> Engine {
        self.new_engine_for(Trigger::Cli, config, archive_group)
    }

    fn new_engine_for(
        &self,
        trigger: Trigger,
        config: Config,
        archive_group: Option<u32>,
    ) -> Engine {
        new_engine(
            config,
            trigger,
            &self.environment.user,
            archive_group,
            build_transports(Arc::clone(&self.connector)),
            self.environment.layouts,
        )
    }
}

/// Adds the command that the words of a command line resemble, if they resemble one.
fn suggest_command(error: Error, words: &[String]) -> Error {
    match closest_command(words) {
        Some(command) => error.with_hint(format!("did you mean the command {command}?")),
        None => error,
    }
}

/// Returns the failure of a command whose config has errors.
fn config_failure(path: &Path, ConfigErrors(diagnostics): ConfigErrors) -> CommandError {
    let message = format!(
        "config {} has errors; no command runs with it",
        path.display()
    );
    CommandError {
        error: Error::new(ErrorKind::Config, message),
        diagnostics,
    }
}

/// Builds the transports of this machine and, through `connector`, of hosts.
fn build_transports(connector: Arc<dyn Connector>) -> Arc<dyn Transports> {
    let clock = Arc::new(clock::SystemClock);
    let local = Arc::new(LocalTransport::new(clock.clone()));
    Arc::new(PerHostTransports::new(local, connector, clock))
}

fn new_engine(
    config: Config,
    trigger: Trigger,
    user: &str,
    archive_group: Option<u32>,
    transports: Arc<dyn Transports>,
    layouts: Layouts,
) -> Engine {
    Engine::new(EngineSetup {
        config,
        transports,
        clock: Arc::new(clock::SystemClock),
        user: user.to_string(),
        trigger,
        archive_group,
        layouts,
    })
}

/// Returns the numeric group of `archive_group`, if the config has one.
///
/// # Errors
/// This machine has no such group.
fn resolve_archive_group(
    config: &Config,
    find_group: fn(&str) -> Option<u32>,
) -> Result<Option<u32>, ConfigErrors> {
    let Some(name) = &config.general.archive_group else {
        return Ok(None);
    };
    find_group(name).map(Some).ok_or_else(|| {
        let diagnostic = config.error_at_value(
            ("general", "archive_group"),
            name,
            format!("archive_group: no group {name} on this machine"),
            vec!["list groups with `getent group`; correct the config, or add the group".into()],
        );
        ConfigErrors(vec![diagnostic])
    })
}
