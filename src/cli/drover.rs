//! `drover`: the commands of the layout `drover` on a directory, without a config.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::direct_write::DirectMemory;
use super::operation_arguments::OperationArgs;
use super::output::{Document, Printer, plain};
use super::{CommandContext, CommandResult};
use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind, Result};
use crate::cli::arguments::values::{EXIT_CODES, parse_instant};
use crate::layouts::drover::{
    DroverLayout, Entry, EntryFile, IndexLimits, InstructionChain, InstructionSettings, Kind,
    RankingMode, Scope, Store, View, ViewKind, index_block, is_segment, new_id, rank, stable_id,
};
use crate::layouts::{Layout, MemoryFiles, PlanFailure, Refusal};
use crate::transport::local::LocalTransport;

/// Arguments of `drover`.
#[derive(Debug, Args)]
pub(super) struct DroverArgs {
    /// The directory of the entries (default: the working directory)
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The instant that counts as now (default: the clock)
    #[arg(long, global = true, value_name = "RFC3339", value_parser = parse_instant)]
    now: Option<DateTime<FixedOffset>>,
    /// The directory for what an interrupted write needs to be recovered (default: DIR)
    #[arg(long, global = true, value_name = "DIR")]
    journal: Option<PathBuf>,
    #[command(subcommand)]
    verb: DroverVerb,
}

#[derive(Debug, Subcommand)]
enum DroverVerb {
    /// Lists entries, those changed last first
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        filter: FilterFlags,
        /// Maximum number of entries
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Prints the body of an entry
    #[command(after_help = EXIT_CODES)]
    Show {
        /// Id of the entry
        id: String,
    },
    /// Finds entries by words, as an agent does
    #[command(after_help = EXIT_CODES)]
    Recall {
        /// The words; without them, the entries changed last
        query: Option<String>,
        #[command(flatten)]
        filter: FilterFlags,
        /// Maximum number of entries
        #[arg(long, value_name = "N", default_value_t = 10)]
        limit: usize,
        /// Takes words of all scripts, and tags of several words
        #[arg(long)]
        better: bool,
    },
    /// Prints the index of entries that an agent is given
    #[command(after_help = EXIT_CODES)]
    Index {
        /// The agent
        #[arg(long, value_name = "AGENT", value_parser = parse_agent_id)]
        agent_id: Option<String>,
        /// Maximum number of entries
        #[arg(long, value_name = "N", default_value_t = IndexLimits::DEFAULT.max_entries)]
        max_entries: usize,
        /// Maximum number of entries of each scope (default: that of all)
        #[arg(long, value_name = "N")]
        max_per_scope: Option<usize>,
    },
    /// Prints the instruction files that an agent is given in a directory
    #[command(after_help = EXIT_CODES)]
    Instructions {
        /// The directory in which the agent works (default: the working directory)
        #[arg(long, value_name = "DIR")]
        cwd: Option<PathBuf>,
        /// The first directory (default: that of the repository)
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
        /// Name of a file that is read in each directory (default: AGENTS.md and CLAUDE.md)
        #[arg(long, value_name = "NAME")]
        filename: Vec<String>,
        /// Maximum number of bytes of a file
        #[arg(long, value_name = "N", default_value_t = 16_384)]
        max_bytes: usize,
    },
    /// Prints an id
    #[command(after_help = EXIT_CODES)]
    Id {
        /// The id of the instruction file at this path
        #[arg(
            long,
            value_name = "PATH",
            required_unless_present = "at",
            conflicts_with = "at"
        )]
        path: Option<String>,
        /// A new id of this instant, in milliseconds since 1970
        #[arg(long, value_name = "MS")]
        at: Option<u64>,
    },
    /// Checks the entries
    #[command(after_help = EXIT_CODES)]
    Health,
    #[command(flatten)]
    Operation(OperationArgs),
}

/// Which entries a verb is about.
#[derive(Debug, Args)]
struct FilterFlags {
    /// Shows what this agent sees; without it, what the operator does: all
    #[arg(long, value_name = "AGENT", value_parser = parse_agent_id)]
    agent_id: Option<String>,
    /// Includes the entries of this run
    #[arg(long, value_name = "RUN")]
    run_id: Option<String>,
    /// Only entries of this scope
    #[arg(long, value_name = "SCOPE", value_parser = str::parse::<Scope>)]
    scope: Vec<Scope>,
    /// Only entries of this kind
    #[arg(long, value_name = "KIND", value_parser = str::parse::<Kind>)]
    kind: Vec<Kind>,
    /// Only entries with this tag
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
}

impl FilterFlags {
    fn to_view(&self) -> View {
        View {
            agent_id: self.agent_id.clone(),
            run_id: self.run_id.clone().filter(|run| !run.is_empty()),
            scopes: self.scope.clone(),
            kinds: self.kind.clone(),
            tags: self.tag.clone(),
        }
    }
}

