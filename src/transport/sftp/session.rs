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
//! | requests that wait to be written | 1 MiB; then [`Session::send_batch`] blocks |
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

mod pipe_owner;
mod stderr_excerpt;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use self::pipe_owner::PipeOwner;
use super::wire::{ExpectedReply, MalformedPacket, Reply, Request, ServerExtensions, ServerLimits};
use crate::clock::{Clock, SystemClock};

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
pub struct SessionPipes {
    /// What we write to.
    pub input: OwnedFd,
    /// What we read from.
    pub output: OwnedFd,
    /// What it says besides.
    pub stderr: Option<OwnedFd>,
}

/// Until when VERSION must have come.
pub trait Deadline: Send {
    /// The moment, as it stands now; it may move.
    fn instant(&self) -> Instant;

    /// What becomes readable when it has moved nearer.
    fn change_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Deadline for Instant {
    fn instant(&self) -> Instant {
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
    ProtocolViolation(String),
    /// A reply did not come for so long.
    ReplyTimeout(Duration),
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
    pub reason: CloseReason,
    /// Whether the server had said VERSION. Before that ssh was still connecting,
    /// or failed to.
    pub has_greeted: bool,
    /// What came on [`SessionPipes::stderr`].
    pub stderr: Arc<StderrTail>,
}

/// Foreign text from the error output: ssh's own words, and later also what the
/// host says. Of each half the first and the last 4 KiB are kept; where something
/// was left out, both have whole lines only, and a line between them says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StderrTail {
    /// Before VERSION. A host that has not authenticated itself yet has no part in
    /// it unless ssh passes its words on.
    pub before_version: Vec<u8>,
    /// With VERSION and after it.
    pub after_version: Vec<u8>,
}

/// What was wrong; none of the words are foreign.
impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.has_greeted) {
            (CloseReason::EndOfFile, true) => f.write_str("the connection was lost"),
            (CloseReason::EndOfFile, false) => {
                f.write_str("the connection ended before SFTP began")
            }
            (CloseReason::ProtocolViolation(what), true) => {
                write!(f, "the host does not keep to SFTP: {what}")
            }
            // The text of a login shell is the usual cause.
            (CloseReason::ProtocolViolation(what), false) => write!(
                f,
                "what the host says first is not SFTP ({what}); \
                 perhaps its login shell prints something"
            ),
            (CloseReason::ReplyTimeout(time), _) => {
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
    SessionEnded(SessionError),
    /// This reply alone cannot be understood; in our words.
    Malformed(String),
    /// A request of the batch cannot be sent, and none of it was; in our words.
    NotSent(String),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::SessionEnded(broken) => fmt::Display::fmt(broken, f),
            RequestError::Malformed(what) => f.write_str(what),
            RequestError::NotSent(why) => write!(f, "this cannot be asked: {why}"),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<MalformedPacket> for RequestError {
    fn from(malformed: MalformedPacket) -> RequestError {
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
    extensions: ServerExtensions,
    /// The request as long as nobody wanted its answer, and the answer.
    limits: Mutex<(Option<PendingReplies>, Option<ServerLimits>)>,
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
    pub fn start(
        link: SessionPipes,
        deadline: impl Deadline + 'static,
    ) -> Result<Session, SessionError> {
        Session::start_with_timeout(link, deadline, REPLY_TIMEOUT)
    }

    /// The same, with another time that a reply may take.
    ///
    /// # Errors
    /// Likewise.
    pub fn start_with_timeout(
        link: SessionPipes,
        deadline: impl Deadline + 'static,
        patience: Duration,
    ) -> Result<Session, SessionError> {
        let failed = |cause: std::io::Error| SessionError {
            reason: CloseReason::Io(crate::error::describe_io_error(&cause)),
            has_greeted: false,
            stderr: Arc::default(),
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(SessionShared {
            state: Mutex::default(),
            state_changed: Condvar::new(),
            wake_fd: wake.map_err(|errno| failed(errno.into()))?,
            reply_timeout: patience,
        });
        let owner = PipeOwner::new(link, Arc::clone(&shared), Box::new(deadline))
            .map_err(|errno| failed(errno.into()))?;
        let builder = thread::Builder::new().name("sftp".into());
        let thread = builder.spawn(move || owner.run()).map_err(failed)?;
        let mut held = SessionHandle {
            shared,
            thread: Some(thread),
            extensions: ServerExtensions::default(),
            limits: Mutex::default(),
        };
        let greeting = tracing::debug_span!("wait for greeting").entered();
        held.extensions = held.shared.wait_for_version()?;
        drop(greeting);
        let session = Session(Arc::new(held));
        if session.extensions().limits {
            let asked = session.send_batch(vec![Request::Limits]);
            lock(&session.0.limits).0 = Some(asked);
        }
        Ok(session)
    }

    /// What the server announced.
    pub fn extensions(&self) -> ServerExtensions {
        self.0.extensions
    }

    /// What the server takes, if it says that. They were asked for at the start;
    /// who comes before the answer waits for it.
    pub fn limits(&self) -> Option<ServerLimits> {
        let mut limits = lock(&self.0.limits);
        if let Some(asked) = limits.0.take() {
            limits.1 = match asked.wait().pop() {
                Some(Ok(Reply::Extended(body))) => ServerLimits::decode(&body).ok(),
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
    /// [`Request::validate`] keeps the whole batch from being sent.
    pub fn send_batch(&self, batch: Vec<Request>) -> PendingReplies {
        self.0.shared.send(&batch, None)
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
    pub fn send_isolated(&self, mut first: Vec<Request>, behind: Vec<Request>) -> PendingReplies {
        let together = first.len();
        first.extend(behind);
        self.0.shared.send(&first, Some(together))
    }

    /// How long the last reply took.
    pub fn latency(&self) -> Option<Duration> {
        lock(&self.0.shared.state).latency
    }

    /// Why the session is over, if it is.
    pub fn end_error(&self) -> Option<SessionError> {
        lock(&self.0.shared.state).end_error.clone()
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
    collector: Arc<ReplyCollector>,
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
        let mut answers = lock(&self.collector.collected);
        while answers.missing_replies > 0 {
            answers = self
                .collector
                .all_received
                .wait(answers)
                .unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut answers.replies)
    }
}

impl Drop for PendingReplies {
    fn drop(&mut self) {
        let mut answers = lock(&self.collector.collected);
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

/// Where the replies to one batch gather.
struct ReplyCollector {
    collected: Mutex<CollectedReplies>,
    all_received: Condvar,
}

struct CollectedReplies {
    missing_replies: usize,
    is_abandoned: bool,
    replies: Vec<Result<Reply, RequestError>>,
}

impl ReplyCollector {
    fn new(count: usize, abandoned: bool) -> Arc<ReplyCollector> {
        let none = || Err(RequestError::Malformed("no reply yet".into()));
        let answers = CollectedReplies {
            missing_replies: count,
            is_abandoned: abandoned,
            replies: std::iter::repeat_with(none).take(count).collect(),
        };
        Arc::new(ReplyCollector {
            collected: Mutex::new(answers),
            all_received: Condvar::new(),
        })
    }

    /// Takes a reply. The answer is a handle that nobody is there for.
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
        }
        None
    }
}

/// What callers and the owner of the pipes share.
struct SessionShared {
    state: Mutex<SessionState>,
    /// The server spoke, there is more room, or it is over.
    state_changed: Condvar,
    /// Ends the owner's wait.
    wake_fd: OwnedFd,
    reply_timeout: Duration,
}

#[derive(Default)]
struct SessionState {
    /// Batches in the order of their turns.
    batch_queue: VecDeque<QueuedBatch>,
    /// Those that are to leave by themselves, likewise.
    isolated_queue: VecDeque<QueuedBatch>,
    /// Bytes that were not written yet.
    queued_bytes: usize,
    /// Who waits for room, in order.
    waiting_turns: VecDeque<u64>,
    /// A turn, or a place among those who wait.
    next_turn: u64,
    /// What has no reply yet, whether it was written or not.
    slots: HashMap<u32, RequestSlot>,
    last_id: u32,
    extensions: Option<ServerExtensions>,
    latency: Option<Duration>,
    is_closing: bool,
    /// Somebody waited too long for room.
    is_stuck: bool,
    end_error: Option<SessionError>,
}

/// Requests that were asked for together, or what is left of them.
struct QueuedBatch {
    turn: u64,
    /// How many of them nothing may come between.
    isolated_count: usize,
    bytes: Vec<u8>,
    requests: VecDeque<BatchRequest>,
}

/// One request of a batch.
struct BatchRequest {
    id: u32,
    /// Where its bytes begin and end.
    byte_range: (usize, usize),
    traffic_bytes: usize,
    expected_reply: ExpectedReply,
    /// Its number in the batch as it was asked.
    index: usize,
}

/// A request without a reply.
struct RequestSlot {
    collector: Arc<ReplyCollector>,
    index: usize,
    expected_reply: ExpectedReply,
    traffic_bytes: usize,
    /// When the last of its bytes was; there can be no reply before.
    written_at: Option<Instant>,
}

/// The bytes that a request carries or asks for.
fn traffic_bytes(request: &Request) -> usize {
    match request {
        Request::Read { length, .. } => *length as usize,
        Request::Write { bytes, .. } => bytes.len(),
        Request::ReadDir { .. } => READDIR_REPLY_BYTES,
        _ => 0,
    }
}

impl SessionState {
    /// An id that nothing without a reply has.
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

    /// Queues a batch, whose ids are given now.
    fn enqueue(&mut self, mut batch: QueuedBatch, ticket: &Arc<ReplyCollector>, is_isolated: bool) {
        for part in &mut batch.requests {
            part.id = self.allocate_id();
            // Behind the length and the type.
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
        match is_isolated {
            true => self.isolated_queue.push_back(batch),
            false => self.batch_queue.push_back(batch),
        }
    }

    /// Whether the next that is to leave is one that leaves by itself.
    fn is_isolated_next(&self) -> bool {
        match (self.batch_queue.front(), self.isolated_queue.front()) {
            (Some(batch), Some(apart)) => apart.turn < batch.turn,
            (_, apart) => apart.is_some(),
        }
    }
}

impl QueuedBatch {
    /// Takes requests from the front, up to `most` bytes but at least one.
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
        let refused = match apart && requests.len() > MAX_REQUESTS_IN_FLIGHT {
            true => Some(MalformedPacket::new("too many requests for one write")),
            false => requests.iter().find_map(|it| it.validate().err()),
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

    /// Queues a batch as soon as there is room, after those who came before.
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
                self.wake_owner();
            }
            // Once stuck, the owner ends it.
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
        self.wake_owner();
        if others {
            self.state_changed.notify_all();
        }
        Ok(())
    }

    /// Gives back a handle that nobody waits for. It is small, and there is one
    /// at most for each request that was let in, so it needs no room.
    fn close_unclaimed_handle(&self, handle: Vec<u8>) {
        let close = [Request::Close { handle }];
        let batch = QueuedBatch::take_front(&mut &close[..], 0, MAX_QUEUED_BYTES);
        let mut state = lock(&self.state);
        if state.end_error.is_none() {
            state.enqueue(batch, &ReplyCollector::new(1, true), false);
            drop(state);
            self.wake_owner();
        }
    }

    fn close(&self) {
        lock(&self.state).is_closing = true;
        self.wake_owner();
    }

    fn wake_owner(&self) {
        // It fails only when it is awake already.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
