//! One integration binary.

mod configs;
mod engine;
mod world;
