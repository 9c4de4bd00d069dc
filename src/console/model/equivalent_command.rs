//! Equivalent command lines: what an operator runs in a script to do the same as the console.

use super::targets::{
    retry_request, subject_agent, subject_baseline, target_agents, target_baselines,
};
use super::undo_offers::{redo_offers, undo_offers};
use super::{Model, OfferedPlan};
use crate::base::invocation::quote_operand;
use crate::console::agent_row::AgentRow;
use crate::console::command::Command;
use crate::console::screen::Screen;
use crate::console::screens::agent::state::AgentTab;
use crate::console::screens::baseline_plan::state::{
    BaselineChangePlan, BaselinePlanRequest, BaselinePlanView,
};
use crate::console::screens::log::state::RunSummary;
use crate::console::screens::reset::state::{PlanRequest, PlanView, ResultView};
use crate::engine::{
    Operation, Outcome, Plan, Protection, ScratchRequest, ScratchSelection, UndoMode, UndoTarget,
};
use crate::layouts::{ArgumentSpec, OperationRequest, OperationSpec};

/// Returns the command line equivalent to a plan, bound to the plan's hash; `None` if the command line
/// refuses the plan: it has an unlocked protected agent, or an undo lacks the choice of a mode.
pub fn for_plan(model: &Model, view: &PlanView) -> Option<String> {
    let mut steps = view.plan.steps.iter();
    if steps.any(|step| step.protection == Protection::ReadOnly || step.lacks_undo_mode()) {
        return None;
    }
    let verb = match &view.request {
        PlanRequest::Reset(agents) => reset_arguments(model, agents),
        PlanRequest::Push(agents, request) => {
            push_arguments(agents, Some(planned_selection(request, &view.plan)?))
        }
        PlanRequest::Edit { agent, request } => memory_arguments(model, agent, "apply", request),
        PlanRequest::Undo(target, mode) => {
            let mode = match mode {
                UndoMode::Refuse => "",
                UndoMode::Append => " --append",
                UndoMode::Overwrite => " --overwrite",
            };
            format!("{}{mode}", undo_arguments(target))
        }
    };
    Some(command_line(
        model,
        &format!("{verb} --plan {}", view.plan.hash),
    ))
}

/// Returns the arguments of an operation on a memory with a layout.
fn memory_arguments(model: &Model, agent: &str, verb: &str, request: &OperationRequest) -> String {
    let spec = model.agent.memory.find_operation(&request.operation);
    let is_positional = |name: &str| {
        let mut arguments = spec.iter().flat_map(|spec| spec.arguments);
        arguments.any(|it| it.name == name && it.is_positional())
    };
    let quote = |(name, value): (&String, &String)| {
        if is_positional(name) {
            format!(" {}", quote_operand(value))
        } else {
            format!(" --{name}={}", shell_words::quote(value))
        }
    };
    let arguments = request.arguments.iter();
    let arguments = arguments.flat_map(|(name, values)| values.iter().map(move |it| (name, it)));
    let arguments: String = arguments.map(quote).collect();
    format!("memory {agent} {verb} {}{arguments}", request.operation)
}

/// Quotes the id of an item; `--` goes before one that begins with a dash, which would be taken for an
/// option.
fn quote_id(id: &str) -> String {
    let separator = if id.starts_with('-') { "-- " } else { "" };
    format!("{separator}{}", shell_words::quote(id))
}

/// Returns the command line of an operation whose arguments are not given yet.
pub fn for_operation_spec(model: &Model, spec: &OperationSpec) -> String {
    let placeholder = |it: &ArgumentSpec| {
        let argument = if it.is_positional() {
            it.name.to_uppercase()
        } else {
            format!("--{} …", it.name)
        };
        if it.is_required {
            format!(" {argument}")
        } else {
            format!(" [{argument}]")
        }
    };
    let arguments: String = spec.arguments.iter().map(placeholder).collect();
    let agent = &model.agent.agent;
    command_line(
        model,
        &format!("memory {agent} plan {}{arguments}", spec.name),
    )
}

