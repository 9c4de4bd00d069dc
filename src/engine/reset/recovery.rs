//! The record of a transaction, and putting right what an interrupted run left.

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
use crate::engine::ledger::{FileState, Operation, Outcome, RunEvent};
use crate::engine::lock::{self, AgentLock};
use crate::engine::observe::connection_target;
use crate::engine::observe::host_name;
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::transport::{
    Attributes, FailureCause, MemoryDirectory, MemoryObject, Stamp, SwapMethod, TransportError,
};

/// The record of a transaction: what an interrupted run left, and what it was
/// about. `<archive_dir>/.shepherd/tx/AGENT.RANDOM.json`, gone when its last
/// displaced file is settled. A writer that never closes an old file keeps one
/// record alive and holds up no later run.
///
/// This is its first line. Each further one is a [`JournalRecord`]. A record whose first
/// line was cut short by a power cut was not on the disk before anything was done
/// in the agent's directory, so nothing was.
#[derive(Serialize, Deserialize)]
pub(super) struct Transaction {
    pub(super) event: RunEvent,
    pub(super) memory: PathBuf,
    /// How its host was reached, by [`connection_target`].
    #[serde(default)]
    #[serde(rename = "way")]
    pub(super) connection_target: Option<String>,
    /// What tells the memory's directory from another one, where known.
    #[serde(default)]
    #[serde(rename = "folder")]
    pub(super) directory_id: Option<u64>,
    #[serde(rename = "staged")]
    pub(super) staged_name: String,
    /// Inode of the file that stood there before; 0 where unknown.
    #[serde(rename = "inode")]
    pub(super) memory_inode: u64,
    /// Digests of contents that are archived already.
    #[serde(rename = "known")]
    pub(super) known_digests: Vec<Digest>,
    /// Number of the ledger's last record when this one was written: what tells of
    /// this transaction comes behind it.
    #[serde(default)]
    #[serde(rename = "ledger")]
    pub(super) ledger_seq: u64,
}

/// What a run adds to its record as it goes on, so that nobody has to guess
/// later how far it came.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalRecord {
    /// The new file stands in the memory's place, and these names beside it are
    /// what it displaced. Agents can see such names, and make more of them.
    Swapped(SwapMethod, Vec<String>),
    /// A late write was archived; the file that held it may go. Of earlier versions.
    #[serde(rename = "late")]
    LegacyLateEntry(WrittenEntry),
    /// The same, for the displaced file of this name, with its owner and mode: it need
    /// not be the file that was read first.
    #[serde(rename = "archived")]
    LateEntry {
        name: String,
        written: WrittenEntry,
        attributes: Attributes,
    },
    /// A run had enough of the displaced file of this name, which looked like this.
    #[serde(rename = "put_off")]
    Deferred { name: String, stamp: Stamp },
    /// Somebody finishes for the run, and gives its directory on the host this name.
    TakenOver(String),
}

/// A transaction record, open for marks.
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

    /// Adds a mark, which has to be synced yet.
    pub(super) fn append(&self, record: &JournalRecord) -> Result<(), Error> {
        // The line feed comes first: what a full disk cut short stays on a line
        // of its own, which is no JSON and counts for nothing.
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, record).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot write a mark: {error}"))
        })?;
        (&*self.file)
            .write_all(&line)
            .with_path("append to", &self.path)
    }

    /// Adds a mark, durably.
    pub(super) fn append_durably(&self, record: &JournalRecord) -> Result<(), Error> {
        self.append(record)?;
        self.unsynced().sync()
    }

    /// The file with its marks.
    pub(super) fn unsynced(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.file) as _, &self.path)
    }
}

/// Reads a record with its marks; none of one that was never on the disk.
fn read_journal(path: &Path) -> Result<Option<(Transaction, Vec<JournalRecord>)>, Error> {
    let text = durable::read_own_file(path).with_path("read", path)?;
    let mut lines = text.split(|byte| *byte == b'\n');
    let is_no_record = |why: &str| {
        let message = format!("{} is no transaction record: {why}", path.display());
        Error::new(ErrorKind::Integrity, message).with_hint(
            "it names what an interrupted run left in the agent's directory: archive the \
             .shepherd-* files there by hand, then delete the record",
        )
    };
    let transaction: Transaction = match serde_json::from_slice(lines.next().unwrap_or_default()) {
        Ok(transaction) => transaction,
        Err(_) if !text.contains(&b'\n') => return Ok(None),
        Err(error) => return Err(is_no_record(&error.to_string())),
    };
    // Files of other names are not a run's to remove, whatever a record says.
    if !durable::is_random_name(&transaction.staged_name) {
        return Err(is_no_record("it names a file that no run made"));
    }
    let marks = lines.filter_map(|line| serde_json::from_slice(line).ok());
    Ok(Some((transaction, marks.collect())))
}

