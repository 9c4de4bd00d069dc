//! The directory of one run, beside the memory: it holds the new file before the swap, and the
//! displaced files after it.
//!
//! A host may execute a request long after the connection was lost and another process has finished
//! the run: a late rename would then take away a memory that an agent has written to since.
//! Requests name paths, so each run has a path that can be revoked. A process that finishes another
//! run renames its directory first, and every request that names the old path fails.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::client::{
    FileHandle, ReplyResult, SftpClient, TYPE_DIRECTORY, file_type, into_handle, lstat_request,
    open_request, path_bytes, remove_request, reply_attrs, status_code,
};
use super::timed_reader::TimedReader;
use super::wire::{Request, status};
use crate::base::durable;
use crate::base::error::Error;
use crate::transport::TransportError;

/// Name of the new file in it.
const NEW_FILE_NAME: &str = "new";

/// Prefix of displaced files in it; a random name follows.
const DISPLACED_NAME_PREFIX: &str = "old";

/// A second name of the new file, which exists only to test whether the file system has hard links.
const LINK_TEST_NAME: &str = "link";

/// Number of requests that remove a name in a run directory.
pub(super) const UNLINK_REQUESTS: usize = 3;

const STILL_EXISTS_MESSAGE: &str = "it exists after its removal: the server did not remove it, or \
     the agent created it again; move it away";

/// The directory of a run that was taken over.
struct TakenOverRun {
    /// The name that the caller uses.
    staged_name: String,
    /// Its current name on the host.
    current_name: String,
}

/// The directory of a run, in the directory of the memory.
pub(super) struct RunDirectory {
    client: Arc<SftpClient>,
    reader: TimedReader,
    /// The directory that it is in.
    parent_path: PathBuf,
    /// That directory, open for syncing, if the server supports that.
    parent_handle: Option<FileHandle>,
    /// The directory of the current run, open for syncing.
    handle: RefCell<Option<FileHandle>>,
    /// The directory of another run, which has been renamed.
    taken_over: RefCell<Option<TakenOverRun>>,
}

impl RunDirectory {
    /// Creates the access to the directories of runs in the one at `path`; requests nothing yet.
    pub(super) fn new(reader: &TimedReader, path: &Path, handle: Option<FileHandle>) -> Self {
        RunDirectory {
            client: Arc::clone(&reader.client),
            reader: reader.clone(),
            parent_path: path.to_path_buf(),
            parent_handle: handle,
            handle: RefCell::new(None),
            taken_over: RefCell::new(None),
        }
    }

