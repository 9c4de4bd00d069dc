//! Processes in sessions of their own, started without a copy of this process: fork(2) copies the
//! page tables of a large process, which takes longer than the program needs to start.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A child process. Dropping it neither ends nor reaps the process.
#[derive(Debug)]
pub struct ChildProcess {
    pid: Pid,
    is_reaped: bool,
}

impl From<Child> for ChildProcess {
    fn from(child: Child) -> ChildProcess {
        ChildProcess {
            pid: Pid::from_child(&child),
            is_reaped: false,
        }
    }
}

impl ChildProcess {
    /// Starts a program in a session of its own (setsid(2)), so that it has no controlling terminal and
    /// no key pressed at this program's terminal ends it. It has the program, the arguments and the
    /// variables of `command`, and these standard streams.
    ///
    /// # Errors
    /// What the system answered; no process was started then.
    pub fn start_in_own_session(
        command: &Command,
        streams: [BorrowedFd<'_>; 3],
    ) -> io::Result<ChildProcess> {
        let mut actions = PosixSpawnFileActions::init()?;
        for (number, stream) in (0..).zip(streams) {
            actions.add_dup2(stream.as_raw_fd(), number)?;
        }
        // As the standard library starts programs: with no signal blocked, and SIGPIPE not ignored.
        let mut attributes = PosixSpawnAttr::init()?;
        let own_session = PosixSpawnFlags::from_bits_retain(libc::POSIX_SPAWN_SETSID.into());
        let signals =
            PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
        attributes.set_flags(own_session | signals)?;
        attributes.set_sigmask(&SigSet::empty())?;
        attributes.set_sigdefault(&SigSet::from(NixSignal::SIGPIPE))?;
        let program = command.get_program();
        let arguments = std::iter::once(program).chain(command.get_args());
        let arguments = arguments.map(to_c_string).collect::<io::Result<Vec<_>>>()?;
        let pid = posix_spawnp(
            &to_c_string(program)?,
            &actions,
            &attributes,
            &arguments,
            &environment(command)?,
        )?;
        let pid = Pid::from_raw(pid.as_raw());
        Ok(ChildProcess {
            pid: pid.ok_or_else(|| io::Error::other("a process without a number"))?,
            is_reaped: false,
        })
    }

    /// Its number, unless it was reaped: it may belong to another process then.
    pub fn pid(&self) -> Option<Pid> {
        (!self.is_reaped).then_some(self.pid)
    }

    /// Returns whether it has exited, and reaps it then.
    pub fn has_exited(&mut self) -> bool {
        self.reap(WaitOptions::NOHANG);
        self.is_reaped
    }

    /// Waits until it has exited, and reaps it.
    pub fn wait(&mut self) {
        self.reap(WaitOptions::empty());
    }

    /// Kills it, without waiting for its end.
    pub fn kill(&self) {
        if let Some(pid) = self.pid() {
            // It may have exited.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn reap(&mut self, options: WaitOptions) {
        while !self.is_reaped {
            match waitpid(Some(self.pid), options) {
                Ok(None) => return,
                Err(rustix::io::Errno::INTR) => {}
                // Without such a child, something else has reaped it.
                Ok(Some(_)) | Err(_) => self.is_reaped = true,
            }
        }
    }
}

/// Returns the variables of this process with the changes of a command.
fn environment(command: &Command) -> io::Result<Vec<CString>> {
    let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => drop(variables.insert(name.to_os_string(), value.to_os_string())),
            None => drop(variables.remove(name)),
        }
    }
    let lines = variables.into_iter().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        to_c_string(&name)
    });
    lines.collect()
}

fn to_c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsFd;

    use super::*;

    /// Runs a shell script; returns the process and what it prints.
    fn run(script: &str, prepare: impl FnOnce(&mut Command)) -> (ChildProcess, String) {
        let mut command = Command::new("sh");
        command.args(["-c", script, "name", "an argument"]);
        prepare(&mut command);
        let (input, _) = pipe().unwrap();
        let (mut output, writer) = pipe().unwrap();
        let streams = [input.as_fd(), writer.as_fd(), writer.as_fd()];
        let child = ChildProcess::start_in_own_session(&command, streams).unwrap();
        drop(writer);
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        (child, text)
    }

    #[test]
    fn process_leads_its_session_without_a_terminal() {
        // The fields of proc_pid_stat(5): process, parent, group, session, terminal.
        let script = r#"read -r pid name state parent group session terminal rest < /proc/$$/stat
            echo "$pid $parent $group $session $terminal""#;
        let (mut child, text) = run(script, |_| ());
        let pid = child.pid().unwrap().as_raw_nonzero();
        let parent = std::process::id();
        assert_eq!(text, format!("{pid} {parent} {pid} {pid} 0\n"));
        child.wait();
        assert!(child.has_exited());
        assert_eq!(child.pid(), None);
    }

    #[test]
    fn process_gets_arguments_variables_and_streams() {
        let script = r#"cat; echo "$1" "$ADDED" "${PATH:+path}" "${HOME-removed}" >&2
            grep SigBlk /proc/self/status; ls -l /proc/self/fd"#;
        let (kept, _writer) = pipe().unwrap();
        let (_, text) = run(script, |command| {
            command.env("ADDED", "a=b").env_remove("HOME");
        });
        let lines: Vec<&str> = text.lines().collect();
        let expected = ["an argument a=b path removed", "SigBlk:\t0000000000000000"];
        assert_eq!(lines[..2], expected);
        // What this process has open stays closed there.
        let number = rustix::fs::fstat(&kept).unwrap().st_ino;
        assert!(text.contains("pipe:["));
        assert!(!text.contains(&format!("pipe:[{number}]")), "{text}");
    }

    #[test]
    fn process_ends_when_killed() {
        let (mut child, _) = run("exec sleep 600 >/dev/null 2>&1", |_| ());
        assert!(!child.has_exited());
        child.kill();
        child.wait();
        assert_eq!(child.pid(), None);
        // The number may belong to another process by now.
        child.kill();
    }

    #[test]
    fn missing_program_is_reported() {
        let stream = std::io::stderr();
        let streams = [stream.as_fd(); 3];
        let start = |program: &str| {
            let started = ChildProcess::start_in_own_session(&Command::new(program), streams);
            started.unwrap_err().kind()
        };
        assert_eq!(start("/no/such/program"), io::ErrorKind::NotFound);
        assert_eq!(start("no-such-program"), io::ErrorKind::NotFound);
        assert_eq!(start("/"), io::ErrorKind::PermissionDenied);
    }
}
