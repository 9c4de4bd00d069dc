//! What the ledger records about entries, agents and baseline versions, gathered in one pass that
//! holds one record at a time.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};

use super::record_dates::{RecordDates, RecordPlace};
use crate::archive::{self, Archive, EntryKind, Pins, agent_directory_of, parse_entry_name};
use crate::base::digest::Digest;
use crate::base::error::Result;
use crate::engine::runs::Retention;
use crate::lint::ScanSummary;
use crate::store::record::{FileState, LedgerRecord, Operation, Outcome, RunEvent};
use crate::store::unchanged_agents::UnchangedAgents;

/// Number of versions that were pushed to an agent last and are kept whatever their age: the one
/// that its memory has, and the one before.
pub(super) const KEPT_PUSHED_VERSIONS: usize = 2;

/// What a pass over the ledger is asked.
pub(super) struct LedgerQuery<'q> {
    /// Paths of entries; answers have their order.
    pub entries: Vec<&'q Path>,
    /// Versions that may be unused.
    pub versions: HashSet<Digest>,
    /// The time from which on a record keeps the versions that it names.
    pub version_limit: DateTime<FixedOffset>,
    /// The present time: records after it say nothing about the age of others.
    pub now: DateTime<FixedOffset>,
    /// The pinned entries.
    pub pins: &'q Pins,
}

/// What the ledger records about one entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryRecord {
    /// Place of its agent in [`LedgerFacts::agents`].
    pub agent: usize,
    /// Time of the first record that names it, by the clock of its run.
    pub made_at: DateTime<FixedOffset>,
    /// The latest time at which the last record that names it may have been written.
    pub recorded_at: DateTime<FixedOffset>,
    /// Whether that run changed the memory, so that its undo needs the entry.
    pub is_of_change: bool,
    /// Whether it is in the last record of its agent that names entries.
    pub is_newest: bool,
    /// Whether a pinned entry is useless without it.
    pub is_part_of_pinned: bool,
}

/// What the ledger records about one agent.
#[derive(Debug)]
pub(super) struct AgentFacts {
    /// Its name.
    pub name: String,
    /// The latest time at which its last record may have been written.
    pub last_at: DateTime<FixedOffset>,
    /// Places of the entries that were asked for in its last record with entries.
    newest: Vec<usize>,
    /// Versions that were pushed to it last.
    pushed: Vec<Digest>,
    /// Versions in the record of its last change.
    last_change: Vec<Digest>,
}

/// The answers of a pass over the ledger.
#[derive(Debug, Default)]
pub(super) struct LedgerFacts {
    /// For each entry that was asked for, what is recorded about it.
    pub entries: Vec<Option<EntryRecord>>,
    /// What the scan found in these entries, by their places.
    pub findings: HashMap<usize, ScanSummary>,
    /// All agents that ever had a record.
    pub agents: Vec<AgentFacts>,
    /// Directories of the archive that records name.
    pub directories: HashSet<PathBuf>,
    /// The versions that were asked for and are still needed.
    pub needed_versions: HashSet<Digest>,
    /// When the records were written, as far as that is known.
    pub record_dates: RecordDates,
}

impl LedgerFacts {
    /// Creates the answer that nothing is recorded about `entries` entries.
    pub(super) fn unknown(entries: usize) -> LedgerFacts {
        LedgerFacts {
            entries: vec![None; entries],
            ..LedgerFacts::default()
        }
    }
}

/// A pass over the ledger.
struct LedgerPass<'q> {
    archive: &'q Archive,
    query: &'q LedgerQuery<'q>,
    entry_places: HashMap<&'q Path, usize>,
    agent_places: HashMap<String, usize>,
    facts: LedgerFacts,
    /// For each entry that was asked for, the last record that names it.
    entry_records: Vec<Option<RecordPlace>>,
    /// For each agent, its last record.
    agent_records: Vec<RecordPlace>,
    /// The last record that names a version which nothing else needs.
    version_records: HashMap<Digest, RecordPlace>,
    /// Whether an entry that continues another is pinned.
    has_pinned_part: bool,
    /// The entries of each run of an agent.
    chains: HashMap<(String, usize), Vec<usize>>,
    pinned_chains: HashSet<(String, usize)>,
    /// The versions that the last record of each act on each baseline file names.
    file_versions: HashMap<(String, &'static str), Vec<Digest>>,
}

