//! What the steps of a replacement take and return.

use serde::{Deserialize, Serialize};

use super::{
    Attributes, FailureCause, FileReader, MemoryDirectory, MemoryObject, ObjectId, SpecialFile,
    TransportError,
};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::config::SftpExtension;

/// What a replacement in a directory relies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryProperties {
    /// A number that distinguishes the directory from another one at the same path, also after a
    /// reboot, which a device number does not; `None` where the file system has no such number.
    pub id: Option<u64>,
    /// Server extensions that a swap relies on and that are missing. Each one weakens a guarantee,
    /// so nothing may be changed here unless the operator accepts it.
    pub missing_extensions: Vec<SftpExtension>,
    /// What a swap would meet, as far as that is known without trying. For display in plans only:
    /// it guarantees nothing.
    pub swap_forecast: SwapForecast,
}

/// What keeps this process from replacing the memory in its directory, or from detecting its writers.
#[derive(Clone, Debug, Default)]
pub struct DirectoryObstacles {
    /// Why this process may not write the directory; `None` where it may, or where the transport cannot
    /// know.
    pub write_refusal: Option<Error>,
    /// Why this process may not give a new file the owner and the group of the memory; `None` where it
    /// may, or where the transport cannot know.
    pub ownership_refusal: Option<Error>,
    /// Why writers cannot be detected in this directory, whatever the rights of this process;
    /// `None` where detection depends on the rights alone.
    pub undetectable_writers_reason: Option<String>,
}

/// The attributes of a staged file.
#[derive(Clone, Debug)]
pub enum StagedAttributes {
    /// These.
    Exact(Attributes),
    /// These if the directory has the same owner, otherwise the inherited ones, provided that all users
    /// may read the file with these, too.
    OfDirectoryOwner(Attributes),
    /// Such that the agent can write the file: the directory's owner and group, read permissions as
    /// on the directory, and the extended attributes that every new file in it gets.
    Inherited,
}

impl StagedAttributes {
    /// Returns the attributes to apply, given the way to determine the inherited ones.
    ///
    /// # Errors
    /// Those of that way; the inherited ones would let others read bytes that were private.
    pub fn resolve<E: From<Error>>(
        self,
        inherited: impl FnOnce() -> Result<Attributes, E>,
    ) -> Result<Attributes, E> {
        Ok(match self {
            StagedAttributes::Exact(given) => given,
            StagedAttributes::Inherited => inherited()?,
            StagedAttributes::OfDirectoryOwner(given) => {
                let inherited = inherited()?;
                if inherited.uid == given.uid {
                    given
                } else if !given.is_readable_by_all() {
                    return Err(private_bytes_error(&given, inherited.uid).into());
                } else {
                    inherited
                }
            }
        })
    }
}

fn private_bytes_error(given: &Attributes, owner: u32) -> Error {
    let uid = given.uid;
    let message = format!(
        "the bytes were private to user id {uid} (mode {:04o}), and user id {owner}, who has \
         the directory now, could read them",
        given.mode & 0o7777
    );
    Error::new(ErrorKind::Conflict, message).with_hint(format!(
        "give the directory to user id {uid}, or take the bytes from the archive with `archive export`"
    ))
}

/// What a commit puts in the memory's place.
#[derive(Clone, Debug)]
pub enum NewMemory {
    /// The staged file.
    StagedFile {
        /// Whether its content may be written over a memory that is a mount point, which nothing
        /// can replace, while no other process has it open. A crash can leave that memory half
        /// written. Otherwise such a memory is [`FailureCause::MountPoint`]; where it could be
        /// neither written nor restored, or where another process may have written to it in
        /// between, it is [`FailureCause::HalfWritten`], and a copy of its earlier content is
        /// beside it.
        accepts_in_place: bool,
    },
    /// The object that an earlier run displaced and kept under the name of this run. Supported on
    /// this machine only. If an id is given and another object has that name, the commit fails with
    /// [`FailureCause::Replaced`].
    KeptObject(Option<ObjectId>),
    /// A new symlink with this target, which has the name of this run first. Supported on this
    /// machine only: the two arguments of SFTP's request have one order in its specification and
    /// the other one in OpenSSH, so a client cannot know which of them a server creates.
    Symlink(Vec<u8>),
    /// Nothing: there is no memory afterwards.
    Nothing,
}

