//! Jobs of the archives: searches, which also bring the index up to date, texts, and pins.

use std::cell::RefCell;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};

use super::EffectRunner;
use super::agent_texts::DIFF_TIMEOUT;
use super::job_queue::{JobClass, Request};
use crate::archive::search::Query;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::quantity::format_count;
use crate::console::handoff::PagerText;
use crate::console::message::Msg;
use crate::console::screens::archives::state::timeline::MAX_TIMELINE_ROWS;
use crate::console::screens::archives::state::{
    ArchiveSearchRequest, EntryComparisonRequest, EntryTextRequest, FoundRows,
};
use crate::console::screens::log::state::MessageLevel;
use crate::console::text::{self, ComparedTexts, LineKind, PreparedText};
use crate::engine::{
    Engine, IndexProgress, RetentionOverview, SearchRequest, TextSource, TimelineSubject,
};

/// Bytes of a text that are shown; the pager has all of it.
const MAX_SHOWN_BYTES: u64 = 1 << 20;

/// Bytes of a text that the pager gets.
const MAX_PAGER_BYTES: u64 = 64 << 20;

/// Lines of a text that a search keeps: the list shows the first.
const MAX_KEPT_LINES: usize = 1;

/// Interval between two reports of the progress of the index.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Searches, then brings the index up to date and searches again if that changed it. Where
/// nothing was found, it then looks for queries that find something. A later request ends it.
pub(super) fn search_archive(runner: &mut EffectRunner, request: ArchiveSearchRequest) {
    runner
        .latest_search
        .store(request.number, Ordering::Relaxed);
    let (latest, messages) = (Arc::clone(&runner.latest_search), runner.messages.clone());
    let number = request.number;
    let job = Request::latest(JobClass::ArchiveSearch, "search");
    runner.submit(job, move |engine| {
        let is_wanted = || latest.load(Ordering::Relaxed) == number;
        // Where the rows come from that were sent last.
        let found_sources: RefCell<Option<Vec<TextSource>>> = RefCell::default();
        // The main thread may have ended.
        let send = |found: Result<FoundRows>| {
            if is_wanted() {
                found_sources.replace(found.as_ref().ok().map(FoundRows::sources));
                let found = found.map(Box::new).map_err(|error| error.to_string());
                let _ = messages.send(Msg::ArchiveSearched(number, found));
            }
        };
        let engine = match engine {
            Ok(engine) => engine,
            Err(error) => {
                send(Err(error));
                return Msg::ArchiveSearchEnded(number);
            }
        };
        let has_index = engine.search().has_open_index();
        if has_index {
            send(search(engine, &request, &is_wanted));
        }
        let report = update_index(engine, &latest, number, &|progress| {
            let _ = messages.try_send(Msg::IndexProgressed(progress));
        });
        let is_changed = match &report {
            Ok(report) => report.indexed > 0 || report.removed > 0,
            Err(_) => false,
        };
        if is_wanted() && (!has_index || is_changed || report.is_err()) {
            let mut found = search(engine, &request, &is_wanted);
            if let (Ok(found), Err(error)) = (&mut found, &report) {
                let note = format!("the index was not brought up to date: {}", error.message());
                found.result.notes.insert(0, note);
            }
            send(found);
        }
        let sources = found_sources.take();
        let has_found_nothing = sources.as_ref().is_some_and(Vec::is_empty);
        let entries = sources.into_iter().flatten().filter_map(|it| match it {
            TextSource::Entry(path) => Some(path),
            TextSource::Memory(_) | TextSource::MemoryFile { .. } => None,
        });
        let recorded = engine.search().recorded_entries(entries, &is_wanted);
        let recorded = recorded.map_err(|error| error.to_string());
        let _ = messages.send(Msg::EntryRecordsRead(number, recorded));
        let query = request.query;
        if query.trim().is_empty() || !has_found_nothing || !is_wanted() {
            return Msg::ArchiveSearchEnded(number);
        }
        let _ = messages.send(Msg::ArchiveSearchEnded(number));
        let relaxations = engine.search().relax_search(&query, true, &is_wanted);
        Msg::ArchiveRelaxed(number, relaxations.map_err(|error| error.to_string()))
    });
}

