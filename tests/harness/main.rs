//! The safety promises under faults: the real binary is killed, made to fail, raced and attacked
//! from outside, and then the files on the disk are checked.
//!
//! `cargo test` runs a fast subset of each harness; `HARNESS=full` runs them whole. Each prints
//! what it tried.

// A failed check panics, and each harness prints its figures.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]

mod archive;
mod call_counts;
mod compaction;
mod concurrent_runs;
mod crash;
mod directories;
mod drover;
// Shared with the other test binaries, which use all of it.
#[allow(dead_code)]
#[path = "../support/drover_entries.rs"]
mod drover_entries;
#[path = "../support/earlier.rs"]
mod earlier;
#[path = "../support/edited_files.rs"]
mod edited_files;
mod edits;
#[path = "../support/fake_time.rs"]
mod fake_time;
mod faults;
mod file_edits;
mod fixture;
mod flush_order;
mod full_archive;
#[path = "../support/full_harness.rs"]
mod full_harness;
mod hostile;
mod hung;
mod in_place;
mod index;
mod kernel;
mod leases;
mod ledger;
mod month;
mod mounts;
mod overlap;
mod overlay;
mod power;
mod processes;
mod quarantine;
mod races;
mod repeated;
mod scale;
mod scene;
mod seal;
mod settling;
#[path = "../support/sftp_hosts.rs"]
mod sftp_hosts;
#[path = "../support/skip.rs"]
mod skip;
mod strace;
// Shared with the other test binaries, which use all of it.
#[allow(dead_code)]
#[path = "../support/terminal.rs"]
mod terminal;
mod writers;
