//! What suppresses a finding: a comment in a sealed baseline, the allowlist, the accepted findings.

use std::collections::HashSet;

use super::finding::Draft;
use super::rule::RuleId;
use super::words::{pattern, patterns};
use super::{Context, SuppressionKind};

/// Marks a comment that suppresses a rule.
pub(super) const IGNORE_COMMENT: &[u8] = b"shepherd:ignore";

patterns! {
    /// Groups: the rule and the reason.
    IGNORE = pattern(r"<!--[ \t]*shepherd:ignore[ \t]+([A-Za-z0-9-]+)[ \t]+([^\n]*?)[ \t]*-->");
}

/// Returns what suppresses a finding, with the reason. A reset is refused all the same.
pub(super) fn find_suppression(
    context: &Context<'_>,
    draft: &Draft,
    fingerprint: &str,
) -> Option<(SuppressionKind, Option<String>)> {
    if let Some(reason) = find_comment(context, draft) {
        return Some((SuppressionKind::Comment, Some(reason)));
    }
    let settings = context.settings;
    let allowance = settings.allowances.iter().find(|it| {
        let is_for_rule = RuleId::parse(&it.rule) == Some(draft.rule);
        let is_for_agent = it.agent.is_none() || it.agent.as_deref() == context.input.agent;
        let is_valid = it.is_valid_on(settings.today);
        let has_fingerprint = it.fingerprint.as_deref() == Some(fingerprint);
        is_for_rule
            && is_for_agent
            && is_valid
            && (has_fingerprint
                || it
                    .text
                    .as_ref()
                    .is_some_and(|text| covers(context, draft, text)))
    });
    if let Some(allowance) = allowance {
        return Some((SuppressionKind::Allowed, Some(allowance.reason.clone())));
    }
    let is_accepted = settings.accepted_findings.contains(fingerprint);
    is_accepted.then_some((SuppressionKind::Accepted, None))
}

/// Returns the reason of a comment that suppresses a rule. It counts if the sealed version of the
/// baseline has it, too: any other text may be an agent's, and a draft is the operator's only once
/// it is sealed. It covers no attack that came after the seal.
fn find_comment(context: &Context<'_>, draft: &Draft) -> Option<String> {
    let document = context.document;
    let rule = draft.rule;
    if has_new_attack(context, draft) {
        return None;
    }
    let sealed = context.facts().sealed_version.as_deref();
    let sealed = sealed.filter(|_| document.is_baseline())?;
    let mut sealed_comments = IGNORE
        .captures_iter(sealed)
        .filter(|comment| {
            let name = comment.get(1).map_or(&b""[..], |name| name.as_bytes());
            RuleId::parse(&String::from_utf8_lossy(name)) == Some(rule)
        })
        .peekable();
    sealed_comments.peek()?;
    let kept: HashSet<&[u8]> = IGNORE
        .find_iter(document.text)
        .map(|it| it.as_bytes())
        .collect();
    let counted = sealed_comments.find(|it| kept.contains(it.get_match().as_bytes()))?;
    Some(crate::base::untrusted::visible_line(
        counted.get(2)?.as_bytes(),
    ))
}

/// Whether a finding is about an attack with a place on a line that the earlier version of a baseline
/// does not have.
fn has_new_attack(context: &Context<'_>, draft: &Draft) -> bool {
    let mut places = draft.places.list.iter();
    draft.rule.is_attack() && places.any(|(range, _)| context.document.is_on_new_line(range))
}

/// Whether an allowed text covers every place of a finding, so that a new place is reported. In a
/// baseline it stands anywhere on the line. An agent could write it there beside an attack, so in a
/// memory, and for an attack that is new in a baseline, it is the place itself or its whole line.
fn covers(context: &Context<'_>, draft: &Draft, text: &str) -> bool {
    let document = context.document;
    let text = text.as_bytes();
    let places = &draft.places;
    if text.is_empty() || places.is_empty() || !places.is_complete() {
        return false;
    }
    let is_operators = document.is_baseline() && !has_new_attack(context, draft);
    let mut last_line = None;
    places.list.iter().all(|(range, _)| {
        let line = document.line_at(range.start);
        // A line is searched once for its places in a row.
        let is_covered = |line| {
            let line = document.line_text(line);
            let has_text = || line.windows(text.len()).any(|it| it == text);
            line.trim_ascii() == text || is_operators && has_text()
        };
        let is_seen = last_line.replace(line) == Some(line);
        is_seen && is_operators || document.bytes(range) == text || is_covered(line)
    })
}
