//! `doctor`: what the engine's promises rest on, looked at one by one. Made for
//! pasting into a bug report, so it says what is well, too.
//!
//! It changes nothing: files that it tries things on have no name, or stand in
//! a folder of their own inside the archive that is removed at once.

mod hosts;
mod reach;
mod trial;

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

use super::output::{Document, OutputRole, Printer, count};
use super::{Cli, CommandContext, CommandResult, Environment};
use crate::archive::OWN;
use crate::baseline::seal::{self, Seal};
use crate::baseline::{BaselineCache, Refusal};
use crate::clock;
use crate::config::{self, Agent, Config, Diagnostic, Env, MemoryLocation, Problems, RequireSeal};
use crate::console::command::TABLE;
use crate::console::preferences;
use crate::durable;
use crate::engine::{self, Engine};
use crate::error::{self, Error, Kind};
use crate::file_systems::{FileSystem, FileSystems};
use crate::transport::local::Local;
use crate::transport::{Method, SwapForecast, Transport};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckLevel {
    Ok,
    Warn,
    Fail,
}

/// One line of the report.
#[derive(Serialize)]
struct DoctorCheck {
    level: CheckLevel,
    text: String,
    hint: Option<String>,
    /// What a failure means for the exit code.
    #[serde(skip)]
    kind: Option<Kind>,
}

/// What `doctor` answers.
#[derive(Default, Serialize)]
struct DoctorReport {
    checks: Vec<DoctorCheck>,
}

impl DoctorReport {
    fn add(&mut self, level: CheckLevel, text: impl Into<String>, hint: &str) {
        self.checks.push(DoctorCheck {
            level,
            text: text.into(),
            hint: (!hint.is_empty()).then(|| hint.to_string()),
            kind: (level == CheckLevel::Fail).then_some(Kind::Partial),
        });
    }

    fn ok(&mut self, text: impl Into<String>) {
        self.add(CheckLevel::Ok, text, "");
    }

    fn warn(&mut self, text: impl Into<String>, hint: &str) {
        self.add(CheckLevel::Warn, text, hint);
    }

    fn fail(&mut self, text: impl Into<String>, hint: &str) {
        self.add(CheckLevel::Fail, text, hint);
    }

    /// A host, or a memory on one, that cannot be reached or read.
    fn unread(&mut self, text: impl Into<String>, hint: &str) {
        self.fail(text, hint);
        if let Some(check) = self.checks.last_mut() {
            check.kind = Some(Kind::Host);
        }
    }

    /// An error of the config or of integrity keeps its kind; any other is a
    /// plain failure.
    fn error(&mut self, error: &Error) {
        // What to do about a breach of integrity is not to be told by half.
        let told = match error.kind() {
            Kind::Integrity => error.hints(),
            _ => &error.hints()[..error.hints().len().min(1)],
        };
        self.fail(error.message(), &told.join("; "));
        if let Some(check) = self.checks.last_mut() {
            check.kind = Some(match error.kind() {
                kind @ (Kind::Config | Kind::Integrity) => kind,
                _ => Kind::Partial,
            });
        }
    }

    fn diagnostic(&mut self, file: &str, it: &Diagnostic) {
        let line = it
            .line
            .map_or(String::new(), |line| format!(" line {line}"));
        let text = format!("{file}{line}: {}", it.message);
        let hint = it.hint.as_deref().unwrap_or("");
        match it.level {
            config::DiagnosticLevel::Warning => self.warn(text, hint),
            config::DiagnosticLevel::Error => {
                self.error(&Error::new(Kind::Config, text).hint(hint))
            }
        }
    }
}

