//! What stays in the archive and what goes: retention, pins, the list of entries.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Duration, FixedOffset};
use serde::{Deserialize, Serialize};

use super::ledger::{Act, Event, Scan};
use super::{Block, Engine, Setup, lock, reset};
use crate::archive::{Entry, Pins};
use crate::error::{Error, Kind, Result};

/// How many entries one record of retention names.
const RECORDED: usize = 500;

/// What retention would delete when a run has ended well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Paths below `archive_dir`, the oldest of each folder first.
    pub entries: Vec<PathBuf>,
    /// Why it would delete nothing, if there is a reason.
    pub blocked: Option<Block>,
}

/// An entry, and what keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The entry itself.
    pub entry: Entry,
    /// Retention never deletes it.
    pub pinned: bool,
    /// The ledger names it, so that it can be verified.
    pub recorded: bool,
    /// A run within the retention time can only be undone with it.
    pub needed: bool,
}

/// What the ledger says of some entries.
#[derive(Default)]
struct Said {
    recorded: HashSet<PathBuf>,
    needed: HashSet<PathBuf>,
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
    /// Which entries retention would delete now: old by name and by time of
    /// change, neither the newest of an agent nor pinned, and no undo within the
    /// retention time needs them.
    ///
    /// # Errors
    /// An archive or ledger that cannot be read, or a clock that is behind the
    /// ledger.
    pub fn retention(&self) -> Result<Vec<Entry>> {
        self.expired(&|_| true, &HashSet::new())
    }

    /// The same for the end of a run that adds an entry of some agents.
    pub(super) fn retention_after(&self, grow: &HashSet<&str>) -> Retention {
        match self.expired(&|_| true, grow) {
            Ok(entries) => Retention {
                entries: entries.into_iter().map(|entry| entry.path).collect(),
                blocked: None,
            },
            Err(error) => Retention {
                entries: Vec::new(),
                blocked: Some(Block::of(&error)),
            },
        }
    }

    /// Retention in some folders, when some agents will have a newer entry.
    fn expired(&self, within: &dyn Fn(&str) -> bool, grow: &HashSet<&str>) -> Result<Vec<Entry>> {
        // Not the last one alone: a run that asks has recorded things just now.
        let latest = self.book().latest()?;
        // Afterwards: what another run records meanwhile is not of the future.
        let now = self.clock().now();
        let limit = self.limit(now);
        if let Some((seq, time)) = latest
            && time > now
        {
            let message = format!(
                "the clock is behind the ledger's record {seq} of {}, so retention deletes nothing",
                time.format("%Y-%m-%d %H:%M:%S")
            );
            return Err(Error::new(Kind::Conflict, message)
                .hint("set the clock; entries are deleted by age"));
        }
        let growing = grow.iter().filter_map(|name| self.config().agent(name));
        let growing: HashSet<&str> = growing.map(|it| it.archive_subdir.as_str()).collect();
        let mut expired = Vec::new();
        for folder in self.folders().into_iter().filter(|folder| within(folder)) {
            let keep_newest = !growing.contains(folder);
            expired.extend(self.archive.expired(folder.as_ref(), limit, keep_newest)?);
        }
        if !expired.is_empty() {
            let pins = Pins::read(&self.archive)?;
            expired.retain(|entry| !pins.contains(&entry.path));
        }
        if !expired.is_empty() {
            let paths = expired.iter().map(|entry| entry.path.as_path());
            let said = self.said_of(paths, limit, grow)?;
            expired.retain(|entry| !said.needed.contains(&entry.path));
        }
        Ok(expired)
    }

    fn limit(&self, now: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
        now - Duration::days(self.config().general.archive_retention_days.into())
    }

    /// The folders of all agents, each once.
    fn folders(&self) -> Vec<&str> {
        let agents = self.config().agents.iter();
        let mut folders: Vec<&str> = agents.map(|agent| agent.archive_subdir.as_str()).collect();
        folders.sort_unstable();
        folders.dedup();
        folders
    }

    /// What the ledger says of some entries. It is read a line at a time.
    fn said_of<'p>(
        &self,
        entries: impl Iterator<Item = &'p Path>,
        limit: DateTime<FixedOffset>,
        grow: &HashSet<&str>,
    ) -> Result<Said> {
        let asked: HashSet<&Path> = entries.collect();
        let mut said = Said::default();
        // The newest of an agent stays also where agents share a folder.
        let mut newest: HashMap<String, Vec<PathBuf>> = HashMap::new();
        let Some(mut scan) = Scan::open(&self.ledger_path())? else {
            return Ok(said);
        };
        while let Some(record) = scan.record()? {
            let event = record.what;
            let paths: Vec<PathBuf> = event.written().map(|it| it.path.clone()).collect();
            if paths.is_empty() {
                continue;
            }
            for path in paths.iter().filter(|path| asked.contains(path.as_path())) {
                said.recorded.insert(path.clone());
                if record.time >= limit {
                    said.needed.insert(path.clone());
                }
            }
            newest.insert(event.agent, paths);
        }
        newest.retain(|agent, _| !grow.contains(agent.as_str()));
        said.needed.extend(newest.into_values().flatten());
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
        let folders: HashSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        let within = |folder: &str| folders.contains(Path::new(folder));
        let mut expired = self.expired(&within, &HashSet::new())?;
        expired.retain(|entry| paths.contains(entry.path.as_path()));
        let events = expired.chunks(RECORDED).map(|some| {
            let Setup { trigger, user, .. } = &self.setup;
            let mut event = Event::of_archive(run, Act::Retire, *trigger, user);
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
    pub fn entries(&self, agents: &[String]) -> Result<Vec<Kept>> {
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
        let limit = self.limit(self.clock().now());
        let paths = entries.iter().map(|entry| entry.path.as_path());
        let said = self.said_of(paths, limit, &HashSet::new())?;
        let kept = |entry: Entry| Kept {
            pinned: pins.contains(&entry.path),
            recorded: said.recorded.contains(&entry.path),
            needed: said.needed.contains(&entry.path),
            entry,
        };
        Ok(entries.into_iter().map(kept).collect())
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
                return Err(Error::new(Kind::User, message)
                    .hint("`memory-shepherd archive list` names them all"));
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
            true => (Act::Pin, "pinned"),
            false => (Act::Unpin, "unpinned"),
        };
        let run = reset::run_id();
        let events = entries.chunks(RECORDED).map(|some| {
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
