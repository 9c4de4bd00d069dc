//! The ledger records that an undo depends on: the record of the undone run, and the related ones
//! after it. They are found by a scan from the ledger's last record backwards, and kept up to date
//! with records that are appended later.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};

use crate::base::error::{Error, Result};
use crate::config::Agent;
use crate::engine::context::Context;
use crate::store::address::RecordedAddress;
use crate::store::entries::EntryObject;
use crate::store::record::{FileState, LedgerPosition, LedgerRecord, Operation, RunEvent};
use crate::transport::ObjectId;

/// Up to this number of changes a search is evaluated after each one, and above it whenever the
/// number has doubled.
const MAX_EAGER_CHANGES: usize = 16;

/// The records that an undo depends on, by agent.
pub struct UndoRecords {
    agents: BTreeMap<String, AgentRecords>,
    /// The agents whose resets are all undone already, each with its last reset.
    undone_resets: BTreeMap<String, UndoneReset>,
    /// The agent of each entry in these records.
    agent_by_entry: HashMap<PathBuf, String>,
    /// The runs that later ones undid.
    undone_runs: HashSet<String>,
    /// Why older records cannot be read, if the search ended before a damaged segment.
    unread: Option<Error>,
    /// The position up to which the ledger was read.
    position: LedgerPosition,
}

/// A change to undo: its position, its record, and the newer run that the search skipped.
type FoundChange = (LedgerPosition, LedgerRecord, Option<String>);

/// A reset that was undone.
pub struct UndoneReset {
    /// Its run.
    pub run: String,
    /// The run that undid it.
    pub undone_by: String,
}

/// The records that an undo of one agent depends on.
#[derive(Clone)]
pub struct AgentRecords {
    /// The record of the undone run.
    pub record: LedgerRecord,
    /// The newest run that the search skipped, because it is undone already.
    pub skipped_run: Option<String>,
    /// That record and later ones of the same run, of its undos, and of their undos.
    related: Vec<LedgerRecord>,
    /// The runs of the related records.
    related_runs: HashSet<String>,
    /// The last run that changed the memory.
    last_change: String,
    /// The memory after the last change, for each address that the agent had.
    left_memories: Vec<LeftMemory>,
    /// What the undone run and each later run that was undone displaced, by run: an undo put it back.
    displaced: HashMap<String, DisplacedMemory>,
    /// The entries of these records that retention recorded for deletion, with the time and the
    /// run.
    retired_entries: HashMap<PathBuf, (DateTime<FixedOffset>, String)>,
}

/// A memory as the last change at its address left it.
#[derive(Clone)]
struct LeftMemory {
    address: RecordedAddress,
    state: Option<FileState>,
    /// Whether it holds notes that the agent wrote after the undone run: a later undo put them back
    /// or appended them.
    has_new_notes: bool,
}

/// A memory as a change displaced it.
#[derive(Clone)]
struct DisplacedMemory {
    state: Option<FileState>,
    /// Whether it holds notes that the agent wrote after the undone run.
    has_new_notes: bool,
}

impl LeftMemory {
    /// Whether the memory, with this state now, holds or held notes that the agent wrote after the
    /// undone run. A `now` of None is a state that no run leaves.
    fn has_written_since(&self, now: Option<&FileState>) -> bool {
        if self.has_new_notes {
            return true;
        }
        match (&self.state, now) {
            (Some(FileState::Absent), Some(FileState::Absent)) => false,
            (Some(FileState::Special(left)), Some(FileState::Special(now))) => left != now,
            (Some(left), Some(now)) => left.digest().is_none() || left.digest() != now.digest(),
            _ => true,
        }
    }
}

