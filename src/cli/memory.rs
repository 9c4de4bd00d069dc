//! `memory`: what is in the memory of several files that an agent has, its health, and operations on
//! it.

use std::cmp::Reverse;
use std::io;
use std::path::Path;

use chrono::{DateTime, FixedOffset};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::operation_arguments::OperationArgs;
use super::output::{
    Document, FileContent, OutputRole, Printer, format_count, heading_cells, number_cell,
    path_cell, text_cell,
};
use super::runs::arguments::RunFlags;
use super::runs::run_operation;
use super::{CommandContext, CommandResult};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind, Result};
use crate::cli::arguments::values::{EXIT_CODES, parse_instant};
use crate::engine::LayoutMemory;
use crate::layouts::{Collection, FoundItem, HealthFinding, HealthSeverity, MemoryItem};

/// Arguments of `memory`.
#[derive(Debug, Args)]
pub(super) struct MemoryArgs {
    /// The agent
    agent: String,
    /// The instant that counts as now (default: the clock)
    #[arg(long, global = true, value_name = "RFC3339", value_parser = parse_instant)]
    now: Option<DateTime<FixedOffset>>,
    #[command(subcommand)]
    what: MemoryVerb,
}

#[derive(Debug, Subcommand)]
enum MemoryVerb {
    /// Lists the collections and their items
    #[command(after_help = EXIT_CODES)]
    Tree {
        /// Shows only this collection
        collection: Option<String>,
    },
    /// Prints an item
    #[command(after_help = EXIT_CODES)]
    Show {
        /// Id of the item, as `tree` lists it, or the path of its file
        item: String,
    },
    /// Finds items with a text in their title or content
    #[command(after_help = EXIT_CODES)]
    Search {
        /// The text; letters match in either case
        text: String,
    },
    /// Checks the memory
    #[command(after_help = EXIT_CODES)]
    Health,
    /// Shows what an operation would change; changes nothing
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Plan {
        #[command(subcommand)]
        operation: OperationArgs,
    },
    /// Archives the files that an operation changes, and changes them
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Apply {
        #[command(subcommand)]
        operation: OperationArgs,
        #[command(flatten)]
        flags: RunFlags,
    },
}

/// A collection with its items.
#[derive(Serialize)]
struct ListedCollection {
    #[serde(flatten)]
    collection: Collection,
    items: Vec<MemoryItem>,
}

/// The answer of `tree`.
#[derive(Serialize)]
struct TreeDocument<'a> {
    agent: &'a str,
    layout: &'static str,
    dir: String,
    collections: Vec<ListedCollection>,
}

impl Document for TreeDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for ListedCollection { collection, items } in &self.collections {
            let count = format_count(items.len(), "item");
            printer
                .write_plain_line(format!("{} ({}, {count})", collection.name, collection.id))?;
            write_items(printer, items)?;
        }
        Ok(())
    }
}

/// Writes a table of items.
fn write_items(printer: &mut Printer<'_>, items: &[MemoryItem]) -> io::Result<()> {
    let mut rows = Vec::new();
    if !items.is_empty() {
        rows.push(heading_cells(
            &["ITEM", "BYTES", "CHANGED", "TITLE"],
            &["BYTES"],
        ));
    }
    rows.extend(items.iter().map(|item| {
        let changed = item.modified.map(|time| time.format("%Y-%m-%d %H:%M"));
        vec![
            text_cell(OutputRole::Heading, &item.id),
            number_cell(OutputRole::Plain, item.bytes.to_string()),
            text_cell(
                OutputRole::Dim,
                changed.map_or(String::new(), |it| it.to_string()),
            ),
            text_cell(OutputRole::Plain, &item.title),
        ]
    }));
    printer.write_table(&rows)
}

/// The answer of `show`.
#[derive(Serialize)]
struct ShowDocument<'a> {
    agent: &'a str,
    item: &'a str,
    path: String,
    #[serde(flatten)]
    content: FileContent,
    /// What the agent is given of it, where that differs.
    injected: Option<String>,
}

impl Document for ShowDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_bytes(self.content.bytes())
    }
}

/// The answer of `search`.
#[derive(Serialize)]
struct SearchDocument<'a> {
    agent: &'a str,
    layout: &'static str,
    query: &'a str,
    mode: &'static str,
    results: Vec<FoundItem>,
}

impl Document for SearchDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let rows = self.results.iter().map(|found| {
            vec![
                number_cell(OutputRole::Plain, format!("{:.2}", found.score)),
                text_cell(OutputRole::Heading, &found.item),
                text_cell(OutputRole::Plain, &found.snippet),
            ]
        });
        printer.write_table(&rows.collect::<Vec<_>>())
    }
}

/// The answer of `health`.
#[derive(Serialize)]
struct HealthDocument {
    layout: &'static str,
    dir: String,
    now: String,
    /// `ok`, or the severity of the worst finding.
    worst: &'static str,
    findings: Vec<HealthFinding>,
}

