//! The directory of one run, beside the memory: it holds the new file before the swap, and the
//! displaced files after it.
//!
//! A host may execute a request long after the connection was lost and another process has finished
//! the run: a late rename would then take away a memory that an agent has written to since.
//! Requests name paths, so each run has a path that can be revoked. A process that finishes another
//! run renames its directory first, and every request that names the old path fails.

use std::time::Instant;

use super::client::{
    FileHandle, ReplyResult, TYPE_DIRECTORY, file_type, into_handle, lstat_request, path_bytes,
    reply_attrs, status_code,
};
use super::directory::{OpenDisplacedFile, SftpDirectory, StagedContent};
use super::wire::{Reply, Request, flags, status};
use crate::base::durable;
use crate::base::error::Error;
use crate::transport::{FailureCause, SwapMethod, SwapOutcome, TransportError};

/// Name of the new file in it.
const NEW_FILE_NAME: &str = "new";

/// Prefix of displaced files in it; a random name follows.
const DISPLACED_NAME_PREFIX: &str = "old";

/// A second name of the new file, which exists only to test whether the file system has hard links.
pub(super) const LINK_TEST_NAME: &str = "link";

/// Attempts of a swap while the agent keeps creating a new file.
const MAX_SWAP_ATTEMPTS: usize = 16;

/// Number of requests that remove a name in a run directory.
pub(super) const UNLINK_REQUESTS: usize = 3;

const STILL_EXISTS_MESSAGE: &str = "it exists after its removal: the server did not remove it, or \
     the agent created it again; move it away";

impl SftpDirectory {
    pub(super) fn new_file_name(staged: &str) -> String {
        format!("{staged}/{NEW_FILE_NAME}")
    }

    fn link_test_name(staged: &str) -> String {
        format!("{staged}/{LINK_TEST_NAME}")
    }

    /// Creates and opens the directory of a run, and waits until the host has done so. A server that
    /// cannot open directories cannot sync them either, which is not an error.
    pub(super) fn create_run_directory(&self, run: &str) -> Result<(), TransportError> {
        let path = self.path_of(run);
        let make = Request::MakeDir {
            path: path_bytes(&path),
            mode: 0o700,
        };
        let open = Request::Open {
            path: path_bytes(&path.join(".")),
            flags: flags::READ,
            mode: None,
        };
        let answers = self.client.request_batch(vec![make, open])?;
        let [made, opened] = <[ReplyResult; 2]>::try_from(answers)
            .map_err(|_| self.client.reply_error("create", &path, None))?;
        let opened = into_handle(opened);
        match self.check_written(&made, "create", &path) {
            Ok(()) => {
                self.run_directory_handle.replace(opened);
                Ok(())
            }
            Err(error) => {
                opened
                    .into_iter()
                    .for_each(|handle| self.close_handle(handle));
                Err(error)
            }
        }
    }

    /// Opens a new file in the directory of a run. Also tests whether the file system has hard links:
    /// to find out once the memory was moved aside would be too late.
    pub(super) fn create_new_file(&self, staged: &str) -> Result<FileHandle, TransportError> {
        let new = Self::new_file_name(staged);
        let path = self.path_of(&new);
        let mut batch = vec![Request::Open {
            path: path_bytes(&path),
            flags: flags::READ | flags::WRITE | flags::CREATE | flags::EXCLUSIVE,
            mode: Some(0o600),
        }];
        let link = self.path_of(&Self::link_test_name(staged));
        if self.client.extensions().hardlink {
            batch.push(Request::HardLink {
                from: path_bytes(&path),
                to: path_bytes(&link),
            });
            batch.push(Request::Remove {
                path: path_bytes(&link),
            });
        }
        let mut answers = self.client.request_batch(batch)?;
        let link_test_replies = answers.split_off(1.min(answers.len()));
        let handle = match answers.pop() {
            Some(Ok(Reply::Handle(handle))) => handle,
            refused => {
                let _ = self.remove_name(&new);
                return Err(self.write_error("create", &path, refused.as_ref()));
            }
        };
        if let [linked, removed] = link_test_replies.as_slice() {
            self.lacks_hard_links
                .set(status_code(linked) != Some(status::OK));
            if !matches!(
                status_code(removed),
                Some(status::OK | status::NO_SUCH_FILE)
            ) {
                self.close_handle(handle);
                let _ = self.remove_name(&Self::link_test_name(staged));
                let _ = self.remove_name(&new);
                return Err(self.client.reply_error("remove", &link, Some(removed)));
            }
        }
        Ok(handle)
    }

