//! Collects a report: from the ledger, newest record first, then from the state changes, oldest
//! first.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};

use super::growth::GrowthCounter;
use super::{
    BrokenSealReport, DriftReport, FailureReport, FindingsReport, FleetReport, GuardReport,
    HostReport, LateWriterReport, RunTotals, StateReport,
};
use crate::archive::{EntryKind, is_quarantined};
use crate::base::clock::MAX_CLOCK_LEAD;
use crate::config::Agent;
use crate::engine::context::Context;
use crate::lint::ScanSummary;
use crate::store::observations::StateChange;
use crate::store::record::{LedgerRecord, Operation, Outcome, RunEvent};
use crate::store::state::State;
use crate::store::trigger::Trigger;

/// A shorter period may be that of a run which found a state and ended it.
const MIN_REPORTED_PERIOD: chrono::Duration = chrono::Duration::minutes(1);

/// How much later than the new state of an agent the record of the run that brought it may be: the run
/// has to read back, to settle and to flush in between.
const MAX_RECORD_DELAY: chrono::Duration = chrono::Duration::seconds(10);

/// Separates the causes of several periods or failures, the newest first.
const NEXT_REASON: &str = "; also: ";

/// Maximum number of causes that are named.
const MAX_REASONS: usize = 3;

/// A period in which an agent was in a bad state.
struct StatePeriod {
    agent: String,
    began: StateChange,
    ended: Option<DateTime<FixedOffset>>,
    /// The operation of the run that ended it.
    ended_by: Option<Operation>,
}

/// A turn of an agent that succeeded.
#[derive(Clone, Copy)]
struct Success {
    time: DateTime<FixedOffset>,
    operation: Operation,
    is_edit: bool,
}

impl StatePeriod {
    /// Whether a run found the state and ended it in its normal work: it replaces an overlong memory
    /// and one behind its baseline, and creates that of a new agent.
    fn is_routine(&self) -> bool {
        let began = &self.began;
        let is_momentary = self
            .ended
            .is_some_and(|ended| ended - began.time < MIN_REPORTED_PERIOD);
        is_momentary
            && match began.to {
                State::Oversize | State::Behind => true,
                State::Missing => began.from.is_none(),
                _ => false,
            }
    }
}

/// A run as far as it is known.
#[derive(Clone, Copy)]
struct RunOutcome {
    trigger: Trigger,
    has_failed: bool,
}

/// Collects a report.
pub(super) struct ReportCollector<'e> {
    context: &'e Context,
    since: DateTime<FixedOffset>,
    until: DateTime<FixedOffset>,
    runs: HashMap<String, RunOutcome>,
    reset_agents: BTreeSet<String>,
    /// The turns of each agent that succeeded.
    successes: HashMap<String, Vec<Success>>,
    /// Agents and runs that an undo took back, and whether that was the agent's last turn.
    undone_runs: HashMap<(String, String), bool>,
    /// By agent, and whether they are of edits.
    failures: BTreeMap<(String, bool), FailureReport>,
    guard: BTreeMap<String, GuardReport>,
    resets_of_drift: Vec<DriftReport>,
    findings: BTreeMap<String, FindingsReport>,
    /// Entries whose findings are counted: a later record of a run names its entry once more.
    scanned: HashSet<PathBuf>,
    late_writers: BTreeMap<String, LateWriterReport>,
    retired_entries: usize,
    growth: GrowthCounter,
    changes: Vec<StateChange>,
    periods: Vec<StatePeriod>,
    notes: Vec<String>,
}

