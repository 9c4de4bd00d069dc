//! The ssh child of a host: how it is started, and what its words mean.
//!
//! It is the operator's own ssh, so that everything their setup knows works:
//! `Match` and `Include`, jump hosts, agents, certificates, hardware keys,
//! known_hosts with all its rules. The options below keep it from doing more than
//! carry bytes, and from asking anybody who is not there: it asks only where there
//! is a [`PromptBroker`].

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::askpass::{Call, PromptBroker};
use super::session::{CloseReason, Link, SessionError};
use crate::clock::Clock;
use crate::config::Host;
use crate::error::{Error, Kind};
use crate::sys;
use crate::transport::{Cause, ConnectionSetting, TransportError};

/// How long `ssh -G` may take; a `Match exec` of the operator's may run anything.
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);

/// The most that is taken of what it prints.
const MAX_SETTINGS_BYTES: u64 = 64 * 1024;

/// The settings that say how a host is reached, in the order in which they are
/// told; of the hundred that `ssh -G` prints.
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

/// How long a child may take to end by itself, and again when asked to.
const CHILD_EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens a stream of bytes to the SFTP server of a host.
pub trait Connector: Send + Sync {
    /// Begins to connect; what comes of it shows in the session.
    ///
    /// # Errors
    /// What keeps it from beginning.
    fn dial(&self, host: &Host) -> Result<SftpStream, TransportError>;

    /// What the setup for a host comes to.
    ///
    /// # Errors
    /// Why that is not known.
    fn settings(&self, _: &Host) -> Result<Vec<ConnectionSetting>, TransportError> {
        Ok(Vec::new())
    }

    /// Whether it does not even try until the operator wants it to: the host asked
    /// for something in vain.
    fn bars(&self, _: &Host) -> bool {
        false
    }
}

/// A stream to a server, and the process that carries it, if there is one.
pub struct SftpStream {
    /// The stream.
    pub link: Link,
    /// The process, ended when this is dropped.
    pub child: Option<SshChild>,
}

/// The process behind a session. Dropping it ends it: it sees the end of its
/// input first, because the session is gone by then.
pub struct SshChild {
    child: Arc<Mutex<Child>>,
    clock: Arc<dyn Clock>,
    call: Option<Call>,
}

impl SshChild {
    /// Takes charge of a process.
    pub fn new(child: Child, clock: Arc<dyn Clock>) -> SshChild {
        let child = Arc::new(Mutex::new(child));
        SshChild {
            child,
            clock,
            call: None,
        }
    }

    /// What its questions come to, if it may ask.
    pub(super) fn call(&self) -> Option<&Call> {
        self.call.as_ref()
    }

    /// Ends the process for whoever cannot wait until this is dropped.
    pub(super) fn leash(&self) -> ChildGuard {
        ChildGuard(Arc::clone(&self.child))
    }

    /// Waits a moment for its end; whether it came.
    fn ends_within(&self, limit: Duration) -> bool {
        let end = self.clock.instant() + limit;
        while !self.leash().has_ended() {
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
        // One that may still ask is ended at once, and what it has started as well: a
        // jump host's ssh must not go on without an answer, either.
        if self.call.as_ref().is_some_and(|call| !call.is_through()) {
            self.leash().terminate();
        }
        if !self.ends_within(CHILD_EXIT_TIMEOUT) {
            self.leash().terminate();
            if !self.ends_within(CHILD_EXIT_TIMEOUT) {
                self.leash().kill();
            }
        }
        if let Some(call) = &self.call {
            call.end();
        }
    }
}

/// A hold on the process of a [`SshChild`], wherever that is.
pub(super) struct ChildGuard(Arc<Mutex<Child>>);

impl ChildGuard {
    fn child(&self) -> MutexGuard<'_, Child> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is gone, and not even a zombie.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(self.child().try_wait(), Ok(None))
    }

