//! The pipes of a session, and what is written to and read from them in each of its turns.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::{Errno, read, write};

use super::session_loop::{PipeRole, READ_CHUNK_BYTES, ReadyPipes, ServedPipes, SessionPipe};
use super::stderr_excerpt::Excerpt;
use super::{
    CloseReason, Deadline, MAX_EXPECTED_BYTES, MAX_REQUESTS_IN_FLIGHT, QueuedBatch, RequestError,
    SessionError, SessionPipes, SessionShared, SessionState, WRITE_BURST_BYTES, lock,
};
use crate::base::clock::{Clock, SystemClock};
use crate::transport::sftp::wire::{
    self, FrameSplitter, MalformedPacket, Request, ServerExtensions,
};

/// Reads in a row before other work gets its turn.
const MAX_CHUNKS_PER_TURN: usize = 16;

/// Upper limit of the time for a reply, as a multiple of the reply timeout: a host may send each
/// reply just before its time is up. Added to it is the time of the requests in flight at
/// [`MIN_BYTES_PER_SECOND`].
const TOTAL_REPLY_TIMEOUT: u32 = 4;

/// Slowest transfer rate that a session tolerates.
const MIN_BYTES_PER_SECOND: usize = 4096;

pub(super) struct PipeOwner {
    shared: Arc<SessionShared>,
    /// `None` after the end of the session.
    input: Option<SessionPipe>,
    output: Option<SessionPipe>,
    /// `None` after the end of the error output.
    stderr: Option<SessionPipe>,
    frames: FrameSplitter,
    burst: WriteBurst,
    /// Deadline for VERSION until it arrives, with its length for the message.
    version_deadline: Option<(Box<dyn Deadline>, Duration)>,
    has_greeted: bool,
    /// Written requests, in order. Answered ones are removed when they reach the front.
    outstanding: VecDeque<OutstandingRequest>,
    /// Time of the last reply.
    last_reply: Option<Instant>,
    /// Number of requests that left the queue and have no reply.
    requests_in_flight: usize,
    /// Bytes that these carry or ask for.
    expected_bytes: usize,
    stderr_before_version: Excerpt,
    close_reason: Option<CloseReason>,
}

/// A request that was written, and its deadlines.
struct OutstandingRequest {
    id: u32,
    /// Deadline while no other reply arrives.
    reply_deadline: Instant,
    /// Deadline in any case.
    final_deadline: Instant,
}

/// The requests that are being written: everything that was queued at one moment.
struct WriteBurst {
    bytes: Vec<u8>,
    sent_bytes: usize,
    /// End offset and id of each request that is not yet written.
    request_ends: VecDeque<(usize, u32)>,
    /// Deadline for writing all of it.
    deadline: Instant,
}

impl WriteBurst {
    fn is_sent(&self) -> bool {
        self.sent_bytes == self.bytes.len()
    }

    /// Appends some requests of a batch and their bytes.
    fn append_requests(&mut self, batch: &QueuedBatch, parts: Range<usize>, bytes: Range<usize>) {
        let at = self.bytes.len();
        for part in batch.requests.range(parts) {
            self.request_ends
                .push_back((at + part.byte_range.1 - bytes.start, part.id));
        }
        self.bytes.extend_from_slice(&batch.bytes[bytes]);
    }
}

fn protocol_violation(malformed: MalformedPacket) -> CloseReason {
    CloseReason::ProtocolViolation(malformed.to_string())
}

fn io_close_reason(errno: Errno) -> CloseReason {
    CloseReason::Io(crate::base::error::describe_io_error(&errno.into()))
}

/// Ends the session even after a panic, so that no caller waits for ever.
impl Drop for PipeOwner {
    fn drop(&mut self) {
        let fault = || CloseReason::Io("the session failed".into());
        let why = self.close_reason.take().unwrap_or_else(fault);
        self.end_session(why);
    }
}

impl ServedPipes for PipeOwner {
    fn run_turn(&mut self, ready: ReadyPipes, chunk: &mut [u8]) -> Option<Instant> {
        self.shared.waker.begin_turn();
        match self.serve_pipes(ready, chunk) {
            Ok(next) => next,
            Err(why) => {
                self.close_reason = Some(why);
                None
            }
        }
    }

    fn is_open(&self) -> bool {
        self.close_reason.is_none()
    }
}

