//! A plan: what a reset or an undo would do to which agents, bound to what was
//! seen when it was made. Making one changes nothing.

use std::sync::Mutex;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use super::hosts;
use super::judge::MAX_WINDOW_BYTES;
use super::ledger::{FileState, Operation};
use super::memory::{Boundary, Rule};
use super::observe::{Observation, ObservedAgent, Protection, host, way};
use super::retention::RetentionScope;
use super::sharing::sharing_error;
use super::state::State;
use super::undo::{self, AgentRecords, Replacement, UndoRecords};
use super::{Engine, Retention, weaker};
use crate::archive::EntryKind;
use crate::baseline::BaselineCache;
use crate::config::Agent;
use crate::digest::Digest;
use crate::error::{Error, Kind, Result};
use crate::transport::{SpecialFile, SwapForecast};

/// Why there is nothing to do.
pub(super) const EQUAL: &str = "already equal to its baseline";

/// Why a protected agent is refused.
pub const READ_ONLY: &str = "protected as read-only";

/// What would happen to one memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Archive what is there and put the new content in its place.
    Replace,
    /// There is no file: make one.
    Create,
    /// Archive what is there and leave no file: the undo of a creation.
    Remove,
    /// Archive what is there and put back what an earlier run displaced and kept.
    PutBack,
}

/// What a step is bound to. Scratch that the agent adds meanwhile is not part
/// of it: an agent that never stops writing can still be reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Where the memory is: the way to its host, if it is on one, and its path.
    pub place: String,
    /// Digest of the content to be installed; zeros when none is.
    pub content: Digest,
    /// How the boundary was found, or why there is none.
    pub rule: String,
    /// Digest of what stands above the boundary.
    pub above: Digest,
}

impl Bound {
    pub(super) fn new(agent: &Agent, content: Digest, memory: &Memory<'_>) -> Bound {
        let (rule, above) = match memory {
            Memory::Absent => ("absent".to_string(), Digest::ZERO),
            Memory::Odd => ("odd".to_string(), Digest::ZERO),
            Memory::File(None, _) => ("none".to_string(), Digest::ZERO),
            Memory::File(Some(found), head) => {
                let rule = match found.rule {
                    Rule::Intact => "intact".to_string(),
                    Rule::Behind(version) => format!("behind {version}"),
                    Rule::Aligned(version) => format!("aligned {version}"),
                };
                // An intact part is the baseline's, whatever its line end. A
                // plan keeps WINDOW bytes, a reset maybe more.
                let above = match found.rule {
                    Rule::Aligned(_) => {
                        Digest::of(&head[..found.offset.min(head.len()).min(MAX_WINDOW_BYTES)])
                    }
                    _ => Digest::ZERO,
                };
                (rule, above)
            }
        };
        let path = agent.place.memory().display();
        Bound {
            place: match way(agent) {
                Some(way) => format!("{way} {path}"),
                None => path.to_string(),
            },
            content,
            rule,
            above,
        }
    }
}

/// What stands at a memory's name, as far as a plan is bound to it.
pub(super) enum Memory<'a> {
    Absent,
    Odd,
    File(Option<Boundary>, &'a [u8]),
}

/// What a step of an undo puts back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoOf {
    /// The run that is undone.
    pub run: String,
    /// When it was.
    pub time: DateTime<FixedOffset>,
    /// Whether the agent has written since.
    pub written_since: bool,
    /// What to do with what it wrote.
    pub mode: UndoMode,
}

/// What an undo does with what the agent wrote since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UndoMode {
    /// Refuse.
    #[default]
    Refuse,
    /// Append its new notes below the restored file.
    Append,
    /// Archive them and put the restored file alone.
    Overwrite,
}

/// What to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoTarget {
    /// The last reset of each of these agents that was not undone yet.
    Agents(Vec<String>),
    /// The last undo of each of these agents: takes it back.
    Redo(Vec<String>),
    /// A run, for every agent that it changed.
    Run(String),
}

impl Observation {
    /// Whether a reset displaces scratch alone, or nothing. A plan of anything else has to
    /// be typed.
    pub fn is_intact(&self) -> bool {
        let boundary = self.content.as_ref().and_then(|content| content.boundary);
        self.absent || boundary.is_some_and(|boundary| !boundary.drifted())
    }
}

/// Why an agent that is protected as read-only is not changed.
fn read_only_error() -> Error {
    Error::new(Kind::Conflict, READ_ONLY).hint(
        "remove protect=readonly from its section of the config, or plan it in the console with \
         read-only switched off",
    )
}

