//! The end of a run: what needed no change is recorded, retention, the report.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::time::Instant;

use super::unrecorded::append_unrecorded_note;
use super::{LastRunSeen, Run, UnchangedAgent};
use crate::base::error::{Error, ErrorKind};
use crate::engine::runs::retention::{Deletion, RetentionScope};
use crate::engine::runs::run_report::{AgentResult, RunReport};
use crate::store::address::RecordedAddress;
use crate::store::record::{Outcome, RunEvent};
use crate::store::run_log;
use crate::store::unchanged_record::merge_unchanged;

/// The end of a run.
pub(super) struct RunEnding<'r, 'a> {
    pub(super) run: &'r Run<'a>,
}

impl RunEnding<'_, '_> {
    /// Ends the run after its last agent: retention, and the report.
    pub(super) fn finish(&self, mut results: Vec<AgentResult>, began: Instant) -> RunReport {
        let plan = self.run.plan;
        let is_whole_fleet = plan.steps.len() + plan.skipped.len()
            == self.run.context().config().reset_agents().count();
        if is_whole_fleet && plan.operation.installs_baselines() {
            self.run.report_unclaimed_journals();
        }
        let steps = plan.steps.iter().map(|step| step.agent.as_str());
        let agents = steps.chain(plan.skipped.iter().map(|it| it.agent.as_str()));
        let places: HashMap<&str, usize> =
            agents.enumerate().map(|(at, agent)| (agent, at)).collect();
        let place = |result: &AgentResult| places.get(result.agent.as_str()).copied();
        results.sort_by_key(|result| place(result).unwrap_or(usize::MAX));
        let duration_ms = elapsed_millis(began, self.run.context().clock().instant());
        self.record_unchanged(&mut results);
        let scope = RetentionScope::from_results(self.run.context().config(), &results);
        let (retired, mut notes) = if self.run.is_cancelled() {
            self.skip_retention()
        } else {
            self.apply_retention(&scope)
        };
        notes.extend(self.note_new_archive());
        self.record_errors();
        self.run.states.record(plan.operation, &results);
        let mut report = RunReport {
            run: self.run.id.clone(),
            operation: plan.operation,
            results,
            errors: Vec::new(),
            retired_entries: retired.entries,
            retired_versions: retired.versions,
            notes,
            ledger_head: self.run.context().ledger().durable_head(),
            duration_ms,
        };
        let half = |it: &&AgentResult| it.outcome == Outcome::Ok && it.kind.is_some();
        let half = match report.results.iter().filter(half).count() {
            0 => String::new(),
            count => format!(" ({count} of them with something left to settle)"),
        };
        let counts = format!(
            "{} ok{half}, {} unchanged, {} failed or refused",
            report.count(Outcome::Ok),
            report.count(Outcome::Unchanged),
            report.results.len() - report.count(Outcome::Ok) - report.count(Outcome::Unchanged),
        );
        self.run.log_line(&run_log::format_run_end(
            &report.run,
            &counts,
            report.ledger_head,
        ));
        self.run.write_log_lines();
        report.errors = std::mem::take(&mut self.run.shared().errors);
        // Releases it now, not when the last thread of this run drops it.
        let mut place = self
            .run
            .replacing_permit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        drop(place.take());
        self.compact_ledger(&mut report);
        self.run.context().ledger().renew_reserve();
        report
    }

    /// Compacts the ledger. The run is over by then: it holds no lock of
    /// an agent, and its results are known.
    fn compact_ledger(&self, report: &mut RunReport) {
        if self.run.is_cancelled() {
            return;
        }
        match self.run.context().ledger().compact() {
            Ok(None) => return,
            Ok(Some(moved)) => self.run.log_line(&moved),
            Err(error) => {
                let hints = error.hints().iter().map(|hint| format!("; {hint}"));
                let hints: String = hints.collect();
                let note = format!("the ledger is not compacted: {error}{hints}");
                self.run.log_line(&note);
                report.notes.push(note);
            }
        }
        self.run.write_log_lines();
        report.errors.append(&mut self.run.shared().errors);
    }

    /// Returns the run that has changed an agent since it was found unchanged, with what it did: the
    /// agent is not locked any more.
    fn later_change(&self, unchanged: &UnchangedAgent) -> Option<String> {
        let history = self.run.context().history(&unchanged.event.agent).ok()?;
        let last = history.last_run?;
        let LastRunSeen { run, version } = &unchanged.seen;
        let is_same = *run == Some(last.run.clone())
            || last.run == self.run.id
            || last.outcome == Outcome::Unchanged
                && history.pushed_versions.first() == version.as_ref();
        let verb = match last.outcome {
            Outcome::Ok => "has changed it",
            _ => "has worked on it",
        };
        (!is_same).then(|| format!("run {} {verb} since", last.run))
    }

