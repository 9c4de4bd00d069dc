//! What a text of a baseline would change in the rules of its agents at their next reset.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::base::diff;
use crate::base::digest::Digest;
use crate::engine::baselines::Baselines;

/// What the next reset of an agent would change in its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRuleChange {
    /// No version was pushed to the agent yet.
    NeverPushed,
    /// Numbers of lines against the version that was pushed last; the lines that only the agent
    /// changed do not count.
    Lines {
        /// Lines that the text adds.
        added: usize,
        /// Lines that the text no longer has.
        removed: usize,
    },
}

/// The versions of a baseline that its agents got last.
#[derive(Clone, Debug, Default)]
pub struct PushedVersions {
    by_agent: BTreeMap<String, Option<Digest>>,
    texts: BTreeMap<Digest, Arc<Vec<u8>>>,
}

impl PushedVersions {
    /// Compares a text with what each agent has. Agents whose version cannot be read are left out.
    pub fn compare(&self, text: &[u8], deadline: Instant) -> BTreeMap<String, NextRuleChange> {
        let count = |(digest, old): (&Digest, &Arc<Vec<u8>>)| {
            let (added, removed) = diff::count_changes(old, text, Some(deadline));
            (*digest, NextRuleChange::Lines { added, removed })
        };
        let changes: BTreeMap<Digest, NextRuleChange> = self.texts.iter().map(count).collect();
        let agents = self.by_agent.iter();
        agents
            .filter_map(|(agent, pushed)| {
                let change = match pushed {
                    None => NextRuleChange::NeverPushed,
                    Some(digest) => *changes.get(digest)?,
                };
                Some((agent.clone(), change))
            })
            .collect()
    }
}

impl Baselines {
    /// Returns the versions that the agents of a baseline got last. Agents with an unreadable history
    /// are left out.
    pub fn pushed_versions(&self, baseline: &str) -> PushedVersions {
        let mut found = PushedVersions::default();
        for agent in self.context.config().baseline_users(baseline) {
            let Ok(history) = self.context.history(&agent.name) else {
                continue;
            };
            let pushed = history.pushed_versions.first().copied();
            if let Some(digest) = pushed
                && !found.texts.contains_key(&digest)
                && let Ok(bytes) = self.context.baseline_versions().read_version(digest)
            {
                found.texts.insert(digest, bytes);
            }
            found.by_agent.insert(agent.name.clone(), pushed);
        }
        found
    }
}
