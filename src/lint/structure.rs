//! Rules about the parts that a baseline has (2xx), and placeholders (MS305).

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::document::{Document, TextRole};
use super::finding::{Draft, Places};
use super::rule::{RuleId, Severity};
use super::words::{WordList, Words, pattern, pattern_in_any_case, patterns};
use super::{Context, Drafts};
use crate::base::quantity::format_count;
use crate::boundary::LineKind;

/// The template that this program ships.
pub const TEMPLATE: &[u8] = include_bytes!("../../baselines/example-agent-MEMORY.md");

/// Number of placeholders from which a baseline counts as an unfilled template.
pub(super) const MIN_TEMPLATE_PLACEHOLDERS: usize = 5;

/// Number of headings and lines in which the identity is looked for.
const IDENTITY_HEADINGS: usize = 8;
const IDENTITY_LINES: usize = 40;
/// Longest paragraph that can explain resets, in characters.
const MAX_MEMORY_PARAGRAPH_CHARS: usize = 600;
/// Longest heading that can be empty by mistake, in characters; a longer one is a sentence.
const MAX_EMPTY_HEADING_CHARS: usize = 60;
/// Bytes from which a baseline needs headings.
const MIN_BYTES_FOR_HEADINGS: usize = 2048;
/// Numbers of rules that a section of rules should have.
const RULE_COUNT: std::ops::RangeInclusive<usize> = 2..=15;

patterns! {
    IDENTITY_FIELD = pattern_in_any_case(r"^[ \t]*[-*]?[ \t]*\**(?:name|role)\**[ \t]*:");
    /// The heading of the scratch, with or without its marks: "Scratch Notes", or notes in another
    /// language.
    SCRATCH_HEADING = pattern_in_any_case(concat!(
        r"^\W*(?:scratch|(?:(?:my|agent|agent's|session|working|daily)[ \t]+)?(?:",
        r"notes|notizen|notities|notas|appunti|anteckningar|notater|notatki|notlar|catatan|",
        r"(?:З|з)аметки|笔记|筆記|メモ|메모|노트)\W*$)"
    ));
    PLACEHOLDER = pattern(concat!(
        r"\{(?:[A-Z][a-z]+[ ,'/-][^{}\n]*|[A-Z][a-z]+—[^{}\n]*|e\.g\.[^{}\n]*|/path[^{}\n]*)\}",
        r"|\{\{[ \t]*[A-Z][A-Z0-9_ ]*\}\}",
        r"|<(?:your|insert|enter|agent|operator)[ _-][^<>\n]{1,40}>",
        r"|\[(?:your|insert|fill in|agent name|name of)\b[^\]\n]{0,60}\]",
        r"|(?:[Ll]orem|LOREM)(?i: ipsum)",
        r"|\bYOUR_[A-Z][A-Z_]{2,}\b",
        r"|(?:^[ \t]*[-*][ \t]+|:[ \t]*\**[ \t]*|\|[ \t]*)(?:TODO|TBD|FIXME)\.?[ \t]*(?:\||$)",
    ));
}

pub(super) fn check(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    if document.is_baseline() {
        let separator = document.separators.boundary();
        let has_identity = has_identity(document);
        let has_rules = has_rules_section(document);
        let has_memory_paragraph = has_memory_paragraph(context);
        if separator.is_some() {
            if !has_identity {
                let message = "nothing near the top says what the agent is";
                let draft = Draft::new(RuleId::MissingIdentity, message);
                drafts.push(draft.offer_text(below_title(document), IDENTITY_TEXT));
            }
            if !has_rules {
                let message = "no section of rules or boundaries with a list";
                let draft = Draft::new(RuleId::MissingRules, message);
                drafts.push(draft.offer_text(below_title(document), RULES_TEXT));
            }
            if !has_memory_paragraph {
                let message = "no paragraph says that notes below the separator are archived and \
                               the rest is reset";
                let draft = Draft::new(RuleId::MissingMemorySystem, message);
                let separator = context.input.separator;
                let text = format!(
                    "*Write your own notes below the `{separator}` line only. On a schedule those \
                     notes are archived, and this file is reset to the baseline.*\n\n"
                );
                drafts.push(draft.offer_text(below_title(document), text));
            }
            check_rule_count(document, drafts);
            check_headings(document, drafts);
        }
        report_coverage(
            document,
            has_identity,
            has_rules,
            has_memory_paragraph,
            drafts,
        );
        check_placeholders(document, drafts);
    }
    check_open_fence(context, drafts);
}

