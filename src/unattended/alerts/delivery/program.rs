//! Runs the program of `command`: with the event on its standard input, in a process group of its own
//! that is killed at the time limit. What it prints is read and thrown away, but for a beginning that
//! explains a failure.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::{CANCELLED, POLL_INTERVAL};
use crate::base::clock::Clock;
use crate::base::error::describe_io_error;
use crate::base::sys;
use crate::base::trust::{find_program, read_interpreter_line};
use crate::unattended::alerts::event::{quote_first_line, visible};

/// Maximum number of bytes of output that are kept.
const MAX_KEPT_BYTES: usize = 2048;

/// A run of the program.
pub(super) struct ProgramRun<'a> {
    pub program: &'a str,
    pub arguments: &'a [String],
    /// Its working directory; a relative path of the program starts there.
    pub directory: &'a Path,
    /// Where a program without a directory is looked for.
    pub search_path: &'a [PathBuf],
    pub timeout: Duration,
    pub clock: &'a dyn Clock,
    pub is_cancelled: &'a dyn Fn() -> bool,
}

/// How a run ended.
enum RunEnd {
    /// The program has exited, and waits for its status to be read.
    Exited,
    TimedOut,
    Cancelled,
}

impl ProgramRun<'_> {
    /// Runs the program.
    ///
    /// # Errors
    /// Why it counts as failed, in a few words.
    pub fn run(&self, input: &[u8]) -> Result<(), String> {
        let mut output = Vec::new();
        let shown = visible(self.program);
        let Some(path) = find_program(self.program, self.directory, self.search_path) else {
            return Err(format!("cannot run {shown}: no such program"));
        };
        let ran = self.run_child(&path, input, &mut output);
        let (end, status) = ran.map_err(|error| {
            // The program is there.
            let cause = if error.kind() == io::ErrorKind::NotFound {
                describe_missing_interpreter(&path)
            } else {
                describe_io_error(&error)
            };
            format!("cannot run {shown}: {cause}")
        })?;
        let text = String::from_utf8_lossy(&output);
        let said = quote_first_line(&text);
        match end {
            RunEnd::Exited if status.success() => Ok(()),
            RunEnd::Exited => match (status.code(), status.signal()) {
                (Some(code), _) => Err(format!("exit code {code}{said}")),
                (None, Some(signal)) => Err(format!("ended by signal {signal}{said}")),
                (None, None) => Err(format!("ended without an exit code{said}")),
            },
            RunEnd::TimedOut => Err(format!(
                "no end within {} s; it was killed{said}",
                self.timeout.as_secs()
            )),
            RunEnd::Cancelled => Err(CANCELLED.to_string()),
        }
    }

    fn run_child(
        &self,
        path: &Path,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> io::Result<(RunEnd, ExitStatus)> {
        // A program that does not read its input cannot delay anything.
        let mut file = File::from(rustix::fs::memfd_create(
            "memory-shepherd-alert",
            MemfdFlags::CLOEXEC,
        )?);
        file.write_all(input)?;
        file.write_all(b"\n")?;
        file.rewind()?;
        let (mut reader, writer) = io::pipe()?;
        let mut command = Command::new(path);
        command
            .arg0(self.program)
            .args(self.arguments)
            .current_dir(self.directory)
            .stdin(file)
            .stdout(writer.try_clone()?)
            .stderr(Stdio::from(writer))
            .process_group(0);
        sys::end_with_parent(&mut command);
        let mut child = command.spawn()?;
        // Closes its copies of the pipe.
        drop(command);
        let end = self.wait(&child, &mut reader, output);
        // Processes that it left behind would keep running. Its own id is not free before its status
        // is read.
        kill_group(&child);
        let status = child.wait()?;
        Ok((end?, status))
    }

    /// Reads what the program prints until it ends.
    fn wait(
        &self,
        child: &Child,
        reader: &mut io::PipeReader,
        output: &mut Vec<u8>,
    ) -> io::Result<RunEnd> {
        let deadline = self.clock.instant() + self.timeout;
        let mut is_open = true;
        loop {
            if has_exited(child)? {
                read_rest(reader, output, is_open)?;
                return Ok(RunEnd::Exited);
            }
            if (self.is_cancelled)() {
                return Ok(RunEnd::Cancelled);
            }
            let left = deadline.saturating_duration_since(self.clock.instant());
            if left.is_zero() {
                return Ok(RunEnd::TimedOut);
            }
            let pause = left.min(POLL_INTERVAL);
            if is_open {
                is_open = !read_ready(reader, pause, output)?;
            } else {
                self.clock.sleep(pause);
            }
        }
    }
}

/// Returns why a program that exists was not found: its first line names an interpreter that does not.
fn describe_missing_interpreter(path: &Path) -> String {
    let line = read_interpreter_line(path);
    let path = visible(&path.display().to_string());
    match line {
        Some(line) => format!(
            "the interpreter of {path} is missing: {}",
            visible(&line.interpreter)
        ),
        None => format!("the interpreter of {path} is missing"),
    }
}

