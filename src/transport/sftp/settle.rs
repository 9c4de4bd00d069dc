//! Settles displaced files on a host: inspects them twice, with a pause between.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use super::chunked_read::{ChunkedRead, FileContent};
use super::client::{
    FileHandle, ReplyResult, STAT_REQUESTS, SftpClient, TYPE_DIRECTORY, TYPE_REGULAR,
    file_metadata, file_type, lstat_request, reply_attrs, stat_requests, status_code,
};
use super::directory::SftpDirectory;
use super::displaced_files::{OpenDisplacedFile, QUIET_PERIOD};
use super::run_directory::UNLINK_REQUESTS;
use super::wire::{Attrs, status};
use crate::base::error::{Error, ErrorKind};
use crate::transport::{
    ByteSink, DisplacedObject, FileMetadata, Inspector, MemoryObject, SettleOutcome, SpecialFile,
    TransportError,
};

/// The settling of one displaced object.
pub(super) struct Settlement<'d> {
    directory: &'d SftpDirectory,
    client: &'d SftpClient,
    name: &'d str,
    path: PathBuf,
}

impl<'d> Settlement<'d> {
    /// Creates the settling of the object that was displaced to `name`; requests nothing yet.
    pub(super) fn new(directory: &'d SftpDirectory, name: &'d str) -> Settlement<'d> {
        Settlement {
            directory,
            client: &directory.client,
            name,
            path: directory.run.path_of(name),
        }
    }

    /// Inspects the object for the first or second time, once it was quiet for long enough.
    pub(super) fn settle(&self, inspect: Inspector<'_>) -> Result<SettleOutcome, TransportError> {
        let now = self.directory.reader.clock.instant();
        let mut kept = self.directory.displaced_files.0.borrow_mut();
        let seen = kept.get(self.name);
        if seen.is_some_and(|seen| now.duration_since(seen.unchanged_since) < QUIET_PERIOD) {
            return Ok(SettleOutcome::StillOpen);
        }
        let seen = kept.remove(self.name);
        drop(kept);
        match seen {
            None => self.first_inspection(inspect),
            Some(seen) => self.second_inspection(seen, inspect),
        }
    }

    /// Returns the object that these attributes describe, with the target of a link.
    fn object_from_attrs(&self, found: &Attrs) -> Result<MemoryObject, TransportError> {
        let object = self.client.object_from_attrs(&self.path, found, None)?;
        self.client.resolve_link_target(&self.path, object)
    }

    /// Removes an object that is neither a file nor a directory, if it is still the same; false
    /// where another one is there.
    fn remove_if_same(&self, special: &SpecialFile) -> Result<bool, TransportError> {
        let path = &self.path;
        let found = self.client.request_one(lstat_request(path))?;
        match (status_code(&found), reply_attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(true),
            (None, Some(found))
                if self.object_from_attrs(found)? == MemoryObject::Special(special.clone()) =>
            {
                self.directory.run.remove_name(self.name).map(|()| true)
            }
            (None, Some(_)) => Ok(false),
            _ => Err(self.client.reply_error("stat", path, Some(&found))),
        }
    }

    /// Inspects an object for the first time and opens it.
    fn first_inspection(&self, inspect: Inspector<'_>) -> Result<SettleOutcome, TransportError> {
        let path = &self.path;
        let found = self.client.request_one(lstat_request(path))?;
        match (status_code(&found), reply_attrs(&found).and_then(file_type)) {
            (Some(status::NO_SUCH_FILE), _) => {
                self.check_unlinked(&[])?;
                return Ok(SettleOutcome::Removed { was_watched: true });
            }
            (Some(_), _) => return Err(self.client.reply_error("stat", path, Some(&found))),
            (None, Some(TYPE_DIRECTORY)) => return Ok(SettleOutcome::Kept(SpecialFile::Directory)),
            (None, Some(TYPE_REGULAR)) => {}
            (None, _) => {
                let Some(attrs) = reply_attrs(&found) else {
                    return Err(self.client.reply_error("stat", path, Some(&found)));
                };
                return match self.object_from_attrs(attrs)? {
                    MemoryObject::Special(special) => {
                        inspect(DisplacedObject::Special(&special))?;
                        Ok(if self.remove_if_same(&special)? {
                            SettleOutcome::Removed { was_watched: true }
                        } else {
                            SettleOutcome::StillOpen
                        })
                    }
                    _ => Err(self.client.reply_error("stat", path, Some(&found))),
                };
            }
        }
        if let Some(uid) =
            reply_attrs(&found).and_then(|found| foreign_owner(self.directory, found))
        {
            return Ok(SettleOutcome::Kept(SpecialFile::ForeignHardLink(uid)));
        }
        if let Some((handle, found)) = self.client.open_regular(path)? {
            let size = found.size.unwrap_or(0);
            let reader = &self.directory.reader;
            match reader.read_to_end(&handle, path, size, &mut |_| Ok(())) {
                Ok((content, _)) => self.keep(handle, Some(content)),
                Err(error) => {
                    self.client.close_handle(handle);
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
        seen: OpenDisplacedFile,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        let path = &self.path;
        let reader = DisplacedReader {
            directory: self.directory,
            path,
            handle: &seen.handle,
            last_content: Cell::new(seen.last_content),
            foreign_owner: Cell::new(None),
        };
        let read = |sink: ByteSink<'_>| reader.read(sink);
        let inspected = inspect(DisplacedObject::File(&read));
        if let Some(uid) = reader.foreign_owner.get() {
            self.client.close_handle(seen.handle);
            return Ok(SettleOutcome::Kept(SpecialFile::ForeignHardLink(uid)));
        }
        if let Err(error) = inspected {
            // Closed and not kept: a file that the caller abandons has no due time.
            self.client.close_handle(seen.handle);
            return Err(error.into());
        }
        let now = reader.last_content.get();
        let Some(content) = now.filter(|_| now == seen.last_content) else {
            self.keep(seen.handle, now);
            return Ok(SettleOutcome::StillOpen);
        };
        let (removal, is_unchanged) = self.remove_and_reread(&seen.handle, content)?;
        let settled = if is_unchanged {
            Ok(())
        } else {
            inspect(DisplacedObject::File(&read))
        };
        self.client.close_handle(seen.handle);
        if let Err(why) = settled {
            let message = format!(
                "{} was removed; bytes written to it in that instant may be lost: {}",
                path.display(),
                why.message()
            );
            let kind = ErrorKind::Partial.more_serious(why.kind());
            return Ok(SettleOutcome::Lost(Error::new(kind, message)));
        }
        self.check_unlinked(&removal)?;
        Ok(SettleOutcome::Removed { was_watched: true })
    }

    /// Removes a file that was inspected, and reads it through its handle once more: bytes that a
    /// writer left in between are there, even if the size is unchanged. Returns the replies to the
    /// removal, and whether the content is still this one.
    fn remove_and_reread(
        &self,
        handle: &FileHandle,
        content: FileContent,
    ) -> Result<(Vec<ReplyResult>, bool), TransportError> {
        let path = &self.path;
        let mut pump = ChunkedRead::new(handle, path, content.size);
        let mut batch = self.directory.run.unlink_requests(self.name);
        let reads = batch.len();
        batch.extend(pump.next_requests());
        let stats = batch.len();
        batch.extend(stat_requests(&self.directory.memory_path));
        batch.extend(self.directory.run.sync_requests());
        let mut answers = self.client.request_batch(batch)?;
        // For the caller that reads it back next.
        let object = answers.get(stats..stats + STAT_REQUESTS);
        let object = object.and_then(|answers| {
            self.client
                .object_from_replies(&self.directory.memory_path, answers)
                .ok()
        });
        self.directory.opening_object.replace(object);
        let refusal = match answers.first().and_then(status_code) {
            Some(status::OK | status::NO_SUCH_FILE) => None,
            _ => Some(self.client.reply_error("remove", path, answers.first())),
        };
        if let Some(error) = refusal {
            self.keep(handle.clone(), Some(content));
            return Err(error);
        }
        let is_unchanged = pump.ends_with_content(self.client, &answers[reads..stats], content);
        answers.truncate(reads);
        Ok((answers, is_unchanged))
    }

    /// Keeps the displaced file open, with the content that it has now.
    fn keep(&self, handle: FileHandle, last_content: Option<FileContent>) {
        let file = OpenDisplacedFile {
            handle,
            last_content,
            unchanged_since: self.directory.reader.clock.instant(),
        };
        self.directory.displaced_files.keep(self.name, file);
    }

    /// Checks the replies to the removal of a name: the name must be gone, and the run directory
    /// with its last name. Otherwise the journal record must not end.
    fn check_unlinked(&self, answers: &[ReplyResult]) -> Result<(), TransportError> {
        let is_gone =
            answers.get(UNLINK_REQUESTS - 1).and_then(status_code) == Some(status::NO_SUCH_FILE);
        let Some((staged, _)) = self.name.split_once('/').filter(|_| !is_gone) else {
            return Ok(());
        };
        let mut names = self.directory.run.list_names(staged)?;
        let kept = self.directory.displaced_files.0.borrow();
        names.retain(|name| !kept.contains_key(name));
        let stats = names
            .iter()
            .map(|name| lstat_request(&self.directory.run.path_of(name)))
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
            let run = &self.directory.run;
            return Err(run.still_exists_error(&run.path_of(left)));
        }
        if kept.is_empty() {
            self.directory.run.remove(staged)
        } else {
            Ok(())
        }
    }
}

/// Returns the owner of a file if it is not the directory's owner. SFTP has no link counts, so
/// the file may be a second name of a file elsewhere.
fn foreign_owner(directory: &SftpDirectory, found: &Attrs) -> Option<u32> {
    let ((uid, _), (owner, _)) = (found.owner?, directory.directory_attrs.owner?);
    (uid != owner).then_some(uid)
}

/// The reader of an open displaced file.
struct DisplacedReader<'d> {
    directory: &'d SftpDirectory,
    path: &'d Path,
    handle: &'d FileHandle,
    /// The content when it was read last, if it was.
    last_content: Cell<Option<FileContent>>,
    /// The owner that keeps it from being read.
    foreign_owner: Cell<Option<u32>>,
}

impl DisplacedReader<'_> {
    fn read(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        let size = self.last_content.get().map_or(0, |content| content.size);
        let reader = &self.directory.reader;
        let (content, after) = reader.read_to_end(self.handle, self.path, size, sink)?;
        self.last_content.set(Some(content));
        let client = &self.directory.client;
        if let Some(uid) = foreign_owner(self.directory, &after) {
            self.foreign_owner.set(Some(uid));
            let why = format!("it belongs to user {uid}");
            return Err(client.refused_error("read", self.path, &why));
        }
        file_metadata(&after).ok_or_else(|| client.reply_error("stat", self.path, None))
    }
}
