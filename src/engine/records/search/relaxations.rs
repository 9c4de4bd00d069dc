//! Relaxations: for a query that finds nothing, the nearest queries that find something.

use std::cmp::Reverse;

use super::SearchRequest;
use crate::archive::index::CandidateOrder;
use crate::archive::search::{Query, QueryChange, RelaxedQuery, relax_query};
use crate::base::error::Result;
use crate::base::quantity::format_count;
use crate::engine::records::ArchiveSearch;

/// Maximum number of relaxations that are returned.
const MAX_RELAXATIONS: usize = 5;

/// Maximum number of relaxed queries that are tried.
const MAX_TRIED_QUERIES: usize = 24;

/// Number of entries from which on a relaxation is not counted further.
const MAX_COUNTED_ENTRIES: usize = 100;

/// A query that asks for a little less than another one, and what it finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRelaxation {
    /// The query.
    pub relaxed: RelaxedQuery,
    /// Number of entries that it finds.
    pub entries: usize,
    /// Number of memories that it finds.
    pub memories: usize,
    /// Whether there may be further entries.
    pub has_more: bool,
}

impl SearchRelaxation {
    /// Returns how it differs from the query, such as "without `kind:full`".
    pub fn describe(&self) -> String {
        let term = &self.relaxed.term;
        match self.relaxed.change {
            QueryChange::SplitPhrase => format!("with the words of `{term}` in any order"),
            _ => format!("without `{term}`"),
        }
    }

    /// Returns what it finds, such as "12 entries, 1 memory".
    pub fn describe_count(&self) -> String {
        let plus = if self.has_more { "+" } else { "" };
        let entries = match self.entries {
            1 => "1 entry".to_string(),
            count => format!("{count}{plus} entries"),
        };
        let memories = format_count(self.memories as u64, "memory");
        match (self.entries, self.memories) {
            (_, 0) => entries,
            (0, _) => memories,
            _ => format!("{entries}, {memories}"),
        }
    }
}

impl ArchiveSearch {
    /// Returns the nearest queries that find something, at most five: those with the smallest change
    /// first, then those that find most. With `is_unfinished`, the last word of each is the beginning
    /// of a word. `goes_on` is asked as by [`ArchiveSearch::search_archive`]; when it returns false, the
    /// result is what was found until then.
    ///
    /// # Errors
    /// The archive or its pins cannot be read.
    pub fn relax_search(
        &self,
        query: &str,
        is_unfinished: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<SearchRelaxation>> {
        let mut found: Vec<SearchRelaxation> = Vec::new();
        for relaxed in relax_query(query).into_iter().take(MAX_TRIED_QUERIES) {
            let Ok(parsed) = Query::parse(&relaxed.query, self.context.clock().now()) else {
                continue;
            };
            let request = SearchRequest {
                query: if is_unfinished {
                    parsed.while_typing(&relaxed.query)
                } else {
                    parsed
                },
                order: CandidateOrder::Newest,
                limit: MAX_COUNTED_ENTRIES,
                max_lines: 0,
                // The search itself has read what it asks for.
                reads_remote: false,
            };
            let directories = self.searched_directories(&request.query)?;
            let result = self.find_matches(&request, &directories, goes_on)?;
            if !goes_on() {
                break;
            }
            let entries = result.entries.len();
            let memories = result.memories.len() + result.files.len();
            if entries + memories > 0 {
                found.push(SearchRelaxation {
                    relaxed,
                    entries,
                    memories,
                    has_more: result.has_more(),
                });
            }
        }
        found.sort_by_key(|it| (it.relaxed.change, Reverse(it.entries + it.memories)));
        found.truncate(MAX_RELAXATIONS);
        Ok(found)
    }
}