impl UndoTarget {
    /// Why an agent without a matching record is skipped.
    fn nothing(&self) -> &'static str {
        match self {
            UndoTarget::Redo(_) => "there is no undo to take back",
            UndoTarget::Agents(_) | UndoTarget::Run(_) => "the ledger has nothing to undo",
        }
    }
}

/// One agent of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The agent's name.
    pub agent: String,
    /// Where it lives.
    pub host: String,
    /// The state it was seen in.
    pub state: State,
    /// What would happen.
    pub action: Action,
    /// What this step is bound to.
    pub bound: Bound,
    /// What would be archived; nothing when there is nothing of the agent's.
    pub entry: Option<EntryKind>,
    /// Lines below the boundary that would be archived.
    pub scratch_lines: u64,
    /// Bytes that would be archived.
    pub archive_bytes: u64,
    /// Lines that the agent added above the boundary.
    pub added: usize,
    /// Lines that it removed there.
    pub removed: usize,
    /// Size of the new content in bytes.
    pub new_size: u64,
    /// Whether the confirmation has to be typed, whatever the plan's size.
    pub typed: bool,
    /// How the fleet protects the agent.
    #[serde(default)]
    pub protect: Protection,
    /// What is worth knowing before it is confirmed.
    pub notes: Vec<String>,
    /// What it promises less than on this machine.
    #[serde(default)]
    pub weaker: Vec<String>,
    /// What an undo puts back; none in a reset.
    pub undo: Option<UndoOf>,
}

impl Step {
    /// Whatever is there is archived and replaced.
    fn unseen(agent: &Agent) -> Step {
        Step {
            agent: agent.name.clone(),
            host: host(agent),
            state: State::Loading,
            action: Action::Replace,
            bound: Bound {
                place: String::new(),
                content: Digest::ZERO,
                rule: String::new(),
                above: Digest::ZERO,
            },
            entry: None,
            scratch_lines: 0,
            archive_bytes: 0,
            added: 0,
            removed: 0,
            new_size: 0,
            typed: false,
            protect: agent.protect.into(),
            notes: Vec::new(),
            weaker: Vec::new(),
            undo: None,
        }
    }
}

/// An agent that was asked for and is not in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The agent's name.
    pub agent: String,
    /// The state it was seen in.
    pub state: State,
    /// Why, as a sentence.
    pub why: String,
    /// The kind of the refusal; none when there is simply nothing to do.
    pub kind: Option<Kind>,
    /// What can be done about it.
    #[serde(default)]
    pub hints: Vec<String>,
}

impl Skipped {
    /// An agent that is refused.
    fn refused(agent: &Agent, state: State, error: &Error) -> Skipped {
        Skipped {
            agent: agent.name.clone(),
            state,
            why: error.to_string(),
            kind: Some(error.kind()),
            hints: error.hints().to_vec(),
        }
    }

    /// The refusal, if it is one.
    pub(super) fn error(&self) -> Option<Error> {
        let error = Error::new(self.kind?, &self.why);
        let hints = self.hints.iter();
        Some(hints.fold(error, |error, hint| error.hint(hint)))
    }

    /// An agent that there is nothing to do for.
    fn idle(agent: &Agent, state: State) -> Skipped {
        Skipped {
            agent: agent.name.clone(),
            state,
            why: EQUAL.to_string(),
            kind: None,
            hints: Vec::new(),
        }
    }
}

/// What would be done, to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Reset or undo.
    pub act: Operation,
    /// Names this plan: the digest of what it is bound to, shortened. Empty when
    /// nothing was looked at.
    pub hash: String,
    /// When it was made.
    pub made: DateTime<FixedOffset>,
    /// The agents that would be changed.
    pub steps: Vec<Step>,
    /// Those that would not, and why.
    pub skipped: Vec<Skipped>,
    /// Whether the whole fleet was asked for.
    pub whole_fleet: bool,
    /// What would be deleted from the archive when the run has ended.
    #[serde(default)]
    pub retention: Option<Retention>,
}

