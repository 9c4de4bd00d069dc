//! The folder of one memory on a host.
//!
//! Nobody can hold a folder open over SFTP: every request is a path again. So
//! the path is looked at first, and everything is looked at again afterwards.
//! There are no leases, no inodes and no links to count, either; what that makes
//! weaker stands at the methods.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::host::{
    Answer, Connection, DIRECTORY, LOOK, REGULAR, attrs, bytes, code, file, kind, look_at, lstat,
};
use super::pump::{AHEAD, Held, LARGEST, PIECE, Pump};
use super::wire::{Attrs, Reply, Request, flags, status};
use crate::clock::Clock;
use crate::digest::{Digest, Hasher};
use crate::durable;
use crate::error::{Error, Kind};
use crate::transport::{
    Attributes, Cause, File, Folder, Identity, Method, Object, Reader, Settled, Sink, Stamp,
    Swapped, TransportError, Unsynced,
};

/// How long a displaced file must stay as it is before it goes: nobody can see
/// who has it open.
const QUIET: Duration = Duration::from_millis(250);

/// How often a swap starts over because the agent has made a new file.
const ATTEMPTS: usize = 16;

/// The most names of a folder that are listed.
const NAMES: usize = 100_000;

pub(super) type Handle = Vec<u8>;

/// The folder of one memory.
pub(super) struct SftpFolder {
    host: Arc<Connection>,
    clock: Arc<dyn Clock>,
    path: PathBuf,
    memory: PathBuf,
    /// The folder itself, to be synced, where the server can.
    folder: Option<Handle>,
    /// Who owns it, and its mode.
    owner: Attrs,
    /// What the look of its opening found, for whoever asks first.
    looked: RefCell<Option<Object>>,
    /// What was staged.
    new: Cell<Option<New>>,
    /// Displaced files, as they were looked at.
    displaced: RefCell<HashMap<String, Seen>>,
    /// What the memory was when it was read after a swap.
    installed: Cell<Option<(Digest, Stamp)>>,
}

/// A staged file.
#[derive(Clone, Copy)]
struct New {
    content: Digest,
    size: u64,
}

/// A displaced file, open, and what it held when it was looked at.
struct Seen {
    handle: Handle,
    content: Digest,
    size: u64,
    at: Instant,
}

