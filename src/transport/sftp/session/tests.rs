//! Tests of a session with a scripted peer. One thread drives both: the script's output waits in
//! pipes, and the script blocks where it reads.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod closing;
mod limits;
mod pairs;

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::transport::sftp::wire::{Attrs, status};

/// Long enough that only a hang reaches it.
const LONG_TIMEOUT: Duration = Duration::from_secs(20);

/// For tests that wait for the timeout.
const SHORT_TIMEOUT: Duration = Duration::from_millis(60);

/// The scripted peer.
struct TestPeer {
    requests: PipeReader,
    replies: PipeWriter,
    errors: PipeWriter,
}

/// A request as received.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedRequest {
    kind: u8,
    id: u32,
    body: Vec<u8>,
}

fn length_prefixed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn version_packet(extensions: &[(&str, &str)]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 3];
    for (name, value) in extensions {
        frame.extend(length_prefixed(name.as_bytes()));
        frame.extend(length_prefixed(value.as_bytes()));
    }
    length_prefixed(&frame)
}

fn piped_link() -> (SessionPipes, TestPeer) {
    let (requests, input) = io::pipe().unwrap();
    let (output, replies) = io::pipe().unwrap();
    let (heard, errors) = io::pipe().unwrap();
    let link = SessionPipes {
        input: input.into(),
        output: output.into(),
        stderr: Some(heard.into()),
    };
    let peer = TestPeer {
        requests,
        replies,
        errors,
    };
    (link, peer)
}

fn deadline_in(time: Duration) -> Instant {
    Instant::now() + time
}

/// Starts a session whose VERSION has arrived.
fn started_session(patience: Duration) -> (Session, TestPeer) {
    let (link, mut peer) = piped_link();
    peer.send_bytes(&version_packet(&[]));
    let session = Session::start_with_timeout(link, deadline_in(LONG_TIMEOUT), patience).unwrap();
    assert_eq!(peer.read_exactly(9), b"\0\0\0\x05\x01\0\0\0\x03");
    (session, peer)
}

impl TestPeer {
    fn send_bytes(&mut self, bytes: &[u8]) {
        self.replies.write_all(bytes).unwrap();
    }

    fn send_reply(&mut self, kind: u8, id: u32, body: &[u8]) {
        let packet = [&[kind][..], &id.to_be_bytes(), body].concat();
        self.send_bytes(&length_prefixed(&packet));
    }

    fn send_status(&mut self, asked: &ReceivedRequest, code: u32) {
        self.send_reply(101, asked.id, &code.to_be_bytes());
    }

    fn send_handle(&mut self, asked: &ReceivedRequest, handle: &[u8]) {
        self.send_reply(102, asked.id, &length_prefixed(handle));
    }

    fn read_exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut read = 0;
        while read < length {
            assert!(
                self.is_readable_within(LONG_TIMEOUT),
                "nothing more is asked"
            );
            read += match self.requests.read(&mut bytes[read..]).unwrap() {
                0 => panic!("the session is over"),
                more => more,
            };
        }
        bytes
    }

    /// Returns whether there is something to read within this time.
    fn is_readable_within(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(&self.requests, PollFlags::IN)];
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&time)) == Ok(1)
    }

    /// Returns the requests of one read, which are those of one write if nothing was readable
    /// before.
    fn requests_of_one_read(&mut self) -> Vec<ReceivedRequest> {
        let mut bytes = vec![0; 1 << 17];
        assert!(
            self.is_readable_within(LONG_TIMEOUT),
            "nothing more is asked"
        );
        let length = self.requests.read(&mut bytes).unwrap();
        bytes.truncate(length);
        let mut rest = &bytes[..];
        let mut asked = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes(*rest.first_chunk().unwrap()) as usize;
            asked.push(ReceivedRequest::new(&rest[4..4 + length]));
            rest = &rest[4 + length..];
        }
        asked
    }

    fn next_request(&mut self) -> ReceivedRequest {
        let head = self.read_exactly(4).try_into().unwrap();
        let frame = self.read_exactly(u32::from_be_bytes(head) as usize);
        ReceivedRequest::new(&frame)
    }

    /// Returns whether the session closes its side within this time.
    fn is_closed_within(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(&self.replies, PollFlags::empty())];
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        poll(&mut fds, Some(&time)) == Ok(1)
    }

    /// Asserts that nothing was sent so far; something sent later is not detected.
    fn assert_nothing_sent(&self) {
        assert!(!self.is_readable_within(Duration::ZERO));
    }

    /// Asserts that the session has closed its end of every pipe.
    fn assert_closed(mut self) {
        let mut rest = Vec::new();
        self.requests.read_to_end(&mut rest).unwrap();
        // Another thread that is just starting a process holds a copy for an instant.
        while self.replies.write_all(b"x").is_ok() {}
        while self.errors.write_all(b"x").is_ok() {}
    }
}

