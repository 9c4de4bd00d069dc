//! Rules about characters that do not show (707 to 709) and control sequences (712).

use std::ops::Range;

use super::document::Document;
use super::finding::{Draft, Places, count};
use super::rule::{RuleId, Severity};
use super::secret_ranges::quotable;
use super::words::Words;
use super::{Context, Drafts};

/// Number of characters without width in a row from which they hide a message.
const MIN_HIDDEN_RUN: usize = 4;
/// Number of variation selectors in a row from which they hide a message.
const MIN_SELECTOR_RUN: usize = 4;
/// Number of tag characters of the longest flag.
const MAX_FLAG_TAGS: usize = 7;

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    let judged = document.judged_range();
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t');
    if document.text[judged.clone()].iter().all(is_plain) {
        return;
    }
    let characters = characters(document, judged);
    check_zero_width(&characters, drafts);
    check_directions(&characters, context.settings.is_right_to_left, drafts);
    check_tags(&characters, document.words, drafts);
    check_controls(&characters, drafts);
}

/// Returns the characters of a range with their offsets; bytes that are not UTF-8 are left out.
fn characters(document: &Document<'_>, range: Range<usize>) -> Vec<(usize, char)> {
    let mut found = Vec::new();
    let mut at = range.start;
    for chunk in document.text[range].utf8_chunks() {
        let valid = chunk.valid();
        found.extend(valid.char_indices().map(|(offset, c)| (at + offset, c)));
        at += valid.len() + chunk.invalid().len();
    }
    found
}

fn range_of((at, c): (usize, char)) -> Range<usize> {
    at..at + c.len_utf8()
}

fn is_zero_width(c: char) -> bool {
    matches!(
        c,
        '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FEFF}' | '\u{AD}' | '\u{180E}' | '\u{34F}'
    )
}

/// Whether a joiner belongs between two characters: in an emoji, or in a script that joins letters.
fn is_joiner_in_place(before: Option<char>, c: char, after: Option<char>) -> bool {
    let joins = |c: char| matches!(c, '\u{600}'..='\u{8FF}' | '\u{900}'..='\u{DFF}' | '\u{F00}'..='\u{109F}' | '\u{1780}'..='\u{18AF}');
    let is_emoji = |c: char| matches!(c, '\u{2190}'..='\u{2BFF}' | '\u{1F000}'..='\u{1FAFF}' | '\u{FE0F}' | '\u{20E3}');
    let joined = before.zip(after);
    matches!(c, '\u{200C}' | '\u{200D}') && before.is_some_and(joins)
        || c == '\u{200D}' && joined.is_some_and(|(one, two)| is_emoji(one) && is_emoji(two))
}

fn check_zero_width(characters: &[(usize, char)], drafts: &mut Drafts) {
    let mut places = Places::default();
    let (mut run, mut longest_run) = (0, 0);
    for (index, (at, c)) in characters.iter().copied().enumerate() {
        let before = index.checked_sub(1).map(|it| characters[it].1);
        let after = characters.get(index + 1).map(|it| it.1);
        // A byte order mark is a matter of encoding.
        let is_byte_order_mark = at == 0 && c == '\u{FEFF}';
        if is_zero_width(c) && !is_byte_order_mark && !is_joiner_in_place(before, c, after) {
            places.add(range_of((at, c)), format!("U+{:04X}", u32::from(c)));
            run += 1;
            longest_run = longest_run.max(run);
        } else {
            run = 0;
        }
    }
    if places.is_empty() {
        return;
    }
    let number = count(places.len(), "character");
    let (severity, message) = match longest_run {
        MIN_HIDDEN_RUN.. => {
            let message = format!("{number} without width, {longest_run} of them in a row");
            (Severity::Error, message)
        }
        _ => (Severity::Warning, format!("{number} without width")),
    };
    drafts.push(
        Draft::new(RuleId::ZeroWidth, message)
            .severity(severity)
            .at(places),
    );
}

fn check_directions(characters: &[(usize, char)], is_right_to_left: bool, drafts: &mut Drafts) {
    let mut places = Places::default();
    for (at, c) in characters.iter().copied() {
        if matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{61C}') {
            places.add(range_of((at, c)), format!("U+{:04X}", u32::from(c)));
        }
    }
    if places.is_empty() {
        return;
    }
    let number = count(places.len(), "character");
    let message = format!("{number} for another direction of text");
    let severity = if is_right_to_left {
        Severity::Warning
    } else {
        Severity::Error
    };
    drafts.push(
        Draft::new(RuleId::Bidi, message)
            .severity(severity)
            .at(places),
    );
}