impl Document for DoctorReport {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        for check in &self.checks {
            let (role, word) = match check.level {
                CheckLevel::Ok => (OutputRole::Good, "ok    "),
                CheckLevel::Warn => (OutputRole::Warn, "warn  "),
                CheckLevel::Fail => (OutputRole::Bad, "FAIL  "),
            };
            page.line(&[(role, word), (OutputRole::Plain, &check.text)])?;
            if let Some(hint) = check.hint.as_ref().filter(|hint| !hint.is_empty()) {
                page.line(&[
                    (OutputRole::Ours, "      hint: "),
                    (OutputRole::Plain, hint),
                ])?;
            }
        }
        let number = |level| self.checks.iter().filter(|it| it.level == level).count();
        page.plain(format!(
            "{} ok, {}, {}",
            number(CheckLevel::Ok),
            count(number(CheckLevel::Warn), "warning"),
            count(number(CheckLevel::Fail), "failure")
        ))
    }
}

impl CommandContext<'_> {
    pub(super) fn doctor(&mut self) -> CommandResult {
        let mut report = DoctorReport::default();
        self.about_us(&mut report);
        about_preferences(&mut report, &self.world.env);
        if let Some(config) = self.about_the_config(&mut report) {
            about_names(&mut report, &config);
            about_folders(&mut report, &config);
            let answering = about_file_systems(&mut report, &config);
            about_agents(
                &mut report,
                &answering,
                &Local::new(Arc::new(clock::System)),
            );
            about_hard_links(&mut report, &answering);
            reach::about_reach(&mut report, &answering, self.world);
            reach::about_the_group(&mut report, &config, self.world);
            about_baselines(&mut report, &config);
            match self.engine(config) {
                Ok(engine) => {
                    for (agent, error) in engine.misplaced_memories() {
                        report.error(&error.context(&agent.name));
                    }
                    for names in engine.shared_memories() {
                        report.fail(
                            format!("{} share one memory file", names.join(" and ")),
                            "each needs a file of its own; until then none of them is reset",
                        );
                    }
                    about_the_archive(&mut report, &engine, &answering.agents, self.world);
                    hosts::about_hosts(&mut report, &engine, self.world.env.uid);
                }
                Err(error) => report.error(&error),
            }
        }
        self.out.document(&report)?;
        let kinds = report.checks.iter().filter_map(|check| check.kind);
        Ok(kinds.reduce(Kind::worst))
    }

    fn about_us(&self, report: &mut DoctorReport) {
        let kernel = rustix::system::uname();
        report.ok(format!(
            "memory-shepherd {} on {} {} {}, as {} (uid {})",
            env!("CARGO_PKG_VERSION"),
            kernel.sysname().to_string_lossy(),
            kernel.release().to_string_lossy(),
            kernel.machine().to_string_lossy(),
            self.world.user,
            self.world.env.uid
        ));
    }

    /// The config, if it can be used.
    fn about_the_config(&mut self, report: &mut DoctorReport) -> Option<Config> {
        let located = match config::locate(self.flag.as_deref(), &self.world.env) {
            Ok(located) => located,
            Err(error) => {
                report.error(&error);
                return None;
            }
        };
        for note in &located.notes {
            report.warn(note, "");
        }
        let path = located.path.display();
        match located.load(&self.world.env) {
            Ok(config) => {
                report.ok(format!(
                    "config {path}, {}",
                    count(config.agents.len(), "agent")
                ));
                for warning in &config.warnings {
                    report.diagnostic("config", warning);
                }
                Some(config)
            }
            Err(Problems(list)) => {
                let message = format!("config {path} has errors, so nothing else is checked");
                report.error(&Error::new(Kind::Config, message));
                for diagnostic in &list {
                    report.diagnostic("config", diagnostic);
                }
                None
            }
        }
    }
}

/// The operator's own keys, columns and filters.
fn about_preferences(report: &mut DoctorReport, env: &Env) {
    let Some(path) = preferences::path(env) else {
        return;
    };
    let (preferences, problems) = preferences::load(&path);
    for problem in &problems {
        report.diagnostic(preferences::PREFERENCES_FILE_NAME, problem);
    }
    if problems.is_empty() && path.exists() {
        let keymap = &preferences.keymap;
        let changed = TABLE.iter().filter(|spec| keymap.is_changed(spec.command));
        let changed = count(changed.count(), "command");
        let path = path.display();
        report.ok(format!("preferences {path}, other keys for {changed}"));
    }
}

