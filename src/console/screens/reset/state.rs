//! A plan, a run, its result; and what confirms a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use crate::archive::WrittenEntry;
use crate::console::key_guard::KeyGuard;
use crate::engine::{Operation, Outcome, Plan, RunReport, RunStage as Step, UndoMode, UndoTarget};

/// Verb of a run that takes an undo back.
pub const REDO_VERB: &str = "redo";

/// Plan, run, result.
#[derive(Clone, Debug, Default)]
pub struct ResetScreen {
    /// Where it stands.
    pub stage: ResetStage,
    /// The row under the cursor.
    pub cursor: usize,
    /// The plan that is in sight, by when it was made.
    pub visible_plan: Option<Duration>,
    /// Ignores keys from the one that asks for a plan on, and again whenever one comes
    /// in sight.
    pub guard: KeyGuard,
    /// When the key that confirms came last, after it unlocked what was read-only: one
    /// that is held must not go on to confirm.
    pub confirm_held_at: Option<Duration>,
    /// Number of the last plan request; a reply with a lower number is late.
    pub last_plan_id: u64,
    /// Whether the last plan request is unanswered.
    pub is_plan_pending: bool,
    /// Whether something that the plan is about changed while it was made anew.
    pub is_plan_stale: bool,
    /// The result that was there before the plan, and is again when that is left.
    pub previous_result: Option<Box<ResultView>>,
    /// Whether the plan was asked for at that result.
    pub is_from_result: bool,
}

impl ResetScreen {
    /// The agent under the cursor.
    pub fn current_agent(&self) -> Option<&str> {
        let at = self.cursor;
        match &self.stage {
            ResetStage::Empty | ResetStage::Planning(_) => None,
            ResetStage::Plan(view) => {
                let steps = view.plan.steps.iter().map(|step| &step.agent);
                let skipped = view.plan.skipped.iter().map(|it| &it.agent);
                steps.chain(skipped).nth(at).map(String::as_str)
            }
            ResetStage::Run(view) => view.plan.steps.get(at).map(|step| step.agent.as_str()),
            ResetStage::Result(view) => view.lines.get(at).map(|line| line.agent.as_str()),
        }
    }
}

/// How far a reset or an undo has come.
#[derive(Clone, Debug, Default)]
pub enum ResetStage {
    /// Nothing was planned yet.
    #[default]
    Empty,
    /// A plan is being made.
    Planning(PlanRequest),
    /// A plan waits for its confirmation.
    Plan(Box<PlanView>),
    /// It is being carried out.
    Run(Box<RunView>),
    /// It ended.
    Result(Box<ResultView>),
}

/// What a plan was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanRequest {
    /// A reset of these agents.
    Reset(Vec<String>),
    /// An undo.
    Undo(UndoTarget, UndoMode),
}

impl PlanRequest {
    /// The word for what is asked for.
    pub fn verb(&self) -> &'static str {
        match self {
            PlanRequest::Reset(_) => Operation::Reset.as_str(),
            PlanRequest::Undo(UndoTarget::Redo(_), _) => REDO_VERB,
            PlanRequest::Undo(..) => Operation::Undo.as_str(),
        }
    }

    /// The agents that were asked for by name.
    pub fn agent_names(&self) -> &[String] {
        match self {
            PlanRequest::Reset(names)
            | PlanRequest::Undo(UndoTarget::Agents(names) | UndoTarget::Redo(names), _) => names,
            PlanRequest::Undo(UndoTarget::Run(_), _) => &[],
        }
    }
}

/// A plan on the screen.
#[derive(Clone, Debug)]
pub struct PlanView {
    /// What it was asked for; asked again when it is void.
    pub request: PlanRequest,
    /// The plan.
    pub plan: Plan,
    /// When it was made.
    pub made_at: Duration,
    /// What has to happen before it runs.
    pub confirmation: Confirmation,
    /// What was typed so far.
    pub typed_text: String,
    /// Marked agents that the filter hides, until it is said what with them.
    pub hidden_agents: Vec<String>,
}

