//! `doctor`: checks one by one what resets rely on. Prints good results too, for bug reports.
//!
//! Changes nothing: it tries operations on unnamed files, or in a directory of its own inside the
//! archive that it removes at once.

mod hosts;
mod kernel_probe;
mod runs;
mod write_access;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use clap::CommandFactory;
use rustix::fs::Access;
use rustix::io::Errno;
use serde::Serialize;

use super::arguments::Cli;
use super::output::{Document, OutputRole, Printer, format_count};
use super::{CommandContext, CommandResult};
use crate::baseline::describe_missing_separator;
use crate::config::{self, Agent, Config, ConfigEnvironment, ConfigErrors, Diagnostic};
use crate::console::command::COMMAND_TABLE;
use crate::console::preferences;
use crate::engine::{self, Engine, SealStatus, SegmentReport, SwapMethod};
use crate::error::{self, Error, ErrorKind};
use crate::lint::{Finding, Severity};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckLevel {
    Ok,
    Warn,
    Fail,
}

/// One check of the report.
#[derive(Serialize)]
struct DoctorCheck {
    level: CheckLevel,
    text: String,
    hint: Option<String>,
    /// Error kind of a failure, for the exit code.
    #[serde(skip)]
    kind: Option<ErrorKind>,
}

/// The answer of `doctor`.
#[derive(Default, Serialize)]
struct DoctorReport {
    checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    fn add_check(&mut self, level: CheckLevel, text: impl Into<String>, hint: &str) {
        self.checks.push(DoctorCheck {
            level,
            text: text.into(),
            hint: (!hint.is_empty()).then(|| hint.to_string()),
            kind: (level == CheckLevel::Fail).then_some(ErrorKind::Partial),
        });
    }

    fn add_ok(&mut self, text: impl Into<String>) {
        self.add_check(CheckLevel::Ok, text, "");
    }

    fn add_warning(&mut self, text: impl Into<String>, hint: &str) {
        self.add_check(CheckLevel::Warn, text, hint);
    }

    fn add_failure(&mut self, text: impl Into<String>, hint: &str) {
        self.add_check(CheckLevel::Fail, text, hint);
    }

    /// Adds a host or remote memory that cannot be reached or read.
    fn add_unreachable(&mut self, text: impl Into<String>, hint: &str) {
        self.add_failure(text, hint);
        if let Some(check) = self.checks.last_mut() {
            check.kind = Some(ErrorKind::Host);
        }
    }

    /// Adds an error. Config and integrity errors keep their kind; any other is a plain failure.
    fn add_error(&mut self, error: &Error) {
        // An integrity error needs all of its hints.
        let hints = match error.kind() {
            ErrorKind::Integrity => error.hints(),
            _ => &error.hints()[..error.hints().len().min(1)],
        };
        self.add_failure(error.message(), &hints.join("; "));
        if let Some(check) = self.checks.last_mut() {
            check.kind = Some(match error.kind() {
                kind @ (ErrorKind::Config | ErrorKind::Integrity) => kind,
                _ => ErrorKind::Partial,
            });
        }
    }

    fn add_diagnostic(&mut self, file: &str, it: &Diagnostic) {
        let line = it
            .line
            .map_or(String::new(), |line| format!(" line {line}"));
        let text = format!("{file}{line}: {}", it.message);
        let hint = it.hint.as_deref().unwrap_or("");
        match it.level {
            config::DiagnosticLevel::Warning => self.add_warning(text, hint),
            config::DiagnosticLevel::Error => {
                self.add_error(&Error::new(ErrorKind::Config, text).with_hint(hint))
            }
        }
    }
}

