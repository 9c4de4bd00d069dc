//! The engine: observes, plans, resets and undoes agents, and keeps archive and ledger. Console and
//! command line call the methods of [`Engine`] and nothing below.
//!
//! It owns no terminal and reads neither the home directory nor the clock by itself: the caller
//! passes them in as [`EngineSetup`].

mod archive_identity;
mod baselines;
mod context;
mod file_owner;
mod full_archive;
mod layout_memory;
mod layouts;
mod plan_budget;
mod probe;
mod records;
mod runs;
mod shared_memories;
mod watch;

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::archive::Archive;
use crate::base::clock::Clock;
pub use crate::base::durable::resolve_first_symlink;
use crate::base::error::Result;
pub use crate::boundary::{
    ChosenLines, KeptScratch, LineRange, MAX_WINDOW_BYTES, ScratchRequest, ScratchSelection,
};
pub use crate::config::Protection;
use crate::config::{Agent, Config};
pub use crate::store::address::MemoryAddress;
use crate::store::controller::Controller;
pub use crate::store::entries::Entries;
pub use crate::store::entries::directories::EntryDirectory;
pub use crate::store::entries::export::ExportReport;
pub use crate::store::file::Locks;
pub use crate::store::file::lock::{HolderLock, HolderLockKind, LockQueue};
pub use crate::store::holds::{Hold, HoldLock, Holds};
pub use crate::store::journal::UNCLAIMED_JOURNAL_HINT;
pub use crate::store::known_health::KnownHealth;
pub use crate::store::lease::{HeldLock, Lease, LockHolder, describe_holder, describe_lock};
pub use crate::store::ledger::{Ledger, LedgerCheck};
pub use crate::store::observation::{Blocker, MemoryContent, Observation};
pub use crate::store::observations::{
    KnownState, Observations, SavedObservations, StateChange, StateObserver,
};
pub use crate::store::record::{
    FileChange, FileState, LastRun, LedgerRecord, Operation, Outcome, RunEvent,
};
pub use crate::store::record_range::RecordRange;
pub use crate::store::scan_basis::ScanBasis;
pub use crate::store::state::State;
pub use crate::store::trigger::Trigger;
pub use crate::store::unchanged_agents::{UnchangedAgents, UnchangedDetails};
use crate::store::{self, Store};
pub use crate::transport::{ConnectionSetting, ConnectionStatus, Reachability, SwapMethod};
pub use archive_identity::archive_id_line;
use baselines::BaselineServices;
pub use baselines::accepted_seal::SealStatus;
pub use baselines::catalog::{
    BaselineHistoryPage, BaselineList, BaselineState, BaselineSummary, BaselineVersion, LastPush,
    SizeBand,
};
pub use baselines::change::{BaselineChange, KnownVersion};
pub use baselines::drafts::{BaselineDraft, DraftFile, DraftId, FoundDrafts};
pub use baselines::file::BaselineFile;
pub use baselines::guard::{GuardAction, GuardEvent, GuardPass, GuardProgress};
pub use baselines::lint::{
    BaselineLint, FindingCounts, FixedFile, LintDecisions, LintedFile, fix_draft, lint_text,
};
pub use baselines::opening::{BaselineUser, OpenedBaseline, SealMatch};
pub use baselines::plan::{BaselineAction, BaselinePlan, PlannedBaseline, TextReplacement};
pub use baselines::rule_change::{NextRuleChange, PushedVersions};
pub use baselines::save::{BaselineEdit, BaselineWriter, SavedBaseline, TextOrigin};
pub use baselines::seal::SealReport;
pub use baselines::seal_plan::{SealChange, SealChangeKind, SealPlan, SealScope, list_lint_errors};
pub use baselines::{BaselineCatalog, BaselineEdits, BaselineFiles, Baselines, Guard, Lint, Seals};
pub use context::{Context, EngineSetup};
pub use file_owner::FileOwner;
pub use layout_memory::LayoutMemory;
pub use layouts::{LayoutMemories, OperationPlan};
use records::RecordServices;
pub use records::archive_growth::ArchiveGrowth;
pub use records::last_success::{RunCounts, TimedReset};
pub use records::report::{
    BrokenSealReport, DriftReport, FailureReport, FindingsReport, FleetReport, GrowthReport,
    GuardReport, HostReport, LateWriterReport, ReportLevel, ReportRow, RunTotals, StateReport,
};
pub use records::run_history::{
    AgentHistoryPage, EditedFiles, HistoryEntry, RunDiff, RunDiffSide, UserRun,
};
pub use records::search::{
    ComparedTexts, EntryComparison, FoundEntry, FoundLine, FoundMemory, FoundMemoryFile, FoundText,
    IndexProgress, RecordedEntries, SearchRelaxation, SearchRequest, SearchResult, SourceText,
    SyncReport, TextSource,
};
pub use records::three_way::{DriftPoint, RuleComparison};
pub use records::timeline::{
    AgentTimeline, EntryPresence, TimelineEntry, TimelineRow, TimelineSubject, UnchangedRuns,
};
pub use records::verify::{
    Finding, FindingSubject, LedgerSummary, Verification, VerifiedCounts, VerifyProgress,
};
pub use records::{ArchiveSearch, Reports, RunHistory, Timelines, Verifier};
use runs::RunServices;
pub use runs::plan::{
    Plan, PlanBinding, PlanStep, PlannedFile, READ_ONLY_REASON, RetentionPlan, SkippedAgent,
    StepAction, UndoMode, UndoTarget, UndoneRun,
};
pub use runs::reset::{InterruptedTurn, RecoveredTurns};
pub use runs::retention::{
    AgentRetention, EntryList, EntryStatus, ExpiringEntry, KeepReason, KeptEntries, PruneReport,
    RetentionOverview, ShorterRetention, VersionRetention,
};
pub use runs::run_report::{AgentResult, RunProgress, RunReport, RunStage};
pub use runs::{Planner, Retention, Runs};
pub use shared_memories::HardLinks;
pub use shared_memories::SharedMemories;
pub use watch::agent_detail::AgentDetail;
pub use watch::fleet::{FleetEvent, FleetWatcher, describe_watch_error, start_directory_watcher};
pub use watch::host_status::HostStatus;
pub use watch::memory_health::MemoryHealth;
pub use watch::{Hosts, MemoryChecks, Observer, Watch};