/// Returns whether a program has ended, and leaves its status to be read.
fn has_exited(child: &Child) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let Some(pid) = process_id(child) else {
        return Err(io::Error::other("invalid process id"));
    };
    match waitid(WaitId::Pid(pid), options) {
        Ok(status) => Ok(status.is_some()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads what an ended program has printed last, as far as it is there.
fn read_rest(reader: &mut io::PipeReader, output: &mut Vec<u8>, is_open: bool) -> io::Result<()> {
    let mut is_open = is_open;
    while is_open && output.len() < MAX_KEPT_BYTES {
        let before = output.len();
        let is_at_end = read_ready(reader, Duration::ZERO, output)?;
        is_open = !is_at_end && output.len() > before;
    }
    Ok(())
}

/// Reads what the pipe has within `pause`, and keeps the beginning. Returns whether it is at its end.
fn read_ready(
    reader: &mut io::PipeReader,
    pause: Duration,
    output: &mut Vec<u8>,
) -> io::Result<bool> {
    let pause = Timespec::try_from(pause).map_err(io::Error::other)?;
    let mut polled = [PollFd::new(reader, PollFlags::IN)];
    match poll(&mut polled, Some(&pause)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
        Ok(_) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut buffer = [0; 4096];
    let count = reader.read(&mut buffer)?;
    let room = MAX_KEPT_BYTES.saturating_sub(output.len());
    output.extend_from_slice(&buffer[..count.min(room)]);
    Ok(count == 0)
}

fn process_id(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn kill_group(child: &Child) {
    if let Some(pid) = process_id(child) {
        // Fails if no process of the group is left.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use rustix::process::{PidfdFlags, pidfd_open};

    use super::*;
    use crate::base::clock::SystemClock;

    fn run_script(script: &str, timeout: Duration, is_cancelled: bool) -> Result<(), String> {
        let arguments = ["-c".to_string(), script.to_string()];
        let run = ProgramRun {
            program: "sh",
            arguments: &arguments,
            directory: Path::new("/"),
            search_path: &["/bin".into()],
            timeout,
            clock: &SystemClock,
            is_cancelled: &|| is_cancelled,
        };
        run.run(b"{\"event\":\"disk\"}")
    }

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(200);

    #[test]
    fn program_gets_the_event_on_its_input() {
        let script = "read line && test \"$line\" = '{\"event\":\"disk\"}'";
        assert_eq!(run_script(script, LONG, false), Ok(()));
    }

    #[test]
    fn failure_quotes_the_first_line_visibly() {
        let result = run_script("printf '\\033[31mno route\\n\\n' >&2; exit 3", LONG, false);
        let error = result.unwrap_err();
        assert!(error.starts_with("exit code 3: "), "{error}");
        assert!(
            error.contains("no route") && !error.contains('\x1b'),
            "{error}"
        );
    }

    #[test]
    fn hanging_program_and_its_children_are_killed() {
        let began = Instant::now();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 1000 & echo $! >{}; wait", file.display());
        let error = run_script(&script, Duration::from_secs(2), false).unwrap_err();
        assert!(error.contains("it was killed"), "{error}");
        assert!(began.elapsed() < LONG);
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
    fn open_output_of_a_child_does_not_delay() {
        let began = Instant::now();
        assert_eq!(run_script("sleep 1000 & exit 0", LONG, false), Ok(()));
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn flooding_program_is_killed_and_cut() {
        let error = run_script("yes flood", SHORT, false).unwrap_err();
        assert!(error.contains("it was killed: flood"), "{error}");
        assert!(error.len() < 1000);
    }

    #[test]
    fn program_that_reads_nothing_succeeds() {
        assert_eq!(run_script("exec 0<&-; exit 0", LONG, false), Ok(()));
    }

    #[test]
    fn missing_program_is_named() {
        let run = ProgramRun {
            program: "/nonexistent/notify",
            arguments: &[],
            directory: Path::new("/"),
            search_path: &[],
            timeout: LONG,
            clock: &SystemClock,
            is_cancelled: &|| false,
        };
        let error = run.run(b"{}").unwrap_err();
        assert_eq!(error, "cannot run /nonexistent/notify: no such program");
    }

    #[test]
    fn missing_interpreter_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        std::fs::write(&path, "#! /no/such/interp -x\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = ProgramRun {
            program: "./notify",
            arguments: &[],
            directory: directory.path(),
            search_path: &[],
            timeout: LONG,
            clock: &SystemClock,
            is_cancelled: &|| false,
        };
        let error = run.run(b"{}").unwrap_err();
        assert!(
            error.contains("notify is missing: /no/such/interp"),
            "{error}"
        );
        assert!(!error.contains("-x"), "{error}");
    }

    #[test]
    fn cancelled_program_is_stopped() {
        let error = run_script("sleep 1000", LONG, true).unwrap_err();
        assert_eq!(error, CANCELLED);
    }
}
