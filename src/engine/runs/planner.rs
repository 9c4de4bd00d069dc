//! Makes plans: observes agents, and decides for each what a reset or an undo would do to it, or why
//! it is skipped. Changes nothing.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::content::Replacement;
use super::plan::{
    BoundMemory, EQUAL_REASON, PUSHED_REASON, Plan, PlanBinding, PlanStep, READ_ONLY_REASON,
    SkippedAgent, StepAction, UndoMode, UndoTarget, UndoneRun, nothing_to_append_to_error,
    still_absent_reason,
};
use super::retention::RetentionScope;
use super::undo::{self, AgentRecords, UndoRecords, UndoneReset};
use crate::archive::{self, EntryKind};
use crate::base::diff;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::baseline::describe_missing_separator;
use crate::boundary::{
    Baseline, ChosenLines, DividedMemory, PushContent, ScratchRequest, ScratchSelection,
    select_chosen_lines, select_scratch, with_line_ends_of,
};
use crate::config::{Agent, Protection};
use crate::engine::baselines::lint::PlanLint;
use crate::engine::runs::Planner;
use crate::engine::shared_memories::sharing_error;
use crate::engine::watch::observe::ObservedAgent;
use crate::engine::watch::similar_names::SimilarFile;
use crate::engine::watch::{degraded, parallel};
use crate::store::record::{FileState, Operation};
use crate::store::state::State;
use crate::transport::{SpecialFile, SwapForecast};

/// Time limit of the comparison of a baseline with the version that was pushed last; after it, the
/// counts are those of a coarser diff.
const BASELINE_DIFF_TIMEOUT: Duration = Duration::from_millis(200);

impl Planner {
    /// Plans a reset of these agents. With `is_unlocked`, agents that are protected as read-only
    /// are planned like others.
    ///
    /// # Errors
    /// One is not configured, none of them is reset, or the archive is not the one that the config
    /// names.
    pub fn plan_reset(&self, names: &[String], is_unlocked: bool) -> Result<Plan> {
        self.plan_installation(names, None, is_unlocked)
    }

    /// Plans a push to these agents: it installs their baselines as a reset does, and keeps the
    /// selected scratch below them. Line numbers are those of one memory, so they select lines of
    /// one agent only.
    ///
    /// # Errors
    /// An agent that is not configured, or line numbers for several agents.
    pub fn plan_push(
        &self,
        names: &[String],
        selection: &ScratchSelection,
        is_unlocked: bool,
    ) -> Result<Plan> {
        if matches!(selection, ScratchSelection::Lines(_)) {
            check_one_agent(names)?;
        }
        let request = ScratchRequest::Selection(selection.clone());
        self.plan_installation(names, Some(&request), is_unlocked)
    }

    /// Plans a push that keeps lines which an operator chose in the memory of one agent as it was
    /// then. The agent is refused if one of them is gone.
    ///
    /// # Errors
    /// An agent that is not configured, or several agents.
    pub fn plan_push_of_chosen(
        &self,
        names: &[String],
        lines: &ChosenLines,
        is_unlocked: bool,
    ) -> Result<Plan> {
        check_one_agent(names)?;
        let request = ScratchRequest::Chosen(lines.clone());
        self.plan_installation(names, Some(&request), is_unlocked)
    }

    /// Returns those of these agents that are reset.
    ///
    /// # Errors
    /// One is not configured, or none is reset.
    fn reset_agents(&self, names: &[String]) -> Result<Vec<&Agent>> {
        let agents = unique_names(names).map(|name| self.context.agent(name));
        let mut agents: Vec<&Agent> = agents.collect::<Result<_>>()?;
        let first = agents.first().copied();
        agents.retain(|agent| agent.reset.is_some());
        if let Some(first) = first.filter(|_| agents.is_empty()) {
            first.required_reset()?;
        }
        Ok(agents)
    }

