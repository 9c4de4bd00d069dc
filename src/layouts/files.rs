//! Read access to the files of a memory, on this machine or a host.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::transport::{
    DirectoryEntry, DirectoryListing, FailureCause, FileMetadata, MemoryObject, SpecialFile,
    Transport, TransportError,
};

/// Maximum size in bytes of a file that is read whole.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Maximum number of names of a directory that are listed: a host may send names without end.
pub const MAX_LISTED_NAMES: usize = 200_000;

/// How often a file is opened that is replaced while it is read.
const READ_ATTEMPTS: usize = 3;

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
            FileReadFault::Absent => format!("no file {path}"),
            FileReadFault::Special(special) => format!("{path} is {special}, which is not read"),
            FileReadFault::TooLarge => format!("{path} is larger than 64 MiB"),
        };
        let kind = match self {
            FileReadFault::Absent => ErrorKind::User,
            FileReadFault::Special(_) | FileReadFault::TooLarge => ErrorKind::Host,
        };
        Error::new(kind, message)
    }
}

/// The names of a directory, a page at a time.
pub struct DirectoryPages {
    listing: Box<dyn DirectoryListing>,
    path: PathBuf,
    /// How many more names, or empty pages, are listed.
    left: usize,
}

impl Iterator for DirectoryPages {
    type Item = Result<Vec<DirectoryEntry>>;

    fn next(&mut self) -> Option<Result<Vec<DirectoryEntry>>> {
        let page = match self.listing.next_page() {
            Ok(page) => page?,
            Err(error) => return Some(Err(error.into())),
        };
        let Some(left) = self.left.checked_sub(page.len().max(1)) else {
            let message = format!(
                "{} has more than {MAX_LISTED_NAMES} names, which is more than can be listed",
                self.path.display()
            );
            return Some(Err(Error::new(ErrorKind::Host, message)));
        };
        self.left = left;
        Some(Ok(page))
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

    /// The directory, if it is on this machine.
    pub fn local_root(&self) -> Option<&Path> {
        let is_local = self.transport.connection().is_none();
        is_local.then_some(self.root.as_path())
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Opens a directory to list it; none where it does not exist. An empty path is the root.
    ///
    /// # Errors
    /// It is not a directory, or cannot be read.
    pub fn list(&self, path: &Path) -> Result<Option<DirectoryPages>> {
        let path = self.absolute(path)?;
        match self.transport.list_directory(&path) {
            Ok(listing) => Ok(Some(DirectoryPages {
                listing,
                path,
                left: MAX_LISTED_NAMES,
            })),
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
        let mut attempts = 1;
        loop {
            match self.try_read(&path) {
                Err(error) if error.cause == FailureCause::Replaced && attempts < READ_ATTEMPTS => {
                    attempts += 1;
                }
                read => return Ok(read?),
            }
        }
    }

    /// Reads several files that a listing returned, each whole, in one go on a host. None: the file is
    /// gone, or another object has its name by now.
    pub fn read_all(&self, listed: &[(&Path, &FileMetadata)]) -> Vec<Result<Option<Vec<u8>>>> {
        let paths: Vec<PathBuf> = listed
            .iter()
            .map(|(path, _)| self.root.join(path))
            .collect();
        let is_small = |metadata: &FileMetadata| metadata.stamp.size <= MAX_FILE_BYTES;
        let small = (0..listed.len()).filter(|number| is_small(listed[*number].1));
        let small: Vec<usize> = small.collect();
        let batch: Vec<(&Path, &FileMetadata)> = small
            .iter()
            .map(|number| (paths[*number].as_path(), listed[*number].1))
            .collect();
        let mut contents = vec![Vec::new(); batch.len()];
        let read = self.transport.read_batch(&batch, &mut |number, piece| {
            // A file that grows while it is read is read again below.
            if contents[number].len() as u64 <= MAX_FILE_BYTES {
                contents[number].extend_from_slice(piece);
            }
        });
        let mut results: Vec<Option<Result<Option<Vec<u8>>>>> = vec![None; listed.len()];
        for ((number, content), read) in small.into_iter().zip(contents).zip(read) {
            let is_whole = content.len() as u64 <= MAX_FILE_BYTES;
            results[number] = match read {
                Ok(_) if is_whole => Some(Ok(Some(content))),
                Ok(_) => None,
                Err(error) if error.cause == FailureCause::Replaced => None,
                Err(error) => Some(Err(error.into())),
            };
        }
        let read_again = |path: &Path| match self.read(path)? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(FileReadFault::Absent | FileReadFault::Special(_)) => Ok(None),
            Err(fault) => Err(fault.to_error(path)),
        };
        let results = results.into_iter().zip(listed);
        results
            .map(|(result, (path, _))| result.unwrap_or_else(|| read_again(path)))
            .collect()
    }

    fn try_read(&self, path: &Path) -> Result<Result<Vec<u8>, FileReadFault>, TransportError> {
        let directory = match self.transport.open_directory(path) {
            Ok(directory) => directory,
            Err(error) if error.cause == FailureCause::NoDirectory => {
                return Ok(Err(FileReadFault::Absent));
            }
            Err(error) => return Err(error),
        };
        match directory.stat_memory()? {
            MemoryObject::Absent => return Ok(Err(FileReadFault::Absent)),
            MemoryObject::Special(special) => return Ok(Err(FileReadFault::Special(special))),
            MemoryObject::File(file) if file.stamp.size > MAX_FILE_BYTES => {
                return Ok(Err(FileReadFault::TooLarge));
            }
            MemoryObject::File(_) => {}
        }
        let mut bytes = Vec::new();
        let mut is_too_large = false;
        let read = directory.read_memory(&mut |piece| {
            // It may grow while it is read.
            is_too_large = (bytes.len() + piece.len()) as u64 > MAX_FILE_BYTES;
            if is_too_large {
                return Err(Error::new(ErrorKind::Host, "the file is too large"));
            }
            bytes.extend_from_slice(piece);
            Ok(())
        });
        if is_too_large {
            return Ok(Err(FileReadFault::TooLarge));
        }
        read.map(|_| Ok(bytes))
    }

    /// Returns the path below the root.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if !path
            .components()
            .all(|it| matches!(it, Component::Normal(_)))
        {
            let message = format!(
                "{} is not a path below {}",
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
