//! Memories on file systems that may hang: every call to one is made on another
//! thread and given up after a limit ([`crate::file_systems`]), as a request to a
//! host is. The failure is [`Cause::Unreachable`].
//!
//! What the caller passes in (sinks, contents, inspections) runs on the caller's own
//! thread; bytes go back and forth in pieces, and the limit is for each of them.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{
    Attributes, Cause, File, Folder, Identity, MemoryObject, ObjectId, Reader, Settled, Sink,
    SpecialFile, SwapForecast, Swapped, Transport, TransportError, Unsynced,
};
use crate::config::Extension;
use crate::digest::Digest;
use crate::error::{Error, Kind};
use crate::file_systems::{FileSystem, FileSystemCall, FileSystems};

/// How many pieces of a file are under way between the threads.
const MAX_QUEUED_PIECES: usize = 4;

/// Another transport to this machine's disks, whose calls are bounded.
pub struct Bounded {
    inner: Arc<dyn Transport>,
    systems: Arc<FileSystems>,
}

impl Bounded {
    /// Bounds the calls of `inner` to file systems that are not trusted.
    pub fn new(inner: Arc<dyn Transport>, systems: Arc<FileSystems>) -> Bounded {
        Bounded { inner, systems }
    }
}

impl Transport for Bounded {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        let probe_one = |memory: &&Path| {
            let Some(system) = self.systems.of(memory) else {
                return one(self.inner.probe(&[memory]));
            };
            let (inner, memory) = (Arc::clone(&self.inner), memory.to_path_buf());
            let probed = system.call(move || one(inner.probe(&[&memory])));
            probed.unwrap_or_else(|error| Err(unreachable(error)))
        };
        memories.iter().map(probe_one).collect()
    }

    fn open(&self, memory: &Path) -> Result<Box<dyn Folder>, TransportError> {
        let Some(system) = self.systems.of(memory) else {
            return self.inner.open(memory);
        };
        BoundedFolder::open(&self.inner, system, memory)
    }

    fn file_system(&self, memory: &Path) -> Option<Arc<FileSystem>> {
        self.systems.of(memory)
    }
}

fn one(
    mut answers: Vec<Result<MemoryObject, TransportError>>,
) -> Result<MemoryObject, TransportError> {
    answers
        .pop()
        .unwrap_or_else(|| Err(Error::new(Kind::Internal, "a probe was not answered").into()))
}

fn unreachable(error: Error) -> TransportError {
    TransportError::new(Cause::Unreachable, error)
}

/// That the caller waits for a call no longer; nobody reads it.
fn given_up() -> Error {
    Error::new(Kind::Internal, "the call was given up")
}

/// What lives on the other threads.
struct Inner {
    folder: Mutex<Box<dyn Folder>>,
    /// Kept until no call can change anything in the folder any more.
    held: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Inner {
    fn folder(&self) -> MutexGuard<'_, Box<dyn Folder>> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Vec<Arc<dyn Any + Send + Sync>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct BoundedFolder {
    system: Arc<FileSystem>,
    /// Some until it is dropped.
    inner: Option<Arc<Inner>>,
    /// The last call that was given up.
    abandoned: Mutex<Option<FileSystemCall>>,
}

/// What a call with callbacks reports.
enum CallReport<T> {
    /// The next bytes of a file.
    Piece(Vec<u8>),
    /// A displaced file is ready to be inspected.
    Inspect,
    /// The file that was asked for was read to its end.
    Read(Result<File, TransportError>),
    /// The result of the call.
    Done(Result<T, TransportError>),
}

/// What the inspection of a displaced file wants next.
enum InspectionOrder {
    /// The whole file.
    Read,
    /// Nothing: this is what came of it.
    Inspected(Result<(), Error>),
}

impl BoundedFolder {
    fn open(
        transport: &Arc<dyn Transport>,
        system: Arc<FileSystem>,
        memory: &Path,
    ) -> Result<Box<dyn Folder>, TransportError> {
        let (transport, memory): (_, PathBuf) = (Arc::clone(transport), memory.to_path_buf());
        let opened = system.call(move || transport.open(&memory));
        let folder = opened.map_err(unreachable)??;
        Ok(Box::new(BoundedFolder {
            system,
            inner: Some(Arc::new(Inner {
                folder: Mutex::new(folder),
                held: Mutex::default(),
            })),
            abandoned: Mutex::default(),
        }))
    }

