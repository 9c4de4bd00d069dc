//! `schedule run`: the scheduler in the foreground, for machines without a service manager.
//!
//! Each reset is a process of its own, the same command that a timer runs: one that hangs or fails
//! delays no other. Few are started at once.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use chrono::{DateTime, Local};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::base::clock::{Clock, SystemClock};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::program::describe_exit;
use crate::base::sys;
use crate::cli::schedule::hold::schedule_holds;
use crate::cli::schedule::print_root_trust_notes;
use crate::cli::signals::StopSignals;
use crate::cli::{CommandContext, CommandResult, resolve_archive_group};
use crate::engine::{Engine, HolderLock, HolderLockKind, describe_holder};
use crate::unattended::schedule::{
    ScheduleControls, ScheduledGroup, Scheduler, StartQueue, agent_arguments, describe_made_due,
    reset_arguments,
};

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

/// The lock that shows that this process resets the agents of a config, so that a second one does not
/// reset them, too.
struct ScheduleClaim {
    /// None in an archive that cannot be written, which keeps the scheduler from nothing.
    lock: Option<HolderLock>,
    /// Why there is none, as it was said last.
    warning: Option<String>,
}

/// Notices changes of the config file.
struct ConfigWatch {
    path: PathBuf,
    /// The file at the last look.
    seen: Option<FileStamp>,
    /// The file that was adopted last; none before the first look.
    adopted: Option<FileStamp>,
}

/// What differs between two contents of a file: device, inode, size, time of the change.
type FileStamp = (u64, u64, u64, i64, i64);

impl ConfigWatch {
    fn new(path: &Path) -> ConfigWatch {
        ConfigWatch {
            path: path.to_path_buf(),
            seen: None,
            adopted: None,
        }
    }

    /// Looks at the file. Returns whether it is the same as at the last look: many programs truncate a
    /// file before they write it, and an empty config is valid.
    fn is_settled(&mut self) -> bool {
        let meta = std::fs::metadata(&self.path).ok();
        let stamp = meta.map(|it| (it.dev(), it.ino(), it.len(), it.mtime(), it.mtime_nsec()));
        std::mem::replace(&mut self.seen, stamp) == stamp
    }

    /// Returns whether the file differs from the one that was adopted, and notes that it is adopted.
    fn take_change(&mut self) -> bool {
        self.seen.is_some() && std::mem::replace(&mut self.adopted, self.seen) != self.seen
    }
}

