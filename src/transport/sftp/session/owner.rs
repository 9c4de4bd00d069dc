//! The thread that owns the pipes of a session.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, write};

use super::heard::Excerpt;
use super::{
    Batch, CloseReason, Deadline, Link, MAX_EXPECTED_BYTES, MAX_REQUESTS_IN_FLIGHT, RequestError,
    SessionError, SessionShared, SessionState, StderrTail, WRITE_BURST_BYTES, lock,
};
use crate::clock::{Clock, System};
use crate::transport::sftp::wire::{self, Extensions, Frames, Malformed};

/// What is read at once.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// How often in a row, before it is looked what else there is to do.
const MAX_CHUNKS_PER_TURN: usize = 16;

/// A host may answer each time just before its time is up. So no reply may take
/// longer than so many times that, whatever comes meanwhile,
const TOTAL_REPLY_TIMEOUT: u32 = 4;

/// and than what is under way takes at so many bytes in a second.
const MIN_BYTES_PER_SECOND: usize = 4096;

pub(super) struct PipeOwner {
    shared: Arc<SessionShared>,
    /// Gone when the session is over.
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    /// Gone as well when nothing more can come.
    errors: Option<OwnedFd>,
    frames: Frames,
    burst: Burst,
    /// Until when VERSION must come, as long as it has not; and how long that is.
    greeting: Option<(Box<dyn Deadline>, Duration)>,
    greeted: bool,
    /// What was written, in order. Those that are answered leave when they come to
    /// the front.
    owed: VecDeque<OutstandingRequest>,
    /// When the last reply came.
    answered: Option<Instant>,
    /// Requests that left the queue and have no reply.
    in_flight: usize,
    /// The bytes that these carry or ask for.
    expected: usize,
    before: Excerpt,
    after: Excerpt,
    why: Option<CloseReason>,
}

/// A request that was written, and until when the reply must come.
struct OutstandingRequest {
    id: u32,
    /// If nothing else is answered meanwhile.
    until: Instant,
    /// Whatever else is.
    at_most: Instant,
}

/// What is being written: everything that was queued at one moment.
struct Burst {
    bytes: Vec<u8>,
    sent: usize,
    /// Where each request ends, those that are written already left out.
    ends: VecDeque<(usize, u32)>,
    /// Until when all of it must be taken.
    deadline: Instant,
}

impl Burst {
    fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Takes over some requests of a batch, which are these bytes of it.
    fn take(&mut self, batch: &Batch, parts: Range<usize>, bytes: Range<usize>) {
        let at = self.bytes.len();
        for part in batch.parts.range(parts) {
            self.ends
                .push_back((at + part.bytes.1 - bytes.start, part.id));
        }
        self.bytes.extend_from_slice(&batch.bytes[bytes]);
    }
}

fn garbage(malformed: Malformed) -> CloseReason {
    CloseReason::Garbage(malformed.to_string())
}

fn io(errno: Errno) -> CloseReason {
    CloseReason::Io(crate::error::cause(&errno.into()))
}

/// Nobody may wait for a thread that is gone, however it ended.
impl Drop for PipeOwner {
    fn drop(&mut self) {
        let fault = || CloseReason::Io("the thread of the session failed".into());
        let why = self.why.take().unwrap_or_else(fault);
        self.end(why);
    }
}

