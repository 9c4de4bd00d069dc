//! Reset screen: a plan and its confirmation, a run, its result.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use crate::archive::WrittenEntry;
use crate::base::digest::Digest;
use crate::base::quantity::format_count;
use crate::console::text::Pane;
use crate::console::widgets::list_pane::ListPane;
use crate::console::widgets::plan_pane::{PlanPane, PlanStage, ShownPlan};
use crate::engine::{
    Operation, Outcome, Plan, PlannedFile, RunReport, RunStage as Step, ScratchRequest, UndoMode,
    UndoTarget,
};
use crate::layouts::OperationRequest;
use crate::lint::ScanSummary;

/// What the stop of a run means.
pub const STOP_CONSEQUENCE: &str = "agents in progress finish, no others start";

/// Verb of a run that takes an undo back.
pub const REDO_VERB: &str = "redo";

/// Reset screen.
#[derive(Clone, Debug, Default)]
pub struct ResetScreen {
    /// The plan, and its run.
    pub plan: PlanPane<PlanRequest, Plan, Box<RunView>>,
    /// Marked agents of the plan that the filter hides, until the operator keeps or drops them.
    pub hidden_agents: Vec<String>,
    /// The last result. It is on the screen while no plan is.
    pub last_result: Option<Box<ResultView>>,
    /// Position in the agents.
    pub list: ListPane<String>,
    /// When the confirmation key last arrived after it unlocked read-only: a held key must not go
    /// on to confirm the plan.
    pub confirm_held_at: Option<Duration>,
    /// Whether an agent of the plan changed while the plan was made again.
    pub is_plan_stale: bool,
    /// Whether the plan was requested at the last result.
    pub is_from_result: bool,
    /// What the plan changes in a text below its agents.
    pub details: PlanDetails,
}

/// Two versions of an agent's rules to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleChangeRequest {
    /// The agent.
    pub agent: String,
    /// The version that was pushed to it last.
    pub old: Digest,
    /// The version that the plan installs.
    pub new: Digest,
}

/// The files that a step changes.
#[derive(Clone, Debug, PartialEq)]
pub struct FileChangesRequest {
    /// The agent.
    pub agent: String,
    /// The directory of its memory; empty if the config has none.
    pub directory: PathBuf,
    /// The operation that changes them; none for an undo.
    pub operation: Option<OperationRequest>,
    /// Their states before and after.
    pub files: Vec<PlannedFile>,
    /// Directories that are created for them.
    pub new_directories: Vec<PathBuf>,
    /// Directories that are removed behind them.
    pub removed_directories: Vec<PathBuf>,
}

/// What the text below the agents of a plan shows.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanDetailsRequest {
    /// The change of rules that agents get which are behind.
    Rules(RuleChangeRequest),
    /// The files that the step of an agent changes.
    Files(FileChangesRequest),
}

/// A text below the agents of a plan.
#[derive(Clone, Debug, Default)]
pub struct PlanDetails {
    /// What it shows; `None` if the list of agents says all.
    pub request: Option<PlanDetailsRequest>,
    /// The text; empty until it is loaded.
    pub pane: Pane,
}

impl ResetScreen {
    /// Returns the result on the screen.
    pub fn result(&self) -> Option<&ResultView> {
        let is_shown = matches!(self.plan.stage, PlanStage::Empty);
        self.last_result.as_deref().filter(|_| is_shown)
    }

    /// Whether there is neither a plan nor a run nor a result.
    pub fn is_empty(&self) -> bool {
        matches!(self.plan.stage, PlanStage::Empty) && self.last_result.is_none()
    }

    /// Whether the plan on the screen has a text below its agents.
    pub fn has_details(&self) -> bool {
        self.plan.shown().is_some() && self.details.request.is_some()
    }

