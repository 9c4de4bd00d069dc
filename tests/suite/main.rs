//! One integration binary.

// Clippy takes only functions marked as tests for tests; all of this is one.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]

mod account;
mod configs;
mod contract;
mod crashes;
mod disk;
mod engine;
mod fleet;
mod original;
mod undo;
mod world;
mod writers;
