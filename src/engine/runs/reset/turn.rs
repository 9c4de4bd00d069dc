//! The steps of one agent's turn. Each step returns its unsynced changes; the lane syncs them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
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
use crate::engine::runs::content::{ContentParts, Replacement};
use crate::engine::runs::plan::{PlanStep, PlannedFile};
use crate::engine::shared_memories::sharing_error;
use crate::engine::watch::degraded;
use crate::store::address::connection_target;
use crate::store::journal::{Journal, JournalRecord, Transaction, TransactionFile};
use crate::store::lease::Lease;
use crate::store::record::{FileState, RunEvent};
use crate::transport::{
    Attributes, ByteSink, FailureCause, MemoryDirectory, NewMemory, StagedAttributes, SwapForecast,
    SwapMethod, SwapOutcome, TransportError, UnsyncedObject,
};

/// How long a run waits for the holder of a lease to release it. A file server that has the file
/// open for a client takes a moment; the memory of an agent that keeps the lease is displaced
/// unread.
const LEASE_BREAK_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum wait for another run that changes the same memory of several files.
const MEMORY_LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval at which a waiting run checks whether that memory is free.
const MEMORY_LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// An agent whose turn has begun.
pub(super) struct Turn<'a> {
    pub(super) queued: QueuedTurn<'a>,
    pub(super) agent: &'a Agent,
    /// The files of the step, in the order of [`RunEvent::file_changes_mut`].
    pub(super) files: Vec<TurnFile>,
    pub(super) event: RunEvent,
    pub(super) began_at: Instant,
}

/// A file that a turn replaces, creates or removes.
pub(super) struct TurnFile {
    pub(super) path: PathBuf,
    /// None until the turn has created the directory.
    directory: Option<Box<dyn MemoryDirectory>>,
}

impl TurnFile {
    pub(super) fn new(path: &Path, directory: Option<Box<dyn MemoryDirectory>>) -> TurnFile {
        TurnFile {
            path: path.to_path_buf(),
            directory,
        }
    }

    /// Whether the turn has its directory open.
    pub(super) fn has_directory(&self) -> bool {
        self.directory.is_some()
    }

    /// The directory of the file.
    ///
    /// # Errors
    /// It does not exist yet.
    pub(super) fn directory(&self) -> Result<&dyn MemoryDirectory, Error> {
        self.directory.as_deref().ok_or_else(|| {
            let message = format!("the directory of {} was not created", self.path.display());
            Error::new(ErrorKind::Internal, message)
        })
    }
}

impl Turn<'_> {
    /// Returns what the turn changed in its directories and what may not be on the disk yet.
    pub(super) fn take_unsynced(&self) -> Vec<UnsyncedObject> {
        let files = self.files.iter();
        files
            .filter_map(|file| file.directory.as_ref())
            .flat_map(|directory| directory.take_unsynced())
            .collect()
    }

    /// Returns when settling the displaced files again can succeed; `None` if there is no need to
    /// wait.
    pub(super) fn next_settle_time(&self) -> Option<Instant> {
        let files = self.files.iter();
        files
            .filter_map(|file| file.directory.as_ref()?.next_settle_time())
            .max()
    }

    /// Whether it changes files other than the memory, by an edit or its undo. Such a turn journals
    /// the decision to finish it before its first swap.
    pub(super) fn is_edit(&self) -> bool {
        !self.event.files.is_empty()
    }

    /// Adds a note, unless the event has it.
    fn add_note_once(&mut self, note: &str) {
        let notes = self.event.note.as_deref().unwrap_or_default();
        if !notes.contains(note) {
            self.event.add_note(note);
        }
    }
}

