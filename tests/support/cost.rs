//! What one run of a program costs: time, processor time and memory.

use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Resources that a process used.
pub struct Cost {
    pub wall: Duration,
    pub processor: Duration,
    /// Maximum resident memory, in KiB.
    pub resident: i64,
}

impl Cost {
    /// Runs a command, which must succeed, without an environment but the search path.
    pub fn of(command: &mut Command) -> Cost {
        if let Some(path) = std::env::var_os("PATH") {
            command.env_clear().env("PATH", path);
        }
        Cost::of_prepared(command)
    }

    /// Runs a command in its own environment; it must succeed.
    pub fn of_prepared(command: &mut Command) -> Cost {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let began = Instant::now();
        #[expect(clippy::zombie_processes, reason = "it is waited for below")]
        let child = command.spawn().expect("the program");
        let mut status = 0;
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        let pid = child.id() as libc::pid_t;
        // SAFETY: both pointers are to memory of ours; all zeros are a valid usage.
        let usage = unsafe {
            assert_eq!(
                libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()),
                pid
            );
            usage.assume_init()
        };
        let wall = began.elapsed();
        assert_eq!(status, 0, "the program failed");
        let time = |time: libc::timeval| {
            Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
        };
        Cost {
            wall,
            processor: time(usage.ru_utime) + time(usage.ru_stime),
            resident: usage.ru_maxrss,
        }
    }
}
