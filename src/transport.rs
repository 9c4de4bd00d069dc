//! The transport contract: access to memory files on the local disk and on SFTP hosts. A transport
//! knows files and directories; it does not know baselines, archives or resets.
//!
//! The comments on the traits are obligations. Every implementation passes the same suite,
//! `tests/suite/contract.rs`.

pub mod bounded;
mod connection_status;
mod error;
mod listing;
pub mod local;
mod replacement;
pub mod sftp;
mod xattrs;

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::base::digest::{Digest, Hasher};
pub use crate::base::durable::UnsyncedObject;
use crate::base::error::{Error, ErrorKind};
use crate::base::file_systems::{FileSystem, SpellingDifference};
use crate::config::{SftpExtension, SshHost};
pub use connection_status::{
    ConnectionSetting, ConnectionStatus, HANDLE_LIMIT, Reachability, ServerFeature,
};
pub use error::{FailureCause, TransportError};
pub use listing::{DirectoryEntry, DirectoryListing, MAX_PAGE_ENTRIES};
pub use replacement::{
    DirectoryObstacles, DirectoryProperties, DisplacedObject, Inspector, InstalledMemory,
    InterruptedRun, NewMemory, RecoveredRun, SettleOutcome, StagedAttributes, SwapForecast,
    SwapMethod, SwapOutcome, SwapProgress,
};
pub use xattrs::keep_xattrs_within_limit;

/// Maximum number of names of a directory that are searched for another spelling of one.
pub(crate) const MAX_SEARCHED_NAMES: usize = 100_000;

/// Receives the bytes of a file in order. An error that it returns ends the read and reaches the
/// caller unchanged.
pub type ByteSink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Error>;

