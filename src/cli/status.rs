//! `status`: one line for each agent, the worst first.

use std::io;

use chrono::{DateTime, FixedOffset, TimeZone};
use serde::Serialize;

use super::output::{Cell, Document, OutputRole, Printer, cell, count, figure};
use super::{CommandContext, CommandResult};
use crate::digest::Digest;
use crate::engine::memory::Boundary;
use crate::engine::{Block, LastRun, Observation, Outcome, Protection, State};
use crate::error::Kind;
use crate::untrusted::Hidden;

/// What `status` answers.
#[derive(Serialize)]
struct Status {
    config: String,
    fleet: String,
    tag: Option<String>,
    time: DateTime<FixedOffset>,
    agents: Vec<StatusRow>,
    ledger_error: Option<String>,
    /// What that means for the exit code.
    #[serde(skip)]
    ledger_kind: Option<Kind>,
}

/// One agent.
#[derive(Serialize)]
struct StatusRow {
    agent: String,
    host: String,
    state: State,
    why: String,
    /// Whether it is known what the memory holds.
    read: bool,
    blocked: Option<Block>,
    protect: Protection,
    limit: u64,
    memory: Option<MemoryStatus>,
    baseline: Option<Digest>,
    last: Option<LastRun>,
    #[serde(skip)]
    hints: Vec<String>,
}

/// What was found in the memory.
#[derive(Serialize)]
struct MemoryStatus {
    size: u64,
    lines: u64,
    sha256: Digest,
    changed: DateTime<FixedOffset>,
    boundary: Option<Boundary>,
    scratch_lines: u64,
    scratch_bytes: u64,
    hidden: Hidden,
}

impl StatusRow {
    fn new(seen: Observation) -> StatusRow {
        let zone = *seen.read.offset();
        let read = seen.was_read();
        StatusRow {
            read,
            memory: seen.content.map(|content| MemoryStatus {
                size: content.size,
                lines: content.lines,
                sha256: content.sha256,
                changed: zone.timestamp_nanos(content.modified),
                boundary: content.boundary,
                scratch_lines: content.scratch_lines,
                scratch_bytes: content.scratch_bytes,
                hidden: content.hidden,
            }),
            agent: seen.agent,
            host: seen.host,
            state: seen.state,
            why: seen.why,
            blocked: seen.block,
            protect: seen.protect,
            limit: seen.limit,
            baseline: seen.baseline,
            last: seen.last,
            hints: seen.hints,
        }
    }

    /// What its state means for the exit code.
    fn kind(&self, by_state: bool) -> Option<Kind> {
        let block = self.blocked.as_ref();
        let finding = by_state
            && matches!(
                self.state,
                State::Drifted | State::NoSep | State::Missing | State::Oversize
            );
        let kinds = [
            (!self.read).then(|| Block::unread(block)),
            // A run that goes on is no trouble.
            block.map(|it| it.kind).filter(|kind| *kind != Kind::Busy),
            finding.then_some(Kind::Partial),
        ];
        kinds.into_iter().flatten().reduce(Kind::worst)
    }

    /// The whole reason for its part in the exit code: a narrow terminal cuts WHY.
    fn trouble(&self) -> Option<String> {
        let kind = self.kind(false)?;
        let agent = &self.agent;
        if !self.read && kind != Kind::Conflict {
            return Some(format!("{agent} could not be read: {}", self.why));
        }
        let why = self.blocked.as_ref().map_or(&self.why, |block| &block.why);
        Some(format!("{agent} cannot be reset: {why}"))
    }

    /// What can be done about its state.
    fn hints(&self) -> impl Iterator<Item = &String> {
        let block = self.blocked.iter().filter(|it| it.kind != Kind::Busy);
        block.flat_map(|block| &block.hints).chain(&self.hints)
    }

    fn cells(&self, now: DateTime<FixedOffset>, ledger_broken: bool) -> Vec<Cell> {
        let mut row = vec![
            cell(state_role(self.state), self.state.word()),
            cell(OutputRole::Plain, &self.agent),
            cell(OutputRole::Plain, &self.host),
        ];
        match &self.memory {
            Some(memory) => {
                let percent = memory.size.saturating_mul(100) / self.limit.max(1);
                let over = memory.size > self.limit;
                let role = if over {
                    OutputRole::Bad
                } else {
                    OutputRole::Plain
                };
                row.push(figure(OutputRole::Plain, size(memory.size)));
                row.push(figure(role, format!("{percent}%")));
                row.push(figure(OutputRole::Plain, memory.scratch_lines.to_string()));
                row.push(match memory.boundary {
                    Some(boundary) if boundary.drifted() => figure(
                        OutputRole::Bad,
                        format!("+{} -{}", boundary.added, boundary.removed),
                    ),
                    Some(_) => figure(OutputRole::Plain, "0"),
                    None => figure(OutputRole::Dim, "-"),
                });
                row.push(figure(OutputRole::Plain, age(memory.changed, now)));
            }
            None => row.extend((0..5).map(|_| figure(OutputRole::Dim, "-"))),
        }
        row.push(match &self.last {
            Some(last) => cell(outcome_role(last.outcome), last_run(last, now)),
            None => cell(OutputRole::Dim, if ledger_broken { "?" } else { "-" }),
        });
        row.push(cell(OutputRole::Plain, &self.why));
        row
    }
}

impl Status {
    /// The columns that a narrow terminal does without, the least important first.
    fn expendable_columns(&self) -> Vec<usize> {
        let [host, size, limit, scratch, above, changed, last] = [2, 3, 4, 5, 6, 7, 8];
        // One that says nothing goes first.
        let first = self.agents.iter().all(|row| row.host == "local");
        let first = first.then_some(host);
        let others = [limit, changed, last, size, host, above, scratch];
        first.into_iter().chain(others).collect()
    }

