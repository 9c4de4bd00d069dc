//! Agents whose memories are one file, whatever paths lead there. None of them is reset:
//! each would get the other's identity.
//!
//! On this machine a memory is told by device and inode, and by those of its directory
//! with its name, because it need not exist; on a host, where inodes are not told, by its
//! absolute path. Nowhere are memories reached through links, so those behind one do not
//! count.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Stat};

use super::Engine;
use crate::config::{Agent, MemoryLocation, SshHost};
use crate::durable::{self, PathWalk};
use crate::error::{Error, ErrorKind};

/// How long a file system may take to tell files apart. One that hangs keeps nobody from
/// other agents; its own are not reset then.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// Device and inode.
type FileId = (u64, u64);

/// What tells a memory from others: two that have one of these in common are one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FileKey {
    /// Host, port, user and path, as the config spells them.
    ConfiguredPath(String, u16, String, PathBuf),
    /// Host, port and absolute path.
    AbsolutePath(String, u16, PathBuf),
    /// A name in a directory of this machine.
    DirectoryEntry(FileId, OsString),
    /// A file of this machine.
    Inode(FileId),
}

/// Agents by what tells their memories from others, and those that have something of it
/// in common.
#[derive(Default)]
struct SharingGroups {
    agents_by_key: HashMap<FileKey, Vec<String>>,
    sharers: HashMap<String, Vec<String>>,
}

impl SharingGroups {
    fn add(&mut self, agent: &str, key: FileKey) {
        let agents = self.agents_by_key.entry(key).or_default();
        if agents.iter().any(|it| it == agent) {
            return;
        }
        for other in agents.iter() {
            let pairs = [(agent, other.as_str()), (other, agent)];
            for (one, two) in pairs {
                let others = self.sharers.entry(one.to_string()).or_default();
                others.push(two.to_string());
            }
        }
        agents.push(agent.to_string());
    }

    fn sharers_of(&self, agent: &str) -> &[String] {
        self.sharers.get(agent).map_or(&[], Vec::as_slice)
    }
}

/// What is known of the memories of all agents.
#[derive(Default)]
pub(super) struct SharedMemories {
    /// By paths, which stay what they are.
    by_path: SharingGroups,
    /// By inodes, which may be other files' soon.
    by_inode: SharingGroups,
    /// Hosts whose agents' absolute paths are known.
    resolved_hosts: HashSet<SshHost>,
}

impl SharedMemories {
    /// What the config says of these.
    pub(super) fn from_agents(agents: &[Agent]) -> SharedMemories {
        let mut sharing = SharedMemories::default();
        for agent in agents {
            let (host, port, user, path) = agent.location.file_identity();
            let key = FileKey::ConfiguredPath(host, port, user.to_string(), path);
            sharing.by_path.add(&agent.name, key);
        }
        sharing
    }
}

/// Why an agent whose memory is another one's, too, is not reset.
pub(super) fn sharing_error(other: &str) -> Error {
    let message = format!("shares its memory file with {other}");
    Error::new(ErrorKind::Conflict, message)
        .with_hint("give each agent a file of its own in the config")
}

impl Engine {
    /// Looks again which memories of this machine are one file.
    pub(super) fn refresh_shared_memories(&self) {
        let agents = self.config().agents.iter();
        let agents: Vec<&Agent> = agents.filter(|it| it.location.host().is_none()).collect();
        let mut inodes = SharingGroups::default();
        for (agent, keys) in agents.iter().zip(self.read_file_keys(&agents)) {
            keys.into_iter()
                .for_each(|key| inodes.add(&agent.name, key));
        }
        self.shared_memories().by_inode = inodes;
    }

    /// Another agent with the same memory file, if there is one: as far as that was
    /// found out by the last look, and still is so.
    pub(super) fn known_sharing_agent(&self, agent: &Agent) -> Option<String> {
        if let MemoryLocation::Remote { host, .. } = &agent.location {
            self.resolve_paths(host);
        }
        let sharing = self.shared_memories();
        if let Some(other) = sharing.by_path.sharers_of(&agent.name).first() {
            return Some(other.clone());
        }
        let others = sharing.by_inode.sharers_of(&agent.name).to_vec();
        drop(sharing);
        others
            .into_iter()
            .find(|other| self.is_same_file(agent, other))
    }

