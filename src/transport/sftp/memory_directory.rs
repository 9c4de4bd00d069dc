//! The directory of one memory on a host.
//!
//! SFTP has no way to hold a directory open: every request names a path. So the path is checked
//! first, and every result is checked again afterwards. There are no leases, inodes or link counts
//! either; the methods say which guarantees are weaker for that.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::chunked_read::{ChunkedRead, MAX_FILE_BYTES, ReadContent, too_large_error};
use super::client::{
    ReplyResult, STAT_REQUESTS, SftpClient, TYPE_DIRECTORY, TYPE_REGULAR, file_type, lstat_request,
    path_bytes, reply_attrs, stat_requests, status_code,
};
use super::run_directory::TakenOverRun;
use super::settle::{OpenDisplacedFile, QUIET_PERIOD};
use super::wire::{Attrs, Reply, Request, flags, status};
use crate::clock::Clock;
use crate::config::SftpExtension;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, ErrorKind};
use crate::transport::{
    Attributes, ByteSink, FailureCause, FileIdentity, FileMetadata, FileReader, MemoryDirectory,
    MemoryObject, SettleOutcome, SpecialFile, Stamp, SwapOutcome, TransportError, UnsyncedObject,
    compare_memory_prefix, new_memory_mode,
};

/// Time limit of reading one file, or one directory listing.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits of a directory listing: number of names, and bytes of names.
const MAX_LISTED_NAMES: usize = 100_000;
const MAX_LISTED_NAME_BYTES: usize = 16 << 20;

