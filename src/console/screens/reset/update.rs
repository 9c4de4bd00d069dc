//! What the reset screen does: requests a plan, shows it, replaces it when it expires, starts its
//! run, shows the result, and leaves.

use crate::base::error::Error;
use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::model::plans::{go_to_reset, hidden_agents_refusal, request_plan};
use crate::console::model::read_only::{check_started_writable, check_writable};
use crate::console::model::targets::{retry_request, target_agents};
use crate::console::model::visible_text::{has_text, scroll_text};
use crate::console::model::{Model, equivalent_command};
use crate::console::screen::Screen;
use crate::console::screens::agent;
use crate::console::screens::fleet::visible_agents::hidden_marked_agents;
use crate::console::screens::log::state::{MessageLevel, OwnRun};
use crate::console::screens::reset::details::request_details;
use crate::console::screens::reset::push::{marked_request, next_request};
use crate::console::screens::reset::state::{
    PlanRequest, PlanView, ResultView, RunView, STOP_CONSEQUENCE,
};
use crate::console::widgets::list_pane::ListPane;
use crate::console::widgets::plan_pane::{Confirmation, PlanChange, PlanPrompt, PlanStage};
use crate::engine::{
    Operation, Outcome, Plan, PlanStep, Protection, READ_ONLY_REASON, RunProgress, RunReport,
    ScratchSelection, UndoMode, UndoTarget,
};

/// Requests the plan of a reset of the marked agents, or of the one that a key is about.
pub fn plan_reset(model: &mut Model) -> Vec<Effect> {
    note_never_reset(model);
    let request = PlanRequest::Reset(target_agents(model));
    request_plan(model, request, false)
}

/// Requests the plan of a push. It keeps the marked lines of a single agent, else all scratch.
pub fn plan_push(model: &mut Model) -> Vec<Effect> {
    note_never_reset(model);
    let agents = target_agents(model);
    let request = marked_request(model, &agents).unwrap_or(ScratchSelection::All.into());
    request_plan(model, PlanRequest::Push(agents, request), false)
}

/// Requests the push on the screen again; it keeps something else.
pub fn change_kept_scratch(model: &mut Model) -> Vec<Effect> {
    let Some(PlanRequest::Push(agents, request)) = model.reset.plan.request().cloned() else {
        return Vec::new();
    };
    let request = next_request(model, &agents, &request);
    request_plan(model, PlanRequest::Push(agents, request), false)
}

/// Says which of several target agents a plan leaves out because they are never reset.
pub fn note_never_reset(model: &mut Model) {
    let targets = target_agents(model);
    let rows = targets.iter().filter_map(|name| model.find_row(name));
    let names: Vec<&str> = rows
        .filter(|row| row.is_never_reset())
        .map(|row| row.name.as_str())
        .collect();
    if !names.is_empty() {
        let text = format!("left out, never reset: {}", names.join(", "));
        model.report_info(text);
    }
}

/// Requests the plan that tries the failures of the result on the screen again.
pub fn retry_failed(model: &mut Model) -> Vec<Effect> {
    let request = retry_request(model);
    request.map_or_else(
        |_| Vec::new(),
        |request| request_plan(model, request, false),
    )
}

/// Checks that there is a plan, a run or a result.
pub fn check_stage(model: &Model) -> Result<(), String> {
    let key = model.key_hint(Command::PlanReset);
    let reason = format!("no plan yet; {key} makes one");
    require(!model.reset.is_empty(), reason)
}

/// Checks that the plan is a push.
pub fn check_push(model: &Model) -> Result<(), String> {
    let view = model.reset.plan.shown().ok_or("no plan")?;
    let is_push = matches!(view.request, PlanRequest::Push(..));
    require(is_push, "only a push keeps scratch")
}

/// Checks that the filter hides agents of the plan.
pub fn check_hidden_agents(model: &Model) -> Result<(), String> {
    model.reset.plan.check_shown()?;
    let has_any = !model.reset.hidden_agents.is_empty();
    require(has_any, "the filter hides no marked agent")
}

/// Returns the plan on the screen, if it has agents and the filter hides none of them.
fn runnable_plan(model: &Model) -> Result<&PlanView, String> {
    let view = model.reset.plan.check_shown()?;
    if !model.reset.hidden_agents.is_empty() {
        return Err(hidden_agents_refusal(model));
    }
    let has_agents = view.prompt.confirmation != Confirmation::NothingToRun;
    require(has_agents, "nothing to run").map(|()| view)
}

