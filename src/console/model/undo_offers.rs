//! What the undo and redo keys offer: the newest act of this console, or that of the agent or baseline
//! under the cursor if it is newer; then the other acts, from which another key chooses.

use chrono::{DateTime, FixedOffset};
use unicode_width::UnicodeWidthStr;

use super::Model;
use super::targets::{
    is_undoable_change, subject_agent, subject_baseline, target_agents, target_baselines,
};
use crate::base::quantity::format_count;
use crate::base::untrusted;
use crate::console::age::format_age;
use crate::console::command::{Command, require};
use crate::console::screen::Screen;
use crate::console::screens::baseline_plan::state::BaselinePlanRequest;
use crate::console::screens::baselines::state::BaselinesPage;
use crate::console::screens::log::state::{OwnBaselineChange, OwnRun, RunSummary};
use crate::console::screens::reset::state::{PlanRequest, REDO_VERB};
use crate::console::widgets::canvas::shorten_untrusted;
use crate::engine::{LastRun, Operation, UndoTarget};

/// The version from before the last change, in the engine's words.
pub const PREVIOUS_VERSION: &str = "previous";

/// Digits of a version: enough to name one in any history.
const VERSION_DIGITS: usize = 16;

/// Cells that the names of an act take in a title at most.
const MAX_NAMES_CELLS: usize = 28;

/// Cells that the names keep at least, also in a narrow title.
const MIN_NAMES_CELLS: usize = 8;

/// Least number of names that are counted where they do not fit: one name in six says little.
const MIN_COUNTED_NAMES: usize = 6;

/// An act, and the plan that takes it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoOffer {
    /// The verb of the act.
    pub verb: &'static str,
    /// The agents or baselines that it changed.
    pub names: Vec<String>,
    /// When it ended; `None` if that is not known, or if the names were changed by several acts.
    pub time: Option<DateTime<FixedOffset>>,
    /// Id of its run; `None` if that is not known, or if it is several runs.
    pub run_id: Option<String>,
    /// The plan.
    pub plan: OfferedPlan,
}

/// A plan that takes an act back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfferedPlan {
    /// An undo or a redo of runs of agents.
    Runs(UndoTarget),
    /// A restore of these baselines.
    Baselines {
        /// The baselines.
        names: Vec<String>,
        /// The version to put back, in the engine's words.
        version: String,
    },
}

/// A change of an agent that can be undone.
#[derive(PartialEq, Eq)]
struct UndoableChange {
    verb: &'static str,
    time: DateTime<FixedOffset>,
    run_id: String,
}

/// The acts among which the undo key chooses, the offered one first.
#[derive(Clone, Debug, Default)]
pub struct UndoOffers {
    /// The acts.
    pub list: Vec<UndoOffer>,
    /// Index of the one that is planned.
    pub current: usize,
}

impl UndoOffer {
    /// Describes the act for a title of `room` cells: "reset docs-writer +1, 5m ago", "reset 15 agents,
    /// 5m ago". The names are shortened to the room, down to eight cells.
    pub fn describe(&self, now: DateTime<FixedOffset>, room: usize) -> String {
        let age = self
            .time
            .map(|time| format!(", {} ago", format_age(now, time)));
        let age = age.unwrap_or_default();
        let others = self.verb.width() + 1 + age.width();
        let room = room
            .saturating_sub(others)
            .clamp(MIN_NAMES_CELLS, MAX_NAMES_CELLS);
        let all = untrusted::visible_line(self.names.join(", "));
        let noun = match self.plan {
            OfferedPlan::Runs(_) => "agent",
            OfferedPlan::Baselines { .. } => "baseline",
        };
        let names = match self.names.as_slice() {
            names if names.len() >= MIN_COUNTED_NAMES && all.width() > room => {
                format_count(names.len() as u64, noun)
            }
            [first, others @ ..] if !others.is_empty() && all.width() > room => {
                let more = format!(" +{}", others.len());
                let room = room.saturating_sub(more.width());
                format!("{}{more}", shorten_untrusted(first, room))
            }
            _ => shorten_untrusted(&all, room),
        };
        format!("{} {names}{age}", self.verb)
    }
}

/// Returns the acts that the undo key offers, the first one first. There is always one: without a
/// known act, the plan of the engine says what it lacks.
pub fn undo_offers(model: &Model) -> Vec<UndoOffer> {
    let runs = model.log.own_runs.iter();
    let runs = runs.filter_map(|own| own_run_offer(model, own));
    let changes = model.log.own_changes.iter();
    let changes = changes.filter_map(|own| own_change_offer(model, own));
    let own = runs.chain(changes).collect();
    rank_offers(subject_undo(model), is_undo_subject_chosen(model), own)
}

