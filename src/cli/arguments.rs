//! The definition of the command line: verbs and options. The help
//! texts are the comments here.

pub(super) mod console_flags;
pub(super) mod examples;
pub(super) mod manual;
pub(super) mod usage;
pub(super) mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::alerts::AlertsVerb;
use super::archive::ArchiveVerb;
use super::init::InitArgs;
use super::output::ColorChoice;
use super::{baseline, diff, drover, guard, lint, log, memory, schedule, seal, status};
use crate::base::digest::Digest;
use crate::cli::arguments::values::{EXIT_CODES, parse_anchor};
use crate::cli::runs::arguments::{PushArgs, ResetArgs, UndoArgs};
use console_flags::ConsoleFlags;

/// Archive what agents wrote into their memories, reset them to their
/// baselines, and undo.
///
/// Without a command: opens the console on a terminal, else prints `status`. An agent name alone
/// means `reset AGENT`, and `all` means `reset --all`.
#[derive(Debug, Parser)]
#[command(name = "memory-shepherd", version = env!("MEMORY_SHEPHERD_VERSION"), after_help = EXIT_CODES, max_term_width = 100)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) console: ConsoleFlags,
    /// Agent to reset, or `all`: the form that the original tool takes
    #[arg(value_name = "AGENT|all")]
    pub(super) agent: Option<String>,
    #[command(subcommand)]
    pub(super) verb: Option<Verb>,
    #[command(flatten)]
    pub(super) global: GlobalFlags,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct GlobalFlags {
    /// Uses this config instead of searching for one
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Prints one JSON document
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    pub(super) color: ColorChoice,
    /// Omits progress, notes and warnings
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    /// Appends a log of operations and their durations to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) debug_log: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Writes a first config and its baselines, and shows them
    ///
    /// Writes the config that --config names, else memory-shepherd.conf in ~/.config/memory-shepherd,
    /// and a baseline for each agent beside it, with the text of the template. Exits with 6 if one of
    /// these files exists. No memory is touched.
    #[command(after_help = EXIT_CODES)]
    Init(InitArgs),
    /// Shows the state of every agent, worst first
    ///
    /// Exits with 4 if a baseline is TAMPERED, a host key has changed or the ledger is broken; with
    /// 6 if an agent cannot be reset (for example because its baseline is missing or too small);
    /// with 3 if an agent cannot be read; else with 0, whatever the states.
    #[command(after_help = EXIT_CODES)]
    Status(status::StatusArgs),
    /// Compares the baseline of an agent with its memory
    ///
    /// For an agent that is BEHIND, compares the rules that it has with those of the baseline.
    ///
    /// On a terminal, invisible characters are shown as marks. A pipe gets the exact bytes, in the
    /// format of patch(1).
    #[command(after_help = EXIT_CODES)]
    Diff(diff::DiffArgs),
    /// Archives what agents wrote and installs their baselines
    #[command(after_help = EXIT_CODES)]
    Reset(ResetArgs),
    /// Installs new baselines and keeps the agents' notes below them
    ///
    /// Archives what a reset archives. An agent that already has its baseline is left as it is.
    #[command(after_help = EXIT_CODES)]
    Push(PushArgs),
    /// Restores the exact bytes from before a run
    ///
    /// Without --run, undoes the last reset of each agent that is not undone yet. Without AGENT, --run
    /// and --last, names the last run of this user that is not undone, and the command that undoes it.
    #[command(after_help = EXIT_CODES)]
    Undo(UndoArgs),
    /// Reports what happened since a moment, worst first
    ///
    /// Runs, failures, lost hosts, broken seals, drift and when it began, secrets and injections in
    /// what was archived, late writers, agents that write unusually much, restores by the guard,
    /// and what retention deleted.
    #[command(after_help = EXIT_CODES)]
    Report {
        /// Starts at this moment: an age such as 12h or 7d, today, yesterday, a date, or a time such
        /// as "2026-03-14 09:00"; default: yesterday, 18:00
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
    },
    /// Lists the recorded runs, newest last
    #[command(after_help = EXIT_CODES)]
    Log(log::LogArgs),
    /// Shows and changes the memory of several files that an agent has
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true, hide = true)]
    Memory(memory::MemoryArgs),
    /// Shows and changes a memory of the layout drover, without a config
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true, hide = true)]
    Drover(drover::DroverArgs),
    /// Finds, prints, pins or prunes archive entries
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Archive {
        #[command(subcommand)]
        what: ArchiveVerb,
    },
    /// Lists baselines and their versions, or restores one
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Baseline {
        #[command(subcommand)]
        what: baseline::BaselineVerb,
    },
    /// Seals baselines: shows what changed and accepts it
    ///
    /// Writes `.checksums` in baseline_dir, which is the output of sha256sum. Without FILE and --all,
    /// seals the changes that this program saved, shows all others, and exits with 6 if there are
    /// any: accept those by naming their files. A line of the seal whose file is not sealed stays as
    /// it is.
    #[command(after_help = EXIT_CODES)]
    Seal(seal::SealArgs),
    /// Restores sealed baselines that change otherwise than by a seal
    ///
    /// Watches baseline_dir until it is stopped. Restores a file from the archive, keeps the bytes
    /// that it replaces, and records that. Leaves versions that this program saved, waits while an
    /// operator edits or seals baselines with this program, and gives up on a file that it has
    /// restored three times within an hour. What another program saves is restored, and kept.
    #[command(after_help = EXIT_CODES)]
    Guard(guard::GuardArgs),
    /// Resets agents on a schedule: installs, shows, pauses and runs timers
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Schedule {
        #[command(subcommand)]
        what: schedule::ScheduleVerb,
    },
    /// Sends alerts that are due, or a test of them
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Alerts {
        #[command(subcommand)]
        what: AlertsVerb,
    },
    /// Verifies ledger, archive and baselines against their checksums
    ///
    /// Checks the chain of the ledger, every entry and baseline version that it names, the baselines
    /// in use against their seal, and the signature, serial and expiry of the seal. Changes nothing. The chain alone reveals neither a
    /// truncated nor a rewritten ledger: note the head that every run prints, and pass it as
    /// --anchor.
    #[command(after_help = EXIT_CODES)]
    Verify {
        /// Requires this ledger head, noted earlier, to be in the ledger
        #[arg(long, value_name = "SEQ:HASH", value_parser = parse_anchor)]
        anchor: Option<(u64, Digest)>,
    },
    /// Checks baselines and memories against the lint rules
    ///
    /// Without targets, checks the baselines and memories of all agents. A file that is the baseline
    /// or memory of an agent is checked as such; any other one as --zone says. Exits with 1 if a
    /// finding has at least the severity of --fail-on, and with 3 if a target cannot be read.
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Lint(lint::LintArgs),
    /// Checks what resets rely on; meant for pasting into a bug report
    #[command(after_help = EXIT_CODES)]
    Doctor,
    /// Lists the keys of the console, including the user's own
    ///
    /// Prints the table of commands with the changes of console.toml. Reports every mistake in that
    /// file, and then exits with 2.
    #[command(after_help = EXIT_CODES)]
    Keys,
    /// Prints shell completions
    #[command(after_help = EXIT_CODES)]
    Completions {
        /// Shell to generate completions for
        #[arg(value_name = "SHELL", value_enum)]
        shell: clap_complete::Shell,
    },
    /// Prints the manual page
    #[command(after_help = EXIT_CODES)]
    Man,
    /// Checks or shows the config
    #[command(after_help = EXIT_CODES, disable_help_subcommand = true)]
    Config {
        #[command(subcommand)]
        what: ConfigVerb,
    },
    /// Opens the console on an example fleet with agents in every state
    ///
    /// The fleet is in a temporary directory, which is removed at the end. Without a terminal,
    /// prints the status of the fleet instead.
    #[cfg(feature = "demo")]
    #[command(after_help = EXIT_CODES)]
    Demo(super::demo::DemoArgs),
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum ConfigVerb {
    /// Reports every mistake in the config
    #[command(after_help = EXIT_CODES)]
    Check,
    /// Prints every effective value and its origin
    #[command(after_help = EXIT_CODES)]
    Show,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }
}