/// What reading back came to.
#[derive(PartialEq, Eq)]
pub(super) enum ReadBack {
    /// What was installed.
    Same,
    /// Something else.
    Other,
    /// Somebody keeps everybody else from opening it.
    Leased,
}

/// How long a displaced file on a host is looked at.
const RECOVERY_SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

fn is_file(standing: &FileState) -> bool {
    matches!(standing, FileState::File { .. })
}

/// How many files a run can have displaced that was interrupted before it could
/// mark their names: one for each of its attempts.
const MAX_DISPLACED_FILES: usize = 17;

/// What can be done about a record that nobody settles.
pub const UNCLAIMED_JOURNAL_HINT: &str = "where another config names the agent, its next run there settles it; \
     otherwise give the agent its name back until its next reset, or archive the .shepherd-* files \
     in its directory by hand and then delete the record";

/// Whether a directory that cannot be opened may be there all the same.
fn can_become_reachable(agent: &Agent, error: &TransportError) -> bool {
    agent.location.host().is_some() || error.cause == FailureCause::Unreachable
}

impl Engine {
    /// Transaction records of agents that are not configured, for example
    /// because they were renamed: no run of this config settles them. Those of a run in
    /// progress are left out: another config may name its agents.
    ///
    /// # Errors
    /// An archive that cannot be read.
    pub fn unclaimed_journals(&self) -> Result<Vec<PathBuf>> {
        let mut records = self.journals()?;
        records.retain(|(agent, _)| {
            let is_idle = || lock::describe_holder(&self.archive, agent).is_none();
            self.config().agent(agent).is_none() && is_idle()
        });
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// What the ledger says of an event's agent and run behind a record, oldest first.
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

    /// Whether a run of this agent has not come to its end. Who cannot look does not
    /// know.
    pub(in crate::engine) fn has_journal(&self, agent: &str) -> bool {
        let records = self.journals().unwrap_or_default();
        records.iter().any(|(name, _)| name == agent)
    }

    /// All transaction records, with their agents.
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
            // A name of an agent has no dot.
            if let Some((agent, rest)) = text.split_once('.')
                && rest.ends_with(".json")
            {
                records.push((agent.to_string(), path.join(&name)));
            }
        }
        records.sort();
        Ok(records)
    }

    /// Every random name in a transaction record or in the name of one, also of a
    /// record that is damaged.
    pub(super) fn names_in_journals(&self) -> Result<HashSet<String>> {
        let mut names = HashSet::new();
        for (_, record) in self.journals()? {
            names.extend(durable::find_random_names(record.as_os_str().as_bytes()));
            match durable::read_own_file(&record) {
                Ok(text) => names.extend(durable::find_random_names(&text)),
                // Its run has come to its end.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::from_io("read", &record, &error)),
            }
        }
        Ok(names)
    }
}

