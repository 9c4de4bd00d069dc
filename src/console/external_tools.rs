//! What the operator's machine has for handing texts out and in: an editor, a
//! pager, a clipboard; and a program that has the terminal for a while.

use std::ffi::OsString;
use std::io::{self, Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use crate::error::{self, Error, ErrorKind, Result};
use crate::sys;

/// What holds the terminal between this program and the one with the clipboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplexer {
    /// tmux.
    Tmux,
    /// GNU screen.
    Screen,
}

/// What there is, as `main` found it.
#[derive(Clone, Debug, Default)]
pub struct ExternalTools {
    /// `$VISUAL`, else `$EDITOR`.
    pub editor: Option<String>,
    /// `$PAGER`.
    pub pager: Option<String>,
    /// Where texts for the pager are put.
    pub temp_directory: PathBuf,
    /// `$WAYLAND_DISPLAY` is set.
    pub has_wayland: bool,
    /// `$DISPLAY` is set.
    pub has_x11: bool,
    /// Started over SSH: a clipboard of this machine is nobody's.
    pub is_over_ssh: bool,
    /// What is in between.
    pub multiplexer: Option<Multiplexer>,
}

impl ExternalTools {
    /// What the variables of the environment say.
    pub fn from_variables(
        temp: PathBuf,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> ExternalTools {
        let text = |name| {
            let value = variable(name)?.into_string().ok()?;
            (!value.trim().is_empty()).then_some(value)
        };
        let tmux = text("TMUX").is_some() || text("TERM").is_some_and(|it| it.starts_with("tmux"));
        ExternalTools {
            editor: text("VISUAL").or_else(|| text("EDITOR")),
            pager: text("PAGER"),
            temp_directory: temp,
            has_wayland: text("WAYLAND_DISPLAY").is_some(),
            has_x11: text("DISPLAY").is_some(),
            is_over_ssh: ["SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"]
                .iter()
                .any(|name| text(name).is_some()),
            multiplexer: match (tmux, text("STY").is_some()) {
                (true, _) => Some(Multiplexer::Tmux),
                (false, true) => Some(Multiplexer::Screen),
                (false, false) => None,
            },
        }
    }

    /// Programs that may put a text on the clipboard, each with its arguments, the
    /// first one to try first.
    pub fn clipboard_commands(&self) -> Vec<&'static [&'static str]> {
        if self.is_over_ssh {
            return Vec::new();
        }
        let copiers: [(bool, &[&str]); 4] = [
            (self.has_wayland, &["wl-copy", "--type", "text/plain"]),
            (self.has_x11, &["xclip", "-selection", "clipboard"]),
            (self.has_x11, &["xsel", "--clipboard", "--input"]),
            (true, &["pbcopy"]),
        ];
        let available = copiers.into_iter().filter(|(there, _)| *there);
        available.map(|(_, copier)| copier).collect()
    }

    /// The commands that may be the editor, the first one to try first.
    ///
    /// # Errors
    /// A variable whose quotes are not closed.
    pub fn editor_commands(&self) -> Result<Vec<Vec<String>>> {
        split_command(self.editor.as_deref(), "$VISUAL or $EDITOR", &["vi"])
    }

    /// The same for the pager.
    ///
    /// # Errors
    /// As above.
    pub fn pager_commands(&self) -> Result<Vec<Vec<String>>> {
        split_command(self.pager.as_deref(), "$PAGER", &["less", "more"])
    }
}

/// A command as its words. No shell reads it.
fn split_command(
    value: Option<&str>,
    variable: &str,
    fallbacks: &[&str],
) -> Result<Vec<Vec<String>>> {
    let Some(set) = value else {
        return Ok(fallbacks.iter().map(|it| vec![it.to_string()]).collect());
    };
    match shell_words::split(set) {
        Ok(words) if !words.is_empty() => Ok(vec![words]),
        _ => {
            let message = format!("{variable} is no command: {set}");
            Err(Error::new(ErrorKind::User, message).with_hint("close its quotes"))
        }
    }
}

/// How long a program may take to put a text on the clipboard.
const COPY_TIMEOUT: Timespec = Timespec {
    tv_sec: 3,
    tv_nsec: 0,
};