impl ReceivedRequest {
    fn new(frame: &[u8]) -> ReceivedRequest {
        ReceivedRequest {
            kind: frame[0],
            id: u32::from_be_bytes(*frame[1..].first_chunk().unwrap()),
            body: frame[5..].to_vec(),
        }
    }

    fn matches_request(&self, request: &Request) -> bool {
        let mut packet = Vec::new();
        request.encode(self.id, &mut packet);
        packet[4] == self.kind && packet[9..] == self.body
    }
}

fn lstat_request(name: &str) -> Request {
    let path = name.into();
    Request::Lstat(path)
}

fn open_request() -> Request {
    Request::Open {
        path: b"/notes".to_vec(),
        flags: 1,
        mode: None,
    }
}

fn read_request(length: u32) -> Request {
    Request::Read {
        handle: b"h".to_vec(),
        offset: 0,
        length,
    }
}

fn write_request(length: usize) -> Request {
    Request::Write {
        handle: b"h".to_vec(),
        offset: 0,
        bytes: vec![7; length],
    }
}

fn rename_pair(number: usize) -> Vec<Request> {
    let path = |end: &str| format!("/home/agent-{number}/notes/{end}").into_bytes();
    let (from, to) = (path("MEMORY.md"), path(".aside-0123456789abcdef"));
    let new = path(".shepherd-0123456789abcdef");
    vec![
        Request::PosixRename {
            from: from.clone(),
            to,
        },
        Request::HardLink {
            from: new,
            to: from,
        },
    ]
}

fn status_code(answer: &Result<Reply, RequestError>) -> u32 {
    match answer {
        Ok(Reply::Status(code)) => *code,
        answer => panic!("{answer:?}"),
    }
}

fn session_error(answer: &Result<Reply, RequestError>) -> SessionError {
    match answer {
        Err(RequestError::SessionEnded(broken)) => broken.clone(),
        answer => panic!("{answer:?}"),
    }
}

/// Waits until the condition holds.
fn wait_until(session: &Session, so: impl Fn(&SessionState) -> bool) {
    let end = deadline_in(LONG_TIMEOUT);
    while !so(&lock(&session.0.shared.state)) {
        assert!(Instant::now() < end);
        thread::yield_now();
    }
}

/// Waits until everything written to a pipe has been read.
fn wait_until_read(pipe: &PipeWriter) {
    let end = deadline_in(LONG_TIMEOUT);
    while rustix::io::ioctl_fionread(pipe) != Ok(0) {
        assert!(Instant::now() < end);
        thread::yield_now();
    }
}

#[test]
fn replies_match_requests_in_any_order() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let first = session.send_batch(vec![lstat_request("a"), open_request()]);
    let second = session.send_batch(vec![lstat_request("b")]);
    let asked = [
        peer.next_request(),
        peer.next_request(),
        peer.next_request(),
    ];
    assert!(
        asked[0].matches_request(&lstat_request("a"))
            && asked[1].matches_request(&open_request())
            && asked[2].matches_request(&lstat_request("b"))
    );
    peer.send_status(&asked[2], 2);
    peer.send_handle(&asked[1], b"\0\0\0\x80");
    peer.send_status(&asked[0], 11);
    let answers = first.wait();
    assert_eq!(status_code(&answers[0]), 11);
    assert!(matches!(&answers[1], Ok(Reply::Handle(handle)) if handle == b"\0\0\0\x80"));
    assert_eq!(status_code(&second.wait()[0]), 2);
    assert!(session.latency().is_some());
    assert!(session.send_batch(Vec::new()).wait().is_empty());
    assert!(session.end_error().is_none());
}

