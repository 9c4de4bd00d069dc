//! The judgement of entries: which of them expire, and what keeps each of the others.
//!
//! An entry is as old as the latest of its name's time, its file's time and the time of its record.
//! It expires when that is before the retention time, reckoned from the confirmed date, and nothing
//! else keeps it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::dates::RetentionDates;
use super::ledger_facts::{EntryRecord, LedgerFacts, LedgerQuery};
use super::scope::RetentionScope;
use super::unused_versions::VersionCandidates;
use crate::archive::{ArchiveEntry, agent_directory_of};
use crate::base::error::{Error, Result};
use crate::engine::runs::Retention;
use crate::store::entries::{PinFault, Pins};

/// Why retention keeps an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// It is younger than the retention time, by its name.
    Younger,
    /// Its name is older, but its file was changed within the retention time.
    YoungerFile,
    /// Name and file are older, but a run within the retention time changed a memory and recorded
    /// it: the undo of that run needs it.
    NeededByUndo,
    /// Name and file are older, but another record within the retention time names it.
    NewerRecord,
    /// Its agent is not in the config and has a record within the retention time: it may be in
    /// another config.
    ActiveElsewhere,
    /// It is pinned.
    Pinned,
    /// A pinned entry continues it.
    NeededByPin,
    /// It is the newest of its agent or directory.
    Newest,
    /// Neither the ledger nor the config says whose it is.
    UnknownOwner,
    /// The run of its agent failed, other than for the full disk of the archive.
    RunFailed,
    /// A line of the pins file that names no entry may be meant for it.
    UnclearPin,
    /// It is old enough by the present date, which no earlier run confirms yet.
    Unconfirmed,
}

/// Whether retention deletes an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Expires,
    Kept(KeepReason),
    /// The run or command is about other agents.
    OutOfScope,
}

/// An entry and its judgement.
pub(super) struct AssessedEntry {
    pub entry: ArchiveEntry,
    /// Bytes that it takes on the disk; 0 where only expired entries are judged.
    pub disk_bytes: u64,
    /// The agent that recorded it, or else the agents that have its directory.
    pub owners: Arc<[String]>,
    /// The latest of the times of name, file and record; of an agent that left the config, also of
    /// its last record.
    pub dated_at: DateTime<FixedOffset>,
    /// Whether something other than its age keeps it.
    pub is_held: bool,
    pub verdict: Verdict,
}

/// Which entries are judged.
#[derive(Clone, Copy)]
pub(super) enum Depth {
    /// Those whose name and file are older than the retention time: enough for a run.
    Old,
    /// All of them.
    All,
}

/// The judgement of the entries of some directories.
#[derive(Default)]
pub(super) struct Assessment {
    /// By directory, oldest first.
    pub entries: Vec<AssessedEntry>,
    /// Directories that cannot be read: all their entries stay.
    pub unreadable: Vec<Error>,
    /// Lines of the pins file that name no entry, with the number of entries that each keeps.
    pub pin_faults: Vec<(PinFault, usize)>,
    /// What the ledger says; empty if it was not read.
    pub facts: LedgerFacts,
}

/// An entry that is to be judged.
struct Candidate {
    entry: ArchiveEntry,
    disk_bytes: u64,
    /// Whether it is the newest of its directory.
    is_newest: bool,
}

impl Assessment {
    /// Returns the entries that expire.
    pub fn expired(&self) -> impl Iterator<Item = &AssessedEntry> {
        let entries = self.entries.iter();
        entries.filter(|it| it.verdict == Verdict::Expires)
    }

    /// Returns the number of entries that are kept for a reason.
    pub fn count_kept(&self, reason: KeepReason) -> usize {
        let verdict = Verdict::Kept(reason);
        self.entries
            .iter()
            .filter(|it| it.verdict == verdict)
            .count()
    }
}

impl Retention {
    /// Judges the entries in the directories of a scope.
    ///
    /// # Errors
    /// The pins or the ledger cannot be read. A directory of entries that cannot be read is part of
    /// the answer.
    pub(super) fn assess_entries(
        &self,
        scope: &RetentionScope<'_>,
        dates: &RetentionDates,
        depth: Depth,
        directories: &BTreeSet<PathBuf>,
        versions: &VersionCandidates,
    ) -> Result<Assessment> {
        let mut assessment = Assessment::default();
        let growing = scope.growing_directories();
        let candidates =
            self.collect_candidates(directories, &growing, dates, depth, &mut assessment);
        if candidates.is_empty() && versions.is_empty() {
            return Ok(assessment);
        }
        let pins = self.context.entries().pins()?;
        let is_pinned = |it: &Candidate| pins.entries().contains(&it.entry.path);
        if matches!(depth, Depth::Old) && versions.is_empty() && candidates.iter().all(is_pinned) {
            return Ok(assessment);
        }
        assessment.facts = self.read_ledger_facts(&LedgerQuery {
            entries: candidates
                .iter()
                .map(|it| it.entry.path.as_path())
                .collect(),
            versions: versions.digests(),
            version_limit: dates.expiry_limit().unwrap_or(dates.age_limit()),
            now: dates.now,
            pins: &*pins,
        })?;
        let faults = pins.find_faults();
        let judge = Judge::new(self, scope, dates, &*pins, &assessment.facts, &faults);
        let mut kept_by_faults = vec![0; faults.len()];
        let records = assessment.facts.entries.iter();
        let judged = candidates.into_iter().zip(records);
        assessment.entries = judged
            .map(|(candidate, record)| {
                judge.assess(candidate, record.as_ref(), &mut kept_by_faults)
            })
            .collect();
        assessment.pin_faults = faults.into_iter().zip(kept_by_faults).collect();
        Ok(assessment)
    }

