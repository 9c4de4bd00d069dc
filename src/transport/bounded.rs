//! A transport whose file-system calls have a time limit, for file systems that may hang. Each call
//! runs on another thread and is abandoned after the limit ([`crate::base::file_systems`]), as a request
//! to a host is: [`FailureCause::Unreachable`].
//!
//! Callbacks of the caller (sinks, contents, inspections) run on the caller's own thread. Bytes
//! cross between the threads in chunks, and the limit applies to each chunk.

use std::any::Any;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{
    ByteSink, DirectoryEntry, DirectoryListing, DirectoryObstacles, DirectoryProperties,
    DisplacedObject, FailureCause, FileMetadata, Inspector, InterruptedRun, MemoryDirectory,
    MemoryObject, NewMemory, ObjectId, RecoveredRun, SettleOutcome, SpecialFile, StagedAttributes,
    Stamp, SwapOutcome, Transport, TransportError, UnsyncedObject,
};
use crate::base::error::{Error, ErrorKind};
use crate::base::file_systems::{FileSystem, FileSystemCall, FileSystems};
use crate::config::SftpExtension;

/// Maximum number of chunks of a file in transit between the threads.
const MAX_QUEUED_PIECES: usize = 4;

/// Bounds the calls of another transport to this machine's disks.
pub struct BoundedTransport {
    inner: Arc<dyn Transport>,
    file_systems: Arc<FileSystems>,
}

impl BoundedTransport {
    /// Bounds the calls of `inner` to file systems that are not trusted.
    pub fn new(inner: Arc<dyn Transport>, systems: Arc<FileSystems>) -> BoundedTransport {
        BoundedTransport {
            inner,
            file_systems: systems,
        }
    }
}

impl Transport for BoundedTransport {
    fn max_memory_bytes(&self) -> u64 {
        self.inner.max_memory_bytes()
    }

    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        let probe_one = |memory: &&Path| {
            let Some(system) = self.file_systems.find_untrusted(memory) else {
                return single_result(self.inner.probe(&[memory]));
            };
            let (inner, memory) = (Arc::clone(&self.inner), memory.to_path_buf());
            let probed = system.call(move || single_result(inner.probe(&[&memory])));
            probed.unwrap_or_else(|error| Err(unreachable_error(error)))
        };
        memories.iter().map(probe_one).collect()
    }

    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        let Some(system) = self.file_systems.find_untrusted(memory) else {
            return self.inner.open_directory(memory);
        };
        BoundedDirectory::open(&self.inner, system, memory)
    }

    fn list_directory(
        &self,
        directory: &Path,
    ) -> Result<Box<dyn DirectoryListing>, TransportError> {
        let Some(system) = self.file_systems.find_untrusted(directory) else {
            return self.inner.list_directory(directory);
        };
        let (inner, directory) = (Arc::clone(&self.inner), directory.to_path_buf());
        let opened = system.call(move || inner.list_directory(&directory));
        Ok(Box::new(BoundedListing {
            listing: Some(opened.map_err(unreachable_error)??),
            file_system: system,
        }))
    }

    fn file_system(&self, memory: &Path) -> Option<Arc<FileSystem>> {
        self.file_systems.find_untrusted(memory)
    }
}

/// A listing whose pages have a time limit each.
struct BoundedListing {
    file_system: Arc<FileSystem>,
    /// `None` once a page took too long: the listing is then still in use by that call.
    listing: Option<Box<dyn DirectoryListing>>,
}

impl DirectoryListing for BoundedListing {
    fn next_page(&mut self) -> Result<Option<Vec<DirectoryEntry>>, TransportError> {
        let Some(mut listing) = self.listing.take() else {
            return Err(caller_gone_error().into());
        };
        let called = self.file_system.call(move || {
            let page = listing.next_page();
            (listing, page)
        });
        let (listing, page) = called.map_err(unreachable_error)?;
        self.listing = Some(listing);
        page
    }
}

impl Drop for BoundedListing {
    fn drop(&mut self) {
        if let Some(listing) = self.listing.take() {
            self.file_system.drop_on_thread(listing);
        }
    }
}

fn single_result(
    mut answers: Vec<Result<MemoryObject, TransportError>>,
) -> Result<MemoryObject, TransportError> {
    answers.pop().unwrap_or_else(|| {
        Err(Error::new(ErrorKind::Internal, "the probe returned no result").into())
    })
}

fn unreachable_error(error: Error) -> TransportError {
    TransportError::new(FailureCause::Unreachable, error)
}

/// Ends an abandoned call on its own thread; no caller receives this error.
fn caller_gone_error() -> Error {
    Error::new(ErrorKind::Internal, "the call was abandoned")
}

