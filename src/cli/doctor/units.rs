//! Check of the installed units of systemd: whether they are those that the config asks for, who can
//! change them, what they run, and whether their timers do.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use chrono::{DateTime, FixedOffset, Local};

use super::{DoctorReport, FleetSubject};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::Result;
use crate::base::quantity::list_names;
use crate::base::trust::{TrustedUser, find_untrusted_lookup};
use crate::cli::CommandContext;
use crate::cli::output::format_count;
use crate::cli::schedule::{ScheduleTarget, TargetArgs, schedule_target, user_sandbox};
use crate::config::Config;
use crate::engine::Engine;
use crate::unattended::schedule::{
    Consent, FileAction, InstallPlan, InstalledTimer, PlannedFile, ScriptService, ServiceManager,
    TimerStatus, UnitScope, UnitSearchPath, UnitSetup, find_installed_timers, find_script_services,
    find_unit_program, plan_install, plan_uninstall, read_timer_statuses, render_units,
};

/// An enabled timer that has not fired within this many of the longest interval never fires.
const MAX_UNFIRED_INTERVALS: i64 = 2;

/// Maximum number of places of others that are reported.
const MAX_REPORTED_PLACES: usize = 20;

/// Where the units of the config are, and how they would be rendered now.
pub(super) struct UnitSubject {
    target: ScheduleTarget,
    /// The installed units of the config, and the files in their places.
    installed: Vec<PlannedFile>,
    /// What `schedule install` would do.
    plan: Result<InstallPlan>,
    search_path: UnitSearchPath,
}

/// A service that runs the original tool, which resets agents as well.
pub(super) struct FoundOriginal {
    pub(super) scope: UnitScope,
    pub(super) service: ScriptService,
    /// Whether `schedule install --take-over` replaces it.
    pub(super) is_replaceable: bool,
}

/// The services of the original tool, of both scopes.
#[derive(Default)]
pub(super) struct OriginalSearch {
    pub(super) found: Vec<FoundOriginal>,
    /// What was not searched, and why.
    pub(super) unread: Vec<String>,
}

impl OriginalSearch {
    fn add_scope(&mut self, subject: &UnitSubject, originals: &InstallPlan) {
        let (services, unread) = find_script_services(&subject.search_path);
        self.unread.extend(unread);
        let found = services.into_iter().map(|service| FoundOriginal {
            scope: subject.target.scope,
            is_replaceable: originals
                .originals
                .iter()
                .any(|it| service.path == originals.directory.join(&it.service)),
            service,
        });
        self.found.extend(found);
    }
}

/// Finds the units of the config: those that `schedule install` would write, else those of the
/// other scope, the system's or this user's.
///
/// Also returns the services of the original tool, of both scopes.
pub(super) fn find_unit_subject(
    context: &CommandContext<'_>,
    engine: &Engine,
) -> (Result<UnitSubject>, OriginalSearch) {
    let config = engine.config().path.clone();
    let is_root = context.environment.env.uid == 0;
    let mut originals = OriginalSearch::default();
    let mut find = |is_system: bool| -> Result<UnitSubject> {
        let args = TargetArgs {
            prefix: None,
            system: is_system,
            user: !is_system,
        };
        let target = schedule_target(context, &args, config.clone())?;
        let removal = plan_uninstall(&target.directory, &target.config, Consent::default())?;
        let runtime_directory = context.environment.runtime_directory.as_deref();
        let search_path = target
            .scope
            .search_path(&context.environment.env, runtime_directory)?;
        let plan = plan_units(context, engine, &target);
        let installed = match &plan {
            Ok(plan) => plan
                .files
                .iter()
                .filter(|it| it.is_of_config)
                .cloned()
                .collect(),
            Err(_) => removal.files.clone(),
        };
        let subject = UnitSubject {
            target,
            installed,
            plan,
            search_path: UnitSearchPath::read(search_path),
        };
        originals.add_scope(&subject, &removal);
        Ok(subject)
    };
    let (own, other) = (find(is_root), find(!is_root));
    let has_units = |it: &Result<UnitSubject>| it.as_ref().is_ok_and(|it| !it.installed.is_empty());
    let subject = if !has_units(&own) && has_units(&other) {
        other
    } else {
        own
    };
    (subject, originals)
}

/// Plans the installation of the units that the config asks for.
fn plan_units(
    context: &CommandContext<'_>,
    engine: &Engine,
    target: &ScheduleTarget,
) -> Result<InstallPlan> {
    let units = render_units(UnitSetup {
        config: engine.config(),
        program: &context.environment.program_path,
        scope: target.scope,
        user_sandbox: &user_sandbox(engine, target.scope),
    })?;
    let consent = Consent::default();
    plan_install(&target.directory, &target.config, &units, consent)
}