/// Returns the baseline that this console created in its newest act, which no offer takes back, if an
/// older act is offered first.
pub fn passed_creation(model: &Model, offers: &[UndoOffer]) -> Option<String> {
    let last = model.log.own_changes.front()?.run_ids.first()?;
    let run = model.log.find_run(last)?;
    let is_older = |offer: &UndoOffer| offer.time.is_none_or(|time| time < run.ended_at);
    let is_passed = !is_undo_subject_chosen(model) && offers.first().is_none_or(is_older);
    let name = run.created_baseline().filter(|_| is_passed)?;
    Some(name.to_string())
}

/// Returns the undos that the redo key offers, the first one first.
pub fn redo_offers(model: &Model) -> Vec<UndoOffer> {
    let own = model.log.own_runs.iter();
    let own = own.filter_map(|own| own_redo_offer(model, own)).collect();
    let is_chosen = model.screen != Screen::Agent && !model.fleet.marks.is_empty();
    rank_offers(subject_redo(model), is_chosen, own)
}

/// Returns the act that the plan on the screen takes back, if an undo or redo key asked for it.
pub fn planned_undo_offer(model: &Model) -> Option<&UndoOffer> {
    let offer = model.undo_offers.list.get(model.undo_offers.current)?;
    let is_planned = match &offer.plan {
        OfferedPlan::Runs(target) => {
            let request = model.reset.plan.request()?;
            let is_same = matches!(request, PlanRequest::Undo(it, _) if it == target);
            is_same && model.screen == Screen::Reset
        }
        OfferedPlan::Baselines { names, version } => {
            let plan = &model.baseline_plan.plan;
            let applied = || plan.applying().map(|view| &view.request);
            let request = plan.request().or_else(applied)?;
            let is_same = matches!(request, BaselinePlanRequest::Restore { names: planned, version: of }
                if planned == names && of == version);
            is_same && model.screen == Screen::BaselinePlan
        }
    };
    is_planned.then_some(offer)
}

/// Whether the operator has chosen what to undo: by marks, or by a screen about one act.
fn is_undo_subject_chosen(model: &Model) -> bool {
    match model.screen {
        Screen::Fleet => !model.fleet.marks.is_empty(),
        Screen::Baselines => {
            model.baselines.page == BaselinesPage::List && !model.baselines.marks.is_empty()
        }
        Screen::Agent => false,
        _ => true,
    }
}

/// Returns the undo of what a key is about: the marks, the row under the cursor, or what the screen
/// shows.
fn subject_undo(model: &Model) -> Option<UndoOffer> {
    match (model.screen, model.reset.result()) {
        (Screen::Reset, Some(result)) => {
            return Some(UndoOffer {
                verb: result.verb,
                names: model.log.undoable_agents(result),
                time: Some(result.ended_at),
                run_id: Some(result.run_id.clone()),
                plan: OfferedPlan::Runs(UndoTarget::Run(result.run_id.clone())),
            });
        }
        (Screen::Log | Screen::Editor, _) => return undone_save(model),
        (Screen::Baselines, _) => return baseline_subject_undo(model),
        (Screen::Fleet, _) if !model.fleet.marks.is_empty() => {}
        _ => {
            if let Some(save) = last_standing_save(model) {
                return Some(save);
            }
        }
    }
    let agents = target_agents(model);
    let mut runs = agents
        .iter()
        .map(|agent| last_undoable_change(model, agent));
    let first = runs.next().flatten();
    // Agents that different acts changed have no common verb and age.
    let common = first.filter(|first| runs.all(|other| other.as_ref() == Some(first)));
    (!agents.is_empty()).then(|| UndoOffer {
        verb: common.as_ref().map_or("last run of", |run| run.verb),
        names: agents.clone(),
        time: common.as_ref().map(|run| run.time),
        run_id: common.map(|run| run.run_id),
        plan: OfferedPlan::Runs(UndoTarget::Agents(agents)),
    })
}

/// Returns the last change of an agent that can be undone. The log may be older than the
/// observation.
fn last_undoable_change(model: &Model, agent: &str) -> Option<UndoableChange> {
    let row = model.find_row(agent);
    let seen = row.and_then(|row| row.latest_observation()?.last_run.as_ref());
    let newest_record = model.log.runs.first().map(|run| run.ended_at);
    let is_newer = |last: &&LastRun| newest_record.is_none_or(|newest| newest < last.time);
    let seen = seen.filter(|last| is_undoable_change(last));
    if let Some(last) = seen.filter(is_newer) {
        return Some(UndoableChange {
            verb: last.operation.as_str(),
            time: last.time,
            run_id: last.run.clone(),
        });
    }
    let mut runs = model.log.runs.iter();
    let run = runs.find(|run| run.undoable_agents().any(|it| it == agent))?;
    Some(UndoableChange {
        verb: run.verb(),
        time: run.ended_at,
        run_id: run.run_id.clone(),
    })
}

