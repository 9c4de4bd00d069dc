//! Holds that keep agents out of a reset: pauses and skips of the schedule, which `schedule status`,
//! `status` and `report` list, and the protection of an agent that the reset does not name.

use std::io;

use chrono::{DateTime, FixedOffset, Local};
use serde::Serialize;

use crate::cli::alerts::send_alerts;
use crate::cli::metrics_file::write_metrics_after_run;
use crate::cli::observation::observe_fleet;
use crate::cli::output::{Document, Printer, heading, plain, warn};
use crate::cli::runs::arguments::ResetArgs;
use crate::cli::signals::RunSignals;
use crate::cli::{CommandContext, CommandResult};
use crate::config::{Config, Protection};
use crate::engine::Engine;
use crate::unattended::schedule::{
    ScheduleControls, ScheduleHold, SchedulePause, ScheduleSkip, timer_subject,
};

/// Begins the line of a pause or a skip.
const HOLD_LABEL: &str = "held back: ";

/// An agent that is not reset.
#[derive(Serialize)]
pub(in crate::cli) struct HeldAgent {
    agent: String,
    reason: String,
    #[serde(skip)]
    is_skip: bool,
}

/// The answer of a reset whose agents are all held back.
#[derive(Serialize)]
struct HeldDocument<'a> {
    held: &'a [HeldAgent],
}

impl Document for HeldDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        self.held.iter().try_for_each(|held| {
            printer.write_line(&[
                heading(&held.agent),
                plain(": not reset: "),
                plain(&held.reason),
            ])
        })
    }
}

/// What holds resets back: of an agent, or of all without an interval of their own.
#[derive(Serialize)]
pub(in crate::cli) struct HoldItem {
    agent: Option<String>,
    paused: Option<SchedulePause>,
    skipped: Option<ScheduleSkip>,
    #[serde(skip)]
    text: String,
}

impl HoldItem {
    fn new((agent, hold): (Option<&str>, ScheduleHold)) -> HoldItem {
        let text = format!("{}: {}", timer_subject(agent), hold.describe());
        let (paused, skipped) = match hold {
            ScheduleHold::Paused(pause) => (Some(pause), None),
            ScheduleHold::Skipped(skip) => (None, Some(skip)),
        };
        HoldItem {
            agent: agent.map(str::to_string),
            paused,
            skipped,
            text,
        }
    }

    /// Lists the pauses and skips that hold now.
    pub(in crate::cli) fn list(
        config: &Config,
        controls: &ScheduleControls,
        now: DateTime<FixedOffset>,
    ) -> Vec<HoldItem> {
        let holds = controls.holds(config, &now.with_timezone(&Local));
        holds.into_iter().map(HoldItem::new).collect()
    }

    /// Describes it as a line of its own.
    pub(in crate::cli) fn describe(&self) -> String {
        format!("{HOLD_LABEL}{}", self.text)
    }
}

/// Writes one line for each.
pub(in crate::cli) fn write_holds(holds: &[HoldItem], printer: &mut Printer<'_>) -> io::Result<()> {
    holds
        .iter()
        .try_for_each(|hold| printer.write_line(&[warn(HOLD_LABEL), plain(&hold.text)]))
}

/// Leaves out the agents that are protected as read-only, unless an operator names them: a reset of the
/// fleet or by a timer is not about them. Returns the names of the others first.
pub(in crate::cli) fn split_protected_agents(
    engine: &Engine,
    names: Vec<String>,
    args: &ResetArgs,
) -> (Vec<String>, Vec<HeldAgent>) {
    // A timer names the agents that have an interval of their own.
    let is_named = !args.agents.is_empty() && !args.scheduled;
    let is_protected = |name: &String| {
        let agent = engine.config().agent(name);
        !is_named && agent.is_some_and(|it| it.protect == Protection::ReadOnly)
    };
    let (protected, free): (Vec<String>, Vec<String>) = names.into_iter().partition(is_protected);
    let held = protected.into_iter().map(|agent| HeldAgent {
        agent,
        reason: "protect=readonly".to_string(),
        is_skip: false,
    });
    (free, held.collect())
}

/// Reads pauses and skips. Those that cannot be read hold nothing back, and are a warning; the
/// caller reports an archive that is missing.
pub(in crate::cli) fn read_controls(
    context: &mut CommandContext<'_>,
    engine: &Engine,
) -> ScheduleControls {
    ScheduleControls::read(engine).unwrap_or_else(|error| {
        if engine.archive().check_expected().is_ok() {
            context.print_warning(error.message());
        }
        ScheduleControls::default()
    })
}

/// Returns what holds scheduled resets back.
pub(in crate::cli) fn schedule_holds(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    now: DateTime<FixedOffset>,
) -> Vec<HoldItem> {
    HoldItem::list(engine.config(), &read_controls(context, engine), now)
}

/// Splits the agents of a scheduled reset: those to reset, and those that are held back. Pauses
/// that cannot be read hold nothing back.
pub(in crate::cli) fn split_held_agents(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    names: Vec<String>,
) -> (Vec<String>, Vec<HeldAgent>) {
    let controls = read_controls(context, engine);
    let now = engine.clock().now().with_timezone(&Local);
    let mut held = Vec::new();
    let mut free = Vec::new();
    for name in names {
        let agent = engine.config().agent(&name);
        match agent.and_then(|it| controls.hold_of(engine.config(), it, &now)) {
            None => free.push(name),
            Some(hold) => held.push(HeldAgent {
                agent: name,
                reason: hold.describe(),
                is_skip: matches!(hold, ScheduleHold::Skipped(_)),
            }),
        }
    }
    (free, held)
}

/// Says which agents a reset leaves out; a run also logs those that are skipped.
pub(in crate::cli) fn report_held_agents(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    held: &[HeldAgent],
    is_dry_run: bool,
) {
    for HeldAgent { agent, reason, .. } in held {
        context.print_note(format!("{agent} is not reset: {reason}"));
    }
    if !is_dry_run {
        log_skipped_agents(context, engine, held);
    }
}

/// Ends a reset whose agents are all held back: alerts and metrics do not pause.
pub(in crate::cli) fn finish_held_reset(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    held: &[HeldAgent],
    args: &ResetArgs,
) -> CommandResult {
    context.print_document(&HeldDocument { held })?;
    if args.flags.dry_run {
        return Ok(None);
    }
    log_skipped_agents(context, engine, held);
    if engine.config().alerts.is_some() {
        engine
            .observations()
            .record(&observe_fleet(engine), engine.context().trigger());
        send_alerts(context, engine, None, &RunSignals::register()?);
    }
    write_metrics_after_run(context, engine, &args.metrics, None);
    Ok(None)
}

fn log_skipped_agents(context: &mut CommandContext<'_>, engine: &Engine, held: &[HeldAgent]) {
    for skipped in held.iter().filter(|it| it.is_skip) {
        let text = format!("Not reset {}: {}", skipped.agent, skipped.reason);
        if let Err(error) = engine.ledger().log_text(&text) {
            context.print_warning(error.message());
        }
    }
}