/// Returns the command line equivalent to a plan over baselines.
pub fn for_baseline_plan(model: &Model, view: &BaselinePlanView) -> String {
    let quote = |text: &str| shell_words::quote(text).into_owned();
    let quote_all = |names: &[String]| {
        let quoted = names.iter().map(quote_operand);
        quoted.collect::<Vec<_>>().join(" ")
    };
    let mut commands = match &view.request {
        BaselinePlanRequest::Seal { names, is_all, key } => {
            let what = if *is_all {
                "--all".to_string()
            } else {
                quote_all(names)
            };
            // A shell expands the home directory only outside of quotes.
            let key = key.as_ref().map(|key| match key.strip_prefix("~/") {
                Some(rest) => format!(" --sign ~/{}", quote(rest)),
                None => format!(" --sign {}", quote(key)),
            });
            let mut rows = view.plan.rows.iter();
            let has_errors = rows.any(|row| !row.lint_errors.is_empty());
            let force = if has_errors { "--force " } else { "" };
            // Files may change before the command is run.
            let plan = match &*view.plan.change {
                BaselineChangePlan::Seal(plan, _) => format!(" --plan {}", plan.hash()),
                BaselineChangePlan::Files { .. } => String::new(),
            };
            let key = key.unwrap_or_default();
            vec![format!("seal {force}{what}{key}{plan}")]
        }
        BaselinePlanRequest::Restore { names, version } => restore_arguments(names, version),
        BaselinePlanRequest::Create { name, source } => {
            vec![format!(
                "baseline new {} --from {}",
                quote_operand(name),
                quote_operand(source)
            )]
        }
        BaselinePlanRequest::Replace { names, replacement } => {
            let regex = if replacement.is_regex { "--regex " } else { "" };
            let (old, new) = (quote(&replacement.pattern), quote(&replacement.replacement));
            let names = quote_all(names);
            vec![format!("baseline replace {regex}-- {old} {new} {names}")]
        }
    };
    let is_resealed = matches!(
        *view.plan.change,
        BaselineChangePlan::Files {
            is_resealed: true,
            ..
        }
    );
    let names = || view.plan.rows.iter().map(|row| row.name.clone());
    let seal = || format!("seal {}", quote_all(&names().collect::<Vec<_>>()));
    commands.extend(is_resealed.then(seal));
    let lines = commands.iter().map(|it| command_line(model, it));
    lines.collect::<Vec<_>>().join(" && ")
}

/// Returns the arguments of the commands that put a version of baselines back; each takes one file.
fn restore_arguments(names: &[String], version: &str) -> Vec<String> {
    let argument = |name: &String| {
        let name = quote_operand(name);
        format!("baseline restore {name} --version {version}")
    };
    names.iter().map(argument).collect()
}

/// Returns the command lines that take an act back.
fn offer_commands(model: &Model, plan: &OfferedPlan) -> Option<String> {
    let commands = match plan {
        OfferedPlan::Runs(target) => vec![undo_arguments(target)],
        OfferedPlan::Baselines { names, version } => restore_arguments(names, version),
    };
    let lines = commands.iter().map(|it| command_line(model, it));
    Some(lines.collect::<Vec<_>>().join(" && "))
}

/// Returns the command line that deletes what retention would delete.
pub fn for_prune(model: &Model) -> String {
    command_line(model, "archive prune")
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
        UndoTarget::RunAgents(run, agents) => format!("undo --run {run} {}", agents.join(" ")),
    }
}

/// Returns the command line equivalent to a run of the ledger; `None` if none does the same.
pub fn for_run(model: &Model, run: &RunSummary) -> Option<String> {
    for_result(model, &run.to_result_view())
}