impl Plan {
    /// Its agents, the skipped ones last.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        let steps = self.steps.iter().map(|step| step.agent.as_str());
        steps.chain(self.skipped.iter().map(|skipped| skipped.agent.as_str()))
    }

    fn new(act: Operation, engine: &Engine, steps: Vec<Step>, skipped: Vec<Skipped>) -> Plan {
        let mut text = format!("{act:?}\n");
        for step in &steps {
            let Bound {
                place,
                content,
                rule,
                above,
            } = &step.bound;
            let agent = &step.agent;
            text.push_str(&format!("{agent}\0{place}\0{content}\0{rule}\0{above}\n"));
        }
        Plan {
            act,
            hash: Digest::of(text.as_bytes()).short(12),
            made: engine.clock().now(),
            whole_fleet: false,
            retention: None,
            steps,
            skipped,
        }
    }

    /// Whether nothing was looked at.
    pub fn is_unseen(&self) -> bool {
        self.hash.is_empty()
    }

    /// What the steps promise less than on this machine, each once.
    pub fn weaker(&self) -> Vec<&str> {
        let mut told = Vec::new();
        for text in self.steps.iter().flat_map(|step| &step.weaker) {
            if !told.contains(&text.as_str()) {
                told.push(text);
            }
        }
        told
    }

    /// Whether this plan answers to a hash, which may be shortened to eight
    /// digits.
    pub fn answers_to(&self, hash: &str) -> bool {
        hash.len() >= 8 && self.hash.starts_with(&hash.to_ascii_lowercase())
    }
}

impl Engine {
    /// What a reset of these agents would do. With `unlocked`, agents that are
    /// protected as read-only are planned like others.
    ///
    /// # Errors
    /// An agent that is not configured.
    pub fn plan_reset(&self, names: &[String], unlocked: bool) -> Result<Plan> {
        self.look_for_sharing();
        let shelf = Mutex::new(BaselineCache::new(self.config()));
        let agents = unique(names).map(|name| self.agent(name));
        let agents: Vec<&Agent> = agents.collect::<Result<_>>()?;
        let plan = |agent| {
            let seen = self.see(agent, &shelf);
            let state = seen.observation.state;
            match self.reset_step(agent, &seen, unlocked) {
                Ok(Some(step)) => Ok(step),
                Ok(None) => Err(Skipped::idle(agent, state)),
                Err(error) => Err(Skipped::refused(agent, state, &error)),
            }
        };
        let mut steps = Vec::new();
        let mut skipped = Vec::new();
        for planned in each(self, &agents, plan) {
            match planned {
                Ok(step) => steps.push(step),
                Err(skip) => skipped.push(skip),
            }
        }
        let count = steps.len() + skipped.len();
        let everybody = count == self.config().agents.len();
        let plan = Plan {
            whole_fleet: everybody && count > 1,
            ..Plan::new(Operation::Reset, self, steps, skipped)
        };
        Ok(self.with_retention(plan))
    }

    /// A plan that also says what is deleted from the archive afterwards.
    fn with_retention(&self, mut plan: Plan) -> Plan {
        let retention = self.retention_after(&RetentionScope::of_plan(&plan));
        if !retention.entries.is_empty() {
            let entries = retention.entries.iter().map(|it| it.to_string_lossy());
            let text: Vec<_> = [plan.hash.as_str().into()]
                .into_iter()
                .chain(entries)
                .collect();
            plan.hash = Digest::of(text.join("\0").as_bytes()).short(12);
        }
        plan.retention = Some(retention);
        plan
    }

    /// A plan for whoever resets what there is, as timers do: no memory is read
    /// before its agent's turn. It says who would have a turn, not what would be
    /// done, so it cannot be applied as bound.
    ///
    /// # Errors
    /// An agent that is not configured.
    pub fn plan_unseen(&self, names: &[String], unlocked: bool) -> Result<Plan> {
        let mut steps = Vec::new();
        let mut skipped = Vec::new();
        for name in unique(names) {
            let agent = self.agent(name)?;
            let protect = Protection::from(agent.protect);
            let refused = match self.shares_memory(agent) {
                Some(other) => Some(sharing_error(&other)),
                None if protect == Protection::ReadOnly && !unlocked => Some(read_only_error()),
                _ => None,
            };
            match refused {
                Some(error) => skipped.push(Skipped::refused(agent, State::Error, &error)),
                None => steps.push(Step::unseen(agent)),
            }
        }
        Ok(Plan {
            hash: String::new(),
            ..Plan::new(Operation::Reset, self, steps, skipped)
        })
    }