impl Document for DoctorReport {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for check in &self.checks {
            let (role, word) = match check.level {
                CheckLevel::Ok => (OutputRole::Good, "ok    "),
                CheckLevel::Warn => (OutputRole::Warn, "warn  "),
                CheckLevel::Fail => (OutputRole::Bad, "FAIL  "),
            };
            printer.write_line(&[(role, word), (OutputRole::Plain, &check.text)])?;
            if let Some(hint) = check.hint.as_ref().filter(|hint| !hint.is_empty()) {
                printer.write_line(&[
                    (OutputRole::Notice, "      hint: "),
                    (OutputRole::Plain, hint),
                ])?;
            }
        }
        let number = |level| self.checks.iter().filter(|it| it.level == level).count();
        printer.write_plain_line(format!(
            "{} ok, {}, {}",
            number(CheckLevel::Ok),
            format_count(number(CheckLevel::Warn), "warning"),
            format_count(number(CheckLevel::Fail), "failure")
        ))
    }
}

impl CommandContext<'_> {
    pub(super) fn run_doctor(&mut self) -> CommandResult {
        let mut report = DoctorReport::default();
        self.report_program(&mut report);
        check_preferences(&mut report, &self.environment.env);
        if let Some(config) = self.check_config(&mut report) {
            self.check_fleet(&mut report, config);
        }
        self.output.print_document(&report)?;
        let kinds = report.checks.iter().filter_map(|check| check.kind);
        Ok(kinds.reduce(ErrorKind::more_serious))
    }

    fn check_fleet(&self, report: &mut DoctorReport, config: Config) {
        let group = super::resolve_archive_group(&config, self.environment.find_group);
        let engine = &self.new_cli_engine(config, group.clone().unwrap_or_default());
        let sharing_groups = engine.agents_sharing_memories();
        report_config_warnings(report, engine.config(), &sharing_groups);
        check_agent_names(report, engine.config());
        check_directories(report, engine.config());
        let answering_agents = &check_file_systems(report, engine);
        check_agent_directories(report, engine, answering_agents);
        check_hard_links(report, engine, answering_agents);
        write_access::check_write_access(report, engine, answering_agents, self.environment);
        write_access::check_archive_group(report, engine.config(), self.environment);
        check_baselines(report, engine);
        if let Err(ConfigErrors(missing)) = group {
            for diagnostic in &missing {
                report.add_diagnostic("config", diagnostic);
            }
            return;
        }
        for (agent, error) in engine.misplaced_memories() {
            report.add_error(&error.with_context(&agent.name));
        }
        for names in sharing_groups {
            report.add_failure(
                format!("{} share one memory file", names.join(" and ")),
                "give each a file of its own; none of them is reset until then",
            );
        }
        check_archive(report, engine, answering_agents);
        let uid = self.environment.env.uid;
        kernel_probe::check_kernel(report, engine, answering_agents, uid);
        hosts::check_hosts(report, engine, uid);
    }

    fn report_program(&self, report: &mut DoctorReport) {
        let kernel = rustix::system::uname();
        report.add_ok(format!(
            "memory-shepherd {} on {} {} {}, as {} (uid {})",
            env!("MEMORY_SHEPHERD_VERSION"),
            kernel.sysname().to_string_lossy(),
            kernel.release().to_string_lossy(),
            kernel.machine().to_string_lossy(),
            self.environment.user,
            self.environment.env.uid
        ));
    }

    /// Loads the config, and reports its mistakes.
    fn check_config(&mut self, report: &mut DoctorReport) -> Option<Config> {
        let located = match config::locate(self.config_flag.as_deref(), &self.environment.env) {
            Ok(located) => located,
            Err(error) => {
                report.add_error(&error);
                return None;
            }
        };
        for note in &located.notes {
            report.add_warning(note, "");
        }
        let path = located.path.display();
        match located.load(&self.environment.env) {
            Ok(config) => {
                report.add_ok(format!(
                    "config {path}, {}",
                    format_count(config.agents.len(), "agent")
                ));
                Some(config)
            }
            Err(ConfigErrors(list)) => {
                let message = format!("config {path} has errors; nothing else is checked");
                report.add_error(&Error::new(ErrorKind::Config, message));
                for diagnostic in &list {
                    report.add_diagnostic("config", diagnostic);
                }
                None
            }
        }
    }
}

