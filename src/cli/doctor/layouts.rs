//! Check of memories of several files.

use super::{DoctorReport, FleetSubject};
use crate::base::error::Result;
use crate::config::{Agent, AgentLayout};
use crate::engine::{Engine, KnownHealth};

pub(super) fn check_layouts(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let agents = fleet.answering_agents.iter();
    for (agent, layout) in agents.filter_map(|it| Some((*it, it.layout.as_ref()?))) {
        let place = format!(
            "{}: layout {} in {}",
            agent.name,
            layout.name,
            layout.directory.display()
        );
        match check_memory(fleet.engine, agent) {
            Err(error) if error.is_host_lost() => {
                report.add_unreachable(format!("{place}: {error}"), "")
            }
            Err(error) => report.add_failure(format!("{place}: {error}"), ""),
            Ok((None, _)) => {
                report.add_warning(format!("{place}: nothing there has this layout"), "");
            }
            Ok((Some(evidence), health)) if health.is_ill() => {
                let health_command = health_command(fleet.engine, agent);
                let text = format!("{place} ({evidence}): {}", health.describe());
                report.add_warning(text, &format!("`{health_command}` names each finding"));
            }
            Ok((Some(evidence), health)) => {
                report.add_ok(format!("{place} ({evidence}): {}", health.describe()));
            }
        }
        check_state_directory(report, agent, layout);
    }
    report.add_ok_if_silent("no agent has a memory of several files");
}

/// Returns what shows that a memory has its layout, and what its checks find.
fn check_memory(engine: &Engine, agent: &Agent) -> Result<(Option<String>, KnownHealth)> {
    let memory = engine.layouts().open(&agent.name)?;
    let findings = engine.health().check(agent)?;
    let evidence = memory.layout.detect(&memory.files)?;
    Ok((
        evidence,
        KnownHealth::of_findings(&findings, engine.clock().now()),
    ))
}

fn health_command(engine: &Engine, agent: &Agent) -> String {
    engine.command_line(&format!("memory {} health", agent.name))
}

/// Checks that a directory of this machine exists that the layout looks at.
fn check_state_directory(report: &mut DoctorReport, agent: &Agent, layout: &AgentLayout) {
    let directory = layout.state_directory.as_ref();
    let local = directory.filter(|_| agent.host().is_none());
    if let Some(directory) = local.filter(|it| !it.is_dir()) {
        let text = format!(
            "{}: state_dir {} is not a directory",
            agent.name,
            directory.display()
        );
        report.add_failure(text, "");
    }
}
