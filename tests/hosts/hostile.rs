//! Hosts that fail, lie, are late or are attacked: somebody stands between us and
//! OpenSSH's server and does what no server of that kind does.
//!
//! Whatever happens, nothing that an agent wrote is lost, the memory is whole, and
//! the next run with a good server puts everything right.
//!
//! `cargo test` tries a part of the points, `HARNESS=full` all of them.

mod cuts;
pub mod frames;
mod late;
mod lies;
mod looks;
mod others;
mod planted;
mod scene;
