//! Splits text into the words that a search compares: folded to lower case, without diacritics and
//! compatibility forms. Index, scan and query share it, so that they always agree.
//!
//! A word is a run of letters, digits and their marks: `auth_module`, `PR #42` and `src/main.rs` are
//! several words each, and a query for them is a phrase. Scripts that put no spaces between words
//! (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese) give overlapping pairs of characters and
//! the last character of the run: a query for any part of a run is a phrase of pairs.

use std::ops::Range;

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::props::{CanonicalCombiningClass, DefaultIgnorableCodePoint, Script};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Maximum length of a word in bytes; what follows is left out, in texts and queries alike.
const MAX_WORD_BYTES: usize = 128;

/// Calls `visit` with each word of a text and its range of bytes there. Bytes that are not UTF-8
/// separate words.
pub fn for_each_word(text: &[u8], mut visit: impl FnMut(&str, Range<usize>)) {
    let mut splitter = WordSplitter {
        folded: String::new(),
        visit: &mut visit,
    };
    let mut offset = 0;
    for chunk in text.utf8_chunks() {
        splitter.split(chunk.valid(), offset);
        offset += chunk.valid().len() + chunk.invalid().len();
    }
}

/// Whether a character belongs to a script that puts no spaces between words.
pub fn is_unspaced(c: char) -> bool {
    // Nothing below Thai does.
    c >= '\u{E00}'
        && c.is_alphanumeric()
        && matches!(
            CodePointMapData::<Script>::new().get(c),
            Script::Han
                | Script::Hiragana
                | Script::Katakana
                | Script::Hangul
                | Script::Bopomofo
                | Script::Thai
                | Script::Lao
                | Script::Khmer
                | Script::Myanmar
        )
        // The prolonged sound mark is common to two scripts.
        || c == '\u{30FC}'
}

/// Whether a character continues a word that has begun before it: a mark, or one that does not show,
/// such as a soft hyphen or a zero-width space. These must not hide a word.
fn is_mark(c: char) -> bool {
    c >= '\u{AD}'
        && (combining_class(c) != CanonicalCombiningClass::NotReordered
            || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c))
}

fn combining_class(c: char) -> CanonicalCombiningClass {
    CodePointMapData::<CanonicalCombiningClass>::new().get(c)
}

struct WordSplitter<'v> {
    folded: String,
    visit: &'v mut dyn FnMut(&str, Range<usize>),
}

impl WordSplitter<'_> {
    /// Splits a text that begins at `offset`.
    fn split(&mut self, text: &str, offset: usize) {
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let ascii = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
            let next = rest[ascii..].chars().next();
            if ascii > 0 && next.is_none_or(|c| c.is_ascii() || is_unspaced(c)) {
                self.folded.clear();
                self.folded.push_str(&rest[..ascii.min(MAX_WORD_BYTES)]);
                self.folded.make_ascii_lowercase();
                (self.visit)(&self.folded, offset + at..offset + at + ascii);
                at += ascii;
                continue;
            }
            let Some(first) = rest.chars().next() else {
                return;
            };
            at += if is_unspaced(first) {
                self.split_unspaced(rest, offset + at)
            } else if first.is_alphanumeric() {
                self.fold_word(rest, offset + at)
            } else {
                first.len_utf8()
            };
        }
    }

    /// Folds the word that a text begins with, and returns its length.
    fn fold_word(&mut self, text: &str, offset: usize) -> usize {
        let belongs = |c: char| c.is_alphanumeric() && !is_unspaced(c) || is_mark(c);
        let length = text.find(|c| !belongs(c)).unwrap_or(text.len());
        self.folded.clear();
        for c in DecomposingNormalizerBorrowed::new_nfkd().normalize_iter(text[..length].chars()) {
            if self.folded.len() >= MAX_WORD_BYTES {
                break;
            }
            // Compatibility forms may contain other characters, such as the slash of a fraction.
            if combining_class(c) == CanonicalCombiningClass::NotReordered && c.is_alphanumeric() {
                self.folded.extend(c.to_lowercase());
            }
        }
        if !self.folded.is_empty() {
            (self.visit)(&self.folded, offset..offset + length);
        }
        length
    }

    /// Visits the pairs of the run that a text begins with, and returns its length.
    fn split_unspaced(&mut self, text: &str, offset: usize) -> usize {
        let mut characters = text
            .char_indices()
            .filter(|(_, c)| is_unspaced(*c) || !is_mark(*c))
            .peekable();
        while let Some((at, c)) = characters.next_if(|(_, c)| is_unspaced(*c)) {
            self.folded.clear();
            self.folded.push(c);
            let next = characters.peek().filter(|(_, next)| is_unspaced(*next));
            let end = match next {
                Some((next_at, next)) => {
                    self.folded.push(*next);
                    next_at + next.len_utf8()
                }
                None => at + c.len_utf8(),
            };
            (self.visit)(&self.folded, offset + at..offset + end);
        }
        characters.peek().map_or(text.len(), |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for_each_word(text.as_bytes(), |word, _| words.push(word.to_string()));
        words
    }

    #[test]
    fn identifiers_paths_and_numbers_are_split() {
        assert_eq!(
            words("PR #42: auth_module in src/Main.rs, 1c9f03ab"),
            [
                "pr", "42", "auth", "module", "in", "src", "main", "rs", "1c9f03ab"
            ]
        );
    }

    #[test]
    fn case_diacritics_and_forms_are_folded() {
        let folded = ["groß", "ecole", "cafe", "abc", "жук", "ο"];
        assert_eq!(words("GROß École cafe\u{301} ＡＢＣ ЖУК Ό"), folded);
        assert_eq!(words("ﬁle"), ["file"]);
    }

    #[test]
    fn characters_that_do_not_show_hide_no_word() {
        assert_eq!(
            words("to\u{200B}ken to\u{AD}ken \u{2060}token"),
            ["token"; 3]
        );
        assert_eq!(words("認\u{200D}証"), ["認証", "証"]);
    }

    #[test]
    fn unspaced_scripts_give_pairs() {
        assert_eq!(words("認証module"), ["認証", "証", "module"]);
        assert_eq!(words("サーバー"), ["サー", "ーバ", "バー", "ー"]);
        assert_eq!(words("한글"), ["한글", "글"]);
    }

    #[test]
    fn ranges_lie_on_the_words() {
        let text = "é, größer\u{0}\u{FFFD} 日本\u{301}x".as_bytes();
        let broken = [b"\xFFab\xC3", text].concat();
        let mut last = 0;
        for_each_word(&broken, |word, range| {
            assert!(range.start >= last && range.end <= broken.len(), "{word}");
            last = range.start;
            let source = std::str::from_utf8(&broken[range]).unwrap();
            assert!(words(source).iter().any(|it| it == word), "{word}");
        });
        assert!(last > 0);
    }

    #[test]
    fn long_word_is_cut() {
        let long = "x".repeat(5000);
        assert_eq!(words(&long), ["x".repeat(MAX_WORD_BYTES)]);
    }
}