    /// Returns the path of a name, in the run directory under its current name.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        if let Some(TakenOverRun {
            staged_name: staged,
            current_name: now,
        }) = &*self.taken_over.borrow()
            && let Some(rest) = name.strip_prefix(staged.as_str())
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return self.parent_path.join(format!("{now}{rest}"));
        }
        self.parent_path.join(name)
    }

    /// Returns the requests that sync the directory, and the run directory, on the host.
    pub(super) fn sync_requests(&self) -> Vec<Request> {
        if !self.client.extensions().fsync {
            return Vec::new();
        }
        let run = self.handle.borrow();
        let handles = [run.as_ref(), self.parent_handle.as_ref()];
        let handles = handles.into_iter().flatten().cloned();
        handles.map(Request::Fsync).collect()
    }

    /// Sends requests, and syncs both directories behind them. Returns the replies to all of them.
    pub(super) fn request_synced(
        &self,
        mut batch: Vec<Request>,
    ) -> Result<Vec<ReplyResult>, TransportError> {
        batch.extend(self.sync_requests());
        self.client.request_batch(batch)
    }

    /// Creates and opens the directory of a run, and waits until the host has done so. A server that
    /// cannot open directories cannot sync them either, which is not an error.
    pub(super) fn create(&self, run: &str) -> Result<(), TransportError> {
        let path = self.path_of(run);
        let make = Request::MakeDir {
            path: path_bytes(&path),
            mode: 0o700,
        };
        let open = open_request(&path.join("."));
        let answers = self.client.request_batch(vec![make, open])?;
        let [made, opened] = <[ReplyResult; 2]>::try_from(answers)
            .map_err(|_| self.client.reply_error("create", &path, None))?;
        let opened = into_handle(opened);
        match self.client.check_written(&made, "create", &path) {
            Ok(()) => {
                self.handle.replace(opened);
                Ok(())
            }
            Err(error) => {
                opened
                    .into_iter()
                    .for_each(|handle| self.client.close_handle(handle));
                Err(error)
            }
        }
    }

    /// Renames the directory of another run, so that pending requests that name the old path fail.
    pub(super) fn take_over(&self, staged: &str, names: &[String]) -> Result<(), TransportError> {
        let Some((now, before)) = names.split_last() else {
            return Ok(());
        };
        let to = self.parent_path.join(now);
        // Newest first: if an older name exists beside it, a slow host or an agent created that
        // directory later, and it does not belong to the run.
        let before = before.iter().rev().map(String::as_str);
        for name in before.chain([staged]) {
            let from = self.parent_path.join(name);
            let batch = vec![
                self.client.rename_request(&from, &to),
                lstat_request(&from),
                lstat_request(&to),
                // Left by a run that was interrupted during the link test.
                remove_request(&to.join(LINK_TEST_NAME)),
            ];
            let answers = self.request_synced(batch)?;
            let exists_at = |place: usize| answers.get(place).and_then(reply_attrs).is_some();
            let is_directory =
                answers.get(2).and_then(reply_attrs).and_then(file_type) == Some(TYPE_DIRECTORY);
            match answers.first().and_then(status_code) {
                Some(status::OK) if is_directory => break,
                // An object that is not a directory does not belong to the run, and a link would
                // lead elsewhere: it gets its name back.
                Some(status::OK) if exists_at(2) => {
                    let undo_requests =
                        [self.client.rename_request(&to, &from), lstat_request(&to)];
                    let answers = self.client.request_batch(undo_requests.to_vec())?;
                    if answers.get(1).and_then(status_code) != Some(status::NO_SUCH_FILE) {
                        let why = "it is not a directory";
                        return Err(self.client.refused_error("take over", &to, why));
                    }
                }
                Some(status::NO_SUCH_FILE) if !exists_at(1) => {}
                Some(status::OK | status::NO_SUCH_FILE) => {
                    return Err(self.client.reply_error("take over", &from, None));
                }
                _ => return Err(self.client.reply_error("take over", &from, answers.first())),
            }
        }
        self.taken_over.replace(Some(TakenOverRun {
            staged_name: staged.to_string(),
            current_name: now.clone(),
        }));
        Ok(())
    }

    /// Removes one of our own names. Succeeds if it is absent.
    pub(super) fn remove_name(&self, name: &str) -> Result<(), TransportError> {
        let answers = self.request_synced(self.unlink_requests(name))?;
        match answers.first().and_then(status_code) {
            Some(status::OK | status::NO_SUCH_FILE) => Ok(()),
            // An agent may have created a directory there; it is not ours to remove.
            Some(_) if self.is_directory(name)? => Ok(()),
            _ => Err(self
                .client
                .reply_error("remove", &self.path_of(name), answers.first())),
        }
    }

    fn is_directory(&self, name: &str) -> Result<bool, TransportError> {
        let found = self
            .client
            .request_one(lstat_request(&self.path_of(name)))?;
        Ok(reply_attrs(&found).and_then(file_type) == Some(TYPE_DIRECTORY))
    }

    /// Returns the names in a run directory that a swap may have created there, the new file first.
    pub(super) fn list_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let mut names = Vec::new();
        for name in self
            .reader
            .list_names(&self.path_of(staged))?
            .unwrap_or_default()
        {
            // Our own names are ASCII.
            if let Ok(name) = String::from_utf8(name)
                && (name == NEW_FILE_NAME
                    || name
                        .strip_prefix(DISPLACED_NAME_PREFIX)
                        .is_some_and(durable::is_random_name))
            {
                names.push(format!("{staged}/{name}"));
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Returns the requests that remove a name, and the run directory with its last name, and check
    /// the result.
    pub(super) fn unlink_requests(&self, name: &str) -> Vec<Request> {
        let path = self.path_of(name);
        let mut batch = vec![remove_request(&path)];
        if let Some(directory) = path
            .parent()
            .filter(|directory| *directory != self.parent_path)
        {
            batch.push(Request::RemoveDir(path_bytes(directory)));
            batch.push(lstat_request(directory));
        }
        batch
    }

    /// Removes the directory of a run, if it is empty.
    pub(super) fn remove(&self, staged: &str) -> Result<(), TransportError> {
        let path = self.path_of(staged);
        let batch = vec![
            // The server may have reported its removal without doing it.
            remove_request(&path.join(LINK_TEST_NAME)),
            Request::RemoveDir(path_bytes(&path)),
            lstat_request(&path),
        ];
        let answers = self.request_synced(batch)?;
        match (
            answers.get(2).and_then(status_code),
            answers.get(2).and_then(reply_attrs),
        ) {
            (Some(status::NO_SUCH_FILE), _) => return Ok(()),
            // It belongs to another process.
            (_, Some(found)) if file_type(found) != Some(TYPE_DIRECTORY) => return Ok(()),
            _ => {}
        }
        match answers.get(1).and_then(status_code) {
            Some(status::OK | status::NO_SUCH_FILE) => Err(self.still_exists_error(&path)),
            // An agent has put a foreign object there.
            Some(_)
                if self
                    .reader
                    .list_names(&path)?
                    .is_none_or(|names| !is_empty_listing(&names)) =>
            {
                Ok(())
            }
            _ => Err(self.client.reply_error("remove", &path, answers.get(1))),
        }
    }

    /// Returns the error for an object of a run that is there after its removal.
    pub(super) fn still_exists_error(&self, path: &Path) -> TransportError {
        self.client
            .refused_error("remove", path, STILL_EXISTS_MESSAGE)
    }

    /// Takes the open handles, to be closed.
    pub(super) fn take_handles(&mut self) -> impl Iterator<Item = FileHandle> {
        let handles = [self.handle.take(), self.parent_handle.take()];
        handles.into_iter().flatten()
    }
}

/// Returns the name of the new file of a run.
pub(super) fn new_file_name(run: &str) -> String {
    format!("{run}/{NEW_FILE_NAME}")
}

/// Returns the name of the second name of the new file of a run.
pub(super) fn link_test_name(run: &str) -> String {
    format!("{run}/{LINK_TEST_NAME}")
}

/// Returns a free name for a displaced file of a run.
pub(super) fn new_displaced_name(run: &str) -> Result<String, Error> {
    let random = durable::new_random_name()?;
    Ok(format!("{run}/{DISPLACED_NAME_PREFIX}{random}"))
}

/// Returns whether these are the names of an empty directory.
fn is_empty_listing(names: &[Vec<u8>]) -> bool {
    names.iter().all(|name| name == b"." || name == b"..")
}
