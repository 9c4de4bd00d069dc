//! The sweep behind the watcher. It asks only for the stamps of what a look at an
//! agent goes by; whose are what they were is not looked at again, so that an idle
//! fleet of thousands costs next to nothing.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::baseline::seal;
use crate::clock::Clock;
use crate::config::Agent;
use crate::durable;
use crate::engine::observe::{Blocker, RECENT_CHANGE};
use crate::engine::{Engine, Observation, lock};
use crate::error::ErrorKind;
use crate::file_systems::GroupedByFileSystem;
use crate::transport::Stamp;

/// What changed unnoticed.
pub(super) struct UnwatchedChanges {
    /// Agents of this machine that should be looked at.
    pub agents: Vec<String>,
    /// Whether the configuration file is another.
    pub has_config_changed: bool,
    /// Which of the directories to watch are there.
    pub existing_directories: HashSet<PathBuf>,
}

/// What is known of the agents of this machine.
pub(super) struct Sweep {
    engine: Arc<Engine>,
    /// What each looked like, by its traces, before it was looked at. Who is not in
    /// here is looked at by every sweep.
    known_stamps: Mutex<HashMap<String, AgentStamps>>,
    config_stamp: Mutex<Option<Stamp>>,
}

/// The stamps of what a look at an agent goes by.
#[derive(PartialEq, Eq)]
struct AgentStamps {
    memory: Option<Stamp>,
    /// A link that takes its place is another.
    directory: Option<Stamp>,
    baseline: Option<Stamp>,
    lock: Option<Stamp>,
    shared: SharedStamps,
}

/// The part of it that is on the memory's own file system.
#[derive(Clone, Copy, Default)]
struct MemoryStamps {
    memory: Option<Stamp>,
    directory: Option<Stamp>,
}

/// Links are not followed, also above the memory: they may lead to a file system that
/// hangs.
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

/// The part of it that agents have in common: seal, ledger, and the records of
/// interrupted runs.
type SharedStamps = [Option<Stamp>; 3];

impl Sweep {
    /// Nobody has been looked at yet.
    pub(super) fn new(engine: &Arc<Engine>) -> Sweep {
        Sweep {
            config_stamp: Mutex::new(target_stamp_of(&engine.config().path)),
            known_stamps: Mutex::default(),
            engine: Arc::clone(engine),
        }
    }

    /// Takes note of an agent, right before it is looked at.
    pub(super) fn record_stamps(&self, agent: &Agent) {
        let engine = &self.engine;
        let seen = self.memory_stamps(&[agent]);
        let trace = self.agent_stamps(
            agent,
            seen[0],
            self.baseline_stamp(agent),
            self.shared_stamps(),
        );
        // Who holds a lock may be killed, which changes no file.
        let held = lock::describe_holder(engine.archive(), &agent.name).is_some();
        let mut known = self.known_stamps();
        match held || trace.is_racy(engine.clock()) {
            true => known.remove(&agent.name),
            false => known.insert(agent.name.clone(), trace),
        };
    }

    /// Takes note of what the look came to. One that failed, for want of a descriptor
    /// say, is repeated: what hindered it changes no stamp.
    pub(super) fn record_outcome(&self, agent: &str, seen: Option<&Observation>) {
        let whole = seen.is_some_and(|seen| {
            let hindered = |block: &Blocker| block.kind != ErrorKind::Integrity;
            seen.is_content_known()
                && seen.ledger_error.is_none()
                && !seen.blocker.as_ref().is_some_and(hindered)
        });
        if !whole {
            self.known_stamps().remove(agent);
        }
    }

