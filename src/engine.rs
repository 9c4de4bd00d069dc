//! The engine: everything that is done with agents, without a screen. It knows
//! neither the terminal nor the home directory nor the clock; what it needs of
//! them is passed in.
//!
//! Console and command line call the methods of [`Engine`] and nothing below.

mod address;
mod baseline_change;
mod classify;
mod degraded;
mod fleet;
mod host_status;
mod irreplaceable;
mod kept_objects;
mod ledger;
mod lock;
pub mod memory;
mod observe;
mod parallel;
mod plan;
mod reset;
mod retention;
mod run_history;
mod run_log;
mod semaphore;
mod shared_memories;
mod state;
mod undo;
mod verify;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use baseline_change::{BaselineChange, FileOwner, KnownVersion};
pub use classify::MAX_WINDOW_BYTES;
pub use fleet::{FleetEvent, FleetWatcher};
pub use host_status::HostStatus;
pub use ledger::{FileState, LedgerRecord, Operation, Outcome, RecordRange, RunEvent, Trigger};
pub use lock::{AgentLock as Held, LockQueue};
pub use observe::{Blocker, LastRun, MemoryAddress, MemoryContent, Observation, Protection};
pub use plan::{
    Plan, PlanBinding, PlanStep, READ_ONLY_REASON, SkippedAgent, StepAction, UndoMode, UndoTarget,
    UndoneRun,
};
pub use reset::{AgentResult, RunProgress, RunReport, RunStage, UNCLAIMED_JOURNAL_HINT};
pub use retention::{EntryStatus, RetentionPlan};
pub use run_history::{HistoryEntry, RunDiff, RunDiffSide};
pub use state::State;
pub use verify::{
    Finding, FindingSubject, LedgerSummary, Verification, VerifiedCounts, VerifyProgress,
};

use crate::archive::{self, Archive, WrittenEntry};
use crate::baseline::{BaselineCache, BaselineVersions};
use crate::clock::Clock;
use crate::config::{Agent, Config, MemoryLocation};
use crate::digest::{Digest, Hasher};
use crate::durable;
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::file_systems::FileSystems;
use crate::transport::bounded::BoundedTransport;
use crate::transport::{
    Attributes, MemoryDirectory, MemoryObject, Transport, TransportError, Transports,
};
pub use crate::transport::{ConnectionSetting, ConnectionStatus, Reachability};
pub use degraded::in_place_degradation;
use ledger::{AgentHistory, Ledger, ReverseScan};
use memory::{Baseline, Boundary, BoundaryRule};
use observe::CachedContent;
use shared_memories::SharedMemories;

/// How many earlier versions of its baseline are tried on a memory.
const MAX_EARLIER_VERSIONS: usize = 8;

/// What the fleet looked like, among the archive's own files.
const FLEET_FILE_NAME: &str = "fleet.json";

/// What the engine is made of.
pub struct EngineSetup {
    /// The configuration; it does not change during an engine's life.
    pub config: Config,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Where memories live.
    pub transports: Arc<dyn Transports>,
    /// The operator's user name, for the ledger.
    pub user: String,
    /// Who starts the runs of this engine.
    pub trigger: Trigger,
    /// The numeric group of `archive_group`, if one is configured.
    pub archive_group: Option<u32>,
}

/// Observes agents, plans and applies resets and undos, and keeps the ledger.
pub struct Engine {
    setup: EngineSetup,
    archive: Archive,
    baseline_versions: BaselineVersions,
    ledger: Mutex<Ledger>,
    shared_memories: Mutex<SharedMemories>,
    /// Which of this machine's disks may hang.
    file_systems: Arc<FileSystems>,
    content_cache: Mutex<HashMap<String, CachedContent>>,
    last_generation: AtomicU64,
    /// Until when runs wait for the locks of agents; none if they do not.
    lock_deadline: Option<Instant>,
}

/// Everything about one agent that a person may want to read.
#[derive(Clone, Debug)]
pub struct AgentDetail {
    /// What it looks like now.
    pub observation: Observation,
    /// The baseline version that the memory is measured against, if there is
    /// one: the bytes up to and including its separator line.
    pub operator_part: Option<Vec<u8>>,
    /// The beginning of the memory, up to [`MAX_WINDOW_BYTES`] bytes; empty when there is
    /// none to read.
    pub memory_prefix: Vec<u8>,
    /// How many bytes follow that are not in `memory`.
    pub omitted_bytes: u64,
    /// Whether a separator line ends with CR LF, and that of the baseline does not.
    pub has_cr_lf_separator: bool,
    /// Why there is nothing to read, if there is a reason.
    pub error: Option<String>,
}

impl AgentDetail {
    /// The part of the memory above the boundary, and the scratch below it.
    /// Without a boundary everything is above.
    pub fn split_at_boundary(&self) -> (&[u8], &[u8]) {
        let boundary = self
            .observation
            .content
            .as_ref()
            .and_then(|content| content.boundary);
        let cut = boundary.map_or(self.memory_prefix.len(), |boundary: Boundary| {
            boundary.offset
        });
        self.memory_prefix
            .split_at(cut.min(self.memory_prefix.len()))
    }

