//! The recovery of interrupted runs from their journals.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Run;
use super::interrupted_turns::InterruptedTurn;
use super::screening::{EntryJournal, ReleasedEntry};
use super::settle::{DisplacedFiles, LateWrites, Settlement};
use super::turn::hold_lock_guard;
use crate::archive::WrittenEntry;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::Agent;
use crate::engine::runs::Runs;
use crate::store::address::{connection_target, host_name};
use crate::store::journal::{Journal, JournalRecord, Transaction, damaged_journal_error};
use crate::store::lease::Lease;
use crate::store::record::{FileChange, FileState, Operation, Outcome, RunEvent};
use crate::transport::{
    FailureCause, InstalledMemory, InterruptedRun, MemoryDirectory, SwapProgress, TransportError,
    UnsyncedObject,
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

/// Says what a recovery found and did.
fn describe_recovery(event: &RunEvent, is_recorded: bool, was_swapped: bool) -> String {
    let change = event.describe_change();
    match (is_recorded, was_swapped) {
        (true, _) => "settled the files that this run displaced".to_string(),
        (false, true) => format!("interrupted after {change}; finished since"),
        (false, false) => format!("interrupted before {change}"),
    }
}

/// Whether a directory that cannot be opened may still exist.
fn can_become_reachable(agent: &Agent, error: &TransportError) -> bool {
    agent.host().is_some() || error.cause == FailureCause::Unreachable
}

/// Returns the state of a file after a run.
fn installed_memory(change: &FileChange) -> InstalledMemory {
    match &change.after {
        Some(FileState::File { sha256, size, .. }) => InstalledMemory::File {
            content: *sha256,
            size: *size,
        },
        Some(FileState::Special(special)) => InstalledMemory::Special(special.clone()),
        Some(FileState::Absent) | None => InstalledMemory::Absent,
    }
}

/// The swaps of an interrupted turn.
struct InterruptedSwaps<'t> {
    agent: &'t Agent,
    journal: &'t dyn Journal,
    /// Events of the turn that the ledger has.
    past: &'t [RunEvent],
    /// Whether they include its change.
    is_recorded: bool,
    progress: SwapProgress,
}

impl InterruptedSwaps<'_> {
    /// Finishes or takes back the swap of one file; `None` if this is not the directory of the run.
    fn recover_file(
        &self,
        transaction: &mut Transaction,
        number: usize,
        directory: Box<dyn MemoryDirectory>,
        left: FileProgress,
        notes: &mut Vec<String>,
    ) -> Result<Option<RecoveredFile>, Error> {
        let file = transaction.files[number].clone();
        let mut takeover_names = left.takeover_names;
        if self.agent.host().is_some() {
            let name = durable::new_random_name()?;
            self.journal.append_durably(&JournalRecord::TakenOver {
                file: number,
                name: name.clone(),
            })?;
            takeover_names.push(name);
        }
        let change = &mut transaction.event.file_changes_mut()[number];
        let recovered = directory.recover(&InterruptedRun {
            name: file.staged_name,
            takeover_names,
            directory_id: file.directory_id,
            memory_inode: file.inode,
            creates_memory: change.before == Some(FileState::Absent),
            installed: installed_memory(change),
            progress: if self.is_recorded || change.method.is_some() {
                SwapProgress::Done
            } else {
                self.progress
            },
            displaced: left.swapped_names,
        })?;
        let Some(recovered) = recovered else {
            return Ok(None);
        };
        // The swap must be on the disk before the journal line about it, which comes next.
        durable::sync_all(directory.take_unsynced())?;
        change.method = change.method.or(recovered.method);
        let is_decided = matches!(self.progress, SwapProgress::Decided);
        if change.method.is_none()
            && !self.is_recorded
            && is_decided
            && !installed_memory(change).is_in(directory.as_ref())?
        {
            change.after = None;
            notes.push(format!(
                "{} was not replaced: its staged file is missing",
                file.path.display()
            ));
        }
        let is_entry_recorded = take_recorded_entries(change, self.past);
        let past_changes = self.past.iter();
        let past_changes = past_changes.filter_map(|it| it.file_changes().get(number));
        let recorded_kept_names: Vec<String> =
            past_changes.flat_map(|it| it.kept_names.clone()).collect();
        change.kept_names.clone_from(&recorded_kept_names);
        let mut known_digests = file.known_digests;
        known_digests.extend(change.after.as_ref().and_then(FileState::digest));
        let mut names = recovered.displaced;
        // An agent may have created more such names, which cannot be told from the run's.
        let remaining_names = names.split_off(MAX_DISPLACED_FILES.min(names.len()));
        Ok(Some(RecoveredFile {
            path: file.path,
            directory,
            has_displaced: !names.is_empty(),
            recorded_kept_names,
            is_entry_recorded,
            displaced: DisplacedFiles {
                file: number,
                names,
                remaining_names,
                known_digests,
                archived_content: None,
                late_writes: left.late_writes,
                unmarked_swap: recovered.method,
            },
        }))
    }
}

