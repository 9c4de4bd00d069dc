//! Agents that write unusually much: bytes of theirs that were archived in a day, against the agent's
//! own median.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};

use super::GrowthReport;
use crate::archive::{EntryKind, WrittenEntry};
use crate::store::record::{FileChange, FileState, RunEvent};

/// Number of days before the moment that an agent is compared with.
const HISTORY_DAYS: i64 = 14;

/// Number of these days on which something was archived, from which the median means something.
const MIN_HISTORY_DAYS: usize = 7;

/// How many times the median is unusual.
const UNUSUAL_FACTOR: u64 = 3;

/// How many bytes a day above the median are unusual.
const MIN_EXCESS_BYTES: u64 = 16 << 10;

/// Bytes archived by each agent.
pub(super) struct GrowthCounter {
    since: DateTime<FixedOffset>,
    until: DateTime<FixedOffset>,
    by_agent: BTreeMap<String, ArchivedBytes>,
    /// Entries that were counted: a later record of a run names its entry once more.
    counted: HashSet<PathBuf>,
}

/// Bytes archived by one agent.
#[derive(Default)]
struct ArchivedBytes {
    /// Since the moment.
    recent: u64,
    /// On each day before, the last one first.
    days: [u64; HISTORY_DAYS as usize],
}

/// Returns how many bytes of an entry the agent wrote: of a whole file, those beside the rules. What a
/// push keeps, and what an undo displaces, is in the entry of a later or an earlier run.
fn agent_bytes(event: &RunEvent, change: &FileChange, entry: &WrittenEntry) -> u64 {
    let file_size = |state: &Option<FileState>| match state {
        Some(FileState::File { size, .. }) => *size,
        _ => 0,
    };
    match entry.kind {
        EntryKind::Special | EntryKind::Redacted => 0,
        EntryKind::Appended => entry.size,
        EntryKind::Late => entry.size.saturating_sub(file_size(&change.before)),
        _ if event.kept_scratch.is_some() => 0,
        EntryKind::Scratch => entry.size,
        EntryKind::FullBackup if !event.operation.installs_baselines() => 0,
        EntryKind::FullBackup => {
            let rules = match event.boundary {
                Some(boundary) => boundary.offset as u64,
                None => file_size(&change.after),
            };
            entry.size.saturating_sub(rules)
        }
    }
}

impl GrowthCounter {
    pub fn new(since: DateTime<FixedOffset>, until: DateTime<FixedOffset>) -> GrowthCounter {
        GrowthCounter {
            since,
            until,
            by_agent: BTreeMap::new(),
            counted: HashSet::new(),
        }
    }

    /// Returns the time from which on records are counted.
    pub fn first_needed_time(&self) -> DateTime<FixedOffset> {
        self.since - chrono::Duration::days(HISTORY_DAYS)
    }

    pub fn add_event(&mut self, event: &RunEvent, time: DateTime<FixedOffset>) {
        let mut bytes = 0;
        for change in event.changes() {
            for entry in change.entries() {
                if self.counted.insert(entry.path.clone()) {
                    bytes += agent_bytes(event, change, entry);
                }
            }
        }
        if bytes == 0 {
            return;
        }
        let archived = self.by_agent.entry(event.agent.clone()).or_default();
        if time >= self.since {
            archived.recent += bytes;
            return;
        }
        let day = (self.since - time).num_days();
        let day = usize::try_from(day).ok();
        if let Some(sum) = day.and_then(|day| archived.days.get_mut(day)) {
            *sum += bytes;
        }
    }

    /// Returns the agents that write unusually much, the one with the largest excess first.
    pub fn finish(self) -> Vec<GrowthReport> {
        // A part of a day says nothing about a whole one.
        let hours = (self.until - self.since).num_hours().max(24) as u64;
        let reports = self.by_agent.into_iter().filter_map(|(agent, archived)| {
            let mut days: Vec<u64> = archived.days.into_iter().filter(|it| *it > 0).collect();
            days.sort_unstable();
            let usual = *days.get(days.len() / 2)?;
            let bytes_per_day = archived.recent.saturating_mul(24) / hours;
            let is_unusual = days.len() >= MIN_HISTORY_DAYS
                && bytes_per_day > usual.saturating_mul(UNUSUAL_FACTOR)
                && bytes_per_day > usual.saturating_add(MIN_EXCESS_BYTES);
            is_unusual.then_some(GrowthReport {
                agent,
                bytes_per_day,
                usual_bytes_per_day: usual,
            })
        });
        let mut reports: Vec<GrowthReport> = reports.collect();
        reports.sort_by_key(|it| std::cmp::Reverse(it.bytes_per_day - it.usual_bytes_per_day));
        reports
    }
}
