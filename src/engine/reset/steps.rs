//! The steps of one agent. What they change is for the lane to flush.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::intake::Captured;
use super::recover::{RecordFile, Transaction};
use super::{Run, Stage};
use crate::archive::Written;
use crate::config::Agent;
use crate::digest::Digest;
use crate::durable;
use crate::engine::ledger::{Event, FileState};
use crate::engine::lock::{self, Holder, Lock};
use crate::engine::observe::way;
use crate::engine::plan::Step;
use crate::engine::sharing::sharing_error;
use crate::engine::undo::{ContentParts, Replacement};
use crate::engine::weaker;
use crate::error::{Error, Kind};
use crate::transport::{
    Attributes, Cause, Folder, Identity, Method, Swapped, TransportError, Unsynced,
};

/// How long somebody may take to give a lease back. A file server's, of which
/// another host has the file open, takes a moment; an agent that holds on to it is
/// reset all the same.
const LEASE_BREAK_TIMEOUT: Duration = Duration::from_secs(2);

/// An agent that is to have its turn.
pub(super) struct Waiting<'a> {
    pub(super) step: &'a Step,
    pub(super) lock: Option<Arc<Lock>>,
    pub(super) attempts: usize,
    /// Since when it is waited for somebody to give a lease back.
    pub(super) leased: Option<Instant>,
}

/// An agent whose turn it is.
pub(super) struct Turn<'a> {
    pub(super) waiting: Waiting<'a>,
    pub(super) agent: &'a Agent,
    pub(super) folder: Box<dyn Folder>,
    pub(super) event: Event,
    pub(super) began: Instant,
}

impl Turn<'_> {
    pub(super) fn note(&mut self, note: &str) {
        self.event.note = Some(match self.event.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note.to_string(),
        });
    }
}