/// A displaced object that is about to be removed.
pub enum DisplacedObject<'a> {
    /// A file, with a reader of the whole of it.
    File(FileReader<'a>),
    /// A symlink, FIFO, socket or device, which is never read and holds no bytes except the target
    /// of the link.
    Special(&'a SpecialFile),
}

/// Archives what a displaced object holds and no entry has yet.
pub type Inspector<'a> = &'a mut dyn FnMut(DisplacedObject<'_>) -> Result<(), Error>;

/// An interrupted run, as its journal tells.
#[derive(Clone, Debug)]
pub struct InterruptedRun {
    /// The run's random name.
    pub name: String,
    /// Names by which recoveries of this run hide its files from it, oldest first, if it was on a
    /// host. The interrupted process does not know the last one.
    pub takeover_names: Vec<String>,
    /// [`DirectoryProperties::id`] of the directory at that time.
    pub directory_id: Option<u64>,
    /// Inode of the memory before the run; 0 if unknown.
    pub memory_inode: u64,
    /// Whether there was no memory before the run.
    pub creates_memory: bool,
    /// What the run was about to install.
    pub installed: InstalledMemory,
    /// How far the swap came, by the journal.
    pub progress: SwapProgress,
    /// The displaced names of [`SwapOutcome`], where the journal has them. Agents can see such
    /// names, and create more of them.
    pub displaced: Option<Vec<String>>,
}

impl InterruptedRun {
    /// Returns whether the memory is what the run was about to install.
    pub(super) fn is_installed(
        &self,
        directory: &dyn MemoryDirectory,
    ) -> Result<bool, TransportError> {
        match self.installed.is_in(directory) {
            Err(error) if error.cause == FailureCause::Leased => Ok(false),
            installed => installed,
        }
    }

    /// Drops the names that are neither `staged` nor displaced by the run.
    pub(super) fn retain_displaced(&self, names: &mut Vec<String>, staged: &str) {
        if let Some(displaced) = &self.displaced {
            names.retain(|name| name == staged || displaced.contains(name));
        }
    }
}

/// How far the swap of an interrupted run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapProgress {
    /// It had not begun: what was staged is removed.
    NotBegun,
    /// Unknown: the files in the directory tell. A swap that had not begun is taken back.
    Unknown,
    /// Unknown, and to be finished in any case: the run has decided on this swap and others.
    Decided,
    /// It has taken place.
    Done,
}

/// The state of a memory after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstalledMemory {
    /// A file that began with this content.
    File {
        /// Digest of the content.
        content: Digest,
        /// Its length in bytes.
        size: u64,
    },
    /// An object that is not a readable file.
    Special(SpecialFile),
    /// No object.
    Absent,
}

impl InstalledMemory {
    /// Returns whether the memory is in this state, that is, begins with the content; reads it
    /// again.
    pub fn is_in(&self, directory: &dyn MemoryDirectory) -> Result<bool, TransportError> {
        Ok(match self {
            InstalledMemory::File { content, size } => {
                directory.memory_begins_with(*content, *size)?
            }
            InstalledMemory::Special(special) => {
                directory.stat_memory()? == MemoryObject::Special(special.clone())
            }
            InstalledMemory::Absent => directory.stat_memory()? == MemoryObject::Absent,
        })
    }
}

/// The result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredRun {
    /// How the run, or the recovery, replaced the memory, if that was unknown; `None` if neither
    /// did.
    pub method: Option<SwapMethod>,
    /// Names of the displaced objects to settle, that of a staged file first.
    pub displaced: Vec<String>,
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
    /// It stays under its name, because no archive entry holds its content: a directory, or a file
    /// that must not be read.
    Kept(SpecialFile),
}
