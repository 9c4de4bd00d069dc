//! The schedule, as the log screen and every header show it: timers with their next and last run,
//! what holds them back, and the dialog that runs, skips or pauses one.

use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use super::RunSummary;
use crate::console::keys::key_guard::KeyGuard;
use crate::console::requests::NumberedRequests;
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::console::widgets::plan_pane::ShownPlan;
use crate::engine::{Outcome, Trigger};
use crate::unattended::schedule::{
    GroupSchedule, ManagerSchedule, RunOutcomes, ScheduleAction, ScheduleChange, ScheduleOverview,
    SchedulePause, ScheduleSkip, TimerResult, TimerSchedule, UnitScope, timer_argument,
};

/// Time between two questions to the service managers.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// Age from which on the schedule is read again when the log is opened.
pub const MAX_SCHEDULE_AGE: Duration = Duration::from_secs(5);

/// A schedule that no timer of a service manager runs is in use if it ran within this time.
const USED_PERIOD: chrono::Duration = chrono::Duration::days(30);

/// How much later than it is due a run may begin without a service manager: cron and the
/// scheduler begin within minutes, and a long run delays the next.
const MAX_DELAY: chrono::Duration = chrono::Duration::minutes(15);

/// The schedule on the screen.
#[derive(Clone, Debug, Default)]
pub struct ScheduleView {
    /// What was read; none before that.
    pub overview: Option<ScheduleOverview>,
    /// The rows of the panel, the ones that need attention first.
    pub rows: Vec<TimerRow>,
    /// Requests for the schedule.
    pub requests: NumberedRequests,
    /// When the schedule was read.
    pub loaded_at: Duration,
    /// When it is read again; none before it was read once.
    pub refresh_due: Option<Duration>,
    /// Whether keys are for the panel.
    pub is_focused: bool,
    /// Position in the rows; the cursor stays on its timer.
    pub list: ListPane<(TimerSource, String)>,
    /// Whether a change of pauses and skips is being written.
    pub is_changing: bool,
}

/// Who starts the runs of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerSource {
    /// A timer of a service manager.
    Manager(UnitScope),
    /// `schedule run` or cron.
    Unmanaged,
}

/// A timer in the panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerRow {
    /// Name of the unit, or of what is reset.
    pub name: String,
    /// Who starts its runs.
    pub source: TimerSource,
    /// Whether it is in the config; a timer of an agent that left it can only be looked at.
    pub is_known: bool,
    /// What it resets, and what holds that back.
    pub group: GroupSchedule,
    /// When its last run began, or ended.
    pub last: Option<DateTime<FixedOffset>>,
    /// How its last run ended.
    pub result: TimerResult,
    /// Whether later runs, also by hand, reset all agents for which it failed.
    pub is_repaired: bool,
    /// Whether its runs were missed, or an enabled timer is not active.
    pub is_missed: bool,
    /// Whether it waits for its first run.
    pub has_never_run: bool,
    /// Whether its state is not known.
    pub is_unknown: bool,
}

/// Dialog about a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerDialog {
    /// The timer, as it was when the dialog was opened.
    pub row: TimerRow,
    /// The change that waits for its confirmation; none while the operator chooses.
    pub plan: Option<ShownPlan<(), ScheduleChange>>,
    /// File that a change writes.
    pub file: String,
    /// Ignores keys typed before the operator can have read the plan.
    pub guard: KeyGuard,
}

impl KeyedRow<(TimerSource, String)> for TimerRow {
    fn key(&self) -> (TimerSource, String) {
        (self.source, self.name.clone())
    }
}

impl TimerRow {
    /// Returns the skip, if it is about the next run.
    pub fn skip_of_next(&self) -> Option<&ScheduleSkip> {
        let next = self.group.next?;
        let skip = self.group.skip.as_ref();
        skip.filter(|skip| next >= skip.begins && next < skip.ends)
    }

    /// Returns the pause.
    pub fn pause(&self) -> Option<&SchedulePause> {
        self.group.pause.as_ref()
    }

    /// Returns when agents are reset next: none while it is paused.
    pub fn next_reset(&self) -> Option<DateTime<FixedOffset>> {
        if self.pause().is_some() {
            return None;
        }
        match self.skip_of_next() {
            Some(_) => self.group.after_next,
            None => self.group.next,
        }
    }

    /// Whether its last run failed, and that was not put right since.
    pub fn has_failed(&self) -> bool {
        matches!(self.result, TimerResult::Failed(_)) && !self.is_repaired
    }

