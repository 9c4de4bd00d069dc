//! Verify screen: the last verification of ledger, archive, baselines and seal, and its rows.

use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use crate::console::canvas::format_count;
use crate::engine::{FindingSubject, Verification, VerifyProgress};

/// Verify screen.
#[derive(Clone, Debug, Default)]
pub struct VerifyScreen {
    /// State of the verification.
    pub stage: VerifyStage,
    /// Row index of the cursor.
    pub cursor: usize,
    /// Whether a key has been pressed on the screen: the cursor then stays on its row when rows
    /// move. Until then it is on the first.
    pub is_cursor_pinned: bool,
    /// First visible row.
    pub top: usize,
}

/// Stage of a verification.
#[derive(Clone, Debug, Default)]
pub enum VerifyStage {
    /// None was requested in this session.
    #[default]
    Never,
    /// It runs.
    Running {
        /// When it began.
        started_at: Duration,
        /// The last step; `None` before the first.
        progress: Option<VerifyProgress>,
        /// Whether the operator has stopped it.
        is_cancelled: bool,
    },
    /// It has ended.
    Done(Box<VerifyResult>),
}

/// Outcome of a verification.
#[derive(Clone, Debug)]
pub struct VerifyResult {
    /// The findings, or why nothing could be verified.
    pub outcome: Result<Verification, String>,
    /// When it ended.
    pub ended_at: DateTime<FixedOffset>,
    /// How long it took.
    pub duration: Duration,
}

/// A row of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyRow {
    /// A part of the verification.
    Part {
        /// Name of the part.
        name: &'static str,
        /// Number of its findings.
        findings: usize,
        /// Whether there was something to check.
        is_checked: bool,
        /// What was checked.
        summary: String,
    },
    /// A finding, by its index.
    Finding(usize),
    /// A remark that is not a failure.
    Note(String),
    /// A baseline, by its name.
    Baseline(String),
}

impl VerifyScreen {
    /// Returns the verification, if there is one.
    pub fn verification(&self) -> Option<&Verification> {
        match &self.stage {
            VerifyStage::Done(result) => result.outcome.as_ref().ok(),
            _ => None,
        }
    }

    /// Whether a verification runs.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, VerifyStage::Running { .. })
    }
}

/// Returns the rows of the parts of a verification.
pub fn part_rows(found: &Verification) -> Vec<VerifyRow> {
    let counts = &found.counts;
    let ledger = match found.ledger.seq {
        0 => "no records".to_string(),
        seq => format!(
            "{}, head {seq}:{}",
            format_count(counts.lines, "record"),
            found.ledger.sha256.short_hex(12)
        ),
    };
    let mut entries = format!("{} compared", format_count(counts.entries, "file"));
    if counts.retired_entries > 0 {
        entries.push_str(&format!(
            ", {} deleted by retention",
            counts.retired_entries
        ));
    }
    let baselines = match (counts.sealed_baselines, counts.unsealed_baselines) {
        (0, 0) => "none to check".to_string(),
        (0, count) => format!("{count} without a seal: integrity is NOT checked"),
        (count, _) => format!("{count} match the seal"),
    };
    let signature = found.signed.as_ref().map_or_else(
        || "no signature was checked".to_string(),
        |signed| {
            format!(
                "signed by {} at {}, serial {}",
                signed.signer.principal,
                signed.meta.time.format("%Y-%m-%d %H:%M"),
                signed.meta.serial
            )
        },
    );
    let log = match found.is_log_valid {
        Some(_) => "its heads are in the ledger",
        None => "no heads logged yet",
    };
    let versions = format!("{} compared", format_count(counts.versions, "file"));
    let is_sealed = counts.sealed_baselines > 0;
    let is_logged = found.is_log_valid.is_some();
    let parts = [
        ("ledger", FindingSubject::Ledger, true, ledger),
        ("log", FindingSubject::Log, is_logged, log.to_string()),
        ("entries", FindingSubject::Entry, true, entries),
        ("versions", FindingSubject::Version, true, versions),
        ("baselines", FindingSubject::Baseline, is_sealed, baselines),
        (
            "signature",
            FindingSubject::Seal,
            found.signed.is_some(),
            signature,
        ),
    ];
    parts
        .into_iter()
        .map(|(name, subject, is_checked, summary)| {
            let about = found.findings.iter().filter(|it| it.subject == subject);
            VerifyRow::Part {
                name,
                findings: about.count(),
                is_checked,
                summary,
            }
        })
        .collect()
}
