//! What ssh asks while it connects, in the console: passphrases, passwords, keys
//! of hosts that are not known.
//!
//! ssh asks by starting a program, which is this one again: the [`messenger`]. It
//! hands the question over a socket to the [`PromptBroker`] of the console, which passes
//! it on as an [`Event`] and takes the operator's answer. Only processes of the
//! same user get in, with the token of a connection that is being made, and the
//! socket is in a folder that nobody else may enter.
//!
//! A host that is not answered, or does not let us in with what it was given, is
//! barred: nobody connects to it any more until [`PromptBroker::let_ask`]. So a host that
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
use crate::clock::{Clock, System};
use crate::config::Host;
use crate::error::{Error, Kind, PathContext, Result};
use crate::secret::Secret;
use crate::transport::{Cause, TransportError};
use crate::untrusted::Untrusted;

pub use helper::{SOCKET, messenger};
pub use question::{HostKey, Question, Wants, Whose};

/// How long a question waits for its answer.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// An answer that comes so long after connecting began may be too late: hosts hang
/// up on whoever takes too long (sshd's `LoginGraceTime`), and ssh notices that only
/// when it goes on.
const LATE: Duration = Duration::from_secs(20);

/// How long a messenger may take to say what it wants.
const SAYING: Duration = Duration::from_secs(60);

/// How long [`PromptBroker::close`] waits for what was still asking.
const CLOSING: Duration = Duration::from_secs(10);

/// The most questions of one attempt to connect.
const MOST_QUESTIONS: usize = 16;

/// The most questions that are open at the same time, of all hosts.
const MOST_OPEN: usize = 256;

/// What happens at a desk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A question came.
    Asked(Question),
    /// A question went without an answer: ssh ended, or waited for too long.
    Withdrawn(u64),
    /// What came of connecting to a host that asked something is known now; its
    /// login.
    Settled(String),
    /// An answer came too late, the host had hung up; its login. It is connected to
    /// anew, and asks again.
    Late(String),
    /// No question can be asked, and why.
    Unavailable(String),
}

/// Where questions come to be answered.
#[derive(Clone)]
pub struct PromptBroker(Arc<Shared>);

struct Shared {
    program: PathBuf,
    folders: Vec<PathBuf>,
    events: Sender<Event>,
    state: Mutex<State>,
    /// A call has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    listening: Option<Listening>,
    /// It was tried, and told, that nobody can listen; or the desk is closed.
    deaf: bool,
    calls: Vec<Open>,
    barred: HashMap<Host, TransportError>,
    /// Numbers calls and questions.
    last: u64,
}

/// The socket, while somebody listens at it.
struct Listening {
    socket: PathBuf,
    listener: OwnedFd,
    _folder: TempDir,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Whoever waits for a messenger wakes and ends.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

/// A call that has not ended.
struct Open {
    id: u64,
    token: String,
    host: Host,
    wake: Arc<OwnedFd>,
    /// How long ssh may take for anything that is not a question.
    limit: Duration,
    /// Since when that counts.
    since: Instant,
    questions: Vec<Waiting>,
    /// How many there were.
    asked: usize,
    /// The texts of those that were answered.
    answered: Vec<String>,
    /// When ssh began to connect.
    begun: Instant,
    /// The last answer may have come too late.
    late: bool,
    over: Option<Over>,
    /// ssh has got through to the host.
    through: bool,
}

/// Why a call is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    /// The operator does not answer this.
    Refused(&'static str),
    /// Nobody wants the host any more.
    Abandoned,
}

/// A question without an answer.
struct Waiting {
    id: u64,
    stream: UnixStream,
    since: Instant,
    noun: &'static str,
    text: String,
}

impl Open {
    fn wake(&self) {
        // It fails only when it is awake already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes a question that is answered or gone.
    fn take(&mut self, question: u64) -> Option<Waiting> {
        let place = self.questions.iter().position(|it| it.id == question)?;
        self.since = System.instant();
        Some(self.questions.remove(place))
    }

    /// Whether ssh has nothing to ask any more.
    fn is_through(&self) -> bool {
        self.through && self.questions.is_empty()
    }

    fn end(&mut self, over: Over) {
        self.over.get_or_insert(over);
        self.wake();
    }
}

impl PromptBroker {
    /// A desk. `program` is this program, by its path; the socket is made in the
    /// first of `folders` where it can be, once a host is connected to.
    pub fn new(program: PathBuf, folders: Vec<PathBuf>, events: Sender<Event>) -> PromptBroker {
        PromptBroker(Arc::new(Shared {
            program,
            folders,
            events,
            state: Mutex::default(),
            ended: Condvar::new(),
        }))
    }

