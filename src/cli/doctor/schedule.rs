//! Check of the schedule: resets that are overdue or held back, and units of the original tool.

use chrono::Local;

use super::units::install_command;
use super::{DoctorReport, FleetSubject};
use crate::schedule::{ScheduleControls, find_missed_resets, has_recent_timed_run, timer_subject};

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
    for original in &fleet.original_units {
        let (service, directory) = (&original.unit.service, original.directory.display());
        let agents = describe_original_agents(&original.unit.agents);
        let text = format!(
            "{service} in {directory} runs the original tool, which resets {agents} as well"
        );
        let install = install_command(fleet, original.scope);
        let hint = format!("`{install} --take-over --dry-run` shows what replaces it");
        report.add_warning(text, &hint);
    }
    let has_finding = !holds.is_empty() || !missed.is_empty() || !fleet.original_units.is_empty();
    if is_known && !has_finding {
        let is_timed = engine
            .config()
            .agents
            .iter()
            .any(|it| it.own_interval.is_some())
            || has_recent_timed_run(engine, now).unwrap_or_default();
        let overdue = if is_timed {
            "no overdue reset"
        } else {
            "no timer has started a reset within 30 days"
        };
        let text = format!("{overdue}, no pause, no skip, and no unit of the original tool");
        report.add_ok(&text);
    }
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