    /// Lists the entries to be judged.
    fn collect_candidates(
        &self,
        directories: &BTreeSet<PathBuf>,
        growing: &HashSet<&Path>,
        dates: &RetentionDates,
        depth: Depth,
        assessment: &mut Assessment,
    ) -> Vec<Candidate> {
        // Entries between the two limits matter only while they wait for a confirmation.
        let limit = match dates.expiry_limit() {
            Some(limit) if !dates.is_confirmation_late() => limit,
            _ => dates.age_limit(),
        };
        let mut candidates = Vec::new();
        for directory in directories {
            let keeps_newest = !growing.contains(directory.as_path());
            let listed = match depth {
                Depth::Old => self
                    .context
                    .entries()
                    .list_expired(directory, limit, dates.zone, keeps_newest)
                    .map(|entries| entries.into_iter().map(|it| (it, 0)).collect()),
                Depth::All => self.context.entries().list_with_usage(directory),
            };
            let listed: Vec<(ArchiveEntry, u64)> = match listed {
                Ok(listed) => listed,
                Err(error) => {
                    assessment.unreadable.push(error);
                    continue;
                }
            };
            let last = listed.len();
            let is_newest = |number| matches!(depth, Depth::All) && keeps_newest && number == last;
            let numbered = listed.into_iter().zip(1..);
            candidates.extend(numbered.map(|((entry, disk_bytes), number)| Candidate {
                entry,
                disk_bytes,
                is_newest: is_newest(number),
            }));
        }
        candidates
    }

    /// The directories of a scope's agents; where the scope includes them, also those of no agent, and
    /// the archive itself.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub(super) fn scope_directories(
        &self,
        scope: &RetentionScope<'_>,
        is_full_check: bool,
    ) -> Result<BTreeSet<PathBuf>> {
        let mut directories = BTreeSet::new();
        if scope.includes_unclaimed(is_full_check) {
            let claimed = self.agent_directories().into_iter();
            let claimed: HashSet<&Path> = claimed.map(Path::new).collect();
            directories = self
                .context
                .entries()
                .unclaimed_directories(&|directory| claimed.contains(directory))?;
            directories.insert(PathBuf::new());
        }
        let agents = scope
            .agents()
            .filter_map(|name| self.context.config().agent(name));
        directories.extend(agents.map(|agent| PathBuf::from(&agent.archive_subdir)));
        Ok(directories)
    }

    /// The directories of all agents, without duplicates.
    pub(in crate::engine) fn agent_directories(&self) -> BTreeSet<&str> {
        let agents = self.context.config().agents.iter();
        agents.map(|agent| agent.archive_subdir.as_str()).collect()
    }
}

/// Judges one entry at a time.
struct Judge<'j> {
    retention: &'j Retention,
    scope: &'j RetentionScope<'j>,
    dates: &'j RetentionDates,
    pins: &'j dyn Pins,
    facts: &'j LedgerFacts,
    faults: &'j [PinFault],
    /// The agents of the config, by their directory.
    agents_by_directory: HashMap<&'j Path, Arc<[String]>>,
    /// The agents of the ledger, by their place.
    recorded_agents: Vec<Arc<[String]>>,
    no_agents: Arc<[String]>,
}