pub(in crate::cli) fn run(context: &mut CommandContext<'_>) -> CommandResult {
    context.refuse_json("schedule run")?;
    context.output.skip_unread();
    let signals = StopSignals::register()?;
    let mut engine = context.open_engine()?;
    print_root_trust_notes(context, &engine);
    let now = || SystemClock.now().with_timezone(&Local);
    let config = engine.config().path.clone();
    let mut claim = claim_schedule(context, &engine)?;
    let mut watch = ConfigWatch::new(&config);
    let mut scheduler = plan_first_resets(&engine, &now());
    for hold in schedule_holds(context, &engine, SystemClock.now()) {
        context.print_note(hold.describe());
    }
    let mut queue = StartQueue::default();
    let mut running: Vec<RunningReset> = Vec::new();
    let mut last_said = String::new();
    let mut next_look = now();
    let mut replaced_by = None;
    while signals.is_running() {
        report_ended(context, &mut running);
        let time = now();
        let is_settled = watch.is_settled();
        let is_changed = is_settled && watch.take_change();
        // A clock that was set back triggers a look, too.
        let is_set_back = next_look - time > chrono::Duration::minutes(1);
        if is_changed || time >= next_look || is_set_back {
            let mut made_due = Vec::new();
            if is_settled {
                made_due =
                    adopt_changed_config(context, &mut engine, &mut scheduler, &mut queue, &time);
                // A config that is being rewritten may name no agents for a moment; the archive of
                // such a config is not created.
                if !engine.config().agents.is_empty()
                    && let Err(error) = renew_claim(context, &engine, &mut claim)
                {
                    let hint = "this scheduler ends: archive_dir was changed while it ran, and the \
                                other one resets the agents";
                    replaced_by = Some(error.with_hint(hint));
                    break;
                }
            }
            for group in scheduler.take_due(&time) {
                if !is_skipped(context, &group, &mut running) {
                    queue.add(group);
                }
            }
            // Unreadable pauses hold nothing back, and the resets say so.
            let controls = ScheduleControls::read(&engine).unwrap_or_default();
            let is_paused = |agent: Option<&str>| controls.pause_of(agent).is_some();
            if let Some(text) = describe_made_due(&made_due, is_paused) {
                context.output.print_progress(&text);
            }
            let next = scheduler.describe_next(is_paused);
            if next != last_said {
                context.output.print_progress(&next);
                last_said = next;
            }
            let wait = chrono::Duration::from_std(scheduler.wait_time(&time));
            next_look = time + wait.unwrap_or_default();
        }
        start_waiting(context, &config, &mut queue, &mut running, time);
        SystemClock.sleep(POLL_INTERVAL);
    }
    let has_ended = stop_resets(context, &mut running);
    context.output.print_progress("stopped");
    if let Some(error) = replaced_by {
        return Err(error.into());
    }
    Ok(signals
        .error_kind()
        .or((!has_ended).then_some(ErrorKind::Partial)))
}

/// Takes the lock of the schedule.
///
/// # Errors
/// [`ErrorKind::Busy`], naming the process, if the config has a scheduler already.
fn claim_schedule(context: &mut CommandContext<'_>, engine: &Engine) -> Result<ScheduleClaim> {
    let mut claim = ScheduleClaim {
        lock: None,
        warning: None,
    };
    let claimed = renew_claim(context, engine, &mut claim);
    claimed.map_err(|error| error.with_hint("end that one first, for example with `kill`"))?;
    Ok(claim)
}

/// Takes the lock of the schedule in the archive that the config names now, unless this process has
/// it: the archive is another one since `archive_dir` was changed.
///
/// # Errors
/// As [`claim_schedule`].
fn renew_claim(
    context: &mut CommandContext<'_>,
    engine: &Engine,
    claim: &mut ScheduleClaim,
) -> Result<()> {
    let kind = HolderLockKind::Scheduler;
    let lock = claim.lock.take();
    if lock
        .as_ref()
        .is_some_and(|it| engine.locks().is_lock_in_force(it, kind))
    {
        claim.lock = lock;
        return Ok(());
    }
    // Released before: the old path may lead to the same file again.
    drop(lock);
    match engine.locks().try_lock_with_holder(kind) {
        Ok(Some(lock)) => claim.lock = Some(lock),
        Ok(None) => {
            let holder = engine.locks().find_lock_holder_of(kind).flatten();
            let config = engine.config().path.display();
            let process = describe_holder(holder.as_ref(), engine.clock().zone());
            let message = format!("{config} has a scheduler already: {process}");
            return Err(Error::new(ErrorKind::Busy, message));
        }
        Err(error) => {
            if claim.warning.as_deref() != Some(error.message()) {
                context.print_warning(error.message());
                claim.warning = Some(error.message().to_string());
            }
        }
    }
    Ok(())
}

/// Takes over the intervals and agents of a config that was changed. One with errors changes
/// nothing: the resets report them. Returns the groups that the change makes due.
fn adopt_changed_config(
    context: &mut CommandContext<'_>,
    engine: &mut Engine,
    scheduler: &mut Scheduler<Local>,
    queue: &mut StartQueue,
    now: &DateTime<Local>,
) -> Vec<ScheduledGroup> {
    let path = &engine.config().path;
    if let Ok(config) = crate::config::reload(path, &context.environment.env)
        && let Ok(group) = resolve_archive_group(&config, context.environment.find_group)
    {
        let groups = ScheduledGroup::of_config(&config);
        queue.retain_groups(&groups);
        let made_due = scheduler.replace_groups(groups, now);
        *engine = context.new_cli_engine(config, group);
        return made_due;
    }
    Vec::new()
}