    /// The same after another look at this agent's memory.
    pub(super) fn find_sharing_agent(&self, agent: &Agent) -> Option<String> {
        if agent.location.host().is_none() {
            let keys = self.read_file_keys(&[agent]).into_iter().flatten();
            let mut sharing = self.shared_memories();
            keys.for_each(|key| sharing.by_inode.add(&agent.name, key));
        }
        self.known_sharing_agent(agent)
    }

    /// Agents that share a memory file, those of one file together.
    pub fn agents_sharing_memories(&self) -> Vec<Vec<&str>> {
        self.refresh_shared_memories();
        let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for agent in &self.config().agents {
            if let Some(other) = self.known_sharing_agent(agent) {
                // Each has the first of them for another, but for itself.
                let first = self.first_configured(&agent.name, other);
                groups.entry(first).or_default().push(&agent.name);
            }
        }
        groups.into_values().collect()
    }

    /// Of two agents the one that the config names first.
    fn first_configured(&self, agent: &str, other: String) -> String {
        let mut names = self.config().agents.iter().map(|it| it.name.as_str());
        match names.find(|name| *name == agent || *name == other) {
            Some(first) if first == agent => agent.to_string(),
            _ => other,
        }
    }

    fn is_same_file(&self, agent: &Agent, other: &str) -> bool {
        let Ok(other) = self.agent(other) else {
            return false;
        };
        match self.read_file_keys(&[agent, other]).as_slice() {
            [one, other] => one.iter().any(|key| other.contains(key)),
            _ => false,
        }
    }

    fn shared_memories(&self) -> MutexGuard<'_, SharedMemories> {
        self.shared_memories
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the absolute paths of a host's agents, once it is connected to.
    fn resolve_paths(&self, host: &SshHost) {
        if self.shared_memories().resolved_hosts.contains(host) {
            return;
        }
        let agents = self.config().agents.iter();
        let agents = agents.filter(|agent| agent.location.host() == Some(host));
        let key = |agent: &Agent| {
            let path = self
                .transport_for(&agent.location)
                .absolute_path(agent.location.memory())?;
            let (host, port, ..) = agent.location.file_identity();
            Some((agent.name.clone(), FileKey::AbsolutePath(host, port, path)))
        };
        let Some(keys) = agents.map(key).collect::<Option<Vec<_>>>() else {
            return;
        };
        let mut sharing = self.shared_memories();
        sharing.resolved_hosts.insert(host.clone());
        for (agent, key) in keys {
            sharing.by_path.add(&agent, key);
        }
    }

    /// What tells memories of this machine from others; nothing of one that cannot be
    /// looked at.
    fn read_file_keys(&self, agents: &[&Agent]) -> Vec<Vec<FileKey>> {
        let memories = agents.iter().map(|it| it.location.memory().to_path_buf());
        let memories = memories.collect();
        let found = self
            .file_systems()
            .inspect_paths(memories, IDENTIFY_TIMEOUT, || read_path_keys);
        found.into_iter().map(Option::unwrap_or_default).collect()
    }
}

/// In the directory that a reset would open: one behind a link is no memory's.
fn read_path_keys(memory: &Path) -> Option<Vec<FileKey>> {
    let directory = durable::open_directory_errno(memory.parent()?, PathWalk::Openat2).ok()?;
    let name = memory.file_name()?;
    let above = rustix::fs::fstat(&directory).ok()?;
    let mut keys = vec![FileKey::DirectoryEntry(
        file_id(&above),
        name.to_os_string(),
    )];
    let Ok(file) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return Some(keys);
    };
    // One name that two paths lead to, by a mount of the file itself. Two names of a file
    // are two memories: a reset gives each a file of its own, and an agent that makes a
    // link must not keep another from being reset.
    let is_file = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
    if is_file && file.st_nlink == 1 {
        keys.push(FileKey::Inode(file_id(&file)));
    }
    Some(keys)
}

fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}
