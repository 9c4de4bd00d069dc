//! memory-shepherd: the library below its console and its command line.
//!
//! | module | purpose |
//! |---|---|
//! | [`config`] | reads `memory-shepherd.conf` and reports every mistake at once |
//! | [`engine`] | observes agents, plans and applies resets and undos, keeps the ledger |
//! | [`transport`] | access to memory files: the contract, the local disk, other hosts over SFTP |
//! | [`baseline`] | baselines: loading and checking, versions, the seal |
//! | [`boundary`] | finds where in a memory the baseline part ends, pure |
//! | [`lint`] | rules about baselines and memories, pure |
//! | [`schedule`] | scheduled resets: units of systemd, their state, pauses and skips |
//! | [`alerts`] | events that operators are told of: raised once, delivered within bounds |
//! | [`metrics`] | states and sizes of a fleet for Prometheus |
//! | [`archive`] | archive entries: what resets took out of memories |
//! | [`diff`] | line and word differences, pure |
//! | [`trust`] | whether another user can replace what root runs |
//! | [`temporary`] | temporary files in directories that the environment names |
//! | [`write_restriction`] | restricts where this process may write |
//! | [`untrusted`] | makes foreign bytes visible as text; nothing else may |
//! | [`console`] | the screens: a pure model and update, a view, and the event loop |
//! | [`cli`] | the command-line verbs, and two printers: text and JSON |
//! | [`debug_log`] | what the program does, for an engineer; off by default |
//! | [`demo`] | the example fleet, with a host of its own |
//! | [`error`], [`digest`], [`clock`], [`secret`], [`invocation`] | types that all modules use |
//!
//! `examples/embed.rs` shows the engine in another program: a configuration in code, a reset, its undo.
//!
//! Dependency rules, checked by `tests/suite/architecture.rs`: the modules above know neither
//! console nor command line nor the crates that these use; only `console/terminal` and
//! `cli/output.rs` write escape codes; only `demo/host.rs` and the modules below it name tokio and
//! the SSH crates; no module reads the home directory, the environment or the clock by itself:
//! `main` passes them in.

pub mod alerts;
pub mod archive;
pub mod baseline;
pub mod boundary;
mod child_process;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
pub mod debug_log;
#[cfg(feature = "demo")]
pub mod demo;
pub mod diff;
pub mod digest;
mod durable;
pub mod engine;
pub mod error;
pub mod file_systems;
pub mod invocation;
pub mod lint;
pub mod metrics;
pub mod moment;
pub mod quantity;
pub mod reset_interval;
pub mod schedule;
pub mod secret;
// The fake names this crate as the other test binaries do.
#[cfg(test)]
extern crate self as memory_shepherd;
#[cfg(test)]
#[path = "../tests/support/fake_transport.rs"]
mod fake_transport;
#[cfg(test)]
#[path = "../tests/support/skip.rs"]
mod skip;
mod sys;
pub mod temporary;
#[cfg(test)]
#[path = "../tests/support/temporary_root.rs"]
mod temporary_root;
mod threads;
pub mod transport;
pub mod trust;
pub mod untrusted;
pub mod write_restriction;