/// Reads the current content of a file from beginning to end; may be called again.
pub type FileReader<'a> = &'a dyn Fn(ByteSink<'_>) -> Result<FileMetadata, TransportError>;

/// Access to the memories of one location: the local disk, or one host.
pub trait Transport: Send + Sync {
    /// Returns the object at each path, in the order of the paths, without reading content. An
    /// error on one path does not affect the others. A probe that fails never returns
    /// [`MemoryObject::Absent`]: that is the answer only when the directory exists and lacks the
    /// name.
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>>;

    /// Starts a probe, and calls `when_done` with its outcome: once a host has replied, or is known
    /// not to. Waits for no host and does not connect. `when_done` may run on a thread that serves
    /// other hosts, too, and must not keep it.
    fn start_probe(&self, memories: &[&Path], when_done: OnProbed) {
        let objects = self.probe(memories);
        when_done(Box::new(move || Some(objects)));
    }

    /// Size in bytes of the largest memory that [`MemoryDirectory::read_memory`] reads.
    fn max_memory_bytes(&self) -> u64 {
        local::MAX_FILE_BYTES
    }

    /// Opens the directory of a memory. Every call on the result acts on this directory, even when
    /// the agent replaces its path afterwards. A path that goes through a symlink is refused.
    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError>;

    /// Opens a directory to list it; no call on the result changes anything. A path that goes
    /// through a symlink is refused.
    fn list_directory(&self, directory: &Path)
    -> Result<Box<dyn DirectoryListing>, TransportError>;

    /// Reads several memories, each as [`MemoryDirectory::read_memory`] does; `files` holds what a
    /// recent probe returned. The chunks of one memory arrive in order, those of different memories
    /// interleaved, each with the index of its memory. Returns one result per memory, in order; a
    /// memory that is not the probed file any more is [`FailureCause::Replaced`].
    fn read_batch(
        &self,
        files: &[(&Path, &FileMetadata)],
        sink: BatchSink<'_>,
    ) -> Vec<Result<FileMetadata, TransportError>> {
        let read = |(number, (memory, _)): (usize, &(&Path, &FileMetadata))| {
            let mut take = |piece: &[u8]| {
                sink(number, piece);
                Ok(())
            };
            self.open_directory(memory)?.read_memory(&mut take)
        };
        files.iter().enumerate().map(read).collect()
    }

    /// Returns the file system of this machine that a call about a memory may block on; `None`
    /// where calls have no time limit. Memories on different file systems do not delay each other.
    fn file_system(&self, _memory: &Path) -> Option<Arc<FileSystem>> {
        None
    }

    /// The connection to the host; `None` where the transport needs none.
    fn connection(&self) -> Option<&dyn Connection> {
        None
    }

    /// Returns the absolute path of a configured one on the host; `None` while it is unknown, since
    /// this method sends no request.
    fn absolute_path(&self, _memory: &Path) -> Option<PathBuf> {
        None
    }
}

/// The connection to a host, apart from the files that are reached through it.
pub trait Connection: Send + Sync {
    /// Returns its state without I/O.
    fn status(&self) -> ConnectionStatus;

    /// Starts to connect, unless connected or a pause after a failure is still running, and calls
    /// `when_done` exactly once, as [`Transport::start_probe`] does: when the attempt has succeeded or
    /// failed, asks a question, or the connection is closed.
    fn start_connecting(&self, when_done: OnConnected);

    /// Leaves retries to the caller of [`Connection::start_connecting`] from now on: all others get
    /// the error of a failed host at once.
    fn retry_in_background(&self);

    /// Ends a pause: the next [`Connection::start_connecting`] tries at once.
    fn retry_now(&self);

    /// Returns the effective settings of the connection, by name. Runs a program (`ssh -G`).
    ///
    /// # Errors
    /// The reason why the settings are unknown.
    fn settings(&self) -> Result<Vec<ConnectionSetting>, TransportError>;
}

/// Determines the outcome of a probe from the replies; none if that needs further requests, and so a
/// [`Transport::probe`].
pub type ProbeOutcome =
    Box<dyn FnOnce() -> Option<Vec<Result<MemoryObject, TransportError>>> + Send>;

/// Receives the outcome of a probe.
pub type OnProbed = Box<dyn FnOnce(ProbeOutcome) + Send>;

/// Learns that an attempt to connect has a result.
pub type OnConnected = Box<dyn FnOnce() + Send>;

/// Receives chunks of several memories, each with the index of its memory.
pub type BatchSink<'a> = &'a mut dyn FnMut(usize, &[u8]);

/// The transports to this machine's disks and to hosts.
pub trait Transports: Send + Sync {
    /// Returns the transport to a host, or, for `None`, to this machine's own disks. It connects on
    /// first use; all callers for one host share its session.
    fn transport_for(&self, host: Option<&SshHost>) -> Arc<dyn Transport>;

    /// Closes the connections to all hosts except these, which may be closed already.
    fn close_others(&self, _kept: &[&SshHost]) {}

    /// Closes all connections and ends their processes, even while callers wait for a reply. No
    /// connection opens afterwards.
    fn close_all(&self) {}
}

/// The same transport for every host.
pub struct SingleTransport(pub Arc<dyn Transport>);

impl Transports for SingleTransport {
    fn transport_for(&self, _: Option<&SshHost>) -> Arc<dyn Transport> {
        Arc::clone(&self.0)
    }
}

/// The directory of one memory, held open.
///
/// A run replaces the memory in three steps: [`MemoryDirectory::stage`] creates the new file,
/// [`MemoryDirectory::commit`] puts it in the memory's place, which displaces the object that is
/// really there, and [`MemoryDirectory::settle`] removes a displaced object once it is archived.
/// [`MemoryDirectory::recover`] finishes or reverts what an interrupted run left.
///
/// A run has a random name (`durable::new_random_name`), which its journal records first. Where
/// and under which names the transport keeps the run's files follows from that name. Names of
/// displaced objects are of the transport's own making; callers journal them as they are.
///
/// Changes by these four are durable once the caller has synced everything that
/// [`MemoryDirectory::take_unsynced`] then returns: syncing many directories together costs little
/// more than one.
pub trait MemoryDirectory: Send {
    /// Keeps `guard`, the agent's lock, until no call that failed as [`FailureCause::Unreachable`]
    /// on this directory can change anything any more.
    fn hold_guard(&self, _guard: Arc<dyn Any + Send + Sync>) {}

    /// Tries to lock the directory against other runs of this program, until this value is dropped. True
    /// also where it cannot be locked: on hosts, and on file systems without such locks.
    fn try_lock(&self) -> Result<bool, TransportError> {
        Ok(true)
    }

    /// Returns what was changed since the last call, through this directory or by any process
    /// before it was opened, and may not be on the disk yet. Empty where each change is on the disk
    /// when its method returns.
    fn take_unsynced(&self) -> Vec<UnsyncedObject>;

    /// Returns what a replacement in this directory relies on.
    fn properties(&self) -> Result<DirectoryProperties, TransportError>;

    /// Returns what keeps this process from replacing the memory, as far as the transport can know.
    fn obstacles(&self) -> Result<DirectoryObstacles, TransportError> {
        Ok(DirectoryObstacles::default())
    }

    /// Returns the stamp of the directory itself, on this machine.
    fn stamp(&self) -> Option<Stamp> {
        None
    }

    /// Whether the directory is still at its path: it may have been moved, replaced or covered by a mount,
    /// and then the memory at the path is another one. Local directories only; others return true.
    fn is_at_its_path(&self) -> Result<bool, TransportError> {
        Ok(true)
    }

    /// Returns the object at the memory's name, without following links.
    fn stat_memory(&self) -> Result<MemoryObject, TransportError>;

    /// Returns a file beside an absent memory whose name is the memory's but for its spelling
    /// ([`SpellingDifference`]), the first one by its bytes.
    /// `None` also where the directory cannot be listed, or has more than 100,000 names.
    fn find_similar_name(&self) -> Option<OsString> {
        None
    }

    /// Reads the memory to its end, whatever size it claims, and returns its metadata; the stamp is
    /// the one after the last byte. A file that grows as fast as it is read is cut off at twice its
    /// first size or 64 MiB beyond it, whichever is more; settling the displaced file finds the
    /// rest. Refuses a file that claims more than 16 GiB, and everything that is not a
    /// [`MemoryObject::File`]; never blocks on a FIFO. The result has the extended attributes, up
    /// to 64 KiB of names and values: beyond it the largest of the agent's own (`user.*`) are left
    /// out.
    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError>;

    /// Returns the metadata of a memory that a lease keeps from being opened.
    /// [`MemoryDirectory::stat_memory`] has returned a file. One that
    /// [`MemoryDirectory::read_memory`] would refuse is [`FailureCause::Replaced`], since the
    /// caller gives these attributes to another file.
    fn stat_leased_memory(&self) -> Result<FileMetadata, TransportError> {
        match self.stat_memory()? {
            MemoryObject::File(file) => Ok(file),
            _ => {
                let error = Error::new(
                    ErrorKind::Conflict,
                    "the memory was replaced by another process",
                );
                Err(TransportError::new(FailureCause::Replaced, error))
            }
        }
    }

    /// Returns whether the memory begins with `size` bytes of this content. Reads the file again:
    /// an agent may already have written below them.
    fn memory_begins_with(&self, content: Digest, size: u64) -> Result<bool, TransportError> {
        compare_memory_prefix(self, content, size)
    }

    /// Returns an id that no other object at `name`, a name beside the memory, ever has; `None`
    /// where the id is unknown or no object is at `name`.
    fn object_id(&self, _name: &str) -> Result<Option<ObjectId>, TransportError> {
        Ok(None)
    }

    /// Claims the run's name in this directory, before anything is staged or committed under it. Once
    /// this returns, a process that takes over from the run can take the name away from it: what the
    /// run still requests under that name then fails, however late the host executes it. On this
    /// machine nothing is late, and there is nothing to claim. An error may leave the claim.
    fn claim(&self, _run: &str) -> Result<(), TransportError> {
        Ok(())
    }

    /// Creates the new file of a claimed run with exactly this content and these attributes (as far as
    /// [`Attributes::for_new_file`] keeps them). Nothing that has the run's name before is
    /// overwritten. An error leaves nothing, unless the host did not reply. A directory holds one
    /// staged file. Returns the server extensions that are missing, as
    /// [`DirectoryProperties::missing_extensions`]: some limits of a file system show only once it
    /// holds a file.
    fn stage(
        &self,
        run: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: StagedAttributes,
    ) -> Result<Vec<SftpExtension>, TransportError>;

    /// Gives the staged file the run's name, which agents can see. Transports whose staged files have
    /// that name from the start do nothing. [`MemoryDirectory::commit`] does it as well: only a run
    /// that commits several files calls this, so that recovery finds those that it did not commit.
    fn name_staged(&self, _run: &str) -> Result<(), TransportError> {
        Ok(())
    }

    /// Creates a directory at the memory's name, with the owner and the rights of the directory that
    /// it is in. Returns whether it did: false where a directory is there already.
    fn create_directory(&self) -> Result<bool, TransportError>;

    /// Removes the directory at the memory's name. Returns whether it is gone: false where it is not
    /// empty, or no directory.
    fn remove_directory(&self) -> Result<bool, TransportError>;

    /// Puts something else in the memory's place; a staged file is on the disk by then. The object
    /// that was there at that instant is not overwritten: it has a name of the run afterwards, also
    /// on an error. At every instant the memory is wholly the old or wholly the new one; where the
    /// file system cannot exchange, it is absent for microseconds, and the result is
    /// [`SwapMethod::TakeAway`]. On success the object at the memory's name is the new one, or has
    /// its content. If an agent replaces it in between, or put an object of its own at a name of
    /// the run before, this fails with [`FailureCause::Replaced`] and loses nothing.
    fn commit(&self, run: &str, new: NewMemory) -> Result<SwapOutcome, TransportError>;

    /// Settles a displaced object: hands it to `inspect`, then removes it, without losing a byte.
    /// An object that could not be inspected is never removed. One that a writer has open, or that
    /// changed in between, is left alone: [`SettleOutcome::StillOpen`]. If a process opens a file
    /// in the instant of its removal, this waits for that process and calls `inspect` once more;
    /// where that does not suffice, the result is [`SettleOutcome::Lost`], which is not a success.
    /// After an error the object still exists.
    fn settle(
        &self,
        displaced: &str,
        inspect: Inspector<'_>,
    ) -> Result<SettleOutcome, TransportError>;

    /// Returns when settling the displaced files again can succeed; `None` for any time.
    fn next_settle_time(&self) -> Option<Instant> {
        None
    }

    /// Returns the present name of a displaced object, for display: recovery may have moved it.
    fn display_name(&self, displaced: &str) -> String {
        displaced.to_string()
    }

    /// Determines from the files in the directory how far an interrupted run came, finishes a swap
    /// that it began or restores the memory's name, and removes what is left of staging. Requests
    /// of that run that the host has not yet executed have no effect afterwards. What the run
    /// displaced stays and is to be settled. `None` where this is not the directory of the run.
    fn recover(&self, run: &InterruptedRun) -> Result<Option<RecoveredRun>, TransportError>;

    /// Whether a file of the run of this name is beside the memory.
    fn has_files_of_run(&self, run: &str) -> Result<bool, TransportError>;
}

/// Returns the mode of a memory that is created in a directory of this mode: never world-writable,
/// and group-writable only where the directory lets group members replace each other's files, since
/// agents work through their group.
pub fn new_memory_mode(directory: u32) -> u32 {
    let is_sticky = directory & 0o1000 != 0;
    let group = if is_sticky { 0o040 } else { 0o060 };
    directory & (0o604 | group) | 0o600
}

/// Returns which of these names are the memory's but for their spelling, in the order of their bytes.
pub(crate) fn similar_names(
    memory: &OsStr,
    names: impl Iterator<Item = OsString>,
) -> Vec<OsString> {
    let is_similar = |name: &OsString| SpellingDifference::between(memory, name).is_some();
    let mut similar: Vec<OsString> = names.filter(is_similar).collect();
    similar.sort();
    similar
}

/// Implements [`MemoryDirectory::memory_begins_with`] by reading the memory.
pub(crate) fn compare_memory_prefix<F: MemoryDirectory + ?Sized>(
    directory: &F,
    content: Digest,
    size: u64,
) -> Result<bool, TransportError> {
    if !matches!(directory.stat_memory()?, MemoryObject::File(_)) {
        return Ok(false);
    }
    let (mut hasher, mut left) = (Hasher::default(), size);
    let read = directory.read_memory(&mut |bytes| {
        let count = left.min(bytes.len() as u64);
        hasher.update(&bytes[..count as usize]);
        left -= count;
        Ok(())
    });
    match read {
        Ok(_) => Ok(left == 0 && hasher.finish() == content),
        Err(error) if error.cause == FailureCause::Replaced => Ok(false),
        Err(error) => Err(error),
    }
}

/// The object at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryObject {
    /// No object, in a directory that exists and could be searched.
    Absent,
    /// A regular file that may be read.
    File(FileMetadata),
    /// An object that is never read: it is described and displaced.
    Special(SpecialFile),
}

