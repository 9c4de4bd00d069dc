//! `schedule status`: when each timer is due, how its last run ended, and what holds it back.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use chrono::{DateTime, FixedOffset, Local};
use serde::Serialize;

use crate::base::clock::{Clock, SystemClock};
use crate::cli::baseline::format_time;
use crate::cli::output::{
    Document, OutputRole, Printer, TableCell, bad, dim, format_count, good, heading_cells, plain,
    text_cell, warn,
};
use crate::cli::schedule::hold::{HoldItem, read_controls, write_holds};
use crate::cli::schedule::{TargetArgs, schedule_config_path, schedule_target};
use crate::cli::{CommandContext, CommandResult, resolve_archive_group};
use crate::config;
use crate::engine::{Engine, HolderLockKind, TimedReset, describe_holder};
use crate::unattended::schedule::{
    InstalledTimer, RunOutcomes, ScheduleControls, SchedulePause, ScheduleSkip, ScheduledGroup,
    ServiceManager, TimerResult, TimerSchedule, TimerStatus, UnitScope, find_missed_resets,
    read_manager, timer_argument,
};

/// A timer in the answer.
#[derive(Serialize)]
struct TimerItem {
    #[serde(flatten)]
    installed: InstalledTimer,
    /// `None` if no service manager answers.
    #[serde(flatten)]
    status: Option<TimerStatus>,
    /// The agents that it resets.
    agents: Vec<String>,
    /// Its pause.
    paused: Option<SchedulePause>,
    /// Its skip that has not passed.
    skipped: Option<ScheduleSkip>,
    /// How its last run ended.
    #[serde(skip)]
    ended: TimerResult,
}

/// Headings of the tables.
const TITLES: [&str; 5] = ["TIMER", "STATE", "NEXT", "LAST", "RESULT"];

/// The last scheduled resets of agents.
type TimedResets = HashMap<String, TimedReset>;

/// How far back the last scheduled reset is looked for.
const LAST_RESET_PERIOD: chrono::Duration = chrono::Duration::days(30);

/// Agents that `schedule run` resets together.
#[derive(Serialize)]
struct GroupItem {
    /// `None` for all agents without an interval of their own.
    agent: Option<String>,
    /// When they are due next.
    next: DateTime<FixedOffset>,
    /// When the last reset of one of them ended; `None` if that was not within 30 days.
    last: Option<DateTime<FixedOffset>>,
    /// Numbers of agents by the outcome of that run.
    result: BTreeMap<&'static str, usize>,
    #[serde(skip)]
    ended: TimerResult,
    #[serde(skip)]
    is_paused: bool,
}

/// An agent that was not reset within two of its intervals.
#[derive(Serialize)]
struct MissedItem {
    agent: String,
    /// Its last reset.
    last: Option<DateTime<FixedOffset>>,
    #[serde(skip)]
    text: String,
}

/// A running `schedule run` of the config.
#[derive(Serialize)]
struct SchedulerItem {
    /// `None` if it has not written yet who it is.
    pid: Option<u32>,
    user: Option<String>,
    since: Option<DateTime<FixedOffset>>,
    groups: Vec<GroupItem>,
    #[serde(skip)]
    process: String,
}

/// The answer of `schedule status`.
#[derive(Serialize)]
struct ScheduleStatusDocument {
    scope: UnitScope,
    directory: String,
    config: String,
    /// Why the states are unknown, if they are.
    unknown_because: Option<String>,
    timers: Vec<TimerItem>,
    scheduler: Option<SchedulerItem>,
    /// Agents whose reset is overdue.
    missed: Vec<MissedItem>,
    /// Pauses and skips, also of resets that no timer starts.
    holds: Vec<HoldItem>,
}

impl TimerItem {
    fn new(timer: TimerSchedule, resets: &TimedResets) -> TimerItem {
        let group = timer.group;
        let run = group.as_ref().and_then(|group| {
            let agents = group.agents.iter().map(String::as_str);
            last_timed_run(agents, resets)
        });
        let outcomes = run.map(|run| outcomes_of(&run));
        let status = timer.status.as_ref();
        TimerItem {
            ended: status
                .map(|status| TimerResult::of_timer(status, outcomes.as_ref()))
                .unwrap_or_default(),
            installed: timer.installed,
            status: timer.status,
            paused: group.as_ref().and_then(|it| it.pause.clone()),
            skipped: group.as_ref().and_then(|it| it.skip.clone()),
            agents: group.map(|it| it.agents).unwrap_or_default(),
        }
    }

    /// Describes whether the timer does what it was installed for, or what holds it back.
    fn describe_state(&self, status: &TimerStatus) -> (OutputRole, &'static str) {
        match (status.missed, &self.paused) {
            (false, Some(_)) if status.active => warn("paused"),
            _ => describe_state(&self.installed, status),
        }
    }

