//! Applies a plan: archives, replaces, verifies and records. The only code that changes memories.
//!
//! For each agent, under its lock:
//!
//! 1. settle what an interrupted run left (its transaction record names it);
//! 2. read the memory and write its entry, both in one pass; the entry is on the disk before the
//!    next step;
//! 3. write the transaction record, build the new file, put it in the memory's place, which
//!    displaces the file that is really there, and mark that in the record;
//! 4. settle the displaced file: a late write gets an entry of its own, then the file is removed;
//!    while a writer still has it open, the run continues with other agents;
//! 5. read back, scan the entries for secrets and injections, record in the ledger, end the
//!    transaction. Until it is scanned, an entry is in quarantine, where findings keep it there.
//!
//! Before it replaces its first memory, a run acquires one of a limited number of permits, so that
//! a due record never waits long for the ledger.
//!
//! Agents take these steps in batches: one flush per step covers the whole batch before any of its
//! agents takes the next step. Each host and each file system that may hang has a lane of its own,
//! so that a slow one delays no other. Agents of this machine follow each other, those on the
//! archive's file system on the thread that began the run; agents of a host work at the same time,
//! because they wait for replies. An agent whose files do not fit on the disk beside those of the
//! others is tried again alone, at the end of its lane. The flushes fix an order that a power cut
//! cannot break:
//!
//! | on the disk | before |
//! |---|---|
//! | content of the entries | they get their names |
//! | names of the entries, transaction records | any change in an agent's directory |
//! | content of the new files | they take the memories' places |
//! | the exchange | the mark that records it |
//! | the mark | a displaced file is settled |
//! | content, mode and owner of a released entry | it gets its name among the others |
//! | that name | the record of its scan |
//! | the record of the scan | the ledger's record |
//! | the removal of the displaced file, the ledger's record | the removal of the transaction record, and of the entry's name in the quarantine |

mod capture;
mod early_end;
mod ending;
mod entry_writer;
mod interrupted_turns;
mod lane;
mod planned_content;
mod queued_turn;
mod recovery;
mod screening;
mod settle;
mod states;
mod turn;
mod unrecorded;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::plan::Plan;
use super::run_report::{AgentResult, RunProgress, RunReport, RunStage};
use super::undo::UndoRecords;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::baseline::BaselineCache;
use crate::config::Agent;
use crate::engine::context::Context;
use crate::engine::runs::Runs;
use crate::engine::watch::parallel::{Site, batch_size, map_agents_by_site, run_local_and_remote};
use crate::store::address::RecordedAddress;
use crate::store::file::lock::ArchiveLock;
use crate::store::file::semaphore::Permit;
use crate::store::file::stale_files;
use crate::store::journal::UNCLAIMED_JOURNAL_HINT;
use crate::store::record::{RunEvent, new_run_id};
use crate::store::run_log;
use crate::transport::MemoryDirectory;
use capture::MemoryCapture;
use ending::RunEnding;
pub use interrupted_turns::{InterruptedTurn, RecoveredTurns};
use lane::ResetLane;
use recovery::Recoverer;
use screening::EntryScreening;
use states::FoundStates;

/// Callback for run progress.
type ProgressCallback<'a> = &'a mut (dyn FnMut(RunProgress) + Send);

struct Run<'a> {
    runs: &'a Runs,
    plan: &'a Plan,
    id: String,
    is_bound: bool,
    /// Whether the ledger had no record before this run, and no `archive_id` says which archive it is.
    begins_archive: bool,
    cancel: &'a AtomicBool,
    /// This run's permit to replace memories, or why it has none; not requested before the first
    /// replacement.
    replacing_permit: Mutex<Option<Result<Permit, Error>>>,
    /// The directories of memories of several files that this run has locked, by their paths.
    locked_memories: Mutex<BTreeMap<PathBuf, Box<dyn MemoryDirectory>>>,
    /// Records that an undo depends on; not read before the first agent's turn.
    undo_records: Mutex<Option<UndoRecords>>,
    states: FoundStates<'a>,
    shared: Mutex<RunShared<'a>>,
}

/// State that all lanes share.
struct RunShared<'a> {
    errors: Vec<Error>,
    baselines: BaselineCache<'a>,
    /// The events of agents that needed no change; they get one record at the end.
    unchanged_agents: Vec<UnchangedAgent>,
    /// Baseline versions that this run has begun to store.
    drafted_versions: HashSet<Digest>,
    /// Lines that are not in `reset.log` yet.
    pending_log_lines: Vec<String>,
    /// The turns of earlier runs that had replaced a memory and that this run recovered.
    recovered_turns: Vec<InterruptedTurn>,
    progress: ProgressCallback<'a>,
}

