//! `archive`: lists, prints and exports entries, and changes their pins.

pub(super) mod prune;
pub(super) mod search;

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};
use clap::Subcommand;
use serde::Serialize;

use super::output::{
    Document, FileContent, OutputRole, Printer, format_count, heading_cells, number_cell,
    path_cell, text_cell,
};
use super::{CommandContext, CommandResult};
use crate::archive::{ArchiveEntry, EntryKind, format_stamp, is_quarantined};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, PathContext};
use crate::base::invocation::as_operand;
use crate::base::moment::Zone;
use crate::cli::archive::prune::PruneArgs;
use crate::cli::archive::search::{FilterArgs, SearchArgs, rebuild_index};
use crate::cli::arguments::values::{EXIT_CODES, parse_record_count};
use crate::engine::{EntryList, EntryStatus};
use crate::lint::ScanSummary;

/// Number of bytes of an entry that are printed at once.
const COPY_BYTES: u64 = 128 << 10;

/// Maximum number of bytes of an entry that is printed as JSON.
const MAX_JSON_BYTES: u64 = 64 << 20;

#[derive(Debug, Subcommand)]
pub(super) enum ArchiveVerb {
    /// Lists the entries of agents, oldest first, what keeps each, and what the scan found in it
    ///
    /// Retention deletes neither pinned entries nor those that an undo still needs.
    #[command(after_help = EXIT_CODES)]
    List {
        /// Shows only these agents; one that left the config has the name of its directory
        #[arg(value_name = "AGENT")]
        agents: Vec<String>,
        #[command(flatten)]
        filter: FilterArgs,
        /// Shows at most this many entries, the newest
        #[arg(long, value_name = "COUNT", value_parser = parse_record_count)]
        limit: Option<usize>,
    },
    /// Prints an entry
    ///
    /// A pipe or file gets its exact bytes.
    #[command(after_help = EXIT_CODES)]
    Show {
        /// Path as printed by `archive list`, `archive search` and `log`
        #[arg(value_name = "ENTRY")]
        entry: PathBuf,
    },
    /// Searches the entries of all agents and their memories
    ///
    /// Prints `path:line:text` for each line with a hit, as grep -n does. Terms of the query are
    /// joined by AND: words in any case, with or without diacritics; "words in a row"; -excluded;
    /// begin*; /regular expression/; agent:scout,code-*;
    /// kind:scratch,full,late,appended,special,redacted; since:7d; until:2026-03; is:pinned; is:left;
    /// in:live; in:memory; in:archive; layout:drover. Memories on other machines are read with in:live
    /// and in:memory only. The exit code is 1 when nothing is found.
    #[command(after_help = EXIT_CODES)]
    Search(SearchArgs),
    /// Copies entries into a new directory, with their checksums
    #[command(after_help = EXIT_CODES)]
    Export {
        /// Paths as printed by `archive list`, `archive search` and `log`; without any, all entries
        /// that the options leave over
        #[arg(value_name = "ENTRY")]
        entries: Vec<PathBuf>,
        /// New directory for the copies
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        #[command(flatten)]
        filter: FilterArgs,
    },
    /// Removes the search index and builds it again
    ///
    /// The index is derived from the entries, and kept up to date by searches.
    #[command(after_help = EXIT_CODES)]
    Reindex,
    /// Pins entries: retention never deletes them
    #[command(after_help = EXIT_CODES)]
    Pin {
        /// Paths as printed by `archive list`, `archive search` and `log`
        #[arg(value_name = "ENTRY", required = true)]
        entries: Vec<PathBuf>,
    },
    /// Unpins entries: retention may delete them again
    #[command(after_help = EXIT_CODES)]
    Unpin {
        /// Paths as printed by `archive list`, `archive search` and `log`
        #[arg(value_name = "ENTRY", required = true)]
        entries: Vec<PathBuf>,
    },
    /// Deletes what retention would delete, or shows it
    ///
    /// Deletes the entries that are older than archive_retention_days, without a run, and the
    /// baseline versions that no undo needs any more. Pinned entries stay, and so do the newest
    /// entry of each agent, those that an undo needs, and those of an agent whose last run failed.
    /// Nothing is deleted unless a run of a day ago or earlier confirms the date.
    #[command(after_help = EXIT_CODES)]
    Prune(PruneArgs),
}

/// The answer of `archive list`.
#[derive(Serialize)]
struct EntryListDocument {
    archive: PathBuf,
    entries: Vec<EntryItem>,
}

/// An entry and the reasons why retention keeps it.
#[derive(Serialize)]
struct EntryItem {
    path: String,
    #[serde(skip)]
    exact_path: PathBuf,
    agent: String,
    /// Whether the agent is not in the config.
    left: bool,
    kind: EntryKind,
    /// Local time in the name of the entry.
    stamp: String,
    /// When it was made.
    time: DateTime<FixedOffset>,
    #[serde(skip)]
    shown_time: String,
    size: u64,
    modified: Option<DateTime<FixedOffset>>,
    pinned: bool,
    /// Null where the ledger cannot be read.
    recorded: Option<bool>,
    /// Null where the ledger cannot be read.
    needed: Option<bool>,
    quarantined: bool,
    findings: Option<ScanSummary>,
}