    /// Formats when it is due.
    fn format_next(&self, status: &TimerStatus) -> String {
        let next = format_time(status.next);
        match &self.skipped {
            Some(skip)
                if status
                    .next
                    .is_some_and(|it| it >= skip.begins && it < skip.ends) =>
            {
                format!("{next} (skipped)")
            }
            _ => next,
        }
    }
}

impl GroupItem {
    fn new(
        group: ScheduledGroup,
        engine: &Engine,
        controls: &ScheduleControls,
        resets: &TimedResets,
        now: &DateTime<Local>,
    ) -> GroupItem {
        let agents = group.agents(engine.config()).into_iter();
        let run = last_timed_run(agents.map(|it| it.name.as_str()), resets);
        let mut result = BTreeMap::new();
        for reset in run.iter().flatten() {
            *result.entry(reset.outcome.as_str()).or_default() += 1;
        }
        let ended_at = run.iter().flatten().map(|reset| reset.time).max();
        let ended = run.map(|run| TimerResult::of_run(&outcomes_of(&run)));
        GroupItem {
            next: group.next_after(now).fixed_offset(),
            last: ended_at.map(|time| time.with_timezone(&now.timezone()).fixed_offset()),
            result,
            ended: ended.unwrap_or_default(),
            is_paused: controls.pause_of(group.agent.as_deref()).is_some(),
            agent: group.agent,
        }
    }

    fn cells(&self) -> Vec<TableCell> {
        let plain = |text: String| text_cell(OutputRole::Plain, text);
        let (role, state) = if self.is_paused {
            warn("paused")
        } else {
            good("active")
        };
        vec![
            text_cell(OutputRole::Heading, timer_argument(self.agent.as_deref())),
            text_cell(role, state),
            plain(format_time(Some(self.next))),
            plain(format_time(self.last)),
            result_cell(&self.ended),
        ]
    }
}

impl SchedulerItem {
    /// Returns the running `schedule run` of an engine's config, if there is one.
    fn find(
        engine: &Engine,
        controls: &ScheduleControls,
        resets: &TimedResets,
        now: &DateTime<Local>,
    ) -> Option<SchedulerItem> {
        let holder = engine
            .locks()
            .find_lock_holder_of(HolderLockKind::Scheduler)?;
        let groups = ScheduledGroup::of_config(engine.config());
        let groups = groups.into_iter();
        let groups = groups.map(|group| GroupItem::new(group, engine, controls, resets, now));
        let mut groups: Vec<GroupItem> = groups.collect();
        groups.sort_by_key(|group| group.next);
        Some(SchedulerItem {
            process: describe_holder(holder.as_ref(), engine.clock().zone()),
            groups,
            pid: holder.as_ref().map(|it| it.pid),
            since: holder.as_ref().map(|it| engine.clock().zone().at(it.since)),
            user: holder.map(|it| it.user),
        })
    }

    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_line(&[good("schedule run: "), plain(&self.process)])?;
        let mut rows = vec![heading_cells(&TITLES, &[])];
        rows.extend(self.groups.iter().map(GroupItem::cells));
        printer.write_table(&rows)
    }
}

impl ScheduleStatusDocument {
    /// Writes what resets agents beside the timers, and what holds resets back.
    fn write_scheduler_and_holds(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if let Some(scheduler) = &self.scheduler {
            scheduler.write_text(printer)?;
        }
        for missed in &self.missed {
            printer.write_line(&[bad("missed: "), plain(&missed.text)])?;
        }
        write_holds(&self.holds, printer)
    }
}

impl Document for ScheduleStatusDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.timers.is_empty() {
            let (config, directory) = (&self.config, &self.directory);
            printer.write_plain_line(format!("{directory} has no timers of {config}"))?;
            return self.write_scheduler_and_holds(printer);
        }
        let mut rows = vec![heading_cells(&TITLES, &[])];
        rows.extend(self.timers.iter().map(|timer| {
            let name = text_cell(OutputRole::Heading, &timer.installed.name);
            let plain = |text: String| text_cell(OutputRole::Plain, text);
            let Some(status) = &timer.status else {
                let calendar = plain(timer.installed.calendar.clone());
                let (role, state) = describe_file(&timer.installed);
                return vec![name, text_cell(role, state), calendar];
            };
            let (role, state) = timer.describe_state(status);
            vec![
                name,
                text_cell(role, state),
                plain(timer.format_next(status)),
                plain(format_time(status.last)),
                result_cell(&timer.ended),
            ]
        }));
        printer.write_table(&rows)?;
        self.write_scheduler_and_holds(printer)?;
        if let Some(why) = &self.unknown_because {
            printer.write_line(&[warn("note: "), plain(why)])?;
        }
        let timers = format_count(self.timers.len(), "timer");
        printer.write_plain_line(format!("{}: {timers}", self.directory))
    }
}

