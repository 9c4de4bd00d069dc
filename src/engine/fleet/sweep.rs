//! The sweep that backs up the file watcher. It reads only the stamps that an observation of an
//! agent depends on, and agents with unchanged stamps are not observed again, so that an idle fleet
//! of thousands costs next to nothing.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::baseline::seal;
use crate::clock::Clock;
use crate::config::Agent;
use crate::durable;
use crate::engine::content_cache::RECENT_CHANGE;
use crate::engine::observation::Blocker;
use crate::engine::{Engine, Observation, lock};
use crate::error::ErrorKind;
use crate::file_systems::GroupedByFileSystem;
use crate::transport::Stamp;

/// Changes that the watcher did not report.
pub(super) struct UnwatchedChanges {
    /// Local agents to observe.
    pub agents: Vec<String>,
    /// Whether the configuration file has changed.
    pub has_config_changed: bool,
    /// The directories to watch that exist.
    pub existing_directories: HashSet<PathBuf>,
}

/// The known stamps of the local agents.
pub(super) struct Sweep {
    engine: Arc<Engine>,
    /// The stamps of each agent before its last observation. An agent without known stamps is
    /// observed by every sweep.
    known_stamps: Mutex<HashMap<String, AgentStamps>>,
    config_stamp: Mutex<Option<Stamp>>,
}

/// The stamps that an observation of an agent depends on.
#[derive(PartialEq, Eq)]
struct AgentStamps {
    memory: Option<Stamp>,
    /// A symlink that replaces the directory has another stamp.
    directory: Option<Stamp>,
    baseline: Option<Stamp>,
    lock: Option<Stamp>,
    shared: SharedStamps,
}

/// The stamps on the memory's own file system.
#[derive(Clone, Copy, Default)]
struct MemoryStamps {
    memory: Option<Stamp>,
    directory: Option<Stamp>,
}

/// Reads the stamps of a memory and its directory. Symlinks are not followed, not even above the
/// memory, because they may lead to a file system that hangs.
fn read_memory_stamps(memory: &Path) -> MemoryStamps {
    let stats = durable::stat_no_symlinks_with_directory(memory);
    let (memory, directory) = stats.map_or((None, None), |(file, directory)| {
        (file.ok(), Some(directory))
    });
    let stamp = |stat| Stamp::from_stat(&stat);
    MemoryStamps {
        memory: memory.map(stamp),
        directory: directory.map(stamp),
    }
}

/// The stamps that all agents share: the files of the seal, its signers, the ledger, and the directory
/// of journals.
type SharedStamps = [Option<Stamp>; 6];

impl Sweep {
    /// Creates a sweep without known stamps.
    pub(super) fn new(engine: &Arc<Engine>) -> Sweep {
        Sweep {
            config_stamp: Mutex::new(target_stamp_of(&engine.config().path)),
            known_stamps: Mutex::default(),
            engine: Arc::clone(engine),
        }
    }

    /// Records the stamps of an agent right before its observation.
    pub(super) fn record_stamps(&self, agent: &Agent) {
        let engine = &self.engine;
        let seen = self.memory_stamps(&[agent]);
        let stamps = self.agent_stamps(
            agent,
            seen[0],
            self.baseline_stamp(agent),
            self.shared_stamps(),
        );
        // The holder of a lock may be killed, which changes no file.
        let is_locked = lock::is_agent_locked(engine.archive(), &agent.name);
        let mut known = self.known_stamps();
        if is_locked || stamps.is_racy(engine.clock()) {
            known.remove(&agent.name);
        } else {
            known.insert(agent.name.clone(), stamps);
        }
    }

    /// Records the stamps of many agents right before their observation, whose outcome then has to be
    /// recorded: that of a locked agent is repeated.
    pub(super) fn record_all_stamps(&self, agents: &[&Agent]) {
        let shared = self.shared_stamps();
        let memories = self.memory_stamps(agents);
        let mut baselines = HashMap::new();
        for (agent, seen) in agents.iter().zip(memories) {
            let baseline = baselines.entry(&agent.baseline);
            let baseline = *baseline.or_insert_with(|| self.baseline_stamp(agent));
            let stamps = self.agent_stamps(agent, seen, baseline, shared);
            if !stamps.is_racy(self.engine.clock()) {
                self.known_stamps().insert(agent.name.clone(), stamps);
            }
        }
    }

    /// Records the outcome of an observation. One that failed, for example for lack of file
    /// descriptors, is repeated, because the cause changes no stamp.
    pub(super) fn record_outcome(&self, agent: &str, seen: Option<&Observation>) {
        let is_complete = seen.is_some_and(|seen| {
            let hindered = |block: &Blocker| block.kind != ErrorKind::Integrity;
            seen.is_content_known()
                && seen.ledger_error.is_none()
                && !seen.blocker.as_ref().is_some_and(hindered)
        });
        if !is_complete {
            self.known_stamps().remove(agent);
        }
    }

