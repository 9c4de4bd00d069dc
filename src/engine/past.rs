//! What was done to an agent, and what stood there before and after each of it.

use std::collections::HashMap;
use std::io::Read;

use super::ledger::{Event, Record, Records, Standing};
use super::undo::{self, Replacement};
use super::{Engine, WINDOW};
use crate::config::Agent;
use crate::digest::Digest;
use crate::error::{Error, Kind, Result};

/// A record of an agent's, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
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
    pub before: Side,
    /// After it.
    pub after: Side,
}

/// What stood there at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// Nothing.
    Absent,
    /// A file: its beginning, up to [`WINDOW`] bytes, and how many follow.
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
    pub fn past(&self, agent: &str, most: usize) -> Result<Vec<Past>> {
        let records = self.records()?;
        // By the run that is undone, the one that did it.
        let mut undone: HashMap<&str, &str> = HashMap::new();
        let mut past = Vec::new();
        for record in records.of_agent(agent).rev().take(most) {
            let event = &record.what;
            let undone_by = undone.get(event.run.as_str()).filter(|_| event.changed());
            let undone_by = undone_by.map(|run| (*run).to_string());
            let mut redo = false;
            if let Some(run) = &event.undoes {
                let mut undos = records.of_run(run);
                redo = undos.any(|undo| undo.what.agent == agent && undo.what.undoes.is_some());
                if undone_by.is_none() && event.changed() {
                    undone.insert(run, &event.run);
                }
            }
            past.push(Past {
                record: record.clone(),
                undone_by,
                redo,
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
        let records = self.records()?;
        let mut own = records.of_agent(&agent.name);
        let Some(record) = own.find(|record| record.seq == seq) else {
            let message = format!("the ledger has no record {seq} of {}", agent.name);
            return Err(Error::new(Kind::User, message));
        };
        Ok(Passed {
            before: self.stood_before(agent, record),
            after: self.stood_after(agent, record, &records),
        })
    }

    fn stood_before(&self, agent: &Agent, record: &Record) -> Side {
        // Such a run had no reason to look up what that was.
        if record.what.before.is_none() && record.what.after.is_none() {
            return Side::Untouched;
        }
        let source = match undo::source(self, agent, record) {
            Ok(source) => source,
            Err(error) => return Side::Gone(error.to_string()),
        };
        let parts = match source.replacement {
            Replacement::Nothing => return Side::Absent,
            Replacement::File(parts) => parts,
            Replacement::Kept(name) => {
                return Side::Gone(format!("it is kept beside the memory, as {name}"));
            }
        };
        let size = match source.standing {
            Standing::File { size, .. } => size,
            _ => 0,
        };
        let mut text = Vec::new();
        let read = parts.reader(self).and_then(|reader| {
            let read = reader.take(WINDOW as u64).read_to_end(&mut text);
            read.map_err(|error| Error::io("read", self.archive().root(), &error))
        });
        match read {
            Ok(length) => Side::Text(text, size.saturating_sub(length as u64)),
            Err(error) => Side::Gone(error.to_string()),
        }
    }

    /// What was installed: a version of the baseline, or what some other run found.
    fn stood_after(&self, agent: &Agent, record: &Record, records: &Records) -> Side {
        let event: &Event = &record.what;
        let wanted: Digest = match &event.after {
            Some(Standing::Absent) => return Side::Absent,
            Some(Standing::File { sha256, .. }) => *sha256,
            Some(Standing::Odd(odd)) => return Side::Gone(format!("it left {odd}")),
            None => return Side::Untouched,
        };
        if let Ok(version) = self.versions.get(wanted) {
            let shown = &version[..version.len().min(WINDOW)];
            return Side::Text(shown.to_vec(), (version.len() - shown.len()) as u64);
        }
        let found = |other: &&Record| {
            let before = other.what.before.as_ref().and_then(Standing::digest);
            other.what.changed() && before == Some(wanted)
        };
        for other in records.of_agent(&agent.name).rev().filter(found) {
            if let side @ Side::Text(..) = self.stood_before(agent, other) {
                return side;
            }
        }
        Side::Gone("what was put there is not in the archive".to_string())
    }
}
