//! What keys and time do to the plan on the screen: confirm it, renew it, abandon it.

use crate::console::command::Command;
use crate::console::keys::key::Key;
use crate::console::message::Effect;
use crate::console::model::plans;
use crate::console::model::plans::{
    has_plan, plan_expiry, plan_kind, plan_prompt, plan_prompt_mut,
};
use crate::console::model::read_only::read_only_reason;
use crate::console::model::{Model, PlanKind};
use crate::console::screen::Screen;
use crate::console::screens::archives::update::retention;
use crate::console::screens::baseline_plan::state::BEING_WRITTEN_REASON;
use crate::console::screens::{baseline_plan, editor, reset};
use crate::console::widgets::plan_pane::{PlanStage, TypedConfirmation};

/// Confirms the plan on the screen. One that has expired is made again instead.
pub fn confirm(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = read_only_reason(model) {
        model.report_warning(why);
        return Vec::new();
    }
    let Some(prompt) = plan_prompt(model) else {
        return Vec::new();
    };
    if let Some(why) = prompt.refusal.clone() {
        model.show_hint(&why);
        return Vec::new();
    }
    if prompt.is_expired(model.now.elapsed) {
        if plan_expiry(model).is_none() {
            model.show_hint("the plan is being made again");
        }
        return renew_expired(model);
    }
    if !prompt.is_confirmed() {
        model.show_hint("this does not confirm the plan");
        return Vec::new();
    }
    match plan_kind(model) {
        Some(PlanKind::Run) => reset::update::start_run(model),
        Some(PlanKind::Baselines) => baseline_plan::update::apply_plan(model),
        Some(PlanKind::Prune) => retention::apply_plan(model),
        None => Vec::new(),
    }
}

/// Takes a key while the confirmation of the plan is typed. Returns `None` for a key that is a command.
pub(super) fn type_confirmation(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    match plan_prompt_mut(model)?.type_key(key)? {
        TypedConfirmation::Changed => model.is_dirty = true,
        TypedConfirmation::Confirmed => return Some(confirm(model)),
        TypedConfirmation::Incomplete(word) => {
            model.report_info(format!("type {word} in full, then Enter"));
        }
    }
    Some(Vec::new())
}

/// Requests the plan on the screen again if it has expired.
pub(super) fn renew_expired(model: &mut Model) -> Vec<Effect> {
    let now = model.now.elapsed;
    if plan_expiry(model).is_none_or(|expiry| now < expiry) {
        return Vec::new();
    }
    if let Some(prompt) = plan_prompt_mut(model) {
        prompt.typed_text.clear();
    }
    model.report_info("plan refreshed after one minute");
    request_again(model)
}

/// Requests the plan on the screen again; the old one stays until the new one is made.
pub(super) fn request_again(model: &mut Model) -> Vec<Effect> {
    let (run, baselines) = (&model.reset.plan, &model.baseline_plan.plan);
    match (plan_kind(model), run.shown(), baselines.shown()) {
        (Some(PlanKind::Run), Some(shown), _) => {
            let request = shown.request.clone();
            plans::request_plan(model, request, true)
        }
        (Some(PlanKind::Baselines), _, Some(shown)) => {
            let request = shown.request.clone();
            baseline_plan::update::request_plan(model, request, true)
        }
        (Some(PlanKind::Prune), ..) => vec![retention::request(model)],
        _ => Vec::new(),
    }
}

/// Voids the plans of runs and of baselines, also those of other screens, and requests them again.
pub(super) fn void_all(model: &mut Model) -> Vec<Effect> {
    let mut effects = Vec::new();
    if let Some(request) = model.reset.plan.request().cloned() {
        model.reset.plan.stage = PlanStage::Planning(request.clone());
        effects.extend(plans::request_plan(model, request, true));
    }
    if let Some(request) = model.baseline_plan.plan.request().cloned() {
        model.baseline_plan.plan.stage = PlanStage::Planning(request.clone());
        effects.extend(baseline_plan::update::request_plan(model, request, true));
    }
    effects
}

/// Abandons all plans, also those of other screens. Returns whether there was one.
pub(super) fn abandon_all(model: &mut Model) -> bool {
    let has_run = model.reset.plan.is_open();
    if has_run {
        reset::update::abandon_plan(model);
    }
    let has_baselines = model.baseline_plan.plan.is_open();
    if has_baselines {
        baseline_plan::update::abandon_plan(model);
    }
    retention::abandon_plan(model) || has_baselines || has_run
}

/// Leaves the plan of a run or of baselines, whichever is on the screen.
pub(super) fn abandon(model: &mut Model) {
    match model.screen {
        Screen::BaselinePlan => baseline_plan::update::abandon_plan(model),
        _ => reset::update::abandon_plan(model),
    }
}

/// Quits. A run is stopped by the first quit, and a plan that is being made is abandoned; while
/// baselines are being written, the first quit only says so.
pub fn quit(model: &mut Model) -> Vec<Effect> {
    let key = model.key_hint(Command::Quit);
    if model.baseline_plan.plan.applying().is_some()
        && !std::mem::replace(&mut model.baseline_plan.has_quit, true)
    {
        model.show_hint(&format!("{BEING_WRITTEN_REASON}; {key} again quits"));
        return Vec::new();
    }
    if has_plan(model) && plan_prompt(model).is_none() {
        abandon(model);
        model.show_hint(&format!("plan abandoned; {key} again quits"));
        return Vec::new();
    }
    if model.reset.is_run_active() {
        return reset::update::stop_run(model);
    }
    if let Some(effects) = editor::update::warn_before_quit(model) {
        return effects;
    }
    let draft = editor::update::keep_draft_now(model);
    let quit = [Effect::CancelRun, Effect::Quit];
    draft.into_iter().chain(quit).collect()
}