/// The metadata of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMetadata {
    /// Stamp for cheap comparison.
    pub stamp: Stamp,
    /// Owner and mode; extended attributes only where the file was read.
    pub attributes: Attributes,
    /// Lower bound of the number of extended attributes that were left out.
    pub dropped_xattrs: u64,
}

/// Distinguishes two states of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub modified: i64,
    /// Time of the last change of the inode, in nanoseconds since 1970; 0 where unknown.
    pub changed: i64,
    /// Inode number; 0 where there is none.
    pub inode: u64,
}

impl Stamp {
    /// Returns the stamp in a local stat result.
    pub(crate) fn from_stat(stat: &rustix::fs::Stat) -> Stamp {
        let nanoseconds = |seconds: i64, rest: u64| {
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(rest as i64)
        };
        Stamp {
            size: stat.st_size as u64,
            modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            inode: stat.st_ino,
        }
    }
}

/// Identifies an object on its file system, also after a reboot, when device numbers may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectId {
    /// Inode number; a later object may reuse it.
    pub inode: u64,
    /// Creation time in nanoseconds since 1970, which no process can set; `None` where the file
    /// system does not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<i64>,
}

/// An extended attribute: name and value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Owner, permissions and extended attributes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Extended attributes, including access control lists and security labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "xattrs::json")]
    pub xattrs: Vec<Xattr>,
}

