//! Hosts: whether they let us in, what ssh makes of its configuration for them,
//! and what is weaker there.

use super::Report;
use crate::cli::output::count;
use crate::engine::{Engine, HostStatus, Reach};
use crate::error::{Error, Kind};

/// Connects to all hosts at the same time, and tells what came of it.
pub(super) fn about_hosts(report: &mut Report, engine: &Engine) {
    for status in engine.greet() {
        about(report, engine, &status);
    }
    engine.leave();
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
                _ => report.fail(format!("{agents} out of reach: {error}"), hint),
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
            format!("{name} lacks {}", ability.lacking()),
            "OpenSSH's SFTP server has it, unless sshd_config denies it",
        );
    }
}
