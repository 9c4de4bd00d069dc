//! The answer of `lint` as workflow commands of GitHub, which become annotations.

use std::io;

use super::LintDocument;
use crate::cli::output::{Printer, plain};
use crate::lint::Severity;

/// Writes one workflow command a finding.
pub(super) fn write_annotations(
    document: &LintDocument,
    printer: &mut Printer<'_>,
) -> io::Result<()> {
    for finding in &document.findings {
        let command = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "notice",
        };
        let rule = finding.rule_row();
        let (start, end) = (finding.range.start, finding.range.end);
        let title = format!("{} {}", rule.id, rule.name);
        let line = format!(
            ",line={},endLine={},col={},title={}::{}",
            start.line,
            end.line,
            start.col,
            escape_property(&title),
            escape_data(&finding.message)
        );
        printer.write_line_at_path(
            &format!("::{command} file="),
            &escape_property(document.shown_path(&finding.path)),
            &[plain(&line)],
        )?;
    }
    Ok(())
}

fn escape_data(text: &str) -> String {
    let escaped = text.replace('%', "%25").replace('\r', "%0D");
    escaped.replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workflow_command_is_escaped() {
        assert_eq!(escape_data("50 % a:b\r\n"), "50 %25 a:b%0D%0A");
        assert_eq!(escape_property("a:b,c%"), "a%3Ab%2Cc%25");
    }
}
