//! `report`: what happened in the fleet since a moment.

use std::io;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::output::{Document, OutputRole, Printer, text_cell};
use super::{CommandContext, CommandResult};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::moment;
use crate::cli::schedule::hold::{HoldItem, schedule_holds, write_holds};
use crate::engine::{FleetReport, ReportLevel};

/// The answer of `report`.
#[derive(Serialize)]
struct ReportDocument {
    fleet: String,
    #[serde(flatten)]
    report: FleetReport,
    /// Pauses and skips of scheduled resets, now.
    holds: Vec<HoldItem>,
}

impl Document for ReportDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_plain_line(self.report.headline())?;
        let rows = self.report.rows();
        if rows.is_empty() && !self.report.is_empty() {
            printer.write_plain_line("nothing else to report")?;
        }
        let cells = rows.iter().map(|row| {
            vec![
                text_cell(role_of_level(row.level), row.topic),
                text_cell(OutputRole::Plain, &row.subject),
                text_cell(OutputRole::Plain, &row.text),
            ]
        });
        printer.write_table_within_width(cells.collect(), &[])?;
        write_holds(&self.holds, printer)
    }
}

fn role_of_level(level: ReportLevel) -> OutputRole {
    match level {
        ReportLevel::Bad => OutputRole::Bad,
        ReportLevel::Warn => OutputRole::Warn,
        ReportLevel::Info => OutputRole::Dim,
    }
}

/// Parses the moment from which a report starts; without text, the last evening.
fn parse_since(text: Option<&str>, clock: &dyn Clock) -> Result<DateTime<FixedOffset>> {
    let (now, zone) = (clock.now(), clock.zone());
    let Some(text) = text else {
        return Ok(moment::last_evening(now, zone));
    };
    let range = moment::parse_moment(text, now)
        .ok_or_else(|| since_error(text, "not a time", moment::MOMENT_HINT))?;
    let since = zone.resolve(range.start);
    if since > now {
        let hint = "name a time that has passed";
        return Err(since_error(text, "has not come yet", hint));
    }
    Ok(since)
}

fn since_error(text: &str, why: &str, hint: &str) -> Error {
    Error::new(ErrorKind::User, format!("--since {text}: {why}")).with_hint(hint)
}

pub(super) fn run(context: &mut CommandContext<'_>, since: Option<&str>) -> CommandResult {
    let engine = context.open_engine()?;
    let now = engine.clock().now();
    let since = parse_since(since, engine.clock())?;
    let document = ReportDocument {
        fleet: engine.config().general.fleet_name.clone(),
        report: engine.reports().report(since)?,
        holds: schedule_holds(context, &engine, now),
    };
    context.print_answer(&document)
}
