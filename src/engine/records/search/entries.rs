//! Search in entries: each candidate is read and compared with the query.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use super::candidates::{Candidates, ProposedEntry};
use super::{FoundEntry, FoundText, MAX_SEARCHED_BYTES, SearchRequest, SearchResult};
use crate::archive::index::DocumentSource;
use crate::archive::search::{EntryFacts, Query, matches_name};
use crate::archive::{ArchiveEntry, has_scratch_header};
use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::records::ArchiveSearch;
use crate::store::entries::Pins;
use crate::store::entries::directories::EntryDirectory;
use crate::store::file::lock::{self, ArchiveLock};

impl ArchiveSearch {
    pub(super) fn search_entries(
        &self,
        request: &SearchRequest,
        directories: &[EntryDirectory],
        goes_on: &dyn Fn() -> bool,
        result: &mut SearchResult,
    ) -> Result<()> {
        let pins = self.context.entries().pins()?;
        let mut matcher = EntryMatcher {
            search: self,
            max_lines: request.max_lines,
            directories,
            pins: &*pins,
            cut_entries: BTreeSet::new(),
            unread_entries: BTreeMap::new(),
        };
        // Until the end of the search, no process replaces the file of the index.
        let use_mark = self
            .has_open_index()
            .then(|| lock::mark_index_use(self.context.archive(), self.context.clock()));
        let candidates = if let Some(Err(error)) = &use_mark {
            Candidates::list_instead(self.context.entries(), directories, request.order, error)
        } else {
            let mut state = self.index_state();
            state.forget_replaced();
            result.archive_size = state.archive_size();
            Candidates::find(self.context.entries(), &state, directories, request, &*pins)
        };
        let compared = self.compare_candidates(request, candidates, &mut matcher, goes_on, result);
        let mut is_damaged = false;
        if let Err(error) = compared {
            is_damaged = error.kind() == ErrorKind::Integrity;
            let listed = Candidates::list_instead(
                self.context.entries(),
                directories,
                request.order,
                &error,
            );
            self.compare_candidates(request, listed, &mut matcher, goes_on, result)?;
        }
        if is_damaged {
            // The replacement waits for all searches that use the index.
            drop(use_mark);
            result.notes.extend(self.replace_damaged_index());
        } else {
            self.add_similar_entries(request, &mut matcher, goes_on, result);
        }
        result.unread_entries = matcher.unread_entries.len();
        if let Some(error) = matcher.unread_entries.values().next() {
            let why = error.message();
            result.notes.push(match result.unread_entries {
                1 => format!("1 entry was not searched: {why}"),
                count => format!("{count} entries were not searched, such as: {why}"),
            });
        }
        match matcher.cut_entries.len() {
            0 => {}
            1 => result.notes.push(format!(
                "only the first {} MiB of one entry were searched",
                MAX_SEARCHED_BYTES >> 20
            )),
            count => result.notes.push(format!(
                "only the first {} MiB of {count} entries were searched",
                MAX_SEARCHED_BYTES >> 20
            )),
        }
        Ok(())
    }

    /// Replaces an index that is damaged by an empty one. Returns what to say of that; nothing where it
    /// cannot be replaced now.
    fn replace_damaged_index(&self) -> Option<String> {
        let _changes = ArchiveLock::Index
            .try_acquire_all(self.context.archive())
            .ok()??;
        let mut state = self.index_state();
        state
            .replace(self.context.archive(), self.context.clock())
            .ok()?;
        Some("the damaged index was removed; the next search builds it again".to_string())
    }

    /// Returns the directories of the agents that a query allows.
    pub(super) fn searched_directories(&self, query: &Query) -> Result<Vec<EntryDirectory>> {
        let filter = &query.filter;
        let mut directories = self.context.entries().entry_directories()?;
        directories.retain(|directory| {
            let is_left = directory.has_left();
            filter.has_left.is_none_or(|it| it == is_left)
                && directory.names().any(|name| filter.allows_agent(&name))
        });
        Ok(directories)
    }

    /// Says which agents that a query asks for are neither in the config nor in the archive.
    pub(super) fn unknown_agent_notes(
        &self,
        query: &Query,
        directories: &[EntryDirectory],
    ) -> Vec<String> {
        let configured = self.context.config().agents.iter();
        let mut names: Vec<String> = configured.map(|agent| agent.name.clone()).collect();
        names.extend(directories.iter().flat_map(EntryDirectory::names));
        let patterns = query.filter.agent_patterns();
        patterns
            .filter(|pattern| !names.iter().any(|name| matches_name(pattern, name)))
            .map(|pattern| format!("no agent named {pattern}"))
            .collect()
    }