pub(super) fn check_units(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let subject = match &fleet.units {
        Ok(subject) => subject,
        Err(error) => return report.add_warning(error.message(), ""),
    };
    let (directory, files) = (subject.target.directory.display(), &subject.installed);
    if files.is_empty() {
        return report.add_ok(format!("{directory} has no units of this config"));
    }
    let units = format_count(files.len(), "unit");
    report.add_ok(format!("{units} of this config in {directory}"));
    check_access(report, fleet, subject);
    check_programs(report, fleet, subject);
    check_texts(report, fleet, subject);
    check_timers(report, fleet, subject);
}

/// Returns the command that brings units up to date.
pub(super) fn install_command(fleet: &FleetSubject<'_>, scope: UnitScope) -> String {
    let scope = match scope {
        UnitScope::System => "--system",
        UnitScope::User => "--user",
    };
    fleet
        .engine
        .command_line(&format!("schedule install {scope}"))
}

/// Reports what other users can change of the files that decide what the service manager runs: units,
/// drop-ins, and the directories where it looks for them.
fn check_access(report: &mut DoctorReport, fleet: &FleetSubject<'_>, subject: &UnitSubject) {
    let user = match subject.target.scope {
        UnitScope::System => TrustedUser::ROOT,
        UnitScope::User => fleet.environment.env.trusted_user(),
    };
    let search_path = &subject.search_path;
    let mut examined = BTreeSet::new();
    let mut places = Vec::new();
    for file in &subject.installed {
        let files = search_path.deciding_files(&file.name);
        let directories = search_path.directories().map(Path::to_path_buf);
        let paths = directories
            .chain(files.unit)
            .chain(files.drop_in_directories)
            .chain(files.drop_ins);
        for path in paths {
            // Most are those of all units.
            if examined.contains(&path) {
                continue;
            }
            if let Some(place) = find_untrusted_lookup(&path, user)
                && places.iter().all(|(it, _)| *it != place)
            {
                places.push((place, &file.name));
            }
            examined.insert(path);
        }
    }
    for (place, unit) in places.iter().take(MAX_REPORTED_PLACES) {
        report.add_failure(
            format!("{place}, and so decides what {unit} runs"),
            &place.remedy().map_or_else(
                || "review the units, and keep them in a directory of their own".to_string(),
                |remedy| format!("review the units, then run `{remedy}`"),
            ),
        );
    }
    if let Some(more) = places.len().checked_sub(MAX_REPORTED_PLACES + 1) {
        let files = format_count(more + 1, "further file");
        report.add_failure(
            format!("other users can change {files} that decide what units run"),
            "put those above right, then run `doctor` again",
        );
    }
    if let [first, rest @ ..] = search_path.unread.as_slice() {
        let more = match rest.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        report.add_warning(
            format!("cannot read all directories of units: {first}{more}"),
            "run `doctor` as root, or make them readable: drop-ins there were not examined",
        );
    }
}

/// Reports services whose program is missing: their timers fail from now on.
fn check_programs(report: &mut DoctorReport, fleet: &FleetSubject<'_>, subject: &UnitSubject) {
    let mut programs = Vec::new();
    for file in &subject.installed {
        let text = file.old.as_deref().unwrap_or_default();
        if let Some(program) = find_unit_program(text)
            && !programs.contains(&program)
        {
            programs.push(program);
        }
    }
    for program in programs.iter().filter(|it| !is_executable(it)) {
        let program = program.display();
        report.add_failure(
            format!("units run {program}, which is missing or cannot be executed"),
            &format!(
                "install the program there, or run `{}` with the one that they should run",
                install_command(fleet, subject.target.scope)
            ),
        );
    }
}

fn is_executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|meta| meta.is_file())
        && rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Compares the units with those that the config asks for.
fn check_texts(report: &mut DoctorReport, fleet: &FleetSubject<'_>, subject: &UnitSubject) {
    let target = &subject.target;
    let plan = match &subject.plan {
        Ok(plan) => plan,
        Err(error) => return report.add_error(error),
    };
    let install = install_command(fleet, target.scope);
    let names = |action: FileAction| -> Vec<&str> {
        let files = plan.files.iter().filter(|file| file.action == action);
        files.map(|file| file.name.as_str()).collect()
    };
    let findings = [
        (
            FileAction::Update,
            "units that differ from what the config asks for now",
        ),
        (FileAction::Create, "units that are missing"),
        (FileAction::Remove, "units of agents that are gone"),
    ];
    for (action, what) in findings {
        let names = names(action);
        if let Some(text) = describe_units(&names, what) {
            let hint =
                format!("see the difference with `{install} --dry-run`, then run `{install}`");
            report.add_warning(text, &hint);
        }
    }
    let has_reason = |file: &&PlannedFile| file.action == FileAction::Leave;
    for file in plan.files.iter().filter(has_reason) {
        let reason = file.reason.as_deref().unwrap_or_default();
        let path = target.directory.join(&file.name);
        report.add_warning(
            format!("{} is not updated: {reason}", path.display()),
            &format!("review it with `{install} --dry-run`; --force replaces it"),
        );
    }
}