/// Reads the entries of a directory that exists.
fn load_store(files: &MemoryFiles) -> Result<Store> {
    check_directory(files)?;
    Store::load(files)
}

/// A directory that does not exist would pass for an empty one.
fn check_directory(files: &MemoryFiles) -> Result<()> {
    if files.list(Path::new(""))?.is_none() {
        let message = format!("no such directory: {}", files.root().display());
        let hint = "name the directory with global, agents and runs: --dir DIR";
        return Err(Error::new(ErrorKind::Host, message).with_hint(hint));
    }
    Ok(())
}

fn parse_agent_id(text: &str) -> Result<String, String> {
    if is_segment(text) {
        Ok(text.to_string())
    } else {
        Err("an agent's id has 1 to 64 letters, digits, _ or -".to_string())
    }
}

pub(super) fn run(context: &mut CommandContext<'_>, args: &DroverArgs) -> CommandResult {
    let cwd = &context.environment.env.cwd;
    let root = args.dir.as_ref().map_or(cwd.clone(), |dir| cwd.join(dir));
    // The operator may name a symlink; below it none is followed.
    let root = fs::canonicalize(&root).unwrap_or(root);
    let transport = LocalTransport::new(Arc::new(SystemClock));
    let files = MemoryFiles::new(Arc::new(transport), &root);
    let now = args.now.unwrap_or_else(|| SystemClock.now());
    match &args.verb {
        DroverVerb::List { filter, limit } => {
            let store = load_store(&files)?;
            let document = ListDocument::new(&store, &filter.to_view(), *limit);
            let kind = print_answer_of(context, &store, &document)?;
            let (shown, count) = (document.entries.len(), document.count);
            if shown < count {
                context.print_note(format!("{shown} of {count} entries; --limit shows more"));
            }
            Ok(kind)
        }
        DroverVerb::Show { id } => show(context, &files, id),
        DroverVerb::Recall {
            query,
            filter,
            limit,
            better,
        } => {
            let mode = if *better {
                RankingMode::Better
            } else {
                RankingMode::Bm25
            };
            let store = load_store(&files)?;
            let view = filter.to_view();
            let query = query.as_deref().unwrap_or_default();
            let document = RecallDocument::new(&store, &view, query, *limit, mode);
            print_answer_of(context, &store, &document)
        }
        DroverVerb::Index {
            agent_id,
            max_entries,
            max_per_scope,
        } => {
            let store = load_store(&files)?;
            let limits = IndexLimits {
                max_entries: *max_entries,
                max_per_scope: max_per_scope.unwrap_or(*max_entries),
            };
            let entries = store.entries().map(|(_, entry)| entry);
            let block = index_block(entries, agent_id.as_deref(), limits);
            let document = IndexDocument {
                text: block.text,
                shown: block.shown,
                cut: block.cut,
            };
            print_answer_of(context, &store, &document)
        }
        DroverVerb::Instructions {
            cwd: directory,
            root,
            filename,
            max_bytes,
        } => {
            let directory = directory.as_ref().map_or(cwd.clone(), |it| cwd.join(it));
            let mut settings = InstructionSettings {
                root: root.as_ref().map(|root| cwd.join(root)),
                max_bytes: *max_bytes,
                ..InstructionSettings::default()
            };
            if !filename.is_empty() {
                settings.filenames.clone_from(filename);
            }
            let chain = InstructionChain::read(&directory, &settings);
            context.print_answer(&InstructionsDocument::new(chain))
        }
        DroverVerb::Id { path, at } => {
            let id = match (path, at) {
                (Some(path), _) => stable_id(path),
                (None, at) => new_id(at.unwrap_or_default(), random_bytes()?),
            };
            context.print_answer(&IdDocument { id })
        }
        DroverVerb::Health => {
            check_directory(&files)?;
            let findings = DroverLayout.health(&files, now)?;
            context.print_health(DroverLayout.name(), &root, now, findings)
        }
        DroverVerb::Operation(operation) => apply(context, args, &root, operation, now),
    }
}

/// Prints an answer from entries, then which of their files could not be read.
fn print_answer_of(
    context: &mut CommandContext<'_>,
    store: &Store,
    document: &impl Document,
) -> CommandResult {
    context.print_document(document)?;
    for (_, error) in &store.unread {
        context.print_error(error.message());
    }
    let kinds = store.unread.iter().map(|(_, error)| error.kind());
    Ok(kinds.reduce(ErrorKind::more_serious))
}

/// Returns the bytes that make an id unlike others.
fn random_bytes() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::new(ErrorKind::Host, format!("no random bytes: {error}")))?;
    Ok(bytes)
}

