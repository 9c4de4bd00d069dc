//! Runs of an agent, and the memory before and after each.

use std::collections::HashMap;
use std::io::Read;

use chrono::{DateTime, FixedOffset, TimeDelta};

use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::boundary::{DividedMemory, MAX_WINDOW_BYTES, select_scratch};
use crate::config::Agent;
use crate::engine::records::RunHistory;
use crate::engine::runs::content::Replacement;
use crate::engine::runs::edit;
use crate::engine::runs::undo::{self, InstallSource, UndoRecords};
use crate::layouts::FileEdit;
use crate::store::record::{
    FileChange, FileState, LedgerPosition, LedgerRecord, Operation, RunEvent,
};
use crate::transport::SpecialFile;

/// A record of an agent, and whether it was undone since.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    /// The record in the ledger.
    pub record: LedgerRecord,
    /// The run that undid it, unless that undo was undone in turn.
    pub undone_by: Option<String>,
    /// Whether it is the undo of an undo.
    pub is_redo: bool,
}

/// Finds out which records of an agent were undone since, and which undo an undo. It gets the
/// records newest first.
#[derive(Default)]
pub(in crate::engine) struct UndoMarks {
    /// The run that undid each undone run.
    undone: HashMap<String, String>,
    /// Places of the undos of each run, whose meaning depends on that run's own records.
    unresolved: HashMap<String, Vec<usize>>,
}

impl UndoMarks {
    /// Returns whether undos wait for the records of the runs that they undid.
    pub fn has_unresolved(&self) -> bool {
        !self.unresolved.is_empty()
    }

    /// Returns the places of the undos that undid the run of a record.
    pub fn take_undos_of(&mut self, event: &RunEvent) -> Vec<usize> {
        self.unresolved.remove(&event.run).unwrap_or_default()
    }

    /// Takes the record at a place of the caller's list. Returns the run that undid it, unless that
    /// undo was undone in turn.
    pub fn add(&mut self, event: &RunEvent, place: usize) -> Option<String> {
        let undone_by = self.undone.get(&event.run);
        let undone_by = undone_by.filter(|_| event.has_changed_files()).cloned();
        if let Some(run) = &event.undone_run {
            self.unresolved.entry(run.clone()).or_default().push(place);
            if undone_by.is_none() && event.has_changed_files() {
                self.undone.insert(run.clone(), event.run.clone());
            }
        }
        undone_by
    }
}

/// The last records of an agent.
#[derive(Clone, Debug)]
pub struct AgentHistoryPage {
    /// The records, newest first.
    pub entries: Vec<HistoryEntry>,
    /// Why older records cannot be read, if that is so.
    pub unread: Option<Error>,
}

/// A run of this user that can be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRun {
    /// Its id.
    pub run: String,
    /// When it ended for the last of its agents.
    pub time: DateTime<FixedOffset>,
    /// Its operation.
    pub operation: Operation,
    /// The agents that it changed and for which it is not undone, the last one first.
    pub agents: Vec<String>,
}

/// How far the records of one run are apart.
const MAX_RUN_TIME: TimeDelta = TimeDelta::days(1);

/// The memory before and after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDiff {
    /// Before the run.
    pub before: RunDiffSide,
    /// After the run.
    pub after: RunDiffSide,
}

/// The files that an edit changed.
#[derive(Clone, Debug, PartialEq)]
pub struct EditedFiles {
    /// What the ledger has of them.
    pub changes: Vec<FileChange>,
    /// The contents that are known.
    pub edits: Vec<FileEdit>,
}

/// The memory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunDiffSide {
    /// No file.
    Absent,
    /// A file: its beginning, up to [`MAX_WINDOW_BYTES`] bytes, and the number of further bytes.
    Text(Vec<u8>, u64),
    /// The same as before: the run did not change it.
    Unchanged,
    /// Cannot be shown, for this reason.
    Unavailable(String),
}

impl RunHistory {
    /// Returns the last records of an agent, newest first, at most `max_entries`.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken; in a segment that is damaged, only if no
    /// record behind it is about the agent.
    pub fn agent_history(&self, agent: &str, max_entries: usize) -> Result<AgentHistoryPage> {
        let mut back = self.context.ledger().scan_backwards()?;
        let mut marks = UndoMarks::default();
        let mut past: Vec<HistoryEntry> = Vec::new();
        while (past.len() < max_entries || marks.has_unresolved())
            && let Some((_, record)) = back.next_readable(&mut |it| it.is_about_agent(agent))?
        {
            let Some(record) = record.view_of_agent(agent) else {
                continue;
            };
            for place in marks.take_undos_of(&record.event) {
                past[place].is_redo = record.event.undone_run.is_some();
            }
            if past.len() == max_entries {
                continue;
            }
            let undone_by = marks.add(&record.event, past.len());
            past.push(HistoryEntry {
                record,
                undone_by,
                is_redo: false,
            });
        }
        match back.take_unread() {
            Some(error) if past.is_empty() => Err(error),
            unread => Ok(AgentHistoryPage {
                entries: past,
                unread,
            }),
        }
    }

