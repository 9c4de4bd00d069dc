//! One integration binary: it links once, and nothing is forgotten.

mod configs;
mod contract;
mod crashes;
mod engine;
mod screenshots;
mod undo;
mod world;
mod writers;
