//! `status`: one line for each agent, worst first.

pub(super) mod watch;

use std::io;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::metrics_file::{MetricsFlags, write_metrics};
use super::output::{
    Document, OutputRole, Printer, TableCell, format_count, heading_cells, number_cell, text_cell,
};
use super::{CommandContext, CommandResult};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::moment::Zone;
use crate::base::quantity::{format_age, format_size};
use crate::base::threads::map_on_processors;
use crate::base::untrusted::HiddenCounts;
use crate::boundary::Boundary;
use crate::cli::observation::observe_worst_first;
use crate::cli::schedule::hold::{HoldItem, schedule_holds, write_holds};
use crate::engine::{
    Blocker, Engine, KnownHealth, LastRun, LockHolder, Observation, Outcome, Protection, State,
};
use crate::lint::ScanSummary;

/// Arguments of `status`.
#[derive(Debug, Default, clap::Args)]
pub(super) struct StatusArgs {
    /// Shows only these agents
    #[arg(value_name = "AGENT")]
    pub(super) agents: Vec<String>,
    /// Also exits with 1 if an agent is DRIFTED, NOSEP, MISSING, ILL or OVERSIZE
    #[arg(long)]
    exit_code: bool,
    /// Prints each state as a line, then a line for each that changes, until it is stopped
    #[arg(long, conflicts_with_all = ["exit_code", "file"])]
    watch: bool,
    #[command(flatten)]
    metrics: MetricsFlags,
}

/// The answer of `status`.
#[derive(Serialize)]
pub(super) struct StatusDocument {
    config: String,
    fleet: String,
    tag: Option<String>,
    time: DateTime<FixedOffset>,
    agents: Vec<StatusRow>,
    /// Pauses and skips of scheduled resets.
    holds: Vec<HoldItem>,
    ledger_error: Option<String>,
    /// Error kind of the broken ledger, for the exit code.
    #[serde(skip)]
    ledger_kind: Option<ErrorKind>,
}

/// One agent in the answer.
#[derive(Serialize)]
struct StatusRow {
    agent: String,
    host: String,
    state: State,
    /// When this state was first seen.
    since: Option<DateTime<FixedOffset>>,
    #[serde(rename = "why")]
    reason: String,
    /// Whether the memory was read.
    #[serde(rename = "read")]
    is_read: bool,
    blocked: Option<Blocker>,
    /// The run that holds the agent's lock, if it has written who it is.
    lock: Option<LockStatus>,
    #[serde(rename = "protect")]
    protection: Protection,
    #[serde(rename = "limit")]
    max_memory_size: u64,
    memory: Option<MemoryStatus>,
    health: Option<KnownHealth>,
    baseline: Option<Digest>,
    #[serde(rename = "last")]
    last_run: Option<LastRun>,
    #[serde(skip)]
    hints: Vec<String>,
}

/// A lock that a run holds.
#[derive(Serialize)]
struct LockStatus {
    #[serde(flatten)]
    holder: LockHolder,
    held_seconds: u64,
}

/// Content of the memory.
#[derive(Serialize)]
struct MemoryStatus {
    size: u64,
    lines: u64,
    sha256: Digest,
    changed: DateTime<FixedOffset>,
    boundary: Option<Boundary>,
    scratch_lines: Option<u64>,
    scratch_bytes: Option<u64>,
    hidden: HiddenCounts,
    /// What the scan found in what the agent wrote.
    findings: ScanSummary,
}

impl StatusRow {
    /// Makes the rows of observations.
    fn of_all(observations: Vec<Observation>, engine: &Engine) -> Vec<StatusRow> {
        let known_since = engine.observations().states_since(&observations);
        let (now, zone) = (engine.clock().now(), engine.clock().zone());
        let rows = observations.into_iter().zip(known_since);
        rows.map(|(seen, since)| StatusRow::new(seen, since, now, zone))
            .collect()
    }

    fn new(
        observation: Observation,
        since: Option<DateTime<FixedOffset>>,
        now: DateTime<FixedOffset>,
        zone: Zone,
    ) -> StatusRow {
        let read = observation.is_content_known();
        let is_scratch_known = observation.is_scratch_known();
        StatusRow {
            is_read: read,
            memory: observation.content.map(|content| MemoryStatus {
                size: content.size,
                lines: content.lines,
                sha256: content.sha256,
                changed: zone.at(DateTime::from_timestamp_nanos(content.modified_ns)),
                boundary: content.boundary,
                scratch_lines: is_scratch_known.then_some(content.scratch_lines),
                scratch_bytes: is_scratch_known.then_some(content.scratch_bytes),
                hidden: content.hidden,
                findings: content.findings,
            }),
            health: observation.health,
            agent: observation.agent,
            host: observation.host,
            state: observation.state,
            since,
            reason: observation.reason,
            blocked: observation.blocker,
            lock: observation.lock_holder.map(|holder| LockStatus {
                held_seconds: holder.held_seconds(now),
                holder,
            }),
            protection: observation.protection,
            max_memory_size: observation.max_size,
            baseline: observation.baseline,
            last_run: observation.last_run,
            hints: observation.hints,
        }
    }

