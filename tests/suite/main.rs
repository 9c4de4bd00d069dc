//! One integration binary.

mod configs;
mod contract;
mod crashes;
mod engine;
mod undo;
mod world;
mod writers;
