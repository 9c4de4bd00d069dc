//! Applying a plan: archive, replace, verify, record. The only code that changes
//! agents.
//!
//! For each agent, under its lock:
//!
//! 1. settle what an interrupted run left (its transaction record names it);
//! 2. read the memory and write its entry, both in one pass; the entry is on
//!    the disk before anything else happens;
//! 3. write the transaction record, durable; build the new file under a random
//!    name; put it in the memory's place, which displaces whatever really
//!    stands there;
//! 4. settle the displaced file: what a late writer added gets an entry of its
//!    own, then it is removed; while a writer still has it open, other agents
//!    go on;
//! 5. read back, record in the ledger, end the transaction.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::ledger::{Act, Event, Outcome, Standing};
use super::lock::{self, Holder, Lock};
use super::memory::Baseline;
use super::observe::{Judgement, Reading, judge, window, with_xattrs};
use super::plan::{Bound, Memory, Plan, Step, UndoMode};
use super::undo::{self, Part, Parts, Source};
use super::{Engine, Trigger};
use crate::archive::{self, Draft, EntryKind, OWN, Written};
use crate::baseline;
use crate::config::{Agent, Place};
use crate::digest::{Digest, Hasher};
use crate::durable::{self, NewFile};
use crate::error::{Error, Kind, PathContext};
use crate::transport::{Attributes, Cause, Folder, Method, Object, Odd, Settled, TransportError};

/// How long a writer may keep a displaced file open before it is left to the
/// next run.
const SETTLE: Duration = Duration::from_secs(2);

/// How often a reset starts over when the agent replaces its file in between.
const ATTEMPTS: usize = 3;

/// The stages that a person sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Taking the lock, settling an interrupted run.
    Lock,
    /// Reading the memory and archiving it.
    Archive,
    /// Putting the new file in place.
    Swap,
    /// Settling the displaced file.
    Settle,
    /// Reading back and recording.
    Verify,
}

impl Stage {
    /// All stages in order.
    pub const ALL: [Stage; 5] = [
        Stage::Lock,
        Stage::Archive,
        Stage::Swap,
        Stage::Settle,
        Stage::Verify,
    ];

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Stage::Lock => "lock",
            Stage::Archive => "archive",
            Stage::Swap => "swap",
            Stage::Settle => "settle",
            Stage::Verify => "verify",
        }
    }
}

/// What a run says while it goes on.
#[derive(Clone, Debug)]
pub enum Progress {
    /// An agent has reached a stage.
    Stage(String, Stage),
    /// An agent is done.
    Done(Result),
    /// A line for `reset.log` and for people.
    Line(String),
}

/// How it ended for one agent.
#[derive(Clone, Debug, Serialize)]
pub struct Result {
    /// The agent's name.
    pub agent: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What decides the exit code, when it did not end well.
    pub kind: Option<Kind>,
    /// Why, or what else is worth knowing.
    pub note: Option<String>,
    /// What was archived.
    pub entries: Vec<Written>,
    /// Lines of scratch that were archived.
    pub scratch_lines: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// How a run ended.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The run's id.
    pub run: String,
    /// Reset or undo.
    pub act: Act,
    /// One result for each agent that was asked for, in the plan's order.
    pub results: Vec<Result>,
    /// Entries that retention deleted.
    pub retired: Vec<PathBuf>,
    /// Number and digest of the ledger's last record afterwards.
    pub head: (u64, Digest),
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

impl Report {
    /// The most serious thing that happened, if anything did.
    pub fn kind(&self) -> Option<Kind> {
        self.results
            .iter()
            .filter_map(|result| result.kind)
            .reduce(Kind::worst)
    }

    /// How many agents ended so.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.results
            .iter()
            .filter(|result| result.outcome == outcome)
            .count()
    }
}

/// The record of a transaction: what an interrupted run left, and what it was
/// about. `<archive_dir>/.shepherd/tx/AGENT.RANDOM.json`, gone when its last
/// displaced file is settled. A writer that never closes an old file keeps one
/// record alive and holds up no later run.
#[derive(Serialize, Deserialize)]
struct Transaction {
    event: Event,
    memory: PathBuf,
    staged: String,
    /// Inode of the file that stood there before; 0 where unknown.
    inode: u64,
    /// Digests of contents that are archived already.
    known: Vec<Digest>,
}

/// An agent whose memory was replaced and whose displaced files are not all
/// settled yet.
struct Turn<'e> {
    agent: &'e Agent,
    _lock: Lock,
    folder: Box<dyn Folder>,
    record: PathBuf,
    event: Event,
    displaced: Vec<String>,
    known: Vec<Digest>,
    began: Instant,
    deadline: Instant,
    scratch_lines: u64,
    notes: Vec<String>,
    /// The most serious thing that happened, none of which kept the memory from
    /// being replaced.
    kind: Option<Kind>,
}

