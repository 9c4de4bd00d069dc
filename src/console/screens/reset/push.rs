//! Plans of a push: for which agents, and what they keep of the scratch.

use crate::console::canvas::format_count;
use crate::console::command::Command;
use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screens::log::state::MessageLevel;
use crate::console::screens::reset::state::{PlanRequest, PlanView, ResetStage};
use crate::console::screens::reset::update::request_plan;
use crate::engine::ScratchSelection;

/// Requests the plan of a push. It keeps the marked lines of a single agent, else all scratch.
pub fn plan_push(model: &mut Model) -> Vec<Effect> {
    let agents = model.target_agents();
    match marked_selection(model, &agents) {
        Ok(marked) => {
            let selection = marked.unwrap_or(ScratchSelection::All);
            request_plan(model, PlanRequest::Push(agents, selection), false)
        }
        Err(why) => {
            model.report(MessageLevel::Warn, format!("no push is planned: {why}"));
            Vec::new()
        }
    }
}

/// Requests the push on the screen again; it keeps something else.
pub fn change_kept_scratch(model: &mut Model) -> Vec<Effect> {
    let ResetStage::Plan(view) = &model.reset.stage else {
        return Vec::new();
    };
    let PlanRequest::Push(agents, selection) = view.request.clone() else {
        return Vec::new();
    };
    let selection = next_selection(model, &agents, &selection);
    request_plan(model, PlanRequest::Push(agents, selection), false)
}

/// Returns what a push keeps after the key that changes it: all, the marked lines, nothing.
fn next_selection(
    model: &Model,
    agents: &[String],
    selection: &ScratchSelection,
) -> ScratchSelection {
    // Too many ranges of lines are reported where the push is planned first.
    let marked = marked_selection(model, agents).ok().flatten();
    match selection {
        ScratchSelection::All => marked.unwrap_or(ScratchSelection::Nothing),
        ScratchSelection::Lines(_) => ScratchSelection::Nothing,
        ScratchSelection::Nothing => ScratchSelection::All,
    }
}

/// Returns the marked lines of a single agent, if it has any.
fn marked_selection(model: &Model, agents: &[String]) -> Result<Option<ScratchSelection>, String> {
    let [agent] = agents else {
        return Ok(None);
    };
    let marked = model.agent.marked_lines_of(agent);
    marked
        .map(|marked| ScratchSelection::from_ranges(marked.ranges()))
        .transpose()
}

/// Says what the push on the screen keeps, and what the key that changes it would keep.
pub fn describe_kept_scratch(model: &Model, view: &PlanView) -> Option<String> {
    let PlanRequest::Push(agents, selection) = &view.request else {
        return None;
    };
    let steps = view.plan.steps.iter();
    let lines = steps.filter_map(|step| step.kept_scratch.as_ref());
    let lines: u64 = lines.map(|kept| kept.lines).sum();
    let lines = format_count(lines, "line");
    let kept = match selection {
        ScratchSelection::All => format!("keeps all scratch ({lines})"),
        ScratchSelection::Lines(_) => format!("keeps marked scratch ({lines})"),
        ScratchSelection::Nothing => "keeps no scratch: it is only archived".to_string(),
    };
    let key = model.key_hint(Command::ChangeKeptScratch);
    let next = match next_selection(model, agents, selection) {
        ScratchSelection::All => "all",
        ScratchSelection::Lines(_) => "the marked lines",
        ScratchSelection::Nothing => "none",
    };
    Some(format!("{kept}   {key} keeps {next}"))
}
