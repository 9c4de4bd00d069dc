//! The plan on the screen: which one it is, what confirms it, and when it expires.

use std::time::Duration;

use super::Model;
use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::screen::Screen;
use crate::console::screens::archives::state::ArchivesPage;
use crate::console::screens::baseline_plan::state::{BEING_WRITTEN_REASON, BaselinePlanStage};
use crate::console::screens::reset::state::{PlanRequest, ResetStage};
use crate::console::widgets::plan_pane::PlanPrompt;

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

impl Model {
    /// Returns the kind of the plan on the screen, also while it is being made.
    pub fn plan_kind(&self) -> Option<PlanKind> {
        let (kind, is_open) = match self.screen {
            Screen::Reset => (PlanKind::Run, self.reset.has_plan()),
            Screen::BaselinePlan => (PlanKind::Baselines, self.baseline_plan.has_plan()),
            Screen::Archives => {
                let is_open = self.archives.page == ArchivesPage::PrunePlan;
                (PlanKind::Prune, is_open)
            }
            _ => return None,
        };
        is_open.then_some(kind)
    }

    /// Whether the screen shows a plan, made or being made.
    pub fn has_plan(&self) -> bool {
        self.plan_kind().is_some()
    }

    /// Returns what confirms the plan on the screen; `None` while it is being made.
    pub fn plan_prompt(&self) -> Option<&PlanPrompt> {
        match (
            self.plan_kind()?,
            &self.reset.stage,
            &self.baseline_plan.stage,
        ) {
            (PlanKind::Run, ResetStage::Plan(view), _) => Some(&view.prompt),
            (PlanKind::Baselines, _, BaselinePlanStage::Plan(view)) => Some(&view.prompt),
            (PlanKind::Prune, ..) => self.archives.retention.plan.as_ref().map(|it| &it.prompt),
            _ => None,
        }
    }

    /// Returns what confirms the plan on the screen, to be typed.
    pub fn plan_prompt_mut(&mut self) -> Option<&mut PlanPrompt> {
        let kind = self.plan_kind()?;
        match (kind, &mut self.reset.stage, &mut self.baseline_plan.stage) {
            (PlanKind::Run, ResetStage::Plan(view), _) => Some(&mut view.prompt),
            (PlanKind::Baselines, _, BaselinePlanStage::Plan(view)) => Some(&mut view.prompt),
            (PlanKind::Prune, ..) => {
                let plan = self.archives.retention.plan.as_mut();
                plan.map(|it| &mut it.prompt)
            }
            _ => None,
        }
    }

    /// Returns when the plan on the screen expires; `None` while it is being made again.
    pub fn plan_expiry(&self) -> Option<Duration> {
        let is_pending = match self.plan_kind()? {
            PlanKind::Run => self.reset.requests.is_pending,
            PlanKind::Baselines => self.baseline_plan.requests.is_pending,
            PlanKind::Prune => self.archives.retention.is_loading,
        };
        let prompt = self.plan_prompt().filter(|_| !is_pending);
        prompt.map(PlanPrompt::expires_at)
    }

    /// Says what to do about marked agents of a plan that the filter hides.
    pub fn hidden_agents_refusal(&self) -> String {
        let keys = [Command::KeepHiddenAgents, Command::DropHiddenAgents];
        let [keep, drop] = keys.map(|it| self.key_hint(it));
        format!("the filter hides marked agents: {keep} keeps them, {drop} drops them")
    }

    /// Begins the time in which keys are ignored when another plan comes to the screen.
    pub fn track_visible_plan(&mut self) {
        let is_covered = self.is_screen_covered() || self.is_too_small();
        let prompt = self.plan_prompt().filter(|_| !is_covered);
        let visible_plan = prompt.map(|prompt| (self.screen, prompt.made_at));
        if self.visible_plan != visible_plan {
            self.visible_plan = visible_plan;
            self.plan_guard.restart(self.now.elapsed);
        }
    }
}

/// Requests a plan. A replan replaces the plan on the screen once it is made; any other request
/// goes to the reset screen.
pub fn request_plan(model: &mut Model, request: PlanRequest, is_replan: bool) -> Vec<Effect> {
    let id = model.reset.requests.begin();
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
        model.plan_guard.restart(model.now.elapsed);
        go_to_reset(model);
    }
    vec![Effect::MakePlan(id, request, model.is_unlocked())]
}

/// Goes to the reset screen, which leads back to where it is opened.
pub fn go_to_reset(model: &mut Model) {
    if model.screen != Screen::Reset {
        model.return_point.from_reset = model.screen;
        model.return_point.agent_before_reset = model.agent_view();
    }
    model.go_to_screen(Screen::Reset);
}

/// Checks that another plan over baselines can be made.
pub fn check_baseline_planning(model: &Model) -> Result<(), String> {
    model.check_started_writable()?;
    require(!model.is_writing_baselines(), BEING_WRITTEN_REASON)
}
