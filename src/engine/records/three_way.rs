//! Three versions of an agent's rules: as pushed last, as the baseline is now, and as the memory is
//! now; and how much agents drifted at earlier runs. Changes nothing.

use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use crate::base::diff::drift::{self, ThreeWay};
use crate::base::diff::{MAX_COMPARED_LINES, count_lines};
use crate::base::digest::Digest;
use crate::base::error::{Error, ErrorKind, Result};
use crate::boundary::with_line_ends_of;
use crate::config::Agent;
use crate::engine::records::RunHistory;

/// Time limit of each of the two comparisons; after it, they are coarser.
const COMPARISON_TIMEOUT: Duration = Duration::from_secs(2);

/// Three versions of an agent's rules.
#[derive(Clone, Debug)]
pub struct RuleComparison {
    /// The version that was pushed last; without one, the version that the memory has stands in for it,
    /// or else the baseline.
    pub pushed: Option<Digest>,
    /// The baseline.
    pub baseline: Digest,
    /// Whether a boundary was found; otherwise all of the memory counts as rules.
    pub has_boundary: bool,
    /// The comparison.
    pub rules: ThreeWay,
}

/// How far a memory had drifted when a run replaced it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriftPoint {
    /// End of the run.
    pub time: DateTime<FixedOffset>,
    /// The run.
    pub run: String,
    /// Lines above the boundary that the agent had added.
    pub added: usize,
    /// Lines that it had removed there.
    pub removed: usize,
}

impl RunHistory {
    /// Compares the rules that were pushed to an agent last with those of the baseline and those in
    /// the memory now.
    ///
    /// # Errors
    /// The memory or the baseline cannot be read, or has too many lines.
    pub fn compare_rules(&self, agent: &Agent) -> Result<RuleComparison> {
        let baselines = Mutex::new(self.baselines.baseline_cache());
        let seen = self.observer.observe_with_bytes(agent, &baselines);
        let Some(baseline) = &seen.baseline else {
            let refusal = self.baselines.baseline_cache().load(agent).err();
            let error = refusal.map(|refusal| refusal.error().clone());
            return Err(error
                .unwrap_or_else(|| Error::new(ErrorKind::Internal, "the baseline was not read")));
        };
        let Some(content) = &seen.observation.content else {
            let message = format!(
                "cannot read the memory of {}: {}",
                agent.name, seen.observation.reason
            );
            return Err(match &seen.observation.blocker {
                Some(blocker) => blocker.to_error(message),
                None => Error::new(ErrorKind::Host, message),
            });
        };
        let (pushed, boundary) = (seen.pushed_version, content.boundary);
        let known = pushed.or_else(|| boundary?.rule.behind_version());
        let version = known.and_then(|version| self.baselines.load_version(agent, version));
        let old = version.as_ref().unwrap_or(baseline.as_ref());
        let above = boundary.map_or(&*seen.prefix, |it| it.split(&seen.prefix).0);
        let [old_rules, new_rules] =
            [old, baseline].map(|it| with_line_ends_of(it.operator_part(), above));
        let texts = [&*old_rules, &*new_rules, above];
        if texts.iter().map(|it| count_lines(it)).sum::<usize>() > MAX_COMPARED_LINES {
            let message = format!(
                "the rules of {} have more than {MAX_COMPARED_LINES} lines in all versions \
                 together, which are not compared",
                agent.name
            );
            return Err(Error::new(ErrorKind::Host, message));
        }
        let deadline = self.context.clock().instant() + COMPARISON_TIMEOUT;
        Ok(RuleComparison {
            pushed: pushed.filter(|_| version.is_some()),
            baseline: baseline.digest(),
            has_boundary: content.boundary.is_some(),
            rules: drift::compare_three_ways(&old_rules, &new_rules, above, Some(deadline)),
        })
    }

    /// Returns how far an agent had drifted at its last runs, at most `max_runs`, oldest first.
    ///
    /// # Errors
    /// The ledger cannot be read, or its chain is broken.
    pub fn drift_history(&self, agent: &str, max_runs: usize) -> Result<Vec<DriftPoint>> {
        let runs = self.agent_history(agent, max_runs)?.entries;
        let points = runs.into_iter().rev().filter_map(|entry| {
            let event = entry.record.event;
            let boundary = event.boundary.filter(|_| event.has_changed_memory())?;
            Some(DriftPoint {
                time: entry.record.time,
                added: boundary.added_lines,
                removed: boundary.removed_lines,
                run: event.run,
            })
        });
        Ok(points.collect())
    }
}