/// Puts a text on the clipboard by the first of these programs that is there;
/// which one it was.
///
/// # Errors
/// What the programs came to; nothing in it where there is none.
pub fn copy_to_clipboard(commands: &[&[&'static str]], text: &str) -> Result<&'static str, String> {
    let mut failed = Vec::new();
    for copier in commands {
        let Some((program, arguments)) = copier.split_first() else {
            continue;
        };
        match copy_with(program, arguments, text) {
            Ok(()) => return Ok(program),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failed.push(format!("{program}: {}", error::describe_io_error(&error))),
        }
    }
    Err(failed.join("; "))
}

fn copy_with(program: &str, arguments: &[&str], text: &str) -> io::Result<()> {
    // In a file a program may take what it wants: nobody waits for it to read.
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(file);
    // Some stay behind to hand the text out, and would keep a pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    sys::start_in_own_session(&mut command);
    let mut child = command.spawn()?;
    let pid = process_id(&child)?;
    let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let mut ended = [PollFd::new(&handle, PollFlags::IN)];
    let has_ended = loop {
        match poll(&mut ended, Some(&COPY_TIMEOUT)) {
            Ok(count) => break count > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    if !has_ended {
        child.kill()?;
    }
    let status = child.wait()?;
    match (has_ended, status.success()) {
        (false, _) => Err(io::Error::other(format!(
            "it did not end within {} seconds",
            COPY_TIMEOUT.tv_sec
        ))),
        (true, false) => Err(io::Error::other(describe_exit(status))),
        (true, true) => Ok(()),
    }
}

/// How a program ended.
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit status {code}"),
        (None, Some(signal)) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("it was ended by {name}"),
            None => format!("it was ended by signal {signal}"),
        },
        (None, None) => "it ended".to_string(),
    }
}

fn process_id(child: &process::Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("a process without a number"))
}

/// What happened to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildChange {
    /// It was stopped, by ^Z for one.
    Stopped,
    /// It ended.
    Ended,
}

/// A program that has the terminal. When this is dropped, the program is over and
/// the terminal is ours again, with the modes it had.
pub struct ForegroundChild {
    child: process::Child,
    pid: Pid,
    changes: Receiver<ChildChange>,
    terminal_modes: Termios,
    has_ended: bool,
}

/// How long a program has to end by itself when the console ends.
const CHILD_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

impl ForegroundChild {
    /// Starts the first of these commands that is there, with a file behind its
    /// words. The terminal has its usual modes by now.
    ///
    /// # Errors
    /// A command that cannot be started; whose it is, is `what`.
    pub fn start(
        noun: &str,
        commands: &[Vec<String>],
        file: &std::path::Path,
        variables: &[(&str, &str)],
    ) -> Result<ForegroundChild> {
        let mut failed = None;
        for words in commands {
            let Some((program, arguments)) = words.split_first() else {
                continue;
            };
            match ForegroundChild::spawn(program, arguments, file, variables) {
                Ok(guest) => return Ok(guest),
                Err(error) => failed = failed.or(Some((program, error))),
            }
        }
        let (program, error) = match failed {
            Some((program, error)) => (program.as_str(), error::describe_io_error(&error)),
            None => ("", "there is none".to_string()),
        };
        let message = format!("cannot start the {noun} {program}: {error}");
        Err(Error::new(ErrorKind::User, message).with_hint(match noun {
            "editor" => "set $VISUAL or $EDITOR to one that is installed",
            _ => "set $PAGER to one that is installed",
        }))
    }

