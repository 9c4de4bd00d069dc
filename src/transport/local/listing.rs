//! Listing a directory of this machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::Dir;

use super::errors::RefusalContext;
use super::open_directory::OpenDirectory;
use crate::transport::{
    DirectoryEntry, DirectoryListing, MAX_PAGE_ENTRIES, MemoryObject, TransportError,
};

/// A directory whose names are being read.
pub(super) struct LocalListing {
    directory: OpenDirectory,
    names: Dir,
}

impl LocalListing {
    pub(super) fn new(directory: OpenDirectory) -> Result<LocalListing, TransportError> {
        let names = Dir::read_from(&directory.fd).or_refused("list", &directory.path)?;
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
            let item = item.or_refused("list", &self.directory.path)?;
            let name = OsStr::from_bytes(item.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let object = self.directory.object_at(name);
            if object != Ok(MemoryObject::Absent) {
                let name = name.to_os_string();
                page.push(DirectoryEntry { name, object });
            }
        }
        Ok(Some(page))
    }
}
