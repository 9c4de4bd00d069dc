//! Settles displaced files on a host: inspects them twice, with a pause between.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use super::chunked_read::ChunkedRead;
use super::client::{
    FileHandle, ReplyResult, STAT_REQUESTS, TYPE_DIRECTORY, TYPE_REGULAR, file_metadata, file_type,
    into_handle, lstat_request, reply_attrs, stat_requests, status_code,
};
use super::directory::{OpenDisplacedFile, SftpDirectory, StagedContent};
use super::run_directory::UNLINK_REQUESTS;
use super::wire::{Attrs, status};
use crate::base::digest::{Digest, Hasher};
use crate::base::error::{Error, ErrorKind};
use crate::transport::{
    ByteSink, DisplacedObject, FileMetadata, Inspector, MemoryDirectory, MemoryObject,
    SettleOutcome, SpecialFile, TransportError,
};

/// Time for which a displaced file must stay unchanged before its removal, since open writers
/// cannot be detected. It starts at the displacement; before that the file was read for its archive
/// entry.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(250);

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
            return Err(self.client.replaced_error(&self.memory_path));
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
            _ => Err(self.client.replaced_error(&self.memory_path)),
        }
    }

    pub(super) fn settle_object(
        &self,
        displaced: &str,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        let now = self.clock.instant();
        let mut displaced_files = self.displaced_files.borrow_mut();
        let seen = displaced_files.get(displaced);
        if seen.is_some_and(|seen| now.duration_since(seen.unchanged_since) < QUIET_PERIOD) {
            return Ok(SettleOutcome::StillOpen);
        }
        let seen = displaced_files.remove(displaced);
        drop(displaced_files);
        match seen {
            None => self.first_inspection(displaced, inspect),
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

    /// Removes an object that is neither a file nor a directory, if it is still the same; false
    /// where another one is there.
    fn remove_if_same(&self, name: &str, special: &SpecialFile) -> Result<bool, TransportError> {
        let path = self.path_of(name);
        let found = self.client.request_one(lstat_request(&path))?;
        match (status_code(&found), reply_attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(true),
            (None, Some(found))
                if self.object_from_attrs(&path, found)?
                    == MemoryObject::Special(special.clone()) =>
            {
                self.remove_name(name).map(|()| true)
            }
            (None, Some(_)) => Ok(false),
            _ => Err(self.client.reply_error("stat", &path, Some(&found))),
        }
    }

    /// Returns the owner of a file if it is not the directory's owner. SFTP has no link counts, so
    /// the file may be a second name of a file elsewhere.
    fn foreign_owner(&self, found: &Attrs) -> Option<u32> {
        let ((uid, _), (owner, _)) = (found.owner?, self.directory_attrs.owner?);
        (uid != owner).then_some(uid)
    }

    /// Keeps a displaced file open, with the content that it has now.
    fn keep_displaced(&self, name: &str, handle: FileHandle, content: Option<(Digest, u64)>) {
        let displaced = OpenDisplacedFile {
            handle,
            last_content: content,
            unchanged_since: self.clock.instant(),
        };
        let mut all = self.displaced_files.borrow_mut();
        all.insert(name.to_string(), displaced);
    }

    /// Inspects an object for the first time and opens it.
    fn first_inspection(
        &self,
        displaced: &str,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        let path = self.path_of(displaced);
        let found = self.client.request_one(lstat_request(&path))?;
        match (status_code(&found), reply_attrs(&found).and_then(file_type)) {
            (Some(status::NO_SUCH_FILE), _) => {
                self.check_unlinked(displaced, &[])?;
                return Ok(SettleOutcome::Removed { was_watched: true });
            }
            (Some(_), _) => return Err(self.client.reply_error("stat", &path, Some(&found))),
            (None, Some(TYPE_DIRECTORY)) => return Ok(SettleOutcome::Kept(SpecialFile::Directory)),
            (None, Some(TYPE_REGULAR)) => {}
            (None, _) => {
                let Some(attrs) = reply_attrs(&found) else {
                    return Err(self.client.reply_error("stat", &path, Some(&found)));
                };
                return match self.object_from_attrs(&path, attrs)? {
                    MemoryObject::Special(special) => {
                        inspect(DisplacedObject::Special(&special))?;
                        Ok(if self.remove_if_same(displaced, &special)? {
                            SettleOutcome::Removed { was_watched: true }
                        } else {
                            SettleOutcome::StillOpen
                        })
                    }
                    _ => Err(self.client.reply_error("stat", &path, Some(&found))),
                };
            }
        }
        if let Some(uid) = reply_attrs(&found).and_then(|found| self.foreign_owner(found)) {
            return Ok(SettleOutcome::Kept(SpecialFile::ForeignHardLink(uid)));
        }
        if let Some((handle, found)) = self.open_regular(&path)? {
            match self.digest_open_file(&handle, &path, found.size.unwrap_or(0)) {
                Ok(held) => {
                    self.keep_displaced(displaced, handle, Some((held.content, held.size)));
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
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        let path = self.path_of(displaced);
        let reader = DisplacedReader {
            directory: self,
            path: &path,
            handle: &seen.handle,
            last_content: Cell::new(seen.last_content),
            foreign_owner: Cell::new(None),
        };
        let read = |sink: ByteSink<'_>| reader.read(sink);
        let inspected = inspect(DisplacedObject::File(&read));
        if let Some(uid) = reader.foreign_owner.get() {
            self.close_handle(seen.handle);
            return Ok(SettleOutcome::Kept(SpecialFile::ForeignHardLink(uid)));
        }
        if let Err(error) = inspected {
            // Closed and not kept: a file that the caller abandons has no due time.
            self.close_handle(seen.handle);
            return Err(error.into());
        }
        let now = reader.last_content.get();
        let Some(content) = now.filter(|_| now == seen.last_content) else {
            self.keep_displaced(displaced, seen.handle, now);
            return Ok(SettleOutcome::StillOpen);
        };
        let (removal, is_unchanged) = self.remove_and_reread(displaced, &seen.handle, content)?;
        let settled = if is_unchanged {
            Ok(())
        } else {
            inspect(DisplacedObject::File(&read))
        };
        self.close_handle(seen.handle);
        if let Err(why) = settled {
            let message = format!(
                "{} was removed; bytes written to it in that instant may be lost: {}",
                path.display(),
                why.message()
            );
            let kind = ErrorKind::Partial.more_serious(why.kind());
            return Ok(SettleOutcome::Lost(Error::new(kind, message)));
        }
        self.check_unlinked(displaced, &removal)?;
        Ok(SettleOutcome::Removed { was_watched: true })
    }

    /// Removes a file that was inspected, and reads it through its handle once more: bytes that a
    /// writer left in between are there, even if the size is unchanged. Returns the replies to the
    /// removal, and whether the content is still this one.
    fn remove_and_reread(
        &self,
        displaced: &str,
        handle: &FileHandle,
        content: (Digest, u64),
    ) -> Result<(Vec<ReplyResult>, bool), TransportError> {
        let path = self.path_of(displaced);
        let mut pump = ChunkedRead::new(handle, &path, content.1);
        let mut batch = self.unlink_requests(displaced);
        let reads = batch.len();
        batch.extend(pump.next_requests());
        let stats = batch.len();
        batch.extend(stat_requests(&self.memory_path));
        batch.extend(self.directory_sync_requests());
        let mut answers = self.client.request_batch(batch)?;
        // For the caller that reads it back next.
        let object = answers.get(stats..stats + STAT_REQUESTS);
        let object = object.and_then(|answers| {
            self.client
                .object_from_replies(&self.memory_path, answers)
                .ok()
        });
        self.opening_object.replace(object);
        let refusal = match answers.first().and_then(status_code) {
            Some(status::OK | status::NO_SUCH_FILE) => None,
            _ => Some(self.client.reply_error("remove", &path, answers.first())),
        };
        if let Some(error) = refusal {
            self.keep_displaced(displaced, handle.clone(), Some(content));
            return Err(error);
        }
        let mut hasher = Hasher::default();
        let reread = pump.handle_replies(&self.client, &answers[reads..stats], &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        });
        let is_unchanged =
            matches!(reread, Ok(Some(_))) && (hasher.finish(), pump.offset) == content;
        answers.truncate(reads);
        Ok((answers, is_unchanged))
    }
}

/// The reader of an open displaced file.
struct DisplacedReader<'d> {
    directory: &'d SftpDirectory,
    path: &'d Path,
    handle: &'d FileHandle,
    /// The content when it was read last, if it was.
    last_content: Cell<Option<(Digest, u64)>>,
    /// The owner that keeps it from being read.
    foreign_owner: Cell<Option<u32>>,
}

impl DisplacedReader<'_> {
    fn read(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        let mut hasher = Hasher::default();
        let size = self.last_content.get().map_or(0, |(_, size)| size);
        let (size, after) =
            self.directory
                .read_to_end(self.handle, self.path, size, &mut |bytes| {
                    hasher.update(bytes);
                    sink(bytes)
                })?;
        self.last_content.set(Some((hasher.finish(), size)));
        let client = &self.directory.client;
        if let Some(uid) = self.directory.foreign_owner(&after) {
            self.foreign_owner.set(Some(uid));
            let why = format!("it belongs to user {uid}");
            return Err(client.refused_error("read", self.path, &why));
        }
        file_metadata(&after).ok_or_else(|| client.reply_error("stat", self.path, None))
    }
}