    /// Returns the agents of what is on the screen, a row each.
    pub fn agents(&self) -> Vec<&str> {
        match &self.plan.stage {
            PlanStage::Empty => {
                let lines = self.result().map_or(&[][..], |result| &result.lines);
                lines.iter().map(|line| line.agent.as_str()).collect()
            }
            PlanStage::Planning(_) => Vec::new(),
            PlanStage::Plan(view) => {
                let steps = view.plan.steps.iter().map(|step| &step.agent);
                let skipped = view.plan.skipped.iter().map(|it| &it.agent);
                steps.chain(skipped).map(String::as_str).collect()
            }
            PlanStage::Applying(run) => {
                let steps = run.plan.steps.iter();
                steps.map(|step| step.agent.as_str()).collect()
            }
        }
    }

    /// Returns the index of the agent under the cursor.
    pub fn cursor_index(&self) -> usize {
        self.list.cursor_in(&self.agents()[..])
    }

    /// Returns the agent under the cursor.
    pub fn current_agent(&self) -> Option<&str> {
        self.agents().get(self.cursor_index()).copied()
    }

    /// Returns the line of the result under the cursor.
    pub fn current_line(&self) -> Option<&ResultLine> {
        self.result()?.lines.get(self.cursor_index())
    }

    /// Whether a run is in progress.
    pub fn is_running(&self) -> bool {
        self.plan.applying().is_some()
    }

    /// Whether a run is in progress and not cancelled.
    pub fn is_run_active(&self) -> bool {
        self.plan.applying().is_some_and(|run| !run.is_cancelled)
    }
}

/// Request for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanRequest {
    /// A reset of these agents.
    Reset(Vec<String>),
    /// A push to these agents that keeps this part of their scratch.
    Push(Vec<String>, ScratchRequest),
    /// An operation on the memory with a layout of an agent.
    Edit {
        /// The agent.
        agent: String,
        /// The operation with its arguments.
        request: OperationRequest,
    },
    /// An undo.
    Undo(UndoTarget, UndoMode),
}

impl PlanRequest {
    /// Returns its verb.
    pub fn verb(&self) -> &'static str {
        match self {
            PlanRequest::Reset(_) => Operation::Reset.as_str(),
            PlanRequest::Push(..) => Operation::Push.as_str(),
            PlanRequest::Edit { .. } => Operation::Edit.as_str(),
            PlanRequest::Undo(UndoTarget::Redo(_), _) => REDO_VERB,
            PlanRequest::Undo(..) => Operation::Undo.as_str(),
        }
    }

    /// Returns the agents that it names.
    pub fn agent_names(&self) -> &[String] {
        match self {
            PlanRequest::Reset(names)
            | PlanRequest::Push(names, _)
            | PlanRequest::Undo(
                UndoTarget::Agents(names)
                | UndoTarget::Redo(names)
                | UndoTarget::RunAgents(_, names),
                _,
            ) => names,
            PlanRequest::Edit { agent, .. } => std::slice::from_ref(agent),
            PlanRequest::Undo(UndoTarget::Run(_), _) => &[],
        }
    }
}

/// A plan on the screen.
pub type PlanView = ShownPlan<PlanRequest, Plan>;

impl PlanView {
    /// Whether a key chooses this mode for the notes that agents have written since the run to undo.
    pub fn offers_undo_mode(&self, mode: UndoMode) -> bool {
        self.plan.undo_choices().contains(&mode)
    }

    /// Returns the verb that is typed before the number.
    pub fn verb(&self) -> &'static str {
        self.request.verb()
    }
}

/// A run on the screen.
#[derive(Clone, Debug)]
pub struct RunView {
    /// The plan.
    pub plan: Plan,
    /// Its verb.
    pub verb: &'static str,
    /// When the run began.
    pub started_at: Duration,
    /// Current step of each agent.
    pub agent_steps: BTreeMap<String, Step>,
    /// Outcome and note of each finished agent.
    pub outcomes: BTreeMap<String, (Outcome, Option<String>)>,
    /// Whether the rest was cancelled.
    pub is_cancelled: bool,
}

