//! `reset` and `undo`: the verbs that change agents. They never ask; what a
//! person would want to see first is what `--dry-run` prints.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::archive::entries;
use super::log::LedgerHead;
use super::output::{Document, OutputRole, Printer, cell, count};
use super::status::state_role;
use super::{CommandContext, CommandResult, ResetArgs, UndoArgs};
use crate::archive::EntryKind;
use crate::engine::{
    Action, AgentResult, Engine, LockQueue, Operation, Outcome, Plan, Progress, Report, State,
    Step, UndoMode, UndoTarget,
};
use crate::error::{Error, Kind, Result};

/// What `--dry-run` answers.
#[derive(Serialize)]
struct DryRun {
    plan: Plan,
}

impl Document for DryRun {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        let plan = &self.plan;
        let mut rows = Vec::new();
        for step in &plan.steps {
            rows.push(vec![
                cell(state_role(step.state), step.state.word()),
                cell(OutputRole::Head, &step.agent),
                cell(OutputRole::Plain, archives(step)),
                cell(OutputRole::Plain, installs(step)),
                cell(OutputRole::Dim, step.notes.join("; ")),
            ]);
        }
        page.table(&rows)?;
        for text in plan.weaker() {
            page.line(&[(OutputRole::Warn, "weaker: "), (OutputRole::Plain, text)])?;
        }
        let rows: Vec<_> = plan
            .skipped
            .iter()
            .map(|skipped| {
                let (role, word) = match (skipped.kind, skipped.state) {
                    (None, _) => (OutputRole::Dim, "nothing to do"),
                    (Some(_), State::Unreach) => (OutputRole::Bad, "unreachable"),
                    (Some(_), _) => (OutputRole::Bad, "refused"),
                };
                vec![
                    cell(state_role(skipped.state), skipped.state.word()),
                    cell(OutputRole::Head, &skipped.agent),
                    cell(role, word),
                    cell(OutputRole::Plain, &skipped.why),
                ]
            })
            .collect();
        page.table(&rows)?;
        if let Some(retention) = &plan.retention {
            for entry in &retention.entries {
                let path = entry.display().to_string();
                page.line(&[
                    (OutputRole::Plain, "then deletes "),
                    (OutputRole::Plain, &path),
                ])?;
            }
            for note in &retention.notes {
                page.line(&[(OutputRole::Warn, "note: "), (OutputRole::Plain, note)])?;
            }
            if let Some(block) = &retention.blocked {
                page.line(&[
                    (OutputRole::Warn, "retention: "),
                    (OutputRole::Plain, &block.why),
                ])?;
            }
        }
        let would = match plan.act {
            Operation::Undo => "would be put back",
            _ => "would be reset",
        };
        let retired = plan.retention.as_ref().map_or(0, |it| it.entries.len());
        let deletes = match retired {
            0 => String::new(),
            _ => format!(", and retention would delete {}", entries(retired)),
        };
        page.plain(format!(
            "{} {would}, {} not{deletes}; nothing was changed",
            count(plan.steps.len(), "agent"),
            plan.skipped.len()
        ))?;
        page.line(&[(OutputRole::Plain, "plan "), (OutputRole::Ours, &plan.hash)])
    }
}

/// What a step would put into the archive.
fn archives(step: &Step) -> String {
    let bytes = step.archive_bytes;
    match step.entry {
        None => "archives nothing".to_string(),
        Some(EntryKind::Odd) => "archives a description".to_string(),
        Some(EntryKind::Scratch) => {
            let lines = count(step.scratch_lines as usize, "line");
            format!("archives {lines}, {bytes} bytes")
        }
        Some(_) if step.added + step.removed > 0 => format!(
            "archives the whole file, {bytes} bytes, +{} -{} above",
            step.added, step.removed
        ),
        Some(_) => format!("archives the whole file, {bytes} bytes"),
    }
}

/// What a step would put in the memory's place.
fn installs(step: &Step) -> String {
    let bytes = step.new_size;
    let what = match &step.undo {
        Some(undo) => format!("run {}'s {bytes} bytes", undo.run),
        None => format!("{bytes} bytes"),
    };
    match step.action {
        Action::Replace => format!("installs {what}"),
        Action::Create => format!("creates the file with {what}"),
        Action::Remove => "removes the file".to_string(),
        Action::PutBack => "puts back what was kept".to_string(),
    }
}

