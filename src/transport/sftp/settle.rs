//! What comes after a swap: what was displaced is settled, by looking twice.

use std::cell::Cell;
use std::time::Duration;

use super::folder::{Handle, New, Seen, SftpFolder, handle, moved};
use super::host::{DIRECTORY, REGULAR, attrs, bytes, code, file, kind, lstat};
use super::pump::Held;
use super::wire::{Request, status};
use crate::digest::Hasher;
use crate::error::{Error, Kind};
use crate::transport::{Folder, Object, Reader, Settled, Sink, TransportError};

/// How long a displaced file must stay as it is before it goes: nobody can see
/// who has it open.
const QUIET: Duration = Duration::from_millis(250);

impl SftpFolder {
    /// Remembers what a displaced file held.
    fn saw(&self, name: &str, handle: Handle, held: &Held) {
        let seen = Seen {
            handle,
            content: held.content,
            size: held.size,
            at: self.clock.instant(),
        };
        let mut displaced = self.displaced.borrow_mut();
        displaced.insert(name.to_string(), seen);
    }

    /// After the exchange of names: reads what stands at the memory's name, looks
    /// at what was displaced for the first time, and removes the staged name.
    pub(super) fn look_after(
        &self,
        staged: &str,
        displaced: Option<&String>,
        new: New,
    ) -> Result<(), TransportError> {
        let aside = displaced.map(|name| self.at(name));
        let mut batch = vec![lstat(&self.memory), self.open_file(&self.memory)];
        if let Some(path) = &aside {
            batch.extend([lstat(path), self.open_file(path)]);
        }
        batch.extend(self.sync_folder());
        let mut answers = self.host.ask(batch)?.into_iter();
        let mut opened = || {
            let (found, opened) = (answers.next(), answers.next());
            let found = found.as_ref().and_then(attrs).copied();
            let size = found
                .filter(|attrs| kind(attrs) == Some(REGULAR))
                .and_then(|attrs| attrs.size);
            (found.is_some(), size, opened.and_then(handle))
        };
        let (_, size, memory) = opened();
        let (stands, old_size, old) = match &aside {
            Some(_) => opened(),
            None => (true, None, None),
        };
        let mut files = Vec::new();
        if let (Some(size), Some(handle)) = (size, &memory) {
            files.push((handle, self.memory.as_path(), size));
        }
        if let (Some(size), Some(handle), Some(path)) = (old_size, &old, &aside) {
            files.push((handle, path.as_path(), size));
        }
        let remove = Request::Remove {
            path: bytes(&self.at(staged)),
        };
        let read = self.digests_of(&files, vec![remove]);
        let read_memory = size.is_some() && memory.is_some();
        if let Some(handle) = memory {
            self.close(handle);
        }
        let (mut held, _) = read.inspect_err(|_| {
            if let Some(handle) = &old {
                self.close(handle.clone());
            }
        })?;
        if let (Some(name), Some(handle)) = (displaced, old) {
            match old_size.and_then(|_| held.pop()) {
                Some(held) => self.saw(name, handle, &held),
                // Whatever it is, settling looks at it anew.
                None => self.close(handle),
            }
        }
        if let (false, Some(path)) = (stands, &aside) {
            let why = "the server says that it was renamed, and it is not there";
            return Err(self.host.refused("displace", path, why));
        }
        match held.pop().filter(|_| read_memory) {
            Some(held) if (held.content, held.size) == (new.content, new.size) => {
                let stamp = file(&held.after).map(|file| file.stamp);
                self.installed.set(stamp.map(|stamp| (held.content, stamp)));
                Ok(())
            }
            // An agent may have begun to write to it already.
            Some(held) if held.size > new.size && self.begins_with(new.content, new.size)? => {
                Ok(())
            }
            _ => Err(moved(&self.host, &self.memory)),
        }
    }

    pub(super) fn settle_file(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        let path = self.at(displaced);
        let seen = self.displaced.borrow_mut().remove(displaced);
        let Some(seen) = seen else {
            let found = self.ask_one(lstat(&path))?;
            match (code(&found), attrs(&found).and_then(kind)) {
                (Some(status::NO_SUCH_FILE), _) => return Ok(Settled::Removed { watched: true }),
                (Some(code), _) => return Err(self.host.failed("look at", &path, code)),
                (None, Some(DIRECTORY)) => return Ok(Settled::Kept),
                (None, Some(REGULAR)) => {}
                (None, _) => {
                    let Some(found) = attrs(&found) else {
                        return Err(self.host.odd_answer("look at", &path));
                    };
                    let object = self.host.described(&path, found, None)?;
                    let Object::Odd(odd) = self.host.with_target(&path, object)? else {
                        return Err(self.host.odd_answer("look at", &path));
                    };
                    self.remove(displaced)?;
                    return Ok(Settled::Odd(odd));
                }
            }
            if let Some((handle, found)) = self.open_regular(&path)? {
                let held = self.digest_of(&handle, &path, found.size.unwrap_or(0))?;
                self.saw(displaced, handle, &held);
            }
            return Ok(Settled::Open);
        };
        if self.clock.instant().duration_since(seen.at) < QUIET {
            self.displaced
                .borrow_mut()
                .insert(displaced.to_string(), seen);
            return Ok(Settled::Open);
        }
        let handle = seen.handle.clone();
        let last = Cell::new((seen.content, seen.size));
        let read = |sink: Sink<'_>| {
            let mut hasher = Hasher::default();
            let (size, after) = self.pump(&handle, &path, last.get().1, &mut |bytes| {
                hasher.update(bytes);
                sink(bytes)
            })?;
            last.set((hasher.finish(), size));
            file(&after).ok_or_else(|| self.host.odd_answer("look at", &path))
        };
        let inspected = inspect(&read);
        let (content, size) = last.get();
        let again = Seen {
            handle: handle.clone(),
            content,
            size,
            at: self.clock.instant(),
        };
        if inspected.is_err() || content != seen.content {
            self.displaced
                .borrow_mut()
                .insert(displaced.to_string(), again);
            inspected?;
            return Ok(Settled::Open);
        }
        // Removed, and looked at once more: what a writer left in between is
        // still behind the handle.
        let mut batch = vec![
            Request::Remove { path: bytes(&path) },
            Request::Fstat {
                handle: handle.clone(),
            },
            Request::Read {
                handle: handle.clone(),
                offset: size,
                length: 1,
            },
        ];
        batch.extend(self.sync_folder());
        let answers = self.host.ask(batch)?;
        match answers.first().and_then(code) {
            Some(status::OK | status::NO_SUCH_FILE) => {}
            Some(code) => {
                self.displaced
                    .borrow_mut()
                    .insert(displaced.to_string(), again);
                return Err(self.host.failed("remove", &path, code));
            }
            None => return Err(self.host.odd_answer("remove", &path)),
        }
        let same = answers.get(1).and_then(attrs).and_then(|attrs| attrs.size) == Some(size)
            && answers.get(2).and_then(code) == Some(status::EOF);
        let settled = match same {
            true => Settled::Removed { watched: true },
            false => match inspect(&read) {
                Ok(()) => Settled::Removed { watched: true },
                Err(why) => Settled::Lost(Error::new(
                    Kind::Partial.worst(why.kind()),
                    format!(
                        "{} was removed, and what was written to it in that instant may be lost: {}",
                        path.display(),
                        why.message()
                    ),
                )),
            },
        };
        self.close(handle);
        Ok(settled)
    }
}
