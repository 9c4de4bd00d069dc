//! `alerts`: sends a test of every channel, or what is due. Runs and the guard send their alerts through
//! this module at their end; nothing that happens here changes their exit codes.

use std::collections::BTreeMap;
use std::io;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use serde::Serialize;

use super::observation::{observe_fleet, record_layouts};
use super::output::{Document, OutputRole, Printer, format_count, plain, text_cell, warn};
use super::signals::RunSignals;
use super::{CommandContext, CommandResult};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind};
use crate::config::AlertKind;
use crate::engine::{Engine, RunReport};
use crate::unattended::alerts::{self, AlertChannel, AlertEvent, AttemptResult, DeliveryReport};

/// What to do about a process that holds the alerts.
const HELD_HINT: &str =
    "if it is stopped, end it or let it go on; what waits is sent by the next command";

/// The verbs of `alerts`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum AlertsVerb {
    /// Sends a test event on every channel that the config names
    ///
    /// Prints what happened on each. Exits with 3 if one failed. Records nothing, and does not count
    /// against max_per_hour.
    #[command(after_help = crate::cli::arguments::values::EXIT_CODES)]
    Test {
        /// Kind of the test event
        #[arg(value_name = "KIND", default_value = "failed-reset", value_parser = kind_parser())]
        kind: AlertKind,
    },
    /// Looks at all agents, and sends the alerts that are due
    ///
    /// Runs and the guard send alerts by themselves. This is for a timer where alerts should not wait
    /// for them. Exits with 3 if an alert could not be sent; it is kept for the next time. Exits with 5
    /// if another process holds the alerts.
    #[command(after_help = crate::cli::arguments::values::EXIT_CODES)]
    Send,
}

fn kind_parser() -> impl TypedValueParser<Value = AlertKind> {
    let names = AlertKind::ALL.map(AlertKind::as_str);
    PossibleValuesParser::new(names)
        .map(|name| AlertKind::parse(&name).unwrap_or(AlertKind::FailedReset))
}

/// The answer of `alerts test`.
#[derive(Serialize)]
struct AlertTestDocument {
    event: AlertEvent,
    results: Vec<AttemptResult>,
}

impl Document for AlertTestDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let rows = self.results.iter().map(|result| {
            let (role, outcome) = match &result.error {
                None => (OutputRole::Good, "sent".to_string()),
                Some(error) => (OutputRole::Bad, format!("failed: {error}")),
            };
            vec![
                text_cell(OutputRole::Heading, result.channel.as_str()),
                text_cell(OutputRole::Plain, &result.target),
                text_cell(role, outcome),
            ]
        });
        let rows: Vec<_> = rows.collect();
        printer.write_table(&rows)
    }
}

/// The answer of `alerts send`.
impl Document for DeliveryReport {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for event in &self.sent {
            printer.write_line(&[
                warn(event.kind.as_str()),
                plain(": "),
                plain(&event.message),
            ])?;
        }
        let sent = format_count(self.sent.len(), "alert");
        let waiting = self.waiting;
        let Some(next) = &self.next_waiting else {
            return printer.write_plain_line(format!("{sent} sent, {waiting} waiting"));
        };
        let until = SystemClock.zone().at(next.until).format("%Y-%m-%d %H:%M");
        let next = format!("{}: {}", next.kind.as_str(), next.message);
        let text = format!("{sent} sent, {waiting} waiting; next, not before {until}: {next}");
        printer.write_plain_line(text)
    }
}

pub(super) fn run(context: &mut CommandContext<'_>, what: &AlertsVerb) -> CommandResult {
    match what {
        AlertsVerb::Test { kind } => run_test(context, *kind),
        AlertsVerb::Send => run_send(context),
    }
}

fn run_test(context: &mut CommandContext<'_>, kind: AlertKind) -> CommandResult {
    let engine = context.open_engine()?;
    let (event, results) = alerts::send_test(&engine, kind, &context.environment.alerts);
    if results.is_empty() {
        return Err(no_channel_error(&engine).into());
    }
    let failed = results.iter().filter(|result| result.error.is_some());
    let config = engine.config().path.display();
    let hints: Vec<String> = failed
        .map(|result| format!("{} (config {config})", channel_hint(result.channel)))
        .collect();
    context.print_document(&AlertTestDocument { event, results })?;
    context.print_hints(&hints);
    Ok((!hints.is_empty()).then_some(ErrorKind::Host))
}

fn run_send(context: &mut CommandContext<'_>) -> CommandResult {
    let engine = context.open_engine()?;
    engine
        .observations()
        .record(&observe_fleet(&engine), engine.context().trigger());
    let environment = &context.environment.alerts;
    let Some(report) = alerts::raise_and_deliver(&engine, None, environment, &|| false) else {
        return Err(no_channel_error(&engine).into());
    };
    let has_failed = !report.failed.is_empty() || report.unrecorded.is_some();
    if let Some(error) = &report.ledger_error {
        let text = format!("failed and missed resets are not known: {error}");
        context.print_warning(&text);
    }
    print_delivery_warnings(context, &report);
    context.print_document(&report)?;
    context.print_hints(&report.hints);
    let Some(held) = &report.held else {
        return Ok(has_failed.then_some(ErrorKind::Host));
    };
    if report.unrecorded.is_none() {
        context.print_error(&held.message);
    }
    context.print_hint(HELD_HINT);
    Ok(Some(ErrorKind::Busy))
}

