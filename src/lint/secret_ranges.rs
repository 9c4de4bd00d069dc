//! Values that look like secrets: found before all rules run, and masked wherever text is quoted, so
//! that no message, excerpt or fingerprint contains one.

use std::cmp::Reverse;
use std::ops::Range;

use super::shown_text::ShownText;
use super::words::{WordList, Words, pattern, pattern_in_any_case, patterns};

/// Maximum number of characters of quoted text.
const MAX_QUOTED_CHARS: usize = 80;

/// Least number of different characters of a secret.
const MIN_DIFFERENT_CHARS: usize = 10;
/// Replaces a secret in quoted text.
const MASK: &[u8] = "•••".as_bytes();

patterns! {
    PASSWORD_WORD = pattern_in_any_case(r"^(?:pass|pwd|kennwort|senha|contrase|mot de passe|(?u:пароль)|口令|密码|パスワード|비밀번호)");
    FILE_NAME = pattern_in_any_case(
        r"\.(?:md|txt|json|ya?ml|toml|conf|cfg|ini|env|pem|key|pub|log|sh|py|js|ts|rs|go|rb|html|csv|gpg|age|enc)$"
    );
    PLAIN_WORDS = pattern_in_any_case(r"^[a-z_.:-]+(?:/[a-z_.:-]*)+$");
    VARIABLE_NAME = pattern(r"^[A-Z0-9_]+$");
    NUMBER_WITH_UNIT = pattern_in_any_case(r"^[\d.,:_/-]+[a-z%]{0,8}$");
}

/// The values that look like secrets, in the order of the text and without overlaps.
#[derive(Clone, Debug, Default)]
pub(super) struct SecretRanges(pub Vec<FoundSecret>);

/// A value that looks like a secret.
#[derive(Clone, Debug)]
pub(super) struct FoundSecret {
    pub range: Range<usize>,
    /// Whether its shape tells, and not the word before it.
    pub is_shaped: bool,
}

impl SecretRanges {
    /// Returns the ranges of all values.
    pub fn ranges(&self) -> Vec<Range<usize>> {
        self.0.iter().map(|it| it.range.clone()).collect()
    }

    /// Returns the bytes of a range with each secret in it replaced.
    pub fn mask(&self, text: &[u8], range: &Range<usize>) -> Vec<u8> {
        let mut masked = Vec::with_capacity(range.len());
        let mut at = range.start;
        let first = self.0.partition_point(|it| it.range.end <= range.start);
        for secret in &self.0[first..] {
            if secret.range.start >= range.end {
                break;
            }
            masked.extend_from_slice(&text[at..secret.range.start.max(at)]);
            masked.extend_from_slice(MASK);
            at = secret.range.end.min(range.end);
        }
        masked.extend_from_slice(&text[at..range.end]);
        masked
    }
}

/// Finds all values that look like secrets, also in code, and also those with characters in between
/// that do not show.
pub(super) fn find_secrets(text: &[u8], words: &Words) -> SecretRanges {
    let mut found = find_plain_secrets(text, words);
    let shown = ShownText::new(text);
    if shown.has_gaps() {
        let divided = find_plain_secrets(&shown.bytes, words);
        found.extend(divided.into_iter().map(|secret| FoundSecret {
            range: shown.original_range(&secret.range),
            ..secret
        }));
    }
    SecretRanges(merge_overlapping(found))
}

fn merge_overlapping(mut secrets: Vec<FoundSecret>) -> Vec<FoundSecret> {
    secrets.sort_by_key(|it| (it.range.start, Reverse(it.range.end)));
    let mut merged: Vec<FoundSecret> = Vec::with_capacity(secrets.len());
    for secret in secrets {
        match merged.last_mut() {
            Some(last) if secret.range.start < last.range.end => {
                last.range.end = last.range.end.max(secret.range.end);
                last.is_shaped |= secret.is_shaped;
            }
            _ => merged.push(secret),
        }
    }
    merged
}

