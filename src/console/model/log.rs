//! What happened: runs of the ledger, and what was said.

use std::collections::{HashSet, VecDeque};

use chrono::{DateTime, FixedOffset};

use super::{Model, ResultLine, ResultView};
use crate::console::columns::Column;
use crate::engine::{Event, FileState, Operation, Outcome};

/// How many runs of the ledger are shown, the youngest: who looks for others asks
/// the command line.
pub const MAX_RUNS: usize = 10_000;

/// The log.
#[derive(Clone, Debug, Default)]
pub struct LogScreen {
    /// The last runs of the ledger, at most [`MAX_RUNS`], the youngest first.
    pub runs: Vec<RunSummary>,
    /// Whether they were read once.
    pub read: bool,
    /// What was said in this session, the youngest first.
    pub messages: VecDeque<LogMessage>,
    /// Runs of this session with the command that does the same, the youngest
    /// first.
    pub commands: VecDeque<(String, String)>,
    /// The row under the cursor.
    pub cursor: usize,
    /// What is searched for, lower case.
    pub query: String,
}

/// The word for a run that took an undo back.
pub const REDO: &str = "redo";

/// One run of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// Its id.
    pub run: String,
    /// When it ended.
    pub time: DateTime<FixedOffset>,
    /// Its records.
    pub events: Vec<Event>,
    /// Agents for which it was undone, and that was not taken back.
    pub undone: Vec<String>,
    /// Whether it took an undo back.
    pub redo: bool,
    /// How many entries its retention deleted.
    pub retired: usize,
    /// What went wrong beside the agents.
    pub trouble: Option<String>,
}

impl RunSummary {
    /// Whether it was about agents, and not only about the archive as pins are.
    pub fn has_agents(&self) -> bool {
        self.events.iter().any(|event| !event.agent.is_empty())
    }

    /// How many agents ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.events
            .iter()
            .filter(|event| event.outcome == outcome)
            .count()
    }

    /// Agents that were not brought to a good end, by how they ended.
    pub fn bad(&self) -> Vec<(Outcome, Vec<&str>)> {
        let named = |outcome: Outcome| {
            let so = self.events.iter().filter(|it| it.outcome == outcome);
            (outcome, so.map(|it| it.agent.as_str()).collect::<Vec<_>>())
        };
        let named = Outcome::BAD.map(named).into_iter();
        named.filter(|(_, agents)| !agents.is_empty()).collect()
    }

    /// The word for what it did.
    pub fn verb(&self) -> &'static str {
        let act = self
            .events
            .first()
            .map_or(Operation::Reset, |event| event.act);
        if self.redo { REDO } else { act.word() }
    }

    /// Agents whose reset in this run can be undone.
    pub fn undoable(&self) -> impl Iterator<Item = &str> {
        let resets = self
            .events
            .iter()
            .filter(|event| event.act == Operation::Reset);
        let changed = resets.filter(|event| event.changed());
        let stands = |event: &&Event| !self.undone.contains(&event.agent);
        changed.filter(stands).map(|event| event.agent.as_str())
    }

    /// Agents whose memory this run put back, and which no later run changed, except one
    /// that was undone: where the undo can be taken back. `later` holds the agents that a
    /// later run decided about, and takes those that this one does.
    fn redoable<'a>(&'a self, later: &mut HashSet<&'a str>) -> Vec<&'a str> {
        let changed = self.events.iter().filter(|event| event.changed());
        // What was taken back, and what took it back, leave the decision to older runs.
        let stands = changed.filter(|it| !self.redo && !self.undone.contains(&it.agent));
        let mut last: Vec<&Event> = stands.collect();
        last.retain(|event| later.insert(&event.agent));
        let undos = last
            .into_iter()
            .filter(|event| event.act == Operation::Undo);
        undos.map(|event| event.agent.as_str()).collect()
    }

    /// The run as a result.
    pub fn result(&self) -> ResultView {
        let line = |event: &Event| ResultLine {
            agent: event.agent.clone(),
            outcome: event.outcome,
            entry: event.entry.clone(),
            note: event.note.clone(),
            hints: Vec::new(),
        };
        ResultView {
            run: self.run.clone(),
            act: self
                .events
                .first()
                .map_or(Operation::Reset, |event| event.act),
            verb: self.verb(),
            time: self.time,
            duration_ms: self.events.iter().map(|event| event.duration_ms).sum(),
            lines: self.events.iter().map(line).collect(),
            retired: self.retired,
        }
    }
}

