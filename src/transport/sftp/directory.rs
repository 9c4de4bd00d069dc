//! The state of an open directory on a host.
//!
//! SFTP has no way to hold a directory open: every request names a path. So the path is checked
//! first, and every result is checked again afterwards.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chunked_read::FileContent;
use super::client::{SftpClient, into_handle, open_request, reply_attrs, stat_requests};
use super::displaced_files::DisplacedFiles;
use super::run_directory::RunDirectory;
use super::timed_reader::TimedReader;
use super::wire::{Attrs, Request};
use super::write_support::WriteSupport;
use crate::base::clock::Clock;
use crate::base::digest::Digest;
use crate::transport::{MemoryObject, Stamp, TransportError};

/// The directory of one memory.
pub(super) struct SftpDirectory {
    pub(super) client: Arc<SftpClient>,
    pub(super) reader: TimedReader,
    pub(super) support: WriteSupport,
    pub(super) run: RunDirectory,
    pub(super) displaced_files: DisplacedFiles,
    pub(super) directory_path: PathBuf,
    pub(super) memory_path: PathBuf,
    /// Owner and mode of the directory.
    pub(super) directory_attrs: Attrs,
    /// The memory as found when the directory was opened; the first caller takes it.
    pub(super) opening_object: RefCell<Option<MemoryObject>>,
    /// The size that the last stat returned, for a read that follows at once.
    pub(super) last_size: Cell<Option<u64>>,
    /// The content of the staged file.
    pub(super) staged_content: Cell<Option<FileContent>>,
    /// The content of the memory when it was read last.
    pub(super) last_read_content: Cell<Option<FileContent>>,
    /// The content of the memory when it was read after a swap.
    pub(super) installed_content: Cell<Option<(Digest, Stamp)>>,
}

impl SftpDirectory {
    /// Checks the directory and stats the memory in it.
    pub(super) fn open(
        host: Arc<SftpClient>,
        memory: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<SftpDirectory, TransportError> {
        let path = memory.parent().unwrap_or(Path::new("/")).to_path_buf();
        let mut batch = stat_requests(memory).to_vec();
        // As `path/.`, since opening a FIFO at the plain path would block.
        batch.push(open_request(&path.join(".")));
        let mut answers = host.request_batch(batch)?;
        // Most servers do not open directories this way; then they cannot be synced.
        let directory = answers.pop().and_then(into_handle);
        let object = host.object_from_replies(memory, &answers);
        let owner = answers
            .get(1)
            .and_then(reply_attrs)
            .copied()
            .unwrap_or_default();
        let reader = TimedReader {
            client: Arc::clone(&host),
            clock,
        };
        let opened = SftpDirectory {
            support: WriteSupport::new(&host),
            run: RunDirectory::new(&reader, &path, directory),
            reader,
            displaced_files: DisplacedFiles::default(),
            memory_path: memory.to_path_buf(),
            directory_path: path,
            directory_attrs: owner,
            last_size: Cell::new(None),
            opening_object: RefCell::new(None),
            staged_content: Cell::new(None),
            last_read_content: Cell::new(None),
            installed_content: Cell::new(None),
            client: host,
        };
        let object = opened.client.resolve_link_target(memory, object?)?;
        opened.last_size.set(object_size(&object));
        opened.opening_object.replace(Some(object));
        Ok(opened)
    }
}

impl Drop for SftpDirectory {
    fn drop(&mut self) {
        let displaced = self.displaced_files.take_handles();
        let handles = self.run.take_handles().chain(displaced);
        let close: Vec<Request> = handles.map(Request::Close).collect();
        if !close.is_empty() {
            self.client.send_without_waiting(close);
        }
    }
}

/// Returns the size of an object that may be read.
pub(super) fn object_size(object: &MemoryObject) -> Option<u64> {
    match object {
        MemoryObject::File(file) => Some(file.stamp.size),
        _ => None,
    }
}
