//! Tests of how a session ends, and of the error that every waiting caller gets.

use std::sync::mpsc::channel;

use super::*;

#[test]
fn peer_that_never_reads_ends_session_and_waits() {
    let (alone, peer) = started_session(SHORT_TIMEOUT);
    let pending = alone.send_batch(vec![write_request(250_000)]);
    assert_eq!(
        session_error(&pending.wait()[0]).reason,
        CloseReason::ReplyTimeout(SHORT_TIMEOUT)
    );
    drop(alone);
    peer.assert_closed();
    let (session, peer) = started_session(SHORT_TIMEOUT);
    let first = session.send_batch(vec![write_request(250_000); 4]);
    // There is no room for these.
    let second = session.send_batch(vec![write_request(250_000); 4]);
    for pending in [first, second] {
        for answer in pending.wait() {
            assert_eq!(
                session_error(&answer).reason,
                CloseReason::ReplyTimeout(SHORT_TIMEOUT)
            );
        }
    }
    assert_eq!(
        session.end_error().unwrap().reason,
        CloseReason::ReplyTimeout(SHORT_TIMEOUT)
    );
    // Later callers get it, too.
    assert!(session_error(&session.send_batch(vec![open_request()]).wait()[0]).has_greeted);
    drop(session);
    peer.assert_closed();
}

#[test]
fn missing_reply_ends_the_session() {
    // Long enough for the first reply on a busy machine.
    let patience = Duration::from_secs(3);
    let (session, mut peer) = started_session(patience);
    let pending = session.send_batch(vec![lstat_request("a"), lstat_request("b")]);
    let waits = session.send_isolated(rename_pair(1), Vec::new());
    let asked = peer.next_request();
    peer.send_status(&asked, 2);
    let answers = pending.wait();
    assert_eq!(status_code(&answers[0]), 2);
    let why = session_error(&answers[1]);
    assert_eq!(
        (why.reason.clone(), why.has_greeted),
        (CloseReason::ReplyTimeout(patience), true)
    );
    assert_eq!(why.to_string(), "no reply for 3 s");
    assert_eq!(
        session_error(&waits.wait()[1]).reason,
        CloseReason::ReplyTimeout(patience)
    );
    drop(session);
    peer.assert_closed();
}

#[test]
fn endless_reply_times_out() {
    let (session, mut peer) = started_session(SHORT_TIMEOUT);
    let pending = session.send_batch(vec![read_request(200_000)]);
    let asked = peer.next_request();
    let head = [&[0, 3, 0, 0, 103][..], &asked.id.to_be_bytes()].concat();
    let _ = peer.replies.write_all(&head);
    // Until our end closes, which happens long before this many bytes.
    while peer.replies.write_all(b"x").is_ok() {}
    assert_eq!(
        session_error(&pending.wait()[0]).reason,
        CloseReason::ReplyTimeout(SHORT_TIMEOUT)
    );
}

#[test]
fn invalid_bytes_end_the_session() {
    let status = |id: u32| length_prefixed(&[&[101][..], &id.to_be_bytes(), &[0; 4]].concat());
    // From the id of the one request, the reply.
    type ReplyScript = Box<dyn Fn(u32) -> Vec<u8>>;
    let scripts: Vec<(&str, ReplyScript)> = vec![
        ("unknown id", Box::new(move |id| status(id + 1))),
        (
            "answered twice",
            Box::new(move |id| [status(id), status(id)].concat()),
        ),
        ("nothing", Box::new(|_| vec![0; 4])),
        ("4 GiB", Box::new(|_| vec![0xFF; 5])),
        ("no id", Box::new(|_| vec![0, 0, 0, 2, 101, 0])),
        ("only a type", Box::new(|_| vec![0, 0, 0, 1, 101])),
        ("VERSION again", Box::new(|_| version_packet(&[]))),
        (
            "a request",
            Box::new(|id| length_prefixed(&[&[7][..], &id.to_be_bytes(), &[0; 4]].concat())),
        ),
        ("text", Box::new(|_| b"Segmentation fault\n".to_vec())),
    ];
    for (name, says) in scripts {
        let (session, mut peer) = started_session(LONG_TIMEOUT);
        let pending = session.send_batch(vec![lstat_request("a"), lstat_request("b")]);
        let asked = peer.next_request();
        peer.send_bytes(&says(asked.id + 1));
        let why = session_error(&pending.wait()[0]);
        assert!(
            matches!(why.reason, CloseReason::ProtocolViolation(_)) && why.has_greeted,
            "{name}: {why:?}"
        );
        drop(session);
        peer.assert_closed();
    }
}

