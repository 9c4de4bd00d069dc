//! The engine: observes, plans, resets and undoes agents, and keeps archive and ledger. Console and
//! command line call the methods of [`Engine`] and nothing below.
//!
//! It owns no terminal and reads neither the home directory nor the clock by itself: the caller
//! passes them in as [`EngineSetup`].

mod baselines;
mod kept_scratch;
mod plan_budget;
mod probe;
mod records;
mod runs;
mod shared_memories;
mod store;
mod watch;

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use baselines::catalog::{
    BaselineHistoryPage, BaselineList, BaselineState, BaselineSummary, BaselineVersion,
    FindingCounts, LastPush, SizeBand,
};
pub use baselines::change::{BaselineChange, FileOwner, KnownVersion};
pub use baselines::drafts::{BaselineDraft, DraftFile, DraftId, FoundDrafts};
pub use baselines::file::BaselineFile;
pub use baselines::guard::{GuardAction, GuardEvent, GuardPass, GuardProgress};
pub use baselines::lint::{
    BaselineLint, FixedFile, LintDecisions, LintedFile, fix_draft, lint_text,
};
pub use baselines::opening::{BaselineUser, OpenedBaseline, SealMatch};
pub use baselines::plan::{BaselineAction, BaselinePlan, PlannedBaseline, TextReplacement};
pub use baselines::rule_change::{NextRuleChange, PushedVersions};
pub use baselines::save::{BaselineEdit, BaselineWriter, SavedBaseline, TextOrigin};
pub use baselines::seal::SealReport;
pub use baselines::seal_plan::{SealChange, SealChangeKind, SealPlan, SealScope, list_lint_errors};
pub use kept_scratch::{ChosenLines, KeptScratch, LineRange, ScratchRequest, ScratchSelection};
pub use probe::{CAP_CHOWN, CAP_LEASE, has_capability};
pub use records::archive_growth::ArchiveGrowth;
pub use records::entry_export::ExportReport;
pub use records::last_success::{RunCounts, TimedReset};
pub use records::report::{
    BrokenSealReport, DriftReport, FailureReport, FindingsReport, FleetReport, GrowthReport,
    GuardReport, HostReport, LateWriterReport, ReportLevel, ReportRow, RunTotals, StateReport,
};
pub use records::run_history::{AgentHistoryPage, HistoryEntry, RunDiff, RunDiffSide, UserRun};
pub use records::search::{
    ComparedTexts, EntryComparison, FoundEntry, FoundLine, FoundMemory, FoundText, IndexProgress,
    SearchRelaxation, SearchRequest, SearchResult, SourceText, SyncReport, TextSource,
};
pub use records::three_way::{DriftPoint, RuleComparison};
pub use records::timeline::{
    AgentTimeline, EntryPresence, TimelineEntry, TimelineRow, TimelineSubject, UnchangedRuns,
};
pub use records::verify::{
    Finding, FindingSubject, LedgerSummary, Verification, VerifiedCounts, VerifyProgress,
};
pub use runs::plan::{
    Plan, PlanBinding, PlanStep, READ_ONLY_REASON, RetentionPlan, SkippedAgent, StepAction,
    UndoMode, UndoTarget, UndoneRun,
};
pub use runs::preconditions::SealStatus;
pub use runs::reset::InterruptedTurn;
pub use runs::retention::{
    AgentRetention, EntryList, EntryStatus, ExpiringEntry, KeepReason, KeptEntries, PruneReport,
    RetentionOverview, ShorterRetention, VersionRetention,
};
pub use runs::run_report::{AgentResult, RunProgress, RunReport, RunStage};
pub use shared_memories::HardLinks;
pub use store::address::MemoryAddress;
pub use store::entry_directories::EntryDirectory;
pub use store::entry_records::RecordedEntries;
pub use store::journal::UNCLAIMED_JOURNAL_HINT;
pub use store::ledger::{RecordRange, SegmentReport};
pub use store::lock::{
    AgentLock as Held, HeldLock, HolderLock, HolderLockKind, LockHolder, LockQueue, ScheduleLock,
    describe_holder, describe_lock,
};
pub use store::observation::{Blocker, MemoryContent, Observation, Protection};
pub use store::record::{FileState, LastRun, LedgerRecord, Operation, Outcome, RunEvent, Trigger};
pub use store::scan_basis::ScanBasis;
pub use store::state::State;
pub use store::state_log::{StateChange, StateObserver};
pub use store::unchanged_agents::{UnchangedAgents, UnchangedDetails};
pub use watch::classify::MAX_WINDOW_BYTES;
pub use watch::fleet::{FleetEvent, FleetWatcher, describe_watch_error, start_directory_watcher};
pub use watch::host_status::HostStatus;
pub use watch::saved_observations::SavedObservations;