/// Reports the warnings about a config, except for shared memories, which are failures.
fn report_config_warnings(report: &mut DoctorReport, config: &Config, sharing: &[Vec<&str>]) {
    let is_of_sharing = |warning: &&Diagnostic| {
        sharing.iter().any(|names| {
            let mut others = names.iter().skip(1);
            others.any(|name| warning.message == config::same_memory_message(names[0], name))
        })
    };
    for warning in config.warnings.iter().filter(|it| !is_of_sharing(it)) {
        report.add_diagnostic("config", warning);
    }
}

/// Checks the user's own keys, columns and filters.
fn check_preferences(report: &mut DoctorReport, env: &ConfigEnvironment) {
    let Some(path) = preferences::default_path(env) else {
        return;
    };
    let (preferences, problems) = preferences::load(&path);
    for problem in &problems {
        report.add_diagnostic(preferences::PREFERENCES_FILE_NAME, problem);
    }
    if problems.is_empty() && path.exists() {
        let keymap = &preferences.keymap;
        let changed = COMMAND_TABLE
            .iter()
            .filter(|spec| keymap.is_overridden(spec.command));
        let changed = format_count(changed.count(), "command");
        let path = path.display();
        report.add_ok(format!("preferences {path}, {changed} with changed keys"));
    }
}

/// Reports agents whose names are commands.
fn check_agent_names(report: &mut DoctorReport, config: &Config) {
    let cli = Cli::command();
    let verbs: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    let is_reserved = |name: &str| verbs.contains(&name) || name == "all" || name == "help";
    let mut has_finding = false;
    for agent in config
        .agents
        .iter()
        .filter(|agent| is_reserved(&agent.name))
    {
        has_finding = true;
        report.add_warning(
            format!(
                "agent {0} has the name of a command: `memory-shepherd {0}` runs the command",
                agent.name
            ),
            &format!(
                "use `{}` to reset the agent",
                config
                    .invocation
                    .command_line(&format!("reset {}", agent.name))
            ),
        );
    }
    if !has_finding {
        report.add_ok("no agent has the name of a command");
    }
}

/// Formats owner and mode: "uid 1000, mode 0755".
fn describe_owner(meta: &fs::Metadata) -> String {
    format!(
        "uid {}, mode {:04o}",
        meta.uid(),
        meta.permissions().mode() & 0o7777
    )
}

fn check_directories(report: &mut DoctorReport, config: &Config) {
    let general = &config.general;
    for (key, directory) in [
        ("baseline_dir", &general.baseline_dir),
        ("archive_dir", &general.archive_dir),
    ] {
        let shown = directory.display();
        match fs::metadata(directory) {
            Ok(meta) if meta.is_dir() => {
                report.add_ok(format!("{key} {shown}, {}", describe_owner(&meta)));
                report_symlink(report, key, directory);
            }
            Ok(_) => report.add_failure(format!("{key} {shown} is not a directory"), ""),
            Err(error) if error.kind() == io::ErrorKind::NotFound && key == "archive_dir" => {
                if !report_symlink(report, key, directory) {
                    report.add_ok(format!(
                        "{key} {shown} does not exist yet; the first reset creates it"
                    ));
                }
            }
            Err(error) => report.add_error(&Error::from_io("stat", directory, &error)),
        }
    }
    let archive = &general.archive_dir;
    // A reset creates missing directories in the last existing one.
    let existing = archive.ancestors().find(|directory| directory.exists());
    if let Some((why, hint)) = existing
        .filter(|there| there.is_dir())
        .and_then(|there| write_obstacle(there, "run as the user that owns it"))
    {
        report.add_failure(format!("{why}; no agent can be reset"), &hint);
    }
    if let Ok(meta) = fs::metadata(archive)
        && general.archive_group.is_none()
        && meta.mode() & 0o077 != 0
    {
        report.add_warning(
            format!("others can read {}", archive.display()),
            &format!("chmod 700 {}", archive.display()),
        );
    }
}

