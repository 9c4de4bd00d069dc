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

use super::host::{Answer, Connection, LOOK, REGULAR, attrs, bytes, code, kind, look_at, lstat};
use super::pump::{Held, LARGEST, Pump, too_large};
use super::wire::{Attrs, Reply, Request, flags, status};
use crate::clock::Clock;
use crate::digest::{Digest, Hasher};
use crate::durable;
use crate::error::{Error, Kind};
use crate::transport::{
    Attributes, Cause, File, Folder, Identity, Method, Object, Outlook, Reader, Settled, Sink,
    Stamp, Swapped, TransportError, Unsynced, read_begins_with,
};

/// How long one file, or one folder's list, may take.
const LONGEST: Duration = Duration::from_secs(60);

/// How often a swap starts over because the agent has made a new file.
const ATTEMPTS: usize = 16;

/// The most names of a folder that are listed.
const NAMES: usize = 100_000;

pub(super) type Handle = Vec<u8>;

/// The folder of one memory.
pub(super) struct SftpFolder {
    pub(super) host: Arc<Connection>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) path: PathBuf,
    pub(super) memory: PathBuf,
    /// The folder itself, to be synced, where the server can.
    pub(super) folder: Option<Handle>,
    /// Who owns it, and its mode.
    pub(super) owner: Attrs,
    /// What the look of its opening found, for whoever asks first.
    pub(super) looked: RefCell<Option<Object>>,
    /// What the last look found, for a read that follows it at once.
    pub(super) size: Cell<Option<u64>>,
    /// What was staged.
    pub(super) new: Cell<Option<New>>,
    /// Displaced files, as they were looked at.
    pub(super) displaced: RefCell<HashMap<String, Seen>>,
    /// What the memory was when it was read after a swap.
    pub(super) installed: Cell<Option<(Digest, Stamp)>>,
}

/// A staged file.
#[derive(Clone, Copy)]
pub(super) struct New {
    pub(super) content: Digest,
    pub(super) size: u64,
}

/// A displaced file, open, and what it held when it was looked at.
pub(super) struct Seen {
    pub(super) handle: Handle,
    pub(super) content: Digest,
    pub(super) size: u64,
    pub(super) at: Instant,
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
        // Not by its name alone, at which a FIFO may stand.
        batch.push(Request::Open {
            path: bytes(&path.join(".")),
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
            size: Cell::new(None),
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
                opened.size.set(size_of(&object));
                opened.looked.replace(Some(object));
            }
            Err(error) => return Err(error),
        }
        Ok(opened)
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// One answer for one request.
    pub(super) fn ask_one(&self, request: Request) -> Result<Answer, TransportError> {
        let mut answers = self.host.ask(vec![request])?;
        answers
            .pop()
            .ok_or_else(|| self.host.odd_answer("use", &self.path))
    }

    pub(super) fn open_file(&self, path: &Path) -> Request {
        Request::Open {
            path: bytes(path),
            flags: flags::READ,
            mode: None,
        }
    }

