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

use super::connection::{
    Answer, Connection, DIRECTORY, LOOK, REGULAR, attrs, bytes, code, kind, look_at, lstat,
};
use super::pump::{Held, LARGEST, Pump, too_large};
use super::run_folder::TakenOver;
use super::settle::{OpenDisplacedFile, QUIET_PERIOD};
use super::wire::{Attrs, Reply, Request, flags, status};
use crate::clock::Clock;
use crate::config::Extension;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Kind};
use crate::transport::{
    Attributes, Cause, File, Folder, Identity, MemoryObject, Reader, Settled, Sink, SpecialFile,
    Stamp, Swapped, TransportError, Unsynced, created_mode, read_begins_with,
};

/// How long one file, or one folder's list, may take.
const LONGEST: Duration = Duration::from_secs(60);

/// The most names of a folder that are listed, and the most bytes of names.
const NAMES: usize = 100_000;
const NAMES_LENGTH: usize = 16 << 20;

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
    pub(super) looked: RefCell<Option<MemoryObject>>,
    /// What the last look found, for a read that follows it at once.
    pub(super) size: Cell<Option<u64>>,
    /// What was staged.
    pub(super) new: Cell<Option<New>>,
    /// Whether the file system turned out to have no hard links.
    pub(super) linkless: Cell<bool>,
    /// What the memory held when it was read last.
    pub(super) read_before: Cell<Option<(Digest, u64)>>,
    /// The folder of the run that goes on here, to be synced.
    pub(super) run: RefCell<Option<Handle>>,
    /// That of another run, under another name.
    pub(super) taken_over: RefCell<Option<TakenOver>>,
    /// Displaced files, as they were looked at.
    pub(super) displaced: RefCell<HashMap<String, OpenDisplacedFile>>,
    /// What the memory was when it was read after a swap.
    pub(super) installed: Cell<Option<(Digest, Stamp)>>,
}

/// A staged file.
#[derive(Clone, Copy)]
pub(super) struct New {
    pub(super) content: Digest,
    pub(super) size: u64,
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
            linkless: Cell::new(false),
            read_before: Cell::new(None),
            run: RefCell::new(None),
            taken_over: RefCell::new(None),
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

    /// What an open file holds.
    pub(super) fn digest_of(
        &self,
        handle: &Handle,
        path: &Path,
        size: u64,
    ) -> Result<Held, TransportError> {
        let (held, _) = self.digest_and(handle, path, size, Vec::new())?;
        Ok(held)
    }