/// An entry in documents.
#[derive(Serialize)]
struct EntryItem {
    id: String,
    scope: Scope,
    kind: Kind,
    summary: String,
    agent_id: Option<String>,
    run_id: Option<String>,
    tags: Vec<String>,
    created_ms: i64,
    updated_ms: Option<i64>,
    path: String,
    bytes: usize,
}

impl EntryItem {
    fn new(file: &EntryFile, entry: &Entry) -> EntryItem {
        EntryItem {
            id: entry.id.clone(),
            scope: entry.scope,
            kind: entry.kind,
            summary: entry.summary.clone(),
            agent_id: entry.agent_id.clone(),
            run_id: entry.run_id.clone(),
            tags: entry.tags.clone(),
            created_ms: entry.created_ms,
            updated_ms: entry.updated_ms,
            path: file.path.display().to_string(),
            bytes: file.bytes.len(),
        }
    }
}

/// The answer of `list`.
#[derive(Serialize)]
struct ListDocument {
    view: ViewKind,
    scopes: Vec<Scope>,
    entries: Vec<EntryItem>,
    /// Number of entries without the limit.
    #[serde(skip)]
    count: usize,
}

impl ListDocument {
    fn new(store: &Store, view: &View, limit: usize) -> ListDocument {
        let seen = view.newest_first(store.entries());
        ListDocument {
            view: view.kind(),
            scopes: view.effective_scopes(),
            count: seen.len(),
            entries: seen
                .into_iter()
                .take(limit)
                .map(|(file, entry)| EntryItem::new(file, entry))
                .collect(),
        }
    }
}

impl Document for ListDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for entry in &self.entries {
            let (scope, kind) = (entry.scope.as_str(), entry.kind.as_str());
            let line = format!("{} [{scope} · {kind}] {}", entry.id, entry.summary);
            printer.write_line(&[plain(&line)])?;
        }
        Ok(())
    }
}

/// The answer of `show`.
#[derive(Serialize)]
struct ShowDocument {
    #[serde(flatten)]
    entry: EntryItem,
    body: String,
}

impl Document for ShowDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_bytes(format!("{}\n", self.body).as_bytes())
    }
}

fn show(context: &mut CommandContext<'_>, files: &MemoryFiles, id: &str) -> CommandResult {
    let store = load_store(files)?;
    let Some((file, entry)) = store.find(id) else {
        // A file that cannot be read may be the one.
        if let Some((_, error)) = store.unread.first() {
            return Err(error.clone().into());
        }
        return refuse(
            context,
            "get",
            Some(id),
            "",
            &Refusal {
                reason: "not_found",
                message: format!("no memory '{id}'."),
            },
        );
    };
    let document = ShowDocument {
        entry: EntryItem::new(file, entry),
        body: entry.body.clone(),
    };
    print_answer_of(context, &store, &document)
}

/// The answer of `recall`.
#[derive(Serialize)]
struct RecallDocument {
    mode: &'static str,
    view: ViewKind,
    query: String,
    scopes: Vec<Scope>,
    hits: Vec<RecallHit>,
}

/// An entry that was recalled.
#[derive(Serialize)]
struct RecallHit {
    id: String,
    scope: Scope,
    kind: Kind,
    summary: String,
    body: String,
    tags: Vec<String>,
    score: f64,
}

impl RecallDocument {
    fn new(
        store: &Store,
        view: &View,
        query: &str,
        limit: usize,
        mode: RankingMode,
    ) -> RecallDocument {
        let hits: Vec<(&Entry, f64)> = if query.is_empty() {
            let newest = view.newest_first(store.entries()).into_iter();
            newest.map(|(_, entry)| (entry, 0.0)).collect()
        } else {
            let seen = store.entries().map(|(_, entry)| entry);
            let seen: Vec<&Entry> = seen.filter(|entry| view.has(entry)).collect();
            let ranked = rank(&seen, query, mode).into_iter();
            ranked
                .map(|(number, score)| (seen[number], score))
                .collect()
        };
        let hits = hits
            .into_iter()
            .take(limit)
            .map(|(entry, score)| RecallHit {
                id: entry.id.clone(),
                scope: entry.scope,
                kind: entry.kind,
                summary: entry.summary.clone(),
                body: entry.body.clone(),
                tags: entry.tags.clone(),
                score,
            });
        RecallDocument {
            mode: mode.as_str(),
            view: view.kind(),
            query: query.to_string(),
            scopes: view.effective_scopes(),
            hits: hits.collect(),
        }
    }

