//! Creates the new file of a memory on its host.

use std::path::Path;

use super::chunked_read::{ChunkedRead, FileContent, MAX_REQUESTS_PER_FILE, READ_REQUEST_BYTES};
use super::client::{
    FileHandle, ReplyResult, SftpClient, TYPE_REGULAR, file_type, lstat_request, path_bytes,
    remove_request, reply_attrs, status_code,
};
use super::directory::SftpDirectory;
use super::run_directory::{link_test_name, new_file_name};
use super::wire::{Attrs, Reply, Request, Statvfs, flags, status};
use crate::base::digest::Hasher;
use crate::base::error::{Error, ErrorKind};
use crate::transport::{Attributes, ByteSink, FailureCause, TransportError, new_memory_mode};

/// Server flag of a file system that is read-only.
const READ_ONLY_FLAG: u64 = 1;

/// Returns the state of the file system that explains a failure, if any.
fn file_system_obstacle(found: &Statvfs) -> Option<&'static str> {
    if found.flags & READ_ONLY_FLAG != 0 {
        Some("the host's file system is read-only")
    } else if found.blocks_available == 0 {
        Some("the host's file system is full: free some space there")
    } else if found.files > 0 && found.files_available == 0 {
        Some("the host's file system has no free inodes: remove some files there")
    } else {
        None
    }
}

impl SftpDirectory {
    /// Returns the attributes for a memory that is created here.
    pub(super) fn inherited_attributes(&self) -> Result<Attributes, TransportError> {
        let (Some((uid, gid)), Some(mode)) =
            (self.directory_attrs.owner, self.directory_attrs.mode)
        else {
            return Err(self.client.reply_error("stat", &self.directory_path, None));
        };
        Ok(Attributes {
            uid,
            gid,
            mode: new_memory_mode(mode),
            xattrs: Vec::new(),
        })
    }

    /// Opens a new file in the directory of a run. Also tests whether the file system has hard links:
    /// to find out once the memory was moved aside would be too late.
    fn create_new_file(&self, staged: &str) -> Result<FileHandle, TransportError> {
        let new = new_file_name(staged);
        let path = self.run.path_of(&new);
        let mut batch = vec![Request::Open {
            path: path_bytes(&path),
            flags: flags::READ | flags::WRITE | flags::CREATE | flags::EXCLUSIVE,
            mode: Some(0o600),
        }];
        let link = self.run.path_of(&link_test_name(staged));
        if self.client.extensions().hardlink {
            batch.push(Request::HardLink {
                from: path_bytes(&path),
                to: path_bytes(&link),
            });
            batch.push(remove_request(&link));
        }
        let mut answers = self.client.request_batch(batch)?;
        let link_test_replies = answers.split_off(1.min(answers.len()));
        let handle = match answers.pop() {
            Some(Ok(Reply::Handle(handle))) => handle,
            refused => {
                let _ = self.run.remove_name(&new);
                return Err(self.client.write_error("create", &path, refused.as_ref()));
            }
        };
        if let [linked, removed] = link_test_replies.as_slice() {
            self.support
                .lacks_hard_links
                .set(status_code(linked) != Some(status::OK));
            let removed_code = status_code(removed);
            if !matches!(removed_code, Some(status::OK | status::NO_SUCH_FILE)) {
                self.client.close_handle(handle);
                let _ = self.run.remove_name(&link_test_name(staged));
                let _ = self.run.remove_name(&new);
                return Err(self.client.reply_error("remove", &link, Some(removed)));
            }
        }
        Ok(handle)
    }

    /// Creates the new file in the directory of a run.
    pub(super) fn stage_file(
        &self,
        staged: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<(), TransportError> {
        let handle = self
            .create_new_file(staged)
            .map_err(|error| self.explain_write_error(error))?;
        let name = new_file_name(staged);
        let new_file = NewFile {
            directory: self,
            client: &self.client,
            path: &self.run.path_of(&name),
            handle,
        };
        match new_file.write(content, attributes) {
            Ok(new) => {
                self.staged_content.set(Some(new));
                Ok(())
            }
            Err(error) => {
                if error.cause == FailureCause::Unreachable {
                    return Err(error);
                }
                let error = self.explain_write_error(error);
                let _ = self.run.remove_name(&name);
                Err(error)
            }
        }
    }

    /// Adds the explanation to a failure: the status for a full disk has none.
    pub(super) fn explain_write_error(&self, error: TransportError) -> TransportError {
        if error.cause != FailureCause::Refused || !self.client.extensions().statvfs {
            return error;
        }
        let asked = self
            .client
            .request_one(Request::Statvfs(path_bytes(&self.directory_path)));
        let Ok(Ok(Reply::Extended(body))) = asked else {
            return error;
        };
        let Ok(found) = Statvfs::decode(&body) else {
            return error;
        };
        let error = match found.flags & READ_ONLY_FLAG {
            0 => error,
            _ => error.with_full_disk(false),
        };
        match file_system_obstacle(&found) {
            Some(why) => error.with_hint(why),
            None => error,
        }
    }
}

/// The new file of a memory, open for writing.
struct NewFile<'d> {
    directory: &'d SftpDirectory,
    client: &'d SftpClient,
    path: &'d Path,
    handle: FileHandle,
}