#[test]
fn reply_to_unwritten_request_is_invalid() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let pending = session.send_batch(vec![write_request(200_000)]);
    let id = session.0.shared.state.lock().unwrap().last_id;
    peer.send_reply(101, id, &[0; 4]);
    assert!(matches!(
        session_error(&pending.wait()[0]).reason,
        CloseReason::ProtocolViolation(_)
    ));
}

#[test]
fn failed_start_says_why() {
    let start = |says: &[u8], heard: &[u8], stays: bool| {
        let (link, mut peer) = piped_link();
        peer.errors.write_all(heard).unwrap();
        peer.send_bytes(says);
        let kept = stays.then_some(peer);
        let deadline = if stays { SHORT_TIMEOUT } else { LONG_TIMEOUT };
        let broken = Session::start(link, deadline_in(deadline)).unwrap_err();
        drop(kept);
        broken
    };
    let line = b"ssh: connect to host example.org port 22: Connection refused\r\n";
    let ended = start(b"", line, false);
    assert_eq!(
        (&ended.reason, &ended.stderr_before_version[..]),
        (&CloseReason::EndOfFile, &line[..])
    );
    assert_eq!(ended.to_string(), "the connection ended before SFTP began");
    let mute = start(b"", b"", true);
    assert!(matches!(mute.reason, CloseReason::ReplyTimeout(time) if time <= SHORT_TIMEOUT));
    assert!(matches!(
        start(&version_packet(&[])[..7], b"", true).reason,
        CloseReason::ReplyTimeout(_)
    ));
    let shell = start(b"Welcome to example.org!\n", b"", false);
    assert!(shell.to_string().contains("login shell"), "{shell}");
    assert!(!shell.has_greeted);
    let newer = start(&length_prefixed(&[2, 0, 0, 0, 4]), b"", false);
    assert!(matches!(newer.reason, CloseReason::ProtocolViolation(_)));
    assert_eq!(
        newer.to_string(),
        "the host violates the SFTP protocol: SFTP version 4, not 3"
    );
    let status = length_prefixed(&[101, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert!(matches!(
        start(&status, b"", false).reason,
        CloseReason::ProtocolViolation(_)
    ));
}

#[test]
fn stderr_after_version_is_read_and_dropped() {
    let (link, mut peer) = piped_link();
    let warning = b"Warning: Permanently added 'a' to the list of known hosts.\n";
    peer.errors.write_all(warning).unwrap();
    let starting = thread::spawn(move || Session::start(link, deadline_in(LONG_TIMEOUT)).unwrap());
    peer.read_exactly(9);
    // Error output is read as soon as it arrives.
    wait_until_read(&peer.errors);
    peer.send_bytes(&version_packet(&[]));
    let session = starting.join().unwrap();
    let pending = session.send_batch(vec![lstat_request("a")]);
    peer.next_request();
    let lost = b"Connection to a closed by remote host.\r\n";
    peer.errors.write_all(lost).unwrap();
    wait_until_read(&peer.errors);
    drop(peer);
    let ended = session_error(&pending.wait()[0]);
    assert_eq!(
        (ended.reason.clone(), ended.has_greeted),
        (CloseReason::EndOfFile, true)
    );
    assert_eq!(ended.stderr_before_version[..], warning[..]);
}

#[test]
fn close_ends_session_for_every_clone() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let pending = session.send_batch(vec![lstat_request("a")]);
    let clone = session.clone();
    peer.next_request();
    clone.close();
    assert_eq!(
        session_error(&pending.wait()[0]).reason,
        CloseReason::Closed
    );
    assert_eq!(
        session_error(&session.send_isolated(rename_pair(1), Vec::new()).wait()[0]).reason,
        CloseReason::Closed
    );
    peer.assert_closed();
}

#[test]
fn dropping_last_clone_closes_session() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let clone = session.clone();
    drop(session);
    let pending = clone.send_batch(vec![lstat_request("a")]);
    let asked = peer.next_request();
    peer.send_status(&asked, 0);
    pending.wait();
    let late = clone.send_batch(vec![lstat_request("b")]);
    drop(clone);
    assert_eq!(session_error(&late.wait()[0]).reason, CloseReason::Closed);
    peer.assert_closed();
}

#[test]
fn replies_before_disconnect_count() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let first = session.send_batch(vec![lstat_request("a")]);
    let asked = peer.next_request();
    peer.send_status(&asked, 3);
    let TestPeer {
        requests, replies, ..
    } = peer;
    drop(requests);
    let second = session.send_batch(vec![lstat_request("b")]);
    // Another thread that is just starting a process holds a copy for an instant.
    while session.end_error().is_none() {
        drop(session.send_batch(vec![lstat_request("c")]));
    }
    assert_eq!(
        session_error(&second.wait()[0]).reason,
        CloseReason::EndOfFile
    );
    assert_eq!(status_code(&first.wait()[0]), 3);
    drop(replies);
    let (session, mut peer) = super::tests::started_session(LONG_TIMEOUT);
    let both = session.send_batch(vec![lstat_request("a"), lstat_request("b")]);
    let asked = peer.next_request();
    peer.send_status(&asked, status::EOF);
    drop(peer);
    let answers = both.wait();
    assert_eq!(status_code(&answers[0]), status::EOF);
    assert_eq!(session_error(&answers[1]).reason, CloseReason::EndOfFile);
}

