//! Builds the new file of a memory on its host.

use std::path::Path;

use super::folder::{Handle, New, SftpFolder};
use super::host::Answer;
use super::pump::{AHEAD, Held, PIECE};
use super::wire::{Attrs, Request};
use crate::digest::Hasher;
use crate::error::{Error, Kind};
use crate::transport::{Attributes, Cause, Sink, TransportError};

impl SftpFolder {
    /// Writes a new file behind a handle, puts it on the disk there, and reads it
    /// back through another: servers exist that acknowledge and keep nothing.
    pub(super) fn write_new(
        &self,
        handle: &Handle,
        path: &Path,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<New, TransportError> {
        let mut hasher = Hasher::default();
        let mut size = 0;
        let mut queue: Vec<Request> = Vec::new();
        let mut failed = None;
        let fed = content(&mut |data| {
            hasher.update(data);
            for piece in data.chunks(PIECE as usize) {
                queue.push(Request::Write {
                    handle: handle.clone(),
                    offset: size,
                    bytes: piece.to_vec(),
                });
                size += piece.len() as u64;
                if queue.len() >= AHEAD {
                    let done = self.all_ok(std::mem::take(&mut queue), "write", path);
                    done.map_err(|error| {
                        failed = Some(error.clone());
                        Error::from(error)
                    })?;
                }
            }
            Ok(())
        });
        match (fed, failed) {
            (_, Some(error)) => return Err(error),
            (fed, None) => fed?,
        }
        let content = hasher.finish();
        let writes = queue.len();
        let set = |attrs| Request::Fsetstat {
            handle: handle.clone(),
            attrs,
        };
        queue.push(set(Attrs {
            owner: Some((attributes.uid, attributes.gid)),
            ..Attrs::default()
        }));
        queue.push(set(Attrs {
            mode: Some(attributes.mode),
            ..Attrs::default()
        }));
        let synced = queue.len();
        if self.host.extensions().fsync {
            queue.push(Request::Fsync {
                handle: handle.clone(),
            });
        }
        queue.push(Request::Close {
            handle: handle.clone(),
        });
        queue.push(self.open_file(path));
        let mut answers = self.host.ask(queue)?;
        let back = self.opened(answers.pop(), path)?;
        let result = self.are_written(&answers[..writes], answers.get(synced), path);
        let read = result.and_then(|()| self.digest_of(&back, path, size));
        self.close(back);
        let Held {
            content: found,
            size: read,
            after,
        } = read?;
        if (found, read) != (content, size) {
            let why = "what was written is not what is read back";
            return Err(self.host.refused("write", path, why));
        }
        let ours = (after.owner, after.mode.map(|mode| mode & 0o7777));
        if ours
            != (
                Some((attributes.uid, attributes.gid)),
                Some(attributes.mode),
            )
        {
            let message = format!(
                "{}:{} belongs to {}:{} with mode {:04o}, and a new file cannot be given the same over SFTP",
                self.host.host(),
                self.memory.display(),
                attributes.uid,
                attributes.gid,
                attributes.mode
            );
            let error = Error::new(Kind::Host, message);
            let error = error.hint("log in as the agent's own user: remote_user");
            return Err(TransportError::new(Cause::Refused, error));
        }
        Ok(New { content, size })
    }

    /// Owner and mode are looked at instead.
    fn are_written(
        &self,
        writes: &[Answer],
        sync: Option<&Answer>,
        path: &Path,
    ) -> Result<(), TransportError> {
        for answer in writes {
            self.is_ok(answer, "write", path)?;
        }
        match sync {
            Some(sync) if self.host.extensions().fsync => self.is_ok(sync, "sync", path),
            _ => Ok(()),
        }
    }
}
