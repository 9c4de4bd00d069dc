//! Ranking of entries by the words of a query, as the agents' own program ranks them.

use std::sync::LazyLock;

use unicode_segmentation::UnicodeSegmentation;

use super::entry::Entry;
use crate::base::threads::map_chunks_on_processors;

/// How much a word counts that occurs more often in an entry.
const K1: f64 = 1.5;

/// How much a long entry is held against it.
const B: f64 = 0.75;

/// What a tag adds that is in the query.
const TAG_BOOST: f64 = 1.0;

/// How entries are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankingMode {
    /// As the agents' own program does.
    Bm25,
    /// With words of all scripts, and tags of several words.
    Better,
}

impl RankingMode {
    /// The word for documents.
    pub fn as_str(self) -> &'static str {
        match self {
            RankingMode::Bm25 => "bm25",
            RankingMode::Better => "better",
        }
    }

    /// Calls `take` with each word of a text that counts. Its letters are in lower case, but those of ASCII
    /// may be in either.
    fn for_each_word(self, text: &str, mut take: impl FnMut(&str)) {
        let lower = (!text.is_ascii()).then(|| text.to_lowercase());
        let text = lower.as_deref().unwrap_or(text);
        let mut take_word = |word: &str| {
            if word.len() >= 2 && !is_stop_word(word) {
                take(word);
            }
        };
        match self {
            RankingMode::Bm25 => {
                // Words are of ASCII, so that each byte of another character separates them.
                let mut rest = text.as_bytes();
                let mut end = 0;
                while let Some(start) = rest.iter().position(u8::is_ascii_alphanumeric) {
                    let start = end + start;
                    let length = text.as_bytes()[start..]
                        .iter()
                        .position(|byte| !byte.is_ascii_alphanumeric());
                    end = length.map_or(text.len(), |length| start + length);
                    take_word(&text[start..end]);
                    rest = &text.as_bytes()[end..];
                }
            }
            RankingMode::Better => text.unicode_words().for_each(&mut take_word),
        }
    }

    /// Returns the words of a text that count, in lower case.
    pub fn words(self, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        self.for_each_word(text, |word| words.push(word.to_ascii_lowercase()));
        words
    }

    /// Whether a text, apart from the case of its letters, is one word that counts.
    pub fn is_word(self, text: &str) -> bool {
        self.words(text) == [text.to_lowercase()]
    }

    /// Returns what the tags of an entry add to its score.
    fn tag_boost(self, entry: &Entry, query: &[String]) -> f64 {
        let is_in_query = |word: &String| query.contains(word);
        let count = match self {
            RankingMode::Bm25 => {
                let tags: Vec<String> = entry.tags.iter().map(|tag| tag.to_lowercase()).collect();
                query.iter().filter(|word| tags.contains(word)).count()
            }
            RankingMode::Better => {
                let tags = entry.tags.iter().map(|tag| self.words(tag));
                tags.filter(|words| !words.is_empty() && words.iter().all(is_in_query))
                    .count()
            }
        };
        count as f64 * TAG_BOOST
    }
}

/// The words that say nothing about an entry; single letters are no words anyway.
const STOP_WORDS: [&str; 28] = [
    "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "in", "is", "it",
    "of", "on", "or", "that", "the", "this", "to", "was", "were", "with", "you", "your", "we",
    "our",
];

/// Maximum length of a stop word.
const MAX_STOP_WORD_LENGTH: usize = 4;

/// The stop words as numbers, in ascending order.
static STOP_WORD_NUMBERS: LazyLock<[u32; STOP_WORDS.len()]> = LazyLock::new(|| {
    let mut numbers = STOP_WORDS.map(number_of_word);
    numbers.sort_unstable();
    numbers
});

/// Returns the letters of a short word, in lower case, as one number.
fn number_of_word(word: &str) -> u32 {
    let letters = word.bytes().map(|letter| letter.to_ascii_lowercase());
    letters.fold(0, |number, letter| (number << 8) | u32::from(letter))
}

/// Whether a word says nothing about an entry.
fn is_stop_word(word: &str) -> bool {
    let number = || number_of_word(word);
    word.len() <= MAX_STOP_WORD_LENGTH && STOP_WORD_NUMBERS.binary_search(&number()).is_ok()
}

/// How often the words of a query are in an entry.
struct WordCounts {
    /// For each word of the query.
    of_query: Vec<u32>,
    /// Number of all words of the entry, at least 1.
    total: usize,
}

