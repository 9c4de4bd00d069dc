//! The program `ssh-keygen` as a child process: makes and checks SSH signatures.
//!
//! The child gets every input as bytes, through unnamed files in memory, so no name that another
//! user can write leads to what it reads. It has no terminal and never prompts. Its run is bounded
//! in time and output; what it prints is foreign text.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::program::{self, RunEnd, RunLimits, describe_exit, memory_file_of};
use crate::base::sys;

/// Name of the program, looked up in `PATH`.
const PROGRAM_NAME: &str = "ssh-keygen";

/// Separates our signatures from those that the same key makes for other purposes.
const NAMESPACE: &str = "memory-shepherd";

/// Time limit of a check, which needs no input.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit of making a signature: a hardware key waits to be touched.
const SIGN_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that are kept of each output stream.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

/// Length limit of a quoted message, in characters.
const MAX_QUOTED_CHARS: usize = 200;

/// An argument of the child: a word, or bytes that it reads from a path.
enum Argument<'a> {
    Word(&'a OsStr),
    Bytes(&'a [u8]),
}

/// Exit and captured output of the child.
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
        None => format!("{PROGRAM_NAME}: {}", describe_exit(output.status)),
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
                    let file = memory_file_of(bytes)?;
                    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                    files.push(file);
                    command.arg(OsString::from(path))
                }
            };
        }
        command.env("SSH_ASKPASS_REQUIRE", "never");
        let descriptors = files.iter().map(AsRawFd::as_raw_fd).collect();
        sys::pass_descriptors(&mut command, descriptors);
        let limits = RunLimits {
            timeout,
            max_output_bytes: MAX_OUTPUT_BYTES,
            clock,
            is_cancelled: &|| false,
        };
        let output = program::run(&mut command, input, &limits)?;
        let RunEnd::Exited(status) = output.end else {
            let text = format!("it has not ended within {} s", timeout.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        };
        Ok(ChildOutput {
            status,
            stdout: output.stdout,
            stderr: output.stderr,
        })
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