/// An agent that needed no change, and is recorded at the end of the run.
struct UnchangedAgent {
    event: RunEvent,
    seen: LastRunSeen,
}

/// The last run of an agent and the version that it left, by the ledger.
#[derive(PartialEq, Eq)]
struct LastRunSeen {
    run: Option<String>,
    version: Option<Digest>,
}

impl Runs {
    /// Applies a plan. With `bound`, an agent whose memory, baseline or boundary differs from the
    /// plan is refused; without it, the agent is reset in its current state. When `cancel` is set,
    /// the run finishes the agents at work and starts no more.
    pub fn apply_plan(
        &self,
        plan: &Plan,
        bound: bool,
        cancel: &AtomicBool,
        progress: ProgressCallback<'_>,
    ) -> RunReport {
        let began = self.context.clock().instant();
        let _root_pin = self.context.archive().pin_root();
        let run = Run::new(self, plan, bound, cancel, progress);
        let id = &run.id;
        let _span = tracing::debug_span!("run", id, operation = ?plan.operation).entered();
        if plan.operation.installs_baselines() {
            self.shared_memories.refresh_shared_memories();
        }
        run.remove_stale_files();
        run.recover_skipped();
        let mut trusted_lane = ResetLane::new(&run, Site::Trusted);
        trusted_lane.end_skipped(&plan.skipped);
        let mut others: BTreeMap<Site<'_>, ResetLane<'_, '_>> = BTreeMap::new();
        for step in &plan.steps {
            // An agent that is not configured is refused in its turn.
            let agent = self.context.agent(&step.agent).ok();
            match agent.map_or(Site::Trusted, |agent| self.hosts.site_of(agent)) {
                Site::Trusted => trusted_lane.enqueue(step),
                site => {
                    let lane = || ResetLane::new(&run, site.clone());
                    others
                        .entry(site.clone())
                        .or_insert_with(lane)
                        .enqueue(step);
                }
            }
        }
        let file_systems = others.keys().filter(|site| site.is_file_system()).count();
        let lanes: Vec<ResetLane<'_, '_>> = others.into_values().collect();
        let batch_size = batch_size(1 + lanes.len());
        let trusted_lane = || trusted_lane.run(batch_size, None);
        let connect = ResetLane::connect_site;
        let (mut results, others) = run_local_and_remote(
            trusted_lane,
            lanes,
            file_systems,
            connect,
            |lane, threads| lane.run(batch_size, Some(threads)),
        );
        results.extend(others.into_iter().flatten());
        RunEnding { run: &run }.finish(results, began)
    }
}

