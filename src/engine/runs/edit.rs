//! Plans of edits: steps that replace, create and remove several files of an agent at once, and their
//! undo. A run applies them as it applies a reset.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::content::{ContentPart, ContentParts};
use super::plan::{
    Plan, PlanBinding, PlanStep, PlannedFile, SkippedAgent, StepAction, UndoMode, UndoneRun,
};
use super::undo::{AgentRecords, read_file_state, rebuild_files};
use crate::archive::{self, EntryKind};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::config::{Agent, Protection};
use crate::engine::context::Context;
use crate::engine::layout_memory::LayoutMemory;
use crate::engine::runs::Planner;
use crate::engine::watch::degraded;
use crate::engine::watch::observe::ObservedAgent;
use crate::layouts::{FileEdit, FileReadFault};
use crate::store::address::{connection_target, host_name};
use crate::store::record::{FileState, Operation};
use crate::transport::FailureCause;

/// Maximum number of files of one edit: a run has the directory of each open, and the ledger one
/// record for all.
const MAX_EDIT_FILES: usize = 1000;

/// Maximum size in bytes of a file whose content is compared with what the archive holds.
const MAX_COMPARED_BYTES: u64 = 1 << 20;

/// A file as it is when a step is planned.
struct PresentFile {
    state: FileState,
    /// The missing directories above it, the outermost first.
    missing_directories: Vec<PathBuf>,
    /// Guarantees that its directory lacks, a sentence each.
    degradations: Vec<String>,
}

