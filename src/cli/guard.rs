//! `guard`: restores sealed baselines that changed, once or until it is stopped.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, unbounded};

use super::alerts::{KnownTrouble, send_alerts};
use super::output::{Document, Output, OutputRole, Printer, format_count};
use super::signals::{RunSignals, StopSignals};
use super::write_restriction::{WriteRestrictionFlags, restrict_run_writes};
use super::{CommandContext, CommandResult};
use crate::base::error::Error;
use crate::engine::{Engine, GuardAction, GuardPass, GuardProgress};
use crate::unattended::alerts::{self, AlertEnvironment};
use crate::unattended::schedule::ServicePurpose;

/// How often the guard looks for alerts while nothing changes.
const ALERT_INTERVAL: Duration = Duration::from_secs(60);

/// Arguments of `guard`.
#[derive(Debug, clap::Args)]
pub struct GuardArgs {
    /// Looks once and ends, for timers
    ///
    /// Exits with 0 if nothing differs or an operator edits baselines, with 1 if something was
    /// restored, and with 4 if something could not be. Waits for up to a minute for a seal that is
    /// being copied.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    write_restriction: WriteRestrictionFlags,
}

/// The answer of `guard --once`.
impl Document for GuardPass {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for event in &self.events {
            let role = match event.action {
                GuardAction::Restored => OutputRole::Warn,
                GuardAction::Waiting | GuardAction::GaveUp | GuardAction::Failed => OutputRole::Bad,
            };
            printer.write_line(&[(role, &event.message)])?;
        }
        printer.write_plain_line(describe_pass(self))
    }
}

/// Returns, for example, "3 sealed files, 1 differed".
fn describe_pass(pass: &GuardPass) -> String {
    if let Some(why) = pass.deferred {
        return why.to_string();
    }
    let files = format_count(pass.files, "sealed file");
    let differed = match pass.changed_count() {
        0 if pass.unsealed.is_empty() => "none differs".to_string(),
        count => format!("{} differed", count + pass.unsealed.len()),
    };
    let unsealed = match pass.unsealed.as_slice() {
        [] => String::new(),
        names => format!(
            ", left alone as saved but not sealed yet: {}",
            names.join(", ")
        ),
    };
    format!("{files}, {differed}{unsealed}")
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &GuardArgs) -> CommandResult {
    let engine = context.open_engine()?;
    restrict_run_writes(
        context,
        &args.write_restriction,
        engine.config(),
        &[],
        ServicePurpose::Guard,
        None,
    );
    if args.once {
        let pass = engine.guard().guard_once()?;
        let kind = pass.worst_kind();
        let printed = context.print_document(&pass);
        context.print_hints(pass.events.iter().flat_map(|it| &it.hints));
        // A reader that is gone must not keep an alert back.
        send_alerts(context, &engine, None, &RunSignals::register()?);
        printed?;
        return Ok(kind);
    }
    let refused = context.refuse_json("guard");
    refused.map_err(|error| error.with_hint("add --once"))?;
    context.output.skip_unread();
    let signals = StopSignals::register()?;
    let environment = &context.environment.alerts;
    thread::scope(|scope| guard_with_alerts(context, &engine, &signals.stop, scope, environment))?;
    context.output.print_progress("stopped");
    Ok(signals.error_kind())
}

/// Guards until `stop` is set. Alerts go out on a thread of their own, so that they never delay the
/// restore of a baseline.
fn guard_with_alerts<'s>(
    context: &mut CommandContext<'_>,
    engine: &'s Engine,
    stop: &'s AtomicBool,
    scope: &'s thread::Scope<'s, '_>,
    environment: &'s AlertEnvironment,
) -> Result<(), Error> {
    let (wake_sender, wakes) = bounded(1);
    let (warning_sender, warnings) = unbounded();
    if engine.config().alerts.is_some() {
        let send_alerts = move || {
            let mut known = KnownTrouble::default();
            while wakes.recv().is_ok() {
                let is_stopped = || stop.load(Ordering::Relaxed);
                let report = alerts::raise_and_deliver(engine, None, environment, &is_stopped);
                for warning in report.iter().flat_map(|it| known.new_warnings(it)) {
                    // Without a receiver, the guard has ended.
                    let _ = warning_sender.send(warning);
                }
            }
        };
        thread::Builder::new()
            .spawn_scoped(scope, send_alerts)
            .map_err(|error| Error::from_thread_start(&error))?;
    }
    let output = &mut *context.output;
    // The same trouble is said once, not at every pass.
    let mut last_said: Option<Result<GuardPass, Error>> = None;
    let mut last_wake: Option<Instant> = None;
    engine.guard().guard_until_stopped(stop, &mut |report| {
        let pass = match report {
            GuardProgress::Pass(pass) => pass,
            GuardProgress::Unwatched { interval, cause } => {
                let seconds = interval.as_secs();
                let text = format!(
                    "the guard cannot watch directories ({cause}); it looks for changes every \
                     {seconds} s instead"
                );
                return output.print_warning(&text);
            }
        };
        warnings.try_iter().for_each(|it| output.print_warning(&it));
        let is_news = last_said.as_ref() != Some(&pass);
        let now = engine.clock().instant();
        let is_due =
            last_wake.is_none_or(|last| now.saturating_duration_since(last) >= ALERT_INTERVAL);
        if is_news || is_due {
            last_wake = Some(now);
            // A wake that is not taken yet is enough.
            let _ = wake_sender.try_send(());
        }
        if is_news {
            print_pass(output, &pass);
            last_said = Some(pass);
        }
    })
}

/// Prints what a pass of the guard found, or why it could not be made.
fn print_pass(output: &mut Output, pass: &Result<GuardPass, Error>) {
    match pass {
        Ok(found) => {
            for event in &found.events {
                match event.action {
                    GuardAction::Restored => output.print_warning(&event.message),
                    GuardAction::Waiting | GuardAction::GaveUp | GuardAction::Failed => {
                        output.print_error(&event.message)
                    }
                }
                output.print_hints(&event.hints);
            }
            output.print_progress(&describe_pass(found));
        }
        Err(error) => {
            output.print_failure(error);
        }
    }
}
