//! The journal of a transaction (the "transaction record" of messages and documents): its format,
//! reading and writing.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::archive::{PROGRAM_DIRECTORY_NAME, WrittenEntry};
use crate::base::digest::Digest;
use crate::base::durable::{self, NewFile, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::config::Agent;
use crate::store::Journals;
use crate::store::file::ledger::MAX_RECORD_BYTES;
use crate::store::file::lock;
use crate::store::record::{FileChange, RunEvent};
use crate::transport::{Attributes, Stamp, SwapMethod};

/// The first line of a journal: what a run was about to change. Each further line is a
/// [`JournalRecord`].
///
/// A journal is `<archive_dir>/.shepherd/tx/AGENT.RANDOM.json`; it is removed when its last
/// displaced file is settled. A writer that never closes an old file keeps one journal alive and
/// delays no later run. The journal is synced before the run changes the agent's directory, so a
/// first line that a power cut truncated means that nothing was changed.
#[derive(Serialize, Deserialize)]
pub(crate) struct Transaction {
    #[serde(deserialize_with = "deserialize_event")]
    pub(crate) event: RunEvent,
    /// The files, in the order of [`RunEvent::file_changes_mut`].
    pub(crate) files: Vec<TransactionFile>,
    /// How the host was reached, as [`connection_target`] returns it.
    pub(crate) connection_target: Option<String>,
    /// Directories to remove once the files in them are gone, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) removed_directories: Vec<PathBuf>,
    /// Number of the ledger's last record when the journal was written; every record about this
    /// transaction follows it.
    pub(crate) ledger_seq: u64,
}

/// A file that a run is about to change.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TransactionFile {
    pub(crate) path: PathBuf,
    /// The identity of its directory, where known.
    pub(crate) directory_id: Option<u64>,
    #[serde(rename = "staged")]
    pub(crate) staged_name: String,
    /// Inode of the file before the run; 0 if unknown.
    pub(crate) inode: u64,
    /// Digests of contents that are in the archive.
    #[serde(rename = "known")]
    pub(crate) known_digests: Vec<Digest>,
}

/// Deserializes an event with its flattened change.
fn deserialize_event<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunEvent, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let event = RunEvent::deserialize(&value).map_err(serde::de::Error::custom)?;
    let change = FileChange::deserialize(&value).map_err(serde::de::Error::custom)?;
    Ok(RunEvent { change, ..event })
}

impl Transaction {
    /// Whether later events of the same agent and run in the ledger have its change.
    pub(crate) fn is_recorded_by(&self, events: &[RunEvent]) -> bool {
        let mut events = events.iter();
        events.any(|it| it.has_same_states(&self.event))
    }
}

/// A line that a run appends to its journal as it proceeds, so that recovery knows how far it came.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JournalRecord {
    /// The decision of an edit: all new files are staged, and recovery finishes the swaps.
    Decided,
    /// The new file is in place, and the files of these names beside it are displaced. Agents can
    /// see such names, and create more of them.
    Swapped {
        file: usize,
        method: SwapMethod,
        displaced: Vec<String>,
    },
    /// A late write in the displaced file of this name was archived, with the file's owner and
    /// mode: it need not be the file that was read first.
    LateEntry {
        file: usize,
        name: String,
        written: WrittenEntry,
        attributes: Attributes,
    },
    /// A run deferred the displaced file of this name, which had this stamp.
    Deferred {
        file: usize,
        name: String,
        stamp: Stamp,
    },
    /// The entry at this path was scanned; it is described as it is recorded, at another path if it
    /// was released from quarantine, and with its copy without secrets, if it has one.
    Screened {
        from: PathBuf,
        entry: WrittenEntry,
        copy: Option<WrittenEntry>,
    },
    /// A recovering run has taken over, and gives the run's directory beside this file on the host
    /// this name.
    TakenOver { file: usize, name: String },
}

/// A journal that is open for appending.
pub(crate) struct Journal {
    pub(crate) path: PathBuf,
    file: Arc<File>,
}

impl Journal {
    pub(crate) fn open(path: &Path) -> Result<Journal, Error> {
        let file = durable::open_own_file(path, OpenOptions::new().append(true))
            .with_path("open", path)?;
        Ok(Journal {
            path: path.to_path_buf(),
            file: Arc::new(file),
        })
    }

