//! Log screen: runs of the ledger and messages of the session.

pub mod schedule;

use std::collections::{BTreeSet, HashSet, VecDeque};

use chrono::{DateTime, FixedOffset};

use crate::base::digest::Digest;
use crate::console::screens::reset::state::{
    PlanRequest, REDO_VERB, ResultLine, ResultView, failures_first, note_with_findings,
};
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::engine::{FileState, FleetReport, Operation, Outcome, ReportRow, RunEvent};
use schedule::ScheduleView;

/// Maximum number of runs in the log, the newest; the command line shows older ones.
pub const MAX_RUNS: usize = 10_000;

/// Maximum number of messages; the ledger keeps everything that matters.
pub const MAX_MESSAGES: usize = 1000;

/// The log.
#[derive(Clone, Debug, Default)]
pub struct LogScreen {
    /// The last runs of the ledger, at most [`MAX_RUNS`], newest first.
    pub runs: Vec<RunSummary>,
    /// Whether the runs have been loaded.
    pub is_loaded: bool,
    /// Messages of this session, newest first.
    pub messages: VecDeque<LogMessage>,
    /// Runs of this session, newest first.
    pub own_runs: VecDeque<OwnRun>,
    /// Changes of baselines in this session, newest first.
    pub own_changes: VecDeque<OwnBaselineChange>,
    /// Position in the rows. The cursor stays at the newest until it is moved to another one.
    pub list: ListPane<LogRowId>,
    /// Query of the search.
    pub query: String,
    /// What happened since the last evening, or why that is unknown; none before it is loaded.
    pub report: Option<Result<ReportText, String>>,
    /// Whether only the first line of the report is shown.
    pub is_report_folded: bool,
    /// Id of the last run that a timer started.
    pub newest_timed_run: Option<String>,
    /// The timers, above the report.
    pub schedule: ScheduleView,
}

/// A report in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportText {
    /// Its first line.
    pub headline: String,
    /// Its rows, the worst first.
    pub rows: Vec<ReportRow>,
}

impl From<&FleetReport> for ReportText {
    fn from(report: &FleetReport) -> ReportText {
        ReportText {
            headline: report.headline(),
            rows: report.rows(),
        }
    }
}

/// What the ledger does not record of a run of this session.
#[derive(Clone, Debug)]
pub struct OwnRun {
    /// Its id; empty until the run has ended.
    pub run_id: String,
    /// The request of its plan.
    pub request: PlanRequest,
    /// The equivalent command line, if there is one.
    pub command_line: Option<String>,
    /// When its end was reported; `None` until then.
    pub ended_at: Option<DateTime<FixedOffset>>,
    /// Agents whose memory it changed and that can be put back.
    pub agents: Vec<String>,
}

/// A change of baselines in this session: a save, or a plan over several of them.
#[derive(Clone, Debug)]
pub struct OwnBaselineChange {
    /// Its runs in the ledger, one for each file.
    pub run_ids: Vec<String>,
    /// Whether it took another change back.
    pub is_undo: bool,
}

/// How many acts of this session are remembered, of each kind.
const MAX_REMEMBERED_ACTS: usize = 1000;

/// One run of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Its id.
    pub run_id: String,
    /// When its first agent's turn began.
    pub began_at: DateTime<FixedOffset>,
    /// When it ended: the time of its last record.
    pub ended_at: DateTime<FixedOffset>,
    /// Its records.
    pub events: Vec<RunEvent>,
    /// Agents for which it was undone and not redone.
    pub undone_agents: Vec<String>,
    /// Whether it is a redo.
    pub is_redo: bool,
    /// Number of entries that its retention deleted.
    pub retired_entries: usize,
    /// Problem that concerns no single agent.
    pub problem: Option<String>,
}

impl RunSummary {
    /// Whether it has agents; a change of pins has none.
    pub fn has_agents(&self) -> bool {
        self.events.iter().any(|event| !event.agent.is_empty())
    }

    /// Whether it has a record of an agent.
    pub fn is_about(&self, agent: &str) -> bool {
        !agent.is_empty() && self.events.iter().any(|event| event.agent == agent)
    }

    /// Returns the number of agents with this outcome.
    pub fn count_outcome(&self, outcome: Outcome) -> usize {
        self.events
            .iter()
            .filter(|event| event.outcome == outcome)
            .count()
    }

