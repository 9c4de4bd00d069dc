//! Rules about what the sentences say: vague and repeated rules, pasted text, status and logs (3xx,
//! 406, 411, 412).

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use super::document::{Document, Item};
use super::finding::{Draft, Places};
use super::rule::RuleId;
use super::structure::rules_heading;
use super::words::{WordList, pattern, pattern_in_any_case, patterns};
use super::{Context, Drafts};
use crate::boundary::LineKind;

/// Sizes from which text is probably pasted.
const MAX_FENCE_LINES: usize = 40;
const MAX_TABLE_ROWS: usize = 30;
const MAX_PARAGRAPH_CHARS: usize = 1500;
/// Least number of words of an item that can repeat another.
const MIN_REPEATED_WORDS: usize = 5;
/// Longest `**Label:** value` item that may resemble others, in words.
const MAX_LABEL_WORDS: usize = 8;
/// Least share of common pairs of words of two items that say the same.
const MIN_SIMILARITY: f64 = 0.8;
/// Number of items above which a pair of words tells nothing.
const MAX_ITEMS_OF_A_PAIR: usize = 8;
/// Number of earlier items that an item is compared with: those that have most pairs in common.
const MAX_COMPARED_ITEMS: usize = 8;
/// Number of headings with a date from which a file is a log.
const MIN_DATED_HEADINGS: usize = 3;
/// Number of speaker lines from which notes are a transcript.
const MIN_SPEAKER_LINES: usize = 4;

patterns! {
    /// Group 1 is the name of a file.
    FILE_EDIT = pattern_in_any_case(
        r"\b(?:update|edit|write to|add to)[ \t]+[`*]{0,3}([\w.-]+\.\w+)"
    );
    NEGATION = pattern_in_any_case(r"\b(?:never|not|don't|cannot|can't|without|no)\b");
    BELOW = pattern_in_any_case(r"\b(?:below|under|scratch)\b");
    STATUS_REFERENCE = pattern_in_any_case(r"^[ \t]*(?:file|codes?|page|verification|map|analysis)\b");
    TICKED_BOX = pattern(r"^[ \t]*[-*+][ \t]+\[[xX]\][ \t]");
    DATE = pattern(
        r"20\d\d-\d\d-\d\d|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* \d{1,2}, 20\d\d|20\d\d(?:年|/|\.)\d{1,2}"
    );
    SPEAKER = pattern_in_any_case(r"^(?:\*\*)?(?:user|assistant|human)(?:\*\*)?:(?:\*\*)?\s");
}

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    if document.is_baseline() {
        check_vague_rules(document, drafts);
        check_pasted_text(document, drafts);
        check_repeated_items(document, drafts);
        check_self_edit(context, drafts);
        check_stale_status(document, drafts);
        check_dated_headings(document, drafts);
    }
    check_transcript(document, drafts);
}

fn check_vague_rules(document: &Document<'_>, drafts: &mut Drafts) {
    let Some(section) = rules_heading(document) else {
        return;
    };
    let lines = document.section_lines(section);
    let vague = document.words.pattern(WordList::VaguePhrases);
    let mut places = Places::default();
    for item in document.items.iter().filter(|it| lines.contains(&it.line)) {
        let text = document.bytes(&item.text);
        let is_concrete = |byte: &u8| {
            byte.is_ascii_digit() || matches!(byte, b'`' | b'/' | b'"' | b'#' | b'@' | b'<')
        };
        if text.iter().any(is_concrete) {
            continue;
        }
        if let Some(phrase) = vague.find(text) {
            let start = item.text.start + phrase.start();
            places.add(start..start + phrase.len(), "cannot be checked");
        }
    }
    if !places.is_empty() {
        let message = format!("{} without a test", places.count("rule"));
        drafts.push(Draft::new(RuleId::VagueRule, message).at(places));
    }
}

