//! A session whose other side follows a script. Both are driven from one thread:
//! what the script says waits in pipes, and it blocks where it reads.

#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::transport::sftp::wire::{Attrs, status};

/// Long enough that only what hangs meets it.
const LONG: Duration = Duration::from_secs(20);

/// For what is to end that way.
const SHORT: Duration = Duration::from_millis(60);

/// The other side.
struct Peer {
    requests: PipeReader,
    replies: PipeWriter,
    errors: PipeWriter,
}

/// A request as it arrived.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    kind: u8,
    id: u32,
    body: Vec<u8>,
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn version(extensions: &[(&str, &str)]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 3];
    for (name, value) in extensions {
        frame.extend(string(name.as_bytes()));
        frame.extend(string(value.as_bytes()));
    }
    string(&frame)
}

fn pipes() -> (Link, Peer) {
    let (requests, input) = io::pipe().unwrap();
    let (output, replies) = io::pipe().unwrap();
    let (heard, errors) = io::pipe().unwrap();
    let link = Link {
        input: input.into(),
        output: output.into(),
        errors: Some(heard.into()),
    };
    let peer = Peer {
        requests,
        replies,
        errors,
    };
    (link, peer)
}

fn soon(time: Duration) -> Instant {
    Instant::now() + time
}

/// A session that was greeted.
fn session(patience: Duration) -> (Session, Peer) {
    let (link, mut peer) = pipes();
    peer.say(&version(&[]));
    let session = Session::start_with(link, soon(LONG), patience).unwrap();
    assert_eq!(peer.read(9), b"\0\0\0\x05\x01\0\0\0\x03");
    (session, peer)
}

impl Peer {
    fn say(&mut self, bytes: &[u8]) {
        self.replies.write_all(bytes).unwrap();
    }

    fn reply(&mut self, kind: u8, id: u32, body: &[u8]) {
        let packet = [&[kind][..], &id.to_be_bytes(), body].concat();
        self.say(&string(&packet));
    }

    fn status(&mut self, asked: &Asked, code: u32) {
        self.reply(101, asked.id, &code.to_be_bytes());
    }

    fn handle(&mut self, asked: &Asked, handle: &[u8]) {
        self.reply(102, asked.id, &string(handle));
    }

    fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut read = 0;
        while read < length {
            assert!(self.hears(LONG), "nothing more is asked");
            read += match self.requests.read(&mut bytes[read..]).unwrap() {
                0 => panic!("the session is over"),
                more => more,
            };
        }
        bytes
    }

    /// Whether there is something to read within that time.
    fn hears(&self, time: Duration) -> bool {
        let mut fds = [PollFd::new(&self.requests, PollFlags::IN)];
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&time)) == Ok(1)
    }

    /// What one read gets, which is what one write sent where nothing was there
    /// before.
    fn one_read(&mut self) -> Vec<Asked> {
        let mut bytes = vec![0; 1 << 17];
        assert!(self.hears(LONG), "nothing more is asked");
        let length = self.requests.read(&mut bytes).unwrap();
        bytes.truncate(length);
        let mut rest = &bytes[..];
        let mut asked = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes(*rest.first_chunk().unwrap()) as usize;
            asked.push(Asked::new(&rest[4..4 + length]));
            rest = &rest[4 + length..];
        }
        asked
    }

    fn next(&mut self) -> Asked {
        let head = self.read(4).try_into().unwrap();
        let frame = self.read(u32::from_be_bytes(head) as usize);
        Asked::new(&frame)
    }

    /// Nothing else has been sent. What is sent late is missed.
    fn nothing_more(&self) {
        assert!(!self.hears(Duration::ZERO));
    }

    /// Our end of every pipe is closed.
    fn has_been_left(mut self) {
        let mut rest = Vec::new();
        self.requests.read_to_end(&mut rest).unwrap();
        // Whoever is just starting a process has a copy of it for an instant.
        while self.replies.write_all(b"x").is_ok() {}
        while self.errors.write_all(b"x").is_ok() {}
    }
}

impl Asked {
    fn new(frame: &[u8]) -> Asked {
        Asked {
            kind: frame[0],
            id: u32::from_be_bytes(*frame[1..].first_chunk().unwrap()),
            body: frame[5..].to_vec(),
        }
    }

    fn is(&self, request: &Request) -> bool {
        let mut packet = Vec::new();
        request.encode(self.id, &mut packet);
        packet[4] == self.kind && packet[9..] == self.body
    }
}

