//! `log`: the ledger for people, the latest last.

use std::io;

use serde::ser::{self, SerializeSeq};
use serde::{Serialize, Serializer};

use super::output::{Cell, Document, OutputRole, Printer, Widths, cell, figure};
use super::status::outcome_role;
use super::{CommandContext, CommandResult};
use crate::digest::Digest;
use crate::engine::{FileState, Record, RecordRange};
use crate::error::{Error, Kind};

/// What `log` answers.
#[derive(Serialize)]
struct Log<'r> {
    ledger: String,
    head: LedgerHead,
    records: Rows<'r>,
}

/// The records, read again while they are printed: a ledger may be longer than this
/// machine's memory.
struct Rows<'r> {
    range: RecordRange<'r>,
    /// How wide the columns are; none without records.
    widths: Widths,
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut failed = None;
        let read = self.range.each(&mut |record| {
            list.serialize_element(record).map_err(|error| {
                let message = format!("cannot write a record: {error}");
                failed = Some(error);
                Error::new(Kind::Internal, message)
            })
        });
        match (failed, read) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(ser::Error::custom(error)),
            (None, Ok(())) => list.end(),
        }
    }
}

/// The ledger's last record: what a note of it should say.
#[derive(Serialize)]
pub(super) struct LedgerHead {
    pub(super) seq: u64,
    pub(super) sha256: Digest,
}

impl Document for Log<'_> {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        let Rows { range, widths } = &self.records;
        if widths.is_empty() {
            return page.plain("the ledger has no such records yet");
        }
        page.row(&titles(), widths)?;
        let mut failed = None;
        let read = range.each(&mut |record| {
            page.row(&cells(record), widths).map_err(|error| {
                let message = error.to_string();
                failed = Some(error);
                Error::new(Kind::Internal, message)
            })
        });
        match failed {
            Some(error) => Err(error),
            None => read.map_err(io::Error::other),
        }
    }
}

fn titles() -> Vec<Cell> {
    let head = [
        "TIME", "RUN", "ACT", "AGENT", "OUTCOME", "LINES", "ENTRY", "NOTE",
    ];
    let title = |word| match word {
        "LINES" => figure(OutputRole::Head, word),
        _ => cell(OutputRole::Head, word),
    };
    head.map(title).into_iter().collect()
}

fn cells(record: &Record) -> Vec<Cell> {
    let event = &record.what;
    // Of the memory: what an entry holds of them depends on its kind.
    let lines = |standing: &Option<FileState>| match standing {
        Some(FileState::File { lines, .. }) => lines.to_string(),
        _ => "-".to_string(),
    };
    let lines = match (lines(&event.before), lines(&event.after)) {
        (before, after) if before == after => before,
        (before, after) => format!("{before} -> {after}"),
    };
    let entry = event.late.last().or(event.entry.as_ref());
    let entry = entry.map_or("-".to_string(), |entry| entry.path.display().to_string());
    let undoes = event.undoes.as_ref().map(|run| format!("undoes {run}"));
    let note: Vec<&str> = undoes
        .iter()
        .chain(&event.note)
        .map(String::as_str)
        .collect();
    vec![
        cell(
            OutputRole::Plain,
            record.time.format("%Y-%m-%d %H:%M:%S").to_string(),
        ),
        cell(OutputRole::Ours, &event.run),
        cell(OutputRole::Plain, event.act.word()),
        cell(OutputRole::Plain, &event.agent),
        cell(outcome_role(event.outcome), event.outcome.word()),
        figure(OutputRole::Plain, lines),
        cell(OutputRole::Plain, entry),
        cell(OutputRole::Plain, note.join("; ")),
    ]
}

impl CommandContext<'_> {
    pub(super) fn log(&mut self, count: Option<usize>, agent: Option<&str>) -> CommandResult {
        let engine = self.open()?;
        let range = engine.records(agent, count)?;
        // Before anything is printed it is known that all of it can be read.
        let mut widths = Widths::default();
        range.each(&mut |record| {
            if widths.is_empty() {
                widths.take(&titles());
            }
            widths.take(&cells(record));
            Ok(())
        })?;
        // An agent that left the config still has its history.
        if let (Some(name), true) = (agent, widths.is_empty()) {
            engine.agent(name)?;
        }
        let (seq, sha256) = range.head();
        self.out.document(&Log {
            ledger: engine.ledger_path().display().to_string(),
            head: LedgerHead { seq, sha256 },
            records: Rows { range, widths },
        })?;
        Ok(None)
    }
}