    /// Returns the error kind that the state stands for, which decides the exit code.
    fn error_kind(&self, counts_findings: bool) -> Option<ErrorKind> {
        let block = self.blocked.as_ref();
        let is_finding = counts_findings
            && matches!(
                self.state,
                State::Drifted | State::NoSep | State::Missing | State::Ill | State::Oversize
            );
        let kinds = [
            (!self.is_read).then(|| Blocker::kind_of_unread(block)),
            // A lock held by a running run is not an error.
            block
                .map(|it| it.kind)
                .filter(|kind| *kind != ErrorKind::Busy),
            is_finding.then_some(ErrorKind::Partial),
        ];
        kinds.into_iter().flatten().reduce(ErrorKind::more_serious)
    }

    /// Returns the full reason of the error kind: a narrow terminal cuts the column WHY.
    fn error_message(&self) -> Option<String> {
        let kind = self.error_kind(false)?;
        let agent = &self.agent;
        if !self.is_read && kind != ErrorKind::Conflict {
            return Some(format!(
                "cannot read the memory of {agent}: {}",
                self.reason
            ));
        }
        let why = self
            .blocked
            .as_ref()
            .map_or(&self.reason, |block| &block.reason);
        Some(format!("{agent} cannot be reset: {why}"))
    }

    /// Returns hints about the state.
    fn hints(&self) -> impl Iterator<Item = &String> {
        let block = self.blocked.iter().filter(|it| it.kind != ErrorKind::Busy);
        block.flat_map(|block| &block.hints).chain(&self.hints)
    }

    fn to_cells(&self, now: DateTime<FixedOffset>, is_ledger_broken: bool) -> Vec<TableCell> {
        let mut row = vec![
            text_cell(state_role(self.state), self.state.as_str()),
            text_cell(OutputRole::Plain, &self.agent),
            text_cell(OutputRole::Plain, &self.host),
        ];
        let number = |text: String| number_cell(OutputRole::Plain, text);
        let unknown = || number_cell(OutputRole::Dim, "-");
        match &self.memory {
            Some(memory) => {
                let percent = memory.size.saturating_mul(100) / self.max_memory_size.max(1);
                let limit_role = if memory.size > self.max_memory_size {
                    OutputRole::Bad
                } else {
                    OutputRole::Plain
                };
                let scratch = memory.scratch_lines.map(|lines| number(lines.to_string()));
                let above = memory.boundary.map(|boundary| {
                    let (added, removed) = (boundary.added_lines, boundary.removed_lines);
                    if boundary.is_drifted() {
                        number_cell(OutputRole::Bad, format!("+{added} -{removed}"))
                    } else {
                        number("0".to_string())
                    }
                });
                row.extend([
                    number(format_size(memory.size)),
                    number_cell(limit_role, format!("{percent}%")),
                    scratch.unwrap_or_else(unknown),
                    above.unwrap_or_else(unknown),
                    number(format_age((now - memory.changed).num_seconds(), 1)),
                ]);
            }
            None => row.extend((0..5).map(|_| unknown())),
        }
        row.push(match &self.last_run {
            Some(last) => text_cell(outcome_role(last.outcome), format_last_run(last, now)),
            None => text_cell(OutputRole::Dim, if is_ledger_broken { "?" } else { "-" }),
        });
        let findings = self.memory.as_ref().map(|memory| &memory.findings);
        let why = describe_why(&self.reason, findings);
        row.push(text_cell(OutputRole::Plain, why));
        row
    }
}

impl StatusDocument {
    /// Returns the columns that a narrow terminal drops, least important first.
    fn expendable_columns(&self) -> Vec<usize> {
        let [host, size, limit, scratch, above, changed, last] = [2, 3, 4, 5, 6, 7, 8];
        // A column of equal values goes first.
        let blank_host = self.agents.iter().all(|row| row.host == "local");
        let first = blank_host.then_some(host);
        let others = [limit, changed, last, size, host, above, scratch];
        first.into_iter().chain(others).collect()
    }

    /// Returns the error kind of the whole answer: whether the ledger can be trusted, every agent
    /// can be read, and every agent can be reset; with `counts_findings` also whether an operator
    /// should look at an agent.
    fn error_kind(&self, counts_findings: bool) -> Option<ErrorKind> {
        let kinds = self
            .agents
            .iter()
            .filter_map(|row| row.error_kind(counts_findings));
        let ledger = self.ledger_kind.into_iter();
        ledger.chain(kinds).reduce(ErrorKind::more_serious)
    }
}

