//! Finds what a query matches in one text, and where. It reads the text itself, so it answers with
//! and without an index, and what it says is what is on the disk.

use std::collections::HashMap;
use std::ops::Range;

use memchr::{memchr, memchr_iter};
use regex::bytes::Regex;

use super::query::{Pattern, Phrase, Query};
use super::words::{for_each_word, is_unspaced};

/// Maximum number of hits in one text whose places are kept; further ones are only counted.
pub const MAX_PLACES: usize = 1000;

/// What a query matches in a text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextHits {
    /// Number of hits; a text that matches without one fulfils a query that only excludes.
    pub count: usize,
    /// The first hits, as ranges of bytes, in the order of the text.
    pub places: Vec<Range<usize>>,
    /// How similar the words are: the product over the terms, each with its most similar word; 1 where
    /// all are the words of the query.
    pub similarity: f64,
}

impl Default for TextHits {
    fn default() -> TextHits {
        TextHits {
            count: 0,
            places: Vec::new(),
            similarity: 1.0,
        }
    }
}

/// A line with hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HitLine {
    /// Its number, from 1.
    pub number: u64,
    /// Its range of bytes in the text, without its line end.
    pub range: Range<usize>,
    /// The hits in it, as ranges of bytes of the text.
    pub hits: Vec<Range<usize>>,
}

impl Query {
    /// Returns the hits in a text; none where it does not match.
    pub fn find_hits(&self, text: &[u8]) -> Option<TextHits> {
        let mut hits = TextHits::default();
        let phrases: Vec<(&Phrase, bool)> = self
            .required_phrases()
            .map(|phrase| (phrase, false))
            .chain(self.excluded_phrases().map(|phrase| (phrase, true)))
            .collect();
        if !phrases.is_empty() {
            let mut searches: Vec<PhraseSearch<'_>> = phrases
                .iter()
                .map(|(phrase, _)| PhraseSearch::new(phrase))
                .collect();
            let mut found: Vec<bool> = vec![false; searches.len()];
            for_each_word(text, |word, range| {
                for (at, search) in searches.iter_mut().enumerate() {
                    let Some(place) = search.advance(word, &range) else {
                        continue;
                    };
                    found[at] = true;
                    if !phrases[at].1 {
                        hits.add(place);
                    }
                }
            });
            let is_right =
                |(found, (_, is_excluded)): (&bool, &(&Phrase, bool))| found != is_excluded;
            if !found.iter().zip(&phrases).all(is_right) {
                return None;
            }
        }
        self.add_similar_words(text, &mut hits)?;
        for term in &self.terms {
            let Pattern::Regex(regex) = &term.pattern else {
                continue;
            };
            let mut excluded = TextHits::default();
            let found = if term.is_excluded {
                &mut excluded
            } else {
                &mut hits
            };
            let before = found.count;
            if regex.is_match(text) {
                found.add_matches_in_lines(regex, text);
            }
            if (found.count > before) == term.is_excluded {
                return None;
            }
        }
        hits.places.sort_by_key(|place| (place.start, place.end));
        Some(hits)
    }

    /// Adds the hits of similar words; none if a term has no hit.
    fn add_similar_words(&self, text: &[u8], hits: &mut TextHits) -> Option<()> {
        let mut terms_of: HashMap<&str, Vec<(usize, f64)>> = HashMap::new();
        let mut best = Vec::new();
        for (term, words) in self.similar_words().enumerate() {
            best.push(0.0_f64);
            for similar in words {
                let terms = terms_of.entry(&similar.word).or_default();
                terms.push((term, similar.similarity));
            }
        }
        if best.is_empty() {
            return Some(());
        }
        for_each_word(text, |word, range| {
            for (term, similarity) in terms_of.get(word).into_iter().flatten() {
                best[*term] = best[*term].max(*similarity);
                hits.add(range.clone());
            }
        });
        hits.similarity = best.iter().product();
        (hits.similarity > 0.0).then_some(())
    }
}

