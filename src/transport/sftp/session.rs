//! One SFTP session with a host, shared by everybody who asks that host for
//! something.
//!
//! A thread owns the pipes. Callers hand it batches of requests and wait for the
//! replies. It writes whatever is queued in one write, so that looking at a
//! hundred memories costs one round trip, and always reads while it writes: a
//! server that cannot get rid of its replies takes no more requests.
//!
//! All bounds are on this side, whatever the other one does:
//!
//! | what | bound |
//! |---|---|
//! | requests that wait to be written | 1 MiB; then [`Session::ask`] blocks |
//! | requests without a reply | 1,024 |
//! | bytes that these carry or ask for | 2 MiB |
//! | a reply | 257 KiB, see [`LONGEST_FRAME`](super::wire::MAX_FRAME_BYTES) |
//! | what is kept of the error output | 8 KiB before VERSION, 8 KiB after it |
//! | time from one reply to the next | `remote_timeout`; 15 s, see [`REPLY_TIMEOUT`] |
//! | time from a request to its reply | four times that, and what is under way at 4 KiB/s |
//!
//! Servers do one thing after the other. So one that owes a reply for too long
//! owes all the others as well, and the session is over, as it is when bytes come
//! that are no reply to anything: everybody who waits gets the same [`SessionError`].
//!
//! Time is the machine's here: it ends a wait in poll(2), which knows no other.

mod heard;
mod owner;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use self::owner::PipeOwner;
use super::wire::{Extensions, Limits, Malformed, Reply, Request, Wants};
use crate::clock::{Clock, System};

/// How long a host may take for a reply.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes that may wait to be written.
const MAX_QUEUED_BYTES: usize = 1024 * 1024;

/// Bytes that requests without a reply may carry or ask for.
const MAX_EXPECTED_BYTES: usize = 2 * 1024 * 1024;

/// Requests that may be without a reply.
const MAX_REQUESTS_IN_FLIGHT: usize = 1024;

/// ssh and OpenSSH's server read so much at once: what is not longer, and has
/// nothing before it, they read in one piece.
const WRITE_BURST_BYTES: usize = 16 * 1024;

/// What one reply to a READDIR is taken to be.
const READDIR_REPLY_BYTES: usize = 256 * 1024;

/// The ways to the other side: the pipes of a child, or both ends of a socket.
/// They are made non-blocking, which others who share them would notice.
#[derive(Debug)]
pub struct Link {
    /// What we write to.
    pub input: OwnedFd,
    /// What we read from.
    pub output: OwnedFd,
    /// What it says besides.
    pub errors: Option<OwnedFd>,
}

/// Until when VERSION must have come.
pub trait Deadline: Send {
    /// The moment, as it stands now; it may move.
    fn at(&self) -> Instant;

    /// What becomes readable when it has moved nearer.
    fn changed(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Deadline for Instant {
    fn at(&self) -> Instant {
        *self
    }
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The other side closed it.
    EndOfFile,
    /// Bytes came that are not SFTP, or not from a server that is in its senses;
    /// what was wrong with them, in our words.
    Garbage(String),
    /// A reply did not come for so long.
    NoAnswer(Duration),
    /// Reading or writing failed; the cause.
    Io(String),
    /// By [`Session::close`], or because nobody has the session any more.
    Closed,
}

/// A session that ended: what everybody who waits for a reply gets. Which of the
/// requests without a reply were carried out is not known.
#[derive(Clone, Debug)]
pub struct SessionError {
    /// Why it ended.
    pub why: CloseReason,
    /// Whether the server had said VERSION. Before that ssh was still connecting,
    /// or failed to.
    pub greeted: bool,
    /// What came on [`Link::errors`].
    pub heard: Arc<StderrTail>,
}

/// Foreign text from the error output: ssh's own words, and later also what the
/// host says. Of each half the first and the last 4 KiB are kept; where something
/// was left out, both have whole lines only, and a line between them says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StderrTail {
    /// Before VERSION. A host that has not authenticated itself yet has no part in
    /// it unless ssh passes its words on.
    pub before: Vec<u8>,
    /// With VERSION and after it.
    pub after: Vec<u8>,
}

/// What was wrong; none of the words are foreign.
impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.why, self.greeted) {
            (CloseReason::EndOfFile, true) => f.write_str("the connection was lost"),
            (CloseReason::EndOfFile, false) => {
                f.write_str("the connection ended before SFTP began")
            }
            (CloseReason::Garbage(what), true) => {
                write!(f, "the host does not keep to SFTP: {what}")
            }
            // The text of a login shell is the usual cause.
            (CloseReason::Garbage(what), false) => write!(
                f,
                "what the host says first is not SFTP ({what}); \
                 perhaps its login shell prints something"
            ),
            (CloseReason::NoAnswer(time), _) => {
                let seconds = (time.as_secs_f64() * 10.0).round() / 10.0;
                write!(f, "no answer for {seconds} s")
            }
            (CloseReason::Io(cause), _) => f.write_str(cause),
            (CloseReason::Closed, _) => f.write_str("the session was closed"),
        }
    }
}

