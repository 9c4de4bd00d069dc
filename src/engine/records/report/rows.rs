//! A report in words, for the command line and the console: one line an item, the worst first. The
//! text may quote agents and hosts, so printers make it visible.

use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};

use super::{DriftReport, FailureReport, FleetReport, GuardReport};
use crate::base::quantity::{describe_size, format_count};
use crate::store::state::State;

/// How serious a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportLevel {
    /// It asks for an operator now.
    Bad,
    /// It is worth a look.
    Warn,
    /// It is for information.
    Info,
}

/// A row of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRow {
    /// How serious it is.
    pub level: ReportLevel,
    /// What it is about, in one or two words.
    pub topic: &'static str,
    /// The agent, the host or the file; empty for the archive.
    pub subject: String,
    /// What happened, and when.
    pub text: String,
}

impl ReportRow {
    fn new(level: ReportLevel, topic: &'static str, subject: &str, text: String) -> ReportRow {
        ReportRow {
            level,
            topic,
            subject: subject.to_string(),
            text,
        }
    }
}

type Time = DateTime<FixedOffset>;

impl FleetReport {
    /// Returns whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.rows_in_order().is_empty()
    }

    /// Returns the numbers of runs in one line; that nothing happened, if so.
    pub fn headline(&self) -> String {
        let since = self.format_time(self.since);
        if self.is_empty() {
            return format!("nothing happened since {since}");
        }
        let runs: usize = self.runs.iter().map(|it| it.runs).sum();
        let mut text = format!("since {since}: {}", format_count(runs as u64, "run"));
        let failed: usize = self.runs.iter().map(|it| it.failed).sum();
        if runs > 0 {
            let by: Vec<String> = self
                .runs
                .iter()
                .map(|it| format!("{} {}", it.runs, it.trigger.as_str()))
                .collect();
            text.push_str(&format!(" ({}), {} ok", by.join(", "), runs - failed));
        }
        if failed > 0 {
            text.push_str(&format!(", {failed} failed"));
        }
        if self.reset_agents > 0 {
            text.push_str(&format!(
                "; {} reset",
                format_count(self.reset_agents as u64, "agent")
            ));
        }
        text
    }

    /// Returns the rows, the worst first.
    pub fn rows(&self) -> Vec<ReportRow> {
        let mut rows = self.rows_in_order();
        // Rows of one topic stay together.
        let mut worst: BTreeMap<&str, ReportLevel> = BTreeMap::new();
        for row in &rows {
            let level = worst.entry(row.topic).or_insert(row.level);
            *level = row.level.min(*level);
        }
        rows.sort_by_key(|row| worst[row.topic]);
        rows
    }

    fn rows_in_order(&self) -> Vec<ReportRow> {
        let mut rows = self.rows_of_troubles();
        rows.extend(self.rows_of_archive());
        for note in &self.notes {
            rows.push(ReportRow::new(ReportLevel::Warn, "note", "", note.clone()));
        }
        rows
    }

    /// Returns the rows about baselines, runs, hosts and states.
    fn rows_of_troubles(&self) -> Vec<ReportRow> {
        let seals = self.seals.iter().map(|it| {
            let agents = format_count(it.agents.len() as u64, "agent");
            let text = self.span_text(
                (it.first_seen, it.ended, it.open_since),
                it.times,
                &[&agents, &it.reason],
            );
            let level = level_of(it.ended.is_none());
            ReportRow::new(level, "seal broken", &it.baseline, text)
        });
        let guard = self
            .guard
            .iter()
            .map(|it| ReportRow::new(level_of(it.gave_up), "guard", &it.file, self.guard_text(it)));
        let failures = self.failures.iter().map(|it| {
            let level = level_of(it.recovered.is_none());
            ReportRow::new(level, "failed", &it.agent, self.failure_text(it))
        });
        let hosts = self.hosts.iter().map(|it| {
            let topic = match it.state {
                State::HostKey => "host key",
                _ => "host lost",
            };
            let agents = format_count(it.agents.len() as u64, "agent");
            let text = self.span_text(
                (it.lost, it.back, it.open_since),
                it.times,
                &[&agents, &it.reason],
            );
            ReportRow::new(level_of(it.back.is_none()), topic, &it.host, text)
        });
        let drift = self.drift.iter().map(|it| {
            ReportRow::new(
                level_of(it.is_open),
                "drift",
                &it.agent,
                self.drift_text(it),
            )
        });
        let states = self.states.iter().map(|it| {
            let end = match (it.ended, it.ended_by) {
                (None, _) => String::new(),
                (Some(_), Some(operation)) => format!("ended by {}", operation.as_str()),
                (Some(_), None) => "ended without a run".to_string(),
            };
            let span = self.span_text(
                (it.first_seen, it.ended, it.open_since),
                it.times,
                &[&end, &it.reason],
            );
            let text = format!("{} {span}", it.state);
            ReportRow::new(level_of(it.ended.is_none()), "state", &it.agent, text)
        });
        let rows = seals.chain(guard).chain(failures).chain(hosts);
        rows.chain(drift).chain(states).collect()
    }

    /// Returns the rows about what was archived and deleted.
    fn rows_of_archive(&self) -> Vec<ReportRow> {
        let findings = self.findings.iter().map(|it| {
            let entries = format_count(it.entries.len() as u64, "entry");
            let mut text = format!("{} in {entries}", it.summary.describe());
            if it.quarantined > 0 {
                text.push_str(&format!(", {} in quarantine", it.quarantined));
            }
            ReportRow::new(ReportLevel::Warn, "findings", &it.agent, text)
        });
        let growth = self.growth.iter().map(|it| {
            let [now, usual] = [it.bytes_per_day, it.usual_bytes_per_day].map(describe_size);
            let text = format!("{now} a day, usually {usual}");
            ReportRow::new(ReportLevel::Warn, "growth", &it.agent, text)
        });
        let late_writers = self.late_writers.iter().map(|it| {
            let writes = format_count(it.entries as u64, "late write");
            let text = format!("{writes}, {}", describe_size(it.bytes));
            ReportRow::new(ReportLevel::Info, "late writer", &it.agent, text)
        });
        let mut rows: Vec<ReportRow> = findings.chain(growth).chain(late_writers).collect();
        if self.retired_entries > 0 {
            let entries = format_count(self.retired_entries as u64, "entry");
            let text = format!("deleted {entries}");
            rows.push(ReportRow::new(ReportLevel::Info, "retention", "", text));
        }
        rows
    }

    fn guard_text(&self, it: &GuardReport) -> String {
        let time = self.format_time(it.time);
        match (it.gave_up, it.restores) {
            (true, restores) => format!(
                "{time} gave up after {}",
                format_count(restores as u64, "restore")
            ),
            (false, 1) => format!("{time} restored"),
            (false, restores) => format!("{time} restored, {restores} times"),
        }
    }

    fn failure_text(&self, it: &FailureReport) -> String {
        let mut text = self.format_time(it.time);
        if it.times > 1 {
            text.push_str(&format!(", {} times", it.times));
        }
        if let Some(recovered) = it.recovered {
            text.push_str(&format!(", ok at {}", self.format_time(recovered)));
        }
        text.push_str(&format!(
            "; {} {}",
            it.operation.as_str(),
            it.outcome.as_str()
        ));
        if !it.reason.is_empty() {
            text.push_str(&format!(": {}", it.reason));
        }
        text
    }

    fn drift_text(&self, it: &DriftReport) -> String {
        let mut text = match it.first_seen {
            Some(seen) => format!("{} first seen", self.format_time(seen)),
            None => "found".to_string(),
        };
        if it.times > 1 {
            text.push_str(&format!(", {} times", it.times));
        }
        match it.reset {
            Some(reset) => {
                let undone = if it.is_open { " and undone" } else { "" };
                text.push_str(&format!(", {} reset{undone}", self.format_time(reset)));
            }
            None if it.is_open => text.push_str(", not reset"),
            None => text.push_str(", gone again"),
        }
        if let (Some(added), Some(removed)) = (it.added, it.removed) {
            text.push_str(&format!(", +{added} -{removed}"));
        }
        if it.state == State::NoSep {
            text.push_str(", no separator");
        }
        if let Some(entry) = &it.entry {
            text.push_str(&format!("; {entry}"));
        }
        text
    }

    /// Formats periods and their details: "23:40 to 03:10, 2 times; 4 agents; connection timed out",
    /// "since 03:10, 2 times since 23:40", "02:10 to 03:00; ended by reset; no memory file".
    fn span_text(
        &self,
        (began, ended, open_since): (Time, Option<Time>, Option<Time>),
        times: usize,
        details: &[&str],
    ) -> String {
        let began = self.format_time(began);
        let mut text = match (ended, open_since.map(|time| self.format_time(time))) {
            (Some(ended), _) => format!("{began} to {}", self.format_time(ended)),
            (None, Some(open)) => format!("since {open}"),
            (None, None) => format!("since {began}"),
        };
        if times > 1 {
            text.push_str(&format!(", {times} times"));
            if ended.is_none() {
                text.push_str(&format!(" since {began}"));
            }
        }
        for detail in details.iter().filter(|it| !it.is_empty()) {
            text.push_str(&format!("; {detail}"));
        }
        text
    }

    /// Formats a time: "02:14", with the date if it is not of today.
    fn format_time(&self, time: DateTime<FixedOffset>) -> String {
        let format = if time.date_naive() == self.until.date_naive() {
            "%H:%M"
        } else {
            "%Y-%m-%d %H:%M"
        };
        time.format(format).to_string()
    }
}

fn level_of(is_open: bool) -> ReportLevel {
    if is_open {
        ReportLevel::Bad
    } else {
        ReportLevel::Warn
    }
}
