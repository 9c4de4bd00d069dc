//! The thread that serves the helpers of all attempts: as many hosts may ask at the same time as a
//! fleet has.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Weak;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::helper::{self, MAX_REQUEST_BYTES};
use super::{BrokerShared, MAX_OPEN_QUESTIONS};
use crate::base::clock::{Clock, SystemClock};

/// Time for a helper to send its question.
const HELPER_READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Limit of the helpers that are connected: those with an open question, and as many that are about
/// to ask or to leave.
const MAX_HELPERS: usize = 2 * MAX_OPEN_QUESTIONS;

pub(super) struct HelperLoop<'l> {
    listener: &'l UnixListener,
    broker: Weak<BrokerShared>,
    helpers: Vec<ConnectedHelper>,
}

struct ConnectedHelper {
    stream: UnixStream,
    /// What it has sent so far of its question.
    request: Vec<u8>,
    deadline: Instant,
    /// Its question, once that is whole.
    question: Option<u64>,
}

impl HelperLoop<'_> {
    pub(super) fn new(listener: &UnixListener, broker: Weak<BrokerShared>) -> HelperLoop<'_> {
        HelperLoop {
            listener,
            broker,
            helpers: Vec::new(),
        }
    }

    /// Runs until the broker is gone, or the socket is shut down.
    pub(super) fn run(mut self) {
        loop {
            let Ok(ready) = self.wait() else { return };
            let Some(broker) = self.broker.upgrade() else {
                return;
            };
            let (is_connecting, ready) = ready.split_first().unwrap_or((&false, &[]));
            let now = SystemClock.instant();
            let mut ready = ready.iter();
            self.helpers.retain_mut(|helper| {
                let is_ready = ready.next().is_some_and(|it| *it);
                let stays = (!is_ready || helper.read(&broker)) && !helper.is_late(now);
                if !stays && let Some(question) = helper.question {
                    broker.withdraw_question(question);
                }
                stays
            });
            if *is_connecting && !self.accept(now) {
                return;
            }
        }
    }

    /// Waits until something can be read, or a time is up. Returns for the listener and for each
    /// helper whether it is ready.
    fn wait(&self) -> Result<Vec<bool>, Errno> {
        let waiting = self.helpers.iter().filter(|it| it.question.is_none());
        let timeout = waiting.map(|it| it.deadline).min().and_then(|until| {
            let left = until.saturating_duration_since(SystemClock.instant());
            Timespec::try_from(left).ok()
        });
        let streams = self.helpers.iter().map(|helper| helper.stream.as_fd());
        let all = std::iter::once(self.listener.as_fd()).chain(streams);
        let mut fds: Vec<PollFd<'_>> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
    }

    /// Accepts a helper. Returns false once the socket is shut down.
    fn accept(&mut self, now: Instant) -> bool {
        let Ok((stream, _)) = self.listener.accept() else {
            return false;
        };
        let is_same_user = socket_peercred(&stream).is_ok_and(|peer| peer.uid == geteuid());
        // A connection that is closed counts as no answer.
        if is_same_user && self.helpers.len() < MAX_HELPERS && stream.set_nonblocking(true).is_ok()
        {
            self.helpers.push(ConnectedHelper {
                stream,
                request: Vec::new(),
                deadline: now + HELPER_READ_TIMEOUT,
                question: None,
            });
        }
        true
    }
}

impl ConnectedHelper {
    fn is_late(&self, now: Instant) -> bool {
        self.question.is_none() && now >= self.deadline
    }

    /// Reads what the helper has sent. Returns false once there is nothing more to expect of it.
    fn read(&mut self, broker: &BrokerShared) -> bool {
        let mut chunk = [0; MAX_REQUEST_BYTES];
        let length = match self.stream.read(&mut chunk) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(error) => {
                let kinds = [ErrorKind::WouldBlock, ErrorKind::Interrupted];
                return kinds.contains(&error.kind());
            }
        };
        if self.question.is_some() {
            return true;
        }
        self.request.extend_from_slice(&chunk[..length]);
        match helper::read_request(&mut self.request.as_slice()) {
            Ok(request) => {
                self.question = broker.accept_question(&self.stream, request);
                self.question.is_some()
            }
            // The rest is on its way.
            Err(error) => error.kind() == ErrorKind::UnexpectedEof,
        }
    }
}
