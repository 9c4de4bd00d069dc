//! `archive`: lists entries and changes their pins.

use std::io;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use clap::Subcommand;
use serde::Serialize;

use super::output::{Document, OutputRole, Printer, format_count, number_cell, text_cell};
use super::values::EXIT_CODES;
use super::{CommandContext, CommandResult};
use crate::archive::EntryKind;
use crate::engine::EntryStatus;

#[derive(Debug, Subcommand)]
pub(super) enum ArchiveVerb {
    /// Lists the entries of agents, oldest first, and what keeps each
    ///
    /// Retention deletes neither pinned entries nor those that an undo still needs.
    #[command(after_help = EXIT_CODES)]
    List {
        /// Shows only these agents
        #[arg(value_name = "AGENT")]
        agents: Vec<String>,
    },
    /// Pins entries: retention never deletes them
    #[command(after_help = EXIT_CODES)]
    Pin {
        /// Paths as printed by `archive list` and `log`
        #[arg(value_name = "ENTRY", required = true)]
        entries: Vec<PathBuf>,
    },
    /// Unpins entries: retention may delete them again
    #[command(after_help = EXIT_CODES)]
    Unpin {
        /// Paths as printed by `archive list` and `log`
        #[arg(value_name = "ENTRY", required = true)]
        entries: Vec<PathBuf>,
    },
}

/// The answer of `archive list`.
#[derive(Serialize)]
struct EntryList {
    archive: PathBuf,
    entries: Vec<EntryItem>,
}

/// An entry and the reasons why retention keeps it.
#[derive(Serialize)]
struct EntryItem {
    path: String,
    kind: EntryKind,
    /// Local time in the name of the entry.
    stamp: String,
    size: u64,
    modified: Option<DateTime<FixedOffset>>,
    pinned: bool,
    recorded: bool,
    needed: bool,
}

impl EntryItem {
    fn new(status: &EntryStatus, zone: FixedOffset) -> EntryItem {
        let entry = &status.entry;
        let modified = DateTime::from_timestamp(entry.modified, 0);
        EntryItem {
            path: entry.path.display().to_string(),
            kind: entry.kind,
            stamp: entry.stamp.format("%Y-%m-%d_%H%M").to_string(),
            size: entry.size,
            modified: modified.map(|time| time.with_timezone(&zone)),
            pinned: status.is_pinned,
            recorded: status.is_recorded,
            needed: status.is_needed,
        }
    }
}

impl Document for EntryList {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.entries.is_empty() {
            return printer.write_plain_line("no entries");
        }
        let mut rows = vec![vec![
            text_cell(OutputRole::Heading, "STAMP"),
            text_cell(OutputRole::Heading, "KIND"),
            number_cell(OutputRole::Heading, "BYTES"),
            text_cell(OutputRole::Heading, "ENTRY"),
            text_cell(OutputRole::Heading, "NOTE"),
        ]];
        for item in &self.entries {
            let reasons = [
                (item.pinned, "pinned"),
                (item.needed, "undo"),
                (!item.recorded, "no record"),
            ];
            let why: Vec<&str> = reasons.iter().filter(|it| it.0).map(|it| it.1).collect();
            rows.push(vec![
                text_cell(OutputRole::Plain, &item.stamp),
                text_cell(OutputRole::Plain, entry_kind_label(item.kind)),
                number_cell(OutputRole::Plain, item.size.to_string()),
                text_cell(OutputRole::Plain, &item.path),
                text_cell(OutputRole::Dim, why.join(", ")),
            ]);
        }
        printer.write_table(&rows)?;
        let bytes: u64 = self.entries.iter().map(|item| item.size).sum();
        printer.write_plain_line(format!(
            "{}, {bytes} bytes",
            format_entry_count(self.entries.len())
        ))
    }
}

fn entry_kind_label(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Scratch => "scratch",
        EntryKind::FullBackup => "full-backup",
        EntryKind::Late => "late",
        EntryKind::Appended => "appended",
        EntryKind::Special => "special",
    }
}

/// Formats a count: "no entries", "1 entry", "12 entries".
pub(super) fn format_entry_count(number: usize) -> String {
    format_count(number, "entry").replace("entrys", "entries")
}

/// The answer of `archive pin` and `archive unpin`.
#[derive(Serialize)]
struct PinDocument {
    pinned: bool,
    /// Entries whose pin the command changed.
    changed: Vec<PathBuf>,
    /// Number of entries that the command names.
    #[serde(skip)]
    named: usize,
}

impl Document for PinDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let word = if self.pinned { "pinned" } else { "unpinned" };
        for path in &self.changed {
            printer.write_plain_line(format!("{word} {}", path.display()))?;
        }
        if self.changed.is_empty() {
            let entries = match self.named {
                1 => "the entry is".to_string(),
                named => format!("all {named} entries are"),
            };
            printer.write_plain_line(format!("no change: {entries} already {word}"))?;
        }
        Ok(())
    }
}

impl CommandContext<'_> {
    pub(super) fn run_archive(&mut self, verb: &ArchiveVerb) -> CommandResult {
        let engine = self.open_engine()?;
        let (entries, pinned) = match verb {
            ArchiveVerb::List { agents } => {
                let statuses = engine.entry_statuses(agents)?;
                let zone = *engine.clock().now().offset();
                let list = EntryList {
                    archive: engine.archive().root().to_path_buf(),
                    entries: statuses
                        .iter()
                        .map(|kept| EntryItem::new(kept, zone))
                        .collect(),
                };
                self.output.print_document(&list)?;
                return Ok(None);
            }
            ArchiveVerb::Pin { entries } => (entries, true),
            ArchiveVerb::Unpin { entries } => (entries, false),
        };
        let changed = engine.set_pinned(entries, pinned)?;
        self.output.print_document(&PinDocument {
            pinned,
            changed,
            named: entries.len(),
        })?;
        Ok(None)
    }
}
