//! memory-shepherd: the library below its console and its command line.
//!
//! | module | purpose |
//! |---|---|
//! | [`console`] | the screens: a pure model and update, a view, and the event loop |
//! | [`cli`] | the command-line verbs, and two printers: text and JSON |
//! | [`demo`] | the example fleet, with a host of its own |
//! | [`unattended`] | scheduled resets, alerts, metrics |
//! | [`engine`] | observes agents, plans and applies resets and undos, keeps the ledger |
//! | [`transport`] | access to memory files: the contract, the local disk, other hosts over SFTP |
//! | [`baseline`] | baselines: loading and checking, versions, the seal |
//! | [`archive`] | archive entries: what resets took out of memories |
//! | [`lint`] | rules about baselines and memories, pure |
//! | [`boundary`] | finds where in a memory the baseline part ends, pure |
//! | [`config`] | reads `memory-shepherd.conf` and reports every mistake at once |
//! | [`base`] | durable files, time, digests, foreign text, errors: what all of them use |
//!
//! `examples/embed.rs` shows the engine in another program: a configuration in code, a reset, its undo.
//!
//! Dependency rules, checked by `tests/suite/architecture.rs`: the modules above know neither
//! console nor command line nor the crates that these use; only `console/shell/terminal` and
//! `cli/output.rs` write escape codes; only `demo/host.rs` and the modules below it name tokio and
//! the SSH crates; no module reads the home directory, the environment or the clock by itself:
//! `main` passes them in.

pub mod archive;
pub mod base;
pub mod baseline;
pub mod boundary;
pub mod cli;
pub mod config;
pub mod console;
#[cfg(feature = "demo")]
pub mod demo;
pub mod engine;
pub mod lint;
pub mod transport;
pub mod unattended;

// The fake names this crate as the other test binaries do.
#[cfg(test)]
extern crate self as memory_shepherd;
#[cfg(test)]
#[path = "../tests/support/fake_transport.rs"]
mod fake_transport;
#[cfg(test)]
#[path = "../tests/support/skip.rs"]
mod skip;
#[cfg(test)]
#[path = "../tests/support/temporary_root.rs"]
mod temporary_root;