    /// Returns the text that an agent is given.
    fn text(&self) -> String {
        let scopes: Vec<&str> = self.scopes.iter().map(|scope| scope.as_str()).collect();
        let scopes = scopes.join(", ");
        if self.hits.is_empty() {
            return format!("(no memories matched in scopes: {scopes})");
        }
        // The agents' own program does not know the singular.
        let count = self.hits.len();
        let mut text = format!("## Recalled ({count} entries, scopes: {scopes})\n\n");
        for hit in &self.hits {
            let tags = match hit.tags.as_slice() {
                [] => String::new(),
                tags => format!(" · tags: {}", tags.join(", ")),
            };
            text.push_str(&format!(
                "### [{} · {}] {}\nscore: {:.2} · id: {}{tags}\n\n{}\n\n",
                hit.scope.as_str(),
                hit.kind.as_str(),
                hit.summary,
                hit.score,
                hit.id,
                hit.body,
            ));
        }
        text.truncate(text.trim_end().len());
        text
    }
}

impl Document for RecallDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_bytes(format!("{}\n", self.text()).as_bytes())
    }
}

/// The answer of `index`.
#[derive(Serialize)]
struct IndexDocument {
    text: String,
    shown: Vec<String>,
    cut: Vec<String>,
}

impl Document for IndexDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_bytes(self.text.as_bytes())
    }
}

/// The answer of `instructions`.
#[derive(Serialize)]
struct InstructionsDocument {
    root: String,
    files: Vec<InstructionItem>,
    text: String,
}

/// An instruction file in documents.
#[derive(Serialize)]
struct InstructionItem {
    path: String,
    relative_dir: String,
    filename: String,
    content: String,
    truncated: bool,
    stable_id: String,
}

impl InstructionsDocument {
    fn new(chain: InstructionChain) -> InstructionsDocument {
        let text = chain.text();
        let files = chain.files.into_iter().map(|file| InstructionItem {
            path: file.path.display().to_string(),
            relative_dir: file.relative_directory,
            filename: file.filename,
            content: file.content,
            truncated: file.is_truncated,
            stable_id: file.stable_id,
        });
        InstructionsDocument {
            root: chain.root.display().to_string(),
            files: files.collect(),
            text,
        }
    }
}

impl Document for InstructionsDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_bytes(self.text.as_bytes())
    }
}

/// The answer of `id`.
#[derive(Serialize)]
struct IdDocument {
    id: String,
}

impl Document for IdDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_plain_line(&self.id)
    }
}

/// The answer of an operation.
#[derive(Serialize)]
struct OperationDocument {
    /// Forget says only whether something was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(flatten)]
    facts: serde_json::Value,
    #[serde(skip)]
    message: String,
}

impl Document for OperationDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        printer.write_plain_line(&self.message)
    }
}

fn apply(
    context: &mut CommandContext<'_>,
    args: &DroverArgs,
    root: &Path,
    operation: &OperationArgs,
    now: DateTime<FixedOffset>,
) -> CommandResult {
    let environment = context.environment;
    let request = operation.to_request(&environment.env.cwd, now)?;
    let journal = args.journal.as_ref().map(|it| environment.env.cwd.join(it));
    let memory = DirectMemory {
        layout: &DroverLayout,
        root,
        journal: journal.as_deref(),
        layouts: environment.layouts,
        user: &environment.user,
    };
    match memory.apply(&request) {
        Ok(planned) => {
            if !planned.edits.is_empty() {
                context.print_note("without a config there is neither archive nor undo");
            }
            let is_forget = request.operation == "forget";
            context.print_answer(&OperationDocument {
                outcome: (!is_forget).then_some(planned.outcome),
                facts: planned.facts,
                message: planned.message,
            })
        }
        Err(PlanFailure::Refused(refusal)) => {
            let prefix = if request.operation == "forget" {
                ""
            } else {
                "remember failed: "
            };
            let id = request.value("id");
            refuse(
                context,
                operation_word(&request.operation),
                id,
                prefix,
                &refusal,
            )
        }
        Err(PlanFailure::Failed(error)) => Err(error.into()),
    }
}

/// The word of the agents' own program for an operation.
fn operation_word(operation: &str) -> &'static str {
    if operation == "forget" {
        "forget"
    } else {
        "put"
    }
}

/// The answer of a verb that is refused.
#[derive(Serialize)]
struct RefusalDocument<'a> {
    error: RefusalItem<'a>,
}

#[derive(Serialize)]
struct RefusalItem<'a> {
    op: &'static str,
    reason: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

impl Document for RefusalDocument<'_> {
    fn write_text(&self, _: &mut Printer<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Says in the words of the agents' own program why a verb is refused.
fn refuse(
    context: &mut CommandContext<'_>,
    op: &'static str,
    id: Option<&str>,
    prefix: &str,
    refusal: &Refusal,
) -> CommandResult {
    let line = format!("{prefix}{}", refusal.message);
    context.output.print_foreign_error(&line);
    context.print_document(&RefusalDocument {
        error: RefusalItem {
            op,
            reason: refusal.reason,
            message: &refusal.message,
            id,
        },
    })?;
    Ok(Some(ErrorKind::Partial))
}