/// Why a turn ended early.
enum Trouble {
    /// The agent replaced its file in between; it can be tried again.
    Moved(Error),
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
            _ => Trouble::Stop(error.into()),
        }
    }
}

struct Run<'a> {
    engine: &'a Engine,
    plan: &'a Plan,
    id: String,
    bound: bool,
    progress: &'a mut dyn FnMut(Progress),
}

impl Engine {
    /// Applies a plan. With `bound`, an agent whose memory, baseline or boundary
    /// is no longer what the plan saw is refused; without, it is done as it is
    /// found. When `cancel` is set, the agent in hand is finished and the rest
    /// is not started.
    pub fn apply(
        &self,
        plan: &Plan,
        bound: bool,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Report {
        let began = self.clock().instant();
        let mut run = Run {
            engine: self,
            plan,
            id: run_id(),
            bound,
            progress,
        };
        let mut results = Vec::new();
        let mut open: VecDeque<Turn<'_>> = VecDeque::new();
        for skipped in &plan.skipped {
            results.push(run.skip(skipped));
        }
        for step in &plan.steps {
            if cancel.load(Ordering::Relaxed) {
                results.push(run.not_started(&step.agent));
                continue;
            }
            match run.begin(step) {
                Ok(Some(turn)) => {
                    run.stage(step, Stage::Settle);
                    open.push_back(turn);
                }
                Ok(None) => results.push(run.unchanged(step)),
                Err((error, event)) => results.push(run.failed(error, *event)),
            }
            let waiting = std::mem::take(&mut open);
            open = run.settle(waiting, &mut results);
        }
        while !open.is_empty() {
            self.clock().sleep(Duration::from_millis(10));
            open = run.settle(open, &mut results);
        }
        let order = |result: &Result| {
            plan.steps
                .iter()
                .position(|step| step.agent == result.agent)
                .unwrap_or(usize::MAX)
        };
        results.sort_by_key(order);
        let mut report = Report {
            run: run.id.clone(),
            act: plan.act,
            results,
            retired: Vec::new(),
            head: (0, Digest::ZERO),
            duration_ms: 0,
        };
        let everybody = plan.steps.len() + plan.skipped.len() == self.config().agents.len();
        if everybody && plan.act == Act::Reset && report.kind().is_none() {
            report.retired = run.retire();
        }
        report.head = self.ledger_head();
        report.duration_ms = millis(began, self.clock().instant());
        run.say(&format!(
            "run {} ended: {} ok, {} unchanged, {} not; ledger head {}:{}",
            report.run,
            report.count(Outcome::Ok),
            report.count(Outcome::Unchanged),
            report.results.len() - report.count(Outcome::Ok) - report.count(Outcome::Unchanged),
            report.head.0,
            report.head.1
        ));
        report
    }
}

type Refused = (Error, Box<Event>);

impl<'a> Run<'a> {
    /// Steps 1 to 3 for one agent. Nothing to do is `None`.
    fn begin(&mut self, step: &Step) -> std::result::Result<Option<Turn<'a>>, Refused> {
        let engine = self.engine;
        let began = engine.clock().instant();
        let mut event = self.event(&step.agent);
        event.undoes = step.undo.as_ref().map(|undo| undo.run.clone());
        macro_rules! attempt {
            ($result:expr) => {
                match $result {
                    Ok(value) => value,
                    Err(error) => return Err((error.into(), Box::new(event))),
                }
            };
        }
        self.stage(step, Stage::Lock);
        let agent = attempt!(engine.agent(&step.agent));
        let lock = attempt!(self.lock(agent));
        let Place::Local { memory } = &agent.place else {
            return Err((Error::new(Kind::Host, super::NO_REMOTE), Box::new(event)));
        };
        attempt!(self.recover(agent));
        for attempt in 1.. {
            let folder = attempt!(engine.transport().open(memory));
            match self.turn(agent, step, folder.as_ref(), &mut event) {
                Ok(None) => return Ok(None),
                Ok(Some(done)) => {
                    event.method = Some(done.method);
                    return Ok(Some(Turn {
                        agent,
                        _lock: lock,
                        folder,
                        record: done.record,
                        event,
                        displaced: done.displaced,
                        known: done.known,
                        began,
                        deadline: engine.clock().instant() + SETTLE,
                        scratch_lines: done.scratch_lines,
                        notes: Vec::new(),
                        kind: None,
                    }));
                }
                // What the agent wrote in between is in displaced files, which
                // the transaction record names.
                Err(trouble) => {
                    drop(folder);
                    if let Err(error) = self.recover(agent) {
                        self.say(&format!("{}: {error}", agent.name));
                    }
                    match trouble {
                        Trouble::Moved(_) if attempt < ATTEMPTS => {}
                        Trouble::Moved(error) | Trouble::Stop(error) => {
                            return Err((error, Box::new(event)));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    fn lock(&self, agent: &Agent) -> std::result::Result<Lock, Error> {
        let holder = Holder {
            pid: std::process::id(),
            user: self.engine.setup.user.clone(),
            since: self.engine.clock().now(),
            run: self.id.clone(),
        };
        lock::take(self.engine.archive(), &agent.name, &holder)
    }

    /// Reads, archives and replaces, once.
    fn turn(
        &mut self,
        agent: &'a Agent,
        step: &Step,
        folder: &dyn Folder,
        event: &mut Event,
    ) -> std::result::Result<Option<Done>, Trouble> {
        let engine = self.engine;
        self.stage(step, Stage::Archive);
        let taken = self.archive(agent, step, folder, event)?;
        let Some(Taken {
            source,
            attributes,
            inode,
            scratch_lines,
        }) = taken
        else {
            return Ok(None);
        };
        let Place::Local { memory } = &agent.place else {
            return Err(Error::new(Kind::Host, super::NO_REMOTE).into());
        };
        let staged = durable::random_name()?;
        let known: Vec<Digest> = event.before.iter().filter_map(Standing::digest).collect();
        let transaction = Transaction {
            event: event.clone(),
            memory: memory.clone(),
            staged: staged.clone(),
            inode,
            known: known.clone(),
        };
        let record = self.write_transaction(agent, &transaction)?;
        self.stage(step, Stage::Swap);
        let (method, displaced) = match &source.parts {
            None => {
                folder.take_away(&staged)?;
                (Method::Remove, vec![staged])
            }
            Some(parts) => {
                let attributes = match source.attributes.or(attributes) {
                    Some(attributes) => attributes,
                    None => folder.inherited()?,
                };
                folder.stage(&staged, &mut |sink| parts.feed(engine, sink), &attributes)?;
                let swapped = folder.swap(&staged)?;
                (swapped.method, swapped.displaced)
            }
        };
        Ok(Some(Done {
            method,
            displaced,
            record,
            known,
            scratch_lines,
        }))
    }

    /// Reads the memory and writes its entry, both in one pass. `None` when the
    /// memory is what it should be already.
    fn archive(
        &mut self,
        agent: &Agent,
        step: &Step,
        folder: &dyn Folder,
        event: &mut Event,
    ) -> std::result::Result<Option<Taken>, Trouble> {
        let engine = self.engine;
        let history = engine.history(&agent.name)?;
        let loaded = baseline::load(&engine.config().general, agent);
        // An undo puts back what was there; a damaged baseline is no reason to
        // refuse it, and then the memory is measured against the last one.
        let (current, earlier) = match (loaded, &step.undo) {
            (Ok(baseline), _) => {
                let current = Arc::new(baseline);
                let earlier = engine.earlier(agent, &history, Some(&current));
                (current, earlier)
            }
            (Err(refusal), None) => return Err(refusal.error().clone().into()),
            (Err(_), Some(_)) => {
                let earlier = engine.earlier(agent, &history, None);
                let none = || Arc::new(Baseline::new(Vec::new(), &agent.separator));
                (earlier.first().cloned().unwrap_or_else(none), earlier)
            }
        };
        let now = engine.clock().now();
        let subdir = Path::new(&agent.archive_subdir);
        let mut reading = Reading::default();
        let mut intake = Intake {
            engine,
            subdir,
            header: archive::scratch_header(&agent.name, now),
            judge: &|reading: &Reading| judge(reading, &current, &earlier),
            window: window(&current),
            draft: None,
        };
        let object = folder.look()?;
        let mut attributes = None;
        let mut inode = 0;
        match &object {
            Object::Absent => event.before = Some(Standing::Absent),
            Object::Odd(odd) => event.before = Some(Standing::Odd(odd.clone())),
            Object::File(_) => {
                let file = folder.read(&mut |bytes| intake.take(&mut reading, bytes))?;
                let xattrs = folder.xattrs()?;
                inode = file.stamp.inode;
                attributes = Some(with_xattrs(file.attributes, xattrs));
                event.before = Some(Standing::File {
                    sha256: reading.digest(),
                    size: reading.size,
                    lines: reading.lines(),
                });
                event.attributes.clone_from(&attributes);
            }
        }
        let judgement = judge(&reading, &current, &earlier);
        let memory = match &object {
            Object::Absent => Memory::Absent,
            Object::Odd(_) => Memory::Odd,
            Object::File(_) => Memory::File(judgement.boundary, &reading.head),
        };
        let mut source = self.source(agent, step, &current)?;
        let content = source.digest();
        // Nothing to do also where an interrupted run was just finished, which
        // the plan could not see.
        if step.undo.is_none()
            && event.before.as_ref().and_then(Standing::digest) == Some(content)
            && (!self.bound || step.bound.content == content)
        {
            return Ok(None);
        }
        if self.bound && Bound::new(content, &memory) != step.bound {
            return Err(Error::new(
                Kind::Conflict,
                format!("{} is no longer what the plan saw", agent.name),
            )
            .hint("look at a new plan; nothing was changed")
            .into());
        }
        let written_since = step.undo.is_some() && self.written_since(agent, event)?;
        if let Some(undo) = &step.undo
            && undo.mode == UndoMode::Refuse
            && written_since
        {
            return Err(Error::new(
                Kind::Conflict,
                format!("{} has written since run {}", agent.name, undo.run),
            )
            .hint("--append keeps its new notes below the restored file, --overwrite archives them")
            .into());
        }
        event.after = Some(source.standing.clone());
        if step.undo.is_some() {
            event.baseline = source.version;
        } else {
            engine.versions.keep(&current)?;
            event.baseline = Some(current.digest());
        }
        if object == Object::Absent {
            let taken = Taken {
                source,
                attributes: None,
                inode,
                scratch_lines: 0,
            };
            return Ok(taken.source.parts.is_some().then_some(taken));
        }
        event.boundary = judgement.boundary;
        if let Some(version) = &judgement.version {
            engine.versions.keep(version)?;
            event.split = judgement.exact.then(|| version.digest());
        }
        let written = match &object {
            Object::Odd(odd) => Some(self.describe(agent, odd)?),
            _ => intake.finish(&reading, now)?,
        };
        if let Some(written) = &written {
            self.said_archived(agent, written, judgement.scratch_lines);
        }
        if let (Some(parts), Some(written)) = (&mut source.parts, &written)
            && written_since
            && step
                .undo
                .as_ref()
                .is_some_and(|undo| undo.mode == UndoMode::Append)
        {
            let (_, whole_lines) = parts.measure(engine)?;
            if !whole_lines {
                parts.0.push(Part::Bytes(Arc::new(b"\n".to_vec())));
            }
            parts.0.push(Part::Entry(
                written.path.clone(),
                notes_in(written, &reading, &judgement),
            ));
            (source.standing, _) = parts.measure(engine)?;
            event.after = Some(source.standing.clone());
        }
        event.entry = written;
        Ok(Some(Taken {
            source,
            attributes,
            inode,
            scratch_lines: judgement.scratch_lines,
        }))
    }

    /// What is to be installed: the baseline, or what an undo puts back.
    fn source(
        &self,
        agent: &Agent,
        step: &Step,
        current: &Arc<Baseline>,
    ) -> std::result::Result<Source, Error> {
        let Some(undo) = &step.undo else {
            let parts = Parts(vec![Part::Bytes(Arc::new(current.bytes().to_vec()))]);
            let (standing, _) = parts.measure(self.engine)?;
            return Ok(Source {
                parts: Some(parts),
                standing,
                attributes: None,
                version: Some(current.digest()),
            });
        };
        let records = self.engine.records()?;
        let record = undo::of_run(&records, &undo.run)
            .find(|record| record.what.agent == agent.name)
            .ok_or_else(|| {
                let message = format!("the ledger has no run {} of {}", undo.run, agent.name);
                Error::new(Kind::Conflict, message)
            })?;
        undo::source(self.engine, agent, record)
    }

    /// Whether the agent wrote after the last run that changed its memory.
    fn written_since(&self, agent: &Agent, event: &Event) -> std::result::Result<bool, Error> {
        let records = self.engine.records()?;
        Ok(undo::written_since(
            &records,
            &agent.name,
            event.before.as_ref(),
        ))
    }

    /// Writes the entry that describes something that is not read.
    fn describe(&self, agent: &Agent, odd: &Odd) -> std::result::Result<Written, Error> {
        let now = self.engine.clock().now();
        let mut draft = self
            .engine
            .archive()
            .begin(Path::new(&agent.archive_subdir))?;
        draft.write(
            format!(
                "# {} — {}\n\nIn place of the memory stood {odd}. It was displaced and not read.\n",
                agent.name,
                archive::stamp(now)
            )
            .as_bytes(),
        )?;
        draft.finish(EntryKind::Odd, now)
    }

    /// Step 4 for everybody who waits; those who still have to come back.
    fn settle(
        &mut self,
        waiting: VecDeque<Turn<'a>>,
        results: &mut Vec<Result>,
    ) -> VecDeque<Turn<'a>> {
        let mut open = VecDeque::new();
        for mut turn in waiting {
            match self.settle_once(&mut turn) {
                Ok(true) => {
                    let result = self.end(turn);
                    results.push(result);
                }
                Ok(false) if self.engine.clock().instant() < turn.deadline => open.push_back(turn),
                Ok(false) => {
                    turn.notes.push(format!(
                        "a writer still has the displaced file open; it stays as {} until the next run",
                        turn.displaced.join(", ")
                    ));
                    let result = self.end(turn);
                    results.push(result);
                }
                Err(error) => {
                    turn.kind = Some(Kind::Partial.worst(error.kind()));
                    turn.notes
                        .push(format!("the displaced file stays: {error}"));
                    let result = self.end(turn);
                    results.push(result);
                }
            }
        }
        open
    }

    /// Tries to settle each displaced file; true when none is left.
    fn settle_once(&mut self, turn: &mut Turn<'_>) -> std::result::Result<bool, Error> {
        let names = std::mem::take(&mut turn.displaced);
        let mut failure = None;
        for name in names {
            let mut late = Vec::new();
            let known = &turn.known;
            let settled =
                self.settle_file(turn.agent, turn.folder.as_ref(), &name, known, &mut late);
            for written in late {
                turn.known.push(written.digest);
                turn.notes.push(format!(
                    "a late write was archived as {}",
                    written.path.display()
                ));
                turn.event.late.push(written);
            }
            match settled {
                Ok(Settled::Removed { watched: true }) => {}
                Ok(Settled::Removed { watched: false }) => turn.notes.push(
                    "late writers cannot be detected here: no right to take file leases"
                        .to_string(),
                ),
                Ok(Settled::Open) => turn.displaced.push(name),
                Ok(Settled::Odd(odd)) => match turn.event.before {
                    Some(Standing::Odd(_)) => {}
                    _ => match self.describe(turn.agent, &odd) {
                        Ok(written) => turn.event.late.push(written),
                        Err(error) => failure = Some(error),
                    },
                },
                Ok(Settled::Kept) => turn.notes.push(format!(
                    "the folder that stood there is kept as {name}, beside the memory"
                )),
                Err(error) => {
                    turn.displaced.push(name);
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(turn.displaced.is_empty()),
        }
    }

    /// Settles one displaced file; contents that are not `known` get an entry.
    fn settle_file(
        &self,
        agent: &Agent,
        folder: &dyn Folder,
        name: &str,
        known: &[Digest],
        late: &mut Vec<Written>,
    ) -> std::result::Result<Settled, Error> {
        let archive = self.engine.archive();
        let now = self.engine.clock().now();
        let settled = folder.settle(name, &mut |read| {
            let mut hasher = Hasher::default();
            read(&mut |bytes| {
                hasher.update(bytes);
                Ok(())
            })?;
            let digest = hasher.finish();
            if known.contains(&digest) || late.iter().any(|written| written.digest == digest) {
                return Ok(());
            }
            let mut draft = archive.begin(Path::new(&agent.archive_subdir))?;
            read(&mut |bytes| draft.write(bytes))?;
            late.push(draft.finish(EntryKind::Late, now)?);
            Ok(())
        })?;
        Ok(settled)
    }

    /// Step 5.
    fn end(&mut self, mut turn: Turn<'_>) -> Result {
        (self.progress)(Progress::Stage(turn.agent.name.clone(), Stage::Verify));
        let verified = self.read_back(turn.folder.as_ref(), &turn.event);
        let mut kind = turn.kind;
        turn.event.outcome = Outcome::Ok;
        match verified {
            Ok(true) => {}
            Ok(false) => turn
                .notes
                .push("the agent has already changed it again".to_string()),
            Err(error) => {
                kind = Some(kind.unwrap_or(Kind::Partial).worst(error.kind()));
                turn.event.outcome = Outcome::Failed;
                turn.notes.push(format!("reading back failed: {error}"));
            }
        }
        turn.event.duration_ms = millis(turn.began, self.engine.clock().instant());
        turn.event.note = match turn.notes.as_slice() {
            [] => None,
            notes => Some(notes.join("; ")),
        };
        let recorded = self
            .engine
            .book()
            .ledger
            .append(vec![turn.event.clone()], self.engine.clock());
        match recorded {
            Ok(()) if turn.displaced.is_empty() => self.end_transaction(&turn.record),
            // The record stays, so that the next run settles what is left.
            Ok(()) => {}
            Err(error) => {
                kind = Some(kind.unwrap_or(Kind::Partial).worst(error.kind()));
                turn.event.outcome = Outcome::Failed;
                turn.event.note = Some(format!(
                    "the memory was replaced, but not recorded: {error}"
                ));
            }
        }
        let verb = match (turn.event.act, turn.event.after == Some(Standing::Absent)) {
            (_, true) => "Removed the created memory of",
            (Act::Undo, _) => "Restored the memory of",
            _ => "Reset",
        };
        let note = turn.event.note.clone();
        let suffix = note
            .as_deref()
            .map_or(String::new(), |note| format!("; {note}"));
        let size = match turn.event.after {
            Some(Standing::File { size, .. }) => size,
            _ => 0,
        };
        self.say(&format!(
            "{verb} {} ({size} bytes){suffix}",
            turn.agent.name
        ));
        self.done(turn.event, kind, turn.scratch_lines)
    }

    /// Whether the memory begins with what a run installed, read anew.
    fn read_back(&self, folder: &dyn Folder, event: &Event) -> std::result::Result<bool, Error> {
        let Some(Standing::File { sha256, size, .. }) = event.after else {
            return Ok(folder.look()? == Object::Absent);
        };
        let (mut hasher, mut left) = (Hasher::default(), size);
        if !matches!(folder.look()?, Object::File(_)) {
            return Ok(false);
        }
        let read = folder.read(&mut |bytes| {
            let count = left.min(bytes.len() as u64);
            hasher.update(&bytes[..count as usize]);
            left -= count;
            Ok(())
        });
        match read {
            Ok(_) => Ok(left == 0 && hasher.finish() == sha256),
            Err(error) if error.cause == Cause::Moved => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Step 1: looks what interrupted runs left, and puts it right. Under the
    /// agent's lock.
    fn recover(&mut self, agent: &Agent) -> std::result::Result<(), Error> {
        for record in self.transactions(agent)? {
            self.recover_one(agent, &record)?;
        }
        Ok(())
    }

    fn recover_one(&mut self, agent: &Agent, record: &Path) -> std::result::Result<(), Error> {
        let text = std::fs::read(record).path("read", record)?;
        let transaction: Transaction = serde_json::from_slice(&text).map_err(|error| {
            let message = format!("{} is no transaction record: {error}", record.display());
            Error::new(Kind::Integrity, message).hint(
                "it names what an interrupted run left in the agent's folder: archive the \
                 .shepherd-* files there by hand, then delete the record",
            )
        })?;
        let folder = match self.engine.transport().open(&transaction.memory) {
            Err(error) if error.cause == Cause::NoFolder => {
                self.say(&format!(
                    "{}: the folder in which run {} was interrupted is gone",
                    agent.name, transaction.event.run
                ));
                self.end_transaction(record);
                return Ok(());
            }
            folder => folder?,
        };
        let Transaction {
            mut event,
            staged,
            inode,
            mut known,
            ..
        } = transaction;
        let own = event.run == self.id;
        let recorded = self.engine.records()?.iter().any(|record| {
            let past = &record.what;
            (&past.run, &past.agent) == (&event.run, &event.agent)
                && (&past.before, &past.after) == (&event.before, &event.after)
        });
        let new = event.after.as_ref().and_then(Standing::digest);
        let is_new = |name: &str| match new {
            Some(new) => folder.holds(name, new),
            None => Ok(false),
        };
        if !recorded && is_new(&staged)? && folder.look()? == Object::Absent {
            // Taken away, and interrupted before the new file took its place.
            folder.swap(&staged)?;
        }
        // The name holds the new file before the swap, the old one after it.
        let swapped = recorded
            || match folder.stands(&staged)? {
                true => !is_new(&staged)?,
                false => match folder.look()? {
                    // The notes below it do not make the old file a new one.
                    Object::File(file) if inode != 0 && file.stamp.inode == inode => false,
                    _ => self.read_back(folder.as_ref(), &event)?,
                },
            };
        folder.remove_unfinished(&staged)?;
        known.extend(new);
        let mut left = Vec::new();
        for name in folder.displaced_names(&staged)? {
            let mut late = Vec::new();
            let settled = self.settle_file(agent, folder.as_ref(), &name, &known, &mut late)?;
            known.extend(late.iter().map(|written| written.digest));
            event.late.extend(late);
            match settled {
                Settled::Open => left.push(name),
                Settled::Odd(odd) if !matches!(event.before, Some(Standing::Odd(_))) => {
                    event.late.push(self.describe(agent, &odd)?);
                }
                _ => {}
            }
        }
        if !left.is_empty() {
            self.say(&format!(
                "{}: a writer still has {} open, which run {} displaced; the next run settles it",
                agent.name,
                left.join(", "),
                event.run
            ));
        }
        let (note, tell) = match (recorded, swapped) {
            (true, _) => ("settled what this run displaced", !event.late.is_empty()),
            (false, true) => (
                "interrupted after the memory was replaced; finished since",
                true,
            ),
            (false, false) => (
                "interrupted before the memory was replaced",
                !event.late.is_empty() || !own && left.is_empty(),
            ),
        };
        if recorded || !swapped && own {
            event.act = Act::Repair;
        }
        if !swapped {
            event.after = None;
            event.outcome = match own {
                true => Outcome::Ok,
                false => Outcome::Failed,
            };
        }
        if tell {
            event.note = Some(note.to_string());
            self.say(&format!("{}: run {}: {note}", agent.name, event.run));
            self.engine
                .book()
                .ledger
                .append(vec![event], self.engine.clock())?;
        }
        if left.is_empty() {
            self.end_transaction(record);
        }
        Ok(())
    }

    /// The transaction records of an agent: what its runs left unsettled.
    fn transactions(&self, agent: &Agent) -> std::result::Result<Vec<PathBuf>, Error> {
        let path = self.engine.archive().own("tx");
        let items = match std::fs::read_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            items => items.path("list", &path)?,
        };
        // A name of an agent has no dot.
        let prefix = format!("{}.", agent.name);
        let mut records = Vec::new();
        for item in items {
            let name = item.path("list", &path)?.file_name();
            if name.to_string_lossy().starts_with(&prefix) {
                records.push(path.join(name));
            }
        }
        records.sort();
        Ok(records)
    }

    fn write_transaction(
        &self,
        agent: &Agent,
        transaction: &Transaction,
    ) -> std::result::Result<PathBuf, Error> {
        let archive = self.engine.archive();
        let folder = Arc::new(archive.folder(&Path::new(OWN).join("tx"))?);
        let path = archive.own("tx");
        let text = serde_json::to_vec(transaction).map_err(|error| {
            Error::new(
                Kind::Internal,
                format!("cannot write a transaction: {error}"),
            )
        })?;
        let mut file = NewFile::create(&folder, &path, archive.file_mode())?;
        file.write(&text)?;
        let name = format!("{}{}.json", agent.name, transaction.staged);
        if !file.link(name.as_ref())? {
            let message = format!("{} exists already", path.join(name).display());
            return Err(Error::new(Kind::Internal, message));
        }
        rustix::fs::fsync(&*folder).path("sync the folder", &path)?;
        Ok(path.join(name))
    }

    fn end_transaction(&mut self, record: &Path) {
        if let Err(error) = std::fs::remove_file(record) {
            self.say(&Error::io("remove", record, &error).to_string());
        }
    }

    fn retire(&mut self) -> Vec<PathBuf> {
        let mut gone = Vec::new();
        match self.engine.retention() {
            Ok(expired) => {
                for entry in expired {
                    match self.engine.archive().delete(&entry.path) {
                        Ok(()) => gone.push(entry.path),
                        Err(error) => self.say(&format!("retention: {error}")),
                    }
                }
                if !gone.is_empty() {
                    let days = self.engine.config().general.archive_retention_days;
                    self.say(&format!(
                        "Deleted {} entries older than {days} days",
                        gone.len()
                    ));
                }
            }
            Err(error) => self.say(&format!("retention: {error}")),
        }
        gone
    }

    fn event(&self, agent: &str) -> Event {
        let trigger: Trigger = self.engine.setup.trigger;
        Event::new(
            &self.id,
            self.plan.act,
            trigger,
            &self.engine.setup.user,
            agent,
        )
    }

    /// An agent that is not to be reset may still have what an interrupted run
    /// left: after a crash behind the swap its memory is clean.
    fn settle_skipped(&mut self, skipped: &super::Skipped) -> std::result::Result<(), Error> {
        let engine = self.engine;
        let agent = engine.agent(&skipped.agent)?;
        if self.transactions(agent)?.is_empty() {
            return Ok(());
        }
        let _lock = self.lock(agent)?;
        self.recover(agent)
    }

    fn skip(&mut self, skipped: &super::Skipped) -> Result {
        let mut event = self.event(&skipped.agent);
        if skipped.kind != Some(Kind::Busy)
            && let Err(error) = self.settle_skipped(skipped)
        {
            if skipped.kind.is_none() {
                return self.refused(error, event);
            }
            self.say(&format!("{}: {error}", skipped.agent));
        }
        event.note = Some(skipped.why.clone());
        let Some(kind) = skipped.kind else {
            event.outcome = Outcome::Unchanged;
            self.record(&event);
            self.say(&format!("{}: {}", skipped.agent, skipped.why));
            return self.done(event, None, 0);
        };
        self.refused(Error::new(kind, skipped.why.clone()), event)
    }

    fn not_started(&mut self, agent: &str) -> Result {
        let mut event = self.event(agent);
        event.outcome = Outcome::NotStarted;
        event.note = Some("the run was interrupted before its turn".to_string());
        self.record(&event);
        self.done(event, Some(Kind::Interrupted), 0)
    }

    fn unchanged(&mut self, step: &Step) -> Result {
        let mut event = self.event(&step.agent);
        event.outcome = Outcome::Unchanged;
        self.record(&event);
        self.say(&format!("{}: already as it should be", step.agent));
        self.done(event, None, 0)
    }

    fn failed(&mut self, error: Error, event: Event) -> Result {
        self.refused(error, event)
    }

    /// Records and reports an agent that was not changed, for this reason.
    fn refused(&mut self, error: Error, mut event: Event) -> Result {
        event.outcome = match error.kind() {
            Kind::Busy | Kind::Integrity | Kind::Conflict => Outcome::Refused,
            _ => Outcome::Failed,
        };
        event.note = Some(error.to_string());
        event.after = None;
        self.record(&event);
        self.say(&format!(
            "{}: {} — {error}",
            event.agent,
            event.outcome.word()
        ));
        self.done(event, Some(Kind::Partial.worst(error.kind())), 0)
    }

    fn record(&mut self, event: &Event) {
        let appended = self
            .engine
            .book()
            .ledger
            .append(vec![event.clone()], self.engine.clock());
        if let Err(error) = appended {
            self.say(&format!("{}: not recorded: {error}", event.agent));
        }
    }

    fn done(&mut self, event: Event, kind: Option<Kind>, scratch_lines: u64) -> Result {
        let result = Result {
            agent: event.agent,
            outcome: event.outcome,
            kind,
            note: event.note,
            entries: event.entry.into_iter().chain(event.late).collect(),
            scratch_lines,
            duration_ms: event.duration_ms,
        };
        (self.progress)(Progress::Done(result.clone()));
        result
    }

    fn stage(&mut self, step: &Step, stage: Stage) {
        (self.progress)(Progress::Stage(step.agent.clone(), stage));
    }

    fn said_archived(&mut self, agent: &Agent, written: &Written, lines: u64) {
        let what = match written.kind {
            EntryKind::Scratch => format!("Archived {lines} scratch lines of {}", agent.name),
            EntryKind::Odd => format!("Described what stood in place of {}'s memory", agent.name),
            _ => format!("Archived the whole memory of {}", agent.name),
        };
        self.say(&format!("{what} as {}", written.path.display()));
    }

    /// A line for `reset.log` and for whoever listens.
    fn say(&mut self, text: &str) {
        let line = super::log::line(self.engine.clock().now(), text);
        if let Err(error) = super::log::append(self.engine.archive(), &line) {
            (self.progress)(Progress::Line(format!("{error}")));
        }
        (self.progress)(Progress::Line(line));
    }
}

/// What a swap left to do.
struct Done {
    method: Method,
    displaced: Vec<String>,
    record: PathBuf,
    known: Vec<Digest>,
    scratch_lines: u64,
}

/// What was read and archived before a swap, and what is to be installed.
struct Taken {
    source: Source,
    attributes: Option<Attributes>,
    inode: u64,
    scratch_lines: u64,
}

/// Where in an entry the agent's own notes begin.
fn notes_in(entry: &Written, reading: &Reading, judgement: &Judgement) -> u64 {
    let boundary = judgement.boundary.map_or(0, |boundary| boundary.offset);
    let scratch = reading.head.get(boundary..).unwrap_or_default();
    let tail = match &judgement.version {
        Some(version) if scratch.starts_with(version.tail()) => version.tail().len() as u64,
        _ => 0,
    };
    match entry.kind {
        // Behind the header: everything below the boundary.
        EntryKind::Scratch => entry.size - (reading.size - boundary as u64) + tail,
        _ => boundary as u64 + tail,
    }
}

/// The memory on its way into an entry: its beginning is kept until the
/// boundary can be found, the rest goes straight through.
struct Intake<'i> {
    engine: &'i Engine,
    subdir: &'i Path,
    header: String,
    judge: &'i dyn Fn(&Reading) -> Judgement,
    window: usize,
    draft: Option<(Draft, EntryKind)>,
}

impl Intake<'_> {
    fn take(&mut self, reading: &mut Reading, bytes: &[u8]) -> std::result::Result<(), Error> {
        let before = reading.head.len();
        reading.take(bytes, self.window);
        if reading.size <= self.window as u64 {
            return Ok(());
        }
        let kept = reading.head.len() - before;
        if self.draft.is_none() {
            self.draft = self.start(reading)?;
        }
        match &mut self.draft {
            Some((draft, _)) => draft.write(&bytes[kept..]),
            None => Ok(()),
        }
    }

    /// Starts the entry with what was kept; none when there is nothing of the
    /// agent's in it.
    fn start(&self, reading: &Reading) -> std::result::Result<Option<(Draft, EntryKind)>, Error> {
        let judgement = (self.judge)(reading);
        let whole = reading.size <= self.window as u64;
        if whole && judgement.exact && judgement.scratch_bytes == 0 {
            return Ok(None);
        }
        let mut draft = self.engine.archive().begin(self.subdir)?;
        let kind = match judgement.boundary.filter(|_| judgement.exact) {
            Some(boundary) => {
                draft.write(self.header.as_bytes())?;
                draft.write(reading.head.get(boundary.offset..).unwrap_or_default())?;
                EntryKind::Scratch
            }
            None => {
                draft.write(&reading.head)?;
                EntryKind::FullBackup
            }
        };
        Ok(Some((draft, kind)))
    }

    fn finish(
        mut self,
        reading: &Reading,
        now: chrono::DateTime<chrono::FixedOffset>,
    ) -> std::result::Result<Option<Written>, Error> {
        if self.draft.is_none() {
            self.draft = self.start(reading)?;
        }
        self.draft
            .map(|(draft, kind)| draft.finish(kind, now))
            .transpose()
    }
}

pub(super) fn run_id() -> String {
    // The random name has 32 digits behind its prefix; eight are enough here.
    durable::random_name().map_or_else(|_| "00000000".to_string(), |name| name[10..18].to_string())
}

fn millis(began: Instant, now: Instant) -> u64 {
    now.duration_since(began).as_millis() as u64
}
