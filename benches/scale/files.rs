//! A cold reset of one agent, and the files of the archive.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use memory_shepherd::base::clock::SystemClock;
use rustix::time::{ClockId, clock_gettime};

use crate::bench_engine::engine_of;
use crate::bench_fleet::{Fleet, millis};
use crate::commands::run;
use crate::measure::median;
use crate::table::Table;
use crate::{ROLES, keys, local_fleet, new_directory, search_path, start_console};

/// Number of runs whose median counts.
const ROUNDS: usize = 9;

pub fn measure(table: &mut Table, size: usize) -> Option<()> {
    let directory = new_directory();
    let fleet = local_fleet(&directory, size);
    let path = search_path();
    let ten = Fleet::local_with_roles(fleet.root.join("ten"), 10, ROLES);
    ten.set_working_states();
    let cold = |table: &mut Table, what: &str| {
        fleet.note(&fleet.agents[0]);
        let command = run(&fleet, &path, &["reset", &fleet.agents[0]]);
        let time = millis(command.processor);
        table.add(&format!("reset of one, {what}"), "ms", size, time, None);
        let (reset, few) = (cold_reset(&fleet), cold_reset(&ten));
        table.add(&format!("{what}, beside config"), "ms", size, reset, None);
        table.add(
            &format!("{what}, beyond ten agents"),
            "ms",
            size,
            reset - few,
            Some(2.0),
        );
    };
    let began = process_time();
    drop(engine_of(&fleet, Arc::new(SystemClock)));
    table.add(
        "config load",
        "ms",
        size,
        millis(process_time() - began),
        None,
    );
    cold(table, "empty archive");
    for _ in 0..2 {
        fleet.agents.iter().for_each(|agent| fleet.note(agent));
        run(&fleet, &path, &["reset", "--all"]);
    }
    cold(table, "two entries each");
    fleet_file(table, size, &fleet);
    let own = fleet.root.join("archives/.shepherd");
    for (what, name) in [
        ("ledger.jsonl", "ledger.jsonl"),
        ("ledger.index", "ledger.index"),
    ] {
        table.add(what, "MB", size, megabytes(&own.join(name)), None);
    }
    for (what, arguments) in [
        ("archive list", &["archive", "list"][..]),
        (
            "archive prune --dry-run",
            &["archive", "prune", "--dry-run"],
        ),
        ("log", &["log"]),
        ("verify", &["verify"]),
    ] {
        let cost = run(&fleet, &path, arguments);
        table.add(what, "ms", size, millis(cost.wall), None);
    }
    fs::remove_file(own.join("ledger.index")).unwrap();
    let cost = run(&fleet, &path, &["log"]);
    table.add("log, without index", "ms", size, millis(cost.wall), None);
    Some(())
}

/// Returns the processor time of a reset of one agent by a new engine, beside loading its config.
fn cold_reset(fleet: &Fleet) -> f64 {
    let agent = &fleet.agents[..1];
    let mut times = Vec::new();
    // The first round makes directories.
    for round in 0..=ROUNDS {
        fleet.note(&agent[0]);
        let engine = engine_of(fleet, Arc::new(SystemClock));
        let began = process_time();
        let plan = engine.planner().plan_unobserved(agent, false).unwrap();
        let report = engine
            .runs()
            .apply_plan(&plan, false, &AtomicBool::new(false), &mut |_| {});
        assert_eq!(report.worst_kind(), None, "{:?}", report.errors);
        times.extend((round > 0).then_some(millis(process_time() - began)));
    }
    median(times)
}

/// Returns the processor time of all threads of this process.
fn process_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn megabytes(path: &Path) -> f64 {
    fs::metadata(path).map_or(f64::NAN, |it| it.len() as f64 / 1e6)
}

/// Measures the file of what a console saw last.
fn fleet_file(table: &mut Table, size: usize, fleet: &Fleet) {
    let mut console = start_console(fleet, &search_path());
    keys::wait_until_live(&mut console);
    console.quit(b"q");
    let path = fleet.root.join("archives/.shepherd/fleet.jsonl");
    table.add("fleet.jsonl", "MB", size, megabytes(&path), None);
    let engine = engine_of(fleet, Arc::new(SystemClock));
    let began = Instant::now();
    let seen = engine.observer().load_observations();
    table.add(
        "fleet.jsonl read",
        "ms",
        size,
        millis(began.elapsed()),
        None,
    );
    assert_eq!(seen.len(), fleet.agents.len());
    let began = Instant::now();
    engine
        .observer()
        .save_observations(seen.iter().map(|seen| &**seen))
        .unwrap();
    table.add(
        "fleet.jsonl written",
        "ms",
        size,
        millis(began.elapsed()),
        None,
    );
}