fn lstat(name: &str) -> Request {
    let path = name.into();
    Request::Lstat { path }
}

fn open() -> Request {
    Request::Open {
        path: b"/notes".to_vec(),
        flags: 1,
        mode: None,
    }
}

fn get(length: u32) -> Request {
    Request::Read {
        handle: b"h".to_vec(),
        offset: 0,
        length,
    }
}

fn put(length: usize) -> Request {
    Request::Write {
        handle: b"h".to_vec(),
        offset: 0,
        bytes: vec![7; length],
    }
}

fn pair(number: usize) -> Vec<Request> {
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

fn code(answer: &Result<Reply, Failure>) -> u32 {
    match answer {
        Ok(Reply::Status { code, .. }) => *code,
        answer => panic!("{answer:?}"),
    }
}

fn broken(answer: &Result<Reply, Failure>) -> Broken {
    match answer {
        Err(Failure::Broken(broken)) => broken.clone(),
        answer => panic!("{answer:?}"),
    }
}

/// Waits until it is so.
fn until(session: &Session, so: impl Fn(&State) -> bool) {
    let end = soon(LONG);
    while !so(&lock(&session.0.shared.state)) {
        assert!(Instant::now() < end);
        thread::yield_now();
    }
}

#[test]
fn replies_go_to_whoever_asked_in_any_order() {
    let (session, mut peer) = session(LONG);
    let first = session.ask(vec![lstat("a"), open()]);
    let second = session.ask(vec![lstat("b")]);
    let asked = [peer.next(), peer.next(), peer.next()];
    assert!(asked[0].is(&lstat("a")) && asked[1].is(&open()) && asked[2].is(&lstat("b")));
    peer.status(&asked[2], 2);
    peer.handle(&asked[1], b"\0\0\0\x80");
    peer.status(&asked[0], 11);
    let answers = first.wait();
    assert_eq!(code(&answers[0]), 11);
    assert!(matches!(&answers[1], Ok(Reply::Handle(handle)) if handle == b"\0\0\0\x80"));
    assert_eq!(code(&second.wait()[0]), 2);
    assert!(session.latency().is_some());
    assert!(session.ask(Vec::new()).wait().is_empty());
    assert!(session.ended().is_none());
}

#[test]
fn a_socket_will_do_as_well_as_pipes() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let link = Link {
        input: ours.try_clone().unwrap().into(),
        output: ours.into(),
        errors: None,
    };
    theirs.write_all(&version(&[])).unwrap();
    let session = Session::start(link, soon(LONG)).unwrap();
    let pending = session.ask(vec![lstat("a")]);
    let mut bytes = [0; 9 + 14];
    theirs.read_exact(&mut bytes).unwrap();
    let id = *bytes[14..].first_chunk::<4>().unwrap();
    let packet = [&[101][..], &id, &[0, 0, 0, 2]].concat();
    theirs.write_all(&string(&packet)).unwrap();
    assert_eq!(code(&pending.wait()[0]), 2);
    drop(session);
    assert_eq!(theirs.read(&mut bytes).unwrap(), 0);
}

#[test]
fn limits_are_asked_for_where_they_are_offered() {
    let (link, mut peer) = pipes();
    let offered = [("limits@openssh.com", "1"), ("fsync@openssh.com", "1")];
    peer.say(&version(&offered));
    let session = Session::start(link, soon(LONG)).unwrap();
    peer.read(9);
    assert!(session.extensions().fsync && !session.extensions().hardlink);
    let asked = peer.next();
    assert!(asked.is(&Request::Limits));
    let numbers: Vec<u8> = [9, 8, 7, 1019_u64]
        .into_iter()
        .flat_map(u64::to_be_bytes)
        .collect();
    peer.reply(201, asked.id, &numbers);
    assert_eq!(session.limits().unwrap().handles, 1019);
    assert_eq!(session.limits().unwrap().write, 7);
    let (session, _peer) = super::tests::session(LONG);
    assert_eq!(session.limits(), None);
}

#[test]
fn a_batch_leaves_in_one_write() {
    let (session, mut peer) = session(LONG);
    let batch: Vec<Request> = (0..200)
        .map(|n| lstat(&format!("/agents/{n:040}")))
        .collect();
    let pending = session.ask(batch.clone());
    let asked = peer.one_read();
    assert_eq!(asked.len(), batch.len());
    for (asked, request) in asked.iter().zip(&batch) {
        assert!(asked.is(request));
        peer.status(asked, 2);
    }
    assert!(pending.wait().iter().all(|answer| code(answer) == 2));
}

