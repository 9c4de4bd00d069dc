//! The answer of `lint` for people: findings with the lines in question, or one line each.

use std::io;

use serde::Serialize;

use super::LintDocument;
use crate::cli::output::{
    Document, OutputRole, Printer, dim, format_count, heading, notice, plain, text_cell,
};
use crate::engine::LintedFile;
use crate::lint::{Finding, Rule, Severity, TextRange};

/// Maximum number of lines of a finding that are shown.
const MAX_SHOWN_LINES: usize = 5;
/// Maximum number of characters of a line that are shown.
const MAX_EXCERPT_CHARS: usize = 160;
/// Replaces a secret in an excerpt.
const MASK: &str = "•••";

fn role_of(severity: Severity) -> OutputRole {
    match severity {
        Severity::Error => OutputRole::Bad,
        Severity::Warning => OutputRole::Warn,
        Severity::Info => OutputRole::Notice,
    }
}

/// Writes the findings with excerpts, and a summary.
pub(super) fn write_findings(document: &LintDocument, printer: &mut Printer<'_>) -> io::Result<()> {
    for file in &document.files {
        for finding in &file.report.findings {
            write_finding(printer, document, file, finding)?;
        }
    }
    for unchecked in &document.unchecked {
        let rules: Vec<&str> = unchecked.rules.iter().map(|it| it.code()).collect();
        let line = format!(
            ": not checked, because the text is not English or too short to tell: {}",
            rules.join(" ")
        );
        let path = document.shown_path(&unchecked.path);
        printer.write_line_at_path("", path, &[dim(&line)])?;
    }
    printer.write_plain_line(document.summary_line())
}

fn write_finding(
    printer: &mut Printer<'_>,
    document: &LintDocument,
    file: &LintedFile,
    finding: &Finding,
) -> io::Result<()> {
    let rule = finding.rule_row();
    let head = format!("{}[{} {}]", finding.severity, rule.id, rule.name);
    printer.write_revealed_line(&[
        (role_of(finding.severity), head.as_str()),
        heading(": "),
        heading(finding.message.as_str()),
    ])?;
    let start = finding.range.start;
    let path = document.shown_path(&finding.path);
    let place = if has_place(finding) {
        format!(":{}:{}", start.line, start.col)
    } else {
        String::new()
    };
    printer.write_line_at_path("  --> ", path, &[notice(place.as_str())])?;
    if has_place(finding) {
        write_excerpt(printer, file, &finding.range, "")?;
        let mut shown_lines = vec![start.line];
        let mut hidden = 0;
        for place in &finding.related {
            let line = place.range.start.line;
            if shown_lines.contains(&line) {
                continue;
            }
            if shown_lines.len() < MAX_SHOWN_LINES {
                shown_lines.push(line);
                write_excerpt(printer, file, &place.range, &place.label)?;
            } else {
                hidden += 1;
            }
        }
        if hidden > 0 {
            let line = format!("      and {}", format_count(hidden, "more place"));
            printer.write_revealed_line(&[dim(&line)])?;
        }
    }
    printer.write_revealed_line(&[notice("  help: "), plain(rule.help)])?;
    printer.write_plain_line("")
}

/// Whether a finding is about a place, not about the whole file.
fn has_place(finding: &Finding) -> bool {
    finding.range.start != finding.range.end
}

fn write_excerpt(
    printer: &mut Printer<'_>,
    file: &LintedFile,
    range: &TextRange,
    label: &str,
) -> io::Result<()> {
    let number = format!("{:>5} | ", range.start.line);
    let text = excerpt(file, range.start.byte);
    let label = match label {
        "" => String::new(),
        label => format!("   ({label})"),
    };
    printer.write_revealed_line(&[
        dim(number.as_str()),
        plain(text.as_str()),
        dim(label.as_str()),
    ])
}

/// Returns the line around an offset, with its secrets masked, cut where it is long. A cut line shows
/// the text from the offset on.
fn excerpt(file: &LintedFile, offset: usize) -> String {
    let text = &file.text;
    let offset = offset.min(text.len());
    let before = text[..offset].iter().rposition(|byte| *byte == b'\n');
    let start = before.map_or(0, |at| at + 1);
    let behind = text[start..].iter().position(|byte| *byte == b'\n');
    let end = behind.map_or(text.len(), |length| start + length);
    let is_long = end - start > 2 * MAX_EXCERPT_CHARS;
    let mut at = if is_long { offset.min(end) } else { start };
    let mut shown = String::from(if at > start { "…" } else { "" });
    for secret in &file.report.secrets {
        if secret.end <= at || secret.start >= end {
            continue;
        }
        shown.push_str(&String::from_utf8_lossy(&text[at..secret.start.max(at)]));
        shown.push_str(MASK);
        at = secret.end.min(end);
    }
    shown.push_str(&String::from_utf8_lossy(&text[at..end]));
    match shown.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((cut, _)) => format!("{}…", &shown[..cut]),
        None => shown,
    }
}

