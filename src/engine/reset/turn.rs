//! The steps of one agent. What they change is for the lane to flush.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::capture::Captured;
use super::recovery::{Journal, Transaction};
use super::{Run, RunStage};
use crate::archive::WrittenEntry;
use crate::config::Agent;
use crate::digest::Digest;
use crate::durable;
use crate::engine::degraded;
use crate::engine::ledger::{FileState, RunEvent};
use crate::engine::lock::{self, AgentLock, LockHolder};
use crate::engine::observe::connection_target;
use crate::engine::plan::PlanStep;
use crate::engine::shared_memories::sharing_error;
use crate::engine::undo::{ContentParts, Replacement};
use crate::error::{Error, ErrorKind};
use crate::transport::{
    Attributes, FailureCause, FileIdentity, MemoryDirectory, SwapMethod, SwapOutcome,
    TransportError, UnsyncedObject,
};

/// How long somebody may take to give a lease back. A file server's, of which
/// another host has the file open, takes a moment; an agent that holds on to it is
/// reset all the same.
const LEASE_BREAK_TIMEOUT: Duration = Duration::from_secs(2);

/// An agent that is to have its turn.
pub(super) struct QueuedTurn<'a> {
    pub(super) step: &'a PlanStep,
    pub(super) lock: Option<Arc<AgentLock>>,
    pub(super) attempts: usize,
    /// Since when it is waited for somebody to give a lease back.
    pub(super) leased_since: Option<Instant>,
}

/// An agent whose turn it is.
pub(super) struct Turn<'a> {
    pub(super) queued: QueuedTurn<'a>,
    pub(super) agent: &'a Agent,
    pub(super) directory: Box<dyn MemoryDirectory>,
    pub(super) event: RunEvent,
    pub(super) began_at: Instant,
}

impl Turn<'_> {
    pub(super) fn add_note(&mut self, note: &str) {
        self.event.note = Some(match self.event.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note.to_string(),
        });
    }
}