/// Agents whose names mean something else on the command line.
fn about_names(report: &mut DoctorReport, config: &Config) {
    let cli = Cli::command();
    let verbs: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    let taken = |name: &str| verbs.contains(&name) || name == "all" || name == "help";
    let mut any = false;
    for agent in config.agents.iter().filter(|agent| taken(&agent.name)) {
        any = true;
        report.warn(
            format!(
                "the agent {0} has the name of a command: `memory-shepherd {0}` is the command",
                agent.name
            ),
            &format!(
                "`{}` always means the agent",
                config.invocation.line(&format!("reset {}", agent.name))
            ),
        );
    }
    if !any {
        report.ok("no agent has the name of a command");
    }
}

/// "uid 1000, mode 0755"
fn owner(meta: &fs::Metadata) -> String {
    format!(
        "uid {}, mode {:04o}",
        meta.uid(),
        meta.permissions().mode() & 0o7777
    )
}

fn about_folders(report: &mut DoctorReport, config: &Config) {
    let general = &config.general;
    for (key, folder) in [
        ("baseline_dir", &general.baseline_dir),
        ("archive_dir", &general.archive_dir),
    ] {
        let shown = folder.display();
        match fs::metadata(folder) {
            Ok(meta) if meta.is_dir() => {
                report.ok(format!("{key} {shown}, {}", owner(&meta)));
                link(report, key, folder);
            }
            Ok(_) => report.fail(format!("{key} {shown} is not a directory"), ""),
            Err(error) if error.kind() == io::ErrorKind::NotFound && key == "archive_dir" => {
                if !link(report, key, folder) {
                    report.ok(format!("{key} {shown} is made by the first reset"));
                }
            }
            Err(error) => report.error(&Error::io("look at", folder, &error)),
        }
    }
    let archive = &general.archive_dir;
    // What is missing of it is made in the last folder that is there.
    let there = archive.ancestors().find(|folder| folder.exists());
    if let Some((why, hint)) = there
        .filter(|there| there.is_dir())
        .and_then(|there| unwritable(there, "run this as the user that owns it"))
    {
        report.fail(format!("{why}, so nothing can be reset"), &hint);
    }
    if let Ok(meta) = fs::metadata(archive)
        && general.archive_group.is_none()
        && meta.mode() & 0o077 != 0
    {
        report.warn(
            format!("others can look into {}", archive.display()),
            &format!("chmod 700 {}", archive.display()),
        );
    }
}

/// Why nothing can be written in a folder, and what to do about it; `rights` is
/// that where we lack the right.
fn unwritable(folder: &Path, rights: &str) -> Option<(String, String)> {
    let errno = rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).err()?;
    let folder = folder.display();
    Some(match errno {
        Errno::ROFS => (
            format!("{folder} is on a read-only file system"),
            "mount it for writing; if nobody mounted it so, the kernel did after an error: \
             see dmesg"
                .to_string(),
        ),
        // So says access(2) of a folder with that attribute.
        Errno::PERM => (
            format!("{folder} is immutable"),
            format!("chattr -i {folder}"),
        ),
        Errno::ACCESS => (format!("you may not write {folder}"), rights.to_string()),
        errno => {
            let cause = error::cause(&errno.into());
            (format!("cannot write {folder}: {cause}"), String::new())
        }
    })
}

/// A configured path is walked without following links.
fn link(report: &mut DoctorReport, what: &str, path: &Path) -> bool {
    let Some(real) = durable::without_first_link(path) else {
        return false;
    };
    report.fail(
        format!("{what} {} is reached through a link", path.display()),
        &format!("write its real path into the config: {}", real.display()),
    );
    true
}

fn local(agent: &Agent) -> Option<&Path> {
    match &agent.place {
        MemoryLocation::Local { memory, .. } => Some(memory),
        MemoryLocation::Remote { .. } => None,
    }
}

