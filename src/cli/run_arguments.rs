//! Options of the verbs that reset, push and undo.

use clap::{ArgGroup, Args};

use super::metrics_file::MetricsFlags;
use super::values::{parse_number, parse_plan_hash};
use super::write_restriction::WriteRestrictionFlags;
use crate::engine::{ScratchSelection, UndoMode};

/// Options of the verbs that make a plan and run it.
#[derive(Debug, Default, Args)]
pub(super) struct RunFlags {
    /// Shows the plan and its hash; changes nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Refuses to run unless the plan has this hash
    #[arg(long, value_name = "HASH", value_parser = parse_plan_hash)]
    pub(super) plan: Option<String>,
    /// Waits this long for agents that another run has locked
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = parse_number::<u32>)]
    pub(super) wait: u32,
}

#[derive(Debug, Args)]
#[command(group(
    ArgGroup::new("target").required(true).multiple(true).args(["agents", "all", "scheduled"])
))]
pub(super) struct ResetArgs {
    /// Agents to reset
    #[arg(value_name = "AGENT")]
    pub(super) agents: Vec<String>,
    /// Resets the whole fleet
    #[arg(long, conflicts_with = "agents")]
    pub(super) all: bool,
    /// Resets as a timer does: leaves out what is paused or skipped
    ///
    /// The ledger has it as the run of a timer. Without AGENT and --all, resets all agents that have no
    /// interval of their own (`every`).
    #[arg(long)]
    pub(super) scheduled: bool,
    /// Keeps all scratch below the baselines, as `push` does
    #[arg(long)]
    pub(super) keep_scratch: bool,
    #[command(flatten)]
    pub(super) metrics: MetricsFlags,
    #[command(flatten)]
    pub(super) write_restriction: WriteRestrictionFlags,
    #[command(flatten)]
    pub(super) flags: RunFlags,
}

#[derive(Debug, Args)]
pub(super) struct PushArgs {
    /// Agents to push to
    #[arg(value_name = "AGENT", required = true)]
    pub(super) agents: Vec<String>,
    /// Scratch to keep: all, none, or lines of the memory such as 86-90,97
    ///
    /// Line numbers are those of the memory file. They select scratch of one agent, and only lines
    /// below the separator.
    #[arg(long, value_name = "all|none|LINES", default_value = "all")]
    pub(super) keep: ScratchSelection,
    #[command(flatten)]
    pub(super) flags: RunFlags,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "memory-shepherd undo [OPTIONS] <AGENT|--run <RUN>>...
       memory-shepherd undo [OPTIONS] --last"
)]
pub(super) struct UndoArgs {
    /// Agents to undo
    #[arg(value_name = "AGENT")]
    pub(super) agents: Vec<String>,
    /// Undoes this run for every agent that it changed, or for those that are named
    #[arg(long)]
    pub(super) run: Option<String>,
    /// Undoes the newest reset or push of this user that is not undone
    #[arg(long, conflicts_with_all = ["agents", "run", "redo"])]
    pub(super) last: bool,
    /// Reverts the last undo of each agent instead
    #[arg(long, requires = "agents", conflicts_with = "run")]
    pub(super) redo: bool,
    /// Keeps what an agent has written since, below the restored bytes
    #[arg(long, conflicts_with = "overwrite")]
    pub(super) append: bool,
    /// Archives what an agent has written since, and restores the old file alone
    #[arg(long)]
    pub(super) overwrite: bool,
    #[command(flatten)]
    pub(super) flags: RunFlags,
}

impl UndoArgs {
    /// What the undo does with notes that an agent has written since.
    pub(super) fn undo_mode(&self) -> UndoMode {
        match (self.append, self.overwrite) {
            (true, _) => UndoMode::Append,
            (_, true) => UndoMode::Overwrite,
            _ => UndoMode::Refuse,
        }
    }
}