/// Checks that a key confirms the plan.
pub fn check_confirmation(model: &Model) -> Result<(), String> {
    model.reset.plan.check_shown()?;
    check_started_writable(model)?;
    let view = runnable_plan(model)?;
    match view.prompt.confirmation {
        Confirmation::TypedText(_) => Err("type the words to confirm this plan".to_string()),
        Confirmation::NewerNotes => {
            let overwrite = model.key_hint(Command::UndoOverwrite);
            Err(if view.offers_undo_mode(UndoMode::Append) {
                let append = model.key_hint(Command::UndoAppend);
                format!("the agent has written since: {append} appends, {overwrite} overwrites")
            } else {
                format!("the agent has written since: {overwrite} overwrites")
            })
        }
        Confirmation::SingleKey | Confirmation::NothingToRun => check_writable(model),
    }
}

/// Checks that the plan is an undo with a choice of what happens to newer notes.
pub fn check_undo_mode(model: &Model, mode: UndoMode) -> Result<(), String> {
    let choices = runnable_plan(model)?.plan.undo_choices();
    if mode == UndoMode::Append && choices == [UndoMode::Overwrite] {
        let key = model.key_hint(Command::UndoOverwrite);
        return Err(format!(
            "before the run there was no file to append to; {key} archives the new notes"
        ));
    }
    let reason = "no agent of this plan has written since";
    require(!choices.is_empty(), reason)
}

/// Leaves a plan and goes back to where it was requested.
pub fn abandon_plan(model: &mut Model) {
    model.reset.plan.end();
    let at_result = model.reset.last_result.is_some() && model.reset.is_from_result;
    model.reset.list = ListPane::default();
    model.is_dirty = true;
    if model.screen == Screen::Reset && !at_result {
        leave(model);
    }
}

/// Shows the requested plan. An equal one keeps the confirmation typed so far.
pub fn handle_plan(model: &mut Model, id: u64, plan: Result<Box<Plan>, Error>) -> Vec<Effect> {
    let Some(request) = model.reset.plan.accept(id) else {
        return Vec::new();
    };
    model.is_dirty = true;
    let plan = match plan {
        Ok(plan) => *plan,
        Err(error) => {
            model.report_error(error.to_line());
            abandon_plan(model);
            return Vec::new();
        }
    };
    if matches!(request, PlanRequest::Edit { .. }) {
        model.agent.memory.unplanned = None;
    }
    let confirmation = required_confirmation(&plan, &request, model);
    let shown = PlanView {
        request: request.clone(),
        plan,
        prompt: PlanPrompt::new(confirmation, model.now.elapsed),
    };
    let changes_same =
        |old: &Plan, new: &Plan| (&old.hash, old.steps.len()) == (&new.hash, new.steps.len());
    let change = model.reset.plan.show(shown, changes_same);
    if change == PlanChange::Other {
        model.report_warning("plan refreshed: its inputs have changed");
    }
    if change != PlanChange::Same {
        let mut hidden: Vec<String> = hidden_marked_agents(model).cloned().collect();
        hidden.retain(|name| request.agent_names().contains(name));
        model.reset.hidden_agents = hidden;
    }
    let has_hidden = !model.reset.hidden_agents.is_empty();
    let refusal = has_hidden.then(|| hidden_agents_refusal(model));
    if let Some(shown) = model.reset.plan.shown_mut() {
        shown.prompt.refusal = refusal;
    }
    let mut effects = request_details(model);
    if std::mem::take(&mut model.reset.is_plan_stale) {
        effects.extend(request_plan(model, request, true));
    }
    effects
}

/// Keeps the agents of the plan that the filter hides.
pub fn keep_hidden_agents(model: &mut Model) {
    model.reset.hidden_agents.clear();
    if let Some(view) = model.reset.plan.shown_mut() {
        view.prompt.refusal = None;
    }
}

/// Returns what confirms a plan: for one intact agent a key, for several or a drifted one typed
/// words, for the whole fleet its name.
fn required_confirmation(plan: &Plan, request: &PlanRequest, model: &Model) -> Confirmation {
    let count = plan.steps.len();
    let protected = |step: &PlanStep| step.protection == Protection::Typed;
    let undo_without_choice = plan.steps.iter().any(PlanStep::lacks_undo_mode);
    let verb = request.verb();
    let typed = Confirmation::TypedText(format!("{verb} {count}"));
    let whole_fleet = Confirmation::TypedText(model.config.name.clone());
    if count == 0 {
        Confirmation::NothingToRun
    } else if undo_without_choice {
        Confirmation::NewerNotes
    } else if plan.steps.iter().any(protected) {
        if plan.is_whole_fleet {
            whole_fleet
        } else {
            typed
        }
    } else if model.rows.len() == 1 && plan.operation.installs_baselines() {
        Confirmation::SingleKey
    } else if plan.is_whole_fleet {
        whole_fleet
    } else if count > 1 || plan.steps.iter().any(|step| step.is_confirmation_typed) {
        typed
    } else {
        Confirmation::SingleKey
    }
}

