//! Checks of the directories that the config names, of those of the agents, and of shared files.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Access;
use rustix::io::Errno;

use super::{DoctorReport, FleetSubject};
use crate::base::error::{self, Error};
use crate::base::invocation::quote_operand;
use crate::cli::output::format_count;
use crate::config::{self, Agent};
use crate::engine;

/// Formats owner and mode: "uid 1000, mode 0755".
fn describe_owner(meta: &fs::Metadata) -> String {
    format!(
        "uid {}, mode {:04o}",
        meta.uid(),
        meta.permissions().mode() & 0o7777
    )
}

pub(super) fn check_directories(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let general = &fleet.engine.config().general;
    for (key, directory) in [
        ("baseline_dir", &general.baseline_dir),
        ("archive_dir", &general.archive_dir),
    ] {
        let shown = directory.display();
        match fs::metadata(directory) {
            Ok(meta) if meta.is_dir() => {
                report.add_ok(format!("{key} {shown}, {}", describe_owner(&meta)));
                report_symlink(report, key, directory);
            }
            Ok(_) => report.add_failure(format!("{key} {shown} is not a directory"), ""),
            Err(error) if error.kind() == io::ErrorKind::NotFound && key == "archive_dir" => {
                if !report_symlink(report, key, directory) {
                    report.add_ok(format!(
                        "{key} {shown} does not exist yet; the first reset creates it"
                    ));
                }
            }
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && key == "baseline_dir"
                    && !fleet.has_baselines() =>
            {
                report.add_ok(format!("{key} {shown} does not exist; no agent needs it"));
            }
            Err(error) => report.add_error(&Error::from_io("stat", directory, &error)),
        }
    }
    let archive = &general.archive_dir;
    // A reset creates missing directories in the last existing one.
    let existing = archive.ancestors().find(|directory| directory.exists());
    if let Some((why, hint)) = existing
        .filter(|there| there.is_dir())
        .and_then(|there| write_obstacle(there, "run as the user that owns it"))
    {
        report.add_failure(format!("{why}; no agent can be reset"), &hint);
    }
    if let Ok(meta) = fs::metadata(archive)
        && general.archive_group.is_none()
        && meta.mode() & 0o077 != 0
    {
        report.add_warning(
            format!("others can read {}", archive.display()),
            &format!("chmod 700 {}", quote_operand(archive)),
        );
    }
}

/// Returns why nothing can be written in a directory, with a hint. `access_hint` is the hint for
/// missing permission.
pub(super) fn write_obstacle(directory: &Path, access_hint: &str) -> Option<(String, String)> {
    let errno = rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).err()?;
    let (directory, operand) = (directory.display(), quote_operand(directory));
    Some(match errno {
        Errno::ROFS => (
            format!("{directory} is on a read-only file system"),
            "remount it for writing; the kernel may have made it read-only after an error: \
             see dmesg"
                .to_string(),
        ),
        // access(2) returns EPERM for an immutable directory.
        Errno::PERM => (
            format!("{directory} is immutable"),
            format!("chattr -i {operand}"),
        ),
        Errno::ACCESS => (
            format!("cannot write {directory}: permission denied"),
            access_hint.to_string(),
        ),
        errno => {
            let cause = error::describe_io_error(&errno.into());
            (format!("cannot write {directory}: {cause}"), String::new())
        }
    })
}

/// Reports a symlink in a configured path, since the engine follows none. Returns whether there is
/// one.
fn report_symlink(report: &mut DoctorReport, what: &str, path: &Path) -> bool {
    let Some(real) = engine::resolve_first_symlink(path) else {
        return false;
    };
    report.add_failure(
        format!("{what} {} is reached through a symlink", path.display()),
        &format!("write its real path into the config: {}", real.display()),
    );
    true
}

/// Reports the file systems of local memories that do not answer; no other check touches these.
pub(super) fn check_file_systems(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    for (error, agents) in &fleet.silent_file_systems {
        let names = agents.join(", ");
        let message = format!("{error}; cannot read or reset {names}");
        report.add_unreachable(message, error.hints().first().map_or("", |it| it));
    }
    report.add_ok_if_silent("the file systems of all local memories answer");
}

