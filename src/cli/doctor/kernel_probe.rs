//! Checks of the kernel and of the file system of the archive, by trying operations on files that
//! are removed at once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use tempfile::TempDir;

use super::{DoctorReport, write_access};
use crate::cli::Environment;
use crate::cli::output::format_count;
use crate::config::Agent;
use crate::engine::Engine;
use crate::error::Error;
use crate::sys::{self, LeaseOutcome};

/// The bit of `CAP_LEASE` (capabilities(7)).
const CAP_LEASE: u32 = 28;

/// Checks leases, unnamed files and exchanging renames.
pub(super) fn check_kernel(
    report: &mut DoctorReport,
    engine: &Engine,
    agents: &[Agent],
    environment: &Environment,
) {
    let archive = engine.archive().root();
    if !archive.is_dir() {
        report.add_warning(
            "leases and renames not checked: no archive yet",
            "run this again after the first reset",
        );
    } else if super::write_obstacle(archive, "").is_some() {
        report.add_warning(
            "leases and renames not checked: cannot write the archive",
            "make the archive writable, then run this again",
        );
    } else {
        probe_archive(report, archive);
    }
    check_lease_capability(report, agents, environment);
    check_lease_file_systems(report, engine, agents);
}

fn probe_archive(report: &mut DoctorReport, archive: &Path) {
    match probe_lease(archive) {
        Ok((has_unnamed_files, lease)) => {
            if has_unnamed_files {
                report.add_ok("the file system of the archive supports unnamed files");
            } else {
                report.add_warning(
                    "the file system of the archive does not support unnamed files",
                    "entries are written under random names first; nothing is lost",
                );
            }
            match lease {
                LeaseOutcome::Granted => report.add_ok("file leases work on own files"),
                LeaseOutcome::OpenElsewhere | LeaseOutcome::Unavailable => report.add_warning(
                    "file leases do not work in the archive",
                    "without leases on a memory, a reset waits a fixed time for late writers",
                ),
            }
        }
        Err(error) => report.add_error(&error),
    }
    match probe_exchange(archive) {
        Ok(true) => report.add_ok("the file system of the archive exchanges two files in one step"),
        Ok(false) => report.add_warning(
            "the file system of the archive cannot exchange two files",
            "on such a file system a memory is absent for a moment during a reset",
        ),
        Err(error) => report.add_error(&error),
    }
}

fn check_lease_capability(report: &mut DoctorReport, agents: &[Agent], environment: &Environment) {
    let uid = environment.env.uid;
    let others = agents
        .iter()
        .filter(|agent| write_access::memory_owner(agent).is_some_and(|owner| owner != uid));
    let number = others.count();
    let agents = format_count(number, "agent");
    match (number, has_capability(CAP_LEASE)) {
        (0, _) => {}
        (_, Some(false)) => report.add_warning(
            format!(
                "files of {agents} belong to other users, and the process lacks CAP_LEASE: \
                 late writers cannot be detected"
            ),
            "run resets as root, or give the service AmbientCapabilities=CAP_LEASE",
        ),
        _ => report.add_ok(format!(
            "CAP_LEASE covers files of {agents} that belong to other users"
        )),
    }
}

/// Reports file systems on which leases do not detect writers.
fn check_lease_file_systems(report: &mut DoctorReport, engine: &Engine, agents: &[Agent]) {
    let mut agents_by_reason: BTreeMap<String, usize> = BTreeMap::new();
    let agents = agents.iter();
    // On a host this is always the case.
    let local = agents.filter(|agent| agent.location.host().is_none());
    for why in local.filter_map(|agent| engine.undetectable_writers_reason(agent)) {
        *agents_by_reason.entry(why).or_default() += 1;
    }
    for (why, number) in agents_by_reason {
        report.add_warning(
            format!(
                "late writers to the memory of {} cannot be detected: {why}",
                format_count(number, "agent")
            ),
            "run resets on the machine that has the files on its own disk; elsewhere a reset reads \
             a displaced file again after 250 ms, then removes it",
        );
    }
}

/// Tries to create an unnamed file and to take a lease on it. Returns whether the file is unnamed,
/// and the result of the lease.
fn probe_lease(directory: &Path) -> Result<(bool, LeaseOutcome), Error> {
    let to_error = |error: std::io::Error| Error::from_io("try a file in", directory, &error);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let unnamed_file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR);
    let has_unnamed_files = unnamed_file.is_ok();
    // A file that needed a name is deleted already.
    let writable_file = match unnamed_file {
        Ok(file) => File::from(file),
        Err(_) => tempfile::tempfile_in(directory).map_err(to_error)?,
    };
    // A read lease requires that no descriptor is open for writing, including ours.
    let reopened_path = format!("/proc/self/fd/{}", writable_file.as_raw_fd());
    let read_only_file = File::open(reopened_path).map_err(to_error)?;
    drop(writable_file);
    let lease = sys::take_read_lease(read_only_file.as_fd());
    if lease == LeaseOutcome::Granted {
        sys::release_lease(read_only_file.as_fd());
    }
    Ok((has_unnamed_files, lease))
}

/// Whether two files can be exchanged, tried in a new directory inside `archive`.
fn probe_exchange(archive: &Path) -> Result<bool, Error> {
    let to_error = |error| Error::from_io("try to exchange two files in", archive, &error);
    let directory = create_probe_directory(archive).map_err(to_error)?;
    let (one, two) = (directory.path().join("1"), directory.path().join("2"));
    fs::write(&one, "1").map_err(to_error)?;
    fs::write(&two, "2").map_err(to_error)?;
    match rustix::fs::renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(fs::read(&one).map_err(to_error)? == b"2"),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(to_error(errno.into())),
    }
}

fn create_probe_directory(archive: &Path) -> std::io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(".doctor-")
        .tempdir_in(archive)
}

/// Whether this process has a capability; `None` without /proc.
fn has_capability(bit: u32) -> Option<bool> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & (1 << bit) != 0)
}
