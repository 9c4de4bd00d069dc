//! The ssh child of a host: its command line, its lifetime, and the meaning of its messages.
//!
//! It is the operator's own ssh, so that their whole setup works: `Match` and `Include`, jump
//! hosts, agents, certificates, hardware keys, known_hosts with all its rules. The options below
//! restrict it to carrying bytes. It prompts only where there is a [`PromptBroker`].

use std::ffi::OsString;
use std::io::{self, PipeReader, Read, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process, kill_process_group};

use super::askpass::{ConnectAttempt, PromptBroker};
use super::session::{CloseReason, SessionError, SessionPipes};
use crate::base::child_process::ChildProcess;
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind};
use crate::base::sys;
use crate::config::SshHost;
use crate::transport::{ConnectionSetting, FailureCause, TransportError};

/// Time limit of `ssh -G`; a `Match exec` of the operator's may run anything.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);

/// Limit of the output of `ssh -G` that is read.
const MAX_SETTINGS_BYTES: u64 = 64 * 1024;

/// The settings that describe how a host is reached, in display order, of the hundred that `ssh -G`
/// prints.
const SHOWN_SETTINGS: &[&str] = &[
    "hostname",
    "user",
    "port",
    "proxyjump",
    "proxycommand",
    "identityfile",
    "identitiesonly",
    "certificatefile",
    "identityagent",
    "hostkeyalias",
    "userknownhostsfile",
    "globalknownhostsfile",
    "stricthostkeychecking",
    "controlpath",
    "connecttimeout",
    "compression",
];

/// Options that override the operator's configuration so that a session carries bytes over three
/// pipes: no terminal, no command of the operator's, no process in the background, nothing but errors
/// on standard error.
const STREAM_OPTIONS: &[&str] = &[
    "EscapeChar=none",
    "RequestTTY=no",
    // The user's own setting would make ssh refuse to start.
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    // Uses a running master, and leaves none behind.
    "ControlMaster=no",
    "ControlPersist=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "Tunnel=no",
    "VisualHostKey=no",
    // Keeps every reason, and hides the server's banner.
    "LogLevel=ERROR",
];

/// Further ones that OpenSSH knows since 8.7; an operator's configuration for an older one cannot have
/// them either.
const NEW_STREAM_OPTIONS: &[&str] = &[
    "StdinNull=no",
    "ForkAfterAuthentication=no",
    "SessionType=subsystem",
    "LogVerbose=none",
];

/// The first release of OpenSSH with [`NEW_STREAM_OPTIONS`].
const NEW_STREAM_OPTIONS_VERSION: (u32, u32) = (8, 7);

/// Time limit of `ssh -V`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for a child to exit by itself, and again after a signal.
pub(super) const CHILD_EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens a byte stream to the SFTP server of a host.
pub trait Connector: Send + Sync {
    /// Starts to connect; the session shows the result.
    ///
    /// # Errors
    /// The reason why it cannot start.
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError>;

    /// Returns the effective ssh settings of a host.
    ///
    /// # Errors
    /// The reason why they are unknown.
    fn connection_settings(&self, _: &SshHost) -> Result<Vec<ConnectionSetting>, TransportError> {
        Ok(Vec::new())
    }

    /// Returns whether it refuses to connect until the operator unblocks the host: an earlier
    /// prompt went unanswered.
    fn is_blocked(&self, _: &SshHost) -> bool {
        false
    }
}

/// A stream to a server, and its process, if there is one.
pub struct SftpStream {
    /// The stream.
    pub pipes: SessionPipes,
    /// The process, which ends when this is dropped.
    pub child: Option<SshChild>,
}

/// The process behind a session. Dropping it ends the process: the session is gone by then, so the
/// process sees the end of its input first.
pub struct SshChild {
    child: Arc<Mutex<ChildProcess>>,
    clock: Arc<dyn Clock>,
    attempt: Option<ConnectAttempt>,
}

impl SshChild {
    /// Takes ownership of a process.
    pub fn new(child: impl Into<ChildProcess>, clock: Arc<dyn Clock>) -> SshChild {
        let child = Arc::new(Mutex::new(child.into()));
        SshChild {
            child,
            clock,
            attempt: None,
        }
    }

