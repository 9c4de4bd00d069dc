//! Numbers of findings of a list of baselines: the seal is read once for all of them, and a baseline
//! is checked again only when its text or a fact that the lint needs has changed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::{BaselineLint, LintDecisions, LintSources};
use crate::base::digest::{Digest, Hasher};
use crate::engine::baselines::Lint;
use crate::lint::{Finding, Severity};

/// Numbers of the lint's findings in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FindingCounts {
    /// Errors.
    pub errors: usize,
    /// Warnings.
    pub warnings: usize,
}

impl FindingCounts {
    /// Counts the findings of a file.
    pub fn of(findings: &[Finding]) -> FindingCounts {
        let count = |severity| findings.iter().filter(|it| it.severity == severity).count();
        FindingCounts {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
        }
    }
}

/// The last numbers of each baseline, by its name, with the digest of what they came from.
#[derive(Debug, Default)]
pub(in crate::engine) struct FindingCountCache {
    counts: Mutex<HashMap<String, (Digest, FindingCounts)>>,
}

/// Counts the findings of the baselines of one list.
pub(in crate::engine) struct FindingCounter<'e> {
    lint: &'e Lint,
    decisions: LintDecisions,
    sources: LintSources,
    counted: HashMap<String, (Digest, FindingCounts)>,
}

impl Lint {
    /// Begins a list; none where the decisions of `[lint]` cannot be read, which the lint reports.
    pub(in crate::engine) fn start_finding_counts(&self) -> Option<FindingCounter<'_>> {
        Some(FindingCounter {
            lint: self,
            decisions: self.load_lint_decisions().ok()?,
            sources: LintSources::new(self.counted_seal()),
            counted: HashMap::new(),
        })
    }
}

impl FindingCounter<'_> {
    /// Counts the findings in the text of a baseline.
    pub(in crate::engine) fn count(&mut self, name: &str, text: &[u8]) -> FindingCounts {
        let service = self.lint;
        let user = service
            .context
            .config()
            .baseline_users(name)
            .into_iter()
            .next();
        let lint = service.lint_beside_versions(name, user, &self.decisions, &self.sources);
        let inputs = digest_inputs(&lint, &self.decisions, text);
        let cache = &service.finding_counts.counts;
        let cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache.get(name).filter(|(digest, _)| *digest == inputs);
        let known = known.map(|(_, counts)| *counts);
        drop(cache);
        let counts = known.unwrap_or_else(|| FindingCounts::of(&lint.lint(text).findings));
        self.counted.insert(name.to_string(), (inputs, counts));
        counts
    }

    /// Ends the list: of names that it does not have, nothing is kept.
    pub(in crate::engine) fn finish(self) {
        let cache = &self.lint.finding_counts.counts;
        *cache.lock().unwrap_or_else(PoisonError::into_inner) = self.counted;
    }
}

/// Returns the digest of everything that decides findings and can change while the config stays.
fn digest_inputs(lint: &BaselineLint, decisions: &LintDecisions, text: &[u8]) -> Digest {
    let facts = &lint.facts;
    let digest = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(Digest::of);
    let versions = (digest(&facts.sealed_version), digest(&facts.pushed_version));
    let mut hasher = Hasher::default();
    let inputs = (
        Digest::of(text),
        versions,
        decisions.source,
        lint.settings.today,
    );
    hasher.update(format!("{inputs:?}").as_bytes());
    hasher.finish()
}