    fn spawn(
        program: &str,
        arguments: &[String],
        file: &std::path::Path,
        variables: &[(&str, &str)],
    ) -> io::Result<ForegroundChild> {
        let modes = tcgetattr(rustix::stdio::stdin())?;
        let mut command = Command::new(program);
        command.args(arguments).arg(file);
        command.envs(variables.iter().copied());
        sys::start_in_foreground(&mut command);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                // It may have become the foreground before it failed.
                reclaim_terminal(&modes, None);
                return Err(error);
            }
        };
        let pid = process_id(&child)?;
        let (sender, changes) = unbounded();
        thread::spawn(move || {
            loop {
                // Looked at and not yet taken: until then its number is its own.
                let look = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
                match waitid(WaitId::Pid(pid), look) {
                    Ok(Some(status)) if status.stopped() => {
                        let taken = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                        let _ = waitid(WaitId::Pid(pid), taken);
                        if sender.send(ChildChange::Stopped).is_err() {
                            return;
                        }
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    _ => {
                        let _ = sender.send(ChildChange::Ended);
                        return;
                    }
                }
            }
        });
        Ok(ForegroundChild {
            child,
            pid,
            changes,
            terminal_modes: modes,
            has_ended: false,
        })
    }

    /// What happens to it.
    pub fn changes(&self) -> &Receiver<ChildChange> {
        &self.changes
    }

    /// It was stopped: so are we, until the shell lets both go on.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn stop_with_child(&self) -> io::Result<()> {
        reclaim_terminal(&self.terminal_modes, Some(self.pid));
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        let stdin = rustix::stdio::stdin();
        // Who goes on in the background has no terminal to give.
        if tcgetpgrp(stdin)? == rustix::process::getpgrp() {
            sys::set_terminal_foreground(stdin, self.pid)?;
        }
        Ok(kill_process_group(self.pid, Signal::CONT)?)
    }

    /// It has ended: how.
    ///
    /// # Errors
    /// What the system answered.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.has_ended = true;
        let status = self.child.wait();
        reclaim_terminal(&self.terminal_modes, Some(self.pid));
        status
    }
}

impl Drop for ForegroundChild {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // As when its terminal goes: an editor keeps what was not saved.
        let _ = kill_process_group(self.pid, Signal::HUP);
        let _ = kill_process_group(self.pid, Signal::CONT);
        let mut ended = false;
        while let Ok(change) = self.changes.recv_timeout(CHILD_EXIT_TIMEOUT) {
            ended = change == ChildChange::Ended;
            if ended {
                break;
            }
        }
        if !ended {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = self.child.wait();
        reclaim_terminal(&self.terminal_modes, Some(self.pid));
    }
}

/// Takes the terminal back, with these modes; what was typed and not read meant the
/// program before. Nobody is told when that fails: the terminal is gone then, which
/// others notice. From a guest alone, if there is one: the shell may have it by now.
fn reclaim_terminal(modes: &Termios, child_group: Option<Pid>) {
    let stdin = rustix::stdio::stdin();
    let own = rustix::process::getpgrp();
    let holder = tcgetpgrp(stdin).ok();
    if child_group.is_none() || holder == child_group || holder == Some(own) {
        let _ = sys::set_terminal_foreground(stdin, own);
        let _ = tcsetattr(stdin, OptionalActions::Flush, modes);
    }
}

/// Keeps the thread that reads keys from reading those of a guest.
pub struct InputPause {
    is_requested: Arc<AtomicBool>,
    pause_reports: Receiver<()>,
    resume_signal: Sender<()>,
}

/// The same, as that thread sees it.
pub struct InputPauseReader {
    is_requested: Arc<AtomicBool>,
    pause_reports: Sender<()>,
    resume_signal: Receiver<()>,
}

/// A gate, open.
pub fn input_pause() -> (InputPause, InputPauseReader) {
    let closed = Arc::new(AtomicBool::new(false));
    let (waits, waiting) = unbounded();
    let (go_on, going) = unbounded();
    let gate = InputPause {
        is_requested: Arc::clone(&closed),
        pause_reports: waiting,
        resume_signal: go_on,
    };
    let watched = InputPauseReader {
        is_requested: closed,
        pause_reports: waits,
        resume_signal: going,
    };
    (gate, watched)
}

impl InputPause {
    /// Nobody reads keys soon, until it is opened. A thread that is in the middle of a
    /// key waits for the rest of it first.
    pub fn request(&self) {
        // It may have come too late the last time.
        while self.pause_reports.try_recv().is_ok() {}
        self.is_requested.store(true, Ordering::SeqCst);
        // The library waits in the kernel; this is the one thing that wakes it.
        let _ = signal_hook::low_level::raise(signal_hook::consts::SIGWINCH);
    }

    /// Tells, by anything or its end, once nobody reads keys any more: a thread that
    /// is gone reads nothing.
    pub fn reader_paused(&self) -> &Receiver<()> {
        &self.pause_reports
    }

