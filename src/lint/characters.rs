//! Rules about characters that do not show (707 to 709) and control sequences (712).

use std::ops::Range;

use super::document::Document;
use super::finding::{Draft, Label, Places};
use super::rule::{RuleId, Severity};
use super::secret_ranges::quotable;
use super::{Context, Drafts};
use crate::base::quantity::format_count;

/// Number of characters without width in a row from which they hide a message.
const MIN_HIDDEN_RUN: usize = 4;
/// Number of variation selectors in a row from which they hide a message.
const MIN_SELECTOR_RUN: usize = 4;
/// Number of tag characters of the longest flag.
const MAX_FLAG_TAGS: usize = 7;

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    let judged = document.judged_range();
    // Every entry is checked in each reset, and hardly any has such a character.
    let mut chunks = document.text[judged.clone()].utf8_chunks();
    if !chunks.any(|chunk| chunk.valid().chars().any(is_suspect)) {
        return;
    }
    let characters = characters(document.text, judged);
    check_zero_width(document, characters.clone(), drafts);
    let is_right_to_left = context.settings.is_right_to_left;
    check_directions(document, characters.clone(), is_right_to_left, drafts);
    check_tags(document, characters.clone(), drafts);
    check_controls(document, characters, drafts);
}

/// Whether a rule of this file is about a character.
fn is_suspect(c: char) -> bool {
    let is_plain = matches!(c, ' '..='~' | '\n' | '\r' | '\t');
    !is_plain
        && (c.is_control()
            || is_zero_width(c)
            || is_direction_mark(c)
            || is_tag(c)
            || is_variation_selector(c))
}

/// Returns the characters of a range with their offsets; bytes that are not UTF-8 are left out.
fn characters(
    text: &[u8],
    range: Range<usize>,
) -> impl Iterator<Item = (usize, char)> + Clone + use<'_> {
    let start = range.start;
    let chunks = text[range].utf8_chunks().scan(start, |at, chunk| {
        let start = *at;
        *at += chunk.valid().len() + chunk.invalid().len();
        Some((start, chunk.valid()))
    });
    chunks.flat_map(|(start, valid)| {
        let characters = valid.char_indices();
        characters.map(move |(offset, c)| (start + offset, c))
    })
}

fn range_of((at, c): (usize, char)) -> Range<usize> {
    at..at + c.len_utf8()
}

/// Names a character, such as U+200B.
fn code_point(c: char) -> Label {
    format!("U+{:04X}", u32::from(c)).into()
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

fn check_zero_width(
    document: &Document<'_>,
    mut characters: impl Iterator<Item = (usize, char)> + Clone,
    drafts: &mut Drafts,
) {
    let mut places = Places::default();
    let (mut run, mut longest_run) = (0, 0);
    let mut before = None;
    while let Some((at, c)) = characters.next() {
        // A byte order mark is a matter of encoding.
        let is_byte_order_mark = at == 0 && c == '\u{FEFF}';
        let is_in_place = || {
            let after = characters.clone().next().map(|(_, c)| c);
            is_joiner_in_place(before, c, after)
        };
        if is_zero_width(c) && !is_byte_order_mark && !is_in_place() {
            places.add_character(document, range_of((at, c)), || code_point(c));
            run += 1;
            longest_run = longest_run.max(run);
        } else {
            run = 0;
        }
        before = Some(c);
    }
    if places.is_empty() {
        return;
    }
    let number = places.count("character");
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

fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{61C}')
}

fn check_directions(
    document: &Document<'_>,
    characters: impl Iterator<Item = (usize, char)>,
    is_right_to_left: bool,
    drafts: &mut Drafts,
) {
    let mut places = Places::default();
    for (at, c) in characters {
        if is_direction_mark(c) {
            places.add_character(document, range_of((at, c)), || code_point(c));
        }
    }
    if places.is_empty() {
        return;
    }
    let number = places.count("character");
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
fn check_tags(
    document: &Document<'_>,
    mut characters: impl Iterator<Item = (usize, char)> + Clone,
    drafts: &mut Drafts,
) {
    let mut places = Places::default();
    let mut hidden_text = String::new();
    let mut before = None;
    while let Some((at, c)) = characters.next() {
        let same_kind: fn(char) -> bool = match c {
            c if is_tag(c) => is_tag,
            c if is_variation_selector(c) => is_variation_selector,
            _ => {
                before = Some(c);
                continue;
            }
        };
        let mut decoded: String = decode_hidden(c).into_iter().collect();
        let (mut last, mut length) = ((at, c), 1);
        while let Some(next) = characters.clone().next().filter(|(_, c)| same_kind(*c)) {
            characters.next();
            decoded.extend(decode_hidden(next.1));
            (last, length) = (next, length + 1);
        }
        let is_flag = before == Some('\u{1F3F4}') && length <= MAX_FLAG_TAGS;
        let is_harmless = if is_tag(c) {
            is_flag
        } else {
            length < MIN_SELECTOR_RUN
        };
        if !is_harmless {
            places.add_character(document, at..range_of(last).end, || {
                format!("spells {}", quotable(decoded.as_bytes(), document.words)).into()
            });
            hidden_text.push_str(&decoded);
        }
        before = Some(last.1);
    }
    if !places.is_empty() {
        let shown = quotable(hidden_text.as_bytes(), document.words);
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

fn check_controls(
    document: &Document<'_>,
    mut characters: impl Iterator<Item = (usize, char)> + Clone,
    drafts: &mut Drafts,
) {
    let (mut colors, mut others) = (Places::default(), Places::default());
    while let Some((at, c)) = characters.next() {
        match c {
            '\x1B' if characters.clone().next().is_some_and(|(_, c)| c == '[') => {
                let mut end = at + 2;
                let mut parameters = characters.clone().skip(1);
                let is_parameter = |c: char| matches!(c, '0'..='9' | ';' | ':');
                let last = parameters.find(|(_, c)| !is_parameter(*c));
                if let Some(last) = last {
                    end = range_of(last).end;
                }
                if last.is_some_and(|(_, c)| c == 'm') {
                    colors.add_character(document, at..end, || "a colour".into());
                } else {
                    others.add_character(document, at..end, || "a control sequence".into());
                }
            }
            '\x1B' | '\u{90}' | '\u{98}' | '\u{9B}' | '\u{9D}' | '\u{9E}' | '\u{9F}' => {
                let range = range_of((at, c));
                others.add_character(document, range, || "a control sequence".into());
            }
            '\x07' | '\x08' => {
                let range = range_of((at, c));
                others.add_character(document, range, || "a control character".into());
            }
            _ => {}
        }
    }
    let (severity, what) = if others.is_empty() {
        (Severity::Warning, "colour sequence")
    } else {
        (Severity::Error, "control sequence")
    };
    let number = colors.len() + others.len();
    others.append(colors);
    if number > 0 {
        let message = format!("{} of terminals", format_count(number as u64, what));
        drafts.push(
            Draft::new(RuleId::TerminalControl, message)
                .severity(severity)
                .at(others),
        );
    }
}
