//! What ssh asks while it connects, in the console: passphrases, passwords, keys
//! of hosts that are not known.
//!
//! ssh asks by starting a program, which is this one again: the [`askpass_main`]. It
//! hands the question over a socket to the [`PromptBroker`] of the console, which passes
//! it on as an [`PromptEvent`] and takes the operator's answer. Only processes of the
//! same user get in, with the token of a connection that is being made, and the
//! socket is in a directory that nobody else may enter.
//!
//! A host that is not answered, or does not let us in with what it was given, is
//! barred: nobody connects to it any more until [`PromptBroker::unblock`]. So a host that
//! the watch looks at every few seconds asks once, not every few seconds.
//!
//! The command line has no desk: its ssh never asks.

mod helper;
mod question;

use std::collections::HashMap;
use std::fs::Permissions;
use std::io::Read;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use tempfile::TempDir;

use super::session::Deadline;
use crate::clock::{Clock, SystemClock};
use crate::config::SshHost;
use crate::error::{Error, ErrorKind, PathContext, Result};
use crate::secret::Secret;
use crate::transport::{FailureCause, TransportError};
use crate::untrusted::Untrusted;

pub use helper::{SOCKET_VARIABLE, askpass_main};
pub use question::{ExpectedAnswer, Question, SecretRecipient, UnknownHostKey};

/// How long a question waits for its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// An answer that comes so long after connecting began may be too late: hosts hang
/// up on whoever takes too long (sshd's `LoginGraceTime`), and ssh notices that only
/// when it goes on.
const LATE_ANSWER_AFTER: Duration = Duration::from_secs(20);

/// How long a messenger may take to say what it wants.
const HELPER_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// How long [`PromptBroker::close`] waits for what was still asking.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most questions of one attempt to connect.
const MAX_QUESTIONS_PER_ATTEMPT: usize = 16;

/// The most questions that are open at the same time, of all hosts.
const MAX_OPEN_QUESTIONS: usize = 256;

/// What happens at a desk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptEvent {
    /// A question came.
    Asked(Question),
    /// A question went without an answer: ssh ended, or waited for too long.
    Withdrawn(u64),
    /// What came of connecting to a host that asked something is known now; its
    /// login.
    ConnectFinished(String),
    /// An answer came too late, the host had hung up; its login. It is connected to
    /// anew, and asks again.
    AnswerTooLate(String),
    /// No question can be asked, and why.
    Unavailable(String),
}

/// Where questions come to be answered.
#[derive(Clone)]
pub struct PromptBroker(Arc<BrokerShared>);

struct BrokerShared {
    program: PathBuf,
    directories: Vec<PathBuf>,
    events: Sender<PromptEvent>,
    state: Mutex<BrokerState>,
    /// A call has ended.
    attempt_ended: Condvar,
}

#[derive(Default)]
struct BrokerState {
    prompt_socket: Option<PromptSocket>,
    /// It was tried, and told, that nobody can listen; or the desk is closed.
    is_unavailable: bool,
    attempts: Vec<OpenAttempt>,
    blocked_hosts: HashMap<SshHost, TransportError>,
    /// Numbers calls and questions.
    last_id: u64,
}

/// The socket, while somebody listens at it.
struct PromptSocket {
    path: PathBuf,
    listener: OwnedFd,
    _directory: TempDir,
}

