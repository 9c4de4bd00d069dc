//! Settles displaced files on a host: inspects them twice, with a pause between.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use super::chunked_read::ChunkedRead;
use super::client::{
    ReplyResult, STAT_REQUESTS, TYPE_DIRECTORY, TYPE_REGULAR, file_metadata, file_type,
    lstat_request, reply_attrs, stat_requests, status_code,
};
use super::memory_directory::{
    FileHandle, SftpDirectory, StagedContent, into_handle, replaced_error,
};
use super::run_directory::UNLINK_REQUESTS;
use super::wire::{Attrs, status};
use crate::digest::{Digest, Hasher};
use crate::error::{Error, ErrorKind};
use crate::transport::{
    ByteSink, FileReader, MemoryDirectory, MemoryObject, SettleOutcome, SpecialFile, TransportError,
};

/// Time for which a displaced file must stay unchanged before its removal, since open writers
/// cannot be detected. It starts at the displacement; before that the file was read for its archive
/// entry.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// A displaced file, open.
pub(super) struct OpenDisplacedFile {
    pub(super) handle: FileHandle,
    /// Its content when it was read last, if it was.
    pub(super) last_content: Option<(Digest, u64)>,
    /// Start of the period without changes, if it is unchanged.
    pub(super) unchanged_since: Instant,
}

impl SftpDirectory {
    /// Verifies an exchange of names, given the stat replies right after it: reads the object at
    /// the memory's name, opens the displaced one, and removes the second name of the new file.
    /// Returns false if that name stays.
    pub(super) fn verify_exchange(
        &self,
        name: &str,
        displaced: Option<(&String, Instant)>,
        stat_replies: &[ReplyResult],
        new: StagedContent,
    ) -> Result<bool, TransportError> {
        let aside = displaced.map(|(name, _)| self.path_of(name));
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
            return Err(replaced_error(&self.client, &self.memory_path));
        }
        let aside = aside.filter(|_| size(1).is_some());
        let mut open = Vec::new();
        open.extend(size(0).map(|_| self.open_request(&self.memory_path)));
        open.extend(aside.map(|path| self.open_request(&path)));
        let mut opened = self.client.request_batch(open)?.into_iter();
        let memory = size(0).and_then(|_| opened.next()).and_then(into_handle);
        if let (Some((name, at)), Some(handle)) = (displaced, opened.next().and_then(into_handle)) {
            self.record_displaced(name, handle, at);
        }
        let mut remove = self.unlink_requests(name);
        remove.push(lstat_request(&self.path_of(name)));
        let (held, removed) = match memory {
            Some(handle) => {
                let size = size(0).unwrap_or_default();
                let read = self.digest_with_requests(&handle, &self.memory_path, size, remove);
                self.close_handle(handle);
                let (held, removed) = read?;
                (Some(held), removed)
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
            Some(held) if (held.content, held.size) == (new.content, new.size) => {
                let stamp = file_metadata(&held.attrs_after_read).map(|file| file.stamp);
                self.installed_content
                    .set(stamp.map(|stamp| (held.content, stamp)));
                Ok(is_gone)
            }
            // An agent may already have begun to write to it.
            Some(held)
                if held.size > new.size && self.memory_begins_with(new.content, new.size)? =>
            {
                Ok(is_gone)
            }
            _ => Err(replaced_error(&self.client, &self.memory_path)),
        }
    }

