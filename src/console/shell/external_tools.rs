//! External programs: the editor, the pager and the clipboard programs of the operator's machine,
//! and the handover of the terminal to one of them and back.

use std::ffi::OsString;
use std::io;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use crate::base::error::{self, Error, ErrorKind, Result};
use crate::base::program::{describe_exit, memory_file_of, process_id};
use crate::base::sys;

/// Terminal multiplexer between this program and the terminal with the clipboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplexer {
    /// tmux.
    Tmux,
    /// GNU screen.
    Screen,
}

/// The external programs and the environment that they depend on.
#[derive(Clone, Debug, Default)]
pub struct ExternalTools {
    /// `$VISUAL`, else `$EDITOR`.
    pub editor: Option<String>,
    /// `$PAGER`.
    pub pager: Option<String>,
    /// `$WAYLAND_DISPLAY` is set.
    pub has_wayland: bool,
    /// `$DISPLAY` is set.
    pub has_x11: bool,
    /// Whether the console runs over SSH: the operator does not see this machine's clipboard.
    pub is_over_ssh: bool,
    /// The multiplexer around the console.
    pub multiplexer: Option<Multiplexer>,
}

impl ExternalTools {
    /// Reads the environment through `variable`.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> ExternalTools {
        let text = |name| {
            let value = variable(name)?.into_string().ok()?;
            (!value.trim().is_empty()).then_some(value)
        };
        let tmux = text("TMUX").is_some() || text("TERM").is_some_and(|it| it.starts_with("tmux"));
        ExternalTools {
            editor: text("VISUAL").or_else(|| text("EDITOR")),
            pager: text("PAGER"),
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

    /// Returns the programs that may put a text on the clipboard, with their arguments, in the
    /// order to try them.
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
        copiers
            .into_iter()
            .filter_map(|(is_usable, copier)| is_usable.then_some(copier))
            .collect()
    }

    /// Returns the commands that may start the editor, in the order to try them.
    ///
    /// # Errors
    /// The variable has an unclosed quote.
    pub fn editor_commands(&self) -> Result<Vec<Vec<String>>> {
        split_command(self.editor.as_deref(), "$VISUAL or $EDITOR", &["vi"])
    }

    /// Returns the commands that may start the pager, in the order to try them.
    ///
    /// # Errors
    /// The variable has an unclosed quote.
    pub fn pager_commands(&self) -> Result<Vec<Vec<String>>> {
        split_command(self.pager.as_deref(), "$PAGER", &["less", "more"])
    }
}

/// Splits a command into words without a shell; returns the fallbacks if it is not set.
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
            let message = format!("cannot parse {variable}: {set}");
            Err(Error::new(ErrorKind::User, message).with_hint("close its quotes"))
        }
    }
}

/// Time limit of a program that puts a text on the clipboard.
const COPY_TIMEOUT: Timespec = Timespec {
    tv_sec: 3,
    tv_nsec: 0,
};

/// Puts a text on the clipboard with the first of these programs that works; returns its name.
///
/// # Errors
/// The errors of all programs; empty if none of them is installed.
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
    // A file, unlike a pipe, does not block if the program does not read it.
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdin(memory_file_of(text.as_bytes())?);
    // Some programs keep running to serve the text, and would keep a pipe open.
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
            "timed out after {} seconds",
            COPY_TIMEOUT.tv_sec
        ))),
        (true, false) => Err(io::Error::other(describe_exit(status))),
        (true, true) => Ok(()),
    }
}

/// Change of a program that has the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildChange {
    /// It was stopped, for example by ^Z.
    Stopped,
    /// It ended.
    Ended,
}

/// A program that has the terminal. Dropping this ends the program and takes the terminal back,
/// with the modes that it had.
pub struct ForegroundChild {
    child: process::Child,
    pid: Pid,
    changes: Receiver<ChildChange>,
    terminal_modes: Termios,
    has_ended: bool,
}

/// Time that a program has to end by itself when the console ends.
const CHILD_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