/// Takes from a change the late entries that earlier records of its run name. Returns whether they
/// name its entry, too, which then has their findings.
fn take_recorded_entries(change: &mut FileChange, past: &[RunEvent]) -> bool {
    let recorded = past.iter().flat_map(RunEvent::entries);
    let recorded: HashMap<&Path, &WrittenEntry> =
        recorded.map(|it| (it.path.as_path(), it)).collect();
    let is_new = |it: &WrittenEntry| !recorded.contains_key(it.path.as_path());
    change.late_entries.retain(is_new);
    change.redacted_entries.retain(is_new);
    let entry = change.entry.as_mut();
    let known = entry.and_then(|entry| Some((recorded.get(entry.path.as_path())?, entry)));
    if let Some((known, entry)) = known {
        *entry = (*known).clone();
        return true;
    }
    false
}

/// Reads the files of a finished turn again, and adds each deviation to `notes`. Returns the kind of
/// error, if one was found.
fn read_back_files(
    files: &[RecoveredFile],
    event: &RunEvent,
    notes: &mut Vec<String>,
) -> Option<ErrorKind> {
    let mut kinds = Vec::new();
    for file in files {
        let change = &event.file_changes()[file.displaced.file];
        if change.after.is_none() {
            kinds.push(ErrorKind::Partial);
            continue;
        }
        let read_back = read_back(file.directory.as_ref(), &file.path, change);
        // If the file was absent, the agent may have created it before recovery could.
        if matches!(read_back, Ok(ReadBack::Other)) {
            kinds.push(ErrorKind::Partial);
        }
        if let Some((note, problem)) = describe_read_back(read_back) {
            notes.push(note);
            kinds.extend(problem);
        }
    }
    kinds.into_iter().reduce(ErrorKind::more_serious)
}