    /// Returns the prompt state of this process, if it may prompt.
    pub(super) fn attempt(&self) -> Option<&ConnectAttempt> {
        self.attempt.as_ref()
    }

    /// Returns a guard that can end the process before this is dropped.
    pub(super) fn guard(&self) -> ChildGuard {
        ChildGuard(Arc::clone(&self.child))
    }

    /// Waits for the process to exit; returns whether it did within the limit.
    fn exits_within(&self, limit: Duration) -> bool {
        let end = self.clock.instant() + limit;
        while !self.guard().has_exited() {
            if self.clock.instant() >= end {
                return false;
            }
            self.clock.sleep(Duration::from_millis(5));
        }
        true
    }
}

impl Drop for SshChild {
    fn drop(&mut self) {
        // A process that may still prompt is ended at once, with its own children: a jump host's
        // ssh must not go on without an answer either.
        if self
            .attempt
            .as_ref()
            .is_some_and(|attempt| !attempt.has_finished_asking())
        {
            self.guard().terminate();
        }
        if !self.exits_within(CHILD_EXIT_TIMEOUT) {
            self.guard().terminate();
            if !self.exits_within(CHILD_EXIT_TIMEOUT) {
                self.guard().kill();
            }
        }
        if let Some(attempt) = &self.attempt {
            attempt.end();
        }
    }
}

/// A handle to the process of an [`SshChild`], for callers that do not own it.
pub(super) struct ChildGuard(Arc<Mutex<ChildProcess>>);

impl ChildGuard {
    fn lock_child(&self) -> MutexGuard<'_, ChildProcess> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the process has exited and was reaped.
    pub(super) fn has_exited(&self) -> bool {
        self.lock_child().has_exited()
    }

    /// Sends SIGTERM to the process and to the children in its group: a jump host's ssh, a proxy
    /// command. A process that leads no group gets the signal alone.
    pub(super) fn terminate(&self) {
        let mut child = self.lock_child();
        if !child.has_exited()
            && let Some(pid) = child.pid()
            && kill_process_group(pid, Signal::TERM).is_err()
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Kills the process and reaps it.
    pub(super) fn kill(&self) {
        self.start_kill();
        self.lock_child().wait();
    }

    /// Kills the process without waiting for its end.
    pub(super) fn start_kill(&self) {
        self.lock_child().kill();
    }
}

/// Connects with the operator's ssh.
pub struct SshConnector {
    program: PathBuf,
    clock: Arc<dyn Clock>,
    /// Arguments before all others, for instance `-F` and a file.
    arguments: Vec<OsString>,
    prompt_broker: Option<PromptBroker>,
    /// Whether ssh knows [`NEW_STREAM_OPTIONS`], once it was asked.
    knows_new_options: OnceLock<bool>,
}

impl SshConnector {
    /// Creates a connector with the ssh in `PATH`. It never prompts.
    pub fn new(clock: Arc<dyn Clock>) -> SshConnector {
        SshConnector {
            program: "ssh".into(),
            clock,
            arguments: Vec::new(),
            prompt_broker: None,
            knows_new_options: OnceLock::new(),
        }
    }

    /// Lets ssh prompt through this broker.
    #[must_use]
    pub fn with_prompts(mut self, broker: PromptBroker) -> SshConnector {
        self.prompt_broker = Some(broker);
        self
    }

    /// Replaces the program, and sets arguments that go before ours.
    #[must_use]
    pub fn with_program(
        mut self,
        program: impl Into<PathBuf>,
        arguments: Vec<OsString>,
    ) -> SshConnector {
        self.program = program.into();
        self.arguments = arguments;
        self
    }

