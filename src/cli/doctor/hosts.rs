//! Hosts: whether they let us in, what ssh makes of its configuration for them,
//! and what is weaker there.

use super::Report;
use crate::cli::output::count;
use crate::config::Agent;
use crate::engine::{Engine, HostStatus, Reach};
use crate::error::{Error, Kind};

/// Connects to all hosts at the same time, and tells what came of it.
pub(super) fn about_hosts(report: &mut Report, engine: &Engine) {
    let hosts = engine.greet();
    for status in &hosts {
        about(report, engine, status);
    }
    let up = hosts.iter().filter(|it| it.contact.reach == Reach::Up);
    about_memories(report, engine, up.flat_map(|it| it.agents.iter()));
    engine.leave();
}

/// Looks at the memories on hosts that answer, those of a host together: a missing
/// folder, or something else in a memory's place, is nothing that a host tells of.
fn about_memories<'a>(
    report: &mut Report,
    engine: &Engine,
    names: impl Iterator<Item = &'a String>,
) {
    let agents: Vec<&Agent> = names.filter_map(|it| engine.agent(it).ok()).collect();
    let mut well = 0;
    for seen in engine.observe_all(&agents) {
        if seen.was_read() {
            well += 1;
            continue;
        }
        let memory = seen.address.map_or(String::new(), |it| it.memory);
        report.unread(
            format!("{} on {}, {memory}: {}", seen.agent, seen.host, seen.why),
            "until it can be read, it is not reset",
        );
    }
    if well > 0 {
        let agents = count(well, "agent");
        report.ok(format!("the memories of {agents} on hosts can be read"));
    }
}

fn about(report: &mut Report, engine: &Engine, status: &HostStatus) {
    let name = &status.host.name;
    let agents = count(status.agents.len(), "agent");
    let contact = &status.contact;
    match &contact.error {
        Some(error) => {
            let hint = error.hints().first().map_or("", |hint| hint);
            match contact.reach {
                Reach::HostKey => {
                    let message = format!("{agents} out of reach: {error}");
                    report.error(&Error::new(Kind::Integrity, message).hint(hint));
                }
                _ => report.unread(format!("{agents} out of reach: {error}"), hint),
            }
        }
        None => {
            let limits = contact.limits.iter();
            let limits = limits.map(|(name, limit)| format!(", {name} {limit}"));
            let limits: String = limits.collect();
            report.ok(format!("host {name}, {agents}: SFTP answers{limits}"));
        }
    }
    match engine.settings(&status.host) {
        Ok(settings) if settings.is_empty() => {}
        Ok(settings) => {
            let each = settings
                .iter()
                .map(|it| format!("{} {}", it.name, it.value));
            let each: Vec<String> = each.collect();
            report.ok(format!("ssh for {name}: {}", each.join(", ")));
        }
        Err(error) => report.warn(
            error.message(),
            error.hints().first().map_or("", |hint| hint),
        ),
    }
    for ability in contact.abilities.iter().filter(|it| !it.there) {
        report.warn(
            format!("{name} lacks {}: {}", ability.name, ability.without),
            "OpenSSH's SFTP server has it, unless sshd_config denies it",
        );
    }
}