#[test]
fn session_works_over_a_socket() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let link = SessionPipes {
        input: ours.try_clone().unwrap().into(),
        output: ours.into(),
        stderr: None,
    };
    theirs.write_all(&version_packet(&[])).unwrap();
    let session = Session::start(link, deadline_in(LONG_TIMEOUT)).unwrap();
    let pending = session.send_batch(vec![lstat_request("a")]);
    let mut bytes = [0; 9 + 14];
    theirs.read_exact(&mut bytes).unwrap();
    let id = *bytes[14..].first_chunk::<4>().unwrap();
    let packet = [&[101][..], &id, &[0, 0, 0, 2]].concat();
    theirs.write_all(&length_prefixed(&packet)).unwrap();
    assert_eq!(status_code(&pending.wait()[0]), 2);
    drop(session);
    assert_eq!(theirs.read(&mut bytes).unwrap(), 0);
}

#[test]
fn limits_are_requested_only_where_offered() {
    let (link, mut peer) = piped_link();
    let offered = [("limits@openssh.com", "1"), ("fsync@openssh.com", "1")];
    peer.send_bytes(&version_packet(&offered));
    let session = Session::start(link, deadline_in(LONG_TIMEOUT)).unwrap();
    peer.read_exactly(9);
    assert!(session.extensions().fsync && !session.extensions().hardlink);
    let asked = peer.next_request();
    assert!(asked.matches_request(&Request::Limits));
    let numbers: Vec<u8> = [9, 8, 7, 1019_u64]
        .into_iter()
        .flat_map(u64::to_be_bytes)
        .collect();
    peer.send_reply(201, asked.id, &numbers);
    assert_eq!(session.limits().unwrap().handles, 1019);
    assert_eq!(session.limits().unwrap().write, 7);
    let (session, _peer) = super::tests::started_session(LONG_TIMEOUT);
    assert_eq!(session.limits(), None);
}

#[test]
fn batch_is_sent_in_one_write() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let batch: Vec<Request> = (0..200)
        .map(|n| lstat_request(&format!("/agents/{n:040}")))
        .collect();
    let pending = session.send_batch(batch.clone());
    let asked = peer.requests_of_one_read();
    assert_eq!(asked.len(), batch.len());
    for (asked, request) in asked.iter().zip(&batch) {
        assert!(asked.matches_request(request));
        peer.send_status(asked, 2);
    }
    assert!(pending.wait().iter().all(|answer| status_code(answer) == 2));
}

#[test]
fn requests_queued_while_busy_leave_in_one_write() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    // More than a pipe holds, so that the rest waits.
    let long = session.send_batch(vec![write_request(200_000)]);
    wait_until(&session, |state| state.queued_bytes < 200_000);
    let many: Vec<PendingReplies> = (0..300)
        .map(|n| session.send_batch(vec![lstat_request(&format!("{n}"))]))
        .collect();
    let asked = peer.next_request();
    assert!(asked.matches_request(&write_request(200_000)));
    peer.send_status(&asked, 0);
    let asked = peer.requests_of_one_read();
    assert_eq!(asked.len(), many.len());
    for (number, (pending, asked)) in many.into_iter().zip(&asked).enumerate() {
        assert!(asked.matches_request(&lstat_request(&format!("{number}"))));
        peer.send_status(asked, number as u32 + 1);
        assert_eq!(status_code(&pending.wait()[0]), number as u32 + 1);
    }
    assert_eq!(status_code(&long.wait()[0]), 0);
}

