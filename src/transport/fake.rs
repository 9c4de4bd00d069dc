//! Memories that exist only in this process: for tests, and for load that no
//! disk should see. It keeps the whole contract of [`Transport`], and besides
//! it can be slow, fail at a chosen call, and let an "agent" act in between.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    Attributes, Cause, File, Folder, Identity, MemoryObject, Method, Pieces, Reader, Settled, Sink,
    SpecialFile, Stamp, Swapped, Transport, TransportError, Unsynced, Xattr, created_mode,
    xattrs::affordable,
};
use crate::clock::Clock;
use crate::digest::Digest;
use crate::error::{Error, Kind};

/// Bytes that a read hands over at a time.
const PIECE: usize = 64 * 1024;

/// What is asked of the transport: the methods of [`Transport`] and [`Folder`]
/// that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is the method of the same name.
pub enum Op {
    Probe,
    Open,
    Look,
    Read,
    Inherited,
    Stage,
    Swap,
    TakeAway,
    Settle,
    DisplacedNames,
    Stands,
    Holds,
    Remove,
}

/// Runs before an operation, with the path of the memory.
pub type Hook = Box<dyn FnMut(&Fake, Op, &Path) + Send>;

/// Memories in this process. Clones share them.
#[derive(Clone)]
pub struct Fake {
    clock: Arc<dyn Clock>,
    tree: Arc<Mutex<Tree>>,
    hook: Arc<Mutex<Option<Hook>>>,
}

#[derive(Default)]
struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
    inodes: u64,
    calls: Vec<(Op, PathBuf)>,
    faults: Vec<Fault>,
    latency: Duration,
}

#[derive(Clone)]
enum Node {
    Folder(Attributes),
    File(Arc<Mutex<Inode>>),
    Odd(SpecialFile),
}

struct Inode {
    bytes: Vec<u8>,
    file: File,
    writers: usize,
}

struct Fault {
    op: Op,
    memory: PathBuf,
    /// Calls until it strikes; none strikes at every call.
    left: Option<u32>,
    cause: Cause,
    message: String,
}

/// A file that an "agent" holds open for writing, until it is dropped.
pub struct Writer {
    clock: Arc<dyn Clock>,
    inode: Arc<Mutex<Inode>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inode {
    fn append(&mut self, bytes: &[u8], clock: &dyn Clock) {
        self.bytes.extend_from_slice(bytes);
        self.touch(clock);
    }

    /// Gives it a new stamp, later than any before.
    fn touch(&mut self, clock: &dyn Clock) {
        let now = clock.now().timestamp_nanos_opt().unwrap_or(i64::MAX);
        let stamp = &mut self.file.stamp;
        stamp.size = self.bytes.len() as u64;
        stamp.modified = now.max(stamp.modified + 1);
        stamp.changed = stamp.modified;
    }
}

impl Writer {
    /// Appends to the file, whatever name it has by now.
    pub fn write(&mut self, bytes: &[u8]) {
        lock(&self.inode).append(bytes, self.clock.as_ref());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        lock(&self.inode).writers -= 1;
    }
}

/// What tests and agents do behind the engine's back.
impl Fake {
    /// A world without folders.
    pub fn new(clock: Arc<dyn Clock>) -> Fake {
        Fake {
            clock,
            tree: Arc::default(),
            hook: Arc::default(),
        }
    }

    /// Makes a folder; it and files made in it belong to the given user.
    pub fn make_folder(&self, path: impl AsRef<Path>, uid: u32, gid: u32, mode: u32) {
        let attributes = Attributes {
            uid,
            gid,
            mode,
            xattrs: Vec::new(),
        };
        let node = Node::Folder(attributes);
        self.tree().nodes.insert(path.as_ref().to_path_buf(), node);
    }

    /// Writes a file: in place if one stands there, else a new one.
    pub fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let mut tree = self.tree();
        match tree.nodes.get(path.as_ref()) {
            Some(Node::File(inode)) => {
                let mut inode = lock(inode);
                inode.bytes.clear();
                inode.append(bytes, self.clock.as_ref());
            }
            _ => {
                let attributes = tree.inherited(path.as_ref());
                self.create(&mut tree, path.as_ref(), bytes.to_vec(), &attributes);
            }
        }
    }

