//! The scan: the rules about secrets (6xx) and attacks (7xx) alone, for text that is kept where
//! others may read it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use serde::{Deserialize, Serialize};

use super::document::{Document, TextLanguage, Zone};
use super::finding::{Draft, FindingBuilder};
use super::rule::{RuleId, Severity};
use super::shown_text::ShownText;
use super::{
    Context, LintInput, LintSettings, MAX_CHECKED_LINES, characters, checked_beginning, commands,
    is_checked, phrases, secret_ranges, secrets, separators, suppression,
};
use crate::base::diff::count_lines;
use crate::base::quantity::{describe_size, format_count};

/// The beginning of a private key.
const KEY_BEGIN: &[u8] = b"-----BEGIN";

/// The beginning of its last line.
const KEY_END: &[u8] = b"-----END";

/// Maximum number of bytes behind its first line.
const MAX_KEY_BYTES: usize = 64 << 10;

/// Minimum length of a secret whose repetitions are redacted.
const MIN_REPEATED_BYTES: usize = 8;

/// Maximum size of all secrets whose repetitions are looked for: it bounds the memory.
const MAX_REPEATED_BYTES: usize = 256 << 10;

/// What a scan found: warnings and errors, without those that the operator allows or accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Number of secrets.
    pub secrets: usize,
    /// Number of places with an attack; characters of one kind count once.
    pub injections: usize,
    /// The rules that found them, in the order of their numbers.
    pub rules: Vec<RuleId>,
    /// The secrets, in the order of the text and without overlaps.
    pub places: Vec<SecretPlace>,
    /// Number of bytes behind the maximum number of lines, which were not scanned.
    pub unscanned_bytes: usize,
}

/// What a scan found, without the text: for records, which others may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanSummary {
    /// Number of secrets.
    pub secrets: u64,
    /// Number of places with an attack.
    pub injections: u64,
    /// The numbers of the rules that found them, such as `MS601`.
    pub rules: Vec<String>,
    /// Number of bytes that were not scanned: those behind the maximum length, or all of a text that
    /// could not be read or whose scan failed.
    #[serde(default, skip_serializing_if = "is_zero", rename = "unscanned")]
    pub unscanned_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ScanSummary {
    /// Returns the summary of a text of which nothing could be scanned.
    pub fn of_unscanned(bytes: u64) -> ScanSummary {
        ScanSummary {
            unscanned_bytes: bytes,
            ..ScanSummary::default()
        }
    }

    /// Returns whether the whole text was scanned and nothing was found.
    pub fn is_clean(&self) -> bool {
        self.secrets == 0 && self.injections == 0 && self.unscanned_bytes == 0
    }

    /// Adds the findings of another text.
    pub fn add(&mut self, other: &ScanSummary) {
        self.secrets += other.secrets;
        self.injections += other.injections;
        self.unscanned_bytes += other.unscanned_bytes;
        self.rules.extend(other.rules.iter().cloned());
        self.rules.sort_unstable();
        self.rules.dedup();
    }

    /// Says what was found: "2 secrets, 1 injection"; empty if nothing was.
    pub fn describe_found(&self) -> String {
        let counts = [(self.secrets, "secret"), (self.injections, "injection")];
        counts
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, noun)| format_count(*number, noun))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Says what was not scanned: "41.0 MB not scanned"; none if all was.
    pub fn describe_unscanned(&self) -> Option<String> {
        let bytes = self.unscanned_bytes;
        (bytes > 0).then(|| format!("{} not scanned", describe_size(bytes)))
    }

    /// Says what was found and what was not scanned: "2 secrets, 41.0 MB not scanned"; empty for a
    /// clean text.
    pub fn describe(&self) -> String {
        let found = Some(self.describe_found()).filter(|found| !found.is_empty());
        let parts = found.into_iter().chain(self.describe_unscanned());
        parts.collect::<Vec<_>>().join(", ")
    }
}

impl From<&ScanReport> for ScanSummary {
    fn from(report: &ScanReport) -> ScanSummary {
        let rules = report.rules.iter().map(|rule| rule.code().to_string());
        ScanSummary {
            secrets: report.secrets as u64,
            injections: report.injections as u64,
            rules: rules.collect(),
            unscanned_bytes: report.unscanned_bytes as u64,
        }
    }
}

/// A secret in a scanned text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPlace {
    /// Its bytes.
    pub range: Range<usize>,
    /// The rule that found it.
    pub rule: RuleId,
}

