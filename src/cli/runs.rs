//! `reset`, `push` and `undo`: the verbs that change agents. They never ask; `--dry-run` prints
//! what they would do.

pub(super) mod arguments;
pub(super) mod interrupted;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::alerts::send_alerts;
use super::diff::write_hunks;
use super::log::LedgerHead;
use super::metrics_file::write_metrics_after_run;
use super::output::{
    Document, ErrorItem, OutputRole, Printer, bad, dim, format_count, heading, notice, path_cell,
    plain, text_cell, warn,
};
use super::schedule::no_agents_error;
use super::signals::RunSignals;
use super::status::state_role;
use super::write_restriction::restrict_run_writes;
use super::{CommandContext, CommandError, CommandResult};
use crate::archive::EntryKind;
use crate::base::diff::{self, Diff};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::invocation::as_operand;
use crate::cli::runs::arguments::{PushArgs, ResetArgs, RunFlags, UndoArgs};
use crate::cli::runs::interrupted::{
    describe_user_run, interrupted_push_error, interrupted_undo_error, recover_interrupted,
};
use crate::cli::schedule::hold::{
    finish_held_reset, report_held_agents, split_held_agents, split_protected_agents,
};
use crate::config::{Agent, Config};
use crate::engine::{
    AgentResult, Engine, FileState, LockQueue, Operation, OperationPlan, Outcome, Plan, PlanStep,
    RetentionPlan, RunProgress, RunReport, ScratchSelection, State, StepAction, Trigger,
    UndoTarget, UserRun,
};
use crate::layouts::{FileEdit, OperationRequest};
use crate::unattended::schedule::ServicePurpose;

/// Number of equal lines shown around a change of rules.
const RULE_CONTEXT_LINES: usize = 1;

/// Time limit for the smallest difference between two baselines.
const RULE_DIFF_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer of `--dry-run`.
#[derive(Serialize)]
struct DryRunDocument {
    plan: Plan,
    #[serde(skip)]
    rule_changes: Vec<RuleChange>,
}

/// What an operation on the memory of an agent is.
#[derive(Clone, Copy, Serialize)]
struct OperationSummary<'a> {
    agent: &'a str,
    operation: &'a str,
    outcome: &'static str,
}

/// The answer of `memory AGENT plan`.
#[derive(Serialize)]
struct OperationPlanDocument<'a> {
    #[serde(flatten)]
    summary: OperationSummary<'a>,
    #[serde(rename = "plan")]
    hash: String,
    writes: Vec<FileWrite>,
    /// The changes, in the format of patch(1).
    diff: String,
    #[serde(skip)]
    dry_run: DryRunDocument,
}

/// The change of one file.
#[derive(Serialize)]
struct FileWrite {
    path: String,
    /// None: there is no file.
    before: Option<Digest>,
    after: Option<Digest>,
}

impl FileWrite {
    fn new(edit: &FileEdit) -> FileWrite {
        FileWrite {
            path: edit.path.display().to_string(),
            before: edit.before.as_deref().map(Digest::of),
            after: edit.after.as_deref().map(Digest::of),
        }
    }
}

/// Returns the changes of files in the format of patch(1).
fn unified_diff(edits: &[FileEdit], deadline: Instant) -> String {
    let of_edit = |edit: &FileEdit| {
        let text = |content: &Option<Vec<u8>>| content.clone().unwrap_or_default();
        let name = |side: &str, content: &Option<Vec<u8>>| match content {
            Some(_) => format!("{side}/{}", edit.path.display()),
            None => "/dev/null".to_string(),
        };
        let diff = diff::compare_lines(&text(&edit.before), &text(&edit.after), Some(deadline));
        let names = [name("a", &edit.before), name("b", &edit.after)];
        diff.to_unified(&names[0], &names[1], RULE_CONTEXT_LINES)
    };
    let bytes: Vec<u8> = edits.iter().flat_map(of_edit).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Document for OperationPlanDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        self.dry_run.write_text(printer)?;
        for line in self.diff.lines() {
            printer.write_revealed_line(&[plain(line)])?;
        }
        Ok(())
    }
}

/// The change of rules that a plan brings to agents that are behind.
struct RuleChange {
    agents: Vec<String>,
    diff: Diff,
}