impl<'e> ReportCollector<'e> {
    pub fn new(
        context: &'e Context,
        since: DateTime<FixedOffset>,
        until: DateTime<FixedOffset>,
    ) -> ReportCollector<'e> {
        ReportCollector {
            context,
            since,
            until,
            runs: HashMap::new(),
            reset_agents: BTreeSet::new(),
            successes: HashMap::new(),
            undone_runs: HashMap::new(),
            failures: BTreeMap::new(),
            guard: BTreeMap::new(),
            resets_of_drift: Vec::new(),
            findings: BTreeMap::new(),
            scanned: HashSet::new(),
            late_writers: BTreeMap::new(),
            retired_entries: 0,
            growth: GrowthCounter::new(since, until),
            changes: Vec::new(),
            periods: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns the time from which on records count.
    pub fn first_needed_time(&self) -> DateTime<FixedOffset> {
        self.growth.first_needed_time()
    }

    pub fn add_note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Adds a record. Later records come first.
    pub fn add_record(&mut self, record: LedgerRecord) {
        for event in record.event.into_views() {
            self.add_event(&event, record.time);
        }
    }

    fn add_event(&mut self, event: &RunEvent, time: DateTime<FixedOffset>) {
        if time >= self.since {
            self.retired_entries += event.retired_entries.len();
        }
        if !event.agent.is_empty() && self.agent(&event.agent).is_none() {
            return;
        }
        self.growth.add_event(event, time);
        if event.operation.is_undoable() && !event.outcome.is_failure() {
            let times = self.successes.entry(event.agent.clone()).or_default();
            let key = |run: &str| (event.agent.clone(), run.to_string());
            // An undo that was itself undone takes nothing back.
            let undone = event.undone_run.as_deref();
            if let Some(run) = undone.filter(|_| !self.undone_runs.contains_key(&key(&event.run))) {
                self.undone_runs.insert(key(run), times.is_empty());
            }
            times.push(Success {
                time,
                operation: event.operation,
                is_edit: event.is_about_files(),
            });
        }
        if time < self.since {
            return;
        }
        match event.operation {
            Operation::Guard => self.add_guard_event(event, time),
            operation if operation.is_undoable() => self.add_turn(event, time),
            _ => {}
        }
        if !event.agent.is_empty() {
            self.add_entries(event);
        }
    }

    fn add_turn(&mut self, event: &RunEvent, time: DateTime<FixedOffset>) {
        let run = self.runs.entry(event.run.clone()).or_insert(RunOutcome {
            trigger: event.trigger,
            has_failed: false,
        });
        run.has_failed |= event.outcome.is_failure();
        if event.outcome.is_failure() {
            self.add_failure(event, time);
            return;
        }
        if event.operation == Operation::Reset && event.outcome == Outcome::Ok {
            self.reset_agents.insert(event.agent.clone());
        }
        let is_drifted = event.boundary.is_some_and(|boundary| boundary.is_drifted());
        let is_whole = event
            .change
            .entry
            .as_ref()
            .is_some_and(|entry| entry.kind == EntryKind::FullBackup);
        let state = match (is_drifted, event.boundary.is_none() && is_whole) {
            (true, _) => State::Drifted,
            (false, true) => State::NoSep,
            (false, false) => return,
        };
        if event.operation.installs_baselines() && event.has_changed_memory() {
            let boundary = event.boundary.filter(|_| is_drifted);
            let key = (event.agent.clone(), event.run.clone());
            self.resets_of_drift.push(DriftReport {
                agent: event.agent.clone(),
                state,
                first_seen: None,
                reset: Some(time),
                entry: event
                    .change
                    .entry
                    .as_ref()
                    .map(|it| it.path.display().to_string()),
                times: 1,
                is_open: self.undone_runs.get(&key).copied().unwrap_or_default(),
                added: boundary.map(|it| it.added_lines),
                removed: boundary.map(|it| it.removed_lines),
            });
        }
    }

    /// Returns the first turn of an agent that succeeded from a time on, of edits or of the others;
    /// once all records were added.
    fn success_after(
        &self,
        agent: &str,
        time: DateTime<FixedOffset>,
        is_edit: bool,
    ) -> Option<Success> {
        let successes = self.successes.get(agent)?;
        let at = successes.partition_point(|success| success.time < time);
        let mut later = successes[at..].iter();
        // The undo that brought a state is recorded right behind it.
        let has_caused =
            |it: &Success| it.operation == Operation::Undo && it.time <= time + MAX_RECORD_DELAY;
        let ends = |it: &&Success| it.is_edit == is_edit && !has_caused(it);
        later.find(ends).copied()
    }

    fn add_failure(&mut self, event: &RunEvent, time: DateTime<FixedOffset>) {
        let report = self
            .failures
            .entry((event.agent.clone(), event.is_about_files()))
            .or_insert_with(|| FailureReport {
                agent: event.agent.clone(),
                operation: event.operation,
                outcome: event.outcome,
                time,
                times: 0,
                reason: String::new(),
                recovered: None,
            });
        report.times += 1;
        add_reason(
            &mut report.reason,
            event.note.as_deref().unwrap_or_default(),
        );
    }

    fn add_guard_event(&mut self, event: &RunEvent, time: DateTime<FixedOffset>) {
        let file = event.file.clone().unwrap_or_default();
        let has_given_up = event.outcome == Outcome::Refused;
        let report = self
            .guard
            .entry(file.clone())
            .or_insert_with(|| GuardReport {
                file,
                time,
                restores: 0,
                // Only the last word counts.
                gave_up: has_given_up,
            });
        report.restores += usize::from(event.outcome == Outcome::Ok);
    }

    fn add_entries(&mut self, event: &RunEvent) {
        let late = event.late_writes();
        let late: Vec<u64> = late.map(|entry| entry.size).collect();
        if !late.is_empty() {
            let writer = self
                .late_writers
                .entry(event.agent.clone())
                .or_insert_with(|| LateWriterReport {
                    agent: event.agent.clone(),
                    entries: 0,
                    bytes: 0,
                });
            writer.entries += late.len();
            writer.bytes += late.iter().sum::<u64>();
        }
        for entry in event.entries() {
            let Some(findings) = &entry.findings else {
                continue;
            };
            if findings.is_clean() || !self.scanned.insert(entry.path.clone()) {
                continue;
            }
            let report =
                self.findings
                    .entry(event.agent.clone())
                    .or_insert_with(|| FindingsReport {
                        agent: event.agent.clone(),
                        summary: ScanSummary::default(),
                        entries: Vec::new(),
                        quarantined: 0,
                    });
            report.summary.add(findings);
            report.entries.push(entry.path.display().to_string());
            report.quarantined += usize::from(is_quarantined(&entry.path));
        }
    }

    /// Adds the state changes.
    pub fn add_changes(&mut self, changes: Vec<StateChange>) {
        self.changes = changes;
    }

    /// Finds the periods of bad states.
    fn find_periods(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        // A machine whose clock is ahead may have written times to come.
        let latest = self.until + MAX_CLOCK_LEAD;
        changes.retain(|it| it.time <= latest && self.agent(&it.agent).is_some());
        changes.sort_by_key(|change| change.time);
        // The index of each agent's open period.
        let mut open: HashMap<String, usize> = HashMap::new();
        let mut periods: Vec<StatePeriod> = Vec::new();
        for change in changes {
            if let Some(index) = open.remove(&change.agent) {
                periods[index].ended = Some(change.time);
            }
            if change.to.needs_attention() {
                open.insert(change.agent.clone(), periods.len());
                periods.push(StatePeriod {
                    agent: change.agent.clone(),
                    began: change,
                    ended: None,
                    ended_by: None,
                });
            }
        }
        for period in &mut periods {
            // What a run or the guard ended has no line.
            let began = period.began.time;
            let success = self.success_after(&period.agent, began, false);
            let latest = period.ended.map(|ended| ended + MAX_RECORD_DELAY);
            let success = success.filter(|it| latest.is_none_or(|latest| it.time <= latest));
            period.ended_by = success.map(|it| it.operation);
            let ends = period.ended.into_iter().chain(success.map(|it| it.time));
            period.ended = ends.min();
            let known = self.context.observations().known_state(&period.agent);
            if period.ended.is_none() && known.is_none_or(|known| known.state != period.began.to) {
                let since = known.map(|known| known.since);
                period.ended = since.filter(|since| *since >= began).or(Some(began));
            }
        }
        self.periods = periods;
    }

    fn agent(&self, name: &str) -> Option<&'e Agent> {
        self.context.config().agent(name)
    }

