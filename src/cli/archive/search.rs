//! `archive search` and `archive reindex`.

use std::io;
use std::ops::Range;

use chrono::{DateTime, FixedOffset};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::archive::index::CandidateOrder;
use crate::archive::search::{MAX_PLACES, Query, QueryError, Source};
use crate::archive::{EntryKind, format_stamp};
use crate::base::error::{Error, ErrorKind};
use crate::base::invocation::as_operand;
use crate::cli::arguments::values::parse_number;
use crate::cli::output::{Document, Output, Printer, dim, format_count, notice};
use crate::cli::{CommandContext, CommandError, CommandResult};
use crate::engine::{
    Engine, FoundEntry, FoundLine, FoundMemory, FoundMemoryFile, IndexProgress, SearchRelaxation,
    SearchRequest, SearchResult,
};

/// Number of entries that a search prints by default.
const DEFAULT_LIMIT: usize = 100;

/// Number of indexed entries between two updates of the status line.
const PROGRESS_STEP: u64 = 200;

#[derive(Debug, Args)]
pub(in crate::cli) struct SearchArgs {
    /// The query; of several arguments, one with blanks is a phrase
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Prints at most this many entries, 0 for all
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_LIMIT, value_parser = parse_number::<usize>)]
    limit: usize,
    /// Order of the entries
    #[arg(long, value_enum, default_value_t = SearchOrder::Relevance)]
    order: SearchOrder,
}

/// Conditions on entries, as options.
#[derive(Debug, Args)]
pub(in crate::cli) struct FilterArgs {
    /// Only entries of this agent; `*` stands for any characters
    #[arg(long, value_name = "AGENT")]
    agent: Vec<String>,
    /// Only entries since then: an age such as 7d or 24h, a date, a month, a time
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Only entries until then
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SearchOrder {
    /// The best matches first, of equal ones the newest
    Relevance,
    /// The newest first
    Newest,
    /// The oldest first
    Oldest,
    /// The largest first
    Largest,
}

impl From<SearchOrder> for CandidateOrder {
    fn from(order: SearchOrder) -> CandidateOrder {
        match order {
            SearchOrder::Relevance => CandidateOrder::Relevance,
            SearchOrder::Newest => CandidateOrder::Newest,
            SearchOrder::Oldest => CandidateOrder::Oldest,
            SearchOrder::Largest => CandidateOrder::Largest,
        }
    }
}

impl FilterArgs {
    /// Parses a query with these conditions.
    pub(in crate::cli) fn parse_query(
        &self,
        text: &str,
        engine: &Engine,
    ) -> Result<Query, CommandError> {
        Query::parse(&self.join_terms(text), engine.clock().now()).map_err(query_error)
    }

    /// Returns a query with these conditions as terms.
    fn join_terms(&self, text: &str) -> String {
        let mut terms = vec![text.to_string()];
        terms.extend(self.agent.iter().map(|agent| format!("agent:{agent}")));
        // A term ends at a blank, and a time may have one before its hour.
        let term = |name: &str, when: &String| format!("{name}:{}", when.trim().replace(' ', "T"));
        terms.extend(self.since.iter().map(|when| term("since", when)));
        terms.extend(self.until.iter().map(|when| term("until", when)));
        terms.join(" ").trim().to_string()
    }
}

fn query_error(error: QueryError) -> CommandError {
    let failure = Error::new(ErrorKind::User, error.message);
    match error.hint {
        Some(hint) => failure.with_hint(hint).into(),
        None => failure.into(),
    }
}

/// Joins the arguments of a query. The shell removed the quotation marks of a phrase.
fn join_query(arguments: &[String]) -> String {
    let is_phrase = |text: &str| {
        let is_marked = text.contains('"') || text.starts_with('/') || text.starts_with("-/");
        text.contains(char::is_whitespace) && !is_marked
    };
    match arguments {
        [query] => query.clone(),
        many => {
            let terms = many.iter().map(|text| {
                if is_phrase(text) {
                    format!("\"{text}\"")
                } else {
                    text.clone()
                }
            });
            terms.collect::<Vec<String>>().join(" ")
        }
    }
}

/// The answer of `archive search`.
#[derive(Serialize)]
struct SearchDocument<'r> {
    query: &'r str,
    /// Number of hits in all texts.
    hits: usize,
    /// Whether everything that matches is listed.
    complete: bool,
    memories: Vec<MemoryItem<'r>>,
    files: Vec<MemoryFileItem<'r>>,
    entries: Vec<FoundEntryItem<'r>>,
    notes: &'r [String],
    /// Queries that find something, where this one finds nothing.
    relaxations: Vec<RelaxationItem<'r>>,
    #[serde(skip)]
    result: &'r SearchResult,
}

