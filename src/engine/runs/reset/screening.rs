//! The screening of entries before the ledger records them: scans their content for secrets and
//! injections, and does what `archive_findings` says about the result.
//!
//! It follows the swap, so that it does not delay it. Where entries with findings are kept in
//! quarantine, every entry begins there; one without findings is released now, in this order: it
//! gets its other name, the journal names both, the ledger records the other one, and the name in
//! the quarantine is removed. An entry with findings, and one that was not scanned, stay there.

use std::path::{Path, PathBuf};

use super::Run;
use crate::archive::{EntryKind, WrittenEntry, is_quarantined};
use crate::config::{Agent, FindingsPolicy};
use crate::lint::ScanSummary;
use crate::store::journal::{Journal, JournalRecord};
use crate::store::record::RunEvent;

/// An entry with two names, one of them in the quarantine.
pub(super) struct ReleasedEntry {
    pub(super) quarantined: PathBuf,
    pub(super) released: PathBuf,
}

/// The journal that may name an entry which is to be released.
#[derive(Clone, Copy)]
pub(super) enum EntryJournal<'a> {
    /// That of a transaction in progress.
    Open(&'a dyn Journal),
    /// There is none: the transaction has ended.
    Absent,
    /// One may be left, which the next run reads: entries stay where it says.
    LeftForNextRun,
}

/// Screens the entries of a run for secrets and injections.
pub(super) struct EntryScreening<'r, 'a> {
    pub(super) run: &'r Run<'a>,
}

impl EntryScreening<'_, '_> {
    /// Scans the entries of an event that is about to be recorded, and writes the findings into it.
    /// Returns the entries that were released; their names in the quarantine are to be removed once
    /// the event is recorded. An entry that has findings was screened before.
    pub(super) fn screen_entries(
        &self,
        agent: &Agent,
        event: &mut RunEvent,
        journal: EntryJournal<'_>,
    ) -> Vec<ReleasedEntry> {
        let mut released = Vec::new();
        for file in 0..event.file_changes().len() {
            released.extend(self.screen_file_entries(agent, event, file, journal));
        }
        released
    }

    /// Scans the entries of one file of the step.
    fn screen_file_entries(
        &self,
        agent: &Agent,
        event: &mut RunEvent,
        file: usize,
        journal: EntryJournal<'_>,
    ) -> Vec<ReleasedEntry> {
        let mut released = Vec::new();
        let change = &event.file_changes()[file];
        let mut entries: Vec<WrittenEntry> = change.entry.iter().cloned().collect();
        let has_entry = !entries.is_empty();
        entries.extend(change.late_entries.iter().cloned());
        for entry in entries.iter_mut().filter(|entry| entry.findings.is_none()) {
            let quarantined = entry.path.clone();
            let mut scanned = self.run.runs.scanner.scan_entry(agent, event, entry);
            let failure = scanned.failure.take();
            let failure =
                failure.map(|error| format!("cannot scan {}: {error}", entry.path.display()));
            let is_clean = scanned.summary.is_clean();
            entry.findings = (!is_clean).then_some(scanned.summary);
            let placed = self.place_entry(agent, entry, scanned.redacted, journal);
            for problem in failure.into_iter().chain(placed.problems) {
                self.run.log_line(&format!("{}: {problem}", agent.name));
                event.add_note(&problem);
            }
            *entry = placed.entry;
            event.file_changes_mut()[file]
                .redacted_entries
                .extend(placed.copy);
            if entry.path != quarantined {
                rename_in_note(event, &quarantined, &entry.path);
                released.push(ReleasedEntry {
                    quarantined,
                    released: entry.path.clone(),
                });
            }
        }
        let mut entries = entries.into_iter();
        let change = &mut event.file_changes_mut()[file];
        change.entry = has_entry.then(|| entries.next()).flatten();
        change.late_entries = entries.collect();
        released
    }

    /// Releases an entry that was scanned, or copies it without its secrets. An entry that cannot be
    /// released is in quarantine, unchanged.
    fn place_entry(
        &self,
        agent: &Agent,
        entry: &WrittenEntry,
        redacted: Option<Vec<u8>>,
        journal: EntryJournal<'_>,
    ) -> PlacedEntry {
        let mut placed = PlacedEntry {
            entry: entry.clone(),
            copy: None,
            is_redaction_impossible: false,
            problems: Vec::new(),
        };
        if is_quarantined(&entry.path) {
            if entry.findings.is_none() {
                self.release_if_movable(agent, &mut placed, journal);
            } else if agent.archive_findings == FindingsPolicy::RedactCopy {
                self.copy_redacted(&mut placed, redacted);
            }
            self.journal_placed(&entry.path, &mut placed, journal);
        }
        self.log_screened(agent, &entry.path, &placed);
        placed
    }

