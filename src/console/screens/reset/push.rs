//! What a push keeps of the scratch.

use crate::base::quantity::format_count;
use crate::console::command::Command;
use crate::console::model::Model;
use crate::console::screens::reset::state::{PlanRequest, PlanView};
use crate::engine::{ScratchRequest, ScratchSelection};

/// Returns the request for the marked lines of a single agent, if it has any.
pub fn marked_request(model: &Model, agents: &[String]) -> Option<ScratchRequest> {
    let [agent] = agents else {
        return None;
    };
    let marked = model.agent.marked_lines_of(agent)?;
    Some(ScratchRequest::Chosen(marked.to_chosen()))
}

/// Returns what a push keeps after the key that changes it: all, the marked lines, nothing.
pub fn next_request(model: &Model, agents: &[String], request: &ScratchRequest) -> ScratchRequest {
    match request {
        ScratchRequest::Selection(ScratchSelection::All) => {
            marked_request(model, agents).unwrap_or(ScratchSelection::Nothing.into())
        }
        ScratchRequest::Selection(ScratchSelection::Nothing) => ScratchSelection::All.into(),
        ScratchRequest::Chosen(_) | ScratchRequest::Selection(ScratchSelection::Lines(_)) => {
            ScratchSelection::Nothing.into()
        }
    }
}

/// Says what the push on the screen keeps, and what the key that changes it would keep.
pub fn describe_kept_scratch(model: &Model, view: &PlanView) -> Option<String> {
    let PlanRequest::Push(agents, request) = &view.request else {
        return None;
    };
    let steps = view.plan.steps.iter();
    let lines = steps.filter_map(|step| step.kept_scratch.as_ref());
    let lines = match lines.map(|kept| kept.lines).sum() {
        _ if view.plan.steps.is_empty() => String::new(),
        0 => " (there is none)".to_string(),
        count => format!(" ({})", format_count(count, "line")),
    };
    let kept = |request: &ScratchRequest| match request {
        ScratchRequest::Selection(ScratchSelection::All) => "all",
        ScratchRequest::Selection(ScratchSelection::Nothing) => "none",
        _ => "the marked lines",
    };
    let now = match request {
        ScratchRequest::Selection(ScratchSelection::All) => format!("keeps all scratch{lines}"),
        ScratchRequest::Selection(ScratchSelection::Nothing) => {
            "keeps no scratch: it is only archived".to_string()
        }
        _ => format!("keeps marked scratch{lines}"),
    };
    let key = model.key_hint(Command::ChangeKeptScratch);
    let next = kept(&next_request(model, agents, request));
    Some(format!("{now}   {key} keeps {next}"))
}
