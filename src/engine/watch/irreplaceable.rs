//! Memories of this machine whose path in the config no reset can replace: an object that is not a
//! file, a mount point, a path through a symlink. Such an object counts as the agent's doing where
//! the ledger has a file at that path before.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::{degraded, parallel};
use crate::base::durable;
use crate::base::error::{Error, ErrorKind};
use crate::config::Agent;
use crate::engine::watch::MemoryChecks;
use crate::store::agent_history::AgentHistory;
use crate::transport::{MemoryObject, SpecialFile};

/// Maximum wait for a file system to resolve a path.
const PATH_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

impl MemoryChecks {
    /// Agents of this machine whose memory no run can replace, for want of another path in the config
    /// or of `accept_degraded`, each with the key of the path and the reason.
    pub fn irreplaceable_memories(&self) -> Vec<(&Agent, &'static str, Error)> {
        let faults = self.local_agents_with_fault(|agent| {
            agent.reset.as_ref()?;
            let mount_error = || {
                let properties = self.context.open_directory(agent).ok()?.properties().ok()?;
                degraded::in_place_degradation(agent, &properties.swap_forecast).err()
            };
            self.find_misplacement(agent).or_else(mount_error)
        });
        let faults = faults.into_iter();
        let faults = faults.map(|(agent, error)| (agent, agent.observed_key(), error));
        faults.chain(self.symlinked_memories()).collect()
    }

    /// Returns the agents of this machine whose memory is a directory, symlink, FIFO, socket or
    /// device and, by the ledger, never was a file, or is absent beside a file of nearly the same
    /// name, each with the reason why it is not reset.
    pub fn misplaced_memories(&self) -> Vec<(&Agent, Error)> {
        self.local_agents_with_fault(|agent| self.find_misplacement(agent))
    }

    /// Returns the agents of this machine whose memory is behind a symlink. Resolves only the path,
    /// and does not open its target.
    fn symlinked_memories(&self) -> Vec<(&Agent, &'static str, Error)> {
        let local = self.context.local_agents().into_iter();
        let named = local.flat_map(|agent| {
            let directories = agent.local_directories().into_iter();
            directories.map(move |(key, path)| (agent, key, path))
        });
        let named: Vec<(&Agent, &'static str, &Path)> = named.collect();
        let paths = named.iter().map(|(.., path)| path.to_path_buf()).collect();
        let without_link = || durable::resolve_first_symlink;
        let systems = self.context.file_systems();
        let real = systems.inspect_paths(paths, PATH_CHECK_TIMEOUT, without_link);
        let linked = named.into_iter().zip(real);
        let linked = linked.filter_map(|((agent, key, directory), real)| {
            let (path, real) = match key {
                "memory_dir" => (directory, real?),
                _ => {
                    let memory = agent.observed_path();
                    (memory, real?.join(memory.file_name()?))
                }
            };
            let message = format!("{} is reached through a symlink", path.display());
            let hint = format!("set {key} to its real path: {}", real.display());
            let error = Error::new(ErrorKind::Host, message).with_hint(hint);
            Some((agent, key, error))
        });
        linked.collect()
    }

    /// Returns the agents of this machine that have this fault. File systems that hang are waited
    /// for at the same time.
    fn local_agents_with_fault(
        &self,
        fault: impl Fn(&Agent) -> Option<Error> + Sync,
    ) -> Vec<(&Agent, Error)> {
        let local = self.context.local_agents();
        let found = parallel::read_agents_by_site(
            &self.hosts,
            &local,
            || &fault,
            |agents, _| vec![None; agents.len()],
        );
        let found = local.into_iter().zip(found);
        found
            .filter_map(|(agent, error)| Some((agent, error?)))
            .collect()
    }

    fn find_misplacement(&self, agent: &Agent) -> Option<Error> {
        agent.reset.as_ref()?;
        match self.context.probe_memory(agent) {
            Ok(MemoryObject::Special(special)) => {
                let history = self.context.history(&agent.name).unwrap_or_default();
                self.misplacement_error(agent, &history, &special)
            }
            Ok(MemoryObject::Absent) => {
                let directory = self.context.open_directory(agent).ok()?;
                let history = self.context.history(&agent.name).unwrap_or_default();
                self.find_similar_file(agent, &history, directory.as_ref())?
                    .refusal
            }
            _ => None,
        }
    }

    /// Returns whether an earlier run found or left a file at the path of the agent's memory.
    pub(in crate::engine) fn has_file_record(agent: &Agent, history: &AgentHistory) -> bool {
        let mut recorded = history.file_address.iter();
        recorded.any(|file| file.is_compatible_with(agent))
    }

    /// Returns why an object in place of a memory is not displaced: no earlier run found or left
    /// a file there.
    pub(in crate::engine) fn misplacement_error(
        &self,
        agent: &Agent,
        history: &AgentHistory,
        special: &SpecialFile,
    ) -> Option<Error> {
        if !special.needs_file_record() || MemoryChecks::has_file_record(agent, history) {
            return None;
        }
        let memory = agent.observed_path();
        let message = format!(
            "{} is {special}, and the ledger has no record of a file there",
            memory.display()
        );
        let key = agent.observed_key();
        let hint = match special {
            SpecialFile::Directory => format!(
                "add the name of the file to {key}; if the path is right, move the directory away"
            ),
            SpecialFile::Symlink(target) => {
                let parent = memory.parent().unwrap_or(Path::new("/"));
                let target = parent.join(OsStr::from_bytes(target));
                format!(
                    "set {key} to the file that the link leads to, {}; if the path is right, move \
                     the link away",
                    target.display()
                )
            }
            _ => format!("set {key} to the path of a file; if the path is right, remove {special}"),
        };
        let error = Error::new(ErrorKind::Conflict, self.scanner.mask_secrets_in(&message));
        Some(error.with_hint(self.scanner.mask_secrets_in(&hint)))
    }
}
