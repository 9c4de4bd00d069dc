//! Search: which entries of the archive and which memories match a query, with their lines.
//!
//! The index only proposes entries. Each of them is read and matched again, so that results are
//! what is on the disk; where the index cannot be used, every entry is read, and the result says so.

mod candidates;
mod entries;
mod memories;
mod memory_files;
mod recorded_entries;
mod relaxations;
mod similar;
mod texts;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use chrono::{DateTime, FixedOffset};

use crate::archive::ArchiveEntry;
use crate::archive::index::CandidateOrder;
pub use crate::archive::index::{IndexProgress, SyncReport};
use crate::archive::search::{Query, Source, TextHits};
use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::records::ArchiveSearch;
use crate::store::entries::directories::EntryDirectory;
use crate::store::file::lock::ArchiveLock;
pub(in crate::engine) use candidates::IndexState;
pub(in crate::engine) use recorded_entries::KnownEntries;
pub use recorded_entries::RecordedEntries;
pub use relaxations::SearchRelaxation;
pub use texts::{ComparedTexts, EntryComparison, SourceText, TextSource};

/// Maximum number of bytes of one entry that are searched; a note says where there are more.
const MAX_SEARCHED_BYTES: u64 = 64 << 20;

/// Maximum number of bytes of a line in a result.
const MAX_LINE_BYTES: usize = 4096;

/// What to search for.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// The query.
    pub query: Query,
    /// The order of the entries.
    pub order: CandidateOrder,
    /// Maximum number of entries.
    pub limit: usize,
    /// Maximum number of lines of each text.
    pub max_lines: usize,
    /// Whether memories on other machines are read now, and not taken from what was read last.
    pub reads_remote: bool,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct SearchResult {
    /// The memories that match.
    pub memories: Vec<FoundMemory>,
    /// The files of memories of several files that match, in the order that was asked for.
    pub files: Vec<FoundMemoryFile>,
    /// The entries that match, in the order that was asked for.
    pub entries: Vec<FoundEntry>,
    /// Number of entries that the query leaves over, before any text was compared with it: a bound
    /// on the number of those that match.
    pub candidates: usize,
    /// Number of candidates that were compared.
    pub compared: usize,
    /// Number of entries that could not be read, and were not compared.
    pub unread_entries: usize,
    /// Number of all entries and of their bytes, as far as the index knows them.
    pub archive_size: Option<(u64, u64)>,
    /// Agents on hosts whose memories were not searched, because they were not read yet.
    pub never_read: Vec<String>,
    /// Why the result may lack something, and how it was found if not by the index.
    pub notes: Vec<String>,
}

impl SearchResult {
    /// Sorts the entries again whose times have changed, in the order of their search. Those of equal
    /// rank are sorted by time; those with similar words stay behind the others.
    pub fn sort_entries(&mut self, order: CandidateOrder) {
        let rank = |found: &FoundEntry| {
            let text = found.text.as_ref();
            let is_similar = text.is_some_and(|text| text.similarity < 1.0);
            let rank = match order {
                CandidateOrder::Relevance => found.score,
                CandidateOrder::Largest => found.entry.size as f64,
                CandidateOrder::Newest | CandidateOrder::Oldest => 0.0,
            };
            (is_similar, rank)
        };
        for equal in self
            .entries
            .chunk_by_mut(|one, other| rank(one) == rank(other))
        {
            equal.sort_by(|one, other| one.time_key().cmp(&other.time_key()));
            if order != CandidateOrder::Oldest {
                equal.reverse();
            }
        }
    }

    /// Whether candidates are left that were not compared.
    pub fn has_more(&self) -> bool {
        self.compared < self.candidates
    }

    /// Number of hits in all texts.
    pub fn hit_count(&self) -> usize {
        self.texts().map(|text| text.hit_count).sum()
    }

    /// Whether a text has hits behind the lines that it lists.
    pub fn has_unlisted_hits(&self) -> bool {
        self.texts().any(|text| text.has_more)
    }

