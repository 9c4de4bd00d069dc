//! The second leg of a search: entries with words that resemble those of the query, which may be
//! misspelt or inflected. It runs where the words themselves find few texts, and comes after these.
//! That of memories, whose words are not in the index, is beside their search.
//!
//! An entry of this leg has the score BM25 x similarity: the BM25 of the query with similar words
//! beside its own, and the product of the similarities of the words that the entry has, each the best
//! of its term.

use std::collections::HashSet;
use std::path::PathBuf;

use super::entries::EntryMatcher;
use super::{FoundEntry, SearchRequest, SearchResult};
use crate::archive::index::DocumentSource;
use crate::archive::search::{Query, SimilarWord};
use crate::engine::records::ArchiveSearch;

/// With as many entries and memories, a search found enough.
pub(super) const ENOUGH_TEXTS: usize = 10;

/// Maximum number of entries that are compared.
const MAX_COMPARED_ENTRIES: usize = 200;

/// Maximum number of similar words that a note names.
const MAX_NAMED_FORMS: usize = 3;

/// Maximum number of entries that are added, and of memories.
pub(super) const MAX_ADDED_TEXTS: usize = 50;

impl ArchiveSearch {
    /// Adds entries with similar words. Where the index fails, nothing is added: what has the words
    /// themselves was found.
    pub(super) fn add_similar_entries(
        &self,
        request: &SearchRequest,
        matcher: &mut EntryMatcher<'_>,
        goes_on: &dyn Fn() -> bool,
        result: &mut SearchResult,
    ) {
        let room = request.limit.saturating_sub(result.entries.len());
        if result.entries.len() + result.memories.len() >= ENOUGH_TEXTS || room == 0 {
            return;
        }
        let Some(query) = self.widen_query(&request.query) else {
            return;
        };
        let Ok(candidates) = self.index_state().propose(&query, matcher.directories) else {
            return;
        };
        let mut known: HashSet<PathBuf> = result
            .entries
            .iter()
            .map(|found| found.entry.path.clone())
            .collect();
        let mut added = Vec::new();
        for candidate in candidates.into_iter().take(MAX_COMPARED_ENTRIES) {
            if !goes_on() {
                return;
            }
            let Ok(document) = self.index_state().document(candidate) else {
                continue;
            };
            let DocumentSource::Entry(entry) = document.source;
            if !known.insert(entry.path.clone()) {
                continue;
            }
            if let Some(found) = matcher.compare(&query, entry, candidate.score) {
                let similarity = found.text.as_ref().map_or(1.0, |text| text.similarity);
                let score = found.score * similarity;
                added.push(FoundEntry { score, ..found });
            }
        }
        added.sort_by(|one, other| {
            let by_score = other.score.total_cmp(&one.score);
            by_score.then_with(|| other.entry.sort_key().cmp(&one.entry.sort_key()))
        });
        added.truncate(room.min(MAX_ADDED_TEXTS));
        if !added.is_empty() {
            let words = describe_similar_words(&query);
            let note = format!("also found similar words: {words}");
            result.notes.push(note);
        }
        result.entries.extend(added);
    }

    /// Returns a query with similar words beside its own; none where the index knows none.
    pub(super) fn widen_query(&self, query: &Query) -> Option<Query> {
        let vocabulary = self.index_state().vocabulary()?;
        query.with_similar_words(&vocabulary)
    }
}

/// Returns, for example, "refrehs ~ refresh, refreshed; tokne ~ token".
pub(super) fn describe_similar_words(query: &Query) -> String {
    let words: Vec<String> = query.similar_words().filter_map(describe_forms).collect();
    words.join("; ")
}

fn describe_forms(words: &[SimilarWord]) -> Option<String> {
    let (word, forms) = words.split_first()?;
    let forms: Vec<&str> = forms
        .iter()
        .take(MAX_NAMED_FORMS)
        .map(|it| it.word.as_str())
        .collect();
    Some(format!("{} ~ {}", word.word, forms.join(", ")))
}