/// What went wrong beside the agents, as JSON.
#[derive(Serialize)]
struct Trouble<'a> {
    kind: Kind,
    message: &'a str,
    hints: &'a [String],
}

/// What a run answers with `--json`. For people, its lines have said it all.
#[derive(Serialize)]
struct Ran<'a> {
    run: &'a str,
    act: Operation,
    /// None when nobody asked what would be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<&'a str>,
    results: &'a [AgentResult],
    retired: Vec<String>,
    /// What went wrong beside the agents.
    trouble: Vec<Trouble<'a>>,
    notes: &'a [String],
    head: Option<LedgerHead>,
    duration_ms: u64,
}

impl Document for Ran<'_> {
    fn text(&self, _: &mut Printer<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Refuses a plan that is not the one with this hash.
fn check_hash(plan: &Plan, hash: Option<&str>) -> Result<()> {
    match hash {
        Some(hash) if !plan.answers_to(hash) => {
            let message = format!("the plan {hash} no longer holds: it is now {}", plan.hash);
            Err(Error::new(Kind::Conflict, message)
                .hint("nothing was changed; look at the new plan with --dry-run"))
        }
        _ => Ok(()),
    }
}

impl CommandContext<'_> {
    pub(super) fn reset(&mut self, args: &ResetArgs) -> CommandResult {
        let patience = lock_patience(args.dry_run, args.wait);
        let engine = self.open()?.with_lock_patience(patience);
        // To whoever looks at the exit code only, that would be a reset.
        if args.all && engine.config().agents.is_empty() {
            let config = engine.config().path.display();
            let message = format!("the config {config} has no agents, so there is none to reset");
            return Err(Error::new(Kind::Config, message)
                .hint(format!(
                    "`{}` says how to add one",
                    engine.command_line("config check")
                ))
                .hint("where another config is meant, pass --config FILE")
                .into());
        }
        let names = match args.all {
            true => engine
                .config()
                .agents
                .iter()
                .map(|it| it.name.clone())
                .collect(),
            false => args.agents.clone(),
        };
        // Who did not ask what would be done gets it done.
        let looks = args.dry_run || args.plan.is_some();
        let (plan, _queue) = waited(&engine, || match looks {
            true => engine.plan_reset(&names, false),
            false => engine.plan_unseen(&names, false),
        })?;
        check_hash(&plan, args.plan.as_deref())?;
        if args.dry_run {
            return self.dry_run(plan);
        }
        self.apply(&engine, &plan, looks)
    }

    pub(super) fn undo(&mut self, args: &UndoArgs) -> CommandResult {
        let patience = lock_patience(args.dry_run, args.wait);
        let engine = self.open()?.with_lock_patience(patience);
        let target = match &args.run {
            Some(run) => UndoTarget::Run(run.clone()),
            None if args.redo => UndoTarget::Redo(args.agents.clone()),
            None => UndoTarget::Agents(args.agents.clone()),
        };
        let mode = args.mode();
        let (plan, _queue) = waited(&engine, || engine.plan_undo(&target, mode, false))?;
        check_hash(&plan, args.plan.as_deref())?;
        if args.dry_run {
            return self.dry_run(plan);
        }
        self.apply(&engine, &plan, args.plan.is_some())
    }

    fn dry_run(&mut self, plan: Plan) -> CommandResult {
        let skipped = plan.skipped.iter().filter_map(|skipped| skipped.kind);
        // A real run finds these out when it comes to them.
        let refused = plan.steps.iter().filter(|step| refuses(step));
        let kinds = skipped.chain(refused.map(|_| Kind::Conflict));
        let kind = kinds.reduce(Kind::worst);
        let tell = plan.steps.iter().any(refuses);
        let hints = plan
            .skipped
            .iter()
            .flat_map(|skipped| skipped.hints.clone());
        let hints: Vec<String> = hints.collect();
        self.out.document(&DryRun { plan })?;
        self.out.hints(&hints);
        if tell {
            self.tell_of_modes();
        }
        Ok(kind)
    }

    fn apply(&mut self, engine: &Engine, plan: &Plan, bound: bool) -> CommandResult {
        let cancel = listen_for_end()?;
        let out = &mut *self.out;
        let report = engine.apply(plan, bound, &cancel, &mut |progress| {
            if let Progress::Line(line) = progress {
                out.progress(&line);
            }
        });
        self.report(plan, &report)?;
        Ok(report.kind())
    }

    fn report(&mut self, plan: &Plan, report: &Report) -> Result<()> {
        if self.out.is_json() {
            let retired = report.retired.iter();
            let trouble = report.trouble.iter().map(|error| Trouble {
                kind: error.kind(),
                message: error.message(),
                hints: error.hints(),
            });
            self.out.document(&Ran {
                run: &report.run,
                act: report.act,
                plan: (!plan.is_unseen()).then_some(plan.hash.as_str()),
                results: &report.results,
                retired: retired.map(|path| path.display().to_string()).collect(),
                trouble: trouble.collect(),
                notes: &report.notes,
                head: report.head.map(|(seq, sha256)| LedgerHead { seq, sha256 }),
                duration_ms: report.duration_ms,
            })?;
        }
        let mut not_started = 0;
        for result in &report.results {
            match (result.outcome, result.kind) {
                (Outcome::NotStarted, _) => not_started += 1,
                (_, Some(_)) => {
                    let why = result.note.as_deref().unwrap_or("for a reason unknown");
                    self.out.trouble(&format!("{}: {why}", result.agent));
                }
                (_, None) => {}
            }
        }
        for error in &report.trouble {
            self.out.trouble(error.message());
        }
        if not_started > 0 {
            let agents = count(not_started, "agent");
            self.out
                .trouble(&format!("interrupted before it came to {agents}"));
        }
        let beside = report.trouble.iter().flat_map(Error::hints);
        let hints = report.results.iter().flat_map(|it| &it.hints).chain(beside);
        self.out.hints(hints);
        Ok(())
    }

    fn tell_of_modes(&mut self) {
        self.out
            .hint("--append keeps what was written since, below what is put back");
        self.out
            .hint("--overwrite archives what was written since, and puts back the old file alone");
    }
}

