//! The askpass helper: this program, started by ssh to ask a question. It has no terminal; it sends
//! the question to the console that started ssh, and prints the console's answer.
//!
//! It sends the token (64 digits), a byte for the kind, the length of the question (4 bytes, big
//! endian) and the question. The answer is `+`, the text and a line feed; anything else is no
//! answer.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{DumpableBehavior, Uid, geteuid, set_dumpable_behavior};
use zeroize::Zeroizing;

use crate::base::secret;

/// The environment variable with the path of the console's socket; if it is set, this program is
/// only the helper.
pub const SOCKET_VARIABLE: &str = "MEMORY_SHEPHERD_ASKPASS";

/// The environment variable with the token of the attempt.
pub(super) const TOKEN_VARIABLE: &str = "MEMORY_SHEPHERD_ASKPASS_TOKEN";

/// ssh's environment variable for the kind of question.
const PROMPT_KIND_VARIABLE: &str = "SSH_ASKPASS_PROMPT";

/// Number of digits of a token.
pub(super) const TOKEN_LENGTH: usize = 64;

/// Size limit of a question in bytes; the rest of a longer one is cut off.
pub(super) const MAX_QUESTION_BYTES: usize = 4096;

/// Size limit of a request in bytes.
pub(super) const MAX_REQUEST_BYTES: usize = TOKEN_LENGTH + 5 + MAX_QUESTION_BYTES;

/// Codes of the kinds in a request.
const PROMPT_KIND_CODES: [(u8, &str); 3] = [(b'-', ""), (b'c', "confirm"), (b'n', "none")];

/// A request of a helper.
pub(super) struct HelperRequest {
    pub(super) token: [u8; TOKEN_LENGTH],
    pub(super) hint: &'static str,
    pub(super) text: String,
}

/// If ssh started this program to ask, asks, prints the answer and returns the exit code. `None` if
/// it was started for another purpose.
pub fn askpass_main(
    mut arguments: impl Iterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<ExitCode> {
    let socket = variable(SOCKET_VARIABLE)?;
    let question = arguments.nth(1).unwrap_or_default();
    let text = |name| variable(name).unwrap_or_default();
    let asked = UnixStream::connect(socket).and_then(|stream| {
        check_console(&stream, geteuid())?;
        super::disable_core_dumps();
        // Other processes must not read its memory while it runs either. A failure stops no
        // question.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let hint = text(PROMPT_KIND_VARIABLE);
        let sent = ask_console(
            stream,
            text(TOKEN_VARIABLE).as_bytes(),
            hint.as_bytes(),
            question.as_bytes(),
        )?;
        // Not through a buffer, which would keep a copy.
        File::from(io::stdout().as_fd().try_clone_to_owned()?).write_all(&sent)
    });
    Some(match asked {
        Ok(()) => ExitCode::SUCCESS,
        // ssh takes the failure as no answer.
        Err(_) => ExitCode::FAILURE,
    })
}

/// Checks that a console of `user` listens: another user may have put a socket of theirs at the path.
fn check_console(stream: &UnixStream, user: Uid) -> io::Result<()> {
    if socket_peercred(stream)?.uid == user {
        return Ok(());
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

/// Sends the question and returns the answer: its text and a line feed.
pub(super) fn ask_console(
    mut stream: UnixStream,
    token: &[u8],
    hint: &[u8],
    question: &[u8],
) -> io::Result<Zeroizing<Vec<u8>>> {
    let question = &question[..question.len().min(MAX_QUESTION_BYTES)];
    let kind = PROMPT_KIND_CODES
        .iter()
        .find(|(_, name)| name.as_bytes() == hint);
    let mut frame = token.to_vec();
    frame.push(kind.map_or(b'-', |(byte, _)| *byte));
    frame.extend((question.len() as u32).to_be_bytes());
    frame.extend(question);
    stream.write_all(&frame)?;
    // Growing would leave copies in memory.
    let room = secret::MAX_SECRET_BYTES + 2;
    let mut answer = Zeroizing::new(vec![0; room]);
    let mut length = 0;
    while length < room {
        match stream.read(&mut answer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    match &answer[..length] {
        [b'+', text @ ..] if text.ends_with(b"\n") => Ok(Zeroizing::new(text.to_vec())),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads the request of a helper.
///
/// # Errors
/// It is incomplete ([`io::ErrorKind::UnexpectedEof`]) or malformed.
pub(super) fn read_request(stream: &mut impl Read) -> io::Result<HelperRequest> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let mut token = [0; TOKEN_LENGTH];
    stream.read_exact(&mut token)?;
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let [kind, length @ ..] = head;
    let known = PROMPT_KIND_CODES.iter().find(|(byte, _)| *byte == kind);
    let (_, hint) = known.ok_or_else(malformed)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_QUESTION_BYTES {
        return Err(malformed());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok(HelperRequest {
        token,
        hint,
        text: String::from_utf8_lossy(&text).into_owned(),
    })
}

/// Sends an answer. The helper may have exited.
pub(super) fn send_answer(mut stream: &UnixStream, text: &str) {
    let mut frame = Zeroizing::new(Vec::with_capacity(secret::MAX_SECRET_BYTES + 2));
    frame.push(b'+');
    frame.extend(text.as_bytes());
    frame.push(b'\n');
    let _ = stream.write_all(&frame);
    let _ = stream.shutdown(std::net::Shutdown::Write);
}
