//! Checks of the kernel and of the file systems of archive and memories: leases, unnamed files and
//! exchanging renames.

use std::collections::BTreeMap;

use rustix::thread::CapabilitySet;

use super::directories::write_obstacle;
use super::{DoctorReport, FleetSubject};
use crate::base::error::Error;
use crate::base::process_rights::has_capability;
use crate::cli::output::format_count;
use crate::config::Agent;
use crate::engine::Engine;

pub(super) fn check_kernel(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let agents = &fleet.answering_agents;
    let archive = engine.archive().root();
    if !archive.is_dir() {
        report.add_warning(
            "leases and renames not checked: no archive yet",
            "run this again after the first reset",
        );
    } else if write_obstacle(archive, "").is_some() {
        report.add_warning(
            "leases and renames not checked: cannot write the archive",
            "make the archive writable, then run this again",
        );
    } else {
        probe_archive(report, engine);
    }
    check_capabilities(report, engine, agents, fleet.environment.env.uid);
    check_lease_file_systems(report, engine, agents);
}

fn probe_archive(report: &mut DoctorReport, engine: &Engine) {
    match engine.context().probe_new_file() {
        Ok(support) => {
            if support.has_unnamed_files {
                report.add_ok("the file system of the archive supports unnamed files");
            } else {
                report.add_warning(
                    "the file system of the archive does not support unnamed files",
                    "entries are written under random names first; nothing is lost",
                );
            }
            if support.has_leases {
                report.add_ok("file leases work on own files");
            } else {
                report.add_warning(
                    "file leases do not work in the archive",
                    "without leases on a memory, a reset waits a fixed time for late writers",
                );
            }
        }
        Err(error) => report.add_error(&error),
    }
    match engine.context().probe_exchange() {
        Ok(true) => report.add_ok("the file system of the archive exchanges two files in one step"),
        Ok(false) => report.add_warning(
            "the file system of the archive cannot exchange two files",
            "on such a file system a memory is absent for a moment during a reset",
        ),
        Err(error) => report.add_error(&error),
    }
}

/// Checks that files of other users and groups can be replaced, and their writers detected.
fn check_capabilities(report: &mut DoctorReport, engine: &Engine, agents: &[&Agent], uid: u32) {
    let refused: Vec<Error> = agents
        .iter()
        .filter_map(|agent| engine.memory_checks().ownership_refusal(agent))
        .collect();
    if let Some(first) = refused.first() {
        report.add_error(first);
    }
    if refused.len() > 1 {
        let more = format_count(refused.len() - 1, "more agent");
        report.add_failure(
            format!("cannot replace the memories of {more}, for the same reason"),
            "run resets as root, or as the agents' user",
        );
    }
    let memory_owner = |agent: &Agent| engine.context().memory_owners(agent).first().copied();
    let others = agents
        .iter()
        .filter(|agent| memory_owner(agent).is_some_and(|owner| owner != uid));
    let number = others.count();
    if number == 0 {
        return;
    }
    let agents = format_count(number, "agent");
    if has_capability(CapabilitySet::LEASE) {
        report.add_ok(format!(
            "CAP_LEASE covers files of {agents} that belong to other users"
        ));
    } else {
        report.add_warning(
            format!(
                "files of {agents} belong to other users, and the process lacks CAP_LEASE: \
                 late writers cannot be detected"
            ),
            "run resets as root, or give the service AmbientCapabilities=CAP_LEASE",
        );
    }
}

/// Reports file systems on which leases do not detect writers.
fn check_lease_file_systems(report: &mut DoctorReport, engine: &Engine, agents: &[&Agent]) {
    let mut agents_by_reason: BTreeMap<String, usize> = BTreeMap::new();
    let agents = agents.iter();
    // On another host, a lease never detects writers.
    let local = agents.filter(|agent| agent.host().is_none());
    for why in local.filter_map(|agent| engine.memory_checks().undetectable_writers_reason(agent)) {
        *agents_by_reason.entry(why).or_default() += 1;
    }
    for (why, number) in agents_by_reason {
        let agents = format_count(number, "agent");
        report.add_warning(
            format!("late writers to the memory of {agents} cannot be detected: {why}"),
            "run resets on the machine that has the files on its own disk; elsewhere a reset reads \
             a displaced file again after 250 ms, then removes it",
        );
    }
}