impl PipeOwner {
    pub(super) fn new(
        link: SessionPipes,
        shared: Arc<SessionShared>,
        mut greeting: Box<dyn Deadline>,
    ) -> Result<PipeOwner, Errno> {
        let waker = &shared.waker;
        let input = waker.pipe(PipeRole::Input, link.input)?;
        let mut output = waker.pipe(PipeRole::Output, link.output)?;
        let stderr = link.stderr.map(|fd| waker.pipe(PipeRole::Stderr, fd));
        let mut stderr = stderr.transpose()?;
        for pipe in [Some(&mut output), stderr.as_mut()].into_iter().flatten() {
            pipe.watch()?;
        }
        let mut bytes = Vec::new();
        wire::encode_init(&mut bytes);
        lock(&shared.state).queued_bytes = bytes.len();
        greeting.set_waker(waker.clone());
        let deadline = greeting.instant();
        let time = deadline.saturating_duration_since(SystemClock.instant());
        Ok(PipeOwner {
            shared,
            input: Some(input),
            output: Some(output),
            stderr,
            frames: FrameSplitter::default(),
            burst: WriteBurst {
                bytes,
                sent_bytes: 0,
                request_ends: VecDeque::new(),
                deadline,
            },
            version_deadline: Some((greeting, time)),
            has_greeted: false,
            outstanding: VecDeque::new(),
            last_reply: None,
            requests_in_flight: 0,
            expected_bytes: 0,
            stderr_before_version: Excerpt::default(),
            close_reason: None,
        })
    }

    fn serve_pipes(
        &mut self,
        ready: ReadyPipes,
        chunk: &mut [u8],
    ) -> Result<Option<Instant>, CloseReason> {
        // Replies before error output: text received after VERSION must not count as received
        // before it.
        if ready.output {
            self.read_replies(chunk)?;
        }
        if ready.stderr {
            self.read_stderr(chunk);
        }
        if let Some((greeting, _)) = &self.version_deadline {
            greeting.on_turn();
        }
        self.write_queue(chunk)?;
        let next = self.next_deadline();
        if next.is_none() {
            self.release_buffers();
        }
        match next {
            Some((until, time)) if until <= SystemClock.instant() => {
                Err(CloseReason::ReplyTimeout(time))
            }
            next => Ok(next.map(|(until, _)| until)),
        }
    }

    /// Frees what the last requests needed: hundreds of sessions are idle most of the time.
    fn release_buffers(&mut self) {
        if self.burst.is_sent() {
            self.burst.bytes = Vec::new();
            self.burst.sent_bytes = 0;
        }
        self.burst.request_ends.shrink_to_fit();
        self.outstanding.shrink_to_fit();
        lock(&self.shared.state).release_buffers();
    }

    /// Writes as much of the queue as the other side accepts now.
    fn write_queue(&mut self, chunk: &mut [u8]) -> Result<(), CloseReason> {
        loop {
            self.load_burst()?;
            if !self.burst.is_sent() {
                self.write_burst(chunk)?;
            }
            let Some(input) = &mut self.input else {
                return Ok(());
            };
            if !self.burst.is_sent() {
                return input.watch().map_err(io_close_reason);
            }
            if self.burst.bytes.is_empty() || !self.has_greeted {
                input.unwatch();
                return Ok(());
            }
        }
    }

    /// Returns the next deadline, and its length for the message.
    fn next_deadline(&mut self) -> Option<(Instant, Duration)> {
        if let Some((greeting, time)) = &self.version_deadline {
            return Some((greeting.instant(), *time));
        }
        let state = lock(&self.shared.state);
        while let Some(owed) = self.outstanding.front()
            && !state.slots.contains_key(&owed.id)
        {
            self.outstanding.pop_front();
        }
        let patience = self.shared.reply_timeout;
        let since = self.last_reply.map(|at| at + patience);
        let reply = self.outstanding.front().map(|owed| {
            let until = owed
                .reply_deadline
                .max(since.unwrap_or(owed.reply_deadline));
            if until < owed.final_deadline {
                (until, patience)
            } else {
                (
                    owed.final_deadline,
                    owed.final_deadline - (owed.reply_deadline - patience),
                )
            }
        });
        let taken = (!self.burst.is_sent()).then_some((self.burst.deadline, patience));
        reply.into_iter().chain(taken).min()
    }