/// What confirms a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// There is nothing to run.
    NothingToRun,
    /// `y`.
    SingleKey,
    /// These words, typed in full, and Enter.
    TypedText(String),
    /// First it has to be said what happens to newer notes: `a` or `o`.
    NewerNotes,
}

impl PlanView {
    /// Whether an agent wrote after the run that would be undone.
    pub fn has_newer_notes(&self) -> bool {
        self.plan.steps.iter().any(|step| {
            step.undone_run
                .as_ref()
                .is_some_and(|undo| undo.has_written_since)
        })
    }

    /// The word that is typed before the number.
    pub fn verb(&self) -> &'static str {
        self.request.verb()
    }
}

/// A run on the screen.
#[derive(Clone, Debug)]
pub struct RunView {
    /// What is being carried out.
    pub plan: Plan,
    /// The word for it.
    pub verb: &'static str,
    /// When it began.
    pub started_at: Duration,
    /// How far each agent has come.
    pub agent_steps: BTreeMap<String, Step>,
    /// How it ended for those that are done.
    pub outcomes: BTreeMap<String, (Outcome, Option<String>)>,
    /// Whether the rest was cancelled.
    pub is_cancelled: bool,
}

/// A result on the screen.
#[derive(Clone, Debug)]
pub struct ResultView {
    /// The run.
    pub run_id: String,
    /// What it did.
    pub operation: Operation,
    /// The word for it.
    pub verb: &'static str,
    /// When it ended.
    pub ended_at: DateTime<FixedOffset>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How it ended for each agent.
    pub lines: Vec<ResultLine>,
    /// How many entries retention deleted.
    pub retired_entries: usize,
}

/// One agent of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultLine {
    /// The agent.
    pub agent: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What was archived where.
    pub entry: Option<WrittenEntry>,
    /// Why, or what else is worth knowing.
    pub note: Option<String>,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl ResultView {
    /// The result of a run that has just ended.
    pub fn from_report(
        report: &RunReport,
        verb: &'static str,
        time: DateTime<FixedOffset>,
    ) -> ResultView {
        let line = |result: &crate::engine::AgentResult| ResultLine {
            agent: result.agent.clone(),
            outcome: result.outcome,
            entry: result.entries.first().cloned(),
            note: result.note.clone(),
            hints: result.hints.clone(),
        };
        ResultView {
            run_id: report.run.clone(),
            operation: report.operation,
            verb,
            ended_at: time,
            duration_ms: report.duration_ms,
            lines: report.results.iter().map(line).collect(),
            retired_entries: report.retired_entries.len(),
        }
    }

    /// Agents that were changed, and can be changed back.
    pub fn changed_agents(&self) -> Vec<String> {
        let done = self.lines.iter().filter(|line| line.outcome == Outcome::Ok);
        done.map(|line| line.agent.clone()).collect()
    }

    /// How many were not brought to a good end: `1 failed, 2 refused`.
    pub fn failure_summary(&self) -> String {
        summarize_failures(self.lines.iter().map(|line| line.outcome))
    }

    /// Agents that were not brought to a good end.
    pub fn failed_agents(&self) -> Vec<String> {
        let bad = self.lines.iter().filter(|line| line.outcome.is_failure());
        bad.map(|line| line.agent.clone()).collect()
    }
}

/// How many outcomes are no good end: `1 failed, 2 refused`.
pub fn summarize_failures(outcomes: impl Iterator<Item = Outcome> + Clone) -> String {
    let count = |outcome| outcomes.clone().filter(|it| *it == outcome).count();
    let bad =
        Outcome::FAILURES.map(|outcome| (count(outcome), outcome.count_label().to_lowercase()));
    let bad = bad.iter().filter(|(count, _)| *count > 0);
    let bad: Vec<String> = bad.map(|(count, word)| format!("{count} {word}")).collect();
    match bad.as_slice() {
        [] => "0 failed".to_string(),
        bad => bad.join(", "),
    }
}

impl ResultLine {
    /// The line as a text.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}  {}", self.agent, self.outcome.as_str());
        if let Some(entry) = &self.entry {
            text.push_str(&format!("  {}", entry.path.display()));
        }
        if let Some(note) = &self.note {
            text.push_str(&format!("  {note}"));
        }
        text
    }
}