/// Asks the file system of each memory of this machine for an answer. Returns the config
/// without the agents on those that give none: nothing else is asked of them.
fn about_file_systems(report: &mut DoctorReport, config: &Config) -> Config {
    let general = &config.general;
    let limit = Duration::from_secs(general.local_timeout.into());
    let systems = FileSystems::new(&general.archive_dir, limit, Arc::new(clock::System));
    let mut groups: BTreeMap<String, (Arc<FileSystem>, &Path, Vec<&str>)> = BTreeMap::new();
    for agent in &config.agents {
        if let Some(memory) = local(agent)
            && let Some(system) = systems.of(memory)
        {
            let group = groups.entry(system.shown());
            let group = group.or_insert_with(|| (system, memory, Vec::new()));
            group.2.push(&agent.name);
        }
    }
    // All are asked before the first is waited for.
    let asked: Vec<_> = groups
        .into_values()
        .map(|(system, memory, agents)| {
            let (reply, answer) = bounded(1);
            let path = memory.to_path_buf();
            let look = move || {
                let _ = reply.send(durable::stat_unlinked(&path).is_ok());
            };
            (system.start(look).map(|call| (call, answer)), agents)
        })
        .collect();
    let silent: Vec<(Error, Vec<&str>)> = asked
        .into_iter()
        .filter_map(|(call, agents)| {
            let answer = call.and_then(|(call, answer)| call.receive(&answer));
            answer.err().map(|error| (error, agents))
        })
        .collect();
    for (error, agents) in &silent {
        let names = agents.join(", ");
        let message = format!("{error}, so these agents cannot be read or reset: {names}");
        report.unread(message, error.hints().first().map_or("", |it| it));
    }
    let silent: Vec<&str> = silent.into_iter().flat_map(|(_, agents)| agents).collect();
    config.with_agents(|agent| !silent.contains(&agent.name.as_str()))
}

fn about_agents(report: &mut DoctorReport, config: &Config, transport: &dyn Transport) {
    let mut well = 0;
    let mut in_place = 0;
    for agent in &config.agents {
        let name = agent.name.as_str();
        // Hosts are looked at by themselves.
        let Some(memory) = local(agent) else {
            continue;
        };
        let folder = memory.parent().unwrap_or(memory);
        let opened = transport.open(memory);
        let outlook = opened.map_or(SwapForecast::Clear, |folder| folder.outlook());
        let cost = engine::in_place_cost(agent, &outlook);
        in_place += usize::from(matches!(cost, Ok(Some(_))));
        let refused = match outlook {
            SwapForecast::Refused(error) => Some(error),
            _ => cost.err(),
        };
        // What a link leads to is not looked at: an agent may have made it.
        if link(report, &format!("the directory of {name},"), folder) {
            continue;
        }
        match fs::metadata(folder) {
            Ok(meta) if meta.is_dir() => {
                if let Some(error) = refused {
                    report.error(&error.context(name));
                } else if let Some((why, hint)) =
                    unwritable(folder, "run this as root, or as the agent's user")
                {
                    report.fail(format!("{why}, so {name} cannot be reset"), &hint);
                } else {
                    well += 1;
                }
            }
            Ok(_) => report.fail(
                format!(
                    "the directory of {name}, {}, is not a directory",
                    folder.display()
                ),
                "",
            ),
            Err(error) => report.error(
                &Error::io("look at", folder, &error).context(format!("the directory of {name}")),
            ),
        }
        // Of the directories that it names that is an error of its own.
        if config.path.starts_with(folder) {
            report.fail(
                format!(
                    "the config lies inside the directory of {name}, {}",
                    folder.display()
                ),
                "move it to where no agent writes",
            );
        }
    }
    if well > 0 {
        report.ok(format!(
            "the directories of {} are there, writable, and reached without links",
            count(well, "agent")
        ));
    }
    if in_place > 0 {
        report.warn(
            format!(
                "the memories of {} are mount points of their own and are written in place",
                count(in_place, "agent")
            ),
            "a crash at that moment leaves one half written until the next run; mount \
             their directories instead",
        );
    }
}

