//! A plan, a run, its result; and what confirms a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use super::{KeyGuard, Model, REDO};
use crate::archive::Written;
use crate::console::command::Command;
use crate::engine::{
    Operation, Outcome, Plan, Protection, Report, Stage as Step, Step as PlanStep, UndoMode,
    UndoTarget,
};

/// Plan, run, result.
#[derive(Clone, Debug, Default)]
pub struct ResetScreen {
    /// Where it stands.
    pub stage: ResetStage,
    /// The row under the cursor.
    pub cursor: usize,
    /// The plan that is in sight, by when it was made.
    pub in_sight: Option<Duration>,
    /// Ignores keys from the one that asks for a plan on, and again whenever one comes
    /// in sight.
    pub guard: KeyGuard,
    /// When the key that confirms came last, after it unlocked what was read-only: one
    /// that is held must not go on to confirm.
    pub held: Option<Duration>,
    /// Whether something that the plan is about changed while it was made anew.
    pub stale: bool,
    /// The result that was there before the plan, and is again when that is left.
    pub behind: Option<Box<ResultView>>,
    /// Whether the plan was asked for at that result.
    pub at_result: bool,
}

impl ResetScreen {
    /// The agent under the cursor.
    pub fn subject(&self) -> Option<&str> {
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
            PlanRequest::Reset(_) => Operation::Reset.word(),
            PlanRequest::Undo(UndoTarget::Redo(_), _) => REDO,
            PlanRequest::Undo(..) => Operation::Undo.word(),
        }
    }

    /// The agents that were asked for by name.
    pub fn names(&self) -> &[String] {
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
    pub shown: Duration,
    /// What has to happen before it runs.
    pub form: Confirmation,
    /// What was typed so far.
    pub typed: String,
    /// Marked agents that the filter hides, until it is said what with them.
    pub hidden: Vec<String>,
}

/// What confirms a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// There is nothing to run.
    Nothing,
    /// `y`.
    Key,
    /// These words, typed in full, and Enter.
    Typed(String),
    /// First it has to be said what happens to newer notes: `a` or `o`.
    Choice,
}

impl PlanView {
    /// Whether a key of the plan is offered now; if not, why.
    ///
    /// # Errors
    /// The reason, for the operator.
    pub fn offers(&self, command: Command, model: &Model) -> Result<(), String> {
        let key = |command| model.key(command);
        let why = match (command, &self.form) {
            _ if !self.hidden.is_empty() => {
                let (keep, drop) = (key(Command::KeepHidden), key(Command::DropHidden));
                let what = "first say what with the hidden ones";
                return Err(format!("{what}: {keep} keeps, {drop} drops"));
            }
            (_, Confirmation::Nothing) => "there is nothing to run",
            (Command::Confirm, Confirmation::Key) => {
                return model.why_read_only().map_or(Ok(()), Err);
            }
            (Command::Confirm, Confirmation::Typed(_)) => "this plan has to be confirmed by typing",
            (Command::Confirm, Confirmation::Choice) => {
                let (append, over) = (key(Command::Append), key(Command::Overwrite));
                let what = "the agent has written since";
                return Err(format!("{what}: {append} appends, {over} overwrites"));
            }
            (Command::Append | Command::Overwrite, _) if self.has_newer_notes() => return Ok(()),
            _ => "no agent of this plan has written since",
        };
        Err(why.to_string())
    }

    /// Whether an agent wrote after the run that would be undone.
    pub fn has_newer_notes(&self) -> bool {
        self.plan
            .steps
            .iter()
            .any(|step| step.undo.as_ref().is_some_and(|undo| undo.written_since))
    }

    /// The word that is typed before the number.
    pub fn verb(&self) -> &'static str {
        self.request.verb()
    }
}

