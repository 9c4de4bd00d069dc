//! Listing a directory of this machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::Dir;
use rustix::io::Errno;

use super::{LocalDirectory, refused_error};
use crate::base::error::PathContext;
use crate::transport::{
    DirectoryEntry, DirectoryListing, MAX_PAGE_ENTRIES, MemoryObject, TransportError,
};

/// A directory whose names are being read.
pub(super) struct LocalListing {
    directory: LocalDirectory,
    names: Dir,
}

impl LocalListing {
    pub(super) fn new(directory: LocalDirectory) -> Result<LocalListing, TransportError> {
        let names = Dir::read_from(&*directory.directory_fd)
            .with_path("list", &directory.directory_path)
            .map_err(refused_error)?;
        Ok(LocalListing { directory, names })
    }
}

impl DirectoryListing for LocalListing {
    fn next_page(&mut self) -> Result<Option<Vec<DirectoryEntry>>, TransportError> {
        let mut page = Vec::new();
        for _ in 0..MAX_PAGE_ENTRIES {
            let Some(item) = self.names.next() else {
                return Ok((!page.is_empty()).then_some(page));
            };
            let item = item
                .with_path("list", &self.directory.directory_path)
                .map_err(refused_error)?;
            let name = OsStr::from_bytes(item.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let object = match self.directory.stat_object(name) {
                Ok((MemoryObject::Absent, _)) | Err(Errno::NOENT) => continue,
                found => found
                    .map(|(object, _)| object)
                    .with_path("stat", &self.directory.directory_path.join(name))
                    .map_err(refused_error),
            };
            page.push(DirectoryEntry {
                name: name.to_os_string(),
                object,
            });
        }
        Ok(Some(page))
    }
}