/// Scans a text. `operator_text` is what the operator put into it: an attack above the boundary
/// counts only on a line that is not among its lines. Takes linear time.
///
/// Differs from the lint in one point: a text with too few words to tell their language counts as
/// English, because notes are often short.
pub fn scan(
    input: &LintInput<'_>,
    operator_text: Option<&[u8]>,
    settings: &LintSettings,
) -> ScanReport {
    let is_whole = count_lines(input.text) <= MAX_CHECKED_LINES;
    let text = if is_whole {
        input.text
    } else {
        checked_beginning(input.text)
    };
    let separator = input.separator.as_bytes();
    let mut document = Document::parse(text, input.role, separator, &settings.words);
    if document.language == TextLanguage::TooShort {
        document.language = TextLanguage::English;
    }
    document.secrets = secret_ranges::find_secrets(text, &settings.words);
    if let Some(known) = operator_text {
        document.compare_with(known);
    }
    let context = Context {
        input: &LintInput { text, ..*input },
        settings,
        document: &document,
    };
    let mut drafts = Vec::new();
    for check in [
        secrets::check,
        phrases::check,
        commands::check,
        characters::check,
        separators::check_spoofs,
    ] {
        check(&context, &mut drafts);
    }
    let mut report = ScanReport {
        unscanned_bytes: input.text.len() - text.len(),
        ..ScanReport::default()
    };
    let mut builder = FindingBuilder::new(&document, input);
    for draft in drafts {
        let number = count_places(&context, &draft, operator_text.is_some());
        if number == 0 || !is_reported(&context, &draft, &mut builder) {
            continue;
        }
        report.rules.push(draft.rule);
        match draft.rule {
            RuleId::Secret | RuleId::AssignedSecret => {
                report.secrets += number;
                let places = draft.places.list.into_iter().map(|(range, _)| SecretPlace {
                    range,
                    rule: draft.rule,
                });
                report.places.extend(places);
            }
            _ => report.injections += number,
        }
    }
    report.rules.sort_unstable();
    report.rules.dedup();
    report.places.sort_by_key(|place| place.range.start);
    report
}

/// Whether a finding is at least a warning and neither ignored nor suppressed.
fn is_reported(context: &Context<'_>, draft: &Draft, builder: &mut FindingBuilder<'_, '_>) -> bool {
    let (rule, settings) = (draft.rule, context.settings);
    if settings.ignores(rule) || rule.rule().is_english_only && !is_checked(rule, context.document)
    {
        return false;
    }
    let severity = settings.severity_of(rule).unwrap_or(draft.severity);
    if severity < Severity::Warning {
        return false;
    }
    let fingerprint = builder.fingerprint(draft);
    suppression::find_suppression(context, draft, &fingerprint).is_none()
}

/// Returns how many places of a finding count: of an attack, those that the operator did not write.
/// A rule about characters counts once, because a coloured log has a place in each line.
fn count_places(context: &Context<'_>, draft: &Draft, is_operator_text_known: bool) -> usize {
    let document = context.document;
    let is_operators = |range: &Range<usize>| {
        is_operator_text_known
            && document.zone_of(range) == Zone::Baseline
            && !document.is_on_new_line(range)
    };
    let places = draft.places.list.iter();
    match draft.rule {
        RuleId::Secret | RuleId::AssignedSecret => draft.places.len(),
        RuleId::ZeroWidth | RuleId::Bidi | RuleId::TagCharacters | RuleId::TerminalControl => {
            let mut written = places.filter(|(range, _)| !is_operators(range));
            usize::from(written.next().is_some())
        }
        _ => places.filter(|(range, _)| !is_operators(range)).count(),
    }
}

/// Returns a text with each secret replaced by the number of its rule, such as `[redacted MS601]`,
/// wherever it occurs. Returns none where the text has too many secrets to look for.
///
/// A secret ends where its word ends: its pattern may see only the beginning of it.
pub fn redact_secrets(text: &[u8], places: &[SecretPlace]) -> Option<Vec<u8>> {
    let mut secrets = whole_secrets(text, places)?;
    let shown = ShownText::new(text);
    if shown.has_gaps() {
        // Hidden characters may divide a secret, its repetition, or the first line of a key.
        let shown_places = places.iter().map(|place| SecretPlace {
            range: shown.shown_range(&place.range),
            rule: place.rule,
        });
        let shown_places: Vec<_> = shown_places.filter(|it| !it.range.is_empty()).collect();
        let divided = whole_secrets(&shown.bytes, &shown_places)?.into_iter();
        secrets.extend(divided.map(|secret| SecretPlace {
            range: shown.original_range(&secret.range),
            ..secret
        }));
        secrets.sort_by_key(|secret| secret.range.start);
    }
    let mut redacted = Vec::with_capacity(text.len());
    let mut at = 0;
    for SecretPlace { range, rule } in secrets {
        if range.start >= at {
            redacted.extend_from_slice(&text[at..range.start]);
            redacted.extend_from_slice(format!("[redacted {}]", rule.code()).as_bytes());
        }
        at = at.max(range.end);
    }
    redacted.extend_from_slice(&text[at..]);
    Some(redacted)
}

