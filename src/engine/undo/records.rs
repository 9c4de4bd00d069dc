//! The records that an undo goes by: the one of the run that is undone, and what came
//! of it afterwards. They are found from the ledger's last record back, and kept up to
//! date by what is appended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};

use crate::archive;
use crate::config::Agent;
use crate::engine::Engine;
use crate::engine::address::{AddressFilter, RecordedAddress};
use crate::engine::ledger::{
    Event, FileState, LedgerPosition, Operation, Record, ReverseScan, Scan,
};
use crate::error::Result;
use crate::transport::ObjectId;

/// Up to so many changes an agent's search is looked at after each, then whenever they
/// have doubled.
const MAX_EAGER_CHANGES: usize = 16;

/// The records that an undo of some agents goes by.
pub struct UndoRecords {
    agents: BTreeMap<String, AgentRecords>,
    /// The entries of their records, each with its agent.
    entries: HashMap<PathBuf, String>,
    /// How far the ledger was read.
    at: LedgerPosition,
}

/// The records that an undo of one agent goes by.
#[derive(Clone)]
pub struct AgentRecords {
    /// The record of the run that is undone.
    pub record: Record,
    /// The youngest run that was passed over to come to it: it was undone already.
    pub passed_over: Option<String>,
    /// That record and what followed of the same run, of its undos, and of theirs.
    related: Vec<Record>,
    /// The runs of these.
    runs: HashSet<String>,
    /// What the last change left, for each address that the agent had.
    left: Vec<(RecordedAddress, Option<FileState>)>,
    /// The entries of these records that retention was about to delete: when, and in
    /// which run.
    retired: HashMap<PathBuf, (DateTime<FixedOffset>, String)>,
}

impl UndoRecords {
    /// Of the record of each agent that an undo (or, with `redo`, the taking back of an
    /// undo) is about. Undone runs are passed over, so undoing again goes further back.
    /// Records about another memory count only where there is none about the agent's
    /// own, to be refused.
    ///
    /// # Errors
    /// A ledger that cannot be read or whose chain is broken.
    pub fn of_last(engine: &Engine, agents: &[&Agent], redo: bool) -> Result<UndoRecords> {
        let (mut back, end) = engine.ledger_back()?;
        let searches = agents
            .iter()
            .map(|agent| (agent.name.as_str(), RunSearch::new(agent)));
        let mut searches: BTreeMap<&str, RunSearch<'_>> = searches.collect();
        let mut open = searches.len();
        while open > 0
            && let Some((place, record)) = back.next(|it| searches.contains_key(&*it.agent))?
        {
            let Some(search) = searches.get_mut(record.what.agent.as_str()) else {
                continue;
            };
            if !search.is_over && record.what.changed() {
                search.take(place, &record.what, redo);
                open -= usize::from(search.is_over);
            }
        }
        let mut found = Vec::new();
        for search in searches.values() {
            if let Some(change) = search.choice(redo) {
                let place = search.changes[change].place;
                let record = engine.record_at(place)?;
                found.push((place, record, search.passed_over(change)));
            }
        }
        UndoRecords::new(engine, found, end)
    }

    /// Of a run, for every agent whose memory it changed. A run that had to replace a
    /// memory twice is about what it took out the last time.
    ///
    /// # Errors
    /// As [`UndoRecords::of_last`].
    pub fn of_run(engine: &Engine, run: &str) -> Result<UndoRecords> {
        let (back, end) = engine.ledger_back()?;
        let found = last_of_runs(back, |it, _| it == run, usize::MAX)?;
        UndoRecords::new(engine, found, end)
    }

    /// Of one run for each of some agents.
    ///
    /// # Errors
    /// As [`UndoRecords::of_last`].
    pub fn of_runs(engine: &Engine, runs: &BTreeMap<&str, &str>) -> Result<UndoRecords> {
        let (back, end) = engine.ledger_back()?;
        let is_wanted = |run: &str, agent: &str| runs.get(agent) == Some(&run);
        let found = last_of_runs(back, is_wanted, runs.len())?;
        UndoRecords::new(engine, found, end)
    }

    /// Of one record.
    ///
    /// # Errors
    /// As [`UndoRecords::of_last`].
    pub fn of_record(
        engine: &Engine,
        place: LedgerPosition,
        record: Record,
    ) -> Result<UndoRecords> {
        UndoRecords::new(engine, vec![(place, record, None)], place)
    }