    /// Loads queued requests into the burst, once the last burst is written.
    fn load_burst(&mut self) -> Result<(), CloseReason> {
        let shared = Arc::clone(&self.shared);
        let mut state = lock(&shared.state);
        if state.is_closing {
            return Err(CloseReason::Closed);
        }
        if state.is_stuck {
            return Err(CloseReason::ReplyTimeout(shared.reply_timeout));
        }
        if !self.has_greeted || !self.burst.is_sent() {
            return Ok(());
        }
        self.burst.bytes = Vec::new();
        self.burst.sent_bytes = 0;
        self.load_from_queue(&mut state);
        // No request is on its way, so the server starts to read with this one; no reply is on its
        // way back, so the server has room for the replies.
        if self.burst.bytes.is_empty() && self.requests_in_flight == 0 && state.is_isolated_next() {
            self.load_isolated(&mut state);
        }
        self.burst.deadline = SystemClock.instant() + shared.reply_timeout;
        Ok(())
    }

    fn load_from_queue(&mut self, state: &mut SessionState) {
        while !state.is_isolated_next()
            && let Some(batch) = state.batch_queue.front_mut()
        {
            while let Some(part) = batch.requests.front() {
                let heavy = self.expected_bytes > 0
                    && self.expected_bytes + part.traffic_bytes > MAX_EXPECTED_BYTES;
                if heavy || self.requests_in_flight == MAX_REQUESTS_IN_FLIGHT {
                    return;
                }
                self.requests_in_flight += 1;
                self.expected_bytes += part.traffic_bytes;
                let bytes = &batch.bytes[part.byte_range.0..part.byte_range.1];
                self.burst.bytes.extend_from_slice(bytes);
                let end = self.burst.bytes.len();
                self.burst.request_ends.push_back((end, part.id));
                batch.requests.pop_front();
            }
            state.batch_queue.pop_front();
        }
    }

    fn load_isolated(&mut self, state: &mut SessionState) {
        let mut behind = Vec::new();
        while let Some(batch) = state.isolated_queue.front() {
            let start = self.burst.bytes.len();
            let mut first = batch.requests.iter().take(batch.isolated_count);
            let end = first.next_back().map_or(0, |part| part.byte_range.1);
            let long = start > 0 && start + end > WRITE_BURST_BYTES;
            if long || self.requests_in_flight + batch.requests.len() > MAX_REQUESTS_IN_FLIGHT {
                break;
            }
            self.requests_in_flight += batch.requests.len();
            self.expected_bytes += batch
                .requests
                .iter()
                .map(|part| part.traffic_bytes)
                .sum::<usize>();
            self.burst
                .append_requests(batch, 0..batch.isolated_count, 0..end);
            behind.extend(state.isolated_queue.pop_front().map(|batch| (batch, end)));
        }
        for (batch, end) in behind {
            let all = (batch.requests.len(), batch.bytes.len());
            self.burst
                .append_requests(&batch, batch.isolated_count..all.0, end..all.1);
        }
    }

