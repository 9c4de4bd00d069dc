//! Rules about the separator (401 to 403) and disguised boundaries (MS706).

use super::document::{Document, TextRole};
use super::finding::{Draft, Places};
use super::fix::{line_end, normalize_line_ends};
use super::rule::{RuleId, Severity};
use super::structure::SCRATCH_HEADING;
use super::words::{pattern_in_any_case, patterns};
use super::{Context, Drafts};
use crate::base::quantity::{describe_size, format_count};
use crate::boundary::{LineKind, SeparatorLines};

/// Characters of a footer behind the last separator; more text is content.
const MAX_FOOTER_CHARS: usize = 300;
/// Number of lines below a lookalike in which the heading of a protected section makes it a spoof.
const SPOOF_LINES: usize = 6;
/// Characters that look like the dashes of a separator.
const LOOKALIKE_DASHES: &str = "—–‐‑‒―＿";

patterns! {
    PROTECTED_HEADING = pattern_in_any_case(
        r"^\W*(?:(?:my|the|new|updated|critical|core|hard)[ \t]+){0,2}(?:rules|boundaries|autonomy|who i am|identity|red lines)\W*(?:\(.*)?$"
    );
}

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    match context.document.role {
        TextRole::Baseline => {
            check_missing_in_baseline(context, drafts);
            check_several(context.document, drafts);
            check_tail(context.document, drafts);
        }
        TextRole::Memory { .. } => check_memory(context, drafts),
        TextRole::Scratch => {}
    }
    check_spoofs(context, drafts);
}

fn check_missing_in_baseline(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    if !document.separators.eligible.is_empty() || !context.settings.is_shared {
        return;
    }
    let separator = context.input.separator;
    let mut message = format!(
        "no separator line {separator}: the memory is overwritten whole at every reset; notes \
         below it are archived, and only a push keeps them"
    );
    add_excluded_line(&mut message, document);
    let draft = Draft::new(RuleId::SeparatorMissing, message);
    // A baseline that is in use without a separator may be meant so.
    let is_draft = context.facts().earlier_version().is_none() && !document.text.is_empty();
    let added = added_separator(document.text, separator);
    drafts.push(
        if is_draft && can_take_separator(document.text, &added, separator) {
            let end = document.text.len();
            draft.safe_fix(vec![(end..end, added)])
        } else {
            draft
        },
    );
}

/// Adds which line equals the separator and is none, and why.
fn add_excluded_line(message: &mut String, document: &Document<'_>) {
    if let Some(excluded) = document.separators.excluded.last() {
        message.push_str(&format!("; {excluded}, so it is not a separator"));
    }
}

/// Returns the text that puts a separator line at the end of a text.
fn added_separator(text: &[u8], separator: &str) -> String {
    let line_end = line_end(text);
    let missing = if text.ends_with(b"\n") { "" } else { line_end };
    format!("{missing}{line_end}{separator}{line_end}")
}

/// Whether a separator that is added at the end of a text is one, also once the line ends are
/// corrected, and no other line equals it.
fn can_take_separator(text: &[u8], added: &str, separator: &str) -> bool {
    let mut text = normalize_line_ends(text);
    text.extend_from_slice(added.as_bytes());
    let found = SeparatorLines::find(&text, separator.as_bytes());
    found.excluded.is_empty() && matches!(found.eligible[..], [only] if only.end == text.len())
}

fn check_several(document: &Document<'_>, drafts: &mut Drafts) {
    let lines = &document.separators.eligible;
    let Some(last) = lines.last().filter(|_| lines.len() > 1) else {
        return;
    };
    let number = lines.len();
    let message = format!(
        "{number} lines match the separator; the boundary is line {}",
        last.line
    );
    let is_early = last.start * 5 < document.text.len();
    let severity = if is_early {
        Severity::Warning
    } else {
        Severity::Info
    };
    drafts.push(
        Draft::new(RuleId::SeparatorAmbiguous, message)
            .severity(severity)
            .at(separator_places(document, last.line)),
    );
}

/// Returns the places of the lines that match the separator, of which one is the boundary.
fn separator_places(document: &Document<'_>, boundary_line: usize) -> Places {
    let mut places = Places::default();
    for line in &document.separators.eligible {
        let label = if line.line == boundary_line {
            "the boundary"
        } else {
            "also matches"
        };
        places.add(document.line_range(line.line - 1), label);
    }
    places
}

