//! The steps of a reset, which a batch of agents takes together.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::intake::Taken;
use super::recover::{Displaced, Mark, RecordFile, Transaction};
use super::{BATCH, Ended, Progress, Replaced, Run, Stage, Turn, Waiting, millis};
use crate::archive::Written;
use crate::config::{Agent, Place};
use crate::digest::Digest;
use crate::durable::{self, Flush};
use crate::engine::NO_REMOTE;
use crate::engine::ledger::{Act, Event, Outcome, Standing};
use crate::engine::lock::{self, Holder, Lock};
use crate::error::{Error, Kind};
use crate::transport::{Cause, Identity, Method, Swapped, TransportError, Unsynced};

/// How long a writer may keep a displaced file open before it is left to the
/// next run.
const SETTLE: Duration = Duration::from_secs(2);

/// How often a reset starts over when the agent replaces its file in between.
const ATTEMPTS: usize = 3;

/// How long a batch is read before it goes on with those that it has: what an
/// agent writes meanwhile is a late write.
const HASTE: Duration = Duration::from_millis(100);

/// Turns that go on together, each with what its last step came to.
type Turns<'a, T> = Vec<(Turn<'a>, T)>;

/// A turn after its memory was archived.
struct Archived {
    entry: Option<Written>,
    taken: Taken,
    staged: String,
    record: RecordFile,
    known: Vec<Digest>,
}

/// Why a turn ended early.
pub(super) enum Trouble {
    /// The agent replaced its file in between; it can be tried again.
    Moved(Error),
    /// The memory is not whole, which is for the next run to put right.
    HalfWritten(Error),
    /// Anything else.
    Stop(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Stop(error)
    }
}

impl From<TransportError> for Trouble {
    fn from(error: TransportError) -> Trouble {
        match error.cause {
            Cause::Moved => Trouble::Moved(error.into()),
            Cause::HalfWritten => Trouble::HalfWritten(error.into()),
            _ => Trouble::Stop(error.into()),
        }
    }
}

type Refused = Box<(Error, Event, Option<Lock>)>;

impl<'a> Run<'a> {
    /// Takes the next agents through all steps, but for those whose displaced
    /// files a writer still has open.
    pub(super) fn batch(&mut self) {
        let turns = self.begin();
        let turns = self.flush(turns, |_, taken| taken.contents().collect());
        let mut unsynced = Vec::new();
        let turns = self.each(turns, |run, turn, taken| {
            let (archived, changed) = run.prepare(turn, taken)?;
            unsynced.push(changed);
            Ok(archived)
        });
        // One for each that is left, in their order.
        let mut unsynced = unsynced.into_iter();
        let turns = self.flush(turns, |_, _| unsynced.next().unwrap_or_default());
        let turns = self.each(turns, |run, turn, archived| run.stage(turn, archived));
        let turns = self.flush(turns, |turn, _| turn.folder.unsynced());
        let turns = self.each(turns, |run, turn, (archived, new)| {
            run.swap(turn, archived, new)
        });
        let (turns, failed) = flushed(turns, |turn, _| turn.folder.unsynced());
        for (turn, error) in failed {
            self.leave(turn, &error);
        }
        self.mark(turns);
        self.settle();
        // Each of those has files open.
        while self.open.len() > BATCH {
            self.wait();
        }
    }

    /// Takes a step with each of these; those that cannot go on leave.
    fn each<T, U>(
        &mut self,
        turns: Turns<'a, T>,
        mut act: impl FnMut(&mut Self, &mut Turn<'a>, T) -> Result<U, Trouble>,
    ) -> Turns<'a, U> {
        let mut kept = Vec::with_capacity(turns.len());
        for (mut turn, data) in turns {
            match act(self, &mut turn, data) {
                Ok(data) => kept.push((turn, data)),
                Err(trouble) => self.stumble(turn, trouble),
            }
        }
        kept
    }

    /// Puts what a step changed on the disk; those of whom that fails leave. No
    /// memory was replaced yet.
    fn flush<T>(
        &mut self,
        turns: Turns<'a, T>,
        changed: impl FnMut(&Turn<'a>, &T) -> Vec<Unsynced>,
    ) -> Turns<'a, T> {
        let (kept, failed) = flushed(turns, changed);
        for (turn, error) in failed {
            self.stumble(turn, error.into());
        }
        kept
    }