    /// Releases an entry without findings, unless a record or a journal names it where it is.
    fn release_if_movable(
        &self,
        agent: &Agent,
        placed: &mut PlacedEntry,
        journal: EntryJournal<'_>,
    ) {
        let entry = &placed.entry;
        if matches!(journal, EntryJournal::LeftForNextRun) || self.is_recorded(agent, entry) {
            return;
        }
        match self.run.context().entries().release(entry) {
            Ok(released) => placed.entry = released,
            Err(error) => {
                let path = entry.path.display();
                placed
                    .problems
                    .push(format!("{path} stays in quarantine: {error}"));
            }
        }
    }

    /// Whether the ledger has a record that names an entry: one of a failed reset, whose entry this
    /// run uses again.
    fn is_recorded(&self, agent: &Agent, entry: &WrittenEntry) -> bool {
        // Without the ledger, it may.
        self.run
            .context()
            .history(&agent.name)
            .ok()
            .is_none_or(|history| {
                let failed = history.failed_attempt.as_ref();
                failed.is_some_and(|attempt| attempt.entry.path == entry.path)
            })
    }

    fn copy_redacted(&self, placed: &mut PlacedEntry, redacted: Option<Vec<u8>>) {
        let Some(text) = redacted else {
            placed.is_redaction_impossible = true;
            return;
        };
        let path = &placed.entry.path;
        let entries = self.run.context().entries();
        match entries.write_redacted_copy(path, &text) {
            Ok(copy) => placed.copy = Some(copy),
            Err(error) => {
                let problem = format!("no redacted copy of {}: {error}", path.display());
                placed.problems.push(problem);
            }
        }
    }

    /// Writes into an open journal where an entry is. Without that, a recovery scans the entry
    /// again, and its release gives the same name.
    fn journal_placed(&self, before: &Path, placed: &mut PlacedEntry, journal: EntryJournal<'_>) {
        let EntryJournal::Open(journal) = journal else {
            return;
        };
        let written = journal.append_durably(&JournalRecord::Screened {
            from: before.to_path_buf(),
            entry: placed.entry.clone(),
            copy: placed.copy.clone(),
        });
        if let Err(error) = written {
            let path = placed.entry.path.display();
            let problem = format!("the transaction record lacks the scan of {path}: {error}");
            placed.problems.push(problem);
        }
    }

    fn log_screened(&self, agent: &Agent, before: &Path, after: &PlacedEntry) {
        let entry = &after.entry;
        let path = entry.path.display();
        if let Some(findings) = &entry.findings {
            let what = describe_entry_findings(agent, entry.kind, findings);
            let place = if is_quarantined(&entry.path) {
                "in quarantine as"
            } else {
                "see"
            };
            let copy = describe_copy(after, findings);
            self.run.log_line(&format!("{what}; {place} {path}{copy}"));
        } else if entry.path != before {
            self.run.log_line(&format!(
                "No secrets or injections found in the entry of {}; it is {path} now",
                agent.name
            ));
        }
    }

    /// Removes the names in the quarantine of entries that were released and recorded.
    pub(super) fn end_releases(&self, released: &[ReleasedEntry]) {
        for ReleasedEntry {
            quarantined,
            released,
        } in released
        {
            let entries = self.run.context().entries();
            if let Err(error) = entries.end_release(quarantined, released) {
                self.run.report_error(error);
            }
        }
    }
}

/// An entry after its scan, where it is recorded.
struct PlacedEntry {
    entry: WrittenEntry,
    /// Its copy without secrets.
    copy: Option<WrittenEntry>,
    /// Whether a copy without secrets is wanted and cannot be made.
    is_redaction_impossible: bool,
    /// What failed.
    problems: Vec<String>,
}

/// Corrects the path of an entry that a note already names.
fn rename_in_note(event: &mut RunEvent, before: &Path, after: &Path) {
    let [before, after] = [before, after].map(|path| path.display().to_string());
    event.note = event.note.take().map(|note| note.replace(&before, &after));
}

/// Says what was found in an entry: "2 secrets found in the scratch of scout (MS601)".
fn describe_entry_findings(agent: &Agent, kind: EntryKind, findings: &ScanSummary) -> String {
    let what = match kind {
        EntryKind::FullBackup | EntryKind::Late => "memory",
        EntryKind::Special => "description of the object in place of the memory",
        _ => "scratch",
    };
    let name = &agent.name;
    let found = findings.describe_found();
    let unscanned = findings.describe_unscanned();
    if found.is_empty() {
        let unscanned = unscanned.unwrap_or_default();
        return format!("{unscanned} in the {what} of {name}");
    }
    let rules = findings.rules.join(", ");
    let rest = unscanned.map_or(String::new(), |unscanned| format!(", {unscanned}"));
    format!("{found} found in the {what} of {name} ({rules}){rest}")
}

/// Names the redacted copy of an entry, or says why it has none though it should; empty otherwise.
fn describe_copy(placed: &PlacedEntry, findings: &ScanSummary) -> String {
    match &placed.copy {
        Some(copy) => format!("; a redacted copy is {}", copy.path.display()),
        None if !placed.is_redaction_impossible => String::new(),
        None if findings.unscanned_bytes > 0 => {
            "; no redacted copy: it was not scanned as a whole".to_string()
        }
        None => "; no redacted copy: it has too many secrets".to_string(),
    }
}
