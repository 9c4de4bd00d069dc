//! `schedule install` and `schedule uninstall`: units of systemd for scheduled resets.

pub(super) mod control;
pub(super) mod hold;
pub(super) mod run;
pub(super) mod status;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::diff::write_hunks;
use super::output::{Document, Printer, dim, format_count, heading, notice, plain, warn};
use super::{CommandContext, CommandResult};
use crate::base::clock::{Clock, SystemClock};
use crate::base::diff;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::trust::{
    CommandPlaces, SERVICE_SEARCH_PATH, TrustedUser, find_untrusted_ancestor,
    find_untrusted_in_command,
};
use crate::base::untrusted;
use crate::cli::arguments::values::EXIT_CODES;
use crate::cli::schedule::control::{ControlArgs, ControlVerb};
use crate::config;
use crate::engine::{Engine, FileOwner};
use crate::unattended::schedule::{
    Consent, FileAction, InstallPlan, OriginalUnit, PlanCommands, PlannedFile, ServiceManager,
    Systemctl, UnitScope, UnitSetup, UserSandbox, crontab_lines, find_kernel_obstacle,
    find_sandbox_obstacle, plan_install, plan_uninstall, render_packaged_units, render_units,
};

#[derive(Debug, Subcommand)]
pub(super) enum ScheduleVerb {
    /// Installs or updates the timers of the config and enables them
    ///
    /// Writes memory-shepherd.timer for all agents, one timer for each agent, and a service for the
    /// guard. Enables the timer for all agents, and those of agents with an interval of their own
    /// (`every`). Removes units of agents that are gone. Files that this program did not write, or
    /// that were edited, stay as they are, and the exit code is 6.
    #[command(after_help = EXIT_CODES)]
    Install(InstallArgs),
    /// Disables and removes the units of the config
    ///
    /// Config, baselines and archive stay as they are.
    #[command(after_help = EXIT_CODES)]
    Uninstall(UninstallArgs),
    /// Shows when each timer is due, and how its last run ended
    ///
    /// Exits with 0 whatever it shows.
    #[command(after_help = EXIT_CODES)]
    Status(TargetArgs),
    /// Resets the agents at the times of the timers, in the foreground, without systemd
    ///
    /// For containers and machines without a service manager. A time that passed while the machine
    /// was suspended is made up for once. A changed config is adopted. TERM ends it once the resets
    /// in progress have ended.
    #[command(after_help = EXIT_CODES)]
    Run,
    /// Pauses scheduled resets until they are resumed
    ///
    /// Timers go on, and their runs reset nothing, whichever of systemd, `schedule run` and cron
    /// starts them. Alerts go on, too. `reset` without --scheduled is not affected.
    #[command(after_help = EXIT_CODES)]
    Pause(ControlArgs),
    /// Ends pauses and skips of scheduled resets
    #[command(after_help = EXIT_CODES)]
    Resume(ControlArgs),
    /// Skips the next scheduled reset; the one after it runs
    #[command(after_help = EXIT_CODES)]
    Skip(ControlArgs),
}

/// Where the units are.
#[derive(Debug, Args)]
pub(super) struct TargetArgs {
    /// Uses this directory of units and runs no systemctl
    #[arg(long, value_name = "DIR")]
    pub(super) prefix: Option<PathBuf>,
    /// Uses the units of the system; the default for root
    #[arg(long, conflicts_with = "user")]
    pub(super) system: bool,
    /// Uses the units of this user; the default for others
    #[arg(long)]
    pub(super) user: bool,
}

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Prints what would be written; changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Also replaces and removes units that were edited or that are of another config or program
    #[arg(long)]
    force: bool,
    /// Removes the timers and services of the original tool
    #[arg(long)]
    take_over: bool,
    /// Prints lines for a crontab instead, for machines without systemd
    #[arg(long, conflicts_with_all = ["prefix", "force", "take_over", "system", "user"])]
    crontab: bool,
    /// Writes the units of a package instead, for any config in /etc
    ///
    /// For packages of distributions, which install the program as PROGRAM: the timer for all
    /// agents, every three hours, and the guard. The units of `schedule install` replace them.
    #[arg(long, value_name = "PROGRAM", requires = "prefix", conflicts_with_all = ["take_over", "system", "user", "crontab"])]
    packaged: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Prints what would be removed; changes nothing
    #[arg(long)]
    dry_run: bool,
    /// Also removes units of the config that were edited
    #[arg(long)]
    force: bool,
}

