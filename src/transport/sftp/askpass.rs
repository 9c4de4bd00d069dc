//! Prompts of ssh while it connects, answered in the console: passphrases, passwords, unknown host
//! keys.
//!
//! ssh prompts by starting a helper, which is this program again ([`askpass_main`]). The helper
//! sends the question over a socket to the [`PromptBroker`] of the console, which passes it on as a
//! [`PromptEvent`] and returns the operator's answer. The socket accepts only processes of the same
//! user that have the token of a running attempt, and its directory is closed to other users. The helper
//! asks only a console of the same user.
//!
//! A host whose question gets no answer, or that denies access with the answer given, is blocked:
//! no attempt before [`PromptBroker::unblock`]. So a host that is polled every few seconds prompts
//! once.
//!
//! The command line has no broker: its ssh never prompts.

mod helper;
mod helper_loop;
mod question;

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};

use super::session::{Deadline, SessionWaker};
use crate::base::clock::{Clock, SystemClock};
use crate::base::digest::to_hex;
use crate::base::error::{Error, ErrorKind, PathContext, Result};
use crate::base::secret::Secret;
use crate::base::temporary::{PrivateDirectory, TemporaryRoot};
use crate::base::untrusted::Untrusted;
use crate::config::SshHost;
use crate::transport::{FailureCause, TransportError};

use self::helper_loop::HelperLoop;
pub use helper::{SOCKET_VARIABLE, askpass_main};
pub use question::{ExpectedAnswer, Question, SecretRecipient, UnknownHostKey};

/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// After this time since the start of an attempt, an answer may be too late: hosts disconnect slow
/// clients (sshd's `LoginGraceTime`), and ssh notices that only when it continues.
const LATE_ANSWER_AFTER: Duration = Duration::from_secs(20);

/// Time that [`PromptBroker::close`] waits for attempts that may still prompt.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit of the questions of one attempt.
const MAX_QUESTIONS_PER_ATTEMPT: usize = 16;

/// Limit of the pending questions of all hosts.
const MAX_OPEN_QUESTIONS: usize = 256;

/// An event for the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptEvent {
    /// A question arrived.
    Asked(Question),
    /// A question ended without an answer: ssh exited, or the time was up.
    Withdrawn(u64),
    /// An attempt that asked a question has a result; the host's login.
    ConnectFinished(String),
    /// An answer came after the host had disconnected; the host's login. It is connected to again,
    /// and asks again.
    AnswerTooLate(String),
    /// No question can be asked, for this reason.
    Unavailable(String),
}

/// Receives the questions of ssh and returns the operator's answers.
#[derive(Clone)]
pub struct PromptBroker(Arc<BrokerShared>);

struct BrokerShared {
    program: PathBuf,
    socket_roots: Vec<TemporaryRoot>,
    events: Sender<PromptEvent>,
    state: Mutex<BrokerState>,
    /// Signalled when an attempt has ended.
    attempt_ended: Condvar,
}

#[derive(Default)]
struct BrokerState {
    prompt_socket: Option<PromptSocket>,
    /// Set when the socket cannot be opened, which was reported, or when the broker is closed.
    is_unavailable: bool,
    attempts: Vec<OpenAttempt>,
    blocked_hosts: HashMap<SshHost, TransportError>,
    /// The last number given to an attempt or a question.
    last_id: u64,
}

/// The socket, while a thread accepts helpers on it.
struct PromptSocket {
    path: PathBuf,
    listener: OwnedFd,
    _directory: PrivateDirectory,
}