    /// Asks it to end at once, and with it what it has started itself: a jump
    /// host's ssh, a proxy command. One that leads no group of its own is asked
    /// alone.
    pub(super) fn terminate(&self) {
        let mut child = self.child();
        // Its number may be another's once it was waited for.
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid
            && kill_process_group(pid, Signal::TERM).is_err()
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Ends it, and waits for that.
    pub(super) fn kill(&self) {
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Dials by the operator's ssh.
pub struct Ssh {
    program: PathBuf,
    clock: Arc<dyn Clock>,
    /// Goes before everything else, for instance `-F` and a file.
    arguments: Vec<OsString>,
    desk: Option<PromptBroker>,
}

impl Ssh {
    /// The ssh that `PATH` leads to. It never asks.
    pub fn new(clock: Arc<dyn Clock>) -> Ssh {
        Ssh {
            program: "ssh".into(),
            clock,
            arguments: Vec::new(),
            desk: None,
        }
    }

    /// It asks, and its questions come to a desk.
    #[must_use]
    pub fn asking(mut self, desk: PromptBroker) -> Ssh {
        self.desk = Some(desk);
        self
    }

    /// Another program, or arguments that go before ours.
    #[must_use]
    pub fn with(mut self, program: impl Into<PathBuf>, arguments: Vec<OsString>) -> Ssh {
        self.program = program.into();
        self.arguments = arguments;
        self
    }

    /// The command that connects to a host.
    fn command(&self, host: &Host, call: Option<&Call>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        // No terminal, no X, no agent of ours for that side, no escapes.
        command.args(["-T", "-x", "-a", "-e", "none"]);
        for option in [
            "ClearAllForwardings=yes",
            "PermitLocalCommand=no",
            // The user's own would make it refuse to start.
            "RemoteCommand=none",
            "RequestTTY=no",
            // Only a key that somebody typed an acceptance for becomes known.
            "UpdateHostKeys=no",
            // Uses a running master, and leaves none behind.
            "ControlMaster=no",
            "ServerAliveInterval=5",
            "ServerAliveCountMax=3",
            // Keeps every reason, and hides the server's banner.
            "LogLevel=ERROR",
        ] {
            command.args(["-o", option]);
        }
        // Asked or not, a key that is not the known one is refused.
        let asking: &[&str] = match call {
            Some(_) => &[
                "BatchMode=no",
                "StrictHostKeyChecking=ask",
                "NumberOfPasswordPrompts=3",
            ],
            None => &["BatchMode=yes", "StrictHostKeyChecking=yes"],
        };
        for option in asking {
            command.args(["-o", option]);
        }
        command.args(["-o", &format!("ConnectTimeout={}", host.timeout.max(1))]);
        if let Some(user) = &host.user {
            command.args(["-l", user]);
        }
        if let Some(port) = host.port {
            command.args(["-p", &port.to_string()]);
        }
        if let Some(identity) = &host.identity_file {
            command.arg("-i").arg(identity);
        }
        // A jump host's ssh gets none of these options: it asks in the same place,
        // or finds nobody to ask, either.
        match call {
            Some(call) => call.prepare(&mut command),
            None => drop(command.env("SSH_ASKPASS_REQUIRE", "never")),
        }
        // Of its own, so that an interrupt at the keyboard does not end it in the
        // middle of an agent, and so that it has no terminal to ask at.
        sys::own_session(&mut command);
        command
    }
}

impl Connector for Ssh {
    fn dial(&self, host: &Host) -> Result<SftpStream, TransportError> {
        let call = match &self.desk {
            Some(desk) => desk.call(host)?,
            None => None,
        };
        let mut command = self.command(host, call.as_ref());
        command.args(["-s", "--", &host.name, "sftp"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.not_started(&error))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut carrier = SshChild::new(child, self.clock.clone());
        carrier.call = call;
        let (Some(input), Some(output), Some(errors)) = pipes else {
            let error = Error::new(Kind::Internal, "ssh was started without pipes");
            return Err(TransportError::new(Cause::Refused, error));
        };
        Ok(SftpStream {
            link: Link {
                input: OwnedFd::from(input),
                output: OwnedFd::from(output),
                errors: Some(OwnedFd::from(errors)),
            },
            child: Some(carrier),
        })
    }

    fn settings(&self, host: &Host) -> Result<Vec<ConnectionSetting>, TransportError> {
        let mut command = self.command(host, None);
        command.args(["-G", "--", &host.name]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| self.not_started(&error))?;
        let output = child.stdout.take();
        let (sender, printed) = channel();
        let read = move || {
            let mut text = Vec::new();
            let read = output.map(|it| it.take(MAX_SETTINGS_BYTES).read_to_end(&mut text));
            // Whoever asked may have stopped waiting.
            drop(sender.send(read.is_some_and(|read| read.is_ok()).then_some(text)));
        };
        let reader = thread::Builder::new().spawn(read);
        let text = printed.recv_timeout(SETTINGS_TIMEOUT);
        // A program that it started may still have its output.
        let carrier = SshChild::new(child, self.clock.clone());
        carrier.leash().terminate();
        drop(carrier);
        let failed = |why: &str| {
            let message = format!("`ssh -G {}` {why}", by_hand(host));
            let error = Error::new(Kind::Host, message).hint("run it by hand");
            TransportError::new(Cause::Refused, error)
        };
        if let Err(error) = reader {
            return Err(failed(&format!(
                "cannot be read: no thread for it: {error}"
            )));
        }
        match text {
            Ok(Some(text)) if !text.is_empty() => Ok(settings_of(&text)),
            Ok(_) => Err(failed(
                "says nothing: ssh does not accept its configuration",
            )),
            Err(_) => Err(failed("does not come to an end")),
        }
    }

    fn bars(&self, host: &Host) -> bool {
        self.desk.as_ref().is_some_and(|desk| desk.bars(host))
    }
}

/// What `ssh -G` printed, as far as it is told.
fn settings_of(text: &[u8]) -> Vec<ConnectionSetting> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|it| it.split_once(' ')).collect();
    let told = SHOWN_SETTINGS.iter().flat_map(|name| {
        let mine = lines.iter().filter(move |(key, _)| key == name);
        mine.filter(|(_, value)| !matches!(*value, "" | "none"))
    });
    let setting = |(name, value): &(&str, &str)| ConnectionSetting {
        name: (*name).to_string(),
        value: cut(value).to_string(),
    };
    told.map(setting).collect()
}

impl Ssh {
    fn not_started(&self, error: &io::Error) -> TransportError {
        let error = match error.kind() {
            io::ErrorKind::NotFound => Error::new(
                Kind::Host,
                "ssh is not installed here, and agents on other hosts are reached by it",
            )
            .hint("install OpenSSH's client: `apt-get install openssh-client`"),
            _ => Error::io("start", &self.program, error),
        };
        TransportError::new(Cause::Refused, error)
    }
}

/// Why a session ended or never began, from what ssh said before the server
/// answered.
pub(super) fn explain(host: &Host, broken: &SessionError) -> TransportError {
    let said = String::from_utf8_lossy(&broken.heard.before);
    let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
    if !broken.greeted
        && let Some(found) = lines.iter().rev().find_map(|line| SshFailure::of(line))
    {
        // The last line tells how it ended, but a key that is not the known one
        // is the reason of whatever came after.
        let key = lines
            .iter()
            .find_map(|line| SshFailure::of(line).filter(SshFailure::is_key));
        // Of a wrong configuration the first line says what is wrong with it.
        let setup = lines
            .iter()
            .find_map(|line| SshFailure::of(line).filter(SshFailure::is_setup));
        let found = match found.is_setup() {
            true => setup.unwrap_or(found),
            false => found,
        };
        return key.unwrap_or(found).tell(host);
    }
    if let (false, CloseReason::Garbage(_)) = (broken.greeted, &broken.why) {
        // It did answer.
        let message = format!("{}: {broken}", host.name);
        let error = Error::new(Kind::Host, message).hint(format!(
            "`ssh {} true` must print nothing: see the start-up files of the login shell there",
            by_hand(host)
        ));
        return TransportError::new(Cause::Refused, error);
    }
    let last = lines.iter().rev().find(|line| !line.is_empty());
    let why = match last {
        Some(line) if !broken.greeted => format!("{broken}: {}", cut(line)),
        _ => broken.to_string(),
    };
    let message = match broken.greeted {
        true => format!("{}: {why}", host.name),
        false => format!("{} did not answer: {why}", host.name),
    };
    let error = Error::new(Kind::Host, message);
    let error = match broken.greeted {
        true => error,
        false => error.hint(format!("try `ssh {}`", by_hand(host))),
    };
    TransportError::new(Cause::Unreachable, error)
}

/// What a line of ssh's means. The texts are those of OpenSSH 7.6 to 10
/// (sshconnect.c, sshconnect2.c, ssh.c, kex.c, packet.c, clientloop.c), which
/// are not translated.
enum SshFailure<'l> {
    /// Another key than the known one, or a revoked one.
    Changed,
    /// No key is known.
    Unknown,
    /// The server refuses the user.
    Refused(&'l str),
    /// The setup of ssh is wrong.
    Setup(&'l str),
    /// There is no SFTP server.
    NoServer,
    /// It could not be reached.
    Away(&'l str),
}

impl<'l> SshFailure<'l> {
    fn of(line: &'l str) -> Option<SshFailure<'l>> {
        let has = |text: &str| line.contains(text);
        Some(
            if has("REMOTE HOST IDENTIFICATION HAS CHANGED")
                || has("REVOKED HOST KEY DETECTED")
                || has("has changed and you have requested strict checking")
                || has("was revoked and you have requested strict checking")
                || has("differs from the key for the IP address")
            {
                SshFailure::Changed
            } else if (has("host key is known for") && has("strict checking"))
                || line == "Host key verification failed."
            {
                SshFailure::Unknown
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
                SshFailure::Setup(line)
            } else if has("subsystem request failed") {
                SshFailure::NoServer
            } else if line.starts_with("ssh: ")
                || has("timed out")
                || has("Connection closed by")
                || has("Connection reset by")
                || has("Unable to negotiate with")
                || line.starts_with("kex_exchange_identification:")
            {
                SshFailure::Away(line)
            } else {
                return None;
            },
        )
    }

    fn is_setup(&self) -> bool {
        matches!(self, SshFailure::Setup(_))
    }

    fn is_key(&self) -> bool {
        matches!(self, SshFailure::Changed | SshFailure::Unknown)
    }

    fn tell(&self, host: &Host) -> TransportError {
        let name = &host.name;
        let ssh = format!("ssh {}", by_hand(host));
        let (cause, message, hint) = match self {
            SshFailure::Changed => (
                Cause::HostKey,
                format!(
                    "{name} shows another host key than the one that is known, or a revoked one; nothing was read or sent"
                ),
                format!(
                    "find out why before anything else; if the host was really set up anew, `{ssh}` says how to forget the old key"
                ),
            ),
            SshFailure::Unknown => (
                Cause::Refused,
                format!("{name} shows a host key that is not known here"),
                format!("connect once by hand and compare the fingerprint: `{ssh}`"),
            ),
            SshFailure::Refused(line) => (
                Cause::Refused,
                format!("{name} does not let us in: {}", cut(line)),
                format!(
                    "`{ssh}` has to work without asking anything; see `ssh-add -l` and identity_file"
                ),
            ),
            SshFailure::Setup(line) => (
                Cause::Refused,
                format!("ssh does not accept its configuration: {}", cut(line)),
                format!("`ssh -G {}` shows what it makes of it", by_hand(host)),
            ),
            SshFailure::NoServer => (
                Cause::Refused,
                format!("{name} has no SFTP server"),
                "the host's sshd_config needs a line `Subsystem sftp internal-sftp`".to_string(),
            ),
            SshFailure::Away(line) => (
                Cause::Unreachable,
                format!("{name} cannot be reached: {}", cut(line)),
                format!("try `{ssh}`"),
            ),
        };
        TransportError::new(cause, Error::new(Kind::Host, message).hint(hint))
    }
}

/// How a host is named to ssh by hand.
fn by_hand(host: &Host) -> String {
    let port = host.port.map(|port| format!("-p {port} "));
    let user = host.user.as_ref().map(|user| format!("{user}@"));
    let way: String = [port, user].into_iter().flatten().collect();
    format!("{way}{}", host.name)
}

/// The beginning of a line that somebody else wrote.
fn cut(line: &str) -> &str {
    const MOST: usize = 300;
    match line.char_indices().nth(MOST) {
        Some((end, _)) => &line[..end],
        None => line,
    }
}