/// One row of the log.
#[derive(Clone, Copy, Debug)]
pub enum LogRow<'a> {
    /// A run.
    Run(&'a RunSummary),
    /// Something that was said.
    Message(&'a LogMessage),
}

impl LogScreen {
    /// Whether a run took an undo back.
    pub fn is_redo(&self, id: &str) -> bool {
        self.runs.iter().any(|run| run.redo && run.run == id)
    }

    /// Runs and messages together, the youngest first.
    pub fn rows(&self) -> Vec<LogRow<'_>> {
        let runs = self.runs.iter().map(LogRow::Run);
        let messages = self.messages.iter().map(LogRow::Message);
        let mut rows: Vec<LogRow<'_>> = runs.chain(messages).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time()));
        rows
    }

    /// Runs of which an undo can be taken back, the youngest first, each with the agents.
    pub fn redoable(&self) -> impl Iterator<Item = (&RunSummary, Vec<&str>)> {
        let mut later = HashSet::new();
        let runs = self.runs.iter();
        let runs = runs.map(move |run| (run, run.redoable(&mut later)));
        runs.filter(|(_, agents)| !agents.is_empty())
    }

    /// Takes the runs of the ledger. A run of this session is in it from then on, so what
    /// was said of its end goes.
    pub fn take_runs(&mut self, runs: Vec<RunSummary>) {
        self.change(|log| {
            let is_recorded = |id: &String| runs.iter().any(|run| run.run == *id);
            let messages = &mut log.messages;
            messages.retain(|message| !message.run.as_ref().is_some_and(is_recorded));
            log.runs = runs;
        });
    }

    /// Changes what is in it. The cursor stays on its row, wherever that goes.
    pub fn change(&mut self, change: impl FnOnce(&mut LogScreen)) {
        let here = self.rows().get(self.cursor).map(LogRow::place);
        change(self);
        let Some(here) = here else { return };
        let rows = self.rows();
        let found = rows.iter().position(|row| here.is(row));
        self.cursor = found.unwrap_or(self.cursor);
    }
}

/// What a row is, however many come above it.
enum LogRowId {
    Run(String),
    /// By its number.
    Message(u64),
}

impl LogRowId {
    fn is(&self, row: &LogRow<'_>) -> bool {
        match (self, row) {
            (LogRowId::Run(run), LogRow::Run(other)) => *run == other.run,
            (LogRowId::Message(number), LogRow::Message(other)) => *number == other.number,
            _ => false,
        }
    }
}

/// How many runs a trend tells of.
const TREND_RUNS: usize = 8;

impl Model {
    /// Rows of the log that fit.
    pub fn log_height(&self) -> usize {
        // Two lines of header, a rule; a rule, the row's run, the message, the hints.
        usize::from(self.size.1).saturating_sub(7).max(1)
    }

    /// Works out the trends of the agents, where they are shown.
    pub fn follow_trends(&mut self) {
        self.trends.clear();
        if !self.preferences.columns.contains(&Column::Trend) {
            return;
        }
        for event in self.log.runs.iter().flat_map(|run| &run.events) {
            let Some(FileState::File { size, .. }) = event.before else {
                continue;
            };
            let sizes = self.trends.entry(event.agent.clone()).or_default();
            if sizes.len() < TREND_RUNS {
                sizes.push(size);
            }
        }
        // The youngest run came first.
        self.trends.values_mut().for_each(|sizes| sizes.reverse());
    }
}

impl LogRow<'_> {
    fn place(&self) -> LogRowId {
        match self {
            LogRow::Run(run) => LogRowId::Run(run.run.clone()),
            LogRow::Message(message) => LogRowId::Message(message.number),
        }
    }

    /// When it happened.
    pub fn time(&self) -> DateTime<FixedOffset> {
        match self {
            LogRow::Run(run) => run.time,
            LogRow::Message(message) => message.time,
        }
    }

    /// What is written in its row, and searched.
    pub fn text(&self) -> String {
        match self {
            LogRow::Message(message) => match message.count {
                1 => message.text.clone(),
                count => format!("{}  x{count}", message.text),
            },
            LogRow::Run(run) => {
                let verb = run.verb();
                let who = match run.events.as_slice() {
                    [one] if one.agent.is_empty() => "archive".to_string(),
                    [one] => one.agent.clone(),
                    many => format!("{} agents", many.len()),
                };
                let mut text = format!(
                    "{verb} {who}  run {}: {} ok",
                    run.run,
                    run.count(Outcome::Ok)
                );
                match run.count(Outcome::Unchanged) {
                    0 => {}
                    count => text.push_str(&format!(", {count} unchanged")),
                }
                for (outcome, agents) in run.bad() {
                    let (count, word) = (agents.len(), outcome.counted());
                    text.push_str(&format!(", {count} {word} {}", agents.join(" ")));
                }
                if let [one] = run.events.as_slice()
                    && let Some(note) = &one.note
                {
                    text.push_str(&format!("  {note}"));
                }
                if let Some(trouble) = &run.trouble {
                    text.push_str(&format!("  {trouble}"));
                }
                match run.undone.len() {
                    0 => {}
                    count if count == run.count(Outcome::Ok) => text.push_str("  (undone)"),
                    _ => text.push_str(&format!("  (undone: {})", run.undone.join(" "))),
                }
                text
            }
        }
    }
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageLevel {
    /// Good to know.
    Info,
    /// Something is in the way.
    Warn,
    /// Something went wrong.
    Error,
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogMessage {
    /// How much it matters.
    pub level: MessageLevel,
    /// A sentence.
    pub text: String,
    /// When.
    pub time: DateTime<FixedOffset>,
    /// How often it was said in a row.
    pub count: usize,
    /// Which one it is of all that were said.
    pub number: u64,
    /// The run whose end it tells of.
    pub run: Option<String>,
}