    /// Returns the periods with this state that were open at some time since the moment, by what
    /// they are about.
    fn grouped_periods(
        &self,
        state: State,
        key: impl Fn(&StatePeriod) -> String,
    ) -> BTreeMap<String, Vec<&StatePeriod>> {
        let mut groups: BTreeMap<String, Vec<&StatePeriod>> = BTreeMap::new();
        for period in &self.periods {
            let is_recent = period.ended.is_none_or(|ended| ended >= self.since);
            if period.began.to == state && is_recent {
                groups.entry(key(period)).or_default().push(period);
            }
        }
        groups
    }

    fn seal_reports(&self) -> Vec<BrokenSealReport> {
        let baseline = |period: &StatePeriod| {
            let agent = self.agent(&period.agent);
            let baseline = agent.and_then(|agent| agent.baseline().map(str::to_string));
            baseline.unwrap_or_else(|| period.agent.clone())
        };
        let groups = self.grouped_periods(State::Tampered, baseline);
        let reports = groups.into_iter().filter_map(|(baseline, periods)| {
            let span = PeriodSpan::new(&periods)?;
            Some(BrokenSealReport {
                baseline,
                agents: span.agents,
                first_seen: span.first.began.time,
                observer: span.first.began.observer,
                ended: span.ended,
                open_since: span.open_since,
                times: span.times,
                reason: span.reason,
            })
        });
        sorted_by_end(reports.collect(), |it| (it.ended, it.first_seen))
    }

