//! The program `ssh-keygen` as a child process: makes and checks SSH signatures.
//!
//! The child gets every input as bytes, through unnamed files in memory, so no name that another
//! user can write leads to what it reads. It has no terminal and never prompts. Its run is bounded
//! in time and output; what it prints is foreign text.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::sys;

/// Name of the program, looked up in `PATH`.
const PROGRAM_NAME: &str = "ssh-keygen";

/// Separates our signatures from those that the same key makes for other purposes.
const NAMESPACE: &str = "memory-shepherd";

/// Time limit of a check, which needs no input.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of making a signature: a hardware key waits to be touched.
const SIGN_TIMEOUT: Duration = Duration::from_secs(60);

/// Size limit of each output stream.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Length limit of a quoted message, in characters.
const MAX_QUOTED_CHARS: usize = 200;

/// An argument of the child: a word, or bytes that it reads from a path.
enum Argument<'a> {
    Word(&'a OsStr),
    Bytes(&'a [u8]),
}

/// How the child ended, and what it printed.
struct ChildOutput {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Signs `message`. `key` is the file of a private key, or of a public key whose private part an
/// ssh-agent has.
///
/// # Errors
/// The key cannot be used without a prompt, or the program cannot be run.
pub fn sign(key: &Path, message: &[u8], clock: &dyn Clock) -> Result<Vec<u8>> {
    let arguments = [
        word("-Y"),
        word("sign"),
        word("-n"),
        word(NAMESPACE),
        word("-f"),
        Argument::Word(key.as_os_str()),
    ];
    let output = run(&arguments, message, SIGN_TIMEOUT, clock)?;
    let is_signature = output.stdout.starts_with(b"-----BEGIN SSH SIGNATURE-----");
    if output.status.success() && is_signature {
        return Ok(output.stdout);
    }
    let quoted = quote_message(&output);
    // It prompts on the line of the message, though nothing can answer.
    let why = quoted.rsplit("passphrase: ").next().unwrap_or_default();
    let message = format!("cannot sign with {}: {why}", key.display());
    let error = Error::new(ErrorKind::User, message);
    Err(if quoted.contains("passphrase") {
        error.with_hint(
            "a key with a passphrase has to be in the ssh-agent: run `ssh-add KEYFILE`, then name \
             KEYFILE.pub",
        )
    } else {
        error.with_hint("name a private key, or the .pub file of a key in the ssh-agent")
    })
}

/// Returns the principals of an allowed-signers file that the key of a signature stands for at
/// present; empty if there is none.
///
/// # Errors
/// The program cannot be run.
pub fn find_principals(signature: &[u8], signers: &[u8], clock: &dyn Clock) -> Result<Vec<String>> {
    let arguments = [
        word("-Y"),
        word("find-principals"),
        word("-s"),
        Argument::Bytes(signature),
        word("-f"),
        Argument::Bytes(signers),
    ];
    let output = run(&arguments, b"", CHECK_TIMEOUT, clock)?;
    if !output.status.success() {
        return Ok(Vec::new());
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = lines.lines().map(str::trim).filter(|it| !it.is_empty());
    Ok(names.map(str::to_string).collect())
}

/// Checks the signature of a principal over `message`. Returns the fingerprint of the key, or why
/// the signature is not good.
///
/// # Errors
/// The program cannot be run.
pub fn verify(
    principal: &str,
    message: &[u8],
    signature: &[u8],
    signers: &[u8],
    clock: &dyn Clock,
) -> Result<Result<String, String>> {
    let arguments = [
        word("-Y"),
        word("verify"),
        word("-n"),
        word(NAMESPACE),
        word("-I"),
        word(principal),
        word("-s"),
        Argument::Bytes(signature),
        word("-f"),
        Argument::Bytes(signers),
    ];
    let output = run(&arguments, message, CHECK_TIMEOUT, clock)?;
    Ok(fingerprint_or_message(&output))
}

/// Checks that a signature by any key fits `message`. Returns the fingerprint of the key, or
/// why it does not fit.
///
/// # Errors
/// The program cannot be run.
pub fn check_novalidate(
    message: &[u8],
    signature: &[u8],
    clock: &dyn Clock,
) -> Result<Result<String, String>> {
    let arguments = [
        word("-Y"),
        word("check-novalidate"),
        word("-n"),
        word(NAMESPACE),
        word("-s"),
        Argument::Bytes(signature),
    ];
    let output = run(&arguments, message, CHECK_TIMEOUT, clock)?;
    Ok(fingerprint_or_message(&output))
}

fn word(text: &str) -> Argument<'_> {
    Argument::Word(OsStr::new(text))
}

/// The line of success ends with the fingerprint: `Good "…" signature for … with ED25519 key
/// SHA256:…`.
fn fingerprint_or_message(output: &ChildOutput) -> Result<String, String> {
    let printed = String::from_utf8_lossy(&output.stdout);
    let last = printed.split_whitespace().next_back();
    match last.filter(|it| it.starts_with("SHA256:")) {
        Some(fingerprint) if output.status.success() => Ok(fingerprint.to_string()),
        _ => Err(quote_message(output)),
    }
}

/// Returns the first line of an error message, shortened.
fn quote_message(output: &ChildOutput) -> String {
    let text = [&output.stderr[..], &output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    match line {
        Some(line) => line.chars().take(MAX_QUOTED_CHARS).collect(),
        None => format!("{PROGRAM_NAME} ended with {}", output.status),
    }
}

/// Runs the program with `input` on its standard input.
fn run(
    arguments: &[Argument<'_>],
    input: &[u8],
    timeout: Duration,
    clock: &dyn Clock,
) -> Result<ChildOutput> {
    let run = || {
        let mut command = Command::new(PROGRAM_NAME);
        let mut files = Vec::new();
        for argument in arguments {
            match argument {
                Argument::Word(word) => command.arg(word),
                Argument::Bytes(bytes) => {
                    let file = memory_file(bytes)?;
                    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                    files.push(file);
                    command.arg(OsString::from(path))
                }
            };
        }
        command.stdin(memory_file(input)?);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("SSH_ASKPASS_REQUIRE", "never");
        sys::start_in_own_session(&mut command);
        sys::end_with_parent(&mut command);
        let descriptors = files.iter().map(AsRawFd::as_raw_fd).collect();
        sys::pass_descriptors(&mut command, descriptors);
        let mut child = command.spawn()?;
        let output = wait_for_output(&mut child, timeout, clock);
        if output.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        output
    };
    run().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let message = format!("cannot run {PROGRAM_NAME}: it is not installed");
            Error::new(ErrorKind::Host, message).with_hint(
                "install OpenSSH: the package openssh-client (Debian, Ubuntu), openssh-clients \
                 (Fedora, RHEL, SUSE), openssh (Arch) or openssh-keygen (Alpine)",
            )
        }
        _ => Error::new(
            ErrorKind::Host,
            format!("cannot run {PROGRAM_NAME}: {error}"),
        ),
    })
}

/// Returns an unnamed file with these bytes, to be read from its beginning.
fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let fd = rustix::fs::memfd_create("memory-shepherd", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// An output stream of the child; the pipe is none once it has ended.
struct OutputStream {
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl OutputStream {
    fn new(pipe: Option<impl Into<OwnedFd>>) -> OutputStream {
        OutputStream {
            pipe: pipe.map(|pipe| File::from(pipe.into())),
            bytes: Vec::new(),
        }
    }

    /// Reads what a ready pipe holds.
    fn read_once(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        match pipe.read(&mut buffer)? {
            0 => self.pipe = None,
            count => self.bytes.extend_from_slice(&buffer[..count]),
        }
        if self.bytes.len() > MAX_OUTPUT_BYTES {
            return Err(io::Error::other("it prints too much"));
        }
        Ok(())
    }
}

/// Reads both streams to their ends and waits for the process.
fn wait_for_output(
    child: &mut Child,
    timeout: Duration,
    clock: &dyn Clock,
) -> io::Result<ChildOutput> {
    let end = clock.instant() + timeout;
    let mut stdout = OutputStream::new(child.stdout.take());
    let mut stderr = OutputStream::new(child.stderr.take());
    loop {
        let mut open = [&mut stdout, &mut stderr];
        let pipes = open.iter().filter_map(|stream| stream.pipe.as_ref());
        let mut polled: Vec<PollFd<'_>> =
            pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        if polled.is_empty() {
            break;
        }
        wait_until_ready(&mut polled, end, timeout, clock)?;
        let mut ready: Vec<bool> = polled.iter().map(|it| !it.revents().is_empty()).collect();
        ready.reverse();
        for stream in open.iter_mut().filter(|stream| stream.pipe.is_some()) {
            if ready.pop() == Some(true) {
                stream.read_once()?;
            }
        }
    }
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("invalid process id"))?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let mut exit = [PollFd::new(&process, PollFlags::IN)];
    wait_until_ready(&mut exit, end, timeout, clock)?;
    Ok(ChildOutput {
        status: child.wait()?,
        stdout: stdout.bytes,
        stderr: stderr.bytes,
    })
}

/// Waits until one of the descriptors is ready.
fn wait_until_ready(
    polled: &mut [PollFd<'_>],
    end: Instant,
    timeout: Duration,
    clock: &dyn Clock,
) -> io::Result<()> {
    loop {
        let left = end.saturating_duration_since(clock.instant());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(polled, Some(&left)) {
            Ok(0) => {
                let seconds = timeout.as_secs();
                let text = format!("it has not ended within {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
