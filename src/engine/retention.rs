//! What stays in the archive and what goes: retention, pins, the list of entries.
//!
//! Retention is decided for each agent, after every run: the entries of the agents that
//! the run brought to a good end, and of those that left the config and that no run was
//! about within the retention time. An entry goes when its name, its file's time and what
//! the ledger says of it are older than the retention time, unless it is pinned, the
//! newest of its agent, or not known to be anybody's.
//!
//! No single run's clock decides how old an entry is:
//!
//! - How late it is now, the last run says that was a day ago or earlier by this run's
//!   clock. So two runs have seen an entry expire, a day apart: a clock that is ahead for
//!   one run deletes nothing, and after a long break the second run deletes.
//! - An entry is not older than any record before its own. So what a run archives whose
//!   clock is behind has its time, whatever its name says.
//! - Records of a time that has not come yet count for nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Duration, FixedOffset};
use serde::{Deserialize, Serialize};

use super::ledger::{LedgerScan, Operation, Outcome, RunEvent};
use super::plan::Plan;
use super::reset::AgentResult;
use super::{Blocker, Engine, EngineSetup, lock, reset};
use crate::archive::{ArchiveEntry, PinFault, Pins, WrittenEntry};
use crate::error::{Error, ErrorKind, Result};

/// How many entries one record of retention names.
const MAX_ENTRIES_PER_RECORD: usize = 500;

/// How long ago a run has to be that confirms how late it is.
const MIN_CONFIRMATION_AGE: Duration = Duration::days(1);

/// So much may clocks of this machine be apart.
const CLOCK_TOLERANCE: Duration = Duration::minutes(1);

/// After how long without a run it is said that retention waits for another one.
const LONG_RUN_GAP: Duration = Duration::days(3);

/// What retention would delete when a run has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionPlan {
    /// Paths below `archive_dir`, the oldest of each directory first.
    pub entries: Vec<PathBuf>,
    /// Why it would delete nothing, if it cannot.
    #[serde(rename = "blocked")]
    pub blocker: Option<Blocker>,
    /// What else has expired and stays, and why.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// An entry, and what keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryStatus {
    /// The entry itself.
    pub entry: ArchiveEntry,
    /// Retention never deletes it.
    pub is_pinned: bool,
    /// The ledger names it, so that it can be verified.
    pub is_recorded: bool,
    /// A run within the retention time can only be undone with it.
    pub is_needed: bool,
}

/// Whose entries retention may delete at the end of a run.
#[derive(Default)]
pub(super) struct RetentionScope<'a> {
    /// Agents that the run brought, or would bring, to a good end.
    succeeded: HashSet<&'a str>,
    /// Agents of the run that were not brought to a good end.
    failed: HashSet<&'a str>,
    /// Agents that get a newer entry.
    gaining_entries: HashSet<&'a str>,
}