fn check_pasted_text(document: &Document<'_>, drafts: &mut Drafts) {
    let mut places = Places::default();
    let mut run_start = 0;
    let kinds = document.lines.iter().map(|line| match line.kind {
        LineKind::FenceStart | LineKind::Fenced => Some(LineKind::Fenced),
        LineKind::TableRow => Some(LineKind::TableRow),
        _ => None,
    });
    let kinds: Vec<Option<LineKind>> = kinds.chain([None]).collect();
    for index in 1..kinds.len() {
        let starts_fence = document
            .lines
            .get(index)
            .is_some_and(|line| line.kind == LineKind::FenceStart);
        if kinds[index] == kinds[index - 1] && !starts_fence {
            continue;
        }
        let length = index - run_start;
        let range = document.lines[run_start].start..document.line_range(index - 1).end;
        // A fence that is open at the end of the file has one line of marks.
        let is_open = document.open_fence_line == Some(run_start + 1);
        let code_lines = length.saturating_sub(if is_open { 1 } else { 2 });
        match kinds[index - 1] {
            Some(LineKind::Fenced) if code_lines > MAX_FENCE_LINES => {
                places.add(range, format!("a code block of {code_lines} lines"));
            }
            // The rows of the heading do not count; the scanner tells only the second one apart.
            Some(LineKind::TableRow) if length > MAX_TABLE_ROWS + 1 => {
                places.add(range, format!("a table of {} rows", length - 1));
            }
            _ => {}
        }
        run_start = index;
    }
    for (_, range) in document.paragraphs() {
        let chars = document.lossy(&range).chars().count();
        if chars > MAX_PARAGRAPH_CHARS {
            places.add(range, format!("a paragraph of {chars} characters"));
        }
    }
    if !places.is_empty() {
        let message = format!("{} for a document of its own", places.count("part"));
        drafts.push(Draft::new(RuleId::PastedReference, message).at(places));
    }
}

/// A list item, prepared for the comparison with others.
struct ComparedItem {
    line: usize,
    text: Range<usize>,
    words: Vec<String>,
    pairs: HashSet<u64>,
    /// `✅` and `❌` in it: an example and a counterexample are alike.
    marks: (bool, bool),
}

impl ComparedItem {
    fn new(document: &Document<'_>, item: &Item) -> Option<ComparedItem> {
        let text = document.lossy(&item.text);
        let words: Vec<String> = text
            .split_whitespace()
            .map(|word| word.replace(['*', '_', '`'], "").to_lowercase())
            .filter(|word| !word.is_empty())
            .collect();
        let is_label = text.starts_with("**") && text.contains(":**");
        if words.len() < MIN_REPEATED_WORDS || is_label && words.len() <= MAX_LABEL_WORDS {
            return None;
        }
        let pairs = words.windows(2).map(|pair| {
            let mut hasher = DefaultHasher::new();
            pair.hash(&mut hasher);
            hasher.finish()
        });
        Some(ComparedItem {
            line: item.line,
            text: item.text.clone(),
            pairs: pairs.collect(),
            marks: (text.contains('✅'), text.contains('❌')),
            words,
        })
    }

    fn repeats(&self, other: &ComparedItem) -> bool {
        if self.marks != other.marks {
            return false;
        }
        let common = self.pairs.intersection(&other.pairs).count();
        let all = self.pairs.len() + other.pairs.len() - common;
        self.words == other.words || common as f64 >= all as f64 * MIN_SIMILARITY
    }
}

/// Finds items that repeat earlier ones, by the pairs of words that they have in common.
fn check_repeated_items(document: &Document<'_>, drafts: &mut Drafts) {
    let items = document.items.iter();
    let items: Vec<ComparedItem> = items
        .filter_map(|item| ComparedItem::new(document, item))
        .collect();
    let mut items_by_pair: HashMap<u64, Vec<usize>> = HashMap::new();
    // Each run of items that repeat a run of earlier ones, as (later, earlier, length).
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let mut candidates: Vec<usize> = Vec::new();
        for pair in &item.pairs {
            let others = items_by_pair.entry(*pair).or_default();
            candidates.extend(others.iter());
            if others.len() < MAX_ITEMS_OF_A_PAIR {
                others.push(index);
            }
        }
        let candidates = most_frequent(candidates);
        let repeated = candidates.into_iter().find(|it| item.repeats(&items[*it]));
        match (repeated, runs.last_mut()) {
            (Some(earlier), Some((later, first, length)))
                if index == *later + *length && earlier == *first + *length =>
            {
                *length += 1;
            }
            (Some(earlier), _) => runs.push((index, earlier, 1)),
            (None, _) => {}
        }
    }
    let mut places = Places::default();
    for (later, earlier, length) in &runs {
        let range = items[*later].text.start..items[*later + *length - 1].text.end;
        let (first, last) = (items[*earlier].line, items[*earlier + *length - 1].line);
        places.add(
            range,
            match length {
                1 => format!("repeats line {}", first + 1),
                _ => format!("repeats lines {} to {}", first + 1, last + 1),
            },
        );
    }
    let Some((range, label)) = places.list.first() else {
        return;
    };
    let line = document.line_at(range.start) + 1;
    let number: usize = runs.iter().map(|(.., length)| length).sum();
    let message = match number {
        1 => format!("the item of line {line} {label}"),
        _ => format!("{number} items repeat earlier ones: line {line} {label}"),
    };
    drafts.push(Draft::new(RuleId::DuplicateRule, message).at(places));
}