/// Text that is offered where a part is missing.
const IDENTITY_TEXT: &str = "## Who I Am\n\nI am <your agent name>, <your agent's job>.\n\n";
const RULES_TEXT: &str = "## Critical Rules\n\n- <your rule that a log can prove>\n\n";

/// Returns the offset of the first line with text below the title.
fn below_title(document: &Document<'_>) -> usize {
    let first = document.headings.first().map_or(0, |it| it.body_start);
    let mut lines = document.lines[first..].iter();
    let line = lines.find(|line| line.kind != LineKind::Blank);
    line.map_or(document.text.len(), |line| line.start)
}

fn has_identity(document: &Document<'_>) -> bool {
    let mut headings = document.headings.iter().take(IDENTITY_HEADINGS);
    let identity = document.words.pattern(WordList::IdentityHeadings);
    if headings.any(|it| identity.is_match(document.bytes(&it.text))) {
        return true;
    }
    let is_identity = |index: usize| {
        let line = document.line_text(index);
        find_name(line, document.words).is_some() || IDENTITY_FIELD.is_match(line)
    };
    (0..document.lines.len().min(IDENTITY_LINES)).any(is_identity)
}

/// Words behind "I am" that do not say what someone is.
const NOT_AN_IDENTITY: &[&[u8]] = &[
    b"not",
    b"never",
    b"always",
    b"responsible",
    b"able",
    b"free",
    b"in",
    b"now",
    b"becoming",
];

/// Returns the range in a line of the word by which a text introduces itself.
fn find_name(line: &[u8], words: &Words) -> Option<Range<usize>> {
    let introduction = words.pattern(WordList::IdentitySentences);
    let mut sentences = introduction.captures_iter(line);
    let word = sentences.find_map(|it| {
        let word = it.get(1)?;
        let lower = word.as_bytes().to_ascii_lowercase();
        (!NOT_AN_IDENTITY.contains(&lower.as_slice())).then_some(word)
    })?;
    Some(word.range())
}

/// Returns the name by which a text introduces itself, in lower case.
pub(super) fn introduced_name(document: &Document<'_>) -> Option<(Range<usize>, String)> {
    (0..document.lines.len().min(IDENTITY_LINES)).find_map(|index| {
        let line = document.line_text(index);
        let word = find_name(line, document.words)?;
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let start = word.start;
        let skipped = line[start..]
            .iter()
            .take_while(|byte| !is_name(byte))
            .count();
        let name = &line[start + skipped..];
        let length = name.iter().take_while(|byte| is_name(byte)).count();
        let at = document.lines[index].start + start + skipped;
        let name = String::from_utf8_lossy(&name[..length]).to_lowercase();
        Some((at..at + length, name))
    })
}

/// Whether a section of rules has a list or a bold paragraph.
fn has_rules_section(document: &Document<'_>) -> bool {
    let rules = document.words.pattern(WordList::RulesHeadings);
    (0..document.headings.len()).any(|index| {
        let heading = &document.headings[index];
        let lines = document.section_lines(index);
        rules.is_match(document.bytes(&heading.text))
            && lines.into_iter().any(|line| {
                document.lines[line].kind == LineKind::ListItem
                    || document.line_text(line).starts_with(b"**")
            })
    })
}

fn check_rule_count(document: &Document<'_>, drafts: &mut Drafts) {
    let Some(index) = rules_heading(document) else {
        return;
    };
    let lines = document.section_lines(index);
    let items = document.items.iter();
    let number = items
        .filter(|item| item.is_top_level && lines.contains(&item.line))
        .count();
    if !RULE_COUNT.contains(&number) {
        let range = document.headings[index].text.clone();
        let message = format!("the section has {}", format_count(number as u64, "rule"));
        drafts.push(Draft::new(RuleId::RulesCount, message).at_range(range, "the section"));
    }
}

