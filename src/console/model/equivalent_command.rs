//! Equivalent command lines: what an operator runs in a script to do the same as the console.

use super::Model;
use crate::console::command::Command;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::log::state::RunSummary;
use crate::console::screens::reset::state::{PlanRequest, PlanView, ResetStage, ResultView};
use crate::engine::{Operation, UndoMode, UndoTarget};

/// Returns the command line equivalent to a plan, bound to the plan's hash.
pub fn for_plan(model: &Model, view: &PlanView) -> String {
    let verb = match &view.request {
        PlanRequest::Reset(agents) => reset_arguments(model, agents),
        PlanRequest::Undo(target, mode) => {
            let what = match target {
                UndoTarget::Agents(agents) => agents.join(" "),
                UndoTarget::Redo(agents) => format!("--redo {}", agents.join(" ")),
                UndoTarget::Run(run) => format!("--run {run}"),
            };
            let mode = match mode {
                UndoMode::Refuse => "",
                UndoMode::Append => " --append",
                UndoMode::Overwrite => " --overwrite",
            };
            format!("undo {what}{mode}")
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

/// Returns the command line equivalent to a run of the ledger.
pub fn for_run(model: &Model, run: &RunSummary) -> String {
    let agents: Vec<String> = run.events.iter().map(|event| event.agent.clone()).collect();
    let undoes = run
        .events
        .first()
        .and_then(|event| event.undone_run.as_deref());
    for_operation(
        model,
        &run.run_id,
        run.to_result_view().operation,
        &agents,
        undoes,
    )
}

/// Returns the command line equivalent to the run of a result.
pub fn for_result(model: &Model, view: &ResultView) -> String {
    let agents: Vec<String> = view.lines.iter().map(|line| line.agent.clone()).collect();
    let known = model.log.runs.iter().find(|run| run.run_id == view.run_id);
    let event = known.and_then(|run| run.events.first());
    let undoes = event.and_then(|event| event.undone_run.as_deref());
    for_operation(model, &view.run_id, view.operation, &agents, undoes)
}

fn for_operation(
    model: &Model,
    run: &str,
    operation: Operation,
    agents: &[String],
    undoes: Option<&str>,
) -> String {
    let mut own = model.log.run_commands.iter();
    if let Some((_, command)) = own.find(|(known, _)| known == run) {
        return command.clone();
    }
    command_line(
        model,
        &match (operation, undoes) {
            (Operation::Undo, Some(undone)) => format!("undo --run {undone}"),
            (Operation::Undo, None) => format!("undo {}", agents.join(" ")),
            (Operation::Reset, _) => reset_arguments(model, agents),
            // Every run begins with the repair.
            _ => "log".to_string(),
        },
    )
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
        Command::PlanUndo => match model.undo_target() {
            UndoTarget::Run(run) => command_for(&format!("undo --run {run}")),
            UndoTarget::Agents(names) | UndoTarget::Redo(names) => {
                command_for(&format!("undo {}", names.join(" "))).filter(|_| !names.is_empty())
            }
        },
        Command::ReadAgent => command_for(&format!("status {}", model.subject_agent()?)),
        Command::GoFleet | Command::ReadAllAgents => command_for("status"),
        Command::GoLog => command_for("log"),
        Command::GoHosts => command_for("doctor"),
        _ => None,
    }
}
