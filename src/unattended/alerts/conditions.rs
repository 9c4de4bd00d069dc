//! The conditions of a fleet that may be events: which hold now, and which state changes came since
//! the last check. Reads the archive and changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, FixedOffset};

use super::event::{Condition, Subject, kind_of_state};
use crate::archive::DiskSpace;
use crate::base::clock::MAX_CLOCK_LEAD;
use crate::base::digest::Digest;
use crate::base::error::ErrorKind;
use crate::base::quantity::format_size;
use crate::config::{Agent, AlertKind, AlertSettings, Config};
use crate::engine::{
    Engine, KnownState, LedgerRecord, Operation, Outcome, RunReport, State, StateChange,
    StateObserver,
};
use crate::unattended::schedule::{ScheduleControls, find_missed_resets};

/// How far before the last check state changes are read where its place in their log is not known:
/// another process may record one a little later than it saw it.
pub(super) const CHANGE_OVERLAP: chrono::Duration = chrono::Duration::minutes(10);

/// Maximum number of agents whose reason is read from the ledger: each costs a search.
const MAX_READ_REASONS: usize = 20;

/// How far back runs are looked at that ended since the last check.
const MAX_RUN_AGE: chrono::Duration = chrono::Duration::days(7);

/// What a check of a fleet found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The conditions that hold.
    pub holding: Vec<Condition>,
    /// The conditions of which nothing is known now, by key, with the agents that may have them:
    /// they neither begin nor end.
    pub unknown: BTreeMap<String, BTreeSet<String>>,
    /// The state changes since the last check, in the order of their log.
    pub changes: Vec<StateChange>,
    /// The last state change of the log; none if the log is empty or cannot be read.
    pub last_change: Option<Digest>,
    /// How resets and pushes have ended since the last check, oldest first.
    pub run_ends: Vec<RunEnd>,
    /// Number of the ledger's last record; none if the ledger cannot be read.
    pub last_record: Option<u64>,
    /// Why failed and missed resets are not known, if the ledger cannot be read.
    pub ledger_error: Option<String>,
}

/// How a reset or push ended, by the ledger.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RunEnd {
    /// It reset this agent, or found nothing to do.
    Succeeded(String),
    /// It failed for an agent, or had an error of its own.
    Failed(Condition),
}

/// What earlier checks have found, as far as a check needs it.
#[derive(Clone, Copy)]
pub(super) struct EarlierChecks<'a> {
    /// When the last check was.
    pub last: Option<DateTime<FixedOffset>>,
    /// When each agent was first checked.
    pub first_seen: &'a BTreeMap<String, DateTime<FixedOffset>>,
    /// Number of the last record of the ledger at the last check.
    pub last_record: Option<u64>,
    /// The last state change of the log at the last check.
    pub last_change: Option<Digest>,
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
    kind_of_state(state).filter(|kind| *kind != AlertKind::Unreachable)
}

/// Returns the kinds of events that are states of agents.
pub(super) fn state_kinds() -> impl Iterator<Item = AlertKind> {
    let is_state = |kind: &AlertKind| {
        State::ALL
            .into_iter()
            .any(|it| kind_of_state(it) == Some(*kind))
    };
    AlertKind::ALL.into_iter().filter(is_state)
}

/// Returns whether a state says that an agent does not have the condition of a kind. A state hides
/// those behind it, and says nothing about them: an agent that is lost may have drifted.
pub(super) fn rules_out(state: State, kind: AlertKind) -> bool {
    use State::{Drifted, Error, HostKey, Ill, Missing, NoSep, Oversize, Tampered, Unreach};
    match kind {
        // A run looks at a host before it looks at the baseline.
        AlertKind::Tampered | AlertKind::Hostkey => !matches!(state, Tampered | HostKey | Unreach),
        AlertKind::Unreachable => !matches!(state, Tampered | Unreach),
        AlertKind::Drifted => !matches!(
            state,
            Tampered | HostKey | Unreach | Error | Drifted | NoSep
        ),
        AlertKind::Oversize => !matches!(
            state,
            Tampered | HostKey | Unreach | Error | Drifted | NoSep | Ill | Oversize
        ),
        AlertKind::HealthWorse => !matches!(
            state,
            Tampered | HostKey | Unreach | Error | Drifted | NoSep | Missing | Ill
        ),
        AlertKind::FailedReset | AlertKind::Disk | AlertKind::MissedSchedule => false,
    }
}

