//! Whether the index can be used, without changing it.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{
    APPLICATION_ID, BUSY_TIMEOUT, COMPANION_FILE_NAMES, INDEX_FILE_NAME, INDEX_FORMAT,
    expected_objects, has_regular_companions, is_busy, schema_objects,
};
use crate::archive::Archive;
use crate::base::durable;
use crate::base::error::describe_io_error;

/// The file of the index, and what a search will do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexHealth {
    /// Path of the file.
    pub path: PathBuf,
    /// Size in bytes; none if the file is missing.
    pub size: Option<u64>,
    /// What is wrong with it, if anything is.
    pub fault: Option<IndexFault>,
}

/// Why an index cannot be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexFault {
    /// A search cannot open it, for this reason, and replaces it.
    Unopened(String),
    /// It belongs to the user with this id; a search of another user replaces it.
    Foreign(u32),
    /// A file beside it is not one of SQLite; a search replaces the index.
    ForeignCompanion(PathBuf),
    /// It is of another version or not an index; a search replaces it.
    OtherFormat,
    /// It is damaged, as SQLite says.
    Damaged(String),
    /// A process that was killed left this journal; the next search rolls it back.
    Interrupted(PathBuf),
}

impl IndexHealth {
    /// Examines the index of an archive. Reads all of it.
    pub fn examine(archive: &Archive) -> IndexHealth {
        let path = archive.program_path(INDEX_FILE_NAME);
        let opened = durable::open_own_file(&path, OpenOptions::new().read(true))
            .and_then(|file| file.metadata());
        let (size, fault) = match opened {
            Err(error) if durable::is_absent(&error) => (None, None),
            Err(error) => (None, Some(IndexFault::Unopened(describe_io_error(&error)))),
            Ok(meta) => (Some(meta.len()), find_fault(&path, meta.uid())),
        };
        IndexHealth { path, size, fault }
    }
}

fn find_fault(path: &Path, owner: u32) -> Option<IndexFault> {
    if owner != rustix::process::geteuid().as_raw() {
        return Some(IndexFault::Foreign(owner));
    }
    let companions = COMPANION_FILE_NAMES.map(|name| path.with_file_name(name));
    if !has_regular_companions(path) {
        let foreign = companions
            .into_iter()
            .find(|it| it.symlink_metadata().is_ok_and(|meta| !meta.is_file()));
        return foreign.map(IndexFault::ForeignCompanion);
    }
    // An index whose last change is complete has an empty journal.
    let journal = companions
        .into_iter()
        .find(|it| it.symlink_metadata().is_ok_and(|meta| meta.len() > 0));
    if let Some(journal) = journal {
        return Some(IndexFault::Interrupted(journal));
    }
    match check_database(path) {
        Ok(fault) => fault,
        // Another process writes to it: it is in use, not damaged.
        Err(error) if is_busy(&error) => None,
        Err(error) => Some(IndexFault::Damaged(error.to_string())),
    }
}

fn check_database(path: &Path) -> rusqlite::Result<Option<IndexFault>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
    let number = |name: &str| -> rusqlite::Result<i64> {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
    };
    let is_ours = number("application_id")? == APPLICATION_ID
        && number("user_version")? == INDEX_FORMAT
        && schema_objects(&connection)? == expected_objects()?;
    if !is_ours {
        return Ok(Some(IndexFault::OtherFormat));
    }
    let answer: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((answer != "ok").then_some(IndexFault::Damaged(answer)))
}