/// Finds the values in the bytes as they are: first those with the shape of a secret, then those that
/// are assigned.
fn find_plain_secrets(text: &[u8], words: &Words) -> Vec<FoundSecret> {
    let shaped = words
        .secret_shapes_in(text)
        .flat_map(|shape| shape.find_iter(text).map(|it| it.range()))
        .filter(|range| is_real_shape(text, range))
        .map(|range| FoundSecret {
            range,
            is_shaped: true,
        });
    let mut found = merge_overlapping(shaped.collect());
    let is_known = |range: &Range<usize>, shapes: &[FoundSecret]| {
        let at = shapes.partition_point(|it| it.range.end <= range.start);
        shapes.get(at).is_some_and(|it| it.range.start < range.end)
    };
    let mut assigned = Vec::new();
    for assignment in words.pattern(WordList::SecretWords).captures_iter(text) {
        let Some(value) = assignment.get(1) else {
            continue;
        };
        let trimmed = value.as_bytes().trim_ascii_end();
        let kept = trimmed.iter().rposition(|byte| !b".!?:".contains(byte));
        let judged = value.start()..value.start() + kept.map_or(0, |last| last + 1);
        let is_password = PASSWORD_WORD.is_match(assignment.get_match().as_bytes());
        if !is_known(&judged, &found) && is_secret_value(&text[judged], is_password, words) {
            assigned.push(FoundSecret {
                // What may end the sentence may also end the secret.
                range: value.start()..value.start() + trimmed.len(),
                is_shaped: false,
            });
        }
    }
    found.extend(assigned);
    found
}

/// Returns a text with each value that looks like a secret replaced by dots.
pub fn mask_secrets(text: &[u8], words: &Words) -> Vec<u8> {
    find_secrets(text, words).mask(text, &(0..text.len()))
}

/// Returns text from outside of the document for a message: its secrets masked, and cut where it is
/// long.
pub(super) fn quotable(text: &[u8], words: &Words) -> String {
    quote(&mask_secrets(text, words))
}

/// Quotes text in which secrets are masked, cut where it is long.
pub(super) fn quote(masked: &[u8]) -> String {
    let text = String::from_utf8_lossy(masked);
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("\"{}…\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}

/// Whether text with the shape of a secret is one, and not an example of it.
fn is_real_shape(text: &[u8], range: &Range<usize>) -> bool {
    let value = String::from_utf8_lossy(&text[range.clone()]);
    let lower = value.to_lowercase();
    let is_example = value.contains("EXAMPLE")
        || value.contains("${")
        || lower.contains("xxxxxx")
        || lower.contains("your-");
    // "bearer of the announcement" has no digit.
    let is_word = lower.starts_with("bearer") && !value.bytes().any(|byte| byte.is_ascii_digit());
    !is_example && !is_word && different_chars(value.as_bytes()) >= MIN_DIFFERENT_CHARS
}

fn different_chars(text: &[u8]) -> usize {
    let mut seen = [false; 256];
    text.iter().for_each(|byte| seen[usize::from(*byte)] = true);
    seen.iter().filter(|it| **it).count()
}

/// Whether a value behind a word such as `password` looks like a secret.
fn is_secret_value(value: &[u8], is_password: bool, words: &Words) -> bool {
    let Ok(text) = str::from_utf8(value) else {
        return false;
    };
    if text.len() < 8 || !value.iter().all(u8::is_ascii_graphic) {
        return false;
    }
    let is_reference = text.starts_with(['$', '~', '/', '%', '[', '{', '.'])
        || ["://", "...", "***", "${", "(("]
            .iter()
            .any(|it| text.contains(it))
        || FILE_NAME.is_match(value)
        || PLAIN_WORDS.is_match(value)
        || VARIABLE_NAME.is_match(value)
        || NUMBER_WITH_UNIT.is_match(value)
        || words.is_marked_as_no_secret(text);
    if is_reference {
        return false;
    }
    let has = |test: fn(&u8) -> bool| value.iter().any(test);
    let has_lower = has(u8::is_ascii_lowercase);
    let has_upper = has(u8::is_ascii_uppercase);
    let has_digit = has(u8::is_ascii_digit);
    let has_sign = has(u8::is_ascii_punctuation);
    let kinds = [has_lower, has_upper, has_digit, has_sign];
    let kinds = kinds.iter().filter(|it| **it).count();
    let bits = entropy(value);
    has_digit && (has_lower || has_upper) && bits >= 2.8
        || kinds >= 3 && value.len() >= 12 && bits >= 3.0
        || is_password && value.len() >= 14 && value.iter().all(u8::is_ascii_lowercase)
}

/// Returns the entropy of a text in bits a byte.
fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0_usize; 256];
    text.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let length = text.len() as f64;
    let shares = counts.iter().filter(|it| **it > 0);
    shares
        .map(|number| *number as f64 / length)
        .map(|share| -share * share.log2())
        .sum()
}
