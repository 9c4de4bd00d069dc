//! What all services share: the config, the clock, the archive, the store, and access to memories.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;

use crate::archive::Archive;
use crate::base::clock::Clock;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::file_systems::{FileSystem, FileSystems};
use crate::config::{Agent, Config};
use crate::engine::file_owner::FileOwner;
use crate::layouts::Layouts;
use crate::store::Store;
use crate::store::agent_history::AgentHistory;
use crate::store::controller::Controller;
use crate::store::entries::Entries;
use crate::store::file::Locks;
use crate::store::holds::Holds;
use crate::store::journal::Journals;
use crate::store::lease::Leases;
use crate::store::ledger::Ledger;
use crate::store::observations::Observations;
use crate::store::run_log;
use crate::store::trigger::Trigger;
use crate::store::versions::Versions;
use crate::transport::bounded::BoundedTransport;
use crate::transport::{MemoryDirectory, MemoryObject, Transport, TransportError, Transports};

/// Everything that an [`Engine`](crate::engine::Engine) is built from.
pub struct EngineSetup {
    /// The configuration; it does not change during an engine's life.
    pub config: Config,
    /// Source of all times.
    pub clock: Arc<dyn Clock>,
    /// Access to memories, on this machine and on hosts.
    pub transports: Arc<dyn Transports>,
    /// The layouts that agents can have.
    pub layouts: Layouts,
    /// The operator's user name, for the ledger.
    pub user: String,
    /// What starts the runs of this engine.
    pub trigger: Trigger,
    /// The numeric group of `archive_group`, if one is configured.
    pub archive_group: Option<u32>,
}

/// What all services share: the controller, the store of what it keeps, and access to memories.
pub struct Context {
    controller: Arc<Controller>,
    store: Store,
    transports: Arc<dyn Transports>,
    layouts: Layouts,
    /// Knows which file systems of this machine may hang.
    file_systems: Arc<FileSystems>,
}

impl Context {
    /// Creates a context. It reads and writes nothing yet.
    pub(super) fn new(
        controller: Arc<Controller>,
        store: Store,
        transports: Arc<dyn Transports>,
        layouts: Layouts,
    ) -> Context {
        let general = &controller.config().general;
        let limit = Duration::from_secs(general.local_timeout.into());
        let file_systems = FileSystems::new(&general.archive_dir, limit, controller.clock_handle());
        Context {
            controller,
            store,
            transports,
            layouts,
            file_systems: Arc::new(file_systems),
        }
    }

