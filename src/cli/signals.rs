//! The signals INT, TERM and HUP: what they end, and how.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sys;

/// Registers a flag that INT, TERM and HUP set, so that a run finishes the agents in progress
/// before it stops. Once `is_over` is set, they end the process as they do without a handler. A HUP
/// that is ignored at the start, as under nohup(1), stays ignored.
pub(super) fn register_stop_flag(is_over: &Arc<AtomicBool>) -> Result<Arc<AtomicBool>> {
    let stop = Arc::default();
    let hangup = (!sys::is_signal_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        flag::register_conditional_default(signal, Arc::clone(is_over))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| signal_error(signal, &error))?;
    }
    Ok(stop)
}

fn signal_error(signal: i32, error: &io::Error) -> Error {
    let message = format!("cannot handle signal {signal}: {error}");
    Error::new(ErrorKind::Internal, message)
}

/// What ends the wait for locks, a run, and the deliveries after it early: INT, TERM and HUP set `stop`.
/// Before and in between, while the command makes its plan and prints its result, they end the process
/// as they do without a handler.
pub(super) struct RunSignals {
    pub(super) stop: Arc<AtomicBool>,
    is_released: Arc<AtomicBool>,
}

impl RunSignals {
    /// Registers the signals, which end the process until they are caught.
    pub(super) fn register() -> Result<RunSignals> {
        let is_released = Arc::new(AtomicBool::new(true));
        let stop = register_stop_flag(&is_released)?;
        Ok(RunSignals { stop, is_released })
    }

    /// Returns whether a signal has come while they were caught.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Lets the signals set `stop` from now on.
    pub(super) fn catch(&self) {
        self.is_released.store(false, Ordering::Relaxed);
    }

    /// Lets the signals end the process from now on.
    pub(super) fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
    }
}

/// What ends a command that goes on until it is stopped.
pub(super) struct StopSignals {
    /// Set by INT, TERM and HUP.
    pub(super) stop: Arc<AtomicBool>,
    interrupted: Arc<AtomicBool>,
    is_released: Arc<AtomicBool>,
}

impl StopSignals {
    /// Registers the signals.
    pub(super) fn register() -> Result<StopSignals> {
        // First: a signal that finds `is_released` unset has set `stop`, which `while_released` sees.
        let stop = register_stop_flag(&Arc::default())?;
        let is_released: Arc<AtomicBool> = Arc::default();
        let interrupted_code = i32::from(ErrorKind::Interrupted.exit_code());
        for (signal, code) in [(SIGINT, interrupted_code), (SIGTERM, 0), (SIGHUP, 0)] {
            if signal != SIGHUP || !sys::is_signal_ignored(signal) {
                flag::register_conditional_shutdown(signal, code, Arc::clone(&is_released))
                    .map_err(|error| signal_error(signal, &error))?;
            }
        }
        let interrupted: Arc<AtomicBool> = Arc::default();
        flag::register(SIGINT, Arc::clone(&interrupted))
            .map_err(|error| signal_error(SIGINT, &error))?;
        Ok(StopSignals {
            stop,
            interrupted,
            is_released,
        })
    }

    /// Returns whether no signal has come.
    pub(super) fn is_running(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    /// Prints while signals end the process at once: a reader that takes nothing must not keep it.
    /// Prints nothing once a signal has come.
    pub(super) fn while_released(&self, print: impl FnOnce() -> Result<()>) -> Result<()> {
        self.is_released.store(true, Ordering::SeqCst);
        let printed = if self.is_running() { print() } else { Ok(()) };
        self.is_released.store(false, Ordering::Relaxed);
        printed
    }

    /// Returns the result of a command that was stopped: INT is an interruption, TERM an order.
    pub(super) fn error_kind(&self) -> Option<ErrorKind> {
        let was_interrupted = self.interrupted.load(Ordering::Relaxed);
        was_interrupted.then_some(ErrorKind::Interrupted)
    }
}
