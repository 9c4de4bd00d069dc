//! `schedule run`: the scheduler in the foreground, for machines without a service manager.
//!
//! Each reset is a process of its own, the same command that a timer runs: one that hangs or fails
//! delays no other. Few are started at once.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use chrono::{DateTime, Local};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::signals::StopSignals;
use super::{CommandContext, CommandResult, resolve_archive_group};
use crate::clock::{Clock, SystemClock};
use crate::engine::{Engine, HolderLock, HolderLockKind, describe_holder};
use crate::error::{Error, ErrorKind, Result};
use crate::schedule::{
    ScheduleControls, ScheduledGroup, Scheduler, StartQueue, agent_arguments, reset_arguments,
};
use crate::sys;

/// Time between two looks at signals and at the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Time after which a reset no longer keeps others from being started: it may hang.
const START_DELAY_LIMIT: Duration = Duration::from_secs(600);

/// Time that resets get to end on TERM: as long as systemd gives a service.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

/// The process to which the kernel gives the children of processes that have ended.
const INIT_PROCESS_ID: u32 = 1;

/// A reset in progress.
struct RunningReset {
    group: ScheduledGroup,
    process: Child,
    started: DateTime<Local>,
    started_at: Instant,
    /// Whether it was said that the next one is skipped.
    is_overdue: bool,
}

