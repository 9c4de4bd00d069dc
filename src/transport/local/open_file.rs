//! An open file of this machine: its identity, its metadata and its content.

use std::fs::File as StdFile;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{self, Stat};
use rustix::io::Errno;

use super::MAX_FILE_BYTES;
use super::attributes::{XattrAccess, read_xattrs};
use super::errors::{RefusalContext, refused_error};
use crate::base::error::{Error, ErrorKind};
use crate::transport::{Attributes, ByteSink, FileMetadata, Stamp, TransportError};

/// Growth limit of a file during a read, unless its size is larger.
const MAX_GROWTH_BYTES: u64 = 64 << 20;

/// Bytes per read call.
const READ_CHUNK_BYTES: u64 = 128 * 1024;

/// Identifies a file independently of its names, as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: u64,
    pub(super) inode: u64,
}

pub(super) fn identify(stat: &Stat) -> FileIdentity {
    FileIdentity {
        device: stat.st_dev,
        inode: stat.st_ino,
    }
}

pub(super) fn metadata_from_stat(stat: &Stat) -> FileMetadata {
    FileMetadata {
        stamp: Stamp::from_stat(stat),
        attributes: Attributes {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
            xattrs: Vec::new(),
        },
        dropped_xattrs: 0,
    }
}

pub(super) fn fstat(file: impl AsFd, path: &Path) -> Result<Stat, TransportError> {
    fs::fstat(file).or_refused("stat", path)
}

/// Reads an open file from beginning to end, including what is appended during the read, up to
/// the growth limit.
pub(super) fn read_content(
    file: &StdFile,
    path: &Path,
    sink: ByteSink<'_>,
) -> Result<FileMetadata, TransportError> {
    let size = fstat(file, path)?.st_size as u64;
    if size > MAX_FILE_BYTES {
        let path = path.display();
        let message = format!("cannot read {path}: its size, {size} bytes, is more than 16 GiB");
        let hint = format!("inspect it, then shorten it: truncate --size=1M {path}");
        let error = Error::new(ErrorKind::Host, message).with_hint(hint);
        return Err(refused_error(error));
    }
    let limit = (size + MAX_GROWTH_BYTES).max(2 * size);
    let mut offset = 0;
    let chunk = size.saturating_add(1).clamp(4096, READ_CHUNK_BYTES);
    let mut buffer = vec![0; chunk as usize];
    loop {
        let count = match rustix::io::pread(file, &mut buffer, offset) {
            Err(Errno::INTR) => continue,
            result => result.or_refused("read", path)?,
        };
        if count > 0 {
            sink(&buffer[..count])?;
            offset += count as u64;
        }
        // A short read up to the size is the end, unless the file has grown since.
        let is_at_end = count == 0 || offset == size && count < buffer.len();
        if offset < limit && !is_at_end {
            continue;
        }
        let metadata = metadata_from_stat(&fstat(file, path)?);
        if count == 0 || offset >= limit || metadata.stamp.size == offset {
            return Ok(metadata);
        }
    }
}

/// Reads an open file, then its extended attributes.
pub(super) fn read_with_xattrs(
    file: &StdFile,
    path: &Path,
    sink: ByteSink<'_>,
) -> Result<FileMetadata, TransportError> {
    let mut read = read_content(file, path, sink)?;
    (read.attributes.xattrs, read.dropped_xattrs) =
        read_xattrs(&XattrAccess::File(file)).or_refused("read the attributes of", path)?;
    Ok(read)
}
