//! Messages to the model, and the effects that it requests in return. Plain data: `update`
//! handles the messages, and the event loop and the effect runner execute the effects.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::handoff::{ClipboardText, CopyOutcome, PagerText};
use super::preferences::Preferences;
use super::screens::agent::state::memory::{
    ItemContentRequest, ItemPage, ItemsRequest, OpenedMemory,
};
use super::screens::archives::state::{
    ArchiveSearchRequest, EntryComparisonRequest, EntryTextRequest, FoundRows,
};
use super::screens::baseline_plan::state::{
    AppliedBaselinePlan, BaselineChangePlan, BaselinePlanRequest, PreparedBaselinePlan,
};
use super::screens::baselines::state::{ComparedVersion, ComparisonRequest};
use super::screens::fleet::state::{FleetConfig, ViewState};
use super::screens::log::state::{MessageLevel, ReportText, RunSummary};
use super::screens::reset::state::{FileChangesRequest, PlanRequest, RuleChangeRequest};
use super::text::{ComparedTexts, PreparedText, TextLine, Tones};
use crate::archive::WrittenEntry;
use crate::base::digest::Digest;
use crate::base::error::Error;
use crate::base::secret::Secret;
use crate::config::{Diagnostic, SshHost};
use crate::console::agent_row::AgentRow;
use crate::console::keys::key::Key;
use crate::console::shell::external_copy::KeptCopy;
use crate::engine::{
    AgentTimeline, BaselineFile, BaselineList, BaselineVersion, ConnectionSetting, DraftId, Engine,
    FindingCounts, FleetEvent, HistoryEntry, IndexProgress, MemoryAddress, NextRuleChange,
    Observation, OpenedBaseline, Plan, PruneReport, RecordedEntries, RetentionOverview,
    RunProgress, RunReport, SavedObservations, SealMatch, SearchRelaxation, TextSource,
    TimelineSubject, Verification, VerifyProgress,
};
use crate::layouts::HealthFinding;
use crate::lint::Finding;
use crate::transport::sftp::askpass;
use crate::unattended::schedule::{ScheduleChange, ScheduleOverview};

