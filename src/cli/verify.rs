//! `verify`: whether what is kept is still what was written.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::output::{Cell, Document, OutputRole, Printer, cell, count};
use super::{CommandContext, CommandResult};
use crate::digest::Digest;
use crate::engine::{FindingSubject, Verification, VerifyProgress};

/// How often it is said how far it is.
const PAUSE: Duration = Duration::from_millis(100);

/// What `verify` answers.
#[derive(Serialize)]
struct Verified {
    ok: bool,
    #[serde(flatten)]
    found: Verification,
}

impl Document for Verified {
    fn text(&self, page: &mut Printer<'_>) -> io::Result<()> {
        let Verified { found, .. } = self;
        let (ledger, tally) = (&found.ledger, &found.tally);
        let mut rows = vec![self.row(
            FindingSubject::Ledger,
            "ledger",
            match ledger.seq {
                0 => "no records yet".to_string(),
                _ => format!(
                    "{}, head {}:{}",
                    count(tally.lines as usize, "record"),
                    ledger.seq,
                    ledger.sha256
                ),
            },
        )];
        if found.anchor.is_some() {
            let what = "the noted head is in the ledger".to_string();
            rows.push(self.row(FindingSubject::Anchor, "anchor", what));
        }
        if found.logged.is_some() {
            let what = "the heads in reset.log are in the ledger".to_string();
            rows.push(self.row(FindingSubject::Log, "log", what));
        }
        let mut entries = format!("{} checked, {} bytes", tally.entries, tally.bytes);
        if tally.retired > 0 {
            entries.push_str(&format!(", {} deleted by retention", tally.retired));
        }
        rows.push(self.row(FindingSubject::Entry, "entries", entries));
        let versions = format!(
            "{} checked",
            count(tally.versions as usize, "baseline version")
        );
        rows.push(self.row(FindingSubject::Version, "versions", versions));
        let baselines = match (tally.sealed, tally.unsealed) {
            (0, 0) => "none to check".to_string(),
            (0, _) => format!("{} without a seal", tally.unsealed),
            (_, _) => format!("{} match the seal", tally.sealed),
        };
        rows.push(self.row(FindingSubject::Baseline, "baselines", baselines));
        page.table(&rows)?;
        for finding in &found.findings {
            page.line(&[
                (OutputRole::Bad, "FAIL  "),
                (OutputRole::Plain, &finding.what),
            ])?;
        }
        if found.more > 0 {
            page.plain(format!("and {} more", found.more))?;
        }
        for note in &found.notes {
            page.line(&[(OutputRole::Ours, "note  "), (OutputRole::Plain, note)])?;
        }
        Ok(())
    }
}

impl Verified {
    /// A part with its word; what is said of it holds only if nothing is wrong.
    fn row(&self, about: FindingSubject, name: &str, what: String) -> Vec<Cell> {
        let wrong = self.found.findings.iter().filter(|it| it.about == about);
        match wrong.count() {
            0 => vec![
                cell(OutputRole::Good, "ok"),
                cell(OutputRole::Head, name),
                cell(OutputRole::Plain, what),
            ],
            number => vec![
                cell(OutputRole::Bad, "FAIL"),
                cell(OutputRole::Head, name),
                cell(OutputRole::Plain, count(number, "finding")),
            ],
        }
    }
}

impl CommandContext<'_> {
    pub(super) fn verify(&mut self, anchor: Option<(u64, Digest)>) -> CommandResult {
        let engine = self.open()?;
        let out = &mut *self.out;
        let steps = out.shows_steps();
        let mut told = engine.clock().instant();
        let found = engine.verify(anchor, &mut |step| {
            let now = engine.clock().instant();
            if steps && now - told >= PAUSE {
                told = now;
                out.step(&match step {
                    VerifyProgress::Ledger(lines) => format!("ledger: {lines} records"),
                    VerifyProgress::Entries(number, of) => format!("entries: {number} of {of}"),
                });
            }
        });
        out.step("");
        let found = found?;
        let kind = found.kind();
        let has =
            |about: &[FindingSubject]| found.findings.iter().any(|it| about.contains(&it.about));
        let is_ledger = has(&[
            FindingSubject::Ledger,
            FindingSubject::Anchor,
            FindingSubject::Log,
        ]);
        let is_archive = is_ledger || has(&[FindingSubject::Entry, FindingSubject::Version]);
        let is_baseline = has(&[FindingSubject::Baseline]);
        let diff = engine.command_line("diff --baseline AGENT");
        self.out.document(&Verified {
            ok: kind.is_none(),
            found,
        })?;
        if is_archive {
            self.out.hint(
                "keep a copy of the archive as it is, as evidence; what was kept elsewhere of it \
                 tells what was changed",
            );
        }
        if is_ledger {
            self.out.hint(
                "then put the ledger back from a backup, or move .shepherd/ledger.jsonl, reset.log \
                 and reset.log.old away: the next run begins new ones",
            );
        }
        if is_baseline {
            self.out
                .hint(&format!("`{diff}` shows what changed in a baseline"));
        }
        Ok(kind)
    }
}