/// Number of equal lines shown around a change.
const CONTEXT_LINES: usize = 3;

/// Time limit for the smallest difference between two units.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of the kernel.
const KERNEL_SETTINGS: &str = "/proc/sys";

/// The answer of `schedule install` and `schedule uninstall`.
#[derive(Serialize)]
struct ScheduleDocument<'a> {
    dry_run: bool,
    scope: UnitScope,
    directory: String,
    config: String,
    files: &'a [PlannedFile],
    originals: &'a [OriginalUnit],
    /// Commands of systemctl, without its name, that were or would be run.
    commands: Vec<Vec<String>>,
    /// Commands that are or would be left to the operator.
    pending_commands: Vec<Vec<String>>,
    notes: &'a [String],
    #[serde(skip)]
    plan: &'a InstallPlan,
    #[serde(skip)]
    is_removal: bool,
}

impl<'a> ScheduleDocument<'a> {
    fn new(
        plan: &'a InstallPlan,
        target: &'a ScheduleTarget,
        commands: PlanCommands,
        (is_dry_run, is_removal): (bool, bool),
    ) -> ScheduleDocument<'a> {
        ScheduleDocument {
            dry_run: is_dry_run,
            scope: target.scope,
            directory: plan.directory.display().to_string(),
            config: target.config.display().to_string(),
            files: &plan.files,
            originals: &plan.originals,
            commands: commands.run,
            pending_commands: commands.pending,
            notes: &target.notes,
            plan,
            is_removal,
        }
    }

    fn systemctl_line(&self, words: &[String]) -> String {
        format!("{} {}", self.scope.systemctl(), words.join(" "))
    }

    /// Writes the text of each file that would change.
    fn write_contents(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let is_shown = |file: &&PlannedFile| file.action != FileAction::Unchanged;
        for file in self.plan.files.iter().filter(is_shown) {
            let path = self.plan.directory.join(&file.name).display().to_string();
            let reason = file
                .reason
                .as_ref()
                .map_or(String::new(), |it| format!(" ({it})"));
            printer.write_line(&[
                notice(action_word(file.action)),
                plain(" "),
                heading(&path),
                dim(&reason),
            ])?;
            match (&file.old, &file.new) {
                (None, Some(new)) => {
                    for line in new.lines() {
                        printer.write_plain_line(line)?;
                    }
                }
                (Some(old), new) => {
                    let new = new.as_deref().unwrap_or_default();
                    let deadline = SystemClock.instant() + DIFF_TIMEOUT;
                    let diff = diff::compare_lines(old.as_bytes(), new.as_bytes(), Some(deadline));
                    write_hunks(printer, &diff, CONTEXT_LINES)?;
                }
                (None, None) => {}
            }
            printer.write_plain_line("")?;
        }
        Ok(())
    }

    /// Describes what was, or would be, done: `2 units created, 1 removed`.
    fn describe_changes(&self) -> String {
        let words = [
            (FileAction::Create, "to create", "created"),
            (FileAction::Update, "to update", "updated"),
            (FileAction::Remove, "to remove", "removed"),
            (FileAction::Unchanged, "unchanged", "unchanged"),
            (FileAction::Leave, "to leave alone", "left alone"),
        ];
        let mut parts: Vec<String> = Vec::new();
        for (action, planned, done) in words {
            let word = if self.dry_run { planned } else { done };
            let files = self.plan.files.iter();
            match files.filter(|file| file.action == action).count() {
                0 => {}
                count if parts.is_empty() => {
                    parts.push(format!("{} {word}", format_count(count, "unit")));
                }
                count => parts.push(format!("{count} {word}")),
            }
        }
        if parts.is_empty() {
            return format!("no units of {}", self.config);
        }
        parts.join(", ")
    }
}

fn action_word(action: FileAction) -> &'static str {
    match action {
        FileAction::Create => "create",
        FileAction::Update => "update",
        FileAction::Remove => "remove",
        FileAction::Unchanged => "keep",
        FileAction::Leave => "leave",
    }
}