    /// Puts a new file in the place of whatever stands there, as editors do.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        let mut tree = self.tree();
        tree.nodes.remove(path.as_ref());
        let attributes = tree.inherited(path.as_ref());
        self.create(&mut tree, path.as_ref(), bytes.to_vec(), &attributes);
    }

    /// Gives whatever stands at `from` the name `to`, in the place of what stood
    /// there.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        let mut tree = self.tree();
        if let Some(node) = tree.nodes.remove(from.as_ref()) {
            tree.nodes.insert(to.as_ref().into(), node);
        }
    }

    /// Puts something odd there; a [`SpecialFile::Symlink`] where a folder should be
    /// makes every path through it a path through a link.
    pub fn put_odd(&self, path: impl AsRef<Path>, odd: SpecialFile) {
        let mut tree = self.tree();
        tree.nodes.insert(path.as_ref().into(), Node::Odd(odd));
    }

    /// Removes whatever stands there.
    pub fn delete(&self, path: impl AsRef<Path>) {
        self.tree().nodes.remove(path.as_ref());
    }

    /// Changes owner, mode and extended attributes of a file.
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: Attributes) {
        if let Some(Node::File(inode)) = self.tree().nodes.get(path.as_ref()) {
            lock(inode).file.attributes = attributes;
        }
    }

    /// Owner, mode and extended attributes of a file.
    pub fn attributes(&self, path: impl AsRef<Path>) -> Option<Attributes> {
        match self.tree().nodes.get(path.as_ref()) {
            Some(Node::File(inode)) => Some(lock(inode).file.attributes.clone()),
            _ => None,
        }
    }

    /// The bytes of a file.
    pub fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        match self.tree().nodes.get(path.as_ref()) {
            Some(Node::File(inode)) => Some(lock(inode).bytes.clone()),
            _ => None,
        }
    }

    /// Opens a file for writing at its end; none where there is no file.
    pub fn open_writer(&self, path: impl AsRef<Path>) -> Option<Writer> {
        let Some(Node::File(inode)) = self.tree().nodes.get(path.as_ref()).cloned() else {
            return None;
        };
        lock(&inode).writers += 1;
        Some(Writer {
            clock: Arc::clone(&self.clock),
            inode,
        })
    }

    /// The names in a folder, sorted.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let tree = self.tree();
        let inside = |path: &&PathBuf| path.parent() == Some(folder.as_ref());
        let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
        tree.nodes.keys().filter(inside).filter_map(name).collect()
    }

    /// Lets the `nth` further call of `op` on this memory fail, or every call
    /// when that is 0. The operation then changes nothing.
    pub fn fail(&self, op: Op, memory: impl AsRef<Path>, nth: u32, cause: Cause, message: &str) {
        self.tree().faults.push(Fault {
            op,
            memory: memory.as_ref().to_path_buf(),
            left: (nth > 0).then_some(nth),
            cause,
            message: message.to_string(),
        });
    }

    /// Forgets all faults.
    pub fn heal(&self) {
        self.tree().faults.clear();
    }

    /// Runs `hook` before every operation, outside all locks: an "agent" may
    /// write in it. It replaces the hook before.
    pub fn set_hook(&self, hook: impl FnMut(&Fake, Op, &Path) + Send + 'static) {
        *lock(&self.hook) = Some(Box::new(hook));
    }

    /// Lets every round trip take that long, by the clock.
    pub fn set_latency(&self, latency: Duration) {
        self.tree().latency = latency;
    }

    /// How often `op` was called on this memory.
    pub fn calls(&self, op: Op, memory: impl AsRef<Path>) -> usize {
        let called = |call: &&(Op, PathBuf)| call.0 == op && call.1 == memory.as_ref();
        self.tree().calls.iter().filter(called).count()
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    fn create(&self, tree: &mut Tree, path: &Path, bytes: Vec<u8>, attributes: &Attributes) {
        tree.inodes += 1;
        let mut inode = Inode {
            bytes,
            file: File {
                stamp: Stamp {
                    size: 0,
                    modified: 0,
                    changed: 0,
                    inode: tree.inodes,
                },
                attributes: attributes.clone(),
                dropped: 0,
            },
            writers: 0,
        };
        inode.touch(self.clock.as_ref());
        let node = Node::File(Arc::new(Mutex::new(inode)));
        tree.nodes.insert(path.to_path_buf(), node);
    }

    /// What comes before every operation: the wait, the hook, the fault.
    fn enter(&self, op: Op, memory: &Path) -> Result<(), TransportError> {
        self.wait();
        self.meet(op, memory)
    }

    /// A round trip.
    fn wait(&self) {
        let latency = self.tree().latency;
        if !latency.is_zero() {
            self.clock.sleep(latency);
        }
    }

    /// The same without the wait, for what goes with others.
    fn meet(&self, op: Op, memory: &Path) -> Result<(), TransportError> {
        // Taken out while it runs, so that it can use this very transport.
        let hook = lock(&self.hook).take();
        if let Some(mut hook) = hook {
            hook(self, op, memory);
            lock(&self.hook).get_or_insert(hook);
        }
        let mut tree = self.tree();
        tree.calls.push((op, memory.to_path_buf()));
        let mine = |fault: &Fault| (fault.op, fault.memory.as_path()) == (op, memory);
        let mut struck = None;
        for fault in tree.faults.iter_mut().filter(|fault| mine(fault)) {
            fault.left = fault.left.map(|left| left.saturating_sub(1));
            if fault.left.is_none_or(|left| left == 0) && struck.is_none() {
                let error = Error::new(Kind::Host, fault.message.clone());
                struck = Some(TransportError::new(fault.cause, error));
            }
        }
        tree.faults.retain(|fault| fault.left != Some(0));
        struck.map_or(Ok(()), Err)
    }
}

