//! The guard's loop: a pass after each change in the directories of the baselines, and a slow sweep
//! behind that, since a watcher can miss changes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::GuardPass;
use crate::engine::{Engine, start_directory_watcher};
use crate::error::Result;

/// Interval between two passes without a change.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// Interval between two passes while an operator edits.
const DEFERRED_INTERVAL: Duration = Duration::from_secs(2);

/// How long the loop waits for a change before it looks whether to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(200);

/// Wait after a change, so that a program that writes several files is done.
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);

/// What ended a wait.
enum Wake {
    Change,
    Sweep,
    Stop,
}

impl Engine {
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
        let first = self.guard_baselines()?;
        let mut is_deferred = first.deferred.is_some();
        report(Ok(first));
        loop {
            if let Some(watcher) = &mut watcher {
                self.watch_baselines(watcher);
            }
            let interval = if is_deferred {
                DEFERRED_INTERVAL
            } else {
                SWEEP_INTERVAL
            };
            match self.wait_for_change(&changes, interval, stop) {
                Wake::Stop => return Ok(()),
                Wake::Change => self.clock().sleep(SETTLE_INTERVAL),
                Wake::Sweep => {}
            }
            while changes.try_recv().is_ok() {}
            let pass = self.guard_baselines();
            is_deferred = pass.as_ref().is_ok_and(|pass| pass.deferred.is_some());
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
