//! The sweep that backs up the file watcher: it reads only the stamps of local agents, and finds
//! those that the watcher did not report.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use chrono::{DateTime, FixedOffset};

use super::directory_watches::{DirectoryInodes, target_directory_inode};
use super::observation_stamps::{
    AgentStamps, MemoryStamps, ObservationStamps, OtherStamps, target_stamp_of,
};
use crate::base::durable;
use crate::base::file_systems::GroupedByFileSystem;
use crate::base::threads::map_on_processors;
use crate::config::Agent;
use crate::engine::watch::observe::QuickObservation;
use crate::transport::Stamp;

/// Changes that the watcher did not report.
pub(super) struct UnwatchedChanges {
    /// Agents to observe: of hosts, those with new records alone.
    pub agents: Vec<String>,
    /// Whether the configuration file has changed.
    pub has_config_changed: bool,
    /// The directories to watch that exist.
    pub existing_directories: DirectoryInodes,
}

/// Stamps of an agent from before an observation, without those of its memory.
pub(super) struct EarlierStamps {
    other: OtherStamps,
    /// They were read from then on.
    time: DateTime<FixedOffset>,
}

/// Reads the stamps of a memory and its directory. Symlinks are not followed, not even above the
/// memory, because they may lead to a file system that hangs.
fn read_memory_stamps(memory: &Path) -> MemoryStamps {
    let stats = durable::stat_no_symlinks_with_directory(memory);
    let (memory, directory) = stats.map_or((None, None), |(file, directory)| {
        (file.ok(), Some(directory))
    });
    let stamp = |stat| Stamp::from_stat(&stat);
    MemoryStamps::Local {
        memory: memory.map(stamp),
        directory: directory.map(stamp),
    }
}

impl ObservationStamps {
    /// Records the stamps of a local agent right before its observation, whose outcome then has to be
    /// recorded.
    pub(super) fn record_stamps(&self, agent: &Agent) {
        let time = self.watch.context.clock().now();
        for stamps in self.agent_stamps(&[agent]) {
            self.record(&agent.name, stamps, time);
        }
    }

    /// Returns what reads the stamps of local agents besides those of their memories, right before
    /// these are observed.
    pub(super) fn read_earlier_stamps<'a>(&'a self) -> impl Fn(&'a Agent) -> EarlierStamps + Sync {
        let time = self.watch.context.clock().now();
        let reader = self.read();
        move |agent| EarlierStamps {
            other: reader.other_stamps(agent),
            time,
        }
    }

    fn other_stamps(&self, agents: &[&Agent]) -> Vec<OtherStamps> {
        let reader = self.read();
        map_on_processors(agents.to_vec(), || |agent| reader.other_stamps(agent))
    }

    /// Records an observation, and the stamps from before it.
    pub(super) fn record_quick(&self, earlier: EarlierStamps, quick: &QuickObservation) {
        let memory = MemoryStamps::Local {
            memory: Some(quick.memory_stamp),
            directory: Some(quick.directory_stamp),
        };
        let agent = &quick.observation.agent;
        let other = earlier.other;
        let stamps = AgentStamps { memory, other };
        self.record(agent, stamps, earlier.time);
        self.record_outcome(agent, Some(&quick.observation));
    }

    /// Finds the agents with new records or, on this machine, changed stamps, and the existing
    /// directories among those of memories and `others`.
    pub(super) fn find_changes(&self, others: Vec<PathBuf>) -> UnwatchedChanges {
        let mut agents = self.forget_recorded();
        let local_agents = self.watch.context.local_agents();
        let stamps = self.agent_stamps(&local_agents);
        let mut directories: DirectoryInodes = local_agents
            .iter()
            .zip(&stamps)
            .filter_map(|(agent, stamps)| {
                let directory = agent.observed_path().parent()?;
                Some((directory.to_path_buf(), stamps.directory_inode()?))
            })
            .collect();
        directories.extend(self.existing_directories(others));
        let changed = local_agents
            .iter()
            .zip(&stamps)
            .filter_map(|(agent, stamps)| {
                let is_known = self.are_known(&agent.name, stamps);
                (!is_known).then(|| agent.name.clone())
            });
        agents.extend(changed);
        let now = target_stamp_of(&self.watch.context.config().path);
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

    fn existing_directories(
        &self,
        directories: Vec<PathBuf>,
    ) -> impl Iterator<Item = (PathBuf, u64)> {
        let inodes = self.map_by_file_system(directories.clone(), target_directory_inode);
        directories
            .into_iter()
            .zip(inodes)
            .filter_map(|(path, inode)| Some((path, inode.flatten()?)))
    }

    /// Returns the stamps of agents. A memory whose file system does not answer gets no stamps, so the
    /// agent is observed, which reports the problem.
    fn agent_stamps(&self, agents: &[&Agent]) -> Vec<AgentStamps> {
        let memories = agents.iter().map(|agent| agent.observed_path());
        let memories = self.map_by_file_system(
            memories.map(Path::to_path_buf).collect(),
            read_memory_stamps,
        );
        let none = || MemoryStamps::Local {
            memory: None,
            directory: None,
        };
        let others = self.other_stamps(agents).into_iter();
        let stamps = others.zip(memories).map(|(other, memory)| AgentStamps {
            memory: memory.unwrap_or_else(none),
            other,
        });
        stamps.collect()
    }

    /// Applies `probe` to each path, with one call per file system that may hang; None for the
    /// paths on one that hangs.
    fn map_by_file_system<T: Send + 'static>(
        &self,
        paths: Vec<PathBuf>,
        probe: fn(&Path) -> T,
    ) -> Vec<Option<T>> {
        let systems = self.watch.context.file_systems();
        let mut found: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        let mut groups = GroupedByFileSystem::default();
        for (index, system) in systems.find_untrusted_all(&paths).into_iter().enumerate() {
            groups.add(system, index);
        }
        let probe_trusted = |index: usize| (index, probe(&paths[index]));
        for (index, answer) in map_on_processors(groups.trusted, || probe_trusted) {
            found[index] = Some(answer);
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
}
