//! `guard`: restores sealed baselines that changed, once or until it is stopped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use super::output::{Document, OutputRole, Printer, format_count};
use super::reset_and_undo::register_stop_flag;
use super::{CommandContext, CommandResult};
use crate::engine::{GuardAction, GuardPass};
use crate::error::{Error, ErrorKind};

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
}

/// The answer of `guard --once`.
#[derive(Serialize)]
struct GuardDocument {
    #[serde(flatten)]
    pass: GuardPass,
}

impl Document for GuardDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for event in &self.pass.events {
            let role = match event.action {
                GuardAction::Restored => OutputRole::Warn,
                GuardAction::Waiting | GuardAction::GaveUp | GuardAction::Failed => OutputRole::Bad,
            };
            printer.write_line(&[(role, &event.message)])?;
        }
        printer.write_plain_line(describe_pass(&self.pass))
    }
}

/// Returns, for example, "3 sealed files, 1 differed".
fn describe_pass(pass: &GuardPass) -> String {
    if let Some(why) = pass.deferred {
        return why.to_string();
    }
    let files = format_count(pass.files, "sealed file");
    match pass.events.len() {
        0 => format!("{files}, none differs"),
        count => format!("{files}, {count} differed"),
    }
}

impl CommandContext<'_> {
    pub(super) fn run_guard(&mut self, args: &GuardArgs) -> CommandResult {
        let engine = self.open_engine()?;
        if args.once {
            let pass = engine.guard_once()?;
            let kind = pass.worst_kind();
            let hints: Vec<String> = pass.events.iter().flat_map(|it| it.hints.clone()).collect();
            self.output.print_document(&GuardDocument { pass })?;
            self.output.print_hints(&hints);
            return Ok(kind);
        }
        if self.output.is_json() {
            let message = "--json prints one document, and `guard` does not end by itself";
            return Err(Error::new(ErrorKind::User, message)
                .with_hint("add --once")
                .into());
        }
        let stop = register_stop_flag(&Arc::default())?;
        let interrupted: Arc<AtomicBool> = Arc::default();
        flag::register(SIGINT, Arc::clone(&interrupted)).map_err(|error| {
            let message = format!("cannot handle signal {SIGINT}: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        let output = &mut *self.output;
        // The same trouble is said once, not at every pass.
        let mut last_said: Option<Result<GuardPass, Error>> = None;
        engine.guard_until_stopped(&stop, &mut |pass| {
            if last_said.as_ref() == Some(&pass) {
                return;
            }
            match &pass {
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
                    output.print_error(error.message());
                    output.print_hints(error.hints());
                }
            }
            last_said = Some(pass);
        })?;
        self.output.print_progress("stopped");
        let was_interrupted = interrupted.load(Ordering::Relaxed);
        Ok(was_interrupted.then_some(ErrorKind::Interrupted))
    }
}
