//! `log`: the records of the ledger as a table, newest last.

use std::io;
use std::time::Duration;

use serde::ser::{self, SerializeSeq};
use serde::{Serialize, Serializer};

use super::output::{
    ColumnWidths, Document, OutputRole, Printer, TableCell, heading_cells, number_cell, text_cell,
};
use super::signals::StopSignals;
use super::status::outcome_role;
use super::{CommandContext, CommandResult};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::as_operand;
use crate::cli::arguments::values::parse_record_count;
use crate::engine::{Engine, FileState, LedgerRecord, RecordRange};

/// How often `log --follow` looks for records of later runs.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

/// How often it looks whether it is stopped.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// Columns that a narrow terminal does not show: LINES, then ENTRY, which `archive list` shows, too.
const EXPENDABLE_COLUMNS: &[usize] = &[5, 6];

/// Arguments of `log`.
#[derive(Debug, clap::Args)]
pub(super) struct LogArgs {
    /// Shows at most this many records, the newest
    #[arg(short = 'n', value_name = "COUNT", value_parser = parse_record_count)]
    count: Option<usize>,
    /// Goes on with the records of later runs, until it is stopped
    #[arg(long)]
    follow: bool,
    /// Shows only this agent
    agent: Option<String>,
}

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
    /// Whether the headings are printed, too.
    has_headings: bool,
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
    seq: u64,
    sha256: Digest,
}

impl From<(u64, Digest)> for LedgerHead {
    fn from((seq, sha256): (u64, Digest)) -> LedgerHead {
        LedgerHead { seq, sha256 }
    }
}

impl Document for LogDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.records.widths.is_empty() {
            return printer.write_plain_line("no records");
        }
        self.records.write_text(printer)
    }
}

impl Document for RecordRows<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.has_headings && !self.widths.is_empty() {
            printer.write_row_within_width(title_cells(), &self.widths, EXPENDABLE_COLUMNS)?;
        }
        let mut print_error = None;
        let read = self.range.for_each(&mut |record| {
            let cells = record_cells(self.engine, record)?;
            printer
                .write_row_within_width(cells, &self.widths, EXPENDABLE_COLUMNS)
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
    let titles = [
        "TIME",
        "RUN",
        "OPERATION",
        "AGENT",
        "OUTCOME",
        "LINES",
        "ENTRY",
        "NOTE",
    ];
    heading_cells(&titles, &["LINES"])
}

fn record_cells(engine: &Engine, record: &LedgerRecord) -> Result<Vec<TableCell>> {
    let event = &record.event;
    let operation = if engine.history().is_redo(event)? {
        "redo"
    } else {
        event.operation.as_str()
    };
    // Lines of the memory; the content of an entry depends on its kind.
    let lines = |state: &Option<FileState>| match state {
        Some(FileState::File { lines, .. }) => lines.to_string(),
        _ => "-".to_string(),
    };
    let lines = match (lines(&event.change.before), lines(&event.change.after)) {
        (before, after) if before == after => before,
        (before, after) => format!("{before} -> {after}"),
    };
    let entries = event
        .changes()
        .filter_map(|change| change.late_entries.last().or(change.entry.as_ref()));
    let entry = entries.last().map_or("-".to_string(), |entry| {
        as_operand(&entry.path).display().to_string()
    });
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
            engine.clock().zone().format_second(record.time),
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

/// Widens the columns to fit the records. Reading them first also proves, before anything is
/// printed, that all of them can be read.
fn fit_records(widths: &mut ColumnWidths, engine: &Engine, range: &RecordRange<'_>) -> Result<()> {
    range.for_each(&mut |record| {
        if widths.is_empty() {
            widths.fit_row(&title_cells());
        }
        widths.fit_row(&record_cells(engine, record)?);
        Ok(())
    })
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &LogArgs) -> CommandResult {
    let agent = args.agent.as_deref();
    if args.follow {
        context.refuse_json("log --follow")?;
    }
    let engine = context.open_engine()?;
    let range = engine.ledger().records(agent, args.count)?;
    let mut widths = ColumnWidths::default();
    fit_records(&mut widths, &engine, &range)?;
    // An agent that is no longer configured still has its history.
    if let (Some(name), true) = (agent, widths.is_empty()) {
        engine.agent(name)?;
    }
    let document = LogDocument {
        ledger: engine.ledger().location().display().to_string(),
        head: range.head().into(),
        records: RecordRows {
            engine: &engine,
            range,
            widths,
            has_headings: true,
        },
    };
    let signals = args.follow.then(StopSignals::register).transpose()?;
    let Some(signals) = signals else {
        return context.print_answer(&document);
    };
    signals.while_released(|| context.print_document(&document))?;
    follow_log(context, document.records, &signals)
}

/// Prints the records of later runs until a signal or the reader of the output ends that.
fn follow_log(
    context: &mut CommandContext<'_>,
    mut shown: RecordRows<'_>,
    signals: &StopSignals,
) -> CommandResult {
    let mut next_look = shown.engine.clock().instant();
    while signals.is_running() && !context.output.is_closed() {
        let clock = shown.engine.clock();
        if clock.instant() < next_look {
            clock.sleep(STOP_INTERVAL);
            continue;
        }
        next_look = clock.instant() + FOLLOW_INTERVAL;
        let range = shown.range.continued()?;
        let mut widths = std::mem::take(&mut shown.widths);
        let has_headings = widths.is_empty();
        fit_records(&mut widths, shown.engine, &range)?;
        shown = RecordRows {
            engine: shown.engine,
            range,
            widths,
            has_headings,
        };
        signals.while_released(|| context.print_document(&shown))?;
    }
    Ok(signals.error_kind())
}
