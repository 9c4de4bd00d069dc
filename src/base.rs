//! The modules that all others use: durable files, time, digests, differences, foreign text, errors.
//! Nothing here knows agents, memories or baselines.
//!
//! | module | purpose |
//! |---|---|
//! | [`error`] | errors with their kind and hints |
//! | [`untrusted`] | makes foreign bytes visible as text; nothing else may |
//! | [`digest`], [`diff`] | SHA-256; line and word differences, pure |
//! | `durable`, [`temporary`] | files that survive a power cut; temporary files |
//! | [`file_systems`], [`trust`], [`write_restriction`] | which disk hangs, who can replace what root runs, where this process may write |
//! | [`clock`], [`moment`], [`reset_interval`], [`quantity`] | time, and how people write times and counts |
//! | `threads`, `child_process`, `sys` | threads that end, programs that end, calls that no crate has |
//! | [`secret`], [`invocation`], [`debug_log`] | passphrases, the printed command line, the log for engineers |

pub(crate) mod cache_limit;
pub(crate) mod child_process;
pub mod clock;
pub mod debug_log;
pub mod diff;
pub mod digest;
pub(crate) mod durable;
pub mod error;
pub mod file_systems;
pub mod invocation;
pub mod moment;
pub mod process_rights;
pub(crate) mod program;
pub mod quantity;
pub mod reset_interval;
pub mod secret;
pub(crate) mod sys;
pub mod temporary;
pub(crate) mod threads;
pub mod trust;
pub mod untrusted;
pub mod write_restriction;
