//! One SFTP session with a host, shared by all callers of that host.
//!
//! One thread serves the pipes of all sessions. Callers queue batches of requests and wait for the
//! replies, or say what is done with them. The thread writes everything that is queued in one write,
//! so that a stat of a hundred memories costs one round trip, and always reads while it writes: a
//! server that cannot send its replies accepts no further requests.
//!
//! All bounds are enforced on this side, whatever the other side does:
//!
//! | what | bound |
//! |---|---|
//! | requests that wait to be written | 1 MiB; then [`Session::send_batch`] blocks |
//! | requests without a reply | 1,024 |
//! | bytes that these carry or ask for | 2 MiB |
//! | a reply | 257 KiB, see [`MAX_FRAME_BYTES`](super::wire::MAX_FRAME_BYTES) |
//! | error output that is kept | 8 KiB before VERSION, 8 KiB after it |
//! | time from one reply to the next | `remote_timeout`; 15 s, see [`REPLY_TIMEOUT`] |
//! | time from a request to its reply | four times that, plus the requests in flight at 4 KiB/s |
//!
//! Servers execute one request after the other. So when one reply is overdue, all others are, too,
//! and the session ends, as it does after bytes that are not a reply to any request: every caller
//! that waits gets the same [`SessionError`].
//!
//! Time is the system's here: it ends a wait in epoll_wait(2), which supports no other clock.

mod pipe_owner;
mod session_loop;
mod stderr_excerpt;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::pipe_owner::PipeOwner;
use self::session_loop::SessionLoop;
pub use self::session_loop::SessionWaker;
use super::wire::{ExpectedReply, MalformedPacket, Reply, Request, ServerExtensions, ServerLimits};
use crate::base::clock::{Clock, SystemClock};

/// Default time limit of a reply.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(15);

/// Limit of the bytes that wait to be written.
const MAX_QUEUED_BYTES: usize = 1024 * 1024;

/// Limit of the bytes that requests without a reply carry or ask for.
const MAX_EXPECTED_BYTES: usize = 2 * 1024 * 1024;

/// Limit of the requests without a reply.
const MAX_REQUESTS_IN_FLIGHT: usize = 1024;

/// Read size of ssh and OpenSSH's server: they read a burst of at most this size in one piece, if
/// no bytes precede it.
const WRITE_BURST_BYTES: usize = 16 * 1024;

/// Assumed size of a reply to a READDIR.
const READDIR_REPLY_BYTES: usize = 256 * 1024;

/// The file descriptors to the other side: the pipes of a child, or both ends of a socket. The
/// session makes them non-blocking, also for other processes that share them.
#[derive(Debug)]
pub struct SessionPipes {
    /// Written by the session.
    pub input: OwnedFd,
    /// Read by the session.
    pub output: OwnedFd,
    /// Error output.
    pub stderr: Option<OwnedFd>,
}

/// The deadline for VERSION.
pub trait Deadline: Send {
    /// Returns the current deadline; it may move.
    fn instant(&self) -> Instant;

    /// Takes the waker to use whenever the deadline has moved closer.
    fn set_waker(&mut self, _: SessionWaker) {}

    /// Called in each turn of the session before VERSION.
    fn on_turn(&self) {}
}

impl Deadline for Instant {
    fn instant(&self) -> Instant {
        *self
    }
}

/// The reason why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The other side closed it.
    EndOfFile,
    /// The bytes received are not SFTP, or violate it; described in our words.
    ProtocolViolation(String),
    /// No reply for this time.
    ReplyTimeout(Duration),
    /// Reading or writing failed; the cause.
    Io(String),
    /// Closed by [`Session::close`], or because the last clone was dropped.
    Closed,
}

/// The error that every caller of an ended session gets. Which of the requests without a reply were
/// executed is unknown.
#[derive(Clone, Debug)]
pub struct SessionError {
    /// The reason.
    pub reason: CloseReason,
    /// Whether the server had sent VERSION. Before that, ssh was still connecting, or failed to.
    pub has_greeted: bool,
    /// Foreign text received on [`SessionPipes::stderr`] before VERSION: ssh's own messages. A host
    /// that has not authenticated itself yet contributes only what ssh passes on. The first and the
    /// last 4 KiB are kept; where text was left out, both have whole lines only, and a line between
    /// them says so.
    pub stderr_before_version: Arc<[u8]>,
}

