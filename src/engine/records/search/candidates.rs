//! Which entries a search compares with its query: those that the index proposes, and those that
//! are not in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};

use super::SearchRequest;
use crate::archive::index::{
    ArchiveIndex, Candidate, CandidateOrder, Document, DocumentSource, IndexProgress, SyncReport,
};
use crate::archive::search::{Query, Vocabulary};
use crate::archive::{Archive, ArchiveEntry};
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::entries::directories::EntryDirectory;
use crate::store::entries::{Entries, Pins};
use crate::store::file::lock;

/// The index of the archive, as far as this process has it open.
#[derive(Default)]
pub(in crate::engine) struct IndexState {
    index: Option<ArchiveIndex>,
    /// The vocabulary of the index, with its version.
    vocabulary: Option<(Arc<Vocabulary>, i64)>,
    /// Whether the index may lack entries: its last update was refused, or stopped.
    is_behind: bool,
    /// Entries that the last update could not read, and that are not in the index.
    unread: Vec<PathBuf>,
}

impl IndexState {
    /// Brings the index up to date, and replaces it where there is none that can be used. The caller
    /// holds the lock for changes of the index.
    pub fn update(
        &mut self,
        archive: &Archive,
        directories: &[&Path],
        clock: &dyn Clock,
        goes_on: &mut dyn FnMut(IndexProgress) -> bool,
    ) -> Result<SyncReport> {
        self.is_behind = true;
        self.forget_replaced();
        if self.index.is_none() {
            self.index = ArchiveIndex::open(archive)?;
        }
        if self.index.is_none() {
            self.replace(archive, clock)?;
        }
        let report = match self.try_update(archive, directories, clock.now(), goes_on) {
            Err(error) if error.kind() == ErrorKind::Integrity => {
                self.replace(archive, clock)?;
                self.try_update(archive, directories, clock.now(), goes_on)
            }
            result => result,
        }?;
        self.is_behind = report.is_stopped;
        self.unread.clone_from(&report.unread);
        Ok(report)
    }

    /// Notes that the index may lack entries, because it cannot be brought up to date now.
    pub fn note_behind(&mut self) {
        self.is_behind = true;
    }

    /// Closes an index whose file another process has replaced.
    pub fn forget_replaced(&mut self) {
        if self.index.as_ref().is_some_and(|index| !index.is_current()) {
            self.index = None;
            self.vocabulary = None;
        }
    }

    /// Replaces the index by an empty one, once no search reads it. The caller holds the lock for
    /// changes of the index.
    pub fn replace(&mut self, archive: &Archive, clock: &dyn Clock) -> Result<()> {
        self.index = None;
        self.vocabulary = None;
        let _no_users = lock::exclude_index_users(archive, clock)?;
        self.index = Some(ArchiveIndex::create(archive)?);
        Ok(())
    }

    fn try_update(
        &mut self,
        archive: &Archive,
        directories: &[&Path],
        now: DateTime<FixedOffset>,
        goes_on: &mut dyn FnMut(IndexProgress) -> bool,
    ) -> Result<SyncReport> {
        let Some(mut index) = self.index.take() else {
            let message = "the index was removed during its update";
            return Err(Error::new(ErrorKind::Conflict, message));
        };
        let report = index.update(archive, directories.iter().copied(), now, goes_on);
        if report
            .as_ref()
            .err()
            .is_none_or(|it| it.kind() != ErrorKind::Integrity)
        {
            self.index = Some(index);
        }
        report
    }

    /// Returns the index, if it is open.
    pub fn index(&mut self) -> Option<&mut ArchiveIndex> {
        self.index.as_mut()
    }

    /// Returns whether the index is open.
    pub fn is_open(&self) -> bool {
        self.index.is_some()
    }

    /// Returns the number of all entries and of their bytes.
    pub fn archive_size(&self) -> Option<(u64, u64)> {
        self.index
            .as_ref()
            .and_then(|index| index.archive_size().ok())
    }

    /// Returns the words of the index that can be misspelt or inflected; none without an index.
    pub fn vocabulary(&mut self) -> Option<Arc<Vocabulary>> {
        let index = self.index.as_ref()?;
        let version = index.vocabulary_version().ok()?;
        if let Some((vocabulary, known)) = &self.vocabulary
            && *known == version
        {
            return Some(Arc::clone(vocabulary));
        }
        let (vocabulary, version) = index.vocabulary().ok()?;
        let vocabulary = Arc::new(vocabulary);
        self.vocabulary = Some((Arc::clone(&vocabulary), version));
        Some(vocabulary)
    }

    /// Returns what the index proposes for a query, the best first.
    pub fn propose(&self, query: &Query, directories: &[EntryDirectory]) -> Result<Vec<Candidate>> {
        let Some(index) = &self.index else {
            return Ok(Vec::new());
        };
        index.find_candidates(query, CandidateOrder::Relevance, &counts_in(directories))
    }

    /// Returns a proposed document.
    ///
    /// # Errors
    /// The index is damaged or locked, or another process has changed this row or the file since.
    pub fn document(&self, candidate: Candidate) -> Result<Document> {
        let index = self.index.as_ref();
        let document = index.map(|index| index.document(candidate)).transpose()?;
        document.flatten().ok_or_else(|| {
            let message = "another process changed the index during the search";
            Error::new(ErrorKind::Conflict, message)
        })
    }
}

