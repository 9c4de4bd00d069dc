//! The agents of one site (a host, a file system) on their way through a run.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::intake::Captured;
use super::recover::{JournalRecord, ReadBack};
use super::settle::Displaced;
use super::steps::{Archived, Began, EarlyEnd, Turn, Waiting};
use super::{AgentResult, Progress, Run, Stage, millis};
use crate::config::Agent;
use crate::durable::Flush;
use crate::engine::hosts::{self, Site};
use crate::engine::ledger::{Event, FileState, Operation, Outcome};
use crate::engine::lock::Lock;
use crate::engine::plan::{EQUAL, Skipped, Step};
use crate::error::{Error, Kind};
use crate::transport::{Cause, Swapped, Unsynced};

/// How long a writer may keep a displaced file open before it is left to the
/// next run.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a host that was lost in the middle of it is asked for again.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it is left alone in between.
const MOMENT: Duration = Duration::from_millis(500);

/// How often a reset starts over when the agent replaces its file in between.
const ATTEMPTS: usize = 3;

/// How long a batch of this machine's is read before it goes on with those that
/// it has: what an agent writes meanwhile is a late write.
const HASTE: Duration = Duration::from_millis(100);

/// Turns that go on together, each with what its last step came to.
type Turns<'a, T> = Vec<(Turn<'a>, T)>;

/// A turn whose memory was replaced and whose displaced files are not all
/// settled yet.
struct Replaced<'a> {
    turn: Turn<'a>,
    displaced: Displaced,
    deadline: Instant,
    scratch_lines: u64,
    notes: Vec<String>,
    /// The most serious thing that happened, none of which kept the memory from
    /// being replaced.
    kind: Option<Kind>,
}

impl Replaced<'_> {
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn worse(&mut self, kind: Kind) {
        self.kind = Some(self.kind.unwrap_or(Kind::Partial).worst(kind));
    }
}

/// An agent whose turn is over, but for its record in the ledger.
struct Ended {
    event: Event,
    kind: Option<Kind>,
    hints: Vec<String>,
    scratch_lines: u64,
    /// Its transaction, if that is over, too.
    record: Option<PathBuf>,
    _lock: Option<Arc<Lock>>,
}

/// The agents of one site.
pub(super) struct ResetLane<'r, 'a> {
    run: &'r Run<'a>,
    site: Site<'a>,
    /// How many agents take a step together, and how many may wait for late writers.
    batch_size: usize,
    /// Those who wait for their turn, and those that wait for late writers.
    queue: VecDeque<Waiting<'a>>,
    open: Vec<Replaced<'a>>,
    /// Those whose host was lost in the middle of it, and why.
    lost: Vec<(Turn<'a>, Error)>,
    ended: Vec<Ended>,
    results: Vec<AgentResult>,
}

impl<'r, 'a> ResetLane<'r, 'a> {
    /// A lane without agents.
    pub(super) fn new(run: &'r Run<'a>, site: Site<'a>) -> ResetLane<'r, 'a> {
        ResetLane {
            run,
            site,
            batch_size: 1,
            queue: VecDeque::new(),
            open: Vec::new(),
            lost: Vec::new(),
            ended: Vec::new(),
            results: Vec::new(),
        }
    }

    /// Adds an agent of this host.
    pub(super) fn add(&mut self, step: &'a Step) {
        self.queue.push_back(Waiting {
            step,
            lock: None,
            attempts: 0,
            leased: None,
        });
    }

    /// Ends agents that were asked for and are not to be changed.
    pub(super) fn skip(&mut self, skipped: &[Skipped]) {
        for skipped in skipped {
            let Skipped { agent, why, .. } = skipped;
            match skipped.error() {
                Some(error) => self.refused(error, self.run.event(agent), None),
                None => {
                    self.run.say(&format!("{agent}: {why}"));
                    let note = Some(why.clone());
                    self.left_alone(agent, Outcome::Unchanged, note, None, None);
                }
            }
        }
        self.record();
    }

    /// Waits until the site answers, or is known not to.
    pub(super) fn connect(&self) {
        let engine = self.run.engine;
        let first = self.queue.front();
        if let Some(agent) = first.and_then(|it| engine.agent(&it.step.agent).ok()) {
            engine.connect_site(&self.site, agent);
        }
    }

    fn is_host(&self) -> bool {
        matches!(self.site, Site::Host(_))
    }

