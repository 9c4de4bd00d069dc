//! What comes after a swap: what was displaced is settled, by looking twice.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use super::connection::{
    Answer, DIRECTORY, LOOK, REGULAR, attrs, code, file, kind, look_at, lstat,
};
use super::folder::{Handle, New, SftpFolder, handle, moved};
use super::pump::Pump;
use super::run_folder::UNLINK;
use super::wire::{Attrs, status};
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Kind};
use crate::transport::{Folder, MemoryObject, Reader, Settled, Sink, SpecialFile, TransportError};

/// How long a displaced file must stay as it is before it goes: nobody can see
/// who has it open. It counts from its displacement, before which it was read for
/// its entry.
pub(super) const QUIET_PERIOD: Duration = Duration::from_millis(250);

/// A displaced file, open.
pub(super) struct OpenDisplacedFile {
    pub(super) handle: Handle,
    /// What it held when it was read last, if it was.
    pub(super) held: Option<(Digest, u64)>,
    /// Since when it stays so, if it does.
    pub(super) at: Instant,
}

impl SftpFolder {
    /// After the exchange of names, of which `look` is what was seen right behind
    /// it: reads what stands at the memory's name, opens what was displaced by then, and
    /// removes the second name of the new file. False when that stays.
    pub(super) fn look_after(
        &self,
        name: &str,
        displaced: Option<(&String, Instant)>,
        look: &[Answer],
        new: New,
    ) -> Result<bool, TransportError> {
        let aside = displaced.map(|(name, _)| self.at(name));
        if let Some(path) = &aside
            && look.get(1).and_then(attrs).is_none()
        {
            let why = "the server says that it was renamed, and it is not there";
            return Err(self.host.refused("displace", path, why));
        }
        // Opening would follow a link, and hang on a FIFO.
        let size = |place: usize| {
            let found = look.get(place).and_then(attrs);
            let regular = found.filter(|attrs| kind(attrs) == Some(REGULAR));
            regular.and_then(|attrs| attrs.size)
        };
        // Without it the new file has no other name, or somebody has taken it away.
        if look.first().and_then(code) == Some(status::NO_SUCH_FILE) {
            return Err(moved(&self.host, &self.memory));
        }
        let aside = aside.filter(|_| size(1).is_some());
        let mut open = Vec::new();
        open.extend(size(0).map(|_| self.open_file(&self.memory)));
        open.extend(aside.map(|path| self.open_file(&path)));
        let mut opened = self.host.ask(open)?.into_iter();
        let memory = size(0).and_then(|_| opened.next()).and_then(handle);
        if let (Some((name, at)), Some(handle)) = (displaced, opened.next().and_then(handle)) {
            self.was_displaced(name, handle, at);
        }
        let mut remove = self.unlink(name);
        remove.push(lstat(&self.at(name)));
        let (held, removed) = match memory {
            Some(handle) => {
                let size = size(0).unwrap_or_default();
                let read = self.digest_and(&handle, &self.memory, size, remove);
                self.close(handle);
                let (held, removed) = read?;
                (Some(held), removed)
            }
            None => (None, self.host.ask(remove)?),
        };
        // The folder stays as long as there is something in it.
        let looked = match displaced {
            Some(_) => removed.last(),
            None => removed.get(UNLINK - 1),
        };
        let gone = looked.and_then(code) == Some(status::NO_SUCH_FILE);
        match held {
            Some(held) if (held.content, held.size) == (new.content, new.size) => {
                let stamp = file(&held.after).map(|file| file.stamp);
                self.installed.set(stamp.map(|stamp| (held.content, stamp)));
                Ok(gone)
            }
            // An agent may have begun to write to it already.
            Some(held) if held.size > new.size && self.begins_with(new.content, new.size)? => {
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
        let seen = self.displaced.borrow_mut().remove(displaced);
        match seen {
            None => self.look_first(displaced),
            Some(seen) if self.clock.instant().duration_since(seen.at) < QUIET_PERIOD => {
                self.keep(displaced, seen);
                Ok(Settled::Open)
            }
            Some(seen) => self.look_again(displaced, seen, inspect),
        }
    }

    /// What attributes say that a file is, with the target of a link.
    fn object_of(&self, path: &Path, found: &Attrs) -> Result<MemoryObject, TransportError> {
        let object = self.host.described(path, found, None)?;
        self.host.with_target(path, object)
    }

    /// Removes an object that is neither a file nor a directory, if it is still the same.
    pub(super) fn remove_same(
        &self,
        name: &str,
        odd: &SpecialFile,
    ) -> Result<bool, TransportError> {
        let path = self.at(name);
        let found = self.ask_one(lstat(&path))?;
        match (code(&found), attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(true),
            (None, Some(found))
                if self.object_of(&path, found)? == MemoryObject::Odd(odd.clone()) =>
            {
                self.remove(name).map(|()| true)
            }
            (None, Some(_)) => Ok(false),
            (Some(code), _) => Err(self.host.failed("look at", &path, code)),
            (None, None) => Err(self.host.odd_answer("look at", &path)),
        }
    }

    /// Returns the owner of a file if it is not its directory's. SFTP does not count
    /// links, so this may be a second name of a file elsewhere.
    fn foreign_owner(&self, found: &Attrs) -> Option<u32> {
        let ((uid, _), (owner, _)) = (found.owner?, self.owner.owner?);
        (uid != owner).then_some(uid)
    }

    fn keep(&self, name: &str, displaced: OpenDisplacedFile) {
        let mut all = self.displaced.borrow_mut();
        all.insert(name.to_string(), displaced);
    }

    /// The first look at something that is not open yet.
    fn look_first(&self, displaced: &str) -> Result<Settled, TransportError> {
        let path = self.at(displaced);
        let found = self.ask_one(lstat(&path))?;
        match (code(&found), attrs(&found).and_then(kind)) {
            (Some(status::NO_SUCH_FILE), _) => {
                self.is_unlinked(displaced, &[])?;
                return Ok(Settled::Removed { watched: true });
            }
            (Some(code), _) => return Err(self.host.failed("look at", &path, code)),
            (None, Some(DIRECTORY)) => return Ok(Settled::Kept(SpecialFile::Directory)),
            (None, Some(REGULAR)) => {}
            (None, _) => {
                let Some(found) = attrs(&found) else {
                    return Err(self.host.odd_answer("look at", &path));
                };
                return match self.object_of(&path, found)? {
                    MemoryObject::Odd(odd) => Ok(Settled::Odd(odd)),
                    _ => Err(self.host.odd_answer("look at", &path)),
                };
            }
        }
        if let Some(uid) = attrs(&found).and_then(|found| self.foreign_owner(found)) {
            return Ok(Settled::Kept(SpecialFile::ForeignLink(uid)));
        }
        if let Some((handle, found)) = self.open_regular(&path)? {
            match self.digest_of(&handle, &path, found.size.unwrap_or(0)) {
                Ok(held) => {
                    let at = self.clock.instant();
                    let held = Some((held.content, held.size));
                    self.keep(displaced, OpenDisplacedFile { handle, held, at });
                }
                Err(error) => {
                    self.close(handle);
                    return Err(error);
                }
            }
        }
        Ok(Settled::Open)
    }

    /// Whatever of it is not known yet is taken in; when it is still what it was, it
    /// goes, and is read once more behind its removal.
    fn look_again(
        &self,
        displaced: &str,
        seen: OpenDisplacedFile,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        let path = self.at(displaced);
        let OpenDisplacedFile { handle, held, .. } = seen;
        let last = Cell::new(held);
        let foreign = Cell::new(None);
        let read = |sink: Sink<'_>| {
            let mut hasher = Hasher::default();
            let size = last.get().map_or(0, |(_, size)| size);
            let (size, after) = self.pump(&handle, &path, size, &mut |bytes| {
                hasher.update(bytes);
                sink(bytes)
            })?;
            last.set(Some((hasher.finish(), size)));
            if let Some(uid) = self.foreign_owner(&after) {
                foreign.set(Some(uid));
                let why = format!("it belongs to user {uid}");
                return Err(self.host.refused("read", &path, &why));
            }
            file(&after).ok_or_else(|| self.host.odd_answer("look at", &path))
        };
        let again = |held| OpenDisplacedFile {
            handle: handle.clone(),
            held,
            at: self.clock.instant(),
        };
        let inspected = inspect(&read);
        if let Some(uid) = foreign.get() {
            self.close(handle);
            return Ok(Settled::Kept(SpecialFile::ForeignLink(uid)));
        }
        if let Err(error) = inspected {
            // Not kept: a file that the caller gives up has no due time.
            self.close(handle);
            return Err(error.into());
        }
        let now = last.get();
        let Some((content, size)) = now.filter(|_| now == held) else {
            self.keep(displaced, again(now));
            return Ok(Settled::Open);
        };
        // What a writer left in between is still behind the handle, also where it
        // is no longer than before.
        let mut pump = Pump::new(&handle, &path, size);
        let mut batch = self.unlink(displaced);
        let reads = batch.len();
        batch.extend(pump.next());
        let look = batch.len();
        batch.extend(look_at(&self.memory));
        batch.extend(self.sync_folders());
        let answers = self.host.ask(batch)?;
        // For whoever reads back, which comes next.
        let object = answers.get(look..look + LOOK);
        let object = object.and_then(|answers| self.host.object(&self.memory, answers).ok());
        self.looked.replace(object);
        match answers.first().and_then(code) {
            Some(status::OK | status::NO_SUCH_FILE) => {}
            Some(code) => {
                self.keep(displaced, again(now));
                return Err(self.host.failed("remove", &path, code));
            }
            None => {
                self.keep(displaced, again(now));
                return Err(self.host.odd_answer("remove", &path));
            }
        }
        let mut hasher = Hasher::default();
        let behind = pump.take(&self.host, &answers[reads..look], &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        });
        let same =
            matches!(behind, Ok(Some(_))) && (hasher.finish(), pump.offset) == (content, size);
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
        if !matches!(settled, Settled::Lost(_)) {
            self.is_unlinked(displaced, &answers[..reads])?;
        }
        Ok(settled)
    }
}
