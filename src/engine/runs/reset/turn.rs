//! The steps of one agent's turn. Each step returns its unsynced changes; the lane syncs them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::capture::Captured;
use super::early_end::EarlyEnd;
use super::queued_turn::QueuedTurn;
use super::{Run, RunStage};
use crate::archive::WrittenEntry;
use crate::base::digest::Digest;
use crate::base::durable;
use crate::base::error::{Error, ErrorKind};
use crate::config::Agent;
use crate::engine::runs::plan::PlanStep;
use crate::engine::runs::undo::{ContentParts, Replacement};
use crate::engine::shared_memories::sharing_error;
use crate::engine::store::address::connection_target;
use crate::engine::store::journal::{Journal, Transaction};
use crate::engine::store::lock;
use crate::engine::store::lock::AgentLock;
use crate::engine::store::record::{FileState, RunEvent};
use crate::engine::watch::degraded;
use crate::transport::{
    Attributes, ByteSink, FailureCause, MemoryDirectory, NewMemory, StagedAttributes, SwapForecast,
    SwapMethod, SwapOutcome, UnsyncedObject,
};

/// How long a run waits for the holder of a lease to release it. A file server that has the file
/// open for a client takes a moment; the memory of an agent that keeps the lease is displaced
/// unread.
const LEASE_BREAK_TIMEOUT: Duration = Duration::from_secs(2);

/// An agent whose turn has begun.
pub(super) struct Turn<'a> {
    pub(super) queued: QueuedTurn<'a>,
    pub(super) agent: &'a Agent,
    pub(super) directory: Box<dyn MemoryDirectory>,
    pub(super) event: RunEvent,
    pub(super) began_at: Instant,
}

impl Turn<'_> {
    pub(super) fn add_note(&mut self, note: &str) {
        self.event.add_note(note);
    }
}

