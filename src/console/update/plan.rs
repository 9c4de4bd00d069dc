//! Plans: asked for, shown, void, made anew, left.

use super::act::{go, left_for_a_plan};
use super::keys::is_covered;
use super::{Effect, PLAN_LIFETIME};
use crate::console::model::{MessageLevel, Model, PlanRequest, PlanView, ResetStage, Screen, form};
use crate::engine::Plan;
use crate::error::Error;

/// Notices a plan that has come in sight: from then on a moment passes before keys
/// mean anything to it.
pub(super) fn note_plan(model: &mut Model) {
    let in_sight = match &model.reset.stage {
        ResetStage::Plan(view)
            if model.screen == Screen::Reset && !is_covered(model) && !model.is_too_small() =>
        {
            Some(view.shown)
        }
        _ => None,
    };
    if model.reset.in_sight != in_sight {
        model.reset.in_sight = in_sight;
        model.reset.guard.restart(model.now.since);
    }
}

/// Asks for the plan on the screen again when it is void by its age.
pub(super) fn plan_anew(model: &mut Model) -> Vec<Effect> {
    let ResetStage::Plan(view) = &mut model.reset.stage else {
        return Vec::new();
    };
    if model.now.since < view.shown + PLAN_LIFETIME {
        return Vec::new();
    }
    view.typed.clear();
    let request = view.request.clone();
    model.say(
        MessageLevel::Info,
        "the plan was a minute old: here comes a new one",
    );
    ask_for_plan(model, request, true)
}

/// Asks for the plan on the screen again.
pub(super) fn plan_again(model: &mut Model) -> Vec<Effect> {
    let request = match &model.reset.stage {
        ResetStage::Plan(view) if model.screen == Screen::Reset => view.request.clone(),
        _ => return Vec::new(),
    };
    ask_for_plan(model, request, true)
}

pub(super) fn ask_for_plan(model: &mut Model, request: PlanRequest, again: bool) -> Vec<Effect> {
    model.request += 1;
    model.waiting = true;
    model.reset.stale = false;
    model.dirty = true;
    if !again {
        if let ResetStage::Result(result) = &model.reset.stage {
            model.reset.behind = Some(result.clone());
            model.reset.at_result = model.screen == Screen::Reset;
        } else if model.screen != Screen::Reset {
            model.reset.at_result = false;
        }
        model.reset.stage = ResetStage::Planning(request.clone());
        model.reset.cursor = 0;
        model.reset.guard.restart(model.now.since);
        if model.screen != Screen::Reset {
            model.back.reset = left_for_a_plan(model.screen);
        }
        go(model, Screen::Reset);
    }
    vec![Effect::Plan(model.request, request, model.unlocked())]
}

/// Leaves a plan, back to where it was asked for.
pub(super) fn give_up_plan(model: &mut Model) {
    model.waiting = false;
    let behind = model.reset.behind.take();
    let at_result = behind.is_some() && model.reset.at_result;
    model.reset.stage = behind.map_or(ResetStage::Empty, ResetStage::Result);
    model.reset.cursor = 0;
    model.dirty = true;
    if model.screen == Screen::Reset && !at_result {
        go(model, model.back.reset);
    }
}

pub(super) fn planned(
    model: &mut Model,
    request: u64,
    plan: Result<Box<Plan>, Error>,
) -> Vec<Effect> {
    if request != model.request || !model.waiting {
        return Vec::new();
    }
    model.waiting = false;
    model.dirty = true;
    let asked = match &model.reset.stage {
        ResetStage::Planning(request) => request.clone(),
        ResetStage::Plan(view) => view.request.clone(),
        _ => return Vec::new(),
    };
    let plan = match plan {
        Ok(plan) => *plan,
        Err(error) => {
            model.say(MessageLevel::Error, error.to_string());
            give_up_plan(model);
            return Vec::new();
        }
    };
    let form = form(&plan, &asked, model);
    let stale = std::mem::take(&mut model.reset.stale);
    let again = |model: &mut Model, request| match stale {
        true => ask_for_plan(model, request, true),
        false => Vec::new(),
    };
    let now = model.now.since;
    if let ResetStage::Plan(view) = &mut model.reset.stage
        && view.plan.hash == plan.hash
        && view.plan.steps.len() == plan.steps.len()
        && view.form == form
        && now < view.shown + PLAN_LIFETIME
    {
        // Only the figures changed: what was typed stays.
        view.plan = plan;
        return again(model, asked);
    }
    if matches!(&model.reset.stage, ResetStage::Plan(view) if view.plan.hash != plan.hash || view.form != form)
    {
        model.say(
            MessageLevel::Warn,
            "something the plan depends on has changed: here is a new one",
        );
    }
    let mut hidden = model.hidden_marks();
    hidden.retain(|name| asked.names().contains(name));
    model.reset.stage = ResetStage::Plan(Box::new(PlanView {
        request: asked.clone(),
        plan,
        shown: model.now.since,
        form,
        typed: String::new(),
        hidden,
    }));
    again(model, asked)
}