/// Describes the error without foreign text.
impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.has_greeted) {
            (CloseReason::EndOfFile, true) => f.write_str("the connection was lost"),
            (CloseReason::EndOfFile, false) => {
                f.write_str("the connection ended before SFTP began")
            }
            (CloseReason::ProtocolViolation(what), true) => {
                write!(f, "the host violates the SFTP protocol: {what}")
            }
            // The output of a login shell is the usual cause.
            (CloseReason::ProtocolViolation(what), false) => write!(
                f,
                "the first output of the host is not SFTP ({what}); \
                 its login shell may print something"
            ),
            (CloseReason::ReplyTimeout(time), _) => {
                let seconds = (time.as_secs_f64() * 10.0).round() / 10.0;
                write!(f, "no reply for {seconds} s")
            }
            (CloseReason::Io(cause), _) => f.write_str(cause),
            (CloseReason::Closed, _) => f.write_str("the session was closed"),
        }
    }
}

impl std::error::Error for SessionError {}

/// The reason why a request has no reply.
#[derive(Clone, Debug)]
pub enum RequestError {
    /// The session ended; whether the request was executed is unknown.
    SessionEnded(SessionError),
    /// This reply alone is malformed; described in our words.
    Malformed(String),
    /// A request of the batch cannot be sent, so none was; described in our words.
    NotSent(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::SessionEnded(broken) => fmt::Display::fmt(broken, f),
            RequestError::Malformed(what) => f.write_str(what),
            RequestError::NotSent(why) => write!(f, "cannot send the request: {why}"),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<MalformedPacket> for RequestError {
    fn from(malformed: MalformedPacket) -> RequestError {
        RequestError::Malformed(malformed.to_string())
    }
}

/// A session. Clones refer to the same session; it closes when the last one is dropped.
#[derive(Clone)]
pub struct Session(Arc<SessionHandle>);

/// The state that all clones of a session hold.
struct SessionHandle {
    shared: Arc<SessionShared>,
}

impl Drop for SessionHandle {
    fn drop(&mut self) {
        self.shared.close();
        // The other side sees the end of its input before this returns.
        if !self.shared.waker.is_own_thread() {
            self.shared.wait_for_end();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    /// Starts a session: sends INIT and waits for VERSION.
    ///
    /// # Errors
    /// The reason why there is no session, by `deadline` at the latest.
    pub fn start(
        link: SessionPipes,
        deadline: impl Deadline + 'static,
    ) -> Result<Session, SessionError> {
        Session::start_with_timeout(link, deadline, REPLY_TIMEOUT)
    }

    /// Starts a session with another time limit of a reply; errors as [`Session::start`].
    pub fn start_with_timeout(
        link: SessionPipes,
        deadline: impl Deadline + 'static,
        patience: Duration,
    ) -> Result<Session, SessionError> {
        let session = Session::open(link, Box::new(deadline), patience)?;
        let greeting = tracing::debug_span!("wait for greeting").entered();
        session.0.shared.wait_for_version()?;
        drop(greeting);
        Ok(session)
    }

    /// Opens a session without waiting for VERSION: it sends INIT, and requests as soon as there is
    /// VERSION.
    ///
    /// # Errors
    /// The thread or the pipes cannot be used.
    pub(super) fn open(
        link: SessionPipes,
        deadline: Box<dyn Deadline>,
        patience: Duration,
    ) -> Result<Session, SessionError> {
        let failed = |cause: std::io::Error| SessionError {
            reason: CloseReason::Io(crate::base::error::describe_io_error(&cause)),
            has_greeted: false,
            stderr_before_version: Arc::default(),
        };
        let shared = Arc::new(SessionShared {
            state: Mutex::default(),
            state_changed: Condvar::new(),
            waker: SessionLoop::waker().map_err(failed)?,
            reply_timeout: patience,
            limits: Mutex::default(),
        });
        let owner = PipeOwner::new(link, Arc::clone(&shared), deadline)
            .map_err(|errno| failed(errno.into()))?;
        shared.waker.add_session(Box::new(owner));
        Ok(Session(Arc::new(SessionHandle { shared })))
    }

    /// Returns the extensions that the server announced; none before VERSION.
    pub fn extensions(&self) -> ServerExtensions {
        lock(&self.0.shared.state).extensions.unwrap_or_default()
    }

    /// Returns the server's limits, if it reports them. They were requested at the start; an early
    /// caller waits for the reply.
    pub fn limits(&self) -> Option<ServerLimits> {
        lock(&self.0.shared.limits).wait()
    }

    /// Returns the server's limits if they are known by now.
    pub(super) fn known_limits(&self) -> Option<ServerLimits> {
        let mut limits = self.0.shared.limits.try_lock().ok()?;
        let is_known = limits.asked.as_ref().is_none_or(|it| it.is_complete());
        is_known.then(|| limits.wait())?
    }

    /// Sends these requests in this order. They leave in one write, together with all other queued
    /// requests, unless they exceed the limit of requests without a reply; the rest then follows as
    /// replies arrive. Blocks while too many bytes are queued. A request that [`Request::validate`]
    /// refuses keeps the whole batch from being sent.
    pub fn send_batch(&self, batch: Vec<Request>) -> PendingReplies {
        self.0.shared.send(&batch, None)
    }

    /// Sends the requests in `first` in a write that only other isolated batches precede, and when
    /// no request is in flight, so that a server of OpenSSH reads them in one piece and has room
    /// for its replies: it executes nothing else between two of them. Made for the two requests of
    /// which the first moves a memory aside and the second puts another in its place. The requests
    /// in `behind` follow all of them without waiting.
    ///
    /// Up to 16 KiB of isolated batches that wait at the same time share a write, and each write
    /// waits for all replies to the one before. Requests queued earlier go first, later ones do not
    /// overtake. A longer batch goes alone, in one write.
    pub fn send_isolated(&self, mut first: Vec<Request>, behind: Vec<Request>) -> PendingReplies {
        let together = first.len();
        first.extend(behind);
        self.0.shared.send(&first, Some(together))
    }

    /// Returns the duration of the last round trip.
    pub fn latency(&self) -> Option<Duration> {
        lock(&self.0.shared.state).latency
    }

    /// Returns why the session has ended, if it has.
    pub fn end_error(&self) -> Option<SessionError> {
        lock(&self.0.shared.state).end_error.clone()
    }

    /// Closes the session for all callers. The other side sees the end of its input first. Queued
    /// requests are not sent.
    pub fn close(&self) {
        self.0.shared.close();
    }
}

/// Replies that are expected. Dropping this abandons them: the requests are executed all the same,
/// and handles in the replies are closed.
#[must_use = "to drop it is to abandon the replies"]
pub struct PendingReplies {
    collector: Arc<ReplyCollector>,
    shared: Arc<SessionShared>,
}

impl fmt::Debug for PendingReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl PendingReplies {
    /// Waits for the replies, one for each request, in order. The time is bounded: the session ends
    /// when a reply is overdue.
    pub fn wait(self) -> Vec<Result<Reply, RequestError>> {
        self.collector.wait()
    }

    /// Calls `act` with the replies once all are there: on the thread that serves the sessions, which
    /// it must not keep from doing so, or at once.
    pub(super) fn then(self, act: impl FnOnce(Vec<Result<Reply, RequestError>>) + Send + 'static) {
        let mut answers = lock(&self.collector.collected);
        if answers.missing_replies > 0 {
            answers.on_complete = Some(Box::new(act));
            return;
        }
        let replies = std::mem::take(&mut answers.replies);
        drop(answers);
        act(replies);
    }
}

impl Drop for PendingReplies {
    fn drop(&mut self) {
        let mut answers = lock(&self.collector.collected);
        if answers.on_complete.is_some() {
            return;
        }
        answers.is_abandoned = true;
        let unseen = std::mem::take(&mut answers.replies);
        drop(answers);
        for answer in unseen {
            if let Ok(Reply::Handle(handle)) = answer {
                self.shared.close_unclaimed_handle(handle);
            }
        }
    }
}

/// Collects the replies to one batch.
struct ReplyCollector {
    collected: Mutex<CollectedReplies>,
    all_received: Condvar,
}

struct CollectedReplies {
    missing_replies: usize,
    is_abandoned: bool,
    replies: Vec<Result<Reply, RequestError>>,
    /// What is done with the replies, where no caller waits for them.
    on_complete: Option<OnComplete>,
}

type OnComplete = Box<dyn FnOnce(Vec<Result<Reply, RequestError>>) + Send>;

impl ReplyCollector {
    fn new(count: usize, abandoned: bool) -> Arc<ReplyCollector> {
        let none = || Err(RequestError::Malformed("no reply yet".into()));
        let answers = CollectedReplies {
            missing_replies: count,
            is_abandoned: abandoned,
            replies: std::iter::repeat_with(none).take(count).collect(),
            on_complete: None,
        };
        Arc::new(ReplyCollector {
            collected: Mutex::new(answers),
            all_received: Condvar::new(),
        })
    }

    fn wait(&self) -> Vec<Result<Reply, RequestError>> {
        let mut answers = lock(&self.collected);
        while answers.missing_replies > 0 {
            let woken = self.all_received.wait(answers);
            answers = woken.unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut answers.replies)
    }

    fn is_complete(&self) -> bool {
        lock(&self.collected).missing_replies == 0
    }

    /// Adds a reply. Returns a handle that no caller claims.
    fn add_reply(&self, index: usize, answer: Result<Reply, RequestError>) -> Option<Vec<u8>> {
        let mut answers = lock(&self.collected);
        answers.missing_replies = answers.missing_replies.saturating_sub(1);
        if answers.is_abandoned {
            return match answer {
                Ok(Reply::Handle(handle)) => Some(handle),
                _ => None,
            };
        }
        if let Some(place) = answers.replies.get_mut(index) {
            *place = answer;
        }
        if answers.missing_replies == 0 {
            self.all_received.notify_one();
            if let Some(act) = answers.on_complete.take() {
                let replies = std::mem::take(&mut answers.replies);
                drop(answers);
                act(replies);
            }
        }
        None
    }
}

/// The state shared by callers and the thread that serves the pipes.
struct SessionShared {
    state: Mutex<SessionState>,
    /// Signalled on VERSION, on new room in the queue, and at the end.
    state_changed: Condvar,
    waker: SessionWaker,
    reply_timeout: Duration,
    limits: Mutex<RequestedLimits>,
}

/// The server's limits.
#[derive(Default)]
struct RequestedLimits {
    /// The request, until the first caller needs its reply.
    asked: Option<Arc<ReplyCollector>>,
    known: Option<ServerLimits>,
}

impl RequestedLimits {
    fn wait(&mut self) -> Option<ServerLimits> {
        if let Some(asked) = self.asked.take() {
            self.known = match asked.wait().pop() {
                Some(Ok(Reply::Extended(body))) => ServerLimits::decode(&body).ok(),
                _ => None,
            };
        }
        self.known
    }
}

#[derive(Default)]
struct SessionState {
    /// Batches in the order of their turns.
    batch_queue: VecDeque<QueuedBatch>,
    /// Isolated batches in the order of their turns.
    isolated_queue: VecDeque<QueuedBatch>,
    /// Bytes that are not yet written.
    queued_bytes: usize,
    /// Turns of the callers that wait for room, in order.
    waiting_turns: VecDeque<u64>,
    /// The next turn of a batch or of a waiting caller.
    next_turn: u64,
    /// Requests without a reply, written or not.
    slots: HashMap<u32, RequestSlot>,
    last_id: u32,
    extensions: Option<ServerExtensions>,
    latency: Option<Duration>,
    is_closing: bool,
    /// Whether a caller waited too long for room.
    is_stuck: bool,
    end_error: Option<SessionError>,
}

/// The unwritten requests of a batch.
struct QueuedBatch {
    turn: u64,
    /// Number of requests that no other request may separate.
    isolated_count: usize,
    bytes: Vec<u8>,
    requests: VecDeque<BatchRequest>,
}

/// One request of a batch.
struct BatchRequest {
    id: u32,
    /// Start and end of its bytes.
    byte_range: (usize, usize),
    traffic_bytes: usize,
    expected_reply: ExpectedReply,
    /// Its index in the original batch.
    index: usize,
}

/// A request without a reply.
struct RequestSlot {
    collector: Arc<ReplyCollector>,
    index: usize,
    expected_reply: ExpectedReply,
    traffic_bytes: usize,
    /// The time at which its last byte was written; a reply cannot come earlier.
    written_at: Option<Instant>,
}

/// Returns the number of bytes that a request carries or asks for.
fn traffic_bytes(request: &Request) -> usize {
    match request {
        Request::Read { length, .. } => *length as usize,
        Request::Write { bytes, .. } => bytes.len(),
        Request::ReadDir(_) => READDIR_REPLY_BYTES,
        _ => 0,
    }
}

impl SessionState {
    /// Returns an id that no request without a reply has.
    fn allocate_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if !self.slots.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }

    /// Queues a batch and assigns the ids of its requests.
    fn enqueue(&mut self, mut batch: QueuedBatch, ticket: &Arc<ReplyCollector>, is_isolated: bool) {
        for part in &mut batch.requests {
            part.id = self.allocate_id();
            // After the length and the type.
            let at = part.byte_range.0 + 5;
            batch.bytes[at..at + 4].copy_from_slice(&part.id.to_be_bytes());
            let slot = RequestSlot {
                collector: Arc::clone(ticket),
                index: part.index,
                expected_reply: part.expected_reply,
                traffic_bytes: part.traffic_bytes,
                written_at: None,
            };
            self.slots.insert(part.id, slot);
        }
        batch.turn = self.take_turn();
        self.queued_bytes += batch.bytes.len();
        if is_isolated {
            self.isolated_queue.push_back(batch)
        } else {
            self.batch_queue.push_back(batch)
        }
    }

    fn release_buffers(&mut self) {
        self.batch_queue.shrink_to_fit();
        self.isolated_queue.shrink_to_fit();
        self.slots.shrink_to_fit();
    }

    /// Queues a request before all others, and returns where its reply arrives.
    fn enqueue_first(&mut self, request: Request) -> Arc<ReplyCollector> {
        let batch = QueuedBatch::take_front(&mut &[request][..], 0, MAX_QUEUED_BYTES);
        let collector = ReplyCollector::new(1, false);
        self.enqueue(batch, &collector, false);
        self.batch_queue.rotate_right(1);
        if let Some(first) = self.batch_queue.front_mut() {
            first.turn = 0;
        }
        collector
    }

    /// Returns whether the next batch to leave is an isolated one.
    fn is_isolated_next(&self) -> bool {
        match (self.batch_queue.front(), self.isolated_queue.front()) {
            (Some(batch), Some(apart)) => apart.turn < batch.turn,
            (_, apart) => apart.is_some(),
        }
    }
}

impl QueuedBatch {
    /// Takes requests from the front, up to `max_bytes` but at least one.
    fn take_front(requests: &mut &[Request], min_requests: usize, max_bytes: usize) -> QueuedBatch {
        let mut batch = QueuedBatch {
            turn: 0,
            isolated_count: 0,
            bytes: Vec::new(),
            requests: VecDeque::new(),
        };
        while let Some((request, rest)) = requests.split_first() {
            let start = batch.bytes.len();
            request.encode(0, &mut batch.bytes);
            if start > 0 && batch.bytes.len() > max_bytes {
                batch.bytes.truncate(start);
                break;
            }
            batch.requests.push_back(BatchRequest {
                id: 0,
                byte_range: (start, batch.bytes.len()),
                traffic_bytes: traffic_bytes(request),
                expected_reply: request.expected_reply(),
                index: min_requests + batch.requests.len(),
            });
            *requests = rest;
        }
        batch
    }
}

impl SessionShared {
    /// Waits for VERSION.
    fn wait_for_version(&self) -> Result<ServerExtensions, SessionError> {
        let mut state = lock(&self.state);
        loop {
            match (&state.end_error, state.extensions) {
                (_, Some(extensions)) => return Ok(extensions),
                (Some(broken), None) => return Err(broken.clone()),
                (None, None) => {}
            }
            let woken = self.state_changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the pipes are closed.
    fn wait_for_end(&self) {
        let mut state = lock(&self.state);
        while state.end_error.is_none() {
            let woken = self.state_changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn send(
        self: &Arc<SessionShared>,
        requests: &[Request],
        together: Option<usize>,
    ) -> PendingReplies {
        let apart = together.is_some();
        let pending = PendingReplies {
            collector: ReplyCollector::new(requests.len(), false),
            shared: Arc::clone(self),
        };
        let refused = if apart && requests.len() > MAX_REQUESTS_IN_FLIGHT {
            Some(MalformedPacket::new("too many requests for one write"))
        } else {
            requests.iter().find_map(|it| it.validate().err())
        };
        if let Some(why) = refused {
            let failure = RequestError::NotSent(why.to_string());
            for number in 0..requests.len() {
                pending.collector.add_reply(number, Err(failure.clone()));
            }
            return pending;
        }
        let mut rest = requests;
        while !rest.is_empty() {
            let first = requests.len() - rest.len();
            let most = if apart { usize::MAX } else { MAX_QUEUED_BYTES };
            let mut batch = QueuedBatch::take_front(&mut rest, first, most);
            batch.isolated_count = together.unwrap_or_default();
            if let Err(broken) = self.enqueue_when_room(batch, &pending.collector, apart) {
                for number in first..requests.len() {
                    let failure = RequestError::SessionEnded(broken.clone());
                    pending.collector.add_reply(number, Err(failure));
                }
                break;
            }
        }
        pending
    }

    /// Queues a batch as soon as there is room, after earlier callers.
    fn enqueue_when_room(
        &self,
        batch: QueuedBatch,
        ticket: &Arc<ReplyCollector>,
        apart: bool,
    ) -> Result<(), SessionError> {
        let mut state = lock(&self.state);
        let place = state.take_turn();
        state.waiting_turns.push_back(place);
        let deadline = SystemClock.instant() + self.reply_timeout;
        loop {
            if let Some(broken) = &state.end_error {
                return Err(broken.clone());
            }
            let fits = state.queued_bytes == 0
                || state.queued_bytes + batch.bytes.len() <= MAX_QUEUED_BYTES;
            if fits && state.waiting_turns.front() == Some(&place) {
                break;
            }
            let left = deadline.saturating_duration_since(SystemClock.instant());
            if left.is_zero() && !state.is_stuck {
                state.is_stuck = true;
                self.waker.wake();
            }
            // When stuck, its next turn ends the session.
            let left = if left.is_zero() {
                self.reply_timeout
            } else {
                left
            };
            let woken = self.state_changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting_turns.pop_front();
        state.enqueue(batch, ticket, apart);
        let others = !state.waiting_turns.is_empty();
        drop(state);
        self.waker.wake();
        if others {
            self.state_changed.notify_all();
        }
        Ok(())
    }

    /// Closes a handle that no caller claims. The request is small, and there is at most one for
    /// each admitted request, so it needs no room.
    fn close_unclaimed_handle(&self, handle: Vec<u8>) {
        let close = [Request::Close(handle)];
        let batch = QueuedBatch::take_front(&mut &close[..], 0, MAX_QUEUED_BYTES);
        let mut state = lock(&self.state);
        if state.end_error.is_none() {
            state.enqueue(batch, &ReplyCollector::new(1, true), false);
            drop(state);
            self.waker.wake();
        }
    }

    fn close(&self) {
        lock(&self.state).is_closing = true;
        self.waker.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
