//! `schedule run`: the scheduler in the foreground, for machines without a service manager.
//!
//! Each reset is a process of its own, the same command that a timer runs: one that hangs or fails
//! delays no other.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use chrono::{DateTime, Local};

use super::reset_and_undo::StopSignals;
use super::{CommandContext, CommandResult};
use crate::clock::{Clock, SystemClock};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::schedule::{ScheduledGroup, Scheduler, agent_arguments, reset_arguments};

/// Time between two looks at signals and at the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A reset in progress.
struct RunningReset {
    group: ScheduledGroup,
    process: Child,
    started: DateTime<Local>,
    /// Whether it was said that the next one is skipped.
    is_overdue: bool,
}

impl CommandContext<'_> {
    pub(super) fn run_scheduler(&mut self) -> CommandResult {
        if self.output.is_json() {
            let message = "--json prints one document, and `schedule run` does not end by itself";
            return Err(Error::new(ErrorKind::User, message).into());
        }
        let signals = StopSignals::register()?;
        let engine = self.open_engine()?;
        let now = || SystemClock.now().with_timezone(&Local);
        let groups = ScheduledGroup::of_config(engine.config());
        let config = engine.config().path.clone();
        let mut scheduler = Scheduler::new(groups, &now(), |group| find_last_run(&engine, group));
        drop(engine);
        let mut running: Vec<RunningReset> = Vec::new();
        let mut last_said = String::new();
        let mut next_look = now();
        while !signals.stop.load(Ordering::Relaxed) {
            self.report_ended(&mut running);
            let time = now();
            // A clock that was set back triggers a look, too.
            if time >= next_look || next_look - time > chrono::Duration::minutes(1) {
                self.adopt_changed_config(&config, &mut scheduler, &time);
                for group in scheduler.take_due(&time) {
                    self.start_reset(&config, group, &time, &mut running);
                }
                let next = scheduler.describe_next();
                if next != last_said {
                    self.output.print_progress(&next);
                    last_said = next;
                }
                let wait = chrono::Duration::from_std(scheduler.wait_time(&time));
                next_look = time + wait.unwrap_or_default();
            }
            SystemClock.sleep(POLL_INTERVAL);
        }
        self.stop_resets(&mut running);
        self.output.print_progress("stopped");
        Ok(signals.error_kind())
    }

    /// Takes over the intervals and agents of a config that was changed. One with errors changes
    /// nothing: the resets report them.
    fn adopt_changed_config(
        &mut self,
        config: &Path,
        scheduler: &mut Scheduler<Local>,
        now: &DateTime<Local>,
    ) {
        if let Ok(config) = crate::config::reload(config, &self.environment.env) {
            scheduler.replace_groups(ScheduledGroup::of_config(&config), now);
        }
    }

    fn start_reset(
        &mut self,
        config: &Path,
        group: ScheduledGroup,
        now: &DateTime<Local>,
        running: &mut Vec<RunningReset>,
    ) {
        let same = running.iter_mut().find(|it| it.group.agent == group.agent);
        if let Some(earlier) = same {
            if !std::mem::replace(&mut earlier.is_overdue, true) {
                let since = earlier.started.format("%Y-%m-%d %H:%M:%S");
                let process = earlier.process.id();
                let text = format!(
                    "skipped a reset of {}: the previous one is running since {since} (process {process})",
                    group.describe()
                );
                self.output.print_warning(&text);
            }
            return;
        }
        let mut command = Command::new(&self.environment.program_path);
        command.args(reset_arguments());
        command.args(self.output.inherited_flags());
        command.arg("--config").arg(config);
        command.args(agent_arguments(group.agent.as_deref()));
        command.stdin(Stdio::null());
        match command.spawn() {
            Ok(process) => running.push(RunningReset {
                group,
                process,
                started: *now,
                is_overdue: false,
            }),
            Err(error) => {
                let text = format!("cannot start a reset of {}: {error}", group.describe());
                self.output.print_error(&text);
            }
        }
    }

    /// Reports the resets that have ended other than successfully.
    fn report_ended(&mut self, running: &mut Vec<RunningReset>) {
        running.retain_mut(|reset| match reset.process.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            ended => {
                let how = match ended {
                    Ok(status) => status.map_or_else(String::new, describe_end),
                    Err(error) => format!("cannot be waited for: {error}"),
                };
                let text = format!("the reset of {} {how}", reset.group.describe());
                self.output.print_error(&text);
                false
            }
        });
    }

    /// Asks the resets in progress to end, and waits until they have: each finishes the agents that
    /// it is at work on.
    fn stop_resets(&mut self, running: &mut Vec<RunningReset>) {
        for reset in running.iter() {
            let process = rustix::process::Pid::from_child(&reset.process);
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        while !running.is_empty() {
            self.report_ended(running);
            SystemClock.sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the time since which an agent of a group was not reset; none if none ever was.
fn find_last_run(engine: &Engine, group: &ScheduledGroup) -> Option<DateTime<Local>> {
    let agents = engine
        .config()
        .agents
        .iter()
        .filter(|agent| match &group.agent {
            Some(name) => agent.name == *name,
            None => agent.own_interval.is_none(),
        });
    // Without a readable ledger nothing is known to be missed.
    let runs = agents.filter_map(|agent| engine.last_run(&agent.name).ok().flatten());
    let resets = runs.filter(|run| run.operation.installs_baselines());
    // One agent that was reset by hand says nothing of the others.
    let first = resets.map(|run| run.time).min();
    first.map(|time| time.with_timezone(&Local))
}

/// Returns, for example, "ended with exit code 4".
fn describe_end(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_string(),
    }
}