pub(super) fn check_agent_directories(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let engine = fleet.engine;
    let mut ok_count = 0;
    let mut in_place_count = 0;
    // Hosts have checks of their own.
    for agent in &fleet.answering_agents {
        let mut refusal = None;
        if agent.reset.is_some() {
            let degradation = engine.memory_checks().replacement_degradation(agent);
            in_place_count += usize::from(matches!(degradation, Ok(Some(_))));
            refusal = degradation.err();
        }
        let directories = agent.local_directories();
        let checked = directories
            .iter()
            .map(|(_, directory)| check_agent_directory(report, agent, directory, &mut refusal))
            .filter(|is_ok| *is_ok);
        ok_count += usize::from(!directories.is_empty() && checked.count() == directories.len());
        // For the directories that the config names, this is a config error.
        for (_, directory) in directories {
            if engine.config().path.starts_with(directory) {
                report.add_failure(
                    format!(
                        "the config is inside the directory of {}, {}",
                        agent.name,
                        directory.display()
                    ),
                    "move it to a directory that no agent writes to",
                );
            }
        }
    }
    if ok_count > 0 {
        let agents = format_count(ok_count, "agent");
        report.add_ok(format!(
            "directories of {agents} exist, are writable and contain no symlinks"
        ));
    }
    if in_place_count > 0 {
        let agents = format_count(in_place_count, "agent");
        report.add_warning(
            format!("memories of {agents} are mount points and are written in place"),
            "a crash during the write leaves a memory half written until the next run; mount \
             the directories instead",
        );
    }
}

/// Reports memories that several agents share, by configuration or by hard links, and hard links to
/// baselines.
pub(super) fn check_shared_files(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let links = fleet
        .engine
        .shared_memories()
        .hard_links(&fleet.answering_agents);
    for names in &fleet.sharing_groups {
        report.add_failure(
            format!("{} share one memory file", names.join(" and ")),
            "give each a file of its own; none of them is reset until then",
        );
    }
    for (baseline, agents) in links.to_baselines {
        report.add_failure(
            format!(
                "the memory of {} is a hard link to the baseline {}: writes to the memory change \
                 the baseline",
                agents.join(" and "),
                baseline.display()
            ),
            "review the baseline, then give it a file of its own: cp it to another name, and mv \
             the copy back",
        );
    }
    for (baseline, count) in links.of_baselines {
        let names = format_count(count, "other name");
        report.add_warning(
            format!(
                "the baseline {} has {names} (hard links): a save gives it a file of its own, and \
                 leaves the text from before to the others",
                baseline.display()
            ),
            &format!(
                "find them with `find / -xdev -samefile {}`, and make them copies or symlinks",
                baseline.display()
            ),
        );
    }
    for agents in links.to_each_other {
        report.add_warning(
            format!(
                "the memories of {} are hard links to one file: each agent reads what the others \
                 write",
                agents.join(" and ")
            ),
            "a reset gives each a file of its own",
        );
    }
    report.add_ok_if_silent("no memory is shared, and none is a hard link to a baseline");
}

/// Reports agents that keep their entries in one directory.
pub(super) fn check_entry_directories(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    let agents = &fleet.engine.config().agents;
    for shared in config::shared_entry_directories(agents) {
        report.add_warning(shared.to_string(), config::SHARED_ENTRY_DIRECTORY_HINT);
    }
    report.add_ok_if_silent("each agent has an archive directory of its own");
}

/// Reports memories inside the archive, the baselines or each other's directories.
pub(super) fn check_misplaced_memories(report: &mut DoctorReport, fleet: &FleetSubject<'_>) {
    for (agent, error) in fleet.engine.memory_checks().misplaced_memories() {
        report.add_error(&error.with_context(&agent.name));
    }
    report.add_ok_if_silent("every memory is named by a path that can be a memory");
}

/// Checks a directory of an agent of this machine; the first that can be written reports why no
/// reset can replace the memory. Returns whether all is well.
fn check_agent_directory(
    report: &mut DoctorReport,
    agent: &Agent,
    directory: &Path,
    refusal: &mut Option<Error>,
) -> bool {
    let name = agent.name.as_str();
    // The target of a symlink is not examined: an agent may have created the link.
    if report_symlink(report, &format!("the directory of {name},"), directory) {
        return false;
    }
    match fs::metadata(directory) {
        Ok(meta) if meta.is_dir() => {
            // The check of the directory reports a read-only file system.
            let is_read_only = rustix::fs::access(directory, Access::WRITE_OK) == Err(Errno::ROFS);
            if let Some(error) = refusal.take_if(|_| !is_read_only) {
                report.add_error(&error.with_context(name));
                return false;
            }
            let advice = "run as root, or as the user of the agent";
            let Some((why, hint)) = write_obstacle(directory, advice) else {
                return true;
            };
            let act = if agent.reset.is_some() {
                "reset"
            } else {
                "changed"
            };
            report.add_failure(format!("{why}; {name} cannot be {act}"), &hint);
        }
        Ok(_) => report.add_failure(
            format!(
                "the directory of {name}, {}, is not a directory",
                directory.display()
            ),
            "",
        ),
        Err(error) => report.add_error(
            &Error::from_io("stat", directory, &error)
                .with_context(format!("the directory of {name}")),
        ),
    }
    false
}
