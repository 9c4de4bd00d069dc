//! The thread that serves the pipes of all sessions of this process: as many hosts as a fleet has
//! need no thread each, and a host that is silent costs nothing.
//!
//! It waits for no host: all pipes are non-blocking, and each session has its turn only when there
//! is something to do for it, or when its deadline has passed.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::lock;
use crate::base::clock::{Clock, SystemClock};

/// Events that one call returns; others follow with the next call.
const MAX_EVENTS: usize = 256;

/// Bytes per read.
pub(super) const READ_CHUNK_BYTES: usize = 64 * 1024;

/// The event of the loop's own descriptor.
const WAKE_KEY: u64 = u64::MAX;

/// The loop of this process, once a session was started.
static PROCESS_LOOP: Mutex<Option<Arc<SessionLoop>>> = Mutex::new(None);

/// The part of the loop that other threads share.
pub(super) struct SessionLoop {
    epoll: OwnedFd,
    /// Ends the wait of the loop.
    wake_fd: OwnedFd,
    inbox: Mutex<Inbox>,
}

/// The pipes that can be read. A write is tried in each turn.
#[derive(Clone, Copy, Default)]
pub(super) struct ReadyPipes {
    pub(super) output: bool,
    pub(super) stderr: bool,
}

/// What the loop serves.
pub(super) trait ServedPipes: Send {
    /// Reads and writes what is possible; waits for nothing. `chunk` is a buffer. Returns the time of
    /// the next turn, unless something else causes one before.
    fn run_turn(&mut self, ready: ReadyPipes, chunk: &mut [u8]) -> Option<Instant>;

    /// Whether the session goes on. If not, dropping it informs all callers.
    fn is_open(&self) -> bool;
}

#[derive(Default)]
struct Inbox {
    added_sessions: Vec<(u64, Box<dyn ServedPipes>)>,
    woken_sessions: Vec<u64>,
    last_id: u64,
    /// The thread, while it runs.
    thread: Option<ThreadId>,
}

/// A pipe of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PipeRole {
    Output,
    Stderr,
    Input,
}

/// Gives a session its turn.
#[derive(Clone)]
pub struct SessionWaker {
    session_loop: Arc<SessionLoop>,
    id: u64,
    /// Whether the session waits for its turn already.
    is_woken: Arc<AtomicBool>,
}

impl SessionWaker {
    /// Gives the session a turn soon.
    pub fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.session_loop.lock_inbox().woken_sessions.push(self.id);
            self.session_loop.wake();
        }
    }

    /// Notes that the session has its turn now.
    pub(super) fn begin_turn(&self) {
        self.is_woken.store(false, Ordering::SeqCst);
    }

    /// Adds the session to the loop. If the loop has ended, so does the session.
    pub(super) fn add_session(&self, session: Box<dyn ServedPipes>) {
        let mut inbox = self.session_loop.lock_inbox();
        if inbox.thread.is_some() {
            inbox.added_sessions.push((self.id, session));
            drop(inbox);
            self.session_loop.wake();
        }
    }

    /// Whether the calling thread is the one that serves the sessions.
    pub(super) fn is_own_thread(&self) -> bool {
        self.session_loop.lock_inbox().thread == Some(thread::current().id())
    }

    /// Prepares a pipe of the session.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub(super) fn pipe(&self, role: PipeRole, fd: OwnedFd) -> Result<SessionPipe, Errno> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(SessionPipe {
            fd,
            session_loop: Arc::clone(&self.session_loop),
            key: self.id * 4 + role as u64,
            is_watched: false,
        })
    }
}

/// A pipe of a session. Dropping it closes it.
pub(super) struct SessionPipe {
    fd: OwnedFd,
    session_loop: Arc<SessionLoop>,
    key: u64,
    is_watched: bool,
}

impl SessionPipe {
    /// Gives the session its turn whenever the pipe is ready.
    ///
    /// # Errors
    /// The kernel refuses to watch one more.
    pub(super) fn watch(&mut self) -> Result<(), Errno> {
        if self.is_watched {
            return Ok(());
        }
        let flags = if self.key % 4 == PipeRole::Input as u64 {
            EventFlags::OUT
        } else {
            EventFlags::IN
        };
        let data = EventData::new_u64(self.key);
        epoll::add(&self.session_loop.epoll, &self.fd, data, flags)?;
        self.is_watched = true;
        Ok(())
    }

    /// Ends that.
    pub(super) fn unwatch(&mut self) {
        if std::mem::take(&mut self.is_watched) {
            // It was added, so this cannot fail.
            let _ = epoll::delete(&self.session_loop.epoll, &self.fd);
        }
    }
}

impl AsFd for SessionPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for SessionPipe {
    fn drop(&mut self) {
        // Closing would not be enough where another process has the same open pipe.
        self.unwatch();
    }
}

