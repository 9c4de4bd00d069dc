//! `archive`: the entries, and which of them retention never deletes.

use std::io;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::output::{Document, OutputRole, Printer, cell, count, figure};
use super::{ArchiveVerb, CommandContext, CommandResult};
use crate::archive::EntryKind;
use crate::engine::EntryStatus;

/// What `archive list` answers.
#[derive(Serialize)]
struct EntryList {
    archive: PathBuf,
    entries: Vec<EntryItem>,
}

/// An entry, and what keeps it.
#[derive(Serialize)]
struct EntryItem {
    path: String,
    kind: EntryKind,
    /// The local time in its name.
    stamp: String,
    size: u64,
    modified: Option<DateTime<FixedOffset>>,
    pinned: bool,
    recorded: bool,
    needed: bool,
}

impl EntryItem {
    fn new(kept: &EntryStatus, zone: FixedOffset) -> EntryItem {
        let entry = &kept.entry;
        let modified = DateTime::from_timestamp(entry.modified, 0);
        EntryItem {
            path: entry.path.display().to_string(),
            kind: entry.kind,
            stamp: entry.stamp.format("%Y-%m-%d_%H%M").to_string(),
            size: entry.size,
            modified: modified.map(|time| time.with_timezone(&zone)),
            pinned: kept.pinned,
            recorded: kept.recorded,
            needed: kept.needed,
        }
    }
}

impl Document for EntryList {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        if self.entries.is_empty() {
            return page.plain("the archive has no such entries");
        }
        let mut rows = vec![vec![
            cell(OutputRole::Head, "STAMP"),
            cell(OutputRole::Head, "KIND"),
            figure(OutputRole::Head, "BYTES"),
            cell(OutputRole::Head, "ENTRY"),
            cell(OutputRole::Head, "KEPT"),
        ]];
        for item in &self.entries {
            let why = [
                (item.pinned, "pinned"),
                (item.needed, "undo"),
                (!item.recorded, "no record"),
            ];
            let why: Vec<&str> = why.iter().filter(|it| it.0).map(|it| it.1).collect();
            rows.push(vec![
                cell(OutputRole::Plain, &item.stamp),
                cell(OutputRole::Plain, word(item.kind)),
                figure(OutputRole::Plain, item.size.to_string()),
                cell(OutputRole::Plain, &item.path),
                cell(OutputRole::Dim, why.join(", ")),
            ]);
        }
        page.table(&rows)?;
        let bytes: u64 = self.entries.iter().map(|item| item.size).sum();
        page.plain(format!("{}, {bytes} bytes", entries(self.entries.len())))
    }
}

fn word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Scratch => "scratch",
        EntryKind::FullBackup => "whole",
        EntryKind::Late => "late",
        EntryKind::Appended => "appended",
        EntryKind::Odd => "odd",
    }
}

/// "no entries", "1 entry", "12 entries"
pub(super) fn entries(number: usize) -> String {
    count(number, "entry").replace("entrys", "entries")
}

/// What `archive pin` and `archive unpin` answer.
#[derive(Serialize)]
struct Pinned {
    pinned: bool,
    /// Those that were not so before.
    changed: Vec<PathBuf>,
}

impl Document for Pinned {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        let word = if self.pinned { "pinned" } else { "unpinned" };
        for path in &self.changed {
            page.plain(format!("{word} {}", path.display()))?;
        }
        if self.changed.is_empty() {
            page.plain("nothing to change: they were so before")?;
        }
        Ok(())
    }
}

impl CommandContext<'_> {
    pub(super) fn archive(&mut self, verb: &ArchiveVerb) -> CommandResult {
        let engine = self.open()?;
        let (entries, pinned) = match verb {
            ArchiveVerb::List { agents } => {
                let kept = engine.entries(agents)?;
                let zone = *engine.clock().now().offset();
                let list = EntryList {
                    archive: engine.archive().root().to_path_buf(),
                    entries: kept.iter().map(|kept| EntryItem::new(kept, zone)).collect(),
                };
                self.out.document(&list)?;
                return Ok(None);
            }
            ArchiveVerb::Pin { entries } => (entries, true),
            ArchiveVerb::Unpin { entries } => (entries, false),
        };
        let changed = engine.pin(entries, pinned)?;
        self.out.document(&Pinned { pinned, changed })?;
        Ok(None)
    }
}