/// Builds the services and hands them out.
pub struct Engine {
    context: Arc<Context>,
    shared_memories: Arc<SharedMemories>,
    baselines: BaselineServices,
    watch: Arc<Watch>,
    runs: RunServices,
    layouts: LayoutMemories,
    records: RecordServices,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the engine of {}", self.config().path.display())
    }
}

impl Engine {
    /// Creates an engine. It reads and writes nothing yet.
    pub fn new(setup: EngineSetup) -> Engine {
        let archive = store::locate_archive(&setup.config, setup.archive_group);
        let controller = Arc::new(Controller::new(
            setup.config,
            setup.clock,
            archive,
            setup.user,
            setup.trigger,
        ));
        let store = Store::new(&controller);
        let context = Context::new(controller, store, setup.transports, setup.layouts);
        let context = Arc::new(context);
        let shared_memories = Arc::new(SharedMemories::new(&context));
        let baselines = BaselineServices::new(&context, &shared_memories);
        let watch = Watch::new(&context, &shared_memories, &baselines);
        let runs = RunServices::new(&context, &shared_memories, &baselines, &watch);
        let layouts = LayoutMemories::new(&context, &runs.planner);
        let records = RecordServices::new(&context, &baselines, &watch);
        Engine {
            context,
            shared_memories,
            baselines,
            watch: Arc::new(watch),
            runs,
            layouts,
            records,
        }
    }

    /// Makes the runs of this engine wait up to `timeout`, from now, for agents that other runs
    /// have locked.
    #[must_use]
    pub fn with_lock_timeout(self, timeout: Duration) -> Engine {
        self.context.locks().set_timeout(timeout);
        self
    }

