//! Options of the verbs that reset, push and undo.

use clap::{ArgGroup, Args};

use crate::cli::arguments::values::{parse_number, parse_plan_hash};
use crate::cli::metrics_file::MetricsFlags;
use crate::cli::write_restriction::WriteRestrictionFlags;
use crate::engine::{ScratchSelection, UndoMode};

/// Options of the verbs that make a plan and run it.
#[derive(Debug, Default, Args)]
pub(in crate::cli) struct RunFlags {
    /// Shows the plan and its hash; changes nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// Refuses to run unless the plan has this hash
    #[arg(long, value_name = "HASH", value_parser = parse_plan_hash)]
    pub(in crate::cli) plan: Option<String>,
    /// Waits this long for agents that another run has locked
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = parse_number::<u32>)]
    pub(in crate::cli) wait: u32,
}

#[derive(Debug, Default, Args)]
#[command(group(
    ArgGroup::new("target").required(true).multiple(true).args(["agents", "all", "scheduled"])
))]
pub(in crate::cli) struct ResetArgs {
    /// Agents to reset
    #[arg(value_name = "AGENT")]
    pub(in crate::cli) agents: Vec<String>,
    /// Resets the whole fleet
    #[arg(long, conflicts_with = "agents")]
    pub(in crate::cli) all: bool,
    /// Resets as a timer does: leaves out what is paused or skipped
    ///
    /// The ledger has it as the run of a timer. Without AGENT and --all, resets all agents that have no
    /// interval of their own (`every`).
    #[arg(long)]
    pub(in crate::cli) scheduled: bool,
    /// Keeps all scratch below the baselines, as `push` does
    #[arg(long)]
    pub(in crate::cli) keep_scratch: bool,
    #[command(flatten)]
    pub(in crate::cli) metrics: MetricsFlags,
    #[command(flatten)]
    pub(in crate::cli) write_restriction: WriteRestrictionFlags,
    #[command(flatten)]
    pub(in crate::cli) flags: RunFlags,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PushArgs {
    /// Agents to push to
    #[arg(value_name = "AGENT", required = true)]
    pub(in crate::cli) agents: Vec<String>,
    /// Scratch to keep: all, none, or lines of the memory such as 86-90,97
    ///
    /// Line numbers are those of the memory file. They select scratch of one agent, and only lines
    /// below the separator.
    #[arg(long, value_name = "all|none|LINES", default_value = "all")]
    pub(in crate::cli) keep: ScratchSelection,
    #[command(flatten)]
    pub(in crate::cli) flags: RunFlags,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "memory-shepherd undo [OPTIONS] <AGENT|--run <RUN>>...
       memory-shepherd undo [OPTIONS] --last"
)]
pub(in crate::cli) struct UndoArgs {
    /// Agents to undo
    #[arg(value_name = "AGENT")]
    pub(in crate::cli) agents: Vec<String>,
    /// Undoes this run for every agent that it changed, or for those that are named
    #[arg(long)]
    pub(in crate::cli) run: Option<String>,
    /// Undoes the newest reset, push or edit of this user that is not undone
    #[arg(long, conflicts_with_all = ["agents", "run", "redo"])]
    pub(in crate::cli) last: bool,
    /// Reverts the last undo of each agent instead
    #[arg(long, requires = "agents", conflicts_with = "run")]
    pub(in crate::cli) redo: bool,
    /// Keeps what an agent has written since, below the restored bytes
    #[arg(long, conflicts_with = "overwrite")]
    pub(in crate::cli) append: bool,
    /// Archives what an agent has written since, and restores the old file alone
    #[arg(long)]
    pub(in crate::cli) overwrite: bool,
    #[command(flatten)]
    pub(in crate::cli) flags: RunFlags,
}

impl UndoArgs {
    /// What the undo does with notes that an agent has written since.
    pub(in crate::cli) fn undo_mode(&self) -> UndoMode {
        match (self.append, self.overwrite) {
            (true, _) => UndoMode::Append,
            (_, true) => UndoMode::Overwrite,
            _ => UndoMode::Refuse,
        }
    }
}
