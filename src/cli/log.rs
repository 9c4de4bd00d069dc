//! `log`: the ledger for people, the latest last.

use std::io;

use serde::Serialize;

use super::output::{Cell, Document, Page, Role, cell, figure};
use super::status::outcome_role;
use super::{Context, Ended};
use crate::digest::Digest;
use crate::engine::{Record, Standing};

/// What `log` answers.
#[derive(Serialize)]
struct Log<'r> {
    ledger: String,
    head: Head,
    records: Vec<&'r Record>,
}

/// The ledger's last record: what a note of it should say.
#[derive(Serialize)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) sha256: Digest,
}

impl Document for Log<'_> {
    fn text(&self, page: &mut Page<'_>) -> io::Result<()> {
        if self.records.is_empty() {
            return page.plain("the ledger has no such records yet");
        }
        let head = [
            "TIME", "RUN", "ACT", "AGENT", "OUTCOME", "LINES", "ENTRY", "NOTE",
        ];
        let title = |word| match word {
            "LINES" => figure(Role::Head, word),
            _ => cell(Role::Head, word),
        };
        let mut rows = vec![head.map(title).into_iter().collect()];
        rows.extend(self.records.iter().copied().map(cells));
        page.table(&rows)
    }
}

fn cells(record: &Record) -> Vec<Cell> {
    let event = &record.what;
    // Of the memory: what an entry holds of them depends on its kind.
    let lines = |standing: &Option<Standing>| match standing {
        Some(Standing::File { lines, .. }) => lines.to_string(),
        _ => "-".to_string(),
    };
    let lines = match (lines(&event.before), lines(&event.after)) {
        (before, after) if before == after => before,
        (before, after) => format!("{before} -> {after}"),
    };
    let entry = event.late.last().or(event.entry.as_ref());
    let entry = entry.map_or("-".to_string(), |entry| entry.path.display().to_string());
    let undoes = event.undoes.as_ref().map(|run| format!("undoes {run}"));
    let note: Vec<&str> = undoes
        .iter()
        .chain(&event.note)
        .map(String::as_str)
        .collect();
    vec![
        cell(
            Role::Plain,
            record.time.format("%Y-%m-%d %H:%M:%S").to_string(),
        ),
        cell(Role::Ours, &event.run),
        cell(Role::Plain, event.act.word()),
        cell(Role::Plain, &event.agent),
        cell(outcome_role(event.outcome), event.outcome.word()),
        figure(Role::Plain, lines),
        cell(Role::Plain, entry),
        cell(Role::Plain, note.join("; ")),
    ]
}

impl Context<'_> {
    pub(super) fn log(&mut self, count: Option<usize>, agent: Option<&str>) -> Ended {
        let engine = self.open()?;
        let all = engine.records()?;
        let (seq, sha256) = engine.ledger_head()?;
        let mut records: Vec<&Record> = match agent {
            Some(name) => all.of_agent(name).collect(),
            None => all.iter().collect(),
        };
        // An agent that left the config still has its history.
        if let (Some(name), true) = (agent, records.is_empty()) {
            engine.agent(name)?;
        }
        if let Some(count) = count {
            records.drain(..records.len().saturating_sub(count));
        }
        self.out.document(&Log {
            ledger: engine.ledger_path().display().to_string(),
            head: Head { seq, sha256 },
            records,
        })?;
        Ok(None)
    }
}
