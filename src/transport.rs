//! Where memories live. A transport knows files and directories and nothing of
//! baselines, archives or resets.
//!
//! The comments on the traits are obligations. Every implementation passes one
//! suite, `tests/suite/contract.rs`.

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
pub use connection_status::{ConnectionSetting, ConnectionStatus, Reachability, ServerFeature};

/// Receives the bytes of a file in order. An error it returns ends the read and
/// comes back unchanged.
pub type ByteSink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Error>;

/// Reads a file from its beginning to its end as it is now; may be called
/// again.
pub type FileReader<'a> = &'a dyn Fn(ByteSink<'_>) -> Result<FileMetadata, TransportError>;

/// A place where memories live: the local disk, or a host.
pub trait Transport: Send + Sync {
    /// Looks at many memories at once, cheaply: no content is read. One answer
    /// for each path, in order; one path's trouble is not another's. A probe
    /// that fails is never reported as [`MemoryObject::Absent`]: that is the answer
    /// only when the directory exists and lacks the name.
    fn probe(&self, memories: &[&Path]) -> Vec<Result<MemoryObject, TransportError>>;

    /// Opens the directory of a memory. Everything that is done through the answer
    /// happens in this very directory, whatever is swapped into its path
    /// afterwards. A path that goes through a symbolic link is refused.
    fn open_directory(&self, memory: &Path) -> Result<Box<dyn MemoryDirectory>, TransportError>;

    /// Reads many memories together, each as [`MemoryDirectory::read_memory`] does; a probe said a
    /// moment ago what they are. The pieces of one come in order, those of several
    /// mixed, each with the number of its memory. One answer for each, in order;
    /// one that is no such file any more is [`FailureCause::Replaced`].
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

    /// The file system of this machine that a call about a memory may wait for; none
    /// where calls are not bounded. Memories with another answer do not wait for it.
    fn file_system(&self, _memory: &Path) -> Option<Arc<FileSystem>> {
        None
    }

    /// How the way there stands, without asking anybody; none where there is no
    /// way that could be cut.
    fn connection_status(&self) -> Option<ConnectionStatus> {
        None
    }

    /// The absolute path that a configured one stands for there; none where nobody
    /// knows yet, for nobody is asked.
    fn absolute_path(&self, _memory: &Path) -> Option<PathBuf> {
        None
    }

    /// Connects if that is not done, unless a pause after a failure is not over:
    /// for the one who watches this host. From the first call on nobody else tries
    /// a host that did not answer; they are told why at once.
    ///
    /// # Errors
    /// Why there is no connection.
    fn ensure_connected(&self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Ends a pause: the next [`Transport::ensure_connected`] tries at once.
    fn retry_now(&self) {}

    /// What the setup of the way there comes to, name by name. Runs a program.
    ///
    /// # Errors
    /// Why that is not known.
    fn connection_settings(&self) -> Result<Vec<ConnectionSetting>, TransportError> {
        Ok(Vec::new())
    }
}

/// Receives pieces of several memories, by their number.
pub type BatchSink<'a> = &'a mut dyn FnMut(usize, &[u8]);

/// The way to this machine's disks and to hosts.
pub trait Transports: Send + Sync {
    /// The transport to a host, or, for none, to this machine's own disks. It
    /// connects when it is used; whoever asks for the same host shares a session.
    fn transport_for(&self, host: Option<&SshHost>) -> Arc<dyn Transport>;

    /// Ends the connections to all hosts but these, which may have been left before.
    fn close_others(&self, _kept: &[&SshHost]) {}

    /// Ends all connections, and the processes that carry them, whether or not
    /// somebody still waits for an answer. There are none afterwards.
    fn close_all(&self) {}
}

/// One transport for everything.
pub struct SingleTransport(pub Arc<dyn Transport>);

impl Transports for SingleTransport {
    fn transport_for(&self, _: Option<&SshHost>) -> Arc<dyn Transport> {
        Arc::clone(&self.0)
    }
}

/// The directory of one memory, held open. Names are relative to it. Those of
/// callers never contain a slash; `memory` below is the name of the memory file.
///
/// What `stage`, `link`, `swap`, `take_away`, `settle` and `remove` did is on the disk
/// once everything that [`MemoryDirectory::take_unsynced`] then answers was synced, which is
/// for the caller to do: for many directories it costs little more than for one.
pub trait MemoryDirectory: Send {
    /// Keeps `guard`, the agent's lock, for as long as a call that was made through
    /// this directory and failed as [`FailureCause::Unreachable`] may still change something.
    fn hold_guard(&self, _guard: Arc<dyn Any + Send + Sync>) {}

    /// What was changed since it was asked the last time, through this directory and
    /// by anybody before it was opened, and is perhaps not on the disk. Empty where
    /// each change is on the disk when its method returns.
    fn take_unsynced(&self) -> Vec<UnsyncedObject>;

    /// A number that tells the directory from another one at the same path, also
    /// after a reboot, which a device number does not; none where there is none.
    fn directory_id(&self) -> Result<Option<u64>, TransportError>;

    /// What stands at the memory's name. Links are looked at, not followed.
    fn stat_memory(&self) -> Result<MemoryObject, TransportError>;

    /// What a [`MemoryDirectory::swap`] would meet, as far as that can be told without
    /// trying: for plans, which promise nothing by it.
    fn forecast_swap(&self) -> SwapForecast {
        SwapForecast::Clear
    }

    /// What the other side lacks that a swap relies on. Each makes it promise less,
    /// so nothing is to be changed here unless the operator accepts it.
    fn missing_extensions(&self) -> Vec<SftpExtension> {
        Vec::new()
    }

    /// Reads the memory to its end, whatever size it claims, and says what was
    /// read: the stamp is the one after the last byte. One that grows as fast as
    /// it is read is left at twice its first size or 64 MiB beyond it; what
    /// follows is found when the displaced file is settled. Refuses what claims
    /// more than 16 GiB, and anything but a regular file that [`MemoryObject::File`]
    /// stands for; never blocks on a FIFO.
    /// The answer has the extended attributes, up to 64 KiB of names and values:
    /// beyond it the largest of the agent's own (`user.*`) are left out.
    fn read_memory(&self, sink: ByteSink<'_>) -> Result<FileMetadata, TransportError>;

    /// What is known of a memory that cannot be opened, for a lease: everything but
    /// its content. [`MemoryDirectory::stat_memory`] has said that it is a file. One that
    /// [`MemoryDirectory::read_memory`] would refuse is [`FailureCause::Replaced`]: the attributes are given to
    /// another file.
    fn stat_leased_memory(&self) -> Result<FileMetadata, TransportError> {
        match self.stat_memory()? {
            MemoryObject::File(file) => Ok(file),
            _ => {
                let error = Error::new(ErrorKind::Conflict, "the memory was replaced meanwhile");
                Err(TransportError::new(FailureCause::Replaced, error))
            }
        }
    }

    /// Whether the memory begins with `size` bytes of this content, read anew: an
    /// agent may have written below it already.
    fn memory_begins_with(&self, content: Digest, size: u64) -> Result<bool, TransportError> {
        compare_memory_prefix(self, content, size)
    }

    /// What a memory that is created here should look like, so that the agent
    /// can write it: the directory's owner and group, who of them and of others may
    /// read there, and the attributes that every new file in it gets. What a crash may leave of the
    /// look at such a file goes with [`MemoryDirectory::remove_unfinished_staging`] of `staged`.
    fn inherited_attributes(&self, staged: &str) -> Result<Attributes, TransportError>;

    /// Makes a new file with exactly this content and these attributes, as far as they
    /// are [`Attributes::for_new_file`], for `name`, which must be free. It need not stand there before
    /// [`MemoryDirectory::link_staged`]. An error leaves nothing at `name`. The answer tells the
    /// new file from whatever an agent puts at `name` afterwards. A directory holds
    /// one file that was staged and not linked.
    fn stage(
        &self,
        name: &str,
        content: &mut dyn FnMut(ByteSink<'_>) -> Result<(), Error>,
        attributes: &Attributes,
    ) -> Result<FileIdentity, TransportError>;

    /// Gives the staged file, which is on the disk, its name, if it has none yet.
    /// From then on agents see it, so nothing should come between this and the
    /// [`MemoryDirectory::swap`].
    fn link_staged(&self, staged: &str) -> Result<(), TransportError>;

    /// The name under which what was staged stands before its swap. On a host it is
    /// in a directory of its own beside the memory, which is called `staged`.
    fn staged_file_name(&self, staged: &str) -> String {
        staged.to_string()
    }

    /// What a name of ours is called beside the memory, for people: whoever has taken
    /// over a run has given its directory another one.
    fn display_name(&self, name: &str) -> String {
        name.to_string()
    }

    /// Gives what was displaced the memory's name again, if nothing stands there;
    /// where an exchange leaves no such gap, there is nothing to be done.
    fn restore_memory_name(&self, _displaced: &str) -> Result<(), TransportError> {
        Ok(())
    }

    /// For whoever finishes what another run began: sees to it that what that one
    /// has asked for and a host has not done yet comes to nothing from now on. The
    /// directory of that run gets the last of these names, of which nobody else knows;
    /// those before are of earlier attempts, the oldest first. For the caller its
    /// name stays `staged`.
    fn take_over_run(&self, _staged: &str, _names: &[String]) -> Result<(), TransportError> {
        Ok(())
    }

    /// Removes what a crash in the middle of staging `name` may have left beside
    /// it. Nothing is fine.
    fn remove_unfinished_staging(&self, name: &str) -> Result<(), TransportError>;

    /// Puts the linked file in the memory's place. Whatever stood there at that
    /// very moment is not overwritten but stands under one of the names of
    /// [`MemoryDirectory::displaced_names`] afterwards, also when this fails. At every
    /// instant the memory is wholly the old or wholly the new file; where the
    /// file system cannot exchange, it is absent for microseconds, and
    /// [`SwapMethod::TakeAway`] says so. One that is a mount point of its own cannot be
    /// replaced: then this fails with [`FailureCause::MountPoint`]. When this returns, what stands at the memory's name
    /// is the file `new` that was staged, or its content. An agent that replaces it meanwhile, or
    /// puts a file of its own at the staged name before, makes this fail with
    /// [`FailureCause::Replaced`] without anything being lost.
    fn swap(&self, staged: &str, new: FileIdentity) -> Result<SwapOutcome, TransportError>;

    /// Tells the object at `name` from all others that ever stand there; none where that
    /// is not known, or nothing stands there.
    fn object_id(&self, _name: &str) -> Result<Option<ObjectId>, TransportError> {
        Ok(None)
    }

    /// Gives the object at `kept`, which a swap displaced, the memory's name again.
    /// Whatever stands there takes the place of the object, as [`MemoryDirectory::swap`] says
    /// of a staged file. Only on this machine. Where `id` is given, another object at
    /// `kept` is [`FailureCause::Replaced`].
    fn restore_object(
        &self,
        kept: &str,
        _id: Option<ObjectId>,
    ) -> Result<SwapOutcome, TransportError> {
        let message = format!("{kept} can only be put back by hand");
        let error = Error::new(ErrorKind::Conflict, message);
        Err(TransportError::new(FailureCause::CallerFailed, error))
    }

    /// Writes the linked file's content over a memory that is a mount point, while no
    /// other process has it open. A crash can cut that short. Fails with
    /// [`FailureCause::HalfWritten`] where the memory could be neither written nor put back, or
    /// where another process may have written to it in between; a copy of its earlier
    /// content then stands beside it.
    fn write_in_place(
        &self,
        _staged: &str,
        _new: FileIdentity,
    ) -> Result<SwapOutcome, TransportError> {
        let error = Error::new(ErrorKind::Internal, "it is no mount point of this machine");
        Err(TransportError::new(FailureCause::Refused, error))
    }

    /// Takes the memory away to [`MemoryDirectory::staged_file_name`] of `staged`, which is free,
    /// leaving none.
    fn move_memory_aside(&self, staged: &str) -> Result<(), TransportError>;

    /// Settles a displaced file: makes sure that no byte of it is lost, and
    /// removes it. What could not be inspected and holds bytes is never removed.
    /// `inspect` is called with a reader of the whole file before;
    /// a file that a writer has open, or that changed meanwhile, is left alone,
    /// and the answer is [`SettleOutcome::StillOpen`]. Whoever opens it in the instant of
    /// its removal is waited for, and `inspect` is called once more; where that
    /// is not enough the answer is [`SettleOutcome::Lost`], which is no success. An
    /// error means that the file stands there still.
    fn settle(
        &self,
        displaced: &str,
        inspect: &mut dyn FnMut(FileReader<'_>) -> Result<(), Error>,
    ) -> Result<SettleOutcome, TransportError>;

    /// Removes an object without bytes if it is still the same one. Returns false where
    /// something else stands at `name`, which stays.
    fn remove_special_file(&self, name: &str, odd: &SpecialFile) -> Result<bool, TransportError>;

    /// Returns why writers cannot be detected in this directory, whatever rights this
    /// process has; none where it depends on the rights alone.
    fn undetectable_writers_reason(&self) -> Option<String> {
        None
    }

    /// When it makes sense to settle again what was displaced; none where that is
    /// at any time.
    fn next_settle_time(&self) -> Option<Instant> {
        None
    }

    /// Which of the names that a swap of `staged` may have displaced something
    /// to exist: that of the staged file first.
    fn displaced_names(&self, staged: &str) -> Result<Vec<String>, TransportError>;

    /// Whether a swap of `staged` that writes in place may have been cut short:
    /// another swap puts that right.
    fn is_half_written(&self, staged: &str) -> Result<bool, TransportError>;

    /// Whether anything stands at `name`.
    fn exists(&self, name: &str) -> Result<bool, TransportError>;

    /// The regular file at `name`, if it has exactly this content.
    fn find_content(
        &self,
        name: &str,
        content: Digest,
    ) -> Result<Option<FileIdentity>, TransportError>;

    /// Removes a name that we made. Absent is fine.
    fn remove_name(&self, name: &str) -> Result<(), TransportError>;
}

/// The mode of a memory that is created in a directory of this mode: never writable by
/// everybody, and by the group only where its members may replace each other's files,
/// too, as agents do that work through their group.
fn new_memory_mode(directory: u32) -> u32 {
    let is_sticky = directory & 0o1000 != 0;
    let group = if is_sticky { 0o040 } else { 0o060 };
    directory & (0o604 | group) | 0o600
}

/// See [`MemoryDirectory::memory_begins_with`].
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

/// What stands at a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryObject {
    /// Nothing, in a directory that exists and could be searched.
    Absent,
    /// A regular file that may be read.
    File(FileMetadata),
    /// Something that is never read: it is described and displaced.
    Special(SpecialFile),
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMetadata {
    /// What a cheap probe compares.
    pub stamp: Stamp,
    /// Owner and mode; extended attributes only where the file was read.
    pub attributes: Attributes,
    /// How many extended attributes were left out, at least.
    pub dropped_xattrs: u64,
}

/// Tells one state of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub modified: i64,
    /// Time of the last change of the inode, likewise; 0 where unknown.
    pub changed: i64,
    /// Inode number; 0 where there is none.
    pub inode: u64,
}

impl Stamp {
    /// The stamp in a status of this machine.
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

/// Tells one file from every other, whatever names they have: as long as the
/// [`MemoryDirectory`] is open that told it, and until its next `swap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// The file system it is on; 0 where there is none.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// Tells an object from all others on its file system, also after a reboot, which a device
/// number does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectId {
    /// Inode number, which a later object can have, too.
    pub inode: u64,
    /// When it was created, in nanoseconds since 1970, which nobody can set; none where
    /// the file system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<i64>,
}

/// An extended attribute: its name and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Who owns a file and what may be done with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Extended attributes: access control lists and security labels are among
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "xattrs::json")]
    pub xattrs: Vec<Xattr>,
}

/// The extended attribute that gives a program rights of root's.
const CAPABILITY_XATTR: &[u8] = b"security.capability";

impl Attributes {
    /// Returns what a new file gets of them: no set-user, set-group and sticky bits and
    /// no file capabilities. A file of notes needs none, and on bytes that an agent chose
    /// they give that agent the rights of the owner.
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

/// What stands at a memory's name when it is not a file that may be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecialFile {
    /// A symbolic link, with its target.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
    /// A named pipe.
    Fifo,
    /// A character or block device.
    Device,
    /// A socket.
    Socket,
    /// A file with several names, of the user with this id: another user may have
    /// created this name.
    #[serde(rename = "ForeignLink")]
    ForeignHardLink(u32),
    /// A file that somebody keeps everybody else from opening, by a lease.
    Leased,
}

/// As part of a sentence; the target of a link is as it is on the disk, for the
/// sinks to make visible.
impl SpecialFile {
    /// Says what stands in place of a memory, and what a reset does with it.
    pub fn describe_in_place_of_memory(&self) -> String {
        let reset_effect = match self {
            SpecialFile::Directory | SpecialFile::ForeignHardLink(_) => {
                "keeps it beside the memory"
            }
            SpecialFile::Leased => "archives it when the lease is over",
            _ => "describes and removes it",
        };
        format!("{self} stands in its place; a reset {reset_effect}")
    }
}

impl fmt::Display for SpecialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecialFile::Symlink(target) => {
                write!(f, "a symbolic link to {}", String::from_utf8_lossy(target))
            }
            SpecialFile::Directory => f.write_str("a directory"),
            SpecialFile::Fifo => f.write_str("a named pipe"),
            SpecialFile::Device => f.write_str("a device"),
            SpecialFile::Socket => f.write_str("a socket"),
            SpecialFile::ForeignHardLink(uid) => write!(f, "a hard link to a file of user {uid}"),
            SpecialFile::Leased => f.write_str("a file on which somebody has a lease"),
        }
    }
}