    /// Returns the agents that failed, by outcome.
    pub fn failures(&self) -> Vec<(Outcome, Vec<&str>)> {
        let named = |outcome: Outcome| {
            let so = self.events.iter().filter(|it| it.outcome == outcome);
            (outcome, so.map(|it| it.agent.as_str()).collect::<Vec<_>>())
        };
        let named = Outcome::FAILURES.map(named).into_iter();
        named.filter(|(_, agents)| !agents.is_empty()).collect()
    }

    /// Returns its verb.
    pub fn verb(&self) -> &'static str {
        let act = self
            .events
            .first()
            .map_or(Operation::Reset, |event| event.operation);
        if self.is_redo {
            REDO_VERB
        } else {
            act.as_str()
        }
    }

    /// Returns the one run that it undid; `None` if its agents were in several, and for a run that
    /// is no undo. An agent that was refused before its turn has no such run.
    pub fn undone_run(&self) -> Option<&str> {
        let undone = self.events.iter();
        let mut undone = undone.filter_map(|event| event.undone_run.as_deref());
        let first = undone.next()?;
        undone.all(|run| run == first).then_some(first)
    }

    /// Whether it changed exactly these agents.
    pub fn has_changed_exactly(&self, agents: &[String]) -> bool {
        let events = self.events.iter();
        let changed = events.filter(|event| event.has_changed_files());
        let changed: BTreeSet<&String> = changed.map(|event| &event.agent).collect();
        changed == agents.iter().collect()
    }

    /// Returns the agents whose reset, push or edit in this run can be undone.
    pub fn undoable_agents(&self) -> impl Iterator<Item = &str> {
        let resets = self
            .events
            .iter()
            .filter(|event| event.operation != Operation::Undo);
        let changed = resets.filter(|event| event.has_changed_files());
        let stands = |event: &&RunEvent| !self.undone_agents.contains(&event.agent);
        changed.filter(stands).map(|event| event.agent.as_str())
    }

    /// Returns the agents for which this run is an undo that can be redone: no later run has
    /// changed them, except one that was undone. `later` holds the agents of later runs; those of
    /// this one are added.
    fn redoable_agents<'a>(&'a self, later: &mut HashSet<&'a str>) -> Vec<&'a str> {
        let changed = self.events.iter().filter(|event| event.has_changed_files());
        // A run that was undone, and a redo, leave the decision to older runs.
        let stands = changed.filter(|it| !self.is_redo && !self.undone_agents.contains(&it.agent));
        let mut last: Vec<&RunEvent> = stands.collect();
        last.retain(|event| later.insert(&event.agent));
        let undos = last
            .into_iter()
            .filter(|event| event.operation == Operation::Undo);
        undos.map(|event| event.agent.as_str()).collect()
    }

    /// Returns the baseline that a save or a restore changed, and the version that it replaced.
    pub fn replaced_baseline(&self) -> Option<(String, Digest)> {
        let event = self.events.first()?;
        let is_save = matches!(event.operation, Operation::Save | Operation::Restore);
        let replaced = event.change.before.as_ref().filter(|_| is_save)?.digest()?;
        Some((event.file.clone()?, replaced))
    }

    /// Returns the baseline that a save created.
    pub fn created_baseline(&self) -> Option<&str> {
        let event = self.events.first()?;
        let is_created = matches!(event.change.before, None | Some(FileState::Absent));
        let is_creation = event.operation == Operation::Save && is_created;
        event.file.as_deref().filter(|_| is_creation)
    }

    /// Returns the version that it put back, if it is a restore of a baseline.
    pub fn restored_version(&self) -> Option<Digest> {
        let event = self.events.first()?;
        event
            .baseline
            .filter(|_| event.operation == Operation::Restore)
    }

    /// Returns the run as a result.
    pub fn to_result_view(&self) -> ResultView {
        let line = |event: &RunEvent| ResultLine {
            agent: event.agent.clone(),
            outcome: event.outcome,
            entry: event.change.entry.clone(),
            note: note_with_findings(Some(&event.findings()), event.note.as_ref()),
            hints: Vec::new(),
            is_irreversible: event.is_irreversible(),
        };
        ResultView {
            run_id: self.run_id.clone(),
            operation: self
                .events
                .first()
                .map_or(Operation::Reset, |event| event.operation),
            verb: self.verb(),
            ended_at: self.ended_at,
            duration_ms: (self.ended_at - self.began_at).num_milliseconds().max(0) as u64,
            lines: failures_first(self.events.iter().map(line).collect()),
            retired_entries: self.retired_entries,
            errors: self.problem.iter().cloned().collect(),
        }
    }
}