/// Message to the model: input, a result, or a change observed outside.
#[derive(Debug)]
pub enum Msg {
    /// Keys of one read.
    KeysPressed(Vec<Key>),
    /// Pasted text.
    TextPasted(String),
    /// New size of the terminal, in columns and rows.
    Resized(u16, u16),
    /// The time that [`super::update::next_wake`] returned has come.
    Tick,
    /// What the watcher of the fleet reports.
    Fleet(FleetEvent),
    /// Observations saved by the previous session.
    SavedObservationsLoaded(SavedObservations),
    /// Reply to [`Effect::PrepareTexts`].
    TextsPrepared(Box<AgentTexts>),
    /// The texts of an agent were not prepared, and why.
    TextsNotPrepared(String, String),
    /// Syntax tones of an agent's memory by line number, for the texts of this generation.
    TonesPrepared(String, u64, HashMap<usize, Tones>),
    /// What changed in the rules of an agent since the last push, in three versions.
    RulesCompared(String, PreparedText),
    /// Reply to [`Effect::CompareNewRules`].
    NewRulesCompared(RuleChangeRequest, PreparedText),
    /// Reply to [`Effect::CompareFileChanges`].
    FileChangesCompared(FileChangesRequest, PreparedText),
    /// History of an agent, newest record first.
    HistoryLoaded(String, Result<Vec<HistoryEntry>, String>),
    /// Diff of one record of an agent, by its sequence number.
    RunDiffPrepared(String, u64, Result<PreparedText, String>),
    /// Reply to [`Effect::ReadItems`], by the number of the request; the items follow.
    MemoryOpened(u64, Result<Box<OpenedMemory>, String>),
    /// Items of the collection, by the number of the request.
    ItemsRead(u64, Result<ItemPage, String>),
    /// No more items come until they are requested again, by the number of the request.
    ItemsPaused(u64),
    /// Reply to [`Effect::ReadItemContent`].
    ItemContentRead(ItemContentRequest, Result<PreparedText, String>),
    /// Reply to [`Effect::CheckMemory`], by the number of the request.
    MemoryChecked(u64, Result<Vec<HealthFinding>, String>),
    /// Reply to [`Effect::MakePlan`], by the number of the request.
    PlanMade(u64, Result<Box<Plan>, Error>),
    /// Progress of a run.
    RunProgressed(RunProgress),
    /// End of a run.
    RunEnded(Box<RunReport>),
    /// The run that was requested last was not started, and why.
    RunNotStarted(String),
    /// Runs of the ledger, newest first.
    LogLoaded(Result<Vec<RunSummary>, String>),
    /// What happened since the last evening.
    ReportLoaded(Result<ReportText, String>),
    /// Reply to [`Effect::LoadSchedule`], by the number of the request.
    ScheduleLoaded(u64, Result<Box<ScheduleOverview>, String>),
    /// Reply to [`Effect::ChangeSchedule`].
    ScheduleChanged(ScheduleChange, Result<(), Error>),
    /// The baselines of which the operator left a text that was not saved.
    DraftsFound(Vec<String>),
    /// The baselines, or why they cannot be listed.
    BaselinesLoaded(Result<Box<BaselineList>, String>),
    /// Versions of a baseline, newest first.
    BaselineVersionsLoaded(String, Result<Vec<BaselineVersion>, String>),
    /// Reply to [`Effect::CompareBaseline`].
    BaselineCompared(ComparisonRequest, Result<Box<ComparisonTexts>, String>),
    /// Reply to [`Effect::MakeBaselinePlan`], by the number of the request.
    BaselinePlanMade(u64, Result<Box<PreparedBaselinePlan>, Error>),
    /// Reply to [`Effect::CheckSigningKey`]: the key as it was typed, and why it cannot be read.
    SigningKeyChecked(String, Result<(), Error>),
    /// Reply to [`Effect::ApplyBaselinePlan`].
    BaselinePlanApplied(Result<AppliedBaselinePlan, Error>),
    /// Reply to [`Effect::SearchArchive`], by the number of the search; a second one follows when the
    /// index is up to date.
    ArchiveSearched(u64, Result<Box<FoundRows>, String>),
    /// The queries that find something where that of a search, by its number, finds nothing.
    ArchiveRelaxed(u64, Result<Vec<SearchRelaxation>, String>),
    /// What the ledger records of the entries that a search found, by the number of the search.
    EntryRecordsRead(u64, Result<RecordedEntries, String>),
    /// End of a search.
    ArchiveSearchEnded(u64),
    /// Progress of the index.
    IndexProgressed(IndexProgress),
    /// Reply to [`Effect::ReadEntryText`].
    EntryTextRead(EntryTextRequest, Result<PreparedText, String>),
    /// Reply to [`Effect::CompareEntry`].
    EntryCompared(EntryComparisonRequest, Result<Box<ComparedTexts>, String>),
    /// Reply to [`Effect::FindEntryRun`]: the agent and the run.
    EntryRunFound(PathBuf, Result<(String, String), String>),
    /// Reply to [`Effect::SetPinned`].
    EntryPinned(PathBuf, bool, Result<(), String>),
    /// Reply to [`Effect::LoadTimeline`], by the number of the request.
    TimelineLoaded(u64, Result<Box<AgentTimeline>, String>),
    /// Reply to [`Effect::LoadRetention`], by the number of the request.
    RetentionLoaded(u64, Result<Box<RetentionOverview>, String>),
    /// Reply to [`Effect::PruneArchive`].
    ArchivePruned(Result<Box<PruneReport>, String>),
    /// Reply to [`Effect::LoadSource`].
    SourceLoaded(TextSource, Result<PagerText, Error>),
    /// Progress of the verification.
    VerifyProgressed(VerifyProgress),
    /// Reply to [`Effect::Verify`].
    Verified(Result<Box<Verification>, Error>),
    /// Effective ssh settings of a host.
    HostSettingsLoaded(SshHost, Result<Vec<ConnectionSetting>, String>),
    /// A host asks a question, or withdraws it.
    PromptEvent(askpass::PromptEvent),
    /// Patch of an agent, or the reason why there is none.
    PatchPrepared(String, Result<Vec<u8>, String>),
    /// Outcome of a copy to the clipboard.
    ClipboardCopied(ClipboardText, CopyOutcome),
    /// Reply to [`Effect::LoadEntry`].
    EntryLoaded(String, WrittenEntry, Result<PagerText, Error>),
    /// Reply to [`Effect::InspectBaseline`].
    BaselineInspected(String, Result<Box<OpenedBaseline>, Error>),
    /// The external editor ended.
    ExternalEditEnded(Box<ExternalText>),
    /// Reply to [`Effect::OpenBaseline`].
    BaselineOpened(String, Result<Box<OpenedBaseline>, Error>),
    /// Reply to [`Effect::CheckOpenFile`]: the baseline as it is now, or what is at its path instead.
    OpenFileChecked(String, Result<Box<OpenedBaseline>, BaselineFile>),
    /// Reply to [`Effect::AnalyzeText`].
    TextAnalyzed(Box<TextAnalysis>),
    /// Reply to [`Effect::CompareWithFile`], for the generation of the text.
    FileCompared(String, u64, Result<Box<FileComparison>, Error>),
    /// Reply to [`Effect::SaveText`].
    TextSaved(String, Result<Box<SavedText>, Error>),
    /// Reply to [`Effect::KeepDraft`] with a text: the baseline, the text, and why it is not on the
    /// disk. None for a text that a later one has replaced.
    DraftWritten(String, Arc<Vec<u8>>, Result<(), String>),
    /// Reply to [`Effect::MergeTexts`]: the merged text, and whether all of it was decided.
    TextsMerged(String, Result<(Vec<u8>, bool), String>),
    /// Message for the operator.
    Reported(MessageLevel, String),
    /// The changed config is valid; the effect runner adopts its engine.
    ConfigReloaded(Arc<Engine>),
    /// The changed config is invalid; the previous one stays in force.
    ConfigInvalid(Vec<Diagnostic>),
    /// The changed config is in force: the fleet, its agents with their addresses, and
    /// whether it is read-only.
    ConfigAdopted(FleetConfig, Vec<AgentRow>, bool),
    /// The preferences changed and are valid.
    PreferencesLoaded(Box<Preferences>),
    /// The added command ended; the text is for the operator. All agents are read again.
    ExtraCommandEnded(String),
    /// The preferences changed and are invalid; the previous ones stay in force.
    PreferencesInvalid(Vec<Diagnostic>),
    /// Quit at once, on a signal or the loss of the terminal.
    Quit,
}