    /// Reads the available replies.
    fn read_replies(&mut self, chunk: &mut [u8]) -> Result<(), CloseReason> {
        for _ in 0..MAX_CHUNKS_PER_TURN {
            let Some(output) = &self.output else {
                return Ok(());
            };
            match read(output, &mut *chunk) {
                Ok(0) | Err(Errno::CONNRESET) => return Err(CloseReason::EndOfFile),
                Ok(length) => self.handle_bytes(&chunk[..length])?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io_close_reason(errno)),
            }
        }
        Ok(())
    }

    fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), CloseReason> {
        while let Some(frame) = self
            .frames
            .next_frame(&mut bytes)
            .map_err(protocol_violation)?
        {
            if self.has_greeted {
                self.handle_reply(&frame)?
            } else {
                // A host whose VERSION is unsuitable speaks SFTP nevertheless.
                self.has_greeted = wire::is_version(&frame);
                let extensions = ServerExtensions::decode(&frame).map_err(protocol_violation)?;
                self.version_deadline = None;
                let mut state = lock(&self.shared.state);
                state.extensions = Some(extensions);
                if extensions.limits {
                    let asked = state.enqueue_first(Request::Limits);
                    lock(&self.shared.limits).asked = Some(asked);
                }
                drop(state);
                self.shared.state_changed.notify_all();
            }
        }
        Ok(())
    }

    fn handle_reply(&mut self, frame: &[u8]) -> Result<(), CloseReason> {
        let (id, reply) = wire::decode_reply(frame).map_err(protocol_violation)?;
        let mut state = lock(&self.shared.state);
        let slot = match state.slots.entry(id) {
            Entry::Occupied(slot) if slot.get().written_at.is_some() => slot.remove(),
            _ => {
                return Err(CloseReason::ProtocolViolation(
                    "a reply to no request".into(),
                ));
            }
        };
        let now = SystemClock.instant();
        // A server that replies in order is making progress; a slow connection may have many
        // requests in flight.
        self.last_reply = Some(now);
        state.latency = slot
            .written_at
            .map(|then| now.saturating_duration_since(then));
        drop(state);
        self.requests_in_flight -= 1;
        self.expected_bytes -= slot.traffic_bytes;
        let answer = reply.and_then(|reply| slot.expected_reply.check_reply(reply));
        let answer = answer.map_err(RequestError::from);
        if let Some(handle) = slot.collector.add_reply(slot.index, answer) {
            self.shared.close_unclaimed_handle(handle);
        }
        Ok(())
    }

    /// Reads error output, and drops what comes after VERSION. This never ends the session.
    fn read_stderr(&mut self, chunk: &mut [u8]) {
        let Some(errors) = &self.stderr else {
            return;
        };
        match read(errors, &mut *chunk) {
            Ok(0) => self.stderr = None,
            Ok(length) if !self.has_greeted => self.stderr_before_version.append(&chunk[..length]),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.stderr = None,
        }
    }

    /// Writes as many bytes as the other side accepts.
    fn write_burst(&mut self, chunk: &mut [u8]) -> Result<(), CloseReason> {
        let Some(input) = &self.input else {
            return Ok(());
        };
        let length = match write(input, &self.burst.bytes[self.burst.sent_bytes..]) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            // The other side has closed, but replies may be left to read.
            Err(Errno::PIPE | Errno::CONNRESET) => {
                self.read_replies(chunk)?;
                return Err(CloseReason::EndOfFile);
            }
            Err(errno) => return Err(io_close_reason(errno)),
        };
        self.burst.sent_bytes += length;
        let now = SystemClock.instant();
        let mut state = lock(&self.shared.state);
        state.queued_bytes -= length;
        while let Some((end, id)) = self.burst.request_ends.front().copied()
            && end <= self.burst.sent_bytes
        {
            self.burst.request_ends.pop_front();
            let until = now + self.shared.reply_timeout;
            // All requests in flight may have to be transferred before it.
            let carried = Duration::from_secs((self.expected_bytes / MIN_BYTES_PER_SECOND) as u64);
            self.outstanding.push_back(OutstandingRequest {
                id,
                reply_deadline: until,
                final_deadline: now + self.shared.reply_timeout * TOTAL_REPLY_TIMEOUT + carried,
            });
            if let Some(slot) = state.slots.get_mut(&id) {
                slot.written_at = Some(now);
            }
        }
        drop(state);
        self.shared.state_changed.notify_all();
        Ok(())
    }

    fn end_session(&mut self, why: CloseReason) {
        tracing::debug!(reason = ?why, greeted = self.has_greeted, "session ended");
        // The input first: ssh exits when it sees the end of it.
        self.input = None;
        self.output = None;
        // The last text often has the reason. More than a pipe holds is not waited for, nor is its
        // end: other processes may have it open.
        let mut chunk = [0; 4096];
        for _ in 0..READ_CHUNK_BYTES / chunk.len() {
            self.read_stderr(&mut chunk);
        }
        self.stderr = None;
        let broken = SessionError {
            reason: why,
            has_greeted: self.has_greeted,
            stderr_before_version: self.stderr_before_version.to_text().into(),
        };
        let mut state = lock(&self.shared.state);
        state.end_error = Some(broken.clone());
        state.batch_queue.clear();
        state.isolated_queue.clear();
        state.queued_bytes = 0;
        let slots = std::mem::take(&mut state.slots);
        drop(state);
        self.shared.state_changed.notify_all();
        for slot in slots.into_values() {
            let failure = RequestError::SessionEnded(broken.clone());
            slot.collector.add_reply(slot.index, Err(failure));
        }
    }
}
