//! The conditions of a fleet that may be events: which hold now, and which state changes came since
//! the last check. Reads the archive and changes nothing.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, FixedOffset};

use super::event::{Condition, Subject};
use crate::clock::MAX_CLOCK_LEAD;
use crate::config::{Agent, AlertKind, AlertSettings, Config};
use crate::engine::{Engine, Outcome, RunReport, State, StateChange, StateObserver};
use crate::error::ErrorKind;
use crate::quantity::format_size;
use crate::reset_interval::ResetInterval;
use crate::schedule::ScheduleControls;

/// How far before the last check state changes are read: another process may record one a little
/// later than it saw it.
const CHANGE_OVERLAP: chrono::Duration = chrono::Duration::minutes(10);

/// Maximum number of agents whose reason is read from the ledger: each costs a search.
const MAX_READ_REASONS: usize = 20;

/// A fleet that timers reset has a run of one within this time.
const TIMED_RUN_PERIOD: chrono::Duration = chrono::Duration::days(30);

/// What a check of a fleet found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The conditions that hold.
    pub holding: Vec<Condition>,
    /// The state changes since the last check, oldest first.
    pub changes: Vec<StateChange>,
    /// Whether the errors of a run that concern no single agent are known.
    pub is_run_known: bool,
    /// Agents whose last run was refused because another one was at work, with that run.
    pub busy_runs: BTreeMap<String, String>,
}

/// What earlier checks have found, as far as a check needs it.
#[derive(Clone, Copy)]
pub(super) struct EarlierChecks<'a> {
    /// When the last check was.
    pub last: Option<DateTime<FixedOffset>>,
    /// When each agent was first checked.
    pub first_seen: &'a BTreeMap<String, DateTime<FixedOffset>>,
    /// Runs that were refused because another one was at work, by agent.
    pub busy_runs: &'a BTreeMap<String, String>,
}

/// Looks for conditions.
pub(super) struct ConditionFinder<'a> {
    engine: &'a Engine,
    settings: &'a AlertSettings,
    report: Option<&'a RunReport>,
    now: DateTime<FixedOffset>,
}

/// Returns the kind of event that a state is at once, if it is one.
pub(super) fn immediate_kind(state: State) -> Option<AlertKind> {
    match state {
        State::Tampered => Some(AlertKind::Tampered),
        State::HostKey => Some(AlertKind::Hostkey),
        State::Drifted | State::NoSep => Some(AlertKind::Drifted),
        State::Oversize => Some(AlertKind::Oversize),
        _ => None,
    }
}

/// Returns what an event of a kind about an agent's state is about.
pub(super) fn subject_of(config: &Config, kind: AlertKind, name: &str) -> Subject {
    let agent = config.agent(name);
    let host = agent.and_then(|agent| agent.location.host());
    match (kind, agent, host) {
        (AlertKind::Tampered, Some(agent), _) => Subject::Baseline(agent.baseline.clone()),
        (AlertKind::Hostkey | AlertKind::Unreachable, Some(agent), None) => {
            // A file system of this machine that does not answer.
            Subject::Agent(agent.name.clone())
        }
        (AlertKind::Hostkey | AlertKind::Unreachable, _, Some(host)) => {
            Subject::Host(host.authority())
        }
        _ => Subject::Agent(name.to_string()),
    }
}

/// Returns the condition that an agent's state is.
pub(super) fn state_condition(config: &Config, kind: AlertKind, change: &StateChange) -> Condition {
    let subject = subject_of(config, kind, &change.agent);
    let named = match &subject {
        Subject::Baseline(file) => format!("baseline {file}"),
        Subject::Host(host) => format!("host {host}"),
        _ => change.agent.clone(),
    };
    let reason = if change.reason.is_empty() {
        change.to.description()
    } else {
        &change.reason
    };
    Condition {
        kind,
        message: format!("{} {named}: {reason}", change.to),
        subject,
        agent: Some(change.agent.clone()),
        state: Some(change.to),
        since: change.time,
        run: None,
    }
}