/// Returns the index of the first heading below the title that begins a section of rules.
pub(super) fn rules_heading(document: &Document<'_>) -> Option<usize> {
    let rules = document.words.pattern(WordList::MainRulesHeadings);
    document
        .headings
        .iter()
        .position(|heading| heading.level >= 2 && rules.is_match(document.bytes(&heading.text)))
}

/// Whether one paragraph says what a reset does to which side of the separator.
fn has_memory_paragraph(context: &Context<'_>) -> bool {
    let document = context.document;
    let separator = context.input.separator.as_bytes();
    let end = document.end_of_rules();
    let has_separator = |text: &[u8]| {
        !separator.is_empty() && text.windows(separator.len()).any(|it| it == separator)
    };
    let [reset, boundary] =
        [WordList::ResetWords, WordList::BoundaryWords].map(|list| document.words.pattern(list));
    document.paragraphs().iter().any(|(_, range)| {
        let text = document.bytes(range);
        range.start < end
            && document.lossy(range).chars().count() <= MAX_MEMORY_PARAGRAPH_CHARS
            && reset.is_match(text)
            && (has_separator(text) || boundary.is_match(text))
    })
}

fn report_coverage(
    document: &Document<'_>,
    has_identity: bool,
    has_rules: bool,
    has_memory: bool,
    drafts: &mut Drafts,
) {
    let has_heading = |list: WordList| {
        let word = document.words.pattern(list);
        let mut headings = document.headings.iter();
        headings.any(|it| word.is_match(document.bytes(&it.text)))
    };
    let parts = [
        ("identity", has_identity),
        ("rules", has_rules),
        ("autonomy", has_heading(WordList::AutonomyHeadings)),
        ("capabilities", has_heading(WordList::CapabilityHeadings)),
        ("pointers", has_heading(WordList::PointerHeadings)),
        (
            "memory",
            has_memory || has_heading(WordList::MemoryHeadings),
        ),
        ("team", has_heading(WordList::TeamHeadings)),
    ];
    let names = |is_found: bool| {
        let named = parts.iter().filter(|(_, found)| *found == is_found);
        named.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    let (found, missing) = (names(true), names(false));
    let mut message = format!("{} of {} parts found", found.len(), parts.len());
    if !found.is_empty() {
        message.push_str(&format!(": {}", found.join(", ")));
    }
    if !missing.is_empty() {
        message.push_str(&format!("; not found: {}", missing.join(", ")));
    }
    drafts.push(Draft::new(RuleId::Coverage, message));
}

fn check_headings(document: &Document<'_>, drafts: &mut Drafts) {
    let headings = &document.headings;
    if document.text.len() > MIN_BYTES_FOR_HEADINGS && headings.len() < 2 {
        let message = format!(
            "{} bytes with {}",
            document.text.len(),
            format_count(headings.len() as u64, "heading")
        );
        drafts.push(Draft::new(RuleId::NoHeadings, message));
    }
    let mut places = Places::default();
    let boundary = document.separators.boundary();
    for (index, heading) in headings.iter().enumerate().skip(1) {
        let next = headings.get(index + 1);
        let end = next.map_or(document.lines.len(), |it| it.line);
        let is_empty = (heading.body_start..end).all(|line| {
            matches!(
                document.lines[line].kind,
                LineKind::Blank | LineKind::ThematicBreak
            )
        });
        let text = document.lossy(&heading.text);
        let is_tail = boundary.is_some_and(|line| heading.text.start >= line.end);
        let is_sentence =
            text.chars().count() > MAX_EMPTY_HEADING_CHARS || text.ends_with(['.', '。']);
        let has_subsection = next.is_some_and(|it| it.level > heading.level);
        let is_scratch = is_tail && SCRATCH_HEADING.is_match(text.as_bytes());
        if is_empty && !has_subsection && !is_sentence && !is_scratch {
            places.add(heading.text.clone(), "nothing below it");
        }
    }
    if !places.is_empty() {
        let number = places.count("section");
        drafts.push(Draft::new(RuleId::EmptySection, format!("{number} without text")).at(places));
    }
}

/// Literals of which each placeholder contains one. Most baselines have none, and a search for a few words takes
/// far less than the pattern.
static PLACEHOLDER_PARTS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    // In any case of letters the search would take longer than it saves.
    let fillers = ["lorem", "Lorem", "LOREM"];
    let parts = ["{", "<", "[", "YOUR_", "TODO", "TBD", "FIXME"];
    AhoCorasick::new(parts.iter().chain(&fillers)).ok()
});