    /// Plans a push with a request, or a reset without one.
    fn plan_installation(
        &self,
        names: &[String],
        request: Option<&ScratchRequest>,
        is_unlocked: bool,
    ) -> Result<Plan> {
        self.shared_memories.refresh_shared_memories();
        let agents = self.reset_agents(names)?;
        self.context.archive().check_expected_for_write()?;
        let (steps, skipped) = self.plan_installation_steps(&agents, request, is_unlocked);
        let operation = match request {
            Some(_) => Operation::Push,
            None => Operation::Reset,
        };
        let count = steps.len() + skipped.len();
        let is_whole_fleet = count == self.context.config().reset_agents().count();
        let plan = Plan {
            is_whole_fleet: is_whole_fleet && count > 1,
            ..Plan::new(operation, self.context.clock().now(), steps, skipped)
        };
        Ok(self.with_retention(plan))
    }

    /// Observes agents, and plans the reset of each, or the push to each.
    fn plan_installation_steps(
        &self,
        agents: &[&Agent],
        request: Option<&ScratchRequest>,
        is_unlocked: bool,
    ) -> (Vec<PlanStep>, Vec<SkippedAgent>) {
        let baselines = Mutex::new(self.baselines.baseline_cache());
        let lint = PlanLint::new(&self.lint);
        plan_agents(self, agents, |agent| {
            let seen = self.observer.observe_with_bytes(agent, &baselines);
            let state = seen.observation.state;
            match self.installation_step(agent, &seen, request, is_unlocked, &lint) {
                Ok(Some(step)) => Ok(step),
                Ok(None) => {
                    let is_push = request.is_some() && state != State::Clean;
                    let reason = if is_push { PUSHED_REASON } else { EQUAL_REASON };
                    let mut reason = reason.to_string();
                    if self.context.journals().has_journal(&agent.name) {
                        reason.push_str(&format!(
                            "; {}",
                            self.observer.describe_unsettled_run(agent)
                        ));
                    }
                    Err(SkippedAgent {
                        baseline: seen.baseline.map(|baseline| baseline.digest()),
                        ..SkippedAgent::nothing_to_do(agent, state, reason)
                    })
                }
                Err(error) => Err(SkippedAgent::from_error(agent, state, &error)),
            }
        })
    }

    /// Adds to a plan what is deleted from the archive afterwards.
    fn with_retention(&self, mut plan: Plan) -> Plan {
        let retention = self
            .retention
            .plan_retention(&RetentionScope::from_plan(self.context.config(), &plan));
        if !retention.entries.is_empty() || !retention.versions.is_empty() {
            let entries = retention.entries.iter().map(|it| it.to_string_lossy());
            let versions = retention.versions.iter().map(|it| it.to_string().into());
            let text: Vec<_> = [plan.hash.as_str().into()]
                .into_iter()
                .chain(entries)
                .chain(versions)
                .collect();
            plan.hash = Digest::of(text.join("\0").as_bytes()).short_hex(12);
        }
        plan.retention = Some(retention);
        plan
    }

    /// Plans a run without reading memories, for callers that reset any state, as timers do. Such a
    /// plan names the agents, not the changes, so it cannot be applied as bound. Only agents that
    /// are protected as read-only are observed: whether one is refused depends on its state.
    ///
    /// # Errors
    /// An agent that is not configured.
    pub fn plan_unobserved(&self, names: &[String], is_unlocked: bool) -> Result<Plan> {
        let agents = self.reset_agents(names)?;
        self.context.archive().check_expected_for_write()?;
        // A protected agent is refused only if it has something to reset, so it is observed.
        let is_protected = |agent: &&Agent| agent.protect == Protection::ReadOnly && !is_unlocked;
        let protected: Vec<&Agent> = agents.iter().copied().filter(is_protected).collect();
        let (_, refused) = self.plan_installation_steps(&protected, None, is_unlocked);
        let refused = refused.into_iter().map(|it| (it.agent.clone(), it));
        let mut refused: HashMap<String, SkippedAgent> = refused.collect();
        let mut steps = Vec::new();
        let mut skipped = Vec::new();
        for agent in agents {
            if let Some(other) = self.shared_memories.known_sharing_agent(agent) {
                let error = sharing_error(&other);
                skipped.push(SkippedAgent::from_error(agent, State::Error, &error));
            } else if let Some(skip) = refused.remove(&agent.name) {
                skipped.push(skip);
            } else {
                steps.push(PlanStep::from_unobserved(agent));
            }
        }
        Ok(Plan {
            hash: String::new(),
            ..Plan::new(Operation::Reset, self.context.clock().now(), steps, skipped)
        })
    }

