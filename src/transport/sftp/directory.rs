//! The state of an open directory on a host, and the requests that the modules above it share.
//!
//! SFTP has no way to hold a directory open: every request names a path. So the path is checked
//! first, and every result is checked again afterwards.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chunked_read::{ChunkedRead, ReadContent};
use super::client::{
    FileHandle, ReplyResult, SftpClient, TYPE_DIRECTORY, TYPE_REGULAR, file_type, into_handle,
    lstat_request, path_bytes, reply_attrs, stat_requests, status_code,
};
use super::listing::NameStream;
use super::wire::{Attrs, Request, flags, status};
use crate::base::clock::Clock;
use crate::base::digest::{Digest, Hasher};
use crate::transport::{ByteSink, MAX_SEARCHED_NAMES, MemoryObject, Stamp, TransportError};

/// Time limit of reading one file, or one directory listing.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits of a directory listing: number of names, and bytes of names.
const MAX_LISTED_NAMES: usize = MAX_SEARCHED_NAMES;
const MAX_LISTED_NAME_BYTES: usize = 16 << 20;

/// The directory of one memory.
pub(super) struct SftpDirectory {
    pub(super) client: Arc<SftpClient>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) directory_path: PathBuf,
    pub(super) memory_path: PathBuf,
    /// The directory itself, open for syncing, if the server supports that.
    pub(super) directory_handle: Option<FileHandle>,
    /// Its owner and mode.
    pub(super) directory_attrs: Attrs,
    /// The memory as found when the directory was opened; the first caller takes it.
    pub(super) opening_object: RefCell<Option<MemoryObject>>,
    /// The size that the last stat returned, for a read that follows at once.
    pub(super) last_size: Cell<Option<u64>>,
    /// The staged file.
    pub(super) staged_content: Cell<Option<StagedContent>>,
    /// Whether the file system turned out to have no hard links.
    pub(super) lacks_hard_links: Cell<bool>,
    /// Whether the server refuses every request that writes, once that was asked.
    pub(super) denies_writes: Cell<Option<bool>>,
    /// The content of the memory when it was read last.
    pub(super) last_read_content: Cell<Option<(Digest, u64)>>,
    /// The run directory of the current run, open for syncing.
    pub(super) run_directory_handle: RefCell<Option<FileHandle>>,
    /// The run directory of another run, which has been renamed.
    pub(super) taken_over_run: RefCell<Option<TakenOverRun>>,
    /// Displaced files that were inspected, by name.
    pub(super) displaced_files: RefCell<HashMap<String, OpenDisplacedFile>>,
    /// The content of the memory when it was read after a swap.
    pub(super) installed_content: Cell<Option<(Digest, Stamp)>>,
}

/// A staged file.
#[derive(Clone, Copy)]
pub(super) struct StagedContent {
    pub(super) content: Digest,
    pub(super) size: u64,
}

/// The directory of a run that was taken over.
pub(super) struct TakenOverRun {
    /// The name that the caller uses.
    pub(super) staged_name: String,
    /// Its current name on the host.
    pub(super) current_name: String,
}

