//! A program that goes on until it is stopped.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

/// The process, which ends with the test.
pub(super) struct RunningProgram(pub(super) Child);

impl RunningProgram {
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
