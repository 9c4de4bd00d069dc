//! The command line: its definition, and a verb for each action of the console. Verbs call the same
//! methods of the [`Engine`] as the console and print through [`output`].
//!
//! The process environment comes in as an [`Environment`]; nothing here reads it. A failure goes
//! out as an [`ErrorKind`], which alone decides the exit code.

mod archive;
mod baseline;
mod baseline_plans;
mod config_verbs;
#[cfg(feature = "demo")]
mod demo;
mod diff;
mod doctor;
mod guard;
mod keys;
mod lint;
mod log;
mod manual;
pub mod output;
mod reset_and_undo;
mod seal;
mod status;
mod three_way;
mod usage;
mod verify;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand};
use crossbeam_channel::unbounded;

use crate::clock;
use crate::config::{self, Config, ConfigEnvironment, ConfigErrors};
use crate::console::terminal::TerminalFeatures;
use crate::console::{self, preferences, view_state};
use crate::debug_log;
use crate::digest::Digest;
use crate::engine::{Engine, EngineSetup, ScratchSelection, Trigger, UndoMode};
use crate::error::{Error, ErrorKind, Result};
use crate::transport::Transports;
use crate::transport::local::LocalTransport;
use crate::transport::sftp::PerHostTransports;
use crate::transport::sftp::askpass::PromptBroker;
use crate::transport::sftp::ssh::{Connector, SshConnector};
use output::{ColorChoice, CommandError, Output, OutputSettings};
use usage::{missing_verb_error, print_clap_error};

/// The end of every help text; scripts and timers rely on these numbers.
const EXIT_CODES: &str = "\
Exit codes:
    0  ok
    1  some agents failed, or there are differences or findings
    2  the command line or the config is wrong
    3  a host or file cannot be reached or read
    4  integrity: tampered baseline, changed host key, broken seal or ledger
    5  another run holds the lock
    6  the plan has changed, or the operation was refused for safety
  130  interrupted
Where several apply, the first of 130, 4, 2, 6, 5, 3, 1 is used.";

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
    pub temp_directory: PathBuf,
    /// Command lines of the editor, the pager and the clipboard.
    pub external_tools: console::external_tools::ExternalTools,
    /// `$XDG_RUNTIME_DIR`, if it is an absolute path; holds sockets.
    pub runtime_directory: Option<PathBuf>,
    /// Path of this program, which ssh starts as its askpass helper.
    pub program_path: PathBuf,
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