    /// The handle that a request to open a file was answered with.
    pub(super) fn opened(
        &self,
        answer: Option<Answer>,
        path: &Path,
    ) -> Result<Handle, TransportError> {
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
    pub(super) fn pump(
        &self,
        handle: &Handle,
        path: &Path,
        size: u64,
        sink: Sink<'_>,
    ) -> Result<(u64, Attrs), TransportError> {
        let mut pump = Pump::new(handle, path, size);
        let end = self.clock.instant() + LONGEST;
        loop {
            self.in_time(end, path)?;
            let answers = self.host.ask(pump.next())?;
            if let Some(after) = pump.take(&self.host, &answers, sink)? {
                return Ok((pump.offset, after));
            }
        }
    }

    /// Reads several open files at the same time, and asks for something more
    /// with the first bytes of them. One result for each file.
    pub(super) fn digests_of(
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
        let end = self.clock.instant() + LONGEST;
        while more.is_some() || pumps.iter().any(|(.., after)| after.is_none()) {
            self.in_time(end, &self.memory)?;
            let mut batch = Vec::new();
            let mut counts = Vec::new();
            for (pump, _, after) in &mut pumps {
                let next = match after {
                    None => pump.next(),
                    Some(_) => Vec::new(),
                };
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

    pub(super) fn digest_of(
        &self,
        handle: &Handle,
        path: &Path,
        size: u64,
    ) -> Result<Held, TransportError> {
        let (mut held, _) = self.digests_of(&[(handle, path, size)], Vec::new())?;
        held.pop().ok_or_else(|| self.host.odd_answer("read", path))
    }

    /// A regular file at a name, open, with its attributes; none where something
    /// else stands there.
    pub(super) fn open_regular(
        &self,
        path: &Path,
    ) -> Result<Option<(Handle, Attrs)>, TransportError> {
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

    /// A server may answer each question in time, and take for ever all the same.
    fn in_time(&self, end: Instant, path: &Path) -> Result<(), TransportError> {
        match self.clock.instant() < end {
            true => Ok(()),
            false => Err(self
                .host
                .refused("read", path, "it takes more than a minute")),
        }
    }

    pub(super) fn close(&self, handle: Handle) {
        self.host.tell(vec![Request::Close { handle }]);
    }

    /// Requests that put what was changed in the folder on the disk there.
    pub(super) fn sync_folder(&self) -> Vec<Request> {
        let handle = self.folder.clone().filter(|_| self.host.extensions().fsync);
        handle
            .map(|handle| Request::Fsync { handle })
            .into_iter()
            .collect()
    }

    pub(super) fn is_ok(
        &self,
        answer: &Answer,
        verb: &str,
        path: &Path,
    ) -> Result<(), TransportError> {
        match code(answer) {
            Some(status::OK) => Ok(()),
            Some(code) => Err(self.host.failed(verb, path, code)),
            None => Err(self.host.odd_answer(verb, path)),
        }
    }

    pub(super) fn all_ok(
        &self,
        batch: Vec<Request>,
        verb: &str,
        path: &Path,
    ) -> Result<(), TransportError> {
        let answers = self.host.ask(batch)?;
        answers
            .iter()
            .try_for_each(|answer| self.is_ok(answer, verb, path))
    }

    fn list(&self) -> Result<Vec<Vec<u8>>, TransportError> {
        let answer = self.ask_one(Request::OpenDir {
            path: bytes(&self.path),
        })?;
        let handle = self.opened(Some(answer), &self.path)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let end = self.clock.instant() + LONGEST;
        let listed = loop {
            if let Err(error) = self.in_time(end, &self.path) {
                break Err(error);
            }
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
        self.size.set(size_of(&object));
        self.host.with_target(&self.memory, object)
    }

    fn read(&self, sink: Sink<'_>) -> Result<File, TransportError> {
        // Opening would follow a link, and hang on a FIFO.
        let size = match self.size.take() {
            Some(size) => size,
            None => match self.look()? {
                Object::File(file) => file.stamp.size,
                _ => return Err(moved(&self.host, &self.memory)),
            },
        };
        self.size.set(None);
        if size > LARGEST {
            return Err(too_large(&self.host, &self.memory, size));
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
        // Where it is not as it was installed, it is read, without another look.
        self.looked.replace(Some(object));
        read_begins_with(self, content, size)
    }

    fn outlook(&self) -> Outlook {
        match self.can_replace() {
            Ok(()) => Outlook::Clear,
            Err(error) => Outlook::Refused(error.into()),
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
        self.can_replace()?;
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
                    let method = match displaced.is_empty() {
                        true => Method::Create,
                        false => Method::TakeAway,
                    };
                    if !self.look_after(staged, displaced.last(), new)? {
                        displaced.push(staged.to_string());
                    }
                    return Ok(Swapped { method, displaced });
                }
                // The agent was quicker and made a new one: that one, too.
                Some(_) if self.stands_at(&self.memory)? => {}
                // The old one is better than none.
                linked => {
                    if let Some(aside) = displaced.last() {
                        self.put_back(aside)?;
                    }
                    return Err(match linked {
                        Some(code) => self.host.failed("replace", &self.memory, code),
                        None => self.host.odd_answer("replace", &self.memory),
                    });
                }
            }
        }
        Err(moved(&self.host, &self.memory))
    }

    fn take_away(&self, aside: &str) -> Result<(), TransportError> {
        self.can_replace()?;
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
        self.settle_file(displaced, inspect)
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
    /// Whether the server has what a memory is replaced by.
    fn can_replace(&self) -> Result<(), TransportError> {
        let has = self.host.extensions();
        if has.posix_rename && has.hardlink {
            return Ok(());
        }
        let message = format!(
            "cannot replace {}:{}: the server lacks posix-rename@openssh.com or hardlink@openssh.com, \
             without which it would be lost what an agent writes meanwhile",
            self.host.host(),
            self.memory.display()
        );
        let error = Error::new(Kind::Host, message);
        let error = error.hint("OpenSSH's SFTP server has both, unless sshd_config denies them");
        Err(TransportError::new(Cause::Refused, error))
    }

    /// Gives what was taken aside the memory's name again, where none stands.
    fn put_back(&self, aside: &str) -> Result<(), TransportError> {
        let (from, to) = (bytes(&self.at(aside)), bytes(&self.memory));
        let linked = self.ask_one(Request::HardLink {
            from: from.clone(),
            to: to.clone(),
        })?;
        if code(&linked) == Some(status::OK) {
            return self.remove(aside);
        }
        // It replaces nothing, either; if that fails, the record names it.
        let _ = self.ask_one(Request::Rename { from, to })?;
        Ok(())
    }

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

/// The size of a file that may be read.
fn size_of(object: &Object) -> Option<u64> {
    match object {
        Object::File(file) => Some(file.stamp.size),
        _ => None,
    }
}

pub(super) fn handle(answer: Answer) -> Option<Handle> {
    match answer {
        Ok(Reply::Handle(handle)) => Some(handle),
        _ => None,
    }
}

fn refused(error: Error) -> TransportError {
    TransportError::new(Cause::Refused, error)
}

pub(super) fn moved(host: &Connection, path: &Path) -> TransportError {
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
