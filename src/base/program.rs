//! Runs programs to their end, with limits on time and captured output: a program that hangs, floods, or
//! does not read its input neither blocks the caller nor fills its memory.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::clock::Clock;
use super::sys;
use super::temporary::create_memory_file;

/// Interval at which a run asks whether it is cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);

/// The limits of a run.
pub struct RunLimits<'a> {
    /// Time until the program is killed.
    pub timeout: Duration,
    /// Bytes that are kept of each output stream; the rest is read and dropped.
    pub max_output_bytes: usize,
    /// Clock of the timeout.
    pub clock: &'a dyn Clock,
    /// Whether the program is to be killed earlier.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The program has exited.
    Exited(ExitStatus),
    /// It was killed when its time was over.
    TimedOut,
    /// It was killed because the run was cancelled.
    Cancelled,
}

/// How a run ended, and the captured output, up to its limit.
#[derive(Debug)]
pub struct RunOutput {
    /// How it ended.
    pub end: RunEnd,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// Runs a command to its end, with `input` on its standard input. It has a session of its own, without
/// a terminal; its process group is killed at the end.
///
/// # Errors
/// It cannot be started, or not be waited for.
pub fn run(command: &mut Command, input: &[u8], limits: &RunLimits<'_>) -> io::Result<RunOutput> {
    // A program that does not read its input from a file delays nothing.
    command.stdin(memory_file_of(input)?);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::start_in_own_session(command);
    sys::end_with_parent(command);
    let mut child = command.spawn()?;
    let mut streams = [
        OutputStream::new(child.stdout.take()),
        OutputStream::new(child.stderr.take()),
    ];
    let killed = process_id(&child).and_then(|pid| {
        let killed = wait_for_exit(pid, &mut streams, limits);
        // Its number stays its own until its status is read. Fails if no process is left.
        let _ = kill_process_group(pid, Signal::KILL);
        killed
    });
    let status = child.wait()?;
    let [stdout, stderr] = streams.map(|stream| stream.kept);
    Ok(RunOutput {
        end: killed?.unwrap_or(RunEnd::Exited(status)),
        stdout,
        stderr,
    })
}

/// Describes how a program ended: `exit code 3`, `killed by SIGTERM`.
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("killed by {name}"),
            None => format!("killed by signal {signal}"),
        },
        (None, None) => "no exit code".to_string(),
    }
}

/// Returns a file in memory with these bytes, to be read from its beginning.
///
/// # Errors
/// The system's error.
pub fn memory_file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = create_memory_file()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Returns the number of a child process.
///
/// # Errors
/// It is none of the system's.
pub fn process_id(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("invalid process id"))
}

/// An output stream of a program; the pipe is none once it has ended.
struct OutputStream {
    pipe: Option<File>,
    kept: Vec<u8>,
}

impl OutputStream {
    fn new(pipe: Option<impl Into<OwnedFd>>) -> OutputStream {
        OutputStream {
            pipe: pipe.map(|pipe| File::from(pipe.into())),
            kept: Vec::new(),
        }
    }

    /// Reads once from a pipe that is ready, and keeps what there is room for.
    fn read_ready(&mut self, max_bytes: usize) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        let count = pipe.read(&mut buffer)?;
        let room = max_bytes.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&buffer[..count.min(room)]);
        if count == 0 {
            self.pipe = None;
        }
        Ok(())
    }
}

/// Reads the streams until the process has exited; returns why it has to be killed, if it has not.
fn wait_for_exit(
    pid: Pid,
    streams: &mut [OutputStream; 2],
    limits: &RunLimits<'_>,
) -> io::Result<Option<RunEnd>> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let deadline = limits.clock.instant() + limits.timeout;
    loop {
        let left = deadline.saturating_duration_since(limits.clock.instant());
        if (limits.is_cancelled)() {
            return Ok(Some(RunEnd::Cancelled));
        }
        if left.is_zero() {
            return Ok(Some(RunEnd::TimedOut));
        }
        if read_streams(&process, streams, left.min(CANCEL_INTERVAL), limits)? {
            break;
        }
    }
    // Drain the pipes. A process that the program left behind may print without end.
    let mut kept = None;
    while kept != Some(streams.each_ref().map(|stream| stream.kept.len())) {
        kept = Some(streams.each_ref().map(|stream| stream.kept.len()));
        read_streams(&process, streams, Duration::ZERO, limits)?;
    }
    Ok(None)
}