impl ForegroundChild {
    /// Starts the first of these commands that works, with the file as last argument. The caller
    /// has restored the modes of the terminal. `noun` names the program in errors.
    ///
    /// # Errors
    /// None of the commands can be started.
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
                Ok(child) => return Ok(child),
                Err(error) => failed = failed.or(Some((program, error))),
            }
        }
        // The system refuses the process, or the thread that waits for it.
        let is_refused_by_limit = failed
            .as_ref()
            .is_some_and(|(_, error)| error.kind() == io::ErrorKind::WouldBlock);
        let message = match failed {
            Some((program, error)) => {
                let error = error::describe_io_error(&error);
                format!("cannot start the {noun} {program}: {error}")
            }
            None => format!("cannot start the {noun}: no command"),
        };
        Err(Error::new(ErrorKind::User, message).with_hint(match noun {
            _ if is_refused_by_limit => "close other programs of this user, or raise `ulimit -u`",
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
        // The thread comes first: without it a child could not be waited for.
        let (pid_sender, started_pid) = bounded(1);
        let (sender, changes) = unbounded();
        thread::Builder::new().spawn(move || {
            // Nothing comes if the child cannot be started.
            if let Ok(pid) = started_pid.recv() {
                watch_child(pid, &sender);
            }
        })?;
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                // The child may have taken the terminal before it failed.
                reclaim_terminal(&modes, None);
                return Err(error);
            }
        };
        let pid = process_id(&child)?;
        // The channel has room for it.
        let _ = pid_sender.send(pid);
        Ok(ForegroundChild {
            child,
            pid,
            changes,
            terminal_modes: modes,
            has_ended: false,
        })
    }

    /// Returns the channel of its changes.
    pub fn changes(&self) -> &Receiver<ChildChange> {
        &self.changes
    }

    /// Stops this program, as its child is stopped, and continues the child once the shell
    /// continues this program.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn stop_with_child(&self) -> io::Result<()> {
        reclaim_terminal(&self.terminal_modes, Some(self.pid));
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        let stdin = rustix::stdio::stdin();
        // Continued in the background, this program has no terminal to give.
        if tcgetpgrp(stdin)? == rustix::process::getpgrp() {
            sys::set_terminal_foreground(stdin, self.pid)?;
        }
        Ok(kill_process_group(self.pid, Signal::CONT)?)
    }

    /// Waits for its end, takes the terminal back and returns its exit status.
    ///
    /// # Errors
    /// The exit status is not available.
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
        // As at the loss of its terminal: an editor saves a recovery file.
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

/// Sends the changes of a child until its end, and leaves it unreaped, so that its process id
/// stays its own.
fn watch_child(pid: Pid, changes: &Sender<ChildChange>) {
    loop {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), peek) {
            Ok(Some(status)) if status.stopped() => {
                let consume = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
                let _ = waitid(WaitId::Pid(pid), consume);
                if changes.send(ChildChange::Stopped).is_err() {
                    return;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            _ => {
                let _ = changes.send(ChildChange::Ended);
                return;
            }
        }
    }
}

/// Takes the terminal back, sets its modes and discards unread input, which was meant for the
/// child. With a `child_group`, takes it only from that group: the shell may have it now. Errors
/// are ignored: the terminal is gone then, which the input thread reports.
fn reclaim_terminal(modes: &Termios, child_group: Option<Pid>) {
    let stdin = rustix::stdio::stdin();
    let own = rustix::process::getpgrp();
    let holder = tcgetpgrp(stdin).ok();
    if child_group.is_none() || holder == child_group || holder == Some(own) {
        let _ = sys::set_terminal_foreground(stdin, own);
        let _ = tcsetattr(stdin, OptionalActions::Flush, modes);
    }
}

/// Pauses the input thread while another program has the terminal.
pub struct InputPause {
    is_requested: Arc<AtomicBool>,
    pause_reports: Receiver<()>,
    resume_signal: Sender<()>,
}

/// The input thread's side of an [`InputPause`].
pub struct InputPauseReader {
    is_requested: Arc<AtomicBool>,
    pause_reports: Sender<()>,
    resume_signal: Receiver<()>,
}

/// Creates both sides of a pause, which is not requested.
pub fn input_pause() -> (InputPause, InputPauseReader) {
    let is_requested = Arc::new(AtomicBool::new(false));
    let (report_sender, pause_reports) = unbounded();
    let (resume_sender, resume_signal) = unbounded();
    let pause = InputPause {
        is_requested: Arc::clone(&is_requested),
        pause_reports,
        resume_signal: resume_sender,
    };
    let reader = InputPauseReader {
        is_requested,
        pause_reports: report_sender,
        resume_signal,
    };
    (pause, reader)
}

