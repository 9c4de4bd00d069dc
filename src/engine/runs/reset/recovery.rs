//! The recovery of interrupted runs from their journals.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Run;
use super::interrupted_turns::InterruptedTurn;
use super::screening::{EntryJournal, ReleasedEntry};
use super::settle::{DisplacedFiles, LateWrites};
use super::turn::hold_lock_guard;
use crate::archive::WrittenEntry;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::Agent;
use crate::engine::runs::Runs;
use crate::engine::store::address::{connection_target, host_name};
use crate::engine::store::journal::{
    Journal, JournalRecord, Transaction, damaged_journal_error, read_journal,
};
use crate::engine::store::lock::AgentLock;
use crate::engine::store::record::{FileState, Operation, Outcome, RunEvent};
use crate::transport::{
    FailureCause, InstalledMemory, InterruptedRun, MemoryDirectory, TransportError,
};

/// The result of reading a memory back.
#[derive(PartialEq, Eq)]
pub(super) enum ReadBack {
    /// The memory is what the run installed.
    Same,
    /// The memory is something else.
    Other,
    /// Another process has a lease on the memory, so it was not opened.
    Leased,
}

/// Returns the note about a memory that was not read back as installed, and the kind of the problem
/// if it could not be read: the memory was replaced all the same, and the run can be undone.
pub(super) fn describe_read_back(
    read_back: Result<ReadBack, Error>,
) -> Option<(String, Option<ErrorKind>)> {
    match read_back {
        Ok(ReadBack::Same) => None,
        Ok(ReadBack::Other) => Some(("the agent has changed the memory since".to_string(), None)),
        Ok(ReadBack::Leased) => {
            let note = "not verified: another process has a lease on the memory";
            Some((note.to_string(), None))
        }
        Err(error) => Some((format!("not verified: {error}"), Some(error.kind()))),
    }
}

/// A turn of the current run that recovery finished and appended to the ledger.
pub(super) struct FinishedTurn {
    pub(super) event: RunEvent,
    /// The problem, if the memory was not found to be what the run installed.
    pub(super) kind: Option<ErrorKind>,
}

/// How long recovery tries to settle displaced files on a host.
const RECOVERY_SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// The most files that recovery settles for a run that was interrupted before it could journal
/// their names: one for each attempt of the run.
const MAX_DISPLACED_FILES: usize = 17;

/// Whether a directory that cannot be opened may still exist.
fn can_become_reachable(agent: &Agent, error: &TransportError) -> bool {
    agent.location.host().is_some() || error.cause == FailureCause::Unreachable
}

/// Returns the state of the memory after a run.
fn installed_memory(event: &RunEvent) -> InstalledMemory {
    match &event.change.after {
        Some(FileState::File { sha256, size, .. }) => InstalledMemory::File {
            content: *sha256,
            size: *size,
        },
        Some(FileState::Special(special)) => InstalledMemory::Special(special.clone()),
        Some(FileState::Absent) | None => InstalledMemory::Absent,
    }
}

/// Takes from an event the late entries that earlier records of its run name. Returns whether they
/// name its entry, too, which then has their findings.
fn take_recorded_entries(event: &mut RunEvent, past: &[RunEvent]) -> bool {
    let recorded = past.iter().flat_map(RunEvent::entries);
    let recorded: HashMap<&Path, &WrittenEntry> =
        recorded.map(|it| (it.path.as_path(), it)).collect();
    let is_new = |it: &WrittenEntry| !recorded.contains_key(it.path.as_path());
    event.change.late_entries.retain(is_new);
    event.change.redacted_entries.retain(is_new);
    let entry = event.change.entry.as_mut();
    let known = entry.and_then(|entry| Some((recorded.get(entry.path.as_path())?, entry)));
    if let Some((known, entry)) = known {
        *entry = (*known).clone();
        return true;
    }
    false
}

/// What the lines of a journal add to its transaction.
#[derive(Default)]
struct JournalProgress {
    /// Entries that were released from quarantine.
    released: Vec<ReleasedEntry>,
    /// The names that the swap displaced, once it is journaled.
    swapped_names: Option<Vec<String>>,
    takeover_names: Vec<String>,
    late_writes: HashMap<String, LateWrites>,
}

