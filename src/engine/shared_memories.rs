//! Detects agents whose memories are the same file, by whatever paths. None of them is reset: each
//! would get the other's identity.
//!
//! On this machine, device and inode identify a memory, and so do those of its directory with its
//! name, because the memory need not exist; on a host, where inodes are unknown, its absolute path
//! does. Memories are never reached through symlinks, so a memory behind one does not count. Only
//! memories whose paths can lead to one file by the mount table ([`PathPositions`]) are compared, so
//! that a reset of one agent reads nothing of the others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Stat};

use crate::base::durable;
use crate::base::error::{Error, ErrorKind};
use crate::base::file_systems::PathPositions;
use crate::config::{Agent, SshHost};
use crate::engine::context::Context;

/// Maximum wait for a file system to identify files. One that hangs delays no other agents; its own
/// agents are then not reset.
const IDENTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// Device and inode.
type FileId = (u64, u64);

/// Identifies a memory: two memories with one of these in common are the same file.
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

/// Agents by the keys of their memories. Hashes stand for the keys, and indexes in the config for the
/// agents: in a large fleet the keys take more memory than all else that is known of an agent.
#[derive(Default)]
struct SharingGroups {
    /// The first agent with each key.
    first_by_key: HashMap<u64, u32>,
    /// Another agent with a key in common, of each agent that has one.
    sharers: HashMap<u32, u32>,
}

impl SharingGroups {
    fn add(&mut self, agent: usize, key: &FileKey) {
        let Ok(agent) = u32::try_from(agent) else {
            return;
        };
        let first = *self.first_by_key.entry(hash_key(key)).or_insert(agent);
        if first != agent {
            self.sharers.entry(first).or_insert(agent);
            self.sharers.entry(agent).or_insert(first);
        }
    }

    fn sharer_of(&self, agent: usize) -> Option<usize> {
        let sharer = self.sharers.get(&u32::try_from(agent).ok()?)?;
        usize::try_from(*sharer).ok()
    }
}

/// The agents of this machine by what their memories may have in common.
#[derive(Default)]
struct LocalCandidates {
    /// None before the first refresh.
    positions: Option<Arc<PathPositions>>,
    /// Hashes of memories with the indexes of their agents in the config, sorted.
    agents_by_hash: Vec<(u64, usize)>,
    /// The indexes of agents that have a hash in common with another.
    with_common_hash: HashSet<usize>,
}

impl LocalCandidates {
    /// Takes the sorted hashes of memories.
    fn new(positions: Arc<PathPositions>, agents_by_hash: Vec<(u64, usize)>) -> Self {
        let groups = agents_by_hash.chunk_by(|(one, _), (other, _)| one == other);
        let common = groups.filter(|group| group.len() > 1).flatten();
        LocalCandidates {
            positions: Some(positions),
            with_common_hash: common.map(|(_, index)| *index).collect(),
            agents_by_hash,
        }
    }

    /// Returns whether no path of another agent can lead to the memory of this one.
    fn is_alone(&self, index: usize) -> bool {
        let is_known = self.positions.as_ref().is_some_and(|it| !it.is_unknown());
        is_known && !self.with_common_hash.contains(&index)
    }

    fn agents_with(&self, hash: u64) -> impl Iterator<Item = usize> {
        let first = self.agents_by_hash.partition_point(|(it, _)| *it < hash);
        let rest = self.agents_by_hash[first..].iter();
        rest.take_while(move |(it, _)| *it == hash)
            .map(|(_, index)| *index)
    }
}

/// What is known about the memories of all agents.
#[derive(Default)]
struct KnownSharing {
    local: LocalCandidates,
    /// Those of hosts, by paths, which do not change.
    by_path: SharingGroups,
    /// The agents on each host, until their absolute paths are known.
    unresolved_hosts: HashMap<SshHost, Vec<usize>>,
}