/// The outcome of steps 1 and 2.
pub(super) enum CaptureOutcome<'a> {
    Captured(Turn<'a>, Vec<Captured>),
    Unchanged(Turn<'a>),
    EndedEarly(Turn<'a>, EarlyEnd),
    Refused(QueuedTurn<'a>, Error),
}

/// The data of a turn after step 3.
pub(super) struct PreparedSwap {
    pub(super) journal: Box<dyn Journal>,
    pub(super) files: Vec<PreparedFile>,
}

/// The data of one of its files.
pub(super) struct PreparedFile {
    pub(super) entry: Option<WrittenEntry>,
    pub(super) captured: Captured,
    pub(super) staged_name: String,
    pub(super) known_digests: Vec<Digest>,
    pub(super) archived_content: Option<ContentParts>,
}

/// Ties an agent's lock to its directory, so that it stays locked while a hung call may still
/// change that directory.
pub(super) fn hold_lock_guard(directory: &dyn MemoryDirectory, lock: Option<&Arc<dyn Lease>>) {
    if let Some(lock) = lock {
        directory.hold_guard(Arc::new(Arc::clone(lock)));
    }
}

impl<'a> Run<'a> {
    /// Returns the initial event of an agent.
    pub(super) fn new_step_event(&self, step: &PlanStep) -> RunEvent {
        RunEvent {
            undone_run: step.undone_run.as_ref().map(|undo| undo.run.clone()),
            files: step.files.iter().map(PlannedFile::to_change).collect(),
            directories: step.new_directories.clone(),
            note: step.purpose.clone(),
            ..self.new_event(&step.agent)
        }
    }

    pub(super) fn ensure_locked(&self, queued: &mut QueuedTurn<'a>) -> Result<&'a Agent, Error> {
        let agent = self.context().agent(&queued.step.agent)?;
        if queued.lock.is_none() {
            queued.lock = Some(self.lock_agent(agent)?);
        }
        self.lock_layout_memory(agent)?;
        Ok(agent)
    }

    /// Locks the memory of several files of an agent until the run ends: other agents may have the same
    /// one, and so may runs without a config. Interrupted runs of these agents are recovered first: later,
    /// they would be finished over what this run writes.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`]: another process has it locked. Why an interrupted run cannot be recovered.
    pub(super) fn lock_layout_memory(&self, agent: &Agent) -> Result<(), Error> {
        let local = agent.layout.as_ref().filter(|_| agent.host().is_none());
        let Some(root) = local.map(|layout| &layout.directory) else {
            return Ok(());
        };
        let locked = || {
            let locked = self.locked_memories.lock();
            locked.unwrap_or_else(PoisonError::into_inner)
        };
        if locked().contains_key(root) {
            return Ok(());
        }
        // Of any file.
        let directory = match self.context().open_directory_at(agent, &root.join("any")) {
            // The turn says so.
            Err(_) => return Ok(()),
            Ok(directory) => directory,
        };
        let clock = self.context().clock();
        let end = clock.instant() + MEMORY_LOCK_TIMEOUT;
        while !directory.try_lock()? {
            if clock.instant() >= end || self.is_cancelled() {
                let message = format!("another process changes the memory in {}", root.display());
                return Err(Error::new(ErrorKind::Busy, message)
                    .with_hint("try again; `lslocks` lists the processes that hold locks"));
            }
            clock.sleep(MEMORY_LOCK_POLL_INTERVAL);
        }
        locked().insert(root.clone(), directory);
        let has_same_memory = |other: &&Agent| {
            let layout = other.layout.as_ref().filter(|_| other.host().is_none());
            other.name != agent.name && layout.is_some_and(|layout| layout.directory == *root)
        };
        let others = self.context().config().agents.iter();
        let others = others.filter(has_same_memory).map(|it| it.name.clone());
        let interrupted = self
            .runs
            .idle_agents_with_journals(&others.collect::<Vec<_>>());
        interrupted
            .into_iter()
            .try_for_each(|other| self.recover_alone(other))
    }

    pub(super) fn lock_agent(&self, agent: &Agent) -> Result<Arc<dyn Lease>, Error> {
        let _span = tracing::debug_span!("lock", agent = agent.name).entered();
        loop {
            let holder = self.context().locks().new_lock_holder(&self.id);
            let locked = self.context().leases().acquire(&agent.name, &holder);
            if let Ok(lease) = &locked {
                tracing::debug!(token = lease.token(), "granted");
            }
            // Another run may have taken the lock between the wait and this attempt.
            let is_busy = matches!(&locked, Err(error) if error.kind() == ErrorKind::Busy);
            if !is_busy || self.is_cancelled() || !self.context().locks().wait_lock_interval() {
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
        let began = self.context().clock().instant();
        let files = || -> Result<_, Error> {
            self.recoverer()
                .recover_from_journals(agent, journals, queued.lock.as_ref())?;
            // An undo restores bytes of the same file, so sharing does not matter to it.
            if queued.step.undone_run.is_none()
                && let Some(other) = self.runs.shared_memories.find_sharing_agent(agent)
            {
                return Err(sharing_error(&other));
            }
            self.open_files(agent, queued.step, queued.lock.as_ref())
        };
        let files = match files() {
            Ok(files) => files,
            Err(error) => return CaptureOutcome::Refused(queued, error),
        };
        let event = self.new_step_event(queued.step);
        let mut turn = Turn {
            queued,
            agent,
            files,
            event,
            began_at: began,
        };
        let step = turn.queued.step;
        self.report_stage(&step.agent, RunStage::Archive);
        let since = turn.queued.leased_since;
        let patient = since.is_none_or(|since| began.duration_since(since) < LEASE_BREAK_TIMEOUT);
        match self.capture_files(&mut turn, patient) {
            Ok(Some(captured)) => CaptureOutcome::Captured(turn, captured),
            Ok(None) => CaptureOutcome::Unchanged(turn),
            Err(early_end) => {
                if let EarlyEnd::HostLost(error) = &early_end {
                    self.states
                        .note_unreachable(agent, FailureCause::Unreachable, error);
                }
                CaptureOutcome::EndedEarly(turn, early_end)
            }
        }
    }

    /// Opens the directories of the files of a step.
    fn open_files(
        &self,
        agent: &Agent,
        step: &PlanStep,
        lock: Option<&Arc<dyn Lease>>,
    ) -> Result<Vec<TurnFile>, Error> {
        let paths: Vec<&Path> = if step.files.is_empty() {
            vec![agent.observed_path()]
        } else {
            step.files.iter().map(|file| file.path.as_path()).collect()
        };
        let open = |path: &Path| {
            let is_new = |error: &TransportError| {
                let parent = path.parent();
                let mut new = step.new_directories.iter();
                error.cause == FailureCause::NoDirectory && new.any(|it| Some(&**it) == parent)
            };
            match self.context().open_directory_at(agent, path) {
                Ok(directory) => {
                    hold_lock_guard(directory.as_ref(), lock);
                    Ok(TurnFile::new(path, Some(directory)))
                }
                Err(error) if is_new(&error) => Ok(TurnFile::new(path, None)),
                Err(error) => {
                    self.states.note_unreachable(agent, error.cause, &error);
                    Err(error.into())
                }
            }
        };
        paths.into_iter().map(open).collect()
    }

    /// Reads the files and writes their entries; `None` if the memory already has the content.
    fn capture_files(
        &self,
        turn: &mut Turn<'a>,
        may_wait_for_lease: bool,
    ) -> Result<Option<Vec<Captured>>, EarlyEnd> {
        let Turn {
            queued,
            agent,
            files,
            event,
            ..
        } = turn;
        let capture = self.memory_capture();
        if queued.step.files.is_empty() {
            let directory = files[0].directory()?;
            let captured =
                capture.capture_memory(agent, queued, directory, event, may_wait_for_lease)?;
            return Ok(captured.map(|captured| vec![captured]));
        }
        if let Some(undone) = &queued.step.undone_run
            && queued.step.lacks_undo_mode()
        {
            let message = format!("files have changed since run {}", undone.run);
            let hint = "--overwrite archives the newer contents and restores the files";
            let error = Error::new(ErrorKind::Conflict, message).with_hint(hint);
            return Err(error.into());
        }
        let mut captured = Vec::new();
        for (number, planned) in queued.step.files.iter().enumerate() {
            let directory = files[number].directory.as_deref();
            let change = &mut event.files[number];
            let (file, note) =
                capture.capture_planned(agent, planned, directory, change, may_wait_for_lease)?;
            captured.push(file);
            note.into_iter().for_each(|note| event.add_note(&note));
        }
        Ok(Some(captured))
    }

    /// Takes step 3, before any change in the agent's directories: names the entries and writes the
    /// journal. Returns the objects to sync.
    pub(super) fn prepare_swap(
        &self,
        turn: &mut Turn<'a>,
        captured: Vec<Captured>,
    ) -> Result<(PreparedSwap, Vec<UnsyncedObject>), EarlyEnd> {
        let mut unsynced = Vec::new();
        let mut directory_ids = Vec::new();
        for file in 0..turn.files.len() {
            let is_open = turn.files[file].has_directory();
            let id = is_open.then(|| self.check_replaceable(turn, file));
            directory_ids.push(id.transpose()?.flatten());
        }
        let mut files = Vec::new();
        let mut journaled = Vec::new();
        for (number, mut captured) in captured.into_iter().enumerate() {
            let change = &mut turn.event.file_changes_mut()[number];
            unsynced.extend(
                self.memory_capture()
                    .name_entry(turn.agent, &mut captured, change)?,
            );
            let known_digests: Vec<Digest> =
                change.before.iter().filter_map(FileState::digest).collect();
            let staged_name = match &captured.source.replacement {
                Replacement::KeptObject { name, .. } => name.clone(),
                _ => durable::new_random_name()?,
            };
            journaled.push(TransactionFile {
                path: turn.files[number].path.clone(),
                directory_id: directory_ids[number],
                staged_name: staged_name.clone(),
                inode: captured.inode,
                known_digests: known_digests.clone(),
            });
            files.push(PreparedFile {
                archived_content: captured.take_archived_content(change.entry.as_ref()),
                entry: change.entry.clone(),
                captured,
                staged_name,
                known_digests,
            });
        }
        let transaction = Transaction {
            event: turn.event.clone(),
            files: journaled,
            connection_target: connection_target(turn.agent),
            removed_directories: turn.queued.step.removed_directories.clone(),
            ledger_seq: self.context().ledger().known_head().0,
        };
        let (journal, written) = self
            .context()
            .journals()
            .create(&turn.agent.name, &transaction)?;
        unsynced.extend(written);
        // The entries must not be recorded before their names are on the disk.
        turn.event
            .file_changes_mut()
            .iter_mut()
            .for_each(|change| change.entry = None);
        Ok((PreparedSwap { journal, files }, unsynced))
    }

    /// Checks that a file can be replaced in its directory, before its entry is named. Returns the
    /// directory's id.
    fn check_replaceable(&self, turn: &mut Turn<'a>, file: usize) -> Result<Option<u64>, EarlyEnd> {
        let properties = turn.files[file].directory()?.properties()?;
        for note in degraded::accepted_degradations(turn.agent, &properties.missing_extensions)? {
            turn.add_note_once(&note);
        }
        if turn.is_edit() {
            degraded::check_exchangeable(&turn.files[file].path, &properties.swap_forecast)?;
        }
        degraded::in_place_degradation(turn.agent, &properties.swap_forecast)?;
        if let SwapForecast::Refused(error) = &properties.swap_forecast {
            return Err(error.clone().into());
        }
        Ok(properties.id)
    }

    /// Creates the directories of the step, and opens them.
    fn create_directories(&self, turn: &mut Turn<'a>) -> Result<(), EarlyEnd> {
        let (agent, context) = (turn.agent, self.context());
        let mut created = Vec::new();
        for path in &turn.queued.step.new_directories {
            let parent = context.open_directory_at(agent, path)?;
            hold_lock_guard(parent.as_ref(), turn.queued.lock.as_ref());
            if parent.create_directory()? {
                created.push(path.clone());
            }
            durable::sync_all(parent.take_unsynced())?;
        }
        turn.event.directories = created;
        for number in 0..turn.files.len() {
            let file = &mut turn.files[number];
            if !file.has_directory() {
                let directory = context.open_directory_at(agent, &file.path)?;
                hold_lock_guard(directory.as_ref(), turn.queued.lock.as_ref());
                file.directory = Some(directory);
                self.check_replaceable(turn, number)?;
            }
        }
        Ok(())
    }

    /// Claims the names of the run in the directories of its files, which it creates if the step does,
    /// and then checks that the agent is still this run's: from now on another run can take the
    /// claims away.
    pub(super) fn claim_files(
        &self,
        turn: &mut Turn<'a>,
        mut prepared: PreparedSwap,
    ) -> Result<PreparedSwap, EarlyEnd> {
        let changes = turn.event.file_changes_mut();
        for (change, prepared) in changes.iter_mut().zip(&mut prepared.files) {
            change.entry = prepared.entry.take();
        }
        self.create_directories(turn)?;
        for (file, prepared) in turn.files.iter().zip(&prepared.files) {
            file.directory()?.claim(&prepared.staged_name)?;
        }
        if let Some(lease) = &turn.queued.lock {
            lease.check()?;
        }
        Ok(prepared)
    }

    /// Stages the new content of each file that the step replaces or creates. Those of an edit get
    /// their names, so that a recovery finds them.
    pub(super) fn stage_contents(
        &self,
        turn: &mut Turn<'a>,
        prepared: PreparedSwap,
    ) -> Result<PreparedSwap, EarlyEnd> {
        let prepared_files = &prepared.files;
        for (number, prepared) in prepared_files.iter().enumerate() {
            let captured = &prepared.captured;
            let Replacement::File(parts) = &captured.source.replacement else {
                continue;
            };
            let moved_from =
                moved_file(turn.queued.step, number).map(|it| &prepared_files[it].captured);
            let attributes = match attributes_to_apply(turn.queued.step, captured, moved_from)? {
                Some(it) if has_displaced_owner(captured, &it) => StagedAttributes::Exact(it),
                Some(it) => StagedAttributes::OfDirectoryOwner(it),
                None => StagedAttributes::Inherited,
            };
            let mut write = |sink: ByteSink<'_>| parts.write_to(self.context(), sink);
            let directory = turn.files[number].directory()?;
            let missing = directory.stage(&prepared.staged_name, &mut write, attributes)?;
            for note in degraded::accepted_degradations(turn.agent, &missing)? {
                turn.add_note_once(&note);
            }
        }
        if turn.is_edit() {
            for (file, prepared) in turn.files.iter().zip(&prepared.files) {
                if let Replacement::File(_) = prepared.captured.source.replacement {
                    file.directory()?.name_staged(&prepared.staged_name)?;
                }
            }
        }
        Ok(prepared)
    }

    /// Journals the decision of an edit: after a crash, recovery finishes all of its swaps.
    pub(super) fn decide_swap(
        &self,
        turn: &mut Turn<'a>,
        prepared: PreparedSwap,
    ) -> Result<PreparedSwap, EarlyEnd> {
        if turn.is_edit() {
            prepared.journal.append(&JournalRecord::Decided)?;
        }
        Ok(prepared)
    }

    /// Removes directories in this order. Those that are not empty stay.
    pub(super) fn remove_directories(
        &self,
        agent: &Agent,
        paths: &[PathBuf],
        lock: Option<&Arc<dyn Lease>>,
    ) -> Result<(), Error> {
        for path in paths {
            let parent = match self.context().open_directory_at(agent, path) {
                Err(error) if error.cause == FailureCause::NoDirectory => continue,
                parent => parent?,
            };
            hold_lock_guard(parent.as_ref(), lock);
            if !parent.remove_directory()? {
                let path = path.display();
                self.log_line(&format!(
                    "{}: kept {path}: it is not an empty directory",
                    agent.name
                ));
            }
            durable::sync_all(parent.take_unsynced())?;
        }
        Ok(())
    }

    /// Replaces each file by the new one or by the kept object, or removes it.
    pub(super) fn swap_files(
        &self,
        turn: &mut Turn<'a>,
        prepared: PreparedSwap,
    ) -> Result<(PreparedSwap, Vec<SwapOutcome>), EarlyEnd> {
        self.report_stage(&turn.agent.name, RunStage::Swap);
        let mut outcomes = Vec::new();
        for (number, prepared) in prepared.files.iter().enumerate() {
            let new = match &prepared.captured.source.replacement {
                Replacement::KeptObject { id, .. } => NewMemory::KeptObject(*id),
                Replacement::Symlink(target) => NewMemory::Symlink(target.clone()),
                Replacement::Absent => NewMemory::Nothing,
                Replacement::File(_) => NewMemory::StagedFile {
                    // A crash during a write in place would leave half of an edit.
                    accepts_in_place: !turn.is_edit() && turn.agent.accepts_in_place(),
                },
            };
            let directory = turn.files[number].directory()?;
            let swapped = directory.commit(&prepared.staged_name, new)?;
            turn.event.file_changes_mut()[number].method = Some(swapped.method);
            if swapped.method == SwapMethod::InPlace {
                turn.add_note_once("written in place: the memory is a mount point");
            }
            // The record of an edit has the method of each file.
            if swapped.method == SwapMethod::Create && !turn.is_edit() {
                turn.add_note_once("created; there was no file");
            }
            outcomes.push(swapped);
        }
        Ok((prepared, outcomes))
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
/// - Bytes of two files, as of an undo that appends, belong to the owner of both, with the rights that
///   both files had.
/// - An owner is applied only if the displaced file or the directory has the same one now. The
///   ledger may hold an owner from another file system, whose owners its server or its image
///   determines.
/// - An edit that moves bytes to a new file installs them with the rights of the file that held them.
/// - In all other cases the new file inherits its directory's, unless others could then read bytes
///   that were private: such an undo is refused.
///
/// A transport never sets set-id bits or capabilities ([`Attributes::for_new_file`]).
/// `docs/decisions/file-system-identity.md` says why the kernel cannot enforce this.
///
/// # Errors
/// [`ErrorKind::Conflict`]: private bytes of two owners.
fn attributes_to_apply(
    step: &PlanStep,
    captured: &Captured,
    moved_from: Option<&Captured>,
) -> Result<Option<Attributes>, Error> {
    if step.undone_run.is_none() {
        let moved = moved_from.and_then(|it| it.attributes.as_ref());
        return match (&captured.attributes, moved) {
            (Some(displaced), Some(moved)) => rights_of_both(displaced, moved),
            (displaced, moved) => Ok(displaced.as_ref().or(moved).cloned()),
        };
    }
    let Some(kept) = &captured.source.attributes else {
        return Ok(None);
    };
    let appended = captured.has_appended_notes();
    let Some(notes) = captured.attributes.as_ref().filter(|_| appended) else {
        return Ok(Some(kept.clone()));
    };
    rights_of_both(kept, notes)
        .map_err(|error| error.with_hint("use --overwrite, which archives the newer notes"))
}

/// Returns the rights that two files have in common, for a file with bytes of both; none if the bytes of
/// both are for everyone.
///
/// # Errors
/// [`ErrorKind::Conflict`]: private bytes of two owners.
fn rights_of_both(one: &Attributes, other: &Attributes) -> Result<Option<Attributes>, Error> {
    let rights = one.common_rights(other);
    if rights.is_some() || (one.is_readable_by_all() && other.is_readable_by_all()) {
        return Ok(rights);
    }
    let message = format!(
        "the file would hold bytes of user id {} and of user id {}: one of them could read private bytes of \
         the other",
        one.uid, other.uid
    );
    Err(Error::new(ErrorKind::Conflict, message))
}

/// Returns the number of the file of a step that the content of a file comes from.
fn moved_file(step: &PlanStep, number: usize) -> Option<usize> {
    let moved_from = step.files.get(number)?.moved_from.as_ref()?;
    step.files.iter().position(|file| file.path == *moved_from)
}

/// Whether the displaced file has the owner in `attributes`.
fn has_displaced_owner(captured: &Captured, attributes: &Attributes) -> bool {
    let displaced = captured.attributes.as_ref();
    displaced.is_some_and(|displaced| displaced.uid == attributes.uid)
}