impl NewFile<'_> {
    /// Writes a new file through an open handle, syncs it on the host, and reads it back: some
    /// servers acknowledge writes and store nothing. Returns what it has.
    fn write(
        self,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<FileContent, TransportError> {
        let attributes = &attributes.for_new_file();
        let write_outcome = self.write_content(content);
        let (mut batch, new) = match write_outcome {
            Ok(fed) => fed,
            Err(error) => {
                self.client.close_handle(self.handle);
                return Err(error);
            }
        };
        let writes = batch.len();
        let set = |attrs| Request::Fsetstat {
            handle: self.handle.clone(),
            attrs,
        };
        batch.push(set(Attrs {
            owner: Some((attributes.uid, attributes.gid)),
            ..Attrs::default()
        }));
        batch.push(set(Attrs {
            mode: Some(attributes.mode),
            ..Attrs::default()
        }));
        let synced = batch.len();
        if self.client.extensions().fsync {
            batch.push(Request::Fsync(self.handle.clone()));
        }
        // Read back in the same batch, unless it is long, and checked by its name.
        let readback_start = batch.len();
        let mut pump = ChunkedRead::new(&self.handle, self.path, new.size);
        batch.extend(pump.next_requests());
        let close = batch.len();
        batch.push(Request::Close(self.handle.clone()));
        batch.push(lstat_request(self.path));
        let answers = self.client.request_batch(batch)?;
        self.check_writes(&answers[..writes], answers.get(synced))?;
        let readback = &answers[readback_start..close];
        let is_whole = pump.ends_with_content(self.client, readback, new);
        let attrs_after_write = answers.last().and_then(reply_attrs).copied();
        let is_written_back = is_whole
            && attrs_after_write.is_some_and(|seen| {
                file_type(&seen) == Some(TYPE_REGULAR) && seen.size == Some(new.size)
            });
        let after = match (is_written_back, attrs_after_write) {
            (true, Some(seen)) => seen,
            // Some servers show the content only after the file is closed.
            _ => self.read_back(new)?,
        };
        self.check_attributes(&after, attributes)?;
        Ok(new)
    }

    /// Writes all but the last requests of a content, and returns those.
    fn write_content(
        &self,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
    ) -> Result<(Vec<Request>, FileContent), TransportError> {
        let mut hasher = Hasher::default();
        let mut size = 0;
        let mut queue: Vec<Request> = Vec::new();
        let mut failed = None;
        let write_outcome = content(&mut |data| {
            hasher.update(data);
            for piece in data.chunks(READ_REQUEST_BYTES as usize) {
                queue.push(Request::Write {
                    handle: self.handle.clone(),
                    offset: size,
                    bytes: piece.to_vec(),
                });
                size += piece.len() as u64;
                if queue.len() >= MAX_REQUESTS_PER_FILE {
                    let answers = self.client.request_batch(std::mem::take(&mut queue));
                    let done = answers.and_then(|answers| self.check_writes(&answers, None));
                    done.map_err(|error| {
                        failed = Some(error.clone());
                        Error::from(error)
                    })?;
                }
            }
            Ok(())
        });
        match (write_outcome, failed) {
            (_, Some(error)) => return Err(error),
            (fed, None) => fed?,
        }
        let digest = hasher.finish();
        Ok((queue, FileContent { digest, size }))
    }

    /// Reads a new file back by its name.
    fn read_back(&self, new: FileContent) -> Result<Attrs, TransportError> {
        let readback_handle = self.client.open_file(self.path)?;
        let reader = &self.directory.reader;
        let read = reader.read_to_end(&readback_handle, self.path, new.size, &mut |_| Ok(()));
        self.client.close_handle(readback_handle);
        let (content, after) = read?;
        if content == new {
            Ok(after)
        } else {
            let why = "the content read back differs from the content written";
            Err(self.client.refused_error("write", self.path, why))
        }
    }

    /// Checks the write replies; owner and mode are checked by reading them back.
    fn check_writes(
        &self,
        writes: &[ReplyResult],
        sync: Option<&ReplyResult>,
    ) -> Result<(), TransportError> {
        for answer in writes {
            self.client.check_written(answer, "write", self.path)?;
        }
        match sync {
            Some(sync) if self.client.extensions().fsync => {
                self.client.check_written(sync, "sync", self.path)
            }
            _ => Ok(()),
        }
    }

    /// Checks that a new file has the requested owner and mode.
    fn check_attributes(
        &self,
        found: &Attrs,
        attributes: &Attributes,
    ) -> Result<(), TransportError> {
        let wanted = (
            Some((attributes.uid, attributes.gid)),
            Some(attributes.mode),
        );
        if (found.owner, found.mode.map(|mode| mode & 0o7777)) == wanted {
            return Ok(());
        }
        let message = format!(
            "{}:{} belongs to {}:{} with mode {:04o}, which cannot be set on a new file over SFTP",
            self.client.host_name(),
            self.directory.memory_path.display(),
            attributes.uid,
            attributes.gid,
            attributes.mode
        );
        let error = Error::new(ErrorKind::Host, message);
        let error = error.with_hint("log in as the agent's user: set remote_user");
        Err(TransportError::new(FailureCause::Refused, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_or_read_only_file_system_is_described() {
        let fine = Statvfs {
            blocks_available: 1,
            files: 10,
            files_available: 1,
            ..Statvfs::default()
        };
        let obstacle = |change: fn(&mut Statvfs)| {
            let mut found = fine;
            change(&mut found);
            file_system_obstacle(&found).unwrap_or_default()
        };
        assert_eq!(obstacle(|_| ()), "");
        assert!(obstacle(|it| it.flags = 1).contains("read-only"));
        assert!(obstacle(|it| it.blocks_available = 0).contains("full"));
        assert!(obstacle(|it| it.files_available = 0).contains("no free inodes"));
        // Some file systems do not count files.
        assert_eq!(obstacle(|it| (it.files, it.files_available) = (0, 0)), "");
    }
}