impl UndoRecords {
    /// Finds for each agent the last run that an undo (or, with `is_redo`, a redo) applies to.
    /// Undone runs are skipped, so a repeated undo goes further back. Records about another memory
    /// count only if there is none about the agent's own, so that the undo can refuse them.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn from_last_runs(
        context: &Context,
        agents: &[&Agent],
        is_redo: bool,
    ) -> Result<UndoRecords> {
        let mut back = context.ledger().scan_backwards()?;
        let searches = agents
            .iter()
            .map(|agent| (agent.name.as_str(), RunSearch::new(agent)));
        let mut searches: BTreeMap<&str, RunSearch<'_>> = searches.collect();
        let mut open = searches.len();
        while open > 0
            && let Some((position, record)) =
                back.next_readable(&mut |it| searches.contains_key(&*it.agent))?
        {
            let Some(search) = searches.get_mut(record.event.agent.as_str()) else {
                continue;
            };
            if !search.is_finished && record.event.has_changed_files() {
                search.add_change(position, &record.event, is_redo);
                open -= usize::from(search.is_finished);
            }
        }
        let unread = back.take_unread();
        let mut found = Vec::new();
        let mut undone_resets = BTreeMap::new();
        // Without older records an unfinished search has no result.
        let decided = searches
            .iter()
            .filter(|(_, search)| unread.is_none() || search.is_finished);
        for (name, search) in decided {
            if let Some(change) = search.chosen_change(is_redo) {
                let position = search.changes[change].position;
                let record = context.ledger().read_record(position)?;
                found.push((position, record, search.skipped_run(change)));
            } else if let Some(reset) = search.last_undone_reset() {
                undone_resets.insert((*name).to_string(), reset);
            }
        }
        let mut records = UndoRecords::new(context, found, back.end())?;
        records.undone_resets = undone_resets;
        records.unread = unread;
        Ok(records)
    }

    /// Finds the records of a run, for every agent whose memory it changed. If the run replaced a
    /// memory twice, its last change counts.
    ///
    /// # Errors
    /// As [`UndoRecords::from_last_runs`].
    pub fn from_run(context: &Context, run: &str) -> Result<UndoRecords> {
        UndoRecords::from_wanted_runs(context, |it, _| it == run, usize::MAX)
    }

    /// Finds the records of one run per agent; `runs` maps agents to runs.
    ///
    /// # Errors
    /// As [`UndoRecords::from_last_runs`].
    pub fn from_runs(context: &Context, runs: &BTreeMap<&str, &str>) -> Result<UndoRecords> {
        let is_wanted = |run: &str, agent: &str| runs.get(agent) == Some(&run);
        UndoRecords::from_wanted_runs(context, is_wanted, runs.len())
    }

    /// Finds the last change of each agent in a wanted run, for at most `max_agents` agents.
    fn from_wanted_runs(
        context: &Context,
        is_wanted: impl Fn(&str, &str) -> bool,
        max_agents: usize,
    ) -> Result<UndoRecords> {
        let mut back = context.ledger().scan_backwards()?;
        let mut found = Vec::new();
        let mut agents = HashSet::new();
        while found.len() < max_agents
            && let Some((position, record)) =
                back.next_readable(&mut |it| is_wanted(&it.run, &it.agent))?
        {
            if record.event.has_changed_files() && agents.insert(record.event.agent.clone()) {
                found.push((position, record, None));
            }
        }
        let mut records = UndoRecords::new(context, found, back.end())?;
        records.unread = back.take_unread();
        Ok(records)
    }

    /// Starts from one record.
    ///
    /// # Errors
    /// As [`UndoRecords::from_last_runs`].
    pub fn from_record(
        context: &Context,
        position: LedgerPosition,
        record: LedgerRecord,
    ) -> Result<UndoRecords> {
        UndoRecords::new(context, vec![(position, record, None)], position)
    }

    fn new(context: &Context, found: Vec<FoundChange>, end: LedgerPosition) -> Result<UndoRecords> {
        let first = found
            .iter()
            .map(|(position, ..)| *position)
            .min_by_key(|position| position.seq);
        let agents = found.into_iter().map(|(_, record, skipped_run)| {
            let agent = record.event.agent.clone();
            (agent, AgentRecords::new(record, skipped_run))
        });
        let mut records = UndoRecords {
            agents: agents.collect(),
            undone_resets: BTreeMap::new(),
            agent_by_entry: HashMap::new(),
            undone_runs: HashSet::new(),
            unread: None,
            position: first.unwrap_or(end),
        };
        for (name, agent) in &records.agents {
            let written = agent.record.event.entries();
            let named = written.map(|it| (it.path.clone(), name.clone()));
            records.agent_by_entry.extend(named);
        }
        records.catch_up(context)?;
        Ok(records)
    }

    /// Reads the records that were appended to the ledger since the last call.
    ///
    /// # Errors
    /// As [`UndoRecords::from_last_runs`].
    pub fn catch_up(&mut self, context: &Context) -> Result<()> {
        let ledger = context.ledger();
        // Few runs are undone; what the others displaced would fill the memory.
        self.undone_runs.extend(ledger.undone_runs(self.position)?);
        let Some(mut scan) = ledger.scan(self.position)? else {
            return Ok(());
        };
        let zone = context.clock().zone();
        while let Some(mut record) = scan.next_record()? {
            record.time = zone.at(record.time);
            let event = &record.event;
            for path in &event.retired_entries {
                let agent = self.agent_by_entry.get(path);
                if let Some(agent) = agent.and_then(|agent| self.agents.get_mut(agent)) {
                    let by = (record.time, event.run.clone());
                    agent.retired_entries.insert(path.clone(), by);
                }
            }
            let name = &event.agent;
            if let Some(agent) = self.agents.get_mut(name)
                && agent.track_if_related(&record, &self.undone_runs)
            {
                let named = event.entries().map(|it| (it.path.clone(), name.clone()));
                self.agent_by_entry.extend(named);
                agent.related.push(record);
            }
        }
        self.position = scan.position();
        Ok(())
    }

    /// Returns why records older than those that were searched cannot be read, if that is so: a
    /// segment of the ledger is damaged or missing.
    pub fn unread(&self) -> Option<&Error> {
        self.unread.as_ref()
    }

    /// Returns the agents that have a run to undo.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Returns the records of an agent, if it has a run to undo.
    pub fn get(&self, agent: &str) -> Option<&AgentRecords> {
        self.agents.get(agent)
    }

    /// Returns the last reset of an agent whose resets are all undone already.
    pub fn undone_reset(&self, agent: &str) -> Option<&UndoneReset> {
        self.undone_resets.get(agent)
    }
}

