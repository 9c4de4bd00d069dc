//! Groups the records of the ledger into the runs of the log.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use chrono::{DateTime, FixedOffset, TimeDelta};

use crate::base::error::{Error, Result};
use crate::console::screens::log::state::{MAX_RUNS, RunSummary};
use crate::engine::{Engine, Operation, Outcome, RunEvent};

/// Maximum number of records in all runs of the log.
const MAX_LOG_RECORDS: usize = 50_000;

/// Loads the last runs of the ledger, at most [`MAX_RUNS`], newest first, with their times as local
/// times; with the reason if older ones cannot be read.
///
/// # Errors
/// The ledger cannot be read or is damaged.
pub fn load_runs(engine: &Engine) -> Result<(Vec<RunSummary>, Option<Error>)> {
    let (mut names, mut records) = (HashSet::new(), Vec::new());
    let unread = engine.ledger().for_each_record_backwards(|record| {
        names.insert(record.event.run.clone());
        let fits = names.len() <= MAX_RUNS && records.len() < MAX_LOG_RECORDS;
        if fits {
            let time = record.time;
            let views = record.event.into_views().into_iter().rev();
            records.extend(views.map(|event| (time, event)));
        }
        fits
    })?;
    Ok((group_into_runs(records.into_iter().rev()), unread))
}

