//! Runs the program of `command`, with the event on its standard input. What it prints is thrown away,
//! but for a beginning that explains a failure.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::CANCELLED;
use crate::base::clock::Clock;
use crate::base::error::describe_io_error;
use crate::base::program::{self, RunEnd, RunLimits, describe_exit};
use crate::base::trust::{find_program, read_interpreter_line};
use crate::unattended::alerts::event::{quote_first_line, visible};

/// Bytes that are kept of each output stream.
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

impl ProgramRun<'_> {
    /// Runs the program.
    ///
    /// # Errors
    /// Why it counts as failed, in a few words.
    pub fn run(&self, input: &[u8]) -> Result<(), String> {
        let shown = visible(self.program);
        let Some(path) = find_program(self.program, self.directory, self.search_path) else {
            return Err(format!("cannot run {shown}: no such program"));
        };
        let mut command = Command::new(&path);
        command
            .arg0(self.program)
            .args(self.arguments)
            .current_dir(self.directory);
        let limits = RunLimits {
            timeout: self.timeout,
            max_output_bytes: MAX_KEPT_BYTES,
            clock: self.clock,
            is_cancelled: self.is_cancelled,
        };
        let output =
            program::run(&mut command, &[input, b"\n"].concat(), &limits).map_err(|error| {
                // The program is there.
                let cause = if error.kind() == io::ErrorKind::NotFound {
                    describe_missing_interpreter(&path)
                } else {
                    describe_io_error(&error)
                };
                format!("cannot run {shown}: {cause}")
            })?;
        let printed = [output.stderr, output.stdout].concat();
        let said = quote_first_line(&String::from_utf8_lossy(&printed));
        match output.end {
            RunEnd::Exited(status) if status.success() => Ok(()),
            RunEnd::Exited(status) => Err(format!("{}{said}", describe_exit(status))),
            RunEnd::TimedOut => Err(format!(
                "no end within {} s; it was killed{said}",
                self.timeout.as_secs()
            )),
            RunEnd::Cancelled => Err(CANCELLED.to_string()),
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::base::clock::SystemClock;

    const LONG: Duration = Duration::from_secs(60);

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
    fn killed_program_fails_with_its_cause() {
        let error = run_script("yes flood", Duration::from_secs(2), false).unwrap_err();
        assert_eq!(error, "no end within 2 s; it was killed: flood");
        let error = run_script("sleep 1000", LONG, true).unwrap_err();
        assert_eq!(error, CANCELLED);
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
}