    /// None where there is nothing to do.
    fn reset_step(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        unlocked: bool,
    ) -> Result<Option<Step>> {
        if let Some(block) = &seen.observation.block {
            return Err(block.error(&block.why));
        }
        if seen.observation.state == State::Clean {
            return Ok(None);
        }
        // Nothing is replaced that cannot be recorded.
        if let Some(why) = &seen.observation.ledger_error {
            let error = self.ledger_head().err();
            return Err(error.unwrap_or_else(|| Error::new(Kind::Host, why)));
        }
        if seen.observation.protect == Protection::ReadOnly && !unlocked {
            return Err(read_only_error());
        }
        let Some(baseline) = &seen.baseline else {
            return Err(Error::new(Kind::Internal, "its baseline was not read"));
        };
        let mut step = self.step(agent, seen, baseline.digest())?;
        step.new_size = baseline.bytes().len() as u64;
        if step.state == State::Drifted {
            step.notes
                .push("its edited rules are archived whole, then gone from the memory".to_string());
        }
        if step.state == State::NoSep {
            step.notes
                .push("no boundary: the whole file is archived, then replaced".to_string());
        }
        Ok(Some(step))
    }

    /// A step that installs `content`, with the figures of what is there now.
    fn step(&self, agent: &Agent, seen: &ObservedAgent, content: Digest) -> Result<Step> {
        let found = seen.observation.content.as_ref();
        let memory = match (&seen.odd, found) {
            (Some(_), _) => Memory::Odd,
            (None, Some(found)) => Memory::File(found.boundary, &seen.head),
            (None, None) if seen.observation.absent => Memory::Absent,
            (None, None) => {
                let why = seen.observation.why.clone();
                return Err(match &seen.observation.block {
                    Some(block) => block.error(why),
                    None => Error::new(Kind::Host, why),
                });
            }
        };
        let intact = found
            .and_then(|found| found.boundary)
            .is_some_and(|b| !b.drifted());
        let (action, entry) = match memory {
            Memory::Absent => (Action::Create, None),
            Memory::Odd => (Action::Replace, Some(EntryKind::Odd)),
            Memory::File(..) if !intact => (Action::Replace, Some(EntryKind::FullBackup)),
            Memory::File(..) => {
                let any = found.is_some_and(|found| found.scratch_bytes > 0);
                (Action::Replace, any.then_some(EntryKind::Scratch))
            }
        };
        let boundary = found.and_then(|found| found.boundary);
        let mut notes = Vec::new();
        let folder = self.open(agent)?;
        let mut weaker = weaker::accepted(agent, folder.as_ref())?;
        if agent.place.host().is_some() {
            weaker.insert(0, weaker::SFTP_DEGRADATIONS.to_string());
        }
        let outlook = folder.outlook();
        weaker.extend(weaker::in_place_cost(agent, &outlook)?);
        if let SwapForecast::Refused(error) = outlook {
            return Err(error);
        }
        notes.extend(seen.odd.as_ref().map(SpecialFile::in_place_of_memory));
        if let Some(boundary) = boundary.filter(|boundary| boundary.line > 0) {
            notes.push(format!(
                "separator at line {}, {} of {}",
                boundary.line, boundary.nth, boundary.of
            ));
        }
        Ok(Step {
            agent: agent.name.clone(),
            host: host(agent),
            state: seen.observation.state,
            action,
            bound: Bound::new(agent, content, &memory),
            entry,
            scratch_lines: found.map_or(0, |found| found.scratch_lines),
            archive_bytes: match entry {
                Some(EntryKind::Scratch) => found.map_or(0, |found| found.scratch_bytes),
                Some(EntryKind::FullBackup) => found.map_or(0, |found| found.size),
                _ => 0,
            },
            added: boundary.map_or(0, |boundary| boundary.added),
            removed: boundary.map_or(0, |boundary| boundary.removed),
            new_size: 0,
            typed: !seen.observation.is_intact() || seen.observation.protect == Protection::Typed,
            protect: agent.protect.into(),
            notes,
            weaker,
            undo: None,
        })
    }