impl CommandContext<'_> {
    pub(super) fn run_scheduler(&mut self) -> CommandResult {
        if self.output.is_json() {
            let message = "--json prints one document, and `schedule run` does not end by itself";
            return Err(Error::new(ErrorKind::User, message).into());
        }
        self.output.skip_unread();
        let signals = StopSignals::register()?;
        let mut engine = self.open_engine()?;
        self.print_root_trust_notes(&engine);
        let now = || SystemClock.now().with_timezone(&Local);
        let config = engine.config().path.clone();
        let _lock = self.claim_schedule(&engine)?;
        let mut scheduler = plan_first_resets(&engine, &now());
        for hold in self.schedule_holds(&engine, SystemClock.now()) {
            self.output.print_note(&hold.describe());
        }
        let mut queue = StartQueue::default();
        let mut running: Vec<RunningReset> = Vec::new();
        let mut last_said = String::new();
        let mut next_look = now();
        while signals.is_running() {
            self.report_ended(&mut running);
            let time = now();
            // A clock that was set back triggers a look, too.
            if time >= next_look || next_look - time > chrono::Duration::minutes(1) {
                self.adopt_changed_config(&mut engine, &mut scheduler, &mut queue, &time);
                for group in scheduler.take_due(&time) {
                    if !self.is_skipped(&group, &mut running) {
                        queue.add(group);
                    }
                }
                // Unreadable pauses hold nothing back, and the resets say so.
                let controls = ScheduleControls::read(&engine).unwrap_or_default();
                let next = scheduler.describe_next(|agent| controls.pause_of(agent).is_some());
                if next != last_said {
                    self.output.print_progress(&next);
                    last_said = next;
                }
                let wait = chrono::Duration::from_std(scheduler.wait_time(&time));
                next_look = time + wait.unwrap_or_default();
            }
            self.start_waiting(&config, &mut queue, &mut running, time);
            SystemClock.sleep(POLL_INTERVAL);
        }
        let has_ended = self.stop_resets(&mut running);
        self.output.print_progress("stopped");
        Ok(signals
            .error_kind()
            .or((!has_ended).then_some(ErrorKind::Partial)))
    }

    /// Takes the lock that shows that this process resets the agents of the config, so that a second
    /// one does not reset them, too. An archive that cannot be written keeps it from nothing.
    fn claim_schedule(&mut self, engine: &Engine) -> Result<Option<HolderLock>> {
        match engine.try_lock_with_holder(HolderLockKind::Scheduler) {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => {
                let holder = engine
                    .find_lock_holder_of(HolderLockKind::Scheduler)
                    .flatten();
                let config = engine.config().path.display();
                let process = describe_holder(holder.as_ref());
                let message = format!("{config} has a scheduler already: {process}");
                Err(Error::new(ErrorKind::Busy, message)
                    .with_hint("end that one first, for example with `kill`"))
            }
            Err(error) => {
                self.output.print_warning(error.message());
                Ok(None)
            }
        }
    }

    /// Takes over the intervals and agents of a config that was changed. One with errors changes
    /// nothing: the resets report them.
    fn adopt_changed_config(
        &mut self,
        engine: &mut Engine,
        scheduler: &mut Scheduler<Local>,
        queue: &mut StartQueue,
        now: &DateTime<Local>,
    ) {
        let path = &engine.config().path;
        if let Ok(config) = crate::config::reload(path, &self.environment.env)
            && let Ok(group) = resolve_archive_group(&config, self.environment.find_group)
        {
            let groups = ScheduledGroup::of_config(&config);
            queue.retain_groups(&groups);
            scheduler.replace_groups(groups, now);
            *engine = self.new_cli_engine(config, group);
        }
    }

    /// Returns whether the reset of a group that is due is skipped, because the one before it is
    /// still running, and says so once.
    fn is_skipped(&mut self, group: &ScheduledGroup, running: &mut [RunningReset]) -> bool {
        let same = running.iter_mut().find(|it| it.group.agent == group.agent);
        let Some(earlier) = same else {
            return false;
        };
        if !std::mem::replace(&mut earlier.is_overdue, true) {
            let since = earlier.started.format("%Y-%m-%d %H:%M:%S");
            let process = earlier.process.id();
            let text = format!(
                "skipped a reset of {}: the previous one is running since {since} (process {process})",
                group.describe()
            );
            self.output.print_warning(&text);
        }
        true
    }

    /// Starts the resets that wait, as far as there is room beside those that run.
    fn start_waiting(
        &mut self,
        config: &Path,
        queue: &mut StartQueue,
        running: &mut Vec<RunningReset>,
        time: DateTime<Local>,
    ) {
        let now = SystemClock.instant();
        let is_recent = |reset: &&RunningReset| now - reset.started_at < START_DELAY_LIMIT;
        let recent = running.iter().filter(is_recent).count();
        let failed = queue.start_waiting(now, recent, |group| {
            let process = self.reset_command(config, group).spawn()?;
            running.push(RunningReset {
                group: group.clone(),
                process,
                started: time,
                started_at: now,
                is_overdue: false,
            });
            Ok(())
        });
        if let Some((group, error)) = failed {
            let text = format!(
                "cannot start a reset of {}: {error}; it is tried again every half minute",
                group.describe()
            );
            self.output.print_error(&text);
        }
    }

    /// Returns the command that resets a group, as a timer runs it.
    fn reset_command(&self, config: &Path, group: &ScheduledGroup) -> Command {
        let mut command = Command::new(&self.environment.program_path);
        command.args(reset_arguments());
        command.args(self.output.inherited_flags());
        command.arg("--config").arg(config);
        command.args(agent_arguments(group.agent.as_deref()));
        command.stdin(Stdio::null());
        command
    }

    /// Reports the resets that have ended other than successfully.
    fn report_ended(&mut self, running: &mut Vec<RunningReset>) {
        running.retain_mut(|reset| match reset.process.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                self.report_end(reset, Ok(status));
                false
            }
            Err(error) => {
                self.report_end(reset, Err(error));
                false
            }
        });
        if std::process::id() == INIT_PROCESS_ID {
            reap_foreign_children(running);
        }
    }

    /// Reports how a reset has ended, unless it was successful.
    fn report_end(&mut self, reset: &RunningReset, ended: io::Result<ExitStatus>) {
        let how = match ended {
            Ok(status) if status.success() => return,
            Ok(status) => describe_end(status),
            Err(error) => format!("cannot be waited for: {error}"),
        };
        let text = format!("the reset of {} {how}", reset.group.describe());
        self.output.print_error(&text);
    }

    /// Asks the resets in progress to end, and waits until they have: each finishes the agents that
    /// it is at work on. Returns whether all have ended; one that hangs is left to itself.
    fn stop_resets(&mut self, running: &mut Vec<RunningReset>) -> bool {
        for reset in running.iter() {
            let process = rustix::process::Pid::from_child(&reset.process);
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        let end = SystemClock.instant() + STOP_TIMEOUT;
        // One that waited for a lock, or had agents left, ends with this code.
        let interrupted_code = i32::from(ErrorKind::Interrupted.exit_code());
        while !running.is_empty() && SystemClock.instant() < end {
            running.retain_mut(|reset| match reset.process.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) => {
                    if status.code().is_some_and(|code| code != interrupted_code) {
                        self.report_end(reset, Ok(status));
                    }
                    false
                }
                Err(error) => {
                    self.report_end(reset, Err(error));
                    false
                }
            });
            SystemClock.sleep(POLL_INTERVAL);
        }
        for reset in running.iter() {
            let text = format!(
                "the reset of {} (process {}) has not ended within {} s of its signal, and goes on \
                 without the scheduler",
                reset.group.describe(),
                reset.process.id(),
                STOP_TIMEOUT.as_secs()
            );
            self.output.print_error(&text);
        }
        running.is_empty()
    }
}

/// Takes the status of children that are no resets: processes that alert commands left behind, which
/// become children of the first process of a container and would stay as zombies.
fn reap_foreign_children(running: &[RunningReset]) {
    while let Some(child) = sys::find_ended_child() {
        let is_reset = running.iter().any(|it| it.process.id() == child);
        let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| !is_reset) else {
            // The next look at the resets takes its status, and the one after it finds the others.
            return;
        };
        if waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        )
        .is_err()
        {
            return;
        }
    }
}

/// Returns the schedule of a config whose agents were reset as its ledger says.
fn plan_first_resets(engine: &Engine, now: &DateTime<Local>) -> Scheduler<Local> {
    // Without a readable ledger nothing is known to be missed.
    let installs = engine.last_installs().unwrap_or_default();
    let groups = ScheduledGroup::of_config(engine.config());
    Scheduler::new(groups, now, |group| {
        let agents = group.agents(engine.config()).into_iter();
        // One agent that was reset by hand says nothing of the others.
        let first = agents.filter_map(|agent| installs.get(&agent.name)).min();
        first.map(|time| time.with_timezone(&Local))
    })
}

/// Returns, for example, "ended with exit code 4".
fn describe_end(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_string(),
    }
}
