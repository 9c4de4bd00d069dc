//! Plans of edits: steps that replace, create and remove several files of an agent at once, and their
//! undo. A run applies them as it applies a reset.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::plan::{
    FileSource, Plan, PlanBinding, PlanStep, PlannedFile, SkippedAgent, StepAction, UndoMode,
    UndoneRun,
};
use super::undo::{AgentRecords, rebuild_files};
use crate::archive::EntryKind;
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::Agent;
use crate::engine::runs::Planner;
use crate::engine::store::address::{connection_target, host_name};
use crate::engine::store::observation::Protection;
use crate::engine::store::record::{FileState, Operation};
use crate::engine::watch::classify::MemoryAccumulator;
use crate::engine::watch::degraded;
use crate::engine::watch::observe::ObservedAgent;
use crate::layouts::FileEdit;
use crate::transport::{FailureCause, MemoryObject, SwapForecast};

/// A file as it is when a step is planned.
struct PresentFile {
    state: FileState,
    /// The missing directories above it, the outermost first.
    missing_directories: Vec<PathBuf>,
    /// What the operator should know about its directory.
    degradations: Vec<String>,
}

impl Planner {
    /// Plans an edit of files of one agent, below `root`. Files that it leaves as they are, are left
    /// out.
    ///
    /// # Errors
    /// An agent that is not configured, or a path that leads out of `root`.
    pub fn plan_edit(
        &self,
        agent: &str,
        root: &Path,
        edits: &[FileEdit],
        is_unlocked: bool,
    ) -> Result<Plan> {
        let agent = self.context.agent(agent)?;
        self.context.archive().check_expected_for_write()?;
        let mut files = Vec::new();
        let mut paths = BTreeSet::new();
        for edit in edits.iter().filter(|edit| edit.before != edit.after) {
            let path = path_below(root, &edit.path)?;
            if !paths.insert(path.clone()) {
                let message = format!("{} is changed twice", path.display());
                return Err(Error::new(ErrorKind::User, message));
            }
            files.push(PlannedFile {
                path,
                before: content_state(edit.before.as_deref()),
                after: content_state(edit.after.as_deref()),
                source: match &edit.after {
                    Some(bytes) => FileSource::Bytes(Arc::new(bytes.clone())),
                    None => FileSource::Nothing,
                },
                attributes: None,
            });
        }
        let baselines = std::sync::Mutex::new(self.baselines.baseline_cache());
        let seen = self.observer.observe_with_bytes(agent, &baselines);
        let state = seen.observation.state;
        let step = if files.is_empty() {
            Err(SkippedAgent::nothing_to_do(
                agent,
                state,
                "the files are as they would be",
            ))
        } else {
            self.edit_step(agent, &seen, files, is_unlocked)
                .map_err(|error| SkippedAgent::from_error(agent, state, &error))
        };
        let (steps, skipped) = match step {
            Ok(step) => (vec![step], Vec::new()),
            Err(skipped) => (Vec::new(), vec![skipped]),
        };
        let now = self.context.clock().now();
        Ok(Plan::new(Operation::Edit, now, steps, skipped))
    }

    /// Plans the undo of an edit; none where each file is already as it was before.
    pub(super) fn edit_undo_step(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        records: &AgentRecords,
        mode: UndoMode,
        is_unlocked: bool,
    ) -> Result<Option<PlanStep>> {
        let event = &records.record.event;
        let mut files = rebuild_files(&self.undo_sources, agent, records)?;
        let mut written_since = Vec::new();
        for (file, change) in files.iter_mut().zip(&event.files) {
            file.before = self.present_file(agent, &file.path)?.state;
            if change.after.as_ref() != Some(&file.before) && file.before != file.after {
                written_since.push(file.path.display().to_string());
            }
        }
        files.retain(|file| file.before != file.after);
        if files.is_empty() {
            return Ok(None);
        }
        let mut step = self.edit_step(agent, seen, files, is_unlocked)?;
        step.removed_directories = event.directories.iter().rev().cloned().collect();
        if !written_since.is_empty() {
            let paths = written_since.join(", ");
            step.notes
                .push(format!("changed since run {}: {paths}", event.run));
            if mode == UndoMode::Append {
                let message =
                    format!("{paths} changed since, and only a memory can be appended to");
                return Err(Error::new(ErrorKind::Conflict, message)
                    .with_hint("--overwrite archives what was written since"));
            }
        }
        step.is_confirmation_typed |= !written_since.is_empty() && mode == UndoMode::Overwrite;
        step.undone_run = Some(UndoneRun {
            run: event.run.clone(),
            time: records.record.time,
            has_written_since: !written_since.is_empty(),
            mode,
        });
        Ok(Some(step))
    }

