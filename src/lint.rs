//! The lint: rules about baselines and live memories, deterministic, offline, linear in time.
//!
//! Pure: a text and plain facts go in, findings come out. What the rules know about lines and
//! separators comes from [`crate::boundary`]; facts from outside the text (the seal, other agents,
//! owners) come in as [`FleetFacts`]. Values of secrets never leave this module: messages, labels and
//! fingerprints leave them out, and [`LintReport::secrets`] tells printers which bytes to mask.

mod characters;
mod commands;
mod document;
mod finding;
mod fix;
mod fleet;
mod phrases;
mod prohibitions;
mod prose;
mod rule;
mod scan;
mod secret_ranges;
mod secrets;
mod separators;
mod settings;
mod shown_text;
mod sizes;
mod structure;
mod suppression;
mod words;

use std::ops::Range;

use serde::Serialize;

pub use document::{TextRole, Zone};
pub use finding::{Edit, FINDING_SCHEMA, Finding, Fix, FixKind, Place, Position, TextRange};
pub use fix::apply_safe_fixes;
pub use fleet::{DriftFacts, FleetFacts};
pub use rule::{RULES, Rule, RuleId, RuleScope, Severity};
pub use scan::{ScanReport, ScanSummary, SecretPlace, redact_secrets, scan};
pub use secret_ranges::mask_secrets;
pub use settings::{Allowance, LintSettings};
pub use structure::{TEMPLATE, unfilled_lines};
pub use words::Words;

use crate::base::diff::count_lines;
use document::{Document, TextLanguage};
use finding::{Draft, FindingBuilder};

/// A text to check, with its facts.
#[derive(Clone, Copy, Debug)]
pub struct LintInput<'a> {
    /// The agent that the text belongs to, if it is configured.
    pub agent: Option<&'a str>,
    /// The file, for findings.
    pub path: &'a str,
    /// Its content.
    pub text: &'a [u8],
    /// What it is.
    pub role: TextRole,
    /// The agent's separator.
    pub separator: &'a str,
    /// Facts from outside the text.
    pub facts: &'a FleetFacts,
}

/// What was found in a text.
#[derive(Clone, Debug, Default)]
pub struct LintReport {
    /// The findings, in the order of their places.
    pub findings: Vec<Finding>,
    /// Rules that were not checked.
    pub unchecked: Vec<Unchecked>,
    /// Findings that settings or comments suppress.
    pub suppressed: Vec<Suppressed>,
    /// Ranges of bytes that must not be shown.
    pub secrets: Vec<Range<usize>>,
}

/// Rules that were not checked on a text, which is neither a pass nor a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unchecked {
    /// The agent, where the file belongs to one.
    pub agent: Option<String>,
    /// The file.
    pub path: String,
    /// Why: `language`.
    pub reason: &'static str,
    /// The rules.
    pub rules: Vec<RuleId>,
}

/// A finding that is not reported, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Suppressed {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// What suppresses it.
    pub kind: SuppressionKind,
    /// The operator's reason, where one is given.
    pub reason: Option<String>,
}

/// What suppresses a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SuppressionKind {
    /// A comment `shepherd:ignore` in a sealed baseline.
    Comment,
    /// The allowlist.
    Allowed,
    /// The file of accepted findings.
    Accepted,
}

/// Everything that a rule looks at.
struct Context<'a> {
    input: &'a LintInput<'a>,
    settings: &'a LintSettings,
    document: &'a Document<'a>,
}

impl Context<'_> {
    fn facts(&self) -> &FleetFacts {
        self.input.facts
    }
}

/// Maximum number of lines of a text that are checked: each takes memory, however short it is.
const MAX_CHECKED_LINES: usize = 1 << 20;

/// Checks a text against all rules; of a text with too many lines, its beginning.
pub fn lint(input: &LintInput<'_>, settings: &LintSettings) -> LintReport {
    let lines = count_lines(input.text);
    if lines <= MAX_CHECKED_LINES {
        return check_text(input, settings, None);
    }
    let beginning = LintInput {
        text: checked_beginning(input.text),
        ..*input
    };
    let mut report = check_text(&beginning, settings, Some(lines));
    // An edit that is right for the beginning may be wrong for the whole.
    let findings = report.findings.iter_mut();
    findings.for_each(|it| it.fix = None);
    report
}

