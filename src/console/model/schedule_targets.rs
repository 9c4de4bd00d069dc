//! What a command about the schedule is about: the timer under the cursor, and the line to copy.

use super::Model;
use super::plans::check_no_run;
use super::read_only::check_writable;
use crate::console::command::require;
use crate::console::screens::log::state::schedule::TimerRow;

/// Checks that a dialog about the timer under the cursor can be opened now.
pub fn check_timer(model: &Model) -> Result<(), String> {
    check_writable(model)?;
    let view = &model.log.schedule;
    require(view.overview.is_some(), "the schedule is being read")?;
    require(!view.is_changing, "the schedule is being changed")?;
    let install = model.config.invocation.command_line("schedule install");
    let row = view.current_row();
    let row = row.ok_or_else(|| format!("no timers; `{install}` installs them"))?;
    let name = &row.name;
    require(
        row.is_known,
        format!("{name} is of an agent that left the config; `{install}` removes it"),
    )
}

/// Returns why the agents of a timer cannot be reset now.
pub fn timer_run_refusal(model: &Model, row: &TimerRow) -> Option<String> {
    let has_agents = !row.group.agents.is_empty();
    let check = check_no_run(model);
    let reason = "this timer resets no agent of the config";
    check.and_then(|()| require(has_agents, reason)).err()
}

/// Returns the line that the schedule offers to copy, with what it is: how to make a schedule, or
/// how to read the output of the timer's runs.
///
/// # Errors
/// The schedule is not loaded, or the journal has no output of the timer.
pub fn schedule_line(model: &Model) -> Result<(&'static str, String), String> {
    let view = &model.log.schedule;
    let overview = view.overview.as_ref();
    let overview = overview.ok_or("the schedule is being read")?;
    let Some(row) = view.current_row() else {
        return Ok(if overview.has_manager() || overview.crontab.is_empty() {
            let line = model.config.invocation.command_line("schedule install");
            ("the command line", line)
        } else {
            ("the lines for a crontab", overview.crontab.join("\n"))
        });
    };
    let line = row.journal_command();
    let elsewhere = "the output of these runs is where `schedule run` or cron writes it";
    Ok(("the command line", line.ok_or(elsewhere)?))
}
