//! Plans: what a reset or an undo would do to which agents, bound to the state observed when the
//! plan was made. Making a plan changes nothing.

use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::content::ContentParts;
use crate::archive::EntryKind;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind};
use crate::boundary::{Boundary, BoundaryRule, KeptScratch, MAX_WINDOW_BYTES, PushContent};
use crate::config::{Agent, Protection};
use crate::store::address::{connection_target, host_name};
use crate::store::observation::Blocker;
use crate::store::record::{FileChange, FileState, Operation};
use crate::store::state::State;
use crate::transport::{Attributes, MemoryObject};

/// Reason to skip an agent that needs no change.
pub(in crate::engine) const EQUAL_REASON: &str = "already equal to its baseline";

/// Reason to skip an agent that a push would leave as it is.
pub(in crate::engine) const PUSHED_REASON: &str = "already has this baseline and this scratch";

/// Reason to skip the undo of a run that created a file which is gone already.
pub(in crate::engine) fn still_absent_reason(run: &str) -> String {
    format!("no file, as before run {run}")
}

/// What undoes a run that created a file to which the agent has written since.
const REMOVE_HINT: &str = "--overwrite archives what was written since, and removes the file";

/// What undoes a run that displaced an object other than a file, where the agent has written since.
const PUT_BACK_HINT: &str =
    "--overwrite archives what was written since, and puts back what stood there before";

/// Error of an undo that is to append new notes to a file that it does not restore: `action` is its
/// step.
pub(in crate::engine) fn nothing_to_append_to_error(run: &str, action: StepAction) -> Error {
    let (message, hint) = match action {
        StepAction::PutBack => (
            format!("what stood there before run {run} is no file to append that to"),
            PUT_BACK_HINT,
        ),
        _ => (
            format!("there was no file before run {run} to append that to"),
            REMOVE_HINT,
        ),
    };
    let message = format!("the agent has written since, and {message}");
    Error::new(ErrorKind::Conflict, message).with_hint(hint)
}

/// Reason to refuse an agent that is protected as read-only.
pub const READ_ONLY_REASON: &str = "protected as read-only";

/// What a step would do to one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepAction {
    /// Archive the file and replace it.
    Replace,
    /// Create the missing file.
    Create,
    /// Archive the file and remove it: the undo of a creation.
    Remove,
    /// Archive the file and put back an object that an earlier run displaced and kept.
    PutBack,
    /// Archive the files of the step, and replace, create or remove each.
    Edit,
}

/// The state that a step depends on. Scratch that the agent adds later is not part of it, so an
/// agent that never stops writing can still be reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanBinding {
    /// Where the memory is: host, user and port if it is on a host, and its path.
    #[serde(rename = "place")]
    pub location: String,
    /// Digest of the content to install; zeros where the step installs none.
    #[serde(rename = "content")]
    pub content_digest: Digest,
    /// How the boundary was found, or why there is none.
    #[serde(rename = "rule")]
    pub boundary_rule: String,
    /// Digest of the bytes above the boundary.
    #[serde(rename = "above")]
    pub above_digest: Digest,
    /// What a push keeps: `all`, `none`, or line numbers and the digest of the scratch up to the
    /// last of these lines; `None` in other plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "keep")]
    pub kept_scratch: Option<String>,
}