impl JournalProgress {
    /// Reads the lines in order, and updates the transaction's event and known contents.
    fn replay(records: Vec<JournalRecord>, transaction: &mut Transaction) -> JournalProgress {
        let mut progress = JournalProgress::default();
        let Transaction {
            event,
            known_digests,
            ..
        } = transaction;
        for record in records {
            match record {
                JournalRecord::Swapped(method, names) => {
                    event.change.method = Some(method);
                    progress.swapped_names = Some(names);
                }
                JournalRecord::LegacyLateEntry(written) => {
                    known_digests.push(written.digest);
                    event.change.late_entries.push(written);
                }
                JournalRecord::LateEntry {
                    name,
                    written,
                    attributes,
                } => {
                    known_digests.push(written.whole_content().0);
                    let late = progress.late_writes.entry(name).or_default();
                    late.add_earlier_entry(&written);
                    event.change.late_entries.push(written);
                    event.change.attributes = Some(attributes);
                }
                JournalRecord::Deferred { name, stamp } => {
                    let late = progress.late_writes.entry(name).or_default();
                    late.set_deferred_stamp(stamp);
                }
                JournalRecord::Screened { from, entry, copy } => {
                    if entry.path != from {
                        progress.released.push(ReleasedEntry {
                            quarantined: from.clone(),
                            released: entry.path.clone(),
                        });
                    }
                    event.change.redacted_entries.extend(copy);
                    let mut entries = event
                        .change
                        .entry
                        .iter_mut()
                        .chain(&mut event.change.late_entries);
                    if let Some(screened) = entries.find(|it| it.path == from) {
                        *screened = entry;
                    }
                }
                JournalRecord::TakenOver(name) => progress.takeover_names.push(name),
            }
        }
        progress
    }
}

/// An interrupted run whose directory is recovered, and whose displaced files are to be settled.
struct Recovery<'a> {
    agent: &'a Agent,
    directory: Box<dyn MemoryDirectory>,
    event: RunEvent,
    displaced: DisplacedFiles,
    /// Whether it displaced anything that was still there.
    has_displaced: bool,
    /// Whether the ledger has a record of its change.
    is_recorded: bool,
    was_swapped: bool,
    /// The kept names that the ledger has already.
    recorded_kept_names: Vec<String>,
    /// Whether the ledger names its entry.
    is_entry_recorded: bool,
    /// Entries that were released from quarantine.
    released: Vec<ReleasedEntry>,
    notes: Vec<String>,
}

impl Recovery<'_> {
    fn display_names(&self) -> String {
        let names = self.displaced.names.iter();
        let names: Vec<String> = names
            .map(|name| self.directory.display_name(name))
            .collect();
        names.join(", ")
    }

    /// Whether nothing is left to settle.
    fn is_settled(&self) -> bool {
        self.displaced.names.is_empty() && self.displaced.remaining_names.is_empty()
    }
}

impl Runs {
    /// Returns the events in the ledger of the same agent and run after a record, oldest first.
    pub(super) fn ledger_events_after(
        &self,
        event: &RunEvent,
        after_seq: u64,
    ) -> Result<Vec<RunEvent>> {
        let (back, _) = self.ledger.scan_backwards()?;
        let mut back = back.stopping_after(after_seq);
        let is_wanted = |run: &str, agent: &str| run == event.run && agent == event.agent;
        let mut events = Vec::new();
        while let Some((_, record)) = back.next_matching(|it| is_wanted(&it.run, &it.agent))? {
            events.insert(0, record.event);
        }
        Ok(events)
    }
}

/// Recovers interrupted runs.
pub(super) struct Recoverer<'r, 'a> {
    pub(super) run: &'r Run<'a>,
}