/// Whether a text may have placeholders.
fn may_have_placeholders(text: &[u8]) -> bool {
    let parts = PLACEHOLDER_PARTS.as_ref();
    parts.is_none_or(|parts| parts.is_match(text))
}

/// Returns the lines with placeholders of a baseline that has so many that it counts as an unfilled
/// template; `None` for any other. Cheap for a baseline without placeholders.
pub fn unfilled_lines(text: &[u8]) -> Option<Vec<usize>> {
    if !may_have_placeholders(text) {
        return None;
    }
    let found = PLACEHOLDER.find_iter(text);
    if found.take(MIN_TEMPLATE_PLACEHOLDERS).count() < MIN_TEMPLATE_PLACEHOLDERS {
        return None;
    }
    let words = Words::built_in();
    let document = Document::parse(text, TextRole::Baseline, b"", &words);
    let placeholders = find_placeholders(&document);
    if placeholders.len() < MIN_TEMPLATE_PLACEHOLDERS {
        return None;
    }
    let lines = placeholders.iter();
    let mut lines: Vec<usize> = lines.map(|it| document.line_at(it.start) + 1).collect();
    lines.dedup();
    Some(lines)
}

/// Returns the placeholders outside of code fences.
pub(super) fn find_placeholders(document: &Document<'_>) -> Vec<Range<usize>> {
    let text = document.text;
    let is_placeholder = |range: &Range<usize>| {
        let before = range.start.checked_sub(1).map(|at| text[at]);
        let first = text[range.start];
        let found = &text[range.clone()];
        let follows_brace = first == b'{' && before == Some(b'{') && !found.starts_with(b"{{");
        let is_brace_list = first == b'{' && !found.contains(&b' ') && found.contains(&b',');
        let is_link = first == b'[' && text.get(range.end) == Some(&b'(');
        let is_part = matches!(first, b'{' | b'[' | b'<') && matches!(before, Some(b'$' | b'-'))
            || first == b'{' && before == Some(b'/');
        !follows_brace && !is_brace_list && !is_link && !is_part
    };
    PLACEHOLDER
        .find_iter(text)
        .map(|found| found.range())
        .filter(is_placeholder)
        .filter(|range| !document.is_fenced(document.line_at(range.start)))
        .collect()
}

fn check_placeholders(document: &Document<'_>, drafts: &mut Drafts) {
    let mut places = Places::default();
    for range in find_placeholders(document) {
        places.add(range, "waits to be replaced");
    }
    let is_template = document.text == TEMPLATE;
    if places.is_empty() && !is_template {
        return;
    }
    let number = places.len();
    let (severity, message) = if is_template {
        let message = "the file is still the template that the program ships";
        (Severity::Error, message.to_string())
    } else if number >= MIN_TEMPLATE_PLACEHOLDERS {
        let message = format!("{number} placeholders: the baseline is not filled in yet");
        (Severity::Error, message)
    } else {
        (
            Severity::Warning,
            format_count(number as u64, "placeholder"),
        )
    };
    drafts.push(
        Draft::new(RuleId::PlaceholderLeft, message)
            .severity(severity)
            .at(places),
    );
}

fn check_open_fence(context: &Context<'_>, drafts: &mut Drafts) {
    let document = context.document;
    let Some(line) = document.open_fence_line else {
        return;
    };
    let range = document.line_range(line - 1);
    if range.start < document.judged_range().start {
        return;
    }
    let mut hidden = document.separators.excluded.iter();
    let hidden = hidden.find(|it| it.line > line);
    let draft = Draft::new(
        RuleId::UnclosedFence,
        match hidden {
            Some(hidden) => format!(
                "the code fence of line {line} is still open, and hides the separator of line {}",
                hidden.line
            ),
            None => format!("the code fence of line {line} is still open at the end of the file"),
        },
    );
    let severity = match hidden {
        Some(_) => Severity::Error,
        None => Severity::Warning,
    };
    drafts.push(draft.severity(severity).at_range(range, "opened here"));
}
