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

mod intake;
mod recover;
mod report;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use intake::Taken;
pub use recover::UNCLAIMED;
use recover::{Displaced, Mark, Transaction, mark};
pub use report::{AgentResult, Progress, Report, Stage};

use super::ledger::{Act, Event, Outcome, Standing};
use super::lock::{self, Holder, Lock};
use super::plan::{Plan, Step};
use super::{Engine, Trigger};
use crate::config::{Agent, Place};
use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, Kind, Result};
use crate::transport::{Cause, Folder, Method, TransportError};

/// How long a writer may keep a displaced file open before it is left to the
/// next run.
const SETTLE: Duration = Duration::from_secs(2);

/// How often a reset starts over when the agent replaces its file in between.
const ATTEMPTS: usize = 3;

/// An agent whose memory was replaced and whose displaced files are not all
/// settled yet.
struct Turn<'e> {
    agent: &'e Agent,
    _lock: Lock,
    folder: Box<dyn Folder>,
    event: Event,
    displaced: Displaced,
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
    trouble: Vec<Error>,
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
            trouble: Vec::new(),
            progress,
        };
        run.sweep();
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
                Err((error, event)) => results.push(run.refused(error, *event)),
            }
            let waiting = std::mem::take(&mut open);
            open = run.settle(waiting, &mut results);
        }
        while !open.is_empty() {
            self.clock().sleep(Duration::from_millis(10));
            open = run.settle(open, &mut results);
        }
        let everybody = plan.steps.len() + plan.skipped.len() == self.config().agents.len();
        if everybody && plan.act == Act::Reset {
            run.tell_of_unclaimed();
        }
        let order = |result: &AgentResult| {
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
            trouble: std::mem::take(&mut run.trouble),
            retired: Vec::new(),
            head: (0, Digest::ZERO),
            duration_ms: 0,
        };
        // Agents that this version cannot reach at all keep nothing else from
        // its end.
        let remote = |result: &AgentResult| {
            let agent = self.config().agent(&result.agent);
            agent.is_some_and(|agent| matches!(agent.place, Place::Remote { .. }))
        };
        let failed = |result: &AgentResult| result.kind.is_some() && !remote(result);
        let clean = report.trouble.is_empty() && !report.results.iter().any(failed);
        if everybody && plan.act == Act::Reset && clean {
            report.retired = run.retire();
            report.trouble.append(&mut run.trouble);
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
    fn begin(&mut self, step: &Step) -> Result<Option<Turn<'a>>, Refused> {
        let engine = self.engine;
        let began = engine.clock().instant();
        let fresh = |run: &Run<'_>| {
            let mut event = run.event(&step.agent);
            event.undoes = step.undo.as_ref().map(|undo| undo.run.clone());
            event
        };
        let mut event = fresh(self);
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
        let mut attempts = 1;
        loop {
            let folder = attempt!(engine.transport().open(memory));
            let trouble = match self.turn(agent, step, folder.as_ref(), &mut event) {
                Ok(None) => return Ok(None),
                Ok(Some(done)) => {
                    let notes = event.note.take().into_iter().collect();
                    return Ok(Some(Turn {
                        agent,
                        _lock: lock,
                        folder,
                        event,
                        displaced: done.displaced,
                        began,
                        deadline: engine.clock().instant() + SETTLE,
                        scratch_lines: done.scratch_lines,
                        notes,
                        kind: None,
                    }));
                }
                Err(trouble) => trouble,
            };
            // What the agent wrote in between is in displaced files, which the
            // transaction record names.
            drop(folder);
            if let Err(error) = self.recover(agent) {
                self.trouble(error.context(&agent.name));
            }
            match trouble {
                Trouble::Moved(_) if attempts < ATTEMPTS => attempts += 1,
                Trouble::Moved(error) | Trouble::Stop(error) => {
                    return Err((error, Box::new(event)));
                }
            }
            // What was seen and archived then is not about what stands there
            // now.
            event = fresh(self);
        }
    }

    fn lock(&self, agent: &Agent) -> Result<Lock, Error> {
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
    ) -> Result<Option<Done>, Trouble> {
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
            folder: folder.identity()?,
            staged: staged.clone(),
            inode,
            known: known.clone(),
        };
        let record = self.write_transaction(agent, &transaction)?;
        self.stage(step, Stage::Swap);
        let (method, names) = match &source.parts {
            None => {
                folder.take_away(&staged)?;
                (Method::Remove, vec![staged])
            }
            Some(parts) => {
                let attributes = match source.attributes.or(attributes) {
                    Some(attributes) => attributes,
                    None => folder.inherited(&staged)?,
                };
                let new =
                    folder.stage(&staged, &mut |sink| parts.feed(engine, sink), &attributes)?;
                let swapped = folder.swap(&staged, new)?;
                (swapped.method, swapped.displaced)
            }
        };
        event.method = Some(method);
        let marked = mark(&record, &Mark::Swapped(method));
        Ok(Some(Done {
            displaced: Displaced {
                record,
                names,
                known,
                // Settling tries that again, and goes no further without it.
                unmarked: marked.is_err().then_some(method),
            },
            scratch_lines,
        }))
    }

    /// Step 4 for everybody who waits; those who still have to come back.
    fn settle(
        &mut self,
        waiting: VecDeque<Turn<'a>>,
        results: &mut Vec<AgentResult>,
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
                        turn.displaced.names.join(", ")
                    ));
                    let result = self.end(turn);
                    results.push(result);
                }
                Err(error) => {
                    turn.kind = Some(Kind::Partial.worst(error.kind()));
                    turn.notes.push(match turn.displaced.names.is_empty() {
                        true => error.to_string(),
                        false => format!("the displaced file stays: {error}"),
                    });
                    let result = self.end(turn);
                    results.push(result);
                }
            }
        }
        open
    }

    /// Tries to settle each displaced file; true when none is left.
    fn settle_once(&mut self, turn: &mut Turn<'_>) -> Result<bool, Error> {
        let (notes, settled) = self.settle_displaced(
            turn.agent,
            turn.folder.as_ref(),
            &mut turn.event,
            &mut turn.displaced,
        );
        for note in notes {
            if !turn.notes.contains(&note) {
                turn.notes.push(note);
            }
        }
        settled.map(|()| turn.displaced.names.is_empty())
    }

    /// Step 5.
    fn end(&mut self, mut turn: Turn<'_>) -> AgentResult {
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
                // It was replaced, and an undo must know of it.
                kind = Some(kind.unwrap_or(Kind::Partial).worst(error.kind()));
                // It was replaced all the same, and can be undone.
                turn.notes.push(format!("reading back failed: {error}"));
            }
        }
        turn.event.duration_ms = millis(turn.began, self.engine.clock().instant());
        turn.event.note = match turn.notes.as_slice() {
            [] => None,
            notes => Some(notes.join("; ")),
        };
        match self.engine.record(turn.event.clone()) {
            Ok(()) if turn.displaced.names.is_empty() => {
                self.end_transaction(&turn.displaced.record);
            }
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
        self.done(turn.event, kind, Vec::new(), turn.scratch_lines)
    }

    /// Removes what killed runs left in the folders of the archive.
    fn sweep(&mut self) {
        let archive = self.engine.archive();
        let agents = self.plan.steps.iter();
        let agents = agents.filter_map(|step| self.engine.agent(&step.agent).ok());
        let entries = agents.map(|agent| archive.root().join(&agent.archive_subdir));
        let folders: Vec<PathBuf> = ["", "tx", "baselines"]
            .map(|name| archive.own(name))
            .into_iter()
            .chain(entries)
            .collect();
        let now = self.engine.clock().now().into();
        for folder in folders {
            if let Err(error) = durable::sweep(&folder, now) {
                self.say(&format!("sweeping: {error}"));
            }
        }
    }

    fn retire(&mut self) -> Vec<PathBuf> {
        let plan = self.plan;
        let Some(shown) = &plan.retention else {
            return Vec::new();
        };
        let (gone, failed) = match self.engine.retire(&self.id, shown) {
            Ok(ended) => ended,
            Err(error) => (Vec::new(), vec![error]),
        };
        if !gone.is_empty() {
            let days = self.engine.config().general.archive_retention_days;
            let older = super::retention::older(gone.len(), days);
            self.say(&format!("Deleted {older}"));
        }
        for error in failed {
            self.trouble(error.context("retention"));
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
    fn settle_skipped(&mut self, skipped: &super::Skipped) -> Result<(), Error> {
        let engine = self.engine;
        let agent = engine.agent(&skipped.agent)?;
        if self.transactions(agent)?.is_empty() {
            return Ok(());
        }
        let _lock = self.lock(agent)?;
        self.recover(agent)
    }

    fn skip(&mut self, skipped: &super::Skipped) -> AgentResult {
        let mut event = self.event(&skipped.agent);
        if skipped.kind != Some(Kind::Busy)
            && let Err(error) = self.settle_skipped(skipped)
        {
            if skipped.kind.is_none() {
                return self.refused(error, event);
            }
            self.trouble(error.context(&skipped.agent));
        }
        event.note = Some(skipped.why.clone());
        let Some(kind) = skipped.kind else {
            event.outcome = Outcome::Unchanged;
            self.say(&format!("{}: {}", skipped.agent, skipped.why));
            let kind = self.record(&mut event, None);
            return self.done(event, kind, Vec::new(), 0);
        };
        self.refused(Error::new(kind, skipped.why.clone()), event)
    }

    fn not_started(&mut self, agent: &str) -> AgentResult {
        let mut event = self.event(agent);
        event.outcome = Outcome::NotStarted;
        event.note = Some("the run was interrupted before its turn".to_string());
        let kind = self.record(&mut event, Some(Kind::Interrupted));
        self.done(event, kind, Vec::new(), 0)
    }

    fn unchanged(&mut self, step: &Step) -> AgentResult {
        let mut event = self.event(&step.agent);
        event.outcome = Outcome::Unchanged;
        self.say(&format!("{}: already as it should be", step.agent));
        let kind = self.record(&mut event, None);
        self.done(event, kind, Vec::new(), 0)
    }

    /// Records and reports an agent that was not changed, for this reason.
    fn refused(&mut self, error: Error, mut event: Event) -> AgentResult {
        event.outcome = match error.kind() {
            Kind::Busy | Kind::Integrity | Kind::Conflict => Outcome::Refused,
            _ => Outcome::Failed,
        };
        event.note = Some(error.to_string());
        event.after = None;
        self.say(&format!(
            "{}: {} — {error}",
            event.agent,
            event.outcome.word()
        ));
        let hints = error.hints().to_vec();
        let kind = self.record(&mut event, Some(Kind::Partial.worst(error.kind())));
        self.done(event, kind, hints, 0)
    }

    /// Records how an agent ended; a failure to do so is part of its result.
    fn record(&mut self, event: &mut Event, kind: Option<Kind>) -> Option<Kind> {
        let Err(error) = self.engine.record(event.clone()) else {
            return kind;
        };
        let note = format!("not recorded: {error}");
        self.say(&format!("{}: {note}", event.agent));
        event.note = Some(match event.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note,
        });
        Some(kind.unwrap_or(Kind::Partial).worst(error.kind()))
    }

    fn done(
        &mut self,
        event: Event,
        kind: Option<Kind>,
        hints: Vec<String>,
        scratch_lines: u64,
    ) -> AgentResult {
        let result = AgentResult {
            agent: event.agent,
            outcome: event.outcome,
            kind,
            note: event.note,
            hints,
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

    /// Says what went wrong beside the agents, and remembers it for the report.
    fn trouble(&mut self, error: Error) {
        if !self.trouble.contains(&error) {
            self.say(error.message());
            self.trouble.push(error);
        }
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
    displaced: Displaced,
    scratch_lines: u64,
}

pub(super) fn run_id() -> String {
    // The random name has 32 digits behind its prefix; eight are enough here.
    durable::random_name().map_or_else(|_| "00000000".to_string(), |name| name[10..18].to_string())
}

fn millis(began: Instant, now: Instant) -> u64 {
    now.duration_since(began).as_millis() as u64
}