/// One row of the log.
#[derive(Clone, Copy, Debug)]
pub enum LogRow<'a> {
    /// A run.
    Run(&'a RunSummary),
    /// A message.
    Message(&'a LogMessage),
}

impl LogScreen {
    /// Returns runs and messages together, newest first.
    pub fn rows(&self) -> Vec<LogRow<'_>> {
        let runs = self.runs.iter().map(LogRow::Run);
        let messages = self.messages.iter().map(LogRow::Message);
        let mut rows: Vec<LogRow<'_>> = runs.chain(messages).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time()));
        rows
    }

    /// Returns the row under the cursor.
    pub fn current_row(&self) -> Option<LogRow<'_>> {
        let rows = self.rows();
        rows.get(self.list.cursor_in(&rows[..])).copied()
    }

    /// Returns the run under the cursor.
    pub fn current_run(&self) -> Option<&RunSummary> {
        match self.current_row()? {
            LogRow::Run(run) => Some(run),
            LogRow::Message(_) => None,
        }
    }

    /// Adds a note about something that may be repeated: an earlier note of the same text is counted
    /// and moves up.
    pub fn add_repeated(&mut self, text: &str, time: DateTime<FixedOffset>) {
        let newest = self.messages.iter().map(|message| message.sequence).max();
        let same = self.messages.iter().position(|it| it.text == text);
        let earlier = same.and_then(|at| self.messages.remove(at));
        self.messages.push_front(LogMessage {
            level: MessageLevel::Warn,
            text: text.to_string(),
            time,
            repeat_count: earlier.map_or(1, |it| it.repeat_count + 1),
            sequence: newest.unwrap_or(0) + 1,
            run_id: None,
        });
        self.messages.truncate(MAX_MESSAGES);
    }

    /// Remembers a run of this session.
    pub fn remember_run(&mut self, run: OwnRun) {
        self.own_runs.push_front(run);
        self.own_runs.truncate(MAX_REMEMBERED_ACTS);
    }

    /// Remembers a change of baselines in this session.
    pub fn remember_change(&mut self, run_ids: Vec<String>, is_undo: bool) {
        let change = OwnBaselineChange { run_ids, is_undo };
        self.own_changes.push_front(change);
        self.own_changes.truncate(MAX_REMEMBERED_ACTS);
    }

    /// Returns what is known of a run of this session.
    pub fn find_own_run(&self, id: &str) -> Option<&OwnRun> {
        self.own_runs.iter().find(|run| run.run_id == id)
    }

    /// Returns the undos that can be redone, newest first, each with its agents.
    pub fn redoable_runs(&self) -> impl Iterator<Item = (&RunSummary, Vec<&str>)> {
        let mut later = HashSet::new();
        let runs = self.runs.iter();
        let runs = runs.map(move |run| (run, run.redoable_agents(&mut later)));
        runs.filter(|(_, agents)| !agents.is_empty())
    }

    /// Returns a run.
    pub fn find_run(&self, id: &str) -> Option<&RunSummary> {
        self.runs.iter().find(|run| run.run_id == id)
    }

    /// Returns the runs that undid a run for agents for which it is undone, oldest first.
    pub fn undoing_runs(&self, undone: &RunSummary) -> Vec<&str> {
        let undid = |run: &RunSummary, agent: &String| {
            let mut events = run.events.iter().filter(|event| event.has_changed_files());
            !run.undone_agents.contains(agent)
                && events.any(|event| {
                    event.agent == *agent && event.undone_run.as_ref() == Some(&undone.run_id)
                })
        };
        let runs = self.runs.iter().rev();
        let undoing = runs.filter(|run| undone.undone_agents.iter().any(|agent| undid(run, agent)));
        undoing.map(|run| run.run_id.as_str()).collect()
    }

    /// Replaces the runs. A run of this session is among them from then on, so the message about
    /// its end is removed.
    pub fn replace_runs(&mut self, runs: Vec<RunSummary>) {
        let is_recorded = |id: &String| runs.iter().any(|run| run.run_id == *id);
        let messages = &mut self.messages;
        messages.retain(|message| !message.run_id.as_ref().is_some_and(is_recorded));
        self.runs = runs;
    }

    /// Returns the agents for which the run of a result can be undone, as far as the log knows.
    pub fn undoable_agents(&self, result: &ResultView) -> Vec<String> {
        let mut agents = result.undoable_agents();
        if let Some(run) = self.find_run(&result.run_id) {
            agents.retain(|agent| !run.undone_agents.contains(agent));
        }
        agents
    }

    /// Returns the run that changed a baseline last.
    pub fn last_change_of_baseline(&self, name: &str) -> Option<&RunSummary> {
        let mut runs = self.runs.iter();
        runs.find(|run| run.replaced_baseline().is_some_and(|(it, _)| it == name))
    }

    /// Returns the run of the last save of a baseline that was not taken back. The search ends at a run
    /// for which `is_end` holds.
    pub fn standing_save(
        &self,
        name: &str,
        is_end: impl Fn(&RunSummary) -> bool,
    ) -> Option<&RunSummary> {
        // The version that a restore put back: the changes since that version do not stand.
        let mut restored = None;
        for run in &self.runs {
            if is_end(run) {
                return None;
            }
            let Some((_, replaced)) = run.replaced_baseline().filter(|(it, _)| it == name) else {
                continue;
            };
            match (restored, run.restored_version()) {
                (Some(version), _) if version == replaced => restored = None,
                (Some(_), _) => {}
                (None, Some(version)) => restored = Some(version),
                (None, None) => return Some(run),
            }
        }
        None
    }
}