impl Run<'_> {
    /// Whether the memory begins with what a run installed, read anew.
    pub(super) fn read_back(
        &self,
        directory: &dyn MemoryDirectory,
        event: &RunEvent,
    ) -> Result<ReadBack, Error> {
        let same = match event.after {
            Some(FileState::File { sha256, size, .. }) => {
                directory.memory_begins_with(sha256, size)
            }
            Some(FileState::Special(ref odd)) => directory
                .stat_memory()
                .map(|object| object == MemoryObject::Special(odd.clone())),
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

    /// Whether there is a record of the agent's, so that something may be left in
    /// its directory.
    pub(super) fn can_have_journal(&self, agent: &Agent) -> bool {
        let journals = self.engine.journals();
        journals.map_or(true, |left| left.iter().any(|(of, _)| *of == agent.name))
    }

    /// Step 1: looks what interrupted runs left, and puts it right. Under the
    /// agent's lock.
    pub(super) fn recover(
        &self,
        agent: &Agent,
        lock: Option<&Arc<AgentLock>>,
    ) -> Result<(), Error> {
        let journals = self.engine.journals()?;
        self.recover_from_journals(agent, &journals, lock)
    }

    /// The same for one of several agents, whose records are among `left`.
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
        let Some((transaction, marks)) = read_journal(journal_path)? else {
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
            staged_name: staged,
            memory_inode: inode,
            known_digests: mut known,
            ledger_seq: ledger,
            ..
        } = transaction;
        let mut marked = None;
        let mut names = Vec::new();
        let mut late: HashMap<String, LateWrites> = HashMap::new();
        for mark in marks {
            match mark {
                JournalRecord::Swapped(method, names) => {
                    event.method = Some(method);
                    marked = Some(names);
                }
                JournalRecord::LegacyLateEntry(written) => {
                    known.push(written.digest);
                    event.late_entries.push(written);
                }
                JournalRecord::LateEntry {
                    name,
                    written,
                    attributes,
                } => {
                    known.push(written.whole_content().0);
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
        let ledger_events = self.engine.ledger_events_after(&event, ledger)?;
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
            directory.take_over_run(&staged, &names)?;
        }
        let new_name = directory.staged_file_name(&staged);
        let is_own_run = event.run == self.id;
        let mut unmarked = None;
        if event.method.is_none() && !is_recorded {
            let remote = agent.location.host().is_some();
            unmarked =
                self.detect_swap_method(directory.as_ref(), &event, &staged, inode, remote)?;
            event.method = unmarked;
        }
        let was_swapped = is_recorded || event.method.is_some();
        // A mark of it, which is next, must not be on the disk before it.
        durable::sync_all(directory.take_unsynced())?;
        if agent.location.host().is_some() && event.after.as_ref().is_some_and(is_file) {
            // There it is a second name of the new file, or half of one: never
            // anything of the agent's.
            directory.remove_name(&new_name)?;
        }
        directory.remove_unfinished_staging(&staged)?;
        known.extend(event.after.as_ref().and_then(FileState::digest));
        let mut names = directory.displaced_names(&staged)?;
        if let Some(marked) = marked {
            let marked: HashSet<String> = marked.into_iter().collect();
            names.retain(|name| *name == new_name || marked.contains(name));
        }
        // An agent may have put more there, and which are its own nobody can tell.
        let further = names.split_off(MAX_DISPLACED_FILES.min(names.len()));
        let mut displaced = DisplacedFiles {
            journal: file,
            names,
            remaining_names: further,
            known_digests: known,
            archived_content: None,
            late_writes: late,
            unmarked_swap: unmarked,
        };
        let has_displaced = !displaced.names.is_empty();
        let (mut notes, mut settled) =
            self.settle_displaced(agent, directory.as_ref(), &mut event, &mut displaced);
        // Where nobody can see who has a file open, it is looked at twice.
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
        let shown = |names: &[String]| {
            let names: Vec<String> = names
                .iter()
                .map(|name| directory.display_name(name))
                .collect();
            names.join(", ")
        };
        let stuck = settled.is_err();
        if let Err(error) = settled {
            // What cannot be settled where the memory was replaced stays beside it
            // with its record, and holds up nothing else.
            if !was_swapped {
                return Err(error);
            }
            let left = shown(&displaced.names);
            let message = format!("run {} displaced {left}, which stays", event.run);
            self.report_error(error.with_context(format!("{}: {message}", agent.name)));
        }
        durable::sync_all(directory.take_unsynced())?;
        let put_off = displaced.is_deferred();
        let left = displaced.names;
        if !left.is_empty() && !stuck {
            let left = shown(&left);
            let line = match put_off {
                true => format!(
                    "{left} is changed again and again, which run {} displaced; a run that finds \
                     it as the one before did settles it",
                    event.run
                ),
                false => format!(
                    "a writer still has {left} open, which run {} displaced; the next run settles \
                     it",
                    event.run
                ),
            };
            self.log_line(&format!("{}: {line}", agent.name));
        }
        let is_settled = left.is_empty() && displaced.remaining_names.is_empty();
        if !displaced.remaining_names.is_empty() {
            self.log_line(&format!(
                "{}: {} more files stand where run {} displaced some; the next run goes on with them",
                agent.name,
                displaced.remaining_names.len(),
                event.run
            ));
        }
        let (note, must_record) = match (is_recorded, was_swapped) {
            (true, _) => (
                "settled what this run displaced",
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
            event.outcome = match is_own_run {
                true => Outcome::Ok,
                false => Outcome::Failed,
            };
        }
        // Of what is archived and recorded already it is enough to say that its
        // file is gone now.
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

    /// The directory that a record is about. None when it is not there: the record
    /// stays until it is, and holds up nothing else.
    fn open_transaction_directory(
        &self,
        agent: &Agent,
        record: &Path,
        transaction: &Transaction,
    ) -> Result<Option<Box<dyn MemoryDirectory>>, Error> {
        if transaction.event.host != host_name(agent) {
            let why = format!("that was on {}", transaction.event.host);
            self.keep_journal(agent, record, transaction, &why);
            return Ok(None);
        }
        // A host may be called what this machine is.
        if transaction.connection_target != connection_target(agent) {
            let then = transaction
                .connection_target
                .as_deref()
                .unwrap_or("this machine");
            let why = format!("that was on {then}");
            self.keep_journal(agent, record, transaction, &why);
            return Ok(None);
        }
        let here = transaction.memory == agent.location.memory();
        let directory = match self.engine.open_directory_at(agent, &transaction.memory) {
            Ok(directory) => directory,
            // It may answer again in a moment; and then nothing may be done
            // in that directory before this.
            Err(error) if here && can_become_reachable(agent, &error) => return Err(error.into()),
            Err(error) => {
                self.keep_journal(agent, record, transaction, &error.to_string());
                return Ok(None);
            }
        };
        let another = match (transaction.directory_id, directory.directory_id()?) {
            (Some(then), Some(now)) => then != now,
            _ => false,
        };
        // A name that nobody can guess tells more than a number.
        if another
            && directory
                .displaced_names(&transaction.staged_name)?
                .is_empty()
        {
            let why = "another directory stands in its place";
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
            "{}: run {} was interrupted in {}: {why}; its record {} stays until that directory is back",
            agent.name,
            transaction.event.run,
            directory.display(),
            journal_path.display()
        );
        let hint = "if that directory never comes back, delete the record";
        self.report_error(Error::new(ErrorKind::Partial, message).with_hint(hint));
    }

    /// How the memory was replaced, by what stands there, for a record that
    /// does not say; none when it was not.
    fn detect_swap_method(
        &self,
        directory: &dyn MemoryDirectory,
        event: &RunEvent,
        staged: &str,
        inode: u64,
        remote: bool,
    ) -> Result<Option<SwapMethod>, Error> {
        let stands = directory.stat_memory()?;
        if let Some(FileState::Special(odd)) = &event.after {
            return Ok(
                (stands == MemoryObject::Special(odd.clone())).then_some(SwapMethod::Exchange)
            );
        }
        let new_name = directory.staged_file_name(staged);
        let new = event.after.as_ref().and_then(FileState::digest);
        let asides = || -> Result<bool, Error> {
            let names = directory.displaced_names(staged)?;
            Ok(names.iter().any(|name| *name != new_name))
        };
        if remote && stands != MemoryObject::Absent {
            // Without inodes the names tell: what stood there goes aside first.
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
        let built = match new {
            Some(new) => directory.find_content(&new_name, new)?,
            None => None,
        };
        if let Some(built) = built {
            // Taken away, and interrupted before the new file took its place?
            return match stands {
                MemoryObject::Absent => {
                    durable::sync_all(directory.take_unsynced())?;
                    Ok(Some(directory.swap(staged, built)?.method))
                }
                _ if directory.is_half_written(staged)? => {
                    Ok(Some(directory.write_in_place(staged, built)?.method))
                }
                // The new file has two names for a moment where it gets the
                // memory's by a link.
                _ if self.read_back(directory, event)? == ReadBack::Same => Ok(match asides()? {
                    true => Some(SwapMethod::TakeAway),
                    false if event.before == Some(FileState::Absent) => Some(SwapMethod::Create),
                    false => None,
                }),
                _ => Ok(None),
            };
        }
        if matches!(&stands, MemoryObject::File(file) if inode != 0 && file.stamp.inode == inode) {
            return Ok(None);
        }
        let names = directory.displaced_names(staged)?;
        if remote && new.is_some() {
            // There is no memory, and no new file that could take its place: the old
            // one is better than none.
            let mut asides = names.iter().filter(|name| **name != new_name);
            if let (Some(aside), None) = (asides.next(), asides.next()) {
                directory.restore_memory_name(aside)?;
                return Ok(None);
            }
        }
        Ok(match names.first() {
            Some(_) if new.is_none() => Some(SwapMethod::Remove),
            Some(name) if *name != new_name => Some(SwapMethod::TakeAway),
            // A host exchanges nothing: that is the new file, half of it.
            Some(_) if remote => None,
            Some(_) => Some(SwapMethod::Exchange),
            // Nothing is displaced where nothing stood. Where something did,
            // the new file was never made, whatever the agent saved since.
            None if event.before == Some(FileState::Absent)
                && self.read_back(directory, event)? == ReadBack::Same =>
            {
                Some(SwapMethod::Create)
            }
            None => None,
        })
    }

    /// Says which records nobody settles.
    pub(super) fn report_unclaimed_journals(&self) {
        match self.engine.unclaimed_journals() {
            Ok(records) => {
                for record in records {
                    let message = format!(
                        "{} is of an agent that is not configured: what its run left is not settled",
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

    /// Writes a record. What it answers has to be synced before anything is done
    /// in the agent's directory.
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
                format!("cannot write a transaction: {error}"),
            )
        })?;
        text.push(b'\n');
        let mut file = NewFile::create(&directory, &path, archive.file_mode())?;
        archive.repair_program_file(file.file(), &path)?;
        file.write(&text)?;
        let name = format!("{}{}.json", agent.name, transaction.staged_name);
        if !file.link_as(name.as_ref())? {
            let message = format!("{} exists already", path.join(name).display());
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
