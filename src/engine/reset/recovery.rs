//! The journal of a transaction (the "transaction record" of messages and documents), and the
//! recovery of interrupted runs from it.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Run;
use super::settle::{DisplacedFiles, LateWrites};
use super::turn::hold_lock_guard;
use crate::archive::{PROGRAM_DIRECTORY_NAME, WrittenEntry};
use crate::config::Agent;
use crate::digest::Digest;
use crate::durable::{self, NewFile, UnsyncedObject};
use crate::engine::Engine;
use crate::engine::address::connection_target;
use crate::engine::address::host_name;
use crate::engine::lock::{self, AgentLock};
use crate::engine::record::{FileState, Operation, Outcome, RunEvent};
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::transport::{
    Attributes, FailureCause, MemoryDirectory, MemoryObject, Stamp, SwapMethod, TransportError,
};

/// The first line of a journal: what a run was about to change. Each further line is a
/// [`JournalRecord`].
///
/// A journal is `<archive_dir>/.shepherd/tx/AGENT.RANDOM.json`; it is removed when its last
/// displaced file is settled. A writer that never closes an old file keeps one journal alive and
/// delays no later run. The journal is synced before the run changes the agent's directory, so a
/// first line that a power cut truncated means that nothing was changed.
#[derive(Serialize, Deserialize)]
pub(super) struct Transaction {
    pub(super) event: RunEvent,
    pub(super) memory: PathBuf,
    /// How its host was reached, as [`connection_target`] returns it.
    #[serde(default)]
    #[serde(rename = "way")]
    pub(super) connection_target: Option<String>,
    /// The identity of the memory's directory, where known.
    #[serde(default)]
    #[serde(rename = "folder")]
    pub(super) directory_id: Option<u64>,
    #[serde(rename = "staged")]
    pub(super) staged_name: String,
    /// Inode of the memory before the run; 0 if unknown.
    #[serde(rename = "inode")]
    pub(super) memory_inode: u64,
    /// Digests of contents that are in the archive.
    #[serde(rename = "known")]
    pub(super) known_digests: Vec<Digest>,
    /// Number of the ledger's last record when the journal was written; every record about this
    /// transaction follows it.
    #[serde(default)]
    #[serde(rename = "ledger")]
    pub(super) ledger_seq: u64,
}

/// A line that a run appends to its journal as it proceeds, so that recovery knows how far it came.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalRecord {
    /// The new file is the memory, and the files of these names beside it are displaced. Agents can
    /// see such names, and create more of them.
    Swapped(SwapMethod, Vec<String>),
    /// A late write was archived, and its file may be removed. Written by earlier versions.
    #[serde(rename = "late")]
    LegacyLateEntry(WrittenEntry),
    /// A late write in the displaced file of this name was archived, with the file's owner and
    /// mode: it need not be the file that was read first.
    #[serde(rename = "archived")]
    LateEntry {
        name: String,
        written: WrittenEntry,
        attributes: Attributes,
    },
    /// A run deferred the displaced file of this name, which had this stamp.
    #[serde(rename = "put_off")]
    Deferred { name: String, stamp: Stamp },
    /// A recovering run has taken over, and gives the run's directory on the host this name.
    TakenOver(String),
}

/// A journal that is open for appending.
pub(super) struct Journal {
    pub(super) path: PathBuf,
    file: Arc<File>,
}

impl Journal {
    fn open(path: &Path) -> Result<Journal, Error> {
        let file = durable::open_own_file(path, OpenOptions::new().append(true))
            .with_path("open", path)?;
        Ok(Journal {
            path: path.to_path_buf(),
            file: Arc::new(file),
        })
    }

    /// Appends a line, which the caller must sync.
    pub(super) fn append(&self, record: &JournalRecord) -> Result<(), Error> {
        // The line feed comes first: a line that a full disk truncated stays a line of its own,
        // which is not JSON and is ignored.
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, record).map_err(|error| {
            let message = format!("cannot write a journal line: {error}");
            Error::new(ErrorKind::Internal, message)
        })?;
        (&*self.file)
            .write_all(&line)
            .with_path("append to", &self.path)
    }

    /// Appends a line and syncs it.
    pub(super) fn append_durably(&self, record: &JournalRecord) -> Result<(), Error> {
        self.append(record)?;
        self.unsynced().sync()
    }

    /// Returns the journal for a sync.
    pub(super) fn unsynced(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.file) as _, &self.path)
    }
}

