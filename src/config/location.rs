//! Where a memory is: on this machine, or on a host.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

/// Location of a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryLocation {
    /// On this machine.
    Local {
        /// The memory, absolute.
        memory: PathBuf,
        /// Whether the memory may be written in place if nothing can replace it.
        accept_in_place: bool,
    },
    /// On a host reached over SSH.
    Remote {
        /// SSH settings of the host.
        host: SshHost,
        /// Path of the memory there, as configured; a leading `~/` is the remote home.
        memory: PathBuf,
        /// Interval between two polls of the memory, in seconds.
        poll_seconds: u32,
        /// Extensions that the host may lack when the memory is replaced.
        accept_degraded: Vec<SftpExtension>,
    },
}

/// The word of `accept_degraded` for writing a memory that is a mount point in place.
pub const ACCEPT_IN_PLACE: &str = "in-place";

/// An SFTP extension of OpenSSH, without which replacing a memory has degraded promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SftpExtension {
    /// Renames atomically over an existing file.
    PosixRename,
    /// Gives a file a name only if the name is free.
    Hardlink,
    /// Flushes a written file to the disk.
    Fsync,
}

impl SftpExtension {
    /// All extensions.
    pub const ALL: [SftpExtension; 3] = [
        SftpExtension::PosixRename,
        SftpExtension::Hardlink,
        SftpExtension::Fsync,
    ];

    /// Returns the name in the config; the name in the protocol ends in `@openssh.com`.
    pub const fn as_str(self) -> &'static str {
        match self {
            SftpExtension::PosixRename => "posix-rename",
            SftpExtension::Hardlink => "hardlink",
            SftpExtension::Fsync => "fsync",
        }
    }

    /// Returns the degradation without the extension, as all messages word it.
    pub const fn degradation(self) -> &'static str {
        match self {
            SftpExtension::PosixRename => {
                "a file that an agent puts in place of the memory at that moment may be lost"
            }
            SftpExtension::Hardlink => {
                "a memory that an agent recreates at that moment may be overwritten"
            }
            SftpExtension::Fsync => {
                "a power cut there may leave the new memory empty or half written"
            }
        }
    }
}

impl MemoryLocation {
    /// Returns the host, or `None` for a location on this machine.
    pub fn host(&self) -> Option<&SshHost> {
        match self {
            MemoryLocation::Local { .. } => None,
            MemoryLocation::Remote { host, .. } => Some(host),
        }
    }

    /// Returns the key of the config that names the memory.
    pub fn memory_key(&self) -> &'static str {
        match self {
            MemoryLocation::Local { .. } => "memory_file",
            MemoryLocation::Remote { .. } => "remote_memory",
        }
    }

    /// Returns the extensions that the host may lack when the memory is replaced.
    pub fn accept_degraded(&self) -> &[SftpExtension] {
        match self {
            MemoryLocation::Local { .. } => &[],
            MemoryLocation::Remote {
                accept_degraded, ..
            } => accept_degraded,
        }
    }

    /// Whether the memory may be written in place if nothing can replace it.
    pub fn accepts_in_place(&self) -> bool {
        matches!(
            self,
            MemoryLocation::Local {
                accept_in_place: true,
                ..
            }
        )
    }

    /// Returns a key that is equal for two locations of the same file, as far as the config shows:
    /// host, port, user and path. Different users see the same file on a host, unless the path
    /// starts at their home.
    pub fn file_identity(&self) -> (String, u16, &str, Cow<'_, Path>) {
        match self {
            MemoryLocation::Local { memory, .. } => {
                (String::new(), 0, "", Cow::Borrowed(memory.as_path()))
            }
            MemoryLocation::Remote { host, memory, .. } => {
                let parts = memory.strip_prefix("~").unwrap_or(memory).components();
                let path: PathBuf = parts.filter(|it| *it != Component::CurDir).collect();
                let user = host.user.as_deref().filter(|_| path.is_relative());
                (
                    host.name.to_ascii_lowercase(),
                    host.port.unwrap_or(DEFAULT_SSH_PORT),
                    user.unwrap_or_default(),
                    Cow::Owned(path),
                )
            }
        }
    }

    /// Returns the path of the memory, on this machine or a host.
    pub fn memory(&self) -> &Path {
        let (MemoryLocation::Local { memory, .. } | MemoryLocation::Remote { memory, .. }) = self;
        memory
    }
}

/// Default port of SSH.
const DEFAULT_SSH_PORT: u16 = 22;

/// SSH settings of a host. Agents with equal settings share one session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SshHost {
    /// A host name, an address or a `Host` alias of the SSH config.
    pub name: String,
    /// User name there, unless the SSH config decides.
    pub user: Option<String>,
    /// The port, unless the SSH config decides.
    pub port: Option<u16>,
    /// The private key, unless the SSH config decides.
    pub identity_file: Option<PathBuf>,
    /// Timeout of the host, in seconds.
    pub timeout_seconds: u32,
}

impl SshHost {
    /// Returns `ops@box:2222`, which distinguishes hosts of the same name.
    pub fn authority(&self) -> String {
        let user = self
            .user
            .as_ref()
            .map_or(String::new(), |user| format!("{user}@"));
        let port = self.port.map_or(String::new(), |port| format!(":{port}"));
        format!("{user}{}{port}", self.name)
    }
}