impl PlanBinding {
    pub(in crate::engine) fn new(
        agent: &Agent,
        content: Digest,
        memory: &BoundMemory<'_>,
    ) -> PlanBinding {
        let (rule, above) = match memory {
            BoundMemory::Absent => ("absent".to_string(), Digest::ZERO),
            BoundMemory::Special => ("odd".to_string(), Digest::ZERO),
            BoundMemory::File(None, _) => ("none".to_string(), Digest::ZERO),
            BoundMemory::File(Some(found), head) => {
                let rule = match found.rule {
                    BoundaryRule::Intact => "intact".to_string(),
                    BoundaryRule::Behind(version) => format!("behind {version}"),
                    BoundaryRule::Aligned(version) => format!("aligned {version}"),
                };
                // An intact part equals the baseline's, whatever its line end. A plan keeps
                // `MAX_WINDOW_BYTES` bytes, a reset maybe more.
                let above = match found.rule {
                    BoundaryRule::Aligned(_) => {
                        let kept = &head[..head.len().min(MAX_WINDOW_BYTES)];
                        Digest::of(found.split(kept).0)
                    }
                    _ => Digest::ZERO,
                };
                (rule, above)
            }
        };
        let path = agent.observed_path().display();
        PlanBinding {
            location: match connection_target(agent) {
                Some(target) => format!("{target} {path}"),
                None => path.to_string(),
            },
            content_digest: content,
            boundary_rule: rule,
            above_digest: above,
            kept_scratch: None,
        }
    }

    /// Binds it to what a push keeps, too.
    pub(in crate::engine) fn with_push(self, content: Option<&PushContent>) -> PlanBinding {
        PlanBinding {
            kept_scratch: content.map(PushContent::binding),
            ..self
        }
    }
}

/// State of a memory's path, as far as a plan is bound to it.
pub(in crate::engine) enum BoundMemory<'a> {
    Absent,
    Special,
    File(Option<Boundary>, &'a [u8]),
}

impl<'a> BoundMemory<'a> {
    /// Creates it from what was read at the memory's path.
    pub fn new(object: &MemoryObject, boundary: Option<Boundary>, prefix: &'a [u8]) -> Self {
        match object {
            MemoryObject::Absent => BoundMemory::Absent,
            MemoryObject::Special(_) => BoundMemory::Special,
            MemoryObject::File(_) => BoundMemory::File(boundary, prefix),
        }
    }
}

/// What a step of an undo puts back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndoneRun {
    /// The run that is undone.
    pub run: String,
    /// End of that run.
    pub time: DateTime<FixedOffset>,
    /// Whether the agent has written to the memory since.
    #[serde(rename = "written_since")]
    pub has_written_since: bool,
    /// What to do with its new notes.
    pub mode: UndoMode,
    /// A newer run that was asked for and is undone already.
    #[serde(skip)]
    pub skipped_run: Option<String>,
}

/// What an undo does with notes that the agent has written since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoMode {
    /// Refuse the undo.
    #[default]
    Refuse,
    /// Append the new notes below the restored file.
    Append,
    /// Archive the new notes and restore the file without them.
    Overwrite,
}

/// Which runs to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoTarget {
    /// The last reset of each of these agents that is not undone yet.
    Agents(Vec<String>),
    /// The last undo of each of these agents.
    Redo(Vec<String>),
    /// A run, for every agent that it changed.
    Run(String),
    /// A run, for these of the agents that it changed.
    RunAgents(String, Vec<String>),
}

/// A file that an edit changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedFile {
    /// Its absolute path on the agent's host.
    pub path: PathBuf,
    /// The state that the step depends on.
    pub before: FileState,
    /// The state that it leaves.
    pub after: FileState,
    /// The new content; none where the step removes the file.
    #[serde(skip)]
    pub(in crate::engine) content: Option<ContentParts>,
    /// Owner, mode and attributes of the bytes that an undo restores.
    #[serde(skip)]
    pub(in crate::engine) attributes: Option<Attributes>,
    /// The absolute path of the file of the same step that the content comes from.
    #[serde(skip)]
    pub(in crate::engine) moved_from: Option<PathBuf>,
}

impl PlannedFile {
    /// Returns a change that has the path alone.
    pub(in crate::engine) fn to_change(&self) -> FileChange {
        FileChange {
            path: Some(self.path.clone()),
            ..FileChange::default()
        }
    }
}

