//! An agent in the queue of a lane.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::runs::plan::PlanStep;
use crate::store::agent_history::FailedAttempt;
use crate::store::lease::Lease;

/// An agent that waits for its turn.
pub(super) struct QueuedTurn<'a> {
    pub(super) step: &'a PlanStep,
    pub(super) lock: Option<Arc<dyn Lease>>,
    pub(super) attempts: usize,
    /// Since when its memory is known to be under a lease.
    pub(super) leased_since: Option<Instant>,
    /// Whether it takes its steps alone, after all others: the disk was full beside them.
    pub(super) is_alone: bool,
    /// What its earlier attempt in this run archived.
    pub(super) failed_attempt: Option<FailedAttempt>,
}
