//! The promises under fire: the real program is killed, failed, raced and
//! attacked from outside, and what is on the disk afterwards is counted.
//!
//! `cargo test` runs a fast subset of each harness; `HARNESS=full` runs them
//! whole. Each prints what it tried.

// A harness stops where it must not go on, and says what it tried.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]

mod archive;
mod call_counts;
mod crash;
mod directories;
#[path = "../suite/earlier.rs"]
mod earlier;
mod faults;
mod fixture;
mod flush_order;
mod hostile;
mod hung;
mod in_place;
mod kernel;
mod leases;
mod ledger;
mod mounts;
mod overlap;
mod overlay;
mod power;
mod races;
mod scene;
mod settling;
#[path = "../suite/skip.rs"]
mod skip;
// What a terminal shows, as the other test binary reads it.
mod concurrent_runs;
mod processes;
mod strace;
#[allow(dead_code)]
#[path = "../suite/terminal.rs"]
mod terminal;
mod writers;