    /// Error for an agent that is protected as read-only. Its hint names the section that has the
    /// setting.
    pub(super) fn read_only_error(&self, agent: &Agent) -> Error {
        let config = self.context.config();
        let [own, general] =
            [agent.name.as_str(), "general"].map(|it| config.origin(it, "protect"));
        let place = config.path.display();
        let remove = if own == general {
            format!(
                "set protect=none in [{}], or remove protect=readonly from [general]",
                agent.name
            )
        } else {
            format!("remove protect=readonly from [{}]", agent.name)
        };
        Error::new(ErrorKind::Conflict, READ_ONLY_REASON).with_hint(format!(
            "{remove} in {place}, or unlock protected agents in the console"
        ))
    }

    /// Plans the reset of one agent, or the push to it; none where it needs no change.
    fn installation_step<'e>(
        &'e self,
        agent: &'e Agent,
        seen: &ObservedAgent,
        request: Option<&ScratchRequest>,
        is_unlocked: bool,
        lint: &PlanLint<'e>,
    ) -> Result<Option<PlanStep>> {
        if let Some(block) = &seen.observation.blocker {
            return Err(block.to_error(&block.reason));
        }
        let digest = |baseline: &Arc<Baseline>| baseline.digest();
        let found = seen.observation.content.as_ref().map(|it| it.sha256);
        let is_identical = seen.baseline.as_ref().map(digest) == found;
        // A push installs the line ends of the baseline, too.
        if seen.observation.state == State::Clean && (request.is_none() || is_identical) {
            return Ok(None);
        }
        // A memory is replaced only if the ledger can record that.
        if let Some(why) = &seen.observation.ledger_error {
            let error = self.context.ledger().head().err();
            return Err(error.unwrap_or_else(|| Error::new(ErrorKind::Host, why)));
        }
        if seen.observation.protection == Protection::ReadOnly && !is_unlocked {
            return Err(self.read_only_error(agent));
        }
        let Some(baseline) = &seen.baseline else {
            return Err(Error::new(ErrorKind::Internal, "the baseline was not read"));
        };
        let mut step = self.new_step(agent, seen, baseline.digest(), true)?;
        step.new_size = baseline.bytes().len() as u64;
        step.lint_findings = lint.describe_baseline(agent, baseline);
        step.notes
            .extend(seen.similar_file.as_ref().map(SimilarFile::note));
        if let Some(request) = request
            && self.add_kept_scratch(agent, &mut step, seen, request, lint)?
        {
            return Ok(None);
        }
        let content = seen.observation.content.as_ref();
        let boundary = content.and_then(|content| content.boundary);
        let has_separator = baseline.separator_line().is_some();
        if let Some(boundary) = boundary.filter(|_| has_separator) {
            step.notes.extend(boundary.describe_separator());
        }
        if let Some(pushed) = seen.pushed_version.filter(|it| *it != baseline.digest()) {
            step.notes
                .insert(0, self.describe_baseline_change(pushed, baseline.bytes()));
        }
        if !has_separator {
            let lacks = describe_missing_separator(agent, baseline);
            step.notes.insert(0, format!("the baseline has {lacks}"));
        }
        if step.state == State::Drifted {
            step.notes
                .push("edited rules: the whole file is archived, then replaced".to_string());
        }
        if step.state == State::NoSep {
            step.notes
                .push("no separator: the whole file is archived, then replaced".to_string());
        }
        Ok(Some(step))
    }

    /// Adds to a step what a push keeps. Returns whether the memory is what it would install.
    fn add_kept_scratch(
        &self,
        agent: &Agent,
        step: &mut PlanStep,
        seen: &ObservedAgent,
        request: &ScratchRequest,
        lint: &PlanLint<'_>,
    ) -> Result<bool> {
        let Some(baseline) = &seen.baseline else {
            return Ok(false);
        };
        let memory = seen
            .observation
            .content
            .as_ref()
            .map(|found| DividedMemory {
                prefix: &seen.prefix,
                size: found.size,
                lines: found.lines,
                boundary: found.boundary,
                version: seen.version.as_deref(),
            });
        let selection = match request {
            ScratchRequest::Selection(selection) => selection.clone(),
            ScratchRequest::Chosen(lines) => select_chosen_lines(lines, memory.as_ref())?,
        };
        if let Some(special) = &seen.special_file {
            check_special_file(special, &selection)?;
        }
        let content = select_scratch(&selection, memory.as_ref(), baseline)?;
        self.check_push_size(agent, &content)?;
        step.new_size = content.size();
        step.binding = step.binding.clone().with_push(Some(&content));
        if content.summary.bytes > 0 || step.scratch_lines > 0 {
            step.notes.push(content.summary.describe());
        }
        let limit = agent.max_memory_size();
        if content.size() > limit {
            step.notes.push(format!(
                "OVERSIZE afterwards: {} bytes, the limit is {limit}",
                content.size()
            ));
        }
        let kept = content.kept_bytes(memory.as_ref());
        step.lint_findings
            .extend(lint.describe_kept_scratch(agent, &content.head, kept));
        step.kept_scratch = Some(content.summary.clone());
        Ok(memory.is_some_and(|memory| content.equals(&memory)))
    }

    /// Checks that the agent's transport can read what a push would install.
    ///
    /// # Errors
    /// It is too large.
    pub(in crate::engine) fn check_push_size(
        &self,
        agent: &Agent,
        content: &PushContent,
    ) -> Result<()> {
        let limit = self.context.transport_for(agent).max_memory_bytes();
        let size = content.size();
        if size <= limit {
            return Ok(());
        }
        let message = format!("the memory would have {size} bytes, and {limit} can be read back");
        Err(Error::new(ErrorKind::Conflict, message).with_hint("keep fewer lines, or none"))
    }

    /// Describes how a baseline differs from the version that was pushed to an agent last.
    fn describe_baseline_change(&self, pushed: Digest, baseline: &[u8]) -> String {
        // The version may be gone; that the baseline differs is known from its digest.
        match self.context.baseline_versions().read_version(pushed) {
            Ok(version) => {
                let deadline = self.context.clock().instant() + BASELINE_DIFF_TIMEOUT;
                let version = with_line_ends_of(&version, baseline);
                let (added, removed) = diff::count_changes(&version, baseline, Some(deadline));
                format!("baseline changed: +{added} -{removed} lines since it was pushed last")
            }
            Err(_) => "baseline changed since it was pushed last".to_string(),
        }
    }

    /// A step that installs `content`, with the figures of the observed memory. `keeps_owner`: the new
    /// file gets the owner and the group of the memory, and not those of an earlier one.
    fn new_step(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        content: Digest,
        keeps_owner: bool,
    ) -> Result<PlanStep> {
        let found = seen.observation.content.as_ref();
        let memory = match (&seen.special_file, found) {
            (Some(_), _) => BoundMemory::Special,
            (None, Some(found)) => BoundMemory::File(found.boundary, &seen.prefix),
            (None, None) if seen.observation.is_absent => BoundMemory::Absent,
            (None, None) => {
                let why = seen.observation.reason.clone();
                return Err(match &seen.observation.blocker {
                    Some(block) => block.to_error(why),
                    None => Error::new(ErrorKind::Host, why),
                });
            }
        };
        let boundary = found.and_then(|found| found.boundary);
        let (action, entry) = match memory {
            BoundMemory::Absent => (StepAction::Create, None),
            BoundMemory::Special => (StepAction::Replace, Some(EntryKind::Special)),
            BoundMemory::File(..) => (
                StepAction::Replace,
                found.and_then(|found| found.entry_kind),
            ),
        };
        if let Some(error) = archive::read_only_error(self.context.archive().root()) {
            return Err(error);
        }
        let entries = Path::new(&agent.archive_subdir);
        self.context.archive().permissions().check_owner(entries)?;
        let mut notes = Vec::new();
        let directory = self.context.open_directory(agent)?;
        let properties = directory.properties()?;
        let mut degradations =
            degraded::accepted_degradations(agent, &properties.missing_extensions)?;
        if agent.host().is_some() {
            degradations.insert(0, degraded::SFTP_DEGRADATIONS.to_string());
        }
        let forecast = properties.swap_forecast;
        degradations.extend(degraded::in_place_degradation(agent, &forecast)?);
        if let SwapForecast::Refused(error) = forecast {
            return Err(error);
        }
        let obstacles = directory.obstacles()?;
        let ownership_refusal = obstacles.ownership_refusal.filter(|_| keeps_owner);
        if let Some(refusal) = obstacles.write_refusal.or(ownership_refusal) {
            return Err(refusal);
        }
        notes.extend(
            seen.special_file
                .as_ref()
                .map(|special| self.scanner.describe_special(agent, special)),
        );
        Ok(PlanStep {
            state: seen.observation.state,
            action,
            binding: PlanBinding::new(agent, content, &memory),
            entry_kind: entry,
            scratch_lines: found.map_or(0, |found| found.scratch_lines),
            archive_bytes: match entry {
                Some(EntryKind::Scratch) => found.map_or(0, |found| found.scratch_bytes),
                Some(EntryKind::FullBackup) => found.map_or(0, |found| found.size),
                _ => 0,
            },
            added_lines: boundary.map_or(0, |boundary| boundary.added_lines),
            removed_lines: boundary.map_or(0, |boundary| boundary.removed_lines),
            is_confirmation_typed: !seen.observation.is_intact()
                || seen.observation.protection == Protection::Typed,
            notes,
            degradations,
            behind_version: boundary.and_then(|boundary| boundary.rule.behind_version()),
            ..PlanStep::from_unobserved(agent)
        })
    }

    /// Plans an undo.
    ///
    /// # Errors
    /// An agent that is not configured, a run that is not in the ledger, or a
    /// ledger that cannot be read.
    pub fn plan_undo(
        &self,
        target: &UndoTarget,
        mode: UndoMode,
        is_unlocked: bool,
    ) -> Result<Plan> {
        self.context.archive().check_expected_for_write()?;
        let (agents, records) = self.find_undo_records(target)?;
        let baselines = Mutex::new(self.baselines.baseline_cache());
        let plan = |agent| {
            let seen = self.observer.observe_with_bytes(agent, &baselines);
            let of_agent = records.get(&agent.name);
            let state = seen.observation.state;
            let refuse = |error| SkippedAgent::from_error(agent, state, &error);
            let Some(of_agent) = of_agent else {
                if let Some(error) = records.unread().cloned() {
                    return Err(refuse(error.with_context("cannot find a run to undo")));
                }
                let reason = target.nothing_to_undo_reason(records.undone_reset(&agent.name));
                return Err(refuse(Error::new(ErrorKind::Conflict, reason)));
            };
            let run = &of_agent.record.event.run;
            let unchanged = |reason| SkippedAgent::nothing_to_do(agent, state, reason);
            if let Some(undone_by) = of_agent.undone_by() {
                return Err(unchanged(undo::already_undone_reason(of_agent, undone_by)));
            }
            let step = self.undo_step(agent, &seen, of_agent, mode, is_unlocked);
            let Some(mut step) = step.map_err(refuse)? else {
                return Err(unchanged(still_absent_reason(run)));
            };
            if let (UndoTarget::Agents(_), Some(newer)) = (target, &of_agent.skipped_run) {
                let note = format!("run {newer} is already undone; this undoes run {run}");
                step.notes.push(note);
                if let Some(undone) = &mut step.undone_run {
                    undone.skipped_run = Some(newer.clone());
                }
            }
            if let (UndoTarget::Run(_), Some(error)) = (target, records.unread()) {
                let note = format!("the run may have changed more agents before: {error}");
                step.notes.push(note);
            }
            Ok(step)
        };
        let (steps, mut skipped) = plan_agents(self, &agents, plan);
        if matches!(target, UndoTarget::Run(_)) {
            let removed = records
                .agents()
                .filter(|name| self.context.agent(name).is_err());
            skipped.extend(removed.map(SkippedAgent::not_configured));
        }
        let plan = Plan::new(Operation::Undo, self.context.clock().now(), steps, skipped);
        Ok(self.with_retention(plan))
    }

    /// Returns the agents of an undo, and the records that it depends on.
    fn find_undo_records(&self, target: &UndoTarget) -> Result<(Vec<&Agent>, UndoRecords)> {
        let run = match target {
            UndoTarget::Agents(names) | UndoTarget::Redo(names) => {
                let agents = unique_names(names).map(|name| self.context.agent(name));
                let agents: Vec<&Agent> = agents.collect::<Result<_>>()?;
                let redo = matches!(target, UndoTarget::Redo(_));
                let records = UndoRecords::from_last_runs(&self.context, &agents, redo)?;
                return Ok((agents, records));
            }
            UndoTarget::RunAgents(run, names) => {
                let agents = unique_names(names).map(|name| self.context.agent(name));
                let agents: Vec<&Agent> = agents.collect::<Result<_>>()?;
                let runs = agents
                    .iter()
                    .map(|agent| (agent.name.as_str(), run.as_str()));
                let records = UndoRecords::from_runs(&self.context, &runs.collect())?;
                return Ok((agents, records));
            }
            UndoTarget::Run(run) => run,
        };
        let records = UndoRecords::from_run(&self.context, run)?;
        let agents = records
            .agents()
            .filter_map(|name| self.context.agent(name).ok());
        let agents: Vec<&Agent> = agents.collect();
        if records.agents().next().is_none() {
            if let Some(error) = records.unread().cloned() {
                return Err(error.with_context(format!("cannot find run {run}")));
            }
            let mut is_recorded = false;
            self.context.ledger().for_each_record_backwards(|record| {
                is_recorded = record.event.run == *run;
                !is_recorded
            })?;
            let message = if is_recorded {
                format!("run {run} changed no memory; there is nothing to undo")
            } else {
                format!("no run {run} in the ledger")
            };
            let log = self.context.command_line("log");
            return Err(Error::new(ErrorKind::User, message)
                .with_hint(format!("run `{log}` to list all runs")));
        }
        Ok((agents, records))
    }

    /// Checks that an operation other than a reset may change files of an agent now.
    ///
    /// # Errors
    /// The agent is protected, or another run is changing it.
    pub(super) fn check_can_change(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        is_unlocked: bool,
    ) -> Result<()> {
        if seen.observation.protection == Protection::ReadOnly && !is_unlocked {
            return Err(self.read_only_error(agent));
        }
        let blocker = seen.observation.blocker.as_ref();
        match blocker.filter(|blocker| blocker.kind == ErrorKind::Busy) {
            Some(blocker) => Err(blocker.to_error(&blocker.reason)),
            None => Ok(()),
        }
    }

    /// Plans the undo of one agent; none where there was no file before the run and there is none
    /// now.
    fn undo_step(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        records: &AgentRecords,
        mode: UndoMode,
        is_unlocked: bool,
    ) -> Result<Option<PlanStep>> {
        self.check_can_change(agent, seen, is_unlocked)?;
        if !records.record.event.files.is_empty() {
            return self.edit_undo_step(agent, seen, records, mode);
        }
        let source = undo::rebuild_source(&self.context, agent, records)?;
        let special = seen.special_file.clone().map(FileState::Special);
        let object = if seen.observation.is_absent {
            Some(FileState::Absent)
        } else {
            special.clone()
        };
        if source.is_in_place(object.as_ref()) {
            return Ok(None);
        }
        let mut step = self.new_step(agent, seen, source.digest(), false)?;
        let now = match (&seen.observation.content, step.action) {
            (Some(content), _) => Some(FileState::File {
                sha256: content.sha256,
                size: content.size,
                lines: content.lines,
            }),
            (None, StepAction::Create) => Some(FileState::Absent),
            (None, _) => special,
        };
        let written_since = records.has_written_since(agent, now.as_ref());
        match (&source.replacement, source.state) {
            (Replacement::KeptObject { name, .. }, state) => {
                step.action = StepAction::PutBack;
                if let FileState::Special(special) = state {
                    step.notes
                        .push(format!("puts back {special}, kept as {name}"));
                }
            }
            (_, FileState::File { size, .. }) => step.new_size = size,
            (Replacement::Symlink(_), FileState::Special(link)) => {
                step.action = StepAction::PutBack;
                step.notes
                    .push(self.scanner.mask_secrets_in(&format!("puts back {link}")));
            }
            _ => step.action = StepAction::Remove,
        }
        if written_since {
            note_written_since(&mut step, mode, &records.record.event.run)?;
            if mode == UndoMode::Append
                && let Replacement::File(parts) = &source.replacement
                && let Some(content) = &seen.observation.content
            {
                let (_, has_whole_lines) = parts.measure(&self.context)?;
                step.new_size += content.scratch_bytes + u64::from(!has_whole_lines);
            }
        }
        step.undone_run = Some(UndoneRun {
            run: records.record.event.run.clone(),
            time: records.record.time,
            has_written_since: written_since,
            mode,
            skipped_run: None,
        });
        Ok(Some(step))
    }
}