/// Reads a file again, and compares its beginning with what the run installed.
pub(super) fn read_back(
    directory: &dyn MemoryDirectory,
    path: &Path,
    change: &FileChange,
) -> Result<ReadBack, Error> {
    if !directory.is_at_its_path()? {
        let message = format!(
            "the directory was moved, replaced or unmounted during the run; the file that is at {} \
             now was not changed",
            path.display()
        );
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    match installed_memory(change).is_in(directory) {
        Ok(true) => Ok(ReadBack::Same),
        Ok(false) => Ok(ReadBack::Other),
        Err(error) if error.cause == FailureCause::Leased => Ok(ReadBack::Leased),
        Err(error) => Err(error.into()),
    }
}

/// What the lines of a journal add to its transaction.
#[derive(Default)]
struct JournalProgress {
    /// Entries that were released from quarantine.
    released: Vec<ReleasedEntry>,
    /// Whether the journal has the decision to finish the step.
    is_decided: bool,
    files: Vec<FileProgress>,
}

/// What they add to one file.
#[derive(Default)]
struct FileProgress {
    /// The names that the swap displaced, once it is journaled.
    swapped_names: Option<Vec<String>>,
    takeover_names: Vec<String>,
    late_writes: HashMap<String, LateWrites>,
}

impl JournalProgress {
    /// Reads the lines in order, and updates the transaction's event and known contents.
    fn replay(records: Vec<JournalRecord>, transaction: &mut Transaction) -> JournalProgress {
        let mut progress = JournalProgress::default();
        progress
            .files
            .resize_with(transaction.files.len(), FileProgress::default);
        for record in records {
            progress.apply(record, transaction);
        }
        progress
    }

    /// Applies a line. One about a file that the transaction lacks is ignored.
    fn apply(&mut self, record: JournalRecord, transaction: &mut Transaction) -> Option<()> {
        let Transaction { event, files, .. } = transaction;
        let changes = event.file_changes_mut();
        match record {
            JournalRecord::Decided => self.is_decided = true,
            JournalRecord::Swapped {
                file,
                method,
                displaced,
            } => {
                changes.get_mut(file)?.method = Some(method);
                self.files.get_mut(file)?.swapped_names = Some(displaced);
            }
            JournalRecord::LateEntry {
                file,
                name,
                written,
                attributes,
            } => {
                let known_digests = &mut files.get_mut(file)?.known_digests;
                known_digests.push(written.whole_content().0);
                let late = self.files.get_mut(file)?.late_writes.entry(name);
                late.or_default().add_earlier_entry(&written);
                let change = changes.get_mut(file)?;
                change.late_entries.push(written);
                change.attributes = Some(attributes);
            }
            JournalRecord::Deferred { file, name, stamp } => {
                let late = self.files.get_mut(file)?.late_writes.entry(name);
                late.or_default().set_deferred_stamp(stamp);
            }
            JournalRecord::Screened { from, entry, copy } => {
                if entry.path != from {
                    self.released.push(ReleasedEntry {
                        quarantined: from.clone(),
                        released: entry.path.clone(),
                    });
                }
                let is_screened = |it: &WrittenEntry| it.path == from;
                let change = changes
                    .iter_mut()
                    .find(|change| change.entries().any(is_screened))?;
                change.redacted_entries.extend(copy);
                let mut entries = change.entry.iter_mut().chain(&mut change.late_entries);
                *entries.find(|it| is_screened(it))? = entry;
            }
            JournalRecord::TakenOver { file, name } => {
                self.files.get_mut(file)?.takeover_names.push(name);
            }
        }
        Some(())
    }
}

/// An interrupted run whose directories are recovered, and whose displaced files are to be settled.
struct Recovery<'a> {
    agent: &'a Agent,
    event: RunEvent,
    journal: Box<dyn Journal>,
    files: Vec<RecoveredFile>,
    /// Whether the ledger has a record of its change.
    is_recorded: bool,
    was_swapped: bool,
    /// Entries that were released from quarantine.
    released: Vec<ReleasedEntry>,
    notes: Vec<String>,
}

/// A file of an interrupted run.
struct RecoveredFile {
    path: PathBuf,
    directory: Box<dyn MemoryDirectory>,
    displaced: DisplacedFiles,
    /// Whether the run displaced anything that was still there.
    has_displaced: bool,
    /// The kept names that the ledger has already.
    recorded_kept_names: Vec<String>,
    /// Whether the ledger names its entry.
    is_entry_recorded: bool,
}

impl Recovery<'_> {
    fn display_names(&self) -> String {
        let names = self.files.iter().flat_map(|file| {
            let names = file.displaced.names.iter();
            names.map(|name| file.directory.display_name(name))
        });
        names.collect::<Vec<String>>().join(", ")
    }

    /// Whether nothing is left to settle.
    fn is_settled(&self) -> bool {
        self.files.iter().all(|file| {
            let DisplacedFiles {
                names,
                remaining_names,
                ..
            } = &file.displaced;
            names.is_empty() && remaining_names.is_empty()
        })
    }

    /// Returns what the recovery changed and what may not be on the disk yet.
    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        let files = self.files.iter();
        files
            .flat_map(|file| file.directory.take_unsynced())
            .collect()
    }
}