    /// Ends a turn whose memory was replaced, perhaps not on the disk. To sync it
    /// again would prove nothing, so what is left stays for the next run.
    fn leave(&mut self, turn: Turn<'a>, error: &Error) {
        let message = format!(
            "the memory was replaced, but perhaps not on the disk: {}",
            error.message()
        );
        let error = Error::new(error.kind(), message).hint("the next run settles what is left");
        self.refused(error, turn.event, turn.waiting.lock);
    }

    /// Ends a turn early, or puts the agent back among those who wait. What it
    /// wrote in between is in displaced files, which its transaction record
    /// names.
    fn stumble(&mut self, turn: Turn<'a>, trouble: Trouble) {
        let Turn {
            waiting,
            agent,
            folder,
            event,
            ..
        } = turn;
        drop(folder);
        if let Trouble::HalfWritten(error) = trouble {
            return self.refused(error, event, waiting.lock);
        }
        if let Err(error) = self.recover(agent) {
            self.trouble(error.context(&agent.name));
        }
        match trouble {
            Trouble::Moved(_) if waiting.attempts < ATTEMPTS => self.queue.push_front(waiting),
            Trouble::Moved(error) | Trouble::HalfWritten(error) | Trouble::Stop(error) => {
                self.refused(error, event, waiting.lock);
            }
        }
    }

