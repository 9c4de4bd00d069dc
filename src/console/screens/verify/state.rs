//! Verify screen: the last verification of ledger, archive, baselines and seal, and its rows.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};

use crate::base::digest::Digest;
use crate::base::quantity::format_count;
use crate::console::screens::baselines::state::BaselinesScreen;
use crate::console::widgets::list_pane::{KeyedRow, ListPane};
use crate::engine::{BaselineList, BaselineState, FindingSubject, Verification, VerifyProgress};

/// Verify screen.
#[derive(Clone, Debug, Default)]
pub struct VerifyScreen {
    /// State of the verification.
    pub stage: VerifyStage,
    /// Position in the rows.
    pub list: ListPane<VerifyRow>,
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
    /// Digests of the baselines right after it.
    pub listed: Option<BTreeMap<String, Option<Digest>>>,
    /// Whether baselines have been written since.
    pub is_outdated: bool,
}

impl VerifyResult {
    /// Compares a new list of the baselines with the first one after the verification.
    pub fn follow_list(&mut self, list: &BaselineList) {
        let all = list.baselines.iter();
        let now: BTreeMap<_, _> = all.map(|it| (it.name.clone(), it.sha256)).collect();
        self.is_outdated |= *self.listed.get_or_insert_with(|| now.clone()) != now;
    }
}

/// A row of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyRow {
    /// A part of the verification.
    Part {
        /// Name of the part.
        name: &'static str,
        /// Its result.
        result: PartResult,
        /// What was checked.
        summary: String,
    },
    /// Why nothing could be verified.
    Failure(String),
    /// A finding, by its index.
    Finding(usize),
    /// A remark that is not a failure.
    Note(String),
    /// A baseline, by its name.
    Baseline(String),
}

impl KeyedRow<VerifyRow> for VerifyRow {
    fn key(&self) -> VerifyRow {
        self.clone()
    }
}

/// Result of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartResult {
    /// All of it was checked, and nothing is wrong.
    Ok,
    /// Nothing is wrong with what was checked.
    Partial,
    /// There was nothing to check.
    Unchecked,
    /// Its number of findings.
    Failed(usize),
}

impl PartResult {
    /// Returns the word for it.
    pub fn word(self) -> String {
        match self {
            PartResult::Ok => "ok".to_string(),
            PartResult::Partial => "partly".to_string(),
            PartResult::Unchecked => "none".to_string(),
            PartResult::Failed(count) => format!("FAIL {count}"),
        }
    }
}

impl VerifyScreen {
    /// Returns why nothing could be verified, if so.
    pub fn failure(&self) -> Option<String> {
        match &self.stage {
            VerifyStage::Done(result) => result.outcome.as_ref().err().cloned(),
            _ => None,
        }
    }

    /// Returns the verification, if there is one.
    pub fn verification(&self) -> Option<&Verification> {
        match &self.stage {
            VerifyStage::Done(result) => result.outcome.as_ref().ok(),
            _ => None,
        }
    }

    /// Whether a verification runs that the operator has not stopped yet.
    pub fn can_cancel(&self) -> bool {
        matches!(
            self.stage,
            VerifyStage::Running {
                is_cancelled: false,
                ..
            }
        )
    }

    /// Whether a verification runs.
    pub fn is_running(&self) -> bool {
        matches!(self.stage, VerifyStage::Running { .. })
    }

    /// Returns the rows: why it failed or the findings first, then the parts, the remarks, and the
    /// baselines.
    pub fn rows(&self, baselines: &BaselinesScreen) -> Vec<VerifyRow> {
        let mut rows = Vec::new();
        rows.extend(self.failure().map(VerifyRow::Failure));
        if let Some(found) = self.verification() {
            rows.extend((0..found.findings.len()).map(VerifyRow::Finding));
            rows.extend(part_rows(found));
            rows.extend(found.notes.iter().cloned().map(VerifyRow::Note));
        }
        let names = baselines.summaries().iter().map(|it| it.name.clone());
        rows.extend(names.map(VerifyRow::Baseline));
        rows
    }

