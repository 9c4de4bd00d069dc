//! An in-memory transport, for tests and for load tests without a disk. It keeps the whole contract
//! of [`Transport`]; besides, it can be slow, fail at a chosen call, and run an "agent" between
//! operations.

// No test binary uses all of it.
#![allow(dead_code)]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use memory_shepherd::base::clock::Clock;
use memory_shepherd::base::digest::Digest;
use memory_shepherd::base::error::{Error, ErrorKind};
use memory_shepherd::config::SftpExtension;
use memory_shepherd::transport::{
    Attributes, BatchSink, ByteSink, DirectoryEntry, DirectoryListing, DirectoryProperties,
    DisplacedObject, FailureCause, FileMetadata, Inspector, InstalledMemory, InterruptedRun,
    MAX_PAGE_ENTRIES, MemoryDirectory, MemoryObject, NewMemory, OnProbed, RecoveredRun,
    SettleOutcome, SpecialFile, StagedAttributes, Stamp, SwapForecast, SwapMethod, SwapOutcome,
    SwapProgress, Transport, TransportError, UnsyncedObject, Xattr, keep_xattrs_within_limit,
    new_memory_mode,
};

/// Bytes that a read passes on at a time.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// The methods of [`Transport`] and [`MemoryDirectory`] that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeOperation {
    Probe,
    Open,
    List,
    StatMemory,
    Read,
    Stage,
    Commit,
    Settle,
    Recover,
}

/// Runs before an operation, with the path of the memory.
pub type OperationHook = Box<dyn FnMut(&FakeTransport, FakeOperation, &Path) + Send>;

/// Memories in this process. Clones share them.
#[derive(Clone)]
pub struct FakeTransport {
    clock: Arc<dyn Clock>,
    tree: Arc<Mutex<FakeTree>>,
    hook: Arc<Mutex<Option<OperationHook>>>,
}

#[derive(Default)]
struct FakeTree {
    nodes: BTreeMap<PathBuf, FakeNode>,
    last_inode: u64,
    calls: Vec<(FakeOperation, PathBuf)>,
    faults: Vec<InjectedFault>,
    latency: Duration,
}

#[derive(Clone)]
enum FakeNode {
    Directory(Attributes),
    File(Arc<Mutex<FakeInode>>),
    Special(SpecialFile),
}

struct FakeInode {
    bytes: Vec<u8>,
    metadata: FileMetadata,
    open_writers: usize,
}

struct InjectedFault {
    operation: FakeOperation,
    memory: PathBuf,
    /// Calls until the fault strikes; with `None` it strikes at every call.
    calls_left: Option<u32>,
    cause: FailureCause,
    message: String,
}

/// A file that an "agent" holds open for writing, until the drop.
pub struct FakeWriter {
    clock: Arc<dyn Clock>,
    inode: Arc<Mutex<FakeInode>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeInode {
    fn append(&mut self, bytes: &[u8], clock: &dyn Clock) {
        self.bytes.extend_from_slice(bytes);
        self.update_stamp(clock);
    }

    /// Sets a new stamp, later than any before.
    fn update_stamp(&mut self, clock: &dyn Clock) {
        let now = clock.now().timestamp_nanos_opt().unwrap_or(i64::MAX);
        let stamp = &mut self.metadata.stamp;
        stamp.size = self.bytes.len() as u64;
        stamp.modified = now.max(stamp.modified + 1);
        stamp.changed = stamp.modified;
    }
}

impl FakeWriter {
    /// Appends to the file, whatever its current name.
    pub fn write(&mut self, bytes: &[u8]) {
        lock(&self.inode).append(bytes, self.clock.as_ref());
    }
}

impl Drop for FakeWriter {
    fn drop(&mut self) {
        lock(&self.inode).open_writers -= 1;
    }
}

/// Actions of tests and agents, behind the engine's back.
impl FakeTransport {
    /// Creates a tree without directories.
    pub fn new(clock: Arc<dyn Clock>) -> FakeTransport {
        FakeTransport {
            clock,
            tree: Arc::default(),
            hook: Arc::default(),
        }
    }