/// What a swap would meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapForecast {
    /// Nothing that is known of.
    Clear,
    /// The memory is a mount point of its own: [`SwapMethod::InPlace`].
    InPlace,
    /// It would be refused, for this reason, which has the command that helps.
    Refused(Error),
}

/// How a memory was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapMethod {
    /// There was none.
    Create,
    /// New and old changed places in one step.
    Exchange,
    /// The old one was renamed away, then the new one linked in its place.
    TakeAway,
    /// The old one was taken away and none put in its place.
    Remove,
    /// The old one was copied aside, then written over where it is: nothing can
    /// take the place of a mount point.
    InPlace,
}

/// What a swap did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapOutcome {
    /// How it was done.
    pub method: SwapMethod,
    /// Where what stood there before is now; empty when there was nothing.
    pub displaced: Vec<String>,
}

/// What settling came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// Inspected and removed. `watched` says whether a late writer would have
    /// been noticed.
    Removed {
        /// See above.
        was_watched: bool,
    },
    /// A writer still has it open; ask again.
    StillOpen,
    /// It was removed, but what somebody wrote in the very instant of the removal
    /// may be missing; the error says why.
    Lost(Error),
    /// It still stands there and is never read: a symlink, pipe, socket or device, which
    /// holds no bytes but the target of the link. The caller describes it and then calls
    /// [`MemoryDirectory::remove_special_file`].
    Special(SpecialFile),
    /// It stays under its name, because no entry holds its content: a directory, or a
    /// file that must not be read.
    Kept(SpecialFile),
}