/// Starts the run of the confirmed plan; an expired plan is made again instead.
pub fn start_run(model: &mut Model) -> Vec<Effect> {
    let PlanStage::Plan(view) = model.reset.plan.end() else {
        return Vec::new();
    };
    let own_run = OwnRun {
        run_id: String::new(),
        request: view.request.clone(),
        command_line: equivalent_command::for_plan(model, &view),
        ended_at: None,
        agents: Vec::new(),
    };
    let (verb, mut plan) = (view.verb(), view.plan);
    let left_out = plan.leave_out_protected();
    // The next key is not about the agents of this run.
    model.fleet.note_changed_marks();
    for name in plan.agents() {
        model.fleet.marks.remove(name);
        if plan.operation != Operation::Edit {
            model.agent.marked_lines.remove(name);
        }
        let summaries = model.baselines.list.iter().flatten();
        let baselines = summaries.flat_map(|list| &list.baselines);
        for baseline in baselines.filter(|it| it.agents.iter().any(|agent| agent == name)) {
            model.baselines.marks.remove(&baseline.name);
        }
    }
    model.log.remember_run(own_run);
    if !left_out.is_empty() {
        let text = format!("left out, {READ_ONLY_REASON}: {}", left_out.join(", "));
        model.report_info(text);
    }
    let run = RunView {
        plan: plan.clone(),
        verb,
        started_at: model.now.elapsed,
        agent_steps: Default::default(),
        outcomes: Default::default(),
        is_cancelled: false,
    };
    model.reset.plan.stage = PlanStage::Applying(Box::new(run));
    model.reset.list = ListPane::default();
    model.is_dirty = true;
    vec![Effect::ApplyPlan(Box::new(plan))]
}

/// Shows the progress of a run.
pub fn handle_progress(model: &mut Model, progress: RunProgress) {
    let PlanStage::Applying(view) = &mut model.reset.plan.stage else {
        return;
    };
    match progress {
        RunProgress::Stage(agent, stage) => {
            view.agent_steps.insert(agent, stage);
        }
        RunProgress::AgentDone(result) => {
            view.outcomes
                .insert(result.agent, (result.outcome, result.note));
        }
        RunProgress::LogLine(_) => return,
    }
    model.is_dirty = true;
}

/// Shows the result of a run, and reads its agents again.
pub fn handle_run_ended(model: &mut Model, report: &RunReport) -> Vec<Effect> {
    let run = model.reset.plan.applying();
    let verb = run.map_or(report.operation.as_str(), |run| run.verb);
    let result = ResultView::from_report(report, verb, model.now.local_time);
    let mut done = format!(
        "run {}: {} ok, {}",
        result.run_id,
        report.count(Outcome::Ok),
        result.failure_summary()
    );
    if let Some(error) = result.errors.first() {
        done.push_str(&format!(": {error}"));
    }
    model.report(
        if result.has_failed() {
            MessageLevel::Error
        } else {
            MessageLevel::Info
        },
        done,
    );
    if let Some(message) = model.log.messages.front_mut() {
        message.run_id = Some(result.run_id.clone());
    }
    let names = result.lines.iter().map(|line| line.agent.clone()).collect();
    if let Some(run) = model
        .log
        .own_runs
        .front_mut()
        .filter(|run| run.run_id.is_empty())
    {
        run.run_id.clone_from(&result.run_id);
        run.ended_at = Some(result.ended_at);
        run.agents = result.undoable_agents();
    }
    show_result(model, result);
    vec![Effect::ReadAgents(names), Effect::LoadLog]
}

/// Leaves the run screen after a run that was not started.
pub fn handle_run_not_started(model: &mut Model, why: &str) {
    model.report_error(format!("the run was not started: {why}"));
    // It has no id yet.
    model.log.own_runs.retain(|run| !run.run_id.is_empty());
    abandon_plan(model);
}

/// Requests the undo on the screen again, with a choice of what happens to newer notes.
pub fn plan_undo_with_mode(model: &mut Model, mode: UndoMode) -> Vec<Effect> {
    let Some(PlanRequest::Undo(target, _)) = model.reset.plan.request().cloned() else {
        return Vec::new();
    };
    request_plan(model, PlanRequest::Undo(target, mode), false)
}

