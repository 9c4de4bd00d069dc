//! What is known of the whole fleet before its agents are observed.

use std::collections::HashSet;

use crate::base::digest::Digest;
use crate::base::error::Result;
use crate::config::Agent;
use crate::engine::context::Context;
use crate::store::agent_history::AgentHistory;
use crate::store::lease::LeaseSurvey;

/// What is known of the whole fleet before its agents are observed.
pub(in crate::engine) struct KnownFleet {
    /// The agents that had journals.
    pub journaled: HashSet<String>,
    /// Who works on the agents.
    pub leases: Box<dyn LeaseSurvey>,
    /// The last record of the ledger, up to which histories are known.
    pub ledger_head: Result<(u64, Digest)>,
}

impl KnownFleet {
    pub fn history(&self, context: &Context, agent: &Agent) -> Result<AgentHistory> {
        self.ledger_head.clone()?;
        context.ledger().known_history(&agent.name)
    }
}