    /// Creates a directory; it and files created in it belong to the given user.
    pub fn make_directory(&self, path: impl AsRef<Path>, uid: u32, gid: u32, mode: u32) {
        let attributes = Attributes {
            uid,
            gid,
            mode,
            xattrs: Vec::new(),
        };
        let node = FakeNode::Directory(attributes);
        self.tree().nodes.insert(path.as_ref().to_path_buf(), node);
    }

    /// Writes a file: in place if it exists, else a new one.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let mut tree = self.tree();
        match tree.nodes.get(path.as_ref()) {
            Some(FakeNode::File(inode)) => {
                let mut inode = lock(inode);
                inode.bytes.clear();
                inode.append(bytes, self.clock.as_ref());
            }
            _ => {
                let attributes = tree.inherited_attributes(path.as_ref());
                self.insert_file(&mut tree, path.as_ref(), bytes.to_vec(), &attributes);
            }
        }
    }

    /// Replaces the object at this path by a new file, as editors do.
    pub fn replace_file(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let mut tree = self.tree();
        tree.nodes.remove(path.as_ref());
        let attributes = tree.inherited_attributes(path.as_ref());
        self.insert_file(&mut tree, path.as_ref(), bytes.to_vec(), &attributes);
    }

    /// Renames the object at `from` to `to`, replacing the object there.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        let mut tree = self.tree();
        if let Some(node) = tree.nodes.remove(from.as_ref()) {
            tree.nodes.insert(to.as_ref().into(), node);
        }
    }

    /// Puts a special file at this path; a [`SpecialFile::Symlink`] in place of a directory makes
    /// every path through it a path through a link.
    pub fn put_special_file(&self, path: impl AsRef<Path>, special: SpecialFile) {
        let mut tree = self.tree();
        tree.nodes
            .insert(path.as_ref().into(), FakeNode::Special(special));
    }

    /// Removes the object at this path.
    pub fn delete(&self, path: impl AsRef<Path>) {
        self.tree().nodes.remove(path.as_ref());
    }

    /// Sets owner, mode and extended attributes of a file.
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: Attributes) {
        if let Some(FakeNode::File(inode)) = self.tree().nodes.get(path.as_ref()) {
            lock(inode).metadata.attributes = attributes;
        }
    }

    /// Returns owner, mode and extended attributes of a file.
    pub fn attributes(&self, path: impl AsRef<Path>) -> Option<Attributes> {
        match self.tree().nodes.get(path.as_ref()) {
            Some(FakeNode::File(inode)) => Some(lock(inode).metadata.attributes.clone()),
            _ => None,
        }
    }

    /// Returns the bytes of a file.
    pub fn content(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        match self.tree().nodes.get(path.as_ref()) {
            Some(FakeNode::File(inode)) => Some(lock(inode).bytes.clone()),
            _ => None,
        }
    }

    /// Opens a file for appending; `None` where there is no file.
    pub fn open_writer(&self, path: impl AsRef<Path>) -> Option<FakeWriter> {
        let Some(FakeNode::File(inode)) = self.tree().nodes.get(path.as_ref()).cloned() else {
            return None;
        };
        lock(&inode).open_writers += 1;
        Some(FakeWriter {
            clock: Arc::clone(&self.clock),
            inode,
        })
    }

    /// Returns the names in a directory, sorted.
    pub fn list_names(&self, directory: impl AsRef<Path>) -> Vec<String> {
        let tree = self.tree();
        let inside = |path: &&PathBuf| path.parent() == Some(directory.as_ref());
        let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
        tree.nodes.keys().filter(inside).filter_map(name).collect()
    }

    /// Makes the `nth` further call of `op` on this memory fail, or every call when `nth` is 0. The
    /// operation then changes nothing.
    pub fn fail_nth_call(
        &self,
        op: FakeOperation,
        memory: impl AsRef<Path>,
        nth: u32,
        cause: FailureCause,
        message: &str,
    ) {
        self.tree().faults.push(InjectedFault {
            operation: op,
            memory: memory.as_ref().to_path_buf(),
            calls_left: (nth > 0).then_some(nth),
            cause,
            message: message.to_string(),
        });
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.tree().faults.clear();
    }

    /// Runs `hook` before every operation, outside all locks, so that it may write as an "agent".
    /// Replaces the earlier hook.
    pub fn set_hook(
        &self,
        hook: impl FnMut(&FakeTransport, FakeOperation, &Path) + Send + 'static,
    ) {
        *lock(&self.hook) = Some(Box::new(hook));
    }

    /// Makes every round trip take this long, by the clock.
    pub fn set_latency(&self, latency: Duration) {
        self.tree().latency = latency;
    }

    /// Returns the number of calls of `op` on this memory.
    pub fn count_calls(&self, op: FakeOperation, memory: impl AsRef<Path>) -> usize {
        let called = |call: &&(FakeOperation, PathBuf)| call.0 == op && call.1 == memory.as_ref();
        self.tree().calls.iter().filter(called).count()
    }

    fn tree(&self) -> MutexGuard<'_, FakeTree> {
        lock(&self.tree)
    }

    fn insert_file(
        &self,
        tree: &mut FakeTree,
        path: &Path,
        bytes: Vec<u8>,
        attributes: &Attributes,
    ) {
        tree.last_inode += 1;
        let mut inode = FakeInode {
            bytes,
            metadata: FileMetadata {
                stamp: Stamp {
                    size: 0,
                    modified: 0,
                    changed: 0,
                    inode: tree.last_inode,
                },
                attributes: attributes.clone(),
                dropped_xattrs: 0,
            },
            open_writers: 0,
        };
        inode.update_stamp(self.clock.as_ref());
        let node = FakeNode::File(Arc::new(Mutex::new(inode)));
        tree.nodes.insert(path.to_path_buf(), node);
    }

    /// Runs the steps before every operation: the latency, the hook, the faults.
    fn begin_operation(&self, op: FakeOperation, memory: &Path) -> Result<(), TransportError> {
        self.wait_round_trip();
        self.run_hook_and_faults(op, memory)
    }

    /// Waits for the latency of a round trip.
    fn wait_round_trip(&self) {
        let latency = self.tree().latency;
        if !latency.is_zero() {
            self.clock.sleep(latency);
        }
    }

    /// Runs hook and faults without the latency, for an operation that shares a round trip.
    fn run_hook_and_faults(&self, op: FakeOperation, memory: &Path) -> Result<(), TransportError> {
        // The hook is taken out while it runs, so that it can use this transport.
        let hook = lock(&self.hook).take();
        if let Some(mut hook) = hook {
            hook(self, op, memory);
            lock(&self.hook).get_or_insert(hook);
        }
        let mut tree = self.tree();
        tree.calls.push((op, memory.to_path_buf()));
        let is_for_call =
            |fault: &InjectedFault| (fault.operation, fault.memory.as_path()) == (op, memory);
        let mut cause_and_message = None;
        for fault in tree.faults.iter_mut().filter(|fault| is_for_call(fault)) {
            fault.calls_left = fault.calls_left.map(|left| left.saturating_sub(1));
            if fault.calls_left.is_none_or(|left| left == 0) && cause_and_message.is_none() {
                let error = Error::new(ErrorKind::Host, fault.message.clone());
                cause_and_message = Some(TransportError::new(fault.cause, error));
            }
        }
        tree.faults.retain(|fault| fault.calls_left != Some(0));
        cause_and_message.map_or(Ok(()), Err)
    }
}