    /// Answers a question. It may be gone by now.
    pub fn answer(&self, question: u64, answer: &Secret) {
        let mut state = self.0.state();
        let asked = state.calls.iter_mut().find_map(|call| {
            let asked = call.take(question)?;
            call.answered.push(asked.text.clone());
            call.late = System.instant() >= call.begun + LATE;
            call.wake();
            Some(asked)
        });
        drop(state);
        if let Some(asked) = asked {
            helper::answer(&asked.stream, answer.expose());
        }
    }

    /// Gives no answer to a question: ssh is ended, because it would go on and try
    /// an empty password, and the host is barred.
    pub fn refuse(&self, question: u64) {
        let mut state = self.0.state();
        for call in &mut state.calls {
            let asked = call.questions.iter().find(|it| it.id == question);
            if let Some(over) = asked.map(|asked| Over::Refused(asked.noun)) {
                call.end(over);
            }
        }
    }

    /// Lets a host ask again.
    pub fn let_ask(&self, host: &Host) {
        self.0.state().barred.remove(host);
    }

    /// Ends what asks or may still ask, and waits a moment for it: ssh, left alone
    /// with a question, would go on without an answer.
    pub fn close(&self) {
        let mut state = self.0.state();
        state.deaf = true;
        for call in state.calls.iter_mut().filter(|call| !call.is_through()) {
            call.end(Over::Abandoned);
        }
        let asks = |state: &mut State| state.calls.iter().any(|call| call.over.is_some());
        drop(self.0.ended.wait_timeout_while(state, CLOSING, asks));
        self.0.state().listening = None;
    }

    /// Begins to connect to a host. None when nobody can listen; then ssh must not
    /// ask.
    ///
    /// # Errors
    /// Why it is barred.
    pub(super) fn call(&self, host: &Host) -> Result<Option<Call>, TransportError> {
        let mut state = self.0.state();
        if let Some(why) = state.barred.get(host) {
            return Err(why.clone());
        }
        if state.deaf {
            return Ok(None);
        }
        match self.0.open(&mut state, host) {
            Ok(call) => Ok(Some(call)),
            Err(error) => {
                state.deaf = true;
                let _ = self.0.events.send(Event::Unavailable(error.to_string()));
                Ok(None)
            }
        }
    }

    /// Whether a host waits for [`PromptBroker::let_ask`].
    pub(super) fn bars(&self, host: &Host) -> bool {
        self.0.state().barred.contains_key(host)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(self: &Arc<Shared>, state: &mut State, host: &Host) -> Result<Call> {
        if state.listening.is_none() {
            state.listening = Some(self.listen()?);
        }
        let kernel = Path::new("the kernel");
        let mut random = [0; helper::TOKEN_LENGTH / 2];
        getrandom(&mut random, GetRandomFlags::empty()).path("read random bytes from", kernel)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.path("take an eventfd from", kernel)?);
        state.last += 1;
        let id = state.last;
        let begun = System.instant();
        state.calls.push(Open {
            id,
            token: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            host: host.clone(),
            wake: Arc::clone(&wake),
            limit: Duration::from_secs(host.timeout.max(1).into()),
            since: begun,
            questions: Vec::new(),
            asked: 0,
            answered: Vec::new(),
            begun,
            late: false,
            over: None,
            through: false,
        });
        Ok(Call(Arc::new(Held {
            shared: Arc::clone(self),
            id,
            begun,
            wake,
            asked: AtomicBool::new(false),
        })))
    }

