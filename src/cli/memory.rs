//! `memory`: what is in the memory of several files that an agent has, its health, and operations on
//! it.

use std::collections::BTreeMap;
use std::io;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::output::{
    Document, FileContent, OutputRole, Printer, format_count, heading_cells, number_cell,
    path_cell, text_cell,
};
use super::runs::arguments::RunFlags;
use super::runs::run_plan_of;
use super::{CommandContext, CommandResult};
use crate::base::error::{Error, ErrorKind, Result};
use crate::cli::arguments::values::EXIT_CODES;
use crate::engine::LayoutMemory;
use crate::layouts::{Collection, HealthFinding, HealthSeverity, MemoryItem, OperationRequest};

/// Arguments of `memory`.
#[derive(Debug, Args)]
pub(super) struct MemoryArgs {
    /// The agent
    agent: String,
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
        /// Id of the item, as `tree` lists it
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
    #[command(after_help = EXIT_CODES)]
    Plan(OperationArgs),
    /// Archives the files that an operation changes, and changes them
    #[command(after_help = EXIT_CODES)]
    Apply {
        #[command(flatten)]
        operation: OperationArgs,
        #[command(flatten)]
        flags: RunFlags,
    },
}

#[derive(Debug, Args)]
struct OperationArgs {
    /// Name of an operation of the layout
    operation: String,
    /// Arguments of the operation
    #[arg(value_name = "NAME=VALUE", value_parser = parse_argument)]
    arguments: Vec<(String, String)>,
}

impl OperationArgs {
    fn to_request(&self) -> Result<OperationRequest> {
        let mut arguments = BTreeMap::new();
        for (name, value) in &self.arguments {
            if arguments.insert(name.clone(), value.clone()).is_some() {
                let message = format!("argument {name} is given twice");
                return Err(Error::new(ErrorKind::User, message));
            }
        }
        Ok(OperationRequest {
            operation: self.operation.clone(),
            arguments,
        })
    }
}

/// Parses an argument of an operation.
fn parse_argument(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("an argument is NAME=VALUE".to_string())?;
    Ok((name.to_string(), value.to_string()))
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
                .write_plain_line(format!("{} ({}, {count})", collection.title, collection.id))?;
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
            number_cell(OutputRole::Plain, item.size.to_string()),
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
    item: &'a str,
    #[serde(flatten)]
    content: FileContent,
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
    items: Vec<MemoryItem>,
}

impl Document for SearchDocument<'_> {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        write_items(printer, &self.items)
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
            let path = finding.path.as_deref().unwrap_or("".as_ref());
            rows.push(vec![
                text_cell(role, finding.severity.as_str()),
                text_cell(OutputRole::Heading, finding.check),
                path_cell(OutputRole::Plain, path),
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
            let content = layout.read(&files, item)?;
            context.print_answer(&ShowDocument {
                item,
                content: FileContent::new(content.bytes),
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
                items: found.items,
            })?;
            for error in &found.unread {
                context.print_error(error.message());
            }
            let kinds = found.unread.iter().map(Error::kind);
            Ok(kinds.reduce(ErrorKind::more_serious))
        }
        MemoryVerb::Health => print_health(context, agent),
        MemoryVerb::Plan(operation) => {
            let flags = RunFlags {
                dry_run: true,
                ..RunFlags::default()
            };
            run_operation(context, agent, operation, &flags)
        }
        MemoryVerb::Apply { operation, flags } => run_operation(context, agent, operation, flags),
    }
}

fn run_operation(
    context: &mut CommandContext<'_>,
    agent: &str,
    operation: &OperationArgs,
    flags: &RunFlags,
) -> CommandResult {
    let request = operation.to_request()?;
    run_plan_of(context, agent, flags, |engine| {
        engine.layouts().plan(agent, &request, false)
    })
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
    context.print_answer(&TreeDocument {
        agent,
        layout: layout.name(),
        dir: files.root().display().to_string(),
        collections: collections.collect::<Result<_>>()?,
    })
}

fn print_health(context: &mut CommandContext<'_>, agent: &str) -> CommandResult {
    let engine = context.open_engine()?;
    let memory = engine.layouts().open(agent)?;
    let now = engine.clock().now();
    let findings = memory.health(now)?;
    let worst = findings.first().map(|finding| finding.severity);
    let is_ill = worst.is_some_and(|worst| worst > HealthSeverity::Info);
    context.print_document(&HealthDocument {
        layout: memory.layout.name(),
        dir: memory.files.root().display().to_string(),
        now: now.to_rfc3339(),
        worst: worst.map_or("ok", HealthSeverity::as_str),
        findings,
    })?;
    Ok(is_ill.then_some(ErrorKind::Partial))
}