    /// Appends a line, which the caller must sync.
    pub(crate) fn append(&self, record: &JournalRecord) -> Result<(), Error> {
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
    pub(crate) fn append_durably(&self, record: &JournalRecord) -> Result<(), Error> {
        self.append(record)?;
        self.unsynced().sync()
    }

    /// Returns the journal for a sync.
    pub(crate) fn unsynced(&self) -> UnsyncedObject {
        UnsyncedObject::new(Arc::clone(&self.file) as _, &self.path)
    }
}

/// Returns the error for a journal that recovery cannot use.
pub(crate) fn damaged_journal_error(path: &Path, why: &str) -> Error {
    let message = format!("{} is not a transaction record: {why}", path.display());
    Error::new(ErrorKind::Integrity, message).with_hint(
        "it names the files that an interrupted run left in the agent's directory: archive the \
         .shepherd-* files there by hand, then delete the record",
    )
}

/// Reads a journal; None for one whose first line was never completely written.
pub(crate) fn read_journal(
    path: &Path,
) -> Result<Option<(Transaction, Vec<JournalRecord>)>, Error> {
    let text = durable::read_own_file(path).map_err(|error| match error.kind() {
        // A FIFO, a directory or a symlink.
        io::ErrorKind::InvalidInput => damaged_journal_error(path, &error.to_string()),
        _ => Error::from_io("read", path, &error),
    })?;
    let mut lines = text.split(|byte| *byte == b'\n');
    let transaction: Transaction = match serde_json::from_slice(lines.next().unwrap_or_default()) {
        Ok(transaction) => transaction,
        Err(_) if !text.contains(&b'\n') => return Ok(None),
        Err(error) => return Err(damaged_journal_error(path, &error.to_string())),
    };
    // A run must not remove files of other names, even if a journal names them.
    let mut files = transaction.files.iter();
    if !files.all(|file| durable::is_random_name(&file.staged_name)) {
        let why = "a staged name in it is not one of a run";
        return Err(damaged_journal_error(path, why));
    }
    if transaction.files.len() != transaction.event.file_changes().len() {
        let why = "its files and its changes differ in number";
        return Err(damaged_journal_error(path, why));
    }
    let journal_records = lines.filter_map(|line| serde_json::from_slice(line).ok());
    Ok(Some((transaction, journal_records.collect())))
}

/// The hint for journals of agents that are not configured.
pub const UNCLAIMED_JOURNAL_HINT: &str = "if another config has the agent, its next run there \
     settles it; otherwise configure the agent under its old name for one reset, or archive the \
     .shepherd-* files in its directory by hand and then delete the record";

impl Journals {
    /// Returns the journals of agents that are not configured, for example because they were
    /// renamed: no run of this config settles them. The journals of a run in progress are left out:
    /// another config may name its agents.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn unclaimed_journals(&self) -> Result<Vec<PathBuf>> {
        let mut records = self.journals()?;
        records.retain(|(agent, _)| {
            let is_idle = || !lock::is_agent_locked(self.controller.archive(), agent);
            self.controller.config().agent(agent).is_none() && is_idle()
        });
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// Whether the agent has a journal, that is, an unfinished run; false if the journals cannot be
    /// read.
    pub(crate) fn has_journal(&self, agent: &str) -> bool {
        let records = self.journals().unwrap_or_default();
        records.iter().any(|(name, _)| name == agent)
    }

    /// Returns the agents that have a journal now; none if the journals cannot be read.
    pub(crate) fn agents_with_journals(&self) -> HashSet<String> {
        let records = self.journals().unwrap_or_default();
        records.into_iter().map(|(agent, _)| agent).collect()
    }

    /// Returns the paths of all journals, each with its agent.
    pub(crate) fn journals(&self) -> Result<Vec<(String, PathBuf)>> {
        let path = self.controller.archive().program_path("tx");
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
    pub(crate) fn names_in_journals(&self) -> Result<HashSet<String>> {
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

    /// Returns every digest in a journal, also in a damaged one.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub(crate) fn journal_digests(&self) -> Result<HashSet<Digest>> {
        let mut digests = HashSet::new();
        for (_, journal) in self.journals()? {
            match durable::read_own_file(&journal) {
                Ok(text) => {
                    let words = text.split(|byte| !byte.is_ascii_hexdigit());
                    let words = words.filter_map(|word| str::from_utf8(word).ok());
                    digests.extend(words.filter_map(|word| word.parse::<Digest>().ok()));
                }
                // Its run has ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::from_io("read", &journal, &error)),
            }
        }
        Ok(digests)
    }

    /// Whether the agent may have a journal, and so files of an interrupted run in its directory;
    /// true if the journals cannot be read.
    pub(crate) fn can_have_journal(&self, agent: &Agent) -> bool {
        let journals = self.journals();
        journals.map_or(true, |journals| {
            journals.iter().any(|(owner, _)| *owner == agent.name)
        })
    }

    /// Writes a journal. The caller must sync the returned objects before it changes the agent's
    /// directory.
    pub(crate) fn create_journal(
        &self,
        agent: &Agent,
        transaction: &Transaction,
    ) -> Result<(Journal, [UnsyncedObject; 2]), Error> {
        let archive = self.controller.archive();
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
        // The ledger's record of the turn repeats it, and has the late entries as well.
        if text.len() as u64 > MAX_RECORD_BYTES / 2 {
            let message = "the attributes of its files are too long for one record of the ledger";
            return Err(Error::new(ErrorKind::Conflict, message)
                .with_hint("change fewer files at a time, or remove extended attributes"));
        }
        let mut file = NewFile::create(&directory, &path, archive.file_mode())?;
        archive.repair_program_file(file.file(), &path)?;
        file.write(&text)?;
        let staged_name = transaction.files.first().map(|file| &*file.staged_name);
        let name = format!("{}{}.json", agent.name, staged_name.unwrap_or_default());
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

    /// Removes a journal.
    ///
    /// # Errors
    /// The archive is gone, or the system's error.
    pub(crate) fn remove_journal(&self, path: &Path) -> Result<()> {
        self.controller.archive().check_root()?;
        std::fs::remove_file(path).with_path("remove", path)
    }
}