pub(super) fn read_entry_text(runner: &EffectRunner, request: EntryTextRequest) {
    runner.submit(
        Request::latest(JobClass::ArchiveTexts, "text"),
        move |engine| {
            let text = engine.and_then(|it| prepare_text(it, &request));
            Msg::EntryTextRead(request, text.map_err(|error| error.to_string()))
        },
    );
}

pub(super) fn compare_entry(runner: &EffectRunner, request: EntryComparisonRequest) {
    runner.submit(
        Request::latest(JobClass::ArchiveTexts, "comparison"),
        move |engine| {
            let texts = engine.and_then(|it| compare(it, &request));
            let texts = texts.map(Box::new).map_err(|error| error.to_string());
            Msg::EntryCompared(request, texts)
        },
    );
}

pub(super) fn set_pinned(runner: &EffectRunner, entry: PathBuf, is_pinned: bool) {
    runner.submit(JobClass::Handoff, move |engine| {
        let changed = engine.and_then(|it| {
            it.entries()
                .set_pinned(std::slice::from_ref(&entry), is_pinned)
        });
        let outcome = changed.map(drop).map_err(|error| error.to_string());
        Msg::EntryPinned(entry, is_pinned, outcome)
    });
}

pub(super) fn find_entry_run(runner: &EffectRunner, entry: PathBuf) {
    runner.submit(JobClass::ArchiveTexts, move |engine| {
        let record = engine.and_then(|it| it.search().record_of_entry(&entry));
        let found = record.map(|record| (record.event.agent, record.event.run));
        Msg::EntryRunFound(entry, found.map_err(|error| error.to_string()))
    });
}

/// Reads what happened to an agent. A later request ends it.
pub(super) fn load_timeline(runner: &EffectRunner, number: u64, subject: TimelineSubject) {
    runner.latest_timeline.store(number, Ordering::Relaxed);
    let latest = Arc::clone(&runner.latest_timeline);
    let request = Request::latest(JobClass::Timeline, "timeline").listed_as("timeline");
    runner.submit(request, move |engine| {
        let is_wanted = || latest.load(Ordering::Relaxed) == number;
        let found = engine.and_then(|it| {
            it.timelines()
                .agent_timeline(&subject, MAX_TIMELINE_ROWS, &is_wanted)
        });
        Msg::TimelineLoaded(
            number,
            found.map(Box::new).map_err(|error| error.to_string()),
        )
    });
}

/// Exports an entry to a new file at a path as it was typed.
pub(super) fn export_entry(runner: &EffectRunner, entry: PathBuf, typed: &Path) {
    let path = runner.config_reloader.resolve(typed);
    runner.submit(JobClass::Handoff, move |engine| {
        match engine.and_then(|it| it.entries().export_entry(&entry, &path)) {
            Ok((digest, bytes)) => {
                let (entry, path) = (entry.display(), path.display());
                let (bytes, digest) = (format_count(bytes, "byte"), digest.short_hex(8));
                let text = format!("exported {entry} to {path}: {bytes}, sha256 {digest}…");
                Msg::Reported(MessageLevel::Info, text)
            }
            Err(error) => {
                let text = format!("not exported: {}", error.to_line());
                Msg::Reported(MessageLevel::Error, text)
            }
        }
    });
}

pub(super) fn load_retention(runner: &EffectRunner, number: u64) {
    let request = Request::latest(JobClass::Retention, "overview").listed_as("retention");
    runner.submit(request, move |engine| {
        let overview = engine.and_then(|it| it.retention().retention_overview(&[]));
        let overview = overview.map(Box::new).map_err(|error| error.to_string());
        Msg::RetentionLoaded(number, overview)
    });
}

/// Deletes what an overview has shown; the program waits for its end before it ends.
pub(super) fn prune_archive(runner: &mut EffectRunner, shown: Arc<RetentionOverview>) {
    let (guard, handle) = bounded(0);
    runner.prune_handle = Some(handle);
    let request = Request::listed(JobClass::Retention, "pruning the archive");
    runner.submit(request, move |engine| {
        let _guard: Sender<Infallible> = guard;
        let report = engine.and_then(|it| it.retention().prune_shown(&shown));
        Msg::ArchivePruned(report.map(Box::new).map_err(|error| error.to_line()))
    });
}

