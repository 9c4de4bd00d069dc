//! Retention, pins and the list of entries: which entries stay in the archive.
//!
//! Retention runs for each agent, after every run: for agents that the run finished without a
//! failure, and for agents that left the config and have no record within the retention time. An
//! entry expires when its name, its file's time and its record are older than the retention time,
//! unless it is pinned, the newest of its agent, or of unknown owner.
//!
//! The age of an entry never depends on a single run's clock:
//!
//! - The last run that was a day ago or earlier, by this run's clock, decides the current date. Two
//!   runs a day apart must see an entry expire: a clock that is ahead for one run deletes nothing,
//!   and after a long break the second run deletes.
//! - An entry is at least as new as every record before its own. So an entry by a run whose clock
//!   was behind has their time, whatever its name says.
//! - Records with a time in the future count for nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Duration, FixedOffset};

use super::ledger::LedgerScan;
use super::observation::Blocker;
use super::plan::{Plan, RetentionPlan};
use super::record::{Operation, Outcome, RunEvent, new_run_id};
use super::run_report::AgentResult;
use super::{Engine, EngineSetup, lock};
use crate::archive::{ArchiveEntry, PinFault, Pins, WrittenEntry};
use crate::error::{Error, ErrorKind, Result};

/// Maximum number of entries that one record of retention names.
const MAX_ENTRIES_PER_RECORD: usize = 500;

/// Minimum age of the run that confirms the current date.
const MIN_CONFIRMATION_AGE: Duration = Duration::days(1);

/// Maximum difference assumed between clocks of this machine.
const CLOCK_TOLERANCE: Duration = Duration::minutes(1);

/// Time without a run after which the plan notes that retention waits for another run.
const LONG_RUN_GAP: Duration = Duration::days(3);

/// An entry, and the reasons to keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryStatus {
    /// The entry itself.
    pub entry: ArchiveEntry,
    /// Whether it is pinned: retention never deletes it.
    pub is_pinned: bool,
    /// Whether the ledger names it, which makes it verifiable.
    pub is_recorded: bool,
    /// Whether the undo of a run within the retention time needs it.
    pub is_needed: bool,
}

/// The agents whose entries retention may delete at the end of a run.
#[derive(Default)]
pub(super) struct RetentionScope<'a> {
    /// Agents that the run finished, or would finish, without a failure.
    succeeded: HashSet<&'a str>,
    /// Agents of the run that failed.
    failed: HashSet<&'a str>,
    /// Agents that get a newer entry.
    gaining_entries: HashSet<&'a str>,
}

impl<'a> RetentionScope<'a> {
    /// Takes the outcomes that a plan expects.
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

    /// Returns whether the run finished no agent without a failure.
    pub fn is_empty(&self) -> bool {
        self.succeeded.is_empty()
    }

    /// Takes the outcomes of a run.
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

/// Entries that have expired before a time.
#[derive(Default)]
struct ExpiredEntries {
    /// The entries that retention may delete.
    entries: Vec<ArchiveEntry>,
    /// Number of entries that stay, by agent whose run failed.
    kept_of_failed: BTreeMap<String, usize>,
    /// Errors that keep all entries of a directory.
    directory_errors: Vec<Error>,
    /// Pins of unknown meaning that keep entries, with the number of these.
    unclear_pins: Vec<(PinFault, usize)>,
}

/// What the ledger records about some entries.
#[derive(Default)]
struct LedgerFacts {
    /// The agent of each entry that a record names.
    agent_by_entry: HashMap<PathBuf, String>,
    needed_entries: HashSet<PathBuf>,
    /// Agents with a record within the retention time.
    active_agents: HashSet<String>,
}

/// Returns, for example, "12 entries older than 30 days".
pub(super) fn describe_older_entries(entries: usize, days: u32) -> String {
    let plural = if entries == 1 { "y" } else { "ies" };
    let days = match days {
        1 => "1 day".to_string(),
        days => format!("{days} days"),
    };
    format!("{entries} entr{plural} older than {days}")
}

impl Engine {
    /// Returns the entries that retention would delete after a run in which every agent succeeds.
    ///
    /// # Errors
    /// The archive or ledger cannot be read.
    pub fn expired_entries(&self) -> Result<Vec<ArchiveEntry>> {
        let agents = self.config().agents.iter();
        let scope = RetentionScope {
            succeeded: agents.map(|agent| agent.name.as_str()).collect(),
            ..RetentionScope::default()
        };
        Ok(self.find_expired(&scope)?.0)
    }

    /// Plans what retention would delete at the end of a run.
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