#[derive(Serialize)]
struct RelaxationItem<'r> {
    /// The term that it drops, or splits into words.
    term: &'r str,
    query: &'r str,
    entries: usize,
    memories: usize,
    /// Whether all of them are counted.
    complete: bool,
}

#[derive(Serialize)]
struct MemoryItem<'r> {
    agent: &'r str,
    path: &'r str,
    read: DateTime<FixedOffset>,
    /// As of an entry.
    similarity: f64,
    hits: usize,
    lines: Vec<LineItem>,
}

#[derive(Serialize)]
struct MemoryFileItem<'r> {
    agent: &'r str,
    layout: &'r str,
    collection: &'r str,
    item: &'r str,
    title: &'r str,
    path: &'r str,
    changed: DateTime<FixedOffset>,
    size: u64,
    /// As of an entry.
    similarity: f64,
    hits: usize,
    lines: Vec<LineItem>,
}

#[derive(Serialize)]
struct FoundEntryItem<'r> {
    path: String,
    agent: &'r str,
    left: bool,
    kind: EntryKind,
    stamp: String,
    size: u64,
    pinned: bool,
    /// How similar its words are to those of the query; 1 where they are the same.
    similarity: f64,
    hits: usize,
    lines: Vec<LineItem>,
}

#[derive(Serialize)]
struct LineItem {
    line: u64,
    text: String,
    /// The hits as ranges of bytes of the text.
    matches: Vec<Range<usize>>,
}

impl LineItem {
    fn new(line: &FoundLine) -> LineItem {
        let mut text = String::new();
        let mut end = 0;
        let matches = line.hits.iter().map(|hit| {
            text.push_str(&String::from_utf8_lossy(
                &line.bytes[end..hit.start.max(end)],
            ));
            let start = text.len();
            text.push_str(&String::from_utf8_lossy(
                &line.bytes[hit.start.max(end)..hit.end.max(end)],
            ));
            end = hit.end.max(end);
            start..text.len()
        });
        let matches = matches.collect();
        text.push_str(&String::from_utf8_lossy(&line.bytes[end..]));
        LineItem {
            line: line.number,
            text,
            matches,
        }
    }
}