/// Archive what agents wrote into their memories, reset them to their
/// baselines, and undo.
///
/// Without a command: opens the console on a terminal, else prints `status`. An agent name alone
/// means `reset AGENT`, and `all` means `reset --all`.
#[derive(Debug, Parser)]
#[command(name = "memory-shepherd", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    console: ConsoleFlags,
    /// Agent to reset, or `all`: the form that the original tool takes
    #[arg(value_name = "AGENT|all")]
    agent: Option<String>,
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    global: GlobalFlags,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
struct GlobalFlags {
    /// Uses this config instead of searching for one
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Prints one JSON document
    #[arg(long, global = true)]
    json: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
    /// Omits progress, notes and warnings
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Appends a log of operations and their durations to this file
    #[arg(long, global = true, value_name = "FILE")]
    debug_log: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
struct ConsoleFlags {
    /// Opens the console read-only: no command can change anything
    #[arg(long)]
    read_only: bool,
    /// Theme of the console; overrides the config
    ///
    /// terminal (the colours of the terminal), dark, light, high-contrast, colour-blind, mono (no
    /// colours), or the name of a theme file.
    #[arg(long, value_name = "NAME")]
    theme: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Shows the state of every agent, worst first
    ///
    /// Exits with 4 if a baseline is TAMPERED, a host key has changed or the ledger is broken; with
    /// 6 if an agent cannot be reset (for example because its baseline is missing or too small);
    /// with 3 if an agent cannot be read; else with 0, whatever the states.
    #[command(after_help = EXIT_CODES)]
    Status {
        /// Shows only these agents
        #[arg(value_name = "AGENT")]
        agents: Vec<String>,
        /// Also exits with 1 if an agent is DRIFTED, NOSEP, MISSING or OVERSIZE
        #[arg(long)]
        exit_code: bool,
    },
    /// Compares the baseline of an agent with its memory
    ///
    /// For an agent that is BEHIND, compares the rules that it has with those of the baseline.
    ///
    /// On a terminal, invisible characters are shown as marks. A pipe gets the exact bytes, in the
    /// format of patch(1).
    #[command(after_help = EXIT_CODES)]
    Diff(diff::DiffArgs),
    /// Archives what agents wrote and installs their baselines
    #[command(after_help = EXIT_CODES)]
    Reset(ResetArgs),
    /// Installs new baselines and keeps the agents' notes below them
    ///
    /// Archives what a reset archives. An agent that already has its baseline is left as it is.
    #[command(after_help = EXIT_CODES)]
    Push(PushArgs),
    /// Restores the exact bytes from before a run
    ///
    /// Without --run, undoes the last reset of each agent that is not undone yet.
    #[command(after_help = EXIT_CODES)]
    Undo(UndoArgs),
    /// Lists the recorded runs, newest last
    #[command(after_help = EXIT_CODES)]
    Log {
        /// Shows at most this many records, the newest
        #[arg(short = 'n', value_name = "COUNT", value_parser = parse_record_count)]
        count: Option<usize>,
        /// Shows only this agent
        agent: Option<String>,
    },
    /// Lists archive entries, or pins them so that retention keeps them
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Archive {
        #[command(subcommand)]
        what: ArchiveVerb,
    },
    /// Lists baselines and their versions, or restores one
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Baseline {
        #[command(subcommand)]
        what: baseline::BaselineVerb,
    },
    /// Seals baselines: shows what changed and accepts it
    ///
    /// Writes `.checksums` in baseline_dir, which is the output of sha256sum. Without FILE and --all,
    /// seals the changes that this program saved, shows all others, and exits with 6 if there are
    /// any: accept those by naming their files. A line of the seal whose file is not sealed stays as
    /// it is.
    #[command(after_help = EXIT_CODES)]
    Seal(seal::SealArgs),
    /// Restores sealed baselines that change otherwise than by a seal
    ///
    /// Watches baseline_dir until it is stopped. Restores a file from the archive, keeps the bytes
    /// that it replaces, and records that. Does nothing while an operator edits baselines, and gives
    /// up on a file that it has restored three times within an hour.
    #[command(after_help = EXIT_CODES)]
    Guard(guard::GuardArgs),
    /// Verifies ledger, archive and baselines against their checksums
    ///
    /// Checks the chain of the ledger, every entry and baseline version that it names, the baselines
    /// in use against their seal, and the signature, serial and expiry of the seal. Changes nothing. The chain alone reveals neither a
    /// truncated nor a rewritten ledger: note the head that every run prints, and pass it as
    /// --anchor.
    #[command(after_help = EXIT_CODES)]
    Verify {
        /// Requires this ledger head, noted earlier, to be in the ledger
        #[arg(long, value_name = "SEQ:HASH", value_parser = parse_anchor)]
        anchor: Option<(u64, Digest)>,
    },
    /// Checks baselines and memories against the lint rules
    ///
    /// Without targets, checks the baselines and memories of all agents. A file that is the baseline
    /// or memory of an agent is checked as such; any other one as --zone says. Exits with 1 if a
    /// finding has at least the severity of --fail-on, and with 3 if a target cannot be read.
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Lint(lint::LintArgs),
    /// Checks what resets rely on; meant for pasting into a bug report
    #[command(after_help = EXIT_CODES)]
    Doctor,
    /// Lists the keys of the console, including the user's own
    ///
    /// Prints the table of commands with the changes of console.toml. Reports every mistake in that
    /// file, and then exits with 2.
    #[command(after_help = EXIT_CODES)]
    Keys,
    /// Prints shell completions
    #[command(after_help = EXIT_CODES)]
    Completions {
        /// Shell to generate completions for
        #[arg(value_name = "SHELL", value_enum)]
        shell: clap_complete::Shell,
    },
    /// Prints the manual page
    #[command(after_help = EXIT_CODES)]
    Man,
    /// Checks or shows the config
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Config {
        #[command(subcommand)]
        what: ConfigVerb,
    },
    /// Opens the console on an example fleet with agents in every state
    ///
    /// The fleet is in a temporary directory, which is removed at the end. Without a terminal,
    /// prints the status of the fleet instead.
    #[cfg(feature = "demo")]
    #[command(after_help = EXIT_CODES)]
    Demo {
        /// Creates the fleet in this directory and keeps it
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Number of agents, 14 to 1000
        #[arg(long, value_name = "N", value_parser = parse_demo_size)]
        agents: Option<usize>,
        #[command(flatten)]
        console: ConsoleFlags,
    },
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).args(["agents", "all"])))]
struct ResetArgs {
    /// Agents to reset
    #[arg(value_name = "AGENT")]
    agents: Vec<String>,
    /// Resets the whole fleet
    #[arg(long)]
    all: bool,
    /// Keeps all scratch below the baselines, as `push` does
    #[arg(long)]
    keep_scratch: bool,
    /// Shows the plan and its hash; changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Refuses to run unless the plan has this hash
    #[arg(long, value_name = "HASH", value_parser = parse_plan_hash)]
    plan: Option<String>,
    /// Waits this long for agents that another run has locked
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = parse_number::<u32>)]
    wait: u32,
}