impl Document for ScheduleDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.dry_run {
            self.write_contents(printer)?;
        }
        for original in self.originals {
            let agents = original.agents.join(", ");
            printer.write_line(&[
                warn("original tool: "),
                heading(&original.service),
                plain(" resets "),
                plain(&agents),
            ])?;
        }
        if !self.dry_run {
            for file in self.plan.left_files() {
                let reason = file.reason.as_deref().unwrap_or_default();
                printer.write_line(&[
                    warn("left: "),
                    heading(&file.name),
                    plain(": "),
                    plain(reason),
                ])?;
            }
        }
        let label = if self.dry_run { "would run: " } else { "ran: " };
        for command in &self.commands {
            let line = self.systemctl_line(command);
            printer.write_line(&[dim(label), plain(&line)])?;
        }
        let changes = self.describe_changes();
        let end = if self.dry_run {
            "; nothing was changed"
        } else {
            ""
        };
        printer.write_plain_line(format!("{}: {changes}{end}", self.directory))?;
        if !self.pending_commands.is_empty() {
            let tense = if self.dry_run { "would be" } else { "was" };
            let verb = if self.is_removal { "end" } else { "enable" };
            printer.write_plain_line(format!("no systemctl {tense} run; to {verb} the timers:"))?;
        }
        for command in &self.pending_commands {
            printer.write_plain_line(format!("    {}", self.systemctl_line(command)))?;
        }
        Ok(())
    }
}

/// Lines for a crontab.
#[derive(Serialize)]
struct CrontabDocument {
    config: String,
    lines: Vec<String>,
}

impl Document for CrontabDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for line in &self.lines {
            printer.write_plain_line(line)?;
        }
        Ok(())
    }
}

/// Where units go, and what is to be said about that.
pub(super) struct ScheduleTarget {
    pub(super) scope: UnitScope,
    pub(super) directory: PathBuf,
    /// The config.
    pub(super) config: PathBuf,
    notes: Vec<String>,
    /// Whether the directory is the service manager's.
    has_manager: bool,
}

impl ScheduleTarget {
    /// Returns the service manager, unless the units are staged in another directory.
    pub(super) fn manager<'a>(
        &self,
        runtime_directory: Option<&Path>,
        clock: &'a dyn Clock,
    ) -> Option<Systemctl<'a>> {
        self.has_manager
            .then(|| Systemctl::new(self.scope, runtime_directory, clock))
    }
}

pub(super) fn run(context: &mut CommandContext<'_>, verb: &ScheduleVerb) -> CommandResult {
    match verb {
        ScheduleVerb::Install(args) if args.crontab => run_crontab(context),
        ScheduleVerb::Install(args) => match &args.packaged {
            Some(program) => write_packaged_units(context, args, program),
            None => run_install(context, args),
        },
        ScheduleVerb::Uninstall(args) => run_uninstall(context, args),
        ScheduleVerb::Status(args) => status::run(context, args),
        ScheduleVerb::Run => run::run(context),
        ScheduleVerb::Pause(args) => control::run(context, args, ControlVerb::Pause),
        ScheduleVerb::Resume(args) => control::run(context, args, ControlVerb::Resume),
        ScheduleVerb::Skip(args) => control::run(context, args, ControlVerb::Skip),
    }
}

/// Resolves the directory of the units.
pub(super) fn schedule_target(
    context: &CommandContext<'_>,
    args: &TargetArgs,
    config: PathBuf,
) -> Result<ScheduleTarget> {
    let env = &context.environment.env;
    let is_system = args.system || !args.user && env.uid == 0;
    let scope = if is_system {
        UnitScope::System
    } else {
        UnitScope::User
    };
    Ok(ScheduleTarget {
        scope,
        directory: match &args.prefix {
            Some(prefix) => env.resolve(prefix),
            None => scope.unit_directory(env)?,
        },
        config,
        notes: Vec::new(),
        has_manager: args.prefix.is_none(),
    })
}

/// Returns the path of the config, which need not be readable any more.
pub(super) fn schedule_config_path(context: &CommandContext<'_>) -> Result<PathBuf> {
    let env = &context.environment.env;
    match config::locate(context.config_flag.as_deref(), env) {
        Ok(located) => Ok(located.path),
        Err(error) => {
            let flag = context.config_flag.as_ref();
            flag.map(|path| env.resolve(path)).ok_or(error)
        }
    }
}