    /// What an undo would do.
    ///
    /// # Errors
    /// An agent that is not configured, a run that is not in the ledger, or a
    /// ledger that cannot be read.
    pub fn plan_undo(&self, target: &UndoTarget, mode: UndoMode, unlocked: bool) -> Result<Plan> {
        let (agents, records) = self.undo_records(target)?;
        let shelf = Mutex::new(BaselineCache::new(self.config()));
        let plan = |agent| {
            let seen = self.see(agent, &shelf);
            let of_agent = records.of(&agent.name);
            let step = match of_agent {
                Some(records) => self.undo_step(agent, &seen, records, mode, unlocked),
                None => Err(Error::new(Kind::Conflict, target.nothing())),
            };
            let step = step.map(|mut step| {
                let passed_over = of_agent.and_then(|it| it.passed_over.as_ref());
                if let (UndoTarget::Agents(_), Some(run)) = (target, passed_over) {
                    let note = format!("run {run} was undone already; this goes further back");
                    step.notes.push(note);
                }
                step
            });
            step.map_err(|error| Skipped::refused(agent, seen.observation.state, &error))
        };
        let mut steps = Vec::new();
        let mut skipped = Vec::new();
        for planned in each(self, &agents, plan) {
            match planned {
                Ok(step) => steps.push(step),
                Err(skip) => skipped.push(skip),
            }
        }
        let plan = Plan::new(Operation::Undo, self, steps, skipped);
        Ok(self.with_retention(plan))
    }

    /// The agents that an undo is about, and the records that it goes by.
    fn undo_records(&self, target: &UndoTarget) -> Result<(Vec<&Agent>, UndoRecords)> {
        let run = match target {
            UndoTarget::Agents(names) | UndoTarget::Redo(names) => {
                let agents = unique(names).map(|name| self.agent(name));
                let agents: Vec<&Agent> = agents.collect::<Result<_>>()?;
                let redo = matches!(target, UndoTarget::Redo(_));
                let records = UndoRecords::of_last(self, &agents, redo)?;
                return Ok((agents, records));
            }
            UndoTarget::Run(run) => run,
        };
        let records = UndoRecords::of_run(self, run)?;
        let agents = records.agents().map(|name| self.agent(name));
        let agents: Vec<&Agent> = agents.collect::<Result<_>>()?;
        if agents.is_empty() {
            let message = format!("the ledger has no run {run} that changed anything");
            let log = self.command_line("log");
            return Err(Error::new(Kind::User, message).hint(format!("`{log}` lists the runs")));
        }
        Ok((agents, records))
    }

    fn undo_step(
        &self,
        agent: &Agent,
        seen: &ObservedAgent,
        records: &AgentRecords,
        mode: UndoMode,
        unlocked: bool,
    ) -> Result<Step> {
        if seen.observation.protect == Protection::ReadOnly && !unlocked {
            return Err(read_only_error());
        }
        if let Some(block) = seen
            .observation
            .block
            .as_ref()
            .filter(|block| block.kind == Kind::Busy)
        {
            return Err(block.error(&block.why));
        }
        let source = undo::source(self, agent, records)?;
        let mut step = self.step(agent, seen, source.digest())?;
        let now = match (&seen.observation.content, step.action) {
            (Some(content), _) => Some(FileState::File {
                sha256: content.sha256,
                size: content.size,
                lines: content.lines,
            }),
            (None, Action::Create) => Some(FileState::Absent),
            (None, _) => seen.odd.clone().map(FileState::Odd),
        };
        let written_since = records.written_since(agent, now.as_ref());
        match (&source.replacement, source.standing) {
            (Replacement::Kept { name, .. }, standing) => {
                step.action = Action::PutBack;
                if let FileState::Odd(odd) = standing {
                    step.notes.push(format!("puts back {odd}, kept as {name}"));
                }
            }
            (_, FileState::File { size, .. }) => step.new_size = size,
            _ => step.action = Action::Remove,
        }
        step.typed |= written_since && mode == UndoMode::Overwrite;
        if written_since && mode == UndoMode::Refuse {
            step.notes.push("the agent has written since".to_string());
        }
        step.undo = Some(UndoOf {
            run: records.record.what.run.clone(),
            time: records.record.time,
            written_since,
            mode,
        });
        Ok(step)
    }
}

/// Plans each of these; those of a host at the same time.
fn each<'a>(
    engine: &Engine,
    agents: &[&'a Agent],
    plan: impl Fn(&'a Agent) -> Result<Step, Skipped> + Sync,
) -> Vec<Result<Step, Skipped>> {
    let batch = |agents: &[&'a Agent]| hosts::map_parallel(agents.to_vec(), &plan);
    hosts::for_each_local_agent(engine, agents, &plan, batch)
}

/// Names in order, each once.
fn unique(names: &[String]) -> impl Iterator<Item = &str> {
    let mut seen = std::collections::HashSet::new();
    names
        .iter()
        .map(String::as_str)
        .filter(move |name| seen.insert(*name))
}