    fn inner(&self) -> Result<Arc<Inner>, TransportError> {
        let inner = self.inner.as_ref().map(Arc::clone);
        inner.ok_or_else(|| given_up().into())
    }

    fn start(
        &self,
        job: impl FnOnce(&dyn Folder) + Send + 'static,
    ) -> Result<FileSystemCall, TransportError> {
        let inner = self.inner()?;
        let call = self.system.start(move || job(&**inner.folder()));
        call.map_err(unreachable)
    }

    fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn Folder) -> Result<T, TransportError> + Send + 'static,
    ) -> Result<T, TransportError> {
        let (reply, answer) = bounded(1);
        let call = self.start(move |folder| {
            // Nobody waits for a call that was given up.
            let _ = reply.send(job(folder));
        })?;
        self.receive(call, &answer)?
    }

    /// Waits for the last thing that a call reports.
    fn receive<T>(&self, call: FileSystemCall, answer: &Receiver<T>) -> Result<T, TransportError> {
        let received = call.receive(answer).map_err(unreachable);
        self.note(call);
        received
    }

    /// Remembers a call that was given up.
    fn note(&self, call: FileSystemCall) {
        if call.is_abandoned() {
            let mut abandoned = self
                .abandoned
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *abandoned = Some(call);
        }
    }

    /// What the folder says without asking its file system.
    fn say<T>(&self, say: impl FnOnce(&dyn Folder) -> T) -> Option<T> {
        let inner = self.inner.as_ref()?;
        // Taken only while a call that was given up has not returned.
        let folder = inner.folder.try_lock().ok()?;
        Some(say(&**folder))
    }

    fn read_pieces(
        &self,
        call: &FileSystemCall,
        reports: &Receiver<CallReport<File>>,
        sink: Sink<'_>,
    ) -> Result<File, TransportError> {
        loop {
            match call.receive(reports).map_err(unreachable)? {
                CallReport::Piece(bytes) => {
                    call.note_bytes(bytes.len());
                    sink(&bytes)?;
                }
                CallReport::Done(read) => return read,
                CallReport::Inspect | CallReport::Read(_) => return Err(given_up().into()),
            }
        }
    }

    /// Answers what the settling of a displaced file asks, until it is done.
    fn answer(
        call: &FileSystemCall,
        reports: &Receiver<CallReport<Settled>>,
        orders: &Sender<InspectionOrder>,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        let read = |sink: Sink<'_>| {
            call.send(orders, InspectionOrder::Read)
                .map_err(unreachable)?;
            let mut stopped = None;
            loop {
                match call.receive(reports).map_err(unreachable)? {
                    CallReport::Piece(bytes) => {
                        call.note_bytes(bytes.len());
                        stopped = stopped.or_else(|| sink(&bytes).err());
                    }
                    CallReport::Read(read) => {
                        return match stopped {
                            Some(error) => Err(error.into()),
                            None => read,
                        };
                    }
                    CallReport::Inspect | CallReport::Done(_) => return Err(given_up().into()),
                }
            }
        };
        loop {
            match call.receive(reports).map_err(unreachable)? {
                CallReport::Inspect => {
                    let inspected = inspect(&read);
                    if call.is_abandoned() {
                        inspected?;
                        return Err(given_up().into());
                    }
                    let order = InspectionOrder::Inspected(inspected);
                    call.send(orders, order).map_err(unreachable)?;
                }
                CallReport::Done(settled) => return settled,
                CallReport::Piece(_) | CallReport::Read(_) => return Err(given_up().into()),
            }
        }
    }
}