    /// Returns the row under the cursor.
    pub fn current_row(&self, baselines: &BaselinesScreen) -> Option<VerifyRow> {
        let mut rows = self.rows(baselines);
        let cursor = self.list.cursor_in(&rows[..]);
        (cursor < rows.len()).then(|| rows.swap_remove(cursor))
    }

    /// Returns the baseline that the row under the cursor is about.
    pub fn subject<'b>(&self, baselines: &'b BaselinesScreen) -> Option<&'b str> {
        let name = match self.current_row(baselines)? {
            VerifyRow::Baseline(name) => name,
            VerifyRow::Finding(index) => {
                let finding = self.verification()?.findings.get(index)?;
                finding.baseline.clone()?
            }
            VerifyRow::Failure(_) | VerifyRow::Part { .. } | VerifyRow::Note(_) => return None,
        };
        baselines.find(&name).map(|it| it.name.as_str())
    }

    /// Returns the report of the verification as text, for the clipboard and the pager.
    pub fn report(&self, baselines: &BaselinesScreen) -> Option<String> {
        if let Some(why) = self.failure() {
            return Some(format!("FAIL   {why}\n"));
        }
        let found = self.verification()?;
        let mut text = String::new();
        for row in part_rows(found) {
            if let VerifyRow::Part {
                name,
                result,
                summary,
            } = row
            {
                let word = result.word();
                text.push_str(&format!("{word:<6} {name:<10} {summary}\n"));
            }
        }
        for finding in &found.findings {
            text.push_str(&format!("FAIL   {}\n", finding.message));
            for hint in &finding.hints {
                text.push_str(&format!("       hint: {hint}\n"));
            }
        }
        for note in &found.notes {
            text.push_str(&format!("note   {note}\n"));
        }
        for summary in baselines.summaries() {
            if summary.state == BaselineState::Ok {
                continue;
            }
            let owner = summary.owner.map(|owner| owner.describe());
            let digest =
                |digest: Option<Digest>| digest.map_or("none".to_string(), |it| it.to_string());
            text.push_str(&format!(
                "{:<22} {}\n      sealed {}, on disk {}\n",
                summary.state.as_str(),
                summary.name,
                digest(summary.sealed),
                digest(summary.sha256)
            ));
            text.extend(owner.map(|owner| format!("      {owner}\n")));
        }
        Some(text)
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
    let log = found.describe_log().to_string();
    let versions = format!("{} compared", format_count(counts.versions, "file"));
    let checked = |is_checked: bool| {
        if is_checked {
            PartResult::Ok
        } else {
            PartResult::Unchecked
        }
    };
    let is_logged = checked(found.is_log_valid.is_some());
    let is_signed = checked(found.signed.is_some());
    let are_sealed = match (counts.sealed_baselines, counts.unsealed_baselines) {
        (0, _) => PartResult::Unchecked,
        (_, 0) => PartResult::Ok,
        _ => PartResult::Partial,
    };
    let baselines = found.describe_baselines();
    let parts = [
        ("ledger", FindingSubject::Ledger, PartResult::Ok, ledger),
        ("log", FindingSubject::Log, is_logged, log),
        ("entries", FindingSubject::Entry, PartResult::Ok, entries),
        (
            "versions",
            FindingSubject::Version,
            PartResult::Ok,
            versions,
        ),
        ("baselines", FindingSubject::Baseline, are_sealed, baselines),
        ("seal", FindingSubject::Seal, is_signed, signature),
    ];
    let rows = parts.into_iter().map(|(name, subject, result, summary)| {
        let about = found.findings.iter().filter(|it| it.subject == subject);
        VerifyRow::Part {
            name,
            result: match about.count() {
                0 => result,
                count => PartResult::Failed(count),
            },
            summary,
        }
    });
    rows.collect()
}
