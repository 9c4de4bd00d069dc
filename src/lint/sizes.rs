//! Rules about sizes and encoding (1xx): they inform and seldom scold.

use super::document::{Document, TextRole};
use super::finding::{Draft, Places, count};
use super::rule::{RuleId, Severity};
use super::{Context, Drafts};

/// Least size of a baseline in newer versions of the original tool.
const ORIGINAL_MIN_BYTES: usize = 500;
/// Bytes below which a baseline is thin.
const THIN_BYTES: usize = 2048;
/// Bytes above which a baseline is large.
const LARGE_BYTES: usize = 20_480;
/// Bytes above which a baseline is bloated.
const BLOATED_BYTES: usize = 25_600;
/// Characters above which a line is huge.
const HUGE_LINE_CHARS: usize = 2000;

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    match document.role {
        TextRole::Baseline => check_baseline_size(context, drafts),
        TextRole::Memory { .. } => {
            let limit = context.settings.max_memory_size;
            let read = document.text.len() as u64;
            let size = context.facts().memory_size.unwrap_or(read);
            if size > limit {
                let message = format!("the memory has {size} bytes; max_memory_size is {limit}");
                drafts.push(Draft::new(RuleId::OverLimit, message));
            }
        }
        TextRole::Scratch => {}
    }
    check_encoding(document, drafts);
    check_line_lengths(document, drafts);
}

fn check_baseline_size(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    let settings = context.settings;
    let size = document.text.len();
    let is_too_small = (size as u64) < settings.min_baseline_size;
    if is_too_small {
        let least = settings.min_baseline_size;
        let mut message =
            format!("the baseline has only {size} bytes; min_baseline_size is {least}");
        if size >= ORIGINAL_MIN_BYTES {
            message.push_str("; newer versions of the original tool accept 500");
        }
        drafts.push(Draft::new(RuleId::BaselineTooSmall, message));
    }
    let has_separator = document.eligible_separators().next().is_some();
    if !is_too_small && size < THIN_BYTES && has_separator && !settings.is_tiny {
        let message = format!("the baseline has {size} bytes, less than {THIN_BYTES}");
        drafts.push(Draft::new(RuleId::BaselineThin, message));
    }
    if size > LARGE_BYTES {
        let rule = if size > BLOATED_BYTES {
            RuleId::BaselineBloated
        } else {
            RuleId::BaselineLarge
        };
        let (low, high) = token_range(document.text);
        let message =
            format!("the baseline has {size} bytes: {low} to {high} tokens of each session");
        drafts.push(Draft::new(rule, message));
    }
    let limit = settings.max_memory_size;
    if size as u64 > limit && size > LARGE_BYTES {
        let message = format!("the baseline alone has {size} bytes; max_memory_size is {limit}");
        drafts.push(Draft::new(RuleId::OverLimit, message));
    }
}

/// Estimates the number of tokens: a quarter of the characters, or one for each character of
/// Chinese, Japanese or Korean.
fn token_range(text: &[u8]) -> (usize, usize) {
    let (mut wide, mut other) = (0, 0);
    for c in text.utf8_chunks().flat_map(|chunk| chunk.valid().chars()) {
        match c {
            '\u{1100}'..='\u{11FF}' | '\u{2E80}'..='\u{A4CF}' | '\u{AC00}'..='\u{FAFF}' => {
                wide += 1
            }
            '\u{20000}'..='\u{3FFFF}' => wide += 1,
            _ => other += 1,
        }
    }
    let estimate = wide + other / 4;
    let round = |tokens: usize| tokens / 100 * 100;
    (round(estimate * 9 / 10), round(estimate * 6 / 5 + 99))
}

fn check_encoding(document: &Document<'_>, drafts: &mut Drafts) {
    let judged = document.judged_range();
    let text = &document.text[judged.clone()];
    let mut broken = Places::default();
    if !text.is_ascii() || text.contains(&0) {
        let mut at = judged.start;
        for chunk in text.utf8_chunks() {
            for (offset, _) in chunk.valid().match_indices('\0') {
                broken.add(at + offset..at + offset + 1, "a NUL");
            }
            at += chunk.valid().len();
            if !chunk.invalid().is_empty() {
                broken.add(at..at + chunk.invalid().len(), "not UTF-8");
                at += chunk.invalid().len();
            }
        }
    }
    if !broken.is_empty() {
        let number = count(broken.len(), "place");
        let message = format!("the text has NUL characters or is not UTF-8, in {number}");
        drafts.push(Draft::new(RuleId::BadEncoding, message).at(broken));
    }
    check_line_ends(document, drafts);
}

/// Reports a byte order mark, lone carriage returns and mixed line ends, which `--fix` corrects in a
/// baseline.
fn check_line_ends(document: &Document<'_>, drafts: &mut Drafts) {
    let judged = document.judged_range();
    let text = document.text;
    let (mut with_cr, mut line_feeds) = (Places::default(), 0);
    let mut places = Places::default();
    if judged.start == 0 && text.starts_with(b"\xEF\xBB\xBF") {
        places.add(0..3, "a byte order mark");
    }
    for at in judged.clone() {
        match text[at] {
            b'\n' if at > judged.start && text[at - 1] == b'\r' => {
                with_cr.add(at - 1..at, "CR LF");
            }
            b'\n' => line_feeds += 1,
            b'\r' if text.get(at + 1) != Some(&b'\n') => {
                // Corrected, it is a line feed.
                line_feeds += 1;
                places.add(at..at + 1, "a lone CR");
            }
            _ => {}
        }
    }
    if line_feeds > 0 {
        places.0.extend(with_cr.0);
    }
    if places.is_empty() {
        return;
    }
    places.0.sort_by_key(|(range, _)| range.start);
    let edits = places.0.iter().map(|(range, label)| {
        let text = if label == "a lone CR" { "\n" } else { "" };
        (range.clone(), text.to_string())
    });
    let edits: Vec<_> = edits.collect();
    let message = format!(
        "a byte order mark, lone carriage returns or mixed line ends, in {}",
        count(places.len(), "place")
    );
    let draft = Draft::new(RuleId::BadEncoding, message)
        .severity(Severity::Warning)
        .at(places);
    drafts.push(match document.role {
        TextRole::Baseline => draft.safe_fix(edits),
        _ => draft,
    });
}

fn check_line_lengths(document: &Document<'_>, drafts: &mut Drafts) {
    let judged = document.judged_range();
    let mut places = Places::default();
    for (index, line) in document.lines.iter().enumerate() {
        if line.end - line.start <= HUGE_LINE_CHARS || line.start < judged.start {
            continue;
        }
        let range = document.line_range(index);
        let chars = document.lossy(&range).chars().count();
        if chars > HUGE_LINE_CHARS {
            places.add(range, format!("{chars} characters"));
        }
    }
    if !places.is_empty() {
        let message = format!(
            "{} with more than {HUGE_LINE_CHARS} characters",
            count(places.len(), "line")
        );
        drafts.push(Draft::new(RuleId::HugeLine, message).at(places));
    }
}
