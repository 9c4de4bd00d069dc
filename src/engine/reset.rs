//! Applying a plan: archive, replace, verify, record. The only code that changes
//! agents.
//!
//! For each agent, under its lock:
//!
//! 1. settle what an interrupted run left (its transaction record names it);
//! 2. read the memory and write its entry, both in one pass; the entry is on
//!    the disk before anything else happens;
//! 3. write the transaction record; build the new file; put it in the memory's
//!    place, which displaces whatever really stands there; mark that in the
//!    record;
//! 4. settle the displaced file: what a late writer added gets an entry of its
//!    own, then it is removed; while a writer still has it open, other agents
//!    go on;
//! 5. read back, record in the ledger, end the transaction.
//!
//! Before its first memory is replaced, a run takes one of a few places among the runs
//! that replace memories: a record that is due then never waits for long.
//!
//! Agents take these steps together, a batch at a time: what one step changed is
//! flushed to the disk for all of them at once, before any of them takes the
//! next. Each host has a lane of its own, and so has each file system that may hang,
//! so that a slow one delays no other's agents; this machine's agents are taken one
//! after the other, those on the archive's file system by the thread that began the
//! run, a host's all at once, because they wait for answers. The
//! flushes are the order that a power cut cannot break:
//!
//! | on the disk | before |
//! |---|---|
//! | content of the entries | they get their names |
//! | names of the entries, transaction records | anything in an agent's directory |
//! | content of the new files | they take the memories' places |
//! | the exchange | the mark that tells of it |
//! | the mark | a displaced file is settled |
//! | its removal, the ledger's record | the transaction record goes |

mod capture;
mod lane;
mod recovery;
mod report;
mod settle;
mod turn;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lane::ResetLane;
pub use recovery::UNCLAIMED_JOURNAL_HINT;
pub use report::{AgentResult, RunProgress, RunReport, RunStage};

use super::address::RecordedAddress;
use super::ledger::{Ledger, Operation, Outcome, RunEvent};
use super::lock;
use super::parallel::{Site, batch_size, map_agents_by_site, map_parallel, run_local_and_remote};
use super::plan::Plan;
use super::retention::RetentionScope;
use super::run_log;
use super::semaphore::Permit;
use super::undo::UndoRecords;
use super::{Engine, Trigger};
use crate::baseline::BaselineCache;
use crate::config::Agent;
use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, ErrorKind};

/// Whoever listens to a run.
type ProgressCallback<'a> = &'a mut (dyn FnMut(RunProgress) + Send);

struct Run<'a> {
    engine: &'a Engine,
    plan: &'a Plan,
    id: String,
    is_bound: bool,
    cancel: &'a AtomicBool,
    /// This run's place among those that replace memories, or why it has none; not
    /// asked for before a memory is to be replaced.
    replacing_permit: Mutex<Option<Result<Permit, Error>>>,
    /// What an undo goes by; nothing is read before the first agent's turn.
    undo_records: Mutex<Option<UndoRecords>>,
    shared: Mutex<RunShared<'a>>,
}

/// What all lanes have in common.
struct RunShared<'a> {
    errors: Vec<Error>,
    baselines: BaselineCache<'a>,
    /// Baseline versions that this run has begun to keep.
    drafted_versions: HashSet<Digest>,
    /// Lines that are not in `reset.log` yet.
    pending_log_lines: Vec<String>,
    progress: ProgressCallback<'a>,
}

impl Engine {
    /// Applies a plan. With `bound`, an agent whose memory, baseline or boundary
    /// is no longer what the plan saw is refused; without, it is done as it is
    /// found. When `cancel` is set, the agents in hand are finished and the rest
    /// is not started.
    pub fn apply_plan(
        &self,
        plan: &Plan,
        bound: bool,
        cancel: &AtomicBool,
        progress: ProgressCallback<'_>,
    ) -> RunReport {
        let began = self.clock().instant();
        let id = new_run_id();
        let _span = tracing::debug_span!("run", id, operation = ?plan.operation).entered();
        let run = Run {
            engine: self,
            plan,
            id,
            is_bound: bound,
            cancel,
            replacing_permit: Mutex::default(),
            undo_records: Mutex::default(),
            shared: Mutex::new(RunShared {
                errors: Vec::new(),
                baselines: BaselineCache::new(self.config()),
                drafted_versions: HashSet::new(),
                pending_log_lines: Vec::new(),
                progress,
            }),
        };
        if plan.operation == Operation::Reset {
            self.refresh_shared_memories();
        }
        run.remove_stale_files();
        run.recover_skipped();
        let mut here = ResetLane::new(&run, Site::Trusted);
        here.end_skipped(&plan.skipped);
        let mut others: BTreeMap<Site<'_>, ResetLane<'_, '_>> = BTreeMap::new();
        for step in &plan.steps {
            // Who is not configured is refused in its turn.
            let agent = self.agent(&step.agent).ok();
            match agent.map_or(Site::Trusted, |agent| self.site_of(agent)) {
                Site::Trusted => here.enqueue(step),
                site => {
                    let lane = || ResetLane::new(&run, site.clone());
                    others
                        .entry(site.clone())
                        .or_insert_with(lane)
                        .enqueue(step);
                }
            }
        }
        let lanes: Vec<ResetLane<'_, '_>> = others.into_values().collect();
        let batch_size = batch_size(1 + lanes.len());
        let others = |lane: ResetLane<'_, '_>| lane.run(batch_size);
        let here = || here.run(batch_size);
        let (mut results, others) =
            run_local_and_remote(here, lanes, ResetLane::connect_site, others);
        results.extend(others.into_iter().flatten());
        run.finish(results, began)
    }
}