/// Returns whether the reset of a group that is due is skipped, because the one before it is
/// still running, and says so once.
fn is_skipped(
    context: &mut CommandContext<'_>,
    group: &ScheduledGroup,
    running: &mut [RunningReset],
) -> bool {
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
        context.print_warning(&text);
    }
    true
}

/// Starts the resets that wait, as far as there is room beside those that run.
fn start_waiting(
    context: &mut CommandContext<'_>,
    config: &Path,
    queue: &mut StartQueue,
    running: &mut Vec<RunningReset>,
    time: DateTime<Local>,
) {
    let now = SystemClock.instant();
    let is_recent = |reset: &&RunningReset| now - reset.started_at < START_DELAY_LIMIT;
    let recent = running.iter().filter(is_recent).count();
    let failed = queue.start_waiting(now, recent, |group| {
        let process = reset_command(context, config, group).spawn()?;
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
        context.print_error(&text);
    }
}

/// Returns the command that resets a group, as a timer runs it.
fn reset_command(context: &CommandContext<'_>, config: &Path, group: &ScheduledGroup) -> Command {
    let mut command = Command::new(&context.environment.program_path);
    command.args(reset_arguments());
    command.args(context.output.inherited_flags());
    command.arg("--config").arg(config);
    command.args(agent_arguments(group.agent.as_deref()));
    command.stdin(Stdio::null());
    command
}

/// Reports the resets that have ended other than successfully.
fn report_ended(context: &mut CommandContext<'_>, running: &mut Vec<RunningReset>) {
    take_ended(context, running, |_| true);
    if std::process::id() == INIT_PROCESS_ID {
        reap_foreign_children(running);
    }
}

/// Removes the resets that have ended, and reports those whose status `is_reported`.
fn take_ended(
    context: &mut CommandContext<'_>,
    running: &mut Vec<RunningReset>,
    is_reported: impl Fn(&ExitStatus) -> bool,
) {
    running.retain_mut(|reset| {
        let how = match reset.process.try_wait() {
            Ok(None) => return true,
            Ok(Some(status)) if status.success() || !is_reported(&status) => return false,
            Ok(Some(status)) => format!("ended: {}", describe_exit(status)),
            Err(error) => format!("cannot be waited for: {error}"),
        };
        context.print_error(format!("the reset of {} {how}", reset.group.describe()));
        false
    });
}

/// Asks the resets in progress to end, and waits until they have: each finishes the agents that
/// it is at work on. Returns whether all have ended; one that hangs is left to itself.
fn stop_resets(context: &mut CommandContext<'_>, running: &mut Vec<RunningReset>) -> bool {
    for reset in running.iter() {
        let process = rustix::process::Pid::from_child(&reset.process);
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
    }
    let end = SystemClock.instant() + STOP_TIMEOUT;
    // One that waited for a lock, or had agents left, ends with this code.
    let interrupted_code = i32::from(ErrorKind::Interrupted.exit_code());
    while !running.is_empty() && SystemClock.instant() < end {
        take_ended(context, running, |status| {
            status.code().is_some_and(|code| code != interrupted_code)
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
        context.print_error(&text);
    }
    running.is_empty()
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
    let installs = engine.history().last_installs().unwrap_or_default();
    let groups = ScheduledGroup::of_config(engine.config());
    Scheduler::new(groups, now, |group| {
        let agents = group.agents(engine.config()).into_iter();
        // One agent that was reset by hand says nothing of the others.
        let first = agents.filter_map(|agent| installs.get(&agent.name)).min();
        first.map(|time| time.with_timezone(&Local))
    })
}