impl EntryItem {
    fn new(status: &EntryStatus, zone: Zone) -> EntryItem {
        let entry = &status.entry;
        let modified = DateTime::from_timestamp(entry.modified, 0);
        EntryItem {
            path: entry.path.display().to_string(),
            exact_path: entry.path.clone(),
            agent: status.agent.clone(),
            left: status.has_left,
            kind: entry.kind,
            stamp: format_stamp(entry.stamp),
            time: status.time,
            shown_time: zone.format_second(status.time),
            size: entry.size,
            modified: modified.map(|time| zone.at(time)),
            pinned: status.is_pinned,
            recorded: status.is_recorded,
            needed: status.is_needed,
            quarantined: is_quarantined(&entry.path),
            findings: status.findings.clone(),
        }
    }
}

impl Document for EntryListDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.entries.is_empty() {
            return printer.write_plain_line("no entries");
        }
        let titles = ["TIME", "KIND", "BYTES", "ENTRY", "NOTE"];
        let mut rows = vec![heading_cells(&titles, &["BYTES"])];
        for item in &self.entries {
            let reasons = [
                (item.left, "left the config"),
                (item.pinned, "pinned"),
                (item.quarantined, "quarantine"),
                (item.needed == Some(true), "undo"),
                (item.recorded == Some(false), "no record"),
            ];
            let findings = item.findings.as_ref().map(ScanSummary::describe);
            let reasons = reasons.iter().filter(|it| it.0).map(|it| it.1);
            let why: Vec<&str> = findings.as_deref().into_iter().chain(reasons).collect();
            rows.push(vec![
                text_cell(OutputRole::Plain, &item.shown_time),
                text_cell(OutputRole::Plain, entry_kind_label(item.kind)),
                number_cell(OutputRole::Plain, item.size.to_string()),
                path_cell(OutputRole::Plain, &as_operand(&item.exact_path)),
                text_cell(OutputRole::Dim, why.join(", ")),
            ]);
        }
        printer.write_table(&rows)?;
        let bytes: u64 = self.entries.iter().map(|item| item.size).sum();
        let entries = format_count(self.entries.len(), "entry");
        printer.write_plain_line(format!("{entries}, {bytes} bytes"))
    }
}

fn entry_kind_label(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Scratch => "scratch",
        EntryKind::FullBackup => "full",
        EntryKind::Late => "late",
        EntryKind::Appended => "appended",
        EntryKind::Special => "special",
        EntryKind::Redacted => "redacted",
    }
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
            printer.write_path_line(&format!("{word} "), &as_operand(path))?;
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

/// The answer of `archive show` in JSON.
#[derive(Serialize)]
struct ShowDocument {
    path: PathBuf,
    kind: EntryKind,
    stamp: String,
    #[serde(flatten)]
    content: FileContent,
}

/// The answer of `archive export`.
#[derive(Serialize)]
struct ExportDocument {
    directory: PathBuf,
    bytes: u64,
    entries: Vec<ExportItem>,
}

#[derive(Serialize)]
struct ExportItem {
    path: PathBuf,
    sha256: Digest,
}

impl Document for ExportDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let entries = format_count(self.entries.len(), "entry");
        let directory = self.directory.display();
        printer.write_plain_line(format!(
            "exported {entries}, {} bytes, to {directory}",
            self.bytes
        ))
    }
}

pub(super) fn run(context: &mut CommandContext<'_>, verb: &ArchiveVerb) -> CommandResult {
    match verb {
        ArchiveVerb::List {
            agents,
            filter,
            limit,
        } => list_entries(context, agents, filter, *limit),
        ArchiveVerb::Show { entry } => show_entry(context, entry),
        ArchiveVerb::Search(args) => search::run(context, args),
        ArchiveVerb::Export {
            entries,
            to,
            filter,
        } => export_entries(context, entries, to, filter),
        ArchiveVerb::Reindex => rebuild_index(context),
        ArchiveVerb::Pin { entries } => pin_entries(context, entries, true),
        ArchiveVerb::Unpin { entries } => pin_entries(context, entries, false),
        ArchiveVerb::Prune(args) => prune::run(context, args),
    }
}

