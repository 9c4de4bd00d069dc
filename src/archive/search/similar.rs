//! Words that resemble another one: misspelt and inflected forms, by their character n-grams. No
//! model, no language: the same words give the same answer everywhere.
//!
//! The similarity of two words is the Dice coefficient of their bags of n-grams: twice the number of
//! common ones, divided by the number of all. The n-grams are the pairs and triples of characters of
//! the word between two marks, so that beginnings and ends count for more.

use std::collections::HashSet;

/// Words are similar from here on.
const MIN_SIMILARITY: f64 = 0.45;

/// Words with fewer characters resemble too many others.
const MIN_CHARS: usize = 4;

/// Longer words are identifiers.
const MAX_CHARS: usize = 32;

/// A mark before and behind a word.
const EDGE: char = '\u{0}';

/// A word that resembles another one.
#[derive(Clone, Debug, PartialEq)]
pub struct SimilarWord {
    /// The word, folded.
    pub word: String,
    /// The similarity, up to 1.
    pub similarity: f64,
}

/// Words to choose from.
#[derive(Default)]
pub struct Vocabulary {
    words: Vec<VocabularyWord>,
}

struct VocabularyWord {
    word: Box<str>,
    /// Number of its n-grams.
    count: u32,
    /// A bit for each of its n-grams: n-grams without theirs are not in the word.
    mask: u64,
}

/// Returns whether a folded word can be misspelt or inflected: letters alone, neither short nor long.
pub fn is_vocabulary_word(word: &str) -> bool {
    let is_long_enough = word.len() >= MIN_CHARS && word.len() <= 4 * MAX_CHARS;
    if !is_long_enough {
        return false;
    }
    let mut count = 0;
    let is_all_letters = word.chars().all(|c| {
        count += 1;
        c.is_alphabetic() && !super::words::is_unspaced(c)
    });
    is_all_letters && (MIN_CHARS..=MAX_CHARS).contains(&count)
}

/// Adds the words of a text that can be misspelt or inflected.
pub fn add_vocabulary_words(text: &[u8], words: &mut HashSet<String>) {
    super::words::for_each_word(text, |word, _| {
        if is_vocabulary_word(word) && !words.contains(word) {
            words.insert(word.to_string());
        }
    });
}

impl Vocabulary {
    /// Takes words.
    pub fn new(words: impl IntoIterator<Item = String>) -> Vocabulary {
        let words = words.into_iter().map(|word| {
            let grams = n_grams(&word);
            VocabularyWord {
                count: grams.len() as u32,
                mask: grams.iter().fold(0, |mask, gram| mask | bit(*gram)),
                word: word.into_boxed_str(),
            }
        });
        Vocabulary {
            words: words.collect(),
        }
    }

    /// Returns the words that resemble a folded word most, at most `limit`, but not itself.
    pub fn similar_words(&self, word: &str, limit: usize) -> Vec<SimilarWord> {
        if !is_vocabulary_word(word) {
            return Vec::new();
        }
        let grams = n_grams(word);
        let mut found = Vec::new();
        for other in self.words.iter().filter(|it| *it.word != *word) {
            let dice =
                |common: usize| 2.0 * common as f64 / (grams.len() as f64 + f64::from(other.count));
            let most = grams.iter().filter(|gram| other.mask & bit(**gram) != 0);
            if dice(most.count()) < MIN_SIMILARITY {
                continue;
            }
            let similarity = dice(count_common(&grams, &n_grams(&other.word)));
            if similarity >= MIN_SIMILARITY {
                found.push(SimilarWord {
                    word: other.word.to_string(),
                    similarity,
                });
            }
        }
        let by_similarity = |one: &SimilarWord, other: &SimilarWord| {
            let order = other.similarity.total_cmp(&one.similarity);
            order.then_with(|| one.word.cmp(&other.word))
        };
        found.sort_by(by_similarity);
        found.truncate(limit);
        found
    }
}

fn bit(gram: u32) -> u64 {
    1 << (gram >> 26)
}

/// Returns the hashes of the n-grams of a word, sorted.
fn n_grams(word: &str) -> Vec<u32> {
    let edge = std::iter::once(EDGE);
    let chars: Vec<char> = edge.clone().chain(word.chars()).chain(edge).collect();
    let pairs = chars.windows(2).map(hash_gram);
    let triples = chars.windows(3).map(hash_gram);
    let mut grams: Vec<u32> = pairs.chain(triples).collect();
    grams.sort_unstable();
    grams
}

/// FNV-1a over the characters.
fn hash_gram(gram: &[char]) -> u32 {
    gram.iter().fold(0x811c_9dc5, |hash: u32, c| {
        (hash ^ u32::from(*c)).wrapping_mul(0x0100_0193)
    })
}

/// Returns the number of common elements of two sorted bags.
fn count_common(one: &[u32], other: &[u32]) -> usize {
    let (mut at, mut count) = (0, 0);
    for gram in one {
        while other.get(at).is_some_and(|it| it < gram) {
            at += 1;
        }
        if other.get(at) == Some(gram) {
            at += 1;
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn similar(word: &str, words: &[&str]) -> Vec<String> {
        let vocabulary = Vocabulary::new(words.iter().map(|word| word.to_string()));
        let found = vocabulary.similar_words(word, 10).into_iter();
        found.map(|similar| similar.word).collect()
    }

    #[test]
    fn misspelt_and_inflected_words_are_similar() {
        let words = [
            "refresh",
            "certificate",
            "rotation",
            "rotated",
            "deploy",
            "queue",
        ];
        assert_eq!(similar("refrehs", &words), ["refresh"]);
        assert_eq!(similar("certifcate", &words), ["certificate"]);
        assert_eq!(similar("rotate", &words), ["rotated", "rotation"]);
        assert_eq!(similar("deployment", &words), ["deploy"]);
        assert_eq!(similar("banana", &words), [""; 0]);
    }

    #[test]
    fn short_words_numbers_and_itself_are_not_similar() {
        assert_eq!(similar("pro", &["prod", "proxy"]), [""; 0]);
        assert_eq!(similar("1c9f03ab", &["1c9f03ac"]), [""; 0]);
        assert_eq!(similar("token", &["token"]), [""; 0]);
    }

    proptest! {
        /// The bits never exclude a word that is similar.
        #[test]
        fn mask_excludes_no_similar_word(one in "[a-c]{4,8}", other in "[a-c]{4,8}") {
            let (grams, others) = (n_grams(&one), n_grams(&other));
            let common = count_common(&grams, &others) as f64;
            let dice = 2.0 * common / (grams.len() + others.len()) as f64;
            let is_found = !similar(&one, &[&other]).is_empty();
            prop_assert_eq!(is_found, one != other && dice >= MIN_SIMILARITY);
        }
    }
}
