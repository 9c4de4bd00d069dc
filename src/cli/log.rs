//! `log`: the records of the ledger as a table, newest last.

use std::io;

use serde::ser::{self, SerializeSeq};
use serde::{Serialize, Serializer};

use super::output::{
    ColumnWidths, Document, OutputRole, Printer, TableCell, number_cell, text_cell,
};
use super::status::outcome_role;
use super::{CommandContext, CommandResult};
use crate::digest::Digest;
use crate::engine::{Engine, FileState, LedgerRecord, RecordRange};
use crate::error::{Error, ErrorKind};

/// The answer of `log`.
#[derive(Serialize)]
struct LogDocument<'r> {
    ledger: String,
    head: LedgerHead,
    records: RecordRows<'r>,
}

/// The records, read again while they are printed: a ledger may be larger than the memory of this
/// machine.
struct RecordRows<'r> {
    engine: &'r Engine,
    range: RecordRange<'r>,
    /// Column widths; empty without records.
    widths: ColumnWidths,
}

impl Serialize for RecordRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut element_error = None;
        let read = self.range.for_each(&mut |record| {
            list.serialize_element(record).map_err(|error| {
                let message = format!("cannot write a record: {error}");
                element_error = Some(error);
                Error::new(ErrorKind::Internal, message)
            })
        });
        match (element_error, read) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(ser::Error::custom(error)),
            (None, Ok(())) => list.end(),
        }
    }
}

/// The last record of the ledger, to be noted for `verify --anchor`.
#[derive(Serialize)]
pub(super) struct LedgerHead {
    pub(super) seq: u64,
    pub(super) sha256: Digest,
}

impl Document for LogDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let RecordRows {
            engine,
            range,
            widths,
        } = &self.records;
        if widths.is_empty() {
            return printer.write_plain_line("no records");
        }
        printer.write_row(&title_cells(), widths)?;
        let mut print_error = None;
        let read = range.for_each(&mut |record| {
            printer
                .write_row(&record_cells(engine, record)?, widths)
                .map_err(|error| {
                    let message = error.to_string();
                    print_error = Some(error);
                    Error::new(ErrorKind::Internal, message)
                })
        });
        match print_error {
            Some(error) => Err(error),
            None => read.map_err(io::Error::other),
        }
    }
}

fn title_cells() -> Vec<TableCell> {
    let head = [
        "TIME",
        "RUN",
        "OPERATION",
        "AGENT",
        "OUTCOME",
        "LINES",
        "ENTRY",
        "NOTE",
    ];
    let title = |word| match word {
        "LINES" => number_cell(OutputRole::Heading, word),
        _ => text_cell(OutputRole::Heading, word),
    };
    head.map(title).into_iter().collect()
}

fn record_cells(engine: &Engine, record: &LedgerRecord) -> Result<Vec<TableCell>, Error> {
    let event = &record.event;
    let operation = if engine.is_redo(event)? {
        "redo"
    } else {
        event.operation.as_str()
    };
    // Lines of the memory; the content of an entry depends on its kind.
    let lines = |state: &Option<FileState>| match state {
        Some(FileState::File { lines, .. }) => lines.to_string(),
        _ => "-".to_string(),
    };
    let lines = match (lines(&event.before), lines(&event.after)) {
        (before, after) if before == after => before,
        (before, after) => format!("{before} -> {after}"),
    };
    let entry = event
        .late_entries
        .last()
        .or(event.entry.as_ref())
        .map_or("-".to_string(), |entry| entry.path.display().to_string());
    let undoes = event.undone_run.as_ref().map(|run| format!("undoes {run}"));
    let findings = event.findings().describe();
    let findings = (!findings.is_empty()).then_some(findings);
    let note: Vec<&str> = undoes
        .iter()
        .chain(&findings)
        .chain(&event.file)
        .chain(&event.note)
        .map(String::as_str)
        .collect();
    Ok(vec![
        text_cell(
            OutputRole::Plain,
            record
                .time
                .with_timezone(engine.clock().now().offset())
                .format("%Y-%m-%d %H:%M:%S")
                .to_string(),
        ),
        text_cell(OutputRole::Notice, &event.run),
        text_cell(OutputRole::Plain, operation),
        text_cell(OutputRole::Plain, &event.agent),
        text_cell(outcome_role(event.outcome), event.outcome.as_str()),
        number_cell(OutputRole::Plain, lines),
        text_cell(OutputRole::Plain, entry),
        text_cell(OutputRole::Plain, note.join("; ")),
    ])
}

impl CommandContext<'_> {
    pub(super) fn run_log(&mut self, count: Option<usize>, agent: Option<&str>) -> CommandResult {
        let engine = self.open_engine()?;
        let range = engine.records(agent, count)?;
        // This first pass also proves, before anything is printed, that all records can be read.
        let mut widths = ColumnWidths::default();
        range.for_each(&mut |record| {
            if widths.is_empty() {
                widths.fit_row(&title_cells());
            }
            widths.fit_row(&record_cells(&engine, record)?);
            Ok(())
        })?;
        // An agent that is no longer configured still has its history.
        if let (Some(name), true) = (agent, widths.is_empty()) {
            engine.agent(name)?;
        }
        let (seq, sha256) = range.head();
        self.output.print_document(&LogDocument {
            ledger: engine.ledger_path().display().to_string(),
            head: LedgerHead { seq, sha256 },
            records: RecordRows {
                engine: &engine,
                range,
                widths,
            },
        })?;
        Ok(None)
    }
}
