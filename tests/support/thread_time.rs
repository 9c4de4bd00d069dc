//! Processor time: what work costs, whatever else runs on the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of this thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
