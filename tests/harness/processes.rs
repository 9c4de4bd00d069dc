//! Processes and threads of the racing harnesses: seeds, timeouts and locks.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::fixture::Fleet;

/// Upper bound of any run: what takes longer hangs.
pub const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a lock on the processors: only one race runs at a time.
pub fn processor_lock() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Random numbers that repeat in every run with the same seed (SplitMix64).
pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// Creates a directory that other users can reach, on the disk or in memory.
pub fn test_directory(in_memory: bool) -> (TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let shm = Path::new("/dev/shm");
    let created = if in_memory && shm.is_dir() {
        tempfile::tempdir_in(shm)
    } else {
        tempfile::tempdir()
    };
    let temporary = created.unwrap();
    let path = temporary.path().canonicalize().unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    (temporary, path)
}

/// Result of a program that has ended.
#[derive(Debug)]
pub struct EndedRun {
    /// None when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: String,
    pub err: String,
    pub duration: Duration,
}

/// The running program. Its output goes to files, so that no thread has to read it; dropping it
/// kills the program.
pub struct RunningProgram {
    child: Child,
    out: File,
    err: File,
    began: Instant,
}

impl RunningProgram {
    /// Starts the program with these arguments on a fleet.
    pub fn start_on(fleet: &Fleet, arguments: &[&str]) -> RunningProgram {
        RunningProgram::start(fleet.command(&[], arguments))
    }

    pub fn start(mut command: Command) -> RunningProgram {
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(err.try_clone().unwrap())
            .spawn()
            .unwrap();
        RunningProgram {
            child,
            out,
            err,
            began: Instant::now(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Lets it run until `moment` after its start, or to its end.
    pub fn run_until(&mut self, moment: Duration) {
        while self.began.elapsed() < moment && !self.has_ended() {
            thread::park_timeout(Duration::from_micros(50));
        }
    }

    /// Waits for its end; one that takes longer than `bound` is killed and fails the test.
    #[track_caller]
    pub fn end_within(mut self, bound: Duration) -> EndedRun {
        self.run_until(bound);
        let hangs = !self.has_ended();
        if hangs {
            self.kill();
        }
        let status = self.child.wait().unwrap();
        let ended = EndedRun {
            code: status.code(),
            signal: status.signal(),
            out: read_all(&mut self.out),
            err: read_all(&mut self.err),
            duration: self.began.elapsed(),
        };
        assert!(!hangs, "hangs: no exit within {bound:?}: {ended:?}");
        ended
    }

    #[track_caller]
    pub fn wait(self) -> EndedRun {
        self.end_within(RUN_TIMEOUT)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // A failed test leaves no process behind.
        if let Ok(None) = self.child.try_wait() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

fn read_all(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a condition, up to a time limit.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + RUN_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "timed out waiting for {what}");
        thread::park_timeout(Duration::from_millis(1));
    }
}
