//! `status --watch`: the table of `status`, then a line for each agent whose state or findings change. It
//! repaints nothing, so that it suits logs and screen readers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use crossbeam_channel::{RecvTimeoutError, bounded};
use serde::Serialize;

use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind, Result};
use crate::cli::observation::observe_worst_first;
use crate::cli::output::{Document, Printer, dim, heading, plain};
use crate::cli::signals::StopSignals;
use crate::cli::status::{describe_why, print_status, state_role};
use crate::cli::{CommandContext, CommandResult};
use crate::engine::{FleetEvent, FleetWatcher, Observation, State};
use crate::lint::ScanSummary;

/// How often it looks whether it is stopped.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

/// How many reports wait for the reader of the output; then the watch waits, too.
const MAX_QUEUED_EVENTS: usize = 64;

/// How long the end waits until the last states are recorded.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);

/// A state or findings that differ from those before.
#[derive(Serialize)]
struct StateChange {
    time: DateTime<FixedOffset>,
    agent: String,
    /// The state before, if it was another one.
    before: Option<State>,
    state: State,
    why: String,
}

impl Document for StateChange {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let time = format!("{} ", SystemClock.zone().format_second(self.time));
        let before = self.before.map_or(String::new(), |it| format!("{it} to "));
        let why = if self.why.is_empty() {
            String::new()
        } else {
            format!(": {}", self.why)
        };
        printer.write_line(&[
            dim(&time),
            heading(&self.agent),
            plain(" "),
            plain(&before),
            (state_role(self.state), self.state.as_str()),
            plain(&why),
        ])
    }
}

/// What is known of an agent.
struct KnownState {
    state: State,
    /// What the scan found, in words.
    findings: String,
}

/// The last state of each agent that is watched.
struct KnownStates(HashMap<String, KnownState>);

impl KnownStates {
    fn new(observations: &[Observation]) -> KnownStates {
        let known = observations.iter().map(|seen| {
            let known = KnownState {
                state: seen.state,
                findings: findings_of(seen).map_or_else(String::new, ScanSummary::describe),
            };
            (seen.agent.clone(), known)
        });
        KnownStates(known.collect())
    }

    /// Returns the change that an observation shows, if it shows one. A run counts at its end, not
    /// while it is in progress. A memory that cannot be read keeps its findings.
    fn note(&mut self, seen: Observation) -> Option<StateChange> {
        let known = self.0.get_mut(&seen.agent)?;
        if matches!(seen.state, State::Busy | State::Loading) {
            return None;
        }
        let findings = findings_of(&seen);
        let found = findings.map_or_else(|| known.findings.clone(), ScanSummary::describe);
        if known.state == seen.state && known.findings == found {
            return None;
        }
        let before = std::mem::replace(&mut known.state, seen.state);
        known.findings = found;
        Some(StateChange {
            time: seen.read_at,
            before: (before != seen.state).then_some(before),
            state: seen.state,
            why: describe_why(&seen.reason, findings),
            agent: seen.agent,
        })
    }
}

/// Returns the findings in the notes of the agent, if the memory was read.
fn findings_of(seen: &Observation) -> Option<&ScanSummary> {
    seen.content.as_ref().map(|content| &content.findings)
}

pub(in crate::cli) fn run(context: &mut CommandContext<'_>, names: &[String]) -> CommandResult {
    context.refuse_json("status --watch")?;
    let engine = Arc::new(context.open_engine()?);
    let observations = observe_worst_first(&engine, names)?;
    let mut known = KnownStates::new(&observations);
    let signals = StopSignals::register()?;
    signals.while_released(|| print_status(context, &engine, observations).map(drop))?;
    let (sender, events) = bounded(MAX_QUEUED_EVENTS);
    let watcher = FleetWatcher::start(Arc::clone(engine.watch()), sender)?;
    while signals.is_running() && !context.output.is_closed() {
        match events.recv_timeout(STOP_INTERVAL) {
            Ok(FleetEvent::Observed(observations)) => {
                for change in observations.into_iter().filter_map(|it| known.note(it)) {
                    signals.while_released(|| context.print_document(&change))?;
                }
            }
            Ok(FleetEvent::Notice(text)) => warn_watcher(context, &signals, &text)?,
            Ok(FleetEvent::ConfigChanged) => {
                let text = "the config has changed; start `status --watch` again to adopt it";
                warn_watcher(context, &signals, text)?;
            }
            Ok(
                FleetEvent::Confirmed { .. }
                | FleetEvent::HostsChanged(_)
                | FleetEvent::PausesChanged
                | FleetEvent::LedgerChanged
                | FleetEvent::StatesRecorded,
            )
            | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let message = "the watch of the fleet has ended unexpectedly";
                return Err(Error::new(ErrorKind::Internal, message).into());
            }
        }
    }
    drop(events);
    watcher.stop(RECORD_TIMEOUT);
    Ok(signals.error_kind())
}

fn warn_watcher(context: &mut CommandContext<'_>, signals: &StopSignals, text: &str) -> Result<()> {
    signals.while_released(|| {
        context.print_warning(text);
        Ok(())
    })
}