impl InputPause {
    /// Asks the input thread to pause until [`InputPause::resume`]. In the middle of a key
    /// sequence it first waits for the rest.
    pub fn request(&self) {
        // The report of an earlier request may have come too late.
        while self.pause_reports.try_recv().is_ok() {}
        self.is_requested.store(true, Ordering::SeqCst);
        // crossterm blocks in the kernel; only this signal wakes it.
        let _ = signal_hook::low_level::raise(signal_hook::consts::SIGWINCH);
    }

    /// Returns a channel that gets a report, or closes, once the input thread reads no more keys.
    pub fn reader_paused(&self) -> &Receiver<()> {
        &self.pause_reports
    }

    /// Lets the input thread read keys again.
    pub fn resume(&self) {
        self.is_requested.store(false, Ordering::SeqCst);
        let _ = self.resume_signal.send(());
    }
}

impl InputPauseReader {
    /// Waits until no pause is requested; returns whether one was.
    pub fn wait_while_paused(&self) -> bool {
        let was_requested = self.is_requested.load(Ordering::SeqCst);
        if was_requested {
            let _ = self.pause_reports.send(());
            while self.is_requested.load(Ordering::SeqCst) && self.resume_signal.recv().is_ok() {}
        }
        was_requested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools_with_environment(variables: &[(&str, &str)]) -> ExternalTools {
        ExternalTools::from_variables(|name| {
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
        let both = [("DISPLAY", ":0"), ("WAYLAND_DISPLAY", "wayland-0")];
        assert_eq!(copiers(&both), ["wl-copy", "xclip", "xsel", "pbcopy"]);
        assert_eq!(copiers(&[("DISPLAY", ":0")]), ["xclip", "xsel", "pbcopy"]);
        assert_eq!(copiers(&[("DISPLAY", "")]), ["pbcopy"]);
        let over_ssh = [("DISPLAY", ":10"), ("SSH_CONNECTION", "a 1 b 22")];
        assert!(copiers(&over_ssh).is_empty());
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
        let multiplexer =
            |variables: &[(&str, &str)]| tools_with_environment(variables).multiplexer;
        assert_eq!(
            multiplexer(&[("TMUX", "/tmp/x,1,0")]),
            Some(Multiplexer::Tmux)
        );
        assert_eq!(
            multiplexer(&[("TERM", "tmux-256color")]),
            Some(Multiplexer::Tmux)
        );
        assert_eq!(multiplexer(&[("STY", "1.pts")]), Some(Multiplexer::Screen));
        // Over SSH, this may be tmux or screen.
        assert_eq!(multiplexer(&[("TERM", "screen-256color")]), None);
    }

    #[test]
    fn closed_input_pause_blocks_reader() {
        let (pause, reader) = input_pause();
        let (turn, turns) = unbounded();
        let (out, passed) = unbounded();
        let thread = thread::spawn(move || {
            for () in turns {
                while !reader.wait_while_paused() {
                    thread::yield_now();
                }
                let _ = out.send(());
            }
        });
        for _ in 0..50 {
            turn.send(()).unwrap();
            pause.request();
            assert_eq!(pause.reader_paused().recv(), Ok(()));
            assert!(passed.is_empty(), "the reader is paused");
            pause.resume();
            assert_eq!(passed.recv(), Ok(()));
        }
        drop(turn);
        thread.join().unwrap();
        // The channel is closed once the reader is gone.
        pause.request();
        assert!(pause.reader_paused().recv().is_err());
    }

    #[test]
    fn failed_copy_programs_are_reported() {
        assert_eq!(
            copy_to_clipboard(&[&["there-is-no-such-program"]], "text"),
            Err(String::new())
        );
        assert_eq!(
            copy_to_clipboard(&[&["false"]], "x"),
            Err("false: exit code 1".into())
        );
        assert_eq!(
            copy_to_clipboard(&[&["no-such-program"], &["true"]], "x"),
            Ok("true")
        );
    }
}