    /// Returns the command that connects to a host, with the settings of a connection that prompts
    /// or of one that does not. The caller says where ssh prompts.
    fn connect_command(&self, host: &SshHost, can_prompt: bool) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        let new_options = NEW_STREAM_OPTIONS.iter();
        let new_options = new_options.filter(|_| self.knows_new_options());
        let own_options = [
            // Only a key that the operator accepted by typing becomes known.
            "UpdateHostKeys=no",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
        ];
        let options = STREAM_OPTIONS.iter().chain(new_options);
        for option in options.chain(&own_options) {
            command.args(["-o", option]);
        }
        // With or without prompts, a key that differs from the known one is refused.
        let asking: &[&str] = if can_prompt {
            &[
                "BatchMode=no",
                "StrictHostKeyChecking=ask",
                "NumberOfPasswordPrompts=3",
            ]
        } else {
            &["BatchMode=yes", "StrictHostKeyChecking=yes"]
        };
        for option in asking {
            command.args(["-o", option]);
        }
        command.args([
            "-o",
            &format!("ConnectTimeout={}", host.timeout_seconds.max(1)),
        ]);
        if let Some(user) = &host.user {
            command.args(["-l", user]);
        }
        if let Some(port) = host.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(identity) = &host.identity_file {
            command.arg("-i").arg(identity);
        }
        command
    }
}

impl SshConnector {
    /// Returns whether ssh knows [`NEW_STREAM_OPTIONS`]; one that does not say its version is taken for
    /// a new one.
    fn knows_new_options(&self) -> bool {
        *self.knows_new_options.get_or_init(|| {
            let Ok((output, writer)) = pipe() else {
                return true;
            };
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).arg("-V");
            command.stdout(Stdio::null()).stderr(writer);
            let printed = self.read_output(command, output, VERSION_TIMEOUT);
            let version = printed.ok().and_then(|text| parse_version(&text));
            version.is_none_or(|version| version >= NEW_STREAM_OPTIONS_VERSION)
        })
    }

    /// Runs a command without input, and returns what it prints into a pipe; the error says why not, to
    /// be read after its name.
    fn read_output(
        &self,
        mut command: Command,
        output: PipeReader,
        timeout: Duration,
    ) -> Result<Vec<u8>, String> {
        command.stdin(Stdio::null());
        sys::start_in_own_session(&mut command);
        let child = command.spawn();
        // It holds the other end of the pipe.
        drop(command);
        let child = child.map_err(|error| format!("cannot be started: {error}"))?;
        let (sender, printed) = channel();
        let read = move || {
            let mut text = Vec::new();
            let read = output.take(MAX_SETTINGS_BYTES).read_to_end(&mut text);
            // The receiver may have stopped waiting.
            drop(sender.send(read.ok().map(|_| text)));
        };
        let reader = thread::Builder::new().spawn(read);
        let text = printed.recv_timeout(timeout);
        // A program that it started may still hold its output open.
        let ssh_child = SshChild::new(child, self.clock.clone());
        ssh_child.guard().terminate();
        drop(ssh_child);
        reader.map_err(|error| format!("cannot be read: cannot start a thread: {error}"))?;
        match text {
            Ok(text) => Ok(text.unwrap_or_default()),
            Err(_) => Err(format!("did not finish within {} s", timeout.as_secs())),
        }
    }
}

