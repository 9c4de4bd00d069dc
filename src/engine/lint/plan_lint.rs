//! The lint of the baselines of a plan.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::LintDecisions;
use crate::baseline::seal::BaselineSeal;
use crate::boundary::Baseline;
use crate::config::Agent;
use crate::digest::Digest;
use crate::engine::Engine;

/// Identifies a baseline version, its separator and the agent that it is allowed for, if the
/// allowlist names agents.
type LintedVersion<'e> = (Digest, &'e str, Option<&'e str>);

/// Lints the baselines of a plan, each version once.
pub(in crate::engine) struct PlanLint<'e> {
    engine: &'e Engine,
    decisions: LintDecisions,
    seal: Option<BaselineSeal>,
    described: Mutex<HashMap<LintedVersion<'e>, Vec<String>>>,
}

impl<'e> PlanLint<'e> {
    /// A plan is not refused because of a lint file: the verb `lint` reports its fault.
    pub(in crate::engine) fn new(engine: &'e Engine) -> PlanLint<'e> {
        PlanLint {
            engine,
            decisions: engine.load_lint_decisions().unwrap_or_default(),
            seal: engine.counted_seal(),
            described: Mutex::default(),
        }
    }

    /// Describes the errors of a baseline that was read already, one a line.
    pub(in crate::engine) fn describe_errors(
        &self,
        agent: &'e Agent,
        baseline: &Baseline,
    ) -> Vec<String> {
        let mut allowances = self.decisions.allowances.iter();
        let is_for_agents = allowances.any(|it| it.agent.is_some());
        let name = is_for_agents.then_some(agent.name.as_str());
        let key = (baseline.digest(), agent.separator.as_str(), name);
        if let Some(described) = self.described().get(&key) {
            return described.clone();
        }
        let text = baseline.bytes();
        let seal = self.seal.as_ref();
        let sealed = seal.and_then(|it| it.expected_digest(&agent.baseline));
        let sealed_version = sealed.filter(|it| *it == baseline.digest());
        let findings = self.engine.baseline_errors(
            &agent.baseline,
            Some(agent),
            text,
            sealed_version.map(|_| text.to_vec()),
            &self.decisions,
        );
        let described = findings.iter().map(|it| format!("lint {}", it.summary()));
        let described: Vec<String> = described.collect();
        self.described().insert(key, described.clone());
        described
    }

    fn described(&self) -> MutexGuard<'_, HashMap<LintedVersion<'e>, Vec<String>>> {
        self.described
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
