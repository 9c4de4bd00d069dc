//! Rules about phrases that an attacker would write (701, 702, 705, 714, 715). They detect and do not
//! prevent: a paraphrase escapes them.

use std::ops::Range;

use super::document::{Document, TextLanguage, Zone};
use super::finding::{Draft, Places};
use super::rule::{RuleId, Severity};
use super::suppression::IGNORE_COMMENT;
use super::words::{WordList, Words, pattern_in_any_case, patterns};
use super::{Context, Drafts};
use crate::boundary::LineKind;

/// Number of bytes before a phrase in which a negation turns it into a warning about itself.
const NEGATION_BYTES: usize = 30;

patterns! {
    NEGATION = pattern_in_any_case(r"\b(?:never|not|don't)\b");
    SECRECY = pattern_in_any_case(concat!(
        r"\b(?:do not|don't|never|must not|without|avoid)[ \t]+(?:ever[ \t]+)?(?:tell|telling|inform|informing|notify|notifying|alert|alerting|let|letting)[ \t]+(?:the |your |my |our |any )?(?:human )?(?P<one>operators?|admins?|administrators?|owners?|supervisors?|maintainers?|users?)\b",
        r"|\b(?:do not|don't|never|must not|without|avoid)[ \t]+(?:ever[ \t]+)?(?:mention|mentioning|report|reporting|reveal|revealing|disclose|disclosing|show|showing)[ \t]+(?:this|that|it|these|any of this|any of it)\b[^.\n]{0,30}?[ \t]to[ \t]+(?:the |your |my |our |any )?(?:human )?(?P<two>operators?|admins?|administrators?|owners?|supervisors?|maintainers?|users?)\b",
        r"|\b(?:hide|conceal|keep|hidden|secret)\b[^.\n]{0,40}\bfrom[ \t]+(?:the |your |my |our |any )?(?:human )?(?P<three>operators?|admins?|administrators?|owners?|supervisors?|maintainers?|users?)\b",
        r"|\b(?P<four>operators?|admins?|administrators?|owners?|supervisors?|maintainers?|users?)[ \t]+(?:must|should|need|may|can)(?:[ \t]+not|n't|[ \t]+never)[ \t]+(?:know|learn|see|find out|be told|hear)\b",
    ));
    SECRECY_LIMIT = pattern_in_any_case(r"\b(?:before|until|unless|instead|again|twice|yet|more than|directly)\b");
}

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    check_override(document, drafts);
    check_authority(document, drafts);
    check_secrecy(document, drafts);
    check_standing_orders(document, drafts);
    check_waivers(document, drafts);
}

/// Whether a line has both a trigger and an action.
pub(super) fn is_standing_order(line: &[u8], words: &Words) -> bool {
    let has = |list| words.pattern(list).is_match(line);
    has(WordList::Triggers) && has(WordList::Actions)
}

/// Whether text is quoted: in a fence, a block quote, a code span or quotation marks.
pub(super) fn is_quoted(document: &Document<'_>, range: &Range<usize>) -> bool {
    let line = document.line_at(range.start);
    let before = document.line_before(range.start);
    let is_open = |mark: u8| before.iter().filter(|byte| **byte == mark).count() % 2 == 1;
    let last = |mark: &str| {
        let mut parts = before.windows(mark.len());
        parts.rposition(|it| it == mark.as_bytes())
    };
    document.is_fenced(line)
        || document.lines[line].kind == LineKind::Quote
        || before.trim_ascii_start().starts_with(b">")
        || is_open(b'`')
        || is_open(b'"')
        || !before.is_ascii()
            && (last("“") > last("”")
                || last("„") > last("“").max(last("”"))
                || last("«") > last("»"))
}

/// Whether a negation stands closely before an offset.
fn is_negated(document: &Document<'_>, offset: usize) -> bool {
    let before = document.line_before(offset);
    let near = &before[before.len().saturating_sub(NEGATION_BYTES)..];
    NEGATION.is_match(near)
}

/// Returns the ranges of a pattern in the judged part.
fn find_all<'d>(
    document: &'d Document<'_>,
    list: WordList,
) -> impl Iterator<Item = Range<usize>> + 'd {
    let judged = document.judged_range();
    let pattern = document.words.pattern(list);
    let found = pattern.find_iter(&document.text[judged.clone()]);
    found.map(move |it| judged.start + it.start()..judged.start + it.end())
}

/// Returns whether bytes contain a phrase that overrides instructions.
pub(super) fn has_override_phrase(text: &[u8], words: &Words) -> bool {
    let has = |list| words.pattern(list).is_match(text);
    has(WordList::OverrideEnglish) || has(WordList::OverrideAnyLanguage)
}

