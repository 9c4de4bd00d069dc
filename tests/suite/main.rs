//! One integration binary: it links once, and nothing is forgotten.

mod cli;
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