    fn listen(self: &Arc<Shared>) -> Result<Listening> {
        let mut failure = Error::new(Kind::Host, "there is no directory for a socket");
        for folder in &self.folders {
            match self.listen_in(folder) {
                Ok(listening) => return Ok(listening),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn listen_in(self: &Arc<Shared>, folder: &Path) -> Result<Listening> {
        let private = Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        builder.prefix("memory-shepherd-").permissions(private);
        let made = builder.tempdir_in(folder);
        let made = made.path("make a private directory in", folder)?;
        let socket = made.path().join("ask");
        let listener = UnixListener::bind(&socket).path("listen at", &socket)?;
        let copy = listener.try_clone().path("listen at", &socket)?;
        let shared = Arc::downgrade(self);
        let thread = thread::Builder::new().name("askpass".into());
        let thread = thread.spawn(move || attend(&listener, &shared));
        thread.path("listen at", &socket)?;
        Ok(Listening {
            socket,
            listener: copy.into(),
            _folder: made,
        })
    }

    /// Hears a messenger out, and stays until it has gone.
    fn attend_to(&self, mut stream: UnixStream) {
        let same = socket_peercred(&stream).is_ok_and(|peer| peer.uid == geteuid());
        if !same || stream.set_read_timeout(Some(SAYING)).is_err() {
            return;
        }
        let Some(sent) = helper::read(&mut stream) else {
            return;
        };
        let Some(question) = self.take_in(&stream, sent) else {
            return;
        };
        // It says nothing more, so this waits until it is gone.
        let _ = stream.set_read_timeout(None);
        while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
        let mut state = self.state();
        for call in &mut state.calls {
            if call.take(question).is_some() {
                call.wake();
                let _ = self.events.send(Event::Withdrawn(question));
            }
        }
    }

    /// Takes a question in, if it comes from a call that may ask; its number.
    fn take_in(&self, stream: &UnixStream, sent: helper::Sent) -> Option<u64> {
        let waiting = stream.try_clone().ok()?;
        let mut state = self.state();
        let open: usize = state.calls.iter().map(|call| call.questions.len()).sum();
        state.last += 1;
        let id = state.last;
        let mut calls = state.calls.iter_mut();
        let call = calls.find(|call| is_same(call.token.as_bytes(), &sent.token))?;
        if call.over.is_some() || call.asked == MOST_QUESTIONS || open >= MOST_OPEN {
            return None;
        }
        let question = Question {
            id,
            host: call.host.login(),
            wants: Wants::of(&sent.text, sent.hint),
            again: call.answered.contains(&sent.text),
            text: Untrusted::new(sent.text.as_str()),
        };
        if matches!(question.wants, Wants::Secret(_)) {
            leave_no_core();
        }
        call.asked += 1;
        call.questions.push(Waiting {
            id,
            stream: waiting,
            since: System.instant(),
            noun: question.noun(),
            text: sent.text,
        });
        call.wake();
        // Nobody may be there to answer; then it waits until its time is over.
        let _ = self.events.send(Event::Asked(question));
        Some(id)
    }
}

/// Whether a token is this one, in a time that does not tell how much of it is.
fn is_same(token: &[u8], other: &[u8; helper::TOKEN_LENGTH]) -> bool {
    let differ = token.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    token.len() == other.len() && std::hint::black_box(differ) == 0
}

/// Keeps the memory of this process from being written to a disk if it crashes.
fn leave_no_core() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A limit can always be lowered.
    let _ = setrlimit(Resource::Core, none);
}

/// Waits for messengers, each in a thread of its own, until the desk has gone.
fn attend(listener: &UnixListener, desk: &Weak<Shared>) {
    for stream in listener.incoming() {
        let (Ok(stream), Some(desk)) = (stream, desk.upgrade()) else {
            return;
        };
        let thread = thread::Builder::new().name("askpass".into());
        // Without a thread it is let go, which is no answer.
        let _ = thread.spawn(move || desk.attend_to(stream));
    }
}

/// An attempt to connect to a host: what ssh asks meanwhile comes to the desk.
/// Clones are the same one.
#[derive(Clone)]
pub struct Call(Arc<Held>);

struct Held {
    shared: Arc<Shared>,
    id: u64,
    begun: Instant,
    wake: Arc<OwnedFd>,
    /// Whether anything was asked, once that has been judged.
    asked: AtomicBool,
}

impl Drop for Held {
    fn drop(&mut self) {
        end(&self.shared, self.id);
    }
}

/// Ends a call: its questions go.
fn end(shared: &Shared, id: u64) {
    let mut state = shared.state();
    let Some(place) = state.calls.iter().position(|call| call.id == id) else {
        return;
    };
    let call = state.calls.swap_remove(place);
    for asked in &call.questions {
        // To the messenger that is no answer.
        let _ = asked.stream.shutdown(Shutdown::Both);
        let _ = shared.events.send(Event::Withdrawn(asked.id));
    }
    shared.ended.notify_all();
}

impl Call {
    fn with<T>(&self, act: impl FnOnce(&mut Open) -> T) -> Option<T> {
        let mut state = self.0.shared.state();
        let call = state.calls.iter_mut().find(|call| call.id == self.0.id)?;
        Some(act(call))
    }

    /// Makes an ssh ask here.
    pub(super) fn prepare(&self, command: &mut Command) {
        let state = self.0.shared.state();
        let call = state.calls.iter().find(|call| call.id == self.0.id);
        if let (Some(call), Some(listening)) = (call, &state.listening) {
            command.env("SSH_ASKPASS", &self.0.shared.program);
            command.env("SSH_ASKPASS_REQUIRE", "force");
            command.env(SOCKET, &listening.socket);
            command.env(helper::TOKEN, &call.token);
        }
    }

    /// Why whoever wants the host need not wait: it has a question.
    pub(super) fn waits(&self) -> Option<TransportError> {
        self.with(|call| {
            let noun = call.questions.first()?.noun;
            let message = format!("{} wants {noun}: it waits for your answer", call.host.name);
            Some(unreachable(&message))
        })?
    }

    /// What the host wants from the operator right now.
    pub(super) fn asks(&self) -> Option<&'static str> {
        self.with(|call| Some(call.questions.first()?.noun))?
    }

    /// Whether ssh has nothing to ask any more. Until then it must not be left
    /// alone: it would go on without an answer.
    pub(super) fn is_through(&self) -> bool {
        self.with(|call| call.is_through()).unwrap_or(true)
    }

    /// Gives the call up: nobody wants the host any more.
    pub(super) fn abandon(&self) {
        self.with(|call| call.end(Over::Abandoned));
    }

    /// Ends the call, once ssh has ended: its questions go.
    pub(super) fn end(&self) {
        end(&self.0.shared, self.0.id);
    }

    /// What came of connecting, in view of what was asked. Where that was in vain,
    /// the host is barred.
    pub(super) fn judge<T>(&self, came: Result<T, TransportError>) -> Result<T, TransportError> {
        let mut state = self.0.shared.state();
        let Some(call) = state.calls.iter_mut().find(|call| call.id == self.0.id) else {
            return came;
        };
        call.through = came.is_ok();
        let asked = call.asked > 0 && call.over != Some(Over::Abandoned);
        self.0.asked.store(asked, Ordering::Relaxed);
        let why = match came {
            Err(why) if asked => why,
            came => return came,
        };
        let name = &call.host.name;
        let open = call.questions.first().map(|asked| asked.noun);
        let why = match (call.over, open) {
            (Some(Over::Refused(noun)), _) | (_, Some(noun)) => unreachable(&format!(
                "{name} cannot be reached: it wants {noun} and got no answer"
            ))
            .hint("read it again to be asked again"),
            (None, None) if call.late && why.cause == Cause::Unreachable => {
                let _ = self.0.shared.events.send(Event::Late(call.host.login()));
                return Err(why);
            }
            // Whatever was wrong, to try again would be to ask again.
            _ => why.hint("read it again to try again"),
        };
        let host = call.host.clone();
        state.barred.insert(host, why.clone());
        Err(why)
    }

    /// Tells the desk that what came of it can be seen.
    pub(super) fn tell(&self, host: &Host) {
        if self.0.asked.load(Ordering::Relaxed) {
            let _ = self.0.shared.events.send(Event::Settled(host.login()));
        }
    }
}

/// For waiting: while a question is open, that takes its own time, and after it
/// ssh has all of its own again.
impl Deadline for Call {
    fn at(&self) -> Instant {
        let at = self.with(|call| {
            let first = call.questions.iter().map(|asked| asked.since).min();
            match (call.over, first) {
                (Some(_), _) => self.0.begun,
                (None, Some(since)) => since + PATIENCE,
                (None, None) => call.since + call.limit,
            }
        });
        at.unwrap_or(self.0.begun)
    }

    fn changed(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.wake.as_fd())
    }
}

fn unreachable(message: &str) -> TransportError {
    TransportError::new(Cause::Unreachable, Error::new(Kind::Host, message))
}

#[cfg(test)]
mod tests;