/// The extended attribute that gives a program capabilities of root.
const CAPABILITY_XATTR: &[u8] = b"security.capability";

impl Attributes {
    /// Returns the attributes for a new file: without set-user, set-group and sticky bits and
    /// without file capabilities. Notes need none, and on bytes that an agent chose they would give
    /// that agent the rights of the owner.
    #[must_use]
    pub fn for_new_file(&self) -> Attributes {
        let xattrs = self.xattrs.iter();
        Attributes {
            mode: self.mode & 0o777,
            xattrs: xattrs
                .filter(|it| it.0 != CAPABILITY_XATTR)
                .cloned()
                .collect(),
            ..*self
        }
    }
}

/// The extended attributes that are access lists.
const ACL_XATTRS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.nfs4_acl"];

impl Attributes {
    /// Whether every user may read the file.
    pub fn is_readable_by_all(&self) -> bool {
        self.mode & 0o004 != 0
    }

    /// Returns these attributes with the rights that another file of the same owner gives, too; none for
    /// one of another owner. Where the access lists differ, only the owner has rights.
    pub fn common_rights(&self, other: &Attributes) -> Option<Attributes> {
        let is_acl = |it: &&Xattr| ACL_XATTRS.contains(&it.0.as_slice());
        let acls = |of: &Attributes| of.xattrs.iter().filter(is_acl).cloned().collect::<Vec<_>>();
        if (self.uid, self.gid) != (other.uid, other.gid) {
            return None;
        }
        if acls(self) == acls(other) {
            return Some(Attributes {
                mode: self.mode & other.mode,
                ..self.clone()
            });
        }
        let xattrs = self.xattrs.iter().filter(|it| !is_acl(it));
        Some(Attributes {
            mode: self.mode & other.mode & 0o700,
            xattrs: xattrs.cloned().collect(),
            ..*self
        })
    }
}