    /// Returns why the next run cannot be skipped, if it cannot.
    pub fn no_skip_reason(&self) -> &'static str {
        match self.skip_of_next() {
            Some(_) => "the next run is skipped already",
            None if self.pause().is_some() => "it is paused",
            None => "when it runs next is not known",
        }
    }

    /// Returns the command line that shows the output of its runs.
    pub fn journal_command(&self) -> Option<String> {
        let TimerSource::Manager(scope) = self.source else {
            return None;
        };
        let flag = match scope {
            UnitScope::System => "",
            UnitScope::User => "--user ",
        };
        let stem = self.name.strip_suffix(".timer").unwrap_or(&self.name);
        let unit = format!("{stem}.service");
        Some(format!("journalctl {flag}-u {}", shell_words::quote(&unit)))
    }

    /// Returns what names it on the command line.
    pub fn argument(&self) -> String {
        match &self.group.agent {
            // A unit never begins with a dash.
            Some(agent) if agent.starts_with('-') => format!("memory-shepherd-{agent}"),
            Some(agent) => agent.clone(),
            None => "memory-shepherd.timer".to_string(),
        }
    }

    /// Returns the order in which rows are shown: those that need attention first.
    fn rank(&self) -> (u8, Option<DateTime<FixedOffset>>) {
        let rank = if self.has_failed() {
            0
        } else if self.is_missed {
            1
        } else if self.pause().is_some() || self.has_never_run || self.is_unknown {
            2
        } else {
            3
        };
        (rank, self.group.next)
    }

    /// Whether something seems to start its runs: it is held back, or ran not long ago.
    fn is_in_use(&self, now: DateTime<FixedOffset>) -> bool {
        let ran = self.last.is_some_and(|last| now - last < USED_PERIOD);
        ran || self.group.pause.is_some() || self.group.skip.is_some()
    }

    /// Returns the change that a pause or its end is.
    pub fn pause_change(&self) -> ScheduleChange {
        let has_hold = self.group.pause.is_some() || self.group.skip.is_some();
        let action = if has_hold {
            ScheduleAction::Resume
        } else {
            ScheduleAction::Pause
        };
        self.change(action)
    }

    /// Returns the change that skips the next run; none if that is not known, is skipped already, or
    /// is paused.
    pub fn skip_change(&self) -> Option<ScheduleChange> {
        let is_free = self.skip_of_next().is_none() && self.pause().is_none();
        let next = self.group.next.filter(|_| is_free)?;
        Some(self.change(ScheduleAction::Skip(next)))
    }

    fn change(&self, action: ScheduleAction) -> ScheduleChange {
        ScheduleChange {
            agent: self.group.agent.clone(),
            action,
        }
    }
}

impl TimerDialog {
    /// Returns the verb of the command line that does the same as the plan.
    pub fn verb(change: &ScheduleChange) -> &'static str {
        match change.action {
            ScheduleAction::Pause => "pause",
            ScheduleAction::Resume => "resume",
            ScheduleAction::Skip(_) => "skip",
        }
    }
}

impl ScheduleView {
    /// Returns the row under the cursor.
    pub fn current_row(&self) -> Option<&TimerRow> {
        self.rows.get(self.list.cursor_in(&self.rows[..]))
    }

    /// Describes what holds back the scheduled resets of an agent, alone or with others.
    pub fn hold_of_agent(&self, agent: &str) -> Option<String> {
        let groups = self.overview.iter().flat_map(|it| &it.groups);
        let group = groups
            .into_iter()
            .find(|it| it.agents.iter().any(|it| it == agent))?;
        let own = group.held_agents.iter().find(|it| it.agent == agent);
        let own = own.map(|held| held.hold.describe());
        let pause = || group.pause.as_ref().map(SchedulePause::describe);
        let skip = || group.skip.as_ref().map(ScheduleSkip::describe);
        own.or_else(pause).or_else(skip)
    }

    /// Whether a schedule is in use.
    pub fn has_schedule(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Makes the rows again from what was read and from the ledger.
    pub fn refresh_rows(&mut self, runs: &[RunSummary], now: DateTime<FixedOffset>) {
        let Some(overview) = &self.overview else {
            return;
        };
        let managers = overview.managers.iter();
        let timers = managers.flat_map(|manager| {
            let timers = manager.timers.iter().filter(|timer| timer.is_in_use());
            timers.map(move |timer| (manager, timer))
        });
        let timers: Vec<_> = timers.collect();
        let is_managed = timers.iter().any(|(manager, _)| manager.is_running);
        let mut rows = Vec::new();
        if overview.is_scheduler_running || !is_managed {
            let groups = overview.groups.iter();
            let is_shown = |row: &TimerRow| overview.is_scheduler_running || row.is_in_use(now);
            let groups =
                groups.map(|group| unmanaged_row(group, runs, now, overview.is_scheduler_running));
            rows.extend(groups.filter(is_shown));
        }
        // Files of timers that no service manager runs say nothing of what resets the agents.
        if is_managed || rows.is_empty() {
            let timers = timers.into_iter();
            rows.extend(timers.map(|(manager, timer)| managed_row(manager, timer, runs)));
        }
        rows.sort_by_key(TimerRow::rank);
        self.rows = rows;
    }
}

/// Returns the last run that a timer started for agents among these. It may have been about others,
/// too, that left the config or have another timer now.
fn last_timed_run<'a>(agents: &[String], runs: &'a [RunSummary]) -> Option<&'a RunSummary> {
    runs.iter().find(|run| {
        let mut events = run.events.iter();
        events.any(|event| event.trigger == Trigger::Timer && agents.contains(&event.agent))
    })
}