/// A plan, made anew once nobody holds a lock of its agents, or the engine waits no
/// longer. Whoever waits as well comes next when the queue is dropped.
fn waited(engine: &Engine, plan: impl Fn() -> Result<Plan>) -> Result<(Plan, Option<LockQueue>)> {
    let first = plan()?;
    if !engine.waits_for_locks() {
        return Ok((first, None));
    }
    let steps = first.steps.iter().map(|step| step.agent.as_str());
    let skipped = first.skipped.iter().map(|skipped| skipped.agent.as_str());
    let queue = engine.wait_for_locks(steps.chain(skipped))?;
    loop {
        let plan = plan()?;
        // One that does not wait may have come in between.
        let is_busy = plan.skipped.iter().any(|it| it.kind == Some(Kind::Busy));
        if !is_busy || !engine.awaits_lock() {
            return Ok((plan, Some(queue)));
        }
    }
}

/// How long a run waits for locks; a plan alone does not.
fn lock_patience(dry_run: bool, seconds: u32) -> Duration {
    Duration::from_secs(if dry_run { 0 } else { seconds.into() })
}

/// Whether a step of an undo will be refused, because the agent has written
/// since and it was not said what is to become of that.
fn refuses(step: &Step) -> bool {
    let undo = step.undo.as_ref();
    undo.is_some_and(|undo| undo.written_since && undo.mode == UndoMode::Refuse)
}

/// From now on INT and TERM only set the flag, and what is in hand is finished.
pub(super) fn listen_for_end() -> Result<Arc<AtomicBool>> {
    let end = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        listen(signal, &end)?;
    }
    Ok(end)
}

fn listen(signal: i32, flag: &Arc<AtomicBool>) -> Result<()> {
    match flag::register(signal, Arc::clone(flag)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::new(
            Kind::Internal,
            format!("cannot listen for signal {signal}: {error}"),
        )),
    }
}