impl<'a> RetentionScope<'a> {
    /// What a plan says.
    pub fn from_plan(plan: &'a Plan) -> RetentionScope<'a> {
        let idle = plan.skipped.iter().filter(|it| it.kind.is_none());
        let refused = plan.skipped.iter().filter(|it| it.kind.is_some());
        let steps = plan.steps.iter();
        let ended = steps.clone().map(|it| it.agent.as_str());
        RetentionScope {
            succeeded: ended.chain(idle.map(|it| it.agent.as_str())).collect(),
            failed: refused.map(|it| it.agent.as_str()).collect(),
            gaining_entries: steps
                .filter(|step| step.entry_kind.is_some())
                .map(|step| step.agent.as_str())
                .collect(),
        }
    }

    /// Whether the run brought no agent to a good end.
    pub fn is_empty(&self) -> bool {
        self.succeeded.is_empty()
    }

    /// What came of a run.
    pub fn from_results(results: &'a [AgentResult]) -> RetentionScope<'a> {
        let mut scope = RetentionScope::default();
        for result in results {
            let names = match result.outcome {
                Outcome::Ok | Outcome::Unchanged => &mut scope.succeeded,
                _ => &mut scope.failed,
            };
            names.insert(&result.agent);
        }
        scope
    }
}

/// What has expired before a time.
#[derive(Default)]
struct ExpiredEntries {
    /// The entries that may go.
    entries: Vec<ArchiveEntry>,
    /// How many stay of each agent whose run failed.
    kept_of_failed: BTreeMap<String, usize>,
    /// Why a directory of the archive keeps all of its entries.
    directory_errors: Vec<Error>,
    /// Pins that keep entries which they do not name, with how many.
    unclear_pins: Vec<(PinFault, usize)>,
}

/// What the ledger says of some entries.
#[derive(Default)]
struct LedgerFacts {
    /// The agent of each entry that a record names.
    agent_by_entry: HashMap<PathBuf, String>,
    needed_entries: HashSet<PathBuf>,
    /// Agents that a run was about within the retention time.
    active_agents: HashSet<String>,
}

/// "12 entries older than 30 days"
pub(super) fn describe_older_entries(entries: usize, days: u32) -> String {
    let plural = if entries == 1 { "y" } else { "ies" };
    let days = match days {
        1 => "1 day".to_string(),
        days => format!("{days} days"),
    };
    format!("{entries} entr{plural} older than {days}")
}

impl Engine {
    /// Which entries retention would delete after a run that brings every agent to a
    /// good end.
    ///
    /// # Errors
    /// An archive or ledger that cannot be read.
    pub fn expired_entries(&self) -> Result<Vec<ArchiveEntry>> {
        let agents = self.config().agents.iter();
        let scope = RetentionScope {
            succeeded: agents.map(|agent| agent.name.as_str()).collect(),
            ..RetentionScope::default()
        };
        Ok(self.find_expired(&scope)?.0)
    }

    /// What retention would delete at the end of a run.
    pub(super) fn plan_retention(&self, scope: &RetentionScope<'_>) -> RetentionPlan {
        match self.find_expired(scope) {
            Ok((entries, notes)) => RetentionPlan {
                entries: entries.into_iter().map(|entry| entry.path).collect(),
                blocker: None,
                notes,
            },
            Err(error) => RetentionPlan {
                blocker: Some(Blocker::from_error(&error)),
                ..RetentionPlan::default()
            },
        }
    }

    /// The entries that have expired and may go, and why others stay.
    fn find_expired(&self, scope: &RetentionScope<'_>) -> Result<(Vec<ArchiveEntry>, Vec<String>)> {
        let now = self.clock().now();
        let confirmed = self
            .ledger()
            .last_record_time_before(now - MIN_CONFIRMATION_AGE)?;
        let ExpiredEntries {
            entries: expired,
            kept_of_failed: of_failed,
            directory_errors: unread,
            unclear_pins: unclear,
        } = match confirmed {
            Some(time) => self.find_expired_before(scope, self.retention_cutoff(time), now)?,
            None => ExpiredEntries::default(),
        };
        let days = self.config().general.archive_retention_days;
        let of_failed = of_failed.iter().map(|(agent, count)| {
            format!(
                "retention keeps {} of {agent}, whose run failed",
                describe_older_entries(*count, days)
            )
        });
        let unread = unread.iter().map(|error| {
            let message = error.message();
            format!("retention keeps what is in a directory that it cannot read: {message}")
        });
        let unclear = unclear.iter().map(|(fault, count)| {
            let what = describe_older_entries(*count, days);
            format!("retention keeps {what}: {fault}; correct the line, or remove it")
        });
        let mut notes: Vec<String> = of_failed.chain(unread).chain(unclear).collect();
        if confirmed.is_none_or(|time| now - time >= LONG_RUN_GAP) {
            let all = self
                .find_expired_before(scope, self.retention_cutoff(now), now)?
                .entries;
            let since = confirmed.map_or("no earlier run is known".to_string(), |time| {
                format!("the last run before was on {}", time.format("%Y-%m-%d"))
            });
            if all.len() > expired.len() {
                notes.push(format!(
                    "retention keeps {} for now: {since}, so only a run a day from now confirms \
                     the date",
                    describe_older_entries(all.len() - expired.len(), days)
                ));
            }
        }
        Ok((expired, notes))
    }

    /// What is older than a time, of a run's agents and of those that left the config.
    ///
    /// # Errors
    /// A ledger or pins that cannot be read.
    fn find_expired_before(
        &self,
        scope: &RetentionScope<'_>,
        limit: DateTime<FixedOffset>,
        now: DateTime<FixedOffset>,
    ) -> Result<ExpiredEntries> {
        let growing = scope
            .gaining_entries
            .iter()
            .filter_map(|name| self.config().agent(name));
        let growing: HashSet<&str> = growing.map(|it| it.archive_subdir.as_str()).collect();
        let mut expired = ExpiredEntries::default();
        for directory in self.scope_directories(scope)? {
            let keeps_newest = !directory.to_str().is_some_and(|it| growing.contains(it));
            match self
                .archive
                .expired_entries(&directory, limit, keeps_newest)
            {
                Ok(entries) => expired.entries.extend(entries),
                Err(error) => expired.directory_errors.push(error),
            }
        }
        let ExpiredEntries {
            entries,
            kept_of_failed: of_failed,
            unclear_pins: unclear,
            ..
        } = &mut expired;
        if !entries.is_empty() {
            let pins = Pins::read(&self.archive)?;
            entries.retain(|entry| !pins.contains(&entry.path));
            let paths = entries.iter().map(|entry| entry.path.as_path());
            let facts = self.read_ledger_facts(paths, limit, now, &scope.gaining_entries, &pins)?;
            entries.retain(|entry| {
                !facts.needed_entries.contains(&entry.path)
                    && self.can_delete(entry, &facts, scope, of_failed)
            });
            *unclear = pins
                .find_faults()
                .into_iter()
                .map(|fault| (fault, 0))
                .collect();
            entries.retain(|entry| {
                let fault = unclear
                    .iter_mut()
                    .find(|(it, _)| it.may_concern(&entry.path));
                fault.map(|(_, count)| *count += 1).is_none()
            });
            unclear.retain(|(_, count)| *count > 0);
        }
        Ok(expired)
    }

    /// Whether an expired entry, of an agent if a record says so, is for this run to
    /// delete; counts those of agents whose run failed.
    fn can_delete(
        &self,
        entry: &ArchiveEntry,
        facts: &LedgerFacts,
        scope: &RetentionScope<'_>,
        kept: &mut BTreeMap<String, usize>,
    ) -> bool {
        let directory = entry.path.parent().unwrap_or(Path::new(""));
        let agents: Vec<&str> = match facts.agent_by_entry.get(&entry.path) {
            Some(agent) => vec![agent],
            // Of the original tool, or of a run that was killed.
            None => {
                let agents = self.config().agents.iter();
                let agents = agents.filter(|it| Path::new(&it.archive_subdir) == directory);
                agents.map(|it| it.name.as_str()).collect()
            }
        };
        if let Some(failed) = agents.iter().find(|name| scope.failed.contains(*name)) {
            *kept.entry(failed.to_string()).or_default() += 1;
            return false;
        }
        // Another config may use this archive, with a longer retention time.
        let has_left = |name: &&str| {
            self.config().agent(name).is_none() && !facts.active_agents.contains(*name)
        };
        agents
            .iter()
            .any(|name| scope.succeeded.contains(name) || has_left(name))
    }

    fn retention_cutoff(&self, time: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
        time - Duration::days(self.config().general.archive_retention_days.into())
    }

    /// The directories of a run's agents, and those of no agent.
    fn scope_directories(&self, scope: &RetentionScope<'_>) -> Result<BTreeSet<PathBuf>> {
        let claimed: HashSet<&Path> = self
            .agent_directories()
            .into_iter()
            .map(Path::new)
            .collect();
        let mut directories = self
            .archive
            .unclaimed_directories(&|directory| claimed.contains(directory))?;
        let names = scope.succeeded.iter().chain(&scope.failed);
        let agents = names.filter_map(|name| self.config().agent(name));
        directories.extend(agents.map(|agent| PathBuf::from(&agent.archive_subdir)));
        Ok(directories)
    }

    /// The directories of all agents, each once.
    fn agent_directories(&self) -> Vec<&str> {
        let agents = self.config().agents.iter();
        let mut directories: Vec<&str> =
            agents.map(|agent| agent.archive_subdir.as_str()).collect();
        directories.sort_unstable();
        directories.dedup();
        directories
    }

    /// Number and time of a record that is of a time that has not come yet.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub fn future_record(&self) -> Result<Option<(u64, DateTime<FixedOffset>)>> {
        let latest = self.ledger().latest_record_time()?;
        // Afterwards: what another run records meanwhile is not of the future.
        let now = self.clock().now();
        Ok(latest.filter(|(_, time)| *time > now + CLOCK_TOLERANCE))
    }

    /// What the ledger says of some entries. It is read a line at a time.
    fn read_ledger_facts<'p>(
        &self,
        entries: impl Iterator<Item = &'p Path>,
        limit: DateTime<FixedOffset>,
        now: DateTime<FixedOffset>,
        growing: &HashSet<&str>,
        pins: &Pins,
    ) -> Result<LedgerFacts> {
        let asked: HashSet<&Path> = entries.collect();
        // An entry with what was appended is nothing without the others of its run.
        let mut chains: HashMap<(String, String), Vec<PathBuf>> = HashMap::new();
        let mut pinned_chains: HashSet<(String, String)> = HashSet::new();
        let mut facts = LedgerFacts::default();
        // The newest of an agent stays also where agents share a directory.
        let mut newest: HashMap<String, Vec<PathBuf>> = HashMap::new();
        let Some(mut scan) = LedgerScan::open(&self.ledger_path())? else {
            return Ok(facts);
        };
        let mut latest: Option<DateTime<FixedOffset>> = None;
        while let Some(record) = scan.next_record()? {
            let time = latest.map_or(record.time, |latest| latest.max(record.time));
            if record.time <= now {
                latest = Some(time);
            }
            let event = record.event;
            if time >= limit && !facts.active_agents.contains(&event.agent) {
                facts.active_agents.insert(event.agent.clone());
            }
            let paths: Vec<PathBuf> = event.entries().map(|it| it.path.clone()).collect();
            if paths.is_empty() {
                continue;
            }
            let chain = (event.run.clone(), event.agent.clone());
            let is_pinned_end = |it: &WrittenEntry| it.base.is_some() && pins.contains(&it.path);
            if event.entries().any(is_pinned_end) {
                pinned_chains.insert(chain.clone());
            }
            let own = paths.iter().filter(|it| asked.contains(it.as_path()));
            let own: Vec<PathBuf> = own.cloned().collect();
            if !own.is_empty() {
                chains.entry(chain).or_default().extend(own);
            }
            for path in paths.iter().filter(|path| asked.contains(path.as_path())) {
                facts
                    .agent_by_entry
                    .insert(path.clone(), event.agent.clone());
                if time >= limit {
                    facts.needed_entries.insert(path.clone());
                }
            }
            newest.insert(event.agent, paths);
        }
        newest.retain(|agent, _| !growing.contains(agent.as_str()));
        facts.needed_entries.extend(newest.into_values().flatten());
        chains.retain(|chain, _| pinned_chains.contains(chain));
        facts.needed_entries.extend(chains.into_values().flatten());
        Ok(facts)
    }