    /// What the controller's own files depend on.
    pub(super) fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        self.controller.config()
    }

    /// Returns the command line of a verb with its arguments, for messages.
    pub fn command_line(&self, verb: &str) -> String {
        self.controller.command_line(verb)
    }

    /// The operator's user name.
    pub fn user(&self) -> &str {
        self.controller.user()
    }

    /// What starts the runs of this process.
    pub fn trigger(&self) -> Trigger {
        self.controller.trigger()
    }

    /// Access to memories, on this machine and on hosts.
    pub(super) fn transports(&self) -> &Arc<dyn Transports> {
        &self.transports
    }

    /// The ledger.
    pub(super) fn ledger(&self) -> &dyn Ledger {
        self.store.ledger.as_ref()
    }

    /// Returns what the records of the ledger say of an agent.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken behind its index.
    pub(super) fn history(&self, agent: &str) -> Result<AgentHistory> {
        self.store.ledger.history(agent)
    }

    /// Appends a line to `reset.log`, about an operation that is not a run.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn log_text(&self, text: &str) -> Result<()> {
        let line = run_log::format_line(self.clock().now(), text);
        run_log::append_lines(self.archive(), &[line])
    }

    /// The entries of the archive.
    pub(super) fn entries(&self) -> &dyn Entries {
        self.store.entries.as_ref()
    }

    /// The locks of agents.
    pub(super) fn locks(&self) -> &Locks {
        &self.store.locks
    }

    /// The leases on agents.
    pub(super) fn leases(&self) -> &dyn Leases {
        self.store.leases.as_ref()
    }

    /// The journals of open turns.
    pub(super) fn journals(&self) -> &dyn Journals {
        self.store.journals.as_ref()
    }

    /// The last known states of agents, and their changes.
    pub(super) fn observations(&self) -> &dyn Observations {
        self.store.observations.as_ref()
    }

    /// The documents that processes change in turn.
    pub(super) fn holds(&self) -> &Arc<dyn Holds> {
        &self.store.holds
    }

    /// The stored versions of baselines.
    pub(super) fn baseline_versions(&self) -> &dyn Versions {
        self.store.versions.as_ref()
    }

    /// The layouts that agents can have.
    pub(super) fn layouts(&self) -> Layouts {
        self.layouts
    }

    /// The archive.
    pub fn archive(&self) -> &Archive {
        self.controller.archive()
    }

    /// Source of all times.
    pub fn clock(&self) -> &dyn Clock {
        self.controller.clock()
    }

    /// Shared handle to the clock, for threads that outlive the context.
    pub fn clock_handle(&self) -> Arc<dyn Clock> {
        self.controller.clock_handle()
    }

    /// Returns the transport that reaches an agent's memory.
    pub(super) fn transport_for(&self, agent: &Agent) -> Arc<dyn Transport> {
        match agent.host() {
            None => self.local_transport(),
            host => self.transports.transport_for(host),
        }
    }

    /// Returns the transport to the files of this machine.
    pub(super) fn local_transport(&self) -> Arc<dyn Transport> {
        let local = self.transports.transport_for(None);
        Arc::new(BoundedTransport::new(local, Arc::clone(&self.file_systems)))
    }

    /// The file systems of this machine, for calls about an agent's directory that no transport
    /// makes.
    pub fn file_systems(&self) -> &Arc<FileSystems> {
        &self.file_systems
    }

    /// Opens the directory of an agent's memory.
    pub(super) fn open_directory(
        &self,
        agent: &Agent,
    ) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        self.open_directory_at(agent, agent.observed_path())
    }

    /// Opens the directory of an agent's former memory, on the agent's current host.
    pub(super) fn open_directory_at(
        &self,
        agent: &Agent,
        memory: &Path,
    ) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        self.transport_for(agent).open_directory(memory)
    }

    /// Reads the beginning of an agent's memory, up to `max_bytes` bytes.
    ///
    /// # Errors
    /// It cannot be read as a file.
    pub(super) fn read_memory_prefix(
        &self,
        agent: &Agent,
        max_bytes: usize,
    ) -> Result<Vec<u8>, TransportError> {
        let mut prefix = Vec::new();
        self.open_directory(agent)?.read_memory(&mut |piece| {
            prefix.extend(&piece[..piece.len().min(max_bytes - prefix.len())]);
            Ok(())
        })?;
        Ok(prefix)
    }

    /// Returns the agent of this name.
    ///
    /// # Errors
    /// [`ErrorKind::User`], with a suggestion, when the config has no such agent.
    pub fn agent(&self, name: &str) -> Result<&Agent> {
        self.controller.agent(name)
    }

    /// Returns the agents whose memories are on this machine.
    pub(super) fn local_agents(&self) -> Vec<&Agent> {
        let agents = self.config().agents.iter();
        agents.filter(|it| it.host().is_none()).collect()
    }

    /// Probes what the path of an agent's memory holds now.
    pub(super) fn probe_memory(&self, agent: &Agent) -> Result<MemoryObject, TransportError> {
        match self
            .transport_for(agent)
            .probe(&[agent.observed_path()])
            .pop()
        {
            Some(answer) => answer,
            None => Err(Error::new(ErrorKind::Internal, "no reply to a probe").into()),
        }
    }

    /// Returns the owner of an agent's memory on this machine; `None` if the memory is on a host
    /// or its file system does not answer.
    pub fn memory_owner(&self, agent: &Agent) -> Option<FileOwner> {
        if agent.remote.is_some() {
            return None;
        }
        let memory = agent.observed_path();
        let path = memory.to_path_buf();
        let stat = self
            .file_systems
            .call(memory, move || durable::stat_no_symlinks(&path));
        FileOwner::from_stat(&stat.ok()?.ok()?, self.clock().zone())
    }

    /// Returns the owner of a memory of this machine that is reset, if it exists; then the owners of
    /// the directories of the agent's memories, who can replace any file in them.
    pub fn memory_owners(&self, agent: &Agent) -> Vec<u32> {
        let directories = agent.local_directories();
        let memory = agent.observed_path();
        let memory = (agent.reset.is_some() && !directories.is_empty()).then_some(memory);
        let owner = |path| durable::stat_no_symlinks(path).ok().map(|it| it.st_uid);
        memory
            .into_iter()
            .chain(directories.into_iter().map(|(_, path)| path))
            .filter_map(owner)
            .collect()
    }

    /// Returns the errors of this machine's file systems that do not answer, each with the agents
    /// whose memories are there.
    pub fn silent_file_systems(&self) -> Vec<(Error, Vec<&str>)> {
        let mut groups: BTreeMap<String, (Arc<FileSystem>, &Path, Vec<&str>)> = BTreeMap::new();
        for agent in self.local_agents() {
            let memory = agent.observed_path();
            if let Some(system) = self.file_systems.find_untrusted(memory) {
                let group = groups
                    .entry(system.display_mount_points())
                    .or_insert_with(|| (system, memory, Vec::new()));
                group.2.push(&agent.name);
            }
        }
        // All probes start before the first is waited for.
        let pending: Vec<_> = groups
            .into_values()
            .map(|(system, memory, agents)| {
                let (reply, answer) = bounded(1);
                let path = memory.to_path_buf();
                let probe = move || {
                    let _ = reply.send(durable::stat_no_symlinks(&path).is_ok());
                };
                (system.start_call(probe).map(|call| (call, answer)), agents)
            })
            .collect();
        pending
            .into_iter()
            .filter_map(|(call, agents)| {
                let answer = call.and_then(|(call, answer)| call.receive(&answer));
                answer.err().map(|error| (error, agents))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;
    use crate::boundary::{MAX_WINDOW_BYTES, memory_window};
    use crate::config::GeneralSettings;
    use crate::engine::Engine;
    use crate::transport::SingleTransport;
    use crate::transport::local::LocalTransport;

    #[test]
    fn memory_prefix_ends_with_its_window() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let memory = root.join("MEMORY.md");
        let mut general = GeneralSettings::new(root.join("baselines"), root.join("archives"));
        general.min_baseline_size = 0;
        let agent = Agent::new(&general, "scout", memory.clone(), "scout.md");
        let clock = Arc::new(SystemClock);
        let engine = Engine::new(EngineSetup {
            config: Config::new(general, vec![agent]).unwrap(),
            transports: Arc::new(SingleTransport(Arc::new(LocalTransport::new(
                clock.clone(),
            )))),
            clock,
            user: "tester".to_string(),
            trigger: Trigger::Cli,
            archive_group: None,
            layouts: Default::default(),
        });
        let context = engine.context();
        let agent = engine.agent("scout").unwrap();
        assert!(context.read_memory_prefix(agent, 10).is_err(), "no memory");
        std::fs::write(&memory, vec![b'\n'; 3 * MAX_WINDOW_BYTES]).unwrap();
        for window in [0, 10, memory_window(0)] {
            let prefix = context.read_memory_prefix(agent, window).unwrap();
            assert_eq!(prefix.len(), window);
        }
    }
}