/// An entry that may match.
pub(super) enum ProposedEntry {
    /// The index proposes it.
    Indexed(Candidate),
    /// It is not in the index.
    Listed(ArchiveEntry),
}

/// The entries to compare, in their order.
pub(super) struct Candidates {
    pub proposed: Vec<ProposedEntry>,
    /// How the candidates were found, if not by the index alone.
    pub notes: Vec<String>,
}

impl Candidates {
    /// Finds the candidates of a search in some directories.
    pub fn find(
        entries: &dyn Entries,
        state: &IndexState,
        directories: &[EntryDirectory],
        request: &SearchRequest,
        pins: &dyn Pins,
    ) -> Candidates {
        if request.query.filter.is_pinned == Some(true) {
            return Candidates::list_pinned(entries, pins, request.order);
        }
        let Some(index) = &state.index else {
            return Candidates::list_all(entries, directories, request.order);
        };
        match Candidates::from_index(entries, index, directories, request, state) {
            Ok(candidates) => candidates,
            Err(error) => Candidates::list_instead(entries, directories, request.order, &error),
        }
    }

    /// Lists all entries, because the index failed.
    pub fn list_instead(
        entries: &dyn Entries,
        directories: &[EntryDirectory],
        order: CandidateOrder,
        error: &Error,
    ) -> Candidates {
        let mut candidates = Candidates::list_all(entries, directories, order);
        let note = format!("searched without the index: {}", error.message());
        candidates.notes.push(note);
        candidates
    }

    fn from_index(
        entries: &dyn Entries,
        index: &ArchiveIndex,
        directories: &[EntryDirectory],
        request: &SearchRequest,
        state: &IndexState,
    ) -> Result<Candidates> {
        let counts = counts_in(directories);
        // What another process adds between two readings would be in neither.
        let _snapshot = index.snapshot()?;
        let indexed = index.find_candidates(&request.query, request.order, &counts)?;
        let mut candidates = Candidates {
            proposed: indexed.into_iter().map(ProposedEntry::Indexed).collect(),
            notes: Vec::new(),
        };
        let mut others = Vec::new();
        if request.query.has_text() {
            let large = index.large_documents()?.into_iter();
            others.extend(large.map(|document| {
                let DocumentSource::Entry(entry) = document.source;
                entry
            }));
        }
        for path in &state.unread {
            others.extend(entries.find(path)?);
        }
        if state.is_behind {
            for directory in directories {
                let known = index.indexed_names(&directory.path)?;
                let listed = entries.list(&directory.path)?.into_iter();
                others.extend(listed.filter(|entry| {
                    let name = entry.path.file_name().and_then(|name| name.to_str());
                    name.is_none_or(|name| !known.contains(name))
                }));
            }
        }
        sort_entries(&mut others, request.order);
        let others = others.into_iter().map(ProposedEntry::Listed);
        candidates.proposed.extend(others);
        Ok(candidates)
    }

    fn list_pinned(entries: &dyn Entries, pins: &dyn Pins, order: CandidateOrder) -> Candidates {
        let listed = pins.entries().iter().map(|path| entries.find(path));
        Candidates::from_listed(listed, order)
    }

    fn list_all(
        entries: &dyn Entries,
        directories: &[EntryDirectory],
        order: CandidateOrder,
    ) -> Candidates {
        let directories = directories.iter();
        let listed = directories.map(|directory| entries.list(&directory.path));
        Candidates::from_listed(listed, order)
    }

    /// Takes entries that were listed; what cannot be listed is left out, which a note says.
    fn from_listed<E: IntoIterator<Item = ArchiveEntry>>(
        listed: impl Iterator<Item = Result<E>>,
        order: CandidateOrder,
    ) -> Candidates {
        let mut entries = Vec::new();
        let mut notes = Vec::new();
        for listed in listed {
            match listed {
                Ok(listed) => entries.extend(listed),
                Err(error) => notes.push(format!("left out: {}", error.message())),
            }
        }
        sort_entries(&mut entries, order);
        Candidates {
            proposed: entries.into_iter().map(ProposedEntry::Listed).collect(),
            notes,
        }
    }
}

/// Returns whether a directory is one of these, which are sorted.
fn counts_in(directories: &[EntryDirectory]) -> impl Fn(&Path) -> bool {
    move |path| {
        let found = directories.binary_search_by(|it| it.path.as_path().cmp(path));
        found.is_ok()
    }
}

fn sort_entries(entries: &mut [ArchiveEntry], order: CandidateOrder) {
    let time = |entry: &ArchiveEntry| (entry.stamp, entry.number, entry.path.clone());
    match order {
        CandidateOrder::Relevance | CandidateOrder::Newest => {
            entries.sort_by_cached_key(|entry| std::cmp::Reverse(time(entry)));
        }
        CandidateOrder::Oldest => entries.sort_by_cached_key(time),
        CandidateOrder::Largest => {
            entries.sort_by_cached_key(|entry| std::cmp::Reverse((entry.size, time(entry))));
        }
    }
}