impl Drop for BoundedFolder {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else {
            return;
        };
        let abandoned = self
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A call that is still under way may change the folder when the file system
        // answers again: what is held goes with it.
        if !abandoned.as_ref().is_some_and(FileSystemCall::is_abandoned) {
            inner.held().clear();
        }
        self.system.dispose(inner);
    }
}

impl Folder for BoundedFolder {
    fn hold(&self, guard: Arc<dyn Any + Send + Sync>) {
        if let Some(inner) = &self.inner {
            inner.held().push(guard);
        }
    }

    fn unsynced(&self) -> Vec<Unsynced> {
        let changed = self.say(|folder| folder.unsynced());
        let changed = changed.unwrap_or_default().into_iter();
        changed.map(|it| it.through(&self.system)).collect()
    }

    fn identity(&self) -> Result<Option<u64>, TransportError> {
        self.call(|folder| folder.identity())
    }

    fn look(&self) -> Result<MemoryObject, TransportError> {
        self.call(|folder| folder.look())
    }

    fn outlook(&self) -> SwapForecast {
        let outlook = self.call(|folder| Ok(folder.outlook()));
        outlook.unwrap_or_else(|error| SwapForecast::Refused(error.into()))
    }

    fn lacks(&self) -> Vec<Extension> {
        self.say(|folder| folder.lacks()).unwrap_or_default()
    }

    fn read(&self, sink: Sink<'_>) -> Result<File, TransportError> {
        let (report, reports) = bounded(MAX_QUEUED_PIECES);
        let call = self.start(move |folder| {
            let read = folder.read(&mut |bytes| {
                let sent = report.send(CallReport::Piece(bytes.to_vec()));
                sent.map_err(|_| given_up())
            });
            let _ = report.send(CallReport::Done(read));
        })?;
        let read = self.read_pieces(&call, &reports, sink);
        self.note(call);
        read
    }

    fn unread(&self) -> Result<File, TransportError> {
        self.call(|folder| folder.unread())
    }

    fn inherited(&self, staged: &str) -> Result<Attributes, TransportError> {
        let staged = staged.to_string();
        self.call(move |folder| folder.inherited(&staged))
    }

    fn stage(
        &self,
        name: &str,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<Identity, TransportError> {
        let (name, attributes) = (name.to_string(), attributes.clone());
        let (give, pieces) = bounded::<Option<Vec<u8>>>(MAX_QUEUED_PIECES);
        let (reply, answer) = bounded(1);
        let call = self.start(move |folder| {
            let mut feed = |sink: Sink<'_>| loop {
                match pieces.recv() {
                    Ok(Some(bytes)) => sink(&bytes)?,
                    Ok(None) => return Ok(()),
                    Err(_) => return Err(given_up()),
                }
            };
            let staged = folder.stage(&name, &mut feed, &attributes);
            drop(pieces);
            let _ = reply.send(staged);
        })?;
        let fed = content(&mut |bytes| {
            call.note_bytes(bytes.len());
            call.send(&give, Some(bytes.to_vec()))
        });
        let fed = fed.and_then(|()| call.send(&give, None));
        // Without an end the other side removes what it began.
        drop(give);
        let staged = match call.is_abandoned() {
            true => Err(unreachable(fed.err().unwrap_or_else(given_up))),
            false => match (call.receive(&answer).map_err(unreachable), fed) {
                // It stopped by itself, and knows why.
                (Ok(Err(error)), Ok(())) => Err(error),
                (Ok(Err(error)), Err(fed)) => match error.is(&given_up()) {
                    true => Err(fed.into()),
                    false => Err(error),
                },
                (Ok(Ok(_)), Err(fed)) => Err(fed.into()),
                (Ok(staged), Ok(())) => staged,
                (Err(error), _) => Err(error),
            },
        };
        self.note(call);
        staged
    }

    fn link(&self, staged: &str) -> Result<(), TransportError> {
        let staged = staged.to_string();
        self.call(move |folder| folder.link(&staged))
    }

    fn new_name(&self, staged: &str) -> String {
        let name = self.say(|folder| folder.new_name(staged));
        name.unwrap_or_else(|| staged.to_string())
    }