    /// Ends the connections to hosts, and leaves the rest to the end of the process, which frees what
    /// grows with the fleet faster than destructors do.
    pub fn end_with_process(self) {
        self.watch.hosts.close_all_hosts();
        mem::forget(self);
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        self.context.config()
    }

    /// Source of all times.
    pub fn clock(&self) -> &dyn Clock {
        self.context.clock()
    }

    /// The archive.
    pub fn archive(&self) -> &Archive {
        self.context.archive()
    }

    /// Returns the command line of a verb with its arguments, for messages.
    pub fn command_line(&self, verb: &str) -> String {
        self.context.command_line(verb)
    }

    /// Returns the agent of this name.
    ///
    /// # Errors
    /// [`ErrorKind::User`](crate::base::error::ErrorKind::User), with a suggestion, when the config has no
    /// such agent.
    pub fn agent(&self, name: &str) -> Result<&Agent> {
        self.context.agent(name)
    }

    /// What all services share: the config, the clock, the archive, the store, and access to memories.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Detects agents that share a memory.
    pub fn shared_memories(&self) -> &SharedMemories {
        &self.shared_memories
    }

    /// The services of a [`FleetWatcher`].
    pub fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// The ledger.
    pub fn ledger(&self) -> &dyn Ledger {
        self.context.ledger()
    }

    /// The entries of the archive.
    pub fn entries(&self) -> &dyn Entries {
        self.context.entries()
    }

    /// The locks of agents.
    pub fn locks(&self) -> &Locks {
        self.context.locks()
    }

    /// The documents that processes change in turn.
    pub fn holds(&self) -> &dyn Holds {
        self.context.holds().as_ref()
    }

    /// The last known states of agents, and their changes.
    pub fn observations(&self) -> &dyn Observations {
        self.context.observations()
    }

    /// The accepted seal and the versions of baselines.
    pub fn baselines(&self) -> &Baselines {
        &self.baselines.baselines
    }

    /// Saves baseline files.
    pub fn baseline_files(&self) -> &BaselineFiles {
        &self.baselines.files
    }

    /// The lint of baselines.
    pub fn lint(&self) -> &Lint {
        &self.baselines.lint
    }

    /// The list of baselines.
    pub fn baseline_catalog(&self) -> &BaselineCatalog {
        &self.baselines.catalog
    }

    /// Edits of baselines.
    pub fn baseline_edits(&self) -> &BaselineEdits {
        &self.baselines.edits
    }

    /// Plans and writes seals.
    pub fn seals(&self) -> &Seals {
        &self.baselines.seals
    }

    /// The guard.
    pub fn guard(&self) -> &Guard {
        &self.baselines.guard
    }

    /// The connections to hosts.
    pub fn hosts(&self) -> &Hosts {
        &self.watch.hosts
    }

    /// Checks of the paths of memories.
    pub fn memory_checks(&self) -> &MemoryChecks {
        &self.watch.checks
    }

    /// Observes agents.
    pub fn observer(&self) -> &Observer {
        &self.watch.observer
    }

    /// Checks memories of several files.
    pub fn health(&self) -> &MemoryHealth {
        &self.watch.health
    }

    /// Retention.
    pub fn retention(&self) -> &Retention {
        &self.runs.retention
    }

    /// Makes plans.
    pub fn planner(&self) -> &Planner {
        &self.runs.planner
    }

    /// The memories of several files.
    pub fn layouts(&self) -> &LayoutMemories {
        &self.layouts
    }

    /// Applies plans.
    pub fn runs(&self) -> &Runs {
        &self.runs.runs
    }

    /// The history of runs.
    pub fn history(&self) -> &RunHistory {
        &self.records.history
    }

    /// Searches.
    pub fn search(&self) -> &ArchiveSearch {
        &self.records.search
    }

    /// Timelines.
    pub fn timelines(&self) -> &Timelines {
        &self.records.timelines
    }

    /// Verification.
    pub fn verifier(&self) -> &Verifier {
        &self.records.verifier
    }

    /// Reports.
    pub fn reports(&self) -> &Reports {
        &self.records.reports
    }
}