impl Tree {
    /// What a file made here looks like: the folder's owner, no execute bits.
    fn inherited(&self, memory: &Path) -> Attributes {
        let folder = memory.parent().and_then(|parent| self.nodes.get(parent));
        match folder {
            Some(Node::Folder(attributes)) => Attributes {
                mode: created_mode(attributes.mode),
                ..attributes.clone()
            },
            _ => Attributes::default(),
        }
    }

    fn object(&self, path: &Path) -> MemoryObject {
        match self.nodes.get(path) {
            None => MemoryObject::Absent,
            Some(Node::Folder(_)) => MemoryObject::Odd(SpecialFile::Directory),
            Some(Node::Odd(odd)) => MemoryObject::Odd(odd.clone()),
            Some(Node::File(inode)) => MemoryObject::File(plain(lock(inode).file.clone())),
        }
    }

    /// Whether the folder of a memory can be opened.
    fn reach(&self, memory: &Path) -> Result<PathBuf, TransportError> {
        let parent = memory.parent().unwrap_or(Path::new(""));
        let through = |path: &&Path| !matches!(self.nodes.get(*path), None | Some(Node::Folder(_)));
        if let Some(path) = parent.ancestors().find(through) {
            let message = format!("{} is not a directory", path.display());
            return Err(refused(message));
        }
        if !self.nodes.contains_key(parent) {
            let message = format!("the directory {} does not exist", parent.display());
            let error = Error::new(Kind::Host, message);
            return Err(TransportError::new(Cause::NoFolder, error));
        }
        Ok(parent.to_path_buf())
    }
}

/// As it is reported where it is not read: without extended attributes.
fn plain(mut file: File) -> File {
    file.attributes.xattrs.clear();
    file
}

fn refused(message: String) -> TransportError {
    TransportError::new(Cause::Refused, Error::new(Kind::Host, message))
}

fn moved(path: &Path) -> TransportError {
    let message = format!("{} was replaced by somebody else meanwhile", path.display());
    TransportError::new(Cause::Moved, Error::new(Kind::Conflict, message))
}

impl Transport for Fake {
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>> {
        self.wait();
        let look = |memory: &&Path| {
            self.meet(Op::Probe, memory)?;
            let tree = self.tree();
            tree.reach(memory)?;
            Ok(tree.object(memory))
        };
        memories.iter().map(look).collect()
    }