/// An object at a memory's name that is not a readable file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecialFile {
    /// A symlink, with its target.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
    /// A FIFO.
    Fifo,
    /// A character or block device.
    Device,
    /// A socket.
    Socket,
    /// A file with several names, owned by the user with this id: another user may have created
    /// this name.
    #[serde(rename = "foreign_link")]
    ForeignHardLink(u32),
    /// A file that another process's lease keeps from being opened.
    Leased,
}

impl SpecialFile {
    /// Describes the object found in place of a memory and what a reset does with it; `is_local` if
    /// the memory is on this machine. The target of a symlink is included raw: the output layer
    /// makes it visible.
    pub fn describe_in_place_of_memory(&self, is_local: bool) -> String {
        let reset_effect = match self {
            SpecialFile::Directory | SpecialFile::ForeignHardLink(_) => {
                "keeps it beside the memory"
            }
            SpecialFile::Leased => "archives it when the lease ends",
            SpecialFile::Symlink(_) if is_local => "removes it, and an undo puts it back",
            SpecialFile::Symlink(_)
            | SpecialFile::Fifo
            | SpecialFile::Device
            | SpecialFile::Socket => "describes and removes it, which cannot be undone",
        };
        format!("it is {self}; a reset {reset_effect}")
    }

    /// Whether a reset removes the object, so that at most its description is left.
    pub fn is_removed_by_reset(&self) -> bool {
        match self {
            SpecialFile::Symlink(_)
            | SpecialFile::Fifo
            | SpecialFile::Device
            | SpecialFile::Socket => true,
            SpecialFile::Directory | SpecialFile::ForeignHardLink(_) | SpecialFile::Leased => false,
        }
    }

    /// Whether a run displaces the object only where an earlier record has a file: otherwise the path in
    /// the config is a mistake.
    pub fn needs_file_record(&self) -> bool {
        *self == SpecialFile::Directory || self.is_removed_by_reset()
    }
}

impl fmt::Display for SpecialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecialFile::Symlink(target) => {
                write!(f, "a symlink to {}", String::from_utf8_lossy(target))
            }
            SpecialFile::Directory => f.write_str("a directory"),
            SpecialFile::Fifo => f.write_str("a FIFO"),
            SpecialFile::Device => f.write_str("a device"),
            SpecialFile::Socket => f.write_str("a socket"),
            SpecialFile::ForeignHardLink(uid) => write!(f, "a hard link to a file of user {uid}"),
            SpecialFile::Leased => f.write_str("a file leased by another process"),
        }
    }
}
