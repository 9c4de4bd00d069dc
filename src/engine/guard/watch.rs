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
use crate::engine::{Engine, start_directory_watcher};
use crate::error::Result;

/// Interval between two passes without a change.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

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

/// What ended a wait.
enum Wake {
    Change,
    Sweep,
    Stop,
}

impl Engine {
    /// Guards the baselines once: makes passes until none leaves anything to the next, unless an
    /// operator edits.
    ///
    /// # Errors
    /// As [`Engine::guard_baselines`].
    pub fn guard_once(&self) -> Result<GuardPass> {
        let end = self.clock().instant() + MAX_LOOK_TIME;
        let mut pass = self.guard_baselines()?;
        while pass.is_unfinished()
            && pass.deferred != Some(EDIT_DEFERRAL)
            && self.clock().instant() < end
        {
            self.clock().sleep(DEFERRED_INTERVAL);
            let mut events = std::mem::take(&mut pass.events);
            events.retain(|event| event.action == GuardAction::Restored);
            pass = self.guard_baselines()?;
            pass.events.splice(0..0, events);
        }
        Ok(pass)
    }

    /// Guards the baselines until `stop` is set, and calls `report` with each pass, or with why it
    /// could not be made.
    ///
    /// # Errors
    /// What only the config or the operator can change, at the first pass.
    pub fn guard_until_stopped(
        &self,
        stop: &AtomicBool,
        report: &mut dyn FnMut(Result<GuardPass>),
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
        let mut watcher = start_directory_watcher(handler).ok();
        if let Some(watcher) = &mut watcher {
            // Before the first pass, so that no change after it is missed.
            self.watch_baselines(watcher);
        }
        let stops = || stop.load(Ordering::Relaxed);
        let mut began = self.clock().instant();
        let first = self.guard_until(&stops)?;
        let mut is_unfinished = first.is_unfinished();
        report(Ok(first));
        loop {
            if let Some(watcher) = &mut watcher {
                self.watch_baselines(watcher);
            }
            let interval = if is_unfinished {
                DEFERRED_INTERVAL
            } else {
                SWEEP_INTERVAL
            };
            match self.wait_for_change(&changes, interval, stop) {
                Wake::Stop => return Ok(()),
                Wake::Change => {
                    let passed = self.clock().instant().saturating_duration_since(began);
                    let rest = MIN_PASS_INTERVAL.saturating_sub(passed);
                    self.clock().sleep(rest.max(SETTLE_INTERVAL));
                }
                Wake::Sweep => {}
            }
            while changes.try_recv().is_ok() {}
            began = self.clock().instant();
            let pass = self.guard_until(&stops);
            is_unfinished = pass.as_ref().is_ok_and(GuardPass::is_unfinished);
            report(pass);
        }
    }

    /// Watches the directories of the baselines; those that exist already are watched once.
    fn watch_baselines(&self, watcher: &mut RecommendedWatcher) {
        let config = self.config();
        let files = config
            .agents
            .iter()
            .map(|agent| config.baseline_path(agent));
        let mut directories: BTreeSet<PathBuf> = files
            .filter_map(|file| Some(file.parent()?.to_path_buf()))
            .collect();
        directories.insert(config.general.baseline_dir.clone());
        for directory in directories {
            // A directory that does not exist is found by the sweep once it does.
            let _ = watcher.watch(&directory, RecursiveMode::NonRecursive);
        }
    }

    fn wait_for_change(
        &self,
        changes: &Receiver<()>,
        interval: Duration,
        stop: &AtomicBool,
    ) -> Wake {
        let end = self.clock().instant() + interval;
        while !stop.load(Ordering::Relaxed) {
            match changes.recv_timeout(STOP_INTERVAL) {
                Ok(()) => return Wake::Change,
                Err(RecvTimeoutError::Timeout) if self.clock().instant() >= end => {
                    return Wake::Sweep;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Without a watcher, only the sweep finds changes.
                Err(RecvTimeoutError::Disconnected) => {
                    self.clock().sleep(STOP_INTERVAL);
                    if self.clock().instant() >= end {
                        return Wake::Sweep;
                    }
                }
            }
        }
        Wake::Stop
    }
}