impl Drop for PromptSocket {
    fn drop(&mut self) {
        // The accepting thread wakes and ends.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// An attempt that has not ended.
struct OpenAttempt {
    id: u64,
    token: String,
    host: SshHost,
    /// Gives the session of ssh its turn, once there is one.
    waker: Option<SessionWaker>,
    /// Time limit of ssh for anything but a question.
    timeout: Duration,
    /// Start of that time.
    timeout_start: Instant,
    questions: Vec<PendingQuestion>,
    /// Number of questions so far.
    asked_count: usize,
    /// The texts of the answered questions.
    answered_texts: Vec<String>,
    /// Start of the attempt.
    started: Instant,
    /// Whether the last answer may have come too late.
    is_last_answer_late: bool,
    end_reason: Option<AttemptEndReason>,
    /// Whether ssh is connected to the host.
    is_connected: bool,
}

/// The reason to end an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptEndReason {
    /// The operator refuses to answer this.
    Refused(&'static str),
    /// No caller needs the host any more.
    Abandoned,
}

/// A question that waits for its answer.
struct PendingQuestion {
    id: u64,
    stream: UnixStream,
    asked_at: Instant,
    noun: &'static str,
    text: String,
}

impl BrokerState {
    fn attempt_mut(&mut self, id: u64) -> Option<&mut OpenAttempt> {
        self.attempts.iter_mut().find(|attempt| attempt.id == id)
    }
}

impl OpenAttempt {
    fn wake(&self) {
        self.waker.iter().for_each(SessionWaker::wake);
    }

    /// Removes a question that is answered or withdrawn.
    fn take_question(&mut self, question: u64) -> Option<PendingQuestion> {
        let place = self.questions.iter().position(|it| it.id == question)?;
        self.timeout_start = SystemClock.instant();
        Some(self.questions.remove(place))
    }

    /// Returns whether ssh has no more questions.
    fn has_finished_asking(&self) -> bool {
        self.is_connected && self.questions.is_empty()
    }

    fn request_end(&mut self, over: AttemptEndReason) {
        self.end_reason.get_or_insert(over);
        self.wake();
    }
}

impl PromptBroker {
    /// Creates a broker. `program` is the path of this program; the socket is created at the first
    /// attempt, in the first of `socket_roots` where that succeeds.
    pub fn new(
        program: PathBuf,
        socket_roots: Vec<TemporaryRoot>,
        events: Sender<PromptEvent>,
    ) -> PromptBroker {
        PromptBroker(Arc::new(BrokerShared {
            program,
            socket_roots,
            events,
            state: Mutex::default(),
            attempt_ended: Condvar::new(),
        }))
    }

    /// Answers a question, which may be withdrawn by now.
    pub fn answer(&self, question: u64, answer: &Secret) {
        let mut state = self.0.lock_state();
        let asked = state.attempts.iter_mut().find_map(|attempt| {
            let asked = attempt.take_question(question)?;
            attempt.answered_texts.push(asked.text.clone());
            attempt.is_last_answer_late =
                SystemClock.instant() >= attempt.started + LATE_ANSWER_AFTER;
            attempt.wake();
            Some(asked)
        });
        drop(state);
        if let Some(asked) = asked {
            helper::send_answer(&asked.stream, answer.expose());
        }
    }

    /// Refuses to answer a question. Ends ssh, which would otherwise try an empty password, and
    /// blocks the host.
    pub fn refuse(&self, question: u64) {
        let mut state = self.0.lock_state();
        for attempt in &mut state.attempts {
            let asked = attempt.questions.iter().find(|it| it.id == question);
            if let Some(over) = asked.map(|asked| AttemptEndReason::Refused(asked.noun)) {
                attempt.request_end(over);
            }
        }
    }

    /// Lets a host ask again.
    pub fn unblock(&self, host: &SshHost) {
        self.0.lock_state().blocked_hosts.remove(host);
    }

    /// Ends the attempts that may still ask, and waits a moment for them: ssh, left alone with a
    /// question, would go on without an answer.
    pub fn close(&self) {
        let mut state = self.0.lock_state();
        state.is_unavailable = true;
        for attempt in state
            .attempts
            .iter_mut()
            .filter(|attempt| !attempt.has_finished_asking())
        {
            attempt.request_end(AttemptEndReason::Abandoned);
        }
        let asks = |state: &mut BrokerState| {
            state
                .attempts
                .iter()
                .any(|attempt| attempt.end_reason.is_some())
        };
        drop(
            self.0
                .attempt_ended
                .wait_timeout_while(state, CLOSE_TIMEOUT, asks),
        );
        self.0.lock_state().prompt_socket = None;
    }

    /// Starts an attempt to connect to a host. `None` if there is no way to answer questions; then
    /// ssh must not ask.
    ///
    /// # Errors
    /// The reason why the host is blocked.
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
            Ok(attempt) => Ok(Some(attempt)),
            Err(error) => {
                state.is_unavailable = true;
                self.0.report(PromptEvent::Unavailable(error.to_string()));
                Ok(None)
            }
        }
    }

    /// Returns whether there is a way to answer questions, as far as is known.
    pub(super) fn can_prompt(&self) -> bool {
        !self.0.lock_state().is_unavailable
    }

    /// Returns whether a host is blocked until [`PromptBroker::unblock`].
    pub(super) fn is_blocked(&self, host: &SshHost) -> bool {
        self.0.lock_state().blocked_hosts.contains_key(host)
    }
}