/// What a job found in the text of an editor.
#[derive(Debug)]
pub struct TextAnalysis {
    /// Name of the baseline.
    pub baseline: String,
    /// Generation of the text.
    pub generation: u64,
    /// Tones by line number.
    pub tones: HashMap<usize, Tones>,
    /// Findings of the lint.
    pub findings: Vec<Finding>,
    /// What the text changes in the rules of each agent, by its name.
    pub rule_changes: BTreeMap<String, NextRuleChange>,
}

/// The text of an editor, compared with its file.
#[derive(Debug)]
pub struct FileComparison {
    /// What is at the path now.
    pub disk: BaselineFile,
    /// What the seal says of that.
    pub seal: SealMatch,
    /// Whether the difference is that from the sealed version: another program has changed the file
    /// since.
    pub is_from_seal: bool,
    /// The file, or the sealed version, against the text.
    pub diff: PreparedText,
    /// Numbers of added and removed lines.
    pub changed_lines: (usize, usize),
    /// Number of lines of the file that the text does not have.
    pub dropped_lines: usize,
    /// Whether the file is immutable.
    pub is_immutable: bool,
    /// Why a save cannot unlock it, and the commands that do.
    pub unlock_refusal: Option<String>,
    /// What the lint finds in the text.
    pub findings: FindingCounts,
}

/// A text that was saved.
#[derive(Debug)]
pub struct SavedText {
    /// Id of its run in the ledger.
    pub run: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the seal says of them; an error if they should have been sealed and were not.
    pub seal: Result<SealMatch, Error>,
    /// What is not as it was before the save.
    pub remarks: Vec<String>,
    /// What is wrong with them for the agents.
    pub problems: Vec<String>,
    /// Whether resets refuse them because of that.
    pub is_refused: bool,
}