    /// The same, and something more that is asked for with its first bytes.
    pub(super) fn digest_and(
        &self,
        handle: &Handle,
        path: &Path,
        size: u64,
        mut more: Vec<Request>,
    ) -> Result<(Held, Vec<Answer>), TransportError> {
        let mut pump = Pump::new(handle, path, size);
        let mut hasher = Hasher::default();
        let mut rest = Vec::new();
        let end = self.clock.instant() + LONGEST;
        loop {
            self.in_time(end, path)?;
            let mut batch = pump.next();
            let count = batch.len();
            batch.append(&mut more);
            let mut answers = self.host.ask(batch)?;
            rest.extend(answers.split_off(count.min(answers.len())));
            let after = pump.take(&self.host, &answers, &mut |bytes| {
                hasher.update(bytes);
                Ok(())
            })?;
            if let Some(after) = after {
                let held = Held {
                    content: hasher.finish(),
                    size: pump.offset,
                    after,
                };
                return Ok((held, rest));
            }
        }
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

    /// Requests that put what was changed in the folder, and in that of the run, on
    /// the disk there.
    pub(super) fn sync_folders(&self) -> Vec<Request> {
        if !self.host.extensions().fsync {
            return Vec::new();
        }
        let run = self.run.borrow();
        let handles = [run.as_ref(), self.folder.as_ref()].into_iter().flatten();
        handles
            .map(|handle| Request::Fsync {
                handle: handle.clone(),
            })
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

    /// The names in a folder; none where it does not exist.
    pub(super) fn list(&self, path: &Path) -> Result<Option<Vec<Vec<u8>>>, TransportError> {
        let answer = self.ask_one(Request::OpenDir { path: bytes(path) })?;
        if code(&answer) == Some(status::NO_SUCH_FILE) {
            return Ok(None);
        }
        let handle = self.opened(Some(answer), path)?;
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut length = 0;
        let end = self.clock.instant() + LONGEST;
        let listed = loop {
            if let Err(error) = self.in_time(end, path) {
                break Err(error);
            }
            match self.ask_one(Request::ReadDir {
                handle: handle.clone(),
            })? {
                Ok(Reply::Names(more))
                    if !more.is_empty() && names.len() < NAMES && length < NAMES_LENGTH =>
                {
                    length += more.iter().map(|name| name.name.len()).sum::<usize>();
                    names.extend(more.into_iter().map(|name| name.name));
                }
                Ok(Reply::Status {
                    code: status::EOF, ..
                }) => break Ok(Some(names)),
                Ok(Reply::Status { code, .. }) => {
                    break Err(self.host.failed("list", path, code));
                }
                Ok(Reply::Names(_)) => {
                    let why = "it has too many names, or the list has no end";
                    break Err(self.host.refused("list", path, why));
                }
                _ => break Err(self.host.odd_answer("list", path)),
            }
        };
        self.close(handle);
        listed
    }
}

impl Drop for SftpFolder {
    fn drop(&mut self) {
        let displaced = self.displaced.take().into_values().map(|it| it.handle);
        let folders = [self.run.take(), self.folder.take()].into_iter().flatten();
        let handles = folders.chain(displaced);
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

    fn look(&self) -> Result<MemoryObject, TransportError> {
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
                MemoryObject::File(file) => file.stamp.size,
                _ => return Err(moved(&self.host, &self.memory)),
            },
        };
        self.size.set(None);
        if size > LARGEST {
            return Err(too_large(&self.host, &self.memory, size));
        }
        let answer = self.ask_one(self.open_file(&self.memory))?;
        let handle = self.opened(Some(answer), &self.memory)?;
        let mut hasher = Hasher::default();
        let read = self.pump(&handle, &self.memory, size, &mut |bytes| {
            hasher.update(bytes);
            sink(bytes)
        });
        self.close(handle);
        let (size, after) = read?;
        self.read_before.set(Some((hasher.finish(), size)));
        // What was opened may be something else than what was looked at.
        match self
            .host
            .described(&self.memory, &after, Some(&self.owner))?
        {
            MemoryObject::File(file) => Ok(file),
            _ => Err(moved(&self.host, &self.memory)),
        }
    }

    fn begins_with(&self, content: Digest, size: u64) -> Result<bool, TransportError> {
        let object = self.look()?;
        if let (Some((known, stamp)), MemoryObject::File(file)) = (self.installed.get(), &object)
            && known == content
            && file.stamp == stamp
        {
            return Ok(true);
        }
        // Where it is not as it was installed, it is read, without another look.
        self.looked.replace(Some(object));
        read_begins_with(self, content, size)
    }

    fn lacks(&self) -> Vec<Extension> {
        self.lacking()
    }

    fn inherited(&self, _: &str) -> Result<Attributes, TransportError> {
        let (Some((uid, gid)), Some(mode)) = (self.owner.owner, self.owner.mode) else {
            return Err(self.host.odd_answer("look at", &self.path));
        };
        Ok(Attributes {
            uid,
            gid,
            mode: created_mode(mode),
            xattrs: Vec::new(),
        })
    }

    fn new_name(&self, staged: &str) -> String {
        Self::new_of(staged)
    }

    fn stage(
        &self,
        staged: &str,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<Identity, TransportError> {
        let handle = self.create(staged).map_err(|error| self.explained(error))?;
        let name = Self::new_of(staged);
        match self.write_new(handle, &self.at(&name), content, attributes) {
            Ok(new) => {
                self.new.set(Some(new));
                Ok(Identity {
                    device: 0,
                    inode: 0,
                })
            }
            Err(error) => {
                if error.cause == Cause::Unreachable {
                    return Err(error);
                }
                let error = self.explained(error);
                let _ = self.remove(&name);
                Err(error)
            }
        }
    }

    fn link(&self, _: &str) -> Result<(), TransportError> {
        Ok(())
    }

    fn remove_unfinished(&self, staged: &str) -> Result<(), TransportError> {
        self.remove_run_folder(staged)
    }

    fn give_back(&self, displaced: &str) -> Result<(), TransportError> {
        self.put_back(displaced)
    }

    fn shown(&self, name: &str) -> String {
        let path = self.at(name);
        let inside = path.strip_prefix(&self.path).unwrap_or(&path);
        inside.display().to_string()
    }

    fn take_over(&self, staged: &str, names: &[String]) -> Result<(), TransportError> {
        self.take_folder_over(staged, names)
    }

    fn swap(&self, staged: &str, _: Identity) -> Result<Swapped, TransportError> {
        self.exchange_names(staged)
    }

    fn take_away(&self, staged: &str) -> Result<(), TransportError> {
        self.take_memory_away(staged)
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        self.settle_file(displaced, inspect)
    }

    fn remove_odd(&self, name: &str, odd: &SpecialFile) -> Result<bool, TransportError> {
        self.remove_same(name, odd)
    }

    fn due(&self) -> Option<Instant> {
        let displaced = self.displaced.borrow();
        displaced.values().map(|it| it.at + QUIET_PERIOD).max()
    }

    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        self.names_of_run(staged)
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
        let mut batch = self.unlink(name);
        batch.extend(self.sync_folders());
        match self.host.ask(batch)?.first().and_then(code) {
            Some(status::OK | status::NO_SUCH_FILE) => Ok(()),
            // An agent can put a folder there, and that is not ours.
            Some(_) if self.is_folder(name)? => Ok(()),
            Some(code) => Err(self.host.failed("remove", &self.at(name), code)),
            None => Err(self.host.odd_answer("remove", &self.at(name))),
        }
    }
}

impl SftpFolder {
    /// Gives what was taken aside the memory's name again, where none stands.
    pub(super) fn put_back(&self, aside: &str) -> Result<(), TransportError> {
        let (from, to) = (bytes(&self.at(aside)), bytes(&self.memory));
        let link = Request::HardLink {
            from: from.clone(),
            to: to.clone(),
        };
        let answers = self.host.ask(vec![link, lstat(&self.memory)])?;
        // Before its other name goes, it has to be there.
        let stands = answers.get(1).and_then(attrs).is_some();
        if answers.first().and_then(code) == Some(status::OK) && stands {
            return self.remove(aside);
        }
        // It replaces nothing, either.
        let renamed = self.ask_one(Request::Rename { from, to })?;
        match code(&renamed) {
            Some(status::OK) => Ok(()),
            _ if self.stands_at(&self.memory)? => Ok(()),
            _ => {
                let why = format!(
                    "the server refuses links and renames; what it held is in {} and the next run puts it back",
                    self.at(aside).display()
                );
                Err(self.host.refused("put back", &self.memory, &why))
            }
        }
    }

    fn is_folder(&self, name: &str) -> Result<bool, TransportError> {
        let found = self.ask_one(lstat(&self.at(name)))?;
        Ok(attrs(&found).and_then(kind) == Some(DIRECTORY))
    }

    pub(super) fn stands_at(&self, path: &Path) -> Result<bool, TransportError> {
        let found = self.ask_one(lstat(path))?;
        match (code(&found), attrs(&found)) {
            (Some(status::NO_SUCH_FILE), _) => Ok(false),
            (_, Some(_)) => Ok(true),
            (Some(code), _) => Err(self.host.failed("look at", path, code)),
            _ => Err(self.host.odd_answer("look at", path)),
        }
    }

    /// A file that an earlier run staged.
    pub(super) fn staged_before(&self, name: &str) -> Result<New, TransportError> {
        let path = self.at(name);
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
fn size_of(object: &MemoryObject) -> Option<u64> {
    match object {
        MemoryObject::File(file) => Some(file.stamp.size),
        _ => None,
    }
}

pub(super) fn handle(answer: Answer) -> Option<Handle> {
    match answer {
        Ok(Reply::Handle(handle)) => Some(handle),
        _ => None,
    }
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