impl FakeTree {
    /// Returns the attributes of a file created here: the directory's owner, no execute bits.
    fn inherited_attributes(&self, memory: &Path) -> Attributes {
        let directory = memory.parent().and_then(|parent| self.nodes.get(parent));
        match directory {
            Some(FakeNode::Directory(attributes)) => Attributes {
                mode: new_memory_mode(attributes.mode),
                ..attributes.clone()
            },
            _ => Attributes::default(),
        }
    }

    fn object_at(&self, path: &Path) -> MemoryObject {
        match self.nodes.get(path) {
            None => MemoryObject::Absent,
            Some(FakeNode::Directory(_)) => MemoryObject::Special(SpecialFile::Directory),
            Some(FakeNode::Special(special)) => MemoryObject::Special(special.clone()),
            Some(FakeNode::File(inode)) => {
                MemoryObject::File(without_xattrs(lock(inode).metadata.clone()))
            }
        }
    }

    /// Returns the path of a memory whose directory can be opened.
    fn resolve_memory(&self, memory: &Path) -> Result<PathBuf, TransportError> {
        let parent = memory.parent().unwrap_or(Path::new(""));
        let through =
            |path: &&Path| !matches!(self.nodes.get(*path), None | Some(FakeNode::Directory(_)));
        if let Some(path) = parent.ancestors().find(through) {
            let message = format!("{} is not a directory", path.display());
            return Err(refused_error(message));
        }
        if !self.nodes.contains_key(parent) {
            let message = format!("the directory {} does not exist", parent.display());
            let error = Error::new(ErrorKind::Host, message);
            return Err(TransportError::new(FailureCause::NoDirectory, error));
        }
        Ok(parent.to_path_buf())
    }
}