    fn host_reports(&self) -> Vec<HostReport> {
        let host = |period: &StatePeriod| {
            let agent = self.agent(&period.agent);
            let host = agent.and_then(|agent| agent.host());
            host.map_or_else(|| period.agent.clone(), |host| host.name.clone())
        };
        let states = [State::HostKey, State::Unreach].into_iter();
        let groups = states.flat_map(|state| {
            let groups = self.grouped_periods(state, host).into_iter();
            groups.map(move |(host, periods)| (state, host, periods))
        });
        let reports = groups.filter_map(|(state, host, periods)| {
            let span = PeriodSpan::new(&periods)?;
            Some(HostReport {
                host,
                agents: span.agents,
                state,
                lost: span.first.began.time,
                back: span.ended,
                open_since: span.open_since,
                times: span.times,
                reason: span.reason,
            })
        });
        sorted_by_end(reports.collect(), |it| (it.back, it.lost))
    }

    fn state_reports(&self) -> Vec<StateReport> {
        let mut reports = Vec::new();
        for state in [
            State::Error,
            State::Missing,
            State::Ill,
            State::Oversize,
            State::Behind,
        ] {
            let groups = self.grouped_periods(state, |period| period.agent.clone());
            for (agent, periods) in groups {
                let mut periods = periods;
                periods.retain(|period| !period.is_routine());
                let Some(span) = PeriodSpan::new(&periods) else {
                    continue;
                };
                reports.push(StateReport {
                    agent,
                    state,
                    first_seen: span.first.began.time,
                    ended: span.ended,
                    open_since: span.open_since,
                    ended_by: span.ended_by,
                    times: span.times,
                    reason: span.reason,
                });
            }
        }
        sorted_by_end(reports, |it| (it.ended, it.first_seen))
    }

    /// Returns the drift that was reset, with the time at which it was first seen, and the drift
    /// that was not.
    fn drift_reports(&mut self) -> Vec<DriftReport> {
        let mut reports = std::mem::take(&mut self.resets_of_drift);
        reports.sort_by_key(|it| it.reset);
        let mut resets: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, report) in reports.iter().enumerate() {
            resets.entry(report.agent.clone()).or_default().push(place);
        }
        let mut others: BTreeMap<(&str, State), Vec<&StatePeriod>> = BTreeMap::new();
        let is_drift = |it: &&StatePeriod| matches!(it.began.to, State::Drifted | State::NoSep);
        for period in self.periods.iter().filter(is_drift) {
            let (began, state) = (period.began.time, period.began.to);
            // The first reset behind the period has ended it.
            let of_agent = resets.get(&period.agent).map_or(&[][..], Vec::as_slice);
            let next = of_agent.partition_point(|place| reports[*place].reset < Some(began));
            if let Some(place) = of_agent.get(next) {
                // Of several periods before a reset, it is the last that the reset has ended.
                reports[*place].first_seen = Some(began);
            } else if let Some(undone) = of_agent.last().filter(|it| reports[**it].is_open) {
                // The undo brought back what was reset.
                reports[*undone].is_open = period.ended.is_none();
            } else if period.ended.is_none_or(|ended| ended >= self.since) {
                others
                    .entry((&period.agent, state))
                    .or_default()
                    .push(period);
            }
        }
        for ((agent, state), periods) in others {
            reports.extend(PeriodSpan::new(&periods).map(|span| DriftReport {
                agent: agent.to_string(),
                state,
                first_seen: Some(span.first.began.time),
                reset: None,
                entry: None,
                times: span.times,
                is_open: span.ended.is_none(),
                added: None,
                removed: None,
            }));
        }
        reports.sort_by_key(|it| (!it.is_open, std::cmp::Reverse(it.reset.max(it.first_seen))));
        reports
    }

    /// Ends the collection.
    pub fn finish(mut self) -> FleetReport {
        self.successes
            .values_mut()
            .for_each(|it| it.sort_unstable_by_key(|success| success.time));
        self.find_periods();
        let mut runs = Vec::new();
        for trigger in [Trigger::Timer, Trigger::Cli, Trigger::Console] {
            let of_trigger = self.runs.values().filter(|run| run.trigger == trigger);
            let count = of_trigger.clone().count();
            let failed = of_trigger.filter(|run| run.has_failed).count();
            if count > 0 {
                runs.push(RunTotals {
                    trigger,
                    runs: count,
                    ok: count - failed,
                    failed,
                });
            }
        }
        let drift = self.drift_reports();
        let mut failures = Vec::new();
        for ((agent, is_edit), mut failure) in std::mem::take(&mut self.failures) {
            let success = self.success_after(&agent, failure.time, is_edit);
            failure.recovered = success.map(|it| it.time);
            failures.push(failure);
        }
        failures.sort_by_key(|it| (it.recovered.is_some(), std::cmp::Reverse(it.time)));
        let mut findings: Vec<FindingsReport> =
            std::mem::take(&mut self.findings).into_values().collect();
        findings.sort_by_key(|it| {
            std::cmp::Reverse((it.summary.secrets, it.summary.injections, it.entries.len()))
        });
        let mut late_writers: Vec<LateWriterReport> = std::mem::take(&mut self.late_writers)
            .into_values()
            .collect();
        late_writers.sort_by_key(|it| std::cmp::Reverse(it.bytes));
        let mut guard: Vec<GuardReport> = std::mem::take(&mut self.guard).into_values().collect();
        guard.sort_by_key(|it| (!it.gave_up, std::cmp::Reverse(it.time)));
        FleetReport {
            since: self.since,
            until: self.until,
            runs,
            reset_agents: self.reset_agents.len(),
            seals: self.seal_reports(),
            guard,
            failures,
            hosts: self.host_reports(),
            drift,
            findings,
            states: self.state_reports(),
            late_writers,
            growth: self.growth.finish(),
            retired_entries: self.retired_entries,
            notes: self.notes,
        }
    }
}