/// Names units: "units that are missing: a, b and 3 more"; none without units.
fn describe_units(names: &[&str], what: &str) -> Option<String> {
    (!names.is_empty()).then(|| format!("{what}: {}", list_names(names)))
}

/// Reports timers that do not run, never fired, or whose last run failed.
fn check_timers(report: &mut DoctorReport, fleet: &FleetSubject<'_>, subject: &UnitSubject) {
    let target = &subject.target;
    let timers = match find_installed_timers(&target.directory, &target.config) {
        Ok(timers) => timers,
        Err(error) => return report.add_error(&error),
    };
    let runtime_directory = fleet.environment.runtime_directory.as_deref();
    let Some(manager) = target.manager(runtime_directory, &SystemClock) else {
        return;
    };
    if !manager.is_running() {
        let run = fleet.engine.command_line("schedule run");
        return report.add_warning(
            "no service manager is running: the installed timers do nothing",
            &format!("start it, or run `{run}` instead"),
        );
    }
    let now = SystemClock.now();
    let local = now.with_timezone(&Local);
    let statuses = match read_timer_statuses(&timers, &manager, &local) {
        Ok(statuses) => statuses,
        Err(error) => return report.add_error(&error),
    };
    let mut sound = 0;
    for (timer, status) in timers.iter().zip(&statuses) {
        match timer_fault(fleet.engine.config(), target, timer, status, now) {
            Some((text, hint)) => report.add_warning(text, &hint),
            None => sound += usize::from(status.active),
        }
    }
    if sound > 0 {
        report.add_ok(format!("{} run on time", format_count(sound, "timer")));
    }
}

/// Returns what is wrong with a timer, with a hint.
fn timer_fault(
    config: &Config,
    target: &ScheduleTarget,
    timer: &InstalledTimer,
    status: &TimerStatus,
    now: DateTime<FixedOffset>,
) -> Option<(String, String)> {
    let name = &timer.name;
    let systemctl = target.scope.systemctl();
    let service = format!("{}.service", name.strip_suffix(".timer").unwrap_or(name));
    let journal = match target.scope {
        UnitScope::System => format!("journalctl -u {service}"),
        UnitScope::User => format!("journalctl --user -u {service}"),
    };
    let time = |it: DateTime<FixedOffset>| it.format("%Y-%m-%d %H:%M:%S").to_string();
    if status.missed && !status.active {
        return Some((
            format!("the timer {name} was enabled when it was installed, and does not run"),
            format!(
                "run `{systemctl} enable --now {name}`; `{systemctl} status {name}` says why it ended"
            ),
        ));
    }
    if status.missed {
        let due = status
            .next
            .map_or(String::new(), |it| format!(" since {}", time(it)));
        return Some((
            format!("the timer {name} is overdue{due}"),
            format!("see `{systemctl} status {name}`, and compare the clock"),
        ));
    }
    if let (Some(result), Some(code)) = (&status.result, status.exit_code)
        && result != "success"
    {
        let when = status
            .last
            .map_or(String::new(), |it| format!(" at {}", time(it)));
        return Some((
            format!("the last run of {service}{when} failed: {result}, exit code {code}"),
            format!("see `{journal}` and `{systemctl} status {service}`"),
        ));
    }
    let longest = config
        .agents
        .iter()
        .filter_map(|agent| agent.own_interval())
        .chain([config.general.every])
        .map(|interval| i64::from(interval.seconds()))
        .max()?;
    let age = installed_age(&target.directory.join(name), now)?;
    let is_unfired = status.active && status.last.is_none();
    (is_unfired && age > chrono::Duration::seconds(MAX_UNFIRED_INTERVALS * longest)).then(|| {
        (
            format!(
                "the timer {name} is enabled, and has not fired since it was installed {} days ago",
                age.num_days()
            ),
            format!("see `{systemctl} list-timers {name}`, and compare the clock"),
        )
    })
}

/// Returns how long ago a unit file was written.
fn installed_age(path: &Path, now: DateTime<FixedOffset>) -> Option<chrono::Duration> {
    let modified = fs::metadata(path).ok()?.modified().ok()?;
    Some(now.to_utc() - DateTime::<chrono::Utc>::from(modified))
}
