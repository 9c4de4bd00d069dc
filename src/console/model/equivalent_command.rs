//! Equivalent command lines: what an operator runs in a script to do the same as the console.

use std::collections::BTreeSet;

use super::Model;
use crate::console::command::Command;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::log::state::RunSummary;
use crate::console::screens::reset::state::{
    PlanRequest, PlanView, REDO_VERB, ResetStage, ResultView,
};
use crate::engine::{Operation, UndoMode, UndoTarget};

/// Returns the command line equivalent to a plan, bound to the plan's hash.
pub fn for_plan(model: &Model, view: &PlanView) -> String {
    let verb = match &view.request {
        PlanRequest::Reset(agents) => reset_arguments(model, agents),
        PlanRequest::Undo(target, mode) => {
            let mode = match mode {
                UndoMode::Refuse => "",
                UndoMode::Append => " --append",
                UndoMode::Overwrite => " --overwrite",
            };
            format!("{}{mode}", undo_arguments(target))
        }
    };
    command_line(model, &format!("{verb} --plan {}", view.plan.hash))
}

/// Returns the command line of a verb with its arguments.
fn command_line(model: &Model, verb: &str) -> String {
    model.config.invocation.command_line(verb)
}

fn reset_arguments(model: &Model, agents: &[String]) -> String {
    if agents.len() == model.rows.len() && agents.len() > 1 {
        "reset --all".to_string()
    } else {
        format!("reset {}", agents.join(" "))
    }
}

fn undo_arguments(target: &UndoTarget) -> String {
    match target {
        UndoTarget::Agents(agents) => format!("undo {}", agents.join(" ")),
        UndoTarget::Redo(agents) => format!("undo --redo {}", agents.join(" ")),
        UndoTarget::Run(run) => format!("undo --run {run}"),
    }
}

/// Returns the command line equivalent to a run of the ledger.
pub fn for_run(model: &Model, run: &RunSummary) -> String {
    for_result(model, &run.to_result_view())
}

/// Returns the command line equivalent to the run of a result.
pub fn for_result(model: &Model, view: &ResultView) -> String {
    let mut own = model.log.run_commands.iter();
    if let Some((_, command)) = own.find(|(known, _)| *known == view.run_id) {
        return command.clone();
    }
    let agents: Vec<String> = view.lines.iter().map(|line| line.agent.clone()).collect();
    let verb = match view.operation {
        Operation::Undo => undo_arguments(&undo_target(model, view, agents)),
        Operation::Reset => reset_arguments(model, &agents),
        // Every run begins with the repair.
        _ => "log".to_string(),
    };
    command_line(model, &verb)
}

/// Returns the target of an undo in the ledger: the run that it undid if its agents are exactly
/// those that this run changed, else its agents.
fn undo_target(model: &Model, view: &ResultView, agents: Vec<String>) -> UndoTarget {
    if view.verb == REDO_VERB {
        return UndoTarget::Redo(agents);
    }
    match undone_run(model, view) {
        Some(undone) if has_changed_exactly(undone, &agents) => {
            UndoTarget::Run(undone.run_id.clone())
        }
        _ => UndoTarget::Agents(agents),
    }
}

/// Returns the one run that an undo undid; `None` if its agents were in several.
fn undone_run<'a>(model: &'a Model, view: &ResultView) -> Option<&'a RunSummary> {
    let events = &model.log.find_run(&view.run_id)?.events;
    let id = events.first()?.undone_run.as_deref()?;
    let is_only = events
        .iter()
        .all(|event| event.undone_run.as_deref() == Some(id));
    model.log.find_run(id).filter(|_| is_only)
}

fn has_changed_exactly(run: &RunSummary, agents: &[String]) -> bool {
    let changed = run
        .events
        .iter()
        .filter(|event| event.has_changed_memory())
        .map(|event| &event.agent);
    changed.collect::<BTreeSet<_>>() == agents.iter().collect()
}

/// Returns the command line that shows the same as a tab; `None` if no command does.
pub fn for_tab(model: &Model, tab: AgentTab, agent: &str) -> Option<String> {
    let verb = match tab {
        AgentTab::Diff => "diff",
        AgentTab::Baseline => "diff --baseline",
        AgentTab::History => "log",
        AgentTab::Scratch | AgentTab::Facts => return None,
    };
    Some(command_line(model, &format!("{verb} {agent}")))
}

/// Returns the command line equivalent to a command on the current screen; `None` if the command
/// only changes the screen.
pub fn for_command(model: &Model, command: Command) -> Option<String> {
    let command_for = |verb: &str| Some(command_line(model, verb));
    let targets = || model.target_agents(command);
    match command {
        Command::OpenDiff | Command::GoAgent | Command::CopyPatch => {
            command_for(&format!("diff {}", model.subject_agent()?))
        }
        Command::PlanReset | Command::RetryFailed => {
            let targets = targets();
            let reset = format!("{} --dry-run", reset_arguments(model, &targets));
            command_for(&reset).filter(|_| !targets.is_empty())
        }
        Command::ConfirmPlan | Command::UndoAppend | Command::UndoOverwrite => {
            match &model.reset.stage {
                ResetStage::Plan(view) => Some(for_plan(model, view)),
                _ => None,
            }
        }
        Command::PlanUndo => {
            command_for(&undo_arguments(&model.undo_target())).filter(|_| !targets().is_empty())
        }
        Command::PlanRedo => command_for(&undo_arguments(&UndoTarget::Redo(targets())))
            .filter(|_| !targets().is_empty()),
        Command::ReadAgent => command_for(&format!("status {}", model.subject_agent()?)),
        Command::GoFleet | Command::ReadAllAgents => command_for("status"),
        Command::GoLog => command_for("log"),
        Command::GoHosts => command_for("doctor"),
        _ => None,
    }
}