#[test]
fn what_is_asked_while_the_other_side_is_busy_leaves_in_one_write() {
    let (session, mut peer) = session(LONG);
    // More than a pipe holds, so that the rest waits.
    let long = session.ask(vec![put(200_000)]);
    until(&session, |state| state.queued < 200_000);
    let many: Vec<Pending> = (0..300)
        .map(|n| session.ask(vec![lstat(&format!("{n}"))]))
        .collect();
    let asked = peer.next();
    assert!(asked.is(&put(200_000)));
    peer.status(&asked, 0);
    let asked = peer.one_read();
    assert_eq!(asked.len(), many.len());
    for (number, (pending, asked)) in many.into_iter().zip(&asked).enumerate() {
        assert!(asked.is(&lstat(&format!("{number}"))));
        peer.status(asked, number as u32 + 1);
        assert_eq!(code(&pending.wait()[0]), number as u32 + 1);
    }
    assert_eq!(code(&long.wait()[0]), 0);
}

#[test]
fn pairs_go_apart_and_are_never_cut() {
    let (session, mut peer) = session(LONG);
    let before = session.ask(vec![get(10), lstat("before")]);
    let pairs: Vec<Pending> = (0..150)
        .map(|n| session.ask_apart(pair(n), Vec::new()))
        .collect();
    let after = session.ask(vec![lstat("after")]);
    let asked = [peer.next(), peer.next()];
    peer.reply(103, asked[0].id, &string(b"abc"));
    // Something is under way still.
    peer.nothing_more();
    peer.status(&asked[1], 2);
    assert_eq!(before.wait().len(), 2);
    let (mut number, mut bursts, mut last) = (0, 0, None);
    while number < pairs.len() {
        let mut burst = peer.one_read();
        // In a write of its own, right behind the last of them.
        if number + burst.len() / 2 == pairs.len() {
            last = burst.pop_if(|asked| asked.is(&lstat("after")));
        }
        let bytes: usize = burst.iter().map(|asked| 9 + asked.body.len()).sum();
        assert!(bytes <= BURST && burst.len().is_multiple_of(2), "{bytes}");
        for both in burst.chunks(2) {
            let sent = pair(number);
            assert!(both[0].is(&sent[0]) && both[1].is(&sent[1]));
            number += 1;
        }
        // The next burst waits for the last reply to this one.
        for asked in &burst {
            if number < pairs.len() {
                peer.nothing_more();
            }
            peer.status(asked, 0);
        }
        bursts += 1;
    }
    assert!((2..=4).contains(&bursts), "{bursts}");
    for pending in pairs {
        assert!(pending.wait().iter().all(|answer| code(answer) == 0));
    }
    let asked = last.unwrap_or_else(|| peer.next());
    assert!(asked.is(&lstat("after")));
    peer.status(&asked, 2);
    after.wait();
}

#[test]
fn what_is_to_be_known_after_pairs_is_asked_behind_all_of_them() {
    let (session, mut peer) = session(LONG);
    let block = session.ask(vec![lstat("block")]);
    let look = |n: usize| vec![lstat(&format!("memory-{n}")), lstat(&format!("aside-{n}"))];
    let pairs: Vec<Pending> = (0..3)
        .map(|n| session.ask_apart(pair(n), look(n)))
        .collect();
    let asked = peer.next();
    peer.status(&asked, 0);
    block.wait();
    let burst = peer.one_read();
    let expected: Vec<Request> = (0..3).flat_map(pair).chain((0..3).flat_map(look)).collect();
    assert_eq!(burst.len(), expected.len());
    for (number, (asked, expected)) in burst.iter().zip(&expected).enumerate() {
        assert!(asked.is(expected));
        peer.status(asked, number as u32 + 1);
    }
    for (n, pending) in pairs.into_iter().enumerate() {
        let codes: Vec<u32> = pending.wait().iter().map(code).collect();
        let [first, behind] = [2 * n as u32 + 1, 6 + 2 * n as u32 + 1];
        assert_eq!(codes, [first, first + 1, behind, behind + 1]);
    }
}

