//! All records of a ledger, in order, and found by agent and by run.

use std::collections::HashMap;
use std::ops::Deref;

use super::Record;

/// All records, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    all: Vec<Record>,
    agents: HashMap<String, Vec<usize>>,
    runs: HashMap<String, Vec<usize>>,
}

impl Records {
    /// The records of an agent, oldest first.
    pub fn of_agent(&self, agent: &str) -> impl DoubleEndedIterator<Item = &Record> {
        self.at(self.agents.get(agent))
    }

    /// The records of a run, oldest first.
    pub fn of_run(&self, run: &str) -> impl DoubleEndedIterator<Item = &Record> {
        self.at(self.runs.get(run))
    }

    fn at<'r>(
        &'r self,
        places: Option<&'r Vec<usize>>,
    ) -> impl DoubleEndedIterator<Item = &'r Record> {
        places.into_iter().flatten().map(|place| &self.all[*place])
    }

    pub(super) fn push(&mut self, record: Record) {
        let place = self.all.len();
        let keys = [
            (&mut self.agents, &record.what.agent),
            (&mut self.runs, &record.what.run),
        ];
        for (map, key) in keys {
            match map.get_mut(key) {
                Some(places) => places.push(place),
                None => drop(map.insert(key.clone(), vec![place])),
            }
        }
        self.all.push(record);
    }
}

impl Deref for Records {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        &self.all
    }
}