use crate::archive::{Archive, ExpectedArchive, WrittenEntry};
use crate::baseline::signatures::SealVerifier;
use crate::baseline::{self, BaselineCache, BaselineVersions, InspectedBaseline};
use crate::boundary::{Baseline, Boundary, BoundaryRule, with_line_ends_of};
use crate::clock::Clock;
use crate::config::{Agent, Config, MemoryLocation};
use crate::digest::{Digest, Hasher};
use crate::durable;
pub use crate::durable::resolve_first_symlink;
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::file_systems::FileSystems;
use crate::transport::bounded::BoundedTransport;
use crate::transport::{
    Attributes, MemoryDirectory, MemoryObject, Transport, TransportError, Transports,
};
pub use crate::transport::{ConnectionSetting, ConnectionStatus, Reachability, SwapMethod};
use store::ledger::{AgentHistory, Ledger, LedgerFiles, LockedLedger, MovedRecords, ReverseScan};
use watch::content_cache::ContentCache;

use shared_memories::SharedMemories;

/// Maximum number of earlier versions of its baseline that are tried on a memory.
const MAX_EARLIER_VERSIONS: usize = 8;

/// Everything that an [`Engine`] is built from.
pub struct EngineSetup {
    /// The configuration; it does not change during an engine's life.
    pub config: Config,
    /// Source of all times.
    pub clock: Arc<dyn Clock>,
    /// Access to memories, on this machine and on hosts.
    pub transports: Arc<dyn Transports>,
    /// The operator's user name, for the ledger.
    pub user: String,
    /// What starts the runs of this engine.
    pub trigger: Trigger,
    /// The numeric group of `archive_group`, if one is configured.
    pub archive_group: Option<u32>,
}

/// Observes agents, plans and applies resets and undos, and keeps the ledger.
pub struct Engine {
    setup: EngineSetup,
    archive: Archive,
    baseline_versions: BaselineVersions,
    seal_verifier: SealVerifier,
    /// When the guard found a seal that cannot be used, and did not put it back yet.
    seal_broken_since: Mutex<Option<Instant>>,
    /// The file at which the last pass of the guard had no more time.
    guard_position: Mutex<Option<String>>,
    guard_pauses: baselines::guard::GuardPauses,
    finding_counts: baselines::lint::FindingCountCache,
    scan_decisions: watch::scan::DecisionCache,
    ledger: Mutex<Ledger>,
    shared_memories: Mutex<SharedMemories>,
    /// Knows which file systems of this machine may hang.
    file_systems: Arc<FileSystems>,
    content_cache: ContentCache,
    remote_texts: records::search::RemoteTexts,
    index_state: Mutex<records::search::IndexState>,
    known_entries: Mutex<store::entry_records::KnownEntries>,
    state_cache: store::state_log::StateCache,
    last_generation: AtomicU64,
    /// End of the wait for agents' locks; none if runs do not wait.
    lock_deadline: Option<Instant>,
}

/// One agent in full: its observation and the bytes of its memory.
#[derive(Clone, Debug)]
pub struct AgentDetail {
    /// The agent's state at the time of the read.
    pub observation: Observation,
    /// The baseline version that the memory is measured against, if there is one: the bytes up to
    /// and including its separator line.
    pub operator_part: Option<Vec<u8>>,
    /// The operator part that a reset installs, where the memory holds that of an earlier version.
    pub next_operator_part: Option<Vec<u8>>,
    /// The beginning of the memory, up to [`MAX_WINDOW_BYTES`] bytes; empty when there is none to
    /// read.
    pub memory_prefix: Vec<u8>,
    /// Number of bytes of the memory behind `memory_prefix`.
    pub omitted_bytes: u64,
    /// Why the memory could not be read, if it could not.
    pub error: Option<String>,
}

impl AgentDetail {
    /// Splits the prefix into the part above the boundary and the scratch below it. Without a
    /// boundary everything is above.
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