/// Returns why nothing can be written in a directory, with a hint. `access_hint` is the hint for
/// missing permission.
fn write_obstacle(directory: &Path, access_hint: &str) -> Option<(String, String)> {
    let errno = rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).err()?;
    let directory = directory.display();
    Some(match errno {
        Errno::ROFS => (
            format!("{directory} is on a read-only file system"),
            "remount it for writing; the kernel may have made it read-only after an error: \
             see dmesg"
                .to_string(),
        ),
        // access(2) returns EPERM for an immutable directory.
        Errno::PERM => (
            format!("{directory} is immutable"),
            format!("chattr -i {directory}"),
        ),
        Errno::ACCESS => (
            format!("cannot write {directory}: permission denied"),
            access_hint.to_string(),
        ),
        errno => {
            let cause = error::describe_io_error(&errno.into());
            (format!("cannot write {directory}: {cause}"), String::new())
        }
    })
}

/// Reports a symlink in a configured path, since the engine follows none. Returns whether there is
/// one.
fn report_symlink(report: &mut DoctorReport, what: &str, path: &Path) -> bool {
    let Some(real) = engine::resolve_first_symlink(path) else {
        return false;
    };
    report.add_failure(
        format!("{what} {} is reached through a symlink", path.display()),
        &format!("write its real path into the config: {}", real.display()),
    );
    true
}

/// Checks that the file system of each local memory answers. Returns the agents without those on
/// silent file systems, so that no other check touches these.
fn check_file_systems<'e>(report: &mut DoctorReport, engine: &'e Engine) -> Vec<&'e Agent> {
    let silent = engine.silent_file_systems();
    for (error, agents) in &silent {
        let names = agents.join(", ");
        let message = format!("{error}; cannot read or reset {names}");
        report.add_unreachable(message, error.hints().first().map_or("", |it| it));
    }
    let is_silent = |name: &str| silent.iter().any(|(_, agents)| agents.contains(&name));
    let agents = engine.config().agents.iter();
    agents.filter(|agent| !is_silent(&agent.name)).collect()
}

fn check_agent_directories(report: &mut DoctorReport, engine: &Engine, agents: &[&Agent]) {
    let mut ok_count = 0;
    let mut in_place_count = 0;
    // Hosts have checks of their own.
    for agent in agents.iter().filter(|it| it.location.host().is_none()) {
        let name = agent.name.as_str();
        let memory = agent.location.memory();
        let directory = memory.parent().unwrap_or(memory);
        let degradation = engine.replacement_degradation(agent);
        in_place_count += usize::from(matches!(degradation, Ok(Some(_))));
        // The target of a symlink is not examined: an agent may have created the link.
        if report_symlink(report, &format!("the directory of {name},"), directory) {
            continue;
        }
        match fs::metadata(directory) {
            Ok(meta) if meta.is_dir() => {
                if let Err(error) = degradation {
                    report.add_error(&error.with_context(name));
                } else if let Some((why, hint)) =
                    write_obstacle(directory, "run as root, or as the user of the agent")
                {
                    report.add_failure(format!("{why}; {name} cannot be reset"), &hint);
                } else {
                    ok_count += 1;
                }
            }
            Ok(_) => report.add_failure(
                format!(
                    "the directory of {name}, {}, is not a directory",
                    directory.display()
                ),
                "",
            ),
            Err(error) => report.add_error(
                &Error::from_io("stat", directory, &error)
                    .with_context(format!("the directory of {name}")),
            ),
        }
        // For the directories that the config names, this is a config error.
        if engine.config().path.starts_with(directory) {
            report.add_failure(
                format!(
                    "the config is inside the directory of {name}, {}",
                    directory.display()
                ),
                "move it to a directory that no agent writes to",
            );
        }
    }
    if ok_count > 0 {
        report.add_ok(format!(
            "directories of {} exist, are writable and contain no symlinks",
            format_count(ok_count, "agent")
        ));
    }
    if in_place_count > 0 {
        report.add_warning(
            format!(
                "memories of {} are mount points and are written in place",
                format_count(in_place_count, "agent")
            ),
            "a crash during the write leaves a memory half written until the next run; mount \
             the directories instead",
        );
    }
}