#[test]
fn callback_gets_replies_or_the_end() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let (sender, replies) = channel();
    for name in ["a", "b"] {
        let sender = sender.clone();
        let pending = session.send_batch(vec![lstat_request(name)]);
        pending.then(move |replies| sender.send(replies).unwrap());
    }
    let asked = peer.next_request();
    peer.send_status(&asked, 2);
    assert_eq!(status_code(&replies.recv().unwrap()[0]), 2);
    drop(peer);
    let ended = replies.recv().unwrap();
    assert_eq!(session_error(&ended[0]).reason, CloseReason::EndOfFile);
    // It is called at once for a session that has ended.
    let late = session.send_batch(vec![lstat_request("c")]);
    late.then(move |replies| sender.send(replies).unwrap());
    session_error(&replies.recv().unwrap()[0]);
}

#[test]
fn callback_may_drop_the_session() {
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let pending = session.send_batch(vec![lstat_request("a")]);
    pending.then(move |_| drop(session));
    let asked = peer.next_request();
    peer.send_status(&asked, 2);
    peer.assert_closed();
}

#[test]
fn panic_in_a_callback_ends_its_session_alone() {
    let (other, mut other_peer) = started_session(LONG_TIMEOUT);
    let (session, mut peer) = started_session(LONG_TIMEOUT);
    let pending = session.send_batch(vec![lstat_request("a")]);
    pending.then(|_| panic!("a test of panics"));
    let asked = peer.next_request();
    peer.send_status(&asked, 2);
    peer.assert_closed();
    let pending = other.send_batch(vec![lstat_request("a")]);
    let asked = other_peer.next_request();
    other_peer.send_status(&asked, 2);
    assert_eq!(status_code(&pending.wait()[0]), 2);
}

#[test]
fn earlier_deadline_wakes_the_version_wait() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let link = SessionPipes {
        input: ours.try_clone().unwrap().into(),
        output: ours.into(),
        stderr: None,
    };
    let deadline = Arc::new(MovingDeadline {
        begun: SystemClock.instant(),
        moved: AtomicBool::new(false),
        asked: AtomicUsize::new(0),
        waker: Mutex::default(),
    });
    let until = Arc::clone(&deadline);
    let starting = thread::spawn(move || Session::start(link, until).unwrap_err());
    // Read once for its length and once after the write of INIT. After that nothing happens, so
    // the thread sleeps until the deadline as it was then.
    while deadline.asked.load(Ordering::SeqCst) < 2 {
        thread::yield_now();
    }
    deadline.moved.store(true, Ordering::SeqCst);
    lock(&deadline.waker).as_ref().unwrap().wake();
    let broken = starting.join().unwrap();
    assert!(
        matches!(broken.reason, CloseReason::ReplyTimeout(_)),
        "{broken}"
    );
    drop(theirs);
}

/// Replies to some requests, each in time, and returns their number before the session ends.
fn send_late_replies(skip: usize) -> (usize, CloseReason) {
    let patience = Duration::from_secs(2);
    let (session, mut peer) = started_session(patience);
    let pending = session.send_batch(vec![lstat_request("a"); MAX_REQUESTS_IN_FLIGHT]);
    let asked: Vec<ReceivedRequest> = (0..MAX_REQUESTS_IN_FLIGHT)
        .map(|_| peer.next_request())
        .collect();
    let mut given = 0;
    for asked in &asked[skip..] {
        if peer.is_closed_within(patience / 2) {
            break;
        }
        peer.send_status(asked, 2);
        given += 1;
    }
    (
        given,
        session_error(&pending.wait()[MAX_REQUESTS_IN_FLIGHT - 1]).reason,
    )
}

#[test]
fn late_replies_end_the_session_in_total_time() {
    // All of them would take a quarter of an hour.
    let (given, why) = send_late_replies(0);
    assert!(given < 16, "{given} replies");
    assert_eq!(why, CloseReason::ReplyTimeout(Duration::from_secs(8)));
}

#[test]
fn skipped_reply_ends_the_session() {
    let (given, why) = send_late_replies(1);
    assert!(given < 16, "{given} replies");
    assert_eq!(why, CloseReason::ReplyTimeout(Duration::from_secs(8)));
}
