//! The rows of a timeline: the runs of the ledger, and at its place in time each entry.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use chrono::NaiveDateTime;

use super::scan::{ScannedLedger, ScannedRun};
use super::subject::{MAX_HEADER_BYTES, ResolvedSubject};
use super::{EntryPresence, TimelineEntry, TimelineRow, UnchangedRuns};
use crate::archive::{
    ArchiveEntry, EntryKind, WrittenEntry, agent_directory_of, has_scratch_header, parse_entry_name,
};
use crate::base::moment::Zone;
use crate::engine::records::Timelines;
use crate::store::entries::Pins;

/// The entries of an agent as far as the disk and the ledger tell.
#[derive(Default)]
pub(super) struct EntriesOnDisk {
    /// Whether each recorded entry is on the disk.
    presence: HashMap<PathBuf, EntryPresence>,
    /// Entries that no record of the agent names, newest first.
    unrecorded: Vec<TimelineEntry>,
}

impl Timelines {
    /// Lists the directories of an agent, and looks for its recorded entries elsewhere.
    pub(super) fn list_timeline_entries(
        &self,
        subject: &ResolvedSubject,
        scanned: &ScannedLedger,
        notes: &mut Vec<String>,
    ) -> EntriesOnDisk {
        let mut disk = EntriesOnDisk::default();
        let mut unreadable = BTreeSet::new();
        let mut listed = BTreeSet::new();
        for directory in &subject.directories {
            let entries = match self.context.entries().list(directory) {
                Ok(entries) => entries,
                Err(error) => {
                    notes.push(error.message().to_string());
                    unreadable.insert(directory.as_path());
                    continue;
                }
            };
            listed.extend(entries.iter().map(|it| it.path.clone()));
            let others = self.context.entries().agents_of_directory(directory);
            let others = others.into_iter().filter(|it| *it != subject.agent);
            let others: Vec<&str> = others.collect();
            let unrecorded = entries.into_iter().filter(|it| !scanned.names(&it.path));
            self.add_unrecorded(unrecorded, directory, &others, &mut disk, notes);
            // Whose the others were is not known any more.
            if others.is_empty() {
                let is_gone = |path: &Path| !listed.contains(path);
                disk.unrecorded
                    .extend(retired_entries(directory, scanned, &is_gone));
            }
        }
        disk.unrecorded
            .sort_by(|one, other| (other.stamp, &other.path).cmp(&(one.stamp, &one.path)));
        for path in &scanned.recorded {
            let directory = agent_directory_of(path);
            let is_present = if subject.directories.contains(directory) {
                Some(listed.contains(path)).filter(|_| !unreadable.contains(directory))
            } else {
                self.context
                    .entries()
                    .find(path)
                    .ok()
                    .map(|it| it.is_some())
            };
            let presence = match (is_present, scanned.retired.get(path)) {
                (Some(true), _) => EntryPresence::Present,
                (Some(false), Some(time)) => EntryPresence::Retired(*time),
                (Some(false), None) => EntryPresence::Missing,
                (None, _) => EntryPresence::Unknown,
            };
            disk.presence.insert(path.clone(), presence);
        }
        disk
    }

    /// Adds the entries of a directory that no record names, unless they are of another agent.
    fn add_unrecorded(
        &self,
        entries: impl Iterator<Item = ArchiveEntry>,
        directory: &Path,
        others: &[&str],
        disk: &mut EntriesOnDisk,
        notes: &mut Vec<String>,
    ) {
        let mut has_doubt = false;
        for entry in entries {
            match self.is_of_other_agent(&entry.path, others) {
                Some(true) => continue,
                Some(false) => {}
                None => has_doubt = true,
            }
            disk.unrecorded.push(TimelineEntry {
                path: entry.path,
                kind: entry.kind,
                stamp: entry.stamp,
                size: Some(entry.size),
                run: None,
                is_pinned: false,
                presence: EntryPresence::Present,
            });
        }
        if has_doubt {
            let (directory, others) = (directory.display(), others.join(", "));
            notes.push(format!(
                "entries without a record in {directory} may be of {others}"
            ));
        }
    }

