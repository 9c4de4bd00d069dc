//! Plans what the undo and redo keys offer, and the next offer in place of the planned one.

use crate::console::command::{Command, require};
use crate::console::message::Effect;
use crate::console::model::plans;
use crate::console::model::plans::check_no_run;
use crate::console::model::read_only::check_started_writable;
use crate::console::model::targets::{
    check_target_agents, last_redoable_run, last_undoable_run, target_agents,
};
use crate::console::model::undo_offers::{passed_creation, redo_offers, undo_offers, undone_save};
use crate::console::model::{Model, OfferedPlan, UndoOffer, UndoOffers};
use crate::console::screen::Screen;
use crate::console::screens::baseline_plan;
use crate::console::screens::log::state::RunSummary;
use crate::console::screens::reset::state::PlanRequest;
use crate::console::update::plan;
use crate::engine::{UndoMode, UndoTarget};

/// Plans the first undo that is offered. Names the last run if the offer is about marked agents, and
/// none of them has a run to undo.
pub fn plan_undo(model: &mut Model) -> Vec<Effect> {
    let other = last_undoable_run(model);
    if let Some(text) = other.map(|run| describe_other_run(model, run, "change to undo")) {
        model.report_info(text);
    }
    let offers = undo_offers(model);
    if let Some(name) = passed_creation(model, &offers) {
        model.report_info(format!("{name} is new: to undo that, remove the file"));
    }
    plan_first(model, offers)
}

/// Plans the first redo that is offered. Names the last undo if the offer is about the target agents,
/// and none of them has an undo to redo.
pub fn plan_redo(model: &mut Model) -> Vec<Effect> {
    let offers = redo_offers(model);
    let target = UndoTarget::Redo(target_agents(model));
    let is_about_targets = offers
        .first()
        .is_some_and(|offer| offer.plan == OfferedPlan::Runs(target));
    let other = last_redoable_run(model).filter(|_| is_about_targets);
    if let Some(text) = other.map(|run| describe_other_run(model, run, "undo to redo")) {
        model.report_info(text);
    }
    plan_first(model, offers)
}

/// Leaves the planned undo for the next one that is offered.
pub fn plan_other(model: &mut Model) -> Vec<Effect> {
    let count = model.undo_offers.list.len().max(1);
    let next = (model.undo_offers.current + 1) % count;
    plan::abandon(model);
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
            plans::request_plan(model, request, false)
        }
        OfferedPlan::Baselines { names, version } => {
            baseline_plan::update::plan_undo(model, names, version)
        }
    }
}

/// Says what the target agents lack, and names the last run of other agents that has it.
fn describe_other_run(model: &Model, run: &RunSummary, lacking: &str) -> String {
    let targets = target_agents(model);
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

/// Returns why the record under the cursor has no save to undo, and which keys undo its run.
fn no_save_reason(model: &Model) -> String {
    let run = model
        .log
        .current_run()
        .filter(|_| model.screen == Screen::Log);
    if run.is_none_or(|run| run.undoable_agents().next().is_none()) {
        return "no save of a baseline to undo here".to_string();
    }
    let [open, undo] = [Command::OpenSelected, Command::PlanUndo].map(|it| model.key_hint(it));
    format!("no save of a baseline: {open} opens the run, {undo} there undoes it")
}

/// Checks that an undo of the fleet can be planned: of the target agents, or another act.
pub fn check_undo(model: &Model) -> Result<(), String> {
    check_offers(model, &undo_offers(model))
}

/// Checks that a redo of the fleet can be planned: of the target agents, or another act.
pub fn check_redo(model: &Model) -> Result<(), String> {
    check_offers(model, &redo_offers(model))
}

fn check_offers(model: &Model, offers: &[UndoOffer]) -> Result<(), String> {
    if offers.is_empty() {
        return check_target_agents(model);
    }
    check_no_run(model)
}

/// Checks that the save of the baseline that a key is about can be undone.
pub fn check_save(model: &Model) -> Result<(), String> {
    check_started_writable(model)?;
    require(undone_save(model).is_some(), no_save_reason(model))
}