/// One agent of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanStep {
    /// The agent's name.
    pub agent: String,
    /// Its host, or `local`.
    pub host: String,
    /// Its observed state.
    pub state: State,
    /// What would happen.
    pub action: StepAction,
    /// The state that the step depends on.
    #[serde(rename = "bound")]
    pub binding: PlanBinding,
    /// Kind of the entry that it would write; none where the memory holds nothing of the agent's.
    #[serde(rename = "entry")]
    pub entry_kind: Option<EntryKind>,
    /// Lines below the boundary that would be archived.
    pub scratch_lines: u64,
    /// Bytes that would be archived; of a scratch entry, without its header and the unchanged tail of
    /// the baseline.
    pub archive_bytes: u64,
    /// Lines that the agent added above the boundary.
    #[serde(rename = "added")]
    pub added_lines: usize,
    /// Lines that it removed there.
    #[serde(rename = "removed")]
    pub removed_lines: usize,
    /// Size of the new content in bytes.
    pub new_size: u64,
    /// Whether the confirmation must be typed, whatever the size of the plan.
    #[serde(rename = "typed")]
    pub is_confirmation_typed: bool,
    /// The agent's protection, from the config.
    #[serde(rename = "protect")]
    pub protection: Protection,
    /// What the operator should know before confirming.
    pub notes: Vec<String>,
    /// What an edit is for: the operation of a layout, and what it is about.
    #[serde(skip)]
    pub purpose: Option<String>,
    /// What the lint finds in the baseline and in the scratch that a push keeps, a line each.
    #[serde(rename = "lint")]
    pub lint_findings: Vec<String>,
    /// Guarantees that its host lacks, compared with this machine.
    #[serde(rename = "weaker")]
    pub degradations: Vec<String>,
    /// The run that an undo undoes; none in other plans.
    #[serde(rename = "undo")]
    pub undone_run: Option<UndoneRun>,
    /// What a push keeps of the scratch; none in other plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "kept")]
    pub kept_scratch: Option<KeptScratch>,
    /// The version whose rules the memory has, if it is behind the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "behind")]
    pub behind_version: Option<Digest>,
    /// The files that an edit changes; empty where the step is about the memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PlannedFile>,
    /// The directories that it creates for them, the outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub new_directories: Vec<PathBuf>,
    /// The directories that an undo removes, if they are empty then, the innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed_directories: Vec<PathBuf>,
}

impl PlanStep {
    /// Whether it undoes a run after which the agent has written, whatever the plan does about that.
    pub fn has_newer_notes(&self) -> bool {
        let undone = self.undone_run.as_ref();
        undone.is_some_and(|undone| undone.has_written_since)
    }

    /// Whether it is refused because the agent has written since the run that it undoes, and the plan
    /// does not say what to do about that.
    pub fn lacks_undo_mode(&self) -> bool {
        let undone = self.undone_run.as_ref();
        self.has_newer_notes() && undone.is_some_and(|undone| undone.mode == UndoMode::Refuse)
    }

    /// Whether the memory is a file with the installed content afterwards.
    fn restores_file(&self) -> bool {
        matches!(self.action, StepAction::Replace | StepAction::Create)
    }

    /// Returns what the operator should know before confirming: findings of the lint first.
    pub fn checks(&self) -> impl Iterator<Item = &String> {
        self.lint_findings.iter().chain(&self.notes)
    }

    /// The step of an agent that was not observed: any file is archived and replaced.
    pub(in crate::engine) fn from_unobserved(agent: &Agent) -> PlanStep {
        PlanStep {
            agent: agent.name.clone(),
            host: host_name(agent),
            state: State::Loading,
            action: StepAction::Replace,
            binding: PlanBinding::default(),
            entry_kind: None,
            scratch_lines: 0,
            archive_bytes: 0,
            added_lines: 0,
            removed_lines: 0,
            new_size: 0,
            is_confirmation_typed: false,
            protection: agent.protect,
            notes: Vec::new(),
            purpose: None,
            lint_findings: Vec::new(),
            degradations: Vec::new(),
            undone_run: None,
            kept_scratch: None,
            behind_version: None,
            files: Vec::new(),
            new_directories: Vec::new(),
            removed_directories: Vec::new(),
        }
    }
}