    /// Returns whether the header of an entry names another agent of its directory; none if it
    /// names no agent.
    fn is_of_other_agent(&self, path: &Path, others: &[&str]) -> Option<bool> {
        if others.is_empty() {
            return Some(false);
        }
        let text = self
            .search
            .read_entry_text(path, MAX_HEADER_BYTES)
            .ok()?
            .bytes;
        if others.iter().any(|it| has_scratch_header(&text, it)) {
            return Some(true);
        }
        text.starts_with(b"# ").then_some(false)
    }
}

/// Returns the entries of a directory that retention deleted and that no record of a run names.
fn retired_entries<'s>(
    directory: &'s Path,
    scanned: &'s ScannedLedger,
    is_gone: &'s dyn Fn(&Path) -> bool,
) -> impl Iterator<Item = TimelineEntry> + 's {
    let retired = scanned.retired.iter();
    let here = retired.filter(move |(path, _)| {
        agent_directory_of(path) == directory && is_gone(path) && !scanned.names(path)
    });
    here.filter_map(|(path, time)| {
        let (stamp, kind) = parse_path(path)?;
        Some(TimelineEntry {
            path: path.clone(),
            kind,
            stamp,
            size: None,
            run: None,
            is_pinned: false,
            presence: EntryPresence::Retired(*time),
        })
    })
}

/// Merges runs and entries. Where older records were not read, older entries are left out, too.
pub(super) fn merge_rows(
    scanned: &ScannedLedger,
    disk: EntriesOnDisk,
    pins: Option<&dyn Pins>,
    zone: Zone,
) -> Vec<TimelineRow> {
    let mut rows = Vec::new();
    let mut unrecorded = disk.unrecorded.into_iter().peekable();
    for run in &scanned.runs {
        let time = run.time();
        while let Some(entry) = unrecorded.next_if(|it| zone.resolve(it.stamp) > time) {
            rows.push(TimelineRow::Entry(entry));
        }
        push_run(run, &mut rows);
        if let ScannedRun::Recorded(past) = run {
            let event = &past.record.event;
            let entries = event.entries().filter_map(|written| {
                let presence = disk.presence.get(&written.path).copied();
                recorded_entry(written, &event.run, presence)
            });
            rows.extend(entries.map(TimelineRow::Entry));
        }
    }
    if !scanned.has_more {
        rows.extend(unrecorded.map(TimelineRow::Entry));
    }
    for row in &mut rows {
        if let TimelineRow::Entry(entry) = row {
            entry.is_pinned = pins.is_some_and(|pins| pins.entries().contains(&entry.path));
        }
    }
    rows
}

/// Adds a run; one that found the memory unchanged joins those before it.
fn push_run(run: &ScannedRun, rows: &mut Vec<TimelineRow>) {
    match (run, rows.last_mut()) {
        (ScannedRun::Recorded(past), _) => rows.push(TimelineRow::Run(past.clone())),
        (ScannedRun::Unchanged(time), Some(TimelineRow::Unchanged(runs))) => {
            runs.count += 1;
            runs.first = *time;
        }
        (ScannedRun::Unchanged(time), _) => rows.push(TimelineRow::Unchanged(UnchangedRuns {
            count: 1,
            first: *time,
            last: *time,
        })),
    }
}

fn recorded_entry(
    written: &WrittenEntry,
    run: &str,
    presence: Option<EntryPresence>,
) -> Option<TimelineEntry> {
    let (stamp, _) = parse_path(&written.path)?;
    Some(TimelineEntry {
        path: written.path.clone(),
        kind: written.kind,
        stamp,
        size: Some(written.size),
        run: Some(run.to_string()),
        is_pinned: false,
        presence: presence.unwrap_or(EntryPresence::Unknown),
    })
}

/// Returns what the name of an entry says; none for a path in a forged record.
fn parse_path(path: &Path) -> Option<(NaiveDateTime, EntryKind)> {
    let (stamp, kind, _) = parse_entry_name(path.file_name()?.to_str()?)?;
    Some((stamp, kind))
}
