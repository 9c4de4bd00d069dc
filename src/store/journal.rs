//! Journals: what runs are about to change, written before they change it, and how far they came.
//! A run that is interrupted leaves its journal to the next one.

use std::collections::HashSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

use crate::archive::WrittenEntry;
use crate::base::digest::Digest;
use crate::base::durable::{self, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, Result};
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

/// The journals of a store. A journal is named by a path, in messages too.
pub trait Journals: Send + Sync {
    /// Returns all journals, each with its agent.
    ///
    /// # Errors
    /// The store cannot be read.
    fn list(&self) -> Result<Vec<(String, PathBuf)>>;

    /// Returns the text of a journal; none for one that was removed.
    ///
    /// # Errors
    /// It cannot be read.
    fn text(&self, journal: &Path) -> Result<Option<Vec<u8>>>;

    /// Writes a journal. The caller must sync the returned objects before it changes the agent's
    /// directory.
    ///
    /// # Errors
    /// The store cannot be written.
    fn create(
        &self,
        agent: &str,
        transaction: &Transaction,
    ) -> Result<(Box<dyn Journal>, Vec<UnsyncedObject>)>;

    /// Opens a journal for further lines.
    ///
    /// # Errors
    /// It cannot be written.
    fn open(&self, journal: &Path) -> Result<Box<dyn Journal>>;

    /// Removes a journal, whose transaction has ended.
    ///
    /// # Errors
    /// The store cannot be written.
    fn remove(&self, journal: &Path) -> Result<()>;
}

/// A journal that is open for further lines.
pub trait Journal: Send + Sync {
    /// Its name.
    fn path(&self) -> &Path;

    /// Appends a line, which the caller must sync.
    ///
    /// # Errors
    /// The store cannot be written.
    fn append(&self, record: &JournalRecord) -> Result<()>;

    /// Returns what has to be synced before the last line counts.
    fn unsynced(&self) -> Option<UnsyncedObject>;

    /// Appends a line and syncs it.
    ///
    /// # Errors
    /// The store cannot be written.
    fn append_durably(&self, record: &JournalRecord) -> Result<()> {
        self.append(record)?;
        durable::sync_all(self.unsynced())
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

/// The hint for journals of agents that are not configured.
pub const UNCLAIMED_JOURNAL_HINT: &str = "if another config has the agent, its next run there \
     settles it; otherwise configure the agent under its old name for one reset, or archive the \
     .shepherd-* files in its directory by hand and then delete the record";

impl dyn Journals + '_ {
    /// Whether the agent has a journal, that is, an unfinished run; false if the journals cannot be
    /// read.
    pub(crate) fn has_journal(&self, agent: &str) -> bool {
        let journals = self.list().unwrap_or_default();
        journals.iter().any(|(owner, _)| owner == agent)
    }

    /// Whether the agent may have a journal, and so files of an interrupted run in its directory;
    /// true if the journals cannot be read.
    pub(crate) fn can_have_journal(&self, agent: &str) -> bool {
        self.list().map_or(true, |journals| {
            journals.iter().any(|(owner, _)| owner == agent)
        })
    }

    /// Returns the agents that have a journal now; none if the journals cannot be read.
    pub(crate) fn agents(&self) -> HashSet<String> {
        let journals = self.list().unwrap_or_default();
        journals.into_iter().map(|(agent, _)| agent).collect()
    }

    /// Returns every random name in a journal or in the name of one, also of a damaged journal.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub(crate) fn random_names(&self) -> Result<HashSet<String>> {
        let mut names = HashSet::new();
        for (_, journal) in self.list()? {
            names.extend(durable::find_random_names(journal.as_os_str().as_bytes()));
            let text = self.text(&journal)?.unwrap_or_default();
            names.extend(durable::find_random_names(&text));
        }
        Ok(names)
    }

    /// Returns every digest in a journal, also in a damaged one.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub(crate) fn digests(&self) -> Result<HashSet<Digest>> {
        let mut digests = HashSet::new();
        for (_, journal) in self.list()? {
            let text = self.text(&journal)?.unwrap_or_default();
            let words = text.split(|byte| !byte.is_ascii_hexdigit());
            let words = words.filter_map(|word| str::from_utf8(word).ok());
            digests.extend(words.filter_map(|word| word.parse::<Digest>().ok()));
        }
        Ok(digests)
    }

    /// Reads a journal; none for one whose first line was never completely written.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(crate) fn read(&self, journal: &Path) -> Result<Option<(Transaction, Vec<JournalRecord>)>> {
        let text = self.text(journal)?.ok_or_else(|| {
            Error::from_io("read", journal, &io::Error::from(io::ErrorKind::NotFound))
        })?;
        let mut lines = text.split(|byte| *byte == b'\n');
        let transaction: Transaction =
            match serde_json::from_slice(lines.next().unwrap_or_default()) {
                Ok(transaction) => transaction,
                Err(_) if !text.contains(&b'\n') => return Ok(None),
                Err(error) => return Err(damaged_journal_error(journal, &error.to_string())),
            };
        // A run must not remove files of other names, even if a journal names them.
        let mut files = transaction.files.iter();
        if !files.all(|file| durable::is_random_name(&file.staged_name)) {
            let why = "a staged name in it is not one of a run";
            return Err(damaged_journal_error(journal, why));
        }
        if transaction.files.len() != transaction.event.file_changes().len() {
            let why = "its files and its changes differ in number";
            return Err(damaged_journal_error(journal, why));
        }
        let journal_records = lines.filter_map(|line| serde_json::from_slice(line).ok());
        Ok(Some((transaction, journal_records.collect())))
    }
}
