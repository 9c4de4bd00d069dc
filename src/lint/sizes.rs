//! Rules about sizes and encoding (1xx): they inform and seldom scold.

use std::ops::Range;

use super::document::{Document, TextRole};
use super::finding::{Draft, Places};
use super::fix::leading_marks_len;
use super::rule::{RuleId, Severity};
use super::{Context, Drafts};
use crate::base::quantity::format_count;

/// Least size of a baseline in newer versions of the original tool.
const ORIGINAL_MIN_BYTES: usize = 500;
/// Bytes below which a baseline is thin.
const THIN_BYTES: usize = 2048;
/// Bytes above which a baseline is large.
const LARGE_BYTES: usize = 20_480;
/// Bytes above which a baseline is bloated.
const BLOATED_BYTES: usize = 25_600;
/// Number of places from which a file's line ends are left alone: it is not a baseline.
const MAX_FIXED_PLACES: usize = 20_000;
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
    let has_separator = document.separators.boundary().is_some();
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
        let message = format!("{size} bytes, {low} to {high} tokens per session");
        drafts.push(Draft::new(rule, message));
    }
    let limit = settings.max_memory_size;
    if size as u64 > limit && size > LARGE_BYTES {
        let message = format!("the baseline has {size} bytes; max_memory_size is {limit}");
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
                let range = at + offset..at + offset + 1;
                broken.add_character(document, range, || "a NUL".into());
            }
            at += chunk.valid().len();
            if !chunk.invalid().is_empty() {
                let range = at..at + chunk.invalid().len();
                broken.add_character(document, range, || "not UTF-8".into());
                at += chunk.invalid().len();
            }
        }
    }
    if !broken.is_empty() {
        let number = broken.count("place");
        let message = format!("the text has NUL characters or is not UTF-8, in {number}");
        drafts.push(Draft::new(RuleId::BadEncoding, message).at(broken));
    }
    check_line_ends(document, drafts);
}

/// A carriage return of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CarriageReturn {
    Lone,
    /// Before a line feed.
    OfLineEnd,
}

/// Returns the carriage returns of a range with their offsets.
fn carriage_returns(
    text: &[u8],
    range: Range<usize>,
) -> impl Iterator<Item = (usize, CarriageReturn)> {
    range.filter(|at| text[*at] == b'\r').map(|at| {
        let is_before_line_feed = text.get(at + 1) == Some(&b'\n');
        let kind = if is_before_line_feed {
            CarriageReturn::OfLineEnd
        } else {
            CarriageReturn::Lone
        };
        (at, kind)
    })
}

/// Reports a byte order mark, lone carriage returns and mixed line ends, which `--fix` corrects in a
/// baseline.
fn check_line_ends(document: &Document<'_>, drafts: &mut Drafts) {
    let judged = document.judged_range();
    let text = document.text;
    let found = || carriage_returns(text, judged.clone());
    let line_feeds = text[judged.clone()].iter().filter(|it| **it == b'\n');
    let of_line_ends = found().filter(|(_, kind)| *kind == CarriageReturn::OfLineEnd);
    let has_lone_cr = found().any(|(_, kind)| kind == CarriageReturn::Lone);
    // A lone CR becomes a line feed.
    let is_mixed = has_lone_cr || line_feeds.count() > of_line_ends.count();
    let wrong = || found().filter(|(_, kind)| is_mixed || *kind == CarriageReturn::Lone);
    let mut places = Places::default();
    let marks = 0..if judged.start == 0 {
        leading_marks_len(text)
    } else {
        0
    };
    if !marks.is_empty() {
        places.add(marks.clone(), "a byte order mark");
    }
    for (at, kind) in wrong() {
        let label = match kind {
            CarriageReturn::Lone => "a lone CR",
            CarriageReturn::OfLineEnd => "CR LF",
        };
        places.add_character(document, at..at + 1, || label.into());
    }
    if places.is_empty() {
        return;
    }
    let number = places.len();
    let message = format!(
        "a byte order mark, lone carriage returns or mixed line ends, in {}",
        format_count(number as u64, "place")
    );
    let draft = Draft::new(RuleId::BadEncoding, message)
        .severity(Severity::Warning)
        .at(places);
    if !document.is_baseline() || number > MAX_FIXED_PLACES {
        drafts.push(draft);
        return;
    }
    let marks = (!marks.is_empty()).then(|| (marks, String::new()));
    let returns = wrong().map(|(at, kind)| {
        let text = match kind {
            CarriageReturn::Lone => "\n",
            CarriageReturn::OfLineEnd => "",
        };
        (at..at + 1, text.to_string())
    });
    drafts.push(draft.safe_fix(marks.into_iter().chain(returns).collect()));
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
            places.count("line")
        );
        drafts.push(Draft::new(RuleId::HugeLine, message).at(places));
    }
}