/// Parses the version in the output of `ssh -V`: `OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.19`.
fn parse_version(text: &[u8]) -> Option<(u32, u32)> {
    let text = String::from_utf8_lossy(text);
    let (_, version) = text.split_once("OpenSSH_")?;
    // OpenSSH for Windows.
    let version = version.strip_prefix("for_Windows_").unwrap_or(version);
    let (major, rest) = version.split_once('.')?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let minor = &rest[..end.unwrap_or(rest.len())];
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Connector for SshConnector {
    fn connect(&self, host: &SshHost) -> Result<SftpStream, TransportError> {
        let attempt = match &self.prompt_broker {
            Some(broker) => broker.start_attempt(host)?,
            None => None,
        };
        let mut command = self.connect_command(host, attempt.is_some());
        // A jump host's ssh gets none of our options: it prompts through the same broker, or finds
        // no way to prompt, either.
        match &attempt {
            Some(attempt) => attempt.configure_command(&mut command),
            None => drop(command.env("SSH_ASKPASS_REQUIRE", "never")),
        }
        command.args(["-s", "--", &host.name, "sftp"]);
        let start = || {
            let ((stdin, input), (output, stdout), (errors, stderr)) = (pipe()?, pipe()?, pipe()?);
            let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
            // A session of its own, so that an interrupt at the keyboard does not end it in the middle
            // of an agent, and so that it has no terminal to prompt at.
            let child = ChildProcess::start_in_own_session(&command, streams)?;
            let pipes = SessionPipes {
                input: OwnedFd::from(input),
                output: OwnedFd::from(output),
                stderr: Some(OwnedFd::from(errors)),
            };
            Ok((child, pipes))
        };
        let (child, pipes) = start().map_err(|error: io::Error| self.start_error(&error))?;
        let mut child = SshChild::new(child, self.clock.clone());
        child.attempt = attempt;
        let child = Some(child);
        Ok(SftpStream { pipes, child })
    }

    fn connection_settings(
        &self,
        host: &SshHost,
    ) -> Result<Vec<ConnectionSetting>, TransportError> {
        // The settings of the connection, although this command itself never prompts.
        let broker = self.prompt_broker.as_ref();
        let mut command = self.connect_command(host, broker.is_some_and(PromptBroker::can_prompt));
        command.env("SSH_ASKPASS_REQUIRE", "never");
        // OpenSSH 9.2 refuses `SessionType=subsystem` without the name of one.
        command.args(["-G", "--", &host.name, "sftp"]);
        let (output, writer) = pipe().map_err(|error| self.start_error(&error))?;
        command.stdout(writer).stderr(Stdio::null());
        let text = self.read_output(command, output, SETTINGS_TIMEOUT);
        let failed = |why: &str| {
            let message = format!("`ssh -G {}` {why}", manual_ssh_command(host));
            let error = Error::new(ErrorKind::Host, message).with_hint("run it by hand");
            TransportError::new(FailureCause::Refused, error)
        };
        match text {
            Ok(text) if text.is_empty() => {
                Err(failed("printed nothing: ssh rejects its configuration"))
            }
            Ok(text) => Ok(parse_settings(&text)),
            Err(why) => Err(failed(&why)),
        }
    }

    fn is_blocked(&self, host: &SshHost) -> bool {
        self.prompt_broker
            .as_ref()
            .is_some_and(|broker| broker.is_blocked(host))
    }
}

/// Returns the settings in the output of `ssh -G` that are shown.
fn parse_settings(text: &[u8]) -> Vec<ConnectionSetting> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|it| it.split_once(' ')).collect();
    let shown_settings = SHOWN_SETTINGS.iter().flat_map(|name| {
        let mine = lines.iter().filter(move |(key, _)| key == name);
        mine.filter(|(_, value)| !matches!(*value, "" | "none"))
    });
    let setting = |(name, value): &(&str, &str)| ConnectionSetting {
        name: (*name).to_string(),
        value: truncate_line(value).to_string(),
    };
    shown_settings.map(setting).collect()
}

impl SshConnector {
    fn start_error(&self, error: &io::Error) -> TransportError {
        let error = match error.kind() {
            io::ErrorKind::NotFound => Error::new(
                ErrorKind::Host,
                "ssh is not installed here, and agents on other hosts need it",
            )
            .with_hint("install OpenSSH's client: `apt-get install openssh-client`"),
            _ => Error::from_io("start", &self.program, error),
        };
        TransportError::new(FailureCause::Refused, error)
    }
}