/// Returns the metadata without extended attributes, as reported for a file that is not read.
fn without_xattrs(mut file: FileMetadata) -> FileMetadata {
    file.attributes.xattrs.clear();
    file
}

fn refused_error(message: String) -> TransportError {
    TransportError::new(FailureCause::Refused, Error::new(ErrorKind::Host, message))
}

fn replaced_error(path: &Path) -> TransportError {
    let message = format!("{} was replaced by another process", path.display());
    TransportError::new(
        FailureCause::Replaced,
        Error::new(ErrorKind::Conflict, message),
    )
}

/// The entries that no page has had yet, the next one last.
struct FakeListing(Vec<DirectoryEntry>);

impl DirectoryListing for FakeListing {
    fn next_page(&mut self) -> Result<Option<Vec<DirectoryEntry>>, TransportError> {
        let rest = self.0.len().saturating_sub(MAX_PAGE_ENTRIES);
        let mut page = self.0.split_off(rest);
        page.reverse();
        Ok((!page.is_empty()).then_some(page))
    }
}

impl Transport for FakeTransport {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        self.wait_round_trip();
        let look = |memory: &&Path| {
            self.run_hook_and_faults(FakeOperation::Probe, memory)?;
            let tree = self.tree();
            tree.resolve_memory(memory)?;
            Ok(tree.object_at(memory))
        };
        memories.iter().map(look).collect()
    }

    fn start_probe(&self, memories: &[&Path], when_done: OnProbed) {
        let memories: Vec<PathBuf> = memories.iter().map(|it| it.to_path_buf()).collect();
        let fake = self.clone();
        std::thread::spawn(move || {
            let memories: Vec<&Path> = memories.iter().map(PathBuf::as_path).collect();
            let objects = fake.probe(&memories);
            when_done(Box::new(move || Some(objects)));
        });
    }

    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        self.begin_operation(FakeOperation::Open, memory)?;
        Ok(Box::new(FakeDirectory {
            fake: self.clone(),
            directory_path: self.tree().resolve_memory(memory)?,
            memory_path: memory.to_path_buf(),
            staged_inode: Cell::new(None),
        }))
    }

    fn list_directory(
        &self,
        directory: &Path,
    ) -> Result<Box<dyn DirectoryListing>, TransportError> {
        self.begin_operation(FakeOperation::List, directory)?;
        let tree = self.tree();
        tree.resolve_memory(&directory.join("MEMORY.md"))?;
        let inside = tree
            .nodes
            .keys()
            .filter(|path| path.parent() == Some(directory));
        let entries = inside.filter_map(|path| {
            Some(DirectoryEntry {
                name: path.file_name()?.to_os_string(),
                object: Ok(tree.object_at(path)),
            })
        });
        let mut entries: Vec<DirectoryEntry> = entries.collect();
        entries.reverse();
        Ok(Box::new(FakeListing(entries)))
    }

    fn read_batch(
        &self,
        files: &[(&Path, &FileMetadata)],
        sink: BatchSink<'_>,
    ) -> Vec<Result<FileMetadata, TransportError>> {
        self.wait_round_trip();
        self.wait_round_trip();
        let one = |(number, (memory, _)): (usize, &(&Path, &FileMetadata))| {
            self.run_hook_and_faults(FakeOperation::Read, memory)?;
            let node = self.tree().nodes.get(*memory).cloned();
            let Some(FakeNode::File(inode)) = node else {
                return Err(replaced_error(memory));
            };
            read_inode(&inode, &mut |piece| {
                sink(number, piece);
                Ok(())
            })
        };
        files.iter().enumerate().map(one).collect()
    }
}