/// Returns the whole secrets at places and wherever they are repeated, in the order of the text.
fn whole_secrets(text: &[u8], places: &[SecretPlace]) -> Option<Vec<SecretPlace>> {
    let mut secrets = Vec::new();
    let mut at = 0;
    for place in find_repetitions(text, places)? {
        // The secret before may extend over this one: skipping it keeps the time linear.
        if place.range.end <= at {
            continue;
        }
        let range = extend_secret(text, &place.range);
        at = range.end;
        secrets.push(SecretPlace { range, ..place });
    }
    Some(secrets)
}

/// Returns the places and those of their repetitions, in the order of the text.
fn find_repetitions(text: &[u8], places: &[SecretPlace]) -> Option<Vec<SecretPlace>> {
    let mut values: HashMap<&[u8], RuleId> = HashMap::new();
    for place in places {
        let value = text[place.range.clone()].trim_ascii();
        // Punctuation that ends a sentence is not part of the repeated secret.
        let end = value.iter().rposition(|byte| !b".,;:!?".contains(byte));
        values.insert(&value[..end.map_or(0, |last| last + 1)], place.rule);
    }
    values.retain(|value, _| value.len() >= MIN_REPEATED_BYTES);
    if values.keys().map(|value| value.len()).sum::<usize>() > MAX_REPEATED_BYTES {
        return None;
    }
    let (values, rules): (Vec<&[u8]>, Vec<RuleId>) = values.into_iter().unzip();
    let repeated = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(&values)
        .ok()?;
    let repetitions = repeated.find_iter(text).map(|found| SecretPlace {
        range: found.range(),
        rule: rules[found.pattern().as_usize()],
    });
    let mut all: Vec<SecretPlace> = places.iter().cloned().chain(repetitions).collect();
    all.sort_by_key(|place| (place.range.start, Reverse(place.range.end)));
    Some(all)
}

/// Extends the range of a secret: a private key to its end, another one to the end of its word.
fn extend_secret(text: &[u8], range: &Range<usize>) -> Range<usize> {
    if text[range.clone()].starts_with(KEY_BEGIN) {
        return extend_over_key(text, range);
    }
    let quote = range.start.checked_sub(1).map(|before| text[before]);
    let quote = quote.filter(|byte| b"\"'`".contains(byte));
    let ends = |byte: &u8| byte.is_ascii_whitespace() || quote == Some(*byte);
    let behind = &text[range.end..];
    let length = behind.iter().position(ends).unwrap_or(behind.len());
    let rest = &behind[..length];
    // What only ends a sentence or closes a bracket stays, so that the text can be read.
    let kept = rest
        .iter()
        .rposition(|byte| !b".,;:!?)]}>*_".contains(byte));
    range.start..range.end + kept.map_or(0, |last| last + 1)
}

/// Extends the range of a private key whose end the pattern does not see, because it has headers, is
/// cut off, or each of its lines is quoted: to its last line, or to the next empty line that does not
/// end its headers.
fn extend_over_key(text: &[u8], range: &Range<usize>) -> Range<usize> {
    let value = &text[range.clone()];
    if find_key_end(value).is_some() {
        return range.clone();
    }
    let behind = &text[range.end..];
    let next = memchr::memmem::find(behind, KEY_BEGIN).unwrap_or(behind.len());
    let behind = &behind[..next.min(MAX_KEY_BYTES)];
    let length = find_key_end(behind).unwrap_or_else(|| length_to_empty_line(behind));
    range.start..range.end + behind[..length].trim_ascii_end().len()
}

/// Returns the length of a text up to the end of the line that ends a private key.
fn find_key_end(text: &[u8]) -> Option<usize> {
    let end = memchr::memmem::find(text, KEY_END)?;
    let line = memchr::memchr(b'\n', &text[end..]);
    Some(line.map_or(text.len(), |length| end + length))
}

/// Returns the length of a text up to the empty line behind its first line; behind headers such as
/// `DEK-Info: …`, up to the one after that.
fn length_to_empty_line(text: &[u8]) -> usize {
    let (mut length, mut has_headers) = (0, false);
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if number > 0 && line.trim_ascii().is_empty() && !std::mem::take(&mut has_headers) {
            break;
        }
        has_headers |= memchr::memmem::find(line, b": ").is_some();
        length += line.len();
    }
    length
}