/// The outcome of steps 1 and 2.
pub(super) enum CaptureOutcome<'a> {
    Captured(Turn<'a>, Box<Captured>),
    Unchanged(Turn<'a>),
    EndedEarly(Turn<'a>, EarlyEnd),
    Refused(QueuedTurn<'a>, Error),
}

/// The data of a turn after step 3.
pub(super) struct PreparedSwap {
    pub(super) entry: Option<WrittenEntry>,
    pub(super) captured: Captured,
    pub(super) staged_name: String,
    pub(super) journal: Journal,
    pub(super) known_digests: Vec<Digest>,
    pub(super) archived_content: Option<ContentParts>,
}

/// Ties an agent's lock to its directory, so that it stays locked while a hung call may still
/// change that directory.
pub(super) fn hold_lock_guard(directory: &dyn MemoryDirectory, lock: Option<&Arc<AgentLock>>) {
    if let Some(lock) = lock {
        directory.hold_guard(Arc::clone(lock) as _);
    }
}

impl<'a> Run<'a> {
    /// Returns the initial event of an agent.
    pub(super) fn new_step_event(&self, step: &PlanStep) -> RunEvent {
        RunEvent {
            undone_run: step.undone_run.as_ref().map(|undo| undo.run.clone()),
            ..self.new_event(&step.agent)
        }
    }

    pub(super) fn ensure_locked(&self, queued: &mut QueuedTurn<'a>) -> Result<&'a Agent, Error> {
        let agent = self.runs.context.agent(&queued.step.agent)?;
        if queued.lock.is_none() {
            queued.lock = Some(Arc::new(self.lock_agent(agent)?));
        }
        Ok(agent)
    }

    pub(super) fn lock_agent(&self, agent: &Agent) -> Result<AgentLock, Error> {
        let _span = tracing::debug_span!("lock", agent = agent.name).entered();
        loop {
            let holder = self.runs.locks.new_lock_holder(&self.id);
            let locked = lock::acquire_agent_lock(
                self.runs.context.archive(),
                &agent.name,
                &holder,
                self.runs.context.clock().zone(),
            );
            // Another run may have taken the lock between the wait and this attempt.
            let is_busy = matches!(&locked, Err(error) if error.kind() == ErrorKind::Busy);
            if !is_busy || self.is_cancelled() || !self.runs.locks.wait_lock_interval() {
                return locked;
            }
        }
    }

    /// Takes steps 1 and 2 for one agent whose lock is held.
    pub(super) fn capture(
        &self,
        mut queued: QueuedTurn<'a>,
        agent: &'a Agent,
        journals: &[(String, PathBuf)],
    ) -> CaptureOutcome<'a> {
        queued.attempts += 1;
        let began = self.runs.context.clock().instant();
        let directory = || -> Result<_, Error> {
            self.recoverer()
                .recover_from_journals(agent, journals, queued.lock.as_ref())?;
            // An undo restores bytes of the same file, so sharing does not matter to it.
            if queued.step.undone_run.is_none()
                && let Some(other) = self.runs.shared_memories.find_sharing_agent(agent)
            {
                return Err(sharing_error(&other));
            }
            let directory = self
                .runs
                .context
                .open_directory(agent)
                .inspect_err(|error| self.note_unreachable(agent, error.cause, error))?;
            hold_lock_guard(directory.as_ref(), queued.lock.as_ref());
            Ok(directory)
        };
        let directory = match directory() {
            Ok(directory) => directory,
            Err(error) => return CaptureOutcome::Refused(queued, error),
        };
        let event = self.new_step_event(queued.step);
        let mut turn = Turn {
            queued,
            agent,
            directory,
            event,
            began_at: began,
        };
        let step = turn.queued.step;
        self.report_stage(&step.agent, RunStage::Archive);
        let since = turn.queued.leased_since;
        let patient = since.is_none_or(|since| began.duration_since(since) < LEASE_BREAK_TIMEOUT);
        let captured = self.memory_capture().capture_memory(
            agent,
            &turn.queued,
            turn.directory.as_ref(),
            &mut turn.event,
            patient,
        );
        match captured {
            Ok(Some(captured)) => CaptureOutcome::Captured(turn, Box::new(captured)),
            Ok(None) => CaptureOutcome::Unchanged(turn),
            Err(early_end) => {
                if let EarlyEnd::HostLost(error) = &early_end {
                    self.note_unreachable(agent, FailureCause::Unreachable, error);
                }
                CaptureOutcome::EndedEarly(turn, early_end)
            }
        }
    }

    /// Takes step 3, before any change in the agent's directory: names the entry and writes the
    /// journal. Returns the objects to sync.
    pub(super) fn prepare_swap(
        &self,
        turn: &mut Turn<'a>,
        mut captured: Captured,
    ) -> Result<(PreparedSwap, Vec<UnsyncedObject>), EarlyEnd> {
        let properties = turn.directory.properties()?;
        for note in degraded::accepted_degradations(turn.agent, &properties.missing_extensions)? {
            turn.add_note(&note);
        }
        // A memory that cannot be replaced gets no entry.
        degraded::in_place_degradation(turn.agent, &properties.swap_forecast)?;
        if let SwapForecast::Refused(error) = &properties.swap_forecast
            && turn.agent.location.host().is_some()
        {
            return Err(error.clone().into());
        }
        let mut changed =
            self.memory_capture()
                .name_entry(turn.agent, &mut captured, &mut turn.event)?;
        let before = turn.event.change.before.iter();
        let transaction = Transaction {
            event: turn.event.clone(),
            memory: turn.agent.location.memory().to_path_buf(),
            connection_target: connection_target(turn.agent),
            directory_id: properties.id,
            staged_name: match &captured.source.replacement {
                Replacement::KeptObject { name, .. } => name.clone(),
                _ => durable::new_random_name()?,
            },
            memory_inode: captured.inode,
            known_digests: before.filter_map(FileState::digest).collect(),
            ledger_seq: self.runs.ledger.head()?.0,
        };
        let (journal, written) = self
            .runs
            .journals
            .create_journal(turn.agent, &transaction)?;
        changed.extend(written);
        let archived_content = captured.take_archived_content(turn.event.change.entry.as_ref());
        let archived = PreparedSwap {
            archived_content,
            // The entry must not be recorded before its name is on the disk.
            entry: turn.event.change.entry.take(),
            captured,
            journal,
            staged_name: transaction.staged_name,
            known_digests: transaction.known_digests,
        };
        Ok((archived, changed))
    }

    /// Builds the new file, if the content to install is one.
    pub(super) fn stage_content(
        &self,
        turn: &mut Turn<'a>,
        mut prepared: PreparedSwap,
    ) -> Result<PreparedSwap, EarlyEnd> {
        turn.event.change.entry = prepared.entry.take();
        let captured = &prepared.captured;
        let Replacement::File(parts) = &captured.source.replacement else {
            return Ok(prepared);
        };
        let attributes = match attributes_to_apply(turn.queued.step, captured).cloned() {
            Some(it) if has_displaced_owner(captured, &it) => StagedAttributes::Exact(it),
            Some(it) => StagedAttributes::OfDirectoryOwner(it),
            None => StagedAttributes::Inherited,
        };
        let mut write = |sink: ByteSink<'_>| parts.write_to(&self.runs.undo_sources, sink);
        let missing = turn
            .directory
            .stage(&prepared.staged_name, &mut write, attributes)?;
        for note in degraded::accepted_degradations(turn.agent, &missing)? {
            let notes = turn.event.note.as_deref().unwrap_or_default();
            if !notes.contains(&note) {
                turn.add_note(&note);
            }
        }
        Ok(prepared)
    }

    /// Replaces the memory by the new file or by the kept object, or removes it.
    pub(super) fn swap_memory(
        &self,
        turn: &mut Turn<'a>,
        prepared: PreparedSwap,
    ) -> Result<(PreparedSwap, SwapOutcome), EarlyEnd> {
        self.report_stage(&turn.agent.name, RunStage::Swap);
        let new = match &prepared.captured.source.replacement {
            Replacement::KeptObject { id, .. } => NewMemory::KeptObject(*id),
            Replacement::Symlink(target) => NewMemory::Symlink(target.clone()),
            Replacement::Absent => NewMemory::Nothing,
            Replacement::File(_) => NewMemory::StagedFile {
                accepts_in_place: turn.agent.location.accepts_in_place(),
            },
        };
        let swapped = turn.directory.commit(&prepared.staged_name, new)?;
        turn.event.change.method = Some(swapped.method);
        if swapped.method == SwapMethod::InPlace {
            turn.add_note("written in place: the memory is a mount point");
        }
        if swapped.method == SwapMethod::Create {
            turn.add_note("created; there was no file");
        }
        Ok((prepared, swapped))
    }
}

/// Returns owner, mode and attributes for the new file; None if it inherits its directory's.
///
/// Owner and mode are rights over bytes, and the bytes of an undo are an agent's. So they are
/// applied only to the bytes that they belonged to:
///
/// - They are read through the descriptor that the bytes are read through, from a regular file that
///   was at the memory's path and had no other name, or whose owner alone can have given it this
///   one (`obstacle` in `transport/local.rs`).
/// - A reset installs the operator's bytes with the rights of the file that it displaces: a process
///   that could write to that file could do so before.
/// - An undo restores bytes with the rights of the very file that held them: with a late entry that
///   is the displaced file as it was settled, not the one that was read before
///   (`JournalRecord::LateEntry` in `journal.rs`).
/// - Bytes of two files, as of an undo that appends, belong to the owner of both.
/// - An owner is applied only if the displaced file or the directory has the same one now. The
///   ledger may hold an owner from another file system, whose owners its server or its image
///   determines.
/// - In all other cases the new file inherits its directory's.
///
/// A transport never sets set-id bits or capabilities ([`Attributes::for_new_file`]).
/// `docs/decisions/file-system-identity.md` says why the kernel cannot enforce this.
fn attributes_to_apply<'t>(step: &PlanStep, captured: &'t Captured) -> Option<&'t Attributes> {
    if step.undone_run.is_none() {
        return captured.attributes.as_ref();
    }
    let kept = captured.source.attributes.as_ref()?;
    let owner = |it: &Attributes| (it.uid, it.gid);
    let notes = captured
        .attributes
        .as_ref()
        .filter(|_| captured.has_appended_notes());
    notes
        .is_none_or(|notes| owner(notes) == owner(kept))
        .then_some(kept)
}

/// Whether the displaced file has the owner in `attributes`.
fn has_displaced_owner(captured: &Captured, attributes: &Attributes) -> bool {
    let displaced = captured.attributes.as_ref();
    displaced.is_some_and(|displaced| displaced.uid == attributes.uid)
}