#[derive(Debug, Args)]
struct PushArgs {
    /// Agents to push to
    #[arg(value_name = "AGENT", required = true)]
    agents: Vec<String>,
    /// Scratch to keep: all, none, or lines of the memory such as 86-90,97
    ///
    /// Line numbers are those of the memory file. They select scratch of one agent, and only lines
    /// below the separator.
    #[arg(long, value_name = "all|none|LINES", default_value = "all")]
    keep: ScratchSelection,
    /// Shows the plan and its hash; changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Refuses to run unless the plan has this hash
    #[arg(long, value_name = "HASH", value_parser = parse_plan_hash)]
    plan: Option<String>,
    /// Waits this long for agents that another run has locked
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = parse_number::<u32>)]
    wait: u32,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).args(["agents", "run"])))]
struct UndoArgs {
    /// Agents to undo
    #[arg(value_name = "AGENT")]
    agents: Vec<String>,
    /// Undoes this run for every agent that it changed
    #[arg(long)]
    run: Option<String>,
    /// Reverts the last undo of each agent instead
    #[arg(long, conflicts_with = "run")]
    redo: bool,
    /// Keeps what an agent has written since, below the restored bytes
    #[arg(long, conflicts_with = "overwrite")]
    append: bool,
    /// Archives what an agent has written since, and restores the old file alone
    #[arg(long)]
    overwrite: bool,
    /// Shows the plan and its hash; changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Refuses to run unless the plan has this hash
    #[arg(long, value_name = "HASH", value_parser = parse_plan_hash)]
    plan: Option<String>,
    /// Waits this long for agents that another run has locked
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = parse_number::<u32>)]
    wait: u32,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum ConfigVerb {
    /// Reports every mistake in the config
    #[command(after_help = EXIT_CODES)]
    Check,
    /// Prints every effective value and its origin
    #[command(after_help = EXIT_CODES)]
    Show,
}