    /// What the memory is measured against, where that is not the baseline as it is:
    /// it cannot be used, or it changed since the memory got it.
    pub fn reference_label(&self) -> Option<&'static str> {
        self.operator_part.as_ref()?;
        let seen = &self.observation;
        let boundary = seen.content.as_ref().and_then(|content| content.boundary);
        let version = boundary.and_then(|boundary| match boundary.rule {
            BoundaryRule::Behind(version) | BoundaryRule::Aligned(version) => Some(version),
            BoundaryRule::Intact => None,
        });
        match (seen.baseline, version) {
            (None, _) => Some("last pushed version"),
            (Some(current), Some(version)) if current != version => Some("pushed version"),
            _ => None,
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the engine of {}", self.config().path.display())
    }
}

impl Engine {
    /// An engine for a configuration. Nothing is read or made yet.
    pub fn new(setup: EngineSetup) -> Engine {
        let general = &setup.config.general;
        let archive = Archive::new(
            &general.archive_dir,
            general.archive_mode,
            setup.archive_group,
        );
        let limit = Duration::from_secs(general.local_timeout.into());
        let systems = Arc::new(FileSystems::new(
            &general.archive_dir,
            limit,
            Arc::clone(&setup.clock),
        ));
        Engine {
            file_systems: systems,
            baseline_versions: BaselineVersions::new(&archive),
            ledger: Mutex::new(Ledger::new(&archive)),
            shared_memories: Mutex::new(SharedMemories::from_agents(&setup.config.agents)),
            archive,
            setup,
            content_cache: Mutex::default(),
            last_generation: AtomicU64::new(1),
            lock_deadline: None,
        }
    }

    /// An engine whose runs wait for agents that other runs have locked, until a time from
    /// now on is over.
    #[must_use]
    pub fn with_lock_timeout(self, timeout: Duration) -> Engine {
        let end = self.clock().instant() + timeout;
        Engine {
            lock_deadline: (!timeout.is_zero()).then_some(end),
            ..self
        }
    }

    /// Whether its runs wait for agents that other runs have locked.
    pub fn has_lock_timeout(&self) -> bool {
        self.lock_deadline.is_some()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.setup.config
    }

    /// The command line of a verb with its arguments, for messages.
    pub fn command_line(&self, verb: &str) -> String {
        self.config().invocation.command_line(verb)
    }

    /// The archive.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Where times come from.
    pub fn clock(&self) -> &dyn Clock {
        self.setup.clock.as_ref()
    }

