//! Journals as files: `<archive_dir>/.shepherd/tx/AGENT.RANDOM.json`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::archive::PROGRAM_DIRECTORY_NAME;
use crate::base::durable::{self, UnsyncedObject};
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::store::controller::Controller;
use crate::store::journal::{Journal, JournalRecord, Journals, Transaction, damaged_journal_error};
use crate::store::record_line::MAX_RECORD_BYTES;

/// The journals of an archive.
pub(crate) struct FileJournals {
    controller: Arc<Controller>,
}

/// A journal that is open for appending.
struct OpenJournal {
    path: PathBuf,
    file: Arc<File>,
}

impl FileJournals {
    /// Creates the journals; reads and writes nothing yet.
    pub fn new(controller: &Arc<Controller>) -> FileJournals {
        FileJournals {
            controller: Arc::clone(controller),
        }
    }
}

impl Journals for FileJournals {
    fn list(&self) -> Result<Vec<(String, PathBuf)>> {
        let path = self.controller.archive().program_path("tx");
        let items = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            items => items.with_path("list", &path)?,
        };
        let mut journals = Vec::new();
        for item in items {
            let name = item.with_path("list", &path)?.file_name();
            let text = name.to_string_lossy();
            // An agent's name has no dot.
            if let Some((agent, rest)) = text.split_once('.')
                && rest.ends_with(".json")
            {
                journals.push((agent.to_string(), path.join(&name)));
            }
        }
        journals.sort();
        Ok(journals)
    }

    fn text(&self, journal: &Path) -> Result<Option<Vec<u8>>> {
        match durable::read_own_file(journal) {
            Ok(text) => Ok(Some(text)),
            // Its run has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // A FIFO, a directory or a symlink.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(damaged_journal_error(journal, &error.to_string()))
            }
            Err(error) => Err(Error::from_io("read", journal, &error)),
        }
    }

    fn create(
        &self,
        agent: &str,
        transaction: &Transaction,
    ) -> Result<(Box<dyn Journal>, Vec<UnsyncedObject>)> {
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
        let mut file = archive.permissions().create_own_file(&directory, &path)?;
        file.write(&text)?;
        let staged_name = transaction.files.first().map(|file| &*file.staged_name);
        let name = format!("{agent}{}.json", staged_name.unwrap_or_default());
        if !file.link_as(name.as_ref())? {
            let message = format!("{} already exists", path.join(name).display());
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let journal = OpenJournal {
            path: path.join(name),
            file: Arc::clone(file.file()),
        };
        let unsynced = vec![file.unsynced_content(), file.unsynced_directory()];
        Ok((Box::new(journal), unsynced))
    }

    fn open(&self, journal: &Path) -> Result<Box<dyn Journal>> {
        let file = durable::open_own_file(journal, OpenOptions::new().append(true))
            .with_path("open", journal)?;
        Ok(Box::new(OpenJournal {
            path: journal.to_path_buf(),
            file: Arc::new(file),
        }))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.controller.archive().check_root()?;
        std::fs::remove_file(path).with_path("remove", path)
    }
}

impl Journal for OpenJournal {
    fn path(&self) -> &Path {
        &self.path
    }

    fn append(&self, record: &JournalRecord) -> Result<()> {
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

    fn unsynced(&self) -> Option<UnsyncedObject> {
        let file = Arc::clone(&self.file);
        Some(UnsyncedObject::new(file as _, &self.path))
    }
}
