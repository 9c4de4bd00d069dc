//! Known health: what the last check of a memory of several files found, in numbers and with its worst
//! finding. A check reads all files, so it is repeated rarely, and its result is kept.

use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};
use serde::{Deserialize, Serialize};

use crate::base::quantity::format_count;
use crate::layouts::{HealthFinding, HealthSeverity};

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownHealth {
    /// When the memory was checked.
    #[serde(rename = "checked")]
    pub checked_at: DateTime<FixedOffset>,
    /// Number of findings that are errors.
    pub errors: usize,
    /// Number of findings that are warnings.
    pub warnings: usize,
    /// The worst finding that is an error or a warning: the name of its check, and what it is about.
    pub worst: Option<String>,
}

/// The results of the last checks, by [`Agent::layout_memory_id`](crate::config::Agent::layout_memory_id):
/// another directory is another memory.
pub type KnownHealthByMemory = BTreeMap<String, KnownHealth>;

impl KnownHealth {
    /// Counts the findings of a check.
    pub fn of_findings(findings: &[HealthFinding], now: DateTime<FixedOffset>) -> KnownHealth {
        let count = |severity| {
            let found = findings.iter().filter(|it| it.severity == severity);
            found.count()
        };
        let bad = findings
            .iter()
            .filter(|it| it.severity > HealthSeverity::Info);
        // Of several, the first.
        let worst = bad.rev().max_by_key(|it| it.severity).map(|finding| {
            let path = finding.path.as_ref().map(|it| it.display().to_string());
            let subject = path.or_else(|| finding.id.clone()).unwrap_or_default();
            format!("{} {subject}", finding.check)
                .trim_end()
                .to_string()
        });
        KnownHealth {
            checked_at: now,
            errors: count(HealthSeverity::Error),
            warnings: count(HealthSeverity::Warning),
            worst,
        }
    }

    /// Whether the check found an error.
    pub fn is_ill(&self) -> bool {
        self.errors > 0
    }

    /// Whether two checks found the same.
    pub fn has_same_result(&self, other: &KnownHealth) -> bool {
        let result = |it: &KnownHealth| (it.errors, it.warnings, it.worst.clone());
        result(self) == result(other)
    }

    /// Describes it: the numbers and the worst finding, such as `2 errors, 1 warning: unloadable
    /// global/X.md`.
    pub fn describe(&self) -> String {
        let count = |count: usize, noun| (count > 0).then(|| format_count(count as u64, noun));
        let counts = [count(self.errors, "error"), count(self.warnings, "warning")];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        match &self.worst {
            Some(worst) => format!("{}: {worst}", counts.join(", ")),
            None => "healthy".to_string(),
        }
    }
}

/// Parses the kept results; text that is none has none.
pub fn parse_known_health(text: &[u8]) -> KnownHealthByMemory {
    serde_json::from_slice(text).unwrap_or_default()
}
