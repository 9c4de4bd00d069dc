//! What a command is about: the agents or baselines to plan for, the agent, baseline or entry under
//! the cursor, and the failures to try again.

use std::collections::BTreeSet;

use super::Model;
use super::plans::{check_no_run, has_plan};
use crate::archive::WrittenEntry;
use crate::console::agent_row::AgentRow;
use crate::console::command::{Command, KeyContext, require};
use crate::console::screen::Screen;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::baselines::state::NO_BASELINE_REASON;
use crate::console::screens::log::state::{LogRow, RunSummary};
use crate::console::screens::reset::state::{PlanRequest, REDO_VERB, ResultView};
use crate::engine::{
    LastRun, Operation, Outcome, ScratchRequest, ScratchSelection, UndoMode, UndoTarget,
};
use crate::transport::sftp::askpass::Question;

/// Why an agent without a baseline is not reset, behind its name and `is`.
pub const NEVER_RESET_REASON: &str = "never reset (layout without a baseline)";

/// Returns the agents that a command acts on: the marked ones, else the one under the cursor or
/// on the screen; on the baselines screen those whose baselines the command is about.
pub fn target_agents(model: &Model) -> Vec<String> {
    match (model.screen, model.reset.result()) {
        (Screen::Agent, _) => vec![model.agent.agent.clone()],
        (Screen::Baselines, _) => users_of_baselines(model, &model.baselines.targets()),
        (Screen::Reset, Some(result)) => model.log.undoable_agents(result),
        _ => marked_or_current_agents(model),
    }
}

/// Returns the request that pushes to agents again; of a run of another program, what it kept is
/// in the ledger.
fn retried_push(
    model: &Model,
    result: &ResultView,
    agents: Vec<String>,
) -> Result<PlanRequest, String> {
    let own = model.log.find_own_run(&result.run_id);
    let requested = match own.map(|run| &run.request) {
        Some(PlanRequest::Push(_, request)) => Some(request.clone()),
        _ => {
            let run = model.log.find_run(&result.run_id);
            let mut events = run.into_iter().flat_map(|run| &run.events);
            let kept = events.find_map(|event| event.kept_scratch.as_ref());
            kept.map(|kept| kept.selection.clone().into())
        }
    };
    match requested {
        Some(ScratchRequest::Selection(ScratchSelection::Lines(_))) => Err(format!(
            "the numbers of its lines may have changed: mark them again, then {}",
            model.key_hint(Command::PlanPush)
        )),
        Some(request) => Ok(PlanRequest::Push(agents, request)),
        None => Ok(PlanRequest::Push(agents, ScratchSelection::All.into())),
    }
}

/// Returns the request that tries the failures of the result on the screen again: an undo is
/// tried again as the undo of the same run.
///
/// # Errors
/// The screen shows no result, no agent failed, or runs of its kind are not tried again.
pub fn retry_request(model: &Model) -> Result<PlanRequest, String> {
    let result = match (model.screen, model.reset.result()) {
        (Screen::Reset, Some(result)) => result,
        _ => return Err("no result on the screen".to_string()),
    };
    let failed = result.failed_agents();
    if failed.is_empty() {
        return Err("no agent failed, was refused or was not started".to_string());
    }
    let own = model.log.find_own_run(&result.run_id);
    match result.operation {
        Operation::Reset => Ok(PlanRequest::Reset(failed)),
        Operation::Edit => own
            .map(|run| run.request.clone())
            .ok_or_else(|| "plan the operation again on the Memory tab".to_string()),
        Operation::Undo => {
            let target = retried_undo(model, result, failed).ok_or_else(|| {
                let key = model.key_hint(Command::PlanUndo);
                format!("open the run to undo in the log: {key} there plans its undo")
            })?;
            Ok(PlanRequest::Undo(target, UndoMode::Refuse))
        }
        Operation::Push => retried_push(model, result, failed),
        _ => Err("only a reset, a push or an undo can be tried again".to_string()),
    }
}