    /// Records the agents that needed no change, in one record if that can hold them. Those that
    /// another run has changed since are left out: their last record is that of the other run.
    fn record_unchanged(&self, results: &mut [AgentResult]) {
        let unchanged = std::mem::take(&mut self.run.shared().unchanged_agents);
        let mut events = Vec::new();
        for agent in unchanged {
            let Some(note) = self.later_change(&agent) else {
                events.push(agent.event);
                continue;
            };
            let name = &agent.event.agent;
            self.run.log_line(&format!("{name}: not recorded: {note}"));
            let mut results = results.iter_mut();
            if let Some(result) = results.find(|it| it.agent == *name) {
                let before = result.note.take().map(|before| format!("{before}; "));
                result.note = Some(before.unwrap_or_default() + &note);
            }
        }
        let names: HashSet<String> = events.iter().map(|event| event.agent.clone()).collect();
        let has_known_address = |event: &RunEvent| {
            let history = self.run.context().history(&event.agent);
            let known = history.ok().and_then(|history| history.file_address);
            known.is_some_and(|known| *known == RecordedAddress::from_event(event))
        };
        let merged = merge_unchanged(events, has_known_address);
        let Err(error) = self.run.context().ledger().append(merged) else {
            return;
        };
        let is_unchanged =
            |it: &&mut AgentResult| it.outcome == Outcome::Unchanged && names.contains(&it.agent);
        for result in results.iter_mut().filter(is_unchanged) {
            self.run
                .log_line(&format!("{}: not recorded: {error}", result.agent));
            append_unrecorded_note(
                "not recorded",
                &error,
                &mut result.note,
                &mut result.kind,
                &mut result.hints,
            );
        }
    }

    /// Deletes what has expired. Returns that, and notes for the report.
    fn apply_retention(&self, scope: &RetentionScope<'_>) -> (Deletion, Vec<String>) {
        let runs = self.run.runs;
        let unseen = || {
            self.run
                .plan
                .is_unobserved()
                .then(|| runs.retention.plan_retention(scope))
        };
        let planned = self.run.plan.retention.clone().or_else(unseen);
        let Some(planned) = planned else {
            return Default::default();
        };
        let mut deletion = runs
            .retention
            .delete_expired(&self.run.id, &planned, scope)
            .unwrap_or_else(Deletion::from_error);
        for line in deletion.describe(&runs.retention) {
            self.run.log_line(&line);
        }
        for error in deletion.errors.drain(..) {
            self.run.report_error(error.with_context("retention"));
        }
        // An agent may have failed since the plan was made.
        let mut notes = planned.notes;
        for note in deletion.notes.drain(..) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        if let Ok(Some((seq, time))) = runs.retention.future_record() {
            let time = time.format("%Y-%m-%d %H:%M:%S");
            notes.push(format!(
                "record {seq} of the ledger is of {time}, which has not come yet; retention does \
                 not go by it, and `{}` says what to do",
                runs.context.command_line("doctor")
            ));
        }
        notes.iter().for_each(|note| self.run.log_line(note));
        (deletion, notes)
    }

    /// Notes that this run has begun an archive: the disk of another one may not be mounted.
    fn note_new_archive(&self) -> Option<String> {
        let note = self
            .run
            .begins_archive
            .then(|| self.run.context().new_archive_note())??;
        self.run.log_line(&note);
        Some(note)
    }

    /// Notes that nothing was deleted although something has expired.
    fn skip_retention(&self) -> (Deletion, Vec<String>) {
        let planned = self.run.plan.retention.iter();
        let due: usize = planned.map(|it| it.entries.len() + it.versions.len()).sum();
        if due == 0 && !self.run.plan.is_unobserved() {
            return Default::default();
        }
        let note = "retention was skipped: the run was interrupted".to_string();
        self.run.log_line(&note);
        (Deletion::default(), vec![note])
    }

    /// Records errors that concern no single agent.
    fn record_errors(&self) {
        let trouble = self.run.shared().errors.clone();
        if trouble.is_empty() {
            return;
        }
        let messages: Vec<&str> = trouble.iter().map(Error::message).collect();
        let context = self.run.context();
        let event = RunEvent {
            outcome: Outcome::Failed,
            note: Some(messages.join("; ")),
            kind: trouble
                .iter()
                .map(Error::kind)
                .reduce(ErrorKind::more_serious),
            ..RunEvent::for_archive(
                &self.run.id,
                self.run.plan.operation,
                context.trigger(),
                context.user(),
            )
        };
        if let Err(error) = self.run.context().ledger().append(vec![event]) {
            self.run
                .log_line(&format!("cannot record errors of the run: {error}"));
        }
    }
}

pub(super) fn elapsed_millis(began: Instant, now: Instant) -> u64 {
    now.duration_since(began).as_millis() as u64
}
