//! What a command about the schedule is about: the timer under the cursor, and the line to copy.

use super::Model;
use crate::console::command::Command;
use crate::console::screens::log::state::schedule::TimerRow;

impl Model {
    /// Returns why no dialog about a timer can be opened now.
    pub fn timer_refusal(&self) -> Option<String> {
        if let Some(why) = self.read_only_reason() {
            return Some(why);
        }
        let view = &self.log.schedule;
        let install = self.config.invocation.command_line("schedule install");
        match view.current_row() {
            _ if view.overview.is_none() => Some("the schedule is being read".to_string()),
            _ if view.is_changing => Some("the schedule is being changed".to_string()),
            None => Some(format!("no timers; `{install}` installs them")),
            Some(row) if !row.is_known => Some(format!(
                "{} is of an agent that left the config; `{install}` removes it",
                row.name
            )),
            Some(_) => None,
        }
    }

    /// Returns why the agents of a timer cannot be reset now.
    pub fn timer_run_refusal(&self, row: &TimerRow) -> Option<String> {
        if self.is_running() {
            let key = self.key_hint(Command::GoReset);
            return Some(format!("a run is in progress; {key} shows it"));
        }
        let has_no_agents = row.group.agents.is_empty();
        has_no_agents.then(|| "this timer resets no agent of the config".to_string())
    }

    /// Returns the line that the schedule offers to copy, with what it is: how to make a schedule, or
    /// how to read the output of the timer's runs.
    ///
    /// # Errors
    /// Why there is none.
    pub fn schedule_line(&self) -> Result<(&'static str, String), String> {
        let view = &self.log.schedule;
        let overview = view.overview.as_ref();
        let overview = overview.ok_or("the schedule is being read")?;
        let Some(row) = view.current_row() else {
            return Ok(if overview.has_manager() || overview.crontab.is_empty() {
                let line = self.config.invocation.command_line("schedule install");
                ("the command line", line)
            } else {
                ("the lines for a crontab", overview.crontab.join("\n"))
            });
        };
        let line = row.journal_command();
        let elsewhere = "the output of these runs is where `schedule run` or cron writes it";
        Ok(("the command line", line.ok_or(elsewhere)?))
    }
}