/// A displaced file, open.
pub(super) struct OpenDisplacedFile {
    pub(super) handle: FileHandle,
    /// Its content when it was read last, if it was.
    pub(super) last_content: Option<(Digest, u64)>,
    /// Start of the period without changes, if it is unchanged.
    pub(super) unchanged_since: Instant,
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
        batch.push(Request::Open {
            path: path_bytes(&path.join(".")),
            flags: flags::READ,
            mode: None,
        });
        let mut answers = host.request_batch(batch)?;
        // Most servers do not open directories this way; then they cannot be synced.
        let directory = answers.pop().and_then(into_handle);
        let object = host.object_from_replies(memory, &answers);
        let owner = answers
            .get(1)
            .and_then(reply_attrs)
            .copied()
            .unwrap_or_default();
        let opened = SftpDirectory {
            memory_path: memory.to_path_buf(),
            directory_handle: directory,
            directory_attrs: owner,
            opening_object: RefCell::new(None),
            last_size: Cell::new(None),
            staged_content: Cell::new(None),
            lacks_hard_links: Cell::new(false),
            denies_writes: Cell::new(None),
            last_read_content: Cell::new(None),
            run_directory_handle: RefCell::new(None),
            taken_over_run: RefCell::new(None),
            displaced_files: RefCell::default(),
            installed_content: Cell::new(None),
            clock,
            directory_path: path,
            client: host,
        };
        match object {
            Ok(object) => {
                let object = opened.client.resolve_link_target(memory, object)?;
                opened.last_size.set(object_size(&object));
                opened.opening_object.replace(Some(object));
            }
            Err(error) => return Err(error),
        }
        Ok(opened)
    }

    /// Returns the path of a name, in the run directory under its current name.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        if let Some(TakenOverRun {
            staged_name: staged,
            current_name: now,
        }) = &*self.taken_over_run.borrow()
            && let Some(rest) = name.strip_prefix(staged.as_str())
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return self.directory_path.join(format!("{now}{rest}"));
        }
        self.directory_path.join(name)
    }

    pub(super) fn open_request(&self, path: &Path) -> Request {
        Request::Open {
            path: path_bytes(path),
            flags: flags::READ,
            mode: None,
        }
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, path: &Path) -> Result<FileHandle, TransportError> {
        let answer = self.client.request_one(self.open_request(path))?;
        self.client.handle_from_reply(path, answer)
    }

    /// Reads an open file to its end; `size` is its reported size. The returned attributes are
    /// those after the last byte.
    pub(super) fn read_to_end(
        &self,
        handle: &FileHandle,
        path: &Path,
        size: u64,
        sink: ByteSink<'_>,
    ) -> Result<(u64, Attrs), TransportError> {
        let mut pump = ChunkedRead::new(handle, path, size);
        let end = self.clock.instant() + TRANSFER_TIMEOUT;
        loop {
            self.check_deadline(end, path)?;
            let answers = self.client.request_batch(pump.next_requests())?;
            if let Some(after) = pump.handle_replies(&self.client, &answers, sink)? {
                return Ok((pump.offset, after));
            }
        }
    }

    /// Returns the digest of an open file.
    pub(super) fn digest_open_file(
        &self,
        handle: &FileHandle,
        path: &Path,
        size: u64,
    ) -> Result<ReadContent, TransportError> {
        let (held, _) = self.digest_with_requests(handle, path, size, Vec::new())?;
        Ok(held)
    }

    /// Returns the digest of an open file, and the replies to further requests that leave with its
    /// first reads.
    pub(super) fn digest_with_requests(
        &self,
        handle: &FileHandle,
        path: &Path,
        size: u64,
        mut more: Vec<Request>,
    ) -> Result<(ReadContent, Vec<ReplyResult>), TransportError> {
        let mut pump = ChunkedRead::new(handle, path, size);
        let mut hasher = Hasher::default();
        let mut rest = Vec::new();
        let end = self.clock.instant() + TRANSFER_TIMEOUT;
        loop {
            self.check_deadline(end, path)?;
            let mut batch = pump.next_requests();
            let count = batch.len();
            batch.append(&mut more);
            let mut answers = self.client.request_batch(batch)?;
            rest.extend(answers.split_off(count.min(answers.len())));
            let after = pump.handle_replies(&self.client, &answers, &mut |bytes| {
                hasher.update(bytes);
                Ok(())
            })?;
            if let Some(after) = after {
                let held = ReadContent {
                    content: hasher.finish(),
                    size: pump.offset,
                    attrs_after_read: after,
                };
                return Ok((held, rest));
            }
        }
    }

    /// Opens the regular file at a path, with its attributes; `None` where another object is there.
    pub(super) fn open_regular(
        &self,
        path: &Path,
    ) -> Result<Option<(FileHandle, Attrs)>, TransportError> {
        let found = self.client.request_one(lstat_request(path))?;
        let regular =
            reply_attrs(&found).is_some_and(|attrs| file_type(attrs) == Some(TYPE_REGULAR));
        match status_code(&found) {
            Some(status::NO_SUCH_FILE) => return Ok(None),
            Some(_) => return Err(self.client.reply_error("stat", path, Some(&found))),
            None if !regular => return Ok(None),
            None => {}
        }
        let handle = self.open_file(path)?;
        let found = self.client.request_one(Request::Fstat {
            handle: handle.clone(),
        })?;
        match reply_attrs(&found) {
            Some(found) if file_type(found) == Some(TYPE_REGULAR) => Ok(Some((handle, *found))),
            _ => {
                self.close_handle(handle);
                Ok(None)
            }
        }
    }

    pub(super) fn exists_at(&self, path: &Path) -> Result<bool, TransportError> {
        let found = self.client.request_one(lstat_request(path))?;
        match (status_code(&found), reply_attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(false),
            (_, Some(_)) => Ok(true),
            _ => Err(self.client.reply_error("stat", path, Some(&found))),
        }
    }

    /// Limits the total time: a server may send each reply in time and still never finish.
    fn check_deadline(&self, end: Instant, path: &Path) -> Result<(), TransportError> {
        if self.clock.instant() < end {
            Ok(())
        } else {
            Err(self
                .client
                .refused_error("read", path, "it took longer than 60 s"))
        }
    }

    pub(super) fn close_handle(&self, handle: FileHandle) {
        self.client
            .send_without_waiting(vec![Request::Close { handle }]);
    }

    /// Returns the requests that sync the directory, and the run directory, on the host.
    pub(super) fn directory_sync_requests(&self) -> Vec<Request> {
        if !self.client.extensions().fsync {
            return Vec::new();
        }
        let run = self.run_directory_handle.borrow();
        let handles = [run.as_ref(), self.directory_handle.as_ref()]
            .into_iter()
            .flatten();
        handles
            .map(|handle| Request::Fsync {
                handle: handle.clone(),
            })
            .collect()
    }

    /// Creates a directory at the memory's name.
    pub(super) fn make_directory(&self) -> Result<bool, TransportError> {
        let path = &self.memory_path;
        let mode = self.directory_attrs.mode.unwrap_or(0o700) & 0o777;
        let mut batch = vec![
            Request::MakeDir {
                path: path_bytes(path),
                mode,
            },
            lstat_request(path),
        ];
        batch.extend(self.directory_sync_requests());
        let replies = self.client.request_batch(batch)?;
        self.opening_object.take();
        let found = replies.get(1).and_then(reply_attrs);
        let is_directory = found.and_then(file_type) == Some(TYPE_DIRECTORY);
        match replies.first() {
            Some(made) if status_code(made) == Some(status::OK) && is_directory => {}
            Some(made) if is_directory && status_code(made).is_some() => return Ok(false),
            Some(made) => return Err(self.write_error("create the directory", path, Some(made))),
            None => return Err(self.client.reply_error("create the directory", path, None)),
        }
        if found.and_then(|found| found.owner) != self.directory_attrs.owner {
            self.unlink_directory()?;
            let why = "it would not belong to the owner of the directory that it is in: log in as \
                       the agent's user, with remote_user";
            return Err(self.client.refused_error("create the directory", path, why));
        }
        Ok(true)
    }

    /// Removes the directory at the memory's name, if it is an empty one.
    pub(super) fn unlink_directory(&self) -> Result<bool, TransportError> {
        let mut batch = vec![
            Request::RemoveDir {
                path: path_bytes(&self.memory_path),
            },
            lstat_request(&self.memory_path),
        ];
        batch.extend(self.directory_sync_requests());
        let replies = self.client.request_batch(batch)?;
        self.opening_object.take();
        match replies.get(1) {
            Some(found) if status_code(found) == Some(status::NO_SUCH_FILE) => Ok(true),
            // Servers have one status for all reasons; what stands there stays.
            Some(found) if reply_attrs(found).is_some() => Ok(false),
            reply => {
                let path = &self.memory_path;
                Err(self.client.reply_error("remove the directory", path, reply))
            }
        }
    }

    /// Returns the error for the reply to a request that takes space on the host. The protocol has
    /// no status for a full disk.
    pub(super) fn write_error(
        &self,
        verb: &str,
        path: &Path,
        reply: Option<&ReplyResult>,
    ) -> TransportError {
        let error = self.client.reply_error(verb, path, reply);
        error.with_full_disk(reply.and_then(status_code) == Some(status::FAILURE))
    }

    /// Checks the reply to a request that takes space on the host.
    pub(super) fn check_written(
        &self,
        answer: &ReplyResult,
        verb: &str,
        path: &Path,
    ) -> Result<(), TransportError> {
        match status_code(answer) {
            Some(status::OK) => Ok(()),
            _ => Err(self.write_error(verb, path, Some(answer))),
        }
    }

    pub(super) fn request_all_written(
        &self,
        batch: Vec<Request>,
        verb: &str,
        path: &Path,
    ) -> Result<(), TransportError> {
        let answers = self.client.request_batch(batch)?;
        answers
            .iter()
            .try_for_each(|answer| self.check_written(answer, verb, path))
    }

    /// Returns the names in a directory; `None` where it does not exist.
    pub(super) fn list_names(&self, path: &Path) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let Some(stream) = NameStream::open(&self.client, path)? else {
            return Ok(None);
        };
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut length = 0;
        let end = self.clock.instant() + TRANSFER_TIMEOUT;
        loop {
            self.check_deadline(end, path)?;
            let Some(more) = stream.next_names()? else {
                return Ok(Some(names));
            };
            if names.len() >= MAX_LISTED_NAMES || length >= MAX_LISTED_NAME_BYTES {
                let why = "it has more than 100,000 names or 16 MiB of names";
                return Err(self.client.refused_error("list", path, why));
            }
            length += more.iter().map(|name| name.name.len()).sum::<usize>();
            names.extend(more.into_iter().map(|name| name.name));
        }
    }
}

impl Drop for SftpDirectory {
    fn drop(&mut self) {
        let displaced = self
            .displaced_files
            .take()
            .into_values()
            .map(|it| it.handle);
        let directories = [
            self.run_directory_handle.take(),
            self.directory_handle.take(),
        ]
        .into_iter()
        .flatten();
        let handles = directories.chain(displaced);
        let close: Vec<Request> = handles.map(|handle| Request::Close { handle }).collect();
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