/// Returns the run that undid each undone run, unless that undo was undone in turn. The changes are
/// newest first, each with the run that it undid.
fn undoing_runs<'a>(
    changes: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> HashMap<&'a str, &'a str> {
    let mut undone_by = HashMap::new();
    for (run, undone_run) in changes {
        if let Some(undone_run) = undone_run
            && !undone_by.contains_key(run)
        {
            undone_by.entry(undone_run).or_insert(run);
        }
    }
    undone_by
}

impl AgentRecords {
    fn new(record: LedgerRecord, skipped_run: Option<String>) -> AgentRecords {
        let displaced = DisplacedMemory {
            state: record.event.change.before.clone(),
            has_new_notes: false,
        };
        AgentRecords {
            left_memories: vec![LeftMemory {
                address: RecordedAddress::from_event(&record.event),
                state: record.event.change.after.clone(),
                has_new_notes: false,
            }],
            displaced: HashMap::from([(record.event.run.clone(), displaced)]),
            related_runs: HashSet::from([record.event.run.clone()]),
            last_change: record.event.run.clone(),
            related: vec![record.clone()],
            retired_entries: HashMap::new(),
            record,
            skipped_run,
        }
    }

    /// Updates the states with a later record, and returns whether it belongs to the run, its undos
    /// or their undos.
    fn track_if_related(&mut self, record: &LedgerRecord, undone_runs: &HashSet<String>) -> bool {
        let event = &record.event;
        if record.seq <= self.record.seq {
            return false;
        }
        if event.has_changed_memory() {
            self.track_change(event, undone_runs.contains(&event.run));
        }
        if event.has_changed_files() {
            self.last_change.clone_from(&event.run);
        }
        if event.late_writes().next().is_some()
            && event.run != self.record.event.run
            && let Some(displaced) = self.displaced.get_mut(&event.run)
        {
            displaced.has_new_notes = true;
        }
        if event
            .undone_run
            .as_ref()
            .is_some_and(|it| self.related_runs.contains(it))
        {
            self.related_runs.insert(event.run.clone());
        }
        self.related_runs.contains(&event.run)
    }

    /// Returns the time and the run of retention that deleted an entry of these records; None if
    /// the entry still exists.
    pub fn retired_by(
        &self,
        context: &Context,
        entry: &Path,
    ) -> Option<&(DateTime<FixedOffset>, String)> {
        let found = context.entries().probe(entry);
        let is_there = found.is_ok_and(|it| it != EntryObject::Absent);
        self.retired_entries.get(entry).filter(|_| !is_there)
    }