fn run_install(context: &mut CommandContext<'_>, args: &InstallArgs) -> CommandResult {
    let engine = context.open_engine()?;
    check_has_agents(&engine)?;
    let mut target = schedule_target(context, &args.target, engine.config().path.clone())?;
    let user_sandbox = user_sandbox(&engine, target.scope);
    let program = &context.environment.program_path;
    let units = render_units(UnitSetup {
        config: engine.config(),
        program,
        scope: target.scope,
        user_sandbox: &user_sandbox,
    })?;
    if target.scope == UnitScope::System {
        target.notes.extend(root_trust_notes(context, &engine));
    }
    if let (UnitScope::User, UserSandbox::FiltersOnly(why)) = (target.scope, &user_sandbox) {
        let note = format!(
            "systemd cannot restrict where the units write, because {why}; they do so by \
             themselves (--restrict-writes), which systemd-analyze security does not see, so \
             it rates them higher"
        );
        target.notes.push(note);
    }
    let consent = Consent {
        force: args.force,
        take_over: args.take_over,
    };
    let plan = plan_install(&target.directory, &target.config, &units, consent)?;
    if plan.keeps_original() && !args.dry_run {
        return Err(original_error(&plan).into());
    }
    if !args.dry_run {
        // The sandbox makes it writable only if it exists.
        engine.archive().open_or_create_directory(Path::new(""))?;
    }
    let has_pending = apply_schedule(context, &target, &plan, (args.dry_run, false))?;
    for note in &target.notes {
        context.print_note(note);
    }
    if target.has_manager && has_pending {
        let crontab = engine.command_line("schedule install --crontab");
        let run = engine.command_line("schedule run");
        context.print_hint(format!(
            "without systemd, `{crontab}` prints lines for cron, and `{run}` resets in the \
             foreground"
        ));
    }
    Ok(print_left_units(context, &plan))
}

/// Writes the units of a package that installs the program at `program`.
fn write_packaged_units(
    context: &mut CommandContext<'_>,
    args: &InstallArgs,
    program: &Path,
) -> CommandResult {
    let target = ScheduleTarget {
        scope: UnitScope::System,
        ..schedule_target(context, &args.target, config::SYSTEM_CONFIG_PATH.into())?
    };
    let units = render_packaged_units(program)?;
    let consent = Consent {
        force: args.force,
        take_over: false,
    };
    let plan = plan_install(&target.directory, &target.config, &units, consent)?;
    apply_schedule(context, &target, &plan, (args.dry_run, false))?;
    Ok(print_left_units(context, &plan))
}

fn run_uninstall(context: &mut CommandContext<'_>, args: &UninstallArgs) -> CommandResult {
    let config = schedule_config_path(context)?;
    let target = schedule_target(context, &args.target, config)?;
    let consent = Consent {
        force: args.force,
        take_over: false,
    };
    let plan = plan_uninstall(&target.directory, &target.config, consent)?;
    apply_schedule(context, &target, &plan, (args.dry_run, true))?;
    Ok(print_left_units(context, &plan))
}

/// Applies a plan, unless that is only asked about, and prints it. Returns whether commands of the
/// service manager are left to the operator.
fn apply_schedule(
    context: &mut CommandContext<'_>,
    target: &ScheduleTarget,
    plan: &InstallPlan,
    (is_dry_run, is_removal): (bool, bool),
) -> Result<bool> {
    let runtime_directory = context.environment.runtime_directory.as_deref();
    let manager = target.manager(runtime_directory, &SystemClock);
    let manager = manager.as_ref().map(|it| it as &dyn ServiceManager);
    let commands = if is_dry_run {
        plan.commands(manager)
    } else {
        plan.apply(manager)?
    };
    let has_pending = !commands.pending.is_empty();
    let kind = (is_dry_run, is_removal);
    context.print_document(&ScheduleDocument::new(plan, target, commands, kind))?;
    Ok(has_pending)
}

/// Says how to consent to the change of files that stay, and returns the error kind for them.
fn print_left_units(context: &mut CommandContext<'_>, plan: &InstallPlan) -> Option<ErrorKind> {
    let (originals, others): (Vec<_>, Vec<_>) =
        plan.left_files().partition(|file| file.is_original);
    if !originals.is_empty() {
        context.print_hint("--take-over removes the units of the original tool");
    }
    if !others.is_empty() {
        context.print_hint("review them with --dry-run; --force replaces or removes them");
    }
    let is_left = !originals.is_empty() || !others.is_empty();
    is_left.then_some(ErrorKind::Conflict)
}