impl<'q> LedgerPass<'q> {
    fn new(archive: &'q Archive, query: &'q LedgerQuery<'q>) -> LedgerPass<'q> {
        let places = query.entries.iter().enumerate();
        LedgerPass {
            archive,
            query,
            entry_places: places.map(|(place, path)| (*path, place)).collect(),
            agent_places: HashMap::new(),
            facts: LedgerFacts {
                record_dates: RecordDates::new(query.now),
                ..LedgerFacts::unknown(query.entries.len())
            },
            entry_records: vec![None; query.entries.len()],
            agent_records: Vec::new(),
            version_records: HashMap::new(),
            has_pinned_part: query.pins.entries().any(is_appended),
            chains: HashMap::new(),
            pinned_chains: HashSet::new(),
            file_versions: HashMap::new(),
        }
    }

    fn add_record(&mut self, record: &LedgerRecord) {
        let dates = &mut self.facts.record_dates;
        let at = dates.add(record.seq, record.time, record.boot.as_ref());
        let event = &record.event;
        if !self.query.versions.is_empty() {
            self.add_version_use(event, at);
        }
        if let Some(unchanged) = &event.unchanged {
            self.add_unchanged(unchanged, at);
        } else if !event.agent.is_empty() {
            let agent = self.agent_place(&event.agent, at);
            self.add_entries(record, agent, at);
            if !self.query.versions.is_empty() {
                self.add_agent_versions(event, agent);
            }
        }
    }

    /// Adds the agents that a run found unchanged, which have no entries.
    fn add_unchanged(&mut self, unchanged: &UnchangedAgents, at: RecordPlace) {
        for name in unchanged.agents.values().flatten() {
            let agent = self.agent_place(name, at);
            let details = unchanged.details.get(name);
            if let Some(found) = details.and_then(|it| it.baseline)
                && self.query.versions.contains(&found)
            {
                self.add_pushed_version(agent, found);
            }
        }
    }

    /// Returns the place of an agent, which has a record at `at`.
    fn agent_place(&mut self, name: &str, at: RecordPlace) -> usize {
        if let Some(place) = self.agent_places.get(name) {
            self.agent_records[*place] = at;
            return *place;
        }
        let place = self.facts.agents.len();
        self.agent_places.insert(name.to_string(), place);
        self.agent_records.push(at);
        self.facts.agents.push(AgentFacts {
            name: name.to_string(),
            last_at: at.time,
            newest: Vec::new(),
            pushed: Vec::new(),
            last_change: Vec::new(),
        });
        place
    }

    fn add_entries(&mut self, record: &LedgerRecord, agent: usize, at: RecordPlace) {
        let event = &record.event;
        let mut is_first = true;
        for written in event.entries() {
            if is_first {
                self.facts.agents[agent].newest.clear();
                is_first = false;
            }
            let directory = agent_directory_of(&written.path);
            if !self.facts.directories.contains(directory) {
                self.facts.directories.insert(directory.to_path_buf());
            }
            if written.base.is_some() && self.query.pins.contains(&written.path) {
                self.pinned_chains.insert((event.run.clone(), agent));
            }
            let Some(place) = self.entry_places.get(written.path.as_path()).copied() else {
                continue;
            };
            self.facts.agents[agent].newest.push(place);
            if let Some(findings) = &written.findings {
                self.facts.findings.insert(place, findings.clone());
            }
            if self.has_pinned_part {
                let chain = (event.run.clone(), agent);
                self.chains.entry(chain).or_default().push(place);
            }
            let known = self.facts.entries[place];
            let last_place = &mut self.entry_records[place];
            *last_place = (*last_place).max(Some(at));
            self.facts.entries[place] = Some(EntryRecord {
                agent,
                made_at: known.map_or(record.time, |known| known.made_at),
                recorded_at: at.time,
                is_of_change: event.has_changed_files()
                    || known.is_some_and(|known| known.is_of_change),
                is_newest: false,
                is_part_of_pinned: false,
            });
        }
    }

    /// Adds the versions that a record keeps by its age or by its entries.
    fn add_version_use(&mut self, event: &RunEvent, at: RecordPlace) {
        let named = self.asked_versions(event);
        if let Some(file) = &event.file
            && event.outcome == Outcome::Ok
            && event.operation != Operation::Repair
        {
            let act = (file.clone(), event.operation.as_str());
            self.file_versions.insert(act, named.clone());
        }
        let needed = &self.facts.needed_versions;
        let is_new = named.iter().any(|it| !needed.contains(it));
        if !is_new {
            return;
        }
        if at.time >= self.query.version_limit || self.has_existing_entry(event) {
            self.facts.needed_versions.extend(named);
        } else {
            // A later record may show that this one is newer.
            let named = named.into_iter().map(|version| (version, at));
            self.version_records.extend(named);
        }
    }

    /// Notes the versions of an agent that are kept whatever their age.
    fn add_agent_versions(&mut self, event: &RunEvent, agent: usize) {
        if event.has_changed_memory() {
            self.facts.agents[agent].last_change = self.asked_versions(event);
        }
        let is_found = event.operation.installs_baselines() && event.outcome == Outcome::Unchanged;
        if (event.has_changed_memory() || is_found)
            && let Some(pushed) = event.baseline
        {
            self.add_pushed_version(agent, pushed);
        }
    }

    fn add_pushed_version(&mut self, agent: usize, pushed: Digest) {
        let versions = &mut self.facts.agents[agent].pushed;
        versions.retain(|it| *it != pushed);
        versions.insert(0, pushed);
        versions.truncate(KEPT_PUSHED_VERSIONS);
    }

    /// Returns the versions that were asked for and that a record names in any field.
    fn asked_versions(&self, event: &RunEvent) -> Vec<Digest> {
        let states = event.change.before.iter().chain(&event.change.after);
        let boundary = event.boundary.and_then(|boundary| boundary.rule.version());
        let unchanged = event.unchanged.iter().flat_map(|it| it.details.values());
        let named = event.baseline.into_iter().chain(event.split_version);
        let named = named
            .chain(unchanged.filter_map(|it| it.baseline))
            .chain(boundary)
            .chain(states.filter_map(FileState::digest));
        named
            .filter(|it| self.query.versions.contains(it))
            .collect()
    }

    /// Whether an entry of the record exists: its undo needs the version that it was split by.
    fn has_existing_entry(&self, event: &RunEvent) -> bool {
        event.entries().any(|written| {
            let path = self.archive.root().join(&written.path);
            archive::is_below_archive(&written.path) && std::fs::symlink_metadata(path).is_ok()
        })
    }

    /// Dates what was found, now that all records are known.
    fn date_facts(&mut self) {
        let dates = &self.facts.record_dates;
        for (entry, at) in self.facts.entries.iter_mut().zip(&self.entry_records) {
            if let (Some(entry), Some(at)) = (entry, at) {
                entry.recorded_at = dates.date(*at);
            }
        }
        for (agent, at) in self.facts.agents.iter_mut().zip(&self.agent_records) {
            agent.last_at = dates.date(*at);
        }
        let limit = self.query.version_limit;
        let new = self.version_records.iter();
        let new = new.filter(|(_, at)| dates.date(**at) >= limit);
        self.facts
            .needed_versions
            .extend(new.map(|(version, _)| *version));
    }

    fn finish(mut self) -> LedgerFacts {
        self.date_facts();
        for agent in &self.facts.agents {
            for place in &agent.newest {
                if let Some(record) = &mut self.facts.entries[*place] {
                    record.is_newest = true;
                }
            }
        }
        for chain in &self.pinned_chains {
            for place in self.chains.get(chain).into_iter().flatten() {
                if let Some(record) = &mut self.facts.entries[*place] {
                    record.is_part_of_pinned = true;
                }
            }
        }
        let asked = &self.query.versions;
        let agents = self.facts.agents.iter();
        let of_agents = agents.flat_map(|it| it.pushed.iter().chain(&it.last_change));
        let of_files = self.file_versions.values().flatten();
        let kept = of_agents.chain(of_files).filter(|it| asked.contains(it));
        self.facts.needed_versions.extend(kept.copied());
        self.facts
    }
}

/// Whether an entry continues another one, by its name.
fn is_appended(entry: &Path) -> bool {
    let name = entry.file_name().and_then(|name| name.to_str());
    let kind = name.and_then(parse_entry_name).map(|(_, kind, _)| kind);
    kind == Some(EntryKind::Appended)
}

impl Retention {
    /// Reads what the ledger records about entries and versions.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub(super) fn read_ledger_facts(&self, query: &LedgerQuery<'_>) -> Result<LedgerFacts> {
        let boot = self.context.clock().boot_time();
        let mut pass = LedgerPass::new(self.context.archive(), query);
        self.context
            .ledger()
            .records(None, None)?
            .for_each(&mut |record| {
                pass.add_record(record);
                Ok(())
            })?;
        pass.facts.record_dates.add_present(boot.as_ref());
        Ok(pass.finish())
    }
}
