//! Check of the schedule: resets that are overdue or held back, and units of the original tool.

use std::path::Path;

use chrono::{DateTime, FixedOffset, Local};

use super::units::{FoundOriginal, install_command};
use super::{DoctorReport, FleetSubject};
use crate::cli::output::format_count;
use crate::engine::Engine;
use crate::unattended::schedule::{
    ScheduleControls, find_missed_resets, has_recent_timed_run, timer_subject,
};

/// Maximum number of services of the original tool that are reported.
const MAX_REPORTED_ORIGINALS: usize = 20;

/// Reports what keeps agents from being reset on a schedule, or resets them twice.
pub(super) fn check_schedule(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let read = ScheduleControls::read(engine);
    if let Err(error) = &read {
        report.add_error(error);
    }
    let mut is_known = read.is_ok() && fleet.units.is_ok();
    let controls = read.unwrap_or_default();
    let now = engine.clock().now();
    let holds = controls.holds(engine.config(), &now.with_timezone(&Local));
    for (agent, hold) in &holds {
        let line = engine.command_line(&match agent {
            Some(agent) => shell_words::join(["schedule", "resume", agent]),
            None => "schedule resume".to_string(),
        });
        let text = format!("{}: {}", timer_subject(*agent), hold.describe());
        let what = if agent.is_some() {
            "it"
        } else {
            "all pauses and skips"
        };
        report.add_warning(text, &format!("`{line}` ends {what}"));
    }
    // An operator decided what is held back.
    let is_held = |agent: &str| {
        let agent = engine.config().agent(agent);
        agent.is_some_and(|agent| controls.pause_of_agent(agent).is_some())
    };
    let missed = find_missed_resets(engine, &controls, |_| None, now);
    if let Err(error) = &missed {
        is_known = false;
        report.add_error(error);
    }
    let missed = missed.unwrap_or_default();
    let missed: Vec<_> = missed.iter().filter(|it| !is_held(&it.agent)).collect();
    for missed in &missed {
        let line = engine.command_line("schedule status");
        let hint = format!("see with `{line}` what should reset it, and whether that runs");
        report.add_warning(missed.describe(), &hint);
    }
    let originals = &fleet.original_units;
    for original in originals.found.iter().take(MAX_REPORTED_ORIGINALS) {
        report_original(report, fleet, original);
    }
    if let Some(more) = originals
        .found
        .len()
        .checked_sub(MAX_REPORTED_ORIGINALS + 1)
    {
        let more = format_count(more + 1, "further service");
        report.add_warning(format!("{more} run the original tool"), "");
    }
    let has_finding = !holds.is_empty() || !missed.is_empty() || !originals.found.is_empty();
    if is_known && !has_finding {
        let overdue = describe_no_overdue(engine, now);
        let unread = match originals.unread.as_slice() {
            [] => String::new(),
            [first] => format!(" in what can be read (not {first})"),
            [first, rest @ ..] => {
                format!(
                    " in what can be read (not {first}, and {} more)",
                    rest.len()
                )
            }
        };
        report.add_ok(format!(
            "{overdue}, no pause, no skip, and no unit of the original tool{unread}"
        ));
    }
}

/// Reports a service of the original tool.
fn report_original(report: &mut DoctorReport, fleet: &FleetSubject<'_>, original: &FoundOriginal) {
    let unit = &original.service.unit;
    let service = &unit.service;
    let directory = original.service.path.parent().unwrap_or(Path::new("/"));
    let text = format!(
        "{service} in {} runs the original tool, which resets {} as well",
        directory.display(),
        describe_original_agents(&unit.agents)
    );
    let hint = if original.is_replaceable {
        let install = install_command(fleet, original.scope);
        format!("`{install} --take-over --dry-run` shows what replaces it")
    } else {
        let systemctl = original.scope.systemctl();
        let show = shell_words::join(["cat", service]);
        format!(
            "--take-over leaves it: `{systemctl} {show}` shows its commands; take out that of the \
             original tool, or disable the service and its timer"
        )
    };
    report.add_warning(text, &hint);
}

/// Names the agents of a service of the original tool, whose unit may be of another user.
fn describe_original_agents(agents: &[String]) -> String {
    const MAX_NAMES: usize = 5;
    const MAX_NAME_CHARS: usize = 64;
    if agents.is_empty() || agents.iter().any(|name| name == "all") {
        return "agents".to_string();
    }
    let names = agents.iter().take(MAX_NAMES);
    let names = names.map(|name| name.chars().take(MAX_NAME_CHARS).collect());
    let mut names: Vec<String> = names.collect();
    if agents.len() > MAX_NAMES {
        names.push(format!("{} more", agents.len() - MAX_NAMES));
    }
    names.join(", ")
}

/// Says that no reset is overdue; where no timer resets the fleet, none can be.
fn describe_no_overdue(engine: &Engine, now: DateTime<FixedOffset>) -> &'static str {
    let mut agents = engine.config().agents.iter();
    let has_own_interval = agents.any(|agent| agent.own_interval().is_some());
    if has_own_interval || has_recent_timed_run(engine, now).unwrap_or_default() {
        "no overdue reset"
    } else {
        "no timer has started a reset within 30 days"
    }
}