impl BrokerShared {
    fn lock_state(&self) -> MutexGuard<'_, BrokerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event. Without an operator who listens, a question waits until its time limit.
    fn report(&self, event: PromptEvent) {
        let _ = self.events.send(event);
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
        state.last_id += 1;
        let id = state.last_id;
        let begun = SystemClock.instant();
        state.attempts.push(OpenAttempt {
            id,
            token: to_hex(&random),
            host: host.clone(),
            waker: None,
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
            was_asked: AtomicBool::new(false),
        })))
    }

    fn open_socket(self: &Arc<BrokerShared>) -> Result<PromptSocket> {
        let mut failures = Vec::new();
        for root in &self.socket_roots {
            match self.open_socket_in(root) {
                Ok(listening) => return Ok(listening),
                Err(error) => failures.push(error.to_line()),
            }
        }
        Err(Error::new(ErrorKind::Host, failures.join("; ")))
    }

    fn open_socket_in(self: &Arc<BrokerShared>, root: &TemporaryRoot) -> Result<PromptSocket> {
        let made = root.create_directory("memory-shepherd-")?;
        let socket = made.path().join("ask");
        let listener = UnixListener::bind(&socket).with_path("listen on", &socket)?;
        let copy = listener.try_clone().with_path("listen on", &socket)?;
        let shared = Arc::downgrade(self);
        let thread = thread::Builder::new().name("askpass".into());
        let thread = thread.spawn(move || HelperLoop::new(&listener, shared).run());
        thread.with_path("listen on", &socket)?;
        Ok(PromptSocket {
            path: socket,
            listener: copy.into(),
            _directory: made,
        })
    }

    /// Withdraws a question whose helper has disconnected.
    fn withdraw_question(&self, question: u64) {
        let mut state = self.lock_state();
        for attempt in &mut state.attempts {
            if attempt.take_question(question).is_some() {
                attempt.wake();
                self.report(PromptEvent::Withdrawn(question));
            }
        }
    }

    /// Records a question of an attempt that may ask; returns its number.
    fn accept_question(&self, stream: &UnixStream, sent: helper::HelperRequest) -> Option<u64> {
        let waiting = stream.try_clone().ok()?;
        let mut state = self.lock_state();
        let open: usize = state
            .attempts
            .iter()
            .map(|attempt| attempt.questions.len())
            .sum();
        state.last_id += 1;
        let id = state.last_id;
        let mut attempts = state.attempts.iter_mut();
        let attempt =
            attempts.find(|attempt| is_same_token(attempt.token.as_bytes(), &sent.token))?;
        if attempt.end_reason.is_some()
            || attempt.asked_count == MAX_QUESTIONS_PER_ATTEMPT
            || open >= MAX_OPEN_QUESTIONS
        {
            return None;
        }
        let question = Question {
            id,
            host: attempt.host.authority(),
            expected_answer: ExpectedAnswer::parse(&sent.text, sent.hint),
            is_repeated: attempt.answered_texts.contains(&sent.text),
            text: Untrusted::new(sent.text.as_str()),
        };
        if matches!(question.expected_answer, ExpectedAnswer::Secret(_)) {
            disable_core_dumps();
        }
        attempt.asked_count += 1;
        attempt.questions.push(PendingQuestion {
            id,
            stream: waiting,
            asked_at: SystemClock.instant(),
            noun: question.short_name(),
            text: sent.text,
        });
        attempt.wake();
        self.report(PromptEvent::Asked(question));
        Some(id)
    }
}

/// Compares tokens in a time that does not depend on their content.
fn is_same_token(token: &[u8], other: &[u8; helper::TOKEN_LENGTH]) -> bool {
    let differ = token.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    token.len() == other.len() && std::hint::black_box(differ) == 0
}

/// Keeps the memory of this process from being written to disk after a crash.
fn disable_core_dumps() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A process may always lower a limit.
    let _ = setrlimit(Resource::Core, none);
}

/// An attempt to connect to a host, whose questions go to the broker. Clones refer to the same
/// attempt.
#[derive(Clone)]
pub struct ConnectAttempt(Arc<AttemptHandle>);

struct AttemptHandle {
    shared: Arc<BrokerShared>,
    id: u64,
    started: Instant,
    /// Whether a question was asked; set with the result.
    was_asked: AtomicBool,
}

impl Drop for AttemptHandle {
    fn drop(&mut self) {
        end_attempt(&self.shared, self.id);
    }
}

/// Ends an attempt and withdraws its questions.
fn end_attempt(shared: &BrokerShared, id: u64) {
    let mut state = shared.lock_state();
    let Some(place) = state.attempts.iter().position(|attempt| attempt.id == id) else {
        return;
    };
    let attempt = state.attempts.swap_remove(place);
    for asked in &attempt.questions {
        // The helper takes the end of the stream as no answer.
        let _ = asked.stream.shutdown(Shutdown::Both);
        shared.report(PromptEvent::Withdrawn(asked.id));
    }
    shared.attempt_ended.notify_all();
}