impl Drop for PromptSocket {
    fn drop(&mut self) {
        // Whoever waits for a messenger wakes and ends.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// A call that has not ended.
struct OpenAttempt {
    id: u64,
    token: String,
    host: SshHost,
    wake_fd: Arc<OwnedFd>,
    /// How long ssh may take for anything that is not a question.
    timeout: Duration,
    /// Since when that counts.
    timeout_start: Instant,
    questions: Vec<PendingQuestion>,
    /// How many there were.
    asked_count: usize,
    /// The texts of those that were answered.
    answered_texts: Vec<String>,
    /// When ssh began to connect.
    started: Instant,
    /// The last answer may have come too late.
    is_last_answer_late: bool,
    end_reason: Option<AttemptEndReason>,
    /// ssh has got through to the host.
    is_connected: bool,
}

/// Why a call is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptEndReason {
    /// The operator does not answer this.
    Refused(&'static str),
    /// Nobody wants the host any more.
    Abandoned,
}

/// A question without an answer.
struct PendingQuestion {
    id: u64,
    stream: UnixStream,
    asked_at: Instant,
    noun: &'static str,
    text: String,
}

impl OpenAttempt {
    fn wake(&self) {
        // It fails only when it is awake already.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }

    /// Takes a question that is answered or gone.
    fn take_question(&mut self, question: u64) -> Option<PendingQuestion> {
        let place = self.questions.iter().position(|it| it.id == question)?;
        self.timeout_start = SystemClock.instant();
        Some(self.questions.remove(place))
    }

    /// Whether ssh has nothing to ask any more.
    fn has_finished_asking(&self) -> bool {
        self.is_connected && self.questions.is_empty()
    }

    fn request_end(&mut self, over: AttemptEndReason) {
        self.end_reason.get_or_insert(over);
        self.wake();
    }
}

impl PromptBroker {
    /// A desk. `program` is this program, by its path; the socket is made in the
    /// first of `directories` where it can be, once a host is connected to.
    pub fn new(
        program: PathBuf,
        directories: Vec<PathBuf>,
        events: Sender<PromptEvent>,
    ) -> PromptBroker {
        PromptBroker(Arc::new(BrokerShared {
            program,
            directories,
            events,
            state: Mutex::default(),
            attempt_ended: Condvar::new(),
        }))
    }

    /// Answers a question. It may be gone by now.
    pub fn answer(&self, question: u64, answer: &Secret) {
        let mut state = self.0.lock_state();
        let asked = state.attempts.iter_mut().find_map(|call| {
            let asked = call.take_question(question)?;
            call.answered_texts.push(asked.text.clone());
            call.is_last_answer_late = SystemClock.instant() >= call.started + LATE_ANSWER_AFTER;
            call.wake();
            Some(asked)
        });
        drop(state);
        if let Some(asked) = asked {
            helper::send_answer(&asked.stream, answer.expose());
        }
    }

    /// Gives no answer to a question: ssh is ended, because it would go on and try
    /// an empty password, and the host is barred.
    pub fn refuse(&self, question: u64) {
        let mut state = self.0.lock_state();
        for call in &mut state.attempts {
            let asked = call.questions.iter().find(|it| it.id == question);
            if let Some(over) = asked.map(|asked| AttemptEndReason::Refused(asked.noun)) {
                call.request_end(over);
            }
        }
    }

    /// Lets a host ask again.
    pub fn unblock(&self, host: &SshHost) {
        self.0.lock_state().blocked_hosts.remove(host);
    }

    /// Ends what asks or may still ask, and waits a moment for it: ssh, left alone
    /// with a question, would go on without an answer.
    pub fn close(&self) {
        let mut state = self.0.lock_state();
        state.is_unavailable = true;
        for call in state
            .attempts
            .iter_mut()
            .filter(|call| !call.has_finished_asking())
        {
            call.request_end(AttemptEndReason::Abandoned);
        }
        let asks =
            |state: &mut BrokerState| state.attempts.iter().any(|call| call.end_reason.is_some());
        drop(
            self.0
                .attempt_ended
                .wait_timeout_while(state, CLOSE_TIMEOUT, asks),
        );
        self.0.lock_state().prompt_socket = None;
    }

    /// Begins to connect to a host. None when nobody can listen; then ssh must not
    /// ask.
    ///
    /// # Errors
    /// Why it is barred.
    pub(super) fn start_attempt(
        &self,
        host: &SshHost,
    ) -> Result<Option<ConnectAttempt>, TransportError> {
        let mut state = self.0.lock_state();
        if let Some(why) = state.blocked_hosts.get(host) {
            return Err(why.clone());
        }
        if state.is_unavailable {
            return Ok(None);
        }
        match self.0.open_attempt(&mut state, host) {
            Ok(call) => Ok(Some(call)),
            Err(error) => {
                state.is_unavailable = true;
                let _ = self
                    .0
                    .events
                    .send(PromptEvent::Unavailable(error.to_string()));
                Ok(None)
            }
        }
    }

    /// Whether a host waits for [`PromptBroker::unblock`].
    pub(super) fn is_blocked(&self, host: &SshHost) -> bool {
        self.0.lock_state().blocked_hosts.contains_key(host)
    }
}

impl BrokerShared {
    fn lock_state(&self) -> MutexGuard<'_, BrokerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_attempt(
        self: &Arc<BrokerShared>,
        state: &mut BrokerState,
        host: &SshHost,
    ) -> Result<ConnectAttempt> {
        if state.prompt_socket.is_none() {
            state.prompt_socket = Some(self.open_socket()?);
        }
        let kernel = Path::new("the kernel");
        let mut random = [0; helper::TOKEN_LENGTH / 2];
        getrandom(&mut random, GetRandomFlags::empty())
            .with_path("read random bytes from", kernel)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.with_path("take an eventfd from", kernel)?);
        state.last_id += 1;
        let id = state.last_id;
        let begun = SystemClock.instant();
        state.attempts.push(OpenAttempt {
            id,
            token: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            host: host.clone(),
            wake_fd: Arc::clone(&wake),
            timeout: Duration::from_secs(host.timeout_seconds.max(1).into()),
            timeout_start: begun,
            questions: Vec::new(),
            asked_count: 0,
            answered_texts: Vec::new(),
            started: begun,
            is_last_answer_late: false,
            end_reason: None,
            is_connected: false,
        });
        Ok(ConnectAttempt(Arc::new(AttemptHandle {
            shared: Arc::clone(self),
            id,
            started: begun,
            wake_fd: wake,
            was_asked: AtomicBool::new(false),
        })))
    }

    fn open_socket(self: &Arc<BrokerShared>) -> Result<PromptSocket> {
        let mut failure = Error::new(ErrorKind::Host, "there is no directory for a socket");
        for directory in &self.directories {
            match self.open_socket_in(directory) {
                Ok(listening) => return Ok(listening),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn open_socket_in(self: &Arc<BrokerShared>, directory: &Path) -> Result<PromptSocket> {
        let private = Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        builder.prefix("memory-shepherd-").permissions(private);
        let made = builder.tempdir_in(directory);
        let made = made.with_path("make a private directory in", directory)?;
        let socket = made.path().join("ask");
        let listener = UnixListener::bind(&socket).with_path("listen at", &socket)?;
        let copy = listener.try_clone().with_path("listen at", &socket)?;
        let shared = Arc::downgrade(self);
        let thread = thread::Builder::new().name("askpass".into());
        let thread = thread.spawn(move || accept_helpers(&listener, &shared));
        thread.with_path("listen at", &socket)?;
        Ok(PromptSocket {
            path: socket,
            listener: copy.into(),
            _directory: made,
        })
    }

    /// Hears a messenger out, and stays until it has gone.
    fn serve_helper(&self, mut stream: UnixStream) {
        let same = socket_peercred(&stream).is_ok_and(|peer| peer.uid == geteuid());
        if !same || stream.set_read_timeout(Some(HELPER_READ_TIMEOUT)).is_err() {
            return;
        }
        let Some(sent) = helper::read_request(&mut stream) else {
            return;
        };
        let Some(question) = self.accept_question(&stream, sent) else {
            return;
        };
        // It says nothing more, so this waits until it is gone.
        let _ = stream.set_read_timeout(None);
        while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
        let mut state = self.lock_state();
        for call in &mut state.attempts {
            if call.take_question(question).is_some() {
                call.wake();
                let _ = self.events.send(PromptEvent::Withdrawn(question));
            }
        }
    }

    /// Takes a question in, if it comes from a call that may ask; its number.
    fn accept_question(&self, stream: &UnixStream, sent: helper::HelperRequest) -> Option<u64> {
        let waiting = stream.try_clone().ok()?;
        let mut state = self.lock_state();
        let open: usize = state.attempts.iter().map(|call| call.questions.len()).sum();
        state.last_id += 1;
        let id = state.last_id;
        let mut calls = state.attempts.iter_mut();
        let call = calls.find(|call| is_same_token(call.token.as_bytes(), &sent.token))?;
        if call.end_reason.is_some()
            || call.asked_count == MAX_QUESTIONS_PER_ATTEMPT
            || open >= MAX_OPEN_QUESTIONS
        {
            return None;
        }
        let question = Question {
            id,
            host: call.host.authority(),
            expected_answer: ExpectedAnswer::parse(&sent.text, sent.hint),
            is_repeated: call.answered_texts.contains(&sent.text),
            text: Untrusted::new(sent.text.as_str()),
        };
        if matches!(question.expected_answer, ExpectedAnswer::Secret(_)) {
            disable_core_dumps();
        }
        call.asked_count += 1;
        call.questions.push(PendingQuestion {
            id,
            stream: waiting,
            asked_at: SystemClock.instant(),
            noun: question.short_name(),
            text: sent.text,
        });
        call.wake();
        // Nobody may be there to answer; then it waits until its time is over.
        let _ = self.events.send(PromptEvent::Asked(question));
        Some(id)
    }
}

/// Whether a token is this one, in a time that does not tell how much of it is.
fn is_same_token(token: &[u8], other: &[u8; helper::TOKEN_LENGTH]) -> bool {
    let differ = token.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    token.len() == other.len() && std::hint::black_box(differ) == 0
}

/// Keeps the memory of this process from being written to a disk if it crashes.
fn disable_core_dumps() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A limit can always be lowered.
    let _ = setrlimit(Resource::Core, none);
}

/// Waits for messengers, each in a thread of its own, until the desk has gone.
fn accept_helpers(listener: &UnixListener, desk: &Weak<BrokerShared>) {
    for stream in listener.incoming() {
        let (Ok(stream), Some(desk)) = (stream, desk.upgrade()) else {
            return;
        };
        let thread = thread::Builder::new().name("askpass".into());
        // Without a thread it is let go, which is no answer.
        let _ = thread.spawn(move || desk.serve_helper(stream));
    }
}

/// An attempt to connect to a host: what ssh asks meanwhile comes to the desk.
/// Clones are the same one.
#[derive(Clone)]
pub struct ConnectAttempt(Arc<AttemptHandle>);

struct AttemptHandle {
    shared: Arc<BrokerShared>,
    id: u64,
    started: Instant,
    wake_fd: Arc<OwnedFd>,
    /// Whether anything was asked, once that has been judged.
    was_asked: AtomicBool,
}

impl Drop for AttemptHandle {
    fn drop(&mut self) {
        end(&self.shared, self.id);
    }
}

/// Ends a call: its questions go.
fn end(shared: &BrokerShared, id: u64) {
    let mut state = shared.lock_state();
    let Some(place) = state.attempts.iter().position(|call| call.id == id) else {
        return;
    };
    let call = state.attempts.swap_remove(place);
    for asked in &call.questions {
        // To the messenger that is no answer.
        let _ = asked.stream.shutdown(Shutdown::Both);
        let _ = shared.events.send(PromptEvent::Withdrawn(asked.id));
    }
    shared.attempt_ended.notify_all();
}

impl ConnectAttempt {
    fn with_open_attempt<T>(&self, act: impl FnOnce(&mut OpenAttempt) -> T) -> Option<T> {
        let mut state = self.0.shared.lock_state();
        let call = state
            .attempts
            .iter_mut()
            .find(|call| call.id == self.0.id)?;
        Some(act(call))
    }

    /// Makes an ssh ask here.
    pub(super) fn configure_command(&self, command: &mut Command) {
        let state = self.0.shared.lock_state();
        let call = state.attempts.iter().find(|call| call.id == self.0.id);
        if let (Some(call), Some(listening)) = (call, &state.prompt_socket) {
            command.env("SSH_ASKPASS", &self.0.shared.program);
            command.env("SSH_ASKPASS_REQUIRE", "force");
            command.env(SOCKET_VARIABLE, &listening.path);
            command.env(helper::TOKEN_VARIABLE, &call.token);
        }
    }

    /// Why whoever wants the host need not wait: it has a question.
    pub(super) fn pending_question_error(&self) -> Option<TransportError> {
        self.with_open_attempt(|call| {
            let noun = call.questions.first()?.noun;
            let message = format!("{} wants {noun}: it waits for your answer", call.host.name);
            Some(unreachable_error(&message))
        })?
    }

    /// What the host wants from the operator right now.
    pub(super) fn pending_prompt(&self) -> Option<&'static str> {
        self.with_open_attempt(|call| Some(call.questions.first()?.noun))?
    }

    /// Whether ssh has nothing to ask any more. Until then it must not be left
    /// alone: it would go on without an answer.
    pub(super) fn has_finished_asking(&self) -> bool {
        self.with_open_attempt(|call| call.has_finished_asking())
            .unwrap_or(true)
    }

    /// Gives the call up: nobody wants the host any more.
    pub(super) fn abandon(&self) {
        self.with_open_attempt(|call| call.request_end(AttemptEndReason::Abandoned));
    }

    /// Ends the call, once ssh has ended: its questions go.
    pub(super) fn end(&self) {
        end(&self.0.shared, self.0.id);
    }

    /// What came of connecting, in view of what was asked. Where that was in vain,
    /// the host is barred.
    pub(super) fn explain_outcome<T>(
        &self,
        outcome: Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        let mut state = self.0.shared.lock_state();
        let Some(call) = state.attempts.iter_mut().find(|call| call.id == self.0.id) else {
            return outcome;
        };
        call.is_connected = outcome.is_ok();
        let asked = call.asked_count > 0 && call.end_reason != Some(AttemptEndReason::Abandoned);
        self.0.was_asked.store(asked, Ordering::Relaxed);
        let why = match outcome {
            Err(why) if asked => why,
            came => return came,
        };
        let name = &call.host.name;
        let open = call.questions.first().map(|asked| asked.noun);
        let why = match (call.end_reason, open) {
            (Some(AttemptEndReason::Refused(noun)), _) | (_, Some(noun)) => unreachable_error(
                &format!("{name} cannot be reached: it wants {noun} and got no answer"),
            )
            .with_hint("read it again to be asked again"),
            (None, None) if call.is_last_answer_late && why.cause == FailureCause::Unreachable => {
                let _ = self
                    .0
                    .shared
                    .events
                    .send(PromptEvent::AnswerTooLate(call.host.authority()));
                return Err(why);
            }
            // Whatever was wrong, to try again would be to ask again.
            _ => why.with_hint("read it again to try again"),
        };
        let host = call.host.clone();
        state.blocked_hosts.insert(host, why.clone());
        Err(why)
    }

    /// Tells the desk that what came of it can be seen.
    pub(super) fn report_finished(&self, host: &SshHost) {
        if self.0.was_asked.load(Ordering::Relaxed) {
            let _ = self
                .0
                .shared
                .events
                .send(PromptEvent::ConnectFinished(host.authority()));
        }
    }
}

/// For waiting: while a question is open, that takes its own time, and after it
/// ssh has all of its own again.
impl Deadline for ConnectAttempt {
    fn instant(&self) -> Instant {
        let at = self.with_open_attempt(|call| {
            let first = call.questions.iter().map(|asked| asked.asked_at).min();
            match (call.end_reason, first) {
                (Some(_), _) => self.0.started,
                (None, Some(since)) => since + ANSWER_TIMEOUT,
                (None, None) => call.timeout_start + call.timeout,
            }
        });
        at.unwrap_or(self.0.started)
    }

    fn change_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.wake_fd.as_fd())
    }
}

fn unreachable_error(message: &str) -> TransportError {
    TransportError::new(
        FailureCause::Unreachable,
        Error::new(ErrorKind::Host, message),
    )
}

#[cfg(test)]
mod tests;
