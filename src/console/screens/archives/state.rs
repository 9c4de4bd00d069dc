//! Archives screen: a query, what it found, the text under the cursor, two texts compared, the
//! timeline of one agent, and what retention deletes.

pub mod retention;
pub mod timeline;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use chrono::{DateTime, FixedOffset};

use crate::archive::index::CandidateOrder;
use crate::archive::search::QueryError;
use crate::console::requests::NumberedRequests;
use crate::console::screens::agent::marked_lines::MarkedLines;
use crate::console::text::{Comparison, Pane, TextLine};
use crate::console::widgets::list_pane::{KeyedRows, ListPane};
use crate::engine::{
    EntryComparison, FoundEntry, FoundMemory, FoundMemoryFile, FoundText, IndexProgress,
    SearchRelaxation, SearchResult, TextSource,
};
use crate::lint::ScanSummary;
use retention::RetentionView;
use timeline::TimelineView;

/// Rows that a search returns at first; more are searched when the cursor reaches the last one.
pub const FIRST_ROWS: usize = 200;

/// Reason why a key is about no entry.
pub const NO_ENTRY_REASON: &str = "no entry under the cursor";

/// Maximum number of entries of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLimit(pub usize);

impl Default for RowLimit {
    fn default() -> RowLimit {
        RowLimit(FIRST_ROWS)
    }
}

/// Archives screen.
#[derive(Clone, Debug, Default)]
pub struct ArchivesScreen {
    /// The query as it is typed.
    pub query: String,
    /// The order of the entries.
    pub order: CandidateOrder,
    /// Maximum number of entries.
    pub limit: RowLimit,
    /// What the last search found, or why it failed; `None` before the first one.
    pub found: Option<Result<FoundRows, String>>,
    /// What the scan found in the entries of the rows; an entry without findings is not in it.
    pub findings: HashMap<PathBuf, ScanSummary>,
    /// Why findings of some of them are not known, if that is so.
    pub unknown_findings: Option<String>,
    /// Searches; the last one is pending until it has ended.
    pub searches: NumberedRequests,
    /// Whether a search has to be requested.
    pub is_search_due: bool,
    /// What is wrong with the query.
    pub query_error: Option<QueryError>,
    /// How far the index is, while it is brought up to date.
    pub progress: Option<IndexProgress>,
    /// Position in the list. The cursor stays at the best row until it is moved to another one.
    pub list: ListPane<TextSource>,
    /// The entry that others are compared with.
    pub marked: Option<PathBuf>,
    /// The pinned entry that the pin key was pressed on; the next key unpins it, or ends this.
    pub unpin_request: Option<PathBuf>,
    /// What the screen shows.
    pub page: ArchivesPage,
    /// The text under the cursor.
    pub text: EntryText,
    /// Whether the next text goes to its last hit: the cursor came from below.
    pub is_entered_from_below: bool,
    /// Queries that find something where the one that was searched finds nothing, or why none are
    /// known; `None` while they are looked for.
    pub relaxations: Option<Result<Vec<SearchRelaxation>, String>>,
    /// Row index of the cursor in these.
    pub relaxation_cursor: usize,
    /// Two texts that are compared.
    pub comparison: EntryComparisonView,
    /// The timeline of an agent.
    pub timeline: TimelineView,
    /// What retention deletes, and why the rest stays.
    pub retention: RetentionView,
}

/// What the archives screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchivesPage {
    /// What was found, and the text under the cursor where there is room.
    #[default]
    List,
    /// The text under the cursor.
    Text,
    /// Two texts.
    Comparison,
    /// What happened to one agent.
    Timeline,
    /// What retention deletes now, and why the rest stays.
    Retention,
    /// The entries of one agent that retention deletes now.
    RetentionAgent,
}

impl ArchivesPage {
    /// Returns whether it is a text, and no list of rows.
    pub fn has_text(self) -> bool {
        matches!(self, ArchivesPage::Text | ArchivesPage::Comparison)
    }