impl SftpFolder {
    /// Looks at the folder and at the memory in it.
    pub(super) fn open(
        host: Arc<Connection>,
        memory: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<SftpFolder, TransportError> {
        let path = memory.parent().unwrap_or(Path::new("/")).to_path_buf();
        let mut batch = look_at(memory).to_vec();
        batch.push(Request::Open {
            path: bytes(&path),
            flags: flags::READ,
            mode: None,
        });
        let mut answers = host.ask(batch)?;
        // Most servers do not open folders so; then they cannot be synced.
        let folder = answers.pop().and_then(handle);
        let object = host.object(memory, &answers);
        let owner = answers.get(1).and_then(attrs).copied().unwrap_or_default();
        let opened = SftpFolder {
            memory: memory.to_path_buf(),
            folder,
            owner,
            looked: RefCell::new(None),
            new: Cell::new(None),
            displaced: RefCell::default(),
            installed: Cell::new(None),
            clock,
            path,
            host,
        };
        match object {
            Ok(object) => {
                let object = opened.host.with_target(memory, object)?;
                opened.looked.replace(Some(object));
            }
            Err(error) => return Err(error),
        }
        Ok(opened)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// One answer for one request.
    fn ask_one(&self, request: Request) -> Result<Answer, TransportError> {
        let mut answers = self.host.ask(vec![request])?;
        answers
            .pop()
            .ok_or_else(|| self.host.odd_answer("use", &self.path))
    }

    fn open_file(&self, path: &Path) -> Request {
        Request::Open {
            path: bytes(path),
            flags: flags::READ,
            mode: None,
        }
    }

    /// The handle that a request to open a file was answered with.
    fn opened(&self, answer: Option<Answer>, path: &Path) -> Result<Handle, TransportError> {
        match &answer {
            Some(Ok(Reply::Status { code, .. })) => Err(match *code {
                status::NO_SUCH_FILE => moved(&self.host, path),
                code => self.host.failed("open", path, code),
            }),
            _ => answer
                .and_then(handle)
                .ok_or_else(|| self.host.odd_answer("open", path)),
        }
    }

    /// Reads an open file to its end; `size` is what it claims. Its attributes
    /// are those after the last byte.
    fn pump(
        &self,
        handle: &Handle,
        path: &Path,
        size: u64,
        sink: Sink<'_>,
    ) -> Result<(u64, Attrs), TransportError> {
        let mut pump = Pump::new(handle, path, size);
        loop {
            let answers = self.host.ask(pump.next())?;
            if let Some(after) = pump.take(&self.host, &answers, sink)? {
                return Ok((pump.offset, after));
            }
        }
    }

    /// Reads several open files at the same time, and asks for something more
    /// with the first bytes of them. One result for each file.
    fn digests_of(
        &self,
        files: &[(&Handle, &Path, u64)],
        more: Vec<Request>,
    ) -> Result<(Vec<Held>, Vec<Answer>), TransportError> {
        let mut pumps: Vec<_> = files
            .iter()
            .map(|(handle, path, size)| (Pump::new(handle, path, *size), Hasher::default(), None))
            .collect();
        let mut more = Some(more);
        let mut rest = Vec::new();
        while more.is_some() || pumps.iter().any(|(.., after)| after.is_none()) {
            let mut batch = Vec::new();
            let mut counts = Vec::new();
            for (pump, _, after) in &mut pumps {
                let next = after.is_none().then(|| pump.next()).unwrap_or_default();
                counts.push(next.len());
                batch.extend(next);
            }
            let first = more.take();
            batch.extend(first.iter().flatten().cloned());
            let answers = self.host.ask(batch)?;
            let mut left = answers.as_slice();
            for ((pump, hasher, after), count) in pumps.iter_mut().zip(counts) {
                let (mine, others) = left.split_at(count.min(left.len()));
                left = others;
                if after.is_none() {
                    let mut take = |bytes: &[u8]| {
                        hasher.update(bytes);
                        Ok(())
                    };
                    *after = pump.take(&self.host, mine, &mut take)?;
                }
            }
            if first.is_some() {
                rest = left.to_vec();
            }
        }
        let held = pumps.into_iter().map(|(pump, hasher, after)| Held {
            content: hasher.finish(),
            size: pump.offset,
            after: after.unwrap_or_default(),
        });
        Ok((held.collect(), rest))
    }

    fn digest_of(&self, handle: &Handle, path: &Path, size: u64) -> Result<Held, TransportError> {
        let (mut held, _) = self.digests_of(&[(handle, path, size)], Vec::new())?;
        held.pop().ok_or_else(|| self.host.odd_answer("read", path))
    }

    /// A regular file at a name, open, with its attributes; none where something
    /// else stands there.
    fn open_regular(&self, path: &Path) -> Result<Option<(Handle, Attrs)>, TransportError> {
        let found = self.ask_one(lstat(path))?;
        let regular = attrs(&found).is_some_and(|attrs| kind(attrs) == Some(REGULAR));
        match code(&found) {
            Some(status::NO_SUCH_FILE) => return Ok(None),
            Some(code) => return Err(self.host.failed("look at", path, code)),
            None if !regular => return Ok(None),
            None => {}
        }
        let answer = self.ask_one(self.open_file(path))?;
        let handle = self.opened(Some(answer), path)?;
        let found = self.ask_one(Request::Fstat {
            handle: handle.clone(),
        })?;
        match attrs(&found) {
            Some(found) if kind(found) == Some(REGULAR) => Ok(Some((handle, *found))),
            _ => {
                self.close(handle);
                Ok(None)
            }
        }
    }

    fn close(&self, handle: Handle) {
        self.host.tell(vec![Request::Close { handle }]);
    }

    /// Requests that put what was changed in the folder on the disk there.
    fn sync_folder(&self) -> Vec<Request> {
        let handle = self.folder.clone().filter(|_| self.host.extensions().fsync);
        handle
            .map(|handle| Request::Fsync { handle })
            .into_iter()
            .collect()
    }

    /// Writes a new file behind a handle, puts it on the disk there, and reads it
    /// back through another: servers exist that acknowledge and keep nothing.
    fn write_new(
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
                if queue.len() as u64 >= AHEAD {
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

    fn is_ok(&self, answer: &Answer, verb: &str, path: &Path) -> Result<(), TransportError> {
        match code(answer) {
            Some(status::OK) => Ok(()),
            Some(code) => Err(self.host.failed(verb, path, code)),
            None => Err(self.host.odd_answer(verb, path)),
        }
    }

    fn all_ok(&self, batch: Vec<Request>, verb: &str, path: &Path) -> Result<(), TransportError> {
        let answers = self.host.ask(batch)?;
        answers
            .iter()
            .try_for_each(|answer| self.is_ok(answer, verb, path))
    }

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
    fn look_after(
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

    fn list(&self) -> Result<Vec<Vec<u8>>, TransportError> {
        let answer = self.ask_one(Request::OpenDir {
            path: bytes(&self.path),
        })?;
        let handle = self.opened(Some(answer), &self.path)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let listed = loop {
            match self.ask_one(Request::ReadDir {
                handle: handle.clone(),
            })? {
                Ok(Reply::Names(more)) if !more.is_empty() && names.len() < NAMES => {
                    names.extend(more.into_iter().map(|name| name.name));
                }
                Ok(Reply::Status {
                    code: status::EOF, ..
                }) => break Ok(names),
                Ok(Reply::Status { code, .. }) => {
                    break Err(self.host.failed("list", &self.path, code));
                }
                Ok(Reply::Names(_)) => {
                    let why = "it has too many names, or the list has no end";
                    break Err(self.host.refused("list", &self.path, why));
                }
                _ => break Err(self.host.odd_answer("list", &self.path)),
            }
        };
        self.close(handle);
        listed
    }
}

impl Drop for SftpFolder {
    fn drop(&mut self) {
        let displaced = self.displaced.take().into_values().map(|seen| seen.handle);
        let handles = self.folder.take().into_iter().chain(displaced);
        let close: Vec<Request> = handles.map(|handle| Request::Close { handle }).collect();
        if !close.is_empty() {
            self.host.tell(close);
        }
    }
}

impl Folder for SftpFolder {
    fn unsynced(&self) -> Vec<Unsynced> {
        // Each method syncs what it changed, where the server can.
        Vec::new()
    }

    fn identity(&self) -> Result<Option<u64>, TransportError> {
        Ok(None)
    }

    fn look(&self) -> Result<Object, TransportError> {
        if let Some(object) = self.looked.take() {
            return Ok(object);
        }
        let answers = self.host.ask(look_at(&self.memory).to_vec())?;
        debug_assert_eq!(answers.len(), LOOK, "one for each");
        let object = self.host.object(&self.memory, &answers)?;
        self.host.with_target(&self.memory, object)
    }

    fn read(&self, sink: Sink<'_>) -> Result<File, TransportError> {
        let answers = self.host.ask(vec![lstat(&self.memory)])?;
        let size = match answers.first().map(|answer| (code(answer), attrs(answer))) {
            Some((Some(status::NO_SUCH_FILE), _)) => return Err(moved(&self.host, &self.memory)),
            Some((Some(code), _)) => return Err(self.host.failed("look at", &self.memory, code)),
            Some((None, Some(found))) => {
                match self
                    .host
                    .described(&self.memory, found, Some(&self.owner))?
                {
                    Object::File(file) => file.stamp.size,
                    _ => return Err(moved(&self.host, &self.memory)),
                }
            }
            _ => return Err(self.host.odd_answer("look at", &self.memory)),
        };
        if size > LARGEST {
            let why =
                format!("it has {size} bytes, more than the 16 MiB that are read from a host");
            return Err(self.host.refused("read", &self.memory, &why));
        }
        let answer = self.ask_one(self.open_file(&self.memory))?;
        let handle = self.opened(Some(answer), &self.memory)?;
        let read = self.pump(&handle, &self.memory, size, sink);
        self.close(handle);
        let (_, after) = read?;
        // What was opened may be something else than what was looked at.
        match self
            .host
            .described(&self.memory, &after, Some(&self.owner))?
        {
            Object::File(file) => Ok(file),
            _ => Err(moved(&self.host, &self.memory)),
        }
    }

    fn begins_with(&self, content: Digest, size: u64) -> Result<bool, TransportError> {
        let object = self.look()?;
        if let (Some((known, stamp)), Object::File(file)) = (self.installed.get(), &object)
            && known == content
            && file.stamp == stamp
        {
            return Ok(true);
        }
        let (mut hasher, mut left) = (Hasher::default(), size);
        let read = self.read(&mut |bytes| {
            let count = left.min(bytes.len() as u64);
            hasher.update(&bytes[..count as usize]);
            left -= count;
            Ok(())
        });
        match read {
            Ok(_) => Ok(left == 0 && hasher.finish() == content),
            Err(error) if error.cause == Cause::Moved => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn inherited(&self, _: &str) -> Result<Attributes, TransportError> {
        let (Some((uid, gid)), Some(mode)) = (self.owner.owner, self.owner.mode) else {
            return Err(self.host.odd_answer("look at", &self.path));
        };
        Ok(Attributes {
            uid,
            gid,
            mode: mode & 0o666 | 0o600,
            xattrs: Vec::new(),
        })
    }

    fn stage(
        &self,
        name: &str,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<Identity, TransportError> {
        let path = self.at(name);
        let answer = self.ask_one(Request::Open {
            path: bytes(&path),
            flags: flags::WRITE | flags::CREATE | flags::EXCLUSIVE,
            mode: Some(0o600),
        })?;
        let handle = match code(&answer) {
            Some(code) => return Err(self.host.failed("create", &path, code)),
            None => self.opened(Some(answer), &path)?,
        };
        match self.write_new(&handle, &path, content, attributes) {
            Ok(new) => {
                self.new.set(Some(new));
                Ok(Identity {
                    device: 0,
                    inode: 0,
                })
            }
            Err(error) => {
                if error.cause != Cause::Unreachable {
                    self.close(handle);
                    let _ = self.remove(name);
                }
                Err(error)
            }
        }
    }

    fn link(&self, _: &str) -> Result<(), TransportError> {
        Ok(())
    }

    fn remove_unfinished(&self, _: &str) -> Result<(), TransportError> {
        Ok(())
    }

    fn swap(&self, staged: &str, _: Identity) -> Result<Swapped, TransportError> {
        let mut displaced = Vec::new();
        let new = match self.new.take() {
            Some(new) => new,
            None => self.staged_before(staged)?,
        };
        for _ in 0..ATTEMPTS {
            let random = durable::random_name().map_err(refused)?;
            let aside = format!("{staged}{random}");
            let answers = self.host.ask_apart(vec![
                Request::PosixRename {
                    from: bytes(&self.memory),
                    to: bytes(&self.at(&aside)),
                },
                Request::HardLink {
                    from: bytes(&self.at(staged)),
                    to: bytes(&self.memory),
                },
            ])?;
            let [renamed, linked] = answers.as_slice() else {
                return Err(self.host.odd_answer("replace", &self.memory));
            };
            match code(renamed) {
                Some(status::OK) => displaced.push(aside),
                Some(status::NO_SUCH_FILE) => {}
                Some(code) => return Err(self.host.failed("replace", &self.memory, code)),
                None => return Err(self.host.odd_answer("replace", &self.memory)),
            }
            match code(linked) {
                Some(status::OK) => {
                    self.look_after(staged, displaced.last(), new)?;
                    let method = match displaced.is_empty() {
                        true => Method::Create,
                        false => Method::TakeAway,
                    };
                    return Ok(Swapped { method, displaced });
                }
                // The agent was quicker and made a new one: that one, too.
                Some(_) if self.stands_at(&self.memory)? => {}
                Some(code) => return Err(self.host.failed("replace", &self.memory, code)),
                None => return Err(self.host.odd_answer("replace", &self.memory)),
            }
        }
        Err(moved(&self.host, &self.memory))
    }

    fn take_away(&self, aside: &str) -> Result<(), TransportError> {
        let to = self.at(aside);
        if self.stands_at(&to)? {
            return Err(self.host.refused("use", &to, "it already exists"));
        }
        let mut batch = vec![Request::PosixRename {
            from: bytes(&self.memory),
            to: bytes(&to),
        }];
        batch.extend(self.sync_folder());
        let answers = self.host.ask(batch)?;
        match answers.first().and_then(code) {
            Some(status::OK) => Ok(()),
            Some(status::NO_SUCH_FILE) => Err(moved(&self.host, &self.memory)),
            Some(code) => Err(self.host.failed("take away", &self.memory, code)),
            None => Err(self.host.odd_answer("take away", &self.memory)),
        }
    }

    fn settle(
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

    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let mut names: Vec<String> = Vec::new();
        for name in self.list()? {
            // Ours are ASCII.
            if let Ok(name) = String::from_utf8(name)
                && let Some(rest) = name.strip_prefix(staged)
                && (rest.is_empty() || durable::is_random_name(rest))
            {
                names.push(name);
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn half_written(&self, _: &str) -> Result<bool, TransportError> {
        Ok(false)
    }

    fn stands(&self, name: &str) -> Result<bool, TransportError> {
        self.stands_at(&self.at(name))
    }

    fn holds(&self, name: &str, content: Digest) -> Result<Option<Identity>, TransportError> {
        let path = self.at(name);
        let Some((handle, found)) = self.open_regular(&path)? else {
            return Ok(None);
        };
        let read = self.digest_of(&handle, &path, found.size.unwrap_or(0));
        self.close(handle);
        let held = read?;
        let same = held.content == content;
        self.new.set(same.then_some(New {
            content,
            size: held.size,
        }));
        Ok(same.then_some(Identity {
            device: 0,
            inode: 0,
        }))
    }

    fn remove(&self, name: &str) -> Result<(), TransportError> {
        let path = self.at(name);
        let mut batch = vec![Request::Remove { path: bytes(&path) }];
        batch.extend(self.sync_folder());
        match self.host.ask(batch)?.first().and_then(code) {
            Some(status::OK | status::NO_SUCH_FILE) => Ok(()),
            Some(code) => Err(self.host.failed("remove", &path, code)),
            None => Err(self.host.odd_answer("remove", &path)),
        }
    }
}

impl SftpFolder {
    fn stands_at(&self, path: &Path) -> Result<bool, TransportError> {
        let found = self.ask_one(lstat(path))?;
        match (code(&found), attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(false),
            (_, Some(_)) => Ok(true),
            (Some(code), _) => Err(self.host.failed("look at", path, code)),
            _ => Err(self.host.odd_answer("look at", path)),
        }
    }

    /// A file that an earlier run staged.
    fn staged_before(&self, staged: &str) -> Result<New, TransportError> {
        let path = self.at(staged);
        let Some((handle, found)) = self.open_regular(&path)? else {
            return Err(moved(&self.host, &path));
        };
        let read = self.digest_of(&handle, &path, found.size.unwrap_or(0));
        self.close(handle);
        let Held { content, size, .. } = read?;
        Ok(New { content, size })
    }
}

fn handle(answer: Answer) -> Option<Handle> {
    match answer {
        Ok(Reply::Handle(handle)) => Some(handle),
        _ => None,
    }
}

fn refused(error: Error) -> TransportError {
    TransportError::new(Cause::Refused, error)
}

fn moved(host: &Connection, path: &Path) -> TransportError {
    let message = format!(
        "{}:{} was replaced by somebody else meanwhile",
        host.host(),
        path.display()
    );
    TransportError::new(
        Cause::Moved,
        Error::new(Kind::Conflict, message).hint("nothing was lost; run it again"),
    )
}