impl<'r> RelaxationItem<'r> {
    fn new(relaxation: &'r SearchRelaxation) -> RelaxationItem<'r> {
        RelaxationItem {
            term: &relaxation.relaxed.term,
            query: &relaxation.relaxed.query,
            entries: relaxation.entries,
            memories: relaxation.memories,
            complete: !relaxation.has_more,
        }
    }
}

impl<'r> MemoryItem<'r> {
    fn new(found: &'r FoundMemory) -> MemoryItem<'r> {
        MemoryItem {
            agent: &found.agent,
            path: &found.address,
            read: found.read_at,
            similarity: found.text.similarity,
            hits: found.text.hit_count,
            lines: found.text.lines.iter().map(LineItem::new).collect(),
        }
    }
}

impl<'r> MemoryFileItem<'r> {
    fn new(found: &'r FoundMemoryFile) -> MemoryFileItem<'r> {
        MemoryFileItem {
            agent: &found.agent,
            layout: &found.layout,
            collection: &found.collection,
            item: &found.item,
            title: &found.title,
            path: &found.address,
            changed: found.modified,
            size: found.size,
            similarity: found.text.similarity,
            hits: found.text.hit_count,
            lines: found.text.lines.iter().map(LineItem::new).collect(),
        }
    }
}

impl<'r> FoundEntryItem<'r> {
    fn new(found: &'r FoundEntry) -> FoundEntryItem<'r> {
        let (entry, text) = (&found.entry, found.text.as_ref());
        let lines = text.iter().flat_map(|text| &text.lines);
        FoundEntryItem {
            path: entry.path.display().to_string(),
            agent: &found.agent,
            left: found.has_left,
            kind: entry.kind,
            stamp: format_stamp(entry.stamp),
            size: entry.size,
            pinned: found.is_pinned,
            similarity: text.map_or(1.0, |text| text.similarity),
            hits: text.map_or(0, |text| text.hit_count),
            lines: lines.map(LineItem::new).collect(),
        }
    }
}

impl Document for SearchDocument<'_> {
    /// Writes `path:line:text`, as `grep -n` does; a text without lines as its path alone.
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        for found in &self.result.memories {
            write_found_lines(printer, &found.address, &found.text.lines)?;
        }
        for found in &self.result.files {
            write_found_lines(printer, &found.address, &found.text.lines)?;
        }
        for found in &self.result.entries {
            let path = as_operand(&found.entry.path).display().to_string();
            let lines = found.text.as_ref().map(|text| text.lines.as_slice());
            write_found_lines(printer, &path, lines.unwrap_or_default())?;
        }
        Ok(())
    }
}

fn write_found_lines(printer: &mut Printer<'_>, path: &str, lines: &[FoundLine]) -> io::Result<()> {
    if lines.is_empty() {
        printer.write_plain_line(path)?;
    }
    for line in lines {
        let number = format!(":{}:", line.number);
        let label = [notice(path), dim(&number)];
        printer.write_highlighted_line(&label, &line.bytes, &line.hits)?;
    }
    Ok(())
}

pub(in crate::cli) fn run(context: &mut CommandContext<'_>, args: &SearchArgs) -> CommandResult {
    let engine = context.open_engine()?;
    let text = join_query(&args.query);
    let query = args.filter.parse_query(&text, &engine)?;
    // Memories on other machines are read only where the query asks for memories.
    let reads_remote = query.filter.names_source(Source::Live);
    let request = SearchRequest {
        reads_remote,
        query,
        order: args.order.into(),
        limit: if args.limit == 0 {
            usize::MAX
        } else {
            args.limit
        },
        max_lines: MAX_PLACES,
    };
    let includes = |source| request.query.filter.includes(source);
    if includes(Source::Archive) || includes(Source::Memory) {
        let updated = engine
            .search()
            .update_index(&mut progress_line(context.output));
        context.output.update_status_line("");
        if let Err(error) = updated {
            let why = error.message();
            context.print_note(format!("the index was not brought up to date: {why}"));
        }
    }
    let result = engine.search().search_archive(&request, &|| true)?;
    for note in &result.notes {
        context.print_note(note);
    }
    if let Some(agent) = result.never_read.first() {
        context.print_hint(if reads_remote {
            format!("`status {agent}` says why it cannot be read")
        } else {
            "`in:live` in the query reads the memories of hosts".to_string()
        });
    }
    let (has_more, is_all_read) = (result.has_more(), result.unread_entries == 0);
    let has_unlisted_hits = result.has_unlisted_hits();
    let has_memories = !result.memories.is_empty() || !result.files.is_empty();
    let is_found = !result.entries.is_empty() || has_memories;
    let relaxations = if is_found {
        Vec::new()
    } else {
        engine
            .search()
            .relax_search(&args.filter.join_terms(&text), false, &|| true)?
    };
    context.print_document(&SearchDocument {
        query: &text,
        hits: result.hit_count(),
        complete: !has_more && is_all_read && !has_unlisted_hits,
        memories: result.memories.iter().map(MemoryItem::new).collect(),
        files: result.files.iter().map(MemoryFileItem::new).collect(),
        entries: result.entries.iter().map(FoundEntryItem::new).collect(),
        notes: &result.notes,
        relaxations: relaxations.iter().map(RelaxationItem::new).collect(),
        result: &result,
    })?;
    for relaxation in &relaxations {
        let (what, count) = (relaxation.describe(), relaxation.describe_count());
        context.print_hint(format!("{what}: {count}"));
    }
    if has_more {
        let shown = format_count(result.entries.len(), "entry");
        context.print_note(format!("{shown} shown; --limit 0 prints all"));
    }
    if has_unlisted_hits {
        context.print_note(format!(
            "of each text, only the lines of its first {MAX_PLACES} hits are listed; `archive show ENTRY` \
             prints all of an entry"
        ));
    }
    Ok(if is_all_read {
        (!is_found).then_some(ErrorKind::Partial)
    } else {
        Some(ErrorKind::Host)
    })
}

pub(in crate::cli) fn rebuild_index(context: &mut CommandContext<'_>) -> CommandResult {
    let engine = context.open_engine()?;
    let report = engine
        .search()
        .rebuild_index(&mut progress_line(context.output));
    context.output.update_status_line("");
    let report = report?;
    context.print_document(&ReindexDocument {
        entries: report.indexed,
        bytes: report.bytes,
    })?;
    let Some(first) = report.unread.first() else {
        return Ok(None);
    };
    let count = format_count(report.unread.len(), "entry");
    let first = first.display();
    context.print_note(format!("{count} could not be read, such as {first}"));
    Ok(Some(ErrorKind::Host))
}

/// Returns a callback that shows the progress of an index on the status line.
fn progress_line(output: &mut Output) -> impl FnMut(IndexProgress) -> bool {
    let has_status_line = output.has_status_line();
    let mut next_step = 1;
    move |progress| {
        if has_status_line && progress.entries >= next_step {
            next_step = progress.entries + PROGRESS_STEP;
            let megabytes = progress.bytes / 1_000_000;
            let entries = progress.entries;
            output.update_status_line(&format!("index: {entries} entries, {megabytes} MB"));
        }
        true
    }
}

/// The answer of `archive reindex`.
#[derive(Serialize)]
struct ReindexDocument {
    /// Number of entries in the index.
    entries: u64,
    /// Number of their bytes.
    bytes: u64,
}

impl Document for ReindexDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let entries = format_count(self.entries as usize, "entry");
        printer.write_plain_line(format!("indexed {entries}, {} bytes", self.bytes))
    }
}