impl Runs {
    /// Returns the events in the ledger of the same agent and run after a record, oldest first.
    pub(super) fn ledger_events_after(
        &self,
        event: &RunEvent,
        after_seq: u64,
    ) -> Result<Vec<RunEvent>> {
        let mut back = self.context.ledger().scan_back_to(after_seq)?;
        let is_wanted = |run: &str, agent: &str| run == event.run && agent == event.agent;
        let mut events = Vec::new();
        while let Some((_, record)) = back.next_matching(&mut |it| is_wanted(&it.run, &it.agent))? {
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
    /// Step 1: recovers interrupted runs of the agent. The caller holds the agent's lock. Returns
    /// the turn of the current run if that was among them and is finished now.
    pub(super) fn recover(
        &self,
        agent: &Agent,
        lock: Option<&Arc<dyn Lease>>,
    ) -> Result<Option<FinishedTurn>, Error> {
        let journals = self.run.context().journals().list()?;
        self.recover_from_journals(agent, &journals, lock)
    }

    /// Does the same with the agent's journals among `journals`.
    pub(super) fn recover_from_journals(
        &self,
        agent: &Agent,
        journals: &[(String, PathBuf)],
        lock: Option<&Arc<dyn Lease>>,
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
        lock: Option<&Arc<dyn Lease>>,
    ) -> Result<Option<FinishedTurn>, Error> {
        let Some((mut transaction, records)) = self.run.context().journals().read(journal_path)?
        else {
            self.end_truncated_journal(agent, journal_path, lock)?;
            return Ok(None);
        };
        let progress = JournalProgress::replay(records, &mut transaction);
        let mut directories = Vec::new();
        for (number, file) in transaction.files.iter().enumerate() {
            if self.is_directory_missing(agent, &transaction, progress.is_decided, &file.path) {
                continue;
            }
            let opened =
                self.open_transaction_directory(agent, journal_path, &transaction, &file.path)?;
            let Some(directory) = opened else {
                return Ok(None);
            };
            hold_lock_guard(directory.as_ref(), lock);
            directories.push((number, directory));
        }
        let removed_directories = transaction.removed_directories.clone();
        let recovery =
            self.recover_directories(agent, directories, journal_path, transaction, progress)?;
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
        durable::sync_all(recovery.take_unsynced())?;
        self.log_unsettled(&recovery, has_failed);
        let is_settled = recovery.is_settled();
        if is_settled {
            let leftovers = if recovery.was_swapped {
                removed_directories
            } else {
                let created = recovery.event.directories.iter();
                created.rev().cloned().collect()
            };
            match self.run.remove_directories(agent, &leftovers, lock) {
                Err(error) if error.is_host_lost() => return Err(error),
                Err(error) => self.run.report_error(error.with_context(&agent.name)),
                Ok(()) => {}
            }
        }
        let finished = self.record_recovery(recovery)?;
        if is_settled {
            self.run.remove_journal(journal_path);
        }
        Ok(finished)
    }

    /// Whether the directory of a file does not exist, and is one that the run had still to create
    /// or has removed in the end.
    fn is_directory_missing(
        &self,
        agent: &Agent,
        transaction: &Transaction,
        is_decided: bool,
        path: &Path,
    ) -> bool {
        let created = transaction.event.directories.iter().filter(|_| !is_decided);
        let mut expected = created.chain(&transaction.removed_directories);
        let opened = || self.run.context().open_directory_at(agent, path);
        expected.any(|directory| Some(directory.as_path()) == path.parent())
            && matches!(opened(), Err(error) if error.cause == FailureCause::NoDirectory)
    }

    /// Removes a journal without a first line, as a crash during its creation leaves it: that run
    /// has created nothing in the agent's directory. If it has, the journal was damaged later.
    fn end_truncated_journal(
        &self,
        agent: &Agent,
        journal_path: &Path,
        lock: Option<&Arc<dyn Lease>>,
    ) -> Result<(), Error> {
        let file_name = journal_path.file_name().unwrap_or_default();
        let run_names = durable::find_random_names(file_name.as_bytes());
        let directory = match self
            .run
            .context()
            .open_directory_at(agent, agent.observed_path())
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
        path: &Path,
    ) -> Result<Option<Box<dyn MemoryDirectory>>, Error> {
        if transaction.event.host != host_name(agent) {
            let why = format!("its files were on {}", transaction.event.host);
            self.keep_journal(agent, record, transaction, path, &why);
            return Ok(None);
        }
        // A host may have the name of this machine.
        if transaction.connection_target != connection_target(agent) {
            let then = transaction
                .connection_target
                .as_deref()
                .unwrap_or("this machine");
            let why = format!("its files were on {then}");
            self.keep_journal(agent, record, transaction, path, &why);
            return Ok(None);
        }
        let is_same_memory = transaction.event.memory.as_deref() == Some(agent.observed_path());
        match self.run.context().open_directory_at(agent, path) {
            Ok(directory) => Ok(Some(directory)),
            // It may answer again soon, and then recovery must come before any other change in it.
            Err(error) if is_same_memory && can_become_reachable(agent, &error) => {
                Err(error.into())
            }
            Err(error) => {
                self.keep_journal(agent, record, transaction, path, &error.to_string());
                Ok(None)
            }
        }
    }

    fn keep_journal(
        &self,
        agent: &Agent,
        journal_path: &Path,
        transaction: &Transaction,
        path: &Path,
        why: &str,
    ) {
        let directory = path.parent().unwrap_or(Path::new("/"));
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

    /// Recovers the directories of the files, as far as the ledger does not have the run already.
    /// Returns None if one is not the directory of the run.
    fn recover_directories<'a>(
        &self,
        agent: &'a Agent,
        directories: Vec<(usize, Box<dyn MemoryDirectory>)>,
        journal_path: &Path,
        mut transaction: Transaction,
        mut progress: JournalProgress,
    ) -> Result<Option<Recovery<'a>>, Error> {
        let past = self
            .run
            .runs
            .ledger_events_after(&transaction.event, transaction.ledger_seq)?;
        let is_recorded = transaction.is_recorded_by(&past);
        let journal = self.run.context().journals().open(journal_path)?;
        let swaps = InterruptedSwaps {
            agent,
            journal: journal.as_ref(),
            past: &past,
            is_recorded,
            progress: if transaction.event.files.is_empty() {
                SwapProgress::Unknown
            } else if progress.is_decided {
                SwapProgress::Decided
            } else {
                SwapProgress::NotBegun
            },
        };
        let mut recovered_files = Vec::new();
        let mut notes = Vec::new();
        for (number, directory) in directories {
            let left = std::mem::take(&mut progress.files[number]);
            let recovered =
                swaps.recover_file(&mut transaction, number, directory, left, &mut notes)?;
            let Some(recovered) = recovered else {
                let path = &transaction.files[number].path;
                let why = "it is another directory now";
                self.keep_journal(agent, journal_path, &transaction, path, why);
                return Ok(None);
            };
            recovered_files.push(recovered);
        }
        let event = transaction.event;
        let mut changes = event.file_changes().iter();
        Ok(Some(Recovery {
            agent,
            journal,
            was_swapped: is_recorded || changes.any(|change| change.method.is_some()),
            files: recovered_files,
            is_recorded,
            released: progress.released,
            notes,
            event,
        }))
    }

    /// Settles the displaced files. Where open files cannot be detected, a file takes two
    /// inspections.
    fn settle_recovered(&self, recovery: &mut Recovery<'_>) -> Result<(), Error> {
        let Recovery {
            agent,
            event,
            journal,
            files,
            notes,
            ..
        } = recovery;
        let clock = self.run.context().clock();
        let end = clock.instant() + RECOVERY_SETTLE_TIMEOUT;
        let result = loop {
            let mut result = Ok(());
            for file in files.iter_mut() {
                let settlement = Settlement {
                    run: self.run,
                    agent,
                    path: &file.path,
                    directory: file.directory.as_ref(),
                    journal: journal.as_ref(),
                };
                let change = &mut event.file_changes_mut()[file.displaced.file];
                let (more, settled) = settlement.settle(change, &mut file.displaced);
                notes.extend(more);
                result = result.and(settled);
            }
            let left = files.iter().filter(|file| !file.displaced.names.is_empty());
            match left
                .filter_map(|file| file.directory.next_settle_time())
                .max()
            {
                Some(due) if result.is_ok() && clock.instant() < end => {
                    clock.sleep(due.saturating_duration_since(clock.instant()));
                }
                _ => break result,
            }
        };
        for file in files {
            let change = &mut event.file_changes_mut()[file.displaced.file];
            change
                .kept_names
                .retain(|name| !file.recorded_kept_names.contains(name));
        }
        result
    }

    /// Logs the displaced files that stay for the next run.
    fn log_unsettled(&self, recovery: &Recovery<'_>, has_failed: bool) {
        let (agent, run) = (&recovery.agent.name, &recovery.event.run);
        let names = recovery.display_names();
        if !names.is_empty() && !has_failed {
            let mut files = recovery.files.iter();
            self.run
                .log_line(&if files.all(|file| file.displaced.is_deferred()) {
                    format!(
                        "{agent}: {names}, displaced by run {run}, keeps changing; it stays until \
                         a run finds it unchanged"
                    )
                } else {
                    format!(
                        "{agent}: a writer has {names} open, displaced by run {run}; the next run \
                         settles it"
                    )
                });
        }
        let remaining = recovery.files.iter();
        let remaining: usize = remaining
            .map(|file| file.displaced.remaining_names.len())
            .sum();
        if remaining > 0 {
            self.run.log_line(&format!(
                "{agent}: {remaining} more displaced files of run {run}; the next run settles them"
            ));
        }
    }

    /// Logs what the recovery found, and appends it to the ledger if the ledger lacks it.
    /// Returns the turn that it finished, if that is of the current run.
    fn record_recovery(&self, recovery: Recovery<'_>) -> Result<Option<FinishedTurn>, Error> {
        let is_settled = recovery.is_settled();
        let Recovery {
            agent,
            mut event,
            journal,
            files,
            is_recorded,
            was_swapped,
            mut released,
            mut notes,
            ..
        } = recovery;
        let is_own_run = event.run == self.run.id;
        let has_displaced = files.iter().any(|file| file.has_displaced);
        // A displaced file that was still there may be one that a run has left to later ones.
        if was_swapped && !is_own_run && !(is_recorded && has_displaced) {
            let turn = InterruptedTurn::from_event(&event);
            self.run.shared().recovered_turns.push(turn);
        }
        let mut changes = event.file_changes().iter();
        let has_news = changes.any(|it| !it.late_entries.is_empty() || !it.kept_names.is_empty());
        let note = describe_recovery(&event, is_recorded, was_swapped);
        let must_record = has_news || !is_recorded && (was_swapped || !is_own_run && is_settled);
        if is_recorded || !was_swapped && is_own_run {
            event.operation = Operation::Repair;
        }
        if !was_swapped {
            let changes = event.file_changes_mut().iter_mut();
            changes.for_each(|change| change.after = None);
            event.outcome = if is_own_run {
                Outcome::Ok
            } else {
                Outcome::Failed
            };
        }
        let is_finished_turn = is_own_run && was_swapped && !is_recorded;
        let kind = is_finished_turn
            .then(|| read_back_files(&files, &event, &mut notes))
            .flatten();
        // If everything is archived and recorded already, only the removal of the files is worth a
        // line.
        if must_record || is_recorded && has_displaced && is_settled {
            notes.insert(0, note);
        }
        for note in &notes {
            self.run
                .log_line(&format!("{}: run {}: {note}", agent.name, event.run));
        }
        if must_record {
            event.note = Some(notes.join("; "));
            let mut recorded_entries = Vec::new();
            for file in files.iter().filter(|file| file.is_entry_recorded) {
                let number = file.displaced.file;
                recorded_entries.push((number, event.file_changes_mut()[number].entry.take()));
            }
            let journal = EntryJournal::Open(journal.as_ref());
            released.extend(
                self.run
                    .screening()
                    .screen_entries(agent, &mut event, journal),
            );
            for (number, recorded) in recorded_entries {
                event.file_changes_mut()[number].entry = recorded;
            }
            self.run.context().ledger().append(vec![event.clone()])?;
        }
        self.run.screening().end_releases(&released);
        Ok(is_finished_turn.then_some(FinishedTurn { event, kind }))
    }
}