#[derive(Debug, Subcommand)]
enum ArchiveVerb {
    /// Lists the entries of agents, oldest first, and what keeps each
    ///
    /// Retention deletes neither pinned entries nor those that an undo still needs.
    #[command(after_help = EXIT_CODES)]
    List {
        /// Shows only these agents
        #[arg(value_name = "AGENT")]
        agents: Vec<String>,
    },
    /// Pins entries: retention never deletes them
    #[command(after_help = EXIT_CODES)]
    Pin {
        /// Paths as printed by `archive list` and `log`
        #[arg(value_name = "ENTRY", required = true)]
        entries: Vec<PathBuf>,
    },
    /// Unpins entries: retention may delete them again
    #[command(after_help = EXIT_CODES)]
    Unpin {
        /// Paths as printed by `archive list` and `log`
        #[arg(value_name = "ENTRY", required = true)]
        entries: Vec<PathBuf>,
    },
}

fn parse_number<T: FromStr>(text: &str) -> Result<T, String> {
    let parsed = text.parse().ok();
    parsed.ok_or_else(|| "expected a whole number that is not too large".to_string())
}

fn parse_record_count(text: &str) -> Result<usize, String> {
    match parse_number(text)? {
        0 => Err("expected a number of at least 1".to_string()),
        count => Ok(count),
    }
}

/// Parses the number of agents of the example fleet.
#[cfg(feature = "demo")]
fn parse_demo_size(text: &str) -> Result<usize, String> {
    let count = parse_number(text).ok();
    let allowed = count.filter(|count| (14..=1000).contains(count));
    allowed.ok_or_else(|| "expected a whole number from 14 to 1000".to_string())
}

fn parse_plan_hash(text: &str) -> Result<String, String> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.len() >= 8 && hex {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a plan hash has at least 8 hexadecimal digits".to_string())
    }
}

