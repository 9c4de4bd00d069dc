//! Baselines as their operator works with them: known versions, edits, saves, the seal, the guard and
//! the lint.

pub(super) mod accepted_seal;
pub(super) mod catalog;
pub(super) mod change;
pub(super) mod drafts;
pub(super) mod file;
pub(super) mod guard;
pub(super) mod lint;
pub(super) mod opening;
pub(super) mod plan;
pub(super) mod replacement;
pub(super) mod rule_change;
pub(super) mod save;
pub(super) mod saved_versions;
pub(super) mod seal;
pub(super) mod seal_plan;
