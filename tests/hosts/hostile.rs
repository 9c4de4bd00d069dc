//! Hosts that fail, send false replies, reply late or are attacked: a filter between the client and
//! OpenSSH's server does what no real server of that kind does.
//!
//! In every case no agent's bytes are lost, the memory is whole, and the next run with a good
//! server recovers.
//!
//! `cargo test` samples the points, `HARNESS=full` tries all of them.

mod delayed_requests;
mod disconnects;
mod false_replies;
pub mod frames;
mod observations;
mod other_machines;
mod planted;
mod scenario;