    /// Puts the new file in the memory's place.
    pub(super) fn exchange_names(
        &self,
        staged: &str,
        new: StagedContent,
    ) -> Result<SwapOutcome, TransportError> {
        let mut displaced = Vec::new();
        let name = Self::new_file_name(staged);
        for _ in 0..MAX_SWAP_ATTEMPTS {
            let random = durable::new_random_name().map_err(refused_error)?;
            let aside = format!("{staged}/{DISPLACED_NAME_PREFIX}{random}");
            let pair = vec![self.move_aside_request(&aside), self.install_request(&name)];
            let mut behind = vec![
                lstat_request(&self.memory_path),
                lstat_request(&self.path_of(&aside)),
            ];
            behind.extend(self.directory_sync_requests());
            let answers = self.client.request_isolated(pair, behind)?;
            let at = self.clock.instant();
            let replace_error =
                |reply| self.client.reply_error("replace", &self.memory_path, reply);
            let [renamed, linked, stats @ ..] = answers.as_slice() else {
                return Err(replace_error(None));
            };
            // An object there was displaced, whatever the server replies.
            let has_aside = stats.get(1).and_then(reply_attrs).is_some();
            let was_displaced = match status_code(renamed) {
                Some(status::OK) => true,
                Some(_) if has_aside => true,
                Some(status::NO_SUCH_FILE) => false,
                _ => return Err(replace_error(Some(renamed))),
            };
            displaced.extend(was_displaced.then_some(aside));
            match status_code(linked) {
                Some(status::OK) => {
                    let method = if displaced.is_empty() {
                        SwapMethod::Create
                    } else {
                        SwapMethod::TakeAway
                    };
                    let last = displaced.last().filter(|_| was_displaced);
                    if !self.verify_exchange(&name, last.map(|name| (name, at)), stats, new)? {
                        displaced.push(name);
                    }
                    return Ok(SwapOutcome { method, displaced });
                }
                // The agent has created another file in between; the next attempt displaces that
                // one, too.
                Some(_) if self.exists_at(&self.memory_path)? => {}
                // The old file is better than none.
                _ => {
                    if let Some(aside) = displaced.last() {
                        self.move_back_into_place(aside)?;
                    }
                    return Err(replace_error(Some(linked)));
                }
            }
        }
        Err(self.client.replaced_error(&self.memory_path))
    }

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
        let renamed = self.client.request_one(Request::Rename { from, to })?;
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

    /// Moves the memory into the directory of a run.
    pub(super) fn move_memory_into_run_directory(
        &self,
        staged: &str,
    ) -> Result<SwapOutcome, TransportError> {
        let name = Self::new_file_name(staged);
        let to = self.path_of(&name);
        let mut batch = vec![self.move_aside_request(&name), lstat_request(&to)];
        batch.extend(self.directory_sync_requests());
        let answers = self.client.request_batch(batch)?;
        let refused = || {
            let reply = answers.first();
            self.client
                .reply_error("move aside", &self.memory_path, reply)
        };
        // An object there was displaced, even if the server reports a failure.
        let has_moved = answers.get(1).and_then(reply_attrs).is_some();
        let error = match answers.first().and_then(status_code) {
            Some(_) if has_moved => {
                return Ok(SwapOutcome {
                    method: SwapMethod::Remove,
                    displaced: vec![name],
                });
            }
            Some(status::OK) => {
                let why = "the server reported the rename, but the new name does not exist";
                return Err(self.client.refused_error("displace", &to, why));
            }
            Some(status::NO_SUCH_FILE) => self.client.replaced_error(&self.memory_path),
            Some(_) => refused(),
            None => return Err(refused()),
        };
        // The memory may still get there: a directory that holds anything stays.
        let _ = self.remove_run_directory(staged);
        Err(error)
    }

