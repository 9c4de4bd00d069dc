//! What was done to an agent, and what stood there before and after each of it.

use std::collections::HashMap;
use std::io::Read;

use super::ledger::{FileState, LedgerPosition, Record};
use super::undo::{self, Replacement, UndoRecords, UndoSource};
use super::{Engine, MAX_WINDOW_BYTES};
use crate::config::Agent;
use crate::digest::Digest;
use crate::error::{Error, Kind, Result};

/// A record of an agent's, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDiff {
    /// What the ledger says.
    pub record: Record,
    /// The run that undid it, if that was not taken back.
    pub undone_by: Option<String>,
    /// Whether it took an undo back.
    pub redo: bool,
}

/// What stood at a memory's name before and after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
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
    Untouched,
    /// It cannot be shown, for this reason.
    Gone(String),
}

impl Engine {
    /// The last records of an agent, the youngest first, at most so many.
    ///
    /// # Errors
    /// A ledger that cannot be read or whose chain is broken.
    pub fn past(&self, agent: &str, most: usize) -> Result<Vec<RunDiff>> {
        let (mut back, _) = self.ledger_back()?;
        // By the run that is undone, the one that did it.
        let mut undone: HashMap<String, String> = HashMap::new();
        // By the run that is undone, the undos whose meaning its own records tell.
        let mut open: HashMap<String, Vec<usize>> = HashMap::new();
        let mut past: Vec<RunDiff> = Vec::new();
        while (past.len() < most || !open.is_empty())
            && let Some((_, record)) = back.next(|it| it.agent == agent)?
        {
            let event = &record.what;
            for place in open.remove(&event.run).into_iter().flatten() {
                past[place].redo = event.undoes.is_some();
            }
            if past.len() == most {
                continue;
            }
            let undone_by = undone.get(&event.run).filter(|_| event.changed()).cloned();
            if let Some(run) = &event.undoes {
                open.entry(run.clone()).or_default().push(past.len());
                if undone_by.is_none() && event.changed() {
                    undone.insert(run.clone(), event.run.clone());
                }
            }
            past.push(RunDiff {
                record,
                undone_by,
                redo: false,
            });
        }
        Ok(past)
    }

    /// What stood there before and after what a record of an agent's tells, rebuilt
    /// from the archive and checked against the ledger. Changes nothing.
    ///
    /// # Errors
    /// A ledger that cannot be read, or that has no such record.
    pub fn passed(&self, agent: &Agent, seq: u64) -> Result<Passed> {
        let (back, _) = self.ledger_back()?;
        let mut back = back.until(seq.saturating_sub(1));
        let name = &agent.name;
        let Some((place, record)) = back.next(|it| it.seq == seq && it.agent == *name)? else {
            let message = format!("the ledger has no record {seq} of {name}");
            return Err(Error::new(Kind::User, message));
        };
        Ok(Passed {
            after: self.stood_after(agent, &record)?,
            before: self.stood_before(agent, place, record)?,
        })
    }

    fn stood_before(
        &self,
        agent: &Agent,
        place: LedgerPosition,
        record: Record,
    ) -> Result<RunDiffSide> {
        // Such a run had no reason to look up what that was.
        if record.what.before.is_none() && record.what.after.is_none() {
            return Ok(RunDiffSide::Untouched);
        }
        let records = UndoRecords::of_record(self, place, record)?;
        let Some(records) = records.of(&agent.name) else {
            return Ok(RunDiffSide::Untouched);
        };
        Ok(match undo::source(self, agent, records) {
            Ok(source) => self.side(source),
            Err(error) => RunDiffSide::Gone(error.to_string()),
        })
    }

    /// The beginning of what an undo would put back.
    fn side(&self, source: UndoSource) -> RunDiffSide {
        let parts = match source.replacement {
            Replacement::Nothing => return RunDiffSide::Absent,
            Replacement::File(parts) => parts,
            Replacement::Kept { name, .. } => {
                return RunDiffSide::Gone(format!("it is kept beside the memory, as {name}"));
            }
        };
        let size = match source.standing {
            FileState::File { size, .. } => size,
            _ => 0,
        };
        let mut text = Vec::new();
        let read = parts.reader(self).and_then(|reader| {
            let read = reader.take(MAX_WINDOW_BYTES as u64).read_to_end(&mut text);
            read.map_err(|error| Error::io("read", self.archive().root(), &error))
        });
        match read {
            Ok(length) => RunDiffSide::Text(text, size.saturating_sub(length as u64)),
            Err(error) => RunDiffSide::Gone(error.to_string()),
        }
    }

    /// What was installed: a version of the baseline, or what some other run found.
    fn stood_after(&self, agent: &Agent, record: &Record) -> Result<RunDiffSide> {
        let wanted: Digest = match &record.what.after {
            Some(FileState::Absent) => return Ok(RunDiffSide::Absent),
            Some(FileState::File { sha256, .. }) => *sha256,
            Some(FileState::Odd(odd)) => return Ok(RunDiffSide::Gone(format!("it left {odd}"))),
            None => return Ok(RunDiffSide::Untouched),
        };
        if let Ok(version) = self.versions.get(wanted) {
            let shown = &version[..version.len().min(MAX_WINDOW_BYTES)];
            let more = (version.len() - shown.len()) as u64;
            return Ok(RunDiffSide::Text(shown.to_vec(), more));
        }
        let (mut back, _) = self.ledger_back()?;
        while let Some((place, other)) = back.next(|it| it.agent == agent.name)? {
            let before = other.what.before.as_ref().and_then(FileState::digest);
            if other.what.changed()
                && before == Some(wanted)
                && let side @ RunDiffSide::Text(..) = self.stood_before(agent, place, other)?
            {
                return Ok(side);
            }
        }
        let why = "what was put there is not in the archive".to_string();
        Ok(RunDiffSide::Gone(why))
    }
}
