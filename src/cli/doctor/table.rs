//! The table of checks: their order, names, what each examines, and how to put right what it finds.
//! The command, its JSON and a section of docs/command-line.md come from it.

use super::{DoctorReport, DoctorSubject, FleetSubject};
use super::{
    alerts, baselines, directories, disk_space, hosts, kernel_probe, layouts, ledger, runs,
    schedule, search_index, setup, units, write_access,
};

/// A check.
pub struct CheckRow {
    /// Its name: lower-case words with hyphens.
    pub name: &'static str,
    /// What it examines, as a noun phrase.
    pub examines: &'static str,
    /// How to put right what it finds; the hint of a finding that has none of its own.
    pub remedy: &'static str,
    pub(super) check: Check,
}

/// What a check needs.
pub(super) enum Check {
    /// Nothing: it also runs without a config.
    Program(fn(&mut DoctorReport, &DoctorSubject<'_>)),
    /// A config without mistakes.
    Fleet(fn(&mut DoctorReport, &FleetSubject<'_>)),
    /// Also a group of the archive that exists, if the config names one.
    Archive(fn(&mut DoctorReport, &FleetSubject<'_>)),
}

/// All checks, in their order.
pub static CHECK_TABLE: &[CheckRow] = &[
    CheckRow {
        name: "program",
        examines: "version, kernel and user, for bug reports",
        remedy: "name them in a bug report",
        check: Check::Program(setup::report_program),
    },
    CheckRow {
        name: "preferences",
        examines: "mistakes in `console.toml`",
        remedy: "correct the line; `keys` shows the result",
        check: Check::Program(setup::check_preferences),
    },
    CheckRow {
        name: "config",
        examines: "where the config was found, its mistakes and warnings",
        remedy: "correct the line; `config check` names all of them",
        check: Check::Program(setup::check_config),
    },
    CheckRow {
        name: "agent-names",
        examines: "agents that have the name of a command",
        remedy: "use `reset NAME`, or rename the agent",
        check: Check::Fleet(setup::check_agent_names),
    },
    CheckRow {
        name: "directories",
        examines: "`baseline_dir` and `archive_dir`: existence, owner, mode, symlinks, whether runs can \
                   write there, and whether others can read the archive",
        remedy: "create the directory, name its real path, or change its mode as the hint says",
        check: Check::Fleet(directories::check_directories),
    },
    CheckRow {
        name: "file-systems",
        examines: "whether the file system of each local memory answers",
        remedy: "see what the mount waits for; its agents are left alone until it answers",
        check: Check::Fleet(directories::check_file_systems),
    },
    CheckRow {
        name: "agent-directories",
        examines: "the directories of each agent on this machine: existence, symlinks, whether \
                   runs can write there, memories that are mount points, and a config inside them",
        remedy: "create it, name its real path, or run resets as a user that can write there",
        check: Check::Fleet(directories::check_agent_directories),
    },
    CheckRow {
        name: "shared-files",
        examines: "agents with one memory file, hard links between memories or to baselines, and \
                   other names of baselines",
        remedy: "give each agent a file of its own",
        check: Check::Fleet(directories::check_shared_files),
    },
    CheckRow {
        name: "entry-directories",
        examines: "agents that keep their entries in one directory of the archive",
        remedy: "give each agent an `archive_subdir` of its own",
        check: Check::Fleet(directories::check_entry_directories),
    },
    CheckRow {
        name: "write-access",
        examines: "whether agents, a group or everyone can write the config, baselines, the archive \
                   or a directory above them; access lists",
        remedy: "run each agent as a user of its own, and take write access away as the hint says",
        check: Check::Fleet(write_access::check_write_access),
    },
    CheckRow {
        name: "group-reach",
        examines: "whether members of `archive_group` can pass through the directories above the \
                   archive",
        remedy: "run the `chgrp` and `chmod` of the hint",
        check: Check::Fleet(write_access::check_group_reach),
    },
    CheckRow {
        name: "seal",
        examines: "whether a seal covers the baselines, and its signature",
        remedy: "review the baselines, then seal them: `seal --all`",
        check: Check::Fleet(baselines::check_seal),
    },
    CheckRow {
        name: "baselines",
        examines: "baselines that resets refuse: missing, too small, not as sealed; baselines without \
                   separator; interrupted changes that cannot be recovered",
        remedy: "correct the file, or put a version back: `baseline restore`",
        check: Check::Fleet(baselines::check_baselines),
    },
    CheckRow {
        name: "lint",
        examines: "errors and warnings of the lint in baselines that refuse no reset",
        remedy: "correct the line; `lint explain ID` says why it matters",
        check: Check::Fleet(baselines::check_lint),
    },
    CheckRow {
        name: "archive-group",
        examines: "whether this machine has the `archive_group`; without it nothing below is checked",
        remedy: "correct the config, or add the group",
        check: Check::Fleet(setup::check_group_exists),
    },
    CheckRow {
        name: "memory-paths",
        examines: "a `memory_file` that names a directory, symlink, FIFO, socket or device, or is \
                   missing beside a file whose name differs only in case or the form of its characters, \
                   where no run has recorded a file",
        remedy: "name the file itself, or what the link leads to",
        check: Check::Archive(directories::check_misplaced_memories),
    },
    CheckRow {
        name: "archive",
        examines: "directories of the archive that runs cannot use or read",
        remedy: "make it a directory that only you can write",
        check: Check::Archive(ledger::check_archive_directories),
    },
    CheckRow {
        name: "archive-id",
        examines: "whether the archive is the one that `archive_id` names",
        remedy: "mount the disk that it is on, or correct the key",
        check: Check::Archive(ledger::check_archive_id),
    },
    CheckRow {
        name: "ledger",
        examines: "the chain of the ledger, its segments and its head in `reset.log`; memories that \
                   were absent during their last reset",
        remedy: "see `verify`, and restore the files from a backup",
        check: Check::Archive(ledger::check_ledger),
    },
    CheckRow {
        name: "clock",
        examines: "records of the ledger that are later than the clock",
        remedy: "compare the clock with another one, and set it",
        check: Check::Archive(ledger::check_clock),
    },
    CheckRow {
        name: "locks",
        examines: "runs that hold agents' locks: since when, for how long, and by whom; a warning from \
                   one hour on",
        remedy: "see what the process waits for; a lock is never broken, and is free once it has ended",
        check: Check::Archive(runs::check_runs),
    },
    CheckRow {
        name: "interrupted-runs",
        examines: "transaction records of runs that were interrupted, or whose agent left the config",
        remedy: "reset the agent: that recovers the run; of one that is never reset, the next operation or undo does",
        check: Check::Archive(ledger::check_journals),
    },
    CheckRow {
        name: "pins",
        examines: "lines of the pins that name no entry, which stop retention",
        remedy: "correct the line, or remove it",
        check: Check::Archive(ledger::check_pins),
    },
    CheckRow {
        name: "search-index",
        examines: "the search index: path, size, owner, format, damage, an interrupted change",
        remedy: "rebuild it: `archive reindex`; entries are untouched",
        check: Check::Archive(search_index::check_search_index),
    },
    CheckRow {
        name: "disk-space",
        examines: "free space and inodes of the archive against what was archived within the last 30 \
                   days; a warning if they last less than 60 days at that rate",
        remedy: "free space, or set a shorter `archive_retention_days`",
        check: Check::Archive(disk_space::check_disk_space),
    },
    CheckRow {
        name: "kernel",
        examines: "leases, unnamed files and exchanges of files, on the file systems of archive and \
                   memories; capabilities for files of other users",
        remedy: "run resets as root, or as the user of the agents; `docs/promises.md` says what is lost",
        check: Check::Archive(kernel_probe::check_kernel),
    },
    CheckRow {
        name: "units",
        examines: "installed units of systemd: other texts than the config asks for, units of agents \
                   that are gone, units, drop-ins and directories of the unit search path that others \
                   can change, a missing program, timers that do not run, never fired or whose last \
                   run failed",
        remedy: "`schedule install` updates them; `journalctl -u UNIT` says why a run failed",
        check: Check::Archive(units::check_units),
    },
    CheckRow {
        name: "schedule",
        examines: "agents that were not reset within two of their intervals; pauses and skips of \
                   scheduled resets; services that run the original tool",
        remedy: "`schedule resume` ends pauses; `schedule install --take-over` replaces services that run \
                 nothing else",
        check: Check::Archive(schedule::check_schedule),
    },
    CheckRow {
        name: "alerts",
        examines: "a command of the alerts that root does not run, because another user can change what \
                   it names; a process that has held the alerts for more than two minutes",
        remedy: "end the process, or let it go on; what waits is sent by the next command",
        check: Check::Archive(alerts::check_alerts),
    },
    CheckRow {
        name: "hosts",
        examines: "connections to hosts, identity files, the SSH configuration in force, missing SFTP \
                   extensions, and the memories there",
        remedy: "try `ssh HOST`; a changed host key needs your decision",
        check: Check::Archive(hosts::check_hosts),
    },
    CheckRow {
        name: "layouts",
        examines: "memories of several files: whether they can be read and have their layout, and their \
                   health; `state_dir`",
        remedy: "correct layout and memory_dir in the agent's section",
        check: Check::Archive(layouts::check_layouts),
    },
];
