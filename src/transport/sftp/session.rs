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
//! | a reply | 257 KiB, see [`LONGEST_FRAME`](super::wire::LONGEST_FRAME) |
//! | what is kept of the error output | 8 KiB before VERSION, 8 KiB after it |
//! | time from one reply to the next | `remote_timeout`; 15 s, see [`PATIENCE`] |
//! | time from a request to its reply | four times that, and what is under way at 4 KiB/s |
//!
//! Servers do one thing after the other. So one that owes a reply for too long
//! owes all the others as well, and the session is over, as it is when bytes come
//! that are no reply to anything: everybody who waits gets the same [`Broken`].
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

use self::owner::Owner;
use super::wire::{Extensions, Limits, Malformed, Reply, Request, Wants};
use crate::clock::{Clock, System};

/// How long a host may take for a reply.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Bytes that may wait to be written.
const MOST_QUEUED: usize = 1024 * 1024;

/// Bytes that requests without a reply may carry or ask for.
const MOST_EXPECTED: usize = 2 * 1024 * 1024;

/// Requests that may be without a reply.
const MOST_IN_FLIGHT: usize = 1024;

/// ssh and OpenSSH's server read so much at once: what is not longer, and has
/// nothing before it, they read in one piece.
const BURST: usize = 16 * 1024;

/// What one reply to a READDIR is taken to be.
const FOLDER: usize = 256 * 1024;

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
pub enum Why {
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
pub struct Broken {
    /// Why it ended.
    pub why: Why,
    /// Whether the server had said VERSION. Before that ssh was still connecting,
    /// or failed to.
    pub greeted: bool,
    /// What came on [`Link::errors`].
    pub heard: Arc<Heard>,
}

/// Foreign text from the error output: ssh's own words, and later also what the
/// host says. Of each half the first and the last 4 KiB are kept; where something
/// was left out, both have whole lines only, and a line between them says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Before VERSION. A host that has not authenticated itself yet has no part in
    /// it unless ssh passes its words on.
    pub before: Vec<u8>,
    /// With VERSION and after it.
    pub after: Vec<u8>,
}

/// What was wrong; none of the words are foreign.
impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.why, self.greeted) {
            (Why::EndOfFile, true) => f.write_str("the connection was lost"),
            (Why::EndOfFile, false) => f.write_str("the connection ended before SFTP began"),
            (Why::Garbage(what), true) => write!(f, "the host does not keep to SFTP: {what}"),
            // The text of a login shell is the usual cause.
            (Why::Garbage(what), false) => write!(
                f,
                "what the host says first is not SFTP ({what}); \
                 perhaps its login shell prints something"
            ),
            (Why::NoAnswer(time), _) => {
                let seconds = (time.as_secs_f64() * 10.0).round() / 10.0;
                write!(f, "no answer for {seconds} s")
            }
            (Why::Io(cause), _) => f.write_str(cause),
            (Why::Closed, _) => f.write_str("the session was closed"),
        }
    }
}

impl std::error::Error for Broken {}

/// Why a request has no reply.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The session ended. It is not known whether the request was carried out.
    Broken(Broken),
    /// This reply alone cannot be understood; in our words.
    Malformed(String),
    /// A request of the batch cannot be sent, and none of it was; in our words.
    Unsent(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Broken(broken) => fmt::Display::fmt(broken, f),
            Failure::Malformed(what) => f.write_str(what),
            Failure::Unsent(why) => write!(f, "this cannot be asked: {why}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Failure {
        Failure::Malformed(malformed.to_string())
    }
}

/// A session. Clones are the same one; it is closed when the last one goes.
#[derive(Clone)]
pub struct Session(Arc<Held>);

/// What all clones of a session hold.
struct Held {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    extensions: Extensions,
    /// The request as long as nobody wanted its answer, and the answer.
    limits: Mutex<(Option<Pending>, Option<Limits>)>,
}

impl Drop for Held {
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
    pub fn start(link: Link, deadline: impl Deadline + 'static) -> Result<Session, Broken> {
        Session::start_with(link, deadline, PATIENCE)
    }