/// The state that the call threads share.
struct SharedDirectory {
    directory: Mutex<Box<dyn MemoryDirectory>>,
    /// Held until no call can change anything in the directory any more.
    held_guards: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl SharedDirectory {
    fn lock_directory(&self) -> MutexGuard<'_, Box<dyn MemoryDirectory>> {
        self.directory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_guards(&self) -> MutexGuard<'_, Vec<Arc<dyn Any + Send + Sync>>> {
        self.held_guards
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

struct BoundedDirectory {
    file_system: Arc<FileSystem>,
    /// Always `Some` before the drop.
    shared_directory: Option<Arc<SharedDirectory>>,
    /// The last call that was abandoned.
    last_abandoned_call: Mutex<Option<FileSystemCall>>,
}

/// A report of a call with callbacks to its caller.
enum CallReport<T> {
    /// The next bytes of a file.
    Piece(Vec<u8>),
    /// A displaced object is ready to be inspected; `None` for a file.
    InspectionRequested(Option<SpecialFile>),
    /// The requested file was read to its end.
    FileRead(Result<FileMetadata, TransportError>),
    /// The result of the call.
    Done(Result<T, TransportError>),
}

/// The caller's reply to an inspection request.
enum InspectionOrder {
    /// Read the whole file.
    ReadFile,
    /// The inspection is finished, with this result.
    Inspected(Result<(), Error>),
}

impl BoundedDirectory {
    fn open(
        transport: &Arc<dyn Transport>,
        system: Arc<FileSystem>,
        memory: &Path,
    ) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        let (transport, memory): (_, PathBuf) = (Arc::clone(transport), memory.to_path_buf());
        let opened = system.call(move || transport.open_directory(&memory));
        let directory = opened.map_err(unreachable_error)??;
        Ok(Box::new(BoundedDirectory {
            file_system: system,
            shared_directory: Some(Arc::new(SharedDirectory {
                directory: Mutex::new(directory),
                held_guards: Mutex::default(),
            })),
            last_abandoned_call: Mutex::default(),
        }))
    }

    fn live_directory(&self) -> Result<Arc<SharedDirectory>, TransportError> {
        let inner = self.shared_directory.as_ref().map(Arc::clone);
        inner.ok_or_else(|| caller_gone_error().into())
    }

    /// Starts a call, whose result `reply` sends. It is sent only when the directory is unlocked, so
    /// that the caller's next query finds it so.
    fn start_call<T>(
        &self,
        job: impl FnOnce(&dyn MemoryDirectory) -> T + Send + 'static,
        reply: impl FnOnce(T) + Send + 'static,
    ) -> Result<FileSystemCall, TransportError> {
        let inner = self.live_directory()?;
        let call = self.file_system.start_call(move || {
            let result = job(&**inner.lock_directory());
            reply(result);
        });
        call.map_err(unreachable_error)
    }

    fn run_call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn MemoryDirectory) -> Result<T, TransportError> + Send + 'static,
    ) -> Result<T, TransportError> {
        let (reply, answer) = bounded(1);
        // An abandoned call has no receiver.
        let call = self.start_call(job, move |result| drop(reply.send(result)))?;
        self.receive_result(call, &answer)?
    }

    /// Waits for the final result of a call.
    fn receive_result<T>(
        &self,
        call: FileSystemCall,
        answer: &Receiver<T>,
    ) -> Result<T, TransportError> {
        let received = call.receive(answer).map_err(unreachable_error);
        self.record_abandoned(call);
        received
    }

    /// Records a call that was abandoned.
    fn record_abandoned(&self, call: FileSystemCall) {
        if call.is_abandoned() {
            let mut abandoned = self
                .last_abandoned_call
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *abandoned = Some(call);
        }
    }

    /// Returns what the directory knows without asking its file system; `None` while an abandoned
    /// call is still running.
    fn query_without_blocking<T>(
        &self,
        query: impl FnOnce(&dyn MemoryDirectory) -> T,
    ) -> Option<T> {
        let inner = self.shared_directory.as_ref()?;
        // The lock is contended only while an abandoned call has not returned.
        let directory = inner.directory.try_lock().ok()?;
        Some(query(&**directory))
    }

    fn read_pieces(
        &self,
        call: &FileSystemCall,
        reports: &Receiver<CallReport<FileMetadata>>,
        sink: ByteSink<'_>,
    ) -> Result<FileMetadata, TransportError> {
        loop {
            match call.receive(reports).map_err(unreachable_error)? {
                CallReport::Piece(bytes) => {
                    call.add_moved_bytes(bytes.len());
                    sink(&bytes)?;
                }
                CallReport::Done(read) => return read,
                CallReport::InspectionRequested(_) | CallReport::FileRead(_) => {
                    return Err(caller_gone_error().into());
                }
            }
        }
    }

    /// Serves the inspection requests of a settle call until it returns.
    fn serve_inspection(
        call: &FileSystemCall,
        reports: &Receiver<CallReport<SettleOutcome>>,
        orders: &Sender<InspectionOrder>,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        let read = |sink: ByteSink<'_>| {
            call.send(orders, InspectionOrder::ReadFile)
                .map_err(unreachable_error)?;
            let mut stopped = None;
            loop {
                match call.receive(reports).map_err(unreachable_error)? {
                    CallReport::Piece(bytes) => {
                        call.add_moved_bytes(bytes.len());
                        stopped = stopped.or_else(|| sink(&bytes).err());
                    }
                    CallReport::FileRead(read) => {
                        return match stopped {
                            Some(error) => Err(error.into()),
                            None => read,
                        };
                    }
                    CallReport::InspectionRequested(_) | CallReport::Done(_) => {
                        return Err(caller_gone_error().into());
                    }
                }
            }
        };
        loop {
            match call.receive(reports).map_err(unreachable_error)? {
                CallReport::InspectionRequested(special) => {
                    let inspected = inspect(match &special {
                        Some(special) => DisplacedObject::Special(special),
                        None => DisplacedObject::File(&read),
                    });
                    if call.is_abandoned() {
                        inspected?;
                        return Err(caller_gone_error().into());
                    }
                    let order = InspectionOrder::Inspected(inspected);
                    call.send(orders, order).map_err(unreachable_error)?;
                }
                CallReport::Done(settled) => return settled,
                CallReport::Piece(_) | CallReport::FileRead(_) => {
                    return Err(caller_gone_error().into());
                }
            }
        }
    }
}

