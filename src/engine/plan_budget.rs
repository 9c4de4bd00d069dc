//! The memory that a plan over several baselines may take.

use crate::base::diff;
use crate::base::error::{Error, ErrorKind, Result};

/// Maximum number of bytes that the files of a plan and the comparisons of these take together. A
/// thousand usual baselines fit.
const MAX_PLAN_BYTES: usize = 256 << 20;

/// Bytes that a file of a plan takes beside its texts.
const PLANNED_FILE_BYTES: usize = 4 << 10;

/// The memory that is left for a plan over several baselines.
#[derive(Debug, Default)]
pub(super) struct PlanBudget {
    spent: usize,
}

impl PlanBudget {
    /// Counts a file with its texts before and after, and what it takes to compare them.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`]: the plan would have more than [`MAX_PLAN_BYTES`].
    pub(super) fn spend(&mut self, before: &[u8], after: &[u8]) -> Result<()> {
        self.spent += diff::estimate_memory(before, after) + PLANNED_FILE_BYTES;
        if self.spent <= MAX_PLAN_BYTES {
            return Ok(());
        }
        let message = "the changed baselines are too large to be compared at once";
        Err(Error::new(ErrorKind::Conflict, message).with_hint("name the files, a few at a time"))
    }
}