    /// Returns whether it is about retention.
    pub fn is_about_retention(self) -> bool {
        matches!(self, ArchivesPage::Retention | ArchivesPage::RetentionAgent)
    }
}

/// The entry that a key is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenEntry<'a> {
    /// Path below `archive_dir`.
    pub path: &'a Path,
    /// Whether retention never deletes it.
    pub is_pinned: bool,
}

/// A search to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSearchRequest {
    /// Its number; a higher one replaces it.
    pub number: u64,
    /// The query.
    pub query: String,
    /// The order of the entries.
    pub order: CandidateOrder,
    /// Maximum number of entries.
    pub limit: usize,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct FoundRows {
    /// The query that it answers.
    pub query: String,
    /// The result.
    pub result: SearchResult,
}

impl FoundRows {
    /// Returns where the texts of the rows come from, in their order.
    pub fn sources(&self) -> Vec<TextSource> {
        rows_of(&self.result).map(|row| row.source()).collect()
    }
}

/// Returns the rows of a result: memories, then files of memories, then entries.
fn rows_of(result: &SearchResult) -> impl Iterator<Item = ArchiveRow<'_>> {
    let memories = result.memories.iter().map(ArchiveRow::Memory);
    let files = result.files.iter().map(ArchiveRow::File);
    let entries = result.entries.iter().map(ArchiveRow::Entry);
    memories.chain(files).chain(entries)
}

/// A row of the list.
#[derive(Clone, Copy, Debug)]
pub enum ArchiveRow<'a> {
    /// A memory.
    Memory(&'a FoundMemory),
    /// A file of a memory of several files.
    File(&'a FoundMemoryFile),
    /// An entry.
    Entry(&'a FoundEntry),
}

impl<'a> ArchiveRow<'a> {
    /// Returns where its text comes from, which identifies the row.
    pub fn source(&self) -> TextSource {
        match self {
            ArchiveRow::Memory(found) => TextSource::Memory(found.agent.clone()),
            ArchiveRow::File(found) => TextSource::MemoryFile {
                agent: found.agent.clone(),
                collection: found.collection.clone(),
                item: found.item.clone(),
                path: found.path.clone(),
            },
            ArchiveRow::Entry(found) => TextSource::Entry(found.entry.path.clone()),
        }
    }

    /// Returns the agent's name.
    pub fn agent(&self) -> &'a str {
        match self {
            ArchiveRow::Memory(found) => &found.agent,
            ArchiveRow::File(found) => &found.agent,
            ArchiveRow::Entry(found) => &found.agent,
        }
    }

    /// Returns the hits, if the query looks at texts.
    pub fn hits(&self) -> Option<&'a FoundText> {
        match self {
            ArchiveRow::Memory(found) => Some(&found.text).filter(|text| text.hit_count > 0),
            ArchiveRow::File(found) => Some(&found.text).filter(|text| text.hit_count > 0),
            ArchiveRow::Entry(found) => found.text.as_ref(),
        }
    }
}

/// A text to read, with the query whose hits are marked in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryTextRequest {
    /// Where it comes from.
    pub source: TextSource,
    /// The query.
    pub query: String,
}

/// A text.
#[derive(Clone, Debug, Default)]
pub struct EntryText {
    /// The request that it answers; `None` before the first one.
    pub request: Option<EntryTextRequest>,
    /// The text; empty until it is read.
    pub pane: Pane,
    /// Whether it was read.
    pub is_loaded: bool,
    /// Whether the text goes to a hit when it is read: it is another one, or of another query.
    pub goes_to_hit: bool,
    /// Lines that the operator has marked.
    pub marked_lines: MarkedLines,
}

/// Two texts to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryComparisonRequest {
    /// The entry.
    pub entry: PathBuf,
    /// The other text.
    pub other: EntryComparison,
}