impl Recoverer<'_, '_> {
    /// Reads the memory again, and compares its beginning with what the run installed.
    pub(super) fn read_back(
        &self,
        directory: &dyn MemoryDirectory,
        event: &RunEvent,
    ) -> Result<ReadBack, Error> {
        if !directory.is_at_its_path()? {
            let memory = event.memory.as_deref().unwrap_or(Path::new("its path"));
            let message = format!(
                "the directory was moved, replaced or unmounted during the run; the memory that is at \
                 {} now was not reset",
                memory.display()
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        match installed_memory(event).is_in(directory) {
            Ok(true) => Ok(ReadBack::Same),
            Ok(false) => Ok(ReadBack::Other),
            Err(error) if error.cause == FailureCause::Leased => Ok(ReadBack::Leased),
            Err(error) => Err(error.into()),
        }
    }

    /// Step 1: recovers interrupted runs of the agent. The caller holds the agent's lock. Returns
    /// the turn of the current run if that was among them and is finished now.
    pub(super) fn recover(
        &self,
        agent: &Agent,
        lock: Option<&Arc<AgentLock>>,
    ) -> Result<Option<FinishedTurn>, Error> {
        let journals = self.run.runs.journals.journals()?;
        self.recover_from_journals(agent, &journals, lock)
    }

    /// Does the same with the agent's journals among `journals`.
    pub(super) fn recover_from_journals(
        &self,
        agent: &Agent,
        journals: &[(String, PathBuf)],
        lock: Option<&Arc<AgentLock>>,
    ) -> Result<Option<FinishedTurn>, Error> {
        let mut finished = None;
        for (_, record) in journals.iter().filter(|(of, _)| *of == agent.name) {
            finished = self.recover_journal(agent, record, lock)?.or(finished);
        }
        Ok(finished)
    }

    fn recover_journal(
        &self,
        agent: &Agent,
        journal_path: &Path,
        lock: Option<&Arc<AgentLock>>,
    ) -> Result<Option<FinishedTurn>, Error> {
        let Some((mut transaction, records)) = read_journal(journal_path)? else {
            self.end_truncated_journal(agent, journal_path, lock)?;
            return Ok(None);
        };
        let Some(directory) = self.open_transaction_directory(agent, journal_path, &transaction)?
        else {
            return Ok(None);
        };
        hold_lock_guard(directory.as_ref(), lock);
        let progress = JournalProgress::replay(records, &mut transaction);
        let recovery =
            self.recover_directory(agent, directory, journal_path, transaction, progress)?;
        let Some(mut recovery) = recovery else {
            return Ok(None);
        };
        let settled = self.settle_recovered(&mut recovery);
        let has_failed = settled.is_err();
        if let Err(error) = settled {
            // If the memory was replaced, a displaced file that cannot be settled stays beside it
            // with its journal, and does not block the run.
            if !recovery.was_swapped {
                return Err(error);
            }
            let message = format!(
                "{}: cannot settle {}, displaced by run {}",
                agent.name,
                recovery.display_names(),
                recovery.event.run
            );
            self.run.report_error(error.with_context(message));
        }
        durable::sync_all(recovery.directory.take_unsynced())?;
        self.log_unsettled(&recovery, has_failed);
        let is_settled = recovery.is_settled();
        let finished = self.record_recovery(recovery)?;
        if is_settled {
            self.run.remove_journal(journal_path);
        }
        Ok(finished)
    }

    /// Removes a journal without a first line, as a crash during its creation leaves it: that run
    /// has created nothing in the agent's directory. If it has, the journal was damaged later.
    fn end_truncated_journal(
        &self,
        agent: &Agent,
        journal_path: &Path,
        lock: Option<&Arc<AgentLock>>,
    ) -> Result<(), Error> {
        let file_name = journal_path.file_name().unwrap_or_default();
        let run_names = durable::find_random_names(file_name.as_bytes());
        let directory = match self
            .run
            .runs
            .context
            .open_directory_at(agent, agent.location.memory())
        {
            Ok(directory) => Some(directory),
            Err(error) if can_become_reachable(agent, &error) => return Err(error.into()),
            Err(_) => None,
        };
        if let Some(directory) = directory {
            hold_lock_guard(directory.as_ref(), lock);
            for name in run_names {
                if directory.has_files_of_run(&name)? {
                    let name = directory.display_name(&name);
                    let why = format!("it is truncated, but {name} of its run exists");
                    return Err(damaged_journal_error(journal_path, &why));
                }
            }
        }
        self.run.remove_journal(journal_path);
        Ok(())
    }

    /// Opens the directory that a journal is about. Returns None if that directory is not there:
    /// the journal then stays until it is, and does not block the run.
    fn open_transaction_directory(
        &self,
        agent: &Agent,
        record: &Path,
        transaction: &Transaction,
    ) -> Result<Option<Box<dyn MemoryDirectory>>, Error> {
        if transaction.event.host != host_name(agent) {
            let why = format!("its memory was on {}", transaction.event.host);
            self.keep_journal(agent, record, transaction, &why);
            return Ok(None);
        }
        // A host may have the name of this machine.
        if transaction.connection_target != connection_target(agent) {
            let then = transaction
                .connection_target
                .as_deref()
                .unwrap_or("this machine");
            let why = format!("its memory was on {then}");
            self.keep_journal(agent, record, transaction, &why);
            return Ok(None);
        }
        let is_same_path = transaction.memory == agent.location.memory();
        match self
            .run
            .runs
            .context
            .open_directory_at(agent, &transaction.memory)
        {
            Ok(directory) => Ok(Some(directory)),
            // It may answer again soon, and then recovery must come before any other change in it.
            Err(error) if is_same_path && can_become_reachable(agent, &error) => Err(error.into()),
            Err(error) => {
                self.keep_journal(agent, record, transaction, &error.to_string());
                Ok(None)
            }
        }
    }

    fn keep_journal(
        &self,
        agent: &Agent,
        journal_path: &Path,
        transaction: &Transaction,
        why: &str,
    ) {
        let directory = transaction.memory.parent().unwrap_or(Path::new("/"));
        let message = format!(
            "{}: cannot recover run {} in {}: {why}; its transaction record {} stays until that \
             directory is back",
            agent.name,
            transaction.event.run,
            directory.display(),
            journal_path.display()
        );
        let hint = "if that directory never comes back, delete the record";
        self.run
            .report_error(Error::new(ErrorKind::Partial, message).with_hint(hint));
    }

    /// Recovers the memory's directory, as far as the ledger does not have the run already. Returns
    /// None if it is not the directory of the run.
    fn recover_directory<'a>(
        &self,
        agent: &'a Agent,
        directory: Box<dyn MemoryDirectory>,
        journal_path: &Path,
        transaction: Transaction,
        mut progress: JournalProgress,
    ) -> Result<Option<Recovery<'a>>, Error> {
        let past = self
            .run
            .runs
            .ledger_events_after(&transaction.event, transaction.ledger_seq)?;
        let is_recorded = transaction.is_recorded_by(&past);
        let journal = Journal::open(journal_path)?;
        if agent.location.host().is_some() {
            let name = durable::new_random_name()?;
            journal.append_durably(&JournalRecord::TakenOver(name.clone()))?;
            progress.takeover_names.push(name);
        }
        let recovered = directory.recover(&InterruptedRun {
            name: transaction.staged_name.clone(),
            takeover_names: progress.takeover_names,
            directory_id: transaction.directory_id,
            memory_inode: transaction.memory_inode,
            creates_memory: transaction.event.change.before == Some(FileState::Absent),
            installed: installed_memory(&transaction.event),
            is_swapped: is_recorded || transaction.event.change.method.is_some(),
            displaced: progress.swapped_names,
        })?;
        let Some(recovered) = recovered else {
            let why = "it is another directory now";
            self.keep_journal(agent, journal_path, &transaction, why);
            return Ok(None);
        };
        // The swap must be on the disk before the journal line about it, which comes next.
        durable::sync_all(directory.take_unsynced())?;
        let Transaction {
            mut event,
            mut known_digests,
            ..
        } = transaction;
        event.change.method = event.change.method.or(recovered.method);
        let is_entry_recorded = take_recorded_entries(&mut event, &past);
        let kept_names = past.iter().flat_map(|it| it.change.kept_names.clone());
        let recorded_kept_names: Vec<String> = kept_names.collect();
        event.change.kept_names.clone_from(&recorded_kept_names);
        known_digests.extend(event.change.after.as_ref().and_then(FileState::digest));
        let mut names = recovered.displaced;
        // An agent may have created more such names, which cannot be told from the run's.
        let remaining_names = names.split_off(MAX_DISPLACED_FILES.min(names.len()));
        Ok(Some(Recovery {
            agent,
            directory,
            is_recorded,
            was_swapped: is_recorded || event.change.method.is_some(),
            has_displaced: !names.is_empty(),
            recorded_kept_names,
            is_entry_recorded,
            released: progress.released,
            notes: Vec::new(),
            event,
            displaced: DisplacedFiles {
                journal,
                names,
                remaining_names,
                known_digests,
                archived_content: None,
                late_writes: progress.late_writes,
                unmarked_swap: recovered.method,
            },
        }))
    }

