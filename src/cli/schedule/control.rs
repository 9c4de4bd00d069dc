//! `schedule pause`, `resume` and `skip`: what the console does to a timer.

use std::io;

use chrono::{DateTime, FixedOffset, Local};
use clap::Args;
use serde::Serialize;

use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind, Result};
use crate::cli::arguments::values::EXIT_CODES;
use crate::cli::output::{Document, Printer, dim, plain};
use crate::cli::schedule::hold::schedule_holds;
use crate::cli::{CommandContext, CommandResult};
use crate::engine::{Engine, Hold};
use crate::unattended::schedule::{
    ManagerAccess, ScheduleAction, ScheduleChange, ScheduleControls, ScheduleOverview,
    ScheduledGroup, change_schedule, find_timer_agent, read_overview, timer_subject,
};

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(in crate::cli) struct ControlArgs {
    /// An agent, or a timer as `schedule status` names it; without it, all timers
    #[arg(value_name = "TIMER")]
    timer: Option<String>,
    /// Shows what would change; changes nothing
    #[arg(long)]
    dry_run: bool,
}

/// What a verb does to timers.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) enum ControlVerb {
    Pause,
    Resume,
    Skip,
}

/// A change in the answer.
#[derive(Serialize)]
struct ChangeItem {
    /// `None` for all agents without an interval of their own.
    agent: Option<String>,
    /// The due time that is skipped.
    due: Option<DateTime<FixedOffset>>,
    #[serde(skip)]
    text: String,
}

/// The answer of the three verbs.
#[derive(Serialize)]
struct ControlDocument {
    dry_run: bool,
    /// The file that has, or would get, the changes.
    file: String,
    changes: Vec<ChangeItem>,
    /// The timer that was named.
    #[serde(skip)]
    timer: Option<String>,
}

impl Document for ControlDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.changes.is_empty() {
            let line = match &self.timer {
                Some(timer) => format!("{timer} is not paused or skipped"),
                None => "nothing is paused or skipped".to_string(),
            };
            return printer.write_plain_line(line);
        }
        for change in &self.changes {
            printer.write_plain_line(&change.text)?;
        }
        let label = if self.dry_run {
            "would write "
        } else {
            "wrote "
        };
        printer.write_line(&[dim(label), plain(&self.file)])?;
        if self.dry_run {
            printer.write_plain_line("nothing was changed")?;
        }
        Ok(())
    }
}

pub(in crate::cli) fn run(
    context: &mut CommandContext<'_>,
    args: &ControlArgs,
    verb: ControlVerb,
) -> CommandResult {
    let engine = context.open_engine()?;
    let now = SystemClock.now().with_timezone(&Local);
    let agents = match (verb, &args.timer) {
        (ControlVerb::Resume, timer) => timers_to_resume(&engine, timer.as_deref(), &now)?,
        (_, timer) => chosen_timers(&engine, timer.as_deref())?,
    };
    let overview = match verb {
        ControlVerb::Skip => {
            let environment = &context.environment;
            let directory = environment.runtime_directory.clone();
            let access = ManagerAccess::new(&environment.env, directory);
            let program = &environment.program_path;
            Some(read_overview(&engine, &access, program, &now))
        }
        ControlVerb::Pause | ControlVerb::Resume => None,
    };
    let changes = agents.into_iter().map(|agent| {
        let action = match (verb, &overview) {
            (ControlVerb::Pause, _) => ScheduleAction::Pause,
            (ControlVerb::Resume, _) => ScheduleAction::Resume,
            (ControlVerb::Skip, overview) => {
                ScheduleAction::Skip(next_due(overview.as_ref(), agent.as_deref())?)
            }
        };
        Ok(ScheduleChange { agent, action })
    });
    let changes = changes.collect::<Result<Vec<_>>>()?;
    if !args.dry_run && !changes.is_empty() {
        change_schedule(&engine, &changes, &now)?;
    }
    let items = changes.iter().map(|change| ChangeItem {
        agent: change.agent.clone(),
        due: match change.action {
            ScheduleAction::Skip(due) => Some(due),
            ScheduleAction::Pause | ScheduleAction::Resume => None,
        },
        text: change.describe(),
    });
    context.print_document(&ControlDocument {
        timer: args.timer.clone(),
        dry_run: args.dry_run,
        file: engine
            .holds()
            .location(Hold::Schedule)
            .display()
            .to_string(),
        changes: items.collect(),
    })?;
    if matches!(verb, ControlVerb::Resume) && args.timer.is_some() && !args.dry_run {
        for hold in schedule_holds(context, &engine, now.fixed_offset()) {
            context.print_note(hold.describe());
        }
    }
    if overview.is_some_and(|overview| !overview.is_in_use()) {
        let text = "no timer and no `schedule run` of this config is known to start resets";
        context.print_note(text);
    }
    Ok(None)
}

