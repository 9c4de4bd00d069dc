//! Change of rules that a plan brings to agents that are behind: the rules as they were pushed last
//! against those that the plan installs.

use crate::console::message::Effect;
use crate::console::model::Model;
use crate::console::screens::reset::state::{
    PlanView, ResetStage, RuleChangeRequest, RuleChangeView,
};
use crate::console::text::PreparedText;
use crate::engine::PlanStep;

/// Requests the change of rules for the agent under the cursor, else for the first agent of the plan
/// that is behind. One that is on the screen stays.
pub fn request_rule_change(model: &mut Model) -> Vec<Effect> {
    let wanted = match &model.reset.stage {
        ResetStage::Plan(view) => wanted_rule_change(view, model.reset.cursor),
        _ => None,
    };
    if model.reset.rule_change.request == wanted {
        return Vec::new();
    }
    model.reset.rule_change = RuleChangeView {
        request: wanted.clone(),
        ..RuleChangeView::default()
    };
    wanted.map(Effect::CompareNewRules).into_iter().collect()
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

/// Shows a compared change of rules, if the plan on the screen still brings it.
pub fn handle_rule_change(model: &mut Model, request: &RuleChangeRequest, text: PreparedText) {
    if model.reset.rule_change.request.as_ref() != Some(request) {
        return;
    }
    model.reset.rule_change.pane.show(text);
    let height = model.text_height();
    model.reset.rule_change.pane.scroll_to_first_hunk(height);
    model.is_dirty = true;
}
