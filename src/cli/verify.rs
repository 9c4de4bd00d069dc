//! `verify`: checks ledger, archive and baselines against their checksums, and prints the findings.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::output::{Document, OutputRole, Printer, TableCell, format_count, text_cell};
use super::{CommandContext, CommandResult};
use crate::digest::Digest;
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
                _ => format!(
                    "{}, head {}:{}",
                    format_count(tally.lines as usize, "record"),
                    ledger.seq,
                    ledger.sha256
                ),
            },
        )];
        if found.is_anchor_valid.is_some() {
            let summary = "the anchor is in the ledger".to_string();
            rows.push(self.part_row(FindingSubject::Anchor, "anchor", summary));
        }
        if found.is_log_valid.is_some() {
            let summary = "the heads in reset.log are in the ledger".to_string();
            rows.push(self.part_row(FindingSubject::Log, "log", summary));
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
        let baselines = match (tally.sealed_baselines, tally.unsealed_baselines) {
            (0, 0) => "none to check".to_string(),
            (0, _) => format!("{} without a seal", tally.unsealed_baselines),
            (_, _) => format!("{} match the seal", tally.sealed_baselines),
        };
        rows.push(self.part_row(FindingSubject::Baseline, "baselines", baselines));
        printer.write_table(&rows)?;
        for finding in &found.findings {
            printer.write_line(&[
                (OutputRole::Bad, "FAIL  "),
                (OutputRole::Plain, &finding.message),
            ])?;
        }
        if found.omitted_findings > 0 {
            printer.write_plain_line(format!("and {} more", found.omitted_findings))?;
        }
        for note in &found.notes {
            printer.write_line(&[(OutputRole::Notice, "note  "), (OutputRole::Plain, note)])?;
        }
        Ok(())
    }
}

impl VerifyDocument {
    /// Builds the row of a part: `summary` if it has no findings, else their number.
    fn part_row(&self, subject: FindingSubject, name: &str, summary: String) -> Vec<TableCell> {
        let findings = self
            .verification
            .findings
            .iter()
            .filter(|it| it.subject == subject);
        match findings.count() {
            0 => vec![
                text_cell(OutputRole::Good, "ok"),
                text_cell(OutputRole::Heading, name),
                text_cell(OutputRole::Plain, summary),
            ],
            number => vec![
                text_cell(OutputRole::Bad, "FAIL"),
                text_cell(OutputRole::Heading, name),
                text_cell(OutputRole::Plain, format_count(number, "finding")),
            ],
        }
    }
}

impl CommandContext<'_> {
    pub(super) fn run_verify(&mut self, anchor: Option<(u64, Digest)>) -> CommandResult {
        let engine = self.open_engine()?;
        let out = &mut *self.output;
        let has_status_line = out.has_status_line();
        let mut last_update = engine.clock().instant();
        let found = engine.verify(anchor, &mut |step| {
            let now = engine.clock().instant();
            if has_status_line && now - last_update >= PROGRESS_INTERVAL {
                last_update = now;
                out.update_status_line(&match step {
                    VerifyProgress::Ledger(lines) => format!("ledger: {lines} records"),
                    VerifyProgress::Entries(number, of) => format!("entries: {number} of {of}"),
                });
            }
        });
        out.update_status_line("");
        let found = found?;
        let kind = found.worst_kind();
        let has_finding_about =
            |about: &[FindingSubject]| found.findings.iter().any(|it| about.contains(&it.subject));
        let has_ledger_finding = has_finding_about(&[
            FindingSubject::Ledger,
            FindingSubject::Anchor,
            FindingSubject::Log,
        ]);
        let has_archive_finding = has_ledger_finding
            || has_finding_about(&[FindingSubject::Entry, FindingSubject::Version]);
        let has_baseline_finding = has_finding_about(&[FindingSubject::Baseline]);
        let diff = engine.command_line("diff --baseline AGENT");
        self.output.print_document(&VerifyDocument {
            ok: kind.is_none(),
            verification: found,
        })?;
        if has_archive_finding {
            self.output.print_hint(
                "copy the archive as evidence before you repair anything; compare it with a backup to \
                 see what changed",
            );
        }
        if has_ledger_finding {
            self.output.print_hint(
                "restore the ledger from a backup, or move .shepherd/ledger.jsonl, reset.log and \
                 reset.log.old away: the next run creates new ones",
            );
        }
        if has_baseline_finding {
            self.output
                .print_hint(&format!("see what changed in a baseline with `{diff}`"));
        }
        Ok(kind)
    }
}