impl SessionLoop {
    /// Returns the waker of a session to be started; starts the loop if it does not run.
    ///
    /// # Errors
    /// The reason why the loop cannot start.
    pub(super) fn waker() -> io::Result<SessionWaker> {
        let mut running = PROCESS_LOOP.lock().unwrap_or_else(PoisonError::into_inner);
        let known = running
            .as_ref()
            .filter(|it| it.lock_inbox().thread.is_some());
        let session_loop = match known {
            Some(session_loop) => Arc::clone(session_loop),
            None => Arc::clone(running.insert(SessionLoop::start()?)),
        };
        drop(running);
        let mut inbox = session_loop.lock_inbox();
        inbox.last_id += 1;
        let id = inbox.last_id;
        drop(inbox);
        Ok(SessionWaker {
            session_loop,
            id,
            is_woken: Arc::default(),
        })
    }

    fn start() -> io::Result<Arc<SessionLoop>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(
            &epoll,
            &wake_fd,
            EventData::new_u64(WAKE_KEY),
            EventFlags::IN,
        )?;
        let session_loop = Arc::new(SessionLoop {
            epoll,
            wake_fd,
            inbox: Mutex::default(),
        });
        let own = Arc::clone(&session_loop);
        let builder = thread::Builder::new().name("sftp".into());
        let thread = builder.spawn(move || LoopThread::new(own).run())?;
        // Before any session is added.
        session_loop.lock_inbox().thread = Some(thread.thread().id());
        Ok(session_loop)
    }

    fn lock_inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    fn wake(&self) {
        // This fails only if the eventfd is signalled already.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }
}

/// A session in the loop.
struct ServedSession {
    owner: Box<dyn ServedPipes>,
    deadline: Option<Instant>,
}

/// The state of the thread.
struct LoopThread {
    shared: Arc<SessionLoop>,
    sessions: HashMap<u64, ServedSession>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// The sessions that have a turn now.
    turns: HashMap<u64, ReadyPipes>,
    /// Where all sessions read to.
    chunk: Vec<u8>,
}

impl Drop for LoopThread {
    fn drop(&mut self) {
        // Sessions that are dropped inform their callers, and no other is added.
        let mut inbox = self.shared.lock_inbox();
        inbox.thread = None;
        let added = std::mem::take(&mut inbox.added_sessions);
        drop(inbox);
        drop(added);
    }
}

impl LoopThread {
    fn new(shared: Arc<SessionLoop>) -> LoopThread {
        LoopThread {
            shared,
            sessions: HashMap::new(),
            deadlines: BTreeSet::new(),
            turns: HashMap::new(),
            chunk: vec![0; READ_CHUNK_BYTES],
        }
    }

    /// Runs as long as the kernel reports events, which it does for all the time of the process.
    fn run(mut self) {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        loop {
            events.clear();
            let timeout = self.deadlines.first().and_then(|(until, _)| {
                let left = until.saturating_duration_since(SystemClock.instant());
                Timespec::try_from(left).ok()
            });
            match epoll::wait(
                &self.shared.epoll,
                spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    tracing::error!(%errno, "the session thread cannot wait");
                    return;
                }
            }
            for event in &events {
                self.note_event(event.data.u64());
            }
            self.take_inbox();
            self.note_expired();
            let mut turns = std::mem::take(&mut self.turns);
            for (id, ready) in turns.drain() {
                self.run_turn(id, ready);
            }
            self.turns = turns;
        }
    }

    fn note_event(&mut self, key: u64) {
        if key == WAKE_KEY {
            let _ = rustix::io::read(&self.shared.wake_fd, &mut [0; 8]);
            return;
        }
        let ready = self.turns.entry(key / 4).or_default();
        ready.output |= key % 4 == PipeRole::Output as u64;
        ready.stderr |= key % 4 == PipeRole::Stderr as u64;
    }

    fn take_inbox(&mut self) {
        let mut inbox = self.shared.lock_inbox();
        for id in inbox.woken_sessions.drain(..) {
            self.turns.entry(id).or_default();
        }
        for (id, owner) in inbox.added_sessions.drain(..) {
            let deadline = None;
            self.sessions.insert(id, ServedSession { owner, deadline });
            self.turns.entry(id).or_default();
        }
    }

    fn note_expired(&mut self) {
        let now = SystemClock.instant();
        for (_, id) in self.deadlines.iter().take_while(|(until, _)| *until <= now) {
            self.turns.entry(*id).or_default();
        }
    }

    fn run_turn(&mut self, id: u64, ready: ReadyPipes) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let chunk = &mut self.chunk;
        // A panic ends this session alone.
        let turn = catch_unwind(AssertUnwindSafe(|| session.owner.run_turn(ready, chunk)));
        let (next, is_open) = match turn {
            Ok(next) => (next, session.owner.is_open()),
            Err(_) => (None, false),
        };
        let last = std::mem::replace(&mut session.deadline, next);
        if last != next {
            if let Some(last) = last {
                self.deadlines.remove(&(last, id));
            }
            self.deadlines.extend(next.map(|next| (next, id)));
        }
        if !is_open {
            let ended = self.sessions.remove(&id);
            let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
        }
    }
}