/// Why a transport failed, as far as the engine acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The directory of the memory does not exist.
    NoDirectory,
    /// Permission, a read-only file system, a full disk, an I/O error: reached,
    /// and no.
    Refused,
    /// The agent put something else in place in the middle of it; try again.
    Replaced,
    /// Somebody has a lease on the file, which keeps everybody else from opening
    /// it. Whoever holds one for a good reason gives it back at once.
    Leased,
    /// The memory is a mount point of its own, which nothing can replace.
    MountPoint,
    /// A memory that is written in place was left half written or perhaps not on the
    /// disk, or another process's write to it may have been overwritten. The copy and the
    /// new file beside it are for the next run: an attempt now would meet the same trouble.
    HalfWritten,
    /// The host, or the file system, did not answer.
    Unreachable,
    /// The host shows another key than the one that is known, or a revoked one:
    /// nothing was read or sent.
    HostKeyMismatch,
    /// The caller's own sink failed.
    CallerFailed,
}

/// An error of a transport: a cause for the engine, a sentence for people.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportError {
    /// Why.
    pub cause: FailureCause,
    error: Error,
}

impl TransportError {
    /// An error with its cause.
    pub fn new(cause: FailureCause, error: Error) -> TransportError {
        TransportError { cause, error }
    }

    /// The same with a further hint.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> TransportError {
        TransportError {
            error: self.error.with_hint(hint),
            ..self
        }
    }

    /// Whether the sentence is the same.
    pub fn has_same_message(&self, error: &Error) -> bool {
        self.error.message() == error.message()
    }

    /// What the operator can do, in the order in which it was added.
    pub fn hints(&self) -> &[String] {
        self.error.hints()
    }

    /// What decides the exit code.
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