impl Planner {
    /// Plans an edit of files of one agent, below `root`. Edits that change nothing are left out. The
    /// plan is bound to what the files become or, with `basis`, to this text in its place: what is
    /// wanted, where the time decides about the bytes.
    ///
    /// # Errors
    /// An agent that is not configured, a path that leads out of `root`, paths that exclude each
    /// other, or too many files.
    pub fn plan_edit(
        &self,
        agent: &str,
        root: &Path,
        edits: &[FileEdit],
        basis: Option<&str>,
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
            if paths.len() > MAX_EDIT_FILES {
                let message = format!("more than {MAX_EDIT_FILES} files to change in one step");
                return Err(
                    Error::new(ErrorKind::User, message).with_hint("change fewer at a time")
                );
            }
            files.push(PlannedFile {
                path,
                before: state_of(edit.before.as_deref()),
                after: state_of(edit.after.as_deref()),
                content: edit.after.clone().map(|bytes| {
                    let part = ContentPart::Bytes(Arc::new(bytes));
                    ContentParts(vec![part])
                }),
                attributes: None,
                moved_from: edit.moved_from.as_ref().map(|path| root.join(path)),
            });
        }
        // Whatever is below a path follows it.
        if let Some((file, _)) = paths
            .iter()
            .zip(paths.iter().skip(1))
            .find(|(path, next)| next.starts_with(path))
        {
            let message = format!("{} is to be a file and a directory", file.display());
            return Err(Error::new(ErrorKind::User, message));
        }
        let baselines = std::sync::Mutex::new(self.baselines.baseline_cache());
        let seen = self.observer.observe_with_bytes(agent, &baselines);
        let state = seen.observation.state;
        let step = if files.is_empty() {
            Err(SkippedAgent::nothing_to_do(
                agent,
                state,
                "all files already have this content",
            ))
        } else {
            self.check_can_change(agent, &seen, is_unlocked)
                .and_then(|()| {
                    let files = files.into_iter().map(|file| {
                        let present = self.present_file(agent, root, &file.path)?;
                        Ok((file, present))
                    });
                    self.edit_step(agent, &seen, files.collect::<Result<_>>()?, basis)
                })
                .map_err(|error| SkippedAgent::from_error(agent, state, &error))
        };
        let (steps, skipped) = match step {
            Ok(step) => (vec![step], Vec::new()),
            Err(skipped) => (Vec::new(), vec![skipped]),
        };
        let now = self.context.clock().now();
        Ok(Plan::new(Operation::Edit, now, steps, skipped))
    }

    /// Plans the undo of an edit; `None` where every file already has its earlier content. A file that has
    /// it while others have not was changed since: an entry that the edit has moved may have moved on.
    pub(super) fn edit_undo_step(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        records: &AgentRecords,
        mode: UndoMode,
    ) -> Result<Option<PlanStep>> {
        let event = &records.record.event;
        let mut files = Vec::new();
        let mut written_since = Vec::new();
        let rebuilt = rebuild_files(&self.context, agent, records)?;
        for (mut file, change) in rebuilt.into_iter().zip(&event.files) {
            let present = self.present_file(agent, memory_root(agent, &file.path)?, &file.path)?;
            file.before = present.state.clone();
            if change.after.as_ref() != Some(&file.before) {
                written_since.push(file.path.display().to_string());
            }
            if file.before != file.after {
                files.push((file, present));
            }
        }
        if files.is_empty() {
            return Ok(None);
        }
        let mut step = self.edit_step(agent, seen, files, None)?;
        step.removed_directories = event.directories.iter().rev().cloned().collect();
        if !written_since.is_empty() {
            let paths = written_since.join(", ");
            step.notes
                .push(format!("changed since run {}: {paths}", event.run));
            if mode == UndoMode::Append {
                let message = format!(
                    "{paths} changed since run {}; notes can be appended to a memory only",
                    event.run
                );
                return Err(Error::new(ErrorKind::Conflict, message)
                    .with_hint("--overwrite archives the newer contents"));
            }
        }
        step.is_confirmation_typed |= !written_since.is_empty() && mode == UndoMode::Overwrite;
        step.undone_run = Some(UndoneRun {
            run: event.run.clone(),
            time: records.record.time,
            has_written_since: !written_since.is_empty(),
            mode,
            skipped_run: None,
        });
        Ok(Some(step))
    }

    /// Plans the change of files as they are present.
    ///
    /// # Errors
    /// One is not as its change expects it, or the archive cannot be written.
    fn edit_step(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        files: Vec<(PlannedFile, PresentFile)>,
        basis: Option<&str>,
    ) -> Result<PlanStep> {
        let observation = &seen.observation;
        if let Some(error) = archive::read_only_error(self.context.archive().root()) {
            return Err(error);
        }
        let mut step = PlanStep {
            state: observation.state,
            action: StepAction::Edit,
            host: host_name(agent),
            is_confirmation_typed: observation.protection == Protection::Typed,
            ..PlanStep::from_unobserved(agent)
        };
        if agent.host().is_some() {
            step.degradations
                .push(degraded::SFTP_DEGRADATIONS.to_string());
        }
        for (file, present) in files {
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
            step.files.push(file);
        }
        step.binding = edit_binding(agent, &step.files, basis);
        Ok(step)
    }

    /// Reads a file of an agent below `root`, which exists.
    ///
    /// # Errors
    /// The file cannot be read or replaced, or the object at its path is not a file.
    fn present_file(&self, agent: &Agent, root: &Path, path: &Path) -> Result<PresentFile> {
        let mut missing_directories = Vec::new();
        let mut opened = path;
        let directory = loop {
            match self.context.open_directory_at(agent, opened) {
                Ok(directory) => break directory,
                Err(error) if error.cause == FailureCause::NoDirectory => {
                    let Some(parent) = opened.parent().filter(|it| *it != root) else {
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
        degraded::check_exchangeable(path, &properties.swap_forecast)?;
        let state = read_file_state(directory.as_ref())?;
        if let FileState::Special(special) = &state {
            let message = format!("cannot change {}: it is {special}", path.display());
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(PresentFile {
            state,
            missing_directories,
            degradations,
        })
    }
}

/// Returns the contents of files that an undo changes, where they are known and small enough to compare:
/// those that are in the memory, and those that the archive holds.
pub(in crate::engine) fn undone_edits(
    context: &Context,
    memory: &LayoutMemory,
    files: &[PlannedFile],
) -> Vec<FileEdit> {
    let is_small = |state: &FileState| match state {
        FileState::File { size, .. } => *size <= MAX_COMPARED_BYTES,
        _ => true,
    };
    let are_small = |file: &&PlannedFile| is_small(&file.before) && is_small(&file.after);
    let small = files.iter().filter(are_small);
    small
        .filter_map(|file| undone_edit(context, memory, file))
        .collect()
}

fn undone_edit(context: &Context, memory: &LayoutMemory, file: &PlannedFile) -> Option<FileEdit> {
    let path = file.path.strip_prefix(memory.files.root()).ok()?;
    let before = match memory.files.read(path).ok()? {
        Ok(bytes) => Some(bytes),
        Err(FileReadFault::Absent) => None,
        Err(_) => return None,
    };
    let mut after = None;
    if let Some(parts) = &file.content {
        let reader = parts.open_reader(context).ok()?;
        let mut bytes = Vec::new();
        reader
            .take(MAX_COMPARED_BYTES)
            .read_to_end(&mut bytes)
            .ok()?;
        after = Some(bytes);
    }
    Some(FileEdit {
        path: path.to_path_buf(),
        before,
        after,
        moved_from: None,
    })
}

/// Returns the directory of an agent's memories that a file is below.
///
/// # Errors
/// The config has moved them since.
fn memory_root<'a>(agent: &'a Agent, path: &Path) -> Result<&'a Path> {
    let of_layout = agent
        .layout
        .as_ref()
        .map(|layout| layout.directory.as_path());
    let mut roots = of_layout.into_iter().chain(agent.observed_path().parent());
    roots.find(|root| path.starts_with(root)).ok_or_else(|| {
        let message = format!(
            "{} is in no directory of {} now",
            path.display(),
            agent.name
        );
        Error::new(ErrorKind::Conflict, message)
    })
}

/// Returns a path below `root`.
///
/// # Errors
/// The path leads out of `root`, or the ledger could not record it.
fn path_below(root: &Path, path: &Path) -> Result<PathBuf> {
    let mut parts = path.components();
    if path.as_os_str().is_empty() || !parts.all(|it| matches!(it, Component::Normal(_))) {
        let message = format!(
            "cannot change {}: the path leads out of {}",
            path.display(),
            root.display()
        );
        return Err(Error::new(ErrorKind::User, message));
    }
    if path.to_str().is_none() {
        let message = format!("cannot change {}: its name is not UTF-8", path.display());
        return Err(Error::new(ErrorKind::Conflict, message).with_hint("rename the file"));
    }
    Ok(root.join(path))
}

/// Returns the state of a file with these bytes; none is absent.
fn state_of(bytes: Option<&[u8]>) -> FileState {
    bytes.map_or(FileState::Absent, FileState::of)
}

/// Binds a step to the states of its files, or to those before it and what is wanted.
fn edit_binding(agent: &Agent, files: &[PlannedFile], basis: Option<&str>) -> PlanBinding {
    let mut text = Vec::new();
    let name = |state: &FileState| {
        let digest = state.digest();
        digest.map_or("absent".to_string(), |it| it.to_string())
    };
    for file in files {
        // The time may name a new file.
        if basis.is_some() && file.before == FileState::Absent {
            continue;
        }
        let after = basis.map_or_else(|| name(&file.after), str::to_string);
        text.extend_from_slice(file.path.as_os_str().as_encoded_bytes());
        text.extend_from_slice(format!("\0{}\0{after}\n", name(&file.before)).as_bytes());
    }
    text.extend_from_slice(basis.unwrap_or_default().as_bytes());
    PlanBinding {
        location: connection_target(agent).unwrap_or_else(|| host_name(agent)),
        content_digest: Digest::of(&text),
        boundary_rule: "files".to_string(),
        ..PlanBinding::default()
    }
}
