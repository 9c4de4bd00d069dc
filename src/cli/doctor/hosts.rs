//! Checks of hosts: connections, identity files, the effective SSH configuration, missing SFTP
//! extensions, and whether the memories there can be read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::{DoctorReport, FleetSubject};
use crate::base::error::{self, Error, ErrorKind};
use crate::base::invocation::quote_operand;
use crate::cli::output::format_count;
use crate::config::Agent;
use crate::engine::{Engine, HostStatus, Reachability};

/// Connects to all hosts in parallel, reports the results, and disconnects. Checks the mode of
/// identity files only where this user owns them.
pub(super) fn check_hosts(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let hosts = engine.hosts().connect_all_hosts();
    if hosts.is_empty() {
        return report.add_ok("no agent is on another host");
    }
    check_identity_files(report, &hosts, fleet.environment.env.uid);
    for status in &hosts {
        let error = status.connection.error.as_ref();
        // An error shared by several hosts is reported once, for all of their agents.
        let has_same_error = |it: &&HostStatus| it.connection.error.as_ref() == error;
        match hosts.iter().find(has_same_error) {
            Some(first) if error.is_some() && first.host != status.host => {}
            _ => {
                let all = hosts
                    .iter()
                    .filter(has_same_error)
                    .map(|it| it.agents.len());
                check_connection(report, status, all.sum());
            }
        }
        check_ssh_settings(report, engine, status);
    }
    let connected = hosts
        .iter()
        .filter(|it| it.connection.reachability == Reachability::Connected);
    check_remote_memories(report, engine, connected.flat_map(|it| it.agents.iter()));
    engine.hosts().close_all_hosts();
}

/// Reads the memories on hosts that answer, grouped by host: a connection does not show a missing
/// directory, or a directory in place of a memory.
fn check_remote_memories<'a>(
    report: &mut DoctorReport,
    engine: &Engine,
    names: impl Iterator<Item = &'a String>,
) {
    let agents: Vec<&Agent> = names.filter_map(|it| engine.agent(it).ok()).collect();
    let mut ok_count = 0;
    for seen in engine.observer().observe_all(&agents) {
        if seen.is_content_known() {
            ok_count += 1;
            continue;
        }
        let memory = seen.address.map_or(String::new(), |it| it.memory);
        report.add_unreachable(
            format!("{} on {}, {memory}: {}", seen.agent, seen.host, seen.reason),
            "nothing of the agent can be changed until its memory can be read",
        );
    }
    if ok_count > 0 {
        let agents = format_count(ok_count, "agent");
        report.add_ok(format!("memories of {agents} on hosts can be read"));
    }
}

/// Checks the identity files of the config, each once: ssh skips a key that it cannot use.
fn check_identity_files(report: &mut DoctorReport, hosts: &[HostStatus], uid: u32) {
    let mut keys: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for status in hosts {
        if let Some(key) = &status.host.identity_file {
            keys.entry(key).or_default().push(&status.host.name);
        }
    }
    for (key, hosts) in keys {
        if let Some((fault, hint)) = identity_file_problem(key, uid) {
            let hosts = hosts.join(" and ");
            let text = format!("identity_file {} of {hosts} {fault}", key.display());
            report.add_warning(text, &hint);
        }
    }
}

/// Returns the problem of an identity file, with a hint.
fn identity_file_problem(key: &Path, uid: u32) -> Option<(String, String)> {
    let hint = "set the path of a private key, or remove the line to use the SSH configuration";
    let not_a_file = |what: &str| Some((format!("is {what}"), hint.to_string()));
    let refused = |fault: &io::Error| {
        let cause = error::describe_io_error(fault);
        (format!("cannot be read: {cause}"), hint.to_string())
    };
    let meta = match fs::metadata(key) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Some(("does not exist".to_string(), hint.to_string()));
        }
        Err(error) => return Some(refused(&error)),
    };
    let kind = meta.file_type();
    if kind.is_dir() {
        return not_a_file("a directory");
    } else if kind.is_fifo() {
        return not_a_file("a FIFO");
    } else if !kind.is_file() {
        return not_a_file("not a regular file");
    }
    // A public key selects a key that the SSH agent holds. ssh does not check the mode of a key
    // that belongs to another user.
    let is_public_key = key.extension().is_some_and(|it| it == "pub");
    if !is_public_key && meta.uid() == uid && meta.mode() & 0o077 != 0 {
        return Some((
            format!("can be read by others (mode {:04o})", meta.mode() & 0o7777),
            format!(
                "ssh ignores a key that others can read: chmod 600 {}",
                quote_operand(key)
            ),
        ));
    }
    File::open(key).err().map(|error| refused(&error))
}

/// Reports whether a host accepts the connection, and how many agents a failure affects.
fn check_connection(report: &mut DoctorReport, status: &HostStatus, unreachable_agents: usize) {
    let contact = &status.connection;
    match &contact.error {
        Some(error) => {
            let agents = format_count(unreachable_agents, "agent");
            let hint = error.hints().first().map_or("", |hint| hint);
            match contact.reachability {
                Reachability::HostKeyMismatch => {
                    let message = format!("{agents} unreachable: {error}");
                    report.add_error(&Error::new(ErrorKind::Integrity, message).with_hint(hint));
                }
                _ => report.add_unreachable(format!("{agents} unreachable: {error}"), hint),
            }
        }
        None => {
            let (name, agents) = (
                &status.host.name,
                format_count(status.agents.len(), "agent"),
            );
            let limits: String = contact
                .server_limits
                .iter()
                .map(|(name, limit)| format!(", {name} {limit}"))
                .collect();
            report.add_ok(format!("host {name}, {agents}: SFTP answers{limits}"));
        }
    }
}

/// Reports the effective SSH configuration of a host, and its missing SFTP extensions.
fn check_ssh_settings(report: &mut DoctorReport, engine: &Engine, status: &HostStatus) {
    let name = &status.host.name;
    let contact = &status.connection;
    match engine.hosts().connection_settings(&status.host) {
        Ok(settings) if settings.is_empty() => {}
        Ok(settings) => {
            let each: Vec<String> = settings
                .iter()
                .map(|it| format!("{} {}", it.name, it.value))
                .collect();
            report.add_ok(format!("ssh for {name}: {}", each.join(", ")));
        }
        // Already reported.
        Err(error)
            if contact
                .error
                .as_ref()
                .is_some_and(|it| it.has_same_message(&error)) => {}
        Err(error) => report.add_warning(
            error.message(),
            error.hints().first().map_or("", |hint| hint),
        ),
    }
    for ability in contact.server_features.iter().filter(|it| !it.is_available) {
        report.add_warning(
            format!("{name} lacks {}", ability.describe_missing()),
            "OpenSSH's SFTP server has it, unless sshd_config denies it",
        );
    }
}