impl<'j> Judge<'j> {
    fn new(
        retention: &'j Retention,
        scope: &'j RetentionScope<'j>,
        dates: &'j RetentionDates,
        pins: &'j dyn Pins,
        facts: &'j LedgerFacts,
        faults: &'j [PinFault],
    ) -> Judge<'j> {
        let mut by_directory: HashMap<&Path, Vec<String>> = HashMap::new();
        for agent in &retention.context.config().agents {
            let directory = Path::new(&agent.archive_subdir);
            let agents = by_directory.entry(directory).or_default();
            agents.push(agent.name.clone());
        }
        let by_directory = by_directory.into_iter();
        let agents = facts.agents.iter();
        Judge {
            retention,
            scope,
            dates,
            pins,
            facts,
            faults,
            agents_by_directory: by_directory.map(|(at, it)| (at, it.into())).collect(),
            recorded_agents: agents.map(|it| Arc::new([it.name.clone()]) as _).collect(),
            no_agents: Arc::new([]),
        }
    }

    fn assess(
        &self,
        candidate: Candidate,
        record: Option<&EntryRecord>,
        kept_by_faults: &mut [usize],
    ) -> AssessedEntry {
        let entry = &candidate.entry;
        let owners = self.owners(entry, record);
        let (dated_at, age_reason) = self.date(entry, record);
        let fault = self
            .faults
            .iter()
            .position(|fault| fault.may_concern(&entry.path));
        let hold = self.find_hold(&candidate, record, &owners, fault.is_some());
        let is_old_enough = |limit: Option<DateTime<_>>| limit.is_some_and(|it| dated_at < it);
        let verdict = match hold {
            Some(Verdict::OutOfScope) => Verdict::OutOfScope,
            Some(kept @ Verdict::Kept(KeepReason::Pinned)) => kept,
            _ if dated_at >= self.dates.age_limit() => Verdict::Kept(age_reason),
            Some(hold) => hold,
            None if is_old_enough(self.dates.expiry_limit()) => Verdict::Expires,
            None => Verdict::Kept(KeepReason::Unconfirmed),
        };
        if verdict == Verdict::Kept(KeepReason::UnclearPin)
            && let Some(fault) = fault
        {
            kept_by_faults[fault] += 1;
        }
        AssessedEntry {
            disk_bytes: candidate.disk_bytes,
            owners,
            dated_at,
            is_held: hold.is_some(),
            verdict,
            entry: candidate.entry,
        }
    }

    /// Returns the agents that an entry may belong to.
    fn owners(&self, entry: &ArchiveEntry, record: Option<&EntryRecord>) -> Arc<[String]> {
        if let Some(record) = record {
            return Arc::clone(&self.recorded_agents[record.agent]);
        }
        // An entry of the original tool, or of a run that was killed.
        let directory = agent_directory_of(&entry.path);
        let agents = self.agents_by_directory.get(directory);
        Arc::clone(agents.unwrap_or(&self.no_agents))
    }

    /// Returns the latest of an entry's times, and the first reason why it is young, if it is.
    fn date(
        &self,
        entry: &ArchiveEntry,
        record: Option<&EntryRecord>,
    ) -> (DateTime<FixedOffset>, KeepReason) {
        let zone = self.dates.zone;
        let named = zone.resolve(entry.stamp);
        // The file's time is cut to the second.
        let written = DateTime::from_timestamp(entry.modified.saturating_add(1), 0);
        let written = match written {
            Some(written) => zone.at(written),
            None if entry.modified < 0 => zone.at(DateTime::UNIX_EPOCH),
            None => self.dates.now,
        };
        let mut times = vec![
            (named, KeepReason::Younger),
            (written, KeepReason::YoungerFile),
        ];
        if let Some(record) = record {
            let reason = if record.is_of_change {
                KeepReason::NeededByUndo
            } else {
                KeepReason::NewerRecord
            };
            times.push((record.recorded_at, reason));
            let agent = &self.facts.agents[record.agent];
            if self.retention.context.config().agent(&agent.name).is_none() {
                times.push((agent.last_at, KeepReason::ActiveElsewhere));
            }
        }
        if record.is_none() {
            let claimed = times.iter().map(|(time, _)| *time).max();
            let claimed = claimed.unwrap_or(self.dates.now);
            let latest = self.facts.record_dates.date_unrecorded(claimed);
            times.push((latest, KeepReason::YoungerFile));
        }
        let limit = self.dates.age_limit();
        let young = times.iter().find(|(time, _)| *time >= limit);
        let reason = young.map_or(KeepReason::Younger, |(_, reason)| *reason);
        let latest = times.iter().map(|(time, _)| *time).max();
        (latest.unwrap_or(self.dates.now), reason)
    }

    /// Returns what keeps an entry whatever its age.
    fn find_hold(
        &self,
        candidate: &Candidate,
        record: Option<&EntryRecord>,
        owners: &[String],
        has_fault: bool,
    ) -> Option<Verdict> {
        let is_included = if owners.is_empty() {
            self.scope.includes_unowned()
        } else {
            owners.iter().any(|it| self.scope.includes(it))
        };
        if !is_included {
            return Some(Verdict::OutOfScope);
        }
        let is_of_growing = owners.iter().any(|it| self.scope.is_growing(it));
        let is_newest =
            candidate.is_newest || record.is_some_and(|record| record.is_newest) && !is_of_growing;
        let has_failed = || owners.iter().any(|it| self.scope.has_failed(it));
        let reason = if self.pins.entries().contains(&candidate.entry.path) {
            KeepReason::Pinned
        } else if record.is_some_and(|record| record.is_part_of_pinned) {
            KeepReason::NeededByPin
        } else if is_newest {
            KeepReason::Newest
        } else if owners.is_empty() {
            KeepReason::UnknownOwner
        } else if has_failed() {
            KeepReason::RunFailed
        } else if has_fault {
            KeepReason::UnclearPin
        } else {
            return None;
        };
        Some(Verdict::Kept(reason))
    }
}