struct FakeDirectory {
    fake: FakeTransport,
    directory_path: PathBuf,
    memory_path: PathBuf,
    /// The inode of the staged file.
    staged_inode: Cell<Option<u64>>,
}

impl FakeDirectory {
    fn begin_operation(
        &self,
        op: FakeOperation,
    ) -> Result<MutexGuard<'_, FakeTree>, TransportError> {
        self.fake.begin_operation(op, &self.memory_path)?;
        Ok(self.fake.tree())
    }

    /// Exchanges the file at a name with the memory; it has to be that inode.
    fn swap(
        &self,
        tree: &mut FakeTree,
        staged: &str,
        inode: Option<u64>,
    ) -> Result<SwapOutcome, TransportError> {
        let aside = self.directory_path.join(staged);
        let Some(new) = tree.nodes.remove(&aside) else {
            return Err(refused_error(format!("{} does not exist", aside.display())));
        };
        let is_staged = inode.is_some() && node_inode(&new) == inode;
        let old = tree.nodes.insert(self.memory_path.clone(), new);
        let (method, displaced) = match old {
            None => (SwapMethod::Create, Vec::new()),
            Some(old) => {
                tree.nodes.insert(aside, old);
                (SwapMethod::Exchange, vec![staged.to_string()])
            }
        };
        match is_staged {
            true => Ok(SwapOutcome { method, displaced }),
            false => Err(replaced_error(&self.memory_path)),
        }
    }

    /// Determines how an interrupted run replaced the memory.
    fn finish_swap(
        &self,
        tree: &mut FakeTree,
        run: &InterruptedRun,
    ) -> Result<Option<SwapMethod>, TransportError> {
        let bytes_at = |path: &Path| match tree.nodes.get(path) {
            Some(FakeNode::File(inode)) => Some(lock(inode).bytes.clone()),
            _ => None,
        };
        let staged_path = self.directory_path.join(&run.name);
        let memory = tree.nodes.get(&self.memory_path);
        let staged = tree.nodes.get(&staged_path);
        let is_created = |content: Digest, size: u64| {
            let bytes = bytes_at(&self.memory_path).unwrap_or_default();
            let start = bytes.get(..size as usize).map(Digest::of);
            run.creates_memory && start == Some(content)
        };
        let (content, size) = match &run.installed {
            InstalledMemory::File { content, size } => (*content, *size),
            InstalledMemory::Special(special) => {
                let found = tree.object_at(&self.memory_path);
                let is_installed = found == MemoryObject::Special(special.clone());
                return Ok(is_installed.then_some(SwapMethod::Exchange));
            }
            InstalledMemory::Absent => return Ok(staged.map(|_| SwapMethod::Remove)),
        };
        let holds_new_file = bytes_at(&staged_path).is_some_and(|it| Digest::of(&it) == content);
        if holds_new_file && memory.is_none() {
            let inode = staged.and_then(node_inode);
            return Ok(Some(self.swap(tree, &run.name, inode)?.method));
        }
        let is_old = memory.and_then(node_inode) == Some(run.memory_inode);
        Ok(match staged {
            Some(_) if !holds_new_file && !is_old => Some(SwapMethod::Exchange),
            _ if is_created(content, size) => Some(SwapMethod::Create),
            _ => None,
        })
    }

    /// Swaps a memory that the run had decided to replace.
    fn begin_swap(
        &self,
        tree: &mut FakeTree,
        run: &InterruptedRun,
    ) -> Result<Option<SwapMethod>, TransportError> {
        let staged = tree.nodes.get(&self.directory_path.join(&run.name));
        match (&run.installed, staged.and_then(node_inode)) {
            (InstalledMemory::File { .. }, Some(inode)) => {
                Ok(Some(self.swap(tree, &run.name, Some(inode))?.method))
            }
            (InstalledMemory::Absent, None) => {
                let old = tree.nodes.remove(&self.memory_path);
                let aside = self.directory_path.join(&run.name);
                Ok(old.map(|old| {
                    tree.nodes.insert(aside, old);
                    SwapMethod::Remove
                }))
            }
            _ => Ok(None),
        }
    }

    /// Returns the inode of the memory, if it is a file.
    fn memory_inode(&self, tree: &FakeTree) -> Result<Arc<Mutex<FakeInode>>, TransportError> {
        match tree.nodes.get(&self.memory_path) {
            Some(FakeNode::File(inode)) => Ok(Arc::clone(inode)),
            _ => Err(replaced_error(&self.memory_path)),
        }
    }
}