    /// Keys are read again.
    pub fn resume(&self) {
        self.is_requested.store(false, Ordering::SeqCst);
        let _ = self.resume_signal.send(());
    }
}

impl InputPauseReader {
    /// Waits as long as the gate is closed; whether it was.
    pub fn wait_while_paused(&self) -> bool {
        let closed = self.is_requested.load(Ordering::SeqCst);
        if closed {
            let _ = self.pause_reports.send(());
            while self.is_requested.load(Ordering::SeqCst) && self.resume_signal.recv().is_ok() {}
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools_with_environment(variables: &[(&str, &str)]) -> ExternalTools {
        ExternalTools::from_variables("/tmp".into(), |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    fn copiers(variables: &[(&str, &str)]) -> Vec<&'static str> {
        let copiers = tools_with_environment(variables).clipboard_commands();
        copiers.iter().map(|copier| copier[0]).collect()
    }

    #[test]
    fn clipboard_of_remote_machine_is_not_used() {
        let here = [("DISPLAY", ":0"), ("WAYLAND_DISPLAY", "wayland-0")];
        assert_eq!(copiers(&here), ["wl-copy", "xclip", "xsel", "pbcopy"]);
        assert_eq!(copiers(&[("DISPLAY", ":0")]), ["xclip", "xsel", "pbcopy"]);
        assert_eq!(copiers(&[("DISPLAY", "")]), ["pbcopy"]);
        let over = [("DISPLAY", ":10"), ("SSH_CONNECTION", "a 1 b 22")];
        assert!(copiers(&over).is_empty());
    }

    #[test]
    fn editor_command_is_split_without_shell() {
        let editor = |variables: &[(&str, &str)]| {
            tools_with_environment(variables).editor_commands().unwrap()
        };
        assert_eq!(editor(&[]), [["vi"]]);
        assert_eq!(editor(&[("VISUAL", " "), ("EDITOR", "nano")]), [["nano"]]);
        let visual = [("VISUAL", "'my ed' -w $HOME;x"), ("EDITOR", "nano")];
        assert_eq!(editor(&visual), [["my ed", "-w", "$HOME;x"]]);
        let error = tools_with_environment(&[("EDITOR", "'vi")])
            .editor_commands()
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::User);
        assert_eq!(
            tools_with_environment(&[]).pager_commands().unwrap(),
            [["less"], ["more"]]
        );
    }

    #[test]
    fn multiplexer_is_detected_from_environment() {
        let between = |variables: &[(&str, &str)]| tools_with_environment(variables).multiplexer;
        assert_eq!(between(&[("TMUX", "/tmp/x,1,0")]), Some(Multiplexer::Tmux));
        assert_eq!(
            between(&[("TERM", "tmux-256color")]),
            Some(Multiplexer::Tmux)
        );
        assert_eq!(between(&[("STY", "1.pts")]), Some(Multiplexer::Screen));
        // Which of the two it is behind SSH nobody can tell.
        assert_eq!(between(&[("TERM", "screen-256color")]), None);
    }

    #[test]
    fn closed_input_pause_blocks_reader() {
        let (gate, watched) = input_pause();
        let (turn, turns) = unbounded();
        let (out, passed) = unbounded();
        let thread = thread::spawn(move || {
            for () in turns {
                while !watched.wait_while_paused() {
                    thread::yield_now();
                }
                let _ = out.send(());
            }
        });
        for _ in 0..50 {
            turn.send(()).unwrap();
            gate.request();
            assert_eq!(gate.reader_paused().recv(), Ok(()));
            assert!(passed.is_empty(), "it waits at the gate");
            gate.resume();
            assert_eq!(passed.recv(), Ok(()));
        }
        drop(turn);
        thread.join().unwrap();
        // Nobody is left to be kept out.
        gate.request();
        assert!(gate.reader_paused().recv().is_err());
    }

    #[test]
    fn failed_copy_programs_are_reported() {
        assert_eq!(
            copy_to_clipboard(&[&["there-is-no-such-program"]], "text"),
            Err(String::new())
        );
        assert_eq!(
            copy_to_clipboard(&[&["false"]], "x"),
            Err("false: it ended with exit status 1".into())
        );
        assert_eq!(
            copy_to_clipboard(&[&["no-such-program"], &["true"]], "x"),
            Ok("true")
        );
    }
}