/// Unmarks the hidden agents and requests the plan without them.
pub fn drop_hidden_agents(model: &mut Model) -> Vec<Effect> {
    let Some(view) = model.reset.plan.shown() else {
        return Vec::new();
    };
    let keep = |names: &[String]| -> Vec<String> {
        names
            .iter()
            .filter(|name| !model.reset.hidden_agents.contains(name))
            .cloned()
            .collect()
    };
    let request = match &view.request {
        PlanRequest::Reset(names) => PlanRequest::Reset(keep(names)),
        PlanRequest::Push(names, selection) => PlanRequest::Push(keep(names), selection.clone()),
        PlanRequest::Undo(UndoTarget::Agents(names), mode) => {
            PlanRequest::Undo(UndoTarget::Agents(keep(names)), *mode)
        }
        PlanRequest::Undo(UndoTarget::Redo(names), mode) => {
            PlanRequest::Undo(UndoTarget::Redo(keep(names)), *mode)
        }
        PlanRequest::Undo(UndoTarget::RunAgents(run, names), mode) => {
            PlanRequest::Undo(UndoTarget::RunAgents(run.clone(), keep(names)), *mode)
        }
        PlanRequest::Undo(UndoTarget::Run(_), _) | PlanRequest::Edit { .. } => view.request.clone(),
    };
    let hidden = model.reset.hidden_agents.clone();
    model.fleet.note_changed_marks();
    for name in &hidden {
        model.fleet.marks.remove(name);
    }
    let dropped = match hidden.as_slice() {
        [one] => format!("unmarked {one}, which the filter hides"),
        many => format!("unmarked {} agents that the filter hides", many.len()),
    };
    let names_none = !matches!(request, PlanRequest::Undo(UndoTarget::Run(_), _))
        && request.agent_names().is_empty();
    if names_none {
        abandon_plan(model);
        let text = format!("{dropped}; no agent is left to plan for");
        model.report_warning(text);
        return Vec::new();
    }
    model.report_info(dropped);
    request_plan(model, request, false)
}

/// Goes back to where the reset screen was opened, and there to the agent that was on the screen.
fn leave(model: &mut Model) {
    if let Some(before) = model.return_point.agent_before_reset.take() {
        agent::update::show_again(model, before);
    }
    // The agent screen must not lead back here, or the two would lead to each other forever.
    if model.return_point.from_agent == Screen::Reset {
        model.return_point.from_agent = Screen::Fleet;
    }
    let to = model.reopenable_screen(model.reset.plan.opened_from);
    model.go_to_screen(to);
}

/// Goes to the plan, run or result.
pub fn open(model: &mut Model) {
    let came_from_here =
        model.screen == Screen::Agent && model.return_point.from_agent == Screen::Reset;
    if came_from_here {
        model.go_to_screen(Screen::Reset);
    } else {
        go_to_reset(model);
    }
}

/// Shows a run of the log as a result.
pub fn open_result(model: &mut Model, result: ResultView) {
    show_result(model, result);
    go_to_reset(model);
}

/// Shows a result in place of a plan.
fn show_result(model: &mut Model, result: ResultView) {
    model.reset.plan.end();
    model.reset.last_result = Some(Box::new(result));
    model.reset.list = ListPane::default();
}

/// Moves the cursor by a row; scrolls the details of a plan otherwise, and where there is only
/// one agent.
pub fn move_cursor(model: &mut Model, by: isize) -> Vec<Effect> {
    let rows = model.reset.agents().len();
    if has_text(model) && (by.abs() > 1 || rows < 2) {
        scroll_text(model, by);
        return Vec::new();
    }
    model.reset.list = model.reset.list.stepped(by, &model.reset.agents()[..]);
    request_details(model)
}

/// Stops the run: agents in progress finish.
pub fn stop_run(model: &mut Model) -> Vec<Effect> {
    let key = model.key_hint(Command::Quit);
    let PlanStage::Applying(view) = &mut model.reset.plan.stage else {
        return Vec::new();
    };
    view.is_cancelled = true;
    let text = format!("stopping: {STOP_CONSEQUENCE}");
    if model.screen == Screen::Reset {
        // The screen says so itself.
        model.report_warning(text);
        model.last_message = None;
    } else {
        model.report_warning(format!("{text}; {key} again quits"));
    }
    vec![Effect::CancelRun]
}

/// Goes back one level; a plan is abandoned by that.
pub fn go_back(model: &mut Model) {
    if model.reset.plan.is_open() {
        abandon_plan(model);
    } else {
        leave(model);
    }
}
