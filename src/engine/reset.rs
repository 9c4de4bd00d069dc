//! Applying a plan: archive, replace, verify, record. The only code that changes
//! agents.
//!
//! For each agent, under its lock:
//!
//! 1. settle what an interrupted run left (its transaction record names it);
//! 2. read the memory and write its entry, both in one pass; the entry is on
//!    the disk before anything else happens;
//! 3. write the transaction record; build the new file; put it in the memory's
//!    place, which displaces whatever really stands there; mark that in the
//!    record;
//! 4. settle the displaced file: what a late writer added gets an entry of its
//!    own, then it is removed; while a writer still has it open, other agents
//!    go on;
//! 5. read back, record in the ledger, end the transaction.
//!
//! Agents take these steps together, a batch at a time: what one step changed is
//! flushed to the disk for all of them at once, before any of them takes the
//! next. The flushes are the order that a power cut cannot break:
//!
//! | on the disk | before |
//! |---|---|
//! | content of the entries | they get their names |
//! | names of the entries, transaction records | anything in an agent's folder |
//! | content of the new files | they take the memories' places |
//! | the exchange | the mark that tells of it |
//! | the mark | a displaced file is settled |
//! | its removal, the ledger's record | the transaction record goes |

mod batch;
mod intake;
mod recover;
mod report;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use recover::Displaced;
pub use recover::UNCLAIMED;
pub use report::{AgentResult, Progress, Report, Stage};

use super::ledger::{Act, Event, Outcome};
use super::lock::Lock;
use super::plan::{EQUAL, Plan, Skipped, Step};
use super::{Engine, Trigger};
use crate::baseline::Shelf;
use crate::config::{Agent, Place};
use crate::digest::Digest;
use crate::durable;
use crate::error::{Error, Kind};
use crate::transport::Folder;

/// How many agents are flushed together. Each has half a dozen files open, of
/// the 1,024 that a process commonly may.
const BATCH: usize = 64;

/// An agent that is to have its turn.
struct Waiting<'e> {
    step: &'e Step,
    lock: Option<Lock>,
    attempts: usize,
}

/// An agent whose turn it is.
struct Turn<'e> {
    waiting: Waiting<'e>,
    agent: &'e Agent,
    folder: Box<dyn Folder>,
    event: Event,
    began: Instant,
}

impl Turn<'_> {
    fn note(&mut self, note: &str) {
        self.event.note = Some(match self.event.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note.to_string(),
        });
    }

    /// Its event before anything was seen.
    fn fresh(run: &Run<'_>, step: &Step) -> Event {
        Event {
            undoes: step.undo.as_ref().map(|undo| undo.run.clone()),
            ..run.event(&step.agent)
        }
    }
}

/// A turn whose memory was replaced and whose displaced files are not all
/// settled yet.
struct Replaced<'e> {
    turn: Turn<'e>,
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
    _lock: Option<Lock>,
}

struct Run<'a> {
    engine: &'a Engine,
    plan: &'a Plan,
    id: String,
    bound: bool,
    cancel: &'a AtomicBool,
    trouble: Vec<Error>,
    shelf: Shelf<'a>,
    /// Baseline versions that this run has begun to keep.
    drafted: HashSet<Digest>,
    /// Those who wait for their turn, and those that wait for late writers.
    queue: VecDeque<Waiting<'a>>,
    open: Vec<Replaced<'a>>,
    ended: Vec<Ended>,
    results: Vec<AgentResult>,
    /// Lines that are not in `reset.log` yet.
    lines: Vec<String>,
    progress: &'a mut dyn FnMut(Progress),
}

impl Engine {
    /// Applies a plan. With `bound`, an agent whose memory, baseline or boundary
    /// is no longer what the plan saw is refused; without, it is done as it is
    /// found. When `cancel` is set, the agents in hand are finished and the rest
    /// is not started.
    pub fn apply(
        &self,
        plan: &Plan,
        bound: bool,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Report {
        let began = self.clock().instant();
        let waiting = |step| Waiting {
            step,
            lock: None,
            attempts: 0,
        };
        let mut run = Run {
            engine: self,
            plan,
            id: run_id(),
            bound,
            cancel,
            trouble: Vec::new(),
            shelf: Shelf::new(&self.config().general),
            drafted: HashSet::new(),
            queue: plan.steps.iter().map(waiting).collect(),
            open: Vec::new(),
            ended: Vec::new(),
            results: Vec::new(),
            lines: Vec::new(),
            progress,
        };
        run.sweep();
        run.settle_skipped();
        for skipped in plan.skipped.chunks(BATCH) {
            for skipped in skipped {
                run.skip(skipped);
            }
            run.record();
        }
        while !run.queue.is_empty() {
            if run.is_cancelled() {
                run.not_started();
            } else {
                run.batch();
            }
            run.record();
        }
        while !run.open.is_empty() {
            run.wait();
        }
        run.finish(began)
    }
}

impl Run<'_> {
    /// Records everybody whose turn is over, ends their transactions, and tells
    /// how they ended.
    fn record(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        let events: Vec<Event> = ended.iter().map(|ended| ended.event.clone()).collect();
        let failed = self.engine.record_all(events).err();
        for mut ended in ended {
            match (&failed, &ended.record) {
                (None, Some(record)) => self.end_transaction(record),
                (None, None) => {}
                (Some(error), _) => self.not_recorded(&mut ended, error),
            }
            self.done(ended);
        }
        self.write_lines();
    }

    /// What becomes of an agent that the ledger does not know of.
    fn not_recorded(&mut self, ended: &mut Ended, error: &Error) {
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
        self.say(&line);
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
        (self.progress)(Progress::Done(result.clone()));
        self.results.push(result);
    }