    /// What the states of the agents mean for the exit code: what can be trusted, whether
    /// all were read, and whether each could be reset; by wish, too, what an operator
    /// should look at.
    fn kind(&self, by_state: bool) -> Option<Kind> {
        let kinds = self.agents.iter().filter_map(|row| row.kind(by_state));
        let ledger = self.ledger_kind.into_iter();
        ledger.chain(kinds).reduce(Kind::worst)
    }
}

impl Document for Status {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        let head = [
            ("STATE", false),
            ("AGENT", false),
            ("HOST", false),
            ("SIZE", true),
            ("LIM", true),
            ("SCRATCH", true),
            ("ABOVE---", true),
            ("CHANGED", true),
            ("LAST", false),
            ("WHY", false),
        ];
        let title = |(word, right)| match right {
            true => figure(OutputRole::Head, word),
            false => cell(OutputRole::Head, word),
        };
        let mut rows = vec![head.map(title).into_iter().collect()];
        let broken = self.ledger_error.is_some();
        rows.extend(self.agents.iter().map(|row| row.cells(self.time, broken)));
        page.table_within(rows, &self.expendable_columns())?;
        let mut counts = Vec::new();
        for state in State::ALL {
            let number = self.agents.iter().filter(|row| row.state == state).count();
            if number > 0 {
                counts.push(format!("{number} {state}"));
            }
        }
        let tag = self.tag.as_ref();
        let tag = tag.map_or(String::new(), |tag| format!(" [{tag}]"));
        let mut line = format!("{}{tag}: {}", self.fleet, count(self.agents.len(), "agent"));
        if !counts.is_empty() {
            line.push_str(&format!(": {}", counts.join(", ")));
        }
        page.plain(line)
    }
}

impl CommandContext<'_> {
    pub(super) fn status(&mut self, names: &[String], by_state: bool) -> CommandResult {
        let engine = self.open()?;
        let config = engine.config();
        for name in names {
            engine.agent(name)?;
        }
        let asked = |name: &String| names.is_empty() || names.contains(name);
        let agents = config.agents.iter().filter(|agent| asked(&agent.name));
        let mut seen = engine.observe_all(&agents.collect::<Vec<_>>());
        seen.sort_by_key(|seen| seen.state);
        let ledger_error = seen.iter().find_map(|seen| seen.ledger_error.clone());
        let status = Status {
            config: config.path.display().to_string(),
            fleet: config.general.fleet_name.clone(),
            tag: config.general.fleet_tag.clone(),
            time: engine.clock().now(),
            agents: seen.into_iter().map(StatusRow::new).collect(),
            ledger_kind: ledger_error.is_some().then(|| {
                let error = engine.ledger_head().err();
                error.map_or(Kind::Host, |error| error.kind())
            }),
            ledger_error,
        };
        self.out.document(&status)?;
        if let Some(error) = &status.ledger_error {
            self.out.trouble(&format!("LAST is not known: {error}"));
        }
        for trouble in status.agents.iter().filter_map(StatusRow::trouble) {
            self.out.trouble(&trouble);
        }
        self.out
            .hints(status.agents.iter().flat_map(StatusRow::hints));
        Ok(status.kind(by_state))
    }
}

/// The colour of a state.
pub(super) fn state_role(state: State) -> OutputRole {
    match state {
        State::Tampered
        | State::HostKey
        | State::Drifted
        | State::NoSep
        | State::Unreach
        | State::Error => OutputRole::Bad,
        State::Missing | State::Oversize | State::Busy => OutputRole::Warn,
        State::Scratch => OutputRole::Plain,
        State::Clean => OutputRole::Good,
        State::Loading => OutputRole::Dim,
    }
}

/// The colour of an outcome.
pub(super) fn outcome_role(outcome: Outcome) -> OutputRole {
    match outcome {
        Outcome::Ok | Outcome::Unchanged => OutputRole::Plain,
        Outcome::Failed | Outcome::Refused => OutputRole::Bad,
        Outcome::NotStarted => OutputRole::Warn,
    }
}

/// "01:00 ok", with the date instead of the time when it was another day.
fn last_run(last: &LastRun, now: DateTime<FixedOffset>) -> String {
    let time = last.time.with_timezone(now.offset());
    let form = if time.date_naive() == now.date_naive() {
        "%H:%M"
    } else {
        "%Y-%m-%d"
    };
    format!("{} {}", time.format(form), last.word())
}

/// Bytes for people: 812, 14.1K.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["", "K", "M", "G"] {
        if value < 1024.0 && unit.is_empty() {
            return bytes.to_string();
        }
        if value < 1024.0 {
            return format!("{value:.1}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1}T")
}

/// How long ago, in coarse steps.
fn age(then: DateTime<FixedOffset>, now: DateTime<FixedOffset>) -> String {
    let seconds = (now - then).num_seconds();
    match seconds {
        i64::MIN..60 => "<1m".to_string(),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_are_coarse() {
        assert_eq!(size(812), "812");
        assert_eq!(size(14_440), "14.1K");
        assert_eq!(size(5 << 20), "5.0M");
        let now = DateTime::parse_from_rfc3339("2026-03-14T12:00:00+01:00").unwrap();
        let ago = |seconds| age(now - chrono::Duration::seconds(seconds), now);
        assert_eq!(
            [ago(-5), ago(59), ago(60), ago(7199), ago(90_000)],
            ["<1m", "<1m", "1m", "1h", "1d"]
        );
    }
}
