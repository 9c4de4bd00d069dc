//! One integration binary: it links once, and nothing is forgotten.

<<<<<<< HEAD
mod cli;
=======
// Clippy takes only functions marked as tests for tests; all of this is one.
#![allow(clippy::expect_used, clippy::print_stdout, clippy::unwrap_used)]

>>>>>>> engine-tests
mod configs;
mod contract;
mod crashes;
mod demo;
mod engine;
mod fixture;
mod screenshots;
mod undo;
mod world;
mod writers;