#[test]
fn a_pair_too_long_for_a_burst_goes_alone_and_whole() {
    let (session, mut peer) = session(LONG);
    let long = |n: usize| {
        let path = |c: char| format!("/{c}{n}{}", "x".repeat(5_000)).into_bytes();
        let (from, to, new) = (path('a'), path('b'), path('c'));
        let first = Request::PosixRename {
            from: from.clone(),
            to,
        };
        let second = Request::HardLink {
            from: new,
            to: from,
        };
        vec![first, second]
    };
    let block = session.ask(vec![lstat("block")]);
    let pairs: Vec<Pending> = (0..3)
        .map(|n| session.ask_apart(long(n), Vec::new()))
        .collect();
    let asked = peer.next();
    peer.status(&asked, 0);
    block.wait();
    for (n, pending) in pairs.into_iter().enumerate() {
        let burst = peer.one_read();
        assert_eq!(burst.len(), 2);
        assert!(burst[0].is(&long(n)[0]) && burst[1].is(&long(n)[1]));
        for asked in &burst {
            peer.status(asked, 0);
        }
        pending.wait();
    }
    let many = vec![lstat("x"); MOST_IN_FLIGHT + 1];
    let refused = session.ask_apart(many, Vec::new()).wait();
    assert!(
        refused
            .iter()
            .all(|it| matches!(it, Err(Failure::Malformed(_))))
    );
}

#[test]
fn no_more_than_1024_requests_are_without_a_reply() {
    let (session, mut peer) = session(LONG);
    let count = 1500;
    let pending = session.ask((0..count).map(|n| lstat(&format!("{n}"))).collect());
    let asked: Vec<Asked> = (0..MOST_IN_FLIGHT).map(|_| peer.next()).collect();
    peer.nothing_more();
    // As a peer may, though servers do not.
    for (number, asked) in asked.iter().enumerate().rev() {
        peer.status(asked, number as u32 + 1);
    }
    for number in MOST_IN_FLIGHT..count {
        let asked = peer.next();
        peer.status(&asked, number as u32 + 1);
    }
    let codes: Vec<u32> = pending.wait().iter().map(code).collect();
    assert_eq!(codes, (1..=count as u32).collect::<Vec<_>>());
}

#[test]
fn no_more_than_two_mebibytes_are_expected() {
    let (session, mut peer) = session(LONG);
    let reads = session.ask(vec![get(65_536); 60]);
    let behind = session.ask(vec![lstat("behind")]);
    let mut asked: VecDeque<Asked> = (0..32).map(|_| peer.next()).collect();
    peer.nothing_more();
    for number in 0..60 {
        let one = asked.pop_front().unwrap();
        peer.reply(103, one.id, &string(&vec![number; 65_536]));
        if number < 28 {
            // In their order, and nothing overtakes them.
            asked.push_back(peer.next());
            assert!(asked.back().unwrap().is(&get(65_536)));
        }
    }
    let answers = reads.wait();
    for (number, answer) in answers.iter().enumerate() {
        assert!(
            matches!(answer, Ok(Reply::Data(bytes)) if bytes.len() == 65_536
                && bytes[0] as usize == number)
        );
    }
    let last = peer.next();
    assert!(last.is(&lstat("behind")));
    peer.status(&last, 0);
    behind.wait();
}

#[test]
fn who_asks_too_much_waits_until_there_is_room() {
    let (session, mut peer) = session(LONG);
    let first = session.ask(vec![put(200_000); 5]);
    let other = session.clone();
    let asker = thread::spawn(move || other.ask(vec![put(200_000); 5]).wait().len());
    until(&session, |state| state.waiting.len() == 1);
    assert!(lock(&session.0.shared.state).queued <= MOST_QUEUED);
    // There would be room for this, but others came before.
    let other = session.clone();
    let small = thread::spawn(move || other.ask(vec![lstat("small")]).wait().len());
    until(&session, |state| state.waiting.len() == 2);
    for _ in 0..10 {
        let asked = peer.next();
        assert!(asked.is(&put(200_000)));
        assert!(lock(&session.0.shared.state).queued <= MOST_QUEUED);
        peer.status(&asked, 0);
    }
    let asked = peer.next();
    assert!(asked.is(&lstat("small")));
    peer.status(&asked, 2);
    assert_eq!(first.wait().len(), 5);
    assert_eq!((asker.join().unwrap(), small.join().unwrap()), (5, 1));
}

