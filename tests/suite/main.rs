//! One integration binary: it links once, and nothing is forgotten.

mod architecture;
mod cli;
mod configs;
mod console_bytes;
mod console_fleet;
mod console_pty;
mod console_update;
mod contract;
mod crashes;
mod demo;
mod engine;
mod fixture;
mod screenshots;
mod terminal;
mod undo;
mod world;
mod writers;
