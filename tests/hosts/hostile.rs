//! Hosts that fail, lie, are late or are attacked: somebody stands between us and
//! OpenSSH's server and does what no server of that kind does.
//!
//! Whatever happens, nothing that an agent wrote is lost, the memory is whole, and
//! the next run with a good server puts everything right.
//!
//! `cargo test` tries a part of the points, `HARNESS=full` all of them.

mod delayed_requests;
mod disconnects;
mod false_replies;
pub mod frames;
mod observations;
mod other_machines;
mod planted;
mod scenario;