/// Groups records in ledger order into runs, however the records of several runs are mixed; returns
/// the last ones, newest first. What a later run records as a repair of a run is a row of its own.
fn group_into_runs(
    records: impl Iterator<Item = (DateTime<FixedOffset>, RunEvent)>,
) -> Vec<RunSummary> {
    let mut runs: Vec<RunSummary> = Vec::new();
    // Number of the last record of each run.
    let mut last_records: Vec<usize> = Vec::new();
    let mut run_indices: HashMap<String, usize> = HashMap::new();
    let mut repair_indices: HashMap<String, usize> = HashMap::new();
    for (number, (time, event)) in records.enumerate() {
        if event.operation == Operation::Retire {
            if let Some(place) = run_indices.get(&event.run) {
                runs[*place].retired_entries += event.retired_entries.len();
            }
            continue;
        }
        if event.agent.is_empty() && event.operation.replaces_memories() {
            if let Some(place) = run_indices.get(&event.run) {
                runs[*place].problem = event.note;
            }
            continue;
        }
        let undone = event
            .undone_run
            .as_ref()
            .filter(|_| event.operation == Operation::Undo);
        let undone = undone.and_then(|undone| run_indices.get(undone).copied());
        // The run that an undo of an undo restores.
        let redone = undone.and_then(|place| {
            let mut undos = runs[place].events.iter();
            let undo = undos.find(|it| it.agent == event.agent)?;
            undo.undone_run.clone()
        });
        let redo = redone.is_some();
        // A refused or failed undo changed nothing.
        if let Some(place) = undone.filter(|_| event.outcome == Outcome::Ok) {
            let undone = &mut runs[place].undone_agents;
            undone.retain(|agent| *agent != event.agent);
            undone.push(event.agent.clone());
            if let Some(place) = redone.and_then(|run| run_indices.get(&run)) {
                runs[*place]
                    .undone_agents
                    .retain(|agent| *agent != event.agent);
            }
        }
        let began_at = time - TimeDelta::milliseconds(event.duration_ms as i64);
        let indices = match event.operation {
            Operation::Repair => &mut repair_indices,
            _ => &mut run_indices,
        };
        let place = *indices.entry(event.run.clone()).or_insert(runs.len());
        if place == runs.len() {
            last_records.push(number);
            runs.push(RunSummary {
                run_id: event.run.clone(),
                began_at,
                ended_at: time,
                events: Vec::new(),
                undone_agents: Vec::new(),
                is_redo: redo,
                retired_entries: 0,
                problem: None,
            });
        }
        last_records[place] = number;
        let run = &mut runs[place];
        run.began_at = run.began_at.min(began_at);
        run.ended_at = time;
        run.events.push(event);
    }
    let mut runs: Vec<(usize, RunSummary)> = last_records.into_iter().zip(runs).collect();
    runs.sort_by_key(|(last_record, _)| Reverse(*last_record));
    runs.truncate(MAX_RUNS);
    runs.into_iter().map(|(_, run)| run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::{Clock, SystemClock};

    /// Returns a record as the ledger has it.
    fn run_record(run: &str, act: &str, agent: &str, outcome: &str, undoes: &str) -> RunEvent {
        let text = format!(
            r#"{{"run":"{run}","act":"{act}","trigger":"cli","user":"op","agent":"{agent}","host":"local","outcome":"{outcome}","undoes":{undoes}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn run_lists_only_successfully_undone_agents() {
        let first = r#""first""#;
        let records = [
            run_record("first", "reset", "alpha", "ok", "null"),
            run_record("first", "reset", "bravo", "ok", "null"),
            run_record("second", "undo", "alpha", "ok", first),
            run_record("second", "undo", "bravo", "refused", first),
            run_record("third", "undo", "bravo", "failed", first),
            run_record("fourth", "undo", "alpha", "ok", first),
        ];
        let time = SystemClock.now();
        let runs = group_into_runs(records.into_iter().map(|it| (time, it)));
        assert_eq!(runs.last().unwrap().undone_agents, ["alpha"]);
        assert!(runs.iter().all(|run| !run.is_redo));
    }

    #[test]
    fn run_whose_undo_was_redone_is_not_undone() {
        let records = [
            run_record("first", "reset", "alpha", "ok", "null"),
            run_record("first", "reset", "bravo", "ok", "null"),
            run_record("second", "undo", "alpha", "ok", r#""first""#),
            run_record("second", "undo", "bravo", "ok", r#""first""#),
            run_record("third", "undo", "alpha", "ok", r#""second""#),
        ];
        let time = SystemClock.now();
        let runs = group_into_runs(records.into_iter().map(|it| (time, it)));
        let undone: Vec<_> = runs
            .iter()
            .map(|run| (run.verb(), run.undone_agents.concat()))
            .collect();
        let expected = [("redo", ""), ("undo", "alpha"), ("reset", "bravo")];
        assert_eq!(undone, expected.map(|(verb, who)| (verb, who.to_string())));
        let undoable: Vec<&str> = runs.iter().flat_map(|run| run.undoable_agents()).collect();
        assert_eq!(undoable, ["alpha"]);
    }

    #[test]
    fn records_of_one_run_id_are_one_run() {
        let mut records = [
            run_record("first", "reset", "alpha", "ok", "null"),
            run_record("other", "reset", "delta", "refused", "null"),
            run_record("first", "reset", "bravo", "ok", "null"),
            run_record("third", "pin", "", "ok", "null"),
            run_record("first", "repair", "bravo", "ok", "null"),
        ];
        records[0].duration_ms = 3_000;
        records[2].duration_ms = 4_000;
        let start = SystemClock.now();
        let time = |number: usize| start + TimeDelta::seconds(number as i64);
        let records = records.into_iter().enumerate();
        let runs = group_into_runs(records.map(|(number, it)| (time(number), it)));
        let ids: Vec<(&str, &str)> = runs
            .iter()
            .map(|run| (run.verb(), run.run_id.as_str()))
            .collect();
        let expected = [
            ("repair", "first"),
            ("pin", "third"),
            ("reset", "first"),
            ("reset", "other"),
        ];
        assert_eq!(ids, expected);
        assert_eq!(runs[2].count_outcome(Outcome::Ok), 2);
        // Its agents worked at the same time: from 3 s before its first record to its last one.
        assert_eq!(runs[2].to_result_view().duration_ms, 5_000);
    }

    #[test]
    fn run_list_is_limited_to_newest() {
        let time = SystemClock.now();
        let records = (0..MAX_RUNS + 2)
            .map(|number| run_record(&number.to_string(), "reset", "a", "ok", "null"));
        let runs = group_into_runs(records.map(|it| (time, it)));
        assert_eq!(runs.len(), MAX_RUNS);
        assert_eq!(
            runs[0].run_id,
            (MAX_RUNS + 1).to_string(),
            "the newest are kept"
        );
    }
}