/// Returns the error for a session that ended or never began, from ssh's messages before the server
/// replied.
pub(super) fn explain_session_error(
    host: &SshHost,
    session_error: &SessionError,
) -> TransportError {
    let stderr_text = String::from_utf8_lossy(&session_error.stderr_before_version);
    let lines: Vec<&str> = stderr_text.lines().map(str::trim_end).collect();
    if !session_error.has_greeted
        && let Some(found) = lines.iter().rev().find_map(|line| SshFailure::parse(line))
    {
        // The last line tells how ssh ended, but a key mismatch is the reason for everything after
        // it.
        let key = lines
            .iter()
            .find_map(|line| SshFailure::parse(line).filter(SshFailure::is_host_key));
        // Of a misconfiguration, the first line tells what is wrong.
        let setup = lines
            .iter()
            .find_map(|line| SshFailure::parse(line).filter(SshFailure::is_misconfiguration));
        let found = if found.is_misconfiguration() {
            setup.unwrap_or(found)
        } else {
            found
        };
        return key.unwrap_or(found).to_error(host);
    }
    if let (false, CloseReason::ProtocolViolation(_)) =
        (session_error.has_greeted, &session_error.reason)
    {
        // The host did answer.
        let message = format!("{}: {session_error}", host.name);
        let error = Error::new(ErrorKind::Host, message).with_hint(format!(
            "`ssh {} true` must print nothing: see the start-up files of the login shell there",
            manual_ssh_command(host)
        ));
        return TransportError::new(FailureCause::Refused, error);
    }
    let last = lines.iter().rev().find(|line| !line.is_empty());
    let why = match last {
        Some(line) if !session_error.has_greeted => {
            format!("{session_error}: {}", truncate_line(line))
        }
        _ => session_error.to_string(),
    };
    let message = if session_error.has_greeted {
        format!("{}: {why}", host.name)
    } else {
        format!("{} did not answer: {why}", host.name)
    };
    let error = Error::new(ErrorKind::Host, message);
    let error = if session_error.has_greeted {
        error
    } else {
        error.with_hint(format!("try `ssh {}`", manual_ssh_command(host)))
    };
    TransportError::new(FailureCause::Unreachable, error)
}