    fn shown(&self, name: &str) -> String {
        let shown = self.say(|folder| folder.shown(name));
        shown.unwrap_or_else(|| name.to_string())
    }

    fn give_back(&self, displaced: &str) -> Result<(), TransportError> {
        let displaced = displaced.to_string();
        self.call(move |folder| folder.give_back(&displaced))
    }

    fn take_over(&self, staged: &str, names: &[String]) -> Result<(), TransportError> {
        let (staged, names) = (staged.to_string(), names.to_vec());
        self.call(move |folder| folder.take_over(&staged, &names))
    }

    fn remove_unfinished(&self, name: &str) -> Result<(), TransportError> {
        let name = name.to_string();
        self.call(move |folder| folder.remove_unfinished(&name))
    }

    fn swap(&self, staged: &str, new: Identity) -> Result<Swapped, TransportError> {
        let staged = staged.to_string();
        self.call(move |folder| folder.swap(&staged, new))
    }

    fn write_in_place(&self, staged: &str, new: Identity) -> Result<Swapped, TransportError> {
        let staged = staged.to_string();
        self.call(move |folder| folder.write_in_place(&staged, new))
    }

    fn object_id(&self, name: &str) -> Result<Option<ObjectId>, TransportError> {
        let name = name.to_string();
        self.call(move |folder| folder.object_id(&name))
    }

    fn put_back(&self, kept: &str, id: Option<ObjectId>) -> Result<Swapped, TransportError> {
        let kept = kept.to_string();
        self.call(move |folder| folder.put_back(&kept, id))
    }

    fn take_away(&self, staged: &str) -> Result<(), TransportError> {
        let staged = staged.to_string();
        self.call(move |folder| folder.take_away(&staged))
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        let displaced = displaced.to_string();
        let (report, reports) = bounded(MAX_QUEUED_PIECES);
        let (order, orders) = bounded(1);
        let call = self.start(move |folder| {
            let tell = |what| report.send(what).map_err(|_| given_up());
            let mut inspect = |reader: Reader<'_>| {
                tell(CallReport::Inspect)?;
                loop {
                    match orders.recv() {
                        Ok(InspectionOrder::Read) => {
                            let read = reader(&mut |bytes| tell(CallReport::Piece(bytes.to_vec())));
                            tell(CallReport::Read(read))?;
                        }
                        Ok(InspectionOrder::Inspected(result)) => return result,
                        Err(_) => return Err(given_up()),
                    }
                }
            };
            let settled = folder.settle(&displaced, &mut inspect);
            let _ = report.send(CallReport::Done(settled));
        })?;
        let settled = BoundedFolder::answer(&call, &reports, &order, inspect);
        self.note(call);
        settled
    }

    fn remove_odd(&self, name: &str, odd: &SpecialFile) -> Result<bool, TransportError> {
        let (name, odd) = (name.to_string(), odd.clone());
        self.call(move |folder| folder.remove_odd(&name, &odd))
    }

    fn unwatched(&self) -> Option<String> {
        let unwatched = self.call(|folder| Ok(folder.unwatched()));
        unwatched.unwrap_or_else(|error| Some(error.to_string()))
    }

    fn due(&self) -> Option<Instant> {
        self.say(|folder| folder.due()).flatten()
    }

    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let staged = staged.to_string();
        self.call(move |folder| folder.displaced_names(&staged))
    }

    fn half_written(&self, staged: &str) -> Result<bool, TransportError> {
        let staged = staged.to_string();
        self.call(move |folder| folder.half_written(&staged))
    }

    fn stands(&self, name: &str) -> Result<bool, TransportError> {
        let name = name.to_string();
        self.call(move |folder| folder.stands(&name))
    }

    fn holds(&self, name: &str, content: Digest) -> Result<Option<Identity>, TransportError> {
        let name = name.to_string();
        self.call(move |folder| folder.holds(&name, content))
    }

    fn remove(&self, name: &str) -> Result<(), TransportError> {
        let name = name.to_string();
        self.call(move |folder| folder.remove(&name))
    }
}