fn list_entries(
    context: &mut CommandContext<'_>,
    agents: &[String],
    filter: &FilterArgs,
    limit: Option<usize>,
) -> CommandResult {
    let engine = context.open_engine()?;
    let query = filter.parse_query("", &engine)?;
    let EntryList {
        entries: mut statuses,
        ledger_error,
    } = engine.retention().entry_statuses(agents, &query.filter)?;
    if let Some(limit) = limit {
        statuses.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
        statuses.drain(..statuses.len().saturating_sub(limit));
    }
    let has_line_feed =
        |kept: &&EntryStatus| kept.entry.path.as_os_str().as_bytes().contains(&b'\n');
    let unprintable = statuses.iter().filter(has_line_feed).count();
    if unprintable > 0 && !context.output.is_json() {
        let paths = format_count(unprintable, "path");
        context.print_warning(format!(
            "{paths} with line feeds: a line cannot name them, `--json` does"
        ));
    }
    let zone = engine.clock().zone();
    let items = statuses.iter().map(|kept| EntryItem::new(kept, zone));
    context.print_document(&EntryListDocument {
        archive: engine.archive().root().to_path_buf(),
        entries: items.collect(),
    })?;
    for agent in engine.retention().agents_with_hidden_quarantine(agents)? {
        context.print_note(format!(
            "the entries of {agent} in quarantine are not listed: only the owner of the \
             archive can read them"
        ));
    }
    let is_empty = statuses.is_empty().then_some(ErrorKind::Partial);
    Ok(print_ledger_error(context, ledger_error).or(is_empty))
}

/// Prints why a list of entries lacks what the ledger says of them. Returns its kind.
fn print_ledger_error(context: &mut CommandContext<'_>, error: Option<Error>) -> Option<ErrorKind> {
    let error = error?;
    let text = format!(
        "cannot tell what the ledger says of these entries: {}",
        error.message()
    );
    context.print_error(&text);
    context.print_hints(error.hints());
    Some(error.kind())
}

fn show_entry(context: &mut CommandContext<'_>, typed: &Path) -> CommandResult {
    let engine = context.open_engine()?;
    let entry = engine.entries().find_typed(typed)?;
    let mut file = engine.entries().open(&entry.path)?;
    if !context.output.is_json() {
        return print_entry(context, &entry.path, file);
    }
    let size = file.size().with_path("stat", &entry.path)?;
    if size > MAX_JSON_BYTES {
        let message = format!(
            "{} has {size} bytes, which is too much for --json",
            entry.path.display()
        );
        return Err(Error::new(ErrorKind::User, message)
            .with_hint("print it without --json, or export it: archive export")
            .into());
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)
        .with_path("read", &entry.path)?;
    context.output.print_json(&ShowDocument {
        path: entry.path,
        kind: entry.kind,
        stamp: format_stamp(entry.stamp),
        content: FileContent::new(bytes),
    })?;
    Ok(None)
}

/// Prints an entry in pieces of whole lines: it may be larger than the main memory.
fn print_entry(
    context: &mut CommandContext<'_>,
    path: &Path,
    mut file: impl Read,
) -> CommandResult {
    let mut text = Vec::new();
    let mut is_line_open = false;
    loop {
        let count = (&mut file).take(COPY_BYTES).read_to_end(&mut text);
        let is_end = count.with_path("read", path)? == 0;
        let line_end = memchr::memrchr(b'\n', &text).filter(|_| !is_end);
        let rest = text.split_off(line_end.map_or(text.len(), |at| at + 1));
        is_line_open = text.last().map_or(is_line_open, |last| *last != b'\n');
        context.output.print_text(|printer| {
            printer.write_bytes(&text)?;
            if is_end && is_line_open && !printer.wants_exact_bytes() {
                printer.write_plain_line("")?;
            }
            Ok(())
        })?;
        if is_end {
            return Ok(None);
        }
        text = rest;
    }
}

fn export_entries(
    context: &mut CommandContext<'_>,
    typed: &[PathBuf],
    to: &Path,
    filter: &FilterArgs,
) -> CommandResult {
    let engine = context.open_engine()?;
    let mut ledger_error = None;
    let entries: Vec<ArchiveEntry> = if typed.is_empty() {
        let query = filter.parse_query("", &engine)?;
        let list = engine.retention().entry_statuses(&[], &query.filter)?;
        ledger_error = list.ledger_error;
        list.entries
            .into_iter()
            .map(|status| status.entry)
            .collect()
    } else {
        let found = typed.iter().map(|typed| engine.entries().find_typed(typed));
        found.collect::<Result<_, _>>()?
    };
    if entries.is_empty() {
        context.print_note("no entries; nothing was written");
        return Ok(Some(ErrorKind::Partial));
    }
    let directory = context.environment.env.cwd.join(to);
    let report = engine.entries().export_entries(&entries, &directory)?;
    let items = report.entries.into_iter();
    context.print_document(&ExportDocument {
        directory,
        bytes: report.bytes,
        entries: items
            .map(|(path, sha256)| ExportItem { path, sha256 })
            .collect(),
    })?;
    Ok(print_ledger_error(context, ledger_error))
}

fn pin_entries(
    context: &mut CommandContext<'_>,
    entries: &[PathBuf],
    pinned: bool,
) -> CommandResult {
    let engine = context.open_engine()?;
    let changed = engine.entries().set_pinned(entries, pinned)?;
    context.print_answer(&PinDocument {
        pinned,
        changed,
        named: entries.len(),
    })
}