fn check_hard_links(report: &mut DoctorReport, engine: &Engine, agents: &[&Agent]) {
    let links = engine.hard_links(agents);
    for (baseline, agents) in links.to_baselines {
        report.add_failure(
            format!(
                "the memory of {} is a hard link to the baseline {}: writes to the memory change \
                 the baseline",
                agents.join(" and "),
                baseline.display()
            ),
            "review the baseline, then give it a file of its own: cp it to another name, and mv \
             the copy back",
        );
    }
    for agents in links.to_each_other {
        report.add_warning(
            format!(
                "the memories of {} are hard links to one file: each agent reads what the others \
                 write",
                agents.join(" and ")
            ),
            "a reset gives each a file of its own",
        );
    }
}

fn check_baselines(report: &mut DoctorReport, engine: &Engine) {
    match engine.seal_status() {
        Ok(SealStatus::Ignored) => report.add_warning(
            "require_seal=never: a tampered baseline is not detected",
            "remove that line from the config, and seal the baselines",
        ),
        Ok(SealStatus::Applied(path)) => report.add_ok(format!("seal {}", path.display())),
        Ok(SealStatus::Missing { hint }) => {
            report.add_warning("no seal: a tampered baseline is not detected", &hint);
        }
        Err(error) => report.add_error(&error),
    }
    let refused = engine.refused_baselines();
    let ok_count = engine.config().agents.len() - refused.len();
    for (agent, error) in refused {
        report.add_error(&error.with_context(&agent.name));
    }
    for agent in engine.agents_without_separator() {
        let lacks = describe_missing_separator(agent);
        report.add_warning(
            format!("{}: the baseline has {lacks}", agent.name),
            "add the separator line below the rules",
        );
    }
    if ok_count > 0 {
        report.add_ok(format!(
            "baselines of {} pass their checks",
            format_count(ok_count, "agent")
        ));
    }
    report_lint(report, engine);
}

/// Reports errors and warnings of the lint in baselines that refuse no reset; the others are reported
/// already.
fn report_lint(report: &mut DoctorReport, engine: &Engine) {
    let found = match engine.lint_all_baselines() {
        Ok(found) => found,
        Err(error) => return report.add_error(&error),
    };
    let is_reported =
        |it: &&Finding| it.severity >= Severity::Warning && !it.rule_row().blocks_resets;
    for finding in found.iter().filter(is_reported) {
        let path = &finding.path;
        report.add_warning(
            format!("{path}: {}", finding.summary()),
            finding.rule_row().help,
        );
    }
}

fn check_archive(report: &mut DoctorReport, engine: &Engine, answering_agents: &[&Agent]) {
    for error in engine.refused_archive_directories(answering_agents) {
        report.add_error(&error);
    }
    let methods = check_ledger(report, engine);
    check_clock(report, engine);
    // On a host this is always the case.
    let all_agents = engine.config().agents.iter();
    let local_agents = all_agents.filter(|agent| agent.location.host().is_none());
    let was_absent = |agent: &&Agent| methods.get(&agent.name) == Some(&SwapMethod::TakeAway);
    let number = local_agents.filter(was_absent).count();
    if number > 0 {
        report.add_warning(
            format!(
                "memories of {} were absent for a moment during the last reset",
                format_count(number, "agent")
            ),
            "their file system cannot exchange two files; nothing is lost",
        );
    }
    runs::check_runs(report, engine);
    check_journals(report, engine);
    for error in engine.unreadable_entry_directories() {
        report.add_error(&error.with_context("entries"));
    }
    check_pins(report, engine);
}

