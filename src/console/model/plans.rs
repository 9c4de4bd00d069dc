//! The plan on the screen: which one it is, what confirms it, and when it expires.

use std::time::Duration;

use super::Model;
use super::read_only::{check_started_writable, is_unlocked};
use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::screen::Screen;
use crate::console::screens::baseline_plan::state::BEING_WRITTEN_REASON;
use crate::console::screens::reset::state::PlanRequest;
use crate::console::widgets::list_pane::ListPane;
use crate::console::widgets::plan_pane::{AnyPlan, PlanPrompt};

/// Kind of a plan that has a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// A reset, a push, an undo or an edit.
    Run,
    /// A change of baselines or of their seal.
    Baselines,
    /// The deletion of what retention has expired.
    Prune,
}

/// Returns the kind of the plan on the screen, also while it is being made.
pub fn plan_kind(model: &Model) -> Option<PlanKind> {
    let (kind, is_open) = match model.screen {
        Screen::Reset => (PlanKind::Run, model.reset.plan.is_open()),
        Screen::BaselinePlan => (PlanKind::Baselines, model.baseline_plan.plan.is_open()),
        Screen::Archives => (PlanKind::Prune, model.archives.has_prune_plan()),
        _ => return None,
    };
    is_open.then_some(kind)
}

/// Whether the screen shows a plan, made or being made.
pub fn has_plan(model: &Model) -> bool {
    plan_kind(model).is_some()
}

fn visible_plan(model: &Model) -> Option<&dyn AnyPlan> {
    Some(match plan_kind(model)? {
        PlanKind::Run => &model.reset.plan,
        PlanKind::Baselines => &model.baseline_plan.plan,
        PlanKind::Prune => &model.archives.retention.plan,
    })
}

/// Returns what confirms the plan on the screen; `None` while it is being made.
pub fn plan_prompt(model: &Model) -> Option<&PlanPrompt> {
    visible_plan(model)?.prompt()
}

/// Returns what confirms the plan on the screen, to be typed.
pub fn plan_prompt_mut(model: &mut Model) -> Option<&mut PlanPrompt> {
    match plan_kind(model)? {
        PlanKind::Run => model.reset.plan.prompt_mut(),
        PlanKind::Baselines => model.baseline_plan.plan.prompt_mut(),
        PlanKind::Prune => model.archives.retention.plan.prompt_mut(),
    }
}

/// Returns when the plan on the screen expires; `None` while it is being made again.
pub fn plan_expiry(model: &Model) -> Option<Duration> {
    visible_plan(model)?.expires_at()
}

/// Says what to do about marked agents of a plan that the filter hides.
pub fn hidden_agents_refusal(model: &Model) -> String {
    let keys = [Command::KeepHiddenAgents, Command::DropHiddenAgents];
    let [keep, drop] = keys.map(|it| model.key_hint(it));
    format!("the filter hides marked agents: {keep} keeps them, {drop} drops them")
}

/// Begins the time in which keys are ignored when another plan comes to the screen.
pub fn track_visible_plan(model: &mut Model) {
    let is_covered = model.is_screen_covered() || model.is_too_small();
    let prompt = plan_prompt(model).filter(|_| !is_covered);
    let visible_plan = prompt.map(|prompt| (model.screen, prompt.made_at));
    if model.key_guards.visible_plan != visible_plan {
        model.key_guards.visible_plan = visible_plan;
        model.key_guards.plan.restart(model.now.elapsed);
    }
}

/// Requests a plan. A replan replaces the plan on the screen once it is made; any other request
/// goes to the reset screen.
pub fn request_plan(model: &mut Model, request: PlanRequest, is_replan: bool) -> Vec<Effect> {
    let is_from_result = model.reset.is_from_result || model.reset.result().is_some();
    let id = model.reset.plan.begin(&request, is_replan);
    model.reset.is_plan_stale = false;
    model.is_dirty = true;
    if !is_replan {
        model.reset.is_from_result = is_from_result && model.screen == Screen::Reset;
        model.reset.list = ListPane::default();
        model.key_guards.plan.restart(model.now.elapsed);
        go_to_reset(model);
    }
    vec![Effect::MakePlan(id, request, is_unlocked(model))]
}

/// Goes to the reset screen, which leads back to where it is opened.
pub fn go_to_reset(model: &mut Model) {
    if model.screen != Screen::Reset {
        model.reset.plan.opened_from = model.screen;
        model.return_point.agent_before_reset = model.agent_view();
    }
    model.go_to_screen(Screen::Reset);
}

/// Checks that another plan over baselines can be made.
pub fn check_baseline_planning(model: &Model) -> Result<(), String> {
    check_started_writable(model)?;
    require(
        model.baseline_plan.plan.applying().is_none(),
        BEING_WRITTEN_REASON,
    )
}

/// Checks that no run is in progress.
pub fn check_no_run(model: &Model) -> Result<(), String> {
    let key = model.key_hint(Command::GoReset);
    let reason = format!("a run is in progress; {key} shows it");
    require(!model.reset.is_running(), reason)
}