/// Returns the part of a text with at most [`MAX_CHECKED_LINES`] lines.
fn checked_beginning(text: &[u8]) -> &[u8] {
    let mut line_feeds = text.iter().enumerate().filter(|(_, it)| **it == b'\n');
    let last = line_feeds.nth(MAX_CHECKED_LINES - 1);
    &text[..last.map_or(text.len(), |(at, _)| at + 1)]
}

/// Checks a text that is whole, or the beginning of one with `all_lines` lines.
fn check_text(
    input: &LintInput<'_>,
    settings: &LintSettings,
    all_lines: Option<usize>,
) -> LintReport {
    let mut document = Document::parse(
        input.text,
        input.role,
        input.separator.as_bytes(),
        &settings.words,
    );
    document.secrets = secret_ranges::find_secrets(input.text, &settings.words);
    let earlier = input.facts.earlier_version();
    if let Some(earlier) = earlier.filter(|_| document.is_baseline()) {
        document.compare_with(earlier);
    }
    let context = Context {
        input,
        settings,
        document: &document,
    };
    let mut drafts = Vec::new();
    drafts.extend(all_lines.map(|lines| {
        let message = format!("the text has {lines} lines; only {MAX_CHECKED_LINES} are checked");
        Draft::new(RuleId::TooManyLines, message)
    }));
    for check in [
        sizes::check,
        structure::check,
        prose::check,
        separators::check,
        secrets::check,
        phrases::check,
        commands::check,
        characters::check,
        fleet::check,
    ] {
        check(&context, &mut drafts);
    }
    let mut builder = FindingBuilder::new(&document, input);
    let mut report = LintReport {
        unchecked: unchecked_rules(&context),
        secrets: document.secrets.ranges(),
        ..LintReport::default()
    };
    for draft in drafts {
        let rule = draft.rule;
        if settings.ignores(rule) || rule.rule().is_english_only && !is_checked(rule, &document) {
            continue;
        }
        let fingerprint = builder.fingerprint(&draft);
        // Judged by all places, of which a finding lists the first.
        let suppression = suppression::find_suppression(&context, &draft, &fingerprint);
        let mut finding = builder.build(draft, fingerprint);
        if let Some(severity) = settings.severity_of(rule) {
            finding.severity = severity;
        }
        match suppression {
            Some((kind, reason)) => report.suppressed.push(Suppressed {
                finding,
                kind,
                reason,
            }),
            None => report.findings.push(finding),
        }
    }
    report
        .findings
        .sort_by_key(|it| (it.range.start.byte, it.rule));
    report
}

/// Whether a rule that reads English is checked on a text. The markup of chat templates and phrases
/// of other languages are found in any text.
fn is_checked(rule: RuleId, document: &Document<'_>) -> bool {
    document.language == TextLanguage::English || rule == RuleId::OverridePhrase
}

/// Lists the rules that read English and were not checked because the text is in another language,
/// or too short to tell.
fn unchecked_rules(context: &Context<'_>) -> Vec<Unchecked> {
    let document = context.document;
    if document.language == TextLanguage::English || document.text.trim_ascii().is_empty() {
        return Vec::new();
    }
    let rules = RULES.iter().filter(|rule| {
        let applies = match rule.scope {
            RuleScope::Baseline => document.is_baseline(),
            RuleScope::Scratch => !document.scratch_range().is_empty(),
            _ => true,
        };
        rule.is_english_only && applies
    });
    vec![Unchecked {
        agent: context
            .input
            .agent
            .map(crate::base::untrusted::visible_line),
        path: crate::base::untrusted::visible_line(context.input.path),
        reason: "language",
        rules: rules.map(|rule| rule.rule).collect(),
    }]
}

/// A check of one or several rules.
type Drafts = Vec<Draft>;

#[cfg(test)]
mod tests;