/// Two texts.
#[derive(Clone, Debug, Default)]
pub struct EntryComparisonView {
    /// What is compared; `None` before the first comparison.
    pub request: Option<EntryComparisonRequest>,
    /// The two texts.
    pub shown: Comparison,
    /// Page to go back to.
    pub opened_from: ArchivesPage,
}

impl KeyedRows<TextSource> for ArchivesScreen {
    fn count(&self) -> usize {
        self.row_count()
    }

    fn key(&self, index: usize) -> Option<TextSource> {
        self.row(index).map(|row| row.source())
    }
}

impl ArchivesScreen {
    /// Whether the screen shows the plan of a prune.
    pub fn has_prune_plan(&self) -> bool {
        self.page == ArchivesPage::Retention && self.retention.plan.is_open()
    }

    /// Returns what the last search found, if it succeeded.
    pub fn result(&self) -> Option<&SearchResult> {
        match &self.found {
            Some(Ok(found)) => Some(&found.result),
            _ => None,
        }
    }

    /// Returns whether the rows are those of another query than the one that is shown.
    pub fn is_outdated(&self) -> bool {
        matches!(&self.found, Some(Ok(found)) if found.query != self.query)
    }

    /// Returns the queries that are offered in place of rows.
    pub fn offered_relaxations(&self) -> &[SearchRelaxation] {
        match &self.relaxations {
            Some(Ok(rows)) if self.page == ArchivesPage::List && self.row_count() == 0 => rows,
            _ => &[],
        }
    }

    /// Returns the relaxed query under the cursor.
    pub fn current_relaxation(&self) -> Option<&SearchRelaxation> {
        self.offered_relaxations().get(self.relaxation_cursor)
    }

    /// Returns the number of rows.
    pub fn row_count(&self) -> usize {
        self.result().map_or(0, |it| {
            it.memories.len() + it.files.len() + it.entries.len()
        })
    }

