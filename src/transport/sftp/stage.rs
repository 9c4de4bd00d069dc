//! Builds the new file of a memory on its host.

use std::path::Path;

use super::connection::{Answer, REGULAR, attrs, bytes, kind, lstat};
use super::folder::{Handle, New, SftpFolder};
use super::pump::{AHEAD, Held, PIECE, Pump};
use super::wire::{Attrs, Reply, Request, Statvfs};
use crate::digest::Hasher;
use crate::error::{Error, Kind};
use crate::transport::{Attributes, Cause, Sink, TransportError};

/// What a file system lacks, if that explains a failure.
fn lack(found: &Statvfs) -> Option<&'static str> {
    const READ_ONLY: u64 = 1;
    if found.flags & READ_ONLY != 0 {
        Some("the file system there is read-only")
    } else if found.blocks_available == 0 {
        Some("the file system there is full: make room on the host")
    } else if found.files > 0 && found.files_available == 0 {
        Some("the file system there has no room for more files: remove some on the host")
    } else {
        None
    }
}

impl SftpFolder {
    /// A failure with what explains it: the status for a full disk says nothing.
    pub(super) fn explained(&self, error: TransportError) -> TransportError {
        if error.cause != Cause::Refused || !self.host.extensions().statvfs {
            return error;
        }
        let asked = self.ask_one(Request::Statvfs {
            path: bytes(&self.path),
        });
        let found = match &asked {
            Ok(Ok(Reply::Extended(body))) => Statvfs::decode(body).ok(),
            _ => None,
        };
        match found.as_ref().and_then(lack) {
            Some(why) => error.hint(why),
            None => error,
        }
    }

    /// Writes a new file behind a handle, which is given back, puts it on the disk
    /// there, and reads it back: servers exist that acknowledge and keep nothing.
    pub(super) fn write_new(
        &self,
        handle: Handle,
        path: &Path,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<New, TransportError> {
        let attributes = &attributes.given();
        let fed = self.feed(&handle, path, content);
        let (mut batch, new) = match fed {
            Ok(fed) => fed,
            Err(error) => {
                self.close(handle);
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
        if self.host.extensions().fsync {
            batch.push(Request::Fsync {
                handle: handle.clone(),
            });
        }
        // Read with the writing, unless it is long, and looked at by its name.
        let back = batch.len();
        let mut pump = Pump::new(&handle, path, new.size);
        batch.extend(pump.next());
        let close = batch.len();
        batch.push(Request::Close {
            handle: handle.clone(),
        });
        batch.push(lstat(path));
        let answers = self.host.ask(batch)?;
        self.are_written(&answers[..writes], answers.get(synced), path)?;
        let mut hasher = Hasher::default();
        let read = pump.take(&self.host, &answers[back..close], &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        });
        let seen = answers.last().and_then(attrs).copied();
        let at_once = matches!(read, Ok(Some(_)))
            && (hasher.finish(), pump.offset) == (new.content, new.size)
            && seen.is_some_and(|seen| kind(&seen) == Some(REGULAR) && seen.size == Some(new.size));
        let after = match (at_once, seen) {
            (true, Some(seen)) => seen,
            // Some show what was written only once it is closed.
            _ => self.read_new(path, new)?,
        };
        self.is_dressed(&after, attributes)?;
        Ok(new)
    }

    /// Writes all but the last requests of a content, and gives those.
    fn feed(
        &self,
        handle: &Handle,
        path: &Path,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
    ) -> Result<(Vec<Request>, New), TransportError> {
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
        Ok((queue, New { content, size }))
    }

    /// Reads a new file back by its name.
    fn read_new(&self, path: &Path, new: New) -> Result<Attrs, TransportError> {
        let answer = self.ask_one(self.open_file(path))?;
        let back = self.opened(Some(answer), path)?;
        let held = self.digest_of(&back, path, new.size);
        self.close(back);
        let Held {
            content,
            size,
            after,
        } = held?;
        match (content, size) == (new.content, new.size) {
            true => Ok(after),
            false => {
                let why = "what was written is not what is read back";
                Err(self.host.refused("write", path, why))
            }
        }
    }

    /// Whether a new file has the owner and the mode that it was given.
    fn is_dressed(&self, found: &Attrs, attributes: &Attributes) -> Result<(), TransportError> {
        let wanted = (
            Some((attributes.uid, attributes.gid)),
            Some(attributes.mode),
        );
        if (found.owner, found.mode.map(|mode| mode & 0o7777)) == wanted {
            return Ok(());
        }
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
        Err(TransportError::new(Cause::Refused, error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_tells_what_it_lacks() {
        let fine = Statvfs {
            blocks_available: 1,
            files: 10,
            files_available: 1,
            ..Statvfs::default()
        };
        let told = |change: fn(&mut Statvfs)| {
            let mut found = fine;
            change(&mut found);
            lack(&found).unwrap_or_default()
        };
        assert_eq!(told(|_| ()), "");
        assert!(told(|it| it.flags = 1).contains("read-only"));
        assert!(told(|it| it.blocks_available = 0).contains("full"));
        assert!(told(|it| it.files_available = 0).contains("no room for more files"));
        // Some file systems do not count files.
        assert_eq!(told(|it| (it.files, it.files_available) = (0, 0)), "");
    }
}
