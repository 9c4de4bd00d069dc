//! Hosts: whether they let us in, what ssh makes of its configuration for them,
//! and what is weaker there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::DoctorReport;
use crate::cli::output::count;
use crate::config::Agent;
use crate::engine::{Engine, HostStatus, Reachability};
use crate::error::{self, Error, Kind};

/// Connects to all hosts at the same time, and tells what came of it. The keys of
/// the config are ours if they belong to `uid`.
pub(super) fn about_hosts(report: &mut DoctorReport, engine: &Engine, uid: u32) {
    let hosts = engine.greet();
    about_keys(report, &hosts, uid);
    for status in &hosts {
        let trouble = status.contact.error.as_ref();
        // One that is the same everywhere is told once, for all whom it concerns.
        let same = |it: &&HostStatus| it.contact.error.as_ref() == trouble;
        match hosts.iter().find(same) {
            Some(first) if trouble.is_some() && first.host != status.host => {}
            _ => {
                let all = hosts.iter().filter(same).map(|it| it.agents.len());
                contact(report, status, all.sum());
            }
        }
        setup(report, engine, status);
    }
    let up = hosts
        .iter()
        .filter(|it| it.contact.reach == Reachability::Up);
    about_memories(report, engine, up.flat_map(|it| it.agents.iter()));
    engine.leave();
}

/// Looks at the memories on hosts that answer, those of a host together: a missing
/// folder, or something else in a memory's place, is nothing that a host tells of.
fn about_memories<'a>(
    report: &mut DoctorReport,
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

/// Keys of the config, each once: ssh passes over one that it cannot use.
fn about_keys(report: &mut DoctorReport, hosts: &[HostStatus], uid: u32) {
    let mut keys: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for status in hosts {
        if let Some(key) = &status.host.identity_file {
            keys.entry(key).or_default().push(&status.host.name);
        }
    }
    for (key, hosts) in keys {
        if let Some((fault, hint)) = fault(key, uid) {
            let hosts = hosts.join(" and ");
            let text = format!("identity_file {} of {hosts} {fault}", key.display());
            report.warn(text, &hint);
        }
    }
}

/// What is wrong with a key, and what to do about it.
fn fault(key: &Path, uid: u32) -> Option<(String, String)> {
    let elsewhere =
        "write the path of a private key, or leave it out for what the SSH configuration says";
    let no_file = |what: &str| Some((format!("is {what}"), elsewhere.to_string()));
    let refused = |fault: &io::Error| {
        let cause = error::cause(fault);
        (format!("cannot be read: {cause}"), elsewhere.to_string())
    };
    let meta = match fs::metadata(key) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Some(("does not exist".to_string(), elsewhere.to_string()));
        }
        Err(error) => return Some(refused(&error)),
    };
    let kind = meta.file_type();
    if kind.is_dir() {
        return no_file("a directory");
    } else if kind.is_fifo() {
        return no_file("a pipe");
    } else if !kind.is_file() {
        return no_file("no regular file");
    }
    // A public half stands for a key that an agent has. What belongs to somebody else
    // ssh takes as it is.
    let public = key.extension().is_some_and(|it| it == "pub");
    if !public && meta.uid() == uid && meta.mode() & 0o077 != 0 {
        return Some((
            format!("can be read by others (mode {:04o})", meta.mode() & 0o7777),
            format!("ssh does not use it like that: chmod 600 {}", key.display()),
        ));
    }
    File::open(key).err().map(|error| refused(&error))
}

/// Whether a host lets us in; what keeps us from it keeps us from so many agents.
fn contact(report: &mut DoctorReport, status: &HostStatus, out_of_reach: usize) {
    let contact = &status.contact;
    match &contact.error {
        Some(error) => {
            let agents = count(out_of_reach, "agent");
            let hint = error.hints().first().map_or("", |hint| hint);
            match contact.reach {
                Reachability::HostKey => {
                    let message = format!("{agents} out of reach: {error}");
                    report.error(&Error::new(Kind::Integrity, message).hint(hint));
                }
                _ => report.unread(format!("{agents} out of reach: {error}"), hint),
            }
        }
        None => {
            let (name, agents) = (&status.host.name, count(status.agents.len(), "agent"));
            let limits = contact.limits.iter();
            let limits = limits.map(|(name, limit)| format!(", {name} {limit}"));
            let limits: String = limits.collect();
            report.ok(format!("host {name}, {agents}: SFTP answers{limits}"));
        }
    }
}

/// What ssh makes of its configuration for a host, and what is weaker there.
fn setup(report: &mut DoctorReport, engine: &Engine, status: &HostStatus) {
    let name = &status.host.name;
    let contact = &status.contact;
    match engine.settings(&status.host) {
        Ok(settings) if settings.is_empty() => {}
        Ok(settings) => {
            let each = settings
                .iter()
                .map(|it| format!("{} {}", it.name, it.value));
            let each: Vec<String> = each.collect();
            report.ok(format!("ssh for {name}: {}", each.join(", ")));
        }
        // It was told already.
        Err(error) if contact.error.as_ref().is_some_and(|it| it.is(&error)) => {}
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
