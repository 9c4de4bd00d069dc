//! The transport contract: access to memory files on the local disk and on SFTP hosts. A transport
//! knows files and directories; it does not know baselines, archives or resets.
//!
//! The comments on the traits are obligations. Every implementation passes the same suite,
//! `tests/suite/contract.rs`.

pub mod bounded;
mod connection_status;
pub mod fake;
pub mod local;
pub mod sftp;
mod xattrs;

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::config::{SftpExtension, SshHost};
use crate::digest::{Digest, Hasher};
pub use crate::durable::UnsyncedObject;
use crate::error::{Error, ErrorKind};
use crate::file_systems::FileSystem;
pub use connection_status::{
    ConnectionSetting, ConnectionStatus, HANDLE_LIMIT, Reachability, ServerFeature,
};

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

    /// Opens the directory of a memory. Every call on the result acts on this directory, even when
    /// the agent replaces its path afterwards. A path that goes through a symlink is refused.
    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError>;

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

    /// Returns the state of the connection without I/O; `None` where the transport needs no
    /// connection.
    fn connection_status(&self) -> Option<ConnectionStatus> {
        None
    }

    /// Returns the absolute path of a configured one on the host; `None` while it is unknown, since
    /// this method sends no request.
    fn absolute_path(&self, _memory: &Path) -> Option<PathBuf> {
        None
    }

    /// Connects if there is no connection, unless a pause after a failure is still running. The
    /// background retry calls this; after its first call, other callers do not retry a failed host
    /// but get its error at once.
    ///
    /// # Errors
    /// The reason why there is no connection.
    fn ensure_connected(&self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Ends a pause: the next [`Transport::ensure_connected`] tries at once.
    fn retry_now(&self) {}

    /// Returns the effective settings of the connection, by name. Runs a program (`ssh -G`).
    ///
    /// # Errors
    /// The reason why the settings are unknown.
    fn connection_settings(&self) -> Result<Vec<ConnectionSetting>, TransportError> {
        Ok(Vec::new())
    }
}

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

/// The directory of one memory, held open. Names are relative to it, and those that callers pass
/// never contain a slash; `memory` below is the name of the memory file.
///
/// Changes by `stage`, `link_staged`, `swap`, `move_memory_aside`, `settle` and the removing
/// methods are durable once the caller has synced everything that
/// [`MemoryDirectory::take_unsynced`] then returns: syncing many directories together costs little
/// more than one.
pub trait MemoryDirectory: Send {
    /// Keeps `guard`, the agent's lock, until no call that failed as [`FailureCause::Unreachable`]
    /// on this directory can change anything any more.
    fn hold_guard(&self, _guard: Arc<dyn Any + Send + Sync>) {}

    /// Returns what was changed since the last call, through this directory or by any process
    /// before it was opened, and may not be on the disk yet. Empty where each change is on the disk
    /// when its method returns.
    fn take_unsynced(&self) -> Vec<UnsyncedObject>;

    /// Returns a number that distinguishes the directory from another one at the same path, also
    /// after a reboot, which a device number does not; `None` where the file system has no such
    /// number.
    fn directory_id(&self) -> Result<Option<u64>, TransportError>;

    /// Returns the object at the memory's name, without following links.
    fn stat_memory(&self) -> Result<MemoryObject, TransportError>;

    /// Returns what a [`MemoryDirectory::swap`] would meet, as far as that is known without trying.
    /// For display in plans only: it guarantees nothing.
    fn forecast_swap(&self) -> SwapForecast {
        SwapForecast::Clear
    }

