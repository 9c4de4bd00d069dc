//! The list of entries.

use std::collections::HashSet;
use std::path::Path;

use chrono::{DateTime, FixedOffset};

use super::dates;
use super::ledger_facts::{LedgerFacts, LedgerQuery};
use crate::archive::search::{EntryFacts, EntryFilter};
use crate::archive::{ArchiveEntry, agent_directory_of};
use crate::base::error::{Error, Result};
use crate::engine::runs::Retention;
use crate::lint::ScanSummary;
use crate::store::entries::directories::EntryDirectory;

/// An entry, and the reasons to keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryStatus {
    /// The entry itself.
    pub entry: ArchiveEntry,
    /// The agent's name; of one that left the config, the directory if no record names it.
    pub agent: String,
    /// Whether the agent is not in the config.
    pub has_left: bool,
    /// When it was made, by the ledger; by its name where no record names it.
    pub time: DateTime<FixedOffset>,
    /// Whether it is pinned: retention never deletes it.
    pub is_pinned: bool,
    /// Whether the ledger names it, which makes it verifiable; none if the ledger cannot be read.
    pub is_recorded: Option<bool>,
    /// Whether the undo of a run within the retention time needs it; none if the ledger cannot be
    /// read.
    pub is_needed: Option<bool>,
    /// What the scan found in it, by the ledger.
    pub findings: Option<ScanSummary>,
}

impl EntryStatus {
    /// The order of entries: by their time, then by the number within a minute.
    pub fn sort_key(&self) -> (DateTime<FixedOffset>, u32, &Path) {
        (self.time, self.entry.number, &self.entry.path)
    }
}

/// A list of entries.
#[derive(Debug)]
pub struct EntryList {
    /// The entries.
    pub entries: Vec<EntryStatus>,
    /// Why the ledger cannot be read, if that is so.
    pub ledger_error: Option<Error>,
}

impl Retention {
    /// Returns the entries of some agents, or of all where none is named, that a filter allows:
    /// oldest first within a directory. Agents that left the config have the names of their
    /// directories.
    ///
    /// # Errors
    /// An unknown agent, or an archive that cannot be read.
    pub fn entry_statuses(&self, agents: &[String], filter: &EntryFilter) -> Result<EntryList> {
        let directories = self.named_directories(agents)?;
        let mut entries = Vec::new();
        for directory in &directories {
            let listed = self.context.entries().list(&directory.path)?;
            entries.extend(listed.into_iter().map(|entry| (directory, entry)));
        }
        let pins = self.context.entries().pins()?;
        let now = self.context.clock().now();
        let limit = now - dates::days(self.context.config().general.archive_retention_days);
        let facts = self.read_ledger_facts(&LedgerQuery {
            entries: entries
                .iter()
                .map(|(_, entry)| entry.path.as_path())
                .collect(),
            versions: HashSet::new(),
            version_limit: limit,
            now,
            pins: &*pins,
        });
        // The entries can be listed, and copied, without the ledger.
        let (facts, ledger_error) = facts.map_or_else(
            |error| (LedgerFacts::unknown(entries.len()), Some(error)),
            |facts| (facts, None),
        );
        let is_known = ledger_error.is_none();
        let zone = self.context.clock().zone();
        let mut statuses = Vec::new();
        let all = entries.into_iter().zip(facts.entries).enumerate();
        for (place, ((directory, entry), record)) in all {
            let is_pinned = pins.entries().contains(&entry.path);
            let recorded = record.as_ref().and_then(|it| facts.agents.get(it.agent));
            let recorded = recorded.map(|agent| agent.name.clone());
            let has_left = directory.has_left();
            let is_allowed = recorded
                .iter()
                .cloned()
                .chain(directory.names())
                .any(|agent| {
                    filter.allows(&EntryFacts {
                        agent: &agent,
                        kind: entry.kind,
                        stamp: entry.stamp,
                        is_pinned,
                        has_left,
                    })
                });
            if is_allowed {
                statuses.push(EntryStatus {
                    agent: recorded.unwrap_or_else(|| directory.label()),
                    has_left,
                    time: match &record {
                        Some(record) => zone.at(record.made_at),
                        None => zone.resolve(entry.stamp),
                    },
                    is_pinned,
                    findings: facts.findings.get(&place).cloned(),
                    is_recorded: is_known.then_some(record.is_some()),
                    is_needed: is_known.then_some(record.is_some_and(|it| {
                        it.recorded_at >= limit || it.is_newest || it.is_part_of_pinned
                    })),
                    entry,
                });
            }
        }
        // The clock may have been set back between two entries, or the time zone changed.
        statuses.sort_by(|one, other| {
            let directories = [one, other].map(|it| agent_directory_of(&it.entry.path));
            let by_time = || one.sort_key().cmp(&other.sort_key());
            directories[0].cmp(directories[1]).then_with(by_time)
        });
        Ok(EntryList {
            entries: statuses,
            ledger_error,
        })
    }

    /// Returns the directories of these agents; all, where none is named.
    ///
    /// # Errors
    /// An unknown agent, or an archive that cannot be read.
    fn named_directories(&self, agents: &[String]) -> Result<Vec<EntryDirectory>> {
        let mut directories = self.context.entries().entry_directories()?;
        let has_directory = |name: &String| {
            directories
                .iter()
                .any(|it| it.names().any(|known| known == *name))
        };
        for name in agents.iter().filter(|name| !has_directory(name)) {
            self.context.agent(name)?;
        }
        directories.retain(|directory| {
            agents.is_empty() || directory.names().any(|name| agents.contains(&name))
        });
        Ok(directories)
    }

    /// Returns the agents among some, or among all, whose quarantine this process may not list.
    ///
    /// # Errors
    /// The archive cannot be read.
    pub fn agents_with_hidden_quarantine(&self, agents: &[String]) -> Result<Vec<String>> {
        let mut directories = self.context.entries().entry_directories()?;
        directories.retain(|directory| {
            let is_named =
                agents.is_empty() || directory.names().any(|name| agents.contains(&name));
            is_named
                && self
                    .context
                    .entries()
                    .has_hidden_quarantine(&directory.path)
        });
        Ok(directories.iter().map(EntryDirectory::label).collect())
    }
}
