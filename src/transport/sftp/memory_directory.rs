//! The contract of a memory's directory, over SFTP. There are no leases, inodes or link counts; the
//! methods say which guarantees are weaker for that.

use std::time::Instant;

use super::chunked_read::{MAX_FILE_BYTES, ReadContent, too_large_error};
use super::client::{
    STAT_REQUESTS, TYPE_DIRECTORY, file_type, lstat_request, path_bytes, reply_attrs,
    stat_requests, status_code,
};
use super::directory::{SftpDirectory, StagedContent, object_size};
use super::settle::QUIET_PERIOD;
use super::wire::{Request, status};
use crate::config::SftpExtension;
use crate::digest::{Digest, Hasher};
use crate::error::Error;
use crate::transport::{
    Attributes, ByteSink, FailureCause, FileIdentity, FileMetadata, FileReader, MemoryDirectory,
    MemoryObject, SettleOutcome, SpecialFile, SwapOutcome, TransportError, UnsyncedObject,
    compare_memory_prefix, new_memory_mode,
};

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
                _ => return Err(self.client.replaced_error(&self.memory_path)),
            },
        };
        self.last_size.set(None);
        if size > MAX_FILE_BYTES {
            return Err(too_large_error(&self.client, &self.memory_path, size));
        }
        let handle = self.open_file(&self.memory_path)?;
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
            _ => Err(self.client.replaced_error(&self.memory_path)),
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

    /// Reads a file that an earlier run staged.
    pub(super) fn read_earlier_staged(&self, name: &str) -> Result<StagedContent, TransportError> {
        let path = self.path_of(name);
        let Some((handle, found)) = self.open_regular(&path)? else {
            return Err(self.client.replaced_error(&path));
        };
        let read = self.digest_open_file(&handle, &path, found.size.unwrap_or(0));
        self.close_handle(handle);
        let ReadContent { content, size, .. } = read?;
        Ok(StagedContent { content, size })
    }
}