    pub(super) fn settle_file(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(FileReader<'_>) -> Result<(), Error>,
    ) -> Result<SettleOutcome, TransportError> {
        let seen = self.displaced_files.borrow_mut().remove(displaced);
        match seen {
            None => self.first_inspection(displaced),
            Some(seen)
                if self.clock.instant().duration_since(seen.unchanged_since) < QUIET_PERIOD =>
            {
                self.keep_displaced(displaced, seen);
                Ok(SettleOutcome::StillOpen)
            }
            Some(seen) => self.second_inspection(displaced, seen, inspect),
        }
    }

    /// Returns the object that these attributes describe, with the target of a link.
    fn object_from_attrs(
        &self,
        path: &Path,
        found: &Attrs,
    ) -> Result<MemoryObject, TransportError> {
        let object = self.client.object_from_attrs(path, found, None)?;
        self.client.resolve_link_target(path, object)
    }

    /// Removes an object that is neither a file nor a directory, if it is still the same.
    pub(super) fn remove_if_same(
        &self,
        name: &str,
        odd: &SpecialFile,
    ) -> Result<bool, TransportError> {
        let path = self.path_of(name);
        let found = self.request_one(lstat_request(&path))?;
        match (status_code(&found), reply_attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(true),
            (None, Some(found))
                if self.object_from_attrs(&path, found)? == MemoryObject::Special(odd.clone()) =>
            {
                self.remove_name(name).map(|()| true)
            }
            (None, Some(_)) => Ok(false),
            (Some(code), _) => Err(self.client.status_error("stat", &path, code)),
            (None, None) => Err(self.client.unexpected_reply_error("stat", &path)),
        }
    }

    /// Returns the owner of a file if it is not the directory's owner. SFTP has no link counts, so
    /// the file may be a second name of a file elsewhere.
    fn foreign_owner(&self, found: &Attrs) -> Option<u32> {
        let ((uid, _), (owner, _)) = (found.owner?, self.directory_attrs.owner?);
        (uid != owner).then_some(uid)
    }

    fn keep_displaced(&self, name: &str, displaced: OpenDisplacedFile) {
        let mut all = self.displaced_files.borrow_mut();
        all.insert(name.to_string(), displaced);
    }

    /// Inspects an object for the first time and opens it.
    fn first_inspection(&self, displaced: &str) -> Result<SettleOutcome, TransportError> {
        let path = self.path_of(displaced);
        let found = self.request_one(lstat_request(&path))?;
        match (status_code(&found), reply_attrs(&found).and_then(file_type)) {
            (Some(status::NO_SUCH_FILE), _) => {
                self.check_unlinked(displaced, &[])?;
                return Ok(SettleOutcome::Removed { was_watched: true });
            }
            (Some(code), _) => return Err(self.client.status_error("stat", &path, code)),
            (None, Some(TYPE_DIRECTORY)) => return Ok(SettleOutcome::Kept(SpecialFile::Directory)),
            (None, Some(TYPE_REGULAR)) => {}
            (None, _) => {
                let Some(found) = reply_attrs(&found) else {
                    return Err(self.client.unexpected_reply_error("stat", &path));
                };
                return match self.object_from_attrs(&path, found)? {
                    MemoryObject::Special(odd) => Ok(SettleOutcome::Special(odd)),
                    _ => Err(self.client.unexpected_reply_error("stat", &path)),
                };
            }
        }
        if let Some(uid) = reply_attrs(&found).and_then(|found| self.foreign_owner(found)) {
            return Ok(SettleOutcome::Kept(SpecialFile::ForeignHardLink(uid)));
        }
        if let Some((handle, found)) = self.open_regular(&path)? {
            match self.digest_open_file(&handle, &path, found.size.unwrap_or(0)) {
                Ok(held) => {
                    let at = self.clock.instant();
                    let held = Some((held.content, held.size));
                    self.keep_displaced(
                        displaced,
                        OpenDisplacedFile {
                            handle,
                            last_content: held,
                            unchanged_since: at,
                        },
                    );
                }
                Err(error) => {
                    self.close_handle(handle);
                    return Err(error);
                }
            }
        }
        Ok(SettleOutcome::StillOpen)
    }

    /// Captures the content that is not known yet. If the file is still unchanged, removes it, and
    /// reads it once more after the removal.
    fn second_inspection(
        &self,
        displaced: &str,
        seen: OpenDisplacedFile,
        inspect: &mut dyn FnMut(FileReader<'_>) -> Result<(), Error>,
    ) -> Result<SettleOutcome, TransportError> {
        let path = self.path_of(displaced);
        let OpenDisplacedFile {
            handle,
            last_content: held,
            ..
        } = seen;
        let last = Cell::new(held);
        let foreign = Cell::new(None);
        let read = |sink: ByteSink<'_>| {
            let mut hasher = Hasher::default();
            let size = last.get().map_or(0, |(_, size)| size);
            let (size, after) = self.read_to_end(&handle, &path, size, &mut |bytes| {
                hasher.update(bytes);
                sink(bytes)
            })?;
            last.set(Some((hasher.finish(), size)));
            if let Some(uid) = self.foreign_owner(&after) {
                foreign.set(Some(uid));
                let why = format!("it belongs to user {uid}");
                return Err(self.client.refused_error("read", &path, &why));
            }
            file_metadata(&after).ok_or_else(|| self.client.unexpected_reply_error("stat", &path))
        };
        let still_displaced = |held| OpenDisplacedFile {
            handle: handle.clone(),
            last_content: held,
            unchanged_since: self.clock.instant(),
        };
        let inspected = inspect(&read);
        if let Some(uid) = foreign.get() {
            self.close_handle(handle);
            return Ok(SettleOutcome::Kept(SpecialFile::ForeignHardLink(uid)));
        }
        if let Err(error) = inspected {
            // Closed and not kept: a file that the caller abandons has no due time.
            self.close_handle(handle);
            return Err(error.into());
        }
        let now = last.get();
        let Some((content, size)) = now.filter(|_| now == held) else {
            self.keep_displaced(displaced, still_displaced(now));
            return Ok(SettleOutcome::StillOpen);
        };
        // Bytes that a writer left in between are readable through the handle, even if the size is
        // unchanged.
        let mut pump = ChunkedRead::new(&handle, &path, size);
        let mut batch = self.unlink_requests(displaced);
        let reads = batch.len();
        batch.extend(pump.next_requests());
        let look = batch.len();
        batch.extend(stat_requests(&self.memory_path));
        batch.extend(self.directory_sync_requests());
        let answers = self.client.request_batch(batch)?;
        // For the caller that reads it back next.
        let object = answers.get(look..look + STAT_REQUESTS);
        let object = object.and_then(|answers| {
            self.client
                .object_from_replies(&self.memory_path, answers)
                .ok()
        });
        self.opening_object.replace(object);
        match answers.first().and_then(status_code) {
            Some(status::OK | status::NO_SUCH_FILE) => {}
            Some(code) => {
                self.keep_displaced(displaced, still_displaced(now));
                return Err(self.client.status_error("remove", &path, code));
            }
            None => {
                self.keep_displaced(displaced, still_displaced(now));
                return Err(self.client.unexpected_reply_error("remove", &path));
            }
        }
        let mut hasher = Hasher::default();
        let behind = pump.handle_replies(&self.client, &answers[reads..look], &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        });
        let same =
            matches!(behind, Ok(Some(_))) && (hasher.finish(), pump.offset) == (content, size);
        let settled = match same {
            true => SettleOutcome::Removed { was_watched: true },
            false => match inspect(&read) {
                Ok(()) => SettleOutcome::Removed { was_watched: true },
                Err(why) => SettleOutcome::Lost(Error::new(
                    ErrorKind::Partial.more_serious(why.kind()),
                    format!(
                        "{} was removed; bytes written to it in that instant may be lost: {}",
                        path.display(),
                        why.message()
                    ),
                )),
            },
        };
        self.close_handle(handle);
        if !matches!(settled, SettleOutcome::Lost(_)) {
            self.check_unlinked(displaced, &answers[..reads])?;
        }
        Ok(settled)
    }
}