/// Texts of an agent, prepared for panes.
#[derive(Debug)]
pub struct AgentTexts {
    /// The agent.
    pub agent: String,
    /// Location of its memory.
    pub address: Option<MemoryAddress>,
    /// Generation of the observation they belong to.
    pub generation: u64,
    /// Baseline against memory.
    pub diff: PreparedText,
    /// What is below the boundary.
    pub scratch: PreparedText,
    /// The last known version of its baseline against the file.
    pub baseline: PreparedText,
    /// Facts, each with its label.
    pub facts: Vec<(&'static str, TextLine)>,
    /// Names of the baseline and of the memory.
    pub diff_titles: [String; 2],
    /// Names of the last known version of the baseline, and of its file.
    pub baseline_titles: [String; 2],
    /// Summary of the findings in the file.
    pub findings: String,
    /// What was observed with their read, if they are a cached copy.
    pub cached_observation: Option<Box<Observation>>,
    /// The observation that was made with their read.
    pub observation: Option<Box<Observation>>,
}

/// Two versions of a baseline, prepared for a pane.
#[derive(Debug)]
pub struct ComparisonTexts {
    /// The difference.
    pub texts: ComparedTexts,
    /// The old side, which is another one than requested if the baseline is not in the seal.
    pub old_side: ComparedVersion,
}

/// The copy of a baseline that an external editor had.
#[derive(Debug)]
pub struct ExternalText {
    /// The baseline as it was copied.
    pub opened: OpenedBaseline,
    /// The copy now.
    pub text: Result<Vec<u8>, Error>,
    /// The directory of the copy, if it is kept.
    pub kept: Option<KeptCopy>,
}

/// A text to save over a baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSave {
    /// Name of the baseline.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What they may replace.
    pub expected: ReplacedBaseline,
    /// Whether the file is immutable, and becomes so again.
    pub is_immutable: bool,
    /// Whether the new version is sealed, too.
    pub is_sealed: bool,
    /// Whether it may hold lines that another program wrote.
    pub has_foreign_lines: bool,
    /// Whether the operator accepts its lint errors.
    pub accepts_lint_errors: bool,
}

/// What a save replaces, as the operator saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplacedBaseline {
    /// No file.
    Absent,
    /// A file with this digest.
    File(Digest),
    /// Something that cannot be read as a baseline, and why.
    Unreadable(String),
}

/// A change of a baseline's draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftChange {
    /// Name of the baseline.
    pub name: String,
    /// Its text; none to remove the draft.
    pub text: Option<DraftText>,
    /// The draft of an earlier edit that this one stands for, or that is not wanted any more.
    pub replaced: Option<DraftId>,
}

/// The text of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftText {
    /// The text.
    pub bytes: Arc<Vec<u8>>,
    /// Content of the file when the edit began.
    pub base: Arc<Vec<u8>>,
}