/// Adds an earlier cause to others that lack it.
fn add_reason(reasons: &mut String, earlier: &str) {
    let known = reasons.split(NEXT_REASON).collect::<Vec<_>>();
    if known.contains(&earlier) || known.len() >= MAX_REASONS {
        return;
    }
    if !reasons.is_empty() {
        reasons.push_str(NEXT_REASON);
    }
    reasons.push_str(earlier);
}

/// What several periods of one host, baseline or agent have in common.
struct PeriodSpan<'p> {
    first: &'p StatePeriod,
    /// Their causes, the newest first.
    reason: String,
    agents: Vec<String>,
    /// When the last of them had ended; none if one is open.
    ended: Option<DateTime<FixedOffset>>,
    /// The operation of the run that ended that one.
    ended_by: Option<Operation>,
    /// When the first of those began that are open; none if all have ended.
    open_since: Option<DateTime<FixedOffset>>,
    /// The largest number of periods of one agent: the others tell of the same event.
    times: usize,
}

impl<'p> PeriodSpan<'p> {
    fn new(periods: &[&'p StatePeriod]) -> Option<PeriodSpan<'p>> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for period in periods {
            *counts.entry(&period.agent).or_default() += 1;
        }
        let mut reason = String::new();
        for period in periods.iter().rev() {
            add_reason(&mut reason, &period.began.reason);
        }
        let open = periods.iter().filter(|period| period.ended.is_none());
        let open_since = open.map(|period| period.began.time).min();
        let ended = periods.iter().filter(|period| period.ended.is_some());
        let last_ended = ended.max_by_key(|period| period.ended);
        let last_ended = last_ended.filter(|_| open_since.is_none());
        Some(PeriodSpan {
            first: periods.iter().min_by_key(|period| period.began.time)?,
            reason,
            agents: counts.keys().map(ToString::to_string).collect(),
            ended: last_ended.and_then(|period| period.ended),
            ended_by: last_ended.and_then(|period| period.ended_by),
            open_since,
            times: counts.values().copied().max().unwrap_or_default(),
        })
    }
}

/// Sorts reports: those that have not ended first, then the newest.
fn sorted_by_end<T>(
    mut reports: Vec<T>,
    times: impl Fn(&T) -> (Option<DateTime<FixedOffset>>, DateTime<FixedOffset>),
) -> Vec<T> {
    reports.sort_by_key(|report| {
        let (ended, began) = times(report);
        (ended.is_some(), std::cmp::Reverse(ended.unwrap_or(began)))
    });
    reports
}