    /// Returns the newest run of this user that installed baselines, or edited files, and is not
    /// undone; none if there is none.
    ///
    /// # Errors
    /// The ledger cannot be read, in a damaged segment only if no later record is of such a run.
    pub fn last_run_of_user(&self) -> Result<Option<UserRun>> {
        let mut marks: HashMap<String, UndoMarks> = HashMap::new();
        let mut found: Option<UserRun> = None;
        let unread = self.context.ledger().for_each_record_backwards(|record| {
            if found
                .as_ref()
                .is_some_and(|it| record.time < it.time - MAX_RUN_TIME)
            {
                return false;
            }
            let event = record.event;
            let marks = marks.entry(event.agent.clone()).or_default();
            let is_undone = marks.add(&event, 0).is_some();
            let is_undoable = event.has_changed_files() && event.operation != Operation::Undo;
            if is_undone || !is_undoable || event.user != self.context.user() {
                return true;
            }
            match &mut found {
                Some(found) if found.run == event.run => found.agents.push(event.agent),
                Some(_) => {}
                None => {
                    found = Some(UserRun {
                        run: event.run,
                        time: record.time,
                        operation: event.operation,
                        agents: vec![event.agent],
                    });
                }
            }
            true
        })?;
        match (found, unread) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// Returns whether an event is the undo of an undo.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn is_redo(&self, event: &RunEvent) -> Result<bool> {
        match &event.undone_run {
            Some(run) => Ok(self.context.history(&event.agent)?.undo_runs.contains(run)),
            None => Ok(false),
        }
    }

    /// Returns the memory before and after the run of a record, rebuilt from the archive and
    /// checked against the ledger. Changes nothing.
    ///
    /// # Errors
    /// The ledger cannot be read, or has no such record.
    pub fn run_diff(&self, agent: &Agent, seq: u64) -> Result<RunDiff> {
        let (place, record) = self.record_of(agent, seq)?;
        Ok(RunDiff {
            after: self.side_after(agent, place, &record)?,
            before: self.side_before(agent, place, record)?,
        })
    }

    /// Returns the files that the edit of a record changed; none if it is no edit. The contents before it
    /// are those of the archive; those after it are known as long as the files have them.
    ///
    /// # Errors
    /// The ledger cannot be read, or has no such record.
    pub fn edited_files(&self, agent: &Agent, seq: u64) -> Result<Option<EditedFiles>> {
        let (place, record) = self.record_of(agent, seq)?;
        if record.event.files.is_empty() {
            return Ok(None);
        }
        let changes = record.event.files.clone();
        let records = UndoRecords::from_record(&self.context, place, record)?;
        let rebuilt = match records.get(&agent.name) {
            Some(records) => undo::rebuild_files(&self.context, agent, records),
            None => Ok(Vec::new()),
        };
        let opened = self.context.open_layout_memory(agent);
        // Without contents, the states of the files are shown.
        let mut edits = match (opened, rebuilt) {
            (Ok(memory), Ok(rebuilt)) => edit::undone_edits(&self.context, &memory, &rebuilt),
            _ => Vec::new(),
        };
        for edit in &mut edits {
            std::mem::swap(&mut edit.before, &mut edit.after);
        }
        Ok(Some(EditedFiles { changes, edits }))
    }

    /// Returns the record of an agent with a number in the ledger, and its position there.
    fn record_of(&self, agent: &Agent, seq: u64) -> Result<(LedgerPosition, LedgerRecord)> {
        let mut back = self.context.ledger().scan_back_to(seq.saturating_sub(1))?;
        let name = &agent.name;
        let found = back.next_matching(&mut |it| it.seq == seq && it.is_about_agent(name))?;
        let found = found.and_then(|(place, record)| Some((place, record.view_of_agent(name)?)));
        let Some((place, record)) = found else {
            let message = format!("no record {seq} of {name} in the ledger");
            return Err(Error::new(ErrorKind::User, message));
        };
        Ok((place, record))
    }