#[test]
fn a_batch_beyond_all_room_goes_piece_by_piece() {
    let (session, mut peer) = session(LONG);
    let other = session.clone();
    let asker = thread::spawn(move || other.ask(vec![put(250_000); 12]).wait());
    for number in 0..12 {
        let asked = peer.next();
        assert!(asked.is(&put(250_000)));
        peer.status(&asked, number);
    }
    let codes: Vec<u32> = asker.join().unwrap().iter().map(code).collect();
    assert_eq!(codes, (0..12).collect::<Vec<_>>());
}

#[test]
fn a_peer_that_never_reads_ends_the_session_and_every_wait() {
    let (alone, peer) = session(SHORT);
    let pending = alone.ask(vec![put(250_000)]);
    assert_eq!(broken(&pending.wait()[0]).why, Why::NoAnswer(SHORT));
    drop(alone);
    peer.has_been_left();
    let (session, peer) = session(SHORT);
    let first = session.ask(vec![put(250_000); 4]);
    // There is no room for these.
    let second = session.ask(vec![put(250_000); 4]);
    for pending in [first, second] {
        for answer in pending.wait() {
            assert_eq!(broken(&answer).why, Why::NoAnswer(SHORT));
        }
    }
    assert_eq!(session.ended().unwrap().why, Why::NoAnswer(SHORT));
    // And whoever comes later.
    assert!(broken(&session.ask(vec![open()]).wait()[0]).greeted);
    drop(session);
    peer.has_been_left();
}

#[test]
fn a_reply_that_does_not_come_ends_the_session() {
    // Long enough for the first reply on a busy machine.
    let patience = Duration::from_secs(3);
    let (session, mut peer) = session(patience);
    let pending = session.ask(vec![lstat("a"), lstat("b")]);
    let waits = session.ask_apart(pair(1), Vec::new());
    let asked = peer.next();
    peer.status(&asked, 2);
    let answers = pending.wait();
    assert_eq!(code(&answers[0]), 2);
    let why = broken(&answers[1]);
    assert_eq!(
        (why.why.clone(), why.greeted),
        (Why::NoAnswer(patience), true)
    );
    assert_eq!(why.to_string(), "no answer for 3 s");
    assert_eq!(broken(&waits.wait()[1]).why, Why::NoAnswer(patience));
    drop(session);
    peer.has_been_left();
}

#[test]
fn a_reply_that_never_ends_does_not_hold_anybody() {
    let (session, mut peer) = session(SHORT);
    let pending = session.ask(vec![get(200_000)]);
    let asked = peer.next();
    let head = [&[0, 3, 0, 0, 103][..], &asked.id.to_be_bytes()].concat();
    let _ = peer.replies.write_all(&head);
    // Until our end is closed, which happens long before so many bytes.
    while peer.replies.write_all(b"x").is_ok() {}
    assert_eq!(broken(&pending.wait()[0]).why, Why::NoAnswer(SHORT));
}

#[test]
fn replies_may_come_byte_by_byte() {
    let (session, mut peer) = session(LONG);
    let pending = session.ask(vec![get(3), lstat("a")]);
    let asked = [peer.next(), peer.next()];
    let data = [&[103][..], &asked[0].id.to_be_bytes(), &string(b"abc")].concat();
    let status = [&[101][..], &asked[1].id.to_be_bytes(), &[0, 0, 0, 9]].concat();
    for byte in [string(&data), string(&status)].concat() {
        peer.say(&[byte]);
        thread::yield_now();
    }
    let answers = pending.wait();
    assert!(matches!(&answers[0], Ok(Reply::Data(bytes)) if bytes == b"abc"));
    assert_eq!(code(&answers[1]), 9);
}

#[test]
fn one_odd_reply_is_no_other_request_s_trouble() {
    let (session, mut peer) = session(LONG);
    let pending = session.ask(vec![
        get(3),
        get(3),
        open(),
        lstat("a"),
        lstat("b"),
        lstat("c"),
    ]);
    let asked: Vec<Asked> = (0..6).map(|_| peer.next()).collect();
    peer.reply(103, asked[0].id, &string(b"abcd"));
    peer.reply(103, asked[1].id, &string(b""));
    peer.reply(102, asked[2].id, &string(&[1; 300]));
    peer.reply(104, asked[3].id, b"\xff\xff\xff\xff");
    peer.reply(101, asked[4].id, b"");
    peer.reply(105, asked[5].id, b"\0\0\0\x04\0\0\x81\xa4");
    let answers = pending.wait();
    for answer in &answers[..5] {
        assert!(matches!(answer, Err(Failure::Malformed(_))), "{answer:?}");
    }
    let mode = Some(0o100_644);
    let found = Attrs {
        mode,
        ..Attrs::default()
    };
    assert!(matches!(answers[5], Ok(Reply::Attrs(attrs)) if attrs == found));
    assert!(session.ended().is_none());
}