/// Returns the timers that are paused or skipped, of one that is named or of all: for each the agent, as
/// of [`chosen_timers`].
fn timers_to_resume(
    engine: &Engine,
    name: Option<&str>,
    now: &DateTime<Local>,
) -> Result<Vec<Option<String>>> {
    let Ok(controls) = ScheduleControls::read(engine) else {
        // The change replaces a file that cannot be read, or says why it cannot.
        return chosen_timers(engine, name);
    };
    let holds = controls.holds(engine.config(), now).into_iter();
    let mut held: Vec<_> = holds.map(|(agent, _)| agent.map(str::to_string)).collect();
    let Some(name) = name else {
        return Ok(held);
    };
    // An agent that has left the config can be held back, too.
    if held.iter().any(|agent| agent.as_deref() == Some(name)) {
        return Ok(vec![Some(name.to_string())]);
    }
    let chosen = chosen_timers(engine, Some(name))?;
    if let [Some(agent)] = chosen.as_slice() {
        ensure_resumable(engine, agent)?;
    }
    held.retain(|agent| chosen.contains(agent));
    Ok(held)
}

/// Refuses to resume an agent that only the pause of all agents holds back.
fn ensure_resumable(engine: &Engine, agent: &str) -> Result<()> {
    let controls = ScheduleControls::read(engine).unwrap_or_default();
    let is_shared = engine
        .config()
        .agent(agent)
        .is_some_and(|it| it.own_interval().is_none());
    let pause = controls.pause_of(None).filter(|_| is_shared);
    let (Some(pause), None) = (pause, controls.pause_of(Some(agent))) else {
        return Ok(());
    };
    let subject = timer_subject(None);
    let message = format!(
        "cannot resume {agent} alone: {subject} are {}",
        pause.describe()
    );
    let line = engine.command_line("schedule resume");
    Err(Error::new(ErrorKind::Conflict, message)
        .with_hint(format!("`{line}` ends all pauses and skips")))
}

/// Returns the timers that an argument names, or all of them: for each the agent, none for all agents
/// without an interval of their own.
fn chosen_timers(engine: &Engine, timer: Option<&str>) -> Result<Vec<Option<String>>> {
    let config = engine.config();
    let Some(name) = timer else {
        let groups = ScheduledGroup::of_config(config);
        return Ok(groups.into_iter().map(|it| it.agent).collect());
    };
    if config.agent(name).is_some() {
        return Ok(vec![Some(name.to_string())]);
    }
    match find_timer_agent(config, name) {
        Some(agent) => Ok(vec![agent.map(str::to_string)]),
        None => {
            let message = format!("no agent and no timer named {name}");
            let line = engine.command_line("schedule status");
            Err(Error::new(ErrorKind::User, message)
                .with_hint(format!("`{line}` lists the timers, `status` the agents")))
        }
    }
}

/// Returns when the next reset of a timer is due: as the service manager that runs it says, else as
/// `schedule run` would start it.
fn next_due(
    overview: Option<&ScheduleOverview>,
    agent: Option<&str>,
) -> Result<DateTime<FixedOffset>> {
    let due = overview.and_then(|overview| overview.next_due(agent));
    due.ok_or_else(|| {
        let subject = timer_subject(agent);
        let message = format!("cannot skip a reset of {subject}: no timer resets them");
        Error::new(ErrorKind::Conflict, message)
    })
}