fn node_inode(node: &FakeNode) -> Option<u64> {
    match node {
        FakeNode::File(inode) => Some(lock(inode).metadata.stamp.inode),
        _ => None,
    }
}

/// Passes on the bytes that a file has at the start of the read, in chunks.
fn read_inode(
    inode: &Mutex<FakeInode>,
    sink: ByteSink<'_>,
) -> Result<FileMetadata, TransportError> {
    let (bytes, file) = {
        let inode = lock(inode);
        (inode.bytes.clone(), inode.metadata.clone())
    };
    bytes.chunks(READ_CHUNK_BYTES).try_for_each(sink)?;
    Ok(file)
}

/// An attribute whose name identifies it.
struct NamedXattr(Xattr);

impl AsRef<[u8]> for NamedXattr {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

impl MemoryDirectory for FakeDirectory {
    fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        Vec::new()
    }

    fn properties(&self) -> Result<DirectoryProperties, TransportError> {
        Ok(DirectoryProperties {
            id: None,
            missing_extensions: Vec::new(),
            swap_forecast: SwapForecast::Clear,
        })
    }

    fn stat_memory(&self) -> Result<MemoryObject, TransportError> {
        Ok(self
            .begin_operation(FakeOperation::StatMemory)?
            .object_at(&self.memory_path))
    }

    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError> {
        let inode = self.memory_inode(&*self.begin_operation(FakeOperation::Read)?)?;
        let mut file = read_inode(&inode, sink)?;
        let xattrs = std::mem::take(&mut file.attributes.xattrs).into_iter();
        let sizes = xattrs.map(|xattr| {
            let size = xattr.1.len();
            (NamedXattr(xattr), size)
        });
        let (kept, dropped) = keep_xattrs_within_limit(sizes.collect());
        file.attributes.xattrs = kept.into_iter().map(|(named, _)| named.0).collect();
        file.dropped_xattrs = dropped;
        Ok(file)
    }