    fn new(
        engine: &Engine,
        found: Vec<(LedgerPosition, Record, Option<String>)>,
        end: LedgerPosition,
    ) -> Result<UndoRecords> {
        let first = found.iter().map(|(place, ..)| *place);
        let first = first.min_by_key(|place| place.seq);
        let agents = found.into_iter().map(|(_, record, passed_over)| {
            let agent = record.what.agent.clone();
            (agent, AgentRecords::new(record, passed_over))
        });
        let mut records = UndoRecords {
            agents: agents.collect(),
            entries: HashMap::new(),
            at: first.unwrap_or(end),
        };
        for (name, agent) in &records.agents {
            let written = agent.record.what.written();
            let named = written.map(|it| (it.path.clone(), name.clone()));
            records.entries.extend(named);
        }
        records.catch_up(engine)?;
        Ok(records)
    }

    /// Takes what was appended to the ledger since the last time.
    ///
    /// # Errors
    /// As [`UndoRecords::of_last`].
    pub fn catch_up(&mut self, engine: &Engine) -> Result<()> {
        let Some(mut scan) = Scan::open_at(&engine.ledger_path(), self.at)? else {
            return Ok(());
        };
        while let Some(record) = scan.record()? {
            let event = &record.what;
            for path in &event.retired {
                let agent = self.entries.get(path);
                if let Some(agent) = agent.and_then(|agent| self.agents.get_mut(agent)) {
                    let by = (record.time, event.run.clone());
                    agent.retired.insert(path.clone(), by);
                }
            }
            let name = &event.agent;
            if let Some(agent) = self.agents.get_mut(name)
                && agent.is_related(&record)
            {
                let named = event.written().map(|it| (it.path.clone(), name.clone()));
                self.entries.extend(named);
                agent.related.push(record);
            }
        }
        self.at = scan.place();
        Ok(())
    }

    /// The agents that there is something to undo for.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// The records of an agent, if there is something to undo for it.
    pub fn of(&self, agent: &str) -> Option<&AgentRecords> {
        self.agents.get(agent)
    }
}

/// The last change of each agent in a run that is wanted, of so many agents at most.
fn last_of_runs(
    mut back: ReverseScan,
    is_wanted: impl Fn(&str, &str) -> bool,
    most: usize,
) -> Result<Vec<(LedgerPosition, Record, Option<String>)>> {
    let mut found = Vec::new();
    let mut agents = HashSet::new();
    while found.len() < most
        && let Some((place, record)) = back.next(|it| is_wanted(&it.run, &it.agent))?
    {
        if record.what.changed() && agents.insert(record.what.agent.clone()) {
            found.push((place, record, None));
        }
    }
    Ok(found)
}

impl AgentRecords {
    fn new(record: Record, passed_over: Option<String>) -> AgentRecords {
        AgentRecords {
            left: vec![(
                RecordedAddress::of_event(&record.what),
                record.what.after.clone(),
            )],
            runs: HashSet::from([record.what.run.clone()]),
            related: vec![record.clone()],
            retired: HashMap::new(),
            record,
            passed_over,
        }
    }

    /// Takes note of what a later record says, and tells whether it is about the run,
    /// its undos or theirs.
    fn is_related(&mut self, record: &Record) -> bool {
        let event = &record.what;
        if record.seq <= self.record.seq {
            return false;
        }
        if event.changed() {
            let address = RecordedAddress::of_event(event);
            self.left.retain(|(known, _)| *known != address);
            self.left.push((address, event.after.clone()));
        }
        if event
            .undoes
            .as_ref()
            .is_some_and(|it| self.runs.contains(it))
        {
            self.runs.insert(event.run.clone());
        }
        self.runs.contains(&event.run)
    }

    /// By which run retention deleted an entry of these records, and when, if it is
    /// gone.
    pub fn retired(
        &self,
        engine: &Engine,
        entry: &Path,
    ) -> Option<&(DateTime<FixedOffset>, String)> {
        let path = engine.archive().root().join(entry);
        let is_there = archive::stays_below(entry) && fs::symlink_metadata(path).is_ok();
        self.retired.get(entry).filter(|_| !is_there)
    }

    /// Whether something else stands there now than what the last run that changed
    /// this agent's memory left. Without `now` it is something that no run leaves.
    pub fn written_since(&self, agent: &Agent, now: Option<&FileState>) -> bool {
        let mut left = self.left.iter().rev();
        let left = left.find(|(address, _)| address.fits(agent));
        match (left.and_then(|(_, left)| left.as_ref()), now) {
            (Some(FileState::Absent), Some(FileState::Absent)) => false,
            (Some(FileState::Odd(left)), Some(FileState::Odd(now))) => left != now,
            (Some(left), Some(now)) => left.digest().is_none() || left.digest() != now.digest(),
            _ => true,
        }
    }