impl ConnectAttempt {
    fn with_open_attempt<T>(&self, act: impl FnOnce(&mut OpenAttempt) -> T) -> Option<T> {
        let mut state = self.0.shared.lock_state();
        state.attempt_mut(self.0.id).map(act)
    }

    /// Makes an ssh command prompt through this broker.
    pub(super) fn configure_command(&self, command: &mut Command) {
        let state = self.0.shared.lock_state();
        let attempt = state.attempts.iter().find(|it| it.id == self.0.id);
        if let (Some(attempt), Some(listening)) = (attempt, &state.prompt_socket) {
            command.env("SSH_ASKPASS", &self.0.shared.program);
            command.env("SSH_ASKPASS_REQUIRE", "force");
            command.env(SOCKET_VARIABLE, &listening.path);
            command.env(helper::TOKEN_VARIABLE, &attempt.token);
        }
    }

    /// Returns the error for callers that would otherwise wait for the answer to a question.
    pub(super) fn pending_question_error(&self) -> Option<TransportError> {
        self.with_open_attempt(|attempt| {
            let noun = attempt.questions.first()?.noun;
            let message = format!(
                "{} wants {noun}: it waits for your answer",
                attempt.host.name
            );
            Some(unreachable_error(&message))
        })?
    }

    /// Returns the short name of the pending question.
    pub(super) fn pending_prompt(&self) -> Option<&'static str> {
        self.with_open_attempt(|attempt| Some(attempt.questions.first()?.noun))?
    }

    /// Returns whether ssh has no more questions. Until then it must not be left alone: it would go
    /// on without an answer.
    pub(super) fn has_finished_asking(&self) -> bool {
        self.with_open_attempt(|attempt| attempt.has_finished_asking())
            .unwrap_or(true)
    }

    /// Abandons the attempt: no caller needs the host any more.
    pub(super) fn abandon(&self) {
        self.with_open_attempt(|attempt| attempt.request_end(AttemptEndReason::Abandoned));
    }

    /// Ends the attempt after ssh has exited, and withdraws its questions.
    pub(super) fn end(&self) {
        end_attempt(&self.0.shared, self.0.id);
    }

    /// Returns the result of the attempt, with the unanswered question as its reason where there is
    /// one. A host that asked and failed is blocked.
    pub(super) fn explain_outcome<T>(
        &self,
        outcome: Result<T, TransportError>,
    ) -> Result<T, TransportError> {
        let mut state = self.0.shared.lock_state();
        let Some(attempt) = state.attempt_mut(self.0.id) else {
            return outcome;
        };
        attempt.is_connected = outcome.is_ok();
        let asked =
            attempt.asked_count > 0 && attempt.end_reason != Some(AttemptEndReason::Abandoned);
        self.0.was_asked.store(asked, Ordering::Relaxed);
        let why = match outcome {
            Err(why) if asked => why,
            came => return came,
        };
        let name = &attempt.host.name;
        let open = attempt.questions.first().map(|asked| asked.noun);
        let why = match (attempt.end_reason, open) {
            (Some(AttemptEndReason::Refused(noun)), _) | (_, Some(noun)) => {
                unreachable_error(&format!(
                    "{name} cannot be reached: it wants {noun}; the question was not answered"
                ))
                .with_hint("read the agent again to be asked again")
            }
            (None, None)
                if attempt.is_last_answer_late && why.cause == FailureCause::Unreachable =>
            {
                let too_late = PromptEvent::AnswerTooLate(attempt.host.authority());
                self.0.shared.report(too_late);
                return Err(why);
            }
            // Whatever the cause, another attempt would ask again.
            _ => why.with_hint("read the agent again to retry"),
        };
        let host = attempt.host.clone();
        state.blocked_hosts.insert(host, why.clone());
        Err(why)
    }

    /// Reports the result of an attempt that asked a question.
    pub(super) fn report_finished(&self, host: &SshHost) {
        if self.0.was_asked.load(Ordering::Relaxed) {
            let finished = PromptEvent::ConnectFinished(host.authority());
            self.0.shared.report(finished);
        }
    }
}

/// The deadline of the session start: a pending question has its own time limit, and after its
/// answer ssh has its full time again.
impl Deadline for ConnectAttempt {
    fn instant(&self) -> Instant {
        let at = self.with_open_attempt(|attempt| {
            let first = attempt.questions.iter().map(|asked| asked.asked_at).min();
            match (attempt.end_reason, first) {
                (Some(_), _) => self.0.started,
                (None, Some(since)) => since + ANSWER_TIMEOUT,
                (None, None) => attempt.timeout_start + attempt.timeout,
            }
        });
        at.unwrap_or(self.0.started)
    }

    fn set_waker(&mut self, waker: SessionWaker) {
        self.with_open_attempt(|attempt| attempt.waker = Some(waker));
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