impl TextHits {
    /// Moves the places by a number of bytes: the text was the rest of another one.
    pub fn move_by(&mut self, offset: usize) {
        for place in &mut self.places {
            *place = place.start + offset..place.end + offset;
        }
    }

    /// Adds the matches of a regular expression within lines. Where all matches in a line are empty,
    /// they are one hit at its beginning.
    fn add_matches_in_lines(&mut self, regex: &Regex, text: &[u8]) {
        let mut start = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let before = self.count;
            for found in regex.find_iter(line).filter(|found| !found.is_empty()) {
                self.add(start + found.start()..start + found.end());
            }
            // Behind the line end, `^` and `$` match once more.
            let content = line.strip_suffix(b"\n").unwrap_or(line);
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            if self.count == before && regex.is_match(content) {
                self.add(start..start);
            }
            start += line.len();
        }
    }

    fn add(&mut self, place: Range<usize>) {
        self.count += 1;
        if self.places.len() < MAX_PLACES {
            self.places.push(place);
        }
    }

    /// Returns the lines of the text with hits. A hit that spans lines is in its first one.
    pub fn lines(&self, text: &[u8]) -> Vec<HitLine> {
        let mut lines: Vec<HitLine> = Vec::new();
        let (mut start, mut next_start, mut number) = (0, 0, 1);
        for place in &self.places {
            let place = place.start.min(text.len())..place.end.min(text.len());
            for at in memchr_iter(b'\n', &text[start..place.start]) {
                number += 1;
                next_start = start + at + 1;
            }
            start = next_start;
            let rest = &text[start..];
            let length = memchr(b'\n', rest);
            let mut end = start + length.unwrap_or(rest.len());
            if end > start && text[end - 1] == b'\r' {
                end -= 1;
            }
            let hit = place.start.min(end)..place.end.min(end);
            match lines.last_mut().filter(|line| line.number == number) {
                Some(line) => line.hits.push(hit),
                None => lines.push(HitLine {
                    number,
                    range: start..end,
                    hits: vec![hit],
                }),
            }
        }
        lines
    }
}

/// A search for one phrase in a stream of words.
struct PhraseSearch<'q> {
    phrase: &'q Phrase,
    /// Beginnings of the phrase that the last word continued: how many words of it, and where the
    /// first one starts.
    begun: Vec<(usize, usize)>,
}

impl<'q> PhraseSearch<'q> {
    fn new(phrase: &'q Phrase) -> PhraseSearch<'q> {
        PhraseSearch {
            phrase,
            begun: Vec::new(),
        }
    }

    /// Takes the next word; returns the place of the phrase that ends with it.
    fn advance(&mut self, word: &str, range: &Range<usize>) -> Option<Range<usize>> {
        let words = &self.phrase.words;
        // A single character of an unspaced script is the beginning of a pair.
        let end = match words.last() {
            Some(last) if last.chars().next().is_some_and(is_unspaced) => {
                range.end.min(range.start + last.len())
            }
            _ => range.end,
        };
        if words.len() == 1 {
            return self.matches(0, word).then_some(range.start..end);
        }
        let mut complete = None;
        let mut begun = std::mem::take(&mut self.begun);
        begun.retain_mut(|(count, start)| {
            if !self.matches(*count, word) {
                return false;
            }
            *count += 1;
            if *count == words.len() {
                complete.get_or_insert(*start..end);
            }
            *count < words.len()
        });
        if self.matches(0, word) {
            begun.push((1, range.start));
        }
        self.begun = begun;
        complete
    }

    fn matches(&self, at: usize, word: &str) -> bool {
        let wanted = &self.phrase.words[at];
        if self.phrase.is_prefix && at + 1 == self.phrase.words.len() {
            word.starts_with(wanted.as_str())
        } else {
            word == wanted
        }
    }
}