    /// What comes after the last agent: retention, and the report.
    fn finish(mut self, began: Instant) -> Report {
        let plan = self.plan;
        let everybody = plan.steps.len() + plan.skipped.len() == self.engine.config().agents.len();
        if everybody && plan.act == Act::Reset {
            self.tell_of_unclaimed();
        }
        let places = plan.steps.iter().enumerate();
        let places: HashMap<&str, usize> =
            places.map(|(at, step)| (step.agent.as_str(), at)).collect();
        let place = |result: &AgentResult| places.get(result.agent.as_str()).copied();
        self.results
            .sort_by_key(|result| place(result).unwrap_or(usize::MAX));
        // Agents that this version cannot reach at all keep nothing else from
        // its end.
        let remote = |result: &AgentResult| {
            let agent = self.engine.config().agent(&result.agent);
            agent.is_some_and(|agent| matches!(agent.place, Place::Remote { .. }))
        };
        let failed = |result: &AgentResult| result.kind.is_some() && !remote(result);
        let clean = self.trouble.is_empty() && !self.results.iter().any(failed);
        let retired = match everybody && plan.act == Act::Reset && clean {
            true => self.retire(),
            false => Vec::new(),
        };
        let mut report = Report {
            run: self.id.clone(),
            act: plan.act,
            results: std::mem::take(&mut self.results),
            trouble: std::mem::take(&mut self.trouble),
            retired,
            head: self.engine.ledger_head(),
            duration_ms: 0,
        };
        report.duration_ms = millis(began, self.engine.clock().instant());
        self.say(&format!(
            "run {} ended: {} ok, {} unchanged, {} not; ledger head {}:{}",
            report.run,
            report.count(Outcome::Ok),
            report.count(Outcome::Unchanged),
            report.results.len() - report.count(Outcome::Ok) - report.count(Outcome::Unchanged),
            report.head.0,
            report.head.1
        ));
        self.write_lines();
        report
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
        let now = || self.engine.retention_after(&HashSet::new());
        let unseen = self.plan.is_unseen().then(now);
        let Some(planned) = self.plan.retention.as_ref().or(unseen.as_ref()) else {
            return Vec::new();
        };
        let (gone, failed) = match self.engine.retire(&self.id, planned) {
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
    fn settle_skipped(&mut self) {
        let left = match self.engine.transactions() {
            Ok(left) => left,
            Err(error) => return self.trouble(error),
        };
        let names: HashSet<&str> = left.iter().map(|(agent, _)| agent.as_str()).collect();
        for skipped in &self.plan.skipped {
            if skipped.kind == Some(Kind::Busy) || !names.contains(skipped.agent.as_str()) {
                continue;
            }
            let settled = self.engine.agent(&skipped.agent).and_then(|agent| {
                let _lock = self.lock(agent)?;
                self.recover(agent)
            });
            if let Err(error) = settled {
                self.trouble(error.context(&skipped.agent));
            }
        }
    }

    fn skip(&mut self, skipped: &Skipped) {
        match skipped.kind {
            Some(kind) => self.refused(
                Error::new(kind, skipped.why.clone()),
                self.event(&skipped.agent),
                None,
            ),
            None => {
                self.say(&format!("{}: {}", skipped.agent, skipped.why));
                let note = Some(skipped.why.clone());
                self.left_alone(&skipped.agent, Outcome::Unchanged, note, None, None);
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    fn not_started(&mut self) {
        while let Some(waiting) = self.queue.pop_front() {
            let note = Some("the run was interrupted before its turn".to_string());
            let kind = Some(Kind::Interrupted);
            self.left_alone(&waiting.step.agent, Outcome::NotStarted, note, kind, None);
        }
    }

    fn unchanged(&mut self, step: &Step, lock: Option<Lock>) {
        self.say(&format!("{}: {EQUAL}", step.agent));
        let note = Some(EQUAL.to_string());
        self.left_alone(&step.agent, Outcome::Unchanged, note, None, lock);
    }

    /// Ends an agent of which nothing was asked.
    fn left_alone(
        &mut self,
        agent: &str,
        outcome: Outcome,
        note: Option<String>,
        kind: Option<Kind>,
        lock: Option<Lock>,
    ) {
        self.ended.push(Ended {
            event: Event {
                outcome,
                note,
                ..self.event(agent)
            },
            kind,
            hints: Vec::new(),
            scratch_lines: 0,
            record: None,
            _lock: lock,
        });
    }

    /// Ends an agent that was not changed, for this reason.
    fn refused(&mut self, error: Error, event: Event, lock: Option<Lock>) {
        let event = Event {
            outcome: match error.kind() {
                Kind::Busy | Kind::Integrity | Kind::Conflict => Outcome::Refused,
                _ => Outcome::Failed,
            },
            note: Some(error.to_string()),
            after: None,
            ..event
        };
        self.say(&format!(
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

    fn at(&mut self, step: &Step, stage: Stage) {
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
        self.lines.push(line.clone());
        (self.progress)(Progress::Line(line));
    }

    fn write_lines(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if let Err(error) = super::log::append(self.engine.archive(), &lines) {
            (self.progress)(Progress::Line(format!("{error}")));
        }
    }
}

pub(super) fn run_id() -> String {
    // The random name has 32 digits behind its prefix; eight are enough here.
    durable::random_name().map_or_else(|_| "00000000".to_string(), |name| name[10..18].to_string())
}

fn millis(began: Instant, now: Instant) -> u64 {
    now.duration_since(began).as_millis() as u64
}