/// Reads a journal; None for one whose first line was never completely written.
fn read_journal(path: &Path) -> Result<Option<(Transaction, Vec<JournalRecord>)>, Error> {
    let text = durable::read_own_file(path).with_path("read", path)?;
    let mut lines = text.split(|byte| *byte == b'\n');
    let damaged_error = |why: &str| {
        let message = format!("{} is not a transaction record: {why}", path.display());
        Error::new(ErrorKind::Integrity, message).with_hint(
            "it names the files that an interrupted run left in the agent's directory: archive \
             the .shepherd-* files there by hand, then delete the record",
        )
    };
    let transaction: Transaction = match serde_json::from_slice(lines.next().unwrap_or_default()) {
        Ok(transaction) => transaction,
        Err(_) if !text.contains(&b'\n') => return Ok(None),
        Err(error) => return Err(damaged_error(&error.to_string())),
    };
    // A run must not remove files of other names, even if a journal names them.
    if !durable::is_random_name(&transaction.staged_name) {
        return Err(damaged_error("its staged name is not one of a run"));
    }
    let journal_records = lines.filter_map(|line| serde_json::from_slice(line).ok());
    Ok(Some((transaction, journal_records.collect())))
}

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

/// How long recovery tries to settle displaced files on a host.
const RECOVERY_SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

fn is_file(standing: &FileState) -> bool {
    matches!(standing, FileState::File { .. })
}

/// The most files that recovery settles for a run that was interrupted before it could journal
/// their names: one for each attempt of the run.
const MAX_DISPLACED_FILES: usize = 17;

/// The hint for journals of agents that are not configured.
pub const UNCLAIMED_JOURNAL_HINT: &str = "if another config has the agent, its next run there \
     settles it; otherwise configure the agent under its old name for one reset, or archive the \
     .shepherd-* files in its directory by hand and then delete the record";

/// Whether a directory that cannot be opened may still exist.
fn can_become_reachable(agent: &Agent, error: &TransportError) -> bool {
    agent.location.host().is_some() || error.cause == FailureCause::Unreachable
}

impl Engine {
    /// Returns the journals of agents that are not configured, for example because they were
    /// renamed: no run of this config settles them. The journals of a run in progress are left out:
    /// another config may name its agents.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn unclaimed_journals(&self) -> Result<Vec<PathBuf>> {
        let mut records = self.journals()?;
        records.retain(|(agent, _)| {
            let is_idle = || lock::describe_holder(&self.archive, agent).is_none();
            self.config().agent(agent).is_none() && is_idle()
        });
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// Returns the events in the ledger of the same agent and run after a record, oldest first.
    fn ledger_events_after(&self, event: &RunEvent, after_seq: u64) -> Result<Vec<RunEvent>> {
        let (back, _) = self.scan_ledger_backwards()?;
        let mut back = back.stopping_after(after_seq);
        let is_wanted = |run: &str, agent: &str| run == event.run && agent == event.agent;
        let mut events = Vec::new();
        while let Some((_, record)) = back.next_matching(|it| is_wanted(&it.run, &it.agent))? {
            events.insert(0, record.event);
        }
        Ok(events)
    }

    /// Whether the agent has a journal, that is, an unfinished run; false if the journals cannot be
    /// read.
    pub(in crate::engine) fn has_journal(&self, agent: &str) -> bool {
        let records = self.journals().unwrap_or_default();
        records.iter().any(|(name, _)| name == agent)
    }