/// An agent that was requested and is not in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedAgent {
    /// The agent's name.
    pub agent: String,
    /// Its observed state.
    pub state: State,
    /// The reason, as a sentence.
    #[serde(rename = "why")]
    pub reason: String,
    /// Kind of the refusal; none when the agent needs no change.
    pub kind: Option<ErrorKind>,
    /// The baseline version that the memory already has, if that is why it needs no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Digest>,
    /// What the operator can do about it.
    pub hints: Vec<String>,
}

impl SkippedAgent {
    /// Creates the refusal of an agent.
    pub(in crate::engine) fn from_error(
        agent: &Agent,
        state: State,
        error: &Error,
    ) -> SkippedAgent {
        SkippedAgent {
            kind: Some(error.kind()),
            hints: error.hints().to_vec(),
            ..SkippedAgent::nothing_to_do(agent, state, error.to_string())
        }
    }

    /// Converts it into an error, if it is a refusal.
    pub(in crate::engine) fn to_error(&self) -> Option<Error> {
        let is_host_lost = matches!(self.state, State::Unreach | State::HostKey);
        let error = Error::new(self.kind?, &self.reason).with_lost_host(is_host_lost);
        let hints = self.hints.iter();
        Some(hints.fold(error, |error, hint| error.with_hint(hint)))
    }

    /// Creates the refusal of an agent of a run that is no longer in the config.
    pub(in crate::engine) fn not_configured(name: &str) -> SkippedAgent {
        SkippedAgent {
            agent: name.to_string(),
            state: State::Error,
            reason: "no longer in the config".to_string(),
            kind: Some(ErrorKind::Conflict),
            baseline: None,
            hints: vec![format!(
                "add agent {name} to the config again to undo its reset"
            )],
        }
    }

    /// Creates the skip of an agent that needs no change.
    pub(in crate::engine) fn nothing_to_do(
        agent: &Agent,
        state: State,
        reason: impl Into<String>,
    ) -> SkippedAgent {
        SkippedAgent {
            agent: agent.name.clone(),
            state,
            reason: reason.into(),
            kind: None,
            baseline: None,
            hints: Vec::new(),
        }
    }
}

/// What a run would do, and to which agents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Reset, push, undo or edit.
    #[serde(rename = "act")]
    pub operation: Operation,
    /// Identifies the plan: the shortened digest of its bindings. Empty when no agent was observed.
    pub hash: String,
    /// Time of planning.
    #[serde(rename = "made")]
    pub created_at: DateTime<FixedOffset>,
    /// The agents that would be changed.
    pub steps: Vec<PlanStep>,
    /// Agents that would stay unchanged, and why.
    pub skipped: Vec<SkippedAgent>,
    /// Whether the whole fleet was requested.
    #[serde(rename = "whole_fleet")]
    pub is_whole_fleet: bool,
    /// What retention would delete from the archive at the end of the run.
    pub retention: Option<RetentionPlan>,
}

/// What retention would delete at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RetentionPlan {
    /// Paths below `archive_dir`, the oldest of each directory first.
    pub entries: Vec<PathBuf>,
    /// Baseline versions that no undo needs any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<Digest>,
    /// Why it would delete nothing, if it cannot.
    #[serde(rename = "blocked")]
    pub blocker: Option<Blocker>,
    /// Other expired entries that stay, and why.
    pub notes: Vec<String>,
    /// Whether the baseline versions were checked, and the directories of no agent.
    #[serde(skip)]
    pub(in crate::engine) is_full_check: bool,
}