    /// Removes one of our own names. Succeeds if it is absent.
    pub(super) fn remove_name(&self, name: &str) -> Result<(), TransportError> {
        let mut batch = self.unlink_requests(name);
        batch.extend(self.directory_sync_requests());
        let answers = self.client.request_batch(batch)?;
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
    pub(super) fn list_run_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let mut names = Vec::new();
        for name in self.list_names(&self.path_of(staged))?.unwrap_or_default() {
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
        let mut batch = vec![Request::Remove {
            path: path_bytes(&path),
        }];
        if let Some(directory) = path
            .parent()
            .filter(|directory| *directory != self.directory_path)
        {
            batch.push(Request::RemoveDir {
                path: path_bytes(directory),
            });
            batch.push(lstat_request(directory));
        }
        batch
    }

    /// Checks the replies to the removal of a name: the name must be gone, and the run directory
    /// with its last name. Otherwise the journal record must not end.
    pub(super) fn check_unlinked(
        &self,
        name: &str,
        answers: &[ReplyResult],
    ) -> Result<(), TransportError> {
        let is_gone =
            answers.get(UNLINK_REQUESTS - 1).and_then(status_code) == Some(status::NO_SUCH_FILE);
        let Some((staged, _)) = name.split_once('/').filter(|_| !is_gone) else {
            return Ok(());
        };
        let mut names = self.list_run_names(staged)?;
        let kept = self.displaced_files.borrow();
        names.retain(|name| !kept.contains_key(name));
        let stats = names
            .iter()
            .map(|name| lstat_request(&self.path_of(name)))
            .collect();
        let stats = self.client.request_batch(stats)?;
        // Directories stay: only an agent can have created them there.
        let is_remaining = |stat: &ReplyResult| {
            reply_attrs(stat).is_some_and(|it| file_type(it) != Some(TYPE_DIRECTORY))
        };
        if let Some((left, _)) = names
            .iter()
            .zip(&stats)
            .find(|(_, stat)| is_remaining(stat))
        {
            return Err(self.client.refused_error(
                "remove",
                &self.path_of(left),
                STILL_EXISTS_MESSAGE,
            ));
        }
        if kept.is_empty() {
            self.remove_run_directory(staged)
        } else {
            Ok(())
        }
    }

    /// Removes the directory of a run, if it is empty.
    pub(super) fn remove_run_directory(&self, staged: &str) -> Result<(), TransportError> {
        let path = self.path_of(staged);
        let mut batch = vec![
            // The server may have reported its removal without doing it.
            Request::Remove {
                path: path_bytes(&path.join(LINK_TEST_NAME)),
            },
            Request::RemoveDir {
                path: path_bytes(&path),
            },
            lstat_request(&path),
        ];
        batch.extend(self.directory_sync_requests());
        let answers = self.client.request_batch(batch)?;
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
            Some(status::OK | status::NO_SUCH_FILE) => {
                Err(self
                    .client
                    .refused_error("remove", &path, STILL_EXISTS_MESSAGE))
            }
            // An agent has put a foreign object there.
            Some(_)
                if self
                    .list_names(&path)?
                    .is_none_or(|names| !is_empty_listing(&names)) =>
            {
                Ok(())
            }
            _ => Err(self.client.reply_error("remove", &path, answers.get(1))),
        }
    }

    /// Records a displaced file, with the content that was read before.
    pub(super) fn record_displaced(&self, name: &str, handle: FileHandle, at: Instant) {
        let displaced = OpenDisplacedFile {
            handle,
            last_content: self.last_read_content.get(),
            unchanged_since: at,
        };
        let mut all = self.displaced_files.borrow_mut();
        all.insert(name.to_string(), displaced);
    }
}

/// Returns whether these are the names of an empty directory.
fn is_empty_listing(names: &[Vec<u8>]) -> bool {
    names.iter().all(|name| name == b"." || name == b"..")
}

fn refused_error(error: Error) -> TransportError {
    TransportError::new(FailureCause::Refused, error)
}