    /// Takes every agent through all steps, so many together at most.
    pub(super) fn run(mut self, batch_size: usize) -> Vec<AgentResult> {
        self.batch_size = batch_size;
        while !self.queue.is_empty() {
            match self.run.is_cancelled() {
                true => self.not_started(),
                false => self.batch(),
            }
            self.record();
            if !self.queue.is_empty() && self.queue.iter().all(|it| it.leased.is_some()) {
                self.wait();
            }
        }
        while !self.open.is_empty() {
            self.wait();
        }
        self.retry_lost();
        self.record();
        self.results
    }

    /// Asks a host that was lost in the middle of it once more before the run ends:
    /// a memory may have been taken away and none put in its place, which should
    /// not last until the next run.
    fn retry_lost(&mut self) {
        let run = self.run;
        let Some((first, _)) = self.lost.first() else {
            return;
        };
        let clock = run.engine.clock();
        let end = clock.instant() + RECONNECT_TIMEOUT;
        let place = &first.agent.place;
        while clock.instant() < end
            && !run.is_cancelled()
            && matches!(run.engine.object(place), Err(error) if error.cause == Cause::Unreachable)
        {
            clock.sleep(MOMENT);
        }
        let lost = std::mem::take(&mut self.lost);
        let tried = self.at_once(lost, |(turn, error)| {
            let recovered = run.recover(turn.agent, turn.waiting.lock.as_ref());
            (turn, error, recovered)
        });
        for (turn, error, recovered) in tried {
            if let Err(error) = recovered {
                run.trouble(error.context(&turn.agent.name));
            }
            self.refused(error, turn.event, turn.waiting.lock);
        }
    }

    /// Takes the next agents through all steps, but for those whose displaced
    /// files a writer still has open.
    fn batch(&mut self) {
        let turns = self.begin();
        let turns = self.admit(turns);
        let turns = self.flush(turns, |_, taken| taken.contents().collect());
        let turns = self.each(turns, Run::prepare);
        let turns = self.flush(turns, |_, (_, changed)| std::mem::take(changed));
        let turns = self.each(turns, |run, turn, (archived, _)| run.stage(turn, archived));
        let turns = self.flush(turns, |turn, _| turn.folder.unsynced());
        let turns = self.each(turns, |run, turn, (archived, new)| {
            run.swap(turn, archived, new)
        });
        let (turns, failed) = flushed(turns, |turn, _| turn.folder.unsynced());
        for (turn, error) in failed {
            self.leave(turn, &error);
        }
        self.mark(turns);
        // Those who have a time wait for it together.
        if self.last_due().is_none() {
            self.settle();
        }
        // Each of those has files open.
        while self.open.len() > self.batch_size {
            self.wait();
        }
    }

    /// Refuses those that could perhaps not be recorded once their memories were
    /// replaced; nothing is done yet to any of them.
    fn admit(&mut self, turns: Turns<'a, Captured>) -> Turns<'a, Captured> {
        if turns.is_empty() {
            return turns;
        }
        let Err(error) = self.run.admit() else {
            return turns;
        };
        for (turn, _) in turns.into_iter().rev() {
            match self.run.is_cancelled() {
                true => self.queue.push_front(turn.waiting),
                false => self.refused(error.clone(), turn.event, turn.waiting.lock),
            }
        }
        Vec::new()
    }

    /// Does this for each: one after the other on this machine, and all at once
    /// where each waits for answers of the same host.
    fn at_once<T: Send, U: Send>(&self, items: Vec<T>, act: impl Fn(T) -> U + Sync) -> Vec<U> {
        match self.is_host() {
            false => items.into_iter().map(act).collect(),
            true => hosts::map_parallel(items, act),
        }
    }

    /// Takes a step with each of these; those that cannot go on leave.
    fn each<T: Send, U: Send>(
        &mut self,
        turns: Turns<'a, T>,
        act: impl Fn(&Run<'a>, &mut Turn<'a>, T) -> Result<U, EarlyEnd> + Sync,
    ) -> Turns<'a, U> {
        let run = self.run;
        let done = self.at_once(turns, |(mut turn, data)| {
            let result = act(run, &mut turn, data);
            (turn, result)
        });
        let mut kept = Vec::with_capacity(done.len());
        for (turn, result) in done {
            match result {
                Ok(data) => kept.push((turn, data)),
                Err(trouble) => self.abort_or_requeue(turn, trouble),
            }
        }
        kept
    }