    fn texts(&self) -> impl Iterator<Item = &FoundText> {
        let entries = self.entries.iter().filter_map(|found| found.text.as_ref());
        let files = self.files.iter().map(|found| &found.text);
        let memories = self.memories.iter().map(|found| &found.text);
        entries.chain(memories).chain(files)
    }
}

/// An entry that matches.
#[derive(Clone, Debug)]
pub struct FoundEntry {
    /// The entry itself.
    pub entry: ArchiveEntry,
    /// The agent's name; of an agent that left the config, its directory.
    pub agent: String,
    /// Whether the agent is not in the config.
    pub has_left: bool,
    /// When it was made, by its name; the ledger knows better
    /// ([`ArchiveSearch::recorded_entries`]).
    pub time: DateTime<FixedOffset>,
    /// Whether retention never deletes it.
    pub is_pinned: bool,
    /// Its score, where the order is that of relevance: BM25, times the similarity of its words.
    pub score: f64,
    /// The hits; none where the query does not look at texts.
    pub text: Option<FoundText>,
}

impl FoundEntry {
    fn time_key(&self) -> (DateTime<FixedOffset>, u32, &Path) {
        (self.time, self.entry.number, &self.entry.path)
    }
}

/// A memory that matches.
#[derive(Clone, Debug)]
pub struct FoundMemory {
    /// The agent's name.
    pub agent: String,
    /// Its path; on another machine with the host before it.
    pub address: String,
    /// When the text was read.
    pub read_at: DateTime<FixedOffset>,
    /// The hits.
    pub text: FoundText,
}

/// A file of a memory of several files that matches.
#[derive(Clone, Debug)]
pub struct FoundMemoryFile {
    /// The agent's name.
    pub agent: String,
    /// The layout of the memory.
    pub layout: String,
    /// The id of the collection of its item.
    pub collection: String,
    /// The id of its item.
    pub item: String,
    /// The title of its item.
    pub title: String,
    /// Its path below the directory of the memory.
    pub path: PathBuf,
    /// Its path; on another machine with the host before it.
    pub address: String,
    /// When it was changed.
    pub modified: DateTime<FixedOffset>,
    /// Its size in bytes.
    pub size: u64,
    /// The hits.
    pub text: FoundText,
}

impl FoundMemoryFile {
    /// Agent and path, which no other file has.
    fn key(&self) -> (String, PathBuf) {
        (self.agent.clone(), self.path.clone())
    }
}

/// The hits in a text.
#[derive(Clone, Debug)]
pub struct FoundText {
    /// Number of hits.
    pub hit_count: usize,
    /// Lines with hits: the first of them.
    pub lines: Vec<FoundLine>,
    /// Whether there are hits behind these lines.
    pub has_more: bool,
    /// How similar its words are to those of the query, up to 1: below that it has other words.
    pub similarity: f64,
}

/// A line with hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLine {
    /// Its number, from 1.
    pub number: u64,
    /// Its bytes, without its line end; the part around the first hit of a very long one.
    pub bytes: Vec<u8>,
    /// The hits, as ranges of these bytes.
    pub hits: Vec<Range<usize>>,
}

impl FoundText {
    fn new(text: &[u8], hits: TextHits, max_lines: usize) -> FoundText {
        let (hit_count, similarity) = (hits.count, hits.similarity);
        let lines = hits.lines(text);
        let has_more = hits.count > hits.places.len() || lines.len() > max_lines;
        let lines = lines.into_iter().take(max_lines);
        let lines = lines.map(|line| {
            let first = line.hits.first().map_or(line.range.start, |hit| hit.start);
            let start = if line.range.len() > MAX_LINE_BYTES {
                let before = first.saturating_sub(MAX_LINE_BYTES / 4);
                char_start(text, before.max(line.range.start))
            } else {
                line.range.start
            };
            let end = char_start(text, line.range.end.min(start + MAX_LINE_BYTES));
            let place = |at: usize| at.clamp(start, end) - start;
            FoundLine {
                number: line.number,
                bytes: text[start..end].to_vec(),
                hits: line
                    .hits
                    .iter()
                    .map(|hit| place(hit.start)..place(hit.end))
                    .filter(|hit| !hit.is_empty())
                    .collect(),
            }
        });
        FoundText {
            hit_count,
            lines: lines.collect(),
            has_more,
            similarity,
        }
    }
}

