//! Memories that exist only in this process: for tests, and for load that no
//! disk should see. It keeps the whole contract of [`Transport`], and besides
//! it can be slow, fail at a chosen call, and let an "agent" act in between.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    Attributes, Cause, File, Folder, Method, Object, Odd, Reader, Settled, Sink, Stamp, Swapped,
    Transport, TransportError, Xattr,
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
    Xattrs,
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
    Odd(Odd),
}

struct Inode {
    bytes: Vec<u8>,
    file: File,
    writers: usize,
}

struct Fault {
    op: Op,
    memory: PathBuf,
    /// Calls until it strikes; 0 strikes at every call.
    nth: u32,
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

    /// Puts something odd there; a [`Odd::Symlink`] where a folder should be
    /// makes every path through it a path through a link.
    pub fn put_odd(&self, path: impl AsRef<Path>, odd: Odd) {
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
            nth,
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

    /// Lets every operation take that long, by the clock.
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
            },
            writers: 0,
        };
        inode.touch(self.clock.as_ref());
        let node = Node::File(Arc::new(Mutex::new(inode)));
        tree.nodes.insert(path.to_path_buf(), node);
    }

    /// What comes before every operation: the wait, the hook, the fault.
    fn enter(&self, op: Op, memory: &Path) -> Result<(), TransportError> {
        let latency = self.tree().latency;
        if !latency.is_zero() {
            self.clock.sleep(latency);
        }
        // Taken out while it runs, so that it can use this very transport.
        let hook = lock(&self.hook).take();
        if let Some(mut hook) = hook {
            hook(self, op, memory);
            lock(&self.hook).get_or_insert(hook);
        }
        let mut tree = self.tree();
        tree.calls.push((op, memory.to_path_buf()));
        let mut struck = None;
        tree.faults.retain_mut(|fault| {
            if struck.is_some() || (fault.op, fault.memory.as_path()) != (op, memory) {
                return true;
            }
            if fault.nth <= 1 {
                let error = Error::new(Kind::Host, fault.message.clone());
                struck = Some(TransportError::new(fault.cause, error));
            }
            fault.nth = fault.nth.saturating_sub(1);
            struck.is_none() || fault.nth == 0 && false
        });
        struck.map_or(Ok(()), Err)
    }
}
