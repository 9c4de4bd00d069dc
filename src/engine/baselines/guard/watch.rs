//! The guard's loop: a pass after each change in the directories of the baselines, and a slow sweep
//! behind that, since a watcher can miss changes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::{EDIT_DEFERRAL, GuardAction, GuardPass};
use crate::base::durable;
use crate::base::error::Result;
use crate::engine::baselines::Guard;
use crate::engine::{describe_watch_error, start_directory_watcher};

/// Interval between two passes without a change.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Interval between two passes where the system does not report changes.
const UNWATCHED_INTERVAL: Duration = Duration::from_secs(5);

/// Interval between two passes while an operator edits.
const DEFERRED_INTERVAL: Duration = Duration::from_secs(2);

/// How long the loop waits for a change before it looks whether to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(200);

/// Least time from the beginning of a pass to the next one: programs can change files all the time.
const MIN_PASS_INTERVAL: Duration = Duration::from_secs(1);

/// How long one look waits for what it has to leave to a later pass.
const MAX_LOOK_TIME: Duration = Duration::from_secs(60);

/// Wait after a change, so that a program that writes several files is done.
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);

/// What the guard reports while it runs.
#[derive(Debug)]
pub enum GuardProgress {
    /// A pass, or why it could not be made.
    Pass(Result<GuardPass>),
    /// Changes are only found by passes, in this interval and for this reason; reported once.
    Unwatched {
        /// The interval.
        interval: Duration,
        /// What the system refuses.
        cause: String,
    },
}

/// The watch on the directories of the baselines, as far as the system grants it.
struct BaselineWatch {
    watcher: Option<RecommendedWatcher>,
    /// Why directories are not watched.
    failure: Option<String>,
    is_failure_reported: bool,
}

impl BaselineWatch {
    fn new(started: notify::Result<RecommendedWatcher>) -> BaselineWatch {
        BaselineWatch {
            failure: started.as_ref().err().map(describe_watch_error),
            watcher: started.ok(),
            is_failure_reported: false,
        }
    }

    /// Watches directories; those that are watched already stay so.
    fn watch(&mut self, directories: &BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        for directory in directories {
            // A directory that does not exist is found by the sweep once it does.
            if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive)
                && !is_missing(&error)
            {
                self.failure.get_or_insert(describe_watch_error(&error));
            }
        }
    }

    /// Returns the interval between two passes without a change.
    fn sweep_interval(&self) -> Duration {
        if self.failure.is_some() {
            UNWATCHED_INTERVAL
        } else {
            SWEEP_INTERVAL
        }
    }

    /// Returns the report about directories that are not watched, once.
    fn take_report(&mut self) -> Option<GuardProgress> {
        let cause = self.failure.clone()?;
        let is_reported = std::mem::replace(&mut self.is_failure_reported, true);
        (!is_reported).then_some(GuardProgress::Unwatched {
            interval: UNWATCHED_INTERVAL,
            cause,
        })
    }
}

/// Whether a directory that should be watched does not exist.
fn is_missing(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => durable::is_absent(error),
        _ => false,
    }
}

/// What ended a wait.
enum Wake {
    Change,
    Sweep,
    Stop,
}

impl Guard {
    /// Guards the baselines once: makes passes until none leaves anything to the next, unless an
    /// operator edits.
    ///
    /// # Errors
    /// As [`Guard::guard_baselines`].
    pub fn guard_once(&self) -> Result<GuardPass> {
        let end = self.context.clock().instant() + MAX_LOOK_TIME;
        let mut pass = self.guard_baselines()?;
        while pass.is_unfinished()
            && pass.deferred != Some(EDIT_DEFERRAL)
            && self.context.clock().instant() < end
        {
            self.context.clock().sleep(DEFERRED_INTERVAL);
            let mut events = std::mem::take(&mut pass.events);
            events.retain(|event| event.action == GuardAction::Restored);
            pass = self.guard_baselines()?;
            pass.events.splice(0..0, events);
        }
        Ok(pass)
    }