fn is_tag(c: char) -> bool {
    matches!(c, '\u{E0000}'..='\u{E007F}')
}

fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{FE00}'..='\u{FE0F}' | '\u{E0100}'..='\u{E01EF}')
}

/// Finds tag characters outside of flags, and long runs of variation selectors; decodes both.
fn check_tags(characters: &[(usize, char)], words: &Words, drafts: &mut Drafts) {
    let mut places = Places::default();
    let mut hidden_text = String::new();
    let mut index = 0;
    while index < characters.len() {
        let same_kind: fn(char) -> bool = match characters[index].1 {
            c if is_tag(c) => is_tag,
            c if is_variation_selector(c) => is_variation_selector,
            _ => {
                index += 1;
                continue;
            }
        };
        let run = characters[index..].iter();
        let length = run.take_while(|(_, c)| same_kind(*c)).count();
        let run = &characters[index..index + length];
        let before = index.checked_sub(1).map(|it| characters[it].1);
        let is_flag = before == Some('\u{1F3F4}') && length <= MAX_FLAG_TAGS;
        let is_harmless = if is_tag(run[0].1) {
            is_flag
        } else {
            length < MIN_SELECTOR_RUN
        };
        if !is_harmless {
            let decoded: String = run.iter().filter_map(|(_, c)| decode_hidden(*c)).collect();
            let end = range_of(run[length - 1]).end;
            places.add(
                run[0].0..end,
                format!("spells {}", quotable(decoded.as_bytes(), words)),
            );
            hidden_text.push_str(&decoded);
        }
        index += length;
    }
    if !places.is_empty() {
        let shown = quotable(hidden_text.as_bytes(), words);
        let message = format!("hidden characters that spell {shown}");
        drafts.push(Draft::new(RuleId::TagCharacters, message).at(places));
    }
}

/// Returns the byte that a tag character or variation selector stands for, as a character.
fn decode_hidden(c: char) -> Option<char> {
    let code = match c {
        '\u{E0000}'..='\u{E007F}' => u32::from(c) - 0xE0000,
        '\u{FE00}'..='\u{FE0F}' => u32::from(c) - 0xFE00,
        _ => u32::from(c) - 0xE0100 + 16,
    };
    char::from_u32(code).filter(|c| !c.is_control())
}

fn check_controls(characters: &[(usize, char)], drafts: &mut Drafts) {
    let (mut colors, mut others) = (Places::default(), Places::default());
    let mut index = 0;
    while index < characters.len() {
        let (at, c) = characters[index];
        match c {
            '\x1B' if characters.get(index + 1).is_some_and(|it| it.1 == '[') => {
                let parameters = characters[index + 2..].iter();
                let length = parameters
                    .take_while(|(_, c)| matches!(c, '0'..='9' | ';' | ':'))
                    .count();
                let last = characters.get(index + 2 + length);
                let end = last.map_or(at + 2, |it| range_of(*it).end);
                if last.is_some_and(|it| it.1 == 'm') {
                    colors.add(at..end, "a colour");
                } else {
                    others.add(at..end, "a control sequence");
                }
                index += 2 + length;
            }
            '\x1B' | '\u{90}' | '\u{98}' | '\u{9B}' | '\u{9D}' | '\u{9E}' | '\u{9F}' => {
                others.add(range_of((at, c)), "a control sequence");
                index += 1;
            }
            '\x07' | '\x08' => {
                others.add(range_of((at, c)), "a control character");
                index += 1;
            }
            _ => index += 1,
        }
    }
    let (severity, what) = if others.is_empty() {
        (Severity::Warning, "colour sequence")
    } else {
        (Severity::Error, "control sequence")
    };
    let number = colors.len() + others.len();
    others.0.extend(colors.0);
    if number > 0 {
        let message = format!("{} of terminals", count(number, what));
        drafts.push(
            Draft::new(RuleId::TerminalControl, message)
                .severity(severity)
                .at(others),
        );
    }
}