/// Checks the text of a baseline behind its last separator, which resets install as scratch.
fn check_tail(document: &Document<'_>, drafts: &mut Drafts) {
    let Some(last) = document.separators.boundary() else {
        return;
    };
    let tail = last.end..document.text.len();
    let headings = document.headings.iter();
    let foreign = headings.filter(|it| {
        it.text.start >= tail.start && !SCRATCH_HEADING.is_match(document.bytes(&it.text))
    });
    let foreign = foreign.count();
    let lines = (0..document.lines.len()).filter(|index| {
        let line = &document.lines[*index];
        let is_scratch_heading =
            line.kind == LineKind::Heading && SCRATCH_HEADING.is_match(document.line_text(*index));
        line.start >= tail.start && line.kind != LineKind::Blank && !is_scratch_heading
    });
    let lines: Vec<usize> = lines.collect();
    let (Some(first), Some(end)) = (lines.first(), lines.last()) else {
        return;
    };
    let range = document.lines[*first].start..document.line_range(*end).end;
    let chars = document.lossy(&range).chars().count();
    let severity = if foreign > 0 || chars > MAX_FOOTER_CHARS {
        Severity::Error
    } else {
        Severity::Warning
    };
    let share = match range.len() * 100 / document.text.len().max(1) {
        0 => "less than 1 %".to_string(),
        percent => format!("{percent} %"),
    };
    let message = format!(
        "{share} of this baseline ({}, {}) lies below its last separator and is not protected",
        describe_size(range.len() as u64),
        format_count(foreign as u64, "heading")
    );
    drafts.push(
        Draft::new(RuleId::TextAfterSeparator, message)
            .severity(severity)
            .at_range(range, "not protected"),
    );
}

fn check_memory(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    let Some(drift) = &context.facts().drift else {
        return;
    };
    if drift.is_separator_missing {
        let mut message = "the separator of the baseline is gone: a reset archives and replaces \
                           the whole file"
            .to_string();
        add_excluded_line(&mut message, document);
        drafts.push(Draft::new(RuleId::SeparatorMissing, message).severity(Severity::Error));
    }
    let places = separator_places(document, drift.separator_line);
    if drift.separator_line > 0 && places.len() > 1 {
        let message = format!(
            "{} lines match the separator; line {} is the boundary, because the lines above it \
             differ least from the baseline",
            places.len(),
            drift.separator_line
        );
        drafts.push(
            Draft::new(RuleId::SeparatorAmbiguous, message)
                .severity(Severity::Warning)
                .at(places),
        );
    }
}

/// Finds lines that pass for a separator, and protected headings among the notes.
pub(super) fn check_spoofs(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    let judged = document.judged_range();
    let mut disguised = Places::default();
    if !document.text.is_ascii() {
        for index in 0..document.lines.len() {
            let range = document.line_range(index);
            if range.start >= judged.start && !document.is_fenced(index) {
                let text = document.bytes(&range);
                if is_hidden_separator(text, context.input.separator) {
                    disguised.add(range, "a separator with invisible characters");
                } else if is_lookalike(text) && has_protected_heading_below(document, index) {
                    disguised.add(range, "looks like a separator");
                }
            }
        }
    }
    let is_spoofed = !disguised.is_empty();
    if is_spoofed {
        let message = format!("{} disguised as a separator", disguised.count("line"));
        drafts.push(Draft::new(RuleId::BoundarySpoof, message).at(disguised));
    }
    let scratch = document.scratch_range();
    let mut headings = Places::default();
    for heading in document
        .headings
        .iter()
        .filter(|it| scratch.contains(&it.text.start))
    {
        if PROTECTED_HEADING.is_match(document.bytes(&heading.text)) {
            headings.add(heading.text.clone(), "belongs above the separator");
        }
    }
    if !headings.is_empty() && !is_spoofed {
        let message = "the heading of a protected section stands among the notes";
        drafts.push(
            Draft::new(RuleId::BoundarySpoof, message)
                .severity(Severity::Warning)
                .at(headings),
        );
    }
}

/// Whether a line is the separator once characters without width are removed, and not before.
fn is_hidden_separator(line: &[u8], separator: &str) -> bool {
    let Ok(text) = str::from_utf8(line) else {
        return false;
    };
    let is_hidden = |c: char| {
        matches!(
            c,
            '\u{200B}'..='\u{200F}' | '\u{2060}' | '\u{FEFF}' | '\u{AD}' | '\u{34F}'
        )
    };
    text.contains(is_hidden) && text.replace(is_hidden, "").trim_end() == separator
}

fn is_lookalike(line: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(line) else {
        return false;
    };
    let text = text.trim();
    text.chars().count() >= 3
        && text
            .chars()
            .all(|c| LOOKALIKE_DASHES.contains(c) || c == '-')
        && !text.is_ascii()
}

/// Whether the heading of a protected section follows closely. A text may consist of lookalikes and
/// headings, so the headings, which are in the order of their lines, are not searched from the first.
fn has_protected_heading_below(document: &Document<'_>, index: usize) -> bool {
    let headings = &document.headings;
    let first = headings.partition_point(|it| it.line <= index);
    let mut near = headings[first..]
        .iter()
        .take_while(|it| it.line <= index + SPOOF_LINES);
    near.any(|it| PROTECTED_HEADING.is_match(document.bytes(&it.text)))
}