/// Returns the start of the character that a place is in.
fn char_start(text: &[u8], at: usize) -> usize {
    let is_continuation = |at: usize| text.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let starts = (at.saturating_sub(3)..=at).rev();
    starts
        .clone()
        .find(|at| !is_continuation(*at))
        .unwrap_or(at)
}

impl ArchiveSearch {
    /// Brings the index up to date with the archive. `goes_on` gets the progress, and stops the
    /// update when it returns false; what was indexed until then stays.
    ///
    /// # Errors
    /// The archive cannot be read, or the index cannot be written: searches then read the entries.
    pub fn update_index(
        &self,
        goes_on: &mut dyn FnMut(IndexProgress) -> bool,
    ) -> Result<SyncReport> {
        let Some(_changes) = ArchiveLock::Index.try_acquire_all(self.context.archive())? else {
            self.index_state().note_behind();
            let message = "the search index is being updated by another process";
            return Err(Error::new(ErrorKind::Busy, message));
        };
        self.update_locked_index(goes_on)
    }

    fn update_locked_index(
        &self,
        goes_on: &mut dyn FnMut(IndexProgress) -> bool,
    ) -> Result<SyncReport> {
        let directories = self.context.entries().entry_directories()?;
        let paths: Vec<&Path> = directories.iter().map(|it| it.path.as_path()).collect();
        let mut state = self.index_state();
        state.update(
            self.context.archive(),
            &paths,
            self.context.clock(),
            goes_on,
        )
    }

    /// Removes the index and builds it again.
    ///
    /// # Errors
    /// The same as of [`ArchiveSearch::update_index`].
    pub fn rebuild_index(
        &self,
        goes_on: &mut dyn FnMut(IndexProgress) -> bool,
    ) -> Result<SyncReport> {
        let _changes = ArchiveLock::Index.acquire(self.context.archive(), self.context.clock())?;
        self.index_state()
            .replace(self.context.archive(), self.context.clock())?;
        self.update_locked_index(goes_on)
    }

    /// Returns whether this process has the index open.
    pub fn has_open_index(&self) -> bool {
        self.index_state().is_open()
    }

    fn index_state(&self) -> std::sync::MutexGuard<'_, IndexState> {
        self.index_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Searches entries and memories. `goes_on` is called before each text, and stops the search
    /// when it returns false; the result is what was found until then.
    ///
    /// # Errors
    /// The archive or its pins cannot be read.
    pub fn search_archive(
        &self,
        request: &SearchRequest,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<SearchResult> {
        let directories = self.searched_directories(&request.query)?;
        let mut result = self.find_matches(request, &directories, goes_on)?;
        result
            .notes
            .extend(self.unknown_agent_notes(&request.query, &directories));
        if request.query.filter.includes(Source::Archive) && goes_on() {
            result.notes.extend(self.quarantine_note(&directories));
        }
        Ok(result)
    }

    /// Searches, but does not say which entries are left out.
    fn find_matches(
        &self,
        request: &SearchRequest,
        directories: &[EntryDirectory],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<SearchResult> {
        let mut result = SearchResult::default();
        let includes = |source| request.query.filter.includes(source);
        if includes(Source::Live) {
            self.search_memories(request, goes_on, &mut result);
        }
        if includes(Source::Memory) {
            self.search_memory_files(request, goes_on, &mut result);
        }
        if includes(Source::Archive) {
            self.search_entries(request, directories, goes_on, &mut result)?;
        }
        if includes(Source::Live) && request.query.has_text() {
            self.add_similar_memories(request, goes_on, &mut result);
        }
        Ok(result)
    }
}
