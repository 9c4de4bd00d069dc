//! The lint of what a plan installs: baselines, and the scratch that a push keeps.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::LintDecisions;
use crate::base::digest::Digest;
use crate::baseline::seal::BaselineSeal;
use crate::boundary::Baseline;
use crate::config::Agent;
use crate::engine::baselines::Lint;
use crate::lint::{Finding, FleetFacts, LintInput, Severity, TextRole, lint};

/// Identifies a baseline version, its separator and the agent that it is allowed for, if the
/// allowlist names agents.
type LintedVersion<'e> = (Digest, &'e str, Option<&'e str>);

/// Lints the baselines of a plan, each version once.
pub(in crate::engine) struct PlanLint<'e> {
    lint: &'e Lint,
    decisions: LintDecisions,
    seal: Option<BaselineSeal>,
    described: Mutex<HashMap<LintedVersion<'e>, Vec<String>>>,
}

impl<'e> PlanLint<'e> {
    /// A plan is not refused because of a lint file: the verb `lint` reports its fault.
    pub(in crate::engine) fn new(lint: &'e Lint) -> PlanLint<'e> {
        PlanLint {
            lint,
            decisions: lint.load_lint_decisions().unwrap_or_default(),
            seal: lint.counted_seal(),
            described: Mutex::default(),
        }
    }

    /// Describes the findings of a baseline that was read already: each error on a line, and the
    /// warnings together on one.
    pub(in crate::engine) fn describe_baseline(
        &self,
        agent: &'e Agent,
        baseline: &Baseline,
    ) -> Vec<String> {
        let mut allowances = self.decisions.allowances.iter();
        let is_for_agents = allowances.any(|it| it.agent.is_some());
        let name = is_for_agents.then_some(agent.name.as_str());
        let key = (baseline.digest(), agent.separator(), name);
        if let Some(described) = self.described().get(&key) {
            return described.clone();
        }
        let text = baseline.bytes();
        let seal = self.seal.as_ref();
        let file = agent.baseline().unwrap_or_default();
        let sealed = seal.and_then(|it| it.expected_digest(file));
        let sealed_version = sealed.filter(|it| *it == baseline.digest());
        let findings = self.lint.baseline_findings(
            file,
            Some(agent),
            text,
            sealed_version.map(|_| text.to_vec()),
            &self.decisions,
        );
        let described = describe_findings(&findings);
        self.described().insert(key, described.clone());
        described
    }

    /// Describes the errors in scratch that a push keeps below `head`, each on a line.
    pub(in crate::engine) fn describe_kept_scratch(
        &self,
        agent: &Agent,
        head: &[u8],
        kept: &[u8],
    ) -> Vec<String> {
        let text = [head, kept].concat();
        let input = LintInput {
            agent: Some(&agent.name),
            path: &agent.observed_path().to_string_lossy(),
            text: &text,
            role: TextRole::Memory {
                scratch_start: head.len(),
                is_intact: true,
            },
            separator: agent.separator(),
            facts: &FleetFacts::default(),
        };
        let settings = self.lint.lint_settings(Some(agent), &self.decisions);
        let findings = lint(&input, &settings).findings.into_iter();
        let errors = findings.filter(|it| it.severity == Severity::Error);
        errors
            .map(|it| format!("lint of the kept scratch {}", it.summary()))
            .collect()
    }

    fn described(&self) -> MutexGuard<'_, HashMap<LintedVersion<'e>, Vec<String>>> {
        self.described
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Describes findings: each error on a line, and the warnings together on one.
pub(in crate::engine) fn describe_findings(findings: &[Finding]) -> Vec<String> {
    let of = |severity: Severity| findings.iter().filter(move |it| it.severity == severity);
    let errors = of(Severity::Error).map(|it| format!("lint {}", it.summary()));
    let warnings: Vec<&str> = of(Severity::Warning).map(|it| it.rule_row().id).collect();
    let warnings = match warnings.len() {
        0 => None,
        1 => Some(format!("lint: 1 warning, {}", warnings[0])),
        count => Some(format!("lint: {count} warnings, {}", warnings.join(" "))),
    };
    errors.chain(warnings).collect()
}
