//! Creates the new file of a memory on its host.

use std::path::Path;

use super::chunked_read::{ChunkedRead, MAX_REQUESTS_PER_FILE, READ_REQUEST_BYTES, ReadContent};
use super::client::{
    FileHandle, ReplyResult, TYPE_REGULAR, file_type, lstat_request, path_bytes, reply_attrs,
};
use super::directory::{SftpDirectory, StagedContent};
use super::wire::{Attrs, Reply, Request, Statvfs};
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
        let name = Self::new_file_name(staged);
        match self.write_staged_file(handle, &self.path_of(&name), content, attributes) {
            Ok(new) => {
                self.staged_content.set(Some(new));
                Ok(())
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

    /// Adds the explanation to a failure: the status for a full disk has none.
    pub(super) fn explain_write_error(&self, error: TransportError) -> TransportError {
        if error.cause != FailureCause::Refused || !self.client.extensions().statvfs {
            return error;
        }
        let asked = self.client.request_one(Request::Statvfs {
            path: path_bytes(&self.directory_path),
        });
        let found = match &asked {
            Ok(Ok(Reply::Extended(body))) => Statvfs::decode(body).ok(),
            _ => None,
        };
        let Some(found) = found else {
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

    /// Writes a new file through an open handle, syncs it on the host, and reads it back: some
    /// servers acknowledge writes and store nothing. Returns the handle.
    fn write_staged_file(
        &self,
        handle: FileHandle,
        path: &Path,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<StagedContent, TransportError> {
        let attributes = &attributes.for_new_file();
        let write_outcome = self.write_content(&handle, path, content);
        let (mut batch, new) = match write_outcome {
            Ok(fed) => fed,
            Err(error) => {
                self.close_handle(handle);
                return Err(error);
            }
        };
        let writes = batch.len();
        let set = |attrs| Request::Fsetstat {
            handle: handle.clone(),
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
            batch.push(Request::Fsync {
                handle: handle.clone(),
            });
        }
        // Read back in the same batch, unless it is long, and checked by its name.
        let readback_start = batch.len();
        let mut pump = ChunkedRead::new(&handle, path, new.size);
        batch.extend(pump.next_requests());
        let close = batch.len();
        batch.push(Request::Close {
            handle: handle.clone(),
        });
        batch.push(lstat_request(path));
        let answers = self.client.request_batch(batch)?;
        self.check_writes(&answers[..writes], answers.get(synced), path)?;
        let mut hasher = Hasher::default();
        let read = pump.handle_replies(
            &self.client,
            &answers[readback_start..close],
            &mut |bytes| {
                hasher.update(bytes);
                Ok(())
            },
        );
        let attrs_after_write = answers.last().and_then(reply_attrs).copied();
        let is_written_back = matches!(read, Ok(Some(_)))
            && (hasher.finish(), pump.offset) == (new.content, new.size)
            && attrs_after_write.is_some_and(|seen| {
                file_type(&seen) == Some(TYPE_REGULAR) && seen.size == Some(new.size)
            });
        let after = match (is_written_back, attrs_after_write) {
            (true, Some(seen)) => seen,
            // Some servers show the content only after the file is closed.
            _ => self.read_staged_file(path, new)?,
        };
        self.check_attributes(&after, attributes)?;
        Ok(new)
    }

    /// Writes all but the last requests of a content, and returns those.
    fn write_content(
        &self,
        handle: &FileHandle,
        path: &Path,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
    ) -> Result<(Vec<Request>, StagedContent), TransportError> {
        let mut hasher = Hasher::default();
        let mut size = 0;
        let mut queue: Vec<Request> = Vec::new();
        let mut failed = None;
        let write_outcome = content(&mut |data| {
            hasher.update(data);
            for piece in data.chunks(READ_REQUEST_BYTES as usize) {
                queue.push(Request::Write {
                    handle: handle.clone(),
                    offset: size,
                    bytes: piece.to_vec(),
                });
                size += piece.len() as u64;
                if queue.len() >= MAX_REQUESTS_PER_FILE {
                    let done = self.request_all_written(std::mem::take(&mut queue), "write", path);
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
        let content = hasher.finish();
        Ok((queue, StagedContent { content, size }))
    }

    /// Reads a new file back by its name.
    fn read_staged_file(&self, path: &Path, new: StagedContent) -> Result<Attrs, TransportError> {
        let readback_handle = self.open_file(path)?;
        let held = self.digest_open_file(&readback_handle, path, new.size);
        self.close_handle(readback_handle);
        let ReadContent {
            content,
            size,
            attrs_after_read: after,
        } = held?;
        if (content, size) == (new.content, new.size) {
            Ok(after)
        } else {
            let why = "the content read back differs from the content written";
            Err(self.client.refused_error("write", path, why))
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
            self.memory_path.display(),
            attributes.uid,
            attributes.gid,
            attributes.mode
        );
        let error = Error::new(ErrorKind::Host, message);
        let error = error.with_hint("log in as the agent's user: set remote_user");
        Err(TransportError::new(FailureCause::Refused, error))
    }

    /// Checks the write replies; owner and mode are checked by reading them back.
    fn check_writes(
        &self,
        writes: &[ReplyResult],
        sync: Option<&ReplyResult>,
        path: &Path,
    ) -> Result<(), TransportError> {
        for answer in writes {
            self.check_written(answer, "write", path)?;
        }
        match sync {
            Some(sync) if self.client.extensions().fsync => self.check_written(sync, "sync", path),
            _ => Ok(()),
        }
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