fn run_crontab(context: &mut CommandContext<'_>) -> CommandResult {
    let engine = context.open_engine()?;
    check_has_agents(&engine)?;
    let lines = crontab_lines(engine.config(), &context.environment.program_path)?;
    let has_marks = |line: &String| untrusted::visible_line(line) != *line;
    let is_changed = !context.output.wants_exact_bytes() && !context.output.is_json();
    let is_changed = is_changed && lines.iter().any(has_marks);
    context.print_document(&CrontabDocument {
        config: engine.config().path.display().to_string(),
        lines,
    })?;
    if is_changed {
        context.print_warning(
            "marks stand for characters of a path, so these lines name no file; write them \
             into a file or a pipe instead",
        );
    }
    print_root_trust_notes(context, &engine);
    Ok(None)
}

/// Returns what other users can change of that which root runs on a schedule.
fn root_trust_notes(context: &CommandContext<'_>, engine: &Engine) -> Vec<String> {
    let config = engine.config();
    let command = config.alerts.as_ref().and_then(|alerts| {
        let words = alerts.command.as_ref()?;
        let search_path = SERVICE_SEARCH_PATH.map(PathBuf::from);
        let places = CommandPlaces {
            directory: &alerts.directory,
            home: context.environment.env.home.as_deref(),
            search_path: &search_path,
        };
        find_untrusted_in_command(words, places, TrustedUser::ROOT)
    });
    let found = [
        (
            "program",
            find_untrusted_ancestor(&context.environment.program_path, TrustedUser::ROOT),
        ),
        (
            "config",
            find_untrusted_ancestor(&config.path, TrustedUser::ROOT),
        ),
        ("command of the alerts", command),
    ];
    let notes = found.into_iter().filter_map(|(what, place)| {
        let place = place?.describe(context.environment.env.user_database);
        Some(format!(
            "root runs the resets, and other users can change the {what}: {place}"
        ))
    });
    notes.collect()
}

/// Says what other users can change of that which root is about to run on a schedule.
pub(super) fn print_root_trust_notes(context: &mut CommandContext<'_>, engine: &Engine) {
    if context.environment.env.uid == 0 {
        for note in root_trust_notes(context, engine) {
            context.print_note(&note);
        }
    }
}

/// Returns how units of a user are confined: in a user namespace, unless that would keep them
/// from resetting an agent.
pub(super) fn user_sandbox(engine: &Engine, scope: UnitScope) -> UserSandbox {
    if scope == UnitScope::System {
        return UserSandbox::Namespaces;
    }
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let foreign_memory = || {
        let mut agents = engine.config().reset_agents();
        let is_foreign = |owner: FileOwner| owner.uid != user || owner.gid != group;
        let agent = agents.find(|it| engine.context().memory_owner(it).is_some_and(is_foreign))?;
        let name = &agent.name;
        Some(format!(
            "the memory of {name} has another owner or group, which a user namespace hides"
        ))
    };
    let obstacle = find_sandbox_obstacle(engine.config())
        .or_else(|| find_kernel_obstacle(Path::new(KERNEL_SETTINGS)))
        .or_else(foreign_memory);
    obstacle.map_or(UserSandbox::Namespaces, UserSandbox::FiltersOnly)
}

/// Refuses a config without agents to reset: timers without effect would look like resets.
fn check_has_agents(engine: &Engine) -> Result<()> {
    match engine.config().reset_agents().next() {
        None => Err(no_agents_error(engine, "schedule")),
        Some(_) => Ok(()),
    }
}

/// Returns the error of a config without agents to reset, in which there is nothing to `act` on.
pub(super) fn no_agents_error(engine: &Engine, act: &str) -> Error {
    let config = engine.config().path.display();
    let agents = if engine.config().agents.is_empty() {
        "no agents"
    } else {
        "only agents that are never reset"
    };
    let message = format!("config {config} has {agents}; nothing to {act}");
    let check = engine.command_line("config check");
    Error::new(ErrorKind::Config, message).with_hint(format!("`{check}` shows how to add an agent"))
}

/// Returns the error about units of the original tool, which would reset the same agents.
fn original_error(plan: &InstallPlan) -> Error {
    let services: Vec<&str> = plan
        .originals
        .iter()
        .map(|it| it.service.as_str())
        .collect();
    let message = format!(
        "{} has units of the original tool, which would reset agents as well: {}; nothing was \
         changed",
        plan.directory.display(),
        services.join(", ")
    );
    Error::new(ErrorKind::Conflict, message)
        .with_hint("--take-over --dry-run shows what replaces them, --take-over replaces them")
}
