//! What the kernel and the archive's file system can do, found out by trying it
//! on files that are gone at once.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use tempfile::TempDir;

use super::{DoctorReport, reach};
use crate::cli::Environment;
use crate::cli::output::count;
use crate::config::Agent;
use crate::engine::Engine;
use crate::error::Error;
use crate::sys::{self, Lease};

/// The bit of `CAP_LEASE` (capabilities(7)).
const CAP_LEASE: u32 = 28;

/// Leases, nameless files and exchanging renames.
pub(super) fn about_the_kernel(
    report: &mut DoctorReport,
    engine: &Engine,
    agents: &[Agent],
    world: &Environment,
) {
    let archive = engine.archive().root();
    if !archive.is_dir() {
        report.warn(
            "leases and renames were not tried, since there is no archive yet",
            "run this again after the first reset",
        );
    } else if super::unwritable(archive, "").is_some() {
        report.warn(
            "leases and renames were not tried, since the archive cannot be written",
            "run this again when it can",
        );
    } else {
        try_out(report, archive);
    }
    about_leases_of_others(report, agents, world);
    about_blind_file_systems(report, engine, agents);
}

fn try_out(report: &mut DoctorReport, archive: &Path) {
    match lease(archive) {
        Ok((nameless, lease)) => {
            match nameless {
                true => report.ok("the archive's file system has nameless files"),
                false => report.warn(
                    "the archive's file system has no nameless files",
                    "entries are written under random names first; nothing is lost",
                ),
            }
            match lease {
                Lease::Granted => report.ok("file leases work on our own files"),
                Lease::Held | Lease::Unavailable => report.warn(
                    "file leases do not work in the archive",
                    "where they do not work beside a memory, late writers are waited for blindly",
                ),
            }
        }
        Err(error) => report.error(&error),
    }
    match exchange(archive) {
        Ok(true) => report.ok("the archive's file system exchanges two files in one step"),
        Ok(false) => report.warn(
            "the archive's file system cannot exchange two files",
            "on such a file system a memory is absent for a moment while it is reset",
        ),
        Err(error) => report.error(&error),
    }
}

fn about_leases_of_others(report: &mut DoctorReport, agents: &[Agent], world: &Environment) {
    let uid = world.env.uid;
    let others = agents
        .iter()
        .filter(|agent| reach::owner(agent).is_some_and(|owner| owner != uid));
    let number = others.count();
    let agents = count(number, "agent");
    match (number, has_capability(CAP_LEASE)) {
        (0, _) => {}
        (_, Some(false)) => report.warn(
            format!(
                "the files of {agents} belong to other users, and we lack CAP_LEASE: \
                 late writers cannot be detected there"
            ),
            "run resets as root, or give the service AmbientCapabilities=CAP_LEASE",
        ),
        _ => report.ok(format!(
            "CAP_LEASE is there for the files of {agents} of other users"
        )),
    }
}

/// File systems on which leases prove nothing.
fn about_blind_file_systems(report: &mut DoctorReport, engine: &Engine, agents: &[Agent]) {
    let mut blind: BTreeMap<String, usize> = BTreeMap::new();
    let agents = agents.iter();
    // On a host that is how it is always done.
    let local = agents.filter(|agent| agent.place.host().is_none());
    for why in local.filter_map(|agent| engine.unwatched(agent)) {
        *blind.entry(why).or_default() += 1;
    }
    for (why, number) in blind {
        report.warn(
            format!(
                "late writers cannot be detected beside the memory of {}: {why}",
                count(number, "agent")
            ),
            "run resets on the machine that has the files on its own disk; elsewhere a displaced \
             file is read again after 250 ms before it is removed",
        );
    }
}

/// Whether a file without a name can be made, and what became of a lease on it.
fn lease(folder: &Path) -> Result<(bool, Lease), Error> {
    let failed = |error: std::io::Error| Error::io("try a file in", folder, &error);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let made = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR);
    let nameless = made.is_ok();
    // Deleted already where it had to have a name.
    let writable = match made {
        Ok(file) => File::from(file),
        Err(_) => tempfile::tempfile_in(folder).map_err(failed)?,
    };
    // A read lease wants a file that nobody has open for writing, we included.
    let again = format!("/proc/self/fd/{}", writable.as_raw_fd());
    let readable = File::open(again).map_err(failed)?;
    drop(writable);
    let lease = sys::take_lease(readable.as_fd());
    if lease == Lease::Granted {
        sys::release_lease(readable.as_fd());
    }
    Ok((nameless, lease))
}

/// Whether two files in a folder of their own inside `archive` can be exchanged.
fn exchange(archive: &Path) -> Result<bool, Error> {
    let failed = |error| Error::io("try to exchange two files in", archive, &error);
    let folder = trial_folder(archive).map_err(failed)?;
    let (one, two) = (folder.path().join("1"), folder.path().join("2"));
    fs::write(&one, "1").map_err(failed)?;
    fs::write(&two, "2").map_err(failed)?;
    match rustix::fs::renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(fs::read(&one).map_err(failed)? == b"2"),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(failed(errno.into())),
    }
}

fn trial_folder(archive: &Path) -> std::io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(".doctor-")
        .tempdir_in(archive)
}

/// Whether this process has a capability; unknown where there is no /proc.
fn has_capability(bit: u32) -> Option<bool> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & (1 << bit) != 0)
}