/// The meaning of a line of ssh's messages. The texts are those of OpenSSH 7.6 to 10 (sshconnect.c,
/// sshconnect2.c, ssh.c, kex.c, packet.c, clientloop.c), which are not translated.
enum SshFailure<'l> {
    /// The key differs from the known one, or is revoked.
    HostKeyChanged,
    /// No key is known.
    HostKeyUnknown,
    /// The server denies access.
    Refused(&'l str),
    /// The ssh configuration is invalid.
    Misconfigured(&'l str),
    /// There is no SFTP server.
    NoSftpServer,
    /// The host is unreachable.
    Unreachable(&'l str),
}

impl<'l> SshFailure<'l> {
    fn parse(line: &'l str) -> Option<SshFailure<'l>> {
        let has = |text: &str| line.contains(text);
        Some(
            if has("REMOTE HOST IDENTIFICATION HAS CHANGED")
                || has("REVOKED HOST KEY DETECTED")
                || has("has changed and you have requested strict checking")
                || has("was revoked and you have requested strict checking")
                || has("differs from the key for the IP address")
            {
                SshFailure::HostKeyChanged
            } else if (has("host key is known for") && has("strict checking"))
                || line == "Host key verification failed."
            {
                SshFailure::HostKeyUnknown
            } else if has("Permission denied (")
                || has("Too many authentication failures")
                || line == "Authentication failed."
            {
                SshFailure::Refused(line)
            } else if has("Bad configuration option")
                || has("terminating, ")
                || has("Bad owner or permissions on")
                || has("hostname contains invalid characters")
                || has("percent_expand: ")
                || has("Bad port")
                || line.starts_with("command-line: line")
            {
                SshFailure::Misconfigured(line)
            } else if has("subsystem request failed") {
                SshFailure::NoSftpServer
            } else if line.starts_with("ssh: ")
                || has("timed out")
                || has("Connection closed by")
                || has("Connection reset by")
                || has("Unable to negotiate with")
                || line.starts_with("kex_exchange_identification:")
            {
                SshFailure::Unreachable(line)
            } else {
                return None;
            },
        )
    }

    fn is_misconfiguration(&self) -> bool {
        matches!(self, SshFailure::Misconfigured(_))
    }

    fn is_host_key(&self) -> bool {
        matches!(
            self,
            SshFailure::HostKeyChanged | SshFailure::HostKeyUnknown
        )
    }

    fn to_error(&self, host: &SshHost) -> TransportError {
        let name = &host.name;
        let ssh = format!("ssh {}", manual_ssh_command(host));
        let (cause, message, hint) = match self {
            SshFailure::HostKeyChanged => (
                FailureCause::HostKeyMismatch,
                format!("{name}: host key changed or revoked; nothing was read or sent"),
                format!(
                    "find out why first; if the host was reinstalled, `{ssh}` says how to forget the old key"
                ),
            ),
            // As in the console, where the question about the key was not answered.
            SshFailure::HostKeyUnknown => (
                FailureCause::Unreachable,
                format!("{name}: host key is not known here"),
                format!("connect once by hand and compare the fingerprint: `{ssh}`"),
            ),
            SshFailure::Refused(line) => (
                FailureCause::Refused,
                format!("{name}: access denied: {}", truncate_line(line)),
                format!("`{ssh}` has to work without a prompt; see `ssh-add -l` and identity_file"),
            ),
            SshFailure::Misconfigured(line) => (
                FailureCause::Refused,
                format!("ssh rejects its configuration: {}", truncate_line(line)),
                format!(
                    "`ssh -G {}` shows the settings in effect",
                    manual_ssh_command(host)
                ),
            ),
            SshFailure::NoSftpServer => (
                FailureCause::Refused,
                format!("{name} has no SFTP server"),
                "the host's sshd_config needs a line `Subsystem sftp internal-sftp`".to_string(),
            ),
            SshFailure::Unreachable(line) => (
                FailureCause::Unreachable,
                format!("{name} cannot be reached: {}", truncate_line(line)),
                format!("try `{ssh}`"),
            ),
        };
        TransportError::new(cause, Error::new(ErrorKind::Host, message).with_hint(hint))
    }
}

/// Returns the arguments that name the host on an ssh command line.
fn manual_ssh_command(host: &SshHost) -> String {
    let port = host.port.map(|port| format!("-p {port} "));
    let user = host.user.as_ref().map(|user| format!("{user}@"));
    let options: String = [port, user].into_iter().flatten().collect();
    format!("{options}{}", host.name)
}

/// Returns the beginning of a line of foreign text.
fn truncate_line(line: &str) -> &str {
    const MAX_SHOWN_LINE_CHARS: usize = 300;
    match line.char_indices().nth(MAX_SHOWN_LINE_CHARS) {
        Some((end, _)) => &line[..end],
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;

    use super::*;
    use crate::base::clock::SystemClock;

    /// Prints the settings among its arguments as `ssh -G` does.
    const SETTINGS_SCRIPT: &str = r#"for option; do
        case $option in
            StrictHostKeyChecking=*) echo "stricthostkeychecking ${option#*=}" ;;
        esac
    done"#;

    #[test]
    fn version_decides_on_new_options() {
        for (text, version) in [
            (
                "OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL 3.0.19",
                Some((9, 2)),
            ),
            ("OpenSSH_8.4p1, OpenSSL 1.1.1", Some((8, 4))),
            ("OpenSSH_10.0p2, LibreSSL 4", Some((10, 0))),
            ("OpenSSH_for_Windows_8.6p1, LibreSSL 3.4.3", Some((8, 6))),
            ("usage: something else", None),
            ("OpenSSH_", None),
        ] {
            assert_eq!(parse_version(text.as_bytes()), version, "{text}");
        }
        assert!((8, 6) < NEW_STREAM_OPTIONS_VERSION && NEW_STREAM_OPTIONS_VERSION < (10, 0));
    }

    #[test]
    fn settings_are_those_of_the_connection() {
        let host = SshHost {
            name: "box".to_string(),
            user: None,
            port: None,
            identity_file: None,
            timeout_seconds: 10,
        };
        let arguments = ["-c", SETTINGS_SCRIPT, "ssh"].map(OsString::from).to_vec();
        let batch = SshConnector::new(Arc::new(SystemClock)).with_program("sh", arguments.clone());
        let (events, _prompts) = unbounded();
        let broker = PromptBroker::new(PathBuf::new(), Vec::new(), events);
        let prompting = SshConnector::new(Arc::new(SystemClock))
            .with_program("sh", arguments)
            .with_prompts(broker);
        for (connector, value) in [(batch, "yes"), (prompting, "ask")] {
            let settings = connector.connection_settings(&host).unwrap();
            let [setting] = settings.as_slice() else {
                panic!("{settings:?}")
            };
            assert_eq!(
                (setting.name.as_str(), setting.value.as_str()),
                ("stricthostkeychecking", value)
            );
        }
    }
}