impl<'a> ConditionFinder<'a> {
    pub fn new(
        engine: &'a Engine,
        settings: &'a AlertSettings,
        report: Option<&'a RunReport>,
    ) -> ConditionFinder<'a> {
        // The operator of an undo sees its result.
        let report = report.filter(|report| report.operation.installs_baselines());
        ConditionFinder {
            engine,
            settings,
            report,
            now: engine.clock().now(),
        }
    }

    fn is_wanted(&self, kind: AlertKind) -> bool {
        self.settings.kinds.contains(&kind)
    }

    /// Returns everything that may be an event.
    pub fn find(&self, earlier: EarlierChecks<'_>) -> Findings {
        let mut found = self.find_in_report();
        self.add_states(earlier, &mut found);
        self.add_failed_resets(earlier, &mut found);
        self.add_missed_schedules(earlier, &mut found);
        found
    }

    /// Returns what the report of the run alone says, and the state of the disk.
    pub fn find_in_report(&self) -> Findings {
        let mut found = Findings {
            is_run_known: self.report.is_some(),
            ..Findings::default()
        };
        self.add_disk(&mut found);
        let Some(report) = self.report else {
            return found;
        };
        for result in &report.results {
            let is_failure = matches!(result.outcome, Outcome::Failed | Outcome::Refused);
            if !is_failure {
                continue;
            }
            if result.kind == Some(ErrorKind::Busy) {
                let busy = (result.agent.clone(), report.run.clone());
                found.busy_runs.extend([busy]);
                continue;
            }
            let reason = result.note.as_deref().unwrap_or("unknown error");
            let run = (report.run.as_str(), report.operation.as_str());
            self.add_failure(&result.agent, run, self.now, reason, &mut found);
        }
        let errors: Vec<&str> = report.errors.iter().map(|error| error.message()).collect();
        if !errors.is_empty() && self.is_wanted(AlertKind::FailedReset) {
            found.holding.push(Condition {
                kind: AlertKind::FailedReset,
                subject: Subject::Fleet,
                agent: None,
                state: None,
                since: self.now,
                run: Some(report.run.clone()),
                message: format!("run {}: {}", report.run, errors.join("; ")),
            });
        }
        found
    }

    /// Adds the state changes since the last check, and the states that hold.
    fn add_states(&self, earlier: EarlierChecks<'_>, found: &mut Findings) {
        let config = self.engine.config();
        let mut changes = self.engine.state_changes().unwrap_or_default();
        changes.retain(|change| {
            change.time <= self.now + MAX_CLOCK_LEAD && config.agent(&change.agent).is_some()
        });
        changes.sort_by_key(|change| change.time);
        let latest: HashMap<&str, &StateChange> = changes
            .iter()
            .map(|change| (change.agent.as_str(), change))
            .collect();
        for agent in &config.agents {
            let Some((state, since)) = self.engine.last_known_state(&agent.name) else {
                continue;
            };
            let kind = match immediate_kind(state) {
                None if state == State::Unreach && self.is_lost_for_long(since) => {
                    AlertKind::Unreachable
                }
                None => continue,
                Some(kind) => kind,
            };
            if !self.is_wanted(kind) {
                continue;
            }
            let change = latest.get(agent.name.as_str());
            let change = change.filter(|change| change.to == state);
            let change = change.map_or_else(
                || StateChange {
                    time: since,
                    agent: agent.name.clone(),
                    from: None,
                    to: state,
                    reason: String::new(),
                    observer: StateObserver::Cli,
                },
                |change| StateChange {
                    time: since,
                    ..(*change).clone()
                },
            );
            found.holding.push(state_condition(config, kind, &change));
        }
        // Before the first check, changes are no news; the states that hold are.
        let last = earlier.last.unwrap_or(self.now).min(self.now);
        changes.retain(|change| change.time > last - CHANGE_OVERLAP);
        found.changes = changes;
    }

    fn is_lost_for_long(&self, since: DateTime<FixedOffset>) -> bool {
        let lost = (self.now - since).to_std().unwrap_or_default();
        lost >= self.settings.unreachable_after
    }

    /// Adds the agents whose last run failed, also one of the console.
    fn add_failed_resets(&self, earlier: EarlierChecks<'_>, found: &mut Findings) {
        let config = self.engine.config();
        if !self.is_wanted(AlertKind::FailedReset) {
            return;
        }
        let mut read_reasons = 0;
        for agent in &config.agents {
            let is_found = |it: &Condition| it.agent.as_ref() == Some(&agent.name);
            let failures = found.holding.iter();
            let mut failures = failures.filter(|it| it.kind == AlertKind::FailedReset);
            if failures.any(is_found) {
                continue;
            }
            let Ok(Some(last)) = self.engine.last_run(&agent.name) else {
                continue;
            };
            let is_busy = [earlier.busy_runs, &found.busy_runs]
                .iter()
                .any(|runs| runs.get(&agent.name) == Some(&last.run));
            let is_failure = matches!(last.outcome, Outcome::Failed | Outcome::Refused);
            if !is_failure || is_busy || !last.operation.installs_baselines() {
                continue;
            }
            read_reasons += 1;
            let reason = match read_reasons {
                ..=MAX_READ_REASONS => self.recorded_reason(&agent.name),
                _ => None,
            };
            let reason = reason.as_deref().unwrap_or("the ledger says why");
            let run = (last.run.as_str(), last.operation.as_str());
            self.add_failure(&agent.name, run, last.time, reason, found);
        }
    }

    /// Returns why the last run of an agent failed, by the ledger.
    fn recorded_reason(&self, agent: &str) -> Option<String> {
        let history = self.engine.agent_history(agent, 1).ok()?;
        let entry = history.entries.into_iter().next()?;
        entry.record.event.note
    }

    /// Adds a failed turn. Agents of a host that is lost are one event.
    fn add_failure(
        &self,
        agent: &str,
        (run, operation): (&str, &str),
        since: DateTime<FixedOffset>,
        reason: &str,
        found: &mut Findings,
    ) {
        if !self.is_wanted(AlertKind::FailedReset) {
            return;
        }
        let config = self.engine.config();
        let state = self.engine.last_known_state(agent).map(|(state, _)| state);
        let host = config.agent(agent).and_then(|agent| agent.location.host());
        let subject = match (state, host) {
            (Some(State::Unreach | State::HostKey), Some(host)) => Subject::Host(host.authority()),
            _ => Subject::Agent(agent.to_string()),
        };
        found.holding.push(Condition {
            kind: AlertKind::FailedReset,
            subject,
            agent: Some(agent.to_string()),
            state,
            since,
            run: Some(run.to_string()),
            message: format!("{operation} of {agent} failed: {reason}"),
        });
    }

    /// Adds the agents whose last success is older than two of their intervals.
    fn add_missed_schedules(&self, earlier: EarlierChecks<'_>, found: &mut Findings) {
        if !self.is_wanted(AlertKind::MissedSchedule) {
            return;
        }
        let config = self.engine.config();
        // Where no timer ever started a run, the interval of the fleet says nothing.
        let has_timers = self
            .now
            .checked_sub_signed(TIMED_RUN_PERIOD)
            .and_then(|limit| self.engine.has_timed_run(limit).ok())
            .unwrap_or(false);
        let of_fleet = has_timers.then_some(config.general.every);
        let scheduled: Vec<(&Agent, chrono::Duration, ResetInterval)> = config
            .agents
            .iter()
            .filter_map(|agent| {
                let interval = agent.own_interval.or(of_fleet)?;
                let limit = chrono::Duration::seconds(2 * i64::from(interval.seconds()));
                Some((agent, limit, interval))
            })
            .collect();
        let Some(longest) = scheduled.iter().map(|(_, limit, _)| *limit).max() else {
            return;
        };
        let Some(begin) = self.now.checked_sub_signed(longest) else {
            return;
        };
        let Ok(successes) = self.engine.last_successes(begin) else {
            return;
        };
        let controls = ScheduleControls::read(self.engine).unwrap_or_default();
        for (agent, limit, interval) in scheduled {
            let success = successes.get(&agent.name).copied();
            // An agent that is new in the config had no chance yet.
            let first_seen = earlier.first_seen.get(&agent.name).copied();
            let since = success.or(first_seen).unwrap_or(self.now);
            // Nor had one whose reset was skipped, or whose pause has just ended.
            let released = controls.last_release(agent, self.now);
            if self.now - released.map_or(since, |it| it.max(since)) <= limit {
                continue;
            }
            let mut message = match success {
                Some(time) => format!(
                    "{} was last reset on {}, and is due every {interval}",
                    agent.name,
                    time.format("%Y-%m-%d at %H:%M")
                ),
                None => format!(
                    "{} was not reset within two of its intervals of {interval}",
                    agent.name
                ),
            };
            if let Some(pause) = controls.pause_of_agent(agent) {
                message.push_str(&format!("; its schedule is {}", pause.describe()));
            }
            found.holding.push(Condition {
                kind: AlertKind::MissedSchedule,
                subject: Subject::Agent(agent.name.clone()),
                agent: Some(agent.name.clone()),
                state: None,
                since,
                run: None,
                message,
            });
        }
    }

    /// Adds the archive's file system, if it is nearly full.
    fn add_disk(&self, found: &mut Findings) {
        if !self.is_wanted(AlertKind::Disk) {
            return;
        }
        let Some(space) = self.engine.archive().disk_space() else {
            return;
        };
        let limit = u64::from(self.settings.disk_below_percent);
        if u128::from(space.free_bytes) * 100 >= u128::from(space.total_bytes) * u128::from(limit) {
            return;
        }
        found.holding.push(Condition {
            kind: AlertKind::Disk,
            subject: Subject::Archive,
            agent: None,
            state: None,
            since: self.now,
            run: None,
            message: format!(
                "{} of {} are free on the file system of {}, less than {limit}%",
                format_size(space.free_bytes),
                format_size(space.total_bytes),
                self.engine.archive().root().display()
            ),
        });
    }
}