    /// Plans the change of these files.
    fn edit_step(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        files: Vec<PlannedFile>,
        is_unlocked: bool,
    ) -> Result<PlanStep> {
        let observation = &seen.observation;
        if observation.protection == Protection::ReadOnly && !is_unlocked {
            return Err(self.read_only_error(agent));
        }
        if let Some(blocker) = observation.blocker.as_ref()
            && blocker.kind == ErrorKind::Busy
        {
            return Err(blocker.to_error(&blocker.reason));
        }
        if let Some(error) = self.context.archive().read_only_error() {
            return Err(error);
        }
        let mut step = PlanStep {
            state: observation.state,
            action: StepAction::Edit,
            host: host_name(agent),
            is_confirmation_typed: observation.protection == Protection::Typed,
            ..PlanStep::from_unobserved(agent)
        };
        if agent.location.host().is_some() {
            step.degradations
                .push(degraded::SFTP_DEGRADATIONS.to_string());
        }
        for file in &files {
            let present = self.present_file(agent, &file.path)?;
            if present.state != file.before {
                let message = format!("{} has changed since it was read", file.path.display());
                return Err(Error::new(ErrorKind::Conflict, message).with_hint("read it again"));
            }
            if let FileState::File { size, .. } = file.before {
                step.entry_kind = Some(EntryKind::FullBackup);
                step.archive_bytes += size;
            }
            if let FileState::File { size, .. } = file.after {
                step.new_size += size;
            }
            for directory in present.missing_directories {
                if !step.new_directories.contains(&directory) {
                    step.new_directories.push(directory);
                }
            }
            for degradation in present.degradations {
                if !step.degradations.contains(&degradation) {
                    step.degradations.push(degradation);
                }
            }
        }
        step.binding = edit_binding(agent, &files);
        step.files = files;
        Ok(step)
    }

    /// Reads a file of an agent.
    ///
    /// # Errors
    /// It cannot be read or replaced, or another object has its place.
    fn present_file(&self, agent: &Agent, path: &Path) -> Result<PresentFile> {
        let mut missing_directories = Vec::new();
        let mut opened = path;
        let directory = loop {
            match self.context.open_directory_at(agent, opened) {
                Ok(directory) => break directory,
                Err(error) if error.cause == FailureCause::NoDirectory => {
                    let Some(parent) = opened.parent().filter(|it| it.parent().is_some()) else {
                        return Err(error.into());
                    };
                    missing_directories.insert(0, parent.to_path_buf());
                    opened = parent;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let properties = directory.properties()?;
        let degradations = degraded::accepted_degradations(agent, &properties.missing_extensions)?;
        if !missing_directories.is_empty() {
            return Ok(PresentFile {
                state: FileState::Absent,
                missing_directories,
                degradations,
            });
        }
        match properties.swap_forecast {
            SwapForecast::Clear => {}
            SwapForecast::Refused(error) => return Err(error),
            SwapForecast::InPlace => {
                let message = format!("{} is a mount point", path.display());
                return Err(Error::new(ErrorKind::Conflict, message)
                    .with_hint("mount its directory instead"));
            }
        }
        let state = match directory.stat_memory()? {
            MemoryObject::Absent => FileState::Absent,
            MemoryObject::Special(special) => {
                let message = format!(
                    "{} is {special}, and only files are changed",
                    path.display()
                );
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            MemoryObject::File(_) => {
                let mut reading = MemoryAccumulator::default();
                directory.read_memory(&mut |bytes| {
                    reading.push(bytes, 0);
                    Ok(())
                })?;
                reading.file_state()
            }
        };
        Ok(PresentFile {
            state,
            missing_directories,
            degradations,
        })
    }
}

/// Returns a path below `root`.
///
/// # Errors
/// It leads out of it.
fn path_below(root: &Path, path: &Path) -> Result<PathBuf> {
    let mut parts = path.components();
    if path.as_os_str().is_empty() || !parts.all(|it| matches!(it, Component::Normal(_))) {
        let message = format!(
            "{} is no path of a file below {}",
            path.display(),
            root.display()
        );
        return Err(Error::new(ErrorKind::User, message));
    }
    Ok(root.join(path))
}

/// Returns the state of a file with this content.
fn content_state(content: Option<&[u8]>) -> FileState {
    let Some(bytes) = content else {
        return FileState::Absent;
    };
    let mut reading = MemoryAccumulator::default();
    reading.push(bytes, 0);
    reading.file_state()
}

/// Binds a step to the states of its files.
fn edit_binding(agent: &Agent, files: &[PlannedFile]) -> PlanBinding {
    let mut text = Vec::new();
    for file in files {
        let digests = [&file.before, &file.after].map(|state| {
            state
                .digest()
                .map_or("absent".to_string(), |it| it.to_string())
        });
        text.extend_from_slice(file.path.as_os_str().as_encoded_bytes());
        text.extend_from_slice(format!("\0{}\0{}\n", digests[0], digests[1]).as_bytes());
    }
    PlanBinding {
        location: connection_target(agent).unwrap_or_else(|| host_name(agent)),
        content_digest: Digest::of(&text),
        boundary_rule: "files".to_string(),
        above_digest: Digest::ZERO,
        kept_scratch: None,
    }
}
