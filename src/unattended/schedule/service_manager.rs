//! The service manager: `systemctl`, with a time limit.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::UnitScope;
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result, describe_io_error};
use crate::base::program::{self, RunEnd, RunLimits, describe_exit};

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

/// Bytes that are kept of what a command prints.
const MAX_OUTPUT_BYTES: usize = 4 << 20;

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
        let mut command = Command::new(&self.program);
        if self.scope == UnitScope::User {
            command.arg("--user");
        }
        command.args(["--no-pager", "--no-ask-password"]);
        command.args(arguments);
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        let limits = RunLimits {
            timeout: self.timeout,
            max_output_bytes: MAX_OUTPUT_BYTES,
            clock: self.clock,
            is_cancelled: &|| false,
        };
        let output = program::run(&mut command, b"", &limits)?;
        let RunEnd::Exited(status) = output.end else {
            let text = format!("it has not ended within {} s", self.timeout.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        };
        let [stdout, stderr] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok((status, stdout, stderr))
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
        Err(failure(&message.unwrap_or_else(|| describe_exit(status))))
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
