//! Plans: asked for, shown, void, made anew, left.

use crate::console::model::{
    MessageLevel, Model, PlanRequest, PlanView, ResetStage, Screen, required_confirmation,
};
use crate::console::update::commands::{go_to_screen, return_screen};
use crate::console::update::keys::is_screen_covered;
use crate::console::update::{Effect, PLAN_LIFETIME};
use crate::engine::Plan;
use crate::error::Error;

/// Notices a plan that has come in sight: from then on a moment passes before keys
/// mean anything to it.
pub(in crate::console) fn track_visible_plan(model: &mut Model) {
    let in_sight = match &model.reset.stage {
        ResetStage::Plan(view)
            if model.screen == Screen::Reset
                && !is_screen_covered(model)
                && !model.is_too_small() =>
        {
            Some(view.made_at)
        }
        _ => None,
    };
    if model.reset.visible_plan != in_sight {
        model.reset.visible_plan = in_sight;
        model.reset.guard.restart(model.now.elapsed);
    }
}

/// Asks for the plan on the screen again when it is void by its age.
pub(in crate::console) fn replace_expired_plan(model: &mut Model) -> Vec<Effect> {
    let ResetStage::Plan(view) = &mut model.reset.stage else {
        return Vec::new();
    };
    if model.now.elapsed < view.made_at + PLAN_LIFETIME {
        return Vec::new();
    }
    view.typed_text.clear();
    let request = view.request.clone();
    model.report(
        MessageLevel::Info,
        "the plan was a minute old: here comes a new one",
    );
    request_plan(model, request, true)
}

/// Asks for the plan on the screen again.
pub(in crate::console) fn request_plan_again(model: &mut Model) -> Vec<Effect> {
    let request = match &model.reset.stage {
        ResetStage::Plan(view) if model.screen == Screen::Reset => view.request.clone(),
        _ => return Vec::new(),
    };
    request_plan(model, request, true)
}

pub(in crate::console) fn request_plan(
    model: &mut Model,
    request: PlanRequest,
    is_replan: bool,
) -> Vec<Effect> {
    model.last_plan_id += 1;
    model.is_plan_pending = true;
    model.reset.is_plan_stale = false;
    model.is_dirty = true;
    if !is_replan {
        if let ResetStage::Result(result) = &model.reset.stage {
            model.reset.previous_result = Some(result.clone());
            model.reset.is_from_result = model.screen == Screen::Reset;
        } else if model.screen != Screen::Reset {
            model.reset.is_from_result = false;
        }
        model.reset.stage = ResetStage::Planning(request.clone());
        model.reset.cursor = 0;
        model.reset.guard.restart(model.now.elapsed);
        if model.screen != Screen::Reset {
            model.return_point.from_reset = return_screen(model.screen);
        }
        go_to_screen(model, Screen::Reset);
    }
    vec![Effect::MakePlan(
        model.last_plan_id,
        request,
        model.is_unlocked(),
    )]
}

/// Leaves a plan, back to where it was asked for.
pub(in crate::console) fn abandon_plan(model: &mut Model) {
    model.is_plan_pending = false;
    let previous_result = model.reset.previous_result.take();
    let at_result = previous_result.is_some() && model.reset.is_from_result;
    model.reset.stage = previous_result.map_or(ResetStage::Empty, ResetStage::Result);
    model.reset.cursor = 0;
    model.is_dirty = true;
    if model.screen == Screen::Reset && !at_result {
        go_to_screen(model, model.return_point.from_reset);
    }
}

pub(in crate::console) fn handle_plan(
    model: &mut Model,
    request: u64,
    plan: Result<Box<Plan>, Error>,
) -> Vec<Effect> {
    if request != model.last_plan_id || !model.is_plan_pending {
        return Vec::new();
    }
    model.is_plan_pending = false;
    model.is_dirty = true;
    let plan_request = match &model.reset.stage {
        ResetStage::Planning(request) => request.clone(),
        ResetStage::Plan(view) => view.request.clone(),
        _ => return Vec::new(),
    };
    let plan = match plan {
        Ok(plan) => *plan,
        Err(error) => {
            model.report(MessageLevel::Error, error.to_string());
            abandon_plan(model);
            return Vec::new();
        }
    };
    let form = required_confirmation(&plan, &plan_request, model);
    let stale = std::mem::take(&mut model.reset.is_plan_stale);
    let replan_if_stale = |model: &mut Model, request| match stale {
        true => request_plan(model, request, true),
        false => Vec::new(),
    };
    let now = model.now.elapsed;
    if let ResetStage::Plan(view) = &mut model.reset.stage
        && view.plan.hash == plan.hash
        && view.plan.steps.len() == plan.steps.len()
        && view.confirmation == form
        && now < view.made_at + PLAN_LIFETIME
    {
        // Only the figures changed: what was typed stays.
        view.plan = plan;
        return replan_if_stale(model, plan_request);
    }
    if matches!(&model.reset.stage, ResetStage::Plan(view) if view.plan.hash != plan.hash || view.confirmation != form)
    {
        model.report(
            MessageLevel::Warn,
            "something the plan depends on has changed: here is a new one",
        );
    }
    let mut hidden = model.hidden_marked_agents();
    hidden.retain(|name| plan_request.agent_names().contains(name));
    model.reset.stage = ResetStage::Plan(Box::new(PlanView {
        request: plan_request.clone(),
        plan,
        made_at: model.now.elapsed,
        confirmation: form,
        typed_text: String::new(),
        hidden_agents: hidden,
    }));
    replan_if_stale(model, plan_request)
}
