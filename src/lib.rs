//! memory-shepherd: the library below its console and its command line.
//!
//! | module | what it is for |
//! |---|---|
//! | [`config`] | reads `memory-shepherd.conf`, with every mistake at once |
//! | [`engine`] | observes agents, plans and applies resets and undos, keeps the ledger |
//! | [`transport`] | where memories live: a contract, the local disk, other hosts over SFTP, a fake for tests |
//! | [`baseline`] | what is pushed, checked before use; its versions; the seal |
//! | [`archive`] | entries: what was taken out of memories |
//! | [`diff`] | line and word differences, pure |
//! | [`untrusted`] | the one way foreign bytes become visible text |
//! | [`console`] | the screens: a pure model and update, a view, and the wiring |
//! | [`cli`] | the verbs, and two printers: text and JSON |
//! | [`debug_log`] | what the program does, for an engineer; off by default |
//! | [`demo`] | the example fleet, with a host of its own |
//! | [`error`], [`digest`], [`clock`], [`secret`], [`invocation`] | words that all of them use |
//!
//! Dependency rules, kept by `tests/suite/architecture.rs`: the modules above
//! know neither console nor command line nor the crates these are made of; only
//! `console/terminal` and `cli/output.rs` write escape codes; only `demo/host.rs` and
//! what is below it name tokio and the crates of SSH; nothing reads the home
//! directory, the environment or the clock by itself, `main` passes them in.

pub mod archive;
pub mod baseline;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
pub mod debug_log;
pub mod demo;
pub mod diff;
pub mod digest;
mod durable;
pub mod engine;
pub mod error;
pub mod file_systems;
pub mod invocation;
pub mod secret;
#[cfg(test)]
#[path = "../tests/suite/skip.rs"]
mod skip;
mod sys;
pub mod transport;
pub mod untrusted;
