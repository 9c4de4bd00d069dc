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

use super::ledger::{Event, Operation, Outcome, Scan};
use super::plan::Plan;
use super::reset::AgentResult;
use super::{Block, Engine, Setup, lock, reset};
use crate::archive::{Entry, PinFault, Pins, Written};
use crate::error::{Error, Kind, Result};

/// How many entries one record of retention names.
const MAX_ENTRIES_PER_RECORD: usize = 500;

/// How long ago a run has to be that confirms how late it is.
const CONFIRMATION_AGE: Duration = Duration::days(1);

/// So much may clocks of this machine be apart.
const CLOCK_TOLERANCE: Duration = Duration::minutes(1);

/// After how long without a run it is said that retention waits for another one.
const LONG_PAUSE: Duration = Duration::days(3);

/// What retention would delete when a run has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Paths below `archive_dir`, the oldest of each directory first.
    pub entries: Vec<PathBuf>,
    /// Why it would delete nothing, if it cannot.
    pub blocked: Option<Block>,
    /// What else has expired and stays, and why.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// An entry, and what keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryStatus {
    /// The entry itself.
    pub entry: Entry,
    /// Retention never deletes it.
    pub pinned: bool,
    /// The ledger names it, so that it can be verified.
    pub recorded: bool,
    /// A run within the retention time can only be undone with it.
    pub needed: bool,
}

/// Whose entries retention may delete at the end of a run.
#[derive(Default)]
pub(super) struct RetentionScope<'a> {
    /// Agents that the run brought, or would bring, to a good end.
    ended: HashSet<&'a str>,
    /// Agents of the run that were not brought to a good end.
    failed: HashSet<&'a str>,
    /// Agents that get a newer entry.
    growing: HashSet<&'a str>,
}

