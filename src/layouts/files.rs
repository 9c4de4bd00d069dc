//! Read access to the files of a memory, on this machine or a host.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::transport::{DirectoryListing, FailureCause, MemoryObject, SpecialFile, Transport};

/// Maximum size in bytes of a file that is read whole.
const MAX_FILE_BYTES: usize = 64 << 20;

/// Why a file has no content that a layout could use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileReadFault {
    /// There is no file.
    Absent,
    /// Another object has its name; it is not read.
    Special(SpecialFile),
    /// It has more than 64 MiB.
    TooLarge,
}

impl FileReadFault {
    /// Converts it into an error about a file.
    pub fn to_error(&self, path: &Path) -> Error {
        let path = path.display();
        let message = match self {
            FileReadFault::Absent => format!("there is no file {path}"),
            FileReadFault::Special(special) => format!("{path} is {special}, which is not read"),
            FileReadFault::TooLarge => format!("{path} has more than 64 MiB"),
        };
        Error::new(ErrorKind::User, message)
    }
}

/// The files below a directory. Paths are relative to it; symlinks are not followed.
pub struct MemoryFiles {
    transport: Arc<dyn Transport>,
    root: PathBuf,
}

impl MemoryFiles {
    /// Creates the access; nothing is read yet.
    pub fn new(transport: Arc<dyn Transport>, root: &Path) -> MemoryFiles {
        MemoryFiles {
            transport,
            root: root.to_path_buf(),
        }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Opens a directory to list it; none where it does not exist. An empty path is the root.
    ///
    /// # Errors
    /// It is not a directory, or cannot be read.
    pub fn list(&self, path: &Path) -> Result<Option<Box<dyn DirectoryListing>>> {
        match self.transport.list_directory(&self.absolute(path)?) {
            Ok(listing) => Ok(Some(listing)),
            Err(error) if error.cause == FailureCause::NoDirectory => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a file whole.
    ///
    /// # Errors
    /// It cannot be read; a fault is no error.
    pub fn read(&self, path: &Path) -> Result<Result<Vec<u8>, FileReadFault>> {
        let path = self.absolute(path)?;
        let directory = match self.transport.open_directory(&path) {
            Ok(directory) => directory,
            Err(error) if error.cause == FailureCause::NoDirectory => {
                return Ok(Err(FileReadFault::Absent));
            }
            Err(error) => return Err(error.into()),
        };
        match directory.stat_memory()? {
            MemoryObject::Absent => return Ok(Err(FileReadFault::Absent)),
            MemoryObject::Special(special) => return Ok(Err(FileReadFault::Special(special))),
            MemoryObject::File(_) => {}
        }
        let mut bytes = Vec::new();
        let mut is_too_large = false;
        let read = directory.read_memory(&mut |piece| {
            is_too_large = bytes.len() + piece.len() > MAX_FILE_BYTES;
            if is_too_large {
                return Err(Error::new(ErrorKind::User, "the file is too large"));
            }
            bytes.extend_from_slice(piece);
            Ok(())
        });
        match read {
            _ if is_too_large => Ok(Err(FileReadFault::TooLarge)),
            Ok(_) => Ok(Ok(bytes)),
            // It was there a moment ago.
            Err(error) if error.cause == FailureCause::Replaced => Ok(Err(FileReadFault::Absent)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the path below the root.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if !path
            .components()
            .all(|it| matches!(it, Component::Normal(_)))
        {
            let message = format!(
                "{} is no path below {}",
                path.display(),
                self.root.display()
            );
            return Err(Error::new(ErrorKind::User, message));
        }
        // Without a slash at the end.
        Ok(if path.as_os_str().is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        })
    }
}