    /// Finds the agents with changed stamps, and the existing directories among those of memories
    /// and `others`.
    pub(super) fn find_changes(&self, others: Vec<PathBuf>) -> UnwatchedChanges {
        let shared_stamps = self.shared_stamps();
        let local_agents: Vec<&Agent> = self
            .engine
            .config()
            .agents
            .iter()
            .filter(|agent| agent.location.host().is_none())
            .collect();
        let seen = self.memory_stamps(&local_agents);
        let mut directories: HashSet<PathBuf> = local_agents
            .iter()
            .zip(&seen)
            .filter(|(_, seen)| seen.directory.is_some())
            .filter_map(|(agent, _)| agent.location.memory().parent())
            .map(Path::to_path_buf)
            .collect();
        directories.extend(self.existing_directories(others));
        let mut baselines = HashMap::new();
        let changed = local_agents.iter().zip(seen).filter(|(agent, seen)| {
            let shared = baselines.entry(&agent.baseline);
            let baseline = *shared.or_insert_with(|| self.baseline_stamp(agent));
            let stamps = self.agent_stamps(agent, *seen, baseline, shared_stamps);
            self.known_stamps().get(&agent.name) != Some(&stamps)
        });
        let agents = changed.map(|(agent, _)| agent.name.clone()).collect();
        let now = target_stamp_of(&self.engine.config().path);
        let mut before = self
            .config_stamp
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        UnwatchedChanges {
            agents,
            has_config_changed: std::mem::replace(&mut *before, now) != now,
            existing_directories: directories,
        }
    }

    fn existing_directories(&self, directories: Vec<PathBuf>) -> impl Iterator<Item = PathBuf> {
        let exists = self.map_by_file_system(directories.clone(), Path::is_dir);
        directories
            .into_iter()
            .zip(exists)
            .filter(|(_, exists)| exists.unwrap_or_default())
            .map(|(path, _)| path)
    }

    fn known_stamps(&self) -> MutexGuard<'_, HashMap<String, AgentStamps>> {
        self.known_stamps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn shared_stamps(&self) -> SharedStamps {
        let general = &self.engine.config().general;
        let paths: [PathBuf; 6] = [
            general.baseline_dir.join(seal::SEAL_FILE_NAME),
            general.baseline_dir.join(seal::META_FILE_NAME),
            general.baseline_dir.join(seal::SIGNATURE_FILE_NAME),
            general.seal_signers.clone().unwrap_or_default(),
            self.engine.ledger_path(),
            self.engine.archive().program_path("tx"),
        ];
        paths.map(|path| stamp_of(&path))
    }

    /// Returns the stamps of the agents' memories and directories, in order. A memory whose file
    /// system does not answer gets no stamps, so the agent is observed, which reports the problem.
    fn memory_stamps(&self, agents: &[&Agent]) -> Vec<MemoryStamps> {
        let memories = agents.iter().map(|agent| agent.location.memory());
        let seen = self.map_by_file_system(
            memories.map(Path::to_path_buf).collect(),
            read_memory_stamps,
        );
        seen.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Applies `probe` to each path, with one call per file system that may hang; None for the
    /// paths on one that hangs.
    fn map_by_file_system<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        probe: fn(&Path) -> T,
    ) -> Vec<Option<T>> {
        let systems = self.engine.file_systems();
        let mut found: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        let mut groups = GroupedByFileSystem::default();
        for (index, system) in systems.find_untrusted_all(&paths).into_iter().enumerate() {
            groups.add(system, index);
        }
        for index in groups.trusted {
            found[index] = Some(probe(&paths[index]));
        }
        for (system, indexes) in groups.untrusted {
            let group_paths: Vec<PathBuf> =
                indexes.iter().map(|index| paths[*index].clone()).collect();
            let answers = system.call(move || {
                group_paths
                    .iter()
                    .map(|path| probe(path))
                    .collect::<Vec<T>>()
            });
            for (index, answer) in indexes.into_iter().zip(answers.unwrap_or_default()) {
                found[index] = Some(answer);
            }
        }
        found
    }

    fn baseline_stamp(&self, agent: &Agent) -> Option<Stamp> {
        stamp_of(&self.engine.config().baseline_path(agent))
    }

    fn agent_stamps(
        &self,
        agent: &Agent,
        seen: MemoryStamps,
        baseline: Option<Stamp>,
        shared_stamps: SharedStamps,
    ) -> AgentStamps {
        AgentStamps {
            memory: seen.memory,
            directory: seen.directory,
            baseline,
            lock: stamp_of(&lock::holder_path(self.engine.archive(), &agent.name)),
            shared: shared_stamps,
        }
    }
}

impl AgentStamps {
    /// Whether any of the objects changed so recently that it may change again without a new stamp.
    fn is_racy(&self, clock: &dyn Clock) -> bool {
        let all = [self.memory, self.directory, self.baseline, self.lock];
        let stamps = all.iter().chain(&self.shared).flatten();
        let newest = stamps.map(|stamp| stamp.changed.max(stamp.modified)).max();
        let now = clock.now().timestamp_nanos_opt().unwrap_or(i64::MAX);
        newest.is_some_and(|newest| now.saturating_sub(newest) < RECENT_CHANGE.as_nanos() as i64)
    }
}

/// Returns the stamp of the object at a path; None if it cannot be read.
fn stamp_of(path: &Path) -> Option<Stamp> {
    rustix::fs::lstat(path)
        .ok()
        .map(|stat| Stamp::from_stat(&stat))
}

/// Returns the stamp of the object at a path with symlinks followed: the config may be a symlink.
fn target_stamp_of(path: &Path) -> Option<Stamp> {
    rustix::fs::stat(path)
        .ok()
        .map(|stat| Stamp::from_stat(&stat))
}