/// A result on the screen.
#[derive(Clone, Debug)]
pub struct ResultView {
    /// Id of the run.
    pub run_id: String,
    /// Its operation.
    pub operation: Operation,
    /// Its verb.
    pub verb: &'static str,
    /// When it ended.
    pub ended_at: DateTime<FixedOffset>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Result of each agent.
    pub lines: Vec<ResultLine>,
    /// Number of entries that retention deleted.
    pub retired_entries: usize,
    /// Errors that concern no single agent.
    pub errors: Vec<String>,
}

/// One agent of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultLine {
    /// The agent.
    pub agent: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// The archived entry.
    pub entry: Option<WrittenEntry>,
    /// What the scan found in the entries, the reason of the outcome, and other notes.
    pub note: Option<String>,
    /// What to do about it.
    pub hints: Vec<String>,
    /// Whether the run displaced an object that no undo can put back.
    pub is_irreversible: bool,
}

impl ResultView {
    /// Creates the result of a run that has just ended.
    pub fn from_report(
        report: &RunReport,
        verb: &'static str,
        time: DateTime<FixedOffset>,
    ) -> ResultView {
        let line = |result: &crate::engine::AgentResult| ResultLine {
            agent: result.agent.clone(),
            outcome: result.outcome,
            entry: result.entries.first().cloned(),
            note: note_with_findings(result.findings.as_ref(), result.note.as_ref()),
            hints: result.hints.clone(),
            is_irreversible: result.is_irreversible,
        };
        let lines = report.results.iter().map(line).collect();
        ResultView {
            run_id: report.run.clone(),
            operation: report.operation,
            verb,
            ended_at: time,
            duration_ms: report.duration_ms,
            lines: failures_first(lines),
            retired_entries: report.retired_entries.len(),
            errors: report.errors.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the agents whose memory was changed and can be put back. A change of pins has none.
    pub fn undoable_agents(&self) -> Vec<String> {
        let done = self.lines.iter().filter(|line| {
            line.outcome == Outcome::Ok && !line.agent.is_empty() && !line.is_irreversible
        });
        done.map(|line| line.agent.clone()).collect()
    }

    /// Returns the number of agents that failed, and of errors that concern no single agent:
    /// `1 failed, 2 refused, 1 error`.
    pub fn failure_summary(&self) -> String {
        let mut text = summarize_failures(self.lines.iter().map(|line| line.outcome));
        if !self.errors.is_empty() {
            let errors = format_count(self.errors.len() as u64, "error");
            text.push_str(&format!(", {errors}"));
        }
        text
    }

    /// Whether an agent failed, or the run had an error that concerns no single agent.
    pub fn has_failed(&self) -> bool {
        !self.errors.is_empty() || self.lines.iter().any(|line| line.outcome.is_failure())
    }

    /// Returns the agents that failed, were refused or were not started.
    pub fn failed_agents(&self) -> Vec<String> {
        let bad = self.lines.iter().filter(|line| line.outcome.is_failure());
        bad.map(|line| line.agent.clone()).collect()
    }
}

/// Puts the agents first that need an operator; otherwise the order stays.
pub fn failures_first(mut lines: Vec<ResultLine>) -> Vec<ResultLine> {
    lines.sort_by_key(|line| !line.outcome.is_failure());
    lines
}

/// Counts the failures among outcomes: `1 failed, 2 refused`.
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

/// Returns the note about an agent, behind what the scan found in its entries.
pub fn note_with_findings(findings: Option<&ScanSummary>, note: Option<&String>) -> Option<String> {
    let found = findings.map(ScanSummary::describe);
    let found = found.filter(|found| !found.is_empty());
    let parts: Vec<String> = found.into_iter().chain(note.cloned()).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

impl ResultLine {
    /// Returns the line as text, for the clipboard.
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
