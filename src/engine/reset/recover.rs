//! The record of a transaction, and putting right what an interrupted run left.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Run;
use super::settle::{Displaced, LateWrites};
use super::steps::hold;
use crate::archive::{OWN, Written};
use crate::config::Agent;
use crate::digest::Digest;
use crate::durable::{self, NewFile, Unsynced};
use crate::engine::Engine;
use crate::engine::ledger::{Event, FileState, Operation, Outcome};
use crate::engine::lock::{self, Lock};
use crate::engine::observe::host;
use crate::engine::observe::way;
use crate::error::{Error, Kind, PathContext, Result};
use crate::transport::{Attributes, Cause, Folder, MemoryObject, Method, Stamp, TransportError};

/// The record of a transaction: what an interrupted run left, and what it was
/// about. `<archive_dir>/.shepherd/tx/AGENT.RANDOM.json`, gone when its last
/// displaced file is settled. A writer that never closes an old file keeps one
/// record alive and holds up no later run.
///
/// This is its first line. Each further one is a [`JournalRecord`]. A record whose first
/// line was cut short by a power cut was not on the disk before anything was done
/// in the agent's folder, so nothing was.
#[derive(Serialize, Deserialize)]
pub(super) struct Transaction {
    pub(super) event: Event,
    pub(super) memory: PathBuf,
    /// How its host was reached, by [`way`].
    #[serde(default)]
    pub(super) way: Option<String>,
    /// What tells the memory's folder from another one, where known.
    #[serde(default)]
    pub(super) folder: Option<u64>,
    pub(super) staged: String,
    /// Inode of the file that stood there before; 0 where unknown.
    pub(super) inode: u64,
    /// Digests of contents that are archived already.
    pub(super) known: Vec<Digest>,
    /// Number of the ledger's last record when this one was written: what tells of
    /// this transaction comes behind it.
    #[serde(default)]
    pub(super) ledger: u64,
}

/// What a run adds to its record as it goes on, so that nobody has to guess
/// later how far it came.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalRecord {
    /// The new file stands in the memory's place, and these names beside it are
    /// what it displaced. Agents can see such names, and make more of them.
    Swapped(Method, Vec<String>),
    /// A late write was archived; the file that held it may go. Of earlier versions.
    Late(Written),
    /// The same, for the displaced file of this name, with its owner and mode: it need
    /// not be the file that was read first.
    Archived {
        name: String,
        written: Written,
        attributes: Attributes,
    },
    /// A run had enough of the displaced file of this name, which looked like this.
    PutOff { name: String, stamp: Stamp },
    /// Somebody finishes for the run, and gives its folder on the host this name.
    TakenOver(String),
}

/// A transaction record, open for marks.
pub(super) struct RecordFile {
    pub(super) path: PathBuf,
    file: Arc<File>,
}

impl RecordFile {
    fn open(path: &Path) -> Result<RecordFile, Error> {
        let file = durable::open_own(path, OpenOptions::new().append(true)).path("open", path)?;
        Ok(RecordFile {
            path: path.to_path_buf(),
            file: Arc::new(file),
        })
    }

    /// Adds a mark, which has to be synced yet.
    pub(super) fn add(&self, mark: &JournalRecord) -> Result<(), Error> {
        // The line feed comes first: what a full disk cut short stays on a line
        // of its own, which is no JSON and counts for nothing.
        let mut line = b"\n".to_vec();
        serde_json::to_writer(&mut line, mark)
            .map_err(|error| Error::new(Kind::Internal, format!("cannot write a mark: {error}")))?;
        (&*self.file).write_all(&line).path("append to", &self.path)
    }

    /// Adds a mark, durably.
    pub(super) fn mark(&self, mark: &JournalRecord) -> Result<(), Error> {
        self.add(mark)?;
        self.unsynced().sync()
    }

    /// The file with its marks.
    pub(super) fn unsynced(&self) -> Unsynced {
        Unsynced::new(Arc::clone(&self.file) as _, &self.path)
    }
}