    /// Returns the server extensions that a swap relies on and that are missing. Each one weakens a
    /// guarantee, so nothing may be changed here unless the operator accepts it.
    fn missing_extensions(&self) -> Vec<SftpExtension> {
        Vec::new()
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

    /// Returns the attributes for a memory that is created here, such that the agent can write it:
    /// the directory's owner and group, read permissions as on the directory, and the extended
    /// attributes that every new file in it gets. Determining them may create a file;
    /// [`MemoryDirectory::remove_unfinished_staging`] of `staged` removes what a crash leaves of
    /// it.
    fn inherited_attributes(&self, staged: &str) -> Result<Attributes, TransportError>;

    /// Creates a file with exactly this content and these attributes (as far as
    /// [`Attributes::for_new_file`] keeps them) for `name`, which must be free. The name need not
    /// exist before [`MemoryDirectory::link_staged`]. On an error, `name` stays free. The returned
    /// identity distinguishes the new file from anything that an agent puts at `name` afterwards. A
    /// directory holds one file that is staged and not linked.
    fn stage(
        &self,
        name: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<FileIdentity, TransportError>;

    /// Gives the staged file, which is on the disk, its name, if it has none yet. Agents see it
    /// from then on, so the caller calls [`MemoryDirectory::swap`] next.
    fn link_staged(&self, staged: &str) -> Result<(), TransportError>;

    /// Returns the name of the staged file before its swap. On a host it is inside a directory
    /// beside the memory, which is called `staged`.
    fn staged_file_name(&self, staged: &str) -> String {
        staged.to_string()
    }

    /// Returns the name to display for one of our names beside the memory: a run that was taken
    /// over has a renamed directory.
    fn display_name(&self, name: &str) -> String {
        name.to_string()
    }

    /// Gives the displaced file the memory's name again, if that name is free. Does nothing where
    /// an exchange leaves no such gap.
    fn restore_memory_name(&self, _displaced: &str) -> Result<(), TransportError> {
        Ok(())
    }

    /// Prepares recovery of a run that another process began: requests of that process that the
    /// host has not yet executed have no effect afterwards. Renames the run directory to the last
    /// of `names`, which the other process does not know; the names before it are of earlier
    /// attempts, oldest first. The caller still calls the directory `staged`.
    fn take_over_run(&self, _staged: &str, _names: &[String]) -> Result<(), TransportError> {
        Ok(())
    }

    /// Removes what a crash while staging `name` may have left beside it. Succeeds if there is
    /// nothing.
    fn remove_unfinished_staging(&self, name: &str) -> Result<(), TransportError>;

    /// Puts the linked file in the memory's place. The object that was there at that instant is not
    /// overwritten: it is under one of the names of [`MemoryDirectory::displaced_names`]
    /// afterwards, also on an error. At every instant the memory is wholly the old or wholly the
    /// new file; where the file system cannot exchange, it is absent for microseconds, and the
    /// result is [`SwapMethod::TakeAway`]. A memory that is a mount point cannot be replaced:
    /// [`FailureCause::MountPoint`]. On success the object at the memory's name is the staged file
    /// `new`, or has its content. If an agent replaces it during the swap, or put a file of its own
    /// at the staged name before, this fails with [`FailureCause::Replaced`] and loses nothing.
    fn swap(&self, staged: &str, new: FileIdentity) -> Result<SwapOutcome, TransportError>;

    /// Returns an id that no other object at `name` ever has; `None` where the id is unknown or no
    /// object is at `name`.
    fn object_id(&self, _name: &str) -> Result<Option<ObjectId>, TransportError> {
        Ok(None)
    }

    /// Gives the object at `kept`, which a swap displaced, the memory's name again. The current
    /// memory takes the place of the object, as [`MemoryDirectory::swap`] describes for a staged
    /// file. Supported on this machine only. If `id` is given and another object is at `kept`,
    /// fails with [`FailureCause::Replaced`].
    fn restore_object(
        &self,
        kept: &str,
        _id: Option<ObjectId>,
    ) -> Result<SwapOutcome, TransportError> {
        let message = format!("{kept} can only be restored by hand");
        let error = Error::new(ErrorKind::Conflict, message);
        Err(TransportError::new(FailureCause::CallerFailed, error))
    }

    /// Writes the linked file's content over a memory that is a mount point, while no other process
    /// has it open. A crash can leave it half written. Fails with [`FailureCause::HalfWritten`]
    /// where the memory could be neither written nor restored, or where another process may have
    /// written to it in between; a copy of its earlier content is then beside it.
    fn write_in_place(
        &self,
        _staged: &str,
        _new: FileIdentity,
    ) -> Result<SwapOutcome, TransportError> {
        let error = Error::new(
            ErrorKind::Internal,
            "the memory is not a mount point of this machine",
        );
        Err(TransportError::new(FailureCause::Refused, error))
    }

    /// Renames the memory to [`MemoryDirectory::staged_file_name`] of `staged`, which must be free.
    /// There is no memory afterwards.
    fn move_memory_aside(&self, staged: &str) -> Result<(), TransportError>;

    /// Settles a displaced file: hands its content to `inspect`, with a reader of the whole file,
    /// then removes it, without losing a byte. A file that holds bytes and could not be inspected
    /// is never removed. A file that a writer has open, or that changed in between, is left alone:
    /// [`SettleOutcome::StillOpen`]. If a process opens it in the instant of its removal, this
    /// waits for that process and calls `inspect` once more; where that does not suffice, the
    /// result is [`SettleOutcome::Lost`], which is not a success. After an error the file still
    /// exists.
    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(FileReader<'_>) -> Result<(), Error>,
    ) -> Result<SettleOutcome, TransportError>;

    /// Removes an object without bytes if it is still the same one. Returns false where another
    /// object is at `name`, which stays.
    fn remove_special_file(&self, name: &str, odd: &SpecialFile) -> Result<bool, TransportError>;

    /// Returns why writers cannot be detected in this directory, whatever the rights of this
    /// process; `None` where detection depends on the rights alone.
    fn undetectable_writers_reason(&self) -> Option<String> {
        None
    }

    /// Returns when settling the displaced files again can succeed; `None` for any time.
    fn next_settle_time(&self) -> Option<Instant> {
        None
    }

    /// Returns which of the names that a swap of `staged` may have displaced something to exist,
    /// the staged file's name first.
    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError>;

    /// Returns whether a swap of `staged` that writes in place may have been cut short. Another
    /// swap repairs that.
    fn is_half_written(&self, staged: &str) -> Result<bool, TransportError>;

    /// Returns whether any object is at `name`.
    fn exists(&self, name: &str) -> Result<bool, TransportError>;

    /// Returns the identity of the regular file at `name`, if it has exactly this content.
    fn find_content(
        &self,
        name: &str,
        content: Digest,
    ) -> Result<Option<FileIdentity>, TransportError>;

    /// Removes one of our own names. Succeeds if it is absent.
    fn remove_name(&self, name: &str) -> Result<(), TransportError>;
}

/// Returns the mode of a memory that is created in a directory of this mode: never world-writable,
/// and group-writable only where the directory lets group members replace each other's files, since
/// agents work through their group.
fn new_memory_mode(directory: u32) -> u32 {
    let is_sticky = directory & 0o1000 != 0;
    let group = if is_sticky { 0o040 } else { 0o060 };
    directory & (0o604 | group) | 0o600
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

/// Identifies a file independently of its names. Valid while the [`MemoryDirectory`] that returned
/// it is open, and until its next `swap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number of the file system; 0 where there is none.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
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
    /// Describes the object found in place of a memory and what a reset does with it. The target of
    /// a symlink is included raw: the output layer makes it visible.
    pub fn describe_in_place_of_memory(&self) -> String {
        let reset_effect = match self {
            SpecialFile::Directory | SpecialFile::ForeignHardLink(_) => {
                "keeps it beside the memory"
            }
            SpecialFile::Leased => "archives it when the lease ends",
            _ => "describes and removes it",
        };
        format!("it is {self}; a reset {reset_effect}")
    }
}

impl fmt::Display for SpecialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecialFile::Symlink(target) => {
                write!(f, "a symbolic link to {}", String::from_utf8_lossy(target))
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

/// What a swap would meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapForecast {
    /// No known obstacle.
    Clear,
    /// The memory is a mount point: [`SwapMethod::InPlace`].
    InPlace,
    /// The swap would fail, for this reason; its hint names the command that helps.
    Refused(Error),
}

/// How a memory was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapMethod {
    /// There was no memory before.
    Create,
    /// An exchange: new and old file changed places in one step.
    Exchange,
    /// The old file was renamed away, then the new one was linked in its place.
    TakeAway,
    /// The old file was renamed away and not replaced.
    Remove,
    /// The old content was copied aside and overwritten in place, since a mount point cannot be
    /// replaced.
    InPlace,
}

/// The result of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapOutcome {
    /// How the memory was replaced.
    pub method: SwapMethod,
    /// Names of the displaced objects; empty if there was none.
    pub displaced: Vec<String>,
}