impl LintDocument {
    fn summary_line(&self) -> String {
        let summary = &self.summary;
        let mut line = format!(
            "{}: {}, {}, {}",
            format_count(summary.files, "file"),
            format_count(summary.errors, "error"),
            format_count(summary.warnings, "warning"),
            format_count(summary.infos, "note"),
        );
        if summary.suppressed > 0 {
            line.push_str(&format!(", {} suppressed", summary.suppressed));
        }
        if summary.fixed > 0 {
            let files = format_count(summary.fixed, "file");
            line.push_str(&format!(", {files} corrected"));
        }
        if !self.unread.is_empty() {
            line.push_str(&format!(", {} not read", self.unread.len()));
        }
        line
    }
}

/// Writes one line a finding: `path:line:col: RULE [severity] message`.
pub(super) fn write_lines(document: &LintDocument, printer: &mut Printer<'_>) -> io::Result<()> {
    for finding in &document.findings {
        let start = finding.range.start;
        let severity = match finding.severity {
            Severity::Warning => "warn",
            severity => severity.as_str(),
        };
        let (place, label) = (
            format!(":{}:{}: ", start.line, start.col),
            format!("{} [{severity}] ", finding.rule_row().id),
        );
        let pieces = [
            plain(place.as_str()),
            (role_of(finding.severity), label.as_str()),
            plain(finding.message.as_str()),
        ];
        printer.write_line_at_path("", document.shown_path(&finding.path), &pieces)?;
    }
    Ok(())
}

/// The answer of `lint explain`.
#[derive(Serialize)]
pub(super) struct RuleDocument {
    pub rule: &'static Rule,
}

impl Document for RuleDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let rule = self.rule;
        let title = format!("{} {}", rule.id, rule.name);
        printer.write_line(&[
            heading(title.as_str()),
            plain("  "),
            (role_of(rule.severity), rule.severity.as_str()),
        ])?;
        for (label, text) in [("when", rule.summary), ("why", rule.why), ("do", rule.help)] {
            let label = format!("  {label:<6}");
            printer.write_line(&[dim(&label), plain(text)])?;
        }
        if rule.is_english_only {
            printer.write_plain_line(
                "  It reads English words, and is not checked in other languages.",
            )?;
        }
        if rule.blocks_resets {
            printer.write_plain_line("  It can refuse a reset.")?;
        }
        Ok(())
    }
}

/// The answer of `lint rules`.
#[derive(Serialize)]
pub(super) struct RulesDocument {
    pub rules: &'static [Rule],
}

impl Document for RulesDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let row = |rule: &Rule| {
            vec![
                text_cell(OutputRole::Heading, rule.id),
                text_cell(OutputRole::Plain, rule.name),
                text_cell(role_of(rule.severity), rule.severity.as_str()),
                text_cell(OutputRole::Plain, rule.summary),
            ]
        };
        let rows: Vec<_> = self.rules.iter().map(row).collect();
        printer.write_table_within_width(rows, &[])
    }
}

/// The answer of `lint words`.
#[derive(Serialize)]
pub(super) struct WordsDocument {
    pub lists: Vec<WordListItem>,
    /// Whether the text answer is the list itself, to be edited, and not a table of lists.
    #[serde(skip)]
    pub prints_text: bool,
}

/// A word list that the program ships.
#[derive(Serialize)]
pub(super) struct WordListItem {
    pub name: &'static str,
    pub text: &'static str,
}

impl Document for WordsDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.prints_text {
            let mut lines = self.lists.iter().flat_map(|list| list.text.lines());
            return lines.try_for_each(|line| printer.write_plain_line(line));
        }
        // The first line of a list is a comment that says what it is.
        let row = |list: &WordListItem| {
            let about = list.text.lines().next().unwrap_or_default();
            vec![
                text_cell(OutputRole::Heading, list.name),
                text_cell(OutputRole::Plain, about.trim_start_matches("# ")),
            ]
        };
        let rows: Vec<_> = self.lists.iter().map(row).collect();
        printer.write_table_within_width(rows, &[])
    }
}