    /// Returns the paths of all journals, each with its agent.
    pub(super) fn journals(&self) -> Result<Vec<(String, PathBuf)>> {
        let path = self.archive().program_path("tx");
        let items = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            items => items.with_path("list", &path)?,
        };
        let mut records = Vec::new();
        for item in items {
            let name = item.with_path("list", &path)?.file_name();
            let text = name.to_string_lossy();
            // An agent's name has no dot.
            if let Some((agent, rest)) = text.split_once('.')
                && rest.ends_with(".json")
            {
                records.push((agent.to_string(), path.join(&name)));
            }
        }
        records.sort();
        Ok(records)
    }

    /// Returns every random name in a journal or in the file name of one, also of a damaged
    /// journal.
    pub(super) fn names_in_journals(&self) -> Result<HashSet<String>> {
        let mut names = HashSet::new();
        for (_, record) in self.journals()? {
            names.extend(durable::find_random_names(record.as_os_str().as_bytes()));
            match durable::read_own_file(&record) {
                Ok(text) => names.extend(durable::find_random_names(&text)),
                // Its run has finished.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::from_io("read", &record, &error)),
            }
        }
        Ok(names)
    }
}

impl Run<'_> {
    /// Reads the memory again, and compares its beginning with what the run installed.
    pub(super) fn read_back(
        &self,
        directory: &dyn MemoryDirectory,
        event: &RunEvent,
    ) -> Result<ReadBack, Error> {
        let same = match event.after {
            Some(FileState::File { sha256, size, .. }) => {
                directory.memory_begins_with(sha256, size)
            }
            Some(FileState::Special(ref special)) => directory
                .stat_memory()
                .map(|object| object == MemoryObject::Special(special.clone())),
            _ => directory
                .stat_memory()
                .map(|object| object == MemoryObject::Absent),
        };
        match same {
            Ok(true) => Ok(ReadBack::Same),
            Ok(false) => Ok(ReadBack::Other),
            Err(error) if error.cause == FailureCause::Leased => Ok(ReadBack::Leased),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the agent may have a journal, and so files of an interrupted run in its directory;
    /// true if the journals cannot be read.
    pub(super) fn can_have_journal(&self, agent: &Agent) -> bool {
        let journals = self.engine.journals();
        journals.map_or(true, |journals| {
            journals.iter().any(|(owner, _)| *owner == agent.name)
        })
    }

    /// Step 1: recovers interrupted runs of the agent. The caller holds the agent's lock.
    pub(super) fn recover(
        &self,
        agent: &Agent,
        lock: Option<&Arc<AgentLock>>,
    ) -> Result<(), Error> {
        let journals = self.engine.journals()?;
        self.recover_from_journals(agent, &journals, lock)
    }

    /// Recovers interrupted runs of the agent from its journals among `journals`.
    pub(super) fn recover_from_journals(
        &self,
        agent: &Agent,
        journals: &[(String, PathBuf)],
        lock: Option<&Arc<AgentLock>>,
    ) -> Result<(), Error> {
        for (_, record) in journals.iter().filter(|(of, _)| *of == agent.name) {
            self.recover_journal(agent, record, lock)?;
        }
        Ok(())
    }

    fn recover_journal(
        &self,
        agent: &Agent,
        journal_path: &Path,
        lock: Option<&Arc<AgentLock>>,
    ) -> Result<(), Error> {
        let Some((transaction, journal_records)) = read_journal(journal_path)? else {
            self.remove_journal(journal_path);
            return Ok(());
        };
        let Some(directory) = self.open_transaction_directory(agent, journal_path, &transaction)?
        else {
            return Ok(());
        };
        hold_lock_guard(directory.as_ref(), lock);
        let Transaction {
            mut event,
            staged_name,
            memory_inode,
            mut known_digests,
            ledger_seq,
            ..
        } = transaction;
        let mut swapped_names = None;
        let mut names = Vec::new();
        let mut late: HashMap<String, LateWrites> = HashMap::new();
        for record in journal_records {
            match record {
                JournalRecord::Swapped(method, names) => {
                    event.method = Some(method);
                    swapped_names = Some(names);
                }
                JournalRecord::LegacyLateEntry(written) => {
                    known_digests.push(written.digest);
                    event.late_entries.push(written);
                }
                JournalRecord::LateEntry {
                    name,
                    written,
                    attributes,
                } => {
                    known_digests.push(written.whole_content().0);
                    late.entry(name).or_default().add_earlier_entry(&written);
                    event.late_entries.push(written);
                    event.attributes = Some(attributes);
                }
                JournalRecord::Deferred { name, stamp } => {
                    late.entry(name).or_default().set_deferred_stamp(stamp)
                }
                JournalRecord::TakenOver(name) => names.push(name),
            }
        }
        let ledger_events = self.engine.ledger_events_after(&event, ledger_seq)?;
        let is_recorded = ledger_events
            .iter()
            .any(|past| (&past.before, &past.after) == (&event.before, &event.after));
        event.late_entries.retain(|late| {
            !ledger_events
                .iter()
                .any(|past| past.late_entries.contains(late))
        });
        let kept_before: Vec<String> = ledger_events
            .iter()
            .flat_map(|it| it.kept_names.clone())
            .collect();
        event.kept_names.clone_from(&kept_before);
        let file = Journal::open(journal_path)?;
        if agent.location.host().is_some() {
            let name = durable::new_random_name()?;
            file.append_durably(&JournalRecord::TakenOver(name.clone()))?;
            names.push(name);
            directory.take_over_run(&staged_name, &names)?;
        }
        let new_name = directory.staged_file_name(&staged_name);
        let is_own_run = event.run == self.id;
        let mut detected_method = None;
        if event.method.is_none() && !is_recorded {
            let remote = agent.location.host().is_some();
            detected_method = self.detect_swap_method(
                directory.as_ref(),
                &event,
                &staged_name,
                memory_inode,
                remote,
            )?;
            event.method = detected_method;
        }
        let was_swapped = is_recorded || event.method.is_some();
        // The swap must be on the disk before the journal line about it, which comes next.
        durable::sync_all(directory.take_unsynced())?;
        if agent.location.host().is_some() && event.after.as_ref().is_some_and(is_file) {
            // On a host this name is a second link to the new file, or a partial copy of it: never
            // a file of the agent.
            directory.remove_name(&new_name)?;
        }
        directory.remove_unfinished_staging(&staged_name)?;
        known_digests.extend(event.after.as_ref().and_then(FileState::digest));
        let mut names = directory.displaced_names(&staged_name)?;
        if let Some(swapped_names) = swapped_names {
            let swapped_names: HashSet<String> = swapped_names.into_iter().collect();
            names.retain(|name| *name == new_name || swapped_names.contains(name));
        }
        // An agent may have created more such names, which cannot be told from the run's.
        let remaining_names = names.split_off(MAX_DISPLACED_FILES.min(names.len()));
        let mut displaced = DisplacedFiles {
            journal: file,
            names,
            remaining_names,
            known_digests,
            archived_content: None,
            late_writes: late,
            unmarked_swap: detected_method,
        };
        let has_displaced = !displaced.names.is_empty();
        let (mut notes, mut settled) =
            self.settle_displaced(agent, directory.as_ref(), &mut event, &mut displaced);
        // Where open files cannot be detected, settling a file takes two inspections.
        let clock = self.engine.clock();
        let end = clock.instant() + RECOVERY_SETTLE_TIMEOUT;
        while let Some(due) = directory.next_settle_time()
            && settled.is_ok()
            && !displaced.names.is_empty()
            && clock.instant() < end
        {
            clock.sleep(due.saturating_duration_since(clock.instant()));
            let (more, again) =
                self.settle_displaced(agent, directory.as_ref(), &mut event, &mut displaced);
            notes.extend(more);
            settled = again;
        }
        event.kept_names.retain(|name| !kept_before.contains(name));
        let display_names = |names: &[String]| {
            let names: Vec<String> = names
                .iter()
                .map(|name| directory.display_name(name))
                .collect();
            names.join(", ")
        };
        let has_failed = settled.is_err();
        if let Err(error) = settled {
            // If the memory was replaced, a displaced file that cannot be settled stays beside it
            // with its journal, and does not block the run.
            if !was_swapped {
                return Err(error);
            }
            let remaining = display_names(&displaced.names);
            let message = format!("cannot settle {remaining}, displaced by run {}", event.run);
            self.report_error(error.with_context(format!("{}: {message}", agent.name)));
        }
        durable::sync_all(directory.take_unsynced())?;
        let is_deferred = displaced.is_deferred();
        let remaining = displaced.names;
        if !remaining.is_empty() && !has_failed {
            let remaining = display_names(&remaining);
            let line = if is_deferred {
                format!(
                    "{remaining}, displaced by run {}, keeps changing; it stays until a run finds it \
                     unchanged",
                    event.run
                )
            } else {
                format!(
                    "a writer has {remaining} open, displaced by run {}; the next run settles it",
                    event.run
                )
            };
            self.log_line(&format!("{}: {line}", agent.name));
        }
        let is_settled = remaining.is_empty() && displaced.remaining_names.is_empty();
        if !displaced.remaining_names.is_empty() {
            self.log_line(&format!(
                "{}: {} more displaced files of run {}; the next run settles them",
                agent.name,
                displaced.remaining_names.len(),
                event.run
            ));
        }
        let (note, must_record) = match (is_recorded, was_swapped) {
            (true, _) => (
                "settled the files that this run displaced",
                !event.late_entries.is_empty() || !event.kept_names.is_empty(),
            ),
            (false, true) => (
                "interrupted after the memory was replaced; finished since",
                true,
            ),
            (false, false) => (
                "interrupted before the memory was replaced",
                !event.late_entries.is_empty()
                    || !event.kept_names.is_empty()
                    || !is_own_run && is_settled,
            ),
        };
        if is_recorded || !was_swapped && is_own_run {
            event.operation = Operation::Repair;
        }
        if !was_swapped {
            event.after = None;
            event.outcome = if is_own_run {
                Outcome::Ok
            } else {
                Outcome::Failed
            };
        }
        // If everything is archived and recorded already, only the removal of the files is worth a
        // line.
        if must_record || is_recorded && has_displaced && is_settled {
            notes.insert(0, note.to_string());
        }
        for note in &notes {
            self.log_line(&format!("{}: run {}: {note}", agent.name, event.run));
        }
        if must_record {
            event.note = Some(notes.join("; "));
            self.engine.append_to_ledger(vec![event])?;
        }
        if is_settled {
            self.remove_journal(journal_path);
        }
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
        let here = transaction.memory == agent.location.memory();
        let directory = match self.engine.open_directory_at(agent, &transaction.memory) {
            Ok(directory) => directory,
            // It may answer again soon, and then recovery must come before any other change in it.
            Err(error) if here && can_become_reachable(agent, &error) => return Err(error.into()),
            Err(error) => {
                self.keep_journal(agent, record, transaction, &error.to_string());
                return Ok(None);
            }
        };
        let is_other_directory = match (transaction.directory_id, directory.directory_id()?) {
            (Some(then), Some(now)) => then != now,
            _ => false,
        };
        // An unguessable name identifies the directory better than a number does.
        if is_other_directory
            && directory
                .displaced_names(&transaction.staged_name)?
                .is_empty()
        {
            let why = "it is another directory now";
            self.keep_journal(agent, record, transaction, why);
            return Ok(None);
        }
        Ok(Some(directory))
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
        self.report_error(Error::new(ErrorKind::Partial, message).with_hint(hint));
    }

    /// Determines from the files in the directory how an interrupted run replaced the memory, for a
    /// journal that does not say; None if it did not.
    fn detect_swap_method(
        &self,
        directory: &dyn MemoryDirectory,
        event: &RunEvent,
        staged_name: &str,
        memory_inode: u64,
        remote: bool,
    ) -> Result<Option<SwapMethod>, Error> {
        let object = directory.stat_memory()?;
        if let Some(FileState::Special(special)) = &event.after {
            return Ok(
                (object == MemoryObject::Special(special.clone())).then_some(SwapMethod::Exchange)
            );
        }
        let new_name = directory.staged_file_name(staged_name);
        let new = event.after.as_ref().and_then(FileState::digest);
        let asides = || -> Result<bool, Error> {
            let names = directory.displaced_names(staged_name)?;
            Ok(names.iter().any(|name| *name != new_name))
        };
        if remote && object != MemoryObject::Absent {
            // Without inodes the names decide: a swap moves the old memory aside first.
            return Ok(match (asides()?, new) {
                (true, _) => Some(SwapMethod::TakeAway),
                (false, None) if directory.exists(&new_name)? => Some(SwapMethod::Remove),
                (false, Some(_))
                    if event.before == Some(FileState::Absent)
                        && self.read_back(directory, event)? == ReadBack::Same =>
                {
                    Some(SwapMethod::Create)
                }
                _ => None,
            });
        }
        let new_file = match new {
            Some(new) => directory.find_content(&new_name, new)?,
            None => None,
        };
        if let Some(new_file) = new_file {
            // No memory: interrupted between moving the old file aside and linking the new one.
            return match object {
                MemoryObject::Absent => {
                    durable::sync_all(directory.take_unsynced())?;
                    Ok(Some(directory.swap(staged_name, new_file)?.method))
                }
                _ if directory.is_half_written(staged_name)? => Ok(Some(
                    directory.write_in_place(staged_name, new_file)?.method,
                )),
                // The new file has two names for a moment when it is linked as the memory.
                _ if self.read_back(directory, event)? == ReadBack::Same => Ok(match asides()? {
                    true => Some(SwapMethod::TakeAway),
                    false if event.before == Some(FileState::Absent) => Some(SwapMethod::Create),
                    false => None,
                }),
                _ => Ok(None),
            };
        }
        if matches!(&object, MemoryObject::File(file) if memory_inode != 0 && file.stamp.inode == memory_inode)
        {
            return Ok(None);
        }
        let names = directory.displaced_names(staged_name)?;
        if remote && new.is_some() {
            // There is neither a memory nor a new file to install, so the old memory is restored.
            let mut asides = names.iter().filter(|name| **name != new_name);
            if let (Some(aside), None) = (asides.next(), asides.next()) {
                directory.restore_memory_name(aside)?;
                return Ok(None);
            }
        }
        Ok(match names.first() {
            Some(_) if new.is_none() => Some(SwapMethod::Remove),
            Some(name) if *name != new_name => Some(SwapMethod::TakeAway),
            // No swap on a host exchanges files, so this is a partial copy of the new file.
            Some(_) if remote => None,
            Some(_) => Some(SwapMethod::Exchange),
            // A created memory displaces nothing. If there was a memory before, the new file was
            // never built, whatever the agent has saved since.
            None if event.before == Some(FileState::Absent)
                && self.read_back(directory, event)? == ReadBack::Same =>
            {
                Some(SwapMethod::Create)
            }
            None => None,
        })
    }

    /// Reports the journals of agents that are not configured.
    pub(super) fn report_unclaimed_journals(&self) {
        match self.engine.unclaimed_journals() {
            Ok(records) => {
                for record in records {
                    let message = format!(
                        "{} is of an agent that is not configured: no run settles its files",
                        record.display()
                    );
                    self.report_error(
                        Error::new(ErrorKind::Partial, message).with_hint(UNCLAIMED_JOURNAL_HINT),
                    );
                }
            }
            Err(error) => self.report_error(error),
        }
    }

    /// Writes a journal. The caller must sync the returned objects before it changes the agent's
    /// directory.
    pub(super) fn create_journal(
        &self,
        agent: &Agent,
        transaction: &Transaction,
    ) -> Result<(Journal, [UnsyncedObject; 2]), Error> {
        let archive = self.engine.archive();
        let directory = Arc::new(
            archive.open_or_create_directory(&Path::new(PROGRAM_DIRECTORY_NAME).join("tx"))?,
        );
        let path = archive.program_path("tx");
        let mut text = serde_json::to_vec(transaction).map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                format!("cannot write the transaction record: {error}"),
            )
        })?;
        text.push(b'\n');
        let mut file = NewFile::create(&directory, &path, archive.file_mode())?;
        archive.repair_program_file(file.file(), &path)?;
        file.write(&text)?;
        let name = format!("{}{}.json", agent.name, transaction.staged_name);
        if !file.link_as(name.as_ref())? {
            let message = format!("{} already exists", path.join(name).display());
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let record = Journal {
            path: path.join(name),
            file: Arc::clone(file.file()),
        };
        Ok((record, [file.unsynced_content(), file.unsynced_directory()]))
    }

    pub(super) fn remove_journal(&self, journal_path: &Path) {
        if let Err(error) = std::fs::remove_file(journal_path) {
            self.report_error(Error::from_io("remove", journal_path, &error));
        }
    }
}