/// Identity of a row, which stays when rows are added above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRowId {
    /// Id of a run.
    Run(String),
    /// Sequence number of a message.
    Message(u64),
}

impl KeyedRow<LogRowId> for LogRow<'_> {
    fn key(&self) -> LogRowId {
        match self {
            LogRow::Run(run) => LogRowId::Run(run.run_id.clone()),
            LogRow::Message(message) => LogRowId::Message(message.sequence),
        }
    }
}

impl LogRow<'_> {
    /// Returns when it happened.
    pub fn time(&self) -> DateTime<FixedOffset> {
        match self {
            LogRow::Run(run) => run.ended_at,
            LogRow::Message(message) => message.time,
        }
    }

    /// Returns the text of the row, which a search reads.
    pub fn text(&self) -> String {
        match self {
            LogRow::Message(message) => match message.repeat_count {
                1 => message.text.clone(),
                count => format!("{}  x{count}", message.text),
            },
            LogRow::Run(run) => {
                let verb = run.verb();
                let who = match run.events.as_slice() {
                    [one] if one.agent.is_empty() => {
                        one.file.clone().unwrap_or_else(|| "archive".to_string())
                    }
                    [one] => one.agent.clone(),
                    many if many
                        .iter()
                        .all(|it| it.agent.is_empty() && it.file.is_some()) =>
                    {
                        format!("{} baselines", many.len())
                    }
                    many => format!("{} agents", many.len()),
                };
                let mut text = format!(
                    "{verb} {who}  run {}: {} ok",
                    run.run_id,
                    run.count_outcome(Outcome::Ok)
                );
                match run.count_outcome(Outcome::Unchanged) {
                    0 => {}
                    count => text.push_str(&format!(", {count} unchanged")),
                }
                for (outcome, agents) in run.failures() {
                    let (count, word) = (agents.len(), outcome.count_label());
                    text.push_str(&format!(", {count} {word} {}", agents.join(" ")));
                }
                if let [one] = run.events.as_slice()
                    && let Some(note) = &one.note
                {
                    text.push_str(&format!("  {note}"));
                }
                if let Some(trouble) = &run.problem {
                    text.push_str(&format!("  {trouble}"));
                }
                match run.undone_agents.len() {
                    0 => {}
                    count if count == run.count_outcome(Outcome::Ok) => text.push_str("  (undone)"),
                    _ => text.push_str(&format!("  (undone: {})", run.undone_agents.join(" "))),
                }
                text
            }
        }
    }
}

/// Level of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageLevel {
    /// For information.
    Info,
    /// A warning.
    Warn,
    /// A failure.
    Error,
}

/// Message to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMessage {
    /// Its level.
    pub level: MessageLevel,
    /// Its text.
    pub text: String,
    /// When it was reported.
    pub time: DateTime<FixedOffset>,
    /// How often it was reported in a row.
    pub repeat_count: usize,
    /// Its number among all messages of the session.
    pub sequence: u64,
    /// The run whose end it reports.
    pub run_id: Option<String>,
}
