//! Looks at memories: one agent, the fleet, hosts; classifies and scans what it reads.

pub(super) mod classify;
pub(super) mod content_cache;
pub(super) mod degraded;
pub(super) mod fleet;
pub(super) mod host_status;
pub(super) mod irreplaceable;
pub(super) mod kept_objects;
pub(super) mod known_fleet;
pub(super) mod observe;
pub(super) mod observe_fleet;
pub(super) mod parallel;
pub(super) mod saved_observations;
pub(super) mod scan;
pub(super) mod similar_names;
