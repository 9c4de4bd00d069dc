//! The metrics of a fleet, in the text format of Prometheus: states, sizes, times of the last resets,
//! the archive's disk. `docs/alerts.md` lists them.

mod exposition;

use std::path::Path;

use chrono::{DateTime, Duration, FixedOffset};
use rustix::fs::Mode;

use crate::archive::DiskSpace;
use crate::base::durable::{OperatorDirectory, ReplacedFile};
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::Agent;
use crate::engine::{Engine, Observation, State};
use exposition::{Exposition, MetricFamily};

/// How far back a last successful reset is looked for.
const SUCCESS_WINDOW: Duration = Duration::days(31);

/// The time of which runs are counted.
const RUN_WINDOW: Duration = Duration::days(1);

/// Mode of the file: the collector runs as another user.
const FILE_MODE: Mode = Mode::RUSR
    .union(Mode::WUSR)
    .union(Mode::RGRP)
    .union(Mode::ROTH);

/// The command that writes metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsCommand {
    /// Its name.
    pub name: &'static str,
    /// Its exit code.
    pub exit_code: u8,
}

/// How often a file is replaced that other runs keep replacing.
const MAX_REPLACE_ATTEMPTS: usize = 16;

/// Writes the metrics of agents that were observed to a file, which is replaced as a whole. Only an
/// earlier metrics file, or an empty one, is replaced: not a memory, nor a device.
///
/// # Errors
/// The file cannot be written, or is another one.
pub fn write_metrics(
    engine: &Engine,
    path: &Path,
    command: MetricsCommand,
    observations: &[Observation],
) -> Result<()> {
    if path.file_name().is_none() {
        let message = format!("--metrics {}: it names no file", path.display());
        return Err(Error::new(ErrorKind::User, message));
    }
    let (directory, name) = OperatorDirectory::open_parent(path).map_err(add_directory_hint)?;
    let text = format_metrics(engine, command, observations);
    let mut attempts = 0;
    loop {
        attempts += 1;
        let old = directory.read_file(name).map_err(add_replaceable_hint)?;
        check_replaceable(&directory.path().join(name), old.as_deref())?;
        let replaced = ReplacedFile::Known(old.as_deref());
        match directory.replace_file(name, replaced, text.as_bytes(), FILE_MODE) {
            // Another run has written its metrics since.
            Err(error)
                if error.kind() == ErrorKind::Conflict && attempts < MAX_REPLACE_ATTEMPTS => {}
            written => {
                written.map_err(add_directory_hint)?;
                directory.remove_leftovers([name]);
                return Ok(());
            }
        }
    }
}

/// Adds what a directory needs, unless it is refused for another reason.
fn add_directory_hint(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Host => error.with_hint("--metrics needs a directory that this user may write"),
        _ => error,
    }
}

/// Checks that a file is absent, empty or begins as metrics do.
fn check_replaceable(file: &Path, content: Option<&[u8]>) -> Result<()> {
    let is_replaceable = |it: &[u8]| it.is_empty() || it.starts_with(exposition::FIRST_BYTES);
    if content.is_none_or(is_replaceable) {
        return Ok(());
    }
    let message = format!(
        "cannot replace {}: it is not a metrics file",
        file.display()
    );
    Err(add_replaceable_hint(Error::new(ErrorKind::User, message)))
}

fn add_replaceable_hint(error: Error) -> Error {
    error.with_hint("name a new file, or one that --metrics wrote; nothing was changed")
}

/// Returns the metrics of agents that were observed.
pub fn format_metrics(
    engine: &Engine,
    command: MetricsCommand,
    observations: &[Observation],
) -> String {
    let config = engine.config();
    let mut page = Exposition::new(&config.general.fleet_name);
    let now = engine.clock().now();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.gauge("info", "The program, as a label.")
        .add(&version, 1.0);
    let of_command = [("command", command.name)];
    page.gauge(
        "command_exit_code",
        "Exit code of the command that wrote this.",
    )
    .add(&of_command, f64::from(command.exit_code));
    page.gauge("command_timestamp_seconds", "When it ended.")
        .add(&of_command, unix_seconds(now));
    let mut rows: Vec<(&Agent, &Observation)> = observations
        .iter()
        .filter_map(|seen| Some((config.agent(&seen.agent)?, seen)))
        .collect();
    rows.sort_by_key(|(agent, _)| &agent.name);
    add_states(&mut page, &rows);
    add_contents(&mut page, &rows);
    add_runs(&mut page, engine, &rows, now);
    add_archive(&mut page, engine, &rows);
    page.into_text()
}

/// Adds one value for each agent that has it.
fn add_agents(
    family: &mut MetricFamily<'_>,
    rows: &[(&Agent, &Observation)],
    value: impl Fn(&Agent, &Observation) -> Option<f64>,
) {
    for (agent, seen) in rows {
        if let Some(value) = value(agent, seen) {
            family.add(&[("agent", &agent.name), ("host", &seen.host)], value);
        }
    }
}