impl WordCounts {
    fn new(entry: &Entry, query: &[String], mode: RankingMode) -> WordCounts {
        let mut of_query = vec![0; query.len()];
        let mut total = 0;
        let mut add = |word: &str| {
            total += 1;
            for (count, wanted) in of_query.iter_mut().zip(query) {
                *count += u32::from(wanted.eq_ignore_ascii_case(word));
            }
        };
        mode.for_each_word(&entry.summary, &mut add);
        mode.for_each_word(&entry.body, &mut add);
        for tag in &entry.tags {
            mode.for_each_word(tag, &mut add);
        }
        WordCounts {
            of_query,
            total: total.max(1),
        }
    }
}

/// Ranks entries: returns the position of each that has a word of the query, with its score, the best
/// first; equal ones keep their order. How frequent a word is counts among these entries only.
pub fn rank(entries: &[&Entry], query: &str, mode: RankingMode) -> Vec<(usize, f64)> {
    let words = mode.words(query);
    let count_chunk = |chunk: &[&Entry]| -> Vec<WordCounts> {
        let counts = chunk.iter().map(|it| WordCounts::new(it, &words, mode));
        counts.collect()
    };
    let counts = map_chunks_on_processors(entries, || count_chunk);
    let counts: Vec<WordCounts> = counts.into_iter().flatten().collect();
    let count = counts.len() as f64;
    let total: usize = counts.iter().map(|it| it.total).sum();
    let average = total as f64 / count;
    let frequency_weights = (0..words.len()).map(|word| {
        let with_word = counts.iter().filter(|it| it.of_query[word] > 0).count() as f64;
        (1.0 + (count - with_word + 0.5) / (with_word + 0.5)).ln()
    });
    let frequency_weights: Vec<f64> = frequency_weights.collect();
    let score = |(entry, counts): (&&Entry, &WordCounts)| -> f64 {
        let length_weight = K1 * (1.0 - B + B * counts.total as f64 / average);
        let of_words = counts
            .of_query
            .iter()
            .zip(&frequency_weights)
            .map(|(of_word, weight)| {
                let of_word = f64::from(*of_word);
                weight * (of_word * (K1 + 1.0)) / (of_word + length_weight)
            });
        of_words.sum::<f64>() + mode.tag_boost(entry, &words)
    };
    let scores = entries.iter().zip(&counts).map(score).enumerate();
    let mut ranked: Vec<(usize, f64)> = scores.filter(|(_, score)| *score > 0.0).collect();
    ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::drover::{Kind, Scope};

    fn entry(summary: &str, tags: &[&str]) -> Entry {
        Entry {
            id: "01HF7YAT00AAAAAAAAAAAAAAAA".to_string(),
            scope: Scope::Global,
            kind: Kind::User,
            summary: summary.to_string(),
            body: String::new(),
            agent_id: None,
            run_id: None,
            tags: tags.iter().map(|tag| tag.to_string()).collect(),
            created_ms: 0,
            updated_ms: None,
            unknown_lines: String::new(),
        }
    }

    fn ranked(entries: &[Entry], query: &str, mode: RankingMode) -> Vec<(usize, f64)> {
        rank(&entries.iter().collect::<Vec<_>>(), query, mode)
    }

    #[test]
    fn scores_are_those_of_agents() {
        let nine = "alpha bravo charlie delta echo foxtrot golf hotel india";
        let entries = [
            entry(nine, &["style"]),
            entry(&format!("{nine} juliet kilo"), &[]),
            entry(nine, &["Style"]),
        ];
        let score = 1.476926759627424;
        let found = ranked(&entries, "style", RankingMode::Bm25);
        assert_eq!(found, [(0, score), (2, score)]);
        // Each word of the query counts, also twice.
        let twice = ranked(&entries, "Style, style!", RankingMode::Bm25);
        assert_eq!(twice, [(0, 2.0 * score), (2, 2.0 * score)]);
    }

    #[test]
    fn words_of_agents_are_of_ascii() {
        let words = |mode: RankingMode, text: &str| mode.words(text);
        let text = "The café's code-review: x 42, naïve 茶道";
        assert_eq!(
            words(RankingMode::Bm25, text),
            ["caf", "code", "review", "42", "na", "ve"]
        );
        assert_eq!(
            words(RankingMode::Better, text),
            ["café's", "code", "review", "42", "naïve", "茶", "道"]
        );
        assert!(RankingMode::Bm25.is_word("Style"));
        assert!(!RankingMode::Bm25.is_word("code-review"));
        assert!(!RankingMode::Bm25.is_word("the"));
    }

    #[test]
    fn tags_of_several_words_rank_higher_where_asked() {
        let entries = [
            entry("code review", &[]),
            entry("code review", &["code-review"]),
        ];
        let found = ranked(&entries, "review code", RankingMode::Better);
        assert_eq!(found[0].0, 1);
    }
}
