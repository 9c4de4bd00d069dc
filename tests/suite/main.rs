//! One integration binary: it links once, and nothing is forgotten.

// A test stops where it must not go on, and says what it measured.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]

mod account;
mod architecture;
mod cli;
mod configs;
mod console_bytes;
mod console_fleet;
mod console_pty;
mod console_update;
mod console_views;
mod contract;
mod crashes;
mod demo;
mod disk;
mod engine;
mod fixture;
mod fleet;
mod fuzz;
mod ledger;
mod original;
mod regressions;
mod remote;
mod screenshots;
mod servers;
mod terminal;
mod undo;
mod world;
mod writers;