/// What confirms this plan (the confirmation grammar): one intact agent takes a
/// key, more of them or a drifted one take typing, the whole fleet its name.
pub fn form(plan: &Plan, request: &PlanRequest, model: &Model) -> Confirmation {
    let count = plan.steps.len();
    let protected = |step: &PlanStep| step.protect == Protection::Typed;
    let undo_without_choice = plan.steps.iter().any(|step| {
        step.undo
            .as_ref()
            .is_some_and(|undo| undo.written_since && undo.mode == UndoMode::Refuse)
    });
    let verb = request.verb();
    let typed = Confirmation::Typed(format!("{verb} {count}"));
    if count == 0 {
        Confirmation::Nothing
    } else if undo_without_choice {
        Confirmation::Choice
    } else if plan.steps.iter().any(protected) {
        match plan.whole_fleet {
            true => Confirmation::Typed(model.fleet.name.clone()),
            false => typed,
        }
    } else if model.rows.len() == 1 && plan.act == Operation::Reset {
        Confirmation::Key
    } else if plan.whole_fleet {
        Confirmation::Typed(model.fleet.name.clone())
    } else if count > 1 || plan.steps.iter().any(|step| step.typed) {
        typed
    } else {
        Confirmation::Key
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
    pub began: Duration,
    /// How far each agent has come.
    pub stages: BTreeMap<String, Step>,
    /// How it ended for those that are done.
    pub outcomes: BTreeMap<String, (Outcome, Option<String>)>,
    /// Whether the rest was cancelled.
    pub cancelled: bool,
}

/// A result on the screen.
#[derive(Clone, Debug)]
pub struct ResultView {
    /// The run.
    pub run: String,
    /// What it did.
    pub act: Operation,
    /// The word for it.
    pub verb: &'static str,
    /// When it ended.
    pub time: DateTime<FixedOffset>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// How it ended for each agent.
    pub lines: Vec<ResultLine>,
    /// How many entries retention deleted.
    pub retired: usize,
}

/// One agent of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultLine {
    /// The agent.
    pub agent: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What was archived where.
    pub entry: Option<Written>,
    /// Why, or what else is worth knowing.
    pub note: Option<String>,
    /// What to do about it.
    pub hints: Vec<String>,
}

impl ResultView {
    /// The result of a run that has just ended.
    pub fn of_report(
        report: &Report,
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
            run: report.run.clone(),
            act: report.act,
            verb,
            time,
            duration_ms: report.duration_ms,
            lines: report.results.iter().map(line).collect(),
            retired: report.retired.len(),
        }
    }

    /// Agents that were changed, and can be changed back.
    pub fn changed(&self) -> Vec<String> {
        let done = self.lines.iter().filter(|line| line.outcome == Outcome::Ok);
        done.map(|line| line.agent.clone()).collect()
    }

    /// How many were not brought to a good end: `1 failed, 2 refused`.
    pub fn bad(&self) -> String {
        count_bad(self.lines.iter().map(|line| line.outcome))
    }

    /// Agents that were not brought to a good end.
    pub fn failed(&self) -> Vec<String> {
        let bad = self.lines.iter().filter(|line| line.outcome.is_bad());
        bad.map(|line| line.agent.clone()).collect()
    }
}

/// How many outcomes are no good end: `1 failed, 2 refused`.
pub fn count_bad(outcomes: impl Iterator<Item = Outcome> + Clone) -> String {
    let count = |outcome| outcomes.clone().filter(|it| *it == outcome).count();
    let bad = Outcome::BAD.map(|outcome| (count(outcome), outcome.counted().to_lowercase()));
    let bad = bad.iter().filter(|(count, _)| *count > 0);
    let bad: Vec<String> = bad.map(|(count, word)| format!("{count} {word}")).collect();
    match bad.as_slice() {
        [] => "0 failed".to_string(),
        bad => bad.join(", "),
    }
}

impl ResultLine {
    /// The line as a text.
    pub fn text(&self) -> String {
        let mut text = format!("{}  {}", self.agent, self.outcome.word());
        if let Some(entry) = &self.entry {
            text.push_str(&format!("  {}", entry.path.display()));
        }
        if let Some(note) = &self.note {
            text.push_str(&format!("  {note}"));
        }
        text
    }
}