    /// Deletes what was shown and what retention would still delete now. What is
    /// about to be deleted is recorded first, so that nobody takes a crash in
    /// between for a loss. Answers what is gone, and what could not be deleted.
    ///
    /// # Errors
    /// When nothing was deleted.
    pub(super) fn delete_expired(
        &self,
        run: &str,
        shown_plan: &RetentionPlan,
        scope: &RetentionScope<'_>,
    ) -> Result<(Vec<PathBuf>, Vec<Error>)> {
        if let Some(block) = &shown_plan.blocker {
            return Err(block.to_error(&block.reason));
        }
        if shown_plan.entries.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        // Who pins an entry now waits, and is told that it is gone.
        let _lock = lock::lock_pins(&self.archive, self.clock())?;
        let paths: HashSet<&Path> = shown_plan.entries.iter().map(PathBuf::as_path).collect();
        let (mut expired, _) = self.find_expired(scope)?;
        expired.retain(|entry| paths.contains(entry.path.as_path()));
        let events = expired.chunks(MAX_ENTRIES_PER_RECORD).map(|some| {
            let EngineSetup { trigger, user, .. } = &self.setup;
            let mut event = RunEvent::for_archive(run, Operation::Retire, *trigger, user);
            event.retired_entries = some.iter().map(|entry| entry.path.clone()).collect();
            let days = self.config().general.archive_retention_days;
            event.note = Some(describe_older_entries(some.len(), days));
            event
        });
        self.append_to_ledger(events.collect())?;
        let (mut gone, mut failed) = (Vec::new(), Vec::new());
        for entry in expired {
            match self.archive.delete_entry(&entry) {
                Ok(()) => gone.push(entry.path),
                Err(error) => failed.push(error),
            }
        }
        Ok((gone, failed))
    }

