//! The timeline of an agent: its runs and its entries across resets, newest first, also those that
//! no record names and those that retention has deleted since. Changes nothing.

mod merge;
mod scan;
mod subject;

use std::path::PathBuf;

use chrono::{DateTime, FixedOffset, NaiveDateTime};

use super::run_history::HistoryEntry;
use crate::archive::EntryKind;
use crate::base::error::Result;
use crate::engine::records::Timelines;

/// The agent whose timeline is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimelineSubject {
    /// This agent; of one that left the config, the name in its records or of its directory.
    Agent(String),
    /// The agent whose entry is at this path below `archive_dir`.
    Entry(PathBuf),
}

/// What happened to an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentTimeline {
    /// The agent's name; where nothing names it, the path of its directory.
    pub agent: String,
    /// Whether it is not in the config.
    pub has_left: bool,
    /// Runs and entries, newest first. The entries of a run follow it.
    pub rows: Vec<TimelineRow>,
    /// Whether there are older rows.
    pub has_more: bool,
    /// Why the timeline may lack something.
    pub notes: Vec<String>,
}

/// A row of a timeline.
#[derive(Clone, Debug, PartialEq)]
pub enum TimelineRow {
    /// A run.
    Run(Box<HistoryEntry>),
    /// Runs that found the memory unchanged, with nothing else in between.
    Unchanged(UnchangedRuns),
    /// An entry.
    Entry(TimelineEntry),
}

/// Runs that found the memory unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnchangedRuns {
    /// Their number.
    pub count: usize,
    /// Time of the first one.
    pub first: DateTime<FixedOffset>,
    /// Time of the last one.
    pub last: DateTime<FixedOffset>,
}

/// An entry in a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// Path below `archive_dir`.
    pub path: PathBuf,
    /// Its content, by its name.
    pub kind: EntryKind,
    /// The local time in its name.
    pub stamp: NaiveDateTime,
    /// Its size in bytes; none if neither the disk nor a record tells it.
    pub size: Option<u64>,
    /// The run that wrote it; none if no record names it.
    pub run: Option<String>,
    /// Whether retention never deletes it.
    pub is_pinned: bool,
    /// Whether it is on the disk.
    pub presence: EntryPresence,
}

/// Whether an entry is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPresence {
    /// It is.
    Present,
    /// Retention deleted it at this time.
    Retired(DateTime<FixedOffset>),
    /// It is gone, and no record says that retention deleted it.
    Missing,
    /// Its directory cannot be read.
    Unknown,
}

impl AgentTimeline {
    /// Returns the entry that a row is about: itself, or the first one of a run.
    pub fn entry_of_row(&self, index: usize) -> Option<&TimelineEntry> {
        match self.rows.get(index)? {
            TimelineRow::Entry(entry) => Some(entry),
            TimelineRow::Unchanged(_) => None,
            TimelineRow::Run(past) => match self.rows.get(index + 1)? {
                TimelineRow::Entry(entry) => {
                    let run = &past.record.event.run;
                    (entry.run.as_ref() == Some(run)).then_some(entry)
                }
                _ => None,
            },
        }
    }
}

impl Timelines {
    /// Returns what happened to an agent, also to one that left the config: at most `max_rows` rows,
    /// the newest. `goes_on` is asked before each record, and stops the work when it returns false;
    /// the result is what was found until then.
    ///
    /// # Errors
    /// An agent that neither the config nor an entry nor a record names; a ledger or an archive that
    /// cannot be read.
    pub fn agent_timeline(
        &self,
        subject: &TimelineSubject,
        max_rows: usize,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<AgentTimeline> {
        let subject = self.resolve_timeline_subject(subject, goes_on)?;
        let mut notes = Vec::new();
        let scanned = self.scan_timeline(&subject, max_rows, goes_on, &mut notes)?;
        let pins = self.context.entries().pins();
        if let Err(error) = &pins {
            notes.push(format!("pins are not shown: {}", error.message()));
        }
        let disk = self.list_timeline_entries(&subject, &scanned, &mut notes);
        let mut rows = merge::merge_rows(
            &scanned,
            disk,
            pins.ok().as_deref(),
            self.context.clock().zone(),
        );
        let has_more = scanned.has_more || rows.len() > max_rows;
        rows.truncate(max_rows);
        if rows.is_empty() && !subject.is_known {
            // Says which agents there are.
            self.context.agent(&subject.agent)?;
        }
        Ok(AgentTimeline {
            has_left: self.context.config().agent(&subject.agent).is_none(),
            agent: subject.agent,
            rows,
            has_more,
            notes,
        })
    }
}