/// Reads a record with its marks; none of one that was never on the disk.
fn read_record(record: &Path) -> Result<Option<(Transaction, Vec<JournalRecord>)>, Error> {
    let text = durable::read_own(record).path("read", record)?;
    let mut lines = text.split(|byte| *byte == b'\n');
    let is_no_record = |why: &str| {
        let message = format!("{} is no transaction record: {why}", record.display());
        Error::new(Kind::Integrity, message).hint(
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
    if !durable::is_random_name(&transaction.staged) {
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
const DISPLACED: usize = 17;

/// What can be done about a record that nobody settles.
pub const UNCLAIMED: &str = "where another config names the agent, its next run there settles it; \
     otherwise give the agent its name back until its next reset, or archive the .shepherd-* files \
     in its directory by hand and then delete the record";

/// Whether a directory that cannot be opened may be there all the same.
fn may_answer(agent: &Agent, error: &TransportError) -> bool {
    agent.place.host().is_some() || error.cause == Cause::Unreachable
}

impl Engine {
    /// Transaction records of agents that are not configured, for example
    /// because they were renamed: no run of this config settles them. Those of a run in
    /// progress are left out: another config may name its agents.
    ///
    /// # Errors
    /// An archive that cannot be read.
    pub fn unclaimed(&self) -> Result<Vec<PathBuf>> {
        let mut records = self.transactions()?;
        records.retain(|(agent, _)| {
            let is_idle = || lock::holder(&self.archive, agent).is_none();
            self.config().agent(agent).is_none() && is_idle()
        });
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// What the ledger says of an event's agent and run behind a record, oldest first.
    fn records_of(&self, event: &Event, since: u64) -> Result<Vec<Event>> {
        let (back, _) = self.ledger_back()?;
        let mut back = back.until(since);
        let is_wanted = |run: &str, agent: &str| run == event.run && agent == event.agent;
        let mut events = Vec::new();
        while let Some((_, record)) = back.next(|it| is_wanted(&it.run, &it.agent))? {
            events.insert(0, record.what);
        }
        Ok(events)
    }

    /// Whether a run of this agent has not come to its end. Who cannot look does not
    /// know.
    pub(in crate::engine) fn is_unsettled(&self, agent: &str) -> bool {
        let records = self.transactions().unwrap_or_default();
        records.iter().any(|(name, _)| name == agent)
    }

    /// All transaction records, with their agents.
    pub(super) fn transactions(&self) -> Result<Vec<(String, PathBuf)>> {
        let path = self.archive().own("tx");
        let items = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            items => items.path("list", &path)?,
        };
        let mut records = Vec::new();
        for item in items {
            let name = item.path("list", &path)?.file_name();
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
    pub(super) fn named_in_transactions(&self) -> Result<HashSet<String>> {
        let mut names = HashSet::new();
        for (_, record) in self.transactions()? {
            names.extend(durable::random_names_in(record.as_os_str().as_bytes()));
            match durable::read_own(&record) {
                Ok(text) => names.extend(durable::random_names_in(&text)),
                // Its run has come to its end.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("read", &record, &error)),
            }
        }
        Ok(names)
    }
}

impl Run<'_> {
    /// Whether the memory begins with what a run installed, read anew.
    pub(super) fn read_back(&self, folder: &dyn Folder, event: &Event) -> Result<ReadBack, Error> {
        let same = match event.after {
            Some(FileState::File { sha256, size, .. }) => folder.begins_with(sha256, size),
            Some(FileState::Odd(ref odd)) => folder
                .look()
                .map(|object| object == MemoryObject::Odd(odd.clone())),
            _ => folder.look().map(|object| object == MemoryObject::Absent),
        };
        match same {
            Ok(true) => Ok(ReadBack::Same),
            Ok(false) => Ok(ReadBack::Other),
            Err(error) if error.cause == Cause::Leased => Ok(ReadBack::Leased),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is a record of the agent's, so that something may be left in
    /// its folder.
    pub(super) fn has_record(&self, agent: &Agent) -> bool {
        let left = self.engine.transactions();
        left.map_or(true, |left| left.iter().any(|(of, _)| *of == agent.name))
    }

    /// Step 1: looks what interrupted runs left, and puts it right. Under the
    /// agent's lock.
    pub(super) fn recover(&self, agent: &Agent, lock: Option<&Arc<Lock>>) -> Result<(), Error> {
        let left = self.engine.transactions()?;
        self.recover_from(agent, &left, lock)
    }

    /// The same for one of several agents, whose records are among `left`.
    pub(super) fn recover_from(
        &self,
        agent: &Agent,
        left: &[(String, PathBuf)],
        lock: Option<&Arc<Lock>>,
    ) -> Result<(), Error> {
        for (_, record) in left.iter().filter(|(of, _)| *of == agent.name) {
            self.recover_one(agent, record, lock)?;
        }
        Ok(())
    }

    fn recover_one(
        &self,
        agent: &Agent,
        record: &Path,
        lock: Option<&Arc<Lock>>,
    ) -> Result<(), Error> {
        let Some((transaction, marks)) = read_record(record)? else {
            self.end_transaction(record);
            return Ok(());
        };
        let Some(folder) = self.folder_of(agent, record, &transaction)? else {
            return Ok(());
        };
        hold(folder.as_ref(), lock);
        let Transaction {
            mut event,
            staged,
            inode,
            mut known,
            ledger,
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
                JournalRecord::Late(written) => {
                    known.push(written.digest);
                    event.late.push(written);
                }
                JournalRecord::Archived {
                    name,
                    written,
                    attributes,
                } => {
                    known.push(written.whole().0);
                    late.entry(name).or_default().was_archived(&written);
                    event.late.push(written);
                    event.attributes = Some(attributes);
                }
                JournalRecord::PutOff { name, stamp } => {
                    late.entry(name).or_default().put_off_at(stamp)
                }
                JournalRecord::TakenOver(name) => names.push(name),
            }
        }
        let past = self.engine.records_of(&event, ledger)?;
        let recorded = past
            .iter()
            .any(|past| (&past.before, &past.after) == (&event.before, &event.after));
        event
            .late
            .retain(|late| !past.iter().any(|past| past.late.contains(late)));
        let kept_before: Vec<String> = past.iter().flat_map(|it| it.kept.clone()).collect();
        event.kept.clone_from(&kept_before);
        let file = RecordFile::open(record)?;
        if agent.place.host().is_some() {
            let name = durable::random_name()?;
            file.mark(&JournalRecord::TakenOver(name.clone()))?;
            names.push(name);
            folder.take_over(&staged, &names)?;
        }
        let new_name = folder.new_name(&staged);
        let own = event.run == self.id;
        let mut unmarked = None;
        if event.method.is_none() && !recorded {
            let remote = agent.place.host().is_some();
            unmarked = self.look_for_swap(folder.as_ref(), &event, &staged, inode, remote)?;
            event.method = unmarked;
        }
        let swapped = recorded || event.method.is_some();
        // A mark of it, which is next, must not be on the disk before it.
        durable::sync_all(folder.unsynced())?;
        if agent.place.host().is_some() && event.after.as_ref().is_some_and(is_file) {
            // There it is a second name of the new file, or half of one: never
            // anything of the agent's.
            folder.remove(&new_name)?;
        }
        folder.remove_unfinished(&staged)?;
        known.extend(event.after.as_ref().and_then(FileState::digest));
        let mut names = folder.displaced_names(&staged)?;
        if let Some(marked) = marked {
            let marked: HashSet<String> = marked.into_iter().collect();
            names.retain(|name| *name == new_name || marked.contains(name));
        }
        // An agent may have put more there, and which are its own nobody can tell.
        let further = names.split_off(DISPLACED.min(names.len()));
        let mut displaced = Displaced {
            record: file,
            names,
            further,
            known,
            same: None,
            late,
            unmarked,
        };
        let found = !displaced.names.is_empty();
        let (mut notes, mut settled) =
            self.settle_displaced(agent, folder.as_ref(), &mut event, &mut displaced);
        // Where nobody can see who has a file open, it is looked at twice.
        let clock = self.engine.clock();
        let end = clock.instant() + RECOVERY_SETTLE_TIMEOUT;
        while let Some(due) = folder.due()
            && settled.is_ok()
            && !displaced.names.is_empty()
            && clock.instant() < end
        {
            clock.sleep(due.saturating_duration_since(clock.instant()));
            let (more, again) =
                self.settle_displaced(agent, folder.as_ref(), &mut event, &mut displaced);
            notes.extend(more);
            settled = again;
        }
        event.kept.retain(|name| !kept_before.contains(name));
        let shown = |names: &[String]| {
            let names: Vec<String> = names.iter().map(|name| folder.shown(name)).collect();
            names.join(", ")
        };
        let stuck = settled.is_err();
        if let Err(error) = settled {
            // What cannot be settled where the memory was replaced stays beside it
            // with its record, and holds up nothing else.
            if !swapped {
                return Err(error);
            }
            let left = shown(&displaced.names);
            let message = format!("run {} displaced {left}, which stays", event.run);
            self.trouble(error.context(format!("{}: {message}", agent.name)));
        }
        durable::sync_all(folder.unsynced())?;
        let put_off = displaced.is_put_off();
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
            self.say(&format!("{}: {line}", agent.name));
        }
        let over = left.is_empty() && displaced.further.is_empty();
        if !displaced.further.is_empty() {
            self.say(&format!(
                "{}: {} more files stand where run {} displaced some; the next run goes on with them",
                agent.name,
                displaced.further.len(),
                event.run
            ));
        }
        let (note, tell) = match (recorded, swapped) {
            (true, _) => (
                "settled what this run displaced",
                !event.late.is_empty() || !event.kept.is_empty(),
            ),
            (false, true) => (
                "interrupted after the memory was replaced; finished since",
                true,
            ),
            (false, false) => (
                "interrupted before the memory was replaced",
                !event.late.is_empty() || !event.kept.is_empty() || !own && over,
            ),
        };
        if recorded || !swapped && own {
            event.act = Operation::Repair;
        }
        if !swapped {
            event.after = None;
            event.outcome = match own {
                true => Outcome::Ok,
                false => Outcome::Failed,
            };
        }
        // Of what is archived and recorded already it is enough to say that its
        // file is gone now.
        if tell || recorded && found && over {
            notes.insert(0, note.to_string());
        }
        for note in &notes {
            self.say(&format!("{}: run {}: {note}", agent.name, event.run));
        }
        if tell {
            event.note = Some(notes.join("; "));
            self.engine.record_all(vec![event])?;
        }
        if over {
            self.end_transaction(record);
        }
        Ok(())
    }

    /// The folder that a record is about. None when it is not there: the record
    /// stays until it is, and holds up nothing else.
    fn folder_of(
        &self,
        agent: &Agent,
        record: &Path,
        transaction: &Transaction,
    ) -> Result<Option<Box<dyn Folder>>, Error> {
        if transaction.event.host != host(agent) {
            let why = format!("that was on {}", transaction.event.host);
            self.keep_record(agent, record, transaction, &why);
            return Ok(None);
        }
        // A host may be called what this machine is.
        if transaction.way != way(agent) {
            let then = transaction.way.as_deref().unwrap_or("this machine");
            let why = format!("that was on {then}");
            self.keep_record(agent, record, transaction, &why);
            return Ok(None);
        }
        let here = transaction.memory == agent.place.memory();
        let folder = match self.engine.open_at(agent, &transaction.memory) {
            Ok(folder) => folder,
            // It may answer again in a moment; and then nothing may be done
            // in that folder before this.
            Err(error) if here && may_answer(agent, &error) => return Err(error.into()),
            Err(error) => {
                self.keep_record(agent, record, transaction, &error.to_string());
                return Ok(None);
            }
        };
        let another = match (transaction.folder, folder.identity()?) {
            (Some(then), Some(now)) => then != now,
            _ => false,
        };
        // A name that nobody can guess tells more than a number.
        if another && folder.displaced_names(&transaction.staged)?.is_empty() {
            let why = "another directory stands in its place";
            self.keep_record(agent, record, transaction, why);
            return Ok(None);
        }
        Ok(Some(folder))
    }

    fn keep_record(&self, agent: &Agent, record: &Path, transaction: &Transaction, why: &str) {
        let folder = transaction.memory.parent().unwrap_or(Path::new("/"));
        let message = format!(
            "{}: run {} was interrupted in {}: {why}; its record {} stays until that directory is back",
            agent.name,
            transaction.event.run,
            folder.display(),
            record.display()
        );
        let hint = "if that directory never comes back, delete the record";
        self.trouble(Error::new(Kind::Partial, message).hint(hint));
    }

    /// How the memory was replaced, by what stands there, for a record that
    /// does not say; none when it was not.
    fn look_for_swap(
        &self,
        folder: &dyn Folder,
        event: &Event,
        staged: &str,
        inode: u64,
        remote: bool,
    ) -> Result<Option<Method>, Error> {
        let stands = folder.look()?;
        if let Some(FileState::Odd(odd)) = &event.after {
            return Ok((stands == MemoryObject::Odd(odd.clone())).then_some(Method::Exchange));
        }
        let new_name = folder.new_name(staged);
        let new = event.after.as_ref().and_then(FileState::digest);
        let asides = || -> Result<bool, Error> {
            let names = folder.displaced_names(staged)?;
            Ok(names.iter().any(|name| *name != new_name))
        };
        if remote && stands != MemoryObject::Absent {
            // Without inodes the names tell: what stood there goes aside first.
            return Ok(match (asides()?, new) {
                (true, _) => Some(Method::TakeAway),
                (false, None) if folder.stands(&new_name)? => Some(Method::Remove),
                (false, Some(_))
                    if event.before == Some(FileState::Absent)
                        && self.read_back(folder, event)? == ReadBack::Same =>
                {
                    Some(Method::Create)
                }
                _ => None,
            });
        }
        let built = match new {
            Some(new) => folder.holds(&new_name, new)?,
            None => None,
        };
        if let Some(built) = built {
            // Taken away, and interrupted before the new file took its place?
            return match stands {
                MemoryObject::Absent => {
                    durable::sync_all(folder.unsynced())?;
                    Ok(Some(folder.swap(staged, built)?.method))
                }
                _ if folder.half_written(staged)? => {
                    Ok(Some(folder.write_in_place(staged, built)?.method))
                }
                // The new file has two names for a moment where it gets the
                // memory's by a link.
                _ if self.read_back(folder, event)? == ReadBack::Same => Ok(match asides()? {
                    true => Some(Method::TakeAway),
                    false if event.before == Some(FileState::Absent) => Some(Method::Create),
                    false => None,
                }),
                _ => Ok(None),
            };
        }
        if matches!(&stands, MemoryObject::File(file) if inode != 0 && file.stamp.inode == inode) {
            return Ok(None);
        }
        let names = folder.displaced_names(staged)?;
        if remote && new.is_some() {
            // There is no memory, and no new file that could take its place: the old
            // one is better than none.
            let mut asides = names.iter().filter(|name| **name != new_name);
            if let (Some(aside), None) = (asides.next(), asides.next()) {
                folder.give_back(aside)?;
                return Ok(None);
            }
        }
        Ok(match names.first() {
            Some(_) if new.is_none() => Some(Method::Remove),
            Some(name) if *name != new_name => Some(Method::TakeAway),
            // A host exchanges nothing: that is the new file, half of it.
            Some(_) if remote => None,
            Some(_) => Some(Method::Exchange),
            // Nothing is displaced where nothing stood. Where something did,
            // the new file was never made, whatever the agent saved since.
            None if event.before == Some(FileState::Absent)
                && self.read_back(folder, event)? == ReadBack::Same =>
            {
                Some(Method::Create)
            }
            None => None,
        })
    }

    /// Says which records nobody settles.
    pub(super) fn report_unclaimed(&self) {
        match self.engine.unclaimed() {
            Ok(records) => {
                for record in records {
                    let message = format!(
                        "{} is of an agent that is not configured: what its run left is not settled",
                        record.display()
                    );
                    self.trouble(Error::new(Kind::Partial, message).hint(UNCLAIMED));
                }
            }
            Err(error) => self.trouble(error),
        }
    }

    /// Writes a record. What it answers has to be synced before anything is done
    /// in the agent's folder.
    pub(super) fn write_transaction(
        &self,
        agent: &Agent,
        transaction: &Transaction,
    ) -> Result<(RecordFile, [Unsynced; 2]), Error> {
        let archive = self.engine.archive();
        let folder = Arc::new(archive.folder(&Path::new(OWN).join("tx"))?);
        let path = archive.own("tx");
        let mut text = serde_json::to_vec(transaction).map_err(|error| {
            Error::new(
                Kind::Internal,
                format!("cannot write a transaction: {error}"),
            )
        })?;
        text.push(b'\n');
        let mut file = NewFile::create(&folder, &path, archive.file_mode())?;
        archive.dress_own(file.file(), &path)?;
        file.write(&text)?;
        let name = format!("{}{}.json", agent.name, transaction.staged);
        if !file.link(name.as_ref())? {
            let message = format!("{} exists already", path.join(name).display());
            return Err(Error::new(Kind::Internal, message));
        }
        let record = RecordFile {
            path: path.join(name),
            file: Arc::clone(file.file()),
        };
        Ok((record, [file.content(), file.folder()]))
    }

    pub(super) fn end_transaction(&self, record: &Path) {
        if let Err(error) = std::fs::remove_file(record) {
            self.trouble(Error::io("remove", record, &error));
        }
    }
}