    /// The entries of some agents, oldest first within a directory.
    ///
    /// # Errors
    /// An agent that is not configured, or an archive or ledger that cannot be
    /// read.
    pub fn entry_statuses(&self, agents: &[String]) -> Result<Vec<EntryStatus>> {
        let mut directories = match agents.is_empty() {
            true => self.agent_directories(),
            false => Vec::new(),
        };
        for name in agents {
            directories.push(&self.agent(name)?.archive_subdir);
        }
        directories.sort_unstable();
        directories.dedup();
        let mut entries = Vec::new();
        for directory in directories {
            entries.extend(self.archive.list_entries(directory.as_ref())?);
        }
        let pins = Pins::read(&self.archive)?;
        let now = self.clock().now();
        let paths = entries.iter().map(|entry| entry.path.as_path());
        let said = self.read_ledger_facts(
            paths,
            self.retention_cutoff(now),
            now,
            &HashSet::new(),
            &pins,
        )?;
        let kept = |entry: ArchiveEntry| EntryStatus {
            is_pinned: pins.contains(&entry.path),
            is_recorded: said.agent_by_entry.contains_key(&entry.path),
            is_needed: said.needed_entries.contains(&entry.path),
            entry,
        };
        Ok(entries.into_iter().map(kept).collect())
    }

