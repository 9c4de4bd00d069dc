//! Plans what the undo and redo keys offer, and the next offer in place of the planned one.

use crate::console::message::Effect;
use crate::console::model::{Model, OfferedPlan, UndoOffer, UndoOffers};
use crate::console::screen::Screen;
use crate::console::screens::log::state::RunSummary;
use crate::console::screens::reset::state::PlanRequest;
use crate::console::screens::{baseline_plan, reset};
use crate::engine::{UndoMode, UndoTarget};

/// Plans the first undo that is offered. Names the last run if the offer is about marked agents, and
/// none of them has a run to undo.
pub(super) fn plan_undo(model: &mut Model) -> Vec<Effect> {
    let other = model.last_undoable_run();
    if let Some(text) = other.map(|run| describe_other_run(model, run, "reset to undo")) {
        model.report_info(text);
    }
    let offers = model.undo_offers();
    plan_first(model, offers)
}

/// Plans the first redo that is offered. Names the last undo if the offer is about the target agents,
/// and none of them has an undo to redo.
pub(super) fn plan_redo(model: &mut Model) -> Vec<Effect> {
    let offers = model.redo_offers();
    let target = UndoTarget::Redo(model.target_agents());
    let is_about_targets = offers
        .first()
        .is_some_and(|offer| offer.plan == OfferedPlan::Runs(target));
    let other = model.last_redoable_run().filter(|_| is_about_targets);
    if let Some(text) = other.map(|run| describe_other_run(model, run, "undo to redo")) {
        model.report_info(text);
    }
    plan_first(model, offers)
}

/// Leaves the planned undo for the next one that is offered.
pub(super) fn plan_other(model: &mut Model) -> Vec<Effect> {
    let count = model.undo_offers.list.len().max(1);
    let next = (model.undo_offers.current + 1) % count;
    match model.screen {
        Screen::BaselinePlan => baseline_plan::update::abandon_plan(model),
        _ => reset::update::abandon_plan(model),
    }
    model.undo_offers.current = next;
    let offer = model.undo_offers.list.get(next).cloned();
    offer.map_or_else(Vec::new, |offer| request_plan(model, offer))
}

fn plan_first(model: &mut Model, list: Vec<UndoOffer>) -> Vec<Effect> {
    let first = list.first().cloned();
    model.undo_offers = UndoOffers { list, current: 0 };
    first.map_or_else(Vec::new, |offer| request_plan(model, offer))
}

fn request_plan(model: &mut Model, offer: UndoOffer) -> Vec<Effect> {
    match offer.plan {
        OfferedPlan::Runs(target) => {
            let request = PlanRequest::Undo(target, UndoMode::Refuse);
            reset::update::request_plan(model, request, false)
        }
        OfferedPlan::Baselines { names, version } => {
            baseline_plan::update::plan_undo(model, names, version)
        }
    }
}

/// Says what the target agents lack, and names the last run of other agents that has it.
fn describe_other_run(model: &Model, run: &RunSummary, lacking: &str) -> String {
    let targets = model.target_agents();
    let who = match targets.as_slice() {
        [one] => one.as_str(),
        _ => "the marked agents",
    };
    let (id, time) = (&run.run_id, time_suffix(model, run));
    format!("no {lacking} for {who}; the last one is {id}{time}")
}

/// Returns ` of 09:00` for a run of today, nothing for an older one.
fn time_suffix(model: &Model, run: &RunSummary) -> String {
    if run.ended_at.date_naive() == model.now.local_time.date_naive() {
        run.ended_at.format(" of %H:%M").to_string()
    } else {
        String::new()
    }
}