    /// Puts what a step changed on the disk; those of whom that fails leave. No
    /// memory was replaced yet.
    fn flush<T>(
        &mut self,
        turns: Turns<'a, T>,
        changed: impl FnMut(&Turn<'a>, &mut T) -> Vec<Unsynced>,
    ) -> Turns<'a, T> {
        let (kept, failed) = flushed(turns, changed);
        for (turn, error) in failed {
            self.abort_or_requeue(turn, error.into());
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
    fn abort_or_requeue(&mut self, turn: Turn<'a>, trouble: EarlyEnd) {
        let trouble = match trouble {
            EarlyEnd::Lost(error) if self.run.has_record(turn.agent) => {
                return self.lost.push((turn, error));
            }
            trouble => trouble,
        };
        let Turn {
            waiting,
            agent,
            folder,
            event,
            ..
        } = turn;
        drop(folder);
        match trouble {
            EarlyEnd::HalfWritten(error) => return self.refused(error, event, waiting.lock),
            EarlyEnd::Leased(_) => return self.queue.push_back(self.leased(waiting)),
            EarlyEnd::Moved(_) | EarlyEnd::Lost(_) | EarlyEnd::Stop(_) => {}
        }
        if let Err(error) = self.run.recover(agent, waiting.lock.as_ref()) {
            self.run.trouble(error.context(&agent.name));
        }
        match trouble {
            EarlyEnd::Moved(_) if waiting.attempts < ATTEMPTS => self.queue.push_front(waiting),
            EarlyEnd::Moved(error)
            | EarlyEnd::Leased(error)
            | EarlyEnd::HalfWritten(error)
            | EarlyEnd::Lost(error)
            | EarlyEnd::Stop(error) => self.refused(error, event, waiting.lock),
        }
    }

    /// An agent whose memory somebody has a lease on waits behind all others, and
    /// nobody waits for it.
    fn leased(&self, mut waiting: Waiting<'a>) -> Waiting<'a> {
        waiting.attempts -= 1;
        let now = self.run.engine.clock().instant();
        waiting.leased.get_or_insert(now);
        waiting
    }

    /// Steps 1 and 2 for the next agents: locks, and entries without names.
    fn begin(&mut self) -> Turns<'a, Captured> {
        let run = self.run;
        let began = run.engine.clock().instant();
        let mut locked: VecDeque<(Waiting<'a>, &'a Agent)> = VecDeque::new();
        while locked.len() < self.batch_size
            && (locked.is_empty() || !run.is_cancelled())
            && let Some(mut waiting) = self.queue.pop_front()
        {
            run.at(&waiting.step.agent, Stage::Lock);
            match run.lock_for(&mut waiting) {
                Ok(agent) => locked.push_back((waiting, agent)),
                Err(error) => self.refused(error, run.event_of(waiting.step), None),
            }
        }
        // After the locks: nobody leaves anything behind from now on.
        let left = match run.engine.transactions() {
            Ok(left) => left,
            Err(error) => {
                for (waiting, _) in locked {
                    let event = run.event_of(waiting.step);
                    self.refused(error.clone(), event, waiting.lock);
                }
                return Vec::new();
            }
        };
        let mut done = Vec::with_capacity(locked.len());
        if self.is_host() {
            let locked = locked.drain(..).collect();
            done = self.at_once(locked, |(waiting, agent)| {
                run.archive(waiting, agent, &left)
            });
        }
        while let Some((waiting, agent)) = locked.pop_front() {
            done.push(run.archive(waiting, agent, &left));
            let passed = run.engine.clock().instant().duration_since(began);
            if passed > HASTE || run.is_cancelled() {
                break;
            }
        }
        while let Some((mut waiting, _)) = locked.pop_back() {
            // Who has not begun keeps nobody else waiting.
            if waiting.attempts == 0 && waiting.leased.is_none() {
                waiting.lock = None;
            }
            self.queue.push_front(waiting);
        }
        let mut turns = Vec::with_capacity(done.len());
        for began in done {
            match began {
                Began::Archived(turn, taken) => turns.push((turn, *taken)),
                Began::Unchanged(waiting) => self.unchanged(waiting),
                Began::Stumbled(turn, trouble) => self.abort_or_requeue(turn, trouble),
                Began::Refused(waiting, error) => {
                    self.refused(error, run.event_of(waiting.step), waiting.lock);
                }
            }
        }
        turns
    }

    /// Marks in the records that the memories were replaced.
    fn mark(&mut self, turns: Turns<'a, (Archived, Swapped)>) {
        let run = self.run;
        let first = self.open.len();
        let mut flush = Flush::default();
        for (number, (mut turn, (archived, swapped))) in turns.into_iter().enumerate() {
            let Archived {
                taken,
                record,
                mut known,
                same,
                ..
            } = archived;
            // Written in place, the staged file is left beside it.
            known.extend(turn.event.after.as_ref().and_then(FileState::digest));
            let Swapped { method, displaced } = swapped;
            let mark = JournalRecord::Swapped(method, displaced.clone());
            let marked = record.add(&mark).is_ok();
            if marked {
                flush.add(first + number, [record.unsynced()]);
            }
            run.at(&turn.agent.name, Stage::Settle);
            self.open.push(Replaced {
                displaced: Displaced {
                    record,
                    names: displaced,
                    further: Vec::new(),
                    known,
                    same,
                    late: HashMap::new(),
                    // Settling tries that again, and goes no further without it.
                    unmarked: (!marked).then_some(method),
                },
                deadline: run.engine.clock().instant() + SETTLE_TIMEOUT,
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

    /// When the last of those is due who are not looked at before a certain time. On
    /// a host every look is a question and an answer, so all of them are looked at
    /// then.
    fn last_due(&self) -> Option<Instant> {
        let due = self.open.iter().filter_map(|it| it.turn.folder.due());
        due.max()
    }

    /// Gives late writers a moment.
    fn wait(&mut self) {
        let clock = self.run.engine.clock();
        let now = clock.instant();
        let moment = match (self.last_due(), self.is_host()) {
            (Some(due), _) => due.saturating_duration_since(now),
            (None, true) => Duration::from_millis(50),
            (None, false) => Duration::from_millis(10),
        };
        clock.sleep(moment);
        self.settle();
        self.record();
    }

    /// Step 4 for everybody who waits; those who still have to stay.
    fn settle(&mut self) {
        let run = self.run;
        let open = std::mem::take(&mut self.open);
        let tried = self.at_once(open, |mut replaced| {
            let turn = &mut replaced.turn;
            let (notes, settled) = run.settle_displaced(
                turn.agent,
                turn.folder.as_ref(),
                &mut turn.event,
                &mut replaced.displaced,
            );
            for note in notes {
                replaced.note(note);
            }
            (replaced, settled)
        });
        let mut over = Vec::new();
        for (mut replaced, settled) in tried {
            let left = replaced.displaced.names.join(", ");
            match settled {
                Ok(()) if left.is_empty() => {}
                Ok(()) if replaced.displaced.is_put_off() => replaced.note(format!(
                    "the displaced file is changed again and again; it stays as {left} until a \
                     run finds it as the one before did"
                )),
                Ok(()) if run.engine.clock().instant() < replaced.deadline => {
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
        let read = self.at_once(over, |replaced| {
            let turn = &replaced.turn;
            run.at(&turn.agent.name, Stage::Verify);
            let back = run.read_back(turn.folder.as_ref(), &turn.event);
            (replaced, back)
        });
        for (number, (replaced, back)) in read.into_iter().enumerate() {
            self.end(replaced, back, failed.remove(&number));
        }
    }

    /// Step 5, but for the ledger.
    fn end(
        &mut self,
        mut replaced: Replaced<'a>,
        back: Result<ReadBack, Error>,
        unsynced: Option<Error>,
    ) {
        match back {
            Ok(ReadBack::Same) => {}
            Ok(ReadBack::Other) => {
                replaced.note("the agent has already changed it again".to_string())
            }
            Ok(ReadBack::Leased) => {
                let note = "somebody has taken a lease on it since, so it was not read back";
                replaced.note(note.to_string());
            }
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
        event.duration_ms = millis(turn.began, self.run.engine.clock().instant());
        event.note = (!notes.is_empty()).then(|| notes.join("; "));
        let verb = match (event.act, &event.after) {
            (_, Some(FileState::Absent)) => "Removed the created memory of",
            (_, Some(FileState::Odd(_))) => "Put back what stood in place of the memory of",
            (Operation::Undo, _) => "Restored the memory of",
            _ => "Reset",
        };
        let suffix = event
            .note
            .as_deref()
            .map_or(String::new(), |note| format!("; {note}"));
        let size = match event.after {
            Some(FileState::File { size, .. }) => format!(" ({size} bytes)"),
            _ => String::new(),
        };
        self.run
            .say(&format!("{verb} {}{size}{suffix}", event.agent));
        self.ended.push(Ended {
            event,
            kind,
            hints: Vec::new(),
            scratch_lines,
            record: over.then_some(displaced.record.path),
            _lock: turn.waiting.lock,
        });
    }

    /// Records everybody whose turn is over, ends their transactions, and tells
    /// how they ended.
    fn record(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        let events: Vec<Event> = ended.iter().map(|ended| ended.event.clone()).collect();
        let failed = self.run.engine.record_all(events).err();
        for mut ended in ended {
            match (&failed, &ended.record) {
                (None, Some(record)) => self.run.end_transaction(record),
                (None, None) => {}
                (Some(error), _) => self.not_recorded(&mut ended, error),
            }
            self.done(ended);
        }
        self.run.write_lines();
    }

    /// What becomes of an agent that the ledger does not know of.
    fn not_recorded(&self, ended: &mut Ended, error: &Error) {
        let event = &mut ended.event;
        let replaced = event.outcome == Outcome::Ok;
        let note = match replaced {
            true => format!("the memory was replaced, but not recorded: {error}"),
            false => format!("not recorded: {error}"),
        };
        if replaced {
            event.outcome = Outcome::Failed;
        }
        let line = format!("{}: {note}", event.agent);
        event.note = Some(match event.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note,
        });
        ended.kind = Some(ended.kind.unwrap_or(Kind::Partial).worst(error.kind()));
        self.run.say(&line);
    }

    fn done(&mut self, ended: Ended) {
        let event = ended.event;
        let result = AgentResult {
            agent: event.agent,
            outcome: event.outcome,
            kind: ended.kind,
            note: event.note,
            hints: ended.hints,
            entries: event.entry.into_iter().chain(event.late).collect(),
            scratch_lines: ended.scratch_lines,
            duration_ms: event.duration_ms,
        };
        self.run.tell(Progress::Done(result.clone()));
        self.results.push(result);
    }

    fn not_started(&mut self) {
        while let Some(waiting) = self.queue.pop_front() {
            let note = Some("the run was interrupted before its turn".to_string());
            let kind = Some(Kind::Interrupted);
            self.left_alone(&waiting.step.agent, Outcome::NotStarted, note, kind, None);
        }
    }

    fn unchanged(&mut self, waiting: Waiting<'a>) {
        let agent = &waiting.step.agent;
        self.run.say(&format!("{agent}: {EQUAL}"));
        let note = Some(EQUAL.to_string());
        self.left_alone(agent, Outcome::Unchanged, note, None, waiting.lock);
    }

    /// Ends an agent of which nothing was asked.
    fn left_alone(
        &mut self,
        agent: &str,
        outcome: Outcome,
        note: Option<String>,
        kind: Option<Kind>,
        lock: Option<Arc<Lock>>,
    ) {
        self.ended.push(Ended {
            event: Event {
                outcome,
                note,
                ..self.run.event(agent)
            },
            kind,
            hints: Vec::new(),
            scratch_lines: 0,
            record: None,
            _lock: lock,
        });
    }

    /// Ends an agent that was not changed, for this reason.
    fn refused(&mut self, error: Error, event: Event, lock: Option<Arc<Lock>>) {
        let event = Event {
            outcome: match error.kind() {
                Kind::Busy | Kind::Integrity | Kind::Conflict => Outcome::Refused,
                _ => Outcome::Failed,
            },
            note: Some(error.to_string()),
            after: None,
            ..event
        };
        self.run.say(&format!(
            "{}: {} — {error}",
            event.agent,
            event.outcome.word()
        ));
        self.ended.push(Ended {
            event,
            kind: Some(Kind::Partial.worst(error.kind())),
            hints: error.hints().to_vec(),
            scratch_lines: 0,
            record: None,
            _lock: lock,
        });
    }
}

/// Puts what a step changed on the disk. Those of whom that failed come second.
fn flushed<'a, T>(
    mut turns: Turns<'a, T>,
    mut changed: impl FnMut(&Turn<'a>, &mut T) -> Vec<Unsynced>,
) -> (Turns<'a, T>, Turns<'a, Error>) {
    let mut flush = Flush::default();
    for (number, (turn, data)) in turns.iter_mut().enumerate() {
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