impl Document for StatusDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let titles = [
            "STATE", "AGENT", "HOST", "SIZE", "LIM", "SCRATCH", "ABOVE---", "CHANGED", "LAST",
            "WHY",
        ];
        let mut rows = vec![heading_cells(&titles, &titles[3..8])];
        let is_ledger_broken = self.ledger_error.is_some();
        let to_cells = |row: &StatusRow| row.to_cells(self.time, is_ledger_broken);
        rows.extend(map_on_processors(self.agents.iter().collect(), || to_cells));
        printer.write_table_within_width(rows, &self.expendable_columns())?;
        let mut counts = Vec::new();
        for state in State::ALL {
            let number = self.agents.iter().filter(|row| row.state == state).count();
            if number > 0 {
                counts.push(format!("{number} {state}"));
            }
        }
        let tag = self
            .tag
            .as_ref()
            .map_or(String::new(), |tag| format!(" [{tag}]"));
        let mut line = format!(
            "{}{tag}: {}",
            self.fleet,
            format_count(self.agents.len(), "agent")
        );
        if !counts.is_empty() {
            line.push_str(&format!(": {}", counts.join(", ")));
        }
        printer.write_plain_line(line)?;
        write_holds(&self.holds, printer)
    }
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &StatusArgs) -> CommandResult {
    if args.watch {
        return watch::run(context, &args.agents);
    }
    let engine = context.open_engine()?;
    let observations = observe_worst_first(&engine, &args.agents)?;
    let measured = args.metrics.file.as_ref().map(|_| observations.clone());
    let status = print_status(context, &engine, observations)?;
    let kind = status.error_kind(args.exit_code);
    let unwritten = measured.and_then(|observations| {
        write_metrics(
            context,
            &engine,
            &args.metrics,
            "status",
            &observations,
            kind,
        )
    });
    engine.end_with_process();
    let kinds = kind.into_iter().chain(unwritten);
    Ok(kinds.reduce(ErrorKind::more_serious))
}

/// Prints the states of agents, then the reasons for the exit code, and hints.
pub(super) fn print_status(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    observations: Vec<Observation>,
) -> Result<StatusDocument> {
    let general = &engine.config().general;
    let ledger_error = observations
        .iter()
        .find_map(|seen| seen.ledger_error.clone());
    let ledger_problem = ledger_error
        .as_ref()
        .and_then(|_| engine.ledger().head().err());
    let now = engine.clock().now();
    let status = StatusDocument {
        config: engine.config().path.display().to_string(),
        fleet: general.fleet_name.clone(),
        tag: general.fleet_tag.clone(),
        time: now,
        agents: StatusRow::of_all(observations, engine),
        holds: schedule_holds(context, engine, now),
        ledger_kind: ledger_error
            .is_some()
            .then(|| ledger_problem.as_ref().map_or(ErrorKind::Host, Error::kind)),
        ledger_error,
    };
    context.print_document(&status)?;
    if let Some(error) = &status.ledger_error {
        context.print_error(format!("cannot read the last runs: {error}"));
    }
    context.print_hints(ledger_problem.iter().flat_map(Error::hints));
    for trouble in status.agents.iter().filter_map(StatusRow::error_message) {
        context.print_error(&trouble);
    }
    context.print_hints(status.agents.iter().flat_map(StatusRow::hints));
    Ok(status)
}

/// Returns why an agent is in its state, and what the scan found: "rules edited: L7; 1 injection".
pub(super) fn describe_why(reason: &str, findings: Option<&ScanSummary>) -> String {
    let found = findings.map(ScanSummary::describe).unwrap_or_default();
    let parts = [reason, &found].into_iter();
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

/// Returns the colour role of a state.
pub(super) fn state_role(state: State) -> OutputRole {
    match state {
        State::Tampered
        | State::HostKey
        | State::Drifted
        | State::NoSep
        | State::Unreach
        | State::Error => OutputRole::Bad,
        State::Missing | State::Ill | State::Oversize | State::Behind | State::Busy => {
            OutputRole::Warn
        }
        State::Scratch | State::Layout => OutputRole::Plain,
        State::Clean => OutputRole::Good,
        State::Loading => OutputRole::Dim,
    }
}

/// Returns the colour role of an outcome.
pub(super) fn outcome_role(outcome: Outcome) -> OutputRole {
    match outcome {
        Outcome::Ok | Outcome::Unchanged => OutputRole::Plain,
        Outcome::Failed | Outcome::Refused => OutputRole::Bad,
        Outcome::NotStarted => OutputRole::Warn,
    }
}

/// Formats a run as "01:00 ok", with the date instead of the time if it was on another day.
fn format_last_run(last: &LastRun, now: DateTime<FixedOffset>) -> String {
    let time = last.time;
    let time_format = if time.date_naive() == now.date_naive() {
        "%H:%M"
    } else {
        "%Y-%m-%d"
    };
    format!("{} {}", time.format(time_format), last.outcome_label())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded() {
        assert_eq!(format_size(812), "812");
        assert_eq!(format_size(14_440), "14.1K");
        assert_eq!(format_size(5 << 20), "5.0M");
    }
}