    /// Updates the left memory with a later change, which was undone in turn or not.
    fn track_change(&mut self, event: &RunEvent, is_undone: bool) {
        let address = RecordedAddress::from_event(event);
        let left = self.left_memories.iter().find(|it| it.address == address);
        let displaces_new_notes = event.change.before != Some(FileState::Absent)
            && left.is_none_or(|left| left.has_written_since(event.change.before.as_ref()));
        // An undo that displaces new notes may append them.
        let has_new_notes = event.undone_run.as_ref().is_some_and(|run| {
            let restored = self.displaced.get(run);
            restored.is_some_and(|it| it.has_new_notes)
                || displaces_new_notes && restored.is_none_or(|it| it.state != event.change.after)
        });
        if is_undone {
            let displaced = DisplacedMemory {
                state: event.change.before.clone(),
                has_new_notes: displaces_new_notes,
            };
            self.displaced.insert(event.run.clone(), displaced);
        }
        self.left_memories.retain(|it| it.address != address);
        self.left_memories.push(LeftMemory {
            address,
            state: event.change.after.clone(),
            has_new_notes,
        });
    }

    /// Whether the memory, with the state `now`, holds notes that the agent wrote after the undone
    /// run, or differs otherwise from what the last change of it left. Notes count however they came
    /// there: a later undo or redo may have put them back.
    pub fn has_written_since(&self, agent: &Agent, now: Option<&FileState>) -> bool {
        let mut newest_first = self.left_memories.iter().rev();
        let left = newest_first.find(|it| it.address.is_compatible_with(agent));
        left.is_none_or(|left| left.has_written_since(now))
    }

    /// Returns the run that undid the run, unless that undo was undone in turn.
    pub fn undone_by(&self) -> Option<&str> {
        let newest_first = self.related.iter().rev().map(|record| &record.event);
        let changes = newest_first.filter(|event| event.has_changed_files());
        let undone_by = undoing_runs(changes.map(|it| (it.run.as_str(), it.undone_run.as_deref())));
        undone_by.get(self.record.event.run.as_str()).copied()
    }

    /// Whether a redo would take back the undo of this run by `undo`.
    pub fn is_redoable(&self, undo: &str) -> bool {
        self.record.event.undone_run.is_none() && self.last_change == undo
    }

    /// Returns an event, and the later events of recovery about the files that its run displaced.
    pub fn event_and_repairs<'a>(
        &'a self,
        event: &'a RunEvent,
    ) -> impl DoubleEndedIterator<Item = &'a RunEvent> {
        let related = self.related.iter().map(|record| &record.event);
        let repairs = related.filter(|repair| {
            repair.operation == Operation::Repair
                && repair.run == event.run
                && repair.has_same_states(event)
        });
        std::iter::once(event).chain(repairs)
    }

    /// Returns whether the run kept an object that it displaced.
    pub fn has_kept_object(&self) -> bool {
        self.event_and_repairs(&self.record.event)
            .any(|event| !event.change.kept_names.is_empty())
    }

    /// Returns the names under which the run kept displaced objects, with the objects' identities
    /// where known. If an undo restored an object and a redo displaced it again, the newer name
    /// comes first.
    pub fn kept_objects(&self) -> Vec<(&str, Option<ObjectId>)> {
        let undone_by = |run: &'_ str| {
            let related = self.related.iter().map(|record| &record.event).rev();
            let run = run.to_string();
            related.filter(move |it| it.undone_run.as_ref() == Some(&run))
        };
        let event = &self.record.event;
        let again = undone_by(&event.run).flat_map(|undo| undone_by(&undo.run));
        again
            .chain(std::iter::once(event))
            .flat_map(|event| self.event_and_repairs(event))
            .flat_map(|event| {
                let id = |name: &String| event.change.kept_ids.get(name).copied();
                event
                    .change
                    .kept_names
                    .iter()
                    .map(move |name| (name.as_str(), id(name)))
            })
            .collect()
    }
}

/// The search for the run of an agent to undo.
struct RunSearch<'a> {
    agent: &'a Agent,
    /// Newest first.
    changes: Vec<MemoryChange>,
    /// Whether older changes cannot alter the result.
    is_finished: bool,
}