impl<'a> Run<'a> {
    fn new(
        runs: &'a Runs,
        plan: &'a Plan,
        is_bound: bool,
        cancel: &'a AtomicBool,
        progress: ProgressCallback<'a>,
    ) -> Run<'a> {
        Run {
            runs,
            plan,
            id: new_run_id(),
            is_bound,
            begins_archive: runs.context.is_before_new_archive(),
            cancel,
            replacing_permit: Mutex::default(),
            locked_memories: Mutex::default(),
            undo_records: Mutex::default(),
            states: FoundStates {
                runs,
                found: Mutex::default(),
            },
            shared: Mutex::new(RunShared {
                errors: Vec::new(),
                baselines: runs.baselines.baseline_cache(),
                unchanged_agents: Vec::new(),
                drafted_versions: HashSet::new(),
                pending_log_lines: Vec::new(),
                recovered_turns: Vec::new(),
                progress,
            }),
        }
    }

    /// The context of the services.
    fn context(&self) -> &'a Context {
        &self.runs.context
    }

    /// Recovers interrupted runs.
    fn recoverer(&self) -> Recoverer<'_, 'a> {
        Recoverer { run: self }
    }

    /// Screens entries of this run.
    fn screening(&self) -> EntryScreening<'_, 'a> {
        EntryScreening { run: self }
    }

    /// Captures memories.
    fn memory_capture(&self) -> MemoryCapture<'_, 'a> {
        MemoryCapture { run: self }
    }

    fn shared(&self) -> MutexGuard<'_, RunShared<'a>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ensures that a replacement can be recorded: the ledger can be opened for an append, and no
    /// more runs replace memories than can append to it within the time that each waits for it.
    ///
    /// # Errors
    /// Why no memory may be replaced.
    fn ensure_can_replace(&self) -> Result<(), Error> {
        let archive = self.context().archive();
        let mut place = self
            .replacing_permit
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_cancelled = || self.is_cancelled();
        let take = || {
            self.context().ledger().check_writable()?;
            ArchiveLock::Replacing.acquire_unless(archive, self.context().clock(), &is_cancelled)
        };
        match place.get_or_insert_with(take) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Returns the last run of an agent, and the version that its memory has by the ledger.
    fn last_run_seen(&self, agent: &str) -> LastRunSeen {
        let history = self.context().history(agent).unwrap_or_default();
        LastRunSeen {
            version: history.pushed_versions.first().copied(),
            run: history.last_run.map(|it| it.run),
        }
    }

    /// Removes stale files of killed runs from the directories of the archive, except those that a
    /// transaction record names: recovery settles these.
    fn remove_stale_files(&self) {
        let agents = self.plan.steps.iter();
        let agents = agents.filter_map(|step| self.context().agent(&step.agent).ok());
        let (controller, journals) = (self.context().controller(), self.context().journals());
        for error in stale_files::remove_stale_files(controller, agents, journals) {
            self.report_error(error.with_context("sweeping"));
        }
    }

    fn new_event(&self, agent: &str) -> RunEvent {
        let trigger = self.context().trigger();
        let user = self.context().user();
        let event = RunEvent::new(&self.id, self.plan.operation, trigger, user, agent);
        let Ok(agent) = self.context().agent(agent) else {
            return event;
        };
        let address = RecordedAddress::from_agent(agent);
        RunEvent {
            host: address.host,
            login: address.login,
            memory: address.memory,
            ..event
        }
    }

    /// Recovers agents that the plan skips: after a crash behind the swap, a memory is clean but
    /// the transaction is still open.
    fn recover_skipped(&self) {
        let journals = match self.context().journals().list() {
            Ok(left) => left,
            Err(error) => return self.report_error(error),
        };
        let names: HashSet<&str> = journals.iter().map(|(agent, _)| agent.as_str()).collect();
        let skipped = self.plan.skipped.iter();
        let skipped = skipped.filter(|skipped| skipped.kind != Some(ErrorKind::Busy));
        let agents: Vec<&Agent> = skipped
            .filter(|skipped| names.contains(skipped.agent.as_str()))
            .filter_map(|skipped| self.context().agent(&skipped.agent).ok())
            .collect();
        let settle = |agent: &Agent| {
            let settled = self.lock_agent(agent).and_then(|lock| {
                self.recoverer()
                    .recover_from_journals(agent, &journals, Some(&lock))
            });
            if let Err(error) = settled {
                self.report_error(error.with_context(&agent.name));
            }
        };
        map_agents_by_site(&self.runs.hosts, &agents, &settle);
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

    /// Reports an error that concerns no single agent, and keeps it for the report.
    fn report_error(&self, error: Error) {
        if !self.shared().errors.contains(&error) {
            self.log_line(error.message());
            self.shared().errors.push(error);
        }
    }

    /// Writes a line to `reset.log` and to the progress callback.
    fn log_line(&self, text: &str) {
        let line = run_log::format_line(self.context().clock().now(), text);
        let mut shared = self.shared();
        shared.pending_log_lines.push(line.clone());
        (shared.progress)(RunProgress::LogLine(line));
    }

    /// Writes the pending lines to `reset.log`.
    fn write_log_lines(&self) {
        let lines = std::mem::take(&mut self.shared().pending_log_lines);
        if let Err(error) = run_log::append_lines(self.context().archive(), &lines) {
            self.report_error(error);
        }
    }

    /// Reports the journals of agents that are not configured.
    fn report_unclaimed_journals(&self) {
        let journals = match self.runs.unclaimed_journals() {
            Ok(journals) => journals,
            Err(error) => return self.report_error(error),
        };
        for journal in journals {
            let message = format!(
                "{} is of an agent that is not configured: no run settles its files",
                journal.display()
            );
            let error = Error::new(ErrorKind::Partial, message);
            self.report_error(error.with_hint(UNCLAIMED_JOURNAL_HINT));
        }
    }

    /// Removes the journal of an ended turn; a failure is reported.
    fn remove_journal(&self, path: &Path) {
        if let Err(error) = self.context().journals().remove(path) {
            self.report_error(error);
        }
    }
}