    /// Returns a row: memories first, then files of memories, then entries.
    pub fn row(&self, index: usize) -> Option<ArchiveRow<'_>> {
        let result = self.result()?;
        let Some(index) = index.checked_sub(result.memories.len()) else {
            return result.memories.get(index).map(ArchiveRow::Memory);
        };
        match index.checked_sub(result.files.len()) {
            None => result.files.get(index).map(ArchiveRow::File),
            Some(index) => result.entries.get(index).map(ArchiveRow::Entry),
        }
    }

    /// Takes over when entries were made, and sorts them again. Returns whether a time has changed.
    pub fn date_entries(&mut self, times: &HashMap<PathBuf, DateTime<FixedOffset>>) -> bool {
        let order = self.order;
        let Some(Ok(found)) = &mut self.found else {
            return false;
        };
        let mut is_changed = false;
        for found in &mut found.result.entries {
            if let Some(time) = times.get(&found.entry.path) {
                is_changed |= found.time != *time;
                found.time = *time;
            }
        }
        if is_changed {
            found.result.sort_entries(order);
        }
        is_changed
    }

    /// Returns what the scan found in an entry, such as "2 secrets, 1 injection".
    pub fn describe_findings(&self, entry: &Path) -> Option<String> {
        self.findings.get(entry).map(ScanSummary::describe)
    }

    /// Returns the row under the cursor.
    pub fn current_row(&self) -> Option<ArchiveRow<'_>> {
        self.row(self.list.cursor_in(self))
    }

    /// Whether keys are about a memory as it is now.
    pub fn is_at_memory(&self) -> bool {
        let row = self.current_row().filter(|_| !self.timeline.is_open);
        matches!(row, Some(ArchiveRow::Memory(_) | ArchiveRow::File(_)))
    }

    /// Returns the entry under the cursor; on a memory there is none.
    pub fn current_entry(&self) -> Option<&FoundEntry> {
        match self.current_row()? {
            ArchiveRow::Entry(found) => Some(found),
            ArchiveRow::Memory(_) | ArchiveRow::File(_) => None,
        }
    }

    /// Returns where the text comes from that a key is about: that of the row under the cursor, in
    /// the list or in the timeline.
    pub fn subject_source(&self) -> Option<TextSource> {
        if self.timeline.is_open {
            let entry = self.timeline.current_entry().ok()?;
            return Some(TextSource::Entry(entry.path.clone()));
        }
        self.current_row().map(|row| row.source())
    }

    /// Returns the agent that a key is about.
    pub fn subject_agent(&self) -> Option<&str> {
        if self.page.is_about_retention() {
            return self.retention.current_group()?.agent.as_deref();
        }
        if self.timeline.is_open {
            return self.timeline.timeline().map(|it| it.agent.as_str());
        }
        self.current_row().map(|row| row.agent())
    }

    /// Returns the entry that a key is about.
    ///
    /// # Errors
    /// Why there is none.
    pub fn chosen_entry(&self) -> Result<ChosenEntry<'_>, String> {
        if self.timeline.is_open {
            let entry = self.timeline.current_entry()?;
            return Ok(ChosenEntry {
                path: &entry.path,
                is_pinned: entry.is_pinned,
            });
        }
        let found = self.current_entry().ok_or(NO_ENTRY_REASON)?;
        Ok(ChosenEntry {
            path: &found.entry.path,
            is_pinned: found.is_pinned,
        })
    }

    /// Returns the text of the row under the cursor, if it was read.
    pub fn is_text_current(&self) -> bool {
        let source = self.subject_source();
        let shown = self.text.request.as_ref().map(|it| &it.source);
        source.is_some() && source.as_ref() == shown
    }

    /// Whether the text of the row under the cursor has hits behind what is loaded of it.
    pub fn has_unloaded_hits(&self) -> bool {
        let lines = &self.text.pane.lines;
        let is_cut = lines.last().is_some_and(|line| line.is_truncated);
        let row = self.current_row().filter(|_| !self.timeline.is_open);
        let found = row.and_then(|row| row.hits());
        // Each frame asks, and few texts are cut.
        let Some(found) = found.filter(|_| is_cut && self.is_text_current()) else {
            return false;
        };
        let loaded = lines.iter().filter(|line| line.has_found_ranges());
        let loaded: usize = loaded.map(|line| line.changed_ranges.len()).sum();
        found.hit_count > loaded
    }

    /// Returns the pane of the page.
    pub fn pane(&self) -> &Pane {
        match self.page {
            ArchivesPage::Comparison => &self.comparison.shown.pane,
            _ => &self.text.pane,
        }
    }

    /// Returns the pane of the page, to scroll or search it.
    pub fn pane_mut(&mut self) -> &mut Pane {
        match self.page {
            ArchivesPage::Comparison => &mut self.comparison.shown.pane,
            _ => &mut self.text.pane,
        }
    }

    /// Returns whether the text of the page was read.
    pub fn is_text_loaded(&self) -> bool {
        match self.page {
            ArchivesPage::Comparison => self.comparison.shown.is_loaded,
            _ => self.text.is_loaded,
        }
    }

    /// Returns the marked lines of the text, else the line under the cursor.
    pub fn chosen_lines(&self) -> Vec<TextLine> {
        if !self.text.marked_lines.is_empty() {
            return self.text.marked_lines.iter().cloned().collect();
        }
        let line = self.text.pane.lines.get(self.text.pane.cursor_line);
        let line = line.filter(|line| line.new_number.is_some());
        line.cloned().into_iter().collect()
    }

    /// Returns whether an entry is the marked one.
    pub fn is_marked(&self, entry: &Path) -> bool {
        self.marked.as_deref() == Some(entry)
    }

    /// Returns the texts that an entry can be compared with, in the order in which a key goes
    /// through them.
    pub fn comparisons(&self, entry: &Path) -> Vec<EntryComparison> {
        let marked = self.marked.as_ref().filter(|it| *it != entry);
        let marked = marked.map(|path| EntryComparison::Entry(path.clone()));
        let others = [EntryComparison::Memory, EntryComparison::Baseline];
        marked.into_iter().chain(others).collect()
    }
}