/// Adds to an undo step that the agent has written since the run.
///
/// # Errors
/// The mode is append, but the step leaves no file.
fn note_written_since(step: &mut PlanStep, mode: UndoMode, run: &str) -> Result<()> {
    let is_file_left = !matches!(step.action, StepAction::Remove | StepAction::PutBack);
    match mode {
        UndoMode::Append if !is_file_left => {
            return Err(nothing_to_append_to_error(run, step.action));
        }
        UndoMode::Refuse if !is_file_left => {
            let error = nothing_to_append_to_error(run, step.action);
            step.notes.push(error.to_string());
        }
        UndoMode::Refuse if step.action == StepAction::Create => {
            step.notes.push("its memory was removed since".to_string());
        }
        UndoMode::Refuse => step.notes.push("the agent has written since".to_string()),
        UndoMode::Append if step.action == StepAction::Create => {}
        UndoMode::Append => step
            .notes
            .push("appends what the agent has written since".to_string()),
        UndoMode::Overwrite => step.is_confirmation_typed = true,
    }
    Ok(())
}

/// Checks that a push can keep what was selected of an object that is not read.
///
/// # Errors
/// It cannot.
pub(super) fn check_special_file(
    special: &SpecialFile,
    selection: &ScratchSelection,
) -> Result<()> {
    if *selection == ScratchSelection::Nothing {
        return Ok(());
    }
    let message = format!("no scratch can be kept: at the memory's path is {special}");
    Err(Error::new(ErrorKind::Conflict, message)
        .with_hint("keep none of it: the object is displaced unread"))
}

