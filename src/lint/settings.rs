//! Settings of the lint: limits, profiles and what the operator has decided about findings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::NaiveDate;
use serde::Deserialize;

use super::rule::{RuleId, Severity};
use super::words::Words;

/// Settings for one agent's files.
#[derive(Clone, Debug)]
pub struct LintSettings {
    /// Bytes; a smaller baseline is not pushed.
    pub min_baseline_size: u64,
    /// Bytes; a larger memory is too large.
    pub max_memory_size: u64,
    /// Whether small baselines are meant to be small.
    pub is_tiny: bool,
    /// Whether the fleet writes right-to-left scripts.
    pub is_right_to_left: bool,
    /// Whether the agent writes notes into the file. A file that is not shared is overwritten whole,
    /// and needs no separator.
    pub is_shared: bool,
    /// Rules that are not checked.
    pub ignored_rules: BTreeSet<RuleId>,
    /// Severities that replace the usual ones.
    pub severities: BTreeMap<RuleId, Severity>,
    /// Findings that the operator allows.
    pub allowances: Arc<[Allowance]>,
    /// Fingerprints of findings that are known and not reported again.
    pub accepted_findings: Arc<BTreeSet<String>>,
    /// The words that rules look for.
    pub words: Arc<Words>,
    /// Today, for allowances that expire.
    pub today: NaiveDate,
}

impl Default for LintSettings {
    fn default() -> LintSettings {
        LintSettings {
            min_baseline_size: 1000,
            max_memory_size: 16384,
            is_tiny: false,
            is_right_to_left: false,
            is_shared: true,
            ignored_rules: BTreeSet::new(),
            severities: BTreeMap::new(),
            allowances: Arc::new([]),
            accepted_findings: Arc::default(),
            words: Words::built_in(),
            today: NaiveDate::MIN,
        }
    }
}

impl LintSettings {
    /// Returns whether a rule is not checked.
    pub(super) fn ignores(&self, rule: RuleId) -> bool {
        self.ignored_rules.contains(&rule)
    }

    pub(super) fn severity_of(&self, rule: RuleId) -> Option<Severity> {
        self.severities.get(&rule).copied()
    }
}

/// An entry of the allowlist: a finding that the operator allows, why, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// Number or name of the rule.
    pub rule: String,
    /// The agent that it is for; all agents by default.
    pub agent: Option<String>,
    /// Text on the line of the finding.
    pub text: Option<String>,
    /// The finding's fingerprint, instead of a text.
    pub fingerprint: Option<String>,
    /// Why it is allowed.
    pub reason: String,
    /// The last day on which it counts.
    pub expires: Option<NaiveDate>,
}

impl Allowance {
    /// Returns whether it counts on a day.
    pub fn is_valid_on(&self, day: NaiveDate) -> bool {
        self.expires.is_none_or(|last| day <= last)
    }
}
