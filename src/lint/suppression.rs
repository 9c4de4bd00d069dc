//! What suppresses a finding: a comment in a sealed baseline, the allowlist, the accepted findings.

use std::collections::HashSet;

use super::finding::Finding;
use super::rule::RuleId;
use super::words::{pattern, patterns};
use super::{Context, SuppressionKind};

/// Marks a comment that suppresses a rule.
pub(super) const IGNORE_COMMENT: &[u8] = b"shepherd:ignore";

patterns! {
    /// Groups: the rule and the reason.
    IGNORE = pattern(r"<!--[ \t]*shepherd:ignore[ \t]+([A-Za-z0-9-]+)[ \t]+([^\n]*?)[ \t]*-->");
}

/// Returns what suppresses a finding, with the reason. A reset is refused all the
/// same.
pub(super) fn find_suppression(
    context: &Context<'_>,
    finding: &Finding,
) -> Option<(SuppressionKind, Option<String>)> {
    let comment = find_comment(context, finding.rule);
    if let Some(reason) = comment {
        return Some((SuppressionKind::Comment, Some(reason)));
    }
    let settings = context.settings;
    let allowance = settings.allowances.iter().find(|it| {
        let is_for_rule = RuleId::parse(&it.rule) == Some(finding.rule);
        let is_for_agent = it.agent.is_none() || it.agent.as_deref() == context.input.agent;
        let is_valid = it.expires.is_none_or(|last| settings.today <= last);
        let has_fingerprint = it.fingerprint.as_ref() == Some(&finding.fingerprint);
        let has_text = it
            .text
            .as_ref()
            .is_some_and(|text| has_text_on_all_lines(context, finding, text));
        is_for_rule && is_for_agent && is_valid && (has_fingerprint || has_text)
    });
    if let Some(allowance) = allowance {
        return Some((SuppressionKind::Allowed, Some(allowance.reason.clone())));
    }
    let is_accepted = settings.accepted_findings.contains(&finding.fingerprint);
    is_accepted.then_some((SuppressionKind::Accepted, None))
}

/// Returns the reason of a comment that suppresses a rule. It counts if the sealed version of the
/// baseline has it, too: any other text may be an agent's, and a draft is the operator's only once
/// it is sealed.
fn find_comment(context: &Context<'_>, rule: RuleId) -> Option<String> {
    let document = context.document;
    let sealed = context.facts().sealed_version.as_deref();
    let sealed = sealed.filter(|_| document.is_baseline())?;
    let mut sealed_comments = IGNORE.captures_iter(sealed).filter(|comment| {
        let name = comment.get(1).map_or(&b""[..], |name| name.as_bytes());
        RuleId::parse(&String::from_utf8_lossy(name)) == Some(rule)
    });
    let kept: HashSet<&[u8]> = IGNORE
        .find_iter(document.text)
        .map(|it| it.as_bytes())
        .collect();
    let counted = sealed_comments.find(|it| kept.contains(it.get_match().as_bytes()))?;
    Some(crate::untrusted::visible_line(counted.get(2)?.as_bytes()))
}

/// Whether every place of a finding is on a line with this text, so that a new place is reported. In
/// an agent's text it has to be the whole line: the agent could add it to a line of its own.
fn has_text_on_all_lines(context: &Context<'_>, finding: &Finding, text: &str) -> bool {
    let document = context.document;
    !document.lines.is_empty()
        && finding.ranges().all(|range| {
            let line = document.line_text(document.line_at(range.start.byte));
            if document.is_baseline() {
                !text.is_empty() && line.windows(text.len()).any(|it| it == text.as_bytes())
            } else {
                line.trim_ascii() == text.trim_ascii().as_bytes()
            }
        })
}