impl RuleChange {
    /// Returns the changes of a plan; agents with the same one share it.
    fn of_plan(engine: &Engine, plan: &Plan) -> Vec<RuleChange> {
        let mut agents: BTreeMap<(Digest, Digest), Vec<String>> = BTreeMap::new();
        for step in &plan.steps {
            if let Some(version) = step.behind_version {
                let versions = (version, step.binding.content_digest);
                agents.entry(versions).or_default().push(step.agent.clone());
            }
        }
        let deadline = engine.clock().instant() + RULE_DIFF_TIMEOUT;
        let changes = agents.into_iter().filter_map(|((old, _), agents)| {
            let [old, new] = engine.baselines().rules_since(agents.first()?, old)?;
            let diff = diff::compare_lines(&old, &new, Some(deadline));
            Some(RuleChange { agents, diff })
        });
        changes.collect()
    }

    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let agents = self.agents.join(", ");
        printer.write_line(&[plain("rules that change for "), heading(&agents)])?;
        write_hunks(printer, &self.diff, RULE_CONTEXT_LINES)
    }
}

impl Document for DryRunDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let plan = &self.plan;
        let mut rows = Vec::new();
        for step in &plan.steps {
            rows.push(vec![
                text_cell(state_role(step.state), step.state.as_str()),
                text_cell(OutputRole::Heading, &step.agent),
                text_cell(OutputRole::Plain, describe_archiving(step)),
                text_cell(OutputRole::Plain, describe_installing(step)),
                text_cell(OutputRole::Dim, step.notes.join("; ")),
            ]);
        }
        printer.write_table(&rows)?;
        for change in &self.rule_changes {
            change.write_text(printer)?;
        }
        write_files(printer, plan)?;
        for step in &plan.steps {
            for finding in &step.lint_findings {
                let agent = format!("{}: ", step.agent);
                printer.write_revealed_line(&[warn(&agent), plain(finding)])?;
            }
        }
        for text in plan.degradations() {
            printer.write_line(&[warn("degraded: "), plain(text)])?;
        }
        let rows: Vec<_> = plan
            .skipped
            .iter()
            .map(|skipped| {
                let (role, word) = match (skipped.kind, skipped.state) {
                    (None, _) => dim("nothing to do"),
                    (Some(_), State::Unreach) => bad("unreachable"),
                    (Some(_), _) => bad("refused"),
                };
                vec![
                    text_cell(state_role(skipped.state), skipped.state.as_str()),
                    text_cell(OutputRole::Heading, &skipped.agent),
                    text_cell(role, word),
                    text_cell(OutputRole::Plain, &skipped.reason),
                ]
            })
            .collect();
        printer.write_table(&rows)?;
        if let Some(retention) = &plan.retention {
            write_retention(printer, retention)?;
        }
        let deletes = plan
            .retention
            .as_ref()
            .map_or(String::new(), describe_deletion);
        printer.write_plain_line(format!(
            "{}{deletes}; nothing was changed",
            count_dry_run(plan)
        ))?;
        printer.write_line(&[plain("plan "), notice(&plan.hash)])
    }
}

/// Writes what an edit, or its undo, would do to each file.
fn write_files(printer: &mut Printer<'_>, plan: &Plan) -> io::Result<()> {
    let files = plan.steps.iter().flat_map(|step| &step.files);
    let rows: Vec<_> = files
        .map(|file| {
            let (role, verb) = match (&file.before, &file.after) {
                (FileState::Absent, _) => plain("create"),
                (_, FileState::Absent) => warn("remove"),
                _ => plain("change"),
            };
            let size = match &file.after {
                FileState::File { size, .. } => format_count(*size as usize, "byte"),
                _ => String::new(),
            };
            vec![
                text_cell(role, verb),
                path_cell(OutputRole::Plain, &file.path),
                text_cell(OutputRole::Dim, size),
            ]
        })
        .collect();
    printer.write_table(&rows)
}

/// Writes what retention would delete, and why other old entries stay.
fn write_retention(printer: &mut Printer<'_>, retention: &RetentionPlan) -> io::Result<()> {
    for entry in &retention.entries {
        let path = as_operand(entry).display().to_string();
        printer.write_line(&[plain("retention deletes "), plain(&path)])?;
    }
    for version in &retention.versions {
        let version = version.to_string();
        printer.write_line(&[
            plain("retention deletes the baseline version "),
            plain(&version),
        ])?;
    }
    for note in &retention.notes {
        printer.write_line(&[warn("note: "), plain(note)])?;
    }
    match &retention.blocker {
        Some(block) => printer.write_line(&[warn("retention: "), plain(&block.reason)]),
        None => Ok(()),
    }
}