impl std::error::Error for SessionError {}

/// Why a request has no reply.
#[derive(Clone, Debug)]
pub enum RequestError {
    /// The session ended. It is not known whether the request was carried out.
    Broken(SessionError),
    /// This reply alone cannot be understood; in our words.
    Malformed(String),
    /// A request of the batch cannot be sent, and none of it was; in our words.
    Unsent(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Broken(broken) => fmt::Display::fmt(broken, f),
            RequestError::Malformed(what) => f.write_str(what),
            RequestError::Unsent(why) => write!(f, "this cannot be asked: {why}"),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<Malformed> for RequestError {
    fn from(malformed: Malformed) -> RequestError {
        RequestError::Malformed(malformed.to_string())
    }
}

/// A session. Clones are the same one; it is closed when the last one goes.
#[derive(Clone)]
pub struct Session(Arc<SessionHandle>);

/// What all clones of a session hold.
struct SessionHandle {
    shared: Arc<SessionShared>,
    thread: Option<JoinHandle<()>>,
    extensions: Extensions,
    /// The request as long as nobody wanted its answer, and the answer.
    limits: Mutex<(Option<PendingReplies>, Option<Limits>)>,
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // It never waits for anything but what `close` ends. If it panicked,
            // everybody was told that the session is over.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Begins a session: says INIT and returns with VERSION.
    ///
    /// # Errors
    /// Why there is none, by `deadline` at the latest.
    pub fn start(link: Link, deadline: impl Deadline + 'static) -> Result<Session, SessionError> {
        Session::start_with(link, deadline, REPLY_TIMEOUT)
    }

    /// The same, with another time that a reply may take.
    ///
    /// # Errors
    /// Likewise.
    pub fn start_with(
        link: Link,
        deadline: impl Deadline + 'static,
        patience: Duration,
    ) -> Result<Session, SessionError> {
        let failed = |cause: std::io::Error| SessionError {
            why: CloseReason::Io(crate::error::cause(&cause)),
            greeted: false,
            heard: Arc::default(),
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(SessionShared {
            state: Mutex::default(),
            changed: Condvar::new(),
            wake: wake.map_err(|errno| failed(errno.into()))?,
            patience,
        });
        let owner = PipeOwner::new(link, Arc::clone(&shared), Box::new(deadline))
            .map_err(|errno| failed(errno.into()))?;
        let builder = thread::Builder::new().name("sftp".into());
        let thread = builder.spawn(move || owner.run()).map_err(failed)?;
        let mut held = SessionHandle {
            shared,
            thread: Some(thread),
            extensions: Extensions::default(),
            limits: Mutex::default(),
        };
        held.extensions = held.shared.greeting()?;
        let session = Session(Arc::new(held));
        if session.extensions().limits {
            let asked = session.ask(vec![Request::Limits]);
            lock(&session.0.limits).0 = Some(asked);
        }
        Ok(session)
    }

    /// What the server announced.
    pub fn extensions(&self) -> Extensions {
        self.0.extensions
    }

    /// What the server takes, if it says that. They were asked for at the start;
    /// who comes before the answer waits for it.
    pub fn limits(&self) -> Option<Limits> {
        let mut limits = lock(&self.0.limits);
        if let Some(asked) = limits.0.take() {
            limits.1 = match asked.wait().pop() {
                Some(Ok(Reply::Extended(body))) => Limits::decode(&body).ok(),
                _ => None,
            };
        }
        limits.1
    }

    /// Asks for all of these, in this order. They leave in one write, together
    /// with whatever else is queued then, unless there are more of them than may
    /// be without a reply; the rest then follows as replies come.
    ///
    /// Blocks as long as too much is queued. A request that is refused by
    /// [`Request::check`] keeps the whole batch from being sent.
    pub fn ask(&self, batch: Vec<Request>) -> PendingReplies {
        self.0.shared.ask(&batch, None)
    }

    /// Asks for the first ones in a write that has nothing before them but other
    /// such batches, and when nothing is under way, so that a server of OpenSSH
    /// reads them in one piece and has room for its replies: nothing but its own
    /// work comes between two of them. For the two requests of which the first
    /// takes a memory away and the second puts another in its place. What is to be
    /// known right afterwards is asked behind all of them, without waiting.
    ///
    /// Up to 16 KiB of batches that wait at the same time share a write, and each
    /// write waits for all replies to the one before. What was asked for earlier
    /// goes first, what is asked for later does not get ahead. A batch that is
    /// longer than that goes alone, in one write.
    pub fn ask_apart(&self, mut first: Vec<Request>, behind: Vec<Request>) -> PendingReplies {
        let together = first.len();
        first.extend(behind);
        self.0.shared.ask(&first, Some(together))
    }

    /// How long the last reply took.
    pub fn latency(&self) -> Option<Duration> {
        lock(&self.0.shared.state).latency
    }

    /// Why the session is over, if it is.
    pub fn ended(&self) -> Option<SessionError> {
        lock(&self.0.shared.state).ended.clone()
    }

    /// Ends the session for everybody. The other side sees the end of its input
    /// first. What is still queued is not sent.
    pub fn close(&self) {
        self.0.shared.close();
    }
}

/// Replies to come. To drop it is to abandon them: what was asked is done all the
/// same, and handles that come are given back.
#[must_use = "to drop it is to abandon the replies"]
pub struct PendingReplies {
    ticket: Arc<Ticket>,
    shared: Arc<SessionShared>,
}

impl fmt::Debug for PendingReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl PendingReplies {
    /// Waits for the replies, one for each request and in their order. That takes
    /// bounded time: the session ends when a reply is owed for too long.
    pub fn wait(self) -> Vec<Result<Reply, RequestError>> {
        let mut answers = lock(&self.ticket.answers);
        while answers.missing > 0 {
            answers = self
                .ticket
                .ready
                .wait(answers)
                .unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut answers.list)
    }
}

impl Drop for PendingReplies {
    fn drop(&mut self) {
        let mut answers = lock(&self.ticket.answers);
        answers.abandoned = true;
        let unseen = std::mem::take(&mut answers.list);
        drop(answers);
        for answer in unseen {
            if let Ok(Reply::Handle(handle)) = answer {
                self.shared.give_back(handle);
            }
        }
    }
}

/// Where the replies to one batch gather.
struct Ticket {
    answers: Mutex<Answers>,
    ready: Condvar,
}

struct Answers {
    missing: usize,
    abandoned: bool,
    list: Vec<Result<Reply, RequestError>>,
}

impl Ticket {
    fn new(count: usize, abandoned: bool) -> Arc<Ticket> {
        let none = || Err(RequestError::Malformed("no reply yet".into()));
        let answers = Answers {
            missing: count,
            abandoned,
            list: std::iter::repeat_with(none).take(count).collect(),
        };
        Arc::new(Ticket {
            answers: Mutex::new(answers),
            ready: Condvar::new(),
        })
    }

    /// Takes a reply. The answer is a handle that nobody is there for.
    fn answer(&self, number: usize, answer: Result<Reply, RequestError>) -> Option<Vec<u8>> {
        let mut answers = lock(&self.answers);
        answers.missing = answers.missing.saturating_sub(1);
        if answers.abandoned {
            return match answer {
                Ok(Reply::Handle(handle)) => Some(handle),
                _ => None,
            };
        }
        if let Some(place) = answers.list.get_mut(number) {
            *place = answer;
        }
        if answers.missing == 0 {
            self.ready.notify_one();
        }
        None
    }
}

/// What callers and the owner of the pipes share.
struct SessionShared {
    state: Mutex<SessionState>,
    /// The server spoke, there is more room, or it is over.
    changed: Condvar,
    /// Ends the owner's wait.
    wake: OwnedFd,
    patience: Duration,
}

#[derive(Default)]
struct SessionState {
    /// Batches in the order of their turns.
    queue: VecDeque<Batch>,
    /// Those that are to leave by themselves, likewise.
    apart: VecDeque<Batch>,
    /// Bytes that were not written yet.
    queued: usize,
    /// Who waits for room, in order.
    waiting: VecDeque<u64>,
    /// A turn, or a place among those who wait.
    next: u64,
    /// What has no reply yet, whether it was written or not.
    slots: HashMap<u32, RequestSlot>,
    id: u32,
    extensions: Option<Extensions>,
    latency: Option<Duration>,
    closing: bool,
    /// Somebody waited too long for room.
    stuck: bool,
    ended: Option<SessionError>,
}

/// Requests that were asked for together, or what is left of them.
struct Batch {
    turn: u64,
    /// How many of them nothing may come between.
    together: usize,
    bytes: Vec<u8>,
    parts: VecDeque<BatchRequest>,
}

/// One request of a batch.
struct BatchRequest {
    id: u32,
    /// Where its bytes begin and end.
    bytes: (usize, usize),
    weight: usize,
    wants: Wants,
    /// Its number in the batch as it was asked.
    number: usize,
}

/// A request without a reply.
struct RequestSlot {
    ticket: Arc<Ticket>,
    number: usize,
    wants: Wants,
    weight: usize,
    /// When the last of its bytes was; there can be no reply before.
    written: Option<Instant>,
}

/// The bytes that a request carries or asks for.
fn weight(request: &Request) -> usize {
    match request {
        Request::Read { length, .. } => *length as usize,
        Request::Write { bytes, .. } => bytes.len(),
        Request::ReadDir { .. } => READDIR_REPLY_BYTES,
        _ => 0,
    }
}

impl SessionState {
    /// An id that nothing without a reply has.
    fn free_id(&mut self) -> u32 {
        loop {
            self.id = self.id.wrapping_add(1);
            if !self.slots.contains_key(&self.id) {
                return self.id;
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Queues a batch, whose ids are given now.
    fn put(&mut self, mut batch: Batch, ticket: &Arc<Ticket>, apart: bool) {
        for part in &mut batch.parts {
            part.id = self.free_id();
            // Behind the length and the type.
            let at = part.bytes.0 + 5;
            batch.bytes[at..at + 4].copy_from_slice(&part.id.to_be_bytes());
            let slot = RequestSlot {
                ticket: Arc::clone(ticket),
                number: part.number,
                wants: part.wants,
                weight: part.weight,
                written: None,
            };
            self.slots.insert(part.id, slot);
        }
        batch.turn = self.number();
        self.queued += batch.bytes.len();
        match apart {
            true => self.apart.push_back(batch),
            false => self.queue.push_back(batch),
        }
    }

    /// Whether the next that is to leave is one that leaves by itself.
    fn apart_is_next(&self) -> bool {
        match (self.queue.front(), self.apart.front()) {
            (Some(batch), Some(apart)) => apart.turn < batch.turn,
            (_, apart) => apart.is_some(),
        }
    }
}

impl Batch {
    /// Takes requests from the front, up to `most` bytes but at least one.
    fn cut(requests: &mut &[Request], first: usize, most: usize) -> Batch {
        let mut batch = Batch {
            turn: 0,
            together: 0,
            bytes: Vec::new(),
            parts: VecDeque::new(),
        };
        while let Some((request, rest)) = requests.split_first() {
            let start = batch.bytes.len();
            request.encode(0, &mut batch.bytes);
            if start > 0 && batch.bytes.len() > most {
                batch.bytes.truncate(start);
                break;
            }
            batch.parts.push_back(BatchRequest {
                id: 0,
                bytes: (start, batch.bytes.len()),
                weight: weight(request),
                wants: request.wants(),
                number: first + batch.parts.len(),
            });
            *requests = rest;
        }
        batch
    }
}

impl SessionShared {
    /// Waits for VERSION.
    fn greeting(&self) -> Result<Extensions, SessionError> {
        let mut state = lock(&self.state);
        loop {
            match (&state.ended, state.extensions) {
                (_, Some(extensions)) => return Ok(extensions),
                (Some(broken), None) => return Err(broken.clone()),
                (None, None) => {}
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn ask(
        self: &Arc<SessionShared>,
        requests: &[Request],
        together: Option<usize>,
    ) -> PendingReplies {
        let apart = together.is_some();
        let pending = PendingReplies {
            ticket: Ticket::new(requests.len(), false),
            shared: Arc::clone(self),
        };
        let refused = match apart && requests.len() > MAX_REQUESTS_IN_FLIGHT {
            true => Some(Malformed::new("too many requests for one write")),
            false => requests.iter().find_map(|it| it.check().err()),
        };
        if let Some(why) = refused {
            let failure = RequestError::Unsent(why.to_string());
            for number in 0..requests.len() {
                pending.ticket.answer(number, Err(failure.clone()));
            }
            return pending;
        }
        let mut rest = requests;
        while !rest.is_empty() {
            let first = requests.len() - rest.len();
            let most = if apart { usize::MAX } else { MAX_QUEUED_BYTES };
            let mut batch = Batch::cut(&mut rest, first, most);
            batch.together = together.unwrap_or_default();
            if let Err(broken) = self.put(batch, &pending.ticket, apart) {
                for number in first..requests.len() {
                    let failure = RequestError::Broken(broken.clone());
                    pending.ticket.answer(number, Err(failure));
                }
                break;
            }
        }
        pending
    }

    /// Queues a batch as soon as there is room, after those who came before.
    fn put(&self, batch: Batch, ticket: &Arc<Ticket>, apart: bool) -> Result<(), SessionError> {
        let mut state = lock(&self.state);
        let place = state.number();
        state.waiting.push_back(place);
        let deadline = System.instant() + self.patience;
        loop {
            if let Some(broken) = &state.ended {
                return Err(broken.clone());
            }
            let fits = state.queued == 0 || state.queued + batch.bytes.len() <= MAX_QUEUED_BYTES;
            if fits && state.waiting.front() == Some(&place) {
                break;
            }
            let left = deadline.saturating_duration_since(System.instant());
            if left.is_zero() && !state.stuck {
                state.stuck = true;
                self.wake();
            }
            // Once stuck, the owner ends it.
            let left = if left.is_zero() { self.patience } else { left };
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting.pop_front();
        state.put(batch, ticket, apart);
        let others = !state.waiting.is_empty();
        drop(state);
        self.wake();
        if others {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Gives back a handle that nobody waits for. It is small, and there is one
    /// at most for each request that was let in, so it needs no room.
    fn give_back(&self, handle: Vec<u8>) {
        let close = [Request::Close { handle }];
        let batch = Batch::cut(&mut &close[..], 0, MAX_QUEUED_BYTES);
        let mut state = lock(&self.state);
        if state.ended.is_none() {
            state.put(batch, &Ticket::new(1, true), false);
            drop(state);
            self.wake();
        }
    }

    fn close(&self) {
        lock(&self.state).closing = true;
        self.wake();
    }

    fn wake(&self) {
        // It fails only when it is awake already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