/// Describes whether a timer does what it was installed for.
fn describe_state(installed: &InstalledTimer, status: &TimerStatus) -> (OutputRole, &'static str) {
    match (status.missed, status.active, installed.edited) {
        (true, true, _) => bad("missed"),
        (true, false, _) => bad("not running"),
        (_, true, true) => warn("active, edited"),
        (_, true, false) => good("active"),
        (_, false, _) => dim("not enabled"),
    }
}

/// Describes a timer of which only the file is known.
fn describe_file(installed: &InstalledTimer) -> (OutputRole, &'static str) {
    match (installed.enabled_by_install, installed.edited) {
        (true, false) => plain("unknown"),
        (true, true) => warn("unknown, edited"),
        (false, false) => dim("not enabled"),
        (false, true) => dim("not enabled, edited"),
    }
}

fn result_cell(result: &TimerResult) -> TableCell {
    let role = match result {
        TimerResult::Failed(_) => OutputRole::Bad,
        TimerResult::Unknown | TimerResult::Running | TimerResult::Ok(_) => OutputRole::Plain,
    };
    text_cell(role, result.describe())
}

/// Returns the resets of the last run that a timer or the scheduler started for one of these agents;
/// none without one.
fn last_timed_run<'a>(
    agents: impl Iterator<Item = &'a str>,
    resets: &'a TimedResets,
) -> Option<Vec<&'a TimedReset>> {
    let mut resets: Vec<&TimedReset> = agents.filter_map(|name| resets.get(name)).collect();
    let last = resets.iter().max_by_key(|reset| reset.time)?.run.clone();
    resets.retain(|reset| reset.run == last);
    Some(resets)
}

fn outcomes_of(run: &[&TimedReset]) -> RunOutcomes {
    RunOutcomes {
        outcomes: run.iter().map(|reset| reset.outcome).collect(),
        problem: None,
    }
}

pub(in crate::cli) fn run(context: &mut CommandContext<'_>, args: &TargetArgs) -> CommandResult {
    let config = schedule_config_path(context)?;
    let target = schedule_target(context, args, config)?;
    let engine = find_engine(context, &target.config);
    if engine.is_none() {
        let config = target.config.display();
        context.print_warning(format!(
            "{config} cannot be used, so pauses, missed resets and `schedule run` are not known; \
             `config check` says why"
        ));
    }
    let runtime_directory = context.environment.runtime_directory.as_deref();
    let manager = target.manager(runtime_directory, &SystemClock);
    let now = SystemClock.now();
    let schedule = read_manager(
        (target.scope, &target.directory),
        &target.config,
        manager.as_ref().map(|it| it as &dyn ServiceManager),
        engine.as_ref(),
        &now.with_timezone(&Local),
    )?;
    let controls = engine.as_ref().map(|engine| read_controls(context, engine));
    let controls = controls.unwrap_or_default();
    let archive_error = engine
        .as_ref()
        .and_then(|engine| engine.archive().check_expected().err());
    if let Some(error) = &archive_error {
        let why = error.message();
        context.print_warning(format!("pauses and missed resets are not known: {why}"));
        context.print_hints(error.hints());
    }
    let missed = engine
        .as_ref()
        .filter(|_| archive_error.is_none())
        .map(|engine| find_missed_resets(engine, &controls, |_| None, now));
    let missed = missed.transpose().unwrap_or_else(|error| {
        let error = error.with_context("missed resets are not known");
        context.print_warning(error.message());
        None
    });
    // A ledger that cannot be read was named with the missed resets.
    let resets = engine
        .as_ref()
        .and_then(|engine| {
            engine
                .history()
                .last_timed_resets(now - LAST_RESET_PERIOD)
                .ok()
        })
        .unwrap_or_default();
    let timers = schedule.timers.into_iter();
    context.print_answer(&ScheduleStatusDocument {
        scope: target.scope,
        directory: target.directory.display().to_string(),
        config: target.config.display().to_string(),
        unknown_because: schedule.unknown_because,
        timers: timers.map(|timer| TimerItem::new(timer, &resets)).collect(),
        scheduler: engine.as_ref().and_then(|engine| {
            SchedulerItem::find(engine, &controls, &resets, &now.with_timezone(&Local))
        }),
        missed: missed
            .unwrap_or_default()
            .into_iter()
            .map(|missed| MissedItem {
                text: missed.describe(),
                agent: missed.agent,
                last: missed.last_success,
            })
            .collect(),
        holds: engine.as_ref().map_or(Vec::new(), |engine| {
            HoldItem::list(engine.config(), &controls, now)
        }),
    })
}

/// Opens the engine of a config that need not be readable any more.
fn find_engine(context: &CommandContext<'_>, config: &Path) -> Option<Engine> {
    let config = config::load(config, &context.environment.env).ok()?;
    let group = resolve_archive_group(&config, context.environment.find_group).ok()?;
    Some(context.new_cli_engine(config, group))
}