pub(super) type FileHandle = Vec<u8>;

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

    /// Sends one request and returns its reply.
    pub(super) fn request_one(&self, request: Request) -> Result<ReplyResult, TransportError> {
        let mut answers = self.client.request_batch(vec![request])?;
        answers.pop().ok_or_else(|| {
            self.client
                .unexpected_reply_error("use", &self.directory_path)
        })
    }

    pub(super) fn open_request(&self, path: &Path) -> Request {
        Request::Open {
            path: path_bytes(path),
            flags: flags::READ,
            mode: None,
        }
    }

    /// Returns the handle in the reply to an open request.
    pub(super) fn handle_from_reply(
        &self,
        answer: Option<ReplyResult>,
        path: &Path,
    ) -> Result<FileHandle, TransportError> {
        match &answer {
            Some(Ok(Reply::Status { code, .. })) => Err(match *code {
                status::NO_SUCH_FILE => replaced_error(&self.client, path),
                code => self.client.status_error("open", path, code),
            }),
            _ => answer
                .and_then(into_handle)
                .ok_or_else(|| self.client.unexpected_reply_error("open", path)),
        }
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
        let found = self.request_one(lstat_request(path))?;
        let regular =
            reply_attrs(&found).is_some_and(|attrs| file_type(attrs) == Some(TYPE_REGULAR));
        match status_code(&found) {
            Some(status::NO_SUCH_FILE) => return Ok(None),
            Some(code) => return Err(self.client.status_error("stat", path, code)),
            None if !regular => return Ok(None),
            None => {}
        }
        let answer = self.request_one(self.open_request(path))?;
        let handle = self.handle_from_reply(Some(answer), path)?;
        let found = self.request_one(Request::Fstat {
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

    /// Limits the total time: a server may send each reply in time and still never finish.
    fn check_deadline(&self, end: Instant, path: &Path) -> Result<(), TransportError> {
        match self.clock.instant() < end {
            true => Ok(()),
            false => Err(self
                .client
                .refused_error("read", path, "it took longer than 60 s")),
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

    pub(super) fn check_status(
        &self,
        answer: &ReplyResult,
        verb: &str,
        path: &Path,
    ) -> Result<(), TransportError> {
        match status_code(answer) {
            Some(status::OK) => Ok(()),
            Some(code) => Err(self.client.status_error(verb, path, code)),
            None => Err(self.client.unexpected_reply_error(verb, path)),
        }
    }

    pub(super) fn request_all_ok(
        &self,
        batch: Vec<Request>,
        verb: &str,
        path: &Path,
    ) -> Result<(), TransportError> {
        let answers = self.client.request_batch(batch)?;
        answers
            .iter()
            .try_for_each(|answer| self.check_status(answer, verb, path))
    }

    /// Returns the names in a directory; `None` where it does not exist.
    pub(super) fn list_names(&self, path: &Path) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let answer = self.request_one(Request::OpenDir {
            path: path_bytes(path),
        })?;
        if status_code(&answer) == Some(status::NO_SUCH_FILE) {
            return Ok(None);
        }
        let handle = self.handle_from_reply(Some(answer), path)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut length = 0;
        let end = self.clock.instant() + TRANSFER_TIMEOUT;
        let listed = loop {
            if let Err(error) = self.check_deadline(end, path) {
                break Err(error);
            }
            match self.request_one(Request::ReadDir {
                handle: handle.clone(),
            })? {
                Ok(Reply::Names(more))
                    if !more.is_empty()
                        && names.len() < MAX_LISTED_NAMES
                        && length < MAX_LISTED_NAME_BYTES =>
                {
                    length += more.iter().map(|name| name.name.len()).sum::<usize>();
                    names.extend(more.into_iter().map(|name| name.name));
                }
                Ok(Reply::Status {
                    code: status::EOF, ..
                }) => break Ok(Some(names)),
                Ok(Reply::Status { code, .. }) => {
                    break Err(self.client.status_error("list", path, code));
                }
                Ok(Reply::Names(_)) => {
                    let why = "it has more than 100,000 names or 16 MiB of names";
                    break Err(self.client.refused_error("list", path, why));
                }
                _ => break Err(self.client.unexpected_reply_error("list", path)),
            }
        };
        self.close_handle(handle);
        listed
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

impl MemoryDirectory for SftpDirectory {
    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        // Each method syncs its own changes, where the server supports that.
        Vec::new()
    }

    fn directory_id(&self) -> Result<Option<u64>, TransportError> {
        Ok(None)
    }

    fn stat_memory(&self) -> Result<MemoryObject, TransportError> {
        if let Some(object) = self.opening_object.take() {
            return Ok(object);
        }
        let answers = self
            .client
            .request_batch(stat_requests(&self.memory_path).to_vec())?;
        debug_assert_eq!(answers.len(), STAT_REQUESTS, "one for each");
        let object = self
            .client
            .object_from_replies(&self.memory_path, &answers)?;
        self.last_size.set(object_size(&object));
        self.client.resolve_link_target(&self.memory_path, object)
    }

    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        // Opening would follow a link, and block on a FIFO.
        let size = match self.last_size.take() {
            Some(size) => size,
            None => match self.stat_memory()? {
                MemoryObject::File(file) => file.stamp.size,
                _ => return Err(replaced_error(&self.client, &self.memory_path)),
            },
        };
        self.last_size.set(None);
        if size > MAX_FILE_BYTES {
            return Err(too_large_error(&self.client, &self.memory_path, size));
        }
        let answer = self.request_one(self.open_request(&self.memory_path))?;
        let handle = self.handle_from_reply(Some(answer), &self.memory_path)?;
        let mut hasher = Hasher::default();
        let read = self.read_to_end(&handle, &self.memory_path, size, &mut |bytes| {
            hasher.update(bytes);
            sink(bytes)
        });
        self.close_handle(handle);
        let (size, after) = read?;
        self.last_read_content.set(Some((hasher.finish(), size)));
        // The opened file may differ from the one that stat found.
        match self.client.object_from_attrs(
            &self.memory_path,
            &after,
            Some(&self.directory_attrs),
        )? {
            MemoryObject::File(file) => Ok(file),
            _ => Err(replaced_error(&self.client, &self.memory_path)),
        }
    }

    fn memory_begins_with(&self, content: Digest, size: u64) -> Result<bool, TransportError> {
        let object = self.stat_memory()?;
        if let (Some((known, stamp)), MemoryObject::File(file)) =
            (self.installed_content.get(), &object)
            && known == content
            && file.stamp == stamp
        {
            return Ok(true);
        }
        // If it is not as it was installed, the read below uses this result instead of another
        // stat.
        self.opening_object.replace(Some(object));
        compare_memory_prefix(self, content, size)
    }

    fn missing_extensions(&self) -> Vec<SftpExtension> {
        self.find_missing_extensions()
    }

    fn inherited_attributes(&self, _: &str) -> Result<Attributes, TransportError> {
        let (Some((uid, gid)), Some(mode)) =
            (self.directory_attrs.owner, self.directory_attrs.mode)
        else {
            return Err(self
                .client
                .unexpected_reply_error("stat", &self.directory_path));
        };
        Ok(Attributes {
            uid,
            gid,
            mode: new_memory_mode(mode),
            xattrs: Vec::new(),
        })
    }

    fn staged_file_name(&self, staged: &str) -> String {
        Self::new_file_name(staged)
    }

    fn stage(
        &self,
        staged: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<FileIdentity, TransportError> {
        let handle = self
            .create_run_directory(staged)
            .map_err(|error| self.explain_write_error(error))?;
        let name = Self::new_file_name(staged);
        match self.write_staged_file(handle, &self.path_of(&name), content, attributes) {
            Ok(new) => {
                self.staged_content.set(Some(new));
                Ok(FileIdentity {
                    device: 0,
                    inode: 0,
                })
            }
            Err(error) => {
                if error.cause == FailureCause::Unreachable {
                    return Err(error);
                }
                let error = self.explain_write_error(error);
                let _ = self.remove_name(&name);
                Err(error)
            }
        }
    }

    fn link_staged(&self, _: &str) -> Result<(), TransportError> {
        Ok(())
    }

    fn remove_unfinished_staging(&self, staged: &str) -> Result<(), TransportError> {
        self.remove_run_directory(staged)
    }

    fn restore_memory_name(&self, displaced: &str) -> Result<(), TransportError> {
        self.move_back_into_place(displaced)
    }

    fn display_name(&self, name: &str) -> String {
        let path = self.path_of(name);
        let inside = path.strip_prefix(&self.directory_path).unwrap_or(&path);
        inside.display().to_string()
    }

    fn take_over_run(&self, staged: &str, names: &[String]) -> Result<(), TransportError> {
        self.take_over_run_directory(staged, names)
    }

    fn swap(&self, staged: &str, _: FileIdentity) -> Result<SwapOutcome, TransportError> {
        self.exchange_names(staged)
    }

    fn move_memory_aside(&self, staged: &str) -> Result<(), TransportError> {
        self.move_memory_into_run_directory(staged)
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(FileReader<'_>) -> Result<(), Error>,
    ) -> Result<SettleOutcome, TransportError> {
        self.settle_file(displaced, inspect)
    }

    fn remove_special_file(&self, name: &str, odd: &SpecialFile) -> Result<bool, TransportError> {
        self.remove_if_same(name, odd)
    }

    fn next_settle_time(&self) -> Option<Instant> {
        let displaced = self.displaced_files.borrow();
        displaced
            .values()
            .map(|it| it.unchanged_since + QUIET_PERIOD)
            .max()
    }

    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        self.list_run_names(staged)
    }

    fn is_half_written(&self, _: &str) -> Result<bool, TransportError> {
        Ok(false)
    }

    fn exists(&self, name: &str) -> Result<bool, TransportError> {
        self.exists_at(&self.path_of(name))
    }

    fn find_content(
        &self,
        name: &str,
        content: Digest,
    ) -> Result<Option<FileIdentity>, TransportError> {
        let path = self.path_of(name);
        let Some((handle, found)) = self.open_regular(&path)? else {
            return Ok(None);
        };
        let read = self.digest_open_file(&handle, &path, found.size.unwrap_or(0));
        self.close_handle(handle);
        let held = read?;
        let same = held.content == content;
        self.staged_content.set(same.then_some(StagedContent {
            content,
            size: held.size,
        }));
        Ok(same.then_some(FileIdentity {
            device: 0,
            inode: 0,
        }))
    }

    fn remove_name(&self, name: &str) -> Result<(), TransportError> {
        let mut batch = self.unlink_requests(name);
        batch.extend(self.directory_sync_requests());
        match self
            .client
            .request_batch(batch)?
            .first()
            .and_then(status_code)
        {
            Some(status::OK | status::NO_SUCH_FILE) => Ok(()),
            // An agent may have created a directory there; it is not ours to remove.
            Some(_) if self.is_directory(name)? => Ok(()),
            Some(code) => Err(self
                .client
                .status_error("remove", &self.path_of(name), code)),
            None => Err(self
                .client
                .unexpected_reply_error("remove", &self.path_of(name))),
        }
    }
}

impl SftpDirectory {
    /// Renames the displaced memory back, if the memory's name is free.
    pub(super) fn move_back_into_place(&self, aside: &str) -> Result<(), TransportError> {
        let (from, to) = (
            path_bytes(&self.path_of(aside)),
            path_bytes(&self.memory_path),
        );
        let link = Request::HardLink {
            from: from.clone(),
            to: to.clone(),
        };
        let answers = self
            .client
            .request_batch(vec![link, lstat_request(&self.memory_path)])?;
        // The link has to exist before the other name goes.
        let is_linked = answers.get(1).and_then(reply_attrs).is_some();
        if answers.first().and_then(status_code) == Some(status::OK) && is_linked {
            return self.remove_name(aside);
        }
        // A plain rename does not replace anything, either.
        let renamed = self.request_one(Request::Rename { from, to })?;
        match status_code(&renamed) {
            Some(status::OK) => Ok(()),
            _ if self.exists_at(&self.memory_path)? => Ok(()),
            _ => {
                let why = format!(
                    "the server refuses links and renames; its content is in {}, and the next run restores it",
                    self.path_of(aside).display()
                );
                Err(self
                    .client
                    .refused_error("restore", &self.memory_path, &why))
            }
        }
    }

    fn is_directory(&self, name: &str) -> Result<bool, TransportError> {
        let found = self.request_one(lstat_request(&self.path_of(name)))?;
        Ok(reply_attrs(&found).and_then(file_type) == Some(TYPE_DIRECTORY))
    }

    pub(super) fn exists_at(&self, path: &Path) -> Result<bool, TransportError> {
        let found = self.request_one(lstat_request(path))?;
        match (status_code(&found), reply_attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(false),
            (_, Some(_)) => Ok(true),
            (Some(code), _) => Err(self.client.status_error("stat", path, code)),
            _ => Err(self.client.unexpected_reply_error("stat", path)),
        }
    }

    /// Reads a file that an earlier run staged.
    pub(super) fn read_earlier_staged(&self, name: &str) -> Result<StagedContent, TransportError> {
        let path = self.path_of(name);
        let Some((handle, found)) = self.open_regular(&path)? else {
            return Err(replaced_error(&self.client, &path));
        };
        let read = self.digest_open_file(&handle, &path, found.size.unwrap_or(0));
        self.close_handle(handle);
        let ReadContent { content, size, .. } = read?;
        Ok(StagedContent { content, size })
    }
}

/// Returns the size of an object that may be read.
fn object_size(object: &MemoryObject) -> Option<u64> {
    match object {
        MemoryObject::File(file) => Some(file.stamp.size),
        _ => None,
    }
}

pub(super) fn into_handle(answer: ReplyResult) -> Option<FileHandle> {
    match answer {
        Ok(Reply::Handle(handle)) => Some(handle),
        _ => None,
    }
}

pub(super) fn replaced_error(client: &SftpClient, path: &Path) -> TransportError {
    let message = format!(
        "{}:{} was replaced by another process",
        client.host_name(),
        path.display()
    );
    TransportError::new(
        FailureCause::Replaced,
        Error::new(ErrorKind::Conflict, message)
            .with_hint("nothing was lost; run the command again"),
    )
}