fn parse_anchor(text: &str) -> Result<(u64, Digest), String> {
    let (seq, digest) = text
        .split_once(':')
        .ok_or("expected SEQ:HASH, as a run prints it")?;
    let seq = parse_number(seq)?;
    Ok((seq, digest.parse()?))
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
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            settings.is_json = arguments.iter().any(|argument| argument == "--json");
            return match missing_verb_error(&error, &arguments) {
                Some(error) if settings.is_json => {
                    Output::new(settings).print_command_error(&error.into());
                    Some(ErrorKind::User)
                }
                _ => print_clap_error(error, settings),
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
    match context.run_command_line(cli.verb, cli.agent, &cli.console) {
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
                Err(Error::new(ErrorKind::User, message).into())
            }
            (Some(verb), None) => self.run_verb(verb),
            (None, Some(agent)) => self.run_original_form(agent),
            (None, None) if self.can_open_console() => self.run_console(flags),
            (None, None) => self.run_status(&[], false),
        }
    }

    fn run_verb(&mut self, verb: Verb) -> CommandResult {
        match verb {
            Verb::Status { agents, exit_code } => self.run_status(&agents, exit_code),
            Verb::Diff(args) => self.run_diff(&args),
            Verb::Reset(args) => self.run_reset(&args),
            Verb::Push(args) => self.run_push(&args),
            Verb::Undo(args) => self.run_undo(&args),
            Verb::Log { count, agent } => self.run_log(count, agent.as_deref()),
            Verb::Archive { what } => self.run_archive(&what),
            Verb::Baseline { what } => self.run_baseline(&what),
            Verb::Seal(args) => self.run_seal(&args),
            Verb::Guard(args) => self.run_guard(&args),
            Verb::Verify { anchor } => self.run_verify(anchor),
            Verb::Lint(args) => self.run_lint(&args),
            Verb::Doctor => self.run_doctor(),
            Verb::Keys => self.run_keys(),
            Verb::Completions { shell } => self.run_completions(shell),
            Verb::Man => self.run_man(),
            Verb::Config { what } => match what {
                ConfigVerb::Check => self.run_config_check(),
                ConfigVerb::Show => self.run_config_show(),
            },
            #[cfg(feature = "demo")]
            Verb::Demo {
                dir,
                agents,
                console,
            } => self.run_demo(dir, agents, &console),
        }
    }

    /// Resets as `memory-shepherd all` and `memory-shepherd AGENT` do: timers of the original tool
    /// call the program in this form.
    fn run_original_form(&mut self, agent: String) -> CommandResult {
        let all = agent == "all";
        let result = self.run_reset(&ResetArgs {
            agents: if all { Vec::new() } else { vec![agent.clone()] },
            all,
            keep_scratch: false,
            dry_run: false,
            plan: None,
            wait: 0,
        });
        // A mistyped verb is parsed as an agent name.
        result.map_err(|mut failure| {
            let verbs = Cli::command();
            let similar_verb = verbs
                .get_subcommands()
                .map(|verb| verb.get_name().to_string())
                .find(|verb| strsim::damerau_levenshtein(verb, &agent) <= 2);
            if let (ErrorKind::User, Some(verb)) = (failure.error.kind(), similar_verb) {
                failure.error = failure
                    .error
                    .with_hint(format!("did you mean the command {verb}?"));
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
        let (config, notes) = self.load_config()?;
        let setup = ConsoleSetup {
            startup_message: (!notes.is_empty()).then(|| notes.join("; ")),
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
        let directories = environment
            .runtime_directory
            .iter()
            .chain([&environment.temp_directory])
            .cloned();
        let prompt_broker = PromptBroker::new(
            environment.program_path.clone(),
            directories.collect(),
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
        let make_engine = move |config: Config, group: Option<u32>| {
            let transports = Arc::clone(&transports);
            new_engine(config, Trigger::Console, &user, group, transports)
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
            startup_message: setup.startup_message,
            engine_factory: Arc::new(rebuild),
            initial_agent: setup.initial_agent,
            extra_command: setup.extra_command,
        })?;
        Ok(interrupted.then_some(ErrorKind::Interrupted))
    }

    /// Finds and reads the config, and prints its warnings to standard error.
    fn load_config(&mut self) -> Result<(Config, Vec<String>), CommandError> {
        let located = config::locate(self.config_flag.as_deref(), &self.environment.env)?;
        for note in &located.notes {
            self.output.print_warning(note);
        }
        match located.load(&self.environment.env) {
            Ok(config) => {
                self.output.print_diagnostics(&config.warnings);
                Ok((config, located.notes))
            }
            Err(errors) => Err(config_failure(&located.path, errors)),
        }
    }

    /// Loads the config and builds its engine, which never asks for a password or passphrase.
    fn open_engine(&mut self) -> Result<Engine, CommandError> {
        let (config, _) = self.load_config()?;
        let group = resolve_archive_group(&config, self.environment.find_group)
            .map_err(|errors| config_failure(&config.path, errors))?;
        Ok(self.new_cli_engine(config, group))
    }

    fn new_cli_engine(&self, config: Config, archive_group: Option<u32>) -> Engine {
        new_engine(
            config,
            Trigger::Cli,
            &self.environment.user,
            archive_group,
            build_transports(Arc::clone(&self.connector)),
        )
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
) -> Engine {
    Engine::new(EngineSetup {
        config,
        transports,
        clock: Arc::new(clock::SystemClock),
        user: user.to_string(),
        trigger,
        archive_group,
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
            Some("list groups with `getent group`; correct the config, or add the group".into()),
        );
        ConfigErrors(vec![diagnostic])
    })
}

impl UndoArgs {
    fn undo_mode(&self) -> UndoMode {
        match (self.append, self.overwrite) {
            (true, _) => UndoMode::Append,
            (_, true) => UndoMode::Overwrite,
            _ => UndoMode::Refuse,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_ends_with_exit_codes() {
        fn assert_help_ends_with_exit_codes(command: &mut clap::Command, path: &str) {
            let help = command.render_long_help().to_string();
            assert!(help.trim_end().ends_with(EXIT_CODES), "{path}: {help}");
            let verbs = command.get_subcommands_mut();
            for verb in verbs.filter(|verb| verb.get_name() != "help") {
                let path = format!("{path} {}", verb.get_name());
                assert_help_ends_with_exit_codes(verb, &path);
            }
        }
        assert_help_ends_with_exit_codes(&mut Cli::command(), "memory-shepherd");
    }
}