/// Describes what retention would delete: `, and retention would delete 2 entries`.
fn describe_deletion(retention: &RetentionPlan) -> String {
    let entries = retention.entries.len();
    let versions = retention.versions.len();
    let entries = (entries > 0).then(|| format_count(entries, "entry"));
    let versions = (versions > 0).then(|| format_count(versions, "baseline version"));
    let parts: Vec<String> = entries.into_iter().chain(versions).collect();
    if parts.is_empty() {
        return String::new();
    }
    format!(", and retention would delete {}", parts.join(" and "))
}

/// Counts the agents of a plan by what a run would do: `2 agents would be reset, 1 unreachable`.
fn count_dry_run(plan: &Plan) -> String {
    // A run refuses these when it reaches them.
    let undo_refusals = plan.steps.iter().filter(|it| it.lacks_undo_mode()).count();
    let (failed, unchanged): (Vec<_>, Vec<_>) =
        plan.skipped.iter().partition(|it| it.kind.is_some());
    let unreachable = failed.iter().filter(|it| it.state == State::Unreach);
    let unreachable = unreachable.count();
    let refused = failed.len() - unreachable + undo_refusals;
    let (nothing, verb) = match plan.operation {
        Operation::Undo => ("nothing to restore", "restored"),
        Operation::Push => ("nothing to push", "get the baseline"),
        Operation::Edit => ("nothing to change", "changed"),
        _ => ("nothing to reset", "reset"),
    };
    let mut text = match plan.steps.len() - undo_refusals {
        0 => nothing.to_string(),
        count if plan.operation == Operation::Push => {
            format!("{} would {verb}", format_count(count, "agent"))
        }
        count => format!("{} would be {verb}", format_count(count, "agent")),
    };
    for (count, label) in [
        (unchanged.len(), "unchanged"),
        (unreachable, "unreachable"),
        (refused, "refused"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {label}"));
        }
    }
    text
}

/// Describes what a step would archive.
fn describe_archiving(step: &PlanStep) -> String {
    let bytes = format_count(step.archive_bytes as usize, "byte");
    match step.entry_kind {
        None => "archives nothing".to_string(),
        Some(_) if step.action == StepAction::Edit => {
            let files = step
                .files
                .iter()
                .filter(|it| it.before != FileState::Absent);
            format!("archives {}, {bytes}", format_count(files.count(), "file"))
        }
        Some(EntryKind::Special) => "archives a description".to_string(),
        Some(EntryKind::Scratch) => {
            let lines = format_count(step.scratch_lines as usize, "line");
            format!("archives {lines}, {bytes}")
        }
        Some(_) if step.added_lines + step.removed_lines > 0 => format!(
            "archives the whole file, {bytes}, +{} -{} above",
            step.added_lines, step.removed_lines
        ),
        Some(_) => format!("archives the whole file, {bytes}"),
    }
}

/// Describes what a step would write to the memory.
fn describe_installing(step: &PlanStep) -> String {
    let undone_run = step.undone_run.as_ref().map(|undo| &undo.run);
    let contents = match undone_run {
        Some(run) => format!("the {} bytes from before run {run}", step.new_size),
        None => format!("{} bytes", step.new_size),
    };
    match (step.action, undone_run) {
        (StepAction::Replace, _) => format!("installs {contents}"),
        (StepAction::Create, _) => format!("creates the file with {contents}"),
        (StepAction::Remove, Some(run)) => format!("removes the file that run {run} created"),
        (StepAction::Remove, None) => "removes the file".to_string(),
        (StepAction::PutBack, Some(run)) => format!("puts back what run {run} displaced"),
        (StepAction::PutBack, None) => "puts back what was displaced".to_string(),
        (StepAction::Edit, _) => format!("changes {}", format_count(step.files.len(), "file")),
    }
}

/// The answer of a run with `--json`. As text, the progress lines say it all.
#[derive(Serialize)]
struct RunDocument<'a> {
    #[serde(flatten)]
    summary: Option<OperationSummary<'a>>,
    run: &'a str,
    #[serde(rename = "act")]
    operation: Operation,
    /// `None` if the run had no plan made in advance.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    results: &'a [AgentResult],
    retired: Vec<String>,
    #[serde(skip_serializing_if = "<[Digest]>::is_empty")]
    retired_versions: &'a [Digest],
    /// Errors that belong to no agent.
    #[serde(rename = "trouble")]
    errors: Vec<ErrorItem<'a>>,
    notes: &'a [String],
    #[serde(rename = "head")]
    ledger_head: Option<LedgerHead>,
    duration_ms: u64,
}