/// The result of settling a displaced file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// Inspected and removed.
    Removed {
        /// Whether a late writer would have been detected.
        was_watched: bool,
    },
    /// A writer still has it open; settle it again later.
    StillOpen,
    /// It was removed, but bytes written in the instant of the removal may be lost; the error says
    /// why.
    Lost(Error),
    /// It still exists and is never read: a symlink, FIFO, socket or device, which holds no bytes
    /// except the target of the link. The caller describes it and then calls
    /// [`MemoryDirectory::remove_special_file`].
    Special(SpecialFile),
    /// It stays under its name, because no archive entry holds its content: a directory, or a file
    /// that must not be read.
    Kept(SpecialFile),
}

/// The cause of a transport failure, as far as the engine acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The directory of the memory does not exist.
    NoDirectory,
    /// The operation was refused: permission, a read-only file system, a full disk or an I/O error.
    Refused,
    /// The agent replaced the object during the operation; try again.
    Replaced,
    /// Another process's lease keeps the file from being opened. A well-behaved holder releases it
    /// at once.
    Leased,
    /// The memory is a mount point, which no rename can replace.
    MountPoint,
    /// A memory that is written in place is half written or perhaps not on the disk, or another
    /// process's write to it may have been overwritten. The next run uses the copy and the new file
    /// beside it; retrying now would meet the same failure.
    HalfWritten,
    /// The host, or the file system, did not reply.
    Unreachable,
    /// The host shows another key than the known one, or a revoked key; nothing was read or sent.
    HostKeyMismatch,
    /// The caller's own sink failed.
    CallerFailed,
}

