//! Plans and runs: resets, pushes and undos, recovery of interrupted ones, and retention.

pub(super) mod plan;
pub(super) mod planner;
pub(super) mod preconditions;
pub(super) mod push;
pub(super) mod reset;
pub(super) mod retention;
pub(super) mod run_report;
pub(super) mod undo;
