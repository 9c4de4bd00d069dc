//! The service manager: `systemctl`, with a time limit.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::UnitScope;
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result, describe_io_error};
use crate::base::temporary::create_memory_file;

/// Runs commands of the service manager.
pub trait ServiceManager {
    /// Returns whether a service manager runs that reads the units.
    fn is_running(&self) -> bool;

    /// Runs `systemctl` with these arguments and returns what it printed.
    ///
    /// # Errors
    /// It cannot be started, does not end in time, or fails; with the first line that it printed.
    fn run(&self, arguments: &[&str]) -> Result<String>;
}

/// Time limit of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause between two looks whether the command has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum size of what a command prints, in bytes.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// Maximum length of a quoted message, in characters.
const MAX_QUOTED_CHARS: usize = 200;

/// Maximum length of a quoted command line, in characters.
const MAX_COMMAND_CHARS: usize = 120;

/// The service manager that `systemctl` controls. It prints times in UTC.
pub struct Systemctl<'a> {
    scope: UnitScope,
    program: PathBuf,
    /// Exists while the service manager runs.
    runtime_path: Option<PathBuf>,
    timeout: Duration,
    clock: &'a dyn Clock,
}

impl<'a> Systemctl<'a> {
    /// Creates the service manager of a scope; `runtime_directory` is `$XDG_RUNTIME_DIR`.
    pub fn new(
        scope: UnitScope,
        runtime_directory: Option<&Path>,
        clock: &'a dyn Clock,
    ) -> Systemctl<'a> {
        Systemctl {
            scope,
            program: "systemctl".into(),
            runtime_path: match scope {
                // The test of sd_booted(3).
                UnitScope::System => Some("/run/systemd/system".into()),
                UnitScope::User => runtime_directory.map(|it| it.join("systemd/private")),
            },
            timeout: COMMAND_TIMEOUT,
            clock,
        }
    }

    /// Sets the time limit of each command.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Systemctl<'a> {
        Systemctl { timeout, ..self }
    }

    /// Sets the program, and the path that exists while the service manager runs.
    #[must_use]
    pub fn with_program(self, program: &Path, runtime_path: &Path) -> Systemctl<'a> {
        Systemctl {
            program: program.to_path_buf(),
            runtime_path: Some(runtime_path.to_path_buf()),
            ..self
        }
    }

    /// Runs the command and returns its status, output and errors.
    fn call(&self, arguments: &[&str]) -> io::Result<(ExitStatus, String, String)> {
        // Files instead of pipes: a command that prints much cannot wait for a reader.
        let (mut output, mut errors) = (create_memory_file()?, create_memory_file()?);
        let mut command = Command::new(&self.program);
        if self.scope == UnitScope::User {
            command.arg("--user");
        }
        command.args(["--no-pager", "--no-ask-password"]);
        command.args(arguments);
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command.stdin(Stdio::null());
        command
            .stdout(output.try_clone()?)
            .stderr(errors.try_clone()?);
        let mut child = command.spawn()?;
        let end = self.clock.instant() + self.timeout;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if self.clock.instant() >= end {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = self.timeout.as_secs();
                let text = format!("it has not ended within {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.clock.sleep(POLL_INTERVAL);
        };
        Ok((status, read_output(&mut output)?, read_output(&mut errors)?))
    }
}

impl Systemctl<'_> {
    /// Returns the command line for a message; without its options and units if it is long.
    fn describe_command(&self, arguments: &[&str]) -> String {
        let line = format!("{} {}", self.scope.systemctl(), arguments.join(" "));
        match arguments {
            [verb, ..] if line.chars().count() > MAX_COMMAND_CHARS => {
                format!("{} {verb} …", self.scope.systemctl())
            }
            _ => line,
        }
    }
}

fn read_output(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl ServiceManager for Systemctl<'_> {
    fn is_running(&self) -> bool {
        self.runtime_path.as_ref().is_some_and(|path| path.exists())
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        let line = self.describe_command(arguments);
        let failure = |why: &str| Error::new(ErrorKind::Host, format!("`{line}` failed: {why}"));
        let (status, output, errors) = self
            .call(arguments)
            .map_err(|error| failure(&describe_io_error(&error)))?;
        if status.success() {
            return Ok(output);
        }
        let message = errors.lines().find(|line| !line.trim().is_empty());
        let message: Option<String> =
            message.map(|line| line.chars().take(MAX_QUOTED_CHARS).collect());
        Err(failure(&message.unwrap_or_else(|| status.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::SystemClock;

    fn manager(program: &str) -> Systemctl<'static> {
        Systemctl {
            program: program.into(),
            ..Systemctl::new(UnitScope::System, None, &SystemClock)
        }
    }

    #[test]
    fn failing_command_is_quoted() {
        let error = manager("false").run(&["daemon-reload"]).unwrap_err();
        assert!(
            error.message().contains("`systemctl daemon-reload` failed"),
            "{error}"
        );
        let error = manager("/nonexistent/systemctl").run(&["x"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Host);
        assert!(manager("echo").run(&["a"]).unwrap().ends_with(" a\n"));
    }
}
