//! What was done to an agent, and what stood there before and after each of it.

use std::collections::HashMap;
use std::io::Read;

use super::ledger::{FileState, LedgerPosition, LedgerRecord};
use super::undo::{self, InstallSource, Replacement, UndoRecords};
use super::{Engine, MAX_WINDOW_BYTES};
use crate::config::Agent;
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};

/// A record of an agent's, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    /// What the ledger says.
    pub record: LedgerRecord,
    /// The run that undid it, if that was not taken back.
    pub undone_by: Option<String>,
    /// Whether it took an undo back.
    pub is_redo: bool,
}

/// What stood at a memory's name before and after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDiff {
    /// Before it.
    pub before: RunDiffSide,
    /// After it.
    pub after: RunDiffSide,
}

/// What stood there at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunDiffSide {
    /// Nothing.
    Absent,
    /// A file: its beginning, up to [`MAX_WINDOW_BYTES`] bytes, and how many follow.
    Text(Vec<u8>, u64),
    /// What was there already: the run did not touch it.
    Unchanged,
    /// It cannot be shown, for this reason.
    Unavailable(String),
}

impl Engine {
    /// The last records of an agent, the youngest first, at most so many.
    ///
    /// # Errors
    /// A ledger that cannot be read or whose chain is broken.
    pub fn agent_history(&self, agent: &str, max_entries: usize) -> Result<Vec<HistoryEntry>> {
        let (mut back, _) = self.scan_ledger_backwards()?;
        // By the run that is undone, the one that did it.
        let mut undone: HashMap<String, String> = HashMap::new();
        // By the run that is undone, the undos whose meaning its own records tell.
        let mut unresolved_undos: HashMap<String, Vec<usize>> = HashMap::new();
        let mut past: Vec<HistoryEntry> = Vec::new();
        while (past.len() < max_entries || !unresolved_undos.is_empty())
            && let Some((_, record)) = back.next_matching(|it| it.agent == agent)?
        {
            let event = &record.event;
            for place in unresolved_undos.remove(&event.run).into_iter().flatten() {
                past[place].is_redo = event.undone_run.is_some();
            }
            if past.len() == max_entries {
                continue;
            }
            let undone_by = undone
                .get(&event.run)
                .filter(|_| event.has_changed_memory())
                .cloned();
            if let Some(run) = &event.undone_run {
                unresolved_undos
                    .entry(run.clone())
                    .or_default()
                    .push(past.len());
                if undone_by.is_none() && event.has_changed_memory() {
                    undone.insert(run.clone(), event.run.clone());
                }
            }
            past.push(HistoryEntry {
                record,
                undone_by,
                is_redo: false,
            });
        }
        Ok(past)
    }

    /// What stood there before and after what a record of an agent's tells, rebuilt
    /// from the archive and checked against the ledger. Changes nothing.
    ///
    /// # Errors
    /// A ledger that cannot be read, or that has no such record.
    pub fn run_diff(&self, agent: &Agent, seq: u64) -> Result<RunDiff> {
        let (back, _) = self.scan_ledger_backwards()?;
        let mut back = back.stopping_after(seq.saturating_sub(1));
        let name = &agent.name;
        let Some((place, record)) = back.next_matching(|it| it.seq == seq && it.agent == *name)?
        else {
            let message = format!("the ledger has no record {seq} of {name}");
            return Err(Error::new(ErrorKind::User, message));
        };
        Ok(RunDiff {
            after: self.side_after(agent, &record)?,
            before: self.side_before(agent, place, record)?,
        })
    }

    fn side_before(
        &self,
        agent: &Agent,
        position: LedgerPosition,
        record: LedgerRecord,
    ) -> Result<RunDiffSide> {
        // Such a run had no reason to look up what that was.
        if record.event.before.is_none() && record.event.after.is_none() {
            return Ok(RunDiffSide::Unchanged);
        }
        let records = UndoRecords::from_record(self, position, record)?;
        let Some(records) = records.get(&agent.name) else {
            return Ok(RunDiffSide::Unchanged);
        };
        Ok(match undo::rebuild_source(self, agent, records) {
            Ok(source) => self.side_from_source(source),
            Err(error) => RunDiffSide::Unavailable(error.to_string()),
        })
    }

    /// The beginning of what an undo would put back.
    fn side_from_source(&self, source: InstallSource) -> RunDiffSide {
        let parts = match source.replacement {
            Replacement::Absent => return RunDiffSide::Absent,
            Replacement::File(parts) => parts,
            Replacement::KeptObject { name, .. } => {
                return RunDiffSide::Unavailable(format!(
                    "it is kept beside the memory, as {name}"
                ));
            }
        };
        let size = match source.state {
            FileState::File { size, .. } => size,
            _ => 0,
        };
        let mut text = Vec::new();
        let read = parts.open_reader(self).and_then(|reader| {
            let read = reader.take(MAX_WINDOW_BYTES as u64).read_to_end(&mut text);
            read.map_err(|error| Error::from_io("read", self.archive().root(), &error))
        });
        match read {
            Ok(length) => RunDiffSide::Text(text, size.saturating_sub(length as u64)),
            Err(error) => RunDiffSide::Unavailable(error.to_string()),
        }
    }

    /// What was installed: a version of the baseline, or what some other run found.
    fn side_after(&self, agent: &Agent, record: &LedgerRecord) -> Result<RunDiffSide> {
        let wanted: Digest = match &record.event.after {
            Some(FileState::Absent) => return Ok(RunDiffSide::Absent),
            Some(FileState::File { sha256, .. }) => *sha256,
            Some(FileState::Special(odd)) => {
                return Ok(RunDiffSide::Unavailable(format!("it left {odd}")));
            }
            None => return Ok(RunDiffSide::Unchanged),
        };
        if let Ok(version) = self.baseline_versions.read_version(wanted) {
            let shown = &version[..version.len().min(MAX_WINDOW_BYTES)];
            let more = (version.len() - shown.len()) as u64;
            return Ok(RunDiffSide::Text(shown.to_vec(), more));
        }
        let (mut back, _) = self.scan_ledger_backwards()?;
        while let Some((place, other)) = back.next_matching(|it| it.agent == agent.name)? {
            let before = other.event.before.as_ref().and_then(FileState::digest);
            if other.event.has_changed_memory()
                && before == Some(wanted)
                && let side @ RunDiffSide::Text(..) = self.side_before(agent, place, other)?
            {
                return Ok(side);
            }
        }
        let why = "what was put there is not in the archive".to_string();
        Ok(RunDiffSide::Unavailable(why))
    }
}