    /// Finds the expired entries that may be deleted, and the reasons why others stay.
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
            format!("retention keeps all entries of an unreadable directory: {message}")
        });
        let unclear = unclear.iter().map(|(fault, count)| {
            let what = describe_older_entries(*count, days);
            format!("retention keeps {what}: {fault}; correct or remove the line")
        });
        let mut notes: Vec<String> = of_failed.chain(unread).chain(unclear).collect();
        if confirmed.is_none_or(|time| now - time >= LONG_RUN_GAP) {
            let all = self
                .find_expired_before(scope, self.retention_cutoff(now), now)?
                .entries;
            if all.len() > expired.len() {
                notes.push(format!(
                    "retention keeps {} for now: {}",
                    describe_older_entries(all.len() - expired.len(), days),
                    self.describe_unconfirmed_date(confirmed)?
                ));
            }
        }
        Ok((expired, notes))
    }

    /// Returns why no run confirms the current date yet, and which one will.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn describe_unconfirmed_date(
        &self,
        confirmed: Option<DateTime<FixedOffset>>,
    ) -> Result<String> {
        let has_records = self.ledger().latest_record_time()?.is_some();
        let since = match confirmed {
            None if has_records => {
                return Ok(
                    "all recorded runs are less than a day old; a run a day after the first \
                     confirms the date"
                        .to_string(),
                );
            }
            None => "no earlier run is known".to_string(),
            Some(time) => format!("the last run before was on {}", time.format("%Y-%m-%d")),
        };
        Ok(format!(
            "{since}, so only a run a day from now confirms the date"
        ))
    }

    /// Finds entries older than a time, of a run's agents and of those that left the config.
    ///
    /// # Errors
    /// The ledger or the pins cannot be read.
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

    /// Returns whether this run may delete an expired entry, which belongs to an agent if a record
    /// says so; counts those of agents whose run failed.
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
            // An entry of the original tool, or of a run that was killed.
            None => {
                let agents = self.config().agents.iter();
                agents
                    .filter(|it| Path::new(&it.archive_subdir) == directory)
                    .map(|it| it.name.as_str())
                    .collect()
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

    /// The directories of all agents, without duplicates.
    pub(super) fn agent_directories(&self) -> BTreeSet<&str> {
        let agents = self.config().agents.iter();
        agents.map(|agent| agent.archive_subdir.as_str()).collect()
    }

    /// Returns number and time of a record with a time in the future, if there is one.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn future_record(&self) -> Result<Option<(u64, DateTime<FixedOffset>)>> {
        let latest = self.ledger().latest_record_time()?;
        // Read the clock last: other runs may append records in between.
        let now = self.clock().now();
        Ok(latest.filter(|(_, time)| *time > now + CLOCK_TOLERANCE))
    }

    /// Collects what the ledger records about some entries, one line at a time.
    fn read_ledger_facts<'p>(
        &self,
        entries: impl Iterator<Item = &'p Path>,
        limit: DateTime<FixedOffset>,
        now: DateTime<FixedOffset>,
        growing: &HashSet<&str>,
        pins: &Pins,
    ) -> Result<LedgerFacts> {
        let asked: HashSet<&Path> = entries.collect();
        // An appended part is useless without the other entries of its run.
        let mut chains: HashMap<(String, String), Vec<PathBuf>> = HashMap::new();
        let mut pinned_chains: HashSet<(String, String)> = HashSet::new();
        let mut facts = LedgerFacts::default();
        // An agent's newest entry stays even where agents share a directory.
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

    /// Deletes the planned entries that retention would still delete now. The record precedes the
    /// deletion, so a crash in between does not look like a loss. Returns the deleted entries, and
    /// errors of those that could not be deleted.
    ///
    /// # Errors
    /// Nothing was deleted.
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
        // A process that pins an entry now waits, and then finds it deleted.
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

    /// Returns the entries of some agents, oldest first within a directory.
    ///
    /// # Errors
    /// An agent that is not configured, or an archive or ledger that cannot be read.
    pub fn entry_statuses(&self, agents: &[String]) -> Result<Vec<EntryStatus>> {
        let directories: BTreeSet<&str> = if agents.is_empty() {
            self.agent_directories()
        } else {
            let named = agents.iter().map(|name| self.agent(name));
            named
                .map(|agent| Ok(agent?.archive_subdir.as_str()))
                .collect::<Result<_>>()?
        };
        let mut entries = Vec::new();
        for directory in directories {
            entries.extend(self.archive.list_entries(directory.as_ref())?);
        }
        let pins = Pins::read(&self.archive)?;
        let now = self.clock().now();
        let paths = entries.iter().map(|entry| entry.path.as_path());
        let facts = self.read_ledger_facts(
            paths,
            self.retention_cutoff(now),
            now,
            &HashSet::new(),
            &pins,
        )?;
        let kept = |entry: ArchiveEntry| EntryStatus {
            is_pinned: pins.contains(&entry.path),
            is_recorded: facts.agent_by_entry.contains_key(&entry.path),
            is_needed: facts.needed_entries.contains(&entry.path),
            entry,
        };
        Ok(entries.into_iter().map(kept).collect())
    }

    /// Lines of the pins file that name no entry.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn pin_faults(&self) -> Result<Vec<PinFault>> {
        Ok(Pins::read(&self.archive)?.find_faults())
    }

    /// Pins or unpins entries, all of them or none, and records that. A path may be typed in any
    /// form that leads to the entry; the pin has the entry's own name. Returns the entries that
    /// were changed.
    ///
    /// # Errors
    /// A path that leads to no entry, or the system's error.
    pub fn set_pinned(&self, entries: &[PathBuf], is_pinned: bool) -> Result<Vec<PathBuf>> {
        let _lock = lock::lock_pins(&self.archive, self.clock())?;
        let mut pins = Pins::read(&self.archive)?;
        let mut changed = Vec::new();
        for typed in entries {
            let entry = self.archive.resolve_typed_path(typed);
            // A deleted entry can still be unpinned.
            let is_known = |entry: &PathBuf| -> Result<bool> {
                Ok(!is_pinned && pins.contains(entry) || self.archive.find_entry(entry)?.is_some())
            };
            let is_known = entry.as_ref().map(is_known).transpose()?;
            let (Some(entry), Some(true)) = (entry, is_known) else {
                let message = format!("no entry {} in the archive", typed.display());
                let list = self.command_line("archive list");
                return Err(Error::new(ErrorKind::User, message)
                    .with_hint(format!("run `{list}` to list all entries")));
            };
            let is_new = if is_pinned {
                pins.add(&entry)
            } else {
                pins.remove(&entry)
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
        let (act, word) = if is_pinned {
            (Operation::Pin, "pinned")
        } else {
            (Operation::Unpin, "unpinned")
        };
        let run = new_run_id();
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
        self.append_to_ledger(events.collect()).map_err(|error| {
            error.with_context(format!("{word}, but cannot record it in the ledger"))
        })
    }
}