/// Returns the target that undoes for `agents` the run that an undo was to undo; `None` if no
/// target does, or if that run is unknown.
fn retried_undo(model: &Model, result: &ResultView, agents: Vec<String>) -> Option<UndoTarget> {
    if result.verb == REDO_VERB {
        return Some(UndoTarget::Redo(agents));
    }
    let own = model.log.find_own_run(&result.run_id);
    let requested = match own.map(|run| &run.request) {
        Some(PlanRequest::Undo(UndoTarget::Run(run) | UndoTarget::RunAgents(run, _), _)) => {
            Some(run.as_str())
        }
        Some(PlanRequest::Undo(UndoTarget::Agents(_), _)) => None,
        _ => model.log.find_run(&result.run_id)?.undone_run(),
    };
    let Some(undone) = requested else {
        return own.map(|_| UndoTarget::Agents(agents));
    };
    let last_reset = |agent: &String| {
        let mut runs = model.log.runs.iter();
        runs.find(|run| run.undoable_agents().any(|it| it == agent))
    };
    let is_last = |agent| last_reset(agent).is_some_and(|run| run.run_id == undone);
    if agents.iter().all(is_last) {
        Some(UndoTarget::Agents(agents))
    } else {
        let run = model.log.find_run(undone)?;
        Some(if run.has_changed_exactly(&agents) {
            UndoTarget::Run(undone.to_string())
        } else {
            UndoTarget::RunAgents(undone.to_string(), agents)
        })
    }
}

/// Returns the newest run that can be undone for an agent, if no marked agent has one.
pub fn last_undoable_run(model: &Model) -> Option<&RunSummary> {
    let mut runs = model.log.runs.iter();
    let last = runs.find(|run| run.undoable_agents().next().is_some())?;
    let mut marked = model.fleet.marks.iter();
    let has_any = model.screen != Screen::Fleet
        || model.fleet.marks.is_empty()
        || marked.any(|it| has_undoable_change(model, it));
    Some(last).filter(|_| !has_any)
}

/// Returns the last undo that can be redone, if neither a marked agent nor the one under the
/// cursor has one.
pub fn last_redoable_run(model: &Model) -> Option<&RunSummary> {
    if model.screen == Screen::Agent {
        return None;
    }
    let marks = &model.fleet.marks;
    let cursor = model.fleet.cursor_agent.as_deref();
    let is_wanted = |name: &str| {
        if marks.is_empty() {
            Some(name) == cursor
        } else {
            marks.contains(name)
        }
    };
    let mut last = None;
    for (run, agents) in model.log.redoable_runs() {
        if agents.iter().any(|name| is_wanted(name)) {
            return None;
        }
        last.get_or_insert(run);
    }
    last
}

/// Whether an agent is known to have a change that can be undone.
fn has_undoable_change(model: &Model, name: &str) -> bool {
    let last = model
        .find_row(name)
        .and_then(|row| row.latest_observation()?.last_run.as_ref());
    // The log may be older than the observation.
    let mut undoable = model.log.runs.iter().flat_map(RunSummary::undoable_agents);
    last.is_some_and(is_undoable_change) || undoable.any(|agent| agent == name)
}

/// Returns the agents that use any of these baselines, in the order of the fleet.
fn users_of_baselines(model: &Model, names: &[String]) -> Vec<String> {
    let baselines = names.iter().filter_map(|name| model.baselines.find(name));
    let users: BTreeSet<&String> = baselines.flat_map(|it| &it.agents).collect();
    let all = model.rows.iter().map(|row| &row.name);
    all.filter(|name| users.contains(name)).cloned().collect()
}

/// Whether any of the agents that a command acts on is as wanted. Unlike
/// [`target_agents`], it copies no names of marked agents: each frame asks.
fn has_target_agent(model: &Model, is_wanted: impl Fn(&str) -> bool) -> bool {
    match (model.screen, model.reset.result()) {
        (Screen::Agent | Screen::Baselines, _) | (Screen::Reset, Some(_)) => {
            target_agents(model).iter().any(|name| is_wanted(name))
        }
        _ if model.fleet.marks.is_empty() => {
            model.fleet.cursor_agent.as_deref().is_some_and(is_wanted)
        }
        _ => model.fleet.marks.iter().any(|name| is_wanted(name)),
    }
}