#[test]
fn what_cannot_be_sent_keeps_its_batch_from_being_sent() {
    let (session, mut peer) = session(LONG);
    let mut both = pair(1);
    both.push(lstat("a\0b"));
    for answer in session.ask_apart(both, Vec::new()).wait() {
        assert!(
            matches!(&answer, Err(Failure::Malformed(why)) if why.starts_with("not sent: ")),
            "{answer:?}"
        );
    }
    let pending = session.ask(vec![lstat("a")]);
    let asked = peer.next();
    assert!(asked.is(&lstat("a")));
    peer.status(&asked, 0);
    pending.wait();
}

#[test]
fn bytes_that_answer_nothing_end_the_session() {
    let status = |id: u32| string(&[&[101][..], &id.to_be_bytes(), &[0; 4]].concat());
    // From the id of the one request, what is said.
    type Says = Box<dyn Fn(u32) -> Vec<u8>>;
    let scripts: Vec<(&str, Says)> = vec![
        ("unknown id", Box::new(move |id| status(id + 1))),
        (
            "answered twice",
            Box::new(move |id| [status(id), status(id)].concat()),
        ),
        ("nothing", Box::new(|_| vec![0; 4])),
        ("4 GiB", Box::new(|_| vec![0xFF; 5])),
        ("no id", Box::new(|_| vec![0, 0, 0, 2, 101, 0])),
        ("only a type", Box::new(|_| vec![0, 0, 0, 1, 101])),
        ("VERSION again", Box::new(|_| version(&[]))),
        (
            "a request",
            Box::new(|id| string(&[&[7][..], &id.to_be_bytes(), &[0; 4]].concat())),
        ),
        ("text", Box::new(|_| b"Segmentation fault\n".to_vec())),
    ];
    for (name, says) in scripts {
        let (session, mut peer) = session(LONG);
        let pending = session.ask(vec![lstat("a"), lstat("b")]);
        let asked = peer.next();
        peer.say(&says(asked.id + 1));
        let why = broken(&pending.wait()[0]);
        assert!(
            matches!(why.why, Why::Garbage(_)) && why.greeted,
            "{name}: {why:?}"
        );
        drop(session);
        peer.has_been_left();
    }
}

#[test]
fn a_request_that_was_not_written_yet_has_no_reply() {
    let (session, mut peer) = session(LONG);
    let pending = session.ask(vec![put(200_000)]);
    let id = session.0.shared.state.lock().unwrap().id;
    peer.reply(101, id, &[0; 4]);
    assert!(matches!(broken(&pending.wait()[0]).why, Why::Garbage(_)));
}

