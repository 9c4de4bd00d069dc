//! Replaces a memory: moves it into the directory of the run, and gives the new file its name.

use std::time::Instant;

use super::chunked_read::FileContent;
use super::client::{
    ReplyResult, TYPE_REGULAR, file_metadata, file_type, into_handle, lstat_request, open_request,
    path_bytes, reply_attrs, status_code,
};
use super::directory::SftpDirectory;
use super::displaced_files::OpenDisplacedFile;
use super::run_directory::{UNLINK_REQUESTS, new_displaced_name, new_file_name};
use super::wire::{Request, status};
use crate::transport::{FailureCause, MemoryDirectory, SwapMethod, SwapOutcome, TransportError};

/// Attempts of a swap while the agent keeps creating a new file.
const MAX_SWAP_ATTEMPTS: usize = 16;

impl SftpDirectory {
    /// Puts the new file in the memory's place.
    pub(super) fn exchange_names(
        &self,
        staged: &str,
        new: FileContent,
    ) -> Result<SwapOutcome, TransportError> {
        let mut displaced = Vec::new();
        let name = new_file_name(staged);
        for _ in 0..MAX_SWAP_ATTEMPTS {
            let aside = new_displaced_name(staged)
                .map_err(|error| TransportError::new(FailureCause::Refused, error))?;
            let (new_path, aside_path) = (self.run.path_of(&name), self.run.path_of(&aside));
            let pair = vec![
                self.client.rename_request(&self.memory_path, &aside_path),
                self.support.install_request(&new_path, &self.memory_path),
            ];
            let mut behind = vec![lstat_request(&self.memory_path), lstat_request(&aside_path)];
            behind.extend(self.run.sync_requests());
            let answers = self.client.request_isolated(pair, behind)?;
            let at = self.reader.clock.instant();
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
                Some(_) if self.client.exists_at(&self.memory_path)? => {}
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
        let from = path_bytes(&self.run.path_of(aside));
        let to = path_bytes(&self.memory_path);
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
            return self.run.remove_name(aside);
        }
        // A plain rename does not replace anything, either.
        let renamed = self.client.request_one(Request::Rename { from, to })?;
        match status_code(&renamed) {
            Some(status::OK) => Ok(()),
            _ if self.client.exists_at(&self.memory_path)? => Ok(()),
            _ => {
                let why = format!(
                    "the server refuses links and renames; its content is in {}, and the next run restores it",
                    self.run.path_of(aside).display()
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
        let name = new_file_name(staged);
        let to = self.run.path_of(&name);
        let batch = vec![
            self.client.rename_request(&self.memory_path, &to),
            lstat_request(&to),
        ];
        let answers = self.run.request_synced(batch)?;
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
        let _ = self.run.remove(staged);
        Err(error)
    }

    /// Verifies an exchange of names, given the stat replies right after it: reads the object at
    /// the memory's name, opens the displaced one, and removes the second name of the new file.
    /// Returns false if that name stays.
    fn verify_exchange(
        &self,
        name: &str,
        displaced: Option<(&String, Instant)>,
        stat_replies: &[ReplyResult],
        new: FileContent,
    ) -> Result<bool, TransportError> {
        let aside = displaced.map(|(name, _)| self.run.path_of(name));
        if let Some(path) = &aside
            && stat_replies.get(1).and_then(reply_attrs).is_none()
        {
            let why = "the server reported the rename, but the new name does not exist";
            return Err(self.client.refused_error("displace", path, why));
        }
        // Opening would follow a link, and block on a FIFO.
        let size = |place: usize| {
            let found = stat_replies.get(place).and_then(reply_attrs);
            let regular = found.filter(|attrs| file_type(attrs) == Some(TYPE_REGULAR));
            regular.and_then(|attrs| attrs.size)
        };
        // The new file has no second name, or another process has removed it.
        if stat_replies.first().and_then(status_code) == Some(status::NO_SUCH_FILE) {
            return Err(self.client.replaced_error(&self.memory_path));
        }
        let aside = aside.filter(|_| size(1).is_some());
        let mut open = Vec::new();
        open.extend(size(0).map(|_| open_request(&self.memory_path)));
        open.extend(aside.map(|path| open_request(&path)));
        let mut opened = self.client.request_batch(open)?.into_iter();
        let memory = size(0).and_then(|_| opened.next()).and_then(into_handle);
        if let (Some((name, at)), Some(handle)) = (displaced, opened.next().and_then(into_handle)) {
            let file = OpenDisplacedFile {
                handle,
                last_content: self.last_read_content.get(),
                unchanged_since: at,
            };
            self.displaced_files.keep(name, file);
        }
        let mut remove = self.run.unlink_requests(name);
        remove.push(lstat_request(&self.run.path_of(name)));
        let (held, removed) = match memory {
            Some(handle) => {
                let (path, size) = (&self.memory_path, size(0).unwrap_or_default());
                let reader = &self.reader;
                let read = reader.read_with_requests(&handle, path, size, remove, &mut |_| Ok(()));
                self.client.close_handle(handle);
                let (content, after, removed) = read?;
                (Some((content, after)), removed)
            }
            None => (None, self.client.request_batch(remove)?),
        };
        // The server keeps the directory while it has entries.
        let staged_name_reply = match displaced {
            Some(_) => removed.last(),
            None => removed.get(UNLINK_REQUESTS - 1),
        };
        let is_gone = staged_name_reply.and_then(status_code) == Some(status::NO_SUCH_FILE);
        match held {
            Some((content, after)) if content == new => {
                let stamp = file_metadata(&after).map(|file| file.stamp);
                self.installed_content
                    .set(stamp.map(|stamp| (content.digest, stamp)));
                Ok(is_gone)
            }
            // An agent may already have begun to write to it.
            Some((content, _))
                if content.size > new.size && self.memory_begins_with(new.digest, new.size)? =>
            {
                Ok(is_gone)
            }
            _ => Err(self.client.replaced_error(&self.memory_path)),
        }
    }
}
