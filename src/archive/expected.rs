//! The archive that the config names by the digest of its ledger's first record. Where another one, or
//! none, is at `archive_dir`, nothing is read or written: the disk of an archive may not be mounted.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};

/// Number of hexadecimal digits that tell archives apart in a message.
const SHORT_ID_DIGITS: usize = 12;

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

    /// Checks that no other archive is at `root`, nor none. Where that cannot be told, what is read next
    /// says why.
    ///
    /// # Errors
    /// [`ErrorKind::Host`] for another archive, or none.
    pub(super) fn check_for_read(&self, root: &Path) -> Result<()> {
        self.find_difference(root)
            .ok()
            .flatten()
            .map_or(Ok(()), Err)
    }

    /// Checks that the archive is at `root`.
    ///
    /// # Errors
    /// [`ErrorKind::Host`] for another archive, or none; or the ledger cannot be read.
    pub(super) fn check_for_write(&self, root: &Path) -> Result<()> {
        let found = self.find_difference(root).map_err(|error| {
            let (id, root) = (self.id.short_hex(SHORT_ID_DIGITS), root.display());
            error
                .with_context(format!("cannot tell whether the archive {id} is in {root}"))
                .with_hint(format!(
                    "archive_id in {} is why nothing was written: remove it until that can be read \
                     again, if this is the archive",
                    self.config.display()
                ))
        })?;
        found.map_or(Ok(()), Err)
    }

    /// Returns the error for what is at `root` instead of the archive; none if the archive is, or was
    /// when this directory was checked before.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn find_difference(&self, root: &Path) -> Result<Option<Error>> {
        let directory = match std::fs::metadata(root) {
            Ok(directory) => Some((directory.dev(), directory.ino())),
            Err(error) if durable::is_absent(&error) => None,
            Err(error) => return Err(Error::from_io("stat", root, &error)),
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if directory.is_some() && *found == directory {
            return Ok(None);
        }
        let id = (self.read_id)(root)?;
        if id == Some(self.id) {
            *found = directory;
            return Ok(None);
        }
        Ok(Some(self.difference_error(root, id)))
    }

    fn difference_error(&self, root: &Path, found: Option<Digest>) -> Error {
        let (root, config) = (root.display(), self.config.display());
        let (found, remedy) = match found {
            Some(other) => (
                format!("the archive there is {}", other.short_hex(SHORT_ID_DIGITS)),
                format!("to use the one that is there instead, set archive_id={other} in {config}"),
            ),
            None => (
                "no archive is there".to_string(),
                format!("to begin a new archive, remove archive_id from {config}"),
            ),
        };
        let id = self.id.short_hex(SHORT_ID_DIGITS);
        let message = format!("the archive {id} is not in {root}: {found}");
        Error::new(ErrorKind::Host, message)
            .with_hint("mount the disk that it is on, or correct archive_dir")
            .with_hint(remedy)
    }
}