impl<'a> RetentionScope<'a> {
    /// What a plan says.
    pub fn of_plan(plan: &'a Plan) -> RetentionScope<'a> {
        let idle = plan.skipped.iter().filter(|it| it.kind.is_none());
        let refused = plan.skipped.iter().filter(|it| it.kind.is_some());
        let steps = plan.steps.iter();
        let ended = steps.clone().map(|it| it.agent.as_str());
        RetentionScope {
            ended: ended.chain(idle.map(|it| it.agent.as_str())).collect(),
            failed: refused.map(|it| it.agent.as_str()).collect(),
            growing: steps
                .filter(|step| step.entry.is_some())
                .map(|step| step.agent.as_str())
                .collect(),
        }
    }

    /// Whether the run brought no agent to a good end.
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// What came of a run.
    pub fn of_results(results: &'a [AgentResult]) -> RetentionScope<'a> {
        let mut scope = RetentionScope::default();
        for result in results {
            let names = match result.outcome {
                Outcome::Ok | Outcome::Unchanged => &mut scope.ended,
                _ => &mut scope.failed,
            };
            names.insert(&result.agent);
        }
        scope
    }
}

/// What has expired before a time.
#[derive(Default)]
struct Expired {
    /// The entries that may go.
    entries: Vec<Entry>,
    /// How many stay of each agent whose run failed.
    of_failed: BTreeMap<String, usize>,
    /// Why a directory of the archive keeps all of its entries.
    unread: Vec<Error>,
    /// Pins that keep entries which they do not name, with how many.
    unclear: Vec<(PinFault, usize)>,
}

/// What the ledger says of some entries.
#[derive(Default)]
struct LedgerFacts {
    /// The agent of each entry that a record names.
    agents: HashMap<PathBuf, String>,
    needed: HashSet<PathBuf>,
    /// Agents that a run was about within the retention time.
    active: HashSet<String>,
}

/// "12 entries older than 30 days"
pub(super) fn older(entries: usize, days: u32) -> String {
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
    pub fn retention(&self) -> Result<Vec<Entry>> {
        let agents = self.config().agents.iter();
        let scope = RetentionScope {
            ended: agents.map(|agent| agent.name.as_str()).collect(),
            ..RetentionScope::default()
        };
        Ok(self.expired(&scope)?.0)
    }

    /// What retention would delete at the end of a run.
    pub(super) fn retention_after(&self, scope: &RetentionScope<'_>) -> Retention {
        match self.expired(scope) {
            Ok((entries, notes)) => Retention {
                entries: entries.into_iter().map(|entry| entry.path).collect(),
                blocked: None,
                notes,
            },
            Err(error) => Retention {
                blocked: Some(Block::of(&error)),
                ..Retention::default()
            },
        }
    }

    /// The entries that have expired and may go, and why others stay.
    fn expired(&self, scope: &RetentionScope<'_>) -> Result<(Vec<Entry>, Vec<String>)> {
        let now = self.clock().now();
        let confirmed = self.book().last_before(now - CONFIRMATION_AGE)?;
        let Expired {
            entries: expired,
            of_failed,
            unread,
            unclear,
        } = match confirmed {
            Some(time) => self.expired_by(scope, self.limit(time), now)?,
            None => Expired::default(),
        };
        let days = self.config().general.archive_retention_days;
        let of_failed = of_failed.iter().map(|(agent, count)| {
            format!(
                "retention keeps {} of {agent}, whose run failed",
                older(*count, days)
            )
        });
        let unread = unread.iter().map(|error| {
            let message = error.message();
            format!("retention keeps what is in a directory that it cannot read: {message}")
        });
        let unclear = unclear.iter().map(|(fault, count)| {
            let what = older(*count, days);
            format!("retention keeps {what}: {fault}; correct the line, or remove it")
        });
        let mut notes: Vec<String> = of_failed.chain(unread).chain(unclear).collect();
        if confirmed.is_none_or(|time| now - time >= LONG_PAUSE) {
            let all = self.expired_by(scope, self.limit(now), now)?.entries;
            let since = confirmed.map_or("no earlier run is known".to_string(), |time| {
                format!("the last run before was on {}", time.format("%Y-%m-%d"))
            });
            if all.len() > expired.len() {
                notes.push(format!(
                    "retention keeps {} for now: {since}, so only a run a day from now confirms \
                     the date",
                    older(all.len() - expired.len(), days)
                ));
            }
        }
        Ok((expired, notes))
    }

    /// What is older than a time, of a run's agents and of those that left the config.
    ///
    /// # Errors
    /// A ledger or pins that cannot be read.
    fn expired_by(
        &self,
        scope: &RetentionScope<'_>,
        limit: DateTime<FixedOffset>,
        now: DateTime<FixedOffset>,
    ) -> Result<Expired> {
        let growing = scope
            .growing
            .iter()
            .filter_map(|name| self.config().agent(name));
        let growing: HashSet<&str> = growing.map(|it| it.archive_subdir.as_str()).collect();
        let mut expired = Expired::default();
        for folder in self.folders_of(scope)? {
            let keeps_newest = !folder.to_str().is_some_and(|it| growing.contains(it));
            match self.archive.expired(&folder, limit, keeps_newest) {
                Ok(entries) => expired.entries.extend(entries),
                Err(error) => expired.unread.push(error),
            }
        }
        let Expired {
            entries,
            of_failed,
            unclear,
            ..
        } = &mut expired;
        if !entries.is_empty() {
            let pins = Pins::read(&self.archive)?;
            entries.retain(|entry| !pins.contains(&entry.path));
            let paths = entries.iter().map(|entry| entry.path.as_path());
            let said = self.said_of(paths, limit, now, &scope.growing, &pins)?;
            entries.retain(|entry| {
                !said.needed.contains(&entry.path) && self.may_go(entry, &said, scope, of_failed)
            });
            *unclear = pins.faults().into_iter().map(|fault| (fault, 0)).collect();
            entries.retain(|entry| {
                let fault = unclear.iter_mut().find(|(it, _)| it.concerns(&entry.path));
                fault.map(|(_, count)| *count += 1).is_none()
            });
            unclear.retain(|(_, count)| *count > 0);
        }
        Ok(expired)
    }

    /// Whether an expired entry, of an agent if a record says so, is for this run to
    /// delete; counts those of agents whose run failed.
    fn may_go(
        &self,
        entry: &Entry,
        said: &LedgerFacts,
        scope: &RetentionScope<'_>,
        kept: &mut BTreeMap<String, usize>,
    ) -> bool {
        let folder = entry.path.parent().unwrap_or(Path::new(""));
        let agents: Vec<&str> = match said.agents.get(&entry.path) {
            Some(agent) => vec![agent],
            // Of the original tool, or of a run that was killed.
            None => {
                let agents = self.config().agents.iter();
                let agents = agents.filter(|it| Path::new(&it.archive_subdir) == folder);
                agents.map(|it| it.name.as_str()).collect()
            }
        };
        if let Some(failed) = agents.iter().find(|name| scope.failed.contains(*name)) {
            *kept.entry(failed.to_string()).or_default() += 1;
            return false;
        }
        // Another config may use this archive, with a longer retention time.
        let has_left =
            |name: &&str| self.config().agent(name).is_none() && !said.active.contains(*name);
        agents
            .iter()
            .any(|name| scope.ended.contains(name) || has_left(name))
    }

    fn limit(&self, time: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
        time - Duration::days(self.config().general.archive_retention_days.into())
    }

    /// The directories of a run's agents, and those of no agent.
    fn folders_of(&self, scope: &RetentionScope<'_>) -> Result<BTreeSet<PathBuf>> {
        let claimed: HashSet<&Path> = self.folders().into_iter().map(Path::new).collect();
        let mut folders = self
            .archive
            .other_folders(&|folder| claimed.contains(folder))?;
        let names = scope.ended.iter().chain(&scope.failed);
        let agents = names.filter_map(|name| self.config().agent(name));
        folders.extend(agents.map(|agent| PathBuf::from(&agent.archive_subdir)));
        Ok(folders)
    }

    /// The directories of all agents, each once.
    fn folders(&self) -> Vec<&str> {
        let agents = self.config().agents.iter();
        let mut folders: Vec<&str> = agents.map(|agent| agent.archive_subdir.as_str()).collect();
        folders.sort_unstable();
        folders.dedup();
        folders
    }

    /// Number and time of a record that is of a time that has not come yet.
    ///
    /// # Errors
    /// A ledger that cannot be read.
    pub fn record_of_the_future(&self) -> Result<Option<(u64, DateTime<FixedOffset>)>> {
        let latest = self.book().latest()?;
        // Afterwards: what another run records meanwhile is not of the future.
        let now = self.clock().now();
        Ok(latest.filter(|(_, time)| *time > now + CLOCK_TOLERANCE))
    }

    /// What the ledger says of some entries. It is read a line at a time.
    fn said_of<'p>(
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
        let mut said = LedgerFacts::default();
        // The newest of an agent stays also where agents share a folder.
        let mut newest: HashMap<String, Vec<PathBuf>> = HashMap::new();
        let Some(mut scan) = Scan::open(&self.ledger_path())? else {
            return Ok(said);
        };
        let mut latest: Option<DateTime<FixedOffset>> = None;
        while let Some(record) = scan.record()? {
            let time = latest.map_or(record.time, |latest| latest.max(record.time));
            if record.time <= now {
                latest = Some(time);
            }
            let event = record.what;
            if time >= limit && !said.active.contains(&event.agent) {
                said.active.insert(event.agent.clone());
            }
            let paths: Vec<PathBuf> = event.written().map(|it| it.path.clone()).collect();
            if paths.is_empty() {
                continue;
            }
            let chain = (event.run.clone(), event.agent.clone());
            let is_pinned_end = |it: &Written| it.base.is_some() && pins.contains(&it.path);
            if event.written().any(is_pinned_end) {
                pinned_chains.insert(chain.clone());
            }
            let own = paths.iter().filter(|it| asked.contains(it.as_path()));
            let own: Vec<PathBuf> = own.cloned().collect();
            if !own.is_empty() {
                chains.entry(chain).or_default().extend(own);
            }
            for path in paths.iter().filter(|path| asked.contains(path.as_path())) {
                said.agents.insert(path.clone(), event.agent.clone());
                if time >= limit {
                    said.needed.insert(path.clone());
                }
            }
            newest.insert(event.agent, paths);
        }
        newest.retain(|agent, _| !growing.contains(agent.as_str()));
        said.needed.extend(newest.into_values().flatten());
        chains.retain(|chain, _| pinned_chains.contains(chain));
        said.needed.extend(chains.into_values().flatten());
        Ok(said)
    }

    /// Deletes what was shown and what retention would still delete now. What is
    /// about to be deleted is recorded first, so that nobody takes a crash in
    /// between for a loss. Answers what is gone, and what could not be deleted.
    ///
    /// # Errors
    /// When nothing was deleted.
    pub(super) fn retire(
        &self,
        run: &str,
        shown: &Retention,
        scope: &RetentionScope<'_>,
    ) -> Result<(Vec<PathBuf>, Vec<Error>)> {
        if let Some(block) = &shown.blocked {
            return Err(block.error(&block.why));
        }
        if shown.entries.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        // Who pins an entry now waits, and is told that it is gone.
        let _lock = lock::pins(&self.archive, self.clock())?;
        let paths: HashSet<&Path> = shown.entries.iter().map(PathBuf::as_path).collect();
        let (mut expired, _) = self.expired(scope)?;
        expired.retain(|entry| paths.contains(entry.path.as_path()));
        let events = expired.chunks(MAX_ENTRIES_PER_RECORD).map(|some| {
            let Setup { trigger, user, .. } = &self.setup;
            let mut event = Event::of_archive(run, Operation::Retire, *trigger, user);
            event.retired = some.iter().map(|entry| entry.path.clone()).collect();
            let days = self.config().general.archive_retention_days;
            event.note = Some(older(some.len(), days));
            event
        });
        self.record_all(events.collect())?;
        let (mut gone, mut failed) = (Vec::new(), Vec::new());
        for entry in expired {
            match self.archive.delete(&entry) {
                Ok(()) => gone.push(entry.path),
                Err(error) => failed.push(error),
            }
        }
        Ok((gone, failed))
    }

    /// The entries of some agents, oldest first within a folder.
    ///
    /// # Errors
    /// An agent that is not configured, or an archive or ledger that cannot be
    /// read.
    pub fn entries(&self, agents: &[String]) -> Result<Vec<EntryStatus>> {
        let mut folders = match agents.is_empty() {
            true => self.folders(),
            false => Vec::new(),
        };
        for name in agents {
            folders.push(&self.agent(name)?.archive_subdir);
        }
        folders.sort_unstable();
        folders.dedup();
        let mut entries = Vec::new();
        for folder in folders {
            entries.extend(self.archive.list(folder.as_ref())?);
        }
        let pins = Pins::read(&self.archive)?;
        let now = self.clock().now();
        let paths = entries.iter().map(|entry| entry.path.as_path());
        let said = self.said_of(paths, self.limit(now), now, &HashSet::new(), &pins)?;
        let kept = |entry: Entry| EntryStatus {
            pinned: pins.contains(&entry.path),
            recorded: said.agents.contains_key(&entry.path),
            needed: said.needed.contains(&entry.path),
            entry,
        };
        Ok(entries.into_iter().map(kept).collect())
    }

    /// Lines of the pins that name no entry.
    ///
    /// # Errors
    /// Pins that cannot be read.
    pub fn pin_faults(&self) -> Result<Vec<PinFault>> {
        Ok(Pins::read(&self.archive)?.faults())
    }

    /// Pins entries, or unpins them, all of them or none, and records it. A path
    /// may be typed in any form that leads to the entry; the entry's own name is what
    /// is pinned. Returns the entries that were not so before.
    ///
    /// # Errors
    /// A path that is no entry, or what the system answered.
    pub fn pin(&self, entries: &[PathBuf], pinned: bool) -> Result<Vec<PathBuf>> {
        let _lock = lock::pins(&self.archive, self.clock())?;
        let mut pins = Pins::read(&self.archive)?;
        let mut changed = Vec::new();
        for typed in entries {
            let entry = self.archive.path_of(typed);
            // What is gone can be unpinned all the same.
            let is_known = |entry: &PathBuf| match pinned {
                true => self.archive.entry(entry).map(|entry| entry.is_some()),
                false => Ok(pins.contains(entry) || self.archive.entry(entry)?.is_some()),
            };
            let is_known = entry.as_ref().map(is_known).transpose()?;
            let (Some(entry), Some(true)) = (entry, is_known) else {
                let message = format!("the archive has no entry {}", typed.display());
                let list = self.command_line("archive list");
                return Err(
                    Error::new(Kind::User, message).hint(format!("`{list}` names them all"))
                );
            };
            let is_new = match pinned {
                true => pins.add(&entry),
                false => pins.remove(&entry),
            };
            if is_new {
                changed.push(entry);
            }
        }
        if !changed.is_empty() {
            pins.write(&self.archive)?;
            self.record_pins(&changed, pinned)?;
        }
        Ok(changed)
    }

    fn record_pins(&self, entries: &[PathBuf], pinned: bool) -> Result<()> {
        let (act, word) = match pinned {
            true => (Operation::Pin, "pinned"),
            false => (Operation::Unpin, "unpinned"),
        };
        let run = reset::run_id();
        let events = entries.chunks(MAX_ENTRIES_PER_RECORD).map(|some| {
            let Setup { trigger, user, .. } = &self.setup;
            let mut event = Event::of_archive(&run, act, *trigger, user);
            let first = some.first().map(|entry| entry.display().to_string());
            let more = some.len() - 1;
            event.note = first.map(|first| match more {
                0 => first,
                more => format!("{first} and {more} more"),
            });
            event.pins = some.to_vec();
            event
        });
        self.record_all(events.collect())
            .map_err(|error| error.context(format!("{word}, but not recorded in the ledger")))
    }
}