/// Returns the undo of the last change of the baselines that a key is about.
fn baseline_subject_undo(model: &Model) -> Option<UndoOffer> {
    let names = target_baselines(model);
    match names.as_slice() {
        [] => None,
        [name] => Some(undo_of_last_change(model, name)),
        _ => Some(undo_to_previous(names)),
    }
}

/// Returns the undo of the last change of a baseline that the log knows, else a return to the version
/// before.
fn undo_of_last_change(model: &Model, name: &str) -> UndoOffer {
    let last = model.log.last_change_of_baseline(name);
    let undo = last.and_then(RunSummary::undo_of_save);
    undo.unwrap_or_else(|| undo_to_previous(vec![name.to_string()]))
}

/// Returns the undo of a run of this console for the agents for which it still stands.
fn own_run_offer(model: &Model, own: &OwnRun) -> Option<UndoOffer> {
    let is_change = !matches!(own.request, PlanRequest::Undo(..));
    let known = model.log.find_run(&own.run_id);
    let time = known.map(|run| run.ended_at).or(own.ended_at);
    let time = time.filter(|_| is_change)?;
    let stands = |agent: &&String| {
        let is_undone = known.is_some_and(|run| run.undone_agents.contains(agent));
        !is_undone && model.find_row(agent).is_some()
    };
    let names: Vec<String> = own.agents.iter().filter(stands).cloned().collect();
    let run = own.run_id.clone();
    let target = match names.len() {
        0 => return None,
        count if count == own.agents.len() => UndoTarget::Run(run),
        _ => UndoTarget::RunAgents(run, names.clone()),
    };
    Some(UndoOffer {
        verb: own.request.verb(),
        names,
        time: Some(time),
        run_id: Some(own.run_id.clone()),
        plan: OfferedPlan::Runs(target),
    })
}

/// Returns the undo of a change that this console made to baselines, for those whose newest change
/// it is.
fn own_change_offer(model: &Model, own: &OwnBaselineChange) -> Option<UndoOffer> {
    let runs = own.run_ids.iter().filter_map(|id| model.log.find_run(id));
    let stands = |run: &&RunSummary| {
        let Some((name, _)) = run.replaced_baseline() else {
            return false;
        };
        let standing = match run.restored_version() {
            // What took another change back is redone by taking that change again.
            Some(_) if own.is_undo => None,
            Some(_) => model.log.last_change_of_baseline(&name),
            None => model.log.standing_save(&name, |_| false),
        };
        standing.is_some_and(|it| it.run_id == run.run_id)
    };
    let runs: Vec<&RunSummary> = runs.filter(stands).collect();
    match runs.as_slice() {
        [] => None,
        [one] => one.undo_of_save(),
        many => {
            // One version names what several baselines were only if it is the one before the last.
            let names = many.iter().filter_map(|run| {
                let (name, _) = run.replaced_baseline()?;
                let last = model.log.last_change_of_baseline(&name)?;
                (last.run_id == run.run_id).then_some(name)
            });
            let names: Vec<String> = names.collect();
            (!names.is_empty()).then(|| UndoOffer {
                verb: many[0].verb(),
                names: names.clone(),
                time: many.iter().map(|run| run.ended_at).max(),
                run_id: None,
                plan: OfferedPlan::Baselines {
                    names,
                    version: PREVIOUS_VERSION.to_string(),
                },
            })
        }
    }
}

/// Returns the redo of what the target agents had undone last.
fn subject_redo(model: &Model) -> Option<UndoOffer> {
    let names = target_agents(model);
    let mut undos = model.log.redoable_runs();
    let last = undos.find(|(_, agents)| agents.iter().any(|it| names.iter().any(|n| n == it)));
    (!names.is_empty()).then(|| UndoOffer {
        verb: Operation::Undo.as_str(),
        names: names.clone(),
        time: last.as_ref().map(|(run, _)| run.ended_at),
        run_id: last.map(|(run, _)| run.run_id.clone()),
        plan: OfferedPlan::Runs(UndoTarget::Redo(names)),
    })
}