/// Returns the command line equivalent to the run of a result; `None` if none does the same.
pub fn for_result(model: &Model, view: &ResultView) -> Option<String> {
    if let Some(own) = model.log.find_own_run(&view.run_id) {
        return own.command_line.clone();
    }
    let run = model.log.find_run(&view.run_id);
    let verb = match view.operation {
        Operation::Reset => reset_arguments(model, &unprotected_agents(model, view)?),
        Operation::Push => {
            let mut events = run?.events.iter();
            let kept = events.find_map(|it| Some(&it.kept_scratch.as_ref()?.selection));
            push_arguments(&unprotected_agents(model, view)?, kept)
        }
        Operation::Undo => undo_of_run(model, run?)?,
        Operation::Pin | Operation::Unpin => {
            let entries = run?.events.iter().flat_map(|event| &event.pinned_entries);
            let entries: Vec<_> = entries.map(quote_operand).collect();
            format!("archive {} {}", view.operation.as_str(), entries.join(" "))
        }
        _ => return None,
    };
    Some(command_line(model, &verb))
}

/// Returns the agents of a run; `None` if it changed a protected agent, which only the console
/// unlocks.
fn unprotected_agents(model: &Model, view: &ResultView) -> Option<Vec<String>> {
    let is_protected = |name: &String| {
        let row = model.find_row(name);
        let seen = row.and_then(AgentRow::latest_observation);
        seen.is_some_and(|seen| seen.protection == Protection::ReadOnly)
    };
    let mut done = view.lines.iter().filter(|line| line.outcome == Outcome::Ok);
    if done.any(|line| is_protected(&line.agent)) {
        return None;
    }
    Some(view.lines.iter().map(|line| line.agent.clone()).collect())
}

/// Returns what a plan keeps; `None` if it has no step for the lines that were chosen.
fn planned_selection<'a>(
    request: &'a ScratchRequest,
    plan: &'a Plan,
) -> Option<&'a ScratchSelection> {
    match request {
        ScratchRequest::Selection(selection) => Some(selection),
        ScratchRequest::Chosen(_) => {
            let step = plan.steps.first()?;
            Some(&step.kept_scratch.as_ref()?.selection)
        }
    }
}

fn push_arguments(agents: &[String], kept: Option<&ScratchSelection>) -> String {
    let keep = match kept {
        None | Some(ScratchSelection::All) => String::new(),
        Some(selection) => format!(" --keep {selection}"),
    };
    format!("push {}{keep}", agents.join(" "))
}

/// Returns the arguments of an undo in the ledger. Only a whole run has a name of its own: the
/// last reset of an agent is another one after the undo. The ledger does not say what happened to
/// newer notes; that some were kept in the memory does.
fn undo_of_run(model: &Model, run: &RunSummary) -> Option<String> {
    let agents: Vec<String> = run.events.iter().map(|it| it.agent.clone()).collect();
    if run.is_redo {
        return Some(undo_arguments(&UndoTarget::Redo(agents)));
    }
    let undone = model.log.find_run(run.undone_run()?)?;
    if !undone.has_changed_exactly(&agents) {
        return None;
    }
    let changed = run.events.iter().filter(|it| it.has_changed_files());
    let pairs = changed.filter_map(|undo| {
        let mut events = undone.events.iter();
        let reset = events.find(|it| it.agent == undo.agent)?;
        Some((undo, reset))
    });
    let has_written_since = pairs
        .clone()
        .any(|(undo, reset)| undo.change.before != reset.change.after);
    let has_appended = pairs
        .clone()
        .any(|(undo, reset)| undo.change.after != reset.change.before);
    let mode = match (has_written_since, has_appended) {
        (false, _) => "",
        (true, true) => " --append",
        (true, false) => return None,
    };
    let target = UndoTarget::Run(undone.run_id.clone());
    Some(format!("{}{mode}", undo_arguments(&target)))
}