    /// The same, for those who outlive the engine.
    pub fn clock_handle(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.setup.clock)
    }

    /// The transport that an agent's memory is reached by.
    fn transport_for(&self, location: &MemoryLocation) -> Arc<dyn Transport> {
        match location.host() {
            None => {
                let local = self.setup.transports.transport_for(None);
                Arc::new(BoundedTransport::new(local, Arc::clone(&self.file_systems)))
            }
            host => self.setup.transports.transport_for(host),
        }
    }

    /// The file systems of this machine, for calls about an agent's directory that
    /// no transport makes.
    pub fn file_systems(&self) -> &Arc<FileSystems> {
        &self.file_systems
    }

    /// Opens the directory of an agent's memory.
    fn open_directory(&self, agent: &Agent) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        self.open_directory_at(agent, agent.location.memory())
    }

    /// Opens the directory of a memory that was an agent's once, where the agent is.
    fn open_directory_at(
        &self,
        agent: &Agent,
        memory: &Path,
    ) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        self.transport_for(&agent.location).open_directory(memory)
    }

    /// The agent of this name.
    ///
    /// # Errors
    /// [`ErrorKind::User`], with a suggestion, when there is none.
    pub fn agent(&self, name: &str) -> Result<&Agent> {
        let config = self.config();
        config.agent(name).ok_or_else(|| {
            let error = Error::new(ErrorKind::User, format!("there is no agent called {name}"));
            match config.suggest_agent(name) {
                Some(near) => error.with_hint(format!("did you mean {near}?")),
                None => error.with_hint(format!("`{}` lists them", self.command_line("status"))),
            }
        })
    }

    /// The records of the ledger from the last one back, and where it ends. What the
    /// index covers is checked only as far as it is read.
    fn scan_ledger_backwards(&self) -> Result<(ReverseScan, ledger::LedgerPosition)> {
        self.ledger().scan_backwards()
    }

    /// The record that ends at a place of the ledger.
    fn read_record_at(&self, position: ledger::LedgerPosition) -> Result<LedgerRecord> {
        ledger::read_record_at(&self.ledger_path(), position)
    }

    /// The attributes in an event, or in the record that it names instead.
    fn event_attributes(&self, event: &RunEvent) -> Result<Option<Attributes>> {
        match (&event.attributes, event.attributes_position) {
            (None, Some(place)) => Ok(self.read_record_at(place)?.event.attributes),
            (attributes, _) => Ok(attributes.clone()),
        }
    }

    /// Appends to the ledger: all of the events are on the disk when it returns,
    /// or none is recorded. Whoever only reads it never waits for the lock, which
    /// another process may hold for long.
    fn append_to_ledger(&self, events: Vec<RunEvent>) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let locked = Ledger::lock_for_append(&self.archive, self.clock())?;
        self.ledger().append(locked, events, self.clock())
    }

    /// Number and digest of the ledger's last record.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub fn ledger_head(&self) -> Result<(u64, Digest)> {
        self.ledger().head()
    }

    /// Where the ledger is.
    pub fn ledger_path(&self) -> PathBuf {
        self.ledger().path().to_path_buf()
    }

    /// An agent with the bytes that a person may want to read.
    pub fn read_detail(&self, agent: &Agent) -> AgentDetail {
        let baselines = Mutex::new(BaselineCache::new(self.config()));
        let seen = self.observe_with_bytes(agent, &baselines);
        let content = seen.observation.content.as_ref();
        let baseline = seen.baseline.as_deref();
        AgentDetail {
            has_cr_lf_separator: baseline
                .is_some_and(|it| memory::has_cr_lf_separator(&seen.prefix, it)),
            operator_part: seen.operator_part,
            omitted_bytes: content.map_or(0, |content| content.size - seen.prefix.len() as u64),
            error: match content {
                Some(_) => None,
                None => Some(seen.observation.reason.clone()),
            },
            memory_prefix: seen.prefix,
            observation: seen.observation,
        }
    }

    /// The beginning of an entry, up to `most` bytes. All of it is read, and is what
    /// the ledger says of it.
    ///
    /// # Errors
    /// An entry that cannot be read, or holds something else.
    pub fn read_entry(&self, written: &WrittenEntry, max_bytes: usize) -> Result<Vec<u8>> {
        let path = self.archive.root().join(&written.path);
        let mut file = self.archive.open_entry(&written.path)?;
        let mut bytes = Vec::new();
        (&mut file)
            .take(max_bytes as u64)
            .read_to_end(&mut bytes)
            .with_path("read", &path)?;
        let mut hasher = Hasher::default();
        hasher.update(&bytes);
        let mut buffer = vec![0; 128 * 1024];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => hasher.update(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from_io("read", &path, &error)),
            }
        }
        if hasher.finish() == written.digest {
            return Ok(bytes);
        }
        let message = format!(
            "{} is not what was archived: the ledger has another digest of it",
            path.display()
        );
        let verify = self.command_line("verify");
        Err(Error::new(ErrorKind::Integrity, message).with_hint(format!("`{verify}` tells more")))
    }

    /// Keeps what the fleet looked like, for the first screen of the next time.
    ///
    /// # Errors
    /// When the archive cannot be written.
    pub fn save_observations(&self, seen: &[Observation]) -> Result<()> {
        self.archive
            .open_or_create_directory(archive::PROGRAM_DIRECTORY_NAME.as_ref())?;
        let text = serde_json::to_vec(seen).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("cannot write states: {error}"))
        })?;
        self.archive
            .replace_program_file(&self.archive.program_path(FLEET_FILE_NAME), &text)
    }

    /// What the fleet looked like the last time; nothing when that is not known.
    pub fn load_observations(&self) -> Vec<Observation> {
        let text =
            durable::read_own_file(&self.archive.program_path(FLEET_FILE_NAME)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn next_generation(&self) -> u64 {
        self.last_generation.fetch_add(1, Ordering::Relaxed)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cached_content(&self, agent: &str) -> Option<CachedContent> {
        self.content_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(agent)
            .cloned()
    }

    fn store_cached_content(&self, agent: &str, cached: CachedContent) {
        let mut cache = self
            .content_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cache.insert(agent.to_string(), cached);
    }

    fn ledger_history(&self, agent: &str) -> Result<AgentHistory> {
        self.ledger().history(agent)
    }

    /// The versions pushed to an agent, the last one first. One that is the
    /// current baseline stays in its place: a memory that drifted is measured
    /// against what was pushed last.
    fn earlier_versions(
        &self,
        agent: &Agent,
        history: &AgentHistory,
        current: Option<&Arc<Baseline>>,
    ) -> Vec<Arc<Baseline>> {
        let version = |digest: &Digest| match current {
            Some(current) if current.digest() == *digest => Some(Arc::clone(current)),
            _ => self.load_version(agent, *digest).map(Arc::new),
        };
        history.pushed_versions.iter().filter_map(version).collect()
    }

    fn load_version(&self, agent: &Agent, digest: Digest) -> Option<Baseline> {
        let bytes = self.baseline_versions.read_version(digest).ok()?;
        Some(Baseline::new(bytes.to_vec(), &agent.separator))
    }

    /// What stands at the name of an agent's memory now.
    fn probe_memory(&self, location: &MemoryLocation) -> Result<MemoryObject, TransportError> {
        match self
            .transport_for(location)
            .probe(&[location.memory()])
            .pop()
        {
            Some(answer) => answer,
            None => Err(Error::new(ErrorKind::Internal, "a probe was not answered").into()),
        }
    }
}