/// Returns the redo of an undo of this console, for the agents for which it still stands.
fn own_redo_offer(model: &Model, own: &OwnRun) -> Option<UndoOffer> {
    let is_undo = matches!(own.request, PlanRequest::Undo(..)) && own.request.verb() != REDO_VERB;
    let known = model.log.find_run(&own.run_id);
    let time = known.map(|run| run.ended_at).or(own.ended_at);
    let time = time.filter(|_| is_undo)?;
    let mut undos = model.log.redoable_runs();
    let names: Vec<String> = match undos.find(|(run, _)| run.run_id == own.run_id) {
        Some((_, agents)) => agents.into_iter().map(str::to_string).collect(),
        None if known.is_some() => Vec::new(),
        None => own.agents.clone(),
    };
    let is_configured = |name: &String| model.find_row(name).is_some();
    let names: Vec<String> = names.into_iter().filter(is_configured).collect();
    (!names.is_empty()).then(|| UndoOffer {
        verb: Operation::Undo.as_str(),
        names: names.clone(),
        time: Some(time),
        run_id: Some(own.run_id.clone()),
        plan: OfferedPlan::Runs(UndoTarget::Redo(names)),
    })
}

/// Returns the undo of the save that a key is about: that of the row in the log, or the last one of
/// the baseline in the editor. `None` on other screens, and for a row that is no save.
pub fn undone_save(model: &Model) -> Option<UndoOffer> {
    match model.screen {
        Screen::Log => model.log.current_run()?.undo_of_save(),
        Screen::Editor => Some(undo_of_last_change(model, subject_baseline(model)?)),
        _ => None,
    }
}

/// Returns the undo of the last save of the baseline of the agent that a key is about, unless it was
/// taken back, or a later run changed the agent.
fn last_standing_save(model: &Model) -> Option<UndoOffer> {
    let agent = subject_agent(model)?;
    let name = subject_baseline(model)?;
    let changes_agent = |run: &RunSummary| run.undoable_agents().any(|it| it == agent);
    model.log.standing_save(name, changes_agent)?.undo_of_save()
}

/// Checks that another act can be undone in place of the planned one.
pub fn check_other_undo(model: &Model) -> Result<(), String> {
    let key = model.key_hint(Command::PlanUndo);
    require(
        planned_undo_offer(model).is_some(),
        format!("only a plan that {key} asked for has others"),
    )?;
    let has_others = model.undo_offers.list.len() >= 2;
    require(has_others, "no other act of this console to undo")
}

/// Returns the age of the act that the plan on the screen takes back.
pub fn undo_offer_age(model: &Model) -> Option<String> {
    let time = planned_undo_offer(model)?.time?;
    Some(format_age(model.now.local_time, time))
}

impl RunSummary {
    /// Returns the undo of a save or a restore of a baseline.
    fn undo_of_save(&self) -> Option<UndoOffer> {
        let (baseline, replaced) = self.replaced_baseline()?;
        Some(UndoOffer {
            verb: self.verb(),
            names: vec![baseline.clone()],
            time: Some(self.ended_at),
            run_id: Some(self.run_id.clone()),
            plan: OfferedPlan::Baselines {
                names: vec![baseline],
                version: replaced.short_hex(VERSION_DIGITS),
            },
        })
    }
}

/// Returns the plan that puts back what these baselines were before their last change.
fn undo_to_previous(names: Vec<String>) -> UndoOffer {
    UndoOffer {
        verb: "last change of",
        names: names.clone(),
        time: None,
        run_id: None,
        plan: OfferedPlan::Baselines {
            names,
            version: PREVIOUS_VERSION.to_string(),
        },
    }
}

/// Puts the newest act first; what the operator has chosen comes before all others.
fn rank_offers(subject: Option<UndoOffer>, is_chosen: bool, own: Vec<UndoOffer>) -> Vec<UndoOffer> {
    let is_first = |offer: &UndoOffer| is_chosen && subject.as_ref() == Some(offer);
    let mut offers: Vec<UndoOffer> = own;
    offers.extend(subject.clone());
    offers.sort_by_key(|offer| (!is_first(offer), std::cmp::Reverse(offer.time)));
    let mut ranked: Vec<UndoOffer> = Vec::new();
    for offer in offers {
        // The last run of an agent may be offered by its id as well.
        let is_same = |other: &UndoOffer| {
            let is_same_run = other.run_id.is_some() && other.run_id == offer.run_id;
            other.plan == offer.plan || (is_same_run && other.names == offer.names)
        };
        let is_unknown = offer.time.is_none() && !ranked.is_empty();
        if !ranked.iter().any(is_same) && !is_unknown {
            ranked.push(offer);
        }
    }
    ranked
}