/// Memories that are hard links to one file. A reset gives each a file of its own, so
/// none is refused; until then each agent writes into the other's memory, or into its
/// baseline.
fn about_hard_links(report: &mut DoctorReport, config: &Config) {
    let linked = |path: &Path| {
        let stat = durable::stat_unlinked(path).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        (is_file && stat.st_nlink > 1).then_some((stat.st_dev, stat.st_ino))
    };
    let mut memories: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
    for agent in &config.agents {
        if let Some(id) = local(agent).and_then(linked) {
            memories.entry(id).or_default().push(&agent.name);
        }
    }
    let baselines = config.agents.iter().map(|agent| &agent.baseline);
    for baseline in baselines.collect::<BTreeSet<_>>() {
        let path = config.general.baseline_dir.join(baseline);
        if let Some(agents) = linked(&path).and_then(|id| memories.get(&id)) {
            report.fail(
                format!(
                    "the memory of {} is a hard link to the baseline {}, so what is written to \
                     the memory is written to the baseline",
                    agents.join(" and "),
                    path.display()
                ),
                "read the baseline, then give it a file of its own: cp it to another name, and mv \
                 that back",
            );
        }
    }
    for agents in memories.into_values().filter(|agents| agents.len() > 1) {
        report.warn(
            format!(
                "the memories of {} are hard links to one file, so what one of them writes the \
                 others read",
                agents.join(" and ")
            ),
            "a reset gives each a file of its own",
        );
    }
}

fn about_baselines(report: &mut DoctorReport, config: &Config) {
    let general = &config.general;
    let place = general.baseline_dir.join(seal::FILE);
    match (general.require_seal, Seal::read(&general.baseline_dir)) {
        (RequireSeal::Never, _) => report.warn(
            "require_seal=never: a tampered baseline is not noticed",
            "remove that line from the config and seal the baselines",
        ),
        (_, Ok(Some(_))) => report.ok(format!("seal {}", place.display())),
        (_, Ok(None)) => report.warn(
            "there is no seal, so a tampered baseline is not noticed",
            &seal::how_to_seal(general),
        ),
        (_, Err(error)) => report.error(&error),
    }
    let mut good = 0;
    let mut shelf = BaselineCache::new(config);
    for agent in &config.agents {
        match shelf.load(agent) {
            Ok(_) => good += 1,
            Err(Refusal::Tampered(error) | Refusal::Unusable(error)) => {
                report.error(&error.context(&agent.name));
            }
        }
    }
    if good > 0 {
        report.ok(format!(
            "the baselines of {} may be pushed",
            count(good, "agent")
        ));
    }
}

fn about_the_archive(
    report: &mut DoctorReport,
    engine: &Engine,
    agents: &[Agent],
    world: &Environment,
) {
    let own = Path::new(OWN);
    let directories = ["locks", "tx", "baselines"].map(|name| own.join(name));
    let entries = agents
        .iter()
        .map(|agent| PathBuf::from(&agent.archive_subdir));
    let all = [PathBuf::new(), own.to_path_buf()]
        .into_iter()
        .chain(directories);
    for directory in all.chain(entries).collect::<BTreeSet<_>>() {
        if let Err(error) = engine.archive().check_owner(&directory) {
            report.error(&error);
        }
    }
    // How the memory of each agent was replaced the last time.
    let mut methods: HashMap<String, Method> = HashMap::new();
    let read = engine.records(None, None).and_then(|range| {
        range.each(&mut |record| {
            if let Some(method) = record.what.method {
                methods.insert(record.what.agent.clone(), method);
            }
            Ok(())
        })?;
        Ok(range.head())
    });
    match read {
        Ok((0, _)) if engine.last_logged_head().is_none() => {
            report.ok("the ledger has no records yet");
        }
        Ok((seq, head)) => match engine.last_logged_head() {
            Some((logged, _)) if logged > seq => report.fail(
                format!(
                    "the ledger ends with record {seq}, but reset.log has the head of record \
                     {logged}: its end was cut off"
                ),
                &format!("`{}` says what to do", engine.command_line("verify")),
            ),
            _ => report.ok(format!("the ledger is whole; its head is {seq}:{head}")),
        },
        Err(error) => {
            report.error(&error);
            methods.clear();
        }
    }
    about_the_clock(report, engine);
    // On a host that is how it is always done.
    let here = engine.config().agents.iter();
    let here = here.filter(|agent| local(agent).is_some());
    let taken_away = |agent: &&Agent| methods.get(&agent.name) == Some(&Method::TakeAway);
    let number = here.filter(taken_away).count();
    if number > 0 {
        report.warn(
            format!(
                "the memories of {} were absent for a moment in the last reset",
                count(number, "agent")
            ),
            "their file system cannot exchange two files; nothing is lost",
        );
    }
    about_transactions(report, engine);
    about_entries(report, engine);
    about_pins(report, engine);
    trial::about_the_kernel(report, engine, agents, world);
}