/// A transport error: a cause for the engine and a message for people.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportError {
    /// The cause on which the engine acts.
    pub cause: FailureCause,
    error: Error,
}

impl TransportError {
    /// Creates an error with its cause.
    pub fn new(cause: FailureCause, error: Error) -> TransportError {
        TransportError { cause, error }
    }

    /// Returns the same error with a further hint.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> TransportError {
        TransportError {
            error: self.error.with_hint(hint),
            ..self
        }
    }

    /// Returns whether the message is the same.
    pub fn has_same_message(&self, error: &Error) -> bool {
        self.error.message() == error.message()
    }

    /// Returns what the operator can do, in the order in which the hints were added.
    pub fn hints(&self) -> &[String] {
        self.error.hints()
    }

    /// Returns the kind, which decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self.cause {
            FailureCause::CallerFailed => self.error.kind(),
            FailureCause::Replaced | FailureCause::MountPoint => ErrorKind::Conflict,
            FailureCause::HostKeyMismatch => ErrorKind::Integrity,
            _ => ErrorKind::Host,
        }
    }
}

impl From<Error> for TransportError {
    fn from(error: Error) -> TransportError {
        TransportError::new(FailureCause::CallerFailed, error)
    }
}

impl From<TransportError> for Error {
    fn from(error: TransportError) -> Error {
        let kind = error.kind();
        error.error.with_kind(kind)
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}
