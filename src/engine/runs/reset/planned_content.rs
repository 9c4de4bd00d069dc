//! The content that a turn installs: the baseline, what a push keeps below it, or what an undo
//! restores; and whether the memory is still what the plan is bound to.

use std::sync::{Arc, PoisonError};

use super::Run;
use crate::base::diff::count_lines;
use crate::base::error::{Error, ErrorKind};
use crate::boundary::{Baseline, DividedMemory, KeptScratch, PushContent, select_scratch};
use crate::config::Agent;
use crate::engine::runs::content::{ContentPart, ContentParts, Replacement};
use crate::engine::runs::plan::{
    PlanBinding, PlanStep, StepAction, UndoMode, nothing_to_append_to_error,
};
use crate::engine::runs::planner::check_special_file;
use crate::engine::runs::undo::{self, AgentRecords, InstallSource, UndoRecords};
use crate::store::record::{FileState, RunEvent};
use crate::transport::MemoryObject;

impl Run<'_> {
    /// Returns the content to install: the baseline, or what an undo restores.
    pub(super) fn content_source(
        &self,
        agent: &Agent,
        step: &PlanStep,
        current: &Arc<Baseline>,
    ) -> Result<InstallSource, Error> {
        let Some(undo) = &step.undone_run else {
            let parts = ContentParts(vec![ContentPart::Baseline(Arc::clone(current))]);
            let state = FileState::File {
                sha256: current.digest(),
                size: current.bytes().len() as u64,
                lines: count_lines(current.bytes()) as u64,
            };
            return Ok(InstallSource {
                baseline: Some(current.digest()),
                ..InstallSource::new(Replacement::File(parts), state)
            });
        };
        let records = self.undo_records(agent, &undo.run)?;
        undo::rebuild_source(self.context(), agent, &records)
    }

    /// Returns the ledger records that the undo of an agent depends on, up to date.
    fn undo_records(&self, agent: &Agent, run: &str) -> Result<AgentRecords, Error> {
        let mut undone = self
            .undo_records
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let records = match undone.as_mut() {
            Some(records) => {
                records.catch_up(self.context())?;
                records
            }
            None => {
                let steps = self.plan.steps.iter();
                let undos = steps.filter_map(|step| Some((&step.agent, step.undone_run.as_ref()?)));
                let runs = undos.map(|(agent, undo)| (agent.as_str(), undo.run.as_str()));
                undone.insert(UndoRecords::from_runs(self.context(), &runs.collect())?)
            }
        };
        records.get(&agent.name).cloned().ok_or_else(|| {
            let message = format!("the ledger has no run {run} of {}", agent.name);
            match records.unread() {
                Some(error) => error.clone().with_context(message),
                None => Error::new(ErrorKind::Conflict, message),
            }
        })
    }

    /// Whether the memory already has the content to install, given whether it equals it.
    ///
    /// # Errors
    /// The memory, or the content, is not what the plan is bound to.
    pub(super) fn is_up_to_date(
        &self,
        step: &PlanStep,
        binding: &PlanBinding,
        is_installed: bool,
    ) -> Result<bool, Error> {
        // Recovery may just have finished an interrupted run, which the plan could not see.
        if step.undone_run.is_none()
            && is_installed
            && (!self.is_bound || step.binding.content_digest == binding.content_digest)
        {
            return Ok(true);
        }
        if self.is_bound && *binding != step.binding {
            return Err(changed_memory_error());
        }
        Ok(false)
    }

    /// Returns the content that a push installs; `None` in other runs.
    pub(super) fn push_content(
        &self,
        agent: &Agent,
        step: &PlanStep,
        object: &MemoryObject,
        memory: &DividedMemory<'_>,
        baseline: &Baseline,
    ) -> Result<Option<PushContent>, Error> {
        let Some(KeptScratch { selection, .. }) = &step.kept_scratch else {
            return Ok(None);
        };
        if let MemoryObject::Special(special) = object {
            check_special_file(special, selection)?;
        }
        let is_file = matches!(object, MemoryObject::File(_));
        let selected = select_scratch(selection, is_file.then_some(memory), baseline);
        // The plan could select it.
        let content = selected.map_err(|error| {
            if self.is_bound {
                changed_memory_error()
            } else {
                error
            }
        })?;
        self.runs.planner.check_push_size(agent, &content)?;
        Ok(Some(content))
    }

    /// Returns the state in which the undone run left the memory, if the undo appends what the agent
    /// has written since.
    ///
    /// # Errors
    /// The agent has written since, and the plan does not say what to do about that.
    pub(super) fn check_undo(
        &self,
        agent: &Agent,
        step: &PlanStep,
        source: &InstallSource,
        event: &RunEvent,
    ) -> Result<Option<FileState>, Error> {
        let Some(undo) = &step.undone_run else {
            return Ok(None);
        };
        let records = self.undo_records(agent, &undo.run)?;
        let has_written_since = records.has_written_since(agent, event.change.before.as_ref());
        if !has_written_since || undo.mode == UndoMode::Overwrite {
            return Ok(None);
        }
        let refuse = |error: Error| match &undo.skipped_run {
            Some(newer) => {
                let run = &undo.run;
                error.with_context(format!("run {newer} is already undone; next is run {run}"))
            }
            None => error,
        };
        let action = match source.replacement {
            Replacement::File(_) => None,
            Replacement::Absent => Some(StepAction::Remove),
            Replacement::KeptObject { .. } | Replacement::Symlink(_) => Some(StepAction::PutBack),
        };
        if let Some(action) = action {
            return Err(refuse(nothing_to_append_to_error(&undo.run, action)));
        }
        if undo.mode == UndoMode::Refuse {
            let (what, hint) = if event.change.before == Some(FileState::Absent) {
                ("its memory was removed", "--overwrite restores the file")
            } else {
                let hint = "--append keeps the new notes below the restored file, --overwrite \
                            archives them";
                ("the agent has written", hint)
            };
            let message = format!("{what} since run {}", undo.run);
            let error = Error::new(ErrorKind::Conflict, message).with_hint(hint);
            return Err(refuse(error));
        }
        let left = records.record.event.change.after.clone();
        Ok(Some(left.unwrap_or(FileState::Absent)))
    }
}

fn changed_memory_error() -> Error {
    let message = "the memory has changed since the plan";
    let hint = "review a new plan; nothing was changed";
    Error::new(ErrorKind::Conflict, message).with_hint(hint)
}