impl<'a> Run<'a> {
    fn shared(&self) -> MutexGuard<'_, RunShared<'a>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that what is replaced from now on can be recorded: the ledger can be
    /// opened for an append, and no more runs are replacing memories than can append
    /// to it within the time that each waits for it.
    ///
    /// # Errors
    /// Why no memory may be replaced.
    fn ensure_can_replace(&self) -> Result<(), Error> {
        let archive = self.engine.archive();
        let mut place = self
            .replacing_permit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let take = || {
            Ledger::open_for_append(archive)?;
            lock::acquire_replacing_permit(archive, self.engine.clock(), &|| self.is_cancelled())
        };
        match place.get_or_insert_with(take) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.clone()),
        }
    }

    /// What comes after the last agent: retention, and the report.
    fn finish(&self, mut results: Vec<AgentResult>, began: Instant) -> RunReport {
        let plan = self.plan;
        let is_whole_fleet =
            plan.steps.len() + plan.skipped.len() == self.engine.config().agents.len();
        if is_whole_fleet && plan.operation == Operation::Reset {
            self.report_unclaimed_journals();
        }
        let places = plan.steps.iter().enumerate();
        let places: HashMap<&str, usize> =
            places.map(|(at, step)| (step.agent.as_str(), at)).collect();
        let place = |result: &AgentResult| places.get(result.agent.as_str()).copied();
        results.sort_by_key(|result| place(result).unwrap_or(usize::MAX));
        let scope = RetentionScope::from_results(&results);
        let (retired, notes) = match self.is_cancelled() || scope.is_empty() {
            true => Default::default(),
            false => self.apply_retention(&scope),
        };
        self.record_errors();
        let mut report = RunReport {
            run: self.id.clone(),
            operation: plan.operation,
            results,
            errors: std::mem::take(&mut self.shared().errors),
            retired_entries: retired,
            notes,
            ledger_head: self.engine.ledger().durable_head().ok(),
            duration_ms: 0,
        };
        report.duration_ms = elapsed_millis(began, self.engine.clock().instant());
        let half = |it: &&AgentResult| it.outcome == Outcome::Ok && it.kind.is_some();
        let half = match report.results.iter().filter(half).count() {
            0 => String::new(),
            count => format!(" ({count} of them with something left to settle)"),
        };
        let counts = format!(
            "{} ok{half}, {} unchanged, {} not",
            report.count(Outcome::Ok),
            report.count(Outcome::Unchanged),
            report.results.len() - report.count(Outcome::Ok) - report.count(Outcome::Unchanged),
        );
        self.log_line(&run_log::format_run_end(
            &report.run,
            &counts,
            report.ledger_head,
        ));
        self.write_log_lines();
        // Not only when the last thread of this run lets go of it.
        let mut place = self
            .replacing_permit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        drop(place.take());
        report
    }

    /// Removes what killed runs left in the directories of the archive, but for what a
    /// transaction record names: recovery settles that.
    fn remove_stale_files(&self) {
        let archive = self.engine.archive();
        let agents = self.plan.steps.iter();
        let agents = agents.filter_map(|step| self.engine.agent(&step.agent).ok());
        let entries = agents.map(|agent| archive.root().join(&agent.archive_subdir));
        let directories: Vec<PathBuf> = ["", "tx", "baselines"]
            .map(|name| archive.program_path(name))
            .into_iter()
            .chain(entries)
            .collect();
        let now = self.engine.clock().now().into();
        for directory in directories {
            let named = || self.engine.names_in_journals();
            if let Err(error) = durable::remove_stale_files(&directory, now, named) {
                self.report_error(error.with_context("sweeping"));
            }
        }
    }

    /// Deletes what has expired. Returns that, and what else has to be said of it.
    fn apply_retention(&self, scope: &RetentionScope<'_>) -> (Vec<PathBuf>, Vec<String>) {
        let engine = self.engine;
        let unseen = || {
            self.plan
                .is_unobserved()
                .then(|| engine.plan_retention(scope))
        };
        let planned = self.plan.retention.clone().or_else(unseen);
        let Some(planned) = planned else {
            return Default::default();
        };
        let (gone, failed) = match engine.delete_expired(&self.id, &planned, scope) {
            Ok(ended) => ended,
            Err(error) => (Vec::new(), vec![error]),
        };
        if !gone.is_empty() {
            let days = engine.config().general.archive_retention_days;
            let older = super::retention::describe_older_entries(gone.len(), days);
            self.log_line(&format!("Deleted {older}"));
        }
        for error in failed {
            self.report_error(error.with_context("retention"));
        }
        let mut notes = planned.notes;
        if let Ok(Some((seq, time))) = engine.future_record() {
            let time = time.format("%Y-%m-%d %H:%M:%S");
            notes.push(format!(
                "record {seq} of the ledger is of {time}, which has not come yet; retention does \
                 not go by it, and `{}` says what to do",
                engine.command_line("doctor")
            ));
        }
        notes.iter().for_each(|note| self.log_line(note));
        (gone, notes)
    }

    /// Records what went wrong beside the agents.
    fn record_errors(&self) {
        let trouble = self.shared().errors.clone();
        if trouble.is_empty() {
            return;
        }
        let messages: Vec<&str> = trouble.iter().map(Error::message).collect();
        let setup = &self.engine.setup;
        let event = RunEvent {
            outcome: Outcome::Failed,
            note: Some(messages.join("; ")),
            ..RunEvent::for_archive(&self.id, self.plan.operation, setup.trigger, &setup.user)
        };
        if let Err(error) = self.engine.append_to_ledger(vec![event]) {
            self.log_line(&format!(
                "what went wrong beside the agents is not recorded: {error}"
            ));
        }
    }

    fn new_event(&self, agent: &str) -> RunEvent {
        let trigger: Trigger = self.engine.setup.trigger;
        let user = &self.engine.setup.user;
        let event = RunEvent::new(&self.id, self.plan.operation, trigger, user, agent);
        let Ok(agent) = self.engine.agent(agent) else {
            return event;
        };
        let RecordedAddress {
            host,
            login,
            memory,
        } = RecordedAddress::from_agent(agent);
        RunEvent {
            host,
            login,
            memory,
            ..event
        }
    }

    /// An agent that is not to be reset may still have what an interrupted run
    /// left: after a crash behind the swap its memory is clean.
    fn recover_skipped(&self) {
        let journals = match self.engine.journals() {
            Ok(left) => left,
            Err(error) => return self.report_error(error),
        };
        let names: HashSet<&str> = journals.iter().map(|(agent, _)| agent.as_str()).collect();
        let skipped = self.plan.skipped.iter();
        let skipped = skipped.filter(|skipped| skipped.kind != Some(ErrorKind::Busy));
        let agents: Vec<&Agent> = skipped
            .filter(|skipped| names.contains(skipped.agent.as_str()))
            .filter_map(|skipped| self.engine.agent(&skipped.agent).ok())
            .collect();
        let settle = |agent: &Agent| {
            let settled = self.lock_agent(agent).and_then(|lock| {
                let lock = Arc::new(lock);
                self.recover_from_journals(agent, &journals, Some(&lock))
            });
            if let Err(error) = settled {
                self.report_error(error.with_context(&agent.name));
            }
        };
        map_agents_by_site(self.engine, &agents, settle, |some| {
            map_parallel(some.to_vec(), settle)
        });
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    fn report_progress(&self, progress: RunProgress) {
        (self.shared().progress)(progress);
    }

    fn report_stage(&self, agent: &str, stage: RunStage) {
        tracing::debug!(run = self.id, agent, ?stage, "step");
        self.report_progress(RunProgress::Stage(agent.to_string(), stage));
    }

    /// Says what went wrong beside the agents, and remembers it for the report.
    fn report_error(&self, error: Error) {
        if !self.shared().errors.contains(&error) {
            self.log_line(error.message());
            self.shared().errors.push(error);
        }
    }

    /// A line for `reset.log` and for whoever listens.
    fn log_line(&self, text: &str) {
        let line = run_log::format_line(self.engine.clock().now(), text);
        let mut shared = self.shared();
        shared.pending_log_lines.push(line.clone());
        (shared.progress)(RunProgress::LogLine(line));
    }

    fn write_log_lines(&self) {
        let mut shared = self.shared();
        let lines = std::mem::take(&mut shared.pending_log_lines);
        if let Err(error) = run_log::append_lines(self.engine.archive(), &lines) {
            (shared.progress)(RunProgress::LogLine(format!("{error}")));
        }
    }
}

pub(super) fn new_run_id() -> String {
    // The random name has 32 digits behind its prefix; eight are enough here.
    durable::new_random_name()
        .map_or_else(|_| "00000000".to_string(), |name| name[10..18].to_string())
}

fn elapsed_millis(began: Instant, now: Instant) -> u64 {
    now.duration_since(began).as_millis() as u64
}
