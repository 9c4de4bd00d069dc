//! `doctor`.
use super::{Context, Ended};
impl Context<'_> {
    pub(super) fn doctor(&mut self) -> Ended {
        Ok(None)
    }
}