    fn stage(
        &self,
        run: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: StagedAttributes,
    ) -> Result<Vec<SftpExtension>, TransportError> {
        drop(self.begin_operation(FakeOperation::Stage)?);
        let mut bytes = Vec::new();
        content(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        let path = self.directory_path.join(run);
        let mut tree = self.fake.tree();
        if tree.nodes.contains_key(&path) {
            return Err(refused_error(format!("{} already exists", path.display())));
        }
        let attributes = attributes
            .resolve(|| Ok::<_, TransportError>(tree.inherited_attributes(&self.memory_path)))?;
        self.fake
            .insert_file(&mut tree, &path, bytes, &attributes.for_new_file());
        self.staged_inode.set(Some(tree.last_inode));
        Ok(Vec::new())
    }

    fn create_directory(&self) -> Result<bool, TransportError> {
        let mut tree = self.begin_operation(FakeOperation::Stage)?;
        match tree.nodes.get(&self.memory_path) {
            Some(FakeNode::Directory(_)) => return Ok(false),
            Some(_) => return Err(refused_error("a file has the name".to_string())),
            None => {}
        }
        let Some(FakeNode::Directory(attributes)) = tree.nodes.get(&self.directory_path).cloned()
        else {
            return Err(refused_error("no such directory".to_string()));
        };
        tree.nodes
            .insert(self.memory_path.clone(), FakeNode::Directory(attributes));
        Ok(true)
    }

    fn remove_directory(&self) -> Result<bool, TransportError> {
        let mut tree = self.begin_operation(FakeOperation::Settle)?;
        let is_used = tree
            .nodes
            .keys()
            .any(|path| path.parent() == Some(&self.memory_path));
        match tree.nodes.get(&self.memory_path) {
            None => Ok(true),
            Some(FakeNode::Directory(_)) if !is_used => {
                tree.nodes.remove(&self.memory_path);
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    fn commit(&self, run: &str, new: NewMemory) -> Result<SwapOutcome, TransportError> {
        let mut tree = self.begin_operation(FakeOperation::Commit)?;
        match new {
            NewMemory::StagedFile { .. } => self.swap(&mut tree, run, self.staged_inode.take()),
            NewMemory::KeptObject(_) | NewMemory::Symlink(_) => {
                let error = Error::new(ErrorKind::Conflict, "the fake restores no objects");
                Err(TransportError::new(FailureCause::CallerFailed, error))
            }
            NewMemory::Nothing => {
                let aside = self.directory_path.join(run);
                if tree.nodes.contains_key(&aside) {
                    return Err(refused_error(format!("{} already exists", aside.display())));
                }
                let old = tree.nodes.remove(&self.memory_path);
                let old = old.ok_or_else(|| replaced_error(&self.memory_path))?;
                tree.nodes.insert(aside, old);
                Ok(SwapOutcome {
                    method: SwapMethod::Remove,
                    displaced: vec![run.to_string()],
                })
            }
        }
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError> {
        let path = self.directory_path.join(displaced);
        let node = self
            .begin_operation(FakeOperation::Settle)?
            .nodes
            .get(&path)
            .cloned();
        let inode = match node {
            None => return Ok(SettleOutcome::Removed { was_watched: true }),
            Some(FakeNode::Directory(_)) => return Ok(SettleOutcome::Kept(SpecialFile::Directory)),
            Some(FakeNode::Special(
                special @ (SpecialFile::Directory | SpecialFile::ForeignHardLink(_)),
            )) => {
                return Ok(SettleOutcome::Kept(special));
            }
            Some(FakeNode::Special(special)) => {
                inspect(DisplacedObject::Special(&special))?;
                let mut tree = self.fake.tree();
                match tree.object_at(&path) {
                    MemoryObject::Special(found) if found == special => {
                        tree.nodes.remove(&path);
                    }
                    MemoryObject::Absent => {}
                    _ => return Ok(SettleOutcome::StillOpen),
                }
                return Ok(SettleOutcome::Removed { was_watched: true });
            }
            Some(FakeNode::File(inode)) => inode,
        };
        let before = {
            let inode = lock(&inode);
            if inode.open_writers > 0 {
                return Ok(SettleOutcome::StillOpen);
            }
            inode.metadata.stamp
        };
        let read = |sink: ByteSink<'_>| read_inode(&inode, sink);
        inspect(DisplacedObject::File(&read))?;
        let mut tree = self.fake.tree();
        let inode = lock(&inode);
        if inode.open_writers > 0 || inode.metadata.stamp != before {
            return Ok(SettleOutcome::StillOpen);
        }
        tree.nodes.remove(&path);
        Ok(SettleOutcome::Removed { was_watched: true })
    }

    fn has_files_of_run(&self, run: &str) -> Result<bool, TransportError> {
        let path = self.directory_path.join(run);
        Ok(self.fake.tree().nodes.contains_key(&path))
    }

    fn recover(&self, run: &InterruptedRun) -> Result<Option<RecoveredRun>, TransportError> {
        let mut tree = self.begin_operation(FakeOperation::Recover)?;
        let method = match run.progress {
            SwapProgress::NotBegun | SwapProgress::Done => None,
            SwapProgress::Unknown => self.finish_swap(&mut tree, run)?,
            SwapProgress::Decided => match self.finish_swap(&mut tree, run)? {
                None => self.begin_swap(&mut tree, run)?,
                method => method,
            },
        };
        let is_displaced = |name: &String| {
            let names = run.displaced.as_ref();
            tree.nodes.contains_key(&self.directory_path.join(name))
                && names.is_none_or(|names| names.contains(name) || *name == run.name)
        };
        let displaced = [run.name.clone()]
            .into_iter()
            .filter(is_displaced)
            .collect();
        Ok(Some(RecoveredRun { method, displaced }))
    }
}
