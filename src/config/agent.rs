//! Agents: where their files are, the memory that is reset, and the memory of several files.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use super::{FindingsPolicy, Protection};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::reset_interval::ResetInterval;
use crate::boundary::Baseline;

/// One agent, including the settings that it inherits from the fleet. It has a memory that is reset,
/// a memory of several files, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Name of the section.
    pub name: String,
    /// How the host is reached that its files are on; none for this machine.
    pub remote: Option<RemoteAccess>,
    /// The memory that is reset.
    pub reset: Option<ResetMemory>,
    /// The memory of several files.
    pub layout: Option<AgentLayout>,
    /// Directory of the entries, relative to `archive_dir` and inside it.
    pub archive_subdir: String,
    /// What happens to its entries with secrets or injections.
    pub archive_findings: FindingsPolicy,
    /// Protection against changes.
    pub protect: Protection,
    /// The line of its section header.
    pub section_line: usize,
}

/// How the files of an agent on another host are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteAccess {
    /// SSH settings of the host.
    pub host: SshHost,
    /// Interval between two polls of the memory, in seconds.
    pub poll_seconds: u32,
    /// Extensions that the host may lack when files are replaced.
    pub accept_degraded: Vec<SftpExtension>,
}

/// A memory that is reset to a baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetMemory {
    /// Its path: absolute on this machine; on a host as configured, where a leading `~/` is the home
    /// there.
    pub path: PathBuf,
    /// File name of the baseline, relative to `baseline_dir` and inside it.
    pub baseline: String,
    /// The line between the two domains.
    pub separator: String,
    /// Bytes; a larger memory is OVERSIZE.
    pub max_size: u64,
    /// Whether the agent writes notes into the file; a file that it does not is overwritten whole.
    pub is_shared: bool,
    /// Whether a file of this machine may be written in place if nothing can replace it.
    pub accept_in_place: bool,
    /// Interval of the scheduled resets, if the agent's section sets one; else that of the fleet.
    pub own_interval: Option<ResetInterval>,
}

/// A memory of several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentLayout {
    /// The name of its layout.
    pub name: String,
    /// Its directory, on the agent's host.
    pub directory: PathBuf,
    /// The Git branch that holds it, for layouts that read one.
    pub reference: Option<String>,
    /// The directory of the agent's own program, on its host, for layouts that look at it.
    pub state_directory: Option<PathBuf>,
}

impl Agent {
    /// Returns the host that its files are on; none for this machine.
    pub fn host(&self) -> Option<&SshHost> {
        self.remote.as_ref().map(|remote| &remote.host)
    }

    /// Returns what tells its memory of several files from others: the agent, the layout, and where it is;
    /// none without one.
    pub fn layout_memory_id(&self) -> Option<String> {
        let layout = self.layout.as_ref()?;
        let host = self.host().map(SshHost::authority).unwrap_or_default();
        let directory = layout.directory.display();
        Some(format!("{} {} {host}:{directory}", self.name, layout.name))
    }

    /// Returns the extensions that its host may lack when files are replaced.
    pub fn accept_degraded(&self) -> &[SftpExtension] {
        self.remote.as_ref().map_or(&[], |it| &it.accept_degraded)
    }

    /// Whether the memory that is reset may be written in place if nothing can replace it.
    pub fn accepts_in_place(&self) -> bool {
        self.reset.as_ref().is_some_and(|it| it.accept_in_place)
    }

    /// Returns the path that is observed: the memory that is reset or, without one, the directory of
    /// the layout.
    pub fn observed_path(&self) -> &Path {
        match (&self.reset, &self.layout) {
            (Some(reset), _) => &reset.path,
            (None, Some(layout)) => &layout.directory,
            (None, None) => Path::new(""),
        }
    }

    /// Returns the key of the config that names [`Agent::observed_path`].
    pub fn observed_key(&self) -> &'static str {
        match (&self.reset, &self.remote) {
            (None, _) => "memory_dir",
            (Some(_), None) => "memory_file",
            (Some(_), Some(_)) => "remote_memory",
        }
    }

    /// Returns the memory that is reset.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`]: it is never reset.
    pub fn required_reset(&self) -> Result<&ResetMemory> {
        self.reset.as_ref().ok_or_else(|| {
            let message = format!("{} has no baseline: it is never reset", self.name);
            Error::new(ErrorKind::Conflict, message).with_hint(format!(
                "`memory {0} tree` shows its memory; to reset one, set memory_file and baseline in \
                 [{0}]",
                self.name
            ))
        })
    }

    /// Returns the directories of this machine that hold its memories, which it can write to, each
    /// once and with the key of the config that names it.
    pub fn local_directories(&self) -> Vec<(&'static str, &Path)> {
        if self.remote.is_some() {
            return Vec::new();
        }
        let of_layout = self.layout.as_ref().map(|it| it.directory.as_path());
        let of_reset = self.reset.as_ref().and_then(|it| it.path.parent());
        let of_reset = of_reset.filter(|it| Some(*it) != of_layout);
        let of_reset = of_reset.map(|it| ("memory_file", it));
        let of_layout = of_layout.map(|it| ("memory_dir", it));
        of_reset.into_iter().chain(of_layout).collect()
    }

    /// Returns the file name of its baseline; none where it is never reset.
    pub fn baseline(&self) -> Option<&str> {
        self.reset.as_ref().map(|reset| reset.baseline.as_str())
    }

    /// Returns the separator of the memory that is reset; the usual one where there is none.
    pub fn separator(&self) -> &str {
        let reset = self.reset.as_ref();
        reset.map_or(DEFAULT_SEPARATOR, |reset| &reset.separator)
    }

    /// Cuts a version of its baseline where the memory's scratch begins.
    pub fn cut_baseline(&self, bytes: Vec<u8>) -> Baseline {
        Baseline::new(bytes, self.separator())
    }

    /// Returns the size limit of the memory that is reset, in bytes; no limit where there is none.
    pub fn max_memory_size(&self) -> u64 {
        self.reset.as_ref().map_or(u64::MAX, |reset| reset.max_size)
    }

    /// Returns the interval of its scheduled resets, if its section sets one.
    pub fn own_interval(&self) -> Option<ResetInterval> {
        self.reset.as_ref()?.own_interval
    }

    /// Whether this file of `baseline_dir` is its baseline.
    pub fn uses_baseline(&self, name: &str) -> bool {
        self.baseline() == Some(name)
    }

    /// Returns a key that is equal for two agents whose observed files are the same, as far as the
    /// config shows: host, port, user and path. Different users see the same file on a host, unless
    /// the path starts at their home.
    pub fn file_identity(&self) -> (String, u16, &str, Cow<'_, Path>) {
        let path = self.observed_path();
        let Some(host) = self.host() else {
            return (String::new(), 0, "", Cow::Borrowed(path));
        };
        let parts = path.strip_prefix("~").unwrap_or(path).components();
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

/// The separator where the config sets none.
pub(super) const DEFAULT_SEPARATOR: &str = "---";

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