/// Whether each agent that failed in a run was reset since. `runs` are the newest first.
fn is_repaired(run: &RunSummary, runs: &[RunSummary]) -> bool {
    let later: Vec<&RunSummary> = runs
        .iter()
        .take_while(|it| it.run_id != run.run_id)
        .collect();
    let is_good = |outcome| matches!(outcome, Outcome::Ok | Outcome::Unchanged);
    let mut failed = run
        .events
        .iter()
        .filter(|event| !is_good(event.outcome))
        .peekable();
    failed.peek().is_some()
        && failed.all(|event| {
            let mut events = later.iter().flat_map(|it| &it.events);
            events.any(|it| it.agent == event.agent && is_good(it.outcome))
        })
}

/// Returns what the ledger has of a run and these agents.
fn outcomes_of(run: &RunSummary, agents: &[String]) -> RunOutcomes {
    let events = run.events.iter();
    let own = events.filter(|event| agents.contains(&event.agent));
    RunOutcomes {
        outcomes: own.map(|event| event.outcome).collect(),
        problem: run.problem.clone(),
    }
}

fn managed_row(manager: &ManagerSchedule, timer: &TimerSchedule, runs: &[RunSummary]) -> TimerRow {
    let group = timer.group.clone().unwrap_or_else(|| GroupSchedule {
        agent: None,
        agents: Vec::new(),
        held_agents: Vec::new(),
        next: timer.status.as_ref().and_then(|it| it.next),
        after_next: None,
        pause: None,
        skip: None,
        resumed: None,
    });
    let run = last_timed_run(&group.agents, runs);
    let outcomes = run.map(|run| outcomes_of(run, &group.agents));
    let status = timer.status.as_ref();
    let result = match status {
        Some(status) => TimerResult::of_timer(status, outcomes.as_ref()),
        None => outcomes
            .as_ref()
            .map(TimerResult::of_run)
            .unwrap_or_default(),
    };
    TimerRow {
        name: timer.installed.name.clone(),
        source: TimerSource::Manager(manager.scope),
        is_known: timer.group.is_some(),
        last: status
            .and_then(|it| it.last)
            .or_else(|| run.map(|run| run.ended_at)),
        result,
        // A service that failed before its run began is not in the ledger.
        is_repaired: run
            .filter(|run| {
                status
                    .and_then(|it| it.last)
                    .is_none_or(|last| run.ended_at >= last)
            })
            .is_some_and(|run| is_repaired(run, runs)),
        is_missed: status.is_some_and(|it| it.missed),
        has_never_run: status.is_some_and(|it| it.active && it.last.is_none()),
        is_unknown: status.is_none(),
        group,
    }
}

/// Returns the row of agents that `schedule run` or cron resets, if one of them is in use.
fn unmanaged_row(
    group: &GroupSchedule,
    runs: &[RunSummary],
    now: DateTime<FixedOffset>,
    is_scheduler_running: bool,
) -> TimerRow {
    let run = last_timed_run(&group.agents, runs);
    // A pause alone says nothing of when something would start a run.
    let has_time = is_scheduler_running || run.is_some();
    let is_held = group.pause.is_some() || group.skip.is_some();
    let interval = group.next.zip(group.after_next);
    let interval = interval.map(|(next, after)| after - next);
    let is_late = run.zip(interval).is_some_and(|(run, interval)| {
        let since = group
            .resumed
            .map_or(run.began_at, |it| it.max(run.began_at));
        now - since > interval + MAX_DELAY.min(interval)
    });
    TimerRow {
        name: timer_argument(group.agent.as_deref()).to_string(),
        source: TimerSource::Unmanaged,
        is_known: true,
        last: run.map(|run| run.ended_at),
        result: run
            .map(|run| TimerResult::of_run(&outcomes_of(run, &group.agents)))
            .unwrap_or_default(),
        is_repaired: run.is_some_and(|run| is_repaired(run, runs)),
        is_missed: is_late && !is_held,
        has_never_run: run.is_none(),
        is_unknown: false,
        group: GroupSchedule {
            next: group.next.filter(|_| has_time),
            ..group.clone()
        },
    }
}