    /// Settles the displaced files. Where open files cannot be detected, a file takes two
    /// inspections.
    fn settle_recovered(&self, recovery: &mut Recovery<'_>) -> Result<(), Error> {
        let Recovery {
            agent,
            directory,
            event,
            displaced,
            recorded_kept_names,
            notes,
            ..
        } = recovery;
        let mut settle = |displaced: &mut DisplacedFiles| {
            let (more, settled) =
                self.run
                    .settle_displaced(agent, directory.as_ref(), event, displaced);
            notes.extend(more);
            settled
        };
        let mut settled = settle(displaced);
        let clock = self.run.runs.context.clock();
        let end = clock.instant() + RECOVERY_SETTLE_TIMEOUT;
        while let Some(due) = directory.next_settle_time()
            && settled.is_ok()
            && !displaced.names.is_empty()
            && clock.instant() < end
        {
            clock.sleep(due.saturating_duration_since(clock.instant()));
            settled = settle(displaced);
        }
        event
            .change
            .kept_names
            .retain(|name| !recorded_kept_names.contains(name));
        settled
    }

    /// Logs the displaced files that stay for the next run.
    fn log_unsettled(&self, recovery: &Recovery<'_>, has_failed: bool) {
        let (agent, run) = (&recovery.agent.name, &recovery.event.run);
        let displaced = &recovery.displaced;
        if !displaced.names.is_empty() && !has_failed {
            let names = recovery.display_names();
            self.run.log_line(&if displaced.is_deferred() {
                format!(
                    "{agent}: {names}, displaced by run {run}, keeps changing; it stays until a \
                     run finds it unchanged"
                )
            } else {
                format!(
                    "{agent}: a writer has {names} open, displaced by run {run}; the next run \
                     settles it"
                )
            });
        }
        if !displaced.remaining_names.is_empty() {
            self.run.log_line(&format!(
                "{agent}: {} more displaced files of run {run}; the next run settles them",
                displaced.remaining_names.len()
            ));
        }
    }