/// Checks that a plan can be requested for the agents that a command acts on.
pub fn check_target_agents(model: &Model) -> Result<(), String> {
    check_no_run(model)?;
    let reason = match model.key_context() {
        KeyContext::Result => "nothing to undo in this run",
        KeyContext::Baselines if model.baselines.subject().is_some() => {
            "no agent uses this baseline"
        }
        _ => "no agent to act on",
    };
    require(has_target_agent(model, |_| true), reason)
}

/// Checks that a reset or a push can be planned for the agents that a command acts on.
pub fn check_reset_targets(model: &Model) -> Result<(), String> {
    check_target_agents(model)?;
    let is_reset = |name: &str| !model.find_row(name).is_some_and(AgentRow::is_never_reset);
    if has_target_agent(model, is_reset) {
        return Ok(());
    }
    Err(match target_agents(model).as_slice() {
        [one] => format!("{one} is {NEVER_RESET_REASON}"),
        _ => format!("the marked agents are {NEVER_RESET_REASON}"),
    })
}

/// Checks that the agent that a key is about is reset, so that it has a baseline.
pub fn check_subject_is_reset(model: &Model) -> Result<(), String> {
    let name = subject_agent(model);
    let row = name.and_then(|name| model.find_row(name));
    let never_reset = row.filter(|row| row.is_never_reset());
    let refusal = never_reset.map(|row| format!("{} is {NEVER_RESET_REASON}", row.name));
    refusal.map_or(Ok(()), Err)
}

/// Checks that a key is about an agent that can be compared with a baseline.
pub fn check_subject_diff(model: &Model) -> Result<(), String> {
    if subject_agent(model).is_some() {
        return check_subject_is_reset(model);
    }
    Err(if has_plan(model) {
        "the plan is not ready yet".to_string()
    } else {
        no_subject_reason(model)
    })
}

fn marked_or_current_agents(model: &Model) -> Vec<String> {
    if model.fleet.marks.is_empty() {
        return model.fleet.cursor_agent.clone().into_iter().collect();
    }
    let marked = model.fleet.marks.iter();
    let mut places: Vec<usize> = marked.filter_map(|name| model.rows.place(name)).collect();
    places.sort_unstable();
    let rows = places.into_iter().map(|place| &model.rows[place]);
    rows.map(|row| row.name.clone()).collect()
}

/// Returns the agent that a key is about: under the cursor, or on the screen.
pub fn subject_agent(model: &Model) -> Option<&str> {
    match model.screen {
        Screen::Fleet => model.fleet.cursor_agent.as_deref(),
        Screen::Agent => Some(&model.agent.agent),
        Screen::Reset => model.reset.current_agent(),
        Screen::Log => match model.log.current_run()?.events.as_slice() {
            [one] => model.find_row(&one.agent).map(|row| row.name.as_str()),
            _ => None,
        },
        Screen::Editor => model.editor.as_ref().and_then(|editor| {
            let user = editor.opened.users.first();
            user.map(|user| user.agent.as_str())
        }),
        Screen::Hosts | Screen::BaselinePlan => None,
        Screen::Archives => {
            let agent = model.archives.subject_agent()?;
            model.find_row(agent).map(|row| row.name.as_str())
        }
        // A baseline stands for the first agent that uses it.
        Screen::Baselines | Screen::Verify => {
            let summary = model.baselines.find(subject_baseline(model)?)?;
            summary.agents.first().map(String::as_str)
        }
    }
}

/// Returns the question that the answer key opens: that of the host under the cursor, else the
/// oldest.
pub fn current_question(model: &Model) -> Option<&Question> {
    let status = match model.screen {
        Screen::Hosts => model.hosts.current_status(),
        _ => subject_agent(model).and_then(|agent| model.hosts.status_of_agent(agent)),
    };
    let login = status.map(|status| status.host.authority());
    let mut questions = model.questions.iter();
    questions
        .find(|question| Some(&question.host) == login.as_ref())
        .or(model.questions.first())
}

