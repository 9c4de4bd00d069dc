//! The archive that the config names by the digest of its ledger's first record. Refuses writes where
//! another one, or none, is at `archive_dir`: the disk of an archive may not be mounted.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, ErrorKind, Result};

/// Reads the id of the archive at a path; none where there is no record.
pub type ArchiveIdReader = fn(&Path) -> Result<Option<Digest>>;

/// The archive that the config names. All clones share what they have checked.
#[derive(Clone, Debug)]
pub struct ExpectedArchive {
    id: Digest,
    read_id: ArchiveIdReader,
    config: PathBuf,
    /// Device and inode of the directory that has it.
    found: Arc<Mutex<Option<(u64, u64)>>>,
}

impl ExpectedArchive {
    /// Creates the expectation of a config; reads nothing yet.
    pub fn new(id: Digest, read_id: ArchiveIdReader, config: &Path) -> ExpectedArchive {
        ExpectedArchive {
            id,
            read_id,
            config: config.to_path_buf(),
            found: Arc::default(),
        }
    }

    /// Checks that the archive is at `root`, unless that directory has been found to have it.
    ///
    /// # Errors
    /// [`ErrorKind::Host`] for another archive, or none; or the ledger cannot be read.
    pub(super) fn check(&self, root: &Path) -> Result<()> {
        let directory = match std::fs::metadata(root) {
            Ok(directory) => Some((directory.dev(), directory.ino())),
            Err(error) if durable::is_absent(&error) => None,
            Err(error) => return Err(Error::from_io("stat", root, &error)),
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if directory.is_some() && *found == directory {
            return Ok(());
        }
        let id = (self.read_id)(root)?;
        if id == Some(self.id) {
            *found = directory;
            return Ok(());
        }
        let (root, config) = (root.display(), self.config.display());
        let what = match id {
            Some(other) => format!("the archive there is {other}"),
            None => "no archive is there".to_string(),
        };
        let message = format!(
            "the archive {} is not in {root}: {what}; nothing was written",
            self.id
        );
        let hint = format!(
            "mount the disk that it is on, or correct archive_dir; to use what is there instead, \
             change archive_id in {config}, or remove it to begin a new archive"
        );
        Err(Error::new(ErrorKind::Host, message).with_hint(hint))
    }
}