impl PipeOwner {
    pub(super) fn new(
        link: Link,
        shared: Arc<SessionShared>,
        greeting: Box<dyn Deadline>,
    ) -> Result<PipeOwner, Errno> {
        let fds = [Some(&link.input), Some(&link.output), link.errors.as_ref()];
        for fd in fds.into_iter().flatten() {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        let mut bytes = Vec::new();
        wire::encode_init(&mut bytes);
        lock(&shared.state).queued = bytes.len();
        let deadline = greeting.at();
        let time = deadline.saturating_duration_since(System.instant());
        Ok(PipeOwner {
            shared,
            input: Some(link.input),
            output: Some(link.output),
            errors: link.errors,
            frames: Frames::default(),
            burst: Burst {
                bytes,
                sent: 0,
                ends: VecDeque::new(),
                deadline,
            },
            greeting: Some((greeting, time)),
            greeted: false,
            owed: VecDeque::new(),
            answered: None,
            in_flight: 0,
            expected: 0,
            before: Excerpt::default(),
            after: Excerpt::default(),
            why: None,
        })
    }

    /// Runs until the session is over, and tells everybody.
    pub(super) fn run(mut self) {
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        self.why = loop {
            if let Err(why) = self.turn(&mut chunk) {
                break Some(why);
            }
        };
    }

    fn turn(&mut self, chunk: &mut [u8]) -> Result<(), CloseReason> {
        self.load()?;
        let (readable, heard, writable) = self.wait()?;
        // Replies before the words that came with them: what is said behind
        // VERSION does not count as said before.
        if readable {
            self.read(chunk)?;
        }
        if heard {
            self.listen(chunk);
        }
        if writable {
            self.write(chunk)?;
        }
        let now = System.instant();
        match self.deadline() {
            Some((until, time)) if until <= now => Err(CloseReason::NoAnswer(time)),
            _ => Ok(()),
        }
    }

    /// Until when something must have happened, and how long there was for it.
    fn deadline(&mut self) -> Option<(Instant, Duration)> {
        if let Some((greeting, time)) = &self.greeting {
            return Some((greeting.at(), *time));
        }
        let state = lock(&self.shared.state);
        while let Some(owed) = self.owed.front()
            && !state.slots.contains_key(&owed.id)
        {
            self.owed.pop_front();
        }
        let patience = self.shared.patience;
        let since = self.answered.map(|at| at + patience);
        let reply = self.owed.front().map(|owed| {
            let until = owed.until.max(since.unwrap_or(owed.until));
            match until < owed.at_most {
                true => (until, patience),
                false => (owed.at_most, owed.at_most - (owed.until - patience)),
            }
        });
        let taken = (!self.burst.is_sent()).then_some((self.burst.deadline, patience));
        reply.into_iter().chain(taken).min()
    }

    /// Takes from the queue what may leave now, once the last of it is written.
    fn load(&mut self) -> Result<(), CloseReason> {
        let shared = Arc::clone(&self.shared);
        let mut state = lock(&shared.state);
        if state.closing {
            return Err(CloseReason::Closed);
        }
        if state.stuck {
            return Err(CloseReason::NoAnswer(shared.patience));
        }
        if !self.greeted || !self.burst.is_sent() {
            return Ok(());
        }
        self.burst.bytes = Vec::new();
        self.burst.sent = 0;
        self.load_queue(&mut state);
        // Nothing is on its way to the server, so it begins to read with this;
        // nothing on its way back, so it has room for the replies.
        if self.burst.bytes.is_empty() && self.in_flight == 0 && state.apart_is_next() {
            self.load_apart(&mut state);
        }
        self.burst.deadline = System.instant() + shared.patience;
        Ok(())
    }

    fn load_queue(&mut self, state: &mut SessionState) {
        while !state.apart_is_next()
            && let Some(batch) = state.queue.front_mut()
        {
            while let Some(part) = batch.parts.front() {
                let heavy = self.expected > 0 && self.expected + part.weight > MAX_EXPECTED_BYTES;
                if heavy || self.in_flight == MAX_REQUESTS_IN_FLIGHT {
                    return;
                }
                self.in_flight += 1;
                self.expected += part.weight;
                let bytes = &batch.bytes[part.bytes.0..part.bytes.1];
                self.burst.bytes.extend_from_slice(bytes);
                let end = self.burst.bytes.len();
                self.burst.ends.push_back((end, part.id));
                batch.parts.pop_front();
            }
            state.queue.pop_front();
        }
    }

    fn load_apart(&mut self, state: &mut SessionState) {
        let mut behind = Vec::new();
        while let Some(batch) = state.apart.front() {
            let start = self.burst.bytes.len();
            let mut first = batch.parts.iter().take(batch.together);
            let end = first.next_back().map_or(0, |part| part.bytes.1);
            let long = start > 0 && start + end > WRITE_BURST_BYTES;
            if long || self.in_flight + batch.parts.len() > MAX_REQUESTS_IN_FLIGHT {
                break;
            }
            self.in_flight += batch.parts.len();
            self.expected += batch.parts.iter().map(|part| part.weight).sum::<usize>();
            self.burst.take(batch, 0..batch.together, 0..end);
            behind.extend(state.apart.pop_front().map(|batch| (batch, end)));
        }
        for (batch, end) in behind {
            let all = (batch.parts.len(), batch.bytes.len());
            self.burst.take(&batch, batch.together..all.0, end..all.1);
        }
    }

    /// Waits for something to do: whether there are replies, whether there are
    /// words, whether more can be written.
    fn wait(&mut self) -> Result<(bool, bool, bool), CloseReason> {
        let until = self.deadline();
        let timeout = until.map(|(until, _)| {
            let left = until.saturating_duration_since(System.instant());
            Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let writing = self.input.as_ref().filter(|_| !self.burst.is_sent());
        let moved = self.greeting.as_ref().and_then(|(it, _)| it.changed());
        let all = [
            Some((self.shared.wake.as_fd(), PollFlags::IN)),
            self.output.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN)),
            self.errors.as_ref().map(|fd| (fd.as_fd(), PollFlags::IN)),
            writing.map(|fd| (fd.as_fd(), PollFlags::OUT)),
            moved.map(|fd| (fd, PollFlags::IN)),
        ];
        let given = all.iter().flatten();
        let mut fds: Vec<PollFd<'_>> = given.map(|(fd, flags)| PollFd::new(fd, *flags)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok((false, false, false)),
            Err(errno) => return Err(io(errno)),
        }
        // An end or an error is found by reading or writing.
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let [woken, readable, heard, writable, nearer] =
            all.map(|fd| fd.is_some() && ready.next().unwrap_or_default());
        if woken {
            let _ = read(&self.shared.wake, &mut [0; 8]);
        }
        if let Some(moved) = moved.filter(|_| nearer) {
            let _ = read(moved, &mut [0; 8]);
        }
        Ok((readable, heard, writable))
    }