impl KnownSharing {
    /// Creates the groups that the config alone shows.
    fn from_agents(agents: &[Agent]) -> KnownSharing {
        let mut sharing = KnownSharing::default();
        let agents = agents.iter().enumerate();
        for (index, agent) in agents.filter(|(_, agent)| agent.reset.is_some()) {
            let Some(host) = agent.host() else {
                continue;
            };
            match sharing.unresolved_hosts.get_mut(host) {
                Some(agents) => agents.push(index),
                None => drop(sharing.unresolved_hosts.insert(host.clone(), vec![index])),
            }
            let (host, port, user, path) = agent.file_identity();
            let key = FileKey::ConfiguredPath(host, port, user.to_string(), path.into_owned());
            sharing.by_path.add(index, &key);
        }
        sharing
    }
}

/// Detects agents whose memories are the same file.
pub struct SharedMemories {
    context: Arc<Context>,
    known: Mutex<KnownSharing>,
}

/// Memories and baselines of this machine that are hard links. A reset gives each memory a file of its
/// own, so none is refused; until then each agent writes into the memory of the other, or into its
/// baseline.
pub struct HardLinks<'a> {
    /// Baselines with the agents whose memory is a link to them.
    pub to_baselines: Vec<(PathBuf, Vec<&'a str>)>,
    /// Baselines with other names that no agent has as its memory, and the number of these.
    pub of_baselines: Vec<(PathBuf, usize)>,
    /// Agents whose memories are links to one file.
    pub to_each_other: Vec<Vec<&'a str>>,
}

/// Error for an agent that shares its memory with another.
pub(super) fn sharing_error(other: &str) -> Error {
    let message = format!("shares its memory file with {other}");
    Error::new(ErrorKind::Conflict, message)
        .with_hint("give each agent a file of its own in the config")
}

impl SharedMemories {
    /// Begins with the groups that the config alone shows.
    pub(super) fn new(context: &Arc<Context>) -> SharedMemories {
        SharedMemories {
            context: Arc::clone(context),
            known: Mutex::new(KnownSharing::from_agents(&context.config().agents)),
        }
    }