    /// Steps 1 and 2 for the next agents: locks, and entries without names.
    fn begin(&mut self) -> Turns<'a, Taken> {
        let began = self.engine.clock().instant();
        let mut locked: VecDeque<(Waiting<'a>, &'a Agent)> = VecDeque::new();
        while locked.len() < BATCH
            && (locked.is_empty() || !self.is_cancelled())
            && let Some(mut waiting) = self.queue.pop_front()
        {
            self.at(waiting.step, Stage::Lock);
            match self.lock_for(&mut waiting) {
                Ok(agent) => locked.push_back((waiting, agent)),
                Err(error) => self.refused(error, Turn::fresh(self, waiting.step), None),
            }
        }
        // After the locks: nobody leaves anything behind from now on.
        let left = match self.engine.transactions() {
            Ok(left) => left,
            Err(error) => {
                for (waiting, _) in locked {
                    self.refused(error.clone(), Turn::fresh(self, waiting.step), waiting.lock);
                }
                return Vec::new();
            }
        };
        let mut turns = Vec::with_capacity(locked.len());
        while let Some((mut waiting, agent)) = locked.pop_front() {
            waiting.attempts += 1;
            let now = self.engine.clock().instant();
            let mut turn = match self.open(waiting, agent, &left, now) {
                Ok(turn) => turn,
                Err(refused) => {
                    let (error, event, lock) = *refused;
                    self.refused(error, event, lock);
                    continue;
                }
            };
            let step = turn.waiting.step;
            self.at(step, Stage::Archive);
            match self.take(agent, step, turn.folder.as_ref(), &mut turn.event) {
                Ok(Some(taken)) => turns.push((turn, taken)),
                Ok(None) => self.unchanged(step, turn.waiting.lock),
                Err(trouble) => self.stumble(turn, trouble),
            }
            let passed = self.engine.clock().instant().duration_since(began);
            if passed > HASTE || self.is_cancelled() {
                break;
            }
        }
        while let Some((mut waiting, _)) = locked.pop_back() {
            // Who has not begun keeps nobody else waiting.
            if waiting.attempts == 0 {
                waiting.lock = None;
            }
            self.queue.push_front(waiting);
        }
        turns
    }

    fn lock_for(&mut self, waiting: &mut Waiting<'a>) -> Result<&'a Agent, Error> {
        let agent = self.engine.agent(&waiting.step.agent)?;
        if waiting.lock.is_none() {
            waiting.lock = Some(self.lock(agent)?);
        }
        Ok(agent)
    }

    fn open(
        &mut self,
        waiting: Waiting<'a>,
        agent: &'a Agent,
        left: &[(String, PathBuf)],
        began: Instant,
    ) -> Result<Turn<'a>, Refused> {
        let event = Turn::fresh(self, waiting.step);
        let mut folder = || {
            let Place::Local { memory } = &agent.place else {
                return Err(Error::new(Kind::Host, NO_REMOTE));
            };
            self.recover_from(agent, left)?;
            Ok(self.engine.transport().open(memory)?)
        };
        match folder() {
            Ok(folder) => Ok(Turn {
                waiting,
                agent,
                folder,
                event,
                began,
            }),
            Err(error) => Err(Box::new((error, event, waiting.lock))),
        }
    }

    pub(super) fn lock(&self, agent: &Agent) -> Result<Lock, Error> {
        let holder = Holder {
            pid: std::process::id(),
            user: self.engine.setup.user.clone(),
            since: self.engine.clock().now(),
            run: self.id.clone(),
        };
        lock::take(self.engine.archive(), &agent.name, &holder)
    }

    /// Step 3, before anything is done in the agent's folder: names the entry and
    /// writes the transaction record. Answers what has to be synced.
    fn prepare(
        &mut self,
        turn: &mut Turn<'a>,
        mut taken: Taken,
    ) -> Result<(Archived, Vec<Unsynced>), Trouble> {
        let mut changed = self.name(turn.agent, &mut taken, &mut turn.event)?;
        let Place::Local { memory } = &turn.agent.place else {
            return Err(Error::new(Kind::Host, NO_REMOTE).into());
        };
        let before = turn.event.before.iter();
        let transaction = Transaction {
            event: turn.event.clone(),
            memory: memory.clone(),
            folder: turn.folder.identity()?,
            staged: durable::random_name()?,
            inode: taken.inode,
            known: before.filter_map(Standing::digest).collect(),
        };
        let (record, written) = self.write_transaction(turn.agent, &transaction)?;
        changed.extend(written);
        let archived = Archived {
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
    fn stage(
        &mut self,
        turn: &mut Turn<'a>,
        mut archived: Archived,
    ) -> Result<(Archived, Option<Identity>), Trouble> {
        turn.event.entry = archived.entry.take();
        let Archived { taken, staged, .. } = &archived;
        let Some(parts) = &taken.source.parts else {
            return Ok((archived, None));
        };
        let kept = taken
            .source
            .attributes
            .as_ref()
            .or(taken.attributes.as_ref());
        let attributes = match kept {
            Some(attributes) => attributes.clone(),
            None => turn.folder.inherited(staged)?,
        };
        let engine = self.engine;
        let new = turn
            .folder
            .stage(staged, &mut |sink| parts.feed(engine, sink), &attributes)?;
        Ok((archived, Some(new)))
    }

    /// Puts the new file in the memory's place, or takes the memory away.
    fn swap(
        &mut self,
        turn: &mut Turn<'a>,
        archived: Archived,
        new: Option<Identity>,
    ) -> Result<(Archived, Swapped), Trouble> {
        self.at(turn.waiting.step, Stage::Swap);
        let swapped = match new {
            None => {
                turn.folder.take_away(&archived.staged)?;
                Swapped {
                    method: Method::Remove,
                    displaced: vec![archived.staged.clone()],
                }
            }
            Some(new) => {
                turn.folder.link(&archived.staged)?;
                turn.folder.swap(&archived.staged, new)?
            }
        };
        turn.event.method = Some(swapped.method);
        if swapped.method == Method::InPlace {
            turn.note("it is a mount point of its own and was written in place");
        }
        Ok((archived, swapped))
    }

    /// Marks in the records that the memories were replaced.
    fn mark(&mut self, turns: Turns<'a, (Archived, Swapped)>) {
        let first = self.open.len();
        let mut flush = Flush::default();
        for (number, (mut turn, (archived, swapped))) in turns.into_iter().enumerate() {
            let Archived {
                taken,
                record,
                mut known,
                ..
            } = archived;
            // Written in place, the staged file is left beside it.
            known.extend(turn.event.after.as_ref().and_then(Standing::digest));
            let Swapped { method, displaced } = swapped;
            let mark = Mark::Swapped(method, displaced.clone());
            let marked = record.add(&mark).is_ok();
            if marked {
                flush.add(first + number, [record.unsynced()]);
            }
            self.at(turn.waiting.step, Stage::Settle);
            self.open.push(Replaced {
                displaced: Displaced {
                    record,
                    names: displaced,
                    known,
                    // Settling tries that again, and goes no further without it.
                    unmarked: (!marked).then_some(method),
                },
                deadline: self.engine.clock().instant() + SETTLE,
                scratch_lines: taken.scratch_lines,
                notes: turn.event.note.take().into_iter().collect(),
                kind: None,
                turn,
            });
        }
        for (number, _) in flush.commit() {
            let replaced = &mut self.open[number];
            replaced.displaced.unmarked = replaced.turn.event.method;
        }
    }

    /// Gives late writers a moment.
    pub(super) fn wait(&mut self) {
        self.engine.clock().sleep(Duration::from_millis(10));
        self.settle();
        self.record();
    }

    /// Step 4 for everybody who waits; those who still have to stay.
    fn settle(&mut self) {
        let mut over = Vec::new();
        for mut replaced in std::mem::take(&mut self.open) {
            let turn = &mut replaced.turn;
            let (notes, settled) = self.settle_displaced(
                turn.agent,
                turn.folder.as_ref(),
                &mut turn.event,
                &mut replaced.displaced,
            );
            for note in notes {
                replaced.note(note);
            }
            let left = replaced.displaced.names.join(", ");
            match settled {
                Ok(()) if left.is_empty() => {}
                Ok(()) if self.engine.clock().instant() < replaced.deadline => {
                    self.open.push(replaced);
                    continue;
                }
                Ok(()) => replaced.note(format!(
                    "a writer still has the displaced file open; it stays as {left} until the next run"
                )),
                Err(error) => {
                    replaced.worse(error.kind());
                    replaced.note(match left.is_empty() {
                        true => error.to_string(),
                        false => format!("the displaced file stays: {error}"),
                    });
                }
            }
            over.push(replaced);
        }
        let mut flush = Flush::default();
        for (number, replaced) in over.iter().enumerate() {
            flush.add(number, replaced.turn.folder.unsynced());
        }
        let mut failed: HashMap<usize, Error> = flush.commit().into_iter().collect();
        for (number, replaced) in over.into_iter().enumerate() {
            self.end(replaced, failed.remove(&number));
        }
    }

    /// Step 5, but for the ledger.
    fn end(&mut self, mut replaced: Replaced<'a>, unsynced: Option<Error>) {
        (self.progress)(Progress::Stage(
            replaced.turn.agent.name.clone(),
            Stage::Verify,
        ));
        match self.read_back(replaced.turn.folder.as_ref(), &replaced.turn.event) {
            Ok(true) => {}
            Ok(false) => replaced.note("the agent has already changed it again".to_string()),
            Err(error) => {
                // It was replaced all the same, and can be undone.
                replaced.worse(error.kind());
                replaced.note(format!("reading back failed: {error}"));
            }
        }
        // The transaction stays, so that the next run settles what is left.
        let over = replaced.displaced.names.is_empty() && unsynced.is_none();
        if let Some(error) = unsynced {
            replaced.worse(error.kind());
            replaced.note(error.to_string());
        }
        let Replaced {
            turn,
            displaced,
            scratch_lines,
            notes,
            kind,
            ..
        } = replaced;
        let mut event = turn.event;
        event.outcome = Outcome::Ok;
        event.duration_ms = millis(turn.began, self.engine.clock().instant());
        event.note = (!notes.is_empty()).then(|| notes.join("; "));
        let verb = match (event.act, event.after == Some(Standing::Absent)) {
            (_, true) => "Removed the created memory of",
            (Act::Undo, _) => "Restored the memory of",
            _ => "Reset",
        };
        let suffix = event
            .note
            .as_deref()
            .map_or(String::new(), |note| format!("; {note}"));
        let size = match event.after {
            Some(Standing::File { size, .. }) => size,
            _ => 0,
        };
        self.say(&format!("{verb} {} ({size} bytes){suffix}", event.agent));
        self.ended.push(Ended {
            event,
            kind,
            hints: Vec::new(),
            scratch_lines,
            record: over.then_some(displaced.record.path),
            _lock: turn.waiting.lock,
        });
    }
}

/// Puts what a step changed on the disk. Those of whom that failed come second.
fn flushed<'a, T>(
    turns: Turns<'a, T>,
    mut changed: impl FnMut(&Turn<'a>, &T) -> Vec<Unsynced>,
) -> (Turns<'a, T>, Turns<'a, Error>) {
    let mut flush = Flush::default();
    for (number, (turn, data)) in turns.iter().enumerate() {
        flush.add(number, changed(turn, data));
    }
    let mut failed: HashMap<usize, Error> = flush.commit().into_iter().collect();
    let (mut kept, mut left) = (Vec::with_capacity(turns.len()), Vec::new());
    for (number, (turn, data)) in turns.into_iter().enumerate() {
        match failed.remove(&number) {
            None => kept.push((turn, data)),
            Some(error) => left.push((turn, error)),
        }
    }
    (kept, left)
}