/// Waits until a stream has bytes or the process has exited, and reads the bytes. Returns whether it
/// has exited.
fn read_streams(
    process: &OwnedFd,
    streams: &mut [OutputStream; 2],
    pause: Duration,
    limits: &RunLimits<'_>,
) -> io::Result<bool> {
    let pipes = streams.iter().map(|stream| stream.pipe.as_ref());
    let mut polled: Vec<PollFd<'_>> = pipes
        .flatten()
        .map(|pipe| PollFd::new(pipe, PollFlags::IN))
        .collect();
    polled.push(PollFd::new(process, PollFlags::IN));
    let pause = Timespec::try_from(pause).map_err(io::Error::other)?;
    match poll(&mut polled, Some(&pause)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
        Ok(_) => {}
        Err(errno) => return Err(errno.into()),
    }
    let ready = polled.iter().map(|it| !it.revents().is_empty());
    let ready: Vec<bool> = ready.collect();
    let open = streams.iter_mut().filter(|stream| stream.pipe.is_some());
    for (stream, _) in open.zip(&ready).filter(|(_, is_ready)| **is_ready) {
        stream.read_ready(limits.max_output_bytes)?;
    }
    Ok(ready.last() == Some(&true))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::base::clock::SystemClock;

    const LONG: Duration = Duration::from_secs(60);

    fn run_script(script: &str, timeout: Duration, is_cancelled: bool) -> RunOutput {
        let limits = RunLimits {
            timeout,
            max_output_bytes: 10,
            clock: &SystemClock,
            is_cancelled: &|| is_cancelled,
        };
        run(Command::new("sh").args(["-c", script]), b"input", &limits).unwrap()
    }

    fn exit_code(output: &RunOutput) -> Option<i32> {
        match output.end {
            RunEnd::Exited(status) => status.code(),
            RunEnd::TimedOut | RunEnd::Cancelled => None,
        }
    }

    #[test]
    fn output_is_kept_up_to_its_limit() {
        let script = "cat; printf 0123456789abc >&2; yes | head -c 1000000; exit 3";
        let output = run_script(script, LONG, false);
        assert_eq!(exit_code(&output), Some(3));
        assert_eq!(output.stdout, b"inputy\ny\ny");
        assert_eq!(output.stderr, b"0123456789");
    }

    #[test]
    fn hanging_program_and_its_children_are_killed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 1000 & echo $! >{}; wait", file.display());
        let output = run_script(&script, Duration::from_secs(2), false);
        assert_eq!(output.end, RunEnd::TimedOut);
        let pid = std::fs::read_to_string(&file).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        // The signal was sent; the process may need a moment to end.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
            let mut exit = [PollFd::new(&process, PollFlags::IN)];
            let pause = Timespec::try_from(LONG).unwrap();
            assert_eq!(poll(&mut exit, Some(&pause)), Ok(1), "{pid:?}");
        }
    }

    #[test]
    fn output_of_a_left_process_does_not_delay() {
        let began = Instant::now();
        for script in ["sleep 1000 & exit 0", "yes & echo first; exit 0"] {
            assert_eq!(exit_code(&run_script(script, LONG, false)), Some(0));
        }
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn flooding_program_is_killed_in_time() {
        let output = run_script("yes", Duration::from_secs(2), false);
        assert_eq!(output.end, RunEnd::TimedOut);
        assert_eq!(output.stdout, b"y\ny\ny\ny\ny\n");
    }

    #[test]
    fn unread_input_delays_nothing() {
        let output = run_script("exec 0<&-; exit 0", LONG, false);
        assert_eq!(exit_code(&output), Some(0));
    }

    #[test]
    fn cancelled_program_is_killed() {
        let output = run_script("sleep 1000", LONG, true);
        assert_eq!(output.end, RunEnd::Cancelled);
    }
}