/// Raises and sends the alerts that are due, at the end of a command that has printed its answer.
/// A failure is a warning: it does not change the command's result. A signal ends the deliveries,
/// and not the process: that would replace the result.
pub(super) fn send_alerts(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    report: Option<&RunReport>,
    signals: &RunSignals,
) {
    let environment = &context.environment.alerts;
    record_layouts(engine);
    signals.catch();
    let is_stopped = || signals.is_stopped();
    let report = alerts::raise_and_deliver(engine, report, environment, &is_stopped);
    signals.release();
    if let Some(report) = report {
        print_delivery_warnings(context, &report);
    }
}

fn print_delivery_warnings(context: &mut CommandContext<'_>, report: &DeliveryReport) {
    for warning in KnownTrouble::default().new_warnings(report) {
        context.print_warning(&warning);
    }
}

/// The trouble of deliveries that an operator was warned of: while it lasts, it is said once.
#[derive(Default)]
pub(super) struct KnownTrouble {
    /// Why each channel failed that has taken nothing since.
    failed: BTreeMap<AlertChannel, String>,
    unrecorded: Option<String>,
    /// What is known of a process that has held the alerts for long.
    held: Option<String>,
}

impl KnownTrouble {
    /// Returns what an operator should know of a delivery, and was not warned of.
    pub(super) fn new_warnings(&mut self, report: &DeliveryReport) -> Vec<String> {
        let mut warnings = Vec::new();
        self.failed
            .retain(|channel, _| !report.delivered.contains(channel));
        for result in &report.failed {
            let error = result.error.clone().unwrap_or_default();
            if self.failed.get(&result.channel) == Some(&error) {
                continue;
            }
            let channel = result.channel.as_str();
            // Without its record, the event is not tried again.
            let retry = if report.unrecorded.is_none() {
                "; it is tried again later"
            } else {
                ""
            };
            warnings.push(format!("alert not sent by {channel}: {error}{retry}"));
            self.failed.insert(result.channel, error);
        }
        if report.dropped > 0 {
            let events = format_count(report.dropped, "alert");
            warnings.push(format!("{events} dropped: too many waited, or too long"));
        }
        if self.unrecorded != report.unrecorded {
            let error = report.unrecorded.iter();
            warnings.extend(error.map(|error| format!("alerts are not recorded: {error}")));
            self.unrecorded.clone_from(&report.unrecorded);
        }
        let held = report.held.as_ref().filter(|held| held.is_stuck);
        let held = held.map(|held| held.message.clone());
        if self.held != held {
            // Of events that are not recorded, the same was just said.
            let message = held.iter().filter(|_| report.unrecorded.is_none());
            warnings.extend(message.map(|message| format!("alerts not sent: {message}")));
            self.held = held;
        }
        warnings
    }
}

/// Returns what to do about a channel that took no test event.
fn channel_hint(channel: AlertChannel) -> &'static str {
    match channel {
        AlertChannel::Command => {
            "run the program of `command` by itself: it gets the event on standard input, and has to \
             end with 0"
        }
        AlertChannel::Url => "check that the server of `url` runs and takes POST requests",
        AlertChannel::Journal => "check that the journal or syslog of this machine runs",
    }
}

fn no_channel_error(engine: &Engine) -> Error {
    let config = engine.config().path.display();
    let message = format!("config {config} names no channel for alerts");
    let hint = if engine.config().alerts.is_some() {
        "add `command = …`, `url = …` or `journal = yes` to its section [alerts]"
    } else {
        "add a section [alerts] with `command = …`, `url = …` or `journal = yes`"
    };
    Error::new(ErrorKind::Config, message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_trouble_is_said_once() {
        let mut known = KnownTrouble::default();
        let failed = |error: &str| DeliveryReport {
            failed: vec![AttemptResult {
                channel: AlertChannel::Command,
                target: "notify".to_string(),
                error: Some(error.to_string()),
                duration_ms: 1,
            }],
            ..DeliveryReport::default()
        };
        let unrecorded = |error: Option<&str>| DeliveryReport {
            unrecorded: error.map(str::to_string),
            ..DeliveryReport::default()
        };
        let delivered = DeliveryReport {
            delivered: [AlertChannel::Command].into(),
            ..DeliveryReport::default()
        };
        let mut count = |report: &DeliveryReport| known.new_warnings(report).len();
        assert_eq!(count(&failed("no route")), 1);
        // Nothing was due in between.
        assert_eq!(count(&DeliveryReport::default()), 0);
        assert_eq!(count(&failed("no route")), 0);
        assert_eq!(count(&failed("exit code 3")), 1);
        assert_eq!(count(&delivered), 0);
        assert_eq!(count(&failed("exit code 3")), 1);
        assert_eq!(count(&unrecorded(Some("disk full"))), 1);
        assert_eq!(count(&unrecorded(Some("disk full"))), 0);
        assert_eq!(count(&unrecorded(None)), 0);
        assert_eq!(count(&unrecorded(Some("disk full"))), 1);
    }
}
