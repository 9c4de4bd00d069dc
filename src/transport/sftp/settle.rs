//! What comes after a swap: what was displaced is settled, by looking twice.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use super::folder::{Handle, New, Seen, SftpFolder, handle, moved};
use super::host::{DIRECTORY, LOOK, REGULAR, attrs, bytes, code, file, kind, look_at, lstat};
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
    /// at what was displaced for the first time, and removes the staged name. False
    /// when that stays.
    pub(super) fn look_after(
        &self,
        staged: &str,
        displaced: Option<&String>,
        new: New,
    ) -> Result<bool, TransportError> {
        let aside = displaced.map(|name| self.at(name));
        let paths: Vec<&Path> = std::iter::once(self.memory.as_path())
            .chain(aside.as_deref())
            .collect();
        let mut batch: Vec<Request> = paths.iter().map(|path| lstat(path)).collect();
        batch.extend(self.sync_folder());
        let found = self.host.ask(batch)?;
        if let Some(path) = &aside
            && found.get(1).and_then(attrs).is_none()
        {
            let why = "the server says that it was renamed, and it is not there";
            return Err(self.host.refused("displace", path, why));
        }
        // Opening would follow a link, and hang on a FIFO.
        let size = |place: usize| {
            let found = found.get(place).and_then(attrs);
            let regular = found.filter(|attrs| kind(attrs) == Some(REGULAR));
            regular.and_then(|attrs| attrs.size)
        };
        let files: Vec<(usize, &Path, u64)> = paths
            .iter()
            .enumerate()
            .filter_map(|(place, path)| Some((place, *path, size(place)?)))
            .collect();
        let open = files.iter().map(|(_, path, _)| self.open_file(path));
        let opened = self.host.ask(open.collect())?.into_iter();
        let files: Vec<(usize, &Path, u64, Handle)> = files
            .into_iter()
            .zip(opened)
            .filter_map(|((place, path, size), opened)| Some((place, path, size, handle(opened)?)))
            .collect();
        let read: Vec<(&Handle, &Path, u64)> = files
            .iter()
            .map(|(_, path, size, handle)| (handle, *path, *size))
            .collect();
        let remove = Request::Remove {
            path: bytes(&self.at(staged)),
        };
        let read = self.digests_of(&read, vec![remove]);
        let mut installed = None;
        let held = read.as_ref().map_or(&[][..], |(held, _)| held.as_slice());
        for (number, (place, _, _, handle)) in files.into_iter().enumerate() {
            match (place, displaced, held.get(number)) {
                (1, Some(name), Some(held)) => self.saw(name, handle, held),
                (0, _, Some(held)) => {
                    installed = Some((held.content, held.size, held.after));
                    self.close(handle);
                }
                _ => self.close(handle),
            }
        }
        let (_, removed) = read?;
        let gone = matches!(
            removed.first().and_then(code),
            Some(status::OK | status::NO_SUCH_FILE)
        );
        match installed {
            Some((content, size, after)) if (content, size) == (new.content, new.size) => {
                let stamp = file(&after).map(|file| file.stamp);
                self.installed.set(stamp.map(|stamp| (content, stamp)));
                Ok(gone)
            }
            // An agent may have begun to write to it already.
            Some((_, size, _)) if size > new.size && self.begins_with(new.content, new.size)? => {
                Ok(gone)
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
        let look = batch.len();
        batch.extend(look_at(&self.memory));
        batch.extend(self.sync_folder());
        let answers = self.host.ask(batch)?;
        // For whoever reads back, which comes next.
        let object = answers.get(look..look + LOOK);
        let object = object.and_then(|answers| self.host.object(&self.memory, answers).ok());
        self.looked.replace(object);
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