fn check_override(document: &Document<'_>, drafts: &mut Drafts) {
    let is_english = document.language == TextLanguage::English;
    let english = is_english.then(|| find_all(document, WordList::OverrideEnglish));
    let ranges = english.into_iter().flatten();
    let mut places = Places::default();
    let mut severity = Severity::Warning;
    for range in ranges.chain(find_all(document, WordList::OverrideAnyLanguage)) {
        if is_quoted(document, &range) || is_negated(document, range.start) {
            places.add(range, "quoted or negated");
        } else {
            severity = Severity::Error;
            places.add(range, "drops instructions");
        }
    }
    if let Some((first, _)) = places
        .list
        .iter()
        .min_by_key(|(range, label)| (label.starts_with("quoted"), !document.is_on_new_line(range)))
    {
        let message = format!("text that drops instructions: {}", document.quote(first));
        drafts.push(
            Draft::new(RuleId::OverridePhrase, message)
                .severity(severity)
                .at(places),
        );
    }
}

fn check_authority(document: &Document<'_>, drafts: &mut Drafts) {
    let mut places = Places::default();
    for range in find_all(document, WordList::Authority) {
        let is_link = document.text.get(range.end) == Some(&b'(');
        if !is_link && !is_quoted(document, &range) && !is_negated(document, range.start) {
            places.add(range, "claims authority");
        }
    }
    let scratch = document.scratch_range();
    let comments = document.text[scratch.clone()].windows(IGNORE_COMMENT.len());
    for (at, _) in comments.enumerate().filter(|(_, it)| *it == IGNORE_COMMENT) {
        let start = scratch.start + at;
        places.add(start..start + IGNORE_COMMENT.len(), "suppresses findings");
    }
    let what = "text that claims to speak for the operator";
    drafts.extend(Draft::quoting(
        RuleId::AuthoritySpoof,
        what,
        places,
        document,
    ));
}

fn check_secrecy(document: &Document<'_>, drafts: &mut Drafts) {
    let judged = document.judged_range();
    let mut places = Places::default();
    let mut severity = Severity::Warning;
    for found in SECRECY.captures_iter(&document.text[judged.clone()]) {
        let whole = found.get_match().range();
        let range = judged.start + whole.start..judged.start + whole.end;
        let behind = document.line_after(range.end);
        let sentence = behind
            .split(|byte| *byte == b'.')
            .next()
            .unwrap_or_default();
        let is_limited = SECRECY_LIMIT.is_match(sentence) || sentence.contains(&b'"');
        if is_limited || is_quoted(document, &range) {
            continue;
        }
        let groups = ["one", "two", "three", "four"];
        let who = groups.iter().find_map(|name| found.name(name));
        let is_user = who.is_some_and(|it| it.as_bytes().to_ascii_lowercase().starts_with(b"user"));
        if !is_user {
            severity = Severity::Error;
        }
        places.add(range, "keeps someone in the dark");
    }
    let what = "keeps someone in the dark";
    let draft = Draft::quoting(RuleId::Secrecy, what, places, document);
    drafts.extend(draft.map(|it| it.severity(severity)));
}

fn check_standing_orders(document: &Document<'_>, drafts: &mut Drafts) {
    let scratch = document.scratch_range();
    let mut places = Places::default();
    let mut last_line = None;
    let trigger = document.words.pattern(WordList::Triggers);
    let action = document.words.pattern(WordList::Actions);
    for found in trigger.find_iter(&document.text[scratch.clone()]) {
        let line = document.line_at(scratch.start + found.start());
        // One look at a line is enough, however many triggers it has.
        if last_line.replace(line) == Some(line) {
            continue;
        }
        if document.is_prose(line) && action.is_match(document.line_text(line)) {
            places.add(document.line_range(line), "an order for later sessions");
        }
    }
    if !places.is_empty() {
        let number = places.count("standing order");
        let message = format!("{number} among the notes");
        drafts.push(Draft::new(RuleId::StandingOrder, message).at(places));
    }
}

fn check_waivers(document: &Document<'_>, drafts: &mut Drafts) {
    let mut places = Places::default();
    for range in find_all(document, WordList::Waivers) {
        let is_scratch = document.zone_of(&range) == Zone::Scratch;
        if is_scratch && !is_quoted(document, &range) {
            places.add(range, "declares a rule void");
        }
    }
    let what = "a note lifts a rule";
    drafts.extend(Draft::quoting(RuleId::RuleWaiver, what, places, document));
}