    /// The same, with another time that a reply may take.
    ///
    /// # Errors
    /// Likewise.
    pub fn start_with(
        link: Link,
        deadline: impl Deadline + 'static,
        patience: Duration,
    ) -> Result<Session, Broken> {
        let failed = |cause: std::io::Error| Broken {
            why: Why::Io(crate::error::cause(&cause)),
            greeted: false,
            heard: Arc::default(),
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            wake: wake.map_err(|errno| failed(errno.into()))?,
            patience,
        });
        let owner = Owner::new(link, Arc::clone(&shared), Box::new(deadline))
            .map_err(|errno| failed(errno.into()))?;
        let builder = thread::Builder::new().name("sftp".into());
        let thread = builder.spawn(move || owner.run()).map_err(failed)?;
        let mut held = Held {
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
    pub fn ask(&self, batch: Vec<Request>) -> Pending {
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
    pub fn ask_apart(&self, mut first: Vec<Request>, behind: Vec<Request>) -> Pending {
        let together = first.len();
        first.extend(behind);
        self.0.shared.ask(&first, Some(together))
    }

    /// How long the last reply took.
    pub fn latency(&self) -> Option<Duration> {
        lock(&self.0.shared.state).latency
    }

    /// Why the session is over, if it is.
    pub fn ended(&self) -> Option<Broken> {
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
pub struct Pending {
    ticket: Arc<Ticket>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl Pending {
    /// Waits for the replies, one for each request and in their order. That takes
    /// bounded time: the session ends when a reply is owed for too long.
    pub fn wait(self) -> Vec<Result<Reply, Failure>> {
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

impl Drop for Pending {
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
    list: Vec<Result<Reply, Failure>>,
}

impl Ticket {
    fn new(count: usize, abandoned: bool) -> Arc<Ticket> {
        let none = || Err(Failure::Malformed("no reply yet".into()));
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
    fn answer(&self, number: usize, answer: Result<Reply, Failure>) -> Option<Vec<u8>> {
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
struct Shared {
    state: Mutex<State>,
    /// The server spoke, there is more room, or it is over.
    changed: Condvar,
    /// Ends the owner's wait.
    wake: OwnedFd,
    patience: Duration,
}

#[derive(Default)]
struct State {
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
    slots: HashMap<u32, Slot>,
    id: u32,
    extensions: Option<Extensions>,
    latency: Option<Duration>,
    closing: bool,
    /// Somebody waited too long for room.
    stuck: bool,
    ended: Option<Broken>,
}

/// Requests that were asked for together, or what is left of them.
struct Batch {
    turn: u64,
    /// How many of them nothing may come between.
    together: usize,
    bytes: Vec<u8>,
    parts: VecDeque<Part>,
}

/// One request of a batch.
struct Part {
    id: u32,
    /// Where its bytes begin and end.
    bytes: (usize, usize),
    weight: usize,
    wants: Wants,
    /// Its number in the batch as it was asked.
    number: usize,
}

/// A request without a reply.
struct Slot {
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
        Request::ReadDir { .. } => FOLDER,
        _ => 0,
    }
}

impl State {
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
            let slot = Slot {
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
            batch.parts.push_back(Part {
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

impl Shared {
    /// Waits for VERSION.
    fn greeting(&self) -> Result<Extensions, Broken> {
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

    fn ask(self: &Arc<Shared>, requests: &[Request], together: Option<usize>) -> Pending {
        let apart = together.is_some();
        let pending = Pending {
            ticket: Ticket::new(requests.len(), false),
            shared: Arc::clone(self),
        };
        let refused = match apart && requests.len() > MOST_IN_FLIGHT {
            true => Some(Malformed::new("too many requests for one write")),
            false => requests.iter().find_map(|it| it.check().err()),
        };
        if let Some(why) = refused {
            let failure = Failure::Unsent(why.to_string());
            for number in 0..requests.len() {
                pending.ticket.answer(number, Err(failure.clone()));
            }
            return pending;
        }
        let mut rest = requests;
        while !rest.is_empty() {
            let first = requests.len() - rest.len();
            let most = if apart { usize::MAX } else { MOST_QUEUED };
            let mut batch = Batch::cut(&mut rest, first, most);
            batch.together = together.unwrap_or_default();
            if let Err(broken) = self.put(batch, &pending.ticket, apart) {
                for number in first..requests.len() {
                    let failure = Failure::Broken(broken.clone());
                    pending.ticket.answer(number, Err(failure));
                }
                break;
            }
        }
        pending
    }

    /// Queues a batch as soon as there is room, after those who came before.
    fn put(&self, batch: Batch, ticket: &Arc<Ticket>, apart: bool) -> Result<(), Broken> {
        let mut state = lock(&self.state);
        let place = state.number();
        state.waiting.push_back(place);
        let deadline = System.instant() + self.patience;
        loop {
            if let Some(broken) = &state.ended {
                return Err(broken.clone());
            }
            let fits = state.queued == 0 || state.queued + batch.bytes.len() <= MOST_QUEUED;
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
        let batch = Batch::cut(&mut &close[..], 0, MOST_QUEUED);
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