/// Work that the model requests from the event loop or the effect runner.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Read these agents again.
    ReadAgents(Vec<String>),
    /// Read the agents of the host with this login again.
    ReadHost(String),
    /// Allow the hosts of these agents to ask refused questions again.
    AllowQuestions(Vec<String>),
    /// Answer a question of a host.
    AnswerQuestion(u64, Secret),
    /// Refuse to answer a question of a host.
    RefuseQuestion(u64),
    /// Prepare the texts of an agent.
    PrepareTexts(String),
    /// Compare three versions of an agent's rules.
    CompareRules(String),
    /// Compare the rules that were pushed to an agent last with those that a plan installs.
    CompareNewRules(RuleChangeRequest),
    /// Compare the files that an operation changes with what it makes of them.
    CompareFileChanges(FileChangesRequest),
    /// Load the history of an agent.
    LoadHistory(String),
    /// Prepare the diff of one record of an agent, by its sequence number.
    PrepareRunDiff(String, u64),
    /// Open the memory with a layout of an agent and read items of a collection, or read more items.
    ReadItems(ItemsRequest),
    /// Read the content of an item.
    ReadItemContent(ItemContentRequest),
    /// Check the memory with a layout of an agent.
    CheckMemory(u64, String),
    /// Prepare the diff of an agent as a patch.
    PreparePatch(String),
    /// Put a text on the operator's clipboard.
    CopyToClipboard(ClipboardText),
    /// Put a text on the clipboard through the terminal only.
    CopyThroughTerminal(ClipboardText),
    /// Save lines of an agent's scratch to a new file; `~` is the operator's home.
    SaveLines(PathBuf, Vec<u8>),
    /// Load an entry of an agent for the pager.
    LoadEntry(String, WrittenEntry),
    /// Give the terminal to the pager.
    OpenPager(PagerText),
    /// Inspect the baseline of an agent before it is edited.
    InspectBaseline(String),
    /// Give the terminal to the external editor, with a copy of a baseline.
    OpenEditor(Box<OpenedBaseline>),
    /// Open a baseline in the editor.
    OpenBaseline(String),
    /// Look at the file and the seal of the baseline that is open in the editor.
    CheckOpenFile(String),
    /// Find the tones of a baseline's text of this generation, and lint it.
    AnalyzeText(String, u64, Arc<Vec<u8>>),
    /// Compare a baseline's file with a text of this generation, or with a draft. The digest is that
    /// of the file as the operator knows it.
    CompareWithFile(String, u64, Arc<Vec<u8>>, Digest),
    /// Save a text over a baseline.
    SaveText(Box<TextSave>),
    /// Merge the texts of a baseline: what both began with, the operator's, the file's.
    MergeTexts(String, [Arc<Vec<u8>>; 3]),
    /// Write the draft of a baseline, or remove it.
    KeepDraft(DraftChange),
    /// Make a plan; the second says whether protected agents are unlocked.
    MakePlan(u64, PlanRequest, bool),
    /// Apply a plan.
    ApplyPlan(Box<Plan>),
    /// Finish the current agent, do not start the rest.
    CancelRun,
    /// List the baselines.
    LoadBaselines,
    /// Load the versions of a baseline.
    LoadBaselineVersions(String),
    /// Compare two versions of a baseline.
    CompareBaseline(ComparisonRequest),
    /// Make a plan over baselines.
    MakeBaselinePlan(u64, BaselinePlanRequest),
    /// Check that the file of a signing key, as it was typed, can be read.
    CheckSigningKey(String),
    /// Apply a plan over baselines.
    ApplyBaselinePlan(Arc<BaselineChangePlan>),
    /// Search the archives.
    SearchArchive(ArchiveSearchRequest),
    /// Read the text of an entry or a memory, and mark the hits in it.
    ReadEntryText(EntryTextRequest),
    /// Compare an entry with another text.
    CompareEntry(EntryComparisonRequest),
    /// Find the run that wrote an entry.
    FindEntryRun(PathBuf),
    /// Pin an entry, or unpin it.
    SetPinned(PathBuf, bool),
    /// Read what happened to an agent.
    LoadTimeline(u64, TimelineSubject),
    /// Export an entry to a new file at a path as it was typed; `~` is the operator's home.
    ExportEntry(PathBuf, PathBuf),
    /// Find out what retention deletes now, and why the rest stays.
    LoadRetention(u64),
    /// Delete what an overview has shown.
    PruneArchive(Arc<RetentionOverview>),
    /// Load the text of an entry or a memory for the pager.
    LoadSource(TextSource),
    /// Verify ledger, archive, baselines and seal.
    Verify,
    /// Stop the verification.
    CancelVerify,
    /// Ask ssh for its effective settings of a host.
    LoadHostSettings(SshHost),
    /// Read the ledger.
    LoadLog,
    /// Make the report of what happened since the last evening.
    LoadReport,
    /// Ask the service managers for the timers, and read what holds them back.
    LoadSchedule(u64),
    /// Pause, resume or skip scheduled resets.
    ChangeSchedule(ScheduleChange),
    /// Look for texts of baselines that were not saved.
    FindDrafts,
    /// Run the command that the caller of the console added.
    RunExtraCommand,
    /// Switch to the theme of this name.
    LoadTheme(String),
    /// Save the view of the fleet.
    SaveViewState(ViewState),
    /// Ring the bell of the terminal.
    RingBell,
    /// Redraw the whole screen.
    Redraw,
    /// Hand the terminal back to the shell.
    Suspend,
    /// Quit.
    Quit,
}