/// What became of an agent whose turn it is, at first.
pub(super) enum Began<'a> {
    Archived(Turn<'a>, Box<Captured>),
    Unchanged(Waiting<'a>),
    Stumbled(Turn<'a>, EarlyEnd),
    Refused(Waiting<'a>, Error),
}

/// A turn after its memory was archived.
pub(super) struct Archived {
    pub(super) entry: Option<Written>,
    pub(super) taken: Captured,
    pub(super) staged: String,
    pub(super) record: RecordFile,
    pub(super) known: Vec<Digest>,
    pub(super) same: Option<ContentParts>,
}

/// Why a turn ended early.
pub(super) enum EarlyEnd {
    /// The agent replaced its file in between; it can be tried again.
    Moved(Error),
    /// Somebody has a lease on the memory; nothing was done yet.
    Leased(Error),
    /// The memory is not whole, which is for the next run to put right.
    HalfWritten(Error),
    /// The host was lost, and nobody knows what it did.
    Lost(Error),
    /// Anything else.
    Stop(Error),
}

impl From<Error> for EarlyEnd {
    fn from(error: Error) -> EarlyEnd {
        EarlyEnd::Stop(error)
    }
}

impl From<TransportError> for EarlyEnd {
    fn from(error: TransportError) -> EarlyEnd {
        match error.cause {
            Cause::Moved => EarlyEnd::Moved(error.into()),
            Cause::HalfWritten => EarlyEnd::HalfWritten(error.into()),
            Cause::Unreachable => EarlyEnd::Lost(error.into()),
            _ => EarlyEnd::Stop(error.into()),
        }
    }
}

/// Keeps an agent's lock while a call that hangs may still change its directory.
pub(super) fn hold(folder: &dyn Folder, lock: Option<&Arc<Lock>>) {
    if let Some(lock) = lock {
        folder.hold(Arc::clone(lock) as _);
    }
}

impl<'a> Run<'a> {
    /// An agent's event before anything was seen.
    pub(super) fn event_of(&self, step: &Step) -> Event {
        Event {
            undoes: step.undo.as_ref().map(|undo| undo.run.clone()),
            ..self.event(&step.agent)
        }
    }

    pub(super) fn lock_for(&self, waiting: &mut Waiting<'a>) -> Result<&'a Agent, Error> {
        let agent = self.engine.agent(&waiting.step.agent)?;
        if waiting.lock.is_none() {
            waiting.lock = Some(Arc::new(self.lock(agent)?));
        }
        Ok(agent)
    }

    pub(super) fn lock(&self, agent: &Agent) -> Result<Lock, Error> {
        loop {
            let holder = Holder {
                pid: std::process::id(),
                user: self.engine.setup.user.clone(),
                since: self.engine.clock().now(),
                run: self.id.clone(),
            };
            let taken = lock::take(self.engine.archive(), &agent.name, &holder);
            // One that does not wait may have come between the wait and this.
            let is_busy = matches!(&taken, Err(error) if error.kind() == Kind::Busy);
            if !is_busy || self.is_cancelled() || !self.engine.awaits_lock() {
                return taken;
            }
        }
    }

    /// Steps 1 and 2 of one agent, after its lock.
    pub(super) fn archive(
        &self,
        mut waiting: Waiting<'a>,
        agent: &'a Agent,
        left: &[(String, PathBuf)],
    ) -> Began<'a> {
        waiting.attempts += 1;
        let began = self.engine.clock().instant();
        let folder = || -> Result<_, Error> {
            self.recover_from(agent, left, waiting.lock.as_ref())?;
            // An undo gives back what was there, whoever had it.
            if waiting.step.undo.is_none()
                && let Some(other) = self.engine.shares_memory_now(agent)
            {
                return Err(sharing_error(&other));
            }
            let folder = self.engine.open(agent)?;
            hold(folder.as_ref(), waiting.lock.as_ref());
            Ok(folder)
        };
        let folder = match folder() {
            Ok(folder) => folder,
            Err(error) => return Began::Refused(waiting, error),
        };
        let event = self.event_of(waiting.step);
        let mut turn = Turn {
            waiting,
            agent,
            folder,
            event,
            began,
        };
        let step = turn.waiting.step;
        self.at(&step.agent, Stage::Archive);
        let since = turn.waiting.leased;
        let patient = since.is_none_or(|since| began.duration_since(since) < LEASE_BREAK_TIMEOUT);
        let taken = self.take(agent, step, turn.folder.as_ref(), &mut turn.event, patient);
        match taken {
            Ok(Some(taken)) => Began::Archived(turn, Box::new(taken)),
            Ok(None) => Began::Unchanged(turn.waiting),
            Err(trouble) => Began::Stumbled(turn, trouble),
        }
    }

    /// Step 3, before anything is done in the agent's folder: names the entry and
    /// writes the transaction record. Answers what has to be synced.
    pub(super) fn prepare(
        &self,
        turn: &mut Turn<'a>,
        mut taken: Captured,
    ) -> Result<(Archived, Vec<Unsynced>), EarlyEnd> {
        for note in weaker::accepted(turn.agent, turn.folder.as_ref())? {
            turn.note(&note);
        }
        // A memory that will not be changed gets no entry.
        weaker::in_place_cost(turn.agent, &turn.folder.outlook())?;
        let mut changed = self.name(turn.agent, &mut taken, &mut turn.event)?;
        let before = turn.event.before.iter();
        let transaction = Transaction {
            event: turn.event.clone(),
            memory: turn.agent.place.memory().to_path_buf(),
            way: way(turn.agent),
            folder: turn.folder.identity()?,
            staged: match &taken.source.replacement {
                Replacement::Kept { name, .. } => name.clone(),
                _ => durable::random_name()?,
            },
            inode: taken.inode,
            known: before.filter_map(FileState::digest).collect(),
            ledger: self.engine.ledger_head()?.0,
        };
        let (record, written) = self.write_transaction(turn.agent, &transaction)?;
        changed.extend(written);
        let same = taken.as_archived(turn.event.entry.as_ref());
        let archived = Archived {
            same,
            // Until its name is on the disk nobody may rely on it.
            entry: turn.event.entry.take(),
            taken,
            record,
            staged: transaction.staged,
            known: transaction.known,
        };
        Ok((archived, changed))
    }

    /// Builds the new file; none where none is put in place.
    pub(super) fn stage(
        &self,
        turn: &mut Turn<'a>,
        mut archived: Archived,
    ) -> Result<(Archived, Option<Identity>), EarlyEnd> {
        turn.event.entry = archived.entry.take();
        let Archived { taken, staged, .. } = &archived;
        let Replacement::File(parts) = &taken.source.replacement else {
            return Ok((archived, None));
        };
        let attributes = match given(turn.waiting.step, taken) {
            Some(attributes) if is_owner_of(taken, attributes) => attributes.clone(),
            given => {
                let inherited = turn.folder.inherited(staged)?;
                let fits = |it: &&Attributes| it.uid == inherited.uid;
                given.filter(fits).cloned().unwrap_or(inherited)
            }
        };
        let engine = self.engine;
        let new = turn
            .folder
            .stage(staged, &mut |sink| parts.feed(engine, sink), &attributes)?;
        // Some of what a file system lacks shows only with a file in it.
        for note in weaker::accepted(turn.agent, turn.folder.as_ref())? {
            if turn
                .event
                .note
                .as_ref()
                .is_none_or(|all| !all.contains(&note))
            {
                turn.note(&note);
            }
        }
        Ok((archived, Some(new)))
    }

    /// Puts the new file, or what was kept, in the memory's place, or takes the memory
    /// away.
    pub(super) fn swap(
        &self,
        turn: &mut Turn<'a>,
        archived: Archived,
        new: Option<Identity>,
    ) -> Result<(Archived, Swapped), EarlyEnd> {
        self.at(&turn.agent.name, Stage::Swap);
        let swapped = match (new, &archived.taken.source.replacement) {
            (None, Replacement::Kept { name, id }) => turn.folder.put_back(name, *id)?,
            (None, _) => {
                turn.folder.take_away(&archived.staged)?;
                Swapped {
                    method: Method::Remove,
                    displaced: vec![turn.folder.new_name(&archived.staged)],
                }
            }
            (Some(new), _) => {
                turn.folder.link(&archived.staged)?;
                let swapped = turn.folder.swap(&archived.staged, new);
                let accepted = turn.agent.place.accepts_in_place();
                match swapped {
                    Err(error) if error.cause == Cause::MountPoint && accepted => {
                        turn.folder.write_in_place(&archived.staged, new)?
                    }
                    swapped => swapped?,
                }
            }
        };
        turn.event.method = Some(swapped.method);
        if swapped.method == Method::InPlace {
            turn.note("it is a mount point of its own and was written in place");
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
/// A transport never sets set-id bits or capabilities ([`Attributes::given`]).
/// `docs/decisions/file-system-identity.md` says why the kernel cannot enforce this.
fn given<'t>(step: &Step, taken: &'t Captured) -> Option<&'t Attributes> {
    if step.undo.is_none() {
        return taken.attributes.as_ref();
    }
    let kept = taken.source.attributes.as_ref()?;
    let owner = |it: &Attributes| (it.uid, it.gid);
    let notes = taken.attributes.as_ref().filter(|_| taken.appends());
    notes
        .is_none_or(|notes| owner(notes) == owner(kept))
        .then_some(kept)
}

/// Whether the file that is displaced has the owner that `attributes` name.
fn is_owner_of(taken: &Captured, attributes: &Attributes) -> bool {
    let displaced = taken.attributes.as_ref();
    displaced.is_some_and(|displaced| displaced.uid == attributes.uid)
}