/// What became of an agent whose turn it is, at first.
pub(super) enum CaptureOutcome<'a> {
    Captured(Turn<'a>, Box<Captured>),
    Unchanged(QueuedTurn<'a>),
    EndedEarly(Turn<'a>, EarlyEnd),
    Refused(QueuedTurn<'a>, Error),
}

/// A turn after its memory was archived.
pub(super) struct PreparedSwap {
    pub(super) entry: Option<WrittenEntry>,
    pub(super) captured: Captured,
    pub(super) staged_name: String,
    pub(super) journal: Journal,
    pub(super) known_digests: Vec<Digest>,
    pub(super) archived_content: Option<ContentParts>,
}

/// Why a turn ended early.
pub(super) enum EarlyEnd {
    /// The agent replaced its file in between; it can be tried again.
    Replaced(Error),
    /// Somebody has a lease on the memory; nothing was done yet.
    Leased(Error),
    /// The memory is not whole, which is for the next run to put right.
    HalfWritten(Error),
    /// The host was lost, and nobody knows what it did.
    HostLost(Error),
    /// Anything else.
    Failed(Error),
}

impl From<Error> for EarlyEnd {
    fn from(error: Error) -> EarlyEnd {
        EarlyEnd::Failed(error)
    }
}

impl From<TransportError> for EarlyEnd {
    fn from(error: TransportError) -> EarlyEnd {
        match error.cause {
            FailureCause::Replaced => EarlyEnd::Replaced(error.into()),
            FailureCause::HalfWritten => EarlyEnd::HalfWritten(error.into()),
            FailureCause::Unreachable => EarlyEnd::HostLost(error.into()),
            _ => EarlyEnd::Failed(error.into()),
        }
    }
}

/// Keeps an agent's lock while a call that hangs may still change its directory.
pub(super) fn hold_lock_guard(directory: &dyn MemoryDirectory, lock: Option<&Arc<AgentLock>>) {
    if let Some(lock) = lock {
        directory.hold_guard(Arc::clone(lock) as _);
    }
}

impl<'a> Run<'a> {
    /// An agent's event before anything was seen.
    pub(super) fn new_step_event(&self, step: &PlanStep) -> RunEvent {
        RunEvent {
            undone_run: step.undone_run.as_ref().map(|undo| undo.run.clone()),
            ..self.new_event(&step.agent)
        }
    }

    pub(super) fn ensure_locked(&self, waiting: &mut QueuedTurn<'a>) -> Result<&'a Agent, Error> {
        let agent = self.engine.agent(&waiting.step.agent)?;
        if waiting.lock.is_none() {
            waiting.lock = Some(Arc::new(self.lock_agent(agent)?));
        }
        Ok(agent)
    }

    pub(super) fn lock_agent(&self, agent: &Agent) -> Result<AgentLock, Error> {
        let _span = tracing::debug_span!("lock", agent = agent.name).entered();
        loop {
            let holder = LockHolder {
                pid: std::process::id(),
                user: self.engine.setup.user.clone(),
                since: self.engine.clock().now(),
                run: self.id.clone(),
            };
            let taken = lock::acquire_agent_lock(self.engine.archive(), &agent.name, &holder);
            // One that does not wait may have come between the wait and this.
            let is_busy = matches!(&taken, Err(error) if error.kind() == ErrorKind::Busy);
            if !is_busy || self.is_cancelled() || !self.engine.wait_lock_interval() {
                return taken;
            }
        }
    }

    /// Steps 1 and 2 of one agent, after its lock.
    pub(super) fn capture(
        &self,
        mut waiting: QueuedTurn<'a>,
        agent: &'a Agent,
        journals: &[(String, PathBuf)],
    ) -> CaptureOutcome<'a> {
        waiting.attempts += 1;
        let began = self.engine.clock().instant();
        let directory = || -> Result<_, Error> {
            self.recover_from_journals(agent, journals, waiting.lock.as_ref())?;
            // An undo gives back what was there, whoever had it.
            if waiting.step.undone_run.is_none()
                && let Some(other) = self.engine.find_sharing_agent(agent)
            {
                return Err(sharing_error(&other));
            }
            let directory = self.engine.open_directory(agent)?;
            hold_lock_guard(directory.as_ref(), waiting.lock.as_ref());
            Ok(directory)
        };
        let directory = match directory() {
            Ok(directory) => directory,
            Err(error) => return CaptureOutcome::Refused(waiting, error),
        };
        let event = self.new_step_event(waiting.step);
        let mut turn = Turn {
            queued: waiting,
            agent,
            directory,
            event,
            began_at: began,
        };
        let step = turn.queued.step;
        self.report_stage(&step.agent, RunStage::Archive);
        let since = turn.queued.leased_since;
        let patient = since.is_none_or(|since| began.duration_since(since) < LEASE_BREAK_TIMEOUT);
        let captured = self.capture_memory(
            agent,
            step,
            turn.directory.as_ref(),
            &mut turn.event,
            patient,
        );
        match captured {
            Ok(Some(taken)) => CaptureOutcome::Captured(turn, Box::new(taken)),
            Ok(None) => CaptureOutcome::Unchanged(turn.queued),
            Err(trouble) => CaptureOutcome::EndedEarly(turn, trouble),
        }
    }

    /// Step 3, before anything is done in the agent's directory: names the entry and
    /// writes the transaction record. Answers what has to be synced.
    pub(super) fn prepare_swap(
        &self,
        turn: &mut Turn<'a>,
        mut taken: Captured,
    ) -> Result<(PreparedSwap, Vec<UnsyncedObject>), EarlyEnd> {
        for note in degraded::accepted_degradations(turn.agent, turn.directory.as_ref())? {
            turn.add_note(&note);
        }
        // A memory that will not be changed gets no entry.
        degraded::in_place_degradation(turn.agent, &turn.directory.forecast_swap())?;
        let mut changed = self.name_entry(turn.agent, &mut taken, &mut turn.event)?;
        let before = turn.event.before.iter();
        let transaction = Transaction {
            event: turn.event.clone(),
            memory: turn.agent.location.memory().to_path_buf(),
            connection_target: connection_target(turn.agent),
            directory_id: turn.directory.directory_id()?,
            staged_name: match &taken.source.replacement {
                Replacement::KeptObject { name, .. } => name.clone(),
                _ => durable::new_random_name()?,
            },
            memory_inode: taken.inode,
            known_digests: before.filter_map(FileState::digest).collect(),
            ledger_seq: self.engine.ledger_head()?.0,
        };
        let (record, written) = self.create_journal(turn.agent, &transaction)?;
        changed.extend(written);
        let same = taken.take_archived_content(turn.event.entry.as_ref());
        let archived = PreparedSwap {
            archived_content: same,
            // Until its name is on the disk nobody may rely on it.
            entry: turn.event.entry.take(),
            captured: taken,
            journal: record,
            staged_name: transaction.staged_name,
            known_digests: transaction.known_digests,
        };
        Ok((archived, changed))
    }

    /// Builds the new file; none where none is put in place.
    pub(super) fn stage_content(
        &self,
        turn: &mut Turn<'a>,
        mut archived: PreparedSwap,
    ) -> Result<(PreparedSwap, Option<FileIdentity>), EarlyEnd> {
        turn.event.entry = archived.entry.take();
        let PreparedSwap {
            captured: taken,
            staged_name: staged,
            ..
        } = &archived;
        let Replacement::File(parts) = &taken.source.replacement else {
            return Ok((archived, None));
        };
        let attributes = match attributes_to_apply(turn.queued.step, taken) {
            Some(attributes) if has_displaced_owner(taken, attributes) => attributes.clone(),
            given => {
                let inherited = turn.directory.inherited_attributes(staged)?;
                let fits = |it: &&Attributes| it.uid == inherited.uid;
                given.filter(fits).cloned().unwrap_or(inherited)
            }
        };
        let engine = self.engine;
        let new = turn.directory.stage(
            staged,
            &mut |sink| parts.write_to(engine, sink),
            &attributes,
        )?;
        // Some of what a file system lacks shows only with a file in it.
        for note in degraded::accepted_degradations(turn.agent, turn.directory.as_ref())? {
            if turn
                .event
                .note
                .as_ref()
                .is_none_or(|all| !all.contains(&note))
            {
                turn.add_note(&note);
            }
        }
        Ok((archived, Some(new)))
    }

    /// Puts the new file, or what was kept, in the memory's place, or takes the memory
    /// away.
    pub(super) fn swap_memory(
        &self,
        turn: &mut Turn<'a>,
        archived: PreparedSwap,
        new: Option<FileIdentity>,
    ) -> Result<(PreparedSwap, SwapOutcome), EarlyEnd> {
        self.report_stage(&turn.agent.name, RunStage::Swap);
        let swapped = match (new, &archived.captured.source.replacement) {
            (None, Replacement::KeptObject { name, id }) => {
                turn.directory.restore_object(name, *id)?
            }
            (None, _) => {
                turn.directory.move_memory_aside(&archived.staged_name)?;
                SwapOutcome {
                    method: SwapMethod::Remove,
                    displaced: vec![turn.directory.staged_file_name(&archived.staged_name)],
                }
            }
            (Some(new), _) => {
                turn.directory.link_staged(&archived.staged_name)?;
                let swapped = turn.directory.swap(&archived.staged_name, new);
                let accepted = turn.agent.location.accepts_in_place();
                match swapped {
                    Err(error) if error.cause == FailureCause::MountPoint && accepted => {
                        turn.directory.write_in_place(&archived.staged_name, new)?
                    }
                    swapped => swapped?,
                }
            }
        };
        turn.event.method = Some(swapped.method);
        if swapped.method == SwapMethod::InPlace {
            turn.add_note("it is a mount point of its own and was written in place");
        }
        Ok((archived, swapped))
    }
}

/// Owner, mode and attributes of the new file; none where it inherits its directory's.
///
/// Owner and mode are rights over bytes, and the bytes of an undo are an agent's. So
/// they are given only together with the bytes that they belonged to:
///
/// - They are learned through the descriptor that the bytes are read through, of a
///   regular file that stood at the memory's name and had no other name, or whose
///   owner alone can have given it this one (`obstacle` in `transport/local.rs`).
/// - A reset puts the operator's bytes under the rights of the file that it displaces:
///   who could write to that one could before.
/// - An undo puts back bytes with the rights of the very file that held them: with a
///   late entry that is the displaced file as it was settled, not the one that was read
///   before (`Mark::Archived` in `recover.rs`).
/// - Bytes of two files, as of an undo that appends, belong to the owner of both.
/// - An owner is given only if the displaced file or the directory has the same one now.
///   What an undo goes by may have been learned on another file system, whose owners are
///   those that its server or its image tells of.
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

/// Whether the file that is displaced has the owner that `attributes` name.
fn has_displaced_owner(captured: &Captured, attributes: &Attributes) -> bool {
    let displaced = captured.attributes.as_ref();
    displaced.is_some_and(|displaced| displaced.uid == attributes.uid)
}