    /// Guards the baselines until `stop` is set, and calls `report` with each pass.
    ///
    /// # Errors
    /// What only the config or the operator can change, at the first pass.
    pub fn guard_until_stopped(
        &self,
        stop: &AtomicBool,
        report: &mut dyn FnMut(GuardProgress),
    ) -> Result<()> {
        let (sender, changes) = bounded(1);
        let handler = move |event: notify::Result<notify::Event>| {
            // A pass only reads the files. One signal is enough for many changes.
            let is_change = event.is_ok_and(|event| match event.kind {
                EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
                _ => true,
            });
            if is_change {
                let _ = sender.try_send(());
            }
        };
        // Without a watcher the sweep does the work.
        let mut watch = BaselineWatch::new(start_directory_watcher(handler));
        // Before the first pass, so that no change after it is missed.
        watch.watch(&self.baseline_directories());
        let stops = || stop.load(Ordering::Relaxed);
        let mut began = self.context.clock().instant();
        let first = self.guard_until(&stops)?;
        let mut is_unfinished = first.is_unfinished();
        report(GuardProgress::Pass(Ok(first)));
        loop {
            watch.watch(&self.baseline_directories());
            watch.take_report().into_iter().for_each(&mut *report);
            let interval = if is_unfinished {
                DEFERRED_INTERVAL
            } else {
                watch.sweep_interval()
            };
            match self.wait_for_change(&changes, interval, stop) {
                Wake::Stop => return Ok(()),
                Wake::Change => {
                    let passed = self
                        .context
                        .clock()
                        .instant()
                        .saturating_duration_since(began);
                    let rest = MIN_PASS_INTERVAL.saturating_sub(passed);
                    self.context.clock().sleep(rest.max(SETTLE_INTERVAL));
                }
                Wake::Sweep => {}
            }
            while changes.try_recv().is_ok() {}
            began = self.context.clock().instant();
            let pass = self.guard_until(&stops);
            is_unfinished = pass.as_ref().is_ok_and(GuardPass::is_unfinished);
            report(GuardProgress::Pass(pass));
        }
    }

    /// Returns the directories of the baselines.
    fn baseline_directories(&self) -> BTreeSet<PathBuf> {
        let config = self.context.config();
        let files = config
            .agents
            .iter()
            .filter_map(|agent| config.baseline_path(agent));
        let mut directories: BTreeSet<PathBuf> = files
            .filter_map(|file| Some(file.parent()?.to_path_buf()))
            .collect();
        directories.insert(config.general.baseline_dir.clone());
        directories
    }

    fn wait_for_change(
        &self,
        changes: &Receiver<()>,
        interval: Duration,
        stop: &AtomicBool,
    ) -> Wake {
        let end = self.context.clock().instant() + interval;
        while !stop.load(Ordering::Relaxed) {
            match changes.recv_timeout(STOP_INTERVAL) {
                Ok(()) => return Wake::Change,
                Err(RecvTimeoutError::Timeout) if self.context.clock().instant() >= end => {
                    return Wake::Sweep;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Without a watcher, only the sweep finds changes.
                Err(RecvTimeoutError::Disconnected) => {
                    self.context.clock().sleep(STOP_INTERVAL);
                    if self.context.clock().instant() >= end {
                        return Wake::Sweep;
                    }
                }
            }
        }
        Wake::Stop
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn refused_watcher_is_reported_once() {
        let refused = notify::Error::io(io::Error::from(Errno::MFILE));
        let mut watch = BaselineWatch::new(Err(refused));
        assert_eq!(watch.sweep_interval(), UNWATCHED_INTERVAL);
        let Some(GuardProgress::Unwatched { interval, cause }) = watch.take_report() else {
            panic!("no report");
        };
        assert_eq!(interval, UNWATCHED_INTERVAL);
        assert!(cause.contains("fs.inotify.max_user_instances"), "{cause}");
        assert!(watch.take_report().is_none());
    }

    #[test]
    fn missing_directory_is_no_refused_watch() {
        let mut watch = BaselineWatch::new(start_directory_watcher(|_| {}));
        let root = tempfile::tempdir().unwrap();
        watch.watch(&[root.path().to_path_buf(), root.path().join("missing")].into());
        assert_eq!(watch.failure, None);
        assert_eq!(watch.sweep_interval(), SWEEP_INTERVAL);
        assert!(watch.take_report().is_none());
    }
}