/// Directories of entries that cannot be read: no reset of their agents can archive
/// anything.
fn about_entries(report: &mut DoctorReport, engine: &Engine) {
    let agents = engine.config().agents.iter();
    let directories: BTreeSet<&str> = agents.map(|it| it.archive_subdir.as_str()).collect();
    for directory in directories {
        if let Err(error) = engine.archive().list(directory.as_ref()) {
            report.error(&error.context("entries"));
        }
    }
}

/// Lines of the pins that retention cannot go by.
fn about_pins(report: &mut DoctorReport, engine: &Engine) {
    match engine.pin_faults() {
        Ok(faults) => {
            for fault in faults {
                let whose = match &fault.directory {
                    Some(directory) => format!("in {}", directory.display()),
                    None => "in the whole archive".to_string(),
                };
                report.warn(
                    format!("{fault}, so retention deletes nothing {whose}"),
                    "correct the line, or remove it",
                );
            }
        }
        Err(error) => report.error(&error),
    }
}

/// A record that is of a time that has not come yet: this clock is wrong, or that of the
/// run was.
fn about_the_clock(report: &mut DoctorReport, engine: &Engine) {
    if let Ok(Some((seq, time))) = engine.record_of_the_future() {
        let ahead = (time - engine.clock().now()).num_hours();
        let ahead = match ahead / 24 {
            0 => count(ahead as usize, "hour"),
            days => count(days as usize, "day"),
        };
        report.warn(
            format!(
                "record {seq} of the ledger is of {}, {ahead} ahead of this clock",
                time.format("%Y-%m-%d %H:%M:%S")
            ),
            "compare `date` with another clock, and set it (timedatectl set-ntp true). If it \
             is right, that of the run was wrong: leave the record, retention does not go by \
             it; entries with such dates in their names stay until then",
        );
    }
}

/// Records that an interrupted run left, or that a run has just now.
fn about_transactions(report: &mut DoctorReport, engine: &Engine) {
    let folder = engine.archive().own("tx");
    let list = match fs::read_dir(&folder) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return report.ok("no interrupted run left anything");
        }
        Err(error) => return report.error(&Error::io("list", &folder, &error)),
    };
    let unclaimed = engine.unclaimed().unwrap_or_default();
    let mut any = false;
    for item in list.flatten() {
        let path = item.path();
        if unclaimed.contains(&path) {
            any = true;
            report.fail(
                format!(
                    "{} is of an agent that is not configured: what its run left is not settled",
                    path.display()
                ),
                engine::UNCLAIMED,
            );
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        any = true;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let agent = name.split('.').next().unwrap_or_default();
        report.warn(
            format!(
                "a run of {agent} goes on, or was interrupted: {}",
                path.display()
            ),
            "if it was interrupted, the agent's next reset settles what it left",
        );
    }
    if !any {
        report.ok("no interrupted run left anything");
    }
}