    /// Reads what is there.
    fn read(&mut self, chunk: &mut [u8]) -> Result<(), CloseReason> {
        for _ in 0..MAX_CHUNKS_PER_TURN {
            let Some(output) = &self.output else {
                return Ok(());
            };
            match read(output, &mut *chunk) {
                Ok(0) | Err(Errno::CONNRESET) => return Err(CloseReason::EndOfFile),
                Ok(length) => self.take(&chunk[..length])?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io(errno)),
            }
        }
        Ok(())
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), CloseReason> {
        while let Some(frame) = self.frames.next(&mut bytes).map_err(garbage)? {
            match self.greeted {
                true => self.reply(&frame)?,
                false => {
                    let extensions = Extensions::decode(&frame).map_err(garbage)?;
                    self.greeted = true;
                    self.greeting = None;
                    lock(&self.shared.state).extensions = Some(extensions);
                    self.shared.changed.notify_all();
                }
            }
        }
        Ok(())
    }

    fn reply(&mut self, frame: &[u8]) -> Result<(), CloseReason> {
        let (id, reply) = wire::decode(frame).map_err(garbage)?;
        let mut state = lock(&self.shared.state);
        let slot = match state.slots.entry(id) {
            Entry::Occupied(slot) if slot.get().written.is_some() => slot.remove(),
            _ => return Err(CloseReason::Garbage("a reply that nobody asked for".into())),
        };
        let now = System.instant();
        // A server answers one after the other: as long as it does, it answers. A
        // slow line may have much under way.
        self.answered = Some(now);
        state.latency = slot.written.map(|then| now.saturating_duration_since(then));
        drop(state);
        self.in_flight -= 1;
        self.expected -= slot.weight;
        let answer = reply.and_then(|reply| slot.wants.check(reply));
        let answer = answer.map_err(RequestError::from);
        if let Some(handle) = slot.ticket.answer(slot.number, answer) {
            self.shared.give_back(handle);
        }
        Ok(())
    }

    /// Takes in what is said besides. It is no reason to end anything.
    fn listen(&mut self, chunk: &mut [u8]) {
        let Some(errors) = &self.errors else {
            return;
        };
        match read(errors, &mut *chunk) {
            Ok(0) => self.errors = None,
            Ok(length) if self.greeted => self.after.add(&chunk[..length]),
            Ok(length) => self.before.add(&chunk[..length]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.errors = None,
        }
    }

    /// Writes what the other side takes at once.
    fn write(&mut self, chunk: &mut [u8]) -> Result<(), CloseReason> {
        let Some(input) = &self.input else {
            return Ok(());
        };
        let length = match write(input, &self.burst.bytes[self.burst.sent..]) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            // It is gone, but what it answered before is there to be read.
            Err(Errno::PIPE | Errno::CONNRESET) => {
                self.read(chunk)?;
                return Err(CloseReason::EndOfFile);
            }
            Err(errno) => return Err(io(errno)),
        };
        self.burst.sent += length;
        let now = System.instant();
        let mut state = lock(&self.shared.state);
        state.queued -= length;
        while let Some((end, id)) = self.burst.ends.front().copied()
            && end <= self.burst.sent
        {
            self.burst.ends.pop_front();
            let until = now + self.shared.patience;
            // As much as is under way may have to come before it.
            let carried = Duration::from_secs((self.expected / MIN_BYTES_PER_SECOND) as u64);
            self.owed.push_back(OutstandingRequest {
                id,
                until,
                at_most: now + self.shared.patience * TOTAL_REPLY_TIMEOUT + carried,
            });
            if let Some(slot) = state.slots.get_mut(&id) {
                slot.written = Some(now);
            }
        }
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn end(&mut self, why: CloseReason) {
        // The input first: ssh ends by itself when it sees the end of it.
        self.input = None;
        self.output = None;
        // What was said last is often why. More than a pipe holds is not waited
        // for, and nor is its end: others may have it open.
        let mut chunk = [0; 4096];
        for _ in 0..READ_CHUNK_BYTES / chunk.len() {
            self.listen(&mut chunk);
        }
        self.errors = None;
        let broken = SessionError {
            why,
            greeted: self.greeted,
            heard: Arc::new(StderrTail {
                before: self.before.text(),
                after: self.after.text(),
            }),
        };
        let mut state = lock(&self.shared.state);
        state.ended = Some(broken.clone());
        state.queue.clear();
        state.apart.clear();
        state.queued = 0;
        let slots = std::mem::take(&mut state.slots);
        drop(state);
        self.shared.changed.notify_all();
        for slot in slots.into_values() {
            let failure = RequestError::Broken(broken.clone());
            slot.ticket.answer(slot.number, Err(failure));
        }
    }
}