/// Returns the numbers that stand most often in a list, ascending.
fn most_frequent(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    let equal = numbers.chunk_by(|one, other| one == other);
    let mut counted: Vec<(usize, usize)> = equal.map(|it| (it.len(), it[0])).collect();
    counted.sort_by_key(|(count, number)| (Reverse(*count), *number));
    let most = counted.into_iter().take(MAX_COMPARED_ITEMS);
    let mut most: Vec<usize> = most.map(|(_, number)| number).collect();
    most.sort_unstable();
    most
}

fn check_self_edit(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    let end = document.end_of_rules();
    let name = context.input.path.rsplit('/').next().unwrap_or_default();
    let is_own_name = |it: &[u8]| {
        // The baseline `scout-MEMORY.md` becomes the memory `MEMORY.md`.
        let short = name.rsplit('-').next().unwrap_or_default();
        it.eq_ignore_ascii_case(name.as_bytes()) || it.eq_ignore_ascii_case(short.as_bytes())
    };
    let edits = FILE_EDIT.captures_iter(document.text).filter_map(|it| {
        let file = it.get(1)?;
        is_own_name(file.as_bytes()).then(|| it.get_match().range())
    });
    let invitations = document
        .words
        .pattern(WordList::SelfEdits)
        .find_iter(document.text)
        .map(|it| it.range());
    let mut places = Places::default();
    for range in invitations.chain(edits) {
        let line = document.line_at(range.start);
        let is_about_notes = BELOW.is_match(document.line_after(range.end));
        let is_forbidden = NEGATION.is_match(document.line_before(range.start));
        if range.start < end && document.is_prose(line) && !is_about_notes && !is_forbidden {
            places.add(range, "invites the agent to edit");
        }
    }
    if !places.is_empty() {
        let message = "tells the agent to change what the next reset restores";
        drafts.push(Draft::new(RuleId::SelfEditInvitation, message).at(places));
    }
}

fn check_stale_status(document: &Document<'_>, drafts: &mut Drafts) {
    let status = document.words.pattern(WordList::StatusHeadings);
    let mut places = Places::default();
    for heading in &document.headings {
        let text = document.bytes(&heading.text);
        let Some(found) = status.find(text) else {
            continue;
        };
        if !STATUS_REFERENCE.is_match(&text[found.end()..]) {
            places.add(heading.text.clone(), "a status");
        }
    }
    for index in 0..document.lines.len() {
        if document.lines[index].kind == LineKind::ListItem
            && TICKED_BOX.is_match(document.line_text(index))
        {
            places.add(document.line_range(index), "a finished task");
        }
    }
    if !places.is_empty() {
        let number = places.count("line");
        let message = format!("{number} of a status that every reset brings back");
        drafts.push(Draft::new(RuleId::StaleStatus, message).at(places));
    }
}

fn check_dated_headings(document: &Document<'_>, drafts: &mut Drafts) {
    let mut places = Places::default();
    for heading in &document.headings {
        if DATE.is_match(document.bytes(&heading.text)) {
            places.add(heading.text.clone(), "has a date");
        }
    }
    if places.len() >= MIN_DATED_HEADINGS {
        let message = format!("{} have a date: this is a log", places.count("heading"));
        drafts.push(Draft::new(RuleId::DatedLog, message).at(places));
    }
}

fn check_transcript(document: &Document<'_>, drafts: &mut Drafts) {
    let scratch = document.scratch_range();
    let mut places = Places::default();
    for found in SPEAKER.find_iter(&document.text[scratch.clone()]) {
        let start = scratch.start + found.start();
        if !document.is_fenced(document.line_at(start)) {
            places.add(start..scratch.start + found.end(), "a speaker");
        }
    }
    if places.len() >= MIN_SPEAKER_LINES {
        let message = format!("a transcript of {}", places.count("turn"));
        drafts.push(Draft::new(RuleId::RawTranscript, message).at(places));
    }
}