impl Document for RunDocument<'_> {
    fn write_text(&self, _: &mut Printer<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses a plan whose hash is not `hash`.
fn check_plan_hash(plan: &Plan, hash: Option<&str>) -> Result<()> {
    match hash {
        Some(hash) if !plan.matches_hash(hash) => {
            let message = format!("plan {hash} is out of date; the plan is now {}", plan.hash);
            Err(Error::new(ErrorKind::Conflict, message)
                .with_hint("nothing was changed; review the new plan with --dry-run"))
        }
        _ => Ok(()),
    }
}

pub(in crate::cli) fn run_reset(
    context: &mut CommandContext<'_>,
    args: &ResetArgs,
) -> CommandResult {
    // A document for a script is whole, however slowly it is read.
    if args.scheduled && !context.output.is_json() {
        context.output.skip_unread();
    }
    let trigger = if args.scheduled {
        Trigger::Timer
    } else {
        Trigger::Cli
    };
    let engine = open_run_engine(context, trigger, &args.flags)?;
    let result = reset_agents(context, &engine, args);
    engine.end_with_process();
    result
}

/// Sends the alert of a run that failed before it got to any agent, and writes its metrics.
fn report_failed_start(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    args: &ResetArgs,
    signals: &RunSignals,
    error: &Error,
) {
    let operation = if args.keep_scratch {
        Operation::Push
    } else {
        Operation::Reset
    };
    let report = RunReport::of_failed_start(operation, error);
    send_alerts(context, engine, Some(&report), signals);
    write_metrics_after_run(context, engine, &args.metrics, Some(error.kind()));
}

fn reset_agents(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    args: &ResetArgs,
) -> CommandResult {
    // Exit code 0 would look like a reset of every agent.
    if args.agents.is_empty() && engine.config().reset_agents().next().is_none() {
        let error = no_agents_error(engine, "reset");
        return Err(error
            .with_hint("pass --config FILE to use another config")
            .into());
    }
    let names = reset_names(engine.config(), args);
    let agents = names.iter().filter_map(|name| engine.config().agent(name));
    restrict_run_writes(
        context,
        &args.write_restriction,
        engine.config(),
        &agents.collect::<Vec<_>>(),
        ServicePurpose::Reset,
        args.metrics.file.as_deref(),
    );
    let (names, mut held) = split_protected_agents(engine, names, args);
    let names = if args.scheduled {
        let (names, paused) = split_held_agents(context, engine, names);
        held.extend(paused);
        names
    } else {
        names
    };
    if names.is_empty() && !held.is_empty() {
        return finish_held_reset(context, engine, &held, args);
    }
    report_held_agents(context, engine, &held, args.flags.dry_run);
    // Without --dry-run or --plan, each agent is observed only when the run reaches it.
    let wants_preview = args.flags.dry_run || args.flags.plan.is_some();
    let signals = RunSignals::register()?;
    let planner = engine.planner();
    let make_plan = || {
        if args.keep_scratch {
            planner.plan_push(&names, &ScratchSelection::All, false)
        } else if wants_preview {
            planner.plan_reset(&names, false)
        } else {
            planner.plan_unobserved(&names, false)
        }
    };
    let result = run_plan(context, engine, &args.flags, &signals, false, make_plan);
    match &result {
        _ if args.flags.dry_run => {}
        Ok(kind) => write_metrics_after_run(context, engine, &args.metrics, *kind),
        Err(failure) if is_failed_start(&failure.error) => {
            report_failed_start(context, engine, args, &signals, &failure.error);
        }
        Err(_) => {}
    }
    result
}

/// Makes a plan and runs it, or prints it with `--dry-run`. A run is bound to what the plan has observed
/// if it `is_bound` or the operator names the plan.
fn run_plan(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    flags: &RunFlags,
    signals: &RunSignals,
    is_bound: bool,
    make_plan: impl Fn() -> Result<Plan>,
) -> CommandResult {
    let (plan, queue) = plan_with_locks(engine, signals, make_plan)?;
    check_plan_hash(&plan, flags.plan.as_deref())?;
    if flags.dry_run {
        return print_dry_run(context, engine, plan);
    }
    let is_bound = is_bound || flags.plan.is_some();
    apply_plan(context, engine, &plan, queue, signals, is_bound, None)
}

/// Plans an operation on the memory of an agent and runs it, bound to what it has observed, or prints
/// the plan with `--dry-run`.
pub(in crate::cli) fn run_operation(
    context: &mut CommandContext<'_>,
    agent: &str,
    flags: &RunFlags,
    request: &OperationRequest,
) -> CommandResult {
    let engine = open_run_engine(context, Trigger::Cli, flags)?;
    let signals = RunSignals::register()?;
    // The plan is about the files as recovery leaves them.
    let agents = [agent.to_string()];
    recover_interrupted(context, &engine, &agents, flags.dry_run, &signals)?.into_result()?;
    let planned = RefCell::new(None);
    let (plan, queue) = plan_with_locks(&engine, &signals, || {
        let OperationPlan { operation, plan } = engine.layouts().plan(agent, request, false)?;
        planned.replace(Some(operation));
        Ok(plan)
    })?;
    let Some(planned) = planned.into_inner() else {
        return Err(Error::new(ErrorKind::Internal, "the operation was not planned").into());
    };
    check_plan_hash(&plan, flags.plan.as_deref())?;
    let summary = OperationSummary {
        agent,
        operation: &request.operation,
        outcome: planned.outcome,
    };
    if !flags.dry_run {
        let kind = apply_plan(
            context,
            &engine,
            &plan,
            queue,
            &signals,
            true,
            Some(&summary),
        )?;
        if kind.is_none() {
            context.print_note(&planned.message);
        }
        return Ok(kind);
    }
    let refused = plan.skipped.iter().filter_map(|skipped| skipped.kind);
    let kind = refused.reduce(ErrorKind::more_serious);
    let deadline = engine.clock().instant() + RULE_DIFF_TIMEOUT;
    context.print_document(&OperationPlanDocument {
        summary,
        hash: plan.hash.clone(),
        writes: planned.edits.iter().map(FileWrite::new).collect(),
        diff: unified_diff(&planned.edits, deadline),
        dry_run: DryRunDocument {
            rule_changes: Vec::new(),
            plan,
        },
    })?;
    Ok(kind)
}

pub(in crate::cli) fn run_push(context: &mut CommandContext<'_>, args: &PushArgs) -> CommandResult {
    let engine = open_run_engine(context, Trigger::Cli, &args.flags)?;
    let signals = RunSignals::register()?;
    if matches!(args.keep, ScratchSelection::Lines(_)) {
        let recovered =
            recover_interrupted(context, &engine, &args.agents, args.flags.dry_run, &signals)?
                .into_result()?;
        if !recovered.is_empty() {
            return Err(interrupted_push_error(&engine, &recovered).into());
        }
    }
    // Line numbers mean the lines that were there when they were chosen.
    let is_bound = matches!(args.keep, ScratchSelection::Lines(_));
    run_plan(context, &engine, &args.flags, &signals, is_bound, || {
        engine.planner().plan_push(&args.agents, &args.keep, false)
    })
}

pub(in crate::cli) fn run_undo(context: &mut CommandContext<'_>, args: &UndoArgs) -> CommandResult {
    let engine = open_run_engine(context, Trigger::Cli, &args.flags)?;
    let signals = RunSignals::register()?;
    let is_bare = args.agents.is_empty() && args.run.is_none() && !args.last;
    let configured = engine.config().agents.iter();
    let agents = match (args.agents.as_slice(), &args.run) {
        ([], Some(run)) => engine.runs().interrupted_agents_of(run),
        ([], None) => configured.map(|agent| agent.name.clone()).collect(),
        (agents, _) => agents.to_vec(),
    };
    let recovered = recover_interrupted(
        context,
        &engine,
        &agents,
        is_bare || args.flags.dry_run,
        &signals,
    )?;
    // One that cannot be recovered may be the last run; else the step of its agent says so.
    let recovered = if is_bare || args.last {
        recovered.into_result().map_err(|error| {
            let log = engine.command_line("log");
            error
                .with_context("nothing was undone, an interrupted run comes first")
                .with_hint(format!(
                    "`undo --run RUN` undoes another one: `{log}` lists them"
                ))
        })?
    } else {
        recovered.turns
    };
    if is_bare {
        return Err(no_undo_target_error(&engine)?.into());
    }
    // What was the last run when the command was typed is not known.
    if args.run.is_none() && !recovered.is_empty() {
        return Err(interrupted_undo_error(&engine, args, &recovered)?.into());
    }
    let target = match &args.run {
        None if args.last => UndoTarget::Run(last_user_run(&engine)?.run),
        Some(run) if args.agents.is_empty() => UndoTarget::Run(run.clone()),
        Some(run) => UndoTarget::RunAgents(run.clone(), args.agents.clone()),
        None if args.redo => UndoTarget::Redo(args.agents.clone()),
        None => UndoTarget::Agents(args.agents.clone()),
    };
    let mode = args.undo_mode();
    run_plan(context, &engine, &args.flags, &signals, false, || {
        engine.planner().plan_undo(&target, mode, false)
    })
}

fn print_dry_run(context: &mut CommandContext<'_>, engine: &Engine, plan: Plan) -> CommandResult {
    let skipped = plan.skipped.iter().filter_map(|skipped| skipped.kind);
    // A real run refuses these when it reaches them.
    let is_undo_refused = plan.steps.iter().any(PlanStep::lacks_undo_mode);
    let kinds = skipped.chain(is_undo_refused.then_some(ErrorKind::Conflict));
    let kind = kinds.reduce(ErrorKind::more_serious);
    let choices = if is_undo_refused {
        plan.undo_choice_hints()
    } else {
        &[]
    };
    let rule_changes = RuleChange::of_plan(engine, &plan);
    let document = DryRunDocument { plan, rule_changes };
    context.print_document(&document)?;
    context.print_hints(document.plan.skipped.iter().flat_map(|it| &it.hints));
    for choice in choices {
        context.print_hint(choice);
    }
    Ok(kind)
}

fn apply_plan(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    plan: &Plan,
    queue: Option<LockQueue>,
    signals: &RunSignals,
    is_bound: bool,
    summary: Option<&OperationSummary<'_>>,
) -> CommandResult {
    signals.catch();
    let out = &mut *context.output;
    let mut pending = VecDeque::new();
    let report = engine
        .runs()
        .apply_plan(plan, is_bound, &signals.stop, &mut |progress| {
            if let RunProgress::LogLine(line) = progress {
                pending.push_back(line);
                // The run holds locks, and must not wait for a reader of the output.
                while out.is_writable()
                    && let Some(line) = pending.pop_front()
                {
                    out.print_progress(&line);
                }
            }
        });
    drop(queue);
    signals.release();
    pending.iter().for_each(|line| out.print_progress(line));
    let printed = print_report(context, plan, &report, summary);
    let lost = context.output.take_progress_error();
    send_alerts(context, engine, Some(&report), signals);
    let Some(error) = printed.err().or(lost) else {
        return Ok(report.worst_kind());
    };
    let kinds = report.worst_kind().into_iter().chain([error.kind()]);
    let log = engine.command_line("log");
    let error = error.with_hint(format!("the run itself stands; `{log}` shows it"));
    context.output.print_command_error(&error.into());
    Ok(kinds.reduce(ErrorKind::more_serious))
}

fn print_report(
    context: &mut CommandContext<'_>,
    plan: &Plan,
    report: &RunReport,
    summary: Option<&OperationSummary<'_>>,
) -> Result<()> {
    if context.output.is_json() {
        let retired = report.retired_entries.iter();
        context.print_document(&RunDocument {
            summary: summary.copied(),
            run: &report.run,
            operation: report.operation,
            plan: (!plan.is_unobserved()).then_some(plan.hash.as_str()),
            results: &report.results,
            retired: retired.map(|path| path.display().to_string()).collect(),
            retired_versions: &report.retired_versions,
            errors: ErrorItem::list(&report.errors),
            notes: &report.notes,
            ledger_head: report.ledger_head.map(LedgerHead::from),
            duration_ms: report.duration_ms,
        })?;
    }
    let mut not_started = 0;
    for result in &report.results {
        match (result.outcome, result.kind) {
            (Outcome::NotStarted, _) => not_started += 1,
            (_, Some(_)) => {
                let why = result.note.as_deref().unwrap_or("unknown error");
                context.print_error(format!("{}: {why}", result.agent));
            }
            (_, None) => {}
        }
    }
    for error in &report.errors {
        context.print_error(error.message());
    }
    if not_started > 0 {
        context.print_error(describe_interruption(not_started));
    }
    let other_hints = report.errors.iter().flat_map(Error::hints);
    let hints = report
        .results
        .iter()
        .flat_map(|it| &it.hints)
        .chain(other_hints);
    context.print_hints(hints);
    Ok(())
}

/// Returns the run that `undo --last` undoes.
fn last_user_run(engine: &Engine) -> Result<UserRun> {
    let found = engine.history().last_run_of_user()?;
    found.ok_or_else(|| no_user_run_error(engine, ErrorKind::Conflict))
}

fn no_user_run_error(engine: &Engine, kind: ErrorKind) -> Error {
    let message = format!("no run of {} is left to undo", engine.context().user());
    Error::new(kind, message).with_hint(format!(
        "`{}` lists the runs of all users; undo one of them with --run",
        engine.command_line("log")
    ))
}

/// Returns the error of an undo that names neither agents nor a run: it says which run is the last one
/// that is not undone, and how to undo it.
///
/// # Errors
/// The ledger cannot be read.
fn no_undo_target_error(engine: &Engine) -> Result<Error> {
    let Some(last) = engine.history().last_run_of_user()? else {
        return Ok(no_user_run_error(engine, ErrorKind::User));
    };
    let message = format!(
        "`undo` wants agents or a run; the last run of {} that is not undone is {}",
        engine.context().user(),
        describe_user_run(engine, &last)
    );
    let undo = engine.command_line(&format!("undo --run {}", last.run));
    let dry_run = engine.command_line("undo --last --dry-run");
    Ok(Error::new(ErrorKind::User, message)
        .with_hint(format!("to undo it: {undo}"))
        .with_hint(format!("to see first what that does: {dry_run}")))
}

/// Returns the names of the agents that a reset is about.
fn reset_names(config: &Config, args: &ResetArgs) -> Vec<String> {
    if !args.agents.is_empty() {
        return args.agents.clone();
    }
    let is_included = |agent: &&Agent| args.all || agent.own_interval().is_none();
    let included = config.reset_agents().filter(is_included);
    included.map(|agent| agent.name.clone()).collect()
}

/// Makes a plan, and makes it again once the locks of its agents are free or the lock timeout has
/// passed. Dropping the queue lets the next waiting run go on.
///
/// # Errors
/// [`ErrorKind::Interrupted`] if a signal ends the wait.
fn plan_with_locks(
    engine: &Engine,
    signals: &RunSignals,
    make_plan: impl Fn() -> Result<Plan>,
) -> Result<(Plan, Option<LockQueue>)> {
    let first_plan = make_plan()?;
    if !engine.locks().has_timeout() {
        return Ok((first_plan, None));
    }
    signals.catch();
    let steps = first_plan.steps.iter().map(|step| step.agent.as_str());
    let skipped = first_plan
        .skipped
        .iter()
        .map(|skipped| skipped.agent.as_str());
    let agents = steps.chain(skipped);
    let agent_count = agents.clone().count();
    let queue = engine
        .locks()
        .wait_for_locks(agents, &|| signals.is_stopped())?;
    loop {
        if signals.is_stopped() {
            let message = describe_interruption(agent_count);
            return Err(Error::new(ErrorKind::Interrupted, message)
                .with_hint("nothing was changed; it waited for the locks of other runs"));
        }
        let plan = make_plan()?;
        // A run that does not wait may have taken a lock in between.
        let is_busy = plan
            .skipped
            .iter()
            .any(|it| it.kind == Some(ErrorKind::Busy));
        if !is_busy || !engine.locks().wait_lock_interval() {
            return Ok((plan, Some(queue)));
        }
    }
}

/// Describes a run that a signal ended: `interrupted: 2 agents not started`.
fn describe_interruption(not_started: usize) -> String {
    let agents = format_count(not_started, "agent");
    format!("interrupted: {agents} not started")
}

/// Returns whether an error is one of the machine, with which no run gets to any agent, and not one of
/// the command line.
fn is_failed_start(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Host | ErrorKind::Integrity | ErrorKind::Internal
    )
}

/// Opens the engine of a run, which waits for locks as the operator says; a dry run does not wait.
fn open_run_engine(
    context: &mut CommandContext<'_>,
    trigger: Trigger,
    flags: &RunFlags,
) -> Result<Engine, CommandError> {
    let seconds = if flags.dry_run { 0 } else { flags.wait };
    let engine = context.open_engine_for(trigger)?;
    Ok(engine.with_lock_timeout(Duration::from_secs(seconds.into())))
}
