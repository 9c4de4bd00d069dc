//! What the ledger says of an agent and of the entries in its directories, newest first.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};

use super::subject::ResolvedSubject;
use crate::archive::agent_directory_of;
use crate::base::error::Result;
use crate::engine::records::Timelines;
use crate::engine::records::run_history::{HistoryEntry, UndoMarks};
use crate::store::record::{Operation, Outcome, RunEvent};

/// A run of the agent.
pub(super) enum ScannedRun {
    /// One that found the memory unchanged, at this time.
    Unchanged(DateTime<FixedOffset>),
    /// Another one.
    Recorded(Box<HistoryEntry>),
}

impl ScannedRun {
    /// Returns the time of its record.
    pub fn time(&self) -> DateTime<FixedOffset> {
        match self {
            ScannedRun::Unchanged(time) => *time,
            ScannedRun::Recorded(past) => past.record.time,
        }
    }
}

/// What the ledger says.
#[derive(Default)]
pub(super) struct ScannedLedger {
    /// The runs of the agent, newest first.
    pub runs: Vec<ScannedRun>,
    /// Paths of the entries that these runs name.
    pub recorded: HashSet<PathBuf>,
    /// Paths of entries in the directories of the agent that runs of other agents name.
    pub of_others: HashSet<PathBuf>,
    /// Entries that retention deleted, with the time of the last deletion.
    pub retired: HashMap<PathBuf, DateTime<FixedOffset>>,
    /// Whether older records were not read.
    pub has_more: bool,
}

impl Timelines {
    /// Reads the records about an agent until they fill `max_rows` rows.
    pub(super) fn scan_timeline(
        &self,
        subject: &ResolvedSubject,
        max_rows: usize,
        goes_on: &dyn Fn() -> bool,
        notes: &mut Vec<String>,
    ) -> Result<ScannedLedger> {
        let agent = subject.agent.as_str();
        let mut back = self.context.ledger().scan_backwards()?;
        let mut marks = UndoMarks::default();
        let mut found = ScannedLedger::default();
        let mut row_count = 0;
        loop {
            if !goes_on() {
                found.has_more = true;
                break;
            }
            // A record of several unchanged agents names no entries.
            let next = back.next_readable(&mut |it| {
                it.is_about_agent(agent) || it.is_about_archive() || !it.agent.is_empty()
            })?;
            let Some((_, record)) = next else { break };
            let Some(view) = record.view_of_agent(agent) else {
                found.note_other_record(subject, record.time, record.event);
                continue;
            };
            for place in marks.take_undos_of(&view.event) {
                if let ScannedRun::Recorded(past) = &mut found.runs[place] {
                    past.is_redo = view.event.undone_run.is_some();
                }
            }
            if found.has_more {
                if marks.has_unresolved() {
                    continue;
                }
                break;
            }
            let undone_by = marks.add(&view.event, found.runs.len());
            let is_unchanged = view.event.outcome == Outcome::Unchanged;
            let continues = matches!(found.runs.last(), Some(ScannedRun::Unchanged(_)));
            row_count += usize::from(!(is_unchanged && continues)) + view.event.entries().count();
            let paths = view.event.entries().map(|it| it.path.clone());
            found.recorded.extend(paths);
            found.runs.push(if is_unchanged {
                ScannedRun::Unchanged(view.time)
            } else {
                ScannedRun::Recorded(Box::new(HistoryEntry {
                    record: view,
                    undone_by,
                    is_redo: false,
                }))
            });
            found.has_more = row_count > max_rows;
        }
        if let Some(error) = back.take_unread() {
            notes.push(format!("older records are not shown: {}", error.message()));
        }
        Ok(found)
    }
}

impl ScannedLedger {
    /// Returns whether the record of a run names an entry.
    pub fn names(&self, entry: &Path) -> bool {
        self.recorded.contains(entry) || self.of_others.contains(entry)
    }

    /// Notes the entries of a record that is not about the agent.
    fn note_other_record(
        &mut self,
        subject: &ResolvedSubject,
        time: DateTime<FixedOffset>,
        event: RunEvent,
    ) {
        let is_here = |path: &PathBuf| subject.directories.contains(agent_directory_of(path));
        let named = event.entries().map(|it| it.path.clone());
        self.of_others.extend(named.filter(is_here));
        if event.operation == Operation::Retire {
            for path in event.retired_entries.into_iter().filter(is_here) {
                self.retired.entry(path).or_insert(time);
            }
        }
    }
}