fn add_states(page: &mut Exposition, rows: &[(&Agent, &Observation)]) {
    let mut family = page.gauge(
        "agent_state",
        "1 for the state that an agent is in, else 0.",
    );
    for (agent, seen) in rows {
        for state in State::ALL.into_iter().filter(|it| *it != State::Loading) {
            let labels = [
                ("agent", agent.name.as_str()),
                ("host", &seen.host),
                ("state", state.as_str()),
            ];
            family.add(&labels, f64::from(u8::from(seen.state == state)));
        }
    }
    let help = "Findings of the last check of the memory of several files, by severity.";
    let mut family = page.gauge("agent_health_findings", help);
    for (agent, seen) in rows {
        let Some(health) = &seen.health else { continue };
        for (severity, count) in [("error", health.errors), ("warning", health.warnings)] {
            let labels = [
                ("agent", agent.name.as_str()),
                ("host", &seen.host),
                ("severity", severity),
            ];
            family.add(&labels, whole(count as u64));
        }
    }
    let help = "1 if the memory was read, else 0.";
    add_agents(&mut page.gauge("agent_read", help), rows, |_, seen| {
        Some(f64::from(u8::from(seen.is_content_known())))
    });
    let help = "1 if a reset is refused now, else 0.";
    add_agents(
        &mut page.gauge("agent_blocked", help),
        rows,
        |agent, seen| {
            // A memory is replaced only if the ledger can record that.
            let is_blocked = seen.blocker.is_some() || seen.ledger_error.is_some();
            agent
                .reset
                .is_some()
                .then(|| f64::from(u8::from(is_blocked)))
        },
    );
}

fn add_contents(page: &mut Exposition, rows: &[(&Agent, &Observation)]) {
    let help = "Size of the memory.";
    add_agents(
        &mut page.gauge("agent_memory_bytes", help),
        rows,
        |_, seen| Some(whole(seen.content.as_ref()?.size)),
    );
    let help = "Size from which the memory is OVERSIZE.";
    let mut family = page.gauge("agent_memory_limit_bytes", help);
    add_agents(&mut family, rows, |agent, seen| {
        agent.reset.is_some().then(|| whole(seen.max_size))
    });
    let help = "Lines below the separator.";
    let mut family = page.gauge("agent_scratch_lines", help);
    add_agents(&mut family, rows, |_, seen| {
        let content = seen.content.as_ref().filter(|_| seen.is_scratch_known())?;
        Some(whole(content.scratch_lines))
    });
}

fn add_runs(
    page: &mut Exposition,
    engine: &Engine,
    rows: &[(&Agent, &Observation)],
    now: DateTime<FixedOffset>,
) {
    let last_run = |seen: &Observation| {
        let last = seen.last_run.as_ref()?;
        Some((last.time, last.outcome.is_failure()))
    };
    let help = "When the last reset, push or undo ended.";
    let mut family = page.gauge("agent_last_run_timestamp_seconds", help);
    add_agents(&mut family, rows, |_, seen| {
        last_run(seen).map(|(time, _)| unix_seconds(time))
    });
    let help = "1 if it failed or was refused, else 0.";
    let mut family = page.gauge("agent_last_run_failed", help);
    add_agents(&mut family, rows, |_, seen| {
        last_run(seen).map(|(_, is_failure)| f64::from(u8::from(is_failure)))
    });
    let limit = now - SUCCESS_WINDOW;
    if let Ok(successes) = engine.history().last_successes(limit) {
        let help = "When an agent was last reset or pushed to with success, within 31 days.";
        let mut family = page.gauge("agent_last_reset_timestamp_seconds", help);
        add_agents(&mut family, rows, |agent, _| {
            let time = successes.get(&agent.name).filter(|time| **time >= limit);
            time.map(|time| unix_seconds(*time))
        });
    }
    if let Ok(runs) = engine.history().count_runs(now - RUN_WINDOW) {
        let help = "Runs of the last 24 hours, by result.";
        let mut family = page.gauge("runs", help);
        family.add(&[("result", "ok")], whole(runs.ok as u64));
        family.add(&[("result", "failed")], whole(runs.failed as u64));
    }
}

fn add_archive(page: &mut Exposition, engine: &Engine, rows: &[(&Agent, &Observation)]) {
    let usage: Vec<Option<(usize, u64)>> = rows
        .iter()
        .map(|(agent, _)| engine.entries().archive_usage(agent).1.ok())
        .collect();
    let mut add_usage = |name, help, value: &dyn Fn((usize, u64)) -> f64| {
        let mut family = page.gauge(name, help);
        for ((agent, seen), usage) in rows.iter().zip(&usage) {
            if let Some(usage) = usage {
                let labels = [("agent", agent.name.as_str()), ("host", &seen.host)];
                family.add(&labels, value(*usage));
            }
        }
    };
    let help = "Number of archive entries.";
    add_usage("agent_archive_entries", help, &|(count, _)| {
        whole(count as u64)
    });
    let help = "Size of the archive entries.";
    add_usage("agent_archive_bytes", help, &|(_, bytes)| whole(bytes));
    // Without the archive, the file system is another one.
    let is_there = engine.archive().check_expected().is_ok();
    if let Some(space) = DiskSpace::of(engine.archive().root()).filter(|_| is_there) {
        page.gauge(
            "archive_free_bytes",
            "Free space of the archive's file system.",
        )
        .add(&[], whole(space.free_bytes));
        page.gauge("archive_size_bytes", "Size of the archive's file system.")
            .add(&[], whole(space.total_bytes));
    }
}

/// Converts a number; above 2^53 the nearest one that the format has.
fn whole(number: u64) -> f64 {
    number as f64
}

fn unix_seconds(time: DateTime<FixedOffset>) -> f64 {
    time.timestamp() as f64
}
