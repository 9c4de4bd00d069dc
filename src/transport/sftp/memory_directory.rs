//! The contract of a memory's directory, over SFTP. There are no leases, inodes or link counts; the
//! methods say which guarantees are weaker for that.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use super::chunked_read::{MAX_FILE_BYTES, too_large_error};
use super::client::{
    STAT_REQUESTS, TYPE_DIRECTORY, file_type, lstat_request, path_bytes, reply_attrs,
    stat_requests, status_code,
};
use super::directory::{SftpDirectory, object_size};
use super::settle::Settlement;
use super::wire::{Request, status};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::config::SftpExtension;
use crate::transport::{
    ByteSink, DirectoryProperties, FailureCause, FileMetadata, Inspector, InterruptedRun,
    MemoryDirectory, MemoryObject, NewMemory, RecoveredRun, SettleOutcome, StagedAttributes,
    SwapForecast, SwapOutcome, TransportError, UnsyncedObject, compare_memory_prefix,
    similar_names,
};

impl MemoryDirectory for SftpDirectory {
    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        // Each method syncs its own changes, where the server supports that.
        Vec::new()
    }

    fn properties(&self) -> Result<DirectoryProperties, TransportError> {
        let (missing_extensions, swap_forecast) =
            match self.support.find_denied_writes(&self.memory_path)? {
                Some(error) => (Vec::new(), SwapForecast::Refused(error)),
                None => (self.support.find_missing_extensions(), SwapForecast::Clear),
            };
        Ok(DirectoryProperties {
            id: None,
            missing_extensions,
            swap_forecast,
        })
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

    fn find_similar_name(&self) -> Option<OsString> {
        let names = self
            .reader
            .list_names(&self.directory_path)
            .ok()??
            .into_iter();
        let similar = similar_names(self.memory_path.file_name()?, names.map(OsString::from_vec));
        let is_file = |name: &OsString| {
            let path = self.directory_path.join(name);
            let found = self.client.stat_memories(&[path.as_path()]);
            found.is_ok_and(|found| matches!(found[..], [Ok(MemoryObject::File(_))]))
        };
        similar.into_iter().find(is_file)
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
        let handle = self.client.open_file(&self.memory_path)?;
        let read = self
            .reader
            .read_to_end(&handle, &self.memory_path, size, sink);
        self.client.close_handle(handle);
        let (content, after) = read?;
        self.last_read_content.set(Some(content));
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

    fn claim(&self, run: &str) -> Result<(), TransportError> {
        let created = self.run.create(run);
        created.map_err(|error| self.explain_write_error(error))
    }

    fn stage(
        &self,
        run: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: StagedAttributes,
    ) -> Result<Vec<SftpExtension>, TransportError> {
        let attributes = attributes.resolve(|| self.inherited_attributes())?;
        self.stage_file(run, content, &attributes)?;
        Ok(self.support.find_missing_extensions())
    }

    fn create_directory(&self) -> Result<bool, TransportError> {
        let path = &self.memory_path;
        let mode = self.directory_attrs.mode.unwrap_or(0o700) & 0o777;
        let batch = vec![
            Request::MakeDir {
                path: path_bytes(path),
                mode,
            },
            lstat_request(path),
        ];
        let replies = self.run.request_synced(batch)?;
        self.opening_object.take();
        let found = replies.get(1).and_then(reply_attrs);
        let is_directory = found.and_then(file_type) == Some(TYPE_DIRECTORY);
        match replies.first() {
            Some(made) if status_code(made) == Some(status::OK) && is_directory => {}
            Some(made) if is_directory && status_code(made).is_some() => return Ok(false),
            Some(made) => {
                return Err(self
                    .client
                    .write_error("create the directory", path, Some(made)));
            }
            None => return Err(self.client.reply_error("create the directory", path, None)),
        }
        if found.and_then(|found| found.owner) != self.directory_attrs.owner {
            self.remove_directory()?;
            let why = "it would not belong to the owner of the directory that it is in: log in as \
                       the agent's user, with remote_user";
            return Err(self.client.refused_error("create the directory", path, why));
        }
        Ok(true)
    }

    fn remove_directory(&self) -> Result<bool, TransportError> {
        let batch = vec![
            Request::RemoveDir(path_bytes(&self.memory_path)),
            lstat_request(&self.memory_path),
        ];
        let replies = self.run.request_synced(batch)?;
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

    fn commit(&self, run: &str, new: NewMemory) -> Result<SwapOutcome, TransportError> {
        match new {
            NewMemory::StagedFile { .. } => {
                let staged = self.staged_content.take();
                let staged =
                    staged.ok_or_else(|| self.client.replaced_error(&self.run.path_of(run)))?;
                self.exchange_names(run, staged)
            }
            NewMemory::KeptObject(_) | NewMemory::Symlink(_) => {
                let message = format!("{run} can only be restored by hand");
                let error = Error::new(ErrorKind::Conflict, message);
                Err(TransportError::new(FailureCause::CallerFailed, error))
            }
            NewMemory::Nothing => self.move_memory_into_run_directory(run),
        }
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        Settlement::new(self, displaced).settle(inspect)
    }

    fn next_settle_time(&self) -> Option<Instant> {
        self.displaced_files.next_settle_time()
    }

    fn display_name(&self, name: &str) -> String {
        let path = self.run.path_of(name);
        let inside = path.strip_prefix(&self.directory_path).unwrap_or(&path);
        inside.display().to_string()
    }

    fn recover(&self, run: &InterruptedRun) -> Result<Option<RecoveredRun>, TransportError> {
        self.recover_run(run).map(Some)
    }

    fn has_files_of_run(&self, run: &str) -> Result<bool, TransportError> {
        Ok(self.reader.list_names(&self.run.path_of(run))?.is_some())
    }
}
