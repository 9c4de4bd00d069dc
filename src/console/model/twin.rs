//! The command lines that do the same as the console: what is shown here can be
//! done in a script.

use super::{Model, PlanView, Request, ResultView, RunSummary, Stage, Tab};
use crate::console::command::Command;
use crate::engine::{Act, UndoMode, UndoTarget};

const PROGRAM: &str = "memory-shepherd";

/// What does the same as a plan, bound to what it showed.
pub fn of_plan(model: &Model, view: &PlanView) -> String {
    let undo = |what: String, mode: &UndoMode| match mode {
        UndoMode::Refuse => format!("{PROGRAM} undo {what}"),
        UndoMode::Append => format!("{PROGRAM} undo {what} --append"),
        UndoMode::Overwrite => format!("{PROGRAM} undo {what} --overwrite"),
    };
    match &view.request {
        Request::Reset(agents) => {
            format!("{} --plan {}", reset(model, agents), view.plan.hash)
        }
        Request::Undo(UndoTarget::Agents(agents), mode) => undo(agents.join(" "), mode),
        Request::Undo(UndoTarget::Run(run), mode) => undo(format!("--run {run}"), mode),
        Request::Undo(UndoTarget::Redo(_), mode) => {
            let run = view.plan.steps.first().and_then(|step| step.undo.as_ref());
            let run = run.map_or("RUN", |undo| undo.run.as_str());
            undo(format!("--run {run}"), mode)
        }
    }
}

fn reset(model: &Model, agents: &[String]) -> String {
    match agents.len() == model.rows.len() && agents.len() > 1 {
        true => format!("{PROGRAM} reset --all"),
        false => format!("{PROGRAM} reset {}", agents.join(" ")),
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

fn of(model: &Model, run: &str, act: Act, agents: &[String], undoes: Option<&str>) -> String {
    let mut own = model.log.commands.iter();
    if let Some((_, command)) = own.find(|(known, _)| known == run) {
        return command.clone();
    }
    match (act, undoes) {
        (Act::Undo, Some(undone)) => format!("{PROGRAM} undo --run {undone}"),
        (Act::Undo, None) => format!("{PROGRAM} undo {}", agents.join(" ")),
        (Act::Reset, _) => reset(model, agents),
        // Whoever begins a run repairs first.
        _ => format!("{PROGRAM} log"),
    }
}

/// What shows the same as a tab of an agent; none for what no command shows alone.
pub fn of_tab(tab: Tab, agent: &str) -> Option<String> {
    match tab {
        Tab::Diff => Some(format!("{PROGRAM} diff {agent}")),
        Tab::Baseline => Some(format!("{PROGRAM} diff --baseline {agent}")),
        Tab::History => Some(format!("{PROGRAM} log {agent}")),
        Tab::Scratch | Tab::Facts => None,
    }
}

/// What does the same as a command of the console where it is now; none for what
/// is of the screen alone.
pub fn of_command(model: &Model, command: Command) -> Option<String> {
    let verb = |verb: &str| Some(format!("{PROGRAM} {verb}"));
    let targets = || model.targets(command);
    match command {
        Command::OpenDiff | Command::GoAgent | Command::CopyDiff => {
            verb(&format!("diff {}", model.subject()?))
        }
        Command::PlanReset | Command::Retry => {
            let targets = targets();
            (!targets.is_empty()).then(|| format!("{} --dry-run", reset(model, &targets)))
        }
        Command::Confirm | Command::Append | Command::Overwrite => match &model.reset.stage {
            Stage::Plan(view) => Some(of_plan(model, view)),
            _ => None,
        },
        Command::PlanUndo => match model.undo_target() {
            UndoTarget::Run(run) => verb(&format!("undo --run {run}")),
            UndoTarget::Agents(names) | UndoTarget::Redo(names) => {
                (!names.is_empty()).then(|| format!("{PROGRAM} undo {}", names.join(" ")))
            }
        },
        Command::Read => verb(&format!("status {}", model.subject()?)),
        Command::GoFleet | Command::ReadAll => verb("status"),
        Command::GoLog => verb("log"),
        Command::GoHosts => verb("doctor"),
        _ => None,
    }
}