    /// Lines of the pins that name no entry.
    ///
    /// # Errors
    /// Pins that cannot be read.
    pub fn pin_faults(&self) -> Result<Vec<PinFault>> {
        Ok(Pins::read(&self.archive)?.find_faults())
    }

    /// Pins entries, or unpins them, all of them or none, and records it. A path
    /// may be typed in any form that leads to the entry; the entry's own name is what
    /// is pinned. Returns the entries that were not so before.
    ///
    /// # Errors
    /// A path that is no entry, or what the system answered.
    pub fn set_pinned(&self, entries: &[PathBuf], is_pinned: bool) -> Result<Vec<PathBuf>> {
        let _lock = lock::lock_pins(&self.archive, self.clock())?;
        let mut pins = Pins::read(&self.archive)?;
        let mut changed = Vec::new();
        for typed in entries {
            let entry = self.archive.resolve_typed_path(typed);
            // What is gone can be unpinned all the same.
            let is_known = |entry: &PathBuf| match is_pinned {
                true => self.archive.find_entry(entry).map(|entry| entry.is_some()),
                false => Ok(pins.contains(entry) || self.archive.find_entry(entry)?.is_some()),
            };
            let is_known = entry.as_ref().map(is_known).transpose()?;
            let (Some(entry), Some(true)) = (entry, is_known) else {
                let message = format!("the archive has no entry {}", typed.display());
                let list = self.command_line("archive list");
                return Err(Error::new(ErrorKind::User, message)
                    .with_hint(format!("`{list}` names them all")));
            };
            let is_new = match is_pinned {
                true => pins.add(&entry),
                false => pins.remove(&entry),
            };
            if is_new {
                changed.push(entry);
            }
        }
        if !changed.is_empty() {
            pins.write(&self.archive)?;
            self.record_pins(&changed, is_pinned)?;
        }
        Ok(changed)
    }

    fn record_pins(&self, entries: &[PathBuf], is_pinned: bool) -> Result<()> {
        let (act, word) = match is_pinned {
            true => (Operation::Pin, "pinned"),
            false => (Operation::Unpin, "unpinned"),
        };
        let run = reset::new_run_id();
        let events = entries.chunks(MAX_ENTRIES_PER_RECORD).map(|some| {
            let EngineSetup { trigger, user, .. } = &self.setup;
            let mut event = RunEvent::for_archive(&run, act, *trigger, user);
            let first = some.first().map(|entry| entry.display().to_string());
            let more = some.len() - 1;
            event.note = first.map(|first| match more {
                0 => first,
                more => format!("{first} and {more} more"),
            });
            event.pinned_entries = some.to_vec();
            event
        });
        self.append_to_ledger(events.collect())
            .map_err(|error| error.with_context(format!("{word}, but not recorded in the ledger")))
    }
}