/// Checks that line numbers are about one memory.
fn check_one_agent(names: &[String]) -> Result<()> {
    if unique_names(names).count() == 1 {
        return Ok(());
    }
    let message = "line numbers select scratch of one agent";
    Err(Error::new(ErrorKind::User, message)
        .with_hint("push to each agent by itself, or keep all or none of the scratch"))
}

/// Plans each of these agents; hosts, and several processors, work at the same time.
fn plan_agents<'a>(
    planner: &Planner,
    agents: &[&'a Agent],
    plan: impl Fn(&'a Agent) -> Result<PlanStep, SkippedAgent> + Sync,
) -> (Vec<PlanStep>, Vec<SkippedAgent>) {
    let plan = &plan;
    let planned = parallel::read_agents_by_site(
        &planner.hosts,
        agents,
        || plan,
        |agents, threads| threads.map(agents.to_vec(), plan),
    );
    let mut steps = Vec::new();
    let mut skipped = Vec::new();
    for planned in planned {
        match planned {
            Ok(step) => steps.push(step),
            Err(skip) => skipped.push(skip),
        }
    }
    (steps, skipped)
}

/// Returns the names in order, without duplicates.
fn unique_names(names: &[String]) -> impl Iterator<Item = &str> {
    let mut seen = HashSet::new();
    names
        .iter()
        .map(String::as_str)
        .filter(move |name| seen.insert(*name))
}

impl UndoTarget {
    /// Reason to skip an agent without a matching record.
    fn nothing_to_undo_reason(&self, undone_reset: Option<&UndoneReset>) -> String {
        match (self, undone_reset) {
            (UndoTarget::Redo(_), _) => "no undo to redo".to_string(),
            (UndoTarget::RunAgents(run, _), _) => format!("run {run} did not change its memory"),
            (_, None) => "nothing to undo in the ledger".to_string(),
            (_, Some(UndoneReset { run, undone_by })) => {
                format!(
                    "nothing to undo: its last reset {run} is already undone by run {undone_by}"
                )
            }
        }
    }
}
