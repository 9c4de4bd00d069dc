//! Commands on whole fleets.

use std::ffi::OsString;
use std::process::Command;

use tempfile::TempDir;

use crate::bench_fleet::{Fleet, median, millis};
use crate::cost::Cost;
use crate::table::Table;
use crate::{AGENTS_PER_HOST, ROLES, local_fleet, new_directory, program, search_path, sftp_hosts};

/// Number of runs of a command whose median counts.
const ROUNDS: usize = 3;

pub fn measure(table: &mut Table, size: usize) -> Option<()> {
    let directory = new_directory();
    let fleet = local_fleet(&directory, size);
    let path = search_path();
    statuses(table, "local", size, &fleet, &path, Some(500.0));
    let reset = run(&fleet, &path, &["reset", "--all"]);
    table.add("local: reset --all", "ms", size, millis(reset.wall), None);
    let unchanged = run(&fleet, &path, &["reset", "--all"]);
    table.add(
        "local: reset --all, unchanged",
        "ms",
        size,
        millis(unchanged.wall),
        None,
    );
    table.add(
        "local: reset --all, resident",
        "MB",
        size,
        reset.resident as f64 / 1024.0,
        None,
    );
    drop(directory);
    let directory = new_directory();
    let (fleet, path) = remote_fleet(&directory, size)?;
    statuses(table, "hosts", size, &fleet, &path, None);
    let reset = run(&fleet, &path, &["reset", "--all"]);
    table.add("hosts: reset --all", "ms", size, millis(reset.wall), None);
    let unchanged = run(&fleet, &path, &["reset", "--all"]);
    table.add(
        "hosts: reset --all, unchanged",
        "ms",
        size,
        millis(unchanged.wall),
        None,
    );
    Some(())
}

/// Creates a fleet of agents on hosts; returns it with the search path on which their `ssh` is.
pub fn remote_fleet(directory: &TempDir, size: usize) -> Option<(Fleet, OsString)> {
    let root = directory.path().canonicalize().unwrap();
    let path = sftp_hosts::write_ssh(&root.join("bin"))?;
    let hosts: Vec<String> = (0..size.div_ceil(AGENTS_PER_HOST))
        .map(|number| format!("host-{number:03}"))
        .collect();
    let general = "remote_timeout = 60\n";
    let each = AGENTS_PER_HOST;
    let fleet = Fleet::on_hosts_with_roles(root.join("fleet"), general, &hosts, each, ROLES);
    fleet.set_working_states();
    Some((fleet, path))
}

/// Measures the first status of a fleet, and later ones.
fn statuses(
    table: &mut Table,
    kind: &str,
    size: usize,
    fleet: &Fleet,
    path: &OsString,
    budget: Option<f64>,
) {
    let first = run(fleet, path, &["status"]);
    table.add(
        &format!("{kind}: status, first"),
        "ms",
        size,
        millis(first.wall),
        None,
    );
    let later: Vec<Cost> = (0..ROUNDS).map(|_| run(fleet, path, &["status"])).collect();
    let resident = later.iter().map(|it| it.resident).max().unwrap_or(0) as f64 / 1024.0;
    let times = |of: fn(&Cost) -> _| millis(median(later.iter().map(of).collect()));
    let (wall, processor) = (times(|it| it.wall), times(|it| it.processor));
    table.add(
        &format!("{kind}: status, unchanged"),
        "ms",
        size,
        wall,
        budget,
    );
    table.add(
        &format!("{kind}: status, processor"),
        "ms",
        size,
        processor,
        None,
    );
    table.add(
        &format!("{kind}: status, resident"),
        "MB",
        size,
        resident,
        None,
    );
}

/// Runs a command, which must succeed.
pub fn run(fleet: &Fleet, path: &OsString, arguments: &[&str]) -> Cost {
    let mut command = Command::new(program());
    command.env_clear().env("PATH", path);
    command.args(arguments).arg("-q").arg("--config");
    Cost::of_prepared(command.arg(fleet.config_path()))
}