    /// Finds memories and baselines of `agents` that are hard links to one file.
    pub fn hard_links<'a>(&self, agents: &[&'a Agent]) -> HardLinks<'a> {
        let hard_linked_file = |path: &Path| {
            let stat = durable::stat_no_symlinks(path).ok()?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            (is_file && stat.st_nlink > 1).then_some(stat)
        };
        let mut memories: BTreeMap<FileId, Vec<&str>> = BTreeMap::new();
        for agent in agents.iter().filter(|it| it.host().is_none()) {
            if let Some(stat) = hard_linked_file(agent.observed_path()) {
                let agents = memories.entry(file_id(&stat)).or_default();
                agents.push(&agent.name);
            }
        }
        let baselines: BTreeSet<&str> = self.context.config().baseline_names().collect();
        let paths = baselines
            .into_iter()
            .map(|it| self.context.config().general.baseline_dir.join(it));
        let (mut to_baselines, mut of_baselines) = (Vec::new(), Vec::new());
        for path in paths {
            let Some(stat) = hard_linked_file(&path) else {
                continue;
            };
            match memories.get(&file_id(&stat)) {
                Some(agents) => to_baselines.push((path, agents.clone())),
                None => {
                    let names = usize::try_from(stat.st_nlink).unwrap_or(usize::MAX);
                    of_baselines.push((path, names.saturating_sub(1)));
                }
            }
        }
        HardLinks {
            to_baselines,
            of_baselines,
            to_each_other: memories.into_values().filter(|it| it.len() > 1).collect(),
        }
    }

    /// Finds again which memories of this machine may be the same file, if mounts have changed.
    pub(super) fn refresh_shared_memories(&self) {
        let known = self.known().local.positions.clone();
        let positions = self.context.file_systems().current_positions(known.clone());
        let is_current = known.is_some_and(|known| Arc::ptr_eq(&known, &positions));
        if is_current && !positions.is_unknown() {
            return;
        }
        if !positions.is_unknown() && !positions.has_aliases() {
            let hashes = self.context.config().local_memories().to_vec();
            self.known().local = LocalCandidates::new(positions, hashes);
            return;
        }
        let agents = self.context.config().agents.iter().enumerate();
        let local = agents.filter(|(_, agent)| agent.host().is_none());
        let (indexes, agents): (Vec<usize>, Vec<&Agent>) = local.unzip();
        let hashes = self.hash_memories(&positions, &agents);
        let pairs = indexes.into_iter().zip(hashes);
        let mut agents_by_hash: Vec<(u64, usize)> = pairs
            .flat_map(|(index, hashes)| hashes.into_iter().map(move |hash| (hash, index)))
            .collect();
        agents_by_hash.sort_unstable();
        self.known().local = LocalCandidates::new(positions, agents_by_hash);
    }

    /// Returns hashes of memories of this machine: those of one file have one in common.
    fn hash_memories(&self, positions: &PathPositions, agents: &[&Agent]) -> Vec<Vec<u64>> {
        if !positions.is_unknown() {
            let hash = |agent: &&Agent| vec![positions.hash_position(agent.observed_path())];
            return agents.iter().map(hash).collect();
        }
        // Only the files themselves show what mounts have in common.
        let keys = self.read_file_keys(agents).into_iter().zip(agents);
        let hashes = keys.map(|(keys, agent)| {
            let path = positions.hash_position(agent.observed_path());
            keys.iter().map(hash_key).chain([path]).collect()
        });
        hashes.collect()
    }

    /// Returns another agent with the same memory file, if there is one: among those that the last
    /// refresh found, and confirmed now.
    pub(super) fn known_sharing_agent(&self, agent: &Agent) -> Option<String> {
        agent.reset.as_ref()?;
        if let Some(host) = agent.host() {
            self.resolve_paths(host);
            let index = self.context.config().agent_index(&agent.name)?;
            let other = self.known().by_path.sharer_of(index)?;
            return Some(self.context.config().agents.get(other)?.name.clone());
        }
        if self.known().local.positions.is_none() {
            self.refresh_shared_memories();
        }
        let index = self.context.config().agent_index(&agent.name);
        if index.is_some_and(|index| self.known().local.is_alone(index)) {
            return None;
        }
        let memory = agent.observed_path();
        let others = self.candidates_at(memory);
        let shares = |other: &&Agent| {
            other.name != agent.name
                && (other.observed_path() == memory || self.is_same_file(memory, other))
        };
        Some(others.into_iter().find(shares)?.name.clone())
    }

    /// Returns the agents whose memories may be the file at a path, by the last refresh.
    fn candidates_at(&self, path: &Path) -> Vec<&Agent> {
        let Some(positions) = self.known().local.positions.clone() else {
            return Vec::new();
        };
        let mut hashes = vec![positions.hash_position(path)];
        if positions.is_unknown() {
            let keys = self.read_keys_of(vec![path.to_path_buf()]);
            hashes.extend(keys.iter().flatten().map(hash_key));
        }
        let agents = &self.context.config().agents;
        let sharing = self.known();
        let indexes: BTreeSet<usize> = hashes
            .into_iter()
            .flat_map(|hash| sharing.local.agents_with(hash))
            .collect();
        indexes
            .into_iter()
            .filter_map(|index| agents.get(index))
            .filter(|agent| agent.reset.is_some())
            .collect()
    }

    /// Returns another agent with the same memory file, by the mounts as they are now.
    pub(super) fn find_sharing_agent(&self, agent: &Agent) -> Option<String> {
        let known = self.known().local.positions.clone();
        // Without a mount table a refresh identifies all memories.
        if agent.host().is_none() && !known.is_some_and(|it| it.is_unknown()) {
            self.refresh_shared_memories();
        }
        self.known_sharing_agent(agent)
    }

    /// Returns the agents that share memory files, grouped by file.
    pub fn agents_sharing_memories(&self) -> Vec<Vec<&str>> {
        self.refresh_shared_memories();
        let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for agent in &self.context.config().agents {
            if let Some(other) = self.known_sharing_agent(agent) {
                // Each member reports the first one, and the first one reports another.
                let first = self.first_configured(&agent.name, other);
                groups.entry(first).or_default().push(&agent.name);
            }
        }
        groups.into_values().collect()
    }

    /// Returns the agent whose memory is the file at a path of this machine, by whatever path.
    pub(super) fn agent_of_memory_file(&self, path: &Path) -> Option<&str> {
        self.refresh_shared_memories();
        let mut agents = self.candidates_at(path).into_iter();
        let found = agents.find(|agent| self.is_same_file(path, agent));
        found.map(|agent| agent.name.as_str())
    }

    /// Returns the one of two agents that the config names first.
    fn first_configured(&self, agent: &str, other: String) -> String {
        let mut names = self
            .context
            .config()
            .agents
            .iter()
            .map(|it| it.name.as_str());
        match names.find(|name| *name == agent || *name == other) {
            Some(first) if first == agent => agent.to_string(),
            _ => other,
        }
    }

    fn is_same_file(&self, path: &Path, other: &Agent) -> bool {
        let paths = [path, other.observed_path()].map(Path::to_path_buf);
        match self.read_keys_of(paths.to_vec()).as_slice() {
            [one, other] => one.iter().any(|key| other.contains(key)),
            _ => false,
        }
    }

    fn known(&self) -> MutexGuard<'_, KnownSharing> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the absolute paths of a host's agents, once it is connected.
    fn resolve_paths(&self, host: &SshHost) {
        let Some(agents) = self.known().unresolved_hosts.get(host).cloned() else {
            return;
        };
        let key = |index: usize| {
            let agent = self.context.config().agents.get(index)?;
            let path = self
                .context
                .transport_for(agent)
                .absolute_path(agent.observed_path())?;
            let (host, port, ..) = agent.file_identity();
            Some((index, FileKey::AbsolutePath(host, port, path)))
        };
        let Some(keys) = agents.into_iter().map(key).collect::<Option<Vec<_>>>() else {
            return;
        };
        let mut sharing = self.known();
        // Another thread may have added them.
        if sharing.unresolved_hosts.remove(host).is_none() {
            return;
        }
        for (agent, key) in keys {
            sharing.by_path.add(agent, &key);
        }
    }

    /// Reads what identifies memories of this machine; empty for a memory that cannot be read.
    fn read_file_keys(&self, agents: &[&Agent]) -> Vec<Vec<FileKey>> {
        let memories = agents.iter().map(|it| it.observed_path().to_path_buf());
        self.read_keys_of(memories.collect())
    }

    fn read_keys_of(&self, paths: Vec<PathBuf>) -> Vec<Vec<FileKey>> {
        let found = self
            .context
            .file_systems()
            .inspect_paths(paths, IDENTIFY_TIMEOUT, || read_path_keys);
        found.into_iter().map(Option::unwrap_or_default).collect()
    }
}

/// Resolves the path in the directory that a reset would open: a file behind a symlink is not a
/// memory.
fn read_path_keys(memory: &Path) -> Option<Vec<FileKey>> {
    let directory = durable::open_directory_errno(memory.parent()?).ok()?;
    let name = memory.file_name()?;
    let above = rustix::fs::fstat(&directory).ok()?;
    let mut keys = vec![FileKey::DirectoryEntry(
        file_id(&above),
        name.to_os_string(),
    )];
    let Ok(file) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
        return Some(keys);
    };
    // One name at two paths is a bind mount of the file. Two hard links are two memories: a reset
    // gives each a file of its own, and an agent that creates a link must not keep another agent
    // from being reset.
    let is_file = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
    if is_file && file.st_nlink == 1 {
        keys.push(FileKey::Inode(file_id(&file)));
    }
    Some(keys)
}

fn hash_key(key: &FileKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}