pub(super) fn load_source(runner: &EffectRunner, source: TextSource) {
    runner.submit(JobClass::Handoff, move |engine| {
        let page = engine.and_then(|it| it.search().read_source(&source, MAX_PAGER_BYTES));
        let name = match &source {
            TextSource::Entry(_) => "entry",
            TextSource::Memory(agent) => agent,
            TextSource::MemoryFile { item, .. } => item,
        };
        let page = page.map(|text| PagerText::new(name, &text.bytes));
        Msg::SourceLoaded(source, page)
    });
}

/// Parses a query. Its last word also matches the beginnings of words: it may be unfinished.
fn parse_query(engine: &Engine, text: &str) -> Result<Query> {
    let query = Query::parse(text, engine.clock().now())
        .map_err(|error| Error::new(ErrorKind::User, error.to_string()))?;
    Ok(query.while_typing(text))
}

fn search(
    engine: &Engine,
    request: &ArchiveSearchRequest,
    is_wanted: &dyn Fn() -> bool,
) -> Result<FoundRows> {
    let search = SearchRequest {
        query: parse_query(engine, &request.query)?,
        order: request.order,
        limit: request.limit,
        max_lines: MAX_KEPT_LINES,
        // The console watches hosts anyway.
        reads_remote: false,
    };
    Ok(FoundRows {
        query: request.query.clone(),
        result: engine.search().search_archive(&search, is_wanted)?,
    })
}

fn update_index(
    engine: &Engine,
    latest: &AtomicU64,
    number: u64,
    report: &dyn Fn(IndexProgress),
) -> Result<crate::engine::SyncReport> {
    let mut last_report = engine.clock().instant();
    engine.search().update_index(&mut |progress| {
        let now = engine.clock().instant();
        if now - last_report >= PROGRESS_INTERVAL {
            last_report = now;
            report(progress);
        }
        latest.load(Ordering::Relaxed) == number
    })
}

/// Prepares a text, with the hits of the query as emphasized ranges of its lines.
fn prepare_text(engine: &Engine, request: &EntryTextRequest) -> Result<PreparedText> {
    let text = engine
        .search()
        .read_source(&request.source, MAX_SHOWN_BYTES)?;
    let mut prepared = text::prepare_entry(&text.bytes, text.omitted_bytes);
    let query = parse_query(engine, &request.query)?;
    if query.has_text()
        && let Some(hits) = engine.search().find_hits(&query, &text)
    {
        let mut lines = prepared
            .lines
            .iter_mut()
            .filter(|line| line.kind == LineKind::Same);
        for found in hits.lines(&text.bytes) {
            let number = Some(found.number as usize);
            let Some(line) = lines.find(|line| line.new_number == number) else {
                break;
            };
            let start = found.range.start;
            let length = line.bytes.len();
            let ranges = found.hits.iter().map(|hit| {
                let place = |at: usize| at.saturating_sub(start).min(length);
                place(hit.start)..place(hit.end)
            });
            line.changed_ranges = merge_ranges(ranges);
        }
    }
    Ok(prepared)
}

/// Merges ranges that overlap; they come in the order of their beginnings.
fn merge_ranges(
    ranges: impl Iterator<Item = std::ops::Range<usize>>,
) -> Vec<std::ops::Range<usize>> {
    let mut merged: Vec<std::ops::Range<usize>> = Vec::new();
    for range in ranges.filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn compare(engine: &Engine, request: &EntryComparisonRequest) -> Result<ComparedTexts> {
    let compared =
        engine
            .search()
            .compare_entry_with(&request.entry, &request.other, MAX_SHOWN_BYTES)?;
    let [old, new] = &compared.texts;
    let deadline = engine.clock().instant() + DIFF_TIMEOUT;
    let text = text::prepare_comparison([old, new], Some(deadline));
    let count = |kind: LineKind| text.lines.iter().filter(|line| line.kind == kind).count();
    Ok(ComparedTexts {
        changed_lines: (count(LineKind::Added), count(LineKind::Removed)),
        titles: compared.titles,
        text,
    })
}
