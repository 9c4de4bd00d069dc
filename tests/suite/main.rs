//! One integration binary.

mod configs;
mod contract;
mod engine;
mod undo;
mod world;