/// Returns the command line that shows the same as a tab; `None` if no command does.
pub fn for_tab(model: &Model, tab: AgentTab, agent: &str) -> Option<String> {
    let verb = match tab {
        AgentTab::Diff => "diff",
        AgentTab::Baseline => "diff --baseline",
        AgentTab::Rules => "diff --three-way",
        AgentTab::History => "log",
        AgentTab::Memory => return Some(command_line(model, &format!("memory {agent} tree"))),
        AgentTab::Health => return Some(command_line(model, &format!("memory {agent} health"))),
        AgentTab::Scratch | AgentTab::Facts => return None,
    };
    Some(command_line(model, &format!("{verb} {agent}")))
}

/// Returns the command line equivalent to a command on the current screen; `None` if the command
/// only changes the screen.
pub fn for_command(model: &Model, command: Command) -> Option<String> {
    let command_for = |verb: &str| Some(command_line(model, verb));
    let targets = || target_agents(model);
    match command {
        Command::OpenDiff | Command::GoAgent | Command::CopyPatch => {
            command_for(&format!("diff {}", subject_agent(model)?))
        }
        Command::PlanReset => {
            let targets = targets();
            let reset = format!("{} --dry-run", reset_arguments(model, &targets));
            command_for(&reset).filter(|_| !targets.is_empty())
        }
        Command::PlanPush => {
            let targets = targets();
            let push = format!("{} --dry-run", push_arguments(&targets, None));
            command_for(&push).filter(|_| !targets.is_empty())
        }
        Command::RetryFailed => {
            let verb = match retry_request(model).ok()? {
                PlanRequest::Reset(agents) => reset_arguments(model, &agents),
                PlanRequest::Push(agents, ScratchRequest::Selection(selection)) => {
                    push_arguments(&agents, Some(&selection))
                }
                // Where the lines are is known once the push is planned.
                PlanRequest::Push(_, ScratchRequest::Chosen(_)) => return None,
                PlanRequest::Edit { agent, request } => {
                    return command_for(&memory_arguments(model, &agent, "plan", &request));
                }
                PlanRequest::Undo(target, _) => undo_arguments(&target),
            };
            command_for(&format!("{verb} --dry-run"))
        }
        Command::ConfirmPlan | Command::UndoAppend | Command::UndoOverwrite => {
            for_plan(model, model.reset.plan.shown()?)
        }
        Command::PlanUndo | Command::UndoSave => {
            offer_commands(model, &undo_offers(model).first()?.plan)
        }
        Command::PlanRedo => offer_commands(model, &redo_offers(model).first()?.plan),
        Command::PlanOtherUndo => {
            let offers = &model.undo_offers;
            let next = (offers.current + 1) % offers.list.len().max(1);
            offer_commands(model, &offers.list.get(next)?.plan)
        }
        Command::OpenSelected if model.agent.is_item_list() && model.screen == Screen::Agent => {
            let (agent, id) = (&model.agent.agent, model.agent.memory.subject_id()?);
            command_for(&format!("memory {agent} show {}", quote_id(id)))
        }
        Command::ReadAgent => command_for(&format!("status {}", subject_agent(model)?)),
        Command::GoFleet | Command::ReadAllAgents => command_for("status"),
        Command::GoLog => command_for("log"),
        Command::GoHosts => command_for("doctor"),
        Command::GoVerify | Command::VerifyNow => command_for("verify"),
        Command::GoBaselines => command_for("baseline list"),
        Command::CompareVersions => {
            let name = subject_baseline(model)?;
            command_for(&format!("baseline diff {}", quote_operand(name)))
        }
        Command::PlanSeal => {
            let names = target_baselines(model);
            let quoted = names.iter().map(quote_operand);
            let names: Vec<_> = quoted.collect();
            command_for(&format!("seal --dry-run {}", names.join(" ")))
        }
        Command::OpenVersions => {
            let name = subject_baseline(model)?;
            command_for(&format!("baseline history {}", quote_operand(name)))
        }
        _ => None,
    }
}
