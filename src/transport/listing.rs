//! Listing a directory, a page at a time: a directory may have more names than memory should hold.

use std::ffi::OsString;

use super::{MemoryObject, TransportError};

/// Maximum number of entries in a page of a listing.
pub const MAX_PAGE_ENTRIES: usize = 1_000;

/// One name in a directory, and the object at it.
#[derive(Debug)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: OsString,
    /// The object, without extended attributes; never [`MemoryObject::Absent`]. On a host the target
    /// of a symlink is left out. An error concerns this name only: a file that the transport would
    /// refuse to read, or whose type is unknown.
    pub object: Result<MemoryObject, TransportError>,
}

/// A directory that is being listed, held open.
pub trait DirectoryListing: Send {
    /// Returns the next entries, at most [`MAX_PAGE_ENTRIES`], in the order of the file system;
    /// `None` after the last one. A page may be empty. `.`, `..` and names that are gone by now are
    /// left out; a name that was created or renamed since the first page may be missing, or come
    /// twice. A host may send names without end: the caller bounds the number of pages.
    fn next_page(&mut self) -> Result<Option<Vec<DirectoryEntry>>, TransportError>;
}
