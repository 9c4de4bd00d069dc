//! `schedule status`: when each timer is due, and how its last run ended.

use std::io;

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::output::{Document, OutputRole, Printer, format_count, text_cell};
use super::schedule::TargetArgs;
use super::{CommandContext, CommandResult};
use crate::clock::{Clock, SystemClock};
use crate::schedule::{
    InstalledTimer, ServiceManager, TimerStatus, UnitScope, find_installed_timers,
    read_timer_statuses,
};

/// A timer in the answer.
#[derive(Serialize)]
struct TimerItem {
    #[serde(flatten)]
    installed: InstalledTimer,
    /// `None` if no service manager answers.
    #[serde(flatten)]
    status: Option<TimerStatus>,
}

/// The answer of `schedule status`.
#[derive(Serialize)]
struct ScheduleStatusDocument {
    scope: UnitScope,
    directory: String,
    config: String,
    /// Why the states are unknown, if they are.
    unknown_because: Option<String>,
    timers: Vec<TimerItem>,
}

impl Document for ScheduleStatusDocument {
    fn write_text(&self, printer: &mut Printer<'_>) -> io::Result<()> {
        if self.timers.is_empty() {
            let (config, directory) = (&self.config, &self.directory);
            return printer.write_plain_line(format!("{directory} has no timers of {config}"));
        }
        let heading = |text: &str| text_cell(OutputRole::Heading, text);
        let headings = ["TIMER", "STATE", "NEXT", "LAST", "RESULT"].map(heading);
        let mut rows = vec![Vec::from(headings)];
        rows.extend(self.timers.iter().map(|timer| {
            let name = text_cell(OutputRole::Heading, &timer.installed.name);
            let plain = |text: String| text_cell(OutputRole::Plain, text);
            let Some(status) = &timer.status else {
                let calendar = plain(timer.installed.calendar.clone());
                return vec![name, plain("unknown".to_string()), calendar];
            };
            let (role, state) = describe_state(&timer.installed, status);
            vec![
                name,
                text_cell(role, state),
                plain(format_time(status.next)),
                plain(format_time(status.last)),
                plain(describe_result(status)),
            ]
        }));
        printer.write_table(&rows)?;
        if let Some(why) = &self.unknown_because {
            printer.write_line(&[(OutputRole::Warn, "note: "), (OutputRole::Plain, why)])?;
        }
        let timers = format_count(self.timers.len(), "timer");
        printer.write_plain_line(format!("{}: {timers}", self.directory))
    }
}

/// Describes whether a timer does what it was installed for.
fn describe_state(installed: &InstalledTimer, status: &TimerStatus) -> (OutputRole, &'static str) {
    match (status.missed, status.active, installed.edited) {
        (true, true, _) => (OutputRole::Bad, "missed"),
        (true, false, _) => (OutputRole::Bad, "not running"),
        (_, true, true) => (OutputRole::Warn, "active, edited"),
        (_, true, false) => (OutputRole::Good, "active"),
        (_, false, _) => (OutputRole::Dim, "not enabled"),
    }
}

fn describe_result(status: &TimerStatus) -> String {
    match (&status.result, status.exit_code) {
        _ if status.running => "running".to_string(),
        (Some(result), Some(code)) if result == "exit-code" => format!("exit {code}"),
        (Some(result), _) => result.clone(),
        (None, _) => "-".to_string(),
    }
}

fn format_time(time: Option<DateTime<FixedOffset>>) -> String {
    time.map_or("-".to_string(), |time| {
        time.format("%Y-%m-%d %H:%M:%S").to_string()
    })
}

impl CommandContext<'_> {
    pub(super) fn run_schedule_status(&mut self, args: &TargetArgs) -> CommandResult {
        let config = self.schedule_config_path()?;
        let target = self.schedule_target(args, config)?;
        let timers = find_installed_timers(&target.directory, &target.config)?;
        let runtime_directory = self.environment.runtime_directory.as_deref();
        let manager = target.manager(runtime_directory, &SystemClock);
        let (statuses, unknown_because) = match manager {
            None => (
                None,
                Some("--prefix: no service manager was asked".to_string()),
            ),
            Some(manager) if !manager.is_running() => {
                let text = "no service manager is running; the timers are installed files";
                (None, Some(text.to_string()))
            }
            Some(_) if timers.is_empty() => (None, None),
            Some(manager) => match read_timer_statuses(&timers, &manager, SystemClock.now()) {
                Ok(statuses) => (Some(statuses), None),
                Err(error) => (None, Some(error.message().to_string())),
            },
        };
        let mut statuses = statuses.unwrap_or_default().into_iter();
        let timers = timers.into_iter().map(|installed| TimerItem {
            installed,
            status: statuses.next(),
        });
        self.output.print_document(&ScheduleStatusDocument {
            scope: target.scope,
            directory: target.directory.display().to_string(),
            config: target.config.display().to_string(),
            unknown_because,
            timers: timers.collect(),
        })?;
        Ok(None)
    }
}