    fn side_before(
        &self,
        agent: &Agent,
        position: LedgerPosition,
        record: LedgerRecord,
    ) -> Result<RunDiffSide> {
        // A run without either state had no reason to read the memory.
        if record.event.change.before.is_none() && record.event.change.after.is_none() {
            return Ok(RunDiffSide::Unchanged);
        }
        let records = UndoRecords::from_record(&self.context, position, record)?;
        let Some(records) = records.get(&agent.name) else {
            return Ok(RunDiffSide::Unchanged);
        };
        Ok(match undo::rebuild_source(&self.context, agent, records) {
            Ok(source) => self.side_from_source(source),
            Err(error) => RunDiffSide::Unavailable(error.to_string()),
        })
    }

    /// The beginning of the content that an undo would restore.
    fn side_from_source(&self, source: InstallSource) -> RunDiffSide {
        let parts = match source.replacement {
            Replacement::Absent => return RunDiffSide::Absent,
            Replacement::Symlink(target) => {
                let link = SpecialFile::Symlink(target);
                return RunDiffSide::Unavailable(
                    self.scanner.mask_secrets_in(&format!("it was {link}")),
                );
            }
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
        let read = parts.open_reader(&self.context).and_then(|reader| {
            let read = reader.take(MAX_WINDOW_BYTES as u64).read_to_end(&mut text);
            read.map_err(|error| Error::from_io("read", self.context.archive().root(), &error))
        });
        match read {
            Ok(length) => RunDiffSide::Text(text, size.saturating_sub(length as u64)),
            Err(error) => RunDiffSide::Unavailable(error.to_string()),
        }
    }

    /// Rebuilds what a push installed from what it archived; `None` where that cannot be shown as
    /// a whole.
    fn pushed_content(
        &self,
        agent: &Agent,
        position: LedgerPosition,
        record: &LedgerRecord,
    ) -> Result<Option<Vec<u8>>> {
        let event = &record.event;
        let (Some(kept), Some(baseline)) = (&event.kept_scratch, event.baseline) else {
            return Ok(None);
        };
        let Some(baseline) = self.baselines.load_version(agent, baseline) else {
            return Ok(None);
        };
        let before = self.side_before(agent, position, record.clone())?;
        let (RunDiffSide::Text(mut before, 0), Some(FileState::File { size, lines, .. })) =
            (before, &event.change.before)
        else {
            return Ok(None);
        };
        // What a late writer added was not there yet.
        before.truncate(*size as usize);
        let version = undo::boundary_version(event);
        let version = version.and_then(|version| self.baselines.load_version(agent, version));
        let memory = DividedMemory {
            prefix: &before,
            size: before.len() as u64,
            lines: *lines,
            boundary: event.boundary,
            version: version.as_ref(),
        };
        let Ok(content) = select_scratch(&kept.selection, Some(&memory), &baseline) else {
            return Ok(None);
        };
        let scratch = content.kept_bytes(Some(&memory));
        Ok(Some([content.head.as_slice(), scratch].concat()))
    }

    /// The installed content: a version of the baseline, what a push kept below one, or the
    /// content before an earlier run.
    fn side_after(
        &self,
        agent: &Agent,
        position: LedgerPosition,
        record: &LedgerRecord,
    ) -> Result<RunDiffSide> {
        let wanted: Digest = match &record.event.change.after {
            Some(FileState::Absent) => return Ok(RunDiffSide::Absent),
            Some(FileState::File { sha256, .. }) => *sha256,
            Some(FileState::Special(special)) => {
                return Ok(RunDiffSide::Unavailable(format!("it left {special}")));
            }
            None => return Ok(RunDiffSide::Unchanged),
        };
        if let Ok(version) = self.context.baseline_versions().read_version(wanted) {
            let shown = &version[..version.len().min(MAX_WINDOW_BYTES)];
            let more = (version.len() - shown.len()) as u64;
            return Ok(RunDiffSide::Text(shown.to_vec(), more));
        }
        if let Some(pushed) = self.pushed_content(agent, position, record)?
            && Digest::of(&pushed) == wanted
        {
            return Ok(RunDiffSide::Text(pushed, 0));
        }
        let mut back = self.context.ledger().scan_backwards()?;
        while let Some((place, other)) = back.next_matching(&mut |it| it.agent == agent.name)? {
            let before = other
                .event
                .change
                .before
                .as_ref()
                .and_then(FileState::digest);
            if other.event.has_changed_memory()
                && before == Some(wanted)
                && let side @ RunDiffSide::Text(..) = self.side_before(agent, place, other)?
            {
                return Ok(side);
            }
        }
        let why = "the installed content is not in the archive".to_string();
        Ok(RunDiffSide::Unavailable(why))
    }
}