/// Checks the ledger. Returns how the memory of each agent was replaced in its last reset.
fn check_ledger(report: &mut DoctorReport, engine: &Engine) -> HashMap<String, SwapMethod> {
    let mut methods: HashMap<String, SwapMethod> = HashMap::new();
    let read = engine.records(None, None).and_then(|range| {
        range.for_each(&mut |record| {
            if let Some(method) = record.event.method {
                methods.insert(record.event.agent.clone(), method);
            }
            Ok(())
        })?;
        Ok(range.head())
    });
    let logged = engine.last_logged_head().unwrap_or_else(|error| {
        report.add_error(&error);
        None
    });
    let files = engine.check_ledger_files().unwrap_or_else(|error| {
        report.add_error(&error);
        SegmentReport::default()
    });
    for error in files.all_errors() {
        report.add_error(error);
    }
    match read {
        // It also explains a head that differs from the logged one.
        Ok(_) if files.active_error.is_some() => {}
        Ok((0, _)) if logged.is_none() => report.add_ok("the ledger has no records yet"),
        Ok((seq, head)) => match logged {
            Some((logged, _)) if logged > seq => report.add_failure(
                format!(
                    "the ledger ends with record {seq}, but reset.log has the head of record \
                     {logged}: the ledger was truncated"
                ),
                &format!("see `{}`", engine.command_line("verify")),
            ),
            _ => report.add_ok(format!("the ledger is intact; its head is {seq}:{head}")),
        },
        Err(error) => {
            report.add_error(&error);
            methods.clear();
        }
    }
    methods
}

/// Reports lines of the pins file that retention cannot apply.
fn check_pins(report: &mut DoctorReport, engine: &Engine) {
    match engine.pin_faults() {
        Ok(faults) => {
            for fault in faults {
                let scope = match &fault.directory {
                    Some(directory) => format!("in {}", directory.display()),
                    None => "in the whole archive".to_string(),
                };
                report.add_warning(
                    format!("{fault}; retention deletes nothing {scope}"),
                    "correct the line, or remove it",
                );
            }
        }
        Err(error) => report.add_error(&error),
    }
}

/// Reports a record with a future time: the clock is wrong, or was wrong during the run.
fn check_clock(report: &mut DoctorReport, engine: &Engine) {
    if let Ok(Some((seq, time))) = engine.future_record() {
        let ahead = (time - engine.clock().now()).num_hours();
        let ahead = match ahead / 24 {
            0 => format_count(ahead as usize, "hour"),
            days => format_count(days as usize, "day"),
        };
        report.add_warning(
            format!(
                "record {seq} of the ledger has the time {}, {ahead} ahead of the clock",
                time.format("%Y-%m-%d %H:%M:%S")
            ),
            "compare `date` with another clock, and set it (timedatectl set-ntp true). If it \
             is right, that of the run was wrong: leave the record, retention does not go by \
             it; entries with such dates in their names stay until then",
        );
    }
}

/// Reports journals of interrupted runs, or of runs in progress.
fn check_journals(report: &mut DoctorReport, engine: &Engine) {
    let journals = match engine.journal_files() {
        Ok(journals) => journals,
        Err(error) => return report.add_error(&error),
    };
    if journals.is_empty() {
        report.add_ok("no transaction records of interrupted runs");
    }
    let unclaimed = engine.unclaimed_journals().unwrap_or_default();
    for (agent, path) in journals {
        let shown = path.display();
        if unclaimed.contains(&path) {
            report.add_failure(
                format!(
                    "{shown} is the transaction record of an agent that is not configured; its \
                     run is not recovered"
                ),
                engine::UNCLAIMED_JOURNAL_HINT,
            );
        } else {
            report.add_warning(
                format!("a run of {agent} is in progress or was interrupted: {shown}"),
                "if it was interrupted, the next reset of the agent recovers it",
            );
        }
    }
}
