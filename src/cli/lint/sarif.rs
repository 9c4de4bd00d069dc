//! The answer of `lint` in the Static Analysis Results Interchange Format, SARIF 2.1.0.

use serde_json::{Value, json};

use super::LintDocument;
use crate::lint::{Finding, Fix, RULES, Rule, Severity, SuppressionKind, TextRange};

/// The schema that the document names.
const SCHEMA_URI: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// Maximum number of results; code hosts refuse more.
const MAX_RESULTS: usize = 25_000;

/// A log with one run.
#[derive(serde::Serialize)]
#[serde(transparent)]
pub(super) struct SarifLog(Value);

impl SarifLog {
    /// Creates the log.
    pub(super) fn new(document: &LintDocument) -> SarifLog {
        let reported = document.findings.iter().map(|it| result(it, document));
        let suppressed = document.suppressed.iter().map(|it| {
            let mut result = result(&it.finding, document);
            let kind = match it.kind {
                SuppressionKind::Comment => "inSource",
                SuppressionKind::Allowed | SuppressionKind::Accepted => "external",
            };
            let mut suppression = json!({ "kind": kind });
            if let Some(reason) = &it.reason {
                suppression["justification"] = json!(reason);
            }
            result["suppressions"] = json!([suppression]);
            result
        });
        let results: Vec<Value> = reported.chain(suppressed).take(MAX_RESULTS).collect();
        let notifications: Vec<Value> = document
            .unread
            .iter()
            .map(|it| {
                let text = format!("{}: {}", it.target, it.message);
                json!({ "level": "error", "message": { "text": text } })
            })
            .collect();
        SarifLog(json!({
            "$schema": SCHEMA_URI,
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": {
                    "name": "memory-shepherd",
                    "version": env!("CARGO_PKG_VERSION"),
                    "informationUri": env!("CARGO_PKG_REPOSITORY"),
                    "rules": RULES.iter().map(rule).collect::<Vec<_>>(),
                } },
                "columnKind": "utf16CodeUnits",
                "results": results,
                "invocations": [{
                    "executionSuccessful": document.unread.is_empty(),
                    "toolExecutionNotifications": notifications,
                }],
            }],
        }))
    }
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn rule(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "name": rule.name,
        "shortDescription": { "text": rule.summary },
        "fullDescription": { "text": rule.why },
        "help": { "text": rule.help },
        "defaultConfiguration": { "level": level(rule.severity) },
    })
}

fn result(finding: &Finding, document: &LintDocument) -> Value {
    let location = |range: &TextRange| {
        json!({ "physicalLocation": {
            "artifactLocation": { "uri": file_uri(document.shown_path(&finding.path)) },
            "region": region(range),
        } })
    };
    let mut result = json!({
        "ruleId": finding.rule_row().id,
        "ruleIndex": finding.rule as usize,
        "level": level(finding.severity),
        "message": { "text": finding.message },
        "locations": [location(&finding.range)],
        "partialFingerprints": { "memoryShepherd/v1": finding.fingerprint },
    });
    if !finding.related.is_empty() {
        let related = finding.related.iter().enumerate().map(|(index, place)| {
            let mut related = location(&place.range);
            related["id"] = json!(index + 1);
            related["message"] = json!({ "text": place.label });
            related
        });
        result["relatedLocations"] = related.collect();
    }
    if let Some(fix) = &finding.fix {
        result["fixes"] = json!([fix_object(fix, finding, document)]);
    }
    result
}

fn fix_object(fix: &Fix, finding: &Finding, document: &LintDocument) -> Value {
    let replacements = fix.edits.iter().map(|edit| {
        json!({
            "deletedRegion": region(&edit.range),
            "insertedContent": { "text": edit.text },
        })
    });
    json!({
        "description": { "text": finding.rule_row().help },
        "artifactChanges": [{
            "artifactLocation": { "uri": file_uri(document.shown_path(&finding.path)) },
            "replacements": replacements.collect::<Vec<_>>(),
        }],
    })
}

fn region(range: &TextRange) -> Value {
    json!({
        "startLine": range.start.line,
        "startColumn": range.start.utf16_col,
        "endLine": range.end.line,
        "endColumn": range.end.utf16_col,
        "byteOffset": range.start.byte,
        "byteLength": range.end.byte - range.start.byte,
    })
}

/// Returns a path as a URI reference.
fn file_uri(path: &str) -> String {
    let mut uri = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uri_references() {
        assert_eq!(file_uri("team/a b.md"), "team/a%20b.md");
        assert_eq!(file_uri("/etc/x.md"), "file:///etc/x.md");
        assert_eq!(file_uri("-"), "-");
    }
}