    fn open(&self, memory: &Path) -> Result<Box<dyn Folder>, TransportError> {
        self.enter(Op::Open, memory)?;
        Ok(Box::new(FakeFolder {
            fake: self.clone(),
            path: self.tree().reach(memory)?,
            memory: memory.to_path_buf(),
        }))
    }

    fn read(
        &self,
        files: &[(&Path, &File)],
        sink: Pieces<'_>,
    ) -> Vec<Result<File, TransportError>> {
        self.wait();
        self.wait();
        let one = |(number, (memory, _)): (usize, &(&Path, &File))| {
            self.meet(Op::Read, memory)?;
            let node = self.tree().nodes.get(*memory).cloned();
            let Some(Node::File(inode)) = node else {
                return Err(moved(memory));
            };
            read(&inode, &mut |piece| {
                sink(number, piece);
                Ok(())
            })
        };
        files.iter().enumerate().map(one).collect()
    }
}

struct FakeFolder {
    fake: Fake,
    path: PathBuf,
    memory: PathBuf,
}

impl FakeFolder {
    fn enter(&self, op: Op) -> Result<MutexGuard<'_, Tree>, TransportError> {
        self.fake.enter(op, &self.memory)?;
        Ok(self.fake.tree())
    }

    /// The file of the memory, if it is one.
    fn file(&self, tree: &Tree) -> Result<Arc<Mutex<Inode>>, TransportError> {
        match tree.nodes.get(&self.memory) {
            Some(Node::File(inode)) => Ok(Arc::clone(inode)),
            _ => Err(moved(&self.memory)),
        }
    }
}

fn identity(node: &Node) -> Option<Identity> {
    match node {
        Node::File(inode) => Some(Identity {
            device: 0,
            inode: lock(inode).file.stamp.inode,
        }),
        _ => None,
    }
}

/// Hands over the bytes of a file in pieces, as they are when it begins.
fn read(inode: &Mutex<Inode>, sink: Sink<'_>) -> Result<File, TransportError> {
    let (bytes, file) = {
        let inode = lock(inode);
        (inode.bytes.clone(), inode.file.clone())
    };
    bytes.chunks(PIECE).try_for_each(sink)?;
    Ok(file)
}

/// An attribute that goes by its name.
struct Named(Xattr);

impl AsRef<[u8]> for Named {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

impl Folder for FakeFolder {
    fn unsynced(&self) -> Vec<Unsynced> {
        Vec::new()
    }

    fn identity(&self) -> Result<Option<u64>, TransportError> {
        Ok(None)
    }

    fn look(&self) -> Result<MemoryObject, TransportError> {
        Ok(self.enter(Op::Look)?.object(&self.memory))
    }

    fn read(&self, sink: Sink<'_>) -> Result<File, TransportError> {
        let inode = self.file(&*self.enter(Op::Read)?)?;
        let mut file = read(&inode, sink)?;
        let xattrs = std::mem::take(&mut file.attributes.xattrs).into_iter();
        let sizes = xattrs.map(|xattr| {
            let size = xattr.1.len();
            (Named(xattr), size)
        });
        let (kept, dropped) = affordable(sizes.collect());
        file.attributes.xattrs = kept.into_iter().map(|(named, _)| named.0).collect();
        file.dropped = dropped;
        Ok(file)
    }

    fn inherited(&self, _staged: &str) -> Result<Attributes, TransportError> {
        Ok(self.enter(Op::Inherited)?.inherited(&self.memory))
    }

