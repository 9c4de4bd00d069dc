//! What happens while no operator is watching: scheduled resets, alerts, metrics.
//!
//! | module | purpose |
//! |---|---|
//! | [`schedule`] | scheduled resets: units of systemd, their state, pauses and skips |
//! | [`alerts`] | events that operators are told of: raised once, delivered within bounds |
//! | [`metrics`] | states and sizes of a fleet for Prometheus |

pub mod alerts;
pub mod metrics;
pub mod schedule;