    /// Returns the two texts of the live diff, old and new; `None` without a baseline. They are the
    /// baseline and what the agent made of it above the boundary; where the memory is behind, its
    /// rules and those that a reset installs. The old one has the line ends of the new one.
    pub fn compared_parts(&self) -> Option<(Cow<'_, [u8]>, &[u8])> {
        let old = self.operator_part.as_deref()?;
        let new = match &self.next_operator_part {
            Some(next) => next,
            None => self.split_at_boundary().0,
        };
        Some((with_line_ends_of(old, new), new))
    }

    /// Names the version that the memory is measured against, where that is not the current
    /// baseline: the baseline cannot be used, or changed since it was pushed.
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
    /// Creates an engine. It reads and writes nothing yet.
    pub fn new(setup: EngineSetup) -> Engine {
        let general = &setup.config.general;
        let archive = Archive::new(
            &general.archive_dir,
            general.archive_mode,
            setup.archive_group,
        );
        let expected =
            |id| ExpectedArchive::new(id, store::ledger::read_archive_id, &setup.config.path);
        let archive = archive.with_expected(general.archive_id.map(expected));
        let limit = Duration::from_secs(general.local_timeout.into());
        let systems = Arc::new(FileSystems::new(
            &general.archive_dir,
            limit,
            Arc::clone(&setup.clock),
        ));
        Engine {
            file_systems: systems,
            baseline_versions: BaselineVersions::new(&archive, Arc::clone(&setup.clock)),
            seal_verifier: SealVerifier::new(&archive, Arc::clone(&setup.clock)),
            seal_broken_since: Mutex::default(),
            guard_position: Mutex::default(),
            guard_pauses: baselines::guard::GuardPauses::default(),
            finding_counts: baselines::lint::FindingCountCache::default(),
            scan_decisions: watch::scan::DecisionCache::default(),
            ledger: Mutex::new(Ledger::new(&archive).with_zone(setup.clock.zone())),
            shared_memories: Mutex::new(SharedMemories::from_agents(&setup.config.agents)),
            archive,
            setup,
            content_cache: ContentCache::default(),
            remote_texts: records::search::RemoteTexts::default(),
            index_state: Mutex::default(),
            known_entries: Mutex::default(),
            state_cache: store::state_log::StateCache::default(),
            last_generation: AtomicU64::new(1),
            lock_deadline: None,
        }
    }

    /// Makes the runs of this engine wait up to `timeout`, from now, for agents that other runs
    /// have locked.
    #[must_use]
    pub fn with_lock_timeout(self, timeout: Duration) -> Engine {
        let end = self.clock().instant() + timeout;
        Engine {
            lock_deadline: (!timeout.is_zero()).then_some(end),
            ..self
        }
    }

    /// Ends the connections to hosts, and leaves what grows with the fleet to the end of the process,
    /// which frees it faster than destructors do.
    pub fn end_with_process(self) {
        mem::forget((self.setup.config, self.ledger, self.content_cache));
        mem::forget((self.shared_memories, self.state_cache));
    }

    /// Returns whether runs wait for agents that other runs have locked.
    pub fn has_lock_timeout(&self) -> bool {
        self.lock_deadline.is_some()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.setup.config
    }

    /// Returns the command line of a verb with its arguments, for messages.
    pub fn command_line(&self, verb: &str) -> String {
        self.config().invocation.command_line(verb)
    }

    /// The operator's user name.
    pub fn user(&self) -> &str {
        &self.setup.user
    }

    /// The archive.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Source of all times.
    pub fn clock(&self) -> &dyn Clock {
        self.setup.clock.as_ref()
    }