    fn stage(
        &self,
        name: &str,
        content: &mut dyn FnMut(Sink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<Identity, TransportError> {
        drop(self.enter(Op::Stage)?);
        let mut bytes = Vec::new();
        content(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        let path = self.path.join(name);
        let mut tree = self.fake.tree();
        if tree.nodes.contains_key(&path) {
            return Err(refused(format!("{} already exists", path.display())));
        }
        self.fake
            .create(&mut tree, &path, bytes, &attributes.given());
        Ok(Identity {
            device: 0,
            inode: tree.inodes,
        })
    }

    fn link(&self, _staged: &str) -> Result<(), TransportError> {
        Ok(()) // It was made under its name.
    }

    fn remove_unfinished(&self, _name: &str) -> Result<(), TransportError> {
        Ok(()) // Staging is one step here.
    }

    fn swap(&self, staged: &str, wanted: Identity) -> Result<Swapped, TransportError> {
        let mut tree = self.enter(Op::Swap)?;
        let aside = self.path.join(staged);
        let Some(new) = tree.nodes.remove(&aside) else {
            return Err(refused(format!("{} does not exist", aside.display())));
        };
        let is_wanted = identity(&new) == Some(wanted);
        let old = tree.nodes.insert(self.memory.clone(), new);
        let (method, displaced) = match old {
            None => (Method::Create, Vec::new()),
            Some(old) => {
                tree.nodes.insert(aside, old);
                (Method::Exchange, vec![staged.to_string()])
            }
        };
        match is_wanted {
            true => Ok(Swapped { method, displaced }),
            false => Err(moved(&self.memory)),
        }
    }

    fn take_away(&self, aside: &str) -> Result<(), TransportError> {
        let mut tree = self.enter(Op::TakeAway)?;
        let aside = self.path.join(aside);
        if tree.nodes.contains_key(&aside) {
            return Err(refused(format!("{} already exists", aside.display())));
        }
        let Some(old) = tree.nodes.remove(&self.memory) else {
            return Err(moved(&self.memory));
        };
        tree.nodes.insert(aside, old);
        Ok(())
    }

    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(Reader<'_>) -> Result<(), Error>,
    ) -> Result<Settled, TransportError> {
        let path = self.path.join(displaced);
        let node = self.enter(Op::Settle)?.nodes.get(&path).cloned();
        let inode = match node {
            None => return Ok(Settled::Removed { watched: true }),
            Some(Node::Folder(_)) => return Ok(Settled::Kept(SpecialFile::Directory)),
            Some(Node::Odd(odd @ (SpecialFile::Directory | SpecialFile::ForeignLink(_)))) => {
                return Ok(Settled::Kept(odd));
            }
            Some(Node::Odd(odd)) => return Ok(Settled::Odd(odd)),
            Some(Node::File(inode)) => inode,
        };
        let before = {
            let inode = lock(&inode);
            if inode.writers > 0 {
                return Ok(Settled::Open);
            }
            inode.file.stamp
        };
        inspect(&|sink: Sink<'_>| read(&inode, sink))?;
        let mut tree = self.fake.tree();
        let inode = lock(&inode);
        if inode.writers > 0 || inode.file.stamp != before {
            return Ok(Settled::Open);
        }
        tree.nodes.remove(&path);
        Ok(Settled::Removed { watched: true })
    }

    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError> {
        let tree = self.enter(Op::DisplacedNames)?;
        let stands = tree.nodes.contains_key(&self.path.join(staged));
        Ok(stands.then(|| staged.to_string()).into_iter().collect())
    }

    fn half_written(&self, _staged: &str) -> Result<bool, TransportError> {
        Ok(false)
    }

    fn stands(&self, name: &str) -> Result<bool, TransportError> {
        let tree = self.enter(Op::Stands)?;
        Ok(tree.nodes.contains_key(&self.path.join(name)))
    }

    fn holds(&self, name: &str, content: Digest) -> Result<Option<Identity>, TransportError> {
        let tree = self.enter(Op::Holds)?;
        Ok(match tree.nodes.get(&self.path.join(name)) {
            Some(node @ Node::File(inode)) => {
                let same = Digest::of(&lock(inode).bytes) == content;
                same.then(|| identity(node)).flatten()
            }
            _ => None,
        })
    }

    fn remove_odd(&self, name: &str, odd: &SpecialFile) -> Result<bool, TransportError> {
        let path = self.path.join(name);
        let mut tree = self.enter(Op::Remove)?;
        Ok(match tree.object(&path) {
            MemoryObject::Odd(found) if found == *odd => tree.nodes.remove(&path).is_some(),
            found => found == MemoryObject::Absent,
        })
    }

    fn remove(&self, name: &str) -> Result<(), TransportError> {
        self.enter(Op::Remove)?.nodes.remove(&self.path.join(name));
        Ok(())
    }
}