    /// An event, and what was recorded later of what its run displaced.
    pub fn with_repairs<'a>(
        &'a self,
        event: &'a Event,
    ) -> impl DoubleEndedIterator<Item = &'a Event> {
        let related = self.related.iter().map(|record| &record.what);
        let repairs = related.filter(|repair| {
            repair.act == Operation::Repair
                && repair.run == event.run
                && (&repair.before, &repair.after) == (&event.before, &event.after)
        });
        std::iter::once(event).chain(repairs)
    }

    /// The names under which the run kept what it displaced, and which objects these are,
    /// where that is known. Where an undo put it back,
    /// and that was taken back, it was kept again, under a name that comes first.
    pub fn kept_objects(&self) -> Vec<(&str, Option<ObjectId>)> {
        let undone_by = |run: &'_ str| {
            let related = self.related.iter().map(|record| &record.what).rev();
            let run = run.to_string();
            related.filter(move |it| it.undoes.as_ref() == Some(&run))
        };
        let event = &self.record.what;
        let again = undone_by(&event.run).flat_map(|undo| undone_by(&undo.run));
        again
            .chain(std::iter::once(event))
            .flat_map(|event| self.with_repairs(event))
            .flat_map(|event| {
                let id = |name: &String| event.kept_ids.get(name).copied();
                event.kept.iter().map(move |name| (name.as_str(), id(name)))
            })
            .collect()
    }
}

/// The search for the run of an agent that is to be undone.
struct RunSearch<'a> {
    filter: AddressFilter<'a>,
    /// The last one first.
    changes: Vec<MemoryChange>,
    /// No older change matters.
    is_over: bool,
}

struct MemoryChange {
    place: LedgerPosition,
    run: String,
    undoes: Option<String>,
    act: Operation,
    /// About the agent's own memory.
    is_own: bool,
}

impl<'a> RunSearch<'a> {
    fn new(agent: &'a Agent) -> RunSearch<'a> {
        RunSearch {
            filter: AddressFilter::new(agent),
            changes: Vec::new(),
            is_over: false,
        }
    }

    /// Takes the next older change.
    fn take(&mut self, place: LedgerPosition, event: &Event, redo: bool) {
        self.changes.push(MemoryChange {
            place,
            run: event.run.clone(),
            undoes: event.undoes.clone(),
            act: event.act,
            is_own: self.filter.accepts(event),
        });
        let count = self.changes.len();
        if count <= MAX_EAGER_CHANGES || count.is_power_of_two() {
            self.is_over = match self.own_choice(redo, false) {
                UndoChoice::Change(_) => true,
                UndoChoice::Nothing => !matches!(self.any_choice(redo, false), UndoChoice::Open),
                UndoChoice::Open => false,
            };
        }
    }

    fn own_choice(&self, redo: bool, is_complete: bool) -> UndoChoice {
        choose(&self.changes, |change| change.is_own, redo, is_complete)
    }

    fn any_choice(&self, redo: bool, is_complete: bool) -> UndoChoice {
        choose(&self.changes, |_| true, redo, is_complete)
    }

    /// The change that is to be undone, when no more are to come.
    fn choice(&self, redo: bool) -> Option<usize> {
        let choices = [self.own_choice(redo, true), self.any_choice(redo, true)];
        choices.into_iter().find_map(|choice| match choice {
            UndoChoice::Change(change) => Some(change),
            UndoChoice::Nothing | UndoChoice::Open => None,
        })
    }

    /// The youngest run that was passed over to come to a change.
    fn passed_over(&self, change: usize) -> Option<String> {
        let mut younger = self.changes[..change].iter();
        let passed = younger.find(|it| it.undoes.is_none() && it.is_own);
        passed.map(|it| it.run.clone())
    }
}

enum UndoChoice {
    Change(usize),
    Nothing,
    /// Older changes decide.
    Open,
}

/// Which of some changes, the last one first, is to be undone.
fn choose(
    changes: &[MemoryChange],
    counts: impl Fn(&MemoryChange) -> bool,
    redo: bool,
    is_complete: bool,
) -> UndoChoice {
    let mut undone: HashSet<&str> = HashSet::new();
    for (number, change) in changes.iter().enumerate() {
        if !counts(change) || undone.contains(change.run.as_str()) {
            continue;
        }
        match (&change.undoes, redo) {
            (Some(run), false) => {
                undone.insert(run);
            }
            (Some(run), true) => {
                let act = changes.iter().find(|it| it.run == *run).map(|it| it.act);
                match act {
                    None if !is_complete => return UndoChoice::Open,
                    // An undo of a reset can be taken back; one of an undo is a redo.
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
    match is_complete {
        true => UndoChoice::Nothing,
        false => UndoChoice::Open,
    }
}