    /// Shared handle to the clock, for threads that outlive the engine.
    pub fn clock_handle(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.setup.clock)
    }

    /// Creates an empty cache of baselines, each of which is read and checked once.
    pub fn baseline_cache(&self) -> BaselineCache<'_> {
        BaselineCache::new(self.config(), &self.seal_verifier)
    }

    /// Reads and checks the baseline of an agent for its operator.
    ///
    /// # Errors
    /// The file is missing or not a plain readable file.
    pub fn inspect_baseline(&self, agent: &Agent) -> Result<InspectedBaseline> {
        baseline::inspect_baseline(self.config(), &self.seal_verifier, agent)
    }

    /// Returns the transport that reaches an agent's memory.
    fn transport_for(&self, location: &MemoryLocation) -> Arc<dyn Transport> {
        match location.host() {
            None => {
                let local = self.setup.transports.transport_for(None);
                Arc::new(BoundedTransport::new(local, Arc::clone(&self.file_systems)))
            }
            host => self.setup.transports.transport_for(host),
        }
    }

    /// The file systems of this machine, for calls about an agent's directory that no transport
    /// makes.
    pub fn file_systems(&self) -> &Arc<FileSystems> {
        &self.file_systems
    }

    /// Opens the directory of an agent's memory.
    fn open_directory(&self, agent: &Agent) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        self.open_directory_at(agent, agent.location.memory())
    }

    /// Opens the directory of an agent's former memory, on the agent's current host.
    fn open_directory_at(
        &self,
        agent: &Agent,
        memory: &Path,
    ) -> Result<Box<dyn MemoryDirectory>, TransportError> {
        self.transport_for(&agent.location).open_directory(memory)
    }

    /// Returns the agent of this name.
    ///
    /// # Errors
    /// [`ErrorKind::User`], with a suggestion, when the config has no such agent.
    pub fn agent(&self, name: &str) -> Result<&Agent> {
        let config = self.config();
        config.agent(name).ok_or_else(|| {
            let error = Error::new(ErrorKind::User, format!("no agent named {name}"));
            match config.suggest_agent(name) {
                Some(near) => error.with_hint(format!("did you mean {near}?")),
                None => error.with_hint(format!(
                    "run `{}` to list all agents",
                    self.command_line("status")
                )),
            }
        })
    }

    /// Returns the agents whose memories are on this machine.
    fn local_agents(&self) -> Vec<&Agent> {
        let agents = self.config().agents.iter();
        agents.filter(|it| it.location.host().is_none()).collect()
    }

    /// Returns the records of the ledger, last one first, and the ledger's end. What the index
    /// covers is checked only as far as it is read.
    fn scan_ledger_backwards(&self) -> Result<(ReverseScan, store::record::LedgerPosition)> {
        self.ledger().scan_backwards()
    }

    /// Reads the record that ends at a position of the ledger.
    fn read_record_at(&self, position: store::record::LedgerPosition) -> Result<LedgerRecord> {
        let mut record = store::ledger::read_record_at(&self.ledger_path(), position)?;
        record.time = self.clock().zone().at(record.time);
        Ok(record)
    }

    /// Returns the attributes in an event, or in the record that the event names instead.
    fn event_attributes(&self, event: &RunEvent) -> Result<Option<Attributes>> {
        match (&event.attributes, event.attributes_position) {
            (None, Some(place)) => Ok(self.read_record_at(place)?.event.attributes),
            (attributes, _) => Ok(attributes.clone()),
        }
    }

    /// Appends to the ledger: either all of the events are on the disk when this returns, or none
    /// is recorded. Readers never wait for the lock, which another process may hold for long.
    fn append_to_ledger(&self, events: Vec<RunEvent>) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let locked = LockedLedger::lock(&self.archive, self.clock())?;
        self.ledger().append(locked, events, self.clock())
    }

    /// Returns number and digest of the ledger's last record that is on the disk; none where there is
    /// no record, or another directory is at `archive_dir` by now.
    fn recorded_head(&self) -> Option<(u64, Digest)> {
        self.archive.check_root().ok()?;
        let head = self.ledger().durable_head().ok()?;
        (head.0 > 0).then_some(head)
    }

    /// Moves older records of a ledger that has grown to segments, at the end of a run. Does nothing
    /// while another process appends to the ledger; the next run does it. Readers do not wait for
    /// it.
    ///
    /// # Errors
    /// The system's error, or files of the ledger that contradict each other. No record is lost.
    fn compact_ledger(&self) -> Result<Option<MovedRecords>> {
        if !store::ledger::is_compaction_due(&self.archive) {
            // Only an older ledger.jsonl can be short and have records of segments.
            let files = LedgerFiles::open(&self.ledger_path())?;
            return store::ledger::check_repeated_segments(&files).map(|()| None);
        }
        let Some(locked) = LockedLedger::try_lock(&self.archive, self.clock())? else {
            return Ok(None);
        };
        let moved = store::ledger::move_old_records(&self.archive, &locked)?;
        if let Some(MovedRecords { last, .. }) = moved {
            self.ledger().adopt_replaced(last + 1);
        }
        Ok(moved)
    }

    /// Returns number and digest of the ledger's last record.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn ledger_head(&self) -> Result<(u64, Digest)> {
        self.ledger().head()
    }

    /// Checks the files of the ledger for what a scan of its records does not show.
    ///
    /// # Errors
    /// The system's error.
    pub fn check_ledger_files(&self) -> Result<SegmentReport> {
        let files = LedgerFiles::open(&self.ledger_path())?;
        store::ledger::check_segments(&files)
    }

    /// Path of the ledger.
    pub fn ledger_path(&self) -> PathBuf {
        self.ledger().path().to_path_buf()
    }

    /// Path of the file of pauses and skips of scheduled resets.
    pub fn schedule_path(&self) -> PathBuf {
        self.archive.program_path("schedule.json")
    }

    /// Observes an agent and reads the beginning of its memory.
    pub fn read_detail(&self, agent: &Agent) -> AgentDetail {
        let baselines = Mutex::new(self.baseline_cache());
        let seen = self.observe_with_bytes(agent, &baselines);
        let content = seen.observation.content.as_ref();
        let baseline = seen.baseline.as_deref();
        AgentDetail {
            next_operator_part: match content.and_then(|it| it.boundary).map(|it| it.rule) {
                Some(BoundaryRule::Behind(_)) => baseline.map(|it| it.operator_part().to_vec()),
                _ => None,
            },
            operator_part: seen.version.map(|version| version.operator_part().to_vec()),
            omitted_bytes: content.map_or(0, |content| content.size - seen.prefix.len() as u64),
            error: match content {
                Some(_) => None,
                None => Some(seen.observation.reason.clone()),
            },
            memory_prefix: seen.prefix,
            observation: seen.observation,
        }
    }

    /// Returns the operator parts of a pushed version and of the current baseline of an agent;
    /// `None` if one of them cannot be read.
    pub fn rules_since(&self, agent: &str, version: Digest) -> Option<[Vec<u8>; 2]> {
        let agent = self.config().agent(agent)?;
        let old = self.load_version(agent, version)?;
        let new = self.baseline_cache().load(agent).ok()?;
        Some([&old, &new].map(|version| version.operator_part().to_vec()))
    }

    /// Returns the owner of an agent's memory on this machine; `None` if the memory is on a host
    /// or its file system does not answer.
    pub fn memory_owner(&self, agent: &Agent) -> Option<FileOwner> {
        let MemoryLocation::Local { memory, .. } = &agent.location else {
            return None;
        };
        let path = memory.clone();
        let stat = self
            .file_systems
            .call(memory, move || durable::stat_no_symlinks(&path));
        FileOwner::from_stat(&stat.ok()?.ok()?, self.clock().zone())
    }

    /// Returns the archive directory of an agent, and the number and total size of its entries.
    pub fn archive_usage(&self, agent: &Agent) -> (PathBuf, Result<(usize, u64)>) {
        let subdir = Path::new(&agent.archive_subdir);
        let usage = self
            .archive
            .list_entries(subdir)
            .map(|entries| (entries.len(), entries.iter().map(|entry| entry.size).sum()));
        (self.archive.root().join(subdir), usage)
    }

    /// Reads the beginning of an entry, up to `max_bytes` bytes, and checks the digest of all of it
    /// against the ledger.
    ///
    /// # Errors
    /// The entry cannot be read, or its digest differs.
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
        let message = format!("{} does not match its digest in the ledger", path.display());
        let verify = self.command_line("verify");
        Err(Error::new(ErrorKind::Integrity, message)
            .with_hint(format!("run `{verify}` to check all entries")))
    }

    /// Makes the generations of later observations start at a number, for an engine that takes the place
    /// of another one.
    pub fn continue_generations(&self, first: u64) {
        self.last_generation.fetch_max(first, Ordering::Relaxed);
    }

    fn next_generation(&self) -> u64 {
        self.last_generation.fetch_add(1, Ordering::Relaxed)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ledger_history(&self, agent: &str) -> Result<AgentHistory> {
        self.ledger().history(agent)
    }

    /// Returns the versions that runs pushed to an agent or found in its memory, newest first. One
    /// that is the current baseline stays in its place: a drifted memory is measured against what
    /// was pushed last.
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

    /// Probes what the path of an agent's memory holds now.
    fn probe_memory(&self, location: &MemoryLocation) -> Result<MemoryObject, TransportError> {
        match self
            .transport_for(location)
            .probe(&[location.memory()])
            .pop()
        {
            Some(answer) => answer,
            None => Err(Error::new(ErrorKind::Internal, "no reply to a probe").into()),
        }
    }
}
