//! Search in texts: the query language, the words it compares, and the matches in one text. Pure.

mod matcher;
mod query;
mod similar;
#[cfg(test)]
mod tests;
mod words;

pub use matcher::{HitLine, MAX_PLACES, TextHits};
pub use query::{
    EntryFacts, EntryFilter, Pattern, Phrase, Query, QueryChange, QueryError, RelaxedQuery, Source,
    TextTerm, describe_query, matches_name, relax_query,
};
pub use similar::{SimilarWord, Vocabulary, add_vocabulary_words, is_vocabulary_word};
pub use words::for_each_word;
