//! `verify`: checks ledger, archive and baselines against their checksums, and prints the findings.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

use super::output::{
    Document, OutputRole, Printer, TableCell, bad, format_count, notice, plain, text_cell,
};
use super::{CommandContext, CommandResult};
use crate::base::digest::Digest;
use crate::baseline::signatures::SignedSeal;
use crate::engine::{FindingSubject, Verification, VerifyProgress};

/// Interval between two updates of the status line.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The answer of `verify`.
#[derive(Serialize)]
struct VerifyDocument {
    ok: bool,
    #[serde(flatten)]
    verification: Verification,
}

impl Document for VerifyDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        let VerifyDocument {
            verification: found,
            ..
        } = self;
        let (ledger, tally) = (&found.ledger, &found.counts);
        let mut rows = vec![self.part_row(
            FindingSubject::Ledger,
            "ledger",
            match ledger.seq {
                0 => "no records".to_string(),
                _ => {
                    let records = format_count(tally.lines as usize, "record");
                    let files = match ledger.segments {
                        0 => String::new(),
                        count => {
                            let segments = format_count(count as usize, "segment");
                            format!(" in {segments} and the active file")
                        }
                    };
                    format!("{records}{files}, head {}:{}", ledger.seq, ledger.sha256)
                }
            },
        )];
        if found.is_anchor_valid.is_some() {
            let summary = "the anchor is in the ledger".to_string();
            rows.push(self.part_row(FindingSubject::Anchor, "anchor", summary));
        }
        let is_log_missed = found.is_log_valid.is_none() && ledger.seq > 0;
        let mut log = self.part_row(FindingSubject::Log, "log", found.describe_log().to_string());
        if self.has_finding_about(FindingSubject::Log) || found.is_log_valid.is_some() {
            rows.push(log);
        } else if is_log_missed {
            log[0] = text_cell(OutputRole::Notice, "note");
            rows.push(log);
        }
        let mut entries = format!("{} checked, {} bytes", tally.entries, tally.bytes);
        if tally.retired_entries > 0 {
            entries.push_str(&format!(", {} deleted by retention", tally.retired_entries));
        }
        rows.push(self.part_row(FindingSubject::Entry, "entries", entries));
        let versions = format!(
            "{} checked",
            format_count(tally.versions as usize, "baseline version")
        );
        rows.push(self.part_row(FindingSubject::Version, "versions", versions));
        let baselines = found.describe_baselines();
        rows.push(self.part_row(FindingSubject::Baseline, "baselines", baselines));
        let is_seal_shown = found.signed.is_some() || self.has_finding_about(FindingSubject::Seal);
        if is_seal_shown {
            let summary = found
                .signed
                .as_ref()
                .map_or(String::new(), describe_signature);
            rows.push(self.part_row(FindingSubject::Seal, "seal", summary));
        }
        printer.write_table(&rows)?;
        for finding in &found.findings {
            printer.write_line(&[bad("FAIL  "), plain(&finding.message)])?;
        }
        if found.omitted_findings > 0 {
            printer.write_plain_line(format!("and {} more", found.omitted_findings))?;
        }
        for note in &found.notes {
            printer.write_line(&[notice("note  "), plain(note)])?;
        }
        Ok(())
    }
}

/// Returns, for example, "signed by ops (SHA256:…) at 2026-03-14 09:00:00, serial 7".
fn describe_signature(signed: &SignedSeal) -> String {
    let SignedSeal { signer, meta } = signed;
    let expiry = meta
        .expires
        .map(|it| it.format(", expires %Y-%m-%d").to_string());
    format!(
        "signed by {} ({}) at {}, serial {}{}",
        signer.principal,
        signer.key,
        meta.time.format("%Y-%m-%d %H:%M:%S"),
        meta.serial,
        expiry.unwrap_or_default()
    )
}

impl VerifyDocument {
    fn has_finding_about(&self, subject: FindingSubject) -> bool {
        let findings = &self.verification.findings;
        findings.iter().any(|it| it.subject == subject)
    }

    /// Builds the row of a part: `summary` if it has no findings, else their number.
    fn part_row(&self, subject: FindingSubject, name: &str, summary: String) -> Vec<TableCell> {
        let findings = self
            .verification
            .findings
            .iter()
            .filter(|it| it.subject == subject);
        let (role, word, summary) = match findings.count() {
            0 => (OutputRole::Good, "ok", summary),
            number => (OutputRole::Bad, "FAIL", format_count(number, "finding")),
        };
        vec![
            text_cell(role, word),
            text_cell(OutputRole::Heading, name),
            text_cell(OutputRole::Plain, summary),
        ]
    }
}

pub(super) fn run(
    context: &mut CommandContext<'_>,
    anchor: Option<(u64, Digest)>,
) -> CommandResult {
    let engine = context.open_engine()?;
    let out = &mut *context.output;
    let has_status_line = out.has_status_line();
    let mut last_update = engine.clock().instant();
    let found = engine
        .verifier()
        .verify(anchor, &AtomicBool::new(false), &mut |step| {
            let now = engine.clock().instant();
            if has_status_line && now - last_update >= PROGRESS_INTERVAL {
                last_update = now;
                out.update_status_line(&match step {
                    VerifyProgress::Ledger(lines) => format!("ledger: {lines} records"),
                    VerifyProgress::Entries(number, of) => format!("entries: {number} of {of}"),
                    VerifyProgress::Versions(number) => format!("baseline versions: {number}"),
                });
            }
        });
    out.update_status_line("");
    let found = found?;
    let kind = found.worst_kind();
    let document = VerifyDocument {
        ok: kind.is_none(),
        verification: found,
    };
    context.print_document(&document)?;
    let findings = document.verification.findings.iter();
    context.print_hints(findings.flat_map(|it| &it.hints));
    Ok(kind)
}
