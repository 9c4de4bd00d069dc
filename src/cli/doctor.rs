//! `doctor`: checks one by one what resets rely on. Prints good results too, for bug reports.
//!
//! Changes nothing: it tries operations on unnamed files, or in a directory of its own inside the
//! archive that it removes at once.

mod hosts;
mod kernel_probe;
mod write_access;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::CommandFactory;
use crossbeam_channel::bounded;
use rustix::fs::{Access, FileType};
use rustix::io::Errno;
use serde::Serialize;

use super::output::{Document, OutputRole, Printer, format_count};
use super::{Cli, CommandContext, CommandResult, Environment};
use crate::archive::PROGRAM_DIRECTORY_NAME;
use crate::baseline::seal::{self, BaselineSeal};
use crate::baseline::{BaselineCache, BaselineRefusal};
use crate::clock;
use crate::config::{
    self, Agent, Config, ConfigEnvironment, ConfigErrors, Diagnostic, MemoryLocation,
    SealRequirement,
};
use crate::console::command::COMMAND_TABLE;
use crate::console::preferences;
use crate::durable;
use crate::engine::{self, Engine};
use crate::error::{self, Error, ErrorKind};
use crate::file_systems::{FileSystem, FileSystems};
use crate::transport::local::LocalTransport;
use crate::transport::{SwapForecast, SwapMethod, Transport};

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
            check_agent_names(&mut report, &config);
            check_directories(&mut report, &config);
            let answering_config = check_file_systems(&mut report, &config);
            check_agent_directories(
                &mut report,
                &answering_config,
                &LocalTransport::new(Arc::new(clock::SystemClock)),
            );
            check_hard_links(&mut report, &answering_config);
            write_access::check_write_access(&mut report, &answering_config, self.environment);
            write_access::check_archive_group(&mut report, &config, self.environment);
            check_baselines(&mut report, &config);
            match self.build_engine(config) {
                Ok(engine) => {
                    for (agent, error) in engine.misplaced_memories() {
                        report.add_error(&error.with_context(&agent.name));
                    }
                    for names in engine.agents_sharing_memories() {
                        report.add_failure(
                            format!("{} share one memory file", names.join(" and ")),
                            "give each a file of its own; none of them is reset until then",
                        );
                    }
                    check_archive(
                        &mut report,
                        &engine,
                        &answering_config.agents,
                        self.environment,
                    );
                    hosts::check_hosts(&mut report, &engine, self.environment.env.uid);
                }
                Err(error) => report.add_error(&error),
            }
        }
        self.output.print_document(&report)?;
        let kinds = report.checks.iter().filter_map(|check| check.kind);
        Ok(kinds.reduce(ErrorKind::more_serious))
    }

    fn report_program(&self, report: &mut DoctorReport) {
        let kernel = rustix::system::uname();
        report.add_ok(format!(
            "memory-shepherd {} on {} {} {}, as {} (uid {})",
            env!("CARGO_PKG_VERSION"),
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
                for warning in &config.warnings {
                    report.add_diagnostic("config", warning);
                }
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
    let Some(real) = durable::resolve_first_symlink(path) else {
        return false;
    };
    report.add_failure(
        format!("{what} {} is reached through a symlink", path.display()),
        &format!("write its real path into the config: {}", real.display()),
    );
    true
}

fn local_memory(agent: &Agent) -> Option<&Path> {
    match &agent.location {
        MemoryLocation::Local { memory, .. } => Some(memory),
        MemoryLocation::Remote { .. } => None,
    }
}

/// Checks that the file system of each local memory answers. Returns the config without the agents
/// on silent file systems, so that no other check touches them.
fn check_file_systems(report: &mut DoctorReport, config: &Config) -> Config {
    let general = &config.general;
    let timeout = Duration::from_secs(general.local_timeout.into());
    let file_systems =
        FileSystems::new(&general.archive_dir, timeout, Arc::new(clock::SystemClock));
    let mut groups: BTreeMap<String, (Arc<FileSystem>, &Path, Vec<&str>)> = BTreeMap::new();
    for agent in &config.agents {
        if let Some(memory) = local_memory(agent)
            && let Some(system) = file_systems.find_untrusted(memory)
        {
            let group = groups
                .entry(system.display_mount_points())
                .or_insert_with(|| (system, memory, Vec::new()));
            group.2.push(&agent.name);
        }
    }
    // All probes start before the first is waited for.
    let pending: Vec<_> = groups
        .into_values()
        .map(|(system, memory, agents)| {
            let (reply, answer) = bounded(1);
            let path = memory.to_path_buf();
            let probe = move || {
                let _ = reply.send(durable::stat_no_symlinks(&path).is_ok());
            };
            (system.start_call(probe).map(|call| (call, answer)), agents)
        })
        .collect();
    let unanswered: Vec<(Error, Vec<&str>)> = pending
        .into_iter()
        .filter_map(|(call, agents)| {
            let answer = call.and_then(|(call, answer)| call.receive(&answer));
            answer.err().map(|error| (error, agents))
        })
        .collect();
    for (error, agents) in &unanswered {
        let names = agents.join(", ");
        let message = format!("{error}; cannot read or reset {names}");
        report.add_unreachable(message, error.hints().first().map_or("", |it| it));
    }
    let silent: Vec<&str> = unanswered
        .into_iter()
        .flat_map(|(_, agents)| agents)
        .collect();
    config.with_agents(|agent| !silent.contains(&agent.name.as_str()))
}

fn check_agent_directories(report: &mut DoctorReport, config: &Config, transport: &dyn Transport) {
    let mut ok_count = 0;
    let mut in_place_count = 0;
    for agent in &config.agents {
        let name = agent.name.as_str();
        // Hosts have checks of their own.
        let Some(memory) = local_memory(agent) else {
            continue;
        };
        let directory = memory.parent().unwrap_or(memory);
        let opened = transport.open_directory(memory);
        let forecast = opened.map_or(SwapForecast::Clear, |directory| directory.forecast_swap());
        let degradation = engine::in_place_degradation(agent, &forecast);
        in_place_count += usize::from(matches!(degradation, Ok(Some(_))));
        let refused = match forecast {
            SwapForecast::Refused(error) => Some(error),
            _ => degradation.err(),
        };
        // The target of a symlink is not examined: an agent may have created the link.
        if report_symlink(report, &format!("the directory of {name},"), directory) {
            continue;
        }
        match fs::metadata(directory) {
            Ok(meta) if meta.is_dir() => {
                if let Some(error) = refused {
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
        if config.path.starts_with(directory) {
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

/// Reports memories that are hard links to one file. A reset gives each a file of its own, so none
/// is refused; until then each agent writes into the memory of the other, or into its baseline.
fn check_hard_links(report: &mut DoctorReport, config: &Config) {
    let hard_link_id = |path: &Path| {
        let stat = durable::stat_no_symlinks(path).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        (is_file && stat.st_nlink > 1).then_some((stat.st_dev, stat.st_ino))
    };
    let mut memories: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
    for agent in &config.agents {
        if let Some(id) = local_memory(agent).and_then(hard_link_id) {
            memories.entry(id).or_default().push(&agent.name);
        }
    }
    let baselines = config.agents.iter().map(|agent| &agent.baseline);
    for baseline in baselines.collect::<BTreeSet<_>>() {
        let path = config.general.baseline_dir.join(baseline);
        if let Some(agents) = hard_link_id(&path).and_then(|id| memories.get(&id)) {
            report.add_failure(
                format!(
                    "the memory of {} is a hard link to the baseline {}: writes to the memory change \
                     the baseline",
                    agents.join(" and "),
                    path.display()
                ),
                "review the baseline, then give it a file of its own: cp it to another name, and mv \
                 the copy back",
            );
        }
    }
    for agents in memories.into_values().filter(|agents| agents.len() > 1) {
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

fn check_baselines(report: &mut DoctorReport, config: &Config) {
    let general = &config.general;
    let seal_path = general.baseline_dir.join(seal::MANIFEST_FILE_NAME);
    match (
        general.require_seal,
        BaselineSeal::read(&general.baseline_dir),
    ) {
        (SealRequirement::Never, _) => report.add_warning(
            "require_seal=never: a tampered baseline is not detected",
            "remove that line from the config, and seal the baselines",
        ),
        (_, Ok(Some(_))) => report.add_ok(format!("seal {}", seal_path.display())),
        (_, Ok(None)) => report.add_warning(
            "no seal: a tampered baseline is not detected",
            &seal::seal_hint(general),
        ),
        (_, Err(error)) => report.add_error(&error),
    }
    let mut ok_count = 0;
    let mut cache = BaselineCache::new(config);
    for agent in &config.agents {
        match cache.load(agent) {
            Ok(_) => ok_count += 1,
            Err(BaselineRefusal::Tampered(error) | BaselineRefusal::Unusable(error)) => {
                report.add_error(&error.with_context(&agent.name));
            }
        }
    }
    if ok_count > 0 {
        report.add_ok(format!(
            "baselines of {} pass their checks",
            format_count(ok_count, "agent")
        ));
    }
}

fn check_archive(
    report: &mut DoctorReport,
    engine: &Engine,
    agents: &[Agent],
    world: &Environment,
) {
    let own = Path::new(PROGRAM_DIRECTORY_NAME);
    let directories = ["locks", "tx", "baselines"].map(|name| own.join(name));
    let entries = agents
        .iter()
        .map(|agent| PathBuf::from(&agent.archive_subdir));
    let own_and_root = [PathBuf::new(), own.to_path_buf()]
        .into_iter()
        .chain(directories);
    for directory in own_and_root.chain(entries).collect::<BTreeSet<_>>() {
        if let Err(error) = engine.archive().check_owner(&directory) {
            report.add_error(&error);
        }
    }
    // How the memory of each agent was replaced in its last reset.
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
    match read {
        Ok((0, _)) if engine.last_logged_head().is_none() => {
            report.add_ok("the ledger has no records yet");
        }
        Ok((seq, head)) => match engine.last_logged_head() {
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
    check_clock(report, engine);
    // On a host this is always the case.
    let all_agents = engine.config().agents.iter();
    let local_agents = all_agents.filter(|agent| local_memory(agent).is_some());
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
    check_journals(report, engine);
    check_entry_directories(report, engine);
    check_pins(report, engine);
    kernel_probe::check_kernel(report, engine, agents, world);
}

/// Reports directories of entries that cannot be read: no reset of their agents can archive
/// anything.
fn check_entry_directories(report: &mut DoctorReport, engine: &Engine) {
    let agents = engine.config().agents.iter();
    let directories: BTreeSet<&str> = agents.map(|it| it.archive_subdir.as_str()).collect();
    for directory in directories {
        if let Err(error) = engine.archive().list_entries(directory.as_ref()) {
            report.add_error(&error.with_context("entries"));
        }
    }
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
    let directory = engine.archive().program_path("tx");
    let list = match fs::read_dir(&directory) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return report.add_ok("no journals of interrupted runs");
        }
        Err(error) => return report.add_error(&Error::from_io("list", &directory, &error)),
    };
    let unclaimed = engine.unclaimed_journals().unwrap_or_default();
    let mut has_finding = false;
    for entry in list.flatten() {
        let path = entry.path();
        if unclaimed.contains(&path) {
            has_finding = true;
            report.add_failure(
                format!(
                    "{} is the journal of an agent that is not configured; its run is not recovered",
                    path.display()
                ),
                engine::UNCLAIMED_JOURNAL_HINT,
            );
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        has_finding = true;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let agent = name.split('.').next().unwrap_or_default();
        report.add_warning(
            format!(
                "a run of {agent} is in progress or was interrupted: {}",
                path.display()
            ),
            "if it was interrupted, the next reset of the agent recovers it",
        );
    }
    if !has_finding {
        report.add_ok("no journals of interrupted runs");
    }
}