#[test]
fn replies_may_arrive_byte_by_byte() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let pending = session.send_batch(vec![read_request(3), lstat_request("a")]);
    let asked = [peer.next_request(), peer.next_request()];
    let data = [
        &[103][..],
        &asked[0].id.to_be_bytes(),
        &length_prefixed(b"abc"),
    ]
    .concat();
    let status = [&[101][..], &asked[1].id.to_be_bytes(), &[0, 0, 0, 9]].concat();
    for byte in [length_prefixed(&data), length_prefixed(&status)].concat() {
        peer.send_bytes(&[byte]);
        thread::yield_now();
    }
    let answers = pending.wait();
    assert!(matches!(&answers[0], Ok(Reply::Data(bytes)) if bytes == b"abc"));
    assert_eq!(status_code(&answers[1]), 9);
}

#[test]
fn malformed_reply_fails_only_its_request() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let pending = session.send_batch(vec![
        read_request(3),
        read_request(3),
        open_request(),
        lstat_request("a"),
        lstat_request("b"),
        lstat_request("c"),
    ]);
    let asked: Vec<ReceivedRequest> = (0..6).map(|_| peer.next_request()).collect();
    peer.send_reply(103, asked[0].id, &length_prefixed(b"abcd"));
    peer.send_reply(103, asked[1].id, &length_prefixed(b""));
    peer.send_reply(102, asked[2].id, &length_prefixed(&[1; 300]));
    peer.send_reply(104, asked[3].id, b"\xff\xff\xff\xff");
    peer.send_reply(101, asked[4].id, b"");
    peer.send_reply(105, asked[5].id, b"\0\0\0\x04\0\0\x81\xa4");
    let answers = pending.wait();
    for answer in &answers[..5] {
        assert!(
            matches!(answer, Err(RequestError::Malformed(_))),
            "{answer:?}"
        );
    }
    let mode = Some(0o100_644);
    let found = Attrs {
        mode,
        ..Attrs::default()
    };
    assert!(matches!(answers[5], Ok(Reply::Attrs(attrs)) if attrs == found));
    assert!(session.end_error().is_none());
}

#[test]
fn unsendable_request_keeps_its_batch_unsent() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let mut both = rename_pair(1);
    both.push(lstat_request("a\0b"));
    for answer in session.send_isolated(both, Vec::new()).wait() {
        assert!(
            matches!(&answer, Err(RequestError::NotSent(_))),
            "{answer:?}"
        );
    }
    let pending = session.send_batch(vec![lstat_request("a")]);
    let asked = peer.next_request();
    assert!(asked.matches_request(&lstat_request("a")));
    peer.send_status(&asked, 0);
    pending.wait();
}

#[test]
fn many_threads_share_a_session() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let askers: Vec<_> = (0..8_u32)
        .map(|thread| {
            let session = session.clone();
            thread::spawn(move || {
                for round in 0..50 {
                    // 0 would not be a reply to such a request.
                    let number = thread * 1000 + round + 1;
                    let name = format!("{number}");
                    let batch = vec![lstat_request(&name), lstat_request(&name)];
                    let pending = match round % 5 {
                        0 => session.send_isolated(batch, Vec::new()),
                        _ => session.send_batch(batch),
                    };
                    for answer in pending.wait() {
                        assert_eq!(status_code(&answer), number);
                    }
                }
            })
        })
        .collect();
    for _ in 0..8 * 50 * 2 {
        let asked = peer.next_request();
        let name = std::str::from_utf8(&asked.body[4..]).unwrap();
        peer.send_status(&asked, name.parse().unwrap());
    }
    for asker in askers {
        asker.join().unwrap();
    }
    peer.assert_nothing_sent();
}

/// A deadline that moves from far away to the past.
struct MovingDeadline {
    begun: Instant,
    moved: AtomicBool,
    asked: AtomicUsize,
    waker: Mutex<Option<SessionWaker>>,
}

impl Deadline for Arc<MovingDeadline> {
    fn instant(&self) -> Instant {
        let far = if self.moved.load(Ordering::SeqCst) {
            Duration::ZERO
        } else {
            Duration::from_secs(24 * 3600)
        };
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.begun + far
    }

    fn set_waker(&mut self, waker: SessionWaker) {
        *lock(&self.waker) = Some(waker);
    }
}
