//! What stands at the path of a baseline.

use std::path::Path;

use rustix::fs::lstat;
use rustix::io::Errno;

use crate::base::error::Result;
use crate::baseline;

/// The object at the path of a baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselineFile {
    /// Nothing.
    Absent,
    /// A file with these bytes.
    Readable(Vec<u8>),
    /// Something that cannot be read as a baseline, and why.
    Unreadable(String),
}

impl BaselineFile {
    pub(in crate::engine) fn read(path: &Path) -> BaselineFile {
        match read_optional(path) {
            Ok(None) => BaselineFile::Absent,
            Ok(Some(bytes)) => BaselineFile::Readable(bytes),
            Err(error) => BaselineFile::Unreadable(error.message().to_string()),
        }
    }

    /// Returns its bytes, if they can be read.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            BaselineFile::Readable(bytes) => Some(bytes),
            BaselineFile::Absent | BaselineFile::Unreadable(_) => None,
        }
    }
}

/// Reads a baseline file; none where there is none.
///
/// # Errors
/// It is not a plain readable file.
pub(in crate::engine) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>> {
    match lstat(path) {
        Err(Errno::NOENT) => Ok(None),
        _ => baseline::read_file(path).map(Some),
    }
}