impl Document for HealthDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let mut rows = Vec::new();
        for finding in &self.findings {
            let role = match finding.severity {
                HealthSeverity::Info => OutputRole::Notice,
                HealthSeverity::Warning => OutputRole::Warn,
                HealthSeverity::Error => OutputRole::Bad,
            };
            let mut place = finding.path.clone().unwrap_or_default().into_os_string();
            if let Some(line) = finding.line {
                place.push(format!(":{line}"));
            }
            rows.push(vec![
                text_cell(role, finding.severity.as_str()),
                text_cell(OutputRole::Heading, finding.check),
                path_cell(OutputRole::Plain, Path::new(&place)),
                text_cell(
                    OutputRole::Plain,
                    finding.measured.as_deref().unwrap_or_default(),
                ),
                text_cell(OutputRole::Dim, finding.remedy),
            ]);
        }
        printer.write_table(&rows)?;
        printer.write_plain_line(format!("health: {}", self.worst))
    }
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &MemoryArgs) -> CommandResult {
    let agent = args.agent.as_str();
    match &args.what {
        MemoryVerb::Tree { collection } => print_tree(context, agent, collection.as_deref()),
        MemoryVerb::Show { item } => {
            let engine = context.open_engine()?;
            let LayoutMemory { layout, files } = engine.layouts().open(agent)?;
            let content = layout.read(&files, None, item)?;
            let injected = content.given;
            context.print_answer(&ShowDocument {
                agent,
                item,
                path: content.path.display().to_string(),
                content: FileContent::new(content.bytes),
                injected: injected.map(|it| String::from_utf8_lossy(&it).into_owned()),
            })
        }
        MemoryVerb::Search { text } => {
            let engine = context.open_engine()?;
            let memory = engine.layouts().open(agent)?;
            let found = memory.search(text)?;
            context.print_document(&SearchDocument {
                agent,
                layout: memory.layout.name(),
                query: text,
                mode: found.mode,
                results: found.results,
            })?;
            context.print_note(format!("ranked by {}", found.mode));
            for error in &found.unread {
                context.print_error(error.message());
            }
            let kinds = found.unread.iter().map(Error::kind);
            Ok(kinds.reduce(ErrorKind::more_serious))
        }
        MemoryVerb::Health => print_health(context, agent, args.now),
        MemoryVerb::Plan { operation } => {
            let flags = RunFlags {
                dry_run: true,
                ..RunFlags::default()
            };
            run_operation_of(context, args, operation, &flags)
        }
        MemoryVerb::Apply { operation, flags } => run_operation_of(context, args, operation, flags),
    }
}

fn run_operation_of(
    context: &mut CommandContext<'_>,
    args: &MemoryArgs,
    operation: &OperationArgs,
    flags: &RunFlags,
) -> CommandResult {
    let now = args.now.unwrap_or_else(|| SystemClock.now());
    let request = operation.to_request(&context.environment.env.cwd, now)?;
    run_operation(context, &args.agent, flags, &request)
}

fn print_tree(
    context: &mut CommandContext<'_>,
    agent: &str,
    wanted: Option<&str>,
) -> CommandResult {
    let engine = context.open_engine()?;
    let memory = engine.layouts().open(agent)?;
    let mut collections = memory.collections()?;
    let LayoutMemory { layout, files } = memory;
    if let Some(wanted) = wanted {
        collections.retain(|collection| collection.id == wanted);
        if collections.is_empty() {
            let message = format!("{agent} has no collection {wanted}");
            return Err(Error::new(ErrorKind::User, message).into());
        }
    }
    let list = |collection: Collection| -> Result<ListedCollection> {
        let mut items = Vec::new();
        for page in layout.items(&files, &collection.id)? {
            items.extend(page?);
        }
        Ok(ListedCollection { collection, items })
    };
    let collections = collections.into_iter().map(list);
    let collections: Vec<ListedCollection> = collections.collect::<Result<_>>()?;
    let items = collections.iter().flat_map(|it| &it.items);
    let failures: Vec<String> = items.filter_map(|item| item.failure.clone()).collect();
    context.print_document(&TreeDocument {
        agent,
        layout: layout.name(),
        dir: files.root().display().to_string(),
        collections,
    })?;
    for failure in &failures {
        context.print_error(failure);
    }
    Ok((!failures.is_empty()).then_some(ErrorKind::Host))
}

fn print_health(
    context: &mut CommandContext<'_>,
    agent: &str,
    now: Option<DateTime<FixedOffset>>,
) -> CommandResult {
    let engine = context.open_engine()?;
    let memory = engine.layouts().open(agent)?;
    let (now, findings) = match now {
        Some(now) => (now, memory.health(now)?),
        None => (
            engine.clock().now(),
            engine.health().check(engine.agent(agent)?)?,
        ),
    };
    let (layout, root) = (memory.layout.name(), memory.files.root());
    context.print_health(layout, root, now, findings)
}

impl CommandContext<'_> {
    /// Prints the findings of the checks of a memory, the worst first.
    pub(super) fn print_health(
        &mut self,
        layout: &'static str,
        root: &Path,
        now: DateTime<FixedOffset>,
        mut findings: Vec<HealthFinding>,
    ) -> CommandResult {
        findings.sort_by_key(|finding| Reverse(finding.severity));
        let worst = findings.first().map(|finding| finding.severity);
        let is_ill = worst.is_some_and(|worst| worst > HealthSeverity::Info);
        self.print_document(&HealthDocument {
            layout,
            dir: root.display().to_string(),
            now: now.to_rfc3339(),
            worst: worst.map_or("ok", HealthSeverity::as_str),
            findings,
        })?;
        Ok(is_ill.then_some(ErrorKind::Partial))
    }
}
