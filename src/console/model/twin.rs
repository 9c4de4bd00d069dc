//! The command lines that do the same as the console: what is shown here can be
//! done in a script.

use super::{Model, PlanRequest, PlanView, ResetStage, ResultView, RunSummary, Tab};
use crate::console::command::Command;
use crate::engine::{Operation, UndoMode, UndoTarget};

/// What does the same as a plan, bound to what it showed.
pub fn of_plan(model: &Model, view: &PlanView) -> String {
    let verb = match &view.request {
        PlanRequest::Reset(agents) => reset(model, agents),
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
    line(model, &format!("{verb} --plan {}", view.plan.hash))
}

/// The command line of a verb with its arguments.
fn line(model: &Model, verb: &str) -> String {
    model.fleet.invocation.line(verb)
}

fn reset(model: &Model, agents: &[String]) -> String {
    match agents.len() == model.rows.len() && agents.len() > 1 {
        true => "reset --all".to_string(),
        false => format!("reset {}", agents.join(" ")),
    }
}

/// What did, or does, the same as a run of the ledger.
pub fn of_run(model: &Model, run: &RunSummary) -> String {
    let agents: Vec<String> = run.events.iter().map(|event| event.agent.clone()).collect();
    let undoes = run.events.first().and_then(|event| event.undoes.as_deref());
    of(model, &run.run, run.result().act, &agents, undoes)
}

/// The same for a run whose result is on the screen.
pub fn of_result(model: &Model, view: &ResultView) -> String {
    let agents: Vec<String> = view.lines.iter().map(|line| line.agent.clone()).collect();
    let known = model.log.runs.iter().find(|run| run.run == view.run);
    let event = known.and_then(|run| run.events.first());
    let undoes = event.and_then(|event| event.undoes.as_deref());
    of(model, &view.run, view.act, &agents, undoes)
}

fn of(model: &Model, run: &str, act: Operation, agents: &[String], undoes: Option<&str>) -> String {
    let mut own = model.log.commands.iter();
    if let Some((_, command)) = own.find(|(known, _)| known == run) {
        return command.clone();
    }
    line(
        model,
        &match (act, undoes) {
            (Operation::Undo, Some(undone)) => format!("undo --run {undone}"),
            (Operation::Undo, None) => format!("undo {}", agents.join(" ")),
            (Operation::Reset, _) => reset(model, agents),
            // Whoever begins a run repairs first.
            _ => "log".to_string(),
        },
    )
}

/// What shows the same as a tab of an agent; none for what no command shows alone.
pub fn of_tab(model: &Model, tab: Tab, agent: &str) -> Option<String> {
    let verb = match tab {
        Tab::Diff => "diff",
        Tab::Baseline => "diff --baseline",
        Tab::History => "log",
        Tab::Scratch | Tab::Facts => return None,
    };
    Some(line(model, &format!("{verb} {agent}")))
}

/// What does the same as a command of the console where it is now; none for what
/// is of the screen alone.
pub fn of_command(model: &Model, command: Command) -> Option<String> {
    let verb = |verb: &str| Some(line(model, verb));
    let targets = || model.targets(command);
    match command {
        Command::OpenDiff | Command::GoAgent | Command::CopyDiff => {
            verb(&format!("diff {}", model.subject()?))
        }
        Command::PlanReset | Command::Retry => {
            let targets = targets();
            let reset = format!("{} --dry-run", reset(model, &targets));
            verb(&reset).filter(|_| !targets.is_empty())
        }
        Command::Confirm | Command::Append | Command::Overwrite => match &model.reset.stage {
            ResetStage::Plan(view) => Some(of_plan(model, view)),
            _ => None,
        },
        Command::PlanUndo => match model.undo_target() {
            UndoTarget::Run(run) => verb(&format!("undo --run {run}")),
            UndoTarget::Agents(names) | UndoTarget::Redo(names) => {
                verb(&format!("undo {}", names.join(" "))).filter(|_| !names.is_empty())
            }
        },
        Command::Read => verb(&format!("status {}", model.subject()?)),
        Command::GoFleet | Command::ReadAll => verb("status"),
        Command::GoLog => verb("log"),
        Command::GoHosts => verb("doctor"),
        _ => None,
    }
}