    /// Looks for what has changed since, and which directories are there: those of
    /// memories, and these others.
    pub(super) fn find_changes(&self, others: Vec<PathBuf>) -> UnwatchedChanges {
        let common = self.shared_stamps();
        let here = self.engine.config().agents.iter();
        let here: Vec<&Agent> = here
            .filter(|agent| agent.location.host().is_none())
            .collect();
        let seen = self.memory_stamps(&here);
        let there = here
            .iter()
            .zip(&seen)
            .filter(|(_, seen)| seen.directory.is_some());
        let there = there.filter_map(|(agent, _)| agent.location.memory().parent());
        let mut directories: HashSet<PathBuf> = there.map(Path::to_path_buf).collect();
        directories.extend(self.existing_directories(others));
        let mut baselines = HashMap::new();
        let changed = here.iter().zip(seen).filter(|(agent, seen)| {
            let shared = baselines.entry(&agent.baseline);
            let baseline = *shared.or_insert_with(|| self.baseline_stamp(agent));
            let trace = self.agent_stamps(agent, *seen, baseline, common);
            self.known_stamps().get(&agent.name) != Some(&trace)
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
        let there = self.map_by_file_system(directories.clone(), Path::is_dir);
        let directories = directories.into_iter().zip(there);
        let there = directories.filter(|(_, there)| there.unwrap_or_default());
        there.map(|(path, _)| path)
    }

    fn known_stamps(&self) -> MutexGuard<'_, HashMap<String, AgentStamps>> {
        self.known_stamps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn shared_stamps(&self) -> SharedStamps {
        let general = &self.engine.config().general;
        let paths: [PathBuf; 3] = [
            general.baseline_dir.join(seal::MANIFEST_FILE_NAME),
            self.engine.ledger_path(),
            self.engine.archive().program_path("tx"),
        ];
        paths.map(|path| stamp_of(&path))
    }

    /// The stamps of memories and their directories, in order. One that does not answer is
    /// looked at, which says so.
    fn memory_stamps(&self, agents: &[&Agent]) -> Vec<MemoryStamps> {
        let memories = agents.iter().map(|agent| agent.location.memory());
        let seen = self.map_by_file_system(
            memories.map(Path::to_path_buf).collect(),
            read_memory_stamps,
        );
        seen.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Asks something about each path, in one call for all on a file system that may
    /// hang; none for those on one that does.
    fn map_by_file_system<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        probe: fn(&Path) -> T,
    ) -> Vec<Option<T>> {
        let systems = self.engine.file_systems();
        let mut found: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        let mut groups = GroupedByFileSystem::default();
        for (place, system) in systems.find_untrusted_all(&paths).into_iter().enumerate() {
            groups.add(system, place);
        }
        for place in groups.trusted {
            found[place] = Some(probe(&paths[place]));
        }
        for (system, places) in groups.untrusted {
            let own: Vec<PathBuf> = places.iter().map(|place| paths[*place].clone()).collect();
            let asked = system.call(move || own.iter().map(|path| probe(path)).collect::<Vec<T>>());
            for (place, answer) in places.into_iter().zip(asked.unwrap_or_default()) {
                found[place] = Some(answer);
            }
        }
        found
    }

    fn baseline_stamp(&self, agent: &Agent) -> Option<Stamp> {
        let general = &self.engine.config().general;
        stamp_of(&general.baseline_dir.join(&agent.baseline))
    }

    fn agent_stamps(
        &self,
        agent: &Agent,
        seen: MemoryStamps,
        baseline: Option<Stamp>,
        common: SharedStamps,
    ) -> AgentStamps {
        AgentStamps {
            memory: seen.memory,
            directory: seen.directory,
            baseline,
            lock: stamp_of(&lock::holder_path(self.engine.archive(), &agent.name)),
            shared: common,
        }
    }
}

impl AgentStamps {
    /// Whether any of it changed so short a time ago that it may change again
    /// without another stamp.
    fn is_racy(&self, clock: &dyn Clock) -> bool {
        let all = [self.memory, self.directory, self.baseline, self.lock];
        let newest = all.iter().chain(&self.shared).flatten();
        let newest = newest.map(|stamp| stamp.changed.max(stamp.modified)).max();
        let now = clock.now().timestamp_nanos_opt().unwrap_or(i64::MAX);
        newest.is_some_and(|newest| now.saturating_sub(newest) < RECENT_CHANGE.as_nanos() as i64)
    }
}

/// The stamp of what stands at a path; none where nothing can be seen.
fn stamp_of(path: &Path) -> Option<Stamp> {
    rustix::fs::lstat(path)
        .ok()
        .map(|stat| Stamp::from_stat(&stat))
}

/// The same of what a link leads to: the config may be one.
fn target_stamp_of(path: &Path) -> Option<Stamp> {
    rustix::fs::stat(path)
        .ok()
        .map(|stat| Stamp::from_stat(&stat))
}
