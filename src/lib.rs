//! memory-shepherd: the library below its console and its command line.
//!
//! | module | purpose |
//! |---|---|
//! | [`cli`] | the command-line verbs, and two printers: text and JSON |
//! | [`demo`] | the example fleet, with a host of its own |
//! | [`console`] | the screens: a pure model and update, a view, and the event loop |
//! | [`unattended`] | scheduled resets, alerts, metrics |
//! | [`engine`] | observes agents, plans and applies resets and undos |
//! | [`baseline`] | baselines: loading and checking, the seal |
//! | `store` | what the controller keeps, behind traits: ledger, entries, journals, leases, states |
//! | [`transport`] | access to memory files: the contract, the local disk, other hosts over SFTP |
//! | [`layouts`] | memories of several files: what is in them, their health, operations on them |
//! | [`config`] | reads `memory-shepherd.conf` and reports every mistake at once |
//! | [`archive`] | archive entries: what resets took out of memories |
//! | [`lint`] | rules about baselines and memories, pure |
//! | [`boundary`] | finds where in a memory the baseline part ends, and the scratch that a push keeps, pure |
//! | [`base`] | durable files, time, digests, foreign text, errors, for all of them |
//!
//! `examples/embed.rs` shows the engine in another program: a configuration in code, a reset, its undo.
//!
//! A module uses only those below it in this table. `tests/suite/architecture.rs` checks that, and that
//! only `console/shell/terminal` and `cli/output.rs` write escape codes, that only `demo/host.rs` and
//! the modules below it name tokio and the SSH crates, and that no module reads the home directory, the
//! environment or the clock by itself: `main` passes them in.

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
pub mod layouts;
pub mod lint;
mod store;
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