#[test]
fn a_session_that_does_not_begin_says_why() {
    let start = |says: &[u8], heard: &[u8], stays: bool| {
        let (link, mut peer) = pipes();
        peer.errors.write_all(heard).unwrap();
        peer.say(says);
        let kept = stays.then_some(peer);
        let deadline = if stays { SHORT } else { LONG };
        let broken = Session::start(link, soon(deadline)).unwrap_err();
        drop(kept);
        assert!(!broken.greeted);
        broken
    };
    let line = b"ssh: connect to host example.org port 22: Connection refused\r\n";
    let ended = start(b"", line, false);
    assert_eq!(
        (&ended.why, &ended.heard.before[..]),
        (&Why::EndOfFile, &line[..])
    );
    assert!(ended.heard.after.is_empty());
    assert_eq!(ended.to_string(), "the connection ended before SFTP began");
    let mute = start(b"", b"", true);
    assert!(matches!(mute.why, Why::NoAnswer(time) if time <= SHORT));
    assert!(matches!(
        start(&version(&[])[..7], b"", true).why,
        Why::NoAnswer(_)
    ));
    let shell = start(b"Welcome to example.org!\n", b"", false);
    assert!(shell.to_string().contains("login shell"), "{shell}");
    let newer = string(&[2, 0, 0, 0, 4]);
    assert!(matches!(start(&newer, b"", false).why, Why::Garbage(_)));
    let status = string(&[101, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert!(matches!(start(&status, b"", false).why, Why::Garbage(_)));
}

#[test]
fn what_is_said_before_version_and_after_it_is_kept_apart() {
    let (link, mut peer) = pipes();
    let warning = b"Warning: Permanently added 'a' to the list of known hosts.\n";
    peer.errors.write_all(warning).unwrap();
    let starting = thread::spawn(move || Session::start(link, soon(LONG)).unwrap());
    peer.read(9);
    // The words are read as soon as they are there.
    until_read(&peer.errors);
    peer.say(&version(&[]));
    let session = starting.join().unwrap();
    let pending = session.ask(vec![lstat("a")]);
    peer.next();
    let lost = b"Connection to a closed by remote host.\r\n";
    peer.errors.write_all(lost).unwrap();
    drop(peer);
    let ended = broken(&pending.wait()[0]);
    assert_eq!((ended.why.clone(), ended.greeted), (Why::EndOfFile, true));
    assert_eq!(ended.heard.before, warning);
    assert_eq!(ended.heard.after, lost);
}

/// Waits until what was written to a pipe has been read.
fn until_read(pipe: &PipeWriter) {
    let end = soon(LONG);
    while rustix::io::ioctl_fionread(pipe) != Ok(0) {
        assert!(Instant::now() < end);
        thread::yield_now();
    }
}

#[test]
fn however_much_is_said_little_of_it_is_kept() {
    let (link, peer) = pipes();
    let talker = thread::spawn(move || {
        let mut peer = peer;
        for number in 0..40_000 {
            writeln!(peer.errors, "line {number}").unwrap();
        }
    });
    let ended = Session::start(link, soon(LONG)).unwrap_err();
    talker.join().unwrap();
    assert_eq!(ended.why, Why::EndOfFile);
    let text = String::from_utf8(ended.heard.before.clone()).unwrap();
    assert!(text.len() < 2 * 4096 + 40);
    assert!(text.starts_with("line 0\nline 1\n") && text.ends_with("line 39999\n"));
    for line in text.lines().filter(|line| !line.starts_with('(')) {
        let number = line.strip_prefix("line ").unwrap();
        assert!(number.parse::<u32>().is_ok(), "{line}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with('(')).count(), 1);
}

#[test]
fn handles_that_nobody_waits_for_are_given_back() {
    let (session, mut peer) = session(LONG);
    let close = |handle: &[u8]| Request::Close {
        handle: handle.to_vec(),
    };
    // Dropped before the reply came.
    drop(session.ask(vec![lstat("a"), open(), open()]));
    let asked: Vec<Asked> = (0..3).map(|_| peer.next()).collect();
    peer.status(&asked[0], 2);
    peer.handle(&asked[1], b"late");
    peer.status(&asked[2], 4);
    let given = peer.next();
    assert!(given.is(&close(b"late")));
    peer.status(&given, 0);
    // Dropped after it.
    let unseen = session.ask(vec![open()]);
    let seen = session.ask(vec![open()]);
    for handle in [b"unseen", b"seen  "] {
        let asked = peer.next();
        peer.handle(&asked, handle);
    }
    assert!(matches!(&seen.wait()[0], Ok(Reply::Handle(_))));
    drop(unseen);
    let given = peer.next();
    assert!(given.is(&close(b"unseen")));
    peer.status(&given, 0);
    // And nothing else is.
    let last = session.ask(vec![lstat("last")]);
    let asked = peer.next();
    assert!(asked.is(&lstat("last")));
    peer.status(&asked, 0);
    last.wait();
}

#[test]
fn closing_ends_it_for_everybody() {
    let (session, mut peer) = session(LONG);
    let pending = session.ask(vec![lstat("a")]);
    let clone = session.clone();
    peer.next();
    clone.close();
    assert_eq!(broken(&pending.wait()[0]).why, Why::Closed);
    assert_eq!(
        broken(&session.ask_apart(pair(1), Vec::new()).wait()[0]).why,
        Why::Closed
    );
    peer.has_been_left();
}

#[test]
fn the_last_who_goes_closes_it() {
    let (session, mut peer) = session(LONG);
    let clone = session.clone();
    drop(session);
    let pending = clone.ask(vec![lstat("a")]);
    let asked = peer.next();
    peer.status(&asked, 0);
    pending.wait();
    let late = clone.ask(vec![lstat("b")]);
    drop(clone);
    assert_eq!(broken(&late.wait()[0]).why, Why::Closed);
    peer.has_been_left();
}

#[test]
fn replies_count_that_came_before_the_other_side_left() {
    let (session, mut peer) = session(LONG);
    let first = session.ask(vec![lstat("a")]);
    let asked = peer.next();
    peer.status(&asked, 3);
    let Peer {
        requests, replies, ..
    } = peer;
    drop(requests);
    let second = session.ask(vec![lstat("b")]);
    // Whoever is just starting a process has a copy of it for an instant.
    while session.ended().is_none() {
        drop(session.ask(vec![lstat("c")]));
    }
    assert_eq!(broken(&second.wait()[0]).why, Why::EndOfFile);
    assert_eq!(code(&first.wait()[0]), 3);
    drop(replies);
    let (session, mut peer) = super::tests::session(LONG);
    let both = session.ask(vec![lstat("a"), lstat("b")]);
    let asked = peer.next();
    peer.status(&asked, status::EOF);
    drop(peer);
    let answers = both.wait();
    assert_eq!(code(&answers[0]), status::EOF);
    assert_eq!(broken(&answers[1]).why, Why::EndOfFile);
}

#[test]
fn many_threads_share_a_session() {
    let (session, mut peer) = session(LONG);
    let askers: Vec<_> = (0..8_u32)
        .map(|thread| {
            let session = session.clone();
            thread::spawn(move || {
                for round in 0..50 {
                    // 0 would be no reply to such a request.
                    let number = thread * 1000 + round + 1;
                    let name = format!("{number}");
                    let batch = vec![lstat(&name), lstat(&name)];
                    let pending = match round % 5 {
                        0 => session.ask_apart(batch, Vec::new()),
                        _ => session.ask(batch),
                    };
                    for answer in pending.wait() {
                        assert_eq!(code(&answer), number);
                    }
                }
            })
        })
        .collect();
    for _ in 0..8 * 50 * 2 {
        let asked = peer.next();
        let name = std::str::from_utf8(&asked.body[4..]).unwrap();
        peer.status(&asked, name.parse().unwrap());
    }
    for asker in askers {
        asker.join().unwrap();
    }
    peer.nothing_more();
}

/// A moment that moves from far away to the past.
struct Moving {
    begun: Instant,
    moved: AtomicBool,
    asked: AtomicUsize,
    nearer: OwnedFd,
}

impl Deadline for Arc<Moving> {
    fn at(&self) -> Instant {
        let far = match self.moved.load(Ordering::SeqCst) {
            true => Duration::ZERO,
            false => Duration::from_secs(24 * 3600),
        };
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.begun + far
    }

    fn changed(&self) -> Option<BorrowedFd<'_>> {
        Some(self.nearer.as_fd())
    }
}

#[test]
fn a_deadline_that_moves_nearer_wakes_who_waits_for_version() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let link = Link {
        input: ours.try_clone().unwrap().into(),
        output: ours.into(),
        errors: None,
    };
    let deadline = Arc::new(Moving {
        begun: System.instant(),
        moved: AtomicBool::new(false),
        asked: AtomicUsize::new(0),
        nearer: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
    });
    let until = Arc::clone(&deadline);
    let starting = thread::spawn(move || Session::start(link, until).unwrap_err());
    // Once for its length, twice around the write of INIT; after that nothing
    // happens, so it sleeps on the moment that it was told then.
    while deadline.asked.load(Ordering::SeqCst) < 4 {
        thread::yield_now();
    }
    deadline.moved.store(true, Ordering::SeqCst);
    rustix::io::write(&deadline.nearer, &1_u64.to_ne_bytes()).unwrap();
    let broken = starting.join().unwrap();
    assert!(matches!(broken.why, Why::NoAnswer(_)), "{broken}");
    drop(theirs);
}

#[test]
fn a_reply_that_is_left_out_ends_the_session_whatever_else_is_answered() {
    let (session, mut peer) = session(SHORT);
    let left_out = session.ask(vec![lstat("a")]);
    peer.next();
    let (told, ended) = std::sync::mpsc::channel();
    let waits = thread::spawn(move || {
        let answers = left_out.wait();
        let _ = told.send(());
        answers
    });
    let end = System.instant() + 20 * SHORT;
    while ended.try_recv().is_err() {
        assert!(System.instant() < end, "it is waited for without end");
        let pending = session.ask(vec![lstat("b")]);
        if session.ended().is_none() {
            let asked = peer.next();
            peer.status(&asked, 2);
        }
        drop(pending.wait());
        thread::sleep(SHORT / 4);
    }
    let why = broken(&waits.join().unwrap()[0]);
    assert_eq!(why.why, Why::NoAnswer(SHORT));
}