impl Plan {
    /// Returns what an undo can do with the notes that agents have written since; nothing if there are
    /// none. They are appended only to files that it restores.
    pub fn undo_choices(&self) -> &'static [UndoMode] {
        let mut restored = self.steps_with_newer_notes();
        match (
            self.steps_with_newer_notes().next(),
            restored.any(PlanStep::restores_file),
        ) {
            (None, _) => &[],
            (Some(_), true) => &[UndoMode::Append, UndoMode::Overwrite],
            (Some(_), false) => &[UndoMode::Overwrite],
        }
    }

    /// Returns the options of `undo` that say what happens to newer notes, a sentence each.
    pub fn undo_choice_hints(&self) -> &'static [&'static str] {
        let removes = |step: &PlanStep| step.action == StepAction::Remove;
        match self.undo_choices() {
            [] => &[],
            [_] if self.steps_with_newer_notes().all(removes) => &[REMOVE_HINT],
            [_] => &[PUT_BACK_HINT],
            _ => &[
                "use --append to keep what was written since, below the restored file",
                "use --overwrite to archive what was written since, and restore the old file alone",
            ],
        }
    }

    fn steps_with_newer_notes(&self) -> impl Iterator<Item = &PlanStep> {
        self.steps.iter().filter(|step| step.has_newer_notes())
    }

    /// Names of all agents, the skipped ones last.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        let steps = self.steps.iter().map(|step| step.agent.as_str());
        steps.chain(self.skipped.iter().map(|skipped| skipped.agent.as_str()))
    }

    /// Leaves out the agents that are protected as read-only, unless the plan is about one agent: a run
    /// of several is not about them, and must not fail because of them. Returns their names.
    pub fn leave_out_protected(&mut self) -> Vec<String> {
        if self.agents().nth(1).is_none() {
            return Vec::new();
        }
        let is_protected = |it: &SkippedAgent| it.reason == READ_ONLY_REASON;
        let skipped = std::mem::take(&mut self.skipped).into_iter();
        let (protected, others): (Vec<_>, Vec<_>) = skipped.partition(is_protected);
        self.skipped = others;
        protected.into_iter().map(|it| it.agent).collect()
    }

    pub(in crate::engine) fn new(
        act: Operation,
        created_at: DateTime<FixedOffset>,
        steps: Vec<PlanStep>,
        skipped: Vec<SkippedAgent>,
    ) -> Plan {
        let mut text = format!("{act:?}\n");
        for step in &steps {
            let PlanBinding {
                location: place,
                content_digest: content,
                boundary_rule: rule,
                above_digest: above,
                kept_scratch: kept,
            } = &step.binding;
            let agent = &step.agent;
            text.push_str(&format!("{agent}\0{place}\0{content}\0{rule}\0{above}"));
            if let Some(kept) = kept {
                text.push_str(&format!("\0{kept}"));
            }
            if let Some(undone) = &step.undone_run {
                text.push_str(&format!("\0{:?}", undone.mode));
            }
            text.push('\n');
        }
        Plan {
            operation: act,
            hash: Digest::of(text.as_bytes()).short_hex(12),
            created_at,
            is_whole_fleet: false,
            retention: None,
            steps,
            skipped,
        }
    }

    /// Returns whether the plan was made without observing its agents.
    pub fn is_unobserved(&self) -> bool {
        self.hash.is_empty()
    }

    /// Guarantees that the steps' hosts lack, without duplicates.
    pub fn degradations(&self) -> Vec<&str> {
        let mut degradations = Vec::new();
        for text in self.steps.iter().flat_map(|step| &step.degradations) {
            if !degradations.contains(&text.as_str()) {
                degradations.push(text);
            }
        }
        degradations
    }

    /// Returns whether `hash` is this plan's hash, which may be shortened to eight digits.
    pub fn matches_hash(&self, hash: &str) -> bool {
        hash.len() >= 8 && self.hash.starts_with(&hash.to_ascii_lowercase())
    }
}
