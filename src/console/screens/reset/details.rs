//! The text below the agents of a plan: the rules that agents get which are behind, as they were pushed
//! last against those that the plan installs; or the files that an operation changes.

use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::model::visible_text::text_height;
use crate::console::screens::reset::state::{
    FileChangesRequest, PlanDetails, PlanDetailsRequest, PlanRequest, PlanView, RuleChangeRequest,
};
use crate::console::text::{self, PreparedText};
use crate::engine::PlanStep;
use crate::layouts::OperationRequest;

/// Requests the details for the agent under the cursor, else for the first agent of the plan that has
/// any. Those that are on the screen stay.
pub fn request_details(model: &mut Model) -> Vec<Effect> {
    let wanted = match model.reset.plan.shown() {
        Some(view) if shows_files_of_step(model, view) => return Vec::new(),
        Some(view) => wanted_details(model, view),
        None => None,
    };
    if model.reset.details.request == wanted {
        return Vec::new();
    }
    let mut details = PlanDetails {
        request: wanted.clone(),
        ..PlanDetails::default()
    };
    if let Some(PlanDetailsRequest::Files(changes)) = &wanted {
        details
            .pane
            .show(text::prepare_file_changes(changes, &[], None));
    }
    model.reset.details = details;
    let to_effect = |wanted: PlanDetailsRequest| match wanted {
        PlanDetailsRequest::Rules(change) => Effect::CompareNewRules(change),
        PlanDetailsRequest::Files(changes) => Effect::CompareFileChanges(changes),
    };
    wanted.map(to_effect).into_iter().collect()
}

/// Returns the step whose files are shown: the one under the cursor, else the first that changes any.
fn step_with_files<'v>(model: &Model, view: &'v PlanView) -> Option<&'v PlanStep> {
    let has_files = |step: &&PlanStep| !step.files.is_empty();
    let steps = &view.plan.steps;
    let current = steps.get(model.reset.cursor_index()).filter(has_files);
    current.or_else(|| steps.iter().find(has_files))
}

/// Whether the files of the step are on the screen. Copies none of them: there may be many.
fn shows_files_of_step(model: &Model, view: &PlanView) -> bool {
    let Some(PlanDetailsRequest::Files(shown)) = &model.reset.details.request else {
        return false;
    };
    step_with_files(model, view).is_some_and(|step| {
        shown.agent == step.agent
            && shown.operation.as_ref() == operation_of(view)
            && shown.directory == model.rows.layout_directory(&step.agent)
            && shown.files == step.files
            && shown.new_directories == step.new_directories
            && shown.removed_directories == step.removed_directories
    })
}

/// Returns the operation that a plan is made of; none for other plans.
fn operation_of(view: &PlanView) -> Option<&OperationRequest> {
    match &view.request {
        PlanRequest::Edit { request, .. } => Some(request),
        _ => None,
    }
}

fn wanted_details(model: &Model, view: &PlanView) -> Option<PlanDetailsRequest> {
    if let Some(step) = step_with_files(model, view) {
        return Some(PlanDetailsRequest::Files(FileChangesRequest {
            agent: step.agent.clone(),
            directory: model.rows.layout_directory(&step.agent),
            operation: operation_of(view).cloned(),
            files: step.files.clone(),
            new_directories: step.new_directories.clone(),
            removed_directories: step.removed_directories.clone(),
        }));
    }
    wanted_rule_change(view, model.reset.cursor_index()).map(PlanDetailsRequest::Rules)
}

/// Returns the versions of a step's rules, if it changes them.
fn rule_versions(step: &PlanStep) -> Option<RuleChangeRequest> {
    Some(RuleChangeRequest {
        agent: step.agent.clone(),
        old: step.behind_version?,
        new: step.binding.content_digest,
    })
}

fn wanted_rule_change(view: &PlanView, cursor: usize) -> Option<RuleChangeRequest> {
    if !view.plan.operation.installs_baselines() {
        return None;
    }
    let steps = &view.plan.steps;
    let current = steps.get(cursor).and_then(rule_versions);
    let wanted = current.or_else(|| steps.iter().find_map(rule_versions))?;
    // Agents with the same change share it.
    let mut changes = steps.iter().filter_map(rule_versions);
    changes.find(|it| (it.old, it.new) == (wanted.old, wanted.new))
}

/// Returns the agents of a plan that get this change of rules.
pub fn agents_of_change<'a>(view: &'a PlanView, request: &RuleChangeRequest) -> Vec<&'a str> {
    let is_same = |step: &&PlanStep| {
        let versions = rule_versions(step);
        versions.is_some_and(|it| (it.old, it.new) == (request.old, request.new))
    };
    let steps = view.plan.steps.iter().filter(is_same);
    steps.map(|step| step.agent.as_str()).collect()
}

/// Shows details that were loaded, if the plan on the screen still has them.
pub fn handle_details(model: &mut Model, request: &PlanDetailsRequest, text: PreparedText) {
    if model.reset.details.request.as_ref() != Some(request) {
        return;
    }
    model.reset.details.pane.show(text);
    if matches!(request, PlanDetailsRequest::Rules(_)) {
        let height = text_height(model);
        model.reset.details.pane.scroll_to_first_hunk(height);
    }
    model.is_dirty = true;
}