impl Drop for BoundedDirectory {
    fn drop(&mut self) {
        let Some(inner) = self.shared_directory.take() else {
            return;
        };
        let abandoned = self
            .last_abandoned_call
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // An abandoned call may change the directory when the file system responds again, so the
        // guards stay until it returns.
        if !abandoned.as_ref().is_some_and(FileSystemCall::is_abandoned) {
            inner.lock_guards().clear();
        }
        self.file_system.drop_on_thread(inner);
    }
}

impl MemoryDirectory for BoundedDirectory {
    fn hold_guard(&self, guard: Arc<dyn Any + Send + Sync>) {
        if let Some(inner) = &self.shared_directory {
            inner.lock_guards().push(guard);
        }
    }

    fn try_lock(&self) -> Result<bool, TransportError> {
        self.run_call(|directory| directory.try_lock())
    }

    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        let changed = self.query_without_blocking(|directory| directory.take_unsynced());
        let changed = changed.unwrap_or_default().into_iter();
        changed
            .map(|it| it.with_file_system(&self.file_system))
            .collect()
    }

    fn properties(&self) -> Result<DirectoryProperties, TransportError> {
        self.run_call(|directory| directory.properties())
    }

    fn obstacles(&self) -> Result<DirectoryObstacles, TransportError> {
        self.run_call(|directory| directory.obstacles())
    }

    fn stamp(&self) -> Option<Stamp> {
        self.run_call(|directory| Ok(directory.stamp())).ok()?
    }

    fn is_at_its_path(&self) -> Result<bool, TransportError> {
        self.run_call(|directory| directory.is_at_its_path())
    }

    fn stat_memory(&self) -> Result<MemoryObject, TransportError> {
        self.run_call(|directory| directory.stat_memory())
    }

    fn find_similar_name(&self) -> Option<OsString> {
        let found = self.run_call(|directory| Ok(directory.find_similar_name()));
        found.ok().flatten()
    }

    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        let (report, reports) = bounded(MAX_QUEUED_PIECES);
        let done = report.clone();
        let read = move |directory: &dyn MemoryDirectory| {
            directory.read_memory(&mut |bytes| {
                let sent = report.send(CallReport::Piece(bytes.to_vec()));
                sent.map_err(|_| caller_gone_error())
            })
        };
        let call = self.start_call(read, move |read| drop(done.send(CallReport::Done(read))))?;
        let read = self.read_pieces(&call, &reports, sink);
        self.record_abandoned(call);
        read
    }

    fn stat_leased_memory(&self) -> Result<FileMetadata, TransportError> {
        self.run_call(|directory| directory.stat_leased_memory())
    }

    fn object_id(&self, name: &str) -> Result<Option<ObjectId>, TransportError> {
        let name = name.to_string();
        self.run_call(move |directory| directory.object_id(&name))
    }

    fn stage(
        &self,
        run: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: StagedAttributes,
    ) -> Result<Vec<SftpExtension>, TransportError> {
        let run = run.to_string();
        let (piece_sender, pieces) = bounded::<Option<Vec<u8>>>(MAX_QUEUED_PIECES);
        let (reply, answer) = bounded(1);
        let stage = move |directory: &dyn MemoryDirectory| {
            let mut feed_pieces = |sink: ByteSink<'_>| loop {
                match pieces.recv() {
                    Ok(Some(bytes)) => sink(&bytes)?,
                    Ok(None) => return Ok(()),
                    Err(_) => return Err(caller_gone_error()),
                }
            };
            let staged = directory.stage(&run, &mut feed_pieces, attributes);
            drop(pieces);
            staged
        };
        let call = self.start_call(stage, move |staged| drop(reply.send(staged)))?;
        let write_outcome = content(&mut |bytes| {
            call.add_moved_bytes(bytes.len());
            call.send(&piece_sender, Some(bytes.to_vec()))
        });
        let fed = write_outcome.and_then(|()| call.send(&piece_sender, None));
        // Without the end marker the call removes its unfinished file.
        drop(piece_sender);
        let staged = if call.is_abandoned() {
            Err(unreachable_error(
                fed.err().unwrap_or_else(caller_gone_error),
            ))
        } else {
            match (call.receive(&answer).map_err(unreachable_error), fed) {
                // The call stopped by itself; its own error is the cause.
                (Ok(Err(error)), Ok(())) => Err(error),
                (Ok(Err(error)), Err(fed)) => {
                    if error.has_same_message(&caller_gone_error()) {
                        Err(fed.into())
                    } else {
                        Err(error)
                    }
                }
                (Ok(Ok(_)), Err(fed)) => Err(fed.into()),
                (Ok(staged), Ok(())) => staged,
                (Err(error), _) => Err(error),
            }
        };
        self.record_abandoned(call);
        staged
    }

    fn name_staged(&self, run: &str) -> Result<(), TransportError> {
        let run = run.to_string();
        self.run_call(move |directory| directory.name_staged(&run))
    }

    fn create_directory(&self) -> Result<bool, TransportError> {
        self.run_call(|directory| directory.create_directory())
    }

    fn remove_directory(&self) -> Result<bool, TransportError> {
        self.run_call(|directory| directory.remove_directory())
    }

    fn commit(&self, run: &str, new: NewMemory) -> Result<SwapOutcome, TransportError> {
        let run = run.to_string();
        self.run_call(move |directory| directory.commit(&run, new))
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        let displaced = displaced.to_string();
        let (report, reports) = bounded(MAX_QUEUED_PIECES);
        let (order, orders) = bounded(1);
        let done = report.clone();
        let settle = move |directory: &dyn MemoryDirectory| {
            let tell = |what| report.send(what).map_err(|_| caller_gone_error());
            let mut inspect = |object: DisplacedObject<'_>| {
                let (special, reader) = match object {
                    DisplacedObject::File(reader) => (None, Some(reader)),
                    DisplacedObject::Special(special) => (Some(special.clone()), None),
                };
                tell(CallReport::InspectionRequested(special))?;
                loop {
                    match orders.recv() {
                        Ok(InspectionOrder::ReadFile) => {
                            let reader = reader.ok_or_else(caller_gone_error)?;
                            let read = reader(&mut |bytes| tell(CallReport::Piece(bytes.to_vec())));
                            tell(CallReport::FileRead(read))?;
                        }
                        Ok(InspectionOrder::Inspected(result)) => return result,
                        Err(_) => return Err(caller_gone_error()),
                    }
                }
            };
            directory.settle(&displaced, &mut inspect)
        };
        let send = move |settled| drop(done.send(CallReport::Done(settled)));
        let call = self.start_call(settle, send)?;
        let settled = BoundedDirectory::serve_inspection(&call, &reports, &order, inspect);
        self.record_abandoned(call);
        settled
    }

    fn next_settle_time(&self) -> Option<Instant> {
        self.query_without_blocking(|directory| directory.next_settle_time())
            .flatten()
    }

    fn display_name(&self, displaced: &str) -> String {
        let name = self.query_without_blocking(|directory| directory.display_name(displaced));
        name.unwrap_or_else(|| displaced.to_string())
    }

    fn recover(&self, run: &InterruptedRun) -> Result<Option<RecoveredRun>, TransportError> {
        let run = run.clone();
        self.run_call(move |directory| directory.recover(&run))
    }

    fn has_files_of_run(&self, run: &str) -> Result<bool, TransportError> {
        let run = run.to_string();
        self.run_call(move |directory| directory.has_files_of_run(&run))
    }
}