    /// Says how many entries of the searched directories are in quarantine, if any.
    pub(super) fn quarantine_note(&self, directories: &[EntryDirectory]) -> Option<String> {
        let counts = directories
            .iter()
            .map(|it| self.context.entries().count_quarantined(&it.path));
        match counts.sum() {
            0 => None,
            1 => {
                Some("1 entry in quarantine was not searched; `archive list` names it".to_string())
            }
            count => Some(format!(
                "{count} entries in quarantine were not searched; `archive list` names them"
            )),
        }
    }

    /// Compares candidates with the query, and adds those that match.
    ///
    /// # Errors
    /// The index can no longer say which entries it proposed, or [`ErrorKind::Integrity`] where it proposes
    /// one twice; nothing was added then.
    fn compare_candidates(
        &self,
        request: &SearchRequest,
        candidates: Candidates,
        matcher: &mut EntryMatcher<'_>,
        goes_on: &dyn Fn() -> bool,
        result: &mut SearchResult,
    ) -> Result<()> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut compared = 0;
        let count = candidates.proposed.len();
        for proposed in candidates.proposed {
            if found.len() >= request.limit || !goes_on() {
                break;
            }
            compared += 1;
            let (entry, score) = match proposed {
                ProposedEntry::Indexed(candidate) => {
                    let document = self.index_state().document(candidate)?;
                    let DocumentSource::Entry(entry) = document.source;
                    if seen.contains(&entry.path) {
                        return Err(repeated_entry_error(&entry.path));
                    }
                    (entry, candidate.score)
                }
                ProposedEntry::Listed(entry) => (entry, 0.0),
            };
            // The index may propose an entry that is listed because it is large.
            if !seen.insert(entry.path.clone()) {
                continue;
            }
            found.extend(matcher.compare(&request.query, entry, score));
        }
        result.candidates = count;
        result.compared = compared;
        result.notes.extend(candidates.notes);
        result.entries.extend(found);
        Ok(())
    }
}

/// Reads entries and compares them with queries.
pub(super) struct EntryMatcher<'s> {
    search: &'s ArchiveSearch,
    max_lines: usize,
    /// The directories that are searched, sorted by path.
    pub directories: &'s [EntryDirectory],
    pins: &'s dyn Pins,
    /// Paths of entries of which only the beginning was compared.
    cut_entries: BTreeSet<PathBuf>,
    /// Why entries could not be read, by their paths.
    unread_entries: BTreeMap<PathBuf, Error>,
}

impl EntryMatcher<'_> {
    /// Compares an entry with the query; none if it does not match, or is gone.
    pub fn compare(
        &mut self,
        query: &Query,
        entry: ArchiveEntry,
        score: f64,
    ) -> Option<FoundEntry> {
        let directory = find_directory(self.directories, &entry)?;
        let is_pinned = self.pins.entries().contains(&entry.path);
        let allows = |agent: &str| {
            query.filter.allows(&EntryFacts {
                agent,
                kind: entry.kind,
                stamp: entry.stamp,
                is_pinned,
                has_left: directory.has_left(),
            })
        };
        if !directory.names().any(|name| allows(&name)) {
            return None;
        }
        let mut agent = directory.label();
        let mut text = None;
        if query.has_text() {
            let source = self.search.read_entry_text(&entry.path, MAX_SEARCHED_BYTES);
            let source = match source {
                Ok(source) => source,
                Err(error) => {
                    let is_gone =
                        matches!(self.search.context.entries().find(&entry.path), Ok(None));
                    if !is_gone {
                        self.unread_entries.insert(entry.path, error);
                    }
                    return None;
                }
            };
            // A directory that agents share: the header names one.
            if directory.agents.len() > 1
                && let Some(named) = directory
                    .agents
                    .iter()
                    .find(|it| has_scratch_header(&source.bytes, it))
            {
                if !allows(named) {
                    return None;
                }
                agent.clone_from(named);
            }
            if source.omitted_bytes > 0 {
                self.cut_entries.insert(entry.path.clone());
            }
            let hits = query.find_hits(&source.bytes)?;
            text = Some(FoundText::new(&source.bytes, hits, self.max_lines));
        }
        Some(FoundEntry {
            time: self.search.context.clock().zone().resolve(entry.stamp),
            entry,
            agent,
            has_left: directory.has_left(),
            is_pinned,
            score,
            text,
        })
    }
}

/// Returns the error of an index with two rows of one entry.
fn repeated_entry_error(entry: &Path) -> Error {
    let message = format!(
        "the search index is damaged: it names {} twice",
        entry.display()
    );
    Error::new(ErrorKind::Integrity, message)
}

fn find_directory<'d>(
    directories: &'d [EntryDirectory],
    entry: &ArchiveEntry,
) -> Option<&'d EntryDirectory> {
    let parent = entry.path.parent()?;
    let found = directories.binary_search_by(|it| it.path.as_path().cmp(parent));
    directories.get(found.ok()?)
}