    /// Logs what the recovery found, and appends it to the ledger if the ledger lacks it.
    /// Returns the turn that it finished, if that is of the current run.
    fn record_recovery(&self, recovery: Recovery<'_>) -> Result<Option<FinishedTurn>, Error> {
        let is_settled = recovery.is_settled();
        let Recovery {
            agent,
            directory,
            mut event,
            displaced,
            has_displaced,
            is_recorded,
            was_swapped,
            is_entry_recorded,
            mut released,
            mut notes,
            ..
        } = recovery;
        let is_own_run = event.run == self.run.id;
        // A displaced file that was still there may be one that a run has left to later ones.
        if was_swapped && !is_own_run && !(is_recorded && has_displaced) {
            let turn = InterruptedTurn::from_event(&event);
            self.run.shared().recovered_turns.push(turn);
        }
        let has_news = !event.change.late_entries.is_empty() || !event.change.kept_names.is_empty();
        let (note, must_record) = match (is_recorded, was_swapped) {
            (true, _) => ("settled the files that this run displaced", has_news),
            (false, true) => (
                "interrupted after the memory was replaced; finished since",
                true,
            ),
            (false, false) => (
                "interrupted before the memory was replaced",
                has_news || !is_own_run && is_settled,
            ),
        };
        if is_recorded || !was_swapped && is_own_run {
            event.operation = Operation::Repair;
        }
        if !was_swapped {
            event.change.after = None;
            event.outcome = if is_own_run {
                Outcome::Ok
            } else {
                Outcome::Failed
            };
        }
        let is_finished_turn = is_own_run && was_swapped && !is_recorded;
        let mut kind = None;
        if is_finished_turn {
            let read_back = self.read_back(directory.as_ref(), &event);
            // If the memory was absent, the agent may have created it before recovery could.
            if matches!(read_back, Ok(ReadBack::Other)) {
                kind = Some(ErrorKind::Partial);
            }
            if let Some((note, problem)) = describe_read_back(read_back) {
                notes.push(note);
                kind = kind.or(problem);
            }
        }
        // If everything is archived and recorded already, only the removal of the files is worth a
        // line.
        if must_record || is_recorded && has_displaced && is_settled {
            notes.insert(0, note.to_string());
        }
        for note in &notes {
            self.run
                .log_line(&format!("{}: run {}: {note}", agent.name, event.run));
        }
        if must_record {
            event.note = Some(notes.join("; "));
            let recorded_entry = event.change.entry.take_if(|_| is_entry_recorded);
            let journal = EntryJournal::Open(&displaced.journal);
            released.extend(
                self.run
                    .screening()
                    .screen_entries(agent, &mut event, journal),
            );
            event.change.entry = recorded_entry.or(event.change.entry);
            self.run.runs.ledger.append(vec![event.clone()])?;
        }
        self.run.screening().end_releases(&released);
        Ok(is_finished_turn.then_some(FinishedTurn { event, kind }))
    }
}