/// Says that a question waits no longer for its answer, and the key that asks again.
pub fn describe_expired_question(model: &Model, question: &Question) -> String {
    let (host, key) = (&question.host, model.key_hint(Command::ReadAgent));
    format!("{host}: the question has expired; {key} asks again")
}

/// Returns why a key is about no agent here.
pub fn no_subject_reason(model: &Model) -> String {
    let open = model.key_hint(Command::OpenSelected);
    match model
        .log
        .current_row()
        .filter(|_| model.screen == Screen::Log)
    {
        Some(LogRow::Message(_)) => "the row is a note, not a run of an agent".to_string(),
        Some(LogRow::Run(run)) if run.events.len() > 1 => {
            format!("the run has several agents; {open} shows them")
        }
        _ => "no agent under the cursor".to_string(),
    }
}

/// Returns the entry under the cursor with its agent.
///
/// # Errors
/// The row under the cursor is not a run of one agent, or its run archived nothing.
pub fn selected_entry(model: &Model) -> Result<(String, WrittenEntry), String> {
    let of = |agent: &str, entry: Option<&WrittenEntry>| match entry {
        Some(entry) => Ok((agent.to_string(), entry.clone())),
        None if agent.is_empty() => Err("this row is about no agent".to_string()),
        None => Err(format!("the run archived nothing of {agent}")),
    };
    match (model.screen, model.reset.result()) {
        (Screen::Reset, Some(_)) => match model.reset.current_line() {
            Some(line) => of(&line.agent, line.entry.as_ref()),
            None => Err(no_subject_reason(model)),
        },
        (Screen::Log, _) => {
            let run = model.log.current_run().ok_or("the row is not a run")?;
            match run.events.as_slice() {
                [one] => of(&one.agent, one.change.entry.as_ref()),
                _ => Err(no_subject_reason(model)),
            }
        }
        (Screen::Agent, _) if model.agent.tab == AgentTab::History && model.agent.is_list() => {
            let past = model.agent.history.current_record();
            let past = past.ok_or("no record yet")?;
            of(&model.agent.agent, past.record.event.change.entry.as_ref())
        }
        _ => Err("no entry here".to_string()),
    }
}

/// Whether the last run of an agent is a change that the undo key takes back. An undo is not: another
/// key takes that back.
pub(super) fn is_undoable_change(last: &LastRun) -> bool {
    let is_change = last.operation.is_undoable() && last.operation != Operation::Undo;
    is_change && last.outcome == Outcome::Ok
}

/// Returns the name of the baseline that a key is about: that of the agent, where the screen shows
/// agents.
pub fn subject_baseline(model: &Model) -> Option<&str> {
    match model.screen {
        Screen::Baselines => return model.baselines.subject(),
        Screen::Verify => return model.verify.subject(&model.baselines),
        Screen::Editor => return model.editor.as_ref().map(|it| it.opened.name.as_str()),
        _ => {}
    }
    let row = model.find_row(subject_agent(model)?);
    row?.baseline.as_deref()
}

/// Checks that a key is about a baseline.
pub fn check_subject_baseline(model: &Model) -> Result<(), String> {
    check_subject_is_reset(model)?;
    let reason = match model.screen {
        Screen::Baselines => NO_BASELINE_REASON.to_string(),
        _ => no_subject_reason(model),
    };
    require(subject_baseline(model).is_some(), reason)
}

/// Returns the version that the restore key would put back, in the engine's words.
///
/// # Errors
/// The version under the cursor cannot be put back.
pub fn restorable_version(model: &Model) -> Result<String, String> {
    match model.screen {
        Screen::Baselines => Ok(model.baselines.restorable_version()?.argument()),
        _ => Ok("sealed".to_string()),
    }
}

/// Returns the baselines that a plan is for.
pub fn target_baselines(model: &Model) -> Vec<String> {
    if model.screen == Screen::Baselines {
        return model.baselines.targets();
    }
    let subject = subject_baseline(model);
    subject.map(str::to_string).into_iter().collect()
}