struct MemoryChange {
    position: LedgerPosition,
    run: String,
    undone_run: Option<String>,
    operation: Operation,
    /// Whether it is about the agent's own memory.
    is_own: bool,
}

impl<'a> RunSearch<'a> {
    fn new(agent: &'a Agent) -> RunSearch<'a> {
        RunSearch {
            agent,
            changes: Vec::new(),
            is_finished: false,
        }
    }

    /// Adds the next older change.
    fn add_change(&mut self, position: LedgerPosition, event: &RunEvent, is_redo: bool) {
        self.changes.push(MemoryChange {
            position,
            run: event.run.clone(),
            undone_run: event.undone_run.clone(),
            operation: event.operation,
            is_own: RecordedAddress::from_event(event).is_compatible_with(self.agent),
        });
        let count = self.changes.len();
        if count <= MAX_EAGER_CHANGES || count.is_power_of_two() {
            self.is_finished = match self.choose_own(is_redo, false) {
                UndoChoice::Change(_) => true,
                UndoChoice::Nothing => {
                    !matches!(self.choose_any(is_redo, false), UndoChoice::Undecided)
                }
                UndoChoice::Undecided => false,
            };
        }
    }

    fn choose_own(&self, is_redo: bool, is_complete: bool) -> UndoChoice {
        choose_change(&self.changes, |change| change.is_own, is_redo, is_complete)
    }

    fn choose_any(&self, is_redo: bool, is_complete: bool) -> UndoChoice {
        choose_change(&self.changes, |_| true, is_redo, is_complete)
    }

    /// Returns the change to undo, once all changes have been added.
    fn chosen_change(&self, is_redo: bool) -> Option<usize> {
        let choices = [
            self.choose_own(is_redo, true),
            self.choose_any(is_redo, true),
        ];
        choices.into_iter().find_map(|choice| match choice {
            UndoChoice::Change(change) => Some(change),
            UndoChoice::Nothing | UndoChoice::Undecided => None,
        })
    }

    /// Returns the newest reset of the agent's own memory, if it is undone.
    fn last_undone_reset(&self) -> Option<UndoneReset> {
        let mut own = self.changes.iter().filter(|change| change.is_own);
        let undone_by = undoing_runs(
            own.clone()
                .map(|change| (change.run.as_str(), change.undone_run.as_deref())),
        );
        let reset = own.find(|change| change.undone_run.is_none())?;
        let undone_by = undone_by.get(reset.run.as_str())?;
        Some(UndoneReset {
            run: reset.run.clone(),
            undone_by: (*undone_by).to_string(),
        })
    }

    /// Returns the newest run of the agent's own memory that was skipped before a change.
    fn skipped_run(&self, change: usize) -> Option<String> {
        let mut newer = self.changes[..change].iter();
        let skipped = newer.find(|it| it.undone_run.is_none() && it.is_own);
        skipped.map(|it| it.run.clone())
    }
}

enum UndoChoice {
    Change(usize),
    Nothing,
    /// Older changes can still alter the result.
    Undecided,
}

/// Chooses the change to undo; `changes` are newest first.
fn choose_change(
    changes: &[MemoryChange],
    counts: impl Fn(&MemoryChange) -> bool,
    is_redo: bool,
    is_complete: bool,
) -> UndoChoice {
    let mut undone: HashSet<&str> = HashSet::new();
    for (number, change) in changes.iter().enumerate() {
        if !counts(change) || undone.contains(change.run.as_str()) {
            continue;
        }
        match (&change.undone_run, is_redo) {
            (Some(run), false) => {
                undone.insert(run);
            }
            (Some(run), true) => {
                let operation = changes
                    .iter()
                    .find(|it| it.run == *run)
                    .map(|it| it.operation);
                match operation {
                    None if !is_complete => return UndoChoice::Undecided,
                    // A redo reverts an undo of a reset; an undo of an undo is a redo itself.
                    Some(Operation::Undo) => {
                        undone.insert(run);
                    }
                    _ => return UndoChoice::Change(number),
                }
            }
            (None, true) => return UndoChoice::Nothing,
            (None, false) => return UndoChoice::Change(number),
        }
    }
    if is_complete {
        UndoChoice::Nothing
    } else {
        UndoChoice::Undecided
    }
}