/// Returns the keys of the events that are about a failed run of an agent: its own, and that of its
/// host if it has one.
pub(super) fn failure_keys(config: &Config, agent: &str) -> impl Iterator<Item = String> {
    let host = config.agent(agent).and_then(|it| it.host());
    let host = host.map(|host| Subject::Host(host.authority()));
    let subjects = [Subject::Agent(agent.to_string())].into_iter().chain(host);
    subjects.map(|subject| subject.key(AlertKind::FailedReset))
}

/// Returns what an event of a kind about an agent's state is about.
pub(super) fn subject_of(config: &Config, kind: AlertKind, name: &str) -> Subject {
    let agent = config.agent(name);
    let host = agent.and_then(|agent| agent.host());
    match (kind, agent, host) {
        (
            AlertKind::Tampered,
            Some(Agent {
                reset: Some(reset), ..
            }),
            _,
        ) => Subject::Baseline(reset.baseline.clone()),
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

/// Returns what tells a state change from others: not its time, for a clock may be set back.
fn digest_of(change: &StateChange) -> Digest {
    Digest::of(&serde_json::to_vec(change).unwrap_or_default())
}

/// A reset or push that failed for an agent.
struct FailedTurn<'a> {
    agent: &'a str,
    run: &'a str,
    operation: Operation,
    kind: Option<ErrorKind>,
    is_host_lost: bool,
    time: DateTime<FixedOffset>,
    reason: &'a str,
}

/// Returns the condition that errors of a run are which concern no single agent.
fn failed_run(run: &str, time: DateTime<FixedOffset>, reason: &str) -> Condition {
    Condition {
        kind: AlertKind::FailedReset,
        subject: Subject::Fleet,
        agent: None,
        state: None,
        since: time,
        run: Some(run.to_string()),
        message: format!("run {run}: {reason}"),
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
        self.add_failed_resets(&mut found);
        self.add_run_ends(earlier, &mut found);
        self.add_missed_schedules(earlier, &mut found);
        found
    }

    /// Returns what the report of the run alone says, and the state of the disk.
    pub fn find_in_report(&self) -> Findings {
        let mut found = Findings::default();
        self.add_disk(&mut found);
        let Some(report) = self.report else {
            // Only a run knows whether runs still fail as a whole.
            let key = Subject::Fleet.key(AlertKind::FailedReset);
            found.unknown.entry(key).or_default();
            return found;
        };
        if !self.is_wanted(AlertKind::FailedReset) {
            return found;
        }
        for result in &report.results {
            let is_failure = matches!(result.outcome, Outcome::Failed | Outcome::Refused);
            if is_failure && result.kind != Some(ErrorKind::Busy) {
                found.holding.push(self.failed_turn(&FailedTurn {
                    agent: &result.agent,
                    run: &report.run,
                    operation: report.operation,
                    kind: result.kind,
                    is_host_lost: result.is_host_lost,
                    time: self.now,
                    reason: result.note.as_deref().unwrap_or("unknown error"),
                }));
            }
        }
        let errors: Vec<&str> = report.errors.iter().map(|error| error.message()).collect();
        if !errors.is_empty() {
            let reason = errors.join("; ");
            found
                .holding
                .push(failed_run(&report.run, self.now, &reason));
        }
        found
    }

    /// Adds the state changes since the last check, and the states that hold.
    fn add_states(&self, earlier: EarlierChecks<'_>, found: &mut Findings) {
        let config = self.engine.config();
        let mut changes = self.engine.observations().changes().unwrap_or_default();
        let known = earlier.last_change;
        let known = known.and_then(|last| changes.iter().rposition(|it| digest_of(it) == last));
        found.last_change = changes.last().map(digest_of);
        for change in &mut changes {
            // The clock was ahead.
            if change.time > self.now + MAX_CLOCK_LEAD {
                change.time = self.now;
            }
        }
        let latest: HashMap<&str, &StateChange> = changes
            .iter()
            .map(|change| (change.agent.as_str(), change))
            .collect();
        for agent in &config.agents {
            let Some(KnownState { state, since }) =
                self.engine.observations().known_state(&agent.name)
            else {
                continue;
            };
            let kind = kind_of_state(state);
            for hidden in state_kinds().filter(|it| Some(*it) != kind && !rules_out(state, *it)) {
                let key = subject_of(config, hidden, &agent.name).key(hidden);
                let agents = found.unknown.entry(key).or_default();
                agents.insert(agent.name.clone());
            }
            let is_wanted = |kind: &AlertKind| {
                let is_due = *kind != AlertKind::Unreachable || self.is_lost_for_long(since);
                is_due && self.is_wanted(*kind)
            };
            let Some(kind) = kind.filter(is_wanted) else {
                continue;
            };
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
        match known {
            Some(position) => drop(changes.drain(..=position)),
            None => {
                // Before the first check, changes are no news; the states that hold are.
                let last = earlier.last.unwrap_or(self.now).min(self.now);
                changes.retain(|change| change.time > last - CHANGE_OVERLAP);
            }
        }
        changes.retain(|change| config.agent(&change.agent).is_some());
        found.changes = changes;
    }

    fn is_lost_for_long(&self, since: DateTime<FixedOffset>) -> bool {
        let lost = (self.now - since).to_std().unwrap_or_default();
        lost >= self.settings.unreachable_after
    }

    /// Adds the agents whose last run failed, also one of the console.
    fn add_failed_resets(&self, found: &mut Findings) {
        let config = self.engine.config();
        if !self.is_wanted(AlertKind::FailedReset) {
            return;
        }
        let failures = found.holding.iter();
        let failures = failures.filter(|it| it.kind == AlertKind::FailedReset);
        let reported: BTreeSet<String> = failures.filter_map(|it| it.agent.clone()).collect();
        let mut read_reasons = 0;
        for agent in config.reset_agents() {
            let name = &agent.name;
            if reported.contains(name) {
                continue;
            }
            let last = match self.engine.history().last_run(name) {
                Ok(None) => continue,
                Ok(Some(last)) => last,
                Err(_) => {
                    self.add_unknown_failure(name, found);
                    continue;
                }
            };
            if !last.operation.installs_baselines() || !last.outcome.is_failure() {
                continue;
            }
            // A run that did not get to the agent says nothing about it.
            if last.kind == Some(ErrorKind::Busy) || last.outcome == Outcome::NotStarted {
                self.add_unknown_failure(name, found);
                continue;
            }
            read_reasons += 1;
            let reason = match read_reasons {
                ..=MAX_READ_REASONS => self.recorded_reason(name),
                _ => None,
            };
            let condition = self.failed_turn(&FailedTurn {
                agent: name,
                run: &last.run,
                operation: last.operation,
                kind: last.kind,
                is_host_lost: last.is_host_lost,
                time: last.time,
                reason: reason.as_deref().unwrap_or("the ledger says why"),
            });
            found.holding.push(condition);
        }
        // What else is wrong with an agent shows once its host is back.
        let lost = found.holding.iter();
        let lost = lost.filter(|it| it.kind == AlertKind::FailedReset);
        let lost = lost.filter(|it| matches!(it.subject, Subject::Host(_)));
        let lost: Vec<String> = lost.filter_map(|it| it.agent.clone()).collect();
        for agent in lost {
            let key = Subject::Agent(agent.clone()).key(AlertKind::FailedReset);
            found.unknown.entry(key).or_default().insert(agent);
        }
    }

    fn add_unknown_failure(&self, agent: &str, found: &mut Findings) {
        for key in failure_keys(self.engine.config(), agent) {
            let agents = found.unknown.entry(key).or_default();
            agents.insert(agent.to_string());
        }
    }

    /// Adds how runs ended since the last check, also those of the console, and those whose own check
    /// could not be made. A failure of an interrupted run has no kind: the run that records it has
    /// recovered the agent.
    fn add_run_ends(&self, earlier: EarlierChecks<'_>, found: &mut Findings) {
        let config = self.engine.config();
        if !self.is_wanted(AlertKind::FailedReset) {
            return;
        }
        let mut last_record = 0;
        let mut records = Vec::new();
        let limit = self.now.checked_sub_signed(MAX_RUN_AGE);
        let read = self.engine.ledger().for_each_record_backwards(|record| {
            last_record = last_record.max(record.seq);
            let is_recent = limit.is_some_and(|limit| record.time > limit);
            let is_new = earlier.last_record.is_some_and(|last| record.seq > last) && is_recent;
            if is_new && record.event.operation.installs_baselines() {
                records.push(record);
            }
            is_new
        });
        if let Err(error) = read {
            found.ledger_error = Some(error.message().to_string());
            return;
        }
        found.last_record = Some(last_record);
        for LedgerRecord { time, event, .. } in records.into_iter().rev() {
            let is_known_failure = matches!(event.outcome, Outcome::Failed | Outcome::Refused)
                && event.kind.is_some_and(|kind| kind != ErrorKind::Busy);
            let is_success = matches!(event.outcome, Outcome::Ok | Outcome::Unchanged);
            let reason = event.note.as_deref().unwrap_or("unknown error");
            if is_success {
                let agents = event.agents().map(str::to_string);
                found.run_ends.extend(agents.map(RunEnd::Succeeded));
            } else if is_known_failure && config.agent(&event.agent).is_some() {
                let condition = self.failed_turn(&FailedTurn {
                    agent: &event.agent,
                    run: &event.run,
                    operation: event.operation,
                    kind: event.kind,
                    is_host_lost: event.is_host_lost,
                    time,
                    reason,
                });
                found.run_ends.push(RunEnd::Failed(condition));
            } else if is_known_failure && event.agent.is_empty() {
                let is_reported = self.report.is_some_and(|report| report.run == event.run);
                if !is_reported {
                    let condition = failed_run(&event.run, time, reason);
                    found.run_ends.push(RunEnd::Failed(condition));
                }
            }
        }
    }

    /// Returns why the last run of an agent failed, by the ledger.
    fn recorded_reason(&self, agent: &str) -> Option<String> {
        let history = self.engine.history().agent_history(agent, 1).ok()?;
        let entry = history.entries.into_iter().next()?;
        entry.record.event.note
    }

    /// Returns the condition that a failed turn is. Agents of a host that was lost are one event.
    fn failed_turn(&self, turn: &FailedTurn<'_>) -> Condition {
        let agent = turn.agent;
        let configured = self.engine.config().agent(agent);
        let host = configured.and_then(|it| it.host());
        let (subject, state) = match host.filter(|_| turn.is_host_lost) {
            Some(host) => {
                let state = match turn.kind {
                    Some(ErrorKind::Integrity) => State::HostKey,
                    _ => State::Unreach,
                };
                (Subject::Host(host.authority()), Some(state))
            }
            None => {
                let known = self.engine.observations().known_state(agent);
                (
                    Subject::Agent(agent.to_string()),
                    known.map(|known| known.state),
                )
            }
        };
        Condition {
            kind: AlertKind::FailedReset,
            subject,
            agent: Some(agent.to_string()),
            state,
            since: turn.time,
            run: Some(turn.run.to_string()),
            message: format!(
                "{} of {agent} failed: {}",
                turn.operation.as_str(),
                turn.reason
            ),
        }
    }

    /// Adds the agents whose last success is older than two of their intervals.
    fn add_missed_schedules(&self, earlier: EarlierChecks<'_>, found: &mut Findings) {
        if !self.is_wanted(AlertKind::MissedSchedule) {
            return;
        }
        let config = self.engine.config();
        let controls = ScheduleControls::read(self.engine).unwrap_or_default();
        // An agent that no check has seen before had no chance yet, however old the config is.
        let first_seen = |agent: &str| Some(*earlier.first_seen.get(agent).unwrap_or(&self.now));
        let missed = find_missed_resets(self.engine, &controls, first_seen, self.now);
        let missed = missed.unwrap_or_else(|error| {
            found.ledger_error = Some(error.message().to_string());
            for agent in config.reset_agents() {
                let subject = Subject::Agent(agent.name.clone());
                let agents = found.unknown.entry(subject.key(AlertKind::MissedSchedule));
                agents.or_default().insert(agent.name.clone());
            }
            Vec::new()
        });
        for missed in missed {
            let agent = config.agent(&missed.agent);
            let mut message = missed.describe();
            if let Some(pause) = agent.and_then(|agent| controls.pause_of_agent(agent)) {
                message.push_str(&format!("; its schedule is {}", pause.describe()));
            }
            found.holding.push(Condition {
                kind: AlertKind::MissedSchedule,
                subject: Subject::Agent(missed.agent.clone()),
                agent: Some(missed.agent),
                state: None,
                since: missed.since,
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
        let archive = self.engine.archive();
        let is_there = archive.check_expected().is_ok();
        let Some(space) = DiskSpace::of(archive.root()).filter(|_| is_there) else {
            let key = Subject::Archive.key(AlertKind::Disk);
            found.unknown.entry(key).or_default();
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
                archive.root().display()
            ),
        });
    }
}
